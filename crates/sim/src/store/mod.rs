//! The store of a member's cells, and the part that is left when the power fails.
//!
//! ```text
//!           open                commit, read, page, maintain
//! Disk ───────────────► Store ─────────────────────────────► Fate::Dead when the power went
//!   ▲                     │ crash(how)
//!   └─────────────────────┘
//! ```
//!
//! Invariants
//! 1. `read` and `page` show durable cells only.
//! 2. A commit happens as a whole or not at all, whenever the power fails.
//! 3. Both kinds obey the same guards; `the_map_and_the_engine_agree` holds them together.
//!
//! Not here: when commits happen and how long they take (`member.rs`).
//! See: crates/engine, docs/verification.md.

mod engine;
mod map;
pub mod table_dump;
pub(crate) mod terms;

pub use engine::EngineStore;
pub use map::MapStore;
pub(crate) use terms::StoredRange;
pub use terms::{Crash, Fate, PageRange, StoreWrite, WriteResult};

use crate::plan::{RunShape, StoreKind};
use dendra_base::peer::Readiness;
use dendra_base::{Cell, Key, Prng, Space, Version};
use dendra_engine::vfs::MemVfs;
use dendra_engine::{Identity, IsForeign};
use dendra_node::compare::survey::{Survey, Surveyed, Surveying};
use dendra_node::step::{LostSpan, Paged, StoreFailure};
use std::sync::Arc;

/// Bytes of one page of a look.
const LOOK_BYTES: u32 = 4_096;

/// The state that is left while a member does not run.
#[derive(Clone)]
pub enum Disk {
    /// A folder in memory.
    Folder(MemVfs),
    /// The cells of a map.
    Cells(MapStore),
}

/// A running store.
pub enum Store {
    /// The engine.
    Engine(Box<EngineStore>),
    /// A map.
    Map(MapStore),
}

impl Disk {
    /// An empty one.
    pub fn new(kind: StoreKind) -> Disk {
        match kind {
            StoreKind::Engine => Disk::Folder(MemVfs::new()),
            StoreKind::Map => Disk::Cells(MapStore::default()),
        }
    }
}

impl Store {
    /// Opens the folder on `disk`; the reason when it cannot be opened.
    pub fn open(disk: &Disk, shape: &RunShape, identity: Identity) -> Result<Store, String> {
        match disk {
            Disk::Folder(vfs) => EngineStore::open(vfs.clone(), shape, identity)
                .map(|store| Store::Engine(Box::new(store))),
            Disk::Cells(cells) => Ok(Store::Map(cells.clone())),
        }
    }

    /// The hybrid clock starts above this.
    pub fn hlc_floor(&self) -> u64 {
        match self {
            Store::Engine(store) => store.hlc_floor(),
            Store::Map(store) => store.hlc_floor(),
        }
    }

    /// The newest cell of a key on a disk that no process uses; `None` when it cannot be told.
    pub(crate) fn peek(
        disk: &Disk,
        shape: &RunShape,
        identity: Identity,
        key: &Key,
    ) -> Option<Option<Cell>> {
        match disk {
            Disk::Cells(cells) => cells.peek(key).ok(),
            Disk::Folder(vfs) => {
                let image = vfs.process_crash_image();
                let store = EngineStore::open(image, shape, identity).ok()?;
                store.read(key).ok()
            }
        }
    }

    /// The ceiling that goes into the log with the next commit.
    pub fn raise_hlc_ceiling(&mut self, hlc: u64) {
        match self {
            Store::Engine(store) => store.raise_hlc_ceiling(hlc),
            Store::Map(store) => store.raise_hlc_ceiling(hlc),
        }
    }

    /// The newest cell of a key.
    pub fn read(&self, key: &Key) -> Result<Option<Cell>, StoreFailure> {
        match self {
            Store::Engine(store) => store.read(key),
            Store::Map(store) => store.read(key),
        }
    }

    /// All cells of a space, where the store is a map.
    pub(crate) fn cells(&self, space: Space) -> impl Iterator<Item = (&Key, &Cell)> {
        let cells = match self {
            Store::Engine(_) => None,
            Store::Map(store) => Some(store.cells(space)),
        };
        cells.into_iter().flatten()
    }

    /// A map drops the deletes of hints, and some of all that a horizon allows.
    pub(crate) fn sweep(&mut self, ended_ms: u64) {
        if let Store::Map(store) = self {
            store.drop_delivered();
            store.sweep(ended_ms);
        }
    }

    /// How many records a map has.
    pub(crate) fn records(&self) -> usize {
        match self {
            Store::Engine(_) => 0,
            Store::Map(store) => store.records(),
        }
    }

    /// The version of a cell that is damaged, where that can be known; no member ever sees it.
    pub fn hidden_version(&self, key: &Key) -> Option<Version> {
        match self {
            Store::Engine(_) => None,
            Store::Map(store) => store.hidden_version(key),
        }
    }

    /// From now on the disk answers no read, or it does again. Cells in memory can be read in any
    /// case.
    pub fn fail_reads(&mut self, fails_reads: bool) {
        match self {
            Store::Engine(store) => store.fail_reads(fails_reads),
            Store::Map(store) => store.fail_reads(fails_reads),
        }
    }

    /// Reads a part of the tables and checks it.
    pub fn scrub(&mut self, budget_bytes: u64, now_ms: u64) -> Fate {
        match self {
            Store::Engine(store) => store.scrub(budget_bytes, now_ms),
            Store::Map(_) => Fate::Alive,
        }
    }

    /// Between which keys cells are lost, as far as scrubs have found.
    pub fn lost_spans(&self) -> Vec<LostSpan> {
        match self {
            Store::Engine(store) => store.lost_spans(),
            Store::Map(_) => Vec::new(),
        }
    }

    /// The cells of a span are there again.
    pub fn repaired(&self, id: u64) {
        if let Store::Engine(store) = self {
            store.repaired(id);
        }
    }

    /// A bit turns over in each of so many blocks of clients' records, between whose keys it `may`.
    /// Which keys those are.
    pub(crate) fn rot_between(
        &mut self,
        count: u64,
        may: &dyn Fn(&StoredRange) -> bool,
        now_ms: u64,
        prng: &mut Prng,
    ) -> Vec<StoredRange> {
        match self {
            Store::Engine(store) => store.rot_between(count, may, now_ms, prng),
            Store::Map(_) => Vec::new(),
        }
    }

    /// The repair of a span waits for owners, or does so no more.
    pub fn repair_waits(&self, id: u64, waits: bool) {
        if let Store::Engine(store) = self {
            store.repair_waits(id, waits);
        }
    }

    /// Damage that repairs have left, although they could have seen to it.
    pub fn damage_left(&self) -> Option<String> {
        match self {
            Store::Engine(store) => store.damage_left(),
            Store::Map(_) => None,
        }
    }

    /// A part of a space.
    pub fn page(&self, range: &PageRange) -> Paged {
        if !range.is_reverse && range.end.as_ref().is_some_and(|end| range.start >= *end) {
            return Ok((Vec::new(), None));
        }
        match self {
            Store::Engine(store) => store.page(range),
            Store::Map(store) => store.page(range),
        }
    }

    /// A look at a part of a space.
    ///
    /// # Errors
    /// When a part of it cannot be read.
    pub fn look(&self, look: &Survey) -> Result<Surveyed, StoreFailure> {
        let mut range = PageRange {
            start: look.start.clone(),
            end: look.end.clone(),
            is_reverse: false,
            bytes: LOOK_BYTES,
        };
        let mut looker = look.begin();
        loop {
            let (records, next) = self.page(&range)?;
            for (key, cell) in &records {
                if looker.visit(key.as_stored(), cell.as_ref()) == Surveying::Enough {
                    return looker.finish().ok_or(StoreFailure::Damaged);
                }
            }
            match next {
                Some(next) => range.start = next,
                None => return looker.finish().ok_or(StoreFailure::Damaged),
            }
        }
    }

    /// Writes all of `writes` with one sync. One result for each, unless the store died.
    pub fn commit(&mut self, writes: &[StoreWrite], now_ms: u64) -> (Fate, Vec<WriteResult>) {
        match self {
            Store::Engine(store) => store.commit(writes, now_ms),
            Store::Map(store) => (Fate::Alive, store.commit(writes, now_ms)),
        }
    }

    /// Deletes, ended values and promises up to this age go, of records with so many copies.
    pub fn raise_age_horizon(&mut self, clock: u64, copies: u8) {
        match self {
            Store::Engine(store) => store.raise_age_horizon(clock, copies),
            Store::Map(store) => store.raise_age_horizon(clock, copies),
        }
    }

    /// Records of clients that `is_foreign` names go, bit by bit.
    pub fn drop_foreign(&mut self, is_foreign: Arc<IsForeign>) {
        match self {
            Store::Engine(store) => store.drop_foreign(is_foreign),
            Store::Map(store) => store.drop_foreign(&*is_foreign),
        }
    }

    /// Have all of them gone? Then, and when `is_over`, everything is kept again.
    pub fn ends_dropping(&mut self, is_over: bool) -> bool {
        match self {
            Store::Engine(store) => store.ends_dropping(is_over),
            Store::Map(_) => true,
        }
    }

    /// A slice of background work; values that end until `ended_ms` have ended.
    pub fn maintain(&mut self, budget_bytes: usize, now_ms: u64, ended_ms: u64) -> Fate {
        match self {
            Store::Engine(store) => store.maintain(budget_bytes, now_ms, ended_ms),
            Store::Map(store) => {
                store.maintain(ended_ms);
                Fate::Alive
            }
        }
    }

    /// A map makes a tombstone of the value of `key`, as tables do while most clocks are wrong.
    pub(crate) fn fade(&mut self, key: &Key) {
        if let Store::Map(store) = self {
            store.fade(key);
        }
    }

    /// The power fails after so many more operations of the disk. False when this kind of store has
    /// no operations to fail at.
    pub fn arm_power_cut(&mut self, after: u64) -> bool {
        match self {
            Store::Engine(store) => {
                store.arm_power_cut(after);
                true
            }
            Store::Map(_) => false,
        }
    }

    /// The next sync of the log fails. False when this kind of store has none.
    pub fn fail_next_sync(&mut self) -> bool {
        match self {
            Store::Engine(store) => {
                store.fail_next_sync();
                true
            }
            Store::Map(_) => false,
        }
    }

    /// How many bytes may still be written; `None` = plenty.
    pub fn set_room(&mut self, bytes: Option<u64>) {
        if let Store::Engine(store) = self {
            store.set_room(bytes);
        }
    }

    /// Answer of the store to a write now.
    pub fn readiness(&self) -> Readiness {
        match self {
            Store::Engine(store) => store.readiness(),
            Store::Map(_) => Readiness::Ready,
        }
    }

    /// Should work that can wait do so?
    pub fn is_strained(&self) -> bool {
        match self {
            Store::Engine(store) => store.is_strained(),
            Store::Map(_) => false,
        }
    }

    /// No fault is armed any more, and there is room.
    pub fn heal(&mut self) {
        match self {
            Store::Engine(store) => store.heal(),
            Store::Map(store) => store.fail_reads(false),
        }
    }

    /// Turns bits of stored cells over; true when there was a cell to damage.
    pub fn rot(&mut self, prng: &mut Prng) -> bool {
        match self {
            Store::Engine(store) => store.rot(prng),
            Store::Map(store) => store.rot(prng),
        }
    }

    /// Turns a bit over in the block of a client's delete that may be purged. Below it, in another
    /// table, is an older record of its key. True when there was one; a map has one cell of each
    /// key.
    pub fn rot_delete(&mut self, purge: u64, prng: &mut Prng) -> bool {
        match self {
            Store::Engine(store) => store.rot_delete(purge, prng),
            Store::Map(_) => false,
        }
    }

    /// Turns a bit over in a block with keys of clients alone, mostly in one with a wanted record.
    /// `is_wanted` gets its stored key and its version, as a dump prints them. True when there was
    /// a block.
    pub fn rot_block(
        &mut self,
        is_wanted: &dyn Fn(&str, &str) -> bool,
        now_ms: u64,
        prng: &mut Prng,
    ) -> bool {
        match self {
            Store::Engine(store) => store.rot_block(is_wanted, now_ms, prng),
            Store::Map(_) => false,
        }
    }

    /// The disk as a copy of it in use has it.
    pub fn image(&self) -> Disk {
        match self {
            Store::Engine(store) => Disk::Folder(store.image()),
            Store::Map(store) => {
                let mut copy = store.clone();
                copy.fail_reads(false);
                Disk::Cells(copy)
            }
        }
    }

    /// The state that is left on the disk. `in_flight` are the writes that a commit was about to
    /// make.
    pub fn crash(self, how: Crash, in_flight: &[StoreWrite], now_ms: u64, prng: &mut Prng) -> Disk {
        match self {
            Store::Engine(store) => Disk::Folder(store.crash(how, in_flight, now_ms, prng)),
            Store::Map(mut store) => {
                store.fail_reads(false);
                store.end_life();
                if prng.chance(1, 2) {
                    store.commit(in_flight, now_ms);
                }
                Disk::Cells(store)
            }
        }
    }
}

#[cfg(test)]
mod tests;
