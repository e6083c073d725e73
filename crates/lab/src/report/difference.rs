//! The figures in which two sides are compared, and the judgement on each.
//!
//! ```text
//! Side A, Side B ─► nine figures ─► median (range) of each, change, judgement of noise.rs
//! ```
//!
//! Invariants
//! 1. Runs that are invalid give no figure.
//! 2. A figure that one of the sides does not have is left out.
//!
//! Not here: how it is shown (`compare.rs`, `said.rs`).
//! See: docs/lab/README.md.

use super::format::{duration_us, short};
use super::hdr;
use super::noise::{Judgement, median, range, weigh};
use super::sides::Side;
use crate::run::Run;

/// A figure of a run, how it is written, and which way is good.
struct Figure {
    name: &'static str,
    of: fn(&Run) -> Option<f64>,
    say: fn(f64) -> String,
    more: &'static str,
    less: &'static str,
}

fn response_us(run: &Run, share: f64) -> Option<f64> {
    Some(hdr::at_us(
        &hdr::merged(run.headline()?, |op| &op.response)?,
        share,
    ))
}

const FIGURES: [Figure; 9] = [
    Figure {
        name: "done as asked, a second",
        of: |run| {
            run.headline()
                .map(|p| p.counts.ok as f64 / p.length_s.max(1e-9))
        },
        say: short,
        more: "more",
        less: "fewer",
    },
    Figure {
        name: "p50, response",
        of: |run| response_us(run, 0.5),
        say: duration_us,
        more: "slower",
        less: "faster",
    },
    Figure {
        name: "p90, response",
        of: |run| response_us(run, 0.9),
        say: duration_us,
        more: "slower",
        less: "faster",
    },
    Figure {
        name: "p99, response",
        of: |run| response_us(run, 0.99),
        say: duration_us,
        more: "slower",
        less: "faster",
    },
    Figure {
        name: "p99.9, response",
        of: |run| response_us(run, 0.999),
        say: duration_us,
        more: "slower",
        less: "faster",
    },
    Figure {
        name: "p99, service",
        of: |run| {
            Some(hdr::at_us(
                &hdr::merged(run.headline()?, |op| &op.service)?,
                0.99,
            ))
        },
        say: duration_us,
        more: "slower",
        less: "faster",
    },
    Figure {
        name: "refused",
        of: |run| {
            run.headline()
                .map(|p| p.counts.refused as f64 / p.counts.planned.max(1) as f64)
        },
        say: share,
        more: "more refused",
        less: "fewer refused",
    },
    Figure {
        name: "failed or lost",
        of: |run| {
            run.headline().map(|p| {
                (p.counts.errors() - p.counts.refused) as f64 / p.counts.planned.max(1) as f64
            })
        },
        say: share,
        more: "more lost",
        less: "fewer lost",
    },
    Figure {
        name: "knee of --find-max, a second",
        of: |run| run.search.as_ref().map(|search| search.knee_low),
        say: short,
        more: "more",
        less: "fewer",
    },
];

fn share(value: f64) -> String {
    super::format::percent((value * 1e9).round() as u64, 1_000_000_000)
}

fn values(side: &Side, of: fn(&Run) -> Option<f64>) -> Vec<f64> {
    side.runs
        .iter()
        .filter(|run| run.verdict.is_valid())
        .filter_map(of)
        .collect()
}

/// One figure of two sides.
pub(crate) struct Difference {
    /// The name of the figure.
    pub(crate) name: &'static str,
    /// Median and range of the first side, as text.
    pub(crate) before: String,
    /// Median and range of the second side, as text.
    pub(crate) after: String,
    /// From the one median to the other, as text.
    pub(crate) change: String,
    /// Median of the first side.
    pub(crate) was: f64,
    /// Median of the other one.
    pub(crate) is: f64,
    /// Is it more than noise?
    pub(crate) judgement: Judgement,
    /// The meaning of the change: `slower`, `fewer`, …
    pub(crate) word: &'static str,
}

impl Difference {
    /// The judgement as a table says it.
    pub(crate) fn verdict(&self) -> String {
        match self.judgement {
            Judgement::Different => format!("yes: {}", self.word),
            Judgement::Within => "no: within the noise of the repeats".to_owned(),
            Judgement::Unknown => "unknown: fewer than three valid runs a side".to_owned(),
        }
    }
}

/// Compares two sides in every figure that both have.
pub(crate) fn differences(first: &Side, other: &Side) -> Vec<Difference> {
    let of_figure = |figure: &Figure| {
        let (before, after) = (values(first, figure.of), values(other, figure.of));
        if before.is_empty() || after.is_empty() {
            return None;
        }
        let (was, is) = (median(&before), median(&after));
        let change = if was > 0.0 {
            format!("{:+.1}\u{a0}%", 100.0 * (is / was - 1.0))
        } else {
            (figure.say)(is - was)
        };
        Some(Difference {
            name: figure.name,
            before: said(figure, &before, was),
            after: said(figure, &after, is),
            change,
            was,
            is,
            judgement: weigh(&before, &after),
            word: if is > was { figure.more } else { figure.less },
        })
    };
    FIGURES.iter().filter_map(of_figure).collect()
}

fn said(figure: &Figure, values: &[f64], middle: f64) -> String {
    let (low, high) = range(values);
    match values.len() {
        1 => (figure.say)(middle),
        n => format!(
            "{} ({} … {}, {n} runs)",
            (figure.say)(middle),
            (figure.say)(low),
            (figure.say)(high)
        ),
    }
}

/// The differences between the runs besides the compared one.
pub(crate) fn unequal(sides: &[Side]) -> Vec<&'static str> {
    let mut differing = Vec::new();
    let facts: [(&str, fn(&Run) -> String); 8] = [
        ("the workload", |r| format!("{:?}", r.workload)),
        ("the rate", |r| {
            format!("{:?} {}", r.settings.rate, r.settings.schedule)
        }),
        ("open or closed loop", |r| format!("{:?}", r.settings.mode)),
        ("the length", |r| format!("{:?}", r.settings.duration_s)),
        ("connections", |r| {
            format!("{:?}", (r.settings.connections, r.settings.pipeline))
        }),
        ("the generator's threads", |r| {
            format!("{:?}", r.settings.threads)
        }),
        ("the machine", |r| format!("{:?}", r.machine)),
        ("the instrument", |r| format!("{:?}", r.tool)),
    ];
    for (name, fact) in facts {
        let mut values = sides.iter().flat_map(|side| &side.runs).map(fact);
        let first = values.next();
        if values.any(|value| Some(value) != first) {
            differing.push(name);
        }
    }
    differing
}
