//! Pages of a scan while all positions of one member move to another one. Both of its owners count,
//! and the answers that make a page are of one epoch.
//!
//! ```text
//! owners of everything    me, old, third  ─►  me, old ▸ new, third  ─►  me, new, third
//! ```
//!
//! Not here: operations (`moving.rs`), pages of a cluster at rest (`scans.rs`).

use crate::epochs;
use crate::world::{Asked, KEY, World, from, record};
use bytes::Bytes;
use dendra_base::Cell;
use dendra_base::peer::{Answer, Ask, Refused};
use dendra_node::limits::SCAN_PATIENCE_US;
use dendra_node::step::Effect;
use dendra_ownership::MemberIndex;
use dendra_ownership::ring::table::MemberId;

const OLD: MemberIndex = MemberIndex(1);
const NEW: MemberIndex = MemberIndex(3);

/// A member that coordinates scans, and owns all partitions as two others do.
fn moving() -> World {
    let record = epochs::enrolled(3, 3);
    let moving = epochs::replacing(&record, MemberId(u32::from(OLD.0)), &[]);
    World::new(moving, MemberIndex(0))
}

/// A client wants a page: the questions to other members. The own store holds no record.
fn scan(world: &mut World) -> Vec<Asked> {
    world.scan(1, from(KEY), 1_000);
    asked(world)
}

fn asked(world: &mut World) -> Vec<Asked> {
    let mut asked = world.asks();
    asked.retain(|asked| matches!(asked.ask, Ask::Page { .. }));
    let pages = world.show_empty_pages();
    assert_eq!(pages, 1, "the own store is asked");
    asked
}

/// A member answers the question that it got among these.
fn answer(world: &mut World, asked: &[Asked], member: MemberIndex, answer: Answer) {
    let asked = asked.iter().find(|asked| asked.member == member);
    world.answer(asked.expect("it was asked"), answer);
}

/// Members that are late are given up.
fn lose_patience(world: &mut World) {
    world.pass(SCAN_PATIENCE_US + 1);
}

/// All moves have arrived, and this member learns so.
fn settle(world: &mut World) {
    world.adopt(epochs::arrived(&world.record, epochs::AT_ONCE));
}

/// The keys of the page that is shown.
fn shown(world: &mut World) -> Option<Vec<Bytes>> {
    let shown = world.effects().into_iter().find_map(|effect| match effect {
        Effect::Scanned {
            records, failure, ..
        } => Some((records, failure)),
        _ => None,
    });
    let (records, failure) = shown?;
    assert_eq!(failure, None, "a majority answers");
    Some(records.into_iter().map(|(key, _)| key).collect())
}

fn page(records: Vec<(Bytes, Cell)>) -> Answer {
    let rest = None;
    Answer::Page { records, rest }
}

#[test]
fn a_page_counts_an_old_owner_only_together_with_the_new_one() {
    let mut world = moving();
    let asked_first = scan(&mut world);
    answer(&mut world, &asked_first, OLD, page(Vec::new()));
    // It and the third member may have confirmed a write in the next epoch, without the old owner.
    let epoch = world.layout.epoch() + 1;
    let stale = Answer::Refused(Refused::Stale { epoch });
    answer(&mut world, &asked_first, NEW, stale);
    lose_patience(&mut world);
    assert_eq!(
        shown(&mut world),
        None,
        "no majority of this epoch answered"
    );
    settle(&mut world);
    let asked_again = asked(&mut world);
    let (_, cell) = record(KEY, 1, b"v");
    let records = vec![(Bytes::from_static(KEY), cell)];
    answer(&mut world, &asked_again, NEW, page(records));
    lose_patience(&mut world);
    assert_eq!(shown(&mut world), Some(vec![Bytes::from_static(KEY)]));
}

#[test]
fn answers_of_one_epoch_do_not_count_for_the_owners_of_the_next() {
    let mut world = moving();
    let asked = scan(&mut world);
    // It has not loaded yet. The two other owners may hold a record that it lacks.
    answer(&mut world, &asked, NEW, page(Vec::new()));
    settle(&mut world);
    lose_patience(&mut world);
    assert_eq!(shown(&mut world), None, "no owner of this epoch was heard");
}
