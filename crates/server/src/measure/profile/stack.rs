//! Walks frame pointers: from an interrupted place, or from where the caller stands.
//!
//! ```text
//! fp ─► [fp] next fp, [fp+8] return address, while floor ≤ fp < end of stack and fp grows
//! ```
//!
//! Invariants
//! 1. Only words between `floor` and the end of the own stack are read: they are mapped while the
//!    thread runs.
//! 2. Frame pointers must be aligned and grow, so every walk ends.
//! 3. No code here allocates, locks, unwinds or calls into the C library.
//!
//! Not here: walking a stack (`sampler.rs`), names of addresses (`symbols.rs`).

#![expect(unsafe_code, reason = "reads the words of the own stack")]

use super::frames::{FRAMES_MAX, Frames};
use super::roster::OwnThread;

const WORD: usize = size_of::<usize>();

/// Fills `frames` with the kind of thread, `pc` and the return addresses. Requires: the thread that
/// owns the stack stands still in the caller, and `floor` is its stack pointer or lies above it.
pub(crate) fn walk(
    frames: &mut Frames,
    own: OwnThread,
    pc: usize,
    mut fp: usize,
    mut floor: usize,
) -> usize {
    frames[0] = own.kind as usize;
    frames[1] = pc;
    let mut length = 2;
    while length < FRAMES_MAX {
        let Some((next, back)) = frame(own, fp, floor) else {
            break;
        };
        frames[length] = back;
        length += 1;
        floor = fp + WORD;
        fp = next;
    }
    length
}

/// The calling thread's own stack, without the frame of the caller: its first address is where the
/// caller was called.
#[inline(always)]
pub(crate) fn walk_here(frames: &mut Frames, own: OwnThread) -> usize {
    let fp = frame_pointer();
    // Any local lies above the stack pointer.
    let mark = 0usize;
    let floor = std::hint::black_box(&raw const mark) as usize;
    // A build without frame pointers leaves anything in the register: then there is no first frame.
    match frame(own, fp, floor) {
        // One byte in front of the return address: in the call itself, as a program counter is.
        Some((next, back)) => walk(frames, own, back - 1, next, fp + WORD),
        None => {
            frames[0] = own.kind as usize;
            1
        }
    }
}

/// The next frame pointer and the return address of the frame at `fp`.
#[inline(always)]
fn frame(own: OwnThread, fp: usize, floor: usize) -> Option<(usize, usize)> {
    let is_inside = fp >= floor
        && fp
            .checked_add(2 * WORD)
            .is_some_and(|end| end <= own.stack_end);
    if !is_inside || !fp.is_multiple_of(WORD) {
        return None;
    }
    // SAFETY: `floor` is the stack pointer or lies above it, and `stack_end` is where this thread's
    // stack ends. The words between them are mapped and belong to this thread, which stands in the
    // caller. They may hold any value: it is used as a number, and checked before the next read.
    let (next, back) = unsafe {
        let frame = fp as *const usize;
        (frame.read_volatile(), frame.add(1).read_volatile())
    };
    (back >= 4096).then_some((next, back))
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn frame_pointer() -> usize {
    let fp: usize;
    // SAFETY: copies a register; touches neither memory, stack nor flags.
    unsafe {
        std::arch::asm!("mov {}, rbp", out(reg) fp, options(nomem, nostack, preserves_flags))
    };
    fp
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn frame_pointer() -> usize {
    let fp: usize;
    // SAFETY: copies a register; touches neither memory, stack nor flags.
    unsafe {
        std::arch::asm!("mov {}, x29", out(reg) fp, options(nomem, nostack, preserves_flags))
    };
    fp
}
