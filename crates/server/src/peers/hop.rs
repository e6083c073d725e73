//! Questions of peers that come as plain HTTP requests, one each.
//!
//! ```text
//! POST /v0/peer/hello ─► judged ─► 200, own hello; the session waits for its token
//! POST /v0/peer/ask   ─► token ─► body ─► one frame, checked ─┬─► Hail ─► claim judged ─► 200, Welcome or Farewell
//!                          │ unknown: 403, shake hands again    └─► claim noted ─► agent … ─► 200, one frame      no frame: 400
//! ```
//!
//! Invariants
//! 1. No body is read before its token is known: a stranger costs the head of a request.
//! 2. No question is looked at before its peer's claim is durable here.
//! 3. A peer's connection is one among the clients': it has a place in their gate, and its bodies
//!    have room in the gate of bytes.
//! 4. The age of a question is taken off the time it has left; one without time left is late.
//!
//! Not here: questions that come as frames of a link (`accept.rs`), asking (`member/pool.rs`).
//! See: docs/peer.md, section "Over plain HTTP".

use super::accept;
use super::notes::learn;
use crate::event_loop::thread::EventLoop;
use crate::exchange::body::{BodyReader, Inflow, NoBody};
use crate::exchange::socket::{ConnectionEnd, Socket};
use crate::limits;
use crate::measure::metrics::{CapacityShare, OpLabel, RefusalCause};
use crate::member::agent::Agent;
use crate::member::askers::PeerRequestGuard;
use crate::member::hello_maker::HelloMaker;
use crate::member::links::count;
use crate::member::session::Session;
use crate::retry_after::retry_after_s;
use crate::waiting::finished::Finished;
use crate::waiting::seat::{WaitLimit, WakeReason};
use crate::waiting::status;
use bytes::Bytes;
use dendra_base::peer::{Answer, Refused as RefusedBy};
use dendra_node::step::Event;
use dendra_ownership::MemberIndex;
use dendra_ownership::steward::messages::{EnrolAnswer, EnrolRequest};
use dendra_wire::Refusal;
use dendra_wire::http::response::{self, Style};
use dendra_wire::http::{Body, Field, Head};
use dendra_wire::limits::PEER_FRAME_BYTES_MAX;
use dendra_wire::peer::{self, Malformed, Message, Proof, Question, Role, hop};
use std::rc::Rc;
use std::sync::Arc;

/// A question of a peer, after the check of its token.
pub(crate) struct PendingAsk {
    token: Proof,
    session: Arc<Session>,
    style: Style,
    frame: FrameBody,
}

enum FrameBody {
    Whole(Bytes),
    Arriving {
        body: Inflow,
        expects_continue: bool,
    },
}

/// The result of a peer's question.
pub(crate) enum Answered {
    /// The answer is formed; does the connection end after it?
    Formed { is_last: bool },
    /// The frame did not come whole: the refusal ends the connection.
    Broken(Refusal),
}

impl PendingAsk {
    /// The style of its answer.
    pub(crate) fn style(&self) -> Style {
        self.style
    }
}

/// Answers a hello: the asker's token is known from here on.
pub(crate) fn answer_hello(
    lane: &EventLoop,
    socket: &mut Socket,
    head: &Head<'_>,
    style: Style,
) -> Result<(), Refusal> {
    let agent = lane.agent().ok_or_else(accept::no_peers)?;
    let met = accept::read_hello(&agent, socket.stream(), head)?;
    for (token, keys) in agent.cluster.links.secrets.all(met.hellos()) {
        let visitor = (met.visitor.clone(), met.url.clone());
        let session = Session::new(visitor, met.claim, met.lane, keys);
        agent.cluster.links.sessions.keep(&token, session);
    }
    hop::hello_answer(socket.out(), style, &met.acceptor);
    lane.finish(OpLabel::Other, 200);
    Ok(())
}

/// Looks at the token of a question and at the length of its frame; `rest` stands after the
/// head. Gives how much of it was taken.
pub(crate) fn read_ask(
    lane: &EventLoop,
    socket: &mut Socket,
    head: &Head<'_>,
    rest: &[u8],
    style: Style,
) -> Result<(usize, PendingAsk), Refusal> {
    let agent = lane.agent().ok_or_else(accept::no_peers)?;
    let shown = match head.peer_proof {
        Field::Once(text) => Proof::from_hex(text),
        Field::Absent | Field::Repeated => None,
    };
    let found = shown.and_then(|proof| {
        let session = agent.cluster.links.sessions.find(&proof)?;
        Some((proof, session))
    });
    let (token, session) = found.ok_or_else(|| {
        let us = agent.cluster.own_url();
        let sentence = format!("{us} knows no peer with this Dendra-Peer-Proof: shake hands again");
        Refusal::new(403, "peer-token", sentence)
    })?;
    // Once for each connection: a token that was overheard is of no use on another one.
    let member = session.visitor.member();
    if member.is_none() || socket.proven_member() != member {
        agent
            .cluster
            .check_identity(socket.stream(), Some(&session.visitor), &session.url)?;
        if let Some(member) = member {
            socket.prove_member(member);
        }
    }
    let arriving = |reader| FrameBody::Arriving {
        body: Inflow::new(reader, Some(Rc::clone(&lane.rooms.value_bytes))),
        expects_continue: head.expects_continue(),
    };
    let (taken, frame) = match head.body {
        Body::None => return Err(malformed(Malformed::Length(0))),
        Body::Length(length) if length > PEER_FRAME_BYTES_MAX as u64 => {
            return Err(too_long());
        }
        Body::Length(length) if length <= rest.len() as u64 => {
            let frame = &rest[..length as usize];
            (frame.len(), FrameBody::Whole(Bytes::copy_from_slice(frame)))
        }
        Body::Length(length) if !lane.rooms.bytes.has_place(length as usize) => {
            lane.metrics()
                .refuse(CapacityShare::Peers, RefusalCause::Bytes);
            return Err(status::refused(RefusalCause::Bytes));
        }
        Body::Length(length) => (0, arriving(BodyReader::of_length(length))),
        Body::Chunked => {
            let reader = BodyReader::chunked(PEER_FRAME_BYTES_MAX as u64);
            (0, arriving(reader))
        }
    };
    let pending = PendingAsk {
        token,
        session,
        style,
        frame,
    };
    Ok((taken, pending))
}

/// Answers a question of a peer; the refusal, if it is one, says whether the connection ends.
pub(crate) async fn answer(
    socket: &mut Socket,
    pending: PendingAsk,
) -> Result<Answered, ConnectionEnd> {
    let lane = Rc::clone(socket.lane());
    let PendingAsk {
        token,
        session,
        style,
        frame,
    } = pending;
    let mut room = Vec::new();
    let frame = match frame {
        FrameBody::Whole(frame) => {
            socket.flush().await?;
            frame
        }
        FrameBody::Arriving {
            body,
            expects_continue,
        } => {
            if expects_continue && socket.unread_len() == 0 {
                response::proceed(socket.out());
            }
            socket.flush().await?;
            match body.collect(socket).await {
                Ok(collected) => {
                    room = collected.room;
                    Bytes::from(collected.bytes)
                }
                Err(NoBody::Refused(refusal)) => return Ok(Answered::Broken(refusal)),
                Err(NoBody::Ended(end)) => return Err(end),
            }
        }
    };
    let _held = socket.hold_input();
    let _room = room;
    let agent = lane.agent().expect("it was looked for in `read_ask`");
    let answered = answer_frame(socket, &agent, &token, &session, &frame).await;
    lane.refresh();
    match answered {
        Ok(answer) => {
            hop::answer(socket.out(), style, &answer);
            Ok(Answered::Formed { is_last: false })
        }
        Err(refusal) => {
            let status = status::write_refusal(socket.out(), style, &refusal);
            lane.finish(OpLabel::Other, status);
            Ok(Answered::Formed {
                is_last: refusal.close,
            })
        }
    }
}

/// The peer's claim is durable after this.
async fn learn_about(
    lane: &EventLoop,
    agent: &Agent,
    token: &Proof,
    session: &Session,
    member: MemberIndex,
) -> Result<(), Refusal> {
    let is_current = || agent.cluster.is_current(member, session.claim.life);
    if session.is_learnt() && is_current() {
        return Ok(());
    }
    let learning = learn(lane, agent, member, session.claim);
    let learnt = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, learning).await;
    match learnt {
        Ok(Ok(())) => {
            session.set_learnt();
            agent.cluster.links.sessions.settle(token);
            agent.cluster.heard(member, session.lane);
            Ok(())
        }
        Ok(Err(sentence)) => {
            let peer = agent.cluster.url(member);
            if let Some(unsaid) = agent.cluster.links.strangers.may_say() {
                tracing::warn!(peer, sentence, unsaid, "a peer is not let in");
            }
            Err(Refusal::new(403, "peer-token", sentence))
        }
        Err(_) => Err(Refusal::not_serving("the log is too slow", retry_after_s())),
    }
}

async fn answer_frame(
    socket: &Socket,
    agent: &Rc<Agent>,
    token: &Proof,
    session: &Session,
    frame: &Bytes,
) -> Result<Vec<u8>, Refusal> {
    let (lane, seat) = (socket.lane(), socket.seat());
    let mut out = Vec::new();
    let mut seal = session.keys.of_requests(Role::Acceptor);
    let mut checking = session.keys.of_requests(Role::Asker);
    let message = peer::decode(frame, &mut checking).map_err(malformed)?;
    let member = match (&session.visitor, &message) {
        (HelloMaker::Member(member), _) => *member,
        (HelloMaker::Removed(rejected), _) => {
            peer::encode_farewell(&mut out, &mut seal, &rejected.to_string());
            return Ok(out);
        }
        (HelloMaker::Joiner, Message::Enrol(body)) => {
            peer::encode_enrolment(&mut out, &mut seal, &enrol(agent, body).await?.encode());
            return Ok(out);
        }
        (HelloMaker::Joiner, _) => return Err(malformed(Malformed::Body("no request to join"))),
    };
    let question = match message {
        Message::Ask(question) => Some(question),
        Message::Steward { id, body } => {
            learn_about(lane, agent, token, session, member).await?;
            let taken = agent.cluster.take_message(member, session.claim, &body);
            taken.map_err(malformed)?;
            peer::encode_alive(&mut out, &mut seal, id);
            return Ok(out);
        }
        Message::Probe { id } => {
            peer::encode_alive(&mut out, &mut seal, id);
            None
        }
        Message::Hail => {
            match agent.cluster.admit(member, session.claim) {
                Ok(()) => peer::encode_welcome(&mut out, &mut seal),
                Err(rejected) => {
                    let by = (member, session.url.as_str());
                    let cluster = &agent.cluster;
                    let said = rejected.to_string();
                    let said = cluster.unless_members_changed(by, session.claim, said);
                    peer::encode_farewell(&mut out, &mut seal, &said);
                }
            }
            return Ok(out);
        }
        Message::Answer { .. }
        | Message::Proof(_)
        | Message::Alive { .. }
        | Message::Welcome
        | Message::Withdraw { .. }
        | Message::Enrol(_)
        | Message::Enrolment(_)
        | Message::Farewell(_) => {
            return Err(malformed(Malformed::Body("no question")));
        }
    };
    learn_about(lane, agent, token, session, member).await?;
    let Some(question) = question else {
        return Ok(out);
    };
    let Question {
        id,
        sent_ms,
        mut stamp,
        ask,
    } = question;
    let age_ms = session.age_ms(sent_ms, lane.now_us() / 1_000);
    stamp.left_ms = stamp.left_ms.saturating_sub(age_ms);
    if stamp.left_ms == 0 {
        count(&agent.cluster.links.peers[member.at()].late);
        peer::encode_answer(&mut out, &mut seal, id, &Answer::Refused(RefusedBy::Late));
        return Ok(out);
    }
    let left_us = u64::from(stamp.left_ms) * 1_000 + limits::OUTCOME_GRACE.as_micros() as u64;
    let visit = PeerRequestGuard::begin(&agent.askers, seat);
    let asker = visit.asker(member, id);
    agent.post(Event::Asked { asker, stamp, ask });
    seat.arm(lane.now_us() + left_us);
    let waited = seat.all(WaitLimit::DeadlineOrPoison).await;
    let finished = seat.take(0);
    seat.next_round();
    drop(visit);
    match (finished, waited) {
        (Some(Finished::Reply(answer)), _) => {
            peer::encode_answer(&mut out, &mut seal, id, &answer);
            Ok(out)
        }
        (_, Err(WakeReason::Poisoned)) => Err(Refusal::not_serving(
            "the log failed and the node stops",
            retry_after_s(),
        )
        .closing()),
        _ => Err(Refusal::new(
            504,
            "peer-late",
            "the question's time is over, and its answer is not there",
        )),
    }
}

/// A process asks to become a member.
async fn enrol(agent: &Agent, body: &Bytes) -> Result<EnrolAnswer, Refusal> {
    let request = EnrolRequest::decode(body).map_err(|part| malformed(Malformed::Body(part)))?;
    let asking = agent.cluster.enrol(request);
    let answer = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, asking).await;
    answer
        .ok()
        .flatten()
        .ok_or_else(|| Refusal::not_serving("the steward has no time", retry_after_s()))
}

fn malformed(malformed: Malformed) -> Refusal {
    Refusal::new(400, "peer-frame", malformed.to_string()).closing()
}

fn too_long() -> Refusal {
    Refusal::new(
        413,
        "peer-frame",
        format!("a frame has at most {PEER_FRAME_BYTES_MAX} bytes"),
    )
}
