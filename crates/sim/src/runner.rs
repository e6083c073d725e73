//! Seeds, one after the other: runs, failures, and the text that repeats one.
//!
//! Invariants
//! 1. A panic of a heart is a violation of its seed, not the end of the search.
//! 2. The text of a failure repeats it: seed, and planted bug if there was one.
//!
//! Not here: options of the command line (`main.rs`).

use crate::check::linear::Searches;
use crate::check::{Rule, Violation};
use crate::door::DoorCounts;
use crate::draws::SeedWorld;
use crate::members::{MemberPlan, run_members};
use crate::plan::RunPlan;
use crate::planted::ShellBug;
use crate::real::nodes;
use crate::shrink::shrink;
use crate::trace::Tracing;
use crate::world::{RunReport, RunSetup, run};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A seed that breaks a promise.
#[derive(Debug)]
pub struct FailingSeed {
    /// Which.
    pub seed: u64,
    /// The first broken promise.
    pub violation: Violation,
    /// By which of its worlds.
    pub world: SeedWorld,
}

/// One of so many seeds runs a cluster with members that change, too.
pub const CHANGING_SEEDS: u64 = 2;

/// Runs a plan on the real node.
pub fn run_plan(plan: &RunPlan, bug: Option<ShellBug>, tracing: Tracing) -> RunReport {
    let setup = RunSetup {
        make_deciders: nodes,
        bug,
        tracing,
    };
    let ran = catch_unwind(AssertUnwindSafe(|| run(plan, setup)));
    ran.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        RunReport {
            history: Vec::new(),
            violations: vec![Violation::new(
                Rule::Panic,
                text.unwrap_or("a panic without words"),
            )],
            searches: Searches::default(),
            happenings: 0,
            plans: (0, 0),
            risen: 0,
            raised: 0,
            losses: (0, 0),
            purges: false,
            narrows: false,
            compared_bytes: 0,
            doors: DoorCounts::default(),
            unanswered_us: 0,
            useful_percent: None,
            hash: 0,
        }
    })
}

/// Runs the membership of one seed: the rule that it broke, if any.
pub fn run_membership(seed: u64, tracing: Tracing) -> Option<Violation> {
    let plan = MemberPlan::draw(seed);
    let ran = catch_unwind(AssertUnwindSafe(|| run_members(&plan, tracing)));
    match ran {
        Ok(ran) => ran.violations.into_iter().next(),
        Err(_) => Some(Violation::new(
            Rule::Membership,
            "the machine panicked in the world of members",
        )),
    }
}

/// The result of one seed.
#[derive(Debug)]
pub struct SeedResult {
    /// The rule that it broke, if any.
    pub failure: Option<FailingSeed>,
    /// How thoroughly that was looked for.
    pub searches: Searches,
}

/// Runs one seed.
pub fn run_seed(seed: u64, bug: Option<ShellBug>) -> SeedResult {
    let plan = RunPlan::draw(seed);
    let report = run_plan(&plan, bug, Tracing::Off);
    let mut searches = report.searches;
    let first = report.violations.into_iter().next();
    let first = first.or_else(|| run_membership(seed, Tracing::Off));
    let failure = first.map(|violation| FailingSeed {
        seed,
        violation,
        world: SeedWorld::Fixed,
    });
    // Bugs of the shell are planted in the world of fixed members alone.
    let failure = failure.or_else(|| {
        let is_next = seed.is_multiple_of(CHANGING_SEEDS) && bug.is_none();
        let report =
            is_next.then(|| run_plan(&SeedWorld::Changing.plan(seed), None, Tracing::Off))?;
        searches.add(report.searches);
        let violation = report.violations.into_iter().next()?;
        let world = SeedWorld::Changing;
        Some(FailingSeed {
            seed,
            violation,
            world,
        })
    });
    SeedResult { failure, searches }
}

/// Makes the plan of a failed seed small.
pub fn shrink_seed(failure: &FailingSeed, bug: Option<ShellBug>) -> (RunPlan, u32) {
    let plan = failure.world.plan(failure.seed);
    shrink(&plan, failure.violation.rule, |plan| {
        let report = run_plan(plan, bug, Tracing::Off);
        report.violations.first().map(|violation| violation.rule)
    })
}

/// The command that repeats a seed.
pub fn command(seed: u64) -> String {
    format!("cargo run --package dendra-sim -- --seed {seed} --trace")
}
