//! Figures of one step beyond the knee, beside their goals.
//!
//! ```text
//! record ─► Step ─► a row, missed goals in bold
//!               ╲─► Goals: of each goal the worst row, and how many rows held it
//! ```
//!
//! Invariants
//! 1. A row whose generator was the bottleneck is shown and not judged.
//!
//! Not here: the runs (`overload.rs`).

use crate::report::{Report, percent, time};
use crate::stats::{Spread, middle};
use serde_json::Value;

pub(super) const MIB: f64 = 1024.0 * 1024.0;

/// Goals for Dendra, of every row.
const GOODPUT_LEAST: f64 = 0.9;
/// Goal up to twice the knee.
const GOODPUT_LEAST_NEAR: f64 = 0.95;
const NEAR: f64 = 2.0;
const P99_MOST: f64 = 2.0;
const MEMORY_MOST: f64 = 1.1;
const NORMAL_S_MOST: f64 = 5.0;

/// Columns of a row.
pub(super) const HEADS: [&str; 13] = [
    "clients, patience, load",
    "offered/s",
    "in time/s",
    "of the peak",
    "p99 of it",
    "beside calm",
    "refused",
    "given up",
    "unsent",
    "other",
    "connects/s",
    "memory, MiB",
    "normal after",
];

/// The most that was resident, and the promised bytes.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) peak: f64,
    pub(super) promised: Option<f64>,
}

impl Memory {
    pub(super) fn or_more(self, other: &Memory) -> Memory {
        let peak = self.peak.max(other.peak);
        Memory { peak, ..self }
    }
}

/// One factor of one run, or the medians of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Step {
    factor: f64,
    offered: f64,
    goodput: f64,
    /// Median, least and largest of all rounds.
    of_peak: Spread,
    /// 99th percentile of requests that did as asked, from the send: without the wait for a client.
    p99_us: f64,
    beside_calm: f64,
    refused: f64,
    given_up: f64,
    unsent: f64,
    other: f64,
    reconnects: f64,
    normal_after_s: Option<f64>,
    is_void: bool,
}

impl Step {
    /// The steps of a record; `knee` is the rate of the server before.
    pub(super) fn all(run: &Value, knee: f64) -> Vec<Step> {
        let overload = &run["overload"];
        let peak = overload["peak_goodput"].as_f64().unwrap_or(0.0).max(knee);
        let calm_p99_us = overload["calm_service_p99_us"].as_f64().unwrap_or(0.0);
        let of = |step: &Value| {
            let number = |name: &str| step[name].as_f64().unwrap_or(0.0);
            let phase = step["phase"]
                .as_u64()
                .and_then(|at| usize::try_from(at).ok());
            let phase = phase.map_or(&Value::Null, |at| &run["phases"][at]);
            let count = |name: &str| phase["counts"][name].as_f64().unwrap_or(0.0);
            let share =
                |some: f64| some / phase["counts"]["planned"].as_f64().unwrap_or(1.0).max(1.0);
            let length_s = phase["length_s"].as_f64().unwrap_or(1.0).max(1e-9);
            let (goodput, p99_us) = (number("goodput"), number("service_p99_us"));
            Step {
                factor: number("factor"),
                offered: number("rate"),
                goodput,
                of_peak: Spread::alone(goodput / peak.max(1e-9)),
                p99_us,
                beside_calm: p99_us / calm_p99_us.max(1e-9),
                refused: share(count("refused")),
                given_up: share(count("timeouts")),
                unsent: share(count("unsent")),
                other: share(count("failed") + count("broken")),
                reconnects: phase["generator"]["reconnects"].as_f64().unwrap_or(0.0) / length_s,
                normal_after_s: step["normal_after_s"].as_f64(),
                is_void: phase["verdict"]["verdict"] == "invalid",
            }
        };
        let steps = overload["steps"].as_array();
        steps.map_or(Vec::new(), |steps| steps.iter().map(of).collect())
    }

    /// One step for each factor: the medians of several rounds. One void step of them makes it
    /// void.
    pub(super) fn medians(rounds: &[Vec<Step>], knee: f64) -> Vec<Step> {
        let [first, _, ..] = rounds else {
            return rounds.concat();
        };
        let count = first.len();
        let of = |at: usize, what: &dyn Fn(&Step) -> f64| {
            middle(rounds.iter().filter_map(|steps| steps.get(at)).map(what))
        };
        // The largest of a round is luck where several factors do the same: one factor is the peak
        // of all rounds.
        let goodput = |at: usize| of(at, &|step| step.goodput);
        let best = (0..count).max_by(|&a, &b| goodput(a).total_cmp(&goodput(b)));
        let best = best.filter(|&at| goodput(at) > knee);
        let of_peak = |at: usize| {
            let share = |steps: &Vec<Step>| {
                let peak = best.map_or(Some(knee), |best| Some(steps.get(best)?.goodput))?;
                Some(steps.get(at)?.goodput / peak.max(1e-9))
            };
            Spread::of(rounds.iter().filter_map(share))
        };
        let median = |at: usize| Step {
            factor: first[at].factor,
            offered: first[at].offered,
            goodput: goodput(at),
            of_peak: of_peak(at).unwrap_or(first[at].of_peak),
            p99_us: of(at, &|step| step.p99_us),
            beside_calm: of(at, &|step| step.beside_calm),
            refused: of(at, &|step| step.refused),
            given_up: of(at, &|step| step.given_up),
            unsent: of(at, &|step| step.unsent),
            other: of(at, &|step| step.other),
            reconnects: of(at, &|step| step.reconnects),
            normal_after_s: Some(of(at, &|step| step.normal_after_s.unwrap_or(f64::INFINITY)))
                .filter(|s| s.is_finite()),
            is_void: rounds
                .iter()
                .any(|steps| steps.get(at).is_none_or(|step| step.is_void)),
        };
        (0..count).map(median).collect()
    }

    /// The share of its peak that it has to do.
    fn goodput_least(&self) -> f64 {
        if self.factor <= NEAR {
            GOODPUT_LEAST_NEAR
        } else {
            GOODPUT_LEAST
        }
    }

    fn holds_goodput(&self) -> bool {
        self.of_peak.median >= self.goodput_least()
    }

    fn of_peak_words(&self) -> String {
        let Spread { median, min, max } = self.of_peak;
        if min < max {
            format!(
                "{} ({:.0}–{:.0})",
                percent(median),
                min * 100.0,
                max * 100.0
            )
        } else {
            percent(median)
        }
    }

    pub(super) fn show(
        &self,
        report: &mut Report,
        clients: u32,
        timeout_ms: u32,
        memory: &Memory,
        is_judged: bool,
    ) {
        let marked = |text: String, held: bool| {
            if held || !is_judged {
                text
            } else {
                format!("**{text}**")
            }
        };
        let promised = memory.promised.unwrap_or(f64::INFINITY);
        let memory_words = match memory.promised {
            Some(bytes) => format!("{:.0} of {:.0}", memory.peak / MIB, bytes / MIB),
            None => format!("{:.0}", memory.peak / MIB),
        };
        let normal = self.normal_after_s;
        let void = if self.is_void { " **invalid**" } else { "" };
        report.row(&[
            format!(
                "{clients}, {}, {}x{void}",
                patience(timeout_ms),
                self.factor
            ),
            format!("{:.0}", self.offered),
            format!("{:.0}", self.goodput),
            marked(self.of_peak_words(), self.holds_goodput()),
            time(self.p99_us),
            marked(
                format!("{:.1}", self.beside_calm),
                self.beside_calm <= P99_MOST,
            ),
            percent(self.refused),
            percent(self.given_up),
            percent(self.unsent),
            percent(self.other),
            format!("{:.0}", self.reconnects),
            marked(memory_words, memory.peak <= promised * MEMORY_MOST),
            marked(
                normal.map_or("not seen".to_owned(), |s| format!("{s:.0} s")),
                normal.is_some_and(|s| s <= NORMAL_S_MOST),
            ),
        ]);
    }
}

pub(super) fn patience(timeout_ms: u32) -> String {
    match timeout_ms % 1000 {
        0 => format!("{} s", timeout_ms / 1000),
        _ => format!("{timeout_ms} ms"),
    }
}

/// One goal of one subject and factor: the worst row, and how many rows there are.
struct Goal {
    what: String,
    bound: String,
    worst: f64,
    words: String,
    at: String,
    held: usize,
    rows: usize,
}

/// The goals, and whether they were reached.
#[derive(Default)]
pub(super) struct Goals {
    all: Vec<Goal>,
    voids: usize,
    /// Runs that gave no figure.
    pub(super) broken: usize,
}

impl Goals {
    pub(super) fn add(
        &mut self,
        name: &str,
        clients: u32,
        timeout_ms: u32,
        step: &Step,
        memory: &Memory,
    ) {
        if step.is_void {
            self.voids += 1;
            return;
        }
        let at = format!("{clients} clients, {}", patience(timeout_ms));
        let goal = |what: &str| format!("{name}, {}x: {what}", step.factor);
        self.row(
            goal("goodput as a share of its peak"),
            format!("at least {}", percent(step.goodput_least())),
            // The larger, the worse.
            -step.of_peak.median,
            step.of_peak_words(),
            &at,
            step.holds_goodput(),
        );
        self.row(
            goal("p99 of what was accepted, beside 0.9 of the knee"),
            format!("at most {P99_MOST:.1}"),
            step.beside_calm,
            format!("{:.1}", step.beside_calm),
            &at,
            step.beside_calm <= P99_MOST,
        );
        if let Some(promised) = memory.promised {
            let share = memory.peak / promised;
            self.row(
                goal("memory as a share of what is promised"),
                format!("at most {}", percent(MEMORY_MOST)),
                share,
                percent(share),
                &at,
                share <= MEMORY_MOST,
            );
        }
        let normal_s = step.normal_after_s.unwrap_or(f64::INFINITY);
        self.row(
            goal("seconds until it is normal"),
            format!("at most {NORMAL_S_MOST:.0}"),
            normal_s,
            step.normal_after_s
                .map_or("not seen".to_owned(), |s| format!("{s:.0}")),
            &at,
            normal_s <= NORMAL_S_MOST,
        );
    }

    /// A ratio that should be at most so large, of several runs.
    pub(super) fn ratio(&mut self, name: &str, what: &str, ratio: f64, most: f64) {
        self.row(
            format!("{name}: {what}"),
            format!("at most {most:.1}"),
            ratio,
            format!("{ratio:.1}"),
            "middle of the runs",
            ratio <= most,
        );
    }

    fn row(
        &mut self,
        what: String,
        bound: String,
        worst: f64,
        words: String,
        at: &str,
        held: bool,
    ) {
        let index = self.all.iter().position(|goal| goal.what == what);
        let index = index.unwrap_or_else(|| {
            self.all.push(Goal {
                what,
                bound,
                worst: f64::NEG_INFINITY,
                words: String::new(),
                at: String::new(),
                held: 0,
                rows: 0,
            });
            self.all.len() - 1
        });
        let goal = &mut self.all[index];
        goal.rows += 1;
        goal.held += usize::from(held);
        if worst > goal.worst || goal.rows == 1 {
            goal.worst = worst;
            goal.words = words;
            at.clone_into(&mut goal.at);
        }
    }

    /// Writes them; did all hold?
    pub(super) fn show(&self, report: &mut Report) -> bool {
        report.line("\n## Goals");
        report.table(&["goal", "bound", "worst", "there", "rows that held", "held?"]);
        for goal in &self.all {
            let verdict = if goal.held == goal.rows {
                "held"
            } else {
                "**missed**"
            };
            report.row(&[
                goal.what.clone(),
                goal.bound.clone(),
                goal.words.clone(),
                goal.at.clone(),
                format!("{} of {}", goal.held, goal.rows),
                verdict.to_owned(),
            ]);
        }
        report.line("");
        if self.voids > 0 {
            report.line(format_args!(
                "* {} rows are invalid, the generator was the bottleneck, and are not judged: a smaller --share makes the server slower, not the generator.",
                self.voids
            ));
        }
        if self.broken > 0 {
            report.line(format_args!("* {} runs gave no figure.", self.broken));
        }
        self.broken == 0 && self.all.iter().all(|goal| goal.held == goal.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record_of(goodput: f64, peak: f64) -> Value {
        serde_json::json!({"phases": [{
                "length_s": 2.0, "verdict": {"verdict": "valid"}, "generator": {"reconnects": 50},
                "counts": {"planned": 1000, "refused": 100, "timeouts": 200, "unsent": 300, "failed": 10, "broken": 20}}],
            "overload": {"peak_goodput": peak, "calm_service_p99_us": 500.0, "steps": [
                {"factor": 5.0, "rate": 500.0, "phase": 0, "goodput": goodput, "service_p99_us": 1500.0, "normal_after_s": 3.0}]}})
    }

    #[test]
    fn a_step_is_set_against_its_peak_and_its_calm() {
        let steps = Step::all(&record_of(90.0, 120.0), 100.0);
        let expected = Step {
            factor: 5.0,
            offered: 500.0,
            goodput: 90.0,
            of_peak: Spread::alone(0.75),
            p99_us: 1500.0,
            beside_calm: 3.0,
            refused: 0.1,
            given_up: 0.2,
            unsent: 0.3,
            other: 0.03,
            reconnects: 25.0,
            normal_after_s: Some(3.0),
            is_void: false,
        };
        assert_eq!(steps, [expected]);
        // The knee was higher than anything in the run.
        assert_eq!(
            Step::all(&record_of(90.0, 95.0), 100.0)[0].of_peak.median,
            0.9
        );
        assert_eq!(Step::all(&Value::Null, 1.0), []);
    }

    #[test]
    fn of_several_rounds_the_medians_count_and_one_factor_is_the_peak() {
        let step = |factor, goodput, normal_after_s| Step {
            factor,
            goodput,
            normal_after_s,
            ..Step::default()
        };
        let round = |near, far, normal| vec![step(2.0, near, Some(1.0)), step(5.0, far, normal)];
        let rounds = [
            round(100.0, 120.0, None),
            round(100.0, 80.0, Some(3.0)),
            round(110.0, 99.0, Some(2.0)),
        ];
        let medians = Step::medians(&rounds, 50.0);
        assert_eq!((medians[0].goodput, medians[1].goodput), (100.0, 99.0));
        assert_eq!(medians[0].of_peak, Spread::alone(1.0));
        let Spread { median, min, max } = medians[1].of_peak;
        assert_eq!((median, min, max), (0.9, 0.8, 1.2));
        assert_eq!(medians[1].normal_after_s, Some(3.0));
        // A knee above all of them is the peak.
        assert_eq!(Step::medians(&rounds, 200.0)[0].of_peak.median, 0.5);
        assert_eq!(Step::medians(&rounds[..1], 50.0), rounds[0]);
    }

    #[test]
    fn the_worst_row_speaks_for_a_goal_and_one_missed_row_misses_it() {
        let mut goals = Goals::default();
        let memory = Memory {
            peak: 100.0,
            promised: Some(200.0),
        };
        for (clients, goodput) in [(64, 99.0), (1024, 60.0), (10_000, 95.0)] {
            let steps = Step::all(&record_of(goodput, 100.0), 1.0);
            goals.add("GET", clients, 1000, &steps[0], &memory);
        }
        let goodput = &goals.all[0];
        assert_eq!((goodput.held, goodput.rows), (2, 3));
        assert_eq!(goodput.words, "60.0 %");
        assert_eq!(goodput.at, "1024 clients, 1 s");
        let normal = goals.all.iter().find(|goal| goal.what.contains("normal"));
        assert_eq!(normal.map(|goal| (goal.held, goal.rows)), Some((3, 3)));
    }
}
