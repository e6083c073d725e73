//! Two failures at once: a disk is lost and replaced, and a block of another member is damaged.
//! Each waits for the other, until an operator accepts the loss.
//!
//! ```text
//! dev rot 3, dev wipe 2, dev replace 2 ─► the plan waits ─► accept-loss ─► shown ─► --confirm
//!     kill 3, start 3 ─► repaired from node 1 alone ─► the plan ends ─► each key reads at each node
//! ```
//!
//! Invariants
//! 1. No wait here is for a time. Each value was confirmed by all three copies, so none is lost.
//!
//! Not here: which loss may be accepted (crate `node`), damage that others repair (`rot.rs`).
//! See: docs/operating.md, "Damage".

mod support;

use serde_json::Value;
use support::dev::DevCluster;
use support::http::Client;
use support::{Run, dendra, run};

const KEYS: usize = 400;

fn value(key: usize) -> Vec<u8> {
    // Bytes that no compression makes small.
    let mut prng = dendra_base::Prng::new(key as u64);
    let mut bytes = vec![0; 2_000];
    prng.fill(&mut bytes);
    bytes
}

fn entity(key: usize, rest: &str) -> String {
    format!("/v0/entity?id=key-{key:05}{rest}")
}

fn ask(
    cluster: &DevCluster,
    node: usize,
    method: &str,
    target: &str,
    body: &[u8],
) -> Option<(u16, Vec<u8>)> {
    let mut client = Client::open(cluster.node(node)).ok()?;
    let answer = client.request(method, target, &[], body)?;
    Some((answer.status, answer.body))
}

/// The order at the admin port of a node.
fn accept_loss(cluster: &DevCluster, node: usize, words: &[&str]) -> Run {
    let mut command = dendra(["cluster", "accept-loss", "--url"]);
    run(command.arg(cluster.admin(node)).args(words))
}

/// The last word of the output.
fn shown_id(shown: &str) -> String {
    let id = shown.trim_end().rsplit(' ').next();
    id.expect("an id").to_owned()
}

/// Accepts the loss that node 3 shows now. `None` when there is none, or the picture has changed.
fn accept_what_is_shown(cluster: &DevCluster, damaged: &str) -> Option<String> {
    let shown = accept_loss(cluster, 3, &[damaged]);
    if shown.code != Some(0) {
        return None;
    }
    let id = shown_id(&String::from_utf8(shown.stdout).expect("it is text"));
    let done = accept_loss(cluster, 3, &[damaged, "--confirm", &id]);
    (done.code == Some(0)).then_some(id)
}

#[test]
#[ignore = "at length"]
fn a_lost_disk_and_a_damaged_block_end_with_an_accepted_loss() {
    let cluster = DevCluster::start(
        3,
        &[
            "--memory",
            "16MiB",
            "--memtable",
            "64KiB",
            "--value-bytes-max",
            "64KiB",
            "--scrub-every-s",
            "1",
            "--scrub-rate",
            "64MiB",
        ],
    );
    for key in 0..KEYS {
        let target = entity(key, "&ack=3");
        cluster.wait_until("no write to three", |it| {
            ask(it, 1 + key % 3, "PUT", &target, &value(key))
                .is_some_and(|(status, _)| status == 201)
        });
    }
    let url = |node: usize| {
        let status = cluster.status(node).expect("it answers");
        status["asked"].as_str().expect("a url").to_owned()
    };
    let (first, lost, damaged) = (url(1), url(2), url(3));
    let refused = accept_loss(&cluster, 3, &[&damaged]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("no damaged block"),
        "{}",
        refused.stderr
    );
    cluster.order(&["wipe", "2"]);
    cluster.rot_until_found(3, "dendra_scrub_spans_lost");
    // The lost member may come back until it is replaced.
    cluster.wait_until("it is not missed", |_| {
        let away = accept_loss(&cluster, 3, &[&damaged]);
        assert_eq!(away.code, Some(1));
        away.stderr.contains(&format!("--replace {lost}"))
    });
    cluster.order(&["replace", "2"]);
    let parts = [
        format!("{damaged} has damaged blocks, and their repair waits for {lost}:"),
        format!("filled from {first} alone"),
        "records  key-0".to_owned(),
        "in 256 of 256 partitions: 0-255".to_owned(),
        format!("only {damaged} and {lost} held is gone for good"),
    ];
    cluster.wait_until("the loss is not shown", |_| {
        let run = accept_loss(&cluster, 3, &[&damaged]);
        let shown = String::from_utf8(run.stdout).expect("it is text");
        parts.iter().all(|part| shown.contains(part))
    });
    cluster.wait_until("another id is no refusal", |_| {
        let other = accept_loss(&cluster, 3, &[&damaged, "--confirm", "0123456789abcdef"]);
        assert_eq!(other.code, Some(1));
        other.stderr.contains("is not what 0123456789abcdef names")
    });
    let shown = accept_loss(&cluster, 3, &[&damaged]).stdout;
    let id = shown_id(&String::from_utf8(shown).expect("it is text"));
    let elsewhere = accept_loss(&cluster, 1, &[&damaged, "--confirm", &id]);
    assert!(
        elsewhere
            .stderr
            .contains("at the admin port of that member"),
        "{}",
        elsewhere.stderr
    );
    assert_eq!(cluster.metric(3, "dendra_losses_accepted_total"), 0.0);

    // A scrub that finds more damage changes the picture: then an operator looks again.
    cluster.wait_until("the loss is not accepted", |it| {
        accept_what_is_shown(it, &damaged).is_some_and(|id| {
            // The same again is no error, and no second loss.
            let again = accept_loss(it, 3, &[&damaged, "--confirm", &id]);
            again.code == Some(0)
        })
    });
    assert!(cluster.metric(3, "dendra_losses_accepted_total") >= 1.0);
    assert!(
        cluster
            .log_of(3)
            .contains("records of this range may be lost")
    );
    // It is not said again behind a restart.
    cluster.order(&["kill", "3"]);
    cluster.order(&["start", "3"]);
    cluster.wait_until("the plan does not end", |it| {
        // Scrubs find one table after the other.
        accept_what_is_shown(it, &damaged);
        let status = it.status(1).unwrap_or_default();
        status["removed"] == 1 && status["plan"].is_null()
    });
    cluster.wait_until("damage stays", |it| {
        it.metric(3, "dendra_scrub_spans_lost") == 0.0
            && it.metric(3, "dendra_engine_tables_damaged") == 0.0
    });
    for node in 1..=3 {
        for key in 0..KEYS {
            let read = ask(&cluster, node, "GET", &entity(key, ""), b"");
            let read = read.expect("it answers");
            assert_eq!(
                (read.0, read.1 == value(key)),
                (200, true),
                "{key} at {node}"
            );
        }
    }
    cluster.wait_until("copies differ", |it| {
        let copies = |node| ask(it, node, "GET", "/v0/entities?start=%00&scope=local", b"");
        let first = copies(1);
        first.as_ref().is_some_and(|copies| copies.0 == 200)
            && (2..=3).all(|node| copies(node) == first)
    });
    let history = run_history(&cluster);
    let losses = history["losses"].as_array().expect("a list");
    assert!(!losses.is_empty(), "{history}");
    assert_eq!(losses[0]["lost"], serde_json::json!([lost]));
}

fn run_history(cluster: &DevCluster) -> Value {
    let mut command = dendra(["cluster", "history", "--json", "--url"]);
    let run = run(command.arg(cluster.admin(3)));
    serde_json::from_slice(&run.stdout).expect("it is JSON")
}
