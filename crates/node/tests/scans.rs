//! Scans over a cluster show what a dumb twin shows: all copies in one map, the newest of each key.
//!
//! Members hold drawn parts of drawn writes, pages are tiny, and one member may be away.

mod support;

use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Range};
use dendra_base::{Cell, CellRef, Key, Version};
use dendra_node::step::{Asker, Effect, Event, Now};
use dendra_node::{Hlc, Layout, MemberIndex, Node, NodeConfig, Topology};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const MEMBERS: u8 = 3;
const NOW: Now = Now {
    mono_us: 1_000_000,
    wall_ms: 1_700_000_000_000,
    wall_part_us: 0,
};

/// A key's number, what the write was, and which members hold it.
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

fn cell(number: u8, kind: Kind, hlc: u64) -> Cell {
    let key = Key::user(&raw(number));
    let version = Version {
        hlc,
        origin: 1,
        rmw: 0,
    };
    let value = |len| CellRef::value(key.as_stored(), version, &[7; 40][..len]).to_owned();
    match kind {
        Kind::Value(len) => value(usize::from(len)),
        Kind::Expired => Cell {
            expiry_ms: Some(NOW.wall_ms),
            ..value(3)
        },
        Kind::Tombstone => CellRef::tombstone(key.as_stored(), version).to_owned(),
    }
}

struct Cluster {
    node: Node,
    stores: Vec<BTreeMap<Bytes, Cell>>,
    away: Option<u8>,
}

impl Cluster {
    fn new(writes: &[Held], away: Option<u8>) -> Cluster {
        let urls = (0..MEMBERS).map(|at| format!("http://h{at}:1").parse());
        let members = urls.collect::<Result<_, _>>().expect("members");
        let topology = Topology::new("scans", members, MEMBERS).expect("a topology");
        let mut stores = vec![BTreeMap::new(); usize::from(MEMBERS)];
        for (hlc, (number, kind, holders)) in (1..).zip(writes) {
            for (store, _) in stores.iter_mut().zip(holders).filter(|(_, holds)| **holds) {
                store.insert(raw(*number), cell(*number, *kind, hlc));
            }
        }
        let layout = Arc::new(Layout::of_list(&Arc::new(topology)));
        let node = Node::new(NodeConfig {
            operations_max: 8,
            ..support::config(&layout, MemberIndex(0), Arc::new(Hlc::new(0, NOW.wall_ms)))
        });
        Cluster { node, stores, away }
    }

    /// A page of one member's store, as a store makes it.
    fn page(
        &self,
        member: u8,
        start: &[u8],
        end: Option<&[u8]>,
        is_reverse: bool,
        bytes: u32,
    ) -> (Vec<(Key, Cell)>, Option<Key>) {
        let (low, high) = match is_reverse {
            false => (start, end),
            true => (end.unwrap_or_default(), Some(start)),
        };
        let inside = |key: &[u8]| key >= low && high.is_none_or(|high| key < high);
        let store = self.stores[usize::from(member)].iter();
        let mut cells: Vec<_> = store.filter(|(key, _)| inside(key)).collect();
        if is_reverse {
            cells.reverse();
        }
        let (mut taken, mut room) = (0, bytes as usize);
        while taken < cells.len() && (taken == 0 || room > 0) {
            let size = cells[taken].0.len() + cells[taken].1.value.len();
            room = room.saturating_sub(size);
            taken += 1;
        }
        let rest = cells.get(taken).map(|(key, _)| match is_reverse {
            false => Key::user(key),
            true => Key::user(cells[taken - 1].0),
        });
        let shown = cells[..taken].iter();
        (
            shown
                .map(|(key, cell)| (Key::user(key), (*cell).clone()))
                .collect(),
            rest,
        )
    }

    /// One page of a client's scan.
    fn scan(&mut self, range: Range, bytes: u32) -> (Vec<(Bytes, Cell)>, Option<Range>) {
        let mut events = vec![Event::Scan {
            client: 1,
            range,
            bytes,
            deadline_us: NOW.mono_us + 1,
        }];
        while !events.is_empty() {
            let mut effects = Vec::new();
            self.node.step(NOW, events.remove(0), &mut effects);
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
                    Effect::Page {
                        ticket,
                        start,
                        end,
                        is_reverse,
                        bytes,
                        ..
                    } => {
                        let end = end.as_ref().map(Key::raw);
                        let result = Ok(self.page(0, start.raw(), end, is_reverse, bytes));
                        events.push(Event::Paged { ticket, result });
                    }
                    Effect::Ask {
                        member,
                        id,
                        stamp,
                        ask: Ask::Page { range, bytes },
                    } => {
                        let answer = self.other(member, stamp, range, bytes);
                        events.push(Event::Answered { member, id, answer });
                    }
                    other => panic!("nobody wanted {other:?}"),
                }
            }
        }
        panic!("the scan has no page");
    }

    /// What another member answers: its own node turns the store's page into an answer.
    fn other(
        &self,
        member: MemberIndex,
        stamp: dendra_base::peer::Stamp,
        range: Range,
        bytes: u32,
    ) -> Answer {
        if self.away == Some(member.0) {
            return Answer::Refused(dendra_base::peer::Refused::Busy);
        }
        let mut there = Cluster::new(&[], None).node;
        let asker = Asker {
            member: MemberIndex(0),
            link: 0,
            id: 1,
        };
        let (mut effects, ask) = (Vec::new(), Ask::Page { range, bytes });
        there.step(NOW, Event::Asked { asker, stamp, ask }, &mut effects);
        let Some(Effect::Page {
            ticket,
            start,
            end,
            is_reverse,
            bytes,
            ..
        }) = effects.pop()
        else {
            panic!("a page is read");
        };
        let end = end.as_ref().map(Key::raw);
        let result = Ok(self.page(member.0, start.raw(), end, is_reverse, bytes));
        there.step(NOW, Event::Paged { ticket, result }, &mut effects);
        match effects.pop() {
            Some(Effect::Reply { answer, .. }) => answer,
            other => panic!("a page is answered, not {other:?}"),
        }
    }

    /// What is to be shown: all copies that are there in one map.
    fn expected(&self, range: &Range) -> Vec<(Bytes, Cell)> {
        let mut newest: BTreeMap<Bytes, Cell> = BTreeMap::new();
        let here = (0..MEMBERS).filter(|member| self.away != Some(*member));
        for (key, cell) in here.flat_map(|member| &self.stores[usize::from(member)]) {
            let known = newest.entry(key.clone()).or_insert_with(|| cell.clone());
            if known.version < cell.version {
                *known = cell.clone();
            }
        }
        let inside =
            |key: &Bytes| *key >= range.start && range.end.as_ref().is_none_or(|e| key < e);
        let live = newest
            .into_iter()
            .filter(|(_, cell)| cell.as_ref().is_live(NOW.wall_ms));
        let mut shown: Vec<_> = live.filter(|(key, _)| inside(key)).collect();
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
