//! The simulator's own command line: one seed with everything it says, or seeds without end.
//!
//! ```text
//! --seed N             one seed; a failure is shrunk and shown
//! --trace              every event and effect of it, as lines
//! --seeds N            that many, from --from N on
//! --minutes N          as many as fit; 0 = until Ctrl-C
//! --threads N          at once; the cores of the machine if not said
//! --changing           clusters whose members change alone: all failures of --seeds, each in a line
//! --forgetting         the same of clusters whose horizons rise; with --seed that one
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

use dendra_node::limits::MEMBERS_MAX;
use dendra_sim::check::linear::Searches;
use dendra_sim::check::{Rule, Violation};
use dendra_sim::door::DoorCounts;
use dendra_sim::draws::SeedWorld;
use dendra_sim::members::MemberPlan;
use dendra_sim::plan::RunPlan;
use dendra_sim::runner::{FailingSeed, command, run_membership, run_plan, run_seed, shrink_seed};
use dendra_sim::trace::Tracing;
use dendra_sim::world::seasons::{DeletesReport, SeasonSize, SoakEnd, soak_deletes};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: dendra-sim [--seed N [--trace]] [--seeds N] [--minutes N] [--from N] [--threads N]
       dendra-sim --changing [--seeds N] [--from N] [--threads N]
       dendra-sim --forgetting | --rotten | --more-copies | --lowered | --lowered-lost | --losses | --restored | --looking | --expiring | --lagging | --overloaded [--seeds N] [--from N] [--threads N]
       dendra-sim --changes N [--members N] [--seed N]
       dendra-sim --soak-deletes N [--seed N] [--minutes N]
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
    is_changing: bool,
    /// In which world with horizons.
    forgets: Option<SeedWorld>,
    changes: Option<u64>,
    /// So many deletes and creations.
    deletes: Option<u64>,
    members: Option<u64>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<SeedOptions> {
    let mut wanted = SeedOptions::default();
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next()?.parse().ok();
        match argument.as_str() {
            "--trace" => wanted.is_traced = true,
            "--seed" => wanted.seed = Some(number()?),
            "--seeds" => wanted.seeds = Some(number()?),
            "--minutes" => wanted.minutes = Some(number()?),
            "--changing" => wanted.is_changing = true,
            "--forgetting" => wanted.forgets = Some(SeedWorld::Forgetting),
            "--rotten" => wanted.forgets = Some(SeedWorld::Rotten),
            "--more-copies" => wanted.forgets = Some(SeedWorld::MoreCopies),
            "--lowered" => wanted.forgets = Some(SeedWorld::Lowered),
            "--lowered-lost" => wanted.forgets = Some(SeedWorld::LoweredLost),
            "--losses" => wanted.forgets = Some(SeedWorld::Losses),
            "--restored" => wanted.forgets = Some(SeedWorld::Restored),
            "--looking" => wanted.forgets = Some(SeedWorld::Looking),
            "--expiring" => wanted.forgets = Some(SeedWorld::Expiring),
            "--lagging" => wanted.forgets = Some(SeedWorld::Lagging),
            "--overloaded" => wanted.forgets = Some(SeedWorld::Overloaded),
            "--soak-deletes" => wanted.deletes = Some(number()?),
            "--changes" => wanted.changes = Some(number()?),
            "--members" => wanted.members = Some(number()?.clamp(3, MEMBERS_MAX as u64)),
            "--from" => wanted.from = Some(number()?),
            "--threads" => wanted.threads = Some(number()?.max(1)),
            _ => return None,
        }
    }
    Some(wanted)
}

fn main() -> ExitCode {
    let Some(wanted) = parse(std::env::args().skip(1)) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let held = match (wanted.changes, wanted.seed, wanted.forgets) {
        _ if wanted.deletes.is_some() => soak_of_deletes(&wanted),
        (Some(changes), seed, _) => {
            let members = wanted.members.unwrap_or(5);
            long(seed.unwrap_or(1), members as usize, changes as usize)
        }
        (None, Some(seed), Some(world)) => one_forgetting(world, seed, wanted.is_traced),
        (None, Some(seed), None) => one(seed, wanted.is_traced),
        (None, None, _) if wanted.is_changing => all_of(&wanted, SeedWorld::Changing),
        (None, None, Some(world)) => all_of(&wanted, world),
        (None, None, None) => many(&wanted),
    };
    if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// One cluster with rising horizons.
fn one_forgetting(world: SeedWorld, seed: u64, is_traced: bool) -> bool {
    let tracing = if is_traced {
        Tracing::Printed
    } else {
        Tracing::Off
    };
    let report = run_plan(&world.plan(seed), None, tracing);
    println!(
        "{} happenings, horizons rose {} times",
        report.happenings, report.risen
    );
    if world == SeedWorld::Losses {
        let (orders, keys) = report.losses;
        println!("{orders} losses accepted, of {keys} keys something told may be gone");
    }
    if world == SeedWorld::Overloaded {
        println!(
            "{} operations, {:?}, a lone client got nothing for {} us, useful {:?} %",
            report.history.len(),
            report.doors,
            report.unanswered_us,
            report.useful_percent
        );
    }
    for violation in &report.violations {
        println!("seed {seed}: {violation}");
    }
    report.violations.is_empty()
}

/// Clusters of one world, one after the other: every failure in a line.
fn all_of(wanted: &SeedOptions, world: SeedWorld) -> bool {
    let (from, count) = (wanted.from.unwrap_or(0), wanted.seeds.unwrap_or(100));
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let started = Instant::now();
    let (plans, risen) = (AtomicU64::new(0), AtomicU64::new(0));
    let (orders, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let doors = Mutex::new((0, DoorCounts::default()));
    std::thread::scope(|scope| {
        for _ in 0..wanted.threads.unwrap_or(2) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let seed = from + number;
                    let report = run_plan(&world.plan(seed), None, Tracing::Off);
                    risen.fetch_add(report.risen, Ordering::Relaxed);
                    plans.fetch_add(report.plans.1, Ordering::Relaxed);
                    orders.fetch_add(report.losses.0, Ordering::Relaxed);
                    taken.fetch_add(report.losses.1, Ordering::Relaxed);
                    let mut sums = doors.lock().expect("no holder panics");
                    sums.0 += report.history.len();
                    sums.1.add(report.doors);
                    drop(sums);
                    if let Some(first) = report.violations.first() {
                        failed.fetch_add(1, Ordering::Relaxed);
                        println!("seed {seed}: {first}");
                    }
                }
            });
        }
    });
    println!("{}", progress(count, started));
    let (failed, plans) = (failed.into_inner(), plans.into_inner());
    let risen = risen.into_inner();
    if world == SeedWorld::Losses {
        let (orders, keys) = (orders.into_inner(), taken.into_inner());
        println!("{orders} losses accepted, of {keys} keys something told may be gone");
    }
    if world == SeedWorld::Overloaded {
        let (operations, doors) = doors.into_inner().expect("no holder panics");
        println!("{failed} failed, {operations} operations, {doors:?}");
        return failed == 0;
    }
    println!("{failed} failed, {plans} plans ended, horizons rose {risen} times");
    failed == 0
}

/// One long run in which the members change all the time.
fn long(seed: u64, members: usize, changes: usize) -> bool {
    let plan = RunPlan::draw_soak(seed, members, changes);
    let started = Instant::now();
    let report = run_plan(&plan, None, Tracing::Off);
    let (begun, ended) = report.plans;
    println!(
        "seed {seed}, {members} founders, {changes} deeds: {begun} plans begun, {ended} ended, \
         {} operations, {} done, {} happenings, {} of {} histories undecided, {:.0} s",
        report.history.len(),
        report.history.iter().filter(|op| op.is_done()).count(),
        report.happenings,
        report.searches.undecided,
        report.searches.keys,
        started.elapsed().as_secs_f64()
    );
    for violation in &report.violations {
        println!("{violation}");
    }
    // Histories are long, and have writes of unknown outcome that stay open to the end.
    let Searches { keys, undecided } = report.searches;
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
fn one(seed: u64, is_traced: bool) -> bool {
    let tracing = if is_traced {
        Tracing::Printed
    } else {
        Tracing::Hashed
    };
    let plan = RunPlan::draw(seed);
    println!(
        "{:#?}\n{} operations, faults {:#?}",
        plan.shape,
        plan.operations(),
        plan.faults
    );
    let report = run_plan(&plan, None, tracing);
    println!(
        "seed {seed}: {} operations, {} happenings, trace {:016x}",
        report.history.len(),
        report.happenings,
        report.hash
    );
    let first = report.violations.into_iter().next();
    let mut world = SeedWorld::Fixed;
    let first = first.or_else(|| run_membership(seed, tracing));
    let first = first.or_else(|| {
        world = SeedWorld::Changing;
        changing(seed, tracing)
    });
    let Some(violation) = first else {
        println!("every promise held");
        return true;
    };
    println!("{violation}");
    show_small(&FailingSeed {
        seed,
        violation,
        world,
    });
    false
}

/// The seed's cluster with members that change, also if the usual run of the seed has none.
fn changing(seed: u64, tracing: Tracing) -> Option<Violation> {
    let plan = SeedWorld::Changing.plan(seed);
    println!("{:#?}\n{:#?}\n{:#?}", plan.shape, plan.changes, plan.faults);
    let report = run_plan(&plan, None, tracing);
    println!(
        "seed {seed}, changing: {} operations, {} happenings, trace {:016x}",
        report.history.len(),
        report.happenings,
        report.hash
    );
    report.violations.into_iter().next()
}

/// The smallest plan that fails in the same way, and its run.
fn show_small(failure: &FailingSeed) {
    if failure.violation.rule == Rule::Membership {
        println!("{:#?}", MemberPlan::draw(failure.seed));
        return;
    }
    let (small, runs) = shrink_seed(failure, None);
    println!(
        "\nshrunk in {runs} runs to {} operations and {} faults on {} members:\n{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}",
        small.operations(),
        small.faults.len(),
        small.shape.members,
        small.shape,
        small.faults,
        small.clients,
        small.scans,
        small.changes
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

fn many(wanted: &SeedOptions) -> bool {
    let from = wanted.from.unwrap_or_else(fresh);
    let count = wanted.seeds.unwrap_or(match wanted.minutes {
        Some(_) => u64::MAX - from,
        None => 1_000,
    });
    let ends = wanted.minutes.filter(|&minutes| minutes > 0);
    let ends = ends.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let threads = wanted.threads.unwrap_or(cores);
    println!("seeds from {from} on, {threads} at once");

    let started = Instant::now();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let has_failed = AtomicBool::new(false);
    let failure: Mutex<Option<FailingSeed>> = Mutex::new(None);
    let said = Mutex::new(Instant::now());
    let searches = Mutex::new(Searches::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let is_over = ends.is_some_and(|ends| Instant::now() > ends);
                    if number >= count || is_over || has_failed.load(Ordering::Relaxed) {
                        return;
                    }
                    let ran = run_seed(from + number, None);
                    searches.lock().expect("no holder panics").add(ran.searches);
                    if let Some(found) = ran.failure {
                        has_failed.store(true, Ordering::Relaxed);
                        failure
                            .lock()
                            .expect("no holder panics")
                            .get_or_insert(found);
                    }
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    let mut said = said.lock().expect("no holder panics");
                    if said.elapsed() > PROGRESS {
                        *said = Instant::now();
                        println!("{}", progress(done, started));
                    }
                }
            });
        }
    });
    println!("{}", progress(done.into_inner(), started));
    let failure = failure.into_inner().expect("no holder panics");
    let searches = searches.into_inner().expect("no holder panics");
    let Searches { keys, undecided } = searches;
    println!("{undecided} of {keys} histories were too long to decide");
    let Some(failure) = failure else {
        return searches.are_enough();
    };
    println!("\nFAILED: seed {}: {}", failure.seed, failure.violation);
    println!("repeat it with: {}", command(failure.seed));
    show_small(&failure);
    println!("\nFAILED: seed {}: {}", failure.seed, failure.violation);
    println!("repeat it with: {}", command(failure.seed));
    false
}

fn progress(done: u64, started: Instant) -> String {
    let seconds = started.elapsed().as_secs_f64();
    format!(
        "{done} seeds in {seconds:.0} s, {:.0} a second",
        done as f64 / seconds
    )
}
