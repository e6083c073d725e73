//! When each request is due: fixed in advance, for any behaviour of the server.
//!
//! ```text
//! rate      ┌──┐   ╱│
//!      ─────┘  └──╱ └────      stages: each begins and ends at a rate, linear between
//!
//! arrivals(t) = integral of the rate      request i is due where it reaches i + 1/2   (even)
//!                                         … where it reaches a sum of i exponential draws (Poisson)
//! ```
//!
//! Invariants
//! 1. Instants never decrease, and depend on stages, spacing and seed alone.
//! 2. An even schedule has `floor(arrivals(end) + 1/2)` requests.
//!
//! Not here: waiting for the instants (`driver/`).
//! See: docs/lab/run-json.md.

use crate::limits::{DURATION_S_MAX, RATE_MAX, STAGES_MAX};
use dendra_base::Prng;
use std::fmt;
use std::str::FromStr;

/// A stretch of time; the rate goes in a straight line from one value to the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// Seconds.
    pub length_s: f64,
    /// Requests a second at the beginning.
    pub from: f64,
    /// Requests a second at the end.
    pub to: f64,
}

/// Are arrivals evenly spaced or independent of each other?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Each at its place.
    Even,
    /// Arrivals as from many clients that do not know of each other: exponential gaps.
    Poisson,
}

/// The rate over time, before it is cut to a length.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Always the same.
    Constant(f64),
    /// `rate@seconds`, one after the other.
    Steps(Vec<(f64, f64)>),
    /// From one rate to another over the whole length.
    Ramp(f64, f64),
    /// `base`, and `peak` for `peak_s` at the end of every `every_s`.
    Burst {
        /// Requests a second between bursts.
        base: f64,
        /// Requests a second in a burst.
        peak: f64,
        /// Seconds of a burst.
        peak_s: f64,
        /// Seconds from burst to burst.
        every_s: f64,
    },
}

impl Shape {
    /// Stages over `length_s` seconds; steps have a length of their own.
    pub fn stages(&self, length_s: f64) -> Vec<Slope> {
        let flat = |rate: f64, step_s: f64| Slope {
            length_s: step_s,
            from: rate,
            to: rate,
        };
        match *self {
            Shape::Constant(rate) => vec![flat(rate, length_s)],
            Shape::Steps(ref steps) => steps.iter().map(|&(rate, s)| flat(rate, s)).collect(),
            Shape::Ramp(from, to) => vec![Slope { length_s, from, to }],
            Shape::Burst {
                base,
                peak,
                peak_s,
                every_s,
            } => {
                let mut stages = Vec::new();
                let mut left = length_s;
                while left > 1e-9 && stages.len() < STAGES_MAX {
                    let calm = (every_s - peak_s).min(left);
                    stages.push(flat(base, calm));
                    left -= calm;
                    let loud = peak_s.min(left);
                    stages.push(flat(peak, loud));
                    left -= loud;
                }
                stages.retain(|stage| stage.length_s > 0.0);
                stages
            }
        }
    }

    /// Why it cannot be run, as a sentence that names the fix.
    ///
    /// # Errors
    /// The sentence.
    pub fn check(&self, length_s: f64) -> Result<(), String> {
        let stages = self.stages(length_s);
        let total_s: f64 = stages.iter().map(|stage| stage.length_s).sum();
        let rates = stages.iter().flat_map(|stage| [stage.from, stage.to]);
        if !(total_s > 0.0 && total_s <= DURATION_S_MAX) {
            return Err(format!(
                "a duration of {total_s} s measures nothing; give 1ms to 24h"
            ));
        }
        if !rates.clone().all(|rate| (0.0..=RATE_MAX).contains(&rate)) {
            return Err(format!(
                "a rate is a number of requests a second, at most {RATE_MAX}"
            ));
        }
        if arrivals(&stages) < 0.5 {
            return Err(
                "a rate of zero plans no request at all; give --rate a number above zero"
                    .to_owned(),
            );
        }
        if stages.len() >= STAGES_MAX {
            return Err("that many bursts do not fit into one run; make them longer".to_owned());
        }
        Ok(())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Constant(rate) => write!(f, "constant:{rate}"),
            Shape::Steps(steps) => {
                f.write_str("steps:")?;
                for (i, (rate, seconds)) in steps.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{rate}@{seconds}s")?;
                }
                Ok(())
            }
            Shape::Ramp(from, to) => write!(f, "ramp:{from}..{to}"),
            Shape::Burst {
                base,
                peak,
                peak_s,
                every_s,
            } => write!(f, "burst:{base},{peak}@{peak_s}s/{every_s}s"),
        }
    }
}

/// Reads `1.5s`, `200ms`, `2m`, `1h`; a bare number is seconds.
pub fn parse_seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

fn parse_rate(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1000.0),
        None => (text, 1.0),
    };
    let number: f64 = digits.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let parse = || {
            let Some((kind, rest)) = text.split_once(':') else {
                return parse_rate(text).map(Shape::Constant);
            };
            match kind {
                "constant" => parse_rate(rest).map(Shape::Constant),
                "steps" => {
                    let step = |part: &str| {
                        let (rate, length) = part.split_once('@')?;
                        Some((parse_rate(rate)?, parse_seconds(length)?))
                    };
                    rest.split(',')
                        .map(step)
                        .collect::<Option<_>>()
                        .map(Shape::Steps)
                }
                "ramp" => {
                    let (from, to) = rest.split_once("..")?;
                    Some(Shape::Ramp(parse_rate(from)?, parse_rate(to)?))
                }
                "burst" => {
                    let (base, rest) = rest.split_once(',')?;
                    let (peak, rest) = rest.split_once('@')?;
                    let (peak_s, every_s) = rest.split_once('/')?;
                    let (peak_s, every_s) = (parse_seconds(peak_s)?, parse_seconds(every_s)?);
                    let fits = peak_s > 0.0 && every_s >= peak_s;
                    fits.then_some(Shape::Burst {
                        base: parse_rate(base)?,
                        peak: parse_rate(peak)?,
                        peak_s,
                        every_s,
                    })
                }
                _ => None,
            }
        };
        parse().ok_or_else(|| {
            format!(
                "{text:?} is no schedule; write 30000, steps:1000@10s,2000@10s, ramp:1000..9000 \
                 or burst:1000,20000@1s/10s"
            )
        })
    }
}

fn arrivals(stages: &[Slope]) -> f64 {
    stages
        .iter()
        .map(|stage| stage.length_s * (stage.from + stage.to) / 2.0)
        .sum()
}

/// Mean rate over all stages.
pub fn mean_rate(stages: &[Slope]) -> f64 {
    let length_s: f64 = stages.iter().map(|stage| stage.length_s).sum();
    if length_s > 0.0 {
        arrivals(stages) / length_s
    } else {
        0.0
    }
}

/// The instants, nanoseconds from the start.
#[derive(Clone, Debug)]
pub struct Instants {
    stages: Vec<Slope>,
    stage: usize,
    /// Seconds at which the current stage begins.
    base_s: f64,
    /// Arrivals before the current stage.
    base: f64,
    /// Arrivals at the next instant.
    next: f64,
    chance: Option<Prng>,
}

impl Instants {
    /// The instants of `stages`.
    pub fn new(stages: Vec<Slope>, spacing: Spacing, seed: u64) -> Instants {
        let mut chance = (spacing == Spacing::Poisson).then(|| Prng::named(seed, "schedule"));
        let next = chance.as_mut().map_or(0.5, exponential);
        Instants {
            stages,
            stage: 0,
            base_s: 0.0,
            base: 0.0,
            next,
            chance,
        }
    }
}

fn exponential(prng: &mut Prng) -> f64 {
    -(1.0 - prng.unit()).ln()
}

/// Seconds into `stage` until it has had `count` arrivals.
fn seconds_until(stage: &Slope, count: f64) -> f64 {
    let slope = (stage.to - stage.from) / stage.length_s;
    // The root of slope/2 t^2 + from t = count, in the form that is exact for a slope of zero.
    let root = (stage.from * stage.from + 2.0 * slope * count)
        .max(0.0)
        .sqrt();
    let divisor = stage.from + root;
    if divisor > 0.0 {
        (2.0 * count / divisor).min(stage.length_s)
    } else {
        0.0
    }
}

impl Iterator for Instants {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            let stage = self.stages.get(self.stage)?;
            let count = stage.length_s * (stage.from + stage.to) / 2.0;
            // Sums of stages are rounded; without the grain a request could fall into the crack.
            if self.next < self.base + count - 1e-9 {
                let at_s = self.base_s + seconds_until(stage, self.next - self.base);
                self.next += self.chance.as_mut().map_or(1.0, exponential);
                return Some((at_s * 1e9) as u64);
            }
            self.base += count;
            self.base_s += stage.length_s;
            self.stage += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instants(text: &str, length_s: f64) -> Vec<u64> {
        let shape: Shape = text.parse().expect("it is a schedule");
        assert_eq!(shape.check(length_s), Ok(()), "{text}");
        Instants::new(shape.stages(length_s), Spacing::Even, 0).collect()
    }

    #[test]
    fn a_constant_rate_is_evenly_spaced() {
        let all = instants("1000", 2.0);
        assert_eq!(all.len(), 2000);
        assert_eq!(all[0], 500_000);
        assert!(
            all.windows(2)
                .all(|w| (999_999..=1_000_001).contains(&(w[1] - w[0])))
        );
    }

    #[test]
    fn steps_and_bursts_have_their_counts_in_each_part() {
        let all = instants("steps:100@1s,300@2s", 0.0);
        let first = all.iter().filter(|&&ns| ns < 1_000_000_000).count();
        assert_eq!((first, all.len()), (100, 700));
        let all = instants("burst:100,1000@1s/4s", 8.0);
        let loud = |&&ns: &&u64| (3_000_000_000..4_000_000_000).contains(&ns);
        assert_eq!((all.iter().filter(loud).count(), all.len()), (1000, 2600));
    }

    #[test]
    fn a_ramp_has_half_its_arrivals_in_the_last_third_or_so() {
        let all = instants("ramp:0..1000", 2.0);
        assert_eq!(all.len(), 1000);
        // The integral of a ramp from zero reaches one half at 1/sqrt(2) of its length.
        let half = all[500] as f64 / 2e9;
        assert!((half - 0.5f64.sqrt()).abs() < 1e-3, "{half}");
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let stages = Shape::Constant(10_000.0).stages(5.0);
        let all: Vec<u64> = Instants::new(stages.clone(), Spacing::Poisson, 1).collect();
        let again: Vec<u64> = Instants::new(stages, Spacing::Poisson, 1).collect();
        assert_eq!(all, again);
        // 50,000 with a standard deviation of 224.
        assert!((49_000..51_000).contains(&all.len()), "{}", all.len());
        let gaps: Vec<f64> = all.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e5).collect();
        let longer = gaps.iter().filter(|&&gap| gap > 1.0).count() as f64 / gaps.len() as f64;
        assert!((longer - (-1.0f64).exp()).abs() < 0.01, "{longer}");
    }

    #[test]
    fn what_plans_nothing_is_refused_with_a_sentence() {
        for (text, length_s) in [("0", 1.0), ("100", 0.0), ("ramp:0..0", 1.0), ("1e12", 1.0)] {
            let shape: Shape = text.parse().expect("it reads");
            assert!(shape.check(length_s).is_err(), "{text} for {length_s} s");
        }
        for text in [
            "",
            "many",
            "steps:5",
            "burst:1,2@3s/1s",
            "ramp:5",
            "square:1",
        ] {
            assert!(text.parse::<Shape>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_schedule_reads_what_it_prints() {
        for text in [
            "steps:100@1s,300@2s",
            "ramp:0..1000",
            "burst:1,9@1s/4s",
            "constant:5",
        ] {
            let shape: Shape = text.parse().expect("it is a schedule");
            assert_eq!(shape.to_string(), text);
        }
    }
}
