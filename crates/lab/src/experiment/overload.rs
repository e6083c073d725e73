//! `--overload`: what happens beyond the rate, and how long until it is over.
//!
//! ```text
//! base ─► 2x ─► base ─► 5x ─► base        one drive: nothing is drained between them
//!         goodput, refused,  ╲─ first second that is as good as the base
//!         accepted p99
//! ```
//!
//! Invariants
//! 1. Every phase that was driven is in the run, also when a step has no summary.
//!
//! Not here: driving (`experiment.rs`).
//! See: docs/lab/run-json.md.

use super::{Experiment, News, SetupError, source_of};
use crate::driver::Pace;
use crate::run::{HEAT_BUCKETS, Overload, OverloadStep, Phase, PhaseKind, heat_bound_us};
use crate::schedule::Shape;
use crate::summary::all_operations;

impl Experiment<'_> {
    /// Base rate, then each factor of it followed by the base rate again, without a gap.
    pub(super) fn overload(&mut self, base_rate: f64) -> Result<(), SetupError> {
        let setup = self.setup;
        let stage = |rate: f64| Shape::Constant(rate).stages(setup.duration_s);
        let mut phases = vec![stage(base_rate)];
        let mut names = vec![("overload base".to_owned(), PhaseKind::Overload)];
        for factor in &setup.overload {
            phases.push(stage(base_rate * factor));
            names.push((format!("overload {factor}x"), PhaseKind::Overload));
            phases.push(stage(base_rate));
            names.push((format!("after {factor}x"), PhaseKind::Recovery));
        }
        let plan = self.plan(phases, Pace::Open(setup.spacing), source_of(setup));
        let base_phase = self.run.phases.len();
        self.drive(&plan, &names)?;
        let mut steps = Vec::new();
        for (i, &factor) in setup.overload.iter().enumerate() {
            let at = base_phase + 1 + 2 * i;
            let Some([phase, after]) = self.run.phases.get(at..at + 2) else {
                break;
            };
            let share = |count: u64| count as f64 / phase.counts.planned.max(1) as f64;
            let counts = &phase.counts;
            let step = OverloadStep {
                factor,
                rate: base_rate * factor,
                phase: at,
                recovery_phase: at + 1,
                goodput: counts.ok as f64 / phase.length_s.max(1e-9),
                refused_share: share(counts.refused),
                lost_share: share(counts.errors() - counts.refused),
                accepted_p99_us: accepted_p99_us(phase).unwrap_or(0.0),
                normal_after_s: normal_after_s(&self.run.phases[base_phase], after),
            };
            let normal = step
                .normal_after_s
                .map_or("not normal again".to_owned(), |s| {
                    format!("normal after {s:.0} s")
                });
            let line = format!(
                "{factor}x = {:.0}/s: goodput {:.0}/s, refused {:.1} %, lost {:.1} %, accepted p99 \
                 {:.2} ms, {normal}",
                step.rate,
                step.goodput,
                step.refused_share * 100.0,
                step.lost_share * 100.0,
                step.accepted_p99_us / 1000.0
            );
            (self.watch)(News::Line(&line));
            steps.push(step);
        }
        self.run.overload = Some(Overload {
            base_rate,
            base_phase,
            steps,
        });
        Ok(())
    }
}

/// 99th percentile of the response time of what did as asked, without what was given up.
fn accepted_p99_us(phase: &Phase) -> Option<f64> {
    let mut response = all_operations(phase, |op| &op.response)?;
    if let Some(given_up) = all_operations(phase, |op| &op.given_up) {
        response
            .subtract(&given_up)
            .expect("what was given up is a part of all");
    }
    (!response.is_empty()).then(|| response.value_at_percentile(99.0) as f64 / 1000.0)
}

/// The upper bound of the heat map's bucket that holds the 99th percentile of what was due in `second`.
fn p99_of_second_us(phase: &Phase, second: usize) -> Option<f64> {
    let mut sum = [0u64; HEAT_BUCKETS];
    for op in &phase.ops {
        for (bucket, count) in op
            .response
            .heat
            .get(second)
            .into_iter()
            .flatten()
            .enumerate()
        {
            sum[bucket] += count;
        }
    }
    let total: u64 = sum.iter().sum();
    let mut seen = 0;
    let bucket = sum.iter().position(|count| {
        seen += count;
        seen * 100 >= total * 99
    })?;
    (total > 0).then(|| heat_bound_us(bucket + 1))
}

/// Seconds of `after` until one was as good as `base`: at most one per cent more errors, and a 99th
/// percentile of at most twice the base's or 2 ms.
fn normal_after_s(base: &Phase, after: &Phase) -> Option<f64> {
    let p99_us = all_operations(base, |op| &op.response)?.value_at_percentile(99.0) as f64 / 1000.0;
    let base_errors = base.counts.errors() as f64 / base.counts.planned.max(1) as f64;
    let seconds = after.length_s.ceil() as usize;
    let is_normal = |&second: &usize| {
        let all = after.ops.iter().filter_map(|op| op.seconds.get(second));
        let (mut planned, mut ok, mut errors) = (0, 0, 0);
        for row in all {
            planned += row.planned;
            ok += row.ok;
            errors += row.refused + row.failed + row.timeouts + row.broken;
        }
        let error_share = errors as f64 / planned.max(1) as f64;
        let p99 = p99_of_second_us(after, second);
        ok > 0
            && error_share <= base_errors + 0.01
            && p99.is_some_and(|us| us <= (2.0 * p99_us).max(2000.0))
    };
    (0..seconds).find(is_normal).map(|second| second as f64)
}
