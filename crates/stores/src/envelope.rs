//! A record as the value of an engine that keeps bytes alone.
//!
//! ```text
//! | 'D' | form: u8 = 1 | flags: u8 | checksum: u64 | expiry_ms: u64, with flag 1 | value |
//! ```
//!
//! Invariants
//! 1. Big-endian. The version is the engine's own, and stands outside.
//! 2. The checksum is that of `dendra_base::checksum`: it is made where the value enters, and
//!    checked where it leaves.
//!
//! Not here: engines with columns of their own for the parts.
//! See: docs/stores.md.

use bytes::Bytes;
use dendra_base::cell::checksum;
use dendra_base::{Cell, Key, Kind, Version};

const MARK: u8 = b'D';
const FORM: u8 = 1;
const FLAG_EXPIRY: u8 = 1;
const HEAD_BYTES: usize = 3 + 8;

/// The bytes of a record.
pub(crate) fn seal(key: &[u8], value: &[u8], expiry_ms: Option<u64>) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + 8 + value.len());
    let flags = expiry_ms.map_or(0, |_| FLAG_EXPIRY);
    out.extend_from_slice(&[MARK, FORM, flags]);
    out.extend_from_slice(&checksum(Key::user(key).as_stored(), value).to_be_bytes());
    if let Some(expiry_ms) = expiry_ms {
        out.extend_from_slice(&expiry_ms.to_be_bytes());
    }
    out.extend_from_slice(value);
    out
}

/// The record in `bytes`, which the engine keeps under `version`; `None` = it is none of ours.
pub(crate) fn unseal(bytes: Vec<u8>, version: Version, copies: u8) -> Option<Cell> {
    let head: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
    let (mark, flags) = (&head[..2], head[2]);
    if mark != [MARK, FORM] || flags & !FLAG_EXPIRY != 0 {
        return None;
    }
    let checksum = u64::from_be_bytes(*head.last_chunk()?);
    let (expiry_ms, value_at) = match flags & FLAG_EXPIRY {
        0 => (None, HEAD_BYTES),
        _ => {
            let expiry = bytes.get(HEAD_BYTES..)?.first_chunk()?;
            (Some(u64::from_be_bytes(*expiry)), HEAD_BYTES + 8)
        }
    };
    Some(Cell {
        version,
        kind: Kind::Value,
        copies,
        expiry_ms,
        born: 0,
        checksum,
        value: Bytes::from(bytes).slice(value_at..),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(legal::cases(128))]

        #[test]
        fn any_legal_record_comes_back_as_it_went_in(
            (key, cell) in legal::record(), copies: u8,
        ) {
            let sealed = seal(&key, &cell.value, cell.expiry_ms);
            let read = unseal(sealed, cell.version, copies);
            let kept = read.as_ref().map(|read| (&read.value, read.expiry_ms));
            prop_assert!(kept == Some((&cell.value, cell.expiry_ms)));
            let read = read.expect("it is one");
            prop_assert_eq!((read.version, read.copies), (cell.version, copies));
            prop_assert!(read.as_ref().is_intact(Key::user(&key).as_stored()));
        }
    }

    #[test]
    fn a_record_comes_back_as_it_went_in() {
        let version = Version {
            hlc: 7,
            origin: 1,
            rmw: 0,
        };
        for expiry_ms in [None, Some(1 << 40)] {
            for value in [&b""[..], b"v", &[0xff; 300]] {
                let sealed = seal(b"k", value, expiry_ms);
                let cell = unseal(sealed, version, 3).expect("a record");
                assert_eq!((&cell.value[..], cell.expiry_ms), (value, expiry_ms));
                assert!(cell.as_ref().is_intact(Key::user(b"k").as_stored()));
                assert!(!cell.as_ref().is_intact(Key::user(b"l").as_stored()));
            }
        }
    }

    #[test]
    fn bytes_of_others_are_no_record() {
        let sealed = seal(b"k", b"", Some(1));
        for len in 0..sealed.len() {
            assert_eq!(
                unseal(sealed[..len].to_vec(), Version::ZERO, 1),
                None,
                "{len}"
            );
        }
        for at in 0..2 {
            let mut other = sealed.clone();
            other[at] ^= 1;
            assert_eq!(unseal(other, Version::ZERO, 1), None, "{at}");
        }
    }
}
