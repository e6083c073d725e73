//! A start asks all others whether they let this folder in, before a door is open.
//!
//! ```text
//! hello ─► each other member ─ lets it in                     ─► every loop opens its link to it ─► the door opens
//!                                                                ─► every loop of it opens its link ─► ready
//!                            ─ cannot be asked                ─► it is not waited for
//!                            ─ other-node, rolled-back, twin  ─► the start ends, and the folder is marked
//!                            ─ still-there                    ─► again, until `TWIN_PATIENCE` is over
//! ```
//!
//! Invariants
//! 1. Nobody notes this start before all who can be asked have let it in: an image of a disk is known to those whose
//!    writes the member had confirmed, and whoever had taken the image for the member would refuse the true folder.
//! 2. No client is served from a folder that a member who can be asked does not let in.
//! 3. A node is ready when it reaches those who let it in from every loop, and is reached by them, so that members can be
//!    restarted one after the other; or when it has waited for that as long as a handshake may take, and has warned.
//! 4. Who does not answer in `LINK_OPEN_TIMEOUT` holds nobody up: members that start together do not wait for each other.
//!
//! Not here: what a refusal means (`disowned.rs`), links (`link.rs`), the waiting (`tries.rs`).
//! See: docs/operating.md, section "When a member's folder is lost".

use super::cluster::Cluster;
use super::disowned::{Disowned, NoLink};
use super::tries::Host;
use super::{link, pool};
use crate::limits;
use crate::settings::PeerTransport;
use dendra_node::MemberIndex;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// What a start heard from the others.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// Who lets it in.
    pub(crate) let_in_by: Vec<Host>,
    /// Why this node has to end, if it does.
    pub(crate) disowned: Option<Disowned>,
}

impl Cluster {
    /// Waits until every loop has tried to open its link to each of `hosts`, which were there a moment ago.
    pub(crate) async fn wait_for_links(&self, hosts: &[Host]) {
        // A try takes no longer than this, and then there are threads to be woken.
        let at_most = 2 * limits::LINK_OPEN_TIMEOUT;
        if !self.tries.wait_for_tries(hosts, at_most).await {
            tracing::warn!("the door opens before all links were tried");
        }
    }

    /// Waits until every loop of `hosts` has opened its link to this member: they heard of it when it opened its own.
    pub(crate) async fn wait_for_their_links(&self, hosts: &[Host]) {
        let at_most = limits::LINK_OPEN_TIMEOUT;
        if !self.tries.wait_for_others(hosts, at_most).await {
            tracing::warn!("some members let this one in, and have not opened all links to it yet");
        }
    }
}

/// Asks all others at once.
pub(crate) async fn meet(cluster: &Arc<Cluster>) -> io::Result<Met> {
    let mut meetings = JoinSet::new();
    for (member, _) in cluster.other_members() {
        meetings.spawn(meet_one(Arc::clone(cluster), member));
    }
    let mut met = Met::default();
    while let Some(one) = meetings.join_next().await {
        match one.map_err(io::Error::other)? {
            One::LetIn(host) => met.let_in_by.push(host),
            One::Unasked => {}
            One::Disowned(why) => {
                met.disowned = Some(why);
                break;
            }
        }
    }
    Ok(met)
}

/// What one of them says.
enum One {
    LetIn(Host),
    /// It cannot be asked, or has no opinion.
    Unasked,
    Disowned(Disowned),
}

async fn meet_one(cluster: Arc<Cluster>, member: MemberIndex) -> One {
    let began = Instant::now();
    let mut pause = limits::LINK_PAUSE_MIN;
    loop {
        let met = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, greet(&cluster, member)).await;
        match met {
            Ok(Err(NoLink::Disowned(sentence))) => {
                return One::Disowned(Disowned {
                    sentence,
                    is_for_ever: true,
                });
            }
            Ok(Err(NoLink::Elsewhere(sentence))) if began.elapsed() > limits::TWIN_PATIENCE => {
                return One::Disowned(Disowned {
                    sentence,
                    is_for_ever: false,
                });
            }
            Ok(Err(NoLink::Elsewhere(_))) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(limits::LINK_PAUSE_MAX);
            }
            Ok(Ok(loops)) => return One::LetIn(Host { member, loops }),
            Ok(Err(NoLink::NotLetIn(reason))) => {
                cluster.set_shut_out(member, Some(&reason));
                return One::Unasked;
            }
            Ok(Err(NoLink::ForNow(_))) | Err(_) => return One::Unasked,
        }
    }
}

/// The first half of a handshake, and no more: how many loops the member has.
async fn greet(cluster: &Cluster, member: MemberIndex) -> Result<u16, NoLink> {
    let recognised = match cluster.transport {
        PeerTransport::Frames => link::greet(cluster, 0, member).await?.recognised,
        PeerTransport::Http => pool::greet(cluster, 0, member).await?.recognised,
    };
    Ok(recognised.loops)
}
