//! Metrics of the engine behind a front door.
//!
//! Invariants
//! 1. Each bound stands beside the number that it bounds.
//!
//! Not here: the numbers themselves (`front/gauges.rs`).

use super::page::{MetricsPage, add};
use crate::front::desk::FrontDesk;
use crate::front::gauges::FrontKind;
use crate::limits;
use prometheus_client::encoding::NoLabelSet;
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

pub(super) fn page(page: &mut MetricsPage<'_>, desk: &FrontDesk) -> fmt::Result {
    let answers = desk.gauges.silence().is_none();
    let gauges = [
        (
            "front_answers",
            "1 while the engine behind this front door answers.",
            answers.into(),
        ),
        (
            "front_queued",
            "Operations that wait for the engine behind this front door.",
            desk.queued() as u64,
        ),
        ("front_queue_max", "Their bound.", desk.queue_len_max as u64),
        (
            "front_under_way",
            "Operations that the engine carries out.",
            desk.gauges.under_way() as u64,
        ),
        (
            "front_under_way_max",
            "Their bound.",
            limits::FRONT_UNDER_WAY_MAX as u64,
        ),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, value)?;
    }
    let watch = &desk.papers.watch;
    let readings = [
        (
            "front_files_renewed",
            "Readings of the files for the engine after the first that were of use.",
            &watch.taken,
        ),
        (
            "front_files_refused",
            "Readings of those files that were of no use: the ones before stayed in force.",
            &watch.refused,
        ),
    ];
    for (name, help, count) in readings {
        page.counter(name, help, count.load(Relaxed))?;
    }
    let mut family = page.0.encode_descriptor(
        "front_seconds",
        "How long the engine took, by kind of operation; without the wait for its turn.",
        None,
        MetricType::Histogram,
    )?;
    for kind in FrontKind::ALL {
        let (buckets, count, sum_s) = desk
            .gauges
            .read_times(kind, |times| add(std::iter::once(times)));
        family
            .encode_family(&[("kind", kind.as_str())])?
            .encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)?;
    }
    Ok(())
}
