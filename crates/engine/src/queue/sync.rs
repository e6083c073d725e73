//! The lock of the commit queue, in one place so that `interleavings.rs` can compile the queue
//! against loom's.
//!
//! Invariants
//! 1. `bounded.rs` takes its lock from here and from nowhere else.
//!
//! Not here: the wait for it (`waits.rs`).

pub(super) use crate::waits::hold;
pub(super) use std::sync::Mutex;
