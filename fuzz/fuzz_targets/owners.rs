//! Any bytes as a table of owners: what is read holds its invariants, and has one form.
#![no_main]

use dendra_ownership::ring::table::OwnerTable;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(table) = OwnerTable::decode(bytes) {
        assert_eq!(table.encode(), bytes);
    }
});
