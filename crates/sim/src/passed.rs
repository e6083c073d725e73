//! The time that the clocks of a majority have passed, as any member may take it to be.
//!
//! ```text
//! all clocks at a moment ─► lead over the world's time ─► highest lead of `READING_US_MAX` ─► that of a majority
//!                                                                                             ─► highest of the run
//! ```
//!
//! Invariants
//! 1. A member judges others' clocks by readings that are as old as `READING_US_MAX`, and lets
//!    them go on with its own monotonic clock. So a clock counts as its highest one of that time.
//! 2. It is told of all clocks before one of them is set.
//!
//! Not here: what may be gone by then (`check/versions.rs`).
//! See: docs/promises.md, "Expiry".

use dendra_node::limits::{WALL_EXCHANGE_US, WALL_FRESH_US};
use std::collections::VecDeque;

/// How old a reading is at most: its way to the member, and the time that it counts there.
const READING_US_MAX: u64 = WALL_EXCHANGE_US + WALL_FRESH_US;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PassedTime {
    /// For each member, when its clock had which lead over the world's time, in milliseconds:
    /// falling leads.
    leads: Vec<VecDeque<(u64, i64)>>,
    most_ms: u64,
}

impl PassedTime {
    /// The highest time so far.
    pub(crate) fn most_ms(&self) -> u64 {
        self.most_ms
    }

    /// The members' clocks show `walls_ms` at `now_us` of the world. A time has passed when one of
    /// them and `others` more have passed it.
    pub(crate) fn note(&mut self, now_us: u64, walls_ms: &[u64], others: usize) {
        let now_ms = (now_us / 1_000) as i64;
        self.leads.resize_with(walls_ms.len(), VecDeque::new);
        let noted = self.leads.iter_mut().zip(walls_ms);
        let highest = noted.map(|(leads, wall_ms)| {
            let lead_ms = *wall_ms as i64 - now_ms;
            while leads
                .pop_back_if(|(_, before_ms)| *before_ms <= lead_ms)
                .is_some()
            {}
            leads.push_back((now_us, lead_ms));
            while leads
                .pop_front_if(|(at_us, _)| *at_us + READING_US_MAX < now_us)
                .is_some()
            {}
            leads.front().map_or(lead_ms, |(_, lead_ms)| *lead_ms)
        });
        let mut highest: Vec<i64> = highest.collect();
        highest.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(lead_ms) = highest.get(others) {
            self.most_ms = self.most_ms.max((now_ms + lead_ms).max(0) as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_000_000;

    #[test]
    fn a_clock_that_was_put_right_counts_as_long_as_its_readings_do() {
        let mut passed = PassedTime::default();
        let mut at = |now_us: u64, walls_ms: [u64; 3]| {
            passed.note(
                now_us,
                &walls_ms.map(|wall_ms| T + now_us / 1_000 + wall_ms),
                1,
            );
            passed.most_ms() - T - now_us / 1_000
        };
        // The third one is ahead by hours, the second one by a second.
        assert_eq!(at(1_000, [0, 1_000, 7_200_000]), 1_000);
        assert_eq!(at(2_000, [0, 1_000, 0]), 1_000, "readings of a moment ago");
        assert_eq!(at(READING_US_MAX + 1_000, [0, 1_000, 0]), 1_000);
        let passed_ms = at(READING_US_MAX + 601_000, [0, 1_000, 0]);
        assert_eq!(passed_ms, 400, "what has passed stays so");
        assert_eq!(at(2 * READING_US_MAX, [0, 1_000, 0]), 0, "none is left");
    }

    #[test]
    fn one_wrong_clock_is_no_majority() {
        let mut passed = PassedTime::default();
        passed.note(1_000, &[T, T + 20, T + 7_200_000], 1);
        assert_eq!(passed.most_ms(), T + 20);
        passed.note(2_000, &[T - 500, T, T], 1);
        assert_eq!(passed.most_ms(), T + 21, "the readings go on");
    }
}
