//! Shortcuts under eviction: they lead to cached blocks, keep none alive, and hide none from the
//! cache.
//!
//! Not here: the answers of reads (`tests.rs` asks everything twice, so by shortcuts, too).

use super::*;
use crate::table::frame::Handle;
use std::sync::Weak;

const KEYS: u64 = 40_000;
const PARTITION_BYTES: usize = 64 << 10;

fn key(i: u64) -> Vec<u8> {
    format!("\u{10}key-{i:08}").into_bytes()
}

fn cell(i: u64) -> Cell {
    let version = Version {
        hlc: i + 1,
        origin: 0,
        rmw: 0,
    };
    CellRef::value(&key(i), version, &[i as u8; 60]).to_owned()
}

/// A table of about a thousand blocks of 4 KiB.
fn table() -> Table {
    let folder = Folder::default();
    let options = TableOptions {
        partition_bytes: PARTITION_BYTES,
        ..TableOptions::default()
    };
    let model = (0..KEYS).map(|i| (key(i), cell(i))).collect();
    let meta = write(&folder, 1, &options, &model);
    Table::open(&folder, meta).expect("just written")
}

fn read(table: &Table, cache: &BlockCache, i: u64) {
    let (key, newer_than) = (key(i), Version::ZERO);
    let hash = key_hash(&key);
    let found = table.get(cache, &key, hash, newer_than, First::Block, Wait::Block);
    let found = found
        .expect("the table is whole")
        .expect("every key is there");
    assert_eq!(found.cell(), cell(i).as_ref(), "{i}");
}

/// Every place of every pinned guide, with the block at the end of its shortcut.
fn shortcuts(table: &Table) -> Vec<(Handle, Weak<Block>)> {
    let guides = (0..table.top.len()).filter_map(|i| table.pinned(i));
    let places = |guide: &Arc<Guide>| -> Vec<_> {
        let index = &guide.index;
        let place = |i| (index.block(i).0, index.shortcut(i).end());
        (0..index.len()).map(place).collect()
    };
    guides.flat_map(places).collect()
}

#[test]
fn a_shortcut_leads_to_what_the_cache_holds_and_nowhere_else() {
    let table = table();
    let cache = BlockCache::new(1 << 20);
    let mut prng = Prng::new(1);
    for _ in 0..50_000 {
        // A third of the keys: more than the cache holds.
        read(&table, &cache, prng.below(KEYS / 3));
    }
    let all = shortcuts(&table);
    let leading = all.iter().filter(|(_, end)| end.strong_count() > 0);
    assert!(leading.count() > 50, "of {}", all.len());
    for (handle, end) in &all {
        match (end.upgrade(), cache.glance(1, handle.offset)) {
            (Some(block), Some(Cached::Data(cached))) => assert!(Arc::ptr_eq(&block, &cached)),
            (Some(_), _) => panic!("the block at {} is not cached", handle.offset),
            // One thread, so no race: not even the header of a block that is gone is held.
            (None, _) => assert!(Weak::ptr_eq(end, &Weak::new()), "at {}", handle.offset),
        }
    }
    drop(cache);
    assert!(all.iter().all(|(_, end)| end.strong_count() == 0));
}

#[test]
fn what_is_read_by_shortcuts_stays_in_the_cache() {
    let table = table();
    let cache = BlockCache::new(2 << 20);
    let mut prng = Prng::new(2);
    let mut misses_of = |hot: u64, reads: u64| {
        let (mut hot_misses, mut hot_reads) = (0, 0);
        for n in 0..reads {
            let before = cache.counts().misses;
            // Nine of ten to the hot keys, the tenth to all: twice as many as the cache holds, and
            // once only.
            let is_hot = prng.chance(9, 10);
            let i = if is_hot {
                prng.below(hot)
            } else {
                n * 7919 % KEYS
            };
            read(&table, &cache, i);
            if is_hot {
                hot_reads += 1;
                hot_misses += cache.counts().misses - before;
            }
        }
        (hot_misses, hot_reads)
    };
    let hot = KEYS / 4;
    misses_of(hot, 50_000);
    let (misses, reads) = misses_of(hot, 200_000);
    println!("{misses} of {reads} hot reads missed");
    assert!(misses * 100 < reads, "{misses} of {reads}");
}

#[test]
fn where_blocks_are_found_by_shortcuts_the_filter_is_not_asked() {
    let table = table();
    let cache = BlockCache::new(32 << 20);
    let ask_absent = || {
        let before = cache.counts().filter_negatives;
        for i in 0..1000 {
            let mut key = key(i * (KEYS / 1000));
            key.push(b'!');
            let hash = key_hash(&key);
            let found = table.get(&cache, &key, hash, Version::ZERO, First::Block, Wait::Block);
            assert!(found.expect("the table is whole").is_none());
        }
        cache.counts().filter_negatives - before
    };
    assert!(ask_absent() > 950);
    // Loaded, found, and the two that the cache counts: then by shortcut.
    for _ in 0..5 {
        (0..KEYS).for_each(|i| read(&table, &cache, i));
    }
    assert_eq!(ask_absent(), 0, "the tags have said it");
}

#[test]
fn readers_and_evictions_at_once_see_right_values_and_leave_nothing_behind() {
    let table = table();
    let cache = BlockCache::new(1 << 20);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (table, cache) = (&table, &cache);
            scope.spawn(move || {
                let mut prng = Prng::new(seed);
                for _ in 0..20_000 {
                    read(table, cache, prng.below(KEYS / 3));
                }
            });
        }
    });
    assert!(cache.bytes() <= cache.capacity());
    let all = shortcuts(&table);
    let leading = all.iter().filter(|(_, end)| end.strong_count() > 0);
    assert!(leading.count() > 50, "of {}", all.len());
    drop(cache);
    assert!(all.iter().all(|(_, end)| end.strong_count() == 0));
}
