//! The two lanes of background work, and the job that each has under way.

use crate::compact::pick::scarce::Reclaim;
use crate::compact::run::MergeJob;
use std::sync::Mutex;

/// Background work comes in two kinds, so that a flush never waits for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Log segments ahead of use, flushes of sealed memtables, removal of old logs.
    Flush,
    /// Compactions and removal of replaced tables.
    Compact,
}

/// The work of one slice in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintained {
    /// No work: come back after the next commit, or in a second.
    Idle,
    /// A slice is done and more is waiting.
    More,
}

/// The job that each lane has under way.
#[derive(Default)]
pub(crate) struct Lanes {
    pub(crate) flush: Mutex<Option<MergeJob>>,
    pub(crate) compact: Mutex<Option<CompactJob>>,
    pub(crate) quiet: Mutex<Option<Quiet>>,
}

/// A job of the compact lane.
pub(crate) struct CompactJob {
    pub(crate) merge: MergeJob,
    /// Table that the job writes anew, for its room.
    pub(crate) reclaim: Option<Reclaim>,
}

/// Since when no write came.
#[derive(Clone, Copy)]
pub(crate) struct Quiet {
    pub(crate) commits: u64,
    pub(crate) since_ms: u64,
}
