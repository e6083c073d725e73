//! `make study-connections`: where the time goes with 1, 64, 256 and 1024 connections.
//!
//! ```text
//! closed loop   as fast as answers come      throughput, CPU by thread, rests, own time of functions
//! open loop     the same light rate for all  latency: what a connection more costs when there is no queue
//! ```
//!
//! Invariants
//! 1. One node, one folder for all rows of an operation; GETs find their keys in memory or page
//!    cache.
//!
//! Not here: reads that block (`pool.rs`).
//! See: docs/lab/profiles.md.

use super::node::Server;
use super::place::{Held, Place};
use super::report::{Report, time};
use super::run::Bench;
use std::collections::BTreeMap;
use std::process::Command;

const CONNECTIONS: [u32; 4] = [1, 64, 256, 1024];

/// Records of 100 bytes.
const KEYS: u32 = 100_000;

/// Requests a second of the open loop: one connection can carry it.
const LIGHT: u32 = 1000;

/// Functions that are shown.
const SHOWN: usize = 12;

/// The figures of one number of connections in a closed loop.
struct Row {
    connections: u32,
    rate: f64,
    cpu_us: f64,
    rests: f64,
    own: BTreeMap<String, f64>,
}

/// Measures both operations.
pub(super) fn run(place: &Place) -> Held {
    let question = "A loop that finds many sockets ready answers them in one round. What does that save, and what does a connection more cost?";
    let facts = [(
        "data",
        format!("{KEYS} records of 100 bytes, default options"),
    )];
    let mut report = Report::new(place, "One connection to a thousand", question, &facts)?;
    let data = place.folder.join("data");
    let node = Server::node(place, &data, &[])?;
    let flags =
        format!("--workload put --preload --rate 1000 --duration 0.2s --warmup 0s --keys {KEYS}");
    Bench::new(place, &node.url, &place.folder.join("load"))
        .with(&flags)
        .attempts(1)
        .run()?;
    let mut ends = Vec::new();
    for operation in ["get", "put"] {
        let rows = closed(place, &mut report, &node, operation)?;
        functions(&mut report, &rows);
        light(place, &mut report, &node, operation)?;
        ends.push((operation, rows));
    }
    report.line("\n## What it says\n");
    for (operation, rows) in &ends {
        say(&mut report, operation, rows);
    }
    drop(node);
    report.write(place, "study-connections")?;
    Ok(true)
}

/// The meaning of the rows of an operation, with their numbers.
fn say(report: &mut Report, operation: &str, rows: &[Row]) {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return;
    };
    let many = &rows[1..];
    let cheapest = many
        .iter()
        .map(|row| row.cpu_us)
        .fold(f64::INFINITY, f64::min);
    let dearest = many.iter().map(|row| row.cpu_us).fold(0.0, f64::max);
    let most = many.iter().map(|row| row.rate).fold(0.0, f64::max);
    report.line(format_args!(
        "* {}: a client alone pays {:.1} times the CPU of one among many ({:.1} µs, down to {cheapest:.1}), because a loop that has answered all goes to rest: {:.2} rests a request, {:.3} with \
         {} connections. From {} to {} connections the CPU for a request stays within a factor of {:.2}; {:.0} requests a second with one, up to {most:.0} with many.",
        operation.to_uppercase(),
        first.cpu_us / cheapest.max(1e-9),
        first.cpu_us,
        first.rests,
        last.rests,
        last.connections,
        many.first().map_or(last.connections, |row| row.connections),
        last.connections,
        dearest / cheapest.max(1e-9),
        first.rate
    ));
    let largest = last.own.iter().max_by(|a, b| a.1.total_cmp(b.1));
    if let Some((name, share)) = largest {
        report.line(format_args!(
            "  The function with the largest own share of that CPU, with {} connections, is `{name}`: {:.0} %.",
            last.connections,
            share * 100.0
        ));
    }
}

fn closed(
    place: &Place,
    report: &mut Report,
    node: &Server,
    operation: &str,
) -> Result<Vec<Row>, String> {
    let seconds = place.options.seconds.unwrap_or(5.0).max(1.0);
    report.line(format_args!(
        "\n## {} in a closed loop\n\nCPU is that of all threads of the server. A rest is a thread that gave up its core because it had nothing to do.",
        operation.to_uppercase()
    ));
    report.table(&[
        "connections",
        "requests/s",
        "p50",
        "p99",
        "p99.9",
        "CPU µs a request",
        "by thread",
        "rests a request",
    ]);
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        let flags = |seconds: f64| {
            format!(
                "--workload {operation} --closed --warmup 0s --duration {seconds}s --keys {KEYS} --connections {connections}"
            )
        };
        let (figures, (clock, rests)) = Bench::new(place, &node.url, &place.folder.join("run"))
            .with(&flags(seconds))
            .while_running(|| Ok((node.clock(), node.rests())))?;
        // Before the profile, whose names are looked up by a thread of the server.
        let (used, rests) = (node.spent(&clock), node.rests() - rests);
        let profiled = (seconds * 0.7).max(1.5);
        let (_, own) = Bench::new(place, &node.url, &place.folder.join("run"))
            .with(&flags(profiled))
            .while_running(|| own_shares(place, node, (profiled - 0.5) as u64))?;
        let answered = figures.answered.max(1.0);
        let row = Row {
            connections,
            rate: figures.answered / figures.length_s,
            cpu_us: used.values().sum::<f64>() * 1e6 / answered,
            rests: rests / answered,
            own,
        };
        let mut threads: Vec<(&String, f64)> = used
            .iter()
            .map(|(name, s)| (name, s * 1e6 / answered))
            .collect();
        threads.sort_by(|a, b| b.1.total_cmp(&a.1));
        let threads: Vec<String> = threads
            .iter()
            .filter(|t| t.1 >= 0.05)
            .map(|(name, us)| format!("{name} {us:.1}"))
            .collect();
        report.row(&[
            connections.to_string(),
            format!("{:.0}{}", row.rate, figures.mark()),
            time(figures.p50_us),
            time(figures.p99_us),
            time(figures.p999_us),
            format!("{:.1}", row.cpu_us),
            threads.join(", "),
            format!("{:.3}", row.rests),
        ]);
        rows.push(row);
    }
    Ok(rows)
}

/// Own share of CPU time, without callees, by function.
fn own_shares(place: &Place, node: &Server, seconds: u64) -> Result<BTreeMap<String, f64>, String> {
    let text = super::place::output(Command::new(&place.binary).args([
        "profile",
        &node.admin,
        "--cpu",
        "--quiet",
        "--seconds",
        &seconds.clamp(1, 60).to_string(),
    ]))?;
    Ok(leaves(&text))
}

/// The last frame of each folded stack, with its share of all samples.
fn leaves(folded: &str) -> BTreeMap<String, f64> {
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    let mut all = 0.0;
    for line in folded.lines() {
        let Some((stack, count)) = line.rsplit_once(' ') else {
            continue;
        };
        let Ok(count) = count.parse::<f64>() else {
            continue;
        };
        let leaf = stack.rsplit(';').next().unwrap_or(stack);
        *counts.entry(leaf.to_owned()).or_default() += count;
        all += count;
    }
    counts
        .values_mut()
        .for_each(|count| *count /= f64::max(all, 1.0));
    counts
}

fn functions(report: &mut Report, rows: &[Row]) {
    report.line("\nOwn CPU time by function, without what it called; calls into the kernel have the name of the call:");
    let heads: Vec<String> = rows.iter().map(|row| row.connections.to_string()).collect();
    let mut all = vec!["function"];
    all.extend(heads.iter().map(String::as_str));
    report.table(&all);
    let mut most: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, share) in rows.iter().flat_map(|row| &row.own) {
        let known = most.entry(name).or_default();
        *known = known.max(*share);
    }
    let mut names: Vec<(&str, f64)> = most.into_iter().collect();
    names.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (name, _) in names.into_iter().take(SHOWN) {
        let mut cells = vec![format!("`{}`", name.replace('|', "¦"))];
        cells.extend(
            rows.iter()
                .map(|row| format!("{:.1} %", row.own.get(name).copied().unwrap_or(0.0) * 100.0)),
        );
        report.row(&cells);
    }
}

fn light(place: &Place, report: &mut Report, node: &Server, operation: &str) -> Result<(), String> {
    let seconds = place.options.seconds.unwrap_or(5.0);
    report.line(format_args!(
        "\n## {} at {LIGHT} a second\n\nOpen loop, the same light load for all: latency from the planned instant.",
        operation.to_uppercase()
    ));
    report.table(&[
        "connections",
        "p50",
        "p99",
        "p99.9",
        "longest",
        "CPU µs a request",
    ]);
    for connections in CONNECTIONS {
        let flags = format!(
            "--workload {operation} --rate {LIGHT} --warmup 0s --duration {seconds}s --keys {KEYS} --connections {connections}"
        );
        let (figures, before) = Bench::new(place, &node.url, &place.folder.join("run"))
            .with(&flags)
            .while_running(|| Ok(node.clock()))?;
        let cpu_us = node.cpu_s(&before) * 1e6 / figures.answered.max(1.0);
        report.row(&[
            format!("{connections}{}", figures.mark()),
            time(figures.p50_us),
            time(figures.p99_us),
            time(figures.p999_us),
            time(figures.max_us),
            format!("{cpu_us:.1}"),
        ]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_frame_owns_its_samples() {
        let shares = leaves("loop;a;b 3\nloop;a 1\nnonsense\nwal;b 4\n");
        assert_eq!(shares["b"], 0.875);
        assert_eq!(shares["a"], 0.125);
    }
}
