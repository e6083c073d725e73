//! The members as they should be, and their zones and shares.
//!
//! ```text
//! WantedMembers ──► Owners    those with a weight, by number; their zones, dense from 0
//!            CopyLevel     their shares and bounds for some number of copies
//! ```
//!
//! Invariants
//! 1. The order in which members are listed is forgotten.
//!
//! Not here: whether there is a plan for them (`refusal.rs`), the plan itself (`plan/`).

use crate::ring::quotas::{bounds, quotas};
use crate::ring::shares::Rounds;
use crate::ring::table::MemberId;
use crate::topology::{Member, Topology};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A member as it should be after the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedMember {
    /// Number of the member. A new member has one that was not given yet.
    pub id: MemberId,
    /// Share of the data beside the others'; 0 for a member that shall hold no records.
    pub weight: u16,
    /// The name of members that fail together; empty = itself alone.
    pub zone: String,
}

/// The members as they should be after the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedMembers {
    /// All of them, in any order.
    pub members: Vec<WantedMember>,
    /// Copies of a record. With fewer members than this there are as many copies as members.
    pub replication_factor: u8,
    /// Members with copies that cannot be read any more.
    pub lost: Vec<MemberId>,
}

impl WantedMembers {
    /// The members of `topology`. `ids` are their numbers, in the order of its list.
    ///
    /// # Panics
    /// When there are not as many numbers as members.
    pub fn of(topology: &Topology, ids: &[MemberId]) -> WantedMembers {
        let members = topology.members();
        assert_eq!(members.len(), ids.len(), "each member has a number");
        let place = |(member, id): (&Member, &MemberId)| WantedMember {
            id: *id,
            weight: member.weight,
            zone: member.zone.clone(),
        };
        WantedMembers {
            members: members.iter().zip(ids).map(place).collect(),
            replication_factor: topology.replication_factor(),
            lost: Vec::new(),
        }
    }
}

/// The members that can own something, by their places in these lists.
pub(super) struct Owners {
    pub(super) ids: Vec<MemberId>,
    pub(super) weights: Vec<u16>,
    /// The number of each member's zone, dense from 0.
    pub(super) zones: Vec<usize>,
    /// By zone: how many members it has.
    pub(super) sizes: Vec<usize>,
}

impl Owners {
    pub(super) fn new(wanted: &WantedMembers) -> Owners {
        let mut places: Vec<&WantedMember> =
            wanted.members.iter().filter(|m| m.weight > 0).collect();
        places.sort_by_key(|place| place.id);
        let mut owners = Owners {
            ids: places.iter().map(|place| place.id).collect(),
            weights: places.iter().map(|place| place.weight).collect(),
            zones: Vec::new(),
            sizes: Vec::new(),
        };
        let mut known = BTreeMap::new();
        for place in places {
            let fresh = owners.sizes.len();
            let zone = match place.zone.as_str() {
                "" => fresh,
                zone => *known.entry(zone).or_insert(fresh),
            };
            if zone == fresh {
                owners.sizes.push(0);
            }
            owners.sizes[zone] += 1;
            owners.zones.push(zone);
        }
        owners
    }

    pub(super) fn at(&self, id: MemberId) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }
}

/// Shares and bounds for some number of copies.
pub(super) struct CopyLevel {
    pub(super) rounds: Rounds,
    pub(super) quotas: Vec<u64>,
    pub(super) bounds: Vec<RangeInclusive<usize>>,
}

impl CopyLevel {
    pub(super) fn new(owners: &Owners, copies: usize, partitions: usize) -> CopyLevel {
        let rounds = Rounds::new(&owners.sizes, copies);
        let quotas = quotas(
            &owners.weights,
            &owners.zones,
            &rounds,
            (copies, partitions),
        );
        let bounds = quotas.iter().map(|quota| bounds(*quota, partitions));
        CopyLevel {
            bounds: bounds.collect(),
            rounds,
            quotas,
        }
    }
}
