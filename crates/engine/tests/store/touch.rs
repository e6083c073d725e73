//! Touches: a new version and a new end for a value, without its bytes in the log.
//!
//! Invariants
//! 1. The log of a touch is as long for a value of a mebibyte as for one of a byte.
//! 2. After a crash at any point a touched key shows a whole value, or is damaged; never another
//!    value, and never none.
//!
//! Not here: drawn touches among other writes (`support/mod.rs`, which all walks use).

use crate::support::IDENTITY;
use crate::support::steps::{open, options, settle, submit, version, write};
use dendra_base::{CellRef, Condition, Prng, Touch, Version};
use dendra_engine::check::check_folder;
use dendra_engine::vfs::{MemVfs, Vfs, Wait};
use dendra_engine::{Batch, Engine, Guard, Lookup, Maintained, Maintenance, Options, WriteOutcome};
use std::sync::Arc;

const KEY: &[u8] = b"\x10lease";
const PRESENT: Guard = Guard::If(Condition::Present);

fn touch(hlc: u64, expiry_ms: u64) -> Touch {
    Touch {
        version: version(hlc),
        copies: 1,
        expiry_ms,
        born: 0,
        checksum: 0,
        of: Version::ZERO,
    }
}

fn touched(engine: &Engine, touch: &Touch, guard: Guard) -> WriteOutcome {
    let mut batch = Batch::new();
    let pushed = batch.push_touch(1, KEY, touch, guard, 1);
    pushed.expect("the record fits");
    submit(engine, batch);
    let mut done = Vec::new();
    engine.commit(&mut done).expect("the disk works");
    done[0].1
}

/// The key's version, end and value; `None` = its copy is damaged.
fn seen(engine: &Engine) -> Option<(Version, Option<u64>, Vec<u8>)> {
    let shown = |cell: CellRef<'_>| {
        let whole = (cell.version, cell.expiry_ms, cell.value.to_vec());
        cell.is_intact(KEY).then_some(whole)
    };
    match engine.get(KEY, Wait::Block, shown) {
        Ok(Lookup::Cell(seen)) => seen,
        Ok(other) => panic!("the key is there: {other:?}"),
        Err(error) => {
            assert!(error.to_string().contains("damaged"), "{error}");
            None
        }
    }
}

fn folder() -> (MemVfs, Arc<dyn Vfs>) {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    (below, vfs)
}

fn reopened(below: &MemVfs, options: &Options) -> Engine {
    let image: Arc<dyn Vfs> = Arc::new(below.process_crash_image());
    Engine::open(image, options.clone(), IDENTITY).expect("the folder opens")
}

#[test]
fn a_mebibyte_that_is_touched_a_thousand_times_writes_a_small_log() {
    let (below, vfs) = folder();
    let mut options = Options::for_tests();
    options.memtable_bytes = 16 << 20;
    options.segment_bytes = 4 << 20;
    options.value_bytes_max = 1 << 20;
    options.commit_queue_bytes_max = 2 << 20;
    options.memory_bytes = 128 << 20;
    let engine = open(&vfs, &options);
    let value = vec![7; 1 << 20];
    write(&engine, KEY, 10, Some(&value));
    let before = engine.stats();
    for n in 0..1_000u64 {
        let outcome = touched(&engine, &touch(11 + n, 1_000 + n), PRESENT);
        let version = version(11 + n);
        assert_eq!(outcome, WriteOutcome::Applied { version });
        settle(&engine, Maintenance::Flush);
        settle(&engine, Maintenance::Compact);
    }
    let after = engine.stats();
    let log = after.log_bytes - before.log_bytes;
    let flushed = after.flush_bytes - before.flush_bytes;
    println!("{log} bytes of log, {flushed} bytes of flushes");
    assert!(log < 1_000 * 128, "{log} bytes of log for 1,000 touches");
    // One value for each memtable that was full, of 1,000 values in all.
    assert!(flushed < 100 << 20, "{flushed} bytes of flushes");
    let newest = Some((version(1_010), Some(1_999), value));
    assert_eq!(seen(&engine), newest);
    drop(engine);
    assert_eq!(seen(&reopened(&below, &options)), newest);
    let report = check_folder(&below.process_crash_image()).expect("the folder can be read");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert!(report.summary.log_records > 0);
}

#[test]
fn a_touch_changes_version_and_end_and_only_of_a_live_value() {
    let (below, vfs) = folder();
    let engine = open(&vfs, &options());
    let absent = WriteOutcome::GuardFailed { current: None };
    assert_eq!(touched(&engine, &touch(5, 50), PRESENT), absent);
    write(&engine, KEY, 10, Some(b"v"));
    let matches = |hlc| Guard::If(Condition::Matches(version(hlc)));
    let refused = WriteOutcome::GuardFailed {
        current: Some(version(10)),
    };
    assert_eq!(touched(&engine, &touch(11, 50), matches(9)), refused);
    // A version that is not above that of the value is raised.
    let raised = version(10).successor();
    let outcome = touched(&engine, &touch(3, 50), matches(10));
    assert_eq!(outcome, WriteOutcome::Applied { version: raised });
    let newest = Some((raised, Some(50), b"v".to_vec()));
    assert_eq!(seen(&engine), newest);
    assert_eq!(seen(&reopened(&below, &options())), newest);
    write(&engine, KEY, 20, None);
    assert_eq!(touched(&engine, &touch(21, 60), PRESENT), absent);
    let mut ended = Batch::new();
    let cell = CellRef {
        expiry_ms: Some(1),
        ..CellRef::value(KEY, version(30), b"ended")
    };
    ended
        .push(1, KEY, &cell, Guard::Newest, 1)
        .expect("it fits");
    submit(&engine, ended);
    engine.commit(&mut Vec::new()).expect("the disk works");
    assert_eq!(touched(&engine, &touch(31, 60), PRESENT), absent);
}

#[test]
fn a_touch_finds_what_its_own_batch_wrote_in_front_of_it() {
    let (below, vfs) = folder();
    let engine = open(&vfs, &options());
    write(&engine, KEY, 10, Some(b"old"));
    let mut batch = Batch::new();
    let cell = CellRef::value(KEY, version(11), b"new");
    let plain = Guard::If(Condition::None);
    batch.push(1, KEY, &cell, plain, 1).expect("it fits");
    batch
        .push_touch(2, KEY, &touch(12, 50), PRESENT, 1)
        .expect("it fits");
    let of_first = Guard::If(Condition::Matches(version(12)));
    batch
        .push_touch(3, KEY, &touch(13, 60), of_first.clone(), 1)
        .expect("it fits");
    batch
        .push_touch(4, KEY, &touch(14, 70), of_first, 1)
        .expect("it fits");
    submit(&engine, batch);
    let mut done = Vec::new();
    engine.commit(&mut done).expect("the disk works");
    let outcomes: Vec<_> = done.into_iter().map(|(_, outcome)| outcome).collect();
    let applied = |hlc| WriteOutcome::Applied {
        version: version(hlc),
    };
    let current = Some(version(13));
    let failed = WriteOutcome::GuardFailed { current };
    assert_eq!(outcomes, [applied(11), applied(12), applied(13), failed]);
    let newest = Some((version(13), Some(60), b"new".to_vec()));
    assert_eq!(seen(&engine), newest);
    assert_eq!(seen(&reopened(&below, &options())), newest);
}

#[test]
fn a_copy_of_a_touch_is_taken_only_over_the_value_that_it_names() {
    let (_, vfs) = folder();
    let engine = open(&vfs, &options());
    let copy = |hlc, of: u64| Touch {
        of: version(of),
        checksum: dendra_base::cell::checksum(KEY, b"v"),
        ..touch(hlc, 50)
    };
    let failed = |current| WriteOutcome::GuardFailed { current };
    assert_eq!(touched(&engine, &copy(11, 10), Guard::Newest), failed(None));
    write(&engine, KEY, 9, Some(b"v"));
    let current = Some(version(9));
    assert_eq!(
        touched(&engine, &copy(11, 10), Guard::Newest),
        failed(current),
        "an older value, perhaps another one"
    );
    write(&engine, KEY, 10, Some(b"v"));
    let version = version(11);
    let applied = WriteOutcome::Applied { version };
    assert_eq!(touched(&engine, &copy(11, 10), Guard::Newest), applied);
    // A second time, and below what came since: nothing changes, and no record is written.
    let before = engine.stats().log_bytes;
    assert_eq!(touched(&engine, &copy(11, 10), Guard::Newest), applied);
    assert_eq!(engine.stats().log_bytes, before);
    assert_eq!(seen(&engine), Some((version, Some(50), b"v".to_vec())));
}

#[test]
fn a_value_to_which_the_log_refers_outlasts_its_end_until_the_touch_is_in_a_table() {
    let (below, vfs) = folder();
    let engine = open(&vfs, &options());
    engine.raise_purge_horizon(Version::MAX);
    let mut batch = Batch::new();
    let cell = CellRef {
        expiry_ms: Some(100),
        ..CellRef::value(KEY, version(10), b"v")
    };
    batch
        .push(1, KEY, &cell, Guard::Newest, 1)
        .expect("it fits");
    submit(&engine, batch);
    engine.commit(&mut Vec::new()).expect("the disk works");
    engine.close(1).expect("the disk works");
    drop(engine);
    let engine = open(&vfs, &options());
    engine.raise_purge_horizon(Version::MAX);
    let applied = WriteOutcome::Applied {
        version: version(11),
    };
    assert_eq!(touched(&engine, &touch(11, 1_000), PRESENT), applied);
    // It ended for everybody; nothing is flushed yet, and merges go on.
    engine.set_ended_ms(500);
    for n in 0..4 {
        write(&engine, format!("\x10other-{n}").as_bytes(), 20 + n, None);
    }
    let run = |lane| {
        while engine.maintain(lane, 600, 1 << 20).expect("it works") == Maintained::More {}
    };
    run(Maintenance::Compact);
    let newest = Some((version(11), Some(1_000), b"v".to_vec()));
    assert_eq!(seen(&reopened(&below, &options())), newest);
    // The memtable was sealed because of it: its flush ends the reference.
    let before = engine.stats().flushes;
    run(Maintenance::Flush);
    assert!(engine.stats().flushes > before, "nothing was flushed");
    run(Maintenance::Compact);
    assert_eq!(seen(&engine), newest);
    assert_eq!(seen(&reopened(&below, &options())), newest);
}

#[test]
fn a_touch_that_is_the_oldest_of_the_log_outlasts_its_end_until_the_log_goes() {
    let horizons: [fn(&Engine); 2] = [
        |engine| engine.raise_purge_horizon(Version::MAX),
        |engine| engine.raise_age_horizon(u64::MAX, 1),
    ];
    for raise_horizon in horizons {
        let (below, vfs) = folder();
        let engine = open(&vfs, &options());
        let clock = 1 << 57;
        write(&engine, KEY, clock, Some(b"v"));
        engine.close(1).expect("the disk works");
        drop(engine);
        let engine = open(&vfs, &options());
        raise_horizon(&engine);
        settle(&engine, Maintenance::Flush);
        let outcome = touched(&engine, &touch(clock + 1, 100), PRESENT);
        assert!(matches!(outcome, WriteOutcome::Applied { .. }));
        // A full memtable becomes a table, and its records stay in the segment in use.
        let mut hlc = clock + 1;
        while engine.stats().flushes == 0 {
            hlc += 1;
            write(&engine, b"\x10other", hlc, Some(&[1; 1_000]));
            settle(&engine, Maintenance::Flush);
        }
        // The touched value ends for everybody, and merges may drop what has ended.
        engine.set_ended_ms(500);
        let merge = || {
            let step = || engine.maintain(Maintenance::Compact, 100_000, usize::MAX);
            while step().expect("the disk works") == Maintained::More {}
            engine.stats().table_records
        };
        assert_eq!(merge(), 2);
        let image = below.process_crash_image();
        let next: Arc<dyn Vfs> = Arc::new(image.clone());
        assert_ne!(seen(&open(&next, &options())), None, "it has no damage");
        let report = check_folder(&image).expect("the folder can be read");
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

#[test]
fn a_touch_whose_value_cannot_be_found_is_damage_of_its_key() {
    let (below, vfs) = folder();
    let engine = open(&vfs, &options());
    let mut value = [0; 600];
    Prng::new(1).fill(&mut value);
    write(&engine, KEY, 10, Some(&value));
    engine.close(1).expect("the disk works");
    drop(engine);
    let engine = open(&vfs, &options());
    let outcome = touched(&engine, &touch(11, 1_000), PRESENT);
    assert!(matches!(outcome, WriteOutcome::Applied { .. }));
    let image = below.process_crash_image();
    let names = image.names();
    let table = names.iter().find(|name| name.ends_with(".tbl"));
    // In the middle of the only block, whose value takes most of it.
    image.flip_bit(table.expect("one was flushed"), 8 * 300);
    let vfs: Arc<dyn Vfs> = Arc::new(image);
    let engine = open(&vfs, &options());
    assert_eq!(seen(&engine), None);
    settle(&engine, Maintenance::Flush);
    assert_eq!(seen(&engine), None);
}

#[test]
fn a_log_of_touches_that_is_cut_anywhere_shows_a_prefix_of_them_or_is_refused() {
    let (below, vfs) = folder();
    let engine = open(&vfs, &options());
    write(&engine, KEY, 10, Some(b"value"));
    for n in 0..8 {
        touched(&engine, &touch(11 + n, 1_000 + n), PRESENT);
    }
    let image = below.process_crash_image();
    let names = image.names();
    let log = names.iter().rfind(|name| name.ends_with(".log"));
    let log = log.expect("it has a log").clone();
    let whole = image.file_bytes(&log).expect("it is there");
    let used = whole.len() - whole.iter().rev().take_while(|byte| **byte == 0).count();
    let (mut prefixes, mut refused) = (std::collections::BTreeSet::new(), 0);
    for cut in (128..used).step_by(64) {
        let image = below.process_crash_image();
        let mut bytes = whole.clone();
        bytes[cut..].fill(0);
        image.install(&log, &bytes);
        match Engine::open(Arc::new(image), options(), IDENTITY) {
            Err(_) => refused += 1,
            Ok(engine) => {
                let found = engine.get(KEY, Wait::Block, |cell| {
                    assert!(cell.is_intact(KEY) && cell.value == b"value");
                    cell.version.hlc
                });
                match found.expect("nothing is damaged") {
                    Lookup::Cell(hlc) => _ = prefixes.insert(hlc),
                    other => assert_eq!((other, prefixes.len()), (Lookup::Nothing, 0)),
                }
            }
        }
    }
    assert!(prefixes.len() > 5, "{prefixes:?}, refused {refused}");
    drop(engine);
}

#[test]
fn more_touched_bytes_than_a_memtable_holds_are_refused_in_one_commit() {
    let (_, vfs) = folder();
    let engine = open(&vfs, &options());
    let key = |n: usize| format!("\x10key-{n}").into_bytes();
    for n in 0..6 {
        write(&engine, &key(n), 10, Some(&[1; 3_000]));
        settle(&engine, Maintenance::Flush);
    }
    let mut batch = Batch::new();
    for n in 0..6 {
        batch
            .push_touch(n as u64, &key(n), &touch(20, 50), PRESENT, 1)
            .expect("it fits");
    }
    submit(&engine, batch);
    let mut done = Vec::new();
    engine.commit(&mut done).expect("the disk works");
    let crowded = done.iter().filter(|(_, it)| *it == WriteOutcome::Crowded);
    assert_eq!(
        (done.len(), crowded.count()),
        (6, 4),
        "8 KiB of 3,000 bytes"
    );
}
