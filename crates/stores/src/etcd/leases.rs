//! Leases of etcd that many records share: one for all that end within the same minute.
//!
//! ```text
//!      now ....... record ends ..+ LEASE_SPARE_S ... need ......... need + LEASE_SHARE_S
//! find: a lease that ends here ──────────────────────┤◄──────────────►├
//! else: lease/grant, to end at the right edge ─► keep
//! ```
//!
//! Invariants
//! 1. A lease that is found outlives the record by `LEASE_SPARE_S` at least, and by
//!    `LEASE_SHARE_S` more at most.
//! 2. Both clocks of this machine have moved alike since the lease was granted: a machine that
//!    slept, or whose wall clock was set, does not trust what it remembers.
//! 3. At most `LEASES_MAX` leases are remembered. One that is not remembered ends by itself.
//!
//! Not here: clocks (arguments), the questions (`mod.rs`).
//! See: docs/stores.md.

use std::collections::BTreeMap;
use std::time::Duration;

/// A lease outlives its records by so much: clocks of front doors differ.
const LEASE_SPARE: Duration = Duration::from_secs(60);
/// Records whose ends are so far apart share a lease.
const LEASE_SHARE: Duration = Duration::from_secs(60);
/// Remembered at once: a lease a minute for nearly three days, in about 200 KiB.
const LEASES_MAX: usize = 4_096;
/// The two clocks of a machine differ by less than this in the time of a lease, unless one was set.
const CLOCK_SLIP_MS: u64 = 10_000;

/// One moment by two clocks, milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct BothClocks {
    /// Since this process began: never set, and still while the machine sleeps.
    pub(super) steady_ms: u64,
    /// Since 1970.
    pub(super) wall_ms: u64,
}

impl BothClocks {
    fn apart_ms(self) -> u64 {
        self.wall_ms.wrapping_sub(self.steady_ms)
    }
}

struct HeldLease {
    id: u64,
    /// How far the clocks were apart when it was granted.
    apart_ms: u64,
}

/// The leases that this front door was granted.
#[derive(Default)]
pub(super) struct LeasePool {
    /// By the steady milliseconds of their end.
    held: BTreeMap<u64, HeldLease>,
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// The time to live of a new lease for a record that has `left_ms`, seconds.
pub(super) fn seconds_for(left_ms: u64) -> u64 {
    left_ms
        .saturating_add(ms(LEASE_SPARE + LEASE_SHARE))
        .div_ceil(1_000)
}

impl LeasePool {
    /// A lease for a record that has `left_ms`.
    pub(super) fn find(&self, now: BothClocks, left_ms: u64) -> Option<u64> {
        let need_ms = now
            .steady_ms
            .checked_add(left_ms)?
            .checked_add(ms(LEASE_SPARE))?;
        let most_ms = need_ms.checked_add(ms(LEASE_SHARE))?;
        let is_trusted = |lease: &HeldLease| {
            let slip_ms = lease.apart_ms.wrapping_sub(now.apart_ms());
            slip_ms.min(slip_ms.wrapping_neg()) < CLOCK_SLIP_MS
        };
        let mut fitting = self.held.range(need_ms..=most_ms).map(|(_, lease)| lease);
        fitting
            .find(|lease| is_trusted(lease))
            .map(|lease| lease.id)
    }

    /// Remembers a lease that was granted for `ttl_s`, asked for at `now`.
    pub(super) fn keep(&mut self, now: BothClocks, ttl_s: u64, id: u64) {
        self.held = self.held.split_off(&now.steady_ms);
        let end_ms = now.steady_ms.saturating_add(ttl_s.saturating_mul(1_000));
        let apart_ms = now.apart_ms();
        self.held.insert(end_ms, HeldLease { id, apart_ms });
        if self.held.len() > LEASES_MAX {
            self.held.pop_first();
        }
    }

    /// Forgets a lease that etcd does not know.
    pub(super) fn forget(&mut self, id: u64) {
        self.held.retain(|_, lease| lease.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: BothClocks = BothClocks {
        steady_ms: 5_000,
        wall_ms: 1_790_000_000_000,
    };

    fn later(by_ms: u64) -> BothClocks {
        BothClocks {
            steady_ms: BEGIN.steady_ms + by_ms,
            wall_ms: BEGIN.wall_ms + by_ms,
        }
    }

    /// The lease of a record, and whether it had to be granted; ids are counted.
    fn lease(pool: &mut LeasePool, now: BothClocks, left_ms: u64, next: &mut u64) -> (u64, bool) {
        if let Some(id) = pool.find(now, left_ms) {
            return (id, false);
        }
        *next += 1;
        pool.keep(now, seconds_for(left_ms), *next);
        (*next, true)
    }

    #[test]
    fn a_key_that_is_rewritten_each_second_needs_a_lease_a_minute() {
        let (mut pool, mut next) = (LeasePool::default(), 0);
        for second in 0..3_600 {
            lease(&mut pool, later(second * 1_000), 86_400_000, &mut next);
        }
        assert!((59..=62).contains(&next), "{next}");
    }

    #[test]
    fn a_shared_lease_outlives_every_record_by_the_spare_and_by_two_minutes_at_most() {
        let (mut pool, mut next) = (LeasePool::default(), 0);
        let mut ends = BTreeMap::new();
        let lefts = [1, 999, 1_000, 59_999, 60_000, 60_001, 3_600_000, u64::MAX];
        for step in 0..500u64 {
            let now = later(step * 777);
            for left_ms in lefts {
                let (id, is_new) = lease(&mut pool, now, left_ms, &mut next);
                if is_new {
                    let ttl_ms = seconds_for(left_ms).saturating_mul(1_000);
                    ends.insert(id, now.steady_ms.saturating_add(ttl_ms));
                }
                let beyond_ms = ends[&id] - now.steady_ms.saturating_add(left_ms).min(ends[&id]);
                if left_ms < u64::MAX {
                    assert!(
                        (60_000..=121_000).contains(&beyond_ms),
                        "{left_ms} {beyond_ms}"
                    );
                }
            }
        }
        assert!(pool.held.len() <= LEASES_MAX);
    }

    #[test]
    fn a_machine_that_slept_or_was_set_grants_anew() {
        let (mut pool, mut next) = (LeasePool::default(), 0);
        lease(&mut pool, BEGIN, 3_600_000, &mut next);
        assert_eq!(pool.find(later(5_000), 3_600_000), Some(1));
        for slip_ms in [3_600_000, 20_000] {
            let (ahead, behind) = (later(5_000), later(5_000));
            let ahead = BothClocks {
                wall_ms: ahead.wall_ms + slip_ms,
                ..ahead
            };
            let behind = BothClocks {
                wall_ms: behind.wall_ms - slip_ms,
                ..behind
            };
            assert_eq!(pool.find(ahead, 3_600_000), None);
            assert_eq!(pool.find(behind, 3_600_000), None);
        }
        pool.forget(1);
        assert_eq!(pool.find(later(5_000), 3_600_000), None);
    }

    #[test]
    fn no_more_leases_are_remembered_than_the_bound() {
        let mut pool = LeasePool::default();
        for id in 0..2 * LEASES_MAX as u64 {
            pool.keep(BEGIN, 1_000 + id * 120, id);
        }
        assert_eq!(pool.held.len(), LEASES_MAX);
        assert_eq!(pool.find(BEGIN, 3), None);
    }
}
