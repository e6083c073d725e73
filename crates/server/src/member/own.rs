//! Which member this process is, on which start of its folder.
//!
//! Invariants
//! 1. The number of a version's maker names this node and one of its loops: 24 bits of the node's
//!    origin, 8 bits of the loop.
//!
//! Not here: what the members know of each other (`cluster.rs`).

use dendra_ownership::{MemberIndex, Topology};

/// Bits of an origin that name the loop.
pub(super) const LANE_BITS: u32 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct OwnMember {
    /// The topology that the cluster was founded with, in a line, or its digest.
    pub(super) founding: String,
    pub(crate) me: MemberIndex,
    pub(super) node: u128,
    pub(crate) boot: u64,
    pub(super) life: u64,
    /// The clock value in a hello: see `Peer::clock`.
    pub(super) clock: u64,
    pub(super) origin: u32,
    /// Event loops of this member.
    pub(crate) loops: u16,
}

impl OwnMember {
    /// Digest of the topology that the cluster was founded with.
    pub(crate) fn digest(&self) -> u64 {
        Topology::digest_of(&self.founding)
    }

    /// The number of the versions that loop `lane` makes.
    pub(crate) fn origin(&self, lane: usize) -> u32 {
        let lane = u32::try_from(lane).expect("loops are counted in eight bits");
        (self.origin << LANE_BITS) | lane
    }
}
