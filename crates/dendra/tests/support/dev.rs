//! A cluster of `dendra dev`, and the answers of its nodes.
//!
//! ```text
//! DevCluster::start(3, flags) ─► order(["add"]) … ─► node(4), status(1), metric(2, "…")
//! ```
//!
//! Invariants
//! 1. Nodes count from 1, as in orders. Where each is found is in `dev.addresses`, also of those
//!    that came later.
//!
//! Not here: the effects of the orders (`../../src/dev/`).

use super::http::Client;
use super::{dendra, read_on, run, signal};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything that a cluster does by itself: a repair begins a minute behind its damage,
/// and some take two rounds.
pub(crate) const SETTLED: Duration = Duration::from_secs(300);

pub(crate) struct DevCluster {
    child: Child,
    pub(crate) folder: tempfile::TempDir,
}

impl DevCluster {
    pub(crate) fn start(nodes: usize, flags: &[&str]) -> DevCluster {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = dendra(["dev", "--nodes", &nodes.to_string(), "--folder"])
            .arg(folder.path())
            .args(["--", "--durability", "os"])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built");
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut seen = 0;
        while seen < nodes {
            let mut line = String::new();
            let read = stderr.read_line(&mut line).expect("stderr is text");
            assert!(read > 0, "it ended: {:?}", child.wait());
            seen += usize::from(line.starts_with("node "));
        }
        drop(read_on(stderr));
        let cluster = DevCluster { child, folder };
        for node in 1..=nodes {
            cluster.wait_until("it does not serve", |it| {
                it.ask(node, "GET", "nothing", b"")
                    .is_some_and(|(status, _)| status == 404)
            });
        }
        cluster
    }

    pub(crate) fn order(&self, words: &[&str]) -> String {
        let mut command = dendra(["dev"]);
        let done = run(command.args(words).arg("--folder").arg(self.folder.path()));
        assert_eq!(done.code, Some(0), "{words:?}: {}", done.stderr);
        String::from_utf8(done.stdout).expect("it is text")
    }

    /// Where a node listens for clients, and for operators.
    fn doors(&self, node: usize) -> (SocketAddr, SocketAddr) {
        let text = std::fs::read_to_string(self.folder.path().join("dev.addresses"));
        let text = text.expect("a cluster has the file");
        let begin = format!("node {node} ");
        let line = text.lines().find(|line| line.starts_with(&begin));
        let words: Vec<&str> = line.expect("the node is there").split(' ').collect();
        let behind = |word: &str| {
            let at = words.iter().position(|one| *one == word);
            let address = at.and_then(|at| words.get(at + 1)?.parse().ok());
            address.expect("an address")
        };
        (behind("listen"), behind("admin"))
    }

    pub(crate) fn node(&self, node: usize) -> SocketAddr {
        self.doors(node).0
    }

    pub(crate) fn admin(&self, node: usize) -> String {
        format!("http://{}", self.doors(node).1)
    }

    fn page(&self, node: usize, target: &str) -> Option<Vec<u8>> {
        let mut client = Client::open(self.doors(node).1).ok()?;
        Some(client.request("GET", target, &[], b"")?.body)
    }

    pub(crate) fn metric(&self, node: usize, name: &str) -> f64 {
        let value = self.metric_if_any(node, name);
        value.unwrap_or_else(|| panic!("no {name} at {node}"))
    }

    /// A metric that only some states have, of a node that may not listen yet.
    pub(crate) fn metric_if_any(&self, node: usize, name: &str) -> Option<f64> {
        let page = String::from_utf8(self.page(node, "/metrics")?).expect("it is text");
        let mut lines = page.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(value.parse().expect("a number"))
    }

    pub(crate) fn status(&self, node: usize) -> Option<Value> {
        serde_json::from_slice(&self.page(node, "/v0/cluster")?).ok()
    }

    /// Waits until `node` knows so many members and no plan.
    pub(crate) fn wait_for_members(&self, node: usize, members: usize) {
        self.wait_until("the plan does not end", |it| {
            let status = it.status(node).unwrap_or_default();
            let count = status["members"].as_array().map_or(0, Vec::len);
            status["plan"].is_null() && count == members
        });
    }

    pub(crate) fn data(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node-{node}"))
    }

    pub(crate) fn log_of(&self, node: usize) -> String {
        let log = self.folder.path().join(format!("node-{node}.log"));
        std::fs::read_to_string(log).unwrap_or_default()
    }

    /// Damages tables of `node` until this metric of it is not 0: a compaction may have read a
    /// table right before it was damaged, and then takes it away.
    pub(crate) fn rot_until_found(&self, node: usize, metric: &str) {
        let is_found = |it: &DevCluster| it.metric(node, metric) >= 1.0;
        while !is_found(self) {
            self.wait_until("no table", |it| !large_tables(&it.data(node)).is_empty());
            let rotten = large_tables(&self.data(node));
            let said = self.order(&["rot", &node.to_string()]);
            assert!(said.starts_with(&format!("done: rot {node}: ")), "{said}");
            self.wait_until("it is not found", |it| {
                is_found(it) || large_tables(&it.data(node)).is_disjoint(&rotten)
            });
        }
    }

    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&DevCluster) -> bool) {
        let deadline = Instant::now() + SETTLED;
        // Some looks are a process of their own.
        let mut pause = Duration::from_millis(5);
        let logs = || (1..=5).map(|node| self.log_of(node)).collect::<Vec<_>>();
        while !is_so(self) {
            let is_over = Instant::now() >= deadline;
            assert!(!is_over, "{what}: {}", logs().join("\n\n"));
            std::thread::park_timeout(pause);
            pause = (2 * pause).min(Duration::from_millis(100));
        }
    }

    /// One key; `None` while there is no answer.
    pub(crate) fn ask(
        &self,
        node: usize,
        method: &str,
        key: &str,
        body: &[u8],
    ) -> Option<(u16, Vec<u8>)> {
        let mut client = Client::open(self.node(node)).ok()?;
        let answer = client.ask(method, key, &[], body)?;
        Some((answer.status, answer.body))
    }
}

/// Tables that are large enough to rot.
fn large_tables(folder: &Path) -> BTreeSet<PathBuf> {
    tables(folder, 64 << 10)
}

/// Tables of at least so many bytes.
pub(crate) fn tables(folder: &Path, bytes_min: u64) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let is_one = |path: &PathBuf| {
        let size = path.metadata().map_or(0, |meta| meta.len());
        path.extension().is_some_and(|ending| ending == "tbl") && size >= bytes_min
    };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(is_one).collect()
}

impl Drop for DevCluster {
    fn drop(&mut self) {
        signal(&self.child, "TERM");
        drop(self.child.wait());
    }
}
