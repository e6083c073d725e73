//! The clocks of one loop, read once a turn, and the draw of requests that are measured.
//!
//! Invariants
//! 1. The wall clock is read at most once a millisecond.
//!
//! Not here: the clocks of the process (`clock.rs`).

use crate::clock::{self, ClockReading};
use crate::measure::stages::{SampleDraw, Watch};
use dendra_base::Now;
use std::cell::Cell;

/// See the module.
pub(super) struct LoopClock {
    tick: Cell<ClockReading>,
    draw: SampleDraw,
}

impl LoopClock {
    /// The clocks of loop `index`, read now.
    pub(super) fn new(index: usize) -> LoopClock {
        LoopClock {
            tick: Cell::new(clock::tick()),
            draw: SampleDraw::new(index),
        }
    }

    /// Reads the clocks for the rest of this turn.
    pub(super) fn refresh(&self) {
        self.tick.set(self.tick.get().later());
    }

    /// The reading of this turn.
    pub(super) fn reading(&self) -> ClockReading {
        self.tick.get()
    }

    /// Both clocks as of the last `refresh`.
    pub(super) fn now(&self) -> Now {
        self.tick.get().now()
    }

    /// How long it has been since `began_ns`; the turn's reading moves on to now.
    pub(super) fn took_ns(&self, began_ns: u64) -> u64 {
        let now_ns = clock::monotonic_ns();
        self.tick.set(self.tick.get().at(now_ns));
        now_ns.saturating_sub(began_ns)
    }

    /// The watch of the next request: running for about one in sixteen.
    pub(super) fn watch(&self) -> Watch {
        self.draw.watch()
    }
}
