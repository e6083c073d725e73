//! The few statistics a noisy machine allows: median, smallest, largest, ratios per round.
//!
//! ```text
//! round   1    2    3        ratio of A to B = median of (A1/B1, A2/B2, A3/B3), never
//! A       6.1  6.3  9.0      median(A) / median(B): both windows of a round saw the same weather
//! B       6.5  6.6  9.9
//! ```
//!
//! Invariants
//! 1. No function here drops a sample.
//!
//! Not here: latency percentiles of one window (`run.json`).
//! See: docs/lab/README.md.

/// Median, smallest and largest of some numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    /// Half are below; the mean of the middle two for an even count.
    pub(crate) median: f64,
    /// Smallest.
    pub(crate) min: f64,
    /// Largest.
    pub(crate) max: f64,
}

impl Spread {
    /// Spread of one sample.
    pub(crate) fn alone(sample: f64) -> Spread {
        Spread {
            median: sample,
            min: sample,
            max: sample,
        }
    }

    /// Spread of `samples`; `None` when there are none.
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Spread { median, min, max })
    }
}

impl Spread {
    /// For tables: `1.20 (1.10–1.30)`.
    pub(crate) fn words(self) -> String {
        let digits = match self.median.abs() {
            ..10.0 => 2,
            ..1000.0 => 1,
            _ => 0,
        };
        let Spread { median, min, max } = self;
        format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
    }
}

/// The middle one; zero of none.
pub(crate) fn middle(samples: impl IntoIterator<Item = f64>) -> f64 {
    Spread::of(samples).map_or(0.0, |spread| spread.median)
}

/// Ratio of `of` to `to`, round by round.
pub(crate) fn ratios(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter().zip(to).map(|(of, to)| of / to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_middle_two() {
        let odd = Spread::of([3.0, 1.0, 2.0]).expect("three samples");
        assert_eq!(
            odd,
            Spread {
                median: 2.0,
                min: 1.0,
                max: 3.0
            }
        );
        let even = Spread::of([4.0, 1.0, 2.0, 3.0]).expect("four samples");
        assert_eq!(even.median, 2.5);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_storm_over_one_round_leaves_the_ratio_alone() {
        let ratio = Spread::of(ratios(&[6.0, 60.0, 6.0], &[5.0, 50.0, 5.0]));
        assert_eq!(ratio.map(|spread| spread.median), Some(1.2));
    }
}
