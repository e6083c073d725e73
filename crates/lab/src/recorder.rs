//! The ends of all requests of one thread, and the sum over all threads.
//!
//! ```text
//! planned ─► sent ─► ended(how) ─► Recorder ─┐
//! planned ─► …                    Recorder ─┴─ merge ─► run::Phase
//! ```
//!
//! Invariants
//! 1. `planned` and `ended` are called once for each request: the counts are whole
//!    (`run::Counts::is_whole`).
//! 2. A request belongs to the phase that its planned instant lies in, whenever it ends.
//! 3. Memory grows with seconds and operations, not with requests.
//!
//! Not here: clocks (all times are arguments, nanoseconds since the start).
//! See: docs/lab/run-json.md.

use crate::run::{
    Counts, Generator, GeneratorSecond, HEAT_BUCKETS, Latency, OpResult, PhaseKind, PhaseResult,
    Second, TargetResult, Validity,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dendra_base::workload::{OPERATIONS, RequestKind};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

/// Longest time that a histogram tells from longer ones: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// A whole answer with this status.
    Answer(u16),
    /// No whole answer in time.
    Timeout,
    /// The connection broke under it.
    Broken,
    /// The request was never sent.
    Unsent,
}

/// The facts about a request at its end.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The kind of the request.
    pub operation: RequestKind,
    /// Index of the target.
    pub target: usize,
    /// Planned instant.
    pub due_ns: u64,
    /// When its first byte went out; zero when it did not.
    pub sent_ns: u64,
    /// When it ended.
    pub done_ns: u64,
    /// Bytes of the answer with its head.
    pub received_bytes: u64,
    /// Bytes of the answer's body.
    pub body_bytes: u64,
    /// Records in the answer to a scan.
    pub scanned: u64,
    /// How.
    pub end: RequestEnd,
}

/// Times, as a histogram and as a heat map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    histogram: Option<Box<Histogram<u64>>>,
    heat: Vec<[u32; HEAT_BUCKETS]>,
}

/// The bucket of the heat map that a time falls in: four an octave of microseconds.
fn heat_bucket(ns: u64) -> usize {
    // Quarters of an octave, as the fractions of a float.
    const QUARTERS: [u64; 3] = [0x3_06fe_0a31_b715, 0x6_a09e_667f_3bcd, 0xa_e89f_995a_d3ad];
    let us = ns as f64 / 1000.0;
    if us < 1.0 {
        return 0;
    }
    let bits = us.to_bits();
    let octave = (bits >> 52) as usize - 1023;
    let fraction = bits & ((1 << 52) - 1);
    let quarter = QUARTERS.iter().filter(|&&bound| fraction >= bound).count();
    (4 * octave + quarter).min(HEAT_BUCKETS - 1)
}

fn histogram() -> Box<Histogram<u64>> {
    Box::new(Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("three digits of an hour fit"))
}

impl Times {
    /// One more time.
    pub(crate) fn add(&mut self, ns: u64) {
        self.histogram
            .get_or_insert_with(histogram)
            .saturating_record(ns);
    }

    /// One more time, of a request that was due in this second.
    fn add_in(&mut self, second: usize, ns: u64) {
        self.add(ns);
        row(&mut self.heat, second, || [0; HEAT_BUCKETS])[heat_bucket(ns)] += 1;
    }

    /// Adds the times of `other`, without its heat map.
    fn add_all(&mut self, other: &Times) {
        if let Some(theirs) = &other.histogram {
            self.histogram
                .get_or_insert_with(histogram)
                .add(theirs.as_ref())
                .expect("both have the same bounds");
        }
    }

    fn merge(&mut self, other: &Times) {
        self.add_all(other);
        for (second, theirs) in other.heat.iter().enumerate() {
            let ours = row(&mut self.heat, second, || [0; HEAT_BUCKETS]);
            for (our, their) in ours.iter_mut().zip(theirs) {
                *our += their;
            }
        }
    }

    fn latency(&self) -> Latency {
        let Some(histogram) = self.histogram.as_deref() else {
            return Latency::default();
        };
        let us = |ns: u64| ns as f64 / 1000.0;
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(histogram, &mut bytes)
            .expect("a Vec takes every write, and the bounds are those of the format");
        let names = [50.0, 75.0, 90.0, 99.0, 99.9, 99.99];
        let trimmed = |row: &[u32; HEAT_BUCKETS]| {
            let used = row
                .iter()
                .rposition(|&count| count > 0)
                .map_or(0, |last| last + 1);
            row[..used].iter().map(|&count| u64::from(count)).collect()
        };
        Latency {
            count: histogram.len(),
            min_us: us(histogram.min()),
            mean_us: histogram.mean() / 1000.0,
            stdev_us: histogram.stdev() / 1000.0,
            max_us: us(histogram.max()),
            percentiles_us: names
                .iter()
                .map(|&p| (format!("p{p}"), us(histogram.value_at_percentile(p))))
                .collect(),
            hdr: STANDARD.encode(bytes),
            heat: self.heat.iter().map(trimmed).collect(),
        }
    }
}

/// Row `index`, which is made when it is not there yet.
fn row<T: Clone>(rows: &mut Vec<T>, index: usize, empty: impl Fn() -> T) -> &mut T {
    if rows.len() <= index {
        rows.resize(index + 1, empty());
    }
    &mut rows[index]
}

#[derive(Clone, Debug, Default)]
struct OpRecord {
    counts: Counts,
    /// Like `counts.statuses`, which is slower to count in.
    statuses: Vec<(u16, u64)>,
    seconds: Vec<Second>,
    response: Times,
    given_up: Times,
    service: Times,
    refused: Times,
    failed: Times,
}

/// Not kept when there is one target: it is the sum of all operations then.
#[derive(Clone, Debug, Default)]
struct TargetRecord {
    counts: Counts,
    /// Like `counts.statuses`, which is slower to count in.
    statuses: Vec<(u16, u64)>,
    response: Times,
    service: Times,
}

/// Counts an answer by its status: of the few that there are, most answers have the first one.
fn count_status(statuses: &mut Vec<(u16, u64)>, status: u16, times: u64) {
    match statuses.iter_mut().find(|(known, _)| *known == status) {
        Some((_, count)) => *count += times,
        None => statuses.push((status, times)),
    }
}

/// What a redirect means. `304` is none: it answers a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redirects {
    /// The request was not done: a login page redirects quickly.
    #[default]
    Fail,
    /// The redirect is the answer that the load is about.
    Pass,
}

/// Does a status fit the request?
fn verdict_of(operation: RequestKind, status: u16, redirects: Redirects) -> AnswerClass {
    match (status, operation) {
        (429 | 503 | 507, _) => AnswerClass::NotNow,
        (100..=299 | 304, _) => AnswerClass::Done,
        (300..=399, _) if redirects == Redirects::Pass => AnswerClass::Done,
        (404, RequestKind::Get | RequestKind::Delete | RequestKind::Scan) => AnswerClass::Missing,
        (412, RequestKind::Create | RequestKind::CompareAndSet) => AnswerClass::ConditionFailed,
        _ => AnswerClass::Failed,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerClass {
    Done,
    Missing,
    ConditionFailed,
    NotNow,
    Failed,
}

impl AnswerClass {
    fn is_ok(self) -> bool {
        matches!(
            self,
            AnswerClass::Done | AnswerClass::Missing | AnswerClass::ConditionFailed
        )
    }
}

fn count_end(counts: &mut Counts, ended: &Ended, redirects: Redirects) {
    match ended.end {
        RequestEnd::Answer(status) => {
            counts.answered += 1;
            match verdict_of(ended.operation, status, redirects) {
                AnswerClass::NotNow => counts.refused += 1,
                AnswerClass::Failed => counts.failed += 1,
                AnswerClass::Done => counts.ok += 1,
                AnswerClass::Missing => {
                    counts.ok += 1;
                    counts.misses += 1;
                }
                AnswerClass::ConditionFailed => {
                    counts.ok += 1;
                    counts.conditions_failed += 1;
                }
            }
        }
        RequestEnd::Timeout => counts.timeouts += 1,
        RequestEnd::Broken => counts.broken += 1,
        RequestEnd::Unsent => counts.unsent += 1,
    }
    counts.received_bytes += ended.received_bytes;
    counts.body_bytes += ended.body_bytes;
    counts.scanned += ended.scanned;
}

impl OpRecord {
    fn end(&mut self, start_ns: u64, ended: &Ended, redirects: Redirects) {
        count_end(&mut self.counts, ended, redirects);
        let since = |ns: u64| (ns.saturating_sub(start_ns) / SECOND_NS) as usize;
        let response_ns = ended.done_ns.saturating_sub(ended.due_ns);
        let service_ns = ended.done_ns.saturating_sub(ended.sent_ns);
        let due_second = since(ended.due_ns);
        let second = row(&mut self.seconds, since(ended.done_ns), Second::default);
        second.received_bytes += ended.received_bytes;
        match ended.end {
            RequestEnd::Answer(status) => {
                count_status(&mut self.statuses, status, 1);
                let said = verdict_of(ended.operation, status, redirects);
                match said {
                    AnswerClass::NotNow => second.refused += 1,
                    AnswerClass::Failed => second.failed += 1,
                    _ => second.ok += 1,
                }
                second.misses += u64::from(said == AnswerClass::Missing);
                match said {
                    AnswerClass::NotNow => self.refused.add_in(due_second, response_ns),
                    AnswerClass::Failed => self.failed.add_in(due_second, response_ns),
                    _ => {
                        self.response.add_in(due_second, response_ns);
                        self.service.add_in(due_second, service_ns);
                    }
                }
            }
            RequestEnd::Timeout | RequestEnd::Unsent => {
                second.timeouts += 1;
                second.unsent += u64::from(ended.end == RequestEnd::Unsent);
                self.response.add_in(due_second, response_ns);
                self.given_up.add_in(due_second, response_ns);
            }
            RequestEnd::Broken => {
                second.broken += 1;
                self.failed.add_in(due_second, response_ns);
            }
        }
    }

    fn merge(&mut self, other: &OpRecord) {
        self.counts.add(&other.counts);
        for &(status, count) in &other.statuses {
            count_status(&mut self.statuses, status, count);
        }
        for (index, theirs) in other.seconds.iter().enumerate() {
            let ours = row(&mut self.seconds, index, Second::default);
            ours.planned += theirs.planned;
            ours.sent += theirs.sent;
            ours.ok += theirs.ok;
            ours.misses += theirs.misses;
            ours.refused += theirs.refused;
            ours.failed += theirs.failed;
            ours.timeouts += theirs.timeouts;
            ours.unsent += theirs.unsent;
            ours.broken += theirs.broken;
            ours.received_bytes += theirs.received_bytes;
            ours.sent_bytes += theirs.sent_bytes;
        }
        self.response.merge(&other.response);
        self.given_up.merge(&other.given_up);
        self.service.merge(&other.service);
        self.refused.merge(&other.refused);
        self.failed.merge(&other.failed);
    }
}

/// One phase of one thread, or of all of them once merged.
#[derive(Clone, Debug, Default)]
pub struct PhaseRecord {
    start_ns: u64,
    end_ns: u64,
    ops: [Option<Box<OpRecord>>; OPERATIONS],
    targets: Vec<TargetRecord>,
    lag: Times,
    missed: u64,
    connects: u64,
    reconnects: u64,
    seconds: Vec<GeneratorSecond>,
    cpu_s: f64,
    spun_s: f64,
    starved_s: f64,
    available_s: f64,
    busiest_share: f64,
}

/// The record of one thread.
#[derive(Clone, Debug)]
pub struct Recorder {
    phases: Vec<PhaseRecord>,
    redirects: Redirects,
    lag_limit_ns: u64,
    lag_ns_max: u64,
}

/// The generator's use of resources since the last sample.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// CPU time with spinning, nanoseconds.
    pub cpu_ns: u64,
    /// Time in which it was ready to run and another thread had the processor, nanoseconds.
    pub starved_ns: u64,
    /// Time spun, nanoseconds.
    pub spun_ns: u64,
    /// Wall time, nanoseconds.
    pub wall_ns: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Requests that are due and wait, now.
    pub backlog: u64,
}

impl Recorder {
    /// A recorder for phases that end at these instants, one after the other.
    pub fn new(ends_ns: &[u64], targets: usize, lag_limit_us: f64) -> Recorder {
        let starts = std::iter::once(0).chain(ends_ns.iter().copied());
        let phases = starts.zip(ends_ns).map(|(start_ns, &end_ns)| PhaseRecord {
            start_ns,
            end_ns,
            targets: vec![TargetRecord::default(); targets],
            ..PhaseRecord::default()
        });
        Recorder {
            phases: phases.collect(),
            redirects: Redirects::default(),
            lag_limit_ns: (lag_limit_us * 1000.0) as u64,
            lag_ns_max: 0,
        }
    }

    fn phase(&mut self, due_ns: u64) -> &mut PhaseRecord {
        let last = self.phases.len() - 1;
        let index = self.phases[..last].partition_point(|phase| phase.end_ns <= due_ns);
        &mut self.phases[index]
    }

    /// A request became due.
    pub fn planned(&mut self, operation: RequestKind, target: usize, due_ns: u64) {
        let phase = self.phase(due_ns);
        let second = (due_ns.saturating_sub(phase.start_ns) / SECOND_NS) as usize;
        if let Some(target) = phase.target_mut(target) {
            target.counts.planned += 1;
        }
        let op = phase.ops[operation as usize].get_or_insert_default();
        op.counts.planned += 1;
        row(&mut op.seconds, second, Second::default).planned += 1;
    }

    /// A request went out; it could have done so at `ready_ns`. `is_first` is false for the second
    /// half of an operation that reads and writes.
    pub fn sent(&mut self, operation: RequestKind, target: usize, at: SentAt, bytes: u64) {
        let limit_ns = self.lag_limit_ns;
        let lag_ns = at.sent_ns.saturating_sub(at.ready_ns);
        if at.is_first {
            self.lag_ns_max = self.lag_ns_max.max(lag_ns);
        }
        let phase = self.phase(at.due_ns);
        let second = (at.sent_ns.saturating_sub(phase.start_ns) / SECOND_NS) as usize;
        let first = u64::from(at.is_first);
        let op = phase.ops[operation as usize].get_or_insert_default();
        let row = row(&mut op.seconds, second, Second::default);
        row.sent_bytes += bytes;
        row.sent += first;
        op.counts.sent_bytes += bytes;
        op.counts.sent += first;
        if let Some(target) = phase.target_mut(target) {
            target.counts.sent_bytes += bytes;
            target.counts.sent += first;
        }
        if at.is_first {
            phase.lag.add(lag_ns);
            phase.missed += u64::from(lag_ns > limit_ns);
        }
    }

    /// This recorder with another meaning of redirects.
    pub fn with_redirects(mut self, redirects: Redirects) -> Recorder {
        self.redirects = redirects;
        self
    }

    /// A request came to its end.
    pub fn ended(&mut self, ended: &Ended) {
        let redirects = self.redirects;
        let phase = self.phase(ended.due_ns);
        let start_ns = phase.start_ns;
        phase.ops[ended.operation as usize]
            .get_or_insert_default()
            .end(start_ns, ended, redirects);
        let Some(target) = phase.target_mut(ended.target) else {
            return;
        };
        count_end(&mut target.counts, ended, redirects);
        let response_ns = ended.done_ns.saturating_sub(ended.due_ns);
        match ended.end {
            RequestEnd::Answer(status) => {
                count_status(&mut target.statuses, status, 1);
                if verdict_of(ended.operation, status, redirects).is_ok() {
                    target.response.add(response_ns);
                    let service_ns = ended.done_ns.saturating_sub(ended.sent_ns);
                    target.service.add(service_ns);
                }
            }
            RequestEnd::Timeout | RequestEnd::Unsent => target.response.add(response_ns),
            RequestEnd::Broken => {}
        }
    }

    /// A connection was opened.
    pub fn connected(&mut self, now_ns: u64) {
        self.phase(now_ns).connects += 1;
    }

    /// A connection was opened in the place of one that had ended.
    pub fn reconnected(&mut self, now_ns: u64) {
        let phase = self.phase(now_ns);
        phase.connects += 1;
        phase.reconnects += 1;
        let second = (now_ns.saturating_sub(phase.start_ns) / SECOND_NS) as usize;
        row(&mut phase.seconds, second, GeneratorSecond::default).reconnects += 1;
    }

    /// The generator's use in second `second` of the phase that `now_ns` lies in.
    pub fn used(&mut self, phase: usize, second: usize, used: Used) {
        let lag_us = std::mem::take(&mut self.lag_ns_max) as f64 / 1000.0;
        let phase = &mut self.phases[phase];
        let cpu_s = used.cpu_ns.saturating_sub(used.spun_ns) as f64 / 1e9;
        let entry = row(&mut phase.seconds, second, GeneratorSecond::default);
        entry.in_flight = used.in_flight;
        entry.backlog = used.backlog;
        entry.cpu_s += cpu_s;
        entry.send_lag_us_max = entry.send_lag_us_max.max(lag_us);
        phase.cpu_s += cpu_s;
        phase.spun_s += used.spun_ns as f64 / 1e9;
        phase.starved_s += used.starved_ns as f64 / 1e9;
        phase.available_s += used.wall_ns as f64 / 1e9;
        if phase.available_s > 0.0 {
            phase.busiest_share = (phase.cpu_s + phase.starved_s) / phase.available_s;
        }
    }

    /// The phases.
    pub fn into_phases(self) -> Vec<PhaseRecord> {
        self.phases
    }
}

/// When a request went out.
#[derive(Clone, Copy, Debug)]
pub struct SentAt {
    /// Planned instant.
    pub due_ns: u64,
    /// The later of the planned instant and of when a connection was free.
    pub ready_ns: u64,
    /// When it went.
    pub sent_ns: u64,
    /// Not the second half of an operation that reads and writes.
    pub is_first: bool,
}

impl PhaseRecord {
    /// Where one of several targets is counted.
    fn target_mut(&mut self, target: usize) -> Option<&mut TargetRecord> {
        match self.targets.len() {
            1 => None,
            _ => self.targets.get_mut(target),
        }
    }

    /// The targets as they are written; `all` is the sum of all operations.
    fn target_results(&self, all: &Counts) -> Vec<TargetResult> {
        if self.targets.len() == 1 {
            let (mut response, mut service) = (Times::default(), Times::default());
            for op in self.ops.iter().flatten() {
                response.add_all(&op.response);
                service.add_all(&op.service);
            }
            return vec![TargetResult {
                counts: all.clone(),
                response: response.latency(),
                service: service.latency(),
            }];
        }
        let result = |target: &TargetRecord| {
            let mut counts = target.counts.clone();
            counts.statuses = target.statuses.iter().copied().collect();
            TargetResult {
                counts,
                response: target.response.latency(),
                service: target.service.latency(),
            }
        };
        self.targets.iter().map(result).collect()
    }

    /// Adds the record of another thread for the same phase.
    pub fn merge(&mut self, other: &PhaseRecord) {
        for (ours, theirs) in self.ops.iter_mut().zip(&other.ops) {
            if let Some(theirs) = theirs {
                ours.get_or_insert_default().merge(theirs);
            }
        }
        for (ours, theirs) in self.targets.iter_mut().zip(&other.targets) {
            ours.counts.add(&theirs.counts);
            for &(status, count) in &theirs.statuses {
                count_status(&mut ours.statuses, status, count);
            }
            ours.response.merge(&theirs.response);
            ours.service.merge(&theirs.service);
        }
        self.lag.merge(&other.lag);
        self.missed += other.missed;
        self.connects += other.connects;
        self.reconnects += other.reconnects;
        for (index, theirs) in other.seconds.iter().enumerate() {
            let ours = row(&mut self.seconds, index, GeneratorSecond::default);
            ours.in_flight += theirs.in_flight;
            ours.backlog += theirs.backlog;
            ours.reconnects += theirs.reconnects;
            ours.cpu_s += theirs.cpu_s;
            ours.send_lag_us_max = ours.send_lag_us_max.max(theirs.send_lag_us_max);
        }
        self.cpu_s += other.cpu_s;
        self.spun_s += other.spun_s;
        self.starved_s += other.starved_s;
        self.available_s += other.available_s;
        self.busiest_share = self.busiest_share.max(other.busiest_share);
    }

    /// The phase as it is written; the verdict is the caller's.
    pub fn finish(
        &self,
        name: String,
        kind: PhaseKind,
        origin_s: f64,
        lag_limit_us: f64,
    ) -> PhaseResult {
        let mut counts = Counts::default();
        let mut ops = Vec::new();
        for (operation, record) in RequestKind::ALL.iter().zip(&self.ops) {
            let Some(record) = record else { continue };
            let mut own = record.counts.clone();
            own.statuses = record.statuses.iter().copied().collect();
            counts.add(&own);
            ops.push(OpResult {
                op: operation.name().to_owned(),
                counts: own,
                seconds: record.seconds.clone(),
                response: record.response.latency(),
                given_up: record.given_up.latency(),
                service: record.service.latency(),
                refused: record.refused.latency(),
                failed: record.failed.latency(),
            });
        }
        let targets = self.target_results(&counts);
        let cpu_us_per_request = match counts.sent {
            0 => 0.0,
            sent => self.cpu_s * 1e6 / sent as f64,
        };
        PhaseResult {
            name,
            kind,
            start_s: origin_s + self.start_ns as f64 / 1e9,
            length_s: (self.end_ns - self.start_ns) as f64 / 1e9,
            rate: 0.0,
            verdict: Validity::Valid,
            counts,
            ops,
            targets,
            generator: Generator {
                send_lag: self.lag.latency(),
                missed: self.missed,
                send_lag_limit_us: lag_limit_us,
                cpu_s: self.cpu_s,
                spun_s: self.spun_s,
                starved_s: self.starved_s,
                available_s: self.available_s,
                busiest_share: self.busiest_share,
                cpu_us_per_request,
                connects: self.connects,
                reconnects: self.reconnects,
                seconds: self.seconds.clone(),
            },
        }
    }

    /// Ends the phase early: a run that was cut.
    pub fn cut(&mut self, at_ns: u64) {
        self.end_ns = self.end_ns.min(at_ns).max(self.start_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::heat_bound_us;

    fn ended(end: RequestEnd, due_ns: u64, done_ns: u64) -> Ended {
        Ended {
            operation: RequestKind::Get,
            target: 0,
            due_ns,
            sent_ns: due_ns + 10,
            done_ns,
            received_bytes: 7,
            body_bytes: 3,
            scanned: 0,
            end,
        }
    }

    #[test]
    fn every_end_is_counted_once_and_in_its_phase() {
        let mut recorder = Recorder::new(&[SECOND_NS, 3 * SECOND_NS], 1, 1000.0);
        let ends = [
            RequestEnd::Answer(200),
            RequestEnd::Answer(404),
            RequestEnd::Answer(503),
            RequestEnd::Answer(500),
            RequestEnd::Timeout,
            RequestEnd::Broken,
            RequestEnd::Unsent,
        ];
        for (i, end) in ends.into_iter().enumerate() {
            // The first four belong to the first phase, although the last ends after it.
            let due_ns = i as u64 * SECOND_NS / 4;
            recorder.planned(RequestKind::Get, 0, due_ns);
            recorder.ended(&ended(end, due_ns, due_ns + SECOND_NS / 2));
        }
        let phases = recorder.into_phases();
        let finish =
            |record: &PhaseRecord| record.finish("p".to_owned(), PhaseKind::Measure, 0.0, 1000.0);
        let (first, second) = (finish(&phases[0]), finish(&phases[1]));
        assert!(first.counts.is_whole() && second.counts.is_whole());
        assert_eq!((first.counts.planned, second.counts.planned), (4, 3));
        assert_eq!((first.counts.ok, first.counts.misses), (2, 1));
        assert_eq!((first.counts.refused, first.counts.failed), (1, 1));
        // A request that was given up is in the picture, with the time it had waited.
        assert_eq!(second.ops[0].response.count, 2);
        assert_eq!(first.ops[0].seconds.len(), 2);
        assert_eq!(first.targets[0].counts, first.counts);
    }

    #[test]
    fn a_redirect_is_an_answer_only_where_it_was_asked_for() {
        let ok = |recorder: Recorder, status| {
            let mut recorder = recorder;
            recorder.planned(RequestKind::Get, 0, 0);
            recorder.ended(&ended(RequestEnd::Answer(status), 0, 5));
            let record = recorder.into_phases().remove(0);
            let counts = record
                .finish("p".to_owned(), PhaseKind::Measure, 0.0, 1.0)
                .counts;
            assert!(counts.is_whole());
            (counts.ok, counts.failed)
        };
        let plain = Recorder::new(&[SECOND_NS], 1, 1.0);
        let asked = plain.clone().with_redirects(Redirects::Pass);
        for status in [301, 302, 303, 307, 308] {
            assert_eq!(ok(plain.clone(), status), (0, 1), "{status}");
            assert_eq!(ok(asked.clone(), status), (1, 0), "{status}");
        }
        assert_eq!(ok(plain.clone(), 304), (1, 0));
        assert_eq!(ok(plain, 200), (1, 0));
    }

    #[test]
    fn one_target_is_the_sum_of_all_operations_and_several_are_told_apart() {
        let mut alone = Recorder::new(&[SECOND_NS], 1, 1.0);
        let mut first_of_two = Recorder::new(&[SECOND_NS], 2, 1.0);
        let ends = [
            RequestEnd::Answer(200),
            RequestEnd::Answer(404),
            RequestEnd::Answer(503),
            RequestEnd::Timeout,
            RequestEnd::Broken,
        ];
        for (i, end) in ends.into_iter().cycle().take(100).enumerate() {
            let due_ns = i as u64 * 1000;
            let at = SentAt {
                due_ns,
                ready_ns: due_ns,
                sent_ns: due_ns + 10,
                is_first: i % 7 != 0,
            };
            for recorder in [&mut alone, &mut first_of_two] {
                recorder.planned(RequestKind::Get, 0, due_ns);
                recorder.sent(RequestKind::Get, 0, at, 50);
                recorder.ended(&ended(end, due_ns, due_ns + 5000 + i as u64));
            }
        }
        let finish = |recorder: Recorder| {
            let record = recorder.into_phases().remove(0);
            record.finish("p".to_owned(), PhaseKind::Measure, 0.0, 1.0)
        };
        let (alone, two) = (finish(alone), finish(first_of_two));
        assert_eq!(alone.targets[0], two.targets[0]);
        assert_eq!(alone.targets[0].counts, alone.counts);
        assert_eq!(two.targets[1].counts, Counts::default());
    }

    #[test]
    fn merged_halves_are_the_whole() {
        let ends_ns = [SECOND_NS];
        let mut whole = Recorder::new(&ends_ns, 1, 1.0);
        let mut halves = [whole.clone(), whole.clone()];
        for i in 0..1000u64 {
            let end = ended(RequestEnd::Answer(200), i, i * 1000 + 5);
            for recorder in [&mut whole, &mut halves[(i % 2) as usize]] {
                recorder.planned(RequestKind::Get, 0, i);
                recorder.ended(&end);
            }
        }
        let [one, two] = halves.map(|half| half.into_phases().remove(0));
        let mut sum = one;
        sum.merge(&two);
        let finish =
            |record: &PhaseRecord| record.finish("p".to_owned(), PhaseKind::Measure, 0.0, 1.0);
        assert_eq!(finish(&sum), finish(&whole.into_phases()[0]));
    }

    #[test]
    fn the_histogram_reads_back_from_its_text() {
        let mut times = Times::default();
        for us in 1..=1000u64 {
            times.add_in(0, us * 1000);
        }
        let latency = times.latency();
        let bytes = STANDARD.decode(&latency.hdr).expect("it is base64");
        let back: Histogram<u64> = hdrhistogram::serialization::Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .expect("it is a histogram");
        assert_eq!(back.len(), 1000);
        let p99 = latency.percentiles_us["p99"];
        assert!((p99 / 990.0 - 1.0).abs() < 0.002, "{p99}");
        assert_eq!(latency.heat[0].iter().sum::<u64>(), 1000);
    }

    #[test]
    fn the_heat_map_puts_each_time_between_its_bounds() {
        for ns in [0, 999, 1000, 1189, 1190, 1_000_000, 123_456_789, u64::MAX] {
            let bucket = heat_bucket(ns);
            let us = ns as f64 / 1000.0;
            assert!(us >= heat_bound_us(bucket), "{ns} in {bucket}");
            if bucket + 1 < HEAT_BUCKETS {
                assert!(us < heat_bound_us(bucket + 1), "{ns} in {bucket}");
            }
        }
    }
}
