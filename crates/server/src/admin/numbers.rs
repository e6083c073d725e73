//! Numbers in the query of an address: digits only. The parsers of the standard library take a
//! sign.

/// A whole number.
pub(super) fn whole(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// A number in hexadecimal, as ids and clocks are written.
pub(super) fn hexadecimal(text: &str) -> Option<u128> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_digits_and_no_sign() {
        assert_eq!((whole("20"), hexadecimal("fF")), (Some(20), Some(255)));
        for text in ["+5", "-5", "", " 5", "5 ", "0x5", "5.0"] {
            assert_eq!((whole(text), hexadecimal(text)), (None, None), "{text:?}");
        }
    }
}
