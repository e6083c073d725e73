//! A link that a peer opened: from its upgrade to its last question.
//!
//! ```text
//! request ─► hello read, judged ─► 101, own hello, proof ─► Proof frame, checked ─► questions … ─► agent
//!                                                            (`unproven.rs`)
//!              └ 4xx with a sentence                          └ farewell
//! ```
//!
//! Invariants
//! 1. No question is looked at before the secret is proven.
//! 2. A peer's loop has one link to a loop of ours: a newer one replaces it, as after a restart.
//! 3. Links are none of the clients' connections: from the proof on they hold no permit and no place in their gate.
//! 4. The age of a question is taken off the time it has left; one without time left is late.
//!
//! Not here: links that this node opens (`link.rs`), questions over plain HTTP (`hop.rs`).
//! See: docs/peer.md.

use super::agent::Agent;
use super::cluster::{count, random};
use super::conduit::{Broken, Conduit, End};
use super::link::learn;
use crate::connection::Connection;
use crate::lane::Lane;
use crate::limits;
use bytes::Bytes;
use dendra_base::peer::{Answer, Refused};
use dendra_node::MemberIndex;
use dendra_node::identity::Peer;
use dendra_node::step::{Asker, Event};
use dendra_wire::Refusal;
use dendra_wire::http::{Field, Head};
use dendra_wire::peer::{self, Age, Hello, Malformed, Message, Question, Role};
use dendra_wire::refusal::Voucher;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use tokio::net::TcpStream;

/// A hello that was read and judged, and what is said to it.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) member: MemberIndex,
    pub(super) claim: Peer,
    pub(super) lane: u16,
    /// Both hellos, as they were and will be sent.
    pub(super) asker: String,
    pub(super) acceptor: String,
}

/// A node by itself has no peers.
pub(super) fn no_peers() -> Refusal {
    Refusal::new(
        501,
        "no-peers",
        "this node runs by itself and talks to no peers",
    )
}

/// What of a hello is missing or wrong.
pub(super) fn unreadable(what: &str) -> Refusal {
    let sentence = format!("Dendra-Peer cannot be read: {what} is missing or wrong");
    Refusal::new(400, "peer-hello", sentence)
}

/// Reads and judges a peer's hello.
pub(super) fn read_hello(agent: &Agent, head: &Head<'_>) -> Result<Met, Refusal> {
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
        Refusal::not_serving("no randomness from the system", limits::RETRY_AFTER_S)
    })?;
    let own = agent.cluster.hello(agent.lane, nonce);
    let acceptor = own.to_string();
    let (member, claim) = agent.cluster.welcome(&own, &theirs).map_err(|refusal| {
        let proof = agent.cluster.prove(Role::Acceptor, asker, &acceptor);
        refusal.vouched(Voucher {
            hello: acceptor.clone(),
            proof,
        })
    })?;
    Ok(Met {
        member,
        claim,
        lane: theirs.lane,
        asker: asker.to_owned(),
        acceptor,
    })
}

/// A link whose `101` is formed.
#[derive(Debug)]
pub(crate) struct PendingLink(Met);

impl Connection {
    /// Judges a peer's hello and forms the answer: the link, or the refusal.
    pub(crate) fn meet(&mut self, head: &Head<'_>) -> Result<PendingLink, Refusal> {
        let agent = self.lane.agent().ok_or_else(no_peers)?;
        let met = read_hello(&agent, head)?;
        let proof = agent
            .cluster
            .prove(Role::Acceptor, &met.asker, &met.acceptor);
        peer::hello::accept(&mut self.out, &met.acceptor, &proof);
        Ok(PendingLink(met))
    }
}

/// A link in the agent's list, however its task ends.
struct Listed<'a> {
    agent: &'a Agent,
    number: u64,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.agent.drop_asker(self.number);
    }
}

/// Serves a peer's link to its end. `rest` was read behind the request; `guest` is its place among the clients'
/// connections, which it gives back when it has proven itself.
pub(crate) async fn serve<Guest>(
    lane: Rc<Lane>,
    link: PendingLink,
    mut stream: TcpStream,
    rest: Vec<u8>,
    guest: Guest,
) {
    let Some(agent) = lane.agent() else {
        return;
    };
    let PendingLink(link) = link;
    let place = agent.unproven.enter();
    // A proof covers what is in the answer: bytes that were sent ahead of it are none.
    if !rest.is_empty() {
        return;
    }
    let peer = agent.cluster.url(link.member).to_owned();
    let is_proven = match place.first_frame(&mut stream).await {
        Ok(frame) => match peer::decode(&Bytes::copy_from_slice(&frame)) {
            Ok(Message::Proof(proof)) => {
                agent
                    .cluster
                    .check(&proof, Role::Asker, &link.asker, &link.acceptor)
            }
            _ => false,
        },
        // It changed its mind, checked our proof and did not like it, or has to make room.
        Err(_) => return,
    };
    let conduit = Rc::new(Conduit::new(stream, &[], End::Answers));
    if !is_proven {
        tracing::warn!(peer, "a peer does not know the secret of the cluster");
        let us = agent.cluster.url(agent.cluster.me);
        let sentence = format!(
            "cluster-secret: {peer} does not know the secret that {us} knows: start both with the same --cluster-secret-file"
        );
        conduit.put(|out| peer::encode_farewell(out, &sentence));
        conduit.flush();
        return;
    }
    place.prove();
    drop(guest);
    let learning = learn(&lane, &agent, link.member, link.claim);
    let learnt = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, learning).await;
    if let Ok(Err(sentence)) | Err(sentence) = learnt.map_err(|_| "the log is too slow".to_owned())
    {
        tracing::warn!(peer, sentence, "a peer is not let in");
        conduit.put(|out| peer::encode_farewell(out, &sentence));
        conduit.flush();
        return;
    }
    let number = agent.put_asker(link.member, link.lane, &conduit);
    agent.cluster.tries.hear(link.member, link.lane);
    let _listed = Listed {
        agent: &agent,
        number,
    };
    let broken = questions(&lane, &agent, &link, number, &conduit).await;
    tracing::debug!(peer, %broken, "a peer's link ended");
}

async fn questions(
    lane: &Lane,
    agent: &Agent,
    met: &Met,
    link: u64,
    conduit: &Rc<Conduit>,
) -> Broken {
    let (member, life) = (met.member, met.claim.life);
    let gauges = &agent.cluster.peers[member.at()];
    let age = RefCell::new(Age::default());
    poll_fn(|cx| {
        lane.refresh();
        conduit.poll(cx, |frame| match peer::decode(&frame)? {
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
                    agent.send(conduit, |out| {
                        peer::encode_answer(out, id, &Answer::Refused(Refused::Late));
                    });
                    return Ok(());
                }
                let asker = Asker { member, link, id };
                agent.post(Event::Asked { asker, stamp, ask });
                Ok(())
            }
            Message::Probe { id } => {
                agent.send(conduit, |out| peer::encode_alive(out, id));
                Ok(())
            }
            Message::Farewell(_) => {
                conduit.close();
                Ok(())
            }
            Message::Answer { .. } | Message::Proof(_) | Message::Alive { .. } => Err(
                Malformed::Body("an answer on a link that carries questions"),
            ),
        })
    })
    .await
}
