//! `make study-cluster`: what a hop costs, and what a quorum costs.
//!
//! ```text
//! alone     one node, no cluster                                 the measure for the others
//! two       one copy of each record, all requests to one member  half of them need a hop
//! three     1/1, 1/3, 2/3, 3/3, requests to all members          what each copy and each answer costs
//! ```
//!
//! Invariants
//! 1. All members share the cores that one node has for itself: rates compare as rates for a core.
//! 2. Closed loops, 64 connections: the rate is what the servers' core can do, not a plan.
//!
//! Not here: what happens when a member is lost (tests of the binary).
//! See: docs/consistency.md, docs/lab/README.md.

use super::Held;
use super::node::{Clock, Server, free_port};
use super::place::Place;
use super::report::{Report, time};
use super::run::Bench;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Records of 100 bytes.
const KEYS: u32 = 20_000;

/// How long members may take to find each other.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one row found.
struct Row {
    rate: f64,
    /// CPU microseconds of each member for a request.
    cpu_us: Vec<f64>,
}

impl Row {
    fn cpu_us(&self) -> f64 {
        self.cpu_us.iter().sum()
    }
}

/// Measures one, two and three nodes.
pub(super) fn run(place: &Place) -> Held {
    let question = "What does a request cost when another member has the record, and what does each further copy and answer cost?";
    let facts = [
        (
            "data",
            format!("{KEYS} records of 100 bytes, found in memory"),
        ),
        ("load", "closed loop, 64 connections".to_owned()),
    ];
    let mut report = Report::new(place, "A hop and a quorum", question, &facts);
    let mut ends = Vec::new();
    for durability in ["os", "sync"] {
        let alone = rows(
            place,
            &mut report,
            "One node alone",
            1,
            1,
            durability,
            &["1/1"],
        )?;
        let two = rows(
            place,
            &mut report,
            "Two members, one copy, all requests to the first",
            2,
            1,
            durability,
            &["1/1"],
        )?;
        let three = rows(
            place,
            &mut report,
            "Three members, three copies, requests to all",
            3,
            3,
            durability,
            &["1/1", "1/3", "2/3", "3/3"],
        )?;
        for (i, operation) in ["GET", "PUT"].iter().enumerate() {
            let (alone, two, quorum) = (&alone[i], &two[i], &three[2 * 2 + i]);
            let forwarded = 2.0 * two.cpu_us() - alone.cpu_us();
            ends.push(format!(
                "* {operation}, `{durability}`: {:.1} µs of CPU alone; with a second member {:.1} on the average, so that a request that needs the hop costs about {forwarded:.1} µs on both together, {:.2} times a local one. Three members at 2/3 do {:.0} a second on the core where one alone does {:.0}: {:.2} of it, {:.1} µs a request.",
                alone.cpu_us(),
                two.cpu_us(),
                forwarded / alone.cpu_us(),
                quorum.rate,
                alone.rate,
                quorum.rate / alone.rate,
                quorum.cpu_us(),
            ));
        }
    }
    report.line("\n## In figures\n");
    for end in &ends {
        report.line(end);
    }
    report.line("\nWith two members half of the records are the first one's own: the cost of a hop is twice the average less the cost alone. The cost alone is that of a node without a cluster, whose path is shorter.");
    report.write(place, "study-cluster")?;
    Ok(true)
}

/// GET and PUT for each of `replicas`, in turn, on a fresh cluster.
fn rows(
    place: &Place,
    report: &mut Report,
    title: &str,
    members: usize,
    factor: u8,
    durability: &str,
    replicas: &[&str],
) -> Result<Vec<Row>, String> {
    report.line(format_args!("\n## {title}, `{durability}`"));
    report.table(&[
        "operation",
        "replicas",
        "requests/s",
        "p50",
        "p99",
        "p99.9",
        "CPU µs a request, each member",
        "together",
        "lost or refused",
    ]);
    let nodes = start(place, members, factor, durability)?;
    let all = format!("{factor}/{factor}");
    for node in &nodes {
        wait_for_answer(&node.url, &all)?;
    }
    let seconds = place.options.seconds.unwrap_or(4.0).max(1.0);
    let targets = if members == 2 {
        &nodes[..1]
    } else {
        &nodes[..]
    };
    let bench = |flags: &str| {
        let mut bench = Bench::new(place, &targets[0].url, &place.folder.join("run"));
        for target in &targets[1..] {
            bench = bench.word(&target.url);
        }
        bench.with(flags).run()
    };
    bench(&format!(
        "--workload put --preload --rate 1000 --duration 0.2s --warmup 0s --keys {KEYS}"
    ))?;
    let mut rows = Vec::new();
    for copies in replicas {
        for operation in ["get", "put"] {
            let before: Vec<Clock> = nodes.iter().map(Server::clock).collect();
            let figures = bench(&format!(
                "--workload {operation} --closed --warmup 0s --duration {seconds}s --keys {KEYS} --query replicas={copies}"
            ))?;
            let answered = figures.answered.max(1.0);
            let spent = |(node, before): (&Server, &Clock)| node.cpu_s(before) * 1e6 / answered;
            let row = Row {
                rate: figures.answered / figures.length_s,
                cpu_us: nodes.iter().zip(&before).map(spent).collect(),
            };
            let each: Vec<String> = row.cpu_us.iter().map(|us| format!("{us:.1}")).collect();
            report.row(&[
                operation.to_uppercase(),
                (*copies).to_owned(),
                format!("{:.0}{}", row.rate, figures.mark()),
                time(figures.p50_us),
                time(figures.p99_us),
                time(figures.p999_us),
                each.join(" + "),
                format!("{:.1}", row.cpu_us()),
                format!("{:.4} %", (figures.lost + figures.refused) * 100.0),
            ]);
            rows.push(row);
        }
    }
    Ok(rows)
}

fn start(
    place: &Place,
    members: usize,
    factor: u8,
    durability: &str,
) -> Result<Vec<Server>, String> {
    let folder = |i: usize| place.folder.join(format!("{members}-{durability}-{i}"));
    if members == 1 {
        return Ok(vec![Server::node(
            place,
            &folder(0),
            &["--durability", durability],
        )?]);
    }
    let addresses = (0..members)
        .map(|_| free_port())
        .collect::<Result<Vec<_>, _>>()?;
    let urls: Vec<String> = addresses.iter().map(|a| format!("http://{a}")).collect();
    let (list, factor) = (urls.join(","), factor.to_string());
    let one = |(i, url): (usize, &String)| {
        let options = [
            "--durability",
            durability,
            "--cluster",
            &list,
            "--self",
            url,
            "--replication-factor",
            &factor,
        ];
        Server::node_at(place, &folder(i), &addresses[i].to_string(), &options)
    };
    urls.iter().enumerate().map(one).collect()
}

/// Waits until a node gets an answer from as many members as `replicas` says.
fn wait_for_answer(url: &str, replicas: &str) -> Result<(), String> {
    let address = url.trim_start_matches("http://");
    let until = Instant::now() + PATIENCE;
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = format!(
            "GET /v0/entity?id=nothing&replicas={replicas} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    loop {
        let said = match ask() {
            Ok(answer) if answer.starts_with("HTTP/1.1 404") => return Ok(()),
            Ok(answer) => answer.lines().next().unwrap_or_default().to_owned(),
            Err(error) => error.to_string(),
        };
        if Instant::now() > until {
            return Err(format!(
                "{url} does not reach the other members: the last answer was {said:?}"
            ));
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
