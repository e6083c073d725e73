//! Streams of requests, read by us and by hyper: what we accept, hyper understands in the same way.
//!
//! ```text
//! bytes --> twin.rs of the differential test --> the same requests, or a listed rule
//! ```
//!
//! Invariants
//! 1. Those of `crates/wire/tests/differential/main.rs`, over the fuzzer's streams.
//!
//! Not here: the rules and their reasons (`crates/wire/tests/differential/twin.rs`).
//! See: docs/api.md.

#![no_main]

#[path = "../../crates/wire/tests/differential/twin.rs"]
mod twin;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime without drivers needs no resources");
    if let Err(difference) = runtime.block_on(twin::compare(data)) {
        panic!("{}\n{difference}", data.escape_ascii());
    }
});
