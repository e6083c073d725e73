//! Stacks as they are kept: the kind of thread, then addresses from the innermost function
//! outwards.
//!
//! Not here: how a stack is walked (`stack.rs`), the room of a capture (`slots.rs`).

use std::sync::atomic::{AtomicUsize, Ordering};

/// Frames of a sample, the kind of thread in front included. Deeper stacks keep their inner end.
pub(crate) const FRAMES_MAX: usize = 96;

/// A stack as `slots.rs` keeps it: kind of thread, program counter, return addresses outwards.
pub(crate) type Frames = [usize; FRAMES_MAX];

/// A stack where other threads can read it. Callers that write or read it while others do have to
/// order these accesses themselves.
#[derive(Debug)]
pub(crate) struct KeptStack {
    length: AtomicUsize,
    frames: [AtomicUsize; FRAMES_MAX],
}

impl Default for KeptStack {
    fn default() -> KeptStack {
        KeptStack {
            length: AtomicUsize::new(0),
            frames: [const { AtomicUsize::new(0) }; FRAMES_MAX],
        }
    }
}

impl KeptStack {
    /// Keeps `frames` in place of the earlier ones, or as many as there is room for.
    pub(crate) fn keep(&self, frames: &[usize]) {
        let length = frames.len().min(FRAMES_MAX);
        for (place, frame) in self.frames.iter().zip(&frames[..length]) {
            place.store(*frame, Ordering::Relaxed);
        }
        self.length.store(length, Ordering::Relaxed);
    }

    /// Copies the frames, and returns their number.
    pub(crate) fn copy_to(&self, frames: &mut Frames) -> usize {
        let length = self.length.load(Ordering::Relaxed);
        for (frame, place) in frames[..length].iter_mut().zip(&self.frames) {
            *frame = place.load(Ordering::Relaxed);
        }
        length
    }
}
