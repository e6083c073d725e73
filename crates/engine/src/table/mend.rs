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
use super::index::Index;
use super::scrub::KeySpan;
use crate::source::Source;
use crate::vfs::Wait;
use crate::{Error, Result};
use dendra_base::{CellRef, Direction};
use std::ops::Bound;
use std::sync::Arc;

/// See the module. Walks forward, from the start, once.
pub(crate) struct MendIter {
    table: Arc<Table>,
    repaired: Vec<KeySpan>,
    partition: usize,
    index: Option<Index>,
    entry: usize,
    handle: Handle,
    data: BlockCursor,
}

impl MendIter {
    /// A source that stands nowhere yet.
    pub(crate) fn new(table: Arc<Table>, repaired: Vec<KeySpan>) -> MendIter {
        MendIter {
            table,
            repaired,
            partition: 0,
            index: None,
            entry: 0,
            handle: Handle {
                offset: 0,
                bytes: 0,
            },
            data: BlockCursor::new(),
        }
    }

    /// `None` when the error is damage in a repaired span.
    fn unless_repaired<T>(&self, read: Result<T>, span: &KeySpan) -> Result<Option<T>> {
        match read {
            Err(Error::Damaged { .. }) if self.repaired.iter().any(|it| it.covers(span)) => {
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Goes on to the next block until there is a record or the table ends.
    fn settle(&mut self) -> Result<()> {
        while self.data.current().is_none() && self.partition < self.table.top.len() {
            self.next_block()?;
        }
        Ok(())
    }

    fn next_block(&mut self) -> Result<()> {
        let at = self.partition;
        let Some(index) = &self.index else {
            let read = self.table.read_index(at, Wait::Block);
            self.index = self.unless_repaired(read, &self.table.span_of_partition(at))?;
            self.entry = 0;
            if self.index.is_none() {
                self.partition += 1;
            }
            return Ok(());
        };
        if self.entry == index.len() {
            self.index = None;
            self.partition += 1;
            return Ok(());
        }
        let (entry, span) = (self.entry, self.table.span_of_block(at, index, self.entry));
        self.entry += 1;
        let (handle, _) = index.block(entry);
        self.handle = handle;
        let read = self.table.read_frame(handle, Wait::Block, |frame| {
            self.table.checked_block(at, index, entry, frame)
        });
        if let Some(block) = self.unless_repaired(read, &span)? {
            self.data
                .seek(block, Bound::Unbounded, Direction::Forward)
                .map_err(|m| self.table.malformed(FrameKind::Data, handle, m))?;
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
