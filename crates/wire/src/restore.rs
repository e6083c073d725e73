//! One page of a restore: records with the versions that they had, for one node to keep.
//!
//! ```text
//! 0 magic "DNDRPAG1"   8 restore u128   24 number u64   32 length of `behind` u16
//! 34 length of the position u16   36 records u32   40 behind …   position …
//! record … record      xxh3-64 of everything in front of it
//! record   key length u16 | cell length u32 | raw key | encoded cell           numbers: little-endian
//! ```
//!
//! Invariants
//! 1. A page that decodes is whole: its checksum covers every byte, and every cell fits its key.
//! 2. Keys rise strictly. All are above `behind`, where the page before it ended, and the last one
//!    is at most the position.
//!
//! Not here: which records a node keeps (crate `server`), the bytes of cells (crate `base`).
//! See: docs/format/backup.md.

use bytes::Bytes;
use dendra_base::limits::{KEY_BYTES_MAX, WRAPPED_VALUE_BYTES_MAX};
use dendra_base::{CellRef, Key};
use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"DNDRPAG1";
const HEAD_BYTES: usize = 40;
const RECORD_HEAD_BYTES: usize = 6;
const CHECKSUM_BYTES: usize = 8;

/// A page is sent when it has this much, unless one record is larger.
pub const PAGE_BYTES: usize = 1 << 20;
/// Records of a page: as many as the log's queue takes at once, and room for the note about it.
pub const PAGE_RECORDS_MAX: usize = 2048;
/// The largest page: one below `PAGE_BYTES`, and a record of the largest size.
pub const PAGE_BYTES_MAX: usize = PAGE_BYTES + WRAPPED_VALUE_BYTES_MAX + (8 << 10);
/// Pages that one node is sent at once: bytes of them all, where a small page counts as
/// `PAGE_BYTES`. A node has this much room.
pub const PAGES_AT_ONCE_BYTES: usize = 2 * PAGE_BYTES_MAX;

/// The share of `PAGES_AT_ONCE_BYTES` that a page of this length has.
pub fn page_room(bytes: usize) -> u32 {
    let room = bytes.clamp(PAGE_BYTES, PAGE_BYTES_MAX);
    u32::try_from(room).expect("a page has a few MiB")
}

/// Where records begin in the bytes of a writer: the bytes in front of them are known at the end.
const FRONT_BYTES: usize = HEAD_BYTES + 2 * KEY_BYTES_MAX;

/// Why bytes are no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRestorePage(&'static str);

impl fmt::Display for BadRestorePage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is no page of a restore: {}", self.0)
    }
}

impl std::error::Error for BadRestorePage {}

/// Writes one page.
#[derive(Debug)]
pub struct RestorePageWriter {
    restore: u128,
    number: u64,
    /// Records, from `FRONT_BYTES` on.
    bytes: Vec<u8>,
    records: u32,
    behind: Vec<u8>,
    last: Vec<u8>,
}

impl RestorePageWriter {
    /// An empty page of `restore`, of keys above `behind`.
    pub fn new(restore: u128, number: u64, behind: &[u8]) -> RestorePageWriter {
        // Room for a full page and a record of usual size: bytes are not moved while it grows.
        let mut bytes = Vec::with_capacity(FRONT_BYTES + PAGE_BYTES + PAGE_BYTES / 8);
        bytes.resize(FRONT_BYTES, 0);
        RestorePageWriter {
            restore,
            number,
            bytes,
            records: 0,
            behind: behind.to_vec(),
            last: behind.to_vec(),
        }
    }

    /// Adds the cell of a client's key. Requires: keys rise.
    pub fn push(&mut self, raw_key: &[u8], cell: &CellRef<'_>) {
        let key_len = u16::try_from(raw_key.len()).expect("a key has at most 1,024 bytes");
        let cell_len = u32::try_from(cell.encoded_len()).expect("a value has at most 8 MiB");
        self.bytes.extend_from_slice(&key_len.to_le_bytes());
        self.bytes.extend_from_slice(&cell_len.to_le_bytes());
        self.bytes.extend_from_slice(raw_key);
        cell.encode(&mut self.bytes);
        self.records += 1;
        self.last.clear();
        self.last.extend_from_slice(raw_key);
    }

    /// Is it large enough to be sent?
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= FRONT_BYTES + PAGE_BYTES || self.records as usize >= PAGE_RECORDS_MAX
    }

    /// Has it no record?
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The last key, where the next page begins; `behind` in an empty page.
    pub fn position(&self) -> &[u8] {
        &self.last
    }

    /// The bytes to send: everything up to the position is in this page or in one before it.
    pub fn finish(mut self) -> Bytes {
        let len = |key: &[u8]| u16::try_from(key.len()).expect("a key has at most 1,024 bytes");
        let mut front = Vec::with_capacity(HEAD_BYTES + self.behind.len() + self.last.len());
        front.extend_from_slice(&MAGIC);
        front.extend_from_slice(&self.restore.to_le_bytes());
        front.extend_from_slice(&self.number.to_le_bytes());
        front.extend_from_slice(&len(&self.behind).to_le_bytes());
        front.extend_from_slice(&len(&self.last).to_le_bytes());
        front.extend_from_slice(&self.records.to_le_bytes());
        front.extend_from_slice(&self.behind);
        front.extend_from_slice(&self.last);
        let begins = FRONT_BYTES - front.len();
        self.bytes[begins..FRONT_BYTES].copy_from_slice(&front);
        let checksum = xxh3_64(&self.bytes[begins..]);
        self.bytes.extend_from_slice(&checksum.to_le_bytes());
        Bytes::from(self.bytes).slice(begins..)
    }
}

/// A page that was checked.
#[derive(Debug)]
pub struct RestorePage<'a> {
    /// Which restore it belongs to.
    pub restore: u128,
    /// Counted from 0 in each restore.
    pub number: u64,
    /// The page before it ended with this key; empty in front of the first one.
    pub behind: &'a [u8],
    /// Everything up to this key, inclusive, is in this page or in one before it.
    pub position: &'a [u8],
    /// Raw keys with their cells, in order.
    pub records: Vec<(&'a [u8], CellRef<'a>)>,
}

impl<'a> RestorePage<'a> {
    /// Checks and reads `bytes`.
    ///
    /// # Errors
    /// They are not the bytes of a `RestorePageWriter`.
    pub fn decode(bytes: &'a [u8]) -> Result<RestorePage<'a>, BadRestorePage> {
        let (body, checksum) = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or(BadRestorePage("it is too short"))?;
        let (head, rest) = body
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(BadRestorePage("it is too short"))?;
        if head[..8] != MAGIC {
            return Err(BadRestorePage("it does not begin as one"));
        }
        if xxh3_64(body) != u64::from_le_bytes(*checksum) {
            return Err(BadRestorePage("its checksum does not hold"));
        }
        let restore = u128::from_le_bytes(fixed(&head[8..24]));
        let number = u64::from_le_bytes(fixed(&head[24..32]));
        let behind_len = usize::from(u16::from_le_bytes(fixed(&head[32..34])));
        let position_len = usize::from(u16::from_le_bytes(fixed(&head[34..36])));
        let count = u32::from_le_bytes(fixed(&head[36..40])) as usize;
        if count > PAGE_RECORDS_MAX || behind_len.max(position_len) > KEY_BYTES_MAX {
            return Err(BadRestorePage("it has more records than a page has"));
        }
        let (behind, rest) = rest
            .split_at_checked(behind_len)
            .ok_or(BadRestorePage("its position is cut"))?;
        let (position, mut rest) = rest
            .split_at_checked(position_len)
            .ok_or(BadRestorePage("its position is cut"))?;
        let mut records: Vec<(&[u8], CellRef<'_>)> = Vec::with_capacity(count);
        let mut last = behind;
        for _ in 0..count {
            let (key, cell, left) = record(rest)?;
            let rises = last < key;
            if !rises || key > position {
                return Err(BadRestorePage("its keys are out of order"));
            }
            records.push((key, cell));
            (last, rest) = (key, left);
        }
        if !rest.is_empty() {
            return Err(BadRestorePage("something is behind its last record"));
        }
        Ok(RestorePage {
            restore,
            number,
            behind,
            position,
            records,
        })
    }
}

/// The clock value of a record that is newer than `most`: no restore that began with `most` as the
/// largest one takes it.
pub fn clock_above(records: &[(&[u8], CellRef<'_>)], most: u64) -> Option<u64> {
    let mut clocks = records.iter().map(|(_, cell)| cell.version.hlc);
    clocks.find(|hlc| *hlc > most)
}

fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the caller cut N bytes")
}

fn record(bytes: &[u8]) -> Result<(&[u8], CellRef<'_>, &[u8]), BadRestorePage> {
    let cut = BadRestorePage("a record is cut");
    let (head, rest) = bytes
        .split_first_chunk::<RECORD_HEAD_BYTES>()
        .ok_or_else(|| cut.clone())?;
    let key_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
    let cell_len = u32::from_le_bytes([head[2], head[3], head[4], head[5]]) as usize;
    if key_len == 0 || key_len > KEY_BYTES_MAX {
        return Err(BadRestorePage("a key has no length that keys have"));
    }
    let (key, rest) = rest.split_at_checked(key_len).ok_or_else(|| cut.clone())?;
    let (cell, rest) = rest.split_at_checked(cell_len).ok_or(cut)?;
    let cell = CellRef::decode(cell).ok_or(BadRestorePage("a cell cannot be read"))?;
    if cell.value.len() > WRAPPED_VALUE_BYTES_MAX {
        return Err(BadRestorePage("a value is larger than any value is"));
    }
    if !cell.is_intact(Key::user(key).as_stored()) {
        return Err(BadRestorePage("a value is not the one that its key had"));
    }
    Ok((key, cell, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::{Kind, Version};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn page() -> Bytes {
        let mut writer = RestorePageWriter::new(7, 3, b"Z");
        assert!(writer.is_empty());
        for (n, key) in [b"a".as_slice(), b"b", b"bb"].into_iter().enumerate() {
            let stored = Key::user(key);
            let version = Version {
                hlc: 9 + n as u64,
                origin: 1,
                rmw: 2,
            };
            let mut cell = match n {
                1 => CellRef::tombstone(stored.as_stored(), version),
                _ => CellRef::value(stored.as_stored(), version, b"value"),
            };
            cell.expiry_ms = (n == 2).then_some(77);
            writer.push(key, &cell);
        }
        writer.finish()
    }

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let bytes = page();
        let page = RestorePage::decode(&bytes).expect("it is whole");
        assert_eq!((page.restore, page.number), (7, 3));
        assert_eq!((page.behind, page.position), (&b"Z"[..], &b"bb"[..]));
        let keys: Vec<&[u8]> = page.records.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [b"a".as_slice(), b"b", b"bb"]);
        assert_eq!(page.records[2].1.expiry_ms, Some(77));
        assert_eq!(page.records[2].1.version.rmw, 2);
        let empty = RestorePageWriter::new(1, 0, b"").finish();
        assert!(
            RestorePage::decode(&empty)
                .expect("whole")
                .records
                .is_empty()
        );
    }

    #[test]
    fn a_page_is_full_of_bytes_or_of_records() {
        let large = vec![7; PAGE_BYTES / 4];
        for (value, wanted) in [(&b""[..], PAGE_RECORDS_MAX), (&large, 4)] {
            let mut writer = RestorePageWriter::new(7, 3, b"");
            let mut count = 0;
            while !writer.is_full() {
                let raw = format!("{count:05}");
                let key = Key::user(raw.as_bytes());
                writer.push(
                    raw.as_bytes(),
                    &CellRef::value(key.as_stored(), Version::ZERO, value),
                );
                count += 1;
            }
            assert_eq!(count, wanted);
        }
    }

    /// A page of values of these keys, as the node reads it.
    fn read_back(behind: &[u8], keys: &[&[u8]]) -> Result<(), String> {
        let mut writer = RestorePageWriter::new(1, 1, behind);
        for key in keys {
            let stored = Key::user(key);
            let cell = CellRef::value(stored.as_stored(), Version::ZERO, key);
            writer.push(key, &cell);
        }
        let bytes = writer.finish();
        let page = RestorePage::decode(&bytes).map_err(|bad| bad.to_string())?;
        let read: Vec<&[u8]> = page.records.iter().map(|(key, _)| *key).collect();
        assert_eq!((page.behind, read.as_slice()), (behind, keys));
        Ok(())
    }

    /// The largest key below this one; no key is below the first one.
    fn key_before(key: &[u8]) -> Vec<u8> {
        match key.split_last() {
            None | Some((0, _)) => key[..key.len().saturating_sub(1)].to_vec(),
            Some((last, front)) => {
                let mut before = [front, &[last - 1]].concat();
                before.resize(KEY_BYTES_MAX, u8::MAX);
                before
            }
        }
    }

    #[test]
    fn a_page_may_begin_with_any_byte_in_front_of_a_key_of_any_length() {
        for first in 0..=u8::MAX {
            // All lengths, shared among seven bytes that follow each other.
            for length in (1 + usize::from(first) % 7..=KEY_BYTES_MAX).step_by(7) {
                let mut second = vec![first; length];
                match length {
                    1 if first == u8::MAX => continue,
                    1 => second[0] += 1,
                    _ => {}
                }
                for behind in [Vec::new(), key_before(&[first])] {
                    let read = read_back(&behind, &[&[first], &second]);
                    assert_eq!(read, Ok(()), "{first:#04x}, then {length} bytes");
                }
            }
        }
    }

    #[test]
    fn the_largest_page_is_read() {
        let (first, second) = (vec![7; KEY_BYTES_MAX - 1], vec![7; KEY_BYTES_MAX]);
        let key_before_first = key_before(&first);
        let mut writer = RestorePageWriter::new(u128::MAX, u64::MAX, &key_before_first);
        let stored = [Key::user(&first), Key::user(&second)];
        let fullest = |stored: &Key, value| CellRef {
            expiry_ms: Some(u64::MAX),
            born: u64::MAX,
            ..CellRef::value(stored.as_stored(), Version::MAX, value)
        };
        let bare = RECORD_HEAD_BYTES + first.len() + fullest(&stored[0], b"").encoded_len();
        let fill = vec![3; PAGE_BYTES - 1 - bare];
        writer.push(&first, &fullest(&stored[0], &fill));
        assert!(!writer.is_full(), "a byte is missing");
        let value = vec![9; WRAPPED_VALUE_BYTES_MAX];
        writer.push(&second, &fullest(&stored[1], &value));
        assert!(writer.is_full());
        let bytes = writer.finish();
        assert!(bytes.len() <= PAGE_BYTES_MAX, "{}", bytes.len());
        let page = RestorePage::decode(&bytes).expect("it is whole");
        assert_eq!(page.records[1], (&second[..], fullest(&stored[1], &value)));
        assert_eq!(page.behind, key_before_first);
    }

    /// Keys of all lengths and bytes, with long common beginnings among them.
    fn any_key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0), Just(u8::MAX), Just(b'/'), any::<u8>()];
        let short = prop::collection::vec(byte.clone(), 1..4);
        let run = (byte, 1..=KEY_BYTES_MAX).prop_map(|(byte, length)| vec![byte; length]);
        let drawn = prop::collection::vec(any::<u8>(), 1..=KEY_BYTES_MAX);
        let digest = "[0-9a-f]{64}".prop_map(String::into_bytes);
        let path = "/registry/[a-z]{1,9}/[a-z0-9-]{1,60}".prop_map(String::into_bytes);
        let common = (0..=u8::MAX, 1..=1024usize).prop_map(|(last, length)| {
            let mut key = vec![b'c'; length];
            key[length - 1] = last;
            key
        });
        prop_oneof![short, run, drawn, digest, path, common]
    }

    fn any_value() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![
            8 => 0..300usize,
            2 => 300..5_000usize,
            1 => PAGE_BYTES - 2..PAGE_BYTES + 3,
        ];
        (any::<u8>(), length).prop_map(|(byte, length)| vec![byte; length])
    }

    /// What a cell has beside its value: a time to live, a ballot, or a deletion in its place.
    fn any_cell() -> impl Strategy<Value = (Version, Kind, Option<u64>, u64, Vec<u8>)> {
        let version = (any::<u64>(), any::<u32>(), any::<u32>());
        let version = version.prop_map(|(hlc, origin, rmw)| Version { hlc, origin, rmw });
        let kind = prop_oneof![3 => Just(Kind::Value), 1 => Just(Kind::Tombstone)];
        let expiry = prop::option::of(any::<u64>());
        let born = prop_oneof![Just(0), any::<u64>()];
        (version, kind, expiry, born, any_value())
    }

    proptest! {
        #[test]
        fn any_legal_page_is_read_as_it_was_written(
            cells in prop::collection::btree_map(any_key(), any_cell(), 0..6),
            is_near in any::<bool>(),
        ) {
            let near = cells.keys().next().map(|key| key_before(key));
            let behind = near.filter(|_| is_near).unwrap_or_default();
            let mut writer = RestorePageWriter::new(9, 4, &behind);
            let mut pushed = BTreeMap::new();
            for (key, (version, kind, expiry_ms, born, value)) in &cells {
                let stored = Key::user(key);
                let cell = match kind {
                    Kind::Value => CellRef {
                        expiry_ms: *expiry_ms,
                        born: *born,
                        ..CellRef::value(stored.as_stored(), *version, value)
                    },
                    Kind::Tombstone => CellRef {
                        born: *born,
                        ..CellRef::tombstone(stored.as_stored(), *version)
                    },
                };
                writer.push(key, &cell);
                pushed.insert(key.as_slice(), cell);
            }
            let position = cells.keys().next_back().map_or(&behind[..], |key| key);
            prop_assert_eq!(writer.position(), position);
            let bytes = writer.finish();
            let page = match RestorePage::decode(&bytes) {
                Ok(page) => page,
                Err(bad) => return Err(TestCaseError::fail(bad.to_string())),
            };
            prop_assert_eq!((page.restore, page.number), (9, 4));
            prop_assert_eq!((page.behind, page.position), (&behind[..], position));
            prop_assert!(page.records.iter().copied().eq(pushed));
        }
    }

    #[test]
    fn a_page_that_lost_or_changed_a_byte_is_none() {
        let bytes = page();
        for at in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[at] ^= 0x10;
            assert!(RestorePage::decode(&changed).is_err(), "byte {at}");
            assert!(RestorePage::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn keys_that_do_not_rise_and_values_of_other_keys_are_refused_although_the_checksum_holds() {
        let version = Version::ZERO;
        let of = |keys: [&[u8]; 2], stored_of: &[u8]| {
            let mut writer = RestorePageWriter::new(1, 1, b"A");
            for key in keys {
                let stored = Key::user(stored_of);
                writer.push(key, &CellRef::value(stored.as_stored(), version, b"v"));
            }
            RestorePage::decode(&writer.finish())
                .map(|_| ())
                .map_err(|e| e.0)
        };
        assert_eq!(of([b"a", b"a"], b"a"), Err("its keys are out of order"));
        assert_eq!(of([b"A", b"A"], b"A"), Err("its keys are out of order"));
        assert_eq!(
            of([b"a", b"b"], b"a"),
            Err("a value is not the one that its key had")
        );
    }
}
