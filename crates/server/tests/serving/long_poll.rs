//! Reads that wait: `GET /v0/entity?id=K&wait_s=S`.
//!
//! Invariants
//! 1. No test waits for a moment: a poll that shall wait is answered by a write behind it, and one
//!    that shall not wait has more time than the test's patience.
//!
//! Not here: parameters (crate `wire`), members (crate `dendra`, `tests/clusters/watch.rs`).
//! See: docs/api.md.

use crate::support::{Answer, Client, Node};
use std::io::Read;
use std::net::Shutdown;

/// Longer than a test may take.
const LONG: &str = "/v0/entity?id=k&wait_s=300";

fn unless(tag: &str) -> String {
    format!("If-None-Match: {tag}\r\n")
}

/// Sends a poll, and waits until it is one: the node has one watch more.
fn begin(node: &Node, target: &str, headers: &str) -> Client {
    let before = node.metric("dendra_watches");
    let mut client = node.client();
    let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    client.send(head.as_bytes());
    node.wait_until_metric("dendra_watches", before + 1.0);
    client
}

fn end(mut client: Client) -> Answer {
    client.read("GET")
}

#[test]
fn it_waits_for_another_value() {
    let node = Node::start();
    let mut writer = node.client();
    let first = writer.put("k", b"one").etag().to_owned();
    let waiting = begin(&node, LONG, &unless(&first));
    let second = writer.put("k", b"two").etag().to_owned();
    let answer = end(waiting);
    assert_eq!((answer.status, &answer.body[..]), (200, &b"two"[..]));
    assert_eq!(answer.etag(), second);
    assert!(answer.header("Dendra-Receipt").is_some());
    node.wait_for_metric("dendra_watches", 0.0);
}

#[test]
fn it_does_not_wait_where_the_state_is_another_one() {
    let node = Node::start();
    let mut client = node.client();
    let first = client.put("k", b"one").etag().to_owned();
    let second = client.put("k", b"two").etag().to_owned();
    let ask = |client: &mut Client, headers: &str| client.ask("GET", LONG, headers, b"");
    let answer = ask(&mut client, &unless(&first));
    assert_eq!((answer.status, &answer.body[..]), (200, &b"two"[..]));
    let answer = ask(&mut client, "");
    assert_eq!((answer.status, answer.etag()), (200, &second[..]));
    client.delete("k");
    assert_eq!(ask(&mut client, &unless(&second)).status, 404);
    // The connection goes on.
    assert_eq!(client.value("k").status, 404);
}

#[test]
fn a_deletion_and_an_end_are_states_and_a_value_that_comes_is_one() {
    let node = Node::start();
    let mut writer = node.client();
    let tag = writer.put("k", b"one").etag().to_owned();
    let waiting = begin(&node, LONG, &unless(&tag));
    writer.delete("k");
    assert_eq!(end(waiting).status, 404);
    let waiting = begin(&node, LONG, "");
    let tag = writer.put("k", &[7; 1 << 20]).etag().to_owned();
    let answer = end(waiting);
    assert_eq!((answer.status, answer.body.len()), (200, 1 << 20));
    let touched = writer.ask("POST", "/v0/touch?id=k&ttl=1", "", b"");
    assert_ne!(touched.etag(), tag);
    let waiting = begin(&node, LONG, &unless(touched.etag()));
    assert_eq!(end(waiting).status, 404, "it ended");
    writer.put("k", b"any");
    let waiting = begin(&node, LONG, "If-None-Match: *\r\n");
    writer.delete("k");
    assert_eq!(end(waiting).status, 404, "it is free");
}

#[test]
fn the_end_of_its_time_is_a_304_or_a_404() {
    let node = Node::start();
    let mut client = node.client();
    let tag = client.put("k", b"one").etag().to_owned();
    let short = "/v0/entity?id=k&wait_s=1";
    let answer = client.ask("GET", short, &unless(&tag), b"");
    assert_eq!((answer.status, answer.etag()), (304, &tag[..]));
    let answer = client.ask("GET", "/v0/entity?id=none&wait_s=1", "", b"");
    assert_eq!(answer.status, 404);
}

#[test]
fn a_client_that_closes_its_side_behind_the_request_is_answered() {
    let node = Node::start();
    node.client().put("k", b"one");
    // A client counts as gone when its request has waited for a while: it may be that slow here.
    let answered = std::iter::repeat_with(|| {
        let mut client = node.client();
        client.send(format!("GET {LONG} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        client.stream.shutdown(Shutdown::Write).expect("it is open");
        let mut bytes = Vec::new();
        let end = client.into_stream().read_to_end(&mut bytes);
        end.is_ok() && bytes.ends_with(b"one")
    });
    assert!(answered.take(50).any(|is_whole| is_whole));
}

#[test]
fn a_node_that_stops_says_what_it_knows() {
    // Now and then a node stops before it has looked at the key.
    let stopped = std::iter::repeat_with(|| {
        let node = Node::start();
        let tag = node.client().put("k", b"one").etag().to_owned();
        let waiting = begin(&node, LONG, &unless(&tag));
        node.stop();
        let answer = end(waiting);
        assert_eq!(answer.header("Connection"), Some("close"));
        answer.status
    });
    let known = stopped.take(50).find(|status| *status != 503);
    assert_eq!(known, Some(304));
}
