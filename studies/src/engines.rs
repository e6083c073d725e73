//! `make study-engines`: YCSB A to F against three members, and against each engine behind a front
//! door.
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
//! Not here: how they are started (`store/`; another engine is another row of `STORES`), whether
//! the answers are right (tests of the binary).
//! See: docs/stores.md.

use super::place::{Held, Place};
use super::report::{Report, percent, time};
use super::run::Figures;
use super::store::{Members, Store, fronts};
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
const REST: Duration = Duration::from_secs(5);

/// How a store is started; `--paxos` is for Cassandra alone.
type Start = fn(&Place, paxos: &str) -> Result<Box<dyn Store>, String>;

/// Every store, by its word for `--stores` and its name in the report.
const STORES: [(&str, &str, Start); 3] = [
    ("members", "three members", |place, _| {
        let members = Members::start(place, "member", &[1; 3], 3, &[])?;
        Ok(Box::new(members.joined(3)?))
    }),
    ("etcd", "etcd", |place, _| fronts::etcd(place)),
    ("cassandra", "Cassandra", |place, paxos| {
        fronts::cassandra(place, &format!("paxos_variant: {paxos}\n"))
    }),
];

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
                fronts::JAVA.join(" ")
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
    for (_, name, start) in STORES.iter().filter(|(word, ..)| wants(word)) {
        let store = start(place, paxos)?;
        study.measure(name, &*store, &mut report, &mut costs)?;
        store.stop()?;
    }
    side_by_side(&mut report, &costs);
    report.write(place, "engines")?;
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
    fn seconds(&self) -> f64 {
        self.place.options.seconds.unwrap_or(8.0)
    }

    fn records(&self) -> String {
        format!(
            "--timeout 30s --keys {} --connections {}",
            self.keys, self.connections
        )
    }

    fn bench(&self, store: &dyn Store, flags: &str) -> Result<Figures, String> {
        store
            .bench(self.place, &self.place.folder.join("run"))
            .with(&format!("{flags} --warmup 0s {}", self.records()))
            .attempts(1)
            .run()
    }

    fn measure(
        &self,
        name: &str,
        store: &dyn Store,
        report: &mut Report,
        costs: &mut Costs,
    ) -> Result<(), String> {
        report.line(format_args!("\n## {name}"));
        let parts = store.parts();
        let (clocks, begun) = (store.clocks(), Instant::now());
        let records = format!("--workload ycsb-c {}", self.records());
        store.load(self.place, &records)?;
        let load_s = clocks.spent().iter().sum::<f64>();
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
            if parts.len() > 1 {
                heads.extend(parts.iter().map(|(part, _)| *part));
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
                self.bench(store, &flags((self.seconds() / 3.0).max(0.5)))?;
                let since = store.clocks();
                let figures = self.bench(store, &flags(self.seconds()))?;
                let spent = since.spent();
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
                costs.insert((format!("{name}, {level}"), workload), all_us);
            }
        }
        rest(store, report)
    }
}

/// The resources that a store takes without a client.
fn rest(store: &dyn Store, report: &mut Report) -> Result<(), String> {
    let clocks = store.clocks();
    std::thread::sleep(REST);
    let (spent, resident) = (clocks.spent(), store.resident()?);
    report.table(&["at rest", "CPU of a core", "resident"]);
    for (((part, pids), spent_s), bytes) in store.parts().iter().zip(spent).zip(resident) {
        report.row(&[
            format!("{part}, {} together", pids.len()),
            percent(spent_s / REST.as_secs_f64()),
            format!("{} MiB", bytes >> 20),
        ]);
    }
    Ok(())
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
