//! The work that a loop does for one connection, in calls out of its line.
//!
//! ```text
//! bytes read or written, requests answered ─► note ─► full calls: its source is charged for them
//!                                                └─► the turn is over: while others wait, they go first
//! ```
//!
//! Invariants
//! 1. Each call, and without a line each wait for a request, is free up to `WORK_OF_A_CALL`. So a
//!    small request that came alone charges nothing, and never gives way for one before it.
//!
//! Not here: turns among sources (crate `node`, `stacks/`), reading and writing (`socket.rs`).
//! See: docs/overload.md, "When the processor is what runs out".

use crate::limits;

/// Work of one connection in a turn.
#[derive(Debug, Default)]
pub(crate) struct TurnWork {
    /// Bytes since it began or was charged.
    bytes: usize,
    is_turn_over: bool,
}

impl TurnWork {
    /// The connection was called, or waits for its next request.
    pub(crate) fn begin(&mut self) {
        *self = TurnWork::default();
    }

    /// So many bytes of work were done: returns the calls to charge for.
    #[inline]
    pub(crate) fn note(&mut self, bytes: usize) -> usize {
        self.bytes += bytes;
        if self.bytes < limits::WORK_OF_A_CALL {
            return 0;
        }
        let calls = self.bytes / limits::WORK_OF_A_CALL;
        self.bytes %= limits::WORK_OF_A_CALL;
        self.is_turn_over = true;
        calls
    }

    /// Has it done the work of a call? Told once.
    pub(crate) fn take_is_over(&mut self) -> bool {
        std::mem::take(&mut self.is_turn_over)
    }
}

/// The most bytes of a body that are read in a row.
pub(crate) fn body_piece(is_crowded: bool) -> usize {
    if is_crowded {
        limits::WORK_OF_A_CALL
    } else {
        limits::BODY_READ_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: usize = limits::WORK_OF_A_CALL;

    #[test]
    fn what_is_more_than_a_call_is_charged_and_ends_the_turn_once() {
        let mut work = TurnWork::default();
        assert_eq!(work.note(CALL - 1), 0);
        assert!(!work.take_is_over());
        assert_eq!(work.note(16 * CALL + 1), 17);
        assert!(work.take_is_over() && !work.take_is_over());
        assert_eq!(work.note(CALL - 1), 0);
        work.note(CALL);
        work.begin();
        assert_eq!(
            work.note(CALL - 1),
            0,
            "each call is free up to its own work"
        );
        assert!(!work.take_is_over(), "that of the call before is over");
    }

    #[test]
    fn thirty_two_requests_that_came_together_are_four_calls() {
        let mut work = TurnWork::default();
        let charged = (0..limits::REQUESTS_A_TURN).map(|_| work.note(limits::WORK_OF_A_REQUEST));
        assert_eq!(charged.sum::<usize>(), 4);
    }

    #[test]
    fn a_piece_of_a_body_is_the_work_of_a_call_while_others_wait() {
        assert_eq!(body_piece(true), CALL);
        assert!(body_piece(false) > CALL);
    }
}
