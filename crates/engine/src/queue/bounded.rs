//! A batch behind a lock, with bounds.
//!
//! Invariants
//! 1. The lock is held for a copy in memory and never across I/O.
//! 2. `submit` and `take` are the only ways in and out: a write is in the queue or it was taken,
//!    once.
//!
//! Not here: the parts of a batch (`batch.rs`).

use super::sync::{Mutex, hold};
use crate::batch::{Batch, NotTaken};

/// Does the caller have to start a commit?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The queue was empty: wake the thread that commits.
    First,
    /// Others are waiting already: a commit is on its way.
    Behind,
}

/// Writes that wait for the next commit.
pub(crate) struct CommitQueue {
    waiting: Mutex<Batch>,
    len_max: usize,
    bytes_max: usize,
}

impl CommitQueue {
    /// An empty queue for so many writes and bytes of records.
    pub(crate) fn new(len_max: usize, bytes_max: usize) -> CommitQueue {
        CommitQueue {
            waiting: Mutex::new(Batch::new()),
            len_max,
            bytes_max,
        }
    }

    /// Moves `batch` into the queue; it is empty afterwards, or untouched when refused.
    pub(crate) fn submit(&self, batch: &mut Batch) -> Result<Submitted, NotTaken> {
        if batch.len() > self.len_max || batch.bytes().len() > self.bytes_max {
            return Err(NotTaken::BatchTooLarge {
                len: batch.len(),
                len_max: self.len_max,
                bytes: batch.bytes().len(),
                bytes_max: self.bytes_max,
            });
        }
        let mut waiting = hold(&self.waiting);
        let is_full = waiting.len() + batch.len() > self.len_max
            || waiting.bytes().len() + batch.bytes().len() > self.bytes_max;
        if is_full {
            return Err(NotTaken::QueueFull);
        }
        let is_first = waiting.is_empty();
        if !is_first {
            waiting.reserve_within(batch.bytes().len(), self.bytes_max);
        }
        waiting.append(batch);
        Ok(if is_first {
            Submitted::First
        } else {
            Submitted::Behind
        })
    }

    /// Takes everything that waits. Requires: `into` is empty; its buffers become the queue's.
    pub(crate) fn take(&self, into: &mut Batch) {
        assert!(into.is_empty(), "what was taken before is committed first");
        std::mem::swap(&mut *hold(&self.waiting), into);
    }
}
