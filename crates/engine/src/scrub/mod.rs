//! Scrubbing: every block of every table is read from the disk and checked, slice by slice.
//!
//! ```text
//! scrub(now, every, budget) ─► suspects first ─► the pass: tables by id, part by part ─► spots
//!                                                       │ SCRUB: where it stands
//! damaged_spans() ─► the caller repairs the keys ─► repaired(span) ─► maintain(Compact) mends
//! ```
//!
//! A pass looks at the tables that are live when it begins. Those made later were read back by the
//! job that wrote them, and belong to the next pass. The log and the memtables are not looked at:
//! the next start alone reads the log, and finds damage in it.
//!
//! Invariants
//! 1. A slice reads about its budget, at most one part of a table beyond it.
//! 2. A pass survives restarts: at most `SAVE_BYTES` and one table are read twice.
//! 3. A damaged spot counts once two scrubs have found it.
//!
//! Not here: the parts of a table (`table/scrub.rs`), the notes about damage (`damage.rs`), the
//! time between slices (the caller).
//! See: docs/operating.md, docs/format/scrub.md.

pub(crate) mod note;
pub(crate) mod state;

use crate::Result;
use crate::engine::Engine;
use crate::lanes::Maintained;
use crate::table::{Flaw, ScrubRead, Table};
use crate::tree::Tree;
use crate::waits::hold;
use note::ScrubNote;
use state::{Looking, ScrubSlice, ScrubState};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes that are read before it is noted where the scrub stands: seconds of work.
const SAVE_BYTES: u64 = 64 << 20;

impl ScrubState {
    fn load(engine: &Engine) -> ScrubState {
        let note = note::load(&*engine.vfs);
        for id in &note.suspects {
            engine.damage.suspect(*id);
        }
        ScrubState {
            saved: note.suspects.iter().copied().collect(),
            note,
            looking: None,
            read_bytes: 0,
        }
    }

    /// The next table to look at; false = there is none now.
    fn choose(&mut self, engine: &Engine, tree: &Tree, now_ms: u64, every_ms: u64) -> bool {
        let is_live = |id: u64| tree.tables().any(|(_, t)| t.meta().id == id);
        while let Some(id) = engine.damage.take_suspect() {
            if is_live(id) {
                self.looking = Some(Looking {
                    id,
                    part: 0,
                    spots: Vec::new(),
                    is_suspect: true,
                });
                return true;
            }
            engine.damage.forget(&[id]);
        }
        let note = &mut self.note;
        if note.limit == 0 {
            let began_ms = note.began_ms;
            // A clock that was set back begins anew.
            let is_early = note.full_ms.1 > 0
                && (began_ms..began_ms.saturating_add(every_ms)).contains(&now_ms);
            let newest = tree.tables().map(|(_, t)| t.meta().id).max();
            let (false, Some(newest)) = (is_early, newest) else {
                return false;
            };
            note.limit = newest;
            note.next = (0, 0);
            note.began_ms = now_ms;
        }
        let ids = tree.tables().map(|(_, t)| t.meta().id);
        let (from, part) = note.next;
        let next = ids.filter(|id| (from..=note.limit).contains(id)).min();
        let Some(id) = next else {
            note.full_ms = (note.began_ms, now_ms.max(1));
            note.limit = 0;
            // This pass is not read again, even if the next slice finds damage.
            self.read_bytes = SAVE_BYTES;
            return false;
        };
        self.looking = Some(Looking {
            id,
            part: if id == from { part as usize } else { 0 },
            spots: Vec::new(),
            is_suspect: false,
        });
        true
    }

    /// Reads parts of the table under way until the budget is used up or it ends; true = it ends.
    fn look(&mut self, engine: &Engine, table: &Table, budget_bytes: u64) -> Result<(u64, bool)> {
        let looking = self.looking.as_mut().expect("a table was chosen");
        let mut read = ScrubRead::default();
        while looking.part < table.scrub_parts() && read.bytes < budget_bytes {
            let mut spots = Vec::new();
            let done = table.scrub_part(looking.part, &mut read, &mut spots);
            if let Err(error) = done {
                engine.count_scrub(&read);
                return Err(error);
            }
            looking.part += 1;
            if !spots.is_empty() && looking.spots.is_empty() {
                engine.damage.suspect(looking.id);
            }
            looking.spots.append(&mut spots);
        }
        engine.count_scrub(&read);
        if !looking.is_suspect {
            self.note.next = (looking.id, looking.part as u64);
        }
        Ok((read.bytes, looking.part >= table.scrub_parts()))
    }

    fn save_if_due(&mut self, engine: &Engine) -> Result<()> {
        let ids = self.suspects(engine);
        if self.read_bytes < SAVE_BYTES && ids == self.saved {
            return Ok(());
        }
        self.save(engine, ids)
    }

    fn suspects(&self, engine: &Engine) -> BTreeSet<u64> {
        let mut ids = engine.damage.ids();
        let looking = self.looking.iter().filter(|it| it.is_suspect);
        ids.extend(looking.map(|it| it.id));
        ids
    }

    fn save(&mut self, engine: &Engine, ids: BTreeSet<u64>) -> Result<()> {
        self.note.suspects = ids.iter().copied().collect();
        note::save(&*engine.vfs, &self.note)?;
        self.saved = ids;
        self.read_bytes = 0;
        Ok(())
    }
}

impl Engine {
    /// Reads about `budget_bytes` of tables from the disk and checks them. A pass over all tables
    /// begins `every_ms` after the one before it began, at the earliest. Tables in which damage was
    /// met are looked at without that wait. Blocks on the disk.
    ///
    /// An error says that the disk could not be asked, or that the scrub's position could not be
    /// noted. The next call tries again. Damage is no error: see `damaged_spans`.
    pub fn scrub(&self, now_ms: u64, every_ms: u64, budget_bytes: u64) -> Result<ScrubSlice> {
        let mut slot = hold(&self.scrub.state);
        let state = slot.get_or_insert_with(|| ScrubState::load(self));
        let tree = Arc::clone(&self.view().tree);
        let mut bytes = 0;
        let slice = loop {
            if state.looking.is_none() && !state.choose(self, &tree, now_ms, every_ms) {
                break Maintained::Idle;
            }
            let id = state.looking.as_ref().map(|looking| looking.id);
            let Some((_, table)) = tree.tables().find(|(_, t)| Some(t.meta().id) == id) else {
                // A compaction replaced it.
                state.looking = None;
                continue;
            };
            let (read, is_over) = state.look(self, table, budget_bytes.saturating_sub(bytes))?;
            bytes += read;
            state.read_bytes += read;
            if is_over && let Some(looking) = state.looking.take() {
                self.note_scrubbed(table, looking.spots);
                if !looking.is_suspect {
                    state.note.next = (looking.id + 1, 0);
                }
            }
            if bytes >= budget_bytes {
                break Maintained::More;
            }
        };
        self.show_scrub(&state.note);
        state.save_if_due(self).inspect_err(|error| {
            if error.is_no_space() {
                // It goes on, and is noted when there is room.
                state.read_bytes = 0;
            }
        })?;
        Ok(ScrubSlice {
            bytes,
            state: slice,
        })
    }

    /// All of a table was read, and this was found.
    fn note_scrubbed(&self, table: &Table, spots: Vec<Flaw>) {
        let id = table.meta().id;
        let found = self.damage.scrubbed(table.meta(), spots);
        // A compaction that replaced the table meanwhile has forgotten its damage already. One that
        // replaces it from here on forgets the note just made.
        if self.view().tree.tables().any(|(_, t)| t.meta().id == id) {
            hold(&self.scrub.stats).spots_found += found.confirmed;
        } else {
            self.damage.forget(&[id]);
        }
    }

    /// Notes where the scrub stands, for a process that is about to end: the next one goes on
    /// there.
    pub fn note_scrub(&self) -> Result<()> {
        match &mut *hold(&self.scrub.state) {
            Some(state) => state.save(self, state.suspects(self)),
            None => Ok(()),
        }
    }

    fn count_scrub(&self, read: &ScrubRead) {
        let mut stats = hold(&self.scrub.stats);
        stats.bytes += read.bytes;
        stats.blocks += read.blocks;
    }

    fn show_scrub(&self, note: &ScrubNote) {
        let mut stats = hold(&self.scrub.stats);
        stats.began_ms = if note.limit == 0 { 0 } else { note.began_ms };
        (stats.full_began_ms, stats.full_ended_ms) = note.full_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::KeySpan;
    use crate::vfs::mem::MemVfs;
    use crate::{Batch, Guard, Identity, Maintenance, Options};
    use dendra_base::{CellRef, Version};

    fn write_and_flush(engine: &Engine, hlc: u64) {
        let version = Version {
            hlc,
            origin: 1,
            rmw: 0,
        };
        let mut batch = Batch::new();
        let cell = CellRef::value(b"\x10k", version, b"v");
        let pushed = batch.push(hlc, b"\x10k", &cell, Guard::Newest, 1);
        pushed.expect("the record fits");
        engine.submit(&mut batch).expect("the queue is empty");
        engine.commit(&mut Vec::new()).expect("memory works");
        engine.flush_all(1).expect("memory works");
    }

    #[test]
    fn damage_of_a_table_that_was_replaced_while_it_was_read_is_forgotten() {
        let mut options = Options::for_tests();
        options.level0_tables_trigger = 2;
        let identity = Identity { node: 1, origin: 1 };
        let vfs = Arc::new(MemVfs::new());
        let engine = Engine::open(vfs, options, identity).expect("a new folder");
        write_and_flush(&engine, 1);
        let tree = Arc::clone(&engine.view().tree);
        let (_, table) = tree.tables().next().expect("a table");
        let damage = || Flaw {
            offset: 0,
            span: Some(KeySpan {
                first: b"\x10k".to_vec(),
                last: b"\x10k".to_vec(),
            }),
            reason: "a bit is turned over".to_owned(),
        };
        for _ in 0..2 {
            engine.note_scrubbed(table, vec![damage()]);
        }
        assert_eq!(engine.damaged_spans().len(), 1, "while it is there");
        engine.damage.forget(&[table.meta().id]);
        write_and_flush(&engine, 2);
        let maintain = || engine.maintain(Maintenance::Compact, 1, 1 << 20);
        while maintain().expect("memory works") == Maintained::More {}
        for _ in 0..2 {
            engine.note_scrubbed(table, vec![damage()]);
        }
        assert_eq!(engine.damaged_spans().len(), 0, "a table that is gone");
        assert_eq!(engine.stats().scrub.spots_found, 1);
    }
}
