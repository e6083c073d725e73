//! Why a record cannot follow another one, each reason with its way out.
//!
//! Invariants
//! 1. A refusal has no effect: the epoch stays, and the next proposal is judged anew.
//!
//! Not here: why a plan cannot be made (`ring/plan/refusal.rs`).

use super::record::{BadRecord, EpochChange};
use crate::limits::{PLAN_MOVES_MAX, REMOVED_MEMBERS_MAX};
use crate::ring::table::MemberId;
use std::fmt;

/// Why a record cannot follow another one. `Display` names the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// The record is of another cluster.
    Cluster {
        /// The name here.
        ours: String,
        /// The name in the record.
        theirs: String,
    },
    /// The record is not the epoch after this one.
    Epoch {
        /// The epoch here.
        ours: u64,
        /// Epoch of the record.
        theirs: u64,
    },
    /// The record follows another one of the same epoch.
    Previous {
        /// The epoch of that record.
        epoch: u64,
    },
    /// The record has another number of partitions.
    Partitions,
    /// The record names a number or a folder that was removed, or drops one from the list of those.
    Returned {
        /// Under this number.
        member: MemberId,
    },
    /// The record drops a member that owns copies, or is about to.
    Holds {
        /// Which one.
        member: MemberId,
    },
    /// The owner of a position changes without an epoch in which it moves.
    NoJointPhase {
        /// The first such partition.
        partition: u16,
    },
    /// A plan is being carried out.
    PlanUnderWay {
        /// Id of the plan.
        plan: u64,
    },
    /// A plan was cancelled, and ends with the next epoch.
    PlanEnds {
        /// Id of the plan.
        plan: u64,
    },
    /// There is no plan.
    NoPlan,
    /// The plan has moves to do.
    NotDone {
        /// How many.
        moves: usize,
    },
    /// The plan was made for another table, or its moves cannot be done in their order.
    OtherTable,
    /// The plan has more moves than a record holds.
    TooManyMoves {
        /// How many.
        moves: usize,
    },
    /// More members were removed than a record holds.
    TooManyRemoved,
    /// The folder of a member is not known yet.
    NotEnrolled {
        /// Which one.
        member: MemberId,
    },
    /// A member is none of this cluster, or has its folder already.
    NoSuchMember {
        /// Which one.
        member: MemberId,
    },
    /// The new members are not those of the plan, each with its folder.
    Newcomers,
    /// The step does not move anything.
    NoStep,
    /// The record differs in more than its change says.
    Mixed {
        /// The change that it names.
        change: EpochChange,
    },
    /// The outcome would be no record.
    Record(BadRecord),
    /// The proposer has no vote.
    NoVoter {
        /// The proposer.
        member: MemberId,
    },
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::Cluster { ours, theirs } => write!(
                f,
                "the record is of the cluster {theirs}, and this member is of {ours}; ask a member \
                 of {theirs}"
            ),
            WhyNot::Epoch { ours, theirs } => write!(
                f,
                "the record is epoch {theirs}, and only epoch {} can follow epoch {ours}; read the \
                 cluster's state again, and repeat the change",
                ours.saturating_add(1)
            ),
            WhyNot::Previous { epoch } => write!(
                f,
                "the record follows another epoch {epoch} than the one that was chosen; read the \
                 cluster's state again, and repeat the change"
            ),
            WhyNot::Partitions => f.write_str(
                "a cluster keeps the number of partitions that it was founded with; found a new \
                 cluster for another number",
            ),
            WhyNot::Returned { member } => write!(
                f,
                "{member} was removed, or its folder was, and never comes back; start it with an \
                 empty folder, as a new member"
            ),
            WhyNot::Holds { member } => {
                write!(f, "{member} owns copies; move them away first, by a plan")
            }
            WhyNot::NoJointPhase { partition } => write!(
                f,
                "partition {partition} gets another owner without an epoch in which both count; \
                 begin the move, wait until the new owner has loaded, then settle it"
            ),
            WhyNot::PlanUnderWay { plan } => {
                write!(
                    f,
                    "plan {plan} is under way; wait for its end, or cancel it"
                )
            }
            WhyNot::PlanEnds { plan } => write!(
                f,
                "plan {plan} was cancelled, and ends with the next epoch; wait a moment, and \
                 repeat the order"
            ),
            WhyNot::NoPlan => f.write_str("no plan is under way; apply one first"),
            WhyNot::NotDone { moves } => write!(
                f,
                "the plan has {moves} moves to do; wait for them, or cancel it"
            ),
            WhyNot::OtherTable => f.write_str(
                "the plan was made for another table of owners; make it again for this epoch",
            ),
            WhyNot::TooManyMoves { moves } => write!(
                f,
                "the plan has {moves} moves, and an epoch records {PLAN_MOVES_MAX}; change less at \
                 a time"
            ),
            WhyNot::TooManyRemoved => write!(
                f,
                "this cluster has removed {REMOVED_MEMBERS_MAX} members, as many as it can \
                 refuse for ever; copy the records to a new cluster"
            ),
            WhyNot::NotEnrolled { member } => write!(
                f,
                "the folder of {member} is not known yet; start the member and wait until the \
                 others have met it"
            ),
            WhyNot::NoSuchMember { member } => write!(
                f,
                "{member} is not a member that this can be done to; read the list of members again"
            ),
            WhyNot::Newcomers => f.write_str(
                "the new members are not those of the plan, each with a folder of its own; make \
                 the plan again",
            ),
            WhyNot::NoStep => f.write_str("the step moves nothing; propose one that does"),
            WhyNot::Mixed { change } => write!(
                f,
                "the record differs from the epoch before in more than its kind of change, \
                 {change:?}, allows; propose one change at a time"
            ),
            WhyNot::Record(bad) => write!(f, "{bad}; repeat the change with other values"),
            WhyNot::NoVoter { member } => write!(
                f,
                "{member} has no vote in this epoch; ask a member that has one to propose the change"
            ),
        }
    }
}

impl std::error::Error for WhyNot {}

impl From<BadRecord> for WhyNot {
    fn from(bad: BadRecord) -> WhyNot {
        WhyNot::Record(bad)
    }
}
