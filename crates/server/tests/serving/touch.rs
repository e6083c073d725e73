//! Touches of a node by itself: `POST /v0/touch`.
//!
//! Invariants
//! 1. A touch changes version and end of a live value, and nothing else.
//!
//! Not here: the log (crate `engine`, `tests/store/touch.rs`), clusters (crate `dendra`,
//! `tests/lease.rs`).
//! See: docs/api.md, docs/locks.md.

use crate::support::{Answer, Node};
use std::time::{SystemTime, UNIX_EPOCH};

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("the clock is behind 1970").as_millis() as u64
}

fn end_of(answer: &Answer) -> u64 {
    let end = answer.header("Dendra-Expires").expect("the value ends");
    end.parse().expect("a number of milliseconds")
}

fn if_match(tag: &str) -> String {
    format!("If-Match: {tag}\r\n")
}

#[test]
fn a_touch_gives_a_value_another_version_and_end() {
    let node = Node::start();
    let mut client = node.client();
    let value = vec![7; 1 << 20];
    let first = client.ask("PUT", "/v0/entity?id=k&ttl=5", "", &value);
    let first = first.etag().to_owned();
    let before = now_ms();
    let touched = client.ask("POST", "/v0/touch?id=k&ttl=60", "", b"");
    assert_eq!((touched.status, touched.body.len()), (200, 0));
    let end = end_of(&touched);
    assert!((before + 60_000..=now_ms() + 60_000).contains(&end));
    assert_eq!(
        touched.header("Dendra-Receipt"),
        Some("acks=1/1; level=linearizable; durability=sync")
    );
    let second = touched.etag().to_owned();
    assert!(second > first, "{second} is not above {first}");
    let seen = client.value("k");
    assert_eq!((seen.etag(), end_of(&seen)), (second.as_str(), end));
    assert!(seen.body == value, "it is another value");
    // A lease that was lost: its version is not there any more.
    let late = client.ask("POST", "/v0/touch?id=k&ttl=60", &if_match(&first), b"");
    assert_eq!((late.status, late.etag()), (412, second.as_str()));
    assert_eq!(late.header("Dendra-Receipt"), Some("outcome=not-applied"));
    let renewed = client.ask("POST", "/v0/touch?id=k&ttl=1", &if_match(&second), b"");
    assert_eq!(renewed.status, 200);
    assert!(end_of(&renewed) < end, "a touch may shorten");
    assert_eq!(
        node.metric("dendra_requests_total{op=\"touch\",class=\"2xx\"}"),
        2.0
    );
}

#[test]
fn a_key_without_a_live_value_cannot_be_touched() {
    let node = Node::start();
    let mut client = node.client();
    let tag = client.put("gone", b"v").etag().to_owned();
    client.delete("gone");
    for (id, headers) in [
        ("never", String::new()),
        ("gone", String::new()),
        ("gone", "If-Match: *\r\n".to_owned()),
        ("gone", if_match(&tag)),
    ] {
        let target = format!("/v0/touch?id={id}&ttl=5");
        let answer = client.ask("POST", &target, &headers, b"");
        assert_eq!(
            (answer.status, answer.body.len()),
            (404, 0),
            "{id} {headers}"
        );
    }
    assert_eq!(client.value("gone").status, 404);
}

#[test]
fn a_request_that_is_no_touch_is_told_why() {
    let node = Node::start();
    let mut client = node.client();
    client.put("k", b"v");
    let too_long = format!("/v0/touch?id={}&ttl=5", "k".repeat(1025));
    for (method, target, headers, body, status, code) in [
        (
            "GET",
            "/v0/touch?id=k&ttl=5",
            "",
            "",
            405,
            "method-not-allowed",
        ),
        (
            "PUT",
            "/v0/touch?id=k&ttl=5",
            "",
            "",
            405,
            "method-not-allowed",
        ),
        ("POST", "/v0/touch?id=k", "", "", 400, "missing-parameter"),
        ("POST", "/v0/touch?ttl=5", "", "", 400, "missing-parameter"),
        ("POST", "/v0/touch?id=k&ttl=0", "", "", 400, "bad-number"),
        ("POST", "/v0/touch?id=k&ttl=-1", "", "", 400, "bad-number"),
        (
            "POST",
            "/v0/touch?id=k&ttl=5&ack=1",
            "",
            "",
            400,
            "unknown-parameter",
        ),
        (
            "POST",
            "/v0/touch?id=k&ttl=5&ttl=6",
            "",
            "",
            400,
            "repeated-parameter",
        ),
        (
            "POST",
            "/v0/touch?id=k&ttl=5",
            "",
            "body",
            400,
            "unexpected-body",
        ),
        (
            "POST",
            "/v0/touch?id=k&ttl=5",
            "If-None-Match: *\r\n",
            "",
            400,
            "bad-condition",
        ),
        (
            "POST",
            "/v0/touch?id=k&ttl=5",
            "If-Match: mine\r\n",
            "",
            400,
            "bad-condition",
        ),
        ("POST", too_long.as_str(), "", "", 414, "key-too-long"),
    ] {
        let answer = client.ask(method, target, headers, body.as_bytes());
        let text = answer.text();
        assert_eq!(answer.status, status, "{method} {target} {headers}: {text}");
        assert!(text.starts_with(code), "{method} {target}: {text}");
    }
    assert_eq!(client.value("k").header("Dendra-Expires"), None);
}

#[test]
fn touches_that_come_together_are_answered_in_their_order() {
    let node = Node::start();
    let mut client = node.client();
    client.send(
        b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\nv\
          POST /v0/touch?id=k&ttl=5 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n\
          POST /v0/touch?id=k&ttl=6 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n\
          DELETE /v0/entity?id=k HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n\
          POST /v0/touch?id=k&ttl=7 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    );
    let statuses = ["PUT", "POST", "POST", "DELETE", "POST"].map(|it| client.read(it).status);
    assert_eq!(statuses, [201, 200, 200, 202, 404]);
}
