//! `make study-pool`: what `--workers` and `--queue` of the store pool really do.
//!
//! ```text
//! a GET whose block is in memory or page cache: answered on the loop, never sees the pool
//! a GET that would block:                       queue (--queue) ─► worker (--workers) ─► disk
//!
//! to make reads block, the driver asks the kernel every 250 ms to forget the pages of the tables
//! (posix_fadvise DONTNEED); the data are many times the engine's memory
//! ```
//!
//! Invariants
//! 1. All configurations read the same tables: one load, then one node after the other on its folder.
//! 2. The rates are shares of what one configuration did in a closed loop here and now, and are in the report.
//!
//! Not here: the pool (`crates/server`).
//! See: docs/decisions/0004-inline-when-it-cannot-block.md.

use super::Held;
use super::node::Server;
use super::place::Place;
use super::report::{Report, percent, time};
use super::run::{Bench, Figures};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Records of 1,000 bytes: 200 MB, four times the engine's memory.
const KEYS: u32 = 200_000;

/// The engine's memory: a little more than the least with values of up to 1 MiB.
const MEMORY: &str = "48MiB";

/// More than the longest queue and all workers, so that the queue can be full.
const CONNECTIONS: u32 = 2048;

/// Of the closed loop: fewer than the queue, so that nothing is refused while the rate is found.
const CLOSED: u32 = 512;

const WORKERS: [u32; 3] = [1, 4, 16];
const QUEUES: [u32; 3] = [8, 64, 1024];

/// Loads as shares of what 4 workers did in a closed loop.
const LOADS: [(&str, f64); 3] = [("low", 0.1), ("medium", 0.5), ("saturating", 2.0)];

/// Between two requests to forget. At 10,000 reads a second a twentieth of the 50,000 blocks is read
/// in between; asked every 20 ms, the kernel drains its per-core lists so often that the generator
/// loses half of its core.
const FORGET_PAUSE: Duration = Duration::from_millis(250);
/// Requests to forget for one listing of the folder.
const FORGETS_PER_LISTING: u32 = 4;

/// What one configuration did at one load.
struct Cell {
    workers: u32,
    queue: u32,
    load: &'static str,
    figures: Figures,
}

/// Measures all configurations.
pub(super) fn run(place: &Place) -> Held {
    let data = place.folder.join("data");
    let question = "Does a GET pay for the pool of threads that waits for the disk, and what do its two knobs do: throughput, refusals, tail?";
    let facts = [
        ("data", format!("{KEYS} records of 1,000 bytes, `--memory {MEMORY}`")),
        ("reads block because", "the driver drops the tables from the page cache every 250 ms (`posix_fadvise`, DONTNEED)".to_owned()),
        ("load", format!("{CONNECTIONS} connections, open loop, timeout 2 s")),
    ];
    let mut report = Report::new(place, "Inline against the pool", question, &facts);
    let node = start(place, &data, 4, 1024)?;
    let flags = format!(
        "--workload put --preload --rate 1000 --duration 0.2s --warmup 0s --connections 256 {}",
        shape()
    );
    Bench::new(place, &node.url, &place.folder.join("load"))
        .with(&flags)
        .run()?;
    let knee = Forgetting::of(&data).during(|| {
        let flags = format!(
            "--workload get --closed --duration {}s --connections {CLOSED} {}",
            seconds(place),
            shape()
        );
        Bench::new(place, &node.url, &place.folder.join("knee"))
            .with(&flags)
            .run()
    })?;
    drop(node);
    let base = knee.goodput.max(100.0);
    report.line(format_args!(
        "\nWith 4 workers and a queue of 1024, a closed loop over {CLOSED} connections did {base:.0} cold GETs a second. Low, medium and saturating are a tenth, a half and \
         twice of it: {:.0}, {:.0}, {:.0} a second.",
        base * LOADS[0].1,
        base * LOADS[1].1,
        base * LOADS[2].1
    ));
    let inline = inline(place, &data, base)?;
    let cells = cold(place, &data, base)?;
    for (load, _) in LOADS {
        report.line(format_args!("\n## Cold GETs, {load} load"));
        head(&mut report);
        for cell in cells.iter().filter(|cell| cell.load == load) {
            row(
                &mut report,
                &format!("{} workers, queue {}", cell.workers, cell.queue),
                &cell.figures,
            );
        }
        for cell in inline.iter().filter(|cell| cell.load == load) {
            row(&mut report, "in page cache: inline, no pool", &cell.figures);
        }
    }
    report.line("\n## PUTs\n\nA PUT never sees the pool: the log's thread writes it. The corners of the two knobs, at half of what the first did in a closed loop, and at twice of it.");
    let writes = puts(place, &mut report)?;
    let flames = flames(place, &data, base)?;
    report.line(
        "\n## Flame graphs\n\nWall time of all threads at the saturating load of cold GETs:\n",
    );
    for (words, file) in flames {
        report.line(format_args!("* [{words}]({file})"));
    }
    report.line("\n## What it says\n");
    say(&mut report, &cells, &inline, &writes);
    report.write(place, "study-pool")?;
    Ok(true)
}

fn seconds(place: &Place) -> f64 {
    place.options.seconds.unwrap_or(3.0)
}

fn shape() -> String {
    format!("--keys {KEYS} --value-bytes 1000 --timeout 2s")
}

fn start(place: &Place, data: &Path, workers: u32, queue: u32) -> Result<Server, String> {
    let (workers, queue) = (workers.to_string(), queue.to_string());
    Server::node(
        place,
        data,
        &["--memory", MEMORY, "--workers", &workers, "--queue", &queue],
    )
}

fn open_loop(place: &Place, node: &Server, operation: &str, rate: f64) -> Result<Figures, String> {
    let flags = format!(
        "--workload {operation} --rate {rate:.0} --duration {}s --warmup 300ms --connections {CONNECTIONS} {}",
        seconds(place),
        shape()
    );
    Bench::new(place, &node.url, &place.folder.join("run"))
        .with(&flags)
        .run()
}

fn cold(place: &Place, data: &Path, base: f64) -> Result<Vec<Cell>, String> {
    let mut cells = Vec::new();
    for workers in WORKERS {
        for queue in QUEUES {
            let node = start(place, data, workers, queue)?;
            Forgetting::of(data).during(|| {
                for (load, share) in LOADS {
                    let figures = open_loop(place, &node, "get", base * share)?;
                    cells.push(Cell {
                        workers,
                        queue,
                        load,
                        figures,
                    });
                }
                Ok(())
            })?;
        }
    }
    Ok(cells)
}

/// The same reads with everything in the page cache.
fn inline(place: &Place, data: &Path, base: f64) -> Result<Vec<Cell>, String> {
    let node = start(place, data, 4, 64)?;
    read_all(data)?;
    let one = |(load, share): (&'static str, f64)| {
        let figures = open_loop(place, &node, "get", base * share)?;
        Ok(Cell {
            workers: 4,
            queue: 64,
            load,
            figures,
        })
    };
    LOADS.into_iter().map(one).collect()
}

/// What was done a second by the corners of the two knobs, at the saturating load.
fn puts(place: &Place, report: &mut Report) -> Result<Vec<f64>, String> {
    head(report);
    let (mut base, mut done) = (None, Vec::new());
    for (workers, queue) in [(1, 8), (1, 1024), (16, 8), (16, 1024)] {
        let data = place.folder.join(format!("put-{workers}-{queue}"));
        let node = start(place, &data, workers, queue)?;
        let base = match base {
            Some(base) => base,
            None => {
                let flags = format!(
                    "--workload put --closed --duration {}s --connections 256 {}",
                    seconds(place),
                    shape()
                );
                let closed = Bench::new(place, &node.url, &place.folder.join("run"))
                    .with(&flags)
                    .run()?;
                *base.insert(closed.goodput.max(100.0))
            }
        };
        for (load, share) in [("medium", 0.5), ("saturating", 2.0)] {
            let figures = open_loop(place, &node, "put", base * share)?;
            row(
                report,
                &format!(
                    "{workers} workers, queue {queue}, {load}: {:.0}/s",
                    base * share
                ),
                &figures,
            );
            if load == "saturating" {
                done.push(figures.goodput);
            }
        }
        drop(node);
        fs::remove_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?;
    }
    Ok(done)
}

/// Flame graphs beside the report: few workers, many, and inline.
fn flames(place: &Place, data: &Path, base: f64) -> Result<Vec<(String, String)>, String> {
    let folder = place
        .options
        .out
        .clone()
        .unwrap_or_else(|| place.root.join("docs/lab"));
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut out = Vec::new();
    for workers in [1, 16] {
        let node = start(place, data, workers, 1024)?;
        let file = format!(
            "{}-study-pool-{workers}-workers.svg",
            super::report::date(place)
        );
        let flags = format!(
            "--workload get --rate {:.0} --duration {}s --warmup 300ms --connections {CONNECTIONS} {}",
            base * 2.0,
            seconds(place).max(3.0),
            shape()
        );
        Forgetting::of(data).during(|| {
            Bench::new(place, &node.url, &place.folder.join("run"))
                .with(&flags)
                .while_running(|| profile(place, &node, &folder.join(&file)))
                .map(drop)
        })?;
        out.push((format!("{workers} workers, queue 1024"), file));
    }
    Ok(out)
}

fn profile(place: &Place, node: &Server, file: &Path) -> Result<(), String> {
    let status = Command::new(&place.binary)
        .args([
            "profile",
            &node.admin,
            "--wall",
            "--seconds",
            "2",
            "--quiet",
            "-o",
        ])
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

fn head(report: &mut Report) {
    report.table(&[
        "",
        "done/s",
        "refused",
        "lost",
        "p50",
        "p99",
        "p99.9",
        "refusal p99",
    ]);
}

fn row(report: &mut Report, name: &str, figures: &Figures) {
    report.row(&[
        format!("{name}{}", figures.mark()),
        format!("{:.0}", figures.goodput),
        percent(figures.refused),
        percent(figures.lost),
        time(figures.p50_us),
        time(figures.p99_us),
        time(figures.p999_us),
        time(figures.refused_p99_us),
    ]);
}

/// What the tables say, in sentences whose numbers come from them.
fn say(report: &mut Report, cells: &[Cell], inline: &[Cell], writes: &[f64]) {
    let at = |workers: u32, queue: u32, load: &str| {
        let found = cells
            .iter()
            .find(|c| (c.workers, c.queue, c.load) == (workers, queue, load));
        found.map(|cell| cell.figures.clone()).unwrap_or_default()
    };
    let warm = inline.iter().find(|c| c.load == "low");
    let warm = warm.map(|c| c.figures.clone()).unwrap_or_default();
    let [one, four, sixteen] = WORKERS.map(|workers| at(workers, 1024, "saturating"));
    let [short, middle, long] = QUEUES.map(|queue| at(4, queue, "saturating"));
    report.line(format_args!(
        "* **Workers** decide how many reads that wait for the disk are done: {:.0}, {:.0} and {:.0} a second with 1, 4 and 16 of them at the saturating load \
         (queue 1024), that is {:.2} and {:.2} times as many as with one; p99 is {}, {} and {}.",
        one.goodput,
        four.goodput,
        sixteen.goodput,
        times(four.goodput, one.goodput),
        times(sixteen.goodput, one.goodput),
        time(one.p99_us),
        time(four.p99_us),
        time(sixteen.p99_us)
    ));
    report.line(format_args!(
        "* **The queue** decides what becomes of those that are too many: with 8, 64 and 1024 places and 4 workers, {}, {} and {} of the requests are refused, and p99 of \
         what is done is {}, {} and {}. The longest queue does {:.2} times as much as the shortest.",
        percent(short.refused),
        percent(middle.refused),
        percent(long.refused),
        time(short.p99_us),
        time(middle.p99_us),
        time(long.p99_us),
        times(long.goodput, short.goodput)
    ));
    let most = writes.iter().copied().fold(0.0, f64::max);
    let least = writes.iter().copied().fold(f64::INFINITY, f64::min);
    report.line(format_args!(
        "* **Neither** stands in the way of a read whose block is in memory or page cache, which is answered on the loop (p50 at the low load {}, and {} from the disk through a worker), \
         nor of a write: among the corners of the two knobs the most writes a second are {:.2} times the least.",
        time(warm.p50_us),
        time(at(4, 64, "low").p50_us),
        times(most, least)
    ));
}

/// How many times `b` is `a`.
fn times(a: f64, b: f64) -> f64 {
    a / b.max(1e-9)
}

/// Reads every table once, so that all are in the page cache.
fn read_all(data: &Path) -> Result<(), String> {
    for table in tables(data)? {
        let copied = fs::File::open(&table)
            .and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()));
        match copied {
            Ok(_) => {}
            // A compaction has put others in its place, which it wrote and so are in the cache.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{}: {error}", table.display())),
        }
    }
    Ok(())
}

/// Every table below a data folder.
fn tables(data: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![data.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
            let path = entry.map_err(|e| e.to_string())?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "tbl") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Makes the kernel forget the pages of all tables, again and again.
struct Forgetting {
    data: PathBuf,
}

impl Forgetting {
    fn of(data: &Path) -> Forgetting {
        Forgetting {
            data: data.to_owned(),
        }
    }

    /// Does `work` meanwhile.
    fn during<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.forget_until(&is_over));
            let done = work();
            is_over.store(true, Relaxed);
            let forgot = thread
                .join()
                .map_err(|_| "the thread that forgets panicked".to_owned())?;
            let done = done?;
            forgot.map(|()| done)
        })
    }

    fn forget_until(&self, is_over: &AtomicBool) -> Result<(), String> {
        while !is_over.load(Relaxed) {
            // Compactions make and remove tables: the list is read again each second.
            let files: Vec<fs::File> = tables(&self.data)?
                .iter()
                .filter_map(|path| fs::File::open(path).ok())
                .collect();
            for _ in 0..FORGETS_PER_LISTING {
                for file in &files {
                    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)
                        .map_err(|e| format!("the kernel does not forget ({e})"))?;
                }
                std::thread::sleep(FORGET_PAUSE);
                if is_over.load(Relaxed) {
                    break;
                }
            }
        }
        Ok(())
    }
}
