//! The results that a client can get, as values.
//!
//! ```text
//! outcome            status    known          receipt
//! Found, Unchanged   200, 304                 acks=1/1; level=linearizable; durability=sync
//! Missing            404                      the same
//! Stored, Deleted    201, 202                 the same
//! Touched            200                      the same
//! ConditionFailed    412       not applied    the same: a majority said so
//! Overloaded         503, 507  not applied    outcome=not-applied
//! DeadlinePassed     503       not applied    outcome=not-applied
//! Abandoned          503       not applied    outcome=not-applied: its client has hung up
//! Unreachable        504      not applied    outcome=not-applied
//! NotEnough          504       either         acks=1/3; outcome=unknown
//! Overtaken          504       unknown        acks=2/3; outcome=unknown
//! ```
//!
//! Invariants
//! 1. `Known::NotApplied` means that the record was not changed and will not be.
//!
//! Not here: status codes (crate `server`, `status.rs`), the text of receipts (crate `wire`),
//! operating errors.
//! See: docs/api.md, "Receipts".

use crate::admission::RefusedBy;
use dendra_base::Version;
use dendra_base::peer::Refused;
use dendra_ownership::member::MemberIndex;

pub use dendra_base::Known;

/// The result of an operation. A value's bytes travel beside it, by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key has a live value.
    Found {
        /// Version of the record.
        version: Version,
        /// Wall milliseconds when it ends, if it does.
        expiry_ms: Option<u64>,
    },
    /// The value is the one that the client has already.
    Unchanged {
        /// Version of the record.
        version: Version,
    },
    /// The key never was, is deleted or has expired.
    Missing,
    /// The value is stored by as many replicas as were asked for.
    Stored {
        /// Version of the record.
        version: Version,
    },
    /// The deletion is stored by as many replicas as were asked for.
    Deleted {
        /// The version of the tombstone.
        version: Version,
    },
    /// The value has another version and another end, at as many replicas as were asked for.
    Touched {
        /// Version of the record.
        version: Version,
        /// Wall milliseconds when it ends.
        expiry_ms: Option<u64>,
    },
    /// The condition did not hold; the record did not change. A touch of a key without a live value
    /// ends so, too.
    ConditionFailed {
        /// The live value's version, if there is one.
        current: Option<Version>,
    },
    /// A gate or the engine refused; the record did not change.
    Overloaded {
        /// Which, and when to come again.
        refusal: RefusedBy,
    },
    /// The deadline passed before the work was started; the record did not change.
    DeadlinePassed,
    /// The client went away before any question that changes the record was sent; the record did
    /// not change.
    Abandoned,
    /// Fewer replicas could be asked than have to answer; no question that changes the record was
    /// sent.
    Unreachable {
        /// Replicas to which there is a link, the own one included.
        up: u8,
        /// Replicas that have to answer.
        needed: u8,
        /// Replicas that are addressed.
        from: u8,
        /// One to which there is no link.
        missing: MemberIndex,
    },
    /// Fewer replicas answered than had to, in time or before it was clear that there would not be
    /// enough.
    NotEnough {
        /// Replicas that answered, in the round that failed.
        got: u8,
        /// Replicas that had to answer. Where a condition is judged it is a majority, even if the
        /// client asked for fewer.
        needed: u8,
        /// Replicas that were addressed.
        from: u8,
        /// Was the record changed?
        known: Known,
        /// The last owner that refused, and its reason; `None` = no owner refused.
        refused: Option<(MemberIndex, Refused)>,
    },
    /// Another write came over a conditional one before it was known whether that had been applied.
    Overtaken {
        /// Replicas that answered.
        got: u8,
        /// Replicas that were addressed.
        from: u8,
    },
}

impl Outcome {
    /// The state of the record, for an operation that failed; `None` for one that succeeded.
    pub fn known(&self) -> Option<Known> {
        match self {
            Outcome::Found { .. }
            | Outcome::Unchanged { .. }
            | Outcome::Missing
            | Outcome::Stored { .. }
            | Outcome::Touched { .. }
            | Outcome::Deleted { .. } => None,
            Outcome::ConditionFailed { .. }
            | Outcome::Overloaded { .. }
            | Outcome::Unreachable { .. }
            | Outcome::Abandoned
            | Outcome::DeadlinePassed => Some(Known::NotApplied),
            Outcome::NotEnough { known, .. } => Some(*known),
            Outcome::Overtaken { .. } => Some(Known::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lost_quorum_can_leave_the_record_unknown() {
        let failed = [
            Outcome::ConditionFailed { current: None },
            Outcome::DeadlinePassed,
            Outcome::Overloaded {
                refusal: RefusedBy::DiskFull,
            },
        ];
        for outcome in failed {
            assert_eq!(outcome.known(), Some(Known::NotApplied), "{outcome:?}");
        }
        let lost = Outcome::NotEnough {
            got: 0,
            needed: 1,
            from: 1,
            known: Known::Unknown,
            refused: None,
        };
        assert_eq!(lost.known(), Some(Known::Unknown));
        let overtaken = Outcome::Overtaken { got: 2, from: 3 };
        assert_eq!(overtaken.known(), Some(Known::Unknown));
        assert_eq!(Outcome::Missing.known(), None);
    }
}
