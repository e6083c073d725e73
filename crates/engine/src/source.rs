//! Sorted sources of records: the face of the memtable, a table and a whole level for scans and
//! compactions.
//!
//! Invariants
//! 1. A source shows each key once, in strictly rising (forward) or falling (backward) order.
//! 2. A source is positioned by `seek` and then only moves on in the direction of that seek.
//!
//! Not here: merging of several sources (`merge.rs`).

use crate::Result;
use dendra_base::{CellRef, Direction};
use std::ops::Bound;

/// A sorted stream of records that can be positioned.
pub(crate) trait Source {
    /// Stands on the first record inside `bound`, seen in `direction`. Forward it is the smallest
    /// key at or after the bound, backward the largest key at or before it. `Unbounded` = the very
    /// first in that direction.
    fn seek(&mut self, bound: Bound<&[u8]>, direction: Direction) -> Result<()>;
    /// The record it stands on; `None` when exhausted or never positioned.
    fn current(&self) -> Option<(&[u8], CellRef<'_>)>;
    /// Moves on in the direction of the last seek. Requires: `current` is `Some`.
    fn advance(&mut self) -> Result<()>;
}
