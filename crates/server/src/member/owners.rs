//! The cluster as the threads of the own store know it.
//!
//! Invariants
//! 1. Nothing is decided here: each answer is a reading of [`Cluster`].
//!
//! Not here: the use of it (`disk/`).

use super::cluster::Cluster;
use crate::disk::owners::OtherOwners;
use dendra_engine::Engine;
use dendra_node::Walls;

impl OtherOwners for Cluster {
    fn walls(&self) -> &Walls {
        &self.walls
    }

    fn spread(&self) -> (u64, u64) {
        let topology = self.topology();
        let members = topology.live() as u64;
        (members, u64::from(topology.replication_factor()))
    }

    fn waiting_repairs(&self, engine: &Engine) -> Vec<(String, u64)> {
        Cluster::waiting_repairs(self, engine)
    }
}
