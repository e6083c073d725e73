//! The log: every write stands here before it is acknowledged or visible.
//!
//! ```text
//! mod.rs      positions, the bytes of heads
//! spare.rs    Spare        segments made ahead of use
//! writer.rs   LogWriter    one append = one write; sync; roll to the next segment; seal
//! reader.rs   recover      visits all records, tells a torn tail from damage; Segment for tools
//!
//! wal-0000000000000004.log   | head | start | batch | batch | … | end mark | zeros |
//! wal-0000000000000005.log   | head | start | batch | zeros                        |   in use
//! wal-0000000000000006.log   | head | zeros                                        |   spare
//! ```
//!
//! Invariants
//! 1. A file has its name only once it has its head and its full length, synced: a segment without
//!    either is damage. The name is durable before the first batch is written.
//! 2. A segment of an earlier process is never written again.
//! 3. A head is valid only in the folder, segment and offset it was made for.
//! 4. `synced_upto` of a valid head is durable history: a bad spot in front of it is damage. One
//!    behind it is a torn tail if a part of its batch is missing, and damage if none is.
//! 5. A sync that covers a batch covers the end marks of all segments in front of it: the segment
//!    that acknowledged writes go on in cannot be taken away unnoticed.
//!
//! Not here: the content of a record (`batch.rs`), when to sync, roll and seal (`engine.rs`).
//! See: docs/format/wal.md, which follows.
#![doc = include_str!("../../../../docs/format/wal.md")]

mod reader;
mod spare;
mod writer;

#[cfg(test)]
mod tests;

pub use reader::{BatchView, Batches, Recovery, Segment, SegmentEnd, Tail, recover};
pub(crate) use reader::{LogItem, damaged_spots, goes_on, recover_by_segment};
pub(crate) use spare::{NEW_SEGMENT, holds_data, is_unused};
pub use spare::{Spare, prepare};
pub(crate) use writer::PAGE_BYTES;
pub use writer::{Appended, LogWriter, Unsynced};

use crc32fast::Hasher;
use std::fmt;

/// Bytes in front of a batch's records.
pub(crate) const BATCH_HEAD_BYTES: usize = 64;
/// Batches start at multiples of this, so that a scan behind damage finds the next one.
pub(crate) const BATCH_ALIGNMENT: usize = 64;
/// The unit that a disk writes whole or not at all.
pub(crate) const SECTOR_BYTES: usize = 512;
/// Bytes of a segment's head.
pub(crate) const SEGMENT_HEAD_BYTES: usize = 64;
/// Bytes of a segment's start, which stands behind its head.
const SEGMENT_START_BYTES: usize = 64;
/// Where the first batch of a segment starts.
pub(crate) const FIRST_BATCH_AT: usize = SEGMENT_HEAD_BYTES + SEGMENT_START_BYTES;
/// The largest id a segment can have: an [`Lsn`] has 32 bits for it.
pub(crate) const SEGMENT_ID_MAX: u64 = u32::MAX as u64;
/// A segment that holds less than one small batch is a mistake in the options.
pub(crate) const SEGMENT_BYTES_MIN: usize = 1 << 10;

const FORMAT: u32 = 1;
const SEGMENT_MAGIC: [u8; 8] = *b"dendraWL";
const START_MAGIC: [u8; 4] = *b"dws1";
const BATCH_MAGIC: [u8; 4] = *b"dwb1";

/// A position in the log: segment id and byte offset, ordered as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// Byte `offset` of segment `segment`. Requires: both fit 32 bits.
    pub fn new(segment: u64, offset: usize) -> Lsn {
        let offset = u32::try_from(offset).expect("a segment is smaller than 4 GiB");
        assert!(segment <= SEGMENT_ID_MAX, "segment ids have 32 bits");
        Lsn(segment << 32 | u64::from(offset))
    }

    /// Id of the segment.
    pub fn segment(self) -> u64 {
        self.0 >> 32
    }

    /// Offset inside the segment, in bytes.
    pub fn offset(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}+{}", self.segment(), self.offset())
    }
}

/// File name of segment `segment`.
pub fn segment_name(segment: u64) -> String {
    format!("wal-{segment:016x}.log")
}

/// The id in a segment's file name; `None` for every other name.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("wal-")?.strip_suffix(".log")?;
    let is_exact = digits.len() == 16
        && digits
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let segment = u64::from_str_radix(digits, 16).ok().filter(|_| is_exact)?;
    (segment <= SEGMENT_ID_MAX).then_some(segment)
}

/// The head of a segment: there before the file has its name, and never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SegmentHead {
    segment: u64,
    /// Length of the file.
    bytes: u64,
    salt: u64,
}

/// Why a file does not begin with its segment's head.
enum NoHead {
    /// Made by a later program.
    Newer { format: u32 },
    /// Emptied, cut, changed, or another file.
    Bad { reason: String },
}

impl SegmentHead {
    fn encode(&self) -> [u8; SEGMENT_HEAD_BYTES] {
        let mut out = [0; SEGMENT_HEAD_BYTES];
        out[0..8].copy_from_slice(&SEGMENT_MAGIC);
        out[12..16].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..24].copy_from_slice(&self.segment.to_le_bytes());
        out[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        out[32..40].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32fast::hash(&out[12..]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8], segment: u64) -> Result<SegmentHead, NoHead> {
        let Some(head) = bytes.first_chunk::<SEGMENT_HEAD_BYTES>() else {
            return Err(NoHead::bad(format!(
                "the file has {} bytes, and a log segment is never shorter than {SEGMENT_BYTES_MIN}: it was emptied or cut",
                bytes.len()
            )));
        };
        if head.iter().all(|&b| b == 0) {
            return Err(NoHead::bad(
                "the segment's head is zeros, and a segment has its head from its first moment",
            ));
        }
        if head[0..8] != SEGMENT_MAGIC {
            return Err(NoHead::bad(
                "the segment's head does not start with dendraWL",
            ));
        }
        if u32_at(head, 8) != crc32fast::hash(&head[12..]) {
            return Err(NoHead::bad(
                "the segment's head does not match its checksum",
            ));
        }
        if u32_at(head, 12) != FORMAT {
            return Err(NoHead::Newer {
                format: u32_at(head, 12),
            });
        }
        let found = u64_at(head, 16);
        if found != segment {
            return Err(NoHead::bad(format!(
                "the file is named segment {segment:x}, its head says {found:x}"
            )));
        }
        Ok(SegmentHead {
            segment,
            bytes: u64_at(head, 24),
            salt: u64_at(head, 32),
        })
    }
}

impl NoHead {
    fn bad(reason: impl Into<String>) -> NoHead {
        NoHead::Bad {
            reason: reason.into(),
        }
    }
}

/// The start of a segment: written when the segment comes into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SegmentStart {
    previous_end: Lsn,
    synced_upto: Lsn,
}

/// Why 64 bytes are not a segment's start.
enum NotAStart {
    /// The segment was never used.
    Zeros,
    /// Neither that nor a start of this segment.
    Bad,
}

impl SegmentStart {
    fn encode(&self, salt: u64, segment: u64) -> [u8; SEGMENT_START_BYTES] {
        let mut out = [0; SEGMENT_START_BYTES];
        out[0..4].copy_from_slice(&START_MAGIC);
        out[8..16].copy_from_slice(&self.previous_end.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.synced_upto.0.to_le_bytes());
        let crc = seeded_crc(salt, Lsn::new(segment, SEGMENT_HEAD_BYTES), &out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8], salt: u64, segment: u64) -> Result<SegmentStart, NotAStart> {
        let Some(start) = bytes.first_chunk::<SEGMENT_START_BYTES>() else {
            return Err(NotAStart::Bad);
        };
        if start.iter().all(|&b| b == 0) {
            return Err(NotAStart::Zeros);
        }
        let crc = seeded_crc(salt, Lsn::new(segment, SEGMENT_HEAD_BYTES), &start[8..]);
        if start[0..4] != START_MAGIC || u32_at(start, 4) != crc {
            return Err(NotAStart::Bad);
        }
        Ok(SegmentStart {
            previous_end: Lsn(u64_at(start, 8)),
            synced_upto: Lsn(u64_at(start, 16)),
        })
    }
}

/// The meaning of a batch besides its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchMark {
    /// None.
    Plain = 0,
    /// End mark without records: the log goes on in the next segment.
    End = 1,
}

/// The head of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BatchHead {
    body_crc: u32,
    body_len: u32,
    records: u32,
    mark: BatchMark,
    lsn: Lsn,
    synced_upto: Lsn,
    hlc_ceiling: u64,
}

impl BatchHead {
    fn encode(&self, salt: u64) -> [u8; BATCH_HEAD_BYTES] {
        let mut out = [0; BATCH_HEAD_BYTES];
        out[0..4].copy_from_slice(&BATCH_MAGIC);
        out[8..12].copy_from_slice(&self.body_crc.to_le_bytes());
        out[12..16].copy_from_slice(&self.body_len.to_le_bytes());
        out[16..20].copy_from_slice(&self.records.to_le_bytes());
        out[20..24].copy_from_slice(&(self.mark as u32).to_le_bytes());
        out[24..32].copy_from_slice(&self.lsn.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.synced_upto.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.hlc_ceiling.to_le_bytes());
        let crc = seeded_crc(salt, self.lsn, &out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` when the bytes are not the head of a batch at `lsn` of this folder.
    fn decode(bytes: &[u8], salt: u64, lsn: Lsn) -> Option<BatchHead> {
        let head = bytes.first_chunk::<BATCH_HEAD_BYTES>()?;
        if head[0..4] != BATCH_MAGIC || u32_at(head, 4) != seeded_crc(salt, lsn, &head[8..]) {
            return None;
        }
        let found = BatchHead {
            body_crc: u32_at(head, 8),
            body_len: u32_at(head, 12),
            records: u32_at(head, 16),
            mark: match u32_at(head, 20) {
                0 => BatchMark::Plain,
                1 => BatchMark::End,
                _ => return None,
            },
            lsn: Lsn(u64_at(head, 24)),
            synced_upto: Lsn(u64_at(head, 32)),
            hlc_ceiling: u64_at(head, 40),
        };
        (found.lsn == lsn && found.synced_upto <= lsn).then_some(found)
    }
}

/// CRC-32 of `bytes`, started from where they stand, so that they are valid nowhere else.
fn seeded_crc(salt: u64, lsn: Lsn, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&lsn.0.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Bytes that a body of `len` takes, up to where the next batch may start.
fn padded(len: usize) -> usize {
    len.next_multiple_of(BATCH_ALIGNMENT)
}

fn u32_at(bytes: &[u8; 64], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; 64], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
