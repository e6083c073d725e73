//! The comparison as text, for a terminal and for a script's log.
//!
//! ```text
//! A (3 runs) is what the others are compared with
//!
//! figure           before: median (range)   after: median (range)   change    more than noise?
//! p99, response    2.4 ms (2.3 … 2.5 …)     3.3 ms (…)              +36.2 %   yes: slower
//!
//! verdict: B differs from A in 1 of 7 figures by more than the noise: p99, response +36.2 % (slower)
//! ```
//!
//! Invariants
//! 1. The last line of each comparison is its verdict; it says `unknown` when the repeats are too
//!    few.
//! 2. Control characters of a run never reach the terminal.
//!
//! Not here: the page (`compare.rs`), the rule (`noise.rs`).
//! See: docs/lab/README.md.

use super::difference::{Difference, differences, unequal};
use super::noise::{Judgement, REPEATS_MIN, RULE};
use super::page::command;
use super::sides::Side;
use std::fmt::Write;

/// Says which differences between `sides` exceed the noise of their repeats.
pub fn say_sides(sides: &[Side]) -> String {
    let mut out = String::new();
    for side in sides {
        let runs = match side.runs.len() {
            1 => "1 run".to_owned(),
            n => format!("{n} runs"),
        };
        let invalid = side.runs.iter().filter(|r| !r.verdict.is_valid()).count();
        let invalid = match invalid {
            0 => String::new(),
            n => format!(", {n} of them INVALID and left out of every judgement"),
        };
        let first = side.runs.first().map_or(String::new(), command);
        line(&mut out, &format!("{} ({runs}{invalid})", side.name));
        line(&mut out, &format!("  {first}"));
    }
    let differing = unequal(sides);
    if !differing.is_empty() {
        line(
            &mut out,
            &format!(
                "NOT ALL ELSE IS EQUAL: the runs differ in {}.",
                differing.join(", ")
            ),
        );
    }
    let Some((first, others)) = sides.split_first() else {
        return "nothing to compare\n".to_owned();
    };
    for other in others {
        out.push('\n');
        one(&mut out, first, other);
    }
    if !others.is_empty() {
        line(&mut out, &format!("\nThe rule. {RULE}"));
    }
    out
}

fn line(out: &mut String, text: &str) {
    let printable = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    out.extend(text.chars().map(printable));
    out.push('\n');
}

fn one(out: &mut String, first: &Side, other: &Side) {
    line(
        out,
        &format!("{}, compared with {}", other.name, first.name),
    );
    let differences = differences(first, other);
    let mut rows = vec![
        [
            "figure",
            "before: median (range)",
            "after: median (range)",
            "change",
            "more than noise?",
        ]
        .map(str::to_owned),
    ];
    rows.extend(differences.iter().map(|d| {
        [
            d.name.to_owned(),
            d.before.clone(),
            d.after.clone(),
            d.change.clone(),
            d.verdict(),
        ]
    }));
    let width_of = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|c| width_of(c).unwrap_or(0)).collect();
    for row in &rows {
        let mut text = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(text, "{cell:<width$}  ").expect("a string takes all text");
        }
        line(out, text.trim_end());
    }
    line(out, &verdict(first, other, &differences));
}

fn verdict(first: &Side, other: &Side, differences: &[Difference]) -> String {
    let (a, b) = (&first.name, &other.name);
    if differences.is_empty() {
        return format!("verdict: none: {a} and {b} have no valid figure in common");
    }
    if differences
        .iter()
        .any(|d| d.judgement == Judgement::Unknown)
    {
        return format!(
            "verdict: unknown: nothing is known of the noise; run each side at least {REPEATS_MIN} times, in turns"
        );
    }
    let apart: Vec<String> = differences
        .iter()
        .filter(|d| d.judgement == Judgement::Different)
        .map(|d| format!("{} {} ({})", d.name, d.change, d.word))
        .collect();
    match apart.len() {
        0 => format!(
            "verdict: no difference between {a} and {b} exceeds the noise of the repeats ({} figures)",
            differences.len()
        ),
        n => format!(
            "verdict: {b} differs from {a} in {n} of {} figures by more than the noise: {}",
            differences.len(),
            apart.join("; ")
        ),
    }
}
