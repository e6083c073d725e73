//! Records that belong to other folders now: which ones, and which tables may still hold some.
//!
//! ```text
//! drop_foreign ─► the memtables are sealed and flushed ─► each table is written anew, the deepest
//!                 first; flushes and compactions leave foreign records out  ─► nothing is left
//! keep_foreign    ends it at any point: what is written from now on stays
//!
//! a foreign record       in this job
//! value without an end   goes
//! any other              waits while another table holds an older record of its key; then it goes
//! ```
//!
//! Invariants
//! 1. A job leaves out only records that were in its inputs before `keep_foreign`. The inputs are
//!    fixed first, then the job asks which records are foreign.
//! 2. A table counts as clean only when a job of this very order made it, and no record in it
//!    waits.
//! 3. No part of it is durable. A crash ends the order, and the caller gives it again.
//! 4. No table, at any moment, shows a record that a delete or an ended value hid when the order
//!    began. The owners may have purged that delete: the folder, or a backup of it, would bring
//!    the record back. A value without an end needs no such care. While this folder shows it, it is
//!    a stray, and no delete above it is purged.
//! 5. A drop ends. Of each key the oldest record never waits. A table whose records wait is written
//!    again only after a job that changed something.
//!
//! Not here: which records are foreign (the caller), the choice of tables (`background.rs`).
//! See: docs/protocol.md, "Strays".

use crate::cache::BlockCache;
use crate::table::{First, TableMeta, key_hash};
use crate::tree::Tree;
use crate::vfs::Wait;
use crate::waits::hold;
use crate::{Error, Result};
use dendra_base::{CellRef, Kind, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};

/// Is this record, by its stored key and cell, foreign?
pub type IsForeign = dyn Fn(&[u8], &CellRef<'_>) -> bool + Send + Sync;

/// The order as a job knows it.
#[derive(Clone)]
pub(crate) struct ForeignRecords {
    number: u64,
    is_foreign: Arc<IsForeign>,
    /// All records of before the order are in the tables that the job knows. Never of a flush.
    is_flushed: bool,
    cache: Arc<BlockCache>,
}

/// How a job treats a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Written: the record belongs here.
    Stays,
    /// Written, and goes later: the record hides an older one in another table.
    Waits,
    /// Left out.
    Goes,
}

/// The outcome of a job for the order.
pub(crate) struct ForeignJob<'a> {
    pub(crate) inputs: &'a [u64],
    /// Tables that the job made in which a record waits.
    pub(crate) waiting: &'a BTreeSet<u64>,
    /// How many records it left out.
    pub(crate) gone: u64,
    /// True when the job wrote a damaged table anew: records below could not be looked up before.
    pub(crate) is_mend: bool,
}

impl fmt::Debug for ForeignRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignRecords({})", self.number)
    }
}

impl ForeignRecords {
    /// How a job over `inputs` of `tree` treats this record.
    pub(crate) fn leaving(
        &self,
        key: &[u8],
        cell: &CellRef<'_>,
        inputs: &[u64],
        tree: &Tree,
    ) -> Result<Leaving> {
        if !(self.is_foreign)(key, cell) {
            return Ok(Leaving::Stays);
        }
        if cell.kind == Kind::Value && cell.expiry_ms.is_none() {
            return Ok(Leaving::Goes);
        }
        if !self.is_flushed {
            return Ok(Leaving::Waits);
        }
        let hash = key_hash(key);
        let mut leaving = Leaving::Goes;
        for table in tree.others_with_older(inputs, key, cell.version) {
            let any = Version::ZERO;
            match table.get(&self.cache, key, hash, any, First::Filter, Wait::Block) {
                Ok(None) => {}
                Ok(Some(found)) if !cell.version.is_newer_than(found.version()) => {}
                // It belongs here, and must stay hidden.
                Ok(Some(found)) if !(self.is_foreign)(key, &found.cell()) => {
                    return Ok(Leaving::Stays);
                }
                // The order waits for the repair of a damaged table anyhow.
                Ok(Some(_)) | Err(Error::Damaged { .. }) => leaving = Leaving::Waits,
                Err(error) => return Err(error),
            }
        }
        Ok(leaving)
    }
}

#[derive(Default)]
struct Dropping {
    orders: u64,
    now: Option<Arc<IsForeign>>,
    /// Ids of tables that jobs of this order made, without a record that waits.
    clean: BTreeSet<u64>,
    /// The others that they made once all was flushed, with the number of steps at that time.
    waiting: BTreeMap<u64, u64>,
    /// Jobs of this order after which a record that waits may go.
    steps: u64,
    /// The memtables from before are in tables once the log begins here; `None` = not sealed yet.
    log_floor: Option<u64>,
}

impl Dropping {
    fn is_flushed(&self, log_floor: u64) -> bool {
        self.now.is_some() && self.log_floor.is_some_and(|floor| log_floor >= floor)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Foreign {
    dropping: Mutex<Dropping>,
}

impl Foreign {
    pub(crate) fn begin(&self, is_foreign: Arc<IsForeign>) {
        let mut dropping = hold(&self.dropping);
        *dropping = Dropping {
            orders: dropping.orders + 1,
            now: Some(is_foreign),
            ..Dropping::default()
        };
    }

    pub(crate) fn end(&self) {
        let mut dropping = hold(&self.dropping);
        *dropping = Dropping {
            orders: dropping.orders,
            ..Dropping::default()
        };
    }

    pub(crate) fn is_under_way(&self) -> bool {
        hold(&self.dropping).now.is_some()
    }

    /// The order under way. Requires: the inputs of the job that asks are fixed. `flushed` = the
    /// order that was flushed before they were; `None` for a flush.
    pub(crate) fn now(
        &self,
        flushed: Option<u64>,
        cache: &Arc<BlockCache>,
    ) -> Option<ForeignRecords> {
        let dropping = hold(&self.dropping);
        Some(ForeignRecords {
            number: dropping.orders,
            is_foreign: Arc::clone(dropping.now.as_ref()?),
            is_flushed: flushed == Some(dropping.orders),
            cache: Arc::clone(cache),
        })
    }

    /// The order whose memtables are all in tables, if the log begins at this segment.
    pub(crate) fn flushed(&self, log_floor: u64) -> Option<u64> {
        let dropping = hold(&self.dropping);
        dropping.is_flushed(log_floor).then_some(dropping.orders)
    }

    /// The order that waits for the active memtable to be sealed.
    pub(crate) fn wants_seal(&self) -> Option<u64> {
        let dropping = hold(&self.dropping);
        let is_wanted = dropping.now.is_some() && dropping.log_floor.is_none();
        is_wanted.then_some(dropping.orders)
    }

    /// All that was written before this order is in tables once the log begins at this segment.
    /// Requires: the memtable was sealed after `wants_seal` named the order.
    pub(crate) fn sealed(&self, order: u64, log_floor: u64) {
        let mut dropping = hold(&self.dropping);
        if dropping.now.is_some() && dropping.orders == order {
            dropping.log_floor.get_or_insert(log_floor);
        }
    }

    /// A job has made these tables.
    pub(crate) fn made(
        &self,
        by: Option<&ForeignRecords>,
        job: &ForeignJob<'_>,
        tables: impl Iterator<Item = u64>,
    ) {
        let mut dropping = hold(&self.dropping);
        let is_under_way = dropping.now.is_some();
        dropping.steps += u64::from(is_under_way && job.is_mend);
        let by = by.filter(|by| is_under_way && by.number == dropping.orders);
        let Some(by) = by else {
            return;
        };
        let is_new = |id: &u64| !dropping.clean.contains(id) && !dropping.waiting.contains_key(id);
        let is_first = job.inputs.iter().any(is_new);
        if is_first || (job.gone > 0 && !job.inputs.is_empty()) {
            dropping.steps += 1;
        }
        let steps = dropping.steps;
        for id in tables {
            if !job.waiting.contains(&id) {
                dropping.clean.insert(id);
            } else if by.is_flushed {
                dropping.waiting.insert(id, steps);
            }
        }
    }

    /// Is this table to be written anew now? `false` without an order. Requires: the memtables of
    /// the order are flushed.
    pub(crate) fn wants(&self, table: &TableMeta) -> bool {
        let dropping = hold(&self.dropping);
        let waits = |steps: &u64| *steps >= dropping.steps;
        dropping.now.is_some()
            && !dropping.clean.contains(&table.id)
            && !dropping.waiting.get(&table.id).is_some_and(waits)
    }

    /// How many memtables and tables may still hold some; `None` without an order.
    pub(crate) fn left(&self, log_floor: u64, tables: impl Iterator<Item = u64>) -> Option<usize> {
        let dropping = hold(&self.dropping);
        dropping.now.as_ref()?;
        let unclean = tables.filter(|id| !dropping.clean.contains(id)).count();
        Some(unclean + usize::from(!dropping.is_flushed(log_floor)))
    }
}
