//! A run in words: the verdict on top, the headline figures, the tables of facts.
//!
//! ```text
//! banner   INVALID / CUT SHORT / closed loop / valid, in one sentence each
//! tiles    goodput · p50 · p99 · p99.9 · refused · failed
//! tables   operations, statuses, generator, machine, settings
//! ```
//!
//! Invariants
//! 1. An invalid run is called invalid before anything else, and its figures are not called a
//!    result.
//! 2. Refused, failed, lost and missed requests stand beside the latencies of those that were done.
//!
//! Not here: drawings (`latency.rs`, `timeline.rs`).

use super::format::{bytes, count, duration_us, percent, short, significant, utc};
use super::hdr;
use super::html::{HtmlTable, banner, safe};
use crate::run::{Counts, Mode, PhaseResult, Run, Validity};
use std::fmt::Write;

/// The coloured boxes on top.
pub(crate) fn banners(run: &Run) -> String {
    let mut out = String::new();
    let mut banner = |class: &str, head: &str, text: &str| out += &banner(class, head, text);
    if let Validity::Invalid { reason } = &run.verdict {
        let text = format!(
            "{reason}. The figures below describe the attempt, not the server: do not quote them."
        );
        banner("bad", "INVALID RUN.", &text);
    }
    if run.is_cut {
        banner(
            "warn",
            "CUT SHORT.",
            "The run ended before its plan did; what is shown was measured until then.",
        );
    }
    if run.settings.mode == Mode::Closed {
        banner(
            "warn",
            "CLOSED LOOP.",
            "Each request waited for the answer before it, so that a stall of the server also stopped the load: \
             latencies under a real load would be longer.",
        );
    }
    match run.headline() {
        None => banner(
            "bad",
            "NOTHING WAS MEASURED.",
            "The run ended before its first measured request.",
        ),
        Some(phase) if run.verdict.is_valid() => banner("good", "Valid.", &sentence(run, phase)),
        Some(_) => {}
    }
    for note in &run.notes {
        banner("note", "Note.", note);
    }
    out
}

fn sentence(run: &Run, phase: &PhaseResult) -> String {
    let counts = &phase.counts;
    let done = counts.ok as f64 / phase.length_s.max(1e-9);
    let mut text = if run.settings.mode == Mode::Open {
        format!(
            "Of {} planned requests a second, {} were done as asked",
            short(phase.rate),
            short(done)
        )
    } else {
        format!("{} requests a second were done as asked", short(done))
    };
    if let Some(histogram) = hdr::merged(phase, |op| &op.response) {
        let said = |share| duration_us(hdr::at_us(&histogram, share));
        write!(text, "; 99 % took at most {}", said(0.99)).expect("a string takes all text");
        if histogram.len() >= 1000 {
            write!(text, ", 99.9 % at most {}", said(0.999)).expect("a string takes all text");
        }
        if run.settings.mode == Mode::Open {
            text.push_str(", counted from the planned instant");
        }
    }
    text.push_str(". ");
    text.push_str(&errors(counts));
    text
}

fn errors(counts: &Counts) -> String {
    let kinds = [
        ("refused", counts.refused),
        ("failed", counts.failed),
        ("timed out", counts.timeouts),
        ("lost with their connection", counts.broken),
        ("never sent", counts.unsent),
    ];
    let parts: Vec<String> = kinds
        .into_iter()
        .filter(|(_, n)| *n > 0)
        .map(|(word, n)| format!("{} {word} ({})", count(n), percent(n, counts.planned)))
        .collect();
    if parts.is_empty() {
        "None was refused, failed or was lost.".to_owned()
    } else {
        format!("Not done: {}.", parts.join(", "))
    }
}

/// The headline figures.
pub(crate) fn tiles(run: &Run) -> String {
    let Some(phase) = run.headline() else {
        return String::new();
    };
    let counts = &phase.counts;
    let done = counts.ok as f64 / phase.length_s.max(1e-9);
    let mut tiles = vec![(
        "done, a second".to_owned(),
        short(done),
        match run.settings.mode {
            Mode::Open => format!("of {} planned", short(phase.rate)),
            Mode::Closed => "closed loop".to_owned(),
        },
    )];
    let response = hdr::merged(phase, |op| &op.response);
    let service = hdr::merged(phase, |op| &op.service);
    if let Some(response) = response {
        for (name, share, least) in [("p50", 0.5, 1), ("p99", 0.99, 100), ("p99.9", 0.999, 1000)] {
            if response.len() < least {
                continue;
            }
            let below = service.as_ref().map_or(String::new(), |service| {
                format!("service {}", duration_us(hdr::at_us(service, share)))
            });
            tiles.push((
                format!("{name} response"),
                duration_us(hdr::at_us(&response, share)),
                below,
            ));
        }
        tiles.push((
            "slowest".to_owned(),
            duration_us(response.max() as f64 / 1e3),
            String::new(),
        ));
    }
    tiles.push((
        "refused".to_owned(),
        percent(counts.refused, counts.planned),
        format!("{} of {}", count(counts.refused), count(counts.planned)),
    ));
    let lost = counts.failed + counts.timeouts + counts.broken + counts.unsent;
    tiles.push((
        "failed or lost".to_owned(),
        percent(lost, counts.planned),
        format!("{} of {}", count(lost), count(counts.planned)),
    ));
    let mut out = String::from("<dl class=\"tiles\">");
    for (name, value, below) in tiles {
        let below = safe(below);
        write!(
            out,
            "<div><dt>{}</dt><dd>{}<small>{below}</small></dd></div>",
            safe(name),
            safe(value)
        )
        .expect("a string takes all text");
    }
    out.push_str("</dl>\n");
    out
}

/// Counts by operation, and for the whole phase when there are several.
pub(crate) fn operations(phase: &PhaseResult) -> HtmlTable {
    let mut table = HtmlTable::new(&[
        "operation",
        "planned",
        "done",
        "missed keys",
        "refused",
        "failed",
        "timed out",
        "broken",
        "unsent",
        "p50",
        "p99",
        "p99.9",
        "service p99",
        "refused in (p50)",
    ]);
    let at = |latency: &crate::run::Latency, name: &str| {
        latency
            .percentiles_us
            .get(name)
            .map_or("–".to_owned(), |us| duration_us(*us))
    };
    for op in &phase.ops {
        let counts = &op.counts;
        table.row([
            op.op.clone(),
            count(counts.planned),
            count(counts.ok),
            count(counts.misses),
            count(counts.refused),
            count(counts.failed),
            count(counts.timeouts),
            count(counts.broken),
            count(counts.unsent),
            at(&op.response, "p50"),
            at(&op.response, "p99"),
            at(&op.response, "p99.9"),
            at(&op.service, "p99"),
            if op.refused.count > 0 {
                at(&op.refused, "p50")
            } else {
                "–".to_owned()
            },
        ]);
    }
    table
}

/// Answers by status, and bytes.
pub(crate) fn statuses(phase: &PhaseResult) -> String {
    let counts = &phase.counts;
    let mix: Vec<String> = counts
        .statuses
        .iter()
        .map(|(status, n)| format!("{status}: {} ({})", count(*n), percent(*n, counts.answered)))
        .collect();
    let mix = if mix.is_empty() {
        "no answer at all".to_owned()
    } else {
        mix.join(" · ")
    };
    format!(
        "Answers by status: {mix}. Sent {}, received {}, of which bodies {}.",
        bytes(counts.sent_bytes as f64),
        bytes(counts.received_bytes as f64),
        bytes(counts.body_bytes as f64)
    )
}

/// Targets side by side, when there are several.
pub(crate) fn targets(run: &Run, phase: &PhaseResult) -> HtmlTable {
    let mut table = HtmlTable::new(&[
        "target",
        "planned",
        "done",
        "refused",
        "failed or lost",
        "p50",
        "p99",
        "p99.9",
    ]);
    if phase.targets.len() < 2 {
        return table;
    }
    for (target, result) in run.targets.iter().zip(&phase.targets) {
        let counts = &result.counts;
        let at = |name: &str| {
            result
                .response
                .percentiles_us
                .get(name)
                .map_or("–".to_owned(), |us| duration_us(*us))
        };
        table.row([
            target.url.clone(),
            count(counts.planned),
            count(counts.ok),
            percent(counts.refused, counts.planned),
            percent(
                counts.failed + counts.timeouts + counts.broken + counts.unsent,
                counts.planned,
            ),
            at("p50"),
            at("p99"),
            at("p99.9"),
        ]);
    }
    table
}

/// The instrument's own error, phase by phase.
pub(crate) fn generator(run: &Run) -> HtmlTable {
    let mut table = HtmlTable::new(&[
        "phase",
        "verdict",
        "planned a second",
        "send lag p99",
        "sent late",
        "late means",
        "CPU a request",
        "waited for a processor",
        "busiest thread",
        "connections opened",
        "of these, again",
    ]);
    for phase in &run.phases {
        let generator = &phase.generator;
        let lag = &generator.send_lag.percentiles_us;
        table.row([
            phase.name.clone(),
            phase.verdict.to_string(),
            short(phase.rate),
            lag.get("p99").map_or("–".to_owned(), |us| duration_us(*us)),
            format!(
                "{} ({})",
                count(generator.missed),
                percent(generator.missed, phase.counts.sent)
            ),
            format!("> {}", duration_us(generator.send_lag_limit_us)),
            duration_us(generator.cpu_us_per_request),
            duration_us(generator.starved_s * 1e6),
            format!("{:.0} %", generator.busiest_share * 100.0),
            count(generator.connects),
            count(generator.reconnects),
        ]);
    }
    table
}

/// Everything one needs to repeat the run.
pub(crate) fn facts(run: &Run) -> HtmlTable {
    let (settings, machine, workload) = (&run.settings, &run.machine, &run.workload);
    let mut table = HtmlTable::new(&["", ""]);
    let mut row = |name: &str, text: String| {
        if !text.trim().is_empty() {
            table.row([name.to_owned(), text]);
        }
    };
    row("started", utc(run.started_unix_ms));
    row("took", format!("{} s", significant(run.length_s)));
    let commit = run
        .tool
        .commit
        .as_deref()
        .map_or(String::new(), |c| format!(", commit {c}"));
    row(
        "instrument",
        format!("{} {}{commit}", run.tool.name, run.tool.version),
    );
    for target in &run.targets {
        row("target", format!("{}  {}", target.url, target.template));
    }
    for server in &run.servers {
        let version = server.status[1]
            .get("version")
            .or_else(|| server.status[0].get("version"));
        if let Some(version) = version.and_then(|v| v.as_str()) {
            row("server says", format!("version {version}"));
        }
    }
    row(
        "schedule",
        format!(
            "{}, {} requests a second",
            settings.schedule,
            short(settings.rate)
        ),
    );
    row(
        "length",
        format!(
            "{} s after {} s of warm-up",
            significant(settings.duration_s),
            significant(settings.warmup_s)
        ),
    );
    row(
        "generator",
        format!(
            "{}, {}, at most {} in flight on each, given up after {} ms, seed {}",
            several(settings.connections, "connection"),
            several(settings.threads, "thread"),
            settings.pipeline,
            settings.timeout_ms,
            settings.seed
        ),
    );
    let mix: Vec<String> = workload
        .mix
        .iter()
        .map(|(op, share)| format!("{op} {:.0} %", share * 100.0))
        .collect();
    row(
        "workload",
        format!("{} ({})", workload.name, mix.join(", ")),
    );
    row(
        "records",
        format!(
            "{} keys, {}; values {}; misses {:.1} %",
            count(workload.keys),
            workload.distribution,
            workload.values,
            workload.miss_ratio * 100.0
        ),
    );
    row("requests from", workload.file.clone().unwrap_or_default());
    row(
        "machine",
        format!(
            "{} × {}, {}",
            machine.cpus,
            machine.cpu_model,
            bytes(machine.memory_bytes as f64)
        ),
    );
    row(
        "system",
        format!("{}, kernel {}", machine.system, machine.kernel),
    );
    table
}

fn several(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
