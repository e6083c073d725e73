//! Counters and gauges of one engine, for metrics and status pages.
//!
//! Invariants
//! 1. Counting never takes a lock and never fails; readers see each number some moment ago.
//!
//! Not here: names and units of exported metrics (the server's admin plane).

use crate::scrub::state::ScrubStats;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The engine's own counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads_would_block: Counter,
    pub(crate) damaged_reads: Counter,
    pub(crate) commits: Counter,
    pub(crate) commit_writes: Counter,
    pub(crate) log_bytes: Counter,
    pub(crate) log_syncs: Counter,
    pub(crate) flushes: Counter,
    pub(crate) flush_bytes: Counter,
    pub(crate) ingest_bytes: Counter,
    pub(crate) compactions: Counter,
    pub(crate) compaction_read_bytes: Counter,
    pub(crate) compaction_write_bytes: Counter,
}

/// Counters and gauges of one engine.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Tables and bytes per level.
    pub levels: Vec<(usize, u64)>,
    /// Records in all tables, shadowed ones and tombstones included.
    pub table_records: u64,
    /// Bytes of their stored keys and encoded cells, before compression.
    pub table_raw_bytes: u64,
    /// Bytes that open tables pin in memory.
    pub table_pinned_bytes: u64,
    /// Bytes in the active and the sealed memtables.
    pub memtable_bytes: u64,
    /// Sealed memtables waiting for a flush.
    pub memtables_sealed: usize,
    /// Bytes of cached blocks.
    pub cache_bytes: u64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks that had to be read.
    pub cache_misses: u64,
    /// Filters that said "absent".
    pub filter_negatives: u64,
    /// `Wait::Never` reads that would have had to wait for the disk.
    pub reads_would_block: u64,
    /// Commits (one log write each).
    pub commits: u64,
    /// Writes in those commits.
    pub commit_writes: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// `fdatasync` calls on the log.
    pub log_syncs: u64,
    /// Log segments on disk, spares included.
    pub log_segments: usize,
    /// Flushes done.
    pub flushes: u64,
    /// Bytes written by flushes.
    pub flush_bytes: u64,
    /// Bytes of tables that were written from ordered records, as a restore does.
    pub ingest_bytes: u64,
    /// Tables that are kept for the next incremental backup, those that are live included.
    pub kept_tables: usize,
    /// Bytes of the kept tables.
    pub kept_bytes: u64,
    /// Compactions done, moves included.
    pub compactions: u64,
    /// Bytes of keys and values read by compactions.
    pub compaction_read_bytes: u64,
    /// Bytes written by compactions.
    pub compaction_write_bytes: u64,
    /// Reads that met damaged bytes.
    pub damaged_reads: u64,
    /// Live tables in which damage was met.
    pub tables_damaged: usize,
    /// How many of them no compaction reads any more.
    pub tables_set_aside: usize,
    /// The work of scrubs.
    pub scrub: ScrubStats,
    /// The disk at the last look.
    pub disk: DiskStats,
}

/// The disk that holds the folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Size of the disk; 0 before the first look.
    pub total_bytes: u64,
    /// With less room than this, new values are refused.
    pub reserve_bytes: u64,
    /// Bytes of the folder, about: tables and log segments.
    pub used_bytes: u64,
    /// Are new values refused?
    pub is_full: bool,
}
