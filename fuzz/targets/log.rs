//! A log segment of any bytes: recovered, or refused with a reason.
#![no_main]

use dendra_engine::vfs::MemVfs;
use dendra_engine::wal::{self, Segment};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let vfs = MemVfs::new();
    vfs.install(&wal::segment_name(1), bytes);
    let mut records = 0;
    let recovered = wal::recover(&vfs, 0, 1, |record| {
        assert!(!record.stored_key.is_empty());
        records += 1;
        Ok(())
    });
    match recovered {
        Ok(recovery) => assert_eq!(recovery.records, records),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(segment) = Segment::from_bytes(1, bytes.to_vec()) {
        for batch in segment.batches() {
            std::hint::black_box(batch);
        }
    }
});
