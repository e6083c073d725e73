//! Counters of one event loop: written by that loop alone, summed at a scrape.
//!
//! ```text
//! requests   [operation][status class]      count
//! latency    [operation][bucket]            from the loop's first look at a request to its formed answer
//! pauses     [bucket]                       of writes under pressure
//! stages     [operation][stage][bucket]     of some requests, part by part: `stages.rs`
//! refused    [share][reason]                 count
//! admitted   [share]                         count
//! rounds     [kind of round][bucket]         of operations in a cluster, as of the last sweep
//! peers      [member]                        the expectations of it, as of the last sweep
//! ```
//!
//! Invariants
//! 1. One writer: an addition is a plain load and store, never a locked instruction.
//! 2. No allocation and no string is made on the path of a request.
//!
//! Not here: names and help texts for Prometheus (`exposition/`).

use crate::measure::stages::Stages;
use crate::measure::tally::labels;
pub(crate) use crate::measure::tally::{BUCKETS_NS, Histogram, LoopCounter, OpLabel};
use dendra_node::rounds::{ROUND_BUCKETS_US, RoundTimes};
use dendra_node::{PeerHealth, Round, RoundStats};
use dendra_ownership::MemberIndex;
use dendra_ownership::limits::MEMBERS_MAX;

labels! {
    /// Which share of the node a piece of work is done from: see docs/overload.md, "Classes and
    /// their shares".
    pub(crate) enum CapacityShare {
        /// Reads of one key.
        Points = "points",
        Writes = "writes",
        Scans = "scans",
        /// Orders of other members to the own store.
        Peers = "peers",
    }
}

impl CapacityShare {
    /// Share that a client's request belongs to; `None` when it asks for no data.
    pub(crate) fn of(op: OpLabel) -> Option<CapacityShare> {
        match op {
            OpLabel::Get => Some(CapacityShare::Points),
            OpLabel::Put | OpLabel::Delete | OpLabel::Touch => Some(CapacityShare::Writes),
            OpLabel::Scan => Some(CapacityShare::Scans),
            OpLabel::Status | OpLabel::Other => None,
        }
    }
}

labels! {
    /// The part that refused a request.
    pub(crate) enum RefusalCause {
        /// Too many requests wait for the log or the store pool.
        Requests = "requests",
        /// Too many bytes of bodies and answers are under way.
        Bytes = "bytes",
        /// The store pool's queue is full.
        StoreQueue = "store_queue",
        /// The log's queue is full.
        LogQueue = "log_queue",
        /// The engine asks for relief: memtables or level 0.
        Engine = "engine",
        /// The disk is full.
        Disk = "disk",
        /// The request waited past its deadline.
        Deadline = "deadline",
        /// The engine can never store such a record.
        Unfit = "unfit",
        /// Newer requests came all the time, more than the processor serves.
        Delay = "delay",
        /// The request's client went away before it was done, in a cluster.
        Abandoned = "abandoned",
        /// The request's connection has no place: the member, or its address here, has as many as
        /// it may have.
        Connections = "connections",
    }
}

/// Status classes, 1xx to 5xx, and after them the answers that were cut: their head said 200, and
/// the rest did not come whole.
pub(crate) const CLASSES: usize = 6;

/// How long one kind of round took, as the loop's node counts it.
#[derive(Debug, Default)]
pub(crate) struct RoundTally {
    pub(crate) buckets: [LoopCounter; ROUND_BUCKETS_US.len() + 1],
    pub(crate) sum_us: LoopCounter,
}

impl RoundTally {
    fn set(&self, times: &RoundTimes) {
        for (ours, &count) in self.buckets.iter().zip(&times.buckets) {
            ours.set(count);
        }
        self.sum_us.set(times.sum_us);
    }
}

/// The rounds of operations in a cluster.
#[derive(Debug, Default)]
pub(crate) struct RoundTallies {
    times: [RoundTally; Round::ALL.len()],
    pub(crate) hedges: LoopCounter,
    pub(crate) wasteful: LoopCounter,
}

impl RoundTallies {
    /// How long the rounds of this kind took.
    pub(crate) fn of(&self, round: Round) -> &RoundTally {
        &self.times[round as usize]
    }

    /// Replaces everything. Requires: called by the one writer.
    pub(crate) fn set(&self, rounds: &RoundStats) {
        for round in Round::ALL {
            self.of(round).set(rounds.of(round));
        }
        self.hedges.set(rounds.hedges());
        self.wasteful.set(rounds.wasteful());
    }
}

/// A loop's expectations of one other member; zero until it has asked it.
#[derive(Debug, Default)]
pub(crate) struct PeerTally {
    pub(crate) latency_us: LoopCounter,
    pub(crate) patience_us: LoopCounter,
}

/// A loop's expectations of all other members.
#[derive(Debug)]
pub(crate) struct PeerTallies(Box<[PeerTally]>);

impl Default for PeerTallies {
    fn default() -> PeerTallies {
        PeerTallies((0..MEMBERS_MAX).map(|_| PeerTally::default()).collect())
    }
}

impl PeerTallies {
    /// The expectations of this member.
    pub(crate) fn of(&self, member: MemberIndex) -> &PeerTally {
        &self.0[member.at()]
    }

    /// Replaces the expectations of this member. Requires: called by the one writer.
    pub(crate) fn set(&self, member: MemberIndex, health: PeerHealth) {
        let peer = self.of(member);
        if let Some(us) = health.latency_us {
            peer.latency_us.set(us.max(1));
            peer.patience_us.set(health.patience_us);
        }
    }
}

/// All counters of one event loop.
#[derive(Debug, Default)]
pub(crate) struct LoopMetrics {
    pub(crate) requests: [[LoopCounter; CLASSES]; OpLabel::ALL.len()],
    pub(crate) latency: [Histogram; OpLabel::ALL.len()],
    pub(crate) stages: Stages,
    pub(crate) refused: [[LoopCounter; RefusalCause::ALL.len()]; CapacityShare::ALL.len()],
    /// Requests and orders that no gate refused.
    pub(crate) admitted: [LoopCounter; CapacityShare::ALL.len()],
    /// Socket reads that returned bytes, and the bytes.
    pub(crate) reads: LoopCounter,
    pub(crate) read_bytes: LoopCounter,
    /// Socket writes that took bytes, and the bytes.
    pub(crate) writes: LoopCounter,
    pub(crate) write_bytes: LoopCounter,
    /// Connections taken over, and closed because a deadline passed.
    pub(crate) accepted: LoopCounter,
    pub(crate) timed_out: LoopCounter,
    /// How long writes paused under the engine's pressure: each that did.
    pub(crate) write_pauses: Histogram,
    /// Writes of clients, and members' orders, that wait in line for the log or the engine, as of
    /// the last sweep.
    pub(crate) log_line: LoopCounter,
    pub(crate) order_line: LoopCounter,
    /// Requests that wait and bytes that are held, as of the last sweep: within 100 ms.
    pub(crate) requests_held: LoopCounter,
    pub(crate) bytes_held: LoopCounter,
    /// How long requests wait for the loop, whether they stand in line, and how many: as of the
    /// last sweep.
    pub(crate) standing_us: LoopCounter,
    pub(crate) is_standing: LoopCounter,
    pub(crate) standing: LoopCounter,
    /// How long requests stood in the loop's line that were then served: each call.
    pub(crate) stood: Histogram,
    /// Connections of clients that were gone when their request was called.
    pub(crate) abandoned: LoopCounter,
    /// Operations that waited when their client hung up. They ended early, or went on without it.
    pub(crate) hung_up: LoopCounter,
    /// Orders of members that were cancelled before they were begun.
    pub(crate) cancelled: LoopCounter,
    /// Bytes that clients stand in line for, as of the last sweep.
    pub(crate) bytes_waiting: LoopCounter,
    /// Reads that went to the store pool.
    pub(crate) pooled: LoopCounter,
    /// Operations and scans that the loop's node works on, as of the last sweep.
    pub(crate) operations: LoopCounter,
    /// How long rounds took, and which members they waited for, as of the last sweep.
    pub(crate) rounds: RoundTallies,
    /// How often copies of one version were seen to differ, as of the last sweep.
    pub(crate) disputes: LoopCounter,
    pub(crate) peers: PeerTallies,
    /// Events that were told to clients of watches.
    pub(crate) watch_events: LoopCounter,
    /// Values that failed their checksum on the way out.
    pub(crate) damaged: LoopCounter,
}

impl LoopMetrics {
    /// Notes one finished request.
    pub(crate) fn note(&self, op: OpLabel, status: u16, took_ns: u64) {
        self.note_head(op, status, took_ns);
        self.count(op, status);
    }

    /// Counts one answer by its status, when all of it was formed.
    pub(crate) fn count(&self, op: OpLabel, status: u16) {
        let class = usize::from(status / 100).clamp(1, CLASSES - 1) - 1;
        self.requests[op as usize][class].add(1);
    }

    /// Counts one answer that was cut.
    pub(crate) fn count_cut(&self, op: OpLabel) {
        self.requests[op as usize][CLASSES - 1].add(1);
    }

    /// Notes one request whose answer has begun: `count` or `count_cut` follows.
    pub(crate) fn note_head(&self, op: OpLabel, status: u16, took_ns: u64) {
        self.latency[op as usize].note(took_ns, 1);
        if let Some(share) = CapacityShare::of(op)
            && !matches!(status, 503 | 507)
        {
            self.admitted[share as usize].add(1);
        }
    }

    /// Notes one refusal.
    pub(crate) fn refuse(&self, share: CapacityShare, gate: RefusalCause) {
        self.refused[share as usize][gate as usize].add(1);
    }

    /// Notes the result of a member's order.
    pub(crate) fn note_order(&self, offered: Result<(), RefusalCause>) {
        match offered {
            Ok(()) => self.admitted[CapacityShare::Peers as usize].add(1),
            Err(gate) => self.refuse(CapacityShare::Peers, gate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_falls_into_the_first_bucket_that_holds_it() {
        let metrics = LoopMetrics::default();
        metrics.note(OpLabel::Get, 200, 250);
        metrics.note(OpLabel::Get, 404, 251);
        metrics.note(OpLabel::Get, 503, 11_000_000_000);
        let latency = &metrics.latency[OpLabel::Get as usize];
        assert_eq!(latency.buckets[0].read(), 1);
        assert_eq!(latency.buckets[1].read(), 1);
        assert_eq!(latency.buckets[BUCKETS_NS.len()].read(), 1);
        assert_eq!(latency.sum_ns.read(), 11_000_000_501);
        let classes: Vec<u64> = metrics.requests[OpLabel::Get as usize]
            .iter()
            .map(LoopCounter::read)
            .collect();
        assert_eq!(classes, [0, 1, 0, 1, 1, 0]);
        assert_eq!(metrics.admitted[CapacityShare::Points as usize].read(), 2);
    }
}
