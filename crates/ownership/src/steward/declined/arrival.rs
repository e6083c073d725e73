//! Why a process cannot become a member, each reason with its way out.
//!
//! Invariants
//! 1. A reason names the address of the member, or of the process, that has to change.
//!
//! Not here: other orders (`mod.rs`), the draft that takes a process in (`draft.rs`).

use std::fmt;

/// Why no member comes of a process. `Display` names the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoArrival {
    /// A joiner shows the address of a member, and another folder.
    IsMember {
        /// Normalised.
        url: String,
    },
    /// A joiner shows the address of a member that is joining, and another folder.
    Joins {
        /// URL of the member that is joining.
        url: String,
        /// The plan that takes it in.
        plan: u64,
    },
    /// The member to be replaced answers.
    Answers {
        /// URL of the member to be replaced.
        url: String,
        /// The other member that reaches it; `None` = the one that was asked.
        at: Option<String>,
    },
    /// The member to be replaced is missed for too short a time.
    NotMissedYet {
        /// URL of the member to be replaced.
        url: String,
        /// For so long it has to be missed still.
        seconds: u64,
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
}

impl NoArrival {
    pub(super) fn code(&self) -> &'static str {
        match self {
            NoArrival::IsMember { .. } | NoArrival::Joins { .. } => "is-member",
            NoArrival::Answers { .. } | NoArrival::NotMissedYet { .. } => "member-answers",
            NoArrival::OtherCluster { .. } => "other-cluster",
            NoArrival::Returned { .. } => "removed",
            NoArrival::SameOrigin { .. } => "same-origin",
            NoArrival::NoFolder { .. } => "no-folder",
        }
    }
}

impl fmt::Display for NoArrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoArrival::IsMember { url } => write!(
                f,
                "{url} is a member already, with another folder; if that folder is lost, stop its \
                 process and start this one with --replace {url}"
            ),
            NoArrival::Joins { url, plan } => write!(
                f,
                "plan {plan} takes {url} in with another folder, and waits for that; if that folder \
                 is lost, stop its process, cancel the plan (dendra cluster cancel), wait until \
                 dendra cluster status shows no plan, and start this process again with an empty \
                 folder: with --replace {url} if {url} is listed as a member then, else with the \
                 options of its first start"
            ),
            NoArrival::Answers { url, at: Some(at) } => write!(
                f,
                "{url} answers {at}, so it is not lost; look at the network between it and the \
                 member that was asked; to replace it all the same, stop its process first"
            ),
            NoArrival::Answers { url, at: None } => write!(
                f,
                "{url} answers, so it is not lost; stop its process first, or join as a further \
                 member and remove {url} afterwards"
            ),
            NoArrival::NotMissedYet { url, seconds } => write!(
                f,
                "{url} was reached a moment ago; it counts as lost when no member reaches it in \
                 the next {seconds} s"
            ),
            NoArrival::OtherCluster { ours, theirs } => write!(
                f,
                "this member is of the cluster {ours}, and the new one says {theirs}; check \
                 --cluster-name and the address of --join"
            ),
            NoArrival::Returned { url } => write!(
                f,
                "the folder of {url} belonged to a member that was removed, and never comes back: \
                 it has forgotten what was written since; join with an empty folder"
            ),
            NoArrival::SameOrigin { url } => write!(
                f,
                "the folder of {url} would make versions like those of another member, by a chance \
                 of one in 16 million; join with another empty folder"
            ),
            NoArrival::NoFolder { url } => write!(
                f,
                "{url} shows no folder; start it with a data folder that it may write to"
            ),
        }
    }
}
