//! A damaged block that may have hidden records that other owners have purged is mended. No record
//! that it hid is seen again.
//!
//! ```text
//! lower table   old old old old old old …       all owners had these
//! upper table    ×      new      ×     …        deletes, which the others have purged since, and values
//! a bit of the upper one flips ─► scrub ─► repaired ─► hole ─► dropped ─► repaired ─► mended
//!     behind every slice, and behind a power cut at every operation: each key reads as the other
//!     owners have it, or as damaged
//! ```
//!
//! Invariants
//! 1. The repair writes only the records of the other owners.
//!
//! Not here: when and by which member a hole is repaired (crate `node`, `repair/`).
//! See: docs/protocol.md, "Damage behind a horizon".

use dendra_base::{Cell, CellRef, Guard, Kind, Prng, Version};
use dendra_engine::check::{FindingKind, check_folder};
use dendra_engine::vfs::Wait;
use dendra_engine::vfs::mem::MemVfs;
use dendra_engine::{
    Batch, Cursor, DamagedSpan, Direction, Engine, Error, Flow, Identity, Lookup, Maintained,
    Maintenance, Options, Progress, Show,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

const CLOCK: u64 = 1 << 60;
const KEYS: u64 = 40;
const COPIES: u8 = 3;
/// Above all versions of the tables.
const HORIZON: u64 = CLOCK + 1_000;
const VALUE: [u8; 90] = [7; 90];

/// The cells that the other owners hold.
type Others = BTreeMap<Vec<u8>, Cell>;

fn key(n: u64) -> Vec<u8> {
    format!("\u{10}k{n:03}").into_bytes()
}

fn plain(hlc: u64) -> Version {
    Version {
        hlc: CLOCK + hlc,
        origin: 1,
        rmw: 0,
    }
}

fn options() -> Options {
    let mut options = Options::for_tests();
    options.level0_tables_trigger = 9;
    options.filter_bits_per_key = 0;
    options
}

fn open(vfs: &MemVfs) -> Result<Engine, Error> {
    let identity = Identity { node: 1, origin: 1 };
    Engine::open(Arc::new(vfs.clone()), options(), identity)
}

fn write(engine: &Engine, key: &[u8], cell: CellRef<'_>) -> Result<(), Error> {
    let mut batch = Batch::new();
    batch
        .push(0, key, &cell, Guard::Newest, 1)
        .expect("the record fits");
    assert!(engine.submit(&mut batch).is_ok(), "the queue is empty");
    engine.commit(&mut Vec::new())
}

fn value(key: &[u8], version: Version) -> CellRef<'static> {
    CellRef {
        copies: COPIES,
        ..CellRef::value(key, version, &VALUE)
    }
}

fn tombstone(key: &[u8], version: Version) -> CellRef<'static> {
    CellRef {
        copies: COPIES,
        ..CellRef::tombstone(key, version)
    }
}

/// Two tables, and the records of the others: of every fourth key the delete is purged there. There
/// are deletes in the lower table, too.
fn tables(engine: &Engine) -> Others {
    let mut others = Others::new();
    for n in 0..KEYS {
        let key = key(n);
        if n % 8 == 7 {
            let gone = tombstone(&key, plain(100 + n));
            write(engine, &key, gone).expect("memory does not fail");
            continue;
        }
        let old = value(&key, plain(100 + n));
        write(engine, &key, old).expect("memory does not fail");
        others.insert(key, old.to_owned());
    }
    engine.close(1).expect("memory does not fail");
    for n in (0..KEYS).step_by(2) {
        let key = key(n);
        let cell = match n % 4 {
            0 => tombstone(&key, plain(200 + n)),
            _ => value(&key, plain(200 + n)),
        };
        write(engine, &key, cell).expect("memory does not fail");
        match cell.kind {
            Kind::Tombstone => others.remove(&key),
            Kind::Value => others.insert(key, cell.to_owned()),
        };
    }
    engine.close(1).expect("memory does not fail");
    others
}

fn table_names(vfs: &MemVfs) -> Vec<String> {
    let names = vfs.names().into_iter();
    names.filter(|name| name.ends_with(".tbl")).collect()
}

/// Such a folder, with a damaged block in the upper table.
fn damaged() -> (MemVfs, Others) {
    let vfs = MemVfs::new();
    let others = tables(&open(&vfs).expect("a new folder"));
    let names = table_names(&vfs);
    assert_eq!(names.len(), 2);
    vfs.flip_bit(&names[1], 8);
    // A power cut leaves the synced bytes.
    (vfs.process_crash_image(), others)
}

fn found(engine: &Engine, key: &[u8]) -> Result<Option<Cell>, Error> {
    match engine.get(key, Wait::Block, |cell| cell.to_owned())? {
        Lookup::Cell(cell) => Ok(Some(cell).filter(|cell| cell.kind == Kind::Value)),
        Lookup::Nothing => Ok(None),
        Lookup::WouldBlock => unreachable!("it was told to wait"),
    }
}

/// How many keys read as damaged; all others must read as the other owners have them.
fn unread(engine: &Engine, others: &Others) -> usize {
    let mut damaged = 0;
    for n in 0..KEYS {
        let key = key(n);
        match found(engine, &key) {
            Ok(cell) => assert_eq!(cell.as_ref(), others.get(&key), "key {n}"),
            Err(Error::Damaged { .. }) => damaged += 1,
            Err(error) => panic!("key {n}: {error}"),
        }
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let by_key = scan(engine, others, direction, 1);
        let at_once = scan(engine, others, direction, usize::MAX);
        assert_eq!(by_key, at_once, "damage hides no record in front of it");
    }
    damaged
}

/// A scan shows no record that is not there, and leaves none out up to where it fails. How many it
/// showed, and where it stands when it failed.
fn scan(
    engine: &Engine,
    others: &Others,
    direction: Direction,
    budget_bytes: usize,
) -> (usize, Option<Bound<Vec<u8>>>) {
    let show = Show::Live { now_ms: 1 };
    let space = (Bound::Included(vec![0x10]), Bound::Excluded(vec![0x11]));
    let mut cursor = Cursor::new(space.0, space.1, direction, show);
    let mut seen = Vec::new();
    let end = loop {
        let page = engine.scan(&mut cursor, budget_bytes, |key, cell| {
            seen.push((key.to_vec(), cell.to_owned()));
            Flow::Continue
        });
        match page {
            Ok(Progress::More) => {}
            end => break end,
        }
    };
    let there = others.iter().map(|(key, cell)| (key.clone(), cell.clone()));
    let mut there: Vec<(Vec<u8>, Cell)> = there.collect();
    if direction == Direction::Backward {
        there.reverse();
    }
    let is_cut = end.is_err();
    match end {
        Ok(_) => assert_eq!(seen, there),
        Err(Error::Damaged { .. }) => assert_eq!(seen, there[..seen.len()]),
        Err(error) => panic!("{error}"),
    }
    let position = cursor.position().map(<[u8]>::to_vec);
    (seen.len(), is_cut.then_some(position))
}

/// Writes the records of the other owners in the span.
fn fetch(engine: &Engine, others: &Others, span: &DamagedSpan) -> Result<(), Error> {
    for (key, cell) in others.range(span.first.clone()..=span.last.clone()) {
        write(engine, key, cell.as_ref())?;
    }
    Ok(())
}

fn scrub(engine: &Engine) -> Result<(), Error> {
    while engine.scrub(1, 1_000, 1 << 20)?.state == Maintained::More {}
    Ok(())
}

/// Does all background work that there is, and looks at all keys after each slice.
fn settle(engine: &Engine, others: &Others) -> Result<(), Error> {
    for lane in [Maintenance::Flush, Maintenance::Compact].repeat(4) {
        loop {
            let more = match engine.maintain(lane, 1, 300) {
                Ok(more) => more,
                // A job that met the damaged block: it is tried again, and then set aside.
                Err(Error::Damaged { .. }) => Maintained::More,
                Err(error) => return Err(error),
            };
            unread(engine, others);
            if more == Maintained::Idle {
                break;
            }
        }
    }
    Ok(())
}

/// Repairs each span that is shown as lost, until none is. How many repairs it took.
fn mend(engine: &Engine, others: &Others) -> Result<usize, Error> {
    let mut repairs = 0;
    scrub(engine)?;
    loop {
        settle(engine, others)?;
        let Some(span) = engine.damaged_spans().into_iter().next() else {
            return Ok(repairs);
        };
        assert!(repairs < 20, "{span:?} stays");
        fetch(engine, others, &span)?;
        engine.repaired(&span);
        repairs += 1;
    }
}

fn findings(vfs: &MemVfs) -> Vec<dendra_engine::check::Finding> {
    let report = check_folder(&vfs.process_crash_image());
    report.expect("a folder").findings
}

#[test]
fn a_block_that_may_hide_what_others_have_purged_is_mended_and_nothing_reappears() {
    let (vfs, others) = damaged();
    let engine = open(&vfs).expect("damage in a block keeps no folder closed");
    engine.raise_age_horizon(HORIZON, COPIES);
    assert!(unread(&engine, &others) > 2, "the block has records");
    assert_eq!(mend(&engine, &others).expect("memory does not fail"), 2);
    assert_eq!(unread(&engine, &others), 0);
    assert_eq!(findings(&vfs), []);
    assert_eq!(engine.damaged_tables(), []);
    drop(engine);
    let engine = open(&vfs).expect("it is whole");
    assert_eq!(unread(&engine, &others), 0);
}

#[test]
fn a_check_tells_a_hole_from_damage() {
    let (vfs, others) = damaged();
    let engine = open(&vfs).expect("damage in a block keeps no folder closed");
    engine.raise_age_horizon(HORIZON, COPIES);
    scrub(&engine).expect("memory does not fail");
    let kinds = || -> Vec<FindingKind> { findings(&vfs).iter().map(|it| it.kind).collect() };
    assert_eq!(kinds(), [FindingKind::Damage]);
    let spans = engine.damaged_spans();
    fetch(&engine, &others, &spans[0]).expect("memory does not fail");
    engine.repaired(&spans[0]);
    settle(&engine, &others).expect("memory does not fail");
    assert_eq!(kinds(), [FindingKind::Hole], "its block is gone");
}

#[test]
fn a_power_cut_at_any_operation_shows_nothing_old_and_the_mending_goes_on() {
    let whole = {
        let (vfs, others) = damaged();
        let before = vfs.operations();
        let engine = open(&vfs).expect("it opens");
        engine.raise_age_horizon(HORIZON, COPIES);
        mend(&engine, &others).expect("memory does not fail");
        vfs.operations() - before
    };
    assert!(whole > 50, "{whole} operations");
    for operation in 0..whole {
        let (vfs, others) = damaged();
        vfs.crash_at(vfs.operations() + operation);
        if let Ok(engine) = open(&vfs) {
            engine.raise_age_horizon(HORIZON, COPIES);
            let ended = mend(&engine, &others);
            assert!(ended.is_err(), "operation {operation} is reached");
        }
        for draw in 0..4 {
            let image = vfs.crash_image(&mut Prng::new(4 * operation + draw));
            let engine = open(&image).expect("it opens behind a power cut");
            unread(&engine, &others);
            engine.raise_age_horizon(HORIZON, COPIES);
            mend(&engine, &others).expect("memory does not fail");
            assert_eq!(unread(&engine, &others), 0, "operation {operation}");
            assert_eq!(findings(&image), [], "operation {operation}");
        }
    }
}

/// Up to the hole, and then until all is dropped: the span as it is shown then.
fn dropped(engine: &Engine, others: &Others) -> DamagedSpan {
    scrub(engine).expect("memory does not fail");
    let spans = engine.damaged_spans();
    assert_eq!(spans.len(), 1);
    fetch(engine, others, &spans[0]).expect("memory does not fail");
    engine.repaired(&spans[0]);
    settle(engine, others).expect("memory does not fail");
    let again = engine.damaged_spans();
    assert_eq!(again.len(), 1);
    assert_ne!(again[0].id, spans[0].id, "it wants another repair");
    assert_eq!(again[0].block(), spans[0].block(), "of one block");
    again[0].clone()
}

#[test]
fn a_hole_stays_damaged_over_a_restart_although_the_block_is_gone() {
    let (vfs, others) = damaged();
    let engine = open(&vfs).expect("it opens");
    engine.raise_age_horizon(HORIZON, COPIES);
    let span = dropped(&engine, &others);
    let lost = unread(&engine, &others);
    assert!(lost > 2, "{lost} keys are in the hole");
    assert_eq!(engine.damaged_tables(), [], "the block is gone");
    assert_eq!(findings(&vfs).len(), 1, "a check names the hole");
    drop(engine);
    let engine = open(&vfs).expect("it opens");
    // No horizon is known yet, and no scrub has looked.
    settle(&engine, &others).expect("memory does not fail");
    assert_eq!(unread(&engine, &others), lost);
    assert_eq!(engine.damaged_spans(), std::slice::from_ref(&span));
    // The cells of the others are fetched, and no drop takes them again.
    engine.raise_age_horizon(HORIZON, COPIES);
    fetch(&engine, &others, &span).expect("memory does not fail");
    settle(&engine, &others).expect("memory does not fail");
    engine.repaired(&span);
    settle(&engine, &others).expect("memory does not fail");
    assert_eq!(unread(&engine, &others), 0);
    assert_eq!(engine.damaged_spans(), []);
}

#[test]
fn a_repair_under_an_older_horizon_does_not_count() {
    let (vfs, mut others) = damaged();
    let engine = open(&vfs).expect("it opens");
    // Some of the deletes are older, and others hold the younger ones still.
    engine.raise_age_horizon(CLOCK + 203, COPIES);
    let span = dropped(&engine, &others);
    // The horizon rises, and a value that was too young for the first drop may be a purged one now.
    let late = key(1);
    write(&engine, &late, value(&late, plain(230))).expect("memory does not fail");
    engine.raise_age_horizon(HORIZON, COPIES);
    fetch(&engine, &others, &span).expect("memory does not fail");
    engine.repaired(&span);
    others.remove(&late);
    let again = {
        settle(&engine, &others).expect("memory does not fail");
        engine.damaged_spans()
    };
    assert_eq!(again.len(), 1);
    assert_ne!(again[0].id, span.id);
    assert_eq!(mend(&engine, &others).expect("memory does not fail"), 1);
    assert_eq!(unread(&engine, &others), 0);
}

#[test]
fn without_other_folders_nothing_is_dropped() {
    let drops = |raise: &dyn Fn(&Engine)| {
        let (vfs, others) = damaged();
        let engine = open(&vfs).expect("it opens");
        raise(&engine);
        scrub(&engine).expect("memory does not fail");
        let span = engine.damaged_spans().remove(0);
        fetch(&engine, &others, &span).expect("memory does not fail");
        engine.repaired(&span);
        settle(&engine, &others).expect("memory does not fail");
        engine.damaged_spans() != [span] || engine.damaged_tables().is_empty()
    };
    assert!(!drops(&|engine| engine.raise_purge_horizon(Version::MAX)));
    assert!(!drops(&|engine| engine.raise_age_horizon(HORIZON, 1)));
    assert!(drops(&|engine| engine.raise_age_horizon(HORIZON, 2)));
}

#[test]
fn a_value_that_too_few_others_have_keeps_the_hole_and_is_not_dropped() {
    let vfs = MemVfs::new();
    let engine = open(&vfs).expect("a new folder");
    let rare = key(1);
    let cell = CellRef::value(&rare, plain(50), &VALUE);
    write(&engine, &rare, cell).expect("memory does not fail");
    let mut others = tables(&engine);
    // Its newest version is the one of few copies.
    let cell = CellRef::value(&rare, plain(150), &VALUE);
    write(&engine, &rare, cell).expect("memory does not fail");
    others.insert(rare.clone(), cell.to_owned());
    engine.close(1).expect("memory does not fail");
    vfs.flip_bit(&table_names(&vfs)[1], 8);
    engine.raise_age_horizon(HORIZON, COPIES);
    scrub(&engine).expect("memory does not fail");
    let span = engine.damaged_spans().remove(0);
    engine.repaired(&span);
    for _ in 0..3 {
        settle(&engine, &others).expect("memory does not fail");
        let spans = engine.damaged_spans();
        assert_eq!(spans.len(), 1, "the hole stays");
        engine.repaired(&spans[0]);
    }
    let read = found(&engine, &rare);
    assert!(matches!(read, Err(Error::Damaged { .. })), "{read:?}");
    engine.close(1).expect("memory does not fail");
    let is_there = table_names(&vfs).iter().any(|name| {
        let mut text = Vec::new();
        let dumped = dendra_engine::dump::dump_file(&vfs, name, 100, &mut text);
        dumped.expect("no table is damaged");
        String::from_utf8_lossy(&text).contains(&plain(150).to_string())
    });
    assert!(is_there, "it is in a table");
}

#[test]
fn two_damaged_tables_do_not_wait_for_each_other() {
    let names = table_names(&damaged().0);
    let bytes = damaged().0.file_bytes(&names[0]).expect("it is there");
    let mut with_two_holes = 0;
    for byte in (1..bytes.len()).step_by(23) {
        let (vfs, others) = damaged();
        let engine = open(&vfs).expect("it opens");
        // Any part of the lower table, of the same keys or of others.
        vfs.flip_bit(&names[0], 8 * byte as u64);
        engine.raise_age_horizon(HORIZON, COPIES);
        let repairs = mend(&engine, &others).expect("memory does not fail");
        with_two_holes += usize::from(repairs >= 4);
        assert_eq!(unread(&engine, &others), 0, "byte {byte}");
        assert_eq!(findings(&vfs), [], "byte {byte}");
    }
    assert!(with_two_holes > 3, "{with_two_holes}");
}

/// A folder with one table of values, and the same records at the others.
fn values(engine: &Engine) -> Others {
    let cells = (0..KEYS).map(|n| {
        let cell = value(&key(n), plain(100 + n)).to_owned();
        (key(n), cell)
    });
    let others: Others = cells.collect();
    for (key, cell) in &others {
        write(engine, key, cell.as_ref()).expect("memory does not fail");
    }
    engine.close(1).expect("memory does not fail");
    others
}

/// The repair of one of two damaged blocks of a table waits, over a restart, too.
fn one_of_two_waits(records: fn(&Engine) -> Others, horizon: u64) {
    let vfs = MemVfs::new();
    let others = records(&open(&vfs).expect("a new folder"));
    let name = table_names(&vfs).pop().expect("a table");
    let bytes = vfs.file_bytes(&name).expect("it is listed").len() as u64;
    for byte in [1, bytes * 2 / 5] {
        vfs.flip_bit(&name, 8 * byte);
    }
    let vfs = vfs.process_crash_image();
    let engine = open(&vfs).expect("it opens");
    engine.raise_age_horizon(horizon, COPIES);
    scrub(&engine).expect("memory does not fail");
    let spans = engine.damaged_spans();
    let [first, second] = &spans[..] else {
        panic!("{spans:?}");
    };
    engine.repair_waits(second);
    settle(&engine, &others).expect("memory does not fail");
    assert_eq!(engine.damaged_spans(), spans, "nothing would be better yet");
    fetch(&engine, &others, first).expect("memory does not fail");
    engine.repaired(first);
    settle(&engine, &others).expect("memory does not fail");
    assert_eq!(engine.damaged_tables(), [], "the table is written anew");
    if let Some(again) = engine
        .damaged_spans()
        .iter()
        .find(|it| it.block() == first.block())
    {
        fetch(&engine, &others, again).expect("memory does not fail");
        engine.repaired(again);
        settle(&engine, &others).expect("memory does not fail");
    }
    drop(engine);
    let engine = open(&vfs).expect("it opens");
    engine.raise_age_horizon(horizon, COPIES);
    settle(&engine, &others).expect("memory does not fail");
    let left = engine.damaged_spans();
    let blocks: Vec<u64> = left.iter().map(DamagedSpan::block).collect();
    assert_eq!(blocks, [second.block()], "it stays damaged");
    let of_second = others
        .range(second.first.clone()..=second.last.clone())
        .count();
    assert!(
        unread(&engine, &others) >= of_second,
        "no key of it is absent"
    );
    assert!(of_second > 1);
    mend(&engine, &others).expect("memory does not fail");
    assert_eq!(unread(&engine, &others), 0);
    assert_eq!(findings(&vfs), []);
}

#[test]
fn a_block_that_waits_stops_no_other_block_of_its_table() {
    one_of_two_waits(values, 0);
    one_of_two_waits(values, HORIZON);
    one_of_two_waits(tables, HORIZON);
}

#[test]
fn an_old_record_in_memory_and_one_that_comes_during_the_drop_are_told_apart() {
    let (vfs, mut others) = damaged();
    let engine = open(&vfs).expect("it opens");
    engine.raise_age_horizon(HORIZON, COPIES);
    // The horizon wants a flush of its own: it is over.
    settle(&engine, &others).expect("memory does not fail");
    scrub(&engine).expect("memory does not fail");
    let span = engine.damaged_spans().remove(0);
    // A late copy of a record that was deleted here: the delete hides it, and is lost.
    let hidden = key(0);
    write(&engine, &hidden, value(&hidden, plain(160))).expect("memory does not fail");
    fetch(&engine, &others, &span).expect("memory does not fail");
    engine.repaired(&span);
    settle(&engine, &others).expect("memory does not fail");
    let hole = engine.damaged_spans().remove(0);
    assert_ne!(hole.id, span.id);
    // Another owner writes one that is as old, and has it.
    let fresh = key(4);
    let cell = value(&fresh, plain(161));
    write(&engine, &fresh, cell).expect("memory does not fail");
    others.insert(fresh, cell.to_owned());
    settle(&engine, &others).expect("memory does not fail");
    fetch(&engine, &others, &hole).expect("memory does not fail");
    engine.repaired(&hole);
    settle(&engine, &others).expect("memory does not fail");
    assert_eq!(unread(&engine, &others), 0);
}

#[test]
fn promises_of_a_spent_age_go_with_the_span_and_younger_ones_stay() {
    let vfs = MemVfs::new();
    let engine = open(&vfs).expect("a new folder");
    let promise = |n: u64| format!("\u{2}p{n:03}").into_bytes();
    let record = |key: &[u8], count: u64, born| CellRef {
        born,
        ..CellRef::value(
            key,
            Version {
                hlc: count,
                ..Version::ZERO
            },
            &VALUE,
        )
    };
    for n in 0..KEYS {
        let key = promise(n);
        let born = match n % 2 {
            0 => HORIZON - 1,
            _ => HORIZON + 1,
        };
        write(&engine, &key, record(&key, 1, born)).expect("memory does not fail");
    }
    engine.close(1).expect("memory does not fail");
    for n in 0..KEYS {
        let key = promise(n);
        write(&engine, &key, record(&key, 2, HORIZON + 2)).expect("memory does not fail");
    }
    engine.close(1).expect("memory does not fail");
    vfs.flip_bit(&table_names(&vfs)[1], 8);
    engine.raise_age_horizon(HORIZON, COPIES);
    let none = Others::new();
    assert_eq!(mend(&engine, &none).expect("memory does not fail"), 2);
    let counts: Vec<Option<u64>> = (0..KEYS)
        .map(|n| found(&engine, &promise(n)).expect("nothing is damaged"))
        .map(|cell| cell.map(|cell| cell.version.hlc))
        .collect();
    assert_eq!(counts[..2], [None, Some(1)]);
    assert_eq!(counts.last(), Some(&Some(2)));
}

/// The mark that holds, and whether another one was given.
fn mark(vfs: &MemVfs, engine: &Engine, since: u128) -> (Option<u128>, bool) {
    let path = std::path::PathBuf::from(format!("checkpoint-{}", vfs.operations()));
    let order = dendra_engine::MarkOrder {
        since: vec![since],
        mark: since + 1,
    };
    let marked = engine.checkpoint_since(&MemVfs::new(), &path, 1, &order);
    let marked = marked.expect("memory does not fail");
    let holds = marked.as_ref().and_then(|marked| marked.since);
    (holds, marked.is_some())
}

#[test]
fn a_hole_ends_the_marks_of_backups_and_none_is_given_while_there_is_one() {
    let (vfs, others) = damaged();
    let engine = open(&vfs).expect("damage in a block keeps no folder closed");
    engine.raise_age_horizon(HORIZON, COPIES);
    assert_eq!(mark(&vfs, &engine, 1), (None, true));
    assert_eq!(mark(&vfs, &engine, 2), (Some(2), true));
    let span = dropped(&engine, &others);
    assert_eq!(mark(&vfs, &engine, 3), (None, false));
    fetch(&engine, &others, &span).expect("memory does not fail");
    engine.repaired(&span);
    mend(&engine, &others).expect("memory does not fail");
    assert_eq!(mark(&vfs, &engine, 4), (None, true));
    assert_eq!(mark(&vfs, &engine, 5), (Some(5), true));
}
