//! Why a loss is not accepted, each reason with its way out.
//!
//! Invariants
//! 1. A reason that waits for another member names that one.
//!
//! Not here: other orders (`mod.rs`), which loss a repair would need (crate `node`,
//! `repair/loss.rs`).
//! See: docs/operating.md.

use crate::limits::LINKS_SETTLE_US;
use crate::loss::NoLoss;
use crate::steward::draft_id::DraftId;
use std::fmt;

/// Why a loss is not accepted. `Display` names the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAccepted {
    /// Another member was asked than the damaged one.
    OtherMember {
        /// URL of the damaged member.
        url: String,
    },
    /// There is no loss to accept.
    NoLoss {
        /// URL of the asked member.
        url: String,
        /// The reason.
        why: NoLoss,
        /// The address of the member that the reason names, if it names one.
        other: Option<String>,
    },
    /// The asked member lacks epochs of its folder, and cannot go on by itself.
    EpochsLost {
        /// URL of the asked member.
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
}

impl NotAccepted {
    pub(super) fn code(&self) -> &'static str {
        match self {
            NotAccepted::OtherMember { .. } => "other-member",
            NotAccepted::NoLoss { why, .. } => match why {
                NoLoss::NoDamage => "no-damage",
                NoLoss::NotNeeded => "not-needed",
                NoLoss::Accepted => "loss-accepted",
                NoLoss::Away { .. } => "member-away",
                NoLoss::Unreadable { .. } => "unreadable-copies",
                NoLoss::NoCopy => "no-copy-left",
                NoLoss::DamagedToo { .. } => "damaged-too",
                NoLoss::NotKnown => "not-known-yet",
            },
            NotAccepted::EpochsLost { .. } => "epochs-lost",
            NotAccepted::OtherLoss { .. } => "other-loss",
        }
    }
}

impl fmt::Display for NotAccepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAccepted::OtherMember { url } => write!(
                f,
                "only {url} knows its damage: give the order at the admin port of that member"
            ),
            NotAccepted::NoLoss { url, why, other } => {
                let other = other.as_deref().unwrap_or("another owner");
                no_loss(f, url, why, other)
            }
            NotAccepted::EpochsLost {
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
                missing_epochs(f, others)
            }
            NotAccepted::OtherLoss { id } => write!(
                f,
                "what may be lost now is not what {id} names: give the order without a confirmation, \
                 read it, and confirm that"
            ),
        }
    }
}

/// `other` is the member that the reason names.
fn no_loss(f: &mut fmt::Formatter<'_>, url: &str, why: &NoLoss, other: &str) -> fmt::Result {
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
            "{other} cannot read its copies of these ranges either, and no other owner has \
             shown all of its own yet: give this order again in a minute; if it is refused so \
             for long, restore a backup into a new cluster"
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

/// Where the epochs are that a member lacks; `others` are those of the epoch that it can read.
fn missing_epochs(f: &mut fmt::Formatter<'_>, others: &[String]) -> fmt::Result {
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
