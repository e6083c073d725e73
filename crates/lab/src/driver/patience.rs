//! Requests that are not worth sending any more, and how often lost connections are made again.
//!
//! ```text
//! answer ─► note: how long one takes ─► is_hopeless: due + timeout is nearer than that ─► never sent
//! timeout ─► connection closed ─► may_reconnect: a bucket that fills with RECONNECTS_PER_SECOND_MAX
//! ```
//!
//! A target that has more than it can do answers every request that it gets. A request that is sent
//! a moment before its timeout only makes it work in vain, and costs a connection. HTTP/1.1 cannot
//! take a request back. So one that waited at the generator is given up there, while there is no
//! time left for an answer.
//!
//! Invariants
//! 1. A request that is sent when it is due is never hopeless, and half of the timeout is always
//!    enough.
//!
//! Not here: the record of such a request (`worker/`).
//! See: docs/overload.md, section "The lab".

use crate::limits::RECONNECTS_PER_SECOND_MAX;

const SECOND_NS: u64 = 1_000_000_000;
/// An answer that was slow is forgotten by a 64th with each that comes after it.
const FORGETS: u32 = 6;

#[derive(Debug)]
pub(super) struct Patience {
    timeout_ns: u64,
    /// About how long the slowest of the last answers took.
    slow_ns: u64,
    /// Nanoseconds that connections may still use up.
    budget_ns: u64,
    filled_ns: u64,
}

impl Patience {
    pub(super) fn new(timeout_ns: u64) -> Patience {
        Patience {
            timeout_ns,
            slow_ns: 0,
            budget_ns: SECOND_NS,
            filled_ns: 0,
        }
    }

    /// An answer took so long from its request on.
    pub(super) fn note(&mut self, took_ns: u64) {
        self.slow_ns = took_ns.max(self.slow_ns - (self.slow_ns >> FORGETS));
    }

    /// Would the answer to a request that is sent now come too late?
    pub(super) fn is_hopeless(&self, due_ns: u64, now_ns: u64) -> bool {
        let answer_ns = self.slow_ns.min(self.timeout_ns / 2);
        now_ns.saturating_sub(due_ns) > self.timeout_ns - answer_ns
    }

    /// May one more connection be made again?
    pub(super) fn may_reconnect(&mut self, now_ns: u64) -> bool {
        let since_ns = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = now_ns;
        self.budget_ns = SECOND_NS.min(self.budget_ns.saturating_add(since_ns));
        let costs_ns = SECOND_NS / RECONNECTS_PER_SECOND_MAX;
        let may = self.budget_ns >= costs_ns;
        if may {
            self.budget_ns -= costs_ns;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_cannot_be_answered_in_time_is_hopeless() {
        let mut patience = Patience::new(100 * MS);
        assert!(!patience.is_hopeless(0, 100 * MS), "nothing is known yet");
        patience.note(30 * MS);
        assert!(!patience.is_hopeless(0, 70 * MS));
        assert!(patience.is_hopeless(0, 70 * MS + 1));
        patience.note(5_000 * MS);
        assert!(!patience.is_hopeless(0, 50 * MS), "half is always enough");
        for _ in 0..1_000 {
            patience.note(MS);
        }
        assert!(!patience.is_hopeless(0, 98 * MS), "slow ones are forgotten");
    }

    #[test]
    fn reconnects_are_as_many_a_second_as_their_bound() {
        let mut patience = Patience::new(100 * MS);
        let mut made = 0;
        for ms in 0..10_000 {
            made += (0..50).filter(|_| patience.may_reconnect(ms * MS)).count() as u64;
        }
        let most = 11 * RECONNECTS_PER_SECOND_MAX;
        assert!((most * 9 / 10..=most).contains(&made), "{made}");
    }
}
