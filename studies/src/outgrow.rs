//! `make study-outgrow`: YCSB A to F against three members, three servers of etcd, three of
//! Cassandra.
//!
//! ```text
//! dendra bench ─► three members
//!              ─► a front door ─► etcd, three servers         each store by itself, one after the other
//!              ─► a front door ─► Cassandra, three servers    the default level, and ack=1
//! ```
//!
//! Invariants
//! 1. The main figure is CPU for a request: the time of all threads of all processes of a store,
//!    divided by the answers. Others on the machine change it little.
//! 2. Every store gets the same requests, from the same generator, with as many connections.
//!
//! Not here: whether the answers are right (tests of the binary).
//! See: docs/stores.md.

#[path = "../../crates/dendra/tests/support/cassandra.rs"]
#[allow(dead_code, reason = "tests kill servers, too")]
mod cassandra;
#[path = "../../crates/dendra/tests/support/etcd.rs"]
#[allow(dead_code, reason = "tests kill servers, too")]
mod etcd;

use super::cluster::{Members, wait_for_answers};
use super::node::Server;
use super::place::{Held, Place, Side};
use super::proc::{self, Clock};
use super::report::{Report, percent, time};
use super::run::{Bench, Figures};
use cassandra::Cassandra;
use etcd::Etcd;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The options that this task has beside those of all.
pub(super) const OPTIONS: [&str; 5] = [
    "--keys",
    "--connections",
    "--stores",
    "--workloads",
    "--paxos",
];

/// The order that YCSB recommends: those that insert come last.
const WORKLOADS: [&str; 6] = ["a", "b", "c", "f", "d", "e"];
/// The third number of Cassandra's addresses: tests use others.
const BLOCK: u8 = 91;
/// A small heap, and the compilers and collectors that Java chooses.
const JAVA: [&str; 2] = ["-Xmx512m", "-Xms512m"];
const REST: Duration = Duration::from_secs(5);

/// Processes of one part of a store, by its name.
type Parts = Vec<(&'static str, Vec<u32>)>;

/// A store that runs.
struct Subject {
    name: &'static str,
    urls: Vec<String>,
    parts: Parts,
}

/// CPU for a request by store and workload, for the table at the end.
type Costs = BTreeMap<(String, &'static str), f64>;

/// Measures all stores.
pub(super) fn run(place: &Place) -> Held {
    let keys = place.options.count("--keys", 5_000, 100..=10_000_000)?;
    let connections = place.options.count("--connections", 16, 1..=1_024)?;
    let own = |word: &str| place.options.own.get(word).map(String::as_str);
    let paxos = own("--paxos").unwrap_or("v2");
    if !["v1", "v2"].contains(&paxos) {
        return Err(format!("--paxos {paxos}: v1 or v2 is meant"));
    }
    let facts = [
        (
            "data",
            format!("{keys} records of 1,000 bytes, three copies, in memory"),
        ),
        (
            "load",
            format!("closed loop, {connections} connections, each workload with a warm-up"),
        ),
        (
            "stores",
            format!(
                "three members, `--durability sync`; etcd 3.4, three servers; Cassandra 5.0, three servers with {}, `commitlog_sync: batch` and `paxos_variant: {paxos}`; one front door for each engine",
                JAVA.join(" ")
            ),
        ),
    ];
    let question =
        "What does a request cost in each store, and where is each of them the better one?";
    let title = "YCSB A to F: three members, etcd, Cassandra";
    let mut report = Report::new(place, title, question, &facts)?;
    report.line(format_args!(
        "\nCPU for a request is the time of all processes of the store, front door included, divided by\n\
         the answers. p50 and p99 are those of the slowest operation of the workload, of clients that\n\
         never rest: they say how the stores differ, not what a client at rest would see."
    ));
    let study = Study {
        place,
        keys,
        connections,
        workloads: own("--workloads"),
    };
    let mut costs = Costs::new();
    let stores = own("--stores");
    let wants = |store: &str| stores.is_none_or(|all| all.split(',').any(|one| one == store));
    if wants("members") {
        let members = Members::start(place, &place.binary, "member", &[1; 3], 3, &[])?;
        for node in &members.nodes {
            wait_for_answers(&node.url, "3/3")?;
        }
        let subject = Subject {
            name: "three members",
            urls: members.nodes.iter().map(|node| node.url.clone()).collect(),
            parts: vec![("members", members.nodes.iter().map(Server::id).collect())],
        };
        study.measure(&subject, &mut report, &mut costs)?;
    }
    if wants("etcd") {
        let Some(etcd) = place.on(Side::Server, || Etcd::start(3))? else {
            return Err("there is no etcd: make outgrow-setup".to_owned());
        };
        let front = study.front("etcd", &etcd.store("ycsb"))?;
        let subject = Subject {
            name: "etcd",
            urls: vec![front.url.clone()],
            parts: vec![("front door", vec![front.id()]), ("etcd", etcd.pids())],
        };
        study.measure(&subject, &mut report, &mut costs)?;
    }
    if wants("cassandra") {
        let more = format!("paxos_variant: {paxos}\n");
        let start = || Cassandra::start_with(BLOCK, 3, &JAVA, &more);
        let Some(cassandra) = place.on(Side::Server, start)? else {
            return Err("there is no Cassandra: make outgrow-setup".to_owned());
        };
        let front = study.front("cassandra", &cassandra.store("ycsb", 3))?;
        let subject = Subject {
            name: "Cassandra",
            urls: vec![front.url.clone()],
            parts: vec![
                ("front door", vec![front.id()]),
                ("Cassandra", cassandra.pids()),
            ],
        };
        study.measure(&subject, &mut report, &mut costs)?;
    }
    side_by_side(&mut report, &costs);
    report.write(place, "outgrow-ycsb")?;
    Ok(true)
}

/// The parts that all stores have in common.
struct Study<'a> {
    place: &'a Place,
    keys: u32,
    connections: u32,
    /// With commas; all without.
    workloads: Option<&'a str>,
}

impl Study<'_> {
    fn front(&self, name: &str, store: &str) -> Result<Server, String> {
        let data = self.place.folder.join(format!("front-{name}"));
        Server::node(self.place, &data, &["--store", store])
    }

    fn seconds(&self) -> f64 {
        self.place.options.seconds.unwrap_or(8.0)
    }

    fn bench(&self, subject: &Subject, flags: &str) -> Result<Figures, String> {
        let folder = self.place.folder.join("run");
        let mut bench = Bench::new(self.place, &subject.urls[0], &folder);
        for url in &subject.urls[1..] {
            bench = bench.word(url);
        }
        let all = format!(
            "{flags} --warmup 0s --timeout 30s --keys {} --connections {}",
            self.keys, self.connections
        );
        bench.with(&all).attempts(1).run()
    }

    fn measure(
        &self,
        subject: &Subject,
        report: &mut Report,
        costs: &mut Costs,
    ) -> Result<(), String> {
        report.line(format_args!("\n## {}", subject.name));
        let (clocks, begun) = (subject.clocks(), Instant::now());
        let load = "--workload ycsb-c --preload --closed --duration 0.5s";
        self.bench(subject, load)?;
        let load_s = subject.spent(&clocks).iter().sum::<f64>();
        report.line(format_args!(
            "\n{} records were written in {:.1} s, with {} of CPU each.",
            self.keys,
            begun.elapsed().as_secs_f64(),
            time(load_s * 1e6 / f64::from(self.keys))
        ));
        let levels: &[(&str, &str)] = &[("default", ""), ("ack=1", "--query ack=1&from=1")];
        for (level, query) in levels {
            report.line(format_args!("\n### Level: {level}"));
            let mut heads = vec!["workload", "requests/s", "p50", "p99", "CPU for a request"];
            if subject.parts.len() > 1 {
                heads.extend(subject.parts.iter().map(|(part, _)| *part));
            }
            heads.push("refused or lost");
            report.table(&heads);
            let wants = |workload: &&str| {
                let mut wanted = self.workloads.iter().flat_map(|wanted| wanted.split(','));
                self.workloads.is_none() || wanted.any(|wanted| wanted == *workload)
            };
            for workload in WORKLOADS.into_iter().filter(wants) {
                let flags = |seconds: f64| {
                    format!("--workload ycsb-{workload} --closed --duration {seconds:.1}s {query}")
                };
                self.bench(subject, &flags((self.seconds() / 3.0).max(0.5)))?;
                let clocks = subject.clocks();
                let figures = self.bench(subject, &flags(self.seconds()))?;
                let spent = subject.spent(&clocks);
                let answered = figures.answered.max(1.0);
                let cost_us = |spent_s: f64| spent_s * 1e6 / answered;
                let all_us = cost_us(spent.iter().sum());
                let mut row = vec![
                    workload.to_uppercase(),
                    format!("{:.0}", figures.goodput),
                    time(figures.p50_us),
                    time(figures.p99_us),
                    time(all_us),
                ];
                if spent.len() > 1 {
                    row.extend(spent.iter().map(|spent_s| time(cost_us(*spent_s))));
                }
                row.push(percent(figures.refused + figures.lost));
                report.row(&row);
                costs.insert((format!("{}, {level}", subject.name), workload), all_us);
            }
        }
        subject.rest(report)
    }
}

impl Subject {
    fn clocks(&self) -> Vec<(u32, Clock)> {
        let pids = self.parts.iter().flat_map(|(_, pids)| pids);
        pids.map(|pid| (*pid, Clock::of(*pid))).collect()
    }

    /// Seconds of CPU of each part since then.
    fn spent(&self, since: &[(u32, Clock)]) -> Vec<f64> {
        let of = |pid: &u32| -> f64 {
            let before = since.iter().find(|(id, _)| id == pid);
            let spent = before.map(|(_, before)| Clock::of(*pid).since(before));
            spent.into_iter().flat_map(BTreeMap::into_values).sum()
        };
        let parts = self.parts.iter();
        parts.map(|(_, pids)| pids.iter().map(of).sum()).collect()
    }

    /// The resources that it takes without a client.
    fn rest(&self, report: &mut Report) -> Result<(), String> {
        let clocks = self.clocks();
        std::thread::sleep(REST);
        let spent = self.spent(&clocks);
        report.table(&["at rest", "CPU of a core", "resident"]);
        for ((part, pids), spent_s) in self.parts.iter().zip(spent) {
            let mut resident = 0;
            for pid in pids {
                resident += proc::resident(*pid)?.now;
            }
            report.row(&[
                format!("{part}, {} together", pids.len()),
                percent(spent_s / REST.as_secs_f64()),
                format!("{} MiB", resident >> 20),
            ]);
        }
        Ok(())
    }
}

fn side_by_side(report: &mut Report, costs: &Costs) {
    report.line("\n## CPU for a request, side by side");
    let mut stores: Vec<&str> = costs.keys().map(|(store, _)| store.as_str()).collect();
    stores.dedup();
    let heads: Vec<_> = std::iter::once("workload")
        .chain(stores.iter().copied())
        .collect();
    report.table(&heads);
    let mut workloads = WORKLOADS;
    workloads.sort_unstable();
    for workload in workloads {
        let mut row = vec![workload.to_uppercase()];
        for store in &stores {
            let cost = costs.get(&((*store).to_owned(), workload));
            row.push(cost.map_or("–".to_owned(), |cost| time(*cost)));
        }
        report.row(&row);
    }
}
