//! The own link to one peer: kept up by a task of the loop for as long as the loop lives.
//!
//! ```text
//! resolve, connect ─► request, hello ─► 101, hello ─► Proof, Hail ─► Welcome ─► Probe ─► Alive ─► up ─► answers …
//!      ▲                     │ refused: the sentence goes to the log (`member/link_log.rs`)       │
//!      │                     │ Stop: the node stops                                         │ LinkDown: notes
//!      └──── pause, 20 ms doubling to 250 ms, with jitter; none when the peer opens a link ◄─ lost ┘
//! ```
//!
//! Invariants
//! 1. The node gets `Link` up after the handshake and down when the link is lost; between the two
//!    there is no question on its way.
//! 2. A peer from which no byte came for `LINK_SILENT_SWEEPS_MAX` sweeps, although it was probed,
//!    is lost. Sweeps and not time, so that a node that was stopped itself does not blame the
//!    others.
//! 3. While there is no link, questions are refused, not queued.
//!
//! Not here: links that others opened (`accept.rs`), how a link carries questions (`frame_link.rs`,
//! `http_link.rs`), the meaning of a failed handshake (crate `ownership`, `membership/`).
//! See: docs/peer.md.

use super::notes::write_notes;
use super::{frame_link, http_link};
use crate::event_loop::thread::EventLoop;
use crate::limits;
use crate::member::agent::Agent;
use crate::member::cluster::EventOrders;
use crate::member::link_log::ReasonCount;
use crate::member::links::count;
use crate::member::own_link::Link;
use crate::settings::PeerTransport;
use crate::tls::ByteStream;
use dendra_base::{ClusterVersions, Prng};
use dendra_node::step::Event;
use dendra_ownership::MemberIndex;
use dendra_ownership::epoch::chain::ChainPeer;
use dendra_ownership::membership::identity::Peer;
use dendra_ownership::membership::{MemberEffect, MemberEvent, NoLink};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::step::StewardEvent;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Keeps the link of `lane` to `member` up.
pub(crate) async fn keep(lane: Rc<EventLoop>, agent: Rc<Agent>, member: MemberIndex) {
    let Some(id) = agent.id_of(member) else {
        return;
    };
    let mut pause = limits::LINK_PAUSE_MIN;
    let mut prng = Prng::named(lane.now_us() ^ u64::from(member.0), "link");
    let mut first_try = Some(FirstTry {
        agent: &agent,
        member,
    });
    let mut news = agent.cluster.links.news(member);
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
        let loops = lane.parts.lanes.len();
        let counted = opened.and_then(|link| {
            let up = CountedLink::new(&agent, member, id, &link, loops)?;
            Ok((up, link))
        });
        let reason = match counted {
            Ok((up, link)) => {
                pause = limits::LINK_PAUSE_MIN;
                drop(first_try.take());
                let broken = run(&lane, &agent, member, link).await;
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
        tracing::debug!(peer = url, reason, "this loop has no link to a peer");
        let told = agent
            .cluster
            .links
            .link_log(member)
            .fail(&reason, lane.now_us());
        if let Some(ReasonCount { times, seconds }) = told {
            tracing::warn!(peer = url, reason, times, seconds, "no link to a peer");
        }
        drop(first_try.take());
        let us = pause.as_micros() as u64;
        let waiting = tokio::time::sleep(Duration::from_micros(us / 2 + prng.below(us)));
        let is_news = tokio::select! {
            () = waiting => false,
            // The senders live as long as the cluster.
            changed = news.changed() => changed.is_ok(),
        };
        if is_news {
            agent.post(Event::Alive { member });
        }
        pause = if is_news {
            limits::LINK_PAUSE_MIN
        } else {
            (pause * 2).min(limits::LINK_PAUSE_MAX)
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
    let Some(MemberEffect::Stop(disowned)) = effects.pop() else {
        return false;
    };
    tracing::error!(sentence = disowned.sentence, "the node stops");
    lane.parts.disown(disowned);
    true
}

/// A link after its handshake.
struct OpenLink {
    link: Link,
    /// The member's claim.
    claim: Peer,
    /// The versions that its release knows.
    versions: ClusterVersions,
    /// The connection with which a link over plain HTTP begins.
    first: Option<ByteStream>,
}

async fn open(lane: &EventLoop, agent: &Agent, member: MemberIndex) -> Result<OpenLink, NoLink> {
    match agent.cluster.links.transport {
        PeerTransport::Frames => {
            let (conduit, claim, versions) = frame_link::open(lane, agent, member).await?;
            Ok(OpenLink {
                link: Link::Frames(Rc::new(conduit)),
                claim,
                versions,
                first: None,
            })
        }
        PeerTransport::Http => {
            let (pool, first, known) = http_link::open(lane, agent, member).await?;
            let (claim, versions) = known;
            Ok(OpenLink {
                link: Link::Http(Rc::new(pool)),
                claim,
                versions,
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
    opened: OpenLink,
) -> String {
    match opened.link {
        Link::Frames(conduit) => {
            let life = opened.claim.life;
            let broken = frame_link::answers(lane, agent, member, life, &conduit).await;
            broken.to_string()
        }
        Link::Http(pool) => http_link::run(lane, agent, member, &pool, opened.first).await,
    }
}

/// Counts a link at the machine, the agent and the gauges while it lives, however its task ends.
struct CountedLink<'a> {
    agent: &'a Agent,
    member: MemberIndex,
    id: MemberId,
    node: u128,
    versions: ClusterVersions,
    is_over: bool,
}

impl<'a> CountedLink<'a> {
    fn new(
        agent: &'a Agent,
        member: MemberIndex,
        id: MemberId,
        opened: &OpenLink,
        loops: usize,
    ) -> Result<CountedLink<'a>, NoLink> {
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
        let gauges = &agent.cluster.links.peers[member.at()];
        gauges.links.fetch_add(1, Ordering::Relaxed);
        let told = agent.cluster.links.link_log(member).up(loops);
        if let Some(untold) = told {
            let url = agent.cluster.url(member);
            tracing::info!(peer = url, loops, untold, "all links to a peer are up");
        }
        agent.put_link(member, opened.link.clone());
        let up = CountedLink {
            agent,
            member,
            id,
            node: opened.claim.node,
            versions: opened.versions,
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
            let versions = self.versions;
            let event = StewardEvent::Reached {
                peer,
                is_up,
                versions,
            };
            self.agent.cluster.steward.door.tell_surely(event);
        }
    }

    /// The link is lost: the notes to write.
    fn end(mut self) -> EventOrders {
        self.go_down()
    }

    fn go_down(&mut self) -> EventOrders {
        self.is_over = true;
        let (agent, member) = (self.agent, self.member);
        let gauges = &agent.cluster.links.peers[member.at()];
        gauges.links.fetch_sub(1, Ordering::Relaxed);
        agent.cluster.links.link_log(member).down();
        count(&gauges.lost);
        self.tell_steward(false);
        if agent.id_of(member).is_some_and(|id| id != self.id) {
            // Its place is another member's now.
            return EventOrders::nothing();
        }
        let confirmed = agent.take_confirmed(member);
        let event = MemberEvent::LinkDown { member, confirmed };
        let told = agent.cluster.tell(agent.lane, event);
        agent.drop_link(member);
        told
    }
}

impl Drop for CountedLink<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // The loop ends, and writes no more notes: `Stopping` asks for them again.
            drop(self.go_down());
        }
    }
}
