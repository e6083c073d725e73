//! A dumb twin of the engine, and a driver that applies drawn operations to both.
//!
//! Invariants
//! 1. The twin is a `BTreeMap` of the newest cell per key: no log, no tables, no cleverness.
//! 2. Everything is drawn from one seed; a failure names it.

#![allow(
    dead_code,
    reason = "each test binary uses its own part of this driver"
)]

pub(crate) mod steps;

use dendra_base::{CellRef, Condition, Prng, Touch, Version};
use dendra_engine::vfs::{Vfs, Wait};
use dendra_engine::{
    Batch, Cursor, Direction, Durability, Engine, Error, Flow, Guard, Identity, Lookup, Maintained,
    Maintenance, Options, Progress, Show, WriteOutcome,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

pub(crate) const IDENTITY: Identity = Identity {
    node: 0x1234_5678_9abc_def0_1122_3344,
    origin: 7,
};

/// The state of a key in the twin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub version: Version,
    /// `None` = tombstone.
    pub value: Option<Vec<u8>>,
    pub expiry_ms: Option<u64>,
}

impl Known {
    pub(crate) fn is_live(&self, now_ms: u64) -> bool {
        self.value.is_some() && self.expiry_ms.is_none_or(|e| now_ms < e)
    }
}

pub(crate) type Twin = BTreeMap<Vec<u8>, Known>;

/// One write as drawn, before it meets the engine.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub key: Vec<u8>,
    pub known: Known,
    pub guard: Guard,
    /// It has the value that the key has: `known.value` is empty.
    pub is_touch: bool,
}

/// Memtables and tables of so many bytes: a few hundred small records make several levels.
pub(crate) fn layered_options(bytes: usize) -> Options {
    let mut options = Options::for_tests();
    options.memtable_bytes = bytes;
    options.value_bytes_max = 4 << 10;
    options.commit_queue_bytes_max = 8 << 10;
    options.segment_bytes = 12 << 10;
    options.table_bytes = bytes;
    options.level0_tables_trigger = 2;
    options
}

/// Draws settings small enough that a few hundred writes see every kind of background work.
pub(crate) fn draw_options(prng: &mut Prng) -> Options {
    use dendra_engine::Compression::{Lz4, None, Zstd};
    let mut options = Options::for_tests();
    let pick = |prng: &mut Prng, of: &[usize]| of[prng.below(of.len() as u64) as usize];
    options.memtable_bytes = pick(prng, &[2 << 10, 8 << 10, 32 << 10]);
    options.block_bytes = pick(prng, &[256, 512, 4096]);
    options.table_bytes = pick(prng, &[2 << 10, 8 << 10, 64 << 10]);
    options.filter_bits_per_key = pick(prng, &[0, 4, 10]);
    options.level0_tables_trigger = pick(prng, &[1, 2, 4]);
    options.level1_bytes = pick(prng, &[4 << 10, 32 << 10]) as u64;
    options.level_fanout = pick(prng, &[2, 4]) as u64;
    options.compression = [None, Lz4, Zstd][prng.below(3) as usize];
    options.compression_deepest = [None, Lz4, Zstd][prng.below(3) as usize];
    options.durability = if prng.chance(1, 4) {
        Durability::Os
    } else {
        Durability::Sync
    };
    with_cache(&mut options, pick(prng, &[64 << 10, 1 << 20]));
    options
}

/// Gives them the memory that leaves about `cache_bytes` for the cache.
pub(crate) fn with_cache(options: &mut Options, cache_bytes: usize) {
    options.memory_bytes = 0;
    let parts = options.split().sum();
    options.memory_bytes = parts + cache_bytes.max(parts / 15 + 1).max(options.memtable_bytes);
}

pub(crate) struct World {
    pub vfs: Arc<dyn Vfs>,
    pub options: Options,
    pub engine: Engine,
    pub twin: Twin,
    pub prng: Prng,
    pub now_ms: u64,
    pub keys: u64,
    hlc: u64,
    pub tolerates_faults: bool,
    /// Submitted and not answered: may or may not have happened.
    pub in_flight: Vec<Write>,
    /// One write in five has a version from the past. Only for engines that purge no record: no
    /// client may write below the purge horizon.
    pub has_late_writes: bool,
}

impl World {
    pub(crate) fn new(vfs: Arc<dyn Vfs>, options: Options, seed: u64) -> World {
        World::try_new(vfs, options, seed).expect("a new folder opens")
    }

    pub(crate) fn try_new(vfs: Arc<dyn Vfs>, options: Options, seed: u64) -> Result<World, Error> {
        let engine = Engine::open(vfs.clone(), options.clone(), IDENTITY)?;
        engine.raise_purge_horizon(Version::MAX);
        Ok(World {
            vfs,
            options,
            engine,
            twin: Twin::new(),
            prng: Prng::named(seed, "world"),
            now_ms: 1_000,
            keys: 60,
            hlc: 0,
            tolerates_faults: false,
            in_flight: Vec::new(),
            has_late_writes: false,
        })
    }

    pub(crate) fn draw_key(&mut self) -> Vec<u8> {
        let n = self.prng.below(self.keys);
        let mut key = vec![0x10];
        key.extend_from_slice(format!("key-{n:04}").as_bytes());
        // Some keys are prefixes of others, and some are binary.
        if n.is_multiple_of(7) {
            key.truncate(3 + (n % 5) as usize);
            key.push(n as u8);
        }
        key
    }

    /// A write with a fresh version.
    pub(crate) fn draw_write(&mut self) -> Write {
        self.now_ms += self.prng.below(5);
        let key = self.draw_key();
        self.hlc = (self.hlc + 1).max(self.now_ms << 16);
        let late = if self.has_late_writes && self.prng.chance(1, 5) {
            self.prng.below(50 << 16)
        } else {
            0
        };
        let version = Version {
            hlc: self.hlc - late,
            origin: 7,
            rmw: 0,
        };
        let is_delete = self.prng.chance(1, 4);
        let len = if self.prng.chance(1, 20) {
            3000
        } else {
            self.prng.below(80)
        };
        let mut value = vec![0; len as usize];
        self.prng.fill(&mut value);
        let expiry_ms =
            (!is_delete && self.prng.chance(1, 8)).then(|| self.now_ms + self.prng.below(200));
        let guard = match self.prng.below(12) {
            0 => Guard::If(Condition::Absent),
            1 => Guard::If(Condition::Present),
            2 | 3 => {
                let of = self.twin.get(&key).map_or(Version::ZERO, |k| k.version);
                if self.prng.chance(1, 2) {
                    match len % 3 {
                        0 => Guard::If(Condition::matches_one_of(&[version, of])),
                        _ => Guard::If(Condition::Matches(of)),
                    }
                } else if len % 2 == 0 {
                    Guard::If(Condition::Differs(of))
                } else {
                    Guard::If(Condition::differs_from_all(&[version, of]))
                }
            }
            _ => Guard::Newest,
        };
        let mut known = Known {
            version,
            value: (!is_delete).then_some(value),
            expiry_ms,
        };
        let is_condition_of_touch =
            matches!(guard, Guard::If(Condition::Present | Condition::Matches(_)));
        let is_touch = is_condition_of_touch && self.prng.chance(2, 3);
        if is_touch {
            known.value = Some(Vec::new());
            known.expiry_ms = Some(self.now_ms + 1 + self.prng.below(400));
        }
        Write {
            key,
            known,
            guard,
            is_touch,
        }
    }

    /// The outcome that the twin predicts.
    pub(crate) fn expect(&self, write: &Write) -> WriteOutcome {
        let current = self.twin.get(&write.key);
        let live = current
            .filter(|k| k.is_live(self.now_ms))
            .map(|k| k.version);
        let holds = match &write.guard {
            Guard::Newest | Guard::If(Condition::None) => true,
            Guard::If(Condition::Present) => live.is_some(),
            Guard::If(Condition::Absent) => live.is_none(),
            Guard::If(Condition::Matches(v)) => live == Some(*v),
            Guard::If(Condition::Differs(v)) => live != Some(*v),
            Guard::If(Condition::MatchesOneOf(all)) => all.iter().any(|v| live == Some(*v)),
            Guard::If(Condition::DiffersFromAll(all)) => all.iter().all(|v| live != Some(*v)),
        };
        if !holds {
            return WriteOutcome::GuardFailed { current: live };
        }
        WriteOutcome::Applied {
            version: write.known.version,
        }
    }

    pub(crate) fn apply_to_twin(twin: &mut Twin, write: &Write, version: Version) {
        let mut known = Known {
            version,
            ..write.known.clone()
        };
        if write.is_touch {
            let current = twin.get(&write.key).expect("its guard held");
            known.value.clone_from(&current.value);
        }
        match twin.get(&write.key) {
            Some(current) if current.version >= version => {}
            _ => {
                twin.insert(write.key.clone(), known);
            }
        }
    }

    pub(crate) fn push(batch: &mut Batch, token: u64, write: &Write, now_ms: u64) {
        let known = &write.known;
        if write.is_touch {
            let touch = Touch {
                version: known.version,
                copies: 1,
                expiry_ms: known.expiry_ms.expect("it was drawn with one"),
                born: 0,
                checksum: 0,
                of: Version::ZERO,
            };
            batch
                .push_touch(token, &write.key, &touch, write.guard.clone(), now_ms)
                .expect("the record fits");
            return;
        }
        let cell = match &known.value {
            Some(value) => CellRef {
                expiry_ms: known.expiry_ms,
                ..CellRef::value(&write.key, known.version, value)
            },
            None => CellRef::tombstone(&write.key, known.version),
        };
        batch
            .push(token, &write.key, &cell, write.guard.clone(), now_ms)
            .expect("the record fits");
    }

    /// Commits one drawn batch and checks outcomes against the twin.
    pub(crate) fn step_writes(&mut self, count: u64) -> Result<(), Error> {
        let mut batch = Batch::new();
        let writes: Vec<Write> = (0..count).map(|_| self.draw_write()).collect();
        for (token, write) in writes.iter().enumerate() {
            Self::push(&mut batch, token as u64, write, self.now_ms);
        }
        self.engine
            .submit(&mut batch)
            .expect("the queue holds one batch");
        self.in_flight = writes.clone();
        let mut done = Vec::new();
        match self.engine.commit(&mut done) {
            Ok(()) => {}
            Err(error @ Error::Poisoned { .. }) => return Err(error),
            Err(error) => {
                let is_given_up = |o| matches!(o, WriteOutcome::NotApplied | WriteOutcome::NoRoom);
                let not_applied = done.iter().all(|(_, o)| is_given_up(*o));
                assert!(
                    not_applied && done.len() == writes.len(),
                    "{error}: nothing was written"
                );
                self.in_flight.clear();
                return Err(error);
            }
        }
        self.in_flight.clear();
        assert_eq!(done.len(), writes.len(), "every token comes back once");
        for (token, outcome) in done {
            let write = &writes[token as usize];
            let expected = self.expect(write);
            match (outcome, expected) {
                (WriteOutcome::Applied { version }, WriteOutcome::Applied { version: drawn }) => {
                    assert!(version >= drawn, "a guard may only raise a version");
                    Self::apply_to_twin(&mut self.twin, write, version);
                }
                // A guard that could not read its key: only under injected faults.
                (WriteOutcome::NotApplied, _) if self.tolerates_faults => {}
                // Memtables are small here, and hold few of the touched values of one commit.
                (WriteOutcome::Crowded, WriteOutcome::Applied { .. }) if write.is_touch => {}
                (outcome, expected) => assert_eq!(outcome, expected, "{write:?}"),
            }
        }
        Ok(())
    }

    pub(crate) fn maintain(
        &mut self,
        lane: Maintenance,
        budget_bytes: usize,
    ) -> Result<Maintained, Error> {
        self.engine.set_ended_ms(self.now_ms);
        self.engine.maintain(lane, self.now_ms, budget_bytes)
    }

    /// The record of a key as a client sees it. The first read does not wait for the disk, as an
    /// event loop asks; when that is refused, the second one waits.
    pub(crate) fn seen(&self, engine: &Engine, key: &[u8]) -> Option<(Version, Vec<u8>)> {
        for wait in [Wait::Never, Wait::Block] {
            let found = engine.get(key, wait, |cell| {
                assert!(cell.is_intact(key), "the checksum belongs to key and value");
                live_part(&cell, self.now_ms)
            });
            match found.expect("nothing is damaged") {
                Lookup::Cell(live) => return live,
                Lookup::Nothing => return None,
                Lookup::WouldBlock => assert_eq!(wait, Wait::Never, "a blocking read waits"),
            }
        }
        unreachable!("a blocking read finds out")
    }

    pub(crate) fn check_key(&self, key: &[u8]) {
        let found = self.seen(&self.engine, key);
        assert_eq!(
            found,
            self.twin_live(key),
            "key {:?}",
            String::from_utf8_lossy(key)
        );
    }

    fn twin_live(&self, key: &[u8]) -> Option<(Version, Vec<u8>)> {
        let known = self.twin.get(key).filter(|k| k.is_live(self.now_ms))?;
        Some((
            known.version,
            known.value.clone().expect("live values have bytes"),
        ))
    }

    pub(crate) fn check_all_keys(&self) {
        for key in self.twin.keys() {
            self.check_key(key);
        }
        self.check_key(b"\x10never written");
    }

    /// Scans a drawn range in drawn chunks and compares with the twin.
    pub(crate) fn check_scan(&mut self) {
        let (a, b) = (self.draw_key(), self.draw_key());
        let start = match self.prng.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(a.clone()),
            _ => Bound::Excluded(a.clone()),
        };
        let end = match self.prng.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(b.clone()),
            _ => Bound::Excluded(b.clone()),
        };
        let direction = if self.prng.chance(1, 2) {
            Direction::Forward
        } else {
            Direction::Backward
        };
        let budget = 1 + self.prng.below(2000) as usize;
        let found = self
            .scan(start.clone(), end.clone(), direction, budget)
            .expect("nothing is damaged");
        let inside = |key: &[u8]| {
            let after = match &start {
                Bound::Unbounded => true,
                Bound::Included(s) => key >= s.as_slice(),
                Bound::Excluded(s) => key > s.as_slice(),
            };
            let before = match &end {
                Bound::Unbounded => true,
                Bound::Included(e) => key <= e.as_slice(),
                Bound::Excluded(e) => key < e.as_slice(),
            };
            after && before
        };
        let mut expected: Vec<(Vec<u8>, Version, Vec<u8>)> = self
            .twin
            .keys()
            .filter(|k| inside(k))
            .filter_map(|k| self.twin_live(k).map(|(v, value)| (k.clone(), v, value)))
            .collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(found, expected, "scan {start:?} .. {end:?} {direction:?}");
    }

    pub(crate) fn scan(
        &self,
        start: Bound<Vec<u8>>,
        end: Bound<Vec<u8>>,
        direction: Direction,
        budget: usize,
    ) -> Result<Vec<(Vec<u8>, Version, Vec<u8>)>, Error> {
        let mut cursor = Cursor::new(
            start,
            end,
            direction,
            Show::Live {
                now_ms: self.now_ms,
            },
        );
        let mut found = Vec::new();
        loop {
            let mut damaged = None;
            let progress = self.engine.scan(&mut cursor, budget, |key, cell| {
                if !cell.is_intact(key) {
                    damaged = Some(key.to_vec());
                }
                found.push((key.to_vec(), cell.version, cell.value.to_vec()));
                Flow::Continue
            })?;
            if let Some(key) = damaged {
                // As a server does, which checks each value that it shows.
                let reason = format!("the value of {} does not match", key.escape_ascii());
                let (file, offset) = ("a touch".to_owned(), 0);
                return Err(Error::Damaged {
                    file,
                    offset,
                    reason,
                });
            }
            if progress == Progress::Done {
                return Ok(found);
            }
        }
    }

    /// After a crash: every key shows the acknowledged write, or the one in flight.
    pub(crate) fn check_survivors(&mut self, engine: &Engine) {
        for key in self
            .twin
            .keys()
            .chain(self.in_flight.iter().map(|w| &w.key))
        {
            let found = self.seen(engine, key);
            let acknowledged = self.twin_live(key);
            let is_in_flight = self.in_flight.iter().filter(|w| w.key == *key).any(|w| {
                let live = Some(&w.known).filter(|k| k.is_live(self.now_ms));
                if w.is_touch
                    && let (Some(_), Some((version, bytes))) = (live, &found)
                {
                    // Of an acknowledged write, or of one in flight in front of it.
                    let in_flight = self.in_flight.iter().filter(|w| w.key == *key);
                    let values = in_flight.filter_map(|w| w.known.value.as_ref());
                    let mut values =
                        values.chain(self.twin.get(key).and_then(|k| k.value.as_ref()));
                    return *version >= w.known.version && values.any(|value| value == bytes);
                }
                match (live.and_then(|k| k.value.as_ref()), &found) {
                    // A guard may have raised the version.
                    (Some(value), Some((version, bytes))) => {
                        value == bytes && *version >= w.known.version
                    }
                    (None, None) => true,
                    _ => false,
                }
            });
            assert!(
                found == acknowledged || is_in_flight,
                "key {:?}: found {found:?}, acknowledged {acknowledged:?}, in flight {:?}",
                String::from_utf8_lossy(key),
                self.in_flight
            );
        }
    }

    /// Drops the engine as it is and opens the folder again.
    pub(crate) fn reopen(mut self) -> World {
        drop(self.engine);
        self.engine = Engine::open(self.vfs.clone(), self.options.clone(), IDENTITY)
            .expect("a folder that was left in peace opens");
        self.engine.raise_purge_horizon(Version::MAX);
        self
    }
}

/// The part of a cell that a client would see.
pub(crate) fn live_part(cell: &CellRef<'_>, now_ms: u64) -> Option<(Version, Vec<u8>)> {
    cell.is_live(now_ms)
        .then(|| (cell.version, cell.value.to_vec()))
}
