//! The backend of clients' operations: the store of a node alone, the cluster of a member, or an
//! engine of others behind a front door.
//!
//! ```text
//! connection ─► begin ─┬─► Shown     a read, answered on the spot
//!                      ├─► Waits     its end comes to the seat ─► wait ─► Finished
//!                      ├─► Blocks    it needs the disk ─► resume, when nothing is in front of it
//!                      └─► Refused
//!            ─► walk ─► next, next … chunks of a scan
//!            ─► watch_open ─► watch_more, watch_more … events, at the watch's seat ─► watch_close
//! ```
//!
//! Invariants
//! 1. A connection knows no backend by its name: another one is a variant here and a file of its
//!    own.
//! 2. The way to a backend is a `match`, and a read that need not wait allocates no memory on it.
//! 3. Each operation that waits ends once, in the seat, at the latest when `wait` gives up.
//!
//! Not here: the backends (`alone.rs`, `front.rs` with `front_scan.rs`, `peers/operation.rs` with
//! `peers/scan.rs`), the bytes of answers (`answers.rs`). See: docs/overload.md.

mod alone;
mod front;
mod front_scan;

use crate::event_loop::handover::{
    Begun, ChunkTerms, KeyRequest, NoChunk, PendingOperation, ScanChunk,
};
use crate::event_loop::thread::EventLoop;
use crate::event_loop::watches::WatchTerms;
use crate::exchange::explain::{self, ExplainRequest, NoDocument, ReadDocument};
use crate::exchange::socket::{ConnectionEnd, Socket};
use crate::measure::metrics::RefusalCause;
use crate::measure::stages::Watch;
use crate::peers::{ClusterBackend, ClusterWalk};
use crate::waiting::room::Rooms;
use crate::waiting::seat::{Seat, WakeReason};
use crate::waiting::status::AnswerTerms;
use alone::{Alone, StoreWalk};
use dendra_base::CellRef;
use dendra_engine::Identity;
use dendra_node::{Admission, Class, Outcome};
use dendra_watch::WatchId;
use dendra_wire::http::response::Style;
use dendra_wire::route::{Entity, Scan as Query, Scope};
use dendra_wire::{EntityOp, Refusal};
use front::FrontBackend;
use front_scan::FrontWalk;
use std::rc::Rc;

/// Carries out the operations of clients on one loop.
#[derive(Clone)]
pub(crate) enum Backend {
    /// The own store.
    Alone(Alone),
    /// The owners of each key, through the loop's node.
    Member(ClusterBackend),
    /// An engine of others.
    Front(FrontBackend),
}

/// A scan between two chunks.
pub(crate) enum BackendScan {
    /// A walk of the own store.
    Store(StoreWalk),
    /// A walk of all members.
    Cluster(ClusterWalk),
    /// A walk of an engine of others.
    Front(FrontWalk),
}

impl Backend {
    /// The backend of this loop.
    pub(crate) fn of(lane: &EventLoop) -> Backend {
        match (lane.agent(), &lane.parts.front) {
            (_, Some(desk)) => Backend::Front(FrontBackend::new(desk)),
            (None, None) => Backend::Alone(Alone),
            (Some(agent), None) => Backend::Member(ClusterBackend::new(agent)),
        }
    }

    /// The backend of a scan: a member's own store, too, can be scanned alone.
    pub(crate) fn of_scan(&self, scope: Scope) -> Backend {
        match (self, scope) {
            (Backend::Member(_), Scope::Cluster) | (Backend::Front(_), _) => self.clone(),
            (Backend::Alone(_) | Backend::Member(_), _) => Backend::Alone(Alone),
        }
    }

    // The operations that it can carry out.

    /// The effect of the engine's pressure on a write of `class`.
    pub(crate) fn admit(&self, lane: &EventLoop, class: Class) -> Admission {
        let admission = lane.admit(class);
        match self {
            Backend::Alone(_) | Backend::Front(_) => admission,
            Backend::Member(member) => member.admit(class, admission),
        }
    }

    /// The terms of the answer to an operation on a key.
    pub(crate) fn terms(&self, lane: &EventLoop, style: Style, entity: &Entity) -> AnswerTerms {
        let durability = lane.parts.settings.durability;
        match self {
            Backend::Alone(_) | Backend::Member(_) => {
                AnswerTerms::new(style, entity.quorum, durability, &lane.routes())
            }
            Backend::Front(front) => front.terms(lane, style, entity),
        }
    }

    /// Can it keep the promises that this operation asks for?
    pub(crate) fn check(&self, entity: &Entity, terms: &AnswerTerms) -> Result<(), Refusal> {
        match self {
            Backend::Alone(_) => Ok(()),
            Backend::Member(member) => member.check(entity, terms),
            Backend::Front(front) => front.check(entity, terms),
        }
    }

    /// The share of the bytes gate in which values need room besides.
    pub(crate) fn value_share<'a>(&self, lane: &'a EventLoop) -> Option<&'a Rc<Rooms>> {
        match self {
            Backend::Alone(_) => None,
            Backend::Member(_) | Backend::Front(_) => Some(&lane.rooms.value_bytes),
        }
    }

    /// May this operation be begun while those wait?
    pub(crate) fn joins(&self, op: EntityOp, raw_key: &[u8], waiting: &[PendingOperation]) -> bool {
        match self {
            Backend::Alone(alone) => alone.joins(op),
            Backend::Member(member) => member.joins(raw_key, waiting),
            Backend::Front(front) => front.joins(raw_key, waiting),
        }
    }

    /// May an item of a batch be begun while others of it wait? `is_known`: one of them has its
    /// key.
    pub(crate) fn joins_item(&self, op: EntityOp, is_known: bool) -> bool {
        match self {
            Backend::Alone(alone) => !is_known || alone.joins(op),
            Backend::Member(_) | Backend::Front(_) => !is_known,
        }
    }

    /// The terms of the answer to a scan.
    pub(crate) fn scan_terms(&self, lane: &EventLoop, style: Style) -> AnswerTerms {
        match self {
            Backend::Alone(alone) => alone.scan_terms(lane, style),
            Backend::Member(member) => member.scan_terms(lane, style),
            Backend::Front(front) => front.scan_terms(lane, style),
        }
    }

    // Operations on a key.

    /// Begins an operation. A read that need not wait calls `show` with the newest cell.
    #[inline]
    pub(crate) fn begin<R>(
        &self,
        lane: &EventLoop,
        request: KeyRequest<'_>,
        watch: &mut Watch,
        show: impl FnMut(Option<CellRef<'_>>) -> R,
    ) -> Result<Begun<R>, RefusalCause> {
        match self {
            Backend::Alone(alone) => alone.begin(lane, request, watch, show),
            Backend::Member(member) => member.begin(lane, request).map(Begun::Waits),
            Backend::Front(front) => front.begin(lane, request).map(Begun::Waits),
        }
    }

    /// Begins the read that would have waited for the disk. Requires: no other operation waits in
    /// the seat.
    pub(crate) fn resume(
        &self,
        lane: &EventLoop,
        seat: &Rc<Seat>,
        read: &mut PendingOperation,
    ) -> Result<(), RefusalCause> {
        match self {
            Backend::Alone(alone) => alone.resume(lane, seat, read),
            Backend::Member(_) | Backend::Front(_) => unreachable!("their reads never block"),
        }
    }

    /// Waits until everything in `pending` has ended, or will not in time.
    pub(crate) async fn wait(
        &self,
        socket: &mut Socket,
        pending: &[PendingOperation],
    ) -> Result<Result<(), WakeReason>, ConnectionEnd> {
        match self {
            Backend::Alone(alone) => alone.wait(socket, pending).await,
            Backend::Member(member) => member.wait(socket, pending).await,
            Backend::Front(front) => front.wait(socket, pending).await,
        }
    }

    /// Notes how long an operation has waited.
    pub(crate) fn note_wait(&self, lane: &EventLoop, pending: &mut PendingOperation) {
        match self {
            Backend::Alone(alone) => alone.note_wait(lane, pending),
            Backend::Member(member) => member.note_wait(lane, pending),
            Backend::Front(front) => front.note_wait(lane, pending),
        }
    }

    /// The sentence about an outcome, where the backend knows more than the outcome tells.
    pub(crate) fn explain(&self, failure: &Outcome) -> Option<Refusal> {
        match self {
            Backend::Alone(_) | Backend::Front(_) => None,
            Backend::Member(member) => member.explain(failure),
        }
    }

    // Reads that are explained.

    /// Can it tell how a read is found?
    pub(crate) fn check_explain(&self) -> Result<(), Refusal> {
        match self {
            Backend::Alone(_) | Backend::Member(_) => Ok(()),
            Backend::Front(front) => Err(front.no_explanation()),
        }
    }

    /// Reads, and tells how.
    pub(crate) async fn explain_read(
        &self,
        socket: &mut Socket,
        request: &ExplainRequest,
    ) -> Result<Result<ReadDocument, NoDocument>, ConnectionEnd> {
        match self {
            Backend::Alone(_) => {
                let looked = explain::look(socket, request).await?;
                let wall_ms = socket.lane().wall_ms();
                Ok(looked.map(|look| explain::document_of(&look, &request.key, wall_ms)))
            }
            Backend::Member(member) => member.explain_read(socket, request).await,
            Backend::Front(_) => unreachable!("`check_explain` refuses it"),
        }
    }

    // Watches.

    /// What the tokens of watches are sealed with: those of another store are refused.
    pub(crate) fn watch_seal(&self, lane: &EventLoop) -> u64 {
        match self {
            Backend::Member(member) => member.watch_seal(),
            Backend::Alone(_) | Backend::Front(_) => {
                let Identity { node, .. } = lane.parts.store.engine.identity();
                node as u64
            }
        }
    }

    /// Opens a watch that has entered the loop's. Its events come to its seat, when it wants them.
    pub(crate) fn watch_open(
        &self,
        lane: &Rc<EventLoop>,
        id: WatchId,
        terms: WatchTerms,
    ) -> Result<(), Refusal> {
        match self {
            Backend::Alone(_) => {
                lane.open_watch(id, terms.span, &terms.from, terms.heartbeat_us);
                Ok(())
            }
            Backend::Member(member) => {
                member.watch_open(id, terms);
                Ok(())
            }
            Backend::Front(front) => Err(front.no_watch()),
        }
    }

    /// The client of a watch takes more events.
    pub(crate) fn watch_more(&self, lane: &Rc<EventLoop>, id: WatchId) {
        match self {
            Backend::Alone(_) => lane.want_events(id),
            Backend::Member(member) => member.watch_more(id),
            Backend::Front(_) => {}
        }
    }

    /// The client of a watch is gone.
    pub(crate) fn watch_close(&self, lane: &Rc<EventLoop>, id: WatchId) {
        match self {
            Backend::Alone(_) => lane.close_watch(id),
            Backend::Member(member) => member.watch_close(id),
            Backend::Front(_) => {}
        }
    }

    // Scans.

    /// Begins a scan of live records.
    pub(crate) fn walk(&self, lane: &EventLoop, query: &Query) -> BackendScan {
        match self {
            Backend::Alone(_) => BackendScan::Store(StoreWalk::new(query, lane.wall_ms())),
            Backend::Member(member) => BackendScan::Cluster(member.walk(query)),
            Backend::Front(front) => BackendScan::Front(front.walk(query)),
        }
    }
}

impl BackendScan {
    /// The next chunk, after the earlier content of `out`.
    pub(crate) async fn next(
        &mut self,
        socket: &mut Socket,
        out: Vec<u8>,
        turn: ChunkTerms,
    ) -> Result<ScanChunk, NoChunk> {
        match self {
            BackendScan::Store(walk) => walk.next(socket, out, turn).await,
            BackendScan::Cluster(walk) => walk.next(socket, out, turn).await,
            BackendScan::Front(walk) => walk.next(socket, out, turn).await,
        }
    }

    /// Where it goes on, in the client's words; `None` when that was lost with a worker.
    pub(crate) fn next_key(&self) -> Option<Vec<u8>> {
        match self {
            BackendScan::Store(walk) => walk.next_key(),
            BackendScan::Cluster(walk) => Some(walk.next_key()),
            BackendScan::Front(walk) => Some(walk.next_key()),
        }
    }
}
