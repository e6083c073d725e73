//! Table files of any bytes: no panic, and what passes the whole check reads and prints.
//!
//! ```text
//! bytes --> as a file --> Table::open_unknown --> verify --> describe
//! ```
//!
//! Invariants
//! 1. Damage is an error with a reason, never a panic and never a record out of order.
//!
//! Not here: seeds; start from `table-format-1.tbl`, a fixture of crate engine.
//! See: docs/format/table.md.

#![no_main]

use dendra_engine::formats::table::{self, Table};
use dendra_engine::vfs::mem::MemVfs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let vfs = MemVfs::new();
    let name = table::file_name(1);
    vfs.install(&name, data);
    let Ok(table) = Table::open_unknown(&vfs, &name) else {
        return;
    };
    let mut last_key = Vec::new();
    let verdict = table.verify(|key, _cell| {
        assert!(
            last_key.as_slice() < key,
            "keys come in order, or not at all"
        );
        last_key = key.to_vec();
        Ok(())
    });
    let printed = table::describe(&vfs, &name, &mut std::io::sink(), usize::MAX);
    assert!(verdict.is_err() || printed.is_ok());
});
