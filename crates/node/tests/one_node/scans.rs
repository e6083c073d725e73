//! Scans over a cluster show the same as a dumb twin: all copies in one map, the newest of each
//! key.
//!
//! Members hold drawn parts of drawn writes, pages are tiny, and one member may be away.

use crate::epochs;
use crate::world::{Asked, Page, SECOND_US, World, record, version};
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Range, Refused};
use dendra_base::{Cell, CellRef, Key};
use dendra_node::MemberIndex;
use dendra_node::step::{Effect, Event};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MEMBERS: u8 = 3;

/// A key's number, the kind of the write, and which members hold it.
type Held = (u8, Kind, [bool; MEMBERS as usize]);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Value(u8),
    Expired,
    Tombstone,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => (0u8..40).prop_map(Kind::Value),
        1 => Just(Kind::Expired),
        2 => Just(Kind::Tombstone),
    ]
}

fn raw(number: u8) -> Bytes {
    Bytes::from(format!("key{number:03}"))
}

/// A member at the time of all scans.
fn member(at: u8) -> World {
    let record = epochs::enrolled(u32::from(MEMBERS), MEMBERS);
    let mut world = World::new(record, MemberIndex(at));
    world.now_us = SECOND_US;
    world
}

struct Cluster {
    coordinator: World,
    stores: Vec<BTreeMap<Key, Cell>>,
    away: Option<u8>,
}

impl Cluster {
    fn new(writes: &[Held], away: Option<u8>) -> Cluster {
        let coordinator = member(0);
        let now_ms = coordinator.now().wall_ms;
        let mut stores = vec![BTreeMap::new(); usize::from(MEMBERS)];
        for (hlc, (number, kind, holders)) in (1..).zip(writes) {
            let written = |len: u8| record(&raw(*number), hlc, &[7; 40][..usize::from(len)]);
            let (key, cell) = match kind {
                Kind::Value(len) => written(*len),
                Kind::Expired => {
                    let (key, mut cell) = written(3);
                    cell.expiry_ms = Some(now_ms);
                    (key, cell)
                }
                Kind::Tombstone => {
                    let key = Key::user(&raw(*number));
                    let cell = CellRef::tombstone(key.as_stored(), version(hlc)).to_owned();
                    (key, cell)
                }
            };
            for (store, _) in stores.iter_mut().zip(holders).filter(|(_, holds)| **holds) {
                store.insert(key.clone(), cell.clone());
            }
        }
        Cluster {
            coordinator,
            stores,
            away,
        }
    }

    /// One page of a client's scan.
    fn scan(&mut self, range: Range, bytes: u32) -> (Vec<(Bytes, Cell)>, Option<Range>) {
        self.coordinator.scan(1, range, bytes);
        loop {
            let effects = self.coordinator.effects();
            assert!(!effects.is_empty(), "the scan has no page");
            for effect in effects {
                match effect {
                    Effect::Scanned {
                        records,
                        rest,
                        failure,
                        ..
                    } => {
                        assert_eq!(failure, None, "a majority answers");
                        return (records, rest);
                    }
                    Effect::Page { .. } => {
                        let page = Page::ordered(&effect).expect("a page");
                        let (ticket, result) = (page.ticket, page.of(&self.stores[0]));
                        self.coordinator.step(Event::Paged { ticket, result });
                    }
                    Effect::Ask {
                        member, id, ask, ..
                    } => {
                        let answer = self.other(member, ask.clone());
                        let asked = Asked { member, id, ask };
                        self.coordinator.answer(&asked, answer);
                    }
                    Effect::Cover { .. } => {}
                    other => panic!("no test wanted {other:?}"),
                }
            }
        }
    }

    /// The answer of another member: its own node turns the store's page into an answer.
    fn other(&self, at: MemberIndex, ask: Ask) -> Answer {
        if self.away == Some(at.0) {
            return Answer::Refused(Refused::Busy);
        }
        let mut there = member(at.0);
        there.asked_by(MemberIndex(0), 1, ask);
        let pages = there.pages();
        let [page] = &pages[..] else {
            panic!("a page is read");
        };
        let result = page.of(&self.stores[usize::from(at.0)]);
        let ticket = page.ticket;
        there.step(Event::Paged { ticket, result });
        there.replies().pop().expect("a page is answered")
    }

    /// The page that the scan is to show: all copies that are there in one map.
    fn expected(&self, range: &Range) -> Vec<(Bytes, Cell)> {
        let mut newest: BTreeMap<Key, Cell> = BTreeMap::new();
        let here = (0..MEMBERS).filter(|member| self.away != Some(*member));
        for (key, cell) in here.flat_map(|member| &self.stores[usize::from(member)]) {
            let known = newest.entry(key.clone()).or_insert_with(|| cell.clone());
            if known.version < cell.version {
                *known = cell.clone();
            }
        }
        let now_ms = self.coordinator.now().wall_ms;
        let live = newest.into_iter();
        let live = live.filter(|(_, cell)| cell.as_ref().is_live(now_ms));
        let raw = live.map(|(key, cell)| (Bytes::copy_from_slice(key.raw()), cell));
        let inside =
            |key: &Bytes| *key >= range.start && range.end.as_ref().is_none_or(|e| key < e);
        let mut shown: Vec<_> = raw.filter(|(key, _)| inside(key)).collect();
        if range.is_reverse {
            shown.reverse();
        }
        shown
    }
}

#[test]
fn a_page_ends_with_the_record_that_fills_it() {
    let writes: Vec<Held> = (0..30)
        .map(|number| (number, Kind::Value(20), [true; 3]))
        .collect();
    let mut cluster = Cluster::new(&writes, None);
    let mut next = Some(Range {
        start: raw(0),
        end: None,
        is_reverse: false,
        is_keys_only: false,
    });
    let mut pages = Vec::new();
    while let Some(range) = next {
        let (records, rest) = cluster.scan(range, 100);
        pages.push(records.len());
        next = rest;
    }
    // A key has 6 bytes.
    assert_eq!(pages, [4, 4, 4, 4, 4, 4, 4, 2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_scan_shows_each_live_key_once_with_its_newest_value(
        writes in prop::collection::vec((0u8..30, kind(), any::<[bool; 3]>()), 0..60),
        away in prop::option::of(1u8..MEMBERS),
        from in 0u8..30,
        to in prop::option::of(0u8..35),
        is_reverse in any::<bool>(),
        bytes in 1u32..120,
    ) {
        let mut cluster = Cluster::new(&writes, away);
        let range = Range {
            start: raw(from),
            end: to.map(raw),
            is_reverse,
            is_keys_only: false,
        };
        let expected = cluster.expected(&range);
        let (mut shown, mut next) = (Vec::new(), Some(range));
        while let Some(range) = next {
            let (records, rest) = cluster.scan(range, bytes);
            prop_assert!(!records.is_empty() || rest.is_none(), "a page shows a record, or is the last");
            shown.extend(records);
            next = rest;
        }
        prop_assert_eq!(shown, expected);
    }
}
