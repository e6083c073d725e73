//! How event loops wake the thread that commits.
//!
//! ```text
//! ring, close ─► wait: Work, Quiet (nothing for a while), Closed (one last commit)
//! ```
//!
//! Invariants
//! 1. A ring before the wait is not lost.
//!
//! Not here: the commits (`wal_thread.rs`).

use crate::measure::profile::Lock;
use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Debug, Default)]
struct Rung {
    has_work: bool,
    is_closed: bool,
}

/// How loops wake the committing thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Lock<Rung>,
    wake: Condvar,
    /// Something was committed since the last seal.
    is_unsealed: AtomicBool,
}

/// Why the thread goes on.
pub(super) enum Woken {
    /// There is something to commit.
    Work,
    /// The time has passed.
    Quiet,
    /// For the last time.
    Closed,
}

impl Bell {
    /// Asks for a commit.
    pub(crate) fn ring(&self) {
        self.rung.hold().has_work = true;
        self.wake.notify_one();
    }

    /// Notes a commit that another thread made, so that it is sealed in time.
    pub(crate) fn note_commit(&self) {
        self.is_unsealed.store(true, Ordering::Relaxed);
    }

    /// One last commit, one last seal, then the thread ends.
    pub(crate) fn close(&self) {
        self.rung.hold().is_closed = true;
        self.wake.notify_one();
    }

    /// Was something committed since this was asked last?
    pub(super) fn take_unsealed(&self) -> bool {
        self.is_unsealed.swap(false, Ordering::Relaxed)
    }

    /// Waits for a ring.
    pub(super) fn wait(&self, at_most: Duration) -> Woken {
        let rung = self.rung.hold();
        let (mut rung, _) = self
            .wake
            .wait_timeout_while(rung, at_most, |rung| !rung.has_work && !rung.is_closed)
            .expect("no holder panics");
        if std::mem::take(&mut rung.has_work) {
            Woken::Work
        } else if rung.is_closed {
            Woken::Closed
        } else {
            Woken::Quiet
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_ring_before_the_wait_is_not_lost() {
        let bell = Bell::default();
        bell.ring();
        assert!(matches!(bell.wait(LONG), Woken::Work));
        bell.ring();
        bell.close();
        assert!(matches!(bell.wait(LONG), Woken::Work));
        assert!(matches!(bell.wait(LONG), Woken::Closed));
    }
}
