//! How many pages a load has under way: as many as leave clients their times.
//!
//! ```text
//! loading PACE_LOADING_US ─► emptying: no further page ─► look ─► clean PACE_CLEAN_US ─► look ─► loading
//!                                                          └ no client asked: the full width ─► loading
//!
//! width     4 = four pages at once   1 = one behind the other   1/8 = behind each page it rests for 7 times
//!           the time that the page took
//! judged    the mean round of clients is more than 7/5 of that of clean stretches (the middle one of the
//!           last three) ─► half the width, more than twice as much as that ─► a quarter
//!           else ─► a quarter more
//! ```
//!
//! A look is the sum of the foregrounds of all members: clients ask any of them. Two looks make the
//! mean round of the stretch between them. Clean stretches are repeated for as long as clients ask,
//! because their load changes. So a load compares clients' rounds with it and without it, on this
//! machine and now, and needs no target in microseconds.
//!
//! Invariants
//! 1. A width is judged only with `PACE_ROUNDS_MIN` rounds on both sides.
//! 2. A load goes on: the width is never below `PACE_WIDTH_MIN`, a rest never longer than
//!    `PACE_REST_US_MAX`.
//! 3. Without clients there is no clean stretch but the first, and no rest.
//!
//! Not here: pages and sources (`loader.rs`), the operator's bound in bytes a second (there, too).
//! See: docs/overload.md, "Background work". The law is that of TCP's window: Chiu and Jain, 1989.

use crate::ledger::NEVER;
use crate::limits::{
    LOAD_PAGE_BYTES, LOAD_PAGE_BYTES_NARROW, PACE_CLEAN_US, PACE_LOADING_US, PACE_LOADING_US_IDLE,
    PACE_REST_US_MAX, PACE_ROUNDS_MIN, PACE_WIDTH_MAX, PACE_WIDTH_MIN, PACE_WIDTH_ONE,
};
use dendra_base::peer::Foreground;
use dendra_ownership::member::MemberIndex;
use std::collections::BTreeMap;

/// The foregrounds of all members that told them.
pub(crate) type ForegroundLook = BTreeMap<MemberIndex, Foreground>;

/// The activity of a load now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stretch {
    /// No activity: there is no load.
    Off,
    /// The load asks for pages.
    Loading { until_us: u64 },
    /// The load's last pages are under way.
    Emptying,
    /// The load waits for the foregrounds of the members.
    Looking { is_clean: bool },
    /// No activity, so that clients are alone.
    Clean { until_us: u64 },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LoadPace {
    stretch: Stretch,
    /// In units of a page divided by `PACE_WIDTH_ONE`.
    width: u32,
    /// At the beginning of the stretch; `None` before the first look.
    last: Option<ForegroundLook>,
    /// Clients' rounds while it loaded, and in clean stretches, since the last judgement.
    with: Foreground,
    without: Foreground,
    /// Means of the last clean sides, the newest first; 0 = there was none.
    clean: [u64; 3],
}

impl LoadPace {
    pub(crate) fn new() -> LoadPace {
        LoadPace {
            stretch: Stretch::Off,
            width: PACE_WIDTH_ONE / 2,
            last: None,
            with: Foreground::default(),
            without: Foreground::default(),
            clean: [0; 3],
        }
    }

    /// There is something to load.
    pub(crate) fn begin(&mut self, now_us: u64) {
        if self.stretch == Stretch::Off {
            let until_us = now_us + PACE_LOADING_US;
            self.stretch = Stretch::Loading { until_us };
        }
    }

    /// The load is over. The width is kept for the next load.
    pub(crate) fn end(&mut self) {
        self.stretch = Stretch::Off;
        self.last = None;
        self.forget();
    }

    fn forget(&mut self) {
        (self.with, self.without) = (Foreground::default(), Foreground::default());
        self.clean = [0; 3];
    }

    /// When a stretch ends.
    pub(crate) fn due_us(&self) -> u64 {
        match self.stretch {
            Stretch::Loading { until_us } | Stretch::Clean { until_us } => until_us,
            Stretch::Off | Stretch::Emptying | Stretch::Looking { .. } => NEVER,
        }
    }

    /// How many pages may be under way now.
    pub(crate) fn pages_max(&self) -> usize {
        match self.stretch {
            Stretch::Loading { .. } => (self.width / PACE_WIDTH_ONE).max(1) as usize,
            _ => 0,
        }
    }

    /// How many bytes of a source one page covers: short pages let clients in between.
    pub(crate) fn page_bytes(&self) -> u32 {
        if self.width > PACE_WIDTH_ONE {
            LOAD_PAGE_BYTES
        } else {
            LOAD_PAGE_BYTES_NARROW
        }
    }

    /// The rest after a page that took so long.
    pub(crate) fn rest_us(&self, took_us: u64) -> u64 {
        if self.width >= PACE_WIDTH_ONE {
            return 0;
        }
        let (width, one) = (u64::from(self.width), u64::from(PACE_WIDTH_ONE));
        (took_us.saturating_mul(one - width) / width).min(PACE_REST_US_MAX)
    }

    /// Time has passed, or a page has ended: does it want a look now? It is asked once for each.
    pub(crate) fn wants_look(&mut self, now_us: u64, under_way: usize) -> bool {
        if let Stretch::Loading { until_us } = self.stretch
            && now_us >= until_us
        {
            self.stretch = Stretch::Emptying;
        }
        let is_clean = match self.stretch {
            Stretch::Emptying if under_way == 0 => false,
            Stretch::Clean { until_us } if now_us >= until_us => true,
            _ => return false,
        };
        self.stretch = Stretch::Looking { is_clean };
        true
    }

    /// The look that was wanted.
    pub(crate) fn looked(&mut self, now_us: u64, look: ForegroundLook) {
        let Stretch::Looking { is_clean } = self.stretch else {
            return;
        };
        let seen = self.last.as_ref().map(|last| between(last, &look));
        self.last = Some(look);
        // A clean stretch is short: clients that ask seldom may have asked before it.
        let before = if is_clean { self.with.rounds } else { 0 };
        if seen.is_some_and(|seen| seen.rounds + before == 0) {
            self.width = PACE_WIDTH_MAX;
            self.forget();
            let until_us = now_us + PACE_LOADING_US_IDLE;
            self.stretch = Stretch::Loading { until_us };
            return;
        }
        let side = if is_clean {
            &mut self.without
        } else {
            &mut self.with
        };
        if let Some(seen) = seen {
            side.rounds += seen.rounds;
            side.sum_us += seen.sum_us;
        }
        if is_clean {
            self.judge();
            let until_us = now_us + PACE_LOADING_US;
            self.stretch = Stretch::Loading { until_us };
        } else {
            let until_us = now_us + PACE_CLEAN_US;
            self.stretch = Stretch::Clean { until_us };
        }
    }

    fn judge(&mut self) {
        if self.with.rounds < PACE_ROUNDS_MIN || self.without.rounds < PACE_ROUNDS_MIN {
            return;
        }
        let mean = |it: Foreground| it.sum_us / it.rounds;
        let (with, without) = (mean(self.with), mean(self.without));
        (self.with, self.without) = (Foreground::default(), Foreground::default());
        self.clean.rotate_right(1);
        self.clean[0] = without;
        let usual = match self.clean {
            [newest, _, 0] => newest,
            mut all => {
                all.sort_unstable();
                all[1]
            }
        };
        let bound = usual + usual * 2 / 5;
        self.width = if with > 2 * bound {
            self.width / 4
        } else if with > bound {
            self.width / 2
        } else {
            self.width + (self.width / 4).max(PACE_WIDTH_ONE / 16)
        };
        self.width = self.width.clamp(PACE_WIDTH_MIN, PACE_WIDTH_MAX);
    }
}

/// The rounds between two looks, of the members that are in both.
fn between(first: &ForegroundLook, second: &ForegroundLook) -> Foreground {
    let mut sum = Foreground::default();
    for (member, now) in second {
        let Some(then) = first.get(member) else {
            continue;
        };
        // A process that was started anew counts from zero.
        if let Some(rounds) = now.rounds.checked_sub(then.rounds)
            && let Some(sum_us) = now.sum_us.checked_sub(then.sum_us)
        {
            sum.rounds += rounds;
            sum.sum_us += sum_us;
        }
    }
    sum
}

#[cfg(test)]
mod tests;
