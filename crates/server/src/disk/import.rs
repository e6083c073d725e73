//! Records of a backup on their way into this node's store, with the versions that they had.
//!
//! ```text
//! begin ─► page, page … ─► finish        admin plane ─► batch ─► commit queue ─► log thread ─► note
//!   │        └ records, then the note `restore` with the position
//!   └ the store is empty, or this restore goes on; the clock is above everything that comes
//! ```
//!
//! Invariants
//! 1. The note with a position is written with the last records in front of it, or behind them. A
//!    restore goes on at the noted position, after any kind of end.
//! 2. No record is newer than the clock value that `begin` raised the node's clock to.
//! 3. One batch is under way at a time; it waits for room at most `RESTORE_PAGE_TIMEOUT`.
//!
//! Not here: HTTP and owners (`admin/restore.rs`), the bytes of a page (crate `wire`).
//! See: docs/format/backup.md, docs/format/notes.md.

use crate::limits::{RESTORE_LOOK, RESTORE_PAGE_TIMEOUT};
use dendra_base::{Cell, CellRef, Key, Space, Version};
use dendra_engine::vfs::Wait;
use dendra_engine::{
    Batch, Cursor, Direction, Engine, Error, Flow, Guard, Lookup, NotTaken, Show, WriteOutcome,
};
use std::ops::Bound;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// In the upper half of a token: the outcome is no loop's.
pub(crate) const IMPORT_LANE: usize = u32::MAX as usize;

const TOKEN: u64 = (IMPORT_LANE as u64) << 32;
const NOTE_KEY: &[u8] = b"restore";
const NOTE_FORMAT: u8 = 1;
/// Lengths in front of a record in a batch.
const RECORD_HEAD_BYTES: usize = 6;

/// How far the last restore of this node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestoreState {
    /// Random, chosen by `dendra restore`.
    pub(crate) id: u128,
    pub(crate) is_finished: bool,
    /// No version of it has a larger clock value.
    pub(crate) hlc: u64,
    /// Pages that are durable.
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
        out.extend_from_slice(&self.position);
        out
    }

    fn decode(changes: u64, bytes: &[u8]) -> Option<RestoreState> {
        let (head, position) = bytes.split_first_chunk::<34>()?;
        (head[0] == NOTE_FORMAT && head[1] <= 1).then(|| RestoreState {
            is_finished: head[1] == 1,
            id: u128::from_le_bytes(head[2..18].try_into().expect("16 bytes")),
            hlc: u64::from_le_bytes(head[18..26].try_into().expect("8 bytes")),
            pages: u64::from_le_bytes(head[26..34].try_into().expect("8 bytes")),
            position: position.to_vec(),
            changes,
        })
    }

    /// The same restore behind one change more.
    fn changed(&self) -> RestoreState {
        RestoreState {
            changes: self.changes + 1,
            ..self.clone()
        }
    }
}

/// Why nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotImported {
    /// The node holds records of clients.
    NotEmpty,
    /// Another restore is under way here.
    Another(u128),
    /// No restore of this id is under way here.
    NoneSuch,
    /// A record is newer than `begin` said, or the page is not the next one.
    Wrong(String),
    /// The disk has no room.
    DiskFull,
    /// Flushes and compactions are behind, or the log's queue is full: try again.
    Busy,
    /// The log failed, or the store.
    Failed(String),
}

#[derive(Debug, Default)]
struct Outcomes {
    awaited: usize,
    worst: Option<NotImported>,
}

/// State that the restores of one node share.
#[derive(Debug)]
pub(crate) struct Import {
    state: Mutex<Option<RestoreState>>,
    outcomes: Mutex<Outcomes>,
    wake: Condvar,
}

/// How a batch gets to the log: the node's own way.
pub(crate) struct Road<'a> {
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
        let key = note_key();
        let found = engine.get(key.as_stored(), Wait::Block, |cell| {
            let is_intact = cell.is_intact(key.as_stored());
            RestoreState::decode(cell.version.hlc, cell.value).filter(|_| is_intact)
        });
        let state = match found.map_err(|error| error.to_string())? {
            Lookup::Cell(Some(state)) => Some(state),
            Lookup::Cell(None) => {
                return Err(
                    "the note about a restore is damaged or of another release: \
                     begin the restore again with empty folders"
                        .to_owned(),
                );
            }
            Lookup::Nothing | Lookup::WouldBlock => None,
        };
        Ok(Import {
            state: Mutex::new(state),
            outcomes: Mutex::default(),
            wake: Condvar::new(),
        })
    }

    fn state_held(&self) -> MutexGuard<'_, Option<RestoreState>> {
        self.state.lock().expect("no holder panics")
    }

    /// How far the last restore is. Waits for a page that is being written.
    pub(crate) fn state(&self) -> Option<RestoreState> {
        self.state_held().clone()
    }

    /// Is a restore under way? Does not wait: while a page is written, one is.
    pub(crate) fn is_under_way(&self) -> bool {
        match self.state.try_lock() {
            Ok(state) => state.as_ref().is_some_and(|state| !state.is_finished),
            Err(_) => true,
        }
    }

    /// Begins restore `id`, or goes on with it. `raise` lifts the node's clock to `hlc`, and is
    /// called before anything is written.
    pub(crate) fn begin(
        &self,
        road: &Road<'_>,
        id: u128,
        hlc: u64,
        raise: impl FnOnce() -> Result<(), String>,
    ) -> Result<RestoreState, NotImported> {
        let mut state = self.state_held();
        match &*state {
            Some(state) if state.id == id && state.hlc == hlc => return Ok(state.clone()),
            Some(other) if !other.is_finished => return Err(NotImported::Another(other.id)),
            _ => {}
        }
        if !is_empty(road.engine).map_err(failed)? {
            return Err(NotImported::NotEmpty);
        }
        raise().map_err(NotImported::Wrong)?;
        let next = RestoreState {
            id,
            is_finished: false,
            hlc,
            pages: 0,
            position: Vec::new(),
            changes: state.as_ref().map_or(1, |state| state.changes + 1),
        };
        self.write(road, &[], &next)?;
        *state = Some(next.clone());
        Ok(next)
    }

    /// Writes the records of page `number`; a page that is durable already is taken again.
    pub(crate) fn page(
        &self,
        road: &Road<'_>,
        id: u128,
        number: u64,
        position: &[u8],
        records: &[(Key, Cell)],
    ) -> Result<(), NotImported> {
        let mut state = self.state_held();
        let current = state.as_ref().filter(|it| it.id == id && !it.is_finished);
        let current = current.ok_or(NotImported::NoneSuch)?;
        if let Some((_, cell)) = records.iter().find(|it| it.1.version.hlc > current.hlc) {
            let (hlc, most) = (cell.version.hlc, current.hlc);
            return Err(NotImported::Wrong(format!(
                "a version's clock is {hlc:x}, and the restore began with {most:x} as the largest"
            )));
        }
        if position <= current.position.as_slice() && !current.position.is_empty() {
            return Ok(());
        }
        let next = RestoreState {
            pages: number + 1,
            position: position.to_vec(),
            ..current.changed()
        };
        self.write(road, records, &next)?;
        *state = Some(next);
        Ok(())
    }

    /// Everything is here.
    pub(crate) fn finish(&self, road: &Road<'_>, id: u128) -> Result<(), NotImported> {
        let mut state = self.state_held();
        let current = state.as_ref().filter(|it| it.id == id);
        let current = current.ok_or(NotImported::NoneSuch)?;
        if current.is_finished {
            return Ok(());
        }
        let next = RestoreState {
            is_finished: true,
            ..current.changed()
        };
        self.write(road, &[], &next)?;
        *state = Some(next);
        Ok(())
    }

    /// Writes records, in as few batches as the log's queue takes, and then the note: it is durable
    /// when this returns. Requires: the state is held, so there is one writer.
    fn write(
        &self,
        road: &Road<'_>,
        records: &[(Key, Cell)],
        note: &RestoreState,
    ) -> Result<(), NotImported> {
        let options = road.engine.options();
        let mut batch = Batch::new();
        let (note_key, value) = (note_key(), note.encode());
        let version = Version {
            hlc: note.changes,
            origin: 0,
            rmw: 0,
        };
        let note = CellRef::value(note_key.as_stored(), version, &value);
        let cells = records.iter().map(|(key, cell)| (key, cell.as_ref()));
        for (key, cell) in cells.chain([(&note_key, note)]) {
            let bytes = key.as_stored().len() + cell.encoded_len() + RECORD_HEAD_BYTES;
            let is_full = batch.len() >= options.commit_queue_len_max
                || batch.bytes().len() + bytes > options.commit_queue_bytes_max;
            if is_full && !batch.is_empty() {
                self.commit(road, &mut batch)?;
            }
            push(&mut batch, road, key, &cell)?;
        }
        self.commit(road, &mut batch)
    }

    /// Hands a batch to the log, and waits until it is durable.
    fn commit(&self, road: &Road<'_>, batch: &mut Batch) -> Result<(), NotImported> {
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
            WriteOutcome::GuardFailed { .. } | WriteOutcome::NotApplied => {
                outcomes.worst.get_or_insert(NotImported::Busy);
            }
        }
        if outcomes.awaited == 0 {
            self.wake.notify_all();
        }
    }
}

fn note_key() -> Key {
    Key::new(Space::Meta, NOTE_KEY)
}

fn push(
    batch: &mut Batch,
    road: &Road<'_>,
    key: &Key,
    cell: &CellRef<'_>,
) -> Result<(), NotImported> {
    batch
        .push(TOKEN, key.as_stored(), cell, Guard::Newest, road.wall_ms)
        .map_err(|refused| NotImported::Wrong(refused.to_string()))
}

fn failed(error: Error) -> NotImported {
    NotImported::Failed(error.to_string())
}

/// Does the store hold nothing of clients, no tombstone either?
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
mod tests {
    use super::*;
    use dendra_engine::vfs::mem::MemVfs;
    use dendra_engine::{Identity, Options};
    use std::sync::Arc;

    const HLC: u64 = 1 << 57;

    fn engine(vfs: &MemVfs) -> Engine {
        let identity = Identity { node: 7, origin: 7 };
        let options = Options::for_memory(16 << 20, 64 << 10);
        Engine::open(Arc::new(vfs.clone()), options, identity, 1).expect("it opens")
    }

    /// Commits on the caller's thread, as the log thread does on its own.
    fn with_road<R>(engine: &Engine, import: &Import, then: impl FnOnce(&Road<'_>) -> R) -> R {
        std::thread::scope(|threads| {
            let ring = || {
                threads.spawn(|| {
                    let mut done = Vec::new();
                    engine.commit(&mut done).expect("the disk works");
                    for (token, outcome) in done {
                        assert_eq!(token, TOKEN);
                        import.wrote(outcome);
                    }
                });
            };
            then(&Road {
                engine,
                ring: &ring,
                is_poisoned: &|| false,
                wall_ms: 1,
            })
        })
    }

    fn record(raw: &[u8], hlc: u64) -> (Key, Cell) {
        let key = Key::user(raw);
        let version = Version {
            hlc,
            origin: 3,
            rmw: 9,
        };
        let cell = CellRef::value(key.as_stored(), version, b"value").to_owned();
        (key, cell)
    }

    #[test]
    fn a_restore_goes_on_behind_a_crash_where_its_note_says() {
        let vfs = MemVfs::new();
        let (store, records) = (engine(&vfs), [record(b"a", HLC), record(b"b", 5)]);
        let import = Import::open(&store).expect("nothing is there");
        assert!(!import.is_under_way());
        with_road(&store, &import, |road| {
            let begun = import.begin(road, 1, HLC, || Ok(())).expect("it is empty");
            assert_eq!((begun.pages, begun.position.len()), (0, 0));
            import
                .page(road, 1, 0, b"b", &records)
                .expect("there is room");
        });
        let crashed = vfs.crash_image(&mut dendra_base::Prng::new(3));
        let store = engine(&crashed);
        let import = Import::open(&store).expect("the note is whole");
        assert!(import.is_under_way());
        with_road(&store, &import, |road| {
            let again = import.begin(road, 1, HLC, || Err("not again".to_owned()));
            assert_eq!(again.expect("it goes on").position, b"b");
            let other = import.begin(road, 2, HLC, || Ok(()));
            assert_eq!(other, Err(NotImported::Another(1)));
            import.finish(road, 1).expect("there is room");
            import.finish(road, 1).expect("once is enough");
            let late = import.page(road, 1, 1, b"c", &[record(b"c", 1)]);
            assert_eq!(late, Err(NotImported::NoneSuch));
            let other = import.begin(road, 2, HLC, || Ok(()));
            assert_eq!(other, Err(NotImported::NotEmpty));
        });
        let found = store.get(records[0].0.as_stored(), Wait::Block, |cell| {
            cell.to_owned()
        });
        assert_eq!(found.expect("it reads"), Lookup::Cell(records[0].1.clone()));
    }

    #[test]
    fn a_record_above_the_clock_of_the_restore_is_refused_and_a_page_again_changes_nothing() {
        let store = engine(&MemVfs::new());
        let import = Import::open(&store).expect("nothing is there");
        with_road(&store, &import, |road| {
            import.begin(road, 1, HLC, || Ok(())).expect("it is empty");
            let newer = import.page(road, 1, 0, b"a", &[record(b"a", HLC + 1)]);
            assert!(matches!(newer, Err(NotImported::Wrong(_))), "{newer:?}");
            import
                .page(road, 1, 0, b"b", &[record(b"a", HLC)])
                .expect("there is room");
            import
                .page(road, 1, 0, b"b", &[record(b"a2", HLC)])
                .expect("it is there");
        });
        let skipped = store.get(Key::user(b"a2").as_stored(), Wait::Block, |_| ());
        assert_eq!(skipped.expect("it reads"), Lookup::Nothing);
        assert_eq!(import.state().expect("under way").pages, 1);
        assert!(!is_empty(&store).expect("it reads"));
    }
}
