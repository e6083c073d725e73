//! One part of a table as the disk has it: every frame and every cell of it, and which are damaged.
//!
//! ```text
//! part i      filter, index and data blocks of partition i
//! last part   top index, properties, footer
//!
//! damaged block    its keys are unknown, and lie behind the block before it, up to its separator
//! damaged index    the same of its partition
//! the rest         no record is lost: the table can be written anew
//! ```
//!
//! Invariants
//! 1. Reads go past the caches and leave them as they were.
//! 2. Damage is a spot, never an error; one damaged block hides no other.
//! 3. A block without a spot shows all its records, and each value is as its writer stored it.
//!
//! Not here: which part is read when (`engine/src/scrub/`), the order of the whole (`verify.rs`).
//! See: docs/operating.md, "Damage".

use super::Table;
use super::block::Block;
use super::cursor::BlockCursor;
use super::frame::{FrameKind, Handle};
use super::index::Index;
use super::reader::{io_error, read_end, read_frame};
use crate::vfs::{PastCache, Wait, read_exact_at};
use crate::{Error, Result};
use dendra_base::{CellRef, Direction, Version};
use std::ops::Bound;
use std::sync::Arc;

/// Bytes that are read at once: a partition in a few reads.
const WINDOW_BYTES: u64 = 256 << 10;

/// Stored keys from `first` to `last`, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySpan {
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

impl KeySpan {
    /// Does all of `other` lie in this span?
    pub(crate) fn covers(&self, other: &KeySpan) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// A damaged spot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// Where in the file.
    pub(crate) offset: u64,
    /// Between which keys records are lost; `None` = nowhere.
    pub(crate) span: Option<KeySpan>,
    pub(crate) reason: String,
}

/// The bytes that were read, and the room for them.
#[derive(Default)]
pub(crate) struct ScrubRead {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl Table {
    /// How many parts it has.
    pub(crate) fn scrub_parts(&self) -> usize {
        self.top.len() + 1
    }

    /// Reads part `part` and adds its damaged spots to `spots`. An error says that the disk could
    /// not be asked.
    pub(crate) fn scrub_part(
        &self,
        part: usize,
        read: &mut ScrubRead,
        spots: &mut Vec<Flaw>,
    ) -> Result<()> {
        if part < self.top.len() {
            return self.scrub_partition(part, read, spots);
        }
        let file = PastCache(&*self.file);
        let offset = self.footer.top.offset;
        read.bytes += self.meta.bytes - offset;
        let found = read_end(&file, &self.name(), Some(self.meta.id));
        let damage = match found {
            Ok(end) => {
                let difference = self.meta.difference(&end.meta);
                difference.map(|difference| (offset, difference))
            }
            Err(Error::Damaged {
                offset: at, reason, ..
            }) => Some((at, reason)),
            Err(Error::Unusable { reason }) => Some((offset, reason)),
            Err(error) => return Err(error),
        };
        spots.extend(damage.map(|(at, reason)| Flaw {
            offset: at,
            span: None,
            reason,
        }));
        Ok(())
    }

    fn scrub_partition(&self, i: usize, read: &mut ScrubRead, spots: &mut Vec<Flaw>) -> Result<()> {
        let partition = self.top.partition(i);
        let mut damaged = |error: Error, span: Option<KeySpan>| match error {
            Error::Damaged { offset, reason, .. } => {
                spots.push(Flaw {
                    offset,
                    span,
                    reason,
                });
                Ok(())
            }
            other => Err(other),
        };
        if let Some(handle) = partition.filter
            && let Err(error) = self.scrub_filter(handle, read)
        {
            damaged(error, None)?;
        }
        let index = match self.scrub_index(partition.index, read) {
            Ok(index) => index,
            Err(error) => return damaged(error, Some(self.span_of_partition(i))),
        };
        let data = self.top.data(i);
        let mut offset = data.start;
        for entry in 0..index.len() {
            let (handle, _) = index.block(entry);
            if handle.offset != offset || handle.end() > data.end {
                let reason = "the index has no block that starts here";
                let error = Error::damaged(self.name(), offset, reason);
                // From here on the index cannot be followed.
                let span = KeySpan {
                    last: self.span_of_partition(i).last,
                    ..self.span_of_block(i, &index, entry)
                };
                return damaged(error, Some(span));
            }
            offset = handle.end();
            read.blocks += 1;
            read.bytes += u64::from(handle.bytes);
            let checked = match self.scrub_window(handle, data.end, read) {
                Ok(()) => {
                    let start = (handle.offset - read.window_start) as usize;
                    let frame = &read.window[start..start + handle.bytes as usize];
                    self.checked_block(i, &index, entry, frame).map(|_| ())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = checked {
                damaged(error, Some(self.span_of_block(i, &index, entry)))?;
            }
        }
        Ok(())
    }

    fn scrub_filter(&self, handle: Handle, read: &mut ScrubRead) -> Result<()> {
        read.blocks += 1;
        read.bytes += u64::from(handle.bytes);
        self.read_whole(handle, |frame| self.parse_filter(handle, frame).map(|_| ()))
    }

    fn scrub_index(&self, handle: Handle, read: &mut ScrubRead) -> Result<Index> {
        read.blocks += 1;
        read.bytes += u64::from(handle.bytes);
        self.read_whole(handle, |frame| {
            let block = self.parse_block(FrameKind::Index, handle, frame)?;
            Index::parse(&block).map_err(|m| self.malformed(FrameKind::Index, handle, m))
        })
    }

    fn read_whole<R>(&self, handle: Handle, parse: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        let file = PastCache(&*self.file);
        let limit = self.footer.top.offset;
        read_frame(&file, limit, handle, Wait::Block, &|| self.name(), parse)
    }

    /// Makes the window cover `handle`, and the blocks that follow it in its partition.
    fn scrub_window(&self, handle: Handle, data_end: u64, read: &mut ScrubRead) -> Result<()> {
        let window_end = read.window_start + read.window.len() as u64;
        if handle.offset >= read.window_start && handle.end() <= window_end {
            return Ok(());
        }
        let file = PastCache(&*self.file);
        let end = (handle.offset + WINDOW_BYTES).clamp(handle.end(), data_end.max(handle.end()));
        let mut failure = None;
        // A disk that cannot read all of the window may read this block.
        for wanted_end in [end, handle.end()] {
            read.window_start = handle.offset;
            read.window.clear();
            read.window.resize((wanted_end - handle.offset) as usize, 0);
            match read_exact_at(&file, &mut read.window, handle.offset, Wait::Block) {
                Ok(()) => return Ok(()),
                Err(e) => failure = Some(io_error(&self.name(), handle.offset, e)),
            }
            read.window.clear();
        }
        Err(failure.expect("a read that did not succeed failed"))
    }

    /// The data block of an entry of partition `i`, read as `frame`, when it is sound.
    pub(super) fn checked_block(
        &self,
        i: usize,
        index: &Index,
        entry: usize,
        frame: &[u8],
    ) -> Result<Arc<Block>> {
        let (handle, version_max) = index.block(entry);
        let wrong = |reason: &str| Err(Error::damaged(self.name(), handle.offset, reason));
        let in_block = |m| self.malformed(FrameKind::Data, handle, m);
        let block = Arc::new(self.parse_block(FrameKind::Data, handle, frame)?);
        let span = self.span_of_block(i, index, entry);
        let mut cursor = BlockCursor::new();
        cursor
            .seek(Arc::clone(&block), Bound::Unbounded, Direction::Forward)
            .map_err(in_block)?;
        let (mut found_max, mut last) = (Version::ZERO, Vec::new());
        while let Some((key, value)) = cursor.current() {
            let Some(cell) = CellRef::decode(value) else {
                return Err(self.not_a_cell(handle));
            };
            if key <= last.as_slice() || key < span.first.as_slice() || key > span.last.as_slice() {
                return wrong("a key is not where the index has it");
            }
            if !cell.is_intact(key) {
                return wrong("a value is not its writer's");
            }
            found_max = found_max.max(cell.version);
            last.clear();
            last.extend_from_slice(key);
            cursor.advance().map_err(in_block)?;
        }
        if found_max != version_max {
            return wrong("the index has another newest version");
        }
        Ok(block)
    }

    /// Between which keys the records of block `entry` of partition `i` lie.
    pub(super) fn span_of_block(&self, i: usize, index: &Index, entry: usize) -> KeySpan {
        let before = match entry.checked_sub(1) {
            Some(before) => Some(index.separator(before)),
            None => i.checked_sub(1).map(|before| self.top.key(before)),
        };
        self.span(before, index.separator(entry))
    }

    /// Span of the keys in all blocks of partition `i`.
    pub(super) fn span_of_partition(&self, i: usize) -> KeySpan {
        let before = i.checked_sub(1).map(|before| self.top.key(before));
        self.span(before, self.top.key(i))
    }

    fn span(&self, before: Option<&[u8]>, last: &[u8]) -> KeySpan {
        let first = before.map_or_else(
            || self.meta.smallest.clone(),
            // The first key after it.
            |before| [before, &[0]].concat(),
        );
        KeySpan {
            first,
            last: last.min(&self.meta.largest).to_vec(),
        }
    }
}
