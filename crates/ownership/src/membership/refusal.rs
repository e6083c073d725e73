//! The meaning of a handshake without a link, for this process.
//!
//! | answer of the other side | this process |
//! |---|---|
//! | farewell `other-node` or `removed`, of an older epoch than the own one | asks again: the other side learns first |
//! | farewell `other-node`, `removed`, `rolled-back`, `twin`, with a proof | ends; its folder is doubted, or refused for ever |
//! | farewell `still-there`, with a proof | asks again, and ends after `TWIN_PATIENCE_US` |
//! | any other farewell, a status that a setting explains | asks again, and is not ready |
//! | no answer, any other status | asks again |
//!
//! Invariants
//! 1. Only a farewell under the keys of the handshake ends a process: its maker knows the secret.
//!    Every program that reaches a port can make the other answers.
//! 2. No refusal counts that a newer epoch contradicts. The own epoch names this folder: an older
//!    one that knows another folder, or none, is out of date.
//! 3. A folder is refused for ever only on the word of more than half of the other members of the
//!    newest epoch that is known. The word of fewer ends the process, for one member may know more
//!    than all others; and the folder is asked about again at its next start.
//!
//! Not here: the handshake (crate `wire`), the patience (`mod.rs`, `start.rs`), the files that keep
//! the verdict (crate `server`, `disk/mark.rs`).
//! See: docs/peer.md, section "Handshake".

use super::identity::{
    DISOWNING, IMPLAUSIBLE, OF_AN_EPOCH, OTHER_NODE, REMOVED, ROLLED_BACK, TWIN,
};
use crate::topology::Topology;
use std::fmt::{self, Write};

/// Code of the refusal of a process beside another one of its member.
pub const STILL_THERE: &str = "still-there";

/// The codes of all refusals.
const REFUSING: [&str; 6] = [
    OTHER_NODE,
    ROLLED_BACK,
    TWIN,
    REMOVED,
    IMPLAUSIBLE,
    STILL_THERE,
];

/// Why a handshake led to no link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoLink {
    /// No answer, or one that the next try may change.
    ForNow(String),
    /// One side does not admit the other: an operator has to change settings.
    NotAdmitted(String),
    /// The other side has links to another process of this member.
    StillThere(String),
    /// The other side knows another folder of this member.
    Refused(FolderRefusal),
}

/// The word of one member against this folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderRefusal {
    /// Address of the member.
    pub url: String,
    /// The epoch that the member knew.
    pub epoch: u64,
    /// How many members that epoch has beside this one.
    pub others: u16,
    /// For people.
    pub sentence: String,
}

/// Which programs can have made a farewell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// Only a member: the farewell has the keys of the handshake.
    Member,
    /// Any program.
    Anyone,
}

/// What becomes of the folder of a process that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderVerdict {
    /// The folder may be used as before.
    Usable,
    /// Fewer than a majority refuse it: a later start with the same number asks all others again.
    Doubted,
    /// No process may start on it any more.
    Refused,
}

/// Why this process has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disowned {
    /// Which members refuse it, and why.
    pub sentence: String,
    /// What becomes of its folder.
    pub folder: FolderVerdict,
}

/// The newest epoch that this process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnEpoch {
    pub(super) epoch: u64,
    /// Members of the epoch beside this one.
    pub(super) others: u16,
}

impl OwnEpoch {
    pub(super) fn of(topology: &Topology) -> OwnEpoch {
        OwnEpoch {
            epoch: topology.epoch(),
            others: u16::from(topology.live()).saturating_sub(1),
        }
    }
}

impl NoLink {
    /// Reason in a farewell of the member at `url`: see [`Rejected`] for its form. `epoch` is the
    /// newest one that this process knows.
    pub fn of_farewell(url: &str, said: &str, maker: Maker, epoch: u64) -> NoLink {
        let not_admitted = || NoLink::NotAdmitted(said.to_owned());
        let Some(refusal) = Rejected::parse(said).filter(|_| maker == Maker::Member) else {
            return not_admitted();
        };
        let Rejected {
            code,
            epoch: theirs,
            others,
            sentence,
        } = refusal;
        if code == STILL_THERE {
            return NoLink::StillThere(format!(
                "{url} does not let this process in: {code}: {sentence}"
            ));
        }
        if !DISOWNING.contains(&code) {
            return not_admitted();
        }
        if OF_AN_EPOCH.contains(&code) && theirs < epoch {
            return NoLink::ForNow(format!(
                "it does not know this folder in its epoch {theirs}, and learns epoch {epoch} first"
            ));
        }
        NoLink::Refused(FolderRefusal {
            url: url.to_owned(),
            epoch: theirs,
            others,
            sentence: format!("{url} does not let this folder in: {code}: {sentence}"),
        })
    }

    /// Reason in a status in the place of a hello.
    pub fn of_status(status: u16, body: &str) -> NoLink {
        let reason = format!("it answered {status}: {}", body.trim());
        match status {
            400 | 403 | 404 | 409 | 421 => NoLink::NotAdmitted(reason),
            // It starts, stops or is overloaded; or an intermediary has no server behind it.
            _ => NoLink::ForNow(reason),
        }
    }

    /// For the log.
    pub fn reason(&self) -> &str {
        match self {
            NoLink::ForNow(reason) | NoLink::NotAdmitted(reason) | NoLink::StillThere(reason) => {
                reason
            }
            NoLink::Refused(refusal) => &refusal.sentence,
        }
    }
}

impl From<String> for NoLink {
    fn from(reason: String) -> NoLink {
        NoLink::ForNow(reason)
    }
}

impl From<&str> for NoLink {
    fn from(reason: &str) -> NoLink {
        NoLink::ForNow(reason.to_owned())
    }
}

impl Disowned {
    /// Another process is this member: the folder is sound.
    pub fn beside_another(sentence: String) -> Disowned {
        Disowned {
            sentence,
            folder: FolderVerdict::Usable,
        }
    }

    /// The verdict of these members, one word each. Requires: at least one.
    pub(super) fn by(refusals: &[&FolderRefusal], own: OwnEpoch) -> Disowned {
        let newest = refusals.iter().max_by_key(|refusal| refusal.epoch);
        let newest = newest.expect("a verdict needs a refusal");
        let (epoch, others) = if newest.epoch > own.epoch {
            (newest.epoch, newest.others)
        } else {
            (own.epoch, own.others)
        };
        let is_majority = 2 * refusals.len() > usize::from(others);
        let urls: Vec<&str> = refusals.iter().map(|refusal| &*refusal.url).collect();
        let mut sentence = newest.sentence.clone();
        let (of, who) = (refusals.len(), urls.join(", "));
        write!(
            sentence,
            " (the word of {of} of the {others} other members of epoch {epoch}: {who})"
        )
        .expect("a string takes everything");
        let folder = if is_majority {
            FolderVerdict::Refused
        } else {
            sentence.push_str(
                "; that is no majority, so the next start on this folder asks all members again",
            );
            FolderVerdict::Doubted
        };
        Disowned { sentence, folder }
    }

    /// The folder is doubted, and these members did not say that they let it in.
    pub(super) fn still_doubted(silent: &[String]) -> Disowned {
        let who = silent.join(", ");
        Disowned {
            sentence: format!(
                "a member refused this folder at an earlier start, so it needs the word of all others, and {who} did not \
                 answer: start it again when they run"
            ),
            folder: FolderVerdict::Doubted,
        }
    }
}

/// Why a process is refused. As a farewell: `other-node epoch=8 others=2: sentence`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The stable code.
    pub code: &'static str,
    /// The newest epoch that the refusing member knows.
    pub epoch: u64,
    /// How many members that epoch has beside the refused one.
    pub others: u16,
    /// For people.
    pub sentence: String,
}

impl Rejected {
    /// Reads the form that `Display` writes; `None` = it is no refusal of a folder or process.
    pub fn parse(said: &str) -> Option<Rejected> {
        let (head, sentence) = said.split_once(": ")?;
        let mut words = head.split(' ');
        let code = words.next()?;
        let known = REFUSING.into_iter().find(|known| *known == code)?;
        let epoch = words.next()?.strip_prefix("epoch=")?.parse().ok()?;
        let others = words.next()?.strip_prefix("others=")?.parse().ok()?;
        words.next().is_none().then(|| Rejected {
            code: known,
            epoch,
            others,
            sentence: sentence.to_owned(),
        })
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rejected {
            code,
            epoch,
            others,
            sentence,
        } = self;
        write!(f, "{code} epoch={epoch} others={others}: {sentence}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_legal_refusal_is_read_as_it_was_said(
            code in prop::sample::select(REFUSING.to_vec()),
            epoch: u64,
            others: u16,
            sentence in ".*",
        ) {
            let refusal = Rejected { code, epoch, others, sentence };
            prop_assert_eq!(Rejected::parse(&refusal.to_string()), Some(refusal));
        }
    }
}
