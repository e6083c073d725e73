//! Tables against a `BTreeMap`: drawn records, drawn options, every question.
//!
//! Not here: damage (`damage.rs`), the pieces on their own (their own files).

use super::testing::Folder;
use super::*;
use crate::cache::{BlockCache, Cached, FillCache};
use crate::legal;
use crate::source::Source;
use crate::vfs::Wait;
use dendra_base::{Cell, CellRef, Direction, Prng, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

mod damage;
mod format;
mod shortcuts;

pub(super) type Model = BTreeMap<Vec<u8>, Cell>;

/// Records with long and short shared prefixes, of all kinds.
pub(super) fn draw_model(seed: u64, records: usize, value_bytes_max: u64) -> Model {
    let mut prng = Prng::new(seed);
    let mut model = Model::new();
    for i in 0..records {
        let key = match prng.below(4) {
            0 => format!("\u{10}key-{:08}", prng.below(records as u64 * 2)).into_bytes(),
            1 => format!("\u{10}a/long/shared/prefix/{:x}", prng.next_u64()).into_bytes(),
            2 => (0..=prng.below(6)).map(|_| prng.below(3) as u8).collect(),
            _ => {
                let mut key = vec![0xff; 1 + prng.below(3) as usize];
                key.extend_from_slice(&prng.next_u64().to_be_bytes()[..prng.below(9) as usize]);
                key
            }
        };
        let version = Version {
            hlc: 1 + prng.below(1000),
            origin: prng.below(3) as u32,
            rmw: i as u32,
        };
        let mut value = vec![0; prng.below(value_bytes_max) as usize];
        // Half of the values compress.
        if prng.chance(1, 2) {
            prng.fill(&mut value);
        }
        let cell = if prng.chance(1, 5) {
            CellRef::tombstone(&key, version)
        } else {
            let mut cell = CellRef::value(&key, version, &value);
            cell.expiry_ms = prng.chance(1, 4).then(|| prng.below(1 << 40));
            cell
        };
        model.insert(key, cell.to_owned());
    }
    model
}

pub(super) fn write(folder: &Folder, id: u64, options: &TableOptions, model: &Model) -> TableMeta {
    let mut writer = TableWriter::create(folder, id, options).expect("the folder takes files");
    for (key, cell) in model {
        writer.add(key, &cell.as_ref()).expect("memory takes bytes");
    }
    writer.finish().expect("memory takes bytes")
}

fn any_options() -> impl Strategy<Value = TableOptions> {
    (
        prop::sample::select(vec![256usize, 512, 4096, 65536]),
        prop::sample::select(vec![1usize, 2048, 16384, 1 << 20]),
        prop::sample::select(vec![0usize, 1, 10, 30]),
        prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]),
    )
        .prop_map(
            |(block_bytes, partition_bytes, filter_bits_per_key, compression)| TableOptions {
                block_bytes,
                partition_bytes,
                filter_bits_per_key,
                compression,
            },
        )
}

fn get(table: &Table, cache: &BlockCache, key: &[u8], newer_than: Version) -> Option<Cell> {
    let ask = |first| {
        table
            .get(cache, key, key_hash(key), newer_than, first, Wait::Block)
            .expect("the table is whole")
            .map(|found| found.cell().to_owned())
    };
    let found = ask(First::Filter);
    assert_eq!(ask(First::Block), found, "whatever is asked first");
    found
}

pub(super) fn collect(source: &mut dyn Source) -> crate::Result<Vec<(Vec<u8>, Cell)>> {
    let mut out = Vec::new();
    while let Some((key, cell)) = source.current() {
        out.push((key.to_vec(), cell.to_owned()));
        source.advance()?;
    }
    Ok(out)
}

fn expected(model: &Model, bound: Bound<&[u8]>, direction: Direction) -> Vec<(Vec<u8>, Cell)> {
    let pair = |(k, c): (&Vec<u8>, &Cell)| (k.clone(), c.clone());
    match direction {
        Direction::Forward => model
            .range::<[u8], _>((bound, Bound::Unbounded))
            .map(pair)
            .collect(),
        Direction::Backward => model
            .range::<[u8], _>((Bound::Unbounded, bound))
            .rev()
            .map(pair)
            .collect(),
    }
}

/// Keys that are there, keys next to them, and keys beyond both ends.
fn probes(model: &Model, prng: &mut Prng) -> Vec<Vec<u8>> {
    let mut out = vec![vec![0], vec![], vec![0xff; 40]];
    for key in model.keys() {
        if prng.chance(1, 1 + model.len() as u64 / 12) {
            out.push(key.clone());
            out.push([key.as_slice(), &[0]].concat());
            out.push(key[..key.len() - 1].to_vec());
        }
    }
    out
}

fn check_scans(source: &mut dyn Source, model: &Model, probes: &[Vec<u8>]) {
    for direction in [Direction::Forward, Direction::Backward] {
        for probe in probes {
            for bound in [
                Bound::Included(probe.as_slice()),
                Bound::Excluded(probe.as_slice()),
                Bound::Unbounded,
            ] {
                source.seek(bound, direction).expect("the table is whole");
                let found = collect(source).expect("the table is whole");
                assert_eq!(
                    found,
                    expected(model, bound, direction),
                    "{bound:?} {direction:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(legal::cases(96))]

    #[test]
    fn any_legal_table_is_read_as_it_was_written(
        options in any_options(), records in legal::stored_records(1..=24),
    ) {
        let model: Model = records.into_iter().collect();
        let folder = Folder::default();
        let meta = write(&folder, 7, &options, &model);
        let unknown = Table::open_unknown(&folder, &file_name(7))?;
        prop_assert_eq!(unknown.meta(), &meta);
        let table = Arc::new(Table::open(&folder, meta)?);
        let mut wanted = model.iter();
        table.verify(|key, cell| {
            let (wanted_key, wanted_cell) = wanted.next().expect("no record is invented");
            assert!(cell.is_intact(key));
            assert!(key == wanted_key && cell == wanted_cell.as_ref());
            Ok(())
        })?;
        prop_assert_eq!(wanted.next(), None);
        let cache = BlockCache::new(64 << 20);
        for (key, cell) in &model {
            prop_assert!(get(&table, &cache, key, Version::ZERO).as_ref() == Some(cell));
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let mut iter = TableIter::new(Arc::clone(&table), ReadMode::Ahead(1 << 10));
            iter.seek(Bound::Unbounded, direction)?;
            let found = collect(&mut iter)?;
            prop_assert!(found == expected(&model, Bound::Unbounded, direction));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_table_answers_like_a_sorted_map(
        options in any_options(),
        seed in any::<u64>(),
        records in 1usize..400,
        value_bytes_max in prop::sample::select(vec![1u64, 60, 900]),
    ) {
        let model = draw_model(seed, records, value_bytes_max);
        let folder = Folder::default();
        let meta = write(&folder, 7, &options, &model);
        let name = file_name(7);
        prop_assert_eq!(meta.bytes, folder.bytes(&name).len() as u64);
        prop_assert_eq!(meta.records, model.len() as u64);
        let table = Arc::new(Table::open(&folder, meta.clone()).expect("just written"));
        let unknown = Table::open_unknown(&folder, &name).expect("just written");
        prop_assert_eq!(unknown.meta(), &meta);

        let mut seen = Vec::new();
        table.verify(|key, cell| {
            assert!(cell.is_intact(key));
            seen.push((key.to_vec(), cell.to_owned()));
            Ok(())
        }).expect("just written");
        prop_assert_eq!(seen, expected(&model, Bound::Unbounded, Direction::Forward));

        let cache = Arc::new(BlockCache::new(1 << 20));
        let mut prng = Prng::new(seed ^ 1);
        let probes = probes(&model, &mut prng);
        for key in model.keys().chain(&probes) {
            assert_eq!(get(&table, &cache, key, Version::ZERO).as_ref(), model.get(key));
            let newer_than = Version { hlc: prng.below(1000), ..Version::ZERO };
            let wanted = model.get(key).filter(|cell| {
                cell.version > newer_than || newer_than == Version::ZERO
            });
            assert_eq!(get(&table, &cache, key, newer_than).as_ref(), wanted);
        }

        for reading in [
            ReadMode::Cached(Arc::clone(&cache), FillCache::Yes),
            ReadMode::Cached(Arc::new(BlockCache::new(0)), FillCache::No),
            ReadMode::Ahead(1 << 10),
        ] {
            check_scans(&mut TableIter::new(Arc::clone(&table), reading), &model, &probes);
        }
    }

    #[test]
    fn a_level_scans_like_a_sorted_map(
        options in any_options(),
        seed in any::<u64>(),
        tables in 1usize..6,
    ) {
        let model = draw_model(seed, 150, 60);
        let folder = Folder::default();
        let pairs: Vec<_> = model.iter().map(|(k, c)| (k.clone(), c.clone())).collect();
        let level: Vec<Arc<Table>> = pairs
            .chunks(pairs.len().div_ceil(tables))
            .enumerate()
            .map(|(i, chunk)| {
                let part = chunk.iter().cloned().collect();
                let meta = write(&folder, i as u64 + 1, &options, &part);
                Arc::new(Table::open(&folder, meta).expect("just written"))
            })
            .collect();
        let probes = probes(&model, &mut Prng::new(seed ^ 1));
        let cache = Arc::new(BlockCache::new(1 << 20));
        for reading in [ReadMode::Cached(cache, FillCache::Yes), ReadMode::Ahead(1 << 10)] {
            check_scans(&mut LevelIter::new(level.clone(), reading), &model, &probes);
        }
    }

    #[test]
    fn a_meta_reads_back(seed in any::<u64>(), extra in prop::collection::vec(any::<u8>(), 0..4)) {
        let model = draw_model(seed, 9, 9);
        let meta = write(&Folder::default(), seed, &TableOptions::default(), &model);
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        let len = bytes.len();
        bytes.extend_from_slice(&extra);
        let mut rest = bytes.as_slice();
        prop_assert_eq!(TableMeta::decode(&mut rest), Some(meta));
        prop_assert_eq!(rest, extra.as_slice());
        prop_assert_eq!(TableMeta::decode(&mut &bytes[..len - 1]), None);
    }
}

#[test]
fn an_empty_level_stands_on_nothing() {
    let mut level = LevelIter::new(Vec::new(), ReadMode::Ahead(1 << 10));
    for direction in [Direction::Forward, Direction::Backward] {
        for bound in [Bound::Unbounded, Bound::Included(&b"k"[..])] {
            level.seek(bound, direction).expect("nothing is read");
            assert!(level.current().is_none());
        }
    }
}

#[test]
fn values_larger_than_any_buffer_come_back() {
    let mut model = draw_model(3, 20, 100);
    for (key, len) in [(b"big-a", 300_000), (b"big-b", 8 << 20)] {
        let mut value = vec![0; len];
        Prng::new(len as u64).fill(&mut value);
        let version = Version {
            hlc: 5,
            ..Version::ZERO
        };
        model.insert(
            key.to_vec(),
            CellRef::value(key, version, &value).to_owned(),
        );
    }
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let options = TableOptions {
            compression,
            ..TableOptions::default()
        };
        let folder = Folder::default();
        let meta = write(&folder, 1, &options, &model);
        let table = Arc::new(Table::open(&folder, meta).expect("just written"));
        let cache = BlockCache::new(1 << 20);
        for (key, cell) in &model {
            assert_eq!(get(&table, &cache, key, Version::ZERO).as_ref(), Some(cell));
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let mut iter = TableIter::new(Arc::clone(&table), ReadMode::Ahead(1 << 10));
            iter.seek(Bound::Unbounded, direction).expect("whole");
            let found = collect(&mut iter).expect("whole");
            assert_eq!(found, expected(&model, Bound::Unbounded, direction));
        }
        assert!(cache.bytes() <= cache.capacity());
    }
}

#[test]
fn a_read_that_would_block_says_so_and_keeps_nothing() {
    let model = draw_model(4, 300, 60);
    let folder = Folder::default();
    let meta = write(&folder, 1, &TableOptions::default(), &model);
    let table = Table::open(&folder, meta).expect("just written");
    let cache = BlockCache::new(1 << 20);
    let key = model.keys().next().expect("drawn").clone();
    let hash = key_hash(&key);
    let ask = |wait| table.get(&cache, &key, hash, Version::ZERO, First::Filter, wait);
    folder.set_cold(true);
    let refused = ask(Wait::Never).expect_err("the disk is cold");
    assert!(refused.would_block(), "{refused}");
    assert_eq!(cache.bytes(), 0);
    assert_eq!(cache.counts().would_block, 1);
    assert!(ask(Wait::Block).expect("whole").is_some());
    // Everything is in the cache now: the disk is not asked.
    assert!(ask(Wait::Never).expect("cached").is_some());
    assert_eq!(cache.counts().would_block, 1);
    assert_eq!(cache.counts().hits, 1, "the guide is pinned");
}

#[test]
fn an_old_table_is_skipped_without_a_read() {
    let model = draw_model(5, 300, 60);
    let folder = Folder::default();
    let meta = write(&folder, 1, &TableOptions::default(), &model);
    let newest = meta.version_max;
    let table = Table::open(&folder, meta).expect("just written");
    let cache = BlockCache::new(1 << 20);
    for key in model.keys() {
        assert_eq!(get(&table, &cache, key, newest), None);
    }
    assert_eq!(cache.counts().misses, 0);
}

#[test]
fn an_absent_key_costs_one_filter() {
    let model = draw_model(6, 300, 60);
    let folder = Folder::default();
    let meta = write(&folder, 1, &TableOptions::default(), &model);
    let table = Table::open(&folder, meta).expect("just written");
    let cache = BlockCache::new(1 << 20);
    let absent: Vec<Vec<u8>> = (0..1000)
        .map(|i| format!("\u{10}key-absent-{i}").into_bytes())
        .collect();
    for key in &absent {
        let hash = key_hash(key);
        let found = table.get(&cache, key, hash, Version::ZERO, First::Filter, Wait::Block);
        assert!(found.expect("the table is whole").is_none());
    }
    let counts = cache.counts();
    assert!(counts.filter_negatives > 950, "{counts:?}");
    // One guide is read, and then pinned.
    assert_eq!(
        counts.misses + counts.hits,
        1 + (1000 - counts.filter_negatives)
    );
}

#[test]
fn memory_of_an_open_table_is_its_top_index() {
    let model = draw_model(8, 4000, 60);
    let folder = Folder::default();
    let options = TableOptions {
        partition_bytes: 16 << 10,
        ..TableOptions::default()
    };
    let meta = write(&folder, 1, &options, &model);
    let bytes = meta.bytes;
    let table = Table::open(&folder, meta).expect("just written");
    assert!(table.top.len() > 5);
    assert!(
        (table.pinned_bytes() as u64) < bytes / 50,
        "{}",
        table.pinned_bytes()
    );
}

#[test]
fn a_description_names_every_part() {
    let model = draw_model(9, 100, 60);
    let folder = Folder::default();
    write(
        &folder,
        1,
        &TableOptions {
            block_bytes: 512,
            ..TableOptions::default()
        },
        &model,
    );
    let mut out = Vec::new();
    describe(&folder, &file_name(1), &mut out, 5).expect("just written");
    let text = String::from_utf8(out).expect("descriptions are text");
    for part in ["records ", "partition 0: filter", "  block ", "version_max"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(text.lines().skip_while(|l| *l != "records").count(), 6);
}

#[test]
#[should_panic(expected = "rise strictly")]
fn a_writer_refuses_keys_that_do_not_rise() {
    let mut writer =
        TableWriter::create(&Folder::default(), 1, &TableOptions::default()).expect("memory");
    let cell = CellRef::value(b"k", Version::MAX, b"v");
    for _ in 0..2 {
        writer.add(b"k", &cell).expect("memory");
    }
}
