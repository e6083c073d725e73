//! A walk over the partitions of a table: every frame, block and record of them, and each damage.
//!
//! ```text
//! partition: filter ─► index ─► blocks tile it ─► checksum ─► keys in their place ─► newest versions
//!                                                                  │
//!                                           blocks, records, flaws ─► mend, scrub, verify
//!
//! damaged block    its keys are unknown, and lie behind the block before it, up to its separator
//! damaged index    the same of its partition, or of the rest that cannot be followed
//! damaged guide    (filter, top index) no record is lost: the table can be written anew
//! ```
//!
//! Invariants
//! 1. Damage is a flaw, never an error; one damaged block hides no other.
//! 2. All users check the same, but for what [`WalkOptions`] lets them choose.
//! 3. No frame is read that is longer than a writer makes one.
//!
//! Not here: footer, properties and top index (`reader.rs`), sums and digest (`verify.rs`).
//! See: docs/format/table.md.

use super::block::Block;
use super::cursor::BlockCursor;
use super::filter::Filter;
use super::frame::{FrameKind, Handle};
use super::index::Index;
use super::reader::{io_error, misfit};
use super::{Table, key_hash};
use crate::vfs::{File, PastCache, Wait, read_exact_at};
use crate::{Error, Result};
use dendra_base::{CellRef, Direction, Version};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Bytes that are read at once: a partition in a few reads.
const WINDOW_BYTES: u64 = 256 << 10;
const NOT_FOLLOWED: &str = "the index has no block that starts here";

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

/// The checks in which the users of a walk differ, and the way it reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalkOptions {
    /// Are filters checked?
    has_guides: bool,
    /// Is each value compared with the checksum of its writer?
    has_values: bool,
    /// Is each key looked up in its block, as reads do it?
    has_searches: bool,
    /// Do reads go past the caches of the system, to the disk itself?
    is_past_caches: bool,
}

impl WalkOptions {
    /// Records alone: guides are made anew.
    pub(super) const MEND: WalkOptions = WalkOptions {
        has_guides: false,
        has_values: true,
        has_searches: false,
        is_past_caches: false,
    };
    /// All that a disk can lose. Searches would check the program, each time again.
    pub(super) const SCRUB: WalkOptions = WalkOptions {
        has_guides: true,
        has_values: true,
        has_searches: false,
        is_past_caches: true,
    };
    /// All but values: its caller is shown each of them, and names it by its key.
    pub(super) const VERIFY: WalkOptions = WalkOptions {
        has_guides: true,
        has_values: false,
        has_searches: true,
        is_past_caches: false,
    };
}

/// What a walk has read so far, damaged frames included.
#[derive(Clone, Copy, Default)]
pub(crate) struct ScrubRead {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
}

/// The blocks of a partition, and how far the walk is among them.
struct Blocks {
    filter: Option<Filter>,
    index: Index,
    entry: usize,
    /// Where the next one must start.
    offset: u64,
    version_max: Version,
}

/// A walk forward, once. See the module.
pub(super) struct TableWalk {
    options: WalkOptions,
    /// The one under way, and those to come.
    partitions: Range<usize>,
    blocks: Option<Blocks>,
    window: Vec<u8>,
    window_start: u64,
    pub(super) read: ScrubRead,
}

impl TableWalk {
    /// A walk over these partitions.
    pub(super) fn new(partitions: Range<usize>, options: WalkOptions) -> TableWalk {
        TableWalk {
            options,
            partitions,
            blocks: None,
            window: Vec::new(),
            window_start: 0,
            read: ScrubRead::default(),
        }
    }

    /// The next sound block, and where it lies; `None` at the end. Damage on the way is shown to
    /// `on_flaw`. Records are shown to `on_record` before their block has passed.
    ///
    /// An error says that the disk could not be asked, or is that of a caller's function: then the
    /// walk is over.
    pub(super) fn next(
        &mut self,
        table: &Table,
        on_record: &mut dyn FnMut(&[u8], CellRef<'_>) -> Result<()>,
        on_flaw: &mut dyn FnMut(Flaw) -> Result<()>,
    ) -> Result<Option<(Arc<Block>, Handle)>> {
        while !self.partitions.is_empty() {
            let i = self.partitions.start;
            let Some(mut blocks) = self.blocks.take() else {
                self.blocks = self.enter(table, i, on_flaw)?;
                if self.blocks.is_none() {
                    self.partitions.next();
                }
                continue;
            };
            if blocks.entry == blocks.index.len() {
                self.partitions.next();
                self.leave(table, i, &blocks, on_flaw)?;
                continue;
            }
            let data_end = table.top.data(i).end;
            let (handle, version_max) = blocks.index.block(blocks.entry);
            let mut span = table.span_of_block(i, &blocks.index, blocks.entry);
            if handle.offset != blocks.offset || handle.end() > data_end {
                self.partitions.next();
                // From here on the index cannot be followed.
                span.last = table.span_of_partition(i).last;
                tell(
                    table.damaged(blocks.offset, NOT_FOLLOWED),
                    Some(span),
                    on_flaw,
                )?;
                continue;
            }
            blocks.entry += 1;
            blocks.offset = handle.end();
            blocks.version_max = blocks.version_max.max(version_max);
            let parse = |frame: &[u8]| table.parse_block(FrameKind::Data, handle, frame);
            let read = self.read(table, handle, data_end, parse);
            let checked = read.map(Arc::new).and_then(|block| {
                let passes = table.check_block(&blocks, &block, &span, self.options, on_record)?;
                Ok((block, passes))
            });
            self.blocks = Some(blocks);
            match checked {
                Ok((block, passes)) => {
                    if !passes {
                        let reason = "a key does not pass its own filter";
                        tell(table.damaged(handle.offset, reason), None, on_flaw)?;
                    }
                    return Ok(Some((block, handle)));
                }
                Err(error) => tell(error, Some(span), on_flaw)?,
            }
        }
        Ok(None)
    }

    /// Reads the guides of partition `i`; `None` when its blocks cannot be found.
    fn enter(
        &mut self,
        table: &Table,
        i: usize,
        on_flaw: &mut dyn FnMut(Flaw) -> Result<()>,
    ) -> Result<Option<Blocks>> {
        let partition = table.top.partition(i);
        let end = partition.index.end();
        let mut filter = None;
        if let Some(handle) = partition.filter.filter(|_| self.options.has_guides) {
            let parse = |frame: &[u8]| table.parse_filter(handle, frame);
            match self.read(table, handle, end, parse) {
                Ok(read) => filter = Some(read),
                Err(error) => tell(error, None, on_flaw)?,
            }
        }
        let parse = |frame: &[u8]| table.parse_index(partition.index, frame);
        match self.read(table, partition.index, end, parse) {
            Ok(index) => Ok(Some(Blocks {
                filter,
                index,
                entry: 0,
                offset: table.top.data(i).start,
                version_max: Version::ZERO,
            })),
            Err(error) => {
                tell(error, Some(table.span_of_partition(i)), on_flaw)?;
                Ok(None)
            }
        }
    }

    /// All blocks of partition `i` were read: do they fill it, and does the top index agree?
    fn leave(
        &self,
        table: &Table,
        i: usize,
        blocks: &Blocks,
        on_flaw: &mut dyn FnMut(Flaw) -> Result<()>,
    ) -> Result<()> {
        if blocks.offset != table.top.data(i).end {
            let error = table.damaged(blocks.offset, NOT_FOLLOWED);
            return tell(error, Some(table.span_of_partition(i)), on_flaw);
        }
        let partition = table.top.partition(i);
        let reason = if blocks.version_max != partition.version_max {
            "the top index has another newest version"
        } else if blocks.index.separator(blocks.entry - 1) != table.top.key(i) {
            "the top index has another last key"
        } else {
            return Ok(());
        };
        tell(table.damaged(partition.index.offset, reason), None, on_flaw)
    }

    /// Reads the frame at `handle`, of a part of the file that ends at `end`.
    fn read<R>(
        &mut self,
        table: &Table,
        handle: Handle,
        end: u64,
        parse: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        if !handle.fits(end) {
            return Err(misfit(table.name(), handle));
        }
        self.read.blocks += 1;
        self.read.bytes += u64::from(handle.bytes);
        self.slide(table, handle, end)?;
        let start = (handle.offset - self.window_start) as usize;
        let parsed = parse(&self.window[start..start + handle.bytes as usize]);
        if self.window.len() as u64 > WINDOW_BYTES {
            // One huge value must not stay twice.
            self.window = Vec::new();
        }
        parsed
    }

    /// Makes the window cover `handle`, and the frames that follow it before `end`.
    fn slide(&mut self, table: &Table, handle: Handle, end: u64) -> Result<()> {
        let known_end = self.window_start + self.window.len() as u64;
        if handle.offset >= self.window_start && handle.end() <= known_end {
            return Ok(());
        }
        let past_cache = PastCache(&*table.file);
        let file: &dyn File = if self.options.is_past_caches {
            &past_cache
        } else {
            &*table.file
        };
        let mut fill = |window_end: u64| {
            self.window_start = handle.offset;
            self.window.clear();
            self.window.resize((window_end - handle.offset) as usize, 0);
            read_exact_at(file, &mut self.window, handle.offset, Wait::Block).map_err(|e| {
                self.window.clear();
                io_error(&table.name(), handle.offset, e)
            })
        };
        let ahead = (handle.offset + WINDOW_BYTES).clamp(handle.end(), end);
        // A disk that cannot read all of the window may read this frame.
        fill(ahead).or_else(|_| fill(handle.end()))
    }
}

/// Shows damage, by which records in `span` are lost; any other error stays one.
fn tell(
    error: Error,
    span: Option<KeySpan>,
    on_flaw: &mut dyn FnMut(Flaw) -> Result<()>,
) -> Result<()> {
    match error {
        Error::Damaged { offset, reason, .. } => on_flaw(Flaw {
            offset,
            span,
            reason,
        }),
        other => Err(other),
    }
}

impl Table {
    /// Is the last block before `blocks.entry` sound, with its keys inside `span`? `false` = it is,
    /// and its filter hides a key.
    fn check_block(
        &self,
        blocks: &Blocks,
        block: &Arc<Block>,
        span: &KeySpan,
        options: WalkOptions,
        on_record: &mut dyn FnMut(&[u8], CellRef<'_>) -> Result<()>,
    ) -> Result<bool> {
        let (handle, version_max) = blocks.index.block(blocks.entry - 1);
        let wrong = |reason: &str| Err(self.damaged(handle.offset, reason));
        let in_block = |m| self.malformed(FrameKind::Data, handle, m);
        let mut cursor = BlockCursor::new();
        cursor
            .seek(Arc::clone(block), Bound::Unbounded, Direction::Forward)
            .map_err(in_block)?;
        let (mut found_max, mut last, mut passes) = (Version::ZERO, Vec::new(), true);
        while let Some((key, value)) = cursor.current() {
            let Some(cell) = CellRef::decode(value) else {
                return Err(self.not_a_cell(handle));
            };
            if key <= last.as_slice() || key < span.first.as_slice() {
                return wrong("the keys of the table do not rise");
            }
            if key > span.last.as_slice() {
                return wrong("a key is above the block's separator");
            }
            if options.has_values && !cell.is_intact(key) {
                return wrong("a value is not its writer's");
            }
            let hash = key_hash(key);
            passes &= blocks.filter.as_ref().is_none_or(|it| it.may_hold(hash));
            if options.has_searches {
                for found in [block.find(key), block.find_tagged(key, hash)] {
                    let found = found.map_err(in_block)?;
                    if found.map(|range| block.slice(range)) != Some(value) {
                        return wrong("a key is not found in its block");
                    }
                }
            }
            found_max = found_max.max(cell.version);
            on_record(key, cell)?;
            last.clear();
            last.extend_from_slice(key);
            cursor.advance().map_err(in_block)?;
        }
        if found_max != version_max {
            return wrong("the index has another newest version");
        }
        Ok(passes)
    }

    /// Between which keys the records of block `entry` of partition `i` lie.
    fn span_of_block(&self, i: usize, index: &Index, entry: usize) -> KeySpan {
        let before = match entry.checked_sub(1) {
            Some(before) => Some(index.separator(before)),
            None => i.checked_sub(1).map(|before| self.top.key(before)),
        };
        self.span(before, index.separator(entry))
    }

    /// Span of the keys in all blocks of partition `i`.
    fn span_of_partition(&self, i: usize) -> KeySpan {
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
