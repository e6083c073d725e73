//! The parts of a node that its loops use, each with its owner.
//!
//! ```text
//! settings, hosts           the operator's decisions       phase     where in its life it is
//! border    TLS, tokens, audit log                         entrance  places of connections
//! budgets   requests and bytes that wait                   store     engine, log, pool
//! lanes     the loops as others see them                   cluster, front   where records are instead
//! ```
//!
//! Invariants
//! 1. Everything here is set before the first client is accepted and never replaced.
//! 2. A thread that is no loop gets the parts that it uses, not all of them.
//!
//! Not here: state of one event loop (`thread/mod.rs`), of one connection (`clients/connection/`).

use crate::border::Border;
use crate::disk::store::OwnStore;
use crate::front::desk::FrontDesk;
use crate::health::HealthKind;
use crate::lanes::lane::Loops;
use crate::member::Cluster;
use crate::phase::{Phase, PhaseCell};
use crate::settings::Settings;
use crate::waiting::budgets::Budgets;
use crate::waiting::entrance::Entrance;
use dendra_ownership::membership::Disowned;
use dendra_wire::Hosts;
use std::sync::Arc;

/// See the module.
#[derive(Clone)]
pub(crate) struct NodeParts {
    pub(crate) settings: Arc<Settings>,
    /// The host names that the node answers for.
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) border: Border,
    pub(crate) entrance: Arc<Entrance>,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) store: Arc<OwnStore>,
    pub(crate) lanes: Arc<Loops>,
    /// State that the loops' nodes share, in a cluster of more than one.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// The queue of the engine behind a front door.
    pub(crate) front: Option<Arc<FrontDesk>>,
    pub(crate) phase: Arc<PhaseCell>,
}

impl NodeParts {
    /// Why this node serves no client although it runs. Its data folder is lost, other members shut
    /// it out, it lacks the newest epoch, its clock is wrong, or the engine behind it does not
    /// answer.
    pub(crate) fn of_no_use(&self) -> Option<(HealthKind, String)> {
        if let Some(why) = self.store.engine.lost() {
            return Some((HealthKind::FolderLost, why.to_owned()));
        }
        if self.store.import.is_under_way() {
            let why = "restoring: a restore is under way, and clients wait for its end";
            return Some((HealthKind::Restoring, why.to_owned()));
        }
        if let Some(desk) = &self.front {
            let why = desk.gauges.silence()?;
            let sentence = format!("{} does not answer: {why}", desk.shape.engine);
            return Some((HealthKind::EngineSilent, sentence));
        }
        let cluster = self.cluster.as_ref()?;
        let shut_out = cluster.shut_out().map(|why| (HealthKind::ShutOut, why));
        let behind = || Some((HealthKind::Behind, cluster.behind()?));
        let clock_off = || Some((HealthKind::ClockOff, cluster.wrong_clock()?));
        shut_out.or_else(behind).or_else(clock_off)
    }

    /// The phase for people and probes: a node that serves may still refuse all clients.
    pub(crate) fn phase_in_a_word(&self) -> &'static str {
        match self.phase.now() {
            Phase::Serving if self.store.import.is_under_way() => "restoring",
            phase => phase.as_str(),
        }
    }

    /// Another member does not let this node in.
    pub(crate) fn disown(&self, why: Disowned) {
        let disowned = self
            .cluster
            .as_ref()
            .map(|cluster| &cluster.steward.disowned);
        if let Some(Ok(())) = disowned.map(|disowned| disowned.set(why)) {
            // Kept for a watcher that is not there yet.
            self.phase.ended.notify_one();
        }
    }
}
