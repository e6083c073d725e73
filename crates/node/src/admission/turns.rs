//! Turns of two lines in front of one engine: orders of members, and writes of clients.
//!
//! ```text
//! both have a write that may go    orders: a turn of bytes ─► clients: as much ─► orders …
//! one of them has                  it goes, and the other one saves nothing up
//! ```
//!
//! Members that refill the engine's room as soon as it comes back took all of it: a client waited
//! until its deadline. Turns follow bytes, as the order within a line does (`line.rs`): one large
//! write is paid back by as many bytes of small ones. A turn is longer than one write. One order
//! for each client would make each order a batch of its own.
//!
//! Invariants
//! 1. While a write of each line may go, one line sends a turn at most, the bytes by which the
//!    other one overdrew its own turn, and the last write beyond that.
//! 2. A line without a write that may go holds the other one up never.
//!
//! Not here: the order within a line (`line.rs`); which write may go (its users).
//! See: docs/overload.md, "Large and small writes".

use crate::limits::DELAY_WRITE_BYTES_MIN;

/// A line of writes in front of one loop's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOf {
    /// Writes to the own store, of all members' clients.
    Orders,
    /// Requests of clients of this member.
    Clients,
}

/// The line whose turn it is, and how much of the turn is left.
#[derive(Clone, Copy, Debug)]
pub struct LineTurns {
    turn_bytes: i64,
    turn: LineOf,
    /// More than zero.
    left: i64,
}

impl LineTurns {
    /// Turns of so many bytes; orders come first.
    pub fn new(turn_bytes: u32) -> LineTurns {
        let turn_bytes = i64::from(turn_bytes.max(1));
        LineTurns {
            turn_bytes,
            turn: LineOf::Orders,
            left: turn_bytes,
        }
    }

    /// May a write of this line go now? `is_other_ready`: so may one of the other line.
    pub fn may_go(&self, line: LineOf, is_other_ready: bool) -> bool {
        !is_other_ready || self.turn == line
    }

    /// A write of this line goes, with a value of `bytes`. Requires: it may.
    pub fn went(&mut self, line: LineOf, bytes: u64, is_other_ready: bool) {
        if self.turn != line {
            // The other one had nothing that might go.
            (self.turn, self.left) = (line, self.turn_bytes);
        }
        let counted = bytes.max(DELAY_WRITE_BYTES_MIN);
        self.left -= i64::try_from(counted).unwrap_or(i64::MAX);
        if self.left > 0 {
            return;
        }
        if is_other_ready {
            // With the bytes that this one took beyond its turn.
            (self.turn, self.left) = (line.other(), self.turn_bytes - self.left);
        } else {
            self.left = 1;
        }
    }
}

impl LineOf {
    fn other(self) -> LineOf {
        match self {
            LineOf::Orders => LineOf::Clients,
            LineOf::Clients => LineOf::Orders,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::Prng;

    const TURN: u32 = 10_000;

    /// The lines that go, while writes of these bytes wait in both.
    fn order_of(orders: u64, clients: u64, writes: usize) -> Vec<LineOf> {
        let mut turns = LineTurns::new(TURN);
        let mut next = || {
            let line = [LineOf::Orders, LineOf::Clients]
                .into_iter()
                .find(|line| turns.may_go(*line, true))?;
            let bytes = match line {
                LineOf::Orders => orders,
                LineOf::Clients => clients,
            };
            turns.went(line, bytes, true);
            Some(line)
        };
        let gone: Vec<_> = (0..writes).filter_map(|_| next()).collect();
        assert_eq!(gone.len(), writes, "one of two that wait may go always");
        gone
    }

    #[test]
    fn lines_of_equal_writes_go_by_turns_of_some_bytes() {
        let gone = order_of(1_000, 1_000, 40);
        let turns: Vec<_> = gone.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
        assert_eq!(turns, [10, 10, 10, 10]);
        assert_eq!(gone.first(), Some(&LineOf::Orders));
    }

    #[test]
    fn a_large_write_is_paid_back_by_as_many_bytes_of_small_ones() {
        for (orders, clients) in [(1_000_000, 1_000), (1_000, 1_000_000)] {
            let gone = order_of(orders, clients, 3_003);
            let large = gone.chunk_by(|a, b| a == b).filter(|turn| turn.len() == 1);
            assert!(large.count() <= 4, "one at a time");
            let count = |line| gone.iter().filter(|it| **it == line).count() as u64;
            let sent = [
                count(LineOf::Orders) * orders,
                count(LineOf::Clients) * clients,
            ];
            let apart = sent[0].abs_diff(sent[1]);
            assert!(apart <= 1_000_000 + u64::from(TURN), "{sent:?}");
        }
    }

    #[test]
    fn a_line_that_has_nothing_to_send_holds_the_other_one_up_never() {
        let mut turns = LineTurns::new(TURN);
        for _ in 0..100 {
            for line in [LineOf::Orders, LineOf::Clients] {
                assert!(turns.may_go(line, false));
                turns.went(line, 3_000, false);
            }
        }
    }

    #[test]
    fn a_line_that_joins_waits_for_a_turn_of_the_other_one_at_most() {
        for alone in [0, 1, 5, 100] {
            let mut turns = LineTurns::new(TURN);
            turns.went(LineOf::Orders, 1_000_000, true);
            for _ in 0..alone {
                turns.went(LineOf::Orders, 3_000, false);
            }
            let has_credit = turns.may_go(LineOf::Clients, true);
            assert_eq!(has_credit, alone == 0, "nothing is saved up");
            let mut orders = 0;
            while turns.may_go(LineOf::Orders, true) {
                turns.went(LineOf::Orders, 3_000, true);
                orders += 3_000;
            }
            assert!(orders <= u64::from(TURN) + 3_000, "{orders} after {alone}");
        }
    }

    #[test]
    fn empty_values_count_too() {
        let mut turns = LineTurns::new(TURN);
        let mut orders = 0;
        while turns.may_go(LineOf::Orders, true) {
            turns.went(LineOf::Orders, 0, true);
            orders += 1;
        }
        assert_eq!(orders, u64::from(TURN).div_ceil(DELAY_WRITE_BYTES_MIN));
    }

    #[test]
    fn lines_that_both_wait_get_equal_bytes_whatever_comes() {
        let mut prng = Prng::new(11);
        let mut turns = LineTurns::new(TURN);
        let (mut apart, mut least, mut most) = (0_i64, 0, 0);
        for _ in 0..100_000 {
            let bytes = 128 + prng.below(100_000);
            let line = if turns.may_go(LineOf::Orders, true) {
                LineOf::Orders
            } else {
                LineOf::Clients
            };
            turns.went(line, bytes, true);
            apart += match line {
                LineOf::Orders => bytes as i64,
                LineOf::Clients => -(bytes as i64),
            };
            (least, most) = (apart.min(least), apart.max(most));
        }
        assert!(
            most - least <= 2 * 100_128 + i64::from(TURN),
            "{least} to {most}"
        );
    }
}
