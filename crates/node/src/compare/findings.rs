//! An operator's order to look for copies that differ, and the findings of a look.
//!
//! Invariants
//! 1. A report has one entry for each peer of its order, and at most `LOOK_EXAMPLES_MAX` keys of
//!    each.
//!
//! Not here: looking (`look.rs`).
//! See: docs/operating.md, "Look without a repair".

use crate::limits::LOOK_EXAMPLES_MAX;
use bytes::Bytes;
use dendra_ownership::member::MemberIndex;

/// An operator's order to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookOrder {
    /// The world's mark; comes back with the report.
    pub id: u64,
    /// The members to compare with, one after the other.
    pub peers: Vec<MemberIndex>,
    /// How many bytes of keys and cells a second to compare, about.
    pub bytes_per_second: u64,
}

/// How the copies of a record differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDifference {
    /// The peer has an older version.
    NewerHere,
    /// This member has an older version.
    NewerThere,
    /// The peer has it.
    MissingHere,
    /// This member has it.
    MissingThere,
    /// One version, other bytes.
    Content,
    /// The promise of one member is higher.
    Promise,
}

impl CopyDifference {
    /// All of them.
    pub const ALL: [CopyDifference; 6] = [
        CopyDifference::NewerHere,
        CopyDifference::NewerThere,
        CopyDifference::MissingHere,
        CopyDifference::MissingThere,
        CopyDifference::Content,
        CopyDifference::Promise,
    ];

    /// Name of the difference, for programs.
    pub fn code(self) -> &'static str {
        match self {
            CopyDifference::NewerHere => "newer_here",
            CopyDifference::NewerThere => "newer_there",
            CopyDifference::MissingHere => "missing_here",
            CopyDifference::MissingThere => "missing_there",
            CopyDifference::Content => "other_content",
            CopyDifference::Promise => "promises",
        }
    }
}

/// How far the look with one peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairState {
    /// Others come first.
    Waiting,
    /// The look with this peer is under way.
    UnderWay,
    /// All shared records were looked at, but for ranges that were left out.
    Compared,
    /// The peer is away, or too busy, or knows another epoch.
    Unreached,
}

/// The look with one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairLook {
    /// The peer.
    pub peer: MemberIndex,
    /// How far it is.
    pub state: PairState,
    /// Keys and cells that were read here.
    pub bytes: u64,
    /// Ranges that were left out because a copy is damaged.
    pub left_out: u64,
    counts: [u64; CopyDifference::ALL.len()],
    /// Raw keys of the first records that differ, at most `LOOK_EXAMPLES_MAX`.
    pub examples: Vec<(Bytes, CopyDifference)>,
}

impl PairLook {
    pub(super) fn new(peer: MemberIndex) -> PairLook {
        PairLook {
            peer,
            state: PairState::Waiting,
            bytes: 0,
            left_out: 0,
            counts: [0; CopyDifference::ALL.len()],
            examples: Vec::new(),
        }
    }

    /// How many records differ so.
    pub fn count(&self, difference: CopyDifference) -> u64 {
        self.counts[difference as usize]
    }

    pub(super) fn found(&mut self, key: Bytes, difference: CopyDifference) {
        self.counts[difference as usize] += 1;
        if self.examples.len() < LOOK_EXAMPLES_MAX {
            self.examples.push((key, difference));
        }
    }
}

/// The findings of a look so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookReport {
    /// Id of the order.
    pub id: u64,
    /// One for each peer of the order.
    pub pairs: Vec<PairLook>,
    /// Has it ended?
    pub is_over: bool,
}

impl LookReport {
    /// Report of a look that has not begun.
    pub fn of(order: &LookOrder) -> LookReport {
        let peers = order.peers.iter();
        LookReport {
            id: order.id,
            pairs: peers.map(|peer| PairLook::new(*peer)).collect(),
            is_over: order.peers.is_empty(),
        }
    }
}
