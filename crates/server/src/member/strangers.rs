//! Processes that ask to be let in without a proof: counted one by one, and logged rarely.
//!
//! Invariants
//! 1. However many come, they write `STRANGER_LINES_PER_SECOND` lines a second into the log. A line
//!    tells how many were left out before it.
//!
//! Not here: the judgement (`cluster.rs`, `peers/accept.rs`, `peers/hop.rs`), the audit log
//! (`audit/`).
//! See: docs/peer.md.

use crate::clock;
use crate::limits;
use crate::meter::Meter;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[derive(Debug)]
pub(crate) struct Strangers {
    /// Strangers that named no member of the cluster.
    pub(crate) unknown: AtomicU64,
    lines: Meter,
    unsaid: AtomicU64,
}

impl Strangers {
    pub(crate) fn new() -> Strangers {
        Strangers {
            unknown: AtomicU64::new(0),
            lines: Meter::with_burst(
                limits::STRANGER_LINES_PER_SECOND,
                limits::STRANGER_LINES_BURST,
            ),
            unsaid: AtomicU64::new(0),
        }
    }

    /// May one more line about a stranger be written? Then this many were left out before it.
    pub(crate) fn may_say(&self) -> Option<u64> {
        self.may_say_at(clock::monotonic_ns())
    }

    fn may_say_at(&self, now_ns: u64) -> Option<u64> {
        match self.lines.admit(1, now_ns) {
            Ok(()) => Some(self.unsaid.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.unsaid.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_strangers_writes_few_lines_and_each_tells_what_it_left_out() {
        let strangers = Strangers::new();
        let second_ns = 1_000_000_000;
        let (mut lines, mut left_out) = (0, 0);
        for n in 0..100_000 {
            if let Some(unsaid) = strangers.may_say_at(10 * second_ns + n * 10_000) {
                (lines, left_out) = (lines + 1, left_out + unsaid);
            }
        }
        let burst = limits::STRANGER_LINES_PER_SECOND * limits::STRANGER_LINES_BURST.as_secs();
        assert!(lines >= burst, "{lines}");
        assert!(
            lines <= burst + limits::STRANGER_LINES_PER_SECOND,
            "{lines}"
        );
        let last = strangers.may_say_at(100 * second_ns);
        assert_eq!(last.map(|unsaid| lines + left_out + unsaid), Some(100_000));
    }
}
