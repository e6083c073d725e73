//! The manifest's facts about each table: enough to plan with, and to know a file again.
//!
//! ```text
//! | id u64 | bytes u64 | digest u64 | records u64 | tombstones u64 | expiring u64 |
//! | version min 16 | version max 16 | smallest: len u16, bytes | largest: len u16, bytes |
//! ```
//!
//! Invariants
//! 1. `decode` reads exactly the bytes of `encode` and refuses keys that are out of order or too
//!    long.
//!
//! Not here: which level a table is on (manifest), the same facts inside the file (`footer.rs`).
//! See: docs/format/table.md.

use dendra_base::Version;
use dendra_base::limits::STORED_KEY_BYTES_MAX;

/// The manifest's facts about a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// Names the file; never reused in a folder.
    pub id: u64,
    /// Length of the file.
    pub bytes: u64,
    /// xxh3-64 over all bytes of the file.
    pub digest: u64,
    /// Number of records, tombstones included.
    pub records: u64,
    /// How many of them are tombstones.
    pub tombstones: u64,
    /// How many of them have an expiry.
    pub expiring: u64,
    /// First stored key.
    pub smallest: Vec<u8>,
    /// Last stored key.
    pub largest: Vec<u8>,
    /// Oldest version of any record.
    pub version_min: Version,
    /// Newest version of any record.
    pub version_max: Version,
}

impl TableMeta {
    /// Does `stored_key` lie between the first and the last key?
    #[inline]
    pub fn holds_key(&self, stored_key: &[u8]) -> bool {
        self.smallest.as_slice() <= stored_key && stored_key <= self.largest.as_slice()
    }

    /// Appends the binary form, little-endian except for versions.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [
            self.id,
            self.bytes,
            self.digest,
            self.records,
            self.tombstones,
            self.expiring,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.version_min.to_bytes());
        out.extend_from_slice(&self.version_max.to_bytes());
        for key in [&self.smallest, &self.largest] {
            let len = u16::try_from(key.len()).expect("a stored key is at most 1033 bytes");
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(key);
        }
    }

    /// The first fact besides the digest in which `found` differs, for a message.
    pub(super) fn difference(&self, found: &TableMeta) -> Option<String> {
        let numbers = [
            ("bytes", self.bytes, found.bytes),
            ("records", self.records, found.records),
            ("tombstones", self.tombstones, found.tombstones),
            ("expiring", self.expiring, found.expiring),
        ];
        let versions = [
            ("oldest version", self.version_min, found.version_min),
            ("newest version", self.version_max, found.version_max),
        ];
        let keys = [
            ("smallest key", &self.smallest, &found.smallest),
            ("largest key", &self.largest, &found.largest),
        ];
        let numbers = numbers.map(|(name, a, b)| (name, a.to_string(), b.to_string()));
        let versions = versions.map(|(name, a, b)| (name, a.to_string(), b.to_string()));
        let keys = keys.map(|(n, a, b)| {
            (
                n,
                a.escape_ascii().to_string(),
                b.escape_ascii().to_string(),
            )
        });
        let mut facts = numbers.into_iter().chain(versions).chain(keys);
        let (name, expected, is) = facts.find(|(_, expected, is)| expected != is)?;
        Some(format!(
            "the manifest says {name} = {expected}, the file says {is}"
        ))
    }

    /// Takes one binary form off the front of `bytes`. `None` when they cannot be one; `bytes` may
    /// then have moved.
    pub fn decode(bytes: &mut &[u8]) -> Option<TableMeta> {
        let mut numbers = [0; 6];
        for number in &mut numbers {
            *number = u64::from_le_bytes(take(bytes)?);
        }
        let version_min = Version::from_bytes(take(bytes)?);
        let version_max = Version::from_bytes(take(bytes)?);
        let smallest = take_key(bytes)?;
        let largest = take_key(bytes)?;
        let [id, file_bytes, digest, records, tombstones, expiring] = numbers;
        if smallest > largest || version_min > version_max || tombstones > records {
            return None;
        }
        Some(TableMeta {
            id,
            bytes: file_bytes,
            digest,
            records,
            tombstones,
            expiring,
            smallest,
            largest,
            version_min,
            version_max,
        })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

fn take_key(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let len = usize::from(u16::from_le_bytes(take(bytes)?));
    if len == 0 || len > STORED_KEY_BYTES_MAX {
        return None;
    }
    let (key, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(key.to_vec())
}
