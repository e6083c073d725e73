//! Copies become equal by themselves: no client reads, and no hint is there.
//!
//! ```text
//! three members stop ─► one folder gets records and tombstones that the others never saw ─► they start
//! copies of all three, as each one alone shows them ─► equal, within the patience of a test
//! ```
//!
//! Invariants
//! 1. Records that are written into a folder are those of a member that a write reached alone.
//! 2. Members are asked for the records that they hold themselves: no read repairs any.
//!
//! Not here: every way to differ (crate `node`, `tests/compare`), every schedule (crate `sim`).

use crate::support::cluster::{Cluster, NODES};
use crate::support::http::{Client, PATIENCE};
use crate::support::store_of_stopped;
use dendra_base::{CellRef, Version};
use dendra_engine::{Batch, Guard};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Records that one member alone has.
const ALONE: u64 = 3_000;
/// Records that all have, and of which one member has a later deletion.
const DELETED: u64 = 200;

/// In milliseconds since 1970: writes of that time are not under way.
pub(super) fn an_hour_ago() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("behind 1970").as_millis() as u64 - 3_600_000
}

/// Writes cells of three copies into the folder of a member that is stopped.
pub(super) fn write_alone(folder: &Path, cells: &[(Vec<u8>, Option<&[u8]>)], at_ms: u64) {
    let engine = store_of_stopped(folder);
    let mut batch = Batch::new();
    for (number, (raw, value)) in (0..).zip(cells) {
        let key = dendra_base::Key::user(raw);
        let version = Version {
            hlc: (at_ms << 16) + number,
            origin: 77,
            rmw: 0,
        };
        let mut cell = match value {
            Some(value) => CellRef::value(key.as_stored(), version, value),
            None => CellRef::tombstone(key.as_stored(), version),
        };
        cell.copies = 3;
        batch
            .push(number, key.as_stored(), &cell, Guard::Newest, 1)
            .expect("it fits");
        if batch.len() == 64 || number + 1 == cells.len() as u64 {
            assert!(engine.submit(&mut batch).is_ok(), "there is room");
            engine.commit(&mut Vec::new()).expect("the disk works");
        }
    }
    engine.close(1).expect("the disk works");
}

/// The record that a member holds itself.
pub(super) fn held(cluster: &Cluster, member: usize) -> Vec<u8> {
    let mut client = Client::open(cluster.listen[member]).expect("it listens");
    let all = "/v0/entities?scope=local&start=a&end=z";
    let ndjson = ["Accept: application/x-ndjson"];
    let answer = client.request("GET", all, &ndjson, b"").expect("a scan");
    assert_eq!(answer.status, 200);
    answer.body
}

#[test]
fn copies_that_no_client_reads_become_equal_and_the_log_says_so() {
    let mut cluster = Cluster::start(&[]);
    cluster.admin = "127.0.0.1:0";
    cluster.wait_for_all_links();
    cluster.kill_all();
    let name = |what: &str, number: u64| format!("{what}{number:05}").into_bytes();
    let all: Vec<_> = (0..DELETED)
        .map(|number| (name("deleted", number), Some(&b"to be deleted"[..])))
        .collect();
    let gone: Vec<_> = all.iter().map(|(key, _)| (key.clone(), None)).collect();
    let alone: Vec<_> = (0..ALONE)
        .map(|number| (name("alone", number), Some(&b"of one copy"[..])))
        .collect();
    let at_ms = an_hour_ago();
    for member in 0..NODES {
        let folder = cluster.folder.path().join(member.to_string());
        write_alone(&folder, &all, at_ms);
        match member {
            0 => write_alone(&folder, &alone, at_ms),
            1 => write_alone(&folder, &gone, at_ms + 60_000),
            _ => {}
        }
    }
    cluster.start_all();
    let deadline = Instant::now() + PATIENCE;
    let lines = |held: &[u8]| held.iter().filter(|byte| **byte == b'\n').count() as u64;
    let mut last: Vec<Vec<u8>> = Vec::new();
    // Whole lines for each of the records, and none for those that were deleted.
    let is_whole = |held: &[u8]| lines(held) > 0 && lines(held).is_multiple_of(ALONE);
    let is_equal = |last: &[Vec<u8>]| {
        last.len() == NODES && last.iter().all(|held| *held == last[0]) && is_whole(&last[0])
    };
    while !is_equal(&last) {
        let counts: Vec<u64> = last.iter().map(|held| lines(held)).collect();
        assert!(Instant::now() < deadline, "they stay different: {counts:?}");
        crate::support::rest();
        last = (0..NODES).map(|member| held(&cluster, member)).collect();
    }
    let is_told = |cluster: &Cluster| {
        let logs = (0..NODES).map(|member| cluster.log_of(member));
        logs.filter(|log| log.contains("a comparison found copies that differed"))
            .count()
            > 0
    };
    while !is_told(&cluster) {
        assert!(Instant::now() < deadline, "the log does not say it");
        crate::support::rest();
    }
    let moved: f64 = (0..NODES)
        .flat_map(|member| ["sent", "fetched"].map(|what| (member, what)))
        .map(|(member, what)| cluster.metrics(member, &format!("dendra_compare_{what}_total{{")))
        .sum();
    // Each member lacks something of each of two others at most.
    let needed = 2 * (ALONE + DELETED);
    let most = 2 * needed;
    assert!(
        moved > 0.9 * needed as f64 && moved <= most as f64,
        "{moved}"
    );
}
