//! How the saturation point was found, and the behaviour beyond it.
//!
//! Invariants
//! 1. Every step that was tried is drawn and listed, also those that the generator spoiled.
//!
//! Not here: the search itself (`search.rs`).

use super::chart::{Axis, Band, Chart, ChartLine, Form, RuledLine};
use super::format::{duration_us, percent, short, significant};
use super::html::HtmlTable;
use super::scale::Scale;
use crate::run::{OverloadCourse, Run, SearchCourse, SearchStep, SearchWhy};

/// The p99 of an objective such as `p99<10ms,errors<0.1%`, microseconds.
fn objective_us(slo: &str) -> Option<f64> {
    let part = slo
        .split(',')
        .find_map(|part| part.trim().strip_prefix("p99<"))?;
    let part = part.trim_start_matches('=').trim();
    let digits = part.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let value: f64 = part[..digits].parse().ok()?;
    match part[digits..].trim() {
        "us" | "µs" => Some(value),
        "ms" => Some(value * 1e3),
        "s" => Some(value * 1e6),
        _ => None,
    }
}

/// Rate against p99 with the line of the objective.
pub(crate) fn search_chart(search: &SearchCourse) -> Chart {
    let high_rate = search.steps.iter().map(|s| s.rate).fold(0.0, f64::max);
    let objective = objective_us(&search.slo);
    let times = || {
        search
            .steps
            .iter()
            .map(|s| s.p99_us)
            .filter(|us| *us > 0.0)
            .chain(objective)
    };
    let y = Scale::for_latency_us(
        times().fold(f64::INFINITY, f64::min),
        times().fold(0.0, f64::max),
    );
    let x = Axis::new(
        Scale::from_zero(high_rate),
        "planned requests a second",
        8,
        short,
    );
    let mut chart = Chart::new(
        "The course of the search",
        240.0,
        x,
        Axis::new(y, "p99, response time", 6, duration_us),
    );
    let kinds: [(&str, &str, fn(&SearchStep) -> bool); 3] = [
        ("objective met", "s2", |s| s.is_met),
        ("objective missed", "s3", |s| !s.is_met && !s.is_void),
        ("void: the generator was the bottleneck", "s1", |s| {
            s.is_void
        }),
    ];
    for (name, class, is_one) in kinds {
        let ones = search.steps.iter().filter(|step| is_one(step));
        let points: Vec<_> = ones.map(|step| Some((step.rate, step.p99_us))).collect();
        if !points.is_empty() {
            chart.lines.push(ChartLine {
                name: name.to_owned(),
                class,
                points,
                form: Form::Dots,
            });
        }
    }
    if let Some(us) = objective {
        chart.rules.push(RuledLine::At {
            y: us,
            text: format!("objective {}", search.slo),
        });
    }
    if let Some(high) = search.knee_high {
        chart.bands.push(Band {
            from: search.knee_low,
            to: high,
            class: "phase hot",
            text: "the knee lies here".to_owned(),
        });
    }
    let mut steps: Vec<&SearchStep> = search.steps.iter().collect();
    steps.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    chart.hover = steps
        .into_iter()
        .map(|step| {
            let words = if step.is_met {
                "met"
            } else {
                step.reason.as_str()
            };
            let text = format!(
                "{}/s planned\np99 {}\n{words}",
                short(step.rate),
                duration_us(step.p99_us)
            );
            (step.rate, text)
        })
        .collect();
    chart
}

/// All steps in order of time.
pub(crate) fn search_table(search: &SearchCourse) -> HtmlTable {
    let mut table = HtmlTable::new(&[
        "#",
        "planned a second",
        "why",
        "done a second",
        "p99",
        "objective",
    ]);
    let mut before: Option<&SearchStep> = None;
    for (at, step) in search.steps.iter().enumerate() {
        let why = match (step.why, before) {
            (_, None) => "the rate to begin with",
            (_, Some(b)) if b.is_void && b.rate == step.rate => "again, after a void run",
            (SearchWhy::Double, Some(b)) if step.rate < b.rate => "half of the one before",
            (SearchWhy::Double, _) => "twice the one before",
            (SearchWhy::Bisect, _) => "between held and missed",
            (SearchWhy::Repeat, _) => "again, near the knee",
        };
        before = Some(step);
        let verdict = match (step.is_met, step.is_void) {
            (true, _) => "met".to_owned(),
            (_, true) => format!("void: {}", step.reason),
            (_, false) => format!("missed: {}", step.reason),
        };
        table.row([
            (at + 1).to_string(),
            short(step.rate),
            why.to_owned(),
            short(step.goodput),
            duration_us(step.p99_us),
            verdict,
        ]);
    }
    table
}

/// Planned against done, at and beyond the knee.
pub(crate) fn overload_chart(run: &Run, overload: &OverloadCourse) -> Chart {
    let calm_rate = overload.calm_rate;
    let calm = match run.phases.get(overload.base_phase) {
        Some(_) => run.goodput(overload.base_phase),
        None => calm_rate,
    };
    let mut points = vec![(calm_rate, calm)];
    points.extend(overload.steps.iter().map(|step| (step.rate, step.goodput)));
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let high = points.iter().map(|p| p.0).fold(0.0, f64::max);
    let x = Axis::new(
        Scale::from_zero(high),
        "planned requests a second",
        8,
        short,
    );
    let y = Axis::new(Scale::from_zero(high), "", 5, short);
    let mut chart = Chart::new("Goodput under overload", 220.0, x, y);
    let line = |name: &str, class, form, corners: &[(f64, f64)]| ChartLine {
        name: name.to_owned(),
        class,
        points: corners.iter().map(|p| Some(*p)).collect(),
        form,
    };
    chart.lines.push(line(
        "all that was planned",
        "plan",
        Form::Plain,
        &[(0.0, 0.0), (high, high)],
    ));
    chart
        .lines
        .push(line("done as asked, a second", "s0", Form::Plain, &points));
    chart.lines.push(line("", "s0", Form::Dots, &points));
    chart.rules.push(RuledLine::Up {
        x: overload.base_rate,
        text: "1×".to_owned(),
    });
    for step in &overload.steps {
        let text = format!("{}×", significant(step.factor));
        chart.rules.push(RuledLine::Up { x: step.rate, text });
    }
    chart
}

/// One row a factor.
pub(crate) fn overload_table(overload: &OverloadCourse) -> HtmlTable {
    let mut table = HtmlTable::new(&[
        "load",
        "planned a second",
        "done a second",
        "of the most",
        "refused",
        "lost",
        "p99 of those done",
        "from the send",
        "normal again after",
    ]);
    for step in &overload.steps {
        let share = |share: f64| percent((share * 1e9) as u64, 1_000_000_000);
        let of_peak = match overload.peak_goodput {
            peak if peak > 0.0 => share(step.goodput / peak),
            _ => "–".to_owned(),
        };
        table.row([
            format!("{}×", significant(step.factor)),
            short(step.rate),
            short(step.goodput),
            of_peak,
            share(step.refused_share),
            share(step.lost_share),
            duration_us(step.accepted_p99_us),
            match step.service_p99_us {
                us if us > 0.0 => duration_us(us),
                _ => "–".to_owned(),
            },
            step.normal_after_s
                .map_or("never while watched".to_owned(), |s| {
                    format!("{} s", significant(s))
                }),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objective_is_read_in_any_unit() {
        assert_eq!(objective_us("p99<10ms,errors<0.1%"), Some(10_000.0));
        assert_eq!(objective_us("errors<1%, p99<=2.5s"), Some(2_500_000.0));
        assert_eq!(objective_us("p99<800us"), Some(800.0));
        assert_eq!(objective_us("p99.9<10ms"), None);
        assert_eq!(objective_us("p99<"), None);
    }
}
