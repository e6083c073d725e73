//! The own store of a node: the engine, and what its threads and their askers share.
//!
//! ```text
//! loops ─► engine.submit, bell ─► wal_thread.rs ─┐
//! loops ─► pool ─► readers.rs ───────────────────┼─► lanes: mailboxes
//! poke  ─► maintenance.rs, scrub.rs ─────────────┘
//! admin ─► checkpoints, import
//! ```
//!
//! Invariants
//! 1. Everything here is set before the first thread of it starts and never replaced.
//!
//! Not here: places of connections, requests and bytes (`waiting/`).

use super::bell::Bell;
use super::checkpoints::Checkpoints;
use super::import::Import;
use super::poke::Poke;
use super::store_pool::StorePool;
use super::versions::VersionClock;
use crate::health::HealthMemory;
use crate::lanes::lane::Loops;
use crate::phase::PhaseCell;
use dendra_engine::Engine;
use dendra_engine::vfs::Vfs;
use dendra_watch::ChangeLog;
use std::sync::Arc;

/// See the module.
pub(crate) struct OwnStore {
    pub(crate) engine: Engine,
    /// The engine's folder, for the files that the server itself leaves in it.
    pub(crate) folder: Arc<dyn Vfs>,
    pub(crate) versions: VersionClock,
    pub(crate) pool: StorePool,
    pub(crate) bell: Bell,
    pub(crate) poke: Poke,
    /// The last writes, for watches of all nodes.
    pub(crate) changes: Arc<ChangeLog>,
    /// The checkpoints that backups read.
    pub(crate) checkpoints: Checkpoints,
    /// The state of restores.
    pub(crate) import: Import,
    /// What was found wrong with the node.
    pub(crate) health: HealthMemory,
    /// The loops that get answers and outcomes.
    pub(crate) lanes: Arc<Loops>,
    /// Poisoned by a log that failed.
    pub(crate) phase: Arc<PhaseCell>,
}
