//! Is a difference larger than the noise of the repeats?
//!
//! ```text
//! before   ×  × ×                     ranges apart, and the gap of the medians wider than
//! after              ×  ×  ×          either range ─► more than noise
//! ```
//!
//! Invariants
//! 1. With fewer than `REPEATS_MIN` runs on a side there is no verdict: the noise is not known.
//! 2. The verdict does not change when the sides change places.
//!
//! Not here: which figures are compared (`compare.rs`).
//! See: Mann and Whitney, 1947: three against three lie apart by luck in 2 of 20 orders; the second
//! condition makes it rarer.

/// Repeats on each side from which a verdict is given.
pub(crate) const REPEATS_MIN: usize = 3;

/// The rule, as it stands on the page.
pub(crate) const RULE: &str = "A difference counts as more than noise when each side was run at least three times, \
     every run of one side lies on the same side of every run of the other, and the medians are further apart than \
     the widest range within a side. By luck alone three runs and three runs lie apart in one case of ten; the second \
     condition makes it rarer. With fewer repeats there is no verdict. Machines drift: take the repeats of the sides \
     in turns.";

/// The judgement on a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// More than noise.
    Different,
    /// Not more than noise.
    Within,
    /// Too few repeats.
    Unknown,
}

/// The middle, or the mean of the two in the middle; NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Smallest and largest.
pub(crate) fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    (
        low,
        values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    )
}

/// Applies [`RULE`].
pub(crate) fn weigh(before: &[f64], after: &[f64]) -> Judgement {
    if before.len() < REPEATS_MIN || after.len() < REPEATS_MIN {
        return Judgement::Unknown;
    }
    let (a, b) = (range(before), range(after));
    let is_apart = a.1 < b.0 || b.1 < a.0;
    let widest = (a.1 - a.0).max(b.1 - b.0);
    if is_apart && (median(after) - median(before)).abs() > widest {
        Judgement::Different
    } else {
        Judgement::Within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_that_lie_far_apart_differ_whichever_comes_first() {
        let (low, high) = ([1.0, 1.1, 1.05], [2.0, 2.2, 2.1]);
        assert_eq!(weigh(&low, &high), Judgement::Different);
        assert_eq!(weigh(&high, &low), Judgement::Different);
    }

    #[test]
    fn ranges_that_overlap_are_noise() {
        assert_eq!(
            weigh(&[1.0, 1.1, 2.05], &[2.0, 2.2, 2.1]),
            Judgement::Within
        );
    }

    #[test]
    fn a_gap_smaller_than_the_repeats_wander_is_noise() {
        assert_eq!(weigh(&[1.0, 2.0, 1.5], &[2.1, 2.4, 2.3]), Judgement::Within);
    }

    #[test]
    fn two_repeats_prove_nothing() {
        assert_eq!(weigh(&[1.0, 1.0], &[9.0, 9.0, 9.0]), Judgement::Unknown);
        assert_eq!(weigh(&[], &[]), Judgement::Unknown);
    }

    #[test]
    fn equal_figures_are_no_difference() {
        assert_eq!(weigh(&[5.0; 3], &[5.0; 3]), Judgement::Within);
    }

    #[test]
    fn the_median_of_an_even_number_is_between() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
