//! Crowds in front of members, which admit by the machines of the real node: bounds are kept, no
//! source starves, and no promise is lost.
//!
//! ```text
//! DENDRA_SIM_FIRST=17 DENDRA_SIM_SEEDS=1 cargo test -p dendra-sim --test overloads no_seed    one seed
//! ```

use dendra_sim::door::DoorCounts;
use dendra_sim::draws::SeedWorld;
use dendra_sim::runner::run_plan;
use dendra_sim::trace::Tracing;

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn no_seed_of_an_overload_breaks_a_promise_a_bound_or_fairness() {
    let first = number("DENDRA_SIM_FIRST", 0);
    let seeds = number("DENDRA_SIM_SEEDS", 60);
    let (mut doors, mut operations) = (DoorCounts::default(), 0);
    for seed in first..first + seeds {
        let report = run_plan(&SeedWorld::Overloaded.plan(seed), None, Tracing::Off);
        if let Some(first) = report.violations.first() {
            panic!("seed {seed}: {first}");
        }
        doors.add(report.sums.doors);
        operations += report.history.len() as u64;
    }
    println!("{operations} operations, {doors:?}");
    if seeds >= 50 {
        // Each way in which a request or an order can be held up was gone.
        let DoorCounts {
            lines,
            begun,
            refused,
            gone,
            waited,
            busy,
            stopped,
        } = doors;
        assert!(lines > seeds / 5, "{doors:?}");
        assert!(
            begun > 1_000 * seeds && refused > 1_000 * seeds,
            "{doors:?}"
        );
        let ways = [gone, waited, busy, stopped];
        assert!(ways.iter().all(|way| *way > 5 * seeds), "{doors:?}");
    }
}

#[test]
fn a_seed_of_an_overload_is_a_run_byte_for_byte() {
    for seed in 0..4 {
        let plan = SeedWorld::Overloaded.plan(seed);
        let [first, second] = [(); 2].map(|()| run_plan(&plan, None, Tracing::Hashed));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_ne!(first.hash, 0, "seed {seed} has a trace");
    }
}
