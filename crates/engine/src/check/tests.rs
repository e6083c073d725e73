//! A check that says "whole" is a promise: tampered folders either get a finding or still answer
//! every read.

use super::*;
use crate::vfs::{MemVfs, Wait};
use crate::{Batch, Durability, Engine, Guard, Lookup, Maintained, Maintenance, Options};
use dendra_base::{CellRef, Key, Version};
use std::collections::BTreeMap;

const NOW_MS: u64 = 1_000;
const OWNER: Identity = Identity { node: 7, origin: 7 };

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options {
        durability: Durability::Sync,
        ..Options::for_tests()
    }
}

fn write(engine: &Engine, model: &mut Model, key: &[u8], value: &[u8], hlc: u64) {
    let stored = Key::user(key);
    let version = Version {
        hlc,
        origin: 7,
        rmw: 0,
    };
    let cell = CellRef::value(stored.as_stored(), version, value);
    let mut batch = Batch::new();
    batch
        .push(0, stored.as_stored(), &cell, Guard::Newest, NOW_MS)
        .expect("the record fits");
    engine.submit(&mut batch).expect("the queue has room");
    engine.commit(&mut Vec::new()).expect("the disk is fine");
    model.insert(stored.as_stored().to_vec(), value.to_vec());
}

/// A folder with tables and a log, as a killed process leaves it, and its records.
fn folder() -> (MemVfs, Model) {
    let vfs = MemVfs::new();
    let mut model = Model::new();
    let engine = Engine::open(Arc::new(vfs.clone()), options(), OWNER).expect("it is new");
    for n in 0..100u64 {
        let value = [n as u8; 400];
        write(
            &engine,
            &mut model,
            format!("key {n:03}").as_bytes(),
            &value,
            n + 1,
        );
        while engine
            .maintain(Maintenance::Flush, NOW_MS, 1 << 20)
            .expect("the disk is fine")
            == Maintained::More
        {}
    }
    engine.seal().expect("the disk is fine");
    let image = vfs.process_crash_image();
    (image, model)
}

/// Does the folder open and answer every read rightly?
fn answers(vfs: &MemVfs, model: &Model) -> bool {
    let Ok(engine) = Engine::open(Arc::new(vfs.clone()), options(), OWNER) else {
        return false;
    };
    model.iter().all(|(key, value)| {
        let found = engine.get(key, Wait::Block, |cell| {
            cell.is_intact(key) && cell.value == value.as_slice()
        });
        matches!(found, Ok(Lookup::Cell(true)))
    })
}

fn copy(vfs: &MemVfs) -> MemVfs {
    vfs.process_crash_image()
}

#[test]
fn a_whole_folder_has_no_findings_and_is_counted() {
    let (vfs, model) = folder();
    let report = check_folder(&vfs).expect("it is a folder of ours");
    assert_eq!(report.findings, []);
    assert!(
        report.summary.tables > 0 && report.summary.log_records > 0,
        "{report:?}"
    );
    assert!(report.summary.records + report.summary.log_records >= model.len() as u64);
    assert!(answers(&vfs, &model));
}

#[test]
fn an_empty_folder_is_whole_and_a_foreign_one_is_refused() {
    let vfs = MemVfs::new();
    let report = check_folder(&vfs).expect("it is empty");
    assert_eq!((report.findings.len(), report.notes.len()), (0, 1));
    vfs.install("thesis.doc", b"important");
    assert!(matches!(check_folder(&vfs), Err(Error::Folder { .. })));
}

#[test]
fn a_folder_without_findings_answers_every_read_whatever_was_flipped() {
    let (vfs, model) = folder();
    let mut found = 0;
    for name in vfs.names() {
        let len = vfs.file_bytes(&name).expect("it is listed").len() as u64;
        // Behind this, log segments are zeros that were never used.
        for byte in (0..len.min(20 << 10)).step_by(if len > 4 << 10 { 37 } else { 1 }) {
            let tampered = copy(&vfs);
            tampered.flip_bit(&name, byte * 8 + byte % 8);
            let is_clean = match check_folder(&tampered) {
                Ok(report) => report.findings.is_empty(),
                Err(_) => false,
            };
            if !is_clean {
                found += 1;
            } else {
                assert!(
                    answers(&tampered, &model),
                    "{name}: byte {byte} was flipped"
                );
            }
        }
    }
    assert!(found > 500, "only {found} flips were found");
}

/// The files that a start and a check need, by kind.
fn needed_by_kind(vfs: &MemVfs) -> Vec<(&'static str, Vec<String>)> {
    let of = |is_it: fn(&str) -> bool| vfs.names().into_iter().filter(|n| is_it(n)).collect();
    let kinds: [(&str, fn(&str) -> bool); 4] = [
        ("table", |n| table::id_of_file_name(n).is_some()),
        ("log", |n| wal::parse_segment_name(n).is_some()),
        ("manifest", |n| manifest::id_of(n).is_some()),
        ("CURRENT", |n| n == manifest::CURRENT),
    ];
    let by_kind: Vec<(&str, Vec<String>)> =
        kinds.iter().map(|(kind, is)| (*kind, of(*is))).collect();
    assert!(by_kind.iter().all(|(_, names)| !names.is_empty()));
    by_kind
}

/// Is the change to `file` found by a check, and refused by a start?
fn assert_noticed(tampered: &MemVfs, file: &str, what: &str) {
    let report = check_folder(tampered).expect("it is a folder of ours");
    assert!(
        report.findings.iter().any(|found| found.file == file),
        "{file} {what}: {report:?}"
    );
    let vfs = Arc::new(copy(tampered));
    match Engine::open(vfs, options(), OWNER).map(drop) {
        Err(Error::Damaged { .. }) => {}
        other => panic!("{file} {what}: {other:?}"),
    }
}

#[test]
fn a_file_of_any_kind_that_is_emptied_or_cut_is_noticed() {
    let (vfs, _) = folder();
    for (kind, names) in needed_by_kind(&vfs) {
        for name in names {
            let whole = vfs.file_bytes(&name).expect("it is listed");
            let step = if whole.len() > 4 << 10 { 64 } else { 1 };
            for len in (0..whole.len()).step_by(step) {
                let tampered = copy(&vfs);
                tampered.install(&name, &whole[..len]);
                assert_noticed(&tampered, &name, &format!("({kind}) cut at {len}"));
            }
        }
    }
}

#[test]
fn a_file_of_any_kind_that_is_missing_or_another_one_is_noticed() {
    let (vfs, model) = folder();
    for (kind, names) in needed_by_kind(&vfs) {
        for (at, name) in names.iter().enumerate() {
            let tampered = copy(&vfs);
            tampered.remove(name).expect("it is there");
            let id = wal::parse_segment_name(name);
            if at + 1 == names.len()
                && id.is_some_and(|id| matches!(wal::is_unused(&vfs, id), Ok(true)))
            {
                // The last segment was never used.
                assert!(answers(&tampered, &model));
            } else {
                assert_noticed(&tampered, name, &format!("({kind}) missing"));
            }
            for second in &names[at + 1..] {
                let tampered = copy(&vfs);
                let bytes = |name: &str| vfs.file_bytes(name).expect("it is listed");
                tampered.install(name, &bytes(second));
                tampered.install(second, &bytes(name));
                assert_noticed(&tampered, name, &format!("({kind}) swapped with {second}"));
            }
        }
    }
}

#[test]
fn an_older_copy_of_a_manifest_or_of_current_is_noticed() {
    let vfs = MemVfs::new();
    let mut model = Model::new();
    let engine = Engine::open(Arc::new(vfs.clone()), options(), OWNER).expect("it is new");
    let mut older = Vec::new();
    for n in 0..4u64 {
        write(&engine, &mut model, &[n as u8], &[7; 100], n + 1);
        engine.close(NOW_MS).expect("the disk is fine");
        older.push(copy(&vfs));
    }
    let now = older.pop().expect("four were made");
    let manifest = manifest::file_name(
        manifest::current(&now, &now.names())
            .expect("it is whole")
            .expect("it is there")
            .id,
    );
    for image in &older {
        let tampered = copy(&now);
        let bytes = image.file_bytes(&manifest).expect("it is the same file");
        tampered.install(&manifest, &bytes);
        assert_noticed(&tampered, &manifest, "is an older copy");
    }
    assert!(answers(&now, &model));
}

#[test]
fn each_damaged_file_is_named() {
    let (vfs, _) = folder();
    let tables: Vec<String> = vfs
        .names()
        .into_iter()
        .filter(|name| table::id_of_file_name(name).is_some())
        .collect();
    assert!(tables.len() >= 2, "{tables:?}");
    vfs.flip_bit(&tables[0], 8 * 40);
    vfs.remove(&tables[1]).expect("it is there");
    let report = check_folder(&vfs).expect("it is a folder of ours");
    let files: Vec<&str> = report.findings.iter().map(|f| f.file.as_str()).collect();
    assert_eq!(files, [tables[0].as_str(), &tables[1]], "{report:?}");
}

#[test]
fn a_missing_current_beside_data_is_damage() {
    let (vfs, _) = folder();
    vfs.remove(manifest::CURRENT).expect("it is there");
    let report = check_folder(&vfs).expect("it is a folder of ours");
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].file, manifest::CURRENT);
}

#[test]
fn leftovers_are_notes_and_what_is_not_ours_is_named() {
    let (vfs, _) = folder();
    vfs.install("ffffffffffffff00.tbl", b"half a table");
    vfs.install("thesis.doc", b"important");
    let report = check_folder(&vfs).expect("it is a folder of ours");
    assert_eq!(report.findings, []);
    let notes = report.notes.join("\n");
    assert!(
        notes.contains("ffffffffffffff00.tbl is not needed"),
        "{notes}"
    );
    assert_eq!(report.foreign, ["thesis.doc"]);
}

#[test]
fn every_file_of_a_folder_can_be_dumped() {
    let (vfs, _) = folder();
    for name in vfs.names().iter().filter(|name| *name != "LOCK") {
        let mut text = Vec::new();
        crate::dump::dump_file(&vfs, name, 1000, &mut text).expect("it is whole");
        let text = String::from_utf8(text).expect("it is text");
        let expected = match name {
            n if n.ends_with(".tbl") => "key\\ 0",
            n if n.ends_with(".log") => "unused from byte",
            n if n.starts_with("manifest") => "node 00000000000000000000000000000007",
            _ => "manifest-",
        };
        let expected = expected.replace('\\', "");
        assert!(text.contains(&expected), "{name}: {text}");
    }
    let refused = crate::dump::dump_file(&vfs, "LOCK", 1, &mut Vec::new());
    assert!(matches!(refused, Err(Error::Unusable { .. })));
}

/// The findings about one file.
fn of<'a>(report: &'a Report, file: &str) -> Vec<&'a Finding> {
    report.findings.iter().filter(|f| f.file == file).collect()
}

#[test]
fn every_damaged_block_of_a_table_is_listed_and_nothing_else_of_it() {
    let (vfs, _) = folder();
    let is_table = |name: &String| table::id_of_file_name(name).is_some();
    let name = vfs
        .names()
        .into_iter()
        .find(is_table)
        .expect("there are tables");
    let table = Table::open_unknown(&vfs, &name).expect("it is whole");
    let mut blocks = table.block_offsets().expect("it is whole");
    assert!(blocks.len() > 4, "{blocks:?}");
    // Neighbours, and the last one.
    blocks = vec![blocks[0], blocks[1], blocks[blocks.len() - 1]];
    for offset in &blocks {
        vfs.flip_bit(&name, 8 * (offset + 1));
    }
    let report = check_folder(&vfs).expect("it is a folder of ours");
    let offsets: Vec<u64> = of(&report, &name).iter().map(|f| f.offset).collect();
    assert_eq!(offsets, blocks, "{report:?}");
    assert_eq!(report.findings.len(), 3, "{report:?}");
}

#[test]
fn a_table_with_many_damaged_blocks_names_twenty_and_counts_the_rest() {
    let mut check = FolderCheck {
        vfs: &MemVfs::new(),
        report: Report::default(),
    };
    let spots = |count: u64| (0..count).map(|i| (i, "bad".to_owned())).collect();
    check.spots("a", spots(20));
    check.spots("b", spots(25));
    let report = check.report;
    assert_eq!(of(&report, "a").len(), 20);
    let of_b = of(&report, "b");
    assert_eq!(of_b.len(), 21);
    assert_eq!(of_b[20].offset, 20);
    assert_eq!(of_b[20].reason, "5 more damaged spots from here on");
}

#[test]
fn every_damaged_batch_of_the_log_is_listed() {
    let vfs = MemVfs::new();
    let mut model = Model::new();
    let engine = Engine::open(Arc::new(vfs.clone()), options(), OWNER).expect("it is new");
    for n in 0..8u64 {
        write(&engine, &mut model, &[n as u8], &[7; 100], n + 1);
    }
    engine.seal().expect("the disk is fine");
    let image = vfs.process_crash_image();
    let is_log = |name: &String| wal::parse_segment_name(name).is_some();
    let logs = image.names().into_iter().filter(is_log);
    let used = |name: &String| {
        let id = wal::parse_segment_name(name).expect("it is a segment");
        let segment = wal::Segment::read(&image, id).expect("it is whole");
        let starts: Vec<u64> = segment.batches().map(|b| b.offset as u64).collect();
        starts
    };
    let (name, starts) = logs
        .map(|name| (used(&name), name))
        .map(|(starts, name)| (name, starts))
        .find(|(_, starts)| starts.len() > 7)
        .expect("one segment holds all writes");
    // The second batch loses a record, the fourth its head.
    image.flip_bit(&name, 8 * (starts[1] + 90));
    image.flip_bit(&name, 8 * (starts[3] + 1));
    let report = check_folder(&image).expect("it is a folder of ours");
    let offsets: Vec<u64> = of(&report, &name).iter().map(|f| f.offset).collect();
    assert_eq!(offsets, [starts[1], starts[3]], "{report:?}");
}
