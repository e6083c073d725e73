//! Records that belong to other folders now: which ones, and which tables may still hold some.
//!
//! ```text
//! drop_foreign ─► the memtables are sealed and flushed ─► each other table is written anew, once
//!                 flushes and compactions leave foreign records out          ─► nothing is left
//! keep_foreign    ends it at any point: what is written from now on stays
//! ```
//!
//! Invariants
//! 1. A job leaves out only records that were in its inputs before `keep_foreign`: the inputs are
//!    fixed first, then the job asks which records are foreign.
//! 2. A table counts as clean only when a job of this very order made it.
//! 3. Nothing of it is durable. A crash ends the order, and the caller gives it again.
//!
//! Not here: which records are foreign (the caller), the choice of tables (`background.rs`).

use crate::table::TableMeta;
use crate::waits::hold;
use dendra_base::CellRef;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Is this record, by its stored key and cell, foreign?
pub type IsForeign = dyn Fn(&[u8], &CellRef<'_>) -> bool + Send + Sync;

/// The order as a job knows it.
#[derive(Clone)]
pub(crate) struct ForeignRecords {
    number: u64,
    is_foreign: Arc<IsForeign>,
}

impl fmt::Debug for ForeignRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignRecords({})", self.number)
    }
}

impl ForeignRecords {
    pub(crate) fn has(&self, key: &[u8], cell: &CellRef<'_>) -> bool {
        (self.is_foreign)(key, cell)
    }
}

#[derive(Default)]
struct Dropping {
    orders: u64,
    now: Option<ForeignRecords>,
    /// Ids of tables that jobs of this order made.
    clean: BTreeSet<u64>,
    /// The memtables from before are in tables once the log begins here; `None` = not sealed yet.
    log_floor: Option<u64>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Foreign {
    dropping: Mutex<Dropping>,
}

impl Foreign {
    pub(crate) fn begin(&self, is_foreign: Arc<IsForeign>) {
        let mut dropping = hold(&self.dropping);
        let number = dropping.orders + 1;
        *dropping = Dropping {
            orders: number,
            now: Some(ForeignRecords { number, is_foreign }),
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

    /// The order under way. Requires: the inputs of the job that asks are fixed.
    pub(crate) fn now(&self) -> Option<ForeignRecords> {
        hold(&self.dropping).now.clone()
    }

    /// The order that waits for the active memtable to be sealed.
    pub(crate) fn wants_seal(&self) -> Option<u64> {
        let dropping = hold(&self.dropping);
        let now = dropping.now.as_ref()?;
        dropping.log_floor.is_none().then_some(now.number)
    }

    /// All that was written before this order is in tables once the log begins at this segment.
    /// Requires: the memtable was sealed after `wants_seal` named the order.
    pub(crate) fn sealed(&self, order: u64, log_floor: u64) {
        let mut dropping = hold(&self.dropping);
        if dropping.now.as_ref().is_some_and(|now| now.number == order) {
            dropping.log_floor.get_or_insert(log_floor);
        }
    }

    /// A job has made these tables.
    pub(crate) fn made(&self, by: Option<&ForeignRecords>, tables: impl Iterator<Item = u64>) {
        let mut dropping = hold(&self.dropping);
        let now = dropping.now.as_ref().map(|now| now.number);
        if by.is_some_and(|by| Some(by.number) == now) {
            dropping.clean.extend(tables);
        }
    }

    /// May this table hold foreign records? `false` without an order.
    pub(crate) fn may_be_in(&self, table: &TableMeta) -> bool {
        let dropping = hold(&self.dropping);
        dropping.now.is_some() && !dropping.clean.contains(&table.id)
    }

    /// How many memtables and tables may still hold some; `None` without an order.
    pub(crate) fn left(&self, log_floor: u64, tables: impl Iterator<Item = u64>) -> Option<usize> {
        let dropping = hold(&self.dropping);
        dropping.now.as_ref()?;
        let is_flushed = dropping.log_floor.is_some_and(|floor| log_floor >= floor);
        let unclean = tables.filter(|id| !dropping.clean.contains(id)).count();
        Some(unclean + usize::from(!is_flushed))
    }
}
