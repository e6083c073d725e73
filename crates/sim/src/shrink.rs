//! Makes a failing plan small: without faults, then without operations, then without members that
//! are not needed.
//!
//! ```text
//! halves, quarters, … single ones are left out, as long as the same rule stays broken
//! ```
//!
//! Invariants
//! 1. The result breaks the same rule as the plan that was given.
//! 2. At most [`SHRINK_RUNS_MAX`] runs are made; the plan that is left then is the result.
//!
//! Not here: the rules (`check/`).
//! See: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.

use crate::check::Rule;
use crate::limits::SHRINK_RUNS_MAX;
use crate::plan::RunPlan;

/// The smallest plan that was found to fail as `plan` does, and how many runs that took.
pub fn shrink(
    plan: &RunPlan,
    rule: Rule,
    run: impl Fn(&RunPlan) -> Option<Rule>,
) -> (RunPlan, u32) {
    let mut search = Search {
        rule,
        run,
        runs: 0,
        best: plan.clone(),
    };
    loop {
        let before = search.size();
        for list in LISTS {
            search.thin(list);
        }
        search.simplify();
        if search.size() == before || search.runs >= SHRINK_RUNS_MAX {
            return (search.best, search.runs);
        }
    }
}

/// The length of a list of a plan, and what takes one element away.
type List = (fn(&RunPlan) -> usize, fn(&mut RunPlan, usize));

/// Lists that are thinned, in this order.
const LISTS: [List; 5] = [
    (
        |plan| plan.faults.len(),
        |plan, at| {
            plan.faults.remove(at);
        },
    ),
    (
        |plan| plan.changes.as_ref().map_or(0, |it| it.deeds.len()),
        |plan, at| {
            let changes = plan.changes.as_mut();
            changes.map(|it| it.deeds.remove(at));
        },
    ),
    (
        |plan| plan.overload.as_ref().map_or(0, |it| it.habits.len()),
        |plan, at| {
            let crowd = plan.overload.as_mut();
            crowd.map(|it| it.habits.remove(at));
        },
    ),
    (RunPlan::operations, remove_operation),
    (
        |plan| plan.scans.len(),
        |plan, at| {
            plan.scans.remove(at);
        },
    ),
];

struct Search<F> {
    rule: Rule,
    run: F,
    runs: u32,
    best: RunPlan,
}

impl<F: Fn(&RunPlan) -> Option<Rule>> Search<F> {
    fn size(&self) -> usize {
        let lists: usize = LISTS.iter().map(|(len, _)| len(&self.best)).sum();
        lists + self.best.shape.keys.len()
    }

    /// Takes `plan` when it fails in the same way.
    fn offer(&mut self, plan: RunPlan) -> bool {
        if self.runs >= SHRINK_RUNS_MAX {
            return false;
        }
        self.runs += 1;
        let is_same = (self.run)(&plan) == Some(self.rule);
        if is_same {
            self.best = plan;
        }
        is_same
    }

    /// Leaves out runs of elements, long ones first.
    fn thin(&mut self, (count, remove): List) {
        let mut piece = count(&self.best).div_ceil(2);
        while piece > 0 {
            let mut end = count(&self.best);
            while end > 0 {
                let start = end.saturating_sub(piece);
                let mut plan = self.best.clone();
                (start..end).rev().for_each(|at| remove(&mut plan, at));
                self.offer(plan);
                end = start;
            }
            piece /= 2;
        }
    }

    /// A calmer world: one property at a time.
    fn simplify(&mut self) {
        let simpler: [fn(&mut RunPlan); 11] = [
            |plan| plan.image = None,
            |plan| plan.wrong_clocks = None,
            |plan| {
                if let Some(wrong) = &mut plan.wrong_clocks {
                    (wrong.restarts, wrong.restarts_after) = (0, 0);
                }
            },
            |plan| plan.shape.loss_permille = 0,
            |plan| plan.shape.repeat_permille = 0,
            |plan| plan.shape.tail = (0, 1),
            |plan| plan.shape.skew_ms.fill(0),
            |plan| plan.shape.drift_ppm.fill(0),
            |plan| plan.shape.lanes = 1,
            |plan| plan.shape.read_us = 0,
            |plan| plan.clients.retain(|todo| !todo.is_empty()),
        ];
        for simplify in simpler {
            let mut plan = self.best.clone();
            simplify(&mut plan);
            if !plan.clients.is_empty() && format!("{plan:?}") != format!("{:?}", self.best) {
                self.offer(plan);
            }
        }
        self.drop_last_member();
    }

    fn drop_last_member(&mut self) {
        if self.best.shape.members > 2
            && let Some(plan) = self.best.without_last_member()
        {
            self.offer(plan);
        }
    }
}

fn remove_operation(plan: &mut RunPlan, mut at: usize) {
    for todo in &mut plan.clients {
        if at < todo.len() {
            todo.remove(at);
            return;
        }
        at -= todo.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::FaultKind;

    #[test]
    fn only_what_is_needed_stays() {
        let fails = |plan: &RunPlan| {
            let has_blackout = plan.faults.iter().any(|f| f.kind == FaultKind::Blackout);
            let deep = plan.clients.iter().flatten().filter(|p| p.key == 0).count();
            (has_blackout && deep >= 2).then_some(Rule::Lost)
        };
        let plan = (0..)
            .map(RunPlan::draw)
            .find(|plan| fails(plan).is_some() && plan.faults.len() > 4)
            .expect("seeds go on for ever");
        let (small, runs) = shrink(&plan, Rule::Lost, fails);
        assert_eq!(small.faults.len(), 1);
        assert_eq!(small.operations(), 2);
        assert!(runs < SHRINK_RUNS_MAX);
    }
}
