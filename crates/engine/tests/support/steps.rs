//! Small steps of an engine that tests take one by one: its options are small, and the disk works.
//!
//! Not here: drawn operations (`mod.rs`).

use super::IDENTITY;
use dendra_base::{CellRef, Version};
use dendra_engine::vfs::{MemVfs, Vfs, Wait};
use dendra_engine::{Batch, Engine, Guard, Lookup, Maintained, Maintenance, Options, Submitted};
use std::sync::Arc;

pub(crate) fn options() -> Options {
    let mut options = Options::for_tests();
    options.memtable_bytes = 8 << 10;
    options.segment_bytes = 64 << 10;
    options.level0_tables_trigger = 2;
    options
}

pub(crate) fn open(vfs: &Arc<dyn Vfs>, options: &Options) -> Engine {
    Engine::open(Arc::clone(vfs), options.clone(), IDENTITY).expect("the folder opens")
}

pub(crate) fn version(hlc: u64) -> Version {
    Version {
        hlc,
        origin: 7,
        rmw: 0,
    }
}

pub(crate) fn one(token: u64, key: &[u8], hlc: u64, value: Option<&[u8]>, guard: Guard) -> Batch {
    let mut batch = Batch::new();
    let cell = match value {
        Some(value) => CellRef::value(key, version(hlc), value),
        None => CellRef::tombstone(key, version(hlc)),
    };
    batch
        .push(token, key, &cell, guard, 1)
        .expect("the record fits");
    batch
}

pub(crate) fn submit(engine: &Engine, mut batch: Batch) -> Submitted {
    engine.submit(&mut batch).expect("the queue has room")
}

pub(crate) fn write(engine: &Engine, key: &[u8], hlc: u64, value: Option<&[u8]>) {
    submit(engine, one(0, key, hlc, value, Guard::Newest));
    engine.commit(&mut Vec::new()).expect("the disk works");
}

/// Bytes of all files of a folder.
pub(crate) fn bytes_of(vfs: &MemVfs) -> u64 {
    let names = vfs.names();
    let sizes = names.iter().filter_map(|name| vfs.file_bytes(name));
    sizes.map(|bytes| bytes.len() as u64).sum()
}

pub(crate) fn settle(engine: &Engine, lane: Maintenance) {
    while engine
        .maintain(lane, 1, usize::MAX)
        .expect("the disk works")
        == Maintained::More
    {}
}

pub(crate) fn is_live(engine: &Engine, key: &[u8]) -> bool {
    let found = engine.get(key, Wait::Block, |cell| cell.is_live(1));
    matches!(found.expect("nothing is damaged"), Lookup::Cell(true))
}
