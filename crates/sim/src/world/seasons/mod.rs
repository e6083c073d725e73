//! A soak of deletes: keys are created and deleted, season after season, while a member is away for
//! months of the simulation.
//!
//! ```text
//! season   all are there ── one is away for 20 to 200 days ── all are there ── the rest is deleted
//!                                                             ── until all deletes are purged
//! time     a batch of operations ─ hours in which nothing happens ─ the next batch ─ …
//! verdict  answers to clients (versions, order)      then the season's history is dropped
//!          no store has a record of the season       back = resurrected, left = stuck
//!          records that are never deleted are at all owners
//! ```
//!
//! Invariants
//! 1. A season begins with stores that hold only the kept records. So its history explains every
//!    answer, and memory holds one season.
//! 2. Versions rise from one season to the next, although no store remembers a deleted key.
//!
//! Not here: the cluster (`draws/shapes.rs`), the verdict (`verdict.rs`).
//! See: docs/verification.md, "Soaks".

mod verdict;

use super::state::{Happening, RunPhase, RunSetup, SimulatedClient, World};
use crate::changes::DAY_US;
use crate::check::linear::Searches;
use crate::check::{Rule, Violation};

use crate::history::{ClientEnd, ClientOp, SeenCondition, Wish};
use crate::plan::{KeyClass, PlannedCondition, PlannedKind, PlannedOp, RunPlan};
use crate::real::nodes;
use crate::store::Crash;
use crate::trace::Tracing;
use dendra_base::Version;
use std::collections::BTreeMap;

/// One hour.
const HOUR_US: u64 = DAY_US / 24;
/// Clients. More of them would fill the queue of a store: its member says that it is behind.
const CLIENTS: usize = 5;
/// From one batch to the next one while a member is away.
const AWAY_STEP_US: u64 = 4 * HOUR_US;
/// Deleted keys of a season that may be created once more.
const DEAD_KEYS: usize = 4_000;
/// Records that are kept: further ones of each season, and in all.
const KEPT_PER_SEASON: usize = 5;
const KEPT_KEYS: usize = 500;
/// Happenings for each operation of a batch, and for a batch: more of them go in circles.
const OP_HAPPENINGS: u64 = 2_000;
const BATCH_HAPPENINGS: u64 = 20_000_000;
/// Rounds of last deletes in a season.
const DELETE_ROUNDS: usize = 50;
/// All deletes of a season are purged so long after the last one, when all members are there.
const PURGED_DAYS: u64 = 240;

/// How many operations a season has.
#[derive(Clone, Copy, Debug)]
pub struct SeasonSize {
    /// While all members are there.
    pub before: usize,
    /// While one is away.
    pub away: usize,
    /// When it is back.
    pub after: usize,
    /// In a batch, while all are there.
    pub batch: usize,
}

impl SeasonSize {
    /// Size of a soak.
    pub const LARGE: SeasonSize = SeasonSize {
        before: 25_000,
        away: 60_000,
        after: 15_000,
        batch: 500,
    };
    /// Size of a test.
    pub const SMALL: SeasonSize = SeasonSize {
        before: 200,
        away: 400,
        after: 100,
        batch: 50,
    };
}

/// How long a soak goes on.
pub struct SoakEnd<'a> {
    /// How many operations a season has.
    pub size: SeasonSize,
    /// Deletes and creations.
    pub writes: u64,
    /// Asked between two seasons.
    pub is_over: &'a dyn Fn() -> bool,
    /// Told between two seasons.
    pub tell: &'a dyn Fn(&DeletesReport),
}

/// The result of a soak of deletes.
#[derive(Clone, Debug, Default)]
pub struct DeletesReport {
    /// Seasons that ended.
    pub seasons: u64,
    /// Acknowledged creations.
    pub creations: u64,
    /// Acknowledged deletes.
    pub deletes: u64,
    /// Answered reads.
    pub reads: u64,
    /// Operations that ended without a certain answer.
    pub unknown: u64,
    /// Days that passed.
    pub days: u64,
    /// Days with absent members among them.
    pub days_away: u64,
    /// Horizons rose so many times.
    pub risen: u64,
    /// The largest store at the end of an absence, in records.
    pub records_max: usize,
    /// Days from the last delete of a season until no cell was left of it, at most.
    pub purge_days_max: u64,
    /// Searches for an order.
    pub searches: Searches,
    /// The first broken promise.
    pub violation: Option<Violation>,
}

impl DeletesReport {
    /// Acknowledged deletes and creations.
    pub fn writes(&self) -> u64 {
        self.creations + self.deletes
    }
}

/// The keys of a soak.
#[derive(Debug)]
struct SoakKeys {
    size: SeasonSize,
    next: usize,
    living: Vec<usize>,
    dead: Vec<usize>,
    /// Records that are never deleted, by key: the operation that created them.
    kept: BTreeMap<usize, ClientOp>,
    /// Keys of this season: to be kept once their creation is acknowledged.
    chosen: Vec<usize>,
    /// The newest version that was told in earlier seasons.
    newest: Version,
}

impl SoakKeys {
    fn new(size: SeasonSize) -> SoakKeys {
        SoakKeys {
            size,
            next: 0,
            living: Vec::new(),
            dead: Vec::new(),
            kept: BTreeMap::new(),
            chosen: Vec::new(),
            newest: Version::ZERO,
        }
    }
}

/// Goes on until `end`, or until a promise is broken.
pub fn soak_deletes(plan: &RunPlan, end: &SoakEnd<'_>) -> DeletesReport {
    let setup = RunSetup {
        make_deciders: nodes,
        bug: None,
        tracing: Tracing::Off,
    };
    let mut world = World::new(plan, setup);
    world.begin();
    world.clients = (0..CLIENTS).map(|_| SimulatedClient::default()).collect();
    let (mut keys, mut report) = (SoakKeys::new(end.size), DeletesReport::default());
    world.pass(10_000_000);
    while report.writes() < end.writes && !(end.is_over)() {
        world.season(&mut keys, &mut report);
        report.days = world.now_us() / DAY_US;
        report.risen = world.town.as_ref().map_or(0, |town| town.risen);
        report.violation = world.violations.first().cloned();
        if report.violation.is_some() {
            break;
        }
        report.seasons += 1;
        (end.tell)(&report);
    }
    report
}

impl World<'_> {
    fn season(&mut self, keys: &mut SoakKeys, report: &mut DeletesReport) {
        self.work(keys, keys.size.before, 65);
        let away = self.absence(keys);
        report.days_away += away;
        let sizes = self.members.iter().filter_map(|it| it.store.as_ref());
        let records = sizes.map(|store| store.records()).max().unwrap_or(0);
        report.records_max = report.records_max.max(records);
        self.work(keys, keys.size.after, 45);
        self.delete_the_rest(keys);
        let until_purged = self.rest_until_purged(keys);
        report.purge_days_max = report.purge_days_max.max(until_purged);
        self.judge_season(keys, report);
    }

    /// Batches while all members are there, an hour apart.
    fn work(&mut self, keys: &mut SoakKeys, ops: usize, creation_percent: u64) {
        for _ in 0..ops / keys.size.batch {
            self.batch(keys, keys.size.batch, creation_percent);
            self.trouble();
            self.rest_and_purge(HOUR_US);
        }
    }

    /// In most seasons members are away for long, and the others go on. How many days that were,
    /// of each of them.
    fn absence(&mut self, keys: &mut SoakKeys) -> u64 {
        let days = 20 + self.prng.below(181);
        let members = self.members.len() as u64;
        let first = self.prng.below(members) as usize;
        let count = match (self.plan.shape.copies, self.prng.below(8)) {
            (_, 0) => 0,
            (5, 1..4) => 2,
            _ => 1,
        };
        for at in 0..count {
            let how = [Crash::Killed, Crash::PowerLoss][self.prng.below(2) as usize];
            let member = (first + at) % self.members.len();
            self.crash(member, how, days * DAY_US);
        }
        let steps = days * DAY_US / AWAY_STEP_US;
        let ops = keys.size.away / steps as usize + 1;
        for _ in 0..steps {
            self.batch(keys, ops, 48);
            self.rest(AWAY_STEP_US);
        }
        // Its start is due.
        self.pass(20_000_000);
        days * count as u64
    }

    /// Now and then a member ends for a moment.
    fn trouble(&mut self) {
        if self.prng.chance(1, 20) {
            let member = self.prng.below(self.members.len() as u64) as usize;
            let down_us = 1_000 + self.prng.below(300_000);
            self.crash(member, Crash::PowerLoss, down_us);
        }
    }

    /// So many operations of all clients, to their end.
    fn batch(&mut self, keys: &mut SoakKeys, ops: usize, creation_percent: u64) {
        for number in 0..ops {
            let (key, kind) = self.draw_key(keys, creation_percent);
            self.plan_op(number % CLIENTS, key, kind);
        }
        self.run_clients(ops);
    }

    fn draw_key(&mut self, keys: &mut SoakKeys, creation_percent: u64) -> (usize, PlannedKind) {
        let prng = &mut self.prng;
        let of = |list: &[usize], from: &mut dendra_base::Prng| {
            (!list.is_empty()).then(|| from.below(list.len() as u64) as usize)
        };
        if prng.chance(1, 12) {
            let list = if prng.chance(1, 2) {
                &keys.living
            } else {
                &keys.dead
            };
            if let Some(at) = of(list, prng) {
                return (list[at], PlannedKind::Get);
            }
        }
        let is_full = keys.living.len() > keys.size.before * 3 / 5;
        let is_creation = !is_full && prng.chance(creation_percent, 100);
        if !is_creation && let Some(at) = of(&keys.living, prng) {
            let key = keys.living.swap_remove(at);
            if keys.dead.len() < DEAD_KEYS {
                keys.dead.push(key);
            }
            return (key, PlannedKind::Delete);
        }
        let again = of(&keys.dead, prng).filter(|_| prng.chance(1, 6));
        let key = again.map_or(keys.next, |at| keys.dead.swap_remove(at));
        keys.next = keys.next.max(key + 1);
        if again.is_none() && keys.chosen.len() < KEPT_PER_SEASON && prng.chance(1, 1_000) {
            keys.chosen.push(key);
        } else {
            keys.living.push(key);
        }
        (key, PlannedKind::Put)
    }

    fn plan_op(&mut self, client: usize, key: usize, kind: PlannedKind) {
        let is_conditional = self.prng.chance(1, 6);
        let base = match kind {
            PlannedKind::Put if is_conditional => PlannedCondition::Absent,
            PlannedKind::Delete if is_conditional => PlannedCondition::Present,
            _ => PlannedCondition::Any,
        };
        let is_narrow = kind == PlannedKind::Delete && self.class_of(key) == KeyClass::Weak;
        let is_narrow = is_narrow && base == PlannedCondition::Any && self.prng.chance(1, 4);
        let member = self.prng.below(self.members.len() as u64) as usize;
        let planned = PlannedOp {
            base,
            quorum: is_narrow.then_some((1, 1)),
            think_us: self.prng.below(1_000),
            timeout_us: self.plan.shape.timeout_us,
            value_bytes: 8,
            ..PlannedOp::plain(key, kind, member)
        };
        self.clients[client].todo.push_back(planned);
    }

    /// Until no client has a wish any more.
    fn run_clients(&mut self, ops: usize) {
        for client in 0..CLIENTS {
            self.schedule.after(1, Happening::Begin { client });
        }
        let most = self.schedule.count() + BATCH_HAPPENINGS + ops as u64 * OP_HAPPENINGS;
        let is_busy =
            |client: &SimulatedClient| client.waits_for.is_some() || !client.todo.is_empty();
        while self.clients.iter().any(is_busy) && self.violations.is_empty() {
            let Some(happening) = self.schedule.take() else {
                break;
            };
            self.happen(happening);
            if self.schedule.count() > most {
                self.violate(Rule::NotAvailable, "a batch goes in circles");
            }
        }
    }

    /// Time in which all happens that is due.
    fn pass(&mut self, length_us: u64) {
        let until_us = self.now_us() + length_us;
        self.schedule.at(until_us, Happening::Phase(RunPhase::Over));
        let most = self.schedule.count() + BATCH_HAPPENINGS + length_us / 10_000;
        while self.now_us() < until_us && self.violations.is_empty() {
            let Some(happening) = self.schedule.take() else {
                break;
            };
            if !matches!(happening, Happening::Phase(_)) {
                self.happen(happening);
            }
            if self.schedule.count() > most {
                self.violate(Rule::NotAvailable, "a rest goes in circles");
            }
        }
    }

    /// All processes stop for long, and go on for a moment.
    fn rest(&mut self, length_us: u64) {
        self.schedule.skip(length_us);
        self.pass(300_000);
    }

    /// Rests, and stores purge.
    fn rest_and_purge(&mut self, length_us: u64) {
        self.rest(length_us);
        let now_us = self.now_us();
        for it in &mut self.members {
            let now_ms = it.clock.now(now_us).wall_ms;
            if let Some(store) = &mut it.store {
                store.sweep(now_ms);
            }
        }
    }

    /// Deletes all but the kept records, until each delete is acknowledged.
    fn delete_the_rest(&mut self, keys: &mut SoakKeys) {
        self.note_kept(keys);
        self.rest(60_000_000);
        for _ in 0..DELETE_ROUNDS {
            let rest = self.unsettled(keys);
            if rest.is_empty() {
                keys.living.clear();
                keys.dead.clear();
                return;
            }
            for (number, key) in rest.iter().enumerate() {
                self.plan_op(number % CLIENTS, *key, PlannedKind::Delete);
            }
            self.run_clients(rest.len());
            self.rest(60_000_000);
            if !self.violations.is_empty() {
                return;
            }
        }
        self.violate(Rule::NotAvailable, "deletes are not acknowledged");
    }

    /// The chosen records with one acknowledged creation are kept; others are deleted as well.
    fn note_kept(&mut self, keys: &mut SoakKeys) {
        for key in std::mem::take(&mut keys.chosen) {
            let creation = self.history.iter().find(|op| op.key == key);
            let is_sure = creation.is_some_and(|op| matches!(op.end, ClientEnd::Written(_)));
            if let Some(op) = creation.filter(|_| is_sure && keys.kept.len() < KEPT_KEYS) {
                keys.kept.insert(key, op.clone());
            }
        }
    }

    /// Keys of the season without an acknowledged delete of all copies after all their creations,
    /// and after all deletes of fewer copies. Deletes of fewer copies stay until such a one is
    /// above them.
    fn unsettled(&self, keys: &SoakKeys) -> Vec<usize> {
        // By key: when the last write was over that such a delete must follow, and when the last
        // such delete began.
        let mut ends: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        let writes = self.history.iter().filter(|op| op.wish.is_write());
        for op in writes.filter(|op| !keys.kept.contains_key(&op.key)) {
            let (created_us, deleted_us) = ends.entry(op.key).or_default();
            let is_narrow = usize::from(op.from) < self.plan.shape.copies;
            match (op.wish, op.end) {
                (_, ClientEnd::NotApplied | ClientEnd::Refused { .. }) => {}
                (Wish::Put { .. }, _) => *created_us = op.ended_us.max(*created_us),
                (Wish::Delete { .. }, _) if is_narrow => *created_us = op.ended_us.max(*created_us),
                // A conditional one comes after its base: that may be below a narrow delete.
                (Wish::Delete { base }, ClientEnd::Written(_))
                    if base == SeenCondition::Any || self.class_of(op.key) != KeyClass::Weak =>
                {
                    *deleted_us = op.begun_us.max(*deleted_us);
                }
                _ => {}
            }
        }
        let lives = ends
            .into_iter()
            .filter(|(_, (created_us, deleted_us))| created_us >= deleted_us && *created_us > 0);
        lives.map(|(key, _)| key).collect()
    }

    /// All members are there. How many days it takes until no cell is left to purge, up to
    /// `PURGED_DAYS`.
    fn rest_until_purged(&mut self, keys: &SoakKeys) -> u64 {
        let begun_us = self.now_us();
        let days = |world: &Self| (world.now_us() - begun_us) / DAY_US;
        while days(self) < PURGED_DAYS && self.violations.is_empty() && self.left(keys).is_some() {
            self.rest_and_purge(DAY_US);
        }
        days(self)
    }
}
