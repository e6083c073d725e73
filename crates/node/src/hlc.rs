//! The hybrid logical clock: values for versions that never go back, even if the wall clock does.
//!
//! ```text
//! value    | wall ms 48 | wall us 10, counter 6 |     tick(now) = max(previous + 1, now), CLOCK_MIN at least
//!
//!            wall          last handed out        ceiling asked for
//!  ──────────┼──────────────────┼───────────────────────┼──────────►
//!            └── may jump back ─┘                       └ in the next log write; a restart begins here
//! ```
//!
//! Invariants
//! 1. `tick` returns each value once. It is larger than every value that was returned or observed
//!    before.
//! 2. A restart begins above every value that may have been used. Its floor is the largest durable
//!    ceiling, or the largest version found if that is larger.
//! 3. A value above the durable ceiling (`is_covered` says no) leaves the node only in, or after,
//!    the log write that raises it.
//! 4. Every value below `CLOCK_END` is followed, however far it is from the wall clock: order is a
//!    matter of counting alone. Which wall clocks are right is judged in `walls.rs`, and never by
//!    these values.
//! 5. Crashes lead away from the wall clock by at most `CEILING_COUNT_MS` for each crash, and one
//!    step.
//! 6. No value is below `CLOCK_MIN`: smaller ones name records that were built on no record
//!    (`coordinator/proposer.rs`). A wall clock that shows an earlier time is wrong.
//! 7. No wall clock lifts a value to `CLOCK_END`: between the latest wall time and that end there
//!    is room for 2^61 values.
//!
//! Not here: the wall clock (an argument), the log that keeps the ceiling (crate `engine`,
//! `raise_hlc_ceiling`, `hlc_floor`), origins of versions (crate `base`).
//! See: Kulkarni et al., "Logical Physical Clocks", 2014.

use crate::limits::{CEILING_COUNT_MS, CEILING_LEFT_MS_MIN, CEILING_STEP_MS};
pub use dendra_base::clock::{CLOCK_END, CLOCK_MIN, date_ms};
use dendra_base::clock::{COUNTER_BITS, WALL_MS_MAX, WALL_MS_MIN};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits below the microseconds.
const PART_SHIFT: u32 = 6;

/// The first value of a wall millisecond.
fn first_of(wall_ms: u64) -> u64 {
    wall_ms.clamp(WALL_MS_MIN, WALL_MS_MAX) << COUNTER_BITS
}

/// How far a clock value is ahead of the wall clock, in milliseconds.
pub fn ahead_ms(hlc: u64, now_ms: u64) -> u64 {
    (hlc >> COUNTER_BITS).saturating_sub(now_ms.max(WALL_MS_MIN))
}

/// A clock shared by all loops of a node.
///
/// The orderings are relaxed: each word is on its own, and read-modify-writes of one word are
/// ordered in any case.
#[derive(Debug)]
pub struct Hlc {
    /// The largest value handed out or observed.
    last: AtomicU64,
    /// The largest ceiling that the log was asked to persist.
    asked: AtomicU64,
    /// The largest ceiling that is durable.
    ceiling: AtomicU64,
}

/// A value that no clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Implausible {
    /// The value.
    pub hlc: u64,
}

impl fmt::Display for Implausible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:x} is no clock's value: every clock stays below {CLOCK_END:x}, and its sender is broken",
            self.hlc
        )
    }
}

impl std::error::Error for Implausible {}

impl Hlc {
    /// A clock that goes on after a restart. `floor` is the largest value that may have been used
    /// before: the durable ceiling, or the largest version found.
    pub fn new(floor: u64, now_ms: u64) -> Hlc {
        Hlc {
            last: AtomicU64::new(floor.max(first_of(now_ms))),
            asked: AtomicU64::new(floor),
            ceiling: AtomicU64::new(floor),
        }
    }

    /// Clock after a clean stop. `last` is the clock's last value, if it is known. Values above it,
    /// up to `floor`, were covered and not used.
    pub fn resume(last: Option<u64>, floor: u64, now_ms: u64) -> Hlc {
        let last = last.unwrap_or(floor).min(floor);
        Hlc {
            last: AtomicU64::new(last.max(first_of(now_ms))),
            ..Hlc::new(floor, now_ms)
        }
    }

    /// The next value.
    pub fn tick(&self, now_ms: u64) -> u64 {
        self.tick_at(now_ms, 0)
    }

    /// The next value, at `part_us` microseconds after the beginning of a wall millisecond.
    pub fn tick_at(&self, now_ms: u64, part_us: u16) -> u64 {
        let wall = first_of(now_ms) + (u64::from(part_us.min(999)) << PART_SHIFT);
        let mut previous = self.last.load(Ordering::Relaxed);
        loop {
            let next = previous
                .checked_add(1)
                .expect("`observe` refuses values behind the end of all clocks")
                .max(wall);
            match self.last.compare_exchange_weak(
                previous,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return next,
                Err(newer) => previous = newer,
            }
        }
    }

    /// Takes note of a value of another clock: later ticks are larger.
    pub fn observe(&self, hlc: u64) -> Result<(), Implausible> {
        if hlc >= CLOCK_END {
            return Err(Implausible { hlc });
        }
        self.last.fetch_max(hlc, Ordering::Relaxed);
        Ok(())
    }

    /// The largest value so far.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// The ceiling to persist now, when less than half a step is left below the last one asked
    /// for. Only one caller gets it. That caller makes it durable with the next log write, and then
    /// calls [`Hlc::cover`].
    pub fn needs_ceiling(&self, now_ms: u64) -> Option<u64> {
        let above = |of_wall_ms: u64, of_count_ms: u64| {
            let of_wall = first_of(now_ms) + (of_wall_ms << COUNTER_BITS);
            of_wall.max(self.last().saturating_add(of_count_ms << COUNTER_BITS))
        };
        let asked = self.asked.load(Ordering::Relaxed);
        if asked >= above(CEILING_LEFT_MS_MIN, CEILING_COUNT_MS / 2) {
            return None;
        }
        let next = above(CEILING_STEP_MS, CEILING_COUNT_MS);
        self.asked
            .compare_exchange(asked, next, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
            .then_some(next)
    }

    /// `ceiling` is durable.
    pub fn cover(&self, ceiling: u64) {
        self.ceiling.fetch_max(ceiling, Ordering::Relaxed);
    }

    /// The largest ceiling that is durable.
    pub fn kept(&self) -> u64 {
        self.ceiling.load(Ordering::Relaxed)
    }

    /// May `hlc` leave the node by itself? If not, it leaves with the write that raises the
    /// ceiling.
    pub fn is_covered(&self, hlc: u64) -> bool {
        hlc <= self.ceiling.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1 << COUNTER_BITS;
    /// Tests count milliseconds from the first one that a clock shows.
    const E: u64 = WALL_MS_MIN;

    #[test]
    fn the_clock_follows_the_wall_and_counts_within_a_millisecond() {
        let hlc = Hlc::new(0, E + 1_000);
        assert_eq!(hlc.tick(E + 1_001), (E + 1_001) * MS);
        assert_eq!(hlc.tick(E + 1_001), (E + 1_001) * MS + 1);
        assert_eq!(hlc.tick(E + 1_001), (E + 1_001) * MS + 2);
        assert_eq!(hlc.tick(E + 1_007), (E + 1_007) * MS);
    }

    #[test]
    fn of_two_clocks_of_one_machine_the_one_that_is_asked_a_microsecond_later_is_ahead() {
        let (here, there) = (Hlc::new(0, E), Hlc::new(0, E));
        let mut last = 0;
        for at_us in 1..3_000u64 {
            let clock = if at_us % 2 == 0 { &here } else { &there };
            let part_us = u16::try_from(at_us % 1_000).expect("below a thousand");
            let value = clock.tick_at(E + 5 + at_us / 1_000, part_us);
            assert!(value > last, "{at_us}");
            assert_eq!(ahead_ms(value, E + 5 + at_us / 1_000), 0);
            last = value;
        }
    }

    #[test]
    fn the_clock_goes_on_when_the_wall_jumps_back_an_hour() {
        let hlc = Hlc::new(0, E + 4_000_000);
        let before = hlc.tick(E + 4_000_001);
        let after = hlc.tick(E + 400_001);
        assert_eq!(after, before + 1);
        // Once the wall has caught up, the clock follows it again.
        assert_eq!(hlc.tick(E + 4_000_002), (E + 4_000_002) * MS);
    }

    #[test]
    fn a_restart_begins_above_the_ceiling_although_the_wall_is_behind() {
        let first = Hlc::new(0, E + 10_000);
        let ceiling = first
            .needs_ceiling(E + 10_000)
            .expect("nothing was asked for yet");
        let mut used = 0;
        while used < ceiling - MS {
            used = first.tick(E + 10_000 + (used / MS).saturating_sub(E + 10_000) + 1);
        }
        let second = Hlc::new(ceiling, E + 9_000);
        assert!(second.tick(E + 9_000) > used);
        assert!(second.tick(E + 9_000) > ceiling);
    }

    #[test]
    fn a_clean_stop_costs_nothing_of_the_clock_and_a_crash_behind_it_what_a_crash_costs() {
        let first = Hlc::new(0, E + 10_000);
        let ceiling = first.needs_ceiling(E + 10_000).expect("the first one");
        let used = first.tick(E + 10_001);
        for (last, begins) in [(Some(used), used + 1), (None, ceiling + 1)] {
            let second = Hlc::resume(last, ceiling, E + 10_001);
            assert_eq!(second.tick(E + 10_001), begins);
            assert!(
                second.is_covered(used + 1),
                "up to the ceiling nothing waits"
            );
        }
        let second = Hlc::resume(Some(used), ceiling, E + 50_000);
        assert_eq!(second.tick(E + 50_001), (E + 50_001) * MS);
        assert_eq!(Hlc::resume(Some(u64::MAX), ceiling, E).last(), ceiling);
    }

    #[test]
    fn a_restart_begins_at_the_wall_when_that_is_ahead() {
        let hlc = Hlc::new((E + 10_000) * MS, E + 50_000);
        assert_eq!(hlc.last(), (E + 50_000) * MS);
        assert_eq!(hlc.tick(E + 50_001), (E + 50_001) * MS);
    }

    #[test]
    fn the_ceiling_moves_in_steps_and_one_caller_is_told() {
        let hlc = Hlc::new(0, E + 10_000);
        assert_eq!(hlc.needs_ceiling(E + 10_000), Some((E + 13_000) * MS));
        assert_eq!(hlc.needs_ceiling(E + 10_000), None);
        assert_eq!(hlc.needs_ceiling(E + 11_500), None, "half a step is left");
        assert_eq!(hlc.needs_ceiling(E + 11_501), Some((E + 14_501) * MS));
        assert_eq!(hlc.needs_ceiling(E + 11_501), None);
    }

    #[test]
    fn a_value_is_covered_once_its_ceiling_is_durable() {
        let hlc = Hlc::new(0, E + 10_000);
        let ceiling = hlc
            .needs_ceiling(E + 10_000)
            .expect("nothing was asked for yet");
        let value = hlc.tick(E + 10_001);
        assert!(!hlc.is_covered(value));
        hlc.cover(ceiling);
        assert!(hlc.is_covered(value));
        hlc.cover(ceiling - MS);
        assert!(hlc.is_covered(ceiling), "an older ceiling lowers nothing");
        assert!(!hlc.is_covered(ceiling + 1));
    }

    #[test]
    fn a_value_of_any_distance_is_followed_and_one_that_no_clock_shows_is_not() {
        let hlc = Hlc::new(0, E + 1_000);
        let day = (E + 86_400_000) * MS;
        assert_eq!(hlc.observe(day), Ok(()));
        assert_eq!(hlc.tick(E + 1_000), day + 1);
        for broken in [CLOCK_END, 1 << 63, u64::MAX] {
            assert_eq!(hlc.observe(broken), Err(Implausible { hlc: broken }));
        }
        assert_eq!(hlc.last(), day + 1, "a refused value changes nothing");
    }

    #[test]
    fn a_wall_clock_of_the_far_future_does_not_use_up_the_clock() {
        let hlc = Hlc::new(0, u64::MAX);
        let first = hlc.tick(u64::MAX);
        assert_eq!(hlc.tick(u64::MAX), first + 1);
        assert!(
            CLOCK_END - first > 1 << 60,
            "and so many values are left behind it"
        );
        let other = Hlc::new(0, E);
        assert_eq!(other.observe(first), Ok(()), "others follow it");
        assert!(hlc.needs_ceiling(u64::MAX).is_some_and(|to| to < CLOCK_END));
    }

    #[test]
    fn members_that_crash_all_the_time_stay_near_the_wall_clock() {
        // Three that hear each other, each killed as soon as it has served for a moment.
        let mut now_ms = E + 1_000_000;
        let mut clocks: Vec<Hlc> = (0..3).map(|_| Hlc::new(0, now_ms)).collect();
        let mut farthest = 0;
        for round in 0..300 {
            let at = round % clocks.len();
            let ceiling = clocks[at].needs_ceiling(now_ms);
            let floor = ceiling.unwrap_or_else(|| clocks[at].asked.load(Ordering::Relaxed));
            clocks[at] = Hlc::new(floor, now_ms);
            let heard = clocks[at].tick(now_ms);
            for clock in &clocks {
                assert_eq!(clock.observe(heard), Ok(()), "in round {round}");
            }
            farthest = farthest.max(ahead_ms(heard, now_ms));
            now_ms += CEILING_COUNT_MS;
        }
        assert!(
            (CEILING_STEP_MS..CEILING_STEP_MS + 10 * CEILING_COUNT_MS).contains(&farthest),
            "{farthest} ms"
        );
    }

    #[test]
    fn a_machine_that_thinks_it_is_1970_has_a_clock_all_the_same() {
        let (here, there) = (Hlc::new(0, 7), Hlc::new(0, 1_000));
        let value = here.tick(8);
        assert!(value > CLOCK_MIN);
        assert_eq!(there.observe(value), Ok(()), "it is as early there");
        assert!(there.tick(1_001) > value);
    }

    #[test]
    fn an_older_value_is_observed_without_effect() {
        let hlc = Hlc::new(0, E + 1_000);
        let last = hlc.last();
        assert_eq!(hlc.observe((E + 5) * MS), Ok(()));
        assert_eq!(hlc.last(), last);
    }

    #[test]
    fn loops_that_share_a_clock_never_get_one_value_twice() {
        let hlc = Hlc::new(0, E + 1);
        let values: Vec<u64> = std::thread::scope(|threads| {
            let loops: Vec<_> = (0..4)
                .map(|_| {
                    threads.spawn(|| {
                        (0..5_000)
                            .map(|i| hlc.tick(E + i / 100))
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            loops
                .into_iter()
                .flat_map(|thread| thread.join().expect("ticking does not panic"))
                .collect()
        });
        let distinct: std::collections::BTreeSet<u64> = values.iter().copied().collect();
        assert_eq!(distinct.len(), values.len());
    }

    proptest! {
        /// A life with steps of the wall clock in both directions, foreign values and crashes: the
        /// disk keeps the ceilings that were made durable.
        #[test]
        fn no_value_is_ever_used_twice_across_restarts(
            steps in prop::collection::vec((0u8..6, -5_000i64..5_000), 1..200),
        ) {
            let mut now_ms = E + 1_000_000;
            let mut durable = 0;
            let mut largest = 0;
            let mut hlc = Hlc::new(0, now_ms);
            for (action, shift) in steps {
                now_ms = now_ms.saturating_add_signed(shift);
                match action {
                    0 => hlc = Hlc::new(durable, now_ms),
                    1 => {
                        let foreign = now_ms.saturating_add_signed(shift) * MS;
                        prop_assert!(hlc.observe(foreign).is_ok());
                    }
                    _ => {
                        // As a node does it: ask first, write the ceiling with the value.
                        let value = hlc.tick(now_ms);
                        if let Some(ceiling) = hlc.needs_ceiling(now_ms) {
                            durable = ceiling.max(durable);
                            hlc.cover(ceiling);
                        }
                        prop_assert!(hlc.is_covered(value));
                        prop_assert!(value > largest);
                        largest = value;
                    }
                }
            }
        }
    }
}
