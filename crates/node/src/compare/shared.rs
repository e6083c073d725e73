//! Which records two members share: of which both are owners.
//!
//! ```text
//! partition 17    a b c | d e        copies of a record   1  2  3  4  5
//!                                    a and b share it     -  x  x  x  x
//!                                    b and d share it     -  -  -  x  x
//! ```
//!
//! Invariants
//! 1. It is symmetric: of `a` and `b` it is the same as of `b` and `a`.
//! 2. It depends on a layout and two members alone, so that both of them answer alike.
//!
//! Not here: the repair of a record that one of them lacks (`compare/mod.rs`).
//! See: docs/protocol.md, "Comparing copies".

use crate::layout::Layout;
use crate::member::MemberIndex;
use crate::ring::partition_of;
use crate::topology::record::horizons::Horizons;
use dendra_base::{Cell, CellRef};
use std::fmt;

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedRecords {
    hash_key: [u8; 16],
    partitions: u16,
    /// By partition: the least number of copies of a record that both own; 0 = they share none.
    needed: Vec<u8>,
    /// A record of so many copies is shared in any partition.
    enough: u16,
    /// The replication factor: records of the protocol have so many copies.
    replicas: u8,
    horizons: Horizons,
    /// By partition: at which number of copies the member that looks becomes an owner; 0 = at none,
    /// empty = it is not known which of the two looks.
    own: Vec<u8>,
}

impl fmt::Debug for SharedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.needed.iter().filter(|needed| **needed > 0).count();
        write!(f, "Shared({shared} of {} partitions)", self.partitions)
    }
}

impl SharedRecords {
    /// The records that `a` and `b` share.
    pub fn of(layout: &Layout, a: MemberIndex, b: MemberIndex) -> SharedRecords {
        let ring = layout.ring();
        let needed: Vec<u8> = ring
            .all()
            .map(|partition| {
                let owners = ring.owners(partition);
                let place = |member| owners.iter().position(|owner| *owner == member);
                let last = place(a).zip(place(b)).map(|(a, b)| a.max(b));
                last.and_then(|last| u8::try_from(last + 1).ok())
                    .unwrap_or(0)
            })
            .collect();
        let most = needed.iter().max().copied().unwrap_or(0);
        SharedRecords {
            hash_key: layout.topology().hash_key(),
            partitions: ring.partitions(),
            enough: match needed.contains(&0) {
                true => u16::MAX,
                false => u16::from(most),
            },
            needed,
            replicas: layout.topology().copies(),
            horizons: *layout.horizons(),
            own: Vec::new(),
        }
    }

    /// The same, where `looks` is the one of the two that looks at its copies.
    /// Only horizons ask for it: before a cluster knows them no record pays for the answer.
    pub(crate) fn seen_by(mut self, layout: &Layout, looks: MemberIndex) -> SharedRecords {
        if !layout.has_ages() {
            return self;
        }
        let ring = layout.ring();
        let place = |partition| {
            let owners = ring.owners(partition);
            let at = owners.iter().position(|owner| *owner == looks);
            at.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0)
        };
        self.own = ring.all().map(place).collect();
        self
    }

    /// Does the member that looks hold this value as none of the owners that confirm horizons? It may
    /// stand under a delete that they hold and this member does not.
    pub(super) fn is_stray(&self, raw_key: &[u8], cell: &CellRef<'_>, now_ms: u64) -> bool {
        if self.own.is_empty() || !cell.is_live(now_ms) {
            return false;
        }
        let partition = partition_of(&self.hash_key, self.partitions, raw_key);
        let own = self.own[partition.at()];
        cell.copies > self.replicas || own == 0 || own > self.replicas
    }

    /// Do both own a record of so many copies with this raw key?
    pub fn has(&self, raw_key: &[u8], copies: u8) -> bool {
        u16::from(copies) >= self.enough || {
            let needed = self.needed(raw_key);
            needed != 0 && copies >= needed
        }
    }

    /// Do both own the key's promises?
    pub fn has_promise(&self, raw_key: &[u8]) -> bool {
        self.has(raw_key, self.replicas)
    }

    /// May both own a record with this raw key, when it has had so many copies once? A record of
    /// fewer copies may stand over one of more.
    pub fn may_have(&self, raw_key: &[u8], copies: u8) -> bool {
        self.has(raw_key, copies.max(self.replicas))
    }

    /// May one of them have purged this record of a client?
    pub(super) fn forgets(&self, cell: &CellRef<'_>, now_ms: u64) -> bool {
        self.horizons.forgets(cell, self.replicas, now_ms)
    }

    /// May one of them have purged this record of the protocol?
    pub(super) fn forgets_record(&self, cell: &CellRef<'_>) -> bool {
        cell.age() <= self.horizons.purge()
    }

    /// Was the cell made in an earlier epoch, as its age tells? Then no write of it is under way.
    pub(super) fn is_settled(&self, cell: &Cell) -> bool {
        cell.as_ref().age() <= self.horizons.floor()
    }

    fn needed(&self, raw_key: &[u8]) -> u8 {
        let partition = partition_of(&self.hash_key, self.partitions, raw_key);
        self.needed[partition.at()]
    }
}
