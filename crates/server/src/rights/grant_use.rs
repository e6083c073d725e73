//! How much the holders of a grant have used: rates of requests and bytes, and stored bytes.
//!
//! Invariants
//! 1. Over any time, requests are let in for that time at the rate and a second more.
//! 2. Bytes that are charged afterwards are paid back before the next request is let in. The debt
//!    is at most `QUOTA_DEBT`, so that a client is not shut out for long.
//!
//! Not here: the rate itself (`meter.rs`), the grant of a token (`mod.rs`), how much is stored
//! (`disk/stored.rs`).
//! See: docs/api.md, section "Quotas".

use crate::limits;
use crate::measure::tally::labels;
use crate::meter::Meter;
use dendra_wire::Refusal;
use dendra_wire::rights::{Grant, Quota};
use std::sync::atomic::{AtomicU64, Ordering};

labels! {
    /// By which quota a request was refused.
    pub(crate) enum QuotaKind {
        /// Requests a second.
        Requests = "requests",
        /// Bytes a second.
        Bytes = "bytes",
        /// Bytes that are stored.
        Stored = "stored",
    }
}

/// The use of a grant with a quota on this node.
#[derive(Debug)]
pub(crate) struct GrantUse {
    pub(crate) id: String,
    pub(crate) prefix: Vec<u8>,
    quota: Quota,
    requests: Option<Meter>,
    bytes: Option<Meter>,
    /// Bytes that the keys of the grant take, at the last look.
    pub(crate) stored: AtomicU64,
    /// Values that were let in since.
    unseen: AtomicU64,
    /// Requests that were let in.
    pub(crate) admitted: AtomicU64,
    /// Bytes of requests and answers.
    pub(crate) moved: AtomicU64,
    /// Requests that were refused, by `QuotaKind`.
    pub(crate) refused: [AtomicU64; 3],
}

impl GrantUse {
    /// Use of a grant that has a quota.
    pub(crate) fn of(grant: &Grant) -> Option<GrantUse> {
        if grant.quota == Quota::NONE {
            return None;
        }
        Some(GrantUse {
            id: grant.id.clone(),
            prefix: grant.prefix.clone(),
            quota: grant.quota,
            requests: grant.quota.requests_per_second.map(Meter::new),
            bytes: grant.quota.bytes_per_second.map(Meter::new),
            stored: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
            admitted: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            refused: Default::default(),
        })
    }

    /// Does it count for this grant?
    pub(crate) fn is_of(&self, grant: &Grant) -> bool {
        (&self.id, &self.prefix, &self.quota) == (&grant.id, &grant.prefix, &grant.quota)
    }

    /// The bytes that the grant may store.
    pub(crate) fn stored_max(&self) -> Option<u64> {
        self.quota.stored_bytes
    }

    /// Lets a request in; `value_bytes` of one that stores a value.
    ///
    /// # Errors
    /// By which quota it is refused, and how: 429, 507. It is not counted yet.
    pub(crate) fn admit(
        &self,
        value_bytes: Option<u64>,
        now_ns: u64,
    ) -> Result<(), (QuotaKind, Refusal)> {
        if let (Some(bytes), Some(most)) = (value_bytes, self.quota.stored_bytes) {
            let stored = self.stored.load(Ordering::Relaxed);
            let stored = stored.saturating_add(self.unseen.load(Ordering::Relaxed));
            if stored.saturating_add(bytes) > most {
                let wait_s = limits::STORED_LOOK.as_secs() as u32;
                let refusal = Refusal::over_stored_quota(&self.id, stored, most, wait_s);
                return Err((QuotaKind::Stored, refusal));
            }
        }
        // Bytes are charged when they are known; a request itself is free here.
        if let Some(meter) = &self.bytes
            && let Err(wait_ns) = meter.admit(0, now_ns)
        {
            return Err(self.too_many(QuotaKind::Bytes, self.quota.bytes_per_second, wait_ns));
        }
        if let Some(meter) = &self.requests
            && let Err(wait_ns) = meter.admit(1, now_ns)
        {
            let most = self.quota.requests_per_second;
            return Err(self.too_many(QuotaKind::Requests, most, wait_ns));
        }
        self.admitted.fetch_add(1, Ordering::Relaxed);
        if self.quota.stored_bytes.is_some() {
            let bytes = value_bytes.unwrap_or(0);
            self.unseen.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A request is refused.
    pub(crate) fn count_refusal(&self, kind: QuotaKind) {
        self.refused[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn too_many(&self, kind: QuotaKind, most: Option<u64>, wait_ns: u64) -> (QuotaKind, Refusal) {
        let seconds = wait_ns.div_ceil(1_000_000_000).max(1);
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        let most = most.unwrap_or(0);
        let refusal = Refusal::over_quota(&self.id, kind.as_str(), most, seconds);
        (kind, refusal)
    }

    /// Counts bytes that were read or written for its holder.
    pub(crate) fn charge(&self, bytes: u64, now_ns: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        if let Some(meter) = &self.bytes {
            meter.charge(bytes, now_ns);
        }
    }

    /// So many bytes are stored, values included that came before the look began.
    pub(crate) fn note_stored(&self, bytes: u64, seen: u64) {
        self.stored.store(bytes, Ordering::Relaxed);
        self.unseen.fetch_sub(seen, Ordering::Relaxed);
    }

    /// Values that were let in since the last look.
    pub(crate) fn unseen(&self) -> u64 {
        self.unseen.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_wire::rights::TokenRole;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn grant(quota: Quota) -> GrantUse {
        let mut grant = Grant::of_token("app", TokenRole::Write, b"a/", [0; 32]);
        grant.quota = quota;
        GrantUse::of(&grant).expect("it has a quota")
    }

    #[test]
    fn a_second_of_requests_is_let_in_at_once_and_then_as_many_as_the_rate() {
        let used = grant(Quota {
            requests_per_second: Some(4),
            ..Quota::NONE
        });
        let now = 100 * S;
        let admit = |at_ns| {
            used.admit(None, at_ns)
                .map_err(|(_, bad)| bad.retry_after_s)
        };
        for _ in 0..4 {
            assert_eq!(admit(now), Ok(()));
        }
        assert_eq!(admit(now), Err(Some(1)));
        let next = now + S / 4;
        assert_eq!(admit(next - 1), Err(Some(1)), "a nanosecond too early");
        assert_eq!(admit(next), Ok(()));
        assert_eq!(admit(now + 10 * S), Ok(()));
        assert_eq!(used.admitted.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn bytes_are_paid_back_before_the_next_request_and_not_for_ever() {
        let used = grant(Quota {
            bytes_per_second: Some(1_000),
            ..Quota::NONE
        });
        let now = 100 * S;
        let admit = |at_ns| {
            used.admit(None, at_ns)
                .map_err(|(_, bad)| bad.retry_after_s)
        };
        assert_eq!(admit(now), Ok(()));
        used.charge(5_000, now);
        assert_eq!(admit(now), Err(Some(4)));
        assert_eq!(admit(now + 4 * S), Ok(()));
        used.charge(u64::MAX, now);
        let debt_s = limits::QUOTA_DEBT.as_secs();
        assert_eq!(admit(now), Err(Some(debt_s as u32 - 1)));
        assert_eq!(admit(now + debt_s * S), Ok(()));
    }

    #[test]
    fn a_value_that_does_not_fit_the_stored_bytes_is_refused_and_a_read_is_not() {
        let used = grant(Quota {
            stored_bytes: Some(1_000),
            ..Quota::NONE
        });
        let status = |bytes| used.admit(bytes, S).map_err(|(_, bad)| bad.status);
        assert_eq!(status(Some(600)), Ok(()));
        assert_eq!(status(Some(600)), Err(507), "the first one counts at once");
        assert_eq!(status(None), Ok(()));
        used.note_stored(400, 600);
        assert_eq!(status(Some(600)), Ok(()));
        assert_eq!(status(Some(1)), Err(507));
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate_and_one_second_of_it(
            rate in 1_u64..50,
            steps in prop::collection::vec((0_u64..S, 1_u64..5), 1..200),
        ) {
            let meter = Meter::new(rate);
            let (mut now, mut let_in) = (S, 0);
            for (pause, n) in steps {
                now += pause;
                let_in += match meter.admit(n, now) {
                    Ok(()) => n,
                    // It says the truth: then it would, and a moment before it would not.
                    Err(wait_ns) if n <= rate => {
                        prop_assert!(meter.admit(n, now + wait_ns - 1).is_err());
                        now += wait_ns;
                        prop_assert!(meter.admit(n, now).is_ok());
                        n
                    }
                    Err(_) => 0,
                };
                prop_assert!(let_in * S <= rate * (now - S) + rate * S + rate * let_in);
            }
        }
    }
}
