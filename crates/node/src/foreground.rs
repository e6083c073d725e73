//! The foreground of a member: rounds of clients' operations, counted and summed.
//!
//! ```text
//! loop 0 ─ add ─► [rounds, microseconds] ─┐
//! loop 1 ─ add ─► [rounds, microseconds] ─┴─► sum ─► to a member that loads copies
//! ```
//!
//! Invariants
//! 1. The sums of one process never go down. A reader compares two sums; one that went down is that
//!    of another process, and is not used.
//! 2. A round counts for at most `FOREGROUND_ROUND_US_MAX`: one that waited for its deadline does
//!    not hide hundreds of others.
//!
//! Not here: which rounds there are (`rounds.rs`), a load's use of the sums (`pace/`).
//! See: docs/overload.md, "Background work".

use crate::limits::FOREGROUND_ROUND_US_MAX;
use dendra_base::peer::Foreground;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Foreground of one loop, which alone writes it.
///
/// The orderings are relaxed: these are counters, and no other memory hangs on them.
#[derive(Debug, Default)]
struct LoopForeground {
    rounds: AtomicU64,
    sum_us: AtomicU64,
}

impl LoopForeground {
    /// A round of a client's operation ended.
    fn add(&self, took_us: u64) {
        let took_us = took_us.min(FOREGROUND_ROUND_US_MAX);
        // One thread writes, so no addition is lost, and none locks a line of the cache.
        let add =
            |to: &AtomicU64, more| to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        add(&self.rounds, 1);
        add(&self.sum_us, took_us);
    }
}

/// Foreground of one loop, and of all of them.
#[derive(Debug)]
pub(crate) struct ForegroundSeat {
    own: Arc<LoopForeground>,
    all: Arc<Foregrounds>,
}

impl ForegroundSeat {
    /// One more loop.
    pub(crate) fn new(all: Arc<Foregrounds>) -> ForegroundSeat {
        ForegroundSeat {
            own: all.join(),
            all,
        }
    }

    /// A round of a client's operation ended.
    pub(crate) fn add(&self, took_us: u64) {
        self.own.add(took_us);
    }

    /// The sum of all loops.
    pub(crate) fn sum(&self) -> Foreground {
        self.all.sum()
    }
}

/// Shared by the loops of a member.
#[derive(Debug, Default)]
pub struct Foregrounds {
    loops: Mutex<Vec<Arc<LoopForeground>>>,
}

impl Foregrounds {
    /// One more loop.
    fn join(&self) -> Arc<LoopForeground> {
        let one = Arc::<LoopForeground>::default();
        let mut loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        loops.push(Arc::clone(&one));
        one
    }

    /// The sum of all loops.
    pub fn sum(&self) -> Foreground {
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = Foreground::default();
        for one in &*loops {
            sum.rounds += one.rounds.load(Ordering::Relaxed);
            sum.sum_us += one.sum_us.load(Ordering::Relaxed);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_all_loops_count_and_a_long_one_not_for_more_than_its_bound() {
        let all = Foregrounds::default();
        let (one, other) = (all.join(), all.join());
        one.add(300);
        other.add(200);
        other.add(90 * FOREGROUND_ROUND_US_MAX);
        let sum_us = 500 + FOREGROUND_ROUND_US_MAX;
        assert_eq!(all.sum(), Foreground { rounds: 3, sum_us });
    }
}
