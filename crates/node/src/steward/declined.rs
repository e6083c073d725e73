//! Why an order about the cluster is declined, each reason with its way out and a stable code.
//!
//! Invariants
//! 1. An order that was declined changed nothing, except [`Declined::NoMajority`]: the change may
//!    still be chosen.
//! 2. A code is one word for programs, and stays the same from release to release.
//!
//! Not here: why no plan can be made (`ring/plan/refusal.rs`), why a record cannot follow
//! (`topology/why_not.rs`).

use crate::limits::{LINKS_SETTLE_US, MEMBERS_MAX};
use crate::repair::loss::NoLoss;
use crate::ring::plan::NoPlan;
use crate::ring::table::MemberId;
use crate::steward::draft_id::DraftId;
use crate::topology::BadMember;
use crate::topology::why_not::WhyNot;
use dendra_base::{ClusterVersion, ClusterVersions};
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
    /// No member has this address.
    NotAMember {
        /// As given.
        url: String,
    },
    /// A joiner shows the address of a member, and another folder.
    IsMember {
        /// Normalised.
        url: String,
    },
    /// A member has the address that another one is to get.
    AddressTaken {
        /// Normalised.
        url: String,
    },
    /// The member to be replaced answers.
    Answers {
        /// Of that member.
        url: String,
        /// The other member that reaches it; `None` = the one that was asked.
        at: Option<String>,
    },
    /// The member to be replaced is missed for too short a time.
    NotMissedYet {
        /// Of that member.
        url: String,
        /// For so long it has to be missed still.
        seconds: u64,
    },
    /// The order asks for no change.
    NothingAsked,
    /// The order names one member twice, in ways that contradict each other.
    Contradiction {
        /// Of that member.
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
    /// One plan would change the number of copies by more than one.
    CopiesApart {
        /// Copies of a record now.
        now: u8,
        /// As asked for.
        wanted: u8,
    },
    /// The number of copies was lowered, and not all copies were compared since.
    CopiesNotCompared {
        /// Copies of a record before that.
        before: u8,
        /// Copies of a record now.
        now: u8,
    },
    /// The number of copies falls, or fell a moment ago, and a member that is up would take copies
    /// with it.
    CopiesGo {
        /// Of that member.
        url: String,
        /// Copies of a record before that.
        before: u8,
        /// Copies of a record behind it.
        now: u8,
    },
    /// The joiner is of another cluster.
    OtherCluster {
        /// The name here.
        ours: String,
        /// The name there.
        theirs: String,
    },
    /// The joiner's folder is one of a member that was removed.
    Returned {
        /// The address that it joins with.
        url: String,
    },
    /// Versions that the joiner makes could not be told from those of a member.
    SameOrigin {
        /// The address that it joins with.
        url: String,
    },
    /// A joiner of weight 0, or the like.
    NoFolder {
        /// The address that it joins with.
        url: String,
    },
    /// The version in force is the newest that this member knows.
    NewestVersion {
        /// That version.
        version: ClusterVersion,
    },
    /// A member runs a release that does not know the version.
    OlderRelease {
        /// Of that member.
        url: String,
        /// The versions that its release knows.
        versions: ClusterVersions,
        /// The version that was to be in force.
        version: ClusterVersion,
    },
    /// A member does not answer, and its release is not known.
    Away {
        /// Of that member.
        url: String,
    },
    /// Another member was asked than the damaged one.
    OtherMember {
        /// Of the damaged one.
        url: String,
    },
    /// There is no loss to accept.
    NoLoss {
        /// Of the asked member.
        url: String,
        /// The reason.
        why: NoLoss,
        /// The address of the member that the reason names, if it names one.
        other: Option<String>,
    },
    /// The asked member lacks epochs of its folder, and cannot go on by itself.
    EpochsLost {
        /// Of the asked member.
        url: String,
        /// The newest epoch that it can read.
        epoch: u64,
        /// The newest epoch that it has taken part in.
        missing: u64,
        /// The other members of the epoch that it can read.
        others: Vec<String>,
    },
    /// What may be lost is not what the confirmation names.
    OtherLoss {
        /// The confirmation.
        id: DraftId,
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
    /// Does the order have to wait until the plan under way has ended?
    pub(crate) fn is_plan_under_way(&self) -> bool {
        match self {
            Declined::NoPlan { why, .. } => matches!(why, NoPlan::Moving { .. }),
            Declined::CannotFollow(why) => matches!(why, WhyNot::PlanUnderWay { .. }),
            _ => false,
        }
    }

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
                WhyNot::NoPlan => "no-plan-under-way",
                WhyNot::NotEnrolled { .. } => "not-enrolled",
                WhyNot::Returned { .. } => "removed",
                WhyNot::NoVoter { .. } => "no-vote",
                _ => "cannot-follow",
            },
            Declined::Member(_) => "bad-member",
            Declined::NotAMember { .. } => "not-a-member",
            Declined::IsMember { .. } | Declined::AddressTaken { .. } => "is-member",
            Declined::Answers { .. } | Declined::NotMissedYet { .. } => "member-answers",
            Declined::NothingAsked => "nothing-asked",
            Declined::Contradiction { .. } => "contradiction",
            Declined::UnknownDraft { .. } => "unknown-plan",
            Declined::OtherEpoch { .. } => "other-epoch",
            Declined::TooMany { .. } => "too-many-members",
            Declined::CopiesApart { .. } => "copies-apart",
            Declined::CopiesNotCompared { .. } | Declined::CopiesGo { .. } => "copies-not-compared",
            Declined::OtherCluster { .. } => "other-cluster",
            Declined::Returned { .. } => "removed",
            Declined::SameOrigin { .. } => "same-origin",
            Declined::NoFolder { .. } => "no-folder",
            Declined::NewestVersion { .. } => "newest-version",
            Declined::OlderRelease { .. } => "older-release",
            Declined::Away { .. } => "member-away",
            Declined::OtherMember { .. } => "other-member",
            Declined::NoLoss { why, .. } => match why {
                NoLoss::NoDamage => "no-damage",
                NoLoss::NotNeeded => "not-needed",
                NoLoss::Accepted => "loss-accepted",
                NoLoss::Away { .. } => "member-away",
                NoLoss::Unreadable { .. } => "unreadable-copies",
                NoLoss::NoCopy => "no-copy-left",
                NoLoss::DamagedToo { .. } => "damaged-too",
                NoLoss::NotKnown => "not-known-yet",
            },
            Declined::EpochsLost { .. } => "epochs-lost",
            Declined::OtherLoss { .. } => "other-loss",
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
            Declined::NotAMember { url } => write!(
                f,
                "{url} is not a member of this cluster; dendra cluster status lists those that are"
            ),
            Declined::IsMember { url } => write!(
                f,
                "{url} is a member already, with another folder; if that folder is lost, stop its \
                 process and start this one with --replace {url}"
            ),
            Declined::AddressTaken { url } => write!(
                f,
                "{url} is the address of a member already; give one that no member has"
            ),
            Declined::Answers { url, at: Some(at) } => write!(
                f,
                "{url} answers {at}, so it is not lost; look at the network between it and the \
                 member that was asked; to replace it all the same, stop its process first"
            ),
            Declined::NotMissedYet { url, seconds } => write!(
                f,
                "{url} was reached a moment ago; it counts as lost when no member reaches it in \
                 the next {seconds} s"
            ),
            Declined::Answers { url, at: None } => write!(
                f,
                "{url} answers, so it is not lost; stop its process first, or join as a further \
                 member and remove {url} afterwards"
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
            Declined::CopiesApart { now, wanted } => write!(
                f,
                "a plan changes the number of copies by one, and {wanted} is more than one from \
                 {now}; go there step by step, one plan after the other"
            ),
            Declined::CopiesNotCompared { before, now } => write!(
                f,
                "records may have had {before} copies, and not all were compared since there are \
                 {now}: with fewer still a read may miss a write; wait until the horizons have risen \
                 once (`dendra cluster status` says what holds them), then plan again"
            ),
            Declined::CopiesGo { url, before, now } => write!(
                f,
                "{url} is up, and a record may be there and at one other member alone until all \
                 copies were compared behind the fall of the replication factor from {before} to \
                 {now}; lower the factor in a plan of its own, wait until `dendra cluster status` \
                 counts no more steps for it, then remove {url}"
            ),
            Declined::OtherCluster { ours, theirs } => write!(
                f,
                "this member is of the cluster {ours}, and the new one says {theirs}; check \
                 --cluster-name and the address of --join"
            ),
            Declined::Returned { url } => write!(
                f,
                "the folder of {url} belonged to a member that was removed, and never comes back: \
                 it has forgotten what was written since; join with an empty folder"
            ),
            Declined::SameOrigin { url } => write!(
                f,
                "the folder of {url} would make versions like those of another member, by a chance \
                 of one in 16 million; join with another empty folder"
            ),
            Declined::NoFolder { url } => write!(
                f,
                "{url} shows no folder; start it with a data folder that it may write to"
            ),
            Declined::NewestVersion { version } => write!(
                f,
                "version {version} is in force, and the release of this member knows no later one; \
                 there is nothing to finalize"
            ),
            Declined::OlderRelease {
                url,
                versions,
                version,
            } => write!(
                f,
                "the release of {url} knows version {versions}, and the next one is {version}; start \
                 that member with the new release first"
            ),
            Declined::Away { url } => write!(
                f,
                "{url} cannot be reached from here, and an older release could not start again \
                 afterwards; start that member with the new release, or remove it, first"
            ),
            Declined::OtherMember { url } => write!(
                f,
                "only {url} knows its damage: give the order at the admin port of that member"
            ),
            Declined::NoLoss { url, why, other } => {
                let other = other.as_deref().unwrap_or("another owner");
                match why {
                    NoLoss::NoDamage => write!(
                        f,
                        "no damaged block of {url} waits for another owner; damage counts when two \
                         scrubs have found it, and the log of {url} names it then"
                    ),
                    NoLoss::NotNeeded => write!(
                        f,
                        "{url} repairs its damage without a loss: enough owners answer; wait for it"
                    ),
                    NoLoss::Accepted => write!(
                        f,
                        "the loss was accepted, and {url} repairs its damage; a repair begins a \
                         minute after the damage was found"
                    ),
                    NoLoss::Away { .. } => write!(
                        f,
                        "{other} does not answer and may come back with its copies: start it; if its \
                         folder is lost, replace it (dendra serve --join … --replace {other}), and \
                         give this order again"
                    ),
                    NoLoss::Unreadable { .. } => write!(
                        f,
                        "{other} cannot read its copies of these ranges either, and they have no \
                         other owner that is left; wait if it repairs them, else restore a backup \
                         into a new cluster"
                    ),
                    NoLoss::DamagedToo { .. } => write!(
                        f,
                        "{other} cannot read its copies of these ranges either, and each of the two \
                         waits for the other: stop {other}, replace it (dendra serve --join … \
                         --replace {other}), and give this order again"
                    ),
                    NoLoss::NotKnown => write!(
                        f,
                        "{url} started a moment ago, and does not know yet which members answer: \
                         give this order again in {} s",
                        LINKS_SETTLE_US / 1_000_000
                    ),
                    NoLoss::NoCopy => write!(
                        f,
                        "no copy is left of the damaged ranges of {url}, so that nothing can fill \
                         them; restore a backup into a new cluster"
                    ),
                }
            }
            Declined::EpochsLost {
                url,
                epoch,
                missing,
                others,
            } => {
                write!(
                    f,
                    "{url} cannot read the epochs behind {epoch}, and has taken part in epoch \
                     {missing}: "
                )?;
                if others.is_empty() {
                    f.write_str(
                        "start a member that joined since, which knows them; if there is none, \
                     restore a backup into a new cluster",
                    )
                } else {
                    write!(
                        f,
                        "start {}, or a member that joined since: it knows them; if all are lost, \
                     restore a backup into a new cluster",
                        others.join(" or ")
                    )
                }
            }
            Declined::OtherLoss { id } => write!(
                f,
                "what may be lost now is not what {id} names: give the order without a confirmation, \
                 read it, and confirm that"
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
