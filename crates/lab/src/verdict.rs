//! Was it the server that was measured? The generator judges itself.
//!
//! ```text
//! late        more than 1 % of the requests left over 1 ms after they could have    open loop
//! saturated   a thread worked, or waited for a processor, for more than 95 % of the time
//! ```
//!
//! Invariants
//! 1. A phase is void for the generator's own faults only: a server that is slow, refuses or dies
//!    is a result.
//!
//! Not here: measuring the lag (`driver/`), exit codes (crate `dendra`).
//! See: docs/lab/run-json.md.

use crate::limits::{BUSY_SHARE_MAX, MISSED_SHARE_MAX};
use crate::run::{Generator, Mode, PhaseKind, PhaseResult, Run, SearchCourse, Second, Validity};

/// The verdict on one phase.
pub fn of(mode: Mode, sent: u64, generator: &Generator) -> Validity {
    let fault = |why: String| Validity::Invalid {
        reason: format!("the generator was the bottleneck: {why}"),
    };
    let missed_share = generator.missed as f64 / sent.max(1) as f64;
    if mode == Mode::Open && missed_share > MISSED_SHARE_MAX {
        let p99_ms = generator.send_lag.percentiles_us.get("p99").unwrap_or(&0.0) / 1000.0;
        return fault(format!(
            "{:.1} % of the requests left more than {} ms late (send lag p99 {p99_ms:.2} ms); \
             lower --rate, add --threads, or give it processors of its own",
            missed_share * 100.0,
            generator.send_lag_limit_us / 1000.0
        ));
    }
    if generator.busiest_share > BUSY_SHARE_MAX {
        return fault(format!(
            "a thread was busy or without a processor for {:.0} % of the time; \
             lower --rate, or add --threads and processors",
            generator.busiest_share.min(1.0) * 100.0
        ));
    }
    Validity::Valid
}

/// The verdict on a run: that of its worst phase among those that are measured. A step of a search
/// may be void, and is tried again; the search is void as a whole when it ended for the generator.
pub fn judge_run(phases: &[PhaseResult], search: Option<&SearchCourse>) -> Validity {
    if let Some(search) = search.filter(|search| search.generator_limit.is_some()) {
        return Validity::Invalid {
            reason: format!(
                "the generator was the bottleneck before the target was: {}",
                search.sentence
            ),
        };
    }
    let counts = |phase: &&PhaseResult| {
        matches!(
            phase.kind,
            PhaseKind::Measure | PhaseKind::Overload | PhaseKind::Recovery
        )
    };
    phases
        .iter()
        .filter(counts)
        .map(|phase| &phase.verdict)
        .find(|verdict| !verdict.is_valid())
        .cloned()
        .unwrap_or(Validity::Valid)
}

/// Did anything at all answer?
pub fn has_answers(run: &Run) -> bool {
    run.phases.iter().any(|phase| phase.counts.answered > 0)
}

fn is_measured(phase: &&PhaseResult) -> bool {
    !matches!(phase.kind, PhaseKind::Preload | PhaseKind::Warmup)
}

/// Was anything done as asked in the measured part of the run?
pub fn has_successes(run: &Run) -> bool {
    let mut measured = run.phases.iter().filter(is_measured);
    measured.any(|phase| phase.counts.ok > 0)
}

/// Was the target gone at the end of the run? Then requests found no connection to leave on, and no
/// answer came in the last second in which some were due, or after it. A search connects anew for
/// each step, and is cut when it finds no target.
pub fn went_away(run: &Run) -> bool {
    if run.search.is_some() {
        return false;
    }
    let Some(phase) = run.phases.iter().rfind(is_measured) else {
        return false;
    };
    let seconds = || phase.ops.iter().map(|op| op.seconds.iter().enumerate());
    let last = |is: fn(&Second) -> bool| {
        let of_op = seconds().map(|of_op| of_op.filter(|(_, s)| is(s)).map(|(at, _)| at).max());
        of_op.max().flatten()
    };
    let last_answered = last(|s| s.ok + s.refused + s.failed > 0);
    phase.counts.unsent > 0 && last_answered < last(|second| second.planned > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_ended_for_the_generator_is_void_and_one_void_step_is_not() {
        let mut search = SearchCourse {
            slo: "p99<1ms".to_owned(),
            steps: Vec::new(),
            knee_low: 1000.0,
            knee_high: None,
            generator_limit: None,
            sentence: "1000/s hold p99<1ms".to_owned(),
        };
        assert_eq!(judge_run(&[], Some(&search)), Validity::Valid);
        search.generator_limit = Some(2000.0);
        let sentence = judge_run(&[], Some(&search)).to_string();
        assert!(
            sentence.starts_with("invalid: the generator was the bottleneck")
                && sentence.contains("1000/s hold"),
            "{sentence}"
        );
    }

    #[test]
    fn lateness_and_saturation_void_a_phase_and_nothing_else_does() {
        let calm = Generator {
            missed: 10,
            busiest_share: 0.5,
            ..Generator::default()
        };
        assert_eq!(of(Mode::Open, 1000, &calm), Validity::Valid);
        let late = Generator {
            missed: 11,
            ..calm.clone()
        };
        let verdict = of(Mode::Open, 1000, &late);
        let sentence = verdict.to_string();
        assert!(
            sentence.starts_with("invalid: the generator was the bottleneck"),
            "{sentence}"
        );
        // A closed loop has no plan to be late for.
        assert_eq!(of(Mode::Closed, 1000, &late), Validity::Valid);
        let saturated = Generator {
            busiest_share: 0.96,
            ..calm
        };
        assert!(!of(Mode::Closed, 1000, &saturated).is_valid());
    }
}
