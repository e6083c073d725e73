//! Scripts: orders of operators, and the answers that they get.

use crate::rising::CLOCK;
use crate::town::{Town, joiner, node, url};
use dendra_base::{ClusterVersion, ClusterVersions, LeastSuccessor};
use dendra_ownership::epoch::record::{EpochChange, EpochRecord, MemberStatus};
use dendra_ownership::limits::{
    CLUSTER_ORDER_US, FULL_DISK_PATIENCE_US, PROGRESS_REST_US, PROGRESS_US, REPLACE_PATIENCE_US,
    STEWARD_TURN_US,
};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::{ClusterAnswer, ClusterOrder, DraftId, PlanWish};
use dendra_ownership::steward::messages::EnrolAnswer;
use dendra_ownership::steward::step::StewardEvent;

pub(crate) fn remove(number: u32) -> PlanWish {
    PlanWish {
        remove: vec![url(number)],
        ..PlanWish::default()
    }
}

fn is_balanced(record: &EpochRecord) -> bool {
    let loads = record.members().iter();
    let loads: Vec<usize> = loads.map(|m| record.owners().load(m.id, u8::MAX)).collect();
    let mean = loads.iter().sum::<usize>() as f64 / loads.len() as f64;
    let is_near = |load: &usize| (*load as f64 - mean).abs() <= 1.0_f64.max(mean / 20.0);
    loads.iter().all(is_near)
}

pub(crate) fn all_at(town: &Town, epoch: u64) -> bool {
    town.up().all(|id| town.record(id.0).epoch() == epoch)
}

#[test]
fn founders_enrol_themselves_once_all_are_there() {
    let town = Town::found(3, 3);
    assert!(all_at(&town, 2));
    assert_eq!(town.record(0).change(), EpochChange::Enrolled);
    let members = town.record(1).members().iter();
    let nodes: Vec<u128> = members.map(|member| member.node).collect();
    assert_eq!(nodes, [node(0), node(1), node(2)]);
}

#[test]
fn a_joiner_is_planned_in_loads_and_votes() {
    let mut town = Town::found(3, 3);
    assert_eq!(town.join(1, &joiner(3)), MemberId(3));
    town.pass(10_000_000);
    let record = town.record(3).clone();
    assert!(record.plan().is_none());
    assert_eq!(record.change(), EpochChange::Finished);
    assert_eq!(record.voters().len(), 4);
    assert!(is_balanced(&record) && all_at(&town, record.epoch()));
    // It is told that it is a member when it asks again.
    let again = town.enrol(0, joiner(3));
    assert!(matches!(
        again,
        EnrolAnswer::Enrolled {
            member: MemberId(3),
            ..
        }
    ));
    let status = town.status(2);
    assert_eq!(
        (status.members.len(), status.plan, status.waits),
        (4, None, None)
    );
    assert!(
        status
            .members
            .iter()
            .all(|m| m.is_up && m.positions > 0 && m.arriving == 0)
    );
    assert_eq!(status.members[3].release.as_deref(), Some("1.0.0"));
}

#[test]
fn two_joiners_come_one_after_the_other() {
    let mut town = Town::found(3, 3);
    town.join(0, &joiner(3));
    town.is_loading = false;
    town.pass(1_000_000);
    town.is_loading = true;
    let waiting = town.enrol(1, joiner(4));
    town.load(MemberId(3));
    assert_eq!(town.join(1, &joiner(4)), MemberId(4));
    town.pass(10_000_000);
    assert_eq!(town.record(0).voters().len(), 5, "{waiting:?}");
    assert!(is_balanced(town.record(4)));
}

#[test]
fn a_plan_is_read_applied_and_removes_a_member_for_ever() {
    let mut town = Town::found(4, 3);
    let draft = town.plan(0, remove(2));
    assert_eq!((draft.epoch, &draft.leaves[..]), (2, &[url(2)][..]));
    assert_eq!(
        draft.steps.len(),
        town.record(0).owners().load(MemberId(2), u8::MAX)
    );
    assert_eq!(draft.bytes.is_some(), draft.seconds.is_some());
    assert!(draft.bytes.is_some_and(|bytes| bytes > 0));
    assert!(
        draft
            .steps
            .iter()
            .all(|step| step.from == Some(url(2)) && step.to.is_some())
    );
    assert!(all_at(&town, 2), "a plan changes nothing");
    town.done(0, ClusterOrder::Apply { draft: draft.id });
    town.pass(10_000_000);
    let record = town.record(0).clone();
    assert!(record.plan().is_none() && record.member(MemberId(2)).is_none());
    assert!(town.houses[&MemberId(2)].was_removed);
    assert!(is_balanced(&record) && all_at(&town, record.epoch()));
    // It comes back, and is told so.
    town.start(MemberId(2));
    town.pass(3_000_000);
    assert!(town.houses[&MemberId(2)].steward.is_none());
    let again = joiner(2);
    let EnrolAnswer::Refused { why } = town.enrol(0, again) else {
        panic!("its folder is refused");
    };
    assert!(why.contains("never comes back"), "{why}");
}

#[test]
fn the_author_alone_proposes_the_steps_of_its_plan_and_each_as_soon_as_it_may() {
    let mut town = Town::found(4, 3);
    let draft = town.plan(2, remove(3));
    town.proposers.clear();
    town.told.clear();
    let began_us = town.now_us;
    town.done(2, ClusterOrder::Apply { draft: draft.id });
    while town.record(2).plan().is_some() {
        town.pass(100_000);
    }
    // All moves arrive in the moment in which they begin.
    let took_us = town.now_us - began_us;
    assert!(took_us < STEWARD_TURN_US.min(PROGRESS_US), "{took_us} us");
    assert_eq!(Vec::from_iter(town.proposers), [MemberId(2)]);
    println!("{:?}", town.told);
    // It collects the news of the others, and tells the one that goes alone.
    let told = town.told.iter().filter(|(from, _)| *from == MemberId(2));
    let told: Vec<MemberId> = told.map(|(_, to)| *to).collect();
    assert_eq!(told, [MemberId(3)]);
}

#[test]
fn a_lost_member_is_replaced_in_its_place_and_nothing_else_moves() {
    let mut town = Town::found(4, 3);
    let before = town.record(0).clone();
    let mut request = joiner(9);
    request.replaces = Some(url(3));
    let EnrolAnswer::Refused { why } = town.enrol(0, request.clone()) else {
        panic!("it answers");
    };
    assert!(
        why.starts_with("http://h3:8080 answers, so it is not lost"),
        "{why}"
    );
    town.stop(MemberId(3));
    town.is_loading = false;
    let new = town.join(0, &request);
    town.pass(2_000_000);
    let waits = town
        .status(0)
        .waits
        .expect("it says why no byte is loaded")
        .why;
    assert!(
        waits.starts_with("new owners wait up to 10 s for http://h3:8080, which"),
        "{waits}"
    );
    town.is_loading = true;
    town.load(new);
    town.pass(10_000_000);
    let after = town.record(0).clone();
    assert_eq!(after.voters(), [MemberId(0), MemberId(1), MemberId(2), new]);
    for partition in before.owners().all() {
        let was = before.owners().owners(partition).iter();
        let was: Vec<MemberId> = was.map(|id| if id.0 == 3 { new } else { *id }).collect();
        assert_eq!(after.owners().owners(partition), was);
    }
    // The lost one comes back after all.
    town.start(MemberId(3));
    town.pass(2_000_000);
    assert!(town.houses[&MemberId(3)].was_removed);
}

#[test]
fn a_member_that_another_one_reaches_is_not_replaced() {
    let mut town = Town::forgetting(3);
    town.pass(PROGRESS_REST_US);
    town.cut(0, 1);
    let mut request = joiner(9);
    request.replaces = Some(url(1));
    let EnrolAnswer::Wait { why } = town.enrol(0, request.clone()) else {
        panic!("it was there a moment ago");
    };
    assert!(why.contains("in the next 10 s"), "{why}");
    town.pass(REPLACE_PATIENCE_US);
    let EnrolAnswer::Refused { why } = town.enrol(0, request.clone()) else {
        panic!("another member reaches it");
    };
    let start = "http://h1:8080 answers http://h2:8080, so it is not lost";
    assert!(why.starts_with(start), "{why}");
    assert!(town.record(0).plan().is_none());
    // It is lost: the other member says so with its next news.
    town.stop(MemberId(1));
    town.pass(PROGRESS_REST_US);
    let new = town.join(0, &request);
    town.pass(10_000_000);
    let after = [MemberId(0), MemberId(2), new];
    assert_eq!(town.record(2).voters(), after);
}

#[test]
fn a_member_that_is_back_before_ten_seconds_are_over_is_not_replaced() {
    let mut town = Town::found(3, 3);
    let mut request = joiner(9);
    request.replaces = Some(url(1));
    for _ in 0..3 {
        town.stop(MemberId(1));
        town.pass(REPLACE_PATIENCE_US / 2);
        let early = town.enrol(0, request.clone());
        assert!(matches!(early, EnrolAnswer::Wait { .. }), "{early:?}");
        town.start(MemberId(1));
        town.pass(1_000_000);
    }
    assert_eq!(town.record(0).members().len(), 3);
}

#[test]
fn a_new_folder_may_take_the_address_of_the_lost_one() {
    let mut town = Town::found(4, 3);
    town.stop(MemberId(3));
    let mut request = joiner(9);
    request.place.url = url(3);
    let EnrolAnswer::Refused { why } = town.enrol(0, request.clone()) else {
        panic!("the address is a member's");
    };
    assert!(why.contains("--replace http://h3:8080"), "{why}");
    request.replaces = Some(url(3));
    let new = town.join(0, &request);
    town.pass(10_000_000);
    let after = town.record(0);
    let member = after.member(new).expect("it joined");
    assert_eq!(member.status, MemberStatus::Member);
    assert_eq!(member.place.url, url(3));
}

#[test]
fn the_author_dies_and_another_member_carries_its_plan_on() {
    let mut town = Town::found(5, 3);
    town.is_loading = false;
    let draft = town.plan(4, remove(0));
    town.done(4, ClusterOrder::Apply { draft: draft.id });
    town.pass(1_000_000);
    town.stop(MemberId(4));
    town.is_loading = true;
    for number in 1..4 {
        town.load(MemberId(number));
    }
    town.pass(3_000_000);
    let left = town.status(1);
    assert!(
        left.waits
            .is_some_and(|it| it.why.starts_with("http://h4:8080 cannot be reached"))
    );
    town.start(MemberId(4));
    // Not its author any more: it lost its turn, and everything it held in memory.
    town.pass(20_000_000);
    assert!(town.record(1).plan().is_none(), "{:?}", town.status(1).plan);
    assert_eq!(town.record(1).members().len(), 4);
}

#[test]
fn all_members_are_killed_in_the_middle_of_a_plan_and_it_goes_on() {
    let mut town = Town::found(3, 2);
    town.is_loading = false;
    let new = town.join(0, &joiner(3));
    town.pass(2_000_000);
    assert!(town.status(0).plan.is_some_and(|plan| plan.moving > 0));
    for number in 0..4 {
        town.stop(MemberId(number));
    }
    town.is_loading = true;
    for number in 0..4 {
        town.start(MemberId(number));
    }
    town.pass(10_000_000);
    assert!(town.record(0).plan().is_none());
    assert!(town.record(0).voters().contains(&new));
}

#[test]
fn a_plan_is_cancelled_and_its_joiner_that_owns_nothing_is_refused() {
    let mut town = Town::found(3, 3);
    town.is_loading = false;
    let new = town.join(0, &joiner(3));
    town.pass(1_000_000);
    let waiting = town.enrol(1, joiner(4));
    assert!(matches!(waiting, EnrolAnswer::Wait { .. }), "{waiting:?}");
    let declined = town.declined(1, ClusterOrder::Plan(remove(0)));
    assert!(
        declined.starts_with("plan-under-way: plan 3 is under way; wait"),
        "{declined}"
    );
    town.done(1, ClusterOrder::Cancel);
    town.pass(3_000_000);
    let record = town.record(0);
    assert!(record.plan().is_none() && record.members().len() == 3);
    assert!(town.houses[&new].was_removed);
    let declined = town.declined(1, ClusterOrder::Cancel);
    assert!(
        declined.starts_with("no-plan-under-way: no plan is under way"),
        "{declined}"
    );
}

#[test]
fn a_joiner_that_lost_its_folder_is_told_a_way_that_ends() {
    for replaces in [None, Some(url(3))] {
        let mut town = Town::found(3, 3);
        town.is_loading = false;
        let new = town.join(0, &joiner(3));
        town.pass(1_000_000);
        town.stop(new);
        let mut request = joiner(4);
        request.place.url = url(3);
        request.replaces = replaces;
        let EnrolAnswer::Refused { why } = town.enrol(0, request.clone()) else {
            panic!("the plan would wait for the lost folder, and it for the plan");
        };
        let start = "plan 3 takes http://h3:8080 in with another folder";
        assert!(why.starts_with(start), "{why}");
        // The sentence, step by step.
        town.done(1, ClusterOrder::Cancel);
        town.pass(3_000_000);
        assert_eq!(town.record(0).plan(), None);
        request.replaces = None;
        town.is_loading = true;
        let new = town.join(0, &request);
        town.pass(10_000_000);
        assert!(town.record(0).voters().contains(&new));
    }
}

#[test]
fn a_joiner_that_owns_copies_and_lost_its_folder_is_replaced_once_its_plan_is_cancelled() {
    let mut town = Town::found(3, 3);
    town.is_loading = false;
    let new = town.join(0, &joiner(3));
    town.pass(1_000_000);
    // Half of its positions arrive.
    let record = town.record(new.0).clone();
    let moving = record
        .owners()
        .all()
        .filter(|p| record.moving(*p).is_some());
    let partitions: Vec<_> = moving.step_by(2).collect();
    let epoch = record.epoch();
    town.tell(new, StewardEvent::Loaded { epoch, partitions });
    town.pass(1_000_000);
    town.stop(new);
    town.done(1, ClusterOrder::Cancel);
    town.pass(REPLACE_PATIENCE_US);
    let member = town.record(0).member(new).expect("it owns positions");
    assert_eq!(member.status, MemberStatus::Member);
    let mut request = joiner(4);
    request.place.url = url(3);
    request.replaces = Some(url(3));
    town.is_loading = true;
    let next = town.join(0, &request);
    town.pass(20_000_000);
    let voters = town.record(0).voters();
    assert!(voters.contains(&next) && !voters.contains(&new));
}

#[test]
fn each_refusal_has_a_code_and_a_sentence_with_the_way_out() {
    let mut town = Town::found(3, 3);
    let plan = ClusterOrder::Plan;
    let starts = |told: String, wanted: &str| assert!(told.starts_with(wanted), "{told}");
    starts(
        town.declined(0, plan(remove(1))),
        "fewer-members-than-copies: 2 members with a weight cannot keep 3 copies",
    );
    starts(
        town.declined(0, plan(remove(7))),
        "not-a-member: http://h7:8080 is not a member",
    );
    starts(
        town.declined(0, plan(PlanWish::default())),
        "nothing-asked: ",
    );
    let mut twice = remove(1);
    twice.remove.push(url(1));
    starts(
        town.declined(0, plan(twice)),
        "contradiction: the order names http://h1:8080 twice",
    );
    let zone = PlanWish {
        zones: vec![(url(0), "no zone".to_owned())],
        ..PlanWish::default()
    };
    starts(
        town.declined(0, plan(zone)),
        "bad-member: http://h0:8080 has the zone",
    );
    // The same member, written in two ways.
    let urls = [url(0), "H0:8080".to_owned()];
    let weights = PlanWish {
        weights: urls.clone().map(|url| (url, 2)).to_vec(),
        ..PlanWish::default()
    };
    let zones = PlanWish {
        zones: urls.map(|url| (url, "z".to_owned())).to_vec(),
        ..PlanWish::default()
    };
    for wish in [weights, zones] {
        starts(
            town.declined(0, plan(wish)),
            "contradiction: the order names H0:8080 twice",
        );
    }
    let draft = DraftId(7);
    starts(
        town.declined(0, ClusterOrder::Apply { draft }),
        "unknown-plan: this member made no plan 0000000000000007",
    );
    let to = url(1);
    let from = url(0);
    starts(
        town.declined(0, ClusterOrder::Readdress { from, to }),
        "is-member: http://h1:8080 is the address of a member already; give one",
    );
    let mut stranger = joiner(3);
    stranger.cluster = "village".to_owned();
    let EnrolAnswer::Refused { why } = town.enrol(0, stranger) else {
        panic!("it is of another cluster");
    };
    starts(
        why,
        "this member is of the cluster town, and the new one says village",
    );
    let mut alike = joiner(3);
    alike.node = node(1) + (1 << 40);
    let EnrolAnswer::Refused { why } = town.enrol(0, alike) else {
        panic!("its versions would be those of another");
    };
    assert!(why.contains("join with another empty folder"), "{why}");
}

#[test]
fn the_last_copy_of_a_partition_is_not_removed() {
    let mut town = Town::found(3, 1);
    town.stop(MemberId(1));
    let declined = town.declined(0, ClusterOrder::Plan(remove(1)));
    assert!(
        declined.starts_with("last-copy: all copies of partition"),
        "{declined}"
    );
}

#[test]
fn a_plan_that_was_made_for_another_epoch_is_not_applied() {
    let mut town = Town::found(4, 3);
    let draft = town.plan(0, remove(2));
    town.done(1, ClusterOrder::Rekey);
    town.pass(200_000);
    let declined = town.declined(0, ClusterOrder::Apply { draft: draft.id });
    assert_eq!(
        declined,
        "other-epoch: the plan was made for epoch 2, and the cluster is at epoch 3; make the plan \
         again and read it"
    );
}

fn versions(oldest: u16, newest: u16) -> ClusterVersions {
    ClusterVersions {
        oldest: ClusterVersion(oldest),
        newest: ClusterVersion(newest),
    }
}

fn restart(town: &mut Town, number: u32, known: ClusterVersions) {
    let id = MemberId(number);
    town.stop(id);
    town.houses.get_mut(&id).expect("a house").versions = known;
    town.start(id);
    town.pass(2_000_000);
}

#[test]
fn a_later_version_waits_until_all_members_know_it_and_for_an_order() {
    let mut town = Town::found(3, 3);
    for number in 0..3 {
        restart(&mut town, number, versions(1, 1));
    }
    let declined = town.declined(0, ClusterOrder::Finalize);
    assert!(
        declined.starts_with("newest-version: version 1 is"),
        "{declined}"
    );
    restart(&mut town, 0, versions(1, 2));
    restart(&mut town, 1, versions(1, 2));
    let declined = town.declined(0, ClusterOrder::Finalize);
    assert!(
        declined.starts_with("older-release: the release of http://h2:8080 knows version 1"),
        "{declined}"
    );
    // Back again: no record was written that the older release could not read.
    restart(&mut town, 0, versions(1, 1));
    restart(&mut town, 0, versions(1, 2));
    town.done(1, ClusterOrder::Rekey);
    town.stop(MemberId(2));
    town.pass(2_000_000);
    let declined = town.declined(0, ClusterOrder::Finalize);
    assert!(declined.starts_with("member-away: http://h2"), "{declined}");
    restart(&mut town, 2, versions(1, 2));
    let status = town.status(1);
    assert_eq!(status.version, ClusterVersion(1));
    let known: Vec<_> = status.members.iter().map(|m| m.versions).collect();
    assert_eq!(known, [Some(versions(1, 2)); 3]);
    town.done(1, ClusterOrder::Finalize);
    town.pass(2_000_000);
    for number in 0..3 {
        assert_eq!(town.record(number).in_force(), ClusterVersion(2));
        assert_eq!(town.status(number).version, ClusterVersion(2));
    }
    let declined = town.declined(2, ClusterOrder::Finalize);
    assert!(declined.starts_with("newest-version"), "{declined}");
    // Changes go on, and the version stays.
    town.done(0, ClusterOrder::Rekey);
    assert_eq!(town.record(0).in_force(), ClusterVersion(2));
}

#[test]
fn a_restore_raises_the_least_successor_number_once_at_all_members_and_a_joiner_learns_it() {
    let order = |number| ClusterOrder::Restored {
        least: LeastSuccessor::new(number).expect("a small one"),
    };
    let mut town = Town::forgetting(3);
    town.stop(MemberId(2));
    town.pass(2_000_000);
    let epoch = town.done(0, order(70_000));
    // A command that goes on finds it: a lower one, or the same, has no effect.
    for number in [70_000, 9] {
        let declined = town.declined(1, order(number));
        assert!(declined.starts_with("cannot-follow"), "{declined}");
    }
    town.start(MemberId(2));
    town.pass(2_000_000);
    for number in 0..3 {
        assert_eq!(town.record(number).least_successor().number(), 70_000);
    }
    let before = town.record(0).epoch();
    assert!(before >= epoch);
    assert_eq!(town.join(1, &joiner(3)), MemberId(3));
    town.pass(10_000_000);
    assert_eq!(town.record(3).change(), EpochChange::Finished);
    assert_eq!(town.record(3).least_successor().number(), 70_000);
}

#[test]
fn a_member_on_an_older_release_ends_when_it_meets_a_later_version() {
    let mut town = Town::found(3, 3);
    for number in 0..3 {
        restart(&mut town, number, versions(1, 2));
    }
    // It is stopped after its word, and comes back with the older release.
    town.letters_lost.push(MemberId(2));
    town.done(0, ClusterOrder::Finalize);
    town.pass(2_000_000);
    assert_eq!(town.record(2).in_force(), ClusterVersion(1));
    town.letters_lost.clear();
    restart(&mut town, 2, versions(1, 1));
    town.pass(6_000_000);
    let house = &town.houses[&MemberId(2)];
    assert_eq!(house.outdated, Some(ClusterVersion(2)));
    assert!(!house.was_removed, "its folder is good");
    restart(&mut town, 2, versions(1, 2));
    town.pass(6_000_000);
    assert_eq!(town.record(2).in_force(), ClusterVersion(2));
}

#[test]
fn an_order_without_a_majority_is_answered_in_time() {
    let mut town = Town::found(3, 3);
    town.stop(MemberId(1));
    town.stop(MemberId(2));
    assert_eq!(town.order(0, ClusterOrder::Rekey), None);
    town.pass(CLUSTER_ORDER_US + 1_000_000);
    let waits = town.status(0).waits.expect("it waits").why;
    assert!(waits.starts_with("1 of 3 voters can be reached"), "{waits}");
    town.start(MemberId(1));
    town.pass(5_000_000);
    assert!(town.record(0).secrets() == 2 || town.record(0).epoch() == 2);
}

#[test]
fn an_address_changes_like_anything_else() {
    let mut town = Town::found(3, 3);
    let (from, to) = (url(2), "H9:9000/".to_owned());
    let epoch = town.done(0, ClusterOrder::Readdress { from, to });
    town.pass(200_000);
    assert_eq!(epoch, 3);
    let member = town.record(1).member(MemberId(2)).expect("it stays");
    assert_eq!(member.place.url, "http://h9:9000");
}

#[test]
fn all_members_are_told_how_fast_they_may_load() {
    let mut town = Town::found(3, 3);
    let bytes_per_second = 1 << 20;
    town.done(2, ClusterOrder::Throttle { bytes_per_second });
    assert!(
        town.houses
            .values()
            .all(|house| house.throttle == Some(1 << 20))
    );
    // So is one that comes later.
    let late = town.join(0, &joiner(3));
    town.pass(1_000_000);
    assert_eq!(town.houses[&late].throttle, Some(1 << 20));
    town.pass(10_000_000);
    let wish = PlanWish {
        weights: vec![(url(0), 2)],
        replication_factor: Some(2),
        ..PlanWish::default()
    };
    let draft = town.plan(2, wish);
    assert!(draft.seconds.is_some() && draft.replication_factor == 2);
}

#[test]
fn the_last_order_to_load_slower_holds_also_for_a_member_that_was_away() {
    let mut town = Town::found(3, 3);
    let order = |bytes_per_second| ClusterOrder::Throttle { bytes_per_second };
    town.done(0, order(5));
    town.pass(1_000_000);
    let noted = town.steward(2).throttled().expect("it was told");
    town.stop(MemberId(2));
    town.done(1, order(10));
    town.pass(1_000_000);
    // It comes back with the state in its folder, and tells that state, too.
    town.start(MemberId(2));
    town.resume_throttle(2, noted);
    town.pass(1_000_000);
    for number in 0..3 {
        let known = town.steward(number).throttled();
        assert_eq!(
            known.map(|order| order.bytes_per_second),
            Some(10),
            "{number}"
        );
    }
}

#[test]
fn a_joiner_with_a_full_disk_ends_its_plan_with_a_reason() {
    let mut town = Town::found(3, 3);
    town.is_loading = false;
    let before = town.record(0).owners().digest();
    let late = town.join(1, &joiner(3));
    town.pass(2_000_000);
    let full = |is_full| StewardEvent::DiskLooked { is_full };
    // Room that is made in time makes no difference.
    town.tell(late, full(true));
    town.pass(5_000_000);
    let waits = town.status(0).waits.expect("it is said").why;
    assert!(waits.contains(&url(3)) && waits.contains("full"), "{waits}");
    town.tell(late, full(false));
    town.pass(FULL_DISK_PATIENCE_US);
    assert!(town.record(0).plan().is_some_and(|plan| !plan.is_cancelled));
    town.tell(late, full(true));
    town.pass(FULL_DISK_PATIENCE_US + 3_000_000);
    let record = town.record(0);
    assert!(record.plan().is_none() && record.member(late).is_none());
    assert_eq!(record.owners().members().len(), 3);
    assert_eq!(record.voters().len(), 3);
    assert!(town.houses[&late].was_removed);
    let owners = record.owners();
    let is_old = owners.all().all(|p| owners.owners(p).len() == 3);
    assert!(is_old, "no copy was lost: {before:x}");
    for number in 0..3 {
        let order = ClusterOrder::History { entries: 100 };
        let Some(ClusterAnswer::History {
            epochs: entries, ..
        }) = town.order(number, order)
        else {
            panic!("a history");
        };
        let cancelled = entries.iter().find(|e| e.change == EpochChange::Cancelled);
        let why = cancelled.and_then(|entry| entry.why.clone());
        assert!(
            why.is_some_and(|why| why.contains(&url(3)) && why.contains("full")),
            "{number}"
        );
    }
}

#[test]
fn a_replication_factor_shrinks_and_grows() {
    let mut town = Town::forgetting(5);
    for copies in [4, 5, 4, 3, 2, 3] {
        let wish = PlanWish {
            replication_factor: Some(copies),
            ..PlanWish::default()
        };
        // The second plan in a row that lowers it.
        if matches!(copies, 3 | 2) && town.record(0).replication_factor() > copies {
            let why = town.declined(0, ClusterOrder::Plan(wish.clone()));
            assert!(why.starts_with("copies-not-compared: "), "{why}");
            (0..5).for_each(|number| town.forgets(number, None, CLOCK));
            town.pass(2_000_000);
        }
        let draft = town.plan(0, wish);
        town.done(0, ClusterOrder::Apply { draft: draft.id });
        town.pass(120_000_000);
        let record = town.record(4);
        assert_eq!(
            record.plan().map(|plan| plan.begun),
            None,
            "{copies} copies"
        );
        assert_eq!(record.replication_factor(), copies);
        assert!(is_balanced(record));
    }
}

#[test]
fn a_plan_goes_on_without_its_author() {
    let mut town = Town::found(4, 3);
    let draft = town.plan(0, remove(2));
    town.is_loading = false;
    town.done(0, ClusterOrder::Apply { draft: draft.id });
    town.pass(1_000_000);
    town.stop(MemberId(0));
    town.is_loading = true;
    for member in [1, 3].map(MemberId) {
        town.load(member);
    }
    let stopped = town.record(1).epoch();
    town.pass(30_000_000);
    // Only moves to the author wait for it.
    assert!(town.record(1).epoch() > stopped);
    town.start(MemberId(0));
    town.pass(30_000_000);
    assert!(town.record(1).plan().is_none());
}

#[test]
fn a_position_is_taken_away_once_a_majority_of_its_owners_knows() {
    let mut town = Town::found(5, 3);
    let wish = PlanWish {
        replication_factor: Some(2),
        ..PlanWish::default()
    };
    let draft = town.plan(0, wish);
    for member in [3, 4].map(MemberId) {
        town.stop(member);
    }
    town.done(0, ClusterOrder::Apply { draft: draft.id });
    town.pass(30_000_000);
    let record = town.record(0).clone();
    let plan = record.plan().expect("rows of both wait for them");
    assert!(plan.begun > 0, "others go on");
    for member in [3, 4].map(MemberId) {
        town.start(member);
    }
    town.pass(60_000_000);
    assert!(town.record(0).plan().is_none());
}

#[test]
fn a_plan_changes_the_number_of_copies_by_one() {
    let mut town = Town::found(5, 3);
    for copies in [1, 5] {
        let wish = PlanWish {
            replication_factor: Some(copies),
            ..PlanWish::default()
        };
        let why = town.declined(0, ClusterOrder::Plan(wish));
        assert!(
            why.starts_with("copies-apart: ") && why.contains("step by step"),
            "{why}"
        );
    }
}

#[test]
fn history_tells_what_each_epoch_did() {
    let mut town = Town::found(3, 3);
    town.join(0, &joiner(3));
    town.pass(10_000_000);
    let Some(ClusterAnswer::History {
        epochs: entries, ..
    }) = town.order(3, ClusterOrder::History { entries: 100 })
    else {
        panic!("a history");
    };
    // The joiner begins with an epoch that names it.
    assert!(entries.last().is_some_and(|e| e.epoch >= 3));
    assert_eq!(entries[0].change, EpochChange::Finished);
    let Some(ClusterAnswer::History {
        epochs: entries, ..
    }) = town.order(0, ClusterOrder::History { entries: 100 })
    else {
        panic!("a history");
    };
    let settled: usize = entries.iter().map(|entry| entry.settled).sum();
    let begun: usize = entries.iter().map(|entry| entry.begun).sum();
    assert!(begun > 170 && settled == begun, "{settled} of {begun}");
    let planned = entries.iter().find(|e| e.change == EpochChange::Planned);
    assert_eq!(planned.map(|entry| &entry.came[..]), Some(&[url(3)][..]));
    assert_eq!(
        entries.last().map(|e| (e.epoch, e.change)),
        Some((1, EpochChange::Founded))
    );
}
