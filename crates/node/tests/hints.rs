//! Hints that no member wants any more: of a member with another address, and of a key that its
//! member does not own. And hints of a position that moves.
//!
//! ```text
//! a write that h3 does not confirm ─► a hint ─┬─ h3 has another address ─► deleted, a few at a time
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
use dendra_base::{Cell, CellRef, Key, Kind, Quorum, Space, Version};
use dendra_node::ring::table::{MemberId, Move, Moving};
use dendra_node::step::{Effect, Event, Now, StoreFailure, StoreOutcome};
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
    room: Arc<HintRoom>,
    /// How long the store takes for an order; 0 = it answers in the same turn.
    store_us: u64,
    /// Its answers on their way, by the time at which they come.
    coming: BTreeMap<(u64, u64), Event>,
    /// It refuses all writes.
    is_refusing: bool,
    /// Deletes of hints under way, and the most that there ever were.
    deletes: (usize, usize),
    /// Pages of hints that the store read.
    pages: usize,
    /// For how long pages and deletes of hints were under way.
    busy_us: u64,
    /// Questions that nobody has answered.
    asks: Vec<(MemberIndex, u64, Ask)>,
}

impl World {
    /// Of three members.
    fn new() -> World {
        World::of(plans::enrolled(3, 3), MemberIndex(0))
    }

    fn of(record: EpochRecord, me: MemberIndex) -> World {
        World::with_cells(record, me, BTreeMap::new(), 0)
    }

    /// Its store has these cells from an earlier life, and takes so long for an order.
    fn with_cells(
        record: EpochRecord,
        me: MemberIndex,
        cells: BTreeMap<Key, Cell>,
        store_us: u64,
    ) -> World {
        let room = Arc::new(HintRoom::new(1 << 20));
        let layout = Arc::new(Layout::of_record(&record).expect("its members"));
        let node = Node::new(NodeConfig {
            hints: Arc::clone(&room),
            is_keeper: true,
            repair_wait_us: 1,
            ..support::config(&layout, me, Arc::new(Hlc::new(0, WALL_MS)))
        });
        let mut world = World {
            node,
            record,
            layout,
            mono_us: 1_000,
            cells,
            room,
            store_us,
            coming: BTreeMap::new(),
            is_refusing: false,
            deletes: (0, 0),
            pages: 0,
            busy_us: 0,
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
                let Some((ticket, answer)) = self.carry_out(effect) else {
                    continue;
                };
                match self.store_us {
                    0 => events.push(answer),
                    store_us => {
                        self.coming
                            .insert((self.mono_us + store_us, ticket), answer);
                    }
                }
            }
        }
    }

    /// Lets time pass, with all that falls due in it.
    fn run(&mut self, for_us: u64) {
        let until_us = self.mono_us + for_us;
        loop {
            let answer_us = self.coming.keys().next().map(|(at_us, _)| *at_us);
            let due_us = self.node.due_us().unwrap_or(u64::MAX);
            let next_us = answer_us.unwrap_or(u64::MAX).min(due_us).min(until_us);
            let next_us = next_us.max(self.mono_us);
            if !self.coming.is_empty() {
                self.busy_us += next_us - self.mono_us;
            }
            self.mono_us = next_us;
            if next_us == until_us {
                return;
            }
            let came = self.coming.first_entry();
            let came = came.filter(|came| came.key().0 <= next_us);
            let event = came.map_or(Event::Tick, |came| came.remove());
            if matches!(event, Event::Wrote { .. }) {
                self.deletes.0 -= 1;
            }
            self.step(event);
        }
    }

    /// The store's answer to an order, and the order's ticket.
    fn carry_out(&mut self, effect: Effect) -> Option<(u64, Event)> {
        match effect {
            Effect::Ask {
                member, id, ask, ..
            } => self.asks.push((member, id, ask)),
            Effect::Cover { hlc } => return Some((0, Event::Covered { hlc })),
            Effect::Read { ticket, key, .. } => {
                let result = Ok(self.cells.get(&key).cloned());
                return Some((ticket, Event::Read { ticket, result }));
            }
            Effect::Write {
                ticket, key, cell, ..
            } => {
                if key.as_stored()[0] == Space::Hint.byte() && cell.kind != Kind::Value {
                    self.deletes.0 += 1;
                    self.deletes.1 = self.deletes.1.max(self.deletes.0);
                }
                let version = cell.version;
                let result = match self.is_refusing {
                    true => Err(StoreFailure::Busy),
                    false => {
                        self.cells.insert(key, cell);
                        Ok(StoreOutcome::Applied { version })
                    }
                };
                return Some((ticket, Event::Wrote { ticket, result }));
            }
            Effect::Page {
                ticket,
                start,
                end,
                bytes,
                ..
            } => {
                let space = start.as_stored()[0];
                let found = self.cells.range(start..);
                let mut left = i64::from(bytes);
                let mut next = None;
                let mut page = Vec::new();
                for (key, cell) in found {
                    let is_before = end.as_ref().is_none_or(|end| key < end);
                    if key.as_stored()[0] != space || !is_before {
                        break;
                    }
                    if left <= 0 {
                        next = Some(key.clone());
                        break;
                    }
                    left -= i64::try_from(cell.value.len()).expect("small");
                    page.push((key.clone(), cell.clone()));
                }
                self.pages += 1;
                let result = Ok((page, next));
                return Some((ticket, Event::Paged { ticket, result }));
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
        world.mono_us += 20_000;
        world.step(Event::Tick);
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

/// Hints for a member that is none any more, of about a kilobyte each.
fn orphans(count: u32) -> BTreeMap<Key, Cell> {
    let of = |at: u32| {
        let mut raw_key = vec![0x5a; 8];
        raw_key.extend_from_slice(&at.to_be_bytes());
        let key = Key::new(Space::Hint, &raw_key);
        let version = Version {
            hlc: WALL_MS << 16,
            origin: 1,
            rmw: 0,
        };
        let cell = CellRef::value(key.as_stored(), version, &[1; 1_000]).to_owned();
        (key, cell)
    };
    (0..count).map(of).collect()
}

/// When the last epoch of a replacement was learnt, all hints of the lost member fell due at once:
/// 30,000 writes a second of the store beside 750 of clients.
#[test]
fn hints_of_a_removed_member_go_a_few_at_a_time_and_leave_the_store_to_clients() {
    let (record, me) = (plans::enrolled(3, 3), MemberIndex(0));
    let mut world = World::with_cells(record, me, orphans(900), 4_000);
    world.run(1_000);
    assert_eq!(world.room.bytes(), 0, "not counted yet");
    world.run(49_000);
    assert!(world.room.bytes() > 900_000, "counted, and hardly begun");
    world.busy_us = 0;
    world.run(640_000);
    let (left, busy_us) = (world.hints(), world.busy_us);
    assert!((400..800).contains(&left), "{left} left");
    assert!(busy_us < 640_000 / 10, "{busy_us} us of the store");
    // While the store has to catch up, a lot of them in a second.
    let pressed = |is_strained| Event::Pressed {
        readiness: Readiness::Ready,
        is_strained,
    };
    world.step(pressed(true));
    world.run(100_000);
    let left = world.hints();
    world.run(5_000_000);
    let gone = left - world.hints();
    assert!((4 * 32..=5 * 32).contains(&gone), "{gone} gone in 5 s");
    world.step(pressed(false));
    let pages = world.pages;
    world.run(5_000_000);
    assert_eq!((world.hints(), world.room.bytes()), (0, 0));
    assert_eq!(world.deletes, (0, 32));
    // Four pages of 256 KiB, of which some were read before; and a look at what came late.
    assert!(world.pages <= pages + 4, "{} pages", world.pages - pages);
    world.run(60_000_000);
    assert_eq!(
        world
            .node
            .due_us()
            .filter(|due_us| *due_us <= world.mono_us),
        None
    );
}

#[test]
fn a_hint_of_a_removed_member_that_was_on_its_way_or_could_not_be_deleted_goes_later() {
    let (record, me) = (plans::enrolled(3, 3), MemberIndex(0));
    let mut world = World::with_cells(record, me, orphans(3), 1_000);
    // The store has read them for the count.
    let (key, late) = world.cells.pop_last().expect("three");
    world.run(1_000_000);
    assert_eq!(world.hints(), 0);
    assert!(world.room.bytes() > 1_000, "one is on its way to the store");
    world.cells.insert(key, late);
    world.is_refusing = true;
    world.run(15_000_000);
    assert_eq!(world.hints(), 1);
    world.is_refusing = false;
    world.run(15_000_000);
    assert_eq!((world.hints(), world.room.bytes()), (0, 0));
}

/// Deletes of hints that no member needs must not hold up those that a member waits for.
#[test]
fn hints_are_delivered_while_those_of_a_removed_member_go() {
    let (record, me) = (plans::enrolled(3, 3), MemberIndex(0));
    let mut world = World::with_cells(record, me, orphans(900), 0);
    assert!(world.hints() > 800, "{} left", world.hints());
    world.write(|member| member == MemberIndex(1));
    let id = world.links_up(MemberIndex(2));
    assert!(
        id.is_some() && world.hints() > 800,
        "{} left",
        world.hints()
    );
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
