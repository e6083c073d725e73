//! Promises that the model's random walk does not reach: they must hold between two calls.
//!
//! Invariants
//! 1. Each test is one promise, broken once and written down here.
//!
//! Not here: crashes at every operation (`crash.rs`), failing calls (`faults.rs`).

use crate::support::IDENTITY;
use crate::support::steps::{
    bytes_of, is_live, one, open, options, settle, submit, version, write,
};
use dendra_base::{CellRef, Condition, Prng, Version};
use dendra_engine::vfs::faulty::{Call, CallFailure, FaultyVfs, Repeat};
use dendra_engine::vfs::{MemVfs, OsVfs, Vfs, Wait};
use dendra_engine::{
    Batch, Compression, Cursor, Direction, Durability, Engine, Error, Flow, Guard, Lookup,
    Maintained, Maintenance, NotTaken, Options, Progress, Show, Stop, Submitted, WriteOutcome,
};
use std::ops::Bound;
use std::sync::Arc;

/// A write that a test fills in itself.
fn push(batch: &mut Batch, key: &[u8], hlc: u64, guard: Guard) {
    let cell = CellRef::value(key, version(hlc), b"v");
    batch
        .push(hlc, key, &cell, guard, 1)
        .expect("the record fits");
}

fn tokens(done: &[(u64, WriteOutcome)]) -> Vec<u64> {
    done.iter().map(|(token, _)| *token).collect()
}

/// An engine with a guarded batch (token 1) that an event loop took and could not judge without the
/// disk. Another batch (token 2) is behind it in the queue.
fn with_a_batch_left_over() -> Engine {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    let mut options = options();
    options.durability = Durability::Os;
    let engine = open(&vfs, &options);
    write(&engine, b"\x10a", 1, Some(b"on disk"));
    engine.close(1).expect("the disk works");
    below.set_would_block(1000, 1);
    let guarded = one(1, b"\x10a", 2, Some(b"next"), Guard::If(Condition::Present));
    assert_eq!(submit(&engine, guarded), Submitted::First);
    let mut done = Vec::new();
    let is_done = engine.try_commit(&mut done).expect("nothing fails");
    assert!(!is_done && done.is_empty(), "the guard needs the disk");
    below.set_would_block(0, 1);
    let plain = one(2, b"\x10b", 3, Some(b"behind"), Guard::Newest);
    assert_eq!(submit(&engine, plain), Submitted::First);
    engine
}

#[test]
fn a_commit_takes_what_queued_up_behind_a_batch_that_was_left_over() {
    let engine = with_a_batch_left_over();
    let mut done = Vec::new();
    engine.commit(&mut done).expect("nothing fails");
    assert_eq!(tokens(&done), [1, 2], "one wake, everything answered");
}

#[test]
fn an_inline_commit_says_done_only_when_its_own_batch_is() {
    let engine = with_a_batch_left_over();
    let mut done = Vec::new();
    let is_done = engine.try_commit(&mut done).expect("nothing fails");
    assert_eq!((is_done, tokens(&done)), (true, vec![1, 2]));
}

#[test]
fn a_checkpoint_or_close_takes_no_outcome_from_whoever_waits_for_it() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (live, copy) = (dir.path().join("live"), dir.path().join("copy"));
    let vfs: Arc<dyn Vfs> = Arc::new(OsVfs::open(&live).expect("the folder can be made"));
    let engine = open(&vfs, &options());
    write(&engine, b"\x10a", 1, Some(b"committed"));
    submit(&engine, one(7, b"\x10b", 2, Some(b"queued"), Guard::Newest));
    let target = OsVfs::open(&copy).expect("the folder can be made");
    engine.checkpoint(&target, &copy, 1).expect("links work");
    engine.close(1).expect("the disk works");
    let mut done = Vec::new();
    engine.commit(&mut done).expect("the disk works");
    assert_eq!(tokens(&done), [7]);
}

#[test]
fn the_clock_ceiling_outlives_the_log_that_held_it() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (live, copy) = (dir.path().join("live"), dir.path().join("copy"));
    let vfs: Arc<dyn Vfs> = Arc::new(OsVfs::open(&live).expect("the folder can be made"));
    let engine = open(&vfs, &options());
    engine.raise_hlc_ceiling(3_000);
    write(&engine, b"\x10a", 1_000, Some(b"v"));
    let target = OsVfs::open(&copy).expect("the folder can be made");
    engine.checkpoint(&target, &copy, 1).expect("links work");
    drop(engine);
    for path in [live, copy] {
        let vfs: Arc<dyn Vfs> = Arc::new(OsVfs::open(&path).expect("the folder is there"));
        let floor = open(&vfs, &options()).hlc_floor();
        assert!(floor >= 3_000, "{}: {floor}", path.display());
    }
}

#[test]
fn a_killed_process_leaves_its_clock_ceiling_in_the_log() {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    let engine = open(&vfs, &options());
    for hlc in [1_000, 5_000] {
        engine.raise_hlc_ceiling(hlc);
        // Only the head of its batch says how far the clock may have been used.
        write(&engine, b"\x10k", 7, Some(b"v"));
        let image: Arc<dyn Vfs> = Arc::new(below.process_crash_image());
        assert_eq!(open(&image, &options()).hlc_floor(), hlc);
    }
}

#[test]
fn a_checkpoint_of_an_idle_engine_knows_the_clock_ceiling() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (live, copy) = (dir.path().join("live"), dir.path().join("copy"));
    let vfs: Arc<dyn Vfs> = Arc::new(OsVfs::open(&live).expect("the folder can be made"));
    let engine = open(&vfs, &options());
    write(&engine, b"\x10a", 1_000, Some(b"v"));
    engine.close(1).expect("the disk works");
    engine.raise_hlc_ceiling(3_000);
    let target = OsVfs::open(&copy).expect("the folder can be made");
    engine.checkpoint(&target, &copy, 1).expect("links work");
    let vfs: Arc<dyn Vfs> = Arc::new(OsVfs::open(&copy).expect("the folder is there"));
    assert!(open(&vfs, &options()).hlc_floor() >= 3_000);
}

#[test]
fn a_purged_delete_is_not_undone_by_an_older_write_that_is_still_in_the_log() {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    let engine = open(&vfs, &options());
    let key = b"\x10k";
    write(&engine, key, 5, None);
    engine.close(1).expect("the disk works");
    // The older write arrives late, and shares its log segment with writes that are not flushed.
    write(&engine, key, 3, Some(b"late"));
    let mut hlc = 10;
    while engine.stats().memtables_sealed == 0 {
        hlc += 1;
        let filler = format!("\x10filler {hlc}");
        write(&engine, filler.as_bytes(), hlc, Some(&[0; 200]));
    }
    write(&engine, b"\x10last", hlc + 1, Some(b"in memory"));
    settle(&engine, Maintenance::Flush);
    engine.raise_purge_horizon(Version::MAX);
    settle(&engine, Maintenance::Compact);
    assert!(!is_live(&engine, key));
    let image: Arc<dyn Vfs> = Arc::new(below.process_crash_image());
    assert!(!is_live(&open(&image, &options()), key), "after a crash");
    // Once the log is gone, so is the delete.
    for _ in 0..2 {
        hlc += 10;
        write(&engine, b"\x10a", hlc, Some(b"on the left"));
        write(&engine, b"\x10z", hlc + 1, Some(b"on the right"));
        engine.close(1).expect("the disk works");
    }
    settle(&engine, Maintenance::Compact);
    let found = engine.get(key, Wait::Block, |_| ());
    assert_eq!(found.expect("nothing is damaged"), Lookup::Nothing);
}

#[test]
fn older_writes_that_change_nothing_do_not_make_the_log_grow_for_ever() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs, &options());
    write(&engine, b"\x10k", 1_000, Some(b"newest"));
    let mut segments_max = 0;
    for _ in 0..2_000 {
        write(&engine, b"\x10k", 1, Some(&[0; 1000]));
        engine
            .maintain(Maintenance::Flush, 1, usize::MAX)
            .expect("the disk works");
        segments_max = segments_max.max(engine.stats().log_segments);
    }
    assert!(segments_max < 12, "{segments_max} segments of 64 KiB");
}

#[test]
fn a_file_that_cannot_be_removed_does_not_stop_compactions() {
    let vfs = FaultyVfs::new(Arc::new(MemVfs::new()));
    let dyn_vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let engine = open(&dyn_vfs, &options());
    vfs.fail(
        Call::Remove,
        vfs.calls().of(Call::Remove),
        CallFailure::Io,
        Repeat::Onwards,
    );
    let mut errors = 0;
    for hlc in 1..40 {
        write(&engine, b"\x10k", hlc, Some(b"v"));
        // The log's old segments cannot be removed either.
        errors += u64::from(engine.close(1).is_err());
        for _ in 0..4 {
            errors += u64::from(
                engine
                    .maintain(Maintenance::Compact, 1, usize::MAX)
                    .is_err(),
            );
        }
    }
    assert!(errors > 0, "the failure is reported");
    let level0 = engine.stats().levels[0].0;
    assert!(level0 < 4, "{level0} tables wait in level 0");
    vfs.heal();
    settle(&engine, Maintenance::Compact);
    engine.close(1).expect("the disk works again");
    assert_eq!(engine.stats().log_segments, 1, "all old segments are gone");
}

#[test]
fn a_log_segment_that_somebody_removed_does_not_stop_the_flush_lane() {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    let engine = open(&vfs, &options());
    write(&engine, b"\x10k", 1, Some(b"v"));
    let first = below.names().into_iter().find(|n| n.starts_with("wal-"));
    below
        .remove(&first.expect("there is a log"))
        .expect("it is there");
    engine.close(1).expect("it was to be removed anyway");
    settle(&engine, Maintenance::Flush);
    assert_eq!(engine.stats().log_segments, 3, "one in use, two spares");
}

#[test]
fn a_stray_file_with_the_largest_id_is_refused_with_its_name() {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    drop(open(&vfs, &options()));
    below.install("ffffffffffffffff.tbl", b"stray");
    let error = Engine::open(vfs, options(), IDENTITY).err();
    let error = error.expect("no id is left").to_string();
    assert!(error.contains("ffffffffffffffff.tbl"), "{error}");
}

#[test]
fn the_clock_does_not_forget_versions_that_were_purged() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs, &options());
    engine.raise_purge_horizon(Version::MAX);
    for hlc in [1_000, 1_001] {
        write(&engine, b"\x10k", hlc, None);
        engine.close(1).expect("the disk works");
    }
    settle(&engine, Maintenance::Compact);
    assert_eq!(engine.stats().table_records, 0, "nothing is left");
    drop(engine);
    assert!(open(&vfs, &options()).hlc_floor() >= 1_001);
}

#[test]
fn a_flush_that_fails_again_and_again_leaves_no_files_behind() {
    let below = MemVfs::new();
    let vfs = FaultyVfs::new(Arc::new(below.clone()));
    let dyn_vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let engine = open(&dyn_vfs, &options());
    write(&engine, b"\x10k", 1, Some(b"v"));
    settle(&engine, Maintenance::Flush);
    for _ in 0..5 {
        let sync = vfs.calls().of(Call::Sync);
        vfs.fail(Call::Sync, sync, CallFailure::NoSpace, Repeat::Onwards);
        engine.close(1).expect_err("the table cannot be synced");
        vfs.heal();
        settle_garbage(&engine);
        let tables = below.names().iter().filter(|n| n.ends_with(".tbl")).count();
        assert_eq!(tables, 0);
    }
}

fn settle_garbage(engine: &Engine) {
    engine
        .maintain(Maintenance::Compact, 1, usize::MAX)
        .expect("removing works");
}

#[test]
fn deletes_that_reached_the_deepest_level_go_once_the_horizon_has_passed_them() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs, &options());
    for hlc in 1..=100 {
        let key = format!("\x10key {:02}", hlc % 50);
        write(&engine, key.as_bytes(), hlc, (hlc <= 50).then_some(b"v"));
        if hlc % 25 == 0 {
            engine.close(1).expect("the disk works");
        }
    }
    settle(&engine, Maintenance::Compact);
    assert_eq!(
        engine.stats().table_records,
        50,
        "nobody has confirmed them"
    );
    engine.raise_purge_horizon(version(80));
    settle(&engine, Maintenance::Compact);
    assert_eq!(
        engine.stats().table_records,
        50,
        "some are above the horizon"
    );
    engine.raise_purge_horizon(version(100));
    settle(&engine, Maintenance::Compact);
    assert_eq!(engine.stats().table_records, 0);
}

#[test]
fn a_guard_sees_the_newest_write_of_its_own_batch() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs, &options());
    let mut batch = Batch::new();
    push(&mut batch, b"\x10k", 10, Guard::Newest);
    push(&mut batch, b"\x10k", 5, Guard::Newest);
    push(
        &mut batch,
        b"\x10k",
        11,
        Guard::If(Condition::Matches(version(10))),
    );
    submit(&engine, batch);
    let mut done = Vec::new();
    engine.commit(&mut done).expect("the disk works");
    let applied = |hlc| {
        let version = version(hlc);
        (hlc, WriteOutcome::Applied { version })
    };
    assert_eq!(done, [applied(10), applied(5), applied(11)]);
}

#[test]
fn a_value_leaves_its_bytes_when_it_has_ended_for_everybody_and_not_by_the_clock_of_one() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs, &options());
    let key = b"\x10k";
    let next = b"\x10l";
    let found = |engine: &Engine| {
        let found = engine.get(key, Wait::Block, |cell| {
            (cell.version, cell.copies, cell.value.len())
        });
        found.expect("nothing is damaged")
    };
    let cell = CellRef {
        expiry_ms: Some(50),
        copies: 3,
        ..CellRef::value(key, version(9), &[0; 2000])
    };
    let mut batch = Batch::new();
    batch
        .push(0, key, &cell, Guard::Newest, 1)
        .expect("the record fits");
    submit(&engine, batch);
    engine.commit(&mut Vec::new()).expect("the disk works");
    // A clock that is ahead, over a crash, a start, a flush and a merge.
    drop(engine);
    let engine = open(&vfs, &options());
    let whole = Lookup::Cell((version(9), 3, 2000));
    assert_eq!(found(&engine), whole, "the log went into a table");
    engine.raise_purge_horizon(Version::MAX);
    let merge = |engine: &Engine| {
        for lane in [Maintenance::Flush, Maintenance::Compact] {
            for now_ms in [1_000_000, 2_000_000] {
                while engine.maintain(lane, now_ms, usize::MAX).expect("it works")
                    == Maintained::More
                {}
            }
        }
    };
    for hlc in [10, 11] {
        engine.set_ended_ms(49);
        write(&engine, next, hlc, Some(b"v"));
        engine.close(1_000_000).expect("the disk works");
        merge(&engine);
        assert_eq!(found(&engine), whole, "all merges were by one clock");
    }
    // Everybody agrees, and the clock of the one who merges is behind.
    engine.set_ended_ms(50);
    assert_eq!(engine.ended_ms(), 50);
    write(&engine, next, 12, Some(b"v"));
    engine.close(49).expect("the disk works");
    assert_eq!(found(&engine), whole);
    write(&engine, next, 13, Some(b"v"));
    engine.close(50).expect("the disk works");
    merge(&engine);
    assert_eq!(found(&engine), Lookup::Nothing, "it goes with the horizon");
}

#[test]
fn what_is_left_of_an_ended_value_keeps_its_version_and_copies() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs, &options());
    engine.set_ended_ms(50);
    let key = b"\x10k";
    let cell = CellRef {
        expiry_ms: Some(50),
        copies: 3,
        ..CellRef::value(key, version(9), &[0; 2000])
    };
    let put = |cell: &CellRef<'_>| {
        let mut batch = Batch::new();
        let pushed = batch.push(0, key, cell, Guard::Newest, 1);
        pushed.expect("the record fits");
        submit(&engine, batch);
        engine.commit(&mut Vec::new()).expect("the disk works");
    };
    let found = || {
        let found = engine.get(key, Wait::Block, |cell| {
            (cell.version, cell.copies, cell.value.len())
        });
        found.expect("nothing is damaged")
    };
    let (left, whole) = (
        Lookup::Cell((version(9), 3, 0)),
        Lookup::Cell((version(9), 3, 2000)),
    );
    put(&cell);
    engine.close(50).expect("the disk works");
    assert_eq!(found(), left);
    // Another copy comes back, for its owner says that it lives: it stays over what is left of it,
    // in memory and in tables, whichever of the two is deeper.
    let gone = CellRef {
        copies: 3,
        ..CellRef::tombstone(key, version(9))
    };
    engine.set_ended_ms(0);
    put(&cell);
    assert_eq!(found(), whole);
    put(&gone);
    assert_eq!(found(), whole);
    engine.close(50).expect("the disk works");
    assert_eq!(found(), whole);
    put(&gone);
    assert_eq!(found(), whole, "the tombstone is in memory");
    engine.close(50).expect("the disk works");
    assert_eq!(found(), whole, "the tombstone is in a newer table");
    for now_ms in [1_000_000, 2_000_000] {
        while engine
            .maintain(Maintenance::Compact, now_ms, usize::MAX)
            .expect("it works")
            == Maintained::More
        {}
    }
    assert_eq!(found(), whole, "merged");
}

#[test]
fn a_table_that_reads_back_otherwise_than_it_was_written_replaces_nothing() {
    let vfs = FaultyVfs::new(Arc::new(MemVfs::new()));
    let dyn_vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let engine = open(&dyn_vfs, &options());
    write(&engine, b"\x10k", 1, Some(b"v"));
    for id in 0..10 {
        vfs.rot(&format!("{id:016x}.tbl"), 3);
    }
    let error = engine.close(1).expect_err("the first byte is another");
    assert!(error.to_string().contains("digest"), "{error}");
    vfs.heal();
    assert!(
        is_live(&engine, b"\x10k"),
        "memory and the log still have it"
    );
    engine
        .close(1)
        .expect("the next attempt writes another table");
    assert!(is_live(&engine, b"\x10k"));
}

/// Writes tables with long keys until the manifest, which names two keys per table, is rewritten.
fn with_a_long_manifest(below: &MemVfs) -> Engine {
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    let mut options = options();
    (options.commit_queue_bytes_max, options.segment_bytes) = (8 << 10, 12 << 10);
    options.value_bytes_max = 4 << 10;
    let engine = open(&vfs, &options);
    let mut hlc = 0;
    // Two keys of a thousand bytes each: so many cannot be too many.
    while hlc < 1_900 {
        hlc += 1;
        write_table(&engine, hlc);
    }
    while below.file_bytes(&manifest(below)).map_or(0, |b| b.len()) < (4 << 20) - 8_000 {
        hlc += 1;
        write_table(&engine, hlc);
    }
    engine
}

fn write_table(engine: &Engine, hlc: u64) {
    let mut key = vec![b'k'; 1000];
    key.extend_from_slice(&hlc.to_be_bytes());
    write(engine, &key, hlc, Some(b"v"));
    engine.close(1).expect("the disk has room for a table");
}

/// The name of the manifest in force.
fn manifest(below: &MemVfs) -> String {
    let current = below.file_bytes("CURRENT").expect("the folder is open");
    String::from_utf8_lossy(&current[..25]).into_owned()
}

#[test]
fn a_manifest_is_rewritten_when_it_doubled_and_not_at_every_edit() {
    let below = MemVfs::new();
    let engine = with_a_long_manifest(&below);
    let mut names = vec![manifest(&below)];
    for hlc in 1_000_000..1_000_060 {
        write_table(&engine, hlc);
        names.push(manifest(&below));
    }
    names.dedup();
    assert_eq!(names.len(), 2, "{names:?}");
    settle(&engine, Maintenance::Compact);
    let left = below.names();
    let manifests = left.iter().filter(|n| n.starts_with("manifest-")).count();
    assert_eq!(manifests, 1, "the old one is removed");
    drop(engine);
    let vfs: Arc<dyn Vfs> = Arc::new(below);
    let engine = open(&vfs, &options());
    let mut last = vec![b'k'; 1000];
    last.extend_from_slice(&1_000_059u64.to_be_bytes());
    assert!(is_live(&engine, &last));
}

#[test]
fn a_full_disk_keeps_the_old_manifest_in_force_and_the_log_sure() {
    let below = MemVfs::new();
    let engine = with_a_long_manifest(&below);
    let before = manifest(&below);
    let used = bytes_of(&below);
    below.set_capacity(used + (1 << 20));
    for hlc in 1_000_000..1_000_005 {
        write_table(&engine, hlc);
    }
    assert_eq!(manifest(&below), before, "there was no room for another");
    assert_eq!(engine.pressure().stop, Some(Stop::DiskFull));
    below.set_capacity(u64::MAX);
    write_table(&engine, 1_000_005);
    assert_ne!(manifest(&below), before, "now there is");
}

#[test]
fn the_queue_is_bounded_by_bytes_and_leaves_a_refused_batch_as_it_was() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs, &options());
    let big = || one(0, b"\x10k", 1, Some(&[0; 20 << 10]), Guard::Newest);
    submit(&engine, big());
    submit(&engine, big());
    let mut refused = big();
    let answer = engine.submit(&mut refused);
    assert_eq!(
        answer,
        Err(NotTaken::QueueFull),
        "three of 20 KiB are above 48 KiB"
    );
    assert_eq!(refused.len(), 1);
    engine.commit(&mut Vec::new()).expect("the disk works");
    engine.submit(&mut refused).expect("there is room again");
}

#[test]
fn a_seal_is_durable_when_it_returns_and_costs_nothing_the_second_time() {
    let vfs = FaultyVfs::new(Arc::new(MemVfs::new()));
    let dyn_vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let engine = open(&dyn_vfs, &options());
    write(&engine, b"\x10k", 1, Some(b"v"));
    let syncs = |before| vfs.calls().of(Call::Sync) - before;
    let before = syncs(0);
    engine.seal().expect("the disk works");
    assert_eq!(syncs(before), 1);
    engine.seal().expect("the disk works");
    assert_eq!(syncs(before), 1);
}

#[test]
fn the_deepest_level_has_its_own_compression() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let mut options = options();
    options.compression = Compression::None;
    options.compression_deepest = Compression::Zstd;
    let engine = open(&vfs, &options);
    for hlc in 1..=2 {
        for key in [b"\x10a", b"\x10b", b"\x10c"] {
            write(&engine, key, hlc, Some(&[0; 1000]));
        }
        engine.close(1).expect("the disk works");
    }
    let raw = engine.stats().levels[0].1;
    assert!(raw > 6000, "{raw}");
    settle(&engine, Maintenance::Compact);
    let levels = engine.stats().levels;
    assert!(levels[0].0 == 0 && levels[1].1 < 2000, "{levels:?}");
}

#[test]
fn what_maintenance_synced_survives_the_machine_with_durability_os_too() {
    let vfs = MemVfs::new();
    let dyn_vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let mut options = options();
    options.durability = Durability::Os;
    let engine = open(&dyn_vfs, &options);
    write(&engine, b"\x10k", 1, Some(b"v"));
    settle(&engine, Maintenance::Flush);
    for seed in 0..20 {
        let image: Arc<dyn Vfs> = Arc::new(vfs.crash_image(&mut Prng::new(seed)));
        assert!(is_live(&open(&image, &options), b"\x10k"), "image {seed}");
    }
}

#[test]
fn the_reserve_stops_values_before_any_write_fails() {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    let mut options = options();
    options.reserve_bytes = 1 << 30;
    let engine = open(&vfs, &options);
    for (capacity, stop) in [(1 << 29, Some(Stop::DiskFull)), (u64::MAX, None)] {
        below.set_capacity(capacity);
        engine
            .maintain(Maintenance::Flush, 1, usize::MAX)
            .expect("there is room for a spare segment");
        assert_eq!(engine.pressure().stop, stop);
    }
}

#[test]
fn a_flush_that_finds_no_room_stops_values() {
    let vfs = FaultyVfs::new(Arc::new(MemVfs::new()));
    let dyn_vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let engine = open(&dyn_vfs, &options());
    settle(&engine, Maintenance::Flush);
    write(&engine, b"\x10k", 1, Some(b"v"));
    let create = vfs.calls().of(Call::Create);
    vfs.fail(Call::Create, create, CallFailure::NoSpace, Repeat::Once);
    engine.close(1).expect_err("the table cannot be made");
    assert_eq!(engine.pressure().stop, Some(Stop::DiskFull));
}

#[test]
fn a_delete_stays_while_level_0_holds_something_older() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let mut options = options();
    options.level0_tables_trigger = 3;
    let engine = open(&vfs, &options);
    write(&engine, b"\x10k", 5, None);
    for hlc in 6..9 {
        write(&engine, b"\x10z", hlc, Some(b"v"));
        engine.close(1).expect("the disk works");
    }
    settle(&engine, Maintenance::Compact);
    drop(engine);
    // From now on level 1 is too large, and has to go down.
    options.level1_bytes = 1;
    let engine = open(&vfs, &options);
    write(&engine, b"\x10k", 3, Some(b"late"));
    engine.close(1).expect("the disk works");
    engine.raise_purge_horizon(Version::MAX);
    settle(&engine, Maintenance::Compact);
    let levels = engine.stats().levels;
    assert!(levels[0].0 == 1 && levels[1].0 == 0, "{levels:?}");
    assert!(!is_live(&engine, b"\x10k"));
}

#[test]
fn a_log_that_is_unsure_poisons_at_once_and_nothing_else_does() {
    let mut poisoned = 0;
    for nth in 0.. {
        let vfs = FaultyVfs::new(Arc::new(MemVfs::new()));
        let dyn_vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let engine = open(&dyn_vfs, &options());
        write(&engine, b"\x10k", 1, Some(b"v"));
        let writes = vfs.calls().of(Call::Write);
        vfs.fail(Call::Write, writes + nth, CallFailure::Io, Repeat::Once);
        let Err(error) = engine.close(1) else {
            break;
        };
        let is_poisoned = matches!(error, Error::Poisoned { .. });
        submit(&engine, one(0, b"\x10k", 2, Some(b"v"), Guard::Newest));
        let next = engine.commit(&mut Vec::new());
        assert_eq!(next.is_err(), is_poisoned, "write {nth}: {error}");
        poisoned += u64::from(is_poisoned);
    }
    assert_eq!(
        poisoned, 3,
        "the end mark, the start of the next segment, and CURRENT"
    );
}

fn wide_key(n: u64) -> Vec<u8> {
    format!("\x10key-{n:06}").into_bytes()
}

/// Three megabytes of records behind a cache of less than one.
#[test]
fn a_long_scan_leaves_in_the_cache_what_point_reads_need() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let mut options = Options {
        memtable_bytes: 64 << 10,
        block_bytes: 4 << 10,
        table_bytes: 256 << 10,
        ..Options::for_tests()
    };
    crate::support::with_cache(&mut options, 768 << 10);
    let engine = open(&vfs, &options);
    let keys = 8_000;
    for n in 0..keys {
        let value = [n as u8; 400];
        write(&engine, &wide_key(n), n + 1, Some(&value));
        if n % 100 == 0 {
            settle(&engine, Maintenance::Flush);
            settle(&engine, Maintenance::Compact);
        }
    }
    engine.close(1).expect("memory does not fail");
    settle(&engine, Maintenance::Compact);
    // A hundred keys, each in a block of its own.
    let read_hot = || {
        let before = engine.stats();
        for n in (0..keys).step_by(keys as usize / 100) {
            let found = engine.get(&wide_key(n), Wait::Block, |cell| cell.value.len());
            assert_eq!(found.expect("memory does not fail"), Lookup::Cell(400));
        }
        let after = engine.stats();
        (
            after.cache_hits - before.cache_hits,
            after.cache_misses - before.cache_misses,
        )
    };
    read_hot();
    let (hits, misses) = read_hot();
    assert_eq!(misses, 0, "{hits} hits: the hot keys fit the cache");
    // The second and third scan come back to blocks that the cache remembers having had.
    for _ in 0..3 {
        let mut cursor = Cursor::new(
            Bound::Unbounded,
            Bound::Unbounded,
            Direction::Forward,
            Show::All,
        );
        let mut seen = 0;
        let mut chunk = || {
            engine.scan(&mut cursor, 64 << 10, |_, _| {
                seen += 1;
                Flow::Continue
            })
        };
        while chunk().expect("memory does not fail") == Progress::More {}
        assert_eq!(seen, keys);
    }
    let (hits, misses) = read_hot();
    assert!(
        misses * 10 <= hits,
        "{hits} hits and {misses} misses behind scans of everything"
    );
}

/// Writes `count` keys and brings them into one table.
fn write_many(engine: &Engine, count: u64) {
    for n in 1..=count {
        write(engine, format!("\x10{n:06}").as_bytes(), n, Some(&[7; 100]));
        settle(engine, Maintenance::Flush);
        settle(engine, Maintenance::Compact);
    }
    engine.close(1).expect("the disk works");
}

#[test]
fn a_scan_of_any_length_leaves_few_blocks_in_the_cache() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let engine = open(&vfs, &options());
    write_many(&engine, 3000);
    drop(engine);
    let engine = open(&vfs, &options());
    let before = engine.stats().cache_bytes;
    for direction in [Direction::Forward, Direction::Backward] {
        let (start, end) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = Cursor::new(start, end, direction, Show::All);
        let mut seen = 0;
        let scanned = engine.scan(&mut cursor, usize::MAX, |_, _| {
            seen += 1;
            Flow::Continue
        });
        assert_eq!(scanned.expect("nothing is damaged"), Progress::Done);
        assert_eq!(seen, 3000);
    }
    let stats = engine.stats();
    let sources: usize = stats.levels[0].0 + stats.levels[1..].iter().filter(|l| l.0 > 0).count();
    // Two scans, 16 blocks each; a block, its frame and its place cost less than three times their
    // 512 bytes.
    let blocks = 2 * 16 * sources as u64 * 3 * 512;
    let guides = 64 << 10;
    let kept = stats.cache_bytes - before;
    assert!(
        kept > 0 && kept <= blocks + guides,
        "{kept} bytes were kept, {sources} sources"
    );
}

#[test]
fn idle_time_settles_level_0_and_gives_the_room_of_deletes_back() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let mut options = options();
    options.level0_tables_trigger = 4;
    let engine = open(&vfs, &options);
    engine.raise_purge_horizon(Version::MAX);
    for n in 1..=40 {
        write(&engine, format!("\x10{n}").as_bytes(), n, Some(&[7; 100]));
    }
    engine.close(1).expect("the disk works");
    for n in 1..=40 {
        write(&engine, format!("\x10{n}").as_bytes(), 100 + n, None);
    }
    engine.close(1).expect("the disk works");
    let at = |now_ms| {
        while engine
            .maintain(Maintenance::Compact, now_ms, usize::MAX)
            .expect("the disk works")
            == Maintained::More
        {}
        (engine.stats().levels[0].0, engine.stats().table_records)
    };
    assert_eq!(at(1), (2, 80), "two tables are no reason for a compaction");
    assert_eq!(at(9_000), (2, 80), "nine seconds may be a pause");
    write(&engine, b"\x10x", 1000, Some(b"v"));
    assert_eq!(at(12_000), (2, 80), "a write begins the wait anew");
    assert_eq!(at(5_000), (2, 80), "a clock that is set back, too");
    assert_eq!(at(14_999), (2, 80));
    assert_eq!(at(15_000), (0, 0), "all of it was deleted");
    assert!(is_live(&engine, b"\x10x"));
}
