//! A lock that takes the clock when it has to wait, and somebody looks.
//!
//! ```text
//! hold ─ try_lock ─┬─ free: that is all
//!                  └─ held by another ─ capture? ─┬─ no:  lock
//!                                                 └─ yes: clock ─ lock ─ clock ─► stride ─► own stack, waited ns
//! ```
//!
//! Invariants
//! 1. A free lock costs what a plain one does; a wait costs one load more while nobody looks.
//! 2. What waits for a `Condvar` waits for work, not for a lock: it is in the `wall` profile.
//! 3. A wait is counted when it ends, if the profile began before it: one that still goes on is in the `wall` profile.
//!
//! Not here: locks of the engine, which have `watched` as their observer (crate `engine`, `waits.rs`);
//! locks of the runtime and of other libraries.
//! See: docs/lab/profiles.md.

use super::Measure;
use super::sampler;
use super::stride::Stride;
use crate::clock;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A sample for so many nanoseconds that a thread waited, on average: waits of a millisecond are all seen.
pub(crate) const NS_PER_SAMPLE: u64 = 100_000;

thread_local! {
    static STRIDE: Stride = const { Stride::new() };
}

/// A mutex whose holders never panic.
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

/// Runs a wait for a lock; notes how long it took and who waited, when a capture runs.
pub(crate) fn watched(wait: &mut dyn FnMut()) {
    if !sampler::is_on(Measure::Lock) {
        return wait();
    }
    let began_ns = clock::monotonic_ns();
    wait();
    let took_ns = clock::monotonic_ns().saturating_sub(began_ns);
    if STRIDE.with(|stride| stride.passes(took_ns, NS_PER_SAMPLE)) {
        sampler::leave_here(Measure::Lock, took_ns);
    }
}
