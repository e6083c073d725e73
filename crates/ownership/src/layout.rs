//! The topology of one epoch as an event loop needs it: members, owners, and positions that move.
//!
//! ```text
//! partition 17    h3 h1 h7 | h2 …            position 1 moves from h1 to h9: the twin of h1 is h9
//!                    └ h9
//! Layout          one value for each epoch; a loop swaps it in one step (`Event::Layout`)
//! Fence           shared by the loops of a member: since which epoch each partition has its owners
//! ```
//!
//! A position that moves has answered only when both owners have: the old one and its twin. Each
//! position is one logical replica through the move.
//!
//! * Until the twin has loaded, the old owner holds all that the position ever confirmed. After
//!   that the next epoch may have begun, in which the twin confirms alone. So the position shows a
//!   clock or a copy once both have.
//! * The position confirms a write, a promise or an acceptance once both have. A cell that it shows
//!   is held only if both hold it. So a read counts it as a holder only after a write to both.
//! * The twin loads from the old owner after its fence. Then it holds all that the old owner
//!   confirmed alone. An answer to a question of an older epoch leaves in front of the fence: its
//!   write was stored before. After the fence such a question is refused.
//!
//! Invariants
//! 1. A member keeps its index for as long as it is a member. A later member may get the index of
//!    one that was removed.
//! 2. The fence rises before any loop of the member sees the layout of its epoch.
//! 3. A partition has at most one twin, beside a position below the stored owners.
//!
//! Not here: the epochs (`epoch/`), loading, and which answers are enough (crate `node`).
//! See: docs/protocol.md, "Changes of members".

use crate::epoch::record::horizons::Horizons;
use crate::epoch::record::narrowing::Narrowing;
use crate::epoch::record::{EpochChange, EpochMember, EpochRecord, MemberStatus};
use crate::limits::MEMBERS_MAX;
use crate::member::MemberIndex;
use crate::ring::table::{BadTable, MemberId};
use crate::ring::{Partition, Ring};
use crate::topology::{Member, Topology};
use dendra_base::{CellRef, ClusterVersion, ClusterVersions, LeastSuccessor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The new owner of a position that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin {
    /// The position, counted from 0.
    pub place: u8,
    /// The new owner.
    pub member: MemberIndex,
    /// Is the position new? Then no member holds it now, and it does not count yet: majorities of n
    /// and of n + 1 owners meet.
    pub is_added: bool,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    topology: Arc<Topology>,
    ring: Arc<Ring>,
    /// By member index: its number for ever; `None` = the place of a member that was removed.
    ids: Vec<Option<MemberId>>,
    /// Members that the plan under way takes away; none once it is cancelled.
    leaving: Vec<MemberIndex>,
    /// By partition; empty while no position moves.
    twins: Vec<Option<Twin>>,
    /// Since which epoch each partition has these owners, as far as this process knows; empty =
    /// since that of the layout.
    changed: Vec<u64>,
    in_force: ClusterVersion,
    horizons: Horizons,
    narrowing: Narrowing,
    least_successor: LeastSuccessor,
    /// The largest replication factor since horizons rose last, as far as this process knows.
    copies_to_forget: u8,
    /// The largest replication factor since horizons rose last, where this process does not know
    /// all of that time: as many copies as there can have been.
    copies_to_purge: u8,
}

impl Layout {
    /// Layout of a static list: all members are founders, and no position moves.
    pub fn of_list(topology: &Arc<Topology>) -> Layout {
        Layout::of_ring(topology, &Arc::new(Ring::new(topology)))
    }

    /// Layout of a static list whose ring is known.
    pub fn of_ring(topology: &Arc<Topology>, ring: &Arc<Ring>) -> Layout {
        Layout {
            ring: Arc::clone(ring),
            ids: (0..u32::from(topology.len()))
                .map(|id| Some(MemberId(id)))
                .collect(),
            topology: Arc::clone(topology),
            leaving: Vec::new(),
            twins: Vec::new(),
            changed: Vec::new(),
            in_force: ClusterVersions::OWN.oldest,
            horizons: Horizons::default(),
            narrowing: Narrowing::default(),
            least_successor: LeastSuccessor::default(),
            copies_to_forget: topology.copies(),
            copies_to_purge: topology.copies(),
        }
    }

    /// Layout of a record, at the start of a process.
    ///
    /// # Errors
    /// When the record's table names members that it does not have.
    pub fn of_record(record: &EpochRecord) -> Result<Layout, BadTable> {
        let members = record.members().iter();
        let slots = members.map(|member| Some((member.id, member.place.clone())));
        Layout::with_slots(record, slots.collect(), None)
    }

    /// Layout of the record that follows the one of this layout, or of a later one when those in
    /// between are lost: members keep their indexes.
    ///
    /// # Errors
    /// As [`Layout::of_record`].
    pub fn next(&self, record: &EpochRecord) -> Result<Layout, BadTable> {
        let mut slots: Vec<Option<(MemberId, Member)>> = Vec::new();
        for id in &self.ids {
            let member = id.and_then(|id| record.member(id));
            slots.push(member.map(|member| (member.id, member.place.clone())));
        }
        for member in record.members() {
            if self.index_of(member.id).is_some() {
                continue;
            }
            let entry = Some((member.id, member.place.clone()));
            // A place that became free in this very epoch is left alone: loops may still have
            // answers of its member on their way.
            let mut free = (0..self.ids.len()).filter(|at| self.ids[*at].is_none());
            match free.find(|at| slots[*at].is_none()) {
                Some(at) => slots[at] = entry,
                None => slots.push(entry),
            }
        }
        let mut next = Layout::with_slots(record, slots, Some(self))?;
        let is_behind_hole = self.epoch() + 1 != record.epoch();
        if record.change() != EpochChange::Forgot {
            next.copies_to_forget = next.copies_to_forget.max(self.copies_to_forget);
            next.copies_to_purge = if is_behind_hole {
                next.topology.live().max(1)
            } else {
                next.copies_to_purge.max(self.copies_to_purge)
            };
        }
        if is_behind_hole {
            // No record tells since when: `changed` is that of this epoch.
            return Ok(next);
        }
        let old = |partition| (self.ring.owners(partition), self.arriving(partition));
        let stored = usize::from(record.owners().copies());
        next.changed = next
            .ring
            .all()
            .map(|partition| {
                let ((was, twin), is) = (old(partition), next.ring.owners(partition));
                let is_same = was.get(..stored) == is.get(..stored)
                    && twin == next.arriving(partition)
                    && self.topology.copies() == next.topology.copies()
                    // The fence of a horizon is one for all partitions, and so is that of a least
                    // successor number.
                    && self.horizons == next.horizons
                    && self.least_successor == next.least_successor;
                if is_same {
                    self.changed(partition)
                } else {
                    record.epoch()
                }
            })
            .collect();
        Ok(next)
    }

    fn with_slots(
        record: &EpochRecord,
        slots: Vec<Option<(MemberId, Member)>>,
        before: Option<&Layout>,
    ) -> Result<Layout, BadTable> {
        if slots.len() > MEMBERS_MAX {
            return Err(BadTable::Members);
        }
        let ids: Vec<Option<MemberId>> = slots.iter().map(|slot| Some(slot.as_ref()?.0)).collect();
        let members = slots.into_iter().map(|slot| slot.map(|(_, member)| member));
        let topology = Topology::of_epoch(
            record.name(),
            record.epoch(),
            members.collect(),
            record.replication_factor(),
            record.partitions(),
        );
        let is_same = |old: &&Layout| {
            ids == old.ids
                && topology.members() == old.topology.members()
                && topology.copies() == old.topology.copies()
        };
        let ring = match before.filter(is_same) {
            Some(old) => old.ring.amended(record.owners(), &topology, &ids)?,
            None => Ring::of(record.owners(), &topology, &ids)?,
        };
        let index = |id: MemberId| ids.iter().position(|slot| *slot == Some(id));
        let twin = |partition| {
            let moving = record.owners().moving(partition)?;
            let member = u8::try_from(index(moving.to?)?).ok()?;
            Some(Twin {
                place: moving.position,
                member: MemberIndex(member),
                is_added: moving.from.is_none(),
            })
        };
        let twins: Vec<Option<Twin>> = record.owners().all().map(twin).collect();
        let of_epoch = record.members().iter();
        let goes_on = record.plan().is_some_and(|plan| !plan.is_cancelled);
        let leaving = of_epoch.filter(|member| goes_on && member.status == MemberStatus::Leaving);
        let place = |member: &EpochMember| Some(MemberIndex(u8::try_from(index(member.id)?).ok()?));
        let leaving = leaving.filter_map(place).collect();
        let is_moving = twins.iter().any(Option::is_some);
        Ok(Layout {
            copies_to_forget: topology.copies(),
            copies_to_purge: topology.copies(),
            topology: Arc::new(topology),
            ring: Arc::new(ring),
            ids,
            leaving,
            twins: if is_moving { twins } else { Vec::new() },
            changed: Vec::new(),
            in_force: record.in_force(),
            horizons: *record.horizons(),
            narrowing: *record.narrowing(),
            least_successor: record.least_successor(),
        })
    }

    /// This layout with the factors of these epochs before it: those of the folder, the oldest
    /// first. The folder of a member that joined does not tell the factors of before.
    pub(crate) fn behind<'a>(mut self, records: impl Iterator<Item = &'a EpochRecord>) -> Layout {
        let mut records = records.peekable();
        let first = records.peek().map(|record| record.change());
        let mut is_known = first == Some(EpochChange::Founded);
        let mut most = 0;
        for record in records {
            let factor = record.replication_factor();
            let has_risen = record.change() == EpochChange::Forgot;
            is_known |= has_risen;
            most = if has_risen { factor } else { factor.max(most) };
        }
        let members = self.topology.live().max(1);
        self.copies_to_forget = self.copies_to_forget.max(most.min(members));
        self.copies_to_purge = if is_known {
            self.copies_to_forget
        } else {
            members
        };
        self
    }

    /// Number of the epoch.
    pub fn epoch(&self) -> u64 {
        self.topology.epoch()
    }

    /// The version in force: this member sends and writes no format that is newer.
    pub fn in_force(&self) -> ClusterVersion {
        self.in_force
    }

    /// The ages up to which the cluster forgets.
    pub fn horizons(&self) -> &Horizons {
        &self.horizons
    }

    /// Which records have fewer copies than their cells say.
    pub fn narrowing(&self) -> &Narrowing {
        &self.narrowing
    }

    /// The least successor number of a conditional write.
    pub fn least_successor(&self) -> LeastSuccessor {
        self.least_successor
    }

    /// Is this a copy that the member gives back, because the replication factor was lowered?
    pub fn gives_back(
        &self,
        member: MemberIndex,
        partition: Partition,
        cell: &CellRef<'_>,
    ) -> bool {
        let copies = self.copies_of(cell);
        copies < cell.copies && !self.owns(member, partition, copies.max(self.topology.copies()))
    }

    /// How many copies the record has in this epoch.
    pub fn copies_of(&self, cell: &CellRef<'_>) -> u8 {
        self.narrowing.copies_of(cell)
    }

    /// The largest replication factor since horizons rose last. A delete with fewer copies is never
    /// taken for one that may have been purged. An owner that a lower factor does not count may
    /// hold an older value, until all copies were compared once more.
    pub fn copies_to_forget(&self) -> u8 {
        self.copies_to_forget
    }

    /// The store of this member keeps deletes and ended values that have fewer copies, of any age.
    /// It is more than [`Layout::copies_to_forget`] in a member that joined since horizons rose
    /// last: that member does not know the former factors. It still compares and promises by the
    /// same number as the other members.
    pub fn copies_to_purge(&self) -> u8 {
        self.copies_to_purge
    }

    /// At which place, counted from 1, the member is an owner of the partition; 0 = it is none.
    pub fn place_of(&self, member: MemberIndex, partition: Partition) -> u8 {
        let mut owners = self.ring.owners(partition).iter();
        let at = owners.position(|owner| *owner == member);
        at.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0)
    }

    /// Members and numbers of the epoch.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Table of the epoch's owners. Where a position moves, the old owner stands there.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// The new owner of the position of this partition that moves from one member to another.
    pub fn twin(&self, partition: Partition) -> Option<Twin> {
        self.arriving(partition).filter(|twin| !twin.is_added)
    }

    /// Twin of the position that moves, or owner of a position that is added.
    pub fn arriving(&self, partition: Partition) -> Option<Twin> {
        *self.twins.get(partition.at())?
    }

    /// Since which epoch the partition has its owners; never too early.
    pub fn changed(&self, partition: Partition) -> u64 {
        let changed = self.changed.get(partition.at()).copied();
        changed.unwrap_or(self.epoch())
    }

    /// The index of a member.
    pub fn index_of(&self, id: MemberId) -> Option<MemberIndex> {
        let at = self.ids.iter().position(|slot| *slot == Some(id))?;
        Some(MemberIndex(u8::try_from(at).ok()?))
    }

    /// The number of the member with this index; `None` for one that was removed.
    pub fn id_of(&self, member: MemberIndex) -> Option<MemberId> {
        *self.ids.get(member.at())?
    }

    /// Does a plan take this member away: removed, or replaced by another one?
    pub fn leaves(&self, member: MemberIndex) -> bool {
        self.leaving.contains(&member)
    }

    /// All members by their indexes.
    pub fn members(&self) -> impl Iterator<Item = MemberIndex> + use<'_> {
        let slots = (0u8..).zip(&self.ids);
        slots.filter_map(|(at, id)| id.map(|_| MemberIndex(at)))
    }

    /// Does the member keep copies of `copies` owners' records of this partition, or load them?
    pub fn owns(&self, member: MemberIndex, partition: Partition, copies: u8) -> bool {
        let owners = self.ring.owners(partition);
        let copies = usize::from(copies).min(owners.len());
        let is_twin = |twin: Twin| twin.member == member && usize::from(twin.place) < copies;
        owners[..copies].contains(&member) || self.arriving(partition).is_some_and(is_twin)
    }

    /// Is the record a stray that the folder of this member drops? One with fewer copies than the
    /// replication factor may have had more. `seen` = the partitions in which comparisons of this
    /// epoch saw a stray of the member.
    ///
    /// In these partitions all old records go, also those with enough copies for the member. The
    /// record that goes may hide one of them, which must not become visible. The first owners hold
    /// all of them, and bring them again. No other partition loses a record.
    pub fn drops(
        &self,
        member: MemberIndex,
        raw_key: &[u8],
        cell: &CellRef<'_>,
        seen: &BTreeSet<Partition>,
    ) -> bool {
        let partition = self.ring.partition(raw_key);
        let copies = self.topology.copies();
        let is_foreign = !self.owns(member, partition, cell.copies.max(copies));
        let is_old = || cell.age() <= self.horizons.floor() || cell.age() == u64::MAX;
        let is_beyond = || !self.owns(member, partition, copies);
        seen.contains(&partition) && (is_foreign || (is_beyond() && is_old()))
    }
}

/// The newest epoch that is durable at this member, for all its loops, and since when each
/// partition has its owners. A question of an older epoch about it is refused, also when its answer
/// is about to leave.
#[derive(Debug)]
pub struct Fence {
    epoch: AtomicU64,
    noted: u64,
    changed: Box<[AtomicU64]>,
    /// By the origin of a loop: up to which epoch it has no work of an earlier one under way.
    drained: Mutex<BTreeMap<u32, u64>>,
}

impl Fence {
    /// Fence of the layout with which a process starts.
    pub fn at(layout: &Layout) -> Fence {
        Fence::noted(layout, 0)
    }

    /// Fence of a folder that has taken part in epoch `noted`. Questions of older epochs are
    /// refused, also while the records of later ones than that of the layout cannot be read.
    pub fn noted(layout: &Layout, noted: u64) -> Fence {
        let changed = layout.ring.all().map(|p| layout.changed(p).max(noted));
        Fence {
            epoch: AtomicU64::new(layout.epoch()),
            noted,
            changed: changed.map(AtomicU64::new).collect(),
            drained: Mutex::default(),
        }
    }

    /// The layout's epoch is durable. To be called before any loop gets the layout.
    pub fn advance(&self, layout: &Layout) {
        for (partition, changed) in layout.ring.all().zip(&self.changed) {
            changed.fetch_max(layout.changed(partition), Ordering::SeqCst);
        }
        self.epoch.fetch_max(layout.epoch(), Ordering::SeqCst);
    }

    /// A loop has adopted this epoch, and has no operation or order of an earlier one any more.
    pub fn note_drained(&self, origin: u32, epoch: u64) {
        let mut drained = self.drained.lock().unwrap_or_else(PoisonError::into_inner);
        drained.insert(origin, epoch);
    }

    /// The epoch of which all loops said so; 0 without a loop.
    pub fn drained(&self) -> u64 {
        let drained = self.drained.lock().unwrap_or_else(PoisonError::into_inner);
        drained.values().min().copied().unwrap_or(0)
    }

    /// The newest epoch that is durable.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// The newest epoch that the folder has taken part in: a later one than `epoch` while that
    /// record is lost.
    pub fn taken_part(&self) -> u64 {
        self.epoch().max(self.noted)
    }

    /// Since which epoch the partition has its owners; `None` asks for all partitions at once.
    pub fn changed(&self, partition: Option<Partition>) -> u64 {
        match partition {
            Some(partition) => self.changed[partition.at()].load(Ordering::SeqCst),
            None => self.taken_part(),
        }
    }
}
