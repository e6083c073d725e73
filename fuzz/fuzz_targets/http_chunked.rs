//! Chunked bodies of any bytes: no panic, bounded data, and packets decide nothing.
//!
//! ```text
//! bytes --> ChunkDecoder fed with all of them, and in pieces of a length that the first byte names
//! ```
//!
//! Invariants
//! 1. Both give the same data, the same end and the same refusal.
//!
//! Not here: heads (`http_head.rs`).
//! See: docs/api.md.

#![no_main]

use dendra_wire::Refusal;
use dendra_wire::http::{ChunkDecoder, ChunkItem};
use libfuzzer_sys::fuzz_target;

const BODY_BYTES_MAX: u64 = 256;

/// Data and consumed bytes of a whole body, `None` when more is wanted.
fn decode(bytes: &[u8], piece_len: usize) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
    let mut decoder = ChunkDecoder::new(BODY_BYTES_MAX);
    let mut data = Vec::new();
    let (mut at, mut arrived) = (0, 0);
    loop {
        match decoder.decode(&bytes[at..arrived])? {
            ChunkItem::Data { start, end } => {
                data.extend_from_slice(&bytes[at + start..at + end]);
                at += end;
            }
            ChunkItem::End { consumed } => return Ok(Some((data, at + consumed))),
            ChunkItem::More { .. } if arrived == bytes.len() => return Ok(None),
            ChunkItem::More { consumed } => {
                at += consumed;
                arrived = bytes.len().min(arrived + piece_len);
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece_len, bytes)) = data.split_first() else {
        return;
    };
    let whole = decode(bytes, bytes.len().max(1));
    assert_eq!(whole, decode(bytes, usize::from(piece_len).max(1)));
    if let Ok(Some((body, consumed))) = whole {
        assert!(body.len() as u64 <= BODY_BYTES_MAX && consumed <= bytes.len());
    }
});
