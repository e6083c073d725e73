//! Which records two members share: of which both are owners.
//!
//! ```text
//! partition 17    a b c | d e        copies of a record   1  2  3  4  5
//!                                    a and b share it     -  x  x  x  x
//!                                    b and d share it     -  -  -  x  x
//!                                    d and e share it     -  -  -  -  -
//! ```
//!
//! Two owners beyond the replication factor share no records. Such an owner gets copies from the
//! first owners alone: those know the newest delete, once all members have compared.
//!
//! Invariants
//! 1. It is symmetric: of `a` and `b` it is the same as of `b` and `a`.
//! 2. It depends on a layout and two members alone, so that both of them answer alike.
//!
//! Not here: the repair of a record that one of them lacks (`compare/mod.rs`).
//! See: docs/protocol.md, "Comparing copies".

use dendra_base::peer::Ballot;
use dendra_base::{Cell, CellRef, Kind};
use dendra_ownership::epoch::record::horizons::Horizons;
use dendra_ownership::epoch::record::narrowing::Narrowing;
use dendra_ownership::layout::Layout;
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::{Partition, partition_of};
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
    /// Deletes of records with fewer copies stay.
    copies_to_forget: u8,
    horizons: Horizons,
    narrowing: Narrowing,
    /// By partition: from how many copies on the member that looks is an owner; 0 = never. Empty
    /// if it is not known which of the two looks.
    own: Vec<u8>,
    /// By partition, of the other member: from how many copies on it is an owner.
    peer: Vec<u8>,
}

/// One of the two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairMember {
    /// The one that looks.
    Own,
    /// The other one.
    Peer,
}

impl fmt::Debug for SharedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.needed.iter().filter(|needed| **needed > 0).count();
        write!(
            f,
            "SharedRecords({shared} of {} partitions)",
            self.partitions
        )
    }
}

impl SharedRecords {
    /// The records that `a` and `b` share.
    pub fn of(layout: &Layout, a: MemberIndex, b: MemberIndex) -> SharedRecords {
        let ring = layout.ring();
        let replicas = layout.topology().copies();
        let needed: Vec<u8> = ring
            .all()
            .map(|partition| {
                let places = [a, b].map(|member| layout.place_of(member, partition));
                match (places[0].min(places[1]), places[0].max(places[1])) {
                    (0, _) => 0,
                    (first, _) if first > replicas => 0,
                    (_, last) => last,
                }
            })
            .collect();
        let most = needed.iter().max().copied().unwrap_or(0);
        SharedRecords {
            hash_key: layout.topology().hash_key(),
            partitions: ring.partitions(),
            enough: if needed.contains(&0) {
                u16::MAX
            } else {
                u16::from(most)
            },
            needed,
            replicas,
            copies_to_forget: layout.copies_to_forget(),
            horizons: *layout.horizons(),
            narrowing: *layout.narrowing(),
            own: Vec::new(),
            peer: Vec::new(),
        }
    }

    /// Shared records that know which of the two looks at its copies: `looks` is that member, and
    /// `peer` the other one.
    pub(crate) fn seen_by(layout: &Layout, looks: MemberIndex, peer: MemberIndex) -> SharedRecords {
        let places = |member| {
            let all = layout.ring().all();
            all.map(move |partition| layout.place_of(member, partition))
        };
        SharedRecords {
            own: places(looks).collect(),
            peer: places(peer).collect(),
            ..SharedRecords::of(layout, looks, peer)
        }
    }

    /// The partition of a stray: a value that the member which looks holds without being one of the
    /// owners. They may hold a delete above it, and this member does not.
    ///
    /// A value that has ended is one, too: it may be back once a wrong clock is right again.
    pub(super) fn stray(&self, raw_key: &[u8], cell: &CellRef<'_>) -> Option<Partition> {
        if self.own.is_empty() || cell.kind != Kind::Value {
            return None;
        }
        let partition = self.partition(raw_key);
        let own = self.own[partition.at()];
        let is_stray = own == 0 || own > self.replicas.max(self.copies_of(cell));
        is_stray.then_some(partition)
    }

    /// How many copies the record has in this epoch.
    pub(crate) fn copies_of(&self, cell: &CellRef<'_>) -> u8 {
        self.narrowing.copies_of(cell)
    }

    /// Is this a copy that the member which looks gives back, because the replication factor was
    /// lowered? It is of no use to the other one.
    pub(super) fn gives_back(&self, raw_key: &[u8], cell: &CellRef<'_>) -> bool {
        let copies = self.copies_of(cell);
        let own = self.own.get(self.partition(raw_key).at()).copied();
        copies < cell.copies && own.is_some_and(|own| own == 0 || own > self.replicas.max(copies))
    }

    /// Is the member that looks an owner beyond the replication factor?
    pub(super) fn is_own_beyond(&self, raw_key: &[u8]) -> bool {
        let own = self.own.get(self.partition(raw_key).at());
        own.is_some_and(|own| *own > self.replicas)
    }

    /// The form in which a newer record comes to a member that holds an older one, of `older`
    /// copies. If that member is no owner of the newer one, the newer one is given as many copies.
    /// From then on both are compared with the same members.
    ///
    /// A delete that had too few copies to be forgotten gets `clock` as its age. Owners that have
    /// not compared it must not take it for an old one.
    pub(super) fn over(
        &self,
        newer: Cell,
        older: u8,
        at: PairMember,
        key: &[u8],
        clock: u64,
    ) -> Cell {
        let places = match at {
            PairMember::Own => &self.own,
            PairMember::Peer => &self.peer,
        };
        let place = places.get(self.partition(key).at()).copied();
        let is_beyond =
            place.is_some_and(|place| place > self.replicas.max(self.copies_of(&newer.as_ref())));
        if !is_beyond || older <= newer.copies {
            return newer;
        }
        let is_kept = newer.copies < self.copies_to_forget;
        let age = newer.as_ref().age();
        Cell {
            copies: older,
            born: if is_kept && age != u64::MAX {
                age.max(clock)
            } else {
                newer.born
            },
            ..newer
        }
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
        self.horizons.forgets(cell, self.copies_to_forget, now_ms)
    }

    /// May one of them have purged this record of the protocol?
    pub(super) fn forgets_record(&self, cell: &CellRef<'_>) -> bool {
        cell.age() <= self.horizons.purge()
    }

    /// May one of them have purged a record with this promise? It is no younger than its promise.
    pub(super) fn forgets_ballot(&self, ballot: Ballot) -> bool {
        ballot.hlc <= self.horizons.purge()
    }

    /// Does this record of a client wait for a horizon: will a later one take it? None takes a
    /// record with fewer copies than the replication factor, or one whose age is not known.
    pub(super) fn will_forget(&self, cell: &CellRef<'_>, now_ms: u64) -> bool {
        cell.copies >= self.replicas && !cell.is_live(now_ms) && self.will_forget_record(cell)
    }

    /// Will a record of the protocol go by a horizon?
    pub(super) fn will_forget_record(&self, cell: &CellRef<'_>) -> bool {
        cell.age() != u64::MAX
    }

    /// Was the cell made in an earlier epoch, as its age tells? Then no write of it is under way.
    pub(super) fn is_settled(&self, cell: &Cell) -> bool {
        cell.as_ref().age() <= self.horizons.floor()
    }

    fn needed(&self, raw_key: &[u8]) -> u8 {
        self.needed[self.partition(raw_key).at()]
    }

    fn partition(&self, raw_key: &[u8]) -> Partition {
        partition_of(&self.hash_key, self.partitions, raw_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::{Key, Version};
    use dendra_ownership::epoch::record::EpochRecord;
    use dendra_ownership::topology::{Member, Topology};

    const RAW: &[u8] = b"k";
    /// A value of clocks.
    const CLOCK: u64 = 1_700_000_000_000 << 16;

    fn layout() -> Layout {
        let listed = (0..5).map(|at| Member::new(&format!("http://10.0.0.{at}:8080")));
        let listed: Vec<Member> = listed.collect::<Result<_, _>>().expect("addresses");
        let topology = Topology::new("t", listed, 3).expect("small");
        let first = EpochRecord::founded(&topology);
        Layout::of_record(&first).expect("its members")
    }

    /// As the owner at the first of two places sees it, counted from 1.
    fn seen(own: usize, peer: usize) -> SharedRecords {
        let layout = layout();
        let partition = layout.ring().partition(RAW);
        let owner = |place: usize| layout.ring().owners(partition)[place - 1];
        let (own, peer) = (owner(own), owner(peer));
        SharedRecords::seen_by(&layout, own, peer)
    }

    fn cell(copies: u8) -> Cell {
        let version = Version {
            hlc: CLOCK,
            origin: 1,
            rmw: 0,
        };
        let mut cell = CellRef::value(Key::user(RAW).as_stored(), version, b"v").to_owned();
        cell.copies = copies;
        cell
    }

    #[test]
    fn a_further_owner_takes_a_newer_record_with_the_copies_of_the_older_one() {
        let shared = seen(4, 1);
        let over = |copies, older, at| {
            let newer = shared.over(cell(copies), older, at, RAW, CLOCK + 9);
            (newer.copies, newer.as_ref().age())
        };
        assert_eq!(over(3, 5, PairMember::Own), (5, CLOCK));
        assert_eq!(over(4, 5, PairMember::Own), (4, CLOCK), "it owns that one");
        assert_eq!(over(3, 5, PairMember::Peer), (3, CLOCK), "a first owner");
        // One that may not be forgotten yet is young from now on.
        assert_eq!(over(2, 5, PairMember::Own), (5, CLOCK + 9));
    }

    #[test]
    fn old_records_of_a_lowered_factor_are_strays_behind_it_and_are_not_shared() {
        let mut shared = seen(4, 1);
        shared.narrowing = Narrowing::up_to(CLOCK, 3);
        let (old, mut later, four) = (cell(5), cell(5), cell(4));
        later.version.hlc = CLOCK + 1;
        for (cell, is_back) in [(&old, true), (&later, false), (&four, true)] {
            let cell = cell.as_ref();
            assert_eq!(shared.stray(RAW, &cell).is_some(), is_back, "{cell:?}");
            assert_eq!(shared.gives_back(RAW, &cell), is_back, "{cell:?}");
            assert_eq!(
                shared.has(RAW, shared.copies_of(&cell)),
                !is_back,
                "{cell:?}"
            );
        }
        // One with too few copies for its owner is a stray, but no copy that is taken back.
        assert!(shared.stray(RAW, &cell(2).as_ref()).is_some());
        assert!(!shared.gives_back(RAW, &cell(2).as_ref()));
        // A cell that comes over a later record keeps the copies of that one, and no more.
        let over = |older| {
            shared
                .over(cell(3), older, PairMember::Own, RAW, CLOCK)
                .copies
        };
        assert_eq!((over(5), over(3)), (5, 3));
        let mut first = seen(3, 1);
        first.narrowing = Narrowing::up_to(CLOCK, 3);
        assert_eq!(first.stray(RAW, &old.as_ref()), None, "a first owner");
        assert!(first.has(RAW, first.copies_of(&old.as_ref())));
    }

    /// The clock of the member that looks may be days ahead.
    #[test]
    fn a_value_that_has_ended_is_a_stray_and_a_delete_is_none() {
        let shared = seen(4, 1);
        let stray = |cell: &Cell| shared.stray(RAW, &cell.as_ref()).is_some();
        let mut ends = cell(3);
        ends.expiry_ms = Some(1_000);
        assert!(stray(&ends));
        ends.kind = Kind::Tombstone;
        assert!(!stray(&ends));
    }

    #[test]
    fn a_value_is_a_stray_behind_its_copies_and_the_factor() {
        let stray = |own, copies| seen(own, 1).stray(RAW, &cell(copies).as_ref());
        let partition = layout().ring().partition(RAW);
        for (own, copies) in [(2, 1), (3, 5), (4, 4)] {
            assert_eq!(stray(own, copies), None, "{own} {copies}");
        }
        for (own, copies) in [(5, 4), (4, 3)] {
            assert_eq!(stray(own, copies), Some(partition), "{own} {copies}");
        }
    }
}
