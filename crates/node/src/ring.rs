//! Which members own which key: the same table on every node that has the same topology.
//!
//! ```text
//! key bytes ── SipHash-1-3, key of the cluster ──► partition 0..256 ── table ──► members, best first
//! partition 17    h3 h1 h7 | h2 h9 …        the first `from` of the row hold a record
//! ```
//!
//! Invariants
//! 1. A row names every member once: owners for fewer copies are a prefix of those for more.
//! 2. The table is a pure function of the topology, in integers, so that no two machines round
//!    differently.
//! 3. A row's first members are in different zones for as long as there are zones; a member
//!    without a zone is one by itself.
//!
//! Not here: agreeing on the topology (`topology.rs`), moving data when it changes.
//! See: docs/cli.md, "A cluster".

use crate::member::MemberIndex;
use crate::topology::{Member, Topology};
use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::Hasher;

/// One part of the key space: the unit of ownership and repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u16);

impl Partition {
    /// For arrays with one place per partition.
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// The table of owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    hasher: [u8; 16],
    partitions: u16,
    width: usize,
    /// `partitions` rows of `width` members.
    rows: Box<[MemberIndex]>,
}

impl Ring {
    /// The table of `topology`.
    pub fn new(topology: &Topology) -> Ring {
        let zones = zones(topology.members());
        let width = topology.members().len();
        let mut rows = Vec::with_capacity(width * usize::from(topology.partitions()));
        for partition in 0..topology.partitions() {
            let costs: Vec<u64> = topology
                .members()
                .iter()
                .map(|member| cost(&topology.hash_key(), member, partition))
                .collect();
            rows.extend(spread(&costs, &zones));
        }
        Ring {
            hasher: topology.hash_key(),
            partitions: topology.partitions(),
            width,
            rows: rows.into(),
        }
    }

    /// The partition of a key, as clients name it.
    pub fn partition(&self, raw_key: &[u8]) -> Partition {
        let mut hasher = SipHasher13::new_with_key(&self.hasher);
        hasher.write(raw_key);
        let scaled = u128::from(hasher.finish()) * u128::from(self.partitions);
        Partition(u16::try_from(scaled >> 64).expect("a fraction of a u16"))
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
}

/// The number of each member's zone, dense from 0.
fn zones(members: &[Member]) -> Vec<usize> {
    let mut known = BTreeMap::new();
    let mut next = 0;
    let mut zone_of = |member: &Member| {
        if member.zone.is_empty() {
            next += 1;
            return next - 1;
        }
        *known.entry(member.zone.clone()).or_insert_with(|| {
            next += 1;
            next - 1
        })
    };
    members.iter().map(&mut zone_of).collect()
}

/// Weighted rendezvous: with `-log(hash) / weight` as its cost, each member is the cheapest with
/// the probability of its weight's share, and a change of one member moves nobody else's choice.
fn cost(key: &[u8; 16], member: &Member, partition: u16) -> u64 {
    let mut hasher = SipHasher13::new_with_key(key);
    hasher.write(&partition.to_be_bytes());
    hasher.write(member.url.as_bytes());
    (minus_log2(hasher.finish()) << 16) / u64::from(member.weight)
}

/// `64 - log2(x)` in units of 2^-32, bit by bit: integers round alike everywhere.
fn minus_log2(x: u64) -> u64 {
    let x = x.max(1);
    let whole = u64::from(63 - x.leading_zeros());
    let mut mantissa = u128::from(x << x.leading_zeros());
    let mut fraction = 0;
    for bit in (0..32).rev() {
        mantissa = (mantissa * mantissa) >> 63;
        if mantissa >> 64 != 0 {
            fraction |= 1 << bit;
            mantissa >>= 1;
        }
    }
    (64 << 32) - ((whole << 32) | fraction)
}

/// All members from the cheapest on, in rounds: a zone is asked for its next member only after
/// every other zone that has one was.
fn spread(costs: &[u64], zones: &[usize]) -> impl Iterator<Item = MemberIndex> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by_key(|&member| (costs[member], member));
    let mut taken = vec![0; zones.len()];
    let mut rounds: Vec<(usize, usize)> = order
        .into_iter()
        .map(|member| {
            let round = &mut taken[zones[member]];
            *round += 1;
            (*round, member)
        })
        .collect();
    rounds.sort_by_key(|(round, _)| *round);
    rounds
        .into_iter()
        .map(|(_, member)| MemberIndex(u8::try_from(member).expect("at most MEMBERS_MAX members")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(list: &[&str]) -> Ring {
        let members = list.iter().map(|text| text.parse().expect("a member"));
        Ring::new(&Topology::new("dendra", members.collect(), 3).expect("a topology"))
    }

    #[test]
    fn a_row_names_every_member_once() {
        let ring = ring(&[
            "h1:1",
            "h2:1;zone=a",
            "h3:1;zone=a",
            "h4:1;weight=3",
            "h5:1",
        ]);
        for partition in ring.all() {
            let mut row = ring.owners(partition).to_vec();
            row.sort();
            assert_eq!(row, (0..5).map(MemberIndex).collect::<Vec<_>>());
        }
    }

    #[test]
    fn copies_are_in_different_zones() {
        let ring = ring(&[
            "h1:1;zone=a",
            "h2:1;zone=a",
            "h3:1;zone=a",
            "h4:1;zone=b",
            "h5:1;zone=b",
            "h6:1",
        ]);
        for partition in ring.all() {
            let zone = |member: &MemberIndex| [0, 0, 0, 1, 1, 2][member.at()];
            let mut three: Vec<i32> = ring.owners(partition)[..3].iter().map(zone).collect();
            three.sort_unstable();
            assert_eq!(three, [0, 1, 2]);
        }
    }

    #[test]
    fn logarithms_are_right() {
        for x in [
            1u64,
            2,
            3,
            1 << 20,
            0x8000_0000_0000_0001,
            u64::MAX,
            0x1234_5678_9abc_def0,
        ] {
            let exact = 64.0 - (x as f64).log2();
            let ours = minus_log2(x) as f64 / f64::from(1u32 << 16) / f64::from(1u32 << 16);
            assert!((exact - ours).abs() < 1e-8, "{x}: {exact} {ours}");
        }
    }
}
