//! Notes about other members: from the membership machine into the log. The steward's notes go the
//! same way (`write_durably`).
//!
//! ```text
//! Claimed ─► WriteNote ─► log, durable ─► NoteWritten ─► Admit        learn: a process waits for it
//! LinkDown, Confirmed ─► WriteNote ─► log ─► NoteWritten              nothing waits
//! Stopping ─► WriteNote ─► log                                        at a stop
//! ```
//!
//! Invariants
//! 1. A note's version is made under the lock of the machine (`Cluster::tell`): of two notes about
//!    one member the one that was decided later wins.
//! 2. A note that is not durable in time is not reported: the machine does not count on it.
//!
//! Not here: the content of notes, and when they are written (crate `ownership`, `membership/`);
//! reading notes, and the own record (`disk/notes.rs`).
//! See: docs/format/notes.md.

use crate::disk::notes;
use crate::event_loop::thread::EventLoop;
use crate::limits;
use crate::member::agent::Agent;
use crate::member::cluster::{Cluster, EventOrders};
use crate::waiting::finished::Finished;
use crate::waiting::seat::{Seat, WaitLimit};
use dendra_base::{CellRef, Key, Version};
use dendra_engine::{Engine, Guard};
use dendra_node::Outcome;
use dendra_ownership::MemberIndex;
use dendra_ownership::membership::identity::Peer;
use dendra_ownership::membership::{MemberEffect, MemberEvent, PeerNote};
use std::rc::Rc;

/// Has a process admitted as `member`: the note about it is durable after this.
pub(super) async fn learn(
    lane: &EventLoop,
    agent: &Agent,
    member: MemberIndex,
    claim: Peer,
) -> Result<(), String> {
    let cluster = &agent.cluster;
    let mut told = cluster.tell(agent.lane, MemberEvent::Claimed { member, claim });
    loop {
        match told.effects.pop() {
            Some(MemberEffect::Admit { .. }) => return Ok(()),
            Some(MemberEffect::Reject(rejected)) => return Err(rejected.to_string()),
            Some(MemberEffect::WriteNote(note)) => {
                write_note(lane, cluster, note, told.version).await?;
                told = cluster.tell(agent.lane, MemberEvent::NoteWritten(note));
            }
            other => unreachable!("a claim leads to {other:?}"),
        }
    }
}

/// Puts a note into the log. The caller has a deadline.
async fn write_note(
    lane: &EventLoop,
    cluster: &Cluster,
    note: PeerNote,
    version: Option<Version>,
) -> Result<(), String> {
    let version = version.expect("a note comes with its version");
    let id = cluster.id_of(note.member);
    let key = notes::peer_key(id.ok_or("it was removed")?);
    let value = note.peer.encode();
    let cell = CellRef::value(key.as_stored(), version, &value);
    let written = write_durably(lane, &key, &cell).await;
    written.map_err(|reason| format!("no note about it could be written: {reason}"))
}

/// Puts a cell of the own folder into the log, and returns when it is durable.
pub(super) async fn write_durably(
    lane: &EventLoop,
    key: &Key,
    cell: &CellRef<'_>,
) -> Result<(), String> {
    // The node asks for a ceiling only now and then: this write brings its own.
    lane.parts.store.engine.raise_hlc_ceiling(cell.version.hlc);
    let seat = Rc::new(Seat::default());
    lane.push_write(&seat, key.as_stored(), cell, Guard::Newest)
        .map_err(|_| "the log has no room".to_owned())?;
    let waited = seat.all(WaitLimit::DeadlineOrPoison).await;
    match (waited, seat.take(0)) {
        (
            Ok(()),
            Some(Finished::Outcome {
                outcome: Outcome::Stored { .. },
                ..
            }),
        ) => Ok(()),
        (_, ended) => Err(format!("{ended:?}")),
    }
}

/// Writes the notes for which no step waits. The machine asks for one that fails again later.
pub(super) async fn write_notes(lane: &EventLoop, agent: &Agent, told: EventOrders) {
    let cluster = &agent.cluster;
    for effect in told.effects {
        let MemberEffect::WriteNote(note) = effect else {
            unreachable!("a link leads to {effect:?}");
        };
        let writing = write_note(lane, cluster, note, told.version);
        match tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, writing).await {
            Ok(Ok(())) => {
                let written = cluster.tell(agent.lane, MemberEvent::NoteWritten(note));
                debug_assert!(written.effects.is_empty(), "nothing waits for it");
            }
            Ok(Err(reason)) => tracing::debug!(reason, "the clock of a peer is not noted"),
            Err(_) => tracing::debug!("the clock of a peer is not noted: the log is too slow"),
        }
    }
}

/// At each sweep of a loop: notes how far the peers' confirmations rose, while their links are up.
pub(crate) fn note_rising(lane: &Rc<EventLoop>, agent: &Rc<Agent>) {
    for member in agent.others() {
        let clock = agent.take_confirmed(member);
        let told = agent
            .cluster
            .tell(agent.lane, MemberEvent::Confirmed { member, clock });
        if told.effects.is_empty() {
            continue;
        }
        let (lane, agent) = (Rc::clone(lane), Rc::clone(agent));
        tokio::task::spawn_local(async move { write_notes(&lane, &agent, told).await });
    }
}

/// At a stop: notes the claims that are not noted yet. Requires: no loop and no commit runs any
/// more.
pub(crate) fn note_at_stop(engine: &Engine, cluster: &Cluster, wall_ms: u64) {
    for effect in cluster.tell(0, MemberEvent::Stopping).effects {
        let MemberEffect::WriteNote(PeerNote { member, peer, .. }) = effect else {
            unreachable!("a stop leads to {effect:?}");
        };
        let Some(id) = cluster.id_of(member) else {
            continue;
        };
        let version = cluster.note_version(0);
        engine.raise_hlc_ceiling(version.hlc);
        let written = notes::put(
            engine,
            &notes::peer_key(id),
            version,
            &peer.encode(),
            wall_ms,
        );
        if let Err(reason) = written {
            let url = cluster.url(member);
            tracing::warn!(peer = url, reason, "the clock of a peer could not be noted");
        }
    }
}
