//! Writes that wait for a member's log.

use crate::store::StoreWrite;
use dendra_node::step::StoreTicket;

/// Which part of a member waits for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// None: the write carries a clock ceiling.
    Nobody,
    /// The loop of the member.
    Loop(StoreTicket),
    /// The steward of the member.
    Steward,
}

/// A write that waits for the log.
#[derive(Clone, Debug)]
pub(crate) struct PendingWrite {
    pub(crate) lane: usize,
    pub(crate) waiter: Waiter,
    pub(crate) write: StoreWrite,
}

impl PendingWrite {
    /// The room that it takes in a batch, or a little more.
    pub(crate) fn bytes(&self) -> usize {
        self.write.key.as_stored().len() + self.write.cell.value.len() + 64
    }
}
