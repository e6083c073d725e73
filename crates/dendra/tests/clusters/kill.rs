//! `kill -9` of the real process under load, again and again on one folder, with a checker.
//!
//! ```text
//! round: start ─► check all keys ─► writers, each on keys of its own ─► SIGKILL in the middle
//!   after an answer     the key holds what was written
//!   without an answer   the key holds that, or what it held before
//! ```
//!
//! Invariants
//! 1. A key has one writer, which has one request in flight: the possible values are known exactly.
//! 2. The kill comes after a drawn number of answers, not after a time: no thread here sleeps.
//!
//! Not here: power loss (crate `engine`, `crash.rs`), the CLI (`node.rs`).

use crate::support::Node;
use crate::support::http::Client;
use dendra_base::Prng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

const ROUNDS: u64 = 12;
const WRITERS: u64 = 6;
/// Keys of one writer.
const KEYS: u64 = 40;

/// The possible values of a key: exactly one of these.
type Possible = Vec<Option<Vec<u8>>>;

/// Answered: exactly one possibility. In flight at the kill: two.
type Keys = BTreeMap<String, Possible>;

/// One writer until its connection breaks: plain and conditional writes and deletes.
fn write_until_killed(node: &Node, keys: &mut Keys, prng: &mut Prng, answers: &AtomicU64) {
    let mut client = Client::open(node.address()).expect("the node listens");
    let names: Vec<String> = keys.keys().cloned().collect();
    let mut tags: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let key = &names[prng.below(names.len() as u64) as usize];
        let mut value = vec![0; (200 + prng.below(3000)) as usize];
        prng.fill(&mut value);
        let is_delete = prng.chance(1, 4);
        let condition = match tags.get(key) {
            Some(tag) if prng.chance(1, 3) => Some(format!("If-Match: {tag}")),
            _ => None,
        };
        let headers: Vec<&str> = condition.as_deref().into_iter().collect();
        let next = (!is_delete).then_some(value);
        let possible = keys.get_mut(key).expect("its own key");
        possible.push(next.clone());
        let (method, body) = match &next {
            Some(value) => ("PUT", value.as_slice()),
            None => ("DELETE", &[][..]),
        };
        let Some(answer) = client.ask(method, key, &headers, body) else {
            return;
        };
        match answer.status {
            201 | 202 => {
                possible.drain(..possible.len() - 1);
                tags.remove(key);
                if let (false, Some(tag)) = (is_delete, answer.etag) {
                    tags.insert(key.clone(), tag);
                }
            }
            // Refused under pressure: the record did not change.
            503 => drop(possible.pop()),
            other => panic!("{method} {key} was answered with {other}"),
        }
        answers.fetch_add(1, Ordering::SeqCst);
    }
}

/// Reads every key and settles the requests that were in flight.
fn check(node: &Node, all: &mut [Keys], round: u64) {
    let mut client = Client::open(node.address()).expect("the node listens");
    for (key, possible) in all.iter_mut().flatten() {
        let answer = client.ask("GET", key, &[], b"").expect("the node answers");
        let found = match answer.status {
            200 => Some(answer.body),
            404 => None,
            other => panic!("GET {key} was answered with {other}"),
        };
        assert!(
            possible.contains(&found),
            "round {round}: {key} holds {:?} bytes, possible are {:?}",
            found.as_ref().map(Vec::len),
            possible
                .iter()
                .map(|p| p.as_ref().map(Vec::len))
                .collect::<Vec<_>>()
        );
        *possible = vec![found];
    }
}

fn kill_again_and_again(durability: &str, seed: u64) {
    let data = tempfile::tempdir().expect("a temporary folder");
    let flags = [
        "--durability",
        durability,
        "--memory",
        "16MiB",
        "--memtable",
        "1MiB",
        "--value-bytes-max",
        "64KiB",
    ];
    let mut prng = Prng::new(seed);
    let key = |writer, n| (format!("writer-{writer}-key-{n:03}"), vec![None]);
    let mut all: Vec<Keys> = (0..WRITERS)
        .map(|w| (0..KEYS).map(|n| key(w, n)).collect())
        .collect();
    for round in 0..ROUNDS {
        let node = Node::start(data.path(), &flags);
        check(&node, &mut all, round);
        let answers = AtomicU64::new(0);
        let kill_after = 200 + prng.below(1500);
        let running = &node;
        std::thread::scope(|scope| {
            let writers: Vec<_> = all
                .iter_mut()
                .map(|keys| {
                    let mut own = Prng::new(prng.next_u64());
                    let answers = &answers;
                    scope.spawn(move || write_until_killed(running, keys, &mut own, answers))
                })
                .collect();
            while answers.load(Ordering::SeqCst) < kill_after {
                assert!(!writers.iter().all(|w| w.is_finished()), "somebody writes");
                crate::support::rest();
            }
            crate::support::kill_process(running.pid());
            for writer in writers {
                writer.join().expect("a writer's answers are as expected");
            }
        });
        node.reap();
    }
    let node = Node::start(data.path(), &flags);
    check(&node, &mut all, ROUNDS);
    let (code, log) = node.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    let check = crate::support::run(crate::support::dendra(["check"]).arg(data.path()));
    assert_eq!(check.code, Some(0), "{}", check.stderr);
}

#[test]
fn nothing_answered_is_lost_to_kill_9_with_sync() {
    kill_again_and_again("sync", 1);
}

#[test]
fn nothing_answered_is_lost_to_kill_9_with_os() {
    kill_again_and_again("os", 2);
}
