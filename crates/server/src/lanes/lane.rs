//! The event loops of a node as its other threads see them.
//!
//! Invariants
//! 1. A loop counts its connections from when they are posted: those in the mailbox included.
//! 2. A flag of a loop that waits is raised before the loop looks again, and lowered by the thread
//!    that tells it.
//!
//! Not here: a loop seen from its own thread (`event_loop/thread/`).

use super::mailbox::{LoopEvent, Mailbox};
use super::overload::Overload;
use crate::measure::metrics::LoopMetrics;
use std::ops::Index;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// One event loop as the other threads see it.
#[derive(Debug)]
pub(crate) struct LoopHandle {
    pub(crate) mailbox: Mailbox,
    /// Connections that live on this loop, those still in the mailbox included.
    pub(crate) connections: AtomicUsize,
    /// A batch of this loop waits for room in the log's queue.
    pub(crate) waits_for_queue: AtomicBool,
    /// Writes of this loop wait until flushes and compactions are no longer behind.
    pub(crate) waits_for_engine: AtomicBool,
    /// Sweeps of the loop, each 100 ms while it turns.
    pub(crate) sweeps: AtomicU64,
    pub(crate) metrics: LoopMetrics,
}

impl LoopHandle {
    /// A loop without connections.
    pub(crate) fn new(mailbox_capacity: usize) -> LoopHandle {
        LoopHandle {
            mailbox: Mailbox::new(mailbox_capacity),
            connections: AtomicUsize::new(0),
            waits_for_queue: AtomicBool::new(false),
            waits_for_engine: AtomicBool::new(false),
            sweeps: AtomicU64::new(0),
            metrics: LoopMetrics::default(),
        }
    }
}

/// All loops of a node.
#[derive(Debug)]
pub(crate) struct Loops {
    lanes: Vec<LoopHandle>,
    /// Loops with more requests than they serve in time.
    pub(crate) overload: Overload,
}

impl Loops {
    /// `count` loops, with at most so many events in the mailbox of each.
    pub(crate) fn new(count: usize, mailbox_capacity: usize) -> Loops {
        Loops {
            lanes: (0..count)
                .map(|_| LoopHandle::new(mailbox_capacity))
                .collect(),
            overload: Overload::default(),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Each of them, in the order of their numbers.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, LoopHandle> {
        self.lanes.iter()
    }

    /// Leaves an event for each of them.
    pub(crate) fn post_to_all(&self, event: impl Fn() -> LoopEvent) {
        for lane in &self.lanes {
            lane.mailbox.post(event());
        }
    }

    /// Connections of all loops.
    pub(crate) fn connections(&self) -> usize {
        self.lanes
            .iter()
            .map(|lane| lane.connections.load(Ordering::SeqCst))
            .sum()
    }
}

impl Index<usize> for Loops {
    type Output = LoopHandle;

    fn index(&self, lane: usize) -> &LoopHandle {
        &self.lanes[lane]
    }
}
