//! The parts that all metrics are written with.
//!
//! Invariants
//! 1. A family is described once, before its rows.
//!
//! Not here: which metrics there are (`mod.rs`, `cluster.rs`).

use crate::admin::metrics::{BUCKETS_NS, Histogram, LoopCounter, LoopMetrics};
use crate::event_loop::shared::Shared;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;

/// A page under way.
pub(super) struct MetricsPage<'a>(pub(super) DescriptorEncoder<'a>);

impl MetricsPage<'_> {
    /// One counter.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// One gauge.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    /// A family of counters, by labels.
    pub(super) fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = ([(&'static str, &'static str); N], u64)>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    /// A family of counters, by labels that are known when they are written.
    pub(super) fn counters_by<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = ([(&'static str, String); N], u64)>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    /// A family of gauges, by a label.
    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = ([(&'static str, String); 1], u64)>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

/// The sum of one tally over all loops.
pub(crate) fn sum(shared: &Shared, of: impl Fn(&LoopMetrics) -> &LoopCounter) -> u64 {
    let lanes = shared.lanes.iter();
    lanes.map(|lane| of(&lane.metrics).read()).sum()
}

/// Buckets by their upper bounds, in seconds, and after them the one for the rest: Prometheus
/// knows it by its bound.
pub(super) fn buckets(
    bounds: impl Iterator<Item = f64>,
    count_of: impl Fn(usize) -> u64,
) -> Vec<(f64, u64)> {
    let bounds = bounds.chain([f64::INFINITY]).enumerate();
    bounds.map(|(at, bound)| (bound, count_of(at))).collect()
}

/// The sum of several histograms: buckets with their upper bounds, how many, and seconds.
pub(super) fn add<'a>(
    all: impl Iterator<Item = &'a Histogram> + Clone,
) -> (Vec<(f64, u64)>, u64, f64) {
    let bounds = BUCKETS_NS.iter().map(|&ns| ns as f64 / 1e9);
    let buckets = buckets(bounds, |at| {
        all.clone().map(|one| one.buckets[at].read()).sum()
    });
    let count = buckets.iter().map(|(_, count)| count).sum();
    let sum_ns: u64 = all.map(|one| one.sum_ns.read()).sum();
    (buckets, count, sum_ns as f64 / 1e9)
}
