//! The pairs of encoder and decoder of this crate, over everything that is legal.
//!
//! Not here: garbage (`src/cell.rs`, `src/version.rs`, `fuzz/`).
//! See: docs/verification.md, "Encoders and decoders".

mod legal;

use dendra_base::{CellRef, Key, Version, hex};
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_legal_cell_is_read_as_it_was_written((raw_key, cell) in legal::record()) {
        let mut bytes = Vec::new();
        cell.as_ref().encode(&mut bytes);
        prop_assert_eq!(bytes.len(), cell.as_ref().encoded_len());
        let read = CellRef::decode(&bytes);
        prop_assert!(read == Some(cell.as_ref()), "{:?}", raw_key);
        prop_assert!(cell.as_ref().is_intact(Key::user(&raw_key).as_stored()));
    }

    #[test]
    fn any_legal_version_is_read_as_it_was_written(version in legal::version()) {
        prop_assert_eq!(Version::from_bytes(version.to_bytes()), version);
        prop_assert_eq!(version.to_string().parse(), Ok(version));
        prop_assert_eq!(version.to_string().to_uppercase().parse(), Ok(version));
    }

    #[test]
    fn any_legal_bytes_are_read_from_their_digits(bytes in legal::raw_key()) {
        for digits in [
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
            bytes.iter().map(|byte| format!("{byte:02X}")).collect(),
        ] {
            let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
            let read: Option<Vec<u8>> = pairs.iter().map(|[a, b]| hex::pair(*a, *b)).collect();
            prop_assert!(rest.is_empty() && read.as_ref() == Some(&bytes));
        }
    }
}
