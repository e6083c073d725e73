//! Starts on a disk without room: all records are served, and none is lost.
//!
//! Invariants
//! 1. Each test says how much room there is, and which files took the rest.
//!
//! Not here: disks that fill while an engine runs (`faults.rs`, `promises.rs`).
//! See: docs/overload.md, section "Pressure of the engine".

use crate::support::IDENTITY;
use crate::support::steps::{bytes_of, is_live, open, options, settle, write};
use dendra_base::Prng;
use dendra_engine::vfs::{MemVfs, Vfs, Wait};
use dendra_engine::{Compression, Engine, Error, Lookup, Maintained, Maintenance, Stop};
use std::sync::Arc;

#[test]
fn a_start_on_a_full_disk_takes_the_room_of_unused_log_segments_and_serves() {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    let mut options = options();
    options.reserve_bytes = 1 << 20;
    let engine = open(&vfs, &options);
    settle(&engine, Maintenance::Flush);
    for n in 1..=20 {
        write(
            &engine,
            format!("\x10{n:02}").as_bytes(),
            n,
            Some(&[7; 100]),
        );
    }
    drop(engine);
    let crashed = below.process_crash_image();
    let used = bytes_of(&crashed);
    let vfs: Arc<dyn Vfs> = Arc::new(crashed.clone());
    // Another program took all but a kilobyte.
    crashed.set_capacity(used + 1024);
    let engine = open(&vfs, &options);
    settle_flush_of_full_disk(&engine);
    assert_eq!(engine.pressure().stop, Some(Stop::DiskFull));
    for n in 1..=20 {
        assert!(is_live(&engine, format!("\x10{n:02}").as_bytes()), "{n}");
    }
    write(&engine, b"\x1001", 100, None);
    assert!(!is_live(&engine, b"\x1001"), "deletes go on");
}

#[test]
fn a_start_on_a_full_disk_gives_the_room_of_the_log_back_segment_by_segment() {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    let mut options = options();
    options.memory_bytes = 16 << 20;
    options.memtable_bytes = 1 << 20;
    options.reserve_bytes = 1 << 20;
    options.compression = Compression::None;
    let engine = open(&vfs, &options);
    settle(&engine, Maintenance::Flush);
    let mut prng = Prng::new(1);
    let mut keys: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    // Six segments of it, and two unused ones.
    for n in 0..360 {
        let mut value = vec![0; 1000];
        prng.fill(&mut value);
        let key = format!("\x10{n:03}").into_bytes();
        write(&engine, &key, n + 1, Some(&value));
        keys.push((key, value));
        if n % 20 == 0 {
            settle(&engine, Maintenance::Flush);
        }
    }
    settle(&engine, Maintenance::Flush);
    assert!(engine.stats().log_segments >= 7, "{:?}", engine.stats());
    drop(engine);
    let crashed = below.process_crash_image();
    let used = bytes_of(&crashed);
    // Another program took all of the room.
    crashed.set_capacity(used);
    // A start that dies anywhere goes on where it was.
    let (mut crashed, mut crashes) = (crashed, 0);
    for n in 1..40 {
        crashed.crash_at(crashed.operations() + 3 * n);
        let folder: Arc<dyn Vfs> = Arc::new(crashed.clone());
        drop(Engine::open(folder, options.clone(), IDENTITY));
        if !crashed.has_crashed() {
            crashed.crash_at(u64::MAX);
            break;
        }
        crashes += 1;
        crashed = crashed.crash_image(&mut prng);
        crashed.set_capacity(used);
    }
    let vfs: Arc<dyn Vfs> = Arc::new(crashed.clone());
    let engine = open(&vfs, &options);
    for (key, value) in &keys {
        let found = engine.get(key, Wait::Block, |cell| cell.value == value);
        assert_eq!(found.expect("nothing is damaged"), Lookup::Cell(true));
    }
    assert!(crashes > 3, "{crashes}");
    assert!(bytes_of(&crashed) <= used);
}

/// The lane as it is on a full disk: it fails to make further log segments, and says so.
fn settle_flush_of_full_disk(engine: &Engine) {
    let error = loop {
        match engine.maintain(Maintenance::Flush, 1, usize::MAX) {
            Ok(Maintained::More) => {}
            Ok(Maintained::Idle) => return,
            Err(error) => break error,
        }
    };
    assert!(error.is_no_space(), "{error}");
}

#[test]
fn a_start_without_any_room_names_the_way_out_and_loses_nothing() {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    let engine = open(&vfs, &options());
    write(&engine, b"\x10k", 1, Some(&[7; 3000]));
    drop(engine);
    let crashed = below.process_crash_image();
    let used = bytes_of(&crashed);
    let vfs: Arc<dyn Vfs> = Arc::new(crashed.clone());
    crashed.set_capacity(used);
    let opened = Engine::open(Arc::clone(&vfs), options(), IDENTITY);
    let error = opened.err().expect("there is no room for a table");
    assert!(matches!(error, Error::Folder { .. }), "{error}");
    for words in [
        "too full for a start",
        "make so much room",
        "nothing is lost",
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
    crashed.set_capacity(u64::MAX);
    assert!(is_live(&open(&vfs, &options()), b"\x10k"));
}
