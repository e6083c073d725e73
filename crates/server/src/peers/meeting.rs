//! A start as a member: asks the other members, and waits until the node may serve.
//!
//! ```text
//! Ask ─► hello and hail, to each other member ─► StartAnswered … ─► OpenLinks: the threads start
//!                                                                ─► Stop: the start ends
//! OpenDoor: the listener starts       Ready: `/readyz`
//! ```
//!
//! Invariants
//! 1. A question takes at most `LINK_OPEN_TIMEOUT`, and a repeated one waits first.
//! 2. A wait ends at `Membership::due_us` at the latest.
//!
//! Not here: the meaning of the answers, and the waits of a start (crate
//! `ownership`, `membership/start.rs`).
//! See: docs/peer.md, section "Handshake".

use super::frame_link::FrameWay;
use super::http_link::HttpWay;
use crate::limits;
use crate::member::cluster::Cluster;
use crate::member::handshake::shake_hands;
use crate::settings::PeerTransport;
use dendra_ownership::MemberIndex;
use dendra_ownership::membership::{Disowned, MemberEffect, MemberEvent, NoLink};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Asks all other members at once, until the loops may open their links; or why the node ends.
pub(crate) async fn ask_members(cluster: &Arc<Cluster>) -> io::Result<Result<(), Disowned>> {
    let mut asking = JoinSet::new();
    let mut pauses: HashMap<MemberIndex, Duration> = HashMap::new();
    let mut effects = cluster.tell(0, MemberEvent::StartAsked).effects;
    loop {
        for effect in effects.drain(..) {
            match effect {
                MemberEffect::Ask { member } => {
                    let next = pauses
                        .get(&member)
                        .map_or(limits::LINK_PAUSE_MIN, |&pause| {
                            (pause * 2).min(limits::LINK_PAUSE_MAX)
                        });
                    let pause = pauses.insert(member, next);
                    asking.spawn(ask(Arc::clone(cluster), member, pause));
                }
                // Without an admitting member the door may open at once, too: `wait_for` sees it.
                MemberEffect::OpenLinks => return Ok(Ok(())),
                MemberEffect::Stop(why) => return Ok(Err(why)),
                other => unreachable!("a start leads to {other:?}"),
            }
        }
        let answered = asking.join_next().await;
        let (member, answer) = answered
            .expect("a start goes on when no question is open")
            .map_err(io::Error::other)?;
        let event = MemberEvent::StartAnswered { member, answer };
        effects = cluster.tell(0, event).effects;
    }
}

/// Asks one member, after a pause: how many loops it has.
async fn ask(
    cluster: Arc<Cluster>,
    member: MemberIndex,
    pause: Option<Duration>,
) -> (MemberIndex, Result<u16, NoLink>) {
    if let Some(pause) = pause {
        tokio::time::sleep(pause).await;
    }
    let asking = async {
        let recognised = match cluster.links.transport {
            PeerTransport::Frames => {
                let mut way = FrameWay::connect(&cluster, member).await?;
                shake_hands(&cluster, 0, member, &mut way).await?
            }
            PeerTransport::Http => {
                let mut way = HttpWay::connect(&cluster, member).await?;
                shake_hands(&cluster, 0, member, &mut way).await?
            }
        };
        Ok(recognised.loops)
    };
    let asked = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, asking).await;
    let answer = asked.unwrap_or_else(|_| Err("it did not answer in time".into()));
    (member, answer)
}
