//! Cells: the content of a key, and the choice between two copies where they meet.
//!
//! ```text
//! encoded  | flags 1 | copies 1 | version 16 | checksum 8 | expiry ms 8, if flagged | ballot's clock 8, if flagged | value … |
//!   flags    bit 0: tombstone   bit 1: has an expiry   bit 2: has a ballot   others: zero, refused when set
//!            (bit 3 is of a touch, which is no cell: `touch.rs`)
//!   checksum xxh3-64 of the value, seeded with xxh3-64 of the stored key
//! ```
//!
//! Invariants
//! 1. `newest` is commutative, associative and idempotent. It goes by `Version::is_newer_than`; of
//!    one version a value with an end stays before a tombstone. A table makes such a tombstone of
//!    such a value when it has ended, and nothing makes the value of the tombstone.
//! 2. The value's length is the enclosing record's business; a decoded value borrows its bytes.
//! 3. A tombstone has no value and no expiry.
//!
//! Not here: purging of tombstones and expired cells (crate `engine`, compaction).
//! See: docs/format/cell.md, docs/decisions/0001-one-merge-rule.md.

use crate::Version;
use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Is there a value, or the fact that there is none any more?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The key holds a value.
    Value,
    /// The key was deleted at this version.
    Tombstone,
}

/// A cell that owns its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The time of its write, and the writer.
    pub version: Version,
    /// Value or tombstone.
    pub kind: Kind,
    /// On how many replicas the record lives (`from` of the write).
    pub copies: u8,
    /// Wall milliseconds after which the value is gone; `None` = never.
    pub expiry_ms: Option<u64>,
    /// Clock of the ballot under which a conditional write chose it; 0 = none is known.
    pub born: u64,
    /// See [`checksum`].
    pub checksum: u64,
    /// The bytes the client stored; empty for a tombstone.
    pub value: Bytes,
}

/// The identity of a cell among those of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellId {
    /// Names the write. Two cells of one version should be the same.
    pub version: Version,
    /// Digest of the cell's kind, expiry and checksum. Tombstones have the smallest one, 0.
    pub digest: u64,
}

/// A cell that borrows its value from a buffer, a block or the memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRef<'a> {
    /// The time of its write, and the writer.
    pub version: Version,
    /// Value or tombstone.
    pub kind: Kind,
    /// On how many replicas the record lives (`from` of the write).
    pub copies: u8,
    /// Wall milliseconds after which the value is gone; `None` = never.
    pub expiry_ms: Option<u64>,
    /// Clock of the ballot under which a conditional write chose it; 0 = none is known.
    pub born: u64,
    /// See [`checksum`].
    pub checksum: u64,
    /// The bytes the client stored; empty for a tombstone.
    pub value: &'a [u8],
}

/// Checksum of a value under its stored key. It is made where the value enters, and checked where
/// it leaves. So no layer in between can hand out another key's bytes unnoticed.
pub fn checksum(stored_key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, xxh3_64(stored_key))
}

const FLAG_TOMBSTONE: u8 = 1;
pub(crate) const FLAG_EXPIRY: u8 = 2;
pub(crate) const FLAG_BORN: u8 = 4;
/// Marks a touch, which is no cell: see `touch.rs`.
pub(crate) const FLAG_TOUCH: u8 = 8;
/// No clock shows less: smaller clock fields of versions name records that were created without a
/// base.
const CLOCK_FIELD_MIN: u64 = 1 << 56;
/// Bytes in front of the optional expiry: flags, copies, version, checksum.
pub(crate) const FIXED_BYTES: usize = 1 + 1 + Version::BYTES + 8;
/// Where the version stands inside an encoded cell.
pub const ENCODED_VERSION_OFFSET: usize = 2;

impl<'a> CellRef<'a> {
    /// A value as it enters the system.
    pub fn value(stored_key: &[u8], version: Version, value: &'a [u8]) -> CellRef<'a> {
        CellRef {
            version,
            kind: Kind::Value,
            copies: 1,
            expiry_ms: None,
            born: 0,
            checksum: checksum(stored_key, value),
            value,
        }
    }

    /// A deletion as it enters the system.
    pub fn tombstone(stored_key: &[u8], version: Version) -> CellRef<'a> {
        CellRef {
            version,
            kind: Kind::Tombstone,
            copies: 1,
            expiry_ms: None,
            born: 0,
            checksum: checksum(stored_key, b""),
            value: b"",
        }
    }

    /// Length of the encoded form.
    pub fn encoded_len(&self) -> usize {
        let expiry = if self.expiry_ms.is_some() { 8 } else { 0 };
        let born = if self.born > 0 { 8 } else { 0 };
        FIXED_BYTES + expiry + born + self.value.len()
    }

    /// Appends the encoded form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        if self.kind == Kind::Tombstone {
            flags |= FLAG_TOMBSTONE;
        }
        if self.expiry_ms.is_some() {
            flags |= FLAG_EXPIRY;
        }
        if self.born > 0 {
            flags |= FLAG_BORN;
        }
        out.push(flags);
        out.push(self.copies);
        out.extend_from_slice(&self.version.to_bytes());
        out.extend_from_slice(&self.checksum.to_le_bytes());
        if let Some(expiry_ms) = self.expiry_ms {
            out.extend_from_slice(&expiry_ms.to_le_bytes());
        }
        if self.born > 0 {
            out.extend_from_slice(&self.born.to_le_bytes());
        }
        out.extend_from_slice(self.value);
    }

    /// Reads an encoded cell; `None` when the bytes cannot be one.
    pub fn decode(bytes: &'a [u8]) -> Option<CellRef<'a>> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let flags = fixed[0];
        if flags & !(FLAG_TOMBSTONE | FLAG_EXPIRY | FLAG_BORN) != 0 {
            return None;
        }
        let version = Version::from_bytes(fixed[2..18].try_into().ok()?);
        let checksum = u64::from_le_bytes(fixed[18..26].try_into().ok()?);
        let (expiry_ms, value) = if flags & FLAG_EXPIRY != 0 {
            let (expiry, value) = rest.split_first_chunk::<8>()?;
            (Some(u64::from_le_bytes(*expiry)), value)
        } else {
            (None, rest)
        };
        let (born, value) = if flags & FLAG_BORN != 0 {
            let (born, value) = value.split_first_chunk::<8>()?;
            (u64::from_le_bytes(*born), value)
        } else {
            (0, value)
        };
        // Equal cells have equal bytes.
        if (flags & FLAG_BORN != 0) != (born > 0) {
            return None;
        }
        let kind = if flags & FLAG_TOMBSTONE != 0 {
            Kind::Tombstone
        } else {
            Kind::Value
        };
        if kind == Kind::Tombstone && (!value.is_empty() || expiry_ms.is_some()) {
            return None;
        }
        Some(CellRef {
            version,
            kind,
            copies: fixed[1],
            expiry_ms,
            born,
            checksum,
            value,
        })
    }

    /// Is the value still as its key's writer stored it?
    pub fn is_intact(&self, stored_key: &[u8]) -> bool {
        self.checksum == checksum(stored_key, self.value)
    }

    /// When it was made, as a clock value; `u64::MAX` = that is not known. A successor has the
    /// clock field of its base, and a record that was created without a base has a smaller one than
    /// any clock shows. Only the ballot tells when such a cell was made.
    pub fn age(&self) -> u64 {
        match self.born {
            0 if self.version.rmw == 0 && self.version.hlc >= CLOCK_FIELD_MIN => self.version.hlc,
            0 => u64::MAX,
            born => born,
        }
    }

    /// Does a reader at `now_ms` see a value?
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.kind == Kind::Value && self.expiry_ms.is_none_or(|expiry| now_ms < expiry)
    }

    /// Tells it from every other cell of its key.
    pub fn id(&self) -> CellId {
        let digest = match self.kind {
            Kind::Tombstone => 0,
            Kind::Value => {
                let mut bytes = [0; 17];
                bytes[..8].copy_from_slice(&self.checksum.to_le_bytes());
                bytes[8] = u8::from(self.expiry_ms.is_some());
                bytes[9..].copy_from_slice(&self.expiry_ms.unwrap_or(0).to_le_bytes());
                xxh3_64(&bytes).max(1)
            }
        };
        CellId {
            version: self.version,
            digest,
        }
    }

    /// Does this copy stay where it meets `other`?
    pub fn is_newer_than(&self, other: &CellRef<'_>) -> bool {
        self.version.is_newer_than(other.version)
            || (self.version == other.version && other.is_what_is_left_of(self))
    }

    /// Is it the tombstone that a table made of the value `whole`, for that had ended?
    pub fn is_what_is_left_of(&self, whole: &CellRef<'_>) -> bool {
        self.version == whole.version
            && self.kind == Kind::Tombstone
            && whole.kind == Kind::Value
            && whole.expiry_ms.is_some()
    }

    /// The newer of two copies; this one when neither is.
    pub fn newest(self, other: CellRef<'a>) -> CellRef<'a> {
        if other.is_newer_than(&self) {
            other
        } else {
            self
        }
    }

    /// A copy that owns its value.
    pub fn to_owned(&self) -> Cell {
        Cell {
            version: self.version,
            kind: self.kind,
            copies: self.copies,
            expiry_ms: self.expiry_ms,
            born: self.born,
            checksum: self.checksum,
            value: Bytes::copy_from_slice(self.value),
        }
    }
}

impl Cell {
    /// Tells it from every other cell of its key.
    pub fn id(&self) -> CellId {
        self.as_ref().id()
    }

    /// Does this copy stay where it meets `other`?
    pub fn is_newer_than(&self, other: &Cell) -> bool {
        self.as_ref().is_newer_than(&other.as_ref())
    }

    /// Is it the tombstone that a table made of the value `whole`, for that had ended?
    pub fn is_what_is_left_of(&self, whole: &Cell) -> bool {
        self.as_ref().is_what_is_left_of(&whole.as_ref())
    }

    /// Borrows the cell.
    pub fn as_ref(&self) -> CellRef<'_> {
        CellRef {
            version: self.version,
            kind: self.kind,
            copies: self.copies,
            expiry_ms: self.expiry_ms,
            born: self.born,
            checksum: self.checksum,
            value: &self.value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_cell() -> impl Strategy<Value = Cell> {
        (
            0u64..4,
            0u32..3,
            any::<bool>(),
            (any::<Option<u64>>(), 0u64..3),
            prop::collection::vec(any::<u8>(), 0..40),
        )
            .prop_map(|(hlc, origin, dead, (expiry_ms, born), value)| {
                let version = Version {
                    hlc,
                    origin,
                    rmw: 0,
                };
                if dead {
                    let mut cell = CellRef::tombstone(b"k", version).to_owned();
                    cell.born = born;
                    return cell;
                }
                let mut cell = CellRef::value(b"k", version, &value).to_owned();
                cell.expiry_ms = expiry_ms;
                cell.born = born;
                cell
            })
    }

    proptest! {
        #[test]
        fn encoding_reads_back(cell in any_cell()) {
            let mut bytes = Vec::new();
            cell.as_ref().encode(&mut bytes);
            prop_assert_eq!(bytes.len(), cell.as_ref().encoded_len());
            prop_assert_eq!(CellRef::decode(&bytes), Some(cell.as_ref()));
        }

        #[test]
        fn newest_is_commutative_associative_idempotent(
            a in any_cell(), b in any_cell(), c in any_cell(),
        ) {
            let (a, b, c) = (a.as_ref(), b.as_ref(), c.as_ref());
            prop_assert_eq!(a.newest(b).version, b.newest(a).version);
            prop_assert_eq!(a.newest(b).newest(c).version, a.newest(b.newest(c)).version);
            // Whether a value that ends is left does not hang on the order either.
            let ends = |cell: CellRef<'_>| cell.expiry_ms.is_some();
            let has_lasting = [a, b, c].iter().any(|it| it.kind == Kind::Value && !ends(*it));
            prop_assert!(has_lasting || ends(a.newest(b)) == ends(b.newest(a)));
            prop_assert!(has_lasting
                || ends(a.newest(b).newest(c)) == ends(a.newest(b.newest(c))));
            prop_assert_eq!(a.newest(a), a);
            prop_assert_eq!(b.newest(a) == b, !a.is_newer_than(&b) || a == b);
            prop_assert_eq!(a.is_newer_than(&b), a.to_owned().is_newer_than(&b.to_owned()));
        }

        #[test]
        fn decoding_garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(cell) = CellRef::decode(&bytes) {
                prop_assert!(cell.kind == Kind::Value || cell.value.is_empty());
            }
        }
    }

    #[test]
    fn a_value_under_another_key_is_not_intact() {
        let cell = CellRef::value(b"k", Version::ZERO, b"v");
        assert!(cell.is_intact(b"k"));
        assert!(!cell.is_intact(b"l"));
    }

    #[test]
    fn only_a_ballot_tells_the_age_of_a_conditional_write() {
        let cell = |hlc, rmw, born| CellRef {
            born,
            ..CellRef::tombstone(
                b"k",
                Version {
                    hlc,
                    origin: 1,
                    rmw,
                },
            )
        };
        let clock = CLOCK_FIELD_MIN + 7;
        assert_eq!(cell(clock, 0, 0).age(), clock, "a plain write");
        assert_eq!(cell(clock, 1, 0).age(), u64::MAX, "a successor");
        assert_eq!(cell(clock >> 8, 0, 0).age(), u64::MAX, "built on nothing");
        assert_eq!(cell(clock, 1, clock + 9).age(), clock + 9);
    }

    #[test]
    fn of_one_version_a_value_that_ends_stays_and_not_the_tombstone_that_is_left_of_it() {
        let version = Version {
            hlc: 5,
            ..Version::ZERO
        };
        let (gone, lasts) = (
            CellRef::tombstone(b"k", version),
            CellRef::value(b"k", version, b"v"),
        );
        let ends = CellRef {
            expiry_ms: Some(1),
            ..lasts
        };
        assert_eq!((gone.newest(ends), ends.newest(gone)), (ends, ends));
        // A lasting value leaves no tombstone of its version: neither of the two is newer.
        assert!(!gone.is_newer_than(&lasts) && !lasts.is_newer_than(&gone));
        let later = CellRef {
            version: version.successor(),
            ..gone
        };
        assert!(later.is_newer_than(&ends) && !ends.is_newer_than(&later));
    }

    #[test]
    fn an_expired_value_is_not_live() {
        let mut cell = CellRef::value(b"k", Version::ZERO, b"v");
        cell.expiry_ms = Some(100);
        assert!(cell.is_live(99));
        assert!(!cell.is_live(100));
    }
}
