//! Questions to one peer over plain HTTP: those that wait, and the connections that carry them.
//!
//! ```text
//! ask ─► an idle connection, the one used last first ─► request … 200, one frame ─► Answered
//!     └► queue ─► a new connection, up to `HTTP_CONNECTIONS_MAX`, or the next that is done
//! sweep: cuts late ones, closes unused ones
//! ```
//!
//! Invariants
//! 1. One question at a time on a connection: no request is pipelined, intermediaries may not keep
//!    it.
//! 2. At most `LINK_OUT_BYTES_MAX` of questions wait, and one question more. The agent has refused
//!    those beyond it.
//! 3. The other side may close an idle connection at any moment. If an old connection ends before
//!    a byte of the answer came, the question is asked again: the protocol stands repeated
//!    questions. If the connection was a new one, the link is lost.
//! 4. A connection ends with the question that it cannot finish in time. While the other side does
//!    not answer, only a probe opens another one. Otherwise a peer that hangs would be dialled a
//!    thousand times a second.
//!
//! Not here: the tasks of the connections (`peers/http_link.rs`), requests and responses as bytes
//! (`carrier.rs`). See: docs/peer.md, section "Over plain HTTP".

use crate::limits;
use crate::waiting::seat::LocalBell;
use dendra_wire::peer::{self, Question, Role, SessionKeys, hop};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Id of the steward's messages: no question of a node has this number.
pub(crate) const STEWARD_ID: u64 = u64::MAX;

/// A question, or a probe, from when it is asked until it is answered or given up.
#[derive(Debug)]
pub(crate) struct Errand {
    /// Id of the question, or `STEWARD_ID`; `None` for a probe.
    pub(crate) id: Option<u64>,
    pub(crate) frame: Vec<u8>,
    /// May it have been carried before?
    pub(crate) is_again: bool,
    /// When its connection is given up.
    pub(crate) due_us: u64,
    /// The pool's count of bytes under way.
    under_way: Rc<Cell<usize>>,
}

impl Errand {
    /// The time from which its answer is not needed any more.
    fn deadline_us(&self) -> u64 {
        self.due_us - limits::OUTCOME_GRACE.as_micros() as u64
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.under_way.set(self.under_way.get() - self.frame.len());
    }
}

/// One connection, as the pool sees it.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    /// Rung when there is an errand, or when the connection is to end.
    pub(crate) bell: LocalBell,
    pub(crate) errand: RefCell<Option<Errand>>,
    /// When the errand under way is due; `u64::MAX` without one.
    pub(crate) due_us: Cell<u64>,
    pub(crate) is_cut: Cell<bool>,
    /// The sweep at which it became idle.
    pub(crate) idle_since: Cell<u32>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) host: String,
    pub(crate) head: hop::AskHead,
    pub(crate) keys: SessionKeys,
    queue: RefCell<VecDeque<Errand>>,
    /// Bytes of all errands.
    under_way: Rc<Cell<usize>>,
    places: RefCell<Vec<Rc<PooledConnection>>>,
    /// Connections of `places` that wait for an errand, the one that waits longest first.
    pub(crate) idle: RefCell<Vec<Rc<PooledConnection>>>,
    /// Connections that are being opened.
    pub(crate) opening: Cell<usize>,
    pub(crate) sweeps: Cell<u32>,
    /// Sweeps since the last answer.
    silent_sweeps: Cell<u32>,
    is_probing: Cell<bool>,
    /// Why the link ended.
    pub(crate) ended: RefCell<Option<String>>,
    /// Rung when a connection is wanted, and at the end.
    pub(crate) bell: LocalBell,
}

impl Pool {
    /// A link to `host`, without a connection yet.
    pub(crate) fn new(host: &str, head: hop::AskHead, keys: SessionKeys) -> Pool {
        Pool {
            host: host.to_owned(),
            head,
            keys,
            queue: RefCell::default(),
            under_way: Rc::default(),
            places: RefCell::default(),
            idle: RefCell::default(),
            opening: Cell::new(0),
            sweeps: Cell::new(0),
            silent_sweeps: Cell::new(0),
            is_probing: Cell::new(false),
            ended: RefCell::default(),
            bell: LocalBell::default(),
        }
    }

    /// Bytes of questions that wait for a connection or for their answer.
    pub(crate) fn waiting(&self) -> usize {
        self.under_way.get()
    }

    /// Sends a question as soon as a connection is free.
    pub(crate) fn ask(&self, question: &Question, now_us: u64) {
        let mut frame = Vec::new();
        peer::encode_ask(
            &mut frame,
            &mut self.keys.of_requests(Role::Asker),
            question,
        );
        let left_us = u64::from(question.stamp.left_ms) * 1_000;
        let due_us = now_us + left_us + limits::OUTCOME_GRACE.as_micros() as u64;
        self.send(Some(question.id), frame, due_us);
    }

    /// Asks whether the peer is there, unless such a probe is under way.
    pub(crate) fn probe(&self, id: u64, now_us: u64) {
        if !self.is_probing.replace(true) {
            let mut frame = Vec::new();
            peer::encode_probe(&mut frame, &mut self.keys.of_requests(Role::Asker), id);
            let left = limits::SWEEP * limits::LINK_SILENT_SWEEPS_MAX;
            self.send(None, frame, now_us + left.as_micros() as u64);
        }
    }

    /// Carries a message of the own steward.
    pub(crate) fn tell(&self, body: &[u8], now_us: u64) {
        let mut frame = Vec::new();
        let mut seal = self.keys.of_requests(Role::Asker);
        peer::encode_steward(&mut frame, &mut seal, STEWARD_ID, body);
        let left = limits::SWEEP * limits::LINK_SILENT_SWEEPS_MAX;
        self.send(Some(STEWARD_ID), frame, now_us + left.as_micros() as u64);
    }

    fn send(&self, id: Option<u64>, frame: Vec<u8>, due_us: u64) {
        self.under_way.set(self.under_way.get() + frame.len());
        let errand = Errand {
            id,
            frame,
            is_again: false,
            due_us,
            under_way: Rc::clone(&self.under_way),
        };
        let idle = self.idle.borrow_mut().pop();
        match idle {
            Some(place) => {
                place.due_us.set(due_us);
                *place.errand.borrow_mut() = Some(errand);
                place.bell.ring();
            }
            None => {
                let mut queue = self.queue.borrow_mut();
                match id {
                    Some(_) => queue.push_back(errand),
                    // A probe must not wait behind the questions that it asks about.
                    None => queue.push_front(errand),
                }
                self.bell.ring();
            }
        }
    }

    /// Has an errand carried by another connection.
    pub(crate) fn again(&self, mut errand: Errand) {
        errand.is_again = true;
        self.queue.borrow_mut().push_front(errand);
        self.bell.ring();
    }

    /// The next errand of the queue that is not late.
    pub(crate) fn next(&self, now_us: u64) -> Option<Errand> {
        self.forget_late(now_us);
        self.queue.borrow_mut().pop_front()
    }

    /// Drops the late errands at the head of the queue. The node has counted them as late.
    fn forget_late(&self, now_us: u64) {
        let mut queue = self.queue.borrow_mut();
        while let Some(errand) = queue.pop_front_if(|errand| errand.deadline_us() <= now_us) {
            self.done_with(&errand);
        }
    }

    /// An errand is answered, or its answer is not needed any more.
    pub(crate) fn done_with(&self, errand: &Errand) {
        if errand.id.is_none() {
            self.is_probing.set(false);
        }
    }

    /// Does the queue want one more connection than there are?
    pub(crate) fn wants_connection(&self) -> bool {
        // One more for a probe, so that it finds one where all others wait.
        let most = limits::HTTP_CONNECTIONS_MAX + usize::from(self.is_probing.get());
        let open = self.places.borrow().len() + self.opening.get();
        let queue = self.queue.borrow();
        let wanting = if self.is_silent() {
            usize::from(queue.front().is_some_and(|first| first.id.is_none()))
        } else {
            queue.len()
        };
        wanting > self.opening.get() && open < most
    }

    /// Has the other side not answered for so long that it is asked whether it is there?
    fn is_silent(&self) -> bool {
        self.silent_sweeps.get() > limits::LINK_PROBE_SWEEPS
    }

    /// The other side answered.
    pub(crate) fn heard(&self) {
        if self.is_silent() {
            // Questions wait for connections that were not opened.
            self.bell.ring();
        }
        self.silent_sweeps.set(0);
    }

    /// Ends the link; `run` sees it.
    pub(crate) fn end(&self, reason: impl Into<String>) {
        let mut ended = self.ended.borrow_mut();
        if ended.is_none() {
            *ended = Some(reason.into());
            self.bell.ring();
        }
    }

    /// One more look of the sweep; how many there were since the last answer came.
    pub(crate) fn sweep(&self, now_us: u64) -> u32 {
        let sweeps = self.sweeps.get().wrapping_add(1);
        self.sweeps.set(sweeps);
        self.forget_late(now_us);
        for place in self.places.borrow().iter() {
            if place.due_us.get() < now_us && !place.is_cut.replace(true) {
                place.bell.ring();
            }
        }
        let mut idle = self.idle.borrow_mut();
        while let Some(longest) = idle.first()
            && sweeps.wrapping_sub(longest.idle_since.get()) > limits::HTTP_IDLE_SWEEPS_MAX
        {
            let place = idle.remove(0);
            place.is_cut.set(true);
            place.bell.ring();
        }
        let silent = self.silent_sweeps.get().saturating_add(1);
        self.silent_sweeps.set(silent);
        silent
    }
}

/// A place in its pool, however the task of its connection ends.
pub(crate) struct PoolPlace<'a> {
    pool: &'a Pool,
    pub(crate) place: Rc<PooledConnection>,
}

impl<'a> PoolPlace<'a> {
    /// A place for one more connection of `pool`.
    pub(crate) fn new(pool: &'a Pool) -> PoolPlace<'a> {
        let place = Rc::new(PooledConnection {
            bell: LocalBell::default(),
            errand: RefCell::default(),
            due_us: Cell::new(u64::MAX),
            is_cut: Cell::new(false),
            idle_since: Cell::new(0),
        });
        pool.places.borrow_mut().push(Rc::clone(&place));
        PoolPlace { pool, place }
    }
}

impl Drop for PoolPlace<'_> {
    fn drop(&mut self) {
        for list in [&self.pool.places, &self.pool.idle] {
            list.borrow_mut()
                .retain(|place| !Rc::ptr_eq(place, &self.place));
        }
        let errand = self.place.errand.borrow_mut().take();
        if let Some(errand) = errand {
            self.pool.again(errand);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::peer::{Ask, Stamp};
    use dendra_wire::peer::Proof;

    fn pool() -> Pool {
        let token = Proof::from_hex("00".repeat(32).as_bytes()).expect("a proof");
        Pool::new(
            "b",
            hop::AskHead::new("b", "http://a", &token),
            SessionKeys::new(None, "a", "b"),
        )
    }

    /// A clock question that has a second.
    fn ask(pool: &Pool, id: u64, now_us: u64) {
        let stamp = Stamp {
            cluster: 1,
            epoch: 1,
            left_ms: 1_000,
        };
        let question = Question {
            id,
            sent_ms: 0,
            stamp,
            ask: Ask::Clock,
        };
        pool.ask(&question, now_us);
    }

    #[test]
    fn a_peer_that_answers_nothing_gets_no_connections_but_for_a_probe() {
        let pool = pool();
        for id in 0..10 {
            ask(&pool, id, 0);
        }
        let silent = limits::LINK_PROBE_SWEEPS + 1;
        for _ in 1..silent {
            pool.sweep(0);
            assert!(pool.wants_connection());
        }
        assert_eq!(pool.sweep(0), silent);
        assert!(!pool.wants_connection());
        pool.probe(0, 0);
        assert!(pool.wants_connection(), "for the probe");
        pool.opening.set(1);
        assert!(!pool.wants_connection(), "and for nothing else");
        pool.heard();
        assert!(pool.wants_connection());
    }

    #[test]
    fn a_question_for_which_nobody_waits_is_not_sent() {
        let pool = pool();
        ask(&pool, 1, 0);
        ask(&pool, 2, 500_000);
        let next = pool.next(1_000_000).expect("the second has time");
        assert_eq!(next.id, Some(2));
        drop(next);
        assert_eq!(pool.waiting(), 0);
        ask(&pool, 3, 0);
        pool.sweep(999_999);
        assert!(pool.waiting() > 0);
        pool.sweep(1_000_000);
        assert_eq!(pool.waiting(), 0, "nor kept");
    }
}
