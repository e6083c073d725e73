//! A member is lost while a block of another one is damaged, and the operator accepts that loss.
//!
//! ```text
//! Away ─► Lose ─► Rot ─► Ask ─► the loss is shown ─► Confirm ─► AcceptLoss: noted, in force
//!                         └──────── every second, while there is damage ────┘
//! a block is repaired without a lost owner ─► the keys of which something told may be gone now
//! ```
//!
//! Invariants
//! 1. A loss is in force only if the operator confirmed it by the id under which it was shown.
//!    Plan, ranges and lost members must be the same.
//! 2. No key is excused before a block is repaired without an owner that was given up for it. That
//!    owner must be lost then: a plan takes it away, and it has no link.
//! 3. Of the keys in that block only those are excused of which the owners left hold less than was
//!    told. Stores are looked at for that, past every protocol.
//!
//! Not here: the effect of an excuse on a history (`check/losses.rs`), when all this happens
//! (`draws/deeds.rs`), the order itself (crate `ownership`, `steward/losses.rs`). See:
//! docs/decisions/0044-a-loss-is-accepted.md.

use super::super::names::{key_name, value_number};
use super::super::state::{Happening, LossStep, World};
use super::notes::{LOSSES_KEY, note};
use crate::changes::{FOR_EVER_US, LossOf, MACHINES_MAX, PlannedLoss};

use crate::check::Rule;
use crate::check::losses::{LeftCell, TakenLoss, is_taken, is_told, newest_told};
use crate::history::{ClientEnd, ClientOp, SeenValue, Wish};
use crate::machines::{LossInForce, ShownLoss};
use crate::plan::CutLinks;
use crate::process_steward::StewardNote;
use crate::store::{Crash, Store};
use dendra_base::{Cell, Key, Kind, Prng, Space};
use dendra_node::step::Event;
use dendra_node::step::LostSpan;
use dendra_ownership::loss::WalkPart;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::{
    AcceptedLoss, ClusterAnswer, ClusterOrder, DraftId, LossDraft, PlanWish,
};
use dendra_ownership::steward::step::StewardEvent;
use std::collections::BTreeSet;

/// A step that cannot be done now is tried again after this.
const AGAIN_US: u64 = 400_000;
/// Between two looks of the operator.
const ASK_US: u64 = 1_000_000;
/// Number of the cut that isolates the third member: behind those of faults and of deeds.
const CUT: usize = 1 << 33;
/// Bytes of a record of promises without a proposal.
const PROMISE_BYTES: usize = 13;

impl World<'_> {
    fn planned_loss(&self) -> Option<&PlannedLoss> {
        self.plan.changes.as_ref()?.loss.as_ref()
    }

    pub(in crate::world) fn plan_loss(&mut self) {
        if let Some(planned) = self.planned_loss() {
            let (away_us, lost_us) = (planned.away_us, planned.lost_us);
            self.schedule.at(away_us, Happening::Loss(LossStep::Away));
            self.schedule.at(lost_us, Happening::Loss(LossStep::Lose));
        }
    }

    /// A step is tried.
    pub(in crate::world) fn loss_step(&mut self, step: LossStep) {
        let Some(planned) = self.planned_loss().cloned() else {
            return;
        };
        let at_us = self.now_us();
        self.trace.line(at_us, || format!("LOSS {step:?}"));
        match step {
            LossStep::Ask => {
                self.asks_for_loss(planned.damaged);
                self.schedule.after(ASK_US, Happening::Loss(step));
            }
            LossStep::Confirm { id } => self.confirms_loss(&planned, id),
            LossStep::Repeat { id } => self.orders_loss(planned.damaged, Some(id)),
            _ if self.is_calm() => {}
            LossStep::Away if planned.is_cut_off => {
                self.cuts
                    .push((CUT, CutLinks::around(planned.kept, MACHINES_MAX)));
                self.links_changed();
            }
            LossStep::Away => self.crash(planned.kept, Crash::Killed, FOR_EVER_US),
            LossStep::Lose if self.may_lose_one(&planned) => self.loses(&planned),
            LossStep::Rot { number } if self.rots(&planned, number) => {}
            LossStep::Remove => self.removes(&planned),
            LossStep::Lose | LossStep::Rot { .. } => {
                self.schedule.after(AGAIN_US, Happening::Loss(step));
            }
            LossStep::Cancel if self.members[planned.damaged].home.is_some() => {
                self.place_order(planned.damaged, ClusterOrder::Cancel);
            }
            LossStep::Cancel => {}
            LossStep::End => self.crash(planned.damaged, Crash::PowerLoss, 1_000),
        }
    }

    /// Do the two run that confirm alone, and is no other step under way?
    fn may_lose_one(&self, planned: &PlannedLoss) -> bool {
        let record = self.record();
        let runs = |at: usize| self.members[at].home.is_some();
        let is_enrolled = record.members().iter().all(|member| member.node != 0);
        let is_busy = record.plan().is_some() || self.has_joiner();
        is_enrolled && !is_busy && runs(planned.lost) && runs(planned.damaged)
    }

    /// A member is lost, and the third one is back.
    fn loses(&mut self, planned: &PlannedLoss) {
        let lost = planned.lost;
        let (how, down_us, is_wiped) = match planned.how {
            LossOf::Disk | LossOf::Removed => (Crash::PowerLoss, 0, true),
            LossOf::Away(down_us) => (Crash::Killed, down_us, false),
        };
        self.crash(lost, how, down_us);
        self.members[lost].is_lost = is_wiped;
        if let Some(town) = &mut self.town {
            town.machines[lost].is_wiped = is_wiped;
            town.machines[lost].is_superseded = true;
        }
        match planned.how {
            LossOf::Removed => self.schedule.after(1, Happening::Loss(LossStep::Remove)),
            LossOf::Disk | LossOf::Away(_) => {
                self.add_machine(Some(lost));
            }
        }
        self.cuts.retain(|(cut, _)| *cut != CUT);
        self.links_changed();
        let kept = planned.kept;
        let incarnation = self.members[kept].incarnation;
        let back = Happening::Start {
            member: kept,
            incarnation,
        };
        self.schedule.after(1_000, back);
        for number in 0..planned.blocks {
            let rot = Happening::Loss(LossStep::Rot { number });
            self.schedule.after(planned.rot_us, rot);
        }
        self.schedule
            .after(planned.ask_us, Happening::Loss(LossStep::Ask));
    }

    /// The operator has the lost member removed, until a plan does it.
    fn removes(&mut self, planned: &PlannedLoss) {
        let record = self.record();
        let town = self.town.as_ref().expect("members change");
        let id = town.machines[planned.lost].id;
        if record.plan().is_some() || id.is_none_or(|id| record.member(id).is_none()) {
            return;
        }
        if self.members[planned.damaged].home.is_some() {
            let remove = vec![self.url_of(planned.lost)];
            let wish = PlanWish {
                remove,
                ..PlanWish::default()
            };
            self.place_order(planned.damaged, ClusterOrder::Plan(wish));
        }
        self.schedule
            .after(ASK_US, Happening::Loss(LossStep::Remove));
    }

    /// A block of the damaged member rots, mostly one with a record that the third one lacks.
    fn rots(&mut self, planned: &PlannedLoss, number: u64) -> bool {
        let keys = self.plan.shape.keys.len();
        let lacking: Vec<(String, String)> = (0..keys)
            .map(|key| {
                let kept = self.cell_of(planned.kept, &Key::user(&key_name(key)));
                let version = kept.map(|cell| cell.version.to_string());
                let stored = Key::user(&key_name(key));
                let stored = stored.as_stored().escape_ascii().to_string();
                (stored, version.unwrap_or_default())
            })
            .collect();
        let is_wanted = |key: &str, version: &str| {
            let mut all = lacking.iter();
            all.any(|(hidden, left)| hidden == key && version > left.as_str())
        };
        let now_us = self.now_us();
        let it = &mut self.members[planned.damaged];
        let now_ms = it.clock.now(now_us).wall_ms;
        let mut prng = Prng::new(planned.draw.wrapping_add(number));
        let store = it.store.as_mut();
        if !store.is_some_and(|store| store.rot_block(&is_wanted, now_ms, &mut prng)) {
            return false;
        }
        if !std::mem::replace(&mut it.is_scrubbed, true) {
            self.scrub_later(planned.damaged);
        }
        true
    }

    /// The operator looks for a loss that it could accept.
    fn asks_for_loss(&mut self, at: usize) {
        if !self.members[at].lost.is_empty() {
            self.orders_loss(at, None);
        }
    }

    /// An order that accepts a loss. As in the server, its steward is told of the damage first.
    fn orders_loss(&mut self, at: usize, confirm: Option<u64>) {
        if self.members[at].home.is_none() {
            return;
        }
        let member = self.url_of(at);
        let confirm = confirm.map(DraftId);
        self.place_order(at, ClusterOrder::AcceptLoss { member, confirm });
    }

    /// A steward is told of the damage that its first loop could not have repaired.
    pub(super) fn tell_of_damage(&mut self, at: usize) {
        let it = &self.members[at];
        let now = it.clock.now(self.now_us());
        if let Some(lane) = it.lanes.first() {
            let loss = lane.decider.loss(now);
            self.tell_steward(at, StewardEvent::Damaged { loss });
        }
    }

    /// A member shows a loss, or has taken an order for it.
    pub(super) fn loss_is_answered(&mut self, at: usize, answer: &ClusterAnswer) {
        let Some(planned) = self.planned_loss() else {
            return;
        };
        let confirm_us = planned.confirm_us;
        let ClusterAnswer::Loss(draft) = answer else {
            return;
        };
        let id = draft.id.0;
        let shown = self.shown(at, draft);
        let town = self.town.as_mut().expect("members change");
        // It confirms the loss that it saw first under an id.
        town.loss.shown.entry(id).or_insert(shown);
        if town.loss.waiting.insert(id) {
            self.schedule
                .after(confirm_us, Happening::Loss(LossStep::Confirm { id }));
        }
    }

    fn shown(&self, machine: usize, draft: &LossDraft) -> ShownLoss {
        ShownLoss {
            machine,
            plan: self.plan_at(machine),
            ranges: draft.ranges.clone(),
            lost: draft.lost.clone(),
        }
    }

    /// The plan under way that a process knows.
    fn plan_at(&self, member: usize) -> Option<u64> {
        let home = self.members[member].home.as_ref()?;
        home.record.plan().map(|plan| plan.id)
    }

    fn confirms_loss(&mut self, planned: &PlannedLoss, id: u64) {
        let at = planned.damaged;
        let town = self.town.as_mut().expect("members change");
        town.loss.waiting.remove(&id);
        if self.members[at].home.is_none() {
            return;
        }
        let is_first = town.loss.confirmed.is_empty();
        town.loss.confirmed.insert(id);
        if is_first {
            let later = [
                (planned.ends_us, LossStep::End),
                (planned.cancel_us, LossStep::Cancel),
                (planned.repeat_us, LossStep::Repeat { id }),
                (planned.rots_again_us, LossStep::Rot { number: 99 }),
            ];
            for (after_us, step) in later {
                if let Some(after_us) = after_us {
                    self.schedule.after(after_us, Happening::Loss(step));
                }
            }
        }
        self.orders_loss(at, Some(id));
    }

    /// A steward has taken the order. It is noted before the repair goes by it.
    pub(super) fn note_loss(&mut self, member: usize, loss: AcceptedLoss, ranges: Vec<WalkPart>) {
        let town = self.town.as_ref().expect("members change");
        let without: Vec<String> = loss.without.iter().map(|(_, url)| url.clone()).collect();
        let is_shown = |shown: &ShownLoss| {
            let is_same = shown.machine == member && shown.plan == Some(loss.plan);
            is_same && shown.ranges == ranges && shown.lost == without
        };
        let is_confirmed = town.loss.confirmed.contains(&loss.id.0);
        if !is_confirmed || !town.loss.shown.get(&loss.id.0).is_some_and(is_shown) {
            let what = format!("m{member} accepts a loss that no operator did: {loss:?}");
            self.violate(Rule::LossUnasked, what);
        }
        let wall_ms = self.members[member].clock.now(self.now_us()).wall_ms;
        if let Some(home) = &mut self.members[member].home {
            let losses = AcceptedLoss::encode_all(home.steward.losses());
            let write = note(LOSSES_KEY, &losses, home.hlc.tick(wall_ms), home.origin);
            home.note = Some((StewardNote::Loss(loss), write));
            self.write_note_of_steward(member);
        }
    }

    /// A process starts: the losses of the plan under way are in force again.
    pub(in crate::world) fn resume_losses(&mut self, member: usize) {
        let home = self.members[member].home.as_ref();
        let losses = home.map(|home| home.steward.losses_in_force().cloned().collect());
        let losses: Vec<AcceptedLoss> = losses.unwrap_or_default();
        for loss in losses {
            if let Some(town) = &mut self.town {
                let is_it = |at: usize, id: DraftId| (at, id) == (member, loss.id);
                let in_force = &mut town.loss.in_force;
                in_force.retain(|it| !is_it(it.machine, it.loss.id));
            }
            self.loss_begins(member, &loss);
        }
    }

    /// A loss is in force at a member from now on.
    pub(super) fn loss_begins(&mut self, member: usize, loss: &AcceptedLoss) {
        self.give_later(member, 0, 0, Event::from(loss));
        let without: BTreeSet<MemberId> = loss.without.iter().map(|(id, _)| *id).collect();
        let left = (0..self.plan.shape.keys.len()).filter_map(|key| {
            let kept = self.kept_of(member, key, &without)?;
            Some((key, self.newest_at(&kept, key)))
        });
        let in_force = LossInForce {
            machine: member,
            from_us: self.now_us(),
            loss: loss.clone(),
            left: left.collect(),
        };
        if let Some(town) = &mut self.town {
            town.loss.in_force.push(in_force);
        }
    }

    /// A block of a member is repaired, and its copies count from now on. Which keys lack something
    /// that was told, because an owner was given up?
    pub(in crate::world) fn repair_ends(&mut self, member: usize, id: u64) {
        let store = self.members[member].store.as_ref();
        let spans = store.map(Store::lost_spans).unwrap_or_default();
        let Some(span) = spans.into_iter().find(|span| span.id == id) else {
            return;
        };
        let without = self.given_up(member, &span);
        let mut in_force = self.in_force(member, &span);
        let Some(loss) = in_force.next().filter(|_| !without.is_empty()) else {
            let too_few = self.is_without_owners(member);
            drop(in_force);
            if too_few {
                let what = format!("m{member} repairs block {id} from too few owners");
                self.violate(Rule::LossUnasked, what);
            }
            return;
        };
        let taken: Vec<TakenLoss> = (0..self.plan.shape.keys.len())
            .filter(|key| {
                let stored = Key::user(&key_name(*key));
                let stored = stored.as_stored();
                span.first.as_ref() <= stored && stored <= span.last.as_ref()
            })
            .filter_map(|key| self.taken_of(member, key, &without, loss))
            .collect();
        drop(in_force);
        let at_us = self.now_us();
        for gone in &taken {
            self.trace.line(at_us, || format!("TAKEN {gone:?}"));
        }
        if let Some(town) = &mut self.town {
            town.loss.taken.extend(taken);
        }
    }

    /// Has a member lost so many other owners of one of its partitions that those left are not
    /// enough for a repair? Their disks were lost before its block was damaged.
    fn is_without_owners(&self, member: usize) -> bool {
        let layout = &self.members[member].lanes[0].layout;
        let copies = usize::from(layout.topology().copies());
        let is_whole = |at: &usize| {
            let town = self.town.as_ref();
            *at != member && town.is_some_and(|town| !town.machines[*at].is_wiped)
        };
        let mut rows = layout.ring().all().map(|partition| {
            let owners = self.owners_in(layout, partition);
            owners[..copies.min(owners.len())].to_vec()
        });
        self.planned_loss().is_some()
            && rows.any(|row| {
                let left = row.iter().filter(|at| is_whole(at)).count();
                row.contains(&member) && left < copies.div_ceil(2)
            })
    }

    /// The losses by which a member repairs this block, the oldest first.
    fn in_force<'a>(
        &'a self,
        member: usize,
        span: &'a LostSpan,
    ) -> impl Iterator<Item = &'a LossInForce> {
        let epoch = self.members[member].lanes[0].layout.epoch();
        let town = self.town.iter();
        town.flat_map(move |town| {
            let record = town.chosen.get(&epoch);
            let plan = record.and_then(|record| record.plan());
            town.loss.in_force.iter().filter(move |it| {
                let is_of_plan =
                    plan.is_some_and(|plan| plan.id == it.loss.plan && !plan.is_cancelled);
                it.machine == member && is_of_plan && it.loss.blocks.contains(&span.block)
            })
        })
    }

    /// The members that were given up for this block, and are lost now.
    fn given_up(&self, member: usize, span: &LostSpan) -> BTreeSet<MemberId> {
        let Some(town) = &self.town else {
            return BTreeSet::new();
        };
        let it = &self.members[member];
        let layout = &it.lanes[0].layout;
        let in_force = self.in_force(member, span);
        let without = in_force.flat_map(|loss| loss.loss.without.iter().map(|(id, _)| *id));
        let is_lost = |id: &MemberId| {
            let leaves = layout.index_of(*id).is_some_and(|at| layout.leaves(at));
            let machine = town.machine_of(*id);
            leaves && machine.is_none_or(|machine| !it.links_up.contains(&machine))
        };
        without.filter(is_lost).collect()
    }

    /// The owners of a key that are left at a member that gives others up. They are named if they
    /// are too few for a repair without an order.
    fn kept_of(
        &self,
        member: usize,
        key: usize,
        without: &BTreeSet<MemberId>,
    ) -> Option<Vec<usize>> {
        let town = self.town.as_ref()?;
        let layout = &self.members[member].lanes[0].layout;
        let partition = layout.ring().partition(&key_name(key));
        let copies = usize::from(layout.topology().copies());
        let owners = layout.ring().owners(partition).iter().take(copies);
        let owners: Vec<MemberId> = owners.filter_map(|at| layout.id_of(*at)).collect();
        let (given, kept): (Vec<MemberId>, Vec<MemberId>) =
            owners.iter().partition(|id| without.contains(id));
        let kept: Vec<usize> = kept.iter().filter_map(|id| town.machine_of(*id)).collect();
        let is_enough = kept.len() > copies.div_ceil(2);
        let is_too_few = !given.is_empty() && kept.contains(&member) && !is_enough;
        is_too_few.then_some(kept)
    }

    fn newest_at(&self, machines: &[usize], key: usize) -> Option<LeftCell> {
        let stored = Key::user(&key_name(key));
        let cells = machines.iter().filter_map(|at| self.cell_of(*at, &stored));
        let newest = cells.max_by_key(|cell| cell.version);
        newest.map(|cell| left(&cell))
    }

    /// The cells that may be gone of a key; `None` when the owners left hold all that was told.
    fn taken_of(
        &self,
        member: usize,
        key: usize,
        without: &BTreeSet<MemberId>,
        loss: &LossInForce,
    ) -> Option<TakenLoss> {
        let kept = self.kept_of(member, key, without)?;
        let ops: Vec<&ClientOp> = self.history.iter().filter(|op| op.key == key).collect();
        let at_us = self.now_us();
        let now = self.newest_at(&kept, key);
        // All owners left have each write that a client was told since. One owner alone may have
        // one that no client was told.
        let left = match (loss.left.get(&key), now) {
            (Some(then), Some(newest)) if !is_told(&ops, at_us, newest.0) => {
                let since = newest_told(&ops, (loss.from_us, at_us), newest.0);
                then.iter().copied().chain(since).max_by_key(|left| left.0)
            }
            _ => now,
        };
        if !is_taken(&ops, at_us, left) {
            return None;
        }
        let stored = Key::new(Space::Protocol, &key_name(key));
        let records = kept.iter().filter_map(|at| self.cell_of(*at, &stored));
        let records: Vec<Cell> = records.collect();
        let refused = ops.iter().filter(|op| {
            matches!(op.end, ClientEnd::Refused { .. })
                && records.iter().any(|record| may_be_of(record, op))
        });
        Some(TakenLoss {
            key,
            at_us,
            left,
            accepted: refused.map(|op| op.number).collect(),
        })
    }

    /// The newest readable cell on the disk of a machine. A cache may still have the damaged block.
    fn cell_of(&self, machine: usize, key: &Key) -> Option<Cell> {
        let it = &self.members[machine];
        let peek = |disk| Store::peek(disk, &self.plan.shape, self.identity(machine), key);
        match &it.store {
            Some(store) if it.is_scrubbed => peek(&store.image()).flatten(),
            Some(store) => store.read(key).ok().flatten(),
            None => peek(&it.disk).flatten(),
        }
    }

    /// May an acknowledged write be gone by a loss that was accepted?
    pub(in crate::world) fn is_given_up(&self, op: &ClientOp) -> bool {
        let ClientEnd::Written(version) = op.end else {
            return false;
        };
        let taken = self.town.iter().flat_map(|town| &town.loss.taken);
        let mut taken = taken.filter(|loss| loss.key == op.key && op.begun_us <= loss.at_us);
        taken.any(|loss| loss.left.is_none_or(|(left, _)| left < version))
    }

    /// Is damage left that other owners mend, or of which the operator was not told?
    pub(super) fn has_damage(&self, member: usize) -> bool {
        let it = &self.members[member];
        let store = it.store.as_ref().filter(|_| it.is_scrubbed);
        store.is_some_and(|store| !it.lost.is_empty() || store.damage_left().is_some())
    }
}

fn left(cell: &Cell) -> LeftCell {
    let value = (cell.kind == Kind::Value).then(|| value_number(&cell.value));
    (cell.version, value.flatten())
}

/// May the proposal in a record of promises be that of a refused write?
fn may_be_of(record: &Cell, op: &ClientOp) -> bool {
    match op.wish {
        Wish::Get => false,
        Wish::Put { value, .. }
        | Wish::Touch {
            seen: SeenValue { value, .. },
        } => {
            let number = value.to_be_bytes();
            record.value.windows(number.len()).any(|at| at == number)
        }
        Wish::Delete { .. } => record.value.len() > PROMISE_BYTES,
    }
}
