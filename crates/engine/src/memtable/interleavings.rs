//! The memtable's own files compiled a second time, against loom. It tries every interleaving of
//! one writer and one reader within the bound, and every stale value that the orderings allow.
//!
//! ```text
//! list.rs, iter.rs  ──►  super::sync = std        the product
//!                   └─►  self::sync  = loom       these tests: two levels, one bucket
//! ```
//!
//! Invariants
//! 1. No part of the protocol is copied here: the checked files are the shipped ones.
//!
//! Not here: large tables and long runs (`tests.rs`, with real threads).
//! See: Norris and Demsky, "CDSChecker", 2013, for the method of loom.

#![expect(
    clippy::duplicate_mod,
    reason = "the same files are checked under another memory model"
)]
#![expect(dead_code, reason = "the tests use a part of the copy's public face")]

use super::arena;
#[path = "iter.rs"]
mod iter;
#[path = "list.rs"]
mod list;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicPtr, Ordering};

    /// Panics when memory is read that the reader has not acquired.
    pub(super) struct Published(loom::cell::UnsafeCell<()>);

    impl Published {
        pub(super) fn new() -> Published {
            Published(loom::cell::UnsafeCell::new(()))
        }

        pub(super) fn read(&self) {
            self.0.with(|_| ());
        }
    }

    /// Two levels are enough to descend from one to the other.
    pub(super) const HEIGHT_MAX: usize = 2;

    pub(super) fn nulls<T>(_len: usize) -> Box<[AtomicPtr<T>]> {
        // One bucket, so that chains are walked.
        Box::new([AtomicPtr::new(std::ptr::null_mut())])
    }
}

use self::list::{Inserter, Memtable};
use crate::source::Source;
use dendra_base::{CellRef, Direction, Version};
use std::ops::Bound;
use std::sync::Arc;

fn put(inserter: &mut Inserter, key: &[u8], hlc: u64) {
    let version = Version {
        hlc,
        origin: 1,
        rmw: 0,
    };
    let mut bytes = Vec::new();
    CellRef::value(key, version, key).encode(&mut bytes);
    inserter.insert(key, &bytes);
}

/// The clock of `key`'s cell, 0 when there is none.
fn hlc(table: &Memtable, key: &[u8]) -> u64 {
    table.get(key).map_or(0, |cell| {
        assert!(cell.is_intact(key));
        cell.version.hlc
    })
}

fn keys(table: &Arc<Memtable>, direction: Direction) -> Vec<Vec<u8>> {
    let mut iter = table.iter();
    iter.seek(Bound::Unbounded, direction)
        .expect("memory does not fail");
    let mut seen = Vec::new();
    while let Some((key, cell)) = iter.current() {
        assert!(cell.is_intact(key));
        seen.push(key.to_vec());
        iter.advance().expect("memory does not fail");
    }
    seen
}

/// Runs `write` and `read` as two threads in every interleaving.
fn explore(prepare: fn(&mut Inserter), write: fn(&mut Inserter), read: fn(&Arc<Memtable>)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let (table, mut inserter) = Memtable::new(0);
        prepare(&mut inserter);
        let reader = loom::thread::spawn(move || read(&table));
        write(&mut inserter);
        reader.join().expect("the reader's assertions hold");
    });
}

#[test]
fn a_key_once_seen_stays_and_only_gets_newer() {
    explore(
        |_| (),
        |inserter| {
            put(inserter, b"k", 1);
            put(inserter, b"k", 2);
        },
        |table| {
            let first = hlc(table, b"k");
            let second = hlc(table, b"k");
            assert!(second >= first, "{first} became {second}");
        },
    );
}

#[test]
fn a_later_insert_is_never_seen_without_an_earlier_one() {
    explore(
        |inserter| put(inserter, b"m", 1),
        |inserter| {
            put(inserter, b"a", 2);
            put(inserter, b"z", 3);
        },
        |table| {
            let z = hlc(table, b"z");
            let a = hlc(table, b"a");
            assert!(
                z == 0 || a != 0,
                "the second write is visible, the first is not"
            );
        },
    );
}

#[test]
fn what_a_point_read_saw_a_scan_shows_and_the_other_way_round() {
    explore(
        |inserter| put(inserter, b"m", 1),
        |inserter| put(inserter, b"a", 2),
        |table| {
            let by_get = hlc(table, b"a") != 0;
            let by_scan = keys(table, Direction::Forward);
            let by_second_get = hlc(table, b"a") != 0;
            let scanned = by_scan.contains(&b"a".to_vec());
            assert!(by_scan.contains(&b"m".to_vec()), "a scan lost an old key");
            assert!(
                scanned || !by_get,
                "a point read saw it, the scan behind it did not"
            );
            assert!(
                by_second_get || !scanned,
                "a scan saw it, the point read did not"
            );
        },
    );
}

#[test]
fn a_scan_backward_meets_no_half_made_node() {
    explore(
        |inserter| put(inserter, b"m", 1),
        |inserter| put(inserter, b"z", 2),
        |table| {
            let seen = keys(table, Direction::Backward);
            assert!(
                seen == [b"m".to_vec()] || seen == [b"z".to_vec(), b"m".to_vec()],
                "{seen:?}"
            );
        },
    );
}

#[test]
fn version_bounds_include_every_cell_that_is_visible() {
    explore(
        |inserter| put(inserter, b"m", 5),
        |inserter| {
            put(inserter, b"m", 7);
            put(inserter, b"a", 3);
        },
        |table| {
            for key in [b"a", b"m"] {
                let Some(version) = table.get(key).map(|cell| cell.version) else {
                    continue;
                };
                assert!(table.version_max().is_some_and(|max| version <= max));
                assert!(table.version_min().is_some_and(|min| version >= min));
            }
        },
    );
}
