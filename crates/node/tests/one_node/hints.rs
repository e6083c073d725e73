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

use crate::epochs;
use crate::world::{Asked, KEY, Page, SECOND_US, WALL_MS, World, put, version};
use dendra_base::peer::{Answer, Ask, Condition, Readiness, Refused};
use dendra_base::{Cell, CellRef, Key, Kind, Space};
use dendra_node::HintRoom;
use dendra_node::step::{Effect, Event, StoreFailure, StoreOutcome};
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::{Layout, MemberIndex};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A member, and its store.
struct Keeper {
    world: World,
    cells: BTreeMap<Key, Cell>,
    room: Arc<HintRoom>,
    /// How long the store takes for an order; 0 = it answers in the same turn.
    store_us: u64,
    /// It refuses all writes.
    is_refusing: bool,
    /// Deletes of hints under way, and the most that there ever were.
    deletes: (usize, usize),
    /// Pages of hints that the store read.
    pages: usize,
    /// For how long pages and deletes of hints were under way.
    busy_us: u64,
    /// Questions that no member has answered.
    asks: Vec<Asked>,
}

impl Keeper {
    /// The first of three members.
    fn new() -> Keeper {
        Keeper::of(epochs::enrolled(3, 3), MemberIndex(0))
    }

    fn of(record: EpochRecord, me: MemberIndex) -> Keeper {
        Keeper::with_cells(record, me, BTreeMap::new(), 0)
    }

    /// The first of three members. Its store has these cells from an earlier life, and takes so
    /// long for an order.
    fn resumed(cells: BTreeMap<Key, Cell>, store_us: u64) -> Keeper {
        Keeper::with_cells(epochs::enrolled(3, 3), MemberIndex(0), cells, store_us)
    }

    fn with_cells(
        record: EpochRecord,
        me: MemberIndex,
        cells: BTreeMap<Key, Cell>,
        store_us: u64,
    ) -> Keeper {
        let room = Arc::new(HintRoom::new(1 << 20));
        let world = World::with(record, me, |config| {
            config.hints = Arc::clone(&room);
            config.is_keeper = true;
            config.repair_wait_us = 1;
        });
        let mut keeper = Keeper {
            world,
            cells,
            room,
            store_us,
            is_refusing: false,
            deletes: (0, 0),
            pages: 0,
            busy_us: 0,
            asks: Vec::new(),
        };
        keeper.step(Event::Tick);
        keeper.world.link_all();
        keeper.carry_out_all();
        keeper
    }

    fn step(&mut self, event: Event) {
        self.world.step(event);
        self.carry_out_all();
    }

    /// The own store answers all orders, and those that follow from its answers.
    fn carry_out_all(&mut self) {
        loop {
            let effects = self.world.effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                let Some((ticket, answer)) = self.carry_out(effect) else {
                    continue;
                };
                match self.store_us {
                    0 => self.world.step(answer),
                    store_us => self.world.later(store_us, ticket, answer),
                }
            }
        }
    }

    /// Lets time pass, with all that falls due in it.
    fn run(&mut self, for_us: u64) {
        let until_us = self.world.now_us + for_us;
        loop {
            let (from_us, is_busy) = (self.world.now_us, self.world.is_waiting());
            let came = self.world.next(until_us);
            if is_busy {
                self.busy_us += self.world.now_us - from_us;
            }
            let Some(event) = came else {
                return;
            };
            if matches!(event, Event::Wrote { .. }) {
                self.deletes.0 -= 1;
            }
            self.step(event);
        }
    }

    /// The store's answer to an order, and the order's ticket.
    fn carry_out(&mut self, effect: Effect) -> Option<(u64, Event)> {
        if let Some(page) = Page::ordered(&effect) {
            self.pages += 1;
            let (ticket, result) = (page.ticket, page.of(&self.cells));
            return Some((ticket, Event::Paged { ticket, result }));
        }
        match effect {
            Effect::Ask {
                member, id, ask, ..
            } => self.asks.push(Asked { member, id, ask }),
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
                let result = if self.is_refusing {
                    Err(StoreFailure::Busy)
                } else {
                    self.cells.insert(key, cell);
                    Ok(StoreOutcome::Applied { version })
                };
                return Some((ticket, Event::Wrote { ticket, result }));
            }
            _ => {}
        }
        None
    }

    /// The others answer; writes only those that `confirms` names.
    fn answer(&mut self, confirms: impl Fn(MemberIndex) -> bool) {
        for asked in std::mem::take(&mut self.asks) {
            let answer = match &asked.ask {
                Ask::Clock => Answer::Clock {
                    hlc: WALL_MS << 16,
                    kept: WALL_MS << 16,
                    wall_ms: WALL_MS,
                    readiness: Readiness::Ready,
                },
                Ask::Write { cell, .. } if confirms(asked.member) => Answer::Written(cell.version),
                _ => {
                    self.asks.push(asked);
                    continue;
                }
            };
            self.world.answer(&asked, answer);
            self.carry_out_all();
        }
    }

    /// A write that the third member does not confirm, to its end.
    fn leave_a_hint(&mut self) {
        self.write(|member| member == MemberIndex(1));
        assert_eq!(self.hints(), 1, "{:?}", self.cells);
    }

    /// A write that those members confirm that `confirms` names, to its end.
    fn write(&mut self, confirms: impl Fn(MemberIndex) -> bool) {
        self.world.begin(put(Condition::None));
        self.carry_out_all();
        for _ in 0..4 {
            self.answer(&confirms);
        }
        self.world.now_us += 2 * SECOND_US;
        self.step(Event::Tick);
        self.asks.clear();
    }

    /// The link to a member comes up: the hint that is delivered, if there is one.
    fn links_up(&mut self, member: MemberIndex) -> Option<Asked> {
        for is_up in [false, true] {
            self.step(Event::Link { member, is_up });
        }
        let is_its =
            |asked: &&Asked| asked.member == member && matches!(asked.ask, Ask::Write { .. });
        self.asks.iter().find(is_its).cloned()
    }

    fn hints(&self) -> usize {
        let hints = self.cells.iter();
        let hints = hints.filter(|(key, _)| key.as_stored()[0] == Space::Hint.byte());
        hints.filter(|(_, cell)| cell.kind == Kind::Value).count()
    }
}

#[test]
fn a_hint_of_a_member_with_another_address_goes() {
    let mut keeper = Keeper::new();
    keeper.leave_a_hint();
    for (member, url, hints) in [(1, "http://h9:1", 1), (2, "http://h8:1", 0)] {
        let record = keeper.world.record.readdressed(MemberId(member), url);
        keeper.world.adopt(record.expect("another address"));
        keeper.carry_out_all();
        keeper.world.now_us += 20_000;
        keeper.step(Event::Tick);
        assert_eq!(keeper.hints(), hints, "member {member}");
    }
}

#[test]
fn a_hint_for_a_member_that_is_no_owner_goes() {
    let mut keeper = Keeper::new();
    keeper.leave_a_hint();
    let hint = keeper.links_up(MemberIndex(2)).expect("it is delivered");
    let not_owner = Answer::Refused(Refused::NotOwner);
    keeper.world.answer(&hint, not_owner);
    keeper.carry_out_all();
    assert_eq!(keeper.hints(), 0);
}

/// Hints for a member that is none any more, of about a kilobyte each.
fn orphans(count: u32) -> BTreeMap<Key, Cell> {
    let of = |at: u32| {
        let mut raw_key = vec![0x5a; 8];
        raw_key.extend_from_slice(&at.to_be_bytes());
        let key = Key::new(Space::Hint, &raw_key);
        let version = version(WALL_MS << 16);
        let cell = CellRef::value(key.as_stored(), version, &[1; 1_000]).to_owned();
        (key, cell)
    };
    (0..count).map(of).collect()
}

/// When the last epoch of a replacement was learnt, all hints of the lost member fell due at once.
/// The store had 30,000 writes a second beside 750 of clients.
#[test]
fn hints_of_a_removed_member_go_a_few_at_a_time_and_leave_the_store_to_clients() {
    let mut keeper = Keeper::resumed(orphans(900), 4_000);
    keeper.run(1_000);
    assert_eq!(keeper.room.bytes(), 0, "not counted yet");
    keeper.run(49_000);
    assert!(keeper.room.bytes() > 900_000, "counted, and hardly begun");
    keeper.busy_us = 0;
    keeper.run(640_000);
    let (left, busy_us) = (keeper.hints(), keeper.busy_us);
    assert!((400..800).contains(&left), "{left} left");
    assert!(busy_us < 640_000 / 10, "{busy_us} us of the store");
    // While the store has to catch up, a lot of them in a second.
    let pressed = |is_strained| Event::Pressed {
        readiness: Readiness::Ready,
        is_strained,
    };
    keeper.step(pressed(true));
    keeper.run(100_000);
    let left = keeper.hints();
    keeper.run(5_000_000);
    let gone = left - keeper.hints();
    assert!((4 * 32..=5 * 32).contains(&gone), "{gone} gone in 5 s");
    keeper.step(pressed(false));
    let pages = keeper.pages;
    keeper.run(5_000_000);
    assert_eq!((keeper.hints(), keeper.room.bytes()), (0, 0));
    assert_eq!(keeper.deletes, (0, 32));
    // Four pages of 256 KiB, of which some were read before; and a look at hints that came late.
    assert!(keeper.pages <= pages + 4, "{} pages", keeper.pages - pages);
    keeper.run(60_000_000);
    let due_us = keeper.world.node.due_us();
    assert!(due_us.is_none_or(|due_us| due_us > keeper.world.now_us));
}

#[test]
fn a_hint_of_a_removed_member_that_was_on_its_way_or_could_not_be_deleted_goes_later() {
    let mut keeper = Keeper::resumed(orphans(3), 1_000);
    // The store has read them for the count.
    let (key, late) = keeper.cells.pop_last().expect("three");
    keeper.run(1_000_000);
    assert_eq!(keeper.hints(), 0);
    assert!(
        keeper.room.bytes() > 1_000,
        "one is on its way to the store"
    );
    keeper.cells.insert(key, late);
    keeper.is_refusing = true;
    keeper.run(15_000_000);
    assert_eq!(keeper.hints(), 1);
    keeper.is_refusing = false;
    keeper.run(15_000_000);
    assert_eq!((keeper.hints(), keeper.room.bytes()), (0, 0));
}

/// Deletes of hints that no member needs must not hold up those that a member waits for.
#[test]
fn hints_are_delivered_while_those_of_a_removed_member_go() {
    let mut keeper = Keeper::resumed(orphans(900), 0);
    assert!(keeper.hints() > 800, "{} left", keeper.hints());
    keeper.write(|member| member == MemberIndex(1));
    let is_delivered = keeper.links_up(MemberIndex(2)).is_some();
    let left = keeper.hints();
    assert!(is_delivered && left > 800, "{left} left");
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
        let enrolled = epochs::enrolled(4, 3);
        let layout = Layout::of_record(&enrolled).expect("its members");
        let partition = layout.ring().partition(KEY);
        let owners = enrolled.owners().owners(partition).to_vec();
        let mut ids = enrolled.members().iter().map(|member| member.id);
        let fourth = ids
            .find(|id| !owners.contains(id))
            .expect("it owns nothing");
        let to_fourth = epochs::move_to(&enrolled, partition, 2, fourth);
        let record = epochs::moving(&enrolled, vec![to_fourth]);
        let at = |id| layout.index_of(id).expect("a member");
        let (me, old, new) = (at(owners[0]), at(owners[2]), at(fourth));
        let mut keeper = Keeper::of(record, me);
        keeper.write(|member| match member {
            it if it == old => is_at_old,
            it if it == new => is_at_new,
            _ => true,
        });
        let of_both = format!("at the old owner {is_at_old}, at the new one {is_at_new}");
        assert_eq!(keeper.hints(), hints, "{of_both}: {:?}", keeper.cells);
        let is_delivered = keeper.links_up(new).is_some();
        assert_eq!(is_delivered, hints == 1, "{of_both}: {:?}", keeper.cells);
    }
}
