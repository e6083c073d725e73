//! The questions to every kind of store, and its answers.
//!
//! Not here: the stores themselves (`engine.rs`, `map.rs`).

use dendra_base::{Cell, Guard, Key};
use dendra_node::step::{StoreFailure, StoreOutcome};

/// One write on its way into the store.
#[derive(Clone, Debug)]
pub struct StoreWrite {
    /// Space and raw key.
    pub key: Key,
    /// With its version.
    pub cell: Cell,
    /// The condition that must hold.
    pub guard: Guard,
}

/// The outcome of one write.
pub type WriteResult = Result<StoreOutcome, StoreFailure>;

/// The keys in front of a block and at its end, as texts of a dump.
pub(crate) type StoredRange = (String, String);

/// Where a page begins and ends.
#[derive(Clone, Debug)]
pub struct PageRange {
    /// First stored key, inclusive; for a reverse walk: exclusive.
    pub start: Key,
    /// Last stored key, exclusive; for a reverse walk: inclusive.
    pub end: Option<Key>,
    /// From the end towards the start.
    pub is_reverse: bool,
    /// About so many bytes.
    pub bytes: u32,
}

/// Is the store still alive after an operation?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Yes.
    Alive,
    /// The power failed, or the log did: the member ends here.
    Dead,
}

/// How a store ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The power failed: unsynced bytes survive or not.
    PowerLoss,
    /// The process ended: its writes are in the page cache.
    Killed,
}
