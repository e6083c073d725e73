//! Any bytes as a table of tokens: what is read has one form. Any bytes as what a client shows.
#![no_main]

use dendra_wire::rights::{TokenTable, bearer, hash_of};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(table) = TokenTable::parse(bytes) {
        assert_eq!(table.to_text().as_bytes(), bytes);
    }
    if let Some(hash) = bearer(bytes).and_then(hash_of) {
        assert!(TokenTable::default().find(&hash).is_none());
    }
});
