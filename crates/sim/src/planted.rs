//! Bugs of the shell that can be planted, to see whether the checkers find them.
//!
//! Invariants
//! 1. At most one is planted in a run, and none unless a run asks for it.
//!
//! Not here: bugs of the product, which are patches (`crates/sim/planted/`).
//! See: docs/verification.md.

/// A mistake that a shell can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellBug {
    /// Reads show writes that are not durable yet.
    DirtyRead,
    /// A write is answered when it is handed to the log.
    AnswerBeforeSync,
    /// A restart begins at the wall clock, even below values that were used before.
    FloorIgnored,
    /// A member that lost its disk comes back under its name, empty.
    SameIdentityAfterWipe,
    /// A member comes back with an older image of its disk.
    OldImage,
    /// A record that cannot be read, or does not match its checksum, is told as absent.
    DamagedIsAbsent,
    /// Guards of the log are not looked at.
    GuardIgnored,
    /// A member's notes about others are gone with its process.
    NotesForgotten,
}

impl ShellBug {
    /// Every one.
    pub const ALL: [ShellBug; 8] = [
        ShellBug::DirtyRead,
        ShellBug::AnswerBeforeSync,
        ShellBug::FloorIgnored,
        ShellBug::SameIdentityAfterWipe,
        ShellBug::OldImage,
        ShellBug::DamagedIsAbsent,
        ShellBug::GuardIgnored,
        ShellBug::NotesForgotten,
    ];
}
