//! Any bytes as the manifest of a backup: read and written again as they were, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_128;

#[allow(dead_code, reason = "the binary uses more of it")]
#[path = "../../crates/dendra/src/backup/manifest.rs"]
mod manifest;
use manifest::BackupManifest;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    // Behind the checksum, which a fuzzer cannot guess.
    let mut whole = bytes.to_vec();
    whole.extend_from_slice(format!("checksum {:032x}\n", xxh3_128(bytes)).as_bytes());
    read(&whole);
});

fn read(bytes: &[u8]) {
    if let Ok(read) = BackupManifest::decode(bytes) {
        assert_eq!(BackupManifest::decode(&read.encode()), Ok(read));
    }
}
