//! What must hold of a run, one file per way of looking.
//!
//! ```text
//! file            promise    trusts          looks at
//! linear.rs       2, 3, 5    nothing         values and times, one key at a time
//! versions.rs     2, 3, 6, 7 the versions    every operation against all that ended before it
//! scans.rs        api        the versions    pages of scans against all that was told before
//! store.rs        1, 5, 7    the versions    what the stores hold in the end
//! ```
//!
//! Invariants
//! 1. A checker is a function of a history and of what the stores hold; it never sees a message.
//! 2. Each has handwritten histories that it must accept and others that it must not.
//!
//! Not here: promise 4 and bounds, which the world itself watches (`world.rs`).
//! See: docs/verification.md.

pub mod linear;
pub mod scans;
pub mod store;
pub mod versions;

use std::fmt;

/// What became of the disks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// Every byte could be read.
    Whole,
    /// Some could not: what only one copy had confirmed is lost with it, or hidden for a while.
    Damaged,
}

/// Which rule was broken: what two runs must share to count as the same failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// No order of the operations on a key explains what clients were told.
    NotLinearizable,
    /// An operation of unknown outcome took effect after a later write had been acknowledged.
    LateUnknown,
    /// The order of versions is not the order of time.
    VersionOrder,
    /// Two values under one version, or one value under two.
    VersionValue,
    /// A conditional write is not the successor of its base.
    NotSuccessor,
    /// What was said not to have happened was seen.
    NotAppliedSeen,
    /// A value that nobody wrote under this key.
    WrongValue,
    /// A value was shown behind its end, or not shown before it.
    Expiry,
    /// Read and write quorums met, and the read did not see the write.
    QuorumBlind,
    /// A scan showed a key twice, out of order or out of its range, or did not come nearer to its
    /// end.
    ScanForm,
    /// A scan did not show what had been told before.
    ScanBlind,
    /// An acknowledged write is not there in the end.
    Lost,
    /// Replicas differ after everything was repaired.
    Diverged,
    /// An operation got no outcome, or two, or one after its deadline.
    Answer,
    /// A healthy cluster refused.
    NotAvailable,
    /// A member wrote although it must know that its clock is wrong.
    WrongClock,
    /// Something is still held when nothing is going on.
    Leak,
    /// A damaged block is still there, although other owners could repair it.
    DamageLeft,
    /// Two processes count as one member, one that must not counts, or one that must does not.
    Membership,
    /// Two records of one epoch, one that was skipped, a position that settled too early, or a
    /// member that ended although it is one.
    Epochs,
    /// A plan never ended, or a process never learnt the newest epoch or its own removal.
    PlanStuck,
    /// Fewer owners hold an acknowledged write than it takes.
    Unheld,
    /// A heart panicked.
    Panic,
}

/// One broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// What was seen, with numbers.
    pub what: String,
}

impl Violation {
    /// A broken rule and what was seen.
    pub fn new(rule: Rule, what: impl Into<String>) -> Violation {
        Violation {
            rule,
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}
