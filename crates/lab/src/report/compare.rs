//! The page that lays several runs over each other.
//!
//! ```text
//! sides      a name and its repeats; the first one is what the others are compared with
//! curves     every run; repeats share colour and dashes
//! figures    median (range) of each side, difference, judgement of noise.rs
//! profiles   differential flame graph, and the functions whose own share moved most
//! ```
//!
//! Invariants
//! 1. Invalid runs are named and take no part in a judgement.
//! 2. What differs between the sides besides their name is said before the first figure.
//!
//! Not here: the rule for noise (`noise.rs`).

use super::format::{duration_us, short};
use super::html::{Table, figure, safe, section};
use super::latency::{self, Curve};
use super::noise::{Judgement, RULE, judge, median, range};
use super::page::{command, flame, profile_words, shell, title, unit_of};
use super::timeline;
use super::{chart::Line, hdr};
use crate::run::Run;
use dendra_flame::{Node, Stacks};
use std::collections::BTreeMap;
use std::fmt::Write;

/// One thing that was measured, with its repeats.
#[derive(Clone, Debug)]
pub struct Side {
    /// What stands in legends and tables.
    pub name: String,
    /// Its runs, in any order.
    pub runs: Vec<Run>,
}

const CLASSES: [&str; 7] = ["s0", "s3", "s2", "s4", "s6", "s5", "s1"];

/// Lays runs over each other. Runs whose command, apart from `--out` and `--seed`, target and version are
/// the same are repeats of one side; when all are the same, each run is a side of its own.
pub fn render_compare(runs: &[Run]) -> String {
    render_sides(&sides(runs))
}

fn sides(runs: &[Run]) -> Vec<Side> {
    let mut sides: Vec<(String, Side)> = Vec::new();
    for run in runs {
        let key = key(run);
        match sides.iter_mut().find(|(known, _)| *known == key) {
            Some((_, side)) => side.runs.push(run.clone()),
            None => sides.push((
                key,
                Side {
                    name: String::new(),
                    runs: vec![run.clone()],
                },
            )),
        }
    }
    let mut sides: Vec<Side> = sides.into_iter().map(|(_, side)| side).collect();
    if sides.len() == 1 {
        let runs = std::mem::take(&mut sides[0].runs);
        let alone = |run| Side {
            name: String::new(),
            runs: vec![run],
        };
        sides = runs.into_iter().map(alone).collect();
    }
    name(&mut sides);
    sides
}

/// Names sides by a letter and by what tells them apart.
fn name(sides: &mut [Side]) {
    let facts: [fn(&Run) -> String; 4] = [
        title,
        |run| {
            run.tool
                .commit
                .as_ref()
                .map_or(String::new(), |commit| format!("commit {commit}"))
        },
        |run| {
            run.servers
                .first()
                .and_then(|s| s.status[0]["version"].as_str())
                .map_or(String::new(), |v| format!("server {v}"))
        },
        |run| {
            if run.is_cut {
                "cut short".to_owned()
            } else {
                String::new()
            }
        },
    ];
    let told: Vec<Vec<String>> = sides
        .iter()
        .map(|side| {
            facts
                .map(|fact| side.runs.first().map_or(String::new(), fact))
                .to_vec()
        })
        .collect();
    for (at, side) in sides.iter_mut().enumerate() {
        let mut words = vec![char::from(b'A' + (at % 26) as u8).to_string()];
        let differing = (0..facts.len())
            .filter(|fact| told.iter().any(|other| other[*fact] != told[at][*fact]));
        words.extend(
            differing
                .map(|fact| told[at][fact].clone())
                .filter(|word| !word.is_empty()),
        );
        side.name = words.join(", ");
    }
}

fn key(run: &Run) -> String {
    let mut words = Vec::new();
    let mut is_value = false;
    for word in &run.command {
        if is_value {
            is_value = false;
        } else if word == "--out" || word == "--seed" {
            is_value = true;
        } else if !word.starts_with("--out=") && !word.starts_with("--seed=") {
            words.push(word.as_str());
        }
    }
    let urls: Vec<&str> = run.targets.iter().map(|t| t.url.as_str()).collect();
    let versions = run
        .servers
        .iter()
        .map(|server| server.status[0]["version"].to_string());
    format!(
        "{words:?} {urls:?} {:?} {:?}",
        run.tool,
        versions.collect::<Vec<_>>()
    )
}

/// Lays sides over each other; the first one is what the others are compared with.
pub fn render_sides(sides: &[Side]) -> String {
    let names: Vec<&str> = sides.iter().map(|side| side.name.as_str()).collect();
    let heading = match names.as_slice() {
        [] => "Nothing to compare".to_owned(),
        [_] => "One run, alone".to_owned(),
        [first, .., last] if names.len() == 2 => format!("{first} against {last}"),
        [first, ..] => format!("{first} against {} others", names.len() - 1),
    };
    let mut body = format!(
        "<header><p class=\"kicker\">Dendra lab, comparison</p><h1>{}</h1></header>\n",
        safe(&heading)
    );
    body.push_str(&warnings(sides));
    body.push_str(&section(
        "sides",
        "What is compared",
        &inventory(sides).html(),
    ));
    body.push_str(&section("latency", "Latency", &curves(sides)));
    if let Some((first, others)) = sides.split_first() {
        let mut part = String::new();
        for other in others {
            part.push_str(&figures(first, other));
        }
        if !part.is_empty() {
            write!(
                part,
                "<p class=\"below\"><strong>The rule.</strong> {}</p>",
                safe(RULE)
            )
            .expect("a string takes all text");
        }
        body.push_str(&section("figures", "What differs", &part));
        body.push_str(&section(
            "time",
            "Throughput over time",
            &throughputs(sides),
        ));
        let mut part = String::new();
        for (at, other) in others.iter().enumerate() {
            part.push_str(&profiles(first, other, at));
        }
        body.push_str(&section("profiles", "Where the time moved", &part));
    }
    shell(&heading, &body)
}

fn warnings(sides: &[Side]) -> String {
    let mut out = String::new();
    for side in sides {
        for run in side.runs.iter().filter(|run| !run.verdict.is_valid()) {
            write!(
                out,
                "<div class=\"banner bad\"><strong>INVALID RUN</strong> in “{}”: {}. It is drawn, but takes no part in a judgement.</div>",
                safe(&side.name),
                safe(&run.verdict)
            )
            .expect("a string takes all text");
        }
    }
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
    if !differing.is_empty() {
        write!(
            out,
            "<div class=\"banner warn\"><strong>Not all else is equal.</strong> The runs differ in {}.</div>",
            differing.join(", ")
        )
        .expect("a string takes all text");
    }
    out
}

fn inventory(sides: &[Side]) -> Table {
    let mut table = Table::new(&["side", "runs", "valid", "command of the first"]);
    for side in sides {
        let valid = side
            .runs
            .iter()
            .filter(|run| run.verdict.is_valid())
            .count();
        table.row([
            side.name.clone(),
            side.runs.len().to_string(),
            valid.to_string(),
            side.runs.first().map_or(String::new(), command),
        ]);
    }
    table
}

fn curves(sides: &[Side]) -> String {
    let mut out = String::new();
    for (word, is_response) in [
        ("Response time, from the planned instant", true),
        ("Service time, from the send", false),
    ] {
        let mut curves = Vec::new();
        for (at, side) in sides.iter().enumerate() {
            let mut name = side.name.clone();
            for phase in side.runs.iter().filter_map(Run::headline) {
                let histogram = hdr::merged(phase, |op| {
                    if is_response {
                        &op.response
                    } else {
                        &op.service
                    }
                });
                let Some(histogram) = histogram else { continue };
                curves.push(Curve {
                    // The first repeat names the side in the legend.
                    name: std::mem::take(&mut name),
                    class: CLASSES[at % CLASSES.len()],
                    histogram,
                    share: 1.0 - latency::lost_share(phase),
                });
            }
        }
        if !curves.is_empty() {
            let mut chart = latency::curves_chart(word, &curves, None);
            chart.hover.clear();
            let below = "One curve a run. A curve that ends early belongs to a run in which the rest had no good answer.";
            out.push_str(&figure(word, &chart.svg(), below));
        }
    }
    out
}

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

fn figures(first: &Side, other: &Side) -> String {
    let mut out = format!(
        "<h3>{}, compared with {}</h3><div class=\"scroll\"><table><thead><tr><th scope=\"col\">figure</th>\
         <th scope=\"col\">before: median (range)</th><th scope=\"col\">after: median (range)</th>\
         <th scope=\"col\">difference</th><th scope=\"col\">more than noise?</th></tr></thead><tbody>",
        safe(&other.name),
        safe(&first.name)
    );
    for figure in &FIGURES {
        let (before, after) = (values(first, figure.of), values(other, figure.of));
        if before.is_empty() || after.is_empty() {
            continue;
        }
        let (was, is) = (median(&before), median(&after));
        let said = |values: &[f64], middle: f64| {
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
        };
        let difference = if was > 0.0 {
            format!("{:+.1} %", 100.0 * (is / was - 1.0))
        } else {
            (figure.say)(is - was)
        };
        let word = if is > was { figure.more } else { figure.less };
        let (class, verdict) = match judge(&before, &after) {
            Judgement::Different if is > was => ("more", format!("yes: {word}")),
            Judgement::Different => ("less", format!("yes: {word}")),
            Judgement::Within => ("none", "no: within the noise of the repeats".to_owned()),
            Judgement::Unknown => (
                "none",
                "unknown: fewer than three valid runs a side".to_owned(),
            ),
        };
        write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"verdict-{class}\">{}</td></tr>",
            safe(figure.name),
            safe(said(&before, was)),
            safe(said(&after, is)),
            safe(difference),
            safe(verdict)
        )
        .expect("a string takes all text");
    }
    out.push_str("</tbody></table></div>");
    out
}

fn throughputs(sides: &[Side]) -> String {
    let mut joined: Option<timeline::Panel> = None;
    for (at, side) in sides.iter().enumerate() {
        let mut name = side.name.clone();
        for run in &side.runs {
            let Some(mut panel) = timeline::throughput(run) else {
                continue;
            };
            let Some(done) = panel.chart.lines.drain(..).next() else {
                continue;
            };
            let line = Line {
                name: std::mem::take(&mut name),
                class: CLASSES[at % CLASSES.len()],
                form: super::chart::Form::Plain,
                ..done
            };
            panel.chart.hover.clear();
            panel.chart.bands.clear();
            match &mut joined {
                None => {
                    panel.chart.lines.push(line);
                    panel.chart.height = 180.0;
                    joined = Some(panel);
                }
                Some(first) => {
                    first.chart.take_larger_axes(&panel.chart);
                    first.chart.lines.push(line);
                }
            }
        }
    }
    joined.map_or(String::new(), |panel| {
        figure("Requests done as asked, a second", &panel.chart.svg(), "")
    })
}

fn merged_stacks(side: &Side, kind: &str) -> Stacks {
    let profiles = side.runs.iter().flat_map(|run| &run.profiles);
    let folded: Vec<&str> = profiles
        .filter(|p| p.kind == kind)
        .map(|p| p.folded.as_str())
        .collect();
    Stacks::from_folded(&folded.join("\n"))
}

fn profiles(first: &Side, other: &Side, at: usize) -> String {
    let mut out = String::new();
    let mut kinds: Vec<&str> = first
        .runs
        .iter()
        .flat_map(|run| &run.profiles)
        .map(|p| p.kind.as_str())
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let (before, after) = (merged_stacks(first, kind), merged_stacks(other, kind));
        if before.samples() == 0 || after.samples() == 0 {
            continue;
        }
        let caption = format!(
            "{}: {} compared with {}",
            profile_words(kind),
            other.name,
            first.name
        );
        let id: String = kind.chars().filter(char::is_ascii_alphanumeric).collect();
        let draw = |look: dendra_flame::Look<'_>| dendra_flame::difference(&before, &after, look);
        out.push_str(&flame(
            &format!("flame-{at}-{id}"),
            &caption,
            draw,
            unit_of(kind),
        ));
        out.push_str(&moved(&before, &after).html());
    }
    out
}

/// The functions whose own share, without what they called, moved most.
fn moved(before: &Stacks, after: &Stacks) -> Table {
    let (was, is) = (own_shares(before), own_shares(after));
    let mut names: Vec<&str> = was.keys().chain(is.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let of = |shares: &BTreeMap<&str, f64>, name: &str| shares.get(name).copied().unwrap_or(0.0);
    let mut rows: Vec<(&str, f64, f64)> = names
        .into_iter()
        .map(|name| (name, of(&was, name), of(&is, name)))
        .collect();
    rows.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()));
    let mut table = Table::new(&[
        "function, without what it called",
        "before",
        "after",
        "points",
    ]);
    for (name, was, is) in rows
        .into_iter()
        .take(12)
        .filter(|row| (row.2 - row.1).abs() >= 0.001)
    {
        table.row([
            name.to_owned(),
            format!("{:.1} %", was * 100.0),
            format!("{:.1} %", is * 100.0),
            format!("{:+.1}", (is - was) * 100.0),
        ]);
    }
    table
}

fn own_shares(stacks: &Stacks) -> BTreeMap<&str, f64> {
    fn walk<'a>(node: &'a Node, all: f64, shares: &mut BTreeMap<&'a str, f64>) {
        for (name, child) in &node.children {
            let below: u64 = child.children.values().map(|c| c.total).sum();
            *shares.entry(name).or_default() += child.total.saturating_sub(below) as f64 / all;
            walk(child, all, shares);
        }
    }
    let mut shares = BTreeMap::new();
    walk(stacks.root(), stacks.samples().max(1) as f64, &mut shares);
    shares
}
