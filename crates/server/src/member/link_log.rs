//! The lines of the log about the links to one peer: one for an event, however many loops see it.
//!
//! ```text
//! every loop's link is up          ─► one line, and all is forgotten
//! a loop lost its link, or got none ─┬─ a reason that was not told since ─► a line
//!                                    └─ one that was ─► counted; a line with the count each minute
//! ```
//!
//! Invariants
//! 1. An equal reason is told once in `LINK_LINE_EVERY`, and the next line about it says how many
//!    there were.
//! 2. At most `LINK_REASONS_MAX` reasons are remembered: the one that was told first makes room.
//!
//! Not here: processes that no member knows (`strangers.rs`), the links themselves
//! (`peers/link.rs`).

use crate::limits;
use std::time::Duration;

/// A reason that was told.
#[derive(Debug)]
struct ToldReason {
    reason: String,
    told_us: u64,
    untold: u64,
}

/// How often a reason came since it was told last, and how long ago that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReasonCount {
    pub(crate) times: u64,
    pub(crate) seconds: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LinkLog {
    links: usize,
    told: Vec<ToldReason>,
}

impl LinkLog {
    /// A loop's link is up, of so many loops. `Some`: the last one, which is to be told, with the
    /// number of failures that were not.
    pub(crate) fn up(&mut self, loops: usize) -> Option<u64> {
        self.links += 1;
        (self.links == loops).then(|| {
            let untold = self.told.drain(..).map(|told| told.untold);
            untold.sum()
        })
    }

    /// A link that was up is not any more.
    pub(crate) fn down(&mut self) {
        self.links -= 1;
    }

    /// A loop has no link, for this reason. `Some`: it is to be told.
    pub(crate) fn fail(&mut self, reason: &str, now_us: u64) -> Option<ReasonCount> {
        let every_us = limits::LINK_LINE_EVERY.as_micros() as u64;
        let Some(told) = self.told.iter_mut().find(|told| told.reason == reason) else {
            if self.told.len() == limits::LINK_REASONS_MAX {
                self.told.remove(0);
            }
            self.told.push(ToldReason {
                reason: reason.to_owned(),
                told_us: now_us,
                untold: 0,
            });
            return Some(ReasonCount {
                times: 1,
                seconds: 0,
            });
        };
        told.untold += 1;
        let since_us = now_us.saturating_sub(told.told_us);
        if since_us < every_us {
            return None;
        }
        let times = std::mem::take(&mut told.untold);
        told.told_us = now_us;
        let seconds = Duration::from_micros(since_us).as_secs();
        Some(ReasonCount { times, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_US: u64 = limits::LINK_LINE_EVERY.as_micros() as u64;

    #[test]
    fn an_event_that_every_loop_sees_is_one_line() {
        let mut log = LinkLog::default();
        let ups: Vec<_> = (0..4).map(|_| log.up(4)).collect();
        assert_eq!(ups, [None, None, None, Some(0)]);
        let mut lines = 0;
        for now_us in 0..4 {
            log.down();
            lines += usize::from(log.fail("the link was lost", now_us).is_some());
        }
        for now_us in 4..12 {
            lines += usize::from(log.fail("refused", now_us).is_some());
        }
        assert_eq!(lines, 2, "lost, and then refused");
        let ups: Vec<_> = (0..4).map(|_| log.up(4)).collect();
        assert_eq!(ups, [None, None, None, Some(3 + 7)]);
        log.down();
        let again = log.fail("the link was lost", 13);
        assert!(again.is_some(), "another event");
    }

    #[test]
    fn an_equal_reason_is_counted_and_told_once_a_minute() {
        let mut log = LinkLog::default();
        let once = ReasonCount {
            times: 1,
            seconds: 0,
        };
        assert_eq!(log.fail("refused", 0), Some(once));
        for n in 1..214 {
            assert_eq!(log.fail("refused", n * MINUTE_US / 214), None);
        }
        let counted = ReasonCount {
            times: 214,
            seconds: 60,
        };
        assert_eq!(log.fail("refused", MINUTE_US), Some(counted));
        assert_eq!(log.fail("refused", MINUTE_US + 1), None);
    }

    #[test]
    fn reasons_that_are_always_new_take_no_more_room() {
        let mut log = LinkLog::default();
        for n in 0..100 {
            assert!(log.fail(&n.to_string(), n).is_some());
        }
        assert_eq!(log.told.len(), limits::LINK_REASONS_MAX);
        assert!(log.fail("99", 100).is_none(), "the newest are remembered");
    }
}
