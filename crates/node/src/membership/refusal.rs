//! The meaning of a handshake without a link, for this process.
//!
//! | answer of the other side | this process |
//! |---|---|
//! | farewell `other-node`, `rolled-back`, `twin`, with a proof | ends, and its folder is marked |
//! | farewell `still-there`, with a proof | asks again, and ends after `TWIN_PATIENCE_US` |
//! | any other farewell, a status that a setting explains | asks again, and is not ready |
//! | no answer, any other status | asks again |
//!
//! Invariants
//! 1. Only a farewell under the keys of the handshake ends a process: its maker knows the secret.
//!    Every program that reaches a port can make the other answers.
//!
//! Not here: the handshake (crate `wire`), the patience (`mod.rs`, `start.rs`).
//! See: docs/peer.md, section "Handshake".

use super::identity::DISOWNING;

/// Code of the refusal of a process beside another one of its member.
pub const STILL_THERE: &str = "still-there";

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
    Disowned(String),
}

/// Which programs can have made a farewell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// Only a member: the farewell has the keys of the handshake.
    Member,
    /// Any program.
    Anyone,
}

/// Why this process has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disowned {
    /// Which member refuses it, and why.
    pub sentence: String,
    /// Must no process start on this folder any more?
    pub is_for_ever: bool,
}

impl NoLink {
    /// Of a farewell of the member at `url`: a code, a colon and a sentence.
    pub fn of_farewell(url: &str, said: &str, maker: Maker) -> NoLink {
        let code = said.split(':').next().unwrap_or_default();
        let is_believed = maker == Maker::Member;
        if is_believed && DISOWNING.contains(&code) {
            NoLink::Disowned(format!("{url} does not let this folder in: {said}"))
        } else if is_believed && code == STILL_THERE {
            NoLink::StillThere(format!("{url} does not let this process in: {said}"))
        } else {
            NoLink::NotAdmitted(said.to_owned())
        }
    }

    /// Of a status in the place of a hello.
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
            NoLink::ForNow(reason)
            | NoLink::NotAdmitted(reason)
            | NoLink::StillThere(reason)
            | NoLink::Disowned(reason) => reason,
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
