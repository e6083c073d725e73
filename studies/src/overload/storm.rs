//! Ten thousand connections at once, and ten thousand slow ones, beside one client that works.
//!
//! ```text
//! examples/storm.c ─ cc ─► calm, storm, afterwards ─► p99 of the healthy client in each ─► a row, goals
//! ```
//!
//! Invariants
//! 1. The node is held to no share: it has its core for itself, in front of other programs of the
//!    machine.
//!
//! Not here: the work of the program (`examples/storm.c`), goals of other parts (`figures.rs`).
//! See: docs/lab/README.md.

use super::figures::Goals;
use crate::place::{Place, Side, find, output};
use crate::report::{Report, time};
use crate::store::Server;
use std::process::{Command, Stdio};

/// Connections of each kind, as many as are said in the goals.
const CONNECTIONS: u32 = 10_000;

/// Kinds, and how the report calls them.
const KINDS: [(&str, &str); 4] = [
    ("connect", "all connect at once and ask once"),
    ("head", "a byte of a head a second"),
    ("body", "a byte of a body a second"),
    ("deaf", "64 requests, answers not read"),
];

/// Runs of each kind: the middle one of their ratios is judged.
const RUNS: usize = 3;

const MEANWHILE_MOST: f64 = 2.0;
const AFTERWARDS_MOST: f64 = 1.2;

/// p99 of the healthy client, microseconds.
struct Run {
    calm_us: f64,
    meanwhile_us: f64,
    afterwards_us: f64,
    longest_us: f64,
    words: String,
}

impl Run {
    /// Reads the output of the program.
    fn parse(said: &str) -> Option<Run> {
        let number = |when: &str, what: &str| {
            let line = said.lines().find(|line| line.starts_with(when))?;
            let rest = line.split(what).nth(1)?;
            rest.split_ascii_whitespace().next()?.parse::<f64>().ok()
        };
        Some(Run {
            calm_us: number("calm", "p99")?,
            meanwhile_us: number("storm", "p99")?,
            afterwards_us: number("afterwards", "p99")?,
            longest_us: number("storm", "longest")?,
            words: said
                .lines()
                .find(|line| line.contains("connections:"))?
                .to_owned(),
        })
    }
}

pub(super) fn storms(
    place: &Place,
    report: &mut Report,
    goals: &mut Goals,
    seconds: f64,
) -> Result<(), String> {
    report.line(format_args!(
        "\n## {CONNECTIONS} connections beside one healthy client\n\nGET of 100 bytes, `examples/storm.c`: the healthy client asks every 2 ms, for {seconds:.0} s in a calm, {seconds:.0} s \
         beside the others, and {seconds:.0} s from when they hang up at once. Its p99 counts from when a request was due. The node has its core without a share, and goes first there \
         (SCHED_RR), so that other programs of the machine do not count; {RUNS} runs of each kind."
    ));
    let program = place.folder.join("storm");
    let source = place.root.join("examples/storm.c");
    let compiler = find("cc", &[]).ok_or("there is no cc")?;
    output(
        Command::new(compiler)
            .args(["-O2", "-pthread", "-o"])
            .args([&program, &source]),
    )?;
    let node = Server::node(place, &place.folder.join("storms"), &[])?;
    let value = "x".repeat(100);
    let put = ["put", "--url", &node.url, "storm", &value];
    output(Command::new(&place.binary).args(put))?;
    let id = node.id().to_string();
    output(Command::new("chrt").args(["--all-tasks", "--rr", "--pid", "1", &id]))?;
    let port = node.url.rsplit(':').next().ok_or("a port")?;
    report.table(&[
        "kind",
        "p99, calm",
        "meanwhile",
        "beside calm",
        "longest",
        "afterwards",
        "beside calm",
    ]);
    let mut notes = Vec::new();
    for (kind, name) in KINDS {
        let mut ratios = [Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            let mut command = Command::new(&program);
            command
                .args([
                    port,
                    kind,
                    &CONNECTIONS.to_string(),
                    &format!("{seconds:.0}"),
                ])
                .arg("/v0/entity?id=storm")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
            let child = place.spawn(Side::Generator, &mut command)?;
            let output = child.wait_with_output().map_err(|e| e.to_string())?;
            let said = String::from_utf8_lossy(&output.stdout);
            let run = Run::parse(&said).ok_or_else(|| format!("storm {kind} said: {said}"))?;
            let meanwhile = run.meanwhile_us / run.calm_us.max(1.0);
            let afterwards = run.afterwards_us / run.calm_us.max(1.0);
            report.row(&[
                name.to_owned(),
                time(run.calm_us),
                time(run.meanwhile_us),
                format!("{meanwhile:.1}"),
                time(run.longest_us),
                time(run.afterwards_us),
                format!("{afterwards:.1}"),
            ]);
            notes.push(run.words);
            ratios[0].push(meanwhile);
            ratios[1].push(afterwards);
        }
        let [meanwhile, afterwards] = ratios.map(crate::stats::middle);
        goals.ratio(
            name,
            "p99 of a healthy client, beside calm",
            meanwhile,
            MEANWHILE_MOST,
        );
        goals.ratio(name, "the same afterwards", afterwards, AFTERWARDS_MOST);
    }
    report.line("");
    for words in notes {
        report.line(format_args!("* {words}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_prints_is_read() {
        let said = "connect, 10 connections: 10 connects, 10 answered\n\
            calm          301 answers, p50    191 us, p99   1662 us, longest    3777 us\n\
            storm         300 answers, p50    214 us, p99   4883 us, longest    6890 us\n\
            afterwards    310 answers, p50    212 us, p99   3263 us, longest    4251 us\n";
        let run = Run::parse(said).expect("it is whole");
        assert_eq!((run.calm_us, run.meanwhile_us), (1662.0, 4883.0));
        assert_eq!((run.afterwards_us, run.longest_us), (3263.0, 6890.0));
        assert!(Run::parse("the healthy client lost its connection").is_none());
    }
}
