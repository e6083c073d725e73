//! Why an order about the cluster is declined, each reason with its way out and a stable code.
//!
//! Invariants
//! 1. An order that was declined changed nothing, except [`Declined::NoMajority`]: the change may
//!    still be chosen.
//! 2. A code is one word for programs, and stays the same from release to release.
//!
//! Not here: why no plan can be made (`ring/plan/refusal.rs`), why a record cannot follow
//! (`epoch/why_not.rs`). Of arrivals, copies, versions and losses: the files of this folder.

mod arrival;
mod copies;
mod loss;
mod version;

pub use arrival::NoArrival;
pub use copies::CopiesStay;
pub use loss::NotAccepted;
pub use version::VersionStays;

use crate::epoch::why_not::WhyNot;
use crate::limits::MEMBERS_MAX;
use crate::ring::plan::NoPlan;
use crate::ring::table::MemberId;
use crate::steward::draft_id::DraftId;
use crate::topology::BadMember;
use std::fmt;

/// Why an order was declined. `Display` names the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declined {
    /// No plan can be made.
    NoPlan {
        /// The reason.
        why: NoPlan,
        /// The address of the member that the reason names, if it names one.
        url: Option<String>,
    },
    /// The change cannot follow the newest epoch.
    CannotFollow(WhyNot),
    /// An address, a weight or a zone makes no sense.
    Member(BadMember),
    /// A process cannot become a member.
    NoArrival(NoArrival),
    /// The number of copies stays.
    CopiesStay(CopiesStay),
    /// The version in force stays.
    VersionStays(VersionStays),
    /// A loss is not accepted.
    NotAccepted(NotAccepted),
    /// No member has this address.
    NotAMember {
        /// URL as given.
        url: String,
    },
    /// A member has the address that another one is to get.
    AddressTaken {
        /// Normalised.
        url: String,
    },
    /// The order asks for no change.
    NothingAsked,
    /// The order names one member twice, in ways that contradict each other.
    Contradiction {
        /// URL of the member that is named twice.
        url: String,
    },
    /// This member does not know a plan with this id.
    UnknownDraft {
        /// The id.
        draft: DraftId,
    },
    /// The plan was made for another epoch.
    OtherEpoch {
        /// The epoch that it was made for.
        made: u64,
        /// The epoch now.
        epoch: u64,
    },
    /// While the plan runs the cluster would have more members than a cluster may have.
    TooMany {
        /// How many.
        members: usize,
    },
    /// This member was removed, or has no vote yet.
    NoVote {
        /// This member.
        member: MemberId,
    },
    /// Too many orders wait for their epoch.
    Busy,
    /// No majority of the voters answered in time. The change may still be chosen.
    NoMajority {
        /// The newest epoch here.
        epoch: u64,
    },
}

impl Declined {
    /// One word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Declined::NoPlan { why, .. } => match why {
                NoPlan::NoChange => "no-change",
                NoPlan::FewerMembersThanCopies { .. } => "fewer-members-than-copies",
                NoPlan::LastCopy { .. } => "last-copy",
                NoPlan::Moving { .. } => "plan-under-way",
                NoPlan::Returned { .. } => "removed",
                _ => "no-plan",
            },
            Declined::CannotFollow(why) => match why {
                WhyNot::PlanUnderWay { .. } => "plan-under-way",
                WhyNot::PlanEnds { .. } => "plan-ends",
                WhyNot::NoPlan => "no-plan-under-way",
                WhyNot::NotEnrolled { .. } => "not-enrolled",
                WhyNot::Returned { .. } => "removed",
                WhyNot::NoVoter { .. } => "no-vote",
                _ => "cannot-follow",
            },
            Declined::Member(_) => "bad-member",
            Declined::NotAMember { .. } => "not-a-member",
            Declined::AddressTaken { .. } => "is-member",
            Declined::NoArrival(why) => why.code(),
            Declined::NothingAsked => "nothing-asked",
            Declined::Contradiction { .. } => "contradiction",
            Declined::UnknownDraft { .. } => "unknown-plan",
            Declined::OtherEpoch { .. } => "other-epoch",
            Declined::TooMany { .. } => "too-many-members",
            Declined::CopiesStay(why) => why.code(),
            Declined::VersionStays(why) => why.code(),
            Declined::NotAccepted(why) => why.code(),
            Declined::NoVote { .. } => "no-vote",
            Declined::Busy => "busy",
            Declined::NoMajority { .. } => "no-majority",
        }
    }
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Declined::NoPlan { why, url } => {
                if let Some(url) = url {
                    write!(f, "{url}: ")?;
                }
                why.fmt(f)
            }
            Declined::CannotFollow(why) => why.fmt(f),
            Declined::Member(bad) => bad.fmt(f),
            Declined::NoArrival(why) => why.fmt(f),
            Declined::CopiesStay(why) => why.fmt(f),
            Declined::VersionStays(why) => why.fmt(f),
            Declined::NotAccepted(why) => why.fmt(f),
            Declined::NotAMember { url } => write!(
                f,
                "{url} is not a member of this cluster; dendra cluster status lists those that are"
            ),
            Declined::AddressTaken { url } => write!(
                f,
                "{url} is the address of a member already; give one that no member has"
            ),
            Declined::NothingAsked => f.write_str(
                "the order changes nothing; name a member to remove, a weight, a zone or a \
                 replication factor",
            ),
            Declined::Contradiction { url } => {
                write!(f, "the order names {url} twice; name it once")
            }
            Declined::UnknownDraft { draft } => write!(
                f,
                "this member made no plan {draft}, or has forgotten it; make the plan again here, \
                 read it, and apply it at the same member"
            ),
            Declined::OtherEpoch { made, epoch } => write!(
                f,
                "the plan was made for epoch {made}, and the cluster is at epoch {epoch}; make the \
                 plan again and read it"
            ),
            Declined::TooMany { members } => write!(
                f,
                "{members} members, those that leave included, are more than the {MEMBERS_MAX} that \
                 a cluster may have; let members leave first"
            ),
            Declined::NoVote { member } => write!(
                f,
                "{member} has no vote: it is joining, or it was removed; ask another member"
            ),
            Declined::Busy => f.write_str(
                "too many orders wait for their epoch; wait until those before this one are done",
            ),
            Declined::NoMajority { epoch } => write!(
                f,
                "no majority of the voters answered in time, so the cluster is still at epoch \
                 {epoch} as far as this member knows; the change may still be chosen: read the \
                 status before repeating it"
            ),
        }
    }
}

impl std::error::Error for Declined {}

impl From<WhyNot> for Declined {
    fn from(why: WhyNot) -> Declined {
        Declined::CannotFollow(why)
    }
}

impl From<NoArrival> for Declined {
    fn from(why: NoArrival) -> Declined {
        Declined::NoArrival(why)
    }
}

impl From<CopiesStay> for Declined {
    fn from(why: CopiesStay) -> Declined {
        Declined::CopiesStay(why)
    }
}

impl From<VersionStays> for Declined {
    fn from(why: VersionStays) -> Declined {
        Declined::VersionStays(why)
    }
}

impl From<NotAccepted> for Declined {
    fn from(why: NotAccepted) -> Declined {
        Declined::NotAccepted(why)
    }
}

impl From<BadMember> for Declined {
    fn from(bad: BadMember) -> Declined {
        Declined::Member(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_cannot_follow_has_a_code_for_each_way_out() {
        let member = MemberId(3);
        let rows = [
            (WhyNot::PlanUnderWay { plan: 7 }, "plan-under-way"),
            (WhyNot::PlanEnds { plan: 7 }, "plan-ends"),
            (WhyNot::NoPlan, "no-plan-under-way"),
            (WhyNot::NotEnrolled { member }, "not-enrolled"),
            (WhyNot::Returned { member }, "removed"),
            (WhyNot::NoVoter { member }, "no-vote"),
            (WhyNot::OtherTable, "cannot-follow"),
        ];
        for (why, code) in rows {
            assert_eq!(Declined::CannotFollow(why).code(), code);
        }
    }
}
