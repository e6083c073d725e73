//! One number for all memory, and how it is divided: every bound of this crate that grows with
//! bytes.
//!
//! ```text
//! memtables   three, one batch above the last, and the nodes of that batch's records
//! commits     the queue, the batch that is being written, the same without refused writes, and as
//!             framed for the log
//! jobs        one flush and one compaction: a writer each, and for every input a window and a block
//! cache       the rest: blocks, pinned guides, top indexes of open tables
//! ```
//!
//! Invariants
//! 1. `memtables + commits + jobs + cache == memory_bytes`, and the cache keeps a sixteenth at
//!    least: settings that leave less are refused, with the number that would do.
//! 2. Top indexes grow with the data. The blocks give them the memory (`BlockCache::make_room`).
//!
//! Beside this stand threads' stacks, and a read buffer of at most 256 KiB for each thread that
//! reads. So do blocks that were evicted while a reader looks at them, and the allocator's own
//! waste.
//!
//! Not here: the server's other memory (docs/overload.md).
//! See: docs/overload.md.

use crate::batch::{BatchWrite, WriteOutcome};
use crate::options::{Compression, Options};
use crate::pressure::SEALED_MAX;
use crate::table::TableOptions;
use crate::wal::{BATCH_HEAD_BYTES, PAGE_BYTES};

/// Memory of a memtable's node and record besides key and cell, its share of the tower included.
const NODE_BYTES: usize = 96;
/// A table writer's buffers that hold no blocks: bytes on their way to the file, one index
/// partition, the hashes of its keys, their filter.
const WRITER_BYTES: usize = (256 << 10) + (1 << 20);
/// A block as a writer holds it: growing (at most doubled), compressed, and on its way to the file.
const WRITER_BLOCKS: usize = 4;
/// The most memory of zstd's third level. It is less for small blocks: their size decides its
/// tables.
const ZSTD_BYTES_MAX: usize = 3 << 20;
const ZSTD_BYTES_MIN: usize = 512 << 10;
/// Batches that are on their way into the log at once, in any form.
const BATCHES: usize = 4;
/// The cache gets one of so many parts at least.
const CACHE_DIVISOR: usize = 16;

/// The parts of the memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Memtables.
    pub memtables: usize,
    /// Writes on their way into the log.
    pub commits: usize,
    /// One flush and one compaction.
    pub jobs: usize,
    /// Blocks, guides and top indexes.
    pub cache: usize,
}

impl Split {
    /// All of it.
    pub fn sum(&self) -> usize {
        self.memtables + self.commits + self.jobs + self.cache
    }
}

impl Options {
    /// The split of `memory_bytes`. The parts are larger together when the memory is too small:
    /// `check` refuses that.
    pub fn split(&self) -> Split {
        let batch = self.commit_queue_bytes_max;
        let ops = self.commit_queue_len_max;
        let memtables = (SEALED_MAX + 1) * self.memtable_bytes + batch + ops * NODE_BYTES;
        let framing = BATCH_HEAD_BYTES + PAGE_BYTES;
        let commits = BATCHES * batch
            + framing
            + 2 * ops * (size_of::<BatchWrite>() + size_of::<WriteOutcome>());
        let jobs = self.job_bytes();
        let rest = self.memory_bytes.saturating_sub(memtables + commits + jobs);
        Split {
            memtables,
            commits,
            jobs,
            cache: rest.max(self.memory_bytes / CACHE_DIVISOR),
        }
    }

    /// The least memory, in mebibytes, that [`Options::for_memory`] can divide among its parts.
    pub fn memory_mib_min(value_bytes_max: usize) -> usize {
        let (mut low, mut high) = (1, 1 << 20);
        while low < high {
            let middle = low + (high - low) / 2;
            let options = Options::for_memory(middle << 20, value_bytes_max);
            if options.split().sum() > options.memory_bytes {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The largest block: one value of the largest size after others that almost filled it.
    fn largest_block(&self) -> usize {
        self.block_bytes + self.value_bytes_max + (2 << 10)
    }

    fn job_bytes(&self) -> usize {
        let has_zstd = [self.compression, self.compression_deepest].contains(&Compression::Zstd);
        let zstd = if has_zstd {
            (ZSTD_BYTES_MIN + 2 * self.largest_block()).min(ZSTD_BYTES_MAX)
        } else {
            0
        };
        // Small tables never fill the buffers of a writer.
        let table = TableOptions::default()
            .partition_bytes
            .min(4 * self.table_bytes);
        let writer = WRITER_BYTES.min(table) + WRITER_BLOCKS * self.largest_block() + zstd;
        // A window that a large block needed is given back when the block is taken from it.
        let inputs = (self.level0_inputs_max + 1) * (self.ahead_bytes + self.largest_block());
        2 * writer + inputs + self.largest_block()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::limits::{VALUE_BYTES_MAX_DEFAULT, VALUE_BYTES_MAX_LIMIT, WRAPPER_BYTES_MAX};

    #[test]
    fn the_parts_of_any_memory_from_the_least_on_are_all_of_it() {
        for value_bytes_max in [1, 64 << 10, VALUE_BYTES_MAX_DEFAULT, VALUE_BYTES_MAX_LIMIT] {
            let least = Options::memory_mib_min(value_bytes_max);
            for mib in (least..least + 300).chain([1 << 10, 10 << 10, 1 << 20]) {
                let options = Options::for_memory(mib << 20, value_bytes_max);
                let split = options.split();
                assert_eq!(split.sum(), mib << 20, "{mib} MiB: {split:?}");
                assert_eq!(options.check(), Ok(()), "{mib} MiB: {split:?}");
                assert!(
                    split.cache >= options.memory_bytes / CACHE_DIVISOR,
                    "{mib} MiB"
                );
            }
            let below = Options::for_memory((least - 1) << 20, value_bytes_max);
            let reason = below.check().expect_err("one mebibyte is missing").reason;
            assert!(
                reason.contains(&format!("at least {least} MiB")),
                "{reason}"
            );
        }
    }

    #[test]
    fn the_documented_minima_are_those_of_the_code() {
        let page = include_str!("../../../docs/overload.md");
        for (value_bytes_max, name) in [
            (64 << 10, "64 KiB"),
            (VALUE_BYTES_MAX_DEFAULT, "1 MiB"),
            (VALUE_BYTES_MAX_LIMIT, "8 MiB"),
        ] {
            let least = Options::memory_mib_min(value_bytes_max + WRAPPER_BYTES_MAX);
            let row = format!("| values of at most {name} | {least} MiB |");
            assert!(page.contains(&row), "docs/overload.md has no row {row}");
        }
    }

    #[test]
    fn the_default_memory_keeps_two_fifths_for_what_is_read() {
        let split = Options::for_memory(256 << 20, VALUE_BYTES_MAX_DEFAULT).split();
        assert!(split.cache >= (256 << 20) / 5 * 2, "{split:?}");
    }
}
