//! Touches in the log: records that refer to the value of an earlier version of their key.
//!
//! ```text
//! commit   touch ── the key's value, of the version that it names ─► whole cell ─► memtable
//!            └─ as it is ─► log: some 70 bytes, also for a value of 1 MiB
//! replay   touch ── what was replayed before, else a table ─► whole cell ─► memtable ─► table
//!            └─ no such value ─► a cell that fails its checksum: damage of that key
//! ```
//!
//! A table holds whole cells alone. So repeated touches of a key cost its value once for each
//! flush, and not once for each touch.
//!
//! Invariants
//! 1. While a replay needs a touch, its value is in a record in front of it in the log, or in a
//!    table. A table loses a value in three ways:
//!    * a newer version takes its place. The touch was written when the value was the newest, so
//!      that version is newer than the touch, too, and makes it void;
//!    * it has ended for everybody (`Engine::set_ended_ms`). Merges leave all values that end at or
//!      after the earliest end to which an unflushed memtable refers (`Engine::ended_by`). A
//!      memtable that holds values back so is sealed at once. A merge under way began with a time
//!      that is an hour behind the clocks, and no coordinator touches a value that ended then.
//!      What is left of a touched value that ended is not purged while the touch is in the log
//!      (`Log::oldest`);
//!    * its records belong to other folders now (`foreign.rs`). Then the key's touch does, too.
//! 2. A touch is never dropped in silence. If its value cannot be found, the key gets a cell with
//!    the touch's version and checksum and no value: reads say that it is damaged, and in a cluster
//!    it is repaired from other owners like any damaged copy. For a value of no bytes that cell is
//!    whole, and right.
//! 3. A commit makes at most `memtable_bytes` of whole cells out of touches; the touches behind
//!    them are refused (`WriteOutcome::Crowded`).
//!
//! Not here: the commit itself (`commit.rs`), the bytes (crate `base`, `touch.rs`).
//! See: docs/format/wal.md, docs/locks.md.

use crate::batch::BatchWrite;
use crate::cache::BlockCache;
use crate::vfs::Wait;
use crate::view::{Lookup, View};
use crate::{Error, Result};
use dendra_base::{CellRef, Guard, Kind, Touch, Version};

/// A key's newest cell, as far as a guard needs it.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    pub(crate) version: Version,
    pub(crate) is_live: bool,
}

impl Current {
    pub(crate) fn of(cell: &CellRef<'_>, now_ms: u64) -> Current {
        Current {
            version: cell.version,
            is_live: cell.is_live(now_ms),
        }
    }

    /// The one that stays; this one when both have the same version.
    pub(crate) fn newest(self, other: Current) -> Current {
        if other.version.is_newer_than(self.version) {
            other
        } else {
            self
        }
    }
}

/// A whole cell that a touch becomes.
#[derive(Debug)]
pub(crate) struct Touched {
    /// The cell, encoded.
    pub(crate) encoded: Vec<u8>,
    /// The end of the value to which the touch refers.
    pub(crate) end_ms: Option<u64>,
}

impl Touched {
    pub(crate) fn cell(&self) -> CellRef<'_> {
        CellRef::decode(&self.encoded).expect("it was encoded here")
    }

    pub(crate) fn bytes(&self) -> usize {
        self.encoded.len()
    }
}

/// A key's newest cell, as a touch finds it.
pub(crate) struct TouchBase {
    pub(crate) current: Current,
    /// Is its value the one to which the touch refers?
    pub(crate) is_wanted: bool,
    /// The cell with that value, if it matches its checksum. Its version is that of the touch.
    pub(crate) touched: Option<Touched>,
}

/// Looks at the newest cell of a key for the touch `touch`, pushed as `op`.
pub(crate) fn look(
    stored_key: &[u8],
    touch: &Touch,
    op: &BatchWrite,
    stored: &CellRef<'_>,
) -> TouchBase {
    let current = Current::of(stored, op.now_ms);
    let is_wanted = match op.guard {
        Guard::If(_) => current.is_live,
        Guard::Newest => {
            stored.kind == Kind::Value
                && stored.version == touch.of
                && stored.checksum == touch.checksum
        }
    };
    let is_whole = is_wanted && stored.is_intact(stored_key);
    let touched = is_whole.then(|| Touched {
        encoded: encoded(&CellRef {
            checksum: stored.checksum,
            ..touch.with(stored.value)
        }),
        end_ms: stored.expiry_ms,
    });
    TouchBase {
        current,
        is_wanted,
        touched,
    }
}

/// The cell that a touch becomes in a replay, encoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReplayedTouch {
    /// The key has this version, or a newer one, already.
    Void,
    /// A whole cell.
    Whole(Vec<u8>),
    /// The value is not there: a cell that fails its checksum.
    Damaged(Vec<u8>),
}

/// The whole cell of `touch`, if `stored` has the value to which it refers.
fn whole(stored_key: &[u8], touch: &Touch, stored: &CellRef<'_>) -> Option<Vec<u8>> {
    let is_it = stored.kind == Kind::Value
        && stored.version == touch.of
        && stored.checksum == touch.checksum
        && stored.is_intact(stored_key);
    is_it.then(|| encoded(&touch.with(stored.value)))
}

fn encoded(cell: &CellRef<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(cell.encoded_len());
    cell.encode(&mut bytes);
    bytes
}

/// Looks up the value of a touch that the log holds, in what was replayed before and in tables.
pub(crate) fn replay(
    view: &View,
    cache: &BlockCache,
    stored_key: &[u8],
    touch: &Touch,
) -> Result<ReplayedTouch> {
    let pass = |_: &Error| {};
    let damaged = || ReplayedTouch::Damaged(encoded(&touch.with(b"")));
    let looked_up = view.get(cache, stored_key, Wait::Block, pass, |stored| {
        if !touch.version.is_newer_than(stored.version) {
            return ReplayedTouch::Void;
        }
        whole(stored_key, touch, &stored).map_or_else(damaged, ReplayedTouch::Whole)
    });
    match looked_up {
        Ok(Lookup::Cell(replayed)) => Ok(replayed),
        Ok(Lookup::Nothing | Lookup::WouldBlock) | Err(Error::Damaged { .. }) => Ok(damaged()),
        Err(error) => Err(error),
    }
}
