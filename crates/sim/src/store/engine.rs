//! The real engine on a folder in memory, behind a disk that fails when it is told to.
//!
//! ```text
//! engine ─► FaultyVfs (EIO once) ─► MemVfs (power loss at any operation, full, rotten)
//! ```
//!
//! Invariants
//! 1. Options are drawn so that a few dozen writes see a flush, and a few hundred a compaction.
//! 2. It purges by horizons alone, and no cell until one is raised.
//!
//! Not here: the engine's own crash tests, which visit every operation (crates/engine/tests).

use super::table_dump::TableDump;
use super::{Crash, Fate, PageRange, StoreWrite, StoredRange, WriteResult};
use crate::plan::{RunShape, pick};
use dendra_base::peer::Readiness;
use dendra_base::{Cell, Key, Prng, Space};
use dendra_engine::check::{FindingKind, check_folder};
use dendra_engine::dump::dump_file;
use dendra_engine::vfs::faulty::{Call, CallFailure, Repeat};
use dendra_engine::vfs::{FaultyVfs, MemVfs, Vfs, Wait};
use dendra_engine::{
    Batch, Compression, Cursor, Direction, Engine, Error, Flow, Identity, IsForeign, Lookup,
    Maintained, Maintenance, Options, Progress, Show, WriteOutcome,
};
use dendra_node::step::{LostSpan, Paged, StoreFailure, StoreOutcome};
use std::ops::Bound;
use std::sync::Arc;

/// An engine and the folder below it.
pub struct EngineStore {
    vfs: MemVfs,
    faulty: FaultyVfs,
    engine: Engine,
}

/// A pass over all tables begins so long after the one before it.
const SCRUB_EVERY_MS: u64 = 1_000;

fn draw_options(shape: &RunShape) -> Options {
    let mut prng = Prng::named(shape.engine_seed, "engine options");
    let prng = &mut prng;
    let mut options = Options::for_tests();
    options.memtable_bytes = pick(prng, &[2 << 10, 4 << 10, 16 << 10]);
    options.segment_bytes = 16 << 10;
    options.commit_queue_bytes_max = 12 << 10;
    // The longest value of a plan, and the hint that carries it.
    options.value_bytes_max = 4 << 10;
    options.block_bytes = pick(prng, &[256, 512, 4096]);
    options.table_bytes = pick(prng, &[2 << 10, 8 << 10]);
    options.filter_bits_per_key = pick(prng, &[0, 10]);
    options.level0_tables_trigger = pick(prng, &[1, 2, 4]);
    if let Some(tables) = shape.level0_tables {
        options.level0_tables_trigger = tables;
    }
    options.level1_bytes = pick(prng, &[4 << 10, 32 << 10]);
    options.level_fanout = pick(prng, &[2, 4]);
    options.compression = pick(prng, &[Compression::None, Compression::Lz4]);
    options.compression_deepest = options.compression;
    options
}

impl EngineStore {
    /// The engine's answer to a write now, in the node's words.
    pub(super) fn readiness(&self) -> Readiness {
        Readiness::of(self.engine.pressure().stop)
    }

    /// Should work that can wait do so?
    pub(super) fn is_strained(&self) -> bool {
        self.engine.pressure().is_strained()
    }

    pub(super) fn open(
        vfs: MemVfs,
        shape: &RunShape,
        identity: Identity,
    ) -> Result<EngineStore, String> {
        let faulty = FaultyVfs::new(Arc::new(vfs.clone()));
        let engine = Engine::open(Arc::new(faulty.clone()), draw_options(shape), identity)
            .map_err(|error| error.to_string())?;
        Ok(EngineStore {
            vfs,
            faulty,
            engine,
        })
    }

    pub(super) fn hlc_floor(&self) -> u64 {
        self.engine.hlc_floor()
    }

    pub(super) fn raise_hlc_ceiling(&self, hlc: u64) {
        self.engine.raise_hlc_ceiling(hlc);
    }

    pub(super) fn read(&self, key: &Key) -> Result<Option<Cell>, StoreFailure> {
        let found = self.engine.get(key.as_stored(), Wait::Block, |cell| {
            cell.is_intact(key.as_stored()).then(|| cell.to_owned())
        });
        match found {
            Ok(Lookup::Cell(Some(cell))) => Ok(Some(cell)),
            Ok(Lookup::Nothing) => Ok(None),
            // The checksum did not hold, or the disk did not answer: the cell is not known.
            Ok(Lookup::Cell(None)) => Err(StoreFailure::Damaged),
            Ok(Lookup::WouldBlock) => Err(StoreFailure::Busy),
            Err(error) => Err(unread(&error)),
        }
    }

    pub(super) fn page(&self, range: &PageRange) -> Paged {
        let space = range.start.as_stored()[0];
        let start = range.start.as_stored().to_vec();
        let end = range.end.as_ref().map(|key| key.as_stored().to_vec());
        let (low, high, direction) = if range.is_reverse {
            (
                Bound::Included(end.unwrap_or_else(|| vec![space])),
                Bound::Excluded(start),
                Direction::Backward,
            )
        } else {
            (
                Bound::Included(start),
                Bound::Excluded(end.unwrap_or_else(|| vec![space + 1])),
                Direction::Forward,
            )
        };
        let mut cursor = Cursor::new(low, high, direction, Show::All);
        let (mut records, mut seen, mut is_intact) = (Vec::new(), 0, true);
        let key_of = |stored: &[u8]| {
            let of = Space::from_byte(stored[0]).expect("a page stays within its space");
            Key::new(of, &stored[1..])
        };
        let bytes = range.bytes as usize;
        let progress = self.engine.scan(&mut cursor, bytes, |stored, cell| {
            is_intact = cell.is_intact(stored);
            if !is_intact {
                return Flow::Stay;
            }
            seen += stored.len() + cell.encoded_len();
            records.push((key_of(stored), cell.to_owned()));
            if seen >= bytes {
                Flow::Pause
            } else {
                Flow::Continue
            }
        });
        let behind = |key: &[u8]| key_of(&[key, &[0]].concat());
        let next = match (cursor.position(), range.is_reverse) {
            (Bound::Included(key), false) | (Bound::Excluded(key), true) => key_of(key),
            (Bound::Excluded(key), false) | (Bound::Included(key), true) => behind(key),
            (Bound::Unbounded, _) => range.start.clone(),
        };
        let is_over = matches!(progress, Ok(Progress::Done));
        let failure = match progress {
            Ok(_) if !is_intact => Some(StoreFailure::Damaged),
            Ok(_) => None,
            Err(error) => Some(unread(&error)),
        };
        // As the server does: a page ends in front of damage.
        match failure {
            Some(StoreFailure::Damaged) if next != range.start => Ok((records, Some(next))),
            Some(failure) => Err(failure),
            None => Ok((records, (!is_over).then_some(next))),
        }
    }

    pub(super) fn commit(
        &mut self,
        writes: &[StoreWrite],
        now_ms: u64,
    ) -> (Fate, Vec<WriteResult>) {
        let mut results: Vec<WriteResult> = vec![Err(StoreFailure::Busy); writes.len()];
        let mut batch = Batch::new();
        for (at, write) in writes.iter().enumerate() {
            let guard = write.guard.clone();
            let cell = write.cell.as_ref();
            batch
                .push(at as u64, write.key.as_stored(), &cell, guard, now_ms)
                .expect("the record fits");
            if self.engine.submit(&mut batch).is_err() {
                // The queue of the log is full: its writes go first.
                if self.flush_queue(&mut results) == Fate::Dead {
                    return (Fate::Dead, results);
                }
                let again = self.engine.submit(&mut batch);
                assert!(again.is_ok(), "an empty queue takes one write");
            }
        }
        let fate = self.flush_queue(&mut results);
        (fate, results)
    }

    fn flush_queue(&mut self, results: &mut [WriteResult]) -> Fate {
        let mut done = Vec::new();
        let committed = self.engine.commit(&mut done);
        for (at, outcome) in done {
            results[at as usize] = match outcome {
                WriteOutcome::Applied { version } => Ok(StoreOutcome::Applied { version }),
                WriteOutcome::GuardFailed { current } => Ok(StoreOutcome::GuardFailed { current }),
                WriteOutcome::Crowded => Err(StoreFailure::Busy),
                WriteOutcome::NotApplied => Err(StoreFailure::NotApplied),
                WriteOutcome::NoRoom => Err(StoreFailure::DiskFull),
            };
        }
        self.fate(committed.err())
    }

    fn fate(&self, error: Option<Error>) -> Fate {
        let is_poisoned = matches!(error, Some(Error::Poisoned { .. }));
        if is_poisoned || self.vfs.has_crashed() {
            Fate::Dead
        } else {
            Fate::Alive
        }
    }

    pub(super) fn maintain(&mut self, budget_bytes: usize, now_ms: u64, ended_ms: u64) -> Fate {
        self.engine.set_ended_ms(ended_ms);
        for lane in [Maintenance::Flush, Maintenance::Compact] {
            let mut slices = 0;
            loop {
                let result = self.engine.maintain(lane, now_ms, budget_bytes);
                let fate = self.fate(result.as_ref().err().map(|_| Error::Full { free_bytes: 0 }));
                let is_poisoned = matches!(result, Err(Error::Poisoned { .. }));
                if fate == Fate::Dead || is_poisoned {
                    return Fate::Dead;
                }
                slices += 1;
                // Some work stays for the next time, so that a crash finds it half done.
                if !matches!(result, Ok(Maintained::More)) || slices >= 4 {
                    break;
                }
            }
        }
        Fate::Alive
    }

    pub(super) fn raise_age_horizon(&self, clock: u64, copies: u8) {
        self.engine.raise_age_horizon(clock, copies);
    }

    pub(super) fn drop_foreign(&self, is_foreign: Arc<IsForeign>) {
        self.engine.drop_foreign(is_foreign);
    }

    pub(super) fn ends_dropping(&self, is_over: bool) -> bool {
        let is_done = self.engine.foreign_left() == Some(0);
        if is_done || is_over {
            self.engine.keep_foreign();
        }
        is_done
    }

    pub(super) fn scrub(&mut self, budget_bytes: u64, now_ms: u64) -> Fate {
        let slice = self.engine.scrub(now_ms, SCRUB_EVERY_MS, budget_bytes);
        self.fate(slice.err())
    }

    pub(super) fn lost_spans(&self) -> Vec<LostSpan> {
        let spans = self.engine.damaged_spans().into_iter();
        let lost = spans.map(|span| LostSpan {
            id: span.id,
            block: span.block(),
            first: span.first.into(),
            last: span.last.into(),
        });
        lost.collect()
    }

    pub(super) fn repaired(&self, id: u64) {
        for span in self.engine.damaged_spans() {
            if span.id == id {
                self.engine.repaired(&span);
            }
        }
    }

    pub(super) fn repair_waits(&self, id: u64, waits: bool) {
        for span in self.engine.damaged_spans() {
            match waits {
                true if span.id == id => self.engine.repair_waits(&span),
                false if span.id == id => self.engine.repair_goes_on(&span),
                _ => {}
            }
        }
    }

    /// Damage in tables that another member could have repaired. A hole waits for a table with a
    /// hopeless block: that one cannot be written anew.
    pub(super) fn damage_left(&self) -> Option<String> {
        let report = check_folder(&self.vfs.process_crash_image()).ok()?;
        let hopeless = self.engine.damaged_spans().into_iter();
        let hopeless: Vec<String> = hopeless
            .filter(|span| span.first.first() == Some(&Space::Meta.byte()))
            .map(|span| span.file())
            .collect();
        let left = report
            .findings
            .into_iter()
            .filter(|it| it.file.ends_with(".tbl") && !hopeless.contains(&it.file))
            .find(|it| hopeless.is_empty() || it.kind != FindingKind::Hole);
        left.map(|it| format!("{it:?}"))
    }

    pub(super) fn arm_power_cut(&self, after: u64) {
        self.vfs.crash_at(self.vfs.operations() + after);
    }

    pub(super) fn fail_next_sync(&self) {
        let next = self.faulty.calls().of(Call::Sync);
        self.faulty
            .fail(Call::Sync, next, CallFailure::Io, Repeat::Once);
    }

    pub(super) fn fail_reads(&self, fails_reads: bool) {
        self.faulty.heal();
        if fails_reads {
            let next = self.faulty.calls().of(Call::Read);
            self.faulty
                .fail(Call::Read, next, CallFailure::Io, Repeat::Onwards);
        }
    }

    pub(super) fn heal(&self) {
        self.vfs.crash_at(u64::MAX);
        self.faulty.heal();
        self.set_room(None);
    }

    pub(super) fn set_room(&self, bytes: Option<u64>) {
        let room = self.vfs.room();
        let used = room.map_or(0, |room| room.total_bytes - room.free_bytes);
        // Not all of it: the real default is a number that the folder treats as "no limit".
        self.vfs
            .set_capacity(bytes.map_or(1 << 39, |bytes| used + bytes));
    }

    pub(super) fn rot(&self, prng: &mut Prng) -> bool {
        let names = self.vfs.names();
        let tables: Vec<&String> = names.iter().filter(|name| name.ends_with(".tbl")).collect();
        if tables.is_empty() {
            return false;
        }
        let name = tables[prng.below(tables.len() as u64) as usize];
        let bits = self
            .vfs
            .file_bytes(name)
            .map_or(0, |bytes| 8 * bytes.len() as u64);
        if bits == 0 {
            return false;
        }
        for _ in 0..1 + prng.below(3) {
            self.vfs.flip_bit(name, prng.below(bits));
        }
        true
    }

    pub(super) fn rot_delete(&self, purge: u64, prng: &mut Prng) -> bool {
        // As the text of a version begins.
        let purge = format!("{:016x}", purge + 1);
        let names = self.vfs.names();
        let tables = names.iter().filter(|name| name.ends_with(".tbl"));
        let tables: Vec<(&String, TableDump)> = tables
            .filter_map(|name| Some((name, dump_of(&self.vfs, name)?)))
            .collect();
        let mut blocks = Vec::new();
        for (at, (name, table)) in tables.iter().enumerate() {
            let deletes = table.records.iter().filter(|record| record.is_delete);
            for delete in deletes.filter(|delete| delete.version < purge) {
                let mut others = tables.iter().enumerate().filter(|(other, _)| *other != at);
                let is_above = others.any(|(_, (_, other))| {
                    let mut records = other.records.iter();
                    records.any(|it| it.key == delete.key && it.version < delete.version)
                });
                let block = table.blocks.iter().find(|block| block.up_to >= delete.key);
                blocks.extend(block.filter(|_| is_above).map(|block| (*name, block)));
            }
        }
        if blocks.is_empty() {
            return false;
        }
        let (name, block) = blocks[prng.below(blocks.len() as u64) as usize];
        self.vfs
            .flip_bit(name, 8 * block.offset + prng.below(8 * block.bytes));
        true
    }

    pub(super) fn rot_block(
        &mut self,
        is_wanted: &dyn Fn(&str, &str) -> bool,
        now_ms: u64,
        prng: &mut Prng,
    ) -> bool {
        // An operator's backup brings everything into tables, too. A disk that is full has none.
        if self.engine.close(now_ms).is_err() {
            return false;
        }
        let names = self.vfs.names().into_iter();
        let tables = names.filter(|name| name.ends_with(".tbl"));
        let mut blocks = Vec::new();
        for name in tables {
            let Some(table) = dump_of(&self.vfs, &name) else {
                continue;
            };
            for (block, records) in table.blocks_of_clients() {
                let mut wanted = records.iter().filter(|it| is_wanted(&it.key, &it.version));
                blocks.push((
                    wanted.next().is_some(),
                    name.clone(),
                    block.offset,
                    block.bytes,
                ));
            }
        }
        if blocks.iter().any(|(is_first, ..)| *is_first) && prng.chance(7, 8) {
            blocks.retain(|(is_first, ..)| *is_first);
        }
        if blocks.is_empty() {
            return false;
        }
        let (_, name, offset, bytes) = &blocks[prng.below(blocks.len() as u64) as usize];
        self.vfs.flip_bit(name, 8 * offset + prng.below(8 * bytes));
        true
    }

    pub(super) fn rot_between(
        &mut self,
        count: u64,
        may: &dyn Fn(&StoredRange) -> bool,
        now_ms: u64,
        prng: &mut Prng,
    ) -> Vec<StoredRange> {
        // As in `rot_block`.
        if self.engine.close(now_ms).is_err() {
            return Vec::new();
        }
        let names = self.vfs.names().into_iter();
        let mut blocks = Vec::new();
        for name in names.filter(|name| name.ends_with(".tbl")) {
            let Some(table) = dump_of(&self.vfs, &name) else {
                continue;
            };
            let of_clients = table.blocks_of_clients().into_iter();
            let of_clients: Vec<u64> = of_clients.map(|(block, _)| block.offset).collect();
            let mut above = &table.smallest;
            for block in &table.blocks {
                let range = (above.clone(), block.up_to.clone());
                above = &block.up_to;
                if of_clients.contains(&block.offset) && may(&range) {
                    blocks.push((name.clone(), block.offset, block.bytes, range));
                }
            }
        }
        let mut rotten = Vec::new();
        for _ in 0..count.min(blocks.len() as u64) {
            let at = prng.below(blocks.len() as u64) as usize;
            let (name, offset, bytes, range) = blocks.swap_remove(at);
            self.vfs.flip_bit(&name, 8 * offset + prng.below(8 * bytes));
            rotten.push(range);
        }
        rotten
    }

    pub(super) fn image(&self) -> MemVfs {
        self.vfs.process_crash_image()
    }

    pub(super) fn crash(
        mut self,
        how: Crash,
        in_flight: &[StoreWrite],
        now_ms: u64,
        prng: &mut Prng,
    ) -> MemVfs {
        if !in_flight.is_empty() && !self.vfs.has_crashed() && prng.chance(2, 3) {
            // In the middle of the commit that was under way.
            self.arm_power_cut(prng.below(4));
            self.commit(in_flight, now_ms);
        }
        match how {
            Crash::PowerLoss => self.vfs.crash_image(prng),
            Crash::Killed => self.vfs.process_crash_image(),
        }
    }
}

/// The dump of a table; `None` of one that cannot be read.
fn dump_of(vfs: &MemVfs, name: &str) -> Option<TableDump> {
    let mut text = Vec::new();
    dump_file(vfs, name, usize::MAX, &mut text).ok()?;
    TableDump::read(&String::from_utf8_lossy(&text))
}

/// Failure that the server tells its node for this error.
fn unread(error: &Error) -> StoreFailure {
    match error {
        Error::Damaged { .. } => StoreFailure::Damaged,
        _ => StoreFailure::NotApplied,
    }
}
