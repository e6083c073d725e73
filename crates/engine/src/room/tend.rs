//! Steps that look at the disk's room and get some back.
//!
//! ```text
//! flush lane    look ─► flush, or a spare goes for it ─► spares as room allows ─► seal for room
//! compact lane  look ─► the usual plan, if it fits ─► a table anew ─► less of level 0 ─► cramped
//! ```
//!
//! Invariants
//! 1. Each step takes less room than there is, or gives its files back when it meets the end of it.
//!
//! Not here: when a memtable is worth a flush (`mod.rs`), the jobs (`compact/run.rs`).

use super::ActiveMemtable;
use crate::compact::pick::Plan;
use crate::compact::pick::scarce::{Reclaim, pick_level0_within, pick_reclaim, room_for};
use crate::engine::Engine;
use crate::lanes::CompactJob;
use crate::pressure::SEALED_MAX;
use crate::segments::SPARES_TARGET;
use crate::table::TableMeta;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::io;

/// Beside a log segment the manifest and the folder itself need room.
const SLACK_BYTES: u64 = 64 << 10;

/// A merge that begins where room may be short.
pub(crate) enum InRoom {
    /// Merge of the usual kind.
    Plan(Plan),
    /// One table is written anew, for its room.
    Reclaim(Reclaim),
}

impl Engine {
    /// Asks the disk for its room, for `pressure`. A flush and a compaction do it, too.
    pub fn look_at_disk(&self) -> Result<()> {
        let space = self
            .vfs
            .room()
            .map_err(|e| Error::io("asking for room on the disk", e))?;
        self.room.looked(space, &self.options);
        Ok(())
    }

    pub(crate) fn note_full_disk(&self, error: &Error) {
        if error.is_no_space() {
            self.room.note_full();
        }
    }

    /// The size of the next log segment: where room is short, one that takes any batch will do.
    pub(crate) fn next_segment_bytes(&self) -> usize {
        let usual = self.options.segment_bytes;
        if self.room.is_full() && self.room.free_bytes() < 2 * usual as u64 {
            self.options.segment_bytes_min()
        } else {
            usual
        }
    }

    /// Makes a log segment ahead of use when there are too few. On a full disk one will do. It
    /// waits until flushes have had their room: the log makes one itself when it needs it.
    pub(crate) fn prepare_segment(&self) -> Result<bool> {
        let is_full = self.room.is_full();
        let target = if is_full { 1 } else { SPARES_TARGET };
        if self.segments.ready() >= target {
            return Ok(false);
        }
        let bytes = self.next_segment_bytes();
        let has_room = self.room.free_bytes() >= bytes as u64 + SLACK_BYTES;
        if is_full && (!has_room || !self.view().sealed.is_empty()) {
            return Ok(false);
        }
        self.segments
            .prepare(&*self.vfs, bytes)
            .inspect_err(|e| self.note_full_disk(e))?;
        self.room.took(bytes as u64, &self.options);
        Ok(true)
    }

    /// A flush found no room: a log segment that was made ahead of use gives its own. False when
    /// there is none.
    pub(crate) fn give_spare_for(&self, error: &Error) -> Result<bool> {
        if error.is_no_space() {
            self.segments.give_back(&*self.vfs)
        } else {
            Ok(false)
        }
    }

    /// Seals the active memtable for the room that its records give back: on a full disk, and when
    /// no write has come for a while.
    pub(crate) fn seal_for_room(&self, now_ms: u64) -> Result<bool> {
        let is_quiet = self.is_quiet(now_ms);
        let view = self.view();
        if view.active.is_empty() || view.sealed.len() >= SEALED_MAX {
            return Ok(false);
        }
        let records = view.tree.tables().map(|(_, t)| t.meta().records);
        let active = ActiveMemtable {
            tombstones: view.active.tombstones() as u64,
            records_in_tables: records.sum(),
            has_room: self.room.free_bytes() >= view.active.bytes() as u64 + SLACK_BYTES,
            is_quiet,
        };
        if !self.room.wants_seal(&active, now_ms) {
            return Ok(false);
        }
        // The log in use goes with the flush. It stays where the last segment that was made ahead
        // of use is all the room that the flush can get.
        let bytes = self.next_segment_bytes() as u64;
        if self.segments.ready() > 1 || self.room.free_bytes() >= bytes + SLACK_BYTES {
            self.seal_and_roll()
                .inspect_err(|e| self.note_full_disk(e))?;
        } else {
            self.seal_active();
        }
        self.room.sealed(now_ms);
        Ok(true)
    }

    /// `plan`, if there is room for it; or else what gives room back.
    pub(crate) fn in_room(
        &self,
        levels: &[Vec<&TableMeta>],
        plan: Option<Plan>,
        now_ms: u64,
    ) -> Option<InRoom> {
        let room = self.room.for_merges(&self.options);
        let is_short = plan.as_ref().is_some_and(|it| room_for(levels, it) > room);
        if !is_short && (plan.is_some() || !self.room.is_full()) {
            self.room.set_cramped(false);
            return plan.map(InRoom::Plan);
        }
        let reclaim = pick_reclaim(levels, |table, above| {
            let expires = table.expiring > 0;
            self.room.is_untried(table.id, above, expires, now_ms)
        });
        let found = reclaim.map(InRoom::Reclaim).or_else(|| {
            let less = plan.as_ref().filter(|plan| plan.level == 1);
            let less = less.and_then(|_| pick_level0_within(levels, &self.options, room));
            less.map(InRoom::Plan)
        });
        self.room.set_cramped(is_short && found.is_none());
        found
    }

    /// The table of `reclaim` was written anew into `made`, or it could not be.
    pub(crate) fn note_reclaimed(&self, reclaim: &Reclaim, made: &[u64], now_ms: u64) {
        let view = self.view();
        let live: BTreeSet<u64> = view.tree.tables().map(|(_, t)| t.meta().id).collect();
        let tables = reclaim.plan.inputs.iter().chain(made).copied();
        let tables = tables.filter(|id| live.contains(id));
        self.room
            .note_tried(tables, reclaim.newest_above, now_ms, &live);
    }

    /// Has a job come too close to the room that flushes need? One that gives room back may take
    /// half of what there is.
    pub(crate) fn is_out_of_room(&self, job: &CompactJob) -> Option<Error> {
        let (written, free) = (job.merge.written_bytes(), self.room.free_bytes());
        let is_out = match job.reclaim {
            Some(_) => written > free / 2,
            None => written > 0 && free < self.options.reserve_bytes / 4,
        };
        is_out.then(|| Error::io("merging tables", io::ErrorKind::StorageFull.into()))
    }
}
