//! A scrub's position in memory, and its figures.
//!
//! Invariants
//! 1. Numbers are shown without waiting for a slice that reads.
//!
//! Not here: the slices (`mod.rs`), the file (`note.rs`).

use super::note::ScrubNote;
use crate::lanes::Maintained;
use crate::table::Flaw;
use crate::waits::hold;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// One slice of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubSlice {
    /// Bytes that were read.
    pub bytes: u64,
    /// Is there more to read now?
    pub state: Maintained,
}

/// The work of scrubs since the start, and the age of the last whole pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStats {
    /// Bytes that were read.
    pub bytes: u64,
    /// Blocks that were read.
    pub blocks: u64,
    /// Damaged spots that were found.
    pub spots_found: u64,
    /// Damaged spots that went with a table that was written anew.
    pub spots_mended: u64,
    /// When the pass under way began, in wall milliseconds; 0 = none is under way.
    pub began_ms: u64,
    /// When the last whole pass began, in wall milliseconds, also of an earlier start; 0 = never.
    pub full_began_ms: u64,
    /// When it ended.
    pub full_ended_ms: u64,
}

/// The table under way.
pub(super) struct Looking {
    pub(super) id: u64,
    pub(super) part: usize,
    pub(super) spots: Vec<Flaw>,
    pub(super) is_suspect: bool,
}

pub(super) struct ScrubState {
    pub(super) note: ScrubNote,
    pub(super) looking: Option<Looking>,
    pub(super) read_bytes: u64,
    pub(super) saved: BTreeSet<u64>,
}

/// Where the scrub of an engine stands.
#[derive(Default)]
pub(crate) struct Scrub {
    pub(super) state: Mutex<Option<ScrubState>>,
    pub(super) stats: Mutex<ScrubStats>,
}

impl Scrub {
    pub(crate) fn stats(&self) -> ScrubStats {
        *hold(&self.stats)
    }

    /// Damaged spots went with their table.
    pub(crate) fn mended(&self, spots: u64) {
        hold(&self.stats).spots_mended += spots;
    }
}
