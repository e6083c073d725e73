//! Ten thousand clients that begin a request and do not go on, beside one that works.
//!
//! The node runs in a process of its own, which is this test once more. Two processes have room for
//! ten thousand descriptors each; one would need twice as many. The memory of the node can be
//! looked at without the clients'.
//!
//! Invariants
//! 1. The slow half that is inside of its head is not ended while the test runs. A test that waited
//!    for one of them would wait for ten minutes. The worker's own patience is shorter than that.
//!    There is no other claim about time.
//!
//! Not here: the end of slow clients (`overload.rs`).
//! See: docs/overload.md.

mod support;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;
use support::Client;
use support::other::{self, Other, Resident};

const CLIENTS: usize = 10_000;
/// Of the node's own memory per slow client: its task, its half head, its seat.
const BYTES_EACH_MAX: usize = 6 << 10;

#[test]
fn ten_thousand_slow_clients_cost_little_and_hold_up_nobody() {
    if let Some(folder) = other::asked_to_be_one() {
        return other::be_the_node(&folder, |settings| {
            settings.memory_bytes = 64 << 20;
            settings.timeouts.head = Duration::from_secs(600);
            settings.timeouts.body = Duration::from_secs(600);
        });
    }
    let limit = getrlimit(Resource::Nofile).maximum;
    let enough = (CLIENTS + 2_000) as u64;
    if limit.is_some_and(|limit| limit < enough) {
        eprintln!("skipped: the system allows {limit:?} descriptors, {enough} are needed");
        return;
    }
    let raised = Rlimit {
        current: limit,
        maximum: limit,
    };
    setrlimit(Resource::Nofile, raised).expect("the soft limit may be the hard one");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let other = Other::start(
        folder.path(),
        "ten_thousand_slow_clients_cost_little_and_hold_up_nobody",
    );
    let mut worker = Client::connect(other.addr);
    assert_eq!(worker.put("k", &vec![b'v'; 1_000]).status, 201);
    let before = other.memory_bytes(Resident::Now);
    // Bodies come last: half a minute is the longest that a body may take.
    let heads: [&[u8]; 2] = [
        b"G",
        b"GET /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    ];
    let bodies: [&[u8]; 2] = [
        b"PUT /v0/entity?id=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n123",
        b"PUT /v0/entity?id=b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ];
    let mut slow = Vec::with_capacity(CLIENTS);
    for n in 0..CLIENTS {
        let mut stream = TcpStream::connect(other.addr).expect("the node accepts");
        let beginnings = if n < CLIENTS / 2 { heads } else { bodies };
        stream
            .write_all(beginnings[n % 2])
            .expect("the node is there");
        slow.push(stream);
    }
    other.wait_until("dendra_accepted_total", |accepted| accepted > CLIENTS);
    for _ in 0..200 {
        assert_eq!(worker.value("k").status, 200);
        assert_eq!(worker.put("k", &vec![b'v'; 1_000]).status, 201);
    }
    let connections = other.metric("dendra_connections");
    assert!(
        connections > CLIENTS / 2,
        "{connections}: the heads, and the worker"
    );
    let each = other.memory_bytes(Resident::Now).saturating_sub(before) / CLIENTS;
    assert!(each < BYTES_EACH_MAX, "{each} bytes for each slow client");
    drop(slow);
    other.wait_until("dendra_connections", |connections| connections == 1);
    assert_eq!(worker.value("a").status, 404, "half a body is no value");
}
