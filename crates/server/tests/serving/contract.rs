//! The HTTP contract, route by route and status by status, over real sockets.
//!
//! Invariants
//! 1. Every status code of docs/api.md that one healthy node can give is given here once.
//!
//! Not here: overload and deadlines (`overload.rs`), broken bytes (`strictness.rs`).
//! See: docs/api.md.

use crate::support::Node;
use std::time::{SystemTime, UNIX_EPOCH};

const MIB: usize = 1 << 20;

#[test]
fn each_request_gets_the_status_that_the_contract_names() {
    let node = Node::start();
    let mut client = node.client();
    client.put("there", b"v");
    let long_key = "k".repeat(1025);
    let longest_key = "k".repeat(1024);
    let table: &[(&str, &str, &str, u16)] = &[
        ("GET", "/v0/entity?id=there", "", 200),
        ("HEAD", "/v0/entity?id=there", "", 200),
        ("GET", "/v0/entity?id=never", "", 404),
        ("HEAD", "/v0/entity?id=never", "", 404),
        ("PUT", "/v0/entity?id=empty", "", 201),
        ("DELETE", "/v0/entity?id=never", "", 202),
        ("POST", "/v0/entity?id=there", "", 405),
        ("PATCH", "/v0/entity?id=there", "", 405),
        ("DELETE", "/v0/entities?start=a", "", 405),
        ("PUT", "/v0/status", "", 405),
        ("GET", "/v0/entity", "", 400),
        ("GET", "/v0/entity?id=", "", 400),
        ("GET", "/v0/entity?id=a&id=a", "", 400),
        ("GET", "/v0/entity?id=%zz", "", 400),
        ("GET", "/v0/entity?id=%4", "", 400),
        ("GET", "/v0/entity?id=there&colour=red", "", 400),
        ("GET", "/v0/entity?id=there&ttl=3", "", 400),
        ("GET", "/", "", 400),
        ("GET", "/v0/entity/there", "", 400),
        ("GET", "/metrics", "", 400),
        ("GET", "/v0/entity?id=there&ack=1&from=1", "", 200),
        ("GET", "/v0/entity?id=there&replicas=1/1", "", 200),
        ("GET", "/v0/entity?id=there&ack=2&from=3", "", 400),
        ("GET", "/v0/entity?id=there&ack=0", "", 400),
        ("GET", "/v0/entity?id=there&replicas=1/1&ack=1", "", 400),
        ("PUT", "/v0/entity?id=t&ttl=0", "", 400),
        ("PUT", "/v0/entity?id=t&ttl=60", "", 201),
        ("PUT", "/v0/entity?id=t", "Content-Encoding: gzip\r\n", 415),
        (
            "PUT",
            "/v0/entity?id=t",
            "Content-Range: bytes 0-1/2\r\n",
            400,
        ),
        ("GET", "/v0/entity?id=there", "Expect: wonders\r\n", 417),
        (
            "GET",
            "/v0/entity?id=there",
            "Dendra-Timeout-Ms: 0\r\n",
            400,
        ),
        (
            "GET",
            "/v0/entity?id=there",
            "Dendra-Timeout-Ms: 60001\r\n",
            400,
        ),
        (
            "GET",
            "/v0/entity?id=there",
            "Dendra-Timeout-Ms: 60000\r\n",
            200,
        ),
        ("GET", "/v0/entity?id=there", "If-None-Match: *\r\n", 304),
        ("GET", "/v0/entity?id=there", "If-Match: *\r\n", 200),
        ("GET", "/v0/entity?id=never", "If-Match: *\r\n", 404),
        (
            "GET",
            "/v0/entity?id=never",
            "If-Match: \"0000000000000001-1-0\"\r\n",
            404,
        ),
        (
            "HEAD",
            "/v0/entity?id=never",
            "If-Match: \"0000000000000001-1-0\"\r\n",
            404,
        ),
        ("PUT", "/v0/entity?id=there", "If-None-Match: *\r\n", 412),
        ("PUT", "/v0/entity?id=never", "If-Match: *\r\n", 412),
        ("DELETE", "/v0/entity?id=never", "If-Match: *\r\n", 412),
        ("PUT", "/v0/entity?id=t", "If-Match: nonsense\r\n", 400),
        ("GET", "/v0/entities", "", 200),
        ("GET", "/v0/entities?start=", "", 400),
        ("GET", "/v0/entities?prefix=", "", 400),
        ("GET", "/v0/entities?start=a&prefix=b", "", 400),
        ("GET", "/v0/entities?start=a&limit=0", "", 400),
        ("GET", "/v0/entities?start=a&reverse=perhaps", "", 400),
        ("GET", "/v0/entities?start=a", "Accept: image/png\r\n", 406),
        ("GET", "/v0/entities?start=b&end=a", "", 200),
        ("GET", "/v0/entities?start=a&scope=local", "", 200),
        ("GET", "/v0/status", "", 200),
        ("HEAD", "/v0/status", "", 200),
        ("GET", "/v0/status?verbose=1", "", 400),
        ("GET", "/v0/peer", "", 400),
    ];
    for &(method, target, headers, status) in table {
        let answer = client.ask(method, target, headers, b"");
        assert_eq!(
            answer.status, status,
            "{method} {target} {headers}: {answer:?}"
        );
        let is_empty = answer.body.is_empty();
        match status {
            400 | 405 | 406 | 415 | 417 => {
                let text = answer.text();
                let (code, sentence) = text.split_once(": ").expect("a code word comes first");
                assert!(
                    code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                    "{text}"
                );
                assert!(sentence.ends_with('\n') && sentence.len() > 10, "{text}");
            }
            201 | 202 | 404 => assert!(is_empty, "{method} {target}: {answer:?}"),
            _ => {}
        }
        if status == 405 {
            assert!(
                answer
                    .header("Allow")
                    .is_some_and(|allow| allow.contains("GET"))
            );
        }
    }
    let too_long = client.get(&format!("/v0/entity?id={long_key}"));
    assert_eq!(too_long.status, 414);
    assert_eq!(client.put(&longest_key, b"v").status, 201);
    assert_eq!(client.value(&longest_key).body, b"v");
}

#[test]
fn head_announces_the_length_and_sends_nothing() {
    let node = Node::start();
    let mut client = node.client();
    client.put("k", b"12345");
    let answer = client.ask("HEAD", "/v0/entity?id=k", "", b"");
    assert_eq!(answer.header("Content-Length"), Some("5"));
    assert_eq!(client.value("k").body, b"12345", "the next answer is whole");
}

#[test]
fn a_key_is_bytes_and_a_plus_is_a_plus() {
    let node = Node::start();
    let mut client = node.client();
    client.put("a%00%ff%2f", b"binary");
    client.put("a+b", b"plus");
    client.put("a%20b", b"space");
    assert_eq!(client.value("a%00%FF/").body, b"binary");
    assert_eq!(client.value("a%2Bb").body, b"plus");
    assert_eq!(client.value("a%20b").body, b"space");
}

#[test]
fn a_value_is_any_bytes_up_to_the_limit_and_not_one_more() {
    let node = Node::start();
    let mut client = node.client();
    assert_eq!(client.put("empty", b"").status, 201);
    let empty = client.value("empty");
    assert_eq!(
        (empty.status, empty.header("Content-Length")),
        (200, Some("0"))
    );
    let largest: Vec<u8> = (0..MIB).map(|i| (i * 31 % 251) as u8).collect();
    assert_eq!(client.put("largest", &largest).status, 201);
    assert_eq!(client.value("largest").body, largest);
    let refused = client.put("larger", &vec![0; MIB + 1]);
    assert_eq!(refused.status, 413);
    assert_eq!(refused.text().split(':').next(), Some("value-too-large"));
    assert_eq!(client.value("larger").status, 404, "the connection goes on");
}

#[test]
fn a_body_in_chunks_is_the_same_value() {
    let node = Node::start();
    let mut client = node.client();
    client.send(
        b"PUT /v0/entity?id=c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
          5\r\nhello\r\n6;note=x\r\n world\r\n0\r\nTrailer: y\r\n\r\n",
    );
    assert_eq!(client.read("PUT").status, 201);
    assert_eq!(client.value("c").body, b"hello world");
    client.send(
        b"PUT /v0/entity?id=d HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
          200000\r\n",
    );
    assert_eq!(client.read("PUT").status, 413);
    assert!(
        client.is_closed(),
        "nobody knows where the next request starts"
    );
}

#[test]
fn a_client_that_expects_100_gets_it_or_the_refusal_instead() {
    let node = Node::start();
    let mut client = node.client();
    let head = "PUT /v0/entity?id=e HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n";
    client.send(format!("{head}Content-Length: 5\r\n\r\n").as_bytes());
    assert_eq!(client.read("PUT").status, 100);
    client.send(b"12345");
    assert_eq!(client.read("PUT").status, 201);
    assert_eq!(client.value("e").body, b"12345");
    client.send(format!("{head}Content-Length: 99999999\r\n\r\n").as_bytes());
    let refused = client.read("PUT");
    assert_eq!(refused.status, 413);
    assert_eq!(refused.header("Connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn conditions_guard_reads_and_writes() {
    let node = Node::start();
    let mut client = node.client();
    let target = "/v0/entity?id=k";
    let first = client.ask("PUT", target, "If-None-Match: *\r\n", b"1");
    assert_eq!(first.status, 201);
    let lost = client.ask("PUT", target, "If-None-Match: *\r\n", b"2");
    assert_eq!((lost.status, lost.etag()), (412, first.etag()));
    assert_eq!(lost.header("Dendra-Receipt"), Some("outcome=not-applied"));
    let if_first = format!("If-Match: {}\r\n", first.etag());
    let second = client.ask("PUT", target, &if_first, b"2");
    assert_eq!(second.status, 201);
    let stale = client.ask("DELETE", target, &if_first, b"");
    assert_eq!((stale.status, stale.etag()), (412, second.etag()));
    let unless_second = format!("If-None-Match: {}\r\n", second.etag());
    let unchanged = client.ask("GET", target, &unless_second, b"");
    assert_eq!((unchanged.status, unchanged.etag()), (304, second.etag()));
    let unless_first = format!("If-None-Match: {}\r\n", first.etag());
    assert_eq!(client.ask("GET", target, &unless_first, b"").body, b"2");
    let if_second = format!("If-Match: {}\r\n", second.etag());
    assert_eq!(client.ask("DELETE", target, &if_second, b"").status, 202);
    let after = client.ask("PUT", target, &if_second, b"3");
    assert_eq!((after.status, after.header("ETag")), (412, None));
}

#[test]
fn a_value_with_a_time_to_live_says_when_it_ends_and_ends() {
    let node = Node::start();
    let mut client = node.client();
    let now_ms = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("the clock is past 1970")
            .as_millis()
    };
    let expires_of = |answer: &crate::support::Answer| -> u128 {
        answer
            .header("Dendra-Expires")
            .and_then(|ms| ms.parse().ok())
            .expect("a value with a time to live says so")
    };
    // The node's wall clock is the coarse one, behind by up to a tick.
    const TICK_MS: u128 = 10;
    let before_ms = now_ms();
    let hour = client.ask("PUT", "/v0/entity?id=hour&ttl=3600", "", b"v");
    assert_eq!(hour.status, 201);
    let got = client.value("hour");
    let ends = expires_of(&got) - 3_600_000;
    assert!(
        (before_ms - TICK_MS..=now_ms() + 1).contains(&ends),
        "{ends}"
    );
    let head = client.ask("HEAD", "/v0/entity?id=hour", "", b"");
    assert_eq!(head.header("Dendra-Expires"), got.header("Dendra-Expires"));
    assert_eq!(
        client.ask("PUT", "/v0/entity?id=k&ttl=1", "", b"v").status,
        201
    );
    let over_ms = now_ms() + 1_000 + TICK_MS;
    // A wait for a point in time, not for another thread: there is no other condition.
    while now_ms() <= over_ms {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(client.value("k").status, 404);
    assert_eq!(client.value("hour").status, 200);
    assert_eq!(client.get("/v0/entities?start=a").chunks, [b"hour\nv"]);
}

#[test]
fn an_upgrade_that_is_not_ours_is_ignored() {
    let node = Node::start();
    let mut client = node.client();
    client.put("k", b"v");
    let offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    let answer = client.ask("GET", "/v0/entity?id=k", offer, b"");
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"v"[..]));
    assert_eq!(answer.header("Connection"), None);
    assert_eq!(client.value("k").status, 200, "the connection is kept");
}

#[test]
fn a_connection_closes_when_its_client_says_so_and_with_http_1_0() {
    let node = Node::start();
    let mut client = node.client();
    client.put("k", b"v");
    let answer = client.ask("GET", "/v0/entity?id=k", "Connection: close\r\n", b"");
    assert_eq!(
        (answer.status, answer.header("Connection")),
        (200, Some("close"))
    );
    assert!(client.is_closed());
    let mut old = node.client();
    old.send(b"GET /v0/entity?id=k HTTP/1.0\r\n\r\n");
    let answer = old.read("GET");
    assert_eq!(
        (answer.body.as_slice(), answer.header("Connection")),
        (&b"v"[..], Some("close"))
    );
    assert!(old.is_closed());
    let mut kept = node.client();
    for _ in 0..2 {
        kept.send(b"GET /v0/entity?id=k HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(kept.read("GET").header("Connection"), Some("keep-alive"));
    }
}

#[test]
fn a_client_that_has_sent_its_last_byte_still_gets_its_answer() {
    let node = Node::start();
    let mut client = node.client();
    client.send(b"PUT /v0/entity?id=h HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
    client
        .stream
        .shutdown(std::net::Shutdown::Write)
        .expect("the sending side can end");
    assert_eq!(client.read("PUT").status, 201);
    assert!(client.is_closed());
}

#[test]
fn a_client_that_hangs_up_inside_a_body_changed_nothing() {
    let node = Node::start();
    let mut client = node.client();
    client.put("k", b"before");
    for cut in [
        &b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nafter"[..],
        b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nafter\r\n",
        b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\nafter",
    ] {
        let mut other = node.client();
        other.send(cut);
        other
            .stream
            .shutdown(std::net::Shutdown::Write)
            .expect("the sending side can end");
        assert!(other.is_closed());
        assert_eq!(client.value("k").body, b"before");
    }
    node.wait_for_metric("dendra_bytes_inflight ", 0.0);
}
