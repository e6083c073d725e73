//! `--overload`: the behaviour beyond the rate, and how long until it is over.
//!
//! ```text
//! calm ─► 2x ─► calm ─► 5x ─► calm        one drive: nothing is drained between them
//!         goodput, refused,  ╲─ first second that is as good as the calm before
//!         accepted p99          calm: CALM_SHARE of the rate that the factors multiply
//! ```
//!
//! Invariants
//! 1. Every phase that was driven is in the run, also when a step has no summary.
//! 2. A calm phase after a step outlives every request of the step.
//!
//! Not here: driving (`experiment/`).
//! See: docs/lab/run-json.md.

use super::{Experiment, News, SetupError, source_of};
use crate::driver::{ArrivalProcess, QueueOrder};
use crate::limits::CALM_SHARE;
use crate::run::{
    HEAT_BUCKETS, OverloadCourse, OverloadStep, PhaseKind, PhaseResult, Run, heat_bound_us,
};
use crate::schedule::Shape;
use crate::summary::all_operations;

impl Experiment<'_> {
    /// The calm rate, then each factor of the base rate followed by the calm one again, without a
    /// gap.
    pub(super) fn overload(&mut self, base_rate: f64) -> Result<(), SetupError> {
        let setup = self.setup;
        let calm_rate = base_rate * CALM_SHARE;
        let stage = |rate: f64, length_s: f64| Shape::Constant(rate).stages(length_s);
        let length_s = setup.duration_s;
        // Whole seconds: rows of a phase that end in the next one are laid upon its rows.
        let behind_s = (length_s + setup.timeout.as_secs_f64()).ceil();
        let mut phases = vec![stage(calm_rate, length_s)];
        let mut names = vec![("overload calm".to_owned(), PhaseKind::Overload)];
        for factor in &setup.overload {
            phases.push(stage(base_rate * factor, length_s));
            names.push((format!("overload {factor}x"), PhaseKind::Overload));
            phases.push(stage(calm_rate, behind_s));
            names.push((format!("after {factor}x"), PhaseKind::Recovery));
        }
        let mut plan = self.plan(
            phases,
            ArrivalProcess::Open(setup.spacing),
            source_of(setup),
        );
        plan.order = QueueOrder::NewestFirst;
        let base_phase = self.run.phases.len();
        self.drive(&plan, &names)?;
        let peak_goodput = peak_goodput(&self.run);
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
                goodput: self.run.goodput(at),
                refused_share: share(counts.refused),
                lost_share: share(counts.errors() - counts.refused),
                accepted_p99_us: accepted_p99_us(phase).unwrap_or(0.0),
                service_p99_us: service_p99_us(phase).unwrap_or(0.0),
                normal_after_s: normal_after_s(&self.run.phases[base_phase], after),
            };
            let normal = step
                .normal_after_s
                .map_or("not normal again".to_owned(), |s| {
                    format!("normal after {s:.0} s")
                });
            let line = format!(
                "{factor}x = {:.0}/s: goodput {:.0}/s, {:.0} % of the peak, refused {:.1} %, lost \
                 {:.1} %, accepted p99 {:.2} ms, {:.2} ms from the send, {normal}",
                step.rate,
                step.goodput,
                step.goodput / peak_goodput.max(1e-9) * 100.0,
                step.refused_share * 100.0,
                step.lost_share * 100.0,
                step.accepted_p99_us / 1000.0,
                step.service_p99_us / 1000.0
            );
            (self.watch)(News::Line(&line));
            steps.push(step);
        }
        let calm = self.run.phases.get(base_phase);
        let calm_service_p99_us = calm.and_then(service_p99_us).unwrap_or(0.0);
        let calm_p99_us = calm.and_then(accepted_p99_us).unwrap_or(0.0);
        self.run.overload = Some(OverloadCourse {
            base_rate,
            calm_rate,
            base_phase,
            calm_p99_us,
            calm_service_p99_us,
            peak_goodput,
            steps,
        });
        Ok(())
    }
}

/// The most goodput of the measured phases, void ones left out.
fn peak_goodput(run: &Run) -> f64 {
    let is_measured = |phase: &PhaseResult| {
        let is_kind = matches!(
            phase.kind,
            PhaseKind::Measure | PhaseKind::Search | PhaseKind::Overload
        );
        is_kind && phase.verdict.is_valid()
    };
    let phases = run.phases.iter().enumerate();
    let measured = phases.filter(|(_, phase)| is_measured(phase));
    let goodputs = measured.map(|(at, _)| run.goodput(at));
    goodputs.fold(0.0, f64::max)
}

/// 99th percentile of the response time of requests that were done, without those that were given
/// up.
fn accepted_p99_us(phase: &PhaseResult) -> Option<f64> {
    let mut response = all_operations(phase, |op| &op.response)?;
    if let Some(given_up) = all_operations(phase, |op| &op.given_up) {
        response
            .subtract(&given_up)
            .expect("what was given up is a part of all");
    }
    (!response.is_empty()).then(|| response.value_at_percentile(99.0) as f64 / 1000.0)
}

/// 99th percentile of the target's time for requests that were done.
fn service_p99_us(phase: &PhaseResult) -> Option<f64> {
    let service = all_operations(phase, |op| &op.service)?;
    Some(service.value_at_percentile(99.0) as f64 / 1000.0)
}

/// The upper bound of the heat map's bucket that holds the 99th percentile of the requests due in
/// `second`.
fn p99_of_second_us(phase: &PhaseResult, second: usize) -> Option<f64> {
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

/// Seconds of `after` until one was as good as `base`. That means at most one per cent more errors,
/// and a 99th percentile of at most twice the base's or 2 ms.
fn normal_after_s(base: &PhaseResult, after: &PhaseResult) -> Option<f64> {
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
