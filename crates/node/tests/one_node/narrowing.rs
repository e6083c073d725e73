//! Owners beyond a lowered replication factor. Which old records a further one shows and takes, and
//! which copies a read mends.
//!
//! ```text
//! four members, factor 3 ─► 2, three steps of the horizons      the third owner of a key
//!   an old record of three copies                               is not shown, and not taken
//!   a later one of three copies                                 is
//!
//! before the third step                                         the first owner's copy is damaged
//!   the second owner's copy                                     does not mend it
//! ```
//!
//! Not here: when copies go (`crates/sim`), the record that says so
//! (`crates/ownership/src/epoch/record/`).
//! See: docs/decisions/0045-a-lowered-factor.md.

use crate::epochs;
use crate::world::{KEY, SECOND_US, WALL_MS, World, from, record};
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Operation, Refused};
use dendra_base::{Cell, Key};
use dendra_node::step::{Event, StoreFailure};
use dendra_node::{Hlc, Outcome};
use dendra_ownership::Layout;
use dendra_ownership::epoch::record::EpochRecord;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The floor of the first step after the plan: records up to it are old.
const OLD: u64 = WALL_MS << 16;

/// The factor falls from three to two.
fn lowered() -> EpochRecord {
    let founded = epochs::founded(4, 3);
    epochs::with_copies(&epochs::let_in(&founded), 2)
}

/// The same, and the horizons rise three times.
fn narrowed() -> EpochRecord {
    let mut record = lowered();
    for floor in [OLD, OLD + 10, OLD + 20] {
        let early = record.narrowing().given_back();
        assert_eq!(early, None, "all copies are compared first");
        record = record.forgot(floor).expect("above the last one");
    }
    assert_eq!(record.narrowing().given_back(), Some((OLD, 2)));
    record
}

fn cell(copies: u8, hlc: u64) -> Cell {
    let (_, mut cell) = record(KEY, hlc, b"v");
    cell.copies = copies;
    cell
}

/// The owner at this place, counted from 0, is asked; its store has `stored`.
fn ask(place: usize, ask: Ask, stored: &Cell) -> Answer {
    let record = narrowed();
    let layout = Layout::of_record(&record).expect("its members");
    let owners = layout.ring().owners(layout.ring().partition(KEY)).to_vec();
    let (me, peer) = (owners[place], owners[(place + 1) % 4]);
    let mut world = World::with(record, me, |config| {
        config.hlc = Arc::new(Hlc::new(OLD + 30, WALL_MS + 1_000));
    });
    world.now_us = SECOND_US;
    let cells = BTreeMap::from([(Key::user(KEY), stored.clone())]);
    world.asked_by(peer, 1, ask);
    loop {
        if let Some(answer) = world.replies().pop() {
            return answer;
        }
        if let Some(ticket) = world.reads().pop() {
            let result = Ok(Some(stored.clone()));
            world.step(Event::Read { ticket, result });
        } else if let Some(page) = world.pages().pop() {
            let (ticket, result) = (page.ticket, page.of(&cells));
            world.step(Event::Paged { ticket, result });
        } else {
            let write = world.writes().pop().expect("an answer, or an order");
            world.written(&write);
        }
    }
}

fn read(stored: &Cell) -> Ask {
    Ask::Read {
        key: Bytes::from_static(KEY),
        known: Some(stored.id()),
    }
}

#[test]
fn a_further_owner_shows_no_copy_that_a_lowered_factor_takes_back() {
    let (old, later, fewer) = (cell(3, OLD), cell(3, OLD + 1), cell(2, OLD));
    for (place, stored, is_shown) in [
        (1, &old, true),
        (2, &old, false),
        (2, &later, true),
        // Behind a change of the owners, and not a matter of the factor.
        (2, &fewer, true),
    ] {
        let wanted = if is_shown {
            Answer::Same
        } else {
            Answer::Cell(None)
        };
        let shown = ask(place, read(stored), stored);
        assert_eq!(shown, wanted, "{place} {stored:?}");
        let (range, bytes) = (from(b""), 1_000);
        let page = ask(place, Ask::Page { range, bytes }, stored);
        let Answer::Page { records, .. } = page else {
            panic!("{page:?}");
        };
        assert_eq!(records.len(), usize::from(is_shown), "{place} {stored:?}");
    }
}

#[test]
fn a_further_owner_takes_no_copy_that_a_lowered_factor_takes_back() {
    let write = |place: usize, hlc: u64| {
        let (key, cell) = (Bytes::from_static(KEY), cell(3, hlc));
        let stored = cell.clone();
        ask(place, Ask::Write { key, cell }, &stored)
    };
    assert_eq!(write(2, OLD), Answer::Refused(Refused::NotOwner));
    assert_eq!(write(2, OLD + 1), Answer::Written(cell(3, OLD + 1).version));
    assert_eq!(write(1, OLD), Answer::Written(cell(3, OLD).version));
}

/// The first owner, whose copy is damaged, reads the key. The second one has this cell. The cell
/// that is written over the damage, and the outcome.
fn read_of_damage(record: EpochRecord, second: &Cell) -> (Vec<Cell>, Outcome) {
    let layout = Layout::of_record(&record).expect("its members");
    let owners = layout.ring().owners(layout.ring().partition(KEY));
    let mut world = World::new(record, owners[0]);
    world.link_all();
    world.begin(Operation::Get);
    let mut written = Vec::new();
    let mut outcome = None;
    while outcome.is_none() {
        for ticket in world.reads() {
            let result = Err(StoreFailure::Damaged);
            world.step(Event::Read { ticket, result });
        }
        for asked in world.asks() {
            if let Ask::Read { .. } = asked.ask {
                assert_eq!(asked.member, owners[1], "two copies are read");
                world.answer(&asked, Answer::Cell(Some(second.clone())));
            }
        }
        for write in world.writes() {
            world.written(&write);
            written.push(write.cell);
        }
        world.pass(SECOND_US / 10);
        outcome = world.outcomes().pop();
    }
    (written, outcome.expect("the loop ended"))
}

/// The first and the third owner may have confirmed a newer one, while there were three copies.
#[test]
fn before_the_third_step_no_read_of_the_fewer_owners_mends_damage() {
    let cell = cell(2, OLD);
    let (written, outcome) = read_of_damage(lowered(), &cell);
    assert_eq!(written, []);
    assert!(matches!(outcome, Outcome::NotEnough { .. }), "{outcome:?}");
    let (written, outcome) = read_of_damage(narrowed(), &cell);
    assert_eq!(written, [cell]);
    assert!(matches!(outcome, Outcome::Found { .. }), "{outcome:?}");
}
