//! How much of a preload is written again, and after which pause: values without a clock.
//!
//! ```text
//! refused in a pass ─► take ─► how many of them are written again, and a pause that doubles
//!                          ╲─► none: the budget is spent
//! ```
//!
//! Each further try is more work for a store that has too much of it.
//!
//! Invariants
//! 1. For `n` records at most `1.5 n + AGAIN_BURST` writes are sent, however long the store
//!    refuses.
//!
//! Not here: sending (`mod.rs`). A measured request is sent once.
//! See: docs/cli.md, "Trying again".

use dendra_base::Prng;
use std::time::Duration;

/// Writes beside the half of the records.
pub(super) const AGAIN_BURST: u64 = 64;

/// The bound of the first pause; it doubles with each pass up to the second one.
const PAUSE_FIRST: Duration = Duration::from_millis(300);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Again {
    left: u64,
    passes: u32,
    chance: Prng,
}

impl Again {
    /// For a preload of so many records.
    pub(super) fn of(records: u64, seed: u64) -> Again {
        Again {
            left: records / 2 + AGAIN_BURST,
            passes: 0,
            chance: Prng::named(seed, "pauses of a preload"),
        }
    }

    /// How many of the refused records are written again, and the pause in front of it; `None` when
    /// none is.
    pub(super) fn take(&mut self, refused: u64) -> Option<(u64, Duration)> {
        let taken = refused.min(self.left);
        if taken == 0 {
            return None;
        }
        self.left -= taken;
        let doubled = PAUSE_FIRST.saturating_mul(1 << self.passes.min(16));
        self.passes += 1;
        // Half of it at least: the store shall come to itself.
        let chance = 0.5 + self.chance.unit() / 2.0;
        Some((taken, doubled.min(PAUSE_MAX).mul_f64(chance)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_refuses_all_gets_half_of_the_records_again_and_a_burst() {
        let mut again = Again::of(1_000, 1);
        assert_eq!(again.take(1_000).map(|(count, _)| count), Some(564));
        assert!(again.take(564).is_none());
        assert!(Again::of(10, 1).take(0).is_none());
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_differ() {
        let pauses = |seed| {
            let mut again = Again::of(100, seed);
            let next = move |_| again.take(1).map(|(_, pause)| pause.as_millis());
            (0..8).filter_map(next).collect::<Vec<_>>()
        };
        let bounds = [300, 600, 1200, 2400, 4800, 5000, 5000, 5000];
        for (pause, bound) in pauses(1).iter().zip(bounds) {
            assert!((bound / 2..=bound).contains(pause), "{pause} of {bound}");
        }
        assert_ne!(pauses(1), pauses(2));
    }
}
