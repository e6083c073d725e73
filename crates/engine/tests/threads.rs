//! Many threads on one engine: submitters, two kinds of committers, readers, background work.
//!
//! Invariants
//! 1. Every token comes back exactly once, from any thread that commits.
//! 2. A write that was answered is seen by every later read, also while memtables are sealed,
//!    flushed and compacted.
//! 3. Conditional increments lose no update.
//!
//! Not here: interleavings of the memtable's atomics (`memtable/interleavings.rs`).

use dendra_base::{CellRef, Condition, Version};
use dendra_engine::vfs::Wait;
use dendra_engine::vfs::mem::MemVfs;
use dendra_engine::{
    Batch, Durability, Engine, Guard, Identity, Lookup, Maintenance, Options, Stop, WriteOutcome,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

const WRITERS: u64 = 4;
const WRITES: u64 = 1500;

struct Bench {
    engine: Engine,
    hlc: AtomicU64,
    is_over: AtomicBool,
    work: (Mutex<bool>, Condvar),
    answers: Vec<Mutex<Sender<(u64, WriteOutcome)>>>,
}

impl Bench {
    fn new(durability: Durability) -> (Arc<Bench>, Vec<Receiver<(u64, WriteOutcome)>>) {
        let mut options = Options::for_tests();
        options.durability = durability;
        options.memtable_bytes = 8 << 10;
        options.level0_tables_trigger = 2;
        let identity = Identity { node: 5, origin: 5 };
        let engine =
            Engine::open(Arc::new(MemVfs::new()), options, identity).expect("a new folder opens");
        engine.raise_purge_horizon(Version::MAX);
        let (senders, receivers) = (0..WRITERS)
            .map(|_| channel())
            .unzip::<_, _, Vec<_>, Vec<_>>();
        let bench = Bench {
            engine,
            hlc: AtomicU64::new(1),
            is_over: AtomicBool::new(false),
            work: (Mutex::new(false), Condvar::new()),
            answers: senders.into_iter().map(Mutex::new).collect(),
        };
        (Arc::new(bench), receivers)
    }

    /// Writes one value under its guard and waits for the outcome.
    fn write(
        &self,
        writer: u64,
        key: &[u8],
        value: &[u8],
        guard: Guard,
        answers: &Receiver<(u64, WriteOutcome)>,
    ) -> WriteOutcome {
        while self.engine.pressure().stop == Some(Stop::MemtablesFull) {
            std::thread::yield_now();
        }
        let hlc = self.hlc.fetch_add(1, Ordering::SeqCst);
        let version = Version {
            hlc,
            origin: 5,
            rmw: 0,
        };
        let mut batch = Batch::new();
        let token = writer << 32 | hlc;
        batch
            .push(token, key, &CellRef::value(key, version, value), guard, 1)
            .expect("the record fits");
        self.engine
            .submit(&mut batch)
            .expect("the queue holds a write per writer");
        if self.engine.options().durability == Durability::Os {
            let mut done = Vec::new();
            let is_done = self
                .engine
                .try_commit(&mut done)
                .expect("memory does not fail");
            self.answer(&done);
            if !is_done {
                self.wake();
            }
        } else {
            self.wake();
        }
        let (answered, outcome) = answers.recv().expect("the bench lives");
        assert_eq!(answered, token, "a writer has one write in flight");
        outcome
    }

    fn wake(&self) {
        *self.work.0.lock().expect("no holder panics") = true;
        self.work.1.notify_one();
    }

    fn answer(&self, done: &[(u64, WriteOutcome)]) {
        for (token, outcome) in done {
            let sender = self.answers[(token >> 32) as usize]
                .lock()
                .expect("no holder panics");
            sender.send((*token, *outcome)).expect("the writer waits");
        }
    }

    fn commit_loop(&self) {
        loop {
            {
                let mut has_work = self.work.0.lock().expect("no holder panics");
                while !*has_work {
                    if self.is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    has_work = self.work.1.wait(has_work).expect("no holder panics");
                }
                *has_work = false;
            }
            let mut done = Vec::new();
            self.engine.commit(&mut done).expect("memory does not fail");
            self.answer(&done);
        }
    }

    fn maintain_loop(&self, lane: Maintenance) {
        while !self.is_over.load(Ordering::SeqCst) {
            self.engine
                .maintain(lane, 1, 2 << 10)
                .expect("memory does not fail");
            std::thread::yield_now();
        }
    }

    fn read(&self, key: &[u8]) -> Option<(Version, Vec<u8>)> {
        let found = self
            .engine
            .get(key, Wait::Block, |cell| (cell.version, cell.value.to_vec()));
        match found.expect("nothing is damaged") {
            Lookup::Cell(found) => Some(found),
            Lookup::Nothing => None,
            Lookup::WouldBlock => panic!("a blocking read does not refuse"),
        }
    }
}

fn with_threads(
    durability: Durability,
    writer: impl Fn(&Bench, u64, Receiver<(u64, WriteOutcome)>) + Sync,
) {
    let (bench, receivers) = Bench::new(durability);
    std::thread::scope(|scope| {
        scope.spawn(|| bench.commit_loop());
        for lane in [Maintenance::Flush, Maintenance::Compact] {
            let bench = &bench;
            scope.spawn(move || bench.maintain_loop(lane));
        }
        let writers: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(number, answers)| {
                let (bench, writer) = (&bench, &writer);
                scope.spawn(move || writer(bench, number as u64, answers))
            })
            .collect();
        let results: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        bench.is_over.store(true, Ordering::SeqCst);
        bench.wake();
        bench.work.1.notify_all();
        for result in results {
            result.expect("a writer's checks hold");
        }
    });
    let stats = bench.engine.stats();
    assert!(stats.flushes > 3, "background work ran: {stats:?}");
}

fn every_answered_write_is_seen(durability: Durability) {
    with_threads(durability, |bench, number, answers| {
        let mut own: HashMap<Vec<u8>, Version> = HashMap::new();
        for round in 0..WRITES {
            let key = format!("\x10writer {number} key {}", round % 97).into_bytes();
            let value = round.to_le_bytes();
            let outcome = bench.write(number, &key, &value, Guard::Newest, &answers);
            let WriteOutcome::Applied { version } = outcome else {
                panic!("no guard, no refusal")
            };
            own.insert(key.clone(), version);
            let seen = bench.read(&key);
            assert_eq!(seen, Some((version, value.to_vec())), "key {key:?}");
        }
        for (key, version) in own {
            assert_eq!(bench.read(&key).map(|(v, _)| v), Some(version));
        }
    });
}

#[test]
fn every_write_answered_after_a_sync_is_seen() {
    every_answered_write_is_seen(Durability::Sync);
}

#[test]
fn every_write_answered_inline_is_seen() {
    every_answered_write_is_seen(Durability::Os);
}

#[test]
fn conditional_increments_lose_no_update() {
    let applied = AtomicU64::new(0);
    let key = b"\x10counter";
    with_threads(Durability::Os, |bench, number, answers| {
        for _ in 0..WRITES {
            let current = bench.read(key);
            let (guard, next) = match &current {
                None => (Guard::If(Condition::Absent), 1u64),
                Some((version, bytes)) => {
                    let count = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                    (Guard::If(Condition::Matches(*version)), count + 1)
                }
            };
            let mut value = next.to_le_bytes().to_vec();
            value.resize(64, 0);
            match bench.write(number, key, &value, guard, &answers) {
                WriteOutcome::Applied { version } => {
                    assert!(current.is_none_or(|(base, _)| version > base));
                    applied.fetch_add(1, Ordering::SeqCst);
                }
                WriteOutcome::GuardFailed { current } => assert!(current.is_some()),
                WriteOutcome::NotApplied | WriteOutcome::NoRoom | WriteOutcome::Crowded => {
                    panic!("memory does not fail")
                }
            }
            if number == 0 {
                let (_, bytes) = bench.read(key).expect("somebody wrote");
                let count = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                assert!(count >= 1);
            }
        }
        // The counter is the number of applied writes: the last reader checks it at the end.
        let (_, bytes) = bench.read(key).expect("somebody wrote");
        let count = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        assert!(count <= WRITERS * WRITES);
        assert!(count >= applied.load(Ordering::SeqCst).saturating_sub(WRITERS));
    });
    assert!(
        applied.load(Ordering::SeqCst) > WRITES,
        "most increments succeed"
    );
}
