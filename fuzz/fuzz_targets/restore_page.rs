//! Any bytes as a page of a restore: whole, with rising keys, or refused.
#![no_main]

use dendra_wire::restore::{RestorePage, RestorePageWriter};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    // Behind the checksum, which a fuzzer cannot guess.
    let mut whole = bytes.to_vec();
    whole.extend_from_slice(&xxh3_64(bytes).to_le_bytes());
    read(&whole);
});

fn read(bytes: &[u8]) {
    let Ok(page) = RestorePage::decode(bytes) else {
        return;
    };
    let mut again = RestorePageWriter::new(page.restore, page.number, page.behind);
    for (key, cell) in &page.records {
        again.push(key, cell);
    }
    assert!(again.is_empty() || RestorePage::decode(&again.finish()).is_ok());
}
