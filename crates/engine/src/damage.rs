//! Tables in which damage was met while the engine runs: known, named, and kept out of jobs.
//!
//! ```text
//! a read meets damage          noted                        reads of that block go on failing
//! a job fails on it, once      noted, tried again           a disk may have had a bad moment
//! a job fails on it, twice     set aside ─► level 0         the table holds up nothing else
//! ```
//!
//! A table that is set aside moves to level 0, where tables may overlap: so the level it came from
//! has no hole that merges must step around. No job reads it, and it does not count towards the
//! limit of level 0. Its records stay readable but for the damaged blocks, and a delete above them
//! stays, since it may hold something older.
//!
//! Invariants
//! 1. At most one note for each live table: what a compaction replaced is forgotten.
//! 2. Notes are not durable: after a restart the next job finds out again.
//!
//! Not here: the choice of jobs (`compact/pick/`), the check of a whole folder (`check/`).
//! See: docs/overload.md.

use crate::Error;
use crate::table;
use crate::tree::Tree;
use crate::waits::hold;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Jobs that fail on a table before it is set aside.
const FAILED_JOBS_MAX: u32 = 2;

/// A live table with damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedTable {
    /// File name inside the folder.
    pub file: String,
    /// Where the damage is that was met last, in bytes.
    pub offset: u64,
    /// What was expected there and what was found.
    pub reason: String,
    /// Compactions leave it out.
    pub is_set_aside: bool,
}

#[derive(Default)]
struct Note {
    offset: u64,
    reason: String,
    failed_jobs: u32,
}

impl Note {
    fn is_set_aside(&self) -> bool {
        self.failed_jobs >= FAILED_JOBS_MAX
    }
}

/// What is known, by table id.
#[derive(Default)]
pub(crate) struct Damage {
    notes: Mutex<BTreeMap<u64, Note>>,
    /// How many are set aside: lets everybody else pass without the lock.
    set_aside: AtomicUsize,
}

impl Damage {
    /// A read ended in `error`.
    pub(crate) fn note_read(&self, error: &Error, tree: &Tree) {
        self.note(error, 0, |id| tree.tables().any(|(_, t)| t.meta().id == id));
    }

    /// A job over the tables `inputs` ended in `error`.
    pub(crate) fn note_job(&self, error: &Error, inputs: &[u64]) {
        self.note(error, 1, |id| inputs.contains(&id));
    }

    fn note(&self, error: &Error, failed_jobs: u32, is_live: impl Fn(u64) -> bool) {
        let Error::Damaged {
            file,
            offset,
            reason,
        } = error
        else {
            return;
        };
        let Some(id) = table::id_of_file_name(file).filter(|id| is_live(*id)) else {
            return;
        };
        let mut notes = hold(&self.notes);
        let note = notes.entry(id).or_default();
        note.offset = *offset;
        note.reason.clone_from(reason);
        note.failed_jobs += failed_jobs;
        self.count(&notes);
    }

    /// Forgets tables that are gone.
    pub(crate) fn forget(&self, ids: &[u64]) {
        let mut notes = hold(&self.notes);
        notes.retain(|id, _| !ids.contains(id));
        self.count(&notes);
    }

    fn count(&self, notes: &BTreeMap<u64, Note>) {
        let count = notes.values().filter(|note| note.is_set_aside()).count();
        self.set_aside.store(count, Ordering::Relaxed);
    }

    /// Tables that no job may read.
    pub(crate) fn set_aside(&self) -> BTreeSet<u64> {
        if self.set_aside.load(Ordering::Relaxed) == 0 {
            return BTreeSet::new();
        }
        let notes = hold(&self.notes);
        let aside = notes.iter().filter(|(_, note)| note.is_set_aside());
        aside.map(|(id, _)| *id).collect()
    }

    /// Everything that is known, by table id.
    pub(crate) fn list(&self) -> Vec<DamagedTable> {
        let notes = hold(&self.notes);
        let named = notes.iter().map(|(id, note)| DamagedTable {
            file: table::file_name(*id),
            offset: note.offset,
            reason: note.reason.clone(),
            is_set_aside: note.is_set_aside(),
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_set_aside_at_the_second_job_that_fails_on_it() {
        let damage = Damage::default();
        let error = |id, offset| Error::damaged(table::file_name(id), offset, "it is not right");
        damage.note_job(&error(7, 1), &[7, 8]);
        damage.note_job(&error(9, 1), &[7, 8]);
        damage.note_job(&Error::Full { free_bytes: 0 }, &[7, 8]);
        assert_eq!(damage.set_aside(), BTreeSet::new());
        damage.note_read(&error(8, 2), &Tree::new());
        damage.note_job(&error(7, 3), &[7, 8]);
        assert_eq!(damage.set_aside(), BTreeSet::from([7]));
        let listed = damage.list();
        assert_eq!(listed.len(), 1, "tables that are not live are not noted");
        assert_eq!((listed[0].offset, listed[0].is_set_aside), (3, true));
        damage.forget(&[7]);
        assert_eq!(
            (damage.set_aside(), damage.list()),
            (BTreeSet::new(), vec![])
        );
    }
}
