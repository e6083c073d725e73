//! Clusters whose horizons rise, on the real engine and on maps: every promise holds, and stores
//! purge.
//!
//! ```text
//! DENDRA_SIM_FIRST=17 DENDRA_SIM_SEEDS=1 cargo test -p dendra-sim --test forgetting no_seed    one seed
//! ```

use dendra_sim::draws::SeedWorld;
use dendra_sim::runner::run_plan;
use dendra_sim::trace::Tracing;

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Seeds of a search behind a change.
const SHORT: u64 = 10;

#[test]
fn no_seed_breaks_a_promise_while_horizons_rise() {
    search(SeedWorld::Forgetting, SHORT);
}

#[test]
fn no_seed_breaks_a_promise_of_records_with_more_copies() {
    search(SeedWorld::MoreCopies, SHORT);
}

#[test]
fn no_seed_breaks_a_promise_while_the_factor_falls() {
    search(SeedWorld::Lowered, SHORT);
}

#[test]
#[ignore = "at length"]
fn many_seeds_keep_every_promise_while_horizons_rise() {
    let narrowing = search(SeedWorld::Forgetting, 150);
    assert!(narrowing.is_none_or(|share| share < 0.1), "{narrowing:?}");
    let narrowing = search(SeedWorld::MoreCopies, 150);
    assert!(narrowing.is_none_or(|share| share > 0.05), "{narrowing:?}");
    let narrowing = search(SeedWorld::Lowered, 60);
    assert!(narrowing.is_none_or(|share| share > 0.9), "{narrowing:?}");
}

#[test]
#[ignore = "at length"]
fn no_seed_loses_a_write_with_a_disk_behind_a_lowered_factor() {
    let found = [
        72, 120, 257, 307,  // the successor asked the owners of the lowered factor alone
        826,  // it took itself for the fifth owner
        897,  // a false alarm: two owners had purged a delete that a third one had with a later age
        1201, // the plan had taken a position away that was not the last of its row
    ];
    for seed in (0..20).chain(found) {
        let report = run_plan(&SeedWorld::LoweredLost.plan(seed), None, Tracing::Off);
        assert!(report.violations.is_empty(), "seed {seed}: {report:?}");
    }
}

#[test]
fn damage_at_several_members_keeps_no_other_damage_from_its_repair() {
    for seed in 0..12 {
        let report = run_plan(&SeedWorld::Rotten.plan(seed), None, Tracing::Off);
        assert!(report.violations.is_empty(), "seed {seed}: {report:?}");
    }
}

/// The share of clusters in which a lowered factor gave copies back, of many.
fn search(world: SeedWorld, usual: u64) -> Option<f64> {
    let first = number("DENDRA_SIM_FIRST", 0);
    let seeds = number("DENDRA_SIM_SEEDS", usual);
    let (mut risen, mut purging, mut narrowing) = (0, 0, 0);
    for seed in first..first + seeds {
        let report = run_plan(&world.plan(seed), None, Tracing::Off);
        if let Some(first) = report.violations.first() {
            panic!("seed {seed}: {first}");
        }
        risen += report.sums.risen;
        purging += u64::from(report.purges);
        narrowing += u64::from(report.narrows);
    }
    println!(
        "horizons rose {risen} times, {purging} of {seeds} clusters purge, {narrowing} gave copies \
         of a lowered factor back"
    );
    if seeds >= 50 {
        assert!(
            risen > 10 * seeds && purging > seeds / 2,
            "{risen}, {purging}"
        );
    }
    (seeds >= 50).then(|| narrowing as f64 / seeds as f64)
}

#[test]
fn a_seed_of_horizons_is_a_run_byte_for_byte() {
    for seed in 0..6 {
        let plan = SeedWorld::Forgetting.plan(seed);
        let [first, second] = [(); 2].map(|()| run_plan(&plan, None, Tracing::Hashed));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_ne!(first.hash, 0, "seed {seed} has a trace");
    }
}
