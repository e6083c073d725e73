//! Copies of positions that move to this member: read from their owners, page by page, and written
//! to the own store.
//!
//! ```text
//! layout: 17 and 40 come from h1, 52 from h4 ─► walk of h1 for {17, 40} ─► walk of h4 for {52}
//! a walk    Load(Protocol, start) ─ Loaded ─► records joined ─► … ─► Load(User, start) ─► … ─► end
//! h1 away for LOAD_PATIENCE_US_DEFAULT, or damaged ─► so many of the other owners that they meet each majority
//! h1 damaged at a place ─► those others from there on, a page of each ─► h1 is tried behind it
//! 88 is added, and has no old owner ─► owners that meet each majority of the first 1, 2, … n ones
//! end of the last walk that a partition needs ─► Effect::Loaded
//! ```
//!
//! Invariants
//! 1. A page is asked for under an epoch in which the position moves, and its source answers after
//!    its fence. So a walk of the old owner has all that this owner confirmed alone. Walks of other
//!    owners have all that a majority of the `n` owners confirmed, and all that a majority of fewer
//!    ones confirmed. A client may ask for fewer copies, and the factor may have been lower. Owners
//!    of fewer copies that are away for long are not waited for. While a lowered factor waits for
//!    its steps, all other members are walked, too: any of them may have been an owner. One that a
//!    plan takes away is not waited for while it is away for long.
//! 2. A partition has loaded when each record of the walks that it needs is durable here.
//! 3. One walk of a source at a time, one page of a walk at a time, `LOAD_WRITES_MAX` writes of it
//!    at a time. The pace bounds the pages, and a member's limit the bytes a second. While the own
//!    store is strained there is a page in `PACE_REST_US_MAX`.
//! 4. A walk of one source serves all partitions that can use it. No more walks are begun for a
//!    partition than it needs.
//! 5. Damage of a source costs no more than its place: what lies in front of it has loaded, and the
//!    source is asked again behind it. It is asked there again after the patience.
//!
//! Not here: how far partitions have loaded (`arriving.rs`), a walk page by page (`walk.rs`), how
//! many pages clients can bear (`pace/`), answers of a source (`replica/`). Nor are owners of
//! positions, which of them must be walked, and epochs (crate `ownership`).
//! See: docs/protocol.md, "Changes of members".

use crate::arriving::{Arriving, DamagedPlaces, LoadPlace};
use crate::config::NodeConfig;
use crate::desk::{Desk, Turn};
use crate::ledger::NEVER;
use crate::limits::{FOREGROUND_ASK_US, LOAD_CATCH_UP_US, PACE_REST_US_MAX};
use crate::pace::{ForegroundLook, LoadPace};
use crate::purpose::{Purpose, WalkId, Walker};
use crate::step::Effect;
use crate::walk::{SourceWalk, Walked};
use dendra_base::peer::{Answer, Ask};
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::Partition;
use dendra_ownership::sources::{OldOwner, Sources};
use std::collections::{BTreeMap, BTreeSet};

/// A look at the foregrounds of all members that is under way.
#[derive(Debug)]
struct OpenLook {
    number: u64,
    awaited: BTreeSet<MemberIndex>,
    seen: ForegroundLook,
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
    /// Walks of different sources.
    walks: Vec<SourceWalk>,
    walks_so_far: u64,
    pace: LoadPace,
    look: Option<OpenLook>,
    looks_so_far: u64,
    /// When the limit in bytes a second has paid for all that was loaded.
    paid_us: u64,
    damage: DamagedPlaces,
    /// Sources without a link, and since when none was seen.
    away_since_us: BTreeMap<MemberIndex, u64>,
    due_us: u64,
}

impl Loader {
    /// Loader of a member that has this layout first. It begins with the first `Tick`.
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
            walks: Vec::new(),
            walks_so_far: 0,
            pace: LoadPace::new(),
            look: None,
            looks_so_far: 0,
            paid_us: 0,
            damage: DamagedPlaces::default(),
            away_since_us: BTreeMap::new(),
            due_us: if is_due { 0 } else { NEVER },
        }
    }

    /// Is something being loaded?
    pub(crate) fn is_busy(&self) -> bool {
        !self.walks.is_empty() || !self.arriving.is_empty()
    }

    /// Bytes loaded so far.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes
    }

    /// Loads at most about so many bytes a second from the next page on.
    pub(crate) fn throttle(&mut self, bytes_per_second: u64) {
        self.bytes_per_second = bytes_per_second.max(1);
        if self.due_us != NEVER {
            // A pause was as long as the rate before wanted it.
            self.due_us = 0;
        }
        self.paid_us = 0;
    }

    /// When a `Tick` is wanted.
    pub(crate) fn due_us(&self) -> u64 {
        self.due_us.min(self.pace.due_us())
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
        let here: BTreeSet<Partition> = desk.ring().all().filter(is_here).collect();
        self.arriving
            .retain(|partition, _| here.contains(partition));
        for partition in here {
            let since = layout.changed(partition);
            let is_known = self
                .arriving
                .get(&partition)
                .is_some_and(|a| a.since == since);
            if !is_known {
                self.arriving.insert(partition, Arriving::new(since));
                // Walks under way began before this move, and do not cover it.
                for walk in &mut self.walks {
                    walk.partitions.retain(|p| *p != partition);
                }
            }
        }
        self.go_on(desk, turn);
    }

    /// A link to the member has come up: an absence that is over gives it up no more.
    pub(crate) fn link_up(&mut self, member: MemberIndex) {
        self.away_since_us.remove(&member);
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        let now_us = turn.now.mono_us;
        if now_us < self.due_us() {
            return;
        }
        if now_us >= self.due_us {
            self.due_us = NEVER;
        }
        if self.is_begun {
            self.go_on(desk, turn)
        } else {
            self.adopt(desk, turn)
        }
    }

    /// No further page until then.
    fn rest(&mut self, now_us: u64, pause_us: u64) {
        let until_us = now_us + pause_us;
        self.due_us = match self.due_us {
            NEVER => until_us,
            due_us => due_us.max(until_us),
        };
    }

    /// How long it rests after a refusal, of a page or of the own store.
    fn pause_us(&self) -> u64 {
        self.patience_us / 100
    }

    /// The next pages and walks, as many as the pace allows.
    fn go_on(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        self.walks
            .retain(|walk| !walk.partitions.is_empty() || walk.is_writing());
        self.tell_loaded(desk, turn);
        if self.walks.is_empty() && self.arriving.values().all(|arriving| arriving.is_told) {
            self.pace.end();
            self.look = None;
            return;
        }
        let now_us = turn.now.mono_us;
        self.pace.begin(now_us);
        if self.pace.wants_look(now_us, self.under_way()) {
            self.look_around(desk, turn);
        }
        let pages_max = if desk.is_strained {
            self.pace.pages_max().min(1)
        } else {
            self.pace.pages_max()
        };
        while self.due_us == NEVER && self.under_way() < pages_max {
            let Some(at) = self.next_walk(desk, turn) else {
                return;
            };
            let walk = &mut self.walks[at];
            walk.set_page_bytes(self.pace.page_bytes());
            let asked = walk.go_on(desk, turn);
            debug_assert_eq!(asked, Walked::Waits, "an idle walk asks");
        }
    }

    /// An idle walk, or a new one. Sources that load a damaged place together go on side by side:
    /// the damaged one is asked again where the last of them gets.
    fn next_walk(&mut self, desk: &Desk, turn: &Turn<'_>) -> Option<usize> {
        let begun = if self.damage.is_empty() {
            None
        } else {
            self.begin_walk(desk, turn)
        };
        let walks = self.walks.iter().enumerate();
        let idle = walks.filter(|(_, walk)| !walk.is_under_way());
        let idle = idle.min_by_key(|(_, walk)| walk.asked_us());
        begun
            .or(idle.map(|(at, _)| at))
            .or_else(|| self.begin_walk(desk, turn))
    }

    /// Pages that are asked for, or being written.
    fn under_way(&self) -> usize {
        let under_way = self.walks.iter().filter(|walk| walk.is_under_way());
        under_way.count()
    }

    /// Asks all members how their clients fare.
    fn look_around(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        self.looks_so_far += 1;
        let look = self.looks_so_far;
        let members = (0..desk.topology.len()).map(MemberIndex);
        let others = members.filter(|member| *member != desk.me && desk.health.is_up(*member));
        let awaited: BTreeSet<MemberIndex> = others.collect();
        self.look = Some(OpenLook {
            number: look,
            awaited: awaited.clone(),
            seen: ForegroundLook::from([(desk.me, desk.foreground.sum())]),
        });
        let deadline_us = turn.now.mono_us + FOREGROUND_ASK_US;
        for member in awaited {
            let purpose = Purpose::Foreground { look, member };
            desk.ask(turn, member, purpose, Ask::Foreground, deadline_us);
        }
        self.end_look(turn);
    }

    /// A member told its foreground, or did not.
    pub(crate) fn foreground(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        (number, member): (u64, MemberIndex),
        answer: &Answer,
    ) {
        let Some(look) = self.look.as_mut().filter(|look| look.number == number) else {
            return;
        };
        look.awaited.remove(&member);
        if let Answer::Foreground(foreground) = answer {
            look.seen.insert(member, *foreground);
        }
        self.end_look(turn);
        self.go_on(desk, turn);
    }

    fn end_look(&mut self, turn: &Turn<'_>) {
        if let Some(look) = self.look.take_if(|look| look.awaited.is_empty()) {
            self.pace.looked(turn.now.mono_us, look.seen);
        }
    }

    /// Begins a walk of the source that serves most partitions, and says where it is.
    fn begin_walk(&mut self, desk: &Desk, turn: &Turn<'_>) -> Option<usize> {
        let now_us = turn.now.mono_us;
        self.damage.forget(now_us);
        for partition in self.arriving.keys() {
            let of = Sources::of(&desk.layout, desk.me, *partition);
            let old = of.old.map(|old| old.member);
            for source in old.into_iter().chain(of.others).chain(of.former) {
                if !desk.health.is_up(source) {
                    self.away_since_us.entry(source).or_insert(now_us);
                }
            }
        }
        // Those that go on at different places share a walk from the first of these. It is apart
        // from a walk of all records.
        let mut useful: BTreeMap<(MemberIndex, bool), (LoadPlace, Vec<Partition>)> =
            BTreeMap::new();
        let mut is_waiting = false;
        for (partition, arriving) in &self.arriving {
            if arriving.is_told {
                continue;
            }
            let sources = self.sources(desk, *partition, arriving, now_us);
            is_waiting = true;
            for source in sources {
                let start = arriving.start_at(source);
                let walk = useful.entry((source, start.is_begin()));
                let (first, partitions) = walk.or_insert_with(|| (start.clone(), Vec::new()));
                *first = start.min(std::mem::take(first));
                partitions.push(*partition);
            }
        }
        let best = useful
            .into_iter()
            .max_by_key(|(_, (_, partitions))| partitions.len());
        let Some(((source, _), (start, partitions))) = best else {
            if is_waiting && self.walks.is_empty() {
                self.rest(now_us, self.pause_us());
            }
            return None;
        };
        self.walks_so_far += 1;
        let id = WalkId {
            of: Walker::Loader,
            number: self.walks_so_far,
        };
        let walk = SourceWalk::new(id, source, partitions, start.left());
        self.walks.push(walk);
        Some(self.walks.len() - 1)
    }

    /// Members of which a further walk is of use to the partition now.
    fn sources(
        &self,
        desk: &Desk,
        partition: Partition,
        arriving: &Arriving,
        now_us: u64,
    ) -> Vec<MemberIndex> {
        let is_usable = |member: &MemberIndex| {
            desk.health.is_up(*member) && !self.damage.stops(*member, arriving)
        };
        let is_walked_now = |member: &MemberIndex| {
            let mut walks = self.walks.iter();
            walks.any(|walk| walk.source == *member)
        };
        let of = Sources::of(&desk.layout, desk.me, partition);
        if let Some(old) = of.old.map(|old| old.member) {
            if is_usable(&old) {
                return Some(old)
                    .filter(|old| !is_walked_now(old))
                    .into_iter()
                    .collect();
            }
            let away = self.away_since_us.get(&old);
            let is_away_long = away.is_some_and(|since| now_us >= since + self.patience_us);
            if !is_away_long && !self.damage.stops(old, arriving) {
                return Vec::new();
            }
        }
        let serves = |member: &MemberIndex| {
            arriving.is_walked(*member)
                || self.walks.iter().any(|walk| {
                    // In ascending order, since the walk began.
                    walk.source == *member && walk.partitions.binary_search(&partition).is_ok()
                })
        };
        let Some(missing) = self.missing(desk, &of, arriving, serves, now_us) else {
            return Vec::new();
        };
        let others = missing.into_iter().filter(is_usable);
        let others = others.filter(|member| !arriving.is_walked(*member));
        others.filter(|member| !is_walked_now(member)).collect()
    }

    /// See [`Sources::missing`].
    fn missing(
        &self,
        desk: &Desk,
        of: &Sources,
        arriving: &Arriving,
        is_walked: impl Fn(&MemberIndex) -> bool,
        now_us: u64,
    ) -> Option<Vec<MemberIndex>> {
        let is_away_long = |member: &MemberIndex| {
            let away = self.away_since_us.get(member);
            away.is_some_and(|since| now_us >= since + self.patience_us)
        };
        let is_given_up =
            |member: &MemberIndex| is_away_long(member) || self.damage.stops(*member, arriving);
        let is_lost = |member: &MemberIndex| desk.layout.leaves(*member) && is_away_long(member);
        of.missing(is_walked, is_given_up, is_lost)
    }

    /// An answer to a page, or of the own acceptor to a record.
    pub(crate) fn answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        walk: WalkId,
        answer: Answer,
    ) {
        if let Some(under_way) = self.walks.iter_mut().find(|it| it.id == walk) {
            let walked = under_way.answered(desk, turn, answer);
            self.walked(desk, turn, walk, walked);
        }
    }

    /// A record of the page is durable, or could not be written.
    pub(crate) fn wrote(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        walk: WalkId,
        is_written: bool,
    ) {
        if let Some(under_way) = self.walks.iter_mut().find(|it| it.id == walk) {
            let walked = under_way.wrote(desk, turn, is_written);
            self.walked(desk, turn, walk, walked);
        }
    }

    fn walked(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, id: WalkId, walked: Walked) {
        let now_us = turn.now.mono_us;
        let Some(at) = self.walks.iter().position(|walk| walk.id == id) else {
            return;
        };
        match walked {
            Walked::Waits => {}
            Walked::Refused => {
                // Late, full or gone: the next walk may have another source.
                if !desk.health.is_up(self.walks[at].source) {
                    self.walks.remove(at);
                }
                self.rest(now_us, self.pause_us());
            }
            Walked::Unreadable => {
                // What lies in front of the damage has loaded. Other sources have to give what lies
                // there, and from where they get to this one is tried again.
                let walk = self.walks.remove(at);
                let place = LoadPlace::before(&walk.left());
                let until_us = now_us + self.patience_us;
                self.damage.note(walk.source, place, until_us);
                self.go_on(desk, turn);
            }
            Walked::Page {
                bytes,
                is_whole,
                is_last,
            } => {
                self.loaded_bytes += bytes;
                if !is_whole {
                    self.rest(now_us, self.pause_us());
                }
                let took_us = now_us.saturating_sub(self.walks[at].asked_us());
                self.note_place(desk, at);
                if is_last {
                    self.walks.remove(at);
                }
                let rest_us = if desk.is_strained {
                    PACE_REST_US_MAX
                } else {
                    self.pace.rest_us(took_us)
                };
                let pause_us = rest_us.max(self.pay(now_us, bytes));
                if pause_us > 0 {
                    self.rest(now_us, pause_us);
                }
                self.go_on(desk, turn);
            }
        }
    }

    /// How long it must rest after these bytes to keep its limit.
    fn pay(&mut self, now_us: u64, bytes: u64) -> u64 {
        let cost_us = bytes.saturating_mul(1_000_000) / self.bytes_per_second;
        let from_us = now_us.saturating_sub(LOAD_CATCH_UP_US).max(self.paid_us);
        self.paid_us = from_us.saturating_add(cost_us);
        self.paid_us.saturating_sub(now_us)
    }

    /// A page is over: the walk has got further. Partitions whose old owner can be read leave it.
    fn note_place(&mut self, desk: &Desk, at: usize) {
        let source = self.walks[at].source;
        let place = LoadPlace::before(&self.walks[at].left());
        let mut partitions = std::mem::take(&mut self.walks[at].partitions);
        partitions.retain(|partition| {
            let Some(arriving) = self.arriving.get_mut(partition) else {
                return false;
            };
            let of = Sources::of(&desk.layout, desk.me, *partition);
            arriving.reach(source, &place);
            arriving.advance(&of);
            of.old.is_none_or(|OldOwner { member, .. }| {
                let is_usable = desk.health.is_up(member) && !self.damage.stops(member, arriving);
                member == source || !is_usable
            })
        });
        self.walks[at].partitions = partitions;
    }

    /// Tells of each partition that has loaded. Either a walk got further, or a source is given up
    /// that was still to be walked.
    fn tell_loaded(&mut self, desk: &Desk, turn: &mut Turn<'_>) {
        let now_us = turn.now.mono_us;
        let mut partitions = Vec::new();
        let mut all = std::mem::take(&mut self.arriving);
        for (partition, arriving) in all.iter_mut().filter(|(_, it)| !it.is_told) {
            let of = Sources::of(&desk.layout, desk.me, *partition);
            let is_walked = |member: &MemberIndex| arriving.is_walked(*member);
            let missing = || self.missing(desk, &of, arriving, is_walked, now_us);
            arriving.is_told =
                of.old.is_some_and(|old| is_walked(&old.member)) || missing().is_none();
            if arriving.is_told {
                partitions.push(*partition);
            }
        }
        self.arriving = all;
        if !partitions.is_empty() {
            let epoch = desk.layout.epoch();
            turn.effects.push(Effect::Loaded { epoch, partitions });
        }
    }
}
