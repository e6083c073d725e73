//! Records that belong to other folders now go from tables, memory and log, without a delete.
//!
//! Not here: which records those are (crates `node` and `server`).

use dendra_base::{CellRef, Guard, Version};
use dendra_engine::vfs::{MemVfs, Vfs, Wait};
use dendra_engine::{Batch, Engine, Identity, Lookup, Maintained, Maintenance, Options};
use std::sync::Arc;

fn open(vfs: &Arc<dyn Vfs>) -> Engine {
    let identity = Identity { node: 1, origin: 1 };
    Engine::open(Arc::clone(vfs), Options::for_tests(), identity, 1).expect("it opens")
}

fn put(engine: &Engine, key: &str, hlc: u64) {
    let stored = [b"\x10", key.as_bytes()].concat();
    let version = Version {
        hlc,
        origin: 1,
        rmw: 0,
    };
    let value = key.as_bytes().repeat(20);
    let cell = CellRef::value(&stored, version, &value);
    let mut batch = Batch::new();
    batch
        .push(0, &stored, &cell, Guard::Newest, 1)
        .expect("it fits");
    assert!(engine.submit(&mut batch).is_ok(), "there is room");
    engine.commit(&mut Vec::new()).expect("the disk works");
}

fn holds(engine: &Engine, key: &str) -> Option<u64> {
    let stored = [b"\x10", key.as_bytes()].concat();
    match engine.get(&stored, Wait::Block, |cell| cell.version.hlc) {
        Ok(Lookup::Cell(hlc)) => Some(hlc),
        Ok(Lookup::Nothing) => None,
        other => panic!("{other:?}"),
    }
}

fn drop_odd(engine: &Engine) {
    engine.drop_foreign(Arc::new(|key, _| key[1] == b'f'));
}

fn maintain(engine: &Engine) {
    let all = [Maintenance::Flush, Maintenance::Compact];
    let mut is_idle = false;
    while !is_idle {
        let work = |lane| engine.maintain(lane, 1, 500).expect("it works");
        is_idle = all.map(work) == [Maintained::Idle; 2];
    }
}

/// Keys in tables of two levels and more, superseded ones beneath, and in memory.
fn fill(engine: &Engine) {
    for round in 0..6 {
        for n in 0..400 {
            put(engine, &format!("f{n:03}"), 1_000 * round + 2 * n + 1);
            put(engine, &format!("k{n:03}"), 1_000 * round + 2 * n + 2);
        }
        engine.close(1).expect("the disk works");
        maintain(engine);
    }
    for n in 50..70 {
        put(engine, &format!("f{n:03}"), 9_000 + n);
        put(engine, &format!("k{n:03}"), 9_000 + n);
    }
}

#[test]
fn foreign_records_go_from_tables_memory_and_log_and_the_others_stay() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs);
    fill(&engine);
    assert_eq!(engine.foreign_left(), None);
    drop_odd(&engine);
    let tables = engine
        .stats()
        .levels
        .iter()
        .map(|(tables, _)| tables)
        .sum::<usize>();
    assert!(tables > 3, "{tables}");
    assert_eq!(engine.foreign_left(), Some(tables + 1));
    maintain(&engine);
    assert_eq!(engine.foreign_left(), Some(0));
    for n in 0..400u64 {
        assert_eq!(holds(&engine, &format!("f{n:03}")), None, "f{n:03}");
        let newest = match n {
            50..70 => 9_000 + n,
            _ => 5_000 + 2 * n + 2,
        };
        assert_eq!(holds(&engine, &format!("k{n:03}")), Some(newest));
    }
    // No clean close: the log is read again.
    drop(engine);
    let engine = open(&vfs);
    for n in 0..400 {
        assert_eq!(holds(&engine, &format!("f{n:03}")), None, "f{n:03}");
        assert!(holds(&engine, &format!("k{n:03}")).is_some());
    }
    assert_eq!(engine.foreign_left(), None, "a crash ends the order");
}

#[test]
fn what_is_written_behind_the_end_of_the_order_stays() {
    // The order ends after so many slices of work.
    for slices in (0..240).step_by(3) {
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        let engine = open(&vfs);
        fill(&engine);
        drop_odd(&engine);
        let mut lanes = [Maintenance::Flush, Maintenance::Compact]
            .into_iter()
            .cycle();
        for lane in lanes.by_ref().take(slices) {
            engine.maintain(lane, 1, 500).expect("it works");
        }
        engine.keep_foreign();
        for n in 0..60 {
            // Some are older than those that were there.
            put(&engine, &format!("f{n:03}"), 5_000 + 90 * n);
        }
        put(&engine, "f-new", 1);
        maintain(&engine);
        engine.close(1).expect("the disk works");
        maintain(&engine);
        assert_eq!(holds(&engine, "f-new"), Some(1), "{slices} slices");
        for n in 0..60 {
            let key = format!("f{n:03}");
            assert!(
                holds(&engine, &key) >= Some(5_000 + 90 * n),
                "{key}: {slices} slices"
            );
        }
    }
}
