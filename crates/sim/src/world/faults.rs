//! The faults, and how they end: crashes, restarts, cuts, clocks, disks.
//!
//! ```text
//! running ── crash ──► a disk image ── after a while ──► opened again: a new life, the clock above
//!    └── LostDisk ───► gone for good                      everything that was ever used
//! ```
//!
//! Invariants
//! 1. A crash forgets everything but the disk; an image is drawn once and then is the disk.
//! 2. Bytes are damaged or lost at one member only, and only where two others have copies.
//!
//! Not here: when faults come (`plan/faults.rs`).

use super::names::key_name;
use super::state::{Happening, World};
use crate::check::Rule;
use crate::decider::DeciderSetup;
use crate::member::MemberLoop;
use crate::plan::FaultKind;
use crate::planted::ShellBug;
use crate::process_steward::ProcessSteward;
use crate::store::{Crash, Disk, Store, StoredRange};
use dendra_base::peer::Readiness;
use dendra_base::{Key, Prng};
use dendra_engine::Identity;
use dendra_node::step::Event;
use dendra_node::{Hlc, LookOrder};
use dendra_ownership::limits::{LOAD_BYTES_PER_SECOND_DEFAULT, LOAD_PATIENCE_US_DEFAULT};
use dendra_ownership::{Fence, MemberIndex};
use dendra_watch::ChangeLog;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far a wall clock may be off in the end, in milliseconds. With a ceiling's step for every
/// restart, it is still less than members believe of each other.
const OFFSET_MS_MAX: i64 = 8_000;
/// How long no scrub looks at a block that rots under a horizon, at most.
const ROT_UNSEEN_US: u64 = 20_000_000;

impl World<'_> {
    pub(super) fn fault_begins(&mut self, number: usize) {
        if self.is_calm() {
            return;
        }
        let fault = &self.plan.faults[number];
        let kind = fault.kind.clone();
        self.trace.line(self.schedule.now_us(), || {
            format!("FAULT {number} {kind:?}")
        });
        let length_us = fault.length_us;
        self.schedule.after(length_us, Happening::Over { number });
        match kind {
            FaultKind::PowerCut { member, after } => {
                let store = self.members[member].store.as_mut();
                let is_armed = store.is_some_and(|store| store.arm_power_cut(after));
                if !is_armed {
                    self.crash(member, Crash::PowerLoss, length_us);
                }
            }
            FaultKind::Kill { member } => self.crash(member, Crash::Killed, length_us),
            FaultKind::Blackout => {
                for member in 0..self.members.len() {
                    let more_us = self.prng.below(300_000);
                    self.crash(member, Crash::PowerLoss, length_us + more_us);
                }
            }
            FaultKind::Pause { member } => {
                let until_us = self.now_us() + length_us;
                let it = &mut self.members[member];
                it.paused_until_us = it.paused_until_us.max(until_us);
            }
            FaultKind::Cut { links } => {
                self.cuts.push((number, links));
                self.links_changed();
            }
            FaultKind::Jump { member, by_ms } => {
                self.note_passed();
                let clock = &mut self.members[member].clock;
                clock.offset_ms = (clock.offset_ms + by_ms).clamp(-OFFSET_MS_MAX, OFFSET_MS_MAX);
            }
            FaultKind::WrongClock { member, by_ms } => {
                self.note_passed();
                self.members[member].clock.wrong_ms = by_ms;
            }
            FaultKind::SlowDisk { member, times } => self.members[member].slow_times = times,
            FaultKind::SlowProcessor { member, event_us } => {
                self.members[member].event_us = event_us;
            }
            FaultKind::FailedSync { member } => {
                let store = self.members[member].store.as_mut();
                if !store.is_some_and(Store::fail_next_sync) {
                    self.crash(member, Crash::Killed, length_us);
                }
            }
            FaultKind::FullDisk { member } => self.set_room(member, Some(20_000)),
            FaultKind::FailingReads { member } => self.fail_reads(member, true),
            FaultKind::Rot { draw } => self.rot(draw),
            FaultKind::RotUnderHorizon { draw } => {
                self.members[self.plan.shape.unlucky].rot_under_horizon = Some(draw);
            }
            FaultKind::RotAtSeveral {
                members,
                is_shared,
                draw,
            } => self.rot_at_several(members, is_shared, draw),
            FaultKind::LostDisk => self.lose_disk(length_us),
            FaultKind::Faded { member } => self.fade(member),
            FaultKind::Look {
                member,
                peers,
                bytes_per_second,
            } => self.look(member, peers, bytes_per_second),
        }
    }

    /// Values with an end leave tombstones of their versions at this member, where all owners hold
    /// them.
    fn fade(&mut self, member: usize) {
        for key in 0..self.plan.shape.keys.len() {
            let (owners, name) = (self.owners(key), Key::user(&key_name(key)));
            let held = |owner: &usize| {
                let store = self.members[*owner].store.as_ref()?;
                let cell = store.read(&name).ok().flatten()?;
                cell.expiry_ms.map(|_| cell.id())
            };
            let first = owners.first().and_then(held);
            let is_everywhere = first.is_some() && owners.iter().all(|owner| held(owner) == first);
            if is_everywhere && owners.len() > 1 && owners.contains(&member) {
                let store = self.members[member].store.as_mut();
                store.expect("it was read").fade(&name);
            }
        }
    }

    /// The first loop of a member that runs gets the order, as `crates/server/src/member/agent.rs`
    /// gives it.
    fn look(&mut self, member: usize, peers: u64, bytes_per_second: u64) {
        if self.members[member].lanes.is_empty() {
            return;
        }
        let machines = 0..self.members.len();
        let others = machines.filter(|at| *at != member);
        let others: Vec<usize> = others.filter(|at| peers >> (at % 64) & 1 == 1).collect();
        let known = others.into_iter();
        let known = known
            .filter_map(|at| self.index_at(member, 0, at))
            .collect();
        let order = Some(LookOrder {
            id: self.now_us(),
            peers: known,
            bytes_per_second,
        });
        self.give_later(member, 0, 0, Event::Look { order });
    }

    pub(super) fn fault_ends(&mut self, number: usize) {
        if World::is_isolation(number) {
            self.cuts.retain(|(fault, _)| *fault != number);
            self.links_changed();
            return;
        }
        match self.plan.faults[number].kind {
            FaultKind::Cut { .. } => {
                self.cuts.retain(|(fault, _)| *fault != number);
                self.links_changed();
            }
            FaultKind::WrongClock { member, .. } if !self.is_calm() => {
                self.note_passed();
                self.members[member].clock.wrong_ms = 0;
            }
            FaultKind::SlowDisk { member, .. } => self.members[member].slow_times = 1,
            FaultKind::SlowProcessor { member, .. } => self.members[member].event_us = 0,
            FaultKind::FullDisk { member } => self.set_room(member, None),
            FaultKind::FailingReads { member } => self.fail_reads(member, false),
            _ => {}
        }
    }

    /// Everything that can be mended is: no cut, no slow or full disk, no fault armed.
    pub(super) fn heal_all(&mut self) {
        self.note_passed();
        self.cuts.clear();
        for member in &mut self.members {
            member.slow_times = 1;
            member.event_us = 0;
            member.clock.wrong_ms = 0;
            if let Some(store) = &mut member.store {
                store.heal();
            }
        }
        self.links_changed();
    }

    fn set_room(&mut self, member: usize, bytes: Option<u64>) {
        if let Some(store) = &mut self.members[member].store {
            store.set_room(bytes);
        }
    }

    fn fail_reads(&mut self, member: usize, fails_reads: bool) {
        if let Some(store) = &mut self.members[member].store {
            store.fail_reads(fails_reads);
        }
    }

    /// Two others must have a copy of each write that a majority has acknowledged.
    fn may_lose_bytes(&self) -> bool {
        self.plan.shape.copies >= 3
    }

    fn rot(&mut self, draw: u64) {
        let it = &mut self.members[self.plan.shape.unlucky];
        if self.plan.shape.copies >= 3
            && let Some(store) = &mut it.store
        {
            let (mut prng, was_rotten) = (Prng::new(draw), it.is_rotten);
            for _ in 0..1 + prng.below(6) {
                it.is_rotten |= store.rot(&mut prng);
            }
            if it.is_rotten && !was_rotten {
                self.scrub_later(self.plan.shape.unlucky);
            }
        }
    }

    /// Blocks rot at several members that run. Unless they may share keys, no two of different
    /// members do.
    fn rot_at_several(&mut self, members: usize, is_shared: bool, draw: u64) {
        let mut prng = Prng::new(draw);
        let now_us = self.now_us();
        let mut left = self.cluster();
        let mut taken: Vec<StoredRange> = Vec::new();
        for _ in 0..members.min(left.len()) {
            let member = left.swap_remove(prng.below(left.len() as u64) as usize);
            let it = &mut self.members[member];
            let Some(store) = &mut it.store else {
                continue;
            };
            let may = |range: &StoredRange| {
                let mut others = taken.iter();
                is_shared || !others.any(|other| other.0 <= range.1 && range.0 <= other.1)
            };
            let (count, now_ms) = (1 + prng.below(4), it.clock.now(now_us).wall_ms);
            let rotten = store.rot_between(count, &may, now_ms, &mut prng);
            if !rotten.is_empty() && !std::mem::replace(&mut it.is_rotten, true) {
                self.scrub_later(member);
            }
            taken.extend(rotten);
        }
    }

    /// The horizon is about to rise to `purge` at a member. Scrubs look for the damage later,
    /// behind compactions of the other members.
    pub(super) fn rot_under_horizon(&mut self, member: usize, purge: u64) {
        let it = &mut self.members[member];
        if self.plan.shape.copies >= 3
            && let Some(draw) = it.rot_under_horizon
            && let Some(store) = &mut it.store
            && store.rot_delete(purge, &mut Prng::new(draw))
        {
            it.rot_under_horizon = None;
            let was_rotten = std::mem::replace(&mut it.is_rotten, true);
            if !was_rotten {
                let incarnation = it.incarnation;
                let first = Happening::Scrub {
                    member,
                    incarnation,
                };
                self.schedule.after(draw % ROT_UNSEEN_US, first);
            }
        }
    }

    fn lose_disk(&mut self, down_us: u64) {
        let unlucky = self.plan.shape.unlucky;
        if !self.may_lose_bytes() || !self.members[unlucky].is_running() {
            return;
        }
        self.crash(unlucky, Crash::PowerLoss, down_us);
        if self.has_bug(ShellBug::SameIdentityAfterWipe) {
            self.members[unlucky].disk = Disk::new(self.plan.shape.store)
        } else {
            self.members[unlucky].is_lost = true
        }
    }

    /// A member ends now, and starts again after a while.
    pub(super) fn crash(&mut self, member: usize, how: Crash, down_us: u64) {
        let now_us = self.now_us();
        let it = &mut self.members[member];
        let Some(store) = it.store.take() else {
            return;
        };
        let now_ms = it.clock.now(now_us).wall_ms;
        let in_flight = if it.is_committing || !it.in_flight.is_empty() {
            it.writes_in_flight()
        } else {
            Vec::new()
        };
        let before = std::mem::replace(
            &mut it.disk,
            store.crash(how, &in_flight, now_ms, &mut self.prng),
        );
        it.incarnation += 1;
        it.queue.clear();
        it.in_flight.clear();
        it.covers.clear();
        it.covers_in_flight.clear();
        it.is_committing = false;
        it.links_up.clear();
        it.lost.clear();
        it.knowledge = None;
        it.home = None;
        it.is_dropping = false;
        it.ages.clear();
        self.close_doors(member);
        let ended = &mut self.members[member];
        let lanes = std::mem::take(&mut ended.lanes);
        let incarnation = ended.incarnation;
        if self.has_bug(ShellBug::OldImage) {
            self.members[member].disk = before;
        }
        self.trace
            .line(now_us, || format!("m{member} ends: {how:?}"));
        self.schedule.after(
            down_us,
            Happening::Start {
                member,
                incarnation,
            },
        );
        self.links_changed();
        self.orders_lose(member);
        for lane in lanes {
            self.clients_lose(lane.open.into_iter().collect());
        }
    }

    pub(super) fn identity(&self, member: usize) -> Identity {
        Identity {
            node: member as u128 + 1,
            origin: (member as u32 + 1) << 8,
        }
    }

    /// A member starts, unless it is lost or runs already.
    pub(super) fn start(&mut self, member: usize, incarnation: u64) {
        let now_us = self.now_us();
        let it = &self.members[member];
        if it.is_lost || it.is_running() || it.incarnation != incarnation {
            return;
        }
        let wall_ms = it.clock.now(now_us).wall_ms;
        if !self.is_startable(member) {
            return;
        }
        let origin = self.identity(member).origin;
        let Some(mut store) = self.open_store(member) else {
            return;
        };
        self.check_clock(member, &store);
        let knowledge = if self.has_image() {
            match self.begin_life(member, &mut store, wall_ms) {
                Ok(knowledge) => Some(knowledge),
                Err(why) => return self.does_not_start(member, incarnation, why),
            }
        } else {
            None
        };
        let steward = match self.steward_of(member, &mut store, wall_ms) {
            Ok(steward) => steward,
            Err(why) => {
                let rest = store.crash(Crash::Killed, &[], wall_ms, &mut self.prng);
                self.members[member].disk = rest;
                return self.no_start(member, incarnation, why);
            }
        };
        let claimant = steward
            .as_ref()
            .and_then(|steward| self.claimant(member, steward));
        let floor = if self.has_bug(ShellBug::FloorIgnored) {
            0
        } else {
            store.hlc_floor()
        };
        let hlc = Arc::new(Hlc::new(floor, wall_ms));
        let (layout, me) = match &steward {
            None => (Arc::clone(&self.layout), Some(MemberIndex(member as u8))),
            Some(steward) => {
                let layout = Arc::clone(steward.layout());
                let me = layout.index_of(steward.me().member);
                (layout, me)
            }
        };
        let me = me.expect("a start is one of a member");
        let fence = Arc::new(Fence::at(&layout));
        let planned = self.plan.changes.as_ref();
        let seed = self.prng.next_u64();
        let remembered = self.plan.watches.map_or(0, |watches| watches.changes_bytes);
        let changes = Arc::new(ChangeLog::new(seed, remembered));
        let setup = DeciderSetup {
            changes: Arc::clone(&changes),
            layout: Arc::clone(&layout),
            fence: Arc::clone(&fence),
            me,
            load_bytes_per_second: planned
                .map_or(LOAD_BYTES_PER_SECOND_DEFAULT, |c| c.load_bytes_per_second),
            load_patience_us: planned.map_or(LOAD_PATIENCE_US_DEFAULT, |c| c.load_patience_us),
            origin,
            lanes: self.plan.shape.lanes,
            hlc: Arc::clone(&hlc),
            hint_bytes: self.plan.shape.hint_bytes,
            compare_bytes_per_second: self.plan.shape.compares.map_or(0, |(bytes, _)| bytes),
            compare_pause_us: self.plan.shape.compares.map_or(0, |(_, pause_us)| pause_us),
            seed,
        };
        let deciders = (self.setup.make_deciders)(&setup);
        if self.plan.watches.is_some() {
            self.watchers.changes.insert(member, changes);
        }
        let starting = &mut self.members[member];
        starting.incarnation += 1;
        starting.began_us = now_us;
        starting.store = Some(store);
        starting.knowledge = knowledge;
        starting.lanes = deciders
            .into_iter()
            .map(|decider| MemberLoop {
                decider,
                layout: Arc::clone(&layout),
                adopts_us: 0,
                turn_us: None,
                open: BTreeMap::new(),
                busy_until_us: 0,
                waiting: 0,
                pressed: (Readiness::Ready, false),
                door: None,
            })
            .collect();
        self.open_doors(member);
        let started = &mut self.members[member];
        started.home =
            steward.map(|steward| ProcessSteward::new(steward, fence, Arc::clone(&hlc), origin));
        if let Some(home) = &mut started.home {
            home.claimant = claimant;
        }
        let incarnation_now = started.incarnation;
        self.trace
            .line(now_us, || format!("m{member} starts above {floor:x}"));
        self.asks_members(member);
        self.links_changed();
        if self.members[member].home.is_some() {
            self.raise_horizon(member, &hlc, &layout);
            self.begin_without_links(member);
            self.first_look(member);
            self.resume_losses(member);
        }
        self.begin_tasks(member, incarnation_now);
    }

    /// Begins the work of a process beside its loops: scrubs, and the sweep of its links.
    fn begin_tasks(&mut self, member: usize, incarnation: u64) {
        if self.members[member].is_rotten || self.members[member].is_scrubbed {
            self.scrub_later(member);
        }
        if self.has_image() {
            let first = Happening::Sweep {
                member,
                incarnation,
            };
            self.schedule.after(1, first);
        }
    }

    /// The store on a member's disk; `None` when it does not open, which a healthy one does.
    fn open_store(&mut self, member: usize) -> Option<Store> {
        let identity = self.identity(member);
        let disk = &self.members[member].disk;
        match Store::open(disk, &self.plan.shape, identity) {
            Ok(store) => Some(store),
            Err(reason) => {
                let line = format!("m{member} does not start: {reason}");
                self.trace.line(self.now_us(), || line);
                // Damage that is found at the start is damage that was detected.
                self.members[member].is_lost = true;
                if !self.members[member].is_rotten {
                    self.violate(
                        Rule::Lost,
                        format!("member {member} does not start: {reason}"),
                    );
                }
                None
            }
        }
    }

    /// A peer refuses a folder with a clock that ends before the member's confirmations. That must
    /// not happen to a healthy one.
    fn check_clock(&mut self, member: usize, store: &Store) {
        let it = &self.members[member];
        let (ends, confirmed) = (store.hlc_floor(), it.confirmed);
        let is_let_in = self.has_bug(ShellBug::OldImage)
            || self.has_bug(ShellBug::SameIdentityAfterWipe)
            || self.is_on_image(member);
        if ends < confirmed && !it.is_rotten && !is_let_in {
            self.violate(
                Rule::Lost,
                format!("member {member} confirmed {confirmed:x} and comes back with a clock that ends at {ends:x}"),
            );
        }
    }
}
