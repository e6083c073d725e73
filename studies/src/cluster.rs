//! `make study-cluster`: the cost of a hop, the cost of a quorum, and whether the goals of the
//! cluster hold.
//!
//! ```text
//! two      all records on the second member: asked there a request is local, asked at the first it
//!          needs the hop; over frames and over plain HTTP, all four in turn
//! three    1/1, 1/3, 2/3, 3/3, both durabilities, requests to all members
//! alone    one node without a cluster and three members, in turn
//! ```
//!
//! Invariants
//! 1. All members share the cores that one node has for itself: rates compare as rates for a core.
//! 2. Closed loops, 64 connections unless it is said otherwise: the rate is the most that the
//!    servers' cores can do, not a plan. Latencies without a queue come from open loops at half of
//!    that rate. A rate says something where the servers' cores were busy; CPU for a request does
//!    so anyway.
//! 3. Figures that are compared were measured in turn, so that a machine that changes its speed
//!    changes both. A ratio is the middle one of the ratios of neighbours.
//! 4. That a request needs the hop is counted: questions between members for a request.
//!
//! Not here: the loss of a member (tests of the binary).
//! See: docs/protocol.md, docs/lab/README.md.

use super::goals::{Bound, Goals};
use super::place::{Held, Place};
use super::proc::Clock;
use super::report::{Report, time};
use super::run::{Bench, Figures};
use super::stats::middle;
use super::store::{Members, Server, Store, metric};

/// Records of 100 bytes.
const KEYS: u32 = 20_000;

/// Pairs of compared runs.
const PAIRS: usize = 5;

/// The findings of one run.
struct Row {
    figures: Figures,
    /// CPU microseconds of each member for a request.
    cpu_us: Vec<f64>,
    /// Questions between members for a request.
    asks: f64,
}

impl Row {
    fn rate(&self) -> f64 {
        self.figures.answered / self.figures.length_s
    }

    fn cpu_us(&self) -> f64 {
        self.cpu_us.iter().sum()
    }
}

/// Measures all parts.
pub(super) fn run(place: &Place) -> Held {
    let question = "What does a request cost when another member has the record, and what does each further copy and answer cost?";
    let facts = [
        (
            "data",
            format!("{KEYS} records of 100 bytes, found in memory"),
        ),
        (
            "load",
            "64 connections, unless it is said otherwise".to_owned(),
        ),
    ];
    let mut report = Report::new(place, "A hop and a quorum", question, &facts)?;
    let mut goals = Goals::default();
    two(place, &mut report, &mut goals)?;
    for durability in ["os", "sync"] {
        three(place, &mut report, durability)?;
    }
    alone(place, &mut report, &mut goals)?;
    let all_held = goals.show(&mut report);
    report.write(place, "study-cluster")?;
    Ok(all_held)
}

const HEADS: [&str; 10] = [
    "operation",
    "what",
    "requests/s",
    "p50",
    "p99",
    "CPU µs a request, each member",
    "together",
    "cores busy",
    "questions a request",
    "lost or refused",
];

fn show(report: &mut Report, operation: &str, what: &str, row: &Row) {
    let each: Vec<String> = row.cpu_us.iter().map(|us| format!("{us:.1}")).collect();
    let figures = &row.figures;
    report.row(&[
        operation.to_uppercase(),
        what.to_owned(),
        format!("{:.0}{}", row.rate(), figures.mark()),
        time(figures.p50_us),
        time(figures.p99_us),
        each.join(" + "),
        format!("{:.1}", row.cpu_us()),
        format!("{:.2}", row.cpu_us() * row.rate() / 1e6),
        format!("{:.2}", row.asks),
        format!("{:.4} %", (figures.lost + figures.refused) * 100.0),
    ]);
}

/// One copy, all of them on the second member.
fn two(place: &Place, report: &mut Report, goals: &mut Goals) -> Result<(), String> {
    report.line("\n## Two members, one copy, `os`\n\nThe second member has all records. Requests to it are local, requests to the first one need the hop. Closed loops in turn, the rows of one run below each other; then open loops at half of the rate.");
    let start = |transport: &str| {
        let options = ["--durability", "os", "--peer-transport", transport];
        let members = Members::start(place, transport, &[1, u16::MAX], 1, &options)?.joined(1)?;
        members.load(place, &records())?;
        Ok::<_, String>((transport.to_owned(), members))
    };
    let clusters = [start("frames")?, start("http")?];
    let mut kinds: Vec<(&str, &str, usize, Vec<Row>)> = Vec::new();
    for operation in ["get", "put"] {
        for (transport, _) in &clusters {
            kinds.push((operation, transport, 1, Vec::new()));
            kinds.push((operation, transport, 0, Vec::new()));
        }
    }
    report.table(&HEADS);
    let of = |transport: &str| &clusters[usize::from(transport == "http")].1;
    for _ in 0..PAIRS {
        for (operation, transport, at, rows) in &mut kinds {
            let row = of(transport).closed(place, *at..*at + 1, operation, "1/1")?;
            show(report, operation, &what(transport, *at), &row);
            rows.push(row);
        }
    }
    report.line("\nAt half of the rate:");
    report.table(&HEADS);
    for (operation, transport, at, rows) in &kinds {
        let half = middle(rows.iter().map(Row::rate)) / 2.0;
        let load = format!("--rate {half:.0}");
        let row =
            of(transport).row(place, *at..*at + 1, operation, "1/1", &load, seconds(place))?;
        show(report, operation, &what(transport, *at), &row);
    }
    let cost = |row: &Row| row.cpu_us();
    let mut facts = Vec::new();
    for (i, operation) in ["GET", "PUT"].iter().enumerate() {
        let [local, hop, http_local, http_hop] = [0, 1, 2, 3].map(|k| &kinds[4 * i + k].3);
        let middle = |rows: &[Row]| middle(rows.iter().map(cost));
        let (way, http_way) = (
            middle(hop) - middle(local),
            middle(http_hop) - middle(http_local),
        );
        facts.push(format!(
            "{operation}: a local one costs {:.1} µs of CPU, a forwarded one over frames {:.1} and over plain HTTP {:.1}; the hop alone {way:.1} and {http_way:.1} µs, {:.2} of it.",
            middle(local),
            middle(hop),
            middle(http_hop),
            way / http_way
        ));
        if *operation == "GET" {
            goals.add(
                "CPU of a forwarded GET over frames, for that of a local one".to_owned(),
                ratios(hop, local, cost).collect(),
                Bound::AtMost(1.5),
            );
            goals.add(
                "CPU of a forwarded GET over frames, for that of one over plain HTTP".to_owned(),
                ratios(hop, http_hop, cost).collect(),
                Bound::AtMost(0.5),
            );
        }
    }
    report.line("");
    for fact in facts {
        report.line(format_args!("* {fact}"));
    }
    Ok(())
}

fn what(transport: &str, at: usize) -> String {
    match at {
        0 => format!("{transport}, forwarded"),
        _ => format!("{transport}, local"),
    }
}

/// The cost of each copy and of each answer.
fn three(place: &Place, report: &mut Report, durability: &str) -> Result<(), String> {
    report.line(format_args!(
        "\n## Three members, three copies, `{durability}`\n\nRequests to all members."
    ));
    let options = ["--durability", durability];
    let name = format!("three-{durability}");
    let members = Members::start(place, &name, &[1, 1, 1], 3, &options)?.joined(3)?;
    members.load(place, &records())?;
    report.table(&HEADS);
    for copies in ["1/1", "1/3", "2/3", "3/3"] {
        // A copy more or less: the records must be there at this number of copies.
        members.closed(place, 0..3, "put", copies)?;
        for operation in ["get", "put"] {
            let row = members.closed(place, 0..3, operation, copies)?;
            show(report, operation, copies, &row);
        }
    }
    Ok(())
}

/// Quorum reads beside one node that has the core for itself.
fn alone(place: &Place, report: &mut Report, goals: &mut Goals) -> Result<(), String> {
    report.line("\n## One node and three members on the same core, `os`\n\nGET, by a quorum of two where there are three.");
    let options = ["--durability", "os"];
    let start = |name: &str, weights: &[u16]| {
        let factor = weights.len();
        let members = Members::start(place, name, weights, factor, &options)?.joined(factor)?;
        members.load(place, &records())?;
        Ok::<_, String>(members)
    };
    let (one, three) = (start("alone", &[1])?, start("beside-alone", &[1, 1, 1])?);
    report.table(&HEADS);
    let (mut ones, mut threes) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        for (members, copies, name, rows) in [
            (&one, "1/1", "one node", &mut ones),
            (&three, "2/3", "three members, 2/3", &mut threes),
        ] {
            let row = members.closed(place, 0..members.nodes.len(), "get", copies)?;
            show(report, "get", name, &row);
            rows.push(row);
        }
    }
    goals.add(
        "quorum GETs of three members for a second of CPU, for those of one node".to_owned(),
        ratios(&ones, &threes, Row::cpu_us).collect(),
        Bound::AtLeast(1.0 / 3.0),
    );
    Ok(())
}

impl Members {
    fn closed(
        &self,
        place: &Place,
        targets: std::ops::Range<usize>,
        operation: &str,
        copies: &str,
    ) -> Result<Row, String> {
        let seconds = seconds(place);
        self.row(place, targets, operation, copies, "--closed", seconds)
    }

    /// One run against the nodes `targets`.
    fn row(
        &self,
        place: &Place,
        targets: std::ops::Range<usize>,
        operation: &str,
        copies: &str,
        load: &str,
        seconds: f64,
    ) -> Result<Row, String> {
        let urls = &self.urls()[targets];
        let bench = Bench::new(place, urls[0], &place.folder.join("run"));
        let bench = urls[1..].iter().fold(bench, |bench, url| bench.word(url));
        let clocks = || self.nodes.iter().map(Server::clock).collect::<Vec<_>>();
        let (figures, (asks, before)) = bench
            .with(&format!(
                "--workload {operation} {load} --warmup 0s --duration {seconds}s --keys {KEYS} --query replicas={copies}"
            ))
            .while_running(|| Ok((self.asks()?, clocks())))?;
        let answered = figures.answered.max(1.0);
        let spent = |(node, since): (&Server, &Clock)| node.cpu_s(since) * 1e6 / answered;
        Ok(Row {
            cpu_us: self.nodes.iter().zip(&before).map(spent).collect(),
            asks: (self.asks()? - asks) / answered,
            figures,
        })
    }

    /// Questions that the members have sent to each other.
    fn asks(&self) -> Result<f64, String> {
        let asks = |node: &Server| metric(&node.admin, "dendra_peer_asks_total");
        self.nodes.iter().map(asks).sum()
    }
}

fn records() -> String {
    format!("--workload put --keys {KEYS} --connections 256")
}

/// How long a run takes.
fn seconds(place: &Place) -> f64 {
    place.options.seconds.unwrap_or(3.0).max(0.5)
}

/// The ratios of runs that followed each other.
fn ratios(these: &[Row], those: &[Row], of: impl Fn(&Row) -> f64) -> impl Iterator<Item = f64> {
    these.iter().zip(those).map(move |(a, b)| of(a) / of(b))
}
