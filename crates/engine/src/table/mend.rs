//! The records of a table but for damaged blocks whose keys were repaired.
//!
//! ```text
//! block  whole                          its records
//!        damaged, in a repaired span    skipped
//!        damaged elsewhere              Error::Damaged: the job is given up
//! ```
//!
//! Invariants
//! 1. Each readable record is shown, in a repaired span, too.
//! 2. No record outside of the repaired spans is left out.
//!
//! Not here: whether a span is repaired (the caller of the engine), the job (`compact/run.rs`).

use super::Table;
use super::cursor::BlockCursor;
use super::frame::{FrameKind, Handle};
use super::walk::{Flaw, KeySpan, TableWalk, WalkOptions};
use crate::Result;
use crate::source::Source;
use dendra_base::{CellRef, Direction};
use std::ops::Bound;
use std::sync::Arc;

/// See the module. Walks forward, from the start, once.
pub(crate) struct MendIter {
    table: Arc<Table>,
    repaired: Vec<KeySpan>,
    walk: TableWalk,
    handle: Handle,
    data: BlockCursor,
}

impl MendIter {
    /// A source that stands nowhere yet.
    pub(crate) fn new(table: Arc<Table>, repaired: Vec<KeySpan>) -> MendIter {
        MendIter {
            walk: TableWalk::new(0..table.top.len(), WalkOptions::MEND),
            table,
            repaired,
            handle: Handle {
                offset: 0,
                bytes: 0,
            },
            data: BlockCursor::new(),
        }
    }

    /// Goes on to the next block until there is a record or the table ends.
    fn settle(&mut self) -> Result<()> {
        let (table, repaired) = (&self.table, &self.repaired);
        let is_repaired = |lost: &KeySpan| repaired.iter().any(|it| it.covers(lost));
        let mut on_flaw = |flaw: Flaw| {
            if flaw.span.as_ref().is_none_or(is_repaired) {
                return Ok(());
            }
            Err(table.damaged(flaw.offset, flaw.reason))
        };
        while self.data.current().is_none()
            && let Some((block, handle)) =
                self.walk.next(table, &mut |_, _| Ok(()), &mut on_flaw)?
        {
            self.handle = handle;
            self.data
                .seek(block, Bound::Unbounded, Direction::Forward)
                .map_err(|m| table.malformed(FrameKind::Data, handle, m))?;
        }
        Ok(())
    }
}

impl Source for MendIter {
    fn seek(&mut self, bound: Bound<&[u8]>, direction: Direction) -> Result<()> {
        assert!(
            bound == Bound::Unbounded && direction == Direction::Forward,
            "a table is mended from its first record to its last"
        );
        self.settle()
    }

    fn current(&self) -> Option<(&[u8], CellRef<'_>)> {
        let (key, value) = self.data.current()?;
        let cell = CellRef::decode(value).expect("all cells of the block were decoded before");
        Some((key, cell))
    }

    fn advance(&mut self) -> Result<()> {
        self.data
            .advance()
            .map_err(|m| self.table.malformed(FrameKind::Data, self.handle, m))?;
        self.settle()
    }
}
