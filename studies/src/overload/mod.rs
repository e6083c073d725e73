//! `make study-overload`: the rest of a server's rate when it is offered twice and five times the
//! rate that it can do.
//!
//! ```text
//! servers held to a share of a core (share.rs)
//!   knee (--find-max) of 64, 1024, 10000 clients ─► for each patience: knee, 0.9, 2x, 0.9, 5x, 0.9 of it
//! mixed, get     a node                          nginx, redis    the same of others, one patience
//! frozen         three members, one is stopped   compaction      a node that has a GiB to compact
//! storm          connections at once, and slow ones, beside one that works (storm.rs)
//! ```
//!
//! Invariants
//! 1. A row's peak is the most that this server did with as many clients: at its knee, or in the
//!    row's own run. Of several rounds the median counts, for the peak as for the row.
//! 2. A row that cannot be measured is in the report with the reason, and the others are measured.
//! 3. Only Dendra is judged.
//! 4. The storm is the last part: its node is held to no share.
//!
//! Not here: driving (`crates/lab`), rows and goals (`overload/figures.rs`), the group
//! (`share.rs`). See: docs/lab/README.md, docs/overload.md.

mod figures;
mod storm;

use super::place::{Held, Place, find, version};
use super::report::Report;
use super::run::{Bench, record};
use super::share::Share;
use super::store::{Members, Server, Store, metric, others};
use figures::{Goals, HEADS, MIB, Memory, Step, patience};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Options of this study.
pub(super) const OPTIONS: [&str; 5] = [
    "--share",
    "--connections",
    "--timeouts",
    "--parts",
    "--rounds",
];

/// Records of 100 bytes.
const KEYS: u32 = 10_000;

/// The time that a search waits for an answer: long beside its objective, and short beside a step.
const SEARCH_TIMEOUT: &str = "500ms";

/// The objective at the knee. A share is given in pieces of 10 ms, so that a few of them must fit.
const OBJECTIVE: &str = "p99<50ms,errors<0.1%";

/// Multiples of the knee.
const FACTORS: &str = "2x,5x";

/// Half GET, half PUT.
const MIXED: &str = "--workload mixed --mix get=0.5,put=0.5";

/// Clients of the parts that have one row of each factor.
const CLIENTS_OF_ONE: u32 = 1024;

/// Patience of these clients, milliseconds.
const TIMEOUT_MS_OF_ONE: u32 = 1000;

/// Descriptors that a generator or a server needs beside its connections.
const FILES_BESIDE: u64 = 1_100;

/// Values of the compaction: 65,536 of 16 KiB are 1 GiB, beside the records that are asked for.
const FILL: &str = "--keys 65536 --value-bytes 16KiB --method PUT --url-template /v0/entity?id=fill-{key} --body-template {value}";

/// A node compacts level 0 once no write came for ten seconds.
const COMPACTS_AFTER: Duration = Duration::from_secs(11);

/// And is done with a GiB after this at the latest.
const RESTS_WITHIN: Duration = Duration::from_secs(60);

/// How long a calm, a storm and the time after it are looked at, seconds.
const STORM_S: f64 = 5.0;

/// A part of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Mixed,
    Get,
    Nginx,
    Redis,
    Frozen,
    Compaction,
    Storm,
}

impl Part {
    const ALL: [(&'static str, Part); 7] = [
        ("mixed", Part::Mixed),
        ("get", Part::Get),
        ("nginx", Part::Nginx),
        ("redis", Part::Redis),
        ("frozen", Part::Frozen),
        ("compaction", Part::Compaction),
        ("storm", Part::Storm),
    ];
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let found = Part::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, part)| *part).ok_or_else(|| {
            let names = Part::ALL.map(|(name, _)| name).join(", ");
            format!("--parts {text}: there are {names}")
        })
    }
}

/// The parts that are measured.
#[derive(Debug, PartialEq)]
struct Matrix {
    /// Share of a core; none: all that the servers' cores have.
    share: Option<f64>,
    connections: Vec<u32>,
    timeouts_ms: Vec<u32>,
    parts: Vec<Part>,
}

impl Matrix {
    fn of(place: &Place) -> Result<Matrix, String> {
        let own = &place.options.own;
        Matrix::parse(|word| own.get(word).map(String::as_str))
    }

    fn parse<'a>(said: impl Fn(&str) -> Option<&'a str>) -> Result<Matrix, String> {
        let share = match said("--share").unwrap_or("0.25") {
            "off" => None,
            text => {
                let share = text
                    .parse()
                    .ok()
                    .filter(|share| (0.1..=1.0).contains(share));
                let wrong = || format!("--share {text}: 0.1 to 1 of a core, or off");
                Some(share.ok_or_else(wrong)?)
            }
        };
        let connections = list(said("--connections").unwrap_or("64,1024,10000"), |text| {
            let count = text
                .parse()
                .ok()
                .filter(|count| (1..=16_384).contains(count));
            count.ok_or_else(|| format!("--connections {text}: 1 to 16384 are meant"))
        })?;
        let timeouts_ms = list(said("--timeouts").unwrap_or("100ms,1s,5s"), |text| {
            milliseconds(text).ok_or_else(|| format!("--timeouts {text}: like 100ms or 5s"))
        })?;
        let mut parts = match said("--parts") {
            Some(text) => list(text, str::parse)?,
            None => Part::ALL.map(|(_, part)| part).to_vec(),
        };
        // No share comes back after it.
        parts.sort_by_key(|part| *part == Part::Storm);
        Ok(Matrix {
            share,
            connections,
            timeouts_ms,
            parts,
        })
    }
}

fn list<T>(text: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(',').map(one).collect()
}

/// `100ms` or `5s`, up to a minute.
fn milliseconds(text: &str) -> Option<u32> {
    let ms = match text.strip_suffix("ms") {
        Some(number) => number.parse().ok()?,
        None => text
            .strip_suffix('s')?
            .parse::<u32>()
            .ok()?
            .checked_mul(1000)?,
    };
    (1..=60_000).contains(&ms).then_some(ms)
}

/// A server that is asked, with all processes that it needs.
struct Subject<'a> {
    name: &'a str,
    servers: Vec<&'a Server>,
    /// How many of these are asked, the first ones.
    asked: usize,
    /// The flags of the requests.
    asks: &'a str,
    /// The bytes that `--memory` and the gates beside it promise for all processes, without
    /// connections; none: there is no promise.
    promised_bytes: Option<f64>,
}

/// Measures all parts.
pub(super) fn run(place: &Place) -> Held {
    let mut matrix = Matrix::of(place)?;
    let mut notes = Vec::new();
    let files = raised_files()?;
    matrix.connections.retain(|&count| {
        let fits = u64::from(count) + FILES_BESIDE <= files;
        if !fits {
            notes.push(format!(
                "{count} clients need {} descriptors and a process has {files}: `ulimit -Hn`",
                u64::from(count) + FILES_BESIDE
            ));
        }
        fits
    });
    let share = match matrix.share {
        Some(cores) => {
            let name = format!("dendra-lab-{}", std::process::id());
            Some(Share::make(&name, cores)?)
        }
        None => None,
    };
    let held = share.as_ref().map_or("none".to_owned(), Share::words);
    let generator = if place.go_first() {
        "goes first on its core (SCHED_FIFO)"
    } else {
        "waits for other programs on its core"
    };
    place.hold(share);
    let facts = [
        ("servers' share", held),
        ("generator", generator.to_owned()),
        ("records", format!("{KEYS} of 100 bytes, found in memory")),
        ("step", format!("{} s", seconds(place))),
        (
            "rounds",
            place.options.count("--rounds", 1, 1..=99)?.to_string(),
        ),
        ("dendra", version(&place.binary, "--version")),
    ];
    let question = "A server is offered twice and five times what it can do. How much of its work still reaches a client in time, how \
                    long does accepted work take, and when is all as before?";
    let mut report = Report::new(place, "Overload", question, &facts)?;
    report.line(format_args!(
        "\nThe knee is the highest rate that held {OBJECTIVE}. Each row is one run of an open loop: the knee, 0.9 of it (calm), {FACTORS} of it, each with calm behind \
         it for as long as a client waits and a step more. A client that has waited for its timeout closes its connection and opens another one, at most 1,000 of them a \
         second; the generator has no more requests under way than there are clients, and gives a free one to the request that is due last. \"Peak\" is the most that was done in \
         time with as many clients. Of several rounds each figure is the median, and the share of the peak has the least and the largest beside it; the peak is that of one factor, or the knee. The p99 of what was done as asked is that of the server, from the send, beside the same at calm. Refused, given up (sent, no answer in \
         time) and unsent (no client was free in time) are shares of what was planned."
    ));
    let mut goals = Goals::default();
    for &part in &matrix.parts {
        let done = match part {
            Part::Mixed => mixed(place, &mut report, &mut goals, &matrix),
            Part::Get => get(place, &mut report, &mut goals, &matrix),
            Part::Nginx => nginx(place, &mut report, &matrix, &mut notes),
            Part::Redis => redis(place, &mut report, &matrix, &mut notes),
            Part::Frozen => frozen(place, &mut report, &mut goals),
            Part::Compaction => compaction(place, &mut report, &mut goals),
            Part::Storm => {
                // The last one: from now on no process is held to a share.
                place.hold(None);
                storm::storms(place, &mut report, &mut goals, STORM_S)
            }
        };
        if let Err(sentence) = done {
            notes.push(format!("{part:?}: {sentence}"));
        }
    }
    let goals_held = goals.show(&mut report);
    for sentence in &notes {
        report.line(format_args!("* **not measured**: {sentence}"));
    }
    place.hold(None);
    report.write(place, "overload")?;
    Ok(goals_held && notes.is_empty())
}

fn seconds(place: &Place) -> f64 {
    place.options.seconds.unwrap_or(2.0).max(1.0)
}

/// Descriptors that this process and its children may have, raised as far as the system lets it.
fn raised_files() -> Result<u64, String> {
    let failed = |e| format!("the limit of descriptors: {e}");
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(failed)?;
    Ok(hard)
}

/// The bytes that docs/overload.md, "Memory", promises of a node with default options beside its
/// connections. They are memory of the engine, bytes that come and leave, a batch of each loop, and
/// a block of each worker with its stack. Pieces kept are added.
fn promised_bytes(place: &Place, memory_mib: usize) -> f64 {
    const BYTES_GATE_MIB: usize = 64;
    const KEPT_MIB: usize = 16;
    /// Four of points and four of scans.
    const WORKERS: usize = 8;
    let loops = place.cores().len().saturating_sub(1).max(1);
    (memory_mib + BYTES_GATE_MIB + KEPT_MIB + 2 * (loops + WORKERS)) as f64 * MIB
}

const MEMORY_MIB_DEFAULT: usize = 256;

fn mixed(
    place: &Place,
    report: &mut Report,
    goals: &mut Goals,
    matrix: &Matrix,
) -> Result<(), String> {
    report.line("\n## Half GET, half PUT, `--durability sync`");
    let node = Server::node(
        place,
        &place.folder.join("mixed"),
        &["--durability", "sync"],
    )?;
    load(place, &node)?;
    let subject = Subject {
        name: "half GET, half PUT",
        servers: vec![&node],
        asked: 1,
        asks: MIXED,
        promised_bytes: Some(promised_bytes(place, MEMORY_MIB_DEFAULT)),
    };
    rows(
        place,
        report,
        Some(goals),
        &subject,
        &matrix.connections,
        &matrix.timeouts_ms,
    )
}

fn get(
    place: &Place,
    report: &mut Report,
    goals: &mut Goals,
    matrix: &Matrix,
) -> Result<(), String> {
    report.line("\n## GET");
    let node = Server::node(place, &place.folder.join("get"), &[])?;
    load(place, &node)?;
    let subject = Subject {
        name: "GET",
        servers: vec![&node],
        asked: 1,
        asks: "--workload get",
        promised_bytes: Some(promised_bytes(place, MEMORY_MIB_DEFAULT)),
    };
    rows(
        place,
        report,
        Some(goals),
        &subject,
        &matrix.connections,
        &matrix.timeouts_ms,
    )
}

/// Writes the records that are asked for.
fn load(place: &Place, store: &dyn Store) -> Result<(), String> {
    let records = format!("--workload put --keys {KEYS}");
    place.unheld(|| store.load(place, &records)).map(drop)
}

fn nginx(
    place: &Place,
    report: &mut Report,
    matrix: &Matrix,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    let Some(program) = find("nginx", &[]) else {
        notes.push("nginx is not installed: `make yardsticks-setup`".to_owned());
        return Ok(());
    };
    report.line(format_args!(
        "\n## For comparison: {}, 100 static bytes, one worker, backlog 4,096",
        version(&program, "-v")
    ));
    let answer = format!("return 200 \"{}\";", "v".repeat(100));
    let server = others::nginx(place, "nginx", &answer)?;
    let subject = Subject {
        name: "nginx",
        servers: vec![&server],
        asked: 1,
        asks: "--workload get --url-template /{key}",
        promised_bytes: None,
    };
    rows(
        place,
        report,
        None,
        &subject,
        &matrix.connections,
        &[TIMEOUT_MS_OF_ONE],
    )
}

fn redis(
    place: &Place,
    report: &mut Report,
    matrix: &Matrix,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    if find("redis-server", &[]).is_none() || find("webdis", &[]).is_none() {
        notes.push("redis behind webdis is not installed: `make yardsticks-setup`".to_owned());
        return Ok(());
    }
    report.line(
        "\n## For comparison: redis behind webdis\n\nPUT with `appendfsync always`; both processes have the share together.",
    );
    let store = others::Webdis::start(place)?;
    let subject = Subject {
        name: "redis behind webdis",
        servers: vec![&store.door, &store.redis],
        asked: 1,
        asks: "--workload put --method PUT --url-template /SET/{key} --body-template {value}",
        promised_bytes: None,
    };
    rows(
        place,
        report,
        None,
        &subject,
        &matrix.connections,
        &[TIMEOUT_MS_OF_ONE],
    )
}

/// One of three members is stopped before the knee is looked for: the cluster without it counts.
fn frozen(place: &Place, report: &mut Report, goals: &mut Goals) -> Result<(), String> {
    report.line(
        "\n## One of three members stopped\n\nHalf GET, half PUT, three copies, `--durability sync`; the members have the share together, the two that work are asked. The third one is \
         stopped (SIGSTOP), and the others have worked without it for a while before the knee is looked for.",
    );
    let options = ["--durability", "sync"];
    let members = Members::start(place, "frozen", &[1, 1, 1], 3, &options)?;
    let members = place.unheld(|| members.joined(3))?;
    load(place, &members)?;
    members.nodes[2].freeze()?;
    let subject = Subject {
        name: "one of three members stopped",
        servers: members.nodes[..2].iter().collect(),
        asked: 2,
        asks: MIXED,
        promised_bytes: Some(2.0 * promised_bytes(place, MEMORY_MIB_DEFAULT)),
    };
    // A member that does not answer is lost after three seconds.
    let worked = bench(place, &subject, 64).with("--closed --warmup 0s --duration 5s");
    worked.attempts(1).run()?;
    rows(
        place,
        report,
        Some(goals),
        &subject,
        &[CLIENTS_OF_ONE],
        &[TIMEOUT_MS_OF_ONE],
    )
}

/// A node that holds a GiB: its knee at rest, and then its rate while that GiB is written again and
/// compacted.
fn compaction(place: &Place, report: &mut Report, goals: &mut Goals) -> Result<(), String> {
    report.line(
        "\n## While 1 GiB is compacted\n\nHalf GET, half PUT, `--durability sync`, of 10,000 records of 100 bytes beside 65,536 of 16 KiB. The knee is that of the full node, at rest, \
         when its compactions are done. Then all values of 16 KiB are written again without a limit to its processor, faster than compactions follow, and the rows begin at once: \
         what is behind is compacted meanwhile, within the share.",
    );
    let node = Server::node(place, &place.folder.join("full"), &["--durability", "sync"])?;
    let records = format!("--workload put {FILL}");
    let fill = || node.load(place, &records).map(drop);
    place.unheld(fill)?;
    load(place, &node)?;
    place.unheld(|| {
        std::thread::sleep(COMPACTS_AFTER);
        let rested = node.rest(RESTS_WITHIN);
        let still_works = || format!("it still works after {} s", RESTS_WITHIN.as_secs());
        rested.map(drop).ok_or_else(still_works)
    })?;
    let subject = Subject {
        name: "while 1 GiB is compacted",
        servers: vec![&node],
        asked: 1,
        asks: MIXED,
        promised_bytes: Some(promised_bytes(place, MEMORY_MIB_DEFAULT)),
    };
    let known = knees(place, report, &subject, &[CLIENTS_OF_ONE])?;
    place.unheld(fill)?;
    let before = compacted(&node)?;
    table(
        place,
        report,
        Some(goals),
        &subject,
        &known,
        &[TIMEOUT_MS_OF_ONE],
    )?;
    let mib = (compacted(&node)? - before) / MIB;
    report.line(format_args!("\nCompactions read {mib:.0} MiB meanwhile."));
    if mib > 0.0 {
        Ok(())
    } else {
        Err("no compaction ran during the rows: they say nothing".to_owned())
    }
}

/// Bytes that compactions of a node have read.
fn compacted(node: &Server) -> Result<f64, String> {
    metric(&node.admin, "dendra_engine_compaction_read_bytes_total")
}

/// Finds the knee of each number of clients, and goes beyond it with each patience.
fn rows(
    place: &Place,
    report: &mut Report,
    goals: Option<&mut Goals>,
    subject: &Subject<'_>,
    connections: &[u32],
    timeouts_ms: &[u32],
) -> Result<(), String> {
    let known = knees(place, report, subject, connections)?;
    table(place, report, goals, subject, &known, timeouts_ms)
}

/// Clients and the rate that they may ask for together.
type Known = (u32, f64);

fn knees(
    place: &Place,
    report: &mut Report,
    subject: &Subject<'_>,
    connections: &[u32],
) -> Result<Vec<Known>, String> {
    let mut known = Vec::new();
    for &clients in connections {
        let knee = match knee(place, subject, clients) {
            Ok(knee) => knee,
            Err(sentence) => {
                report.line(format_args!("* {clients} clients: **no knee**: {sentence}"));
                continue;
            }
        };
        report.line(format_args!("* {clients} clients: {}", knee.words));
        if let Some(rate) = knee.rate {
            known.push((clients, rate));
        }
    }
    if known.is_empty() {
        Err("no knee was found".to_owned())
    } else {
        Ok(known)
    }
}

fn table(
    place: &Place,
    report: &mut Report,
    mut goals: Option<&mut Goals>,
    subject: &Subject<'_>,
    known: &[Known],
    timeouts_ms: &[u32],
) -> Result<(), String> {
    let rounds = place.options.count("--rounds", 1, 1..=99)?;
    let of_clients = |&(clients, knee)| {
        timeouts_ms
            .iter()
            .map(move |&ms| Row::new(clients, ms, knee))
    };
    let mut rows: Vec<Row> = known.iter().flat_map(of_clients).collect();
    // Round by round, so that a slow minute of the machine does not meet one row alone.
    for _ in 0..rounds {
        for row in &mut rows {
            row.measure(place, subject)?;
        }
    }
    let mut reasons = Vec::new();
    report.table(&HEADS);
    for row in rows {
        let at = format!("{}, {}", row.clients, patience(row.timeout_ms));
        reasons.extend(
            row.reasons
                .iter()
                .map(|reason| format!("{at} is invalid: {reason}")),
        );
        for step in Step::medians(&row.steps, row.knee) {
            step.show(
                report,
                row.clients,
                row.timeout_ms,
                &row.memory,
                goals.is_some(),
            );
            if let Some(goals) = goals.as_deref_mut() {
                goals.add(
                    subject.name,
                    row.clients,
                    row.timeout_ms,
                    &step,
                    &row.memory,
                );
            }
        }
        for sentence in row.broken {
            let mut cells = vec![String::new(); HEADS.len()];
            cells[0].clone_from(&at);
            cells[1] = format!("**no figure**: {sentence}");
            report.row(&cells);
            if let Some(goals) = goals.as_deref_mut() {
                goals.broken += 1;
            }
        }
    }
    if !reasons.is_empty() {
        report.line("");
    }
    for reason in reasons {
        report.line(format_args!("* {reason}"));
    }
    Ok(())
}

/// One number of clients with one patience, and all that its rounds gave.
struct Row {
    clients: u32,
    timeout_ms: u32,
    knee: f64,
    /// Steps of each round, one for each factor.
    steps: Vec<Vec<Step>>,
    /// The largest of all rounds.
    memory: Memory,
    reasons: Vec<String>,
    broken: Vec<String>,
}

impl Row {
    fn new(clients: u32, timeout_ms: u32, knee: f64) -> Row {
        Row {
            clients,
            timeout_ms,
            knee,
            steps: Vec::new(),
            memory: Memory::default(),
            reasons: Vec::new(),
            broken: Vec::new(),
        }
    }

    fn measure(&mut self, place: &Place, subject: &Subject<'_>) -> Result<(), String> {
        for server in &subject.servers {
            server.forget_peak()?;
        }
        match beyond(place, subject, self.clients, self.timeout_ms, self.knee) {
            Ok(run) => {
                self.memory = memory(subject, self.clients)?.or_more(&self.memory);
                self.reasons
                    .extend(run["verdict"]["reason"].as_str().map(str::to_owned));
                self.steps.push(Step::all(&run, self.knee));
            }
            Err(sentence) => self.broken.push(sentence),
        }
        Ok(())
    }
}

struct Knee {
    rate: Option<f64>,
    words: String,
}

fn bench<'a>(place: &'a Place, subject: &'a Subject<'_>, clients: u32) -> Bench<'a> {
    let (first, others) = subject.servers[..subject.asked]
        .split_first()
        .expect("a subject is asked somewhere");
    let mut bench = Bench::new(place, &first.url, &folder(place));
    for server in others {
        bench = bench.word(&server.url);
    }
    let asks = subject.asks;
    bench
        .with(&format!("--keys {KEYS} --connections {clients} {asks}"))
        .behind(move || settle(subject, clients))
}

/// So many connections take a held server seconds to close: it does so before others come.
const CLIENTS_TO_CLOSE: u32 = 4_096;

/// And as long as this at most.
const CLOSED_AFTER: Duration = Duration::from_secs(10);

/// Lets the servers close the connections of the run before.
fn settle(subject: &Subject<'_>, clients: u32) {
    if clients >= CLIENTS_TO_CLOSE {
        for server in &subject.servers {
            // One that does not rest is measured as it is.
            let _rested = server.rest(CLOSED_AFTER);
        }
    }
}

fn folder(place: &Place) -> PathBuf {
    place.folder.join("run")
}

fn knee(place: &Place, subject: &Subject<'_>, clients: u32) -> Result<Knee, String> {
    // Below the rate of so many clients that send one request after the other, and above half of
    // it: a short way.
    let closed = bench(place, subject, clients).with("--closed --warmup 200ms --duration 1s");
    let closed = closed.attempts(1).run()?;
    let start = (closed.goodput * 0.7).max(1.0);
    let figures = bench(place, subject, clients)
        .with(&format!(
            "--rate {start:.0} --duration 1s --warmup 200ms --timeout {SEARCH_TIMEOUT} --find-max --slo {OBJECTIVE}"
        ))
        .attempts(1)
        .run()?;
    Ok(Knee {
        rate: figures.knee.filter(|rate| *rate > 0.0),
        words: format!("{}{}", figures.knee_words, figures.mark()),
    })
}

/// One run beyond the knee; its record.
fn beyond(
    place: &Place,
    subject: &Subject<'_>,
    clients: u32,
    timeout_ms: u32,
    knee: f64,
) -> Result<Value, String> {
    let length_s = seconds(place);
    bench(place, subject, clients)
        .with(&format!(
            "--rate {knee:.0} --duration {length_s}s --warmup 500ms --timeout {timeout_ms}ms --overload {FACTORS}"
        ))
        .attempts(2)
        .run()?;
    record(&folder(place))
}

fn memory(subject: &Subject<'_>, clients: u32) -> Result<Memory, String> {
    let mut peak = 0.0;
    for server in &subject.servers {
        peak += server.resident()?.peak as f64;
    }
    // An idle connection is about a kilobyte.
    let of_connections = f64::from(clients) * 1024.0;
    Ok(Memory {
        peak,
        promised: subject.promised_bytes.map(|bytes| bytes + of_connections),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_read_and_nothing_is_guessed() {
        let none = Matrix::parse(|_| None).expect("the defaults make sense");
        assert_eq!(none.share, Some(0.25));
        assert_eq!(none.connections, [64, 1024, 10_000]);
        assert_eq!(none.timeouts_ms, [100, 1000, 5000]);
        assert_eq!(none.parts.len(), Part::ALL.len());
        let with = |word: &'static str, value: &'static str| {
            Matrix::parse(move |asked| (asked == word).then_some(value))
        };
        assert_eq!(with("--share", "off").map(|m| m.share), Ok(None));
        assert_eq!(
            with("--parts", "get,nginx").map(|m| m.parts),
            Ok(vec![Part::Get, Part::Nginx])
        );
        for (word, value) in [
            ("--share", "0.01"),
            ("--share", "2"),
            ("--connections", "0"),
            ("--connections", "64,"),
            ("--timeouts", "100"),
            ("--timeouts", "61s"),
            ("--parts", "everything"),
        ] {
            assert!(with(word, value).is_err(), "{word} {value}");
        }
    }
}
