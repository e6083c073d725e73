//! Events that wait for their client.
//!
//! Invariants
//! 1. A batch has `BATCH_BYTES` and one event at most, and leaves as a whole, when its client wants
//!    it.
//! 2. Nothing comes behind the last event.
//!
//! Not here: which events (`watch.rs`).

use crate::event::{EndReason, WatchEvent};
use crate::limits::BATCH_BYTES;
use crate::token::WatchToken;
use dendra_base::Now;

/// See the module.
#[derive(Debug)]
pub(crate) struct EventQueue {
    events: Vec<WatchEvent>,
    bytes: usize,
    /// The client waits for a batch.
    pub(crate) is_wanted: bool,
    heartbeat_us: u64,
    quiet_since_us: u64,
    /// Token of the last event, if there is one.
    last: Option<Option<WatchToken>>,
}

impl EventQueue {
    pub(crate) fn new(now: Now, heartbeat_us: u64) -> EventQueue {
        EventQueue {
            events: Vec::new(),
            bytes: 0,
            is_wanted: false,
            heartbeat_us,
            quiet_since_us: now.mono_us,
            last: None,
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.bytes < BATCH_BYTES && self.last.is_none()
    }

    pub(crate) fn push(&mut self, event: WatchEvent) {
        self.bytes += event.bytes();
        self.events.push(event);
    }

    /// The watch ends, with this token.
    pub(crate) fn end(&mut self, reason: EndReason, token: Option<WatchToken>) {
        self.push(WatchEvent::End { reason });
        self.last = Some(token);
    }

    pub(crate) fn has_end(&self) -> bool {
        self.last.is_some()
    }

    /// Was the last event taken?
    pub(crate) fn is_over(&self) -> bool {
        self.has_end() && self.events.is_empty()
    }

    /// What waits is of no use any more.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.bytes = 0;
    }

    /// A batch, if the client waits and there is one, and the token of a last event.
    pub(crate) fn take(
        &mut self,
        now: Now,
    ) -> Option<(Vec<WatchEvent>, Option<Option<WatchToken>>)> {
        if self
            .heartbeat_due_us()
            .is_some_and(|due_us| due_us <= now.mono_us)
        {
            self.push(WatchEvent::Heartbeat);
        }
        if !self.is_wanted || self.events.is_empty() {
            return None;
        }
        (self.is_wanted, self.quiet_since_us, self.bytes) = (false, now.mono_us, 0);
        Some((std::mem::take(&mut self.events), self.last.clone()))
    }

    pub(crate) fn heartbeat_due_us(&self) -> Option<u64> {
        let is_quiet = self.is_wanted && self.events.is_empty() && self.last.is_none();
        is_quiet.then(|| self.quiet_since_us + self.heartbeat_us)
    }
}
