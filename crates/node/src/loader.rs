//! Copies of positions that move to this member: read from their owners, page by page, and written
//! to the own store.
//!
//! ```text
//! layout: 17 and 40 come from h1, 52 from h4 ─► walk of h1 for {17, 40} ─► walk of h4 for {52}
//! a walk    Load(Protocol, start) ─ Loaded ─► records joined ─► … ─► Load(User, start) ─► … ─► end
//! h1 away for LOAD_PATIENCE_US_DEFAULT, or damaged ─► so many of the other owners that they meet each majority
//! end of the last walk that a partition needs ─► Effect::Loaded
//! ```
//!
//! Invariants
//! 1. A page is asked for under an epoch in which the position moves, and its source answers behind
//!    its fence. So a walk of the old owner has whatever that owner confirmed alone, and walks of
//!    `ceil(n / 2)` other owners have whatever a majority confirmed.
//! 2. A partition has loaded when each record of the walks that it needs is durable here.
//! 3. One walk at a time, one page at a time, `LOAD_WRITES_MAX` writes at a time, and no more bytes
//!    a second than this member was told.
//! 4. A walk of one source serves all partitions that can use it.
//!
//! Not here: who owns what (`layout.rs`), what a source answers (`replica.rs`), the epoch that
//! makes this member the owner (`topology/`).
//! See: docs/protocol.md, "Changes of members".

use crate::config::NodeConfig;
use crate::desk::{Desk, Order, Turn};
use crate::ledger::NEVER;
use crate::limits::{LOAD_ASK_US, LOAD_PAGE_BYTES, LOAD_WRITES_MAX};
use crate::member::MemberIndex;
use crate::plausible;
use crate::purpose::{Purpose, Recipient, Requester};
use crate::replica::job::Question;
use crate::replica::protocol;
use crate::replica::record::Record;
use crate::ring::Partition;
use crate::step::Effect;
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Refused};
use dendra_base::{Cell, Guard, Key, Space};
use std::collections::{BTreeMap, BTreeSet};

/// A partition of which this member becomes an owner.
#[derive(Debug)]
struct Arriving {
    /// The epoch in which its position began to move.
    since: u64,
    /// Sources that were walked to their ends.
    walked: BTreeSet<MemberIndex>,
    is_told: bool,
}

/// A source, from the first page to the last.
#[derive(Debug)]
struct LoadWalk {
    id: u64,
    source: MemberIndex,
    partitions: Vec<Partition>,
    space: Space,
    start: Bytes,
    /// Where the page under way goes on; `None` = it ends the space.
    next: Option<Bytes>,
    /// Records of the page that are not written yet.
    records: Vec<(Bytes, Cell)>,
    /// Records that are being written.
    writing: usize,
    /// A page is asked for.
    is_asking: bool,
    /// Bytes of the page under way.
    bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Loader {
    is_on: bool,
    /// Did it look at a layout?
    is_begun: bool,
    bytes_per_second: u64,
    /// Bytes of records that were written here so far.
    loaded_bytes: u64,
    patience_us: u64,
    arriving: BTreeMap<Partition, Arriving>,
    walk: Option<LoadWalk>,
    walks: u64,
    /// Sources whose stores cannot be read, and until when they are not asked.
    unusable: BTreeMap<MemberIndex, u64>,
    /// Old owners without a link, and since when none was seen.
    away_since_us: BTreeMap<MemberIndex, u64>,
    due_us: u64,
}

impl Loader {
    /// Of a member that has this layout first. It begins with the first `Tick`.
    pub(crate) fn new(config: &NodeConfig) -> Loader {
        let mut all = config.layout.ring().all();
        let is_here = all.any(|partition| {
            let arriving = config.layout.arriving(partition);
            arriving.is_some_and(|twin| twin.member == config.me)
        });
        let is_due = config.is_keeper && is_here;
        Loader {
            is_on: config.is_keeper,
            is_begun: false,
            patience_us: config.load_patience_us,
            bytes_per_second: config.load_bytes_per_second.max(1),
            loaded_bytes: 0,
            arriving: BTreeMap::new(),
            walk: None,
            walks: 0,
            unusable: BTreeMap::new(),
            away_since_us: BTreeMap::new(),
            due_us: if is_due { 0 } else { NEVER },
        }
    }

    /// Bytes loaded so far.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes
    }

    /// Loads at most about so many bytes a second from the next page on.
    pub(crate) fn throttle(&mut self, bytes_per_second: u64) {
        self.bytes_per_second = bytes_per_second.max(1);
    }

    /// When a `Tick` is wanted.
    pub(crate) fn due_us(&self) -> u64 {
        self.due_us
    }

    /// The desk has a layout, the first one or a later one.
    pub(crate) fn adopt(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if !self.is_on {
            return;
        }
        self.is_begun = true;
        let layout = &desk.layout;
        let is_here = |p: &Partition| {
            let arriving = layout.arriving(*p);
            arriving.is_some_and(|twin| twin.member == desk.me)
        };
        let here: BTreeSet<Partition> = desk.ring.all().filter(is_here).collect();
        self.arriving
            .retain(|partition, _| here.contains(partition));
        for partition in here {
            let since = layout.changed(partition);
            let is_known = self
                .arriving
                .get(&partition)
                .is_some_and(|a| a.since == since);
            if !is_known {
                let arriving = Arriving {
                    since,
                    walked: BTreeSet::new(),
                    is_told: false,
                };
                self.arriving.insert(partition, arriving);
                // A walk under way began in front of this move, and says nothing about it.
                if let Some(walk) = &mut self.walk {
                    walk.partitions.retain(|p| *p != partition);
                }
            }
        }
        self.go_on(desk, turn);
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if turn.now.mono_us >= self.due_us {
            self.due_us = NEVER;
            match self.is_begun {
                true => self.go_on(desk, turn),
                false => self.adopt(desk, turn),
            }
        }
    }

    fn rest(&mut self, now_us: u64, pause_us: u64) {
        self.due_us = now_us + pause_us;
    }

    /// How long it rests behind a refusal, of a page or of the own store.
    fn pause_us(&self) -> u64 {
        self.patience_us / 100
    }

    /// The next page, or the next walk.
    fn go_on(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if self.due_us != NEVER {
            return;
        }
        if self
            .walk
            .as_ref()
            .is_some_and(|walk| walk.partitions.is_empty() && walk.writing == 0)
        {
            self.walk = None;
        }
        if self.walk.is_none() {
            self.begin_walk(desk, turn);
        }
        let Some(walk) = &mut self.walk else {
            return;
        };
        if walk.is_asking || walk.writing > 0 || !walk.records.is_empty() {
            return self.write_more(desk, turn);
        }
        walk.is_asking = true;
        let ask = Ask::Load {
            space: walk.space,
            start: walk.start.clone(),
            partitions: bits(&walk.partitions),
            bytes: LOAD_PAGE_BYTES,
        };
        let (source, purpose) = (walk.source, Purpose::Load { walk: walk.id });
        desk.ask(turn, source, purpose, ask, turn.now.mono_us + LOAD_ASK_US);
    }

    /// Chooses the source that serves most partitions.
    fn begin_walk(&mut self, desk: &Desk, turn: &Turn<'_>) {
        let now_us = turn.now.mono_us;
        self.unusable.retain(|_, until_us| now_us < *until_us);
        self.away_since_us
            .retain(|member, _| !desk.health.is_up(*member));
        for partition in self.arriving.keys() {
            let (old, _) = owners(desk, *partition);
            if let Some(old) = old.filter(|old| !desk.health.is_up(*old)) {
                self.away_since_us.entry(old).or_insert(now_us);
            }
        }
        let mut useful: BTreeMap<MemberIndex, Vec<Partition>> = BTreeMap::new();
        let mut is_waiting = false;
        for (partition, arriving) in &self.arriving {
            if arriving.is_told {
                continue;
            }
            let sources = self.sources(desk, *partition, arriving, now_us);
            is_waiting = true;
            for source in sources {
                useful.entry(source).or_default().push(*partition);
            }
        }
        let best = useful
            .into_iter()
            .max_by_key(|(_, partitions)| partitions.len());
        let Some((source, partitions)) = best else {
            if is_waiting {
                self.rest(now_us, self.pause_us());
            }
            return;
        };
        self.walks += 1;
        self.walk = Some(LoadWalk {
            id: self.walks,
            source,
            partitions,
            space: Space::Protocol,
            start: Bytes::new(),
            next: None,
            records: Vec::new(),
            writing: 0,
            is_asking: false,
            bytes: 0,
        });
    }

    /// Members of which a walk is of use to the partition now.
    fn sources(
        &self,
        desk: &Desk,
        partition: Partition,
        arriving: &Arriving,
        now_us: u64,
    ) -> Vec<MemberIndex> {
        let is_usable = |member: &MemberIndex| {
            desk.health.is_up(*member) && !self.unusable.contains_key(member)
        };
        let (old, others) = owners(desk, partition);
        if let Some(old) = old {
            if is_usable(&old) {
                return vec![old];
            }
            let away = self.away_since_us.get(&old);
            let is_away_long = away.is_some_and(|since| now_us >= since + self.patience_us);
            if !is_away_long && !self.unusable.contains_key(&old) {
                return Vec::new();
            }
        }
        let others = others.into_iter().filter(is_usable);
        others
            .filter(|member| !arriving.walked.contains(member))
            .collect()
    }

    /// An answer to a page, or of the own acceptor to a record.
    pub(crate) fn answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        walk: u64,
        answer: Answer,
    ) {
        let Some(under_way) = self.walk.as_mut().filter(|it| it.id == walk) else {
            return;
        };
        if !under_way.is_asking {
            let is_kept = matches!(answer, Answer::Accepted);
            return self.wrote(desk, turn, walk, is_kept);
        }
        under_way.is_asking = false;
        match answer {
            Answer::Loaded { records, next } => {
                let size = |(key, cell): &(Bytes, Cell)| (key.len() + cell.value.len()) as u64;
                under_way.bytes = records.iter().map(size).sum();
                under_way.records = records;
                under_way.next = next;
                self.write_more(desk, turn);
            }
            Answer::Refused(Refused::Damaged) => self.give_up_source(turn),
            _ => {
                // Late, full or gone: the next walk may have another source.
                if !desk.health.is_up(under_way.source) {
                    self.walk = None;
                }
                self.rest(turn.now.mono_us, self.pause_us());
            }
        }
    }

    /// What the source holds cannot be read.
    fn give_up_source(&mut self, turn: &Turn<'_>) {
        if let Some(walk) = self.walk.take() {
            let until_us = turn.now.mono_us + self.patience_us;
            self.unusable.insert(walk.source, until_us);
        }
        self.rest(turn.now.mono_us, self.pause_us());
    }

    /// Writes more records of the page; behind the last one the walk goes on.
    fn write_more(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        let Some(walk) = &mut self.walk else {
            return;
        };
        while walk.writing < LOAD_WRITES_MAX {
            let Some((raw, cell)) = walk.records.pop() else {
                break;
            };
            match walk.space {
                Space::Protocol => {
                    let record = Record::decode(&cell.value);
                    let record = record.filter(|record| plausible::is_ballot(record.promised));
                    let Some(record) = record else {
                        return self.give_up_source(turn);
                    };
                    walk.writing += 1;
                    let requester = Requester {
                        to: Recipient::Own(Purpose::Load { walk: walk.id }),
                        epoch: desk.layout.epoch().max(desk.fence.epoch()),
                        partition: None,
                    };
                    let question = Question::Adopt { record };
                    protocol::begin(desk, turn, requester, raw, question, NEVER);
                }
                _ => {
                    let key = Key::user(&raw);
                    if !cell.as_ref().is_intact(key.as_stored()) {
                        return self.give_up_source(turn);
                    }
                    walk.writing += 1;
                    desk.follow(cell.version.hlc);
                    let order = Order::Loaded { walk: walk.id };
                    desk.write(turn, order, key, cell, Guard::Newest);
                }
            }
        }
        if walk.writing == 0 && !walk.is_asking {
            self.end_page(desk, turn);
        }
    }

    /// A record of the page is durable, or could not be written.
    pub(crate) fn wrote(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        walk: u64,
        is_written: bool,
    ) {
        let Some(under_way) = self.walk.as_mut().filter(|it| it.id == walk) else {
            return;
        };
        under_way.writing -= 1;
        if !is_written {
            // The page is asked for again: which of its records are missing is not kept.
            under_way.records.clear();
            under_way.next = Some(under_way.start.clone());
            self.rest(turn.now.mono_us, self.pause_us());
        }
        if self
            .walk
            .as_ref()
            .is_some_and(|it| it.writing == 0 && it.records.is_empty())
        {
            return self.end_page(desk, turn);
        }
        if self.due_us == NEVER {
            self.write_more(desk, turn);
        }
    }

    /// All records of the page are durable.
    fn end_page(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        let Some(walk) = &mut self.walk else {
            return;
        };
        let bytes = std::mem::take(&mut walk.bytes);
        self.loaded_bytes += bytes;
        let pause_us = bytes.saturating_mul(1_000_000) / self.bytes_per_second;
        match (walk.next.take(), walk.space) {
            (Some(next), _) => walk.start = next,
            (None, Space::Protocol) => {
                walk.space = Space::User;
                walk.start = Bytes::new();
            }
            (None, _) => self.end_walk(desk, turn),
        }
        if pause_us > 0 && self.due_us == NEVER {
            self.rest(turn.now.mono_us, pause_us);
        }
        self.go_on(desk, turn);
    }

    /// The source was walked to its end.
    fn end_walk(&mut self, desk: &Desk, turn: &mut Turn<'_>) {
        let Some(walk) = self.walk.take() else {
            return;
        };
        let mut partitions = Vec::new();
        for partition in walk.partitions {
            let Some(arriving) = self.arriving.get_mut(&partition) else {
                continue;
            };
            arriving.walked.insert(walk.source);
            let (old, others) = owners(desk, partition);
            let walked = others
                .iter()
                .filter(|other| arriving.walked.contains(other))
                .count();
            let all = others.len() + usize::from(old.is_some());
            let is_whole =
                old.is_some_and(|old| arriving.walked.contains(&old)) || walked >= all.div_ceil(2);
            if is_whole && !arriving.is_told {
                arriving.is_told = true;
                partitions.push(partition);
            }
        }
        if !partitions.is_empty() {
            let epoch = desk.layout.epoch();
            turn.effects.push(Effect::Loaded { epoch, partitions });
        }
    }
}

/// The old owner of the position that moves here, and the owners of the other positions.
fn owners(desk: &Desk, partition: Partition) -> (Option<MemberIndex>, Vec<MemberIndex>) {
    let copies = usize::from(desk.topology.copies());
    let row = desk.ring.owners(partition);
    let row = &row[..copies.min(row.len())];
    let arriving = desk.layout.arriving(partition);
    let old = arriving.filter(|twin| !twin.is_added);
    let old = old.and_then(|twin| row.get(usize::from(twin.place)).copied());
    let others = row.iter().copied().filter(|owner| Some(*owner) != old);
    let others = others.filter(|owner| *owner != desk.me);
    (old, others.collect())
}

/// A bit for each partition.
fn bits(partitions: &[Partition]) -> Bytes {
    let last = partitions.iter().map(|partition| partition.at()).max();
    let mut bits = vec![0u8; last.map_or(0, |last| last / 8 + 1)];
    for partition in partitions {
        bits[partition.at() / 8] |= 1 << (partition.at() % 8);
    }
    bits.into()
}
