//! How a member repairs records that it has lost: when it begins, which owners it walks, and when
//! it says that the damaged block may go.
//!
//! ```text
//! Lost ─► nothing for the wait ─► Load to one owner, then to the other ─► writes ─► Repaired
//! ```
//!
//! Not here: stores that are damaged (crates `engine`, `sim`).
//! See: docs/protocol.md, "Damage".

mod support;

use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Refused};
use dendra_base::{Cell, CellRef, Guard, Key, Space, Version};
use dendra_node::limits::REPAIR_PAUSE_US;
use dendra_node::ring::plan::{WantedMember, WantedMembers, plan};
use dendra_node::ring::table::MemberId;
use dendra_node::step::{Effect, Event, LostSpan, Now, StoreFailure, StoreOutcome};
use dendra_node::topology::drive::next_step;
use dendra_node::topology::record::{EpochMember, EpochRecord, MemberStatus, NewPlan};
use dendra_node::{Hlc, Layout, Member, MemberIndex, Node, NodeConfig, Topology};
use std::sync::Arc;

const WALL_MS: u64 = 1_700_000_000_000;
const WAIT_US: u64 = 5_000_000;

/// The first of three members, and what it wants done.
struct World {
    node: Node,
    mono_us: u64,
    effects: Vec<Effect>,
}

impl World {
    fn new() -> World {
        World::of_copies(3)
    }

    fn of_copies(copies: u8) -> World {
        let members = ["h1:1", "h2:1", "h3:1"].map(|url| Member::new(url).expect("an address"));
        let topology = Topology::new("dendra", members.to_vec(), copies).expect("a topology");
        World::of(Layout::of_list(&Arc::new(topology)), MemberIndex(0))
    }

    /// The member `me` of a cluster, with links to all others.
    fn of(layout: Layout, me: MemberIndex) -> World {
        let layout = Arc::new(layout);
        let node = Node::new(NodeConfig {
            is_keeper: true,
            repair_wait_us: WAIT_US,
            ..support::config(&layout, me, Arc::new(Hlc::new(0, WALL_MS)))
        });
        let mut world = World {
            node,
            mono_us: 1_000,
            effects: Vec::new(),
        };
        for member in layout.members().filter(|member| *member != me) {
            world.step(Event::Link {
                member,
                is_up: true,
            });
        }
        world.effects.clear();
        world
    }

    /// One event, and the tick that ends a turn.
    fn step(&mut self, event: Event) {
        let now = Now {
            mono_us: self.mono_us,
            wall_ms: WALL_MS,
            wall_part_us: 0,
        };
        self.node.step(now, event, &mut self.effects);
        self.node.step(now, Event::Tick, &mut self.effects);
    }

    fn pass(&mut self, us: u64) {
        self.mono_us += us;
        self.step(Event::Tick);
    }

    fn lose(&mut self, first: &Key, last: &Key) {
        let span = LostSpan {
            id: 17,
            block: 5,
            first: Bytes::copy_from_slice(first.as_stored()),
            last: Bytes::copy_from_slice(last.as_stored()),
        };
        self.step(Event::Lost { spans: vec![span] });
    }

    /// The page that is asked for, and of which member; hints of other members are asked for, too.
    fn page(&mut self) -> Option<(MemberIndex, u64, Space, Bytes)> {
        let found = self.effects.iter().find_map(|effect| match effect {
            Effect::Ask {
                member,
                id,
                ask: Ask::Load { space, start, .. },
                ..
            } => Some((*member, *id, *space, start.clone())),
            _ => None,
        });
        self.effects.retain(|effect| {
            !matches!(
                effect,
                Effect::Ask {
                    ask: Ask::Load { .. },
                    ..
                }
            )
        });
        found
    }

    fn answer(&mut self, member: MemberIndex, id: u64, answer: Answer) {
        self.step(Event::Answered { member, id, answer });
    }

    /// An owner holds nothing in any part of the span: its walk ends.
    fn walk_empty(&mut self) -> MemberIndex {
        let (member, id, _, _) = self.page().expect("a page is asked for");
        let (records, next) = (Vec::new(), None);
        self.answer(member, id, Answer::Loaded { records, next });
        member
    }

    fn write(&mut self) -> Option<(u64, Key, Cell, Guard)> {
        let at = self
            .effects
            .iter()
            .position(|e| matches!(e, Effect::Write { .. }))?;
        match self.effects.remove(at) {
            Effect::Write {
                ticket,
                key,
                cell,
                guard,
            } => Some((ticket, key, cell, guard)),
            _ => None,
        }
    }

    fn written(&mut self, ticket: u64, version: Version) {
        let result = Ok(StoreOutcome::Applied { version });
        self.step(Event::Wrote { ticket, result });
    }

    fn is_repaired(&self) -> bool {
        self.effects.contains(&Effect::Repaired { id: 17 })
    }
}

fn version(hlc: u64) -> Version {
    Version {
        hlc,
        origin: 2,
        rmw: 0,
    }
}

fn record(raw: &'static [u8]) -> (Bytes, Cell) {
    let key = Key::user(raw);
    let cell = CellRef::value(key.as_stored(), version(9), b"v").to_owned();
    (Bytes::from_static(raw), cell)
}

#[test]
fn a_span_is_repaired_once_both_other_owners_were_walked() {
    let mut world = World::new();
    world.lose(&Key::user(b"a"), &Key::user(b"c"));
    world.pass(WAIT_US);
    let first = world.walk_empty();
    assert!(
        !world.is_repaired(),
        "one of two others may lack what a majority has"
    );
    let second = world.walk_empty();
    assert_ne!(first, second);
    assert!(world.is_repaired());
}

#[test]
fn a_repair_begins_when_no_operation_is_under_way_any_more() {
    let mut world = World::new();
    world.lose(&Key::user(b"a"), &Key::user(b"c"));
    world.pass(WAIT_US - 1_000);
    assert_eq!(world.page(), None);
    assert!(!world.is_repaired());
    world.pass(1_000);
    assert!(world.page().is_some());
}

#[test]
fn records_of_the_span_are_durable_before_it_is_repaired_and_others_are_left_alone() {
    let mut world = World::new();
    world.lose(&Key::user(b"a"), &Key::user(b"c"));
    world.pass(WAIT_US);
    let (member, id, space, start) = world.page().expect("a page is asked for");
    assert_eq!((space, start), (Space::User, Bytes::from_static(b"a")));
    let records = vec![record(b"b"), record(b"d")];
    let next = Some(Bytes::from_static(b"e"));
    world.answer(member, id, Answer::Loaded { records, next });
    let (ticket, key, cell, guard) = world.write().expect("it is written");
    assert_eq!((key, guard), (Key::user(b"b"), Guard::Newest));
    assert_eq!(cell, record(b"b").1);
    assert_eq!(world.write(), None, "it lies behind the span");
    assert_eq!(world.page(), None, "the walk goes on when it is durable");
    world.written(ticket, version(9));
    world.pass(1_000_000);
    world.walk_empty();
    assert!(world.is_repaired());
}

#[test]
fn a_write_that_fails_is_tried_again() {
    let mut world = World::new();
    world.lose(&Key::user(b"a"), &Key::user(b"c"));
    world.pass(WAIT_US);
    for _ in 0..2 {
        let (member, id, _, _) = world.page().expect("the page is asked for");
        let records = vec![record(b"b")];
        world.answer(
            member,
            id,
            Answer::Loaded {
                records,
                next: None,
            },
        );
        let (ticket, ..) = world.write().expect("it is written");
        let result = Err(StoreFailure::Busy);
        world.step(Event::Wrote { ticket, result });
        assert!(!world.is_repaired());
        world.pass(REPAIR_PAUSE_US);
    }
}

#[test]
fn an_owner_that_cannot_read_its_copies_is_waited_for() {
    let mut world = World::new();
    world.lose(&Key::user(b"a"), &Key::user(b"c"));
    world.pass(WAIT_US);
    let (member, id, ..) = world.page().expect("a page is asked for");
    world.answer(member, id, Answer::Refused(Refused::Damaged));
    let other = world.walk_empty();
    assert_ne!(member, other);
    assert_eq!(world.page(), None);
    assert!(!world.is_repaired());
    world.pass(REPAIR_PAUSE_US);
    assert_eq!(world.walk_empty(), member);
    assert!(world.is_repaired());
}

#[test]
fn notes_of_the_node_are_never_repaired() {
    let mut world = World::new();
    world.lose(&Key::new(Space::Meta, b"self"), &Key::user(b"c"));
    world.pass(10 * WAIT_US);
    assert_eq!(world.page(), None);
    assert!(!world.is_repaired());
}

#[test]
fn what_has_one_copy_is_never_said_to_be_repaired() {
    let repaired = |copies| {
        let mut world = World::of_copies(copies);
        world.lose(&Key::user(b"b"), &Key::user(b"d"));
        world.pass(WAIT_US);
        for _ in 0..20 {
            if let Some((member, id, _, _)) = world.page() {
                let (records, next) = (Vec::new(), None);
                world.answer(member, id, Answer::Loaded { records, next });
            }
            world.pass(REPAIR_PAUSE_US);
        }
        world.is_repaired()
    };
    assert!(repaired(2));
    assert!(!repaired(1));
}

/// The third member of a cluster with one copy, while its first partitions move to it.
fn joiner() -> World {
    let place = |number: u32| Member::new(&format!("http://h{number}:1")).expect("an address");
    let topology = Topology::new("dendra", vec![place(0), place(1)], 1).expect("a topology");
    let founded = EpochRecord::founded(&topology);
    let nodes = founded
        .members()
        .iter()
        .map(|it| (it.id, u128::from(it.id.0) + 1));
    let record = founded
        .enrolled(&nodes.collect::<Vec<_>>())
        .expect("all are new");
    let id = record.owners().next();
    let wanted = |id| WantedMember {
        id,
        weight: 1,
        zone: String::new(),
    };
    let now = WantedMembers {
        members: record.members().iter().map(|it| wanted(it.id)).collect(),
        replication_factor: 1,
        lost: Vec::new(),
    };
    let mut after = now.clone();
    after.members.push(wanted(id));
    let new = NewPlan {
        author: MemberId(0),
        moves: plan(record.owners(), &now, &after).expect("a plan"),
        newcomers: vec![EpochMember {
            id,
            node: 3,
            status: MemberStatus::Joining,
            place: place(2),
        }],
        shares: Vec::new(),
        replication_factor: 1,
    };
    let planned = record.planned(&new).expect("nothing else is under way");
    let moving = next_step(&planned, &[], 1).expect("the plan begins");
    let layout = Layout::of_record(&moving).expect("its members");
    let me = layout.index_of(id).expect("a member");
    World::of(layout, me)
}

#[test]
fn what_moves_to_a_joiner_as_the_only_copy_is_never_said_to_be_repaired() {
    let mut world = joiner();
    world.effects.clear();
    world.lose(&Key::user(b"b"), &Key::user(b"d"));
    // Pages that it loads because they move to it are none of the repair.
    let mut walked = 0;
    for _ in 0..20 {
        world.pass(WAIT_US);
        if let Some((member, id, _, start)) = world.page() {
            walked += usize::from(start == b"b"[..]);
            let (records, next) = (Vec::new(), None);
            world.answer(member, id, Answer::Loaded { records, next });
        }
    }
    assert_eq!(walked, 0);
    assert!(!world.is_repaired());
}

#[test]
fn a_promise_that_is_lost_is_written_anew_above_any_version_that_it_had() {
    let mut world = World::new();
    let key = Key::new(Space::Protocol, b"k");
    world.lose(&key, &key);
    world.pass(WAIT_US);
    let (member, id, space, _) = world.page().expect("a page is asked for");
    assert_eq!(space, Space::Protocol);
    // Format 2: a promise, and nothing accepted.
    let mut value = vec![2];
    value.extend_from_slice(&7_u64.to_be_bytes());
    value.extend_from_slice(&3_u32.to_be_bytes());
    let cell = CellRef::value(key.as_stored(), version(1), &value).to_owned();
    let records = vec![(Bytes::from_static(b"k"), cell)];
    world.answer(
        member,
        id,
        Answer::Loaded {
            records,
            next: None,
        },
    );
    let read = world.effects.iter().find_map(|effect| match effect {
        Effect::Read { ticket, .. } => Some(*ticket),
        _ => None,
    });
    let ticket = read.expect("the own record is read first");
    let result = Err(StoreFailure::Damaged);
    world.step(Event::Read { ticket, result });
    let (_, written, cell, guard) = world.write().expect("it is written");
    assert_eq!((written, guard), (key, Guard::Newest));
    assert_eq!(cell.value, value, "the promise of the other owner");
    assert!(
        cell.version.hlc > WALL_MS,
        "records count from 1: {:?}",
        cell.version
    );
}
