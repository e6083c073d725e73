//! Tables that flushes wrote, kept for backups: so a merge makes no old record move again.
//!
//! ```text
//! checkpoint ─► mark m ─┬─ flush, ingest ─► tables in the manifest, and in KEPT     (KEPT first)
//!                       ├─ compaction: replaces tables; a kept one stays as a file
//! checkpoint since m ◄──┴─ the tables behind m, and mark n    backup has n ─► m and its tables go
//! ```
//!
//! Invariants
//! 1. A table that brings new records is in `KEPT` before the manifest names it, as long as there
//!    is a mark. A crash in between leaves a table more, and its records are in the log.
//! 2. The tables of a checkpoint with mark `m`, and all tables after `m`, hold each record that the
//!    folder has. Or they hold a newer one of its key. They also hold the records that the folder
//!    has dropped since, with all newer records that came. So no delete is missing above an older
//!    value.
//! 3. Each change that would break the second one ends all marks, durably, before it takes effect.
//!    These are damage that is mended, holes, and a drop of foreign records.
//! 4. Kept tables are bounded, in bytes and in number, and go first when the disk is full.
//! 5. `KEPT` is written and read with the ledger held.
//!
//! Not here: the steps with the ledger held (`tend.rs`), the bytes of `KEPT` (`note.rs`), the use
//! of the tables (crate `dendra`, `backup`).
//! See: docs/decisions/0046-incremental-backups.md.

pub(crate) mod note;
mod tend;

use crate::table;
use crate::vfs::Vfs;
use crate::waits::hold;
use note::{KeptNote, KeptTable, Mark};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Marks at a time. Each destination of backups has up to two.
const MARKS_MAX: usize = 8;
/// Kept tables at a time: a restore opens all of them at once.
const TABLES_MAX: usize = 1_024;

/// The order that a checkpoint gets, beside its tables.
#[derive(Clone, Debug)]
pub struct MarkOrder {
    /// The marks of earlier checkpoints that the asker has.
    pub since: Vec<u128>,
    /// The id of the new mark: random, so that no image of a disk knows it.
    pub mark: u128,
}

/// The mark of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The mark of those asked for that still holds.
    pub since: Option<u128>,
    /// Names of the tables that were installed after it.
    pub tables: Vec<String>,
    /// Names of the files that are in the checkpoint for this reason alone: its manifest does not
    /// name them.
    pub replaced: BTreeSet<String>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Kept {
    now: Mutex<KeptNote>,
    /// All marks are void; the file has to follow.
    wants_end: AtomicBool,
}

impl Kept {
    pub(crate) fn new(note: KeptNote) -> Kept {
        Kept {
            now: Mutex::new(note),
            wants_end: AtomicBool::new(false),
        }
    }

    /// Ends all marks with the next edit of the manifest, or checkpoint.
    pub(crate) fn end_soon(&self) {
        self.wants_end.store(true, Ordering::Release);
    }

    /// Is the file with this name kept, whether a manifest names it or not?
    pub(crate) fn holds(&self, name: &str) -> bool {
        let id = table::id_of_file_name(name);
        let now = hold(&self.now);
        now.tables.iter().any(|table| Some(table.id) == id)
    }

    /// How many tables are kept, and their bytes.
    pub(crate) fn size(&self) -> (usize, u64) {
        let now = hold(&self.now);
        (now.tables.len(), bytes_of(&now.tables))
    }

    /// Bytes of those that are kept and not in `live`.
    pub(crate) fn bytes_without(&self, live: &BTreeSet<u64>) -> u64 {
        let now = hold(&self.now);
        let replaced = now.tables.iter().filter(|table| !live.contains(&table.id));
        replaced.map(|table| table.bytes).sum()
    }

    fn is_idle(&self) -> bool {
        hold(&self.now).marks.is_empty()
    }

    fn note(&self) -> KeptNote {
        hold(&self.now).clone()
    }

    /// Puts `next` in force, and returns the tables that are not kept any more.
    fn replace(&self, next: KeptNote) -> Vec<u64> {
        let before = std::mem::replace(&mut *hold(&self.now), next.clone());
        let stays = |id: u64| next.tables.iter().any(|table| table.id == id);
        let ids = before.tables.iter().map(|table| table.id);
        ids.filter(|id| !stays(*id)).collect()
    }
}

fn bytes_of(tables: &[KeptTable]) -> u64 {
    tables.iter().map(|table| table.bytes).sum()
}

impl KeptNote {
    /// Leaves out the tables in front of all marks.
    fn trim(&mut self) {
        let end = self.first + self.tables.len() as u64;
        let needed = self.marks.iter().map(|mark| mark.position).min();
        let needed = needed.unwrap_or(end);
        self.tables.drain(..(needed - self.first) as usize);
        self.first = needed;
    }

    /// The mark of those asked for that holds.
    fn find(&self, asked: &[u128]) -> Option<&Mark> {
        self.marks.iter().find(|mark| asked.contains(&mark.id))
    }

    fn tables_behind(&self, mark: &Mark) -> &[KeptTable] {
        &self.tables[(mark.position - self.first) as usize..]
    }

    /// This note with a new mark after all tables. An asker that has `since` needs no table in
    /// front of it. It needs none of the marks that it was given after it and lost.
    fn with_mark(&self, since: Option<&Mark>, id: u128) -> KeptNote {
        let mut next = self.clone();
        if let Some(since) = since {
            next.marks
                .retain(|mark| mark.id != since.since && mark.since != since.id);
        }
        next.marks.push(Mark {
            id,
            since: since.map_or(0, |mark| mark.id),
            position: self.first + self.tables.len() as u64,
        });
        let too_many = next.marks.len().saturating_sub(MARKS_MAX);
        next.marks.drain(..too_many);
        next.trim();
        next
    }

    /// This note with more tables, and without the oldest marks if they take too much.
    fn with_tables(&self, added: &[KeptTable], bytes_max: u64) -> KeptNote {
        let mut next = self.clone();
        next.tables.extend_from_slice(added);
        while !next.marks.is_empty()
            && (bytes_of(&next.tables) > bytes_max || next.tables.len() > TABLES_MAX)
        {
            next.marks.remove(0);
            next.trim();
        }
        if next.marks.is_empty() {
            next.trim();
        }
        next
    }
}

/// The note of a folder whose manifest is `named`, if all that it keeps is there.
pub(crate) fn of_folder(vfs: &dyn Vfs, names: &[String], named: Option<u64>) -> KeptNote {
    let note = note::load(vfs);
    let is_there = |table: &KeptTable| names.contains(&table::file_name(table.id));
    if named == Some(note.manifest) && note.tables.iter().all(is_there) {
        note
    } else {
        KeptNote::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(marks: &[u128], tables: u64) -> KeptNote {
        let mut note = KeptNote::default();
        for id in marks {
            note = note.with_mark(None, *id);
        }
        let tables: Vec<KeptTable> = (0..tables).map(|id| KeptTable { id, bytes: 10 }).collect();
        note.with_tables(&tables, u64::MAX)
    }

    fn ids(note: &KeptNote) -> Vec<u128> {
        note.marks.iter().map(|mark| mark.id).collect()
    }

    #[test]
    fn the_mark_in_front_goes_when_its_follower_is_named_and_a_lost_one_is_replaced() {
        let first = with(&[1], 2);
        let second = first.with_mark(first.find(&[1]), 2);
        assert_eq!(ids(&second), [1, 2], "the backup with 2 may fail");
        assert_eq!(second.tables.len(), 2);
        let again = second.with_mark(second.find(&[9, 1]), 3);
        assert_eq!(ids(&again), [1, 3], "it failed");
        let third = again.with_mark(again.find(&[3]), 4);
        assert_eq!(ids(&third), [3, 4]);
        assert_eq!((third.first, third.tables.len()), (2, 0));
        assert_eq!(third.find(&[1]), None);
    }

    #[test]
    fn marks_of_other_destinations_stay_up_to_the_bound() {
        let all: Vec<u128> = (1..=MARKS_MAX as u128 + 2).collect();
        assert_eq!(ids(&with(&all, 1)), all[2..]);
    }

    #[test]
    fn the_oldest_marks_go_when_their_tables_take_too_much() {
        let mut note = with(&[1], 2);
        note = note.with_mark(None, 2);
        let more = [KeptTable { id: 9, bytes: 10 }];
        assert_eq!(ids(&note.with_tables(&more, 30)), [1, 2]);
        let less = note.with_tables(&more, 29);
        assert_eq!(ids(&less), [2]);
        assert_eq!(less.tables, more);
        let none = note.with_tables(&more, 9);
        assert!(none.marks.is_empty() && none.tables.is_empty());
        let many: Vec<KeptTable> = (10..10 + TABLES_MAX as u64)
            .map(|id| KeptTable { id, bytes: 0 })
            .collect();
        assert!(with(&[1], 1).with_tables(&many, u64::MAX).marks.is_empty());
    }
}
