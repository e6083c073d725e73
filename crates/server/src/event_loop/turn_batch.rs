//! The writes of one turn of a loop, until they are submitted together.
//!
//! Invariants
//! 1. A batch that is begun holds at most `LANE_BATCH_LEN_MAX` writes, and half of the log's queue;
//!    an empty one takes any write.
//!
//! Not here: who may write into it (`write_lines.rs`), the commit (`thread/log.rs`).

use crate::lanes::mailbox::LoopEvent;
use crate::limits;
use crate::waiting::seat::LocalBell;
use dendra_engine::{Batch, WriteOutcome};
use dendra_node::admission::line::BatchState;
use std::cell::RefCell;

/// See the module.
pub(super) struct TurnBatch {
    pub(super) batch: RefCell<Batch>,
    bytes_max: usize,
    /// Rung when the batch is to be committed, or a write in line may go.
    pub(super) due: LocalBell,
    /// Scratch space for the outcomes of a commit that this loop makes itself.
    pub(super) done: RefCell<Vec<(u64, WriteOutcome)>>,
    /// Scratch space for events, by loop.
    pub(super) groups: RefCell<Vec<Vec<LoopEvent>>>,
}

impl TurnBatch {
    /// An empty batch of one of `loops`.
    pub(super) fn new(bytes_max: usize, loops: usize) -> TurnBatch {
        TurnBatch {
            batch: RefCell::default(),
            bytes_max,
            due: LocalBell::default(),
            done: RefCell::default(),
            groups: RefCell::new((0..loops).map(|_| Vec::new()).collect()),
        }
    }

    /// Is nothing in it?
    pub(super) fn is_empty(&self) -> bool {
        self.batch.borrow().is_empty()
    }

    /// The batch as the lines before it see it.
    pub(super) fn state(&self) -> BatchState {
        if self.is_empty() {
            BatchState::Empty
        } else {
            BatchState::Begun
        }
    }

    /// Has it room for a record of so many bytes?
    pub(super) fn has_room(&self, record_bytes: usize) -> bool {
        let batch = self.batch.borrow();
        batch.is_empty()
            || (batch.len() < limits::LANE_BATCH_LEN_MAX
                && batch.bytes().len() + record_bytes <= self.bytes_max)
    }
}
