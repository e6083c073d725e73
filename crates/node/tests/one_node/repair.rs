//! How a member repairs records that it has lost. The tests say when it begins, which owners it
//! walks, and when the damaged block may go.
//!
//! ```text
//! Lost ─► nothing for the wait ─► Load to one owner, then to the other ─► writes ─► Repaired
//! ```
//!
//! Not here: stores that are damaged (crates `engine`, `sim`).
//! See: docs/protocol.md, "Damage".

use crate::epochs;
use crate::world::{Asked, World, last_page, record, span, version};
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Refused};
use dendra_base::{Cell, CellRef, Guard, Key, Space};
use dendra_node::limits::REPAIR_PAUSE_US;
use dendra_node::step::{Event, StoreFailure};
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::ring::table::{MemberId, OwnerTable};
use dendra_ownership::topology::PARTITIONS_DEFAULT;
use dendra_ownership::{Layout, MemberIndex};
use std::collections::BTreeSet;
use std::sync::Arc;

const WAIT_US: u64 = 5_000_000;

/// The first of three members, with links to the others.
fn linked() -> World {
    linked_in(epochs::enrolled(3, 3), MemberIndex(0))
}

fn linked_in(record: EpochRecord, me: MemberIndex) -> World {
    let mut world = World::with(record, me, |config| {
        config.is_keeper = true;
        config.repair_wait_us = WAIT_US;
    });
    world.link_all();
    world.effects();
    world
}

/// It has lost the records from `a` to `c`, and waits no more.
fn waited() -> World {
    let mut world = linked();
    world.lose(&Key::user(b"a"), &Key::user(b"c"));
    world.pass(WAIT_US);
    world
}

/// The page that is asked for; hints of other members are asked for, too.
fn page(world: &mut World) -> Option<Asked> {
    let mut asks = world.asks().into_iter();
    asks.find(|asked| matches!(asked.ask, Ask::Load { .. }))
}

/// The space of a page, and its first key.
fn part(page: &Asked) -> (Space, Bytes) {
    match &page.ask {
        Ask::Load { space, start, .. } => (*space, start.clone()),
        other => panic!("{other:?} is no page"),
    }
}

/// An owner holds no record in any part of the span: its walk ends.
fn walk_empty(world: &mut World) -> MemberIndex {
    let page = page(world).expect("a page is asked for");
    world.answer(&page, last_page(Vec::new()));
    page.member
}

/// The records that an owner shows.
fn shown(records: &[&[u8]]) -> Vec<(Bytes, Cell)> {
    let record = |raw: &&[u8]| (Bytes::copy_from_slice(raw), record(raw, 9, b"v").1);
    records.iter().map(record).collect()
}

fn is_repaired(world: &mut World) -> bool {
    world.repaired() == [17]
}

#[test]
fn a_span_is_repaired_once_both_other_owners_were_walked() {
    let mut world = waited();
    let first = walk_empty(&mut world);
    assert!(
        !is_repaired(&mut world),
        "one of two others may lack what a majority has"
    );
    let second = walk_empty(&mut world);
    assert_ne!(first, second);
    assert!(is_repaired(&mut world));
}

#[test]
fn a_repair_begins_when_no_operation_is_under_way_any_more() {
    let mut world = linked();
    world.lose(&Key::user(b"a"), &Key::user(b"c"));
    world.pass(WAIT_US - 1_000);
    assert_eq!(page(&mut world), None);
    assert!(!is_repaired(&mut world));
    world.pass(1_000);
    assert!(page(&mut world).is_some());
}

#[test]
fn records_of_the_span_are_durable_before_it_is_repaired_and_others_are_left_alone() {
    let mut world = waited();
    let first = page(&mut world).expect("a page is asked for");
    assert_eq!(part(&first), (Space::User, Bytes::from_static(b"a")));
    let records = shown(&[b"b", b"d"]);
    let next = Some(Bytes::from_static(b"e"));
    world.answer(&first, Answer::Loaded { records, next });
    let writes = world.writes();
    let [write] = &writes[..] else {
        panic!("the other one lies behind the span: {writes:?}");
    };
    let written = (write.key.clone(), write.cell.clone());
    assert_eq!(written, record(b"b", 9, b"v"));
    assert_eq!(write.guard, Guard::Newest);
    let rest = page(&mut world);
    assert_eq!(rest, None, "the walk goes on when it is durable");
    world.written(write);
    world.pass(1_000_000);
    walk_empty(&mut world);
    assert!(is_repaired(&mut world));
}

#[test]
fn a_write_that_fails_is_tried_again() {
    let mut world = waited();
    for _ in 0..2 {
        let page = page(&mut world).expect("the page is asked for");
        world.answer(&page, last_page(shown(&[b"b"])));
        let write = world.writes().pop().expect("it is written");
        let (ticket, result) = (write.ticket, Err(StoreFailure::Busy));
        world.step(Event::Wrote { ticket, result });
        assert!(!is_repaired(&mut world));
        world.pass(REPAIR_PAUSE_US);
    }
}

#[test]
fn an_owner_that_cannot_read_its_copies_is_waited_for() {
    let mut world = waited();
    let first = page(&mut world).expect("a page is asked for");
    world.answer(&first, Answer::Refused(Refused::Damaged));
    let other = walk_empty(&mut world);
    assert_ne!(first.member, other);
    assert_eq!(page(&mut world), None);
    assert!(!is_repaired(&mut world));
    world.pass(REPAIR_PAUSE_US);
    assert_eq!(walk_empty(&mut world), first.member);
    assert!(is_repaired(&mut world));
}

/// Lets a second pass: each page is answered as `answer` says, with `None` for damage.
fn answer_pages(world: &mut World, answer: &dyn Fn(&Asked) -> Option<Answer>) -> usize {
    let mut asked = 0;
    while let Some(page) = page(world) {
        let refused = Answer::Refused(Refused::Damaged);
        world.answer(&page, answer(&page).unwrap_or(refused));
        for write in world.writes() {
            world.written(&write);
        }
        asked += 1;
    }
    world.pass(REPAIR_PAUSE_US);
    asked
}

#[test]
fn a_span_that_waits_stops_no_other_one() {
    let mut world = linked();
    let spans = [(b"a", b"b"), (b"c", b"d"), (b"e", b"f"), (b"g", b"h")];
    let lost = (1..)
        .zip(spans)
        .map(|(id, (first, last))| span(id, 50 + id, &Key::user(first), &Key::user(last)));
    world.step(Event::Lost {
        spans: lost.collect(),
    });
    world.pass(WAIT_US);
    // The first span is damaged at one other owner, the third one at the other.
    let is_damaged = |page: &Asked| {
        let (_, start) = part(page);
        let of_h2 = page.member == MemberIndex(1);
        (start == "a" && of_h2) || (start == "e" && !of_h2)
    };
    let whole = |page: &Asked| (!is_damaged(page)).then(|| last_page(Vec::new()));
    let mut asked = 0;
    for _ in 0..60 {
        asked += answer_pages(&mut world, &whole);
    }
    assert_eq!(world.repaired(), [2, 4]);
    let waits = world.repairs_waiting();
    let of = |id: u32| BTreeSet::from([MemberId(id)]);
    assert_eq!(waits, [(1, of(1)), (3, of(2))], "each is said once");
    assert!(asked < 30, "{asked} pages: it asks ever more rarely");
    for _ in 0..60 {
        answer_pages(&mut world, &|_| Some(last_page(Vec::new())));
    }
    assert_eq!(world.repaired(), [1, 3]);
}

#[test]
fn pages_in_front_of_a_gap_are_not_asked_for_again() {
    let mut world = waited();
    let first = page(&mut world).expect("a page is asked for");
    let (records, next) = (shown(&[b"a"]), Some(Bytes::from_static(b"b")));
    world.answer(&first, Answer::Loaded { records, next });
    let write = world.writes().pop().expect("it is written");
    world.written(&write);
    world.pass(REPAIR_PAUSE_US);
    let gap = page(&mut world).expect("the next page is asked for");
    assert_eq!(
        (gap.member, part(&gap).1),
        (first.member, Bytes::from_static(b"b"))
    );
    world.answer(&gap, Answer::Refused(Refused::Damaged));
    walk_empty(&mut world);
    world.pass(REPAIR_PAUSE_US);
    let again = page(&mut world).expect("the gap is asked for");
    assert_eq!(
        (again.member, part(&again).1),
        (first.member, Bytes::from_static(b"b"))
    );
    world.answer(&again, last_page(Vec::new()));
    assert!(is_repaired(&mut world));
}

#[test]
fn notes_of_the_node_are_never_repaired() {
    let mut world = linked();
    world.lose(&Key::new(Space::Meta, b"self"), &Key::user(b"c"));
    world.pass(10 * WAIT_US);
    assert_eq!(page(&mut world), None);
    assert!(!is_repaired(&mut world));
}

#[test]
fn what_has_one_copy_is_never_said_to_be_repaired() {
    let repaired = |copies| {
        let mut world = linked_in(epochs::enrolled(3, copies), MemberIndex(0));
        world.lose(&Key::user(b"b"), &Key::user(b"d"));
        world.pass(WAIT_US);
        for _ in 0..20 {
            if let Some(page) = page(&mut world) {
                world.answer(&page, last_page(Vec::new()));
            }
            world.pass(REPAIR_PAUSE_US);
        }
        is_repaired(&mut world)
    };
    assert!(repaired(2));
    assert!(!repaired(1));
}

#[test]
fn what_moves_to_a_joiner_as_the_only_copy_is_never_said_to_be_repaired() {
    let planned = epochs::joining(&epochs::enrolled(2, 1));
    let mut world = linked_in(epochs::arrived(&planned, 1), MemberIndex(2));
    world.lose(&Key::user(b"b"), &Key::user(b"d"));
    // Pages that it loads because they move to it are none of the repair.
    let mut walked = 0;
    for _ in 0..20 {
        world.pass(WAIT_US);
        if let Some(page) = page(&mut world) {
            walked += usize::from(part(&page).1 == b"b"[..]);
            world.answer(&page, last_page(Vec::new()));
        }
    }
    assert_eq!(walked, 0);
    assert!(!is_repaired(&mut world));
}

#[test]
fn a_further_owner_that_is_about_to_take_an_earlier_place_does_not_walk_itself() {
    let me = MemberIndex(0);
    let enrolled = epochs::enrolled(5, 3);
    let (owners, id) = (enrolled.owners(), MemberId(u32::from(me.0)));
    let of_others = owners.all().filter(|at| !owners.owners(*at).contains(&id));
    let moves = of_others.map(|at| epochs::move_to(&enrolled, at, 0, id));
    let mut world = linked_in(epochs::moving(&enrolled, moves.collect()), me);
    world.lose(&Key::user(b"b"), &Key::user(b"d"));
    let mut walked = BTreeSet::new();
    let is_repaired = (0..1_000).any(|_| {
        world.pass(REPAIR_PAUSE_US);
        for asked in world.asks() {
            if let Ask::Load { .. } = &asked.ask {
                walked.extend((part(&asked).1 == b"b"[..]).then_some(asked.member));
                world.answer(&asked, last_page(Vec::new()));
            }
        }
        is_repaired(&mut world)
    });
    assert!(is_repaired);
    assert!(!walked.is_empty() && !walked.contains(&me), "{walked:?}");
}

/// The first `copies` owners of each partition are h1, h2 and so on. The further ones differ.
fn in_a_row(members: u32, copies: u8) -> EpochRecord {
    let ids: Vec<MemberId> = (0..members).map(MemberId).collect();
    let row = ids[..usize::from(copies)].to_vec();
    let rows = vec![row; usize::from(PARTITIONS_DEFAULT)];
    let owners = OwnerTable::of_owners(members, ids, rows).expect("a table");
    let members = epochs::enrolled(members, copies).members().to_vec();
    EpochRecord::first("dendra", members, copies, owners).expect("a record")
}

/// A set of members.
fn set_of(members: &[MemberIndex]) -> u32 {
    members.iter().fold(0, |set, member| set | 1 << member.0)
}

/// A record with each number of copies is stored once a majority of its owners has it. Is one of
/// `reached` in each majority that `me` is in?
fn meets_each_majority(row: &[MemberIndex], me: MemberIndex, reached: u32) -> bool {
    let is_met = |copies: usize| {
        let owners = set_of(&row[..copies]);
        let sets = (0..=owners).filter(|set| set & !owners == 0 && set & set_of(&[me]) != 0);
        let mut majorities = sets.filter(|set| set.count_ones() as usize > copies / 2);
        majorities.all(|set| set & reached != 0)
    };
    let keeps = |copies: &usize| row[..*copies].contains(&me);
    // Of a record with one copy there is no other.
    (2..=row.len()).filter(keeps).all(is_met)
}

/// Is the span repaired while these other members alone can be reached?
fn is_repaired_from(record: EpochRecord, me: MemberIndex, reached: &[MemberIndex]) -> bool {
    let mut world = World::with(record, me, |config| {
        config.is_keeper = true;
        config.repair_wait_us = WAIT_US;
    });
    let layout = Arc::clone(&world.layout);
    for other in layout.members().filter(|other| *other != me) {
        world.link(other, reached.contains(&other));
    }
    world.effects();
    world.lose(&Key::user(b"b"), &Key::user(b"d"));
    world.pass(WAIT_US);
    for _ in 0..2 * reached.len() {
        for asked in world.asks() {
            if let Ask::Load { .. } = &asked.ask {
                world.answer(&asked, last_page(Vec::new()));
            }
        }
        world.pass(REPAIR_PAUSE_US);
    }
    is_repaired(&mut world)
}

/// A record has as many copies as its client said, or as the factor was when it was written.
#[test]
fn a_repair_meets_each_majority_of_each_number_of_copies() {
    let mut repaired = 0;
    let clusters = (2..=5_u32).flat_map(|members| (1..=members).map(move |r| (members, r)));
    for (members, copies) in clusters {
        let record = in_a_row(members, copies as u8);
        let layout = Layout::of_record(&record).expect("its members");
        let ring = layout.ring();
        let rows: BTreeSet<&[MemberIndex]> = ring.all().map(|at| ring.owners(at)).collect();
        for me in layout.members() {
            let own = set_of(&[me]);
            // The only copy of each record of the usual number of copies.
            let is_alone = copies == 1 && rows.iter().any(|row| row[0] == me);
            for reached in (0_u32..1 << members).filter(|set| set & own == 0) {
                let is_enough = |row: &&[MemberIndex]| meets_each_majority(row, me, reached);
                let is_enough = !is_alone && rows.iter().all(is_enough);
                let others = layout
                    .members()
                    .filter(|other| reached & set_of(&[*other]) != 0);
                let others: Vec<MemberIndex> = others.collect();
                let is_repaired = is_repaired_from(record.clone(), me, &others);
                let case = format!("{me:?} with {copies} copies of {rows:?}, from {others:?}");
                assert_eq!(is_repaired, is_enough, "{case}");
                repaired += usize::from(is_repaired);
            }
        }
    }
    assert!(repaired > 50, "{repaired}");
}

#[test]
fn a_promise_that_is_lost_is_written_anew_above_any_version_that_it_had() {
    let mut world = linked();
    let key = Key::new(Space::Protocol, b"k");
    world.lose(&key, &key);
    world.pass(WAIT_US);
    let page = page(&mut world).expect("a page is asked for");
    assert_eq!(part(&page).0, Space::Protocol);
    // Format 1: a promise, and no accepted proposal.
    let mut value = vec![1];
    value.extend_from_slice(&7_u64.to_be_bytes());
    value.extend_from_slice(&3_u32.to_be_bytes());
    let cell = CellRef::value(key.as_stored(), version(1), &value).to_owned();
    world.answer(&page, last_page(vec![(Bytes::from_static(b"k"), cell)]));
    let [ticket] = world.reads()[..] else {
        panic!("the own record is read first");
    };
    let result = Err(StoreFailure::Damaged);
    world.step(Event::Read { ticket, result });
    let write = world.writes().pop().expect("it is written");
    assert_eq!((write.key, write.guard), (key, Guard::Newest));
    assert_eq!(write.cell.value, value, "the promise of the other owner");
    let version = write.cell.version;
    assert!(
        version.hlc > crate::world::WALL_MS,
        "records count from 1: {version:?}"
    );
}
