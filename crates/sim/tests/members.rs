//! Membership in a made-up world of processes: a fixed set of seeds, and the same seed twice.

use dendra_sim::members::{Deed, MemberPlan, Weather, run_members};
use dendra_sim::runner::run_membership;
use dendra_sim::trace::Tracing;
use std::collections::BTreeSet;

#[test]
fn a_fixed_set_of_seeds_has_one_process_for_each_member() {
    let run = |seed| Some((seed, run_membership(seed, Tracing::Off)?));
    let broken: Vec<_> = (0..3_000).filter_map(run).take(8).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_seed_of_membership_is_a_run_byte_for_byte() {
    for seed in 0..60 {
        let plan = MemberPlan::draw(seed);
        let [first, second] = [(); 2].map(|()| run_members(&plan, Tracing::Hashed));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_ne!(first.hash, 0, "seed {seed} has a trace");
        assert!(first.happenings > 1_000, "seed {seed} is a run");
    }
}

#[test]
fn seeds_reach_every_weather_and_every_deed() {
    let plans: Vec<MemberPlan> = (0..300).map(MemberPlan::draw).collect();
    for weather in [Weather::Rolling, Weather::Honest, Weather::Impostors] {
        assert!(plans.iter().any(|plan| plan.weather == weather));
    }
    let deeds = plans.iter().flat_map(|plan| &plan.deeds);
    let kinds: BTreeSet<_> = deeds
        .map(|(_, deed): &(u64, Deed)| std::mem::discriminant(deed))
        .map(|kind| format!("{kind:?}"))
        .collect();
    assert_eq!(kinds.len(), 8, "{kinds:?}");
}
