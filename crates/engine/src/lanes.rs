//! The two lanes of background work, and what each is in the middle of.

use crate::compact::run::Job;
use std::sync::Mutex;

/// Background work comes in two kinds, so that a flush never waits behind a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Log segments ahead of use, flushes of sealed memtables, removal of old logs.
    Flush,
    /// Compactions and removal of replaced tables.
    Compact,
}

/// What one slice of background work did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintained {
    /// Nothing to do: come back after the next commit, or in a second.
    Idle,
    /// A slice is done and more is waiting.
    More,
}

/// What each lane is in the middle of.
#[derive(Default)]
pub(crate) struct Lanes {
    pub(crate) flush: Mutex<Option<Job>>,
    pub(crate) compact: Mutex<Option<Job>>,
    pub(crate) quiet: Mutex<Option<Quiet>>,
}

/// Since when nothing was written.
#[derive(Clone, Copy)]
pub(crate) struct Quiet {
    pub(crate) commits: u64,
    pub(crate) since_ms: u64,
}
