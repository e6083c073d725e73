//! The real node in a made-up world: a fixed set of seeds, the seeds of bugs that were, and the
//! same seed twice.
//!
//! ```text
//! DENDRA_SIM_FIRST=17 DENDRA_SIM_SEEDS=1 cargo test -p dendra-sim --test seeds a_fixed    one seed
//! ```

use dendra_sim::check::linear::Searches;
use dendra_sim::plan::RunPlan;
use dendra_sim::runner::{FailingSeed, run_plan, run_seed};
use dendra_sim::trace::Tracing;
use std::sync::atomic::{AtomicU64, Ordering};

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Runs seeds on two threads; the first that fails fails the test, and so do searches without a
/// verdict.
fn hold(seeds: impl Iterator<Item = u64>) {
    let seeds: Vec<u64> = seeds.collect();
    // The lowest seed that failed: after it there is no seed to look for.
    let lowest = AtomicU64::new(u64::MAX);
    let mut found: Vec<FailingSeed> = Vec::new();
    let mut searches = Searches::default();
    std::thread::scope(|scope| {
        let halves: Vec<_> = (0..2)
            .map(|half| {
                let (seeds, lowest) = (&seeds, &lowest);
                scope.spawn(move || {
                    let mut searches = Searches::default();
                    let mut mine = seeds.iter().skip(half).step_by(2);
                    let failure: Option<FailingSeed> = mine.find_map(|&seed| {
                        if seed > lowest.load(Ordering::Relaxed) {
                            return None;
                        }
                        let ran = run_seed(seed, None, None);
                        searches.add(ran.sums.searches);
                        let failure = ran.failure?;
                        lowest.fetch_min(seed, Ordering::Relaxed);
                        Some(failure)
                    });
                    (failure, searches)
                })
            })
            .collect();
        for half in halves {
            let (failure, of_half) = half.join().expect("a run catches the panics of its hearts");
            searches.add(of_half);
            found.extend(failure);
        }
    });
    if let Some(failure) = found.into_iter().min_by_key(|failure| failure.seed) {
        let again = failure.command();
        panic!(
            "seed {}: {}\nrepeat it with: {again}",
            failure.seed, failure.violation
        );
    }
    println!("{searches:?}");
    assert!(searches.are_enough(), "{searches:?}");
}

#[test]
fn a_fixed_set_of_seeds_keeps_every_promise() {
    let first = number("DENDRA_SIM_FIRST", 0);
    hold(first..first + number("DENDRA_SIM_SEEDS", 200));
}

/// The findings of the search so far; the fixed set may change.
#[test]
fn seeds_that_found_something_keep_every_promise() {
    let found = [
        34,                     // a damaged copy stayed so although it was read
        322,                    // an expired value beside the tombstone that a table had made of it
        1_438,                  // fewer copies, and rows that lacked a position before they counted
        2_132,   // a hint that was filed under the address that its member had before
        356,     // a scan that stopped behind parts without live records
        3_815,   // a read of all copies beside damage, of what one copy alone had confirmed
        700_006, // a copy that a raised factor left behind, told in place of an unreadable newer one
        30_122_236_660_716_768, // two conditional writes that both won, by a promise older than the acceptance
    ];
    hold(found.into_iter());
}

#[test]
fn a_seed_is_a_run_byte_for_byte() {
    for seed in 0..40 {
        let plan = RunPlan::draw(seed);
        let [first, second] = [(); 2].map(|()| run_plan(&plan, None, Tracing::Hashed));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.history.len(), second.history.len(), "seed {seed}");
        assert_ne!(first.hash, 0, "seed {seed} has a trace");
    }
}
