//! A promise or an acceptance under way: the question, and the store's answers so far.
//!
//! Invariants
//! 1. `record` and `previous` are of the last read of the record: a try that found it changed reads
//!    it again.
//! 2. `stored` is known only after a read of the stored cell, and only a promise reads it.
//!
//! Not here: the order of reads and writes (`protocol.rs`).
//! See: docs/protocol.md.

use super::record::Record;
use crate::purpose::{Purpose, Recipient, Requester};
use bytes::Bytes;
use dendra_base::peer::{Ballot, Proposal};
use dendra_base::{Cell, Version};

/// The fate of a question when its record cannot be read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfLost {
    /// The question is refused: the promise in the lost record still counts.
    Refuse,
    /// A repair, which walks enough other owners, writes it anew.
    WriteAnew,
}

/// The question.
#[derive(Debug)]
pub(crate) enum ProtocolQuestion {
    /// Promise this ballot.
    Prepare { ballot: Ballot },
    /// Accept this proposal.
    Accept { proposal: Proposal },
    /// Keep another owner's promise and accepted proposal, beside this one's.
    Adopt { record: Record, if_lost: IfLost },
}

impl ProtocolQuestion {
    pub(super) fn ballot(&self) -> Ballot {
        match self {
            ProtocolQuestion::Prepare { ballot } => *ballot,
            ProtocolQuestion::Accept { proposal } => proposal.ballot,
            ProtocolQuestion::Adopt { record, .. } => record.promised,
        }
    }
}

/// The order to the store that is under way.
#[derive(Debug)]
pub(super) enum StoreStep {
    ReadRecord,
    ReadStored,
    WriteRecord,
}

/// One question under way.
#[derive(Debug)]
pub(crate) struct ProtocolJob {
    pub(super) requester: Requester,
    pub(super) key: Bytes,
    pub(super) question: ProtocolQuestion,
    pub(super) deadline_us: u64,
    pub(super) step: StoreStep,
    pub(super) tries: u8,
    pub(super) record: Record,
    /// Version of the record that was read.
    pub(super) previous: Option<Version>,
    pub(super) stored: Option<Cell>,
}

impl ProtocolJob {
    /// Gets the answer.
    pub(crate) fn requester(&self) -> Requester {
        self.requester
    }

    /// The answer is of no use any more: it is not sent.
    pub(crate) fn forget_requester(&mut self) {
        self.requester.to = Recipient::Own(Purpose::Unneeded);
    }
}
