//! The cost of the generator itself, beside wrk: CPU and waits for a request, requests a second
//! from one core.
//!
//! ```text
//! same rate   wrk in a closed loop against a slow server ─► its rate ─► ours at that rate, open loop      in turn
//! full speed  both in a closed loop against a node, 64 connections
//! pipelined   ours alone, 16 in flight on each connection: a closed loop, and an open one at 100,000 a second
//! ```
//!
//! Invariants
//! 1. CPU is that of the whole process in user and kernel mode. In an open loop ours is that of its
//!    driving threads, without the CPU that they spin away on purpose in front of an instant. The
//!    whole stands beside it.
//! 2. The same rate is the same load: where the closed loop sends in bursts, the row is shown and
//!    not judged.
//!
//! Not here: whether the latencies are right (`check.rs`).

use super::delays::{Delays, Law};
use super::foreign::{Installed, Order};
use super::place::{Place, Side};
use super::report::Report;
use super::run::Bench;
use super::store::Server;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Ours may cost this many times wrk at the same rate.
const COST_MAX: f64 = 1.5;

/// One core of ours sends at least this many a second.
const RATE_MIN: f64 = 100_000.0;

/// Runs of each at the same rate; the middle pair counts.
const TURNS: usize = 7;

/// Connections of an open loop that is to find a free one at each instant, where a closed one has
/// 64 busy ones.
const CONNECTIONS_OPEN: u32 = 256;

/// The figures of a generator.
#[derive(Clone, Copy)]
struct Cost {
    rate: f64,
    cpu_us: f64,
    /// CPU time with the time that was spun away.
    whole_us: f64,
    /// Times that it slept, for a request.
    waits: f64,
}

/// The CPU and the waits of children that ended and were waited for.
#[derive(Clone, Copy)]
struct Spent {
    cpu_us: f64,
    waits: f64,
}

impl Spent {
    fn now() -> Result<Spent, String> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|e| format!("getrusage: {e}"))?;
        let cpu = usage.user_time() + usage.system_time();
        Ok(Spent {
            cpu_us: cpu.num_microseconds() as f64,
            waits: usage.voluntary_context_switches() as f64,
        })
    }

    /// For each of so many requests since then.
    fn for_each(self, requests: f64, rate: f64) -> Result<Cost, String> {
        let now = Spent::now()?;
        let requests = requests.max(1.0);
        let whole_us = (now.cpu_us - self.cpu_us) / requests;
        Ok(Cost {
            rate,
            cpu_us: whole_us,
            whole_us,
            waits: (now.waits - self.waits) / requests,
        })
    }
}

/// Measures and adds a part to the report; true when both goals were met.
pub(super) fn part(
    place: &Place,
    report: &mut Report,
    wrk: &Installed,
    node: &Server,
) -> Result<bool, String> {
    let seconds = place.options.seconds.unwrap_or(6.0).max(1.0) as u32;
    let short = (seconds / 3).max(1);
    let url = format!("{}/v0/entity?id=lab-check", node.url);
    let path = "--url-template /v0/entity?id=lab-check";
    let closed = |connections: u32, pipeline: u32| -> Result<Cost, String> {
        let flags = format!(
            "{path} --closed --warmup 0s --duration {seconds}s --connections {connections} --pipeline {pipeline}"
        );
        // One attempt: at full speed the generator is its own limit, which is the question here.
        let before = Spent::now()?;
        let figures = Bench::new(place, &node.url, &place.folder.join("closed"))
            .with(&flags)
            .attempts(1)
            .run()?;
        before.for_each(figures.answered, figures.answered / figures.length_s)
    };
    let wrk_closed = |target: &str, length_s: u32| -> Result<Cost, String> {
        let before = Spent::now()?;
        let order = Order {
            url: target,
            rate: 0,
            seconds: length_s,
            connections: 64,
        };
        let said = wrk.run(place, &order)?;
        before.for_each(said.requests, said.rate)
    };
    let open_at = |base: &str, rate: f64, spacing: &str| -> Result<Cost, String> {
        let before = Spent::now()?;
        let figures = Bench::new(place, base, &place.folder.join("same"))
            .with(&format!(
                "--url-template / --warmup 0s --connections {CONNECTIONS_OPEN} --rate {rate:.0} {spacing} --duration {short}s"
            ))
            .attempts(1)
            .run()?;
        let all = before.for_each(figures.answered, figures.answered / figures.length_s)?;
        Ok(Cost {
            cpu_us: figures.generator_cpu_us,
            ..all
        })
    };
    report.line("\n## What the generator costs\n");
    report.line(format_args!(
        "CPU of the generator's process for one request, and how often it slept. At the same rate ours runs in an open loop with {CONNECTIONS_OPEN} connections, \
         so that each request leaves at its own instant, in turn with wrk, the middle one of {TURNS} pairs; the time that it spins away in front of an instant is left \
         out. At full speed both run in a closed loop and nothing is left out. The slow servers answer after 0 to 20 ms, each as often as any other, or after one \
         of three delays. Behind three delays the requests of a closed loop come together in bursts, and wrk sleeps once for several of them: another load at the \
         same rate, shown and not judged. Sleeping once costs a thread that does nothing else {:.1} µs here.",
        sleep_cpu_us(place)?
    ));
    report.table(&[
        "",
        "wrk, requests/s",
        "ours, requests/s",
        "wrk, CPU µs",
        "ours, CPU µs",
        "ours / wrk",
        "ours, spinning and all",
        "wrk, sleeps",
        "ours, sleeps",
    ]);
    let same = |page: &mut Report, name: &str, law: Law, spacing: &str| -> Result<f64, String> {
        let server = Delays::start(place, law)?;
        let base = format!("http://{}", server.address);
        let target = format!("{base}/");
        let turns: Result<Vec<[Cost; 2]>, String> = (0..TURNS)
            .map(|_| {
                let theirs = wrk_closed(&target, short)?;
                Ok([theirs, open_at(&base, theirs.rate, spacing)?])
            })
            .collect();
        let mut turns = turns?;
        turns.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let middle = turns[TURNS / 2];
        row(page, name, &middle);
        Ok(ratio(&middle))
    };
    let even = same(report, "same rate, even delays", Law::Even, "")?;
    same(
        report,
        "the same, by a Poisson plan",
        Law::Even,
        "--poisson",
    )?;
    same(
        report,
        "same rate, three delays: wrk in bursts",
        Law::Steps,
        "",
    )?;
    let (theirs, ours) = (wrk_closed(&url, seconds)?, closed(64, 1)?);
    let full = ratio(&[theirs, ours]);
    row(report, "full speed, 64 connections", &[theirs, ours]);
    let piped = closed(64, 16)?;
    alone(report, "16 in flight on each of 64", &piped);
    // The instrument's own way: a plan, and every request at its instant.
    let before = Spent::now()?;
    let planned = Bench::new(place, &node.url, &place.folder.join("open"))
        .with(&format!(
            "{path} --rate {RATE_MIN:.0} --warmup 0s --duration {seconds}s --connections 64 --pipeline 16"
        ))
        .run()?;
    let open = Cost {
        cpu_us: planned.generator_cpu_us,
        ..before.for_each(planned.answered, planned.answered / planned.length_s)?
    };
    let name = format!("open loop, {RATE_MIN:.0} planned{}", planned.mark());
    alone(report, &name, &open);
    let open = if planned.invalid.is_none() {
        open.rate
    } else {
        0.0
    };
    let best = ours.rate.max(piped.rate).max(open);
    let is_cheap = even <= COST_MAX && full <= COST_MAX;
    let is_fast = best >= RATE_MIN;
    let word = |held: bool| if held { "**kept**" } else { "**missed**" };
    report.line(format_args!(
        "\n* CPU for a request at most {COST_MAX} times wrk's: {:.2}, {:.2}, {}",
        even,
        full,
        word(is_cheap)
    ));
    report.line(format_args!(
        "* at least {RATE_MIN:.0} requests a second from one core: {best:.0}, {}",
        word(is_fast)
    ));
    Ok(is_cheap && is_fast)
}

/// CPU of one sleep to the next of some instants, 160 µs apart, microseconds: no plan with even
/// instants costs less.
fn sleep_cpu_us(place: &Place) -> Result<f64, String> {
    const SLEEPS: u32 = 2_000;
    let sleeps = || -> nix::Result<i64> {
        nix::sys::prctl::set_timerslack(1)?;
        let before = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
        let start = Instant::now();
        for n in 1..=SLEEPS {
            let at = start + n * Duration::from_micros(160);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
        }
        let spent = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)? - before;
        Ok(spent.num_nanoseconds())
    };
    // On a thread of its own, which keeps its timers' slack and its cores to itself.
    let spent_ns = place
        .on(Side::Generator, || std::thread::spawn(sleeps).join())?
        .map_err(|_| "the thread that slept panicked")?
        .map_err(|e| format!("sleeping: {e}"))?;
    Ok(spent_ns as f64 / 1000.0 / f64::from(SLEEPS))
}

/// Ours for theirs.
fn ratio([theirs, ours]: &[Cost; 2]) -> f64 {
    ours.cpu_us / theirs.cpu_us.max(1e-9)
}

fn row(report: &mut Report, name: &str, pair: &[Cost; 2]) {
    let [theirs, ours] = pair;
    report.row(&[
        name.to_owned(),
        format!("{:.0}", theirs.rate),
        format!("{:.0}", ours.rate),
        format!("{:.2}", theirs.cpu_us),
        format!("{:.2}", ours.cpu_us),
        format!("{:.2}", ratio(pair)),
        format!("{:.2}", ours.whole_us),
        format!("{:.2}", theirs.waits),
        format!("{:.2}", ours.waits),
    ]);
}

/// A row without wrk.
fn alone(report: &mut Report, name: &str, ours: &Cost) {
    let none = "–".to_owned();
    report.row(&[
        name.to_owned(),
        none.clone(),
        format!("{:.0}", ours.rate),
        none.clone(),
        format!("{:.2}", ours.cpu_us),
        none.clone(),
        format!("{:.2}", ours.whole_us),
        none,
        format!("{:.2}", ours.waits),
    ]);
}
