//! The rules that each new epoch of a search must keep.
//!
//! Invariants
//! 1. Each epoch has one record, and follows the one before.
//! 2. No position settles before its new owner has loaded for this very move. One that is taken
//!    away settles no earlier than a majority of its owners has the epoch.
//! 3. Horizons rise when each member has confirmed the epoch before, and not below its clock.

use super::{Reached, Search};
use dendra_ownership::epoch::drive::MoveArrived;
use dendra_ownership::epoch::record::{EpochChange, EpochRecord, MemberStatus};
use dendra_ownership::ring::Partition;
use dendra_ownership::ring::table::MemberId;
use std::sync::Arc;

impl Search {
    /// A member has this epoch durable.
    pub(super) fn check(&mut self, id: MemberId, record: &Arc<EpochRecord>) {
        if let Some(known) = self.chosen.get(&record.epoch()) {
            if known != record {
                self.fail(format!("{id} has another epoch {}", record.epoch()));
            }
            return;
        }
        let before = self.newest();
        if before.epoch() + 1 != record.epoch() {
            return self.fail(format!("{id} skips to epoch {}", record.epoch()));
        }
        self.chosen.insert(record.epoch(), Arc::clone(record));
        for partition in before.owners().all() {
            self.check_settled(&before, record, partition);
        }
        match record.change() {
            EpochChange::Forgot => {
                self.reached.push(Reached::Rise);
                self.check_risen(&before, record);
            }
            EpochChange::Planned => self.reached.push(Reached::Plan),
            EpochChange::Cancelled => self.reached.push(Reached::Cancel),
            EpochChange::Finished => {
                if before.members().len() > record.members().len() {
                    self.reached.push(Reached::Removal);
                }
                let has_joined = before.with(MemberStatus::Joining).count() > 0;
                let has_left = before.with(MemberStatus::Leaving).count() > 0;
                if has_joined && has_left {
                    self.reached.push(Reached::Replacement);
                }
            }
            _ => {}
        }
    }

    /// Each member has confirmed the epoch before, with a clock that is not above the floor.
    fn check_risen(&mut self, before: &EpochRecord, record: &EpochRecord) {
        let floor = record.horizons().floor();
        for member in before.members() {
            let confirmed = self.machines.get(&member.id).map(|it| it.confirmed);
            let is_there =
                confirmed.is_some_and(|(epoch, clock)| epoch == before.epoch() && clock <= floor);
            if !is_there {
                self.fail(format!(
                    "horizons rise to {floor} in epoch {}: {} has {confirmed:?}",
                    record.epoch(),
                    member.id
                ));
            }
        }
    }

    fn check_settled(&mut self, before: &EpochRecord, record: &EpochRecord, partition: Partition) {
        let Some(step) = before.moving(partition) else {
            return;
        };
        let is_settled =
            record.moving(partition).is_none() && record.change() == EpochChange::Moved;
        let Some(plan) = before.plan().filter(|_| is_settled).map(|plan| plan.id) else {
            return;
        };
        let began = self.chosen.values().rev().skip(1);
        let began = began
            .take_while(|r| r.moving(partition) == Some(step))
            .last();
        let began = began.map_or(0, |record| record.epoch());
        if step.moving.to.is_some() {
            let arrived = MoveArrived { plan, step };
            let is_loaded = |(of, since): &(MoveArrived, u64)| *of == arrived && *since >= began;
            if !self.loads.iter().any(is_loaded) {
                self.fail(format!("{step:?} settles in {} unloaded", record.epoch()));
            }
            return;
        }
        let owners = before.owners().owners(partition);
        let has = |id: &&MemberId| {
            let newest = self
                .machines
                .get(id)
                .and_then(|m| m.epochs.last_key_value());
            newest.is_some_and(|(epoch, _)| *epoch >= began)
        };
        if 2 * owners.iter().filter(has).count() <= owners.len() {
            self.fail(format!(
                "{step:?} settles in {} without fences",
                record.epoch()
            ));
        }
    }
}
