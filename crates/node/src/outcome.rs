//! What a client can get, as values, and the receipt that says what was achieved.
//!
//! ```text
//! outcome            status    known          receipt
//! Found, Unchanged   200, 304                 acks=1/1; level=linearizable; durability=sync
//! Missing            404                      the same
//! Stored, Deleted    201, 202                 the same
//! ConditionFailed    412       not applied    the same: a majority said so
//! Overloaded         503, 507  not applied    outcome=not-applied
//! DeadlinePassed     503       not applied    outcome=not-applied
//! Unreachable        504      not applied    outcome=not-applied
//! NotEnough          504       either         acks=1/3; outcome=unknown
//! Overtaken          504       unknown        acks=2/3; outcome=unknown
//! ```
//!
//! Invariants
//! 1. `Known::NotApplied` is said only when nothing changed and nothing will.
//! 2. A receipt's text is ASCII and fits one header.
//!
//! Not here: status codes and header names (crate `server`, `status.rs`), operating errors.
//! See: docs/api.md, "Receipts".

use crate::admission::Refusal;
use crate::member::MemberIndex;
use dendra_base::peer::Refused;
use dendra_base::{Consistency, Quorum, Version};
use std::fmt;

/// What became of an operation. A value's bytes travel beside it, by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key has a live value.
    Found {
        /// Its version.
        version: Version,
        /// Wall milliseconds when it ends, if it does.
        expiry_ms: Option<u64>,
    },
    /// The value is the one that the client has already.
    Unchanged {
        /// Its version.
        version: Version,
    },
    /// The key never was, is deleted or has expired.
    Missing,
    /// The value is stored by as many replicas as were asked for.
    Stored {
        /// Its version.
        version: Version,
    },
    /// The deletion is stored by as many replicas as were asked for.
    Deleted {
        /// The version of the tombstone.
        version: Version,
    },
    /// The condition did not hold; nothing changed.
    ConditionFailed {
        /// The live value's version, if there is one.
        current: Option<Version>,
    },
    /// A gate or the engine refused; nothing changed.
    Overloaded {
        /// Which, and when to come again.
        refusal: Refusal,
    },
    /// The deadline passed before the work was started; nothing changed.
    DeadlinePassed,
    /// Fewer replicas could be asked than have to answer; nothing that changes the record was sent.
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
    /// Fewer replicas answered than had to, in time or before it was clear that there would not be enough.
    NotEnough {
        /// Replicas that answered, in the round that failed.
        got: u8,
        /// Replicas that had to answer it: a majority where a condition is judged, whatever the client asked for.
        needed: u8,
        /// Replicas that were addressed.
        from: u8,
        /// What that means for the record.
        known: Known,
        /// Who refused last, and why; `None` = nobody did.
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

/// What is known about an operation that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing changed: safe to try again.
    NotApplied,
    /// Applied at most once, or not at all.
    Unknown,
}

/// When a copy counts as held. Mirrors the engine's setting, which this crate does not import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After `fdatasync`: survives the machine.
    Sync,
    /// After `write`: survives the process, not the machine.
    Os,
}

/// The text of the header `Dendra-Receipt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// What was achieved.
    Achieved {
        /// Replicas that answered.
        acks: u8,
        /// Replicas that were asked.
        from: u8,
        /// What that promises.
        level: Consistency,
        /// When a copy counted as held.
        durability: Durability,
    },
    /// What is known instead.
    Failed {
        /// Replicas that answered, of how many asked, where any was asked.
        acks: Option<(u8, u8)>,
        /// What that means for the record.
        known: Known,
    },
}

impl Outcome {
    /// What is known about the record when the operation did not do what was asked; `None` when it
    /// did.
    pub fn known(&self) -> Option<Known> {
        match self {
            Outcome::Found { .. }
            | Outcome::Unchanged { .. }
            | Outcome::Missing
            | Outcome::Stored { .. }
            | Outcome::Deleted { .. } => None,
            Outcome::ConditionFailed { .. }
            | Outcome::Overloaded { .. }
            | Outcome::Unreachable { .. }
            | Outcome::DeadlinePassed => Some(Known::NotApplied),
            Outcome::NotEnough { known, .. } => Some(*known),
            Outcome::Overtaken { .. } => Some(Known::Unknown),
        }
    }

    /// The receipt for an operation that asked for `quorum`, which stands for `level`.
    pub fn receipt(&self, quorum: Quorum, level: Consistency, durability: Durability) -> Receipt {
        match self {
            Outcome::Overloaded { .. } | Outcome::Unreachable { .. } | Outcome::DeadlinePassed => {
                Receipt::Failed {
                    acks: None,
                    known: Known::NotApplied,
                }
            }
            Outcome::NotEnough {
                got, from, known, ..
            } => Receipt::Failed {
                acks: Some((*got, *from)),
                known: *known,
            },
            Outcome::Overtaken { got, from } => Receipt::Failed {
                acks: Some((*got, *from)),
                known: Known::Unknown,
            },
            _ => Receipt::Achieved {
                acks: quorum.ack(),
                from: quorum.from(),
                level,
                durability,
            },
        }
    }
}

impl Known {
    /// As in receipts.
    pub fn as_str(self) -> &'static str {
        match self {
            Known::NotApplied => "not-applied",
            Known::Unknown => "unknown",
        }
    }
}

impl Durability {
    /// As in options, receipts and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Os => "os",
        }
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Receipt::Achieved {
                acks,
                from,
                level,
                durability,
            } => write!(
                f,
                "acks={acks}/{from}; level={}; durability={}",
                level.as_str(),
                durability.as_str()
            ),
            Receipt::Failed { acks, known } => {
                if let Some((got, from)) = acks {
                    write!(f, "acks={got}/{from}; ")?;
                }
                write!(f, "outcome={}", known.as_str())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(outcome: Outcome, quorum: Quorum, durability: Durability) -> String {
        outcome
            .receipt(quorum, quorum.level(3, 3), durability)
            .to_string()
    }

    fn quorum(ack: u32, from: u32) -> Quorum {
        Quorum::new(ack, from, 3).expect("three nodes have that many copies")
    }

    #[test]
    fn a_receipt_says_what_was_achieved() {
        let one = Quorum::usual(3, 1);
        let stored = Outcome::Stored {
            version: Version::ZERO,
        };
        assert_eq!(
            stored
                .receipt(one, one.level(3, 1), Durability::Sync)
                .to_string(),
            "acks=1/1; level=linearizable; durability=sync"
        );
        assert_eq!(
            text(stored, quorum(2, 3), Durability::Os),
            "acks=2/3; level=linearizable; durability=os"
        );
        assert_eq!(
            text(Outcome::Missing, quorum(1, 3), Durability::Sync),
            "acks=1/3; level=eventual; durability=sync"
        );
    }

    #[test]
    fn a_receipt_of_a_failure_says_what_is_known_instead() {
        let refused = Outcome::Overloaded {
            refusal: Refusal::Requests,
        };
        assert_eq!(
            text(refused, quorum(2, 3), Durability::Sync),
            "outcome=not-applied"
        );
        let lost = Outcome::NotEnough {
            got: 1,
            needed: 2,
            from: 3,
            known: Known::Unknown,
            refused: None,
        };
        assert_eq!(
            text(lost, quorum(2, 3), Durability::Sync),
            "acks=1/3; outcome=unknown"
        );
    }

    #[test]
    fn only_a_lost_quorum_can_leave_the_record_unknown() {
        let failed = [
            Outcome::ConditionFailed { current: None },
            Outcome::DeadlinePassed,
            Outcome::Overloaded {
                refusal: Refusal::DiskFull,
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
