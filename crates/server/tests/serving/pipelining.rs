//! Many requests in one packet: order, effects, and one write per batch.
//!
//! Invariants
//! 1. Answers come in the order of the requests; each sees the effects of those before it.
//!
//! Not here: framing (`strictness.rs`).

use crate::support::Node;
use dendra_base::Prng;
use dendra_engine::Durability;
use std::collections::HashMap;

fn request(method: &str, id: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("{method} /v0/entity?id={id} HTTP/1.1\r\nHost: localhost\r\n").into_bytes();
    bytes.extend_from_slice(b"Dendra-Timeout-Ms: 60000\r\n");
    if method == "PUT" {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// Draws a burst over few keys, so that requests depend on each other, and plays it on a map.
fn drawn_bursts_match_a_map(durability: Durability) {
    let node = Node::with(|settings| settings.durability = durability);
    let mut client = node.client();
    let mut prng = Prng::new(7);
    let mut model: HashMap<String, Vec<u8>> = HashMap::new();
    for round in 0..30 {
        let mut burst = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..=prng.below(200) {
            let id = format!("k{}", prng.below(5));
            match prng.below(4) {
                0 => {
                    burst.extend(request("DELETE", &id, b""));
                    model.remove(&id);
                    expected.push(("DELETE", 202, Vec::new()));
                }
                1 => {
                    // Some are larger than one read, some larger than a batch that is written at
                    // once.
                    let len = prng.below(if round % 5 == 0 { 100_000 } else { 200 });
                    let value = vec![b'a' + prng.below(26) as u8; len as usize];
                    burst.extend(request("PUT", &id, &value));
                    model.insert(id, value);
                    expected.push(("PUT", 201, Vec::new()));
                }
                _ => {
                    burst.extend(request("GET", &id, b""));
                    let value = model.get(&id).cloned();
                    let status = if value.is_some() { 200 } else { 404 };
                    expected.push(("GET", status, value.unwrap_or_default()));
                }
            }
        }
        let sender = client.stream.try_clone().expect("a socket can be shared");
        std::thread::scope(|threads| {
            // A burst may be larger than the buffers of both kernels: send beside reading.
            threads.spawn(|| {
                let mut sender = sender;
                std::io::Write::write_all(&mut sender, &burst).expect("the node reads");
            });
            for (at, (method, status, body)) in expected.iter().enumerate() {
                let answer = client.read(method);
                assert_eq!(
                    answer.status, *status,
                    "round {round}, request {at}: {method}"
                );
                assert_eq!(answer.body, *body, "round {round}, request {at}: {method}");
            }
        });
    }
}

#[test]
fn a_mixed_burst_is_answered_in_order_with_durability_sync() {
    drawn_bursts_match_a_map(Durability::Sync);
}

#[test]
fn a_mixed_burst_is_answered_in_order_with_durability_os() {
    drawn_bursts_match_a_map(Durability::Os);
}

#[test]
fn a_burst_of_reads_is_one_read_and_one_write() {
    let node = Node::with(|settings| settings.loops = Some(1));
    let mut client = node.client();
    client.put("k", b"v");
    // An answer is here before its write is counted.
    node.wait_for_metric("dendra_socket_writes_total", 1.0);
    let before = node.metric("dendra_socket_reads_total");
    let burst: Vec<u8> = (0..100).flat_map(|_| request("GET", "k", b"")).collect();
    client.send(&burst);
    for _ in 0..100 {
        assert_eq!(client.read("GET").status, 200);
    }
    node.wait_for_metric("dendra_socket_writes_total", 2.0);
    assert_eq!(node.metric("dendra_socket_reads_total") - before, 1.0);
}

#[test]
fn a_burst_of_writes_shares_one_commit() {
    let node = Node::with(|settings| settings.loops = Some(1));
    let mut client = node.client();
    client.put("k", b"v");
    node.wait_for_metric("dendra_socket_writes_total", 1.0);
    let before = node.metric("dendra_engine_commits_total");
    let burst: Vec<u8> = (0..100).flat_map(|_| request("PUT", "k", b"v")).collect();
    client.send(&burst);
    for _ in 0..100 {
        assert_eq!(client.read("PUT").status, 201);
    }
    node.wait_for_metric("dendra_socket_writes_total", 2.0);
    assert_eq!(node.metric("dendra_engine_commits_total") - before, 1.0);
}

#[test]
fn conditional_increments_from_many_connections_lose_none() {
    const THREADS: usize = 8;
    const EACH: usize = 40;
    let node = Node::start();
    node.client().put("n", b"0");
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                let mut client = node.client();
                let mut done = 0;
                while done < EACH {
                    let seen = client.value("n");
                    let count: usize = seen.text().parse().expect("a number is stored");
                    let condition = format!("If-Match: {}\r\n", seen.etag());
                    let next = (count + 1).to_string();
                    let target = "/v0/entity?id=n";
                    match client
                        .ask("PUT", target, &condition, next.as_bytes())
                        .status
                    {
                        201 => done += 1,
                        412 => {}
                        other => panic!("an increment was answered with {other}"),
                    }
                }
            });
        }
    });
    assert_eq!(
        node.client().value("n").text(),
        (THREADS * EACH).to_string()
    );
}
