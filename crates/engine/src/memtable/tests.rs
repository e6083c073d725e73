//! The memtable beside a `BTreeMap`, and under threads.

use super::iter::MemtableIter;
use super::list::{Inserted, Inserter, Memtable};
use crate::source::Source;
use dendra_base::{CellRef, Direction, Prng, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Model = BTreeMap<Vec<u8>, (Version, Vec<u8>)>;

fn version(hlc: u64) -> Version {
    Version {
        hlc,
        origin: 1,
        rmw: 0,
    }
}

fn encoded(key: &[u8], version: Version, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    CellRef::value(key, version, value).encode(&mut bytes);
    bytes
}

fn put(inserter: &mut Inserter, key: &[u8], hlc: u64, value: &[u8]) -> Inserted {
    inserter.insert(key, &encoded(key, version(hlc), value))
}

/// Keys that share prefixes, are prefixes of each other, and end in zeros.
fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)];
    prop_oneof![
        prop::collection::vec(byte.clone(), 1..4),
        prop::collection::vec(byte, 7..11),
        prop::collection::vec(any::<u8>(), 1..30),
    ]
}

fn any_bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        4 => any_key().prop_map(Bound::Included),
        4 => any_key().prop_map(Bound::Excluded),
    ]
}

/// The records of a scan, as keys and values.
fn scan(
    table: &Arc<Memtable>,
    bound: Bound<&[u8]>,
    direction: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut iter = table.iter();
    iter.seek(bound, direction).expect("memory does not fail");
    let mut seen = Vec::new();
    while let Some((key, cell)) = iter.current() {
        assert!(cell.is_intact(key), "a cell stands under another key");
        seen.push((key.to_vec(), cell.value.to_vec()));
        iter.advance().expect("memory does not fail");
    }
    seen
}

fn scan_model(model: &Model, bound: Bound<&[u8]>, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let show = |(key, (_, value)): (&Vec<u8>, &(Version, Vec<u8>))| (key.clone(), value.clone());
    match direction {
        Direction::Forward => model
            .range::<[u8], _>((bound, Bound::Unbounded))
            .map(show)
            .collect(),
        Direction::Backward => model
            .range::<[u8], _>((Bound::Unbounded, bound))
            .rev()
            .map(show)
            .collect(),
    }
}

proptest! {
    #[test]
    fn a_memtable_is_a_sorted_map_of_newest_cells(
        writes in prop::collection::vec((any_key(), 0u64..40, 0usize..600), 0..400),
        absent in prop::collection::vec(any_key(), 20),
        bounds in prop::collection::vec(any_bound(), 12),
        bytes_target in prop_oneof![Just(0usize), Just(16 << 10), Just(1 << 20)],
    ) {
        let (table, mut inserter) = Memtable::new(bytes_target);
        let mut model = Model::new();
        let (mut min, mut max) = (None::<Version>, None::<Version>);
        for (i, (key, hlc, value_len)) in writes.iter().enumerate() {
            let value = vec![i as u8; *value_len];
            let version = version(*hlc);
            let expected = match model.get(key) {
                None => Inserted::New,
                Some((current, _)) if *current >= version => Inserted::Older,
                Some(_) => Inserted::Replaced,
            };
            prop_assert_eq!(put(&mut inserter, key, *hlc, &value), expected);
            if expected != Inserted::Older {
                model.insert(key.clone(), (version, value));
                min = Some(min.map_or(version, |min| min.min(version)));
                max = Some(max.map_or(version, |max| max.max(version)));
            }
        }
        prop_assert_eq!(table.len(), model.len());
        prop_assert_eq!(table.is_empty(), model.is_empty());
        prop_assert_eq!(table.version_min(), min);
        prop_assert_eq!(table.version_max(), max);
        for (key, (version, value)) in &model {
            let cell = table.get(key).expect("every key of the model is in the table");
            prop_assert_eq!((cell.version, cell.value), (*version, value.as_slice()));
        }
        for key in &absent {
            prop_assert_eq!(table.get(key).is_some(), model.contains_key(key));
        }
        for bound in &bounds {
            let bound = bound.as_ref().map(Vec::as_slice);
            for direction in [Direction::Forward, Direction::Backward] {
                prop_assert_eq!(
                    scan(&table, bound, direction),
                    scan_model(&model, bound, direction)
                );
            }
        }
    }
}

#[test]
fn a_large_table_finds_every_key_although_its_chains_are_long() {
    // Sixteen buckets for 5000 keys: most lookups give up on the chain and take the towers.
    let (table, mut inserter) = Memtable::new(0);
    let key = |i: u64| format!("user{:08}", i * 7919 % 100_003).into_bytes();
    for i in 0..5000 {
        assert_eq!(
            put(&mut inserter, &key(i), 1, &i.to_le_bytes()),
            Inserted::New
        );
    }
    for i in 0..5000 {
        let cell = table.get(&key(i)).expect("it was inserted");
        assert_eq!(cell.value, i.to_le_bytes());
        assert_eq!(put(&mut inserter, &key(i), 1, b"late"), Inserted::Older);
    }
    assert!(table.get(&key(5001)).is_none());
    assert_eq!(table.len(), 5000);
    assert_eq!(
        scan(&table, Bound::Unbounded, Direction::Forward).len(),
        5000
    );
}

#[test]
fn bytes_grow_with_what_is_inserted_and_with_replaced_records() {
    let (table, mut inserter) = Memtable::new(1 << 20);
    let empty = table.bytes();
    assert!(empty <= 1 << 17, "an empty table holds {empty} bytes");
    put(&mut inserter, b"k", 1, &[0; 1000]);
    let one = table.bytes();
    assert!(one >= empty + 1000);
    put(&mut inserter, b"k", 2, &[0; 1000]);
    assert!(table.bytes() >= one + 1000);
    assert_eq!(table.len(), 1);
    let two = table.bytes();
    put(&mut inserter, b"k", 1, &[0; 1000]);
    assert_eq!(table.bytes(), two, "an ignored insert takes no memory");
}

#[test]
fn a_value_of_many_chunks_fits() {
    let (table, mut inserter) = Memtable::new(16 << 10);
    let value = vec![7; 8 << 20];
    put(&mut inserter, b"large", 1, &value);
    put(&mut inserter, b"small", 1, b"s");
    assert_eq!(
        table.get(b"large").map(|cell| cell.value == value),
        Some(true)
    );
    assert_eq!(table.get(b"small").map(|cell| cell.value), Some(&b"s"[..]));
}

#[test]
fn an_iterator_outlives_the_writer_and_the_callers_table() {
    let (table, mut inserter) = Memtable::new(16 << 10);
    for i in 0..100u8 {
        put(&mut inserter, &[i], 1, &[i; 500]);
    }
    let mut iter = table.iter();
    drop(inserter);
    drop(table);
    iter.seek(Bound::Unbounded, Direction::Backward)
        .expect("memory does not fail");
    for i in (0..100u8).rev() {
        let (key, cell) = iter.current().expect("the table is alive");
        assert_eq!((key, cell.value), (&[i][..], &[i; 500][..]));
        iter.advance().expect("memory does not fail");
    }
    assert!(iter.current().is_none());
}

#[test]
fn an_iterator_keeps_the_cell_it_arrived_at() {
    let (table, mut inserter) = Memtable::new(16 << 10);
    put(&mut inserter, b"k", 1, b"old");
    let mut iter = table.iter();
    iter.seek(Bound::Unbounded, Direction::Forward)
        .expect("memory does not fail");
    put(&mut inserter, b"k", 2, b"new");
    assert_eq!(
        iter.current().map(|(_, cell)| cell.value),
        Some(&b"old"[..])
    );
    iter.seek(Bound::Unbounded, Direction::Forward)
        .expect("memory does not fail");
    assert_eq!(
        iter.current().map(|(_, cell)| cell.value),
        Some(&b"new"[..])
    );
}

#[test]
fn writer_table_and_iterators_may_move_between_threads() {
    fn may_move<T: Send>() {}
    fn may_be_shared<T: Sync>() {}
    may_move::<Inserter>();
    may_move::<MemtableIter>();
    may_move::<Arc<Memtable>>();
    may_be_shared::<Memtable>();
}

#[test]
#[should_panic(expected = "insert takes encoded cells")]
fn bytes_that_are_no_cell_are_refused() {
    let (_table, mut inserter) = Memtable::new(0);
    inserter.insert(b"k", b"not a cell");
}

/// One writer and three readers over few keys. Every reader checks that announced records are
/// there, that cells are whole, that a key only gets newer, and that scans are sorted.
#[test]
fn readers_see_what_was_written_before_they_looked() {
    const KEYS: u64 = 64;
    let writes: u64 = if cfg!(miri) { 300 } else { 60_000 };
    let (table, mut inserter) = Memtable::new(64 << 10);
    let announced: [AtomicU64; KEYS as usize] = std::array::from_fn(|_| AtomicU64::new(0));
    let written = AtomicU64::new(0);
    let key = |i: u64| [b"key".as_slice(), &i.to_be_bytes()].concat();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut prng = Prng::new(1);
            for hlc in 1..=writes {
                let i = prng.next_u64() % KEYS;
                put(&mut inserter, &key(i), hlc, &hlc.to_le_bytes());
                announced[i as usize].store(hlc, Ordering::Release);
                written.store(hlc, Ordering::Release);
            }
        });
        for reader in 0..3u64 {
            let (table, announced, written) = (&table, &announced, &written);
            threads.spawn(move || {
                let mut prng = Prng::new(100 + reader);
                let mut last = [0; KEYS as usize];
                while written.load(Ordering::Acquire) < writes {
                    let i = prng.next_u64() % KEYS;
                    let at_least = announced[i as usize].load(Ordering::Acquire);
                    let seen = table.get(&key(i)).map_or(0, |cell| {
                        assert!(cell.is_intact(&key(i)));
                        assert_eq!(cell.value, cell.version.hlc.to_le_bytes());
                        let max = table.version_max().expect("the table is not empty");
                        assert!(cell.version <= max, "{} is above the bound", cell.version);
                        cell.version.hlc
                    });
                    assert!(seen >= at_least.max(last[i as usize]));
                    last[i as usize] = seen;
                    let direction = match i % 2 {
                        0 => Direction::Forward,
                        _ => Direction::Backward,
                    };
                    let shown = scan(table, Bound::Included(&key(i)), direction);
                    assert!(shown.is_sorted_by(|(a, _), (b, _)| match direction {
                        Direction::Forward => a < b,
                        Direction::Backward => a > b,
                    }));
                    assert!(seen == 0 || shown[0].0 == key(i), "a scan missed a key");
                }
            });
        }
    });
    assert_eq!(table.len(), KEYS as usize);
}
