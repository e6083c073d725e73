//! Which of the moves under way have arrived, as far as this member knows.
//!
//! ```text
//! a position gets an owner     the new owner says so: it has loaded, behind the fences of its sources
//! a position is taken away     a majority of the partition's owners has the epoch in which it began
//! ```
//!
//! A position that is taken away needs a majority of fences. Without them a coordinator that knows
//! an older row of five owners could find a majority among owners that were taken away since.
//!
//! Invariants
//! 1. Each report is of a move that is under way in the newest epoch, under its plan, from the
//!    member to which it goes. So there are no more of them than partitions.
//! 2. A report of an earlier move of the same partition to the same member does not count.
//!
//! Not here: loading (crate `node`, `loader.rs`), the step that follows (`epoch/drive.rs`).

use crate::epoch::drive::MoveArrived;
use crate::epoch::record::EpochRecord;
use crate::ring::Partition;
use crate::ring::table::MemberId;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// The epoch in which each move under way began, or a later one.
    began: BTreeMap<Partition, u64>,
    arrived: Vec<MoveArrived>,
    /// The newest epoch that each member told of. It is durable there.
    epochs: BTreeMap<MemberId, u64>,
}

impl Arrivals {
    /// From the newest epoch of a folder. The folder does not tell when its moves began: they count
    /// from this epoch on.
    pub(super) fn of(record: &EpochRecord) -> Arrivals {
        let moving = record.owners().all();
        let moving = moving.filter(|partition| record.moving(*partition).is_some());
        Arrivals {
            began: moving.map(|p| (p, record.epoch())).collect(),
            ..Arrivals::default()
        }
    }

    /// `after` follows `before`.
    pub(super) fn adopt(&mut self, before: &EpochRecord, after: &EpochRecord) {
        let plan = |record: &EpochRecord| record.plan().map(|plan| plan.id);
        let is_same_plan = plan(before) == plan(after);
        let mut began = BTreeMap::new();
        for partition in after.owners().all() {
            let Some(step) = after.moving(partition) else {
                continue;
            };
            let is_same = is_same_plan && before.moving(partition) == Some(step);
            let since = self.began.get(&partition).filter(|_| is_same);
            began.insert(partition, since.copied().unwrap_or(after.epoch()));
        }
        self.began = began;
        self.arrived.retain(|arrived| is_under_way(after, arrived));
        self.epochs
            .retain(|member, _| after.member(*member).is_some());
    }

    /// `member` told that this epoch is durable there.
    pub(super) fn told(&mut self, member: MemberId, epoch: u64) {
        let known = self.epochs.entry(member).or_default();
        *known = epoch.max(*known);
    }

    /// The newest epoch that a member told of.
    pub(super) fn epoch_of(&self, member: MemberId) -> Option<u64> {
        self.epochs.get(&member).copied()
    }

    /// The newest epoch that any of them told of.
    pub(super) fn newest_told(&self) -> u64 {
        self.epochs.values().max().copied().unwrap_or(0)
    }

    /// `from` says that these moves to it have arrived.
    pub(super) fn report(
        &mut self,
        record: &EpochRecord,
        from: MemberId,
        arrived: impl IntoIterator<Item = MoveArrived>,
    ) {
        for report in arrived {
            let is_its = report.step.moving.to == Some(from);
            if is_its && is_under_way(record, &report) && !self.arrived.contains(&report) {
                self.arrived.push(report);
            }
        }
    }

    /// The loops of `me` have loaded these partitions for the layout of `epoch`.
    pub(super) fn loaded(
        &mut self,
        record: &EpochRecord,
        me: MemberId,
        epoch: u64,
        partitions: &[Partition],
    ) {
        let Some(plan) = record.plan().map(|plan| plan.id) else {
            return;
        };
        let is_of_move = |p: &&Partition| self.began.get(p).is_some_and(|began| epoch >= *began);
        let steps = partitions.iter().filter(is_of_move);
        let steps = steps.filter_map(|partition| record.moving(*partition));
        let reports: Vec<_> = steps.map(|step| MoveArrived { plan, step }).collect();
        self.report(record, me, reports);
    }

    /// The reports of `me` that the others have to know.
    pub(super) fn of_member(&self, me: MemberId) -> Vec<MoveArrived> {
        let arrived = self.arrived.iter();
        let own = arrived.filter(|arrived| arrived.step.moving.to == Some(me));
        own.copied().collect()
    }

    /// All moves that have arrived. `own` is the member that asks.
    pub(super) fn all(&self, record: &EpochRecord, own: MemberId) -> Vec<MoveArrived> {
        let mut all = self.arrived.clone();
        let Some(plan) = record.plan().map(|plan| plan.id) else {
            return all;
        };
        for (partition, began) in &self.began {
            let step = record.moving(*partition);
            let Some(step) = step.filter(|step| step.moving.to.is_none()) else {
                continue;
            };
            if self.lacking(record, own, (*partition, *began)).is_empty() {
                all.push(MoveArrived { plan, step });
            }
        }
        all
    }

    /// The owners that have not told of the epoch in which their position began to be taken away,
    /// while they are half of all or more.
    fn lacking(
        &self,
        record: &EpochRecord,
        own: MemberId,
        (partition, began): (Partition, u64),
    ) -> Vec<MemberId> {
        let owners = record.owners().owners(partition);
        let has = |owner: &MemberId| *owner == own || self.epoch_of(*owner) >= Some(began);
        let lacking: Vec<MemberId> = owners.iter().copied().filter(|it| !has(it)).collect();
        if 2 * lacking.len() < owners.len() {
            return Vec::new();
        }
        lacking
    }

    /// The members whose fences the positions that are being taken away wait for.
    pub(super) fn fences_lacked(&self, record: &EpochRecord, own: MemberId) -> Vec<MemberId> {
        let shrinks = |p: &Partition| {
            let step = record.moving(*p);
            step.is_some_and(|step| step.moving.to.is_none())
        };
        let shrinking = self
            .began
            .iter()
            .filter(|(partition, _)| shrinks(partition));
        let lacked = shrinking.flat_map(|(p, began)| self.lacking(record, own, (*p, *began)));
        let mut lacked: Vec<MemberId> = lacked.collect();
        lacked.sort_unstable();
        lacked.dedup();
        lacked
    }

    /// Does a position that is being taken away wait for the fence of `member`?
    pub(super) fn wants_fence_of(&self, record: &EpochRecord, member: MemberId) -> bool {
        self.began.keys().any(|partition| {
            let step = record.moving(*partition);
            step.is_some_and(|step| step.moving.to.is_none())
                && record.owners().owners(*partition).contains(&member)
        })
    }
}

fn is_under_way(record: &EpochRecord, report: &MoveArrived) -> bool {
    let partition = report.step.partition;
    record.plan().is_some_and(|plan| plan.id == report.plan)
        && partition.0 < record.partitions()
        && record.moving(partition) == Some(report.step)
}
