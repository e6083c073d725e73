//! Whether a client may send a request again, and after which pause: values without a clock.
//!
//! ```text
//! sent() ─► earns a tenth of a retry, up to BURST      try_again() ─► pays one retry, or refuses
//! pause(tries so far, Retry-After, chance) ─► how long the client waits before the next try
//! ```
//!
//! Each retry is more work for a node that has too much of it. For `r` first requests a node gets
//! at most `1.1 r + BURST` requests, however long it refuses.
//!
//! Invariants
//! 1. Retries are never more than a tenth of the first requests, and `BURST`.
//! 2. A pause is never shorter than `Retry-After`, up to `RETRY_AFTER_MAX`.
//!
//! Not here: which answers are worth another try (`answer.rs`), waiting (`load/sender.rs`).
//! See: docs/cli.md, "Trying again".

use std::time::Duration;

/// Retries beside the tenth. It is the default of `load --in-flight`: a load survives one refusal
/// of everything that it has in flight.
pub(crate) const BURST: u64 = 64;

/// Requests that earn one retry.
const REQUESTS_A_RETRY: u64 = 10;

/// The bound of the first pause; the bound doubles with each further try.
const PAUSE_FIRST: Duration = Duration::from_millis(10);

/// The largest bound of a pause without a `Retry-After`.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The most of a `Retry-After` that a client honours.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// How many retries are left.
#[derive(Debug)]
pub(crate) struct Budget {
    /// In requests that were sent first: a retry costs `REQUESTS_A_RETRY` of them.
    earned: u64,
}

impl Budget {
    /// With the whole burst.
    pub(crate) fn new() -> Budget {
        Budget {
            earned: BURST * REQUESTS_A_RETRY,
        }
    }

    /// The client sends a request for the first time.
    pub(crate) fn sent(&mut self) {
        self.earned = (self.earned + 1).min(BURST * REQUESTS_A_RETRY);
    }

    /// May the client send one more retry? The budget pays for it when the answer is yes.
    pub(crate) fn try_again(&mut self) -> bool {
        match self.earned.checked_sub(REQUESTS_A_RETRY) {
            Some(left) => {
                self.earned = left;
                true
            }
            None => false,
        }
    }
}

/// As `pause`, for a client that goes on until its patience is over. A try after a refusal costs a
/// retry; without one left the client waits as long as it ever does.
pub(crate) fn patient_pause(
    budget: &mut Budget,
    tries: u32,
    retry_after: Option<Duration>,
    chance: f64,
) -> Duration {
    let asked = if retry_after.is_none() || budget.try_again() {
        retry_after
    } else {
        Some(RETRY_AFTER_MAX)
    };
    pause(tries, asked, chance)
}

/// The sentence after the server's own when the budget is spent.
pub(crate) fn spent() -> String {
    format!(
        "not sent again: retries are at most a tenth of the requests, and {BURST}; \
         load it again later, or with fewer --in-flight"
    )
}

/// How long to wait before try number `tries + 1`. `chance` is from zero to one.
///
/// Without a `Retry-After`: any time below a bound that doubles (full jitter). With one: that time
/// and up to half of it more, so that clients that were refused together do not return together.
pub(crate) fn pause(tries: u32, retry_after: Option<Duration>, chance: f64) -> Duration {
    let chance = chance.clamp(0.0, 1.0);
    match retry_after {
        Some(asked) => asked.min(RETRY_AFTER_MAX).mul_f64(1.0 + chance / 2.0),
        None => {
            let doubled = PAUSE_FIRST.saturating_mul(1 << tries.saturating_sub(1).min(16));
            doubled.min(PAUSE_MAX).mul_f64(chance)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_tenth_of_the_requests_and_a_burst() {
        let mut budget = Budget::new();
        let mut retries = 0;
        for _ in 0..10_000 {
            budget.sent();
            retries += (0..5).filter(|_| budget.try_again()).count() as u64;
        }
        // The first request earns no retry: the burst is whole.
        assert_eq!(retries, (10_000 - 1) / REQUESTS_A_RETRY + BURST);
    }

    #[test]
    fn a_patient_client_without_a_retry_left_waits_five_seconds_behind_each_refusal() {
        let mut budget = Budget::new();
        let mut ms = |asked: Option<u64>| {
            let asked = asked.map(Duration::from_secs);
            patient_pause(&mut budget, 1, asked, 0.0).as_millis()
        };
        assert!((0..BURST).all(|_| ms(Some(1)) == 1_000));
        assert_eq!([ms(Some(1)), ms(Some(2))], [5_000, 5_000]);
        assert_eq!(ms(None), 0, "no node had work from that try");
    }

    #[test]
    fn calm_saves_up_no_more_than_the_burst() {
        let mut budget = Budget::new();
        (0..1_000_000).for_each(|_| budget.sent());
        let retries = (0..1_000).filter(|_| budget.try_again()).count() as u64;
        assert_eq!(retries, BURST);
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_lie_anywhere_below_it() {
        let ms = |tries, chance| pause(tries, None, chance).as_millis();
        assert_eq!([ms(1, 1.0), ms(2, 1.0), ms(5, 1.0)], [10, 20, 160]);
        assert_eq!([ms(8, 1.0), ms(u32::MAX, 1.0)], [1000, 1000]);
        assert_eq!([ms(1, 0.0), ms(8, 0.25)], [0, 250]);
    }

    #[test]
    fn a_pause_is_at_least_retry_after_and_at_most_half_of_it_longer() {
        let of = |asked, chance| pause(7, Some(Duration::from_secs(asked)), chance).as_millis();
        assert_eq!([of(2, 0.0), of(2, 0.5), of(2, 1.0)], [2000, 2500, 3000]);
        assert_eq!(of(60, 0.0), 5000, "a client honours five seconds at most");
    }
}
