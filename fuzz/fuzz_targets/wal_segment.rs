//! Log segments of any bytes: no panic, and never a record that is not whole.
//!
//! ```text
//! bytes --> Segment::from_bytes --> batches --> records, cells
//!      \--> as the only file of a folder --> wal::recover
//! ```
//!
//! Invariants
//! 1. A batch whose checksum holds lies inside the segment, and so does every record of it.
//!
//! Not here: seeds; start from `wal-format-1.log`, a fixture of crate engine.
//! See: docs/format/wal.md.

#![no_main]

use dendra_engine::formats::wal::{self, Segment};
use dendra_engine::vfs::mem::MemVfs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(segment) = Segment::from_bytes(1, data.to_vec()) {
        let mut batches = segment.batches();
        let mut at = 0;
        for batch in batches.by_ref() {
            assert!(at <= batch.offset && batch.offset + batch.body.len() <= data.len());
            at = batch.offset;
            let records = batch.records().filter_map(Result::ok);
            let bytes: usize = records
                .map(|record| record.stored_key.len() + record.encoded_cell.len())
                .sum();
            assert!(bytes <= batch.body.len());
        }
        assert!(batches.offset() <= data.len());
    }
    let vfs = MemVfs::new();
    vfs.install(&wal::segment_name(1), data);
    let outcome = wal::recover(&vfs, 1, 1, |_record| Ok(()));
    drop(outcome);
});
