//! The page that lays several runs over each other.
//!
//! ```text
//! curves     every run; repeats of a side share colour and dashes
//! figures    median (range) of each side, difference, judgement
//! profiles   differential flame graph, and the functions whose own share moved most
//! ```
//!
//! Invariants
//! 1. Invalid runs are named and take no part in a judgement.
//! 2. Differences between the sides besides their name are told before the first figure.
//!
//! Not here: the parts of a side (`sides.rs`), the figures (`difference.rs`), the rule for noise
//! (`noise.rs`), the
//! same as text (`said.rs`).

use super::difference::{differences, unequal};
use super::html::{HtmlTable, banner, figure, safe, section};
use super::latency::{self, Curve};
use super::noise::{Judgement, RULE};
use super::page::{command, flame, profile_words, shell, unit_of};
use super::sides::{Side, sides};
use super::timeline;
use super::{chart::ChartLine, hdr};
use crate::run::Run;
use dendra_flame::{CallNode, Stacks};
use std::collections::BTreeMap;
use std::fmt::Write;

const CLASSES: [&str; 7] = ["s0", "s3", "s2", "s4", "s6", "s5", "s1"];

/// Lays runs over each other, grouped by their commands: [`sides`].
pub fn render_compare(runs: &[Run]) -> String {
    render_sides(&sides(runs))
}

/// Lays sides over each other; the others are compared with the first one.
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
        let mut profiles_part = String::new();
        for (at, other) in others.iter().enumerate() {
            profiles_part.push_str(&profiles(first, other, at));
        }
        body.push_str(&section("profiles", "Where the time moved", &profiles_part));
    }
    shell(&heading, &body)
}

fn warnings(sides: &[Side]) -> String {
    let mut out = String::new();
    for side in sides {
        for run in side.runs.iter().filter(|run| !run.verdict.is_valid()) {
            let text = format!(
                "in “{}”: {}. It is drawn, but takes no part in a judgement.",
                side.name, run.verdict
            );
            out += &banner("bad", "INVALID RUN", text);
        }
    }
    let differing = unequal(sides);
    if !differing.is_empty() {
        let text = format!("The runs differ in {}.", differing.join(", "));
        out += &banner("warn", "Not all else is equal.", text);
    }
    out
}

fn inventory(sides: &[Side]) -> HtmlTable {
    let mut table = HtmlTable::new(&["side", "runs", "valid", "command of the first"]);
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

fn figures(first: &Side, other: &Side) -> String {
    let mut table = HtmlTable::new(&[
        "figure",
        "before: median (range)",
        "after: median (range)",
        "difference",
        "more than noise?",
    ]);
    for difference in differences(first, other) {
        let class = match difference.judgement {
            Judgement::Different if difference.is > difference.was => "verdict-more",
            Judgement::Different => "verdict-less",
            Judgement::Within | Judgement::Unknown => "verdict-none",
        };
        let verdict = difference.verdict().to_string();
        let name = difference.name.to_string();
        let cells = [difference.before, difference.after, difference.change];
        let cells = std::iter::once(name).chain(cells).chain([verdict]);
        table.marked(class, cells);
    }
    let heading = format!("{}, compared with {}", other.name, first.name);
    format!("<h3>{}</h3>{}", safe(heading), table.html())
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
            let line = ChartLine {
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

/// The functions whose own share, without their callees, moved most.
fn moved(before: &Stacks, after: &Stacks) -> HtmlTable {
    let (before, after) = (own_shares(before), own_shares(after));
    let mut names: Vec<&str> = before.keys().chain(after.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let of = |shares: &BTreeMap<&str, f64>, name: &str| shares.get(name).copied().unwrap_or(0.0);
    let mut rows: Vec<(&str, f64, f64)> = names
        .into_iter()
        .map(|name| (name, of(&before, name), of(&after, name)))
        .collect();
    rows.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()));
    let mut table = HtmlTable::new(&[
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
    fn walk<'a>(node: &'a CallNode, all: f64, shares: &mut BTreeMap<&'a str, f64>) {
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
