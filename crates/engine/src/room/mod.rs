//! Room on the disk: how much there is, how much must stay, and how it comes back.
//!
//! ```text
//! free ≥ reserve                 writes go on
//! free < reserve                 full: no new values, until free ≥ 9/8 of the reserve
//!   deletes come                 flushed within seconds, not when the memtable is full
//!   a merge needs more room      one table at a time is written anew without what deletes hide
//!   a flush has no room          a log segment that was made ahead of use goes for it
//! ```
//!
//! The reserve is for what still has to be written when values are refused: one memtable, two log
//! segments, and one table anew (`Options::reserve_wanted`). Each of them gives room back before
//! the next one begins.
//!
//! Invariants
//! 1. No space waits for traffic that the lack of space forbids.
//! 2. A merge does not begin when its inputs are larger than the room beside the part of the
//!    reserve that flushes and the log may need.
//! 3. A table is written anew at most once for each set of newer tables above it.
//!
//! Not here: the steps (`tend.rs`), the choice of tables (`compact/pick/scarce.rs`).
//! See: docs/operating.md, section "A full disk".

mod tend;

pub(crate) use tend::InRoom;

use crate::options::Options;
use crate::vfs::DiskSpace;
use crate::waits::hold;
use dendra_base::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A disk that was full has room again with so much more than the reserve: one part in so many.
const AGAIN_SHARE: u64 = 8;
/// On a full disk, deletes are flushed this long after those before them.
const SEAL_PAUSE_MS: u64 = 3_000;
/// On a disk with room, a few deletes are flushed this long after those before them.
const SEAL_REST_MS: u64 = 600_000;
/// Deletes are flushed at the first rest of writes, from one in so many records in tables on.
const DELETES_SHARE: u64 = 16;
/// A table in which values expire is written anew once in so long.
const EXPIRY_PAUSE_MS: u64 = 60_000;

/// The last attempt to get room back from a table.
#[derive(Clone, Copy)]
struct Tried {
    newest_above: Version,
    at_ms: u64,
}

/// When deletes were flushed for their room.
#[derive(Default)]
struct SealsForRoom {
    last_ms: Option<u64>,
    /// The memtable that was active when the disk filled is sealed.
    is_done: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct DiskRoom {
    free_bytes: AtomicU64,
    total_bytes: AtomicU64,
    is_full: AtomicBool,
    is_cramped: AtomicBool,
    seals: Mutex<SealsForRoom>,
    tried: Mutex<BTreeMap<u64, Tried>>,
}

impl DiskRoom {
    /// The disk said so.
    pub(crate) fn looked(&self, space: DiskSpace, options: &Options) {
        self.total_bytes.store(space.total_bytes, Ordering::Relaxed);
        self.free_bytes.store(space.free_bytes, Ordering::Relaxed);
        let again = if self.is_full() {
            options.reserve_bytes / AGAIN_SHARE
        } else {
            0
        };
        let is_full = space.free_bytes < options.reserve_bytes + again;
        self.is_full.store(is_full, Ordering::Relaxed);
        if !is_full {
            hold(&self.seals).is_done = false;
        }
    }

    /// So many bytes were taken since the last look.
    pub(crate) fn took(&self, bytes: u64, options: &Options) {
        let space = DiskSpace {
            free_bytes: self.free_bytes().saturating_sub(bytes),
            total_bytes: self.total_bytes(),
        };
        if space.total_bytes > 0 {
            self.looked(space, options);
        }
    }

    /// A call found no room.
    pub(crate) fn note_full(&self) {
        self.is_full.store(true, Ordering::Relaxed);
    }

    /// Are values refused?
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Is there no room for the next compaction, nor for a smaller one?
    pub(crate) fn is_cramped(&self) -> bool {
        self.is_cramped.load(Ordering::Relaxed)
    }

    fn set_cramped(&self, is_cramped: bool) {
        self.is_cramped.store(is_cramped, Ordering::Relaxed);
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that a merge may take: not those that flushes and the log may need meanwhile.
    fn for_merges(&self, options: &Options) -> u64 {
        let kept = options
            .reserve_bytes
            .saturating_sub(options.table_bytes as u64);
        self.free_bytes().saturating_sub(kept)
    }

    /// Is a rewrite of this table worth another try?
    fn is_untried(&self, table: u64, newest_above: Version, expires: bool, now_ms: u64) -> bool {
        let tried = hold(&self.tried);
        tried.get(&table).is_none_or(|last| {
            let is_over = now_ms.abs_diff(last.at_ms) >= EXPIRY_PAUSE_MS;
            newest_above > last.newest_above || (expires && is_over)
        })
    }

    /// Notes that these tables were written anew, or were tried to be. `live` = all that are left.
    fn note_tried(
        &self,
        tables: impl Iterator<Item = u64>,
        newest_above: Version,
        now_ms: u64,
        live: &BTreeSet<u64>,
    ) {
        let mut tried = hold(&self.tried);
        tried.retain(|id, _| live.contains(id));
        let note = Tried {
            newest_above,
            at_ms: now_ms,
        };
        tried.extend(tables.map(|id| (id, note)));
    }

    /// Is the active memtable to be flushed for the room that its records give back?
    fn wants_seal(&self, active: &ActiveMemtable, now_ms: u64) -> bool {
        let seals = hold(&self.seals);
        let has_rested = |ms: u64| {
            seals
                .last_ms
                .is_none_or(|last_ms| now_ms.abs_diff(last_ms) >= ms)
        };
        if self.is_full() {
            // The last bytes are for deletes.
            let is_first = !seals.is_done && (active.has_room || active.tombstones > 0);
            is_first || (active.tombstones > 0 && has_rested(SEAL_PAUSE_MS))
        } else {
            let is_many = active.tombstones * DELETES_SHARE >= active.records_in_tables;
            let is_due = is_many || has_rested(SEAL_REST_MS);
            active.is_quiet && active.tombstones > 0 && is_due
        }
    }

    fn sealed(&self, now_ms: u64) {
        let mut seals = hold(&self.seals);
        seals.last_ms = Some(now_ms);
        seals.is_done = self.is_full();
    }
}

/// Counts of a memtable that is not empty, and of the tables below it.
struct ActiveMemtable {
    tombstones: u64,
    records_in_tables: u64,
    /// The disk has room for a table of it.
    has_room: bool,
    /// No write came for a while.
    is_quiet: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let mut options = Options::for_tests();
        options.reserve_bytes = 800;
        options
    }

    fn look(room: &DiskRoom, free_bytes: u64) -> bool {
        let space = DiskSpace {
            free_bytes,
            total_bytes: 10_000,
        };
        room.looked(space, &options());
        room.is_full()
    }

    #[test]
    fn a_full_disk_has_room_again_an_eighth_above_the_reserve() {
        let room = DiskRoom::default();
        assert!(!look(&room, 800));
        assert!(look(&room, 799));
        assert!(look(&room, 899), "it does not flap");
        assert!(!look(&room, 900));
        assert!(!look(&room, 800));
        room.took(1, &options());
        assert!(room.is_full());
    }

    #[test]
    fn a_full_disk_seals_what_is_there_at_once_and_deletes_every_few_seconds() {
        let room = DiskRoom::default();
        let with = |tombstones, is_quiet| ActiveMemtable {
            tombstones,
            records_in_tables: 100_000,
            has_room: tombstones == 0,
            is_quiet,
        };
        assert!(!room.wants_seal(&with(9, false), 1), "there is room");
        assert!(room.wants_seal(&with(9, true), 1), "the first ones");
        room.sealed(1);
        assert!(!room.wants_seal(&with(9, true), 2), "they are few");
        assert!(room.wants_seal(&with(9, true), 1 + SEAL_REST_MS));
        assert!(room.wants_seal(&with(6_250, true), 2), "they are many");
        look(&room, 0);
        let cramped = ActiveMemtable {
            has_room: false,
            ..with(0, false)
        };
        assert!(!room.wants_seal(&cramped, 3));
        assert!(room.wants_seal(&with(0, false), 3));
        room.sealed(3);
        assert!(!room.wants_seal(&with(0, true), 3 + SEAL_REST_MS));
        assert!(!room.wants_seal(&with(1, false), 2 + SEAL_PAUSE_MS));
        assert!(room.wants_seal(&with(1, false), 3 + SEAL_PAUSE_MS));
    }

    #[test]
    fn a_table_is_tried_again_for_newer_tables_and_for_values_that_expire() {
        let room = DiskRoom::default();
        let at = |hlc| Version {
            hlc,
            ..Version::ZERO
        };
        assert!(room.is_untried(7, at(9), false, 1));
        room.note_tried([7].into_iter(), at(9), 1, &BTreeSet::from([7]));
        assert!(!room.is_untried(7, at(9), false, 1 + EXPIRY_PAUSE_MS));
        assert!(room.is_untried(7, at(10), false, 1));
        assert!(room.is_untried(7, at(9), true, 1 + EXPIRY_PAUSE_MS));
        room.note_tried([8].into_iter(), at(9), 1, &BTreeSet::from([8]));
        assert!(room.is_untried(7, at(9), false, 1), "it is gone");
    }
}
