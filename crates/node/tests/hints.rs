//! Hints that no member wants any more: of a member with another address, and of a key that its
//! member does not own.
//!
//! ```text
//! a write that h3 does not confirm ─► a hint ─┬─ h3 has another address ─► deleted
//!                                             └─ delivered: not an owner ─► deleted
//! ```
//!
//! Not here: hints that arrive (`conversations`, crate `sim`).
//! See: docs/protocol.md, "Hints".

mod support;

use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Condition, Operation, Readiness, Refused};
use dendra_base::{Cell, Key, Kind, Quorum, Space};
use dendra_node::ring::table::MemberId;
use dendra_node::step::{Effect, Event, Now, StoreOutcome};
use dendra_node::topology::record::EpochRecord;
use dendra_node::{HintRoom, Hlc, Layout, Member, MemberIndex, Node, NodeConfig, Topology};
use std::collections::BTreeMap;
use std::sync::Arc;

const WALL_MS: u64 = 1_700_000_000_000;

/// The first of three members, and its store.
struct World {
    node: Node,
    record: EpochRecord,
    layout: Arc<Layout>,
    mono_us: u64,
    cells: BTreeMap<Key, Cell>,
    /// Questions that nobody has answered.
    asks: Vec<(MemberIndex, u64, Ask)>,
}

impl World {
    fn new() -> World {
        let members = ["h1:1", "h2:1", "h3:1"].map(|url| Member::new(url).expect("an address"));
        let topology = Topology::new("dendra", members.to_vec(), 3).expect("a topology");
        let nodes: Vec<_> = (0..3)
            .map(|at| (MemberId(at), u128::from(at) + 1))
            .collect();
        let record = EpochRecord::founded(&topology);
        let record = record.enrolled(&nodes).expect("founders");
        let layout = Arc::new(Layout::of_record(&record).expect("its members"));
        let node = Node::new(NodeConfig {
            hints: Arc::new(HintRoom::new(1 << 20)),
            is_keeper: true,
            repair_wait_us: 1,
            ..support::config(&layout, MemberIndex(0), Arc::new(Hlc::new(0, WALL_MS)))
        });
        let mut world = World {
            node,
            record,
            layout,
            mono_us: 1_000,
            cells: BTreeMap::new(),
            asks: Vec::new(),
        };
        world.step(Event::Tick);
        for member in [1, 2].map(MemberIndex) {
            world.step(Event::Link {
                member,
                is_up: true,
            });
        }
        world
    }

    /// One event, the tick that ends a turn, and all that the own store says to it.
    fn step(&mut self, event: Event) {
        let mut events = vec![event];
        while !events.is_empty() {
            let mut effects = Vec::new();
            let now = Now {
                mono_us: self.mono_us,
                wall_ms: WALL_MS,
                wall_part_us: 0,
            };
            for event in events.drain(..).chain([Event::Tick]) {
                self.node.step(now, event, &mut effects);
            }
            for effect in effects {
                events.extend(self.carry_out(effect));
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Ask {
                member, id, ask, ..
            } => self.asks.push((member, id, ask)),
            Effect::Cover { hlc } => return Some(Event::Covered { hlc }),
            Effect::Read { ticket, key, .. } => {
                let result = Ok(self.cells.get(&key).cloned());
                return Some(Event::Read { ticket, result });
            }
            Effect::Write {
                ticket, key, cell, ..
            } => {
                let version = cell.version;
                self.cells.insert(key, cell);
                let result = Ok(StoreOutcome::Applied { version });
                return Some(Event::Wrote { ticket, result });
            }
            Effect::Page {
                ticket, start, end, ..
            } => {
                let space = start.as_stored()[0];
                let found = self.cells.range(start..);
                let found = found.filter(|(key, _)| {
                    let is_before = end.as_ref().is_none_or(|end| *key < end);
                    key.as_stored()[0] == space && is_before
                });
                let found = found.map(|(key, cell)| (key.clone(), cell.clone()));
                let result = Ok((found.collect(), None));
                return Some(Event::Paged { ticket, result });
            }
            _ => {}
        }
        None
    }

    /// The others answer, but the third member no writes.
    fn answer(&mut self) {
        for (member, id, ask) in std::mem::take(&mut self.asks) {
            let answer = match ask {
                Ask::Clock => Answer::Clock {
                    hlc: WALL_MS << 16,
                    kept: WALL_MS << 16,
                    wall_ms: WALL_MS,
                    readiness: Readiness::Ready,
                },
                Ask::Write { cell, .. } if member == MemberIndex(1) => {
                    Answer::Written(cell.version)
                }
                ask => {
                    self.asks.push((member, id, ask));
                    continue;
                }
            };
            self.step(Event::Answered { member, id, answer });
        }
    }

    /// A write that the third member does not confirm, to its end.
    fn leave_a_hint(&mut self) {
        self.step(Event::Begin {
            client: 1,
            key: Bytes::from_static(b"k"),
            operation: Operation::Put {
                value: Bytes::from_static(b"v"),
                expiry_ms: None,
                condition: Condition::None,
            },
            quorum: Quorum::new(2, 3, 3).expect("a quorum"),
            deadline_us: self.mono_us + 1_000_000,
        });
        for _ in 0..4 {
            self.answer();
        }
        self.mono_us += 2_000_000;
        self.step(Event::Tick);
        self.asks.clear();
        assert_eq!(self.hints(), 1, "{:?}", self.cells);
    }

    fn hints(&self) -> usize {
        let hints = self.cells.iter();
        let hints = hints.filter(|(key, _)| key.as_stored()[0] == Space::Hint.byte());
        hints.filter(|(_, cell)| cell.kind == Kind::Value).count()
    }
}

#[test]
fn a_hint_of_a_member_with_another_address_goes() {
    let mut world = World::new();
    world.leave_a_hint();
    for (member, url, hints) in [(1, "http://h9:1", 1), (2, "http://h8:1", 0)] {
        let record = world.record.readdressed(MemberId(member), url);
        world.record = record.expect("another address");
        let layout = world.layout.next(&world.record).expect("its members");
        world.layout = Arc::new(layout);
        let layout = Arc::clone(&world.layout);
        world.step(Event::Layout { layout });
        assert_eq!(world.hints(), hints, "member {member}");
    }
}

#[test]
fn a_hint_for_a_member_that_is_no_owner_goes() {
    let mut world = World::new();
    world.leave_a_hint();
    let member = MemberIndex(2);
    for is_up in [false, true] {
        world.step(Event::Link { member, is_up });
    }
    let delivered = world.asks.iter().find_map(|(to, id, ask)| {
        let is_its = *to == member && matches!(ask, Ask::Write { .. });
        is_its.then_some(*id)
    });
    let id = delivered.expect("it is delivered");
    let answer = Answer::Refused(Refused::NotOwner);
    world.step(Event::Answered { member, id, answer });
    assert_eq!(world.hints(), 0);
}
