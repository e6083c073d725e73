//! Clusters whose members come and go while clients watch keys: no older state comes behind a newer
//! one, and each watcher knows in the end what reads show.
//!
//! ```text
//! DENDRA_SIM_FIRST=17 DENDRA_SIM_SEEDS=1 cargo test -p dendra-sim --test watched     one seed
//! ```

use dendra_sim::draws::SeedWorld;
use dendra_sim::runner::run_plan;
use dendra_sim::trace::Tracing;

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn no_seed_of_members_that_come_and_go_misleads_a_watcher() {
    let first = number("DENDRA_SIM_FIRST", 0);
    let seeds = number("DENDRA_SIM_SEEDS", 60);
    let mut events = 0;
    for seed in first..first + seeds {
        let report = run_plan(&SeedWorld::Watched.plan(seed), None, Tracing::Off);
        if let Some(violation) = report.violations.first() {
            panic!("seed {seed}: {violation}");
        }
        events += report.sums.watch_events;
    }
    println!("{events} events were told");
    assert!(events > 20 * seeds, "{events} events");
}
