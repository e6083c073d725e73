//! Writes on their way into the log: encoded once, where they arrive.
//!
//! ```text
//! record   | key length u16 | cell length u32 | stored key | encoded cell or touch |     little-endian
//! batch    record record record …            ops: one entry per record, with the caller's token
//! ```
//!
//! Invariants
//! 1. A record's bytes are the bytes of the log: no record is encoded twice.
//! 2. `ops[i]` describes the i-th record; a token is opaque and returned exactly once.
//! 3. A record that a table cannot hold never gets into a batch: an acknowledged write can be
//!    flushed.
//!
//! Not here: the frame around a batch and its checksum (`wal`), guards' evaluation (`commit.rs`).
//! See: docs/format/wal.md.

use dendra_base::limits::{STORED_KEY_BYTES_MAX, STORED_VALUE_BYTES_MAX};
use dendra_base::{CellRef, Guard, Touch, Version, cell};
use std::fmt;

/// Bytes in front of a record's key: key length and cell length.
pub(crate) const RECORD_HEAD_BYTES: usize = 2 + 4;

/// Versions of clients have clock values below this. The values above are left to the engine, for
/// the versions of writes that build on others.
pub(crate) const VERSION_HLC_END: u64 = 1 << 63;

/// Why a write can never be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A stored key has 1 to `STORED_KEY_BYTES_MAX` bytes, the byte of its space included.
    KeyLength {
        /// Size of the stored key.
        bytes: usize,
    },
    /// A value has at most `STORED_VALUE_BYTES_MAX` bytes.
    ValueLength {
        /// Size of the value.
        bytes: usize,
    },
    /// The version's clock value is not below `VERSION_HLC_END`.
    Version {
        /// Clock value of the version.
        hlc: u64,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::KeyLength { bytes } => write!(
                f,
                "a stored key of {bytes} bytes cannot be written: 1 to {STORED_KEY_BYTES_MAX}, the byte of its space included"
            ),
            Unfit::ValueLength { bytes } => write!(
                f,
                "a value of {bytes} bytes cannot be written: at most {STORED_VALUE_BYTES_MAX}"
            ),
            Unfit::Version { hlc } => write!(
                f,
                "a version with the clock value {hlc} cannot be written: it must be below {VERSION_HLC_END}"
            ),
        }
    }
}

/// Why a write or a batch was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The commit queue is full: try again later.
    QueueFull,
    /// The batch is larger than the whole queue: no wait helps.
    BatchTooLarge {
        /// Writes of the batch.
        len: usize,
        /// Writes that the queue holds.
        len_max: usize,
        /// Bytes of the batch's records.
        bytes: usize,
        /// Bytes that the queue holds.
        bytes_max: usize,
    },
    /// The write can never be stored, even by an empty queue.
    Unfit(Unfit),
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotTaken::QueueFull => f.write_str("the commit queue is full: commit, then try again"),
            NotTaken::BatchTooLarge {
                len,
                len_max,
                bytes,
                bytes_max,
            } => write!(
                f,
                "a batch of {len} writes and {bytes} bytes never fits the commit queue of {len_max} writes and {bytes_max} bytes: split it, or raise commit_queue_len_max or commit_queue_bytes_max"
            ),
            NotTaken::Unfit(unfit) => unfit.fmt(f),
        }
    }
}

impl std::error::Error for NotTaken {}

/// The outcome of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// In the log as the options' durability promises, and visible under this version.
    Applied {
        /// The version it got: the caller's, or a later one when its guard demanded it.
        version: Version,
    },
    /// The guard did not hold; the record did not change.
    GuardFailed {
        /// The live value's version, if there is one.
        current: Option<Version>,
    },
    /// An error, which was reported, came before the log write; the record did not change.
    NotApplied,
    /// The disk has no room for the next log segment; the record did not change.
    NoRoom,
    /// Too many bytes of touched values in one commit; the record did not change.
    Crowded,
}

/// One write of a batch.
#[derive(Clone, Debug)]
pub(crate) struct BatchWrite {
    /// The caller's own mark, returned with the outcome.
    pub token: u64,
    /// Where the record starts in the batch's bytes.
    pub start: usize,
    /// Condition on the current record.
    pub guard: Guard,
    /// The caller's clock, for the guard's view of expiry.
    pub now_ms: u64,
    /// Does the record refer to the value that the key has?
    pub is_touch: bool,
}

/// Encoded writes, with the guard and the token of each.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ops: Vec<BatchWrite>,
}

impl Batch {
    /// An empty batch; its buffers are reused by `clear`.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Can this record be stored?
    ///
    /// # Errors
    /// Why it never can.
    pub fn check(stored_key: &[u8], cell: &CellRef<'_>) -> Result<(), Unfit> {
        if stored_key.is_empty() || stored_key.len() > STORED_KEY_BYTES_MAX {
            return Err(Unfit::KeyLength {
                bytes: stored_key.len(),
            });
        }
        if cell.value.len() > STORED_VALUE_BYTES_MAX {
            return Err(Unfit::ValueLength {
                bytes: cell.value.len(),
            });
        }
        if cell.version.hlc >= VERSION_HLC_END {
            return Err(Unfit::Version {
                hlc: cell.version.hlc,
            });
        }
        Ok(())
    }

    /// Appends one write.
    ///
    /// # Errors
    /// `NotTaken::Unfit` for a record that can never be stored; the batch is as it was.
    pub fn push(
        &mut self,
        token: u64,
        stored_key: &[u8],
        cell: &CellRef<'_>,
        guard: Guard,
        now_ms: u64,
    ) -> Result<(), NotTaken> {
        Batch::check(stored_key, cell).map_err(NotTaken::Unfit)?;
        let op = self.begin_record(token, stored_key, cell.encoded_len(), guard, now_ms);
        cell.encode(&mut self.bytes);
        self.ops.push(op);
        Ok(())
    }

    /// Appends one touch: the live value of the key gets a new version and a new end, and its bytes
    /// do not go into the log again.
    ///
    /// With `Guard::If` the value is the one that the commit finds, and without a live one the
    /// guard fails. With `Guard::Newest` it is that of version `touch.of`: the guard holds of a key
    /// that has it, or has the version of the touch or a newer one already.
    ///
    /// # Errors
    /// As those of `push`.
    pub fn push_touch(
        &mut self,
        token: u64,
        stored_key: &[u8],
        touch: &Touch,
        guard: Guard,
        now_ms: u64,
    ) -> Result<(), NotTaken> {
        Batch::check(stored_key, &touch.with(b"")).map_err(NotTaken::Unfit)?;
        let op = self.begin_record(token, stored_key, touch.encoded_len(), guard, now_ms);
        touch.encode(&mut self.bytes);
        self.ops.push(BatchWrite {
            is_touch: true,
            ..op
        });
        Ok(())
    }

    fn begin_record(
        &mut self,
        token: u64,
        stored_key: &[u8],
        cell_len: usize,
        guard: Guard,
        now_ms: u64,
    ) -> BatchWrite {
        let start = self.bytes.len();
        let key_len = u16::try_from(stored_key.len()).expect("checked by the caller");
        let cell_len = u32::try_from(cell_len).expect("checked by the caller");
        self.bytes.extend_from_slice(&key_len.to_le_bytes());
        self.bytes.extend_from_slice(&cell_len.to_le_bytes());
        self.bytes.extend_from_slice(stored_key);
        BatchWrite {
            token,
            start,
            guard,
            now_ms,
            is_touch: false,
        }
    }

    /// Moves everything of `other` to the end of this batch's own writes.
    pub fn append(&mut self, other: &mut Batch) {
        if self.ops.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ops.extend(other.ops.drain(..).map(|op| BatchWrite {
            start: op.start + base,
            ..op
        }));
        other.clear();
    }

    /// Makes room for `more` bytes of records: doubling, but never beyond `most` unless it must.
    pub(crate) fn reserve_within(&mut self, more: usize, most: usize) {
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            let wanted = (2 * self.bytes.capacity()).clamp(needed, most.max(needed));
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
    }

    /// Forgets all writes, keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ops.clear();
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Is there no record to write?
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Bytes of all records.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A record read back from a batch or from the log.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord<'a> {
    /// Space byte and raw key.
    pub stored_key: &'a [u8],
    /// The encoded cell.
    pub encoded_cell: &'a [u8],
}

impl<'a> LogRecord<'a> {
    /// Splits the first record off `bytes`: the record and the rest. `None` when the bytes cannot
    /// be a record.
    pub fn split(bytes: &'a [u8]) -> Option<(LogRecord<'a>, &'a [u8])> {
        let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD_BYTES>()?;
        let key_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let cell_len = u32::from_le_bytes([head[2], head[3], head[4], head[5]]) as usize;
        if key_len == 0 || rest.len() < key_len + cell_len {
            return None;
        }
        let (stored_key, rest) = rest.split_at(key_len);
        let (encoded_cell, rest) = rest.split_at(cell_len);
        Some((
            LogRecord {
                stored_key,
                encoded_cell,
            },
            rest,
        ))
    }

    /// The cell, when the bytes are one.
    pub fn cell(&self) -> Option<CellRef<'a>> {
        CellRef::decode(self.encoded_cell)
    }

    /// The touch, when the bytes are one.
    pub fn touch(&self) -> Option<Touch> {
        Touch::decode(self.encoded_cell)
    }

    /// The version of the cell or touch.
    pub(crate) fn version(&self) -> Option<Version> {
        let of_cell = self.cell().map(|cell| cell.version);
        of_cell.or_else(|| self.touch().map(|touch| touch.version))
    }
}

/// Overwrites the touch of the record that starts at `start`: its length stays.
pub(crate) fn patch_touch(bytes: &mut [u8], start: usize, touch: &Touch) {
    let key_len = usize::from(u16::from_le_bytes([bytes[start], bytes[start + 1]]));
    let at = start + RECORD_HEAD_BYTES + key_len;
    let mut encoded = Vec::with_capacity(touch.encoded_len());
    touch.encode(&mut encoded);
    bytes[at..at + encoded.len()].copy_from_slice(&encoded);
}

/// Overwrites the version of an encoded cell.
pub(crate) fn patch_encoded(encoded_cell: &mut [u8], version: Version) {
    let at = cell::ENCODED_VERSION_OFFSET;
    encoded_cell[at..at + Version::BYTES].copy_from_slice(&version.to_bytes());
}

/// Overwrites the version of the record that starts at `start`.
pub(crate) fn patch_version(bytes: &mut [u8], start: usize, version: Version) {
    let key_len = usize::from(u16::from_le_bytes([bytes[start], bytes[start + 1]]));
    let at = start + RECORD_HEAD_BYTES + key_len + cell::ENCODED_VERSION_OFFSET;
    bytes[at..at + Version::BYTES].copy_from_slice(&version.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(legal::cases(128))]

        #[test]
        fn any_legal_record_is_split_off_as_it_was_pushed(
            records in legal::stored_records(0..=6), version in legal::stored_version(),
        ) {
            let mut batch = Batch::new();
            for (key, cell) in &records {
                let pushed = batch.push(7, key, &cell.as_ref(), Guard::Newest, 1);
                prop_assert_eq!(pushed, Ok(()));
            }
            let mut rest = batch.bytes();
            for ((key, cell), write) in records.iter().zip(&batch.ops) {
                prop_assert_eq!(write.start, batch.bytes().len() - rest.len());
                let Some((record, behind)) = LogRecord::split(rest) else {
                    return Err(TestCaseError::fail("a record is there"));
                };
                prop_assert_eq!(record.stored_key, key);
                prop_assert!(record.cell() == Some(cell.as_ref()));
                rest = behind;
            }
            prop_assert!(rest.is_empty());
            if let Some(first) = batch.ops.first() {
                let mut bytes = batch.bytes().to_vec();
                patch_version(&mut bytes, first.start, version);
                let (record, _) = LogRecord::split(&bytes).expect("it was there before");
                let wanted = CellRef { version, ..records[0].1.as_ref() };
                prop_assert!(record.cell() == Some(wanted));
            }
        }
    }
}
