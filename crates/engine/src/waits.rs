//! Taking the engine's locks, and an observer with a clock for those waits that happen.
//!
//! ```text
//! hold ─ try_lock ─┬─ free: that is all
//!                  └─ held by another: observer(wait) ─► the observer calls wait once, and may time it
//! ```
//!
//! Invariants
//! 1. The engine reads no clock: an observer does, outside.
//! 2. A free lock costs as much as without observers; the observer is asked only when a thread
//!    waits.
//!
//! Not here: the work of an observer (`crates/server/src/measure/profile/lock.rs`); `try_commit`,
//! which never waits.
//! See: docs/decisions/0013-waits-have-an-observer.md.

use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

/// Runs a wait for a lock of the engine: calls its argument exactly once, and returns afterwards.
pub type WaitObserver = fn(&mut dyn FnMut());

static OBSERVER: OnceLock<WaitObserver> = OnceLock::new();

/// Has `observer` run every wait for a lock of any engine in this process from now on. The first
/// call counts; a later one has no effect.
pub fn observe_waits(observer: WaitObserver) {
    OBSERVER.get_or_init(|| observer);
}

/// Takes a lock whose holders never panic between changes.
#[inline]
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::WouldBlock) => wait_for(mutex),
        Err(TryLockError::Poisoned(_)) => after_a_panic(),
    }
}

#[cold]
#[inline(never)]
fn wait_for<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut guard = None;
    let mut wait = || guard = Some(mutex.lock().unwrap_or_else(|_| after_a_panic()));
    match OBSERVER.get() {
        Some(observer) => observer(&mut wait),
        None => wait(),
    }
    guard.expect("an observer calls the wait")
}

#[cold]
fn after_a_panic() -> ! {
    panic!("a thread panicked inside the engine: nothing after that can be trusted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    static WAITS: AtomicUsize = AtomicUsize::new(0);
    static MINE: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static IS_MINE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    fn count(wait: &mut dyn FnMut()) {
        // Other tests of this process may wait, too.
        if IS_MINE.get() {
            MINE.store(1, Ordering::SeqCst);
        }
        wait();
        WAITS.fetch_add(usize::from(IS_MINE.get()), Ordering::SeqCst);
    }

    #[test]
    fn the_observer_sees_the_waits_and_only_the_waits() {
        observe_waits(count);
        let mutex = Mutex::new(1);
        IS_MINE.set(true);
        *hold(&mutex) += 1;
        assert_eq!(WAITS.load(Ordering::SeqCst), 0, "a free lock is no wait");
        let (held, is_held) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = hold(&mutex);
                held.send(()).expect("the test listens");
                while MINE.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                drop(guard);
            });
            is_held.recv().expect("the thread holds the lock");
            assert_eq!(*hold(&mutex), 2);
        });
        assert_eq!(WAITS.load(Ordering::SeqCst), 1);
    }

    #[test]
    #[should_panic(expected = "a thread panicked inside the engine")]
    fn a_lock_whose_holder_panicked_is_not_taken() {
        let mutex = Mutex::new(());
        std::thread::scope(|scope| {
            let broken = scope.spawn(|| {
                let _guard = hold(&mutex);
                panic!("on purpose");
            });
            broken.join().expect_err("it panics");
        });
        drop(hold(&mutex));
    }
}
