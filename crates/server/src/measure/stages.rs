//! Where the time of a request goes: its stages, measured on about one request in sixteen.
//!
//! ```text
//! GET          parse ─ engine ─ form ─ write
//! GET, pooled  parse ─ queue ─ engine (a worker) ─ form ─ write
//! PUT, DELETE  parse ─ engine (encoding) ─ wal_wait ─ form ─ write
//! scan         parse ─ queue ─ engine (a worker) ─ write, again for each chunk
//! any, with peers                          … replica_wait …
//! ```
//!
//! A stage is noted by `Watch::lap`: the time since the last lap of the same request.
//!
//! Invariants
//! 1. A request that is not drawn costs one decrement and a few branches, and no reading of a
//!    clock.
//! 2. Draws are 1 to 31 requests apart at random: a rhythm in the traffic does not choose the
//!    samples.
//! 3. One writer per `Stages`: a loop or a worker. They are summed at a scrape.
//!
//! Not here: the time of whole requests, which is measured on each of them (`metrics.rs`); names
//! and help texts (`exposition/`). See: docs/lab/profiles.md, section "Stages".

use crate::clock;
use crate::measure::tally::{Histogram, OpLabel, labels};
use std::cell::Cell;

/// One request in so many is measured stage by stage. Four to six readings of the clock, 150 ns,
/// are then less than 10 ns a request.
pub(crate) const REQUESTS_PER_SAMPLE: u32 = 16;

labels! {
    /// A part of a request's life.
    pub(crate) enum RequestStage {
        /// From the first look at the head to its meaning.
        Parse = "parse",
        /// Waiting for a worker of the store pool.
        Queue = "queue",
        /// Reads: the lookup. Writes: admission, and the record in the loop's batch.
        Engine = "engine",
        /// From the record in the loop's batch until the connection goes on with the outcome.
        WalWait = "wal_wait",
        /// Waiting for other members: from the first message until the quorum is met. The loop
        /// that drives the quorum notes it with `watch.lap`. When other work lies in front, it
        /// calls `watch.restart()` before and `lap` after.
        ReplicaWait = "replica_wait",
        /// Forming the answer's bytes.
        Form = "form",
        /// Until the kernel has taken the batch of answers in which this one is.
        Write = "write",
    }
}

impl RequestStage {
    /// The stages that requests of `op` can meet, in their order.
    pub(crate) fn of(op: OpLabel) -> &'static [RequestStage] {
        use RequestStage::{Engine, Form, Parse, Queue, ReplicaWait, WalWait, Write};
        match op {
            OpLabel::Get => &[Parse, Queue, Engine, ReplicaWait, Form, Write],
            OpLabel::Put | OpLabel::Delete | OpLabel::Touch => {
                &[Parse, Engine, WalWait, ReplicaWait, Form, Write]
            }
            OpLabel::Scan => &[Parse, Queue, Engine, ReplicaWait, Write],
            OpLabel::Status | OpLabel::Other => &[],
        }
    }
}

/// The stage histograms of one thread.
#[derive(Debug, Default)]
pub(crate) struct Stages([[Histogram; RequestStage::ALL.len()]; OpLabel::ALL.len()]);

impl Stages {
    /// Durations of `stage` in requests of `op`.
    pub(crate) fn of(&self, op: OpLabel, stage: RequestStage) -> &Histogram {
        &self.0[op as usize][stage as usize]
    }
}

/// Follows one request through its stages; a copy goes with a request that waits elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// `clock::monotonic_ns` of the last lap; zero when the request was not drawn.
    lap_ns: u64,
}

impl Watch {
    /// Watch of a request that was not drawn: every call is a branch.
    pub(crate) const OFF: Watch = Watch { lap_ns: 0 };

    /// A watch that runs from now on.
    pub(crate) fn started() -> Watch {
        Watch {
            lap_ns: clock::monotonic_ns(),
        }
    }

    /// Was the request drawn?
    pub(crate) fn is_on(self) -> bool {
        self.lap_ns != 0
    }

    /// Notes the time since the last lap as `stage`.
    #[inline]
    pub(crate) fn lap(&mut self, stages: &Stages, op: OpLabel, stage: RequestStage) {
        if self.is_on() {
            let now_ns = clock::monotonic_ns();
            let took_ns = now_ns.saturating_sub(self.lap_ns);
            stages.of(op, stage).note(took_ns, 1);
            self.lap_ns = now_ns;
        }
    }

    /// Leaves the time since the last lap to no stage.
    #[inline]
    pub(crate) fn restart(&mut self) {
        if self.is_on() {
            *self = Watch::started();
        }
    }
}

/// Draws the requests of one loop that are measured.
#[derive(Debug)]
pub(crate) struct SampleDraw {
    left: Cell<u32>,
    state: Cell<u32>,
}

impl SampleDraw {
    /// The draws of loop number `index`.
    pub(crate) fn new(index: usize) -> SampleDraw {
        SampleDraw {
            left: Cell::new(0),
            // Any odd constant: the generator must not start at zero.
            state: Cell::new(0x9e37_79b9 ^ ((index as u32) << 1)),
        }
    }

    /// The watch of the next request: running when it is drawn.
    #[inline]
    pub(crate) fn watch(&self) -> Watch {
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
            return Watch::OFF;
        }
        // xorshift32: random enough for a gap, and never zero.
        let mut x = self.state.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.state.set(x);
        self.left.set(x % (2 * REQUESTS_PER_SAMPLE - 1));
        Watch::started()
    }
}

/// Measured requests with answers that wait in a connection's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsent([u16; OpLabel::ALL.len()]);

impl Unsent {
    /// The answer of a request with `watch` is in the output.
    #[inline]
    pub(crate) fn add(&mut self, op: OpLabel, watch: Watch) {
        if watch.is_on() {
            let count = &mut self.0[op as usize];
            *count = count.saturating_add(1);
        }
    }

    /// The watch over the write of these answers: running when one of them was measured.
    #[inline]
    pub(crate) fn watch(self) -> Watch {
        if self == Unsent::default() {
            Watch::OFF
        } else {
            Watch::started()
        }
    }

    /// Notes that they were written while `watch` ran.
    pub(crate) fn sent(self, watch: Watch, stages: &Stages) {
        if watch.is_on() {
            let took_ns = clock::monotonic_ns().saturating_sub(watch.lap_ns);
            for (op, count) in OpLabel::ALL.into_iter().zip(self.0) {
                stages
                    .of(op, RequestStage::Write)
                    .note(took_ns, count.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_sixteen_is_drawn_and_not_in_step() {
        let draw = SampleDraw::new(3);
        let drawn: Vec<usize> = (0..160_000).filter(|_| draw.watch().is_on()).collect();
        assert!((9_000..=11_000).contains(&drawn.len()), "{}", drawn.len());
        let mut by_place = [0; 16];
        for at in &drawn {
            by_place[at % 16] += 1;
        }
        let (least, most) = (by_place.iter().min(), by_place.iter().max());
        assert!(least >= Some(&400) && most <= Some(&850), "{by_place:?}");
    }

    #[test]
    fn laps_of_a_drawn_request_add_up_to_its_time_and_others_note_nothing() {
        let stages = Stages::default();
        let mut off = Watch::OFF;
        off.lap(&stages, OpLabel::Get, RequestStage::Parse);
        off.restart();
        assert_eq!(stages.of(OpLabel::Get, RequestStage::Parse).count(), 0);
        assert!(!off.is_on());

        let began_ns = clock::monotonic_ns();
        let mut watch = Watch::started();
        for stage in [
            RequestStage::Parse,
            RequestStage::Engine,
            RequestStage::ReplicaWait,
            RequestStage::Form,
        ] {
            watch.lap(&stages, OpLabel::Get, stage);
        }
        let whole_ns = clock::monotonic_ns() - began_ns;
        let sum: u64 = RequestStage::ALL
            .into_iter()
            .map(|stage| stages.of(OpLabel::Get, stage).sum_ns.read())
            .sum();
        assert!(sum <= whole_ns, "{sum} of {whole_ns}");
        assert_eq!(
            stages.of(OpLabel::Get, RequestStage::ReplicaWait).count(),
            1
        );
        assert_eq!(
            stages.of(OpLabel::Put, RequestStage::ReplicaWait).count(),
            0
        );
    }

    #[test]
    fn a_batch_of_answers_is_one_write_for_each_measured_request_in_it() {
        let stages = Stages::default();
        let mut unsent = Unsent::default();
        assert!(!unsent.watch().is_on(), "nothing measured, no clock");
        unsent.add(OpLabel::Get, Watch::OFF);
        assert_eq!(unsent, Unsent::default());
        unsent.add(OpLabel::Get, Watch::started());
        unsent.add(OpLabel::Get, Watch::started());
        unsent.add(OpLabel::Put, Watch::started());
        unsent.sent(unsent.watch(), &stages);
        assert_eq!(stages.of(OpLabel::Get, RequestStage::Write).count(), 2);
        assert_eq!(stages.of(OpLabel::Put, RequestStage::Write).count(), 1);
        assert_eq!(stages.of(OpLabel::Scan, RequestStage::Write).count(), 0);
    }

    #[test]
    fn every_stage_is_met_by_some_request() {
        for stage in RequestStage::ALL {
            assert!(
                OpLabel::ALL
                    .into_iter()
                    .any(|op| RequestStage::of(op).contains(&stage)),
                "{stage:?}"
            );
        }
    }
}
