//! The queues of conditional writes: those of one key, begun at one loop, go one after the other.
//!
//! ```text
//! join ── the key has no queue ─► it is made, and the write is ahead
//!      ── else ─► waits ── the one ahead was told ─► judged by its precedent, or ahead
//!                       ── nothing moves ──────────► leaves the queue, and goes beside it
//! ```
//!
//! Invariants
//! 1. Waiting only saves work. A write may go at any time, as rivals at other members do.
//! 2. A write that waits is in its key's queue, and each queue has one write ahead of it.
//!
//! Not here: when a write joins and leaves (`coordinator/queue.rs`).
//! See: docs/protocol.md.

use crate::limits::QUEUE_STILL_US_MAX;
use crate::places::Places;
use crate::purpose::OpId;
use bytes::Bytes;
use dendra_base::{Cell, Quorum};
use std::collections::{HashMap, VecDeque};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct WriteQueues {
    queues: HashMap<Bytes, KeyQueue>,
    /// How many writes have joined a queue: their numbers tell which came before a ballot.
    came: u64,
    /// Writes that got their outcome in this step, until the node has judged those behind them.
    pub(crate) passed: VecDeque<PassedWrite>,
}

#[derive(Debug)]
struct KeyQueue {
    waiting: VecDeque<WaitingOp>,
    /// When a write of the queue last became the one ahead.
    moved_us: u64,
}

/// The standing of a conditional write among those of its key and loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueStanding {
    /// The write has not joined the queue.
    New,
    /// In the queue, behind another one.
    Waits,
    /// The others wait for it.
    Ahead,
    /// Outside of the queue: the queue did not move for long, or the write is over.
    Beside,
}

/// An operation that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingOp {
    pub(crate) op: OpId,
    /// Number of the operation among all writes that joined a queue of this loop.
    pub(crate) came: u64,
}

/// A write that was ahead, after its outcome: the next one of its key goes ahead.
#[derive(Debug)]
pub(crate) struct PassedWrite {
    pub(crate) key: Bytes,
    pub(crate) precedent: Option<Precedent>,
}

/// The copy of a key that a majority holds, as the write ahead found or left it. Writes that waited
/// before the majority was asked are judged by it.
#[derive(Debug)]
pub(crate) struct Precedent {
    /// The copy; `None` = none was ever written.
    pub(crate) cell: Option<Cell>,
    /// A waiting write with a smaller number than this is judged by it.
    pub(crate) before: u64,
    /// Quorum of the write ahead: a write with another one asks other owners.
    pub(crate) quorum: Quorum,
    /// Owners that hold the copy, or answered.
    pub(crate) good: Places,
}

impl WriteQueues {
    /// How many writes have joined a queue so far.
    pub(crate) fn came(&self) -> u64 {
        self.came
    }

    /// Puts an operation ahead of its key's queue, or into the queue; is it ahead?
    pub(crate) fn join(&mut self, key: &Bytes, op: OpId, now_us: u64) -> bool {
        let came = self.came;
        self.came += 1;
        if let Some(queue) = self.queues.get_mut(key) {
            queue.waiting.push_back(WaitingOp { op, came });
            return false;
        }
        let queue = KeyQueue {
            waiting: VecDeque::new(),
            moved_us: now_us,
        };
        self.queues.insert(key.clone(), queue);
        true
    }

    /// Until when an operation waits although its queue does not move.
    pub(crate) fn patience_us(&self, key: &Bytes) -> u64 {
        let moved_us = self.queues.get(key).map_or(0, |queue| queue.moved_us);
        moved_us.saturating_add(QUEUE_STILL_US_MAX)
    }

    /// An operation waits no more.
    pub(crate) fn leave(&mut self, key: &Bytes, op: OpId) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.waiting.retain(|waiting| waiting.op != op);
        }
    }

    /// Takes the writes that wait for this key: the one ahead is over.
    pub(crate) fn behind(&mut self, key: &Bytes) -> VecDeque<WaitingOp> {
        self.queues
            .remove(key)
            .map(|queue| queue.waiting)
            .unwrap_or_default()
    }

    /// One of the writes that waited is ahead of the others.
    pub(crate) fn go_ahead(&mut self, key: &Bytes, waiting: VecDeque<WaitingOp>, now_us: u64) {
        let queue = KeyQueue {
            waiting,
            moved_us: now_us,
        };
        self.queues.insert(key.clone(), queue);
    }
}
