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
use std::fmt;
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

/// Sums of runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunSums {
    /// Operations of clients.
    pub operations: u64,
    /// Happenings, as a measure of work.
    pub happenings: u64,
    /// Plans that changed the members, and ended.
    pub plans: u64,
    /// Horizons rose so many times.
    pub risen: u64,
    /// Orders that accepted a loss, and keys of which something told may be gone.
    pub losses: (u64, u64),
    /// What stood in front of loops, and the outcome of that.
    pub doors: DoorCounts,
    /// How thoroughly a broken promise was looked for.
    pub searches: Searches,
}

impl RunSums {
    /// Adds a run.
    pub fn add(&mut self, report: &RunReport) {
        self.add_all(RunSums {
            operations: report.history.len() as u64,
            happenings: report.happenings,
            plans: report.plans.1,
            risen: report.risen,
            losses: report.losses,
            doors: report.doors,
            searches: report.searches,
        });
    }

    /// Adds other runs.
    pub fn add_all(&mut self, other: RunSums) {
        self.operations += other.operations;
        self.happenings += other.happenings;
        self.plans += other.plans;
        self.risen += other.risen;
        self.losses.0 += other.losses.0;
        self.losses.1 += other.losses.1;
        self.doors.add(other.doors);
        self.searches.add(other.searches);
    }
}

impl fmt::Display for RunSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Searches { keys, undecided } = self.searches;
        writeln!(
            f,
            "{} operations, {} happenings, {} plans ended, horizons rose {} times",
            self.operations, self.happenings, self.plans, self.risen
        )?;
        if self.losses.0 > 0 {
            let (orders, gone) = self.losses;
            writeln!(
                f,
                "{orders} losses accepted, of {gone} keys something told may be gone"
            )?;
        }
        if self.doors != DoorCounts::default() {
            writeln!(f, "{:?}", self.doors)?;
        }
        write!(f, "{undecided} of {keys} histories were too long to decide")
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
        sums.add(&report);
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
