//! Settings of one engine: numbers only, each with its meaning and unit.
//!
//! Invariants
//! 1. `check` accepts exactly the combinations that the engine can honour; nothing is adjusted in
//!    silence.
//!
//! Not here: where settings come from (crate `dendra`), what is plugged in (`Vfs`).
//! See: docs/overload.md.

use dendra_base::limits;

/// When is a write acknowledged?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After `fdatasync`: survives the machine.
    Sync,
    /// After `write`: survives the process, not the machine.
    Os,
}

impl Durability {
    /// As in options, receipts and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Os => "os",
        }
    }
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
    /// All memory the engine may hold: memtables, cached blocks, indexes.
    pub memory_bytes: usize,
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
    /// Bytes of level 1; each deeper level holds `level_fanout` times more.
    pub level1_bytes: u64,
    /// Growth from level to level.
    pub level_fanout: u64,
    /// Disk room below which new values are refused; deletes go on.
    pub reserve_bytes: u64,
}

impl Options {
    /// What a node uses unless told otherwise, for `memory_bytes` of memory.
    pub fn for_memory(memory_bytes: usize) -> Options {
        let memtable_bytes = (memory_bytes / 8).clamp(1 << 20, 64 << 20);
        let (segment_bytes, table_bytes) = (16 << 20, 32 << 20);
        Options {
            memory_bytes,
            memtable_bytes,
            durability: Durability::Sync,
            segment_bytes,
            commit_queue_len_max: 4096,
            commit_queue_bytes_max: 12 << 20,
            block_bytes: 4 << 10,
            table_bytes,
            filter_bits_per_key: 10,
            compression: Compression::Lz4,
            compression_deepest: Compression::Lz4,
            level0_tables_trigger: 4,
            level0_tables_stop: 20,
            level1_bytes: 4 * memtable_bytes as u64,
            level_fanout: 8,
            // What is in memory can still be flushed, also by a restart, and one table compacted.
            reserve_bytes: (3 * memtable_bytes + 2 * segment_bytes + table_bytes) as u64,
        }
    }

    /// Small limits, so that a few hundred writes see flushes, compactions and several levels.
    pub fn for_tests() -> Options {
        Options {
            memory_bytes: 1 << 20,
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
            level1_bytes: 32 << 10,
            level_fanout: 4,
            reserve_bytes: 0,
        }
    }

    /// The first reason why these settings cannot work together, with the way out.
    pub fn check(&self) -> Result<(), String> {
        if self.memtable_bytes * 4 > self.memory_bytes {
            return Err(format!(
                "memtable = {} bytes is more than a quarter of memory = {} bytes: three memtables and a cache must fit",
                self.memtable_bytes, self.memory_bytes
            ));
        }
        if self.commit_queue_bytes_max + (4 << 10) > self.segment_bytes {
            return Err(format!(
                "one batch of {} bytes does not fit a log segment of {} bytes",
                self.commit_queue_bytes_max, self.segment_bytes
            ));
        }
        if self.level0_tables_stop <= self.level0_tables_trigger {
            return Err("level 0 must compact before it stops writes".to_owned());
        }
        if self.block_bytes < 256 || self.block_bytes > 64 << 10 {
            return Err(format!(
                "a block of {} bytes is outside 256 B ..= 64 KiB",
                self.block_bytes
            ));
        }
        Ok(())
    }

    /// Bytes for cached blocks: what the memtables leave, less a sixteenth for indexes that open
    /// tables pin and for jobs' buffers.
    pub fn cache_bytes(&self) -> usize {
        let memtables = 3 * self.memtable_bytes;
        (self.memory_bytes - memtables - self.memory_bytes / 16).max(64 << 10)
    }

    /// Largest value these settings can store.
    pub fn value_bytes_max(&self) -> usize {
        (self.commit_queue_bytes_max - (4 << 10)).min(limits::VALUE_BYTES_MAX_LIMIT)
    }
}
