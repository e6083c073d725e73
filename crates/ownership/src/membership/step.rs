//! Events and effects of the membership machine: all that it is told, and all that it wants done.
//!
//! ```text
//! handshake   Hailed ─► Welcome | Reject
//!             Claimed ─► Admit | WriteNote ─ NoteWritten ─► Admit | Reject
//! links       LinkUp ─► nothing | Reject     LinkDown, Confirmed, Stopping ─► WriteNote
//!             NoLink ─► nothing | Stop
//! a start     StartAsked ─► Ask … StartAnswered ─► Ask again | OpenLinks | Stop
//!             Tried, Heard, Tick ─► OpenDoor ─► Ready
//! ```
//!
//! Invariants
//! 1. The effects of an event are for the caller that told it: no effect has to find a waiting
//!    task.
//! 2. A note that fails is not reported. No claim rests on it then.
//!
//! Not here: the rules (`mod.rs`).

use super::identity::Peer;
use super::refusal::{Disowned, NoLink, Rejected};
use crate::member::MemberIndex;

/// The events that the machine takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberEvent {
    /// A process makes this claim: the asker of a link after its proof, or the acceptor of an own
    /// one in its hello. No note is written.
    Hailed {
        /// The member that it says to be.
        member: MemberIndex,
        /// See `Peer`.
        claim: Peer,
    },
    /// A hailed process goes on to its first question, or gets the first one.
    Claimed {
        /// The member that it says to be.
        member: MemberIndex,
        /// Claim with which it was hailed.
        claim: Peer,
    },
    /// A note is durable.
    NoteWritten(PeerNote),
    /// An own link is up. Requires: the claim was admitted.
    LinkUp {
        /// To this member.
        member: MemberIndex,
        /// The own event loop.
        lane: u16,
        /// The process at its other end.
        claim: Peer,
    },
    /// An own link is lost. Requires: `LinkUp` counted it.
    LinkDown {
        /// To this member.
        member: MemberIndex,
        /// The highest clock value that the member confirmed over it; 0 = none.
        confirmed: u64,
    },
    /// A sweep of an event loop: the highest clock value that a member confirmed since the last
    /// one.
    Confirmed {
        /// Which member.
        member: MemberIndex,
        /// 0 = none.
        clock: u64,
    },
    /// A try to open a link failed.
    NoLink {
        /// To this member.
        member: MemberIndex,
        /// The own event loop.
        lane: u16,
        /// How.
        why: NoLink,
    },
    /// The first try of an own event loop is over, well or badly.
    Tried {
        /// To this member.
        member: MemberIndex,
        /// The own event loop.
        lane: u16,
    },
    /// A link that an event loop of a member opened was admitted.
    Heard {
        /// The member.
        member: MemberIndex,
        /// Event loop of the member.
        lane: u16,
    },
    /// The start has its record, and no other member knows of it.
    StartAsked,
    /// A member answered an `Ask`.
    StartAnswered {
        /// Which.
        member: MemberIndex,
        /// How many event loops it has, if it admits this process and is admitted.
        answer: Result<u16, NoLink>,
    },
    /// `Membership::due_us` has come.
    Tick,
    /// The process stops: no event loop works any more.
    Stopping,
}

/// The effects that the machine orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberEffect {
    /// The claim would be admitted.
    Welcome,
    /// From here on the process with this life is the member: drop frames of every other life.
    Admit {
        /// Which member.
        member: MemberIndex,
        /// Life of the member that is admitted.
        life: u64,
    },
    /// The process is refused.
    Reject(Rejected),
    /// Make this durable, and report it.
    WriteNote(PeerNote),
    /// Ask a member whether it admits this process; after a pause if it was asked before.
    Ask {
        /// Which.
        member: MemberIndex,
    },
    /// All members that can be asked have answered: let each event loop open its links.
    OpenLinks,
    /// Accept clients.
    OpenDoor(WaitEnd),
    /// Say that the node is ready.
    Ready(WaitEnd),
    /// End this process.
    Stop(Disowned),
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// All is there.
    Over,
    /// The wait's time is over: log a warning.
    GivenUp,
}

/// A record about a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerNote {
    /// Which member.
    pub member: MemberIndex,
    /// The record.
    pub peer: Peer,
    /// The step that waits for it.
    pub purpose: NoteFor,
}

/// The steps that wait for a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteFor {
    /// A process, until it is admitted.
    Claim,
    /// No step waits for it.
    Clock,
}
