//! The commit queue: where writes of all event loops meet before they become one log write.
//!
//! ```text
//! bounded.rs         CommitQueue      submit, take
//! sync.rs            the lock it uses; the tests of interleavings.rs use loom's
//! ```
//!
//! Invariants
//! 1. Bounded by writes and by bytes; a batch that does not fit is refused and left as it was.
//! 2. The caller that makes the queue non-empty is told `First`, and no other one is: one wake per
//!    commit.
//!
//! Not here: the commit itself (`commit.rs`), threads and how they wake each other (the server).
//! See: docs/decisions/0006-group-commit-and-synced-upto.md.

mod bounded;
mod sync;

#[cfg(test)]
mod interleavings;

pub(crate) use bounded::CommitQueue;
pub use bounded::Submitted;
