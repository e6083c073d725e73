//! The library's door: no argument can make a folder unreadable.
//!
//! Invariants
//! 1. A write that was acknowledged is flushed, and is there after the next start. One that can
//!    never be stored is an error before it is acknowledged.
//!
//! Not here: limits of requests (crate `wire`), settings that do not fit each other (`options.rs`).

use crate::support::IDENTITY;
use dendra_base::limits::{STORED_KEY_BYTES_MAX, STORED_VALUE_BYTES_MAX};
use dendra_base::{CellRef, Condition, Version};
use dendra_engine::vfs::{MemVfs, Vfs, Wait};
use dendra_engine::{Batch, Engine, Guard, Lookup, NotTaken, Options, Unfit, WriteOutcome};
use proptest::prelude::*;
use std::sync::Arc;

fn version(hlc: u64) -> Version {
    Version {
        hlc,
        origin: 1,
        rmw: 0,
    }
}

fn open(vfs: &MemVfs) -> Engine {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    Engine::open(vfs, Options::for_tests(), IDENTITY).expect("the folder opens")
}

/// Writes one record through the door; `Err` when it is refused there.
fn put(engine: &Engine, key: &[u8], version: Version, value: &[u8]) -> Result<(), NotTaken> {
    let mut batch = Batch::new();
    let cell = CellRef::value(key, version, value);
    batch.push(0, key, &cell, Guard::Newest, 1)?;
    engine.submit(&mut batch)?;
    let mut done = Vec::new();
    engine.commit(&mut done).expect("the disk works");
    assert!(matches!(done[..], [(0, WriteOutcome::Applied { .. })]));
    Ok(())
}

fn length(engine: &Engine, key: &[u8]) -> Option<usize> {
    match engine.get(key, Wait::Block, |cell| cell.value.len()) {
        Ok(Lookup::Cell(len)) => Some(len),
        Ok(_) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_key_that_no_table_can_hold_is_refused_before_it_is_acknowledged() {
    let vfs = MemVfs::new();
    let engine = open(&vfs);
    for bytes in [0, STORED_KEY_BYTES_MAX + 1, 5000, 70_000] {
        let refused = put(&engine, &vec![b'k'; bytes], version(1), b"v");
        assert_eq!(refused, Err(NotTaken::Unfit(Unfit::KeyLength { bytes })));
        let text = refused.expect_err("it is refused").to_string();
        assert!(text.contains("1 to 1033"), "{text}");
    }
    let longest = vec![b'k'; STORED_KEY_BYTES_MAX];
    put(&engine, &longest, version(2), b"v").expect("it fits");
    engine.close(1).expect("all of it can be flushed");
    drop(engine);
    assert_eq!(length(&open(&vfs), &longest), Some(1));
}

#[test]
fn a_version_without_a_successor_is_refused() {
    let engine = open(&MemVfs::new());
    let refused = put(&engine, b"k", Version::MAX, b"v");
    assert_eq!(
        refused,
        Err(NotTaken::Unfit(Unfit::Version { hlc: u64::MAX }))
    );
    let mut last = version((1 << 63) - 1);
    last.rmw = u32::MAX;
    put(&engine, b"k", last, b"v").expect("it has a successor");
    let mut batch = Batch::new();
    let cell = CellRef::value(b"k", version(1), b"w");
    let pushed = batch.push(0, b"k", &cell, Guard::If(Condition::Present), 1);
    pushed.expect("the record fits");
    engine.submit(&mut batch).expect("the queue is empty");
    let mut done = Vec::new();
    engine.commit(&mut done).expect("the disk works");
    assert!(
        matches!(done[..], [(0, WriteOutcome::Applied { version })] if version > last),
        "{done:?}"
    );
}

#[test]
fn a_batch_that_never_fits_the_queue_is_not_told_to_try_again() {
    let engine = open(&MemVfs::new());
    let options = Options::for_tests();
    let wide = vec![7; options.commit_queue_bytes_max];
    let refused = put(&engine, b"k", version(1), &wide).expect_err("it is too wide");
    assert!(
        matches!(refused, NotTaken::BatchTooLarge { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("split it"), "{refused}");

    let mut long = Batch::new();
    for n in 0..=options.commit_queue_len_max as u64 {
        let cell = CellRef::value(b"k", version(n + 1), b"v");
        long.push(n, b"k", &cell, Guard::Newest, 1)
            .expect("the record fits");
    }
    let refused = engine.submit(&mut long).expect_err("it is too long");
    assert!(
        matches!(refused, NotTaken::BatchTooLarge { .. }),
        "{refused}"
    );
    assert_eq!(long.len(), options.commit_queue_len_max + 1, "untouched");

    let huge = vec![7; STORED_VALUE_BYTES_MAX + 1];
    let refused = put(&engine, b"k", version(1), &huge).expect_err("it is too large");
    assert!(
        matches!(refused, NotTaken::Unfit(Unfit::ValueLength { .. })),
        "{refused}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_argument_loses_a_folder(
        writes in prop::collection::vec(
            (0usize..2200, any::<u8>(), 0usize..60_000, any::<u64>(), any::<u32>()),
            1..12,
        ),
    ) {
        let vfs = MemVfs::new();
        let engine = open(&vfs);
        let mut kept = Vec::new();
        for (key_len, byte, value_len, hlc, rmw) in writes {
            let key = vec![byte; key_len];
            let version = Version { hlc, origin: 1, rmw };
            if put(&engine, &key, version, &vec![byte; value_len]).is_ok() {
                kept.retain(|(other, newest, _)| *other != key || *newest > version);
                if kept.iter().all(|(other, _, _)| *other != key) {
                    kept.push((key, version, value_len));
                }
            }
        }
        let check = |engine: &Engine| {
            for (key, _, value_len) in &kept {
                assert_eq!(length(engine, key), Some(*value_len));
            }
        };
        // Once from the log, once from a table.
        let engine = { drop(engine); open(&vfs) };
        check(&engine);
        engine.close(1).expect("all of it can be flushed");
        drop(engine);
        check(&open(&vfs));
    }
}
