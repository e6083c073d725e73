//! State that all threads of one node share, and the phase of its life.
//!
//! ```text
//! phase   Starting ─► Serving ─► Draining ─► Stopped
//!             └────────┴────────────┴──────► Poisoned
//! ```
//!
//! Invariants
//! 1. A phase only moves to the right; `Poisoned` is final.
//! 2. Everything here is set before the first client is accepted and never replaced.
//!
//! Not here: state of one event loop (`thread/mod.rs`), of one connection (`connection/`).

use crate::audit::Audit;
use crate::border_watch::BorderWatch;
use crate::disk::bell::Bell;
use crate::disk::checkpoints::Checkpoints;
use crate::disk::import::Import;
use crate::disk::poke::Poke;
use crate::disk::store_pool::StorePool;
use crate::disk::versions::VersionClock;
use crate::event_loop::mailbox::Mailbox;
use crate::event_loop::overload::Overload;
use crate::front::desk::FrontDesk;
use crate::measure::metrics::LoopMetrics;
use crate::peers::Cluster;
use crate::rights::Rights;
use crate::settings::Settings;
use crate::tls::Tls;
use crate::waiting::address_gate::AddressGate;
use crate::waiting::connection_gate::ConnectionGate;
use crate::waiting::room::RoomBudget;
use crate::waiting::unproven::UnprovenGauges;
use dendra_engine::Engine;
use dendra_engine::vfs::Vfs;
use dendra_node::Gate;
use dendra_ownership::membership::Disowned;
use dendra_wire::Hosts;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use tokio::sync::{Notify, watch};

/// Where in its life a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// The folder is being opened.
    Starting,
    /// Requests are answered.
    Serving,
    /// Requests in flight are finished, new ones are refused.
    Draining,
    /// Nothing runs any more.
    Stopped,
    /// The log failed: reads go on for the moment, the process is about to stop.
    Poisoned,
}

impl Phase {
    const ALL: [Phase; 5] = [
        Phase::Starting,
        Phase::Serving,
        Phase::Draining,
        Phase::Stopped,
        Phase::Poisoned,
    ];

    /// Word for the state, as shown by `/readyz` and `/v0/status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Serving => "serving",
            Phase::Draining => "draining",
            Phase::Stopped => "stopped",
            Phase::Poisoned => "poisoned",
        }
    }
}

/// The phase as all threads see it.
#[derive(Debug)]
pub(crate) struct PhaseCell {
    phase: AtomicU8,
    /// Told when the node has to end by itself: it is poisoned, or another member disowns its
    /// folder.
    pub(crate) ended: Notify,
    /// Did a signal ask to stop?
    asked: watch::Sender<bool>,
    /// How often a signal has asked to read files again.
    renewals: watch::Sender<u64>,
}

impl PhaseCell {
    /// A node that starts.
    pub(crate) fn new() -> PhaseCell {
        PhaseCell {
            phase: AtomicU8::new(Phase::Starting as u8),
            ended: Notify::new(),
            asked: watch::Sender::new(false),
            renewals: watch::Sender::new(0),
        }
    }

    /// A signal asks to stop: a start that waits for something gives up.
    pub(crate) fn ask(&self) {
        self.asked.send_replace(true);
    }

    /// A signal asks to read files again.
    pub(crate) fn ask_for_files(&self) {
        self.renewals.send_modify(|renewals| *renewals += 1);
    }

    /// Changes when a signal asks to read files again.
    pub(crate) fn files_asked(&self) -> watch::Receiver<u64> {
        self.renewals.subscribe()
    }

    /// Waits until a signal asks to stop.
    pub(crate) async fn asked(&self) {
        let mut asked = self.asked.subscribe();
        let asked = asked.wait_for(|is_asked| *is_asked).await;
        asked.expect("the sender is in this cell");
    }

    /// The phase now.
    pub(crate) fn now(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Acquire))]
    }

    /// Moves on to `next`; false when the node is already there or past it.
    pub(crate) fn turn(&self, next: Phase) -> bool {
        self.phase.fetch_max(next as u8, Ordering::AcqRel) < next as u8
    }
}

/// One event loop as the other threads see it.
#[derive(Debug)]
pub(crate) struct LoopHandle {
    pub(crate) mailbox: Mailbox,
    /// Connections that live on this loop, those still in the mailbox included.
    pub(crate) connections: AtomicUsize,
    /// A batch of this loop waits for room in the log's queue.
    pub(crate) waits_for_queue: AtomicBool,
    /// Writes of this loop wait until flushes and compactions are no longer behind.
    pub(crate) waits_for_engine: AtomicBool,
    pub(crate) metrics: LoopMetrics,
}

impl LoopHandle {
    /// A loop without connections.
    pub(crate) fn new(mailbox_capacity: usize) -> LoopHandle {
        LoopHandle {
            mailbox: Mailbox::new(mailbox_capacity),
            connections: AtomicUsize::new(0),
            waits_for_queue: AtomicBool::new(false),
            waits_for_engine: AtomicBool::new(false),
            metrics: LoopMetrics::default(),
        }
    }
}

/// State that all threads of one node share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// The host names that the node answers for.
    pub(crate) hosts: Hosts,
    /// The certificates and keys for connections; `None` = clear text.
    pub(crate) tls: Option<Arc<Tls>>,
    /// The tokens and their grants; `None` = every request is allowed.
    pub(crate) rights: Option<Arc<Rights>>,
    /// The audit log; `None` = there is none.
    pub(crate) audit: Option<Arc<Audit>>,
    /// Wakes threads that wait for a change in the three.
    pub(crate) watch: Arc<BorderWatch>,
    /// The connections of each address.
    pub(crate) addresses: Arc<AddressGate>,
    /// The places of all connections.
    pub(crate) gate: ConnectionGate,
    /// TLS handshakes under way.
    pub(crate) handshakes: Arc<UnprovenGauges>,
    /// The engine's folder, for the files that the server itself leaves in it.
    pub(crate) folder: Arc<dyn Vfs>,
    pub(crate) engine: Engine,
    pub(crate) versions: VersionClock,
    pub(crate) lanes: Vec<LoopHandle>,
    /// Requests that wait for the log or the store pool.
    pub(crate) requests: Arc<Gate>,
    /// Orders of nodes that wait for the log or the store pool.
    pub(crate) orders: Arc<Gate>,
    /// State that the loops' nodes share, in a cluster of more than one.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// The queue of the engine behind a front door.
    pub(crate) front: Option<Arc<FrontDesk>>,
    /// Bytes of bodies that arrive and of answers that leave.
    pub(crate) bytes: Arc<RoomBudget>,
    /// The share of them that scans may have.
    pub(crate) scan_bytes: Arc<RoomBudget>,
    /// Room for the large values that a member has begun to write.
    pub(crate) value_bytes: Arc<RoomBudget>,
    pub(crate) pool: StorePool,
    pub(crate) bell: Bell,
    /// The checkpoints that backups read.
    pub(crate) checkpoints: Checkpoints,
    /// The state of restores.
    pub(crate) import: Import,
    pub(crate) poke: Poke,
    pub(crate) phase: Arc<PhaseCell>,
    /// Told by a loop when a connection closed while the listener waits for room.
    pub(crate) room: Notify,
    /// Loops with more requests than they serve in time.
    pub(crate) overload: Overload,
    /// The listener waits for a connection to close.
    pub(crate) listener_waits: AtomicBool,
}

impl Shared {
    /// Why this node serves no client although it runs. Its data folder is lost, other members shut
    /// it out, it lacks the newest epoch, its clock is wrong, or the engine behind it does not
    /// answer.
    pub(crate) fn of_no_use(&self) -> Option<String> {
        if let Some(why) = self.engine.lost() {
            return Some(why.to_owned());
        }
        if self.import.is_under_way() {
            let why = "restoring: a restore is under way, and clients wait for its end";
            return Some(why.to_owned());
        }
        if let Some(desk) = &self.front {
            let why = desk.gauges.silence()?;
            return Some(format!("{} does not answer: {why}", desk.shape.engine));
        }
        let cluster = self.cluster.as_ref()?;
        let why = cluster.shut_out().or_else(|| cluster.behind());
        why.or_else(|| cluster.wrong_clock())
    }

    /// The phase for people and probes: a node that serves may still refuse all clients.
    pub(crate) fn phase_in_a_word(&self) -> &'static str {
        match self.phase.now() {
            Phase::Serving if self.import.is_under_way() => "restoring",
            phase => phase.as_str(),
        }
    }

    /// Another member does not let this node in.
    pub(crate) fn disown(&self, why: Disowned) {
        let disowned = self.cluster.as_ref().map(|cluster| &cluster.disowned);
        if let Some(Ok(())) = disowned.map(|disowned| disowned.set(why)) {
            // Kept for a watcher that is not there yet.
            self.phase.ended.notify_one();
        }
    }

    /// Connections of all loops.
    pub(crate) fn connections(&self) -> usize {
        self.lanes
            .iter()
            .map(|lane| lane.connections.load(Ordering::SeqCst))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_only_moves_on_and_poison_is_final() {
        let cell = PhaseCell::new();
        assert!(cell.turn(Phase::Serving));
        assert!(!cell.turn(Phase::Serving));
        assert!(cell.turn(Phase::Poisoned));
        assert!(!cell.turn(Phase::Stopped));
        assert_eq!(cell.now(), Phase::Poisoned);
    }
}
