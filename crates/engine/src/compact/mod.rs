//! Compaction: fewer, larger, disjoint tables without shadowed cells.
//!
//! ```text
//! pick   levels ─► Plan        pure: which tables, into which level, and why
//! run    Plan ─► new tables    resumable: one bounded slice at a time
//! ```
//!
//! Invariants
//! 1. A plan's inputs hold every table of the output level that overlaps them, so that the output
//!    level stays disjoint.
//! 2. A cell is dropped only in two cases. A newer one of its key stays; or it is a tombstone or
//!    expired, purgeable, and no older cell of its key exists anywhere else.
//!
//! Not here: installing the result (`engine.rs`), pacing (the server).
//! See: docs/decisions/0003-engine-owns-no-thread.md.

pub(crate) mod pick;
pub(crate) mod run;
