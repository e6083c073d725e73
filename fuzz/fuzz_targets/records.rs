//! The binary framing of scans, as our clients read it: no panic on any bytes, and encoding again
//! gives the same bytes.
//!
//! ```text
//! bytes --> decode_record, record after record --> the bytes it consumed
//! ```
//!
//! Invariants
//! 1. A record is exactly the bytes that its lengths name.
//!
//! Not here: the chunks around records (`http_chunked.rs`).
//! See: docs/api.md, section "Many keys".

#![no_main]

use dendra_wire::http::records::{Decoded, decode_record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    loop {
        match decode_record(rest) {
            Decoded::Record {
                key,
                value,
                consumed,
            } => {
                let lengths = [key.len() as u32, value.len() as u32].map(u32::to_be_bytes);
                let encoded = [lengths.as_flattened(), key, value].concat();
                assert_eq!(encoded, rest[..consumed]);
                rest = &rest[consumed..];
            }
            Decoded::Incomplete { wanted } => {
                assert!(wanted > rest.len());
                return;
            }
            Decoded::End { consumed } => {
                assert!(consumed <= rest.len());
                return;
            }
            Decoded::Bad => return,
        }
    }
});
