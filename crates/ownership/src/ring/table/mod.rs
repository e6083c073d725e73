//! The table of owners as a cluster keeps it: a value that is stored and changed step by step.
//!
//! ```text
//! partition 17   [h3, h1, h7]                the first `from` owners hold a record of `from` copies
//! begin          [h3, h1 → h9, h7]           position 1 counts when both h1 and h9 answered
//! settle         [h3, h9, h7]
//! withdraw       [h3, h1, h7]                the other way out of `begin`
//!
//! [h3, h1, h7, ∅ → h9]   a fourth copy       [h3, h1, h7 → ∅]   one copy fewer
//! ```
//!
//! Members are named by numbers that the table gives out once. A number outlives changes of the
//! list, of addresses and of the order in which URLs sort; `MemberIndex` does not.
//!
//! Invariants
//! 1. Each partition has an owner, no owner twice, and only owners that are members.
//! 2. At most one position of a partition moves, and its new owner holds no other position of it.
//! 3. A number is below `next`, and `next` only grows: no number is given twice.
//! 4. An owner keeps its position until one in front of it is taken away: the first owners of a
//!    record with fewer copies stay.
//!
//! Not here: which positions should move (`plan/`), the bytes (`table/codec.rs`), agreement on
//! the table, the meaning of a moving position for a quorum.
//! See: docs/format/owners.md, docs/decisions/0024-tables-are-stored.md.

mod codec;

pub(crate) use codec::BYTES_MAX as TABLE_BYTES_MAX;

use super::choice::{Members, dealt, each};
use super::shares::{Rounds, shares};
use super::{Partition, Ring, costs, zones};
use crate::limits::{MEMBERS_MAX, TABLE_MEMBERS_MAX};
use crate::member::MemberIndex;
use crate::topology::{PARTITIONS, Topology};
use std::fmt;
use std::sync::Arc;

/// The most partitions that a table can have.
const PARTITIONS_MAX: usize = PARTITIONS[PARTITIONS.len() - 1] as usize;

/// A member's number in its cluster: given once, never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.0)
    }
}

/// A position of a partition that is on its way from one member to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moving {
    /// Which position; one past the last owner when it is being added.
    pub position: u8,
    /// Owner until now; `None` when the position is being added.
    pub from: Option<MemberId>,
    /// Next owner; `None` when the position is being taken away.
    pub to: Option<MemberId>,
}

/// One step of a plan: a position of a partition gets another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Partition of the position.
    pub partition: Partition,
    /// The position, its old and its new owner.
    pub moving: Moving,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnerRow {
    /// In their order; the old one at a position that moves.
    owners: Vec<MemberId>,
    moving: Option<Moving>,
}

/// The table of owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerTable {
    next: u32,
    /// Sorted.
    members: Vec<MemberId>,
    rows: Vec<OwnerRow>,
}

/// Why there is no such table. `Display` names the rule that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTable {
    /// A format that this release does not know.
    Format {
        /// Number of the format, as read.
        format: u8,
    },
    /// The bytes end too early, or go on after the end.
    Length,
    /// The bytes are not those that were written.
    Checksum,
    /// No member or too many, out of order, or a number that was not given yet.
    Members,
    /// No partition, or more than a cluster can have.
    Partitions {
        /// Number of partitions, as read.
        partitions: usize,
    },
    /// A partition without an owner, with one twice, or with one that is no member.
    Owners {
        /// The partition.
        partition: u16,
    },
    /// A position that cannot move like this.
    Moving {
        /// Partition of the position.
        partition: u16,
    },
}

impl fmt::Display for BadTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadTable::Format { format } => write!(
                f,
                "the table of owners has the format {format}, and this release reads 1; use the \
                 release that wrote it, or a newer one"
            ),
            BadTable::Length => f.write_str("the table of owners has a wrong length"),
            BadTable::Checksum => f.write_str("the table of owners does not match its checksum"),
            BadTable::Members => write!(
                f,
                "the table of owners does not name 1 to {TABLE_MEMBERS_MAX} members, each once, \
                 in order, each with a number that was given"
            ),
            BadTable::Partitions { partitions } => write!(
                f,
                "the table of owners has {partitions} partitions, not 1 to {PARTITIONS_MAX}"
            ),
            BadTable::Owners { partition } => write!(
                f,
                "partition {partition} does not have 1 to {MEMBERS_MAX} owners, each a member, \
                 each once"
            ),
            BadTable::Moving { partition } => {
                write!(f, "partition {partition} has a move that cannot be")
            }
        }
    }
}

impl std::error::Error for BadTable {}

/// Why a step is not taken. `Display` names the obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadStep {
    /// Another position of the partition moves already, or the table has no such partition.
    Busy {
        /// The partition.
        partition: Partition,
    },
    /// The position has another owner, or the new owner has another position, or is no member.
    Stale {
        /// The step.
        step: Move,
    },
    /// No position of the partition moves.
    Still {
        /// The partition.
        partition: Partition,
    },
    /// The member owns a position, or is about to.
    Owner {
        /// The member.
        member: MemberId,
    },
    /// The owner is no member, or its number was given before.
    Member {
        /// The member.
        member: MemberId,
    },
    /// There are as many members as a table may name, or all numbers were given.
    Full,
}

impl fmt::Display for BadStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadStep::Busy { partition } => write!(
                f,
                "a position of partition {} moves already; one at a time",
                partition.0
            ),
            BadStep::Stale { step } => write!(
                f,
                "position {} of partition {} cannot move like this: the plan was made for \
                 another table",
                step.moving.position, step.partition.0
            ),
            BadStep::Still { partition } => {
                write!(f, "no position of partition {} moves", partition.0)
            }
            BadStep::Owner { member } => {
                write!(f, "{member} still owns copies; move them away first")
            }
            BadStep::Member { member } => {
                write!(f, "{member} is not in the table, or had its number before")
            }
            BadStep::Full => write!(
                f,
                "the table names {TABLE_MEMBERS_MAX} members already, or gave all numbers"
            ),
        }
    }
}

impl std::error::Error for BadStep {}

impl OwnerTable {
    /// The table that a cluster is founded with: [`Ring::new`]'s owners for the replication factor.
    /// The founders' numbers are [`OwnerTable::founders`].
    pub fn first(topology: &Topology) -> OwnerTable {
        let ring = Ring::new(topology);
        let copies = usize::from(topology.copies());
        let id = |member: &MemberIndex| MemberId(u32::from(member.0));
        let rows = ring.all().map(|partition| OwnerRow {
            owners: ring.owners(partition)[..copies].iter().map(id).collect(),
            moving: None,
        });
        OwnerTable {
            next: u32::from(topology.len()),
            members: OwnerTable::founders(topology),
            rows: rows.collect(),
        }
    }

    /// The numbers of the members of a topology that founds a cluster, in the order of its list.
    pub fn founders(topology: &Topology) -> Vec<MemberId> {
        (0..u32::from(topology.len())).map(MemberId).collect()
    }

    /// A table with these owners, no position moving.
    ///
    /// # Errors
    /// When an invariant does not hold.
    pub fn of_owners(
        next: u32,
        members: Vec<MemberId>,
        owners: Vec<Vec<MemberId>>,
    ) -> Result<OwnerTable, BadTable> {
        let row = |row_owners| OwnerRow {
            owners: row_owners,
            moving: None,
        };
        OwnerTable {
            next,
            members,
            rows: owners.into_iter().map(row).collect(),
        }
        .checked()
    }

    fn checked(self) -> Result<OwnerTable, BadTable> {
        let is_sorted = self.members.windows(2).all(|pair| pair[0] < pair[1]);
        let is_count = (1..=TABLE_MEMBERS_MAX).contains(&self.members.len());
        let is_given = self.members.last().is_some_and(|last| last.0 < self.next);
        if !is_sorted || !is_count || !is_given {
            return Err(BadTable::Members);
        }
        let partitions = self.rows.len();
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            return Err(BadTable::Partitions { partitions });
        }
        for (partition, row) in (0u16..).zip(&self.rows) {
            let owners = row.owners.iter().enumerate();
            let is_owner = |(at, owner): (usize, &MemberId)| {
                self.has(*owner) && !row.owners[..at].contains(owner)
            };
            let has_owners = (1..=MEMBERS_MAX).contains(&row.owners.len());
            if !has_owners || !owners.clone().all(is_owner) {
                return Err(BadTable::Owners { partition });
            }
            if row.moving.is_some_and(|moving| !self.may_move(row, moving)) {
                return Err(BadTable::Moving { partition });
            }
        }
        Ok(self)
    }

    fn may_move(&self, row: &OwnerRow, moving: Moving) -> bool {
        let (position, len) = (usize::from(moving.position), row.owners.len());
        let is_place = match (moving.from, moving.to) {
            (Some(_), Some(_)) => position < len,
            (None, Some(_)) => position == len && len < MEMBERS_MAX,
            (Some(_), None) => position < len && len > 1,
            (None, None) => false,
        };
        let is_new = |to| self.has(to) && !row.owners.contains(&to);
        is_place && row.owners.get(position).copied() == moving.from && moving.to.is_none_or(is_new)
    }

    /// The number that the next new member gets.
    pub fn next(&self) -> MemberId {
        MemberId(self.next)
    }

    /// All members, sorted by number; some may own no position.
    pub fn members(&self) -> &[MemberId] {
        &self.members
    }

    /// Is it a member?
    pub fn has(&self, member: MemberId) -> bool {
        self.members.binary_search(&member).is_ok()
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> u16 {
        u16::try_from(self.rows.len()).expect("a table has at most PARTITIONS_MAX partitions")
    }

    /// All partitions.
    pub fn all(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.partitions()).map(Partition)
    }

    /// The owners of a partition in their order, the old one at a position that moves.
    ///
    /// # Panics
    /// When the partition is not of this table.
    pub fn owners(&self, partition: Partition) -> &[MemberId] {
        &self.rows[partition.at()].owners
    }

    /// The position of a partition that moves.
    ///
    /// # Panics
    /// When the partition is not of this table.
    pub fn moving(&self, partition: Partition) -> Option<Moving> {
        self.rows[partition.at()].moving
    }

    /// Copies of the partition that has the most.
    pub fn copies(&self) -> u8 {
        let most = self.rows.iter().map(|row| row.owners.len()).max();
        let most = most.expect("a table has a partition");
        u8::try_from(most).expect("a partition has at most MEMBERS_MAX owners")
    }

    /// How many partitions the member is among the first `copies` owners of.
    pub fn load(&self, member: MemberId, copies: u8) -> usize {
        let first = |row: &&OwnerRow| {
            let count = row.owners.len().min(usize::from(copies));
            row.owners[..count].contains(&member)
        };
        self.rows.iter().filter(first).count()
    }

    /// Takes a new member in, which owns no position yet, under a number that was not given before:
    /// [`OwnerTable::next`], or a later one.
    ///
    /// # Errors
    /// When the number was given, or the table is full.
    pub fn admit(&mut self, member: MemberId) -> Result<(), BadStep> {
        if member.0 < self.next {
            return Err(BadStep::Member { member });
        }
        let after = member.0.checked_add(1).ok_or(BadStep::Full)?;
        if self.members.len() == TABLE_MEMBERS_MAX {
            return Err(BadStep::Full);
        }
        self.next = after;
        self.members.push(member);
        Ok(())
    }

    /// Leaves a member out that owns no position. Its number is not given again.
    ///
    /// # Errors
    /// When it owns something, or is none.
    pub fn dismiss(&mut self, member: MemberId) -> Result<(), BadStep> {
        let at = self.members.binary_search(&member);
        let at = at.map_err(|_| BadStep::Member { member })?;
        let owns = |row: &OwnerRow| {
            row.owners.contains(&member) || row.moving.is_some_and(|m| m.to == Some(member))
        };
        if self.rows.iter().any(owns) {
            return Err(BadStep::Owner { member });
        }
        self.members.remove(at);
        Ok(())
    }

    /// A position starts to move: from now on it counts when both owners have answered.
    ///
    /// # Errors
    /// When another position of the partition moves, or the step is not of this table.
    pub fn begin(&mut self, step: Move) -> Result<(), BadStep> {
        let partition = step.partition;
        let row = self.rows.get(partition.at());
        let row = row.filter(|row| row.moving.is_none());
        let row = row.ok_or(BadStep::Busy { partition })?;
        if !self.may_move(row, step.moving) {
            return Err(BadStep::Stale { step });
        }
        self.rows[partition.at()].moving = Some(step.moving);
        Ok(())
    }

    /// The position that moves has arrived.
    ///
    /// # Errors
    /// When no position moves.
    pub fn settle(&mut self, partition: Partition) -> Result<(), BadStep> {
        let row = self.rows.get_mut(partition.at());
        let row = row.ok_or(BadStep::Still { partition })?;
        let moving = row.moving.take().ok_or(BadStep::Still { partition })?;
        match (moving.from, moving.to) {
            (Some(_), Some(to)) => row.owners[usize::from(moving.position)] = to,
            (None, Some(to)) => row.owners.push(to),
            (_, None) => {
                row.owners.remove(usize::from(moving.position));
            }
        }
        Ok(())
    }

    /// The position that moves stays where it was.
    ///
    /// # Errors
    /// When no position moves.
    pub fn withdraw(&mut self, partition: Partition) -> Result<(), BadStep> {
        let row = self.rows.get_mut(partition.at());
        let moving = row.and_then(|row| row.moving.take());
        moving.map(|_| ()).ok_or(BadStep::Still { partition })
    }
}

impl Ring {
    /// The owners of `table`, and after them the other members in the order in which
    /// [`Ring::new`] would ask them. `ids` are the numbers of the topology's members, in the
    /// order of its list; `None` = the place of a member that was removed. Where a position moves,
    /// its old owner counts.
    ///
    /// # Errors
    /// When a partition has an owner that the topology does not have, or the table has other
    /// partitions.
    pub fn of(
        table: &OwnerTable,
        topology: &Topology,
        ids: &[Option<MemberId>],
    ) -> Result<Ring, BadTable> {
        let hash_key = topology.hash_key();
        let members = topology.members().iter();
        let costs = members.map(|member| costs::costs(&hash_key, member, topology.partitions()));
        let ring = Ring {
            hash_key,
            partitions: topology.partitions(),
            width: ids.iter().flatten().count(),
            rows: Box::default(),
            chosen: Box::default(),
            shares: shares_of_levels(topology, &zones(topology.members())),
            costs: Arc::new(costs.collect()),
        };
        ring.amended(table, topology, ids)
    }

    /// Ring of the same members with the owners of another table: only rows that differ are made
    /// anew.
    ///
    /// # Errors
    /// As [`Ring::of`].
    pub(crate) fn amended(
        &self,
        table: &OwnerTable,
        topology: &Topology,
        ids: &[Option<MemberId>],
    ) -> Result<Ring, BadTable> {
        let (members, partitions) = (topology.members(), topology.partitions());
        if table.partitions() != partitions {
            let rows = table.rows.len();
            return Err(BadTable::Partitions { partitions: rows });
        }
        if ids.len() != members.len() {
            return Err(BadTable::Members);
        }
        let zones = zones(members);
        let live = (0..members.len()).filter(|at| ids[*at].is_some());
        let everybody: Members = live.fold(0, |all, member| all | 1 << member);
        let index = |member: usize| {
            MemberIndex(u8::try_from(member).expect("a topology has at most MEMBERS_MAX members"))
        };
        let mut chosen = Vec::with_capacity(usize::from(partitions));
        let mut rows = Vec::with_capacity(members.len() * usize::from(partitions));
        for (partition, row) in (0u16..).zip(&table.rows) {
            let mut taken = 0;
            let at = usize::from(partition) * self.width;
            let before = self.rows.get(at..at + self.width).unwrap_or_default();
            let known = before.iter().map(|member| ids[member.at()]);
            let len = u8::try_from(row.owners.len()).expect("at most MEMBERS_MAX owners");
            chosen.push(len);
            let is_same = self.chosen.get(usize::from(partition)) == Some(&len)
                && known
                    .take(row.owners.len())
                    .eq(row.owners.iter().copied().map(Some));
            if is_same {
                rows.extend_from_slice(before);
                continue;
            }
            for owner in &row.owners {
                let place = ids.iter().position(|id| *id == Some(*owner));
                let place = place.ok_or(BadTable::Owners { partition })?;
                taken |= 1 << place;
                rows.push(index(place));
            }
            let rest = dealt(
                everybody,
                taken,
                &self.costs,
                &zones,
                usize::from(partition),
            );
            rows.extend(rest.into_iter().map(index));
            debug_assert_eq!(each(taken).count(), row.owners.len());
        }
        Ok(Ring {
            rows: rows.into(),
            chosen: chosen.into(),
            costs: Arc::clone(&self.costs),
            shares: self.shares.clone(),
            ..*self
        })
    }
}

/// Share of each member in the copies for 1, 2, … up to the replication factor, in partitions.
fn shares_of_levels(topology: &Topology, zones: &[usize]) -> Vec<Vec<f64>> {
    let weights: Vec<u16> = topology.members().iter().map(|m| m.weight).collect();
    let mut sizes = vec![0; zones.iter().max().map_or(0, |most| most + 1)];
    for zone in zones {
        sizes[*zone] += 1;
    }
    let of = |copies: usize| {
        let of_one = shares(&weights, zones, &Rounds::new(&sizes, copies), copies);
        let partitions = f64::from(topology.partitions());
        of_one.iter().map(|share| share * partitions).collect()
    };
    (1..=usize::from(topology.copies())).map(of).collect()
}

#[cfg(test)]
mod tests;
