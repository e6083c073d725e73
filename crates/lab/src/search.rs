//! Finds the highest rate that holds an objective: the next rate to try, and the result of all of
//! them.
//!
//! ```text
//! rate  1000  2000  4000  8000×        double until one fails (or halve until one holds)
//!       5657  6727×  6169  6442×       bisect until both ends are within 5 %
//!       6169  6169                     repeat: one that fails now becomes the upper end
//!                                      answer: [6169, 6442]
//! rate  1000  2000  4000? 4000? 4000?  void: the generator was the bottleneck. Twice more, then it is the
//!       2828  3364  3668 …             generator's own limit, and the answer is "3668/s at least"
//! ```
//!
//! Invariants
//! 1. `knee_low` held the objective in every one of its runs.
//! 2. A void run is no measure of the target: it is never taken for a rate that failed. No rate
//!    below one is tried because of it, unless another one held below.
//! 3. The number of runs is bounded by `RUNS_MAX`, that of void ones by `VOIDS_MAX`.
//!
//! Not here: running a rate (`experiment/`).
//! See: docs/lab/run-json.md.

use crate::run::{SearchCourse, SearchStep, SearchWhy};

/// Runs of one search, at most.
const RUNS_MAX: usize = 40;

/// The ends are close enough when the upper is at most this many times the lower.
const CLOSE: f64 = 1.05;

/// Times that the lower end has to hold again.
const REPEATS: usize = 2;

/// Rates below this are not tried.
const RATE_MIN: f64 = 1.0;

/// So many void runs of one rate in a row mean that the rate is beyond the generator. A neighbour
/// that took the processor for a moment rarely comes three times.
const VOIDS_OF_RATE_MAX: usize = 3;

/// Void runs of one search; with so many the machine is too busy to measure anything.
const VOIDS_MAX: usize = 12;

/// A search under way: the rates that were tried, and its bounds.
#[derive(Clone, Debug)]
pub struct Course {
    slo: String,
    start: f64,
    limit: f64,
    steps: Vec<SearchStep>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchDecision {
    /// Run this rate, and tell the result.
    Try(f64, SearchWhy),
    /// The answer is as good as it gets.
    Found,
    /// The generator was the bottleneck at this rate: more cannot be found out with it.
    Limited(f64),
}

impl Course {
    /// A search for the highest rate that holds `slo`, from `start` on, up to `limit`.
    pub fn new(slo: &str, start: f64, limit: f64) -> Course {
        Course {
            slo: slo.to_owned(),
            start: round(start.clamp(RATE_MIN, limit)),
            limit,
            steps: Vec::new(),
        }
    }

    /// A rate was run.
    pub fn saw(&mut self, step: SearchStep) {
        self.steps.push(step);
    }

    /// The next step: a function of the steps alone.
    pub fn decide(&self) -> SearchDecision {
        let (low, high) = (self.low(), self.high());
        if let Some(last) = self.steps.last().filter(|step| step.is_void) {
            let trailing = self.steps.iter().rev();
            let in_a_row = trailing.take_while(|s| s.is_void && s.rate == last.rate);
            let voids = self.steps.iter().filter(|step| step.is_void).count();
            let is_full = voids >= VOIDS_MAX || self.steps.len() >= RUNS_MAX;
            match in_a_row.count() < VOIDS_OF_RATE_MAX {
                true if !is_full => return SearchDecision::Try(last.rate, last.why),
                false if !is_full && low > 0.0 && last.rate > low => {}
                _ => return SearchDecision::Limited(last.rate),
            }
        }
        if self.steps.len() >= RUNS_MAX {
            return SearchDecision::Found;
        }
        if self.steps.is_empty() {
            return SearchDecision::Try(self.start, SearchWhy::Double);
        }
        if low == 0.0 {
            return match high {
                Some(high) if high > RATE_MIN => {
                    SearchDecision::Try(round((high / 2.0).max(RATE_MIN)), SearchWhy::Double)
                }
                _ => SearchDecision::Found,
            };
        }
        let beyond = self.beyond_generator(low);
        let upper = [high, beyond].into_iter().flatten().reduce(f64::min);
        match upper {
            None if low < self.limit => {
                return SearchDecision::Try((low * 2.0).min(self.limit), SearchWhy::Double);
            }
            Some(upper) if upper / low > CLOSE => {
                let middle = round(low * (upper / low).sqrt());
                if middle > low && middle < upper {
                    return SearchDecision::Try(middle, SearchWhy::Bisect);
                }
            }
            _ => {}
        }
        let held = self.steps.iter().filter(|s| s.is_met && s.rate == low);
        if held.count() <= REPEATS {
            return SearchDecision::Try(low, SearchWhy::Repeat);
        }
        match (high, beyond) {
            (None, Some(rate)) => SearchDecision::Limited(rate),
            (Some(high), Some(rate)) if rate < high && high / low > CLOSE => {
                SearchDecision::Limited(rate)
            }
            _ => SearchDecision::Found,
        }
    }

    /// The result so far; `is_cut` when the search was not brought to its end.
    pub fn search(&self, is_cut: bool) -> SearchCourse {
        let generator_limit = match self.decide() {
            SearchDecision::Limited(rate) if !is_cut => Some(rate),
            _ => None,
        };
        let mut sentence = self.sentence(generator_limit);
        if is_cut {
            sentence.push_str("; the search was cut");
        }
        SearchCourse {
            slo: self.slo.clone(),
            sentence,
            steps: self.steps.clone(),
            knee_low: self.low(),
            knee_high: self.high(),
            generator_limit,
        }
    }

    fn failed(&self) -> impl Iterator<Item = &SearchStep> {
        self.steps.iter().filter(|s| !s.is_met && !s.is_void)
    }

    /// The lowest rate that did not hold.
    fn high(&self) -> Option<f64> {
        self.failed().map(|step| step.rate).reduce(f64::min)
    }

    /// The highest rate below it that held, and so in every run; zero when there is none.
    fn low(&self) -> f64 {
        let high = self.high().unwrap_or(f64::INFINITY);
        let held = self.steps.iter().filter(|s| s.is_met && s.rate < high);
        held.map(|step| step.rate).fold(0.0, f64::max)
    }

    /// The lowest rate above `low` that was only ever void, as often as it may be.
    fn beyond_generator(&self, low: f64) -> Option<f64> {
        let runs = |rate: f64| self.steps.iter().filter(move |step| step.rate == rate);
        let is_beyond = |rate: &f64| {
            *rate > low
                && runs(*rate).all(|step| step.is_void)
                && runs(*rate).count() >= VOIDS_OF_RATE_MAX
        };
        let rates = self.steps.iter().map(|step| step.rate);
        rates.filter(is_beyond).reduce(f64::min)
    }

    fn sentence(&self, generator_limit: Option<f64>) -> String {
        let (slo, low, high) = (&self.slo, self.low(), self.high());
        let why = |rate: f64| {
            let mut failed = self.failed().filter(|step| step.rate == rate);
            failed.next().map_or("", |step| step.reason.as_str())
        };
        let own = generator_limit.map(|rate| {
            let mut void = self.steps.iter().filter(|s| s.is_void && s.rate == rate);
            let reason = void.next().map_or("", |step| step.reason.as_str());
            format!("at {rate:.0}/s {reason}")
        });
        match (low > 0.0, high, own) {
            (true, Some(high), None) => {
                format!("{low:.0}/s hold {slo}, {high:.0}/s do not ({})", why(high))
            }
            (true, Some(high), Some(own)) => format!(
                "{low:.0}/s hold {slo}, {high:.0}/s do not ({}); no closer, because {own}",
                why(high)
            ),
            (true, None, None) => {
                format!("{low:.0}/s hold {slo}, and no rate that was tried did not")
            }
            (true, None, Some(own)) => {
                format!("{low:.0}/s hold {slo}, and how many more do is not known: {own}")
            }
            (false, Some(high), None) => {
                format!("no rate held {slo}, not even {high:.0}/s ({})", why(high))
            }
            (false, Some(high), Some(own)) => format!(
                "{high:.0}/s do not hold {slo} ({}), and whether fewer do is not known: {own}",
                why(high)
            ),
            (false, None, Some(own)) => {
                format!("whether any rate holds {slo} is not known: {own}")
            }
            (false, None, None) => format!("no rate was tried for {slo}"),
        }
    }
}

/// Rates that a person can read.
fn round(rate: f64) -> f64 {
    if rate < 100.0 { rate } else { rate.round() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a made-up run.
    #[derive(Clone, Copy)]
    enum Run {
        Held,
        Failed,
        Void,
    }

    /// Searches from `start` where run number `n` of `rate` comes to `measure(n, rate)`.
    fn search(start: f64, mut measure: impl FnMut(usize, f64) -> Run) -> SearchCourse {
        let mut course = Course::new("p99<1ms", start, 1e6);
        for run in 1.. {
            let SearchDecision::Try(rate, why) = course.decide() else {
                break;
            };
            let (is_met, is_void, reason) = match measure(run, rate) {
                Run::Held => (true, false, ""),
                Run::Failed => (false, false, "p99 2.000 ms > 1 ms"),
                Run::Void => (false, true, "the generator was the bottleneck: late"),
            };
            course.saw(SearchStep {
                rate,
                why,
                phase: run,
                is_met,
                is_void,
                reason: reason.to_owned(),
                goodput: rate,
                p99_us: 1.0,
            });
        }
        let found = course.search(false);
        let voids = found.steps.iter().filter(|step| step.is_void).count();
        assert!(found.steps.len() <= RUNS_MAX && voids <= VOIDS_MAX);
        found
    }

    fn up_to(knee: f64) -> impl Fn(f64) -> Run {
        move |rate| {
            if rate <= knee { Run::Held } else { Run::Failed }
        }
    }

    #[test]
    fn the_knee_lies_in_the_interval_from_below_and_from_above() {
        for (knee, start) in [
            (6300.0, 1000.0),
            (6300.0, 50_000.0),
            (40.0, 1000.0),
            (3.0, 1.0),
        ] {
            let found = search(start, |_, rate| up_to(knee)(rate));
            let high = found.knee_high.expect("there is a rate that fails");
            assert!(found.knee_low <= knee && knee < high, "{}", found.sentence);
            assert!(high / found.knee_low <= CLOSE + 1e-9, "{}", found.sentence);
            let repeats = found.steps.iter().filter(|s| s.why == SearchWhy::Repeat);
            assert_eq!(repeats.count(), REPEATS);
            assert_eq!(found.generator_limit, None);
        }
    }

    #[test]
    fn a_rate_that_held_by_luck_is_given_up() {
        // Above 5000 a rate holds only once.
        let mut seen: Vec<f64> = Vec::new();
        let found = search(1000.0, |_, rate| {
            let again = seen.contains(&rate);
            seen.push(rate);
            if rate > 5000.0 && again {
                Run::Failed
            } else {
                up_to(6300.0)(rate)
            }
        });
        assert!(found.knee_low <= 5000.0, "{}", found.sentence);
        assert!(found.knee_high.is_some_and(|high| high > found.knee_low));
    }

    #[test]
    fn nothing_holds_or_everything_does_and_both_end() {
        let never = search(1000.0, |_, _| Run::Failed);
        assert!(never.knee_low == 0.0 && never.sentence.starts_with("no rate held"));
        assert_eq!(never.knee_high, Some(RATE_MIN));
        let always = search(1000.0, |_, _| Run::Held);
        assert_eq!((always.knee_low, always.knee_high), (1e6, None));
        assert_eq!(always.generator_limit, None);
    }

    #[test]
    fn a_generator_that_is_starved_from_the_start_ends_the_search_and_blames_nobody_else() {
        let found = search(4000.0, |_, _| Run::Void);
        assert_eq!(found.steps.len(), VOIDS_OF_RATE_MAX, "{:?}", found.steps);
        assert!(found.steps.iter().all(|step| step.rate == 4000.0));
        assert_eq!((found.knee_low, found.knee_high), (0.0, None));
        assert_eq!(found.generator_limit, Some(4000.0));
        assert!(
            found.sentence.contains("is not known: at 4000/s the gen"),
            "{}",
            found.sentence
        );
    }

    #[test]
    fn the_generators_own_limit_is_no_knee_and_what_held_below_it_is_kept() {
        let found = search(1000.0, |_, rate| {
            if rate > 12_000.0 {
                Run::Void
            } else {
                up_to(1e6)(rate)
            }
        });
        assert_eq!(found.knee_high, None, "{}", found.sentence);
        let limit = found.generator_limit.expect("the generator gave up first");
        assert!(found.knee_low <= 12_000.0 && 12_000.0 < limit);
        assert!(limit / found.knee_low <= CLOSE, "{}", found.sentence);
        assert!(found.sentence.contains("how many more do is not known"));
    }

    #[test]
    fn the_knee_is_found_below_a_rate_that_only_the_generator_cannot_send() {
        // 8000/s are void, and the knee is at 6300.
        let found = search(1000.0, |_, rate| {
            if rate > 7500.0 {
                Run::Void
            } else {
                up_to(6300.0)(rate)
            }
        });
        let high = found.knee_high.expect("there is a rate that fails");
        assert!(found.knee_low <= 6300.0 && 6300.0 < high);
        assert_eq!(found.generator_limit, None, "{}", found.sentence);
    }

    #[test]
    fn one_void_run_is_tried_again_and_changes_nothing() {
        let calm = search(1000.0, |_, rate| up_to(6300.0)(rate));
        for hiccup in 1..=calm.steps.len() {
            let found = search(1000.0, |run, rate| {
                if run == hiccup {
                    Run::Void
                } else {
                    up_to(6300.0)(rate)
                }
            });
            let ends = (found.knee_low, found.knee_high);
            assert_eq!(ends, (calm.knee_low, calm.knee_high), "void run {hiccup}");
            assert_eq!(found.steps.len(), calm.steps.len() + 1);
            assert_eq!(found.sentence, calm.sentence);
        }
    }

    #[test]
    fn a_machine_that_becomes_busy_in_the_middle_leaves_the_interval_so_far() {
        for calm_runs in 1..10 {
            let found = search(1000.0, |run, rate| {
                if run > calm_runs {
                    Run::Void
                } else {
                    up_to(6300.0)(rate)
                }
            });
            assert!(found.generator_limit.is_some(), "{}", found.sentence);
            assert!(0.0 < found.knee_low && found.knee_low <= 6300.0);
            assert!(found.knee_high.is_none_or(|high| high > 6300.0));
            assert!(found.sentence.contains("the generator was the bottleneck"));
        }
    }

    #[test]
    fn a_search_that_is_cut_says_what_it_knows() {
        let mut course = Course::new("p99<1ms", 1000.0, 1e6);
        assert_eq!(course.search(true).knee_low, 0.0);
        course.saw(SearchStep {
            rate: 1000.0,
            why: SearchWhy::Double,
            phase: 0,
            is_met: true,
            is_void: false,
            reason: String::new(),
            goodput: 1000.0,
            p99_us: 1.0,
        });
        let found = course.search(true);
        assert_eq!(found.knee_low, 1000.0);
        assert!(found.sentence.ends_with("the search was cut"));
    }
}
