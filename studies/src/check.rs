//! `make lab-check`: is the instrument right? Beside oha and k6, before a frozen server, and in its
//! own cost.
//!
//! ```text
//! agreement    same rate, same slow server:   rate, p50, p99 of ours within 5 % of oha and of k6
//! frozen       node stopped 1 s at 1,000/s:   p99.9 near 1 s in ours, oha, k6; not in a closed loop
//! cost         cost.rs
//! ```
//!
//! Invariants
//! 1. True only when every row was measured and held. A tool that is missing is a row that did not
//!    hold.
//! 2. The node is thawed in each case.
//!
//! Not here: how tools are run and read (`foreign.rs`).
//! See: docs/lab/README.md.

use super::cost;
use super::delays::{Delays, Law};
use super::foreign::{Installed, Order, Said, Tool};
use super::place::{Held, Place, output};
use super::report::{Report, time};
use super::run::{Bench, Figures};
use super::store::Server;
use std::process::Command;
use std::time::{Duration, Instant};

/// Requests a second, everywhere.
const RATE: u32 = 1000;

/// Ours may differ from another one by this share.
const AGREEMENT: f64 = 0.05;

/// "Near one second".
const FROZEN_US: std::ops::RangeInclusive<f64> = 900_000.0..=1_100_000.0;

/// Does a generator show the pause at p99.9?
#[derive(Clone, Copy)]
enum Expected {
    /// The pause shows, for the generator has a plan: every request that was due in the pause
    /// counts.
    Seen,
    /// The pause is hidden: the generator waits for answers and reports those that it saw.
    Hidden,
    /// Both may be: the generator waits for answers and makes up those that it did not see.
    Either,
}

/// How long the server stands still.
const FREEZE: Duration = Duration::from_secs(1);

/// Checks the instrument.
pub(super) fn run(place: &Place) -> Held {
    let mut tools = Vec::new();
    let mut missing = Vec::new();
    for tool in [Tool::Wrk, Tool::Oha, Tool::K6] {
        match tool.installed(place) {
            Ok(installed) => tools.push(installed),
            Err(sentence) => missing.push(sentence),
        }
    }
    let mut facts: Vec<(&str, String)> = tools
        .iter()
        .map(|t| (t.tool.name(), t.words.clone()))
        .collect();
    facts.push(("dendra", super::place::version(&place.binary, "--version")));
    let question = "Does `dendra bench` measure what independent generators measure, does it show a pause that a closed loop hides, and what does it \
                    cost?";
    let mut report = Report::new(place, "The instrument beside others", question, &facts)?;
    for sentence in &missing {
        report.line(format_args!("* **not measured**: {sentence}"));
    }
    let node = Server::node(place, &place.folder.join("data"), &[])?;
    let put = [
        "put",
        "lab-check",
        "a value of a few bytes",
        "--quiet",
        "--url",
        &node.url,
    ];
    output(Command::new(&place.binary).args(put))?;
    let slow = Delays::start(place, Law::Steps)?;
    let slow_url = format!("http://{}", slow.address);
    let mut held = missing.is_empty();
    held &= agreement(place, &mut report, &tools, &slow_url)?;
    held &= frozen(place, &mut report, &tools, &node)?;
    match tools.iter().find(|t| t.tool == Tool::Wrk) {
        Some(wrk) => held &= cost::part(place, &mut report, wrk, &node)?,
        None => report.line("\nWhat the generator costs was not measured: there is no wrk."),
    }
    report.line(format_args!(
        "\n**Everything held: {}.**",
        if held { "yes" } else { "no" }
    ));
    drop((node, slow));
    report.write(place, "lab-check")?;
    Ok(held)
}

fn seconds(place: &Place) -> u32 {
    place.options.seconds.unwrap_or(10.0).max(5.0) as u32
}

fn ours(figures: &Figures) -> Said {
    Said {
        requests: figures.answered,
        rate: figures.answered / figures.length_s,
        p50_us: figures.p50_us,
        p99_us: figures.p99_us,
        p999_us: figures.p999_us,
    }
}

fn cells(name: &str, said: &Said) -> Vec<String> {
    vec![
        name.to_owned(),
        format!("{:.1}", said.rate),
        time(said.p50_us),
        time(said.p99_us),
        time(said.p999_us),
    ]
}

fn word(held: bool) -> String {
    if held { "**kept**" } else { "**missed**" }.to_owned()
}

/// Compares the tools at the same slow server and rate.
fn agreement(
    place: &Place,
    report: &mut Report,
    tools: &[Installed],
    url: &str,
) -> Result<bool, String> {
    let seconds = seconds(place);
    report.line(format_args!(
        "\n## Agreement\n\n{RATE} requests a second for {seconds} s over 64 connections, against a server that waits 8 ms (88 of 100 answers), 20 ms (10) or \
         60 ms (2): long beside what a generator needs to wake up. The rate, p50 and p99 of ours lie within {:.0} % of each.",
        AGREEMENT * 100.0
    ));
    report.table(&[
        "",
        "requests/s",
        "p50",
        "p99",
        "p99.9",
        "rate, p50, p99 beside ours",
        "verdict",
    ]);
    let figures = Bench::new(place, url, &place.folder.join("agreement"))
        .with(&format!(
            "--url-template / --rate {RATE} --duration {seconds}s --connections 64"
        ))
        .run()?;
    let own = ours(&figures);
    let mut row = cells("ours", &own);
    row.extend([String::new(), figures.mark().trim().to_owned()]);
    report.row(&row);
    let mut held = figures.invalid.is_none();
    let target = format!("{url}/");
    for tool in tools.iter().filter(|t| t.tool != Tool::Wrk) {
        let order = Order {
            url: &target,
            rate: RATE,
            seconds,
            connections: 64,
        };
        let said = tool.run(place, &order)?;
        let pairs = [
            (own.rate, said.rate),
            (own.p50_us, said.p50_us),
            (own.p99_us, said.p99_us),
        ];
        let apart = pairs.map(|(ours, theirs)| theirs / ours.max(1e-9) - 1.0);
        let is_near = apart.iter().all(|share| share.abs() <= AGREEMENT);
        held &= is_near;
        let mut tool_row = cells(tool.tool.name(), &said);
        tool_row.push(
            apart
                .map(|share| format!("{:+.1} %", share * 100.0))
                .join(", "),
        );
        tool_row.push(word(is_near));
        report.row(&tool_row);
    }
    Ok(held)
}

/// The node stands still for a second in the middle.
fn frozen(
    place: &Place,
    report: &mut Report,
    tools: &[Installed],
    node: &Server,
) -> Result<bool, String> {
    let seconds = seconds(place);
    report.line(format_args!(
        "\n## A frozen server\n\nA node is stopped (SIGSTOP) for {} s, {RATE} requests a second for {seconds} s. One request in {seconds} is due while it stands \
         still, so p99.9 must be near one second where the plan decides when a request is due. A closed loop has no plan: of 8 connections, 8 requests see the pause.",
        FREEZE.as_secs()
    ));
    report.table(&[
        "",
        "requests/s",
        "p50",
        "p99",
        "p99.9",
        "expected",
        "verdict",
    ]);
    let url = format!("{}/v0/entity?id=lab-check", node.url);
    let figures = Bench::new(place, &node.url, &place.folder.join("frozen"))
        .with(&format!("--url-template /v0/entity?id=lab-check --rate {RATE} --duration {seconds}s --connections 64 --warmup 0s"))
        .while_running(|| freeze_in_traffic(node))?
        .0;
    let own = ours(&figures);
    let closed = Bench::new(place, &node.url, &place.folder.join("closed"))
        .with(&format!(
            "--url-template /v0/entity?id=lab-check --closed --duration {seconds}s --connections 8 --warmup 0s"
        ))
        .attempts(1)
        .while_running(|| freeze_in_traffic(node))?
        .0;
    let mut all = vec![
        ("ours", own, Expected::Seen),
        ("ours, closed loop", ours(&closed), Expected::Hidden),
    ];
    for tool in tools {
        // Every request that is due in the pause needs a user of k6; wrk gets few, as people give
        // it.
        let connections = match tool.tool {
            Tool::Wrk => 8,
            Tool::Oha => 64,
            Tool::K6 => RATE + RATE / 5,
        };
        let order = Order {
            url: &url,
            rate: RATE,
            seconds,
            connections,
        };
        let running = tool.start(place, &order)?;
        let frozen = freeze_in_traffic(node);
        let said = running.finish()?;
        frozen?;
        let expected = match tool.tool {
            Tool::Wrk => Expected::Either,
            Tool::Oha | Tool::K6 => Expected::Seen,
        };
        all.push((tool.tool.name(), said, expected));
    }
    let mut held = true;
    for (name, said, expected) in all {
        let is_seen = FROZEN_US.contains(&said.p999_us);
        let (words, verdict) = match expected {
            Expected::Seen => ("near 1 s", Some(is_seen)),
            Expected::Hidden => ("hidden", Some(said.p999_us < FROZEN_US.start() / 2.0)),
            Expected::Either => ("shown only", None),
        };
        held &= verdict.unwrap_or(true);
        let mut row = cells(name, &said);
        row.extend([words.to_owned(), verdict.map_or(String::new(), word)]);
        report.row(&row);
    }
    report.line(
        "\nwrk since version 4 is a closed loop that repairs its histogram after the run (`stats_correct`): for each slow answer it makes up the ones \
         that it supposes were not sent, at the mean interval of a connection. So its percentiles may show the pause, although it sent nothing while \
         the server stood still; the closed loop of ours leaves the histogram as it was measured.",
    );
    Ok(held)
}

/// Waits until the node works, lets it go on for two seconds, and stops it for [`FREEZE`].
fn freeze_in_traffic(node: &Server) -> Result<(), String> {
    let before = node.clock();
    let until = Instant::now() + Duration::from_secs(20);
    // An idle node uses well below a hundredth of a core; at 1,000 requests a second it uses more.
    while node.cpu_s(&before) < 0.02 {
        if Instant::now() > until {
            return Err("the node saw no traffic within 20 s".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_secs(2));
    node.freeze()?;
    std::thread::sleep(FREEZE);
    node.thaw()
}
