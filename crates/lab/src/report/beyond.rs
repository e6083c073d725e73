//! The overload alone, second by second: the offered load, the work done, and the state of the
//! target.
//!
//! ```text
//! calm │ 2x │ calm │ 5x │ calm       one axis, phases tinted
//! offered and done ─ not done ─ latency of requests that were done ─ connections opened again
//! of each server that was asked: delay, requests in line
//! ```
//!
//! Invariants
//! 1. A percentile of a second is that of requests that were done: those that were given up are
//!    taken out.
//! 2. A panel without a figure above zero is left out.
//!
//! Not here: the table of the steps (`courses.rs`), the whole run (`timeline.rs`).

use super::chart::Form;
use super::format::significant;
use super::latency::bucket_at;
use super::timeline::{Panel, PanelUnit, Points, Series, Window};
use super::timeline::{errors_in, panel_in, samples, thinned, throughput_in};
use crate::run::{HEAT_BUCKETS, Latency, OpResult, OverloadCourse, Run, ServerSeries};

/// The seconds from the first calm phase to the end of the last recovery.
fn window(run: &Run, overload: &OverloadCourse) -> Option<Window> {
    let first = run.phases.get(overload.base_phase)?;
    let last = run.phases.get(overload.steps.last()?.recovery_phase)?;
    let window = Window {
        from_s: first.start_s,
        to_s: last.start_s + last.length_s,
    };
    (window.to_s > window.from_s).then_some(window)
}

/// When all was as before, in words.
pub(crate) fn sentences(run: &Run, overload: &OverloadCourse) -> Vec<String> {
    let told = |step: &crate::run::OverloadStep| {
        let load = format!("{}×", significant(step.factor));
        let watched_s = run.phases.get(step.recovery_phase).map(|p| p.length_s);
        match (step.normal_after_s, watched_s) {
            (Some(s), _) if s < 1.0 => {
                format!("Behind {load} the first second was as good as the calm before.")
            }
            (Some(s), _) => format!(
                "Behind {load} it took {} s until a second was as good as the calm before.",
                significant(s)
            ),
            (None, Some(s)) => format!(
                "Behind {load} no second was as good as the calm before, in {} s.",
                significant(s)
            ),
            (None, None) => format!("What came behind {load} was not measured."),
        }
    };
    overload.steps.iter().map(told).collect()
}

/// All panels of the overload, in the order of the page.
pub(crate) fn panels(run: &Run, overload: &OverloadCourse) -> Vec<Panel> {
    let Some(window) = window(run, overload) else {
        return Vec::new();
    };
    let mut panels: Vec<Panel> = throughput_in(run, window).into_iter().collect();
    panels.extend(errors_in(run, window));
    let sent = accepted(run, 0.99, |op| (&op.service, None));
    let times = [
        ("median from the plan", "s1", response(run, 0.5)),
        ("99th percentile from the plan", "s6", response(run, 0.99)),
        ("99th percentile from the send", "s3", sent),
    ];
    let times = times.map(|(name, class, points)| (name.into(), class, Form::Plain, points));
    panels.extend(above_zero(
        run,
        window,
        "Time of what was done as asked, by the second in which it was due",
        times.into(),
        PanelUnit::Time,
    ));
    panels.extend(above_zero(
        run,
        window,
        "Connections opened again, a second",
        vec![("opened again".into(), "s2", Form::Steps, reconnects(run))],
        PanelUnit::Count,
    ));
    for server in &run.servers {
        panels.extend(standing(run, window, server));
    }
    panels
}

/// A server's figures about its line.
fn standing(run: &Run, window: Window, server: &ServerSeries) -> Vec<Panel> {
    let of = |name: &str| thinned(samples(server, name));
    let mut delay = of("dendra_queue_delay_seconds");
    delay.iter_mut().for_each(|(_, s)| *s *= 1e6);
    // By decades there is no zero.
    delay.retain(|(_, us)| *us > 0.0);
    let delay = ("the server's own figure".into(), "s4", Form::Plain, delay);
    let lines = vec![
        (
            "requests in line".into(),
            "s1",
            Form::Plain,
            of("dendra_requests_standing"),
        ),
        (
            "loops with a line".into(),
            "s3",
            Form::Steps,
            of("dendra_overloaded_loops"),
        ),
    ];
    let delays = "How long requests wait for the processor of the server";
    let counts = "Requests that stand in line in the server";
    let panels = [
        above_zero(run, window, delays, vec![delay], PanelUnit::Time),
        above_zero(run, window, counts, lines, PanelUnit::Count),
    ];
    panels.into_iter().flatten().collect()
}

fn above_zero(
    run: &Run,
    window: Window,
    caption: &str,
    series: Vec<Series>,
    unit: PanelUnit,
) -> Option<Panel> {
    let has_some = |one: &Series| one.3.iter().any(|point| point.1 > 0.0);
    let series = series.into_iter().filter(has_some).collect();
    panel_in(run, window, caption, series, unit)
}

fn reconnects(run: &Run) -> Points {
    let of = |phase: &crate::run::PhaseResult| -> Points {
        let seconds = phase.generator.seconds.iter().enumerate();
        seconds
            .map(|(at, row)| (phase.start_s + at as f64 + 0.5, row.reconnects as f64))
            .collect()
    };
    thinned(run.phases.iter().flat_map(of).collect())
}

fn response(run: &Run, share: f64) -> Points {
    accepted(run, share, |op| (&op.response, Some(&op.given_up)))
}

/// A percentile of each second, by heat maps: of one, less another one that is a part of it.
fn accepted<'a>(
    run: &'a Run,
    share: f64,
    of: impl Fn(&'a OpResult) -> (&'a Latency, Option<&'a Latency>),
) -> Points {
    let mut points = Points::new();
    for phase in &run.phases {
        let rows = phase.ops.iter().map(|op| of(op).0.heat.len()).max();
        for second in 0..rows.unwrap_or(0) {
            let mut column = vec![0u64; HEAT_BUCKETS];
            let mut add = |latency: &Latency, sign: i64| {
                let row = latency.heat.get(second).into_iter().flatten();
                for (sum, count) in column.iter_mut().zip(row) {
                    let count = i64::try_from(*count).unwrap_or(0);
                    *sum = sum.saturating_add_signed(sign * count);
                }
            };
            for op in &phase.ops {
                let (all, without) = of(op);
                add(all, 1);
                if let Some(without) = without {
                    add(without, -1);
                }
            }
            if column.iter().any(|count| *count > 0)
                && let Some(us) = bucket_at(&column, share)
            {
                points.push((phase.start_s + second as f64 + 0.5, us));
            }
        }
    }
    thinned(points)
}
