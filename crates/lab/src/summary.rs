//! The text that people and their scripts know from wrk2, and the facts that it leaves out.
//!
//! ```text
//!   Latency Distribution (HdrHistogram - Recorded Latency)
//!  50.000%    1.04ms
//!   Detailed Percentile spectrum:
//!        Value   Percentile   TotalCount 1/(1-Percentile)
//! #[Mean    =        1.041, StdDeviation   =        0.301]
//! Requests/sec:  29998.12
//! ```
//!
//! Invariants
//! 1. Lines that wrk2 prints have its shape: plots made for them read ours. Ours come after them.
//!
//! Not here: the figures (`run.rs`).
//! See: docs/lab/run-json.md.

use crate::run::{Counts, Latency, Mode, OpResult, PhaseResult, Run};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use std::fmt::Write;

/// The histogram of `latency`; none when it has no times or its text is damaged.
pub fn histogram(latency: &Latency) -> Option<Histogram<u64>> {
    if latency.hdr.is_empty() {
        return None;
    }
    let bytes = STANDARD.decode(&latency.hdr).ok()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

/// The histogram of all operations of a phase.
pub fn all_operations(
    phase: &PhaseResult,
    of: impl Fn(&OpResult) -> &Latency,
) -> Option<Histogram<u64>> {
    let mut parts = phase.ops.iter().filter_map(|op| histogram(of(op)));
    let first = parts.next()?;
    Some(parts.fold(first, |mut sum, part| {
        sum.add(&part).expect("all histograms have the same bounds");
        sum
    }))
}

/// A time as wrk prints it.
fn time(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.2}us"),
        us if us < 1e6 => format!("{:.2}ms", us / 1e3),
        us if us < 60e6 => format!("{:.2}s", us / 1e6),
        us => format!("{:.2}m", us / 60e6),
    }
}

/// A number of bytes as wrk prints it.
fn bytes(count: f64) -> String {
    match count {
        count if count < 1024.0 => format!("{count:.2}B"),
        count if count < 1024.0 * 1024.0 => format!("{:.2}KB", count / 1024.0),
        count if count < 1e9 => format!("{:.2}MB", count / 1024.0 / 1024.0),
        count => format!("{:.2}GB", count / 1024.0 / 1024.0 / 1024.0),
    }
}

struct Text(String);

impl Text {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.0.write_fmt(line).expect("a String takes every write");
        self.0.push('\n');
    }
}

/// The summary of the phase that the headline figures come from.
pub fn summary(run: &Run) -> String {
    let mut text = Text(String::new());
    let Some(phase) = run.headline() else {
        text.line(format_args!(
            "Nothing was measured: the run ended before its first phase."
        ));
        return text.0;
    };
    let urls: Vec<&str> = run
        .targets
        .iter()
        .map(|target| target.url.as_str())
        .collect();
    text.line(format_args!(
        "Running {:.0}s test @ {}",
        phase.length_s.max(0.0),
        urls.join(" ")
    ));
    text.line(format_args!(
        "  {} threads and {} connections",
        run.settings.threads, run.settings.connections
    ));
    let label = match run.settings.mode {
        Mode::Open => format!("open loop, planned {:.2} requests/sec", phase.rate),
        Mode::Closed => "CLOSED LOOP: each request waits for the answer before it; \
             these latencies hide what a stall costs clients with a schedule of their own"
            .to_owned(),
    };
    text.line(format_args!("  {label}"));
    let response = all_operations(phase, |op| &op.response);
    let service = all_operations(phase, |op| &op.service);
    if let Some(response) = &response {
        distribution(&mut text, "HdrHistogram - Recorded Latency", response);
        spectrum(&mut text, response);
    }
    if let Some(service) = &service {
        let service_label = "Service time: from the send, hides waiting for a connection";
        distribution(&mut text, service_label, service);
    }
    totals(&mut text, phase);
    by_operation(&mut text, phase);
    own_error(&mut text, run, phase);
    text.0
}

fn distribution(text: &mut Text, label: &str, histogram: &Histogram<u64>) {
    text.line(format_args!("  Latency Distribution ({label})"));
    for percentile in [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0] {
        let us = histogram.value_at_percentile(percentile) as f64 / 1000.0;
        text.line(format_args!("{percentile:7.3}% {:>9}", time(us)));
    }
    text.line(format_args!(""));
}

/// Prints like `hdr_percentiles_print` with five ticks for each half distance, milliseconds.
fn spectrum(text: &mut Text, histogram: &Histogram<u64>) {
    text.line(format_args!("  Detailed Percentile spectrum:"));
    text.line(format_args!(
        "       Value   Percentile   TotalCount 1/(1-Percentile)"
    ));
    text.line(format_args!(""));
    for step in histogram.iter_quantiles(5) {
        let value_ms = step.value_iterated_to() as f64 / 1e6;
        let quantile = step.quantile_iterated_to();
        let below = histogram.count_between(0, step.value_iterated_to());
        if quantile < 1.0 {
            text.line(format_args!(
                "{value_ms:12.3} {quantile:12.6} {below:12} {:14.2}",
                1.0 / (1.0 - quantile)
            ));
        } else {
            text.line(format_args!(
                "{value_ms:12.3} {quantile:12.6} {below:12}          inf"
            ));
        }
    }
    text.line(format_args!(
        "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]",
        histogram.mean() / 1e6,
        histogram.stdev() / 1e6
    ));
    text.line(format_args!(
        "#[Max     = {:12.3}, Total count    = {:12}]",
        histogram.max() as f64 / 1e6,
        histogram.len()
    ));
    text.line(format_args!(
        "#[Buckets = {:12}, SubBuckets     = {:12}]",
        histogram.buckets(),
        2048
    ));
    text.line(format_args!(
        "----------------------------------------------------------"
    ));
}

fn totals(text: &mut Text, phase: &PhaseResult) {
    let counts = &phase.counts;
    let length_s = phase.length_s.max(1e-9);
    text.line(format_args!(
        "  {} requests in {:.2}s, {} read",
        counts.answered,
        phase.length_s,
        bytes(counts.received_bytes as f64)
    ));
    if counts.broken + counts.timeouts + counts.unsent > 0 {
        // wrk's four kinds; kinds that it does not tell apart are told apart below.
        text.line(format_args!(
            "  Socket errors: connect {}, read {}, write 0, timeout {}",
            counts.unsent, counts.broken, counts.timeouts
        ));
    }
    let other: u64 = counts
        .statuses
        .iter()
        .filter(|(status, _)| !(200..400).contains(*status))
        .map(|(_, count)| count)
        .sum();
    if other > 0 {
        text.line(format_args!("  Non-2xx or 3xx responses: {other}"));
    }
    text.line(format_args!(
        "Requests/sec: {:9.2}",
        counts.answered as f64 / length_s
    ));
    text.line(format_args!(
        "Transfer/sec: {:>9}",
        bytes(counts.received_bytes as f64 / length_s)
    ));
    text.line(format_args!(""));
}

fn accounts(counts: &Counts) -> String {
    let statuses: Vec<String> = counts
        .statuses
        .iter()
        .map(|(status, count)| format!("{status}: {count}"))
        .collect();
    format!(
        "planned {}, sent {}, ok {} (misses {}), refused {}, failed {}, timeouts {}, broken {}, \
         unsent {} [{}]",
        counts.planned,
        counts.sent,
        counts.ok,
        counts.misses,
        counts.refused,
        counts.failed,
        counts.timeouts,
        counts.broken,
        counts.unsent,
        statuses.join(", ")
    )
}

fn by_operation(text: &mut Text, phase: &PhaseResult) {
    let p = |latency: &Latency, name: &str| {
        latency
            .percentiles_us
            .get(name)
            .map_or("-".to_owned(), |us| time(*us))
    };
    for op in &phase.ops {
        text.line(format_args!("{}: {}", op.op, accounts(&op.counts)));
        for (label, latency) in [
            ("response", &op.response),
            ("service", &op.service),
            ("refused", &op.refused),
            ("failed", &op.failed),
        ] {
            if latency.count > 0 {
                text.line(format_args!(
                    "  {label:8} p50 {:>9}  p99 {:>9}  p99.9 {:>9}  max {:>9}",
                    p(latency, "p50"),
                    p(latency, "p99"),
                    p(latency, "p99.9"),
                    time(latency.max_us)
                ));
            }
        }
    }
}

fn own_error(text: &mut Text, run: &Run, phase: &PhaseResult) {
    let generator = &phase.generator;
    let lag = |name: &str| {
        let us = generator.send_lag.percentiles_us.get(name);
        us.map_or("-".to_owned(), |us| time(*us))
    };
    text.line(format_args!(
        "generator: send lag p50 {}, p99 {}, max {}; {} of {} left late; {:.2} us CPU a request; \
         busiest thread {:.0} %; {} connections opened again",
        lag("p50"),
        lag("p99"),
        time(generator.send_lag.max_us),
        generator.missed,
        phase.counts.sent,
        generator.cpu_us_per_request,
        generator.busiest_share * 100.0,
        generator.reconnects
    ));
    if let Some(search) = &run.search {
        text.line(format_args!("saturation: {}", search.sentence));
    }
    if let Some(overload) = &run.overload {
        for step in &overload.steps {
            let normal = match step.normal_after_s {
                Some(seconds) => format!("normal after {seconds:.0} s"),
                None => "not normal again".to_owned(),
            };
            text.line(format_args!(
                "overload {}x: {:.0}/s planned, goodput {:.0}/s of {:.0}/s at most, refused {:.1} %, lost {:.1} %, \
                 accepted p99 {}, from the send {}, {normal}",
                step.factor,
                step.rate,
                step.goodput,
                overload.peak_goodput,
                step.refused_share * 100.0,
                step.lost_share * 100.0,
                time(step.accepted_p99_us),
                time(step.service_p99_us)
            ));
        }
    }
    for note in &run.notes {
        text.line(format_args!("note: {note}"));
    }
    text.line(format_args!("verdict: {}", run.verdict));
}
