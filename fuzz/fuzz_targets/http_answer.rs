//! Heads of answers and trailers of scans, as our clients read them: no panic on any bytes.
//!
//! ```text
//! bytes --> parse_answer, as the answer to GET and to HEAD; scan_end
//! ```
//!
//! Invariants
//! 1. A head never consumes more than there is.
//! 2. An answer to HEAD has no body.
//!
//! Not here: bodies (`http_chunked.rs`, `records.rs`).
//! See: docs/api.md.

#![no_main]

use dendra_wire::client::{AnswerBody, Asked, ParsedAnswer, parse_answer, scan_end};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for asked in [Asked::WithBody, Asked::HeadOnly] {
        if let ParsedAnswer::Head(answer) = parse_answer(data, asked) {
            assert!(answer.consumed <= data.len());
            assert!(asked == Asked::WithBody || answer.body == AnswerBody::None);
        }
    }
    scan_end(data);
});
