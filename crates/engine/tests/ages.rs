//! The horizon of a cluster: deletes, ended values and promises go by their age, and not before.
//!
//! Not here: the confirmation of a horizon (crate `node`), one node by itself (`space.rs`).
//! See: docs/protocol.md, "Horizons".

use dendra_base::{CellRef, Guard, Version};
use dendra_engine::vfs::{MemVfs, Vfs, Wait};
use dendra_engine::{Batch, Engine, Identity, Lookup, Maintained, Maintenance, Options};
use std::sync::Arc;

const CLOCK: u64 = 1 << 60;

fn open(vfs: &Arc<dyn Vfs>) -> Engine {
    let identity = Identity { node: 1, origin: 1 };
    Engine::open(Arc::clone(vfs), Options::for_tests(), identity).expect("it opens")
}

fn plain(hlc: u64) -> Version {
    Version {
        hlc: CLOCK + hlc,
        origin: 1,
        rmw: 0,
    }
}

fn write(engine: &Engine, key: &[u8], cell: CellRef<'_>) {
    let mut batch = Batch::new();
    batch
        .push(0, key, &cell, Guard::Newest, 1)
        .expect("it fits");
    assert!(engine.submit(&mut batch).is_ok(), "there is room");
    engine.commit(&mut Vec::new()).expect("the disk works");
}

/// Everything into tables, and these as deep as they go.
fn settle(engine: &Engine) {
    engine.close(1).expect("the disk works");
    for now_ms in [1, 100_000, 200_000] {
        for lane in [Maintenance::Flush, Maintenance::Compact] {
            while engine.maintain(lane, now_ms, usize::MAX).expect("it works") == Maintained::More {
            }
        }
    }
}

fn holds(engine: &Engine, key: &[u8]) -> bool {
    let found = engine.get(key, Wait::Block, |cell| cell.version);
    matches!(found, Ok(Lookup::Cell(_)))
}

#[test]
fn what_is_older_than_the_horizon_goes_and_what_may_be_younger_stays() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs);
    let of = |cell: CellRef<'static>, born| CellRef {
        copies: 3,
        born,
        ..cell
    };
    let successor = |hlc| Version {
        rmw: 1,
        ..plain(hlc)
    };
    let ended = |key: &[u8]| CellRef {
        expiry_ms: Some(1),
        ..of(CellRef::value(key, plain(10), b"v"), 0)
    };
    let tombstone = |key: &[u8], version, born| of(CellRef::tombstone(key, version), born);
    let old = CLOCK + 20;
    let young = CLOCK + 40;
    let goes: [(&[u8], CellRef<'_>); 5] = [
        (b"\x10a", tombstone(b"\x10a", plain(10), 0)),
        (b"\x10b", tombstone(b"\x10b", successor(10), old)),
        (b"\x10c", ended(b"\x10c")),
        (
            b"\x02a",
            of(CellRef::value(b"\x02a", plain(11), b"promise"), old),
        ),
        (
            b"\x02b",
            of(CellRef::value(b"\x02b", plain(11), b"promise"), old),
        ),
    ];
    let stays: [(&[u8], CellRef<'_>); 7] = [
        (b"\x10d", of(CellRef::value(b"\x10d", plain(10), b"v"), 0)),
        (b"\x10e", tombstone(b"\x10e", plain(40), 0)),
        (b"\x10f", tombstone(b"\x10f", successor(10), young)),
        (b"\x10g", tombstone(b"\x10g", successor(10), 0)),
        (
            b"\x10h",
            CellRef {
                copies: 2,
                ..tombstone(b"\x10h", plain(10), 0)
            },
        ),
        (
            b"\x02c",
            of(CellRef::value(b"\x02c", plain(11), b"promise"), young),
        ),
        (
            b"\x01n",
            of(CellRef::value(b"\x01n", plain(11), b"note"), old),
        ),
    ];
    for (key, cell) in goes.iter().chain(&stays) {
        write(&engine, key, *cell);
    }
    settle(&engine);
    for (key, _) in goes.iter().chain(&stays) {
        assert!(holds(&engine, key), "{key:?}: no horizon");
    }
    // Below all of them, and then above the older half. The value has ended by the clock that asks
    // for the work, and at first not for everybody.
    for (clock, ended_ms, is_over) in [
        (CLOCK + 5, 0, false),
        (CLOCK + 30, 0, true),
        (CLOCK + 31, 1, true),
    ] {
        engine.set_ended_ms(ended_ms);
        engine.raise_age_horizon(clock, 3);
        // A compaction looks at records that something else is written over.
        write(&engine, b"\x01a", CellRef::value(b"\x01a", plain(50), b"n"));
        write(&engine, b"\x10z", CellRef::value(b"\x10z", plain(50), b"v"));
        settle(&engine);
        for (key, _) in &goes {
            let goes = is_over && (ended_ms > 0 || *key != b"\x10c");
            assert_eq!(holds(&engine, key), !goes, "{key:?} at {clock}");
        }
        for (key, _) in &stays {
            assert!(holds(&engine, key), "{key:?} at {clock}");
        }
    }
}

#[test]
fn a_delete_stays_while_the_log_has_an_older_record() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs);
    let tombstone = CellRef {
        copies: 3,
        ..CellRef::tombstone(b"\x10k", plain(10))
    };
    write(&engine, b"\x10k", tombstone);
    settle(&engine);
    // Late and older: the memtable does not keep it, and the log does.
    write(&engine, b"\x10k", CellRef::value(b"\x10k", plain(9), b"v"));
    engine.raise_age_horizon(CLOCK + 30, 3);
    while engine
        .maintain(Maintenance::Compact, 100_000, usize::MAX)
        .expect("it works")
        == Maintained::More
    {}
    assert!(holds(&engine, b"\x10k"), "a restart would undo it");
}

#[test]
fn deletes_of_hints_and_notes_go_at_any_age_from_the_folder_of_a_member() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs);
    let keys: [&[u8]; 3] = [b"\x03hint", b"\x01note", b"\x10user"];
    for key in keys {
        write(&engine, key, CellRef::value(key, plain(60), b"v"));
        settle(&engine);
        let gone = CellRef {
            copies: 3,
            ..CellRef::tombstone(key, plain(61))
        };
        write(&engine, key, gone);
    }
    // A compaction looks at records that something else is written over.
    let churn = |hlc| {
        for key in [&b"\x01a"[..], b"\x10z"] {
            write(&engine, key, CellRef::value(key, plain(hlc), b"n"));
        }
        settle(&engine);
    };
    churn(70);
    assert_eq!(keys.map(|key| holds(&engine, key)), [true; 3]);
    // No horizon has risen: no record of clients goes.
    engine.raise_age_horizon(0, 3);
    churn(80);
    assert_eq!(keys.map(|key| holds(&engine, key)), [false, false, true]);
}
