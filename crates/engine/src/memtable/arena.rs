//! Memory of one memtable: handed out piece by piece, freed all at once.
//!
//! ```text
//! chunk  |▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░░░░░|   ▓ handed out   ░ the bump's own, still free
//! chunk  |▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓xx|   x abandoned: the next piece did not fit
//! chunk  |▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓|   a piece too large to share a chunk has its own
//! ```
//!
//! Invariants
//! 1. A piece never moves and lives as long as its `Arena`.
//! 2. Pieces are aligned to `ALIGN` and never overlap; each is handed out once.
//! 3. `bytes` counts the memory that was handed out, and the abandoned ends of pieces.
//!
//! Not here: the content of the pieces (`list.rs`); when a memtable is full (`engine.rs`).

#![expect(
    unsafe_code,
    reason = "pieces of one allocation are handed out as raw memory"
)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Mutex;
// A statistic, not part of the protocol between writer and readers: never swapped for a model.
use std::sync::atomic::{AtomicUsize, Ordering};

/// Every piece starts at a multiple of this.
pub(super) const ALIGN: usize = 8;

/// Smallest chunk: one page.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// Largest chunk: seldom enough to ask the system for memory, small beside a memtable.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// A piece larger than a chunk divided by this gets its own, so that at most an eighth of a chunk
/// is ever abandoned.
const SHARE_MIN: usize = 8;

/// Owns the chunks. Shared by the writer and all readers.
pub(super) struct Arena {
    chunk_bytes: usize,
    /// Locked once per chunk and only by the writer: the lock is for the compiler, not for speed.
    chunks: Mutex<Vec<Chunk>>,
    bytes: AtomicUsize,
}

/// Where the next piece comes from. Belongs to the one writer of one arena.
pub(super) struct Bump {
    next: *mut u8,
    left: usize,
}

// SAFETY: a `Bump` is the only holder of the free end of its chunk; whichever thread owns it may
// write there.
unsafe impl Send for Bump {}

impl Bump {
    /// Has no memory to hand out yet.
    pub(super) fn new() -> Bump {
        Bump {
            next: std::ptr::null_mut(),
            left: 0,
        }
    }
}

impl Arena {
    /// An arena for about `bytes_target` bytes; allocates none yet.
    pub(super) fn new(bytes_target: usize) -> Arena {
        Arena {
            chunk_bytes: (bytes_target / 8).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX),
            chunks: Mutex::new(Vec::new()),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Bytes handed out or abandoned.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A piece of `len` uninitialised bytes, aligned to `ALIGN`, valid while `self` lives. `bump`
    /// must have been used with no other arena, else the piece lives as long as that one.
    pub(super) fn take(&self, bump: &mut Bump, len: usize) -> NonNull<u8> {
        let len = len.max(1).next_multiple_of(ALIGN);
        if len > bump.left {
            if len > self.chunk_bytes / SHARE_MIN {
                self.bytes.fetch_add(len, Ordering::Relaxed);
                return self.add_chunk(len);
            }
            self.bytes.fetch_add(bump.left, Ordering::Relaxed);
            bump.next = self.add_chunk(self.chunk_bytes).as_ptr();
            bump.left = self.chunk_bytes;
        }
        let piece = bump.next;
        // SAFETY: `len <= left`, and `left` bytes behind `next` are inside one live chunk.
        bump.next = unsafe { bump.next.add(len) };
        bump.left -= len;
        self.bytes.fetch_add(len, Ordering::Relaxed);
        NonNull::new(piece).expect("a chunk with room left is not null")
    }

    fn add_chunk(&self, len: usize) -> NonNull<u8> {
        let chunk = Chunk::new(len);
        let start = chunk.start;
        self.chunks
            .lock()
            .expect("pushing to a list does not panic")
            .push(chunk);
        start
    }
}

/// One allocation, freed when dropped.
struct Chunk {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a `Chunk` only frees its memory; it is dropped once, by whichever thread drops the arena.
unsafe impl Send for Chunk {}

impl Chunk {
    fn new(len: usize) -> Chunk {
        let layout = Layout::from_size_align(len.max(ALIGN), ALIGN)
            .expect("a chunk is far below the address space");
        // SAFETY: the layout's size is at least `ALIGN`, hence not zero.
        let start = unsafe { alloc(layout) };
        match NonNull::new(start) {
            Some(start) => Chunk { start, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc` with this layout, and `drop` runs once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_overlap_and_keep_their_bytes() {
        let arena = Arena::new(16 << 10);
        let mut bump = Bump::new();
        let lens: Vec<usize> = (1..400).map(|i| (i * 37) % 900 + 1).collect();
        let pieces: Vec<NonNull<u8>> = lens
            .iter()
            .enumerate()
            .map(|(i, len)| {
                let piece = arena.take(&mut bump, *len);
                // SAFETY: the piece is `len` bytes long and no other pointer to it exists.
                unsafe { piece.write_bytes(i as u8, *len) };
                piece
            })
            .collect();
        for (i, (piece, len)) in pieces.iter().zip(&lens).enumerate() {
            assert_eq!(piece.as_ptr().addr() % ALIGN, 0);
            // SAFETY: the piece was filled above and the arena still lives.
            let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), *len) };
            assert!(
                bytes.iter().all(|b| *b == i as u8),
                "piece {i} was overwritten"
            );
        }
    }

    #[test]
    fn little_memory_is_allocated_that_is_not_counted() {
        let arena = Arena::new(64 << 10);
        let mut bump = Bump::new();
        for i in 0..2000usize {
            arena.take(&mut bump, (i * 7919) % 3000);
        }
        let chunks = arena.chunks.lock().expect("no other thread");
        let allocated: usize = chunks.iter().map(|chunk| chunk.layout.size()).sum();
        assert_eq!(allocated, arena.bytes() + bump.left);
    }

    #[test]
    fn a_large_piece_leaves_the_shared_chunk_in_use() {
        let arena = Arena::new(64 << 10);
        let mut bump = Bump::new();
        arena.take(&mut bump, 8);
        let left = bump.left;
        arena.take(&mut bump, 1 << 20);
        assert_eq!(bump.left, left);
        assert_eq!(arena.bytes(), 8 + (1 << 20));
    }
}
