//! The progress of a plan whose positions all move side by side, and arrive together.

use crate::town::{Town, joiner};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::PlanState;
use dendra_ownership::steward::step::StewardEvent;

const STORED: u64 = 1 << 20;

/// The joiner's process has loaded so many bytes, and all others have heard of it.
fn loaded(town: &mut Town, late: MemberId, loaded_bytes: u64) -> PlanState {
    let gauged = StewardEvent::Gauged {
        stored_bytes: loaded_bytes,
        loaded_bytes,
    };
    town.tell(late, gauged);
    town.pass(1_200_000);
    town.status(1).plan.expect("positions move")
}

#[test]
fn the_bytes_of_a_plan_fall_while_no_position_has_arrived() {
    let mut town = Town::found(3, 3);
    town.is_loading = false;
    let late = town.join(1, &joiner(3));
    town.pass(2_000_000);
    let begun = loaded(&mut town, late, 0);
    let all = begun.bytes_left.expect("all have told");
    assert_eq!((begun.done, begun.seconds_left), (0, None));
    assert!(all > STORED / 2 && all < STORED, "{all} of three members");
    let half = loaded(&mut town, late, all / 2);
    assert_eq!((half.done, half.bytes_left), (0, Some(all - all / 2)));
    let rate = half.bytes_per_second;
    assert!(rate > 0 && half.seconds_left == Some((all - all / 2).div_ceil(rate)));
    // The estimate was too small.
    let over = loaded(&mut town, late, 2 * all);
    assert_eq!((over.done, over.bytes_left), (0, Some(0)));
    // A new process loads its positions from their beginnings.
    town.stop(late);
    town.start(late);
    let again = loaded(&mut town, late, 7);
    assert_eq!((again.done, again.bytes_left), (0, Some(all - 7)));
    town.is_loading = true;
    town.load(late);
    town.pass(10_000_000);
    assert_eq!(town.status(1).plan, None);
}

#[test]
fn a_member_that_went_away_loads_nothing_and_no_time_is_told() {
    let mut town = Town::found(3, 3);
    town.is_loading = false;
    let late = town.join(1, &joiner(3));
    town.pass(2_000_000);
    let all = loaded(&mut town, late, 0)
        .bytes_left
        .expect("all have told");
    let half = loaded(&mut town, late, all / 2);
    assert!(half.bytes_per_second > 0 && half.seconds_left.is_some());
    town.stop(late);
    town.pass(1_000_000);
    let stalled = town.status(1).plan.expect("positions move");
    assert_eq!(stalled.bytes_left, Some(all - all / 2));
    assert_eq!((stalled.bytes_per_second, stalled.seconds_left), (0, None));
}
