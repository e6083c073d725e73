//! Bits turn over on a member's disk: they are found, the records come from the others, the damaged
//! blocks go.
//!
//! ```text
//! dendra dev, 3 nodes, small memtables ─► values in tables ─► dev rot 2 ─► metrics of node 2
//!     found ─► repaired ─► mended ─► each key reads at each node ─► dendra check of its folder: whole
//! ```
//!
//! Invariants
//! 1. Nothing here waits for a time: the metrics say when damage was found and when it is gone. A
//!    repair begins when no operation can be under way any more, a minute after it was found.
//!
//! Not here: which damage is found and how it is repaired (crates `engine`, `node`, `sim`).
//! See: docs/operating.md, "Damage".

mod support;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::http::Client;
use support::{dendra, read_on, run, signal};

/// Longer than the wait in front of a repair.
const REPAIRED: Duration = Duration::from_secs(180);
const KEYS: usize = 400;

struct Rotten {
    child: Child,
    folder: tempfile::TempDir,
    nodes: Vec<SocketAddr>,
    admins: Vec<SocketAddr>,
}

impl Rotten {
    fn start() -> Rotten {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = [
            "--memory",
            "16MiB",
            "--memtable",
            "64KiB",
            "--value-bytes-max",
            "64KiB",
        ];
        let scrub = ["--scrub-every-s", "1", "--scrub-rate", "64MiB"];
        let mut child = dendra(["dev", "--nodes", "3", "--folder"])
            .arg(folder.path())
            .args(["--", "--durability", "os"])
            .args(flags)
            .args(scrub)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built");
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let (mut nodes, mut admins) = (Vec::new(), Vec::new());
        while nodes.len() < 3 {
            let mut line = String::new();
            let read = stderr.read_line(&mut line).expect("stderr is text");
            assert!(read > 0, "it ended: {:?}", child.wait());
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["node", _, node, "admin", admin, ..] = words[..] {
                let address = |url: &str| url["http://".len()..].parse().expect("an address");
                nodes.push(address(node));
                admins.push(address(admin));
            }
        }
        drop(read_on(stderr));
        Rotten {
            child,
            folder,
            nodes,
            admins,
        }
    }

    fn order(&self, words: &[&str]) -> String {
        let mut command = dendra(["dev"]);
        let done = run(command.args(words).arg("--folder").arg(self.folder.path()));
        assert_eq!(done.code, Some(0), "{words:?}: {}", done.stderr);
        String::from_utf8(done.stdout).expect("it is text")
    }

    fn metric(&self, node: usize, name: &str) -> f64 {
        let mut client = Client::open(self.admins[node - 1]).expect("the node listens");
        let answer = client.request("GET", "/metrics", &[], b"").expect("a page");
        let page = String::from_utf8(answer.body).expect("it is text");
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {page}"))
            .parse()
            .expect("a number")
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Rotten) -> bool) {
        let deadline = Instant::now() + REPAIRED;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}: {}", self.log_of_2());
            std::thread::yield_now();
        }
    }

    fn log_of_2(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("node-2.log")).unwrap_or_default()
    }

    fn request(&self, node: usize, method: &str, key: usize, body: &[u8]) -> (u16, Vec<u8>) {
        let target = format!("/v0/entity?id=key-{key:05}");
        let deadline = Instant::now() + REPAIRED;
        loop {
            let asked = Client::open(self.nodes[node - 1])
                .ok()
                .and_then(|mut client| client.request(method, &target, &[], body));
            match asked {
                Some(answer) if answer.status < 500 => return (answer.status, answer.body),
                answer => assert!(Instant::now() < deadline, "{:?}", answer.map(|a| a.status)),
            }
        }
    }
}

impl Drop for Rotten {
    fn drop(&mut self) {
        signal(&self.child, "TERM");
        drop(self.child.wait());
    }
}

fn value(key: usize) -> Vec<u8> {
    // Bytes that no compression makes small.
    let mut prng = dendra_base::Prng::new(key as u64);
    let mut bytes = vec![0; 2_000];
    prng.fill(&mut bytes);
    bytes
}

fn largest_table(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let tables = entries.flatten().filter(|entry| {
        let path = entry.path();
        path.extension().is_some_and(|ending| ending == "tbl")
    });
    let sizes = tables.filter_map(|entry| entry.metadata().ok());
    sizes.map(|meta| meta.len()).max().unwrap_or(0)
}

#[test]
fn damage_on_one_disk_is_found_and_repaired_from_the_others() {
    let cluster = Rotten::start();
    for key in 0..KEYS {
        let (status, _) = cluster.request(1 + key % 3, "PUT", key, &value(key));
        assert_eq!(status, 201);
    }
    let data = cluster.folder.path().join("node-2");
    cluster.wait_until("no table", |_| largest_table(&data) >= 64 << 10);
    let said = cluster.order(&["rot", "2"]);
    assert!(said.starts_with("done: rot 2: "), "{said}");
    let found = "dendra_scrub_spots_found_total";
    cluster.wait_until("not found", |it| it.metric(2, found) >= 1.0);
    cluster.wait_until("not repaired", |it| {
        it.metric(2, "dendra_scrub_spans_lost") == 0.0
            && it.metric(2, "dendra_engine_tables_damaged") == 0.0
            && it.metric(2, "dendra_scrub_spots_mended_total") >= 1.0
    });
    for node in 1..=3 {
        assert_eq!(cluster.metric(node, found) > 0.0, node == 2, "node {node}");
        for key in 0..KEYS {
            let (status, body) = cluster.request(node, "GET", key, b"");
            assert_eq!(
                (status, body == value(key)),
                (200, true),
                "key {key} at node {node}"
            );
        }
    }
    cluster.order(&["kill", "2"]);
    let checked = run(dendra(["check"]).arg(&data));
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
}

#[test]
fn a_wiped_node_is_down_and_its_folder_is_gone() {
    let cluster = Rotten::start();
    let said = cluster.order(&["wipe", "2"]);
    assert!(said.starts_with("done: wipe 2: its data is gone"), "{said}");
    assert!(!cluster.folder.path().join("node-2").exists());
    let (status, _) = cluster.request(1, "PUT", 1, b"v");
    assert_eq!(status, 201, "two of three are there");
}
