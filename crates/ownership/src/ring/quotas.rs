//! Shares in whole numbers, for decisions that every member must make alike.
//!
//! ```text
//! weights 2 1 1, zones a b c, 1 copy of 256 partitions
//! quotas  128, 64, 64      bounds  122 to 134, 61 to 67, 61 to 67
//! ```
//!
//! A quota is the share of `shares.rs`, in `1 / ONE` of a partition: the same water level, searched
//! in integers.
//!
//! Invariants
//! 1. Integers only.
//! 2. Bounds hold the quota rounded down and up, so that a table within all bounds exists.
//!
//! Not here: the shares that are shown to people (`shares.rs`).

use super::shares::Rounds;
use std::ops::RangeInclusive;

/// One partition, in the unit of quotas.
pub(super) const ONE: u64 = 1 << 20;

/// One copy of every partition, in the unit of the search.
const WHOLE: u128 = 1 << 60;
/// A level is a share for a weight of 1, in this many more bits.
const LEVEL_BITS: u32 = 16;

/// The quota of each member in `copies` copies of `partitions` partitions. Requires: weights are
/// at least 1, and there are at least as many members as copies.
pub(super) fn quotas(
    weights: &[u16],
    zones: &[usize],
    rounds: &Rounds,
    (copies, partitions): (usize, usize),
) -> Vec<u64> {
    let count = zones.iter().max().map_or(0, |most| most + 1);
    let mut by_zone = vec![Vec::new(); count];
    for (weight, zone) in weights.iter().zip(zones) {
        by_zone[*zone].push(*weight);
    }
    let of_zone = |zone: usize, level: u128| -> u128 {
        by_zone[zone]
            .iter()
            .map(|weight| at_level(*weight, level))
            .sum()
    };
    let bounded = |zone: usize, level: u128| {
        let (least, most) = (rounds.least(zone) as u128, rounds.most(zone) as u128);
        of_zone(zone, level).clamp(least * WHOLE, most * WHOLE)
    };
    let level = rising_to(copies as u128 * WHOLE, |level| {
        (0..count).map(|zone| bounded(zone, level)).sum()
    });
    let levels: Vec<u128> = (0..count)
        .map(|zone| rising_to(bounded(zone, level), |level| of_zone(zone, level)))
        .collect();
    let quota = |(weight, zone): (&u16, &usize)| {
        let share = at_level(*weight, levels[*zone]) * partitions as u128 * u128::from(ONE);
        u64::try_from((share + WHOLE / 2) / WHOLE).expect("a share of at most all partitions")
    };
    weights.iter().zip(zones).map(quota).collect()
}

fn at_level(weight: u16, level: u128) -> u128 {
    ((u128::from(weight) * level) >> LEVEL_BITS).min(WHOLE)
}

/// The lowest level at which the rising function reaches `goal`; a weight of 1 is full at the
/// highest.
fn rising_to(goal: u128, of: impl Fn(u128) -> u128) -> u128 {
    let (mut low, mut high) = (0, WHOLE << LEVEL_BITS);
    while low < high {
        let middle = (low + high) / 2;
        if of(middle) < goal {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    high
}

/// The most that a quota and a twentieth of it are off together for being rounded. 53 1/3 and 5 %
/// are 56, and must not be less.
const ROUNDED: u64 = 2;

/// How many partitions a member with this quota may have: 5 % more or less, or one.
pub(super) fn bounds(quota: u64, partitions: usize) -> RangeInclusive<usize> {
    let slack = (quota / 20).max(ONE) + ROUNDED;
    let most = ((quota + slack) / ONE) as usize;
    let least = quota.saturating_sub(slack).div_ceil(ONE) as usize;
    least..=most.min(partitions)
}

#[cfg(test)]
mod tests {
    use super::super::shares::shares;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_are_five_per_cent_or_one_partition() {
        assert_eq!(bounds(200 * ONE, 256), 190..=210);
        assert_eq!(bounds(128 * ONE, 256), 122..=134);
        assert_eq!(bounds(8 * ONE, 256), 7..=9);
        assert_eq!(bounds(768 * ONE / 100, 256), 7..=8);
        assert_eq!(bounds(ONE / 2, 256), 0..=1);
        assert_eq!(bounds(256 * ONE, 256), 244..=256);
        assert_eq!(bounds(160 * ONE / 3, 256), 51..=56);
    }

    proptest! {
        #[test]
        fn quotas_are_the_shares_that_are_shown(
            members in proptest::collection::vec((1u16..=u16::MAX, 0usize..6), 1..40),
            copies in 1usize..6,
        ) {
            let weights: Vec<u16> = members.iter().map(|m| m.0).collect();
            let mut known: Vec<usize> = members.iter().map(|m| m.1).collect();
            known.sort_unstable();
            known.dedup();
            let zone = |m: &(u16, usize)| known.binary_search(&m.1).expect("it is known");
            let zones: Vec<usize> = members.iter().map(zone).collect();
            let mut sizes = vec![0; known.len()];
            zones.iter().for_each(|zone| sizes[*zone] += 1);
            let copies = copies.min(weights.len());
            let rounds = Rounds::new(&sizes, copies);
            let whole = quotas(&weights, &zones, &rounds, (copies, 16384));
            let shown = shares(&weights, &zones, &rounds, copies);
            for (quota, share) in whole.iter().zip(shown) {
                let off = *quota as f64 / ONE as f64 - share * 16384.0;
                prop_assert!(off.abs() < 1e-4, "{quota} {share}");
            }
            let sum: u64 = whole.iter().sum();
            let off = sum.abs_diff(copies as u64 * 16384 * ONE);
            prop_assert!(off <= weights.len() as u64, "{off}");
        }
    }
}
