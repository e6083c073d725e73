//! The numbers of one node as Prometheus reads them.
//!
//! ```text
//! scrape ─► each row of the table ─► sums of loops' tallies, gauges of gates, queues, engine ─► OpenMetrics text
//! ```
//!
//! Invariants
//! 1. A scrape reads; it resets no counter and makes no request wait.
//! 2. Documents, alerts and the dashboard name metrics as the table does (`documents.rs`).
//!
//! Not here: the metrics themselves (`table.rs`), the counters (`measure/metrics.rs`), the route
//! (`admin/mod.rs`).
//! See: docs/overload.md.

#[cfg(test)]
mod documents;
mod metric;
mod process;
mod sample;
mod scrape;
mod table;

use crate::clock;
use crate::event_loop::parts::NodeParts;
use crate::health_watch;
use crate::phase::{Phase, PhaseCell};
use process::OwnProcess;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use scrape::Scrape;
pub(crate) use scrape::{refused, scrub_age_s, standing_us, sum};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The sources of a scrape.
pub(crate) struct ScrapeSources {
    pub(crate) phase: Arc<PhaseCell>,
    pub(crate) parts: Arc<OnceLock<NodeParts>>,
}

impl fmt::Debug for ScrapeSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Numbers")
    }
}

/// A registry that shows `numbers`.
pub(crate) fn registry(numbers: ScrapeSources) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(numbers));
    registry
}

/// The registry as text.
pub(crate) fn render(registry: &Registry) -> Result<String, fmt::Error> {
    let mut page = String::with_capacity(96 << 10);
    text::encode(&mut page, registry)?;
    Ok(page)
}

/// The content type of `render`.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Collector for ScrapeSources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let node = self.parts.get();
        let of_no_use = node.and_then(NodeParts::of_no_use);
        let scrape = Scrape {
            now: clock::now(),
            process: OwnProcess::look(),
            is_ready: self.phase.now() == Phase::Serving && of_no_use.is_none(),
            findings: node.map(health_watch::findings),
            node,
            stats: node.map(|node| node.store.engine.stats()),
            cluster: node.and_then(|node| node.cluster.as_deref()),
            front: node.and_then(|node| node.front.as_deref()),
            rights: node.and_then(|node| node.border.rights.as_deref()),
            audit: node.and_then(|node| node.border.audit.as_deref()),
            tls: node.and_then(|node| node.border.tls.as_deref()),
        };
        let mut metrics = table::METRICS.iter();
        metrics.try_for_each(|metric| metric.write(&mut encoder, &scrape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use table::METRICS;

    #[test]
    fn each_name_is_there_once_and_has_the_ending_of_its_kind() {
        let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            let (name, is_counter) = (metric.name, metric.endings() == ["_total"]);
            assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        }
    }

    #[test]
    fn a_node_that_starts_shows_its_process_and_that_it_is_not_ready() {
        let page = render(&registry(ScrapeSources {
            phase: Arc::new(PhaseCell::new()),
            parts: Arc::new(OnceLock::new()),
        }));
        let page = page.expect("a page");
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        let names: Vec<&str> = samples
            .filter_map(|line| line.split([' ', '{']).next())
            .collect();
        // The names that all exporters give to them.
        let process = [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_start_time_seconds",
            "process_open_fds",
            "process_max_fds",
        ];
        assert_eq!(names[..6], process);
        assert_eq!(names[6..], ["dendra_build_info", "dendra_ready"]);
        assert!(page.ends_with("\ndendra_ready 0\n# EOF\n"), "{page}");
    }
}
