//! The ways to the steward's home, from all threads of the process.
//!
//! ```text
//! accepted links, loops ─ tell ──► | at most STEWARD_CALLS_MAX, dropped beyond | ─┐
//! joiners ─ enrol ───────────────► | the same                                  | ─┼─► home.rs
//! the own loop 0 ─ tell_surely ──► | one for each partition or link            | ─┘
//! ```
//!
//! Invariants
//! 1. A message of another member may be dropped: its sender repeats it as long as it matters.
//! 2. No event of the own loops is dropped. A loop tells one for each move and each link at a time,
//!    so there are no more of them than that.
//!
//! Not here: orders of operators (`orders.rs`), the use of all events (`peers/home.rs`).

use super::orders::OrderCall;
use crate::limits::STEWARD_CALLS_MAX;
use dendra_ownership::Steward;
use dendra_ownership::steward::messages::{EnrolAnswer, EnrolRequest};
use dendra_ownership::steward::step::StewardEvent;
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};

/// The calls that come to the steward's home.
#[derive(Debug)]
pub(crate) enum StewardCall {
    Tell(StewardEvent),
    Enrol(EnrolRequest, oneshot::Sender<EnrolAnswer>),
}

/// The steward, and the ends of the ways to it.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) steward: Steward,
    pub(crate) calls: mpsc::Receiver<StewardCall>,
    pub(crate) ordered: mpsc::Receiver<OrderCall>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct StewardDoor {
    calls: mpsc::Sender<StewardCall>,
    sure: Mutex<VecDeque<StewardEvent>>,
    bell: Notify,
}

impl StewardDoor {
    pub(crate) fn new() -> (StewardDoor, mpsc::Receiver<StewardCall>) {
        let (calls, receiver) = mpsc::channel(STEWARD_CALLS_MAX);
        let door = StewardDoor {
            calls,
            sure: Mutex::default(),
            bell: Notify::new(),
        };
        (door, receiver)
    }

    /// Tells the steward something that is repeated if it is lost.
    pub(crate) fn tell(&self, event: StewardEvent) {
        if self.calls.try_send(StewardCall::Tell(event)).is_err() {
            tracing::debug!("the steward has more to do than it takes: a message is dropped");
        }
    }

    /// Tells the steward something that is said once.
    pub(crate) fn tell_surely(&self, event: StewardEvent) {
        self.sure.lock().expect("no holder panics").push_back(event);
        self.bell.notify_one();
    }

    /// The next event that was told once, if there is one.
    pub(crate) fn next_sure(&self) -> Option<StewardEvent> {
        self.sure.lock().expect("no holder panics").pop_front()
    }

    /// Waits until something was said once.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Asks about a process that wants to become a member; `None` when the steward has no time.
    pub(crate) async fn enrol(&self, request: EnrolRequest) -> Option<EnrolAnswer> {
        let (answer, answered) = oneshot::channel();
        self.calls
            .try_send(StewardCall::Enrol(request, answer))
            .ok()?;
        answered.await.ok()
    }
}
