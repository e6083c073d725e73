//! Messages of other threads to an event loop.
//!
//! ```text
//! listener ─┐
//! WAL      ─┼─► post_all ─► [event event event] ─► take: all at once, by the loop's own task
//! pool     ─┘                  one wake when it was empty, none behind it
//! ```
//!
//! Invariants
//! 1. The loop is woken once per batch: only a post into an empty mailbox wakes.
//! 2. Bounded by its senders: a connection passed the connection gate, and an answer belongs to a
//!    request that holds a permit. Beyond `capacity` something is broken, and the process says so.
//!
//! Not here: the meaning of the events (`event_loop/thread/`).
//! See: docs/overload.md.

use crate::lanes::work::PoolAnswer;
use crate::measure::profile::Lock;
use crate::waiting::connection_gate::ConnectionPlace;
use dendra_engine::WriteOutcome;
use dendra_node::step::LostSpan;
use dendra_ownership::Layout;
use std::sync::Arc;
use tokio::sync::Notify;

/// Everything that can happen to an event loop from outside: a closed list.
#[derive(Debug)]
pub(crate) enum LoopEvent {
    /// A client connected.
    Connection(std::net::TcpStream, ConnectionPlace),
    /// A write is decided.
    Written {
        /// Token of the write, as given to the engine.
        token: u64,
        /// The outcome of the write.
        outcome: WriteOutcome,
    },
    /// The store pool is done with a job.
    Answered {
        /// The seat, or the order, that asked.
        slot: u32,
        /// The pool's answer.
        answer: PoolAnswer,
    },
    /// The log's queue has room again: submit the waiting batch.
    QueueFree,
    /// A key was written since this loop asked for changes and found none.
    Changed,
    /// A scrub found damage, or a repair is done: the spans that are lost now.
    Lost(Vec<LostSpan>),
    /// Answer requests in flight, accept no further one.
    Drain,
    /// A later epoch is durable, and the fence is advanced.
    Adopt(Arc<Layout>),
    /// All loops are there: the first one begins the work that a node has once.
    Begin,
    /// The log failed: every waiting write is of unknown outcome.
    Poisoned,
    /// Leave: connections that are still open are cut.
    Stop,
}

/// The mailbox of one event loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    events: Lock<Vec<LoopEvent>>,
    bell: Notify,
    capacity: usize,
}

impl Mailbox {
    /// A mailbox that never holds more than `capacity` events.
    pub(crate) fn new(capacity: usize) -> Mailbox {
        Mailbox {
            events: Lock::new(Vec::with_capacity(64)),
            bell: Notify::new(),
            capacity,
        }
    }

    /// Leaves one event.
    pub(crate) fn post(&self, event: LoopEvent) {
        self.post_all(std::iter::once(event));
    }

    /// Leaves several events with at most one wake.
    pub(crate) fn post_all(&self, new: impl IntoIterator<Item = LoopEvent>) {
        let mut events = self.events.hold();
        let was_empty = events.is_empty();
        events.extend(new);
        let len = events.len();
        drop(events);
        assert!(
            len <= self.capacity,
            "{len} events in a mailbox of {}: an event came without a permit",
            self.capacity
        );
        if was_empty && len > 0 {
            self.bell.notify_one();
        }
    }

    /// Swaps everything that waits into `into`. Requires: `into` is empty.
    pub(crate) fn take(&self, into: &mut Vec<LoopEvent>) {
        assert!(into.is_empty(), "events would be lost");
        let mut events = self.events.hold();
        std::mem::swap(&mut *events, into);
    }

    /// Waits for a wake; returns at once when one is due.
    pub(crate) async fn wait(&self) {
        self.bell.notified().await;
    }

    /// Events waiting now.
    pub(crate) fn len(&self) -> usize {
        self.events.hold().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_together_and_in_order() {
        let mailbox = Mailbox::new(8);
        mailbox.post_all((0..3).map(|slot| LoopEvent::Written {
            token: slot,
            outcome: WriteOutcome::NotApplied,
        }));
        mailbox.post(LoopEvent::Stop);
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!(taken.len(), 4);
        assert!(matches!(taken[2], LoopEvent::Written { token: 2, .. }));
        assert!(matches!(taken[3], LoopEvent::Stop));
        assert_eq!(mailbox.len(), 0);
    }

    #[test]
    #[should_panic(expected = "without a permit")]
    fn a_mailbox_beyond_its_bound_is_a_broken_invariant() {
        let mailbox = Mailbox::new(1);
        mailbox.post(LoopEvent::QueueFree);
        mailbox.post(LoopEvent::QueueFree);
    }
}
