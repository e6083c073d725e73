//! A lock that shows which threads wait for it, and since when.
//!
//! ```text
//! hold ─ try_lock ─┬─ free: that is all
//!                  └─ held by another ─ own stack, clock ─► waiting.rs ─ lock ─ capture? clock ─► stride ─► waited ns
//! a capture        begins: claims the waits so far, and drops them ─ ends: claims those not counted yet
//! ```
//!
//! Invariants
//! 1. A free lock costs as much as a plain one. A wait reads the clock and walks the stack before
//!    it sleeps.
//! 2. A thread that waits for a `Condvar` waits for work, not for a lock: it is in the `wall`
//!    profile.
//! 3. A capture counts the part of each wait that lies within it, and no moment twice. A wait may
//!    have begun before it, and may go on after it, or for ever.
//!
//! Not here: locks of the engine, which have `watched` as their observer (crate `engine`,
//! `waits.rs`); locks of the runtime and of other libraries. See: docs/lab/profiles.md.

use super::frames::FRAMES_MAX;
use super::measure::Measure;
use super::roster;
use super::sampler;
use super::stack;
use super::stride::Stride;
use crate::clock;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A sample for so many nanoseconds that a thread waited, on average: waits of a millisecond are
/// all seen.
pub(crate) const NS_PER_SAMPLE: u64 = 100_000;

thread_local! {
    static STRIDE: Stride = const { Stride::new() };
}

/// A mutex with holders that never panic.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock(Mutex::new(value))
    }

    /// Takes the lock.
    #[inline]
    pub(crate) fn hold(&self) -> MutexGuard<'_, T> {
        match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::WouldBlock) => self.wait(),
            Err(TryLockError::Poisoned(_)) => after_a_panic(),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> MutexGuard<'_, T> {
        let mut guard = None;
        watched(&mut || guard = Some(self.0.lock().unwrap_or_else(|_| after_a_panic())));
        guard.expect("the wait is over")
    }
}

#[cold]
fn after_a_panic() -> ! {
    panic!("no holder of this lock panics")
}

/// Runs a wait for a lock. Other threads can see it, and since when; it is counted when it ends in
/// a capture.
#[inline(never)]
pub(crate) fn watched(wait: &mut dyn FnMut()) {
    let Some(waiting) = roster::own_waiting() else {
        return wait();
    };
    let mut frames = [0; FRAMES_MAX];
    let length = stack::walk_here(&mut frames, roster::own());
    waiting.begin(clock::monotonic_ns(), &frames[..length]);
    wait();
    if sampler::is_on(Measure::Lock) {
        let ended_ns = clock::monotonic_ns();
        // While the capture waits for us: the part that it has not claimed until here is ours to
        // count.
        sampler::in_capture(Measure::Lock, |slots| {
            let ns = ended_ns.saturating_sub(waiting.end());
            if is_sample(ns) {
                slots.leave(&frames[..length], ns);
            }
        });
    }
    waiting.end();
}

/// A capture begins: waits before it are not its own.
pub(crate) fn forget_waits() {
    roster::claim_waits(clock::monotonic_ns(), |_, _| {});
}

/// A capture ends: takes samples of the waits that go on.
pub(crate) fn take_waits(mut take: impl FnMut(&[usize], u64)) {
    roster::claim_waits(clock::monotonic_ns(), |frames, ns| {
        if is_sample(ns) {
            take(frames, ns);
        }
    });
}

fn is_sample(ns: u64) -> bool {
    STRIDE.with(|stride| stride.passes(ns, NS_PER_SAMPLE))
}
