//! Numbers as people read them.
//!
//! Invariants
//! 1. A number and its unit stay on one line: between them stands a no-break space.
//! 2. A share is never rounded to none or to all.
//!
//! Not here: axes (`scale.rs`).

use jiff::Timestamp;

/// A time: `870 ns`, `12.3 µs`, `4.57 ms`, `1.20 s`, `3 min`.
pub(crate) fn duration_us(us: f64) -> String {
    let (value, unit) = match us {
        us if !us.is_finite() => return "–".to_owned(),
        us if us < 1.0 => (us * 1e3, "ns"),
        us if us < 1e3 => (us, "µs"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us if us < 300e6 => (us / 1e6, "s"),
        us => (us / 60e6, "min"),
    };
    format!("{}\u{a0}{unit}", significant(value))
}

/// Three digits that count, no more.
pub(crate) fn significant(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        0.0 => return "0".to_owned(),
        s if s >= 100.0 => format!("{value:.0}"),
        s if s >= 10.0 => format!("{value:.1}"),
        s if s >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A count in full, in groups of three: `1 234 567` (with narrow no-break spaces).
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A large number, short: `950`, `12.5k`, `3.4M`.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        s if s >= 1e9 => format!("{}G", significant(value / 1e9)),
        s if s >= 1e6 => format!("{}M", significant(value / 1e6)),
        s if s >= 1e3 => format!("{}k", significant(value / 1e3)),
        _ => significant(value),
    }
}

/// Bytes in powers of 1024: `12.5 MiB`.
pub(crate) fn bytes(value: f64) -> String {
    let (value, unit) = match value.abs() {
        s if s >= 1024f64.powi(4) => (value / 1024f64.powi(4), "TiB"),
        s if s >= 1024f64.powi(3) => (value / 1024f64.powi(3), "GiB"),
        s if s >= 1024f64.powi(2) => (value / 1024f64.powi(2), "MiB"),
        s if s >= 1024.0 => (value / 1024.0, "KiB"),
        _ => (value, "B"),
    };
    format!("{}\u{a0}{unit}", significant(value))
}

/// A share: `0 %`, `0.012 %`, `3.4 %`. Never rounds some to none or to all.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0\u{a0}%".to_owned();
    }
    let value = 100.0 * part as f64 / whole as f64;
    match value {
        v if v < 0.000_1 => "<\u{a0}0.0001\u{a0}%".to_owned(),
        v if v < 0.1 => format!("{v:.4}\u{a0}%"),
        v if v < 10.0 => format!("{v:.2}\u{a0}%"),
        v if v >= 99.95 && part < whole => format!("{v:.4}\u{a0}%"),
        v => format!("{v:.1}\u{a0}%"),
    }
}

/// A point in time of the calendar, in UTC: `2026-11-21 23:05 UTC`.
pub(crate) fn utc(unix_ms: u64) -> String {
    let at = i64::try_from(unix_ms).ok();
    let at = at.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(
        || "–".to_owned(),
        |at| at.strftime("%Y-%m-%d %H:%M UTC").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        text.replace('\u{a0}', " ")
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let said = [0.5, 12.34, 4_567.0, 1_200_000.0, 600e6, 0.0].map(|us| plain(&duration_us(us)));
        assert_eq!(
            said,
            ["500 ns", "12.3 µs", "4.57 ms", "1.2 s", "10 min", "0 ns"]
        );
        assert_eq!(duration_us(f64::NAN), "–");
    }

    #[test]
    fn a_small_share_is_not_rounded_to_nothing_and_a_large_one_not_to_all() {
        let said = |part, whole| plain(&percent(part, whole));
        assert_eq!(said(1, 1_000_000_000), "< 0.0001 %");
        assert_eq!(said(1, 100_000), "0.0010 %");
        assert_eq!(said(99_999, 100_000), "99.9990 %");
        assert_eq!(said(1, 2), "50.0 %");
        assert_eq!(said(1, 0), "0 %");
    }

    #[test]
    fn counts_come_in_groups_of_three() {
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(count(12), "12");
    }

    #[test]
    fn the_calendar_is_right_across_a_leap_day() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_795_302_300_000), "2026-11-21 23:05 UTC");
        assert_eq!(utc(u64::MAX), "–");
    }
}
