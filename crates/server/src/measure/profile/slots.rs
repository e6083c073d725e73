//! Where signal handlers and hooks leave their samples: preallocated, without locks, many writers,
//! one reader.
//!
//! ```text
//! FREE ──claim (writer)──► WRITING ──publish (writer)──► READY ──drain (reader)──► FREE
//! ```
//!
//! Invariants
//! 1. A slot has one owner in each state; only the owner moves it on.
//! 2. `leave` makes a bounded number of steps in any case: it tries a few slots, then counts the
//!    sample as lost.
//!
//! Not here: the callers (`sampler.rs`).

use super::frames::{FRAMES_MAX, KeptStack};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Slots: at 97 samples a second and thread, emptied every 50 ms, room for 200 threads. Hooks are
/// emptied every 10 ms: room for 50 GiB allocated a second, or for ten threads that only wait for
/// locks.
const SLOTS: usize = 1024;
/// Slots that a writer tries before it gives up.
const TRIES: usize = 8;

const FREE: u32 = 0;
const WRITING: u32 = 1;
const READY: u32 = 2;

struct Slot {
    state: AtomicU32,
    amount: AtomicU64,
    stack: KeptStack,
}

/// The slots of one capture.
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    next: AtomicUsize,
    lost: AtomicU64,
}

impl Slots {
    /// All free: about 800 KiB.
    pub(crate) fn new() -> Slots {
        let slot = |_| Slot {
            state: AtomicU32::new(FREE),
            amount: AtomicU64::new(0),
            stack: KeptStack::default(),
        };
        Slots {
            slots: (0..SLOTS).map(slot).collect(),
            next: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Leaves a sample. Async-signal-safe: atomics on memory that exists.
    pub(crate) fn leave(&self, frames: &[usize], amount: u64) {
        for _ in 0..TRIES {
            let slot = &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % SLOTS];
            let claimed =
                slot.state
                    .compare_exchange(FREE, WRITING, Ordering::Acquire, Ordering::Relaxed);
            if claimed.is_err() {
                continue;
            }
            slot.stack.keep(frames);
            slot.amount.store(amount, Ordering::Relaxed);
            slot.state.store(READY, Ordering::Release);
            return;
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Hands out and frees all samples that are ready.
    pub(crate) fn drain(&self, mut take: impl FnMut(&[usize], u64)) {
        let mut frames = [0; FRAMES_MAX];
        for slot in &self.slots {
            if slot.state.load(Ordering::Acquire) != READY {
                continue;
            }
            let length = slot.stack.copy_to(&mut frames);
            let amount = slot.amount.load(Ordering::Relaxed);
            slot.state.store(FREE, Ordering::Release);
            take(&frames[..length], amount);
        }
    }

    /// Samples that found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_out_as_they_went_in_and_full_slots_are_counted() {
        let slots = Slots::new();
        for n in 0..SLOTS {
            slots.leave(&[n, n + 1], 1);
        }
        slots.leave(&[7], 1);
        assert_eq!(slots.lost(), 1);
        let mut seen = Vec::new();
        slots.drain(|frames, _| seen.push(frames.to_vec()));
        seen.sort_unstable();
        assert_eq!(seen.len(), SLOTS);
        assert!(
            seen.iter()
                .enumerate()
                .all(|(n, frames)| *frames == [n, n + 1])
        );
        slots.leave(&[7; FRAMES_MAX + 5], 42);
        slots.drain(|frames, amount| assert_eq!((frames.len(), amount), (FRAMES_MAX, 42)));
        assert_eq!(slots.lost(), 1);
    }

    #[test]
    fn writers_and_a_reader_at_once_lose_nothing_uncounted() {
        let slots = Slots::new();
        let (writers, each) = (4, 20_000);
        let mut seen = 0u64;
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..writers)
                .map(|writer| {
                    let slots = &slots;
                    scope.spawn(move || {
                        for n in 0..each {
                            slots.leave(&[writer, n, writer ^ n], 1);
                        }
                    })
                })
                .collect();
            while running.iter().any(|thread| !thread.is_finished()) {
                slots.drain(|frames, _| {
                    assert_eq!(frames[0] ^ frames[1], frames[2], "a torn sample");
                    seen += 1;
                });
            }
        });
        slots.drain(|_, _| seen += 1);
        assert_eq!(seen + slots.lost(), (writers * each) as u64);
    }
}
