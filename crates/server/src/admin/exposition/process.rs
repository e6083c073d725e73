//! Metrics of the process, by the names that all exporters give them.
//!
//! ```text
//! /proc/self/stat   CPU time, memory, ticks from the machine's start to the process's ─┐
//! /proc/stat        when the machine started                                          ├─► process_…
//! /proc/self/fd, RLIMIT_NOFILE   open files and their bound                            ─┘
//! ```
//!
//! Invariants
//! 1. A number that the system does not tell is left out: it is never shown as zero.
//!
//! Not here: the node's own metrics, which begin with `dendra_` (`mod.rs`).
//! See: proc_pid_stat(5); the client libraries of Prometheus, "process metrics".

use super::page::MetricsPage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use std::fmt;

/// The process that runs this.
#[derive(Debug)]
pub(super) struct OwnProcess;

/// The parts of `/proc/self/stat` that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    cpu_ticks: u64,
    /// From the machine's start to the process's.
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl ProcessStat {
    /// Parses the line of the file. `None` = it has another form.
    fn parse(line: &str) -> Option<ProcessStat> {
        // The second field is the program's name in parentheses, which may hold any letter.
        let (_, rest) = line.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc_pid_stat(5) counts from 1, and `rest` begins with its third field.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(ProcessStat {
            cpu_ticks: number(14)?.checked_add(number(15)?)?,
            start_ticks: number(22)?,
            virtual_bytes: number(23)?,
            resident_pages: number(24)?,
        })
    }
}

/// When the machine started, in seconds since 1970, of the text of `/proc/stat`.
fn boot_s(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// A file of the system, or nothing where it does not tell.
fn told(path: &str) -> Option<String> {
    let read = std::fs::read_to_string(path);
    read.inspect_err(|error| tracing::debug!(path, %error, "the system does not tell"))
        .ok()
}

impl Collector for OwnProcess {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = MetricsPage(encoder);
        let stat = told("/proc/self/stat").and_then(|line| ProcessStat::parse(&line));
        if let Some(stat) = stat {
            let ticks_per_s = clock_ticks_per_second() as f64;
            page.0
                .encode_descriptor(
                    "process_cpu_seconds",
                    "CPU time of the process, of users and of the system.",
                    None,
                    MetricType::Counter,
                )?
                .encode_counter::<NoLabelSet, _, u64>(
                    &(stat.cpu_ticks as f64 / ticks_per_s),
                    None,
                )?;
            let resident_bytes = stat.resident_pages * page_size() as u64;
            let help = "Memory of the process that is in the machine's memory.";
            page.gauge("process_resident_memory_bytes", help, resident_bytes)?;
            let help = "Addresses that the process has, with memory behind them or not.";
            page.gauge("process_virtual_memory_bytes", help, stat.virtual_bytes)?;
            if let Some(boot_s) = told("/proc/stat").and_then(|text| boot_s(&text)) {
                let start_s = boot_s as f64 + stat.start_ticks as f64 / ticks_per_s;
                page.0
                    .encode_descriptor(
                        "process_start_time_seconds",
                        "When the process started, in seconds since 1970.",
                        None,
                        MetricType::Gauge,
                    )?
                    .encode_gauge(&start_s)?;
            }
        }
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            // One of them is that of this look.
            let open = open.count().saturating_sub(1) as u64;
            page.gauge("process_open_fds", "Open files and sockets.", open)?;
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            page.gauge("process_max_fds", "Their bound.", most)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::exposition::render;
    use prometheus_client::registry::Registry;

    #[test]
    fn a_program_with_parentheses_and_blanks_in_its_name_is_read() {
        let line =
            "7 (a) b (c)) S 1 7 7 0 -1 4194560 5 0 0 0 120 34 0 0 20 0 9 0 4711 8192 3 1 1\n";
        let stat = ProcessStat {
            cpu_ticks: 154,
            start_ticks: 4_711,
            virtual_bytes: 8_192,
            resident_pages: 3,
        };
        assert_eq!(ProcessStat::parse(line), Some(stat));
        assert_eq!(ProcessStat::parse("7 (a) S 1 7"), None);
        assert_eq!(
            boot_s("cpu 1 2\nbtime 1700000000\nx 1\n"),
            Some(1_700_000_000)
        );
    }

    #[test]
    fn the_metrics_of_the_process_have_the_names_of_all_exporters_and_true_values() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(OwnProcess));
        let text = render(&registry).expect("a page");
        let value = |name: &str| -> f64 {
            let mut lines = text.lines();
            let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let found = found.unwrap_or_else(|| panic!("no {name} in\n{text}"));
            found.parse().expect("a number")
        };
        let now_s = crate::clock::wall_ms() as f64 / 1e3;
        let age_s = now_s - value("process_start_time_seconds");
        assert!((-2.0..86_400.0).contains(&age_s), "{age_s}");
        assert!(value("process_cpu_seconds_total") >= 0.0);
        let resident = value("process_resident_memory_bytes");
        assert!(resident > 1e6 && resident < value("process_virtual_memory_bytes"));
        // The three of every program.
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_open_fds") < value("process_max_fds"));
    }
}
