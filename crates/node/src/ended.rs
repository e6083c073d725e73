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
//!    member's included. A clock that was put right counts as it was until it is read again, for
//!    `WALL_FRESH_US` at most: the margin is far longer than that.
//! 2. A member that was started, or whose clock was set, ends no value for `CLOCK_EVEN_US`.
//! 3. No coordinator whose clock is not doubted takes a value for alive that has ended here: the
//!    margin is longer than such clocks can be apart.
//!
//! Not here: the clocks (`walls.rs`), what is done with the time (crate `engine`).
//! Test: crates/node/tests/one_node/ended.rs. See: docs/promises.md, "Expiry".

use crate::limits::{CLOCK_EVEN_US, CLOCK_STEP_MS_MAX, ENDED_MARGIN_MS};
use crate::walls::{Walls, signed};
use dendra_base::Now;

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
    /// Values judged with other bounds, for worlds in which hours are too long.
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
        let of_majority = walls.filter(|seen| seen.has_others());
        let passed_ms = of_majority.map_or(now.wall_ms, |seen| seen.passed_ms(now));
        passed_ms.saturating_sub(self.margin_ms)
    }
}
