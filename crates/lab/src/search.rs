//! Finds the highest rate that holds an objective: doubles, bisects, repeats around the knee.
//!
//! ```text
//! rate  1000  2000  4000  8000×        double until one fails (or halve until one holds)
//!       5657  6727×  6169  6442×       bisect until both ends are within 5 %
//!       6169  6169                     repeat: one that fails now becomes the upper end
//!                                      answer: [6169, 6442]
//! ```
//!
//! Invariants
//! 1. `knee_low` held the objective in every one of its runs.
//! 2. The number of runs is bounded by `RUNS_MAX`.
//!
//! Not here: running a rate (`experiment.rs` gives a function).
//! See: docs/lab/run-json.md.

use crate::run::{Search, SearchStep, SearchWhy};

/// Runs of one search, at most.
const RUNS_MAX: usize = 40;

/// The ends are close enough when the upper is at most this many times the lower.
const CLOSE: f64 = 1.05;

/// Times that the lower end has to hold again.
const REPEATS: usize = 2;

/// Rates below this are not tried.
const RATE_MIN: f64 = 1.0;

/// What is known so far.
struct Course<'a, E> {
    try_one: &'a mut dyn FnMut(f64, SearchWhy) -> Result<Option<SearchStep>, E>,
    steps: Vec<SearchStep>,
    is_cut: bool,
}

impl<E> Course<'_, E> {
    /// Did `rate` hold? None when the search has to end.
    fn holds(&mut self, rate: f64, why: SearchWhy) -> Result<Option<bool>, E> {
        if self.steps.len() >= RUNS_MAX {
            return Ok(None);
        }
        let Some(step) = (self.try_one)(rate, why)? else {
            self.is_cut = true;
            return Ok(None);
        };
        let is_met = step.is_met;
        self.steps.push(step);
        Ok(Some(is_met))
    }

    /// The highest rate below `bound` that held in every run.
    fn highest_below(&self, bound: f64) -> f64 {
        let fails = |rate: f64| self.steps.iter().any(|s| !s.is_met && s.rate <= rate);
        let held = self.steps.iter().filter(|s| s.is_met && s.rate < bound);
        held.map(|step| step.rate)
            .filter(|&rate| !fails(rate))
            .fold(0.0, f64::max)
    }
}

/// Searches from `start` up to `limit`; `try_one` runs a rate, and returns nothing when it was
/// interrupted.
///
/// # Errors
/// Those of `try_one`.
pub fn find_max<E>(
    slo: &str,
    start: f64,
    limit: f64,
    try_one: &mut dyn FnMut(f64, SearchWhy) -> Result<Option<SearchStep>, E>,
) -> Result<Search, E> {
    let mut course = Course {
        try_one,
        steps: Vec::new(),
        is_cut: false,
    };
    let (mut low, mut high) = bracket(&mut course, start, limit)?;
    while let Some(upper) = high.filter(|upper| low > 0.0 && upper / low > CLOSE) {
        let middle = round(low * (upper / low).sqrt());
        if middle <= low || middle >= upper {
            break;
        }
        match course.holds(middle, SearchWhy::Bisect)? {
            Some(true) => low = middle,
            Some(false) => high = Some(middle),
            None => break,
        }
    }
    let mut held = 0;
    while low > 0.0 && held < REPEATS && !course.is_cut {
        match course.holds(low, SearchWhy::Repeat)? {
            Some(true) => held += 1,
            Some(false) => {
                held = 0;
                high = Some(low);
                low = course.highest_below(low);
                if high.is_some_and(|upper| low < upper * 0.9) {
                    // Too far down: a little below what failed is tried before the old one.
                    low = round(high.unwrap_or(low) * 0.95);
                }
                if low < RATE_MIN {
                    low = 0.0;
                }
            }
            None => break,
        }
    }
    let low = course.highest_below(f64::INFINITY);
    Ok(Search {
        slo: slo.to_owned(),
        sentence: sentence(slo, low, high, &course.steps, course.is_cut),
        steps: course.steps,
        knee_low: low,
        knee_high: high,
    })
}

/// Doubles until a rate fails, or halves until one holds.
fn bracket<E>(course: &mut Course<'_, E>, start: f64, limit: f64) -> Result<(f64, Option<f64>), E> {
    let (mut low, mut high) = (0.0, None);
    let mut rate = start.clamp(RATE_MIN, limit);
    loop {
        match course.holds(rate, SearchWhy::Double)? {
            Some(true) => low = rate,
            Some(false) => high = Some(rate),
            None => return Ok((low, high)),
        }
        rate = match (low > 0.0, high) {
            (true, None) if rate < limit => (rate * 2.0).min(limit),
            (false, Some(upper)) if upper > RATE_MIN => (upper / 2.0).max(RATE_MIN),
            _ => return Ok((low, high)),
        };
    }
}

/// Rates that a person can read.
fn round(rate: f64) -> f64 {
    if rate < 100.0 { rate } else { rate.round() }
}

fn sentence(slo: &str, low: f64, high: Option<f64>, steps: &[SearchStep], is_cut: bool) -> String {
    let cut = if is_cut { "; the search was cut" } else { "" };
    let why = |rate: f64| {
        let failed = steps.iter().find(|step| !step.is_met && step.rate == rate);
        failed.map_or("", |step| step.reason.as_str())
    };
    match high {
        _ if low == 0.0 => {
            let lowest = steps
                .iter()
                .map(|step| step.rate)
                .fold(f64::INFINITY, f64::min);
            format!(
                "no rate held {slo}, not even {lowest:.0}/s ({}){cut}",
                why(lowest)
            )
        }
        Some(high) => format!(
            "{low:.0}/s hold {slo}, {high:.0}/s do not ({}){cut}",
            why(high)
        ),
        None => format!("{low:.0}/s hold {slo}, and no rate that was tried did not{cut}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that holds up to `knee`, with the exceptions that `fails` names.
    fn search(knee: f64, start: f64, mut fails: impl FnMut(usize, f64) -> bool) -> Search {
        let mut runs = 0;
        let mut try_one = |rate: f64, why: SearchWhy| {
            runs += 1;
            let is_met = rate <= knee && !fails(runs, rate);
            Ok::<_, ()>(Some(SearchStep {
                rate,
                why,
                phase: 0,
                is_met,
                reason: if is_met {
                    String::new()
                } else {
                    "p99".to_owned()
                },
                goodput: rate.min(knee),
                p99_us: 1.0,
            }))
        };
        find_max("p99<1ms", start, 1e6, &mut try_one).expect("nothing fails here")
    }

    #[test]
    fn the_knee_lies_in_the_interval_from_below_and_from_above() {
        for (knee, start) in [
            (6300.0, 1000.0),
            (6300.0, 50_000.0),
            (40.0, 1000.0),
            (3.0, 1.0),
        ] {
            let found = search(knee, start, |_, _| false);
            let high = found.knee_high.expect("there is a rate that fails");
            assert!(found.knee_low <= knee && knee < high, "{}", found.sentence);
            assert!(high / found.knee_low <= CLOSE + 1e-9, "{}", found.sentence);
            let repeats = found.steps.iter().filter(|s| s.why == SearchWhy::Repeat);
            assert_eq!(repeats.count(), REPEATS);
        }
    }

    #[test]
    fn a_rate_that_held_by_luck_is_given_up() {
        // Above 5000 a rate holds only once.
        let mut seen: Vec<f64> = Vec::new();
        let found = search(6300.0, 1000.0, |_, rate| {
            let again = seen.contains(&rate);
            seen.push(rate);
            rate > 5000.0 && again
        });
        assert!(found.knee_low <= 5000.0, "{}", found.sentence);
        assert!(found.knee_high.is_some_and(|high| high > found.knee_low));
    }

    #[test]
    fn nothing_holds_or_everything_does_and_both_end() {
        let never = search(0.0, 1000.0, |_, _| false);
        assert!(never.knee_low == 0.0 && never.sentence.starts_with("no rate held"));
        let always = search(1e9, 1000.0, |_, _| false);
        assert_eq!((always.knee_low, always.knee_high), (1e6, None));
        assert!(always.steps.len() <= RUNS_MAX);
    }
}
