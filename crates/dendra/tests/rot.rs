//! Bits turn over on a member's disk while clients work: they are found, the records come from the
//! others, the damaged blocks go.
//!
//! ```text
//! dendra dev, 3 nodes, small memtables ─► values in tables ─► dev rot 2 ─► metrics of node 2
//!     found ─► repaired ─► mended ─► each key reads at each node ─► dendra check of its folder: whole
//! clients at all three nodes, from the bits to the mended block: a history for each round
//! ```
//!
//! Invariants
//! 1. No wait here is for a time: the metrics say when damage was found and when it is gone. A
//!    repair begins when no operation can be under way any more, a minute after it was found.
//! 2. Meanwhile each history is that of one object for each key, and every key reads at every node.
//!    Hardly a request fails: two of three copies are whole.
//!
//! Not here: which damage is found and how it is repaired (crates `engine`, `node`, `sim`).
//! See: docs/operating.md, "Damage".

mod support;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::clients::under_load;
use support::dev::{DevCluster, SETTLED, tables};
use support::http::Client;
use support::{dendra, rest, run};

const KEYS: usize = 400;
/// Operations of a round of clients.
const ROUND: u64 = 800;
/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(5);
/// Longer than a busy machine makes any request wait.
const TIMEOUT_MS: u32 = 20_000;

fn start() -> DevCluster {
    let small = [
        "--memory",
        "16MiB",
        "--memtable",
        "64KiB",
        "--value-bytes-max",
        "64KiB",
    ];
    let scrub = ["--scrub-every-s", "1", "--scrub-rate", "64MiB"];
    DevCluster::start(3, &[&small[..], &scrub].concat())
}

fn request(
    cluster: &DevCluster,
    node: usize,
    method: &str,
    key: usize,
    body: &[u8],
) -> (u16, Vec<u8>) {
    let deadline = Instant::now() + SETTLED;
    let key = format!("key-{key:05}");
    loop {
        match cluster.ask(node, method, &key, body) {
            Some(answer) if answer.0 < 500 => return answer,
            answer => assert!(Instant::now() < deadline, "{:?}", answer.map(|a| a.0)),
        }
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

/// Every key at every node.
fn reads_all(cluster: &DevCluster) {
    for node in 1..=3 {
        for key in 0..KEYS {
            let (status, body) = request(cluster, node, "GET", key, b"");
            let is_whole = body == value(key);
            assert_eq!((status, is_whole), (200, true), "key {key} at node {node}");
        }
    }
}

/// Clients of all nodes work on keys that stand between those of the tables, in front of `part` and
/// behind it.
fn round(cluster: &DevCluster, number: usize, part: impl FnOnce()) {
    let doors = [1, 2, 3].map(|node| (node - 1, cluster.node(node)));
    let between = number * 61 % KEYS;
    let told = under_load(
        &format!("key-{between:05}-{number}"),
        &doors,
        TIMEOUT_MS,
        |load| {
            load.run_on(ROUND / 2);
            part();
            load.run_on(ROUND / 2);
        },
    );
    let (failed, all) = (told.failed(), told.history.len());
    let said = told.said().first();
    assert!(
        failed <= all / 50,
        "round {number}: {failed} of {all} failed: {said:?}"
    );
}

#[test]
#[ignore = "at length"]
fn damage_on_one_disk_is_found_and_repaired_from_the_others() {
    let cluster = start();
    for key in 0..KEYS {
        let (status, _) = request(&cluster, 1 + key % 3, "PUT", key, &value(key));
        assert_eq!(status, 201);
    }
    let data = cluster.data(2);
    cluster.wait_until("no table", |_| largest_table(&data) >= 64 << 10);
    let found = "dendra_scrub_spots_found_total";
    round(&cluster, 0, || {
        cluster.rot_until_found(2, found);
    });
    let is_mended = || {
        cluster.metric(2, "dendra_scrub_spans_lost") == 0.0
            && cluster.metric(2, "dendra_engine_tables_damaged") == 0.0
            && cluster.metric(2, "dendra_scrub_spots_mended_total") >= 1.0
    };
    let deadline = Instant::now() + SETTLED;
    let mut rounds = 1;
    while !is_mended() {
        assert!(
            Instant::now() < deadline,
            "not repaired: {}",
            cluster.log_of(2)
        );
        round(&cluster, rounds, || reads_all(&cluster));
        rounds += 1;
        // Tests of other programs run beside this one: clients work for about a third of the time.
        let again = Instant::now() + PAUSE;
        while !is_mended() && Instant::now() < again {
            rest();
        }
    }
    println!("mended after {rounds} rounds of clients");
    assert!(rounds > 1, "the repair waits for operations under way");
    reads_all(&cluster);
    for node in 1..=3 {
        assert_eq!(cluster.metric(node, found) > 0.0, node == 2, "node {node}");
    }
    cluster.order(&["kill", "2"]);
    let checked = run(dendra(["check"]).arg(&data));
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
}

/// How many keys a scan through `node` shows, if it says that it is complete.
fn scanned(cluster: &DevCluster, node: usize) -> Option<usize> {
    let mut client = Client::open(cluster.node(node)).ok()?;
    let target = "/v0/entities?prefix=key-&keys-only=true";
    let answer = client.request("GET", target, &["Accept: application/x-ndjson"], b"")?;
    let keys = answer.body.split(|byte| *byte == b'\n');
    let is_whole = (answer.status, answer.receipt.as_str()) == (200, "Dendra-Scan: complete");
    is_whole.then(|| keys.filter(|key| !key.is_empty()).count())
}

/// Every value at all three.
fn put_all(cluster: &DevCluster) {
    for key in 0..KEYS {
        cluster.wait_until("it is not at all three", |it| {
            let mut client = Client::open(it.node(1 + key % 3)).expect("it listens");
            let target = format!("/v0/entity?id=key-{key:05}&ack=3");
            let written = client.request("PUT", &target, &[], &value(key));
            written.is_some_and(|answer| answer.status == 201)
        });
    }
}

/// Damages these values in the tables of `node`. It is started anew, so that none is in its cache.
fn damage_values(cluster: &DevCluster, node: usize, keys: &[usize]) {
    cluster.order(&["kill", &node.to_string()]);
    for key in keys {
        let value = value(*key);
        let part = &value[900..932];
        let is_damaged = |path: &PathBuf| {
            let bytes = std::fs::read(path).expect("the node is stopped");
            let at = bytes.windows(part.len()).position(|bytes| bytes == part);
            let Some(at) = at else {
                return false;
            };
            let file = std::fs::File::options().write(true).open(path);
            let file = file.expect("it was read");
            let written = file.write_all_at(&[!bytes[at]], at as u64);
            written.expect("the disk works");
            true
        };
        // A merge may have left its sources: it is damaged in each that has it.
        let all = tables(&cluster.data(node), 0);
        let damaged = all.iter().filter(|path| is_damaged(path)).count();
        assert!(damaged > 0, "key {key} is in no table of node {node}");
    }
    cluster.order(&["start", &node.to_string()]);
    cluster.wait_until("the damage is not found", |it| {
        let found = it.metric_if_any(node, "dendra_scrub_spots_found_total");
        found >= Some(keys.len() as f64)
    });
}

#[test]
#[ignore = "at length"]
fn damage_on_two_disks_is_repaired_and_scans_show_all_meanwhile() {
    let cluster = start();
    put_all(&cluster);
    // In one page of a scan, and each at a majority.
    damage_values(&cluster, 2, &[20, 26]);
    damage_values(&cluster, 3, &[23, 140]);
    let is_mended = |it: &DevCluster| {
        let lost = |node| it.metric(node, "dendra_scrub_spans_lost");
        lost(2) + lost(3) == 0.0
    };
    assert!(!is_mended(&cluster), "a repair waits for a minute");
    cluster.wait_until("it is not mended", |it| {
        for node in 1..=3 {
            let keys = scanned(it, node);
            assert_eq!(keys, Some(KEYS), "node {node}: {}", it.log_of(node));
        }
        is_mended(it)
    });
    reads_all(&cluster);
    for node in [2, 3] {
        assert_eq!(cluster.metric(node, "dendra_engine_tables_damaged"), 0.0);
    }
}

#[test]
#[ignore = "at length"]
fn a_block_that_is_damaged_at_two_waits_by_itself_and_says_for_whom() {
    let cluster = start();
    put_all(&cluster);
    let (shared, own) = (60, 150);
    damage_values(&cluster, 2, &[shared, own]);
    damage_values(&cluster, 3, &[shared]);
    let url = |node: usize| {
        let status = cluster.status(node).expect("it answers");
        status["asked"].as_str().expect("a url").to_owned()
    };
    let waiting = [(2, url(3)), (3, url(2))].map(|(node, peer)| {
        let metric = format!("dendra_scrub_spans_waiting{{peer=\"{peer}\"}}");
        (node, metric)
    });
    cluster.wait_until("only one is to wait at each", |it| {
        let waits = |(node, metric): &(usize, String)| it.metric_if_any(*node, metric) == Some(1.0);
        let lost = |node| it.metric(node, "dendra_scrub_spans_lost");
        waiting.iter().all(waits) && lost(2) == 1.0 && lost(3) == 1.0
    });
    // Keys in the same block as the damaged one may be damaged at both, too.
    for key in (0..KEYS).filter(|key| key.abs_diff(shared) > 4) {
        for node in 1..=3 {
            let read = request(&cluster, node, "GET", key, b"");
            assert_eq!(read, (200, value(key)), "key {key} at node {node}");
        }
    }
    let mut client = Client::open(cluster.node(1)).expect("it listens");
    let id = format!("key-{shared:05}");
    let answer = client.ask("GET", &id, &[], b"").expect("an answer");
    let said = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, 504, "{said}");
    assert!(said.contains("damaged"), "{said}");
    assert_eq!(scanned(&cluster, 1), None, "it cannot be whole");
}

#[test]
fn a_wiped_node_is_down_and_its_folder_is_gone() {
    let cluster = start();
    let said = cluster.order(&["wipe", "2"]);
    assert!(said.starts_with("done: wipe 2: its data is gone"), "{said}");
    assert!(!cluster.data(2).exists());
    let (status, _) = request(&cluster, 1, "PUT", 1, b"v");
    assert_eq!(status, 201, "two of three are there");
}
