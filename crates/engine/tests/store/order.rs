//! The order of writes whose versions and places in the log disagree. Two event loops take their
//! versions in one order and hand their batches over in the other.
//!
//! ```text
//! loop A   takes version 5 ──────────────────────► submits: plain write "A"
//! loop B            takes version 6 ─► submits: "B", only if the key is absent ─► 201
//! ```
//!
//! Invariants
//! 1. When B's condition held, A came after B: the key holds "A".
//!
//! Not here: many threads and drawn histories (`threads.rs`).
//! See: docs/decisions/0008-guards-in-commit-order.md.

use dendra_base::{CellRef, Condition, Key, Version};
use dendra_engine::vfs::{MemVfs, Wait};
use dendra_engine::{Batch, Engine, Guard, Identity, Lookup, Options, WriteOutcome};
use std::sync::Arc;

const IDENTITY: Identity = Identity { node: 7, origin: 7 };

fn version(hlc: u64) -> Version {
    Version {
        hlc,
        origin: 7,
        rmw: 0,
    }
}

fn engine() -> Engine {
    Engine::open(Arc::new(MemVfs::new()), Options::for_tests(), IDENTITY)
        .expect("an empty folder opens")
}

/// Commits these writes of `key` as one batch.
fn commit(engine: &Engine, writes: &[(u64, &[u8], Guard)]) -> Vec<WriteOutcome> {
    let key = Key::user(b"key");
    let (mut batch, mut done) = (Batch::new(), Vec::new());
    for (token, (hlc, value, guard)) in writes.iter().enumerate() {
        let cell = CellRef::value(key.as_stored(), version(*hlc), value);
        batch
            .push(token as u64, key.as_stored(), &cell, guard.clone(), 0)
            .expect("the record fits");
    }
    engine.submit(&mut batch).expect("the queue has room");
    engine
        .commit(&mut done)
        .expect("a folder in memory takes writes");
    done.sort_by_key(|(token, _)| *token);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

fn value(engine: &Engine) -> (Vec<u8>, Version) {
    let key = Key::user(b"key");
    let found = engine.get(key.as_stored(), Wait::Block, |cell| {
        (cell.value.to_vec(), cell.version)
    });
    match found.expect("a folder in memory is readable") {
        Lookup::Cell(found) => found,
        other => panic!("the key is there, and not {other:?}"),
    }
}

#[test]
fn a_plain_write_behind_a_condition_that_held_is_not_lost() {
    let engine = engine();
    let held = commit(&engine, &[(6, b"B", Guard::If(Condition::Absent))]);
    assert_eq!(
        held,
        [WriteOutcome::Applied {
            version: version(6)
        }]
    );
    let plain = commit(&engine, &[(5, b"A", Guard::If(Condition::None))]);
    let (bytes, newest) = value(&engine);
    assert_eq!(bytes, b"A");
    assert_eq!(plain, [WriteOutcome::Applied { version: newest }]);
}

#[test]
fn the_same_holds_inside_one_batch() {
    let engine = engine();
    let outcomes = commit(
        &engine,
        &[
            (6, b"B", Guard::If(Condition::Absent)),
            (5, b"A", Guard::If(Condition::None)),
            (4, b"C", Guard::If(Condition::None)),
        ],
    );
    let (bytes, newest) = value(&engine);
    assert_eq!(bytes, b"C");
    assert_eq!(outcomes[2], WriteOutcome::Applied { version: newest });
    // A condition on the version that the second write was told still tells it from the third.
    let WriteOutcome::Applied { version: second } = outcomes[1] else {
        panic!("a plain write is applied");
    };
    let stale = commit(&engine, &[(9, b"D", Guard::If(Condition::Matches(second)))]);
    assert_eq!(
        stale,
        [WriteOutcome::GuardFailed {
            current: Some(newest)
        }]
    );
}

#[test]
fn a_late_copy_of_an_older_write_stays_older() {
    let engine = engine();
    commit(&engine, &[(6, b"B", Guard::If(Condition::Absent))]);
    commit(&engine, &[(5, b"A", Guard::Newest)]);
    assert_eq!(value(&engine).0, b"B");
}

#[test]
fn plain_writes_without_a_condition_in_between_keep_the_order_of_their_versions() {
    let engine = engine();
    commit(&engine, &[(6, b"B", Guard::If(Condition::None))]);
    commit(&engine, &[(5, b"A", Guard::If(Condition::None))]);
    assert_eq!(value(&engine).0, b"B");
}
