//! Writes of members that wait in line for a member's log.
//!
//! ```text
//! the test ── frames ─► a node ─► line for the log ─► log, its syncs held by a valve
//! ```
//!
//! Invariants
//! 1. Slowness is made by a valve in front of the disk, never by sleeping.
//!
//! Not here: writes of clients of a node by itself (`room.rs`), the order in a line (crate `node`,
//! `admission/line.rs`). See: docs/overload.md, "Large and small writes".

mod support;

use dendra_base::peer::Answer;
use dendra_engine::vfs::MemVfs;
use support::asker::write;
use support::guest::node_on_with;
use support::link::Opened;
use support::valve::Valve;

const MIB: usize = 1 << 20;
const KEYS: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"];
/// The id of a small write behind those to all keys.
const SMALL: u64 = 100;

#[test]
fn a_small_write_of_a_member_goes_in_front_of_large_ones_that_wait_for_the_log() {
    let (node, valve) = Valve::before(MemVfs::new(), |disk| node_on_with(disk, |_| {}));
    let mut link = Opened::proven(&node, 1);
    let admitted = "dendra_class_admitted_total{class=\"peers\"}";
    let before = node.metric(admitted);
    valve.hold_syncs();
    for (id, key) in KEYS.into_iter().enumerate() {
        link.ask(id as u64, write(key, &vec![7; MIB]));
    }
    link.ask(SMALL, write(b"small", b"v"));
    node.wait_for_metric(admitted, before + 9.0);
    node.wait_until_metric("dendra_writes_in_line{of=\"members\"}", 2.0);
    valve.let_go();
    let answers: Vec<(u64, Answer)> = (0..9).map(|_| link.answer()).collect();
    for (id, answer) in &answers {
        assert!(matches!(answer, Answer::Written(_)), "{id}: {answer:?}");
    }
    let at = answers.iter().position(|(id, _)| *id == SMALL);
    // Some of the large ones are in the log, in its queue and in the batch in front of it.
    assert!(at.is_some_and(|at| at <= KEYS.len() / 2), "{answers:?}");
}
