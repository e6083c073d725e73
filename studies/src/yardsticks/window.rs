//! One measured stretch of load on one server: its answers, and their cost.
//!
//! ```text
//! clocks ─► generator starts, connects, asks for `length`, ends ─► clocks
//! ```
//!
//! Invariants
//! 1. Cost = CPU time of all threads of the server, user and system, flush and compaction included,
//!    divided by the answers of the same stretch.
//! 2. Instructions and cycles are of the same threads and the same stretch, where the machine
//!    counts.
//! 3. A window says how quiet the machine was: time that the host took, and CPU that neither the
//!    server nor the generator used.
//!
//! Not here: pairing and rounds (`row.rs`).
//! See: docs/lab/README.md.

use crate::counters::Counters;
use crate::place::{Place, Side, find, output};
use crate::proc::{Elsewhere, MachineClock};
use crate::run::{Bench, Figures};
use crate::store::Server;
use std::collections::BTreeMap;
use std::process::Command;

/// Cores that others or the host may use in a quiet window. The kernel's own threads, which write a
/// server's dirty pages, count as others.
const QUIET_CORES_MAX: f64 = 0.10;

/// Share of its time above which the generator may have been the bottleneck.
const GENERATOR_SHARE_MAX: f64 = 0.90;

/// Share of the requests that may go wrong.
const LOST_MAX: f64 = 0.001;

/// The requests that a server gets, and the generator.
#[derive(Clone, Debug)]
pub(super) enum Load {
    /// `dendra bench` with these flags beside its length.
    Bench(String),
    /// So many `SET`s of 100 bytes by redis's own generator, which speaks redis's protocol.
    RedisBenchmark {
        /// Writes.
        requests: u32,
        /// Keys that they go to.
        keys: u32,
        /// Connections.
        connections: u32,
    },
}

/// The figures of one window.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Answers a second.
    pub(super) rate: f64,
    /// Server CPU for each answer, microseconds.
    pub(super) cpu_us: f64,
    /// Server CPU for each answer by kind of thread, microseconds.
    pub(super) cpu_us_by_name: BTreeMap<String, f64>,
    /// Thousands of instructions and of cycles for each answer, user and kernel mode.
    pub(super) kinstructions: Option<f64>,
    pub(super) kcycles: Option<f64>,
    /// Latency in microseconds: median, 99 %, 99.9 %; zero where the generator does not say it.
    pub(super) latency_us: [f64; 3],
    /// Open loop: 99.9 % of the generator's own lateness, microseconds.
    pub(super) lag_us: f64,
    /// Share of the window in which the generator had something to do.
    pub(super) generator_share: f64,
    /// Cores that neither server nor generator used.
    pub(super) elsewhere: Elsewhere,
}

impl Window {
    /// Was no other program busy?
    pub(super) fn is_quiet(&self) -> bool {
        self.elsewhere.others <= QUIET_CORES_MAX && self.elsewhere.steal <= QUIET_CORES_MAX
    }

    /// Could the server have gone faster with another generator?
    pub(super) fn is_generator_bound(&self) -> bool {
        self.generator_share > GENERATOR_SHARE_MAX
    }
}

/// The figures that a generator reports.
struct Said {
    answers: f64,
    rate: f64,
    latency_us: [f64; 3],
    lag_us: f64,
    generator_share: f64,
}

/// Runs one window of `length_s` seconds on `server`.
pub(super) fn measure(
    place: &Place,
    server: &Server,
    load: &Load,
    length_s: f64,
) -> Result<Window, String> {
    let machine = MachineClock::now()?;
    let clock = server.clock();
    let mut counters = Counters::of(server.id());
    let said = match load {
        Load::Bench(flags) => bench(place, server, flags, length_s)?,
        Load::RedisBenchmark {
            requests,
            keys,
            connections,
        } => redis_benchmark(place, server, *requests, *keys, *connections)?,
    };
    let by_name = server.spent(&clock);
    let counted = counters.as_mut().and_then(Counters::read);
    let spent_s: f64 = by_name.values().sum();
    let elsewhere = machine.elsewhere(spent_s)?;
    let by_answer = |seconds: f64| seconds * 1e6 / said.answers.max(1.0);
    let thousands = |count: f64| count / 1000.0 / said.answers.max(1.0);
    Ok(Window {
        rate: said.rate,
        cpu_us: by_answer(spent_s),
        cpu_us_by_name: by_name
            .into_iter()
            .map(|(name, seconds)| (name, by_answer(seconds)))
            .collect(),
        kinstructions: counted.map(|counted| thousands(counted.instructions)),
        kcycles: counted.map(|counted| thousands(counted.cycles)),
        latency_us: said.latency_us,
        lag_us: said.lag_us,
        generator_share: said.generator_share,
        elsewhere,
    })
}

/// Made once: a generator that was the bottleneck is a figure here, and is marked.
fn bench(place: &Place, server: &Server, flags: &str, length_s: f64) -> Result<Said, String> {
    let figures = Bench::new(place, &server.url, &place.folder.join("run"))
        .with(flags)
        .with(&format!("--warmup 0s --duration {length_s}s"))
        .attempts(1)
        .run()?;
    let Figures {
        answered,
        length_s: took_s,
        ..
    } = figures;
    let lost = figures.lost + figures.refused;
    if lost > LOST_MAX {
        let url = &server.url;
        return Err(format!("{url} did not do {:.2} % as asked", lost * 100.0));
    }
    Ok(Said {
        answers: answered,
        rate: answered / took_s,
        latency_us: [figures.p50_us, figures.p99_us, figures.p999_us],
        // A closed loop has no instant that it could miss.
        lag_us: if figures.planned_rate > 0.0 {
            figures.lag_p999_us
        } else {
            0.0
        },
        generator_share: figures.generator_share,
    })
}

/// Writes a second of `redis-benchmark`, and its percentiles.
fn redis_benchmark(
    place: &Place,
    server: &Server,
    requests: u32,
    keys: u32,
    connections: u32,
) -> Result<Said, String> {
    let program = find("redis-benchmark", &[]).ok_or("redis-benchmark is not installed")?;
    let port = server.url.rsplit(':').next().unwrap_or_default();
    let mut command = Command::new(program);
    command
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            port,
            "-t",
            "set",
            "-d",
            "100",
            "--csv",
        ])
        .args(["-n", &requests.to_string(), "-r", &keys.to_string()])
        .args(["-c", &connections.to_string()]);
    let text = place.on(Side::Generator, || output(&mut command))??;
    let figures = set_row(&text)
        .ok_or_else(|| format!("redis-benchmark printed nothing that can be read: {text}"))?;
    let [rate, p50_ms, p99_ms] = figures;
    Ok(Said {
        answers: f64::from(requests),
        rate,
        latency_us: [p50_ms * 1e3, p99_ms * 1e3, 0.0],
        lag_us: 0.0,
        generator_share: 0.0,
    })
}

/// Rate, p50 and p99 of the row `SET`; columns go by the names in the head.
fn set_row(csv: &str) -> Option<[f64; 3]> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split(',');
        cells
            .map(|cell| cell.trim().trim_matches('"').to_owned())
            .collect()
    };
    let heads = cells(csv.lines().find(|line| line.starts_with("\"test\""))?);
    let row = cells(csv.lines().find(|line| line.starts_with("\"SET\""))?);
    let at = |name: &str| {
        let column = heads.iter().position(|head| head == name)?;
        row.get(column)?.parse().ok()
    };
    Some([at("rps")?, at("p50_latency_ms")?, at("p99_latency_ms")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_redis_benchmark_is_read_by_the_names_of_its_columns() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                   \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                   \"SET\",\"2500.00\",\"1.5\",\"0.5\",\"1.25\",\"2.0\",\"3.5\",\"9.0\"\n";
        assert_eq!(set_row(csv), Some([2500.0, 1.25, 3.5]));
        assert_eq!(set_row("\"SET\",\"2500.00\"\n"), None);
    }
}
