//! The other owners of this node's records, as its threads that work on tables know them.
//!
//! Invariants
//! 1. Without a cluster there are none: then this node holds the only copy of everything.
//!
//! Not here: the members themselves (`member/`).

use dendra_engine::Engine;
use dendra_node::Walls;

/// The facts about a cluster that work on tables needs.
pub(crate) trait OtherOwners: Send + Sync {
    /// The members' wall clocks, as the loops of this member have read them.
    fn walls(&self) -> &Walls;
    /// Members now, and copies of each record.
    fn spread(&self) -> (u64, u64);
    /// For how many damaged blocks the repair waits for each other member, by its url.
    fn waiting_repairs(&self, engine: &Engine) -> Vec<(String, u64)>;
}
