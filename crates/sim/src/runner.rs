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

/// The worlds of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedWorld {
    /// Members are the same from the beginning to the end.
    Fixed,
    /// Members come and go; one of [`CHANGING_SEEDS`] seeds has this one, too.
    Changing,
    /// Horizons rise.
    Forgetting,
    /// Horizons rise, and blocks rot at several members.
    Rotten,
    /// Horizons rise, and records have more copies than the replication factor.
    MoreCopies,
    /// Horizons rise, and the factor falls.
    Lowered,
    /// Horizons rise, the factor falls, and a disk is lost behind it.
    LoweredLost,
    /// A member is lost beside damage of another one, and an operator accepts that.
    Losses,
    /// Members come and go, and the least successor number rises.
    Restored,
    /// Members come and go, and an operator looks for copies that differ.
    Looking,
    /// Values end, and one member's clock is wrong, over its starts too.
    Expiring,
    /// One of them is away while others change, and comes back with an old epoch.
    Lagging,
    /// Crowds stand in front of members.
    Overloaded,
}

impl SeedWorld {
    /// The plan of a seed there.
    pub fn plan(self, seed: u64) -> RunPlan {
        match self {
            SeedWorld::Fixed => RunPlan::draw(seed),
            SeedWorld::Changing => RunPlan::draw_changing(seed),
            SeedWorld::Forgetting => RunPlan::draw_forgetting(seed),
            SeedWorld::Rotten => RunPlan::draw_rotten(seed),
            SeedWorld::MoreCopies => RunPlan::draw_more_copies(seed),
            SeedWorld::Lowered => RunPlan::draw_lowered(seed),
            SeedWorld::LoweredLost => RunPlan::draw_lowered_lost(seed),
            SeedWorld::Losses => RunPlan::draw_losses(seed),
            SeedWorld::Restored => RunPlan::draw_restored(seed),
            SeedWorld::Looking => RunPlan::draw_looking(seed),
            SeedWorld::Expiring => RunPlan::draw_expiring(seed),
            SeedWorld::Lagging => RunPlan::draw_lagging(seed),
            SeedWorld::Overloaded => RunPlan::draw_overloaded(seed),
        }
    }
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
            is_next.then(|| run_plan(&RunPlan::draw_changing(seed), None, Tracing::Off))?;
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
