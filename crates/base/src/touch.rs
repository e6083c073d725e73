//! Touches: cells that have the value of an earlier version of their key, and not its bytes.
//!
//! ```text
//! encoded  | flags 1 | copies 1 | version 16 | checksum 8 | expiry ms 8 | ballot's clock 8, if flagged | version of the value 16 |
//!   flags    as of a cell, with bit 3: touch; bit 1 is set, bit 0 is not
//! ```
//!
//! Invariants
//! 1. No touch is a cell and no cell is a touch: `CellRef::decode` refuses bit 3.
//! 2. With the value of `of`, which an owner holds, it becomes a cell like any other. A reader of
//!    cells never sees a touch.
//! 3. It has an expiry: a renewal of a record that stays would change nothing.
//!
//! Not here: where values are looked up (crate `engine`, `commit.rs` and `recover.rs`).
//! See: docs/format/cell.md, docs/locks.md.

use crate::cell::{FIXED_BYTES, FLAG_BORN, FLAG_EXPIRY, FLAG_TOUCH};
use crate::{CellRef, Kind, Version};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The time of the touch, and its writer.
    pub version: Version,
    /// On how many replicas the record lives.
    pub copies: u8,
    /// Wall milliseconds after which the value is gone.
    pub expiry_ms: u64,
    /// Clock of the ballot under which it was chosen; 0 = none is known.
    pub born: u64,
    /// Checksum of the value, as in the cell that it is taken from.
    pub checksum: u64,
    /// Version of that cell. `Version::ZERO` = the one that the store finds.
    pub of: Version,
}

/// Where the version of the value stands, counted from the end of an encoded touch.
pub const ENCODED_OF_FROM_END: usize = Version::BYTES;

impl Touch {
    /// Length of the encoded form.
    pub fn encoded_len(&self) -> usize {
        let born = if self.born > 0 { 8 } else { 0 };
        FIXED_BYTES + 8 + born + Version::BYTES
    }

    /// Appends the encoded form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let born = if self.born > 0 { FLAG_BORN } else { 0 };
        out.push(FLAG_TOUCH | FLAG_EXPIRY | born);
        out.push(self.copies);
        out.extend_from_slice(&self.version.to_bytes());
        out.extend_from_slice(&self.checksum.to_le_bytes());
        out.extend_from_slice(&self.expiry_ms.to_le_bytes());
        if self.born > 0 {
            out.extend_from_slice(&self.born.to_le_bytes());
        }
        out.extend_from_slice(&self.of.to_bytes());
    }

    /// Reads an encoded touch; `None` when the bytes cannot be one.
    pub fn decode(bytes: &[u8]) -> Option<Touch> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let flags = fixed[0];
        if flags & !FLAG_BORN != FLAG_TOUCH | FLAG_EXPIRY {
            return None;
        }
        let (expiry, rest) = rest.split_first_chunk::<8>()?;
        let (born, rest) = match flags & FLAG_BORN {
            0 => (0, rest),
            _ => {
                let (born, rest) = rest.split_first_chunk::<8>()?;
                (u64::from_le_bytes(*born), rest)
            }
        };
        // Equal touches have equal bytes.
        if (flags & FLAG_BORN != 0) != (born > 0) {
            return None;
        }
        Some(Touch {
            version: Version::from_bytes(fixed[2..18].try_into().ok()?),
            copies: fixed[1],
            expiry_ms: u64::from_le_bytes(*expiry),
            born,
            checksum: u64::from_le_bytes(fixed[18..26].try_into().ok()?),
            of: Version::from_bytes(rest.try_into().ok()?),
        })
    }

    /// The whole cell, with the bytes of the value.
    pub fn with<'a>(&self, value: &'a [u8]) -> CellRef<'a> {
        CellRef {
            version: self.version,
            kind: Kind::Value,
            copies: self.copies,
            expiry_ms: Some(self.expiry_ms),
            born: self.born,
            checksum: self.checksum,
            value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_version() -> impl Strategy<Value = Version> {
        any::<[u8; Version::BYTES]>().prop_map(Version::from_bytes)
    }

    fn any_touch() -> impl Strategy<Value = Touch> {
        (
            any_version(),
            any::<u8>(),
            any::<u64>(),
            prop_oneof![Just(0), any::<u64>()],
            any::<u64>(),
            any_version(),
        )
            .prop_map(|(version, copies, expiry_ms, born, checksum, of)| Touch {
                version,
                copies,
                expiry_ms,
                born,
                checksum,
                of,
            })
    }

    proptest! {
        #[test]
        fn any_legal_touch_is_read_as_it_was_written_and_is_no_cell(touch in any_touch()) {
            let mut bytes = Vec::new();
            touch.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), touch.encoded_len());
            prop_assert_eq!(Touch::decode(&bytes), Some(touch));
            prop_assert_eq!(CellRef::decode(&bytes), None);
            for len in 0..bytes.len() {
                prop_assert_eq!(Touch::decode(&bytes[..len]), None);
            }
            let mut cell = Vec::new();
            touch.with(b"value").encode(&mut cell);
            prop_assert_eq!(Touch::decode(&cell), None);
            prop_assert_eq!(CellRef::decode(&cell), Some(touch.with(b"value")));
        }

        #[test]
        fn decoding_garbage_gives_only_what_encodes_to_it(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            if let Some(touch) = Touch::decode(&bytes) {
                let mut again = Vec::new();
                touch.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
