//! The bytes of a range of keys: never more than all of it, and near to it where the range is
//! large.
//!
//! ```text
//! three prefixes of incompressible values, 200, 100 and 0 of them ─► memory, tables, after compactions
//! ```
//!
//! Invariants
//! 1. The parts of a split range are never more than the whole range.
//!
//! Not here: the use of the bytes (crate `server`, `rights/`).

use dendra_base::{CellRef, Condition, Prng, Version};
use dendra_engine::vfs::{MemVfs, Vfs};
use dendra_engine::{Batch, Engine, Guard, Identity, Maintained, Maintenance, Options};
use std::sync::Arc;

const VALUE_BYTES: usize = 2_000;

struct Folder {
    engine: Engine,
    hlc: u64,
    draw: Prng,
}

impl Folder {
    fn new() -> Folder {
        let door: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        let identity = Identity { node: 1, origin: 1 };
        let engine = Engine::open(door, Options::for_tests(), identity).expect("it opens");
        Folder {
            engine,
            hlc: 0,
            draw: Prng::new(7),
        }
    }

    fn write(&mut self, prefix: &str, number: u64) {
        self.hlc += 1;
        let version = Version {
            hlc: self.hlc,
            origin: 1,
            rmw: 0,
        };
        let key = format!("\x10{prefix}{number:06}");
        let value: Vec<u8> = (0..VALUE_BYTES / 8)
            .flat_map(|_| self.draw.next_u64().to_le_bytes())
            .collect();
        let cell = CellRef::value(key.as_bytes(), version, &value);
        let mut batch = Batch::new();
        batch
            .push(
                self.hlc,
                key.as_bytes(),
                &cell,
                Guard::If(Condition::None),
                1,
            )
            .expect("it fits");
        assert!(self.engine.submit(&mut batch).is_ok(), "there is room");
        let mut done = Vec::new();
        self.engine.commit(&mut done).expect("the disk works");
    }

    fn settle(&self) {
        for lane in [Maintenance::Flush, Maintenance::Compact] {
            while self.engine.maintain(lane, 1, 64 << 10).expect("it works") == Maintained::More {}
        }
    }

    fn bytes(&self, from: &str, to: &str) -> u64 {
        let (from, to) = (format!("\x10{from}"), format!("\x10{to}"));
        let bytes = self.engine.bytes_between(from.as_bytes(), to.as_bytes());
        bytes.expect("nothing is read")
    }
}

#[test]
fn a_prefix_takes_about_what_was_written_under_it_in_memory_and_in_tables() {
    let mut folder = Folder::new();
    for n in 0..3 {
        folder.write("a/", n);
    }
    // In memory it is exact.
    assert_eq!(folder.bytes("a/", "a0"), 3 * (VALUE_BYTES as u64 + 9));
    assert_eq!(folder.bytes("a/000001", "a/000002"), VALUE_BYTES as u64 + 9);
    assert_eq!(folder.bytes("b/", "b0"), 0);
    for n in 0..200 {
        folder.write("a/", n);
        if n % 2 == 0 {
            folder.write("b/", n);
        }
        folder.settle();
    }
    let (a, b) = (200 * VALUE_BYTES as u64, 100 * VALUE_BYTES as u64);
    // Tables of the test's size have one partition each: one that lies across a border is left out.
    let (found_a, found_b) = (folder.bytes("a/", "a0"), folder.bytes("b/", "b0"));
    let all = folder.bytes("", "\x7f");
    assert!(
        (a * 6 / 10..=a * 12 / 10).contains(&found_a),
        "{found_a} of {a}"
    );
    assert!(
        (b * 6 / 10..=b * 12 / 10).contains(&found_b),
        "{found_b} of {b}"
    );
    assert!(found_a + found_b <= all, "{found_a} {found_b} {all}");
    assert_eq!(folder.bytes("c/", "c0"), 0);
    let halves = folder.bytes("a/", "a/000100") + folder.bytes("a/000100", "a0");
    assert!(halves <= found_a, "{halves} of {found_a}");
    assert!(halves >= found_a / 2, "{halves} of {found_a}");
}
