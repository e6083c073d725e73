//! Any bytes as the manifest of a backup: refused, or what is read encodes to the same again.
#![no_main]

use dendra_archive::manifest::BackupManifest;
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_128;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    // Behind the checksum, which a fuzzer cannot guess.
    let mut whole = bytes.to_vec();
    whole.push(b'\n');
    let checksum = xxh3_128(&whole);
    whole.extend_from_slice(format!("checksum {checksum:032x}\n").as_bytes());
    read(&whole);
});

fn read(bytes: &[u8]) {
    let Ok(manifest) = BackupManifest::decode(bytes) else {
        return;
    };
    let most = manifest.files().map(|(_, file)| file.bytes).max();
    assert!(manifest.bytes() >= most.unwrap_or(0));
    assert!(manifest.missing().len() <= bytes.len());
    assert_eq!(BackupManifest::decode(&manifest.encode()), Ok(manifest));
}
