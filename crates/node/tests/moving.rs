//! Operations while a position moves, one step at a time: both of its owners are heard.

mod support;

#[path = "support/plans.rs"]
mod plans;

use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Ballot, Condition, Operation, Readiness};
use dendra_base::{Cell, CellRef, Key, Quorum, Version};
use dendra_node::ring::table::{MemberId, Move, Moving};
use dendra_node::step::{Effect, Event, Now};
use dendra_node::topology::record::EpochRecord;
use dendra_node::{Hlc, Layout, MemberIndex, Node};
use std::sync::Arc;

const WALL_MS: u64 = 1_700_000_000_000;
const KEY: &[u8] = b"k";

/// A coordinator that owns nothing of the key, whose only copy moves from `old` to `new`.
struct World {
    node: Node,
    hlc: Arc<Hlc>,
    old: MemberIndex,
    new: MemberIndex,
    now_us: u64,
    effects: Vec<Effect>,
}

/// The epoch in which the position moves, its old owner and its new one.
fn moving_epoch() -> (EpochRecord, MemberId, MemberId, MemberId) {
    let enrolled = plans::enrolled(3, 1);
    let layout = Layout::of_record(&enrolled).expect("it has its members");
    let partition = layout.ring().partition(KEY);
    let old = enrolled.owners().owners(partition)[0];
    let ids = enrolled.members().iter().map(|member| member.id);
    let others: Vec<MemberId> = ids.filter(|id| *id != old).collect();
    let moving = Moving {
        position: 0,
        from: Some(old),
        to: Some(others[0]),
    };
    let record = plans::moving(&enrolled, Move { partition, moving });
    (record, old, others[0], others[1])
}

impl World {
    fn new() -> World {
        let (record, old, new, me) = moving_epoch();
        let layout = Arc::new(Layout::of_record(&record).expect("it has its members"));
        let at = |id| layout.index_of(id).expect("a member");
        let (old, new, me) = (at(old), at(new), at(me));
        let hlc = Arc::new(Hlc::new(0, WALL_MS));
        let node = Node::new(support::config(&layout, me, Arc::clone(&hlc)));
        World {
            node,
            hlc,
            old,
            new,
            now_us: 1_000,
            effects: Vec::new(),
        }
    }

    /// One event, and the tick that ends a turn. Clock ceilings are durable at once.
    fn step(&mut self, event: Event) {
        let now = Now {
            mono_us: self.now_us,
            wall_ms: WALL_MS,
            wall_part_us: 0,
        };
        self.effects.clear();
        self.node.step(now, event, &mut self.effects);
        self.node.step(now, Event::Tick, &mut self.effects);
        let covers = self.effects.iter().filter_map(|effect| match effect {
            Effect::Cover { hlc } => Some(*hlc),
            _ => None,
        });
        for hlc in covers.collect::<Vec<_>>() {
            self.node
                .step(now, Event::Covered { hlc }, &mut self.effects);
        }
    }

    fn pass(&mut self, us: u64) {
        self.now_us += us;
        self.step(Event::Tick);
    }

    fn begin(&mut self, operation: Operation) {
        self.step(Event::Begin {
            client: 1,
            key: Bytes::from_static(KEY),
            operation,
            quorum: Quorum::new(1, 1, 3).expect("one of one"),
            deadline_us: 10_000_000,
        });
    }

    /// The questions that left in the last step: to which member, under which number.
    fn asked(&self) -> Vec<(MemberIndex, u64, Ask)> {
        let asks = self.effects.iter().filter_map(|effect| match effect {
            Effect::Ask {
                member, id, ask, ..
            } => Some((*member, *id, ask.clone())),
            _ => None,
        });
        asks.collect()
    }

    /// The numbers of the questions to the old and to the new owner.
    fn of_both(&self) -> (u64, u64) {
        let asked = self.asked();
        let id_of = |of: MemberIndex| {
            let found = asked.iter().find(|(member, ..)| *member == of);
            found
                .unwrap_or_else(|| panic!("{of:?} is not asked: {asked:?}"))
                .1
        };
        (id_of(self.old), id_of(self.new))
    }

    fn answer(&mut self, member: MemberIndex, id: u64, answer: Answer) {
        self.step(Event::Answered { member, id, answer });
    }

    fn is_over(&self) -> bool {
        let outcome = |effect: &Effect| matches!(effect, Effect::Outcome { .. });
        self.effects.iter().any(outcome)
    }
}

fn clock(hlc: u64) -> Answer {
    Answer::Clock {
        hlc,
        wall_ms: WALL_MS,
        kept: 0,
        readiness: Readiness::Ready,
    }
}

fn cell(hlc: u64) -> Cell {
    let version = Version {
        hlc,
        origin: 9,
        rmw: 0,
    };
    CellRef::value(Key::user(KEY).as_stored(), version, b"v").to_owned()
}

#[test]
fn a_write_follows_the_clocks_of_both_owners() {
    let mut world = World::new();
    world.begin(Operation::Put {
        value: Bytes::from_static(b"v"),
        expiry_ms: None,
        condition: Condition::None,
    });
    let (of_old, of_new) = world.of_both();
    let (old, new, now) = (world.old, world.new, world.hlc.last());
    world.answer(old, of_old, clock(now));
    assert_eq!(world.asked(), [], "the new owner may be an epoch ahead");
    world.answer(new, of_new, clock(now + 1_000));
    let writes = world.asked();
    assert_eq!(writes.len(), 2, "{writes:?}");
    for (_, _, ask) in writes {
        let Ask::Write { cell, .. } = ask else {
            panic!("{ask:?} is no write");
        };
        assert!(cell.version.hlc > now + 1_000, "{:?}", cell.version);
    }
}

#[test]
fn a_record_is_missing_only_when_both_owners_have_none() {
    for has_new in [false, true] {
        let mut world = World::new();
        world.begin(Operation::Get);
        let (of_old, of_new) = world.of_both();
        let (old, new, now) = (world.old, world.new, world.hlc.last());
        world.answer(old, of_old, Answer::Cell(None));
        assert!(!world.is_over(), "the new owner may be an epoch ahead");
        let copy = has_new.then(|| cell(now + 1_000));
        world.answer(new, of_new, Answer::Cell(copy));
        assert_eq!(world.is_over(), !has_new, "a copy is written to both first");
    }
}

#[test]
fn a_conditional_write_goes_above_the_higher_promise_of_both_owners() {
    for is_new_higher in [false, true] {
        let mut world = World::new();
        world.begin(Operation::Put {
            value: Bytes::from_static(b"v"),
            expiry_ms: None,
            condition: Condition::Absent,
        });
        let (old, new, now) = (world.old, world.new, world.hlc.last());
        let (of_old, of_new) = world.of_both();
        let outbid = |hlc| Answer::Outbid {
            promised: Ballot { hlc, origin: 9 },
            line: None,
        };
        let (low, high) = (now + (1 << 20), now + (1 << 30));
        let (at_old, at_new) = if is_new_higher {
            (low, high)
        } else {
            (high, low)
        };
        world.answer(old, of_old, outbid(at_old));
        world.answer(new, of_new, outbid(at_new));
        world.pass(1_000_000);
        let prepared = world.asked().into_iter().find_map(|(_, _, ask)| match ask {
            Ask::Prepare { ballot, .. } => Some(ballot),
            _ => None,
        });
        let ballot = prepared.expect("it tries again");
        assert!(ballot.hlc > high, "{is_new_higher}");
    }
}
