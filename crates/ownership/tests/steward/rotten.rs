//! Scripts: folders that have lost records of epochs to a damaged block.
//!
//! ```text
//! news of 9 at a member that lost 6 7 8, which the others have ─► not taken: it learns 6 first
//! epochs 1 2 . . 19 … 26 at all ─► one loses 3… ─► learns 19 … 26 from the others, and votes again
//! an epoch is adopted, and lost without a start in between ─► its member knows that it lacks it
//! X accepted by two ─► one of them dies, the other loses its newest epoch ─► X is chosen, not Y
//! ```
//!
//! Not here: which records of a folder can be read (crate `server`, `disk/epochs.rs`).

use crate::rising::CLOCK;
use crate::scripts::all_at;
use crate::town::{Town, url};
use dendra_ownership::epoch::chain::ChainMessage;
use dendra_ownership::epoch::record::EpochChange;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::{ClusterAnswer, ClusterOrder, DraftId, PlanWish};
use dendra_ownership::steward::messages::StewardMessage;
use dendra_ownership::steward::step::StewardEvent;
use std::sync::Arc;

/// Raises the horizons so many times.
fn rise(town: &mut Town, times: usize) {
    for _ in 0..times {
        (0..3).for_each(|number| town.forgets(number, None, CLOCK));
        town.pass(2_000_000);
    }
}

#[test]
fn a_member_that_lost_its_newest_epochs_learns_those_that_the_others_kept() {
    let mut town = Town::forgetting(3);
    let first = town.record(0).epoch();
    rise(&mut town, 24);
    let newest = first + 24;
    assert!(all_at(&town, newest));
    let member = MemberId(2);
    // Its own note names the epoch of its last start.
    town.stop(member);
    town.start(member);
    town.stop(member);
    let house = town.houses.get_mut(&member).expect("a house");
    assert!(!house.epochs().contains(&(first + 1)), "steps are dropped");
    house.lose_epochs(first + 1..);
    town.letters_lost = vec![member];
    town.start(member);
    town.pass(3_000_000);
    // Before it has learnt them it knows that it lacks them.
    let steward = town.steward(2);
    assert_eq!(steward.record().epoch(), first);
    assert!(steward.missing().is_some());
    town.letters_lost.clear();
    town.pass(5_000_000);
    assert!(all_at(&town, newest), "{}", town.record(2).epoch());
    assert_eq!(town.record(2).digest(), town.record(0).digest());
    assert_eq!(town.steward(2).missing(), None);
    // It takes part again: each step needs all members, and each change a majority.
    rise(&mut town, 2);
    assert!(all_at(&town, newest + 2));
    town.stop(MemberId(1));
    town.done(2, ClusterOrder::Rekey);
    town.pass(2_000_000);
    assert!(all_at(&town, newest + 3));
}

#[test]
fn a_member_that_lost_epochs_skips_none_that_the_others_have() {
    let mut town = Town::forgetting(3);
    let first = town.record(0).epoch();
    town.done(0, ClusterOrder::Rekey);
    town.pass(2_000_000);
    rise(&mut town, 2);
    let newest = first + 3;
    assert!(all_at(&town, newest));
    let member = MemberId(2);
    town.stop(member);
    let house = town.houses.get_mut(&member).expect("a house");
    house.lose_epochs(first + 1..);
    town.letters_lost = vec![member];
    town.start(member);
    // The newest epoch is announced before the member has asked for the others. Its floor is
    // higher.
    let from = town.houses[&MemberId(0)].peer;
    let records = vec![Arc::clone(town.record(0))];
    let message = StewardMessage::Chain(ChainMessage::Chosen { records });
    town.tell(member, StewardEvent::Received { from, message });
    assert_eq!(town.record(2).epoch(), first);
    town.letters_lost.clear();
    town.pass(5_000_000);
    assert!(all_at(&town, newest));
    let epochs = town.houses[&member].epochs();
    assert!(epochs.contains(&(first + 1)), "{epochs:?}");
}

#[test]
fn a_member_that_lost_an_epoch_keeps_its_vote_for_the_one_behind_it() {
    let mut town = Town::found(3, 3);
    let epoch = town.record(0).epoch();
    let (author, third, voter) = (MemberId(0), MemberId(1), MemberId(2));
    // The author and the voter accept the next epoch. Only the author learns that it is chosen.
    town.letters_lost = vec![third];
    town.is_chosen_lost = true;
    town.done(0, ClusterOrder::Rekey);
    assert_eq!(town.record(0).epoch(), epoch + 1);
    let chosen = town.record(0).digest();
    town.stop(author);
    town.stop(voter);
    let house = town.houses.get_mut(&voter).expect("a house");
    house.lose_epochs(epoch..);
    town.letters_lost.clear();
    town.is_chosen_lost = false;
    town.start(voter);
    town.pass(2_000_000);
    town.done(
        1,
        ClusterOrder::Readdress {
            from: url(0),
            to: url(7),
        },
    );
    town.pass(2_000_000);
    let house = town.houses.get_mut(&third).expect("a house");
    assert_eq!(house.digest_of(epoch + 1), Some(chosen), "another epoch");
    assert_eq!(town.record(1).change(), EpochChange::Readdressed);
    town.start(author);
    town.pass(2_000_000);
    assert!(all_at(&town, epoch + 2));
}

#[test]
fn two_members_that_lost_the_same_epoch_choose_no_other_one() {
    let mut town = Town::found(3, 3);
    let epoch = town.record(0).epoch();
    for member in [MemberId(1), MemberId(2)] {
        town.stop(member);
        town.start(member);
        town.stop(member);
        let house = town.houses.get_mut(&member).expect("a house");
        house.lose_epochs(epoch..);
    }
    town.stop(MemberId(0));
    town.start(MemberId(1));
    town.start(MemberId(2));
    // Both know the founders' folders, and could enrol them once more.
    town.pass(60_000_000);
    assert_eq!(town.record(1).epoch(), epoch - 1);
    town.start(MemberId(0));
    town.pass(3_000_000);
    assert!(all_at(&town, epoch));
}

#[test]
fn a_member_that_lost_an_epoch_without_a_start_behind_it_knows_it() {
    let mut town = Town::found(3, 3);
    let epoch = town.record(0).epoch();
    let member = MemberId(2);
    // It learns the epoch and has no part in the vote.
    town.letters_lost = vec![member];
    town.done(0, ClusterOrder::Rekey);
    town.letters_lost.clear();
    town.pass(2_000_000);
    assert!(all_at(&town, epoch + 1));
    town.stop(member);
    let house = town.houses.get_mut(&member).expect("a house");
    house.lose_epochs(epoch + 1..);
    town.letters_lost = vec![member];
    town.start(member);
    town.pass(2_000_000);
    assert_eq!(town.record(2).epoch(), epoch);
    assert_eq!(town.steward(2).missing(), Some(epoch + 1));
    town.letters_lost.clear();
    town.pass(2_000_000);
    assert!(all_at(&town, epoch + 1));
    assert_eq!(town.steward(2).missing(), None);
}

#[test]
fn an_operator_lets_the_member_that_is_left_go_on_behind_its_lost_epochs() {
    let mut town = Town::found(2, 2);
    let first = town.record(0).epoch();
    let (left, gone) = (MemberId(0), MemberId(1));
    let wish = PlanWish {
        remove: vec![url(1)],
        replication_factor: Some(1),
        ..PlanWish::default()
    };
    let draft = town.plan(0, wish).id;
    town.done(0, ClusterOrder::Apply { draft });
    town.pass(30_000_000);
    let newest = town.record(0).epoch();
    assert_eq!(town.record(0).members().len(), 1);
    let member = url(0);
    let order = |town: &mut Town, confirm| {
        let member = member.clone();
        let answer = town.order(0, ClusterOrder::AcceptLoss { member, confirm });
        answer.expect("an answer at once")
    };
    town.stop(left);
    let house = town.houses.get_mut(&left).expect("a house");
    house.lose_epochs(first + 1..);
    town.start(left);
    town.pass(60_000_000);
    assert_eq!(town.record(0).epoch(), first, "it was not alone");
    assert_eq!(town.steward(0).missing(), Some(newest));
    let ClusterAnswer::Loss(draft) = order(&mut town, None) else {
        panic!("it is shown");
    };
    assert_eq!((draft.lost.as_slice(), draft.epoch), (&[url(1)][..], first));
    let epochs = draft.epochs.map(|lost| (lost.first, lost.last));
    assert_eq!(epochs, Some((first + 1, newest)));
    assert!(
        draft.means().contains("http://h1:8080 out"),
        "{}",
        draft.means()
    );
    let other = order(&mut town, Some(DraftId(draft.id.0 + 1)));
    assert!(matches!(other, ClusterAnswer::Declined(why) if why.code() == "other-loss"));
    assert_eq!(town.record(0).epoch(), first, "it was only shown");
    let done = ClusterAnswer::Done { epoch: newest };
    assert_eq!(order(&mut town, Some(draft.id)), done);
    assert_eq!(town.steward(0).missing(), None);
    assert_eq!(town.record(0).epoch(), newest);
    town.done(0, ClusterOrder::Rekey);
    assert_eq!(town.record(0).epoch(), newest + 1);
    // Where another member is left to tell, the order names it.
    let mut town = Town::found(2, 2);
    town.stop(left);
    town.stop(gone);
    let house = town.houses.get_mut(&left).expect("a house");
    house.lose_epochs(first..);
    town.start(left);
    let ClusterAnswer::Declined(why) = order(&mut town, None) else {
        panic!("nothing can be accepted");
    };
    assert_eq!(why.code(), "epochs-lost");
    assert!(why.to_string().contains("start http://h1:8080"), "{why}");
}
