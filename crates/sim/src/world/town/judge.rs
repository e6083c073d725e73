//! The rules for epochs, and for copies while positions move.
//!
//! ```text
//! an epoch is durable somewhere     it follows the one before, and is the same everywhere
//! a position settles                its new owner has loaded for this very move; of each record, so
//!                                   many owners hold what was acknowledged that any majority knowledge one
//! a write is acknowledged           as many positions as it says hold it, by its coordinator's epoch
//! the end                           a process that was removed has ended, and its folder stays so; no
//!                                   member holds a value that it is no owner of
//! ```
//!
//! Invariants
//! 1. Stores are looked at directly, past every protocol. A lost disk, and one that cannot be read
//!    now, may have held anything.
//!
//! Not here: the answers to clients (`check/`).

use super::super::names::key_name;
use super::super::state::World;
use crate::check::Rule;
use crate::history::{ClientEnd, ClientOp, Promise};
use crate::store::Disk;
use dendra_base::{Key, Version};
use dendra_ownership::epoch::drive::MoveArrived;
use dendra_ownership::epoch::record::{EpochChange, EpochRecord};
use dendra_ownership::{Layout, Partition};
use std::sync::Arc;

impl World<'_> {
    /// A member has this epoch durable.
    pub(super) fn check_epoch(&mut self, member: usize, record: &Arc<EpochRecord>) {
        let Some(town) = &mut self.town else {
            return;
        };
        if let Some(known) = town.chosen.get(&record.epoch()) {
            if known != record {
                let what = format!("m{member} has another epoch {}", record.epoch());
                self.violate(Rule::Epochs, what);
            }
            return;
        }
        let before = town
            .chosen
            .last_key_value()
            .map(|(_, last)| Arc::clone(last));
        let next = before.as_ref().map_or(1, |before| before.epoch() + 1);
        if record.epoch() != next {
            let what = format!("m{member} skips to epoch {}", record.epoch());
            return self.violate(Rule::Epochs, what);
        }
        match record.change() {
            EpochChange::Planned => town.plans.0 += 1,
            EpochChange::Finished => town.plans.1 += 1,
            EpochChange::Forgot => town.risen += 1,
            _ => {}
        }
        town.chosen.insert(record.epoch(), Arc::clone(record));
        match Layout::of_record(record) {
            Ok(layout) => town.newest = Arc::new(layout),
            Err(bad) => {
                let what = format!("epoch {} has no layout: {bad}", record.epoch());
                return self.violate(Rule::Epochs, what);
            }
        }
        let Some(before) = before else {
            return;
        };
        for partition in before.owners().all() {
            let is_settled = before.moving(partition).is_some()
                && record.moving(partition).is_none()
                && record.change() == EpochChange::Moved;
            if is_settled {
                self.check_settled(&before, record, partition);
            }
        }
    }

    /// A position of this partition has settled.
    fn check_settled(&mut self, before: &EpochRecord, record: &EpochRecord, partition: Partition) {
        let (Some(step), Some(plan)) = (before.moving(partition), before.plan()) else {
            return;
        };
        let plan = plan.id;
        let town = self.town.as_ref().expect("members change");
        if step.moving.to.is_some() {
            let arrived = MoveArrived { plan, step };
            if !town.loads.iter().any(|(load, _)| *load == arrived) {
                let what = format!("{step:?} settles in {} unloaded", record.epoch());
                return self.violate(Rule::Epochs, what);
            }
        }
        let layout = Arc::clone(&town.newest);
        let rf = usize::from(layout.topology().copies());
        let owners = self.owners_in(&layout, partition);
        let owners = &owners[..rf.min(owners.len())];
        let needed = owners.len() - (owners.len() / 2 + 1) + 1;
        for key in 0..self.plan.shape.keys.len() {
            if layout.ring().partition(&key_name(key)) != partition {
                continue;
            }
            let told = self
                .history
                .iter()
                .filter(|op| op.key == key && op.promise == Promise::Linearizable);
            let told = told.filter(|op| !self.is_given_up(op));
            let told = told.filter_map(|op| match op.end {
                ClientEnd::Written(version) => Some(version),
                _ => None,
            });
            let Some(version) = told.max().filter(|version| !self.may_be_gone(*version)) else {
                continue;
            };
            let holders = owners
                .iter()
                .filter(|&&owner| self.holds(owner, key, version))
                .count();
            if holders < needed {
                let what = format!(
                    "{step:?} settles in {}: {version} of key {key} is at {holders} of {owners:?}",
                    record.epoch()
                );
                return self.violate(Rule::Unheld, what);
            }
        }
    }

    /// Horizons rise, and all is well: no member but its owners holds a value. A lowered
    /// replication factor has given its copies back.
    pub(in crate::world) fn judge_surplus(&mut self) {
        let cluster = self.cluster();
        let is_well = |at: &usize| {
            let it = &self.members[*at];
            it.is_running() && !it.is_lost && !it.is_rotten
        };
        if !self.forgets() || !cluster.iter().all(is_well) {
            return;
        }
        let layout = Arc::clone(self.newest());
        let steps_left = layout.narrowing().steps_left();
        if steps_left > 0 {
            let what = format!("a lowered factor waits for {steps_left} steps");
            return self.violate(Rule::Surplus, what);
        }
        let factor = layout.topology().copies();
        let now_us = self.now_us();
        let walls = self.members.iter().map(|it| it.clock.now(now_us).wall_ms);
        let wall_ms = walls.max().unwrap_or(0);
        for key in 0..self.plan.shape.keys.len() {
            let owners = self.owners(key);
            for &member in &cluster {
                let store = self.members[member].store.as_ref();
                let cell = store.and_then(|store| store.read(&Key::user(&key_name(key))).ok());
                let Some(cell) = cell.flatten().filter(|cell| cell.as_ref().is_live(wall_ms))
                else {
                    continue;
                };
                let copies = usize::from(layout.copies_of(&cell.as_ref()).max(factor));
                if !owners[..copies.min(owners.len())].contains(&member) {
                    let what = format!(
                        "m{member} holds key {key} with {} copies, and its owners are {owners:?}: \
                         {copies} count",
                        cell.copies
                    );
                    self.violate(Rule::Surplus, what);
                }
            }
        }
    }

    /// May a delete of this version be gone? Its age is not below its version.
    pub(in crate::world) fn may_be_gone(&self, version: Version) -> bool {
        version.hlc <= self.newest().horizons().purge()
    }

    /// Does a machine hold this version of a key, or a newer one? If that cannot be known, it
    /// counts.
    fn holds(&self, machine: usize, key: usize, version: Version) -> bool {
        let it = &self.members[machine];
        if it.is_lost {
            return true;
        }
        let key = Key::user(&key_name(key));
        let cell = match (&it.store, &it.disk) {
            (Some(store), _) => store.read(&key),
            (None, Disk::Cells(cells)) => cells.peek(&key),
            (None, Disk::Folder(_)) => return true,
        };
        cell.map_or(true, |cell| {
            cell.is_some_and(|cell| cell.version >= version)
        })
    }

    /// A write was acknowledged at a loop: so many positions of its epoch hold it.
    pub(in crate::world) fn check_held(&mut self, number: u32, lane: usize) {
        if self.town.is_none() {
            return;
        }
        let op: &ClientOp = self.op(number);
        let ClientEnd::Written(version) = op.end else {
            return;
        };
        let (member, key) = (op.member, op.key);
        let (ack, from) = (usize::from(op.ack), usize::from(op.from));
        let Some(layout) = self.members[member]
            .lanes
            .get(lane)
            .map(|it| Arc::clone(&it.layout))
        else {
            return;
        };
        // A lowered factor has changed the owners beyond it.
        let factor = usize::from(layout.topology().copies());
        if factor < self.plan.shape.copies && from > factor {
            return;
        }
        let partition = layout.ring().partition(&key_name(key));
        let twin = layout.twin(partition);
        let owners = self.owners_in(&layout, partition);
        let holders = (0..from.min(owners.len())).filter(|&place| {
            let twin = twin.filter(|twin| usize::from(twin.place) == place);
            let twin = twin.and_then(|twin| self.machine_in(&layout, twin.member));
            self.holds(owners[place], key, version)
                && twin.is_none_or(|twin| self.holds(twin, key, version))
        });
        let holders = holders.count();
        if holders < ack {
            let what = format!(
                "{holders} of {owners:?} (twin {twin:?}, epoch {}) hold {:?}",
                layout.epoch(),
                self.op(number)
            );
            self.violate(Rule::Unheld, what);
        }
    }
}
