//! The phase of a node's life, as all its threads see it.
//!
//! ```text
//! phase   Starting ─► Serving ─► Draining ─► Stopped
//!             └────────┴────────────┴──────► Poisoned
//! ```
//!
//! Invariants
//! 1. A phase only moves to the right; `Poisoned` is final.
//!
//! Not here: what a start and a stop do (`lifecycle/`).

use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::{Notify, watch};

/// Where in its life a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// The folder is being opened.
    Starting,
    /// Requests are answered.
    Serving,
    /// Requests in flight are finished, new ones are refused.
    Draining,
    /// Nothing runs any more.
    Stopped,
    /// The log failed: reads go on for the moment, the process is about to stop.
    Poisoned,
}

impl Phase {
    const ALL: [Phase; 5] = [
        Phase::Starting,
        Phase::Serving,
        Phase::Draining,
        Phase::Stopped,
        Phase::Poisoned,
    ];

    /// Word for the state, as shown by `/readyz` and `/v0/status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Serving => "serving",
            Phase::Draining => "draining",
            Phase::Stopped => "stopped",
            Phase::Poisoned => "poisoned",
        }
    }
}

/// The phase as all threads see it.
#[derive(Debug)]
pub(crate) struct PhaseCell {
    phase: AtomicU8,
    /// Told when the node has to end by itself: it is poisoned, or another member disowns its
    /// folder.
    pub(crate) ended: Notify,
    /// Did a signal ask to stop?
    asked: watch::Sender<bool>,
    /// How often a signal has asked to read files again.
    renewals: watch::Sender<u64>,
}

impl PhaseCell {
    /// A node that starts.
    pub(crate) fn new() -> PhaseCell {
        PhaseCell {
            phase: AtomicU8::new(Phase::Starting as u8),
            ended: Notify::new(),
            asked: watch::Sender::new(false),
            renewals: watch::Sender::new(0),
        }
    }

    /// A signal asks to stop: a start that waits for something gives up.
    pub(crate) fn ask(&self) {
        self.asked.send_replace(true);
    }

    /// A signal asks to read files again.
    pub(crate) fn ask_for_files(&self) {
        self.renewals.send_modify(|renewals| *renewals += 1);
    }

    /// Changes when a signal asks to read files again.
    pub(crate) fn files_asked(&self) -> watch::Receiver<u64> {
        self.renewals.subscribe()
    }

    /// Waits until a signal asks to stop.
    pub(crate) async fn asked(&self) {
        let mut asked = self.asked.subscribe();
        let asked = asked.wait_for(|is_asked| *is_asked).await;
        asked.expect("the sender is in this cell");
    }

    /// The phase now.
    pub(crate) fn now(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Acquire))]
    }

    /// Moves on to `next`; false when the node is already there or past it.
    pub(crate) fn turn(&self, next: Phase) -> bool {
        self.phase.fetch_max(next as u8, Ordering::AcqRel) < next as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_only_moves_on_and_poison_is_final() {
        let cell = PhaseCell::new();
        assert!(cell.turn(Phase::Serving));
        assert!(!cell.turn(Phase::Serving));
        assert!(cell.turn(Phase::Poisoned));
        assert!(!cell.turn(Phase::Stopped));
        assert_eq!(cell.now(), Phase::Poisoned);
    }
}
