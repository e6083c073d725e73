//! The own link to one peer: kept up by a task of the loop for as long as the loop lives.
//!
//! ```text
//! resolve, connect ─► request, hello ─► 101, hello ─► Proof, Hail ─► Welcome ─► Probe ─► Alive ─► up ─► answers …
//!      ▲                     │ refused: the sentence goes to the log, once per sentence     │
//!      │                     │ disowned: the node stops                                     │ a note of what
//!      │                                                                                    │ it had confirmed
//!      └──── pause, 20 ms doubling to 250 ms, with jitter; none when the peer is heard of ◄─ lost ┘
//! ```
//!
//! Invariants
//! 1. The node hears `Link` up after the handshake and down when the link is lost; between the two
//!    there is no question on its way.
//! 2. A peer from which nothing came for `LINK_SILENT_SWEEPS_MAX` sweeps, although it was probed, is
//!    lost. Sweeps and not time, so that a node that was stopped itself does not blame the others.
//! 3. Whoever waits while there is no link was refused, not queued.
//!
//! Not here: links that others opened (`accept.rs`), the link over plain HTTP while it is up (`pool.rs`).
//! See: docs/peer.md.

use super::agent::{Agent, Link};
use super::cluster::{Cluster, count, note_key, random};
use super::conduit::{Broken, Conduit, End, Seals};
use super::disowned::{self, Disowned, NoLink};
use super::pool;
use crate::lane::Lane;
use crate::limits;
use crate::notes;
use crate::seat::Seat;
use crate::settings::PeerTransport;
use crate::shared::Shared;
use bytes::{Bytes, BytesMut};
use dendra_base::{CellRef, Prng, Version};
use dendra_engine::{Guard, WriteOutcome};
use dendra_node::MemberIndex;
use dendra_node::identity::{Peer, Verdict};
use dendra_node::step::Event;
use dendra_wire::client::{Asked, ParsedAnswer, parse_answer};
use dendra_wire::limits::{HEAD_BYTES_MAX, PEER_SENTENCE_BYTES_MAX};
use dendra_wire::peer::{self, Hello, Malformed, Message, Proof, Role, SessionKeys};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A welcome or a farewell, with what surrounds its sentence.
const SHORT_FRAME_BYTES_MAX: usize = PEER_SENTENCE_BYTES_MAX + 64;

/// Keeps the link of `lane` to `member` up.
pub(crate) async fn keep(lane: Rc<Lane>, agent: Rc<Agent>, member: MemberIndex) {
    let mut pause = limits::LINK_PAUSE_MIN;
    let mut prng = Prng::named(lane.now_us() ^ u64::from(member.0), "link");
    let mut last_reason = String::new();
    let mut elsewhere_since_us = None;
    let mut first_try = Some(agent.cluster.tries.first(member));
    let mut news = agent.cluster.tries.news(member);
    loop {
        news.mark_unchanged();
        let opening = open(&lane, &agent, member);
        let opened = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, opening).await;
        let reason = match opened {
            Ok(Ok(opened)) => {
                elsewhere_since_us = None;
                pause = limits::LINK_PAUSE_MIN;
                last_reason.clear();
                tracing::info!(peer = agent.cluster.url(member), "the link to a peer is up");
                agent.cluster.set_shut_out(member, None);
                let up = Up::new(&agent, member, &opened);
                drop(first_try.take());
                let broken = run(&lane, &agent, member, opened).await;
                // What was heard of it while its link was up is no news of it now.
                news.mark_unchanged();
                drop(up);
                note_gone(&lane, &agent, member).await;
                format!("the link was lost: {broken}")
            }
            Ok(Err(NoLink::ForNow(reason))) => {
                elsewhere_since_us = None;
                agent.cluster.set_shut_out(member, None);
                reason
            }
            Ok(Err(NoLink::NotLetIn(reason))) => {
                elsewhere_since_us = None;
                agent.cluster.set_shut_out(member, Some(&reason));
                reason
            }
            Ok(Err(NoLink::Elsewhere(sentence))) => {
                agent.cluster.set_shut_out(member, None);
                let since_us = *elsewhere_since_us.get_or_insert(lane.now_us());
                let waited_us = lane.now_us().saturating_sub(since_us);
                if waited_us > limits::TWIN_PATIENCE.as_micros() as u64 {
                    return end(&lane, sentence, false);
                }
                sentence
            }
            Ok(Err(NoLink::Disowned(sentence))) => return end(&lane, sentence, true),
            Err(_) => {
                agent.cluster.set_shut_out(member, None);
                elsewhere_since_us = None;
                "it did not answer in time".to_owned()
            }
        };
        if reason != last_reason {
            tracing::warn!(
                peer = agent.cluster.url(member),
                reason,
                "no link to a peer"
            );
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

/// This node is not the member any more, says another one: it stops.
fn end(lane: &Lane, sentence: String, is_for_ever: bool) {
    tracing::error!(sentence, "the node stops");
    lane.shared.disown(Disowned {
        sentence,
        is_for_ever,
    });
}

/// A link whose handshake is over.
struct Opened {
    link: Link,
    /// What the member said about itself.
    claim: Peer,
    /// What a link over plain HTTP begins with.
    first: Option<TcpStream>,
}

async fn open(lane: &Lane, agent: &Agent, member: MemberIndex) -> Result<Opened, NoLink> {
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
async fn run(lane: &Rc<Lane>, agent: &Rc<Agent>, member: MemberIndex, opened: Opened) -> String {
    match opened.link {
        Link::Frames(conduit) => {
            let life = opened.claim.life;
            let broken = answers(lane, agent, member, life, &conduit).await;
            broken.to_string()
        }
        Link::Http(pool) => pool::run(lane, agent, member, &pool, opened.first).await,
    }
}

/// Host and port of a member's url.
pub(super) fn host_of(url: &str) -> &str {
    url.trim_start_matches("http://").trim_end_matches('/')
}

/// A connection to a member.
pub(super) async fn connect(host: &str) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(host).await;
    let stream = stream.map_err(|error| error.to_string())?;
    stream
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    Ok(stream)
}

/// What the hello of a member says, our proof for it, and what its frames are checked with.
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
    let (met, claim) = judged.map_err(|refusal| refusal.to_string())?;
    if met != member {
        return Err(format!("{} answers at {url}", theirs.url));
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
    stream: TcpStream,
    /// What it sent behind its welcome.
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
    let host = host_of(cluster.url(member));
    let mut stream = connect(host).await?;
    let nonce = random().map_err(|error| format!("no randomness: {error}"))?;
    let own = cluster.hello(lane, nonce);
    let own_line = own.to_string();
    let mut request = Vec::new();
    peer::hello::request(&mut request, host, &own_line);
    stream
        .write_all(&request)
        .await
        .map_err(|error| error.to_string())?;
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
            return Err(disowned::refused(
                answer.status,
                &String::from_utf8_lossy(body),
            ));
        }
        let line = answer.peer_hello.ok_or("its answer has no hello")?;
        let line = std::str::from_utf8(line).map_err(|_| "its hello is not ASCII")?;
        let recognised = recognise(cluster, member, &own, &own_line, line);
        let recognised = recognised.map_err(NoLink::NotLetIn)?;
        let mut rest = BytesMut::from(&head[answer.consumed..]);
        let mut seals = Seals::new(&recognised.keys, End::Asks);
        let mut out = Vec::new();
        peer::encode_proof(&mut out, &recognised.proof);
        peer::encode_hail(&mut out, &mut seals.sealing);
        let sent = stream.write_all(&out).await;
        sent.map_err(|error| error.to_string())?;
        let frame = short_frame(&mut stream, &mut rest).await?;
        return match peer::decode(&frame, &mut seals.checking) {
            Ok(Message::Welcome) => Ok(Greeted {
                stream,
                rest,
                seals,
                recognised,
            }),
            Ok(Message::Farewell(said)) => Err(disowned::told(cluster, member, &said)),
            Ok(_) => Err("its answer to a hail is none".into()),
            Err(malformed) => Err(disowned::unproven(cluster, member, &frame, malformed)),
        };
    }
}

/// The first frame of the other side, which has not proven itself yet: a welcome, or a farewell at most.
async fn short_frame(stream: &mut TcpStream, rest: &mut BytesMut) -> Result<Bytes, String> {
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
    lane: &Lane,
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
        Message::Farewell(said) => Err(disowned::told(&agent.cluster, member, &said)),
        _ => Err("its answer to a probe is none".into()),
    }
}

/// Makes what a member says about itself durable, when it is news; only then it counts.
pub(super) async fn learn(
    lane: &Lane,
    agent: &Agent,
    member: MemberIndex,
    claim: Peer,
) -> Result<(), String> {
    let cluster = &agent.cluster;
    let news = match cluster.claim(member, claim) {
        Verdict::Known => return Ok(()),
        Verdict::Learn(news) => news,
        Verdict::Refuse(reason) => return Err(format!("{}: {reason}", reason.code())),
    };
    let version = cluster.note_version(agent.lane, lane.wall_ms());
    write_note(lane, cluster.url(member), news, version).await?;
    cluster.remember(member, news);
    Ok(())
}

/// Puts what is known of the member at `url` into the log. The caller has a deadline.
async fn write_note(lane: &Lane, url: &str, peer: Peer, version: Version) -> Result<(), String> {
    let key = note_key(url);
    // The node asks for a ceiling only now and then: this write brings its own.
    lane.shared.engine.raise_hlc_ceiling(version.hlc);
    let value = peer.encode();
    let cell = CellRef::value(key.as_stored(), version, &value);
    let seat = Rc::new(Seat::default());
    lane.push_write(&seat, key.as_stored(), &cell, Guard::Newest)
        .map_err(|_| "the log has no room for a note about it".to_owned())?;
    let waited = seat.all_outcomes().await;
    match (waited, seat.take_outcome(0)) {
        (Ok(()), Some(WriteOutcome::Applied { .. })) => Ok(()),
        (_, outcome) => Err(format!("no note about it could be written: {outcome:?}")),
    }
}

/// Notes what a member that has gone had confirmed, so that a restart here does not forget it. It is a help, and
/// nobody waits for it: what is known stays known to this process.
async fn note_gone(lane: &Lane, agent: &Agent, member: MemberIndex) {
    let cluster = &agent.cluster;
    let Some((peer, version)) = cluster.unnoted(member, agent.lane, lane.wall_ms()) else {
        return;
    };
    let writing = write_note(lane, cluster.url(member), peer, version);
    match tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, writing).await {
        Ok(Ok(())) => cluster.noted(member, peer),
        Ok(Err(reason)) => tracing::debug!(reason, "what a peer confirmed is not noted"),
        Err(_) => tracing::debug!("what a peer confirmed is not noted: the log is too slow"),
    }
}

/// Notes what members confirmed while their links are up: a loss of all processes at once must not forget it.
pub(crate) fn note_rising(lane: &Rc<Lane>, agent: &Rc<Agent>) {
    for member in agent.others() {
        let confirmed = agent.take_confirmed(member);
        let Some((peer, version)) = agent
            .cluster
            .rose(member, confirmed, agent.lane, lane.tick())
        else {
            continue;
        };
        let (lane, agent) = (Rc::clone(lane), Rc::clone(agent));
        tokio::task::spawn_local(async move {
            let cluster = &agent.cluster;
            let writing = write_note(&lane, cluster.url(member), peer, version);
            match tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, writing).await {
                Ok(Ok(())) => cluster.noted(member, peer),
                Ok(Err(reason)) => {
                    tracing::debug!(reason, "what a peer confirmed is not noted yet");
                }
                Err(_) => {
                    tracing::debug!("what a peer confirmed is not noted yet: the log is slow")
                }
            }
        });
    }
}

/// Notes at a stop what other members confirmed since the last note. Requires: no loop and no commit runs any more.
pub(crate) fn note_at_stop(shared: &Shared, wall_ms: u64) {
    let Some(cluster) = &shared.cluster else {
        return;
    };
    for (member, peer) in cluster.unnoted_at_stop() {
        let url = cluster.url(member);
        let version = cluster.note_version(0, wall_ms);
        shared.engine.raise_hlc_ceiling(version.hlc);
        let written = notes::put(
            &shared.engine,
            &note_key(url),
            version,
            &peer.encode(),
            wall_ms,
        );
        if let Err(reason) = written {
            tracing::warn!(
                peer = url,
                reason,
                "what a peer confirmed could not be noted"
            );
        }
    }
}

/// The link as the agent and the gauges count it, however its task ends.
struct Up<'a> {
    agent: &'a Agent,
    member: MemberIndex,
}

impl<'a> Up<'a> {
    fn new(agent: &'a Agent, member: MemberIndex, opened: &Opened) -> Up<'a> {
        agent.cluster.linked(member, opened.claim);
        let gauges = &agent.cluster.peers[member.at()];
        gauges.links.fetch_add(1, Ordering::Relaxed);
        agent.put_link(member, opened.link.clone());
        Up { agent, member }
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        let gauges = &self.agent.cluster.peers[self.member.at()];
        gauges.links.fetch_sub(1, Ordering::Relaxed);
        let confirmed = self.agent.take_confirmed(self.member);
        self.agent.cluster.unlinked(self.member, confirmed);
        count(&gauges.lost);
        self.agent.drop_link(self.member);
    }
}

async fn answers(
    lane: &Lane,
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
