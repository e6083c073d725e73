//! The claims about plans, each with its figure.

use super::*;
use crate::ring::shares::{Rounds, shares};
use crate::ring::tests::chains::{Chain, Kind, Shape, Step};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const CHANGES: usize = 50;

/// The members that can own something, with the share that people are shown, in partitions.
fn shown(wanted: &WantedMembers, copies: usize, partitions: u16) -> Vec<(MemberId, usize, f64)> {
    let owners = Owners::new(wanted);
    let rounds = Rounds::new(&owners.sizes, copies);
    let shares = shares(&owners.weights, &owners.zones, &rounds, copies);
    let of = |(at, share): (usize, &f64)| {
        let share = share * f64::from(partitions);
        (owners.ids[at], owners.zones[at], share)
    };
    shares.iter().enumerate().map(of).collect()
}

/// How far the worst member is from its share of `copies` copies, in units of the tolerance.
fn worst(table: &OwnerTable, wanted: &WantedMembers, copies: u8) -> f64 {
    let members = shown(wanted, usize::from(copies), table.partitions());
    let off = |(id, _, share): &(MemberId, usize, f64)| {
        (table.load(*id, copies) as f64 - share).abs() / (share / 20.0).max(1.0)
    };
    members.iter().map(off).fold(0.0, f64::max)
}

/// Has each partition its copies, and none a second one in a zone before all zones that have a
/// member left have their first?
fn check_spread(table: &OwnerTable, wanted: &WantedMembers, copies: u8) {
    let members = shown(wanted, usize::from(copies), table.partitions());
    let zone_of: BTreeMap<MemberId, usize> = members.iter().map(|m| (m.0, m.1)).collect();
    let zones = members.iter().map(|m| m.1).max().expect("a member") + 1;
    let mut sizes = vec![0; zones];
    members.iter().for_each(|m| sizes[m.1] += 1);
    for partition in table.all() {
        let row = table.owners(partition);
        assert_eq!(row.len(), usize::from(copies), "{row:?}");
        let mut counts = vec![0; zones];
        row.iter().for_each(|owner| counts[zone_of[owner]] += 1);
        let most = counts.iter().max().expect("a zone") - 1;
        let is_even = |zone: usize| counts[zone] >= most.min(sizes[zone]);
        assert!((0..zones).all(is_even), "{row:?} {counts:?} {wanted:?}");
    }
}

/// The rules that hold of every plan, carried out move by move.
fn check(step: &Step, after: &OwnerTable, now: &WantedMembers) {
    let Step { kind, plan, before } = step;
    let copies = after.copies();
    check_spread(after, now, copies);
    let off = worst(after, now, copies);
    assert!(off <= 1.0 + 1e-6, "{kind:?}: {off}");
    let mut moved = BTreeSet::new();
    for round in &plan.rounds {
        let partitions: BTreeSet<Partition> = round.iter().map(|step| step.partition).collect();
        assert_eq!(partitions.len(), round.len(), "one position at a time");
    }
    for step in plan.moves() {
        let Move { partition, moving } = *step;
        if let Some(to) = moving.to {
            assert!(moved.insert((partition, moving.position)), "{step:?} twice");
            assert_eq!(after.owners(partition)[usize::from(moving.position)], to);
        }
        if *kind == Kind::Replace {
            assert_eq!(
                (moving.from, moving.to),
                (Some(plan.leaves[0]), Some(plan.joins[0]))
            );
        }
    }
    // A position that was not moved is where it was, and was not taken away in between.
    for partition in after.all() {
        let (was, is) = (before.owners(partition), after.owners(partition));
        for (position, owner) in is.iter().enumerate() {
            let position = position as u8;
            let is_moved = moved.contains(&(partition, position));
            assert!(is_moved || was.get(usize::from(position)) == Some(owner));
        }
    }
    if *kind == Kind::Replace {
        let old = before.load(plan.leaves[0], u8::MAX);
        assert_eq!(
            (plan.copied(), after.load(plan.joins[0], u8::MAX)),
            (old, old)
        );
    }
    assert!(plan.copied() >= plan.necessary, "a bound from below");
    assert_eq!(OwnerTable::decode(&after.encode()).as_ref(), Ok(after));
}

/// The copies that a chain of changes made, and the copies that it had to make.
#[derive(Debug, Default)]
struct Figures {
    copied: usize,
    necessary: usize,
}

fn run(seed: u64, members: usize, copies: u8, shape: Shape) -> Figures {
    let mut chain = Chain::new(seed, members, copies, shape);
    let mut figures = Figures::default();
    for _ in 0..CHANGES {
        let step = chain.step();
        check(&step, &chain.table, &chain.now);
        figures.copied += step.plan.copied();
        figures.necessary += step.plan.necessary;
    }
    figures
}

const EVEN: Shape = Shape {
    weight_max: 1,
    zones: 0,
};

#[test]
fn some_chains_of_changes_copy_little_more_than_they_must() {
    copy_little(&[1, 2, 3, 5, 7, 12, 24]);
}

#[test]
#[ignore = "at length"]
fn chains_of_changes_copy_little_more_than_they_must() {
    copy_little(&Vec::from_iter(1..=100));
}

fn copy_little(sizes: &[usize]) {
    let mut all = Figures::default();
    for &members in sizes {
        let shape = Shape {
            weight_max: [1, 4][members % 2],
            zones: [0, 3, 8][members % 3],
        };
        let figures = run(members as u64, members, 1 + (members % 5) as u8, shape);
        let is_little = figures.copied * 10 <= figures.necessary * 11;
        assert!(is_little, "{members} members: {figures:?}");
        all.copied += figures.copied;
        all.necessary += figures.necessary;
    }
    let more = 100.0 * (all.copied as f64 / all.necessary as f64 - 1.0);
    println!(
        "{} chains of {CHANGES} changes: {more:.2} % more than the bound from below; {all:?}",
        sizes.len()
    );
}

#[test]
fn a_member_that_joins_or_leaves_moves_its_share_in_clusters_of_up_to_20() {
    grow_and_shrink(20);
}

#[test]
#[ignore = "at length"]
fn a_member_that_joins_or_leaves_moves_its_share_in_clusters_of_up_to_100() {
    grow_and_shrink(100);
}

fn grow_and_shrink(most: u8) {
    for copies in 1..=5 {
        let (mut joins, mut leaves, mut first) = (0f64, 0f64, 0f64);
        let mut chain = Chain::new(u64::from(copies), usize::from(copies), copies, EVEN);
        for members in copies + 1..=most {
            let step = chain.make(Kind::Join).expect("a member joins");
            check(&step, &chain.table, &chain.now);
            let share = 256.0 * f64::from(copies) / f64::from(members);
            joins = joins.max(step.plan.copied() as f64 / share);
            first = first.max(worst(&chain.table, &chain.now, 1));
        }
        for _ in copies + 1..=most {
            let step = chain.make(Kind::Leave).expect("a member leaves");
            check(&step, &chain.table, &chain.now);
            let held = step.before.load(step.plan.leaves[0], copies);
            leaves = leaves.max(step.plan.copied() as f64 / held as f64);
            first = first.max(worst(&chain.table, &chain.now, 1));
        }
        println!(
            "{copies} copies, {copies} to {most} members and back: a join moves at most {joins:.2} of \
             the share, a leave {leaves:.2} of what it held; first owners at worst {first:.1} times \
             5 % or one partition off"
        );
        assert!(joins <= 1.1 && leaves <= 1.1, "{copies}: {joins} {leaves}");
        assert!(first <= 4.0, "{copies}: {first}");
    }
}

#[test]
fn no_member_is_source_or_target_of_many_moves_in_a_row() {
    // A member joins: one target, and as many sources as there are members take turns.
    let mut chain = Chain::new(1, 20, 3, EVEN);
    let step = chain.make(Kind::Join).expect("a member joins");
    let ends = |of: fn(&Moving) -> Option<MemberId>| -> Vec<Option<MemberId>> {
        step.plan.moves().map(|step| of(&step.moving)).collect()
    };
    let sources = ends(|moving| moving.from);
    let distinct: BTreeSet<_> = sources.iter().collect();
    let in_a_row: BTreeSet<_> = sources[..distinct.len()].iter().collect();
    assert!(distinct.len() > 10 && in_a_row == distinct, "{sources:?}");
    // Copies are added: every part of the plan has every target at its rate.
    let wanted = WantedMembers {
        replication_factor: 5,
        ..chain.now.clone()
    };
    let plan = plan(&chain.table, &chain.now, &wanted).expect("more copies");
    assert_eq!(
        plan.rounds.iter().map(Vec::len).collect::<Vec<_>>(),
        [256, 256]
    );
    for round in &plan.rounds {
        let all: Vec<_> = round.iter().map(|step| step.moving.to).collect();
        for part in all.chunks_exact(64) {
            let most = part
                .iter()
                .map(|to| part.iter().filter(|o| *o == to).count())
                .max();
            assert!(most <= Some(6), "64 moves to 21 members: {part:?}");
        }
    }
}

#[test]
fn the_same_input_gives_the_same_plan_and_bytes() {
    let shape = Shape {
        weight_max: 4,
        zones: 3,
    };
    let mut chains = [0, 1].map(|_| Chain::new(9, 12, 3, shape));
    for _ in 0..20 {
        let [one, two] = &mut chains;
        assert_eq!(one.step().plan, two.step().plan);
        assert_eq!(one.table.encode(), two.table.encode());
    }
    // Another order of the list is no other input.
    let [chain, _] = &mut chains;
    let mut wanted = chain.now.clone();
    wanted.members.remove(3);
    let first = plan(&chain.table, &chain.now, &wanted);
    wanted.members.reverse();
    assert_eq!(plan(&chain.table, &chain.now, &wanted), first);
}

/// A change, and the text of its refusal.
fn refused(change: impl FnOnce(&mut WantedMembers)) -> String {
    let chain = Chain::new(3, 4, 3, EVEN);
    let mut wanted = chain.now.clone();
    change(&mut wanted);
    match plan(&chain.table, &chain.now, &wanted) {
        Ok(plan) => panic!("{} moves", plan.copied()),
        Err(no) => no.to_string(),
    }
}

#[test]
fn what_cannot_be_is_refused_with_a_sentence() {
    let place = |id| WantedMember {
        id: MemberId(id),
        weight: 1,
        zone: String::new(),
    };
    let cases: [(String, &str); 10] = [
        (refused(|_| ()), "nothing has to move"),
        (
            refused(|wanted| wanted.members.clear()),
            "no member would be left",
        ),
        (
            refused(|wanted| wanted.members.truncate(2)),
            "2 members with a weight cannot keep 3",
        ),
        (
            refused(|wanted| wanted.replication_factor = 5),
            "4 members with a weight cannot keep 5",
        ),
        (
            refused(|wanted| wanted.replication_factor = 0),
            "is not 1 to 100",
        ),
        (
            refused(|wanted| wanted.members.push(place(2))),
            "member 2 is in the list twice",
        ),
        (
            refused(|wanted| wanted.members.iter_mut().for_each(|m| m.weight = 0)),
            "no member has a weight above 0",
        ),
        (
            refused(|wanted| wanted.lost.push(MemberId(2))),
            "member 2 cannot be read and is to stay",
        ),
        (
            refused(|wanted| wanted.lost.push(MemberId(9))),
            "member 9 is not a member",
        ),
        (
            refused(|wanted| wanted.members.extend((10..107).map(place))),
            "101 members are more than the 100",
        ),
    ];
    for (sentence, part) in cases {
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn a_member_that_was_removed_does_not_come_back() {
    let mut chain = Chain::new(3, 4, 3, EVEN);
    let before = chain.now.clone();
    let gone = chain
        .make(Kind::Leave)
        .expect("a member leaves")
        .plan
        .leaves[0];
    let again = plan(&chain.table, &chain.now, &before);
    assert_eq!(again, Err(NoPlan::Returned { member: gone }));
    let stays = chain.now.members[0].id;
    let (table, next) = (&chain.table, chain.table.next());
    assert_eq!(
        replacement(table, stays, gone, &[]),
        Err(NoPlan::Returned { member: gone })
    );
    assert_eq!(
        replacement(table, gone, next, &[]),
        Err(NoPlan::Unknown { member: gone })
    );
    assert_eq!(
        replacement(table, stays, stays, &[]),
        Err(NoPlan::Present { member: stays })
    );
    // Not even when no copy of it was ever made: its number was given.
    let later = MemberId(next.0 + 5);
    let plan = replacement(table, stays, later, &[]).expect("numbers may be left out");
    let after = plan.outcome(table).expect("the plan is of this table");
    assert_eq!(after.next(), MemberId(later.0 + 1));
    assert_eq!(plan.outcome(&after), Err(NoPlan::OtherTable));
}

#[test]
fn the_last_copy_of_a_partition_is_not_given_up() {
    let chain = Chain::new(3, 4, 2, EVEN);
    let mut wanted = chain.now.clone();
    let row = chain.table.owners(Partition(0)).to_vec();
    wanted.members.retain(|place| !row.contains(&place.id));
    wanted.lost = row.clone();
    let both = plan(&chain.table, &chain.now, &wanted);
    assert_eq!(both, Err(NoPlan::LastCopy { partition: 0 }));
    // A member that can be read may leave, and be the source.
    wanted.lost.clear();
    let step = plan(&chain.table, &chain.now, &wanted).expect("both can be read");
    assert!(
        step.rounds.len() == 2,
        "partition 0 moves one position after the other"
    );
    // One of two copies is lost, and the other one goes on alone: no record is copied.
    let two = Chain::new(3, 2, 2, EVEN);
    let mut alone = two.now.clone();
    alone.replication_factor = 1;
    alone.lost = vec![alone.members.remove(0).id];
    let plan = plan(&two.table, &two.now, &alone).expect("one can be read");
    assert_eq!(plan.copied(), 0);
    let after = plan.outcome(&two.table).expect("the plan is of this table");
    assert!(
        after
            .all()
            .all(|partition| after.owners(partition) == [alone.members[0].id])
    );
}

#[test]
fn nothing_is_planned_while_something_moves() {
    let mut chain = Chain::new(3, 4, 3, EVEN);
    let wanted = WantedMembers {
        members: chain.now.members[..3].to_vec(),
        ..chain.now.clone()
    };
    let first = plan(&chain.table, &chain.now, &wanted).expect("a member leaves");
    let step = *first.moves().next().expect("a move");
    chain.table.begin(step).expect("the plan is of this table");
    let partition = step.partition.0;
    let second = plan(&chain.table, &chain.now, &wanted);
    assert_eq!(second, Err(NoPlan::Moving { partition }));
    // Cancelled in the middle: copies that have not arrived stay, and a plan leads back.
    chain.table.withdraw(step.partition).expect("it moves");
    for step in first.moves().take(100) {
        chain.table.begin(*step).expect("the plan is of this table");
        chain.table.settle(step.partition).expect("it moves");
    }
    let back = plan(&chain.table, &chain.now, &chain.now).expect("it is out of balance");
    assert!((1..=100).contains(&back.copied()), "{}", back.copied());
    let after = back
        .outcome(&chain.table)
        .expect("the plan is of this table");
    check_spread(&after, &chain.now, 3);
    assert!(worst(&after, &chain.now, 3) <= 1.0);
}

#[test]
fn a_member_of_weight_0_holds_nothing_and_stays() {
    let chain = Chain::new(3, 5, 3, EVEN);
    let mut wanted = chain.now.clone();
    wanted.members[2].weight = 0;
    let plan = plan(&chain.table, &chain.now, &wanted).expect("four are enough");
    let after = plan
        .outcome(&chain.table)
        .expect("the plan is of this table");
    assert_eq!(after.load(MemberId(2), 3), 0);
    assert!(after.has(MemberId(2)) && plan.leaves.is_empty());
    assert_eq!(plan.copied(), chain.table.load(MemberId(2), 3));
}

#[test]
fn a_cluster_grows_into_its_replication_factor() {
    let mut chain = Chain::new(3, 1, 3, EVEN);
    for copies in [2, 3, 3] {
        let step = chain.make(Kind::Join).expect("a member joins");
        check(&step, &chain.table, &chain.now);
        assert_eq!(chain.table.copies(), copies);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn plans_hold_what_they_promise_in_any_chain(
        seed: u64, members in 1usize..=24, copies in 1u8..=5, weight_max in 1u16..=6,
        zones in 0u64..=6,
    ) {
        let figures = run(seed, members, copies, Shape { weight_max, zones });
        prop_assert!(figures.copied * 10 <= figures.necessary * 11, "{figures:?}");
    }
}
