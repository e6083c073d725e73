//! Up to when values have ended for everybody, so that a store may take their bytes.
//!
//! ```text
//! own clock runs evenly for an hour ─► passed: the time that a majority of the members' clocks have passed,
//!                                              of a node by itself the own one
//! passed less an hour               ─► values that ended until then have ended
//! a step of the own clock, too few fresh clocks ─► none has
//! ```
//!
//! A reader judges the end of a value by its own clock, for one answer. What a store takes is gone
//! for good. So no store goes by one clock that may have been set wrong: before its first
//! synchronisation, by a hand, or by years.
//!
//! Invariants
//! 1. While most members' clocks are right, no wrong clock among them ends a value, its own
//!    member's included.
//! 2. A member that was started, or whose clock was set, ends no value for `CLOCK_EVEN_US`.
//! 3. No coordinator whose clock is not doubted takes a value for alive that has ended here: the
//!    margin is longer than such clocks can be apart.
//!
//! Not here: the clocks (`walls.rs`), what is done with the time (crate `engine`).
//! See: docs/promises.md, "Expiry".

use crate::limits::{CLOCK_EVEN_US, CLOCK_STEP_MS_MAX, ENDED_MARGIN_MS};
use crate::step::Now;
use crate::walls::{Walls, signed};

/// See the module.
#[derive(Debug)]
pub struct EndedValues {
    margin_ms: u64,
    even_us: u64,
    /// The wall clock less the monotonic one, in milliseconds, at the last look.
    zero_ms: Option<i64>,
    /// Since when the two have gone side by side, on the monotonic clock.
    since_us: u64,
}

impl Default for EndedValues {
    fn default() -> EndedValues {
        EndedValues::with(ENDED_MARGIN_MS, CLOCK_EVEN_US)
    }
}

impl EndedValues {
    /// The same with other bounds, for worlds in which hours are too long.
    pub fn with(margin_ms: u64, even_us: u64) -> EndedValues {
        EndedValues {
            margin_ms,
            even_us,
            zero_ms: None,
            since_us: 0,
        }
    }

    /// Values that end at this wall time or before have ended for everybody; 0 = none has. `walls`
    /// are the members' clocks, if this node has other members. Asked about once a second.
    pub fn until_ms(&mut self, now: Now, walls: Option<&Walls>) -> u64 {
        let zero_ms = signed(now.wall_ms) - signed(now.mono_us / 1_000);
        let is_even = |before: i64| before.abs_diff(zero_ms) <= CLOCK_STEP_MS_MAX;
        if !self.zero_ms.replace(zero_ms).is_some_and(is_even) {
            self.since_us = now.mono_us;
        }
        if now.mono_us - self.since_us < self.even_us {
            return 0;
        }
        let of_majority = walls.filter(|walls| walls.has_others());
        let passed_ms = of_majority.map_or(now.wall_ms, |walls| walls.passed_ms(now));
        passed_ms.saturating_sub(self.margin_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::MemberIndex;

    const T: u64 = 1_767_225_600_000;
    const HOUR_MS: u64 = 3_600_000;

    fn at(mono_ms: u64, wall_ms: u64) -> Now {
        Now {
            mono_us: mono_ms * 1_000,
            wall_ms,
            wall_part_us: 0,
        }
    }

    #[test]
    fn a_node_by_itself_waits_until_its_clock_has_run_evenly_for_an_hour() {
        let mut ended = EndedValues::default();
        let mut look = |mono_ms, wall_ms| ended.until_ms(at(mono_ms, wall_ms), None);
        assert_eq!(look(7, T + 2 * HOUR_MS), 0, "a clock of before it was set");
        assert_eq!(look(3_007, T), 0, "it is set right");
        assert_eq!(look(3_006 + HOUR_MS, T + HOUR_MS - 1), 0, "not yet");
        // A little faster than the monotonic clock, as one that is being adjusted.
        let mono_ms = 3_007 + HOUR_MS;
        assert_eq!(look(mono_ms, T + HOUR_MS + 900), T + 900);
        assert_eq!(look(mono_ms + 500, T + 9 * HOUR_MS), 0, "it jumps");
        assert_eq!(look(mono_ms + 1_000, T + HOUR_MS + 1_000), 0, "and back");
        assert_eq!(look(mono_ms + HOUR_MS, T + 2 * HOUR_MS), 0, "not yet again");
        let later_ms = mono_ms + 1_000 + HOUR_MS;
        assert_eq!(look(later_ms, T + 2 * HOUR_MS), T + HOUR_MS);
    }

    #[test]
    fn a_member_goes_by_the_majority_and_not_by_its_own_clock() {
        let years_ms = 10 * 365 * 24 * HOUR_MS;
        for (ahead_ms, passed) in [(0, 20), (years_ms, 20), (2 * HOUR_MS, 20)] {
            let mut ended = EndedValues::default();
            let walls = Walls::new(MemberIndex(0), 3);
            let start = at(0, T + ahead_ms);
            assert_eq!(ended.until_ms(start, Some(&walls)), 0);
            let now = at(HOUR_MS, T + ahead_ms + HOUR_MS);
            assert_eq!(ended.until_ms(now, Some(&walls)), 0, "no other clock");
            walls.note(MemberIndex(1), T + HOUR_MS - 20, now);
            walls.note(MemberIndex(2), T + HOUR_MS + 20, now);
            let until_ms = ended.until_ms(now, Some(&walls));
            let own = if ahead_ms == 0 { 0 } else { passed };
            assert_eq!(until_ms, T + own, "{ahead_ms}");
        }
    }
}
