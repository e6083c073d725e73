//! The engine against its dumb twin, over drawn settings and drawn operations.
//!
//! Invariants
//! 1. One seed repeats one run: a failure prints it.
//!
//! Not here: crashes (`crash.rs`), damage (`damage.rs`).

use crate::support::{World, draw_options};
use dendra_base::{Prng, Version};
use dendra_engine::vfs::mem::MemVfs;
use dendra_engine::{Direction, Maintained, Maintenance};
use std::ops::Bound;
use std::sync::Arc;

fn run(seed: u64, steps: u64) {
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let options = draw_options(&mut prng);
    let vfs = MemVfs::new();
    vfs.set_would_block(prng.below(600), seed);
    let mut world = World::new(Arc::new(vfs), options, seed);
    world.keys = 20 + prng.below(200);
    for _ in 0..steps {
        match prng.below(20) {
            0..=8 => world
                .step_writes(1 + prng.below(8))
                .expect("memory does not fail"),
            9..=11 => {
                let key = world.draw_key();
                world.check_key(&key);
            }
            12 => world.check_scan(),
            13..=15 => {
                let budget = 1 + prng.below(8 << 10) as usize;
                world
                    .maintain(Maintenance::Flush, budget)
                    .expect("memory does not fail");
            }
            16 | 17 => {
                let budget = 1 + prng.below(8 << 10) as usize;
                world
                    .maintain(Maintenance::Compact, budget)
                    .expect("memory does not fail");
            }
            18 => {
                world.engine.seal().expect("memory does not fail");
                world.now_ms += prng.below(100);
            }
            _ => {
                if prng.chance(1, 2) {
                    world
                        .engine
                        .close(world.now_ms)
                        .expect("memory does not fail");
                }
                world = world.reopen();
            }
        }
    }
    world.check_all_keys();
    world.check_scan();
}

#[test]
fn the_engine_agrees_with_its_twin_over_drawn_settings() {
    for seed in 0..150 {
        run(seed, 400);
    }
}

#[test]
fn deletes_give_their_space_back() {
    let mut options = dendra_engine::Options::for_tests();
    options.level0_tables_trigger = 2;
    let mut world = World::new(Arc::new(MemVfs::new()), options, 3);
    for _ in 0..300 {
        world.step_writes(4).expect("memory does not fail");
        settle(&mut world);
    }
    let keys: Vec<Vec<u8>> = world.twin.keys().cloned().collect();
    let mut batch = dendra_engine::Batch::new();
    for key in &keys {
        world.now_ms += 1;
        let version = Version {
            hlc: world.now_ms << 16,
            origin: 7,
            rmw: 0,
        };
        let cell = dendra_base::CellRef::tombstone(key, version);
        batch
            .push(0, key, &cell, dendra_engine::Guard::Newest, world.now_ms)
            .expect("the record fits");
    }
    world
        .engine
        .submit(&mut batch)
        .expect("the queue holds one batch");
    world
        .engine
        .commit(&mut Vec::new())
        .expect("memory does not fail");
    world.twin.clear();
    // Two flushes bring level 0 to its trigger: the compaction that follows meets every tombstone.
    for _ in 0..2 {
        world.step_writes(1).expect("memory does not fail");
        world
            .engine
            .close(world.now_ms)
            .expect("memory does not fail");
        settle(&mut world);
    }
    world.now_ms += 10_000;
    world.check_all_keys();
    let left = world.scan(
        Bound::Unbounded,
        Bound::Unbounded,
        Direction::Forward,
        usize::MAX,
    );
    let live = left.expect("nothing is damaged").len() as u64;
    let stats = world.engine.stats();
    assert!(
        stats.table_records <= live + 4,
        "{} records are left in tables for {live} live keys: {:?}",
        stats.table_records,
        stats.levels
    );
}

fn settle(world: &mut World) {
    for lane in [Maintenance::Flush, Maintenance::Compact] {
        while world
            .maintain(lane, usize::MAX)
            .expect("memory does not fail")
            == Maintained::More
        {}
    }
}

#[test]
fn a_late_older_write_never_hides_or_revives() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let options = draw_options(&mut prng);
        let mut world = World::new(Arc::new(MemVfs::new()), options, seed);
        // The horizon stays below every write: older ones may still arrive.
        world.engine = dendra_engine::Engine::open(
            Arc::new(MemVfs::new()),
            world.options.clone(),
            crate::support::IDENTITY,
        )
        .expect("a new folder opens");
        world.has_late_writes = true;
        for _ in 0..200 {
            world
                .step_writes(1 + prng.below(4))
                .expect("memory does not fail");
            for lane in [Maintenance::Flush, Maintenance::Compact] {
                world
                    .maintain(lane, 1 + prng.below(4 << 10) as usize)
                    .expect("memory does not fail");
            }
        }
        world.check_all_keys();
    }
}

#[test]
fn a_tombstone_stays_while_a_memtable_holds_something_older() {
    let mut options = dendra_engine::Options::for_tests();
    options.level0_tables_trigger = 1;
    let mut world = World::new(Arc::new(MemVfs::new()), options, 5);
    let key = b"\x10key".to_vec();
    let put = |world: &World, cell: &dendra_base::CellRef<'_>| {
        let mut batch = dendra_engine::Batch::new();
        batch
            .push(0, &key, cell, dendra_engine::Guard::Newest, world.now_ms)
            .expect("the record fits");
        world.engine.submit(&mut batch).expect("the queue is empty");
        world
            .engine
            .commit(&mut Vec::new())
            .expect("memory does not fail");
    };
    let version = |hlc| Version {
        hlc,
        origin: 7,
        rmw: 0,
    };
    put(&world, &dendra_base::CellRef::tombstone(&key, version(20)));
    world
        .engine
        .close(world.now_ms)
        .expect("a flush of everything");
    // Late and older: it was confirmed before the horizon rose, and is still in memory only.
    put(
        &world,
        &dendra_base::CellRef::value(&key, version(10), b"late"),
    );
    settle(&mut world);
    world.check_key(&key);
    world
        .engine
        .close(world.now_ms)
        .expect("a flush of everything");
    settle(&mut world);
    world.check_key(&key);
}

#[test]
fn an_open_folder_keeps_no_file_that_nothing_needs() {
    let vfs = MemVfs::new();
    let mut world = World::new(
        Arc::new(vfs.clone()),
        dendra_engine::Options::for_tests(),
        6,
    );
    for _ in 0..200 {
        world.step_writes(6).expect("memory does not fail");
        world
            .maintain(Maintenance::Flush, 1 << 20)
            .expect("memory does not fail");
        world
            .maintain(Maintenance::Compact, 3000)
            .expect("memory does not fail");
    }
    // The process ends in the middle of a compaction: its outputs belong to no tree.
    let left = vfs.process_crash_image();
    let before = left.names().len();
    world.vfs = Arc::new(left.clone());
    let mut world = world.reopen();
    settle(&mut world);
    let tables: usize = world
        .engine
        .stats()
        .levels
        .iter()
        .map(|(tables, _)| tables)
        .sum();
    let segments = world.engine.stats().log_segments;
    // Beside tables and segments: CURRENT, its manifest, LOCK.
    let after = left.names();
    assert!(
        after.len() <= tables + segments + 3,
        "{before} files before, now {after:?}"
    );
    world.check_all_keys();
}
