//! Bugs that are planted one at a time: the simulator must find every one of them.
//!
//! A bug that is not found is a defect of the simulator. The table of seeds that it took is
//! printed, and docs/verification.md shows one.
#![cfg(feature = "planted")]

use dendra_node::planted::{Bug, plant};
use dendra_sim::check::Rule;
use dendra_sim::planted::ShellBug;
use dendra_sim::runner::run_seed;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
enum Planted {
    Shell(ShellBug),
    Node(Bug),
}

/// Seeds that are tried for one bug.
const SEEDS_MAX: u64 = 6_000;

/// Seeds that found a bug late: tried first, so that the test takes seconds. With
/// `PLANTED_FROM_ZERO` set they are not, and the table tells how many seeds a bug takes.
const KNOWN: [u64; 9] = [42, 48, 57, 88, 123, 134, 181, 218, 2397];

/// Too rare for thousands of seeds. The twin of crates/node, which runs thousands a second, shows
/// the first; the other one delays repair, breaks no promise where reads repair as well, and
/// changes a conversation there.
const ELSEWHERE: [Bug; 9] = [
    // Another rule refuses the same process: the scripts of crates/node show the difference.
    Bug::RolledBackLetIn,
    Bug::OtherNodeLetIn,
    // Work is done in vain.
    Bug::WithdrawnIsDone,
    // A value is sent in vain, or a write is unknown: no promise is broken.
    Bug::FullIsAsked,
    Bug::SparedForGood,
    Bug::ForgetAncestors,
    Bug::FinishLowerBallot,
    Bug::HintDroppedEarly,
    Bug::SameVersionIsSameCell,
];

#[derive(Debug)]
struct Found {
    bug: Planted,
    /// The seed, and the rule that it broke.
    by: Option<(u64, Rule)>,
    took: Duration,
}

fn find(bug: Planted) -> Found {
    let started = Instant::now();
    let shell = match bug {
        Planted::Shell(bug) => Some(bug),
        Planted::Node(bug) => {
            plant(Some(bug));
            None
        }
    };
    let known: &[u64] = match std::env::var_os("PLANTED_FROM_ZERO") {
        Some(_) => &[],
        None => &KNOWN,
    };
    // Most bugs are found at once; only then the late ones, and then one by one.
    let seeds = (0..32).chain(known.iter().copied()).chain(32..SEEDS_MAX);
    let by = seeds.into_iter().find_map(|seed| {
        let failure = run_seed(seed, shell).failure?;
        Some((seed, failure.violation.rule))
    });
    plant(None);
    let took = started.elapsed();
    Found { bug, by, took }
}

#[test]
fn what_finds_a_planted_bug_finds_nothing_without_one() {
    for seed in (0..100).chain(KNOWN) {
        let failure = run_seed(seed, None).failure;
        assert!(failure.is_none(), "{failure:?}");
    }
}

#[test]
fn every_planted_bug_is_found() {
    // A planted bug may end in a broken invariant: a panic is caught, and its words are not wanted.
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("PLANTED").ok();
    let is_wanted = |bug: &Planted| {
        only.as_ref()
            .is_none_or(|name| format!("{bug:?}").contains(name))
    };
    let shell = ShellBug::ALL.into_iter().map(Planted::Shell);
    let node = Bug::ALL.into_iter().filter(|bug| !ELSEWHERE.contains(bug));
    let node = node.map(Planted::Node);
    let bugs: Vec<Planted> = shell.chain(node).filter(is_wanted).collect();
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<Found>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(&bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = find(bug);
                    println!("{result:?}");
                    found.lock().expect("no holder panics").push(result);
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    let mut found = found.into_inner().expect("no holder panics");
    found.sort_by_key(|found| found.by.map_or(u64::MAX, |(seed, _)| seed));
    println!("| bug | seeds | broken |\n|---|---|---|");
    for Found { bug, by, took } in &found {
        let name = match bug {
            Planted::Shell(bug) => format!("shell: {bug:?}"),
            Planted::Node(bug) => format!("node: {bug:?}"),
        };
        match by {
            Some((seed, rule)) => println!("| {name} | {} | {rule:?} |", seed + 1),
            None => println!(
                "| {name} | not in {SEEDS_MAX} ({:.0} s) | |",
                took.as_secs_f64()
            ),
        }
    }
    let missed: Vec<Planted> = found
        .iter()
        .filter(|f| f.by.is_none())
        .map(|f| f.bug)
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
