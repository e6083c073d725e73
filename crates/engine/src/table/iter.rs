//! Sources over tables: one table, or a level of tables that do not overlap.
//!
//! ```text
//! ReadMode::Cached(cache, fill)  scans: blocks come from the cache; fill = keep the first ones?
//! ReadMode::Ahead(bytes)         compactions: so many bytes at a time, past the cache
//!
//! LevelIter ─► TableIter ─► partition ─► index entry ─► data block ─► entry
//! ```
//!
//! Invariants
//! 1. After an error a source stands on no record; it goes on after the next `seek`.
//! 2. A source owns the table that it reads from: no lifetimes, and a removed table stays readable.
//! 3. A level source has one table open for reading at a time.
//!
//! Not here: merging (`merge.rs`), skipping of dead cells.
//! See: docs/format/table.md.

use super::cursor::BlockCursor;
use super::frame::{FrameKind, Handle};
use super::guide::{Guide, GuideRef};
use super::index::Index;
use super::reader::{Table, io_error};
use crate::cache::{BlockCache, FillCache};
use crate::source::Source;
use crate::vfs::{Wait, read_exact_at};
use crate::{Error, Result};
use dendra_base::{CellRef, Direction};
use std::ops::Bound;
use std::sync::Arc;

/// Blocks of one table, or one level, that a scan may put into the cache. 64 KiB are a page of a
/// list that is read again and again. A scan that goes on beyond that reads everything once.
const FILLED_BLOCKS_MAX: usize = 16;

/// How a source reads its blocks. All of them block on the disk.
#[derive(Clone, Debug)]
pub(crate) enum ReadMode {
    /// Through the cache.
    Cached(Arc<BlockCache>, FillCache),
    /// Past the cache, so many bytes at a time, for readers of whole tables.
    Ahead(usize),
}

/// Where the index of the current partition is.
enum Entered {
    /// Nowhere: the source stands on no record.
    Nothing,
    /// Pinned in the table.
    Pinned,
    /// In the cache, too.
    Shared(Arc<Guide>),
    /// Here alone.
    Own(Index),
}

/// Records of one table in order.
pub(crate) struct TableIter {
    table: Arc<Table>,
    reading: ReadMode,
    /// Bytes of the file from `window_start` on, for `ReadMode::Ahead`.
    window: Vec<u8>,
    window_start: u64,
    direction: Direction,
    partition: usize,
    entered: Entered,
    entry: usize,
    /// Blocks that may still be put into the cache.
    to_fill: usize,
    /// Where the block of `data` lies, for messages.
    handle: Handle,
    data: BlockCursor,
}

impl TableIter {
    /// A source that stands nowhere yet.
    pub(crate) fn new(table: Arc<Table>, reading: ReadMode) -> TableIter {
        TableIter {
            table,
            to_fill: match reading {
                ReadMode::Cached(_, FillCache::Yes) => FILLED_BLOCKS_MAX,
                ReadMode::Cached(_, FillCache::No) | ReadMode::Ahead(_) => 0,
            },
            reading,
            window: Vec::new(),
            window_start: 0,
            direction: Direction::Forward,
            partition: 0,
            entered: Entered::Nothing,
            entry: 0,
            handle: Handle {
                offset: 0,
                bytes: 0,
            },
            data: BlockCursor::new(),
        }
    }

    /// Loads the index of `partition`.
    fn enter(&mut self, partition: usize) -> Result<()> {
        self.entered = Entered::Nothing;
        self.partition = partition;
        let guide = match &self.reading {
            ReadMode::Cached(cache, _) => Some(self.table.guide(cache, partition, Wait::Block)),
            ReadMode::Ahead(_) => None,
        };
        self.entered = match guide {
            Some(Ok(GuideRef::Pinned(_))) => Entered::Pinned,
            Some(Ok(GuideRef::Shared(guide))) => Entered::Shared(guide),
            // Scans need no filter: a damaged one does not hinder the reading of records.
            None | Some(Err(Error::Damaged { .. })) => {
                Entered::Own(self.table.read_index(partition, Wait::Block)?)
            }
            Some(Err(error)) => return Err(error),
        };
        Ok(())
    }

    fn index(&self) -> Option<&Index> {
        match &self.entered {
            Entered::Nothing => None,
            Entered::Pinned => self.table.pinned(self.partition).map(|guide| &guide.index),
            Entered::Shared(guide) => Some(&guide.index),
            Entered::Own(index) => Some(index),
        }
    }

    /// Seeks inside the data block of the current index entry.
    fn enter_block(&mut self, bound: Bound<&[u8]>) -> Result<()> {
        let Some(index) = self.index() else {
            return Ok(());
        };
        let (handle, _) = index.block(self.entry);
        let block = match &self.reading {
            ReadMode::Cached(cache, _) => {
                let fill = match self.to_fill {
                    0 => FillCache::No,
                    _ => FillCache::Yes,
                };
                let (block, is_cached) = self.table.block(cache, handle, fill, Wait::Block)?;
                if fill == FillCache::Yes && !is_cached {
                    self.to_fill -= 1;
                }
                block
            }
            ReadMode::Ahead(bytes) => {
                let bytes = *bytes;
                self.slide(handle, bytes)?;
                let start = (handle.offset - self.window_start) as usize;
                let frame = &self.window[start..start + handle.bytes as usize];
                let block = self.table.parse_block(FrameKind::Data, handle, frame)?;
                if self.window.len() > bytes {
                    // One huge value must not stay twice, in each input of a job.
                    self.window = Vec::new();
                }
                Arc::new(block)
            }
        };
        self.handle = handle;
        self.data
            .seek(block, bound, self.direction)
            .map_err(|m| self.table.malformed(FrameKind::Data, handle, m))?;
        self.check_cell()
    }

    /// Makes the window cover `handle`, and the blocks that follow in the direction of travel.
    fn slide(&mut self, handle: Handle, bytes: usize) -> Result<()> {
        let bytes = bytes as u64;
        let data = self.table.top.data(self.partition);
        if !handle.fits(data.end) || handle.offset < data.start {
            return Err(Error::damaged(
                self.table.name(),
                handle.offset,
                "a block lies outside its partition",
            ));
        }
        let window_end = self.window_start + self.window.len() as u64;
        if handle.offset >= self.window_start && handle.end() <= window_end {
            return Ok(());
        }
        let (start, end) = match self.direction {
            Direction::Forward => {
                let end = (handle.offset + bytes).max(handle.end());
                (handle.offset, end.min(data.end))
            }
            Direction::Backward => {
                let start = handle.end().saturating_sub(bytes);
                (start.min(handle.offset).max(data.start), handle.end())
            }
        };
        self.window.clear();
        self.window.resize((end - start) as usize, 0);
        self.window_start = start;
        let file = &*self.table.file;
        read_exact_at(file, &mut self.window, start, Wait::Block).map_err(|e| {
            self.window.clear();
            io_error(&self.table.name(), start, e)
        })
    }

    fn check_cell(&self) -> Result<()> {
        match self.data.current() {
            Some((_, value)) if CellRef::decode(value).is_none() => {
                Err(self.table.not_a_cell(self.handle))
            }
            _ => Ok(()),
        }
    }

    /// Moves to the next block in the direction of travel; `false` at the end of the table.
    fn next_block(&mut self) -> Result<bool> {
        let Some(index) = self.index() else {
            return Ok(false);
        };
        match self.direction {
            Direction::Forward => {
                if self.entry + 1 < index.len() {
                    self.entry += 1;
                } else if self.partition + 1 < self.table.top.len() {
                    self.enter(self.partition + 1)?;
                    self.entry = 0;
                } else {
                    return Ok(false);
                }
            }
            Direction::Backward => {
                if self.entry > 0 {
                    self.entry -= 1;
                } else if self.partition > 0 {
                    self.enter(self.partition - 1)?;
                    self.entry = self.index().map_or(0, |entered| entered.len() - 1);
                } else {
                    return Ok(false);
                }
            }
        }
        self.enter_block(Bound::Unbounded)?;
        Ok(true)
    }

    /// Goes on to the next block until there is a record or the table ends.
    fn settle(&mut self) -> Result<()> {
        while self.data.current().is_none() {
            if !self.next_block()? {
                self.rest();
                break;
            }
        }
        Ok(())
    }

    /// Stands on no record.
    fn rest(&mut self) {
        self.data.clear();
        self.entered = Entered::Nothing;
    }

    fn try_seek(&mut self, bound: Bound<&[u8]>) -> Result<()> {
        let last = self.table.top.len() - 1;
        let key = match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        };
        let partition = match (key, self.direction) {
            (Some(key), _) => self.table.top.lower_bound(key),
            (None, Direction::Forward) => 0,
            (None, Direction::Backward) => last + 1,
        };
        if partition > last && self.direction == Direction::Forward {
            return Ok(());
        }
        self.enter(partition.min(last))?;
        let Some(index) = self.index() else {
            return Ok(());
        };
        let entry = match key {
            // Beyond the last partition: backward, all of it is before the bound.
            _ if partition > last => index.len() - 1,
            None => 0,
            Some(key) => index.lower_bound(key),
        };
        // The top's key is the last separator: a lower bound inside the partition exists. A file
        // that breaks this is sound by its checksums, so only its writer can be wrong.
        self.entry = entry.min(index.len() - 1);
        self.enter_block(bound)?;
        self.settle()
    }

    fn try_advance(&mut self) -> Result<()> {
        self.data
            .advance()
            .map_err(|m| self.table.malformed(FrameKind::Data, self.handle, m))?;
        self.check_cell()?;
        self.settle()
    }
}

impl Source for TableIter {
    fn seek(&mut self, bound: Bound<&[u8]>, direction: Direction) -> Result<()> {
        self.rest();
        self.direction = direction;
        let done = self.try_seek(bound);
        if done.is_err() {
            self.rest();
        }
        done
    }

    fn current(&self) -> Option<(&[u8], CellRef<'_>)> {
        let (key, value) = self.data.current()?;
        let cell = CellRef::decode(value).expect("checked when the cursor came here");
        Some((key, cell))
    }

    fn advance(&mut self) -> Result<()> {
        let done = self.try_advance();
        if done.is_err() {
            self.rest();
        }
        done
    }
}

/// Records of a level: sorted tables that do not overlap.
pub(crate) struct LevelIter {
    tables: Arc<[Arc<Table>]>,
    reading: ReadMode,
    direction: Direction,
    at: usize,
    /// The rest of the blocks that may be put into the cache, after the table before.
    to_fill: Option<usize>,
    current: Option<TableIter>,
}

impl LevelIter {
    /// A source that stands nowhere yet. Requires: `tables` rise and do not overlap.
    pub(crate) fn new(tables: impl Into<Arc<[Arc<Table>]>>, reading: ReadMode) -> LevelIter {
        let tables = tables.into();
        debug_assert!(
            tables
                .windows(2)
                .all(|pair| pair[0].meta().largest < pair[1].meta().smallest),
            "tables of a level rise and do not overlap"
        );
        LevelIter {
            tables,
            reading,
            direction: Direction::Forward,
            at: 0,
            to_fill: None,
            current: None,
        }
    }

    fn enter(&mut self, at: usize, bound: Bound<&[u8]>) -> Result<()> {
        self.at = at;
        let table = Arc::clone(&self.tables[at]);
        let mut iter = TableIter::new(table, self.reading.clone());
        if let Some(to_fill) = self.to_fill {
            iter.to_fill = to_fill;
        }
        iter.seek(bound, self.direction)?;
        self.to_fill = Some(iter.to_fill);
        self.current = Some(iter);
        Ok(())
    }

    /// Goes on to the next table until there is a record or the level ends.
    fn settle(&mut self) -> Result<()> {
        while self
            .current
            .as_ref()
            .is_some_and(|iter| iter.current().is_none())
        {
            self.to_fill = self.current.take().map(|iter| iter.to_fill);
            let next = match self.direction {
                Direction::Forward => Some(self.at + 1).filter(|&at| at < self.tables.len()),
                Direction::Backward => self.at.checked_sub(1),
            };
            if let Some(next) = next {
                self.enter(next, Bound::Unbounded)?;
            }
        }
        Ok(())
    }
}

impl Source for LevelIter {
    fn seek(&mut self, bound: Bound<&[u8]>, direction: Direction) -> Result<()> {
        self.current = None;
        self.direction = direction;
        let at = match (bound, direction) {
            (Bound::Unbounded, Direction::Forward) => Some(0),
            (Bound::Unbounded, Direction::Backward) => self.tables.len().checked_sub(1),
            (Bound::Included(key) | Bound::Excluded(key), Direction::Forward) => Some(
                self.tables
                    .partition_point(|table| table.meta().largest.as_slice() < key),
            ),
            (Bound::Included(key) | Bound::Excluded(key), Direction::Backward) => self
                .tables
                .partition_point(|table| table.meta().smallest.as_slice() <= key)
                .checked_sub(1),
        };
        match at.filter(|&at| at < self.tables.len()) {
            Some(at) => {
                self.enter(at, bound)?;
                self.settle()
            }
            None => Ok(()),
        }
    }

    fn current(&self) -> Option<(&[u8], CellRef<'_>)> {
        self.current.as_ref()?.current()
    }

    fn advance(&mut self) -> Result<()> {
        let Some(iter) = &mut self.current else {
            return Ok(());
        };
        let done = iter.advance().and_then(|()| self.settle());
        if done.is_err() {
            self.current = None;
        }
        done
    }
}
