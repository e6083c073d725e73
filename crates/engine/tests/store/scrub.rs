//! A scrub finds every flipped bit of a table, and a mended table has no damage and all the rest.
//!
//! ```text
//! tables in several levels ─► flip one bit ─► scrub until idle ─► spans ─► write them again
//!     ─► repaired ─► maintain ─► the folder has no finding, and every key reads
//! ```
//!
//! Invariants
//! 1. Every bit of every table: found, and confined to spans that hold all records that cannot be
//!    read.
//! 2. No record goes with its block before the caller said that it is repaired.
//!
//! Not here: the answers of reads while damage is there (`damage.rs`).

use crate::support::{IDENTITY, Twin, World, layered_options};
use dendra_engine::check::check_folder;
use dendra_engine::vfs::mem::MemVfs;
use dendra_engine::vfs::{Vfs, Wait};
use dendra_engine::{Batch, DamagedSpan, Engine, Error, Lookup, Maintained, Maintenance, Options};
use std::sync::Arc;

/// A pass begins so long after the one before it.
const EVERY_MS: u64 = 1_000;

fn options() -> Options {
    layered_options(4 << 10)
}

/// A folder whose records are all in tables of several levels. No record was purged.
fn folder() -> (Twin, MemVfs) {
    let (mut world, vfs) = world();
    for known in world.twin.values_mut() {
        if !known.is_live(world.now_ms) {
            (known.value, known.expiry_ms) = (None, None);
        }
    }
    (world.twin, vfs.process_crash_image())
}

fn world() -> (World, MemVfs) {
    let vfs = MemVfs::new();
    let mut world = World::new(Arc::new(vfs.clone()), options(), 11);
    world.keys = 90;
    while world.engine.stats().flushes < 8 {
        world.step_writes(3).expect("memory does not fail");
        for lane in [Maintenance::Flush, Maintenance::Compact] {
            world.maintain(lane, 1 << 20).expect("memory does not fail");
        }
    }
    world
        .engine
        .close(world.now_ms)
        .expect("memory does not fail");
    settle(&world.engine, world.now_ms);
    (world, vfs)
}

fn open(vfs: &MemVfs) -> Result<Engine, Error> {
    Engine::open(Arc::new(vfs.clone()), options(), IDENTITY)
}

/// Does all background work that there is.
fn settle(engine: &Engine, now_ms: u64) {
    for lane in [Maintenance::Flush, Maintenance::Compact] {
        while let Ok(Maintained::More) = engine.maintain(lane, now_ms, 1 << 20) {}
    }
}

/// Scrubs until there is no block to read; the bytes that were read.
fn scrub(engine: &Engine, now_ms: u64, budget_bytes: u64) -> u64 {
    let mut bytes = 0;
    loop {
        let slice = engine.scrub(now_ms, EVERY_MS, budget_bytes);
        let slice = slice.expect("memory does not fail");
        bytes += slice.bytes;
        if slice.state == Maintained::Idle {
            return bytes;
        }
    }
}

/// Writes the records of the twin between the ends of the span, as another owner would.
fn repair(engine: &Engine, twin: &Twin, span: &DamagedSpan) {
    for (key, known) in twin.range(span.first.clone()..=span.last.clone()) {
        let mut batch = Batch::new();
        let write = crate::support::Write {
            key: key.clone(),
            known: known.clone(),
            guard: dendra_engine::Guard::Newest,
            is_touch: false,
        };
        World::push(&mut batch, 0, &write, 1);
        engine.submit(&mut batch).expect("the queue is empty");
        engine
            .commit(&mut Vec::new())
            .expect("memory does not fail");
    }
}

/// Keys of the twin that are not answered as the twin has them.
fn unread(engine: &Engine, twin: &Twin) -> Vec<Vec<u8>> {
    let is_lost = |(key, known): &(&Vec<u8>, &crate::support::Known)| {
        let found = engine.get(key, Wait::Block, |cell| {
            cell.is_intact(key).then_some(cell.version)
        });
        match found {
            Ok(Lookup::Cell(Some(version))) => version != known.version,
            Ok(Lookup::Cell(None)) | Err(Error::Damaged { .. }) => true,
            // A tombstone that may go is gone.
            Ok(Lookup::Nothing) => known.is_live(1),
            other => panic!("{other:?}"),
        }
    };
    let lost = twin.iter().filter(is_lost);
    lost.map(|(key, _)| key.clone()).collect()
}

fn findings(vfs: &MemVfs) -> Vec<dendra_engine::check::Finding> {
    check_folder(&vfs.process_crash_image())
        .expect("a folder")
        .findings
}

fn tables(vfs: &MemVfs) -> Vec<String> {
    let names = vfs.names().into_iter();
    names.filter(|name| name.ends_with(".tbl")).collect()
}

#[test]
fn every_flipped_bit_of_a_table_is_found_and_mended() {
    let (twin, image) = folder();
    let (mut found, mut without_loss) = (0, 0);
    for name in tables(&image) {
        let bits = 8 * image.file_bytes(&name).expect("it is listed").len() as u64;
        for bit in (0..bits).step_by(37) {
            let what = format!("{name} bit {bit}");
            let vfs = image.process_crash_image();
            let engine = open(&vfs).expect("it is whole");
            vfs.flip_bit(&name, bit);
            scrub(&engine, 1, 1 << 20);
            let stats = engine.stats().scrub;
            assert!(stats.spots_found >= 1, "{what} was not found");
            found += 1;
            let spans = engine.damaged_spans();
            without_loss += u64::from(spans.is_empty());
            let is_in_a_span = |key: &Vec<u8>| {
                let mut spans = spans.iter();
                spans.any(|span| (&span.first..=&span.last).contains(&key))
            };
            // Damage beside the data: reads may fail, and no record is lost.
            let lost = if spans.is_empty() {
                Vec::new()
            } else {
                unread(&engine, &twin)
            };
            for key in lost {
                assert!(
                    is_in_a_span(&key),
                    "{what}: {key:?} is in none of {spans:?}"
                );
            }
            for span in &spans {
                repair(&engine, &twin, span);
                engine.repaired(span);
            }
            settle(&engine, 2);
            assert_eq!(engine.damaged_tables(), [], "{what}");
            assert_eq!(unread(&engine, &twin), Vec::<Vec<u8>>::new(), "{what}");
            assert_eq!(findings(&vfs), [], "{what}");
        }
    }
    assert!(
        found > 1000 && without_loss > 10,
        "{found}, {without_loss} without loss"
    );
}

#[test]
fn a_damaged_block_stays_until_its_keys_are_repaired() {
    let (twin, vfs) = folder();
    let engine = open(&vfs).expect("it is whole");
    let name = &tables(&vfs)[0];
    vfs.flip_bit(name, 8);
    scrub(&engine, 1, 1 << 20);
    let spans = engine.damaged_spans();
    assert_eq!(spans.len(), 1);
    let lost = unread(&engine, &twin);
    assert!(!lost.is_empty(), "the block has records");
    settle(&engine, 50_000);
    assert_eq!(
        unread(&engine, &twin),
        lost,
        "they read as damaged, and not as absent"
    );
    assert!(!engine.damaged_tables().is_empty());
    // A restart knows the table, and looks at it before anything else.
    drop(engine);
    let engine = open(&vfs).expect("damage in a block keeps no folder closed");
    engine
        .scrub(60_000, EVERY_MS, 1)
        .expect("memory does not fail");
    engine
        .scrub(60_000, u64::MAX, 1 << 20)
        .expect("memory does not fail");
    let spans = engine.damaged_spans();
    assert_eq!(spans.len(), 1);
    repair(&engine, &twin, &spans[0]);
    engine.repaired(&spans[0]);
    settle(&engine, 60_000);
    assert_eq!(unread(&engine, &twin), Vec::<Vec<u8>>::new());
    assert_eq!(engine.stats().scrub.spots_mended, 1);
}

#[test]
fn a_block_that_may_hide_what_others_have_purged_stays() {
    let (twin, vfs) = folder();
    let engine = open(&vfs).expect("it is whole");
    vfs.flip_bit(&tables(&vfs)[0], 8);
    scrub(&engine, 1, 1 << 20);
    for span in engine.damaged_spans() {
        repair(&engine, &twin, &span);
        engine.repaired(&span);
    }
    engine.close(1).expect("memory does not fail");
    engine.raise_purge_horizon(dendra_base::Version::MAX);
    settle(&engine, 2);
    assert_eq!(engine.stats().scrub.spots_mended, 0);
    assert_eq!(engine.damaged_tables().len(), 1);
}

/// Two tables of the same keys, one above the other; of the upper one a block is damaged, and
/// repaired. How many spots were mended.
fn mended(has_a_delete: bool) -> u64 {
    let vfs = MemVfs::new();
    let engine = open(&vfs).expect("a new folder");
    let key = |n: u64| format!("\u{10}{n:03}").into_bytes();
    let mut twin = Twin::new();
    for round in [100, 200] {
        for n in 0..20 {
            let known = crate::support::Known {
                version: dendra_base::Version {
                    hlc: round + n,
                    origin: 1,
                    rmw: 0,
                },
                value: (!has_a_delete || round == 100 || n != 19).then(|| vec![7; 90]),
                expiry_ms: None,
            };
            twin.insert(key(n), known);
        }
        let all = DamagedSpan {
            id: 0,
            table: 0,
            offset: 0,
            reason: String::new(),
            first: key(0),
            last: key(19),
        };
        repair(&engine, &twin, &all);
        engine.close(1).expect("memory does not fail");
    }
    let tables = tables(&vfs);
    assert_eq!(tables.len(), 2);
    vfs.flip_bit(&tables[1], 8);
    scrub(&engine, 1, 1 << 20);
    let spans = engine.damaged_spans();
    assert_eq!(spans.len(), 1);
    engine.raise_purge_horizon(dendra_base::Version::MAX);
    repair(&engine, &twin, &spans[0]);
    engine.repaired(&spans[0]);
    settle(&engine, 2);
    engine.stats().scrub.spots_mended
}

#[test]
fn a_damaged_block_of_live_values_hides_nothing_that_others_have_purged() {
    assert_eq!(mended(false), 1);
    assert_eq!(mended(true), 0);
}

#[test]
fn a_pass_goes_on_where_a_restart_interrupted_it() {
    let (_, vfs) = folder();
    let whole = scrub(&open(&vfs).expect("it is whole"), 1, 1);
    let mut vfs = vfs.process_crash_image();
    Vfs::remove(&vfs, "SCRUB").expect("the pass was noted");
    let (mut bytes, mut starts) = (0, 0);
    loop {
        let engine = open(&vfs).expect("it is whole");
        starts += 1;
        assert!(starts < 100, "each start comes further");
        // The note is made at each end of a pass and every 64 MiB: here, a suspect makes one.
        let slice = engine
            .scrub(2, EVERY_MS, whole / 4)
            .expect("memory does not fail");
        bytes += slice.bytes;
        if slice.state == Maintained::Idle {
            assert_eq!(engine.stats().scrub.full_ended_ms, 2);
            break;
        }
        engine.note_scrub().expect("memory does not fail");
        drop(engine);
        vfs = vfs.process_crash_image();
    }
    assert!(starts >= 3, "{starts} starts");
    assert!(
        bytes < whole + whole / 2,
        "{bytes} of {whole} bytes were read"
    );
}

#[test]
fn the_next_pass_begins_when_it_is_due_and_sees_what_is_new() {
    let (_, vfs) = folder();
    let engine = open(&vfs).expect("it is whole");
    let whole = scrub(&engine, 10, 1 << 20);
    assert!(whole > 10_000);
    assert_eq!(
        scrub(&engine, 10 + EVERY_MS - 1, 1 << 20),
        0,
        "it is not due"
    );
    assert_eq!(scrub(&engine, 10 + EVERY_MS, 1 << 20), whole);
    assert_eq!(scrub(&engine, 5, 1 << 20), whole, "the clock was set back");
    // A table that goes and tables that come: the pass under way ends, the next one has them.
    let (mut world, _) = world();
    let now_ms = 10_000;
    world
        .engine
        .scrub(now_ms, EVERY_MS, 1)
        .expect("memory does not fail");
    for _ in 0..60 {
        world.step_writes(3).expect("memory does not fail");
        for lane in [Maintenance::Flush, Maintenance::Compact] {
            world.maintain(lane, 1 << 20).expect("memory does not fail");
        }
    }
    scrub(&world.engine, now_ms, 1 << 20);
    assert_eq!(world.engine.stats().scrub.full_ended_ms, now_ms);
    let levels = world.engine.stats().levels;
    let live: u64 = levels.iter().map(|(_, bytes)| bytes).sum();
    let read = scrub(&world.engine, now_ms + EVERY_MS, 1 << 20);
    // Frames twice for no reason, footers once more: about all bytes of the live tables.
    assert!(
        read >= live * 9 / 10 && read <= live * 11 / 10,
        "{read} of {live}"
    );
}
