//! Chunked bodies: any bytes, in two packets.
#![no_main]

use dendra_wire::http::{ChunkDecoder, Step};
use libfuzzer_sys::fuzz_target;

const BODY_BYTES_MAX: u64 = 4096;

/// The body, and how many bytes of `packets` it took; `None` when it is refused or not whole.
fn body_of(packets: &[&[u8]]) -> Option<(Vec<u8>, usize)> {
    let mut decoder = ChunkDecoder::new(BODY_BYTES_MAX);
    let (mut buf, mut body, mut dropped) = (Vec::new(), Vec::new(), 0);
    for packet in packets {
        buf.extend_from_slice(packet);
        loop {
            let consumed = match decoder.decode(&buf).ok()? {
                Step::Data { start, end } => {
                    assert!(start < end, "a step gets on");
                    body.extend_from_slice(&buf[start..end]);
                    assert!(body.len() as u64 <= BODY_BYTES_MAX);
                    end
                }
                Step::More { consumed } => {
                    buf.drain(..consumed);
                    dropped += consumed;
                    break;
                }
                Step::End { consumed } => return Some((body, dropped + consumed)),
            };
            buf.drain(..consumed);
            dropped += consumed;
        }
    }
    None
}

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    let cut = usize::from(cut).min(bytes.len());
    let whole = body_of(&[bytes]);
    let halves = body_of(&[&bytes[..cut], &bytes[cut..]]);
    assert_eq!(whole, halves, "packets decide nothing");
});
