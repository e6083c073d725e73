//! The words of a receipt: the achievement of an operation, or the state after a failure.
//!
//! The third word, the consistency level, is in `quorum.rs`.

/// When does a copy count as held, and a write as acknowledged?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After `fdatasync`: survives the machine.
    Sync,
    /// After `write`: survives the process, not the machine.
    Os,
}

/// The state of a record after an operation that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// This write changed no record and will not: safe to send again.
    NotApplied,
    /// Applied at most once, or not at all.
    Unknown,
}

impl Durability {
    /// Name of the durability, as in options, receipts and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Os => "os",
        }
    }
}

impl Known {
    /// Word of the outcome, as in receipts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Known::NotApplied => "not-applied",
            Known::Unknown => "unknown",
        }
    }
}
