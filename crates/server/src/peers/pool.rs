//! The own link to one peer over plain HTTP: a request for each question, on connections that stay.
//!
//! ```text
//! ask ─► an idle connection, the one used last first ─► request … 200, one frame ─► Answered
//!     └► queue ─► a new connection, up to `HTTP_CONNECTIONS_MAX`, or the next that is done
//! run: opens connections, reaps them │ sweep: cuts late ones, closes unused ones
//! ```
//!
//! Invariants
//! 1. One question at a time on a connection: nothing is pipelined, intermediaries may not keep it.
//! 2. At most `LINK_OUT_BYTES_MAX` of questions wait, and one question more. The agent has refused
//!    those beyond it.
//! 3. The other side may close an idle connection at any moment. So a question whose old connection
//!    ended before a byte of its answer came is asked again; the protocol stands repeated
//!    questions. If the connection was a new one, the link is lost.
//! 4. A connection ends with the question that it cannot finish in time. While the other side
//!    answers nothing, only a probe opens another one. Otherwise a peer that hangs would be dialled
//!    a thousand times a second.
//!
//! Not here: requests and responses as bytes (`carrier.rs`), the other side (`hop.rs`), when a link is opened again (`link.rs`).
//! See: docs/peer.md, section "Over plain HTTP".

use super::agent::Agent;
use super::carrier::{Carrier, Response};
use super::cluster::{Cluster, count, host_of, random};
use super::link::{Recognised, connect, recognise, welcomed};
use super::notes::learn;
use crate::clients::seat::LocalBell;
use crate::event_loop::thread::EventLoop;
use crate::limits;
use crate::tls::ByteStream;
use dendra_base::peer::{Answer, Refused};
use dendra_node::MemberIndex;
use dendra_node::membership::NoLink;
use dendra_node::membership::identity::Peer;
use dendra_node::step::Event;
use dendra_wire::peer::{self, Message, Question, Role, SessionKeys, hop};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::task::JoinSet;

/// Of the steward's messages: no question of a node has this number.
const STEWARD_ID: u64 = u64::MAX;

/// A question, or a probe, from when it is asked until it is answered or given up.
#[derive(Debug)]
struct Errand {
    /// Of the question, or `STEWARD_ID`; `None` for a probe.
    id: Option<u64>,
    frame: Vec<u8>,
    /// May it have been carried before?
    is_again: bool,
    /// When its connection is given up.
    due_us: u64,
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
struct Place {
    /// Rung when there is an errand, or when the connection is to end.
    bell: LocalBell,
    errand: RefCell<Option<Errand>>,
    /// Of the errand that is under way; `u64::MAX` without one.
    due_us: Cell<u64>,
    is_cut: Cell<bool>,
    /// The sweep at which it became idle.
    idle_since: Cell<u32>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    host: String,
    head: hop::AskHead,
    keys: SessionKeys,
    queue: RefCell<VecDeque<Errand>>,
    /// Bytes of all errands.
    under_way: Rc<Cell<usize>>,
    places: RefCell<Vec<Rc<Place>>>,
    /// Those of `places` that wait for an errand, the one that waits longest first.
    idle: RefCell<Vec<Rc<Place>>>,
    /// Connections that are being opened.
    opening: Cell<usize>,
    sweeps: Cell<u32>,
    /// Sweeps since the last answer.
    silent_sweeps: Cell<u32>,
    is_probing: Cell<bool>,
    /// Why the link ended.
    ended: RefCell<Option<String>>,
    /// Rung when a connection is wanted, and at the end.
    bell: LocalBell,
}

impl Pool {
    fn new(host: &str, head: hop::AskHead, keys: SessionKeys) -> Pool {
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
    fn again(&self, mut errand: Errand) {
        errand.is_again = true;
        self.queue.borrow_mut().push_front(errand);
        self.bell.ring();
    }

    /// The next errand of the queue whose answer is still needed.
    fn next(&self, now_us: u64) -> Option<Errand> {
        self.forget_late(now_us);
        self.queue.borrow_mut().pop_front()
    }

    /// Drops the errands at the head of the queue whose time is over. The node has counted them as
    /// late.
    fn forget_late(&self, now_us: u64) {
        let mut queue = self.queue.borrow_mut();
        while let Some(errand) = queue.pop_front_if(|errand| errand.deadline_us() <= now_us) {
            self.done_with(&errand);
        }
    }

    /// An errand is answered, or its answer is not needed any more.
    fn done_with(&self, errand: &Errand) {
        if errand.id.is_none() {
            self.is_probing.set(false);
        }
    }

    /// Does the queue want one more connection than there are?
    fn wants_connection(&self) -> bool {
        // One more for a probe, so that it finds one where all others wait.
        let most = limits::HTTP_CONNECTIONS_MAX + usize::from(self.is_probing.get());
        let open = self.places.borrow().len() + self.opening.get();
        let queue = self.queue.borrow();
        let wanting = match self.is_silent() {
            true => usize::from(queue.front().is_some_and(|first| first.id.is_none())),
            false => queue.len(),
        };
        wanting > self.opening.get() && open < most
    }

    /// Did the other side answer nothing for so long that it is asked whether it is there?
    fn is_silent(&self) -> bool {
        self.silent_sweeps.get() > limits::LINK_PROBE_SWEEPS
    }

    /// The other side answered.
    fn heard(&self) {
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

/// A member that would let this one in, and is let in. It notes nothing of this one before it is probed.
pub(super) struct Greeted {
    carrier: Carrier,
    head: hop::AskHead,
    pub(super) recognised: Recognised,
}

/// The first half of a handshake.
pub(super) async fn greet(
    cluster: &Cluster,
    lane: usize,
    member: MemberIndex,
) -> Result<Greeted, NoLink> {
    let url = cluster.url(member);
    let host = host_of(&url);
    let mut carrier = Carrier::new(connect(cluster, host).await?);
    let nonce = random().map_err(|error| format!("no randomness: {error}"))?;
    let own = cluster.hello(lane, nonce);
    let own_line = own.to_string();
    hop::hello_request(&mut carrier.out, host, &own.url, &own_line);
    let met = carrier.exchange().await?;
    if met.status != 200 {
        return Err(NoLink::of_status(met.status, &met.said()));
    }
    let line = met.hello.as_deref().ok_or("its answer has no hello")?;
    let recognised = recognise(cluster, member, &own, &own_line, line);
    let recognised = recognised.map_err(NoLink::NotAdmitted)?;
    if !met.keeps_alive {
        carrier = Carrier::new(connect(cluster, host).await?);
    }
    let head = hop::AskHead::new(host, &own.url, &recognised.proof);
    let mut hail = Vec::new();
    let keys = &recognised.keys;
    peer::encode_hail(&mut hail, &mut keys.of_requests(Role::Asker));
    let said = carrier.carry(&head, &hail).await?;
    if said.status != 200 {
        return Err(NoLink::of_status(said.status, &said.said()));
    }
    let mut checking = keys.of_requests(Role::Acceptor);
    welcomed(cluster, member, &said.body, &mut checking)?;
    if !said.keeps_alive {
        carrier = Carrier::new(connect(cluster, host).await?);
    }
    Ok(Greeted {
        carrier,
        head,
        recognised,
    })
}

/// Shakes hands, and asks whether the peer is there: the link, and the connection that it begins
/// with.
pub(super) async fn open(
    lane: &EventLoop,
    agent: &Agent,
    member: MemberIndex,
) -> Result<(Pool, ByteStream, Peer), NoLink> {
    let greeted = greet(&agent.cluster, agent.lane, member).await?;
    let (mut carrier, head) = (greeted.carrier, greeted.head);
    let Recognised { claim, keys, .. } = greeted.recognised;
    learn(lane, agent, member, claim).await?;
    let mut frame = Vec::new();
    peer::encode_probe(&mut frame, &mut keys.of_requests(Role::Asker), 0);
    let alive = carrier.carry(&head, &frame).await?;
    if alive.status != 200 {
        return Err(format!("it answered {}: {}", alive.status, alive.said()).into());
    }
    match peer::decode(&alive.body, &mut keys.of_requests(Role::Acceptor)) {
        Ok(Message::Alive { id: 0 }) => {}
        Ok(_) => return Err("its answer to a probe is none".into()),
        Err(malformed) => return Err(malformed.to_string().into()),
    }
    let url = agent.cluster.url(member);
    let host = host_of(&url);
    if !alive.keeps_alive {
        carrier = Carrier::new(connect(&agent.cluster, host).await?);
    }
    Ok((Pool::new(host, head, keys), carrier.stream, claim))
}

/// Keeps the connections of a link that is up, to its end: why it ended.
pub(super) async fn run(
    lane: &Rc<EventLoop>,
    agent: &Rc<Agent>,
    member: MemberIndex,
    pool: &Rc<Pool>,
    first: Option<ByteStream>,
) -> String {
    let worker = || Worker {
        lane: Rc::clone(lane),
        agent: Rc::clone(agent),
        member,
        pool: Rc::clone(pool),
    };
    // Dropped at the end, and all connections with it.
    let mut workers = JoinSet::new();
    if let Some(first) = first {
        workers.spawn_local(worker().serve(Some(first)));
    }
    loop {
        tokio::select! {
            () = pool.bell.rung() => {}
            Some(_) = workers.join_next() => {}
        }
        if let Some(reason) = pool.ended.borrow_mut().take() {
            return reason;
        }
        while pool.wants_connection() {
            pool.opening.set(pool.opening.get() + 1);
            workers.spawn_local(worker().serve(None));
        }
    }
}

/// The task of one connection.
struct Worker {
    lane: Rc<EventLoop>,
    agent: Rc<Agent>,
    member: MemberIndex,
    pool: Rc<Pool>,
}

/// A place in its pool, however the task of its connection ends.
struct Standing<'a> {
    pool: &'a Pool,
    place: Rc<Place>,
}

impl<'a> Standing<'a> {
    fn new(pool: &'a Pool) -> Standing<'a> {
        let place = Rc::new(Place {
            bell: LocalBell::default(),
            errand: RefCell::default(),
            due_us: Cell::new(u64::MAX),
            is_cut: Cell::new(false),
            idle_since: Cell::new(0),
        });
        pool.places.borrow_mut().push(Rc::clone(&place));
        Standing { pool, place }
    }
}

impl Drop for Standing<'_> {
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

impl Worker {
    async fn serve(self, first: Option<ByteStream>) {
        let pool = &*self.pool;
        // The handshake went over it: the other side may have closed it since.
        let mut is_old = first.is_some();
        let stream = match first {
            Some(stream) => stream,
            None => {
                let opened = tokio::time::timeout(
                    limits::LINK_OPEN_TIMEOUT,
                    connect(&self.agent.cluster, &pool.host),
                )
                .await;
                pool.opening.set(pool.opening.get() - 1);
                match opened {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(reason)) => return pool.end(reason),
                    Err(_) => return pool.end("it did not answer in time"),
                }
            }
        };
        let standing = Standing::new(pool);
        let place = &*standing.place;
        let mut carrier = Carrier::new(stream);
        while !place.is_cut.get() {
            let Some(errand) = (match pool.next(self.lane.now_us()) {
                Some(errand) => Some(errand),
                None => self.wait(&standing, &carrier.stream).await,
            }) else {
                return;
            };
            place.due_us.set(errand.due_us);
            let done = tokio::select! {
                biased;
                done = carrier.carry(&pool.head, &errand.frame) => done,
                () = place.bell.rung() => return pool.done_with(&errand),
            };
            place.due_us.set(u64::MAX);
            match done {
                Ok(response) => {
                    let keeps_alive = response.keeps_alive;
                    self.deliver(&errand, &response);
                    if !keeps_alive || !carrier.is_clean() {
                        return;
                    }
                    is_old = true;
                }
                Err(_) if is_old && !carrier.has_begun => return pool.again(errand),
                Err(reason) => return pool.end(reason),
            }
        }
    }

    /// Waits for an errand; `None` when the connection is of no use any more.
    async fn wait(&self, standing: &Standing<'_>, stream: &ByteStream) -> Option<Errand> {
        let (pool, place) = (&*self.pool, &standing.place);
        loop {
            place.idle_since.set(pool.sweeps.get());
            pool.idle.borrow_mut().push(Rc::clone(place));
            tokio::select! {
                biased;
                () = place.bell.rung() => return place.errand.borrow_mut().take(),
                _ = stream.readable() => {}
            }
            pool.idle
                .borrow_mut()
                .retain(|other| !Rc::ptr_eq(other, place));
            // No question is open: the other side ends the connection, or sends bytes that have no
            // meaning.
            match stream.try_read(&mut [0; 1]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    fn deliver(&self, errand: &Errand, response: &Response) {
        let Worker { agent, pool, .. } = self;
        let gauges = &agent.cluster.peers[self.member.at()];
        pool.done_with(errand);
        match response.status {
            200 => {}
            403 => return pool.end(format!("it answered 403: {}", response.said())),
            _ => {
                let peer = agent.cluster.url(self.member);
                tracing::debug!(
                    peer,
                    status = response.status,
                    said = response.said(),
                    "a question has no answer"
                );
                if let Some(id) = errand.id.filter(|id| *id != STEWARD_ID) {
                    count(&gauges.refused);
                    let answer = Answer::Refused(Refused::Busy);
                    let member = self.member;
                    agent.post(Event::Answered { member, id, answer });
                }
                return;
            }
        }
        let mut checking = pool.keys.of_requests(Role::Acceptor);
        match peer::decode(&response.body, &mut checking) {
            Ok(Message::Answer { id, answer }) if errand.id == Some(id) => {
                let answer = match answer {
                    // The first time it may have been stored: "there is no room" would say that it is not there.
                    Answer::Refused(Refused::DiskFull) if errand.is_again => {
                        Answer::Refused(Refused::Busy)
                    }
                    answer => answer,
                };
                agent.answered(self.member, id, answer);
            }
            Ok(Message::Alive { id }) if errand.id.is_none_or(|of| of == id) => {}
            Ok(_) => return pool.end("it answered what was not asked"),
            Err(malformed) => return pool.end(malformed.to_string()),
        }
        pool.heard();
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
