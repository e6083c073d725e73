//! Memory for large pieces, straight from the kernel and back to it at once.
//!
//! ```text
//! layout ─┬─ below LARGE_BYTES ─► the allocator below
//!         └─ from there on ─┬─ a kept piece of its class ◄── freed ── the oldest are unmapped
//!                           └─ mmap                                   beyond LARGE_KEPT_BYTES_MAX
//! ```
//!
//! An allocator that is fast with many threads keeps freed pieces for the thread that made them.
//! Values of mebibytes are made by one thread and freed by another. So each thread ends with a heap
//! of its own: 670 MiB were resident where 234 MiB were in use. Mapping alone would cost a fault
//! for each page. So the last few pieces are kept, for all threads together.
//!
//! Invariants
//! 1. The layout alone tells which side made a piece: both sides of the border agree on it.
//! 2. A kept piece is in the list and nowhere else, and all of them together have at most
//!    `LARGE_KEPT_BYTES_MAX` bytes.
//! 3. No code here allocates, or panics while it holds the lock.
//!
//! Not here: attribution to functions (`profile/alloc.rs`); the bounds on memory (docs/overload.md,
//! "Memory").
//! See: docs/decisions/0021-large-pieces-go-back-at-once.md.

#![expect(
    unsafe_code,
    reason = "a global allocator is an unsafe trait, and so is what maps memory"
)]

use crate::limits::{LARGE_BYTES, LARGE_KEPT_BYTES_MAX};
use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::{Mutex, PoisonError};

const KEPT_LEN_MAX: usize = LARGE_KEPT_BYTES_MAX / LARGE_BYTES;
/// The smallest page there is: a piece with a larger alignment goes to the allocator below.
const PAGE_BYTES: usize = 4 << 10;

/// An allocator that maps large pieces itself and has another one for the rest.
///
/// ```
/// use dendra_server::LargeApart;
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOCATOR: LargeApart<System> = LargeApart::over(System);
/// ```
#[derive(Debug)]
pub struct LargeApart<A> {
    below: A,
    kept: Mutex<FreedPieces>,
}

impl<A> LargeApart<A> {
    /// Leaves small pieces to `below`.
    pub const fn over(below: A) -> LargeApart<A> {
        LargeApart {
            below,
            kept: Mutex::new(FreedPieces::new()),
        }
    }

    fn with_kept<R>(&self, act: impl FnOnce(&mut FreedPieces) -> R) -> R {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut kept)
    }
}

/// A mapping by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MappedPiece {
    at: usize,
    bytes: usize,
}

/// Freed pieces, the oldest first.
#[derive(Debug)]
struct FreedPieces {
    pieces: [MappedPiece; KEPT_LEN_MAX],
    len: usize,
    bytes: usize,
}

impl FreedPieces {
    const fn new() -> FreedPieces {
        FreedPieces {
            pieces: [MappedPiece { at: 0, bytes: 0 }; KEPT_LEN_MAX],
            len: 0,
            bytes: 0,
        }
    }

    fn remove(&mut self, index: usize) -> MappedPiece {
        let piece = self.pieces[index];
        self.pieces.copy_within(index + 1..self.len, index);
        self.len -= 1;
        self.bytes -= piece.bytes;
        piece
    }

    /// The last one of this size that was freed: its bytes are the nearest.
    fn take(&mut self, bytes: usize) -> Option<MappedPiece> {
        let all = &self.pieces[..self.len];
        let index = all.iter().rposition(|piece| piece.bytes == bytes)?;
        Some(self.remove(index))
    }

    /// Keeps `piece` when there is room for it, or returns the piece that has to go first: call
    /// again then.
    fn keep(&mut self, piece: MappedPiece) -> Option<MappedPiece> {
        if piece.bytes > LARGE_KEPT_BYTES_MAX {
            return Some(piece);
        }
        if self.bytes + piece.bytes > LARGE_KEPT_BYTES_MAX || self.len == KEPT_LEN_MAX {
            return Some(self.remove(0));
        }
        self.pieces[self.len] = piece;
        self.len += 1;
        self.bytes += piece.bytes;
        None
    }
}

/// Is it mapped apart?
const fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE_BYTES && layout.align() <= PAGE_BYTES
}

/// The mapped size for so many bytes: eight classes between two powers of two. So a freed piece
/// fits the next one that is a little longer. At most an eighth is never touched.
const fn class(bytes: usize) -> usize {
    let step = 1 << (bytes.ilog2() - 3);
    // A size near the largest possible one is not rounded, and the kernel refuses it.
    match bytes.checked_next_multiple_of(step) {
        Some(class) => class,
        None => bytes,
    }
}

fn map(bytes: usize) -> *mut u8 {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping at any address overlaps no other one.
    match unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) } {
        libc::MAP_FAILED => ptr::null_mut(),
        at => at.cast(),
    }
}

/// # Safety
/// `piece` is a whole mapping of `map`, and no pointer to it is used any more.
unsafe fn unmap(piece: MappedPiece) {
    let at: *mut libc::c_void = ptr::with_exposed_provenance_mut(piece.at);
    // SAFETY: as the caller promises. It fails only for a piece that is no mapping; no repair is
    // possible.
    unsafe { libc::munmap(at, piece.bytes) };
}

impl<A: GlobalAlloc> LargeApart<A> {
    /// A piece for `bytes`, and whether it is known to be zero.
    fn alloc_large(&self, bytes: usize) -> (*mut u8, bool) {
        let bytes = class(bytes);
        match self.with_kept(|kept| kept.take(bytes)) {
            Some(piece) => (ptr::with_exposed_provenance_mut(piece.at), false),
            None => (map(bytes), true),
        }
    }

    /// # Safety
    /// `ptr` came from `alloc_large(bytes)`, and is not used any more.
    unsafe fn free_large(&self, ptr: *mut u8, bytes: usize) {
        let piece = MappedPiece {
            at: ptr.expose_provenance(),
            bytes: class(bytes),
        };
        // Unmapping takes a while: not inside the lock.
        while let Some(gone) = self.with_kept(|kept| kept.keep(piece)) {
            // SAFETY: it is out of the list, or was never in it, and freed as the caller promises.
            unsafe { unmap(gone) };
            if gone == piece {
                break;
            }
        }
    }
}

// SAFETY: a piece is made, changed and freed by one side, chosen by its layout alone (invariant 1).
// Below the border every call is passed on. From there on a piece is a mapping of its class. It has
// room for its size at the alignment of a page, and is handed out once (invariant 2). A piece that
// is resized across the border is a new one, with the bytes that both have room for.
unsafe impl<A: GlobalAlloc> GlobalAlloc for LargeApart<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return self.alloc_large(layout.size()).0;
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { self.below.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if is_large(layout) {
            // SAFETY: a piece of this layout came from there, and its owner gives it back.
            return unsafe { self.free_large(ptr, layout.size()) };
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { self.below.dealloc(ptr, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            let (ptr, is_zero) = self.alloc_large(layout.size());
            if !is_zero {
                // SAFETY: it has room for so many bytes, and is ours alone.
                unsafe { ptr.write_bytes(0, layout.size()) };
            }
            return ptr;
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { self.below.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `new_size` fits a layout of this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (is_large(layout), is_large(wanted)) {
            // SAFETY: the caller's promises are passed on.
            (false, false) => unsafe { self.below.realloc(ptr, layout, new_size) },
            (true, true) => {
                let (from, to) = (class(layout.size()), class(new_size));
                if from == to {
                    return ptr;
                }
                // SAFETY: it is a whole mapping of `from` bytes, of which the caller keeps no other
                // pointer. The kernel moves its pages, and leaves it when it has no room.
                match unsafe { libc::mremap(ptr.cast(), from, to, libc::MREMAP_MAYMOVE) } {
                    libc::MAP_FAILED => ptr::null_mut(),
                    after => after.cast(),
                }
            }
            _ => {
                // SAFETY: the caller promises a size above zero.
                let after = unsafe { self.alloc(wanted) };
                if !after.is_null() {
                    // SAFETY: both have room for so many bytes and lie apart; the old one is not
                    // used after this.
                    unsafe {
                        after.copy_from_nonoverlapping(ptr, layout.size().min(new_size));
                        self.dealloc(ptr, layout);
                    }
                }
                after
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::alloc::System;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts the bytes that it holds, above the system's allocator.
    struct Counted(AtomicUsize);

    // SAFETY: every method passes its arguments on and returns the result of the system's
    // allocator.
    unsafe impl GlobalAlloc for Counted {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            self.0.fetch_add(layout.size(), Ordering::Relaxed);
            // SAFETY: the caller's promises are passed on.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
            self.0.fetch_sub(layout.size(), Ordering::Relaxed);
            // SAFETY: the caller's promises are passed on.
            unsafe { System.dealloc(ptr, layout) }
        }
    }

    fn fresh() -> LargeApart<Counted> {
        LargeApart::over(Counted(AtomicUsize::new(0)))
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 8).expect("a size")
    }

    /// A piece with a known first and last byte.
    struct Held {
        at: *mut u8,
        bytes: usize,
        mark: u8,
    }

    impl Held {
        fn is_whole(&self) -> bool {
            // SAFETY: both bytes are inside the piece.
            unsafe { *self.at == self.mark && *self.at.add(self.bytes - 1) == self.mark }
        }
    }

    fn make(from: &LargeApart<Counted>, bytes: usize, mark: u8, is_zeroed: bool) -> Held {
        // SAFETY: it is written inside its size.
        unsafe {
            let at = if is_zeroed {
                from.alloc_zeroed(layout(bytes))
            } else {
                from.alloc(layout(bytes))
            };
            assert!(!at.is_null());
            if is_zeroed {
                let all = std::slice::from_raw_parts(at, bytes);
                assert!(all.iter().all(|byte| *byte == 0), "it is zero");
            }
            at.write(mark);
            at.add(bytes - 1).write(mark);
            Held { at, bytes, mark }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pieces_keep_their_bytes_and_go_back_to_where_they_came_from(
            steps in prop::collection::vec(
                (0..4u8, prop::sample::select(vec![
                    16, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 1 << 20, (1 << 20) + 9,
                    3 << 20, 9 << 20, 17 << 20,
                ]), any::<prop::sample::Index>()), 1..60),
        ) {
            let both = fresh();
            let mut held: Vec<Held> = Vec::new();
            for (n, (what, bytes, which)) in steps.into_iter().enumerate() {
                let mark = n as u8 + 1;
                match what {
                    0 | 1 => held.push(make(&both, bytes, mark, what == 1)),
                    _ if held.is_empty() => {}
                    2 => {
                        let gone = held.swap_remove(which.index(held.len()));
                        prop_assert!(gone.is_whole());
                        // SAFETY: it is made with this layout and used no more.
                        unsafe { both.dealloc(gone.at, layout(gone.bytes)) };
                    }
                    _ => {
                        let index = which.index(held.len());
                        let piece = &mut held[index];
                        // SAFETY: as above; the last byte is written where the piece grew.
                        unsafe {
                            piece.at = both.realloc(piece.at, layout(piece.bytes), bytes);
                            assert_eq!(*piece.at, piece.mark);
                            assert!(bytes < piece.bytes
                                || *piece.at.add(piece.bytes - 1) == piece.mark);
                            piece.bytes = bytes;
                            piece.at.add(bytes - 1).write(piece.mark);
                        }
                    }
                }
                prop_assert!(held.iter().all(Held::is_whole));
                let small: usize = held.iter().map(|p| p.bytes).filter(|b| *b < LARGE_BYTES).sum();
                prop_assert_eq!(both.below.0.load(Ordering::Relaxed), small);
                let (len, bytes) = both.with_kept(|kept| (kept.len, kept.bytes));
                prop_assert!(bytes <= LARGE_KEPT_BYTES_MAX && len <= KEPT_LEN_MAX);
            }
            for piece in held {
                // SAFETY: as above.
                unsafe { both.dealloc(piece.at, layout(piece.bytes)) };
            }
            both.with_kept(|kept| {
                while kept.len > 0 {
                    let piece = kept.remove(0);
                    // SAFETY: it is out of the list, so no other pointer to it is in use.
                    unsafe { unmap(piece) };
                }
            });
        }
    }

    #[test]
    fn the_last_one_freed_is_the_next_one_of_its_class_and_the_oldest_go() {
        let mut kept = FreedPieces::new();
        let piece = |at, mib: usize| MappedPiece {
            at,
            bytes: mib << 20,
        };
        for at in 1..=16 {
            assert_eq!(kept.keep(piece(at, 1)), None);
        }
        assert_eq!(kept.keep(piece(17, 2)), Some(piece(1, 1)));
        assert_eq!(kept.keep(piece(17, 2)), Some(piece(2, 1)));
        assert_eq!(kept.keep(piece(17, 2)), None);
        assert_eq!(kept.take(1 << 20), Some(piece(16, 1)));
        assert_eq!(kept.take(3 << 20), None);
        assert_eq!(kept.take(2 << 20), Some(piece(17, 2)));
        assert_eq!(kept.bytes, 13 << 20);
        let huge = piece(99, 17);
        assert_eq!(kept.keep(huge), Some(huge), "more than all that is kept");
    }

    #[test]
    fn a_class_has_room_and_wastes_at_most_an_eighth() {
        for bytes in (LARGE_BYTES..64 << 20).step_by(4_099) {
            let class = class(bytes);
            assert!(
                class >= bytes && class - bytes <= bytes / 8,
                "{bytes}: {class}"
            );
            assert_eq!(super::class(class), class);
            assert_eq!(class % PAGE_BYTES, 0);
        }
        assert_eq!(class(isize::MAX as usize), 1 << 63);
    }
}
