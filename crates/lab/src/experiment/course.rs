//! A line about each phase of an overload, as soon as it is over.
//!
//! Not here: the phases (`overload.rs`), their records (`run/`).

use crate::run::PhaseKind;
use std::collections::VecDeque;

/// Tells how each phase of an overload went, as soon as it is over. It has the totals of all
/// threads, as they are shown while a drive runs, so within a tick of about 100 ms.
pub(super) struct PhaseNews {
    /// Name and end, from the next one on.
    ends: VecDeque<(String, f64)>,
    begun_s: f64,
    before: [u64; 3],
}

impl PhaseNews {
    /// News of a drive with these phases; others than those of an overload are not told about.
    pub(super) fn new(ends_ns: Vec<u64>, names: &[(String, PhaseKind)]) -> PhaseNews {
        let is_told = |kind: PhaseKind| matches!(kind, PhaseKind::Overload | PhaseKind::Recovery);
        let ends = names
            .iter()
            .zip(ends_ns)
            .filter(|((_, kind), _)| is_told(*kind))
            .map(|((name, _), ns)| (name.clone(), ns as f64 / 1e9));
        PhaseNews {
            ends: ends.collect(),
            begun_s: 0.0,
            before: [0; 3],
        }
    }

    /// A line about the phase that ended, if one did since the last look: planned, answered, errors
    /// so far.
    pub(super) fn passed(&mut self, at_s: f64, now: [u64; 3]) -> Option<String> {
        let (name, _) = self.ends.pop_front_if(|(_, end_s)| at_s >= *end_s)?;
        let length_s = (at_s - self.begun_s).max(1e-9);
        let rate = |i: usize| now[i].saturating_sub(self.before[i]) as f64 / length_s;
        let line = format!(
            "{name}: {:.0}/s planned, {:.0}/s answered, {:.0}/s refused or lost",
            rate(0),
            rate(1),
            rate(2)
        );
        (self.begun_s, self.before) = (at_s, now);
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_of_an_overload_has_its_line_when_it_is_over() {
        let names = [
            ("warm-up".to_owned(), PhaseKind::Warmup),
            ("overload calm".to_owned(), PhaseKind::Overload),
            ("after 2x".to_owned(), PhaseKind::Recovery),
        ];
        let second = 1_000_000_000;
        let mut course = PhaseNews::new(vec![second, 2 * second, 3 * second], &names);
        assert_eq!(course.passed(1.9, [100, 100, 0]), None);
        let line = course.passed(2.0, [200, 150, 50]).expect("the calm ended");
        assert!(line.starts_with("overload calm: 100/s planned, 75/s answered, 25/s"));
        assert_eq!(course.passed(2.5, [300, 200, 100]), None);
        let line = course
            .passed(3.0, [400, 250, 150])
            .expect("it was the last");
        assert!(line.starts_with("after 2x: 200/s planned, 100/s answered, 100/s"));
        assert_eq!(course.passed(9.0, [400, 250, 150]), None);
    }
}
