//! Plans that wait: the status names the members that they wait for, and tells no time.

use crate::scripts::remove;
use crate::town::{Town, joiner, url};
use dendra_ownership::limits::{LOAD_PATIENCE_US_DEFAULT, PLAN_QUIET_US, REPLACE_PATIENCE_US};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::{ClusterOrder, ClusterStatus, PlanWish};
use dendra_ownership::steward::step::StewardEvent;

/// Member 1 of five is replaced at its own address, and nothing has loaded yet.
fn replaced(away: &[u32]) -> (Town, MemberId) {
    let mut town = Town::forgetting(5);
    town.is_loading = false;
    for number in away.iter().chain(&[1]) {
        town.stop(MemberId(*number));
    }
    town.pass(REPLACE_PATIENCE_US);
    let mut request = joiner(9);
    request.place.url = url(1);
    request.replaces = Some(url(1));
    let new = town.join(0, &request);
    town.pass(LOAD_PATIENCE_US_DEFAULT + 1_000_000);
    (town, new)
}

fn seconds_left(status: &ClusterStatus) -> Option<u64> {
    status.plan.as_ref().expect("positions move").seconds_left
}

/// Half of it is loaded, and then nothing.
fn half(town: &mut Town, new: MemberId) {
    for loaded_bytes in [0, 300 << 10, 400 << 10] {
        let gauged = StewardEvent::Gauged {
            stored_bytes: loaded_bytes,
            loaded_bytes,
        };
        town.tell(new, gauged);
        town.pass(1_200_000);
    }
}

#[test]
fn a_replacement_that_needs_copies_of_a_member_that_is_away_names_it_at_each_member() {
    let (mut town, new) = replaced(&[4]);
    half(&mut town, new);
    let start = "http://h1:8080 has to load ";
    for number in [0, 2, 3, new.0] {
        let status = town.status(number);
        assert_eq!(seconds_left(&status), None, "at {number}");
        let waits = status.waits.expect("it waits");
        assert_eq!(waits.members, [url(4)], "at {number}: {}", waits.why);
        assert!(waits.why.starts_with(start), "{}", waits.why);
        assert!(waits.why.contains("positions from http://h4:8080, which"));
    }
    town.start(MemberId(4));
    town.pass(2_000_000);
    assert_eq!(town.status(0).waits, None);
    town.is_loading = true;
    town.load(new);
    town.pass(10_000_000);
    assert_eq!(town.status(0).plan, None);
}

#[test]
fn a_replacement_waits_for_no_member_that_its_loader_does_without() {
    let (mut town, new) = replaced(&[]);
    half(&mut town, new);
    let status = town.status(0);
    assert_eq!(status.waits, None, "the lost one is not waited for");
    assert!(seconds_left(&status).is_some_and(|seconds| seconds < 60));
}

#[test]
fn a_source_that_only_the_new_owner_does_not_reach_is_named() {
    let (mut town, new) = replaced(&[]);
    town.cut(new.0, 3);
    town.pass(2_000_000);
    let waits = town.status(0).waits.expect("it waits");
    assert_eq!(waits.members, [url(3)]);
}

#[test]
fn a_plan_in_which_nothing_moves_for_long_waits_although_no_reason_is_known() {
    let (mut town, new) = replaced(&[]);
    half(&mut town, new);
    town.pass(6_000_000);
    let status = town.status(2);
    assert_eq!((seconds_left(&status), status.waits), (None, None));
    town.pass(PLAN_QUIET_US);
    let status = town.status(2);
    assert_eq!(seconds_left(&status), None);
    let waits = status.waits.expect("nothing moves");
    assert_eq!(waits.members, [url(1)]);
    assert!(
        waits.why.contains("has loaded no record for 3"),
        "{}",
        waits.why
    );
}

#[test]
fn no_time_is_told_from_too_few_bytes() {
    let (mut town, new) = replaced(&[]);
    for (loaded_bytes, tells) in [(0, false), (100, false), (1_000, false), (500 << 10, true)] {
        let gauged = StewardEvent::Gauged {
            stored_bytes: loaded_bytes,
            loaded_bytes,
        };
        town.tell(new, gauged);
        town.pass(1_200_000);
        let seconds = seconds_left(&town.status(0));
        assert_eq!(seconds.is_some(), tells, "{seconds:?} of {loaded_bytes}");
    }
}

#[test]
fn a_change_without_a_majority_names_the_voters_that_are_away() {
    let mut town = Town::found(4, 3);
    let draft = town.plan(0, remove(3));
    town.is_loading = false;
    town.done(0, ClusterOrder::Apply { draft: draft.id });
    town.stop(MemberId(1));
    town.stop(MemberId(2));
    let waits = town.status(0).waits.expect("it waits");
    assert_eq!(waits.members, [url(1), url(2)]);
}

#[test]
fn a_position_that_is_taken_away_names_the_owners_whose_fences_it_lacks() {
    let mut town = Town::found(5, 3);
    for number in [3, 4] {
        town.stop(MemberId(number));
    }
    let wish = PlanWish {
        replication_factor: Some(2),
        ..PlanWish::default()
    };
    let draft = town.plan(0, wish);
    town.done(0, ClusterOrder::Apply { draft: draft.id });
    town.pass(20_000_000);
    let waits = town
        .status(2)
        .waits
        .expect("a majority of two owners is away");
    assert_eq!(waits.members, [url(3), url(4)]);
    assert!(waits.why.contains("are taken away once"), "{}", waits.why);
    town.start(MemberId(4));
    town.pass(20_000_000);
    assert_eq!(town.status(2).plan, None);
}
