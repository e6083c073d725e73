//! Sessions of peers that ask over plain HTTP, by their tokens; shared by all loops.
//!
//! ```text
//! hello ─► unproven: token ─► session     the oldest makes room, beyond `SESSIONS_UNPROVEN_MAX`
//!             │ the token comes back: its sender knows the secret; and its member is let in, which is durable
//!             └► settled: token ─► session     one for each loop of each peer: a newer one replaces it
//! ```
//!
//! Invariants
//! 1. A token is found only after a handshake in which it was not sent: only its maker can show it.
//! 2. Strangers can only fill the table of hellos without a proof. They replace no session that was
//!    settled. Nor does a process that knows the secret and is not let in.
//! 3. A session of an earlier life of a peer ends with the first that is settled in a later one.
//!
//! Not here: the answer to a question (`peers/hop.rs`), the bytes of a token (crate `wire`,
//! `peer/proof.rs`).
//! See: docs/peer.md, section "Over plain HTTP".

use super::hello_maker::HelloMaker;
use crate::limits;
use dendra_ownership::membership::identity::Peer;
use dendra_wire::peer::{FrameAge, Proof, SessionKeys};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The results of one handshake.
pub(crate) struct Session {
    /// Which process asks.
    pub(crate) visitor: HelloMaker,
    /// The address that it says to have.
    pub(crate) url: String,
    /// The claim under which it was let in.
    pub(crate) claim: Peer,
    /// Loop of the asker.
    pub(crate) lane: u16,
    /// The keys that authenticate its frames.
    pub(crate) keys: SessionKeys,
    /// Is its claim durable here?
    is_learnt: AtomicBool,
    /// How long its questions are on their way.
    age: Mutex<FrameAge>,
}

impl Session {
    /// A session of loop `lane` of a process.
    pub(crate) fn new(
        (visitor, url): (HelloMaker, String),
        claim: Peer,
        lane: u16,
        keys: SessionKeys,
    ) -> Session {
        Session {
            visitor,
            url,
            claim,
            lane,
            keys,
            is_learnt: AtomicBool::new(false),
            age: Mutex::default(),
        }
    }

    /// Is the peer's claim durable here?
    pub(crate) fn is_learnt(&self) -> bool {
        self.is_learnt.load(Ordering::Acquire)
    }

    /// From now on it is.
    pub(crate) fn set_learnt(&self) {
        self.is_learnt.store(true, Ordering::Release);
    }

    /// How long a question took that was sent at `sent_ms` of its clock and read at `now_ms` of
    /// ours.
    pub(crate) fn age_ms(&self, sent_ms: u32, now_ms: u64) -> u32 {
        let mut age = self.age.lock().expect("no holder panics");
        age.of(sent_ms, now_ms)
    }
}

type Token = [u8; Proof::BYTES];

#[derive(Default)]
struct SessionTable {
    unproven: VecDeque<(Token, Arc<Session>)>,
    settled: HashMap<Token, Arc<Session>>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<SessionTable>);

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Tokens are not shown.
        f.write_str("Sessions")
    }
}

impl Sessions {
    /// Keeps the session of a hello for the request that comes with `token`.
    pub(crate) fn keep(&self, token: &Proof, session: Session) {
        let mut table = self.0.lock().expect("no holder panics");
        if table.unproven.len() >= limits::SESSIONS_UNPROVEN_MAX {
            table.unproven.pop_front();
        }
        let session = Arc::new(session);
        table.unproven.push_back((*token.as_bytes(), session));
    }

    /// The session of a token.
    pub(crate) fn find(&self, token: &Proof) -> Option<Arc<Session>> {
        let table = self.0.lock().expect("no holder panics");
        let token = token.as_bytes();
        if let Some(session) = table.settled.get(token) {
            return Some(Arc::clone(session));
        }
        // Newest first: the process that has just said hello comes next.
        let mut newest = table.unproven.iter().rev();
        let found = newest.find(|(known, _)| known == token);
        found.map(|(_, session)| Arc::clone(session))
    }

    /// The member of this session was let in, and its claim is durable here.
    pub(crate) fn settle(&self, token: &Proof) {
        let mut table = self.0.lock().expect("no holder panics");
        let token = token.as_bytes();
        let at = table.unproven.iter().rposition(|(known, _)| known == token);
        let Some((proven, session)) = at.and_then(|at| table.unproven.remove(at)) else {
            return;
        };
        table.settled.retain(|_, other| {
            other.visitor != session.visitor
                || (other.lane != session.lane && other.claim.boot >= session.claim.boot)
        });
        table.settled.insert(proven, session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_ownership::MemberIndex;

    fn token(byte: u8) -> Proof {
        Proof::from([byte; Proof::BYTES])
    }

    fn session(member: u8, lane: u16, boot: u64) -> Session {
        let claim = Peer {
            node: 1,
            boot,
            life: boot,
            clock: 0,
        };
        Session::new(
            (HelloMaker::Member(MemberIndex(member)), String::new()),
            claim,
            lane,
            SessionKeys::new(None, "a", "b"),
        )
    }

    #[test]
    fn a_token_is_known_after_its_hello_and_no_other_is() {
        let sessions = Sessions::default();
        assert!(sessions.find(&token(1)).is_none());
        sessions.keep(&token(1), session(1, 0, 1));
        let found = sessions.find(&token(1)).expect("it was kept");
        assert_eq!(found.visitor, HelloMaker::Member(MemberIndex(1)));
        assert!(sessions.find(&token(2)).is_none());
        sessions.settle(&token(1));
        let again = sessions.find(&token(1)).expect("it was settled");
        assert!(Arc::ptr_eq(&found, &again));
    }

    #[test]
    fn a_loop_has_one_session_and_a_new_life_ends_all_of_the_one_before() {
        let sessions = Sessions::default();
        for (n, lane, boot) in [(1, 0, 1), (2, 1, 1), (3, 0, 1)] {
            sessions.keep(&token(n), session(1, lane, boot));
            sessions.settle(&token(n));
        }
        assert!(sessions.find(&token(1)).is_none(), "it was replaced");
        assert!(sessions.find(&token(2)).is_some(), "another loop");
        sessions.keep(&token(4), session(2, 0, 7));
        sessions.settle(&token(4));
        sessions.keep(&token(5), session(1, 5, 2));
        assert!(sessions.find(&token(5)).is_some());
        assert!(sessions.find(&token(3)).is_some(), "nobody was let in yet");
        sessions.settle(&token(5));
        assert!(sessions.find(&token(2)).is_none() && sessions.find(&token(3)).is_none());
        assert!(sessions.find(&token(4)).is_some(), "another member");
    }

    #[test]
    fn hellos_of_strangers_are_bounded_and_replace_no_session() {
        let sessions = Sessions::default();
        sessions.keep(&token(1), session(1, 0, 1));
        sessions.settle(&token(1));
        sessions.keep(&token(2), session(1, 1, 1));
        for n in 0..limits::SESSIONS_UNPROVEN_MAX {
            let mut bytes = [9; Proof::BYTES];
            bytes[..8].copy_from_slice(&n.to_le_bytes());
            sessions.keep(&Proof::from(bytes), session(1, 0, 9));
        }
        let table = sessions.0.lock().expect("no holder panics");
        assert_eq!(table.unproven.len(), limits::SESSIONS_UNPROVEN_MAX);
        drop(table);
        assert!(sessions.find(&token(2)).is_none(), "the oldest made room");
        assert!(sessions.find(&token(1)).is_some(), "it was settled");
    }
}
