//! Scans of a memtable, forward along the lowest level, backward by one search per step.
//!
//! Invariants
//! 1. The cell is chosen when the iterator arrives at a node: `current` does not change under the
//!    reader's hands when the key is written again.
//! 2. Nodes without a cell (an insert under way) are passed over.
//! 3. A record that is inserted ahead of the iterator while it scans may or may not be shown. A
//!    record that was there at `seek` is shown.
//!
//! Not here: merging with other sources (`merge.rs`).

#![expect(
    unsafe_code,
    reason = "the iterator keeps its table alive and addresses into it side by side"
)]

use super::list::{ListNode, ListRecord, Memtable, NodeRef, RecordRef};
use crate::Result;
use crate::source::Source;
use dendra_base::{CellRef, Direction};
use std::ops::Bound;
use std::ptr::NonNull;
use std::sync::Arc;

/// A position in a [`Memtable`] that keeps the table alive.
pub(crate) struct MemtableIter {
    table: Arc<Memtable>,
    direction: Direction,
    at: Option<IterPosition>,
}

/// Addresses in the iterator's own table.
struct IterPosition {
    node: NonNull<ListNode>,
    record: NonNull<ListRecord>,
}

// SAFETY: the addresses lead into a table that is `Send` and `Sync`, and the iterator owns a share
// of it. No part of it is bound to a thread.
unsafe impl Send for MemtableIter {}

impl Memtable {
    /// An iterator that stands nowhere until it is told to seek.
    pub(crate) fn iter(self: &Arc<Memtable>) -> MemtableIter {
        MemtableIter {
            table: Arc::clone(self),
            direction: Direction::Forward,
            at: None,
        }
    }

    /// `node`, or the next one in `direction` that has a cell.
    fn settle<'a>(
        &'a self,
        mut node: Option<NodeRef<'a>>,
        direction: Direction,
    ) -> Option<IterPosition> {
        loop {
            let candidate = node?;
            if let Some(record) = candidate.record() {
                return Some(IterPosition {
                    node: candidate.as_ptr(),
                    record: record.as_ptr(),
                });
            }
            node = self.neighbour(candidate, direction);
        }
    }

    fn neighbour<'a>(&'a self, node: NodeRef<'a>, direction: Direction) -> Option<NodeRef<'a>> {
        match direction {
            Direction::Forward => node.next(),
            Direction::Backward => self.split_before(node.key()).0,
        }
    }
}

impl Source for MemtableIter {
    fn seek(&mut self, bound: Bound<&[u8]>, direction: Direction) -> Result<()> {
        let table = &*self.table;
        let node = match (direction, bound) {
            (Direction::Forward, Bound::Unbounded) => table.first(),
            (Direction::Forward, Bound::Included(key)) => table.split_before(key).1,
            (Direction::Forward, Bound::Excluded(key)) => table.split_after(key).1,
            (Direction::Backward, Bound::Unbounded) => table.last(),
            (Direction::Backward, Bound::Included(key)) => table.split_after(key).0,
            (Direction::Backward, Bound::Excluded(key)) => table.split_before(key).0,
        };
        self.at = table.settle(node, direction);
        self.direction = direction;
        Ok(())
    }

    fn current(&self) -> Option<(&[u8], CellRef<'_>)> {
        let at = self.at.as_ref()?;
        // SAFETY: both addresses were taken from references into `self.table`, which lives at
        // least as long as the borrow of `self`.
        let (node, record) = unsafe { (NodeRef::new(at.node), RecordRef::new(at.record)) };
        Some((node.key(), record.cell()))
    }

    fn advance(&mut self) -> Result<()> {
        let at = self
            .at
            .take()
            .expect("advance is called on a positioned source");
        // SAFETY: as in `current`.
        let node = unsafe { NodeRef::new(at.node) };
        let table = &*self.table;
        self.at = table.settle(table.neighbour(node, self.direction), self.direction);
        Ok(())
    }
}
