//! The body of a batch, in both framings: no panic on any bytes, and no piece longer than the body.
//!
//! ```text
//! bytes --> split_item, item after item --> parse_item --> an entity, its key and its value
//! ```
//!
//! Invariants
//! 1. Each piece moves on, and an item that passes has a legal key.
//!
//! Not here: chunks around a body (`http_chunked.rs`).
//! See: docs/batch.md.

#![no_main]

use dendra_base::Quorum;
use dendra_base::limits::WRAPPER_BYTES_MAX;
use dendra_wire::batch::{Piece, parse_item, split_item};
use dendra_wire::http::lines::LineFraming;
use dendra_wire::route::BatchTerms;
use dendra_wire::{KeyBuf, RequestRules};
use libfuzzer_sys::fuzz_target;

const RULES: RequestRules = RequestRules {
    nodes: 3,
    replication_factor: 3,
    key_bytes_max: 1024,
    value_bytes_max: 1 << 20,
};

fuzz_target!(|data: &[u8]| {
    for framing in [LineFraming::Ndjson, LineFraming::Records] {
        let terms = BatchTerms {
            items: framing,
            answers: framing,
            quorum: Quorum::usual(3, 3),
            wants_current: false,
            timeout_ms: 1_000,
        };
        let (mut key, mut value, mut searched) = (KeyBuf::new(), Vec::new(), 0);
        let mut rest = data;
        while let Ok(piece) = split_item(framing, rest, &mut searched, true) {
            let len = match piece {
                Piece::Blank(len) => len,
                Piece::Item(len) => {
                    if parse_item(&terms, &RULES, &rest[..len], &mut key, &mut value).is_ok() {
                        assert!((1..=1024).contains(&key.raw().len()));
                        assert!(value.len() <= (1 << 20) + WRAPPER_BYTES_MAX);
                    }
                    len
                }
                Piece::Incomplete | Piece::End => break,
            };
            assert!(len > 0);
            rest = &rest[len..];
        }
    }
});
