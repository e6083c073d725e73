//! Records that belong to other folders now go from tables, memory and log, without a delete. A
//! drop that is looked at or cut in the middle shows none that a delete hid.
//!
//! Not here: which records those are (crates `node` and `server`).

mod crashing;

use crashing::{Crashes, crash_everywhere};
use dendra_base::{CellRef, Direction, Guard, Version};
use dendra_engine::vfs::{MemVfs, Vfs, Wait};
use dendra_engine::{
    Batch, Cursor, Engine, Error, Flow, Identity, Lookup, Maintained, Maintenance, Options,
    Progress, Show, Snapshot,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

fn open(vfs: &Arc<dyn Vfs>) -> Engine {
    open_with(vfs, Options::for_tests()).expect("it opens")
}

fn open_with(vfs: &Arc<dyn Vfs>, options: Options) -> Result<Engine, Error> {
    let identity = Identity { node: 1, origin: 1 };
    let engine = Engine::open(Arc::clone(vfs), options, identity)?;
    engine.set_ended_ms(NOW_MS);
    Ok(engine)
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

/// Milliseconds of all work here, and the end of values that end after it.
const NOW_MS: u64 = 500;
const END_MS: u64 = 9_000;

/// Few records make many tables, in several levels.
fn small() -> Options {
    let mut options = Options::for_tests();
    options.table_bytes = 2 << 10;
    options.level1_bytes = 4 << 10;
    options.level0_tables_trigger = 4;
    options
}

/// By key: the record that hides all others of it, if the owners may purge that one.
type Hiding = BTreeMap<Vec<u8>, u64>;

fn submit(engine: &Engine, cells: &[(Vec<u8>, u64, Option<Option<u64>>)]) -> Result<(), Error> {
    let mut batch = Batch::new();
    for (key, hlc, value) in cells {
        let version = Version {
            hlc: *hlc,
            origin: 1,
            rmw: 0,
        };
        let bytes = key.repeat(8);
        let cell = match value {
            None => CellRef::tombstone(key, version),
            Some(expiry_ms) => CellRef {
                expiry_ms: *expiry_ms,
                ..CellRef::value(key, version, &bytes)
            },
        };
        let pushed = batch.push(0, key, &cell, Guard::Newest, 1);
        pushed.expect("it fits");
    }
    assert!(engine.submit(&mut batch).is_ok(), "there is room");
    engine.commit(&mut Vec::new())
}

fn slice(engine: &Engine, lane: Maintenance, budget_bytes: usize) -> Result<Maintained, Error> {
    engine.maintain(lane, NOW_MS, budget_bytes)
}

fn settle(engine: &Engine) -> Result<(), Error> {
    engine.close(NOW_MS)?;
    let all = [Maintenance::Flush, Maintenance::Compact];
    loop {
        let done = all.map(|lane| slice(engine, lane, 1 << 20));
        let [flush, compact] = done;
        if (flush?, compact?) == (Maintained::Idle, Maintained::Idle) {
            return Ok(());
        }
    }
}

/// Old values of `keys` keys in deep tables. Above them, in other tables and in memory: deletes,
/// values that end, and deletes above those. Some old values came after the deletes above them, and
/// lie in a table of level 0, or in memory.
fn cover(engine: &Engine, keys: u64) -> Result<Hiding, Error> {
    let key = |kind: char, n: u64| format!("\x10{kind}{n:03}").into_bytes();
    let all = |n| [key('f', n), key('k', n)];
    let older = |n| all(n).map(|key| (key, 100 + n, Some(None)));
    let flush = || -> Result<(), Error> {
        engine.close(NOW_MS)?;
        while slice(engine, Maintenance::Flush, 1 << 20)? == Maintained::More {}
        Ok(())
    };
    let (late, later) = (|n: &u64| n % 7 == 4, |n: &u64| n % 7 == 5);
    for n in (0..keys).filter(|n| !late(n) && !later(n)) {
        submit(engine, &older(n))?;
    }
    settle(engine)?;
    let mut hiding = Hiding::new();
    for round in 0..3u64 {
        for n in (0..keys).filter(|n| n % 3 >= round && (round > 0 || !later(n))) {
            let hlc = 1_000 * (round + 1) + n;
            let newer = match (n + round) % 4 {
                0 | 1 => None,
                2 => Some(Some(END_MS)),
                // It had ended when it was written.
                _ => Some(Some(NOW_MS)),
            };
            submit(engine, &all(n).map(|key| (key, hlc, newer)))?;
            hiding.extend(all(n).map(|key| (key, hlc)));
        }
        match round {
            0 => {
                settle(engine)?;
                for n in (0..keys).filter(late) {
                    submit(engine, &older(n))?;
                }
                flush()?;
            }
            1 => flush()?,
            _ => {
                for n in (0..keys).filter(later) {
                    submit(engine, &older(n))?;
                }
            }
        }
    }
    Ok(hiding)
}

/// Each key of this folder shows the record that hides all others. A foreign one may be gone.
fn shows_no_hidden_record(hiding: &Hiding, shown: &BTreeMap<Vec<u8>, u64>, at: &str) {
    for (key, newest) in hiding {
        let found = shown.get(key);
        let is_gone = key[1] == b'f' && found.is_none();
        let name = key.escape_ascii();
        assert!(
            is_gone || found == Some(newest),
            "{at}: {name} shows {found:?} and not {newest}"
        );
    }
}

fn versions(
    mut scan: impl FnMut(&mut Cursor, &mut dyn FnMut(&[u8], CellRef<'_>) -> Flow) -> Progress,
) -> BTreeMap<Vec<u8>, u64> {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = Cursor::new(all.0, all.1, Direction::Forward, Show::All);
    let mut found = BTreeMap::new();
    let mut visit = |key: &[u8], cell: CellRef<'_>| {
        found.insert(key.to_vec(), cell.version.hlc);
        Flow::Continue
    };
    while scan(&mut cursor, &mut visit) == Progress::More {}
    found
}

fn of_engine(engine: &Engine) -> BTreeMap<Vec<u8>, u64> {
    let bytes = 1 << 20;
    versions(|cursor, visit| engine.scan(cursor, bytes, visit).expect("it is whole"))
}

/// The records that a backup of this moment would hold.
fn of_checkpoint(vfs: &MemVfs, engine: &Engine, number: usize) -> BTreeMap<Vec<u8>, u64> {
    let (target, path) = (MemVfs::new(), PathBuf::from(format!("checkpoint-{number}")));
    let made = engine.checkpoint(&target, &path, NOW_MS);
    made.expect("the disk works");
    let linked = vfs.linked_folder(&path).expect("it was made");
    for name in linked.names() {
        let bytes = linked.file_bytes(&name).expect("it is listed");
        target.install(&name, &bytes);
    }
    let snapshot = Snapshot::open(&target).expect("it is whole");
    let bytes = 1 << 20;
    versions(|cursor, visit| snapshot.scan(cursor, bytes, visit).expect("it is whole"))
}

#[test]
fn a_backup_in_the_middle_of_a_drop_has_no_record_that_a_delete_hid() {
    const KEYS: u64 = 240;
    // Checkpoints flush the memtables; without them the drop takes its own way.
    for looks in ["at each slice", "at the end", "behind merges"] {
        let vfs = MemVfs::new();
        let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let engine = open_with(&shared, small()).expect("a new folder");
        let hiding = cover(&engine, KEYS).expect("the disk works");
        let levels = engine.stats().levels;
        let deep: usize = levels[1..].iter().map(|level| level.0).sum();
        assert!(levels[0].0 > 2 && deep > 4, "{levels:?}");
        drop_odd(&engine);
        let lanes = [Maintenance::Compact, Maintenance::Flush];
        let mut slices = 0;
        if looks == "behind merges" {
            // No record in memory is flushed yet.
            let merges = || slice(&engine, Maintenance::Compact, 4_000);
            while merges().expect("the disk works") == Maintained::More {
                slices += 1;
                let at = format!("merge, slice {slices}");
                shows_no_hidden_record(&hiding, &of_engine(&engine), &at);
            }
            assert!(slices > 4, "{slices}");
        }
        while engine.foreign_left() != Some(0) {
            for lane in lanes {
                slice(&engine, lane, 4_000).expect("the disk works");
            }
            slices += 1;
            assert!(slices < 5_000, "{:?} are left", engine.foreign_left());
            let at = format!("{looks}, slice {slices}");
            shows_no_hidden_record(&hiding, &of_engine(&engine), &at);
            if looks == "at each slice" {
                let held = of_checkpoint(&vfs, &engine, slices);
                shows_no_hidden_record(&hiding, &held, &at);
            }
        }
        assert!(slices > 10, "{slices}");
        engine.keep_foreign();
        let held = of_checkpoint(&vfs, &engine, 0);
        shows_no_hidden_record(&hiding, &held, looks);
        let foreign = held.keys().filter(|key| key[1] == b'f').count();
        assert_eq!(foreign, 0, "all of them are gone");
    }
}

#[test]
fn a_drop_that_a_crash_cuts_shows_no_record_that_a_delete_hid_and_can_be_ordered_again() {
    const KEYS: u64 = 120;
    let vfs = MemVfs::new();
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let engine = open_with(&shared, small()).expect("a new folder");
    let hiding = cover(&engine, KEYS).expect("the disk works");
    drop(engine);
    let filled = vfs.process_crash_image();
    let names = filled.names();
    let fill = |vfs: &MemVfs| {
        for name in &names {
            let bytes = filled.file_bytes(name).expect("it is listed");
            vfs.install(name, &bytes);
        }
    };
    let drop_all = |vfs: &MemVfs| -> Result<(), Error> {
        fill(vfs);
        let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let engine = open_with(&shared, small())?;
        drop_odd(&engine);
        let mut slices = 0;
        while engine.foreign_left() != Some(0) {
            for lane in [Maintenance::Compact, Maintenance::Flush] {
                slice(&engine, lane, 4_000)?;
            }
            slices += 1;
            assert!(slices < 1_000, "{:?} are left", engine.foreign_left());
        }
        Ok(())
    };
    let crashes = Crashes {
        seed: 1,
        images: 2,
        stride: 1,
    };
    let check = |_: &Result<(), Error>, image: MemVfs, at: &str| {
        let shared: Arc<dyn Vfs> = Arc::new(image.clone());
        let engine = open_with(&shared, small()).expect("it opens");
        // The order is gone: the range may be this folder's again.
        shows_no_hidden_record(&hiding, &of_engine(&engine), at);
        settle(&engine).expect("the disk works");
        shows_no_hidden_record(&hiding, &of_checkpoint(&image, &engine, 0), at);
        drop_odd(&engine);
        settle(&engine).expect("the disk works");
        assert_eq!(engine.foreign_left(), Some(0), "{at}");
        let held = of_engine(&engine);
        assert!(held.keys().all(|key| key[1] != b'f'), "{at}");
        shows_no_hidden_record(&hiding, &held, at);
    };
    let checked = crash_everywhere(crashes, drop_all, check);
    assert!(checked > 150, "{checked}");
}

#[test]
fn a_foreign_delete_stays_over_a_value_that_belongs_here() {
    let shared: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&shared);
    let key = b"\x10key";
    let version = |hlc| Version {
        hlc,
        origin: 1,
        rmw: 0,
    };
    let value = CellRef {
        copies: 3,
        ..CellRef::value(key, version(1), b"v")
    };
    for cell in [value, CellRef::tombstone(key, version(2))] {
        let mut batch = Batch::new();
        let pushed = batch.push(0, key, &cell, Guard::Newest, 1);
        pushed.expect("it fits");
        assert!(engine.submit(&mut batch).is_ok(), "there is room");
        engine.commit(&mut Vec::new()).expect("the disk works");
        engine.close(NOW_MS).expect("the disk works");
    }
    engine.drop_foreign(Arc::new(|_, cell| cell.copies < 3));
    settle(&engine).expect("the disk works");
    assert_eq!(engine.foreign_left(), Some(0));
    assert_eq!(of_engine(&engine), BTreeMap::from([(key.to_vec(), 2)]));
}
