//! `make study-pool`: the real effect of `--workers` and `--queue` of the store pool.
//!
//! ```text
//! a GET whose block is in memory or page cache: answered on the loop, never sees the pool
//! a GET that would block:                       queue (--queue) ─► worker (--workers) ─► disk
//!
//! cold     a node whose disk takes 1 ms for a read, however many wait (example `slow_disk` of the server)
//! hop      the same node with a disk that takes no time: every read goes through the pool and waits for nothing
//! inline   the ordinary node, all tables in the page cache
//! ```
//!
//! Invariants
//! 1. All configurations read the same tables: one load, then one node after the other on its
//!    folder.
//! 2. The rates are shares of the rate of one configuration in a closed loop here and now, and are
//!    in the report.
//! 3. A sentence at the end rests on valid runs, or says that it cannot.
//!
//! Not here: the pool (`crates/server`).
//! See: docs/decisions/0004-inline-when-it-cannot-block.md.

use super::node::Server;
use super::place::{Held, Place, build_example};
use super::report::{Report, percent, time};
use super::run::{Bench, Figures};
use super::tables::read_all;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Records of 1,000 bytes: 200 MB, four times the engine's memory.
const KEYS: u32 = 200_000;

/// The engine's memory, 48 MiB: a little more than the least with values of up to 1 MiB.
const MEMORY: &str = "50331648";

/// More than the longest queue and all workers, so that the queue can be full.
const CONNECTIONS: u32 = 1536;

/// Of the closed loops: fewer than the longest queue, so that no request is refused while a rate is
/// found.
const CLOSED: u32 = 256;

/// How long a node may compact after the load.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time of a disk that is busy or behind a network.
const DISK_US: u32 = 1000;

/// The two knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pool {
    workers: u32,
    queue: u32,
}

const fn pool(workers: u32, queue: u32) -> Pool {
    Pool { workers, queue }
}

const WORKERS: [u32; 4] = [1, 4, 8, 16];
const QUEUES: [u32; 3] = [8, 64, 1024];

/// The configuration that the loads are shares of.
const DEFAULT: Pool = pool(4, 1024);

/// Loads as shares of the rate of the default in a closed loop.
const LOADS: [(&str, f64); 3] = [("low", 0.1), ("medium", 0.5), (SATURATING, 2.0)];
const SATURATING: &str = "saturating";

/// The figures of one configuration at one load.
struct Cell {
    name: String,
    pool: Pool,
    load: &'static str,
    figures: Figures,
    /// CPU of the server for a request, refused ones included.
    cpu_us: f64,
}

/// Measures all configurations; true when no run was void.
pub(super) fn run(place: &Place) -> Held {
    let slow = build_example(&place.root, "dendra-server", "slow_disk")?;
    let data = place.folder.join("data");
    let question = "Does a GET pay for the pool of threads that waits for the disk, and what do its two knobs do: throughput, refusals, tail?";
    let disk = format!(
        "a read of a table takes {DISK_US} µs, however many wait side by side (`slow_disk`, an example of `dendra-server`)"
    );
    let facts = [
        (
            "data",
            format!("{KEYS} records of 1,000 bytes, `--memory {MEMORY}`"),
        ),
        ("disk of the cold GETs", disk),
        (
            "load",
            format!(
                "{CONNECTIONS} connections, open loop, timeout 2 s; the server's CPU includes opening them"
            ),
        ),
    ];
    let mut report = Report::new(place, "Inline against the pool", question, &facts)?;
    load(place, &data)?;
    let node = slow_node(place, &slow, &data, DEFAULT, DISK_US)?;
    let base = closed(place, &node, "get")?.0.goodput.max(100.0);
    drop(node);
    report.line(format_args!(
        "\nWith {} workers and a queue of {}, a closed loop over {CLOSED} connections did {base:.0} cold GETs a second. Low, medium and saturating are a tenth, a half and \
         twice of it: {:.0}, {:.0}, {:.0} a second.",
        DEFAULT.workers,
        DEFAULT.queue,
        base * LOADS[0].1,
        base * LOADS[1].1,
        base * LOADS[2].1
    ));
    let reads = reads(place, &slow, &data, base)?;
    for (load, _) in LOADS {
        report.line(format_args!("\n## GETs, {load} load"));
        table(&mut report, reads.iter().filter(|cell| cell.load == load));
    }
    report.line(format_args!(
        "\n## PUTs\n\nA PUT never sees the pool: the log's thread writes it. The corners of the two knobs, on the ordinary disk: an open loop at a half of what the \
         first did in a closed one, and closed loops over {CLOSED} connections, which saturate it."
    ));
    let writes = writes(place)?;
    table(&mut report, writes.iter());
    report.line(
        "\n## Flame graphs\n\nWall time of all threads at the saturating load of cold GETs:\n",
    );
    for workers in [1, 16] {
        let file = flame(place, &slow, &data, workers, base)?;
        report.line(format_args!("* [{workers} workers, queue 1024]({file})"));
    }
    report.line("\n## What it says\n");
    say(&mut report, &reads, &writes);
    report.write(place, "study-pool")?;
    let mut all = reads.iter().chain(&writes);
    Ok(all.all(|cell| cell.figures.invalid.is_none()))
}

fn seconds(place: &Place) -> f64 {
    place.options.seconds.unwrap_or(3.0)
}

/// Writes the records, and waits until no compaction is left to do.
fn load(place: &Place, data: &Path) -> Result<(), String> {
    let node = Server::node(place, data, &["--memory", MEMORY])?;
    bench(place, &node, "put")
        .with("--preload --rate 1000 --duration 0.2s --warmup 0s --connections 256")
        .attempts(1)
        .run()?;
    let rested = node.rest(PATIENCE);
    rested
        .map(drop)
        .ok_or_else(|| "the node did not come to rest after the load".to_owned())
}

impl Pool {
    fn flags(self) -> [String; 4] {
        [
            "--workers".to_owned(),
            self.workers.to_string(),
            "--queue".to_owned(),
            self.queue.to_string(),
        ]
    }
}

fn slow_node(
    place: &Place,
    binary: &Path,
    data: &Path,
    pool: Pool,
    disk_us: u32,
) -> Result<Server, String> {
    let mut command = Command::new(binary);
    command.arg(data).args(pool.flags());
    command.args(["--memory", MEMORY, "--disk-us", &disk_us.to_string()]);
    Server::telling(place, &mut command, data)
}

fn node(place: &Place, data: &Path, pool: Pool) -> Result<Server, String> {
    let flags = pool.flags();
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    flags.extend(["--memory", MEMORY]);
    Server::node(place, data, &flags)
}

fn bench<'a>(place: &'a Place, node: &Server, operation: &str) -> Bench<'a> {
    let flags = format!("--workload {operation} --keys {KEYS} --value-bytes 1000 --timeout 2s");
    Bench::new(place, &node.url, &place.folder.join("run")).with(&flags)
}

/// Figures, and the server's CPU for a request.
fn measured(bench: Bench, node: &Server) -> Result<(Figures, f64), String> {
    let (figures, clock) = bench.while_running(|| Ok(node.clock()))?;
    let cpu_us = node.cpu_s(&clock) * 1e6 / figures.answered.max(1.0);
    Ok((figures, cpu_us))
}

fn closed(place: &Place, node: &Server, operation: &str) -> Result<(Figures, f64), String> {
    let flags = format!(
        "--closed --duration {}s --warmup 0s --connections {CLOSED}",
        seconds(place)
    );
    measured(bench(place, node, operation).with(&flags), node)
}

fn open(
    place: &Place,
    node: &Server,
    operation: &str,
    rate: f64,
) -> Result<(Figures, f64), String> {
    let flags = format!(
        "--rate {rate:.0} --duration {}s --warmup 0s --connections {CONNECTIONS}",
        seconds(place)
    );
    measured(bench(place, node, operation).with(&flags), node)
}

/// Every configuration at every load.
fn reads(place: &Place, slow: &Path, data: &Path, base: f64) -> Result<Vec<Cell>, String> {
    let mut cells = Vec::new();
    let mut all_loads = |name: String, pool: Pool, node: &Server| -> Result<(), String> {
        for (load, share) in LOADS {
            let (figures, cpu_us) = open(place, node, "get", base * share)?;
            cells.push(Cell {
                name: name.clone(),
                pool,
                load,
                figures,
                cpu_us,
            });
        }
        Ok(())
    };
    for workers in WORKERS {
        for queue in QUEUES {
            let pool = pool(workers, queue);
            let name = format!("cold, {workers} workers, queue {queue}");
            all_loads(name, pool, &slow_node(place, slow, data, pool, DISK_US)?)?;
        }
    }
    read_all(data)?;
    let hop = slow_node(place, slow, data, DEFAULT, 0)?;
    all_loads(HOP.to_owned(), DEFAULT, &hop)?;
    drop(hop);
    all_loads(INLINE.to_owned(), DEFAULT, &node(place, data, DEFAULT)?)?;
    Ok(cells)
}

const HOP: &str = "in page cache, yet through the pool";
const INLINE: &str = "in page cache, inline";

/// The corners of the two knobs.
fn writes(place: &Place) -> Result<Vec<Cell>, String> {
    let (mut base, mut cells) = (None, Vec::new());
    for pool in [pool(1, 8), pool(1, 1024), pool(16, 8), pool(16, 1024)] {
        let Pool { workers, queue } = pool;
        let data = place.folder.join(format!("put-{workers}-{queue}"));
        let node = node(place, &data, pool)?;
        let closed = closed(place, &node, "put")?;
        let base = *base.get_or_insert(closed.0.goodput.max(100.0));
        let medium = open(place, &node, "put", base * 0.5)?;
        for (load, (figures, cpu_us)) in [("medium", medium), (SATURATING, closed)] {
            cells.push(Cell {
                name: format!("{load}, {workers} workers, queue {queue}"),
                pool,
                load,
                figures,
                cpu_us,
            });
        }
        drop(node);
        fs::remove_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?;
    }
    Ok(cells)
}

/// A flame graph beside the report; its name.
fn flame(
    place: &Place,
    slow: &Path,
    data: &Path,
    workers: u32,
    base: f64,
) -> Result<String, String> {
    let folder = super::report::folder(place);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let name = format!(
        "{}-study-pool-{workers}-workers.svg",
        super::report::date(place)
    );
    let node = slow_node(place, slow, data, pool(workers, 1024), DISK_US)?;
    let flags = format!(
        "--rate {:.0} --duration {}s --warmup 0s --connections {CONNECTIONS}",
        base * 2.0,
        seconds(place).max(3.0)
    );
    bench(place, &node, "get")
        .with(&flags)
        .while_running(|| profile(place, &node, &folder.join(&name)))?;
    Ok(name)
}

fn profile(place: &Place, node: &Server, file: &Path) -> Result<(), String> {
    let status = Command::new(&place.binary)
        .args(["profile", &node.admin, "--wall", "--seconds", "2"])
        .args(["--quiet", "-o"])
        .arg(file)
        .stdin(Stdio::null())
        .status()
        .map_err(|e| format!("dendra profile does not start ({e})"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("dendra profile ended with {status}"))
    }
}

fn table<'a>(report: &mut Report, cells: impl Iterator<Item = &'a Cell>) {
    report.table(&[
        "",
        "done/s",
        "refused",
        "lost",
        "p50",
        "p99",
        "p99.9",
        "refusal p99",
        "CPU µs a request",
    ]);
    for cell in cells {
        let figures = &cell.figures;
        report.row(&[
            format!("{}{}", cell.name, figures.mark()),
            format!("{:.0}", figures.goodput),
            percent(figures.refused),
            percent(figures.lost),
            time(figures.p50_us),
            time(figures.p99_us),
            time(figures.p999_us),
            time(figures.refused_p99_us),
            format!("{:.1}", cell.cpu_us),
        ]);
    }
}

/// The meaning of the tables, in sentences whose numbers come from them.
fn say(report: &mut Report, reads: &[Cell], writes: &[Cell]) {
    let cold = |pool: Pool, load: &str| {
        let is_it = |cell: &&Cell| cell.pool == pool && cell.load == load;
        reads.iter().find(is_it)
    };
    let named = |name: &str| {
        let is_it = |cell: &&Cell| cell.name == name && cell.load == "medium";
        reads.iter().find(is_it)
    };
    let sentences = [
        (
            "Workers",
            workers(WORKERS.map(|n| cold(pool(n, 1024), SATURATING))),
        ),
        (
            "The queue",
            queue(QUEUES.map(|n| cold(pool(4, n), SATURATING))),
        ),
        ("Inline", inline(named(HOP), named(INLINE))),
        ("Neither", neither(writes)),
    ];
    for (subject, words) in sentences {
        let words = words.unwrap_or_else(|| {
            "cannot be judged here: a run that this rests on was void, on a machine that was not quiet.".to_owned()
        });
        report.line(format_args!("* **{subject}** {words}"));
    }
}

/// The cells, when all of them were measured and are valid.
fn valid<const N: usize>(cells: [Option<&Cell>; N]) -> Option<[&Figures; N]> {
    let is_valid = |cell: &Option<&Cell>| cell.is_some_and(|c| c.figures.invalid.is_none());
    cells
        .iter()
        .all(is_valid)
        .then(|| cells.map(|cell| &cell.expect("it was looked at").figures))
}

fn workers(cells: [Option<&Cell>; 4]) -> Option<String> {
    let found = valid(cells)?;
    Some(format!(
        "decide how many reads that wait for the disk are done: {} a second with {} of them (queue 1024) where {:.0} are asked for, each waiting {DISK_US} µs; p99 of what is done is {}.",
        list(found.map(|f| format!("{:.0}", f.goodput))),
        list(WORKERS),
        found[0].planned_rate,
        list(found.map(|f| time(f.p99_us)))
    ))
}

fn queue(cells: [Option<&Cell>; 3]) -> Option<String> {
    let found = valid(cells)?;
    Some(format!(
        "decides what becomes of those that are too many: with {} places and 4 workers, {} of the requests are refused, p99 of what is done is {}, and {} a second are done; a refusal takes {} (p99). \
         Whoever is done has waited for those in front: {} places are {} ms of work for 4 workers on this disk.",
        list(QUEUES),
        list(found.map(|f| percent(f.refused))),
        list(found.map(|f| time(f.p99_us))),
        list(found.map(|f| format!("{:.0}", f.goodput))),
        list(found.map(|f| time(f.refused_p99_us))),
        list(QUEUES),
        list(QUEUES.map(|places| places * DISK_US / 4_000))
    ))
}

fn inline(hop: Option<&Cell>, inline: Option<&Cell>) -> Option<String> {
    let [through, beside] = valid([hop, inline])?;
    let (hop, inline) = (hop?, inline?);
    Some(format!(
        "reads, whose block is in memory or page cache, pay for neither: {:.1} µs of CPU and a p50 of {} on the loop, {:.1} µs and {} when the same reads are sent through the pool, at the medium load.",
        inline.cpu_us,
        time(beside.p50_us),
        hop.cpu_us,
        time(through.p50_us)
    ))
}

fn neither(writes: &[Cell]) -> Option<String> {
    let closed: Vec<&Cell> = writes.iter().filter(|c| c.load == SATURATING).collect();
    if closed.is_empty() || closed.iter().any(|cell| cell.figures.invalid.is_some()) {
        return None;
    }
    let rates = || closed.iter().map(|cell| cell.figures.goodput);
    let most = rates().fold(0.0, f64::max);
    let least = rates().fold(f64::INFINITY, f64::min);
    Some(format!(
        "knob stands in the way of a write: among the four corners the most writes a second are {:.2} times the least.",
        most / least.max(1e-9)
    ))
}

/// "1, 4 and 16".
fn list<const N: usize>(words: [impl ToString; N]) -> String {
    let words = words.map(|word| word.to_string());
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(name: &str, goodput: f64, invalid: Option<&str>) -> Cell {
        Cell {
            name: name.to_owned(),
            pool: DEFAULT,
            load: SATURATING,
            figures: Figures {
                goodput,
                invalid: invalid.map(str::to_owned),
                ..Figures::default()
            },
            cpu_us: 1.0,
        }
    }

    #[test]
    fn a_sentence_needs_every_run_it_rests_on() {
        let (good, void) = (cell("a", 10.0, None), cell("b", 20.0, Some("late")));
        assert!(inline(Some(&good), Some(&good)).is_some());
        assert!(inline(Some(&good), Some(&void)).is_none());
        assert!(inline(Some(&good), None).is_none());
        let words = neither(&[cell("a", 10.0, None), cell("b", 25.0, None)]);
        assert!(words.is_some_and(|words| words.contains("2.50 times")));
        assert_eq!(neither(&[good, void]), None);
        assert_eq!(neither(&[]), None);
    }

    #[test]
    fn a_list_reads_like_a_sentence() {
        assert_eq!(list([1]), "1");
        assert_eq!(list([1, 4]), "1 and 4");
        assert_eq!(list(["a", "b", "c"]), "a, b and c");
    }
}
