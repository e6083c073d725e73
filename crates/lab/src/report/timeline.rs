//! The events by time: panels that share one time axis, from the plan down to the levels on disk.
//!
//! ```text
//! requests a second      plan ╌╌ against done
//! not done as asked      refused, failed, timed out, never sent, broken
//! waiting                in flight, without a connection
//! server: levels, flushes and compactions, pressure          (when it was asked)
//! ```
//!
//! Invariants
//! 1. All panels of one window of a run span the same seconds at the same places.
//! 2. Phases other than the measured one are tinted and named, never cut out.
//!
//! Not here: latencies over time (`latency.rs`), the overload alone (`beyond.rs`).

use super::chart::{Axis, Band, Chart, ChartLine, Form};
use super::format::{bytes, duration_us, short};
use super::scale::Scale;
use crate::run::{PhaseKind, Run, Second, ServerSeries};
use std::collections::BTreeMap;

/// Points of a line: more than the page has pixels would only make the file larger.
const POINTS_MAX: usize = 560;

/// A caption and a chart.
pub(crate) struct Panel {
    pub(crate) caption: String,
    pub(crate) chart: Chart,
}

/// How values of a panel are written.
#[derive(Clone, Copy)]
pub(crate) enum PanelUnit {
    Count,
    Bytes,
    /// Microseconds, by decades where they are far apart.
    Time,
}

/// The seconds that panels show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
}

impl Window {
    /// All of a run.
    fn whole(run: &Run) -> Window {
        Window {
            from_s: 0.0,
            to_s: span_s(run),
        }
    }

    fn has(self, at_s: f64) -> bool {
        (self.from_s..=self.to_s).contains(&at_s)
    }
}

pub(crate) type Points = Vec<(f64, f64)>;
/// A name, a class of `style.css`, and how its points are drawn.
pub(crate) type Series = (String, &'static str, Form, Points);

/// The seconds that a panel spans.
pub(crate) fn span_s(run: &Run) -> f64 {
    let ends = run.phases.iter().map(|phase| {
        let seconds = phase
            .ops
            .iter()
            .map(|op| op.seconds.len())
            .max()
            .unwrap_or(0);
        phase.start_s + phase.length_s.max(seconds as f64)
    });
    ends.fold(run.length_s, f64::max).max(1.0)
}

/// Names of phases behind a panel.
pub(crate) fn phase_bands(run: &Run) -> Vec<Band> {
    let has_one = run.phases.len() == 1;
    let calm = run.overload.as_ref().map(|overload| overload.base_phase);
    let phases = run.phases.iter().enumerate();
    phases
        .filter(|_| !has_one)
        .map(|(at, phase)| Band {
            from: phase.start_s,
            to: phase.start_s + phase.length_s,
            class: match phase.kind {
                PhaseKind::Preload | PhaseKind::Warmup => "phase quiet",
                PhaseKind::Overload if Some(at) != calm => "phase hot",
                _ if at % 2 == 0 => "phase",
                _ => "phase other",
            },
            text: phase.name.clone(),
        })
        .collect()
}

pub(crate) fn per_second(run: &Run, of: impl Fn(&Second) -> u64) -> Points {
    let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for phase in &run.phases {
        for (second, numbers) in phase
            .ops
            .iter()
            .flat_map(|op| op.seconds.iter().enumerate())
        {
            let at = phase.start_s + second as f64;
            let entry = sums
                .entry((at * 1e3).max(0.0) as u64)
                .or_insert((at + 0.5, 0.0));
            entry.1 += of(numbers) as f64;
        }
    }
    thinned(sums.into_values().collect())
}

/// Means of neighbours until few enough are left.
pub(crate) fn thinned(points: Points) -> Points {
    let group = points.len().div_ceil(POINTS_MAX).max(1);
    let mean = |part: &[(f64, f64)]| {
        let n = part.len() as f64;
        let sum = part
            .iter()
            .fold((0.0, 0.0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
        (sum.0 / n, sum.1 / n)
    };
    points.chunks(group).map(mean).collect()
}

fn panel(run: &Run, caption: &str, series: Vec<Series>, unit: PanelUnit) -> Option<Panel> {
    panel_in(run, Window::whole(run), caption, series, unit)
}

/// A panel of these seconds alone; none without a point in them.
pub(crate) fn panel_in(
    run: &Run,
    window: Window,
    caption: &str,
    mut series: Vec<Series>,
    unit: PanelUnit,
) -> Option<Panel> {
    for (.., points) in &mut series {
        points.retain(|(at_s, _)| window.has(*at_s));
    }
    let values = series.iter().flat_map(|s| &s.3);
    let high = values.clone().map(|p| p.1).fold(0.0, f64::max);
    let low = values.clone().map(|p| p.1).fold(f64::INFINITY, f64::min);
    values.clone().next()?;
    let x = Axis::new(Scale::exact(window.from_s, window.to_s), "", 12, short);
    let y = match unit {
        PanelUnit::Count => Axis::new(Scale::from_zero(high * 1.02), "", 4, short),
        PanelUnit::Bytes => Axis::for_bytes(high * 1.02),
        PanelUnit::Time => Axis::new(Scale::for_latency_us(low, high), "", 4, duration_us),
    };
    let say = match unit {
        PanelUnit::Count => short,
        PanelUnit::Bytes => bytes,
        PanelUnit::Time => duration_us,
    };
    let mut chart = Chart::new(caption, 120.0, x, y);
    chart.bands = phase_bands(run)
        .into_iter()
        .filter(|band| window.has(band.from) && window.has(band.to - 1e-3))
        .collect();
    let mut texts: BTreeMap<u64, (f64, String)> = BTreeMap::new();
    for (name, class, form, points) in series {
        let word = name.split(',').next().unwrap_or_default();
        for (at_s, value) in &points {
            let entry = texts.entry((at_s * 1e3).max(0.0) as u64);
            let entry = entry.or_insert_with(|| (*at_s, format!("{:.0} s", at_s.floor())));
            entry.1.push_str(&format!("\n{word}: {}", say(*value)));
        }
        let mut joined = Vec::with_capacity(points.len());
        let mut before: Option<f64> = None;
        // A pause between phases is a gap, not a slope; the last sample may come early.
        let mut steps: Vec<f64> = points.windows(2).map(|w| w[1].0 - w[0].0).collect();
        steps.sort_by(f64::total_cmp);
        let widest = steps
            .get(steps.len() / 2)
            .map_or(f64::INFINITY, |step| step * 2.5);
        for (at_s, value) in points {
            if before.is_some_and(|before| at_s - before > widest) {
                joined.push(None);
            }
            joined.push(Some((at_s, value)));
            before = Some(at_s);
        }
        chart.lines.push(ChartLine {
            name,
            class,
            points: joined,
            form,
        });
    }
    chart.hover = texts.into_values().collect();
    Some(Panel {
        caption: caption.to_owned(),
        chart,
    })
}

/// Throughput against the plan.
pub(crate) fn throughput(run: &Run) -> Option<Panel> {
    throughput_in(run, Window::whole(run))
}

/// Throughput of these seconds.
pub(crate) fn throughput_in(run: &Run, window: Window) -> Option<Panel> {
    panel_in(
        run,
        window,
        "Requests a second",
        vec![
            (
                "done as asked".into(),
                "s0",
                Form::FilledSteps,
                per_second(run, |s| s.ok),
            ),
            (
                "planned".into(),
                "plan",
                Form::Steps,
                per_second(run, |s| s.planned),
            ),
            (
                "sent".into(),
                "s5",
                Form::Steps,
                per_second(run, |s| s.sent),
            ),
        ],
        PanelUnit::Count,
    )
}

/// Everything that was not done as asked; none when all was.
pub(crate) fn errors(run: &Run) -> Option<Panel> {
    errors_in(run, Window::whole(run))
}

/// Errors of these seconds.
pub(crate) fn errors_in(run: &Run, window: Window) -> Option<Panel> {
    let kinds: [(&str, &'static str, fn(&Second) -> u64); 5] = [
        ("refused (429, 503, 507)", "s3", |s| s.refused),
        ("failed, another status", "s6", |s| s.failed),
        ("timed out behind the send", "s4", |s| {
            s.timeouts.saturating_sub(s.unsent)
        }),
        ("never sent, no connection was free", "s5", |s| s.unsent),
        ("connection broke", "s2", |s| s.broken),
    ];
    let is_in = |point: &(f64, f64)| window.has(point.0) && point.1 > 0.0;
    let series: Vec<Series> = kinds
        .into_iter()
        .map(|(name, class, of)| (name.into(), class, Form::Steps, per_second(run, of)))
        .filter(|(_, _, _, points)| points.iter().any(is_in))
        .collect();
    panel_in(
        run,
        window,
        "Requests a second that were not done as asked",
        series,
        PanelUnit::Count,
    )
}

/// Requests between plan and answer.
pub(crate) fn waiting(run: &Run) -> Option<Panel> {
    let mut in_flight = Vec::new();
    let mut backlog = Vec::new();
    for phase in &run.phases {
        for (second, numbers) in phase.generator.seconds.iter().enumerate() {
            let at = phase.start_s + second as f64 + 1.0;
            in_flight.push((at, numbers.in_flight as f64));
            backlog.push((at, numbers.backlog as f64));
        }
    }
    let (in_flight, backlog) = (thinned(in_flight), thinned(backlog));
    panel(
        run,
        "Requests that wait, at the end of each second",
        vec![
            ("sent and not answered".into(), "s1", Form::Plain, in_flight),
            (
                "due without a free connection".into(),
                "s3",
                Form::Plain,
                backlog,
            ),
        ],
        PanelUnit::Count,
    )
}

/// How a metric becomes points.
type Reading = fn(&ServerSeries, &str) -> Points;

/// A word, a class of `style.css`, and a metric.
type Shown = (&'static str, &'static str, &'static str);

/// What a server says of itself, below the levels on its disk.
const PANELS: [(&str, PanelUnit, Form, Reading, &[Shown]); 4] = [
    (
        "Flushes and compactions, bytes written a second",
        PanelUnit::Bytes,
        Form::Steps,
        rate,
        &[
            (
                "flushed to level 0",
                "s2",
                "dendra_engine_flush_bytes_total",
            ),
            (
                "written by compactions",
                "s4",
                "dendra_engine_compaction_write_bytes_total",
            ),
            (
                "read by compactions",
                "s5",
                "dendra_engine_compaction_read_bytes_total",
            ),
            ("written to the log", "s1", "dendra_engine_log_bytes_total"),
        ],
    ),
    (
        "Log writes and syncs a second",
        PanelUnit::Count,
        Form::Steps,
        rate,
        &[
            ("commits", "s0", "dendra_engine_commits_total"),
            ("syncs", "s3", "dendra_engine_log_syncs_total"),
            (
                "blocks read from the disk",
                "s4",
                "dendra_engine_cache_misses_total",
            ),
        ],
    ),
    (
        "Memory of the engine",
        PanelUnit::Bytes,
        Form::Plain,
        samples,
        &[
            ("memtables", "s0", "dendra_engine_memtable_bytes"),
            ("cached blocks", "s2", "dendra_engine_cache_bytes"),
        ],
    ),
    (
        "Pressure of the engine (1: new values are refused)",
        PanelUnit::Count,
        Form::Plain,
        samples,
        &[("pressure", "s6", "dendra_engine_pressure")],
    ),
];

/// The panels of one server, in the order of its target.
pub(crate) fn server(run: &Run, server: &ServerSeries) -> Vec<Panel> {
    let tables = "Bytes of tables, by level";
    let mut panels = vec![panel(run, tables, levels(server), PanelUnit::Bytes)];
    for (caption, unit, form, read, shown) in PANELS {
        let series = shown
            .iter()
            .map(|(word, class, name)| ((*word).to_owned(), *class, form, read(server, name)))
            .map(|(word, class, form, points)| (word, class, form, thinned(points)))
            .filter(|series| !series.3.is_empty());
        panels.push(panel(run, caption, series.collect(), unit));
    }
    panels.into_iter().flatten().collect()
}

pub(crate) fn samples(server: &ServerSeries, name: &str) -> Points {
    let Some(values) = server.series.get(name) else {
        return Vec::new();
    };
    let pairs = server.at_s.iter().zip(values);
    pairs
        .filter_map(|(at, value)| Some((*at, (*value)?)))
        .collect()
}

fn levels(server: &ServerSeries) -> Vec<Series> {
    const CLASSES: [&str; 7] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6"];
    let level = |(level, class): (usize, &'static str)| {
        let name = format!("dendra_engine_table_bytes{{level=\"{level}\"}}");
        let points = thinned(samples(server, &name));
        (format!("level {level}"), class, Form::Steps, points)
    };
    let levels = CLASSES.into_iter().enumerate().map(level);
    levels
        .filter(|series| series.3.iter().any(|p| p.1 > 0.0))
        .collect()
}

/// Growth of a counter by the second; empty when it never grew. A counter that went back belongs to
/// a new process: a gap.
fn rate(server: &ServerSeries, name: &str) -> Points {
    let samples = samples(server, name);
    let growth = samples.windows(2).filter_map(|pair| {
        let (from, to) = (pair[0], pair[1]);
        let seconds = to.0 - from.0;
        (seconds > 0.0 && to.1 >= from.1)
            .then(|| ((from.0 + to.0) / 2.0, (to.1 - from.1) / seconds))
    });
    let growth: Points = growth.collect();
    if growth.iter().any(|p| p.1 > 0.0) {
        growth
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_becomes_a_rate_and_a_restart_a_gap() {
        let mut server = ServerSeries {
            at_s: vec![0.0, 2.0, 3.0, 4.0],
            ..ServerSeries::default()
        };
        let values = vec![Some(10.0), Some(30.0), Some(5.0), Some(6.0)];
        server.series.insert("x_total".to_owned(), values);
        assert_eq!(rate(&server, "x_total"), [(1.0, 10.0), (3.5, 1.0)]);
    }

    #[test]
    fn thinning_keeps_the_mean() {
        let points: Points = (0..10_000)
            .map(|i| (f64::from(i), f64::from(i % 2)))
            .collect();
        let thin = thinned(points);
        assert!(thin.len() <= POINTS_MAX);
        let mean = thin.iter().map(|p| p.1).sum::<f64>() / thin.len() as f64;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }
}
