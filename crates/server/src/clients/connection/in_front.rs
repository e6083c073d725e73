//! The request in front of a connection, from the first look at it until it is begun.
//!
//! ```text
//! stands in the loop's line ─► looked at ─► pause ─► looked at ─► line for the log ─► looked at … ─► consumed
//!                            └─ a body that did not come with its head: its last byte ─► line for the log ─► begun
//! ```
//!
//! Invariants
//! 1. A request pauses once, and is counted once among the sizes of writes, however often it waits.
//! 2. Its deadline is counted from where its last byte was here, as far as the loop knows. No wait
//!    in a line moves it, nor do requests of the same client in front of it.
//! 3. Its latency has all of its waits but those for the client, and that in the loop's line, which
//!    is told apart (`event_loop/delay.rs`).
//!
//! Not here: the waits themselves (`mod.rs`), the length of a pause (crate `node`, `admission/`).
//! See: docs/api.md, "Deadlines and overload".

use crate::measure::metrics::RefusalCause;

/// The state of the request in front. Nothing, until the first look at it.
#[derive(Debug, Default)]
pub(super) struct RequestInFront {
    /// When its last byte was here, in microseconds, and when the loop began with it, in
    /// nanoseconds. `None` before the first look.
    since: Option<(u64, u64)>,
    /// The request has had its delay.
    pub(super) has_paused: bool,
    /// The quota has let it in.
    pub(super) is_admitted: bool,
    /// Why the request stands in line for the log or the engine, or has stood there: because of
    /// this.
    pub(super) in_line_by: Option<RefusalCause>,
    is_sized: bool,
}

impl RequestInFront {
    /// A request whose body did not come with its head, and is here now. In front of its body it
    /// has waited for `waited_ns`; the wait for the client is none of ours.
    pub(super) fn with_body(now_ns: u64, waited_ns: u64) -> RequestInFront {
        RequestInFront {
            since: Some((now_ns / 1_000, now_ns.saturating_sub(waited_ns))),
            ..RequestInFront::default()
        }
    }

    /// The loop looks at it. Its last byte was here at `came_us`.
    pub(super) fn look(&mut self, now_ns: u64, came_us: u64) {
        let came_us = came_us.min(now_ns / 1_000);
        self.since.get_or_insert((came_us, now_ns));
    }

    /// When its last byte was here. Requires: it was looked at.
    pub(super) fn came_us(&self) -> u64 {
        self.since.expect("it was looked at").0
    }

    /// The end of its time. Requires: it was looked at.
    pub(super) fn deadline_us(&self, timeout_ms: u32) -> u64 {
        self.came_us() + u64::from(timeout_ms) * 1_000
    }

    /// Where its latency is counted from. Requires: it was looked at.
    pub(super) fn began_ns(&self) -> u64 {
        self.since.expect("it was looked at").1
    }

    /// Is it let in for the first time? It may be looked at again after the line for the log.
    pub(super) fn is_to_be_sized(&mut self) -> bool {
        !std::mem::replace(&mut self.is_sized, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_is_looked_at_again_counts_once() {
        let mut request = RequestInFront::default();
        let counted = (0..3).filter(|_| request.is_to_be_sized()).count();
        assert_eq!(counted, 1);
    }

    #[test]
    fn no_wait_moves_the_deadline_or_the_begin() {
        let mut request = RequestInFront::default();
        request.look(5_000_000, 5_000);
        request.look(900_000_000, 800_000);
        assert_eq!(request.deadline_us(50), 55_000);
        assert_eq!(request.began_ns(), 5_000_000);
        let mut stood = RequestInFront::default();
        stood.look(4_000_000_000, 1_000);
        assert_eq!(stood.deadline_us(50), 51_000, "it was in the loop's line");
        let body = RequestInFront::with_body(7_000_000, 2_000_000);
        assert_eq!((body.deadline_us(1), body.began_ns()), (8_000, 5_000_000));
    }
}
