//! The rows of the report: each asks one question and answers it with paired windows.
//!
//! ```text
//! round 1   A B C    round 2   B C A    round 3   C A B      every round sees the same weather
//! ```
//!
//! Invariants
//! 1. All variants of a row run in turn in every round, each round starting with another one.
//! 2. A goal is judged by the median of the ratios of the rounds, never by figures of two rounds.
//! 3. A yardstick that is not installed is named in the notes of the row; it is never left out in
//!    silence.
//!
//! Not here: markdown (`report.rs`), one window (`window.rs`).
//! See: docs/lab/README.md.

mod big;
mod paired;
mod tail;

use crate::Result;
use crate::keys::Keys;
use crate::load::{Load, Stored, Workload};
use crate::server::Server;
use crate::stats::{self, Spread};
use crate::window::{self, Pace, Window};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use big::big;
pub(crate) use paired::{get, put_os, put_sync};
pub(crate) use tail::tail;

/// How long, how often, with what.
pub(crate) struct Plan {
    /// The binary under test; without it only the yardsticks run.
    pub(crate) dendra: Option<PathBuf>,
    /// More options for `dendra serve`.
    pub(crate) dendra_options: Vec<String>,
    /// Where servers keep their data; on the disk that is to be measured.
    pub(crate) folder: PathBuf,
    /// Length of one window.
    pub(crate) length: Duration,
    /// Windows of each variant.
    pub(crate) rounds: usize,
    /// Connections of the generator.
    pub(crate) connections: usize,
    /// Keys stored for the rows that fit in memory.
    pub(crate) keys: u64,
    /// Keys stored for the row `big`.
    pub(crate) big_keys: u64,
    /// Core of the servers.
    pub(crate) server_core: usize,
}

impl Plan {
    /// Load on `server`: keys `keys`, `put_percent` writes, one request in flight a connection.
    fn workload(&self, server: &Server, keys: Keys, put_percent: u64, values: Stored) -> Workload {
        Workload {
            address: server.address,
            protocol: server.protocol,
            keys,
            put_percent,
            values,
            connections: self.connections,
            depth: 1,
            seed: 1,
        }
    }

    /// `server` in a closed loop with such a load.
    fn closed<'a>(
        &self,
        server: &'a Server,
        keys: Keys,
        put_percent: u64,
        values: Stored,
    ) -> Variant<'a> {
        let workload = self.workload(server, keys, put_percent, values);
        Variant {
            name: server.name,
            server,
            workload,
            pace: Pace::Closed,
        }
    }

    /// A dendra on a fresh or kept folder below the run's folder.
    fn dendra(&self, name: &'static str, folder: &str, options: &[&str]) -> Result<Server> {
        let binary = self.binary()?;
        let extra = self.dendra_options.iter().map(String::as_str);
        let options: Vec<&str> = options.iter().copied().chain(extra).collect();
        Server::dendra(name, self.server_core, binary, &self.data(folder), &options)
    }

    fn binary(&self) -> Result<&Path> {
        let binary = self.dendra.as_deref();
        binary.ok_or_else(|| "dendra is not measured: `--dendra PATH` names its binary".into())
    }

    fn data(&self, folder: &str) -> PathBuf {
        self.folder.join(folder)
    }
}

/// One server with one workload.
pub(crate) struct Variant<'a> {
    /// Name in the tables.
    pub(crate) name: &'static str,
    /// Who is asked.
    pub(crate) server: &'a Server,
    /// What.
    pub(crate) workload: Workload,
    /// How fast.
    pub(crate) pace: Pace,
}

/// The windows of one variant, one for each round.
pub(crate) struct Series {
    /// Name of the variant.
    pub(crate) name: &'static str,
    /// In the order of the rounds.
    pub(crate) windows: Vec<Window>,
}

/// One number against one bound.
pub(crate) struct Goal {
    /// What is compared, in words.
    pub(crate) what: String,
    /// The measured values, one for each round.
    pub(crate) values: Vec<f64>,
    /// What they are held against.
    pub(crate) bound: Bound,
}

/// What a median must keep to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// At most this.
    AtMost(f64),
    /// Less than this.
    Below(f64),
    /// More than this.
    Above(f64),
    /// Nothing is promised; the number is shown.
    Shown,
}

impl Goal {
    /// Median and range of the rounds.
    pub(crate) fn spread(&self) -> Option<Spread> {
        Spread::of(self.values.iter().copied())
    }

    /// Is it kept? `None` when nothing is promised or nothing was measured.
    pub(crate) fn is_met(&self) -> Option<bool> {
        let median = self.spread()?.median;
        match self.bound {
            Bound::AtMost(bound) => Some(median <= bound),
            Bound::Below(bound) => Some(median < bound),
            Bound::Above(bound) => Some(median > bound),
            Bound::Shown => None,
        }
    }
}

/// One answered question.
pub(crate) struct Row {
    /// Short name, as in `--rows`.
    pub(crate) name: &'static str,
    /// What is asked, in a sentence.
    pub(crate) question: &'static str,
    /// What was measured.
    pub(crate) series: Vec<Series>,
    /// What comes out.
    pub(crate) goals: Vec<Goal>,
    /// What the reader must know: skipped yardsticks, odd windows.
    pub(crate) notes: Vec<String>,
    /// Why it could not be measured.
    pub(crate) failure: Option<String>,
}

impl Row {
    fn new(name: &'static str, question: &'static str) -> Row {
        Row {
            name,
            question,
            series: Vec::new(),
            goals: Vec::new(),
            notes: Vec::new(),
            failure: None,
        }
    }

    /// A row that could not be measured.
    pub(crate) fn failed(name: &'static str, error: &dyn std::error::Error) -> Row {
        eprintln!("  {name} failed: {error}");
        let mut row = Row::new(name, "This row could not be measured.");
        row.failure = Some(error.to_string());
        row
    }

    /// The server, or a note that says why there is none.
    fn started(&mut self, server: Result<Server>) -> Option<Server> {
        server
            .map_err(|error| self.note(format!("left out: {error}")))
            .ok()
    }

    fn note(&mut self, note: String) {
        eprintln!("  {}: {note}", self.name);
        self.notes.push(note);
    }

    fn values(&self, name: &str, figure: impl Fn(&Window) -> Option<f64>) -> Option<Vec<f64>> {
        let series = self.series.iter().find(|series| series.name == name)?;
        series.windows.iter().map(figure).collect()
    }

    /// Adds the ratio of a figure of two variants, round by round, if both were measured.
    fn ratio(
        &mut self,
        of: &str,
        to: &str,
        what: &str,
        figure: impl Fn(&Window) -> f64,
        bound: Bound,
    ) {
        self.ratio_if_measured(of, to, what, |window| Some(figure(window)), bound);
    }

    /// The instructions and cycles of two variants, where the machine counts them. No goal is set
    /// in them; they say how much of a ratio of times was weather.
    fn counted(&mut self, of: &str, to: &str) {
        self.ratio_if_measured(of, to, "instructions", |w| w.kinstructions, Bound::Shown);
        self.ratio_if_measured(of, to, "cycles", |w| w.kcycles, Bound::Shown);
    }

    fn ratio_if_measured(
        &mut self,
        of: &str,
        to: &str,
        what: &str,
        figure: impl Fn(&Window) -> Option<f64>,
        bound: Bound,
    ) {
        if let (Some(a), Some(b)) = (self.values(of, &figure), self.values(to, &figure)) {
            let what = format!("{what}: {of} / {to}");
            self.goals.push(Goal {
                what,
                values: stats::ratios(&a, &b),
                bound,
            });
        }
    }

    /// Runs all variants in turn, round after round.
    fn run(&mut self, plan: &Plan, variants: &[Variant<'_>], length: Duration) -> Result<()> {
        self.run_after(plan, variants, length, || Ok(()))
    }

    /// As `run`, with something to be done before every round.
    fn run_after(
        &mut self,
        plan: &Plan,
        variants: &[Variant<'_>],
        length: Duration,
        mut prepare: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let first = self.series.len();
        self.series.extend(variants.iter().map(|v| Series {
            name: v.name,
            windows: Vec::new(),
        }));
        for round in 0..plan.rounds {
            prepare()?;
            for turn in 0..variants.len() {
                let index = (round + turn) % variants.len();
                let variant = &variants[index];
                let mut workload = variant.workload;
                workload.seed += round as u64;
                let window = window::measure(variant.server, workload, variant.pace, length)?;
                eprintln!(
                    "  {} round {} {:<18} {:>8.0}/s {:>7.2} µs CPU  p99.9 {:>8.0} µs  generator {:>3.0} %{}",
                    self.name,
                    round + 1,
                    variant.name,
                    window.rate,
                    window.cpu_us,
                    window.latency_us[2],
                    100.0 * window.generator_share,
                    if window.is_quiet() {
                        ""
                    } else {
                        "  (not quiet)"
                    },
                );
                self.series[first + index].windows.push(window);
            }
        }
        Ok(())
    }
}

/// Stores `count` keys, many requests in flight, and says how it went.
fn preload(server: &Server, count: u64) -> Result<Preloaded> {
    each_once(server, count, 100).map_err(|error| server.failure(&error.to_string()))
}

/// Reads every key once, so that nothing is read for the first time in a window.
fn read_all(server: &Server, count: u64) -> Result<()> {
    let read = each_once(server, count, 0);
    read.map(|_| ())
        .map_err(|error| server.failure(&error.to_string()))
}

/// How a load went.
struct Preloaded {
    elapsed: Duration,
    refused: u64,
}

fn each_once(server: &Server, count: u64, put_percent: u64) -> Result<Preloaded> {
    let mut load = Load::connect(Workload {
        address: server.address,
        protocol: server.protocol,
        keys: Keys::EachOnce { count },
        put_percent,
        values: Stored::Yes,
        connections: 16,
        depth: 16,
        seed: 1,
    })?;
    let mut told = Instant::now();
    let tally = load.until_done(&mut |done| {
        if told.elapsed() > Duration::from_secs(5) {
            eprintln!("  {done} of {count} keys");
            told = Instant::now();
        }
    })?;
    Ok(Preloaded {
        elapsed: tally.elapsed,
        refused: tally.refused,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(values: &[f64], bound: Bound) -> Goal {
        Goal {
            what: String::new(),
            values: values.to_vec(),
            bound,
        }
    }

    #[test]
    fn a_goal_is_judged_by_the_median_of_its_rounds() {
        assert_eq!(
            goal(&[1.0, 1.1, 9.0], Bound::AtMost(1.1)).is_met(),
            Some(true)
        );
        assert_eq!(
            goal(&[1.0, 1.2, 1.3], Bound::AtMost(1.1)).is_met(),
            Some(false)
        );
        assert_eq!(goal(&[1.0], Bound::Below(1.0)).is_met(), Some(false));
        assert_eq!(goal(&[1.0], Bound::Above(0.9)).is_met(), Some(true));
        assert_eq!(goal(&[1.0], Bound::Shown).is_met(), None);
        assert_eq!(goal(&[], Bound::AtMost(1.0)).is_met(), None);
    }
}
