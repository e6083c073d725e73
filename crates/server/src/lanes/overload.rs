//! How pressed all event loops of a node are, together.
//!
//! ```text
//! Line of a loop ─► Crowding ─► count: loops near their target, loops beyond it ─► scans rest, status
//!                            └► say: one line of the log a minute
//! ```
//!
//! Invariants
//! 1. Said once when it begins and then at most once a minute, for all loops together.
//!
//! Not here: how the delay of one loop is measured (`event_loop/delay.rs`).
//! See: docs/overload.md, "When the processor is what runs out".

use dendra_node::standing::Crowding;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A minute between two lines of the log.
const SAID_US: u64 = 60_000_000;

/// The state of overload that all loops share.
#[derive(Debug, Default)]
pub(crate) struct Overload {
    /// Loops that are near their target, or beyond it.
    near: AtomicUsize,
    /// Loops that are beyond it.
    beyond: AtomicUsize,
    said_us: AtomicU64,
}

impl Overload {
    /// Crowding of the loop that is pressed most.
    pub(crate) fn crowding(&self) -> Crowding {
        if self.beyond.load(Ordering::Relaxed) > 0 {
            Crowding::Beyond
        } else if self.near.load(Ordering::Relaxed) > 0 {
            Crowding::Near
        } else {
            Crowding::None
        }
    }

    /// One loop's changed.
    pub(crate) fn count(&self, before: Crowding, now: Crowding) {
        for (least, loops) in [
            (Crowding::Near, &self.near),
            (Crowding::Beyond, &self.beyond),
        ] {
            match (before >= least, now >= least) {
                (false, true) => _ = loops.fetch_add(1, Ordering::Relaxed),
                (true, false) => _ = loops.fetch_sub(1, Ordering::Relaxed),
                _ => {}
            }
        }
    }

    pub(crate) fn say(&self, now_us: u64, delay_us: u64) {
        if self.is_to_be_said(now_us) {
            tracing::warn!(
                standing_delay_us = delay_us,
                "more requests arrive than the processor serves in time: the newest are served first, some are refused with 503"
            );
        }
    }

    /// Once a minute, of all loops together.
    fn is_to_be_said(&self, now_us: u64) -> bool {
        let said_us = self.said_us.load(Ordering::Relaxed);
        if said_us != 0 && now_us.saturating_sub(said_us) < SAID_US {
            return false;
        }
        let now_us = now_us.max(1);
        let order = Ordering::Relaxed;
        let claim = self.said_us.compare_exchange(said_us, now_us, order, order);
        claim.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_that_is_pressed_most_counts_until_it_is_calm() {
        use Crowding::{Beyond, Near, None};
        let overload = Overload::default();
        for (before, now, of_all) in [
            (None, Near, Near),
            (None, Beyond, Beyond),
            (Beyond, Beyond, Beyond),
            (Beyond, Near, Near),
            (Near, None, Near),
            (Near, None, None),
        ] {
            overload.count(before, now);
            assert_eq!(overload.crowding(), of_all, "{before:?} to {now:?}");
        }
    }

    #[test]
    fn a_line_is_said_once_a_minute_by_all_loops_together() {
        let overload = Overload::default();
        let said = (0..1_000).filter(|loops| overload.is_to_be_said(loops / 4));
        assert_eq!(said.count(), 1);
        assert!(!overload.is_to_be_said(SAID_US));
        // Ten minutes of two loops that look ten times a second.
        let looks = (SAID_US + 1..11 * SAID_US).step_by(100_000);
        let said = looks.flat_map(|at| [at, at]);
        let said = said.filter(|at| overload.is_to_be_said(*at)).count();
        assert_eq!(said, 10);
    }
}
