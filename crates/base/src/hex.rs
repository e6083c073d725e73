//! Hexadecimal digits, in upper and in lower case.
//!
//! Not here: numbers as text (`version.rs`), escapes (crate `wire`).

/// The value of one digit; `None` for any other byte.
#[inline]
pub fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// The byte that two digits stand for.
#[inline]
pub fn pair(high: u8, low: u8) -> Option<u8> {
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard_library_for_every_byte() {
        for byte in 0..=u8::MAX {
            let theirs = char::from(byte).to_digit(16).map(|digit| digit as u8);
            assert_eq!(digit(byte), theirs, "{byte}");
        }
        assert_eq!(pair(b'f', b'0'), Some(0xf0));
        assert_eq!((pair(b'+', b'1'), pair(b'1', b'g')), (None, None));
    }
}
