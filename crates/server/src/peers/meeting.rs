//! A start asks all others whether they let this folder in, before a door is open.
//!
//! ```text
//! hello ─► each other member ─ lets it in, or cannot be asked ─► the start goes on
//!                            ─ other-node, rolled-back, twin   ─► the start ends, and the folder is marked
//!                            ─ still-there                     ─► again, until `TWIN_PATIENCE` is over
//! ```
//!
//! Invariants
//! 1. Nobody notes this start before all who can be asked have let it in: an image of a disk is known to those whose
//!    writes the member had confirmed, and whoever had taken the image for the member would refuse the true folder.
//! 2. No client is served from a folder that a member who can be asked does not let in.
//! 3. Who does not answer in `LINK_OPEN_TIMEOUT` holds nobody up: members that start together do not wait for each other.
//!
//! Not here: what a refusal means (`disowned.rs`), links (`link.rs`).
//! See: docs/consistency.md, section "When a member's folder is lost".

use super::cluster::Cluster;
use super::disowned::{Disowned, NoLink};
use super::{link, pool};
use crate::limits;
use crate::settings::PeerTransport;
use dendra_node::MemberIndex;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// Asks all others at once: why this node has to end, if it does.
pub(crate) fn meet(cluster: &Arc<Cluster>) -> io::Result<Option<Disowned>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut meetings = JoinSet::new();
        for (member, _) in cluster.other_members() {
            meetings.spawn(meet_one(Arc::clone(cluster), member));
        }
        while let Some(met) = meetings.join_next().await {
            if let Some(why) = met.map_err(io::Error::other)? {
                return Ok(Some(why));
            }
        }
        Ok(None)
    })
}

async fn meet_one(cluster: Arc<Cluster>, member: MemberIndex) -> Option<Disowned> {
    let began = Instant::now();
    let mut pause = limits::LINK_PAUSE_MIN;
    loop {
        let met = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, greet(&cluster, member)).await;
        match met {
            Ok(Err(NoLink::Disowned(sentence))) => {
                return Some(Disowned {
                    sentence,
                    is_for_ever: true,
                });
            }
            Ok(Err(NoLink::Elsewhere(sentence))) if began.elapsed() > limits::TWIN_PATIENCE => {
                return Some(Disowned {
                    sentence,
                    is_for_ever: false,
                });
            }
            Ok(Err(NoLink::Elsewhere(_))) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(limits::LINK_PAUSE_MAX);
            }
            Ok(Ok(()) | Err(NoLink::ForNow(_))) | Err(_) => return None,
        }
    }
}

/// The first half of a handshake, and no more.
async fn greet(cluster: &Cluster, member: MemberIndex) -> Result<(), NoLink> {
    match cluster.transport {
        PeerTransport::Frames => link::greet(cluster, 0, member).await.map(drop),
        PeerTransport::Http => pool::greet(cluster, 0, member).await.map(drop),
    }
}
