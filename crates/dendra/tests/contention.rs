//! Conditional writes of many clients to one key, without faults: each client learns the fate of
//! its write.
//!
//! ```text
//! 16 clients ─ If-Match, Prefer: return=representation ─► node 1, node 2, node 3 ─► 201, or 412 with the value
//! ```
//!
//! Invariants
//! 1. No fault is injected. One reason for an unknown outcome is left: more than 64 rivals get
//!    through while a member has no processor. Not one in a hundred writes may have it on a busy
//!    machine.
//! 2. The counter ends at the number of writes that were told to be stored, and of the unknown ones
//!    that were.
//!
//! Not here: members that fail (`cluster.rs`), every schedule of messages (crate `sim`).
//! See: docs/verification.md.

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use support::cluster::{Cluster, NODES};
use support::http::{Answer, Client};

const CLIENTS: usize = 16;
const INCREMENTS: usize = 800;
const PREFER: &str = "Prefer: return=representation";

/// A version of the counter, and its value.
type Known = (String, usize);

fn known(answer: &Answer) -> Known {
    let text = String::from_utf8_lossy(&answer.body);
    let value = text.parse().expect("the body is the counter");
    (answer.etag.clone().expect("it has a version"), value)
}

#[derive(Default)]
struct Count {
    stored: AtomicUsize,
    attempts: AtomicUsize,
    /// Writes whose outcome is unknown.
    overtaken: AtomicUsize,
}

/// Counts until all together have counted so far.
fn increment(address: SocketAddr, count: &Count) {
    let mut client = Client::open(address).expect("it listens");
    let first = client.ask("GET", "counter", &[], b"");
    let (mut etag, mut value) = known(&first.expect("it answers"));
    while count.stored.load(Ordering::Relaxed) < INCREMENTS {
        count.attempts.fetch_add(1, Ordering::Relaxed);
        let condition = format!("If-Match: {etag}");
        let next = (value + 1).to_string();
        let headers = [condition.as_str(), PREFER];
        let answer = client.ask("PUT", "counter", &headers, next.as_bytes());
        let answer = answer.expect("it answers");
        match answer.status {
            201 => {
                count.stored.fetch_add(1, Ordering::Relaxed);
                etag = answer.etag.expect("it has a version");
                value += 1;
            }
            412 => (etag, value) = known(&answer),
            504 if String::from_utf8_lossy(&answer.body).starts_with("overtaken") => {
                count.overtaken.fetch_add(1, Ordering::Relaxed);
                let read = client.ask("GET", "counter", &[], b"");
                (etag, value) = known(&read.expect("it answers"));
            }
            status => {
                let said = String::from_utf8_lossy(&answer.body);
                panic!("{status} {} {said}", answer.receipt);
            }
        }
    }
}

#[test]
fn while_members_answer_every_conditional_write_learns_its_fate() {
    let cluster = Cluster::start(&["--durability", "os"]);
    cluster.wait_for_all_links();
    let mut client = Client::open(cluster.listen[0]).expect("it listens");
    let stored = client.ask("PUT", "counter", &[], b"0");
    assert_eq!(stored.expect("it answers").status, 201);
    let (count, began) = (Count::default(), Instant::now());
    std::thread::scope(|scope| {
        for place in 0..CLIENTS {
            let (address, count) = (cluster.listen[place % NODES], &count);
            scope.spawn(move || increment(address, count));
        }
    });
    let (stored, overtaken) = (count.stored.into_inner(), count.overtaken.into_inner());
    println!(
        "{stored} increments in {:?}, {} attempts, {overtaken} unknown",
        began.elapsed(),
        count.attempts.into_inner()
    );
    assert!(overtaken <= INCREMENTS / 100, "{overtaken} are unknown");
    let last = client.ask("GET", "counter", &[], b"");
    let counted = known(&last.expect("it answers")).1;
    let possible = stored..=stored + overtaken;
    assert!(
        possible.contains(&counted),
        "{counted} is not in {possible:?}"
    );
}
