//! A read that its server does not answer soon is asked of a second one, too.
//!
//! ```text
//! first ──── `after` ────────────────► whichever succeeds first
//!                  └─ room? ─► second ─►
//! ```
//!
//! Invariants
//! 1. At most `HEDGES_MAX` second questions at once: an engine that is slow as a whole gets that
//!    much more work, and no more.
//! 2. Reads alone: a write is sent once.
//!
//! Not here: which servers are asked (each driver).

use std::pin::pin;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Ten times as long as a quorum read takes within a data centre, and a fiftieth of the usual
/// deadline.
pub(crate) const HEDGE_AFTER: Duration = Duration::from_millis(100);
const HEDGES_MAX: usize = 16;

/// The room for second questions.
#[derive(Debug)]
pub(crate) struct Hedges(Semaphore);

impl Hedges {
    pub(crate) fn new() -> Hedges {
        Hedges(Semaphore::new(HEDGES_MAX))
    }

    /// The answer to `first`, or that to `second`, which begins when the first one takes `after`.
    pub(crate) async fn race<T, E>(
        &self,
        after: Duration,
        first: impl Future<Output = Result<T, E>>,
        second: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let (mut first, second) = (pin!(first), pin!(second));
        if let Ok(answer) = tokio::time::timeout(after, &mut first).await {
            return answer;
        }
        let Ok(_room) = self.0.try_acquire() else {
            return first.await;
        };
        let mut second = second;
        tokio::select! {
            answer = &mut first => match answer {
                Ok(answer) => Ok(answer),
                Err(_) => second.await,
            },
            answer = &mut second => match answer {
                Ok(answer) => Ok(answer),
                Err(_) => first.await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    type Answer = Result<u8, &'static str>;

    #[tokio::test]
    async fn a_silent_server_is_passed_and_a_failed_second_one_changes_nothing() {
        let hedges = Hedges::new();
        let silent = || pending::<Answer>();
        assert_eq!(
            hedges.race(HEDGE_AFTER, ready(Ok(1)), silent()).await,
            Ok::<_, &str>(1)
        );
        assert_eq!(
            hedges.race(HEDGE_AFTER, silent(), ready(Ok(2))).await,
            Ok::<_, &str>(2)
        );
        let late = async {
            tokio::time::sleep(3 * HEDGE_AFTER).await;
            Answer::Ok(1)
        };
        assert_eq!(
            hedges.race(HEDGE_AFTER, late, ready(Err("away"))).await,
            Ok(1)
        );
        // A failure that comes soon is an answer: the driver has asked all servers already.
        assert_eq!(
            hedges
                .race(HEDGE_AFTER, ready(Err("away")), ready(Ok(2)))
                .await,
            Err("away")
        );
    }

    #[tokio::test]
    async fn second_questions_have_a_bound() {
        let hedges = Hedges::new();
        let all = hedges.0.try_acquire_many(HEDGES_MAX as u32);
        let _all = all.expect("none is taken");
        let late = async {
            tokio::time::sleep(2 * HEDGE_AFTER).await;
            Answer::Ok(1)
        };
        assert_eq!(hedges.race(HEDGE_AFTER, late, ready(Ok(2))).await, Ok(1));
        assert_eq!(hedges.0.available_permits(), 0);
    }
}
