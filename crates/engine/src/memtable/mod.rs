//! The newest writes, in memory and sorted: one writer, any number of readers without a lock.
//!
//! ```text
//!            bucket ──► node ──► node            a hash chain, for point reads
//!  head                  │
//!   3 ───────────────────┼──────────────► ·      towers, for order: a node of height h hangs in
//!   2 ──────► node ──────┼──────────────► ·      levels 0 ..= h-1, one in four climbs higher
//!   1 ──────► node ──► node ────────────► ·
//!   0 ► node► node ──► node ──► node ───► ·
//!              │cell     │cell    │cell
//!              ▼         ▼        ▼
//!            record    record   record           a newer record replaces the pointer, never a node
//! ```
//!
//! Invariants
//! 1. One node per key. A node is in the table exactly when its cell pointer is set. That store
//!    (release) makes an insert visible at once to point reads and scans alike (acquire).
//! 2. A key's cell only ever gets newer (`Version::is_newer_than`); equal or older ones are
//!    ignored.
//! 3. Nodes and records never move and are never freed before the whole table.
//! 4. Each version that a reader sees lies within `version_min ..= version_max` read afterwards.
//! 5. Only the `Inserter` writes, and there is one per table: it is neither `Clone` nor public to
//!    make.
//!
//! Not here: when a table is full, sealed and flushed (`engine.rs`); the log in front of it
//! (`wal`).
//! See: docs/decisions/0001-one-merge-rule.md; leveldb `db/skiplist.h` for the list's ancestry.

mod arena;
mod iter;
mod list;
mod sync;

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;

pub(crate) use list::{Inserter, Memtable};
