//! The rules for a run, one file per way of looking.
//!
//! ```text
//! file            promise    trusts          looks at
//! linear.rs       2, 3, 5    nothing         values and times, one key at a time
//! versions.rs     2, 3, 6, 7 the versions    every operation against all that ended before it
//! scans.rs        api        the versions    pages of scans against all that was told before
//! store.rs        1, 5, 7    the versions    the cells of the stores in the end
//! losses.rs                  the stores      cuts the history of a key where its loss was accepted
//! ```
//!
//! Invariants
//! 1. A checker is a function of a history and of the stores' content; it never sees a message.
//! 2. Each has handwritten histories that it must accept and others that it must not.
//!
//! Not here: promise 4 and bounds, which the world itself watches (`world/mod.rs`).
//! See: docs/verification.md.

pub mod linear;
pub mod losses;
pub mod scans;
pub mod store;
pub mod versions;

use std::fmt;

/// The fate of the disks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// Every byte could be read.
    Whole,
    /// Some could not: a write that only one copy had confirmed is lost with it, or hidden for a
    /// while.
    Damaged,
}

/// The rule that was broken: two runs with the same one count as the same failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// No order of the operations on a key explains the answers to clients.
    NotLinearizable,
    /// An operation of unknown outcome took effect after a later write had been acknowledged.
    LateUnknown,
    /// The order of versions is not the order of time.
    VersionOrder,
    /// Two values under one version, or one value under two.
    VersionValue,
    /// A conditional write is not the successor of its base.
    NotSuccessor,
    /// A write that was told as not applied was seen.
    NotAppliedSeen,
    /// A value that no client wrote under this key.
    WrongValue,
    /// A value was shown behind its end, or not shown before it.
    Expiry,
    /// Read and write quorums met, and the read did not see the write.
    QuorumBlind,
    /// A scan showed a key twice, out of order or out of its range, or did not come nearer to its
    /// end.
    ScanForm,
    /// A scan did not show a value that had been told before.
    ScanBlind,
    /// An acknowledged write is not there in the end.
    Lost,
    /// A deleted record is back.
    Resurrected,
    /// Replicas differ after everything was repaired.
    Diverged,
    /// An operation got no outcome, or two, or one after its deadline.
    Answer,
    /// A healthy cluster refused.
    NotAvailable,
    /// A member wrote although it must know that its clock is wrong.
    WrongClock,
    /// A resource is still held when no work is going on.
    Leak,
    /// A damaged block is still there, although other owners could repair it.
    DamageLeft,
    /// A member holds a value that it is no owner of, behind a lowered replication factor too.
    Surplus,
    /// Two processes count as one member, one that must not counts, or one that must does not.
    Membership,
    /// Two records of one epoch, one that was skipped, a position that settled too early, or a
    /// member that ended although it is one.
    Epochs,
    /// A plan never ended, or a process never learnt the newest epoch or its own removal.
    PlanStuck,
    /// Fewer owners hold an acknowledged write than it takes.
    Unheld,
    /// A loss is in force that no operator has accepted.
    LossUnasked,
    /// A queue, a gate or memory holds more than its bound.
    Bound,
    /// A source waits while others are served again and again.
    Starved,
    /// A class of writes that waits gets fewer bytes than another one that waits.
    Unfair,
    /// A loop spends its time on requests that help no client.
    Goodput,
    /// An overload is over, and a member is not as before.
    NotRecovered,
    /// A watch told an older state behind a newer one, or a value that no client wrote, or it does
    /// not know in the end what reads show.
    Watch,
    /// A heart panicked.
    Panic,
}

/// One broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// The observation, with numbers.
    pub what: String,
}

impl Violation {
    /// A broken rule and the observation.
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
