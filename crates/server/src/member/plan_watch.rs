//! Says that a plan waits, and that it goes on: a line in the log at the beginning and at the end.
//!
//! ```text
//! goes on ── waits for the same members for PLAN_WAIT_US ──► said ── goes on, or ends ──► said
//! ```
//!
//! Invariants
//! 1. A wait for members that was said is not said again, also when its sentence has other numbers.
//!
//! Not here: why a plan waits (crate `ownership`, `steward/waiting.rs`), who asks
//! (`peers/home.rs`).
//! See: docs/operating.md, section "Change the members".

use crate::limits;
use dendra_ownership::steward::face::PlanWait;

/// A plan, and the members that it waits for.
type WaitSubject = (u64, Vec<String>);

/// A change that an operator should know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitNews {
    Waits,
    GoesOn,
}

/// What was said last.
#[derive(Debug, Default)]
pub(crate) struct PlanWatch {
    said: Option<WaitSubject>,
    /// The wait of now, and since when it is the same.
    since: Option<(WaitSubject, u64)>,
}

impl PlanWatch {
    /// Looks at the plan, and writes a line to the log if it has changed.
    pub(crate) fn look(&mut self, now_us: u64, wait: Option<&(u64, PlanWait)>) {
        let of = wait.map(|(plan, wait)| (*plan, wait.members.clone()));
        let before = self.said.as_ref().map(|(plan, _)| *plan);
        match (self.news(now_us, of), wait) {
            (Some(WaitNews::Waits), Some((plan, wait))) => {
                tracing::warn!(plan, why = wait.why, "the plan under way waits");
            }
            (Some(WaitNews::GoesOn), _) => {
                tracing::info!(plan = before, "the plan waits no more");
            }
            _ => {}
        }
    }

    fn news(&mut self, now_us: u64, wait: Option<WaitSubject>) -> Option<WaitNews> {
        let Some(wait) = wait else {
            self.since = None;
            return self.said.take().map(|_| WaitNews::GoesOn);
        };
        let before = self.since.take().filter(|(of, _)| *of == wait);
        let (_, since_us) = *self.since.insert(before.unwrap_or((wait, now_us)));
        let (waiting, _) = self.since.as_ref()?;
        if self.said.as_ref() == Some(waiting) || now_us < since_us + limits::PLAN_WAIT_US {
            return None;
        }
        self.said = Some(waiting.clone());
        Some(WaitNews::Waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PLAN_WAIT_US;

    #[test]
    fn a_wait_is_said_when_it_lasts_and_when_it_ends_and_not_between() {
        let mut watch = PlanWatch::default();
        let on = |url: &str| Some((3, vec![url.to_owned()]));
        assert_eq!(watch.news(0, None), None);
        assert_eq!(watch.news(1, on("http://h1:1")), None);
        assert_eq!(watch.news(2, None), None, "it was not said");
        assert_eq!(watch.news(3, on("http://h1:1")), None);
        let long = PLAN_WAIT_US + 3;
        assert_eq!(watch.news(long - 1, on("http://h1:1")), None);
        assert_eq!(watch.news(long, on("http://h1:1")), Some(WaitNews::Waits));
        for later in 1..100 {
            assert_eq!(
                watch.news(long + later * PLAN_WAIT_US, on("http://h1:1")),
                None
            );
        }
        let other = 200 * PLAN_WAIT_US;
        assert_eq!(watch.news(other, on("http://h2:1")), None);
        let news = watch.news(other + PLAN_WAIT_US, on("http://h2:1"));
        assert_eq!(news, Some(WaitNews::Waits), "for another member");
        assert_eq!(watch.news(other * 2, None), Some(WaitNews::GoesOn));
        assert_eq!(watch.news(other * 2 + 1, None), None);
    }
}
