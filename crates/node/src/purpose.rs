//! The purpose of a question, and the requester of an answer: nouns that the desk keeps for its
//! callers.
//!
//! ```text
//! Purpose      of a question that this node asked: which machine takes the answer
//! Requester    of a question that this member answers: a peer, or a machine of this node
//! ```
//!
//! Invariants
//! 1. A purpose holds ids and numbers alone. What they name may be over when the answer comes, and
//!    then the answer is dropped.
//!
//! Not here: who routes an answer (`node.rs`), what it means (`coordinator/`, `hints.rs`).
//! See: docs/protocol.md.

use crate::member::MemberIndex;
use crate::step::Asker;

/// An operation's entry in the node's ledger.
pub(crate) type OpId = u64;

/// What an answer is for.
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
    /// Nobody waits: a repair that may fail.
    Nobody,
}

/// Who gets an answer of this member.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requester {
    /// Another member.
    Peer(Asker),
    /// A machine of this node.
    Own(Purpose),
}
