//! A further owner behind a lowered replication factor: what it shows and takes of old records.
//!
//! ```text
//! four members, factor 3 ─► 2, three steps of the horizons      the third owner of a key
//!   an old record of three copies                               is not shown, and not taken
//!   a later one of three copies                                 is
//! ```
//!
//! Not here: when copies go (`crates/sim`), the record that says so (`../src/topology/record/`).
//! See: docs/decisions/0045-a-lowered-factor.md.

mod support;

use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Range, Refused, Stamp};
use dendra_base::{Cell, CellRef, ClusterVersion, Key, Version};
use dendra_node::ring::plan::{WantedMember, WantedMembers, plan};
use dendra_node::ring::table::MemberId;
use dendra_node::step::{Asker, Effect, Event, Now, StoreOutcome};
use dendra_node::topology::drive::{MoveArrived, next_step};
use dendra_node::topology::record::{EpochRecord, NewPlan};
use dendra_node::{Hlc, Layout, Member, MemberIndex, Node, Topology};
use std::sync::Arc;

const KEY: &[u8] = b"k";
const WALL_MS: u64 = 1_700_000_000_000;
/// The floor of the first step behind the plan: records up to it are old.
const OLD: u64 = WALL_MS << 16;

/// The factor falls from three to two, and the horizons rise three times.
fn narrowed() -> EpochRecord {
    let named = (1..=4).map(|at| Member::new(&format!("h{at}:1")).expect("an address"));
    let topology = Topology::new("dendra", named.collect(), 3).expect("a topology");
    let founded = EpochRecord::founded(&topology).in_version(ClusterVersion::NARROWING);
    let nodes: Vec<_> = (0..4)
        .map(|at| (MemberId(at), u128::from(at) + 1))
        .collect();
    let enrolled = founded.enrolled(&nodes).expect("all are new");
    let with = |replication_factor| WantedMembers {
        members: (0..4)
            .map(|at| WantedMember {
                id: MemberId(at),
                weight: 1,
                zone: String::new(),
            })
            .collect(),
        replication_factor,
        lost: Vec::new(),
    };
    let new = NewPlan {
        author: MemberId(0),
        moves: plan(enrolled.owners(), &with(3), &with(2)).expect("a plan"),
        newcomers: Vec::new(),
        shares: Vec::new(),
        replication_factor: 2,
    };
    let mut record = enrolled.planned(&new).expect("it may begin");
    while let Some(plan) = record.plan().map(|plan| plan.id) {
        let moving = record.owners().all().filter_map(|at| record.moving(at));
        let arrived: Vec<_> = moving.map(|step| MoveArrived { plan, step }).collect();
        record = next_step(&record, &arrived, 256).expect("all have arrived");
    }
    for floor in [OLD, OLD + 10, OLD + 20] {
        let early = record.narrowing().given_back();
        assert_eq!(early, None, "all copies are compared first");
        record = record.forgot(floor).expect("above the last one");
    }
    assert_eq!(record.narrowing().given_back(), Some((OLD, 2)));
    record
}

fn cell(copies: u8, hlc: u64) -> Cell {
    let version = Version {
        hlc,
        origin: 9,
        rmw: 0,
    };
    let mut cell = CellRef::value(Key::user(KEY).as_stored(), version, b"v").to_owned();
    cell.copies = copies;
    cell
}

/// The owner at this place, counted from 0, is asked; its store has `stored`.
fn ask(place: usize, ask: Ask, stored: &Cell) -> Answer {
    let layout = Arc::new(Layout::of_record(&narrowed()).expect("its members"));
    let owners = layout.ring().owners(layout.ring().partition(KEY)).to_vec();
    let (me, peer) = (owners[place], owners[(place + 1) % 4]);
    let hlc = Arc::new(Hlc::new(OLD + 30, WALL_MS + 1_000));
    let mut node = Node::new(support::config(&layout, me, hlc));
    let asker = Asker {
        member: MemberIndex(peer.0),
        link: 1,
        id: 1,
    };
    let stamp = Stamp {
        cluster: layout.topology().id(),
        epoch: layout.epoch(),
        left_ms: 1_000,
    };
    let mut events = vec![Event::Asked { asker, stamp, ask }];
    let now = Now {
        mono_us: 1_000,
        wall_ms: WALL_MS + 1_000,
        wall_part_us: 0,
    };
    while let Some(event) = events.pop() {
        let mut effects = Vec::new();
        node.step(now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Reply { answer, .. } => return answer,
                Effect::Read { ticket, .. } => {
                    let result = Ok(Some(stored.clone()));
                    events.push(Event::Read { ticket, result });
                }
                Effect::Page { ticket, .. } => {
                    let result = Ok((vec![(Key::user(KEY), stored.clone())], None));
                    events.push(Event::Paged { ticket, result });
                }
                Effect::Write { ticket, cell, .. } => {
                    let version = cell.version;
                    let result = Ok(StoreOutcome::Applied { version });
                    events.push(Event::Wrote { ticket, result });
                }
                _ => {}
            }
        }
    }
    panic!("no answer");
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
        let wanted = match is_shown {
            true => Answer::Same,
            false => Answer::Cell(None),
        };
        assert_eq!(
            ask(place, read(stored), stored),
            wanted,
            "{place} {stored:?}"
        );
        let range = Range {
            start: Bytes::new(),
            end: None,
            is_reverse: false,
            is_keys_only: false,
        };
        let page = ask(
            place,
            Ask::Page {
                range,
                bytes: 1_000,
            },
            stored,
        );
        let Answer::Page { records, .. } = page else {
            panic!("{page:?}");
        };
        assert_eq!(records.len(), usize::from(is_shown), "{place} {stored:?}");
    }
}

#[test]
fn a_further_owner_takes_no_copy_that_a_lowered_factor_takes_back() {
    let write = |place: usize, hlc: u64| {
        let cell = cell(3, hlc);
        let key = Bytes::from_static(KEY);
        ask(
            place,
            Ask::Write {
                key,
                cell: cell.clone(),
            },
            &cell,
        )
    };
    assert_eq!(write(2, OLD), Answer::Refused(Refused::NotOwner));
    assert_eq!(write(2, OLD + 1), Answer::Written(cell(3, OLD + 1).version));
    assert_eq!(write(1, OLD), Answer::Written(cell(3, OLD).version));
}
