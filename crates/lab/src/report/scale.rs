//! Axes: from values to places between zero and one, and where their ticks stand.
//!
//! ```text
//! linear   0    10   20   30        round steps of 1, 2, 5
//! log      10 µs  100 µs  1 ms      decades, with 2 and 5 between when there is room
//! nines    0  50  90  99  99.9      -log10(1 - share): every further nine takes the same room
//! ```
//!
//! Invariants
//! 1. `at` is finite for every input, and within [0, 1] for values inside of the domain.
//! 2. A domain is never empty: equal ends are widened.
//!
//! Not here: drawing (`chart.rs`).

/// How values become places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    Linear {
        low: f64,
        high: f64,
    },
    Log {
        low: f64,
        high: f64,
    },
    /// Shares from zero up to `nines` nines.
    Nines {
        nines: f64,
    },
}

impl Scale {
    /// From zero to a round number not below `high`.
    pub(crate) fn from_zero(high: f64) -> Scale {
        let high = if high.is_finite() && high > 0.0 {
            high
        } else {
            1.0
        };
        let step = step(high, 5);
        Scale::Linear {
            low: 0.0,
            high: (high / step - 1e-9).ceil() * step,
        }
    }

    /// From `low` to `high` as they are.
    pub(crate) fn exact(low: f64, high: f64) -> Scale {
        let high = if high > low { high } else { low + 1.0 };
        Scale::Linear { low, high }
    }

    /// For latencies between `low` and `high`: linear from zero when they are close, else by
    /// decades.
    pub(crate) fn for_latency_us(low: f64, high: f64) -> Scale {
        let high = if high.is_finite() && high > 0.0 {
            high
        } else {
            1.0
        };
        let low = low.max(0.1).min(high);
        if high / low < 8.0 {
            return Scale::from_zero(high * 1.05);
        }
        Scale::Log {
            low: round_down(low),
            high: round_up(high),
        }
    }

    /// The largest value inside.
    pub(crate) fn high(self) -> f64 {
        match self {
            Scale::Linear { high, .. } | Scale::Log { high, .. } => high,
            Scale::Nines { .. } => 1.0,
        }
    }

    /// Where `value` stands, zero to one.
    pub(crate) fn at(self, value: f64) -> f64 {
        let place = match self {
            Scale::Linear { low, high } => (value - low) / (high - low),
            Scale::Log { low, high } => (value.max(low).ln() - low.ln()) / (high.ln() - low.ln()),
            Scale::Nines { nines } => {
                let left = (1.0 - value).max(10f64.powf(-nines));
                -left.log10() / nines
            }
        };
        if place.is_finite() { place } else { 0.0 }
    }

    /// Values with labelled ticks, about `wanted` of them.
    pub(crate) fn ticks(self, wanted: usize) -> Vec<f64> {
        match self {
            Scale::Linear { low, high } => {
                let step = step(high - low, wanted);
                let first = (low / step - 1e-9).ceil() as i64;
                let last = (high / step + 1e-9).floor() as i64;
                (first..=last).map(|i| i as f64 * step).collect()
            }
            Scale::Log { low, high } => {
                let decades = (high / low).log10();
                let steps: &[f64] = match decades {
                    d if d <= 2.3 => &[1.0, 2.0, 5.0],
                    d if d <= 3.5 => &[1.0, 3.0],
                    _ => &[1.0],
                };
                let first = low.log10().floor() as i32;
                let last = high.log10().ceil() as i32;
                let every = ((last - first) / 12).max(1) as usize;
                (first..=last)
                    .step_by(every)
                    .flat_map(|decade| steps.iter().map(move |s| s * 10f64.powi(decade)))
                    .filter(|v| (low * 0.999..=high * 1.001).contains(v))
                    .collect()
            }
            Scale::Nines { nines } => [0.0, 0.5, 0.75, 0.9]
                .into_iter()
                .chain((2..=nines.floor() as i32).map(|n| 1.0 - 10f64.powi(-n)))
                .collect(),
        }
    }
}

/// A round step that cuts `span` in about `wanted` parts.
fn step(span: f64, wanted: usize) -> f64 {
    let raw = span / wanted.max(1) as f64;
    let decade = 10f64.powf(raw.log10().floor());
    let factor = match raw / decade {
        f if f <= 1.0 => 1.0,
        f if f <= 2.0 => 2.0,
        f if f <= 5.0 => 5.0,
        _ => 10.0,
    };
    factor * decade
}

fn round_down(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0]
        .into_iter()
        .map(|f| f * decade)
        .find(|v| *v <= value)
        .unwrap_or(decade)
}

fn round_up(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|f| f * decade)
        .find(|v| *v >= value)
        .unwrap_or(decade * 10.0)
}

/// A share as its percentile is written: `50`, `99`, `99.9`.
pub(crate) fn percentile(share: f64) -> String {
    let text = format!("{:.6}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nine_takes_the_same_room() {
        let scale = Scale::Nines { nines: 4.0 };
        for (share, place) in [
            (0.0, 0.0),
            (0.9, 0.25),
            (0.99, 0.5),
            (0.999, 0.75),
            (1.0, 1.0),
        ] {
            assert!((scale.at(share) - place).abs() < 1e-9, "{share}");
        }
        let labels: Vec<_> = scale.ticks(0).into_iter().map(percentile).collect();
        assert_eq!(labels, ["0", "50", "75", "90", "99", "99.9", "99.99"]);
    }

    #[test]
    fn round_numbers_stand_at_the_ticks() {
        assert_eq!(
            Scale::from_zero(47.0),
            Scale::Linear {
                low: 0.0,
                high: 50.0
            }
        );
        assert_eq!(
            Scale::exact(0.0, 30.0).ticks(6),
            [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
        );
        let log = Scale::for_latency_us(120.0, 9_000.0);
        assert_eq!(
            log,
            Scale::Log {
                low: 100.0,
                high: 10_000.0
            }
        );
        assert_eq!(
            log.ticks(0),
            [100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0]
        );
    }

    #[test]
    fn strange_domains_do_not_break_the_page() {
        let strange = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300];
        for high in strange {
            for scale in [
                Scale::from_zero(high),
                Scale::exact(high, high),
                Scale::for_latency_us(0.0, high),
            ] {
                for value in strange {
                    assert!(scale.at(value).is_finite(), "{scale:?} {value}");
                }
                assert!(scale.ticks(6).len() < 100, "{scale:?}");
            }
        }
    }
}
