//! A rate that holds over any time.
//!
//! ```text
//! due          the moment at which all that was let in would be paid for, at the rate
//! admit(n) ─┬─ due - now + cost(n) ≤ the burst ─► due += cost(n)
//!           └─ else ─► so long until it would be
//! charge(n) ─► due += cost(n), and never more than QUOTA_DEBT ahead     for what is known afterwards
//! ```
//!
//! Invariants
//! 1. Over any time, what is let in is that time at the rate, and a burst more.
//! 2. One atomic number: loops share it without a lock.
//!
//! Not here: whose rates (`rights/grant_use.rs`, `audit/`).

use crate::limits;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(crate) struct Meter {
    per_second: u64,
    burst_ns: u64,
    due_ns: AtomicU64,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Meter {
    /// So many a second, and as many at once.
    pub(crate) fn new(per_second: u64) -> Meter {
        Meter::with_burst(per_second, Duration::from_secs(1))
    }

    /// So many a second, and at once as many as come in `burst`.
    pub(crate) fn with_burst(per_second: u64, burst: Duration) -> Meter {
        Meter {
            per_second: per_second.max(1),
            burst_ns: burst.as_nanos() as u64,
            due_ns: AtomicU64::new(0),
        }
    }

    fn cost_ns(&self, n: u64) -> u64 {
        let cost = u128::from(n) * u128::from(SECOND_NS) / u128::from(self.per_second);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    /// Lets `n` in, or says after how many nanoseconds it would.
    pub(crate) fn admit(&self, n: u64, now_ns: u64) -> Result<(), u64> {
        let cost_ns = self.cost_ns(n);
        let mut due_ns = self.due_ns.load(Ordering::Relaxed);
        loop {
            let ahead_ns = due_ns.saturating_sub(now_ns);
            let after_ns = ahead_ns.saturating_add(cost_ns);
            if after_ns > self.burst_ns {
                return Err(after_ns - self.burst_ns);
            }
            match self.due_ns.compare_exchange_weak(
                due_ns,
                now_ns + after_ns,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(other) => due_ns = other,
            }
        }
    }

    /// Counts `n` that was used already.
    pub(crate) fn charge(&self, n: u64, now_ns: u64) {
        let debt_ns = limits::QUOTA_DEBT.as_nanos() as u64;
        let cost_ns = self.cost_ns(n).min(debt_ns);
        let charged = self
            .due_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |due_ns| {
                Some((due_ns.max(now_ns) + cost_ns).min(now_ns + debt_ns))
            });
        debug_assert!(charged.is_ok(), "it always says a number");
    }
}
