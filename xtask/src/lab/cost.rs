//! What the generator itself costs, beside wrk: CPU for a request, requests a second from one core.
//!
//! ```text
//! same rate   wrk in a closed loop against the slow server ─► its rate ─► ours at that rate, open loop
//! full speed  both in a closed loop against a node, 64 connections
//! pipelined   ours alone, 16 in flight on each connection: a closed loop, and an open one at 100,000 a second
//! ```
//!
//! Invariants
//! 1. CPU is that of the whole process in user and kernel mode; in an open loop ours leaves out what it spins
//!    away on purpose in front of an instant, and says so.
//!
//! Not here: whether the latencies are right (`check.rs`).

use super::foreign::{Installed, Order};
use super::node::Server;
use super::place::Place;
use super::report::Report;
use super::run::Bench;
use std::fs;

/// Ours may cost this many times wrk at the same rate.
const COST_MAX: f64 = 1.5;

/// One core of ours sends at least this many a second.
const RATE_MIN: f64 = 100_000.0;

/// What a closed loop did.
struct Closed {
    rate: f64,
    cpu_us: f64,
}

/// Measures and adds a part to the report; true when both goals were met.
pub(super) fn part(
    place: &Place,
    report: &mut Report,
    wrk: &Installed,
    node: &Server,
    slow_url: &str,
) -> Result<bool, String> {
    let seconds = place.options.seconds.unwrap_or(6.0).max(1.0) as u32;
    let url = format!("{}/v0/entity?id=lab-check", node.url);
    let path = "--url-template /v0/entity?id=lab-check";
    let closed = |connections: u32, pipeline: u32| -> Result<Closed, String> {
        let flags = format!(
            "{path} --closed --warmup 0s --duration {seconds}s --connections {connections} --pipeline {pipeline}"
        );
        // One attempt: at full speed the generator is its own limit, which is what is asked.
        let before = children_cpu_s()?;
        let figures = Bench::new(place, &node.url, &place.folder.join("closed"))
            .with(&flags)
            .attempts(1)
            .run()?;
        let cpu_s = children_cpu_s()? - before;
        Ok(Closed {
            rate: figures.answered / figures.length_s,
            cpu_us: cpu_s * 1e6 / figures.answered.max(1.0),
        })
    };
    let wrk_closed = |url: &str, connections: u32| -> Result<Closed, String> {
        let before = children_cpu_s()?;
        let order = Order {
            url,
            rate: 0,
            seconds,
            connections,
        };
        let said = wrk.run(place, &order)?;
        let cpu_s = children_cpu_s()? - before;
        Ok(Closed {
            rate: said.rate,
            cpu_us: cpu_s * 1e6 / said.requests.max(1.0),
        })
    };
    report.line("\n## What the generator costs\n");
    report.line(
        "CPU of the generator's process for one request. At the same rate ours runs in an open loop, and the time that it spins away in front of an \
         instant is left out; at full speed both run in a closed loop and nothing is left out.",
    );
    report.table(&[
        "",
        "wrk, requests/s",
        "ours, requests/s",
        "wrk, CPU µs",
        "ours, CPU µs",
        "ours / wrk",
    ]);
    let slow = wrk_closed(&format!("{slow_url}/"), 64)?;
    let same = Bench::new(place, slow_url, &place.folder.join("same"))
        .with(&format!(
            "--url-template / --warmup 0s --connections 64 --rate {:.0} --duration {seconds}s",
            slow.rate
        ))
        .run()?;
    let same = Closed {
        rate: same.answered / same.length_s,
        cpu_us: same.generator_cpu_us,
    };
    let ratio = row(report, "same rate, slow server", &slow, &same);
    let (theirs, ours) = (wrk_closed(&url, 64)?, closed(64, 1)?);
    let full = row(report, "full speed, 64 connections", &theirs, &ours);
    let piped = closed(64, 16)?;
    report.row(&[
        "16 in flight on each of 64".to_owned(),
        "–".to_owned(),
        format!("{:.0}", piped.rate),
        "–".to_owned(),
        format!("{:.2}", piped.cpu_us),
        "–".to_owned(),
    ]);
    // The instrument's own way: a plan, and every request at its instant.
    let planned = Bench::new(place, &node.url, &place.folder.join("open"))
        .with(&format!(
            "{path} --rate {RATE_MIN:.0} --warmup 0s --duration {seconds}s --connections 64 --pipeline 16"
        ))
        .run()?;
    let open = planned.answered / planned.length_s;
    report.row(&[
        format!("open loop, {RATE_MIN:.0} planned{}", planned.mark()),
        "–".to_owned(),
        format!("{open:.0}"),
        "–".to_owned(),
        format!("{:.2}", planned.generator_cpu_us),
        "–".to_owned(),
    ]);
    let open = if planned.invalid.is_none() { open } else { 0.0 };
    let best = ours.rate.max(piped.rate).max(open);
    let is_cheap = ratio <= COST_MAX && full <= COST_MAX;
    let is_fast = best >= RATE_MIN;
    let word = |held: bool| if held { "**kept**" } else { "**missed**" };
    report.line(format_args!(
        "\n* CPU for a request at most {COST_MAX} times wrk's: {:.2}, {:.2}, {}",
        ratio,
        full,
        word(is_cheap)
    ));
    report.line(format_args!(
        "* at least {RATE_MIN:.0} requests a second from one core: {best:.0}, {}",
        word(is_fast)
    ));
    Ok(is_cheap && is_fast)
}

fn row(report: &mut Report, name: &str, theirs: &Closed, ours: &Closed) -> f64 {
    let ratio = ours.cpu_us / theirs.cpu_us.max(1e-9);
    report.row(&[
        name.to_owned(),
        format!("{:.0}", theirs.rate),
        format!("{:.0}", ours.rate),
        format!("{:.2}", theirs.cpu_us),
        format!("{:.2}", ours.cpu_us),
        format!("{ratio:.2}"),
    ]);
    ratio
}

/// CPU seconds of all children that ended and were waited for.
fn children_cpu_s() -> Result<f64, String> {
    let text =
        fs::read_to_string("/proc/self/stat").map_err(|e| format!("/proc/self/stat: {e}"))?;
    let ticks = children_ticks(&text).ok_or("/proc/self/stat has another shape")?;
    // USER_HZ, which user space sees as 100 whatever the kernel's own tick is.
    Ok(ticks / 100.0)
}

fn children_ticks(stat: &str) -> Option<f64> {
    // Behind the name, which may hold anything: fields 16 and 17 of all.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_is_found_behind_a_strange_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 130 40 20 0 1";
        assert_eq!(children_ticks(stat), Some(170.0));
        assert_eq!(children_ticks("7"), None);
    }
}
