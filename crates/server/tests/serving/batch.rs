//! Batches: many operations in one request, on a node by itself.
//!
//! Invariants
//! 1. Lines come in the order of the items, and an item is carried out as a request of its own.
//! 2. A fault in one item changes nothing for the others.
//!
//! Not here: the form of items (crate `wire`, `batch/`), rights (`tokens.rs`), clusters (crate
//! `dendra`, `tests/cluster.rs`).

use crate::support::{Client, Node, PATIENCE, rest};
use dendra_base::Prng;
use dendra_engine::Durability;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Instant;

const MIB: usize = 1 << 20;

fn statuses(lines: &[Value]) -> Vec<u64> {
    let status = |line: &Value| line["status"].as_u64().expect("a line has a status");
    lines.iter().map(status).collect()
}

fn version(line: &Value) -> &str {
    line["version"].as_str().expect("the line has a version")
}

fn puts(count: usize, value: &str) -> String {
    (0..count).fold(String::new(), |mut body, n| {
        let _ = writeln!(body, "{{\"key\":\"k{n}\",\"value\":\"{value}\"}}");
        body
    })
}

#[test]
fn each_kind_and_each_condition_has_its_line() {
    let node = Node::start();
    let mut client = node.client();
    let (answer, lines) = client.batch(
        "",
        b"{\"op\":\"put\",\"key\":\"a\",\"value\":\"1\"}
{\"op\":\"get\",\"key\":\"a\"}
{\"op\":\"put\",\"key\":\"a\",\"value\":\"2\",\"if-none-match\":\"*\"}
{\"op\":\"put\",\"key\":\"b\",\"value_base64\":\"/w==\",\"ttl\":60}
{\"op\":\"get\",\"key\":\"b\"}
{\"op\":\"delete\",\"key\":\"a\",\"if-match\":\"*\"}
{\"op\":\"get\",\"key\":\"a\"}
{\"op\":\"delete\",\"key\":\"a\",\"if-match\":\"*\"}
{\"op\":\"delete\",\"key\":\"never\"}
{\"op\":\"touch\",\"key\":\"b\",\"ttl\":90}
{\"op\":\"touch\",\"key\":\"a\",\"ttl\":90}
{\"op\":\"touch\",\"key\":\"b\"}
{\"op\":\"touch\",\"key\":\"b\",\"ttl\":90,\"ack\":1}
",
    );
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("Content-Type"), Some("application/x-ndjson"));
    assert_eq!(answer.trailer.as_deref(), Some("complete; items=13"));
    assert_eq!(
        statuses(&lines),
        [
            201, 200, 412, 201, 200, 202, 404, 412, 202, 200, 404, 400, 400
        ]
    );
    assert_ne!(version(&lines[9]), version(&lines[3]), "a touch is a write");
    let receipt = "acks=1/1; level=linearizable; durability=sync";
    assert_eq!(lines[0]["receipt"], receipt);
    assert_eq!(lines[1]["value"], "1");
    assert_eq!(version(&lines[1]), version(&lines[0]));
    assert_eq!(version(&lines[2]), version(&lines[0]));
    assert_eq!(lines[2]["error"], "condition-failed");
    assert_eq!(lines[2]["receipt"], "outcome=not-applied");
    assert_eq!(lines[4]["value_base64"], "/w==");
    assert!(lines[4]["expires_ms"].is_u64(), "{:?}", lines[4]);
    // What a batch did is what single requests see.
    let got = client.value("b");
    assert_eq!(got.body, b"\xff");
    assert_eq!(got.etag(), format!("\"{}\"", version(&lines[9])));
    // A condition over what a line said, and the current value where it is wanted.
    let body = format!(
        "{{\"key\":\"b\",\"value\":\"x\",\"if-match\":\"{0}\"}}\n{{\"key\":\"b\",\"value\":\"y\",\"if-match\":\"{0}\"}}\n\
         {{\"op\":\"get\",\"key\":\"b\",\"if-none-match\":\"*\"}}",
        version(&lines[9])
    );
    let (_, lines) = client.batch("Prefer: return=representation\r\n", body.as_bytes());
    assert_eq!(statuses(&lines), [201, 412, 304]);
    let (answer, lines) = client.batch("", b"");
    assert_eq!(answer.trailer.as_deref(), Some("complete; items=0"));
    assert!(lines.is_empty());
}

#[test]
fn an_item_s_fault_is_that_item_s_alone() {
    let node = Node::start();
    let mut client = node.client();
    let long = "v".repeat(MIB + 1);
    let body = format!(
        "{{\"key\":\"a\",\"value\":\"1\"}}\nnonsense\n{{\"key\":\"b\",\"value\":\"1\",\"ack\":2,\"from\":3}}\n\n\
         {{\"key\":\"c\",\"value\":\"{long}\"}}\n{{\"op\":\"get\",\"key\":\"a\"}}\r\n{{\"key\":\"d\",\"value\":\"1\"}}"
    );
    let (answer, lines) = client.batch("", body.as_bytes());
    assert_eq!(answer.trailer.as_deref(), Some("complete; items=6"));
    assert_eq!(statuses(&lines), [201, 400, 400, 413, 200, 201]);
    let message = |at: usize| lines[at]["message"].as_str().expect("a sentence");
    assert!(message(1).starts_with("item 2: "), "{}", message(1));
    assert!(message(2).starts_with("item 3: "), "{}", message(2));
    assert!(message(3).starts_with("item 4: "), "{}", message(3));
    for (key, status) in [("a", 200), ("b", 404), ("c", 404), ("d", 200)] {
        assert_eq!(client.value(key).status, status, "{key}");
    }
}

#[test]
fn a_batch_has_a_thousand_items_and_no_more() {
    let node = Node::start();
    let mut client = node.client();
    let (answer, lines) = client.batch("", puts(1_000, "v").as_bytes());
    assert_eq!(answer.trailer.as_deref(), Some("complete; items=1000"));
    assert!(statuses(&lines).iter().all(|status| *status == 201));
    client.delete("k1000");
    let (answer, lines) = client.batch("", puts(1_001, "v").as_bytes());
    assert_eq!(answer.trailer.as_deref(), Some("stopped; items=1001"));
    let last = lines.last().expect("there are lines");
    assert_eq!((last["status"].as_u64(), lines.len()), (Some(413), 1_001));
    assert_eq!(last["error"], "batch-too-large");
    assert!(client.is_closed(), "its rest is not read");
    assert_eq!(node.client().value("k1000").status, 404);
}

#[test]
fn a_batch_has_eight_mebibytes_and_no_more() {
    let node = Node::start();
    let value = "v".repeat(MIB - 100);
    let full = puts(8, &value);
    let (answer, lines) = node.client().batch("", full.as_bytes());
    assert_eq!(answer.trailer.as_deref(), Some("complete; items=8"));
    assert_eq!(statuses(&lines), [201; 8]);
    let body = format!("{full}{}", puts(1, &value));
    let mut client = node.client();
    let answer = client.ask("POST", "/v0/batch", "", body.as_bytes());
    assert_eq!(answer.status, 413);
    assert!(answer.text().starts_with("batch-too-large: "), "{answer:?}");
    assert_eq!(client.value("k7").status, 200, "the connection goes on");
    // In chunks its length shows when it comes.
    let mut bytes =
        b"POST /v0/batch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    let parts = full.as_bytes().chunks(100_000);
    for part in parts.chain(body.as_bytes()[full.len()..].chunks(100_000)) {
        bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    let mut client = node.client();
    let sender = client.stream.try_clone().expect("a socket can be shared");
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let mut sender = sender;
            // The node may end the connection before all of it is sent.
            let _cut = std::io::Write::write_all(&mut sender, &bytes);
        });
        let answer = client.read("POST");
        let lines = answer.lines();
        assert_eq!(answer.trailer.as_deref(), Some("stopped; items=9"));
        assert_eq!(
            lines.last().map(|line| &line["error"]),
            Some(&"batch-too-large".into())
        );
        assert_eq!(statuses(&lines)[..8], [201; 8]);
    });
}

/// Chunks of one byte, behind another request and in front of a third.
#[test]
fn how_a_batch_is_cut_into_packets_does_not_matter() {
    let node = Node::start();
    let mut client = node.client();
    let body = b"{\"key\":\"a\",\"value\":\"1\"}\n{\"op\":\"get\",\"key\":\"a\"}\nbad\n{\"op\":\"delete\",\"key\":\"a\"}";
    let mut bytes =
        b"PUT /v0/entity?id=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1\
        POST /v0/batch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    for byte in body {
        bytes.extend_from_slice(&[b'1', b'\r', b'\n', *byte, b'\r', b'\n']);
    }
    bytes.extend_from_slice(b"0\r\n\r\nGET /v0/entity?id=x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for piece in [1, bytes.len()] {
        for part in bytes.chunks(piece) {
            client.send(part);
        }
        assert_eq!(client.read("PUT").status, 201);
        let batch = client.read("POST");
        assert_eq!(statuses(&batch.lines()), [201, 200, 400, 202]);
        assert_eq!(client.read("GET").body, b"1");
    }
}

#[test]
fn records_are_items_and_lines_too() {
    let node = Node::start();
    let mut client = node.client();
    client.put("a", b"\xff\0");
    let records = "application/vnd.dendra.records";
    let accept = format!("Accept: {records}\r\n");
    let scan = client.ask("GET", "/v0/entities?prefix=a", &accept, b"");
    client.delete("a");
    let lines = format!("{accept}Content-Type: {records}\r\n");
    let answer = client.ask("POST", "/v0/batch", &lines, &scan.body);
    assert_eq!(answer.header("Content-Type"), Some(records));
    assert_eq!(answer.trailer.as_deref(), Some("complete; items=1"));
    assert!(answer.body.ends_with(&[0xff; 8]));
    assert_eq!(client.value("a").body, b"\xff\0");
    let mut get = vec![1, 0, 0, 1, 0, 0, 0, 0, b'a'];
    let answer = client.ask("POST", "/v0/batch", &lines, &get);
    assert!(
        answer
            .body
            .ends_with(&[0xff, 0, 255, 255, 255, 255, 255, 255, 255, 255])
    );
    get.push(9);
    let answer = client.ask("POST", "/v0/batch", &lines, &get);
    assert_eq!(answer.trailer.as_deref(), Some("stopped; items=2"));
}

#[test]
fn a_client_that_leaves_in_the_middle_leaves_whole_items() {
    let node = Node::start();
    let mut client = node.client();
    let body = "{\"key\":\"whole\",\"value\":\"1\"}\n{\"key\":\"cut\",\"value\":\"1\"}";
    client.send(
        format!(
            "POST /v0/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len() + 3
        )
        .as_bytes(),
    );
    let deadline = Instant::now() + PATIENCE;
    let mut other = node.client();
    while other.value("whole").status != 200 {
        assert!(Instant::now() < deadline, "the first item is not begun");
        rest();
    }
    drop(client);
    node.wait_for_metric("dendra_connections ", 1.0);
    assert_eq!(other.value("cut").status, 404);
}

#[test]
fn wrong_heads_are_refused_as_a_whole() {
    let node = Node::start();
    let mut client = node.client();
    for (method, target, headers, status) in [
        ("PUT", "/v0/batch", "", 405),
        ("POST", "/v0/batch?id=a", "", 400),
        ("POST", "/v0/batch?ack=2", "", 400),
        ("POST", "/v0/batch", "If-None-Match: *\r\n", 400),
        ("POST", "/v0/batch", "Accept: image/png\r\n", 406),
        ("POST", "/v0/batch", "Content-Encoding: gzip\r\n", 415),
        ("POST", "/v0/batch", "Dendra-Timeout-Ms: 0\r\n", 400),
    ] {
        let body = b"{\"key\":\"a\",\"value\":\"1\"}\n";
        let answer = client.ask(method, target, headers, body);
        assert_eq!(answer.status, status, "{method} {target} {headers}");
    }
    assert_eq!(client.value("a").status, 404);
    client.send(b"POST /v0/batch HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.read("POST").status, 505);
}

/// Draws items over few keys, so that they depend on each other, and plays them on a map.
fn drawn_batches_match_a_map(durability: Durability) {
    let node = Node::with(|settings| settings.durability = durability);
    let mut client = node.client();
    let mut prng = Prng::new(11);
    let mut model: HashMap<u64, String> = HashMap::new();
    for round in 0..30 {
        let (mut body, mut expected) = (String::new(), Vec::new());
        for _ in 0..=prng.below(300) {
            let id = prng.below(5);
            match prng.below(4) {
                0 => {
                    let _ = writeln!(body, "{{\"op\":\"delete\",\"key\":\"k{id}\"}}");
                    model.remove(&id);
                    expected.push((202, None));
                }
                1 => {
                    let len = prng.below(if round % 5 == 0 { 20_000 } else { 200 });
                    let value = "abcdefg".repeat(1 + len as usize / 7);
                    let _ = writeln!(body, "{{\"key\":\"k{id}\",\"value\":\"{value}\"}}");
                    model.insert(id, value);
                    expected.push((201, None));
                }
                _ => {
                    let _ = writeln!(body, "{{\"op\":\"get\",\"key\":\"k{id}\"}}");
                    let value = model.get(&id).cloned();
                    expected.push((if value.is_some() { 200 } else { 404 }, value));
                }
            }
        }
        let head = format!(
            "POST /v0/batch HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut sender = client.stream.try_clone().expect("a socket can be shared");
        std::thread::scope(|threads| {
            // A body may be larger than the buffers of both kernels: send beside reading.
            threads.spawn(move || {
                for part in [head.as_bytes(), body.as_bytes()] {
                    std::io::Write::write_all(&mut sender, part).expect("the node reads");
                }
            });
            let lines = client.read("POST").lines();
            assert_eq!(lines.len(), expected.len(), "round {round}");
            for (at, (line, (status, value))) in lines.iter().zip(&expected).enumerate() {
                assert_eq!(line["status"], *status, "round {round}, item {at}");
                assert_eq!(
                    line["value"].as_str(),
                    value.as_deref(),
                    "round {round}, item {at}"
                );
            }
        });
    }
}

#[test]
fn a_mixed_batch_is_answered_in_order_with_durability_sync() {
    drawn_batches_match_a_map(Durability::Sync);
}

#[test]
fn a_mixed_batch_is_answered_in_order_with_durability_os() {
    drawn_batches_match_a_map(Durability::Os);
}

/// The node begins no further item while its client does not read.
#[test]
fn a_client_that_does_not_read_holds_the_batch_up_and_little_else() {
    let node = Node::start();
    let mut client = node.client();
    client.put("large", "v".repeat(MIB).as_bytes());
    let mut slow = Client::connect(node.running().addr());
    let body = "{\"op\":\"get\",\"key\":\"large\"}\n".repeat(100);
    slow.send(
        format!(
            "POST /v0/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
    node.wait_until_metric("dendra_bytes_inflight ", 1.0);
    let held = node.metric("dendra_bytes_inflight ");
    assert!(held < 16.0 * MIB as f64, "{held} bytes are held for it");
    let gets = node.metric("dendra_requests_total{op=\"get\",class=\"2xx\"}");
    assert!(gets < 90.0, "{gets} were begun");
    let lines = slow.read("POST").lines();
    assert_eq!(lines.len(), 100);
    assert!(lines.iter().all(|line| line["status"] == 200));
}
