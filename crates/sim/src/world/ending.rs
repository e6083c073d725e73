//! The phases of a run, and what is demanded when everything is well again.
//!
//! ```text
//! Chaos ─► Calm      everything is mended; who is down starts again
//!       ─► Probes    every member does everything: nothing may fail
//!       ─► Reads     every key is read from all of its owners, three times
//!       ─► Rest      nothing happens; then the verdict
//! ```
//!
//! Invariants
//! 1. Availability is demanded of operations that enough living owners can answer, and of no other.
//!
//! Not here: the checkers (`check/`).
//! See: docs/consistency.md, promises 4, 6 and 7.

use super::clients::{Client, key_name, value_number};
use super::{Happening, World};
use crate::check::linear::Pending;
use crate::check::store::Copy;
use crate::check::{self, Rule};
use crate::history::{End, Op, Promise};
use crate::member::{Clock, Member};
use crate::plan::{KeyClass, Plan, Planned, PlannedBase, PlannedKind};
use crate::schedule::Schedule;
use crate::store::{Disk, PageRange};
use crate::trace::Trace;
use crate::world::Setup;
use dendra_base::{Key, Kind, Prng, Space};
use dendra_node::ring::Ring;
use dendra_node::step::StoreFailure;
use dendra_node::topology::{Member as Listed, Topology};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longer than any fault and any restart.
const CALM_US: u64 = 4_000_000;
/// Longer than an operation lingers behind its outcome.
const SETTLE_US: u64 = 4_000_000;
/// Longer than the deadline of an operation, the pause between two walks through hints, and a walk.
const HINTED_US: u64 = 16_000_000;
/// Longer than two walks through the hints of a member.
const REST_US: u64 = 25_000_000;
/// What a probe may take.
const PROBE_TIMEOUT_US: u64 = 3_000_000;
/// How often it is looked whether the clients are done.
const LOOK_US: u64 = 50_000;
/// Is an owner brought up that a read saw to be behind?
const IS_REPAIRED_BY_READS: bool = false;
/// Room that no run fills.
const HINT_BYTES_PLENTY: u64 = 1 << 20;
/// Keys that are probed, every other one; all are read.
const PROBED_KEYS: usize = 6;
/// Rounds of last reads: a read finds a difference, repairs it behind its answer, and the next one
/// finds none.
const READ_ROUNDS: u8 = 3;

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Chaos,
    Calm,
    Probes,
    Settle,
    Reads(u8),
    Rest,
    Over,
}

impl<'a> World<'a> {
    pub(super) fn new(plan: &'a Plan, setup: Setup) -> World<'a> {
        let shape = &plan.shape;
        let listed = (0..shape.members)
            .map(|member| Listed::new(&format!("http://10.0.0.{}:8080", member + 1)))
            .collect::<Result<Vec<_>, _>>()
            .expect("addresses");
        let topology = Topology::new("sim", listed, shape.copies as u8).expect("a small cluster");
        let ring = Arc::new(Ring::new(&topology));
        let members = (0..shape.members)
            .map(|member| Member {
                clock: Clock::new(member, shape.skew_ms[member], shape.drift_ppm[member]),
                incarnation: 0,
                disk: Disk::new(shape.store),
                store: None,
                lanes: Vec::new(),
                queue: Vec::new(),
                in_flight: Vec::new(),
                covers: Vec::new(),
                covers_in_flight: Vec::new(),
                is_committing: false,
                paused_until_us: 0,
                slow_times: 1,
                is_lost: false,
                is_rotten: false,
                links_up: 0,
                ages: BTreeMap::new(),
                began_us: 0,
            })
            .collect();
        World {
            plan,
            setup,
            prng: Prng::named(plan.seed, "world"),
            schedule: Schedule::default(),
            topology: Arc::new(topology),
            ring,
            members,
            clients: Vec::new(),
            history: Vec::new(),
            cuts: Vec::new(),
            phase: Phase::Chaos,
            violations: Vec::new(),
            trace: Trace::new(setup.tracing),
            effects: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self) {
        for member in 0..self.members.len() {
            self.start(member, 0);
        }
        for (number, fault) in self.plan.faults.iter().enumerate() {
            self.schedule.at(fault.at_us, Happening::Fault { number });
        }
        for (client, todo) in self.plan.clients.iter().enumerate() {
            let think_us = todo.first().map_or(0, |first| first.think_us);
            self.clients.push(Client::new(todo));
            self.schedule.at(think_us, Happening::Begin { client });
        }
        self.schedule
            .at(self.plan.shape.chaos_us, Happening::Phase(Phase::Calm));
    }

    pub(super) fn is_calm(&self) -> bool {
        self.phase != Phase::Chaos
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        let is_busy = self
            .clients
            .iter()
            .any(|c| c.waits_for.is_some() || !c.todo.is_empty());
        if is_busy && phase != Phase::Calm {
            self.schedule.after(LOOK_US, Happening::Phase(phase));
            return;
        }
        self.phase = phase;
        self.trace
            .line(self.schedule.now_us(), || format!("PHASE {phase:?}"));
        let (next, after_us) = match phase {
            Phase::Chaos | Phase::Calm => {
                self.clients
                    .iter_mut()
                    .for_each(|client| client.todo.clear());
                self.heal_all();
                (Phase::Probes, CALM_US)
            }
            Phase::Probes => {
                self.probe();
                (Phase::Settle, LOOK_US)
            }
            Phase::Settle => (Phase::Reads(0), HINTED_US),
            Phase::Reads(round) => {
                if round == 0 {
                    self.judge_hinted();
                }
                self.read_everything();
                match round + 1 < READ_ROUNDS {
                    true => (Phase::Reads(round + 1), SETTLE_US),
                    false => (Phase::Rest, SETTLE_US),
                }
            }
            Phase::Rest => (Phase::Over, REST_US),
            Phase::Over => return,
        };
        self.schedule.after(after_us, Happening::Phase(next));
    }

    fn plan_probe(
        &mut self,
        key: usize,
        kind: PlannedKind,
        base: PlannedBase,
        quorum: Option<(u8, u8)>,
        member: usize,
    ) {
        let client = key % self.clients.len();
        self.clients[client].todo.push_back(Planned {
            key,
            kind,
            base,
            quorum,
            member,
            think_us: 500,
            timeout_us: PROBE_TIMEOUT_US,
            patience_us: None,
            value_bytes: 12,
            ttl_ms: None,
        });
        self.schedule.after(1, Happening::Begin { client });
    }

    fn probe(&mut self) {
        let keys = self.plan.shape.keys.clone();
        for (key, class) in keys.iter().enumerate().step_by(2).take(PROBED_KEYS) {
            for member in 0..self.members.len() {
                if !self.members[member].is_running() {
                    continue;
                }
                self.plan_probe(key, PlannedKind::Get, PlannedBase::Any, None, member);
                self.plan_probe(key, PlannedKind::Put, PlannedBase::Any, None, member);
                if *class == KeyClass::Strong {
                    self.plan_probe(
                        key,
                        PlannedKind::Put,
                        PlannedBase::MatchesLast,
                        None,
                        member,
                    );
                    self.plan_probe(key, PlannedKind::Delete, PlannedBase::Present, None, member);
                }
                self.plan_probe(key, PlannedKind::Get, PlannedBase::Any, None, member);
            }
        }
    }

    /// Every key from as many owners as it has, where all of them live.
    fn read_everything(&mut self) {
        for key in 0..self.plan.shape.keys.len() {
            let from = self.copies_of(key);
            let is_whole = !self.members.iter().any(|member| member.is_lost);
            let quorum = is_whole.then_some((from, from));
            let running: Vec<usize> = (0..self.members.len())
                .filter(|&member| self.members[member].is_running())
                .collect();
            if running.is_empty() {
                return;
            }
            let member = running[self.prng.below(running.len() as u64) as usize];
            self.plan_probe(key, PlannedKind::Get, PlannedBase::Any, quorum, member);
        }
    }

    /// On how many owners an operation may have put copies of the key.
    fn copies_of(&self, key: usize) -> u8 {
        match self.plan.shape.keys[key] {
            KeyClass::Weak => self.members.len() as u8,
            KeyClass::Strong | KeyClass::Fleeting => self.plan.shape.copies as u8,
        }
    }

    fn owners(&self, key: usize) -> Vec<usize> {
        let partition = self.ring.partition(&key_name(key));
        self.ring
            .owners(partition)
            .iter()
            .map(|member| member.at())
            .collect()
    }

    /// What the stores and the histories say in the end.
    pub(super) fn judge(&mut self) {
        if self.violations.is_empty() {
            self.violations
                .extend(check::versions::check(&self.history));
        }
        if self.violations.is_empty() {
            self.violations
                .extend(check::linear::check(&self.history, self.pending()));
        }
        if self.phase == Phase::Over && self.violations.is_empty() {
            self.judge_availability();
            self.judge_stores();
            self.judge_leftovers();
        }
        for violation in &self.violations {
            self.trace
                .line(self.schedule.now_us(), || format!("VIOLATION {violation}"));
        }
    }

    /// One log is one order: what it did not take before the next write it never takes.
    fn pending(&self) -> Pending {
        match self.plan.shape.members {
            1 => Pending::EndsWhenReplaced,
            _ => Pending::StaysOpen,
        }
    }

    fn judge_availability(&mut self) {
        let calm_us = self.plan.shape.chaos_us + CALM_US;
        let failed: Vec<Op> = self
            .history
            .iter()
            .filter(|op| op.begun_us >= calm_us && !op.is_done())
            // A record of fewer copies than usual may have lost the majority of them.
            .filter(|op| self.plan.shape.keys[op.key] != KeyClass::Weak)
            .cloned()
            .collect();
        for op in failed {
            let owners = self.owners(op.key);
            let healthy = owners[..usize::from(op.from)]
                .iter()
                .filter(|&&owner| {
                    self.members[owner].is_running() && !self.members[owner].is_rotten
                })
                .count();
            if healthy >= usize::from(op.ack) {
                self.violate(
                    Rule::NotAvailable,
                    format!("{healthy} owners are well, and {op:?}"),
                );
            }
        }
    }

    fn copy(&self, member: usize, key: usize) -> Copy {
        let Some(store) = &self.members[member].store else {
            return Copy::Gone;
        };
        match store.read(&Key::user(&key_name(key))) {
            Ok(None) => Copy::Nothing,
            Ok(Some(cell)) if cell.kind == Kind::Tombstone => Copy::Cell(cell.version, None),
            Ok(Some(cell)) => match value_number(&cell.value) {
                Some(value) => Copy::Cell(cell.version, Some(value)),
                None => Copy::Damaged,
            },
            Err(StoreFailure::Damaged) => Copy::Damaged,
            Err(_) => Copy::Gone,
        }
    }

    /// How many copies the newest cell of a key says it has.
    fn copies_wanted(&self, owners: &[usize], key: usize) -> usize {
        let key = Key::user(&key_name(key));
        let stores = owners
            .iter()
            .filter_map(|&owner| self.members[owner].store.as_ref());
        let cells = stores.filter_map(|store| store.read(&key).ok().flatten());
        let newest = cells.max_by_key(|cell| cell.version);
        newest.map_or(1, |cell| usize::from(cell.copies))
    }

    fn judge_stores(&mut self) {
        let is_whole = !self
            .members
            .iter()
            .any(|m| m.is_lost || (m.is_rotten && self.is_engine()));
        for key in 0..self.plan.shape.keys.len() {
            let owners = self.owners(key);
            let copies: Vec<Copy> = owners.iter().map(|&owner| self.copy(owner, key)).collect();
            let ops: Vec<&Op> = self.history.iter().filter(|op| op.key == key).collect();
            let mut found = check::store::check_key(key, &copies, &ops);
            let was_touched = ops
                .iter()
                .any(|op| op.promise == Promise::Linearizable || op.is_done());
            let was_read = ops
                .iter()
                .any(|op| op.ack == op.from && matches!(op.end, End::Found(_) | End::Missing(_)));
            if IS_REPAIRED_BY_READS && is_whole && was_touched && was_read {
                // A record of so many copies belongs on so many owners, and on no other.
                let copies = &copies[..self.copies_wanted(&owners, key)];
                found.extend(check::store::check_convergence(key, copies));
            }
            self.violations.extend(found);
        }
    }

    fn is_engine(&self) -> bool {
        self.plan.shape.store == crate::plan::StoreKind::Engine
    }

    /// Before anybody reads: the last write of a calm time is on all of its owners, by itself or by
    /// hint, since its member kept running and had room.
    fn judge_hinted(&mut self) {
        let shape = &self.plan.shape;
        let is_spoilt = self
            .members
            .iter()
            .any(|member| member.is_lost || member.is_rotten);
        if is_spoilt || shape.hint_bytes < HINT_BYTES_PLENTY {
            return;
        }
        for key in 0..shape.keys.len() {
            let ops: Vec<&Op> = self.history.iter().filter(|op| op.key == key).collect();
            let writes = ops.iter().filter(|op| op.wish.is_write());
            let Some(last) = writes.max_by_key(|op| op.begun_us) else {
                continue;
            };
            let is_alone = ops.iter().all(|op| op.is_done() || !op.wish.is_write());
            let began_life_us = self.members[last.member].began_us;
            let is_settled =
                matches!(last.end, End::Written(_)) && is_alone && last.begun_us > began_life_us;
            if !is_settled || shape.keys[key] != KeyClass::Strong {
                continue;
            }
            let owners = self.owners(key);
            let copies: Vec<Copy> = owners[..shape.copies]
                .iter()
                .map(|&owner| self.copy(owner, key))
                .collect();
            self.violations
                .extend(check::store::check_convergence(key, &copies));
        }
    }

    /// Hints that a member still keeps.
    fn hints(&self, member: usize) -> usize {
        let range = PageRange {
            start: Key::new(Space::Hint, b""),
            end: None,
            is_reverse: false,
            bytes: 1 << 20,
        };
        let page = self.members[member]
            .store
            .as_ref()
            .map(|store| store.page(&range));
        let Some(Ok((records, _))) = page else {
            return 0;
        };
        let kept = records.iter().filter(|(_, cell)| cell.kind == Kind::Value);
        kept.count()
    }

    fn judge_leftovers(&mut self) {
        // What is kept for a member that never comes back stays.
        let is_whole = !self.members.iter().any(|member| member.is_lost);
        for member in 0..self.members.len() {
            let hints = self.hints(member);
            if is_whole && hints > 0 {
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
