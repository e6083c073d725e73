//! How others tell the threads of background work that there may be work.
//!
//! ```text
//! note_bytes, once a megabyte ─► wait: goes on │ close ─► wait, pause: end
//! ```
//!
//! Invariants
//! 1. A poke between two waits is not lost: a wait names the last one that it saw.
//!
//! Not here: the work (`maintenance.rs`, `scrub.rs`).

use crate::measure::profile::Lock;
use std::sync::Condvar;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How others tell the maintenance threads that there may be work.
#[derive(Debug, Default)]
pub(crate) struct Poke {
    state: Lock<PokeState>,
    wake: Condvar,
    /// Bytes handed to the log since the last poke.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct PokeState {
    pokes: u64,
    is_closed: bool,
}

/// Submitted bytes between two pokes: much less than a memtable or a log segment. So a sealed
/// memtable waits at most this long for its flush.
const POKE_BYTES: u64 = 1 << 20;

impl Poke {
    /// Counts bytes on their way into the log; wakes the threads once a megabyte.
    pub(crate) fn note_bytes(&self, bytes: u64) {
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes >= POKE_BYTES {
            self.bytes.store(0, Ordering::Relaxed);
            self.state.hold().pokes += 1;
            self.wake.notify_all();
        }
    }

    /// Ends the threads after their current slice.
    pub(crate) fn close(&self) {
        self.state.hold().is_closed = true;
        self.wake.notify_all();
    }

    /// Waits until a poke newer than `seen`, at most `at_most`; false when closed.
    pub(super) fn wait(&self, seen: &mut u64, at_most: Duration) -> bool {
        let state = self.state.hold();
        let (state, _) = self
            .wake
            .wait_timeout_while(state, at_most, |state| {
                state.pokes == *seen && !state.is_closed
            })
            .expect("no holder panics");
        *seen = state.pokes;
        !state.is_closed
    }

    /// Sleeps for `pause` unless closed; false when closed.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let state = self.state.hold();
        let (state, _) = self
            .wake
            .wait_timeout_while(state, pause, |state| !state.is_closed)
            .expect("no holder panics");
        !state.is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_megabyte_of_writes_is_a_poke_and_less_is_none() {
        let poke = Poke::default();
        let mut seen = 0;
        poke.note_bytes(POKE_BYTES - 1);
        assert!(poke.wait(&mut seen, Duration::ZERO));
        assert_eq!(seen, 0);
        poke.note_bytes(1);
        assert!(poke.wait(&mut seen, Duration::from_secs(60)));
        assert_eq!(seen, 1);
        poke.close();
        assert!(!poke.wait(&mut seen, Duration::from_secs(60)));
    }
}
