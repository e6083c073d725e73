//! The own link to one peer over plain HTTP: a request for each question, on connections that stay.
//!
//! ```text
//! open: hello, hail and probe, a request each ─► Pool, and the connection that it begins with
//! run:  opens connections when the pool wants one, reaps them ─► why the link ended
//! ```
//!
//! Invariants
//! 1. One question at a time on a connection: no request is pipelined, intermediaries may not keep
//!    it.
//!
//! Not here: which question is next (`member/pool.rs`), requests and responses as bytes
//! (`member/carrier.rs`). Nor is the other side (`hop.rs`), or when a link is opened again
//! (`link.rs`).
//! See: docs/peer.md, section "Over plain HTTP".

use super::notes::learn;
use crate::event_loop::thread::EventLoop;
use crate::limits;
use crate::member::agent::Agent;
use crate::member::carrier::{Carrier, Response};
use crate::member::cluster::Cluster;
use crate::member::handshake::{self, Hailed, HelloWay, Recognised, Unwelcome, call, connect};
use crate::member::links::count;
use crate::member::pool::{Errand, Pool, PoolPlace, STEWARD_ID};
use crate::tls::ByteStream;
use dendra_base::ClusterVersions;
use dendra_base::peer::{Answer, Refused};
use dendra_node::step::Event;
use dendra_ownership::MemberIndex;
use dendra_ownership::membership::NoLink;
use dendra_ownership::membership::identity::Peer;
use dendra_wire::peer::{self, Hello, Message, Role, hop};
use std::rc::Rc;
use tokio::task::JoinSet;

/// A connection in the middle of a handshake.
pub(super) struct HttpWay<'a> {
    cluster: &'a Cluster,
    host: String,
    carrier: Carrier,
    /// From the proof on.
    head: Option<hop::AskHead>,
}

impl<'a> HttpWay<'a> {
    /// Connects to `member`.
    pub(super) async fn connect(
        cluster: &'a Cluster,
        member: MemberIndex,
    ) -> Result<HttpWay<'a>, NoLink> {
        let (host, stream) = call(cluster, member).await?;
        let carrier = Carrier::new(stream);
        Ok(HttpWay {
            cluster,
            host,
            carrier,
            head: None,
        })
    }

    /// Connects anew when the other side closes the connection after `response`.
    async fn keep(&mut self, response: &Response) -> Result<(), NoLink> {
        if !response.keeps_alive {
            self.carrier = Carrier::new(connect(self.cluster, &self.host).await?);
        }
        Ok(())
    }
}

impl HelloWay for HttpWay<'_> {
    async fn hello(&mut self, own: &Hello, own_line: &str) -> Result<String, NoLink> {
        hop::hello_request(&mut self.carrier.out, &self.host, &own.url, own_line);
        let mut met = self.carrier.exchange().await?;
        if met.status != 200 {
            return Err(NoLink::of_status(met.status, &met.said()));
        }
        let line = met.hello.take().ok_or("its answer has no hello")?;
        self.keep(&met).await?;
        Ok(line)
    }

    async fn hail(&mut self, own: &Hello, recognised: &Recognised) -> Result<Hailed, Unwelcome> {
        let head = hop::AskHead::new(&self.host, &own.url, &recognised.proof);
        let keys = &recognised.keys;
        let mut hail = Vec::new();
        peer::encode_hail(&mut hail, &mut keys.of_requests(Role::Asker));
        let said = self.carrier.carry(&head, &hail).await?;
        if said.status != 200 {
            let why = NoLink::of_status(said.status, &said.said());
            return Err(match said.status {
                // It does not know the token.
                403 => Unwelcome::OtherSecret(why),
                _ => Unwelcome::Other(why),
            });
        }
        self.head = Some(head);
        self.keep(&said).await?;
        let frame = said.body;
        let message = peer::decode(&frame, &mut keys.of_requests(Role::Acceptor));
        Ok(Hailed {
            frame,
            said: message,
        })
    }

    async fn again(&mut self, cluster: &Cluster) -> Result<(), NoLink> {
        self.carrier = Carrier::new(connect(cluster, &self.host).await?);
        self.head = None;
        Ok(())
    }
}

/// Shakes hands, and asks whether the peer is there: the link, and the connection that it begins
/// with.
pub(super) async fn open(
    lane: &EventLoop,
    agent: &Agent,
    member: MemberIndex,
) -> Result<(Pool, ByteStream, (Peer, ClusterVersions)), NoLink> {
    let mut way = HttpWay::connect(&agent.cluster, member).await?;
    let recognised = handshake::shake_hands(&agent.cluster, agent.lane, member, &mut way).await?;
    agent.cluster.epochs.reached_at(member, &way.host);
    let head = way.head.take().expect("a hail brings it");
    let Recognised {
        claim,
        versions,
        keys,
        ..
    } = recognised;
    let carrier = &mut way.carrier;
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
    way.keep(&alive).await?;
    let known = (claim, versions);
    Ok((Pool::new(&way.host, head, keys), way.carrier.stream, known))
}

/// Keeps the connections of a link that is up, to its end: why it ended.
pub(super) async fn run(
    lane: &Rc<EventLoop>,
    agent: &Rc<Agent>,
    member: MemberIndex,
    pool: &Rc<Pool>,
    first: Option<ByteStream>,
) -> String {
    let worker = || ConnectionTask {
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
struct ConnectionTask {
    lane: Rc<EventLoop>,
    agent: Rc<Agent>,
    member: MemberIndex,
    pool: Rc<Pool>,
}

impl ConnectionTask {
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
        let standing = PoolPlace::new(pool);
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
    async fn wait(&self, standing: &PoolPlace<'_>, stream: &ByteStream) -> Option<Errand> {
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
        let ConnectionTask { agent, pool, .. } = self;
        let gauges = &agent.cluster.links.peers[self.member.at()];
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
                    // The first time it may have been stored: "there is no room" would say that it
                    // is not there.
                    Answer::Refused(Refused::DiskFull) if errand.is_again => {
                        Answer::Refused(Refused::Busy)
                    }
                    answer => answer,
                };
                agent.answered(self.member, id, answer);
            }
            Ok(Message::Alive { id }) if errand.id.is_none_or(|of| of == id) => {}
            Ok(_) => return pool.end("it answered without a question"),
            Err(malformed) => return pool.end(malformed.to_string()),
        }
        pool.heard();
    }
}
