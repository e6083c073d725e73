//! A link that a peer opened: from its upgrade to its last question.
//!
//! ```text
//! request ─► hello read, judged ─► 101, own hello ─► Proof, checked ─► Hail, claim judged ─► Welcome ─► Probe, claim noted ─► Alive ─► questions …
//!              └ 4xx with a sentence                  └ farewell        └ farewell                                             └ agent
//!                                  (`waiting/unproven.rs`)
//! ```
//!
//! Invariants
//! 1. No question is looked at before the secret is proven. Before that, no bytes made with the
//!    secret leave, and a hello is neither judged against the member's record nor noted.
//! 2. A peer's loop has one link to a loop of ours: a newer one replaces it, as after a restart.
//! 3. Links are none of the clients' connections: from the proof on they hold no permit and no
//!    place in their gate.
//! 4. The age of a question is taken off the time it has left; one without time left is late.
//!
//! Not here: links that this node opens (`link.rs`), questions over plain HTTP (`hop.rs`).
//! See: docs/peer.md.

use super::notes::learn;
use crate::event_loop::thread::EventLoop;
use crate::exchange::socket::Socket;
use crate::limits;
use crate::member::agent::Agent;
use crate::member::conduit::{Conduit, LinkBreak, LinkEnd, Seals};
use crate::member::hello_maker::HelloMaker;
use crate::member::links::count;
use crate::member::secrets::Hellos;
use crate::random::random;
use crate::retry_after::retry_after_s;
use crate::tls::ByteStream;
use crate::waiting::unproven::UnprovenPlace;
use bytes::Bytes;
use dendra_base::peer::{Answer, Refused};
use dendra_node::step::{Asker, Event};
use dendra_ownership::MemberIndex;
use dendra_ownership::membership::identity::Peer;
use dendra_wire::Refusal;
use dendra_wire::http::{Field, Head};
use dendra_wire::peer::{
    self, FrameAge, Hello, Malformed, Message, PROOF_FRAME_BYTES, Question, Seal,
};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use tokio::io::AsyncReadExt;

/// A hello that was read and judged, with the own hello that answers it.
#[derive(Debug)]
pub(super) struct JudgedHello {
    pub(super) visitor: HelloMaker,
    /// The address that it says to have.
    pub(super) url: String,
    pub(super) claim: Peer,
    /// The newest epoch that it knows.
    pub(super) epoch: u64,
    pub(super) lane: u16,
    /// Both hellos, as they were and will be sent.
    pub(super) asker: String,
    pub(super) acceptor: String,
}

impl JudgedHello {
    pub(super) fn hellos(&self) -> Hellos<'_> {
        Hellos {
            asker: &self.asker,
            acceptor: &self.acceptor,
        }
    }
}

/// A node by itself has no peers.
pub(super) fn no_peers() -> Refusal {
    Refusal::new(
        501,
        "no-peers",
        "this node runs by itself and talks to no peers: to let others join it, start it again with --cluster and its own \
         address, which makes it a cluster of one",
    )
}

/// The part of a hello that is missing or wrong.
pub(super) fn unreadable(what: &str) -> Refusal {
    let sentence = format!("Dendra-Peer cannot be read: {what} is missing or wrong");
    Refusal::new(400, "peer-hello", sentence)
}

/// Reads and judges a peer's hello.
pub(super) fn read_hello(
    agent: &Agent,
    stream: &ByteStream,
    head: &Head<'_>,
) -> Result<JudgedHello, Refusal> {
    let Field::Once(line) = head.peer_hello else {
        return Err(unreadable("the line itself"));
    };
    let theirs = Hello::parse(line).map_err(unreadable)?;
    let asker = std::str::from_utf8(line).map_err(|_| unreadable("ASCII"))?;
    if usize::from(theirs.lane) >= limits::LOOPS_MAX {
        return Err(unreadable("lane"));
    }
    let nonce = random().map_err(|error| {
        tracing::error!(%error, "no randomness for a handshake");
        Refusal::not_serving("no randomness from the system", retry_after_s())
    })?;
    let own = agent.cluster.hello(agent.lane, nonce);
    let (visitor, claim) = agent.cluster.judge_caller(stream, &own, &theirs)?;
    let acceptor = own.to_string();
    Ok(JudgedHello {
        visitor,
        url: theirs.url,
        claim,
        epoch: theirs.epoch,
        lane: theirs.lane,
        asker: asker.to_owned(),
        acceptor,
    })
}

/// A link with a `101` that is formed and not sent yet.
#[derive(Debug)]
pub(crate) struct PendingLink(JudgedHello);

/// Judges a peer's hello and forms the answer: the link, or the refusal.
pub(crate) fn accept_link(
    lane: &EventLoop,
    socket: &mut Socket,
    head: &Head<'_>,
) -> Result<PendingLink, Refusal> {
    let agent = lane.agent().ok_or_else(no_peers)?;
    let met = read_hello(&agent, socket.stream(), head)?;
    if met.visitor == HelloMaker::Joiner {
        let sentence = "a process that joins asks by requests: POST /v0/peer/hello";
        return Err(Refusal::new(400, "peer-hello", sentence));
    }
    peer::hello::accept(socket.out(), &met.acceptor);
    Ok(PendingLink(met))
}

/// Keeps a link in the agent's list while it lives, however its task ends.
struct ListedLink<'a> {
    agent: &'a Agent,
    number: u64,
}

impl Drop for ListedLink<'_> {
    fn drop(&mut self) {
        self.agent.askers.drop_link(self.number);
    }
}

/// Serves a peer's link to its end. `rest` was read after the request; `guard` is its place among
/// the clients' connections, which it gives back when it has proven itself.
pub(crate) async fn serve<Guard>(
    lane: Rc<EventLoop>,
    link: PendingLink,
    mut stream: ByteStream,
    rest: Vec<u8>,
    guard: Guard,
) {
    let Some(agent) = lane.agent() else {
        return;
    };
    let PendingLink(link) = link;
    let place = agent.unproven.enter();
    // A proof covers the answer's content: bytes that were sent ahead of it are none.
    if !rest.is_empty() {
        return;
    }
    let peer = match &link.visitor {
        HelloMaker::Member(member) => agent.cluster.url(*member),
        HelloMaker::Removed(_) | HelloMaker::Joiner => "a member that was removed".to_owned(),
    };
    let proven = match first_frame(&place, &mut stream).await {
        Ok(frame) => match peer::decode(&Bytes::copy_from_slice(&frame), &mut Seal::plain()) {
            Ok(Message::Proof(proof)) => agent.cluster.links.secrets.accept(&proof, link.hellos()),
            _ => None,
        },
        // It changed its mind, or has to make room.
        Err(_) => return,
    };
    let Some(keys) = proven else {
        agent.cluster.links.note_stranger(link.visitor.member());
        if let Some(unsaid) = agent.cluster.links.strangers.may_say() {
            tracing::warn!(
                peer,
                unsaid,
                "a peer does not know the secret of the cluster"
            );
        }
        let us = agent.cluster.own_url();
        let sentence = format!(
            "cluster-secret: {peer} does not know the secret that {us} knows: start both with the same --cluster-secret-file"
        );
        let mut farewell = Vec::new();
        peer::encode_farewell(&mut farewell, &mut Seal::plain(), &sentence);
        // Unread bytes make the system throw away the answer. A new socket takes a few hundred
        // bytes at once.
        let unread = stream.try_read(&mut [0; 1024]);
        tracing::debug!(peer, ?unread, "behind a wrong proof");
        let sent = stream.try_write(&farewell);
        tracing::debug!(peer, ?sent, "a farewell");
        return;
    };
    place.prove();
    drop(guard);
    let seals = Seals::new(&keys, LinkEnd::Answers);
    let conduit = Rc::new(Conduit::new(stream, &[], LinkEnd::Answers, seals));
    let probe = match introduce(&lane, &agent, &link, &conduit).await {
        Ok(probe) => probe,
        Err(NotLinked::Gone) => return,
        Err(NotLinked::Refused(sentence)) => {
            if let Some(unsaid) = agent.cluster.links.strangers.may_say() {
                tracing::warn!(peer, sentence, unsaid, "a peer is not let in");
            }
            conduit.put(|out, seal| peer::encode_farewell(out, seal, &sentence));
            conduit.flush();
            return;
        }
    };
    let Some(member) = link.visitor.member() else {
        return;
    };
    let number = agent.put_incoming(member, link.lane, &conduit);
    agent
        .cluster
        .epochs
        .is_called_at(member, &link.url, link.epoch);
    agent.cluster.heard(member, link.lane);
    let _listed = ListedLink {
        agent: &agent,
        number,
    };
    agent.send(&conduit, |out, seal| peer::encode_alive(out, seal, probe));
    let broken = questions(&lane, &agent, (member, link.claim), number, &conduit).await;
    tracing::debug!(peer, %broken, "a peer's link ended");
}

/// The bytes of the first frame, if they come in time and while there is room.
async fn first_frame(
    place: &UnprovenPlace<'_>,
    stream: &mut ByteStream,
) -> io::Result<[u8; PROOF_FRAME_BYTES]> {
    let mut frame = [0; PROOF_FRAME_BYTES];
    let reading = async {
        stream.read_exact(&mut frame).await?;
        Ok(frame)
    };
    let reading = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, reading);
    let read = place.unless_evicted(reading).await?;
    read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Why a proven asker has no link.
enum NotLinked {
    /// The asker asked for no link, or went away.
    Gone,
    /// The asker is told why.
    Refused(String),
}

/// The asker's hail, and the probe after which its claim is durable: the probe's id.
async fn introduce(
    lane: &EventLoop,
    agent: &Agent,
    link: &JudgedHello,
    conduit: &Conduit,
) -> Result<u64, NotLinked> {
    let refused = |sentence| Err(NotLinked::Refused(sentence));
    let member = match &link.visitor {
        HelloMaker::Member(member) => *member,
        HelloMaker::Removed(rejected) => return refused(rejected.to_string()),
        HelloMaker::Joiner => return Err(NotLinked::Gone),
    };
    let said = |sentence| {
        let (cluster, url) = (&agent.cluster, &link.url);
        cluster.unless_members_changed((member, url), link.claim, sentence)
    };
    loop {
        let next = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, conduit.next_message()).await;
        let Ok(Ok(message)) = next else {
            return Err(NotLinked::Gone);
        };
        match message {
            Message::Hail => match agent.cluster.admit(member, link.claim) {
                Ok(()) => {
                    conduit.put(peer::encode_welcome);
                    conduit.flush();
                }
                Err(rejected) => return refused(said(rejected.to_string())),
            },
            Message::Probe { id } => {
                let learning = learn(lane, agent, member, link.claim);
                let learnt = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, learning).await;
                return match learnt {
                    Ok(Ok(())) => Ok(id),
                    Ok(Err(sentence)) => refused(said(sentence)),
                    Err(_) => refused("the log is too slow".to_owned()),
                };
            }
            _ => return refused("a question came before a probe".to_owned()),
        }
    }
}

async fn questions(
    lane: &EventLoop,
    agent: &Agent,
    (member, claim): (MemberIndex, Peer),
    link: u64,
    conduit: &Rc<Conduit>,
) -> LinkBreak {
    let life = claim.life;
    let gauges = &agent.cluster.links.peers[member.at()];
    let age = RefCell::new(FrameAge::default());
    poll_fn(|cx| {
        lane.refresh();
        conduit.poll(
            cx,
            || agent.has_event_room(),
            |message| match message {
                // A later process is this member now.
                _ if !agent.cluster.is_current(member, life) => {
                    conduit.close();
                    Ok(())
                }
                Message::Ask(Question {
                    id,
                    sent_ms,
                    mut stamp,
                    ask,
                }) => {
                    let age_ms = age.borrow_mut().of(sent_ms, lane.now_us() / 1_000);
                    stamp.left_ms = stamp.left_ms.saturating_sub(age_ms);
                    if stamp.left_ms == 0 {
                        count(&gauges.late);
                        agent.send(conduit, |out, seal| {
                            peer::encode_answer(out, seal, id, &Answer::Refused(Refused::Late));
                        });
                        return Ok(());
                    }
                    let asker = Asker { member, link, id };
                    agent.post(Event::Asked { asker, stamp, ask });
                    Ok(())
                }
                Message::Withdraw { ids } => {
                    agent.post(Event::Withdrawn { member, link, ids });
                    Ok(())
                }
                Message::Probe { id } => {
                    agent.send(conduit, |out, seal| peer::encode_alive(out, seal, id));
                    Ok(())
                }
                Message::Steward { body, .. } => agent.cluster.take_message(member, claim, &body),
                Message::Farewell(_) => {
                    conduit.close();
                    Ok(())
                }
                Message::Answer { .. }
                | Message::Proof(_)
                | Message::Alive { .. }
                | Message::Hail
                | Message::Enrol(_)
                | Message::Enrolment(_)
                | Message::Welcome => Err(Malformed::Body(
                    "an answer on a link that carries questions",
                )),
            },
        )
    })
    .await
}
