//! Power loss and `kill -9` at every operation on the disk.
//!
//! ```text
//! run the workload until operation n ─► the power fails ─► images of what may be on the disk
//!     each image: open, compare with what was acknowledged, write on, close, open again
//! ```
//!
//! Invariants
//! 1. Every acknowledged write is found again; a write in flight is there or not; no other one is.
//! 2. The same seed gives the same operations, so that a failure names seed, operation and draw.
//!
//! Not here: bytes that rot (`damage.rs`), calls that fail and return (`faults.rs`).

use crate::support::{IDENTITY, World};
use dendra_base::{Condition, Prng, Version};
use dendra_engine::vfs::mem::MemVfs;
use dendra_engine::{Batch, Durability, Engine, Error, Guard, Maintenance, Options};
use std::sync::Arc;

/// Writes in the workload.
const WRITES: u64 = 2000;
/// Images drawn per operation.
const DRAWS: u64 = 8;

fn options() -> Options {
    let mut options = Options::for_tests();
    options.memtable_bytes = 8 << 10;
    options.segment_bytes = 16 << 10;
    options.value_bytes_max = 8 << 10;
    options.commit_queue_bytes_max = 12 << 10;
    options.level0_tables_trigger = 2;
    options.level1_bytes = 16 << 10;
    options
}

/// Runs the workload until it is done or the power fails.
fn workload(world: &mut World) -> Result<(), Error> {
    let mut prng = Prng::named(11, "workload");
    let mut written = 0;
    while written < WRITES {
        let count = 1 + prng.below(16);
        written += count;
        world.step_writes(count)?;
        if prng.chance(1, 2) {
            world.maintain(Maintenance::Flush, 1 + prng.below(16 << 10) as usize)?;
        }
        if prng.chance(2, 3) {
            world.maintain(Maintenance::Compact, 1 + prng.below(48 << 10) as usize)?;
        }
        if prng.chance(1, 10) {
            world.engine.seal()?;
        }
    }
    world.engine.close(world.now_ms)
}

fn total_operations(options: &Options) -> u64 {
    let vfs = MemVfs::new();
    let mut world = World::new(Arc::new(vfs.clone()), options.clone(), 1);
    workload(&mut world).expect("the power holds");
    let stats = world.engine.stats();
    assert!(
        stats.flushes > 10 && stats.compactions > 10,
        "background work happens: {stats:?}"
    );
    vfs.operations()
}

/// Opens an image, compares, writes on, and opens it once more.
fn check_image(world: &mut World, image: &MemVfs, options: &Options) {
    let vfs = Arc::new(image.clone());
    let engine =
        Engine::open(vfs.clone(), options.clone(), IDENTITY).expect("a folder opens after a crash");
    world.check_survivors(&engine);
    assert!(
        world
            .twin
            .values()
            .all(|k| k.version.hlc <= engine.hlc_floor().max(k.version.hlc)),
        "the clock's floor is above every recovered version"
    );
    let hlc = engine.hlc_floor() + 1;
    let key = b"\x10after the crash";
    let mut batch = Batch::new();
    let cell = dendra_base::CellRef::value(
        key,
        Version {
            hlc,
            origin: 7,
            rmw: 0,
        },
        b"v",
    );
    batch
        .push(0, key, &cell, Guard::If(Condition::Absent), world.now_ms)
        .expect("the record fits");
    engine.submit(&mut batch).expect("the queue is empty");
    engine
        .commit(&mut Vec::new())
        .expect("the disk works again");
    drop(engine);
    let engine =
        Engine::open(vfs, options.clone(), IDENTITY).expect("a recovered folder opens again");
    world.check_survivors(&engine);
}

fn crash_everywhere(
    options: &Options,
    draw: impl Fn(&MemVfs, &mut Prng) -> MemVfs,
    share: (u64, u64),
) {
    let total = total_operations(options);
    println!("{total} operations");
    for operation in (share.0..total).step_by(share.1 as usize) {
        let vfs = MemVfs::new();
        vfs.crash_at(operation);
        let Ok(mut world) = World::try_new(Arc::new(vfs.clone()), options.clone(), 1) else {
            // Interrupted while the folder was made: the next start must make it.
            let image = draw(&vfs, &mut Prng::new(operation));
            Engine::open(Arc::new(image), options.clone(), IDENTITY)
                .expect("an interrupted first start is repeated");
            continue;
        };
        let result = workload(&mut world);
        assert!(
            result.is_err() && vfs.has_crashed(),
            "operation {operation} is reached"
        );
        for number in 0..DRAWS {
            println!("operation {operation}, draw {number}");
            let mut prng = Prng::new(operation * DRAWS + number);
            let image = draw(&vfs, &mut prng);
            check_image(&mut world, &image, options);
        }
    }
}

#[test]
fn acknowledged_writes_survive_power_loss_at_every_operation_first_half() {
    crash_everywhere(&options(), |vfs, prng| vfs.crash_image(prng), (0, 2));
}

#[test]
#[ignore = "at length"]
fn acknowledged_writes_survive_power_loss_at_every_operation_second_half() {
    crash_everywhere(&options(), |vfs, prng| vfs.crash_image(prng), (1, 2));
}

#[test]
fn writes_acknowledged_by_the_system_survive_a_killed_process() {
    let mut options = options();
    options.durability = Durability::Os;
    // One in seven: the power-loss test walks every operation of the same code.
    crash_everywhere(&options, |vfs, _| vfs.process_crash_image(), (0, 7));
}

#[test]
fn a_second_power_loss_during_recovery_loses_nothing() {
    let options = options();
    let total = total_operations(&options);
    let mut prng = Prng::new(5);
    for round in 0..120 {
        let operation = 20 + prng.below(total - 20);
        let vfs = MemVfs::new();
        vfs.crash_at(operation);
        let Ok(mut world) = World::try_new(Arc::new(vfs.clone()), options.clone(), 1) else {
            continue;
        };
        workload(&mut world).expect_err("the power fails before the end");
        let mut image = vfs.crash_image(&mut prng);
        for again in 0..4 {
            println!("round {round}, operation {operation}, again {again}");
            image.crash_at(prng.below(40));
            let opened = Engine::open(Arc::new(image.clone()), options.clone(), IDENTITY);
            if let Ok(engine) = &opened {
                world.check_survivors(engine);
            }
            drop(opened);
            image = image.crash_image(&mut prng);
        }
        check_image(&mut world, &image, &options);
    }
}

#[test]
fn a_machine_that_loses_power_unsynced_still_opens_and_makes_nothing_up() {
    let mut options = options();
    options.durability = Durability::Os;
    let total = total_operations(&options);
    for operation in (20..total).step_by(3) {
        let vfs = MemVfs::new();
        vfs.crash_at(operation);
        let Ok(mut world) = World::try_new(Arc::new(vfs.clone()), options.clone(), 1) else {
            continue;
        };
        workload(&mut world).expect_err("the power fails before the end");
        for number in 0..DRAWS {
            println!("operation {operation}, draw {number}");
            let image = vfs.crash_image(&mut Prng::new(operation * DRAWS + number));
            let engine = Engine::open(Arc::new(image), options.clone(), IDENTITY)
                .expect("what was never promised may be lost, the folder may not");
            for key in world.twin.keys() {
                let found = world.seen(&engine, key);
                let newest = world.in_flight.iter().filter(|w| w.key == *key);
                let newest = newest.map(|w| w.known.version).max();
                let newest = newest.unwrap_or_default().max(world.twin[key].version);
                assert!(
                    found.is_none_or(|(v, _)| v.hlc <= newest.hlc),
                    "a made-up version"
                );
            }
        }
    }
}
