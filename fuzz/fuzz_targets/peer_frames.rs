//! Streams of frames and hellos of any bytes: no panic, and what reads back is what was meant.
//!
//! ```text
//! bytes --> frames, as they are; again with length and checksum repaired, so that bodies are reached; Hello::parse
//! ```
//!
//! Invariants
//! 1. A question, an answer or a withdrawal that was read encodes to a frame that reads as the
//!    same.
//!
//! Not here: the HTTP around the handshake (`http_head.rs`, `http_answer.rs`).
//! See: docs/peer.md.

#![no_main]

use dendra_wire::peer::{
    Hello, Message, Seal, decode, encode_answer, encode_ask, encode_withdraw, frame_len,
};
use libfuzzer_sys::fuzz_target;

fn look(frame: Vec<u8>) {
    let mut again = Vec::new();
    let Ok(message) = decode(&frame.into(), &mut Seal::plain()) else {
        return;
    };
    match &message {
        Message::Ask(question) => encode_ask(&mut again, &mut Seal::plain(), question),
        Message::Answer { id, answer } => {
            encode_answer(&mut again, &mut Seal::plain(), *id, answer);
        }
        Message::Withdraw { ids } => encode_withdraw(&mut again, &mut Seal::plain(), ids),
        _ => return,
    }
    assert_eq!(decode(&again.into(), &mut Seal::plain()), Ok(message));
}

fuzz_target!(|data: &[u8]| {
    if let Ok(Some(len)) = frame_len(data) {
        look(data[..len.min(data.len())].to_vec());
    }
    if data.len() >= 16 {
        let mut frame = data.to_vec();
        let len = u32::try_from(frame.len() + 8).expect("inputs are short");
        frame[..4].copy_from_slice(&len.to_le_bytes());
        frame[5..8].fill(0);
        let checksum = xxhash_rust::xxh3::xxh3_64(&frame);
        frame.extend_from_slice(&checksum.to_le_bytes());
        look(frame);
    }
    if let Ok(hello) = Hello::parse(data) {
        assert_eq!(Hello::parse(hello.to_string().as_bytes()), Ok(hello));
    }
});
