//! A crowd of clients that asks for more than one loop serves in time.
//!
//! Invariants
//! 1. The target is so small that any delay is above it; how many stand in line is real.
//!
//! Not here: what is true then (the tests).

use super::{Answer, Client, Node, PATIENCE};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const CLIENTS: usize = 200;
/// Requests that each client sends at once, so that the loop has work for longer than a client
/// needs to send it.
pub(crate) const PIPELINED: usize = 50;
/// No loop is that quick: requests that come for longer than 100 ms stand in line.
pub(crate) const TARGET: Duration = Duration::from_micros(1);

pub(crate) fn node(target: Duration) -> Node {
    let node = Node::with(|settings| {
        settings.loops = Some(1);
        settings.queue_delay_target = target;
    });
    assert_eq!(node.client().put("k", b"v").status, 201);
    node
}

pub(crate) fn ask(clients: &mut [Client]) {
    let requests = b"GET /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(PIPELINED);
    for client in clients {
        client.send(&requests);
    }
}

pub(crate) fn answers(clients: &mut [Client]) -> Vec<Answer> {
    let mut answers = Vec::new();
    for client in clients {
        answers.extend((0..PIPELINED).map(|_| client.read("GET")));
    }
    answers
}

/// All ask, then all are answered.
pub(crate) fn round(clients: &mut [Client]) -> Vec<Answer> {
    ask(clients);
    answers(clients)
}

/// Rounds until requests stand in line and one was refused for it; that answer.
pub(crate) fn overload(node: &Node, clients: &mut [Client]) -> Answer {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let answers = round(clients);
        assert!(
            answers
                .iter()
                .all(|answer| [200, 503].contains(&answer.status))
        );
        if let Some(refused) = answers.into_iter().find(|answer| answer.status == 503) {
            return refused;
        }
    }
    panic!(
        "{} loops are overloaded",
        node.metric("dendra_overloaded_loops ")
    );
}

/// Tries a comparison of times at most fifteen times: a busy machine can spoil some of them. The
/// tests of one file that compare times run one after the other.
pub(crate) fn holds_once(mut holds: impl FnMut() -> bool) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    assert!((0..15).any(|_| holds()), "none of fifteen tries held");
}
