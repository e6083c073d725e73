//! Sorted tables: one immutable file each, that answers points, scans and checks.
//!
//! ```text
//! meta.rs     TableMeta           the manifest's facts about a table
//! block.rs    Block               sorted entries with shared prefixes: data, index, properties
//! cursor.rs   BlockCursor         a walk through a block, forward or backward
//! frame.rs    Handle, Kind        a block on disk: compression, length, seeded checksum
//! filter.rs   Filter              blocked Bloom filter of one partition
//! tags.rs     Block::find_tagged  the side table of a block that stays in memory
//! keys.rs     Keys                rising keys in memory, to be searched
//! index.rs    Index, Top          two-part index: pinned top, partitions below
//! guide.rs    Guide               filter and index of one partition, as reads keep them
//! share.rs    PinnedShare, Pin    memory for guides that tables hold
//! shortcut.rs Shortcut            from an index entry to a cached block, without a look-up
//! footer.rs   Footer, Properties  the end of the file, from which all else is found
//! writer.rs   TableWriter         rising records in, a file and its TableMeta out
//! reader.rs   Table, FoundCell    open, point reads
//! iter.rs     TableIter, LevelIter   sources for scans and compactions
//! walk.rs     TableWalk           partitions, blocks and damage, for the three that follow
//! scrub.rs    Table::scrub_part   one part as the disk has it: which blocks are damaged
//! mend.rs     MendIter            the records of a table but for its damaged blocks
//! verify.rs   Table::verify       every byte, every promise
//! describe.rs describe            a table as text, for people
//! ```
//!
//! Invariants
//! 1. No byte of a file is believed before its checksum held, and no length on disk makes a reader
//!    allocate more than [`BLOCK_BYTES_MAX`].
//! 2. A damaged table answers `Error::Damaged` with the file and the offset, never a wrong cell and
//!    never a false "absent".
//! 3. Memory of an open table is its top index: one entry per partition, counted by
//!    [`Table::pinned_bytes`].
//!
//! Not here: which tables exist (manifest), which are merged (compaction), when files are removed.
//! See: the format below, `docs/format/cell.md`.
//!
#![doc = include_str!("../../../../docs/format/table.md")]

mod block;
mod cursor;
mod describe;
mod extent;
mod filter;
mod footer;
mod frame;
mod guide;
mod index;
mod iter;
mod keys;
mod mend;
mod meta;
mod reader;
mod scrub;
mod share;
mod shortcut;
mod tags;
mod verify;
mod walk;
mod writer;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use describe::describe;
pub(crate) use iter::{LevelIter, ReadMode, TableIter};
pub(crate) use mend::MendIter;
pub use meta::TableMeta;
pub use reader::Table;
pub(crate) use reader::{First, FoundCell};
pub(crate) use walk::{Flaw, KeySpan, ScrubRead};
pub(crate) use writer::TableWriter;

pub(crate) use block::Block;
pub(crate) use guide::Guide;
pub(crate) use share::{Pin, PinnedShare};

use crate::options::Compression;

/// Most bytes of one block before compression. A value of the largest size fits with room to spare.
/// A damaged length cannot make a reader allocate more.
pub(crate) const BLOCK_BYTES_MAX: usize = 16 << 20;

const _: () = assert!(
    BLOCK_BYTES_MAX > dendra_base::limits::STORED_VALUE_BYTES_MAX + (1 << 20),
    "a block holds at least the largest value"
);

/// How a table is written. Readers need none of this: the file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableOptions {
    /// Uncompressed size at which a data block is closed, in bytes. One record may exceed it.
    pub block_bytes: usize,
    /// Uncompressed data bytes after which a filter and an index partition are written.
    pub partition_bytes: usize,
    /// Bloom filter bits per key; 0 = no filter.
    pub filter_bits_per_key: usize,
    /// Compression of data and index blocks.
    pub compression: Compression,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            block_bytes: 4 << 10,
            partition_bytes: 1 << 20,
            filter_bits_per_key: 10,
            compression: Compression::Lz4,
        }
    }
}

/// Name of table `id` inside the folder.
pub fn file_name(id: u64) -> String {
    format!("{id:016x}.tbl")
}

/// The table id in a file name made by [`file_name`].
pub(crate) fn id_of_file_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".tbl")?;
    let id = u64::from_str_radix(digits, 16).ok()?;
    (file_name(id) == name).then_some(id)
}

/// Hash of a stored key as filters know it: computed once per read, passed to every table.
pub(crate) fn key_hash(stored_key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(stored_key)
}
