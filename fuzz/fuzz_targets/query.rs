//! Percent-encoding: any bytes read back, and any text decodes or is refused.
//!
//! ```text
//! bytes --> encode --> decode = bytes          bytes --> decode --> at most as many bytes
//! ```
//!
//! Invariants
//! 1. Decoding never writes more than its room.
//!
//! Not here: which parameters there are (`http_head.rs` reaches them).
//! See: docs/api.md.

#![no_main]

use dendra_wire::percent;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let encoded = percent::encode(data);
    let mut out = vec![0; data.len()];
    assert_eq!(
        percent::decode_into(encoded.as_bytes(), &mut out),
        Ok(data.len())
    );
    assert_eq!(out, data);
    if let Ok(len) = percent::decode_into(data, &mut out) {
        assert!(len <= data.len());
    }
});
