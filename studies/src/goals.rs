//! The goals, and whether they were reached: figures against bounds.
//!
//! ```text
//! values, one for each round ─► median ─► against its bound: kept, missed, or shown only
//! ```
//!
//! Invariants
//! 1. A goal is judged by the median of its values.
//! 2. A goal that is missed is written as plainly as one that is kept.
//!
//! Not here: the goals of an overload, which every row has to keep (`overload/figures.rs`).

use super::report::Report;
use super::stats::Spread;

/// The bound of a median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Less than this.
    Below(f64),
    /// More than this.
    Above(f64),
    /// No value is promised; the number is shown.
    Shown,
}

impl Bound {
    fn words(self) -> String {
        match self {
            Bound::AtMost(bound) => format!("at most {bound:.2}"),
            Bound::AtLeast(bound) => format!("at least {bound:.2}"),
            Bound::Below(bound) => format!("below {bound:.2}"),
            Bound::Above(bound) => format!("above {bound:.2}"),
            Bound::Shown => "shown only".to_owned(),
        }
    }
}

/// One figure against one bound.
struct Goal {
    what: String,
    values: Vec<f64>,
    bound: Bound,
}

impl Goal {
    /// `None` without a promise or a measurement.
    fn is_kept(&self) -> Option<bool> {
        let median = Spread::of(self.values.iter().copied())?.median;
        match self.bound {
            Bound::AtMost(bound) => Some(median <= bound),
            Bound::AtLeast(bound) => Some(median >= bound),
            Bound::Below(bound) => Some(median < bound),
            Bound::Above(bound) => Some(median > bound),
            Bound::Shown => None,
        }
    }
}

/// All of a report.
#[derive(Default)]
pub(super) struct Goals {
    all: Vec<Goal>,
}

impl Goals {
    /// One more, with the value of each round.
    pub(super) fn add(&mut self, what: String, values: Vec<f64>, bound: Bound) {
        self.all.push(Goal {
            what,
            values,
            bound,
        });
    }

    /// Writes them; was none missed?
    pub(super) fn show(&self, report: &mut Report) -> bool {
        report.line("\n## Goals\n\nMedian of the rounds, smallest and largest in brackets.");
        report.table(&["compared", "measured", "goal", "verdict"]);
        for goal in &self.all {
            let spread = Spread::of(goal.values.iter().copied());
            let verdict = match goal.is_kept() {
                Some(true) => "**kept**",
                Some(false) => "**missed**",
                None => "",
            };
            report.row(&[
                goal.what.clone(),
                spread.map_or_else(|| "nothing".to_owned(), Spread::words),
                goal.bound.words(),
                verdict.to_owned(),
            ]);
        }
        self.all.iter().all(|goal| goal.is_kept() != Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_kept(values: &[f64], bound: Bound) -> Option<bool> {
        let goal = Goal {
            what: String::new(),
            values: values.to_vec(),
            bound,
        };
        goal.is_kept()
    }

    #[test]
    fn a_goal_is_judged_by_the_median_of_its_rounds() {
        assert_eq!(is_kept(&[1.0, 1.1, 9.0], Bound::AtMost(1.1)), Some(true));
        assert_eq!(is_kept(&[1.0, 1.2, 1.3], Bound::AtMost(1.1)), Some(false));
        assert_eq!(is_kept(&[1.0], Bound::Below(1.0)), Some(false));
        assert_eq!(is_kept(&[1.0], Bound::AtLeast(1.0)), Some(true));
        assert_eq!(is_kept(&[1.0], Bound::Above(1.0)), Some(false));
        assert_eq!(is_kept(&[1.0], Bound::Shown), None);
        assert_eq!(is_kept(&[], Bound::AtMost(1.0)), None);
    }
}
