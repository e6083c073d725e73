//! Settings of one engine: numbers only, each with its meaning and unit.
//!
//! Invariants
//! 1. `check` accepts exactly the combinations that the engine can honour; no option is adjusted in
//!    silence.
//!
//! Not here: where settings come from (crate `dendra`), the disk (`Vfs`).
//! See: docs/overload.md.

use crate::segments::SPARES_TARGET;
use dendra_base::Durability;
use dendra_base::limits;
use std::fmt;

/// The most bytes of a record besides a client's value: key, cell, heads, and what a hint or a
/// proposal has beside it.
const RECORD_BYTES_MAX: usize = 4 << 10;

const BESIDE_BYTES: usize = limits::STORED_VALUE_BYTES_MAX - limits::WRAPPED_VALUE_BYTES_MAX;

/// Log segments and tables on a disk that is not small.
const SEGMENT_BYTES: usize = 16 << 20;
const TABLE_BYTES: usize = 32 << 20;
/// A log segment, a table and a memtable take one of so many parts of a small disk each.
const DISK_PARTS: u64 = 32;
/// The least sizes on the smallest disk.
const TABLE_BYTES_MIN: usize = 1 << 20;
const MEMTABLE_BYTES_MIN: usize = 1 << 20;
/// Log segments of an idle folder: the one in use and those made ahead of use.
const LOG_SEGMENTS_MIN: usize = 1 + SPARES_TARGET;

const _: () = assert!(
    RECORD_BYTES_MAX > limits::STORED_KEY_BYTES_MAX + BESIDE_BYTES + 1024,
    "the longest key and every head fit beside a value"
);

/// Why options cannot work together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadOptions {
    /// The option with which the reason begins, as operators write it.
    pub option: Option<&'static str>,
    /// The reason, and the way out.
    pub reason: String,
}

impl BadOptions {
    /// The reason begins with this option.
    pub fn of(option: &'static str, reason: String) -> BadOptions {
        BadOptions {
            option: Some(option),
            reason,
        }
    }
}

impl From<String> for BadOptions {
    fn from(reason: String) -> BadOptions {
        BadOptions {
            option: None,
            reason,
        }
    }
}

impl fmt::Display for BadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for BadOptions {}

/// A number of bytes for people, rounded to a tenth of a mebibyte.
fn mib(bytes: usize) -> String {
    let tenths = (bytes as u64).saturating_mul(10).div_ceil(1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// How data blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// Fast both ways.
    Lz4,
    /// Smaller, slower to write.
    Zstd,
}

/// Settings of one engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// All memory the engine may hold; `memory.rs` splits it.
    pub memory_bytes: usize,
    /// Largest value that is ever written or is in the folder, with its metadata where there is
    /// some; `memory_bytes` counts on it.
    pub value_bytes_max: usize,
    /// A memtable is sealed when it holds this much. At most three exist at once.
    pub memtable_bytes: usize,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// Size of one log segment, zero-filled ahead.
    pub segment_bytes: usize,
    /// Writes that may wait for the log at once.
    pub commit_queue_len_max: usize,
    /// Bytes that may wait for the log at once.
    pub commit_queue_bytes_max: usize,
    /// Uncompressed size at which a data block is closed.
    pub block_bytes: usize,
    /// Size at which a table is closed.
    pub table_bytes: usize,
    /// Bloom filter bits per key; 0 = no filter.
    pub filter_bits_per_key: usize,
    /// Compression of every level but the deepest.
    pub compression: Compression,
    /// Compression of the deepest level.
    pub compression_deepest: Compression,
    /// Tables in level 0 that start a compaction.
    pub level0_tables_trigger: usize,
    /// Tables in level 0 at which writes are refused.
    pub level0_tables_stop: usize,
    /// Tables of level 0 that one compaction reads at once.
    pub level0_inputs_max: usize,
    /// Bytes that a compaction reads at once from each of its inputs.
    pub ahead_bytes: usize,
    /// Bytes of level 1; each deeper level holds `level_fanout` times more.
    pub level1_bytes: u64,
    /// Growth from level to level.
    pub level_fanout: u64,
    /// Disk room below which new values are refused; deletes go on. See
    /// [`Options::reserve_wanted`].
    pub reserve_bytes: u64,
    /// Bytes that tables kept for incremental backups may always have; more of them in a store of
    /// more than ten times as many.
    pub kept_bytes_min: u64,
}

impl Options {
    /// The defaults of a node, for `memory_bytes` of memory and values of at most
    /// `value_bytes_max`.
    pub fn for_memory(memory_bytes: usize, value_bytes_max: usize) -> Options {
        let memtable_bytes = (memory_bytes / 8).clamp(1 << 20, 64 << 20);
        let (segment_bytes, table_bytes, block_bytes) = (SEGMENT_BYTES, TABLE_BYTES, 4 << 10);
        // One value of the largest size fits, and 4,096 writes of a kilobyte.
        let one_value = value_bytes_max + RECORD_BYTES_MAX;
        let commit_queue_bytes_max =
            (memory_bytes / 64).clamp(one_value, (12 << 20).max(one_value));
        let ahead_bytes = (memory_bytes >> 10).clamp(32 << 10, 256 << 10);
        // An eighth of the memory for the blocks that a compaction of level 0 reads.
        let input_bytes = ahead_bytes + block_bytes + value_bytes_max;
        let level0_inputs_max = (memory_bytes / 8 / input_bytes).clamp(4, 12);
        let mut options = Options {
            memory_bytes,
            value_bytes_max,
            memtable_bytes,
            durability: Durability::Sync,
            segment_bytes,
            commit_queue_len_max: 4096,
            commit_queue_bytes_max,
            block_bytes,
            table_bytes,
            filter_bits_per_key: 10,
            compression: Compression::Lz4,
            compression_deepest: Compression::Lz4,
            level0_tables_trigger: 4,
            level0_tables_stop: 20,
            level0_inputs_max,
            ahead_bytes,
            level1_bytes: 4 * memtable_bytes as u64,
            level_fanout: 8,
            reserve_bytes: 0,
            // Four of the largest memtables.
            kept_bytes_min: 256 << 20,
        };
        options.reserve_bytes = options.reserve_wanted();
        options
    }

    /// Options with memtables of `bytes`, and with all that follows from them.
    pub fn with_memtable(mut self, bytes: usize) -> Options {
        self.memtable_bytes = bytes;
        self.level1_bytes = 4 * bytes as u64;
        self.reserve_bytes = self.reserve_wanted();
        self
    }

    /// Options for a disk of `total_bytes`. On a small one, log segments, tables and memtables are
    /// smaller: a 32nd part of the disk each, as far as their least sizes allow. The size of
    /// memtables stays where `keeps_memtable` says that an operator chose it.
    pub fn for_disk(mut self, total_bytes: u64, keeps_memtable: bool) -> Options {
        let part = usize::try_from(total_bytes / DISK_PARTS).unwrap_or(usize::MAX);
        let least = self.segment_bytes_min();
        self.segment_bytes = self.segment_bytes.min(part.max(least));
        self.table_bytes = self.table_bytes.min(part.max(TABLE_BYTES_MIN));
        let memtable = if keeps_memtable {
            self.memtable_bytes
        } else {
            self.memtable_bytes.min(part.max(MEMTABLE_BYTES_MIN))
        };
        self.with_memtable(memtable)
    }

    /// The reserve that these sizes need: one memtable can be flushed while its log is still there,
    /// the log goes on for two segments, and one table can be written anew. All three give room
    /// back, and go one after the other.
    pub fn reserve_wanted(&self) -> u64 {
        (self.memtable_bytes + 2 * self.segment_bytes + self.table_bytes) as u64
    }

    /// The least room in which a new folder is of use: the first log segments, the reserve, and one
    /// memtable of records.
    pub fn room_wanted(&self) -> u64 {
        let log = LOG_SEGMENTS_MIN * self.segment_bytes;
        self.reserve_bytes + (log + self.memtable_bytes) as u64
    }

    /// Why a new folder is of no use in `free_bytes`; `None` when it is.
    pub(crate) fn too_small(&self, free_bytes: u64) -> Option<String> {
        let wanted = self.room_wanted();
        if free_bytes >= wanted || self.reserve_bytes == 0 {
            return None;
        }
        let fits =
            |options: Options| options.for_disk(free_bytes, true).room_wanted() <= free_bytes;
        let one_value = self.value_bytes_max + RECORD_BYTES_MAX;
        let with_queue = |bytes: usize| Options {
            commit_queue_bytes_max: bytes,
            ..self.clone().with_memtable(MEMTABLE_BYTES_MIN)
        };
        let way_out = if fits(self.clone().with_memtable(MEMTABLE_BYTES_MIN)) {
            format!("lower memtable, which is {}", mib(self.memtable_bytes))
        } else if fits(with_queue(one_value)) {
            format!(
                "lower memory, which is {}: a log segment takes a 64th of it",
                mib(self.memory_bytes)
            )
        } else if fits(with_queue(RECORD_BYTES_MAX)) {
            format!(
                "lower value-bytes-max, which is {} bytes: a log segment takes one value",
                self.value_bytes_max
            )
        } else {
            "no options fit so small a disk".to_owned()
        };
        Some(format!(
            "{} are free, and a new folder needs {}: {} for the log, {} of reserve, and one memtable of {}; {way_out}, or give \
             the folder a larger disk",
            mib(usize::try_from(free_bytes).unwrap_or(usize::MAX)),
            mib(usize::try_from(wanted).unwrap_or(usize::MAX)),
            mib(LOG_SEGMENTS_MIN * self.segment_bytes),
            mib(usize::try_from(self.reserve_bytes).unwrap_or(usize::MAX)),
            mib(self.memtable_bytes)
        ))
    }

    /// Small limits, so that a few hundred writes see flushes, compactions and several levels.
    pub fn for_tests() -> Options {
        Options {
            memory_bytes: 4 << 20,
            value_bytes_max: 40 << 10,
            memtable_bytes: 16 << 10,
            durability: Durability::Sync,
            segment_bytes: 64 << 10,
            commit_queue_len_max: 256,
            commit_queue_bytes_max: 48 << 10,
            block_bytes: 512,
            table_bytes: 8 << 10,
            filter_bits_per_key: 10,
            compression: Compression::Lz4,
            compression_deepest: Compression::Zstd,
            level0_tables_trigger: 3,
            level0_tables_stop: 12,
            level0_inputs_max: 12,
            ahead_bytes: 4 << 10,
            level1_bytes: 32 << 10,
            level_fanout: 4,
            reserve_bytes: 0,
            kept_bytes_min: 256 << 10,
        }
    }

    /// The smallest log segment that takes any batch.
    pub(crate) fn segment_bytes_min(&self) -> usize {
        self.commit_queue_bytes_max + (4 << 10)
    }

    /// The first reason why these settings cannot work together, with the way out.
    pub fn check(&self) -> Result<(), BadOptions> {
        if self.memtable_bytes * 4 > self.memory_bytes {
            return Err(BadOptions::of(
                "memtable",
                format!(
                    "memtable = {} bytes is more than a quarter of memory = {} bytes: three memtables and a cache must fit",
                    self.memtable_bytes, self.memory_bytes
                ),
            ));
        }
        if self.value_bytes_max > limits::WRAPPED_VALUE_BYTES_MAX
            || self.value_bytes_max + RECORD_BYTES_MAX > self.commit_queue_bytes_max
        {
            return Err(BadOptions::of(
                "value-bytes-max",
                format!(
                    "value-bytes-max = {} is more than the engine can store: {} bytes at most, and one value must fit the commit queue of {} bytes",
                    self.value_bytes_max,
                    limits::WRAPPED_VALUE_BYTES_MAX,
                    self.commit_queue_bytes_max
                ),
            ));
        }
        let split = self.split();
        if split.sum() > self.memory_bytes {
            return Err(BadOptions::of(
                "memory",
                format!(
                    "memory = {} bytes does not hold its parts: memtables {}, commits {}, jobs {} for values of at most {}, and a cache of at least {} bytes; with the usual memtable, give at least {} MiB, or a smaller value-bytes-max",
                    self.memory_bytes,
                    split.memtables,
                    split.commits,
                    split.jobs,
                    self.value_bytes_max,
                    split.cache,
                    Options::memory_mib_min(self.value_bytes_max)
                ),
            ));
        }
        if self.segment_bytes_min() > self.segment_bytes {
            return Err(BadOptions::from(format!(
                "one batch of {} bytes does not fit a log segment of {} bytes",
                self.commit_queue_bytes_max, self.segment_bytes
            )));
        }
        if self.level0_tables_stop <= self.level0_tables_trigger {
            let reason = "level 0 must compact before it stops writes";
            return Err(BadOptions::from(reason.to_owned()));
        }
        if self.level0_inputs_max == 0 {
            let reason = "a compaction of level 0 reads at least one table";
            return Err(BadOptions::from(reason.to_owned()));
        }
        if self.block_bytes < 256 || self.block_bytes > 64 << 10 {
            return Err(BadOptions::from(format!(
                "a block of {} bytes is outside 256 B ..= 64 KiB",
                self.block_bytes
            )));
        }
        Ok(())
    }
}
