//! Seeds, one after the other: runs, failures, and the text that repeats one.
//!
//! Invariants
//! 1. A panic of a heart is a violation of its seed, not the end of the search.
//! 2. The text of a failure repeats it: seed, and planted bug if there was one.
//!
//! Not here: options of the command line (`main.rs`).

use crate::check::{Rule, Violation};
use crate::draws::SeedWorld;
use crate::members::{MemberPlan, run_members};
use crate::plan::RunPlan;
use crate::planted::ShellBug;
use crate::real::nodes;
use crate::shrink::shrink;
use crate::trace::Tracing;
use crate::world::{RunReport, RunSetup, RunSums, run};
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
        let text = text.unwrap_or("a panic without words");
        RunReport {
            violations: vec![Violation::new(Rule::Panic, text)],
            ..RunReport::default()
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
    /// Sums of its runs.
    pub sums: RunSums,
}

/// Runs one seed in one of its worlds; `None` = in those of the usual search.
pub fn run_seed(seed: u64, world: Option<SeedWorld>, bug: Option<ShellBug>) -> SeedResult {
    // Bugs of the shell are planted in the world of fixed members alone.
    let changes = seed.is_multiple_of(CHANGING_SEEDS) && bug.is_none();
    let worlds = match world {
        Some(world) => vec![world],
        None if changes => vec![SeedWorld::Fixed, SeedWorld::Changing],
        None => vec![SeedWorld::Fixed],
    };
    let mut sums = RunSums::default();
    let failure = worlds.into_iter().find_map(|of| {
        let report = run_plan(&of.plan(seed), bug, Tracing::Off);
        sums.add(report.sums);
        let first = report.violations.into_iter().next();
        let has_members = world.is_none() && of == SeedWorld::Fixed;
        let violation = match first {
            None if has_members => run_membership(seed, Tracing::Off),
            first => first,
        };
        violation.map(|violation| FailingSeed {
            seed,
            violation,
            world: of,
        })
    });
    SeedResult { failure, sums }
}

/// Makes the plan of a failed seed small.
pub fn shrink_seed(failure: &FailingSeed, bug: Option<ShellBug>) -> (RunPlan, u32) {
    let plan = failure.world.plan(failure.seed);
    shrink(&plan, failure.violation.rule, |plan| {
        let report = run_plan(plan, bug, Tracing::Off);
        report.violations.first().map(|violation| violation.rule)
    })
}

impl FailingSeed {
    /// The command that repeats it.
    pub fn command(&self) -> String {
        let named = SeedWorld::NAMED
            .into_iter()
            .find(|(_, world)| *world == self.world);
        let world = named.map_or(String::new(), |(name, _)| format!("--{name} "));
        let seed = self.seed;
        format!("cargo run --package dendra-sim -- {world}--seed {seed} --trace")
    }
}
