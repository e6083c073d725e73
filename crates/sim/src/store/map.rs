//! Cells in a sorted map: the store of runs that are about the protocol and not about the disk.
//!
//! Invariants
//! 1. Guards have the meaning that they have in the engine. Expired values and tombstones are
//!    absent, and a write that passes its condition becomes newer than the cell that it found.
//! 2. A damaged cell is an error until one that is not older is written over it.
//! 3. While reads fail, they tell neither a cell nor its absence. As in the engine, that is damage,
//!    too.
//!
//! Not here: a disk. A commit is one step, and a crash comes before or after it.

use super::{PageRange, StoreWrite, WriteResult};
use dendra_base::peer::Condition;
use dendra_base::{Cell, CellRef, Guard, Key, Kind, Prng, Space, Version};
use dendra_engine::IsForeign;
use dendra_node::step::{Paged, StoreFailure, StoreOutcome};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A store that is its own disk.
#[derive(Clone, Debug, Default)]
pub struct MapStore {
    cells: BTreeMap<Key, Cell>,
    damaged: BTreeSet<Key>,
    fails_reads: bool,
    durable_ceiling: u64,
    ceiling: u64,
    /// The newest version that a condition let in: later plain writes on this copy are newer.
    fence: Version,
    /// Up to which age it forgets, and records of how many copies: of this life.
    horizon: (u64, u8),
    slices: u64,
}

/// What a merge leaves of a value that has ended.
fn left_of(key: &Key, cell: &Cell) -> Cell {
    let mut left = CellRef::tombstone(key.as_stored(), cell.version).to_owned();
    (left.copies, left.born) = (cell.copies, cell.born);
    left
}

/// A larger store looks for records to purge so much more seldom: a slice costs the same.
const SLICE_CELLS: u64 = 32;

impl MapStore {
    pub(super) fn hlc_floor(&self) -> u64 {
        let newest = self.cells.values().map(|cell| cell.version.hlc).max();
        self.durable_ceiling.max(newest.unwrap_or(0))
    }

    pub(super) fn raise_hlc_ceiling(&mut self, hlc: u64) {
        self.ceiling = self.ceiling.max(hlc);
    }

    pub(super) fn read(&self, key: &Key) -> Result<Option<Cell>, StoreFailure> {
        if self.fails_reads || self.damaged.contains(key) {
            return Err(StoreFailure::Damaged);
        }
        Ok(self.cells.get(key).cloned())
    }

    /// The content of the disk while no process runs on it.
    pub(crate) fn peek(&self, key: &Key) -> Result<Option<Cell>, StoreFailure> {
        self.read(key)
    }

    pub(super) fn hidden_version(&self, key: &Key) -> Option<Version> {
        let is_damaged = self.damaged.contains(key);
        let cell = self.cells.get(key).filter(|_| is_damaged);
        cell.map(|cell| cell.version)
    }

    pub(super) fn raise_age_horizon(&mut self, clock: u64, copies: u8) {
        self.horizon = (clock.max(self.horizon.0), copies);
    }

    pub(super) fn drop_foreign(&mut self, is_foreign: &IsForeign) {
        self.cells
            .retain(|key, cell| !is_foreign(key.as_stored(), &cell.as_ref()));
    }

    /// Purges some of the records that it may purge, each time others.
    pub(super) fn maintain(&mut self, ended_ms: u64) {
        self.slices += 1;
        let every = 1 + self.cells.len() as u64 / SLICE_CELLS;
        if !self.slices.is_multiple_of(every) {
            return;
        }
        self.sweep(ended_ms);
    }

    /// Turns ended values into tombstones, however large the store is.
    pub(crate) fn sweep(&mut self, ended_ms: u64) {
        if self.fails_reads {
            return;
        }
        let slices = self.slices;
        let damaged = &self.damaged;
        let is_met = |cell: &Cell| (cell.checksum ^ slices).is_multiple_of(3);
        // As merges do: a value that has ended leaves its bytes.
        let cells = self.cells.iter_mut();
        for (key, cell) in cells.filter(|(key, _)| !damaged.contains(key)) {
            if cell.kind == Kind::Value && !cell.as_ref().is_live(ended_ms) && is_met(cell) {
                *cell = left_of(key, cell);
            }
        }
        let (clock, copies) = self.horizon;
        if clock == 0 {
            return;
        }
        self.cells.retain(|key, cell| {
            let is_met = is_met(cell);
            let cell = cell.as_ref();
            let is_old = cell.age() <= clock && cell.version.hlc <= clock;
            let may_go = match key.as_stored()[0] {
                byte if byte == Space::User.byte() => {
                    is_old && cell.copies >= copies && !cell.is_live(ended_ms)
                }
                byte => is_old && byte == Space::Protocol.byte(),
            };
            !may_go || !is_met || damaged.contains(key)
        });
    }

    /// The horizon is raised again when a process starts on it.
    pub(super) fn end_life(&mut self) {
        self.horizon = (0, 0);
    }

    pub(super) fn fail_reads(&mut self, fails_reads: bool) {
        self.fails_reads = fails_reads;
    }

    pub(super) fn page(&self, range: &PageRange) -> Paged {
        if self.fails_reads {
            return Err(StoreFailure::Damaged);
        }
        let space = range.start.as_stored()[0];
        let (low, high) = if range.is_reverse {
            (
                range.end.clone().map_or(Bound::Unbounded, Bound::Included),
                Bound::Excluded(range.start.clone()),
            )
        } else {
            (
                Bound::Included(range.start.clone()),
                range.end.clone().map_or(Bound::Unbounded, Bound::Excluded),
            )
        };
        let mut found = self.cells.range((low, high));
        let (mut records, mut seen) = (Vec::new(), 0);
        loop {
            let next = if range.is_reverse {
                found.next_back()
            } else {
                found.next()
            };
            let Some((key, cell)) = next.filter(|(key, _)| key.as_stored()[0] == space) else {
                return Ok((records, None));
            };
            if self.damaged.contains(key) {
                let rest = if range.is_reverse {
                    let space = Space::from_byte(space).expect("a page begins in a space");
                    Key::new(space, &[key.raw(), &[0]].concat())
                } else {
                    key.clone()
                };
                if rest == range.start {
                    return Err(StoreFailure::Damaged);
                }
                return Ok((records, Some(rest)));
            }
            if seen >= range.bytes as usize {
                // Forwards the next key itself; backwards "below the last one shown".
                let rest = if range.is_reverse {
                    records.last().map(|(last, _): &(Key, Cell)| last.clone())
                } else {
                    Some(key.clone())
                };
                return Ok((records, rest));
            }
            seen += key.as_stored().len() + cell.as_ref().encoded_len();
            records.push((key.clone(), cell.clone()));
        }
    }

    /// All cells of a space.
    pub(crate) fn cells(&self, space: Space) -> impl Iterator<Item = (&Key, &Cell)> {
        let is_there = move |(key, _): &(&Key, &Cell)| key.as_stored()[0] == space.byte();
        let from = Bound::Included(Key::new(space, b""));
        let range = self.cells.range((from, Bound::Unbounded));
        range.take_while(is_there)
    }

    /// Deletes of hints go, as with a compaction of the engine: no other store has an older one.
    pub(crate) fn drop_delivered(&mut self) {
        let is_dead = |cell: &Cell| cell.kind == Kind::Tombstone;
        let hints = self.cells(Space::Hint);
        let dead: Vec<Key> = hints
            .filter(|(_, cell)| is_dead(cell))
            .map(|(key, _)| key.clone())
            .collect();
        for key in dead {
            self.cells.remove(&key);
        }
    }

    pub(super) fn records(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn commit(&mut self, writes: &[StoreWrite], now_ms: u64) -> Vec<WriteResult> {
        self.durable_ceiling = self.ceiling;
        writes
            .iter()
            .map(|write| self.write(write, now_ms))
            .collect()
    }

    fn write(&mut self, write: &StoreWrite, now_ms: u64) -> WriteResult {
        let mut cell = write.cell.clone();
        let condition = match &write.guard {
            Guard::Newest => None,
            Guard::If(condition) => Some(condition),
        };
        let stored = self.cells.get(&write.key).map(|old| old.version);
        match condition {
            None => {}
            // As the engine does it: without a condition there is no cell to look up.
            Some(Condition::None) if cell.version > self.fence => {}
            Some(Condition::None) => {
                self.fence = self.fence.successor();
                cell.version = self.fence;
            }
            Some(condition) => {
                let current = self.live_version(&write.key, now_ms)?;
                if !condition.holds(current) {
                    return Ok(StoreOutcome::GuardFailed { current });
                }
                if let Some(stored) = stored.filter(|stored| cell.version <= *stored) {
                    cell.version = stored.successor();
                }
                self.fence = self.fence.max(cell.version);
            }
        }
        let version = cell.version;
        // Damage hides all of a cell but its version.
        let is_damaged = self.damaged.contains(&write.key);
        let is_kept = self.cells.get(&write.key).is_some_and(|kept| {
            if is_damaged {
                kept.version.is_newer_than(version)
            } else {
                kept.is_newer_than(&cell)
            }
        });
        if !is_kept {
            self.damaged.remove(&write.key);
            self.cells.insert(write.key.clone(), cell);
        }
        Ok(StoreOutcome::Applied { version })
    }

    /// The version that a condition is judged by. Damage is no version.
    fn live_version(&self, key: &Key, now_ms: u64) -> Result<Option<Version>, StoreFailure> {
        if self.fails_reads || self.damaged.contains(key) {
            return Err(StoreFailure::NotApplied);
        }
        let live = self
            .cells
            .get(key)
            .filter(|cell| cell.as_ref().is_live(now_ms));
        Ok(live.map(|live| live.version))
    }

    /// Too early: the value leaves a tombstone of its version.
    pub(super) fn fade(&mut self, key: &Key) {
        if let Some(cell) = self.cells.get_mut(key) {
            *cell = left_of(key, cell);
        }
    }

    pub(super) fn rot(&mut self, prng: &mut Prng) -> bool {
        if self.cells.is_empty() {
            return false;
        }
        let at = prng.below(self.cells.len() as u64) as usize;
        let key = self.cells.keys().nth(at).expect("drawn below the length");
        self.damaged.insert(key.clone())
    }
}
