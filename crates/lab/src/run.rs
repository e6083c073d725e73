//! `run.json`: everything one run of the lab saw, as values that a page, a diff or a script can
//! read.
//!
//! ```text
//! Run ─┬─ tool, command, machine, settings, workload, targets      what was asked, where
//!      ├─ phases[] ─┬─ counts                                      every planned request, once
//!      │            ├─ ops[] ─ counts, seconds[], response, service, refused, failed
//!      │            ├─ targets[]                                   the same by URL, without seconds
//!      │            └─ generator                                   the instrument's own error
//!      ├─ servers[]                                                /metrics once a second, by target
//!      ├─ search, overload                                         courses, pointing at phases
//!      └─ profiles[]                                               folded stacks
//! ```
//!
//! Invariants
//! 1. `format` changes when a field changes its meaning or goes. A new optional field does not
//!    change it, and readers ignore fields that they do not know.
//! 2. In every [`Counts`]: `planned = answered + timeouts + broken + unsent`, and
//!    `answered = ok + refused + failed`.
//! 3. Times `*_s` without other words are seconds since the start of the run. Latencies are in
//!    microseconds in summaries and in nanoseconds inside of the histograms.
//!
//! Not here: how the figures come about (`driver/`, `recorder.rs`), how they look (`page`).
//! See: docs/lab/run-json.md.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

/// The version that this code writes and the only one that it reads.
pub const FORMAT: u32 = 1;

/// One run of `dendra bench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Always [`FORMAT`].
    pub format: u32,
    /// The program that measured.
    pub tool: Tool,
    /// The command line as it was given, the program's name first.
    pub command: Vec<String>,
    /// Wall clock at the start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Seconds from the start to the end, everything included.
    pub length_s: f64,
    /// Where the generator ran.
    pub machine: Machine,
    /// The settings, defaults included.
    pub settings: GeneratorSettings,
    /// The contents of the requests.
    pub workload: WorkloadNote,
    /// The targets that they ask.
    pub targets: Vec<TargetServer>,
    /// Can the figures be used? The worst of the phases that are measured.
    pub verdict: Validity,
    /// The run ended before its plan did: by Ctrl-C, or because the target went away.
    pub is_cut: bool,
    /// Sentences for the reader: facts to know before believing a figure.
    pub notes: Vec<String>,
    /// In order of time.
    pub phases: Vec<PhaseResult>,
    /// The figures that the targets reported of themselves; only those that were asked.
    pub servers: Vec<ServerSeries>,
    /// `--find-max`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchCourse>,
    /// `--overload`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<OverloadCourse>,
    /// `--profile`
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<TargetProfile>,
}

/// The program that measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// `dendra bench`
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Commit it was built from, ending in `+` when the sources differed from it; `unknown` without
    /// git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// Where the generator ran. A fact that could not be found out is empty or zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that the generator may use.
    pub cpus: u32,
    /// Model of the processors, as the kernel names it.
    pub cpu_model: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Distribution.
    pub system: String,
}

/// How the generator was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeneratorSettings {
    /// Open or closed.
    pub mode: Mode,
    /// The schedule in words, as `--schedule` takes it.
    pub schedule: String,
    /// Planned requests a second, mean over the measured phase; zero in a closed loop.
    pub rate: f64,
    /// Length of the measured phase.
    pub duration_s: f64,
    /// Length of the warm-up before it.
    pub warmup_s: f64,
    /// Connections, all targets together.
    pub connections: u32,
    /// Threads of the generator.
    pub threads: u32,
    /// Requests in flight on one connection, at most.
    pub pipeline: u32,
    /// After this a request is given up.
    pub timeout_ms: u64,
    /// Seed of everything drawn.
    pub seed: u64,
    /// The generator never slept (`--spin`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spins: bool,
}

/// The rule by which the next request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A schedule that was fixed in advance.
    Open,
    /// The answer to the one before: latencies of a closed loop hide the cost of a stall.
    Closed,
}

/// The contents of the requests, in the words of the command line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadNote {
    /// `put`, `get`, `ycsb-a`, `ammo`, …
    pub name: String,
    /// Share of each operation, summing to one. Empty where a file decides.
    pub mix: BTreeMap<String, f64>,
    /// Number of records.
    pub keys: u64,
    /// Distribution of keys: `uniform`, `zipfian 0.99`, …
    pub distribution: String,
    /// Distribution of value sizes: `fixed 100`, …
    pub values: String,
    /// Share of reads that ask for a key that never was.
    pub miss_ratio: f64,
    /// File that the requests come from, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// One server that is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetServer {
    /// URL as given.
    pub url: String,
    /// Template of the path, `{key}` for the key.
    pub template: String,
    /// Base of the admin port, when it is asked for samples and profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
}

/// Can figures be used?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Validity {
    /// Yes.
    Valid,
    /// No: the sentence says why, and begins `the generator was the bottleneck` when it was.
    Invalid {
        /// Why.
        reason: String,
    },
}

/// A stretch of time with one plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// For people: `measure`, `search 3: 40000/s`, `overload 2x`, …
    pub name: String,
    /// Purpose of the phase.
    pub kind: PhaseKind,
    /// When the first request was due.
    pub start_s: f64,
    /// How long requests were planned for. Answers may come later.
    pub length_s: f64,
    /// Planned requests a second, mean; zero in a closed loop.
    pub rate: f64,
    /// Is this phase usable?
    pub verdict: Validity,
    /// All operations, all targets.
    pub counts: Counts,
    /// By operation.
    pub ops: Vec<OpResult>,
    /// By target, all operations, in the order of [`Run::targets`].
    pub targets: Vec<TargetResult>,
    /// The instrument's own error.
    pub generator: Generator,
}

/// The purpose of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseKind {
    /// Records are written that the workload will read.
    Preload,
    /// Not counted.
    Warmup,
    /// The measurement itself.
    Measure,
    /// One step of `--find-max`.
    Search,
    /// One step of `--overload`.
    Overload,
    /// The rate of before, after an overload.
    Recovery,
    /// Load of the measured phase once more, while profiles are taken.
    Profiled,
}

/// Every planned request, once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Due by the plan.
    pub planned: u64,
    /// Written to a socket, at least in part.
    pub sent: u64,
    /// A whole answer came in time, with any status.
    pub answered: u64,
    /// Answers that did as asked: 1xx to 3xx, 404 for a read, 412 for a conditional write.
    pub ok: u64,
    /// Reads of a key that is not there (404), among `ok`.
    pub misses: u64,
    /// Conditional writes whose condition did not hold (412), among `ok`.
    pub conditions_failed: u64,
    /// Answers that say "not now": 429, 503, 507.
    pub refused: u64,
    /// All other answers.
    pub failed: u64,
    /// No whole answer in time.
    pub timeouts: u64,
    /// The connection broke under it, or carried something that is no answer.
    pub broken: u64,
    /// Due, but no connection was free before it was given up: the target took no more, or was
    /// gone.
    pub unsent: u64,
    /// Bytes of requests, heads included.
    pub sent_bytes: u64,
    /// Bytes of answers, heads included.
    pub received_bytes: u64,
    /// Bytes of bodies of answers: those that a reader wanted.
    pub body_bytes: u64,
    /// Records in answers to scans, where they could be counted.
    pub scanned: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
}

/// One operation in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpResult {
    /// `get`, `put`, `delete`, `scan`, `read-modify-write`, `put-if`, or the method in ammo.
    pub op: String,
    /// Over all seconds.
    pub counts: Counts,
    /// Second by second since the start of the phase; the last ones may lie after its end.
    pub seconds: Vec<Second>,
    /// From the planned instant to the last byte of the answer, for `ok` answers. Requests that
    /// were given up (`timeouts`, `unsent`) count with the time they had waited by then. In a
    /// closed loop this is `service`.
    pub response: Latency,
    /// Answers in `response` that were given up: subtracted from it, those that did as asked are
    /// left.
    pub given_up: Latency,
    /// From the first byte sent to the last byte of the answer: `ok` answers.
    pub service: Latency,
    /// Response time of refused requests.
    pub refused: Latency,
    /// Response time of requests that failed or broke.
    pub failed: Latency,
}

/// One second of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Due in this second.
    pub planned: u64,
    /// Sent in this second.
    pub sent: u64,
    /// Requests that ended in this second and did as asked.
    pub ok: u64,
    /// Misses among `ok`.
    pub misses: u64,
    /// Requests that ended in this second and were refused.
    pub refused: u64,
    /// Requests that ended in this second with another status.
    pub failed: u64,
    /// Requests that were given up in this second.
    pub timeouts: u64,
    /// of these, never sent: no connection was free in time,
    pub unsent: u64,
    /// Requests whose connection broke in this second.
    pub broken: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of times.
    pub count: u64,
    /// Microseconds, as the five that follow; zero when there are none.
    pub min_us: f64,
    /// Mean.
    pub mean_us: f64,
    /// Standard deviation.
    pub stdev_us: f64,
    /// Largest.
    pub max_us: f64,
    /// Percentiles by name: `p50`, `p75`, `p90`, `p99`, `p99.9`, `p99.99`.
    pub percentiles_us: BTreeMap<String, f64>,
    /// The whole histogram: HdrHistogram V2, compressed, base64; three digits, nanoseconds. Empty
    /// when there are no times.
    pub hdr: String,
    /// A heat map: for each second of the phase, by planned instant, how many times fell in each
    /// bucket of [`heat_bound_us`]. Trailing empty buckets are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heat: Vec<Vec<u64>>,
}

/// Number of buckets of a heat map: four an octave, from 1 µs to 2^26 µs, about 67 s. The last one
/// holds everything longer.
pub const HEAT_BUCKETS: usize = 105;

/// Lower bound of a bucket, microseconds: `2^(bucket/4)`; the first one begins at zero.
pub fn heat_bound_us(bucket: usize) -> f64 {
    if bucket == 0 {
        return 0.0;
    }
    2f64.powf(bucket as f64 / 4.0)
}

/// One target in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetResult {
    /// All operations.
    pub counts: Counts,
    /// Response time as in [`OpResult`].
    pub response: Latency,
    /// Service time as in [`OpResult`].
    pub service: Latency,
}

/// The cost of the generator, and how late it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// How late requests left while a connection was free: the generator's own fault.
    pub send_lag: Latency,
    /// Requests that left later than [`Generator::send_lag_limit_us`].
    pub missed: u64,
    /// The lag from which a request counts as missed.
    pub send_lag_limit_us: f64,
    /// CPU time of all its threads, without the time spun away on purpose.
    pub cpu_s: f64,
    /// Time spun away while waiting for the next instant.
    pub spun_s: f64,
    /// Time in which its threads were ready to run and others had the processor.
    pub starved_s: f64,
    /// Wall time times threads: the most that it could have used.
    pub available_s: f64,
    /// Share of the busiest thread: `cpu_s` and `starved_s` as a share of its wall time.
    pub busiest_share: f64,
    /// `cpu_s` for one sent request.
    pub cpu_us_per_request: f64,
    /// Connections opened, the first ones included.
    pub connects: u64,
    /// Connections among these in the place of one that had ended.
    pub reconnects: u64,
    /// Second by second since the start of the phase.
    pub seconds: Vec<GeneratorSecond>,
}

/// One second of the generator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorSecond {
    /// Requests in flight at the end of the second.
    pub in_flight: u64,
    /// Requests that were due and waited for a connection at the end of the second.
    pub backlog: u64,
    /// Connections opened in it in the place of ones that had ended.
    pub reconnects: u64,
    /// CPU seconds of all threads in it, spinning left out.
    pub cpu_s: f64,
    /// Largest send lag in it.
    pub send_lag_us_max: f64,
}

/// The figures that a target reported of itself while it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSeries {
    /// Index in [`Run::targets`].
    pub target: usize,
    /// When each sample was taken.
    pub at_s: Vec<f64>,
    /// Numbers of `/metrics` that changed, by full name with labels as on the page, such as
    /// `dendra_engine_tables{level="0"}`. One value a sample, null where it was not there.
    pub series: BTreeMap<String, Vec<Option<f64>>>,
    /// Figures that never changed.
    pub constant: BTreeMap<String, f64>,
    /// Buckets of histograms (`…_bucket{…}`): the first and the last value.
    pub buckets: BTreeMap<String, [f64; 2]>,
    /// `/v0/status` of the admin port at the start and at the end; null when it was not there.
    pub status: [serde_json::Value; 2],
    /// Samples that failed.
    pub failures: u64,
}

/// The course of `--find-max`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchCourse {
    /// The objective, as given.
    pub slo: String,
    /// In order of time.
    pub steps: Vec<SearchStep>,
    /// The highest rate that met the objective in every repeat; zero when none did.
    pub knee_low: f64,
    /// The lowest rate above it that did not; null when no rate that was tried failed.
    pub knee_high: Option<f64>,
    /// The rate at which the generator was the bottleneck, when the search ended for that. The knee
    /// is then not lower than `knee_low`, and no more is known. Absent when the search came to its
    /// end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_limit: Option<f64>,
    /// The answer in one sentence.
    pub sentence: String,
}

/// One rate that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchStep {
    /// Planned requests a second.
    pub rate: f64,
    /// Why this rate.
    pub why: SearchWhy,
    /// Index in [`Run::phases`].
    pub phase: usize,
    /// Did it meet the objective, with a generator that was not the bottleneck?
    pub is_met: bool,
    /// Was the generator the bottleneck? Then the run is no measure of the target.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_void: bool,
    /// If not met, the part that failed: `p99 31.2 ms > 10 ms`; if void, why.
    pub reason: String,
    /// Requests a second that did as asked.
    pub goodput: f64,
    /// Response time, 99th percentile.
    pub p99_us: f64,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Why a rate was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchWhy {
    /// Twice the one before.
    Double,
    /// Between one that held and one that did not.
    Bisect,
    /// Again, close to the knee.
    Repeat,
}

/// The course of `--overload`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverloadCourse {
    /// The rate that is multiplied: the knee, or the rate that was given.
    pub base_rate: f64,
    /// The rate before and after each step, a share of `base_rate`.
    pub calm_rate: f64,
    /// Index in [`Run::phases`] of the calm phase before the first step.
    pub base_phase: usize,
    /// 99th percentile of the response time of requests that did as asked in that phase.
    pub calm_p99_us: f64,
    /// 99th percentile of the service time of those requests.
    pub calm_service_p99_us: f64,
    /// The most goodput of any phase of the run whose generator was not the bottleneck.
    pub peak_goodput: f64,
    /// One for each factor.
    pub steps: Vec<OverloadStep>,
}

/// The effect of too much load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverloadStep {
    /// Times the base rate.
    pub factor: f64,
    /// Planned requests a second.
    pub rate: f64,
    /// Index in [`Run::phases`].
    pub phase: usize,
    /// Index of the phase after it, at the calm rate. It is as long as a step and the timeout
    /// together, since a request of the step lives for the timeout.
    pub recovery_phase: usize,
    /// Requests a second that did as asked while the step lasted ([`Run::goodput`]).
    pub goodput: f64,
    /// Refused, as a share of the planned requests.
    pub refused_share: f64,
    /// Failed, broken, timed out, or unsent, as a share of the planned requests.
    pub lost_share: f64,
    /// Response time of those that did as asked, 99th percentile.
    pub accepted_p99_us: f64,
    /// Service time of the same, 99th percentile: from the send, without the wait for a connection.
    pub service_p99_us: f64,
    /// Seconds from the end of the overload until a second was as good as before it; null when
    /// none was.
    pub normal_after_s: Option<f64>,
}

/// A profile of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetProfile {
    /// Index in [`Run::targets`].
    pub target: usize,
    /// `cpu`, `alloc`, `lock`, `wall`
    pub kind: String,
    /// When it began.
    pub start_s: f64,
    /// How long it took.
    pub length_s: f64,
    /// Folded stacks, one a line: `thread;outer;inner COUNT`. The first frame is the kind of
    /// thread.
    pub folded: String,
}

/// Why a `run.json` cannot be used.
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be read.
    Io(io::Error),
    /// The file is not JSON, or not a run.
    Shape(serde_json::Error),
    /// The file is of another version.
    Format(u32),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(e) => write!(f, "the file cannot be read ({e})"),
            ReadError::Shape(e) => write!(
                f,
                "the file is not a run.json of `dendra bench` ({e}); give the folder of --out"
            ),
            ReadError::Format(other) => write!(
                f,
                "the file has format {other} and this program reads format {FORMAT}; \
                 use the program that wrote it"
            ),
        }
    }
}

impl std::error::Error for ReadError {}

impl Run {
    /// Reads `run.json`, given the file or the folder that it is in.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(path: &Path) -> Result<Run, ReadError> {
        let file = if path.is_dir() {
            path.join("run.json")
        } else {
            path.to_owned()
        };
        let text = std::fs::read(file).map_err(ReadError::Io)?;
        Run::parse(&text)
    }

    /// Reads the text of a `run.json`.
    ///
    /// # Errors
    /// As [`Run::read`], without `Io`.
    pub fn parse(text: &[u8]) -> Result<Run, ReadError> {
        #[derive(Deserialize)]
        struct FormatHead {
            format: u32,
        }
        // The version first: another one may not have our fields.
        let head: FormatHead = serde_json::from_slice(text).map_err(ReadError::Shape)?;
        if head.format != FORMAT {
            return Err(ReadError::Format(head.format));
        }
        serde_json::from_slice(text).map_err(ReadError::Shape)
    }

    /// Requests a second that did as asked while phase `index` lasted. They are counted in its
    /// whole seconds, when it has some, and whichever phase they were due in. Answers after its end
    /// count there: a backlog that is worked off later is no work of this phase.
    pub fn goodput(&self, index: usize) -> f64 {
        let Some(phase) = self.phases.get(index) else {
            return 0.0;
        };
        let whole = phase.length_s.floor();
        if whole < 1.0 {
            return phase.counts.ok as f64 / phase.length_s.max(1e-9);
        }
        // Phases of one drive follow each other within a millisecond.
        let (from, to) = (phase.start_s - 0.01, phase.start_s + whole - 0.99);
        let mut ok = 0;
        for other in &self.phases[..=index] {
            let rows = other
                .ops
                .iter()
                .flat_map(|op| op.seconds.iter().enumerate());
            let is_in = |second: usize| (from..to).contains(&(other.start_s + second as f64));
            ok += rows
                .filter(|(second, _)| is_in(*second))
                .map(|(_, row)| row.ok)
                .sum::<u64>();
        }
        ok as f64 / whole
    }

    /// The phase that the headline figures come from: the measured one, else the last run at the
    /// rate that a search found. Else the last one that measures something.
    pub fn headline(&self) -> Option<&PhaseResult> {
        let measured = self.phases.iter().find(|p| p.kind == PhaseKind::Measure);
        let found = || {
            let search = self.search.as_ref()?;
            let at_knee = |step: &&SearchStep| step.is_met && step.rate == search.knee_low;
            let step = search.steps.iter().rev().find(at_knee)?;
            self.phases.get(step.phase)
        };
        let other = |p: &&PhaseResult| {
            !matches!(
                p.kind,
                PhaseKind::Preload | PhaseKind::Warmup | PhaseKind::Profiled
            )
        };
        measured
            .or_else(found)
            .or_else(|| self.phases.iter().rev().find(other))
    }
}

impl Validity {
    /// Can the figures be used?
    pub fn is_valid(&self) -> bool {
        matches!(self, Validity::Valid)
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Validity::Valid => f.write_str("valid"),
            Validity::Invalid { reason } => write!(f, "invalid: {reason}"),
        }
    }
}

impl Counts {
    /// Adds another one.
    pub fn add(&mut self, other: &Counts) {
        self.planned += other.planned;
        self.sent += other.sent;
        self.answered += other.answered;
        self.ok += other.ok;
        self.misses += other.misses;
        self.conditions_failed += other.conditions_failed;
        self.refused += other.refused;
        self.failed += other.failed;
        self.timeouts += other.timeouts;
        self.broken += other.broken;
        self.unsent += other.unsent;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.body_bytes += other.body_bytes;
        self.scanned += other.scanned;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
    }

    /// All requests that did not do as asked.
    pub fn errors(&self) -> u64 {
        self.refused + self.failed + self.timeouts + self.broken + self.unsent
    }

    /// Does invariant 2 hold?
    pub fn is_whole(&self) -> bool {
        self.planned == self.answered + self.timeouts + self.broken + self.unsent
            && self.answered == self.ok + self.refused + self.failed
            && self.answered == self.statuses.values().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EMPTY: &[u8] = br#"{"format":1,"tool":{"name":"","version":""},"command":[],"started_unix_ms":0,"length_s":0,
            "machine":{"cpus":0,"cpu_model":"","memory_bytes":0,"kernel":"","system":""},
            "settings":{"mode":"open","schedule":"","rate":0,"duration_s":0,"warmup_s":0,"connections":0,
            "threads":0,"pipeline":0,"timeout_ms":0,"seed":0},
            "workload":{"name":"","mix":{},"keys":0,"distribution":"","values":"","miss_ratio":0},
            "targets":[],"verdict":{"verdict":"valid"},"is_cut":false,"notes":[],"phases":[],"servers":[]}"#;

    #[test]
    fn another_format_is_refused_with_a_sentence() {
        let error = Run::parse(br#"{"format": 7}"#).expect_err("seven is not ours");
        assert!(error.to_string().contains("format 7"), "{error}");
        let error = Run::parse(b"[]").expect_err("an array is no run");
        assert!(error.to_string().contains("not a run.json"), "{error}");
    }

    #[test]
    fn a_verdict_is_one_flat_object() {
        let verdict = Validity::Invalid {
            reason: "late".to_owned(),
        };
        let text = serde_json::to_string(&verdict).expect("it is plain");
        assert_eq!(text, r#"{"verdict":"invalid","reason":"late"}"#);
    }

    proptest! {
        #[test]
        fn any_legal_run_is_read_as_it_was_written(
            texts in prop::collection::vec("\\PC{0,20}|[\\x00-\\x1f\\x7f]{0,5}", 6),
            number: u64,
            seconds: u32,
            statuses in prop::collection::btree_map(any::<u16>(), any::<u64>(), 0..4),
            is_valid: bool,
            is_cut: bool,
        ) {
            let length_s = f64::from(seconds);
            let invalid = Validity::Invalid { reason: texts[0].clone() };
            let verdict = if is_valid { Validity::Valid } else { invalid };
            let mut run = Run::parse(EMPTY).expect("it has every field");
            run.tool.version.clone_from(&texts[1]);
            run.command.clone_from(&texts);
            run.notes.clone_from(&texts);
            run.started_unix_ms = number;
            run.length_s = length_s;
            run.verdict = verdict.clone();
            run.is_cut = is_cut;
            run.workload.mix.insert(texts[2].clone(), length_s);
            run.phases = vec![PhaseResult {
                name: texts[3].clone(),
                kind: PhaseKind::Measure,
                start_s: length_s,
                length_s,
                rate: length_s,
                verdict,
                counts: Counts { planned: number, statuses, ..Counts::default() },
                ops: Vec::new(),
                targets: Vec::new(),
                generator: Generator::default(),
            }];
            let text = serde_json::to_vec(&run).expect("a run is plain");
            let read = Run::parse(&text).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(read, run);
        }
    }

    #[test]
    fn goodput_is_what_was_done_while_the_phase_lasted() {
        let phase = |start_s: f64, ok: &[u64]| {
            let mut phase = PhaseResult {
                name: String::new(),
                kind: PhaseKind::Overload,
                start_s,
                length_s: 2.0,
                rate: 0.0,
                verdict: Validity::Valid,
                counts: Counts::default(),
                ops: Vec::new(),
                targets: Vec::new(),
                generator: Generator::default(),
            };
            phase.ops.push(OpResult {
                op: "get".to_owned(),
                counts: Counts::default(),
                seconds: ok
                    .iter()
                    .map(|&ok| Second {
                        ok,
                        ..Second::default()
                    })
                    .collect(),
                response: Latency::default(),
                given_up: Latency::default(),
                service: Latency::default(),
                refused: Latency::default(),
                failed: Latency::default(),
            });
            phase
        };
        let mut run = Run::parse(EMPTY).expect("it has every field");
        run.phases = vec![
            // Of an earlier drive, then two in a row: the first one leaves work to the second.
            phase(0.0, &[1000, 1000, 1000]),
            phase(10.0, &[100, 100, 60, 40, 7]),
            phase(12.0, &[30, 50, 9]),
        ];
        assert_eq!(run.goodput(1), 100.0);
        assert_eq!(run.goodput(2), 90.0);
        assert_eq!(run.goodput(3), 0.0);
    }

    #[test]
    fn buckets_of_the_heat_map_double_every_four() {
        assert_eq!(heat_bound_us(0), 0.0);
        assert_eq!(heat_bound_us(4), 2.0);
        assert_eq!(heat_bound_us(HEAT_BUCKETS - 1), f64::from(1 << 26));
    }
}
