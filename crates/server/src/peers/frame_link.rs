//! The own link to one peer as one connection with frames both ways.
//!
//! ```text
//! request with Upgrade, hello ─► 101, hello ─► Proof, Hail ─► Welcome ─► Probe ─► Alive ─► answers …
//! ```
//!
//! Invariants
//! 1. Before the other side has proven itself, at most `SHORT_FRAME_BYTES_MAX` bytes of a frame are
//!    read.
//!
//! Not here: when a link is opened (`link.rs`), frames that leave (`member/conduit.rs`), links of
//! others (`accept.rs`).
//! See: docs/peer.md.

use super::notes::learn;
use crate::event_loop::thread::EventLoop;
use crate::member::agent::Agent;
use crate::member::cluster::Cluster;
use crate::member::conduit::{Conduit, LinkBreak, LinkEnd, Seals};
use crate::member::handshake::{self, Hailed, HelloWay, Recognised, Unwelcome, call, connect};
use crate::tls::{ByteStream, link_fault};
use bytes::{Buf, Bytes, BytesMut};
use dendra_base::ClusterVersions;
use dendra_ownership::MemberIndex;
use dendra_ownership::membership::identity::Peer;
use dendra_ownership::membership::{Maker, NoLink};
use dendra_wire::client::{Asked, ParsedAnswer, parse_answer};
use dendra_wire::limits::{HEAD_BYTES_MAX, PEER_SENTENCE_BYTES_MAX};
use dendra_wire::peer::{self, Hello, Malformed, Message};
use std::future::poll_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A welcome or a farewell, with the bytes around its sentence.
const SHORT_FRAME_BYTES_MAX: usize = PEER_SENTENCE_BYTES_MAX + 64;

/// A connection in the middle of a handshake.
pub(super) struct FrameWay {
    host: String,
    stream: ByteStream,
    /// The bytes that came and are not yet understood.
    rest: BytesMut,
    /// From the proof on.
    seals: Option<Seals>,
}

impl FrameWay {
    /// Connects to `member`.
    pub(super) async fn connect(
        cluster: &Cluster,
        member: MemberIndex,
    ) -> Result<FrameWay, NoLink> {
        let (host, stream) = call(cluster, member).await?;
        Ok(FrameWay {
            host,
            stream,
            rest: BytesMut::with_capacity(4096),
            seals: None,
        })
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.stream.write_all(bytes).await;
        sent.map_err(|error| link_fault(&error))?;
        let flushed = self.stream.flush().await;
        flushed.map_err(|error| link_fault(&error))
    }
}

impl HelloWay for FrameWay {
    async fn hello(&mut self, _own: &Hello, own_line: &str) -> Result<String, NoLink> {
        let mut request = Vec::new();
        peer::hello::request(&mut request, &self.host, own_line);
        self.send(&request).await?;
        loop {
            let n = self.stream.read_buf(&mut self.rest).await;
            if n.map_err(|error| link_fault(&error))? == 0 {
                return Err("it closed the connection instead of an answer".into());
            }
            let head = &self.rest;
            let answer = match parse_answer(head, Asked::WithBody) {
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
            let (line, consumed) = (line.to_owned(), answer.consumed);
            self.rest.advance(consumed);
            return Ok(line);
        }
    }

    async fn hail(&mut self, _own: &Hello, recognised: &Recognised) -> Result<Hailed, Unwelcome> {
        let mut seals = Seals::new(&recognised.keys, LinkEnd::Asks);
        let mut out = Vec::new();
        peer::encode_proof(&mut out, &recognised.proof);
        peer::encode_hail(&mut out, &mut seals.sealing);
        self.send(&out).await?;
        let frame = short_frame(&mut self.stream, &mut self.rest).await?;
        let said = peer::decode(&frame, &mut seals.checking);
        self.seals = Some(seals);
        Ok(Hailed { frame, said })
    }

    async fn again(&mut self, cluster: &Cluster) -> Result<(), NoLink> {
        self.stream = connect(cluster, &self.host).await?;
        self.rest.clear();
        self.seals = None;
        Ok(())
    }
}

/// The first frame of the other side, which has not proven itself yet: a welcome, or a farewell at
/// most.
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
        if read.map_err(|error| link_fault(&error))? == 0 {
            return Err("it closed the connection instead of an answer to a proof".to_owned());
        }
    }
}

/// Opens the link of this loop to `member`.
pub(super) async fn open(
    lane: &EventLoop,
    agent: &Agent,
    member: MemberIndex,
) -> Result<(Conduit, Peer, ClusterVersions), NoLink> {
    let mut way = FrameWay::connect(&agent.cluster, member).await?;
    let recognised = handshake::shake_hands(&agent.cluster, agent.lane, member, &mut way).await?;
    agent.cluster.epochs.reached_at(member, &way.host);
    let (claim, versions) = (recognised.claim, recognised.versions);
    let seals = way.seals.expect("a hail brings them");
    let conduit = Conduit::new(way.stream, &way.rest, LinkEnd::Asks, seals);
    learn(lane, agent, member, claim).await?;
    conduit.put(|out, seal| peer::encode_probe(out, seal, 0));
    conduit.flush();
    // Behind this it has let us in, and its loops know that we are there.
    let message = conduit.next_message().await;
    match message.map_err(|broken| broken.to_string())? {
        Message::Alive { id: 0 } => Ok((conduit, claim, versions)),
        Message::Farewell(said) => {
            let url = agent.cluster.url(member);
            let epoch = agent.cluster.topology().epoch();
            Err(NoLink::of_farewell(&url, &said, Maker::Member, epoch))
        }
        _ => Err("its answer to a probe is none".into()),
    }
}

/// Serves the answers of a link to its end.
pub(super) async fn answers(
    lane: &EventLoop,
    agent: &Agent,
    member: MemberIndex,
    life: u64,
    conduit: &Conduit,
) -> LinkBreak {
    poll_fn(|cx| {
        conduit
            .poll(
                cx,
                || agent.has_event_room(),
                |message| match message {
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
                },
            )
            .map(|broken| {
                lane.refresh();
                broken
            })
    })
    .await
}
