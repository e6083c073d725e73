//! One of three members has a small disk: it is full first, and clients do not feel it.
//!
//! ```text
//! values to all ─► member 2 is full: it says so ─► all writes go on, at each member, and all reads
//!     ─► deletes ─► member 2 has room again, takes copies, and holds what the others hold
//! ```
//!
//! Invariants
//! 1. The other two are a majority with room: no write may fail, neither before nor behind.
//!
//! Not here: a node by itself on such a disk (`../commands/full_disk.rs`).
//! See: docs/operating.md, section "A full disk".

use super::heal::held;
use crate::support::cluster::{Cluster, NODES};
use crate::support::http::{Client, PATIENCE};
use crate::support::mount::Mount;
use crate::support::rest;
use dendra_base::Prng;
use std::time::{Duration, Instant};

const SMALL: usize = 2;
const VALUE_BYTES: usize = 200 << 10;
/// Beyond this the disk does not fill.
const VALUES_MAX: usize = 600;
/// Writes at each member while the disk is full.
const BEYOND: usize = 12;
/// The promise: values are taken again so soon behind the deletes.
const BACK: Duration = Duration::from_secs(30);

/// Answered by a majority.
fn put(clients: &mut [Client], at: usize, id: &str, value: &[u8]) {
    let answer = clients[at].ask("PUT", id, &[], value);
    let answer = answer.expect("an answer");
    let said = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, 201, "{id} at {at}: {said}");
}

#[test]
fn a_member_with_a_full_disk_costs_clients_nothing_and_comes_back_behind_deletes() {
    let mut disk = None;
    let mut cluster = Cluster::start_prepared(&["--memory", "64MiB"], |folder| {
        let at = folder.join(SMALL.to_string());
        std::fs::create_dir(&at).expect("a new name");
        disk = Mount::tmpfs(&at, "64m");
    });
    let Some(_disk) = disk else {
        eprintln!("not tried: this user may not mount a file system");
        return;
    };
    cluster.wait_for_all_links();
    let open = |node: usize| Client::open(cluster.listen[node]).expect("it listens");
    let mut clients: Vec<Client> = (0..NODES).map(open).collect();
    // No compression makes it shorter.
    let mut prng = Prng::named(1, "full");
    let mut value = vec![0; VALUE_BYTES];
    prng.fill(&mut value);
    let is_full = |cluster: &Cluster| cluster.metric(SMALL, "dendra_disk_full ") == 1.0;
    let mut ids = Vec::new();
    let mut write = |clients: &mut [Client], at: usize| {
        let id = format!("f{:04}", ids.len());
        put(clients, at, &id, &value);
        ids.push(id);
        ids.len()
    };
    while !is_full(&cluster) {
        assert!(write(&mut clients, 0) < VALUES_MAX, "it is not full");
    }
    // Those that waited meanwhile may be closed as idle.
    clients = (0..NODES).map(open).collect();
    for _ in 0..BEYOND {
        for at in 0..NODES {
            write(&mut clients, at);
        }
    }
    // A merge may have made room once more.
    while !is_full(&cluster) {
        assert!(write(&mut clients, 0) < VALUES_MAX, "it is not full");
    }
    for client in &mut clients {
        for id in &ids {
            let read = client.ask("GET", id, &[], b"").expect("an answer");
            assert_eq!((read.status, read.body == value), (200, true), "{id}");
        }
    }
    for id in &ids {
        let deleted = clients[0].ask("DELETE", id, &[], b"").expect("an answer");
        assert_eq!(deleted.status, 202, "{id}");
    }
    let began = Instant::now();
    let mut at_all = || {
        let target = "/v0/entity?id=again&ack=3";
        let soon = ["Dendra-Timeout-Ms: 2000"];
        let answer = clients[0].request("PUT", target, &soon, &value);
        answer.expect("an answer").status == 201
    };
    while !at_all() {
        assert!(began.elapsed() < BACK, "{}", cluster.log_of(SMALL));
        rest();
    }
    let deadline = Instant::now() + PATIENCE;
    let copies = |cluster: &Cluster| [0, 1, 2].map(|node| held(cluster, node));
    let mut seen = copies(&cluster);
    while seen[0].is_empty() || !seen.iter().all(|copy| *copy == seen[0]) || is_full(&cluster) {
        assert!(Instant::now() < deadline, "{}", cluster.log_of(SMALL));
        rest();
        seen = copies(&cluster);
    }
    let log = cluster.log_of(SMALL);
    assert!(log.contains("the disk is full"), "{log}");
    cluster.kill_all();
}
