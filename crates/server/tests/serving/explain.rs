//! `GET /v0/entity?explain=1` of a node by itself.
//!
//! Not here: the steps of the engine (crate `engine`, `tests/store/explain.rs`), clusters (crate
//! `dendra`, `tests/clusters/explain.rs`), refusals (crate `wire`, `route/tests.rs`).
//! See: docs/explain.md.

use crate::support::{Client, Node};
use serde_json::{Value, json};

fn explained(client: &mut Client, id: &str) -> Value {
    let answer = client.get(&format!("/v0/entity?id={id}&explain=1"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    let receipt = Some("acks=1/1; level=linearizable; durability=sync");
    assert_eq!(answer.header("Dendra-Receipt"), receipt);
    assert_eq!(answer.header("ETag"), None, "the body is not the value");
    serde_json::from_slice(&answer.body).expect("an object")
}

#[test]
fn a_read_is_explained_with_the_record_and_the_place_that_it_is_in() {
    let node = Node::start();
    let mut client = node.client();
    let tag = client.put("a%20b", b"value").etag().to_owned();
    let page = explained(&mut client, "a%20b");
    assert_eq!(page["id"], "a%20b");
    assert_eq!(
        (&page["found"], &page["outcome"]),
        (&json!(true), &json!("found"))
    );
    let record = &page["record"];
    assert_eq!(
        format!("\"{}\"", record["version"].as_str().expect("a version")),
        tag
    );
    assert_eq!(
        (&record["kind"], &record["value_bytes"]),
        (&json!("value"), &json!(5))
    );
    assert_eq!(record["expires_ms"], Value::Null);
    let engine = &page["engine"];
    assert_eq!(engine["end"], "read");
    assert_eq!(engine["found_in"], json!({ "memtable": "active" }));
    assert_eq!(
        engine["memtables"],
        json!([{ "memtable": "active", "record": record }])
    );
    assert_eq!(
        (&engine["tables"], &engine["levels"]),
        (&json!([]), &json!([]))
    );
    assert_eq!(
        (&engine["file_bytes"], &engine["tables_left_out"]),
        (&json!(0), &json!(0))
    );
    let (whole, inner) = (page["took_us"].as_u64(), engine["took_us"].as_u64());
    assert!(whole >= inner && inner.is_some(), "{page}");
    assert_eq!(page.get("cluster"), None);
    // The value itself comes as before.
    assert_eq!(client.value("a%20b").body, b"value");
}

#[test]
fn absent_deleted_and_ended_keys_are_told_apart() {
    let node = Node::start();
    let mut client = node.client();
    client.put("gone", b"value");
    client.delete("gone");
    client.ask("PUT", "/v0/entity?id=ends&ttl=1", "", b"value");
    while client.value("ends").status != 404 {}
    for (id, kind) in [
        ("none", Value::Null),
        ("gone", json!("tombstone")),
        ("ends", json!("ended")),
    ] {
        let page = explained(&mut client, id);
        assert_eq!(
            (&page["found"], &page["outcome"]),
            (&json!(false), &json!("missing")),
            "{id}"
        );
        assert_eq!(page["record"]["kind"], kind, "{id}: {page}");
    }
    let ends = explained(&mut client, "ends");
    assert!(ends["record"]["expires_ms"].as_u64().is_some(), "{ends}");
}

#[test]
fn an_explanation_waits_its_turn_among_requests_in_one_write() {
    let node = Node::start();
    let mut client = node.client();
    client.send(
        b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nv\
          GET /v0/entity?id=k&explain=1 HTTP/1.1\r\nHost: localhost\r\n\r\n\
          GET /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    assert_eq!(client.read("PUT").status, 201);
    let page: Value = serde_json::from_slice(&client.read("GET").body).expect("an object");
    assert_eq!(page["found"], true, "it sees the write in front of it");
    assert_eq!(client.read("GET").body, b"v");
}

#[test]
fn what_cannot_be_explained_is_refused_with_a_reason() {
    let node = Node::start();
    let mut client = node.client();
    client.put("k", b"value");
    for (method, query, headers, code) in [
        ("GET", "explain=0", "", "bad-choice"),
        ("GET", "explain", "", "bad-choice"),
        ("GET", "explain=true", "", "bad-choice"),
        ("GET", "explain=1&explain=1", "", "repeated-parameter"),
        ("PUT", "explain=1", "", "unknown-parameter"),
        ("DELETE", "explain=1", "", "unknown-parameter"),
        ("GET", "explain=1", "If-None-Match: *\r\n", "bad-condition"),
    ] {
        let target = format!("/v0/entity?id=k&{query}");
        let answer = client.ask(method, &target, headers, b"");
        assert_eq!(answer.status, 400, "{method} {query}");
        assert!(
            answer.text().starts_with(code),
            "{query}: {}",
            answer.text()
        );
    }
    assert_eq!(client.value("k").body, b"value");
}
