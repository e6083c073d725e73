//! Percentile curves on an axis of nines, and the latency heat map.
//!
//! ```text
//! y ┤            ╭── response, from the planned instant      ░░ refused and failed:
//!   ┤     ╭──────╯                                           ░░ a share of all planned requests,
//!   ┤─────╯╌╌╌╌╌╌╌╌╌ service, from the send                  ░░ on the same axis
//!   └ 0 ── 90 ── 99 ── 99.9 ──────────────────────────────── 100
//! ```
//!
//! Invariants
//! 1. The x axis counts every planned request. Requests that were refused or failed take their
//!    share at the right and push the curve to the left. So refusing cannot look like being fast.
//! 2. No curve goes on past the nine that its number of samples can carry.
//!
//! Not here: the histograms of each request (`run.rs`).

use super::chart::{Axis, Band, Chart, ChartLine, Form};
use super::format::{duration_us, percent, short};
use super::hdr;
use super::scale::{Scale, percentile};
use crate::run::{HEAT_BUCKETS, OpResult, PhaseResult, heat_bound_us};
use hdrhistogram::Histogram;

const CURVE_POINTS: u32 = 160;
/// Cells of a heat map in one direction of time: more could not be told apart.
const COLUMNS_MAX: usize = 280;

/// One curve to draw.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) histogram: Histogram<u64>,
    /// Share of all planned requests that this histogram holds.
    pub(crate) share: f64,
}

/// Share of planned requests that have no response time: refused, failed, broken.
pub(crate) fn lost_share(phase: &PhaseResult) -> f64 {
    let counts = &phase.counts;
    let lost = counts.refused + counts.failed + counts.broken;
    lost as f64 / counts.planned.max(1) as f64
}

/// Response and service time of all operations of a phase.
pub(crate) fn curves_of(phase: &PhaseResult) -> Vec<Curve> {
    let share = 1.0 - lost_share(phase);
    let mut curves = Vec::new();
    let kinds: [(&str, &'static str, fn(&OpResult) -> &crate::run::Latency); 2] = [
        ("response time, from the planned instant", "s0", |op| {
            &op.response
        }),
        ("service time, from the send", "s1", |op| &op.service),
    ];
    for (name, class, of) in kinds {
        if let Some(histogram) = hdr::merged(phase, of) {
            let name = name.to_owned();
            curves.push(Curve {
                name,
                class,
                histogram,
                share,
            });
        }
    }
    curves
}

/// Response time by operation, when there is more than one.
pub(crate) fn curves_by_op(phase: &PhaseResult) -> Vec<Curve> {
    const CLASSES: [&str; 6] = ["s0", "s2", "s3", "s4", "s5", "s6"];
    let ops = phase.ops.iter().filter(|op| op.counts.planned > 0);
    ops.enumerate()
        .filter_map(|(at, op)| {
            let counts = &op.counts;
            let lost = counts.refused + counts.failed + counts.broken;
            Some(Curve {
                name: format!("{}, response time", op.op),
                class: CLASSES[at % CLASSES.len()],
                histogram: hdr::open(&op.response)?,
                share: 1.0 - lost as f64 / counts.planned.max(1) as f64,
            })
        })
        .collect()
}

/// Draws curves; `lost` is the tinted share at the right, with its words.
pub(crate) fn curves_chart(title: &str, curves: &[Curve], lost: Option<(f64, String)>) -> Chart {
    let most = curves.iter().map(|c| c.histogram.len()).max().unwrap_or(1);
    // Behind the share that was lost by every run there is no curve to see.
    let least_lost = curves.iter().map(|c| 1.0 - c.share).fold(1.0, f64::min);
    let room = if least_lost > 0.0 {
        0.35 - least_lost.log10()
    } else {
        6.0
    };
    let nines = (most as f64).log10().clamp(2.0, 6.0).min(room.max(1.0));
    let low = curves.iter().map(|c| hdr::at_us(&c.histogram, 0.0));
    let high = curves.iter().map(|c| c.histogram.max() as f64 / 1e3);
    let y = Scale::for_latency_us(low.fold(f64::INFINITY, f64::min), high.fold(0.0, f64::max));
    let x = Axis::new(
        Scale::Nines { nines },
        "percentile of all planned requests",
        0,
        percentile,
    );
    let mut chart = Chart::new(title, 320.0, x, Axis::new(y, "", 6, duration_us));
    for curve in curves {
        let carried = (curve.histogram.len() as f64).log10().min(6.0);
        let places = (0..=CURVE_POINTS).map(|i| carried * f64::from(i) / f64::from(CURVE_POINTS));
        let points = places.map(|nine| {
            let share = 1.0 - 10f64.powf(-nine);
            Some((share * curve.share, hdr::at_us(&curve.histogram, share)))
        });
        chart.lines.push(ChartLine {
            name: curve.name.clone(),
            class: curve.class,
            points: points.collect(),
            form: Form::Plain,
        });
    }
    if let Some((share, text)) = lost.filter(|(share, _)| *share > 0.0) {
        chart.bands.push(Band {
            from: 1.0 - share,
            to: 1.0,
            class: "lost",
            text,
        });
    }
    chart.hover = hover(curves, nines);
    chart
}

fn hover(curves: &[Curve], nines: f64) -> Vec<(f64, String)> {
    let places = (0..=80).map(|i| 1.0 - 10f64.powf(-nines * f64::from(i) / 80.0));
    places
        .map(|x| {
            let mut text = format!("{} % of all", percentile((x * 1e6).round() / 1e6));
            for curve in curves {
                let name = curve.name.split(',').next().unwrap_or_default();
                let share = x / curve.share.max(f64::MIN_POSITIVE);
                let said = if share >= 1.0 {
                    "no answer".to_owned()
                } else {
                    duration_us(hdr::at_us(&curve.histogram, share))
                };
                text.push_str(&format!("\n{name}: {said}"));
            }
            (x, text)
        })
        .collect()
}

/// The words of the tinted share; none when every request was answered well.
pub(crate) fn lost_words(phase: &PhaseResult) -> Option<(f64, String)> {
    let counts = &phase.counts;
    let parts: Vec<String> = [
        ("refused", counts.refused),
        ("failed", counts.failed),
        ("broken", counts.broken),
    ]
    .into_iter()
    .filter(|(_, n)| *n > 0)
    .map(|(word, n)| format!("{} {word}", percent(n, counts.planned)))
    .collect();
    (!parts.is_empty()).then(|| (lost_share(phase), parts.join(", ")))
}

/// Latency over time: seconds of the run by quarter octaves, stronger = more requests.
/// `None` when no phase recorded one.
pub(crate) fn heat_chart(title: &str, phases: &[&PhaseResult], length_s: f64) -> Option<Chart> {
    let mut columns: Vec<(f64, Vec<u64>)> = Vec::new();
    for phase in phases {
        let seconds = phase.ops.iter().map(|op| op.response.heat.len()).max();
        for second in 0..seconds.unwrap_or(0) {
            let mut column = vec![0; HEAT_BUCKETS];
            let heats = phase
                .ops
                .iter()
                .filter_map(|op| op.response.heat.get(second));
            for (bucket, n) in heats.flat_map(|heat| heat.iter().enumerate().take(HEAT_BUCKETS)) {
                column[bucket] += n;
            }
            columns.push((phase.start_s + second as f64, column));
        }
    }
    let (columns, width_s) = thinned(columns);
    let used = |column: &(f64, Vec<u64>)| {
        let first = column.1.iter().position(|n| *n > 0)?;
        Some((first, column.1.iter().rposition(|n| *n > 0)?))
    };
    let (low, high) = columns
        .iter()
        .filter_map(used)
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let most = columns
        .iter()
        .flat_map(|c| &c.1)
        .max()
        .copied()
        .unwrap_or(1);
    let scale = Scale::Log {
        low: heat_bound_us(low).max(0.5),
        high: heat_bound_us(high + 1),
    };
    let x = Axis::new(
        Scale::exact(0.0, length_s),
        "seconds since the start of the run",
        12,
        short,
    );
    let mut chart = Chart::new(
        title,
        250.0,
        x,
        Axis::new(scale, "response time", 6, duration_us),
    );
    for (start, column) in &columns {
        for (bucket, &n) in column.iter().enumerate().filter(|(_, n)| **n > 0) {
            // The logarithm, so that one slow request in a second of thousands is still seen.
            let strength = 0.10 + 0.90 * (n as f64 + 1.0).ln() / (most as f64 + 1.0).ln();
            let (from_us, to_us) = (heat_bound_us(bucket), heat_bound_us(bucket + 1));
            chart
                .cells
                .push((*start, start + width_s, from_us, to_us, strength));
        }
    }
    for (name, class, share) in [("median", "s7", 0.5), ("99th percentile", "s6", 0.99)] {
        let points = columns
            .iter()
            .map(|(start, column)| Some((start + width_s / 2.0, bucket_at(column, share)?)));
        chart.lines.push(ChartLine {
            name: format!(
                "{name} of each {}",
                if width_s > 1.0 { "stretch" } else { "second" }
            ),
            class,
            points: points.collect(),
            form: Form::Plain,
        });
    }
    chart.hover = columns
        .iter()
        .map(|(start, column)| {
            let said = |share| bucket_at(column, share).map_or("–".to_owned(), duration_us);
            let n = column.iter().sum::<u64>();
            let text = format!(
                "second {start:.0}\n{} requests\nmedian {}\n99th {}\nslowest {}",
                short(n as f64),
                said(0.5),
                said(0.99),
                said(1.0)
            );
            (start + width_s / 2.0, text)
        })
        .collect();
    Some(chart)
}

/// Joins neighbours until there are at most `COLUMNS_MAX`.
fn thinned(columns: Vec<(f64, Vec<u64>)>) -> (Vec<(f64, Vec<u64>)>, f64) {
    let group = columns.len().div_ceil(COLUMNS_MAX).max(1);
    let joined = columns
        .chunks(group)
        .map(|part| {
            let mut sum = vec![0; HEAT_BUCKETS];
            for (bucket, n) in part.iter().flat_map(|(_, c)| c.iter().enumerate()) {
                sum[bucket] += n;
            }
            (part.first().map_or(0.0, |(start, _)| *start), sum)
        })
        .collect();
    (joined, group as f64)
}

/// The middle of the bucket in which `share` of the times are reached.
pub(crate) fn bucket_at(column: &[u64], share: f64) -> Option<f64> {
    let all: u64 = column.iter().sum();
    let wanted = ((all as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    let bucket = column.iter().position(|n| {
        seen += n;
        seen >= wanted
    })?;
    Some((heat_bound_us(bucket).max(0.5) * heat_bound_us(bucket + 1)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_column_lie_in_their_bucket() {
        let mut column = vec![0; HEAT_BUCKETS];
        column[20] = 98;
        column[40] = 2;
        let inside =
            |bucket: usize, us: f64| heat_bound_us(bucket) < us && us < heat_bound_us(bucket + 1);
        assert!(inside(20, bucket_at(&column, 0.5).expect("it has times")));
        assert!(inside(40, bucket_at(&column, 0.99).expect("it has times")));
        assert_eq!(bucket_at(&[0; HEAT_BUCKETS], 0.5), None);
    }

    #[test]
    fn joining_columns_loses_no_request() {
        let columns: Vec<_> = (0..1000)
            .map(|s| (f64::from(s), vec![1; HEAT_BUCKETS]))
            .collect();
        let (joined, width) = thinned(columns);
        assert!(joined.len() <= COLUMNS_MAX);
        assert!(width >= 1000.0 / COLUMNS_MAX as f64);
        let all: u64 = joined.iter().flat_map(|(_, c)| c).sum();
        assert_eq!(all, 1000 * HEAT_BUCKETS as u64);
    }
}
