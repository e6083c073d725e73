//! The events of a run, as lines: printed, hashed, or not made at all.
//!
//! Invariants
//! 1. A line is a function of the run alone: no address, no wall clock, no order of a hash map.
//!
//! Not here: which events are worth a line (`world/`).

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The use of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracing {
    /// Lines are not made.
    Off,
    /// Lines are counted into a hash.
    Hashed,
    /// Lines go to standard output, too.
    Printed,
}

/// A trace as it grows.
#[derive(Debug)]
pub struct Trace {
    tracing: Tracing,
    hash: u64,
}

impl Trace {
    /// An empty one.
    pub fn new(tracing: Tracing) -> Trace {
        Trace { tracing, hash: 0 }
    }

    /// Adds a line, if lines are used.
    pub fn line(&mut self, at_us: u64, line: impl FnOnce() -> String) {
        if self.tracing == Tracing::Off {
            return;
        }
        let line = format!("{at_us:>9} {}", line());
        self.hash = xxh3_64_with_seed(line.as_bytes(), self.hash);
        if self.tracing == Tracing::Printed {
            println!("{line}");
        }
    }

    /// The hash of all lines so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}
