//! The operator of a changing cluster: deeds of the plan, and the steps that bring the cluster to
//! rest when the weather is calm.
//!
//! ```text
//! deed ─► may it be done now? ─ no ─► tried again, until the weather is calm
//!              └ yes ─► order at a member ─► answer: a plan ─► Apply at the same member
//! calm ─► what waits for a lost member, or holds others up, is cancelled; throttles go
//! ```
//!
//! Invariants
//! 1. The disk of a member is lost only while no plan runs and each other member has its copies.
//! 2. Every order gets one answer in its time, unless its member ends.
//!
//! Not here: which deeds (`changes.rs`), the meaning of orders (crate `ownership`, `steward/`).

use super::super::state::{Happening, World};
use crate::changes::OperatorDeed;
use crate::check::Rule;
use crate::machines::{MachineStanding, node_of};
use crate::plan::CutLinks;
use crate::store::Crash;
use dendra_base::{LeastSuccessor, Prng};
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::limits::{CLUSTER_ORDER_US, LOAD_BYTES_PER_SECOND_DEFAULT};
use dendra_ownership::steward::face::{ClusterAnswer, ClusterOrder, DraftId, PlanWish};
use dendra_ownership::steward::step::StewardEvent;
use std::sync::Arc;

/// A deed that cannot be done now is tried again after this.
const DEED_AGAIN_US: u64 = 400_000;
/// How often the operator looks when the weather is calm.
const OPERATOR_US: u64 = 1_000_000;
/// An order may be answered so long behind its time: a steward looks at the time now and then.
const LATE_US: u64 = 1_000_000;
/// Joiners that are not named in the newest epoch so long after the weather got calm are stopped.
const PATIENCE_US: u64 = 20_000_000;
/// A plan that does not end in calm weather is cancelled after this: members that it waits for may
/// have gone.
const CANCEL_US: u64 = 60_000_000;
/// A cluster that is not at rest so long after the weather got calm never will be.
const REST_US: u64 = 240_000_000;
/// Number of the cuts that isolate a member: behind those of faults.
const CUTS: usize = 1 << 32;

/// Was a deed done?
enum DeedResult {
    Yes,
    /// Not now.
    Later,
    /// Never: it makes no sense here.
    Never,
}

impl World<'_> {
    pub(in crate::world) fn plan_deeds(&mut self) {
        let plan = self.plan;
        let deeds = plan.changes.iter().flat_map(|changes| &changes.deeds);
        for (number, deed) in deeds.enumerate() {
            self.schedule.at(deed.at_us, Happening::Deed { number });
        }
    }

    /// A deed is tried.
    pub(in crate::world) fn deed(&mut self, number: usize) {
        let plan = self.plan;
        let Some(planned) = plan.changes.as_ref().map(|c| &c.deeds[number]) else {
            return;
        };
        if self.is_calm() {
            return;
        }
        let at_us = self.now_us();
        self.trace
            .line(at_us, || format!("DEED {number} {:?}", planned.deed));
        match self.try_deed(planned.deed, planned.draw, number) {
            DeedResult::Later => self
                .schedule
                .after(DEED_AGAIN_US, Happening::Deed { number }),
            DeedResult::Yes | DeedResult::Never => {}
        }
    }

    pub(super) fn record(&self) -> Arc<EpochRecord> {
        Arc::clone(self.town.as_ref().expect("members change").record())
    }

    fn try_deed(&mut self, deed: OperatorDeed, draw: u64, number: usize) -> DeedResult {
        let mut prng = Prng::new(draw);
        let prng = &mut prng;
        let record = self.record();
        let members = self.cluster();
        let one = members[prng.below(members.len() as u64) as usize];
        let url = self.url_of(one);
        let is_busy = record.plan().is_some() || self.has_joiner();
        let wish = PlanWish::default();
        let order = match deed {
            OperatorDeed::Cancel if record.plan().is_none() => return DeedResult::Later,
            OperatorDeed::Cancel => ClusterOrder::Cancel,
            OperatorDeed::Throttle => ClusterOrder::Throttle {
                bytes_per_second: [20, 4_000, 1 << 20][prng.below(3) as usize],
            },
            OperatorDeed::AuthorEnds => return self.end_author(prng),
            OperatorDeed::Away => {
                let down_us = 3_000_000 + prng.below(20_000_000);
                self.crash(one, Crash::Killed, down_us);
                return DeedResult::Yes;
            }
            OperatorDeed::Lag => return self.lag(one, number, prng),
            OperatorDeed::Rekey => ClusterOrder::Rekey,
            OperatorDeed::Restored => {
                let raised = record.least_successor().number() + 1 + prng.below(4) as u32;
                let least = LeastSuccessor::new(raised).expect("few deeds, of small steps");
                ClusterOrder::Restored { least }
            }
            OperatorDeed::Readdress => {
                let to = format!("http://x{number}-{}:1", prng.below(1_000));
                ClusterOrder::Readdress { from: url, to }
            }
            _ if is_busy => return DeedResult::Later,
            OperatorDeed::Join => {
                let address = self.former_address(&record, prng);
                self.add_machine_at(None, address);
                return DeedResult::Yes;
            }
            OperatorDeed::Wipe => return self.wipe(one, &record, prng),
            OperatorDeed::Supersede => return self.supersede(one, &record, number, prng),
            OperatorDeed::Leave if members.len() <= 2 => return DeedResult::Never,
            OperatorDeed::Leave => ClusterOrder::Plan(PlanWish {
                remove: vec![url],
                ..wish
            }),
            OperatorDeed::Reweigh => ClusterOrder::Plan(PlanWish {
                weights: vec![(url, prng.below(4) as u16)],
                ..wish
            }),
            OperatorDeed::Copies | OperatorDeed::FewerCopies => {
                let now = record.replication_factor();
                let is_more = deed == OperatorDeed::Copies && prng.chance(1, 2);
                let copies = if is_more { now + 1 } else { now - 1 };
                if copies == 0 || usize::from(copies) > members.len() {
                    return DeedResult::Never;
                }
                ClusterOrder::Plan(PlanWish {
                    replication_factor: Some(copies),
                    ..wish
                })
            }
        };
        match self.someone(prng) {
            Some(at) => self.place_order(at, order),
            None => return DeedResult::Later,
        }
        DeedResult::Yes
    }

    pub(super) fn url_of(&self, machine: usize) -> String {
        let town = self.town.as_ref().expect("members change");
        let record = town.record();
        let id = town.machines[machine].id;
        let member = id.and_then(|id| record.member(id));
        member.map_or_else(
            || town.machines[machine].url.clone(),
            |member| member.place.url.clone(),
        )
    }

    /// Does a process ask to be let in?
    pub(super) fn has_joiner(&self) -> bool {
        let town = self.town.as_ref().expect("members change");
        let joins = |standing: &MachineStanding| matches!(standing, MachineStanding::Joins { .. });
        town.machines.iter().any(|machine| joins(&machine.standing))
    }

    fn someone(&mut self, prng: &mut Prng) -> Option<usize> {
        let running: Vec<usize> = self
            .cluster()
            .into_iter()
            .filter(|&at| self.members[at].home.is_some())
            .collect();
        match running.len() {
            0 => None,
            count => Some(running[prng.below(count as u64) as usize]),
        }
    }

    /// Are all members there, so that one of them may be lost?
    fn may_lose(&self, record: &EpochRecord) -> bool {
        let all_run = self
            .cluster()
            .iter()
            .filter(|&&at| !self.is_laggard(at))
            .all(|&at| self.members[at].is_running() && self.members[at].home.is_some());
        let copies = record.replication_factor().min(record.owners().copies());
        let is_enrolled = record.members().iter().all(|member| member.node != 0);
        all_run && is_enrolled && copies >= 3 && record.voters().len() >= 3
    }

    /// Is it the one member that is away while others change?
    fn is_laggard(&self, at: usize) -> bool {
        let laggard = self.town.as_ref().and_then(|town| town.laggard);
        let is_wiped = self
            .town
            .as_ref()
            .is_some_and(|town| town.machines[at].is_wiped);
        laggard.is_some_and(|(one, until_us)| one == at && self.now_us() <= until_us) && !is_wiped
    }

    fn wipe(&mut self, one: usize, record: &EpochRecord, prng: &mut Prng) -> DeedResult {
        if record.replication_factor() < 3 {
            return DeedResult::Never;
        }
        if !self.may_lose(record) {
            return DeedResult::Later;
        }
        self.crash(one, Crash::PowerLoss, 0);
        self.members[one].is_lost = true;
        if let Some(town) = &mut self.town {
            town.machines[one].is_wiped = true;
            town.machines[one].is_superseded = true;
        }
        let is_own = self.claims_are_judged() && prng.chance(2, 3);
        let address = is_own.then(|| self.url_of(one));
        self.add_machine_at(Some(one), address);
        DeedResult::Yes
    }

    /// The address of a machine that was a member or a joiner once, perhaps: no member has it.
    fn former_address(&self, record: &EpochRecord, prng: &mut Prng) -> Option<String> {
        if !self.claims_are_judged() {
            return None;
        }
        let town = self.town.as_ref()?;
        let ended = town.machines.iter().filter(|machine| {
            let mut members = record.members().iter();
            let is_over = machine.standing == MachineStanding::Ended || machine.is_wiped;
            is_over && !members.any(|member| member.place.url == machine.url)
        });
        let ended: Vec<&str> = ended.map(|machine| &*machine.url).collect();
        let is_used = !ended.is_empty() && prng.chance(2, 3);
        is_used.then(|| ended[prng.below(ended.len() as u64) as usize].to_owned())
    }

    /// A member is killed, stands still, or is cut off from all others.
    fn lag(&mut self, one: usize, number: usize, prng: &mut Prng) -> DeedResult {
        if self.members[one].home.is_none() {
            return DeedResult::Later;
        }
        let away_us = 5_000_000 + prng.below(15_000_000);
        let until_us = self.now_us() + away_us;
        let town = self.town.as_mut().expect("members change");
        town.laggard = Some((one, until_us));
        match prng.below(3) {
            0 => self.crash(one, Crash::Killed, away_us),
            1 => {
                let it = &mut self.members[one];
                it.paused_until_us = it.paused_until_us.max(until_us);
            }
            _ => self.isolate(one, number, away_us),
        }
        DeedResult::Yes
    }

    fn isolate(&mut self, one: usize, number: usize, away_us: u64) {
        let links = CutLinks::around(one, crate::changes::MACHINES_MAX);
        self.cuts.push((CUTS + number, links));
        self.links_changed();
        let over = Happening::Over {
            number: CUTS + number,
        };
        self.schedule.after(away_us, over);
    }

    fn supersede(
        &mut self,
        one: usize,
        record: &EpochRecord,
        number: usize,
        prng: &mut Prng,
    ) -> DeedResult {
        if record.replication_factor() < 3 {
            return DeedResult::Never;
        }
        if !self.may_lose(record) {
            return DeedResult::Later;
        }
        let away_us = 4_000_000 + prng.below(12_000_000);
        if prng.chance(1, 2) {
            self.crash(one, Crash::Killed, away_us);
        } else {
            self.isolate(one, number, away_us);
        }
        if let Some(town) = &mut self.town {
            town.machines[one].is_superseded = true;
        }
        self.add_machine(Some(one));
        DeedResult::Yes
    }

    /// Is the number of a fault that of a member's isolation?
    pub(in crate::world) fn is_isolation(number: usize) -> bool {
        number >= CUTS
    }

    fn end_author(&mut self, prng: &mut Prng) -> DeedResult {
        let record = self.record();
        let Some(plan) = record.plan() else {
            return DeedResult::Later;
        };
        let town = self.town.as_ref().expect("members change");
        if let Some(author) = town.machine_of(plan.author) {
            let down_us = 4_000_000 + prng.below(10_000_000);
            self.crash(author, Crash::Killed, down_us);
        }
        DeedResult::Yes
    }

    pub(super) fn place_order(&mut self, at: usize, order: ClusterOrder) {
        let due_us = self.now_us() + CLUSTER_ORDER_US + LATE_US;
        let Some(town) = &mut self.town else {
            return;
        };
        town.tickets += 1;
        let ticket = town.tickets;
        town.orders.insert(ticket, (at, due_us));
        if matches!(order, ClusterOrder::AcceptLoss { .. }) {
            self.tell_of_damage(at);
        }
        self.tell_steward(at, StewardEvent::Ordered { ticket, order });
    }

    /// An order is answered.
    pub(super) fn order_ends(&mut self, at: usize, ticket: u64, answer: ClusterAnswer) {
        let town = self.town.as_mut().expect("members change");
        if town.orders.remove(&ticket).is_none() {
            let what = format!("m{at} answers order {ticket} twice: {answer:?}");
            return self.violate(Rule::Answer, what);
        }
        self.loss_is_answered(at, &answer);
        self.judge_begin(ticket, &answer);
        if let ClusterAnswer::Planned(plan) = answer
            && !self.is_calm()
        {
            let (draft, epoch) = (plan.id, plan.epoch);
            let changes = self.plan.changes.as_ref();
            match changes.map_or(0, |changes| changes.reads_us) {
                0 => self.applies(at, draft, epoch),
                most_us => {
                    let reads_us = self.prng.below(most_us);
                    let member = at;
                    let apply = Happening::Apply {
                        member,
                        draft,
                        epoch,
                    };
                    self.schedule.after(reads_us, apply);
                }
            }
        }
    }

    /// The operator has read a plan of this member, which was made for `epoch`.
    pub(in crate::world) fn applies(&mut self, at: usize, draft: DraftId, epoch: u64) {
        if self.is_calm() || self.members[at].home.is_none() {
            return;
        }
        if let Some(town) = &mut self.town {
            town.reads.insert(town.tickets + 1, epoch);
        }
        self.place_order(at, ClusterOrder::Apply { draft });
    }

    /// A plan that was read begins in the cluster that the operator read of: the same members,
    /// owners and numbers.
    fn judge_begin(&mut self, ticket: u64, answer: &ClusterAnswer) {
        let Some(town) = &mut self.town else {
            return;
        };
        let made = town.reads.remove(&ticket);
        let (Some(made), ClusterAnswer::Done { epoch }) = (made, answer) else {
            return;
        };
        let of = |number: u64| town.chosen.get(&number);
        let (Some(read), Some(before)) = (of(made), of(epoch - 1)) else {
            return;
        };
        let is_same = read.members() == before.members()
            && read.owners() == before.owners()
            && read.replication_factor() == before.replication_factor()
            && read.least_successor() == before.least_successor();
        if !is_same {
            let change = before.change();
            let what = format!("a plan for epoch {made} begins with {epoch} behind a {change:?}");
            self.violate(Rule::Epochs, what);
        }
    }

    /// Orders of a process that has ended get no answer.
    pub(in crate::world) fn orders_lose(&mut self, member: usize) {
        if let Some(town) = &mut self.town {
            town.orders.retain(|_, (at, _)| *at != member);
        }
    }

    fn check_orders(&mut self) {
        let now_us = self.now_us();
        let Some(town) = &self.town else {
            return;
        };
        let late = town.orders.iter().find(|(_, (at, due_us))| {
            let is_awake = self.members[*at].paused_until_us < now_us;
            now_us > *due_us && is_awake
        });
        if let Some((ticket, (at, _))) = late {
            let what = format!("order {ticket} has no answer at m{at}");
            self.violate(Rule::Answer, what);
        }
    }

    /// The weather is calm: members that are away come back, and the operator ends all that waits.
    pub(in crate::world) fn calm_town(&mut self) {
        let now_us = self.now_us();
        let Some(town) = &mut self.town else {
            return;
        };
        town.calm_us = Some(now_us);
        for member in 0..self.members.len() {
            let incarnation = self.members[member].incarnation;
            let start = Happening::Start {
                member,
                incarnation,
            };
            self.schedule.after(1_000, start);
        }
        self.schedule.after(OPERATOR_US, Happening::Operator);
    }

    /// The operator looks.
    pub(in crate::world) fn operator_looks(&mut self) {
        self.check_orders();
        self.schedule.after(OPERATOR_US, Happening::Operator);
        let record = self.record();
        let now_us = self.now_us();
        let town = self.town.as_mut().expect("members change");
        let since_us = now_us - town.calm_us.unwrap_or(now_us);
        let is_named = |at: usize| {
            let node = node_of(at);
            record.members().iter().any(|member| member.node == node)
        };
        let wiped: Vec<bool> = town.machines.iter().map(|m| m.is_wiped).collect();
        for at in 0..town.machines.len() {
            let machine = &mut town.machines[at];
            if let MachineStanding::Joins { replaces } = machine.standing
                && since_us > PATIENCE_US
                && !is_named(at)
                && !replaces.is_some_and(|of| wiped[of])
            {
                machine.standing = MachineStanding::Ended;
            }
            // A member let it in meanwhile: the operator sees that in the status, and starts it.
            if machine.standing == MachineStanding::Ended && machine.id.is_none() && is_named(at) {
                machine.standing = MachineStanding::Joins { replaces: None };
                self.schedule.after(1, Happening::Knock { joiner: at });
            }
        }
        self.replace_wiped(&record);
        let Some(at) = self.first_awake() else {
            return;
        };
        if record.plan().is_none() {
            return;
        }
        let bytes_per_second = LOAD_BYTES_PER_SECOND_DEFAULT;
        self.place_order(at, ClusterOrder::Throttle { bytes_per_second });
        if since_us > CANCEL_US && self.is_stuck(&record) {
            self.place_order(at, ClusterOrder::Cancel);
        }
    }

    /// A replacement was removed because its plan was cancelled: another one begins.
    fn replace_wiped(&mut self, record: &EpochRecord) {
        let town = self.town.as_ref().expect("members change");
        let is_member = |at: usize| {
            town.machines[at]
                .id
                .is_some_and(|id| record.member(id).is_some())
        };
        let wiped =
            (0..town.machines.len()).find(|&at| town.machines[at].is_wiped && is_member(at));
        if record.plan().is_none()
            && !self.has_joiner()
            && let Some(wiped) = wiped
        {
            self.add_machine(Some(wiped));
        }
    }

    /// Does the plan wait for a machine that never comes back?
    fn is_stuck(&self, record: &EpochRecord) -> bool {
        let town = self.town.as_ref().expect("members change");
        let moving = record.owners().all().filter_map(|p| record.moving(p));
        let gone = |id| {
            let machine = town.machine_of(id);
            machine.is_none_or(|at| town.machines[at].is_wiped)
        };
        let mut moving = moving.peekable();
        moving.any(|step| step.moving.to.is_some_and(gone) || record.replication_factor() < 3)
    }

    fn first_awake(&self) -> Option<usize> {
        let mut members = self.cluster().into_iter();
        members.find(|&at| self.members[at].home.is_some())
    }

    /// Has every plan ended, and does every process know the newest epoch? A cluster that never
    /// comes to rest breaks a promise.
    pub(in crate::world) fn is_town_at_rest(&mut self) -> bool {
        let now_us = self.now_us();
        let Some(town) = &self.town else {
            return true;
        };
        let record = town.record();
        let restless = (0..town.machines.len()).find_map(|at| {
            let machine = &town.machines[at];
            let it = &self.members[at];
            let id = machine.id;
            let is_member = id.is_some_and(|id| record.is_member(id, node_of(at)));
            match &machine.standing {
                MachineStanding::Joins { .. } => Some(format!("m{at} asks to be let in")),
                MachineStanding::Ended => None,
                // Its folder is damaged so that it does not start.
                MachineStanding::Member(_) if it.is_rotten && it.is_lost => None,
                // No process runs on it.
                MachineStanding::Member(_) if machine.is_wiped => {
                    is_member.then(|| format!("m{at} is lost, and a member"))
                }
                MachineStanding::Member(_) if !is_member && self.is_doubted(at) => None,
                MachineStanding::Member(_) if !is_member => {
                    let home = it.home.as_ref();
                    let can_learn = home.is_none_or(|home| knows_one_of(&home.record, record));
                    can_learn.then(|| format!("m{at} was removed and does not end"))
                }
                MachineStanding::Member(_) => {
                    let is_behind =
                        |lane: &crate::member::MemberLoop| lane.layout.epoch() != record.epoch();
                    let home = it.home.as_ref();
                    let knows = home.is_some_and(|home| home.record == *record);
                    (!knows || it.lanes.iter().any(is_behind))
                        .then(|| format!("m{at} does not know epoch {}", record.epoch()))
                }
            }
        });
        let plan = record.plan().map(|plan| {
            let moves = plan.moves.len();
            let moving = record.owners().all().filter_map(|p| record.moving(p));
            let moving: Vec<_> = moving.take(3).collect();
            format!(
                "plan {} of {} is under way: {} of {moves} begun: {moving:?}",
                plan.id, plan.author, plan.begun
            )
        });
        let unenrolled = record.members().iter().find(|member| member.node == 0);
        let unenrolled = unenrolled.map(|member| format!("{} is not enrolled", member.id));
        let orders = (!town.orders.is_empty()).then(|| "orders wait".to_owned());
        let damaged = town.members().into_iter().find(|&at| self.has_damage(at));
        let damaged = damaged.map(|at| format!("blocks of m{at} are damaged"));
        let waits = plan.or(restless).or(unenrolled).or(orders).or(damaged);
        let Some(why) = waits else {
            return true;
        };
        if now_us > town.calm_us.unwrap_or(now_us) + REST_US {
            let what = format!("in calm weather, epoch {}: {why}", record.epoch());
            self.violate(Rule::PlanStuck, what);
        }
        false
    }
}

/// Does a process that was removed, and knows `own`, reach a member that could tell it? It cannot
/// when all members that it knows were replaced or have moved: it serves no request, and an
/// operator ends it.
fn knows_one_of(own: &EpochRecord, newest: &EpochRecord) -> bool {
    own.members().iter().any(|known| {
        let now = newest.member(known.id);
        now.is_some_and(|now| now.place.url == known.place.url)
    })
}
