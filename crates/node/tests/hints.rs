//! Hints that no member wants any more: of a member with another address, and of a key that its
//! member does not own. And hints of a position that moves.
//!
//! ```text
//! a write that h3 does not confirm ─► a hint ─┬─ h3 has another address ─► deleted
//!                                             └─ delivered: not an owner ─► deleted
//! ```
//!
//! Not here: hints that arrive (`conversations`, crate `sim`).
//! See: docs/protocol.md, "Hints".

mod support;

#[path = "support/plans.rs"]
mod plans;

use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Condition, Operation, Readiness, Refused};
use dendra_base::{Cell, Key, Kind, Quorum, Space};
use dendra_node::ring::table::{MemberId, Move, Moving};
use dendra_node::step::{Effect, Event, Now, StoreOutcome};
use dendra_node::topology::record::EpochRecord;
use dendra_node::{HintRoom, Hlc, Layout, MemberIndex, Node, NodeConfig};
use std::collections::BTreeMap;
use std::sync::Arc;

const WALL_MS: u64 = 1_700_000_000_000;
const KEY: &[u8] = b"k";

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
    /// Of three members.
    fn new() -> World {
        World::of(plans::enrolled(3, 3), MemberIndex(0))
    }

    fn of(record: EpochRecord, me: MemberIndex) -> World {
        let layout = Arc::new(Layout::of_record(&record).expect("its members"));
        let node = Node::new(NodeConfig {
            hints: Arc::new(HintRoom::new(1 << 20)),
            is_keeper: true,
            repair_wait_us: 1,
            ..support::config(&layout, me, Arc::new(Hlc::new(0, WALL_MS)))
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
        let others: Vec<_> = world.layout.members().filter(|it| *it != me).collect();
        for member in others {
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

    /// The others answer; writes only those that `confirms` names.
    fn answer(&mut self, confirms: impl Fn(MemberIndex) -> bool) {
        for (member, id, ask) in std::mem::take(&mut self.asks) {
            let answer = match ask {
                Ask::Clock => Answer::Clock {
                    hlc: WALL_MS << 16,
                    kept: WALL_MS << 16,
                    wall_ms: WALL_MS,
                    readiness: Readiness::Ready,
                },
                Ask::Write { cell, .. } if confirms(member) => Answer::Written(cell.version),
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
        self.write(|member| member == MemberIndex(1));
        assert_eq!(self.hints(), 1, "{:?}", self.cells);
    }

    /// A write that those members confirm that `confirms` names, to its end.
    fn write(&mut self, confirms: impl Fn(MemberIndex) -> bool) {
        self.step(Event::Begin {
            client: 1,
            key: Bytes::from_static(KEY),
            operation: Operation::Put {
                value: Bytes::from_static(b"v"),
                expiry_ms: None,
                condition: Condition::None,
            },
            quorum: Quorum::new(2, 3, self.layout.topology().live()).expect("a quorum"),
            deadline_us: self.mono_us + 1_000_000,
        });
        for _ in 0..4 {
            self.answer(&confirms);
        }
        self.mono_us += 2_000_000;
        self.step(Event::Tick);
        self.asks.clear();
    }

    /// The link to a member comes up: the number of the hint that is delivered, if there is one.
    fn links_up(&mut self, member: MemberIndex) -> Option<u64> {
        for is_up in [false, true] {
            self.step(Event::Link { member, is_up });
        }
        self.asks.iter().find_map(|(to, id, ask)| {
            let is_its = *to == member && matches!(ask, Ask::Write { .. });
            is_its.then_some(*id)
        })
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
    let id = world.links_up(member).expect("it is delivered");
    let answer = Answer::Refused(Refused::NotOwner);
    world.step(Event::Answered { member, id, answer });
    assert_eq!(world.hints(), 0);
}

/// A lost member is replaced: the others would keep each write twice, and send it again.
#[test]
fn a_position_that_moves_has_a_hint_for_its_new_owner_alone_and_only_if_that_lacks_the_write() {
    for (is_at_old, is_at_new, hints) in [
        (false, true, 0),
        (true, true, 0),
        (true, false, 1),
        (false, false, 1),
    ] {
        let enrolled = plans::enrolled(4, 3);
        let layout = Layout::of_record(&enrolled).expect("its members");
        let partition = layout.ring().partition(KEY);
        let owners = enrolled.owners().owners(partition).to_vec();
        let mut ids = enrolled.members().iter().map(|member| member.id);
        let fourth = ids
            .find(|id| !owners.contains(id))
            .expect("it owns nothing");
        let moving = Moving {
            position: 2,
            from: Some(owners[2]),
            to: Some(fourth),
        };
        let record = plans::moving(&enrolled, Move { partition, moving });
        let at = |id| layout.index_of(id).expect("a member");
        let (me, old, new) = (at(owners[0]), at(owners[2]), at(fourth));
        let mut world = World::of(record, me);
        world.write(|member| match member {
            it if it == old => is_at_old,
            it if it == new => is_at_new,
            _ => true,
        });
        let of_both = format!("at the old owner {is_at_old}, at the new one {is_at_new}");
        assert_eq!(world.hints(), hints, "{of_both}: {:?}", world.cells);
        let is_delivered = world.links_up(new).is_some();
        assert_eq!(is_delivered, hints == 1, "{of_both}: {:?}", world.cells);
    }
}
