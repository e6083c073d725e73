//! Calls that fail and return: EIO and ENOSPC at every call of a workload.
//!
//! Invariants
//! 1. An error is reported where it happened; no acknowledged write is lost, no record is made up.
//! 2. Without poison the engine goes on by itself once calls work again.
//!
//! Not here: power loss (`crash.rs`), damage (`damage.rs`).

use crate::support::{IDENTITY, World};
use dendra_base::Prng;
use dendra_engine::vfs::faulty::{CallFailure, FaultyVfs, Repeat};
use dendra_engine::vfs::mem::MemVfs;
use dendra_engine::{Engine, Error, Maintenance, Options, Stop};
use std::sync::Arc;

fn options() -> Options {
    let mut options = Options::for_tests();
    options.memtable_bytes = 4 << 10;
    options.segment_bytes = 16 << 10;
    options.value_bytes_max = 8 << 10;
    options.commit_queue_bytes_max = 12 << 10;
    options.level0_tables_trigger = 2;
    options.level1_bytes = 8 << 10;
    options
}

/// Runs all steps, going on after errors; stops when poisoned.
fn workload(world: &mut World) -> bool {
    let mut prng = Prng::named(3, "faults");
    for _ in 0..60 {
        let mut results = vec![world.step_writes(1 + prng.below(12))];
        for lane in [Maintenance::Flush, Maintenance::Compact] {
            results.push(
                world
                    .maintain(lane, 1 + prng.below(16 << 10) as usize)
                    .map(|_| ()),
            );
        }
        results.push(world.engine.seal());
        if results
            .iter()
            .any(|r| matches!(r, Err(Error::Poisoned { .. })))
        {
            return true;
        }
    }
    false
}

fn calls_of_workload() -> u64 {
    let vfs = Arc::new(FaultyVfs::new(Arc::new(MemVfs::new())));
    let mut world = World::new(vfs.clone(), options(), 4);
    assert!(!workload(&mut world), "nothing fails");
    vfs.calls().all()
}

fn fail_everywhere(failure: CallFailure, repeat: Repeat) {
    let total = calls_of_workload();
    println!("{total} calls");
    let (mut poisoned, mut went_on) = (0, 0);
    for nth in 0..total {
        println!("call {nth} {failure:?} {repeat:?}");
        let below = MemVfs::new();
        let vfs = Arc::new(FaultyVfs::new(Arc::new(below.clone())));
        vfs.fail_any(nth, failure, repeat);
        let Ok(mut world) = World::try_new(vfs.clone(), options(), 4) else {
            vfs.heal();
            World::try_new(vfs, options(), 4).expect("the next start makes the folder");
            continue;
        };
        world.tolerates_faults = true;
        let is_poisoned = workload(&mut world);
        vfs.heal();
        if is_poisoned {
            poisoned += 1;
        } else {
            went_on += 1;
            world.in_flight.clear();
            world
                .step_writes(3)
                .expect("the engine goes on once calls work again");
            world.check_all_keys();
            world.engine.close(world.now_ms).expect("and closes");
        }
        let image = below.process_crash_image();
        let engine =
            Engine::open(Arc::new(image), options(), IDENTITY).expect("the folder opens again");
        world.check_survivors(&engine);
    }
    println!("{poisoned} poisoned, {went_on} went on");
    assert!(poisoned > 0, "some failures leave the log unsure");
    assert!(
        went_on > 0 || repeat == Repeat::Onwards,
        "some failures are survived"
    );
}

#[test]
fn an_io_error_at_any_call_loses_nothing() {
    fail_everywhere(CallFailure::Io, Repeat::Once);
}

#[test]
fn io_errors_from_any_call_on_lose_nothing() {
    fail_everywhere(CallFailure::Io, Repeat::Onwards);
}

#[test]
fn a_full_disk_at_any_call_loses_nothing() {
    fail_everywhere(CallFailure::NoSpace, Repeat::Once);
}

#[test]
fn a_disk_that_fills_stops_values_and_comes_back_by_itself() {
    let below = MemVfs::new();
    let mut options = options();
    options.reserve_bytes = 32 << 10;
    let mut world = World::new(Arc::new(below.clone()), options, 4);
    world.tolerates_faults = true;
    world.keys = 5000;
    below.set_capacity(160 << 10);
    let mut refusals = 0;
    for _ in 0..400 {
        if world.engine.pressure().stop == Some(Stop::DiskFull) {
            refusals += 1;
        } else if let Err(error) = world.step_writes(8) {
            assert!(error.is_no_space(), "{error}");
        }
        for lane in [Maintenance::Flush, Maintenance::Compact] {
            if let Err(error) = world.maintain(lane, 1 << 20) {
                assert!(error.is_no_space(), "{error}");
            }
        }
    }
    assert!(refusals > 0, "the reserve was reached");
    world.check_all_keys();
    below.set_capacity(u64::MAX);
    world
        .maintain(Maintenance::Flush, 1 << 20)
        .expect("there is room");
    assert_eq!(
        world.engine.pressure().stop,
        None,
        "writes resume by themselves"
    );
    world.step_writes(8).expect("there is room");
    world.engine.close(world.now_ms).expect("there is room");
    world = world.reopen();
    world.check_all_keys();
}

#[test]
fn a_write_whose_sync_failed_is_never_seen() {
    use dendra_base::{CellRef, Version};
    use dendra_engine::vfs::Wait;
    use dendra_engine::vfs::faulty::Call;
    use dendra_engine::{Batch, Guard, Lookup};
    let vfs = Arc::new(FaultyVfs::new(Arc::new(MemVfs::new())));
    let engine = Engine::open(vfs.clone(), options(), IDENTITY).expect("a new folder opens");
    let key = b"\x10key";
    let put = |hlc| {
        let mut batch = Batch::new();
        let cell = CellRef::value(
            key,
            Version {
                hlc,
                origin: 7,
                rmw: 0,
            },
            b"value",
        );
        batch
            .push(1, key, &cell, Guard::Newest, 1)
            .expect("the record fits");
        engine.submit(&mut batch).expect("the queue is empty");
        engine.commit(&mut Vec::new())
    };
    vfs.fail(
        Call::Sync,
        vfs.calls().of(Call::Sync),
        CallFailure::Io,
        Repeat::Once,
    );
    let error = put(1).expect_err("the sync fails");
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    let found = engine
        .get(key, Wait::Block, |_| ())
        .expect("memory does not fail");
    assert_eq!(found, Lookup::Nothing, "nobody may see what may be lost");
    let again = put(2).expect_err("after a failed sync nothing more is written");
    assert!(matches!(again, Error::Poisoned { .. }), "{again}");
}
