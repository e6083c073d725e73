//! How a read was found: each part of the engine tells its step, and the reads of `get` agree.
//!
//! Not here: the document that clients get (crate `server`).

use crate::support::steps::{open, options, settle, submit, version, write};
use dendra_base::{CellRef, Kind};
use dendra_engine::vfs::{MemVfs, Vfs, Wait};
use dendra_engine::{
    Batch, BlockSource, EXPLAINED_TABLES_MAX, Engine, Explained, FilterVerdict, FoundIn, Guard,
    LevelLook, Lookup, Maintenance, TableAnswer, TablePart,
};
use std::sync::Arc;

const KEY: &[u8] = b"\x10k";

fn folder() -> (MemVfs, Arc<dyn Vfs>) {
    let below = MemVfs::new();
    let vfs: Arc<dyn Vfs> = Arc::new(below.clone());
    (below, vfs)
}

/// Explains a read, which finds the version that `get` finds.
fn explained(engine: &Engine, key: &[u8]) -> Explained {
    let (found, explained) = engine.explained(key, Wait::Block, |cell| cell.version);
    let found = found.expect("nothing is damaged");
    let plain = engine.get(key, Wait::Block, |cell| cell.version);
    assert_eq!(found, plain.expect("nothing is damaged"));
    let newest = explained.newest.map(|(_, cell)| cell.version);
    match found {
        Lookup::Cell(version) => assert_eq!(newest, Some(version)),
        Lookup::Nothing => assert_eq!(newest, None),
        Lookup::WouldBlock => panic!("a read that may wait does"),
    }
    explained
}

fn place(explained: &Explained) -> Option<FoundIn> {
    explained.newest.map(|(place, _)| place)
}

/// Writes keys on both sides of `KEY` until the memtable is sealed; returns the next clock value.
fn seal(engine: &Engine, mut hlc: u64) -> u64 {
    let sealed = explained(engine, KEY).memtables.len();
    while explained(engine, KEY).memtables.len() == sealed {
        let side = if hlc.is_multiple_of(2) { "a" } else { "z" };
        let key = format!("\x10{side}{hlc:06}");
        write(engine, key.as_bytes(), hlc, Some(&[7; 900]));
        hlc += 1;
    }
    hlc
}

#[test]
fn a_key_is_explained_from_the_memtable_down_to_the_last_level() {
    let (_, vfs) = folder();
    let engine = open(&vfs, &options());
    assert_eq!(explained(&engine, KEY).memtables, [None]);
    write(&engine, KEY, 1, Some(b"value"));
    let active = explained(&engine, KEY);
    let (at, cell) = active.newest.expect("it is there");
    assert_eq!(at, FoundIn::Memtable(0));
    assert_eq!((cell.version, cell.kind), (version(1), Kind::Value));
    assert_eq!((cell.value_bytes, cell.expiry_ms), (5, None));
    assert_eq!(active.memtables, [Some(cell)]);
    assert!(active.tables.is_empty() && active.levels.is_empty());

    let hlc = seal(&engine, 2);
    let sealed = explained(&engine, KEY);
    assert_eq!(place(&sealed), Some(FoundIn::Memtable(1)));
    assert_eq!(sealed.memtables, [None, Some(cell)]);

    settle(&engine, Maintenance::Flush);
    let (_, first) = engine.explained(KEY, Wait::Block, |_| ());
    let [table] = &first.tables[..] else {
        panic!("there is one table: {first:?}")
    };
    let (level, id) = (0, table.id);
    assert_eq!(place(&first), Some(FoundIn::Table { level, id }));
    let of_level = LevelLook {
        level: 0,
        tables: 1,
        in_range: 1,
    };
    assert_eq!(first.levels, [of_level]);
    assert_eq!(table.answer, TableAnswer::Found(version(1)));
    assert_eq!(table.filter, FilterVerdict::Maybe);
    let parts: Vec<_> = table.blocks.iter().map(|b| (b.part, b.from)).collect();
    let file = BlockSource::File;
    assert_eq!(parts, [(TablePart::Guide, file), (TablePart::Data, file)]);
    let bytes: u64 = table.blocks.iter().map(|b| u64::from(b.file_bytes)).sum();
    assert!(first.file_bytes() == bytes && bytes > 0);
    // What was read is in memory now.
    let again = explained(&engine, KEY);
    let from: Vec<_> = again.tables[0].blocks.iter().map(|b| b.from).collect();
    assert!(from.len() == 2 && !from.contains(&file), "{from:?}");
    assert_eq!(again.file_bytes(), 0);

    seal(&engine, hlc);
    settle(&engine, Maintenance::Flush);
    settle(&engine, Maintenance::Compact);
    let deep = explained(&engine, KEY);
    let Some(FoundIn::Table { level, .. }) = place(&deep) else {
        panic!("it is in a table: {deep:?}")
    };
    assert!(level > 0, "{deep:?}");
    assert_eq!(deep.tables.len(), 1, "the table that has it, and no other");
    assert_eq!(deep.tables[0].level, level);
    assert_eq!((deep.tables_left_out, deep.memtables.len()), (0, 1));
}

#[test]
fn an_absent_key_is_explained_by_a_filter_or_by_ranges() {
    let (_, vfs) = folder();
    let engine = open(&vfs, &options());
    seal(&engine, 1);
    settle(&engine, Maintenance::Flush);
    let asked = (0..50).map(|n| explained(&engine, format!("\x10m{n}").as_bytes()));
    let asked: Vec<_> = asked.collect();
    let by_filter = asked
        .iter()
        .find(|explained| explained.tables[0].filter == FilterVerdict::Absent);
    let by_filter = by_filter.expect("a filter of ten bits a key says so of most");
    let table = &by_filter.tables[0];
    assert_eq!(table.answer, TableAnswer::Absent);
    assert!(
        table
            .blocks
            .iter()
            .all(|block| block.part == TablePart::Guide)
    );
    assert_eq!(by_filter.newest, None);

    let by_range = explained(&engine, b"\x10zz");
    assert!(by_range.tables.is_empty() && by_range.newest.is_none());
    let of_level = LevelLook {
        level: 0,
        tables: 1,
        in_range: 0,
    };
    assert_eq!(by_range.levels, [of_level]);
}

#[test]
fn a_tombstone_and_a_value_that_ends_are_shown_above_an_older_table() {
    let (_, vfs) = folder();
    let engine = open(&vfs, &options());
    write(&engine, KEY, 1, Some(b"value"));
    let hlc = seal(&engine, 2);
    settle(&engine, Maintenance::Flush);
    write(&engine, KEY, hlc, None);
    let deleted = explained(&engine, KEY);
    let (at, cell) = deleted.newest.expect("the tombstone is there");
    assert_eq!((at, cell.kind), (FoundIn::Memtable(0), Kind::Tombstone));
    assert_eq!(deleted.tables[0].answer, TableAnswer::Older);
    assert!(deleted.tables[0].blocks.is_empty(), "it is not read");
    assert_eq!(deleted.tables[0].filter, FilterVerdict::NotAsked);

    let mut batch = Batch::new();
    let mut ends = CellRef::value(KEY, version(hlc + 1), b"for a while");
    ends.expiry_ms = Some(5);
    let pushed = batch.push(1, KEY, &ends, Guard::Newest, 1);
    pushed.expect("the record fits");
    submit(&engine, batch);
    engine.commit(&mut Vec::new()).expect("the disk works");
    let (_, cell) = explained(&engine, KEY).newest.expect("it is there");
    assert_eq!((cell.kind, cell.expiry_ms), (Kind::Value, Some(5)));
    assert_eq!(cell.version, version(hlc + 1));
}

#[test]
fn an_explanation_lists_so_many_tables_and_counts_the_rest() {
    let (_, vfs) = folder();
    // No compaction runs: each flush leaves one more table in level 0.
    let engine = open(&vfs, &options());
    let tables = EXPLAINED_TABLES_MAX + 3;
    let mut hlc = 1;
    for _ in 0..tables {
        hlc = seal(&engine, hlc);
        settle(&engine, Maintenance::Flush);
    }
    let many = explained(&engine, KEY);
    assert_eq!(many.tables.len(), EXPLAINED_TABLES_MAX);
    assert_eq!(many.tables_left_out, 3);
    assert_eq!(
        (many.levels[0].tables, many.levels[0].in_range),
        (tables, tables)
    );
}

#[test]
fn a_damaged_table_is_named_although_the_read_fails() {
    let (below, vfs) = folder();
    let engine = open(&vfs, &options());
    write(&engine, KEY, 1, Some(b"value"));
    seal(&engine, 2);
    settle(&engine, Maintenance::Flush);
    let (_, before) = engine.explained(b"\x10zz", Wait::Block, |_| ());
    assert!(before.tables.is_empty(), "nothing is read yet");
    for name in below.names().iter().filter(|name| name.ends_with(".tbl")) {
        let bytes = below.file_bytes(name).expect("it is there").len() as u64;
        let bits = (0..bytes).step_by(200).map(|byte| byte * 8);
        bits.for_each(|bit| below.flip_bit(name, bit));
    }
    let (found, explained) = engine.explained(KEY, Wait::Block, |_| ());
    let error = found.expect_err("its block is damaged");
    assert!(error.to_string().contains("damaged"), "{error}");
    let answers: Vec<_> = explained.tables.iter().map(|table| table.answer).collect();
    assert_eq!(answers, [TableAnswer::Damaged, TableAnswer::Damaged]);
    assert_eq!((explained.levels[0].in_range, explained.newest), (1, None));
}
