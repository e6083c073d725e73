//! Clusters in which an operator accepts a loss: every promise holds but for the records that the
//! loss takes.
//!
//! ```text
//! DENDRA_SIM_FIRST=17 DENDRA_SIM_SEEDS=1 cargo test -p dendra-sim --test losses no_seed    one seed
//! ```

use dendra_sim::draws::SeedWorld;
use dendra_sim::runner::run_plan;
use dendra_sim::trace::Tracing;

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn no_seed_breaks_a_promise_but_for_what_an_accepted_loss_takes() {
    let first = number("DENDRA_SIM_FIRST", 0);
    let seeds = number("DENDRA_SIM_SEEDS", 60);
    let (mut orders, mut taken) = (0, 0);
    for seed in first..first + seeds {
        let report = run_plan(&SeedWorld::Losses.plan(seed), None, Tracing::Off);
        if let Some(first) = report.violations.first() {
            panic!("seed {seed}: {first}");
        }
        orders += u64::from(report.sums.losses.0 > 0);
        taken += u64::from(report.sums.losses.1 > 0);
    }
    println!("a loss was accepted in {orders} of {seeds} clusters, and took something in {taken}");
    if seeds >= 50 {
        assert!(
            orders > seeds / 2 && taken > seeds / 12,
            "{orders}, {taken}"
        );
    }
}

/// A read has told that a delete took effect. Both owners that hold it are taken, and no client was
/// told the tombstone's version.
#[test]
fn a_delete_that_a_read_told_may_be_taken() {
    let report = run_plan(&SeedWorld::Losses.plan(343), None, Tracing::Off);
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    assert!(report.sums.losses.1 > 0, "{:?}", report.sums.losses);
}

#[test]
fn a_seed_of_losses_is_a_run_byte_for_byte() {
    for seed in 0..6 {
        let plan = SeedWorld::Losses.plan(seed);
        let [first, second] = [(); 2].map(|()| run_plan(&plan, None, Tracing::Hashed));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_ne!(first.hash, 0, "seed {seed} has a trace");
    }
}
