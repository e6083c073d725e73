//! A full, slow or late part: refusals with their reason, never a wait without end, never a lost or
//! a half-done write.
//!
//! Invariants
//! 1. Slowness is made by a valve in front of the disk or by a client that stops, never by
//!    sleeping.
//! 2. A timeout that is short here is one that has to pass: no client that must be served can meet
//!    it.
//!
//! Not here: a reader that stops inside a scan (`scans.rs`).
//! See: docs/overload.md.

mod support;

use dendra_engine::Durability;
use dendra_engine::vfs::Vfs;
use dendra_engine::vfs::faulty::{Call, CallFailure, FaultyVfs, Repeat};
use dendra_engine::vfs::mem::MemVfs;
use dendra_server::limits::{SCAN_BYTES_SHARE, SCAN_CHUNK_BYTES};
use dendra_server::{Phase, Settings, Timeouts};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::valve::Valve;
use support::{Answer, Client, Node, PATIENCE};

/// A node whose values are in tables and in no cache, with a valve in front of its disk.
fn cold_node(change: impl Fn(&mut Settings)) -> (Node, Valve) {
    let disk = MemVfs::new();
    let node = Node::on(Arc::new(disk.clone()), |_| {});
    let mut client = node.client();
    for n in 0..20 {
        assert_eq!(
            client.put(&format!("k{n:02}"), &vec![b'v'; 10_000]).status,
            201
        );
    }
    node.stop();
    let (node, valve) = Valve::before(disk, |disk| Node::on(disk, change));
    (node, valve)
}

fn assert_refused(answer: &Answer, code: &str) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.text().starts_with(code), "{}", answer.text());
    let seconds = answer.header("Retry-After").expect("when to come again");
    assert!(["1", "2", "3"].contains(&seconds), "{seconds}");
    assert_eq!(answer.header("Dendra-Receipt"), Some("outcome=not-applied"));
}

#[test]
fn a_read_that_would_block_goes_to_the_pool_and_does_not_hold_up_the_loop() {
    let (node, valve) = cold_node(|settings| settings.loops = Some(1));
    valve.hold_reads();
    let mut waiting = node.client();
    waiting.send(
        b"GET /v0/entity?id=k00 HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\n\r\n",
    );
    valve.wait_for(1);
    let mut other = node.client();
    assert_eq!(other.put("fresh", b"v").status, 201);
    assert_eq!(other.value("fresh").body, b"v");
    valve.let_go();
    assert_eq!(waiting.read("GET").body, vec![b'v'; 10_000]);
    assert!(node.metric("dendra_pooled_reads_total") >= 1.0);
}

#[test]
fn more_scans_than_there_is_room_for_wait_in_line_and_are_not_refused() {
    const ROOM: usize = 2 << 20;
    let (node, valve) = cold_node(|settings| {
        settings.loops = Some(1);
        settings.value_bytes_max = ROOM / 2;
        settings.body_bytes_inflight_max = ROOM;
    });
    let fit = ROOM / SCAN_BYTES_SHARE / SCAN_CHUNK_BYTES;
    valve.hold_reads();
    let mut scanning: Vec<_> = (0..3 * fit).map(|_| node.client()).collect();
    for (n, client) in scanning.iter_mut().enumerate() {
        client.send(
            b"GET /v0/entities?start=k HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\n\r\n",
        );
        if n == 0 {
            valve.wait_for(1);
        }
    }
    // The loop has read them all behind this. It stays, so that the connections can be counted.
    let mut fresh = node.client();
    assert_eq!(fresh.put("fresh", b"v").status, 201);
    // Those that wait for room and have gone are not begun.
    let connections = node.metric("dendra_connections ");
    drop(scanning.split_off(2 * fit));
    support::rest_until_clients_count_as_gone();
    valve.let_go();
    for client in &mut scanning {
        let answer = client.read("GET");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    node.wait_for_metric("dendra_connections ", connections - fit as f64);
    assert_eq!(node.metric("dendra_abandoned_requests_total"), fit as f64);
    drop(fresh);
}

#[test]
fn a_read_that_panics_is_an_error_and_the_next_one_is_served() {
    let (node, valve) = cold_node(|settings| settings.workers = 1);
    let mut client = node.client();
    valve.panic_reads();
    for _ in 0..3 {
        let answer = client.value("k00");
        assert_eq!(answer.status, 500, "{answer:?}");
        assert!(answer.text().starts_with("failed: "), "{}", answer.text());
    }
    let mut scanning = node.client();
    let answer = scanning.get("/v0/entities?start=k");
    assert_eq!(answer.status, 500, "{answer:?}");
    valve.let_go();
    assert_eq!(client.value("k00").status, 200);
}

#[test]
fn new_connections_go_to_the_least_loaded_loop() {
    let node = Node::with(|settings| settings.loops = Some(2));
    let mut clients: Vec<_> = (0..10).map(|_| node.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/v0/status").status, 200);
    }
    for name in [
        "dendra_loop_connections{loop=\"0\"}",
        "dendra_loop_connections{loop=\"1\"}",
    ] {
        assert_eq!(node.metric(name), 5.0, "{name}");
    }
}

#[test]
fn a_full_store_queue_refuses_and_keeps_the_connection() {
    let (node, valve) = cold_node(|settings| {
        settings.loops = Some(1);
        settings.workers = 1;
        settings.queue = 1;
    });
    valve.hold_reads();
    let ask =
        b"GET /v0/entity?id=k00 HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\n\r\n";
    let mut working = node.client();
    working.send(ask);
    valve.wait_for(1);
    let mut queued = node.client();
    queued.send(ask);
    node.wait_for_metric("dendra_store_queue_points ", 1.0);
    let mut refused = node.client();
    assert_refused(
        &refused.value("k00"),
        "overloaded: the queue of the store pool",
    );
    valve.let_go();
    assert_eq!(working.read("GET").status, 200);
    assert_eq!(queued.read("GET").status, 200);
    assert_eq!(
        refused.value("k00").status,
        200,
        "the connection stays open"
    );
    assert_eq!(node.metric("dendra_refused_total{by=\"store_queue\"}"), 1.0);
}

#[test]
fn a_read_whose_client_has_gone_leaves_the_store_queue() {
    let (node, valve) = cold_node(|settings| {
        settings.loops = Some(1);
        settings.workers = 1;
    });
    valve.hold_reads();
    let ask =
        b"GET /v0/entity?id=k00 HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\n\r\n";
    let scan =
        b"GET /v0/entities?start=k HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\n\r\n";
    // Scans have a thread of their own: one does not wait for the other.
    let (mut reads, mut scans) = (node.client(), node.client());
    reads.send(ask);
    scans.send(scan);
    valve.wait_for(2);
    let (mut gone, mut scanning) = (node.client(), node.client());
    gone.send(ask);
    scanning.send(scan);
    node.wait_for_metric("dendra_store_queue_points ", 1.0);
    node.wait_for_metric("dendra_store_queue_scans ", 1.0);
    drop((gone, scanning));
    // The only two threads do not go on meanwhile.
    node.wait_for_metric("dendra_store_queue_points ", 0.0);
    node.wait_for_metric("dendra_store_queue_scans ", 0.0);
    node.wait_for_metric("dendra_abandoned_requests_total", 2.0);
    node.wait_for_metric("dendra_connections ", 2.0);
    valve.let_go();
    assert_eq!(reads.read("GET").status, 200);
    assert_eq!(scans.read("GET").status, 200);
    node.wait_for_metric("dendra_requests_inflight ", 0.0);
}

#[test]
fn a_read_past_its_deadline_is_not_started() {
    let (node, valve) = cold_node(|settings| {
        settings.loops = Some(1);
        settings.workers = 1;
    });
    valve.hold_reads();
    let mut working = node.client();
    working.send(
        b"GET /v0/entity?id=k00 HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\n\r\n",
    );
    valve.wait_for(1);
    let mut late = node.client();
    let answer = late.ask("GET", "/v0/entity?id=k01", "Dendra-Timeout-Ms: 1\r\n", b"");
    assert_eq!(answer.status, 504, "{answer:?}");
    assert_eq!(
        answer.header("Dendra-Receipt"),
        Some("acks=0/1; outcome=not-applied")
    );
    valve.let_go();
    assert_eq!(working.read("GET").status, 200);
    assert_eq!(
        late.value("k01").status,
        200,
        "the answer that came late is not mixed up"
    );
}

#[test]
fn the_deadline_of_a_pipelined_request_counts_while_those_in_front_of_it_wait() {
    let (node, valve) = Valve::before(MemVfs::new(), |disk| Node::on(disk, |_| {}));
    let mut client = node.client();
    let mut other = node.client();
    let request = |method: &str, id: &str, timeout_ms: u32, end: &str| {
        format!(
            "{method} /v0/entity?id={id} HTTP/1.1\r\nHost: localhost\r\n\
             Dendra-Timeout-Ms: {timeout_ms}\r\n{end}"
        )
    };
    let put = |timeout_ms| request("PUT", "k", timeout_ms, "Content-Length: 1\r\n\r\nv");
    valve.hold_syncs();
    let get = request("GET", "k", 60_000, "\r\n");
    // The last one is looked at when the others are answered.
    let pipelined = [put(60_000), get, request("GET", "k", 100, "\r\n")].concat();
    client.send(pipelined.as_bytes());
    node.wait_for_metric("dendra_requests_inflight ", 1.0);
    other.send(put(400).as_bytes());
    assert_eq!(other.read("PUT").status, 504, "so much time has passed");
    valve.let_go();
    assert_eq!(client.read("PUT").status, 201);
    assert_eq!(client.read("GET").status, 200);
    assert_refused(&client.read("GET"), "deadline-in-queue");
}

#[test]
fn a_large_write_that_the_system_only_takes_does_not_hold_up_the_loop() {
    let (node, valve) = cold_node(|settings| {
        settings.loops = Some(1);
        settings.durability = Durability::Os;
    });
    let mut other = node.client();
    assert_eq!(other.put("small", b"v").status, 201);
    valve.hold_writes_from(400_000);
    let mut large = node.client();
    let head = b"PUT /v0/entity?id=large HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\nDendra-Timeout-Ms: 60000\r\n\r\n";
    large.send(&[&head[..], &[b'v'; 500_000]].concat());
    valve.wait_for(1);
    assert_eq!(other.value("small").status, 200);
    valve.let_go();
    assert_eq!(large.read("PUT").status, 201);
}

#[test]
fn a_write_whose_sync_takes_too_long_is_unknown_and_may_still_happen() {
    let (node, valve) = cold_node(|settings| settings.loops = Some(1));
    valve.hold_syncs();
    let mut client = node.client();
    let answer = client.ask("PUT", "/v0/entity?id=w", "Dendra-Timeout-Ms: 1\r\n", b"v");
    assert_eq!(answer.status, 504, "{answer:?}");
    assert_eq!(
        answer.header("Dendra-Receipt"),
        Some("acks=0/1; outcome=unknown")
    );
    assert_eq!(
        client.value("w").status,
        404,
        "not visible before it is durable"
    );
    valve.let_go();
    assert_eq!(client.put("x", b"v").status, 201);
    assert_eq!(client.value("w").status, 200);
}

#[test]
fn writes_whose_conditions_need_the_disk_are_all_decided() {
    const CLIENTS: usize = 4;
    const EACH: usize = 100;
    let disk = MemVfs::new();
    let node = Node::on(Arc::new(disk.clone()), |_| {});
    let mut client = node.client();
    for n in 0..CLIENTS * EACH {
        let id = format!("k{n:04}");
        assert_eq!(client.put(&id, &[b'v'; 3_000]).status, 201);
    }
    node.stop();
    disk.set_would_block(900, 1);
    let node = Node::on(Arc::new(disk), |settings| {
        settings.durability = Durability::Os;
        settings.loops = Some(2);
    });
    std::thread::scope(|threads| {
        for n in 0..CLIENTS {
            let mut client = node.client();
            threads.spawn(move || {
                for k in 0..EACH {
                    let target = format!("/v0/entity?id=k{:04}", k * CLIENTS + n);
                    let answer = client.ask("PUT", &target, "If-Match: *\r\n", b"w");
                    assert_eq!(answer.status, 201, "{target}: {answer:?}");
                    assert_eq!(client.put(&format!("plain{n}"), b"v").status, 201);
                }
            });
        }
    });
}

#[test]
fn a_full_request_gate_refuses_before_the_body() {
    let (node, valve) = cold_node(|settings| {
        settings.loops = Some(1);
        settings.requests_inflight_max = 1;
    });
    valve.hold_syncs();
    let mut waiting = node.client();
    waiting.send(
        b"PUT /v0/entity?id=a HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\nContent-Length: 1\r\n\r\na",
    );
    valve.wait_for(1);
    let mut refused = node.client();
    assert_refused(&refused.put("b", b"b"), "overloaded: too many requests");
    refused.send(b"PUT /v0/entity?id=c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n");
    assert_refused(&refused.read("PUT"), "overloaded");
    refused.send(b"12345");
    assert_eq!(
        refused.value("b").status,
        404,
        "reads in memory need no permit"
    );
    valve.let_go();
    assert_eq!(waiting.read("PUT").status, 201);
    assert_eq!(refused.put("b", b"b").status, 201);
}

/// A full gate refuses items, and not the batch. One that only the batch itself fills refuses none.
#[test]
fn a_full_request_gate_refuses_the_items_of_a_batch_one_by_one() {
    let (node, valve) = cold_node(|settings| {
        settings.loops = Some(1);
        settings.requests_inflight_max = 2;
    });
    let body = b"{\"key\":\"a\",\"value\":\"1\"}\n{\"op\":\"get\",\"key\":\"never\"}\n\
        {\"key\":\"b\",\"value\":\"1\"}\n{\"key\":\"c\",\"value\":\"1\"}\n";
    let mut client = node.client();
    let (answer, lines) = client.batch("", body);
    let statuses = |lines: &[serde_json::Value]| -> Vec<u64> {
        lines
            .iter()
            .filter_map(|line| line["status"].as_u64())
            .collect()
    };
    assert_eq!(statuses(&lines), [201, 404, 201, 201], "{answer:?}");
    // The gauge is up to 100 ms old: it may still show the batch.
    node.wait_for_metric("dendra_requests_inflight ", 0.0);
    valve.hold_syncs();
    let mut waiting: Vec<Client> = (0..2).map(|_| node.client()).collect();
    for client in &mut waiting {
        client.send(
            b"PUT /v0/entity?id=w HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\nContent-Length: 1\r\n\r\nw",
        );
    }
    node.wait_for_metric("dendra_requests_inflight ", 2.0);
    let (answer, lines) = client.batch("", body);
    assert_eq!(answer.trailer.as_deref(), Some("complete; items=4"));
    assert_eq!(statuses(&lines), [503, 404, 503, 503]);
    assert_eq!(lines[0]["error"], "overloaded");
    assert_eq!(lines[0]["receipt"], "outcome=not-applied");
    assert!(
        lines[0]["retry_after"]
            .as_u64()
            .is_some_and(|s| (1..=3).contains(&s))
    );
    valve.let_go();
    for client in &mut waiting {
        assert_eq!(client.read("PUT").status, 201);
    }
    let (_, lines) = client.batch("", body);
    assert_eq!(statuses(&lines), [201, 404, 201, 201]);
}

#[test]
fn items_that_need_the_disk_wait_for_it_in_their_place() {
    let (node, valve) = cold_node(|settings| settings.loops = Some(1));
    let mut client = node.client();
    let body = b"{\"key\":\"new\",\"value\":\"1\"}\n{\"op\":\"get\",\"key\":\"k00\"}\n\
        {\"op\":\"get\",\"key\":\"new\"}\n{\"op\":\"get\",\"key\":\"k01\"}\n{\"op\":\"delete\",\"key\":\"k01\"}\n";
    valve.hold_reads();
    let head = "POST /v0/batch HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\n";
    client.send(format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    client.send(body);
    valve.wait_for(1);
    assert_eq!(node.client().put("other", b"v").status, 201);
    valve.let_go();
    let lines = client.read("POST").lines();
    let statuses: Vec<_> = lines
        .iter()
        .filter_map(|line| line["status"].as_u64())
        .collect();
    assert_eq!(statuses, [201, 200, 200, 200, 202]);
    assert_eq!(lines[1]["value"].as_str().map(str::len), Some(10_000));
    assert_eq!(lines[2]["value"], "1");
}

#[test]
fn one_address_leaves_room_in_the_request_gate_to_others() {
    let (node, valve) = cold_node(|settings| {
        settings.loops = Some(1);
        settings.requests_inflight_max = 34;
    });
    valve.hold_syncs();
    let put = "PUT /v0/entity?id=a HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\n";
    let mut greedy: Vec<Client> = (0..32).map(|_| node.client()).collect();
    for client in &mut greedy {
        client.send(format!("{put}Content-Length: 1\r\n\r\na").as_bytes());
    }
    node.wait_for_metric("dendra_requests_inflight ", 32.0);
    let mut one_more = node.client();
    assert_refused(&one_more.put("b", b"b"), "overloaded: too many requests");
    one_more.send(format!("{put}Content-Length: 5\r\n\r\n").as_bytes());
    assert_refused(&one_more.read("PUT"), "overloaded: too many requests");
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let mut other = Client::connect_from(other, node.running().addr());
    other.send(format!("{put}Content-Length: 5\r\n\r\nother").as_bytes());
    node.wait_for_metric("dendra_requests_inflight ", 33.0);
    valve.let_go();
    for client in greedy.iter_mut().chain([&mut other]) {
        let status = client.read("PUT").status;
        assert!([200, 201].contains(&status), "{status}");
    }
    node.wait_for_metric("dendra_requests_inflight ", 0.0);
    assert_eq!(node.client().put("b", b"b").status, 201);
}

/// A node that waits a tenth of a second for one thing, and ten minutes for all others.
fn impatient_node(change: impl FnOnce(&mut Timeouts, Duration)) -> Node {
    Node::with(|settings| {
        let long = Duration::from_secs(600);
        settings.timeouts = Timeouts {
            head: long,
            idle: long,
            body: long,
            write: long,
        };
        change(&mut settings.timeouts, Duration::from_millis(100));
    })
}

#[test]
fn slow_clients_are_ended_by_the_deadline_of_what_they_are_slow_at() {
    let node = impatient_node(|timeouts, short| timeouts.head = short);
    let mut head = node.client();
    head.send(b"GET /v0/sta");
    assert_eq!(head.read("GET").status, 408);
    assert!(head.is_closed());
    let node = impatient_node(|timeouts, short| timeouts.body = short);
    let mut body = node.client();
    body.send(b"PUT /v0/entity?id=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12");
    assert_eq!(body.read("PUT").status, 408);
    assert!(body.is_closed());
    let node = impatient_node(|timeouts, short| timeouts.idle = short);
    // A machine that is busy may take longer than that from connecting to asking: then once more.
    let asked = (0..100).find_map(|_| {
        let mut idle = node.client();
        let ask = b"GET /v0/entity?id=a HTTP/1.1\r\nHost: localhost\r\n\r\n";
        idle.stream.write_all(ask).ok()?;
        matches!(idle.stream.peek(&mut [0; 1]), Ok(1)).then_some(idle)
    });
    let mut idle = asked.expect("one of a hundred asks in time");
    assert_eq!(idle.read("GET").status, 404);
    assert!(idle.is_closed(), "without a word");
}

#[test]
fn a_client_that_reads_nothing_is_ended_and_its_room_comes_back() {
    let node = Node::with(|settings| {
        settings.loops = Some(1);
        settings.timeouts.write = Duration::from_millis(200);
    });
    let mut client = node.client();
    client.put("large", &vec![b'v'; 1 << 20]);
    client.put("small", b"v");
    let mut deaf = node.client();
    let burst = "GET /v0/entity?id=large HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50);
    deaf.send(burst.as_bytes());
    node.wait_for_metric("dendra_timed_out_total", 1.0);
    node.wait_for_metric("dendra_bytes_inflight ", 0.0);
    // One that fits into the kernel's buffers: the time of this reader is short, too.
    assert_eq!(client.value("small").status, 200);
}

#[test]
fn connections_beyond_the_limit_wait_in_the_backlog_until_one_closes() {
    let node = Node::with(|settings| settings.connections_max = 2);
    let first = node.client();
    let mut second = node.client();
    assert_eq!(second.get("/v0/status").status, 200);
    let mut third = node.client();
    third.send(b"GET /v0/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    third
        .stream
        .set_read_timeout(Some(Duration::from_millis(200)))
        .expect("a timeout can be set");
    let early = third.stream.peek(&mut [0; 1]);
    assert!(early.is_err(), "it is not served yet");
    drop(first);
    third
        .stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout can be set");
    assert_eq!(third.read("GET").status, 200);
}

#[test]
fn an_address_with_too_many_connections_gets_no_more_and_others_do() {
    let node = Node::with(|settings| settings.connections_per_address_max = 2);
    let mut first = node.client();
    assert_eq!(first.get("/v0/status").status, 200);
    let second = node.client();
    let mut third = node.client();
    // The node closes it; a byte that was sent may turn that into a reset.
    let closed = third.stream.read(&mut [0; 1]);
    assert_eq!(closed.expect("the end of the stream"), 0);
    node.wait_for_metric("dendra_connections_over_address_bound_total", 1.0);
    assert_eq!(first.get("/v0/status").status, 200);
    let neighbour = Ipv4Addr::new(127, 0, 0, 2);
    let mut other = Client::connect_from(neighbour, node.running().addr());
    assert_eq!(other.get("/v0/status").status, 200);
    // One that ends makes room.
    drop(second);
    node.wait_for_metric("dendra_connections ", 2.0);
    assert_eq!(node.client().get("/v0/status").status, 200);
}

#[test]
fn a_full_disk_stops_values_and_lets_deletes_and_reads_go_on() {
    let disk = MemVfs::new();
    let node = Node::on(Arc::new(disk.clone()), |settings| {
        settings.memory_bytes = 16 << 20;
        settings.value_bytes_max = 64 << 10;
    });
    let mut client = node.client();
    assert_eq!(client.put("before", b"v").status, 201);
    disk.set_capacity(1);
    // Small, so that the node looks at its disk long before its memory is full: then deletes could
    // not go on either.
    let value = vec![b'v'; 100];
    let deadline = Instant::now() + PATIENCE;
    let mut stored = 0;
    let refused = loop {
        let answer = client.put(&format!("k{stored}"), &value);
        match answer.status {
            201 => stored += 1,
            // The flush that finds out is under way.
            503 => {}
            _ => break answer,
        }
        assert!(Instant::now() < deadline, "the disk never was full");
    };
    assert_eq!(refused.status, 507, "{refused:?}");
    assert_eq!(
        refused.header("Dendra-Receipt"),
        Some("outcome=not-applied")
    );
    assert_eq!(client.value("before").body, b"v");
    assert_eq!(client.delete("before").status, 202);
    for n in 0..stored {
        assert_eq!(client.value(&format!("k{n}")).body.len(), value.len());
    }
    disk.set_capacity(u64::MAX);
    while client.put("after", b"v").status != 201 {
        assert!(Instant::now() < deadline, "writes did not come back");
    }
}

#[test]
fn a_failed_sync_leaves_the_write_unknown_and_poisons_the_node() {
    let disk: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let faulty = FaultyVfs::new(disk);
    let mut node = Node::on(Arc::new(faulty.clone()), |_| {});
    let mut client = node.client();
    assert_eq!(client.put("k", b"v").status, 201);
    let next = faulty.calls().of(Call::Sync);
    faulty.fail(Call::Sync, next, CallFailure::Io, Repeat::Onwards);
    let answer = client.put("k", b"w");
    assert_eq!(answer.status, 504, "{answer:?}");
    assert_eq!(
        answer.header("Dendra-Receipt"),
        Some("acks=0/1; outcome=unknown")
    );
    assert_eq!(node.running().phase(), Phase::Poisoned);
    assert_eq!(node.admin().get("/readyz").status, 503);
    let refused = node.client().put("k", b"x");
    assert_refused(&refused, "not-serving: the log failed");
    assert_eq!(node.client().get("/v0/status").text(), "poisoned\n");
    let running = node.running.take().expect("the node runs");
    let error = running.stop().expect_err("its log is not to be trusted");
    assert!(error.to_string().contains("restart the process"), "{error}");
}

#[test]
fn a_damaged_value_is_an_error_and_never_absent() {
    let disk = MemVfs::new();
    let node = Node::on(Arc::new(disk.clone()), |_| {});
    node.client().put("k", b"precious");
    node.stop();
    let tables: Vec<String> = disk
        .names()
        .into_iter()
        .filter(|name| name.ends_with(".tbl"))
        .collect();
    assert_eq!(tables.len(), 1, "one flush made one table");
    // Somewhere in the first block, where the only record is.
    disk.flip_bit(&tables[0], 8 * 20);
    let node = Node::on(Arc::new(disk), |_| {});
    let answer = node.client().value("k");
    assert_eq!(answer.status, 500, "{answer:?}");
    assert!(answer.text().starts_with("damaged: "), "{}", answer.text());
    let scan = node.client().get("/v0/entities?start=a");
    assert_eq!(scan.status, 500, "{scan:?}");
}
