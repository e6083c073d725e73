//! A loss that an operator can accept, as the order shows it.
//!
//! Not here: which loss there is (crate `node`, `repair/loss.rs`), the order (`steward/losses.rs`).
//! See: docs/protocol.md, "Damage".

use crate::ring::Partition;
use crate::ring::table::MemberId;
use bytes::Bytes;
use dendra_base::Space;
use std::collections::BTreeSet;

/// A part of a space: raw keys, both ends included; `None` = to the end of the space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkPart {
    /// The space.
    pub space: Space,
    /// The first raw key; empty = from the beginning of the space.
    pub start: Bytes,
    /// The last raw key; `None` = to the end of the space.
    pub last: Option<Bytes>,
}

impl WalkPart {
    /// All of a space.
    pub fn all(space: Space) -> WalkPart {
        WalkPart {
            space,
            start: Bytes::new(),
            last: None,
        }
    }
}

/// Damage that can be repaired only without lost members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairLoss {
    /// Marks of the damaged blocks: at most `LOSS_BLOCKS_MAX`.
    pub blocks: Vec<u64>,
    /// Between which keys they lie.
    pub ranges: Vec<WalkPart>,
    /// Blocks beyond those.
    pub further: usize,
    /// Partitions with copies at a lost member.
    pub partitions: BTreeSet<Partition>,
    /// The lost members.
    pub without: BTreeSet<MemberId>,
    /// The owners that are left. The ranges are filled from them.
    pub sources: BTreeSet<MemberId>,
}

/// Why there is no loss to accept. Of several damaged blocks the last of these counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoLoss {
    /// No block is damaged that other owners could repair.
    NoDamage,
    /// Each damaged block is repaired from enough owners, all of which answer.
    NotNeeded,
    /// The loss was accepted, and the repair is under way.
    Accepted,
    /// No member is lost, this owner cannot read its copies either, and no other owner has shown
    /// all of its own yet.
    DamagedToo {
        /// Number of the member.
        member: MemberId,
    },
    /// This owner does not answer, and no plan takes it away.
    Away {
        /// Number of the member.
        member: MemberId,
    },
    /// The copies of this owner cannot be read either.
    Unreadable {
        /// Number of the member.
        member: MemberId,
    },
    /// All other owners are lost, or there never was another one.
    NoCopy,
    /// This member started a moment ago, and has not reached each other one yet.
    NotKnown,
}
