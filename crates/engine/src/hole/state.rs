//! How far the drops of holes are: the wait for a flush, and the tables that are done.
//!
//! No part of it is durable: after a crash the drop of each hole begins anew, unless the manifest
//! says that it is over.
//!
//! Invariants
//! 1. A table counts as clean only when a job of this very round made it. Each begin is a round.
//! 2. A job drops for the rounds that it asked for when its inputs were fixed.
//!
//! Not here: which cells go (`mod.rs`), the steps (`tend.rs`).

use super::Hole;
use crate::table::TableMeta;
use crate::waits::hold;
use dendra_base::{CellRef, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// The drops that a job is a part of.
#[derive(Clone, Debug)]
pub(crate) struct DropOrders {
    holes: Vec<(u64, Hole)>,
    /// A client's cell with fewer copies stays.
    copies: u8,
    /// One stayed.
    has_kept: bool,
}

impl DropOrders {
    /// Does this cell go?
    pub(crate) fn has(&mut self, key: &[u8], cell: &CellRef<'_>) -> bool {
        let mut holes = self.holes.iter();
        if !holes.any(|(_, hole)| hole.may_hide(key, cell)) {
            return false;
        }
        let is_of_users = key.first() == Some(&Space::User.byte());
        let stays = is_of_users && cell.copies < self.copies;
        self.has_kept |= stays;
        !stays
    }
}

#[derive(Debug)]
struct Drop {
    round: u64,
    /// The memtables from before are in tables once the log begins here; `None` = not sealed yet.
    log_floor: Option<u64>,
    /// Tables without anything of the hole.
    clean: BTreeSet<u64>,
    /// Tables with a cell that must stay, and must not be seen.
    stuck: BTreeSet<u64>,
    /// The state of the hole (`Hole::as_lost`) that was repaired.
    repaired: Option<u64>,
}

#[derive(Default)]
struct Drops {
    rounds: u64,
    of: BTreeMap<(u64, u64), Drop>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Holes {
    drops: Mutex<Drops>,
}

impl Holes {
    /// A drop begins, or begins anew. Requires: the hole is durable, and in each view from now on.
    pub(crate) fn begin(&self, hole: &Hole) {
        let mut drops = hold(&self.drops);
        drops.rounds += 1;
        let drop = Drop {
            round: drops.rounds,
            log_floor: None,
            clean: BTreeSet::new(),
            stuck: BTreeSet::new(),
            repaired: None,
        };
        drops.of.insert((hole.table, hole.offset), drop);
    }

    /// The hole is gone.
    pub(crate) fn end(&self, hole: &Hole) {
        hold(&self.drops).of.remove(&(hole.table, hole.offset));
    }

    /// The drops under way. Requires: the inputs of the job that asks are fixed.
    pub(crate) fn now(&self, holes: &[Hole], copies: u8) -> Option<DropOrders> {
        let drops = hold(&self.drops);
        let under_way = holes.iter().filter(|hole| !hole.is_dropped);
        let orders: Vec<(u64, Hole)> = under_way
            .filter_map(|hole| {
                let drop = drops.of.get(&(hole.table, hole.offset))?;
                Some((drop.round, hole.clone()))
            })
            .collect();
        (!orders.is_empty()).then_some(DropOrders {
            holes: orders,
            copies,
            has_kept: false,
        })
    }

    /// A job has made these tables.
    pub(crate) fn made(&self, by: Option<&DropOrders>, tables: impl Iterator<Item = u64>) {
        let Some(by) = by else {
            return;
        };
        let mut drops = hold(&self.drops);
        let tables: Vec<u64> = tables.collect();
        for (round, hole) in &by.holes {
            let drop = drops.of.get_mut(&(hole.table, hole.offset));
            if let Some(drop) = drop.filter(|drop| drop.round == *round) {
                if by.has_kept {
                    drop.stuck.extend(&tables);
                } else {
                    drop.clean.extend(&tables);
                }
            }
        }
    }

    /// The newest round that waits for the active memtable to be sealed.
    pub(crate) fn wants_seal(&self) -> Option<u64> {
        let drops = hold(&self.drops);
        let waiting = drops.of.values().filter(|drop| drop.log_floor.is_none());
        waiting.map(|drop| drop.round).max()
    }

    /// All that was written before these rounds is in tables once the log begins at this segment.
    /// Requires: the memtable was sealed after `wants_seal` named the newest of them.
    pub(crate) fn sealed(&self, newest: u64, log_floor: u64) {
        let mut drops = hold(&self.drops);
        let sealed = drops.of.values_mut().filter(|drop| drop.round <= newest);
        for drop in sealed {
            drop.log_floor.get_or_insert(log_floor);
        }
    }

    /// Is all of the hole in tables, and which of these may have something of it? `Stuck` ones too.
    pub(super) fn left<'a>(
        &self,
        hole: &Hole,
        log_floor: u64,
        tables: impl Iterator<Item = &'a TableMeta>,
    ) -> Left {
        let drops = hold(&self.drops);
        let Some(drop) = drops.of.get(&(hole.table, hole.offset)) else {
            return Left::Waits;
        };
        let is_flushed = drop.log_floor.is_some_and(|floor| log_floor >= floor);
        let mut left = if is_flushed {
            Left::Nothing
        } else {
            Left::Waits
        };
        for table in tables {
            if drop.stuck.contains(&table.id) {
                left = Left::Waits;
            } else if hole.may_be_in(table) && !drop.clean.contains(&table.id) {
                return Left::Tables;
            }
        }
        left
    }

    /// Does the drop of this hole wait for this table?
    pub(super) fn wants(&self, hole: &Hole, table: &TableMeta) -> bool {
        let drops = hold(&self.drops);
        let drop = drops.of.get(&(hole.table, hole.offset));
        !hole.is_dropped
            && hole.may_be_in(table)
            && drop.is_some_and(|drop| {
                !drop.clean.contains(&table.id) && !drop.stuck.contains(&table.id)
            })
    }

    /// The other owners' records are here.
    pub(super) fn repaired(&self, hole: &Hole) {
        let mut drops = hold(&self.drops);
        if let Some(drop) = drops.of.get_mut(&(hole.table, hole.offset)) {
            drop.repaired = Some(hole.as_lost().id);
        }
    }

    /// Are they, as of this state of the hole?
    pub(super) fn is_repaired(&self, hole: &Hole) -> bool {
        let drops = hold(&self.drops);
        let drop = drops.of.get(&(hole.table, hole.offset));
        drop.is_some_and(|drop| drop.repaired == Some(hole.as_lost().id))
    }
}

/// The work that a drop still has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Tables are to be written anew.
    Tables,
    /// A memtable is not flushed yet, or a cell that must not be seen must stay.
    Waits,
    /// All that must go is gone.
    Nothing,
}
