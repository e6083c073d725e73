//! The hybrid logical clock: values for versions that never go back, whatever the wall clock does.
//!
//! ```text
//! value    | wall ms 48 | counter 16 |       tick(now) = max(previous + 1, now << 16), CLOCK_MIN at least
//!
//!            wall          last handed out        ceiling asked for
//!  ──────────┼──────────────────┼───────────────────────┼──────────►
//!            └── may jump back ─┘                       └ in the next log write; a restart begins here
//! ```
//!
//! Invariants
//! 1. `tick` returns a value once, larger than every value that it returned or observed before.
//! 2. A restart begins above every value that may have been used: the largest ceiling that is
//!    durable and the largest version found, whichever is larger, is its floor.
//! 3. A value above the durable ceiling (`is_covered` says no) leaves the node only in, or after,
//!    the log write that raises it.
//! 4. A value more than 60 s ahead of the wall clock is refused and changes nothing.
//! 5. Restarts do not lead away from the wall clock: who begins too far ahead of it waits (`start_wait_ms`).
//! 6. No value is below `CLOCK_MIN`: what is smaller names records that were built on nothing
//!    (`coordinator/paxos.rs`). A machine whose wall clock shows an earlier time has none that is right.
//!
//! Not here: the wall clock (an argument), the log that keeps the ceiling (crate `engine`,
//! `raise_hlc_ceiling`, `hlc_floor`), origins of versions (crate `base`).
//! See: Kulkarni et al., "Logical Physical Clocks", 2014.

use crate::limits::{
    CEILING_LEFT_MS_MIN, CEILING_STEP_MS, HLC_AHEAD_MS_MAX, START_AHEAD_MS_MAX, START_WAIT_MS_MAX,
};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the counter below the milliseconds.
pub(crate) const COUNTER_BITS: u32 = 16;

/// The first millisecond that the clock shows: in November 2004.
const WALL_MS_MIN: u64 = 1 << 40;

/// The smallest value of any clock.
pub const CLOCK_MIN: u64 = WALL_MS_MIN << COUNTER_BITS;

/// The first value of a wall millisecond. Beyond 48 bits (the year 10889) it stays at the last.
fn first_of(wall_ms: u64) -> u64 {
    wall_ms.clamp(WALL_MS_MIN, u64::MAX >> COUNTER_BITS) << COUNTER_BITS
}

/// How far a clock value is ahead of the wall clock, in milliseconds.
pub fn ahead_ms(hlc: u64, now_ms: u64) -> u64 {
    (hlc >> COUNTER_BITS).saturating_sub(now_ms.max(WALL_MS_MIN))
}

/// How long a member waits before it starts a clock above `floor`. None of it helps when the wall clock was set back by
/// more than is believed.
pub fn start_wait_ms(floor: u64, now_ms: u64) -> u64 {
    let ahead = ahead_ms(floor, now_ms);
    match ahead > HLC_AHEAD_MS_MAX + CEILING_STEP_MS {
        true => 0,
        false => ahead
            .saturating_sub(START_AHEAD_MS_MAX)
            .min(START_WAIT_MS_MAX),
    }
}

/// A clock shared by all loops of a node.
///
/// The orderings are relaxed: each word is on its own, and read-modify-writes of one word are
/// ordered whatever their ordering says.
#[derive(Debug)]
pub struct Hlc {
    /// The largest value handed out or observed.
    last: AtomicU64,
    /// The largest ceiling that somebody was told to persist.
    asked: AtomicU64,
    /// The largest ceiling that is durable.
    ceiling: AtomicU64,
}

/// A clock value came from a clock that is wrong, or ours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFarAhead {
    /// How far ahead of the own wall clock.
    pub ahead_ms: u64,
}

impl fmt::Display for TooFarAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a clock is {} ms ahead of this node's, more than the {HLC_AHEAD_MS_MAX} ms that are believed: \
             synchronise the clocks",
            self.ahead_ms
        )
    }
}

impl std::error::Error for TooFarAhead {}

impl Hlc {
    /// A clock that goes on after a restart: `floor` is the largest value that may have been used
    /// before, from the durable ceiling and from the versions found.
    pub fn new(floor: u64, now_ms: u64) -> Hlc {
        Hlc {
            last: AtomicU64::new(floor.max(first_of(now_ms))),
            asked: AtomicU64::new(floor),
            ceiling: AtomicU64::new(floor),
        }
    }

    /// The next value.
    pub fn tick(&self, now_ms: u64) -> u64 {
        let wall = first_of(now_ms);
        let mut previous = self.last.load(Ordering::Relaxed);
        loop {
            let next = previous
                .checked_add(1)
                .expect("`observe` refuses clocks that far ahead")
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
    pub fn observe(&self, hlc: u64, now_ms: u64) -> Result<(), TooFarAhead> {
        let ahead_ms = ahead_ms(hlc, now_ms);
        if ahead_ms > HLC_AHEAD_MS_MAX {
            return Err(TooFarAhead { ahead_ms });
        }
        self.last.fetch_max(hlc, Ordering::Relaxed);
        Ok(())
    }

    /// The largest value so far.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// What the clock shows: not below any value so far, nor below the wall clock.
    pub fn shown(&self, now_ms: u64) -> u64 {
        self.last().max(first_of(now_ms))
    }

    /// The ceiling to persist now, when less than half a step is left below the last one asked
    /// for. Says so to one caller only; that caller sees to it that it becomes durable, with the next log
    /// write, and then tells [`Hlc::cover`].
    pub fn needs_ceiling(&self, now_ms: u64) -> Option<u64> {
        let now = self.last().max(first_of(now_ms));
        let asked = self.asked.load(Ordering::Relaxed);
        if asked >= now.saturating_add(CEILING_LEFT_MS_MIN << COUNTER_BITS) {
            return None;
        }
        let next = now.saturating_add(CEILING_STEP_MS << COUNTER_BITS);
        self.asked
            .compare_exchange(asked, next, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
            .then_some(next)
    }

    /// `ceiling` is durable.
    pub fn cover(&self, ceiling: u64) {
        self.ceiling.fetch_max(ceiling, Ordering::Relaxed);
    }

    /// May `hlc` leave the node by itself? If not, it leaves with the write that raises the ceiling.
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
    fn a_value_a_minute_ahead_is_believed_and_one_more_is_not() {
        let hlc = Hlc::new(0, E + 1_000);
        let edge = (E + 1_000 + HLC_AHEAD_MS_MAX) * MS + MS - 1;
        assert_eq!(hlc.observe(edge, E + 1_000), Ok(()));
        assert_eq!(hlc.tick(E + 1_000), edge + 1);
        let last = hlc.last();
        let refused = hlc.observe((E + 1_001 + HLC_AHEAD_MS_MAX) * MS, E + 1_000);
        assert_eq!(refused, Err(TooFarAhead { ahead_ms: 60_001 }));
        assert_eq!(hlc.last(), last, "a refused value changes nothing");
        assert!(hlc.observe(u64::MAX, E + 1_000).is_err());
    }

    #[test]
    fn members_that_are_restarted_all_the_time_stay_near_the_wall_clock() {
        // Three that hear each other, each killed as soon as it has served for a moment.
        let mut now_ms = E + 1_000_000;
        let mut clocks: Vec<Hlc> = (0..3).map(|_| Hlc::new(0, now_ms)).collect();
        let mut farthest = 0;
        for round in 0..300 {
            let at = round % clocks.len();
            let ceiling = clocks[at].needs_ceiling(now_ms);
            let floor = ceiling.unwrap_or_else(|| clocks[at].asked.load(Ordering::Relaxed));
            now_ms += start_wait_ms(floor, now_ms);
            clocks[at] = Hlc::new(floor, now_ms);
            let heard = clocks[at].tick(now_ms);
            for clock in &clocks {
                assert_eq!(clock.observe(heard, now_ms), Ok(()), "in round {round}");
            }
            farthest = farthest.max(ahead_ms(heard, now_ms));
            now_ms += 50;
        }
        assert!(
            (START_AHEAD_MS_MAX..START_AHEAD_MS_MAX + 2 * CEILING_STEP_MS).contains(&farthest),
            "{farthest} ms"
        );
        assert_eq!(start_wait_ms((E + 3_600_000) * MS, E), 0, "an hour");
    }

    #[test]
    fn a_machine_that_thinks_it_is_1970_has_a_clock_all_the_same() {
        let (here, there) = (Hlc::new(0, 7), Hlc::new(0, 1_000));
        let value = here.tick(8);
        assert!(value > CLOCK_MIN);
        assert_eq!(there.observe(value, 1_001), Ok(()), "it is as early there");
        assert!(there.tick(1_001) > value);
    }

    #[test]
    fn an_older_value_is_observed_without_effect() {
        let hlc = Hlc::new(0, E + 1_000);
        let last = hlc.last();
        assert_eq!(hlc.observe((E + 5) * MS, E + 1_000), Ok(()));
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
        /// disk keeps what was covered.
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
                        prop_assert!(hlc.observe(foreign, now_ms).is_ok());
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
