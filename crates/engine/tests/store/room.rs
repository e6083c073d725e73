//! Disks that fill: what is deleted comes back by itself, and values are taken again.
//!
//! ```text
//! put until the engine says full ─► delete ─► 30 s of maintenance ─► room, and values go on
//! ```
//!
//! Invariants
//! 1. No write comes but those that the test names, and time is that of the test.
//! 2. The disk never says that it is full but where a test makes it so from outside.
//!
//! Not here: disks that are full at a start (`full_disk.rs`), faults (`faults.rs`).
//! See: docs/operating.md, section "A full disk".

use crate::support::IDENTITY;
use crate::support::steps::{bytes_of, is_live};
use dendra_base::{CellRef, Prng, Version};
use dendra_engine::vfs::{MemVfs, Vfs};
use dendra_engine::{
    Batch, Compression, Engine, Guard, Maintained, Maintenance, Options, Stop, WriteOutcome,
};
use std::sync::Arc;

/// Until then a disk has to have its room back.
const PATIENCE_MS: u64 = 30_000;
/// The lanes rest as long as those of a node.
const TICK_MS: u64 = 500;

struct Node {
    vfs: MemVfs,
    options: Options,
    engine: Option<Engine>,
    now_ms: u64,
    hlc: u64,
    value: Vec<u8>,
    prng: Prng,
    /// Another program took the reserve, too.
    is_taken: bool,
}

impl Node {
    fn new(capacity: u64, value_bytes: usize) -> Node {
        let mut options = Options::for_tests();
        options.reserve_bytes = options.reserve_wanted();
        Node::with(capacity, value_bytes, options)
    }

    fn with(capacity: u64, value_bytes: usize, mut options: Options) -> Node {
        options.compression = Compression::None;
        options.compression_deepest = Compression::None;
        let vfs = MemVfs::new();
        vfs.set_capacity(capacity);
        let mut node = Node {
            vfs,
            options,
            engine: None,
            now_ms: 1_000_000,
            hlc: 0,
            value: vec![0; value_bytes],
            prng: Prng::new(capacity ^ value_bytes as u64),
            is_taken: false,
        };
        node.prng.fill(&mut node.value);
        node.open();
        node
    }

    fn open(&mut self) {
        drop(self.engine.take());
        let door: Arc<dyn Vfs> = Arc::new(self.vfs.clone());
        let engine = Engine::open(door, self.options.clone(), IDENTITY);
        let engine = engine.expect("it opens");
        engine.raise_purge_horizon(Version::MAX);
        self.engine = Some(engine);
        self.tend();
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("it is open")
    }

    /// The lanes run until both rest.
    fn tend(&mut self) {
        for _ in 0..100_000 {
            let (mut has_worked, mut has_failed) = (false, false);
            self.engine().set_ended_ms(self.now_ms);
            for lane in [Maintenance::Flush, Maintenance::Compact] {
                match self.engine().maintain(lane, self.now_ms, 1 << 20) {
                    Ok(done) => has_worked |= done == Maintained::More,
                    Err(error) => {
                        assert!(self.is_taken && error.is_no_space(), "{error}");
                        has_failed = true;
                    }
                }
            }
            // After an error a lane of a node rests, too.
            if !has_worked || has_failed {
                return;
            }
        }
        panic!("maintenance does not end");
    }

    fn is_full(&self) -> bool {
        self.engine().pressure().stop == Some(Stop::DiskFull)
    }

    fn write(&mut self, key: u64, value: Option<&[u8]>) -> WriteOutcome {
        self.hlc += 1;
        let version = Version {
            hlc: self.hlc,
            origin: 1,
            rmw: 0,
        };
        let key = name(key);
        let cell = match value {
            Some(value) => CellRef::value(&key, version, value),
            None => CellRef::tombstone(&key, version),
        };
        let mut batch = Batch::new();
        batch
            .push(0, &key, &cell, Guard::Newest, self.now_ms)
            .expect("it fits");
        self.engine()
            .submit(&mut batch)
            .expect("the queue is empty");
        let mut done = Vec::new();
        let committed = self.engine().commit(&mut done);
        committed.expect("the reserve has room for the log");
        let [(0, outcome)] = done[..] else {
            panic!("one outcome: {done:?}");
        };
        outcome
    }

    /// Puts new keys until values are refused; how many.
    fn fill(&mut self) -> u64 {
        let mut keys = 0;
        while !self.is_full() {
            let value = self.value.clone();
            let outcome = self.write(keys, Some(&value));
            assert!(matches!(outcome, WriteOutcome::Applied { .. }));
            keys += 1;
            if keys % 4 == 0 {
                self.tend();
            }
            assert!(keys < 1_000_000, "it never fills");
        }
        self.tend();
        keys
    }

    fn delete(&mut self, keys: impl Iterator<Item = u64>) {
        for (nth, key) in keys.enumerate() {
            assert!(matches!(
                self.write(key, None),
                WriteOutcome::Applied { .. }
            ));
            if nth % 64 == 0 {
                self.tend();
            }
        }
    }

    /// How long the disk stays full, in milliseconds.
    fn wait_for_room(&mut self) -> u64 {
        let began_ms = self.now_ms;
        while self.is_full() {
            assert!(
                self.now_ms < began_ms + PATIENCE_MS,
                "{:?}",
                self.engine().stats()
            );
            self.now_ms += TICK_MS;
            self.tend();
        }
        self.now_ms - began_ms
    }

    fn rest(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while self.now_ms < end_ms {
            self.now_ms += TICK_MS;
            self.tend();
        }
    }

    /// Bytes of tables.
    fn table_bytes(&self) -> u64 {
        let levels = self.engine().stats().levels;
        levels.iter().map(|(_, bytes)| bytes).sum()
    }
}

fn name(key: u64) -> Vec<u8> {
    let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("\x10{spread:016x}").into_bytes()
}

/// Disks and values of many sizes.
const SIZES: [(u64, usize); 7] = [
    (600 << 10, 100),
    (600 << 10, 1_000),
    (600 << 10, 20_000),
    (2 << 20, 300),
    (2 << 20, 4_000),
    (4 << 20, 1_000),
    (6 << 20, 30_000),
];

#[test]
fn deletes_give_the_room_of_a_full_disk_back_and_values_are_taken_again() {
    for (capacity, value_bytes) in SIZES {
        let mut node = Node::new(capacity, value_bytes);
        let keys = node.fill();
        let used = bytes_of(&node.vfs);
        assert!(
            used * 10 >= capacity * 6,
            "{used} of {capacity} bytes are used"
        );
        node.delete(0..keys);
        let took_ms = node.wait_for_room();
        node.rest(PATIENCE_MS - took_ms);
        let left = node.table_bytes();
        println!("{capacity} {value_bytes}: {keys} keys, {used} used, {took_ms} ms, {left} left");
        // A few tombstones of the end may wait in memory for a flush that is worth it.
        assert!(left * 50 <= capacity, "{capacity} {value_bytes}: {left}");
        let again = node.fill();
        assert!(again * 4 >= keys * 3, "{again} keys, and {keys} before");
    }
}

#[test]
fn a_part_that_is_deleted_gives_its_room_back() {
    for (capacity, value_bytes) in SIZES {
        for nth in [2, 8] {
            let mut node = Node::new(capacity, value_bytes);
            let keys = node.fill();
            let before = node.table_bytes();
            node.delete((0..keys).step_by(nth));
            node.rest(PATIENCE_MS);
            let after = node.table_bytes();
            println!("{capacity} {value_bytes} 1/{nth}: {before} bytes, {after} behind");
            let deleted = before / nth as u64;
            // What is left goes when the disk fills again.
            let is_enough = !node.is_full() || after <= before - deleted / 2;
            assert!(is_enough, "{before}, {after}");
            for key in 0..keys {
                let is_there = is_live(node.engine(), &name(key));
                assert_eq!(is_there, key % nth as u64 != 0, "key {key}");
            }
        }
    }
}

#[test]
fn values_that_were_overwritten_with_small_ones_give_their_room_back() {
    let mut node = Node::new(4 << 20, 4_000);
    let keys = node.fill();
    // Another program gives some room, for so long as it takes to overwrite.
    node.vfs.set_capacity(5 << 20);
    node.tend();
    for key in 0..keys {
        let outcome = node.write(key, Some(b"small"));
        assert!(matches!(outcome, WriteOutcome::Applied { .. }));
    }
    node.vfs.set_capacity(4 << 20);
    node.tend();
    for key in keys..keys + keys * 3 / 4 {
        node.wait_for_room();
        let value = node.value.clone();
        node.write(key, Some(&value));
        node.tend();
    }
}

#[test]
fn values_that_have_ended_give_their_room_back_on_a_full_disk() {
    let mut node = Node::new(2 << 20, 4_000);
    let mut keys = 0;
    while !node.is_full() {
        node.hlc += 1;
        let version = Version {
            hlc: node.hlc,
            origin: 1,
            rmw: 0,
        };
        let key = name(keys);
        let mut cell = CellRef::value(&key, version, &node.value);
        cell.expiry_ms = Some(node.now_ms + 60_000);
        let mut batch = Batch::new();
        batch
            .push(0, &key, &cell, Guard::Newest, node.now_ms)
            .expect("it fits");
        node.engine()
            .submit(&mut batch)
            .expect("the queue is empty");
        node.engine().commit(&mut Vec::new()).expect("it works");
        node.tend();
        keys += 1;
    }
    node.rest(59_000);
    assert!(node.is_full());
    node.rest(2 * 60_000);
    assert!(!node.is_full());
}

#[test]
fn a_restart_on_a_full_disk_of_deletes_has_room_soon() {
    for (capacity, value_bytes) in SIZES {
        let mut node = Node::new(capacity, value_bytes);
        let keys = node.fill();
        node.delete(0..keys);
        node.vfs = {
            drop(node.engine.take());
            let image = node.vfs.process_crash_image();
            image.set_capacity(capacity);
            image
        };
        node.open();
        let took_ms = node.wait_for_room();
        node.rest(PATIENCE_MS - took_ms);
        let left = node.table_bytes();
        println!("{capacity} {value_bytes}: {took_ms} ms, {left} left");
        assert_eq!(left, 0);
    }
}

#[test]
fn a_disk_that_another_program_filled_to_the_last_byte_gets_room_from_deletes() {
    for (capacity, value_bytes) in SIZES {
        let mut node = Node::new(capacity, value_bytes);
        let keys = node.fill();
        node.vfs.set_capacity(bytes_of(&node.vfs));
        node.is_taken = true;
        node.tend();
        node.delete(0..keys);
        let full = node.table_bytes();
        node.rest(PATIENCE_MS);
        let left = node.table_bytes();
        assert!(left * 20 <= full, "{left} bytes of {full} are left");
        // The room that it got is the node's own until then.
        let outcome = node.write(keys, None);
        assert!(matches!(outcome, WriteOutcome::Applied { .. }));
    }
}

#[test]
fn deletes_are_flushed_when_writes_rest_on_a_disk_with_room_too() {
    let mut node = Node::new(64 << 20, 4_000);
    for key in 0..200 {
        let value = node.value.clone();
        node.write(key, Some(&value));
        node.tend();
    }
    node.delete(0..200);
    assert!(!node.is_full());
    node.rest(15_000);
    assert_eq!(node.table_bytes(), 0);
}

#[test]
fn a_full_disk_at_rest_does_no_work() {
    let mut node = Node::new(2 << 20, 1_000);
    let keys = node.fill();
    node.delete((0..keys).step_by(300));
    node.rest(120_000);
    let before = node.engine().stats();
    node.rest(600_000);
    let after = node.engine().stats();
    assert_eq!(before.compaction_write_bytes, after.compaction_write_bytes);
    assert_eq!(before.flushes, after.flushes);
    assert_eq!(before.log_segments, after.log_segments);
}
