//! Room for hints: how many bytes they hold, and a hint that is on its way into the store.
//!
//! ```text
//! take(bytes) ─► bytes + this <= bytes_max, and earlier hints are counted ─► it is kept
//!             └► else: it is dropped, and counted
//! replaced, deleted, not taken by the store ─► give_back(bytes)
//! ```
//!
//! Invariants
//! 1. `bytes` counts hints that are stored or on their way there. It is above `bytes_max` only
//!    while `take` looks.
//! 2. No room is given until `count` was told how much an earlier life left.
//!
//! Not here: which hints are kept and delivered (`hints/mod.rs`).
//! See: docs/overload.md.

use dendra_base::{Cell, Key, Version};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Room for the hints of one member, shared by its loops, with counts of their fates.
///
/// The orderings are relaxed: these are counters, and no other memory hangs on them.
#[derive(Debug)]
pub struct HintRoom {
    bytes_max: u64,
    /// Were the hints that an earlier life left counted?
    is_counted: AtomicBool,
    bytes: AtomicU64,
    pub(super) kept: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) delivered: AtomicU64,
}

impl HintRoom {
    /// Room for about `bytes_max` bytes of keys and cells; 0 = keep no hints.
    pub fn new(bytes_max: u64) -> HintRoom {
        HintRoom {
            bytes_max,
            is_counted: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
        }
    }

    /// Bytes of keys and cells that hints hold, those on their way to the store included.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Hints that were kept.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Hints for which there was no room, or which the store did not take.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Hints that their members confirmed.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self, bytes: u64) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.bytes_max;
        let is_taken = fits && self.is_counted();
        if !is_taken {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        is_taken
    }

    pub(super) fn give_back(&self, bytes: u64) {
        let less = |held: u64| Some(held.saturating_sub(bytes));
        debug_assert!(self.bytes() >= bytes, "{bytes} of {} bytes", self.bytes());
        // A count that drifted would end at zero, never below it.
        let _ = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Is it certain that there is no hint?
    pub(crate) fn is_empty(&self) -> bool {
        self.is_counted() && self.bytes() == 0
    }

    pub(super) fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::Relaxed)
    }

    /// An earlier life left hints of so many bytes, and no others.
    pub(super) fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.is_counted.store(true, Ordering::Relaxed);
    }
}

/// A hint on its way into the own store.
#[derive(Debug)]
pub(crate) struct Keeping {
    pub(super) key: Key,
    pub(super) hint: Cell,
    /// The version of the cell in it.
    pub(super) hinted: Version,
    /// The hint that it replaces: its version, and its bytes.
    pub(super) over: Option<(Version, u64)>,
    pub(super) tries: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_room_drops_and_counts_until_something_left() {
        let room = HintRoom::new(100);
        assert!(!room.take(1), "what is there already was not counted");
        room.count(20);
        assert!(room.take(40) && room.take(40) && !room.take(1));
        assert_eq!((room.bytes(), room.dropped()), (100, 2));
        room.give_back(60);
        assert!(room.take(60));
        let none = HintRoom::new(0);
        none.count(0);
        assert!(!none.take(1), "no room keeps no hint");
    }
}
