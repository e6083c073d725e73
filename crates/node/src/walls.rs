//! Which wall clocks agree: the last reading of each member's clock, and whether the own one is
//! with a majority.
//!
//! ```text
//! Answer::Clock { wall_ms } ─► less the own monotonic clock ─► that wall clock's reading at any later time
//!                                                              within 60 s of the own one: it agrees
//! ```
//!
//! Invariants
//! 1. Wall clocks are compared with wall clocks alone. Every member moves the hybrid clock, so no
//!    value of it is used here.
//! 2. Other members' readings go on with the monotonic clock. A jump of the own wall clock is seen
//!    in the turn that reads it. A jump of another member's is seen with its next answer.
//! 3. The own clock is doubted only while fresh answers leave no majority that could agree with it.
//!    Silence makes no clock doubtful.
//!
//! Not here: when peers are asked (`node/`), the steps of a doubted coordinator
//! (`coordinator/clock.rs`), the hybrid clock (`hlc.rs`).
//! See: docs/protocol.md, rule 6.

use crate::limits::{WALL_APART_MS_MAX, WALL_FRESH_US};
use dendra_base::Now;
use dendra_ownership::limits::MEMBERS_MAX;
use dendra_ownership::member::MemberIndex;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Beyond this a wall clock shows no difference: sums of two of them stay far from overflow.
const SHOWN_MS_MAX: u64 = 1 << 60;

/// The last reading of one member's wall clock.
#[derive(Debug, Default)]
struct WallReading {
    /// The wall clock, less the own monotonic one, in milliseconds.
    zero_ms: AtomicI64,
    /// When it was read, on the own monotonic clock, and one more; 0 = never.
    at_us: AtomicU64,
}

/// The wall clocks of all members, as the loops of this one know them.
///
/// The orderings are relaxed: of two readings of one clock that are written at once either is true.
#[derive(Debug)]
pub struct Walls {
    me: MemberIndex,
    readings: Box<[WallReading]>,
    /// How many members there are; readings are kept by index.
    members: AtomicUsize,
}

/// How the own wall clock stands among the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallStanding {
    /// Members with a fresh clock that agrees with the own one, this one included.
    pub near: u32,
    /// Members with a fresh clock that does not agree.
    pub far: u32,
    /// Is there no majority of all members that could agree with the own clock?
    pub is_doubted: bool,
    /// Lead over the nearest of the clocks that do not agree: how far the own one is ahead of it,
    /// in milliseconds.
    pub ahead_ms: i64,
}

/// A wall clock to compute with.
pub(crate) fn signed(wall_ms: u64) -> i64 {
    i64::try_from(wall_ms.min(SHOWN_MS_MAX)).unwrap_or(i64::MAX)
}

impl Walls {
    /// The clocks of the others are not known yet.
    pub fn new(me: MemberIndex, members: usize) -> Walls {
        Walls {
            me,
            readings: (0..MEMBERS_MAX.max(members))
                .map(|_| WallReading::default())
                .collect(),
            members: AtomicUsize::new(members),
        }
    }

    /// The cluster has as many members now.
    pub fn set_members(&self, members: usize) {
        self.members.store(members, Ordering::Relaxed);
    }

    /// Does this wall clock agree with the own one?
    pub fn agrees(wall_ms: u64, now: Now) -> bool {
        wall_ms.abs_diff(now.wall_ms) <= WALL_APART_MS_MAX
    }

    /// Are there members beside this one?
    pub fn has_others(&self) -> bool {
        self.members.load(Ordering::Relaxed) > 1
    }

    /// Is so little a difference none?
    pub fn is_near(ahead_ms: i64) -> bool {
        ahead_ms.unsigned_abs() <= WALL_APART_MS_MAX
    }

    /// The time that the clocks of a majority of all members have passed, the own one among them:
    /// while most clocks are right it is not ahead, also when others are. 0 = too few fresh
    /// clocks are known, or there is no other member.
    pub fn passed_ms(&self, now: Now) -> u64 {
        let members = self.members.load(Ordering::Relaxed);
        if !self.has_others() {
            return 0;
        }
        let own_ms = signed(now.wall_ms);
        let others = (0..self.readings.len()).filter(|at| *at != self.me.at());
        let mut clocks: Vec<i64> = others
            .filter_map(|at| {
                let member = MemberIndex(u8::try_from(at).expect("at most MEMBERS_MAX members"));
                Some(own_ms - self.ahead_ms(member, now)?)
            })
            .collect();
        clocks.push(own_ms);
        clocks.sort_unstable_by(|a, b| b.cmp(a));
        let passed = clocks.get(members / 2).copied().unwrap_or(0);
        u64::try_from(passed).unwrap_or(0)
    }

    /// The wall clock of `member` showed `wall_ms` a moment ago.
    pub fn note(&self, member: MemberIndex, wall_ms: u64, now: Now) {
        let reading = &self.readings[member.at()];
        let zero_ms = signed(wall_ms) - signed(now.mono_us / 1_000);
        reading.zero_ms.store(zero_ms, Ordering::Relaxed);
        let at_us = now.mono_us.saturating_add(1);
        reading.at_us.store(at_us, Ordering::Relaxed);
    }

    /// How old the last reading of that clock is; `None` = there is none.
    pub fn age_us(&self, member: MemberIndex, now: Now) -> Option<u64> {
        match self.readings[member.at()].at_us.load(Ordering::Relaxed) {
            0 => None,
            at_us => Some(now.mono_us.saturating_sub(at_us - 1)),
        }
    }

    /// How far the own wall clock is ahead of that of `member`; `None` when no fresh reading of it
    /// is known.
    pub fn ahead_ms(&self, member: MemberIndex, now: Now) -> Option<i64> {
        self.age_us(member, now)
            .filter(|age_us| *age_us <= WALL_FRESH_US)?;
        let zero_ms = self.readings[member.at()].zero_ms.load(Ordering::Relaxed);
        Some(signed(now.wall_ms) - zero_ms - signed(now.mono_us / 1_000))
    }

    /// How the own wall clock stands now.
    pub fn standing(&self, now: Now) -> WallStanding {
        let mut it = WallStanding {
            near: 1,
            ..WallStanding::default()
        };
        for at in (0..self.readings.len()).filter(|at| *at != self.me.at()) {
            let member = MemberIndex(u8::try_from(at).expect("at most MEMBERS_MAX members"));
            match self.ahead_ms(member, now) {
                Some(ahead) if Walls::is_near(ahead) => it.near += 1,
                Some(ahead) => {
                    it.far += 1;
                    if it.far == 1 || ahead.unsigned_abs() < it.ahead_ms.unsigned_abs() {
                        it.ahead_ms = ahead;
                    }
                }
                None => {}
            }
        }
        let members = self.members.load(Ordering::Relaxed);
        it.is_doubted = members.saturating_sub(it.far as usize) < members / 2 + 1;
        it
    }

    /// Does the own wall clock agree with no majority?
    pub fn is_doubted(&self, now: Now) -> bool {
        self.standing(now).is_doubted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_767_225_600_000;

    fn at(mono_ms: u64, wall_ms: u64) -> Now {
        Now {
            mono_us: mono_ms * 1_000,
            wall_ms,
            wall_part_us: 0,
        }
    }

    fn of_three() -> Walls {
        Walls::new(MemberIndex(0), 3)
    }

    #[test]
    fn one_clock_that_is_wrong_is_not_this_members_fault_and_two_are() {
        let walls = of_three();
        let now = at(5_000, T);
        assert!(!walls.is_doubted(now), "nothing is known");
        walls.note(MemberIndex(1), T + 3_600_000, now);
        assert!(!walls.is_doubted(now), "one of two may be right");
        walls.note(MemberIndex(2), T + 20, now);
        let standing = walls.standing(now);
        assert_eq!((standing.near, standing.far), (2, 1));
        assert!(!standing.is_doubted);
        walls.note(MemberIndex(2), T + 3_599_000, now);
        let standing = walls.standing(now);
        assert!(standing.is_doubted);
        assert_eq!(standing.ahead_ms, -3_599_000);
    }

    #[test]
    fn a_jump_of_the_own_clock_is_seen_before_any_answer_and_healed_when_it_is_back() {
        let walls = of_three();
        for member in [1, 2] {
            walls.note(MemberIndex(member), T, at(5_000, T));
        }
        assert!(!walls.is_doubted(at(6_000, T + 1_000)));
        assert!(walls.is_doubted(at(6_001, T + 1_001 + 60_001)));
        assert!(walls.is_doubted(at(6_001, T + 1_001 - 60_001)));
        assert!(!walls.is_doubted(at(6_002, T + 1_002 + 59_000)));
    }

    #[test]
    fn what_is_old_condemns_no_clock() {
        let walls = of_three();
        for member in [1, 2] {
            walls.note(MemberIndex(member), T + 90_000, at(5_000, T));
        }
        let fresh_ms = WALL_FRESH_US / 1_000;
        assert!(walls.is_doubted(at(5_000 + fresh_ms, T + fresh_ms)));
        assert!(!walls.is_doubted(at(5_001 + fresh_ms, T + 1 + fresh_ms)));
    }

    #[test]
    fn of_two_members_neither_is_right_when_they_differ() {
        let walls = Walls::new(MemberIndex(1), 2);
        walls.note(MemberIndex(0), T + 61_000, at(1, T));
        assert!(walls.is_doubted(at(1, T)));
    }

    #[test]
    fn one_wrong_clock_moves_the_time_of_the_majority_not_ahead() {
        let walls = of_three();
        let now = at(5_000, T);
        assert_eq!(walls.passed_ms(now), 0, "the own clock alone says nothing");
        walls.note(MemberIndex(1), T - 20, now);
        assert_eq!(walls.passed_ms(now), T - 20, "two of three");
        walls.note(MemberIndex(2), T + 7_200_000, now);
        assert_eq!(walls.passed_ms(now), T, "another one is ahead");
        let wrong = at(5_000, T + 315_360_000_000);
        walls.note(MemberIndex(2), T + 20, now);
        assert_eq!(
            walls.passed_ms(wrong),
            T + 20,
            "the own one is ahead by ten years"
        );
        let behind = at(5_000, T - 86_400_000);
        assert_eq!(walls.passed_ms(behind), T - 20, "the own one is behind");
        let late = at(5_001 + WALL_FRESH_US / 1_000, T + 10_001);
        assert_eq!(walls.passed_ms(late), 0, "too old");
        let of_two = Walls::new(MemberIndex(0), 2);
        of_two.note(MemberIndex(1), T + 60_000, now);
        assert_eq!(of_two.passed_ms(now), T, "of two both");
        let alone = Walls::new(MemberIndex(0), 1);
        assert_eq!(alone.passed_ms(now), 0, "no other clock is known");
    }

    #[test]
    fn clocks_of_no_year_overflow_nothing() {
        let walls = of_three();
        walls.note(MemberIndex(1), u64::MAX, at(7, 0));
        walls.note(MemberIndex(2), 0, at(7, u64::MAX));
        assert!(walls.is_doubted(at(8, u64::MAX / 2)) || walls.is_doubted(at(8, 1 << 40)));
        assert!(!Walls::agrees(u64::MAX, at(7, 0)));
    }
}
