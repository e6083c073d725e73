//! The own link to a peer, by how it carries questions, and the frames that a round left in links.
//!
//! ```text
//! ask, tell, probe, withdraw ─► Link ─┬─ Frames ─► Outbox ─► conduits, flushed when the round is over
//!                                     └─ Http   ─► pool: a request for each
//! ```
//!
//! Invariants
//! 1. All frames of a round to one link are one write.
//! 2. A link whose peer does not read is closed when twice `LINK_OUT_BYTES_MAX` wait in it.
//!
//! Not here: which questions there is room for (`agent.rs`), how a link is opened and ends
//! (`peers/link.rs`).
//! See: docs/peer.md, docs/overload.md.

use super::conduit::Conduit;
use super::pool::Pool;
use crate::limits;
use crate::waiting::seat::LocalBell;
use dendra_wire::limits::PEER_WITHDRAW_IDS_MAX;
use dendra_wire::peer::{self, Question, Seal};
use std::cell::RefCell;
use std::rc::Rc;

/// Links with frames that wait for the end of the round.
pub(crate) struct Outbox {
    dirty: RefCell<Vec<Rc<Conduit>>>,
    /// Rung when there are frames.
    bell: Rc<LocalBell>,
}

impl Outbox {
    pub(crate) fn new(bell: &Rc<LocalBell>) -> Outbox {
        Outbox {
            dirty: RefCell::default(),
            bell: Rc::clone(bell),
        }
    }

    /// Puts frames into a link that is flushed when the round ends.
    pub(crate) fn put(&self, conduit: &Rc<Conduit>, encode: impl FnOnce(&mut Vec<u8>, &mut Seal)) {
        if conduit.put(encode) {
            self.dirty.borrow_mut().push(Rc::clone(conduit));
            self.bell.ring();
        }
        if conduit.waiting() > 2 * limits::LINK_OUT_BYTES_MAX {
            // Answers to admitted questions pile up: the peer does not read them.
            conduit.close();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dirty.borrow().is_empty()
    }

    /// Ends a round: the frames that wait in links go.
    pub(crate) fn flush(&self) {
        for conduit in self.dirty.borrow_mut().drain(..) {
            conduit.flush();
        }
    }
}

/// The own link to a peer, by how it carries questions.
#[derive(Clone)]
pub(crate) enum Link {
    /// One connection, frames both ways.
    Frames(Rc<Conduit>),
    /// A request for each question.
    Http(Rc<Pool>),
}

impl Link {
    /// Bytes that wait to leave.
    pub(crate) fn waiting(&self) -> usize {
        match self {
            Link::Frames(conduit) => conduit.waiting(),
            Link::Http(pool) => pool.waiting(),
        }
    }

    /// Sends a question. Requires: there is room for it.
    pub(crate) fn ask(&self, outbox: &Outbox, question: &Question, now_us: u64) {
        match self {
            Link::Frames(conduit) => {
                outbox.put(conduit, |out, seal| peer::encode_ask(out, seal, question));
            }
            Link::Http(pool) => pool.ask(question, now_us),
        }
    }

    /// Sends a message of the steward.
    pub(crate) fn tell(&self, outbox: &Outbox, body: &[u8], now_us: u64) {
        match self {
            Link::Frames(conduit) => outbox.put(conduit, |out, seal| {
                peer::encode_steward(out, seal, 0, body)
            }),
            Link::Http(pool) => pool.tell(body, now_us),
        }
    }

    /// Asks whether the peer is there.
    pub(crate) fn probe(&self, outbox: &Outbox, id: u64, now_us: u64) {
        match self {
            Link::Frames(conduit) => {
                outbox.put(conduit, |out, seal| peer::encode_probe(out, seal, id));
            }
            Link::Http(pool) => pool.probe(id, now_us),
        }
    }

    /// Tells the peer that these answers are not waited for any more. Over plain HTTP it is not
    /// told: a connection carries one question there, which ends with its time.
    pub(crate) fn withdraw(&self, outbox: &Outbox, ids: &[u64]) {
        if let Link::Frames(conduit) = self {
            for few in ids.chunks(PEER_WITHDRAW_IDS_MAX) {
                outbox.put(conduit, |out, seal| peer::encode_withdraw(out, seal, few));
            }
        }
    }

    /// One more look of the sweep; how many there were since something came from the peer.
    pub(crate) fn sweep(&self, now_us: u64) -> u32 {
        match self {
            Link::Frames(conduit) => conduit.sweep(),
            Link::Http(pool) => pool.sweep(now_us),
        }
    }

    pub(crate) fn close(&self) {
        self.end("it was closed here");
    }

    /// Ends the link; its task sees it.
    pub(crate) fn end(&self, why: &str) {
        match self {
            Link::Frames(conduit) => conduit.close(),
            Link::Http(pool) => pool.end(why),
        }
    }
}
