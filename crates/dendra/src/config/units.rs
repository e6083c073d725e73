//! Sizes and durations as people write them: `256MiB`, `64MB`, `4096`, `250ms`.
//!
//! ```text
//! size       digits [. digits] [ B | kB MB GB TB (1000) | KiB MiB GiB TiB (1024) ]
//! duration   digits [. digits] ( ms | s | m | h )
//! ```
//!
//! Invariants
//! 1. A bare `K`, `M`, `G` or `T` is refused: half of the world reads it as 1000, half as 1024.
//! 2. Every error says how to write it instead.
//! 3. `parse_bytes(&show_bytes(n)) == n` for every `n`.
//!
//! Not here: which option takes a size (`options.rs`).
//! See: docs/cli.md.

use std::time::Duration;

const BYTE_UNITS: [(&str, u64); 9] = [
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

const TIME_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Splits `12.5MiB` into the number's text and the unit's.
fn split(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// `number` times `scale`, exactly; `None` when it is no number, too large, or not whole.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((number.as_str(), ""));
    if whole.is_empty() || number.ends_with('.') || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let mut total = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    if !fraction.is_empty() {
        let denominator = 10u128.pow(u32::try_from(fraction.len()).ok()?);
        let scaled = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale);
        if scaled % denominator != 0 {
            return None;
        }
        total = total.checked_add(u64::try_from(scaled / denominator).ok()?)?;
    }
    Some(total)
}

/// Bytes from `256MiB`, `64MB`, `1.5GiB` or a plain number. The error is the end of a sentence
/// that starts with the option's name.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text.trim());
    let unit = unit.to_ascii_lowercase();
    if number.is_empty() {
        return Err(format!(
            "{text:?} is not a size; write one like 256MiB, 64MB or a number of bytes"
        ));
    }
    if let Some(letter) = ["k", "m", "g", "t"].into_iter().find(|l| *l == unit) {
        let letter = letter.to_ascii_uppercase();
        return Err(format!(
            "{text:?} is ambiguous; write {number}{letter}iB (powers of 1024) or {number}{letter}B (powers of 1000)"
        ));
    }
    let scale = match BYTE_UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, scale)) => *scale,
        None if unit.is_empty() => 1,
        None => {
            return Err(format!(
                "{text:?} has an unknown unit; use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
            ));
        }
    };
    scaled(number, scale)
        .ok_or_else(|| format!("{text:?} is not a whole number of bytes below 2^64"))
}

/// The shortest exact form of a size in binary units: `256MiB`, `1000`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// A length of time from `250ms`, `2s`, `1.5m`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text.trim());
    let scale = TIME_UNITS.iter().find(|(name, _)| *name == unit);
    match (scale, number.is_empty()) {
        (Some((_, scale)), false) => scaled(number, *scale)
            .map(Duration::from_millis)
            .ok_or_else(|| format!("{text:?} is not a whole number of milliseconds")),
        _ => Err(format!(
            "{text:?} is not a length of time; write one like 250ms, 2s or 1m"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_of_units_are_understood() {
        assert_eq!(parse_bytes("256MiB"), Ok(256 << 20));
        assert_eq!(parse_bytes("64MB"), Ok(64_000_000));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("12kb"), Ok(12_000));
        assert_eq!(parse_bytes("1_000_000"), Ok(1_000_000));
        assert_eq!(parse_bytes("0"), Ok(0));
    }

    #[test]
    fn a_bare_letter_is_refused_with_both_readings() {
        let error = parse_bytes("64M").expect_err("a bare letter is ambiguous");
        assert!(error.contains("64MiB") && error.contains("64MB"), "{error}");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "MiB",
            "-1",
            "1..5MiB",
            "1.MiB",
            ".5MiB",
            "1.0000001kB",
            "18446744073709551616",
            "17000000TiB",
            "5 apples",
        ] {
            assert!(parse_bytes(text).is_err(), "{text:?} must be refused");
        }
    }

    #[test]
    fn a_shown_size_reads_back() {
        for bytes in [0, 1, 1000, 1023, 1024, 1536, 256 << 20, 3 << 40, u64::MAX] {
            assert_eq!(parse_bytes(&show_bytes(bytes)), Ok(bytes));
        }
        assert_eq!(show_bytes(256 << 20), "256MiB");
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert!(parse_duration("250").is_err());
        assert!(parse_duration("250 years").is_err());
        assert!(parse_duration("0.0005s").is_err());
    }
}
