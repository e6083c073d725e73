//! What does a point read cost that no disk and no network is part of?
//!
//! ```text
//! cargo bench -p dendra-engine --bench point_reads -- cache 1000000 5
//!
//! memtable   keys in the memtable                      then: how many keys, how many rounds
//! cache      keys in cached blocks
//! absent     keys between those of `cache`, which no table holds
//! ```
//!
//! One line for each round: nanoseconds a read. Compare two builds by runs that take turns; count
//! instructions with `perf stat -e instructions` over runs of different rounds.
//!
//! Invariants
//! 1. The keys, their order and the values are the same in every run.
//! 2. Every read is checked: a read that finds the wrong value ends the run.
//!
//! Not here: the cost of a request over HTTP (`make yardsticks`).
//! See: docs/lab/README.md.

use dendra_base::{CellRef, Key, Prng, Version};
use dendra_engine::vfs::{MemVfs, Wait};
use dendra_engine::{
    Batch, Durability, Engine, Guard, Identity, Lookup, Maintained, Maintenance, Options,
};
use std::sync::Arc;
use std::time::Instant;

const READS: u64 = 1_000_000;
const NOW_MS: u64 = 1_000;

fn key(id: u64) -> Key {
    Key::user(format!("key-{id:012}").as_bytes())
}

fn fill_value(id: u64, value: &mut [u8]) {
    Prng::new(id).fill(value);
}

fn open(vfs: &MemVfs, options: Options) -> Engine {
    let identity = Identity { node: 1, origin: 1 };
    Engine::open(Arc::new(vfs.clone()), options, identity).expect("memory is fine")
}

fn load(engine: &Engine, keys: u64) {
    let (mut batch, mut done) = (Batch::new(), Vec::new());
    let mut value = [0; 100];
    for n in 0..keys {
        // A stride that shares no factor with any round number: every key once, far from sorted.
        let id = n * 1_000_000_007 % keys;
        fill_value(id, &mut value);
        let stored = key(2 * id);
        let version = Version {
            hlc: n + 1,
            origin: 1,
            rmw: 0,
        };
        let cell = CellRef::value(stored.as_stored(), version, &value);
        batch
            .push(n, stored.as_stored(), &cell, Guard::Newest, NOW_MS)
            .expect("the record fits");
        if batch.len() == 1000 || n + 1 == keys {
            engine.submit(&mut batch).expect("the queue is empty");
            engine.commit(&mut done).expect("memory is fine");
            done.clear();
            settle(engine);
        }
    }
}

fn settle(engine: &Engine) {
    for lane in [Maintenance::Flush, Maintenance::Compact] {
        let step = || engine.maintain(lane, NOW_MS, 1 << 20);
        while step().expect("memory is fine") == Maintained::More {}
    }
}

fn main() {
    // `cargo bench` adds a flag of its own.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let [mode, keys, rounds] = &arguments[..] else {
        panic!("three arguments: memtable, cache or absent; keys; rounds");
    };
    let (keys, rounds): (u64, u64) = (
        keys.parse().expect("keys is a number"),
        rounds.parse().expect("rounds is a number"),
    );
    let vfs = MemVfs::new();
    let mut options = Options::for_memory(2 << 30, 1 << 20);
    options.durability = Durability::Os;
    if mode == "memtable" {
        options.memtable_bytes = 512 << 20;
    }
    let mut engine = open(&vfs, options.clone());
    load(&engine, keys);
    if mode != "memtable" {
        engine.close(NOW_MS).expect("memory is fine");
        settle(&engine);
        drop(engine);
        engine = open(&vfs, options);
    }
    println!("levels {:?}", engine.stats().levels);
    let mut prng = Prng::new(7);
    let stored: Vec<Key> = (0..READS)
        .map(|_| key(2 * prng.below(keys) + u64::from(mode == "absent")))
        .collect();
    for round in 0..=rounds {
        let start = Instant::now();
        let mut bytes = 0;
        for key in &stored {
            let seen = engine.get(key.as_stored(), Wait::Block, |cell| cell.value.len() as u64);
            match seen.expect("memory is fine") {
                Lookup::Cell(len) => bytes += len,
                Lookup::Nothing => assert_eq!(mode, "absent", "every key is there"),
                Lookup::WouldBlock => panic!("it may block"),
            }
        }
        let spent = start.elapsed();
        let expected = if mode == "absent" { 0 } else { 100 * READS };
        assert_eq!(bytes, expected, "every value has 100 bytes");
        // The first one fills the cache.
        if round > 0 {
            println!("{:.1}", spent.as_nanos() as f64 / READS as f64);
        }
    }
}
