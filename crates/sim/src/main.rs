//! The simulator's own command line: one seed with everything it says, or seeds without end.
//!
//! ```text
//! --seed N             one seed; a failure is shrunk and shown
//! --trace              every event and effect of it, as lines
//! --seeds N            that many, from --from N on
//! --minutes N          as many as fit; 0 = until Ctrl-C
//! --threads N          at once; the cores of the machine if not said
//! --changing           in clusters whose members change alone: all failures, each in a line
//! --forgetting         the same of clusters whose horizons rise
//! --rotten             the same, and blocks rot at two or three members at one time
//! --more-copies        the same, of records with more copies than the replication factor
//! --lowered            the same, and the factor falls
//! --lowered-lost       the same, and a disk is lost behind it
//! --losses             the same, and an operator accepts what a lost member and damage have taken
//! --restored           the same of clusters whose least successor number rises
//! --looking            the same of clusters in which an operator looks for copies that differ
//! --expiring           the same of clusters in which values end while one member's clock is wrong
//! --lagging            the same of clusters in which a member is away while others change
//! --overloaded         the same of clusters in front of which crowds stand
//! --soak-deletes N     so many deletes and creations in one cluster, with members away for months
//! --changes N          one long run with so many changes of the members; --members N founders
//! ```
//!
//! Invariants
//! 1. Exit 0: every promise held. 1: one was broken, and its seed and command were printed; or too
//!    many histories were too long for the search to decide. 2: the options make no sense.
//!
//! Not here: the parts of a run (`world/`).

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

use dendra_ownership::limits::MEMBERS_MAX;
use dendra_sim::check::Rule;
use dendra_sim::check::linear::Searches;
use dendra_sim::draws::SeedWorld;
use dendra_sim::members::MemberPlan;
use dendra_sim::plan::RunPlan;
use dendra_sim::runner::{FailingSeed, run_membership, run_plan, run_seed, shrink_seed};
use dendra_sim::trace::Tracing;
use dendra_sim::world::RunSums;
use dendra_sim::world::seasons::{DeletesReport, SeasonSize, SoakEnd, soak_deletes};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: dendra-sim [--WORLD] [--seeds N] [--minutes N] [--from N] [--threads N]
       dendra-sim [--WORLD] --seed N [--trace]
       dendra-sim --changes N [--members N] [--seed N]
       dendra-sim --soak-deletes N [--seed N] [--minutes N]
WORLD: changing, forgetting, rotten, more-copies, lowered, lowered-lost, losses, restored, looking,
       expiring, lagging, overloaded; the usual search without it
";

/// Histories of a long run of which at most one is too long to decide.
const UNDECIDED_ONE_OF: u64 = 10;
/// How often a search says how far it is.
const PROGRESS: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct SeedOptions {
    seed: Option<u64>,
    is_traced: bool,
    seeds: Option<u64>,
    minutes: Option<u64>,
    from: Option<u64>,
    threads: Option<u64>,
    /// `None` = those of the usual search.
    world: Option<SeedWorld>,
    changes: Option<u64>,
    /// So many deletes and creations.
    deletes: Option<u64>,
    members: Option<u64>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<SeedOptions> {
    let mut wanted = SeedOptions::default();
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next()?.parse().ok();
        match argument.strip_prefix("--")? {
            "trace" => wanted.is_traced = true,
            "seed" => wanted.seed = Some(number()?),
            "seeds" => wanted.seeds = Some(number()?),
            "minutes" => wanted.minutes = Some(number()?),
            "soak-deletes" => wanted.deletes = Some(number()?),
            "changes" => wanted.changes = Some(number()?),
            "members" => wanted.members = Some(number()?.clamp(3, MEMBERS_MAX as u64)),
            "from" => wanted.from = Some(number()?),
            "threads" => wanted.threads = Some(number()?.max(1)),
            name => {
                let mut named = SeedWorld::NAMED.into_iter();
                let (_, world) = named.find(|(named, _)| *named == name)?;
                wanted.world = Some(world);
            }
        }
    }
    Some(wanted)
}

fn main() -> ExitCode {
    let Some(wanted) = parse(std::env::args().skip(1)) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let held = match (wanted.changes, wanted.seed) {
        _ if wanted.deletes.is_some() => soak_of_deletes(&wanted),
        (Some(changes), seed) => {
            let members = wanted.members.unwrap_or(5);
            long(seed.unwrap_or(1), members as usize, changes as usize)
        }
        (None, Some(seed)) => one(&wanted, seed),
        (None, None) => many(&wanted),
    };
    if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// One long run in which the members change all the time.
fn long(seed: u64, members: usize, changes: usize) -> bool {
    let plan = RunPlan::draw_soak(seed, members, changes);
    let started = Instant::now();
    let report = run_plan(&plan, None, Tracing::Off);
    let (begun, ended) = report.sums.plans;
    println!(
        "seed {seed}, {members} founders, {changes} deeds: {begun} plans begun, {ended} ended, \
         {} operations, {} done, {} happenings, {} of {} histories undecided, {:.0} s",
        report.history.len(),
        report.history.iter().filter(|op| op.is_done()).count(),
        report.sums.happenings,
        report.sums.searches.undecided,
        report.sums.searches.keys,
        started.elapsed().as_secs_f64()
    );
    for violation in &report.violations {
        println!("{violation}");
    }
    // Histories are long, and have writes of unknown outcome that stay open to the end.
    let Searches { keys, undecided } = report.sums.searches;
    report.violations.is_empty() && undecided * UNDECIDED_ONE_OF <= keys
}

/// One cluster for simulated years, in which keys are created and deleted.
fn soak_of_deletes(wanted: &SeedOptions) -> bool {
    let seed = wanted.seed.unwrap_or(1);
    let plan = SeedWorld::Deletes.plan(seed);
    let started = Instant::now();
    let minutes = wanted.minutes.unwrap_or(0);
    let is_over = || minutes > 0 && started.elapsed() > Duration::from_secs(60 * minutes);
    let said = Mutex::new(started);
    let say = |report: &DeletesReport| {
        println!("{:.0} s: {report:?}", started.elapsed().as_secs_f64());
    };
    let tell = |report: &DeletesReport| {
        let mut said = said.lock().expect("no holder panics");
        if said.elapsed() > PROGRESS {
            *said = Instant::now();
            say(report);
        }
    };
    println!("seed {seed}: {:?}", plan.shape);
    let report = soak_deletes(
        &plan,
        &SoakEnd {
            size: SeasonSize::LARGE,
            writes: wanted.deletes.unwrap_or(0),
            is_over: &is_over,
            tell: &tell,
        },
    );
    say(&report);
    let writes = report.writes();
    println!("seed {seed}: {writes} deletes and creations");
    match report.violation {
        Some(violation) => println!("FAILED in season {}: {violation}", report.seasons + 1),
        None => return report.searches.are_enough(),
    }
    false
}

/// One seed, with all it has to say.
fn one(wanted: &SeedOptions, seed: u64) -> bool {
    let tracing = if wanted.is_traced {
        Tracing::Printed
    } else {
        Tracing::Hashed
    };
    let usual = vec![SeedWorld::Fixed, SeedWorld::Changing];
    for world in wanted.world.map_or(usual, |world| vec![world]) {
        let plan = world.plan(seed);
        let RunPlan {
            shape,
            faults,
            changes,
            ..
        } = &plan;
        println!("{shape:#?}\n{changes:#?}\n{faults:#?}");
        let report = run_plan(&plan, None, tracing);
        let (hash, sums) = (report.hash, report.sums);
        println!("seed {seed}, {world:?}: trace {hash:016x}\n{sums}");
        if world == SeedWorld::Overloaded {
            println!(
                "a lone client got nothing for {} us, useful {:?} %",
                report.unanswered_us, report.useful_percent
            );
        }
        let violation = match report.violations.into_iter().next() {
            None if world == SeedWorld::Fixed => run_membership(seed, tracing),
            first => first,
        };
        if let Some(violation) = violation {
            println!("{violation}");
            show_small(&FailingSeed {
                seed,
                violation,
                world,
            });
            return false;
        }
    }
    println!("every promise held");
    true
}

/// The smallest plan that fails in the same way, and its run.
fn show_small(failure: &FailingSeed) {
    if failure.violation.rule == Rule::Membership {
        println!("{:#?}", MemberPlan::draw(failure.seed));
        return;
    }
    let (small, runs) = shrink_seed(failure, None);
    println!(
        "\nshrunk in {runs} runs to {} operations and {} faults on {} members:\n{small:#?}",
        small.operations(),
        small.faults.len(),
        small.shape.members
    );
    let report = run_plan(&small, None, Tracing::Printed);
    for violation in report.violations {
        println!("{violation}");
    }
}

/// The first seed when none is named: another one for every run, printed so that it can be named.
fn fresh() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs()) << 24
}

/// Seeds, several at once. The usual search ends with the first that fails and makes it small; that
/// of one world says each failure in a line.
fn many(wanted: &SeedOptions) -> bool {
    let is_usual = wanted.world.is_none();
    let (from, count) = if is_usual { (fresh(), 1_000) } else { (0, 100) };
    let from = wanted.from.unwrap_or(from);
    let count = wanted.seeds.unwrap_or(match wanted.minutes {
        Some(_) => u64::MAX - from,
        None => count,
    });
    let ends = wanted.minutes.filter(|&minutes| minutes > 0);
    let ends = ends.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let threads = wanted.threads.unwrap_or(cores);
    println!("seeds from {from} on, {threads} at once");

    let started = Instant::now();
    let next = AtomicU64::new(0);
    let found = Mutex::new(SearchState {
        done: 0,
        sums: RunSums::default(),
        failures: Vec::new(),
        said: started,
    });
    let search = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let is_over = ends.is_some_and(|ends| Instant::now() > ends);
            if number >= count || is_over {
                return;
            }
            let ran = run_seed(from + number, wanted.world, None);
            let mut found = found.lock().expect("no holder panics");
            if is_usual && !found.failures.is_empty() {
                return;
            }
            found.done += 1;
            found.sums.add(ran.sums);
            if let Some(failure) = ran.failure {
                println!("seed {}: {}", failure.seed, failure.violation);
                found.failures.push(failure);
            }
            if found.said.elapsed() > PROGRESS {
                found.said = Instant::now();
                println!("{}", progress(found.done, started));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(search);
        }
    });
    let found = found.into_inner().expect("no holder panics");
    println!("{}\n{}", progress(found.done, started), found.sums);
    let Some(failure) = found.failures.first() else {
        return found.sums.searches.are_enough();
    };
    if is_usual {
        show_small(failure);
    }
    let (seed, others) = (failure.seed, found.failures.len() - 1);
    println!("\nFAILED: seed {seed}: {}", failure.violation);
    println!("{others} other seeds failed");
    println!("repeat it with: {}", failure.command());
    false
}

/// The state of a search through seeds.
struct SearchState {
    done: u64,
    sums: RunSums,
    failures: Vec<FailingSeed>,
    /// When it last said how far it is.
    said: Instant,
}

fn progress(done: u64, started: Instant) -> String {
    let seconds = started.elapsed().as_secs_f64();
    format!(
        "{done} seeds in {seconds:.0} s, {:.0} a second",
        done as f64 / seconds
    )
}
