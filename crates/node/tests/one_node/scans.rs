//! Scans over a cluster show the same as a dumb twin: all copies in one map, the newest of each
//! key.
//!
//! Members hold drawn parts of drawn writes, pages are tiny, and one member may be away. Each may
//! have damage at drawn keys.

use crate::epochs;
use crate::world::{Asked, Page, SECOND_US, World, record, version};
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Range, Refused};
use dendra_base::{Cell, CellRef, Key};
use dendra_node::Outcome;
use dendra_node::step::{Effect, Event, Paged};
use dendra_ownership::MemberIndex;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

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

/// At least two of the members.
fn majority() -> impl Strategy<Value = [bool; MEMBERS as usize]> {
    let left_out = 0..=usize::from(MEMBERS);
    left_out.prop_map(|left_out| std::array::from_fn(|at| at != left_out))
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
    /// Keys that a member cannot read.
    damaged: Vec<BTreeSet<Key>>,
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
            damaged: vec![BTreeSet::new(); usize::from(MEMBERS)],
            away,
        }
    }

    /// Can a majority read what lies at the key?
    fn is_readable(&self, key: &Key) -> bool {
        let reads =
            |at: &u8| self.away != Some(*at) && !self.damaged[usize::from(*at)].contains(key);
        (0..MEMBERS).filter(reads).count() > usize::from(MEMBERS) / 2
    }

    /// All pages of a client's scan. The records, and what is left when it cannot go on.
    fn walk(&mut self, range: Range, bytes: u32) -> (Vec<(Bytes, Cell)>, Option<Range>) {
        let (mut shown, mut next) = (Vec::new(), Some(range));
        while let Some(range) = next {
            let (records, rest, failure) = self.page(range.clone(), bytes);
            shown.extend(records.clone());
            if failure.is_some() {
                assert_eq!(records, [], "a page that fails shows nothing");
                return (shown, rest);
            }
            assert_ne!(rest, Some(range), "each page is a step on");
            next = rest;
        }
        (shown, None)
    }

    /// One page of a client's scan, of which a majority answers.
    fn scan(&mut self, range: Range, bytes: u32) -> (Vec<(Bytes, Cell)>, Option<Range>) {
        let (records, rest, failure) = self.page(range, bytes);
        assert_eq!(failure, None, "a majority answers");
        (records, rest)
    }

    fn page(
        &mut self,
        range: Range,
        bytes: u32,
    ) -> (Vec<(Bytes, Cell)>, Option<Range>, Option<Outcome>) {
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
                    } => return (records, rest, failure),
                    Effect::Page { .. } => {
                        let page = Page::ordered(&effect).expect("a page");
                        let (ticket, result) = (page.ticket, self.store_page(0, &page));
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
        let result = self.store_page(at.0, page);
        let ticket = page.ticket;
        there.step(Event::Paged { ticket, result });
        there.replies().pop().expect("a page is answered")
    }

    fn store_page(&self, at: u8, page: &Page) -> Paged {
        let at = usize::from(at);
        page.of_damaged(&self.stores[at], &self.damaged[at])
    }

    /// The page that the scan is to show: all copies that are there in one map.
    fn expected(&self, range: &Range) -> Vec<(Bytes, Cell)> {
        let mut newest: BTreeMap<Key, Cell> = BTreeMap::new();
        let here = (0..MEMBERS).filter(|member| self.away != Some(*member));
        let here = here.map(usize::from);
        let copies = here.flat_map(|at| self.stores[at].iter().map(move |copy| (at, copy)));
        let copies = copies.filter(|(at, (key, _))| !self.damaged[*at].contains(key));
        for (key, cell) in copies.map(|(_, copy)| copy) {
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
        let (shown, rest) = cluster.walk(range, bytes);
        prop_assert_eq!(rest, None);
        prop_assert_eq!(shown, expected);
    }

    #[test]
    fn a_scan_ends_at_the_first_key_that_no_majority_can_read(
        writes in prop::collection::vec((0u8..30, kind(), majority()), 0..60),
        damaged in prop::collection::vec((0u8..30, 0u8..MEMBERS), 0..12),
        away in prop::option::weighted(0.2, 1u8..MEMBERS),
        is_reverse in any::<bool>(),
        bytes in 1u32..400,
    ) {
        let mut cluster = Cluster::new(&writes, away);
        for (number, member) in damaged {
            cluster.damaged[usize::from(member)].insert(Key::user(&raw(number)));
        }
        let range = Range {
            start: raw(0),
            end: None,
            is_reverse,
            is_keys_only: false,
        };
        let mut numbers: Vec<u8> = (0..30).collect();
        if is_reverse {
            numbers.reverse();
        }
        let mut expected = cluster.expected(&range);
        let mut keys = numbers.into_iter().map(raw);
        let unread = keys.find(|key| !cluster.is_readable(&Key::user(key)));
        if let Some(unread) = &unread {
            expected.retain(|(key, _)| if is_reverse { key > unread } else { key < unread });
        }
        let (shown, rest) = cluster.walk(range.clone(), bytes);
        prop_assert_eq!(shown, expected);
        let wanted = unread.map(|unread| if is_reverse {
            Range { end: Some([&unread[..], &[0]].concat().into()), ..range }
        } else {
            Range { start: unread, ..range }
        });
        prop_assert_eq!(rest, wanted);
    }
}
