//! Any bytes as an object of a backup: refused, or frames of the lengths that its end tells.
//!
//! ```text
//! bytes --> as they are, or with head, footer and checksums around them --> every frame
//! ```
//!
//! Invariants
//! 1. No frame is longer than 1 MiB, and what is verified has the checksum of its content.
//!
//! Not here: sealed objects, whose parts nothing reads that the key did not open.
//! See: docs/format/backup.md.
#![no_main]

use dendra_archive::object::{FrameScratch, ObjectReader};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128};

const FRAME_BYTES: u32 = 4 << 10;

fuzz_target!(|bytes: &[u8]| {
    read(bytes.to_vec());
    // The first bytes say how long the content is, and where its frames end.
    let Some((head, stored)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let content = u64::from(u16::from_le_bytes([head[0], head[1]]));
    let frames = content.div_ceil(u64::from(FRAME_BYTES));
    let cut = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let mut whole = b"DNDRBKUP".to_vec();
    whole.extend_from_slice(&1u32.to_le_bytes());
    whole.extend_from_slice(&FRAME_BYTES.to_le_bytes());
    whole.extend_from_slice(stored);
    let (mut end, mut rest) = (Vec::new(), stored);
    for frame in 0..frames {
        let is_last = frame + 1 == frames;
        let length = if is_last { rest.len() } else { cut.min(rest.len()) };
        let (now, later) = rest.split_at(length);
        let plain = u32::from(head[4] >> (frame % 8) & 1) << 31;
        end.extend_from_slice(&(length as u32 | plain).to_le_bytes());
        end.extend_from_slice(&xxh3_64_with_seed(now, frame).to_le_bytes());
        rest = later;
    }
    end.extend_from_slice(&content.to_le_bytes());
    end.extend_from_slice(&(frames as u32).to_le_bytes());
    end.extend_from_slice(&[0; 4]);
    end.extend_from_slice(&xxh3_128(stored).to_le_bytes());
    end.extend_from_slice(&xxh3_64(&end).to_le_bytes());
    end.extend_from_slice(b"DNDROBJ1");
    whole.extend_from_slice(&end);
    read(whole);
});

fn read(bytes: Vec<u8>) {
    let Ok(reader) = ObjectReader::open(Box::new(bytes), None, 7) else {
        return;
    };
    let mut scratch = FrameScratch::new().expect("memory");
    let (mut frame, mut content, mut at) = (Vec::new(), Vec::new(), 0);
    while at < reader.sum().bytes {
        match reader.frame_at(at, &mut scratch, &mut frame) {
            Ok(begins) => assert_eq!(begins, at),
            Err(_) => {
                assert!(reader.verify(|_| ()).is_err());
                return;
            }
        }
        assert!(!frame.is_empty() && frame.len() <= 1 << 20);
        content.extend_from_slice(&frame);
        at += frame.len() as u64;
    }
    let is_whole = reader.verify(|_| ()).is_ok();
    assert_eq!(is_whole, xxh3_128(&content) == reader.sum().checksum);
}
