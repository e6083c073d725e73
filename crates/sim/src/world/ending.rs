//! The phases of a run, and the demands when everything is well again.
//!
//! ```text
//! Chaos ─► Calm      everything is mended; who is down starts again
//!       ─► Quiet     where members change: every plan ends
//!       ─► Wrong     in some runs: clocks are wrong, members start again
//!       ─► Others    every member does everything: it fails at no member whose clock is right
//!       ─► Right     clocks are right, members start again
//!       ─► Probes    every member does everything: nothing may fail
//!       ─► Images    in some runs: members start again, and one of them on an older image of its disk
//!       ─► Reads     every key is read from all of its owners, three times, and walked over
//!       ─► Rest      nothing happens; then the verdict
//! ```
//!
//! Invariants
//! 1. Availability is demanded of operations that enough living owners can answer, and of no other.
//! 2. While one clock is wrong it is demanded of all others; of reads it is demanded everywhere and
//!    always.
//!
//! Not here: the checkers (`check/`).
//! See: docs/promises.md, promises 4, 6 and 7.

use super::meeting::IMAGES_US;
use super::names::{key_name, value_number};
use super::state::{Happening, Image, RunPhase, RunSetup, SimulatedClient, World};
use super::watches;
use crate::check::linear::{PendingRule, Searches};
use crate::check::losses::TakenLoss;
use crate::check::store::OwnerCopy;
use crate::check::{self, Disks, Rule};
use crate::door::DoorCounts;
use crate::history::{ClientEnd, ClientOp, Promise};
use crate::machines::Town;
use crate::member::{Clock, SimulatedMember};
use crate::passed::PassedTime;
use crate::plan::{
    Fault, FaultKind, KeyClass, PlannedCondition, PlannedKind, PlannedOp, PlannedScan, RunPlan,
};
use crate::schedule::Schedule;
use crate::store::{Crash, Disk, PageRange, Store};
use crate::trace::Trace;
use dendra_base::{Cell, Key, Kind, LeastSuccessor, Prng, Space, Version};
use dendra_node::step::{LostSpan, StoreFailure};
use dendra_ownership::Layout;
use dendra_ownership::topology::{Member as Listed, Topology};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longer than any fault and any restart.
const CALM_US: u64 = 4_000_000;
/// So long behind an overload a member is as it was before. It is longer than the longest calm that
/// ends a line (4 s), and than an operation of the crowd.
const RECOVERED_US: u64 = 6_000_000;
/// Longer than an operation lingers behind its outcome.
const SETTLE_US: u64 = 4_000_000;
/// Longer than the deadline of an operation, the pause between two walks through hints, and a walk.
const HINTED_US: u64 = 16_000_000;
/// Longer than two walks through the hints of a member.
const REST_US: u64 = 25_000_000;
/// Longer than it takes to learn that a clock is wrong, or right again, and than a member is away
/// that starts again.
const CLOCKS_US: u64 = 3_000_000;
/// How long a member is away that starts again beside clocks that are wrong.
const RESTART_US: u64 = 200_000;
/// Clocks that are further apart than members believe, plus the error of the other clocks: their
/// members must not write.
const SURELY_WRONG_MS: u64 = 80_000;
/// The longest time of a probe.
const PROBE_TIMEOUT_US: u64 = 3_000_000;
/// Clients that probe behind an overload.
const PROBING_CLIENTS: usize = 2;
/// How often it is looked whether the clients are done.
const LOOK_US: u64 = 50_000;
/// Keys that are probed, every other one; all are read.
const PROBED_KEYS: usize = 6;
/// Rounds of last reads: a read finds a difference, repairs it behind its answer, and the next one
/// finds none.
const READ_ROUNDS: u8 = 3;

impl<'a> World<'a> {
    pub(super) fn new(plan: &'a RunPlan, setup: RunSetup) -> World<'a> {
        let shape = &plan.shape;
        let listed = (0..shape.members)
            .map(|member| Listed::new(&format!("http://10.0.0.{}:8080", member + 1)))
            .collect::<Result<Vec<_>, _>>()
            .expect("addresses");
        let topology = Topology::new("sim", listed, shape.copies as u8).expect("a small cluster");
        let topology = Arc::new(topology);
        let layout = Arc::new(Layout::of_list(&topology));
        let members = (0..shape.members)
            .map(|member| {
                let clock = Clock::new(member, shape.skew_ms[member], shape.drift_ppm[member]);
                SimulatedMember::new(clock, Disk::new(shape.store))
            })
            .collect();
        World {
            plan,
            setup,
            prng: Prng::named(plan.seed, "world"),
            schedule: Schedule::default(),
            topology,
            layout,
            town: plan
                .changes
                .as_ref()
                .map(|changes| Town::found(plan, changes)),
            members,
            clients: Vec::new(),
            history: Vec::new(),
            forgotten_ops: 0,
            walks: Vec::new(),
            scans: Vec::new(),
            cuts: Vec::new(),
            watchers: watches::watchers(plan),
            phase: RunPhase::Chaos,
            image: plan.image.as_ref().map(|_| Image::new(shape.members)),
            violations: Vec::new(),
            searches: Searches::default(),
            reads_us: u64::MAX,
            wrong_us: (u64::MAX, u64::MAX),
            trace: Trace::new(setup.tracing),
            effects: Vec::new(),
            held: BTreeMap::new(),
            door_counts: DoorCounts::default(),
            answered: 0,
            unanswered_us: 0,
            passed: PassedTime::default(),
            useful_percent: None,
        }
    }

    pub(super) fn begin(&mut self) {
        for member in 0..self.members.len() {
            self.start(member, 0);
        }
        self.plan_deeds();
        self.plan_loss();
        for (number, fault) in self.plan.faults.iter().enumerate() {
            self.schedule.at(fault.at_us, Happening::Fault { number });
        }
        let plan = self.plan;
        if let Some(image) = &plan.image {
            self.schedule.at(image.taken_us, Happening::Image);
        }
        self.begin_watches();
        for planned in &plan.scans {
            self.plan_scan(planned.clone());
        }
        for (client, todo) in self.plan.clients.iter().enumerate() {
            let think_us = todo.first().map_or(0, |first| first.think_us);
            self.clients.push(SimulatedClient::new(todo));
            self.schedule.at(think_us, Happening::Begin { client });
        }
        let habits = plan.overload.iter().flat_map(|it| &it.habits);
        for (number, habit) in habits.enumerate() {
            let client = self.clients.len();
            let prng = Prng::named(plan.seed, &format!("habit {number}"));
            self.clients.push(SimulatedClient {
                habit: Some((number, prng)),
                ..SimulatedClient::default()
            });
            self.schedule.at(habit.from_us, Happening::Begin { client });
        }
        self.schedule
            .at(self.plan.shape.chaos_us, Happening::Phase(RunPhase::Calm));
    }

    pub(super) fn is_calm(&self) -> bool {
        self.phase != RunPhase::Chaos
    }

    pub(super) fn enter(&mut self, phase: RunPhase) {
        let is_busy = self
            .clients
            .iter()
            .any(|c| c.waits_for.is_some() || !c.todo.is_empty());
        if is_busy && phase != RunPhase::Calm {
            self.schedule.after(LOOK_US, Happening::Phase(phase));
            return;
        }
        self.phase = phase;
        self.trace
            .line(self.schedule.now_us(), || format!("PHASE {phase:?}"));
        let (next, after_us) = match phase {
            RunPhase::Chaos | RunPhase::Calm => {
                self.clients
                    .iter_mut()
                    .for_each(|client| client.todo.clear());
                self.heal_all();
                self.calm_town();
                match self.plan.wrong_clocks {
                    Some(_) => (RunPhase::Wrong, CALM_US),
                    None if self.town.is_some() => (RunPhase::Quiet, CALM_US),
                    None if self.plan.overload.is_some() => (RunPhase::Probes, RECOVERED_US),
                    None => (RunPhase::Probes, CALM_US),
                }
            }
            RunPhase::Quiet if self.is_town_at_rest() => (RunPhase::Probes, CALM_US),
            RunPhase::Quiet => (RunPhase::Quiet, LOOK_US),
            RunPhase::Wrong if self.has_ill_member() => (RunPhase::Probes, 1),
            RunPhase::Wrong => {
                self.set_clocks();
                (RunPhase::Others, CLOCKS_US)
            }
            RunPhase::Others => {
                self.probe();
                (RunPhase::Right, LOOK_US)
            }
            RunPhase::Right => {
                self.set_clocks();
                (RunPhase::Probes, CLOCKS_US)
            }
            RunPhase::Probes => {
                self.judge_recovered();
                self.crowd_leaves();
                self.judge_goodput();
                self.probe();
                if self.has_image() {
                    (RunPhase::Images, LOOK_US)
                } else {
                    (RunPhase::Settle, LOOK_US)
                }
            }
            RunPhase::Images if self.has_ill_member() => (RunPhase::Settle, 1),
            RunPhase::Images => {
                self.begin_images();
                (RunPhase::Settle, IMAGES_US)
            }
            RunPhase::Settle => (RunPhase::Reads(0), HINTED_US),
            RunPhase::Reads(round) => {
                if round == 0 {
                    self.reads_us = self.now_us();
                    self.judge_hinted();
                    self.judge_compared();
                    self.judge_hint_rooms();
                    self.walk_everything();
                }
                self.read_everything();
                if round + 1 < READ_ROUNDS {
                    (RunPhase::Reads(round + 1), SETTLE_US)
                } else {
                    (RunPhase::Rest, SETTLE_US)
                }
            }
            RunPhase::Rest => {
                self.judge_watches();
                (RunPhase::Over, REST_US)
            }
            RunPhase::Over => return,
        };
        self.schedule.after(after_us, Happening::Phase(next));
    }

    /// Is a member down for good, or damaged? A wrong clock beside that would be a second failure.
    fn has_ill_member(&self) -> bool {
        let is_ill = |member: &SimulatedMember| !member.is_running() || member.is_rotten;
        self.cluster().iter().any(|&at| is_ill(&self.members[at]))
    }

    /// Clocks become wrong, or right again, and some members start anew.
    fn set_clocks(&mut self) {
        let plan = self.plan;
        let Some(wrong) = plan.wrong_clocks.as_ref() else {
            return;
        };
        let is_begin = self.phase == RunPhase::Wrong;
        let now_us = self.now_us();
        if is_begin {
            self.wrong_us.0 = now_us
        } else {
            self.wrong_us.1 = now_us
        }
        let restarts = if is_begin {
            wrong.restarts
        } else {
            wrong.restarts_after
        };
        for (member, by_ms) in wrong.by_ms.iter().enumerate() {
            self.members[member].clock.wrong_ms = if is_begin { *by_ms } else { 0 };
            if restarts >> member & 1 == 1 {
                self.crash(member, Crash::Killed, RESTART_US);
            }
        }
    }

    /// Was the clock of the member that was asked wrong, or those of so many that none is right for
    /// certain?
    fn is_without_clock(&self, op: &ClientOp) -> bool {
        let (begun_us, ended_us) = self.wrong_us;
        let Some(wrong) = self.plan.wrong_clocks.as_ref() else {
            return false;
        };
        let is_then = op.begun_us >= begun_us && op.begun_us < ended_us;
        is_then && (wrong.by_ms[op.member] != 0 || wrong.members().count() > 1)
    }

    /// A member with a clock that is surely wrong writes no record, at any level.
    fn judge_wrong_clocks(&mut self) {
        let Some(wrong) = self.plan.wrong_clocks.as_ref() else {
            return;
        };
        let is_surely = |op: &&ClientOp| {
            let by_ms = wrong.by_ms[op.member].unsigned_abs();
            wrong.members().count() == 1 && by_ms >= SURELY_WRONG_MS
        };
        let (begun_us, ended_us) = self.wrong_us;
        let written = self.history.iter().filter(is_surely).find(|op| {
            let is_then = op.begun_us >= begun_us && op.begun_us < ended_us;
            is_then && op.wish.is_write() && op.end != ClientEnd::NotApplied
        });
        if let Some(op) = written {
            let what = format!("the clock is wrong, and {op:?}");
            self.violate(Rule::WrongClock, what);
        }
    }

    fn plan_probe(
        &mut self,
        key: usize,
        kind: PlannedKind,
        base: PlannedCondition,
        quorum: Option<(u8, u8)>,
        member: usize,
    ) {
        // As many as pass the narrowest gate at once.
        let probing = match self.plan.overload {
            Some(_) => PROBING_CLIENTS.min(self.clients.len()),
            None => self.clients.len(),
        };
        let client = key % probing;
        self.clients[client].todo.push_back(PlannedOp {
            base,
            quorum,
            think_us: 500,
            timeout_us: PROBE_TIMEOUT_US,
            value_bytes: 12,
            ..PlannedOp::plain(key, kind, member)
        });
        self.schedule.after(1, Happening::Begin { client });
    }

    fn probe(&mut self) {
        let keys = self.plan.shape.keys.clone();
        for (key, class) in keys.iter().enumerate().step_by(2).take(PROBED_KEYS) {
            for member in self.cluster() {
                if !self.members[member].is_running() {
                    continue;
                }
                self.plan_probe(key, PlannedKind::Get, PlannedCondition::Any, None, member);
                self.plan_probe(key, PlannedKind::Put, PlannedCondition::Any, None, member);
                if *class == KeyClass::Strong {
                    self.plan_probe(
                        key,
                        PlannedKind::Put,
                        PlannedCondition::MatchesLast,
                        None,
                        member,
                    );
                    self.plan_probe(
                        key,
                        PlannedKind::Delete,
                        PlannedCondition::Present,
                        None,
                        member,
                    );
                }
                self.plan_probe(key, PlannedKind::Get, PlannedCondition::Any, None, member);
            }
        }
    }

    /// Every key from as many owners as it has, where all of them live.
    fn read_everything(&mut self) {
        for key in 0..self.plan.shape.keys.len() {
            let from = self.copies_of(key);
            let cluster = self.cluster();
            let is_whole = !cluster.iter().any(|&at| self.members[at].is_lost);
            let quorum = is_whole.then_some((from, from));
            let running: Vec<usize> = cluster
                .into_iter()
                .filter(|&member| self.members[member].is_running())
                .collect();
            if running.is_empty() {
                return;
            }
            let member = running[self.prng.below(running.len() as u64) as usize];
            self.plan_probe(key, PlannedKind::Get, PlannedCondition::Any, quorum, member);
        }
    }

    /// All keys, both ways, where the plan has walks at all.
    fn walk_everything(&mut self) {
        if self.plan.scans.is_empty() {
            return;
        }
        for is_reverse in [false, true] {
            let planned = PlannedScan {
                at_us: self.now_us(),
                member: self.any_member(),
                start: 0,
                end: None,
                is_reverse,
                bytes: 100,
                timeout_us: PROBE_TIMEOUT_US,
            };
            self.plan_scan(planned);
        }
    }

    fn any_member(&mut self) -> usize {
        let cluster = self.cluster();
        cluster[self.prng.below(cluster.len() as u64) as usize]
    }

    /// On how many owners an operation may have put copies of the key.
    fn copies_of(&self, key: usize) -> u8 {
        match self.plan.shape.keys[key] {
            KeyClass::Weak => self.members.len() as u8,
            KeyClass::Strong | KeyClass::Fleeting => self.newest().topology().copies(),
        }
    }

    pub(super) fn owners(&self, key: usize) -> Vec<usize> {
        let layout = self.newest();
        self.owners_in(layout, layout.ring().partition(&key_name(key)))
    }

    /// The promises that the stores and the histories show in the end.
    pub(super) fn check_promises(&mut self) {
        let losses = self.town.as_ref().map(|town| town.loss.taken.clone());
        let losses = losses.unwrap_or_default();
        let parts = check::losses::parts(&self.history, &losses);
        let parts: Vec<&[ClientOp]> = parts.iter().map(|part| &**part).collect();
        if self.violations.is_empty() {
            let factor = self.newest().topology().copies();
            let has_fallen = usize::from(factor) < self.plan.shape.copies;
            let factor = if has_fallen { factor } else { u8::MAX };
            let (all, disks) = (parts.iter(), self.disks());
            let leasts = self.town.as_ref().map(Town::leasts);
            let leasts = leasts.unwrap_or_else(|| vec![LeastSuccessor::default()]);
            let found =
                all.flat_map(|part| check::versions::check_changed(part, disks, factor, &leasts));
            let found: Vec<check::Violation> = found.collect();
            self.violations.extend(found);
        }
        if self.violations.is_empty() {
            let keys = self.plan.shape.keys.len();
            let found = check::scans::check(parts[0], &self.scans, keys, key_name);
            self.violations.extend(found);
        }
        if self.violations.is_empty() {
            let pending = self.pending();
            for part in parts {
                let (found, searches) = check::linear::check(part, pending);
                self.violations.extend(found);
                self.searches.add(searches);
            }
        }
        if self.phase == RunPhase::Over && self.violations.is_empty() {
            self.judge_availability();
            self.judge_wrong_clocks();
            self.judge_scans();
            self.judge_stores();
            self.judge_leftovers();
            self.judge_damage();
            self.judge_surplus();
            self.judge_looks();
        }
        for violation in &self.violations {
            self.trace
                .line(self.schedule.now_us(), || format!("VIOLATION {violation}"));
        }
    }

    /// One log is one order: a write that it did not take before the next one is never taken.
    fn pending(&self) -> PendingRule {
        match self.plan.shape.members {
            // A loop may begin a request whose client has given up.
            1 if self.plan.overload.is_none() => PendingRule::EndsWhenReplaced,
            _ => PendingRule::StaysOpen,
        }
    }

    fn judge_availability(&mut self) {
        let calm_us = self.plan.shape.chaos_us + CALM_US;
        let failed: Vec<ClientOp> = self
            .history
            .iter()
            .filter(|op| op.begun_us >= calm_us && !op.is_done())
            .filter(|op| !op.wish.is_write() || !self.is_without_clock(op))
            // A record of fewer copies than usual may have lost the majority of them.
            .filter(|op| self.plan.shape.keys[op.key] != KeyClass::Weak)
            .cloned()
            .collect();
        for op in failed {
            let owners = &self.owners(op.key)[..usize::from(op.from)];
            let runs = |owner: &&usize| self.members[**owner].is_running();
            let is_rotten = |owner: &&usize| self.members[**owner].is_rotten;
            let rotten = owners.iter().filter(runs).filter(is_rotten).count();
            let mut healthy = owners.iter().filter(runs).count() - rotten;
            if self.is_mendable(&op, healthy) {
                healthy += rotten;
            }
            if healthy >= usize::from(op.ack) {
                self.violate(
                    Rule::NotAvailable,
                    format!("{healthy} owners are well, and {op:?}"),
                );
            }
        }
    }

    /// Do so many owners with a whole copy tell a read the content of a damaged one? They know for
    /// certain only for a record that was written at the default level. A map takes a write over
    /// damage; the engine does only when it need not read the damaged block again.
    fn is_mendable(&self, op: &ClientOp, healthy: usize) -> bool {
        let is_known = self.history.iter().any(|write| {
            let is_written = matches!(write.end, ClientEnd::Written(_));
            write.key == op.key && is_written && write.ended_us < op.begun_us
        });
        let from = usize::from(op.from);
        let is_read = !op.wish.is_write() && op.promise == Promise::Linearizable;
        is_read && is_known && !self.is_engine() && healthy + (from / 2 + 1) > from
    }

    /// A healthy cluster shows all of a range. Damage at several members in different keys hides
    /// nothing of it.
    fn judge_scans(&mut self) {
        let is_apart = |fault: &Fault| {
            matches!(
                fault.kind,
                FaultKind::RotAtSeveral {
                    is_shared: false,
                    ..
                }
            )
        };
        let runs = |at: &usize| self.members[*at].is_running();
        let is_apart = self.plan.faults.iter().any(is_apart) && self.cluster().iter().all(runs);
        if self.has_ill_member() && !is_apart {
            return;
        }
        let reads_us = self.reads_us;
        let late = self.scans.iter().filter_map(|scan| {
            let first = scan.pages.first()?;
            let last = scan.pages.last()?;
            let is_whole = last.is_complete && last.rest.is_none();
            (first.asked_us >= reads_us && !is_whole).then(|| format!("{scan:?}"))
        });
        let stopped: Vec<String> = late.collect();
        let shown = self.scans.iter().rev().take(2);
        let is_silent =
            !self.plan.scans.is_empty() && shown.into_iter().any(|s| s.pages.is_empty());
        for what in stopped {
            self.violate(Rule::NotAvailable, what);
        }
        if is_silent {
            self.violate(Rule::NotAvailable, "a walk at a healthy member has no page");
        }
    }

    /// The copies of these owners as readers see them. A delete that one owner may have purged and
    /// another may not is at both: a further owner may have it with a later age.
    fn copies_as_shown(&self, owners: impl Iterator<Item = usize>, key: usize) -> Vec<OwnerCopy> {
        let owners: Vec<usize> = owners.collect();
        let shown = |owner: &usize| self.copy_as_shown(*owner, key);
        let mut copies: Vec<OwnerCopy> = owners.iter().map(shown).collect();
        let purged = owners.iter().map(|&owner| self.purged(owner, key));
        check::store::before_purges(&mut copies, &purged.collect::<Vec<_>>());
        copies
    }

    /// The version of the delete that this owner has stored last, if the horizons let it go.
    fn purged(&self, member: usize, key: usize) -> Option<Version> {
        let delete = self.members[member]
            .deletes
            .get(&Key::user(&key_name(key)))?;
        let copies = self.newest().copies_to_forget();
        let may_go = self.newest().horizons().forgets_delete(delete, copies);
        may_go.then_some(delete.version)
    }

    /// The copy as readers see it: a value behind its end is no value any more, whether a table has
    /// kept it or not.
    fn copy_as_shown(&self, member: usize, key: usize) -> OwnerCopy {
        let now_us = self.now_us();
        let walls = self.members.iter().map(|m| m.clock.now(now_us).wall_ms);
        let wall_ms = walls.max().unwrap_or(0);
        let store = self.members[member].store.as_ref();
        let cell = store.map(|store| store.read(&Key::user(&key_name(key))));
        let horizons = self.newest().horizons();
        let replicas = self.newest().copies_to_forget();
        match cell {
            // Another owner may have purged it.
            Some(Ok(Some(cell))) if horizons.forgets(&cell.as_ref(), replicas, wall_ms) => {
                OwnerCopy::Nothing
            }
            Some(Ok(Some(cell))) if !cell.as_ref().is_live(wall_ms) => {
                OwnerCopy::Cell(cell.version, None)
            }
            _ => self.copy(member, key),
        }
    }

    /// Is the copy damaged for good? It holds a newer version than all others, which no client was
    /// ever told of. The others' cells cannot be written over it.
    fn is_beyond_repair(&self, owner: usize, key: usize, newest: Option<Version>) -> bool {
        let store = self.members[owner].store.as_ref();
        let hidden = store.and_then(|store| store.hidden_version(&Key::user(&key_name(key))));
        hidden.is_some() && hidden > newest
    }

    pub(super) fn copy(&self, member: usize, key: usize) -> OwnerCopy {
        let Some(store) = &self.members[member].store else {
            return OwnerCopy::Gone;
        };
        match store.read(&Key::user(&key_name(key))) {
            Ok(None) => OwnerCopy::Nothing,
            Ok(Some(cell)) if cell.kind == Kind::Tombstone => OwnerCopy::Cell(cell.version, None),
            Ok(Some(cell)) => match value_number(&cell.value) {
                Some(value) => OwnerCopy::Cell(cell.version, Some(value)),
                None => OwnerCopy::Damaged,
            },
            Err(StoreFailure::Damaged) => OwnerCopy::Damaged,
            Err(_) => OwnerCopy::Gone,
        }
    }

    /// How many copies the newest cell of a key says it has.
    fn copies_wanted(&self, owners: &[usize], key: usize) -> usize {
        let key = Key::user(&key_name(key));
        let stores = owners
            .iter()
            .filter_map(|&owner| self.members[owner].store.as_ref());
        let cells = stores.filter_map(|store| store.read(&key).ok().flatten());
        // An owner beyond the replication factor may have it with more copies than written.
        let newest = cells.max_by_key(|cell| (cell.version, Reverse(cell.copies)));
        let copies = newest.map_or(1, |cell| usize::from(cell.copies));
        match self.town {
            // The table may have fewer now.
            Some(_) => copies.min(usize::from(self.newest().topology().copies())),
            None => copies,
        }
    }

    fn judge_stores(&mut self) {
        let purge = self.newest().horizons().purge();
        let is_spoilt =
            |member: &SimulatedMember| member.is_lost || (member.is_rotten && self.is_engine());
        let cluster = self.cluster();
        let is_whole = !cluster.iter().any(|&at| is_spoilt(&self.members[at]));
        for key in 0..self.plan.shape.keys.len() {
            let owners = self.owners(key);
            let copies: Vec<OwnerCopy> =
                owners.iter().map(|&owner| self.copy(owner, key)).collect();
            let taken = self.town.iter().flat_map(|town| &town.loss.taken);
            let taken: Vec<TakenLoss> = taken.filter(|loss| loss.key == key).cloned().collect();
            let behind = check::losses::behind_all(&self.history, key, &taken);
            let ops: Vec<&ClientOp> = behind.iter().map(|op| &**op).collect();
            let mut found = check::store::check_key_above(purge, key, &copies, &ops, self.disks());
            let was_read = ops.iter().any(|op| {
                let is_last = op.begun_us >= self.reads_us && op.ack == op.from;
                is_last && matches!(op.end, ClientEnd::Found(_) | ClientEnd::Missing(_))
            });
            if is_whole && was_read {
                // A record of so many copies belongs on so many owners, and on no other.
                let wanted = &owners[..self.copies_wanted(&owners, key)];
                let newest = copies.iter().filter_map(|copy| copy.version()).max();
                let mended = wanted
                    .iter()
                    .filter(|&&owner| !self.is_beyond_repair(owner, key, newest));
                let shown = self.copies_as_shown(mended.copied(), key);
                found.extend(check::store::check_convergence(key, &shown));
            }
            self.violations.extend(found);
        }
    }

    fn disks(&self) -> Disks {
        let is_unread = |fault: &Fault| matches!(fault.kind, FaultKind::FailingReads { .. });
        let is_met = self.plan.faults.iter().any(is_unread);
        let is_spoilt =
            |member: &SimulatedMember| member.is_rotten || (self.town.is_some() && member.is_lost);
        if is_met || self.members.iter().any(is_spoilt) {
            Disks::Damaged
        } else {
            Disks::Whole
        }
    }

    fn is_engine(&self) -> bool {
        self.plan.shape.store == crate::plan::StoreKind::Engine
    }

    /// The member's own count of its hints, while it runs.
    fn counted(&self, member: usize) -> Option<(u64, u64)> {
        self.members[member].lanes.first()?.decider.hints()
    }

    /// Before any client reads. An acknowledged write, or a newer one, is on all of its owners, by
    /// itself or by hint. It holds where its member has kept running since and has dropped no hint.
    /// Its own copy gets no hint.
    fn judge_hinted(&mut self) {
        let is_spoilt = |member: &SimulatedMember| member.is_lost || member.is_rotten;
        // New owners load only the records that a majority has.
        if self.members.iter().any(is_spoilt) || self.town.is_some() {
            return;
        }
        let copies: Vec<Vec<(usize, OwnerCopy)>> = (0..self.plan.shape.keys.len())
            .map(|key| {
                let owners = self.owners(key).into_iter();
                owners.map(|owner| (owner, self.copy(owner, key))).collect()
            })
            .collect();
        let behind = self.history.iter().find_map(|op| {
            let ClientEnd::Written(version) = op.end else {
                return None;
            };
            let is_same_life = self.members[op.member].began_us < op.begun_us;
            let (_, dropped) = self.counted(op.member).filter(|_| is_same_life)?;
            let mut addressed = copies[op.key].iter().take(usize::from(op.from));
            let (owner, copy) = addressed.find(|(owner, copy)| {
                *owner != op.member && dropped == 0 && copy.version() < Some(version)
            })?;
            Some(format!("m{owner} has {copy:?}, although {op:?}"))
        });
        if let Some(what) = behind {
            self.violate(Rule::Diverged, what);
        }
    }

    /// Before any client reads: members that compare their copies have made them alike, promises
    /// included, and know it.
    fn judge_compared(&mut self) {
        let is_spoilt = |member: &SimulatedMember| member.is_rotten || !member.is_running();
        let cluster = self.cluster();
        let is_ill = cluster.iter().any(|&at| is_spoilt(&self.members[at]));
        if self.plan.shape.compares.is_none() || is_ill {
            return;
        }
        let mut found = Vec::new();
        for key in 0..self.plan.shape.keys.len() {
            let owners = self.owners(key);
            let wanted = &owners[..self.copies_wanted(&owners, key)];
            let copies = self.copies_as_shown(wanted.iter().copied(), key);
            found.extend(check::store::check_convergence(key, &copies));
            let promised: Vec<Option<Vec<u8>>> = owners
                [..usize::from(self.newest().topology().copies())]
                .iter()
                .map(|&owner| self.promised(owner, key))
                .collect();
            if promised.iter().any(|promise| *promise != promised[0]) {
                let what = format!("promises for key {key}: {promised:?}");
                found.push(check::Violation::new(Rule::Diverged, what));
            }
        }
        let now_us = self.now_us();
        for (member, peer) in self.pairs() {
            let now = self.members[member].clock.now(now_us);
            let lane = self.members[member].lanes.first();
            let compared_us = lane.and_then(|lane| {
                let peer = self.index_at(member, 0, peer)?;
                lane.decider.compared_us(peer)
            });
            if compared_us.is_none_or(|at_us| at_us + HINTED_US < now.mono_us) {
                let what = format!("m{member} and m{peer} compared all last at {compared_us:?}");
                found.push(check::Violation::new(Rule::Diverged, what));
            }
        }
        self.violations.extend(found);
    }

    /// A look compares, and is no comparison: it repairs no record, so no horizon may count on it.
    fn judge_looks(&mut self) {
        let mut faults = self.plan.faults.iter();
        let has_looks = faults.any(|fault| matches!(fault.kind, FaultKind::Look { .. }));
        if !has_looks || self.plan.shape.compares.is_some() {
            return;
        }
        for (member, peer) in self.pairs() {
            let Some(lane) = self.members[member].lanes.first() else {
                continue;
            };
            let Some(place) = self.index_at(member, 0, peer) else {
                continue;
            };
            let found = (lane.decider.compared_us(place), lane.decider.repairs(place));
            if found != (None, 0) {
                let what =
                    format!("m{member} counts a look at {place:?}: full, repairs: {found:?}");
                self.violate(Rule::Diverged, what);
            }
        }
    }

    /// Bytes that were read to compare them in the last life of each member.
    pub(super) fn compared_bytes(&self) -> u64 {
        let lanes = self
            .members
            .iter()
            .filter_map(|member| member.lanes.first());
        lanes.map(|lane| lane.decider.compared_bytes()).sum()
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        let all = self.cluster();
        let pairs = all.iter().flat_map(|&a| all.iter().map(move |&b| (a, b)));
        pairs.filter(|(a, b)| a != b).collect()
    }

    /// The ballot that an owner has promised for a key, as it is stored.
    fn promised(&self, member: usize, key: usize) -> Option<Vec<u8>> {
        let key = Key::new(Space::Protocol, &key_name(key));
        let record = self.members[member].store.as_ref()?.read(&key).ok()??;
        if record.as_ref().age() <= self.newest().horizons().purge() {
            return None;
        }
        record.value.get(1..13).map(<[u8]>::to_vec)
    }

    /// Hints that a member still keeps, and their bytes; `None` when damage hides some: then the
    /// member cannot count them either, and delivers none before that is mended.
    fn hints(&self, member: usize) -> Option<(usize, u64)> {
        let range = PageRange {
            start: Key::new(Space::Hint, b""),
            end: None,
            is_reverse: false,
            bytes: u32::MAX,
        };
        let page = self.members[member].store.as_ref()?.page(&range).ok();
        let (records, _) = page.filter(|(_, next)| next.is_none())?;
        let kept = records.iter().filter(|(_, cell)| cell.kind == Kind::Value);
        let size = |(key, cell): &(Key, Cell)| key.as_stored().len() + cell.as_ref().encoded_len();
        Some((kept.clone().count(), kept.map(size).sum::<usize>() as u64))
    }

    /// No message is on its way: a member counts the hints that it has, and has no more than it
    /// may.
    fn judge_hint_rooms(&mut self) {
        for member in self.cluster() {
            let (counted, kept) = (self.counted(member), self.hints(member));
            let (Some((counted, _)), Some((_, stored))) = (counted, kept) else {
                continue;
            };
            let is_counted = counted == stored && stored <= self.plan.shape.hint_bytes;
            if !is_counted && !self.members[member].is_rotten {
                let what = format!("m{member} counts {counted} bytes of hints and has {stored}");
                self.violate(Rule::Leak, what);
            }
        }
    }

    /// Where enough other owners live, no damage stays, behind a horizon either. A block may stay
    /// damaged while another member has lost keys between the same ones.
    fn judge_damage(&mut self) {
        let cluster = self.cluster();
        if !cluster.iter().all(|&at| self.members[at].is_running()) {
            return;
        }
        let lost = cluster.iter().flat_map(|&at| {
            let spans = self.members[at].store.as_ref().map(Store::lost_spans);
            spans
                .unwrap_or_default()
                .into_iter()
                .map(move |span| (at, span))
        });
        let lost: Vec<(usize, LostSpan)> = lost.collect();
        let is_shared = |(member, span): &(usize, LostSpan)| {
            let mut others = lost.iter().filter(|(other, _)| other != member);
            others.any(|(_, other)| other.first <= span.last && span.first <= other.last)
        };
        if self.may_share_damage() && !lost.is_empty() {
            if let Some((member, span)) = lost.iter().find(|span| !is_shared(span)) {
                let what = format!("m{member}: no other member lacks any of {span:?}");
                self.violate(Rule::DamageLeft, what);
            }
            return;
        }
        for member in cluster {
            let store = self.members[member].store.as_ref();
            if let Some(left) = store.and_then(Store::damage_left) {
                self.violate(Rule::DamageLeft, format!("m{member}: {left}"));
            }
        }
    }

    /// Did blocks of several members rot that may lie between the same keys?
    fn may_share_damage(&self) -> bool {
        let mut kinds = self.plan.faults.iter().map(|fault| &fault.kind);
        kinds.any(|it| matches!(it, FaultKind::RotAtSeveral { is_shared, .. } if *is_shared))
    }

    fn judge_leftovers(&mut self) {
        self.judge_hint_rooms();
        self.judge_doors();
        // Hints for a member that never comes back stay.
        let cluster = self.cluster();
        let is_whole = !cluster.iter().any(|&at| self.members[at].is_lost);
        for member in cluster {
            let hints = self.hints(member).map_or(0, |(hints, _)| hints);
            // A damaged block may hide whether a hint is still the one that was delivered.
            let is_stuck = self.members[member].is_rotten && self.is_engine();
            if is_whole && hints > 0 && !is_stuck {
                self.violate(Rule::Leak, format!("{hints} hints are left at m{member}"));
            }
            for lane in 0..self.members[member].lanes.len() {
                let it = &self.members[member].lanes[lane];
                let open = it.open.values().filter(|open| !open.is_gone).count();
                let leftovers = it.decider.leftovers().filter(|_| is_whole);
                if open > 0 {
                    self.violate(
                        Rule::Leak,
                        format!("{open} operations are open at m{member}.{lane}"),
                    );
                } else if let Some(leftovers) = leftovers {
                    self.violate(
                        Rule::Leak,
                        format!("m{member}.{lane} still holds {leftovers}"),
                    );
                }
            }
        }
    }
}
