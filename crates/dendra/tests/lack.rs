//! The answers to clients when too few members can be had, and that answers of level `linearizable`
//! do not contradict.
//!
//! ```text
//! cut, silent, frozen, killed ─► every kind of request ─► 504, and its outcome ─► mended ─► was it true?
//! ```
//!
//! Invariants
//! 1. The same lack is the same status, however the others went away: `503` is for a node that is
//!    too busy.
//! 2. The answers are compared with the records that all three copies hold afterwards.
//! 3. No wait is for a time. "At once" means long before the deadline: `SOON` is for machines that
//!    are busy.
//!
//! Not here: one of three in trouble (`cluster.rs`), every schedule of messages (crate `sim`).
//! See: docs/api.md, docs/verification.md.

mod support;

use std::time::{Duration, Instant};
use support::cluster::{Cluster, NODES};
use support::http::{Answer, Client, PATIENCE};
use support::proxy::LinkFault;
use support::signal;

/// Well below the deadline of a minute that requests have here.
const SOON: Duration = Duration::from_secs(15);
/// The deadline of a client that asks before a lack can be known.
const BRIEF: &str = "Dendra-Timeout-Ms: 400";
/// Enough for a round of two that are there, and over before a link to the third is lost by its
/// silence.
const BELOW_SILENCE: &str = "Dendra-Timeout-Ms: 1500";
/// Records whose first owner is any of the three: that none has the third one is less likely than 1
/// in 100,000.
const RECORDS: usize = 32;

const HTTP: [&str; 4] = ["--durability", "os", "--peer-transport", "http"];
const FRAMES: [&str; 2] = ["--durability", "os"];

fn at(cluster: &Cluster, node: usize) -> Client {
    Client::open(cluster.listen[node]).expect("it listens")
}

fn ask(client: &mut Client, method: &str, target: &str, headers: &[&str], body: &[u8]) -> Answer {
    let answer = client.request(method, target, headers, body);
    answer.unwrap_or_else(|| panic!("{method} {target}: the connection broke"))
}

fn is_about(answer: &Answer, word: &str) -> bool {
    answer.body.starts_with(word.as_bytes())
}

/// Requests at the default level: none of them may change anything while a majority is away.
fn every_kind(name: &str, version: &str) -> Vec<(&'static str, String, Option<String>)> {
    let id = |key: &str| format!("/v0/entity?id={name}-{key}");
    vec![
        ("GET", id("held"), None),
        ("GET", id("never"), None),
        ("PUT", id("held"), None),
        ("PUT", id("never"), None),
        ("DELETE", id("held"), None),
        ("PUT", id("never"), Some("If-None-Match: *".to_owned())),
        ("PUT", id("held"), Some(format!("If-Match: {version}"))),
        ("DELETE", id("held"), Some(format!("If-Match: {version}"))),
        ("GET", format!("/v0/entities?prefix={name}"), None),
    ]
}

fn body_of(method: &str) -> &'static [u8] {
    if method == "PUT" { b"new" } else { b"" }
}

/// Member 0 has none of the others. Its answers are checked from the first moment on, until it
/// knows that they are away.
fn hears_504(client: &mut Client, name: &str, version: &str) {
    let deadline = Instant::now() + PATIENCE;
    for (method, target, condition) in every_kind(name, version) {
        let mut is_known = false;
        while !is_known {
            assert!(Instant::now() < deadline, "{name}: {method} {target}");
            let mut headers = vec![BRIEF];
            headers.extend(condition.as_deref());
            let answer = ask(client, method, &target, &headers, body_of(method));
            let told = String::from_utf8_lossy(&answer.body);
            let what = format!("{name}: {method} {target} {condition:?}: {told}");
            assert_eq!(answer.status, 504, "{what}");
            assert!(answer.receipt.ends_with("outcome=not-applied"), "{what}");
            is_known = is_about(&answer, "unreachable: ");
            assert!(is_known || is_about(&answer, "too-few-answers: "), "{what}");
        }
    }
    for (method, target, condition) in every_kind(name, version) {
        let headers: Vec<&str> = condition.as_deref().into_iter().collect();
        let began = Instant::now();
        let answer = ask(client, method, &target, &headers, body_of(method));
        let what = format!("{name}: {method} {target} took {:?}", began.elapsed());
        assert!(is_about(&answer, "unreachable: "), "{what}: {answer:?}");
        assert!(began.elapsed() < SOON, "{what}");
    }
}

/// All of it was true: the records of before are there, and no other one came.
fn nothing_was_applied(cluster: &Cluster, name: &str, version: &str) {
    cluster.wait_for_all_links();
    let mut client = at(cluster, 1);
    let of_all = |key: &str| format!("/v0/entity?id={name}-{key}&ack=3&from=3");
    let held = ask(&mut client, "GET", &of_all("held"), &[], b"");
    assert_eq!(held.etag.as_deref(), Some(version), "{name}: {held:?}");
    let never = ask(&mut client, "GET", &of_all("never"), &[], b"");
    assert_eq!(never.status, 404, "{name}: {never:?}");
}

fn same_lack_same_status(flags: &[&str]) {
    type Deed = fn(&mut Cluster);
    let cut: Deed = |cluster| between_0_and_others(cluster, LinkFault::Cut);
    let stall: Deed = |cluster| between_0_and_others(cluster, LinkFault::Stall);
    let freeze: Deed = |cluster| (1..NODES).for_each(|node| signal(cluster.child(node), "STOP"));
    let kill: Deed = |cluster| (1..NODES).for_each(|node| cluster.kill(node));
    let heal: Deed = |cluster| cluster.faults.heal();
    let thaw: Deed = |cluster| (1..NODES).for_each(|node| signal(cluster.child(node), "CONT"));
    let start: Deed = |cluster| {
        (1..NODES).for_each(|node| cluster.start_node(node));
        (1..NODES).for_each(|node| cluster.wait_until_usable(node));
    };
    let mut cluster = Cluster::start(flags);
    let ways = [
        ("cut", cut, heal),
        ("silent", stall, heal),
        ("frozen", freeze, thaw),
        ("killed", kill, start),
    ];
    for (name, fault, mend) in ways {
        cluster.wait_for_all_links();
        let mut client = at(&cluster, 0);
        let target = format!("/v0/entity?id={name}-held&ack=3&from=3");
        let stored = ask(&mut client, "PUT", &target, &[], b"old");
        let version = stored.etag.expect("it was stored");
        fault(&mut cluster);
        hears_504(&mut client, name, &version);
        mend(&mut cluster);
        nothing_was_applied(&cluster, name, &version);
    }
}

fn between_0_and_others(cluster: &Cluster, fault: LinkFault) {
    for other in 1..NODES {
        cluster.faults.set(0, other, fault);
        cluster.faults.set(other, 0, fault);
    }
}

#[test]
fn who_cannot_get_enough_replicas_hears_504_however_they_went_away() {
    same_lack_same_status(&FRAMES);
}

#[test]
fn who_cannot_get_enough_replicas_hears_504_however_they_went_away_over_plain_http() {
    same_lack_same_status(&HTTP);
}

#[test]
fn a_write_that_was_sent_is_unknown_and_one_that_was_not_is_not_applied() {
    let cluster = Cluster::start(&FRAMES);
    cluster.wait_for_all_links();
    let mut client = at(&cluster, 0);
    signal(cluster.child(2), "STOP");
    let all = |key: &str| format!("/v0/entity?id={key}&ack=3&from=3");
    let sent = ask(&mut client, "PUT", &all("sent"), &[BELOW_SILENCE], b"v");
    assert_eq!(sent.status, 504, "{sent:?}");
    assert!(is_about(&sent, "too-few-answers: 2 of 3 "), "{sent:?}");
    assert_eq!(sent.receipt, "acks=2/3; outcome=unknown");
    // A read of three counts answers, and has no outcome that could be in doubt.
    let read = ask(&mut client, "GET", &all("sent"), &[BRIEF], b"");
    assert_eq!(read.status, 504, "{read:?}");
    assert!(read.receipt.ends_with("outcome=not-applied"), "{read:?}");
    // From when on the link is known to be lost no question is sent any more.
    let deadline = Instant::now() + PATIENCE;
    let mut number = 0;
    let unsent = loop {
        assert!(Instant::now() < deadline, "the silence is not noticed");
        let key = format!("unsent{number}");
        let answer = ask(&mut client, "PUT", &all(&key), &[BRIEF], b"v");
        assert_eq!(answer.status, 504, "{answer:?}");
        if is_about(&answer, "unreachable: ") {
            assert_eq!(answer.receipt, "outcome=not-applied");
            break key;
        }
        number += 1;
    };
    signal(cluster.child(2), "CONT");
    cluster.wait_for_all_links();
    let read = |key: &str| ask(&mut at(&cluster, 1), "GET", &all(key), &[], b"");
    assert_eq!(
        read("sent").body,
        b"v",
        "two of three said that they had it"
    );
    assert_eq!(read(&unsent).status, 404);
}

#[test]
fn a_record_of_one_copy_that_a_linearizable_read_showed_is_there_for_the_next_one() {
    let mut cluster = Cluster::start(&FRAMES);
    cluster.wait_for_all_links();
    let mut client = at(&cluster, 0);
    let id = |number: usize| format!("/v0/entity?id=single{number}");
    for number in 0..RECORDS {
        let target = format!("{}&ack=1&from=1", id(number));
        let stored = ask(&mut client, "PUT", &target, &[], b"v");
        assert_eq!(stored.receipt, "acks=1/1; level=eventual; durability=os");
        let read = ask(&mut client, "GET", &id(number), &[], b"");
        assert!(read.receipt.contains("level=linearizable"), "{read:?}");
        // Of one copy it is shown or not; from the first answer that shows it on all do.
        if read.status != 200 {
            assert_eq!(read.status, 404, "{read:?}");
            // Its owner is asked this time: then it is shown.
            let target = format!("{}&ack=3&from=3", id(number));
            let read = ask(&mut client, "GET", &target, &[], b"");
            assert_eq!(read.status, 200, "{read:?}");
        }
    }
    cluster.kill(2);
    for node in [0, 1] {
        let mut client = at(&cluster, node);
        for number in 0..RECORDS {
            let read = ask(&mut client, "GET", &id(number), &[], b"");
            assert_eq!(read.status, 200, "single{number} at {node}: {read:?}");
            assert!(read.receipt.contains("level=linearizable"), "{read:?}");
        }
    }
}

#[test]
fn a_scan_of_a_cluster_does_not_say_that_a_majority_holds_what_it_shows() {
    let cluster = Cluster::start(&FRAMES);
    let mut client = at(&cluster, 0);
    let target = "/v0/entities?prefix=k&limit=1";
    client.send("GET", target, &[], b"").expect("sent");
    let receipt = client.head_receipt().expect("an answer");
    assert_eq!(receipt, "acks=2/3; level=eventual; durability=os");
}
