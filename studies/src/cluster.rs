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
use super::node::{Server, free_port};
use super::place::{Held, Place};
use super::proc::Clock;
use super::report::{Report, time};
use super::run::{Bench, Figures};
use super::stats::middle;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Records of 100 bytes.
const KEYS: u32 = 20_000;

/// How long members may take to find each other.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connections that are held while members find each other: some for each event loop.
const DOORS: usize = 16;

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

/// A cluster that runs, or one node by itself.
pub(super) struct Members {
    pub(super) nodes: Vec<Server>,
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
        let binary = &place.binary;
        let members = Members::start(place, binary, transport, &[1, u16::MAX], 1, &options)?;
        members.load(place, 1)?;
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
    let members = Members::start(place, &place.binary, &name, &[1, 1, 1], 3, &options)?;
    members.load(place, 3)?;
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
        let members = Members::start(place, &place.binary, name, weights, factor, &options)?;
        members.load(place, factor)?;
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
    /// Starts members of these weights; one weight is a node by itself.
    pub(super) fn start(
        place: &Place,
        binary: &Path,
        name: &str,
        weights: &[u16],
        factor: usize,
        options: &[&str],
    ) -> Result<Members, String> {
        let folder = |i: usize| place.folder.join(format!("{name}-{i}"));
        let ports: Vec<SocketAddr> = weights
            .iter()
            .map(|_| free_port())
            .collect::<Result<_, _>>()?;
        let list: Vec<String> = ports
            .iter()
            .zip(weights)
            .map(|(port, weight)| format!("http://{port};weight={weight}"))
            .collect();
        let (list, factor) = (list.join(","), factor.to_string());
        let one = |(i, port): (usize, &SocketAddr)| {
            let own = format!("http://{port}");
            let mut words = options.to_vec();
            if ports.len() > 1 {
                words.extend(["--cluster", &list, "--self", &own]);
                words.extend(["--replication-factor", &factor]);
            }
            Server::node_of(place, binary, &folder(i), &port.to_string(), &words)
        };
        let nodes = ports.iter().enumerate().map(one);
        Ok(Members {
            nodes: nodes.collect::<Result<_, _>>()?,
        })
    }

    /// Waits until all reach all, then writes the records.
    pub(super) fn load(&self, place: &Place, factor: usize) -> Result<(), String> {
        for node in &self.nodes {
            wait_for_answers(&node.url, &format!("{factor}/{factor}"))?;
        }
        let flags = format!(
            "--workload put --preload --rate 1000 --duration 0.2s --warmup 0s --keys {KEYS}"
        );
        let last = self.nodes.last().expect("there is a node");
        Bench::new(place, &last.url, &folder(place))
            .with(&flags)
            .attempts(1)
            .run()
            .map(drop)
    }

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
        let (first, others) = self.nodes[targets]
            .split_first()
            .expect("a run has a target");
        let mut bench = Bench::new(place, &first.url, &folder(place));
        for target in others {
            bench = bench.word(&target.url);
        }
        let (figures, (asks, before)) = bench
            .with(&format!(
                "--workload {operation} {load} --warmup 0s --duration {seconds}s --keys {KEYS} --query replicas={copies}"
            ))
            .while_running(|| Ok((self.asks()?, self.clocks())))?;
        let answered = figures.answered.max(1.0);
        let spent = |(node, before): (&Server, &Clock)| node.cpu_s(before) * 1e6 / answered;
        Ok(Row {
            cpu_us: self.nodes.iter().zip(&before).map(spent).collect(),
            asks: (self.asks()? - asks) / answered,
            figures,
        })
    }

    fn clocks(&self) -> Vec<Clock> {
        self.nodes.iter().map(Server::clock).collect()
    }

    /// Questions that the members have sent to each other.
    fn asks(&self) -> Result<f64, String> {
        self.nodes.iter().map(asks_of).sum()
    }
}

/// How long a run takes.
fn seconds(place: &Place) -> f64 {
    place.options.seconds.unwrap_or(3.0).max(0.5)
}

fn folder(place: &Place) -> PathBuf {
    place.folder.join("run")
}

/// Questions that a node has sent, by its own count.
fn asks_of(node: &Server) -> Result<f64, String> {
    metric(&node.admin, "dendra_peer_asks_total")
}

/// The sum of all rows of a metric of the node with this admin port.
pub(super) fn metric(admin: &str, name: &str) -> Result<f64, String> {
    let address = admin.trim_start_matches("http://");
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    };
    let page = ask().map_err(|e| format!("the metrics of {admin}: {e}"))?;
    Ok(sum_of(&page, name))
}

/// Sum of all rows of a metric.
fn sum_of(page: &str, name: &str) -> f64 {
    page.lines()
        .filter_map(|line| {
            line.strip_prefix(name)?
                .rsplit_once(' ')?
                .1
                .parse::<f64>()
                .ok()
        })
        .sum()
}

/// Waits until a node gets an answer from as many members as `replicas` says, on each of its loops.
/// A connection goes to the loop with the fewest.
pub(super) fn wait_for_answers(url: &str, replicas: &str) -> Result<(), String> {
    let address = url.trim_start_matches("http://");
    let until = Instant::now() + PATIENCE;
    let open = || TcpStream::connect(address).map_err(|e| format!("{url}: {e}"));
    let doors = (0..DOORS).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
    let request = format!(
        "GET /v0/entity?id=nothing&replicas={replicas} HTTP/1.1\r\nHost: {address}\r\n\r\n"
    );
    for door in doors {
        let failed = |e: std::io::Error| format!("{url}: {e}");
        door.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut door = BufReader::new(door);
        loop {
            door.get_mut()
                .write_all(request.as_bytes())
                .map_err(failed)?;
            let said = answer(&mut door).map_err(failed)?;
            if said.starts_with("HTTP/1.1 404") {
                break;
            }
            if Instant::now() > until {
                return Err(format!(
                    "{url} does not reach the other members: the last answer was {said:?}"
                ));
            }
        }
    }
    Ok(())
}

/// The status line of one answer, whose body is read and dropped.
fn answer(door: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
    door.read_line(&mut first)?;
    loop {
        line.clear();
        if door.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end().split_once(": ") {
            Some(("Content-Length", n)) => length = n.parse().unwrap_or(0),
            Some(_) => {}
            None => break,
        }
    }
    std::io::copy(&mut door.take(length), &mut std::io::sink())?;
    Ok(first.trim_end().to_owned())
}

/// The ratios of runs that followed each other.
fn ratios(these: &[Row], those: &[Row], of: impl Fn(&Row) -> f64) -> impl Iterator<Item = f64> {
    these.iter().zip(those).map(move |(a, b)| of(a) / of(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_rows() {
        let page = "# HELP a b\nasks_total{peer=\"x\"} 3\nasks_total{peer=\"y\"} 4\nother 9\n";
        assert_eq!(sum_of(page, "asks_total"), 7.0);
    }
}
