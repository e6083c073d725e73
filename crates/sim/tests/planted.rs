//! Bugs of the simulated world, switched on one at a time: the simulator must find every one of
//! them.
//!
//! A bug that is not found is a defect of the simulator. The table of seeds that it took is
//! printed, and docs/verification.md shows one. Bugs of the product are patches: see `planted/`.

use dendra_sim::check::Rule;
use dendra_sim::planted::ShellBug;
use dendra_sim::runner::run_seed;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds that are tried for one bug.
const SEEDS_MAX: u64 = 6_000;

/// Seeds that found a bug late: tried first, so that the test takes seconds. With
/// `PLANTED_FROM_ZERO` set they are not, and the table tells how many seeds a bug takes.
const KNOWN: [u64; 4] = [218, 227, 2_351, 2_976];

/// The seed that finds it, and the rule that it broke.
fn find(bug: ShellBug) -> Option<(u64, Rule)> {
    let known: &[u64] = match std::env::var_os("PLANTED_FROM_ZERO") {
        Some(_) => &[],
        None => &KNOWN,
    };
    // Most bugs are found at once; only then the late ones, and then one by one.
    let mut seeds = (0..32).chain(known.iter().copied()).chain(32..SEEDS_MAX);
    seeds.find_map(|seed| {
        let failure = run_seed(seed, None, Some(bug)).failure?;
        Some((seed, failure.violation.rule))
    })
}

#[test]
fn what_finds_a_planted_bug_finds_nothing_without_one() {
    for seed in (0..32).chain(KNOWN) {
        let failure = run_seed(seed, None, None).failure;
        assert!(failure.is_none(), "{failure:?}");
    }
}

#[test]
#[ignore = "at length"]
fn every_bug_of_the_world_is_found() {
    let next = AtomicUsize::new(0);
    let missed: Mutex<Vec<ShellBug>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(&bug) = ShellBug::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match find(bug) {
                        Some((seed, rule)) => {
                            println!("| shell: {bug:?} | {} | {rule:?} |", seed + 1)
                        }
                        None => missed.lock().expect("no holder panics").push(bug),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("no holder panics");
    assert!(missed.is_empty(), "not found: {missed:?}");
}
