//! The world of one node: its clock, the effects that no test has taken yet, and answers that come
//! later.
//!
//! ```text
//! step, begin, answer, … ─► node ─► effects ─► asks(), writes(), outcomes(), …: taken by the test
//! later ─► coming ─► next: the clock goes on to what comes first, an answer or what the node waits for
//! ```
//!
//! Invariants
//! 1. A step is one event and the tick that ends its turn, at the same time.
//! 2. An effect stays until a test takes it. It is taken once.
//!
//! Not here: the epochs that a world begins with (`epochs.rs`).

use crate::support;
use bytes::Bytes;
use dendra_base::Now;
use dendra_base::peer::{Answer, Ask, Condition, Operation, Range, Readiness, Stamp};
use dendra_base::{Cell, CellRef, Guard, Key, Quorum, Version};
use dendra_node::step::{Asker, Effect, Event, LostSpan, Paged, StoreFailure, StoreOutcome};
use dendra_node::{Hlc, Node, NodeConfig, Outcome};
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::{Layout, MemberIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The wall clock when the monotonic one is at 0.
pub(crate) const WALL_MS: u64 = 1_700_000_000_000;
pub(crate) const SECOND_US: u64 = 1_000_000;
pub(crate) const KEY: &[u8] = b"k";

pub(crate) struct World {
    pub(crate) node: Node,
    pub(crate) hlc: Arc<Hlc>,
    pub(crate) me: MemberIndex,
    pub(crate) record: EpochRecord,
    pub(crate) layout: Arc<Layout>,
    pub(crate) now_us: u64,
    /// Those that no test has taken.
    effects: Vec<Effect>,
    /// Events that come later, by their time and the mark of the question that they answer.
    coming: BTreeMap<(u64, u64), Event>,
}

/// A question to another member.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) member: MemberIndex,
    pub(crate) id: u64,
    pub(crate) ask: Ask,
}

/// An order to write to the own store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) ticket: u64,
    pub(crate) key: Key,
    pub(crate) cell: Cell,
    pub(crate) guard: Guard,
}

/// An order to read a page of the own store.
pub(crate) struct Page {
    pub(crate) ticket: u64,
    start: Key,
    end: Option<Key>,
    is_reverse: bool,
    bytes: u32,
}

impl Page {
    pub(crate) fn ordered(effect: &Effect) -> Option<Page> {
        match effect {
            Effect::Page {
                ticket,
                start,
                end,
                is_reverse,
                bytes,
                ..
            } => Some(Page {
                ticket: *ticket,
                start: start.clone(),
                end: end.clone(),
                is_reverse: *is_reverse,
                bytes: *bytes,
            }),
            _ => None,
        }
    }

    /// The page of a store that holds these cells.
    pub(crate) fn of(&self, cells: &BTreeMap<Key, Cell>) -> Paged {
        self.of_damaged(cells, &BTreeSet::new())
    }

    /// The same of a store that cannot read what lies at some keys: it ends in front of them.
    pub(crate) fn of_damaged(&self, cells: &BTreeMap<Key, Cell>, damaged: &BTreeSet<Key>) -> Paged {
        let space = self.start.as_stored()[0];
        let is_inside = |key: &Key| {
            let end = self.end.as_ref();
            let is_between = if self.is_reverse {
                *key < self.start && end.is_none_or(|end| key >= end)
            } else {
                *key >= self.start && end.is_none_or(|end| key < end)
            };
            is_between && key.as_stored()[0] == space
        };
        let keys: BTreeSet<&Key> = cells.keys().chain(damaged).collect();
        let mut found: Vec<_> = keys.into_iter().filter(|key| is_inside(key)).collect();
        if self.is_reverse {
            found.reverse();
        }
        let (mut shown, mut bytes) = (Vec::new(), 0);
        for key in found {
            if damaged.contains(key) {
                let behind = [key.raw(), &[0]].concat();
                let next = if self.is_reverse {
                    Key::user(&behind)
                } else {
                    key.clone()
                };
                return if next == self.start {
                    Err(StoreFailure::Damaged)
                } else {
                    Ok((shown, Some(next)))
                };
            }
            let cell = &cells[key];
            if bytes >= self.bytes as usize {
                let rest = if self.is_reverse { shown.last() } else { None };
                let rest = rest.map_or(key, |(last, _): &(Key, Cell)| last).clone();
                return Ok((shown, Some(rest)));
            }
            bytes += key.raw().len() + cell.value.len();
            shown.push((key.clone(), cell.clone()));
        }
        Ok((shown, None))
    }
}

impl World {
    /// The only loop of `me`: it keeps no hints, compares no records, and works on 16 operations at
    /// once.
    pub(crate) fn new(record: EpochRecord, me: MemberIndex) -> World {
        World::with(record, me, |_| {})
    }

    /// The same with other settings.
    pub(crate) fn with(
        record: EpochRecord,
        me: MemberIndex,
        set: impl FnOnce(&mut NodeConfig),
    ) -> World {
        let layout = Arc::new(Layout::of_record(&record).expect("its members"));
        let hlc = Arc::new(Hlc::new(0, WALL_MS));
        let mut config = support::config(&layout, me, hlc);
        set(&mut config);
        World {
            hlc: Arc::clone(&config.hlc),
            node: Node::new(config),
            me,
            record,
            layout,
            now_us: 1_000,
            effects: Vec::new(),
            coming: BTreeMap::new(),
        }
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            mono_us: self.now_us,
            wall_ms: WALL_MS + self.now_us / 1_000,
            wall_part_us: 0,
        }
    }

    /// One event, and the tick that ends its turn.
    pub(crate) fn step(&mut self, event: Event) {
        let now = self.now();
        self.node.step(now, event, &mut self.effects);
        self.node.step(now, Event::Tick, &mut self.effects);
    }

    pub(crate) fn pass(&mut self, us: u64) {
        self.now_us += us;
        self.step(Event::Tick);
    }

    /// The event comes in so many microseconds. `mark` orders those of one moment.
    pub(crate) fn later(&mut self, us: u64, mark: u64, event: Event) {
        self.coming.insert((self.now_us + us, mark), event);
    }

    /// Is an event on its way?
    pub(crate) fn is_waiting(&self) -> bool {
        !self.coming.is_empty()
    }

    /// The clock goes on, at most to `until_us`, to the next event that comes, or to the tick that
    /// the node waits for. Returns that event. `None` once it is `until_us`.
    pub(crate) fn next(&mut self, until_us: u64) -> Option<Event> {
        let answer_us = self.coming.keys().next().map(|(at_us, _)| *at_us);
        let due_us = self.node.due_us();
        let next_us = answer_us.into_iter().chain(due_us).min();
        let Some(next_us) = next_us.filter(|next_us| *next_us < until_us) else {
            self.now_us = until_us;
            return None;
        };
        self.now_us = self.now_us.max(next_us);
        let came = self.coming.first_entry();
        let came = came.filter(|came| came.key().0 <= self.now_us);
        Some(came.map_or(Event::Tick, |came| came.remove()))
    }

    pub(crate) fn link(&mut self, member: MemberIndex, is_up: bool) {
        self.step(Event::Link { member, is_up });
    }

    pub(crate) fn link_all(&mut self) {
        let (layout, me) = (Arc::clone(&self.layout), self.me);
        for member in layout.members().filter(|member| *member != me) {
            self.link(member, true);
        }
    }

    /// This member learns the next epoch.
    pub(crate) fn adopt(&mut self, record: EpochRecord) {
        let layout = self.layout.next(&record).expect("its members");
        (self.record, self.layout) = (record, Arc::new(layout));
        let layout = Arc::clone(&self.layout);
        self.step(Event::Layout { layout });
    }

    /// A client's operation for `KEY`, under the usual quorum and within a second.
    pub(crate) fn begin(&mut self, operation: Operation) {
        self.begin_of(1, operation);
    }

    pub(crate) fn begin_of(&mut self, client: u64, operation: Operation) {
        let topology = self.layout.topology();
        let quorum = Quorum::usual(topology.copies(), topology.live());
        self.step(Event::Begin {
            client,
            key: Bytes::from_static(KEY),
            operation,
            quorum,
            deadline_us: self.now_us + SECOND_US,
        });
    }

    /// A client's scan of the whole cluster, within a second.
    pub(crate) fn scan(&mut self, client: u64, range: Range, bytes: u32) {
        let deadline_us = self.now_us + SECOND_US;
        self.step(Event::Scan {
            client,
            range,
            bytes,
            deadline_us,
        });
    }

    /// A peer asks, over its link 1.
    pub(crate) fn asked_by(&mut self, member: MemberIndex, id: u64, ask: Ask) {
        let asker = Asker {
            member,
            link: 1,
            id,
        };
        let stamp = Stamp {
            cluster: self.layout.topology().id(),
            epoch: self.layout.epoch(),
            left_ms: 1_000,
        };
        self.step(Event::Asked { asker, stamp, ask });
    }

    /// A member answers.
    pub(crate) fn answer(&mut self, asked: &Asked, answer: Answer) {
        let Asked { member, id, .. } = *asked;
        self.step(Event::Answered { member, id, answer });
    }

    /// Records from `first` to `last` are lost with the block 5, in the span 17.
    pub(crate) fn lose(&mut self, first: &Key, last: &Key) {
        let span = span(17, 5, first, last);
        self.step(Event::Lost { spans: vec![span] });
    }

    /// The clock ceilings that are asked for are durable.
    pub(crate) fn cover(&mut self) {
        let ceiling = |effect: &Effect| match effect {
            Effect::Cover { hlc } => Some(*hlc),
            _ => None,
        };
        for hlc in self.take(ceiling) {
            self.step(Event::Covered { hlc });
        }
    }

    /// The own store has made the write durable.
    pub(crate) fn written(&mut self, write: &Write) {
        self.step(wrote(write));
    }

    /// The own store holds no record of the pages that it is asked for; how many.
    pub(crate) fn show_empty_pages(&mut self) -> usize {
        let pages = self.pages();
        for page in &pages {
            let result = page.of(&BTreeMap::new());
            let ticket = page.ticket;
            self.step(Event::Paged { ticket, result });
        }
        pages.len()
    }

    /// Takes the effects in which `pick` finds something.
    fn take<T>(&mut self, pick: impl Fn(&Effect) -> Option<T>) -> Vec<T> {
        let mut taken = Vec::new();
        self.effects.retain(|effect| {
            let found = pick(effect);
            let is_left = found.is_none();
            taken.extend(found);
            is_left
        });
        taken
    }

    /// Takes all effects.
    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn asks(&mut self) -> Vec<Asked> {
        self.take(|effect| match effect {
            Effect::Ask {
                member, id, ask, ..
            } => Some(Asked {
                member: *member,
                id: *id,
                ask: ask.clone(),
            }),
            _ => None,
        })
    }

    /// The tickets of reads of the own store.
    pub(crate) fn reads(&mut self) -> Vec<u64> {
        self.take(|effect| match effect {
            Effect::Read { ticket, .. } => Some(*ticket),
            _ => None,
        })
    }

    pub(crate) fn pages(&mut self) -> Vec<Page> {
        self.take(Page::ordered)
    }

    pub(crate) fn writes(&mut self) -> Vec<Write> {
        self.take(|effect| match effect {
            Effect::Write {
                ticket,
                key,
                cell,
                guard,
            } => Some(Write {
                ticket: *ticket,
                key: key.clone(),
                cell: cell.clone(),
                guard: guard.clone(),
            }),
            _ => None,
        })
    }

    pub(crate) fn replies(&mut self) -> Vec<Answer> {
        self.take(|effect| match effect {
            Effect::Reply { answer, .. } => Some(answer.clone()),
            _ => None,
        })
    }

    pub(crate) fn outcomes(&mut self) -> Vec<Outcome> {
        self.take(|effect| match effect {
            Effect::Outcome { outcome, .. } => Some(*outcome),
            _ => None,
        })
    }

    /// The spans whose repair waits, each with the members for which it does.
    pub(crate) fn repairs_waiting(&mut self) -> Vec<(u64, BTreeSet<MemberId>)> {
        self.take(|effect| match effect {
            Effect::RepairWaits { id, of } => Some((*id, of.clone())),
            _ => None,
        })
    }

    /// The ids of spans that are repaired.
    pub(crate) fn repaired(&mut self) -> Vec<u64> {
        self.take(|effect| match effect {
            Effect::Repaired { id } => Some(*id),
            _ => None,
        })
    }
}

/// The own store has made the write durable.
pub(crate) fn wrote(write: &Write) -> Event {
    let version = write.cell.version;
    Event::Wrote {
        ticket: write.ticket,
        result: Ok(StoreOutcome::Applied { version }),
    }
}

pub(crate) fn version(hlc: u64) -> Version {
    Version {
        hlc,
        origin: 9,
        rmw: 0,
    }
}

/// A record of a member that is none of the test.
pub(crate) fn record(raw: &[u8], hlc: u64, value: &[u8]) -> (Key, Cell) {
    let key = Key::user(raw);
    let cell = CellRef::value(key.as_stored(), version(hlc), value).to_owned();
    (key, cell)
}

pub(crate) fn span(id: u64, block: u64, first: &Key, last: &Key) -> LostSpan {
    LostSpan {
        id,
        block,
        first: Bytes::copy_from_slice(first.as_stored()),
        last: Bytes::copy_from_slice(last.as_stored()),
    }
}

pub(crate) fn put(condition: Condition) -> Operation {
    Operation::Put {
        value: Bytes::from_static(b"v"),
        expiry_ms: None,
        condition,
    }
}

/// All keys from `start` on.
pub(crate) fn from(start: &'static [u8]) -> Range {
    Range {
        start: Bytes::from_static(start),
        end: None,
        is_reverse: false,
        is_keys_only: false,
    }
}

/// A member's clock, when its wall clock is that of the world at 0.
pub(crate) fn clock(hlc: u64) -> Answer {
    Answer::Clock {
        hlc,
        wall_ms: WALL_MS,
        kept: 0,
        readiness: Readiness::Ready,
    }
}

/// A page of a load, the last one of its partition.
pub(crate) fn last_page(records: Vec<(Bytes, Cell)>) -> Answer {
    Answer::Loaded {
        records,
        next: None,
    }
}
