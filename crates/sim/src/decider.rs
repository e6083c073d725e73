//! The system under test as the world sees it: one decider per event loop.
//!
//! Invariants
//! 1. A decider knows time and events from its arguments only.
//!
//! Not here: the real one (crate `node`), the world around it (`world/`).

use dendra_base::Now;
use dendra_node::Hlc;
use dendra_node::step::{Effect, Event};
use dendra_ownership::confirmed::{Confirmed, HeldBack};
use dendra_ownership::loss::{NoLoss, RepairLoss};
use dendra_ownership::{Fence, Layout, MemberIndex, Partition};
use dendra_watch::ChangeLog;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Decisions of one event loop.
pub trait Decider {
    /// Takes one event, and appends the effects.
    fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>);

    /// When it wants a tick, on the monotonic clock.
    fn due_us(&self) -> Option<u64>;

    /// The work that it still holds, for a member at rest; `None` when it holds none that a rest
    /// should have ended.
    fn leftovers(&self) -> Option<String>;

    /// Bytes that the member's hints hold, and hints that it dropped in this life, as it counts
    /// them; `None` when it keeps none.
    fn hints(&self) -> Option<(u64, u64)> {
        None
    }

    /// Up to when values have ended for everybody, as the member's merges are told: `EndedValues`.
    fn ended_ms(&mut self, _now: Now) -> u64 {
        0
    }

    /// Bytes that this loop loaded from other owners.
    fn loaded_bytes(&self) -> u64 {
        0
    }

    /// When the member's last full comparison with a peer ended, on its monotonic clock.
    fn compared_us(&self, _peer: MemberIndex) -> Option<u64> {
        None
    }

    /// Repairs of comparisons with a peer, and of promises with any.
    fn repairs(&self, _peer: MemberIndex) -> u64 {
        0
    }

    /// Bytes that this member read to compare them, for itself and for its peers.
    fn compared_bytes(&self) -> u64 {
        0
    }

    /// Does the member confirm its epoch, as its first loop sees it? `None` = it knows no horizons.
    fn confirms(&self) -> Option<Result<Confirmed, HeldBack>> {
        None
    }

    /// The partitions of records in this epoch that the member holds and is no owner of.
    fn foreign_in(&self, _epoch: u64) -> BTreeSet<Partition> {
        BTreeSet::new()
    }

    /// The loss without which damage of the member cannot be repaired.
    fn loss(&self, _now: Now) -> Result<RepairLoss, NoLoss> {
        Err(NoLoss::NoDamage)
    }

    /// The records of other members were dropped: the copies are compared once more.
    fn dropped_strays(&self) {}
}

/// A member that starts: all that its deciders are made with.
pub struct DeciderSetup {
    /// Members and owners.
    pub layout: Arc<Layout>,
    /// The newest durable epoch, for all its loops.
    pub fence: Arc<Fence>,
    /// Which of the members.
    pub me: MemberIndex,
    /// Origin of the first loop; the others' follow.
    pub origin: u32,
    /// Event loops.
    pub lanes: usize,
    /// The clock that all of them share.
    pub hlc: Arc<Hlc>,
    /// Bytes of hints.
    pub hint_bytes: u64,
    /// The last writes of the member, for watches.
    pub changes: Arc<ChangeLog>,
    /// Bytes a second that are compared with other members; 0 = none.
    pub compare_bytes_per_second: u64,
    /// Between two comparisons with one member.
    pub compare_pause_us: u64,
    /// Bytes a second that are loaded from other owners.
    pub load_bytes_per_second: u64,
    /// How long the old owner of a position may be away before others are asked.
    pub load_patience_us: u64,
    /// The seed of the draws inside.
    pub seed: u64,
}

/// Makes the deciders of a member's loops.
pub type MakeDeciders = fn(&DeciderSetup) -> Vec<Box<dyn Decider>>;
