//! Versions: the one order in which two copies of a record are compared.
//!
//! ```text
//! | hlc: u64 | origin: u32 | rmw: u32 |   16 bytes, big-endian, so byte order = version order
//!   hlc      48 bits of wall milliseconds, 16 bits of counter
//!   origin   the member (and lane) that made the version; never reused
//!   rmw      successor number of a conditional write over the same base, in its low 24 bits
//!            created without a base: the author's clock in hlc and rmw, moved down by a byte (docs/protocol.md)
//! text form  <hlc hex, 16 digits>-<origin hex>-<rmw hex>     as in `ETag: "0193…-1-0"`
//! ```
//!
//! Invariants
//! 1. The order is lexicographic and total; equal versions name the same write.
//! 2. `successor` is strictly newer than its base and older than any later hlc. So is
//!    `successor_from`, and for the number 0 the two are one.
//!
//! Not here: where versions come from (the hybrid clock in crate `node`), where a cluster keeps its
//! least successor number (crate `ownership`, `epoch/record/`).
//! See: docs/decisions/0001-one-merge-rule.md, docs/decisions/0047-another-clusters-etags.md.

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

    /// The largest version below this one; `ZERO` has none and stays.
    pub fn predecessor(self) -> Version {
        let all = u128::from_be_bytes(self.to_bytes());
        Version::from_bytes(all.saturating_sub(1).to_be_bytes())
    }

    /// The version of a conditional write that builds on this one, in a cluster with this least
    /// successor number. Overflow of the low bits is that of `successor`.
    pub fn successor_from(self, least: LeastSuccessor) -> Version {
        let number = self.successor_number();
        match number {
            LeastSuccessor::BITS => self.successor(),
            _ => Version {
                rmw: self.rmw - number + least.0.max(number + 1),
                ..self
            },
        }
    }

    /// The low 24 bits of `rmw`: of the rest a record that was created without a base keeps a byte
    /// of its author's clock.
    pub fn successor_number(self) -> u32 {
        self.rmw & LeastSuccessor::BITS
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

/// The least successor number that the conditional writes of a cluster give. A restore raises it
/// above all numbers that it brings. So the old cluster and the restored one give different
/// versions to conditional writes on one base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeastSuccessor(u32);

impl LeastSuccessor {
    const BITS: u32 = (1 << 24) - 1;
    /// So many conditional writes on one base the cluster that was backed up can make before it
    /// reaches numbers of the restored one.
    pub const GAP: u32 = 1 << 16;
    /// Two restores of one backup differ by a number that is drawn below this one.
    pub const CHANCES: u32 = 1 << 20;
    /// The largest one: 2^20 numbers stay above it, for the conditional writes on one base.
    pub const MAX: LeastSuccessor = LeastSuccessor(15 << 20);

    /// The value, if it is not above [`LeastSuccessor::MAX`].
    pub fn new(number: u32) -> Option<LeastSuccessor> {
        Some(LeastSuccessor(number)).filter(|it| *it <= LeastSuccessor::MAX)
    }

    /// One for a restore of records with numbers up to `largest`; `MAX` if there is no such one.
    /// Requires: `chance` is below `CHANCES`.
    #[must_use]
    pub fn behind(largest: u32, chance: u32) -> LeastSuccessor {
        let number = largest.saturating_add(LeastSuccessor::GAP + 1 + chance);
        LeastSuccessor(number).min(LeastSuccessor::MAX)
    }

    /// Is it as far above `largest` as a restore wants it?
    pub fn is_behind(self, largest: u32) -> bool {
        self.0 > largest.saturating_add(LeastSuccessor::GAP)
    }

    /// The value; 0 in a cluster that no backup was restored into.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for LeastSuccessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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

    fn any_least() -> impl Strategy<Value = LeastSuccessor> {
        (0..=LeastSuccessor::MAX.0).prop_map(LeastSuccessor)
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
        fn a_successor_is_newer(a in any_version(), least in any_least()) {
            prop_assume!(a.hlc < u64::MAX);
            prop_assert!(a.successor() > a);
            prop_assert!(a.successor_from(least) > a);
        }

        #[test]
        fn without_a_least_number_a_successor_is_the_next_one(a in any_version()) {
            prop_assume!(a.hlc < u64::MAX);
            prop_assert_eq!(a.successor_from(LeastSuccessor::default()), a.successor());
        }

        #[test]
        fn a_least_number_changes_no_order_to_versions_of_other_clocks_and_origins(
            a in any_version(), b in any_version(), least in any_least(),
        ) {
            prop_assume!(a.rmw < u32::MAX && (a.hlc, a.origin) != (b.hlc, b.origin));
            let next = a.successor_from(least);
            prop_assert_eq!((next.hlc, next.origin), (a.hlc, a.origin));
            prop_assert_eq!(next.cmp(&b), a.cmp(&b));
            let is_last = a.successor_number() == LeastSuccessor::BITS;
            prop_assert!(is_last || next.rmw >> 24 == a.rmw >> 24, "the clock's byte stays");
        }

        #[test]
        fn a_restored_cluster_gives_other_versions_than_the_one_of_its_backup(
            base in any_version(), restored in 0..5u32, chance in 0..LeastSuccessor::CHANCES,
        ) {
            let (number, least) = (base.successor_number(), LeastSuccessor(restored << 20));
            prop_assume!(number < 13 << 20);
            let largest = number.max(least.number());
            let next = LeastSuccessor::behind(largest, chance);
            prop_assert!(next.is_behind(largest) && next < LeastSuccessor::MAX);
            // Numbers rise by one after the first.
            let old_last = base.successor_from(least).rmw + LeastSuccessor::GAP - 1;
            prop_assert!(old_last < base.successor_from(next).rmw);
            let first = base.successor_from(next);
            prop_assert_eq!(first.successor_from(next), first.successor());
        }
    }

    #[test]
    fn behind_the_last_number_a_successor_goes_on_as_ever() {
        let last = Version {
            hlc: 7,
            origin: 1,
            rmw: LeastSuccessor::BITS,
        };
        assert_eq!(last.successor_from(LeastSuccessor::MAX).rmw, 1 << 24);
        let none = Version {
            rmw: u32::MAX,
            ..last
        };
        let next = none.successor_from(LeastSuccessor::MAX);
        assert_eq!((next.hlc, next.rmw), (8, 0));
        assert_eq!(LeastSuccessor::behind(u32::MAX, 3), LeastSuccessor::MAX);
        assert!(!LeastSuccessor::MAX.is_behind(LeastSuccessor::BITS));
        assert_eq!(LeastSuccessor::new(LeastSuccessor::MAX.0 + 1), None);
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
