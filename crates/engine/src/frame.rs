//! Checksummed frames for small append-only files: how a manifest record is told from a torn or a
//! damaged one.
//!
//! ```text
//! frame    | length u32 | crc u32 | payload, `length` bytes |            little-endian
//!   crc    CRC-32 of length and payload, started from the CRC-32 of file id u64 and offset u64
//! ```
//!
//! Invariants
//! 1. A frame is valid only in the file and at the offset it was made for: a copy elsewhere is bad.
//! 2. A payload is never empty, so that eight zero bytes are never a frame.
//! 3. `decode` reads any bytes without a panic and never returns a payload that was not encoded.
//!
//! Not here: the meaning of a bad frame. The owner of the file knows whether it could be a torn
//! tail.
//! See: docs/format/folder.md.

use crc32fast::Hasher;

/// Bytes in front of a payload: length and checksum.
pub(crate) const FRAME_HEAD_BYTES: usize = 4 + 4;

/// The item at one offset of a file of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A whole frame.
    Complete {
        /// The bytes that were encoded.
        payload: &'a [u8],
        /// Where the next frame starts.
        next_offset: u64,
    },
    /// The end of the file, or only zeros up to it.
    End,
    /// Bytes that are not a frame: a torn append or damage.
    Bad {
        /// The expected bytes and the found ones, as a sentence.
        reason: String,
    },
}

/// Appends `payload` as the frame that will stand at `offset` of file `file_id`.
///
/// Requires: `payload` holds 1 byte to 4 GiB less one.
pub fn encode_into(out: &mut Vec<u8>, file_id: u64, offset: u64, payload: &[u8]) {
    assert!(!payload.is_empty(), "an empty frame would look like zeros");
    let len = u32::try_from(payload.len()).expect("a frame is far smaller than 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&checksum(file_id, offset, len, payload).to_le_bytes());
    out.extend_from_slice(payload);
}

/// Reads the frame at `offset` of file `file_id`, whose whole content is `bytes`.
pub(crate) fn decode(bytes: &[u8], file_id: u64, offset: u64) -> Frame<'_> {
    let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..));
    let Some(rest) = rest else {
        return Frame::Bad {
            reason: format!("byte {offset} is behind the end of {} bytes", bytes.len()),
        };
    };
    let Some((head, body)) = rest.split_first_chunk::<FRAME_HEAD_BYTES>() else {
        return end_or_bad(rest, "the file ends inside a frame's head");
    };
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let crc = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if len == 0 {
        return end_or_bad(rest, "a frame of length 0 stands in front of other bytes");
    }
    let Some(payload) = body.get(..len as usize) else {
        return Frame::Bad {
            reason: format!(
                "a frame of {len} bytes is announced, the file has {} left",
                body.len()
            ),
        };
    };
    let found = checksum(file_id, offset, len, payload);
    if found != crc {
        return Frame::Bad {
            reason: format!("the checksum of {len} bytes is {found:08x}, written was {crc:08x}"),
        };
    }
    Frame::Complete {
        payload,
        next_offset: offset + (FRAME_HEAD_BYTES + payload.len()) as u64,
    }
}

fn end_or_bad<'a>(rest: &[u8], reason: &str) -> Frame<'a> {
    if rest.iter().all(|&b| b == 0) {
        return Frame::End;
    }
    Frame::Bad {
        reason: reason.to_owned(),
    }
}

fn checksum(file_id: u64, offset: u64, len: u32, payload: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&file_id.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(&len.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use proptest::prelude::*;

    const FILE: u64 = 7;

    fn encode_all(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for payload in payloads {
            let offset = bytes.len() as u64;
            encode_into(&mut bytes, FILE, offset, payload);
        }
        bytes
    }

    fn decode_all(bytes: &[u8], file_id: u64) -> (Vec<Vec<u8>>, Frame<'_>) {
        let (mut payloads, mut offset) = (Vec::new(), 0);
        loop {
            match decode(bytes, file_id, offset) {
                Frame::Complete {
                    payload,
                    next_offset,
                } => {
                    payloads.push(payload.to_vec());
                    offset = next_offset;
                }
                end => return (payloads, end),
            }
        }
    }

    fn any_payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..6)
    }

    proptest! {
        #[test]
        fn frames_read_back_in_order(payloads in any_payloads(), zeros in 0usize..20) {
            let mut bytes = encode_all(&payloads);
            bytes.resize(bytes.len() + zeros, 0);
            let (read, end) = decode_all(&bytes, FILE);
            prop_assert_eq!(read, payloads);
            prop_assert_eq!(end, Frame::End);
        }

        #[test]
        fn any_legal_payload_is_read_as_it_was_framed(
            payloads in prop::collection::vec(
                legal::small_value().prop_filter("no frame is empty", |bytes| !bytes.is_empty()),
                0..5,
            ),
            file_id: u64,
        ) {
            let mut bytes = Vec::new();
            for payload in &payloads {
                let offset = bytes.len() as u64;
                encode_into(&mut bytes, file_id, offset, payload);
            }
            let (read, end) = decode_all(&bytes, file_id);
            prop_assert!(read == payloads);
            prop_assert_eq!(end, Frame::End);
        }

        #[test]
        fn every_flipped_bit_is_noticed(
            payloads in any_payloads(), bit in any::<prop::sample::Index>(),
        ) {
            let mut bytes = encode_all(&payloads);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (read, end) = decode_all(&bytes, FILE);
            prop_assert!(read.len() < payloads.len());
            prop_assert_eq!(&read[..], &payloads[..read.len()]);
            let is_bad = matches!(end, Frame::Bad { .. });
            prop_assert!(is_bad);
        }

        #[test]
        fn a_torn_tail_is_bad_and_never_a_payload(
            payloads in any_payloads(), cut in any::<prop::sample::Index>(),
        ) {
            let bytes = encode_all(&payloads);
            let cut = cut.index(bytes.len());
            let (read, _) = decode_all(&bytes[..cut], FILE);
            prop_assert_eq!(&read[..], &payloads[..read.len()]);
        }

        #[test]
        fn garbage_never_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..64), offset in any::<u64>(),
        ) {
            decode(&bytes, FILE, offset);
            decode_all(&bytes, FILE);
        }
    }

    #[test]
    fn a_frame_of_another_file_or_offset_is_bad() {
        let bytes = encode_all(&[b"edit".to_vec()]);
        assert!(decode_all(&bytes, FILE + 1).0.is_empty());
        let shifted = [b"12345678", &bytes[..]].concat();
        assert!(matches!(decode(&shifted, FILE, 8), Frame::Bad { .. }));
    }

    #[test]
    fn zeros_in_front_of_other_bytes_are_not_an_end() {
        let mut bytes = vec![0; 24];
        assert_eq!(decode(&bytes, FILE, 0), Frame::End);
        bytes[23] = 1;
        assert!(matches!(decode(&bytes, FILE, 0), Frame::Bad { .. }));
    }
}
