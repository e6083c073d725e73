//! Damage whose repair waits for a lost member, and a loss that an operator accepts.
//!
//! ```text
//! h1 whole    h2 lost, h4 is put in its place    h3 damaged, this member
//! Lost ─► walks of h1 and h4 ─► nothing more ─► loss() ─► AcceptLoss ─► Repaired
//! ```
//!
//! Not here: repairs without a loss (`repair.rs`), the operator's order (`steward/losses.rs`).
//! See: docs/protocol.md, "Damage".

use crate::epochs;
use crate::world::{Asked, World, last_page, span};
use bytes::Bytes;
use dendra_base::Key;
use dendra_base::peer::{Answer, Ask, Refused};
use dendra_node::limits::REPAIR_PAUSE_US;
use dendra_node::step::Event;
use dendra_ownership::MemberIndex;
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::limits::{LINKS_SETTLE_US, LOSS_BLOCKS_MAX};
use dendra_ownership::loss::WalkPart;
use dendra_ownership::loss::{NoLoss, RepairLoss};
use dendra_ownership::ring::table::MemberId;
use std::collections::BTreeSet;

const WAIT_US: u64 = 5_000_000;
const H1: MemberIndex = MemberIndex(0);
const H2: MemberIndex = MemberIndex(1);
const H3: MemberIndex = MemberIndex(2);
const H4: MemberIndex = MemberIndex(3);
const LOST: MemberId = MemberId(1);

/// A fourth member is put in the place of the second one: all positions move.
fn replacing(record: &EpochRecord) -> EpochRecord {
    epochs::replacing(record, LOST, &[LOST])
}

/// The third member, while the second one is lost and being replaced.
fn without_h2() -> World {
    linked_in(replacing(&epochs::enrolled(3, 3)))
}

/// The third member, with links to all others but the second.
fn linked_in(record: EpochRecord) -> World {
    let mut world = just_started(record);
    world.link_all();
    world.link(H2, false);
    world.effects();
    world
}

/// No link was tried yet.
fn just_started(record: EpochRecord) -> World {
    World::with(record, H3, |config| {
        config.is_keeper = true;
        config.repair_wait_us = WAIT_US;
    })
}

fn loss_of(world: &World) -> Result<RepairLoss, NoLoss> {
    world.node.loss(world.now())
}

/// These blocks are lost: (the id of the span, the mark of the block).
fn lose(world: &mut World, spans: &[(u64, u64)]) {
    let (first, last) = (Key::user(b"b"), Key::user(b"d"));
    let spans = spans
        .iter()
        .map(|(id, block)| span(*id, *block, &first, &last));
    let spans = spans.collect();
    world.step(Event::Lost { spans });
}

fn accept(world: &mut World, blocks: &[u64]) {
    world.step(Event::AcceptLoss {
        blocks: blocks.to_vec(),
        without: vec![LOST],
    });
}

/// Takes the pages of the repair that are asked for.
fn pages(world: &mut World) -> Vec<Asked> {
    let is_of_repair = |ask: &Ask| matches!(ask, Ask::Load { start, .. } if start == &b"b"[..]);
    let mut asks = world.asks();
    asks.retain(|asked| is_of_repair(&asked.ask));
    asks
}

/// Lets time pass. Each owner that is asked holds no record, but for those that answer `Damaged`.
/// Returns the owners that were walked.
fn walk(world: &mut World, damaged: &[MemberIndex]) -> BTreeSet<MemberIndex> {
    let mut walked = BTreeSet::new();
    for _ in 0..20 {
        world.pass(REPAIR_PAUSE_US);
        let mut asked = pages(world);
        while !asked.is_empty() {
            let page = asked.remove(0);
            let answer = if damaged.contains(&page.member) {
                Answer::Refused(Refused::Damaged)
            } else {
                walked.insert(page.member);
                last_page(Vec::new())
            };
            world.answer(&page, answer);
            asked.extend(pages(world));
        }
    }
    walked
}

#[test]
fn a_repair_that_waits_for_a_lost_member_ends_without_it_once_that_is_accepted() {
    let mut world = without_h2();
    lose(&mut world, &[(17, 5)]);
    assert_eq!(walk(&mut world, &[]), [H1, H4].into());
    assert_eq!(world.repaired(), [] as [u64; 0], "one of two owners");
    let loss = loss_of(&world).expect("nothing else ends it");
    assert_eq!(loss.blocks, [5]);
    assert_eq!(loss.without, [LOST].into());
    assert_eq!(loss.sources, [MemberId(0)].into(), "h4 has loaded nothing");
    assert_eq!(loss.partitions.len(), 256);
    let range = WalkPart {
        space: dendra_base::Space::User,
        start: Bytes::from_static(b"b"),
        last: Some(Bytes::from_static(b"d")),
    };
    assert_eq!((loss.ranges, loss.further), (vec![range], 0));
    accept(&mut world, &[5]);
    assert_eq!(world.repaired(), [17]);
}

#[test]
fn an_accepted_loss_waits_for_the_operations_under_way_and_for_the_owner_that_is_left() {
    let mut world = without_h2();
    lose(&mut world, &[(17, 5)]);
    assert!(loss_of(&world).is_ok(), "it may be accepted at once");
    accept(&mut world, &[5]);
    assert_eq!(loss_of(&world), Err(NoLoss::Accepted));
    world.pass(WAIT_US - 10);
    assert_eq!(pages(&mut world), []);
    assert_eq!(world.repaired(), [] as [u64; 0]);
    walk(&mut world, &[H1]);
    assert_eq!(world.repaired(), [] as [u64; 0], "no copy was read");
    assert_eq!(walk(&mut world, &[]), [H1].into());
    assert_eq!(world.repaired(), [17]);
    // The same order once more has no effect.
    accept(&mut world, &[5]);
    walk(&mut world, &[]);
    assert_eq!(world.repaired(), [] as [u64; 0]);
    assert_eq!(loss_of(&world), Err(NoLoss::NoDamage));
}

#[test]
fn a_lost_member_that_comes_back_is_walked_in_spite_of_the_order() {
    let mut world = without_h2();
    lose(&mut world, &[(17, 5)]);
    accept(&mut world, &[5]);
    world.link(H2, true);
    let damaged = [H2];
    assert_eq!(walk(&mut world, &damaged), [H1, H4].into());
    assert_eq!(
        world.repaired(),
        [] as [u64; 0],
        "it may have what h1 lacks"
    );
    assert_eq!(walk(&mut world, &[]), [H2].into());
    assert_eq!(world.repaired(), [17]);
}

#[test]
fn a_block_that_is_damaged_later_and_another_span_of_the_same_block_are_told_apart() {
    let mut world = without_h2();
    lose(&mut world, &[(17, 5)]);
    let shown = loss_of(&world).expect("a loss");
    // Between the show and the order the damage grows.
    lose(&mut world, &[(17, 5), (18, 6)]);
    accept(&mut world, &shown.blocks);
    walk(&mut world, &[]);
    assert_eq!(world.repaired(), [17]);
    let loss = loss_of(&world).expect("the other block waits");
    assert_eq!(loss.blocks, [6]);
    // The second stage of the accepted block has another id.
    lose(&mut world, &[(18, 6), (19, 5)]);
    walk(&mut world, &[]);
    assert_eq!(world.repaired(), [19]);
}

#[test]
fn there_is_no_loss_while_the_missing_owner_may_come_back_or_answers() {
    let mut world = linked_in(epochs::enrolled(3, 3));
    assert_eq!(loss_of(&world), Err(NoLoss::NoDamage));
    lose(&mut world, &[(17, 5)]);
    let away = NoLoss::Away { member: LOST };
    assert_eq!(loss_of(&world), Err(away), "no plan replaces it");
    accept(&mut world, &[5]);
    walk(&mut world, &[]);
    assert_eq!(
        world.repaired(),
        [] as [u64; 0],
        "an order for no lost member"
    );
    // A loss is accepted under the plan that takes the member away.
    let next = replacing(&world.record);
    let planned = next.epoch();
    assert_eq!(planned, world.record.epoch() + 2);
    let mut world = without_h2();
    lose(&mut world, &[(17, 5)]);
    world.link(H2, true);
    assert_eq!(loss_of(&world), Err(NoLoss::NotNeeded));
    world.link(H2, false);
    assert!(loss_of(&world).is_ok());
    world.link(H4, false);
    let away = NoLoss::Away {
        member: MemberId(3),
    };
    assert_eq!(loss_of(&world), Err(away), "some records have four copies");
}

#[test]
fn an_accepted_loss_ends_with_its_plan() {
    let mut world = without_h2();
    lose(&mut world, &[(17, 5)]);
    accept(&mut world, &[5]);
    let cancelled = world.record.cancelled().expect("a plan is under way");
    world.adopt(cancelled);
    walk(&mut world, &[]);
    assert_eq!(world.repaired(), [] as [u64; 0]);
    let away = NoLoss::Away { member: LOST };
    assert_eq!(loss_of(&world), Err(away));
}

#[test]
fn without_a_copy_that_can_be_read_nothing_can_be_accepted() {
    let mut world = linked_in(replacing(&epochs::enrolled(3, 2)));
    lose(&mut world, &[(17, 5)]);
    assert_eq!(loss_of(&world), Err(NoLoss::NoCopy), "of two copies");
    accept(&mut world, &[5]);
    walk(&mut world, &[]);
    assert_eq!(world.repaired(), [] as [u64; 0]);

    let mut world = without_h2();
    lose(&mut world, &[(17, 5)]);
    walk(&mut world, &[H1]);
    let unreadable = NoLoss::Unreadable {
        member: MemberId(0),
    };
    assert_eq!(loss_of(&world), Err(unreadable));
    walk(&mut world, &[]);
    assert!(loss_of(&world).is_ok(), "it has repaired its own damage");
}

#[test]
fn one_order_names_a_bounded_number_of_blocks() {
    let mut world = without_h2();
    let many: Vec<(u64, u64)> = (0..LOSS_BLOCKS_MAX as u64 + 3).map(|n| (n, n)).collect();
    lose(&mut world, &many);
    let loss = loss_of(&world).expect("a loss");
    assert_eq!((loss.blocks.len(), loss.further), (LOSS_BLOCKS_MAX, 3));
    accept(&mut world, &loss.blocks);
    let rest = loss_of(&world).expect("the rest");
    assert_eq!((rest.blocks.len(), rest.further), (3, 0));
}

#[test]
fn right_after_a_start_it_is_not_known_whether_there_is_a_loss() {
    let mut world = just_started(replacing(&epochs::enrolled(3, 3)));
    assert_eq!(loss_of(&world), Err(NoLoss::NoDamage));
    lose(&mut world, &[(17, 5)]);
    assert_eq!(loss_of(&world), Err(NoLoss::NotKnown), "no loop was told");
    // As a process begins: no link is up yet.
    for member in [H1, H2, H4] {
        world.link(member, false);
    }
    assert_eq!(loss_of(&world), Err(NoLoss::NotKnown));
    world.link(H1, true);
    world.link(H4, true);
    assert_eq!(loss_of(&world), Err(NoLoss::NotKnown), "h2 may be slow");
    world.pass(LINKS_SETTLE_US);
    assert!(loss_of(&world).is_ok(), "h2 had time to answer");
}

#[test]
fn two_members_with_damage_in_the_same_keys_are_repaired_from_the_third_once_that_is_accepted() {
    let mut world = linked_in(epochs::enrolled(3, 3));
    world.link(H2, true);
    lose(&mut world, &[(17, 5), (18, 6)]);
    assert_eq!(loss_of(&world), Err(NoLoss::NotNeeded));
    walk(&mut world, &[H1, H2]);
    let either = NoLoss::DamagedToo {
        member: MemberId(0),
    };
    assert_eq!(loss_of(&world), Err(either), "no owner has shown all");
    assert_eq!(walk(&mut world, &[H1]), [H2].into());
    assert_eq!(world.repaired(), [] as [u64; 0], "one of two owners");
    let loss = loss_of(&world).expect("h2 has shown all that it has");
    assert_eq!(loss.without, [MemberId(0)].into());
    assert_eq!(loss.sources, [MemberId(1)].into());
    assert_eq!((loss.blocks, loss.partitions.len()), (vec![5, 6], 256));
    let without = vec![MemberId(0)];
    let blocks = vec![5];
    world.step(Event::AcceptLoss { blocks, without });
    assert_eq!(world.repaired(), [17], "the order is for one block");
    let rest = loss_of(&world).expect("the other one waits");
    assert_eq!(rest.blocks, [6]);
}

#[test]
fn an_owner_that_was_given_up_as_damaged_is_asked_once_it_is_whole() {
    let mut world = linked_in(epochs::enrolled(3, 3));
    world.link(H2, true);
    lose(&mut world, &[(17, 5)]);
    world.step(Event::AcceptLoss {
        blocks: vec![5],
        without: vec![MemberId(0)],
    });
    assert_eq!(walk(&mut world, &[]), [H1, H2].into());
    assert_eq!(world.repaired(), [17]);
}
