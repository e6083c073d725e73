//! The memtables and the tree of one moment, as a reader holds them.
//!
//! ```text
//! View  = active memtable, sealed memtables (newest first), tree
//! ```
//!
//! Invariants
//! 1. Every durable record is in at least one part of every view made after it became visible.
//! 2. A view is immutable but for the active memtable, which only gains records.
//! 3. A damaged block fails a point read only if it may have held something newer than all that the
//!    read finds elsewhere. A damaged table lies in level 0, and newer ones go below it.
//!
//! Not here: replacing views (`engine.rs`).

use crate::cache::{BlockCache, FillCache};
use crate::explain::{ReadTrace, Untraced};
use crate::hole::{self, Hole};
use crate::memtable::Memtable;
use crate::source::Source;
use crate::table::{First, FoundCell, LevelIter, ReadMode, Table, TableIter, key_hash};
use crate::tree::Tree;
use crate::vfs::Wait;
use crate::{Error, Result};
use dendra_base::{CellRef, Direction, Kind, Version};
use std::ops::Bound;
use std::sync::Arc;

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<R> {
    /// The key's newest cell, possibly a tombstone or an expired value, as the visitor returned it.
    Cell(R),
    /// The key never was, or its tombstone is purged.
    Nothing,
    /// The disk would have to be asked: ask again with `Wait::Block`, on another thread.
    WouldBlock,
}

/// A memtable that takes no more writes and waits for its flush.
#[derive(Clone)]
pub(crate) struct Sealed {
    /// Memtable with the records.
    pub memtable: Arc<Memtable>,
    /// First log segment that is still needed once it is flushed.
    pub log_floor_after: u64,
}

/// One moment of the engine.
#[derive(Clone)]
pub(crate) struct View {
    /// Takes writes.
    pub active: Arc<Memtable>,
    /// Waiting for their flush, newest first.
    pub sealed: Vec<Sealed>,
    /// Tables.
    pub tree: Arc<Tree>,
    /// Where reads find less than the folder held.
    pub holes: Arc<[Hole]>,
}

/// The newest cell found so far, wherever its bytes are.
enum Best<'a> {
    Nothing,
    Memory(CellRef<'a>),
    Block(FoundCell),
}

impl Best<'_> {
    fn version(&self) -> Version {
        match self {
            Best::Nothing => Version::ZERO,
            Best::Memory(cell) => cell.version,
            Best::Block(found) => found.version(),
        }
    }

    /// Only cells above this version may be newer. Of one version a value that ends is newer than
    /// the tombstone that is left of it.
    fn newer_than(&self) -> Version {
        let kind = match self {
            Best::Nothing => return Version::ZERO,
            Best::Memory(cell) => cell.kind,
            Best::Block(found) => found.cell().kind,
        };
        match kind {
            Kind::Tombstone => self.version().predecessor(),
            Kind::Value => self.version(),
        }
    }

    fn yields_to(&self, found: &FoundCell) -> bool {
        match self {
            Best::Nothing => true,
            Best::Memory(cell) => found.cell().is_newer_than(cell),
            Best::Block(best) => found.cell().is_newer_than(&best.cell()),
        }
    }
}

impl View {
    fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.sealed.iter().map(|s| &s.memtable))
    }

    /// Bytes held by all memtables.
    pub(crate) fn memtable_bytes(&self) -> usize {
        self.memtables().map(|m| m.bytes()).sum()
    }

    /// Values that end before this time are needed by no replay of the log; `u64::MAX` = none is.
    pub(crate) fn referred_end_ms(&self) -> u64 {
        let ends = self.memtables().map(|memtable| memtable.referred_end_ms());
        ends.min().unwrap_or(u64::MAX)
    }

    /// Bytes that records in `from..to` take: in tables rounded down, in memory those of keys and
    /// values. Reads no disk; walks the parts in memory.
    pub(crate) fn bytes_between(&self, from: &[u8], to: &[u8]) -> Result<u64> {
        let tables = self.tree.tables().map(|(_, table)| table);
        let mut bytes = tables.map(|table| table.bytes_between(from, to)).sum();
        for memtable in self.memtables() {
            let mut records = memtable.iter();
            records.seek(Bound::Included(from), Direction::Forward)?;
            while let Some((key, cell)) = records.current()
                && key < to
            {
                bytes += (key.len() + cell.value.len()) as u64;
                records.advance()?;
            }
        }
        Ok(bytes)
    }

    /// Shows the newest cell of `stored_key` to `visit`, and to `pass` damage that cannot hide a
    /// newer one.
    pub(crate) fn get<R>(
        &self,
        cache: &BlockCache,
        stored_key: &[u8],
        wait: Wait,
        pass: impl FnMut(&Error),
        visit: impl FnOnce(CellRef<'_>) -> R,
    ) -> Result<Lookup<R>> {
        self.traced(cache, stored_key, wait, pass, &mut Untraced, visit)
    }

    /// Reads like `get`, and tells `trace` each step.
    #[inline]
    pub(crate) fn traced<R>(
        &self,
        cache: &BlockCache,
        stored_key: &[u8],
        wait: Wait,
        pass: impl FnMut(&Error),
        trace: &mut impl ReadTrace,
        visit: impl FnOnce(CellRef<'_>) -> R,
    ) -> Result<Lookup<R>> {
        let hash = key_hash(stored_key);
        let in_memory = self.memtables().filter_map(|memtable| {
            let found = memtable.find_hashed(stored_key, hash);
            trace.memtable(found);
            found
        });
        let newest = in_memory.reduce(CellRef::newest);
        let mut best = newest.map_or(Best::Nothing, Best::Memory);
        let key = (stored_key, hash);
        match self.newer_in_tables(cache, key, wait, pass, trace, &mut best) {
            Ok(()) => {}
            Err(e) if e.would_block() => return Ok(Lookup::WouldBlock),
            Err(e) => return Err(e),
        }
        if let Some(hole) = hole::over(&self.holes, stored_key, best.version()) {
            return Err(hole.error());
        }
        Ok(match best {
            Best::Nothing => Lookup::Nothing,
            Best::Memory(cell) => Lookup::Cell(visit(cell)),
            Best::Block(found) => Lookup::Cell(visit(found.cell())),
        })
    }

    /// Asks every table that could hold a newer cell than `best`. Usual traffic stops here without
    /// a look at any block, and a late, older version hides no newer one. A table that answers with
    /// damage is asked again after all others.
    fn newer_in_tables<'a, T: ReadTrace>(
        &'a self,
        cache: &BlockCache,
        (stored_key, hash): (&[u8], u64),
        wait: Wait,
        mut pass: impl FnMut(&Error),
        trace: &mut T,
        best: &mut Best<'_>,
    ) -> Result<()> {
        let mut newer_in = |table: &Table, level: usize, first: First, told: &mut T| {
            let meta = table.meta();
            told.table(level, meta.id, meta.bytes, meta.records);
            let newer_than = best.newer_than();
            if !meta.version_max.is_newer_than(newer_than) {
                told.older();
            } else if let Some(found) =
                table.traced(cache, (stored_key, hash), newer_than, first, wait, told)?
            {
                let is_newest = best.yields_to(&found);
                told.found(found.version(), is_newest);
                if is_newest {
                    *best = Best::Block(found);
                }
            }
            Ok(())
        };
        let mut damaged: Vec<(&'a Table, usize, Error)> = Vec::new();
        let mut ask = |table: &'a Table, level: usize, first: First, told: &mut T| {
            newer_in(table, level, first, told).or_else(|error| {
                told.failed(&error);
                match error {
                    Error::Damaged { .. } => damaged.push((table, level, error)),
                    other => return Err(other),
                }
                Ok(())
            })
        };
        let (level0, sorted) = self.tree.levels_in_use();
        trace.level(0, level0.tables.len());
        let mut level0 = level0.tables.iter().peekable();
        while let Some(table) = level0.next() {
            if table.meta().holds_key(stored_key) {
                let is_last = sorted.is_empty() && level0.peek().is_none();
                ask(table, 0, First::in_table(is_last), trace)?;
            }
        }
        for (i, level) in sorted.iter().enumerate() {
            trace.level(i + 1, level.tables.len());
            if let Some(table) = level.candidate(stored_key) {
                ask(table, i + 1, First::in_table(i + 1 == sorted.len()), trace)?;
            }
        }
        for (table, level, error) in damaged {
            newer_in(table, level, First::Filter, trace)
                .inspect_err(|again| trace.failed(again))?;
            pass(&error);
        }
        Ok(())
    }

    /// One source per memtable, level-0 table and sorted level.
    pub(crate) fn sources(
        &self,
        cache: &Arc<BlockCache>,
        fill: FillCache,
    ) -> Vec<Box<dyn Source + Send>> {
        let mut sources: Vec<Box<dyn Source + Send>> = Vec::new();
        for memtable in self.memtables() {
            sources.push(Box::new(memtable.iter()));
        }
        let reading = || ReadMode::Cached(cache.clone(), fill);
        let (level0, sorted) = self.tree.levels.split_first().expect("a tree has levels");
        for table in level0.tables.iter() {
            sources.push(Box::new(TableIter::new(table.clone(), reading())));
        }
        for level in sorted.iter().filter(|l| !l.tables.is_empty()) {
            sources.push(Box::new(LevelIter::new(level.tables.clone(), reading())));
        }
        sources
    }
}
