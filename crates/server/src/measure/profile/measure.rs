//! The measures of a capture, and their units.
//!
//! Not here: how it is measured (`sampler.rs`, `alloc.rs`, `lock.rs`).

use crate::measure::tally::labels;

labels! {
    /// The measures of a capture: their names are in the paths of the admin plane.
    pub(crate) enum Measure {
        /// CPU time of each thread: where it works.
        Cpu = "cpu",
        /// Wall time: where it works or waits.
        Wall = "wall",
        /// Allocated bytes: the functions that ask for memory.
        Alloc = "alloc",
        /// Time spent waiting for locks: the functions that wait, by stack.
        Lock = "lock",
    }
}

impl Measure {
    /// The measure of this name.
    pub(crate) fn of(name: &str) -> Option<Measure> {
        Measure::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// Do samples come from our own code, with an amount, instead of from a signal?
    pub(super) fn is_hooked(self) -> bool {
        matches!(self, Measure::Alloc | Measure::Lock)
    }

    /// The units of a profile, the usual one first.
    pub(crate) fn units(self) -> &'static [Unit] {
        match self {
            Measure::Cpu | Measure::Wall => &[Unit::Samples],
            Measure::Alloc => &[Unit::Bytes, Unit::Objects],
            Measure::Lock => &[Unit::Us, Unit::Waits],
        }
    }
}

/// The unit of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Samples,
    Bytes,
    Objects,
    Us,
    Waits,
}

impl Unit {
    /// Name of the unit, as in parameters and drawings.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Unit::Samples => "samples",
            Unit::Bytes => "bytes",
            Unit::Objects => "objects",
            Unit::Us => "us",
            Unit::Waits => "waits",
        }
    }
}
