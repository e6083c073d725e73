//! One member's wall clock is wrong: nothing that was promised to a client is taken away.
//!
//! ```text
//! values with a time to live, on all ─► member 1 is killed ─► starts 2 h ahead, flushes ─► is set right
//!     ─► each value at each member, no name is free
//! clients at all three members, while the clock of one jumps ─► one history
//! ```
//!
//! Invariants
//! 1. Each value has far more time left than the test takes.
//!
//! Not here: most clocks wrong, and every schedule (crate `sim`).
//! See: docs/promises.md, "Expiry".

use super::heal::held;
use crate::support::clients::under_load;
use crate::support::cluster::{Cluster, NODES};
use crate::support::http::{Client, PATIENCE};
use crate::support::rest;
use dendra_sim::history::{ClientEnd, ClientOp, SeenCondition};
use std::time::Instant;

const LOCKS: usize = 40;
const BENT: usize = 1;
/// Merges of the member whose clock is wrong: seconds of them.
const MERGES: f64 = 12.0;
/// Tables are written soon: an ended value could go on the way into one.
const SMALL: [&str; 6] = [
    "--memory",
    "16MiB",
    "--memtable",
    "64KiB",
    "--value-bytes-max",
    "64KiB",
];

fn client(cluster: &Cluster, node: usize) -> Client {
    Client::open(cluster.listen[node]).expect("it listens")
}

fn lock(number: usize) -> String {
    format!("lock-{number:02}")
}

/// Takes all locks for so long, at all three members.
fn take_locks(cluster: &Cluster, ttl: u64) {
    let mut client = client(cluster, 0);
    for number in 0..LOCKS {
        let target = format!("/v0/entity?id={}&ttl={ttl}&ack=3", lock(number));
        let answer = client.request("PUT", &target, &["If-None-Match: *"], b"holder");
        assert_eq!(answer.expect("an answer").status, 201);
    }
}

/// Every lock is held, at every member; none is given to another one.
fn are_all_held(cluster: &Cluster) {
    for node in 0..NODES {
        let mut client = client(cluster, node);
        for number in 0..LOCKS {
            let read = client.ask("GET", &lock(number), &[], b"");
            let read = read.expect("an answer");
            let said = (read.status, read.body.as_slice());
            assert_eq!(said, (200, &b"holder"[..]), "{number} at {node}");
            let taken = client.ask("PUT", &lock(number), &["If-None-Match: *"], b"thief");
            assert_eq!(taken.expect("an answer").status, 412, "{number} at {node}");
        }
    }
    let deadline = Instant::now() + PATIENCE;
    let is_whole = |copy: &[u8]| copy.windows(5).filter(|key| *key == b"lock-").count() >= LOCKS;
    while !(0..NODES).all(|node| is_whole(&held(cluster, node))) {
        assert!(Instant::now() < deadline, "a member lacks copies");
        rest();
    }
}

#[test]
fn a_member_that_starts_with_its_clock_ahead_gives_no_lock_away() {
    let mut cluster = Cluster::start_with_clock_of(BENT, &SMALL);
    cluster.wait_for_all_links();
    take_locks(&cluster, 1_800);
    // Two hours, and a little more than their time: a step that no check of a minute sees.
    for ahead in [7_200, 1_801] {
        cluster.kill(BENT);
        cluster.bend(ahead);
        cluster.restart_until_ready(BENT);
        cluster.wait_until_usable(BENT);
        // It takes no writes of its own clients now; the others' writes reach it.
        let mut other = client(&cluster, 0);
        let mut number = 0;
        // A merge takes the bytes of what has ended, by the clock that the store was told last.
        while cluster.metric(BENT, "dendra_engine_compactions_total ") < MERGES {
            let id = format!("other-{ahead}-{number}");
            let written = other.ask("PUT", &id, &[], &[7; 2_000]);
            assert_eq!(written.expect("an answer").status, 201);
            number += 1;
        }
        cluster.bend(0);
        are_all_held(&cluster);
        for node in 0..NODES {
            let differing = cluster.metric(node, "dendra_disputes_total ");
            assert_eq!(
                differing, 0.0,
                "{node} saw a value under whose version another has none"
            );
        }
    }
}

#[test]
fn clients_see_one_object_while_a_member_s_clock_jumps() {
    let cluster = Cluster::start_with_clock_of(BENT, &SMALL);
    cluster.wait_for_all_links();
    let doors = [0, 1, 2].map(|node| (node, cluster.listen[node]));
    let told = under_load("jumps", &doors, 20_000, |load| {
        for ahead in [45, 0, -45, 7_200, -7_200, 59, 61, -61, 0] {
            load.run_on(100);
            cluster.bend(ahead);
        }
        load.run_on(100);
    });
    // A conditional write that was overtaken may say that it does not know, in any weather.
    let is_failed = |op: &&ClientOp| match op.end {
        ClientEnd::NotApplied => true,
        ClientEnd::Unknown => op.wish.base() == SeenCondition::Any,
        _ => false,
    };
    let failed: Vec<&ClientOp> = told.history.iter().filter(is_failed).collect();
    // The member itself refuses writes while its clock is wrong by more than a minute.
    let elsewhere = failed.iter().filter(|op| op.member != BENT).count();
    let (all, said) = (told.history.len(), told.said());
    assert!(
        elsewhere <= all / 50,
        "{elsewhere} of {all} failed at members whose clocks are right: {said:?}"
    );
    let is_about_the_clock = |it: &String| it.contains("no majority of the members agrees with");
    assert!(said.iter().any(is_about_the_clock), "{said:?}");
}
