//! A small cluster of nodes that compare their copies, without clients: every store is a map, and
//! every message arrives.
//!
//! ```text
//! put, link ─► run: Tick, questions, looks at stores ─► reports, is_full, the stores
//! ```
//!
//! Invariants
//! 1. Messages between two members arrive in their order, and time passes only when none is left.
//!
//! Not here: the rules that must hold (`main.rs`).

use super::support;
use bytes::Bytes;
use dendra_base::Now;
use dendra_base::peer::{Answer, Ask};
use dendra_base::{Cell, CellRef, Key, Space, Version};
use dendra_node::compare::survey::Surveying;
use dendra_node::step::{Asker, Effect, Event, StoreFailure, StoreOutcome};
use dendra_node::{CompareConfig, CompareReport, Comparisons, Hlc, Node, NodeConfig};
use dendra_ownership::{Layout, MemberIndex, Topology};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
pub(crate) const WALL_MS: u64 = 1_700_000_000_000;
pub(crate) const SECOND_US: u64 = 1_000_000;
/// The interval of horizons.
pub(crate) const FORGET_EVERY_US: u64 = 10 * SECOND_US;

pub(crate) struct Site {
    pub(crate) node: Node,
    pub(crate) comparisons: Arc<Comparisons>,
    pub(crate) store: BTreeMap<Key, Cell>,
    pub(crate) damaged: BTreeSet<Key>,
    /// Its next writes fail.
    pub(crate) fails: u32,
    /// Its store has no room for the next looks.
    pub(crate) busy: u32,
}

pub(crate) struct Cluster {
    pub(crate) layout: Arc<Layout>,
    pub(crate) sites: Vec<Site>,
    pub(crate) now_us: u64,
    pub(crate) waiting: VecDeque<(usize, Event)>,
    /// Looks at stores that are not told yet, while `are_looks_slow`.
    pub(crate) looked: VecDeque<(usize, Event)>,
    pub(crate) are_looks_slow: bool,
    /// Lists that were asked for.
    pub(crate) lists: u64,
    /// Bytes of all keys and values that crossed the network.
    pub(crate) crossed: usize,
    /// Messages, and after how many of them the link between the first two members is lost.
    pub(crate) messages: u64,
    pub(crate) lost_after: u64,
}

pub(crate) fn size(key: &Key, cell: &Cell) -> u64 {
    (key.as_stored().len() + cell.as_ref().encoded_len()) as u64
}

pub(crate) fn topology(members: usize, copies: u8) -> Arc<Topology> {
    let urls = (0..members).map(|at| format!("http://h{at}:1").parse());
    let listed = urls.collect::<Result<_, _>>().expect("members");
    Arc::new(Topology::new("compare", listed, copies).expect("a topology"))
}

impl Cluster {
    pub(crate) fn new(members: usize, copies: u8, bytes_per_second: u64) -> Cluster {
        let layout = Layout::of_list(&topology(members, copies));
        Cluster::laid_out(layout, bytes_per_second)
    }

    pub(crate) fn laid_out(layout: Layout, bytes_per_second: u64) -> Cluster {
        let members = layout.topology().members().len();
        let layout = Arc::new(layout);
        let site = |at: usize| {
            let me = MemberIndex(at as u8);
            let comparisons = Arc::<Comparisons>::default();
            let hlc = Arc::new(Hlc::resume(None, 0, WALL_MS));
            let node = Node::new(NodeConfig {
                origin: at as u32 + 1,
                is_keeper: true,
                compare: CompareConfig {
                    progress: Arc::clone(&comparisons),
                    bytes_per_second,
                    pause_us: 1_000 * SECOND_US,
                },
                forget_every_us: FORGET_EVERY_US,
                seed: at as u64,
                operations_max: 64,
                ..support::config(&layout, me, hlc)
            });
            Site {
                node,
                comparisons,
                store: BTreeMap::new(),
                damaged: BTreeSet::new(),
                fails: 0,
                busy: 0,
            }
        };
        Cluster {
            sites: (0..members).map(site).collect(),
            layout,
            now_us: SECOND_US,
            waiting: VecDeque::new(),
            looked: VecDeque::new(),
            are_looks_slow: false,
            lists: 0,
            crossed: 0,
            messages: 0,
            lost_after: u64::MAX,
        }
    }

    /// Each of five members has an old value of each key. One of the key's first owners alone has a
    /// newer delete or value, of three copies or fewer.
    pub(crate) fn put_fewer_copies(&mut self, keys: u64) {
        for number in 0..keys {
            let (key, old) = record(number, 5, 5, false);
            (0..5).for_each(|at| self.put(at, key.clone(), old.clone()));
            let copies = 1 + (number % 3) as u8;
            let (key, newer) = record(number, 9, copies, number % 2 == 0);
            let holder = owners(&self.layout, &key)[(number % u64::from(copies)) as usize];
            self.put(holder, key, newer);
        }
    }

    pub(crate) fn put(&mut self, site: usize, key: Key, cell: Cell) {
        self.sites[site].store.insert(key, cell);
    }

    pub(crate) fn link(&mut self, a: usize, b: usize, is_up: bool) {
        for (at, member) in [(a, b), (b, a)] {
            let member = MemberIndex(member as u8);
            self.waiting.push_back((at, Event::Link { member, is_up }));
        }
    }

    pub(crate) fn connect(&mut self) {
        for a in 0..self.sites.len() {
            for b in a + 1..self.sites.len() {
                self.link(a, b, true);
            }
        }
    }

    /// Until no event is due before `until_us`.
    pub(crate) fn run(&mut self, until_us: u64) {
        loop {
            while let Some((at, event)) = self.waiting.pop_front() {
                self.step(at, event);
            }
            let due = self.sites.iter().filter_map(|site| site.node.due_us());
            let Some(due_us) = due.min().filter(|due_us| *due_us <= until_us) else {
                self.now_us = until_us;
                return;
            };
            self.now_us = self.now_us.max(due_us);
            for at in 0..self.sites.len() {
                let is_due = |due_us| due_us <= self.now_us;
                if self.sites[at].node.due_us().is_some_and(is_due) {
                    self.step(at, Event::Tick);
                }
            }
        }
    }

    pub(crate) fn step(&mut self, at: usize, event: Event) {
        let now = Now {
            mono_us: self.now_us,
            wall_ms: WALL_MS + self.now_us / 1_000,
            wall_part_us: 0,
        };
        let mut effects = Vec::new();
        self.sites[at].node.step(now, event, &mut effects);
        for effect in effects {
            if let Some(event) = self.carry_out(at, effect) {
                self.waiting.push_back(event);
            }
        }
    }

    pub(crate) fn carry_out(&mut self, at: usize, effect: Effect) -> Option<(usize, Event)> {
        let site = &mut self.sites[at];
        Some(match effect {
            Effect::Ask {
                member,
                id,
                stamp,
                ask,
            } => {
                self.messages += 1;
                if self.messages == self.lost_after {
                    self.link(0, 1, false);
                }
                self.lists += u64::from(matches!(ask, Ask::List { .. }));
                self.crossed += match &ask {
                    Ask::Compare { ranges, start, .. } => {
                        let ends = ranges.iter().flat_map(|range| &range.end);
                        start.len() + ends.map(Bytes::len).sum::<usize>() + 13 * ranges.len() + 80
                    }
                    Ask::Write { key, cell } => key.len() + cell.value.len() + 80,
                    _ => 100,
                };
                let member_of = MemberIndex(at as u8);
                let asker = Asker {
                    member: member_of,
                    link: u64::from(member.0),
                    id,
                };
                (member.at(), Event::Asked { asker, stamp, ask })
            }
            Effect::Reply { asker, answer } => {
                self.crossed += match &answer {
                    Answer::Listed { records, .. } => {
                        let size = |(key, cell): &(Bytes, Cell)| key.len() + cell.value.len() + 40;
                        records.iter().map(size).sum()
                    }
                    Answer::Cell(Some(cell)) => cell.value.len() + 60,
                    _ => 60,
                };
                let event = Event::Answered {
                    member: MemberIndex(at as u8),
                    id: asker.id,
                    answer,
                };
                (asker.member.at(), event)
            }
            Effect::Read { ticket, key, .. } => {
                let result = if site.damaged.contains(&key) {
                    Err(StoreFailure::Damaged)
                } else {
                    Ok(site.store.get(&key).cloned())
                };
                (at, Event::Read { ticket, result })
            }
            Effect::Write {
                ticket, key, cell, ..
            } => {
                if site.fails > 0 && key.as_stored()[0] == Space::User.byte() {
                    site.fails -= 1;
                    let result = Err(StoreFailure::DiskFull);
                    return Some((at, Event::Wrote { ticket, result }));
                }
                // An engine does not look at the record that is there.
                let version = cell.version;
                let held = site.store.get(&key).map(|held| held.version);
                if held.is_none_or(|held| !held.is_newer_than(version)) {
                    site.store.insert(key, cell);
                }
                let result = Ok(StoreOutcome::Applied { version });
                (at, Event::Wrote { ticket, result })
            }
            Effect::Page {
                ticket,
                start,
                end,
                bytes,
                ..
            } => {
                let result = site.page(&start, end.as_ref(), bytes);
                (at, Event::Paged { ticket, result })
            }
            Effect::Survey { ticket, .. } if site.busy > 0 => {
                site.busy -= 1;
                let result = Err(StoreFailure::Busy);
                (at, Event::Surveyed { ticket, result })
            }
            Effect::Survey { ticket, look, .. } => {
                let mut looker = look.begin();
                let mut is_damaged = false;
                for (key, cell) in site.store.range(look.start.clone()..) {
                    let is_behind = look.end.as_ref().is_some_and(|end| key >= end);
                    if is_behind || key.as_stored()[0] != look.start.as_stored()[0] {
                        break;
                    }
                    is_damaged |= site.damaged.contains(key);
                    if looker.visit(key.as_stored(), cell.as_ref()) == Surveying::Enough {
                        break;
                    }
                }
                let result = if is_damaged {
                    Err(StoreFailure::Damaged)
                } else {
                    looker.finish().ok_or(StoreFailure::Damaged)
                };
                let event = (at, Event::Surveyed { ticket, result });
                if self.are_looks_slow {
                    self.looked.push_back(event);
                    return None;
                }
                event
            }
            Effect::Cover { hlc } => (at, Event::Covered { hlc }),
            _ => return None,
        })
    }

    pub(crate) fn reports(&mut self) -> Vec<CompareReport> {
        let sites = self.sites.iter_mut();
        sites
            .flat_map(|site| site.node.take_comparisons())
            .collect()
    }

    pub(crate) fn pairs(&self) -> Vec<(usize, usize)> {
        let all = 0..self.sites.len();
        all.clone()
            .flat_map(|a| all.clone().map(move |b| (a, b)))
            .filter(|(a, b)| a != b)
            .collect()
    }

    pub(crate) fn is_full(&self, a: usize, b: usize) -> bool {
        let comparisons = &self.sites[a].comparisons;
        comparisons.full_us(MemberIndex(b as u8)).is_some()
    }
}

impl Site {
    pub(crate) fn page(
        &self,
        start: &Key,
        end: Option<&Key>,
        bytes: u32,
    ) -> Result<(Vec<(Key, Cell)>, Option<Key>), StoreFailure> {
        let mut cells = Vec::new();
        let mut held = 0;
        for (key, cell) in self.store.range(start.clone()..) {
            if key.as_stored()[0] != start.as_stored()[0] || end.is_some_and(|end| key >= end) {
                break;
            }
            if self.damaged.contains(key) {
                return Err(StoreFailure::Damaged);
            }
            if held >= u64::from(bytes) {
                return Ok((cells, Some(key.clone())));
            }
            held += size(key, cell);
            cells.push((key.clone(), cell.clone()));
        }
        Ok((cells, None))
    }
}

/// The owners of a key, as many as there are members.
pub(crate) fn owners(layout: &Layout, key: &Key) -> Vec<usize> {
    let partition = layout.ring().partition(key.raw());
    let owners = layout.ring().owners(partition).iter();
    owners.map(|owner| owner.at()).collect()
}

pub(crate) fn version(hlc: u64) -> Version {
    Version {
        hlc,
        origin: 1,
        rmw: 0,
    }
}

pub(crate) fn record(number: u64, hlc: u64, copies: u8, is_dead: bool) -> (Key, Cell) {
    let key = Key::user(format!("key{number:09}").as_bytes());
    let value = format!("value {hlc} of {number}, and some more bytes to make it one");
    let mut cell = if is_dead {
        CellRef::tombstone(key.as_stored(), version(hlc)).to_owned()
    } else {
        CellRef::value(key.as_stored(), version(hlc), value.as_bytes()).to_owned()
    };
    cell.copies = copies;
    (key, cell)
}

/// Two members with the same values, and the bytes of one of them.
pub(crate) fn two_alike(numbers: std::ops::Range<u64>, bytes_per_second: u64) -> (Cluster, u64) {
    two_with(numbers, bytes_per_second, |number| {
        record(number, 5, 2, false)
    })
}

/// The same with these records.
pub(crate) fn two_with(
    numbers: std::ops::Range<u64>,
    bytes_per_second: u64,
    record: impl Fn(u64) -> (Key, Cell),
) -> (Cluster, u64) {
    let mut cluster = Cluster::new(2, 2, bytes_per_second);
    let mut total = 0;
    for number in numbers {
        let (key, cell) = record(number);
        total += size(&key, &cell);
        cluster.put(0, key.clone(), cell.clone());
        cluster.put(1, key, cell);
    }
    (cluster, total)
}

/// A promise as docs/format/cluster.md has it.
pub(crate) fn promise(number: u64, hlc: u64) -> (Key, Cell) {
    let key = Key::new(Space::Protocol, format!("key{number:09}").as_bytes());
    let mut value = vec![1];
    value.extend_from_slice(&hlc.to_be_bytes());
    value.extend_from_slice(&1u32.to_be_bytes());
    let cell = CellRef::value(key.as_stored(), version(hlc), &value).to_owned();
    (key, cell)
}

pub(crate) fn promised(cell: &Cell) -> &[u8] {
    &cell.value[1..9]
}
