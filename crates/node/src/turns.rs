//! Whose turn it is: conditional writes of one key, begun at one event loop, go one after the other.
//!
//! ```text
//! begin ── nobody is ahead ──► goes, ahead of the others
//!       ── else ─────────────► waits ── the one ahead is told ──► judged with it, or ahead itself
//!                                    ── nothing moves ──────────► goes beside the one ahead
//! ```
//!
//! Invariants
//! 1. Waiting is for speed alone: it is right to go at any time, rivals at other members do so.
//! 2. An operation that waits is in its key's queue, and a queue has an operation ahead of it.
//!
//! Not here: what is asked of the owners (`coordinator/paxos.rs`).
//! See: docs/protocol.md.

use crate::limits::TURN_US_MAX;
use crate::places::Places;
use crate::purpose::OpId;
use bytes::Bytes;
use dendra_base::{Cell, Quorum};
use std::collections::{HashMap, VecDeque};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    queues: HashMap<Bytes, Queue>,
    /// How many operations came, so that it is known who came before what.
    came: u64,
    /// What was settled in this step, with those who wait behind it.
    pub(crate) passed: VecDeque<Passed>,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// When somebody went ahead last.
    moved_us: u64,
}

/// Where a conditional write stands among those of its key and loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has not joined the queue.
    New,
    /// In the queue, behind another one.
    Waits,
    /// The others wait for it.
    Ahead,
    /// Outside of the queue: nothing moved for long, or the write is over.
    Beside,
}

/// An operation that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) op: OpId,
    /// As the how manieth it came.
    pub(crate) came: u64,
}

/// The operation ahead was told.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) key: Bytes,
    pub(crate) precedent: Option<Precedent>,
}

/// What a majority holds of a key, for those who waited before it was asked.
#[derive(Debug)]
pub(crate) struct Precedent {
    /// The copy; `None` = none was ever written.
    pub(crate) cell: Option<Cell>,
    /// Who came before this is judged by it.
    pub(crate) before: u64,
    pub(crate) quorum: Quorum,
    pub(crate) good: Places,
}

impl Turns {
    /// How many operations came so far.
    pub(crate) fn came(&self) -> u64 {
        self.came
    }

    /// Takes an operation's turn, or a place in the queue; is it ahead?
    pub(crate) fn join(&mut self, key: &Bytes, op: OpId, now_us: u64) -> bool {
        let came = self.came;
        self.came += 1;
        if let Some(queue) = self.queues.get_mut(key) {
            queue.waiting.push_back(Waiting { op, came });
            return false;
        }
        let queue = Queue {
            waiting: VecDeque::new(),
            moved_us: now_us,
        };
        self.queues.insert(key.clone(), queue);
        true
    }

    /// Until when an operation waits although nothing moves.
    pub(crate) fn patience_us(&self, key: &Bytes) -> u64 {
        let moved_us = self.queues.get(key).map_or(0, |queue| queue.moved_us);
        moved_us.saturating_add(TURN_US_MAX)
    }

    /// An operation waits no more.
    pub(crate) fn leave(&mut self, key: &Bytes, op: OpId) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.waiting.retain(|waiting| waiting.op != op);
        }
    }

    /// Whoever waits behind this operation, which is over.
    pub(crate) fn behind(&mut self, key: &Bytes) -> VecDeque<Waiting> {
        self.queues
            .remove(key)
            .map(|queue| queue.waiting)
            .unwrap_or_default()
    }

    /// Somebody goes ahead of those who wait.
    pub(crate) fn go_ahead(&mut self, key: &Bytes, waiting: VecDeque<Waiting>, now_us: u64) {
        let queue = Queue {
            waiting,
            moved_us: now_us,
        };
        self.queues.insert(key.clone(), queue);
    }
}
