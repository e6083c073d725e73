//! Small soaks of deletes: members are away for months, and no deleted record comes back.
//!
//! ```text
//! DENDRA_SIM_FIRST=17 DENDRA_SIM_SEEDS=1 cargo test -p dendra-sim --test deletes    one seed
//! ```

use dendra_sim::draws::SeedWorld;
use dendra_sim::plan::{KeyClass, RunPlan};
use dendra_sim::world::seasons::{DeletesReport, SeasonSize, SoakEnd, soak_deletes};

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

fn soak(seed: u64, writes: u64) -> DeletesReport {
    soak_of(&SeedWorld::Deletes.plan(seed), writes)
}

fn soak_of(plan: &RunPlan, writes: u64) -> DeletesReport {
    let end = SoakEnd {
        size: SeasonSize::SMALL,
        writes,
        is_over: &|| false,
        tell: &|_| {},
    };
    soak_deletes(plan, &end)
}

#[test]
fn no_deleted_record_comes_back_after_months_away() {
    let first = number("DENDRA_SIM_FIRST", 0);
    let seeds = number("DENDRA_SIM_SEEDS", 6);
    for seed in first..first + seeds {
        let report = soak(seed, 3_000);
        if let Some(violation) = &report.violation {
            panic!("seed {seed}, season {}: {violation}", report.seasons + 1);
        }
        assert!(report.days_away > 20 * report.seasons / 2, "{report:?}");
        assert!(report.writes() >= 3_000 && report.risen > 0, "{report:?}");
        assert!(report.searches.are_enough(), "{report:?}");
    }
}

/// The way out of docs/operating.md: a season ends with deletes at the default level.
#[test]
fn a_delete_of_fewer_copies_goes_once_the_key_is_deleted_at_the_default_level() {
    for seed in 0..4 {
        let mut plan = SeedWorld::Deletes.plan(seed);
        plan.shape.keys = vec![KeyClass::Weak];
        let report = soak_of(&plan, 1_500);
        if let Some(violation) = &report.violation {
            panic!("seed {seed}, season {}: {violation}", report.seasons + 1);
        }
        assert!(report.writes() >= 1_500 && report.risen > 0, "{report:?}");
    }
}

#[test]
fn a_soak_is_the_same_run_again() {
    let [first, second] = [(); 2].map(|()| format!("{:?}", soak(3, 1_000)));
    assert_eq!(first, second);
}
