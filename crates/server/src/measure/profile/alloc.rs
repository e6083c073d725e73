//! The allocator of the profiler: it passes every call on, and samples it during a capture.
//!
//! ```text
//! alloc(layout) ─┬─ no capture: one load, one branch ─────────────────────────► allocator below
//!                └─ capture: stride of this thread passes a mark? stack, bytes ─► slots ─► below
//! ```
//!
//! Invariants
//! 1. Every call reaches the allocator below unchanged, and its result is returned unchanged.
//! 2. The work beside it does not allocate, lock, unwind or panic: it cannot call itself.
//! 3. Threads that are not on the roster are passed on and not counted, the capturing thread among
//!    them.
//!
//! Not here: which bytes are marked (`stride.rs`), the walk (`stack.rs`), the slots (`slots.rs`).
//! See: docs/lab/profiles.md.

#![expect(
    unsafe_code,
    reason = "a global allocator is an unsafe trait, and so is the one below"
)]

use super::measure::Measure;
use super::sampler;
use super::stride::Stride;
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;

/// A sample for so many allocated bytes, on average, of each thread.
pub(crate) const BYTES_PER_SAMPLE: u64 = 512 << 10;

thread_local! {
    // `const` and without a destructor: using it never allocates, also while a thread ends.
    static STRIDE: Stride = const { Stride::new() };
}

/// The global allocator of a program that wants profiles of its allocations.
///
/// ```
/// use dendra_server::SampledAlloc;
///
/// #[global_allocator]
/// static ALLOCATOR: SampledAlloc<std::alloc::System> = SampledAlloc::over(std::alloc::System);
/// ```
#[derive(Debug)]
pub struct SampledAlloc<A> {
    below: A,
}

impl<A> SampledAlloc<A> {
    /// Watches the allocator `below`.
    pub const fn over(below: A) -> SampledAlloc<A> {
        SampledAlloc { below }
    }
}

#[inline(always)]
fn note(bytes: usize) {
    if sampler::is_on(Measure::Alloc) {
        note_watched(bytes);
    }
}

#[inline(never)]
fn note_watched(bytes: usize) {
    let bytes = bytes as u64;
    if STRIDE.with(|stride| stride.passes(bytes, BYTES_PER_SAMPLE)) {
        sampler::leave_here(Measure::Alloc, bytes);
    }
}

// SAFETY: every method passes its arguments on to `below`, which keeps the contract, and returns
// its result. `note` neither touches that memory nor unwinds nor allocates (invariant 2).
unsafe impl<A: GlobalAlloc> GlobalAlloc for SampledAlloc<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { self.below.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { self.below.dealloc(ptr, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { self.below.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        let after = unsafe { self.below.realloc(ptr, layout, new_size) };
        // A piece that grew in place counts with the bytes that it grew by; one that moved counts
        // as a whole.
        note(if after == ptr {
            new_size.saturating_sub(layout.size())
        } else {
            new_size
        });
        after
    }
}

/// Does this program's allocator count? Requires: a capture of allocations runs.
pub(crate) fn is_watched() -> bool {
    let before = STRIDE.with(Stride::left);
    drop(black_box(Vec::<u8>::with_capacity(black_box(64))));
    before != STRIDE.with(Stride::left)
}

/// Where the next mark of this thread is.
#[cfg(test)]
pub(crate) fn left() -> i64 {
    STRIDE.with(Stride::left)
}
