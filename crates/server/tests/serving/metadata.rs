//! Metadata of values: `Content-Type` and `Dendra-Meta-<name>`.
//!
//! Invariants
//! 1. The length that an answer says is the value's alone, and the value comes back as it came.
//!
//! Not here: the bytes of a wrapped value (crate `wire`, `meta/`), the command line (crate
//! `dendra`, `tests/commands`).
//! See: docs/metadata.md.

use crate::support::watcher::Watcher;
use crate::support::{Answer, Client, Node};
use dendra_base::limits::{META_BYTES_MAX, META_LEN_MAX};
use dendra_wire::http::records::{Decoded, decode_record};
use dendra_wire::meta::{self, MAGIC};
use serde_json::json;

const LINES: &str =
    "content-type: image/png\r\nDENDRA-META-Owner: Zo\u{eb} & co\r\nDendra-Meta-a:\r\n";

fn put(client: &mut Client, id: &str, lines: &str, value: &[u8]) -> u16 {
    let target = format!("/v0/entity?id={id}");
    client.ask("PUT", &target, lines, value).status
}

fn assert_described(answer: &Answer) {
    assert_eq!(answer.header("Content-Type"), Some("image/png"));
    assert_eq!(answer.header("Content-Security-Policy"), Some("sandbox"));
    assert_eq!(answer.header("Dendra-Meta-owner"), Some("Zo\u{eb} & co"));
    assert_eq!(answer.header("Dendra-Meta-a"), Some(""));
}

fn assert_plain(answer: &Answer) {
    assert_eq!(
        answer.header("Content-Type"),
        Some("application/octet-stream")
    );
    assert_eq!(answer.header("Content-Security-Policy"), None);
    let names = answer.headers.iter().map(|(name, _)| name);
    assert_eq!(
        names
            .filter(|name| name.starts_with("Dendra-Meta-"))
            .count(),
        0
    );
}

#[test]
fn a_value_brings_its_metadata_until_another_one_replaces_it() {
    let node = Node::start();
    let mut client = node.client();
    assert_eq!(put(&mut client, "k", LINES, b"pixels"), 201);
    let got = client.value("k");
    assert_eq!((got.status, &got.body[..]), (200, &b"pixels"[..]));
    assert_described(&got);
    let head = client.ask("HEAD", "/v0/entity?id=k", "", b"");
    assert_eq!(head.header("Content-Length"), Some("6"));
    assert_described(&head);
    let tag = format!("If-None-Match: {}\r\n", got.etag());
    let same = client.ask("GET", "/v0/entity?id=k", &tag, b"");
    assert_eq!(
        (same.status, same.header("Content-Length")),
        (304, Some("6"))
    );
    assert_eq!(
        client.ask("POST", "/v0/touch?id=k&ttl=600", "", b"").status,
        200
    );
    let touched = client.value("k");
    assert!(touched.header("Dendra-Expires").is_some());
    assert_described(&touched);
    assert_eq!(put(&mut client, "k", "", b"others"), 201);
    assert_plain(&client.value("k"));
}

#[test]
fn a_type_that_every_body_has_is_none() {
    let node = Node::start();
    let mut client = node.client();
    for kind in [
        "application/octet-stream",
        "application/x-www-form-urlencoded",
    ] {
        let line = format!("Content-Type: {kind}\r\n");
        assert_eq!(put(&mut client, "k", &line, b"v"), 201);
        assert_plain(&client.value("k"));
    }
}

#[test]
fn values_of_any_size_have_metadata_however_they_come() {
    let node = Node::start();
    let mut client = node.client();
    let content = "c".repeat(META_BYTES_MAX - 1);
    let most = format!("Dendra-Meta-n: {content}\r\n");
    let magic = [&MAGIC[..], b"\x01\0\0", &MAGIC].concat();
    for value in [
        b"".to_vec(),
        magic.clone(),
        vec![7; 20_000],
        vec![9; 1 << 20],
    ] {
        for lines in ["", &most] {
            assert_eq!(put(&mut client, "k", lines, &value), 201);
            let got = client.value("k");
            assert!(
                got.body == value,
                "{} bytes came back as others",
                value.len()
            );
            let wanted = (!lines.is_empty()).then_some(content.as_str());
            assert_eq!(got.header("Dendra-Meta-n"), wanted);
            let chunked = format!(
                "PUT /v0/entity?id=c HTTP/1.1\r\nHost: localhost\r\n{lines}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n",
                value.len().max(1)
            );
            let sent = if value.is_empty() { &b"x"[..] } else { &value };
            client.send(&[chunked.as_bytes(), sent, b"\r\n0\r\n\r\n"].concat());
            assert_eq!(client.read("PUT").status, 201);
            let came = client.value("c");
            assert!(came.body == sent, "{} bytes in chunks", sent.len());
            assert_eq!(came.header("Dendra-Meta-n"), wanted);
        }
    }
    // The limit is the value's alone.
    let head = format!(
        "PUT /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\n{most}Content-Length: {}\r\n\r\n",
        (1 << 20) + 1
    );
    client.send(head.as_bytes());
    assert_eq!(client.read("PUT").status, 413);
}

#[test]
fn metadata_that_is_none_is_refused_and_nothing_is_stored() {
    let node = Node::start();
    let mut client = node.client();
    let long = format!("Dendra-Meta-n: {}\r\n", "c".repeat(META_BYTES_MAX));
    let many: String = (0..=META_LEN_MAX)
        .map(|n| format!("Dendra-Meta-n{n}: c\r\n"))
        .collect();
    for (lines, part) in [
        (long.as_str(), "at most 4096 bytes"),
        (&many, "at most 32 entries"),
        ("Dendra-Meta-: c\r\n", "is no name"),
        ("Dendra-Meta-a: b\r\ndendra-meta-A: b\r\n", "more than once"),
        (
            "Content-Type: a/b\r\nContent-Type: a/b\r\n",
            "more than once",
        ),
    ] {
        let answer = client.ask("PUT", "/v0/entity?id=k", lines, b"v");
        assert_eq!(answer.status, 400, "{part}");
        assert!(
            answer.text().starts_with("bad-metadata: "),
            "{}",
            answer.text()
        );
        assert!(answer.text().contains(part), "{}", answer.text());
    }
    for (method, target) in [("GET", "/v0/entity?id=k"), ("POST", "/v0/touch?id=k&ttl=9")] {
        let answer = client.ask(method, target, "Dendra-Meta-a: b\r\n", b"");
        assert_eq!(answer.status, 400, "{method}");
    }
    assert_eq!(client.value("k").status, 404);
    let latin = b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nDendra-Meta-a: \xe9\r\n\r\n";
    client.send(latin);
    let answer = client.read("PUT");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("not UTF-8"), "{}", answer.text());
}

#[test]
fn scans_and_watches_show_the_value_alone_and_as_json_its_metadata() {
    let node = Node::start();
    let mut client = node.client();
    assert_eq!(put(&mut client, "k", LINES, b"pixels"), 201);
    assert_eq!(put(&mut client, "l", "", b"plain"), 201);
    let mut scan = |accept: &str| {
        let accept = format!("Accept: {accept}\r\n");
        client.ask("GET", "/v0/entities?start=a", &accept, b"")
    };
    assert_eq!(scan("text/plain").chunks, [&b"k\npixels"[..], b"l\nplain"]);
    let named = json!({"a": "", "owner": "Zo\u{eb} & co"});
    let shown = json!({"key": "k", "value": "pixels", "content_type": "image/png", "meta": named});
    let lines = scan("application/x-ndjson").lines();
    assert_eq!(lines, [shown, json!({"key": "l", "value": "plain"})]);
    let value_of = |answer: &Answer| match decode_record(&answer.body) {
        Decoded::Record { value, .. } => value.to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(value_of(&scan("application/vnd.dendra.records")), b"pixels");
    let wrapped = scan("application/vnd.dendra.wrapped, application/vnd.dendra.records;q=0.1");
    let kind = wrapped.header("Content-Type");
    assert_eq!(kind, Some("application/vnd.dendra.wrapped"));
    let stored = value_of(&wrapped);
    let (meta, value) = meta::unwrap(&stored);
    assert_eq!(
        (meta.content_type(), value),
        (Some("image/png"), &b"pixels"[..])
    );
    let mut watch = Watcher::open(node.running().addr(), "id=k");
    let event = watch.next().expect("the state");
    assert_eq!(event["value"], "pixels");
    assert_eq!(event["content_type"], "image/png");
    assert_eq!(event["meta"], named);
}

#[test]
fn a_batch_stores_and_shows_metadata() {
    let node = Node::start();
    let mut client = node.client();
    let (answer, lines) = client.batch(
        "",
        b"{\"key\":\"a\",\"value\":\"1\",\"content_type\":\"text/css\",\"meta\":{\"N\":\"c\"}}
{\"op\":\"get\",\"key\":\"a\"}
{\"key\":\"b\",\"value\":\"1\",\"meta\":{\"n\":\"x\\r\\nSet-Cookie: y\"}}
{\"op\":\"get\",\"key\":\"b\"}
",
    );
    assert_eq!(answer.trailer.as_deref(), Some("complete; items=4"));
    let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64()).collect();
    assert_eq!(statuses, [Some(201), Some(200), Some(400), Some(404)]);
    assert_eq!(lines[1]["content_type"], "text/css");
    assert_eq!(lines[1]["meta"], json!({"n": "c"}));
    assert_eq!(lines[1]["value"], "1");
    assert_eq!(lines[2]["error"], "bad-metadata");
    let got = client.value("a");
    assert_eq!(got.header("Content-Type"), Some("text/css"));
    assert_eq!(got.header("Dendra-Meta-n"), Some("c"));
}
