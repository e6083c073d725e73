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

use super::identity::{IMPLAUSIBLE, OTHER_NODE, Peer, REMOVED, ROLLED_BACK, TWIN};
use super::refusal::{Disowned, NoLink, STILL_THERE};
use crate::member::MemberIndex;
use std::fmt;

/// The codes of all refusals.
const REFUSING: [&str; 6] = [
    OTHER_NODE,
    ROLLED_BACK,
    TWIN,
    REMOVED,
    IMPLAUSIBLE,
    STILL_THERE,
];

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
    /// The same process goes on to its first question, or gets the first one.
    Claimed {
        /// The member that it says to be.
        member: MemberIndex,
        /// As it was hailed.
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
        /// Its event loop.
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
        /// Its admitted life.
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
    /// Its time is over: log a warning.
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

/// Why a process is refused. As a farewell: `other-node epoch=8 others=2: sentence`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The stable code.
    pub code: &'static str,
    /// The newest epoch that the refusing member knows.
    pub epoch: u64,
    /// How many members that epoch has beside the refused one.
    pub others: u16,
    /// For people.
    pub sentence: String,
}

impl Rejected {
    /// Reads the form that `Display` writes; `None` = it is no refusal of a folder or process.
    pub fn parse(said: &str) -> Option<Rejected> {
        let (head, sentence) = said.split_once(": ")?;
        let mut words = head.split(' ');
        let code = words.next()?;
        let known = REFUSING.into_iter().find(|known| *known == code)?;
        let epoch = words.next()?.strip_prefix("epoch=")?.parse().ok()?;
        let others = words.next()?.strip_prefix("others=")?.parse().ok()?;
        words.next().is_none().then(|| Rejected {
            code: known,
            epoch,
            others,
            sentence: sentence.to_owned(),
        })
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rejected {
            code,
            epoch,
            others,
            sentence,
        } = self;
        write!(f, "{code} epoch={epoch} others={others}: {sentence}")
    }
}
