//! Pressure: how close an engine is to a limit, and whether it takes new values.
//!
//! The engine computes it, admission (crate `node`) decides by it, the server carries it.

/// How close the engine is to a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// 0.0 = calm, 1.0 = at the limit. Admission delays or refuses as it grows.
    pub level: f64,
    /// The share of the memtables' room that is used, or will be soon; above 1.0 it is overdrawn. A
    /// flush gives a third of it back.
    pub memory: f64,
    /// Set when new values must be refused.
    pub stop: Option<Stop>,
}

impl Pressure {
    /// From this level on, work that can wait does so: the engine has enough to catch up with.
    /// Of level 0 it is twice the number of tables at which a merge begins.
    const STRAINED: f64 = 0.25;

    /// Should work that can wait do so?
    pub fn is_strained(&self) -> bool {
        self.level >= Pressure::STRAINED || self.stop.is_some()
    }
}

/// Why new values must be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sealed memtables wait for a flush (503).
    MemtablesFull,
    /// Level 0 has too many tables (503).
    CompactionBehind,
    /// The disk is full (507); deletes go on.
    DiskFull,
    /// The disk is full and so is memory: no record can be written until there is room (507).
    DiskAndMemoryFull,
}

impl Stop {
    /// Is a flush or a compaction behind, so that it ends without a hand from outside?
    pub const fn is_behind(self) -> bool {
        matches!(self, Stop::MemtablesFull | Stop::CompactionBehind)
    }
}
