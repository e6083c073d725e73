//! The notes of a folder that belong to the steward of its process.
//!
//! Invariants
//! 1. A note that cannot be read is none that is missing.
//!
//! Not here: when they are written (`home.rs`, `losses.rs`) and read (`start.rs`).
//! See: crates/server/src/disk/notes.rs.

use crate::store::{PageRange, Store, StoreWrite};
use dendra_base::{CellRef, Guard, Key, Space, Version};
use dendra_node::step::StoreFailure;
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::membership::identity::{EPOCH_PREFIX, epoch_key};

/// The losses that were accepted at a member.
pub(super) const LOSSES_KEY: &[u8] = b"accepted losses";

/// Epochs of a folder from `first` on; `None` when they cannot be read.
pub(super) fn epochs(store: &Store, first: u64, most: usize) -> Option<Vec<EpochRecord>> {
    let mut behind = EPOCH_PREFIX.to_vec();
    if let Some(last) = behind.last_mut() {
        *last += 1;
    }
    let mut range = PageRange {
        start: Key::new(Space::Meta, &epoch_key(first)),
        end: Some(Key::new(Space::Meta, &behind)),
        is_reverse: false,
        bytes: 1 << 16,
    };
    let mut found = Vec::new();
    loop {
        let (records, next) = store.page(&range).ok()?;
        for (_, cell) in records {
            found.push(EpochRecord::decode(&cell.value).ok()?);
            if found.len() == most {
                return Some(found);
            }
        }
        match next {
            Some(next) => range.start = next,
            None => return Some(found),
        }
    }
}

/// Reads records one by one where a block is damaged: a page of them may touch it. All of them up
/// to `known`.
pub(super) fn one_by_one(store: &Store, first: u64, known: u64) -> Option<Vec<EpochRecord>> {
    let mut found = Vec::new();
    for epoch in first..=known {
        match store.read(&Key::new(Space::Meta, &epoch_key(epoch))) {
            Ok(Some(cell)) => found.push(EpochRecord::decode(&cell.value).ok()?),
            Ok(None) | Err(StoreFailure::Damaged) => {}
            Err(_) => return None,
        }
    }
    Some(found)
}

/// A note of the node itself.
pub(super) fn note(key: &[u8], value: &[u8], hlc: u64, origin: u32) -> StoreWrite {
    let key = Key::new(Space::Meta, key);
    let version = Version {
        hlc,
        origin,
        rmw: 0,
    };
    let cell = CellRef::value(key.as_stored(), version, value).to_owned();
    let guard = Guard::Newest;
    StoreWrite { key, cell, guard }
}
