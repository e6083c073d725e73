//! The first table, its bytes, and the steps that change it.

use super::super::plan::{NoPlan, WantedMembers, plan};
use super::*;
use crate::ring::tests::chains::{Chain, Shape};
use crate::topology::Member;
use proptest::prelude::*;

fn ids(numbers: &[u32]) -> Vec<MemberId> {
    numbers.iter().copied().map(MemberId).collect()
}

fn step(partition: u16, position: u8, from: Option<u32>, to: Option<u32>) -> Move {
    Move {
        partition: Partition(partition),
        moving: Moving {
            position,
            from: from.map(MemberId),
            to: to.map(MemberId),
        },
    }
}

/// Five partitions on members 0, 2, 3 and 70000; three of them move, each in another way.
fn mixed() -> OwnerTable {
    let owners = [
        &[0, 2, 3][..],
        &[2, 3, 70_000],
        &[3],
        &[70_000, 0],
        &[2, 0, 3],
    ];
    let rows = owners.iter().map(|row| ids(row)).collect();
    let mut table = OwnerTable::of_owners(70_001, ids(&[0, 2, 3, 70_000]), rows).expect("a table");
    for step in [
        step(0, 1, Some(2), Some(70_000)),
        step(2, 1, None, Some(0)),
        step(4, 0, Some(2), None),
    ] {
        table.begin(step).expect("it can move");
    }
    table
}

fn owners(table: &OwnerTable, partition: u16) -> Vec<u32> {
    let owners = table.owners(Partition(partition)).iter();
    owners.map(|owner| owner.0).collect()
}

#[test]
fn a_position_moves_settles_or_stays() {
    let mut table = mixed();
    assert_eq!(
        (owners(&table, 0), owners(&table, 2)),
        (vec![0, 2, 3], vec![3])
    );
    for partition in [0, 2, 4] {
        assert!(table.moving(Partition(partition)).is_some());
        table.settle(Partition(partition)).expect("it moves");
        assert_eq!(table.moving(Partition(partition)), None);
    }
    assert_eq!(owners(&table, 0), [0, 70_000, 3]);
    assert_eq!(owners(&table, 2), [3, 0]);
    assert_eq!(owners(&table, 4), [0, 3]);
    let mut back = mixed();
    back.withdraw(Partition(0)).expect("it moves");
    assert_eq!(owners(&back, 0), [0, 2, 3]);
    assert_eq!(back.moving(Partition(0)), None);
}

#[test]
fn steps_that_cannot_be_are_refused() {
    let mut table = mixed();
    let before = table.clone();
    let stale = |step| Err(BadStep::Stale { step });
    for bad in [
        step(1, 0, Some(3), Some(0)),
        step(1, 0, Some(2), Some(3)),
        step(1, 0, Some(2), Some(1)),
        step(1, 3, Some(2), Some(0)),
        step(1, 4, None, Some(0)),
        step(1, 2, None, Some(0)),
        step(1, 3, None, None),
        step(1, 3, None, Some(2)),
    ] {
        assert_eq!(table.begin(bad), stale(bad));
    }
    let busy = |partition| BadStep::Busy { partition };
    let second = step(0, 0, Some(0), Some(70_000));
    assert_eq!(table.begin(second), Err(busy(Partition(0))));
    let beyond = step(5, 0, Some(0), Some(2));
    assert_eq!(table.begin(beyond), Err(busy(Partition(5))));
    let still = |partition| Err(BadStep::Still { partition });
    assert_eq!(table.settle(Partition(1)), still(Partition(1)));
    assert_eq!(table.withdraw(Partition(9)), still(Partition(9)));
    assert_eq!(table, before);
    // The last copy stays.
    table.withdraw(Partition(2)).expect("it moves");
    let last = step(2, 0, Some(3), None);
    assert_eq!(table.begin(last), stale(last));
}

#[test]
fn numbers_are_given_once() {
    let mut table = mixed();
    let member = MemberId(70_000);
    assert_eq!(table.admit(member), Err(BadStep::Member { member }));
    let member = MemberId(1);
    assert_eq!(table.admit(member), Err(BadStep::Member { member }));
    let new = table.next();
    table.admit(new).expect("the next number");
    table.dismiss(new).expect("it owns nothing");
    assert_eq!(table.admit(new), Err(BadStep::Member { member: new }));
    assert_eq!(table.dismiss(new), Err(BadStep::Member { member: new }));
    let member = MemberId(3);
    assert_eq!(table.dismiss(member), Err(BadStep::Owner { member }));
    // A member that is about to own something stays, too.
    let new = table.next();
    table.admit(new).expect("the next number");
    table
        .begin(step(1, 3, None, Some(new.0)))
        .expect("it can move");
    assert_eq!(table.dismiss(new), Err(BadStep::Owner { member: new }));
    assert_eq!(table.admit(MemberId(u32::MAX)), Err(BadStep::Full));
    while table.members().len() < TABLE_MEMBERS_MAX {
        table.admit(table.next()).expect("there is room");
    }
    assert_eq!(table.admit(table.next()), Err(BadStep::Full));
}

#[test]
fn owners_that_are_no_table_say_why() {
    let of = |next, members: &[u32], rows: &[&[u32]]| {
        let rows = rows.iter().map(|row| ids(row)).collect();
        OwnerTable::of_owners(next, ids(members), rows).err()
    };
    assert_eq!(of(2, &[0, 1], &[&[0, 1]]), None);
    assert_eq!(of(1, &[0, 1], &[&[0]]), Some(BadTable::Members));
    assert_eq!(of(2, &[1, 0], &[&[0]]), Some(BadTable::Members));
    assert_eq!(of(2, &[1, 1], &[&[1]]), Some(BadTable::Members));
    assert_eq!(of(2, &[], &[&[1]]), Some(BadTable::Members));
    assert_eq!(
        of(2, &[0], &[]),
        Some(BadTable::Partitions { partitions: 0 })
    );
    let bad = Some(BadTable::Owners { partition: 1 });
    assert_eq!(of(2, &[0, 1], &[&[0], &[]]), bad);
    assert_eq!(of(2, &[0, 1], &[&[0], &[0, 0]]), bad);
    assert_eq!(of(2, &[0], &[&[0], &[1]]), bad);
}

/// Stored in folders and sent between releases: these bytes may never be read as anything else.
#[test]
fn the_format_is_read_for_ever() {
    let fixture = include_bytes!("../../../tests/fixtures/owners-format-1.bin");
    assert_eq!(OwnerTable::decode(fixture), Ok(mixed()));
    assert_eq!(mixed().encode(), fixture);
    let mut newer = fixture.to_vec();
    newer[0] = 2;
    let sentence = OwnerTable::decode(&newer)
        .expect_err("another format")
        .to_string();
    assert!(
        sentence.contains("the format 2, and this release reads 1"),
        "{sentence}"
    );
}

#[test]
fn a_table_is_as_large_as_its_page_says() {
    let sizes = |members: u32, partitions: usize, copies: u32| {
        let row = |at: u32| (0..copies).map(|i| MemberId((at + i) % members)).collect();
        let rows = (0..partitions as u32).map(row).collect();
        let members = (0..members).map(MemberId).collect();
        let mut table = OwnerTable::of_owners(100, members, rows).expect("a table");
        let still = table.encode().len();
        for partition in table.all() {
            let last = copies as u8 - 1;
            let from = table.owners(partition)[usize::from(last)].0;
            let step = step(partition.0, last, Some(from), None);
            table.begin(step).expect("it can move");
        }
        (still, table.encode().len())
    };
    let page = include_str!("../../../../../docs/format/owners.md");
    let digits = |text: &str| -> usize { text.trim().replace(',', "").parse().expect("a number") };
    let rows = page
        .lines()
        .skip_while(|line| !line.contains("bytes at rest"))
        .skip(2);
    let rows: Vec<Vec<usize>> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(digits).collect())
        .collect();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let is = sizes(row[0] as u32, row[1], row[2] as u32);
        assert_eq!(is, (row[3], row[4]), "{row:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_first_table_is_what_the_ring_has_today(
        drawn in proptest::collection::vec((1u16..6, 0usize..6), 1..14),
        copies in 1u8..6, name in "[a-z]{1,8}",
    ) {
        let member = |(i, (weight, zone)): (usize, &(u16, usize))| Member {
            url: format!("http://h{i}:1"),
            weight: *weight,
            zone: ["", "", "a", "b", "c", "d"][*zone].to_owned(),
        };
        let list = drawn.iter().enumerate().map(member).collect();
        let topology = Topology::new(&name, list, copies).expect("a topology");
        let (ring, table) = (Ring::new(&topology), OwnerTable::first(&topology));
        for partition in ring.all() {
            let first = &ring.owners(partition)[..usize::from(topology.copies())];
            let numbers: Vec<u32> = first.iter().map(|index| u32::from(index.0)).collect();
            prop_assert_eq!(owners(&table, partition.0), numbers);
        }
        // And back: other members are asked in the same order, too.
        let founders = OwnerTable::founders(&topology);
        let places: Vec<_> = founders.iter().copied().map(Some).collect();
        prop_assert_eq!(Ring::of(&table, &topology, &places), Ok(ring));
        // No position has to move then.
        let now = WantedMembers::of(&topology, &founders);
        prop_assert_eq!(plan(&table, &now, &now), Err(NoPlan::NoChange));
    }

    #[test]
    fn any_legal_table_of_owners_is_read_as_it_was_written(
        seed: u64, members in 1usize..20, copies in 1u8..5, done in 0usize..400,
    ) {
        let shape = Shape { weight_max: 3, zones: 3 };
        let mut chain = Chain::new(seed, members, copies, shape);
        let change = chain.step();
        let mut table = change.before;
        for member in &change.plan.joins {
            table.admit(*member).expect("a new number");
        }
        for round in &change.plan.rounds {
            round.iter().for_each(|step| table.begin(*step).expect("it can move"));
            prop_assert_eq!(OwnerTable::decode(&table.encode()), Ok(table.clone()));
            for step in round.iter().take(done) {
                table.settle(step.partition).expect("it moves");
            }
            prop_assert_eq!(OwnerTable::decode(&table.encode()), Ok(table.clone()));
            for step in round.iter().skip(done) {
                table.settle(step.partition).expect("it moves");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_bytes_make_a_table_that_is_none(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
        at in any::<prop::sample::Index>(), value: u8, cut in any::<prop::sample::Index>(),
    ) {
        // With the checksum made right, so that the checks after it are reached.
        let sealed = |body: &[u8]| [body, &codec::checksum(body).to_le_bytes()[..]].concat();
        let body = mixed().encode();
        let body = &body[..body.len() - 8];
        let mut turned = body.to_vec();
        turned[at.index(body.len())] = value;
        let short = &body[..cut.index(body.len())];
        let long = [body, &bytes[..]].concat();
        let any = [&[1][..], &bytes[..]].concat();
        for body in [&turned[..], short, &long[..], &any[..], &bytes[..]] {
            if let Ok(table) = OwnerTable::decode(&sealed(body)) {
                prop_assert_eq!(table.clone().checked(), Ok(table.clone()));
                prop_assert_eq!(table.encode(), sealed(body), "one table has one form");
            }
        }
        prop_assert!(OwnerTable::decode(&bytes).is_err());
        let mut damaged = mixed().encode();
        let at = at.index(damaged.len());
        damaged[at] = damaged[at].wrapping_add(value | 1);
        prop_assert!(OwnerTable::decode(&damaged).is_err());
    }
}
