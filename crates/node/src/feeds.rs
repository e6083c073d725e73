//! Questions about this member's changes that wait for some.
//!
//! Invariants
//! 1. A question is held only while all changes so far were looked at for it.
//!
//! Not here: answers (`replica/feed.rs`), which keys are noted (the world).

use crate::ledger::NEVER;
use crate::purpose::Requester;
use dendra_base::peer::FeedCursor;
use dendra_watch::{ChangeLog, Span};
use std::sync::Arc;

/// A question that waits for changes.
pub(crate) struct HeldFeed {
    pub(crate) requester: Requester,
    pub(crate) cursor: FeedCursor,
    pub(crate) span: Span,
    pub(crate) due_us: u64,
}

/// See the module.
pub(crate) struct Feeds {
    pub(crate) changes: Arc<ChangeLog>,
    /// This loop, by its number.
    pub(crate) lane: usize,
    pub(crate) held: Vec<HeldFeed>,
}

impl Feeds {
    /// No question is held.
    pub(crate) fn new(changes: Arc<ChangeLog>, lane: usize) -> Feeds {
        Feeds {
            changes,
            lane,
            held: Vec::new(),
        }
    }

    /// When to look at the held questions, on the monotonic clock.
    pub(crate) fn due_us(&self) -> u64 {
        let due_us = self.held.iter().map(|held| held.due_us);
        due_us.min().unwrap_or(NEVER)
    }
}
