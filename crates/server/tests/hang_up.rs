//! Clients that hang up while a member works for them, and questions that a member withdraws.
//!
//! ```text
//! the test ── frames ─► a node ─► store queue ─► one worker, held by a valve
//! ```
//!
//! Invariants
//! 1. Slowness is made by a valve in front of the disk, never by sleeping.
//!
//! Not here: which questions are withdrawn (crate `node`, `tests/scripts/hang-up.txt`).
//! See: docs/overload.md, section "Clients that hang up".

mod support;

use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Range};
use dendra_engine::vfs::{MemVfs, Vfs};
use dendra_server::settings::Settings;
use dendra_wire::peer::{Message, encode_probe, encode_withdraw};
use std::sync::Arc;
use support::Node;
use support::asker::{read, write};
use support::guest::node_on_with;
use support::link::Opened;
use support::valve::Valve;

const VALUE: [u8; 10_000] = [7; 10_000];
const KEYS: [&[u8]; 3] = [b"one", b"two", b"three"];
/// More, so that those above are not all that there is.
const OTHERS: [&[u8]; 9] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i"];

fn slow(settings: &mut Settings) {
    settings.workers = 1;
}

/// A node whose values are in tables and in no cache, with a valve in front of its disk.
fn cold_member() -> (Node, Valve) {
    let disk = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let node = node_on_with(vfs, slow);
    let mut first = Opened::proven(&node, 1);
    for (id, key) in KEYS.into_iter().chain(OTHERS).enumerate() {
        first.ask(id as u64, write(key, &VALUE));
        let (_, written) = first.answer();
        assert!(matches!(written, Answer::Written(_)), "{written:?}");
    }
    drop(first);
    // A recovered write goes to a table, and no block of it is in memory.
    node.stop();
    let (node, valve) = Valve::before(disk, |disk| node_on_with(disk, slow));
    // A node counts its hints once, by the same worker: after this page it has.
    let mut second = Opened::proven(&node, 9);
    let range = Range {
        start: Bytes::new(),
        end: Some(Bytes::from_static(b"\0")),
        is_reverse: false,
        is_keys_only: true,
    };
    second.ask(1, Ask::Page { range, bytes: 1 });
    let (_, page) = second.answer();
    assert!(matches!(page, Answer::Page { .. }), "{page:?}");
    (node, valve)
}

#[test]
fn a_read_that_was_withdrawn_while_it_waits_for_the_disk_is_not_done() {
    let (node, valve) = cold_member();
    let mut link = Opened::proven(&node, 2);
    valve.hold_reads();
    link.ask(1, read(KEYS[0]));
    valve.wait_for(1);
    link.ask(2, read(KEYS[1]));
    link.ask(3, read(KEYS[2]));
    node.wait_for_metric("dendra_store_queue_points ", 2.0);
    // Reads without a request, and those that a worker has begun, are too late.
    link.say(|out, seal, _| encode_withdraw(out, seal, &[2, 99, 1]));
    node.wait_for_metric("dendra_cancelled_orders_total", 1.0);
    assert_eq!(node.metric("dendra_store_queue_points "), 1.0);
    valve.let_go();
    // The two withdrawn questions have no answer. The probe after them has one, so theirs would
    // have come before it.
    let (id, found) = link.answer();
    assert!(matches!(found, Answer::Cell(Some(_))), "{found:?}");
    assert_eq!(id, 3);
    link.say(|out, seal, _| encode_probe(out, seal, 8));
    assert_eq!(link.message(), Some(Message::Alive { id: 8 }));
}

#[test]
fn what_a_client_asked_before_it_hung_up_is_not_read() {
    let (node, valve) = cold_member();
    valve.hold_reads();
    let line = "Dendra-Timeout-Ms: 60000\r\n";
    let target = |key: &[u8]| {
        let key = std::str::from_utf8(key).expect("a key of letters");
        format!("GET /v0/entity?id={key}&ack=1&from=2 HTTP/1.1\r\nHost: localhost\r\n{line}\r\n")
    };
    let mut stays = node.client();
    stays.send(target(KEYS[0]).as_bytes());
    valve.wait_for(1);
    let mut leaves = node.client();
    leaves.send(target(KEYS[1]).as_bytes());
    node.wait_for_metric("dendra_store_queue_points ", 1.0);
    drop(leaves);
    node.wait_for_metric("dendra_cancelled_orders_total", 1.0);
    assert_eq!(node.metric("dendra_store_queue_points "), 0.0);
    assert_eq!(node.metric("dendra_hung_up_operations_total"), 1.0);
    node.wait_for_metric("dendra_refused_total{by=\"abandoned\"}", 1.0);
    valve.let_go();
    assert_eq!(stays.read("GET").status, 200);
}
