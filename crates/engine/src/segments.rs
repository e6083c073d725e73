//! Log segments ahead of use: made by the background, taken by the committer.
//!
//! ```text
//! prepare ─► spares (oldest first) ─► take ─► in use ─► flushed ─► removed
//!                └─ give_back: the last one goes when the disk has no room for a flush
//! ```
//!
//! Invariants
//! 1. Segment ids have no gap: they are made, used and removed in order.
//! 2. A segment is zero-filled and durable before it is a spare.
//!
//! Not here: their bytes (`wal`), which ones are still needed (the manifest's log floor).

use crate::vfs::Vfs;
use crate::waits::hold;
use crate::wal::{self, Spare};
use crate::{Error, Result};
use dendra_base::Version;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

/// Segments made ahead of use. Two: one is taken while the next is being made.
pub(crate) const SPARES_TARGET: usize = 2;

pub(crate) struct Segments {
    /// The folder's secret number, for the heads.
    salt: u64,
    /// Id of the segment made last. Its lock is held while one is being made.
    newest: Mutex<u64>,
    spares: Mutex<VecDeque<Spare>>,
    /// Oldest segment that may still be on disk.
    oldest: Mutex<u64>,
    /// Oldest version in each segment that a restart would replay.
    versions_min: Mutex<BTreeMap<u64, OldestVersions>>,
}

/// The oldest versions among some records of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldestVersions {
    /// Oldest version of all these records; `Version::MAX` = there is none.
    pub(crate) of_all: Version,
    /// Oldest version of the records of clients.
    pub(crate) of_users: Version,
}

impl Segments {
    /// `in_use` is the only segment on disk.
    pub(crate) fn new(in_use: u64, salt: u64) -> Segments {
        Segments {
            salt,
            newest: Mutex::new(in_use),
            spares: Mutex::new(VecDeque::new()),
            oldest: Mutex::new(in_use),
            versions_min: Mutex::default(),
        }
    }

    /// The next spare; made here and now, of `segment_bytes`, when there is none.
    pub(crate) fn take(&self, vfs: &dyn Vfs, segment_bytes: usize) -> Result<Spare> {
        if let Some(spare) = self.take_ready() {
            return Ok(spare);
        }
        let mut newest = hold(&self.newest);
        // One may have been finished while we waited for the lock.
        if let Some(spare) = self.take_ready() {
            return Ok(spare);
        }
        let spare = wal::prepare(vfs, self.salt, *newest + 1, segment_bytes)?;
        *newest += 1;
        Ok(spare)
    }

    /// The next spare, if there is one.
    pub(crate) fn take_ready(&self) -> Option<Spare> {
        hold(&self.spares).pop_front()
    }

    /// How many are ready.
    pub(crate) fn ready(&self) -> usize {
        hold(&self.spares).len()
    }

    /// Makes one spare of `segment_bytes`.
    pub(crate) fn prepare(&self, vfs: &dyn Vfs, segment_bytes: usize) -> Result<()> {
        let mut newest = hold(&self.newest);
        let spare = wal::prepare(vfs, self.salt, *newest + 1, segment_bytes)?;
        *newest += 1;
        hold(&self.spares).push_back(spare);
        Ok(())
    }

    /// Removes the spare that was made last, for its room; false when there is none.
    pub(crate) fn give_back(&self, vfs: &dyn Vfs) -> Result<bool> {
        let mut newest = hold(&self.newest);
        let mut spares = hold(&self.spares);
        let Some(last) = spares.pop_back() else {
            return Ok(false);
        };
        let name = wal::segment_name(last.segment());
        if let Err(e) = vfs.remove(&name) {
            // Ids have no gap: the one that stays goes on being the last.
            spares.push_back(last);
            return Err(Error::io(format!("removing the unused {name}"), e));
        }
        *newest -= 1;
        Ok(true)
    }

    /// Says that `segment` is about to hold these records.
    pub(crate) fn note_written(&self, segment: u64, written: OldestVersions) {
        let mut versions = hold(&self.versions_min);
        let oldest = versions.entry(segment).or_insert(written);
        oldest.of_all = written.of_all.min(oldest.of_all);
        oldest.of_users = written.of_users.min(oldest.of_users);
    }

    /// Oldest version of a client's record in any segment.
    pub(crate) fn user_version_min(&self) -> Version {
        let versions = hold(&self.versions_min);
        let oldest = versions.values().map(|oldest| oldest.of_users).min();
        oldest.unwrap_or(Version::MAX)
    }

    /// Oldest version that a restart would replay. A memtable may hold it, or a table, or neither
    /// because it came late. A delete above it must stay, or the replay would undo it. A touch
    /// counts below its own version: what it became must stay, or the replay would not find its
    /// value.
    pub(crate) fn version_min(&self) -> Version {
        let versions = hold(&self.versions_min);
        let oldest = versions.values().map(|oldest| oldest.of_all).min();
        oldest.unwrap_or(Version::MAX)
    }

    /// Removes segments below `floor`, oldest first; true when there was one. Requires: the floor
    /// is durable, and every view made from now on holds the records of those segments.
    pub(crate) fn remove_below(&self, vfs: &dyn Vfs, floor: u64) -> Result<bool> {
        hold(&self.versions_min).retain(|segment, _| *segment >= floor);
        let mut oldest = hold(&self.oldest);
        let before = *oldest;
        while *oldest < floor {
            let name = wal::segment_name(*oldest);
            match vfs.remove(&name) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::io(format!("removing {name}"), e)),
            }
            *oldest += 1;
        }
        Ok(*oldest > before)
    }

    /// How many there are, spares included.
    pub(crate) fn on_disk(&self) -> usize {
        let oldest = *hold(&self.oldest);
        let newest = self.newest.try_lock().map_or(oldest, |newest| *newest);
        usize::try_from(newest.saturating_sub(oldest) + 1).unwrap_or(usize::MAX)
    }
}
