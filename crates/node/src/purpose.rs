//! The purpose of a question, and the requester of an answer: nouns that the desk keeps for its
//! callers.
//!
//! ```text
//! Purpose      of a question that this node asked: which machine takes the answer
//! Recipient    of an answer of this member: a peer, or a machine of this node
//! Requester    the same, with the epoch and the partition of the question
//! ```
//!
//! Invariants
//! 1. A purpose holds ids and numbers alone. The operation that they name may be over when the
//!    answer comes, and then the answer is dropped.
//!
//! Not here: the way of an answer (`node/`), its meaning (`coordinator/`, `hints/`).
//! See: docs/protocol.md.

use crate::step::Asker;
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::Partition;
use dendra_watch::{FeedId, QuestionId};

/// An operation's entry in the node's ledger.
pub(crate) type OpId = u64;

/// Which machine a walk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walker {
    /// A position moves to this member.
    Loader,
    /// This member has lost records.
    Repairer,
}

/// The name of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalkId {
    pub(crate) of: Walker,
    pub(crate) number: u64,
}

/// The machine, and its entry, that an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An operation asked it in its `round`, of the owner at `place`.
    Op { op: OpId, place: u8, round: u8 },
    /// A clock probe that serves many operations.
    Probe { probe: u64, member: MemberIndex },
    /// A hint is delivered, in one of the keeper's walks.
    Hint { walk: u32, slot: u16 },
    /// A member's page of a scan.
    Page {
        scan: u64,
        member: MemberIndex,
        round: u32,
    },
    /// A page of records that this member loads, as a new owner or for records that it has lost.
    Load { walk: WalkId },
    /// The foreground of a member, for the loader's look of this number.
    Foreground { look: u64, member: MemberIndex },
    /// The changes of a member, for the watches of this loop.
    Feed {
        source: FeedId,
        question: QuestionId,
    },
    /// A comparison with a peer: slot 0 is its question about a range, the others are repairs.
    Compare { walk: u64, slot: u32 },
    /// No machine waits for the answer: a repair that may fail, a look at a wall clock, news.
    Unneeded,
}

/// Where an answer of this member goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recipient {
    /// To another member.
    Peer(Asker),
    /// To a machine of this node.
    Own(Purpose),
}

/// A question that this member answers, as far as its answer needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    /// Gets the answer.
    pub(crate) to: Recipient,
    /// The epoch of the asker: the answer does not pass a later fence.
    pub(crate) epoch: u64,
    /// Partition of the key; `None` = the question is about all partitions.
    pub(crate) partition: Option<Partition>,
}
