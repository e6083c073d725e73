//! Do the event loops of a node turn? For a watchdog outside of the process.
//!
//! Invariants
//! 1. A loop that did not sweep since the last look does not turn: it sweeps every 100 ms, also
//!    without a request.
//!
//! Not here: who is told (crate `dendra`, `supervisor.rs`), loops with too many requests
//! (`lanes/overload.rs`): they turn.

use crate::event_loop::parts::NodeParts;
use crate::lanes::lane::Loops;
use crate::phase::{Phase, PhaseCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The event loops of a node that runs, and its phase.
pub struct LoopPulse {
    lanes: Arc<Loops>,
    phase: Arc<PhaseCell>,
    /// Sweeps of each loop at the last look.
    seen: Vec<u64>,
}

impl fmt::Debug for LoopPulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoopPulse").field(&self.seen).finish()
    }
}

impl LoopPulse {
    pub(super) fn of(parts: &NodeParts) -> LoopPulse {
        LoopPulse {
            lanes: Arc::clone(&parts.lanes),
            phase: Arc::clone(&parts.phase),
            seen: vec![0; parts.lanes.len()],
        }
    }

    /// Has every loop turned since the last call? Sweeps are 100 ms apart: ask no more often.
    pub fn beats(&mut self) -> bool {
        let lanes = self.lanes.iter().zip(&mut self.seen);
        let turned = lanes.map(|(lane, seen)| {
            let now = lane.sweeps.load(Ordering::Relaxed);
            std::mem::replace(seen, now) != now
        });
        // Each is looked at, also behind one that stands.
        turned.fold(true, |all, one| all & one)
    }

    /// Is the node on its way to its end? Its loops may have ended then.
    pub fn is_ending(&self) -> bool {
        self.phase.now() > Phase::Serving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_stands_is_noticed_beside_one_that_turns() {
        let mut pulse = LoopPulse {
            lanes: Arc::new(Loops::new(2, 1)),
            phase: Arc::new(PhaseCell::new()),
            seen: vec![0; 2],
        };
        let lanes = Arc::clone(&pulse.lanes);
        let mut beats_behind = |turned: &[usize]| {
            for lane in turned {
                lanes[*lane].sweeps.fetch_add(1, Ordering::Relaxed);
            }
            pulse.beats()
        };
        assert!(!beats_behind(&[]), "none has turned yet");
        assert!(beats_behind(&[0, 1]));
        assert!(!beats_behind(&[1]), "the first one stands");
        assert!(!beats_behind(&[0]), "the second one has not turned since");
        assert!(beats_behind(&[1, 0]));
    }
}
