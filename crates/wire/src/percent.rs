//! Percent-encoding of bytes in a query: strict one way, minimal the other.
//!
//! ```text
//! decode   %41 -> A     + -> +     %4, %zz, %  -> Broken       every other byte is itself
//! encode   unreserved bytes (letters, digits, - . _ ~) as they are, all others as %XX
//! ```
//!
//! Invariants
//! 1. `decode(encode(x)) == x` for every byte string.
//! 2. No byte is ever decoded lossily, and `+` is a plus.
//!
//! Not here: which parameters there are (`route/`).
//! See: RFC 3986, section 2.

use crate::http::request::any_byte;
use dendra_base::hex;

/// Why text could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A percent sign without two hexadecimal digits behind it.
    Broken,
    /// More bytes than the buffer takes.
    TooLong,
}

/// Decodes `raw` into the front of `out`; the number of bytes written.
///
/// # Errors
/// `Broken` for an incomplete escape, `TooLong` when `out` is full before `raw` ends.
pub fn decode_into(raw: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    // Most keys carry no escape: then this is one search and one copy.
    if !any_byte(raw, |b| b == b'%') {
        let target = out.get_mut(..raw.len()).ok_or(DecodeError::TooLong)?;
        target.copy_from_slice(raw);
        return Ok(raw.len());
    }
    let mut rest = raw;
    let mut written = 0;
    while let Some((&first, tail)) = rest.split_first() {
        let byte = if first == b'%' {
            let (&[high, low], tail) = tail.split_first_chunk().ok_or(DecodeError::Broken)?;
            rest = tail;
            hex::pair(high, low).ok_or(DecodeError::Broken)?
        } else {
            rest = tail;
            first
        };
        *out.get_mut(written).ok_or(DecodeError::TooLong)? = byte;
        written += 1;
    }
    Ok(written)
}

/// Appends `bytes`, percent-encoded, to `out`.
pub fn encode_into(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(byte);
        } else {
            out.push(b'%');
            out.push(DIGITS[usize::from(byte >> 4)]);
            out.push(DIGITS[usize::from(byte & 15)]);
        }
    }
}

/// `bytes`, percent-encoded.
///
/// ```
/// assert_eq!(dendra_wire::percent::encode(b"a/b c"), "a%2Fb%20c");
/// ```
pub fn encode(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    encode_into(bytes, &mut out);
    out.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use dendra_base::limits::KEY_BYTES_MAX;
    use proptest::prelude::*;

    fn decode(raw: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut out = [0; 64];
        let len = decode_into(raw, &mut out)?;
        Ok(out[..len].to_vec())
    }

    #[test]
    fn a_plus_is_a_plus_and_a_zero_byte_is_a_byte() {
        assert_eq!(decode(b"a+b%2B%00%ff%Fe"), Ok(b"a+b+\0\xff\xfe".to_vec()));
    }

    #[test]
    fn broken_escapes_are_refused() {
        for raw in [
            &b"%"[..],
            b"%4",
            b"%zz",
            b"a%4",
            b"%%41",
            b"% 41",
            b"%+1",
            b"%-1",
        ] {
            assert_eq!(decode(raw), Err(DecodeError::Broken), "{raw:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_too_long_with_and_without_escapes() {
        let mut out = [0; 2];
        assert_eq!(decode_into(b"abc", &mut out), Err(DecodeError::TooLong));
        assert_eq!(decode_into(b"ab%43", &mut out), Err(DecodeError::TooLong));
        assert_eq!(decode_into(b"a%43", &mut out), Ok(2));
    }

    proptest! {
        #[test]
        fn any_legal_key_is_read_from_its_escapes(key in legal::raw_key()) {
            let mut room = [0; KEY_BYTES_MAX];
            let len = decode_into(encode(&key).as_bytes(), &mut room);
            prop_assert_eq!(len, Ok(key.len()));
            prop_assert_eq!(&room[..key.len()], &key);
        }

        #[test]
        fn no_input_panics(raw in prop::collection::vec(any::<u8>(), 0..64), room in 0usize..64) {
            let mut out = vec![0; room];
            if let Ok(len) = decode_into(&raw, &mut out) {
                prop_assert!(len <= room && len <= raw.len());
            }
        }
    }
}
