//! The main job on real input: load a real tree, compare every byte, kill the node, lose no record.
//!
//! ```text
//! corpus.rs   which folders of this machine: at least 10,000 files and 200 MB
//! node.rs     the release binary as a process, and a small HTTP client
//!
//! start ─► load ─► compare ─► delete a third ─► compare ─► scan ─► load again, SIGKILL ─►
//! start ─► every acknowledged write is there, every acknowledged delete is gone ─► stop ─► check
//! ```
//!
//! Invariants
//! 1. Every comparison is of every byte, through HTTP, against the files themselves.
//! 2. Only records in flight may be there or not after the kill: everything else is told.
//! 3. Exit 0 means that every row of the table says ok. A failure keeps the node's folder.
//!
//! Not here: crashes at every disk operation, loops of kills (tests of the crates).
//! See: README.md.

mod corpus;
mod node;

use corpus::{AGAIN, Corpus, Record};
use node::{Connection, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Comparing threads: the node has two cores to itself on the smallest machine that counts.
const READERS: usize = 4;

/// The results of a step.
struct Done {
    records: u64,
    bytes: u64,
    remark: String,
}

type Step = Result<Done, String>;

fn done(records: u64, bytes: u64, remark: impl Into<String>) -> Step {
    Ok(Done {
        records,
        bytes,
        remark: remark.into(),
    })
}

/// Steps and how they ended, printed as they end and once more as a table.
struct Table {
    rows: Vec<String>,
    failed: bool,
}

impl Table {
    fn step(&mut self, name: &str, step: impl FnOnce() -> Step) {
        if self.failed {
            self.rows.push(format!(
                "{name:<44} {:>9} {:>12} {:>8}  not run",
                "", "", ""
            ));
            return;
        }
        println!("… {name}");
        let started = Instant::now();
        let outcome = step();
        let seconds = started.elapsed().as_secs_f64();
        let row = match outcome {
            Ok(done) => {
                let (records, bytes) = (done.records, done.bytes);
                format!(
                    "{name:<44} {records:>9} {bytes:>12} {seconds:>8.1}  ok{}",
                    done.remark
                )
            }
            Err(sentence) => {
                self.failed = true;
                format!(
                    "{name:<44} {:>9} {:>12} {seconds:>8.1}  FAILED: {sentence}",
                    "", ""
                )
            }
        };
        println!("  {row}");
        self.rows.push(row);
    }

    fn print(&self) {
        println!(
            "\n{:<44} {:>9} {:>12} {:>8}  result",
            "step", "records", "bytes", "seconds"
        );
        for row in &self.rows {
            println!("{row}");
        }
    }
}

/// Builds the binary, runs the demonstration, prints its table; true when every step held.
pub(crate) fn run(root: &Path) -> bool {
    let place = root.join("target/demo");
    match prepare(root, &place) {
        Ok((binary, corpus)) => play(&binary, &place, &corpus),
        Err(sentence) => {
            eprintln!("demo: {sentence}");
            false
        }
    }
}

fn prepare(root: &Path, place: &Path) -> Result<(PathBuf, Corpus), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--package", "dendra"])
        .current_dir(root)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the binary does not build".to_owned());
    }
    if place.exists() {
        fs::remove_dir_all(place).map_err(|e| format!("{}: {e}", place.display()))?;
    }
    fs::create_dir_all(place).map_err(|e| format!("{}: {e}", place.display()))?;
    let corpus = corpus::gather(place)?;
    println!("{}", corpus.describe());
    Ok((root.join("target/release/dendra"), corpus))
}

/// The facts that the demonstration holds the node to.
struct Truth<'a> {
    corpus: &'a Corpus,
    /// By position in `corpus.records`: was the delete acknowledged?
    deleted: BTreeSet<usize>,
    /// By position: a delete whose answer no client got.
    unsure: BTreeSet<usize>,
}

fn play(binary: &Path, place: &Path, corpus: &Corpus) -> bool {
    let data = place.join("data");
    let acked = place.join("acked");
    let log = place.join("node.log");
    let mut table = Table {
        rows: Vec::new(),
        failed: false,
    };
    let mut node = None;
    let mut truth = Truth {
        corpus,
        deleted: BTreeSet::new(),
        unsure: BTreeSet::new(),
    };
    table.step("start a node on an empty folder", || {
        node = Some(Node::start(binary, &data, &log)?);
        done(0, 0, "")
    });
    table.step("load the files: dendra load", || {
        load(running(&node), corpus)
    });
    table.step("compare every byte through HTTP", || {
        truth.compare(running(&node))
    });
    table.step("delete a third", || truth.delete_third(running(&node)));
    table.step("compare again: the deleted are 404", || {
        truth.compare(running(&node))
    });
    table.step("scan a prefix: dendra scan", || truth.scan(running(&node)));
    table.step("load again, delete, SIGKILL in the middle", || {
        let node = node.take().ok_or("there is no node")?;
        truth.load_and_kill(node, &acked)
    });
    table.step("start again on what the kill left", || {
        node = Some(Node::start(binary, &data, &log)?);
        done(0, 0, "")
    });
    table.step("every acknowledged write is there", || {
        acknowledged(running(&node), corpus, &acked)
    });
    table.step("every acknowledged delete is gone, the rest is", || {
        truth.compare(running(&node))
    });
    table.step("SIGTERM: the node ends with 0", || {
        node.take().ok_or("there is no node")?.stop()?;
        done(0, 0, "")
    });
    table.step("check the folder: dendra check", || check(binary, &data));
    drop(node);
    table.print();
    if table.failed {
        println!(
            "\nThe node's folder and log are kept in {}.",
            place.display()
        );
    } else if let Err(e) = fs::remove_dir_all(place) {
        println!("\n{} could not be removed: {e}", place.display());
    }
    !table.failed
}

/// Requires: a step in front started it.
fn running(node: &Option<Node>) -> &Node {
    node.as_ref()
        .expect("a failed start ends the demonstration")
}

/// Loads every root, and holds the summary against the files.
fn load(node: &Node, corpus: &Corpus) -> Step {
    let (mut records, mut bytes) = (0, 0);
    for root in &corpus.roots {
        let output = node
            .command(&["load", "--json", "--prefix", &root.prefix])
            .arg(&root.path)
            .stdout(Stdio::piped())
            .output()
            .map_err(|e| format!("dendra load does not start: {e}"))?;
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| {
            format!(
                "dendra load {} printed no summary: {e}",
                root.path.display()
            )
        })?;
        let number = |name: &str| summary[name].as_u64().unwrap_or(u64::MAX);
        let expected = (root.records as u64, root.unstorable as u64);
        if (number("records"), number("failed")) != expected {
            let root = root.path.display();
            return Err(format!(
                "{root}: {expected:?} records and failures expected: {summary}"
            ));
        }
        records += number("records");
        bytes += number("bytes");
    }
    let skipped = match corpus.unstorable() {
        0 => String::new(),
        n => format!(", {n} refused: larger than a value may be, or not readable"),
    };
    done(records, bytes, skipped)
}

/// Runs `visit` over all positions on several connections; the first error ends all.
fn on_all<T: Send>(
    node: &Node,
    positions: usize,
    visit: impl Fn(&mut Connection, usize) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let next = AtomicUsize::new(0);
    let reader = || -> Result<Vec<T>, String> {
        let mut connection = Connection::open(node)?;
        let mut seen = Vec::new();
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            if position >= positions {
                return Ok(seen);
            }
            match visit(&mut connection, position) {
                Ok(one) => seen.push(one),
                Err(sentence) => {
                    next.store(positions, Ordering::Relaxed);
                    return Err(sentence);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(reader)).collect();
        let mut all = Vec::new();
        for reader in readers {
            all.extend(
                reader
                    .join()
                    .map_err(|_| "a reader panicked".to_owned())??,
            );
        }
        Ok(all)
    })
}

/// The bytes of the file behind `record`.
fn file_bytes(record: &Record) -> Result<Vec<u8>, String> {
    fs::read(&record.path).map_err(|e| format!("{}: {e}", record.path.display()))
}

/// Is the value of `key` exactly the record's file? Returns its length.
fn compare_one(connection: &mut Connection, key: &[u8], record: &Record) -> Result<u64, String> {
    let (status, body) = connection.ask("GET", key)?;
    let expected = file_bytes(record)?;
    if status != 200 || body != expected {
        return Err(format!(
            "{}: {status} and {} bytes, the file has {}",
            key.escape_ascii(),
            body.len(),
            expected.len()
        ));
    }
    Ok(body.len() as u64)
}

impl Truth<'_> {
    /// Every record that was not deleted equals its file; every deleted one is absent.
    fn compare(&self, node: &Node) -> Step {
        let lengths = on_all(node, self.corpus.records.len(), |connection, position| {
            let record = &self.corpus.records[position];
            if self.unsure.contains(&position) {
                return Ok(0);
            }
            if !self.deleted.contains(&position) {
                return compare_one(connection, &record.key, record);
            }
            match connection.ask("GET", &record.key)?.0 {
                404 => Ok(0),
                status => Err(format!(
                    "{}: {status} after its delete",
                    record.key.escape_ascii()
                )),
            }
        })?;
        let remark = match (self.deleted.len(), self.unsure.len()) {
            (0, _) => String::new(),
            (gone, 0) => format!(", {gone} of them gone"),
            (gone, unsure) => format!(", {gone} of them gone, {unsure} in flight at the kill"),
        };
        done(lengths.len() as u64, lengths.iter().sum(), remark)
    }

    fn delete_third(&mut self, node: &Node) -> Step {
        let count = self.corpus.records.len().div_ceil(3);
        let gone = on_all(node, count, |connection, n| {
            let position = 3 * n;
            delete(connection, &self.corpus.records[position]).map(|()| position)
        })?;
        self.deleted.extend(gone);
        done(count as u64, 0, "")
    }

    /// The output of `dendra scan` for the largest root is exactly its surviving records, in order.
    fn scan(&self, node: &Node) -> Step {
        let root = self.corpus.roots.iter().max_by_key(|root| root.records);
        let prefix = &root.ok_or("there is no root")?.prefix;
        let expected: BTreeMap<&[u8], &Record> = self
            .corpus
            .records
            .iter()
            .enumerate()
            .filter(|(n, r)| !self.deleted.contains(n) && r.key.starts_with(prefix.as_bytes()))
            .map(|(_, record)| (record.key.as_slice(), record))
            .collect();
        let hex = node::hex(prefix.as_bytes());
        let mut scan = node
            .command(&["scan", "--hex", "--prefix", &hex])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("dendra scan does not start: {e}"))?;
        let lines = BufReader::new(scan.stdout.take().ok_or("stdout is piped")?).lines();
        let (mut expected, mut records, mut bytes) = (expected.into_iter(), 0u64, 0u64);
        for line in lines {
            let line = line.map_err(|e| format!("dendra scan: {e}"))?;
            let (key, record) = expected.next().ok_or("the scan shows more than is there")?;
            let value = file_bytes(record)?;
            if line != format!("{}\t{}", node::hex(key), node::hex(&value)) {
                return Err(format!("the scan differs at {}", key.escape_ascii()));
            }
            records += 1;
            bytes += value.len() as u64;
        }
        let status = scan.wait().map_err(|e| e.to_string())?;
        match expected.next() {
            _ if !status.success() => Err(format!("dendra scan ended with {status}")),
            Some((key, _)) => Err(format!("the scan lacks {}", key.escape_ascii())),
            None => done(records, bytes, format!(", prefix {prefix}")),
        }
    }

    /// Loads everything once more under `again/` while deleting another third, and kills the node
    /// when a third of the second load is acknowledged.
    fn load_and_kill(&mut self, mut node: Node, acked: &Path) -> Step {
        let lines_wanted = self.corpus.records.len() / 3;
        let (binary, url) = (node.binary().to_owned(), node.url().to_owned());
        let corpus = self.corpus;
        std::thread::scope(|scope| {
            let loader = scope.spawn(move || {
                for root in &corpus.roots {
                    let prefix = format!("{AGAIN}{}", root.prefix);
                    let status = node::client(&binary, &url, &["load", "-q", "--prefix", &prefix])
                        .args(["--retry-for", "0ms", "--acked"])
                        .arg(acked)
                        .arg(&root.path)
                        .stderr(Stdio::null())
                        .status();
                    // 5: the node is gone, as planned.
                    if status.is_ok_and(|status| status.code() == Some(5)) {
                        return;
                    }
                }
            });
            let outcome = self.delete_until(&mut node, acked, lines_wanted);
            // In each case the loader must end: without a node it does.
            node.kill();
            loader
                .join()
                .map_err(|_| "the loader panicked".to_owned())?;
            outcome
        })?;
        let lines = count_lines(acked)?;
        if lines >= self.corpus.records.len() {
            return Err("the load was over before the kill".to_owned());
        }
        done(
            lines as u64,
            0,
            format!(" (acknowledged), {} deletes in all", self.deleted.len()),
        )
    }

    fn delete_until(&mut self, node: &mut Node, acked: &Path, wanted: usize) -> Result<(), String> {
        let mut connection = Connection::open(node)?;
        let mut positions = (1..self.corpus.records.len()).step_by(3);
        let mut looked = Looked::default();
        while looked.lines(acked)? < wanted {
            match positions.next() {
                Some(position) => {
                    delete(&mut connection, &self.corpus.records[position])?;
                    self.deleted.insert(position);
                }
                None => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        }
        // One delete is sent and its answer never read: its outcome is unknown.
        if let Some(position) = positions.next() {
            connection.send("DELETE", &self.corpus.records[position].key)?;
            self.unsure.insert(position);
        }
        node.kill();
        Ok(())
    }
}

fn delete(connection: &mut Connection, record: &Record) -> Result<(), String> {
    match connection.ask("DELETE", &record.key)?.0 {
        202 => Ok(()),
        status => Err(format!("DELETE {}: {status}", record.key.escape_ascii())),
    }
}

/// Lines of a growing file, counted once each.
#[derive(Default)]
struct Looked {
    offset: u64,
    lines: usize,
}

impl Looked {
    fn lines(&mut self, path: &Path) -> Result<usize, String> {
        use std::os::unix::fs::FileExt;
        let Ok(file) = fs::File::open(path) else {
            return Ok(0);
        };
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = file
                .read_at(&mut buffer, self.offset)
                .map_err(|e| e.to_string())?;
            if read == 0 {
                return Ok(self.lines);
            }
            self.offset += read as u64;
            self.lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count();
        }
    }
}

fn count_lines(path: &Path) -> Result<usize, String> {
    Looked::default().lines(path)
}

/// Every key that `dendra load` wrote down as acknowledged holds its file's bytes.
fn acknowledged(node: &Node, corpus: &Corpus, acked: &Path) -> Step {
    let text = fs::read_to_string(acked).map_err(|e| format!("{}: {e}", acked.display()))?;
    let by_key: BTreeMap<&[u8], &Record> = corpus
        .records
        .iter()
        .map(|record| (record.key.as_slice(), record))
        .collect();
    let keys: Vec<Vec<u8>> = text.lines().map(node::unpercent).collect();
    let lengths = on_all(node, keys.len(), |connection, n| {
        let key = &keys[n];
        let original = key.strip_prefix(AGAIN.as_bytes());
        let record = original.and_then(|key| by_key.get(key));
        let record = record.ok_or_else(|| format!("{} was never sent", key.escape_ascii()))?;
        compare_one(connection, key, record)
    })?;
    done(lengths.len() as u64, lengths.iter().sum(), "")
}

fn check(binary: &Path, data: &Path) -> Step {
    let output = Command::new(binary)
        .args(["check", "--json"])
        .arg(data)
        .output()
        .map_err(|e| format!("dendra check does not start: {e}"))?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("dendra check printed no report: {e}"))?;
    if !output.status.success() {
        return Err(format!("dendra check: {}", report["findings"]));
    }
    let number = |name: &str| report["summary"][name].as_u64().unwrap_or(0);
    done(
        number("records"),
        number("table_bytes"),
        format!(", {} tables", number("tables")),
    )
}
