//! Room for bytes: its holders, those that wait for it, and those that have to give it back.
//!
//! Invariants
//! 1. What has to last is made by a valve in front of the disk or by clients that stop, and all
//!    timeouts are long: the only clock that ends a connection here is that of the node's turnover.
//!
//! Not here: gates of requests and queues (`overload.rs`).
//! See: docs/overload.md.

mod support;

use dendra_engine::vfs::mem::MemVfs;
use dendra_server::{Settings, Timeouts, limits};
use std::io::{Read, Write};
use std::iter;
use std::net::TcpStream;
use std::time::Duration;
use support::other::{self, Other, Resident};
use support::valve::Valve;
use support::{Answer, Client, Node};

const MIB: usize = 1 << 20;

fn be_patient(settings: &mut Settings) {
    let long = Duration::from_secs(600);
    settings.timeouts = Timeouts {
        head: long,
        idle: long,
        body: long,
        write: long,
    };
    settings.loops = Some(1);
}

/// A node with room for two values of a mebibyte.
fn narrow_node() -> Node {
    Node::with(|settings| {
        be_patient(settings);
        settings.body_bytes_inflight_max = 2 * MIB;
    })
}

fn head(id: &str) -> String {
    format!(
        "PUT /v0/entity?id={id} HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\nContent-Length: {MIB}\r\n\r\n"
    )
}

/// Begins a PUT of a mebibyte with so many bytes of it.
fn begin(client: &mut Client, id: &str, bytes: usize) {
    client.send(head(id).as_bytes());
    client.send(&vec![b'x'; bytes]);
}

#[test]
fn values_that_are_announced_and_do_not_come_refuse_nobody() {
    let node = narrow_node();
    let mut slow: Vec<Client> = (0..64).map(|_| node.client()).collect();
    for (n, client) in slow.iter_mut().enumerate() {
        begin(client, &format!("slow{n}"), 1);
    }
    node.wait_for_metric("dendra_connections ", 64.0);
    let mut client = node.client();
    for _ in 0..10 {
        assert_eq!(client.put("large", &vec![b'v'; MIB]).status, 201);
        assert_eq!(client.value("large").body.len(), MIB);
    }
    assert_eq!(node.metric("dendra_refused_total{by=\"bytes\"}"), 0.0);
    slow[0].send(&vec![b'x'; MIB - 1]);
    assert_eq!(slow[0].read("PUT").status, 201, "it is only late");
}

#[test]
fn a_body_that_does_not_use_its_room_gives_it_back_when_others_wait() {
    let node = narrow_node();
    let (mut first, mut second) = (node.client(), node.client());
    // Both are too slow from their first second on, else the later one might outlast the lack.
    const { assert!(32 << 10 < limits::BODY_BYTES_PER_SECOND_MIN) };
    begin(&mut first, "first", 32 << 10);
    begin(&mut second, "second", 32 << 10);
    node.wait_for_metric("dendra_bytes_inflight ", (2 * MIB) as f64);
    let mut third = node.client();
    assert_eq!(third.put("third", &vec![b'v'; MIB]).status, 201);
    let ended = [&mut first, &mut second].map(|client| client.read("PUT"));
    for answer in ended {
        assert_eq!(answer.status, 408, "{answer:?}");
        assert!(answer.text().contains("others waited"), "{}", answer.text());
    }
    assert_eq!(third.value("first").status, 404);
}

#[test]
fn a_reader_that_does_not_use_its_room_gives_it_back_when_others_wait() {
    // Room for two answers with their heads, and not for a value besides.
    let node = Node::with(|settings| {
        be_patient(settings);
        settings.body_bytes_inflight_max = 2 * MIB + (8 << 10);
    });
    let mut client = node.client();
    assert_eq!(client.put("large", &vec![b'v'; MIB]).status, 201);
    let burst = "GET /v0/entity?id=large HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50);
    let mut deaf: Vec<Client> = (0..2).map(|_| node.client()).collect();
    for reader in &mut deaf {
        reader.send(burst.as_bytes());
    }
    node.wait_until_metric("dendra_bytes_inflight ", (2 * MIB) as f64);
    assert_eq!(client.put("other", &vec![b'v'; MIB]).status, 201);
    assert!(node.metric("dendra_timed_out_total") >= 1.0);
}

#[test]
fn values_that_came_wait_for_the_log_and_a_whole_gate_of_waiters_refuses_before_the_body() {
    // One value is being written, one in the log's queue, one in the loop's batch, two hold the
    // gate while they wait for the log, and two wait for the gate.
    const FIT: usize = 7;
    let (node, valve) = Valve::before(MemVfs::new(), |disk| {
        Node::on(disk, |settings| {
            be_patient(settings);
            settings.body_bytes_inflight_max = 2 * MIB;
        })
    });
    valve.hold_syncs();
    std::thread::scope(|threads| {
        for n in 0..FIT {
            let mut client = node.client();
            threads.spawn(move || {
                begin(&mut client, &format!("k{n}"), MIB);
                assert_eq!(client.read("PUT").status, 201, "{n}");
            });
            // One after the other, as far as the node reads them.
            let read = (n + 1).min(FIT - 2) * MIB;
            node.wait_until_metric("dendra_socket_read_bytes_total", read as f64);
        }
        node.wait_for_metric("dendra_bytes_waiting ", (2 * MIB) as f64);
        let mut refused = node.client();
        begin(&mut refused, "refused", 0);
        let answer = refused.read("PUT");
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(
            answer.text().contains("too many bytes"),
            "{}",
            answer.text()
        );
        assert_eq!(answer.header("Dendra-Receipt"), Some("outcome=not-applied"));
        refused.send(&vec![b'x'; MIB]);
        assert_eq!(refused.value("k0").status, 404, "the connection is in step");
        valve.let_go();
    });
    assert_eq!(node.metric("dendra_refused_total{by=\"log_queue\"}"), 0.0);
}

/// Values of a mebibyte of which some wait for the log when all were read.
const LARGE: usize = 8;

#[test]
fn a_small_write_goes_in_front_of_large_ones_that_wait_for_the_log() {
    let (node, valve) = Valve::before(MemVfs::new(), |disk| Node::on(disk, be_patient));
    valve.hold_syncs();
    let (small, large) = std::thread::scope(|threads| {
        let large: Vec<_> = (0..LARGE)
            .map(|n| {
                let mut client = node.client();
                threads.spawn(move || {
                    begin(&mut client, &format!("k{n}"), MIB);
                    client.read("PUT")
                })
            })
            .collect();
        let head_len = head("k0").len();
        let read = (LARGE * (head_len + MIB)) as f64;
        node.wait_for_metric("dendra_socket_read_bytes_total", read);
        let mut client = node.client();
        let put = b"PUT /v0/entity?id=small HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\nContent-Length: 1\r\n\r\nv";
        client.send(put);
        node.wait_until_metric("dendra_socket_read_bytes_total", read + put.len() as f64);
        node.wait_until_metric("dendra_writes_in_line{of=\"clients\"}", 2.0);
        valve.let_go();
        let small = client.read("PUT");
        let large: Vec<_> = large
            .into_iter()
            .map(|it| it.join().expect("it was served"))
            .collect();
        (small, large)
    });
    assert_eq!(small.status, 201);
    // A write gets its version when it goes to the log: those that stood in line have later ones.
    let large: Vec<_> = large.iter().map(Answer::etag).collect();
    let later = large.iter().filter(|it| **it > small.etag());
    assert!(later.count() >= LARGE / 2, "{} {large:?}", small.etag());
    assert_eq!(node.client().delete("small").status, 202);
}

#[test]
fn large_values_leave_small_ones_room_while_a_flush_is_behind() {
    let (node, valve) = Valve::before(MemVfs::new(), |disk| {
        Node::on(disk, |settings| {
            be_patient(settings);
            settings.durability = dendra_engine::Durability::Os;
            settings.memory_bytes = 40 * MIB;
        })
    });
    let mut client = node.client();
    for n in 0..2_000 {
        assert_eq!(client.put(&format!("k{n}"), b"v").status, 201);
    }
    // The tables are synced, the log is not with this durability.
    valve.hold_syncs();
    let large = vec![b'x'; 32 << 10];
    let with_deadline = |client: &mut Client, n: usize| {
        let headers = "Dendra-Timeout-Ms: 1000\r\n";
        client.ask("PUT", &format!("/v0/entity?id=large{n}"), headers, &large)
    };
    let refused = (0..2_000)
        .map(|n| with_deadline(&mut client, n))
        .find(|it| it.status != 201);
    let refused = refused.expect("memory is bounded");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(
        refused.header("Dendra-Receipt"),
        Some("outcome=not-applied")
    );
    let in_line = "dendra_writes_in_line{of=\"clients\"}";
    node.wait_for_metric(in_line, 0.0);
    // While a large one waits for the reserve, the small ones have no pause, either.
    let mut waits = node.client();
    let head = format!(
        "PUT /v0/entity?id=waits HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\nContent-Length: {}\r\n\r\n",
        large.len()
    );
    waits.send(head.as_bytes());
    waits.send(&large);
    node.wait_for_metric(in_line, 1.0);
    let before = node.metric(PAUSES);
    for n in 0..20 {
        assert_eq!(client.put(&format!("small{n}"), b"v").status, 201, "{n}");
    }
    assert_eq!(node.metric(PAUSES), before);
    assert!(node.metric("dendra_engine_pressure ") < 1.0);
    valve.let_go();
    assert_eq!(waits.read("PUT").status, 201);
    assert_eq!(client.put("large", &large).status, 201);
}

/// A node of which no memtable is flushed: the pause grows with each write.
fn pressed_node() -> (Node, Valve) {
    let (node, valve) = Valve::before(MemVfs::new(), |disk| {
        Node::on(disk, |settings| {
            be_patient(settings);
            settings.durability = dendra_engine::Durability::Os;
            settings.memory_bytes = 40 * MIB;
        })
    });
    // The log is not synced with this durability; the tables are.
    valve.hold_syncs();
    (node, valve)
}

const PAUSES: &str = "dendra_write_pause_seconds_count";

/// Writes values until so many writes have paused.
fn write_until_paused(node: &Node, client: &mut Client, value: &[u8], count: f64) {
    let wrote = (0..2_000).map(|n| client.put(&format!("k{n}"), value).status);
    let until = wrote.take_while(|status| *status == 201);
    let enough = until.take_while(|_| node.metric(PAUSES) < count).count();
    assert!(enough < 2_000, "none paused");
}

#[test]
fn the_pause_of_a_write_follows_its_bytes_and_is_in_its_latency() {
    let (node, valve) = pressed_node();
    let mut client = node.client();
    let value = vec![b'x'; 32 << 10];
    write_until_paused(&node, &mut client, &value, 20.0);
    let paused_s = node.metric("dendra_write_pause_seconds_sum");
    let took_s = node.metric("dendra_request_seconds_sum{op=\"put\"}");
    assert!(paused_s > 0.01 && took_s >= paused_s, "{took_s} {paused_s}");
    // A write of few bytes beside them has none.
    let before = node.metric(PAUSES);
    for n in 0..20 {
        assert_eq!(client.put(&format!("small{n}"), b"v").status, 201);
    }
    assert_eq!(node.metric(PAUSES), before);
    assert_eq!(client.put("large", &value).status, 201);
    assert_eq!(node.metric(PAUSES), before + 1.0);
    valve.let_go();
}

#[test]
fn a_pause_counts_towards_the_deadline_of_a_write() {
    let (node, valve) = pressed_node();
    let mut client = node.client();
    let value = vec![b'x'; 32 << 10];
    let mut put = |n: usize| {
        let target = format!("/v0/entity?id=k{n}");
        client.ask("PUT", &target, "Dendra-Timeout-Ms: 20\r\n", &value)
    };
    let refused = (0..2_000).map(&mut put).find(|it| it.status == 503);
    let refused = refused.expect("memory is bounded");
    assert!(
        refused.text().starts_with("deadline-in-queue"),
        "{}",
        refused.text()
    );
    assert_eq!(
        refused.header("Dendra-Receipt"),
        Some("outcome=not-applied")
    );
    valve.let_go();
}

#[test]
fn a_write_whose_client_has_gone_while_it_waits_for_the_log_is_not_begun() {
    let (node, valve) = Valve::before(MemVfs::new(), |disk| Node::on(disk, be_patient));
    valve.hold_syncs();
    std::thread::scope(|threads| {
        for n in 0..8 {
            let mut client = node.client();
            threads.spawn(move || {
                begin(&mut client, &format!("k{n}"), MIB);
                assert_eq!(client.read("PUT").status, 201);
            });
        }
        // More than the log takes: the others wait for it.
        node.wait_until_metric("dendra_socket_read_bytes_total", (8 * MIB) as f64);
        node.wait_for_metric("dendra_bytes_waiting ", 0.0);
        let read = node.metric("dendra_socket_read_bytes_total");
        let mut gone = node.client();
        let put = b"PUT /v0/entity?id=gone HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\nContent-Length: 1\r\n\r\nv";
        gone.send(put);
        node.wait_until_metric("dendra_socket_read_bytes_total", read + put.len() as f64);
        drop(gone);
        support::rest_until_clients_count_as_gone();
        valve.let_go();
    });
    node.wait_for_metric("dendra_abandoned_requests_total", 1.0);
    let mut client = node.client();
    assert_eq!(client.value("gone").status, 404);
    assert_eq!(client.put("later", b"v").status, 201, "the line goes on");
}

#[test]
fn writes_wait_for_flushes_that_are_behind_and_hear_it_at_their_deadline() {
    let (node, valve) = pressed_node();
    let mut client = node.client();
    let short = |client: &mut Client, id: &str| {
        let head = format!(
            "PUT /v0/entity?id={id} HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 2000\r\nContent-Length: {MIB}\r\n\r\n"
        );
        client.send(head.as_bytes());
        client.send(&vec![b'x'; MIB]);
        client.read("PUT")
    };
    let refused = (0..100)
        .map(|n| short(&mut client, &format!("k{n}")))
        .find(|answer| answer.status != 201)
        .expect("memory is bounded");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.text().contains("behind"), "{}", refused.text());
    assert_eq!(
        refused.header("Dendra-Receipt"),
        Some("outcome=not-applied")
    );
    let count = "dendra_refused_total{by=\"engine\"}";
    assert_eq!(node.metric(count), 1.0);
    // Behind this answer, the body of the refused write is read and thrown away.
    assert_eq!(client.value("k0").status, 200);
    std::thread::scope(|threads| {
        let before = node.metric("dendra_socket_read_bytes_total");
        for n in 0..8 {
            let mut client = node.client();
            threads.spawn(move || {
                begin(&mut client, &format!("late{n}"), MIB);
                assert_eq!(client.read("PUT").status, 201, "{n}");
                assert_eq!(client.delete(&format!("late{n}")).status, 202, "{n}");
            });
        }
        // All their heads are here, and no more than one read of each.
        node.wait_for_metric("dendra_connections ", 9.0);
        node.wait_until_metric("dendra_socket_read_bytes_total", before + 8.0 * 100.0);
        let read = node.metric("dendra_socket_read_bytes_total") - before;
        assert!(read <= (8 * limits::READ_BYTES_MAX) as f64, "{read} bytes");
        assert_eq!(client.value("k0").status, 200, "reads go on");
        valve.let_go();
    });
    assert_eq!(node.metric(count), 1.0, "the others were served");
}

#[test]
fn a_head_that_was_refused_is_not_read_to_its_end() {
    let node = narrow_node();
    let mut flood = node.client();
    let line = format!("X: {}\r\n", "y".repeat(1_000));
    flood.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n");
    for _ in 0..16 << 10 {
        // The node ends the connection long before.
        if flood.stream.write_all(line.as_bytes()).is_err() {
            break;
        }
    }
    let read = node.metric("dendra_socket_read_bytes_total") as usize;
    let most = 2 * limits::LINGER_BYTES_MAX + 2 * limits::READ_BYTES_MAX;
    assert!(read <= most, "{read} bytes were read, {most} are enough");
}

/// Readers of 8 MiB values that stop at the first byte.
const READERS: usize = 200;

/// Scans whose answers are not read. The first one is served before the others arrive, so its room
/// does not depend on the order in which two loops accept. How many are served.
fn slow_readers(other: &Other) -> (Vec<TcpStream>, usize) {
    let first = slow_reader(other, 60_000);
    assert!(is_served(&first), "the first one waits for its room");
    let rest: Vec<_> = (1..READERS).map(|_| slow_reader(other, 1_000)).collect();
    let served = 1 + rest.iter().filter(|reader| is_served(reader)).count();
    let readers = iter::once(first).chain(rest).collect();
    (readers, served)
}

/// A connection that has asked for a scan and read no byte yet.
fn slow_reader(other: &Other, patience_ms: u32) -> TcpStream {
    let mut stream = TcpStream::connect(other.addr).expect("the node accepts");
    // Small windows: most of an answer is still the node's to hold.
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 16 << 10).expect("it can be small");
    let request = format!(
        "GET /v0/entities?start=k HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: {patience_ms}\r\n\r\n"
    );
    stream
        .write_all(request.as_bytes())
        .expect("the node is there");
    stream
}

/// Reads as much of the answer as tells whether the scan was served.
fn is_served(mut reader: &TcpStream) -> bool {
    let mut status = [0; 12];
    reader.read_exact(&mut status).expect("each is answered");
    &status == b"HTTP/1.1 200"
}

#[test]
fn slow_scans_of_large_values_stay_within_the_memory_that_was_promised() {
    const MEMORY: usize = 300 * MIB;
    const VALUE: usize = 8 * MIB;
    if let Some(folder) = other::asked_to_be_one() {
        return other::be_the_node(&folder, |settings| {
            settings.memory_bytes = MEMORY;
            settings.value_bytes_max = VALUE;
            settings.loops = Some(2);
            // On a busy machine a delay would stand, and scans would rest and be refused for it:
            // that is tested elsewhere.
            settings.queue_delay_target = Duration::ZERO;
        });
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let name = "slow_scans_of_large_values_stay_within_the_memory_that_was_promised";
    let other = Other::start(folder.path(), name);
    let mut client = Client::connect(other.addr);
    for n in 0..8 {
        assert_eq!(client.put(&format!("k{n}"), &vec![b'v'; VALUE]).status, 201);
    }
    let (readers, served) = slow_readers(&other);
    // The rest is as docs/overload.md says: the gate, batches of two loops, a block for each thread
    // that reads.
    let rest =
        limits::BODY_BYTES_INFLIGHT_MAX_DEFAULT + (VALUE + MIB) * (1 + limits::WORKERS_DEFAULT);
    let most = other.memory_bytes(Resident::Most);
    let promised = MEMORY + rest;
    assert!(
        most <= promised + promised / 10,
        "{} MiB of {} MiB, {served} of {READERS} were served",
        most / MIB,
        promised / MIB,
    );
    // Readers that hold room and do not read make way for others.
    assert_eq!(client.put("k0", &vec![b'w'; VALUE]).status, 201);
    assert_eq!(client.value("k0").body.len(), VALUE);
    drop(readers);
}
