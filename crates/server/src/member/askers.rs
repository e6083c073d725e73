//! Peers that ask this loop, over links that they opened or by single requests, and the answers.
//!
//! ```text
//! a link a peer opened ─► IncomingLink ─┐ number ─► node ─► reply ─┬─► Outbox, as a frame
//! a plain HTTP request ─► PeerRequest  ─┘                          └─► the seat of the request
//! ```
//!
//! Invariants
//! 1. The number of a link, or of a request that asks, is never used again: an answer cannot go to
//!    one that came later.
//! 2. A peer's loop has one link to this loop: a new one replaces the one it had.
//!
//! Not here: reading the questions (`peers/accept.rs`, `peers/hop.rs`), the own links
//! (`own_link.rs`).
//! See: docs/peer.md.

use super::conduit::Conduit;
use super::own_link::Outbox;
use crate::waiting::finished::Finished;
use crate::waiting::seat::Seat;
use dendra_base::peer::Answer;
use dendra_node::step::Asker;
use dendra_ownership::MemberIndex;
use dendra_ownership::ring::table::MemberId;
use dendra_wire::peer;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// A link that a peer opened.
pub(crate) struct IncomingLink {
    pub(crate) member: MemberIndex,
    /// The number that the member had when the link was opened.
    pub(crate) id: Option<MemberId>,
    pub(crate) lane: u16,
    pub(crate) conduit: Rc<Conduit>,
}

/// A request of a peer that waits for the node's answer.
struct PeerRequest {
    seat: Rc<Seat>,
    round: u32,
    place: u32,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Askers {
    links: RefCell<HashMap<u64, IncomingLink>>,
    requests: RefCell<HashMap<u64, PeerRequest>>,
    so_far: Cell<u64>,
}

impl Askers {
    fn next(&self) -> u64 {
        let number = self.so_far.get() + 1;
        self.so_far.set(number);
        number
    }

    /// A peer's loop opened a link: its number. Replaces the one it had.
    pub(crate) fn put(&self, link: IncomingLink) -> u64 {
        let number = self.next();
        let mut links = self.links.borrow_mut();
        let is_same = |it: &&IncomingLink| (it.member, it.lane) == (link.member, link.lane);
        if let Some(before) = links.values().find(is_same) {
            before.conduit.close();
        }
        links.insert(number, link);
        number
    }

    /// A link that a peer opened has ended.
    pub(crate) fn drop_link(&self, number: u64) {
        if let Some(asker) = self.links.borrow_mut().remove(&number) {
            asker.conduit.close();
        }
    }

    /// Closes the links that a member opened while it had this number.
    pub(crate) fn close(&self, member: MemberIndex, id: MemberId) {
        for asker in self.links.borrow().values() {
            if (asker.member, asker.id) == (member, Some(id)) {
                asker.conduit.close();
            }
        }
    }

    /// Gives an answer to the peer that asked. Behind a link or a request that is gone no asker
    /// waits.
    pub(crate) fn reply(&self, outbox: &Outbox, asker: Asker, answer: Answer) {
        if let Some(link) = self.links.borrow().get(&asker.link) {
            outbox.put(&link.conduit, |out, seal| {
                peer::encode_answer(out, seal, asker.id, &answer);
            });
            return;
        }
        let request = self.requests.borrow_mut().remove(&asker.link);
        if let Some(request) = request
            && request.round == request.seat.round()
        {
            let reply = Finished::Reply(Box::new(answer));
            request.seat.put(request.place, reply);
        }
    }
}

/// Keeps a peer's request in the list of askers while it lives, however that request ends.
pub(crate) struct PeerRequestGuard {
    askers: Rc<Askers>,
    number: u64,
}

impl PeerRequestGuard {
    /// A place for the answer to the question of the request that waits in `seat`.
    pub(crate) fn begin(askers: &Rc<Askers>, seat: &Rc<Seat>) -> PeerRequestGuard {
        let number = askers.next();
        let request = PeerRequest {
            seat: Rc::clone(seat),
            round: seat.round(),
            place: seat.expect(),
        };
        askers.requests.borrow_mut().insert(number, request);
        PeerRequestGuard {
            askers: Rc::clone(askers),
            number,
        }
    }

    /// How the node names it.
    pub(crate) fn asker(&self, member: MemberIndex, id: u64) -> Asker {
        Asker {
            member,
            link: self.number,
            id,
        }
    }
}

impl Drop for PeerRequestGuard {
    fn drop(&mut self) {
        self.askers.requests.borrow_mut().remove(&self.number);
    }
}
