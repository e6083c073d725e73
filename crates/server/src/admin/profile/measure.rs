//! What a capture measures, and in which units it is counted.
//!
//! Not here: how it is measured (`sampler.rs`, `alloc.rs`, `lock.rs`).

/// What a capture measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Measure {
    /// CPU time of each thread: where it works.
    Cpu,
    /// Wall time: where it works or waits.
    Wall,
    /// Allocated bytes: who asks for memory.
    Alloc,
    /// Time spent waiting for locks: who stands in whose way.
    Lock,
}

impl Measure {
    pub(super) const ALL: [Measure; 4] =
        [Measure::Cpu, Measure::Wall, Measure::Alloc, Measure::Lock];

    /// As in the path of the admin plane.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Measure::Cpu => "cpu",
            Measure::Wall => "wall",
            Measure::Alloc => "alloc",
            Measure::Lock => "lock",
        }
    }

    /// The measure of this name.
    pub(crate) fn of(name: &str) -> Option<Measure> {
        Measure::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// Do samples come from our own code, with an amount, instead of from a signal?
    pub(super) fn is_hooked(self) -> bool {
        matches!(self, Measure::Alloc | Measure::Lock)
    }

    /// What a profile counts, the usual unit first.
    pub(crate) fn units(self) -> &'static [Unit] {
        match self {
            Measure::Cpu | Measure::Wall => &[Unit::Samples],
            Measure::Alloc => &[Unit::Bytes, Unit::Objects],
            Measure::Lock => &[Unit::Us, Unit::Waits],
        }
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Samples,
    Bytes,
    Objects,
    Us,
    Waits,
}

impl Unit {
    /// As in parameters and drawings.
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
