//! The numbers of runs.
//!
//! Invariants
//! 1. The sum of runs does not depend on their order.
//!
//! Not here: what prints them (`main.rs`).
//! See: docs/verification.md.

use crate::check::linear::Searches;
use crate::door::DoorCounts;
use std::fmt;

/// The numbers of a run, or the sums of many.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunSums {
    /// Operations of clients.
    pub operations: u64,
    /// Happenings, as a measure of work.
    pub happenings: u64,
    /// Plans that changed the members: begun, and ended.
    pub plans: (u64, u64),
    /// Horizons rose so many times.
    pub risen: u64,
    /// Orders that accepted a loss, and keys of which something told may be gone.
    pub losses: (u64, u64),
    /// Events that clients were told of keys that they watch.
    pub watch_events: u64,
    /// What stood in front of loops, and the outcome of that.
    pub doors: DoorCounts,
    /// How thoroughly a broken promise was looked for.
    pub searches: Searches,
}

impl RunSums {
    /// Adds those of another run.
    pub fn add(&mut self, other: RunSums) {
        self.operations += other.operations;
        self.happenings += other.happenings;
        self.plans.0 += other.plans.0;
        self.plans.1 += other.plans.1;
        self.risen += other.risen;
        self.losses.0 += other.losses.0;
        self.losses.1 += other.losses.1;
        self.watch_events += other.watch_events;
        self.doors.add(other.doors);
        self.searches.add(other.searches);
    }
}

impl fmt::Display for RunSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Searches { keys, undecided } = self.searches;
        writeln!(
            f,
            "{} operations, {} happenings, {} plans ended, horizons rose {} times",
            self.operations, self.happenings, self.plans.1, self.risen
        )?;
        if self.losses.0 > 0 {
            let (orders, gone) = self.losses;
            writeln!(
                f,
                "{orders} losses accepted, of {gone} keys something told may be gone"
            )?;
        }
        if self.watch_events > 0 {
            writeln!(f, "{} events of watches", self.watch_events)?;
        }
        if self.doors != DoorCounts::default() {
            writeln!(f, "{:?}", self.doors)?;
        }
        write!(f, "{undecided} of {keys} histories were too long to decide")
    }
}
