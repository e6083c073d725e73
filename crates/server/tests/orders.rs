//! Writes of members that wait in line for a member's log.
//!
//! ```text
//! the test ── frames ─► a node ─► line for the log ─► log, its syncs held by a valve
//! ```
//!
//! Invariants
//! 1. Slowness is made by a valve in front of the disk, never by sleeping.
//!
//! Not here: writes of clients of a node by itself (`room.rs`), the order in a line and the turns
//! of two (crate `node`, `admission/line.rs`, `admission/turns.rs`).
//! See: docs/overload.md, "Large and small writes".

mod support;

use dendra_base::peer::{Answer, Ask, Readiness, Refused};
use dendra_engine::Durability;
use dendra_engine::vfs::MemVfs;
use dendra_server::limits::{ORDERS_INFLIGHT_MAX, ORDERS_WAITING_BYTES_MAX};
use dendra_wire::peer::encode_withdraw;
use std::collections::BTreeMap;
use std::time::Instant;
use support::asker::{read, write};
use support::guest::node_on_with;
use support::link::Opened;
use support::valve::Valve;
use support::{Client, Node, PATIENCE};

const MIB: usize = 1 << 20;
const KEYS: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"];
/// The id of a small write after those to all keys.
const SMALL: u64 = 100;

/// A member whose log stands still, and the test's link to it.
fn held_member() -> (Node, Valve, Opened) {
    let (node, valve) = Valve::before(MemVfs::new(), |disk| node_on_with(disk, |_| {}));
    let link = Opened::proven(&node, 1);
    valve.hold_syncs();
    (node, valve, link)
}

/// Asks for a large write of each key, under the number of the key.
fn ask_large(link: &mut Opened) {
    for (id, key) in KEYS.into_iter().enumerate() {
        link.ask(id as u64, write(key, &vec![7; MIB]));
    }
}

fn wait_for_line(node: &Node, of: &str, least: f64) {
    node.wait_until_metric(&format!("dendra_writes_in_line{{of=\"{of}\"}}"), least);
}

#[test]
fn a_small_write_of_a_member_goes_in_front_of_large_ones_that_wait_for_the_log() {
    let (node, valve, mut link) = held_member();
    let admitted = "dendra_class_admitted_total{class=\"peers\"}";
    let before = node.metric(admitted);
    ask_large(&mut link);
    link.ask(SMALL, write(b"small", b"v"));
    node.wait_for_metric(admitted, before + 9.0);
    wait_for_line(&node, "members", 2.0);
    valve.let_go();
    let answers: Vec<(u64, Answer)> = (0..9).map(|_| link.answer()).collect();
    for (id, answer) in &answers {
        assert!(matches!(answer, Answer::Written(_)), "{id}: {answer:?}");
    }
    let at = answers.iter().position(|(id, _)| *id == SMALL);
    // Some of the large ones are in the log, in its queue and in the batch in front of it.
    assert!(at.is_some_and(|at| at <= KEYS.len() / 2), "{answers:?}");
}

#[test]
fn writes_that_were_withdrawn_while_they_wait_for_the_log_are_not_done() {
    let (node, valve, mut link) = held_member();
    ask_large(&mut link);
    wait_for_line(&node, "members", 4.0);
    let cancelled = "dendra_cancelled_orders_total";
    let before = node.metric(cancelled);
    link.say(|out, seal, _| encode_withdraw(out, seal, &[6, 7]));
    node.wait_for_metric(cancelled, before + 2.0);
    valve.let_go();
    let answers: BTreeMap<u64, Answer> = (0..6).map(|_| link.answer()).collect();
    assert_eq!(
        answers.keys().copied().collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    for (key, is_there) in [(KEYS[5], true), (KEYS[6], false), (KEYS[7], false)] {
        link.ask(SMALL, read(key));
        let (_, found) = link.answer();
        assert_eq!(
            matches!(found, Answer::Cell(Some(_))),
            is_there,
            "{found:?}"
        );
    }
    drop(node);
}

/// The state of its store that the member tells beside its clock.
fn readiness(link: &mut Opened, id: u64) -> Readiness {
    link.ask(id, Ask::Clock);
    loop {
        match link.answer() {
            (of, Answer::Clock { readiness, .. }) if of == id => return readiness,
            // Of a write.
            _ => {}
        }
    }
}

/// The member says that it is behind with so many writes that wait, and that it is ready once they
/// are done.
fn is_behind_with(writes: usize, bytes: usize) {
    let (node, valve, mut link) = held_member();
    assert_eq!(readiness(&mut link, SMALL), Readiness::Ready);
    for id in 0..writes as u64 {
        link.ask(1_000 + id, write(b"k", &vec![7; bytes]));
    }
    wait_for_line(&node, "members", 1.0);
    assert_eq!(readiness(&mut link, SMALL), Readiness::Behind);
    valve.let_go();
    let deadline = Instant::now() + PATIENCE;
    while readiness(&mut link, SMALL) != Readiness::Ready {
        assert!(Instant::now() < deadline, "it stays behind");
    }
}

#[test]
fn a_member_is_behind_while_half_of_the_line_for_its_log_is_full() {
    is_behind_with(ORDERS_WAITING_BYTES_MAX / MIB / 2 + 4, MIB);
}

#[test]
fn a_member_is_behind_while_it_has_as_many_orders_as_it_may_have() {
    is_behind_with(ORDERS_INFLIGHT_MAX, 1);
}

#[test]
fn a_write_of_a_member_is_not_refused_while_clients_are_called_out_of_their_line() {
    const CLIENTS: usize = 300;
    let (node, valve) = Valve::before(MemVfs::new(), |disk| {
        node_on_with(disk, |settings| {
            settings.durability = Durability::Os;
            settings.memory_bytes = 40 * MIB;
        })
    });
    let mut link = Opened::proven(&node, 1);
    // The log is not synced with this durability; the tables are. Memory fills.
    valve.hold_syncs();
    let mut asked = 0;
    let in_line = "dendra_writes_in_line{of=\"members\"}";
    let deadline = Instant::now() + PATIENCE;
    while node.metric("dendra_engine_pressure ") < 1.0 || node.metric(in_line) < 1.0 {
        assert!(Instant::now() < deadline, "memory never is full");
        // Of a key of its own: a second copy of a version takes no room.
        let key = format!("fill{asked}").leak().as_bytes();
        link.ask(asked, write(key, &vec![7; MIB / 2]));
        asked += 1;
    }
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| node.client()).collect();
    for client in &mut clients {
        client.send(b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\nContent-Length: 1\r\n\r\nv");
    }
    wait_for_line(&node, "clients", CLIENTS as f64);
    valve.let_go();
    for _ in 0..200 {
        for _ in 0..20 {
            link.ask(asked, write(b"small", b"v"));
            asked += 1;
        }
        for _ in 0..20 {
            let (id, written) = link.answer();
            assert_ne!(written, Answer::Refused(Refused::Busy), "{id} of {asked}");
        }
    }
    node.wait_for_metric("dendra_writes_in_line{of=\"clients\"}", 0.0);
}

#[test]
fn a_client_has_its_turn_while_members_take_each_room_of_the_engine_that_comes_back() {
    // Together they are more than the memory, and a batch of them is more than a memtable.
    const OPEN: u64 = 256;
    const BYTES: usize = 8 << 10;
    const MEMTABLE: usize = 64 << 10;
    // Were they always first, it would be called behind two thousand or more.
    const ANSWERS_MAX: usize = 1_000;
    let (node, valve) = Valve::before(MemVfs::new(), |disk| {
        node_on_with(disk, |settings| {
            settings.durability = Durability::Os;
            settings.memory_bytes = 16 * MIB;
            settings.memtable_bytes = Some(MEMTABLE);
            settings.value_bytes_max = 64 << 10;
        })
    });
    let mut link = Opened::proven(&node, 1);
    let mut asked = 0;
    let mut ask = |link: &mut Opened| {
        // Of a key of its own: a second copy of a version takes no room.
        let key = format!("fill{asked}").leak().as_bytes();
        link.ask(asked, write(key, &[7; BYTES]));
        asked += 1;
    };
    // The log is not synced with this durability; the tables are. Memory fills.
    valve.hold_syncs();
    (0..OPEN).for_each(|_| ask(&mut link));
    wait_for_line(&node, "members", OPEN as f64 / 2.0);
    let mut client = node.client();
    client.send(b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\nContent-Length: 1\r\n\r\nv");
    wait_for_line(&node, "clients", 1.0);
    valve.let_go();
    let mut answers = 0;
    while node.metric("dendra_writes_in_line{of=\"clients\"}") > 0.0 {
        assert!(
            answers < ANSWERS_MAX,
            "the client waits for members again and again"
        );
        for _ in 0..OPEN / 4 {
            let (id, written) = link.answer();
            assert!(matches!(written, Answer::Written(_)), "{id}: {written:?}");
            ask(&mut link);
            answers += 1;
        }
    }
    println!("called behind {answers} writes of members at most");
}
