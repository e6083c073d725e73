//! Manifests and their edits of any bytes: no panic, and an edit that decodes encodes to itself.
//!
//! ```text
//! bytes --> Edit::decode --> encode = bytes, apply to an empty folder
//!      \--> as a file --> manifest::replay --> a folder, or a sentence
//! ```
//!
//! Invariants
//! 1. What is damaged is an error with a reason, never a panic and never an invented table.
//!
//! Not here: tables and segments that a manifest names (`table_file.rs`, `wal_segment.rs`).
//! See: docs/format/manifest.md.

#![no_main]

use dendra_engine::formats::manifest::{self, Edit, Folder};
use dendra_engine::vfs::mem::MemVfs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(edit) = Edit::decode(data) {
        let mut encoded = Vec::new();
        edit.encode(&mut encoded);
        assert_eq!(encoded, data);
        let mut folder = Folder::new();
        if folder.apply(edit).is_ok() {
            let mut encoded = Vec::new();
            folder.snapshot().encode(&mut encoded);
            assert!(Edit::decode(&encoded).is_ok());
        }
    }
    let vfs = MemVfs::new();
    vfs.install(&manifest::file_name(1), data);
    let outcome = manifest::replay(&vfs, 1, 0);
    drop(outcome);
});
