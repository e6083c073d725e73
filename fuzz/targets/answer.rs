//! What a server sent to our client: heads, trailers of scans, binary records.
#![no_main]

use dendra_wire::client::{Asked, ParsedAnswer, parse_answer, scan_end};
use dendra_wire::http::records::{Decoded, decode_record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for asked in [Asked::WithBody, Asked::HeadOnly] {
        if let ParsedAnswer::Head(answer) = parse_answer(bytes, asked) {
            assert!(answer.consumed <= bytes.len());
        }
    }
    scan_end(bytes);
    if let Decoded::Record { consumed, .. } | Decoded::End { consumed } = decode_record(bytes) {
        assert!(consumed <= bytes.len());
    }
});
