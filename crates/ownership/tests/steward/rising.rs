//! Scripts: horizons that rise, and the states that hold them back.

use crate::scripts::{all_at, remove};
use crate::town::{Town, joiner, url};
use dendra_ownership::confirmed::HeldBack;
use dendra_ownership::epoch::record::EpochChange;
use dendra_ownership::limits::FORGET_LATE_US;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::{ClusterAnswer, ClusterOrder, PlanWish};

pub(crate) const CLOCK: u64 = 1 << 60;

fn floor(town: &Town) -> u64 {
    town.record(0).horizons().floor()
}

#[test]
fn horizons_rise_when_all_members_have_confirmed_the_epoch() {
    let mut town = Town::forgetting(3);
    let epoch = town.record(0).epoch();
    town.forgets(0, None, CLOCK + 7);
    town.forgets(1, None, CLOCK + 9);
    town.pass(10_000_000);
    assert_eq!(town.record(0).epoch(), epoch, "one has not confirmed");
    let state = town.status(0).horizons;
    let held = &state.held;
    assert_eq!(held.len(), 1);
    assert_eq!((&*held[0].url, held[0].code), (&*url(2), "silent"));
    assert!(!state.is_late, "news go each few seconds");
    town.pass(FORGET_LATE_US);
    assert!(town.status(0).horizons.is_late);
    town.forgets(2, Some(HeldBack::Comparison(MemberId(1))), 0);
    town.pass(6_000_000);
    for number in 0..3 {
        let held = town.status(number).horizons.held;
        assert_eq!((&*held[0].url, held[0].code), (&*url(2), "comparing"));
        assert!(held[0].why.contains(&url(1)), "{}", held[0].why);
    }
    town.forgets(2, None, CLOCK + 8);
    town.pass(1_000_000);
    assert!(all_at(&town, epoch + 1));
    assert_eq!(town.record(2).change(), EpochChange::Forgot);
    assert_eq!(floor(&town), CLOCK + 9, "the largest clock");
    let state = town.status(1).horizons;
    assert_eq!(state.floor_ms, Some((CLOCK + 9) >> 16));
    assert_eq!(state.purge_ms, None, "one step of six");
    assert!(!state.is_late, "it has just risen");
    town.pass(10_000_000);
    assert!(all_at(&town, epoch + 1), "the next epoch begins anew");
    for _ in 0..5 {
        (0..3).for_each(|number| town.forgets(number, None, CLOCK + 9));
        town.pass(2_000_000);
    }
    assert!(all_at(&town, epoch + 6));
    assert_eq!(floor(&town), CLOCK + 14, "each floor is above the last one");
    assert_eq!(town.record(0).horizons().purge(), CLOCK + 9);
}

#[test]
fn no_horizon_rises_twice_within_the_interval_or_while_a_plan_is_under_way() {
    let mut town = Town::forgetting(4);
    let epoch = town.record(0).epoch();
    let confirm = |town: &mut Town| (0..4).for_each(|number| town.forgets(number, None, CLOCK));
    confirm(&mut town);
    town.pass(200_000);
    assert!(all_at(&town, epoch + 1));
    confirm(&mut town);
    town.pass(400_000);
    assert!(all_at(&town, epoch + 1), "too early");
    town.pass(1_000_000);
    assert!(all_at(&town, epoch + 2));
    // A plan that was made before that is still good, and goes first.
    let draft = town.plan(0, remove(3));
    confirm(&mut town);
    town.pass(1_500_000);
    assert!(all_at(&town, epoch + 3));
    town.is_loading = false;
    town.done(0, ClusterOrder::Apply { draft: draft.id });
    confirm(&mut town);
    town.pass(5_000_000);
    assert!(town.record(0).plan().is_some());
    confirm(&mut town);
    town.pass(5_000_000);
    assert_eq!(floor(&town), CLOCK + 2, "three steps, and none since");
    town.is_loading = true;
    (0..4).for_each(|number| town.load(MemberId(number)));
    town.pass(10_000_000);
    assert!(town.record(0).plan().is_none());
    let epoch = town.record(0).epoch();
    (0..3).for_each(|number| town.forgets(number, None, CLOCK));
    town.pass(2_000_000);
    assert!(all_at(&town, epoch + 1));
}

#[test]
fn another_member_raises_horizons_when_the_first_one_has_gone_or_does_not_want_to() {
    let mut town = Town::forgetting(3);
    town.stop(MemberId(0));
    let house = town.houses.get_mut(&MemberId(0)).expect("a house");
    house.forget_every_us = 0;
    town.start(MemberId(0));
    let epoch = town.record(0).epoch();
    (0..3).for_each(|number| town.forgets(number, None, CLOCK));
    town.pass(1_500_000);
    assert!(all_at(&town, epoch), "the second one waits its turn");
    town.pass(3_000_000);
    assert!(all_at(&town, epoch + 1));
    // All have confirmed, and then the first two are gone: without a majority no epoch is chosen.
    (0..3).for_each(|number| town.forgets(number, None, CLOCK));
    town.stop(MemberId(0));
    town.stop(MemberId(1));
    town.pass(10_000_000);
    assert_eq!(town.record(2).epoch(), epoch + 1);
    let held = town.status(2).horizons.held;
    assert_eq!(held.iter().filter(|it| it.code == "away").count(), 2);
    town.start(MemberId(1));
    town.pass(5_000_000);
    assert_eq!(
        town.record(2).epoch(),
        epoch + 2,
        "the word of the lost one counts"
    );
}

#[test]
fn damage_takes_a_confirmation_back() {
    let mut town = Town::forgetting(3);
    let epoch = town.record(0).epoch();
    town.forgets(1, None, CLOCK);
    town.forgets(2, None, CLOCK);
    for (held, code) in [
        (HeldBack::Damage, "damage"),
        (HeldBack::Restore, "restoring"),
    ] {
        town.forgets(1, Some(held), 0);
        town.forgets(0, None, CLOCK);
        town.pass(6_000_000);
        assert!(all_at(&town, epoch));
        let status = town.status(2);
        assert_eq!(status.horizons.held[0].code, code);
        let restoring = status.members.iter().map(|it| it.is_restoring);
        let expected = [false, code == "restoring", false].map(Some);
        assert!(restoring.eq(expected), "{code}: {:?}", status.members);
    }
    town.forgets(1, None, CLOCK);
    town.pass(1_000_000);
    assert!(all_at(&town, epoch + 1));
    let restoring = town.status(2).members[1].is_restoring;
    assert_eq!(restoring, None, "it has not told about this epoch");
}

#[test]
fn strays_that_comparisons_find_behind_a_drop_are_dropped_again() {
    let mut town = Town::forgetting(3);
    (1..3).for_each(|number| town.forgets(number, None, CLOCK));
    for _ in 0..2 {
        town.forgets(0, Some(HeldBack::Strays), 0);
        town.forgets(0, Some(HeldBack::Strays), 0);
        town.forgets(0, Some(HeldBack::Comparison(MemberId(1))), 0);
        (1..3).for_each(|number| town.forgets(number, None, CLOCK));
    }
    assert_eq!(town.houses[&MemberId(0)].dropped.len(), 2);
}

#[test]
fn strays_are_dropped_once_nothing_else_holds_an_epoch_back() {
    let mut town = Town::forgetting(3);
    let epoch = town.record(0).epoch();
    town.forgets(0, Some(HeldBack::Strays), 0);
    town.forgets(1, Some(HeldBack::Hints), 0);
    town.forgets(2, Some(HeldBack::Strays), 0);
    town.forgets(0, Some(HeldBack::Strays), 0);
    let dropped = |town: &Town, number| town.houses[&MemberId(number)].dropped.clone();
    assert_eq!(dropped(&town, 0), []);
    town.forgets(1, None, CLOCK);
    for _ in 0..3 {
        town.forgets(0, Some(HeldBack::Strays), 0);
        town.forgets(1, None, CLOCK);
        town.forgets(2, Some(HeldBack::Strays), 0);
    }
    let once = [epoch];
    let all = [0, 1, 2].map(|number| dropped(&town, number));
    assert_eq!(all, [once.to_vec(), vec![], once.to_vec()]);
    town.pass(5_000_000);
    assert!(all_at(&town, epoch), "strays still hold it back");
    (0..3).for_each(|number| town.forgets(number, None, CLOCK));
    town.pass(1_000_000);
    assert!(all_at(&town, epoch + 1));
}

#[test]
fn folders_keep_the_last_steps_alone_and_a_member_that_is_behind_learns_the_newest() {
    let mut town = Town::forgetting(3);
    let first = town.record(0).epoch();
    for _ in 0..20 {
        (0..3).for_each(|number| town.forgets(number, None, CLOCK));
        town.pass(2_000_000);
    }
    assert!(all_at(&town, first + 20));
    let epochs = |town: &Town| town.houses[&MemberId(2)].epochs();
    let kept: Vec<u64> = (1..=first).chain(first + 13..=first + 20).collect();
    assert_eq!(epochs(&town), kept);
    // It confirms, and misses the step that follows.
    town.forgets(2, None, CLOCK);
    town.stop(MemberId(2));
    (0..2).for_each(|number| town.forgets(number, None, CLOCK));
    town.pass(3_000_000);
    assert_eq!(town.record(0).epoch(), first + 21);
    town.start(MemberId(2));
    town.pass(6_000_000);
    assert!(all_at(&town, first + 21));
    let lines = town.order(2, ClusterOrder::History { entries: 100 });
    let Some(ClusterAnswer::History { epochs: lines, .. }) = lines else {
        panic!("it answers");
    };
    let of_steps = lines.iter().filter(|it| it.change == EpochChange::Forgot);
    assert_eq!(of_steps.count(), 8, "the others are seen for longer");
    assert!(lines.iter().any(|it| it.change == EpochChange::Enrolled));
}

#[test]
fn a_newcomer_takes_any_number_of_copies_for_possible_until_horizons_rise() {
    let mut town = Town::forgetting(4);
    let late = town.join(1, &joiner(4)).0;
    town.pass(10_000_000);
    assert!(town.record(late).plan().is_none());
    let order = || {
        ClusterOrder::Plan(PlanWish {
            replication_factor: Some(2),
            ..PlanWish::default()
        })
    };
    assert!(matches!(
        town.order(0, order()),
        Some(ClusterAnswer::Planned(_))
    ));
    let why = town.declined(late, order());
    assert!(why.starts_with("copies-not-compared: "), "{why}");
    let copies = |town: &Town, number: u32| {
        let layout = town.steward(number).layout();
        (layout.copies_to_forget(), layout.copies_to_purge())
    };
    // It compares as the others do, and its store keeps more.
    assert_eq!((copies(&town, 0), copies(&town, late)), ((3, 3), (3, 5)));
    // Its folder does not tell more after a restart.
    town.stop(MemberId(late));
    town.start(MemberId(late));
    town.pass(2_000_000);
    assert!(
        town.declined(late, order())
            .starts_with("copies-not-compared: ")
    );
    (0..5).for_each(|number| town.forgets(number, None, CLOCK));
    town.pass(2_000_000);
    assert_eq!((copies(&town, 0), copies(&town, late)), ((3, 3), (3, 3)));
    for _ in 0..2 {
        assert!(matches!(
            town.order(late, order()),
            Some(ClusterAnswer::Planned(_))
        ));
        town.stop(MemberId(late));
        town.start(MemberId(late));
        town.pass(2_000_000);
    }
}

#[test]
fn a_member_that_is_up_stays_while_a_lowered_factor_waits_for_its_steps() {
    let mut town = Town::forgetting(5);
    let wish = |number: u32, copies| PlanWish {
        replication_factor: copies,
        ..remove(number)
    };
    // In one plan with the fall as well.
    let why = town.declined(0, ClusterOrder::Plan(wish(4, Some(2))));
    assert!(why.starts_with("copies-not-compared: http://h4"), "{why}");
    let lower = PlanWish {
        replication_factor: Some(2),
        ..PlanWish::default()
    };
    let draft = town.plan(0, lower).id;
    town.done(0, ClusterOrder::Apply { draft });
    town.pass(30_000_000);
    assert_eq!(town.record(0).narrowing().steps_left(), 3);
    for number in [0, 4] {
        let why = town.declined(0, ClusterOrder::Plan(remove(number)));
        assert!(why.starts_with("copies-not-compared: "), "{why}");
        assert!(why.contains("from 3 to 2"), "{why}");
    }
    // One that is lost may go, if it is not back when the plan is applied.
    town.stop(MemberId(4));
    town.pass(2_000_000);
    let draft = town.plan(0, remove(4)).id;
    town.start(MemberId(4));
    town.pass(2_000_000);
    let why = town.declined(0, ClusterOrder::Apply { draft });
    assert!(why.starts_with("copies-not-compared: http://h4"), "{why}");
    for left in [2, 1, 0] {
        (0..5).for_each(|number| town.forgets(number, None, CLOCK));
        town.pass(2_000_000);
        assert_eq!(town.record(0).narrowing().steps_left(), left);
    }
    let draft = town.plan(0, remove(4)).id;
    town.done(0, ClusterOrder::Apply { draft });
    town.pass(30_000_000);
    assert_eq!(town.record(0).members().len(), 4);
}

#[test]
fn a_plan_names_a_member_whose_damage_it_waits_for() {
    let mut town = Town::forgetting(3);
    town.is_loading = false;
    let late = town.join(1, &joiner(3));
    town.pass(2_000_000);
    town.forgets(late.0, Some(HeldBack::Damage), 0);
    town.pass(2_000_000);
    assert_eq!(town.status(0).waits, None, "it says so while it loads");
    town.forgets(2, Some(HeldBack::Damage), 0);
    town.pass(2_000_000);
    let waits = town.status(0).waits.expect("it is said").why;
    assert!(
        waits.starts_with("http://h2:8080 repairs damaged"),
        "{waits}"
    );
}
