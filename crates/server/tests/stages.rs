//! Where the time of a request went, as `/metrics` tells it: waits are at the stage that waited.
//!
//! Invariants
//! 1. The first request of a loop is measured, so a test with one loop and one request knows what
//!    it sees.
//! 2. Slowness is made by a valve in front of the disk, never by sleeping.
//! 3. A time is at least the planned wait, and at most the time that the test itself saw pass.
//!
//! Not here: the draw and the watch themselves (`stages.rs` of the crate).

mod support;

use dendra_engine::Durability;
use dendra_engine::vfs::mem::MemVfs;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::Node;
use support::valve::Valve;

/// How long the valve stays shut once a thread waits there.
const HELD: Duration = Duration::from_millis(30);

fn name(what: &str, op: &str, stage: &str) -> String {
    format!("dendra_stage_seconds_{what}{{op=\"{op}\",stage=\"{stage}\"}}")
}

fn count(node: &Node, op: &str, stage: &str) -> f64 {
    node.metric(&name("count", op, stage))
}

/// An answer is here before its write is counted.
fn wait_for(node: &Node, op: &str, stage: &str, value: f64) {
    node.wait_for_metric(&name("count", op, stage), value);
}

fn seconds(node: &Node, op: &str, stage: &str) -> f64 {
    node.metric(&name("sum", op, stage))
}

fn hold_for_a_while(node: &Node, valve: &Valve) {
    valve.wait_for(1);
    // The only loop answers: it has finished its work from before the wait.
    assert_eq!(node.client().get("/v0/status").status, 200);
    let began = Instant::now();
    while began.elapsed() < HELD {
        assert_eq!(node.metric("dendra_ready"), 1.0);
    }
    valve.let_go();
}

#[test]
fn reads_from_memory_have_a_time_of_their_own_and_one_in_sixteen_has_its_stages() {
    let node = Node::with(|settings| settings.loops = Some(1));
    let mut client = node.client();
    assert_eq!(client.put("k", b"value").status, 201);
    let began = Instant::now();
    let mut batch = String::new();
    for n in 0..100 {
        batch.push_str(&format!(
            "GET /v0/entity?id={} HTTP/1.1\r\nHost: localhost\r\n\r\n",
            ["k", "missing"][n % 2]
        ));
    }
    for _ in 0..32 {
        client.send(batch.as_bytes());
        for n in 0..100 {
            assert_eq!(client.read("GET").status, [200, 404][n % 2]);
        }
    }
    assert_eq!(
        node.metric("dendra_request_seconds_count{op=\"get\"}"),
        3200.0
    );
    // One loop works at one request at a time: their times have room one after the other.
    let sum_s = node.metric("dendra_request_seconds_sum{op=\"get\"}");
    let all_s = began.elapsed().as_secs_f64();
    assert!(sum_s > 0.0 && sum_s < all_s, "{sum_s} s in {all_s} s");
    let measured = count(&node, "get", "engine");
    assert!((100.0..=400.0).contains(&measured), "{measured} of 3200");
    for stage in ["parse", "form", "write"] {
        wait_for(&node, "get", stage, measured);
        assert!(seconds(&node, "get", stage) > 0.0, "{stage}");
    }
    for stage in ["queue", "replica_wait"] {
        assert_eq!(count(&node, "get", stage), 0.0, "{stage}");
    }
    assert_eq!(node.metric("dendra_stage_requests_per_sample"), 16.0);
}

#[test]
fn a_write_that_waits_for_its_sync_waits_at_the_log() {
    let (node, valve) = Valve::before(MemVfs::new(), |disk| {
        Node::on(disk, |settings| {
            settings.loops = Some(1);
            settings.durability = Durability::Sync;
        })
    });
    valve.hold_syncs();
    let mut client = node.client();
    let began = Instant::now();
    client.send(
        b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\nContent-Length: 1\r\n\r\nv",
    );
    hold_for_a_while(&node, &valve);
    assert_eq!(client.read("PUT").status, 201);
    let all_s = began.elapsed().as_secs_f64();
    let wal_s = seconds(&node, "put", "wal_wait");
    let engine_s = seconds(&node, "put", "engine");
    assert!(wal_s >= HELD.as_secs_f64(), "{wal_s} s");
    assert!(
        engine_s + wal_s <= all_s,
        "{engine_s} s and {wal_s} s of {all_s} s"
    );
    for stage in ["parse", "engine", "wal_wait", "form", "write"] {
        wait_for(&node, "put", stage, 1.0);
    }
}

#[test]
fn a_read_that_waits_for_the_disk_waits_in_the_engine_and_the_one_behind_it_in_the_queue() {
    let disk = MemVfs::new();
    let node = Node::on(Arc::new(disk.clone()), |_| {});
    assert_eq!(node.client().put("k", &vec![b'v'; 10_000]).status, 201);
    node.stop();
    let (node, valve) = Valve::before(disk, |disk| {
        Node::on(disk, |settings| {
            settings.loops = Some(1);
            settings.workers = 1;
        })
    });
    valve.hold_reads();
    let get =
        b"GET /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\n\r\n";
    let mut first = node.client();
    first.send(get);
    valve.wait_for(1);
    // Draws are at most 31 requests apart: among these one is measured, and all wait behind the
    // first.
    let mut others: Vec<_> = (0..32).map(|_| node.client()).collect();
    for other in &mut others {
        other.send(get);
    }
    node.wait_for_metric("dendra_store_queue_points", 32.0);
    hold_for_a_while(&node, &valve);
    for client in others.iter_mut().chain([&mut first]) {
        assert_eq!(client.read("GET").body.len(), 10_000);
    }
    assert!(seconds(&node, "get", "engine") >= HELD.as_secs_f64());
    assert!(seconds(&node, "get", "queue") >= HELD.as_secs_f64());
    let measured = count(&node, "get", "queue");
    assert!((2.0..33.0).contains(&measured), "{measured}");
    for stage in ["parse", "engine", "form", "write"] {
        wait_for(&node, "get", stage, measured);
    }
}

#[test]
fn every_chunk_of_a_measured_scan_is_counted() {
    let node = Node::with(|settings| settings.loops = Some(1));
    let mut client = node.client();
    let scanned = client.get("/v0/entities?start=a");
    assert_eq!(
        (scanned.status, scanned.trailer.as_deref()),
        (200, Some("complete"))
    );
    for stage in ["parse", "queue", "engine", "write"] {
        wait_for(&node, "scan", stage, 1.0);
    }
}
