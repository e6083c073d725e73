//! Bits that turn over: damage is found, never served, never read as absence.
//!
//! ```text
//! a small folder with tables, a log and a manifest ─► flip one bit ─► open, get all, scan all
//!     refused, or an error for some keys, or every answer right
//! ```
//!
//! Invariants
//! 1. No wrong value, no false "absent", no panic, for every single bit of every file.
//!
//! Not here: crashes (`crash.rs`).

mod support;

use dendra_engine::vfs::Wait;
use dendra_engine::vfs::mem::MemVfs;
use dendra_engine::{Direction, Engine, Error, Lane, Lookup, Maintained, Options};
use std::ops::Bound;
use std::sync::Arc;
use support::{IDENTITY, World, live_part};

fn options() -> Options {
    let mut options = Options::for_tests();
    options.memtable_bytes = 2 << 10;
    options.memory_bytes = 64 << 10;
    options.commit_queue_bytes_max = 8 << 10;
    options.segment_bytes = 12 << 10;
    options.table_bytes = 2 << 10;
    options.level0_tables_trigger = 2;
    options
}

/// A folder with tables in two levels, a manifest with several edits, and an attested log.
fn folder() -> (World, MemVfs) {
    let vfs = MemVfs::new();
    let mut world = World::new(Arc::new(vfs.clone()), options(), 9);
    world.keys = 40;
    while world.engine.stats().flushes < 4 {
        world.step_writes(3).expect("memory does not fail");
        world
            .maintain(Lane::Flush, 1 << 20)
            .expect("memory does not fail");
        world
            .maintain(Lane::Compact, 1 << 20)
            .expect("memory does not fail");
    }
    for _ in 0..3 {
        world.step_writes(2).expect("memory does not fail");
    }
    world.engine.seal().expect("memory does not fail");
    // Replaced tables are gone: every file that is left is needed.
    while world
        .maintain(Lane::Compact, 1 << 20)
        .expect("memory does not fail")
        == Maintained::More
    {}
    let image = vfs.process_crash_image();
    (world, image)
}

fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Damaged { .. } | Error::Unusable { .. } | Error::Io { .. }
    )
}

/// What became of one damaged folder.
#[derive(Default, Debug)]
struct Tally {
    refused: u64,
    with_errors: u64,
    harmless: u64,
}

fn check(world: &mut World, image: MemVfs, tally: &mut Tally, what: &str) {
    let engine = match Engine::open(Arc::new(image), options(), IDENTITY, world.now_ms) {
        Ok(engine) => engine,
        Err(error) => {
            assert!(is_damage(&error), "{what}: {error}");
            tally.refused += 1;
            return;
        }
    };
    let mut errors = 0;
    for (key, known) in &world.twin {
        let found = engine.get(key, Wait::Block, |cell| {
            cell.is_intact(key).then(|| live_part(&cell, world.now_ms))
        });
        let live = known.is_live(world.now_ms).then(|| {
            (
                known.version,
                known.value.clone().expect("live values have bytes"),
            )
        });
        match found {
            Ok(Lookup::Cell(Some(found))) => assert_eq!(found, live, "{what}: key {key:?}"),
            Ok(Lookup::Cell(None)) => errors += 1,
            Ok(Lookup::Nothing) => assert_eq!(None, live, "{what}: key {key:?} is lost"),
            Ok(Lookup::WouldBlock) => panic!("a blocking read does not refuse"),
            Err(error) => {
                assert!(is_damage(&error), "{what}: {error}");
                errors += 1;
            }
        }
    }
    world.engine = engine;
    match world.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, 600) {
        Ok(found) => {
            let live = world
                .twin
                .values()
                .filter(|k| k.is_live(world.now_ms))
                .count();
            assert_eq!(found.len(), live, "{what}: a scan shows every live key");
        }
        Err(error) => {
            assert!(is_damage(&error), "{what}: {error}");
            errors += 1;
        }
    }
    if errors > 0 {
        tally.with_errors += 1
    } else {
        tally.harmless += 1
    }
}

#[test]
fn no_single_bit_flip_gives_a_wrong_answer() {
    let (mut world, image) = folder();
    let mut tally = Tally::default();
    for name in image.names() {
        let bytes = image.file_bytes(&name).expect("it is listed");
        // Zeros behind the end of a log are all alike: every 61st bit of them stands for the rest.
        let used = bytes
            .iter()
            .rposition(|b| *b != 0)
            .map_or(0, |at| at as u64 + 65)
            * 8;
        let all = bytes.len() as u64 * 8;
        let bits = (0..used.min(all)).chain((used.min(all)..all).step_by(61));
        for bit in bits {
            let flipped = image.process_crash_image();
            flipped.flip_bit(&name, bit);
            check(
                &mut world,
                flipped,
                &mut tally,
                &format!("{name} bit {bit}"),
            );
        }
    }
    println!("{tally:?}");
    assert!(
        tally.refused > 1000 && tally.with_errors > 1000,
        "damage was met: {tally:?}"
    );
}

#[test]
fn a_missing_file_is_never_taken_for_an_empty_one() {
    let (mut world, image) = folder();
    for name in image.names() {
        let without = image.process_crash_image();
        dendra_engine::vfs::Vfs::remove(&without, &name).expect("it is listed");
        let mut tally = Tally::default();
        check(&mut world, without, &mut tally, &format!("{name} removed"));
        let is_needless = name == "LOCK" || tally.harmless == 1 && name.starts_with("wal-");
        assert!(
            is_needless || tally.refused == 1,
            "{name} removed: {tally:?}"
        );
    }
}

#[test]
fn a_folder_of_a_newer_format_is_refused_with_its_number() {
    let (world, image) = folder();
    let manifest = image
        .names()
        .into_iter()
        .find(|n| n.starts_with("manifest-"))
        .expect("a folder has a manifest");
    let id = u64::from_str_radix(&manifest["manifest-".len()..], 16).expect("a hexadecimal id");
    let mut head = b"DENDRAMF".to_vec();
    head.extend_from_slice(&2u32.to_le_bytes());
    let mut bytes = Vec::new();
    dendra_engine::frame::encode_into(&mut bytes, id, 0, &head);
    image.install(&manifest, &bytes);
    let error = Engine::open(Arc::new(image), options(), IDENTITY, world.now_ms)
        .err()
        .expect("a newer format is not opened");
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn a_folder_in_use_is_refused() {
    let vfs = Arc::new(MemVfs::new());
    let _first = Engine::open(vfs.clone(), options(), IDENTITY, 1).expect("a new folder opens");
    let error = Engine::open(vfs, options(), IDENTITY, 1)
        .err()
        .expect("one process per folder");
    assert!(error.to_string().contains("in use"), "{error}");
}
