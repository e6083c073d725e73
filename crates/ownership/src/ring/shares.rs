//! How many copies each member should have: its weight's share, as far as zones and the number of
//! partitions allow.
//!
//! ```text
//! 3 copies, zones a: h1   b: h2 h3   c: h4 h5 h6       a takes one copy of every partition, so does b, so does c
//! shares of 256 partitions                             h1 256, h2 h3 128, h4 h5 h6 85.3
//! ```
//!
//! Invariants
//! 1. Shares add up to the copies. No member's share is more than one copy of every partition. A
//!    zone has as many copies of a partition as rounds over the zones give it.
//! 2. A share for fewer copies is never larger than the one for more.
//!
//! Not here: which partitions (`choice.rs`).

/// Steps of the search for the level: more than a double has bits.
const STEPS: usize = 64;

/// How many copies of one partition each zone may have when they are dealt in rounds. A zone gets
/// its second copy when every zone that has a member left has its first.
#[derive(Debug)]
pub(super) struct Rounds {
    /// The round in which the last copy is dealt, from 1.
    pub(super) last: usize,
    sizes: Vec<usize>,
}

impl Rounds {
    /// For `copies` copies over zones with these numbers of members.
    pub(super) fn new(sizes: &[usize], copies: usize) -> Rounds {
        let dealt = |rounds: usize| -> usize { sizes.iter().map(|&size| size.min(rounds)).sum() };
        let last = (1..=copies).find(|&rounds| dealt(rounds) >= copies);
        Rounds {
            last: last.expect("there are not more copies than members"),
            sizes: sizes.to_vec(),
        }
    }

    pub(super) fn least(&self, zone: usize) -> usize {
        self.sizes[zone].min(self.last - 1)
    }

    pub(super) fn most(&self, zone: usize) -> usize {
        self.sizes[zone].min(self.last)
    }
}

/// The share of each member in `copies` copies of every partition, per partition: 0 to 1.
pub(super) fn shares(weights: &[u16], zones: &[usize], rounds: &Rounds, copies: usize) -> Vec<f64> {
    let of_zone = |zone: usize, level: f64| -> f64 {
        let members = weights.iter().zip(zones).filter(|(_, z)| **z == zone);
        members
            .map(|(weight, _)| (f64::from(*weight) * level).min(1.0))
            .sum()
    };
    let bounded = |zone: usize, level: f64| {
        of_zone(zone, level).clamp(rounds.least(zone) as f64, rounds.most(zone) as f64)
    };
    let count = rounds.sizes.len();
    let level = rising_to(copies as f64, |level| {
        (0..count).map(|zone| bounded(zone, level)).sum()
    });
    let levels: Vec<f64> = (0..count)
        .map(|zone| rising_to(bounded(zone, level), |level| of_zone(zone, level)))
        .collect();
    weights
        .iter()
        .zip(zones)
        .map(|(weight, zone)| (f64::from(*weight) * levels[*zone]).min(1.0))
        .collect()
}

/// Where the rising function reaches `goal`, or as far as it goes. Weights are at least 1, so that
/// every share is full at a level of 1.
fn rising_to(goal: f64, of: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if of(middle) < goal {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rounded(weights: &[u16], zones: &[usize], copies: usize) -> Vec<f64> {
        let count = zones.iter().max().expect("a member") + 1;
        let size = |zone| zones.iter().filter(|z| **z == zone).count();
        let sizes: Vec<usize> = (0..count).map(size).collect();
        let rounds = Rounds::new(&sizes, copies);
        let shares = shares(weights, zones, &rounds, copies);
        shares
            .iter()
            .map(|s| (s * 1000.0).round() / 1000.0)
            .collect()
    }

    #[test]
    fn shares_follow_weights_within_zones_and_limits() {
        assert_eq!(rounded(&[1; 4], &[0, 1, 2, 3], 3), [0.75; 4]);
        assert_eq!(rounded(&[2, 1, 1], &[0, 1, 2], 1), [0.5, 0.25, 0.25]);
        assert_eq!(rounded(&[9, 1, 1], &[0, 1, 2], 2), [1.0, 0.5, 0.5]);
        let zones = [0, 1, 1, 2, 2, 2];
        assert_eq!(
            rounded(&[1; 6], &zones, 3),
            [1.0, 0.5, 0.5, 0.333, 0.333, 0.333]
        );
        assert_eq!(
            rounded(&[1; 4], &[0, 1, 1, 1], 3),
            [1.0, 0.667, 0.667, 0.667]
        );
    }

    proptest! {
        #[test]
        fn shares_add_up_and_grow_with_the_copies(
            members in proptest::collection::vec((1u16..50, 0usize..4), 1..12), copies in 1usize..6,
        ) {
            let weights: Vec<u16> = members.iter().map(|m| m.0).collect();
            let mut zones: Vec<usize> = members.iter().map(|m| m.1).collect();
            let mut known: Vec<usize> = zones.clone();
            known.sort_unstable();
            known.dedup();
            for zone in &mut zones {
                *zone = known.binary_search(zone).expect("it is known");
            }
            let copies = copies.min(weights.len());
            let more = rounded(&weights, &zones, copies);
            prop_assert!((more.iter().sum::<f64>() - copies as f64).abs() < 0.02);
            if copies > 1 {
                let fewer = rounded(&weights, &zones, copies - 1);
                prop_assert!(fewer.iter().zip(&more).all(|(f, m)| f <= m));
            }
        }
    }
}
