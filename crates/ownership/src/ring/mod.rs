//! Which members own which key: the same table on every node that has the same topology.
//!
//! ```text
//! key bytes ── SipHash-1-3, key of the cluster ──► partition 0..256 ── table ──► members, best first
//! partition 17    h3 h1 h7 | h2 h9 …        the first `from` of the row hold a record
//!
//! costs.rs    the cost of a partition at a member, by hashing alone
//! shares.rs   how many copies each member should have
//! choice.rs   the cheapest table that keeps the shares
//!
//! table/      OwnerTable   owners as they are stored, and changed step by step
//! plan/       plan         which positions move when members change
//! exchange/   fewest       the fewest copies that bring a table within its bounds
//! ```
//!
//! Invariants
//! 1. A row names every member once: owners for fewer copies are a prefix of those for more.
//! 2. The table is a pure function of the topology, in arithmetic that every machine rounds alike.
//! 3. A row's first members are in different zones for as long as there are zones; a member
//!    without a zone is one by itself.
//! 4. Up to the replication factor, each prefix of the rows gives every member its share, to within
//!    5 % or one partition, whichever is more.
//!
//! Not here: agreeing on the topology (`topology/`), moving data when it changes.
//! See: docs/cli.md, "A cluster"; docs/decisions/0014-balanced-rendezvous.md.

mod choice;
mod costs;
mod exchange;
pub mod plan;
mod quotas;
mod shares;
pub mod table;

use crate::member::MemberIndex;
use crate::topology::{Member, Topology};
use choice::{Members, Problem, choose, dealt, each};
use shares::{Rounds, shares};
use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// How far from its share a member may be, in parts of the share; at least one partition.
const TOLERANCE: f64 = 0.05;

/// One part of the key space: the unit of ownership and repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u16);

impl Partition {
    /// For arrays with one place per partition.
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// The partition of a raw key in a cluster with this key and so many partitions.
pub fn partition_of(hash_key: &[u8; 16], partitions: u16, raw_key: &[u8]) -> Partition {
    let mut hasher = SipHasher13::new_with_key(hash_key);
    hasher.write(raw_key);
    let scaled = u128::from(hasher.finish()) * u128::from(partitions);
    Partition(u16::try_from(scaled >> 64).expect("a fraction of a u16"))
}

/// The table of owners.
#[derive(Clone, Debug, PartialEq)]
pub struct Ring {
    hash_key: [u8; 16],
    partitions: u16,
    width: usize,
    /// `partitions` rows of `width` members.
    rows: Box<[MemberIndex]>,
    /// Share of each member in the copies for 1, 2, … up to the replication factor, in partitions.
    shares: Vec<Vec<f64>>,
    /// How many members of each row were chosen; the others follow in the order of their costs.
    chosen: Box<[u8]>,
    /// Costs of each member, by partition: kept for the rows that change.
    costs: Arc<Vec<Vec<i64>>>,
}

impl Ring {
    /// The table of `topology`.
    pub fn new(topology: &Topology) -> Ring {
        let partitions = topology.partitions();
        let members = topology.members();
        let hash_key = topology.hash_key();
        let zones = zones(members);
        let costs: Vec<Vec<i64>> = members
            .iter()
            .map(|member| costs::costs(&hash_key, member, partitions))
            .collect();
        let everybody: Members = (0..members.len()).fold(0, |all, member| all | 1 << member);
        let (nested, shares) = nested(topology, &costs, &zones, everybody);
        let mut rows = Vec::with_capacity(members.len() * usize::from(partitions));
        for partition in 0..usize::from(partitions) {
            let mut taken = 0;
            for level in &nested {
                rows.extend(each(level[partition] & !taken));
                taken = level[partition];
            }
            rows.extend(dealt(everybody, taken, &costs, &zones, partition));
        }
        let rows = rows.into_iter().map(|member| {
            MemberIndex(u8::try_from(member).expect("a topology has at most MEMBERS_MAX members"))
        });
        Ring {
            hash_key,
            partitions,
            width: members.len(),
            rows: rows.collect(),
            shares,
            chosen: vec![topology.copies(); usize::from(partitions)].into(),
            costs: Arc::new(costs),
        }
    }

    /// The partition of a key, as clients name it.
    pub fn partition(&self, raw_key: &[u8]) -> Partition {
        partition_of(&self.hash_key, self.partitions, raw_key)
    }

    /// All members, in the order in which they own the partition: the first `from` hold a record
    /// of `from` copies.
    ///
    /// # Panics
    /// When the partition is not of this ring.
    pub fn owners(&self, partition: Partition) -> &[MemberIndex] {
        assert!(partition.0 < self.partitions, "a partition of this ring");
        let at = partition.at() * self.width;
        &self.rows[at..at + self.width]
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> u16 {
        self.partitions
    }

    /// All partitions.
    pub fn all(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.partitions).map(Partition)
    }

    /// How many partitions the member is among the first `copies` owners of.
    pub fn load(&self, member: MemberIndex, copies: u8) -> usize {
        let first = |partition| &self.owners(partition)[..usize::from(copies).min(self.width)];
        self.all().filter(|&p| first(p).contains(&member)).count()
    }

    /// How many copies each member must get that it did not have under `before`. They are the
    /// copies that a change of members moves. `topology` is that of this table.
    pub fn arrivals(&self, topology: &Topology, before: (&Topology, &Ring)) -> Vec<usize> {
        let earlier: Vec<Option<MemberIndex>> = topology
            .members()
            .iter()
            .map(|member| before.0.index_of(&member.url))
            .collect();
        let mut arrivals = vec![0; self.width];
        for partition in self.all() {
            let had = &before.1.owners(partition)[..usize::from(before.0.copies())];
            for owner in &self.owners(partition)[..usize::from(topology.copies())] {
                let is_new = earlier[owner.at()].is_none_or(|member| !had.contains(&member));
                arrivals[owner.at()] += usize::from(is_new);
            }
        }
        arrivals
    }

    /// How many that should be: the share of the member's weight, as far as zones allow. `None`
    /// beyond the replication factor, where no share is balanced.
    pub fn share(&self, member: MemberIndex, copies: u8) -> Option<f64> {
        let level = usize::from(copies).checked_sub(1)?;
        Some(self.shares.get(level)?[member.at()])
    }
}

/// How many partitions a member with this share may have.
fn bounds(share: f64, partitions: u16) -> RangeInclusive<usize> {
    let slack = (share * TOLERANCE).max(1.0);
    let most = (share + slack).floor().min(f64::from(partitions));
    let least = (share - slack).ceil().max(0.0);
    least as usize..=most as usize
}

/// The owners for one copy, for two, … up to the replication factor, each within the next; and the
/// shares that they keep. The most copies are chosen first, since they decide the moves; fewer are
/// chosen among them.
fn nested(
    topology: &Topology,
    costs: &[Vec<i64>],
    zones: &[usize],
    everybody: Members,
) -> (Vec<Vec<Members>>, Vec<Vec<f64>>) {
    let partitions = topology.partitions();
    let weights: Vec<u16> = topology
        .members()
        .iter()
        .map(|member| member.weight)
        .collect();
    let mut sizes = vec![0; zones.iter().max().map_or(0, |most| most + 1)];
    for zone in zones {
        sizes[*zone] += 1;
    }
    let mut allowed = vec![everybody; usize::from(partitions)];
    let (mut levels, mut all_shares) = (Vec::new(), Vec::new());
    for copies in (1..=usize::from(topology.copies())).rev() {
        let rounds = Rounds::new(&sizes, copies);
        let mut shares = shares(&weights, zones, &rounds, copies);
        for share in &mut shares {
            *share *= f64::from(partitions);
        }
        let bounds: Vec<RangeInclusive<usize>> = shares
            .iter()
            .map(|&share| bounds(share, partitions))
            .collect();
        allowed = choose(&Problem {
            costs,
            zones,
            allowed: &allowed,
            bounds: &bounds,
            copies,
        });
        levels.push(allowed.clone());
        all_shares.push(shares);
    }
    levels.reverse();
    all_shares.reverse();
    (levels, all_shares)
}

/// The number of each member's zone, dense from 0.
fn zones(members: &[Member]) -> Vec<usize> {
    let mut known = BTreeMap::new();
    let mut next = 0;
    let mut fresh = || {
        next += 1;
        next - 1
    };
    members
        .iter()
        .map(|member| match member.zone.as_str() {
            "" => fresh(),
            zone => *known.entry(zone).or_insert_with(&mut fresh),
        })
        .collect()
}

#[cfg(test)]
mod tests;
