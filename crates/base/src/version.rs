//! Versions: the one order in which two copies of a record are compared.
//!
//! ```text
//! | hlc: u64 | origin: u32 | rmw: u32 |   16 bytes, big-endian, so byte order = version order
//!   hlc      48 bits of wall milliseconds, 16 bits of counter
//!   origin   the member (and lane) that made the version; never reused
//!   rmw      successor number of a conditional write over the same base
//!            created on nothing: the author's clock in hlc and rmw, moved down by a byte (docs/protocol.md)
//! text form  <hlc hex, 16 digits>-<origin hex>-<rmw hex>     as in `ETag: "0193…-1-0"`
//! ```
//!
//! Invariants
//! 1. The order is lexicographic and total; equal versions name the same write.
//! 2. `successor` is strictly newer than its base and older than any later hlc.
//!
//! Not here: where versions come from (the hybrid clock in crate `node`).
//! See: docs/decisions/0001-one-merge-rule.md.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The time and the writer of a record. Newest wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Hybrid logical clock: 48 bits of wall milliseconds, 16 bits of counter.
    pub hlc: u64,
    /// The member and lane that made it.
    pub origin: u32,
    /// How many conditional writes stand between this and the plain write it builds on.
    pub rmw: u32,
}

impl Version {
    /// Older than every version that was ever handed out.
    pub const ZERO: Version = Version {
        hlc: 0,
        origin: 0,
        rmw: 0,
    };
    /// Newer than every version that will ever be handed out.
    pub const MAX: Version = Version {
        hlc: u64::MAX,
        origin: u32::MAX,
        rmw: u32::MAX,
    };
    /// Length of the binary form.
    pub const BYTES: usize = 16;

    /// The big-endian form: comparing bytes compares versions.
    pub fn to_bytes(self) -> [u8; Version::BYTES] {
        let mut out = [0; Version::BYTES];
        out[..8].copy_from_slice(&self.hlc.to_be_bytes());
        out[8..12].copy_from_slice(&self.origin.to_be_bytes());
        out[12..].copy_from_slice(&self.rmw.to_be_bytes());
        out
    }

    /// Reads the big-endian form back.
    pub fn from_bytes(bytes: [u8; Version::BYTES]) -> Version {
        let all = u128::from_be_bytes(bytes);
        Version {
            hlc: (all >> 64) as u64,
            origin: (all >> 32) as u32,
            rmw: all as u32,
        }
    }

    /// The version of a conditional write that builds on this one.
    pub fn successor(self) -> Version {
        match self.rmw.checked_add(1) {
            Some(rmw) => Version { rmw, ..self },
            None => Version {
                hlc: self.hlc + 1,
                origin: self.origin,
                rmw: 0,
            },
        }
    }

    /// The merge rule: where two copies of a record meet, the one with the newer version stays.
    /// Decision 0001; every place where copies meet calls this, `newest` or `newest_first`.
    pub fn is_newer_than(self, other: Version) -> bool {
        self > other
    }

    /// The merge rule as an order for sorting: the version that stays comes first.
    pub fn newest_first(self, other: Version) -> Ordering {
        other.cmp(&self)
    }

    /// Wall milliseconds since 1970 inside the hybrid clock.
    pub fn wall_ms(self) -> u64 {
        self.hlc >> 16
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:x}-{:x}", self.hlc, self.origin, self.rmw)
    }
}

/// The text was not a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAVersion;

impl fmt::Display for NotAVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a version is three hexadecimal numbers: <clock, 16 digits>-<origin>-<rmw>")
    }
}

impl std::error::Error for NotAVersion {}

impl FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Version, NotAVersion> {
        let mut parts = text.split('-');
        let (Some(hlc), Some(origin), Some(rmw), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotAVersion);
        };
        let is_hex = |part: &str, max: usize| {
            (1..=max).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit())
        };
        if hlc.len() != 16 || !is_hex(hlc, 16) || !is_hex(origin, 8) || !is_hex(rmw, 8) {
            return Err(NotAVersion);
        }
        Ok(Version {
            hlc: u64::from_str_radix(hlc, 16).map_err(|_| NotAVersion)?,
            origin: u32::from_str_radix(origin, 16).map_err(|_| NotAVersion)?,
            rmw: u32::from_str_radix(rmw, 16).map_err(|_| NotAVersion)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_version() -> impl Strategy<Value = Version> {
        (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(hlc, origin, rmw)| Version {
            hlc,
            origin,
            rmw,
        })
    }

    proptest! {
        #[test]
        fn the_merge_rule_is_one_order_in_both_its_forms(a in any_version(), b in any_version()) {
            prop_assert_eq!(a.is_newer_than(b), a.to_bytes() > b.to_bytes());
            prop_assert_eq!(a.is_newer_than(b), a.newest_first(b) == Ordering::Less);
            prop_assert!(!a.is_newer_than(a));
        }

        #[test]
        fn byte_order_is_version_order(a in any_version(), b in any_version()) {
            prop_assert_eq!(a.cmp(&b), a.to_bytes().cmp(&b.to_bytes()));
            prop_assert_eq!(Version::from_bytes(a.to_bytes()), a);
        }

        #[test]
        fn text_reads_back(a in any_version()) {
            prop_assert_eq!(a.to_string().parse(), Ok(a));
        }

        #[test]
        fn a_successor_is_newer(a in any_version()) {
            prop_assume!(a.hlc < u64::MAX);
            prop_assert!(a.successor() > a);
        }
    }

    #[test]
    fn garbage_is_not_a_version() {
        for text in [
            "",
            "-",
            "1-1-1",
            "0000000000000001-1",
            "+000000000000001-1-1",
            "000000000000000g-1-1",
        ] {
            assert_eq!(text.parse::<Version>(), Err(NotAVersion), "{text}");
        }
    }
}
