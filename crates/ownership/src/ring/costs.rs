//! The cost of giving a partition to a member: weighted rendezvous with stratified scores.
//!
//! ```text
//! member h2, all partitions in the order of their hashes:   17  203  4  90 …
//! score of the partition at place r of P                    u = (r + a fraction) / P
//! cost                                                      -log2(u) / weight
//! ```
//!
//! The cheapest of several members is each of them with the probability of its weight's share. The
//! order of any two of them does not depend on a third. That is rendezvous: a new member takes its
//! share, and no other choice changes. Scores drawn freely would leave ten members of 256
//! partitions up to 17 % off their shares. Here each member's scores are spread evenly over 0 to 1.
//! That makes it 10 % before any balancing, and balancing moves less.
//!
//! Invariants
//! 1. A member's costs depend on its own URL and weight, the key of the cluster and the number of
//!    partitions, and on no other member.
//! 2. Only sums, products and quotients of doubles: every machine rounds them alike.
//!
//! Not here: the choice of owners (`choice.rs`).
//! See: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998.

use crate::topology::Member;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Costs are whole numbers of 2^-40: a hundred of the largest still add up in 63 bits.
const UNIT: f64 = (1u64 << 40) as f64;

/// The cost of each partition for `member`.
pub(super) fn costs(key: &[u8; 16], member: &Member, partitions: u16) -> Vec<i64> {
    let hash = |partition: u16| {
        let mut hasher = SipHasher13::new_with_key(key);
        hasher.write(&partition.to_be_bytes());
        hasher.write(member.url.as_bytes());
        hasher.finish()
    };
    let mut order: Vec<(u64, u16)> = (0..partitions).map(|p| (hash(p), p)).collect();
    order.sort_unstable();
    let mut costs = vec![0; usize::from(partitions)];
    for (place, (hashed, partition)) in (0u32..).zip(order) {
        // The low half of the hash is free of the order, which the high half decided.
        let fraction = (f64::from(hashed as u32) + 0.5) / (1u64 << 32) as f64;
        let score = (f64::from(place) + fraction) / f64::from(partitions);
        let cost = minus_log2(score) / f64::from(member.weight);
        costs[usize::from(partition)] = (cost * UNIT) as i64;
    }
    costs
}

/// `-log2(x)` to nine digits. Requires: `x` is a normal number in `(0, 1)`.
fn minus_log2(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    // ln m = 2 artanh((m - 1) / (m + 1)); around 1, t stays below 0.18 and six terms are enough.
    let (m, exponent) = if mantissa > std::f64::consts::SQRT_2 {
        (mantissa / 2.0, exponent + 1)
    } else {
        (mantissa, exponent)
    };
    let t = (m - 1.0) / (m + 1.0);
    let square = t * t;
    let mut series = 0.0;
    for odd in [11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * square + 1.0 / odd;
    }
    -(f64::from(exponent) + 2.0 * t * series * std::f64::consts::LOG2_E)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_right() {
        let mut x: f64 = 0.999_999;
        while x > 1e-9 {
            assert!((minus_log2(x) + x.log2()).abs() < 1e-9, "{x}");
            x *= 0.97;
        }
        assert_eq!((minus_log2(0.5), minus_log2(0.25)), (1.0, 2.0));
    }

    #[test]
    fn scores_of_a_member_are_spread_evenly_and_halve_with_its_weight() {
        let member = |text: &str| text.parse::<Member>().expect("a member");
        let mut once = costs(&[7; 16], &member("h1:1"), 256);
        let mut twice = costs(&[7; 16], &member("h1:1;weight=2"), 256);
        let other = costs(&[7; 16], &member("h2:1"), 256);
        assert_ne!(once, other);
        once.sort_unstable();
        twice.sort_unstable();
        for (place, (one, two)) in once.iter().zip(&twice).enumerate() {
            assert!((one / 2 - two).abs() <= 1);
            let score = 2f64.powf(-(*one as f64) / UNIT);
            let stratum = (score * 256.0) as usize;
            assert_eq!(stratum, 255 - place);
        }
    }
}
