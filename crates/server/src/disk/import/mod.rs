//! Records of a backup on their way into this node's store, with the versions that they had.
//!
//! ```text
//! begin ─► page, page … ─► settle ─► finish    admin plane ─► table, table …   and then the note `restore`
//!   │        │                 │        └ clients are let in           └ log: the position that is durable
//!   │        │                 └ everything is in tables: peers find it, and no table comes any more
//!   │        └ the rest after the last page, in order
//!   └ the store is empty, or this restore goes on; the clock is above everything that comes
//! ```
//!
//! Invariants
//! 1. The note with a position is written when everything up to it is durable. A restore goes on at
//!    the noted position, after any kind of end.
//! 2. No record is newer than the clock value that `begin` raised the node's clock to.
//! 3. A page is taken if no other page is missing in front of it: no record is left out. Pages may
//!    come in another order: one waits at most `RESTORE_ORDER_TIMEOUT` for those in front of it.
//! 4. A record is written once, into a table. Its page waits for room at most
//!    `RESTORE_PAGE_TIMEOUT`.
//! 5. While one is under way no request of a client is begun here. An older record that comes later
//!    would undo a delete, and a key that is not here yet would be told as missing.
//! 6. The note has the largest successor number of all records that were taken. The restore raises
//!    the cluster's least one above it before any client is let in.
//! 7. Questions of peers are answered from the tables, under way or not. After `settle` they hold
//!    everything up to the noted position, also after a crash. So a member that has finished may
//!    ask one that has only settled. The position in the note tells it.
//!
//! Not here: HTTP and owners (`admin/backup.rs`), the bytes of a page (crate `wire`).
//! See: docs/format/backup.md, docs/format/notes.md.

use crate::disk::notes::{self, FoundNote};
use crate::limits::{
    RESTORE_DURABLE_EVERY, RESTORE_LOOK, RESTORE_ORDER_TIMEOUT, RESTORE_PAGE_TIMEOUT,
};
use dendra_base::{CellRef, Key, Space, Version};
use dendra_engine::{
    Batch, Cursor, Direction, Engine, Error, Flow, Guard, Ingest, NotTaken, Show, WriteOutcome,
};
use dendra_wire::restore::clock_above;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// In the upper half of a token: the outcome is no loop's.
pub(crate) const IMPORT_LANE: usize = u32::MAX as usize;

const TOKEN: u64 = (IMPORT_LANE as u64) << 32;
const NOTE_KEY: &[u8] = b"restore";
const NOTE_FORMAT: u8 = 1;
/// In place of the largest successor number, which has 24 bits: the node keeps none.
const NO_SUCCESSORS: u32 = u32::MAX;
const NOTE_HEAD_BYTES: usize = 38;

/// How far the last restore of this node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestoreState {
    /// Random, chosen by `dendra restore`.
    pub(crate) id: u128,
    pub(crate) is_finished: bool,
    /// No version of it has a larger clock value.
    pub(crate) hlc: u64,
    /// No record up to `position` has a larger successor number. `None` where the restore raises no
    /// least one.
    pub(crate) successors: Option<u32>,
    /// Pages that are durable, of the `dendra restore` that ran last.
    pub(crate) pages: u64,
    /// Everything up to this key is durable; empty before the first page.
    pub(crate) position: Vec<u8>,
    /// Changes of the note: the clock value of its version.
    changes: u64,
}

impl RestoreState {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![NOTE_FORMAT, u8::from(self.is_finished)];
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.hlc.to_le_bytes());
        out.extend_from_slice(&self.pages.to_le_bytes());
        let successors = self.successors.unwrap_or(NO_SUCCESSORS);
        out.extend_from_slice(&successors.to_le_bytes());
        out.extend_from_slice(&self.position);
        out
    }

    fn decode(changes: u64, bytes: &[u8]) -> Option<RestoreState> {
        let (head, position) = bytes.split_first_chunk::<NOTE_HEAD_BYTES>()?;
        let successors = u32::from_le_bytes(head[34..].try_into().expect("4 bytes"));
        let successors = Some(successors).filter(|number| *number != NO_SUCCESSORS);
        (head[0] == NOTE_FORMAT && head[1] <= 1).then(|| RestoreState {
            is_finished: head[1] == 1,
            successors,
            id: u128::from_le_bytes(head[2..18].try_into().expect("16 bytes")),
            hlc: u64::from_le_bytes(head[18..26].try_into().expect("8 bytes")),
            pages: u64::from_le_bytes(head[26..34].try_into().expect("8 bytes")),
            position: position.to_vec(),
            changes,
        })
    }

    /// State of this restore after one change more.
    fn changed(&self) -> RestoreState {
        RestoreState {
            changes: self.changes + 1,
            ..self.clone()
        }
    }
}

/// The effect of a restore on the least successor number of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// None. A node by itself gives each write a clock value of its own.
    Kept,
    /// The number is raised above the numbers of all records, when they are here.
    Raised,
}

/// Why no page was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotImported {
    /// The node holds records of clients.
    NotEmpty,
    /// Another restore is under way here.
    Another(u128),
    /// No restore of this id is under way here.
    NoneSuch,
    /// Pages in front of this one are not here, or no longer.
    Gap,
    /// A record is newer than `begin` said.
    Wrong(String),
    /// The disk has no room.
    DiskFull,
    /// Flushes and compactions are behind, or the log's queue is full: try again.
    Busy,
    /// The log failed, or the store.
    Failed(String),
}

/// Records, and the bytes of their keys and values.
#[derive(Clone, Copy, Debug, Default)]
struct ImportSize {
    records: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Outcomes {
    awaited: usize,
    worst: Option<NotImported>,
}

/// One page, checked, with the records that this node keeps.
pub(crate) struct KeptPage<'a> {
    pub(crate) restore: u128,
    pub(crate) number: u64,
    /// The page begins after this key.
    pub(crate) behind: &'a [u8],
    /// Everything up to this key is in this page or in one before it.
    pub(crate) position: &'a [u8],
    /// Raw keys and their cells; keys rise.
    pub(crate) records: &'a [(&'a [u8], CellRef<'a>)],
}

/// The last restore, and the part of it that is not durable yet.
#[derive(Default)]
struct ImportDesk {
    noted: Option<RestoreState>,
    open: Ingest,
    /// Everything up to this key was taken.
    taken: Vec<u8>,
    /// Everything up to this key is in whole tables: at least the noted position.
    stored: Vec<u8>,
    /// No record that was taken has a larger successor number.
    successors: u32,
    /// The records that this process took, and how many of them are in whole tables.
    taken_size: ImportSize,
    stored_size: ImportSize,
    /// When something that is durable was last noted.
    noted_at: Option<Instant>,
}

impl ImportDesk {
    /// The table that was open is lost: its records are taken again.
    fn fall_back(&mut self, engine: &Engine) {
        engine.abandon_ingest(&mut self.open);
        self.taken.clone_from(&self.stored);
        self.taken_size = self.stored_size;
    }

    /// `None` unless a restore is under way.
    fn progress(&self) -> Option<RestoreProgress> {
        let noted = self.noted.as_ref().filter(|it| !it.is_finished)?;
        Some(RestoreProgress {
            id: noted.id,
            position: noted.position.clone(),
            records: self.taken_size.records,
            bytes: self.taken_size.bytes,
        })
    }
}

/// A restore that is under way, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestoreProgress {
    pub(crate) id: u128,
    /// Everything up to this key is durable.
    pub(crate) position: Vec<u8>,
    /// Records that this process took for it, and the bytes of their keys and values.
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// State that the restores of one node share.
pub(crate) struct Import {
    desk: Mutex<ImportDesk>,
    /// The progress as noted, for threads that may not wait for the desk; `None` unless a restore
    /// is under way.
    shown: Mutex<Option<RestoreProgress>>,
    /// `taken` has changed, or which restore is under way.
    moved: Condvar,
    outcomes: Mutex<Outcomes>,
    wake: Condvar,
    /// Is one under way? For loops, which do not wait for the desk.
    is_under_way: AtomicBool,
}

/// The way of a batch to the log, the same as that of clients' writes.
pub(crate) struct CommitPath<'a> {
    pub(crate) engine: &'a Engine,
    /// Wakes the log thread.
    pub(crate) ring: &'a dyn Fn(),
    /// Did the log fail?
    pub(crate) is_poisoned: &'a dyn Fn() -> bool,
    pub(crate) wall_ms: u64,
}

impl Import {
    /// The folder's note about its last restore.
    pub(crate) fn open(engine: &Engine) -> Result<Import, String> {
        let found = notes::find(engine, &note_key(), |cell| {
            RestoreState::decode(cell.version.hlc, cell.value)
        });
        let state = match found.map_err(|error| error.to_string())? {
            FoundNote::Read(state) => Some(state),
            FoundNote::Unreadable => {
                return Err(
                    "the note about a restore is damaged or of another release: \
                     begin the restore again with empty folders"
                        .to_owned(),
                );
            }
            FoundNote::Absent => None,
        };
        let position = state
            .as_ref()
            .map(|state: &RestoreState| state.position.clone())
            .unwrap_or_default();
        let desk = ImportDesk {
            taken: position.clone(),
            stored: position,
            successors: state.as_ref().and_then(|it| it.successors).unwrap_or(0),
            noted: state,
            ..ImportDesk::default()
        };
        let shown = desk.progress();
        Ok(Import {
            is_under_way: AtomicBool::new(shown.is_some()),
            shown: Mutex::new(shown),
            desk: Mutex::new(desk),
            moved: Condvar::new(),
            outcomes: Mutex::default(),
            wake: Condvar::new(),
        })
    }

    fn desk_held(&self) -> MutexGuard<'_, ImportDesk> {
        self.desk.lock().expect("no holder panics")
    }

    /// How far the last restore is. Waits for a page that is being written.
    pub(crate) fn state(&self) -> Option<RestoreState> {
        self.desk_held().noted.clone()
    }

    /// Is a restore under way? Then a part of the records is not here, and clients are refused.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_under_way.load(Ordering::Acquire)
    }

    /// How far the restore is that is under way. Waits for no disk.
    pub(crate) fn progress(&self) -> Option<RestoreProgress> {
        self.shown.lock().expect("no holder panics").clone()
    }

    fn show(&self, desk: &ImportDesk) {
        *self.shown.lock().expect("no holder panics") = desk.progress();
    }

    /// Begins restore `id`, or goes on with it. `raise` lifts the node's clock to `hlc`, and is
    /// called before anything is written. A cluster in which it raises the least successor number
    /// has `Numbering::Raised`.
    pub(crate) fn begin(
        &self,
        road: &CommitPath<'_>,
        id: u128,
        hlc: u64,
        numbering: Numbering,
        raise: impl FnOnce() -> Result<(), String>,
    ) -> Result<RestoreState, NotImported> {
        let mut desk = self.desk_held();
        match &desk.noted {
            Some(state) if state.id == id && state.hlc == hlc => return Ok(state.clone()),
            Some(other) if !other.is_finished => return Err(NotImported::Another(other.id)),
            _ => {}
        }
        if !is_empty(road.engine).map_err(failed)? {
            return Err(NotImported::NotEmpty);
        }
        raise().map_err(NotImported::Wrong)?;
        let changes = desk.noted.as_ref().map_or(1, |state| state.changes + 1);
        let next = RestoreState {
            id,
            is_finished: false,
            hlc,
            successors: match numbering {
                Numbering::Raised => Some(0),
                Numbering::Kept => None,
            },
            pages: 0,
            position: Vec::new(),
            changes,
        };
        desk.taken.clear();
        desk.stored.clear();
        desk.successors = 0;
        desk.taken_size = ImportSize::default();
        desk.stored_size = ImportSize::default();
        self.note(road, &mut desk, next.clone())?;
        // The first page is noted at once: a second command sees that something is here.
        desk.noted_at = None;
        self.moved.notify_all();
        Ok(next)
    }

    /// Takes the records of a page, apart from those that were taken already. They are durable when
    /// the note says so.
    pub(crate) fn page(
        &self,
        road: &CommitPath<'_>,
        page: &KeptPage<'_>,
    ) -> Result<(), NotImported> {
        let deadline = Instant::now() + RESTORE_ORDER_TIMEOUT;
        let mut desk = self.desk_held();
        loop {
            let current = desk.noted.as_ref();
            let current = current.filter(|it| it.id == page.restore && !it.is_finished);
            let most = current.ok_or(NotImported::NoneSuch)?.hlc;
            if let Some(hlc) = clock_above(page.records, most) {
                return Err(NotImported::Wrong(format!(
                    "a version's clock is {hlc:x}, and the restore began with {most:x} as the \
                     largest"
                )));
            }
            if page.behind <= desk.taken.as_slice() {
                break;
            }
            // The one in front of it may be on its way, or another thread reads it.
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NotImported::Gap);
            }
            if (road.is_poisoned)() {
                return Err(NotImported::Busy);
            }
            let waited = self.moved.wait_timeout(desk, left);
            desk = waited.expect("no holder panics").0;
        }
        if page.position <= desk.taken.as_slice() {
            return Ok(());
        }
        self.wait_for_room(road)?;
        let added = self.add(road, &mut desk, page);
        if added.is_err() {
            desk.fall_back(road.engine);
        }
        self.show(&desk);
        self.moved.notify_all();
        added
    }

    fn add(
        &self,
        road: &CommitPath<'_>,
        desk: &mut ImportDesk,
        page: &KeptPage<'_>,
    ) -> Result<(), NotImported> {
        for (raw_key, cell) in page.records {
            if *raw_key <= desk.taken.as_slice() {
                continue;
            }
            // Before the table: the note about it has the number.
            desk.successors = desk.successors.max(cell.version.successor_number());
            let key = Key::user(raw_key);
            let added = road.engine.ingest(&mut desk.open, key.as_stored(), cell);
            let is_stored = added.map_err(failed)?;
            desk.taken_size.records += 1;
            desk.taken_size.bytes += (raw_key.len() + cell.value.len()) as u64;
            if is_stored {
                desk.stored = raw_key.to_vec();
                desk.stored_size = desk.taken_size;
                self.note_stored(road, desk, page.number)?;
            }
        }
        desk.taken.clear();
        desk.taken.extend_from_slice(page.position);
        let is_late = |at: Instant| at.elapsed() >= RESTORE_DURABLE_EVERY;
        if desk.noted_at.is_none_or(is_late) {
            store(road, desk)?;
            self.note_stored(road, desk, page.number + 1)?;
        }
        Ok(())
    }

    fn note_stored(
        &self,
        road: &CommitPath<'_>,
        desk: &mut ImportDesk,
        pages: u64,
    ) -> Result<(), NotImported> {
        let current = desk.noted.as_ref().ok_or(NotImported::NoneSuch)?;
        let next = RestoreState {
            pages,
            successors: current.successors.map(|_| desk.successors),
            position: desk.stored.clone(),
            ..current.changed()
        };
        self.note(road, desk, next)
    }

    /// Everything up to `position`, and so everything, was sent: makes it durable and visible to
    /// peers. Clients are still refused. A second call, and one after `finish`, has no effect.
    pub(crate) fn settle(
        &self,
        road: &CommitPath<'_>,
        id: u128,
        position: &[u8],
    ) -> Result<RestoreState, NotImported> {
        self.settle_held(road, &mut self.desk_held(), id, position)
    }

    fn settle_held(
        &self,
        road: &CommitPath<'_>,
        desk: &mut ImportDesk,
        id: u128,
        position: &[u8],
    ) -> Result<RestoreState, NotImported> {
        let current = desk.noted.as_ref().filter(|it| it.id == id);
        let current = current.ok_or(NotImported::NoneSuch)?.clone();
        if current.is_finished {
            return Ok(current);
        }
        if desk.taken.as_slice() < position {
            return Err(NotImported::Gap);
        }
        store(road, desk).inspect_err(|_| desk.fall_back(road.engine))?;
        if current.position == desk.stored {
            return Ok(current);
        }
        let next = RestoreState {
            successors: current.successors.map(|_| desk.successors),
            position: desk.stored.clone(),
            ..current.changed()
        };
        self.note(road, desk, next.clone())?;
        Ok(next)
    }

    /// Lets clients in, and settles before if a start since then has lost the open table.
    pub(crate) fn finish(
        &self,
        road: &CommitPath<'_>,
        id: u128,
        position: &[u8],
    ) -> Result<RestoreState, NotImported> {
        let mut desk = self.desk_held();
        let settled = self.settle_held(road, &mut desk, id, position)?;
        if settled.is_finished {
            return Ok(settled);
        }
        let next = RestoreState {
            is_finished: true,
            ..settled.changed()
        };
        self.note(road, &mut desk, next.clone())?;
        self.moved.notify_all();
        Ok(next)
    }

    /// Waits for an engine that has to catch up, as writes of clients do. Records that were taken
    /// stay.
    fn wait_for_room(&self, road: &CommitPath<'_>) -> Result<(), NotImported> {
        let deadline = Instant::now() + RESTORE_PAGE_TIMEOUT;
        let mut outcomes = self.outcomes.lock().expect("no holder panics");
        // Pages come faster than flushes: the engine's reserve has to be seen in time.
        road.engine.look_at_disk().map_err(failed)?;
        loop {
            match road.engine.pressure().stop {
                None => return Ok(()),
                Some(stop) if stop.is_behind() => {}
                Some(_) => return Err(NotImported::DiskFull),
            }
            if Instant::now() >= deadline || (road.is_poisoned)() {
                return Err(NotImported::Busy);
            }
            let waited = self.wake.wait_timeout(outcomes, RESTORE_LOOK);
            outcomes = waited.expect("no holder panics").0;
        }
    }

    /// Writes the note: it is durable when this returns. Requires: the desk is held, so there is
    /// one writer.
    fn note(
        &self,
        road: &CommitPath<'_>,
        desk: &mut ImportDesk,
        next: RestoreState,
    ) -> Result<(), NotImported> {
        let (key, value) = (note_key(), next.encode());
        let version = Version {
            hlc: next.changes,
            origin: 0,
            rmw: 0,
        };
        let note = CellRef::value(key.as_stored(), version, &value);
        let mut batch = Batch::new();
        batch
            .push(TOKEN, key.as_stored(), &note, Guard::Newest, road.wall_ms)
            .map_err(|refused| NotImported::Wrong(refused.to_string()))?;
        self.commit(road, &mut batch)?;
        // Behind the last record, which is installed: a client finds all of them.
        self.is_under_way
            .store(!next.is_finished, Ordering::Release);
        desk.noted = Some(next);
        desk.noted_at = Some(Instant::now());
        self.show(desk);
        Ok(())
    }

    /// Hands a batch to the log, and waits until it is durable.
    fn commit(&self, road: &CommitPath<'_>, batch: &mut Batch) -> Result<(), NotImported> {
        let deadline = Instant::now() + RESTORE_PAGE_TIMEOUT;
        let mut outcomes = self.outcomes.lock().expect("no holder panics");
        *outcomes = Outcomes {
            awaited: batch.len(),
            worst: None,
        };
        // Behind an engine that has to catch up it waits, as writes of clients do.
        loop {
            match road.engine.pressure().stop {
                Some(stop) if !stop.is_behind() => return Err(NotImported::DiskFull),
                Some(_) => {}
                None => match road.engine.submit(batch) {
                    Ok(_) => break,
                    Err(NotTaken::QueueFull) => {}
                    Err(refused) => return Err(NotImported::Wrong(refused.to_string())),
                },
            }
            if Instant::now() >= deadline || (road.is_poisoned)() {
                return Err(NotImported::Busy);
            }
            let waited = self.wake.wait_timeout(outcomes, RESTORE_LOOK);
            outcomes = waited.expect("no holder panics").0;
        }
        (road.ring)();
        // Each submitted write gets an outcome, unless the log fails: no deadline.
        while outcomes.awaited > 0 {
            if (road.is_poisoned)() {
                return Err(NotImported::Failed("the log failed".to_owned()));
            }
            let waited = self.wake.wait_timeout(outcomes, RESTORE_LOOK);
            outcomes = waited.expect("no holder panics").0;
        }
        outcomes.worst.take().map_or(Ok(()), Err)
    }

    /// The outcome of one of its writes; called by the thread that committed it.
    pub(crate) fn wrote(&self, outcome: WriteOutcome) {
        let mut outcomes = self.outcomes.lock().expect("no holder panics");
        outcomes.awaited = outcomes.awaited.saturating_sub(1);
        match outcome {
            WriteOutcome::Applied { .. } => {}
            WriteOutcome::NoRoom => outcomes.worst = Some(NotImported::DiskFull),
            WriteOutcome::GuardFailed { .. } | WriteOutcome::NotApplied | WriteOutcome::Crowded => {
                outcomes.worst.get_or_insert(NotImported::Busy);
            }
        }
        if outcomes.awaited == 0 {
            self.wake.notify_all();
        }
    }
}

/// Makes the taken records durable.
fn store(road: &CommitPath<'_>, desk: &mut ImportDesk) -> Result<(), NotImported> {
    road.engine.finish_ingest(&mut desk.open).map_err(failed)?;
    desk.stored.clone_from(&desk.taken);
    desk.stored_size = desk.taken_size;
    Ok(())
}

fn note_key() -> Key {
    Key::new(Space::Meta, NOTE_KEY)
}

fn failed(error: Error) -> NotImported {
    if error.is_no_space() {
        NotImported::DiskFull
    } else {
        NotImported::Failed(error.to_string())
    }
}

/// Does the store hold no record of clients, no tombstone either?
pub(crate) fn is_empty(engine: &Engine) -> Result<bool, Error> {
    let mut cursor = Cursor::new(
        Bound::Included(vec![Space::User.byte()]),
        Bound::Excluded(vec![Space::User.byte() + 1]),
        Direction::Forward,
        Show::All,
    );
    let mut is_empty = true;
    engine.scan(&mut cursor, 1, |_, _| {
        is_empty = false;
        Flow::Pause
    })?;
    Ok(is_empty)
}

#[cfg(test)]
mod tests;
