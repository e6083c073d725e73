//! Where the time of a request goes inside of the server, by its own histograms.
//!
//! ```text
//! dendra_stage_seconds_bucket{op="put",stage="wal_wait",le="0.0005"}     first and last sample
//!    └ growth of each bucket ─► count, mean, percentiles as bounds ─► one bar a stage
//! ```
//!
//! Invariants
//! 1. A percentile from buckets is an upper bound and is written as one: `≤ 250 µs`.
//! 2. Only stages that grew while they were watched are shown.
//!
//! Not here: latencies seen from outside (`latency.rs`).

use super::chart::Svg;
use super::format::{count, duration_us};
use crate::run::ServerSeries;
use std::collections::BTreeMap;

/// The order in which a request meets them.
const ORDER: [&str; 8] = [
    "parse",
    "queue",
    "engine",
    "wal_wait",
    "replica_wait",
    "peers",
    "form",
    "write",
];

/// One histogram's growth.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StageRow {
    pub(crate) op: String,
    pub(crate) stage: String,
    pub(crate) count: f64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// The labels of `name{a="b",c="d"}`.
fn labels(name: &str) -> BTreeMap<&str, &str> {
    let inside = name
        .split_once('{')
        .map_or("", |(_, rest)| rest.trim_end_matches('}'));
    let pairs = inside
        .split("\",")
        .filter_map(|pair| pair.split_once("=\""));
    pairs
        .map(|(key, value)| (key, value.trim_end_matches('"')))
        .collect()
}

/// All stages of a server that were walked through, in the order of a request's life.
pub(crate) fn stages(server: &ServerSeries) -> Vec<StageRow> {
    let mut found: BTreeMap<(String, usize, String), Vec<(f64, f64)>> = BTreeMap::new();
    for (name, [first, last]) in &server.buckets {
        let labels = labels(name);
        let stage = match labels.get("stage") {
            Some(stage) => *stage,
            None if name.starts_with("dendra_request_seconds") => "whole request",
            None => continue,
        };
        let Some(le) = labels.get("le") else { continue };
        let le = if *le == "+Inf" {
            f64::INFINITY
        } else {
            le.parse().unwrap_or(f64::INFINITY)
        };
        let op = labels.get("op").copied().unwrap_or("all").to_owned();
        let place = ORDER
            .iter()
            .position(|known| *known == stage)
            .unwrap_or(ORDER.len());
        let key = (op, place, stage.to_owned());
        found.entry(key).or_default().push((le, last - first));
    }
    let read = |((op, _, stage), mut buckets): ((String, usize, String), Vec<(f64, f64)>)| {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count = buckets.last().map_or(0.0, |b| b.1);
        let bound_us = |share: f64| {
            let within = buckets.iter().find(|b| b.1 >= count * share && b.1 > 0.0);
            within.map_or(f64::INFINITY, |b| b.0 * 1e6)
        };
        let sum_s = growth_of_sum(server, &op, &stage);
        StageRow {
            count,
            mean_us: sum_s.map_or(f64::NAN, |sum| sum * 1e6 / count),
            p50_us: bound_us(0.5),
            p99_us: bound_us(0.99),
            op,
            stage,
        }
    };
    found
        .into_iter()
        .map(read)
        .filter(|stage| stage.count > 0.0)
        .collect()
}

fn growth_of_sum(server: &ServerSeries, op: &str, stage: &str) -> Option<f64> {
    let (_, values) = server.series.iter().find(|(name, _)| {
        let labels = labels(name);
        name.contains("_seconds_sum{")
            && labels.get("op").copied().unwrap_or("all") == op
            && match labels.get("stage") {
                Some(own) => *own == stage,
                None => stage == "whole request" && name.starts_with("dendra_request_seconds"),
            }
    })?;
    let mut known = values.iter().flatten();
    let first = known.next()?;
    Some(known.next_back()? - first)
}

/// Bars, one a stage, grouped by operation.
pub(crate) fn svg(stages: &[StageRow]) -> String {
    const ROW: f64 = 24.0;
    let most = stages
        .iter()
        .map(|s| s.mean_us)
        .filter(|us| us.is_finite())
        .fold(1.0, f64::max);
    let height = stages.len() as f64 * ROW + 8.0;
    let mut svg = Svg::default();
    svg.open(1120.0, height, "mean time in each stage of a request");
    for (row, stage) in stages.iter().enumerate() {
        let y = row as f64 * ROW + 4.0;
        let is_whole = stage.stage == "whole request";
        let name = format!("{}: {}", stage.op, stage.stage.replace('_', " "));
        svg.words("tick", (190.0, y + 14.0), "end", &name);
        let mean = if stage.mean_us.is_finite() {
            stage.mean_us
        } else {
            0.0
        };
        svg.raw(format_args!(
            "<rect class=\"bar {}\" x=\"200\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" rx=\"2\"/>",
            if is_whole { "s5" } else { "s0" },
            (mean / most * 480.0).max(1.0),
            ROW - 6.0
        ));
        let said = format!(
            "mean {} · half ≤ {} · 99 % ≤ {} · {} times",
            duration_us(stage.mean_us),
            duration_us(stage.p50_us),
            duration_us(stage.p99_us),
            count(stage.count as u64)
        );
        svg.words("tick", (690.0, y + 14.0), "start", &said);
    }
    svg.raw("</svg>");
    svg.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> ServerSeries {
        let mut server = ServerSeries::default();
        for (stage, counts) in [
            ("wal_wait", [[0.0, 10.0], [0.0, 99.0], [5.0, 105.0]]),
            ("parse", [[0.0, 100.0]; 3]),
        ] {
            for (le, ends) in ["0.001", "0.01", "+Inf"].into_iter().zip(counts) {
                let name = format!(
                    "dendra_stage_seconds_bucket{{op=\"put\",stage=\"{stage}\",le=\"{le}\"}}"
                );
                server.buckets.insert(name, ends);
            }
        }
        let sum = vec![Some(1.0), None, Some(1.5)];
        server.series.insert(
            "dendra_stage_seconds_sum{op=\"put\",stage=\"wal_wait\"}".to_owned(),
            sum,
        );
        server
    }

    #[test]
    fn stages_come_in_the_order_of_a_requests_life_with_bounds() {
        let stages = stages(&server());
        assert_eq!(
            stages.iter().map(|s| s.stage.as_str()).collect::<Vec<_>>(),
            ["parse", "wal_wait"]
        );
        let wal = &stages[1];
        assert_eq!(
            (wal.count, wal.p50_us, wal.p99_us),
            (100.0, 10_000.0, 10_000.0)
        );
        assert!((wal.mean_us - 5_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_histogram_that_did_not_grow_is_no_stage() {
        let mut server = server();
        for ends in server.buckets.values_mut() {
            ends[1] = ends[0];
        }
        assert_eq!(stages(&server), []);
    }
}
