//! Whether a client may send a request again, and after which pause: values without a clock.
//!
//! ```text
//! sent() ─► earns a tenth of a retry, up to BURST      try_again() ─► pays one retry, or refuses
//! pause(tries so far, Retry-After, chance) ─► how long the client waits before the next try
//! pay(FailedTry) ─► try_again(), or else RETRY_AFTER_MAX: for a client that has patience
//! ```
//!
//! Each retry is more work for a node that has too much of it. For `r` first requests a node gets
//! at most `1.1 r + BURST` requests, however long it refuses; of a client with patience also one in
//! each `RETRY_AFTER_MAX` of each request.
//!
//! Invariants
//! 1. Retries that are paid for are never more than a tenth of the first requests, and `BURST`.
//!    Each other one, which only a client with patience sends, waits for `RETRY_AFTER_MAX`.
//! 2. A pause is never shorter than `Retry-After`, up to `RETRY_AFTER_MAX`.
//! 3. Each try after one that was sent costs a retry, however that one failed.
//!
//! Not here: which answers are worth another try (`answer.rs`), waiting (`load/sender.rs`).
//! See: docs/cli.md, "Trying again".

use super::{Trouble, WholeAnswer};
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

/// How a try ended that is worth another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedTry {
    /// No connection was found: no node had work from it.
    Unsent,
    /// A node may have had work from it, and perhaps said when to come again.
    Sent { retry_after: Option<Duration> },
}

impl FailedTry {
    pub(crate) fn refused(answer: &WholeAnswer) -> FailedTry {
        FailedTry::Sent {
            retry_after: answer.retry_after(),
        }
    }

    pub(crate) fn unanswered(trouble: &Trouble) -> FailedTry {
        match trouble {
            Trouble::Unreachable(_) => FailedTry::Unsent,
            _ => FailedTry::Sent { retry_after: None },
        }
    }
}

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

    /// Pays for the try after this one, by a client that goes on until its patience is over: what
    /// that try waits for, as a `Retry-After`. Without a retry left it is the longest there is.
    pub(crate) fn pay(&mut self, failed: FailedTry) -> Option<Duration> {
        match failed {
            FailedTry::Unsent => None,
            FailedTry::Sent { .. } if !self.try_again() => Some(RETRY_AFTER_MAX),
            FailedTry::Sent { retry_after } => retry_after,
        }
    }
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
    fn a_patient_client_pays_for_each_try_after_one_that_was_sent_and_then_waits_five_seconds() {
        let mut budget = Budget::new();
        let mut pay = |failed| budget.pay(failed).map(|it| it.as_secs());
        let refused = |seconds| FailedTry::Sent {
            retry_after: Some(Duration::from_secs(seconds)),
        };
        let silent = FailedTry::unanswered(&Trouble::Broken("reset".to_owned()));
        let absent = FailedTry::unanswered(&Trouble::Unreachable("refused".to_owned()));
        for number in 0..BURST {
            if number % 2 == 0 {
                assert_eq!(pay(refused(1)), Some(1));
            } else {
                assert_eq!(pay(silent), None);
            }
            assert_eq!(pay(absent), None);
        }
        assert_eq!([pay(refused(0)), pay(silent)], [Some(5), Some(5)]);
        assert_eq!(pay(absent), None, "no node had work from that try");
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
