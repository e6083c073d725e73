//! The samples of a metric at one scrape.
//!
//! Invariants
//! 1. Histograms are summed bucket by bucket: all have the same bounds.
//!
//! Not here: their sources (`scrape.rs`), their text (`metric.rs`).

use crate::measure::metrics::{BUCKETS_NS, Histogram, LoopCounter};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The samples of one metric; `None` = the node lacks the part that has them.
pub(super) type MetricReading = Option<Vec<MetricSample>>;

/// One number, and the values of the labels.
pub(super) struct MetricSample(pub(super) Vec<String>, pub(super) MetricNumber);

/// The number of a sample.
pub(super) enum MetricNumber {
    Whole(u64),
    Real(f64),
    SummedTimes(SummedTimes),
}

/// A sum of histograms: buckets with their upper bounds, and all times together.
pub(super) struct SummedTimes {
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) sum_s: f64,
}

/// One number without labels.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the readings of a table have one type"
)]
pub(super) fn one(number: impl Into<MetricNumber>) -> MetricReading {
    Some(vec![MetricSample(Vec::new(), number.into())])
}

/// The number that other threads count.
pub(super) fn load(counter: &AtomicU64) -> MetricReading {
    one(counter.load(Relaxed))
}

/// Numbers with labels.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the readings of a table have one type"
)]
pub(super) fn rows<const N: usize, Label: Into<String>, Of: Into<MetricNumber>>(
    rows: impl IntoIterator<Item = ([Label; N], Of)>,
) -> MetricReading {
    let rows = rows.into_iter();
    let rows =
        rows.map(|(labels, number)| MetricSample(labels.map(Into::into).into(), number.into()));
    Some(rows.collect())
}

impl From<u64> for MetricNumber {
    fn from(number: u64) -> MetricNumber {
        MetricNumber::Whole(number)
    }
}

impl From<usize> for MetricNumber {
    fn from(number: usize) -> MetricNumber {
        MetricNumber::Whole(number as u64)
    }
}

impl From<bool> for MetricNumber {
    fn from(is_so: bool) -> MetricNumber {
        MetricNumber::Whole(is_so.into())
    }
}

impl From<f64> for MetricNumber {
    fn from(number: f64) -> MetricNumber {
        MetricNumber::Real(number)
    }
}

impl From<SummedTimes> for MetricNumber {
    fn from(times: SummedTimes) -> MetricNumber {
        MetricNumber::SummedTimes(times)
    }
}

impl SummedTimes {
    /// The sum of several histograms.
    pub(super) fn add<'a>(all: impl Iterator<Item = &'a Histogram> + Clone) -> SummedTimes {
        let parts = all.map(|one| (&one.buckets[..], &one.sum_ns));
        SummedTimes::sum(&BUCKETS_NS, 1e9, parts)
    }

    /// The sum of buckets with these upper bounds, behind which one holds the rest. A second has
    /// `units`.
    pub(super) fn sum<'a>(
        bounds: &[u64],
        units: f64,
        parts: impl Iterator<Item = (&'a [LoopCounter], &'a LoopCounter)> + Clone,
    ) -> SummedTimes {
        let bounds = bounds.iter().map(|&bound| bound as f64 / units);
        let bounds = bounds.chain([f64::INFINITY]).enumerate();
        let count_of = |at: usize| parts.clone().map(|(buckets, _)| buckets[at].read()).sum();
        let sum: u64 = parts.clone().map(|(_, sum)| sum.read()).sum();
        SummedTimes {
            buckets: bounds.map(|(at, bound)| (bound, count_of(at))).collect(),
            sum_s: sum as f64 / units,
        }
    }
}
