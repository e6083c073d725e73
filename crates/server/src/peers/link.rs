//! The own link to one peer: kept up by a task of the loop for as long as the loop lives.
//!
//! ```text
//! resolve, connect ─► request, hello ─► 101, hello ─► Proof, Hail ─► Welcome ─► Probe ─► Alive ─► up ─► answers …
//!      ▲                     │ refused: the sentence goes to the log, once per sentence     │
//!      │                     │ Stop: the node stops                                         │ LinkDown: notes
//!      └──── pause, 20 ms doubling to 250 ms, with jitter; none when the peer opens a link ◄─ lost ┘
//! ```
//!
//! Invariants
//! 1. The node gets `Link` up after the handshake and down when the link is lost; between the two
//!    there is no question on its way.
//! 2. A peer from which nothing came for `LINK_SILENT_SWEEPS_MAX` sweeps, although it was probed, is
//!    lost. Sweeps and not time, so that a node that was stopped itself does not blame the others.
//! 3. While there is no link, questions are refused, not queued.
//!
//! Not here: links that others opened (`accept.rs`), the link over plain HTTP while it is up
//! (`pool.rs`), the meaning of a failed handshake (crate `node`, `membership/`).
//! See: docs/peer.md.

use super::agent::{Agent, Link};
use super::cluster::{Cluster, Told, count, host_of, random};
use super::conduit::{Broken, Conduit, End, Seals};
use super::notes::{learn, write_notes};
use super::pool;
use crate::event_loop::thread::EventLoop;
use crate::limits;
use crate::settings::PeerTransport;
use crate::tls::{ByteStream, Tls};
use bytes::{Bytes, BytesMut};
use dendra_base::Prng;
use dendra_node::MemberIndex;
use dendra_node::membership::identity::Peer;
use dendra_node::membership::{Maker, MemberEffect, MemberEvent, NoLink};
use dendra_node::ring::table::MemberId;
use dendra_node::step::Event;
use dendra_node::steward::step::StewardEvent;
use dendra_node::topology::chain::ChainPeer;
use dendra_wire::client::{Asked, ParsedAnswer, parse_answer};
use dendra_wire::limits::{HEAD_BYTES_MAX, PEER_SENTENCE_BYTES_MAX};
use dendra_wire::peer::{self, Hello, Malformed, Message, Proof, Role, Seal, SessionKeys};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A welcome or a farewell, with the bytes around its sentence.
const SHORT_FRAME_BYTES_MAX: usize = PEER_SENTENCE_BYTES_MAX + 64;

/// Keeps the link of `lane` to `member` up.
pub(crate) async fn keep(lane: Rc<EventLoop>, agent: Rc<Agent>, member: MemberIndex) {
    let Some(id) = agent.id_of(member) else {
        return;
    };
    let mut pause = limits::LINK_PAUSE_MIN;
    let mut prng = Prng::named(lane.now_us() ^ u64::from(member.0), "link");
    let mut last_reason = String::new();
    let mut first_try = Some(FirstTry {
        agent: &agent,
        member,
    });
    let mut news = agent.cluster.news(member);
    loop {
        // Its place may have been given to another member, and its address may have changed.
        if agent.id_of(member) != Some(id) {
            return;
        }
        let url = agent.cluster.url(member);
        news.mark_unchanged();
        let opening = open(&lane, &agent, member);
        let opened = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, opening).await;
        let opened = opened.unwrap_or_else(|_| Err("it did not answer in time".into()));
        let up = opened.and_then(|opened| Ok((Up::new(&agent, member, id, &opened)?, opened)));
        let reason = match up {
            Ok((up, opened)) => {
                pause = limits::LINK_PAUSE_MIN;
                last_reason.clear();
                tracing::info!(peer = url, "the link to a peer is up");
                drop(first_try.take());
                let broken = run(&lane, &agent, member, opened).await;
                // A link of the peer that came while this one was up is no news of it now.
                news.mark_unchanged();
                let lost = up.end();
                write_notes(&lane, &agent, lost).await;
                format!("the link was lost: {broken}")
            }
            Err(why) => {
                let reason = why.reason().to_owned();
                if no_link(&lane, &agent, member, why) {
                    return;
                }
                reason
            }
        };
        if reason != last_reason {
            tracing::warn!(peer = url, reason, "no link to a peer");
            last_reason = reason;
        }
        drop(first_try.take());
        let us = pause.as_micros() as u64;
        let waiting = tokio::time::sleep(Duration::from_micros(us / 2 + prng.below(us)));
        let is_news = tokio::select! {
            () = waiting => false,
            // The senders live as long as the cluster.
            told = news.changed() => told.is_ok(),
        };
        if is_news {
            agent.post(Event::Heard { member });
        }
        pause = match is_news {
            true => limits::LINK_PAUSE_MIN,
            false => (pause * 2).min(limits::LINK_PAUSE_MAX),
        };
    }
}

/// The first try of a loop to open its link; over when this is dropped.
struct FirstTry<'a> {
    agent: &'a Agent,
    member: MemberIndex,
}

impl Drop for FirstTry<'_> {
    fn drop(&mut self) {
        let (member, lane) = (self.member, self.agent.lane as u16);
        let cluster = &self.agent.cluster;
        drop(cluster.tell(self.agent.lane, MemberEvent::Tried { member, lane }));
    }
}

/// A try led to no link. True when this node stops.
fn no_link(lane: &EventLoop, agent: &Agent, member: MemberIndex, why: NoLink) -> bool {
    let event = MemberEvent::NoLink {
        member,
        lane: agent.lane as u16,
        why,
    };
    let mut effects = agent.cluster.tell(agent.lane, event).effects;
    let Some(MemberEffect::Stop(why)) = effects.pop() else {
        return false;
    };
    tracing::error!(sentence = why.sentence, "the node stops");
    lane.shared.disown(why);
    true
}

/// A link whose handshake is over.
struct Opened {
    link: Link,
    /// The member's claim.
    claim: Peer,
    /// The connection that a link over plain HTTP begins with.
    first: Option<ByteStream>,
}

async fn open(lane: &EventLoop, agent: &Agent, member: MemberIndex) -> Result<Opened, NoLink> {
    match agent.cluster.transport {
        PeerTransport::Frames => {
            let (conduit, claim) = upgrade(lane, agent, member).await?;
            Ok(Opened {
                link: Link::Frames(Rc::new(conduit)),
                claim,
                first: None,
            })
        }
        PeerTransport::Http => {
            let (pool, first, claim) = pool::open(lane, agent, member).await?;
            Ok(Opened {
                link: Link::Http(Rc::new(pool)),
                claim,
                first: Some(first),
            })
        }
    }
}

/// Serves a link to its end: why it ended.
async fn run(
    lane: &Rc<EventLoop>,
    agent: &Rc<Agent>,
    member: MemberIndex,
    opened: Opened,
) -> String {
    match opened.link {
        Link::Frames(conduit) => {
            let life = opened.claim.life;
            let broken = answers(lane, agent, member, life, &conduit).await;
            broken.to_string()
        }
        Link::Http(pool) => pool::run(lane, agent, member, &pool, opened.first).await,
    }
}

/// A connection to a member, sealed where links are.
pub(super) async fn connect(cluster: &Cluster, host: &str) -> Result<ByteStream, String> {
    connect_with(cluster.tls.as_deref(), host).await
}

/// The same of a process that is no member yet.
pub(super) async fn connect_with(tls: Option<&Tls>, host: &str) -> Result<ByteStream, String> {
    let stream = TcpStream::connect(host).await;
    let stream = stream.map_err(|error| error.to_string())?;
    stream
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    match tls {
        None => Ok(ByteStream::Clear(stream)),
        Some(tls) => tls.seal(stream, host).await,
    }
}

/// The content of a member's hello, our proof for it, and the seals that check its frames.
pub(super) struct Recognised {
    pub(super) claim: Peer,
    pub(super) loops: u16,
    pub(super) proof: Proof,
    pub(super) keys: SessionKeys,
}

/// Is the hello `line` that of the member which is meant, and is that one let in here?
pub(super) fn recognise(
    cluster: &Cluster,
    member: MemberIndex,
    own: &Hello,
    own_line: &str,
    line: &str,
) -> Result<Recognised, String> {
    let url = cluster.url(member);
    let theirs = Hello::parse(line.as_bytes())
        .map_err(|field| format!("its hello cannot be read: {field} is missing or wrong"))?;
    let judged = cluster.judge_hello(own, &theirs);
    let (found, claim) = judged.map_err(|refusal| refusal.to_string())?;
    if found.member() != Some(member) {
        return Err(format!(
            "{} answers at {url}, with another folder",
            theirs.url
        ));
    }
    let admitted = cluster.admit(member, claim);
    admitted.map_err(|refusal| refusal.to_string())?;
    Ok(Recognised {
        claim,
        loops: theirs.loops,
        proof: cluster.prove(Role::Asker, own_line, line),
        keys: cluster.keys(own_line, line),
    })
}

/// A member that would let this one in, and is let in. It notes nothing of this one before it is probed.
pub(super) struct Greeted {
    stream: ByteStream,
    /// The bytes that it sent behind its welcome.
    rest: BytesMut,
    seals: Seals,
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
    let mut stream = connect(cluster, host).await?;
    let nonce = random().map_err(|error| format!("no randomness: {error}"))?;
    let own = cluster.hello(lane, nonce);
    let own_line = own.to_string();
    let mut request = Vec::new();
    peer::hello::request(&mut request, host, &own_line);
    stream
        .write_all(&request)
        .await
        .map_err(|error| error.to_string())?;
    stream.flush().await.map_err(|error| error.to_string())?;
    let mut head = Vec::with_capacity(4096);
    loop {
        let n = stream
            .read_buf(&mut head)
            .await
            .map_err(|error| error.to_string())?;
        if n == 0 {
            return Err("it closed the connection instead of an answer".into());
        }
        let answer = match parse_answer(&head, Asked::WithBody) {
            ParsedAnswer::Incomplete if head.len() < HEAD_BYTES_MAX => continue,
            ParsedAnswer::Incomplete => return Err("its answer has no end".into()),
            ParsedAnswer::Bad(sentence) => return Err(sentence.into()),
            ParsedAnswer::Head(answer) => answer,
        };
        if answer.status != 101 {
            let length = answer.content_length.unwrap_or(0).min(4096) as usize;
            let body = head.get(answer.consumed..).unwrap_or_default();
            if body.len() < length {
                continue;
            }
            return Err(NoLink::of_status(
                answer.status,
                &String::from_utf8_lossy(body),
            ));
        }
        let line = answer.peer_hello.ok_or("its answer has no hello")?;
        let line = std::str::from_utf8(line).map_err(|_| "its hello is not ASCII")?;
        let recognised = recognise(cluster, member, &own, &own_line, line);
        let recognised = recognised.map_err(NoLink::NotAdmitted)?;
        let mut rest = BytesMut::from(&head[answer.consumed..]);
        let mut seals = Seals::new(&recognised.keys, End::Asks);
        let mut out = Vec::new();
        peer::encode_proof(&mut out, &recognised.proof);
        peer::encode_hail(&mut out, &mut seals.sealing);
        let sent = stream.write_all(&out).await;
        sent.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        let frame = short_frame(&mut stream, &mut rest).await?;
        welcomed(cluster, member, &frame, &mut seals.checking)?;
        return Ok(Greeted {
            stream,
            rest,
            seals,
            recognised,
        });
    }
}

/// Reads the answer to a hail.
pub(super) fn welcomed(
    cluster: &Cluster,
    member: MemberIndex,
    frame: &Bytes,
    checking: &mut Seal,
) -> Result<(), NoLink> {
    let url = cluster.url(member);
    match peer::decode(frame, checking) {
        Ok(Message::Welcome) => Ok(()),
        Ok(Message::Farewell(said)) => Err(NoLink::of_farewell(&url, &said, Maker::Member)),
        Ok(_) => Err("its answer to a hail is none".into()),
        // Without the keys of the handshake.
        Err(malformed) => match peer::decode(frame, &mut Seal::plain()) {
            Ok(Message::Farewell(said)) => Err(NoLink::of_farewell(&url, &said, Maker::Anyone)),
            _ => Err(NoLink::NotAdmitted(format!(
                "cluster-secret: {url} does not know the secret that {} knows ({malformed}): \
                 start both with the same --cluster-secret-file",
                cluster.own_url()
            ))),
        },
    }
}

/// The first frame of the other side, which has not proven itself yet: a welcome, or a farewell at most.
async fn short_frame(stream: &mut ByteStream, rest: &mut BytesMut) -> Result<Bytes, String> {
    loop {
        match peer::frame_len(rest).map_err(|malformed| malformed.to_string())? {
            Some(len) if len > SHORT_FRAME_BYTES_MAX => {
                return Err(format!("its answer to a proof has {len} bytes"));
            }
            Some(len) if len <= rest.len() => return Ok(rest.split_to(len).freeze()),
            _ => {}
        }
        rest.reserve(SHORT_FRAME_BYTES_MAX);
        let read = stream.read_buf(rest).await;
        if read.map_err(|error| error.to_string())? == 0 {
            return Err("it closed the connection instead of an answer to a proof".to_owned());
        }
    }
}

async fn upgrade(
    lane: &EventLoop,
    agent: &Agent,
    member: MemberIndex,
) -> Result<(Conduit, Peer), NoLink> {
    let greeted = greet(&agent.cluster, agent.lane, member).await?;
    let claim = greeted.recognised.claim;
    let conduit = Conduit::new(greeted.stream, &greeted.rest, End::Asks, greeted.seals);
    learn(lane, agent, member, claim).await?;
    conduit.put(|out, seal| peer::encode_probe(out, seal, 0));
    conduit.flush();
    // Behind this it has let us in, and its loops know that we are there.
    let message = conduit.next_message().await;
    match message.map_err(|broken| broken.to_string())? {
        Message::Alive { id: 0 } => Ok((conduit, claim)),
        Message::Farewell(said) => {
            let url = agent.cluster.url(member);
            Err(NoLink::of_farewell(&url, &said, Maker::Member))
        }
        _ => Err("its answer to a probe is none".into()),
    }
}

/// The link as the machine, the agent and the gauges count it, however its task ends.
struct Up<'a> {
    agent: &'a Agent,
    member: MemberIndex,
    id: MemberId,
    node: u128,
    is_over: bool,
}

impl<'a> Up<'a> {
    fn new(
        agent: &'a Agent,
        member: MemberIndex,
        id: MemberId,
        opened: &Opened,
    ) -> Result<Up<'a>, NoLink> {
        if agent.id_of(member) != Some(id) {
            opened.link.close();
            return Err("it is no member any more".into());
        }
        let event = MemberEvent::LinkUp {
            member,
            lane: agent.lane as u16,
            claim: opened.claim,
        };
        let mut effects = agent.cluster.tell(agent.lane, event).effects;
        if let Some(MemberEffect::Reject(rejected)) = effects.pop() {
            opened.link.close();
            return Err(NoLink::ForNow(rejected.to_string()));
        }
        let gauges = &agent.cluster.peers[member.at()];
        gauges.links.fetch_add(1, Ordering::Relaxed);
        agent.put_link(member, opened.link.clone());
        let up = Up {
            agent,
            member,
            id,
            node: opened.claim.node,
            is_over: false,
        };
        up.tell_steward(true);
        Ok(up)
    }

    /// The steward speaks over the links of the first loop.
    fn tell_steward(&self, is_up: bool) {
        if self.agent.lane == 0 {
            let (member, node) = (self.id, self.node);
            let peer = ChainPeer { member, node };
            let event = StewardEvent::Reached { peer, is_up };
            self.agent.cluster.door.tell_surely(event);
        }
    }

    /// The link is lost: the notes to write.
    fn end(mut self) -> Told {
        self.go_down()
    }

    fn go_down(&mut self) -> Told {
        self.is_over = true;
        let (agent, member) = (self.agent, self.member);
        let gauges = &agent.cluster.peers[member.at()];
        gauges.links.fetch_sub(1, Ordering::Relaxed);
        count(&gauges.lost);
        self.tell_steward(false);
        if agent.id_of(member).is_some_and(|id| id != self.id) {
            // Its place is another member's now.
            return Told::nothing();
        }
        let confirmed = agent.take_confirmed(member);
        let event = MemberEvent::LinkDown { member, confirmed };
        let told = agent.cluster.tell(agent.lane, event);
        agent.drop_link(member);
        told
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // The loop ends, and writes nothing more: `Stopping` asks for the notes again.
            drop(self.go_down());
        }
    }
}

async fn answers(
    lane: &EventLoop,
    agent: &Agent,
    member: MemberIndex,
    life: u64,
    conduit: &Conduit,
) -> Broken {
    poll_fn(|cx| {
        conduit
            .poll(cx, |message| match message {
                _ if !agent.cluster.is_current(member, life) => {
                    conduit.close();
                    Ok(())
                }
                Message::Answer { id, answer } => {
                    agent.answered(member, id, answer);
                    Ok(())
                }
                Message::Alive { .. } => Ok(()),
                Message::Farewell(sentence) => {
                    let peer = agent.cluster.url(member);
                    tracing::warn!(peer, sentence, "a peer ends the link");
                    conduit.close();
                    Ok(())
                }
                Message::Ask(_)
                | Message::Proof(_)
                | Message::Probe { .. }
                | Message::Hail
                | Message::Withdraw { .. }
                | Message::Steward { .. }
                | Message::Enrol(_)
                | Message::Enrolment(_)
                | Message::Welcome => {
                    Err(Malformed::Body("a question on a link that carries answers"))
                }
            })
            .map(|broken| {
                lane.refresh();
                broken
            })
    })
    .await
}
