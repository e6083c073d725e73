//! The atomics of the protocol between the memtable's writer and readers, and the sizes that a
//! model checker has to shrink.
//!
//! Invariants
//! 1. `list.rs` and `iter.rs` take atomics from here and from nowhere else, so that
//!    `interleavings.rs` can compile the same files against loom's.
//!
//! Not here: counters that are only statistics (`arena.rs`, `list.rs`).

#![expect(
    unsafe_code,
    reason = "a large table of null pointers comes zeroed from the system"
)]

pub(super) use std::sync::atomic::{AtomicPtr, Ordering};

/// Marks plain memory that must be complete before any thread reads it. It is free here; under loom
/// it is a cell whose accesses are checked.
pub(super) struct Published;

impl Published {
    pub(super) fn new() -> Published {
        Published
    }

    /// Called by each reader of the memory.
    #[inline]
    pub(super) fn read(&self) {}
}

/// Levels of the list: with one node in four climbing, 4^12 keys keep their logarithmic search.
pub(super) const HEIGHT_MAX: usize = 12;

/// `len` null pointers. Zeroed pages come lazily: a new memtable costs no pause.
pub(super) fn nulls<T>(len: usize) -> Box<[AtomicPtr<T>]> {
    // SAFETY: `AtomicPtr<T>` has the representation of `*mut T`, and all zeros is the null pointer.
    unsafe { Box::new_zeroed_slice(len).assume_init() }
}
