//! One metric, and its text.
//!
//! Invariants
//! 1. A metric is described once, before its samples.
//! 2. A sample has a value for each label of its metric.
//!
//! Not here: which metrics there are (`table.rs`).

use super::sample::{MetricNumber, MetricReading, MetricSample, SummedTimes};
use super::scrape::Scrape;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;

/// One metric.
pub(super) struct Metric {
    kind: MetricType,
    /// Name of its samples; those of a histogram have a suffix.
    pub(super) name: &'static str,
    pub(super) labels: &'static [&'static str],
    help: &'static str,
    read: ReadMetric,
}

/// A look at the samples of one metric.
type ReadMetric = fn(&Scrape<'_>) -> MetricReading;

pub(super) const fn counter(name: &'static str, help: &'static str, read: ReadMetric) -> Metric {
    Metric::new(MetricType::Counter, name, help, read)
}

pub(super) const fn gauge(name: &'static str, help: &'static str, read: ReadMetric) -> Metric {
    Metric::new(MetricType::Gauge, name, help, read)
}

pub(super) const fn histogram(name: &'static str, help: &'static str, read: ReadMetric) -> Metric {
    Metric::new(MetricType::Histogram, name, help, read)
}

pub(super) const fn info(name: &'static str, help: &'static str, read: ReadMetric) -> Metric {
    Metric::new(MetricType::Info, name, help, read)
}

impl Metric {
    const fn new(
        kind: MetricType,
        name: &'static str,
        help: &'static str,
        read: ReadMetric,
    ) -> Metric {
        Metric {
            kind,
            name,
            labels: &[],
            help,
            read,
        }
    }

    /// The metric with these labels.
    pub(super) const fn by(mut self, labels: &'static [&'static str]) -> Metric {
        self.labels = labels;
        self
    }

    /// Endings that the encoder gives to the names of samples: `name` has the one of its kind.
    pub(super) fn endings(&self) -> &'static [&'static str] {
        match self.kind {
            MetricType::Counter => &["_total"],
            MetricType::Info => &["_info"],
            MetricType::Histogram => &["_bucket", "_sum", "_count"],
            _ => &[],
        }
    }

    /// Writes help, kind and samples.
    pub(super) fn write(
        &self,
        page: &mut DescriptorEncoder<'_>,
        scrape: &Scrape<'_>,
    ) -> fmt::Result {
        let Some(samples) = (self.read)(scrape) else {
            return Ok(());
        };
        let endings = self.endings().iter();
        let family = endings.fold(self.name, |name, end| {
            name.strip_suffix(end).unwrap_or(name)
        });
        let mut family = page.encode_descriptor(family, self.help, None, self.kind)?;
        for MetricSample(values, number) in samples {
            assert_eq!(values.len(), self.labels.len(), "labels of {}", self.name);
            let labels: Vec<_> = self.labels.iter().copied().zip(values).collect();
            if let MetricType::Info = self.kind {
                family.encode_info(&labels)?;
            } else if labels.is_empty() {
                self.write_number(&mut family, &number)?;
            } else {
                self.write_number(&mut family.encode_family(&labels)?, &number)?;
            }
        }
        Ok(())
    }

    fn write_number(&self, place: &mut MetricEncoder<'_>, number: &MetricNumber) -> fmt::Result {
        let is_counter = matches!(self.kind, MetricType::Counter);
        match number {
            MetricNumber::Whole(n) if is_counter => {
                place.encode_counter::<NoLabelSet, _, u64>(n, None)
            }
            MetricNumber::Real(n) if is_counter => {
                place.encode_counter::<NoLabelSet, _, u64>(n, None)
            }
            MetricNumber::Whole(n) => place.encode_gauge(n),
            MetricNumber::Real(n) => place.encode_gauge(n),
            MetricNumber::SummedTimes(SummedTimes { buckets, sum_s }) => {
                let count = buckets.iter().map(|(_, count)| count).sum();
                place.encode_histogram::<NoLabelSet>(*sum_s, count, buckets, None)
            }
        }
    }
}
