//! Space comes back: a workload that uses no key twice keeps the folder at one size.
//!
//! ```text
//! for each of 100,000 keys:   create if absent ─► write if that version ─► delete if that version
//! the folder                  grows to some size, and then stays there
//! ```
//!
//! Invariants
//! 1. The writers never stop, so no step waits for a pause.
//!
//! Not here: clusters, whose horizon rises when all members confirm (crate `dendra`,
//! `tests/forget.rs`; docs/protocol.md, "Horizons").

use dendra_base::{CellRef, Condition, Version};
use dendra_engine::vfs::{MemVfs, Vfs};
use dendra_engine::{
    Batch, Engine, Guard, Identity, Lookup, Maintained, Maintenance, Options, WriteOutcome,
};
use std::sync::Arc;

const KEYS: u64 = 100_000;
/// Keys that are alive at once.
const ALIVE: u64 = 500;
/// Writes of one commit.
const BATCH: usize = 64;

#[derive(Clone, Copy, Debug)]
enum Names {
    /// As ids that are drawn.
    Spread,
    /// As ids that tell when they were made.
    Rising,
}

struct Folder {
    vfs: MemVfs,
    engine: Engine,
    batch: Batch,
    hlc: u64,
    applied: u64,
}

impl Folder {
    fn new() -> Folder {
        let vfs = MemVfs::new();
        let identity = Identity { node: 1, origin: 1 };
        let door: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let engine = Engine::open(door, Options::for_tests(), identity).expect("it opens");
        // As a node by itself does: its records are all there are.
        engine.raise_purge_horizon(Version::MAX);
        Folder {
            vfs,
            engine,
            batch: Batch::new(),
            hlc: 0,
            applied: 0,
        }
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>, condition: Condition) -> Version {
        self.hlc += 1;
        let version = Version {
            hlc: self.hlc,
            origin: 1,
            rmw: 0,
        };
        let cell = match value {
            Some(value) => CellRef::value(key, version, value),
            None => CellRef::tombstone(key, version),
        };
        let guard = Guard::If(condition);
        self.batch
            .push(self.hlc, key, &cell, guard, 1)
            .expect("it fits");
        if self.batch.len() >= BATCH {
            self.commit();
        }
        version
    }

    fn commit(&mut self) {
        assert!(self.engine.submit(&mut self.batch).is_ok(), "there is room");
        let mut done = Vec::new();
        self.engine.commit(&mut done).expect("the disk works");
        for (_, outcome) in done {
            assert!(
                matches!(outcome, WriteOutcome::Applied { .. }),
                "{outcome:?}"
            );
            self.applied += 1;
        }
        for lane in [Maintenance::Flush, Maintenance::Compact] {
            while self.engine.maintain(lane, 1, 64 << 10).expect("it works") == Maintained::More {}
        }
    }

    /// Tables and log. The manifest is rewritten beyond 4 MiB, which this run does not reach.
    fn bytes(&self) -> u64 {
        let mut names = self.vfs.names();
        names.retain(|name| !name.starts_with("manifest-"));
        let sizes = names.iter().filter_map(|name| self.vfs.file_bytes(name));
        sizes.map(|bytes| bytes.len() as u64).sum()
    }
}

fn key(names: Names, number: u64) -> Vec<u8> {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let name = match names {
        Names::Spread => format!("\x10{spread:016x}"),
        Names::Rising => format!("\x10{number:016x}"),
    };
    name.into_bytes()
}

fn stays_at_one_size(names: Names) {
    let mut folder = Folder::new();
    let mut versions = Vec::new();
    let mut sizes = Vec::new();
    for number in 0..KEYS {
        let created = folder.write(&key(names, number), Some(b"held by a"), Condition::Absent);
        let next = Condition::Matches(created);
        versions.push(folder.write(&key(names, number), Some(b"held by b"), next));
        if let Some(old) = number.checked_sub(ALIVE) {
            let last = Condition::Matches(versions[old as usize]);
            folder.write(&key(names, old), None, last);
        }
        if (number + 1) % (KEYS / 20) == 0 {
            sizes.push(folder.bytes());
        }
    }
    println!("{names:?}: {sizes:?}");
    assert!(folder.applied + BATCH as u64 > 3 * (KEYS - ALIVE));
    // One in twenty of the keys is enough to reach the size at which it stays.
    let (early, late) = (sizes[..10].iter().max(), sizes[10..].iter().max());
    let (early, late) = (early.expect("ten"), late.expect("ten"));
    assert!(late * 10 <= early * 13, "{late} bytes behind {early}");
    let gone = key(names, KEYS - ALIVE - BATCH as u64);
    let found = folder
        .engine
        .get(&gone, dendra_engine::vfs::Wait::Block, |cell| cell.kind);
    assert!(!matches!(found, Ok(Lookup::Cell(dendra_base::Kind::Value))));
}

#[test]
fn keys_that_are_never_used_twice_leave_nothing_behind() {
    stays_at_one_size(Names::Spread);
}

#[test]
fn keys_that_rise_leave_nothing_behind() {
    stays_at_one_size(Names::Rising);
}

#[test]
fn tables_tell_their_bytes_before_compression() {
    let mut folder = Folder::new();
    let value = [b'v'; 100];
    for number in 0..BATCH as u64 {
        folder.write(&key(Names::Rising, number), Some(&value), Condition::Absent);
    }
    folder.engine.close(1).expect("the disk works");
    let stats = folder.engine.stats();
    let compressed: u64 = stats.levels.iter().map(|(_, bytes)| bytes).sum();
    let values = (BATCH * value.len()) as u64;
    assert!(compressed < values / 2, "{compressed}");
    let raw = stats.table_raw_bytes;
    assert!((values..values * 2).contains(&raw), "{raw}");
}
