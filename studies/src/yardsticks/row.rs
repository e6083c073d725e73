//! Variants in turn, round after round, and their results.
//!
//! ```text
//! Plan ─► servers, loads ─► Variant … ─► Row::run ─► Series of windows ─► ratios, table, CSV
//! ```
//!
//! Invariants
//! 1. All variants of a row run in turn in every round, each round starting with another one.
//! 2. Every window is in the CSV, quiet or not.
//!
//! Not here: one window (`window.rs`), which variants there are (`paired.rs`, `tail.rs`, `big.rs`).
//! See: docs/lab/README.md.

use super::window::{self, Load, Window};
use crate::goals::Bound;
use crate::place::Place;
use crate::report::Report;
use crate::run::Bench;
use crate::stats::{self, Spread};
use crate::store::Server;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

/// How long, how often, with how much.
pub(super) struct Plan<'a> {
    pub(super) place: &'a Place,
    /// Length of one window, seconds.
    pub(super) length_s: f64,
    /// Windows of each variant.
    pub(super) rounds: u32,
    pub(super) connections: u32,
    /// Keys stored for the rows that fit in memory.
    pub(super) keys: u32,
    /// Keys stored for the row `big`.
    pub(super) big_keys: u32,
    /// More options for every `dendra serve`.
    pub(super) serve: Vec<&'a str>,
}

impl<'a> Plan<'a> {
    pub(super) fn of(place: &'a Place) -> Result<Plan<'a>, String> {
        let options = &place.options;
        let serve = options.own.get("--serve").map_or("", String::as_str);
        Ok(Plan {
            place,
            length_s: options.seconds.unwrap_or(2.0),
            rounds: options.count("--rounds", 7, 1..=1000)?,
            connections: options.count("--connections", 64, 1..=256)?,
            keys: options.count("--keys", 100_000, 1..=u32::MAX)?,
            big_keys: options.count("--big-keys", 10_000_000, 1000..=u32::MAX)?,
            serve: serve.split(',').filter(|word| !word.is_empty()).collect(),
        })
    }

    /// A node on a fresh or kept folder of the run.
    pub(super) fn dendra(&self, folder: &str, options: &[&str]) -> Result<Server, String> {
        let options = [options, &self.serve].concat();
        Server::node(self.place, &self.data(folder), &options)
    }

    pub(super) fn data(&self, folder: &str) -> PathBuf {
        self.place.folder.join(folder)
    }

    /// A closed loop of a generator that never sleeps. A server's answers would have to wake it,
    /// and the interrupt to another core would be booked on the server.
    pub(super) fn closed(&self, asks: &str) -> Load {
        let connections = self.connections;
        Load::Bench(format!(
            "{asks} --closed --spin --connections {connections}"
        ))
    }

    /// So many records, many requests in flight.
    pub(super) fn records(&self, count: u32) -> String {
        format!("--workload put --keys {count} --connections 256")
    }

    /// Reads every record about once, in order of their numbers.
    pub(super) fn read_all(&self, server: &Server) -> Result<(), String> {
        let seconds = 1.0 + f64::from(self.keys) / 20_000.0;
        let flags = format!(
            "--workload get --distribution sequential --keys {} --closed --warmup 0s",
            self.keys
        );
        Bench::new(self.place, &server.url, &self.place.folder.join("load"))
            .with(&flags)
            .with(&format!(
                "--duration {seconds}s --connections {}",
                self.connections
            ))
            .attempts(1)
            .run()
            .map(drop)
    }
}

/// One server with one load.
pub(super) struct Variant<'a> {
    /// Name in the tables.
    pub(super) name: &'static str,
    pub(super) server: &'a Server,
    pub(super) load: Load,
}

/// The windows of one variant, one for each round.
struct Series {
    name: &'static str,
    windows: Vec<Window>,
}

/// One answered question.
pub(super) struct Row {
    name: &'static str,
    series: Vec<Series>,
    pub(super) goals: Vec<(String, Vec<f64>, Bound)>,
    /// For the reader: skipped yardsticks, odd windows.
    notes: Vec<String>,
}

impl Row {
    pub(super) fn new(name: &'static str) -> Row {
        Row {
            name,
            series: Vec::new(),
            goals: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The server, or a note that says why there is none.
    pub(super) fn started(&mut self, server: Result<Server, String>) -> Option<Server> {
        server
            .map_err(|why| self.note(format!("left out: {why}")))
            .ok()
    }

    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub(super) fn values(
        &self,
        name: &str,
        figure: impl Fn(&Window) -> Option<f64>,
    ) -> Option<Vec<f64>> {
        let series = self.series.iter().find(|series| series.name == name)?;
        series.windows.iter().map(figure).collect()
    }

    /// Adds the ratio of a figure of two variants, round by round, if both were measured.
    pub(super) fn ratio(
        &mut self,
        of: &str,
        to: &str,
        what: &str,
        figure: impl Fn(&Window) -> Option<f64>,
        bound: Bound,
    ) {
        if let (Some(a), Some(b)) = (self.values(of, &figure), self.values(to, &figure)) {
            let what = format!("{what}: {of} / {to}");
            self.goals.push((what, stats::ratios(&a, &b), bound));
        }
    }

    /// Cost of a request.
    pub(super) fn cost(&mut self, of: &str, to: &str, what: &str, bound: Bound) {
        self.ratio(of, to, what, |window| Some(window.cpu_us), bound);
    }

    /// The instructions and cycles of two variants, where the machine counts them. No goal is set
    /// in them; they say how much of a ratio of times was weather.
    pub(super) fn counted(&mut self, of: &str, to: &str) {
        self.ratio(
            of,
            to,
            "instructions",
            |window| window.kinstructions,
            Bound::Shown,
        );
        self.ratio(of, to, "cycles", |window| window.kcycles, Bound::Shown);
    }

    /// Runs all variants in turn, round after round, and `prepare` before each round.
    pub(super) fn run(
        &mut self,
        plan: &Plan<'_>,
        variants: &[Variant<'_>],
        length_s: f64,
        mut prepare: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        let first = self.series.len();
        self.series.extend(variants.iter().map(|variant| Series {
            name: variant.name,
            windows: Vec::new(),
        }));
        for round in 0..plan.rounds as usize {
            prepare()?;
            for turn in 0..variants.len() {
                let index = (round + turn) % variants.len();
                let Variant { name, server, load } = &variants[index];
                let window = window::measure(plan.place, server, load, length_s)
                    .map_err(|why| format!("{name}: {why}"))?;
                eprintln!(
                    "  {} round {} {name:<18} {:>8.0}/s {:>7.2} µs CPU  p99.9 {:>8.0} µs{}",
                    self.name,
                    round + 1,
                    window.rate,
                    window.cpu_us,
                    window.latency_us[2],
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

    pub(super) fn show(&self, report: &mut Report) {
        if !self.series.is_empty() {
            report.table(&HEADS);
        }
        for series in &self.series {
            report.row(&series.cells());
        }
        for series in &self.series {
            if let Some(threads) = series.threads() {
                report.line(format_args!("\n{threads}"));
            }
        }
        if !self.notes.is_empty() {
            report.line("");
        }
        for note in &self.notes {
            report.line(format_args!("* {}", note.replace('\n', " / ")));
        }
    }

    /// Every window, quiet or not.
    pub(super) fn write_csv(&self, out: &mut String) {
        let counted = |figure: Option<f64>| figure.map_or_else(String::new, |k| format!("{k:.3}"));
        for series in &self.series {
            for (round, window) in series.windows.iter().enumerate() {
                let [p50, p99, p999] = window.latency_us;
                writeln!(
                    out,
                    "{},{},{},{:.0},{:.3},{},{},{p50:.1},{p99:.1},{p999:.1},{:.1},{:.3},{:.3},{:.3}",
                    self.name,
                    series.name,
                    round + 1,
                    window.rate,
                    window.cpu_us,
                    counted(window.kinstructions),
                    counted(window.kcycles),
                    window.lag_us,
                    window.generator_share,
                    window.elsewhere.others,
                    window.elsewhere.steal,
                )
                .expect("a string takes all text");
            }
        }
    }
}

pub(super) const CSV_HEAD: &str = "row,variant,round,requests_per_s,cpu_us,kinstructions,kcycles,p50_us,p99_us,\
                        p99.9_us,generator_lag_us,generator_share,other_share,steal_share\n";

const HEADS: [&str; 10] = [
    "",
    "CPU µs a request",
    "1000 instructions",
    "1000 cycles",
    "requests/s",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "generator",
    "quiet windows",
];

impl Series {
    fn spread(&self, figure: impl Fn(&Window) -> Option<f64>) -> String {
        let values: Option<Vec<f64>> = self.windows.iter().map(figure).collect();
        let spread = values.and_then(Spread::of);
        spread.map_or_else(|| "–".to_owned(), Spread::words)
    }

    fn cells(&self) -> Vec<String> {
        let count = |is_one: fn(&Window) -> bool| self.windows.iter().filter(|w| is_one(w)).count();
        let bound = count(Window::is_generator_bound);
        let is_open = self.windows.iter().any(|window| window.lag_us > 0.0);
        let share = Spread::of(
            self.windows
                .iter()
                .map(|window| 100.0 * window.generator_share),
        );
        let generator = match share {
            // In an open loop the figure that counts is the generator's own lateness.
            Some(_) if is_open => {
                format!(
                    "p99.9 late {} µs",
                    self.spread(|window| Some(window.lag_us))
                )
            }
            Some(share) if bound > 0 => {
                format!("{:.0} %, **the bottleneck** in {bound}", share.median)
            }
            Some(share) if share.max > 0.0 => format!("{:.0} %", share.median),
            _ => "–".to_owned(),
        };
        let latency =
            |at: usize| self.spread(|window| Some(window.latency_us[at]).filter(|us| *us > 0.0));
        vec![
            self.name.to_owned(),
            self.spread(|window| Some(window.cpu_us)),
            self.spread(|window| window.kinstructions),
            self.spread(|window| window.kcycles),
            self.spread(|window| Some(window.rate)),
            latency(0),
            latency(1),
            latency(2),
            generator,
            format!("{} of {}", count(Window::is_quiet), self.windows.len()),
        ]
    }

    /// Where a server with several kinds of threads spends its CPU.
    fn threads(&self) -> Option<String> {
        let windows = self.windows.iter();
        let names = windows.flat_map(|window| window.cpu_us_by_name.keys());
        let names: BTreeSet<&String> = names.collect();
        let parts = names.iter().filter_map(|name| {
            let of = |window: &Window| window.cpu_us_by_name.get(*name).copied().unwrap_or(0.0);
            let median = Spread::of(self.windows.iter().map(of))?.median;
            (median >= 0.005).then(|| format!("{name} {median:.2}"))
        });
        let parts: Vec<String> = parts.collect();
        let name = self.name;
        (names.len() > 1).then(|| {
            format!(
                "CPU µs a request of {name}, by thread: {}.",
                parts.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(cpu_us: f64, generator_share: f64) -> Window {
        Window {
            rate: 1000.0,
            cpu_us,
            cpu_us_by_name: [("loop", cpu_us - 1.0), ("wal", 1.0)]
                .map(|(name, us)| (name.to_owned(), us))
                .into(),
            kinstructions: None,
            kcycles: None,
            latency_us: [100.0, 200.0, 0.0],
            lag_us: 0.0,
            generator_share,
            elsewhere: crate::proc::Elsewhere::default(),
        }
    }

    #[test]
    fn a_ratio_is_taken_round_by_round_and_windows_are_told_apart() {
        let mut row = Row::new("get");
        for (name, costs) in [("a", [6.0, 60.0, 6.0]), ("b", [5.0, 50.0, 5.0])] {
            let windows = costs.map(|us| window(us, us / 60.0)).into();
            row.series.push(Series { name, windows });
        }
        row.cost("a", "b", "CPU", Bound::AtMost(1.2));
        row.counted("a", "b");
        row.cost("a", "nginx", "CPU", Bound::Shown);
        assert_eq!(
            row.goals.len(),
            1,
            "neither was counted, and there is no nginx"
        );
        assert!(
            row.goals[0]
                .1
                .iter()
                .all(|ratio| (ratio - 1.2).abs() < 1e-9)
        );
        let cells = row.series[0].cells();
        assert_eq!(cells[1], "6.00 (6.00–60.00)");
        assert_eq!(cells[7], "–", "the generator does not say it");
        assert!(cells[8].contains("**the bottleneck** in 1"), "{}", cells[8]);
        assert!(
            row.series[0]
                .threads()
                .is_some_and(|text| text.contains("wal 1.00"))
        );
        let mut csv = String::new();
        row.write_csv(&mut csv);
        assert_eq!(csv.lines().count(), 6);
    }
}
