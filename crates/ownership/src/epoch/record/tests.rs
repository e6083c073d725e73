use super::*;
use crate::epoch::chain::{AcceptedRecord, EpochBallot, VoteNote};
use crate::epoch::drive::{MoveArrived, next_step};
use crate::epoch::succession::{overtakes, succeeds};
use crate::epoch::why_not::WhyNot;
use crate::ring::plan::{MovePlan, WantedMember, WantedMembers, plan, replacement};
use dendra_base::{CellRef, ClusterVersion, LeastSuccessor, Prng, Version};
use proptest::prelude::*;
use std::sync::Arc;

fn id(number: u32) -> MemberId {
    MemberId(number)
}

fn member(number: u32, status: MemberStatus) -> EpochMember {
    EpochMember {
        id: id(number),
        node: 100 + u128::from(number),
        status,
        place: Member::new(&format!("http://h{number}:8080")).expect("an address"),
    }
}

/// Four members, three copies of each of four partitions.
fn first() -> EpochRecord {
    let ids = (0..4).map(id).collect();
    let row = |p: u32| (0..3).map(|i| id((p + i) % 4)).collect();
    let owners = OwnerTable::of_owners(4, ids, (0..4).map(row).collect());
    let members = (0..4).map(|number| member(number, MemberStatus::Member));
    let owners = owners.expect("a table");
    EpochRecord::first("dendra", members.collect(), 3, owners).expect("a record")
}

fn wanted(record: &EpochRecord) -> WantedMembers {
    let place = |member: &EpochMember| WantedMember {
        id: member.id,
        weight: member.place.weight,
        zone: member.place.zone.clone(),
    };
    WantedMembers {
        members: record.members().iter().map(place).collect(),
        replication_factor: record.replication_factor(),
        lost: Vec::new(),
    }
}

fn new_plan(record: &EpochRecord, moves: MovePlan) -> NewPlan {
    let joins = moves.joins.iter();
    NewPlan {
        author: record.members()[0].id,
        newcomers: joins
            .map(|id| member(id.0, MemberStatus::Joining))
            .collect(),
        moves,
        shares: Vec::new(),
        replication_factor: record.replication_factor(),
    }
}

/// Member 1 is replaced by member 4.
fn replacing() -> (EpochRecord, EpochRecord) {
    let first = first();
    let moves = replacement(first.owners(), id(1), id(4), &[]).expect("a plan");
    let planned = first.planned(&new_plan(&first, moves));
    let planned = planned.expect("it may begin");
    (first, planned)
}

/// Takes the next step, all that moves having arrived.
fn step(record: &EpochRecord, side_by_side: usize) -> Option<EpochRecord> {
    let plan = record.plan()?.id;
    let moving = record.owners().all().filter_map(|p| record.moving(p));
    let arrived: Vec<_> = moving.map(|step| MoveArrived { plan, step }).collect();
    next_step(record, &arrived, side_by_side)
}

fn ended(record: EpochRecord, side_by_side: usize) -> EpochRecord {
    let mut record = record;
    for _ in 0..10_000 {
        let Some(next) = step(&record, side_by_side) else {
            break;
        };
        assert_eq!(succeeds(&record, &next), Ok(()));
        record = next;
    }
    assert_eq!(record.plan(), None, "the plan ends");
    record
}

#[test]
fn a_replacement_ends_with_the_old_member_refused_for_ever() {
    let (first, planned) = replacing();
    assert_eq!(succeeds(&first, &planned), Ok(()));
    assert_eq!(planned.voters(), [0, 1, 2, 3].map(id), "it has no vote yet");
    let last = ended(planned, 2);
    assert_eq!(last.voters(), [0, 2, 3, 4].map(id));
    assert!(last.is_removed(id(1), 7) && last.is_removed(id(9), 101));
    assert!(!last.is_member(id(1), 101) && last.is_member(id(4), 104));
    // Its folder comes back under a new number.
    let now = wanted(&last);
    let mut more = now.clone();
    more.members.push(WantedMember {
        id: id(5),
        ..now.members[0].clone()
    });
    let moves = plan(last.owners(), &now, &more).expect("a plan");
    let mut returned = new_plan(&last, moves);
    assert!(last.planned(&returned).is_ok());
    returned.newcomers[0].node = 101;
    let refused = WhyNot::Returned { member: id(5) };
    assert_eq!(last.planned(&returned), Err(refused));
}

#[test]
fn as_many_moves_are_under_way_as_the_budget_allows() {
    for side_by_side in 1..4 {
        let (_, planned) = replacing();
        let begun = step(&planned, side_by_side).expect("a step");
        let moving = begun.owners().all().filter_map(|p| begun.moving(p));
        assert_eq!(moving.count(), side_by_side);
        assert_eq!(next_step(&begun, &[], side_by_side), None, "it waits");
    }
}

#[test]
fn a_report_of_another_plan_settles_nothing() {
    let (_, planned) = replacing();
    let begun = step(&planned, 1).expect("a step");
    let moving = begun.owners().all().find_map(|p| begun.moving(p));
    let step = moving.expect("one moves");
    let plan = begun.plan().expect("a plan").id;
    let earlier = MoveArrived {
        plan: plan - 1,
        step,
    };
    assert_eq!(next_step(&begun, &[earlier], 1), None);
    assert!(next_step(&begun, &[MoveArrived { plan, step }], 1).is_some());
}

#[test]
fn a_cancelled_plan_keeps_what_has_arrived_and_drops_members_without_copies() {
    let (_, planned) = replacing();
    let unmoved = ended(planned.cancelled().expect("a plan"), 2);
    assert_eq!(unmoved.voters(), [0, 1, 2, 3].map(id));
    assert!(unmoved.is_removed(id(4), 104), "its folder is stale");

    let begun = step(&planned, 1).expect("begun");
    let settled = step(&begun, 1).expect("settled, and one more begun");
    let cancelled = settled.cancelled().expect("a plan");
    assert_eq!(succeeds(&settled, &cancelled), Ok(()));
    // One look decides for all orders: no sentence contradicts another one.
    let ends = WhyNot::PlanEnds { plan: 2 };
    assert_eq!(cancelled.cancelled(), Err(ends.clone()));
    assert_eq!(cancelled.idle(), Err(ends));
    let last = ended(cancelled, 2);
    assert_eq!(last.voters(), [0, 1, 2, 3, 4].map(id));
    assert_eq!(last.owners().load(id(4), 3), 1);
}

#[test]
fn a_cancelled_replacement_at_its_own_address_ends_and_the_lost_member_is_nowhere() {
    let first = first();
    let moves = replacement(first.owners(), id(1), id(4), &[]).expect("a plan");
    let mut new = new_plan(&first, moves);
    let url = first.members()[1].place.url.clone();
    new.newcomers[0].place.url.clone_from(&url);
    let planned = first.planned(&new).expect("it may begin");
    let unmoved = ended(planned.cancelled().expect("a plan"), 2);
    assert_eq!(unmoved.members()[1].place.url, url, "nothing has moved");

    let begun = step(&planned, 1).expect("begun");
    let settled = step(&begun, 1).expect("settled, and one more begun");
    let last = ended(settled.cancelled().expect("a plan"), 2);
    assert_eq!(last.voters(), [0, 1, 2, 3, 4].map(id));
    let place = |member| last.member(id(member)).expect("it stays").place.url.clone();
    assert_eq!((place(1), place(4)), (nowhere(id(1)), url));
    assert!(is_nowhere(&place(1)) && !is_nowhere(&place(4)));
    // The way on: the rest of its positions goes to the others.
    let now = wanted(&last);
    let mut without = now.clone();
    without.members.retain(|member| member.id != id(1));
    let moves = plan(last.owners(), &now, &without).expect("a plan");
    let gone = ended(last.planned(&new_plan(&last, moves)).expect("it begins"), 2);
    assert_eq!(gone.voters(), [0, 2, 3, 4].map(id));
}

fn check(before: &EpochRecord, after: EpochRecord) -> WhyNot {
    let why = succeeds(before, &after).expect_err("it may not follow");
    let sentence = why.to_string();
    assert!(
        sentence.len() > 40 && !sentence.ends_with('.'),
        "{sentence}"
    );
    why
}

/// `made`, changed by hand.
fn bent(made: &EpochRecord, bend: impl FnOnce(&mut EpochRecord)) -> EpochRecord {
    let mut made = made.clone();
    bend(&mut made);
    made
}

#[test]
fn no_other_record_may_follow() {
    let (first, planned) = replacing();
    let begun = step(&planned, 1).expect("begun");
    let settled = step(&begun, 1).expect("settled");
    let last = ended(planned.clone(), 2);
    let rekeyed = first.rekeyed().expect("a change");
    let why = |before: &EpochRecord, made: &EpochRecord, bend: &dyn Fn(&mut EpochRecord)| {
        check(before, bent(made, bend))
    };
    let other = why(&first, &rekeyed, &|r| r.name = "other".to_owned());
    assert!(matches!(other, WhyNot::Cluster { .. }));
    assert!(matches!(check(&first, begun.clone()), WhyNot::Epoch { .. }));
    assert!(matches!(check(&first, first.clone()), WhyNot::Epoch { .. }));
    let previous = why(&first, &rekeyed, &|r| r.previous ^= 1);
    assert_eq!(previous, WhyNot::Previous { epoch: 1 });
    let change = EpochChange::Rekeyed;
    let more = why(&first, &rekeyed, &|r| r.replication_factor = 2);
    assert_eq!(more, WhyNot::Mixed { change });
    let twice = why(&first, &rekeyed, &|r| r.secrets += 1);
    assert_eq!(twice, WhyNot::Mixed { change });
    let founded = why(&first, &rekeyed, &|r| r.change = EpochChange::Founded);
    assert!(matches!(founded, WhyNot::Mixed { .. }));

    // From the old owner to the new one without an epoch between.
    let skipped = bent(&settled, |r| {
        (r.epoch, r.previous) = (planned.epoch + 1, planned.digest());
    });
    assert!(matches!(
        check(&planned, skipped),
        WhyNot::NoJointPhase { .. }
    ));
    // One position arrives, and another one of its partition moves at once.
    let at = begun.owners().all().find(|p| begun.moving(*p).is_some());
    let at = at.expect("one moves");
    let both = bent(&settled, |r| {
        let row = r.owners.owners(at).to_vec();
        let absent = (0..5).map(id).find(|id| !row.contains(id));
        let moving = Moving {
            position: 0,
            from: Some(row[0]),
            to: absent,
        };
        let step = Move {
            partition: at,
            moving,
        };
        r.owners.begin(step).expect("it can move");
    });
    assert!(matches!(check(&begun, both), WhyNot::NoJointPhase { .. }));

    // Members.
    let dropped = bent(&begun.cancelled().expect("a plan"), |r| {
        r.members.retain(|member| member.id != id(4));
    });
    assert_eq!(check(&begun, dropped), WhyNot::Holds { member: id(4) });
    let after = last.rekeyed().expect("a change");
    let forgotten = why(&last, &after, &|r| r.removed.clear());
    assert_eq!(forgotten, WhyNot::Returned { member: id(1) });
    let back = why(&last, &after, &|r| {
        r.members.insert(1, member(1, MemberStatus::Member));
    });
    assert_eq!(back, WhyNot::Returned { member: id(1) });

    // Plans.
    let moves = replacement(first.owners(), id(2), id(4), &[]).expect("a plan");
    let second = planned.planned(&new_plan(&planned, moves.clone()));
    assert_eq!(second, Err(WhyNot::PlanUnderWay { plan: 2 }));
    let stale = last.planned(&new_plan(&last, moves));
    assert_eq!(stale, Err(WhyNot::OtherTable));
    assert!(matches!(planned.finished(), Err(WhyNot::NotDone { .. })));
    let early = bent(&last, |r| {
        (r.epoch, r.previous) = (planned.epoch + 1, planned.digest());
    });
    assert!(succeeds(&planned, &early).is_err());
}

#[test]
fn founders_get_the_ids_of_their_folders_once() {
    let members = ["http://a:1", "http://b:1", "http://c:1"];
    let members = members.map(|url| Member::new(url).expect("an address"));
    let topology = Topology::new("dendra", members.to_vec(), 3).expect("a topology");
    let first = EpochRecord::founded(&topology);
    assert_eq!(first.cluster(), topology.id());
    assert!(first.is_member(id(1), 5), "known by its number alone");
    let moves = replacement(first.owners(), id(1), id(3), &[]).expect("a plan");
    let unknown = WhyNot::NotEnrolled { member: id(0) };
    assert_eq!(first.planned(&new_plan(&first, moves)), Err(unknown));
    let some = first.enrolled(&[(id(0), 9), (id(1), 8)]).expect("new ids");
    assert_eq!(succeeds(&first, &some), Ok(()));
    assert!(some.is_member(id(1), 8) && !some.is_member(id(1), 5));
    assert!(some.enrolled(&[(id(1), 7)]).is_err());
}

/// Until then its folder knows the founder by its address alone, and so does each record.
#[test]
fn a_founder_gets_another_address_only_once_it_is_enrolled() {
    let members = ["http://a:1", "http://b:1", "http://c:1"];
    let members = members.map(|url| Member::new(url).expect("an address"));
    let topology = Topology::new("dendra", members.to_vec(), 3).expect("a topology");
    let first = EpochRecord::founded(&topology);
    let some = first.enrolled(&[(id(0), 9), (id(2), 8)]).expect("new ids");
    for record in [&first, &some] {
        let refused = record.readdressed(id(1), "http://d:1");
        assert_eq!(refused, Err(WhyNot::NotEnrolled { member: id(1) }));
        // No other member could propose it either.
        let after = record.rekeyed().expect("a change");
        let moved = bent(&after, |r| {
            r.change = EpochChange::Readdressed;
            r.secrets = record.secrets;
            r.members[1].place.url = "http://d:1".to_owned();
        });
        assert_eq!(check(record, moved), WhyNot::NotEnrolled { member: id(1) });
    }
    let moved = some.readdressed(id(2), "http://d:1").expect("it is known");
    assert_eq!(succeeds(&some, &moved), Ok(()));
}

#[test]
fn two_members_may_have_one_address_only_while_one_takes_the_place_of_the_other() {
    let (_, planned) = replacing();
    let taken = planned.readdressed(id(4), "http://h1:8080");
    let taken = taken.expect("the address of the one that leaves");
    assert_eq!(ended(taken, 4).members().len(), 4);
    for other in [0, 2, 3] {
        let url = format!("http://h{other}:8080");
        assert!(planned.readdressed(id(4), &url).is_err(), "{url}");
    }
}

/// A record in the middle of a plan, after a member was removed.
fn mixed() -> EpochRecord {
    let (_, planned) = replacing();
    let last = ended(planned, 2);
    let mut more = wanted(&last);
    more.members.push(WantedMember {
        id: id(5),
        weight: 2,
        zone: "a".to_owned(),
    });
    let moves = plan(last.owners(), &wanted(&last), &more).expect("a plan");
    let mut new = new_plan(&last, moves);
    new.newcomers[0].place.zone = "a".to_owned();
    new.newcomers[0].place.weight = 2;
    let planned = last.planned(&new).expect("it may begin");
    let begun = step(&planned, 2).expect("begun");
    step(&begun, 1).expect("settled, and one begun")
}

const FIXTURE: &[u8] = include_bytes!("../../../tests/fixtures/epoch-format-1.bin");

/// Horizons rose, a lowered factor gave copies back, and a backup was restored.
fn with_all() -> EpochRecord {
    let narrowed = risen(&with_copies(&first(), 2), 4);
    let least = LeastSuccessor::new(70_000).expect("a small one");
    narrowed.restored(least).expect("above")
}

#[test]
fn the_record_of_the_first_format_is_read_for_ever() {
    let record = EpochRecord {
        horizons: *with_all().horizons(),
        narrowing: *with_all().narrowing(),
        least_successor: with_all().least_successor(),
        ..mixed()
    };
    assert_eq!(record.encode(), FIXTURE);
    assert_eq!(EpochRecord::decode(FIXTURE), Ok(record));
}

#[test]
fn the_version_in_force_rises_by_an_order_and_never_falls() {
    let before = mixed();
    let (now, next) = (before.in_force(), ClusterVersion(before.in_force().0 + 1));
    let later = before.finalized(next).expect("a later one");
    assert_eq!(succeeds(&before, &later), Ok(()));
    assert_eq!(EpochRecord::decode(&later.encode()), Ok(later.clone()));
    // It stays with all that follows.
    let after = later.rekeyed().expect("a change");
    assert_eq!(after.in_force(), next);
    // It never falls, nor rises with another change.
    assert_eq!(later.finalized(next), Err(WhyNot::NoStep));
    assert_eq!(later.finalized(now), Err(WhyNot::NoStep));
    let fallen = bent(&after, |r| r.in_force = now);
    let change = EpochChange::Rekeyed;
    assert_eq!(check(&later, fallen), WhyNot::Mixed { change });
    let risen = bent(&after, |r| r.in_force = ClusterVersion(next.0 + 1));
    assert_eq!(check(&later, risen), WhyNot::Mixed { change });
}

#[test]
fn a_later_format_is_refused_with_the_way_out() {
    let body = &FIXTURE[..FIXTURE.len() - 8];
    let later = [&[2], &body[1..]].concat();
    let refused =
        EpochRecord::decode(&[&later[..], &codec::checksum(&later).to_le_bytes()].concat());
    assert_eq!(refused, Err(BadRecord::Format { format: 2 }));
    let sentence = refused.expect_err("refused").to_string();
    assert!(sentence.contains("or a newer one"), "{sentence}");
    // Damage is no later format.
    let mut bytes = FIXTURE.to_vec();
    bytes[0] = 2;
    assert_eq!(EpochRecord::decode(&bytes), Err(BadRecord::Checksum));
}

#[test]
fn horizons_rise_and_never_fall() {
    let mut record = first();
    for floor in 1..=7 {
        let next = record.forgot(floor * 10).expect("above the last one");
        assert_eq!(succeeds(&record, &next), Ok(()));
        assert_eq!(
            record.forgot(record.horizons().floor()),
            Err(WhyNot::NoStep)
        );
        assert_eq!(EpochRecord::decode(&next.encode()).as_ref(), Ok(&next));
        record = next;
    }
    let horizons = *record.horizons();
    assert_eq!(
        (horizons.floor(), horizons.spent(), horizons.purge()),
        (70, 50, 20)
    );
    let bad = bent(&record, |bent| bent.horizons.floors[3] = 55);
    let field = "horizons";
    assert_eq!(bad.checked(), Err(BadRecord::Field { field }));
    let (_, planned) = replacing();
    assert!(planned.plan().is_some() && planned.forgot(9).is_err());
}

/// A plan for so many copies, to its end.
fn with_copies(record: &EpochRecord, copies: u8) -> EpochRecord {
    let now = wanted(record);
    let then = WantedMembers {
        replication_factor: copies,
        ..now.clone()
    };
    let moves = plan(record.owners(), &now, &then).expect("a plan");
    let new = NewPlan {
        replication_factor: copies,
        ..new_plan(record, moves)
    };
    let mut record = record.planned(&new).expect("it may begin");
    while record.plan().is_some() {
        let next = step(&record, 256).expect("all arrive");
        assert_eq!(succeeds(&record, &next), Ok(()));
        assert_eq!(EpochRecord::decode(&next.encode()).as_ref(), Ok(&next));
        record = next;
    }
    record
}

/// So many steps of the horizons, ten apart.
fn risen(record: &EpochRecord, steps: usize) -> EpochRecord {
    let mut record = record.clone();
    for _ in 0..steps {
        let next = record
            .forgot(record.horizons().floor() + 10)
            .expect("above");
        assert_eq!(succeeds(&record, &next), Ok(()));
        assert_eq!(EpochRecord::decode(&next.encode()).as_ref(), Ok(&next));
        record = next;
    }
    record
}

#[test]
fn a_lowered_factor_gives_copies_back_behind_three_steps_in_a_row() {
    let first = first();
    let lowered = with_copies(&risen(&first, 4), 2);
    assert_eq!(lowered.replication_factor(), 2);
    let after = |record: &EpochRecord| {
        (
            record.narrowing().steps_left(),
            record.narrowing().given_back(),
        )
    };
    assert_eq!(after(&lowered), (3, None));
    assert_eq!(after(&risen(&lowered, 2)), (1, None));
    // The first floor after the plan, and not the newest.
    let narrowed = risen(&lowered, 3);
    assert_eq!(after(&narrowed), (0, Some((50, 2))));
    assert_eq!(narrowed.horizons().floor(), 70);
    // It does not rise with the horizons: copies that clients ask for later stay.
    assert_eq!(after(&risen(&narrowed, 5)), (0, Some((50, 2))));
    // Any other change begins the count anew.
    let other = risen(&lowered, 2).rekeyed().expect("a change");
    assert_eq!(after(&other), (3, None));
    assert_eq!(after(&risen(&other, 3)), (0, Some((70, 2))));
    // One that is raised again before the third step drops no copy.
    let raised = with_copies(&risen(&lowered, 2), 3);
    assert_eq!(after(&risen(&raised, 3)), (0, None));
    // The next lowering counts for more records.
    let again = with_copies(&narrowed, 1);
    assert_eq!(after(&again), (3, Some((50, 2))));
    assert_eq!(after(&risen(&again, 3)), (0, Some((80, 1))));
    let field = "narrowing";
    let bad = bent(&narrowed, |bent| bent.narrowing.copies = 0);
    assert_eq!(bad.checked(), Err(BadRecord::Field { field }));
}

#[test]
fn a_restore_raises_the_least_successor_number() {
    let least = |number| LeastSuccessor::new(number).expect("a small one");
    let before = mixed();
    let restored = before.restored(least(70_000)).expect("under a plan, too");
    assert_eq!(succeeds(&before, &restored), Ok(()));
    assert_eq!(
        EpochRecord::decode(&restored.encode()),
        Ok(restored.clone())
    );
    // It stays with all that follows, and never falls.
    let after = restored.rekeyed().expect("a change");
    assert_eq!(after.least_successor(), least(70_000));
    assert_eq!(restored.restored(least(70_000)), Err(WhyNot::NoStep));
    let higher = bent(&after, |r| r.least_successor = least(70_001));
    let change = EpochChange::Rekeyed;
    assert_eq!(check(&restored, higher), WhyNot::Mixed { change });
    let none = bent(&restored, |r| r.least_successor = least(0));
    assert!(succeeds(&before, &none).is_err());
    let all = with_all();
    let fallen = bent(&all.forgot(1 << 40).expect("above"), |r| {
        r.least_successor = least(4);
    });
    assert!(!overtakes(&all, &fallen));
    let field = "least successor number";
    // No number is above the largest.
    let at = 1 + 2 + 8 * horizons::FLOORS + 11;
    let mut body = FIXTURE[..FIXTURE.len() - 8].to_vec();
    body[at..at + 4].copy_from_slice(&u32::to_le_bytes(LeastSuccessor::MAX.number() + 1));
    let sealed = [&body[..], &codec::checksum(&body).to_le_bytes()].concat();
    assert_eq!(
        EpochRecord::decode(&sealed),
        Err(BadRecord::Field { field })
    );
}

#[test]
fn a_record_up_to_the_age_has_no_more_copies_than_the_factor() {
    let first = first();
    let mut record = risen(&with_copies(&first, 2), 3);
    let clock = 1_700_000_000_000 << 16;
    record.narrowing.age = clock;
    let narrowed = |copies_now: u8, hlc: u64, rmw: u32| {
        let version = Version {
            hlc,
            origin: 1,
            rmw,
        };
        let mut cell = CellRef::value(b"k", version, b"v");
        cell.copies = copies_now;
        record.narrowing().copies_of(&cell)
    };
    assert_eq!(narrowed(3, clock, 0), 2);
    assert_eq!(narrowed(1, clock, 0), 1);
    assert_eq!(narrowed(3, clock + 1, 0), 3, "a client's later wish");
    assert_eq!(narrowed(3, clock, 1), 3, "an age that is not known");
}

#[test]
fn sizes_are_those_of_the_format_page() {
    let page = include_str!("../../../../../docs/format/epochs.md");
    let size = |members: usize, partitions: u16| {
        let list = (0..members).map(|i| {
            let url = format!("http://member-{i:02}.example:8080");
            Member::new(&url).expect("an address")
        });
        let topology = Topology::new("dendra", list.collect(), 3).expect("a topology");
        let topology = topology.with_partitions(partitions).expect("a number");
        EpochRecord::founded(&topology).encode().len()
    };
    for (members, partitions) in [(3, 256), (100, 256), (100, 16384)] {
        let bytes = size(members, partitions);
        let row = format!("| {members} | {partitions} | {bytes} |");
        assert!(page.contains(&row), "{row}");
    }
    assert!(page.contains(&format!("| the largest | | {} |", codec::RECORD_BYTES_MAX)));
}

proptest! {
    #[test]
    fn any_legal_chain_of_epochs_is_read_as_it_was_written(seed: u64, side_by_side in 1usize..5) {
        let mut prng = Prng::new(seed);
        let mut record = first();
        for _ in 0..60 {
            let now = wanted(&record);
            let count = now.members.len();
            let at = prng.below(count as u64) as usize;
            let next = record.owners().next();
            let mut then = now.clone();
            let made = match prng.below(4) {
                0 if count < 7 => {
                    then.members.push(WantedMember { id: next, ..now.members[0].clone() });
                    plan(record.owners(), &now, &then)
                }
                1 => {
                    then.members.remove(at);
                    plan(record.owners(), &now, &then)
                }
                2 => replacement(record.owners(), record.members()[at].id, next, &[]),
                _ => {
                    then.members[at].weight += 1;
                    plan(record.owners(), &now, &then)
                }
            };
            let after = match (record.plan().is_some(), made) {
                (true, _) if prng.chance(1, 12) => record.cancelled().ok(),
                (true, _) => step(&record, side_by_side),
                (false, Ok(moves)) => {
                    let mut new = new_plan(&record, moves);
                    let stays = |share: &WantedMember| record.member(share.id).is_some();
                    new.shares = then.members.into_iter().filter(stays).collect();
                    Some(record.planned(&new).expect("it may begin"))
                }
                (false, Err(_)) => record.rekeyed().ok(),
            };
            let Some(after) = after else { continue };
            prop_assert_eq!(succeeds(&record, &after), Ok(()));
            prop_assert_eq!(EpochRecord::decode(&after.encode()), Ok(after.clone()));
            // The chain goes one way.
            prop_assert!(succeeds(&after, &record).is_err());
            record = after;
        }
    }
}

proptest! {
    /// The parts of a record beside its members: each that holds the invariants is read back.
    #[test]
    fn any_legal_record_of_an_epoch_is_read_as_it_was_written(
        version in 0..4_u16,
        floors: [u64; 6],
        count in 0..=6_usize,
        narrowing in (any::<u64>(), 0..5_u8, 0..5_u8, 0..4_u8),
        least in prop_oneof![Just(0), Just(1), Just(LeastSuccessor::MAX.number()), any::<u32>()],
        name in "[A-Za-z0-9._-]{1,64}",
        places in prop::collection::vec(("[a-z0-9]{1,60}(\\.[a-z0-9]{1,60}){0,3}", 0..3_u16, "[A-Za-z0-9._-]{0,64}"), 4),
        parts: [bool; 3],
        secrets: u32,
    ) {
        let (_, planned) = replacing();
        for record in [mixed(), planned] {
            let record = bent(&record, |record| {
                record.name.clone_from(&name);
                record.secrets = secrets;
                record.in_force = ClusterVersion(version);
                let [has_horizons, has_narrowing, has_least] = parts;
                let mut floors = floors;
                floors.sort_unstable_by(|a, b| b.cmp(a));
                floors[count..].fill(0);
                if has_horizons {
                    record.horizons.floors = floors;
                }
                if has_narrowing {
                    let (age, copies, before, steps_left) = narrowing;
                    record.narrowing = Narrowing { age, copies, before, steps_left };
                }
                if let Some(least) = LeastSuccessor::new(least).filter(|_| has_least) {
                    record.least_successor = least;
                }
                for (member, (host, weight, zone)) in record.members.iter_mut().zip(&places) {
                    member.place.weight = *weight;
                    member.place.zone.clone_from(zone);
                    member.place.url = format!("http://{host}.n{}:8080", member.id.0);
                }
            });
            if let Ok(record) = record.checked() {
                prop_assert_eq!(EpochRecord::decode(&record.encode()), Ok(record));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_bytes_make_a_record_that_is_none(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
        at in any::<prop::sample::Index>(), value: u8, cut in any::<prop::sample::Index>(),
    ) {
        // With the checksum made right, so that the checks after it are reached.
        let sealed = |body: &[u8]| [body, &codec::checksum(body).to_le_bytes()[..]].concat();
        let body = &FIXTURE[..FIXTURE.len() - 8];
        let mut turned = body.to_vec();
        turned[at.index(body.len())] = value;
        let short = &body[..cut.index(body.len())];
        let long = [body, &bytes[..]].concat();
        let any = [&[1][..], &bytes[..]].concat();
        for body in [&turned[..], short, &long[..], &any[..], &bytes[..]] {
            if let Ok(record) = EpochRecord::decode(&sealed(body)) {
                prop_assert_eq!(record.clone().checked(), Ok(record.clone()));
                prop_assert_eq!(record.encode(), sealed(body), "one record has one form");
            }
        }
        prop_assert!(EpochRecord::decode(&bytes).is_err());
        let mut damaged = FIXTURE.to_vec();
        let at = at.index(damaged.len());
        damaged[at] = damaged[at].wrapping_add(value | 1);
        prop_assert!(EpochRecord::decode(&damaged).is_err());
    }

    #[test]
    fn any_legal_vote_is_read_as_it_was_written_and_damage_is_noticed(
        round: u64, number: u32, removed: u64, is_accepted: bool,
        at in any::<prop::sample::Index>(), value: u8,
    ) {
        let record = Arc::new(mixed());
        let ballot = EpochBallot { round, member: id(number) };
        let accepted = is_accepted.then(|| AcceptedRecord { ballot, record: Arc::clone(&record) });
        let note = VoteNote { epoch: record.epoch(), promised: ballot, accepted, removed };
        let bytes = note.encode();
        prop_assert_eq!(VoteNote::decode(&bytes), Ok(note));
        let mut damaged = bytes;
        let at = at.index(damaged.len());
        damaged[at] = damaged[at].wrapping_add(value | 1);
        prop_assert!(VoteNote::decode(&damaged).is_err());
    }
}
