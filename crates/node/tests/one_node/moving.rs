//! Operations while a position moves, one step at a time: both of its owners are heard.

use crate::epochs;
use crate::world::{Asked, KEY, SECOND_US, World, clock, put, record};
use dendra_base::peer::{Answer, Ask, Ballot, Condition, Operation};
use dendra_ownership::{Layout, MemberIndex};

/// A coordinator that owns no position of the key, and the old and the new owner: its only copy
/// moves from the first to the second.
fn moving() -> (World, [MemberIndex; 2]) {
    let enrolled = epochs::enrolled(3, 1);
    let layout = Layout::of_record(&enrolled).expect("its members");
    let partition = layout.ring().partition(KEY);
    let old = enrolled.owners().owners(partition)[0];
    let ids = enrolled.members().iter().map(|member| member.id);
    let others: Vec<_> = ids.filter(|id| *id != old).collect();
    let to_new = epochs::move_to(&enrolled, partition, 0, others[0]);
    let [me, old, new] = [others[1], old, others[0]].map(|id| layout.index_of(id));
    let record = epochs::moving(&enrolled, vec![to_new]);
    let mut world = World::new(record, me.expect("a member"));
    world.pass(0);
    world.cover();
    (world, [old, new].map(|owner| owner.expect("a member")))
}

/// The questions to the old and to the new owner.
fn asked_of(world: &mut World, owners: [MemberIndex; 2]) -> [Asked; 2] {
    let asked = world.asks();
    owners.map(|owner| {
        let found = asked.iter().find(|asked| asked.member == owner);
        found
            .unwrap_or_else(|| panic!("{owner:?} is not asked: {asked:?}"))
            .clone()
    })
}

#[test]
fn a_write_follows_the_clocks_of_both_owners() {
    let (mut world, owners) = moving();
    world.begin(put(Condition::None));
    let [of_old, of_new] = asked_of(&mut world, owners);
    let now = world.hlc.last();
    world.answer(&of_old, clock(now));
    assert_eq!(world.asks(), [], "the new owner may be an epoch ahead");
    world.answer(&of_new, clock(now + 1_000));
    let writes = world.asks();
    assert_eq!(writes.len(), 2, "{writes:?}");
    for Asked { ask, .. } in writes {
        let Ask::Write { cell, .. } = ask else {
            panic!("{ask:?} is no write");
        };
        assert!(cell.version.hlc > now + 1_000, "{:?}", cell.version);
    }
}

#[test]
fn a_record_is_missing_only_when_both_owners_have_none() {
    for has_new in [false, true] {
        let (mut world, owners) = moving();
        world.begin(Operation::Get);
        let [of_old, of_new] = asked_of(&mut world, owners);
        world.answer(&of_old, Answer::Cell(None));
        assert_eq!(world.outcomes(), [], "the new owner may be an epoch ahead");
        let copy = has_new.then(|| record(KEY, world.hlc.last() + 1_000, b"v").1);
        world.answer(&of_new, Answer::Cell(copy));
        let is_over = !world.outcomes().is_empty();
        assert_eq!(is_over, !has_new, "a copy is written to both first");
    }
}

#[test]
fn a_conditional_write_goes_above_the_higher_promise_of_both_owners() {
    for is_new_higher in [false, true] {
        let (mut world, owners) = moving();
        world.begin(put(Condition::Absent));
        let asked = asked_of(&mut world, owners);
        let now = world.hlc.last();
        let (low, high) = (now + (1 << 20), now + (1 << 30));
        let promised = if is_new_higher {
            [low, high]
        } else {
            [high, low]
        };
        for (asked, hlc) in asked.iter().zip(promised) {
            let promised = Ballot { hlc, origin: 9 };
            let line = None;
            world.answer(asked, Answer::Outbid { promised, line });
        }
        world.pass(SECOND_US / 2);
        world.cover();
        let prepared = world.asks().into_iter().find_map(|asked| match asked.ask {
            Ask::Prepare { ballot, .. } => Some(ballot),
            _ => None,
        });
        let ballot = prepared.expect("it tries again");
        assert!(ballot.hlc > high, "{is_new_higher}");
    }
}
