//! How long the rounds of operations took, and how often a late owner made the node ask another
//! one.
//!
//! ```text
//! GET          read ─ (write_back)             a round begins when its questions are made,
//! PUT          clock ─ (cover) ─ write         and ends when enough answers came, or it failed
//! conditional  (queue) ─ prepare ─ accept ─ write     … finish, back_off between the attempts
//! any          links, in front, when too few owners have one
//! ```
//!
//! Invariants
//! 1. The node writes these numbers and takes no decision by them.
//! 2. A round counts once, until the operation goes on or its outcome is told. Work that lingers
//!    after the outcome is not in it.
//!
//! Not here: which stage is which round (`coordinator/stage.rs`), names and pages (crate `server`).
//! See: docs/protocol.md.

/// Upper bounds of the buckets, in microseconds; one more bucket holds the rest. A member on the
/// same machine answers in a fifth of a millisecond, one that syncs first in some milliseconds.
pub const ROUND_BUCKETS_US: [u64; 18] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 60_000_000,
];

/// A part of an operation in which it waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Round {
    /// A link that is expected back.
    Links,
    /// A majority's clocks.
    Clock,
    /// A clock ceiling that is not durable yet.
    Cover,
    /// Confirmations of a write.
    Write,
    /// Copies.
    Read,
    /// Confirmations of the cell that a read found, by owners that lacked it.
    WriteBack,
    /// Another conditional write of the key, begun at the same loop.
    Queue,
    /// Promises.
    Prepare,
    /// Acceptances.
    Accept,
    /// Confirmations of a rival's proposal.
    Finish,
    /// A rest, so that a rival can finish.
    BackOff,
}

impl Round {
    /// All of them.
    pub const ALL: [Round; 11] = [
        Round::Links,
        Round::Clock,
        Round::Cover,
        Round::Write,
        Round::Read,
        Round::WriteBack,
        Round::Queue,
        Round::Prepare,
        Round::Accept,
        Round::Finish,
        Round::BackOff,
    ];

    /// Is its time that of answers: of members, their links and their disks?
    pub(crate) fn waits_for_members(self) -> bool {
        match self {
            Round::Clock
            | Round::Write
            | Round::Read
            | Round::WriteBack
            | Round::Prepare
            | Round::Accept
            | Round::Finish => true,
            Round::Links | Round::Cover | Round::Queue | Round::BackOff => false,
        }
    }

    /// Label of the round in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Round::Links => "links",
            Round::Clock => "clock",
            Round::Cover => "cover",
            Round::Write => "write",
            Round::Read => "read",
            Round::WriteBack => "write_back",
            Round::Queue => "queue",
            Round::Prepare => "prepare",
            Round::Accept => "accept",
            Round::Finish => "finish",
            Round::BackOff => "back_off",
        }
    }
}

/// How long one kind of round took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundTimes {
    /// Counts by bucket of [`ROUND_BUCKETS_US`]. Each has the values above the bucket below it.
    pub buckets: [u64; ROUND_BUCKETS_US.len() + 1],
    /// Sum of all, microseconds.
    pub sum_us: u64,
}

/// The rounds of one event loop since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundStats {
    times: [RoundTimes; Round::ALL.len()],
    hedges: u64,
    wasteful: u64,
}

impl RoundStats {
    /// How long the rounds of this kind took.
    pub fn of(&self, round: Round) -> &RoundTimes {
        &self.times[round as usize]
    }

    /// Questions that were put to a further owner because one that was asked was late.
    pub fn hedges(&self) -> u64 {
        self.hedges
    }

    /// Operations that put more questions to other members than one may. Any number above zero is a
    /// mistake in the code.
    pub fn wasteful(&self) -> u64 {
        self.wasteful
    }

    /// An operation asked too much.
    pub(crate) fn note_wasteful(&mut self) {
        self.wasteful += 1;
    }

    /// An operation was in this round for so long.
    pub(crate) fn note(&mut self, round: Round, took_us: u64) {
        let times = &mut self.times[round as usize];
        let bucket = ROUND_BUCKETS_US.partition_point(|&bound| bound < took_us);
        times.buckets[bucket] += 1;
        times.sum_us = times.sum_us.saturating_add(took_us);
    }

    /// A further owner was asked.
    pub(crate) fn hedged(&mut self) {
        self.hedges += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        let mut rounds = RoundStats::default();
        for us in [50, 51, 61_000_000] {
            rounds.note(Round::Write, us);
        }
        let write = rounds.of(Round::Write);
        assert_eq!(write.buckets[..2], [1, 1]);
        assert_eq!(write.buckets[ROUND_BUCKETS_US.len()], 1);
        assert_eq!(write.sum_us, 61_000_101);
        let others = Round::ALL.into_iter().filter(|r| *r != Round::Write);
        let empty = RoundTimes::default();
        assert!(others.into_iter().all(|round| *rounds.of(round) == empty));
    }

    #[test]
    fn what_no_operation_may_do_is_counted_if_one_does() {
        let mut rounds = RoundStats::default();
        rounds.note_wasteful();
        rounds.note_wasteful();
        assert_eq!((rounds.wasteful(), rounds.hedges()), (2, 0));
    }

    #[test]
    fn every_kind_of_round_has_its_place() {
        for (at, round) in Round::ALL.into_iter().enumerate() {
            assert_eq!(round as usize, at, "{}", round.as_str());
        }
    }
}
