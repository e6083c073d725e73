//! Ordered records that are written straight into tables, as a restore does.
//!
//! Invariants
//! 1. The records of an installed table survive a crash; records that no table holds are gone,
//!    without a file.
//! 2. Tables without overlap reach their level without being written twice.
//!
//! Not here: pages and the note about a restore (crate `server`).

use crate::support::IDENTITY;
use crate::support::steps::{is_live, open, options, settle, version, write};
use dendra_base::{CellRef, Prng};
use dendra_engine::vfs::faulty::{CallFailure, FaultyVfs, Repeat};
use dendra_engine::vfs::{MemVfs, Vfs, Wait};
use dendra_engine::{Engine, Error, Ingest, Lookup, Maintenance, Options};
use std::sync::Arc;

const RECORDS: u64 = 400;

fn key(n: u64) -> Vec<u8> {
    format!("\x10{n:05}").into_bytes()
}

/// Bytes that do not compress, the same for each run.
fn value(n: u64) -> Vec<u8> {
    let mut value = vec![0; 200];
    Prng::new(n).fill(&mut value);
    value
}

fn add(engine: &Engine, ingest: &mut Ingest, n: u64) -> Result<bool, Error> {
    let (key, value) = (key(n), value(n));
    engine.ingest(ingest, &key, &CellRef::value(&key, version(n + 1), &value))
}

/// Adds `RECORDS` records; how many of them were in full tables, and then how many tables.
fn add_all(engine: &Engine, ingest: &mut Ingest) -> (u64, u64) {
    let (mut durable, mut tables) = (0, 0);
    for n in 0..RECORDS {
        if add(engine, ingest, n).expect("the disk works") {
            (durable, tables) = (n + 1, tables + 1);
        }
    }
    (durable, tables)
}

fn holds(engine: &Engine, n: u64) -> bool {
    let found = engine.get(&key(n), Wait::Block, |cell| cell.value == value(n));
    matches!(found.expect("nothing is damaged"), Lookup::Cell(true))
}

fn table_files(vfs: &MemVfs) -> usize {
    vfs.names().iter().filter(|it| it.ends_with(".tbl")).count()
}

#[test]
fn a_crash_keeps_whole_tables_and_leaves_no_file_of_the_open_one() {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    let engine = open(&vfs, &options());
    let mut ingest = Ingest::default();
    let (durable, tables) = add_all(&engine, &mut ingest);
    assert!(tables > 4 && durable < RECORDS, "{tables}, {durable}");
    assert!(!holds(&engine, durable), "it is not installed yet");
    let crashed = below.crash_image(&mut Prng::new(1));
    let vfs: Arc<dyn Vfs> = Arc::new(crashed.clone());
    let again = open(&vfs, &options());
    assert!((0..durable).all(|n| holds(&again, n)));
    assert!((durable..RECORDS).all(|n| !holds(&again, n)));
    settle(&again, Maintenance::Compact);
    let live: usize = again.stats().levels.iter().map(|level| level.0).sum();
    assert_eq!(
        table_files(&crashed),
        live,
        "each file is a table that is in force"
    );

    engine.finish_ingest(&mut ingest).expect("the disk works");
    let crashed = below.crash_image(&mut Prng::new(2));
    let vfs: Arc<dyn Vfs> = Arc::new(crashed);
    let again = open(&vfs, &options());
    assert!((0..RECORDS).all(|n| holds(&again, n)));
    // The clock of the folder is at or above its records.
    assert!(again.hlc_floor() >= RECORDS);
}

#[test]
fn tables_without_overlap_go_down_as_they_are_and_others_are_merged() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let mut options = options();
    options.level1_bytes = 16 << 10;
    let engine = open(&vfs, &options);
    let mut ingest = Ingest::default();
    let (_, tables) = add_all(&engine, &mut ingest);
    engine.finish_ingest(&mut ingest).expect("the disk works");
    settle(&engine, Maintenance::Compact);
    let stats = engine.stats();
    assert!(stats.levels[0].0 < options.level0_tables_trigger);
    assert!(stats.levels[2].0 > 0, "{:?}", stats.levels);
    assert_eq!(stats.compaction_write_bytes, 0, "of {tables} tables");
    assert!(stats.ingest_bytes >= RECORDS * 200);
    assert_eq!((stats.flush_bytes, stats.log_bytes), (0, 0));

    // The same records again, as after a crash that took the note about them: none counts twice.
    let mut ingest = Ingest::default();
    add_all(&engine, &mut ingest);
    engine.finish_ingest(&mut ingest).expect("the disk works");
    settle(&engine, Maintenance::Compact);
    assert!(engine.stats().compaction_write_bytes > 0);
    assert!((0..RECORDS).all(|n| holds(&engine, n)));
}

#[test]
fn a_newer_write_wins_over_an_ingested_record_and_an_older_one_does_not() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs, &options());
    write(&engine, &key(1), 1000, None);
    write(&engine, &key(2), 1, None);
    let mut ingest = Ingest::default();
    for n in 1..=2 {
        add(&engine, &mut ingest, n).expect("the disk works");
    }
    engine.finish_ingest(&mut ingest).expect("the disk works");
    assert!(!is_live(&engine, &key(1)));
    assert!(is_live(&engine, &key(2)));
}

#[test]
fn what_is_abandoned_leaves_nothing() {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    let engine = open(&vfs, &options());
    let mut ingest = Ingest::default();
    add(&engine, &mut ingest, 1).expect("the disk works");
    assert_eq!(table_files(&below), 1);
    engine.abandon_ingest(&mut ingest);
    settle(&engine, Maintenance::Compact);
    assert_eq!(table_files(&below), 0);
    assert!(!holds(&engine, 1));
    // Lower keys may come again.
    add(&engine, &mut ingest, 0).expect("the disk works");
    engine.finish_ingest(&mut ingest).expect("the disk works");
    assert!(holds(&engine, 0));
}

/// Each call to the disk fails once, in turn. The caller begins again after the last durable
/// record.
#[test]
fn an_error_takes_back_what_is_not_installed_and_no_more() {
    let mut failures = 0;
    let mut is_done = false;
    for nth in 0.. {
        if is_done {
            break;
        }
        let below = MemVfs::new();
        let vfs = FaultyVfs::new(Arc::new(below.clone()));
        let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let small = Options {
            // Few calls, and several tables.
            table_bytes: 32 << 10,
            ..options()
        };
        let engine = Engine::open(shared, small.clone(), IDENTITY).expect("a new folder");
        let failing = vfs.calls().all() + nth;
        vfs.fail_any(failing, CallFailure::NoSpace, Repeat::Once);
        let mut ingest = Ingest::default();
        let (mut at, mut durable, mut is_poisoned) = (0, 0, false);
        while at < RECORDS && !is_poisoned {
            match add(&engine, &mut ingest, at) {
                Ok(is_full) => {
                    at += 1;
                    durable = if is_full { at } else { durable };
                }
                Err(error) => {
                    is_poisoned = matches!(error, Error::Poisoned { .. });
                    at = durable;
                }
            }
        }
        if !is_poisoned {
            let finished = engine.finish_ingest(&mut ingest);
            durable = if finished.is_ok() { RECORDS } else { durable };
        }
        is_done = vfs.calls().all() <= failing;
        failures += u32::from(!is_done);
        drop(engine);
        let crashed: Arc<dyn Vfs> = Arc::new(below.crash_image(&mut Prng::new(nth)));
        let again = open(&crashed, &small);
        assert!((0..durable).all(|n| holds(&again, n)), "call {nth}");
    }
    assert!(failures > 20, "{failures}");
}
