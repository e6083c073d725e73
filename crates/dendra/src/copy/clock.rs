//! The clock by which a copy counts times to live: that of TO, as TO's own answers tell it.
//!
//! ```text
//! PUT ttl=T ─► 201 ─► HEAD ─► Dendra-Expires: E      TO's clock was E - T at the answer
//! ```
//!
//! The clock of the machine of the copy may be wrong. It stands in for TO's until TO has told, and
//! where TO tells no ends.
//!
//! Invariants
//! 1. Time goes on by the monotonic clock: a machine that is set right meanwhile changes nothing.
//! 2. TO's clock is told late, never early: no record ends before its time.
//!
//! Not here: which record is written (`settle.rs`).
//! See: docs/moving.md.

use super::store::now_ms;
use std::cell::Cell;
use tokio::time::Instant;

/// The first record with an end lives at least so long, until TO has told its clock.
const PROVISIONAL_S: u64 = 3_600;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct StoreClock {
    /// TO's clock at a moment.
    told: Cell<Option<(Instant, u64)>>,
    /// This machine's clock ended a record that the stores still have.
    is_own_wrong: Cell<bool>,
}

impl StoreClock {
    /// TO's clock now, in Unix milliseconds; `None` until TO has told.
    pub(super) fn told_ms(&self) -> Option<u64> {
        let (at, ms) = self.told.get()?;
        let since_ms = u64::try_from(at.elapsed().as_millis()).ok()?;
        Some(ms + since_ms)
    }

    /// TO answered at this moment to a write that lives `ttl_s` and ends at `expires_ms`.
    pub(super) fn tell(&self, at: Instant, ttl_s: u64, expires_ms: u64) {
        self.told
            .set(Some((at, expires_ms.saturating_sub(ttl_s * 1_000))));
    }

    /// TO tells no ends: this machine's clock stays.
    pub(super) fn tell_own(&self) {
        self.told.set(Some((Instant::now(), now_ms())));
    }

    /// This machine's clock was found to be ahead.
    pub(super) fn own_is_wrong(&self) {
        self.is_own_wrong.set(true);
    }

    /// TO's clock or this machine's, whichever is known to be better; `None` = neither is good.
    pub(super) fn now_ms(&self) -> Option<u64> {
        let own = (!self.is_own_wrong.get()).then(now_ms);
        self.told_ms().or(own)
    }

    /// Whole seconds that a record lives at TO to end at `expires_ms`, rounded up: it ends no
    /// earlier than at FROM, which has it now.
    pub(super) fn ttl_s(&self, expires_ms: u64) -> u64 {
        let until = |now_ms| expires_ms.saturating_sub(now_ms).div_ceil(1_000).max(1);
        match self.told_ms() {
            Some(told_ms) => until(told_ms),
            None => until(now_ms()).max(PROVISIONAL_S),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_is_rounded_up_and_never_nothing_by_the_clock_of_the_store() {
        let clock = StoreClock::default();
        let ends_ms = now_ms() - 7_200_000;
        assert_eq!(clock.ttl_s(ends_ms), PROVISIONAL_S, "it may live still");
        // TO's clock is four hours behind this machine's.
        let there_ms = now_ms() - 4 * 3_600_000;
        clock.tell(
            Instant::now(),
            PROVISIONAL_S,
            there_ms + PROVISIONAL_S * 1_000,
        );
        let left_s = clock.ttl_s(ends_ms);
        assert!((7_190..=7_201).contains(&left_s), "{left_s}");
        assert_eq!(clock.ttl_s(there_ms), 1);
        assert_eq!(clock.ttl_s(0), 1);
    }
}
