//! Any bytes as the note of the tables that are kept for backups: refused, or what is read encodes
//! to the same again.
#![no_main]

use dendra_engine::formats::frame::encode_into;
use dendra_engine::formats::kept::encoded_again;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    if bytes.is_empty() {
        return;
    }
    // Behind the checksum, which a fuzzer cannot guess.
    let mut whole = Vec::new();
    encode_into(&mut whole, 0, 0, bytes);
    read(&whole);
});

fn read(bytes: &[u8]) {
    if let Some(encoded) = encoded_again(bytes) {
        assert!(bytes.starts_with(&encoded));
        assert_eq!(encoded_again(&encoded), Some(encoded.clone()));
    }
}
