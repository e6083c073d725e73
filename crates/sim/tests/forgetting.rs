//! Clusters whose horizons rise, on the real engine and on maps: every promise holds, and stores
//! purge.
//!
//! ```text
//! DENDRA_SIM_FIRST=17 DENDRA_SIM_SEEDS=1 cargo test -p dendra-sim --test forgetting no_seed    one seed
//! ```

use dendra_sim::plan::RunPlan;
use dendra_sim::runner::{SeedWorld, run_plan};
use dendra_sim::trace::Tracing;

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn no_seed_breaks_a_promise_while_horizons_rise() {
    search(SeedWorld::Forgetting, 150);
}

#[test]
fn no_seed_breaks_a_promise_of_records_with_more_copies() {
    search(SeedWorld::MoreCopies, 150);
}

fn search(world: SeedWorld, usual: u64) {
    let first = number("DENDRA_SIM_FIRST", 0);
    let seeds = number("DENDRA_SIM_SEEDS", usual);
    let (mut risen, mut purging) = (0, 0);
    for seed in first..first + seeds {
        let report = run_plan(&world.plan(seed), None, Tracing::Off);
        if let Some(first) = report.violations.first() {
            panic!("seed {seed}: {first}");
        }
        risen += report.risen;
        purging += u64::from(report.purges);
    }
    println!("horizons rose {risen} times, {purging} of {seeds} clusters purge");
    if seeds >= 50 {
        assert!(
            risen > 10 * seeds && purging > seeds / 2,
            "{risen}, {purging}"
        );
    }
}

#[test]
fn a_seed_of_horizons_is_a_run_byte_for_byte() {
    for seed in 0..6 {
        let plan = RunPlan::draw_forgetting(seed);
        let [first, second] = [(); 2].map(|()| run_plan(&plan, None, Tracing::Hashed));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_ne!(first.hash, 0, "seed {seed} has a trace");
    }
}
