//! A change of the members is cancelled at each of its steps, while each member is away; then the
//! operator goes on as the manual says.
//!
//! ```text
//! join, remove, replace, replace in place ─► behind each arrival of positions ─► a member stops, or none
//!     ─► cancel ─► it ends, or the status names who is away ─► that one starts ─► the change again ─► it ends
//! ```
//!
//! Invariants
//! 1. From every state an order that the status or the manual names leads to an end.
//! 2. A change that waits names only members that are away or lost.
//!
//! Not here: chance (`search/`), the words of each refusal (`scripts.rs`).

use crate::scripts::remove;
use crate::town::{Town, joiner, url};
use dendra_ownership::limits::REPLACE_PATIENCE_US;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::ClusterOrder;
use dendra_ownership::steward::messages::EnrolRequest;
use dendra_ownership::steward::step::StewardEvent;

/// A replaced member, which never comes back.
const LOST: MemberId = MemberId(1);
/// A member that leaves.
const LEAVING: u32 = 3;
/// Long enough for all that needs no further arrival.
const WHILE_US: u64 = 20_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Join,
    Remove,
    Replace,
    ReplaceInPlace,
}

impl Change {
    fn is_replacement(self) -> bool {
        matches!(self, Change::Replace | Change::ReplaceInPlace)
    }

    /// What the new member asks for, the first one or a later one.
    fn joiner(self, number: u32) -> EnrolRequest {
        let mut request = joiner(number);
        if self.is_replacement() {
            request.replaces = Some(url(LOST.0));
        }
        if self == Change::ReplaceInPlace {
            request.place.url = url(LOST.0);
        }
        request
    }
}

/// A cluster in which the change has begun, with the member that is new in it.
fn begun(change: Change) -> (Town, Option<MemberId>) {
    let mut town = Town::found(5, 3);
    town.is_loading = false;
    if change == Change::Remove {
        order_removal(&mut town, 0, url(LEAVING));
        return (town, None);
    }
    if change.is_replacement() {
        town.stop(LOST);
        town.pass(REPLACE_PATIENCE_US);
    }
    let new = town.join(0, &change.joiner(9));
    (town, Some(new))
}

fn order_removal(town: &mut Town, asked: u32, whom: String) {
    let mut wish = remove(0);
    wish.remove = vec![whom];
    let draft = town.plan(asked, wish);
    town.done(asked, ClusterOrder::Apply { draft: draft.id });
    town.pass(1_000_000);
}

/// A part of what moves to each member arrives.
fn arrive(town: &mut Town) {
    let members: Vec<MemberId> = town.up().collect();
    for member in members {
        let record = town.record(member.0).clone();
        let is_its = |p: &_| {
            let step = record.moving(*p);
            step.is_some_and(|step| step.moving.to == Some(member))
        };
        let all: Vec<_> = record.owners().all().filter(is_its).collect();
        let partitions = all[..all.len().div_ceil(3)].to_vec();
        let epoch = record.epoch();
        if !partitions.is_empty() {
            town.tell(member, StewardEvent::Loaded { epoch, partitions });
        }
    }
    town.pass(1_000_000);
}

fn has_plan(town: &mut Town) -> bool {
    let by = asked(town);
    town.status(by).plan.is_some()
}

/// The change has come so far; `None` when it has ended before.
fn behind(change: Change, arrivals: usize) -> Option<(Town, Option<MemberId>)> {
    let (mut town, new) = begun(change);
    for _ in 0..arrivals {
        arrive(&mut town);
    }
    has_plan(&mut town).then_some((town, new))
}

/// A member that can be asked: it is up, it stays, and it is no new one.
fn asked(town: &Town) -> u32 {
    let mut up = town.up().filter(|id| id.0 < 5 && id.0 != LEAVING);
    up.next().expect("most are up").0
}

/// Cancels, and starts whom the status names, until no plan is under way.
fn cancel(town: &mut Town, change: Change, away: Option<MemberId>, case: &str) {
    let by = asked(town);
    let answer = town.order(by, ClusterOrder::Cancel);
    town.pass(WHILE_US);
    if !has_plan(town) {
        return;
    }
    let status = town.status(by);
    let waits = status
        .waits
        .unwrap_or_else(|| panic!("{case}: no reason: {answer:?}"));
    let away = away.unwrap_or_else(|| panic!("{case}: all that can be are up: {}", waits.why));
    let lost = change.is_replacement().then(|| url(LOST.0));
    let may_be_named = |name: &String| {
        *name == url(away.0) || lost.as_ref() == Some(name) || name.contains("invalid")
    };
    let named = &waits.members;
    assert!(
        named.iter().all(may_be_named) && !named.is_empty(),
        "{case}: {named:?}: {}",
        waits.why
    );
    town.start(away);
    town.pass(WHILE_US);
    if has_plan(town) {
        town.done(by, ClusterOrder::Cancel);
        town.pass(WHILE_US);
    }
    assert!(!has_plan(town), "{case}: {:?}", town.status(by).waits);
}

/// The change is made again, whatever is left of the first one.
fn again(town: &mut Town, change: Change, new: Option<MemberId>, case: &str) {
    town.is_loading = true;
    let by = asked(town);
    let record = town.record(by).clone();
    let url_of = |id: MemberId| record.member(id).map(|member| member.place.url.clone());
    match change {
        Change::Remove => order_removal(town, by, url(LEAVING)),
        Change::Join => {
            if new.and_then(url_of).is_none() {
                town.join(by, &change.joiner(10));
            }
        }
        Change::Replace | Change::ReplaceInPlace => {
            let lost = url_of(LOST).unwrap_or_else(|| panic!("{case}: it is still a member"));
            if new.and_then(url_of).is_some() {
                // The new one is a member, with what had moved.
                order_removal(town, by, lost);
            } else {
                town.join(by, &change.joiner(10));
            }
        }
    }
    town.pass(WHILE_US);
    let status = town.status(by);
    assert!(status.plan.is_none(), "{case}: {:?}", status.waits);
    let record = town.record(by).clone();
    let (left, members) = match change {
        Change::Join => (None, 6),
        Change::Remove => (Some(MemberId(LEAVING)), 4),
        Change::Replace | Change::ReplaceInPlace => (Some(LOST), 5),
    };
    assert_eq!(record.members().len(), members, "{case}");
    assert!(
        left.is_none_or(|left| record.member(left).is_none()),
        "{case}"
    );
    let ups: Vec<MemberId> = town.up().collect();
    assert!(
        ups.iter()
            .all(|id| town.record(id.0).epoch() == record.epoch()),
        "{case}"
    );
}

fn walk(change: Change) -> usize {
    let mut cases = 0;
    for arrivals in 0.. {
        let Some((town, _)) = behind(change, arrivals) else {
            break;
        };
        let away: Vec<MemberId> = town.up().collect();
        for away in [None].into_iter().chain(away.into_iter().map(Some)) {
            let case = format!("{change:?} behind {arrivals} arrivals, {away:?} away");
            let (mut town, new) = behind(change, arrivals).expect("a script is the same again");
            if let Some(away) = away {
                town.stop(away);
            }
            cancel(&mut town, change, away, &case);
            if let Some(away) = away.filter(|id| !town.up().any(|up| up == *id)) {
                let is_removed = town.houses[&away].was_removed;
                if !is_removed {
                    town.start(away);
                    town.pass(WHILE_US);
                }
            }
            again(&mut town, change, new, &case);
            cases += 1;
        }
    }
    cases
}

#[test]
fn a_change_that_is_cancelled_anywhere_can_be_made_again() {
    let changes = [
        Change::Join,
        Change::Remove,
        Change::Replace,
        Change::ReplaceInPlace,
    ];
    for change in changes {
        let cases = walk(change);
        println!("{change:?}: {cases} cases");
        assert!(cases > 20, "{change:?} has {cases} states only");
    }
}
