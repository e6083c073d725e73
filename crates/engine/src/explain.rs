//! How a point read came to its end: the parts that it looked at, and their answers.
//!
//! ```text
//! Engine::get        ─► View::get with Untraced         tells nothing, costs nothing
//! Engine::explained  ─► View::traced with Explained     memtables, levels, tables, blocks
//! ```
//!
//! Invariants
//! 1. Both reads run the same code. `Untraced` has no field and no work: the compiler leaves every
//!    call of it out.
//! 2. At most `EXPLAINED_TABLES_MAX` tables are listed; the others are counted.
//!
//! Not here: time (the caller's), the decision that a value has ended (the caller's clock).
//! See: docs/explain.md.

use crate::Error;
use dendra_base::{CellRef, Kind, Version};

/// Tables that one explanation lists at most.
pub const EXPLAINED_TABLES_MAX: usize = 64;

/// The steps of a point read, told as they come. A table's steps follow its `table`.
pub(crate) trait ReadTrace {
    /// A memtable was asked, the active one first.
    #[inline]
    fn memtable(&mut self, _cell: Option<CellRef<'_>>) {}
    /// A level with so many tables is next.
    #[inline]
    fn level(&mut self, _level: usize, _tables: usize) {}
    /// A table whose range of keys includes the key is next: its number, bytes and records.
    #[inline]
    fn table(&mut self, _level: usize, _id: u64, _bytes: u64, _records: u64) {}
    /// Nothing that the table could hold is newer than the cell in hand.
    #[inline]
    fn older(&mut self) {}
    /// The filter was asked.
    #[inline]
    fn filter(&mut self, _verdict: FilterVerdict) {}
    /// A part of the table was needed; it has so many bytes in the file.
    #[inline]
    fn block(&mut self, _part: TablePart, _from: BlockSource, _file_bytes: u32) {}
    /// The table has a cell of this version; is it the newest so far?
    #[inline]
    fn found(&mut self, _version: Version, _is_newest: bool) {}
    /// The table could not be read.
    #[inline]
    fn failed(&mut self, _error: &Error) {}
}

/// The trace of a usual read.
pub(crate) struct Untraced;

impl ReadTrace for Untraced {}

/// The answer of a table's filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterVerdict {
    /// The read did not come to it, or found the block by a shortcut first.
    #[default]
    NotAsked,
    /// The table has no filter.
    None,
    /// The key is not in the table.
    Absent,
    /// The key may be in the table.
    Maybe,
}

/// A part of a table that a read needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TablePart {
    /// Filter and index of the partition.
    Guide,
    /// The data block.
    Data,
}

/// Where a part was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSource {
    /// With the open table, in memory.
    Pinned,
    /// In the block cache.
    Cache,
    /// In the file: the kernel's page cache, or the disk.
    File,
}

impl BlockSource {
    /// Place of a data block that was, or was not, in the cache.
    #[inline]
    pub(crate) fn of(is_cached: bool) -> BlockSource {
        if is_cached {
            BlockSource::Cache
        } else {
            BlockSource::File
        }
    }
}

/// A part that a read needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLook {
    /// Which part.
    pub part: TablePart,
    /// Where it was.
    pub from: BlockSource,
    /// Length in the file, where it is compressed.
    pub file_bytes: u32,
}

/// A cell without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellFacts {
    /// Version of the record.
    pub version: Version,
    /// Value or tombstone.
    pub kind: Kind,
    /// Wall milliseconds when it ends, if it does.
    pub expiry_ms: Option<u64>,
    /// Length of the value.
    pub value_bytes: usize,
}

impl From<CellRef<'_>> for CellFacts {
    fn from(cell: CellRef<'_>) -> CellFacts {
        CellFacts {
            version: cell.version,
            kind: cell.kind,
            expiry_ms: cell.expiry_ms,
            value_bytes: cell.value.len(),
        }
    }
}

/// The answer of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableAnswer {
    /// The table does not hold the key.
    Absent,
    /// Nothing in the table is newer than the cell in hand. So it was read no further.
    Older,
    /// The table holds a cell of this version.
    Found(Version),
    /// The table is damaged where the key would be.
    Damaged,
    /// The table could not be read.
    Failed,
}

/// A table whose range of keys includes the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLook {
    /// Level of the table.
    pub level: usize,
    /// Number of the table, as in the name of its file.
    pub id: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
    /// Verdict of the filter.
    pub filter: FilterVerdict,
    /// Parts that were needed: at most two.
    pub blocks: Vec<BlockLook>,
    /// Answer of the table.
    pub answer: TableAnswer,
}

/// A level that holds tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelLook {
    /// Number of the level.
    pub level: usize,
    /// Tables of the level.
    pub tables: usize,
    /// Tables whose range of keys includes the key.
    pub in_range: usize,
}

/// The part that holds the cell which decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundIn {
    /// A memtable: 0 is the active one, then the sealed ones from the newest on.
    Memtable(usize),
    /// A table.
    Table {
        /// Level of the table.
        level: usize,
        /// Number of the table.
        id: u64,
    },
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// The cells of the memtables: the active one, then the sealed ones from the newest on.
    pub memtables: Vec<Option<CellFacts>>,
    /// Levels that hold tables.
    pub levels: Vec<LevelLook>,
    /// Tables whose range of keys includes the key, in the order in which they were asked. A
    /// damaged one is asked a second time, behind all others.
    pub tables: Vec<TableLook>,
    /// How many more there were.
    pub tables_left_out: usize,
    /// The cell that decided, and the part that holds it; `None` = there is none, or the read
    /// failed.
    pub newest: Option<(FoundIn, CellFacts)>,
    /// The last table whose cell was the newest so far.
    newest_table: Option<FoundIn>,
    /// The table that was asked last, when it is not listed.
    beyond: Option<TableLook>,
}

impl Explained {
    /// Bytes that were read from files.
    pub fn file_bytes(&self) -> u64 {
        let blocks = self.tables.iter().flat_map(|table| &table.blocks);
        let read = blocks.filter(|block| block.from == BlockSource::File);
        read.map(|block| u64::from(block.file_bytes)).sum()
    }

    /// The read ended with this cell.
    pub(crate) fn settle(&mut self, newest: Option<CellFacts>) {
        let in_memory = || {
            let place = self.memtables.iter().position(|cell| *cell == newest);
            place.map(FoundIn::Memtable)
        };
        let place = self.newest_table.or_else(in_memory);
        self.newest = place.zip(newest);
    }

    /// The table that is asked now.
    fn asked(&mut self) -> &mut TableLook {
        let last = self.tables.last_mut();
        let asked = self.beyond.as_mut().or(last);
        asked.expect("a step of a table follows its `table`")
    }
}

impl ReadTrace for Explained {
    fn memtable(&mut self, cell: Option<CellRef<'_>>) {
        self.memtables.push(cell.map(CellFacts::from));
    }

    fn level(&mut self, level: usize, tables: usize) {
        if tables > 0 {
            self.levels.push(LevelLook {
                level,
                tables,
                in_range: 0,
            });
        }
    }

    fn table(&mut self, level: usize, id: u64, bytes: u64, records: u64) {
        let look = TableLook {
            level,
            id,
            bytes,
            records,
            filter: FilterVerdict::NotAsked,
            blocks: Vec::new(),
            answer: TableAnswer::Absent,
        };
        let is_known = self.tables.iter().any(|known| known.id == id);
        if let Some(of_level) = self.levels.iter_mut().find(|known| known.level == level) {
            of_level.in_range += usize::from(!is_known);
        }
        if self.tables.len() < EXPLAINED_TABLES_MAX {
            self.tables.push(look);
        } else {
            self.tables_left_out += 1;
            self.beyond = Some(look);
        }
    }

    fn older(&mut self) {
        self.asked().answer = TableAnswer::Older;
    }

    fn filter(&mut self, verdict: FilterVerdict) {
        self.asked().filter = verdict;
    }

    fn block(&mut self, part: TablePart, from: BlockSource, file_bytes: u32) {
        self.asked().blocks.push(BlockLook {
            part,
            from,
            file_bytes,
        });
    }

    fn found(&mut self, version: Version, is_newest: bool) {
        let asked = self.asked();
        asked.answer = TableAnswer::Found(version);
        let place = FoundIn::Table {
            level: asked.level,
            id: asked.id,
        };
        if is_newest {
            self.newest_table = Some(place);
        }
    }

    fn failed(&mut self, error: &Error) {
        self.asked().answer = match error {
            Error::Damaged { .. } => TableAnswer::Damaged,
            _ => TableAnswer::Failed,
        };
    }
}
