//! Real folders: a released format, checkpoints, a second process, names that are not ours.
//!
//! Invariants
//! 1. The folder under `fixtures/folder-format-1` was written once and is never rewritten.

use crate::support::{IDENTITY, World};
use dendra_base::{Cell, CellRef, Direction, Version};
use dendra_engine::vfs::Wait;
use dendra_engine::vfs::os::OsVfs;
use dendra_engine::{
    Batch, Cursor, Engine, Error, Flow, Guard, Lookup, Options, Progress, Show, Snapshot,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

fn open(dir: &Path) -> Result<Engine, Error> {
    let vfs = OsVfs::open(dir).map_err(|e| Error::io("opening", e))?;
    Engine::open(Arc::new(vfs), fixture_options(), IDENTITY)
}

fn fixture_options() -> Options {
    let mut options = Options::for_tests();
    options.value_bytes_max = 4 << 10;
    options.commit_queue_bytes_max = 8 << 10;
    options.segment_bytes = 12 << 10;
    options
}

/// The records of the fixture: `key-000` to `key-199`, every third deleted, in order.
fn fixture_value(n: u64) -> Option<Vec<u8>> {
    (!n.is_multiple_of(3))
        .then(|| format!("value {n} {}", "x".repeat((n % 50) as usize)).into_bytes())
}

fn write(engine: &Engine, n: u64, hlc: u64, value: Option<&[u8]>) {
    let key = fixture_key(n);
    let version = Version {
        hlc,
        origin: 7,
        rmw: 0,
    };
    let cell = match value {
        Some(value) => CellRef::value(&key, version, value),
        None => CellRef::tombstone(&key, version),
    };
    let mut batch = Batch::new();
    batch
        .push(0, &key, &cell, Guard::Newest, 1)
        .expect("the record fits");
    engine.submit(&mut batch).expect("the queue is empty");
    engine.commit(&mut Vec::new()).expect("the disk works");
}

fn fixture_key(n: u64) -> Vec<u8> {
    format!("\x10key-{n:03}").into_bytes()
}

fn check_fixture(engine: &Engine) {
    for n in 0..200 {
        let key = fixture_key(n);
        let found = engine.get(&key, Wait::Block, |cell| {
            assert!(cell.is_intact(&key));
            cell.is_live(1).then(|| cell.value.to_vec())
        });
        let found = match found.expect("nothing is damaged") {
            Lookup::Cell(value) => value,
            Lookup::Nothing => None,
            Lookup::WouldBlock => panic!("a blocking read does not refuse"),
        };
        assert_eq!(found, fixture_value(n), "key {n}");
    }
}

/// Writes the fixture's content: a part of it ends in tables, a part in the log.
fn fill(engine: &Engine) {
    for n in 0..200 {
        write(
            engine,
            n,
            1000 + n,
            Some(&fixture_value(n).unwrap_or(b"to be deleted".to_vec())),
        );
        if n == 150 {
            engine.close(1).expect("a flush of everything");
        }
    }
    for n in (0..200).step_by(3) {
        write(engine, n, 2000 + n, None);
    }
    engine.seal().expect("the disk works");
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("its entries can be read");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("files can be copied");
    }
}

#[test]
fn a_folder_of_format_1_opens_with_every_record() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/folder-format-1");
    if !fixture.exists() {
        // How it was made, once, by the program that released the format.
        let vfs = OsVfs::open(&fixture).expect("the folder can be made");
        let engine = Engine::open(Arc::new(vfs), fixture_options(), IDENTITY).expect("new");
        fill(&engine);
        panic!("the fixture was missing and has been written again: look at the change");
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    copy_folder(&fixture, dir.path());
    for _ in 0..2 {
        let engine = open(dir.path()).expect("format 1 is read for ever");
        check_fixture(&engine);
        assert_eq!(engine.identity(), IDENTITY);
    }
}

#[test]
fn a_checkpoint_is_a_folder_of_its_own() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (live, copy) = (dir.path().join("live"), dir.path().join("copy"));
    let engine = open(&live).expect("a new folder opens");
    fill(&engine);
    let target = OsVfs::open(&copy).expect("the target can be made");
    engine
        .checkpoint(&target, &copy, 1)
        .expect("links can be made");
    for n in 0..200 {
        write(&engine, n, 3000 + n, Some(b"written after the checkpoint"));
    }
    let snapshot = Snapshot::open(&target).expect("its tables open without a start");
    assert_eq!(snapshot.identity(), IDENTITY);
    let shown = |snapshot: &dyn Fn(&mut Cursor, &mut Vec<(Vec<u8>, Cell)>) -> Progress| {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = Cursor::new(all.0, all.1, Direction::Forward, Show::All);
        let mut seen = Vec::new();
        while snapshot(&mut cursor, &mut seen) == Progress::More {}
        seen
    };
    let of_snapshot = shown(&|cursor, seen| {
        let visit = |key: &[u8], cell: CellRef<'_>| {
            seen.push((key.to_vec(), cell.to_owned()));
            Flow::Continue
        };
        snapshot.scan(cursor, 1 << 10, visit).expect("it reads")
    });
    drop(engine);
    let copy = open(&copy).expect("the checkpoint opens");
    check_fixture(&copy);
    let of_copy = shown(&|cursor, seen| {
        let visit = |key: &[u8], cell: CellRef<'_>| {
            seen.push((key.to_vec(), cell.to_owned()));
            Flow::Continue
        };
        copy.scan(cursor, 1 << 10, visit).expect("it reads")
    });
    assert!(!of_copy.is_empty() && of_snapshot == of_copy);
    assert!(
        snapshot.hlc()
            >= of_copy
                .iter()
                .map(|(_, c)| c.version.hlc)
                .max()
                .unwrap_or(0)
    );
}

#[test]
fn a_folder_that_holds_something_else_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(dir.path().join("thesis.tex"), b"ten years").expect("files can be written");
    let error = open(dir.path()).err().expect("it is not ours");
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    assert_eq!(
        std::fs::read(dir.path().join("thesis.tex")).expect("it is there"),
        b"ten years"
    );
}

#[test]
fn a_second_opener_is_refused_while_the_first_lives() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let first = open(dir.path()).expect("a new folder opens");
    let error = open(dir.path()).err().expect("one process per folder");
    assert!(error.to_string().contains("in use"), "{error}");
    drop(first);
    open(dir.path()).expect("the lock goes with its holder");
}

#[test]
fn a_world_on_a_real_disk_agrees_with_its_twin() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let vfs = Arc::new(OsVfs::open(dir.path()).expect("the folder can be made"));
    let mut world = World::new(vfs, Options::for_tests(), 21);
    for _ in 0..60 {
        world.step_writes(8).expect("the disk works");
        for lane in [
            dendra_engine::Maintenance::Flush,
            dendra_engine::Maintenance::Compact,
        ] {
            world.maintain(lane, 16 << 10).expect("the disk works");
        }
    }
    world.check_all_keys();
    world.check_scan();
    world = world.reopen();
    world.check_all_keys();
}

#[test]
fn a_lock_that_is_no_file_is_refused_at_once_with_the_way_out() {
    for what in ["a folder", "a pipe"] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let lock = dir.path().join("LOCK");
        match what {
            "a folder" => std::fs::create_dir(&lock).expect("a new name"),
            _ => {
                // By a call: a child would hold copies of other tests' locks until it runs.
                let mode = Mode::RUSR | Mode::WUSR;
                mknodat(CWD, &lock, FileType::Fifo, mode, 0).expect("a new name");
            }
        }
        let error = open(dir.path()).err().expect("it is no lock").to_string();
        assert!(
            error.contains("LOCK is not a plain file: move it away"),
            "{what}: {error}"
        );
    }
}

#[test]
fn a_manifest_that_was_taken_away_is_named_with_the_way_out() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    drop(open(dir.path()).expect("a new folder"));
    let is_manifest =
        |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("manifest-");
    let entries = std::fs::read_dir(dir.path()).expect("a folder");
    for entry in entries
        .map(|entry| entry.expect("it is read"))
        .filter(is_manifest)
    {
        std::fs::remove_file(entry.path()).expect("it is there");
    }
    let error = open(dir.path()).err().expect("it is gone").to_string();
    assert!(
        error.contains("CURRENT names it and it is not there"),
        "{error}"
    );
    assert!(error.contains("restore the folder from a copy"), "{error}");
}
