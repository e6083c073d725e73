//! One epoch of a cluster's life as a value: its members, its table of owners, the plan under way.
//!
//! ```text
//! epoch 1  Founded    ◄── digest ── epoch 2  Enrolled   ◄── digest ── epoch 3  Planned ◄── …
//!
//! joining ──► member ──► leaving ──► removed, for ever       a member's status, from the left
//!                  ◄────────┘ cancelled
//! ```
//!
//! A record names everything that members have to agree on. It is one value of a few kilobytes: the
//! chain of epochs chooses it as a whole, and every member stores it as a whole.
//!
//! Invariants
//! 1. `members` are those of `owners`, sorted by number; no node id and no address twice. A joining
//!    member may have the address of a leaving one: it is started in its place.
//! 2. A removed member is no member, and its node id is none of theirs.
//! 3. Positions move only under a plan, and every one that moves is a begun move of the plan.
//! 4. The moves that are left can be carried out on `owners` one after the other; then the table is
//!    the plan's target.
//! 5. Equal records have equal bytes.
//!
//! Not here: which record may follow which (`succession.rs`), agreeing on one (`chain/`).
//! See: docs/format/epochs.md, docs/decisions/0025-epochs-by-our-own-paxos.md.

mod changes;
mod codec;
pub mod horizons;
mod known_folder;
pub mod narrowing;

pub use changes::{NewPlan, is_nowhere, nowhere};
pub use known_folder::KnownFolder;

use crate::topology::{BadMember, Member, Topology};

use crate::limits::{MEMBERS_MAX, PLAN_MOVES_MAX, REMOVED_MEMBERS_MAX};
use crate::ring::Partition;
use crate::ring::table::{BadTable, MemberId, Move, Moving, OwnerTable};
use dendra_base::{ClusterVersion, LeastSuccessor};
use horizons::Horizons;
use narrowing::Narrowing;
use std::collections::BTreeSet;
use std::fmt;

/// How far a member has come in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStatus {
    /// A plan brings it in. It may own copies, and has no vote.
    Joining,
    /// A member that votes.
    Member,
    /// A plan takes its copies away. It votes until the plan ends.
    Leaving,
}

/// A member of one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochMember {
    /// Number of the member, for ever.
    pub id: MemberId,
    /// The id of its folder; 0 = a founder that was not enrolled yet.
    pub node: u128,
    /// How far it has come.
    pub status: MemberStatus,
    /// Address, zone and share of the member; a member with a weight of 0 holds no records.
    pub place: Member,
}

/// A member that was removed. Its number and its folder are refused for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedMember {
    /// The number that it had.
    pub id: MemberId,
    /// The id of its folder.
    pub node: u128,
    /// The first epoch without it.
    pub epoch: u64,
}

/// The plan that is being carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanUnderWay {
    /// The epoch that began with it: unique.
    pub id: u64,
    /// The member that proposed it. Any other one may carry it on.
    pub author: MemberId,
    /// True when the plan was stopped: no move of it begins any more.
    pub is_cancelled: bool,
    /// Copies of a record when it has ended.
    pub replication_factor: u8,
    /// [`OwnerTable::digest`] when it has ended; 0 once it was cancelled.
    pub target: u64,
    /// All its moves, in their order. Those of one partition are for different positions.
    pub moves: Vec<Move>,
    /// How many of them have begun, from the front.
    pub begun: usize,
}

impl PlanUnderWay {
    /// Moves that have not begun.
    pub fn left(&self) -> &[Move] {
        &self.moves[self.begun..]
    }
}

/// The change of an epoch from the one before. The two records tell its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochChange {
    /// The first one.
    Founded,
    /// Founders got the ids of their folders.
    Enrolled,
    /// A plan began: members join and leave, weights and zones are new.
    Planned,
    /// Positions arrived, others began to move.
    Moved,
    /// The plan was stopped: positions that were moving stay with their old owners.
    Cancelled,
    /// The plan ended: joining members are members, leaving ones are removed.
    Finished,
    /// A member has another address.
    Readdressed,
    /// The cluster has another generation of secrets.
    Rekeyed,
    /// A later version is in force: all members run releases that know it.
    Finalized,
    /// The horizons rose: deletes that no copy can need any more may be purged.
    Forgot,
    /// A backup was restored into the cluster: its conditional writes give other versions than
    /// those of the cluster that was backed up.
    Restored,
}

/// One epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochRecord {
    pub(super) name: String,
    pub(super) epoch: u64,
    pub(super) previous: u128,
    pub(super) change: EpochChange,
    pub(super) members: Vec<EpochMember>,
    pub(super) removed: Vec<RemovedMember>,
    pub(super) replication_factor: u8,
    pub(super) owners: OwnerTable,
    pub(super) plan: Option<PlanUnderWay>,
    pub(super) secrets: u32,
    pub(super) in_force: ClusterVersion,
    pub(super) horizons: Horizons,
    pub(super) narrowing: Narrowing,
    pub(super) least_successor: LeastSuccessor,
}

/// Why a value is no record. `Display` names the rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadRecord {
    /// A format that this release does not know.
    Format {
        /// Number of the format, as read.
        format: u8,
    },
    /// The bytes end too early, or go on after the end.
    Length,
    /// The bytes are not those that were written.
    Checksum,
    /// A field has a value that no record has.
    Field {
        /// Name of the field on the format page.
        field: &'static str,
    },
    /// The members are not those of the table, out of order, or two are one.
    Members,
    /// A member's address, weight or zone makes no sense.
    Member(BadMember),
    /// Removed members are out of order, too many, or members.
    Removed,
    /// The plan does not fit the table and the members.
    Plan,
    /// The table of owners makes no sense.
    Table(BadTable),
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRecord::Format { format } => write!(
                f,
                "the record of an epoch has the format {format}, and this release reads 1; \
                 use the release that wrote it, or a newer one"
            ),
            BadRecord::Length => f.write_str("the record of an epoch has a wrong length"),
            BadRecord::Checksum => {
                f.write_str("the record of an epoch does not match its checksum")
            }
            BadRecord::Field { field } => {
                write!(f, "the record of an epoch has no such {field}")
            }
            BadRecord::Members => f.write_str(
                "the record of an epoch does not name the members of its table, each once, in order",
            ),
            BadRecord::Member(bad) => bad.fmt(f),
            BadRecord::Removed => write!(
                f,
                "the record of an epoch does not name at most {REMOVED_MEMBERS_MAX} removed \
                 members, in order, none of them a member"
            ),
            BadRecord::Plan => {
                f.write_str("the plan of an epoch cannot be carried out on its table of owners")
            }
            BadRecord::Table(bad) => bad.fmt(f),
        }
    }
}

impl std::error::Error for BadRecord {}

impl From<BadTable> for BadRecord {
    fn from(bad: BadTable) -> BadRecord {
        BadRecord::Table(bad)
    }
}

impl From<BadMember> for BadRecord {
    fn from(bad: BadMember) -> BadRecord {
        BadRecord::Member(bad)
    }
}

impl EpochRecord {
    /// Hands the value back when its invariants hold.
    ///
    /// # Errors
    /// The first one that does not.
    pub(super) fn checked(self) -> Result<EpochRecord, BadRecord> {
        if Topology::check_name(&self.name).is_err() {
            return Err(BadRecord::Field { field: "name" });
        }
        let is_first = self.change == EpochChange::Founded;
        if self.epoch == 0 || is_first != (self.epoch == 1) || is_first != (self.previous == 0) {
            return Err(BadRecord::Field { field: "epoch" });
        }
        if self.in_force < ClusterVersion::FIRST {
            return Err(BadRecord::Field { field: "version" });
        }
        let floors = &self.horizons.floors;
        let is_falling = floors
            .windows(2)
            .all(|two| two[0] > two[1] || two == [0, 0]);
        if !is_falling {
            return Err(BadRecord::Field { field: "horizons" });
        }
        if !self.narrowing.is_sound() {
            return Err(BadRecord::Field { field: "narrowing" });
        }
        if !(1..=MEMBERS_MAX).contains(&usize::from(self.replication_factor)) {
            let field = "replication factor";
            return Err(BadRecord::Field { field });
        }
        self.check_members()?;
        self.check_removed()?;
        self.check_plan()?;
        Ok(self)
    }

    fn check_members(&self) -> Result<(), BadRecord> {
        let ids = self.members.iter().map(|member| member.id);
        if !ids.eq(self.owners.members().iter().copied()) || self.voters().is_empty() {
            return Err(BadRecord::Members);
        }
        let (mut nodes, mut urls) = (BTreeSet::new(), BTreeSet::new());
        for member in &self.members {
            let place = Member {
                weight: member.place.weight.max(1),
                ..member.place.clone()
            };
            if place.clone().checked()? != place {
                return Err(BadRecord::Members);
            }
            let is_leaving = member.status == MemberStatus::Leaving;
            let is_new_url = is_leaving || urls.insert(&member.place.url);
            let is_new_node = member.node == 0 || nodes.insert(member.node);
            let is_plain = member.status == MemberStatus::Member;
            if !is_new_url || !is_new_node || !(is_plain || self.plan.is_some()) {
                return Err(BadRecord::Members);
            }
        }
        // The address of a leaving member: at most one joining member has it, and no other one.
        for leaving in self.with(MemberStatus::Leaving) {
            let others = self.members.iter().filter(|member| member.id != leaving.id);
            let mut others = others.filter(|member| member.place.url == leaving.place.url);
            if others.any(|member| member.status != MemberStatus::Joining) {
                return Err(BadRecord::Members);
            }
        }
        Ok(())
    }

    fn check_removed(&self) -> Result<(), BadRecord> {
        let is_sorted = self.removed.windows(2).all(|pair| pair[0].id < pair[1].id);
        let is_gone = |removed: &RemovedMember| {
            let is_member = self.members.iter().any(|member| {
                member.id == removed.id || (removed.node != 0 && member.node == removed.node)
            });
            let is_past = (2..=self.epoch).contains(&removed.epoch);
            !is_member && is_past && removed.id < self.owners.next()
        };
        let is_count = self.removed.len() <= REMOVED_MEMBERS_MAX;
        if !is_sorted || !is_count || !self.removed.iter().all(is_gone) {
            return Err(BadRecord::Removed);
        }
        Ok(())
    }

    fn check_plan(&self) -> Result<(), BadRecord> {
        let moving = || self.owners.all().filter_map(|p| self.moving(p));
        let Some(plan) = &self.plan else {
            return moving().next().map_or(Ok(()), |_| Err(BadRecord::Plan));
        };
        let is_count = plan.begun <= plan.moves.len() && plan.moves.len() <= PLAN_MOVES_MAX;
        let is_author = plan.author < self.owners.next();
        let is_past = (2..=self.epoch).contains(&plan.id);
        let is_factor = (1..=MEMBERS_MAX).contains(&usize::from(plan.replication_factor));
        if !is_count || !is_author || !is_past || !is_factor {
            return Err(BadRecord::Plan);
        }
        if plan.is_cancelled {
            let is_stopped = plan.left().is_empty() && plan.target == 0;
            return if is_stopped && moving().next().is_none() {
                Ok(())
            } else {
                Err(BadRecord::Plan)
            };
        }
        let key = |step: &Move| {
            let Moving { position, from, to } = step.moving;
            (step.partition, position, from, to)
        };
        let begun: BTreeSet<_> = plan.moves[..plan.begun].iter().map(key).collect();
        let mut after = self.owners.clone();
        for step in moving() {
            if !begun.contains(&key(&step)) || after.settle(step.partition).is_err() {
                return Err(BadRecord::Plan);
            }
        }
        for step in plan.left() {
            let went = after.begin(*step);
            if went.and_then(|()| after.settle(step.partition)).is_err() {
                return Err(BadRecord::Plan);
            }
        }
        for member in self.with(MemberStatus::Leaving) {
            after.dismiss(member.id).map_err(|_| BadRecord::Plan)?;
        }
        if after.digest() == plan.target {
            Ok(())
        } else {
            Err(BadRecord::Plan)
        }
    }

    /// The position of the partition that moves, as a step.
    pub fn moving(&self, partition: Partition) -> Option<Move> {
        let moving = self.owners.moving(partition)?;
        Some(Move { partition, moving })
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster's id: see [`Topology::id`].
    pub fn cluster(&self) -> u64 {
        crate::topology::cluster_id(&self.name)
    }

    /// Which epoch of the cluster's life this is; 1 is the first.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// [`EpochRecord::digest`] of the epoch before; 0 for the first.
    pub fn previous(&self) -> u128 {
        self.previous
    }

    /// The change from the epoch before.
    pub fn change(&self) -> EpochChange {
        self.change
    }

    /// All members, sorted by number.
    pub fn members(&self) -> &[EpochMember] {
        &self.members
    }

    /// One member.
    pub fn member(&self, id: MemberId) -> Option<&EpochMember> {
        let at = self.members.binary_search_by_key(&id, |member| member.id);
        at.ok().map(|at| &self.members[at])
    }

    /// Members that were removed, sorted by number.
    pub fn removed(&self) -> &[RemovedMember] {
        &self.removed
    }

    /// Copies of a record unless its request says otherwise.
    pub fn replication_factor(&self) -> u8 {
        self.replication_factor
    }

    /// The table of owners, with the positions that move.
    pub fn owners(&self) -> &OwnerTable {
        &self.owners
    }

    /// Partitions of the key space.
    pub fn partitions(&self) -> u16 {
        self.owners.partitions()
    }

    /// The plan that is being carried out.
    pub fn plan(&self) -> Option<&PlanUnderWay> {
        self.plan.as_ref()
    }

    /// Generation of the cluster's secrets.
    pub fn secrets(&self) -> u32 {
        self.secrets
    }

    /// The version that is in force: members say and write no form that is newer.
    pub fn in_force(&self) -> ClusterVersion {
        self.in_force
    }

    /// Up to which age the cluster forgets.
    pub fn horizons(&self) -> &Horizons {
        &self.horizons
    }

    /// Which records have fewer copies than their cells say.
    pub fn narrowing(&self) -> &Narrowing {
        &self.narrowing
    }

    /// The least successor number that conditional writes give in this epoch and later ones.
    pub fn least_successor(&self) -> LeastSuccessor {
        self.least_successor
    }

    /// Members with this status, sorted by number.
    pub fn with(&self, status: MemberStatus) -> impl Iterator<Item = &EpochMember> {
        let members = self.members.iter();
        members.filter(move |member| member.status == status)
    }

    /// The members that choose the next epoch: all that are not joining.
    pub fn voters(&self) -> Vec<MemberId> {
        let members = self.members.iter();
        let voters = members.filter(|member| member.status != MemberStatus::Joining);
        voters.map(|member| member.id).collect()
    }

    /// Is the folder `node` the one of the member `id`? A founder that was not enrolled is known by
    /// its number alone.
    pub fn is_member(&self, id: MemberId, node: u128) -> bool {
        let member = self.member(id);
        member.is_some_and(|member| member.node == 0 || member.node == node)
    }

    /// Was this number, or this folder, removed?
    pub fn is_removed(&self, id: MemberId, node: u128) -> bool {
        let mut removed = self.removed.iter();
        removed.any(|gone| gone.id == id || (node != 0 && gone.node == node))
    }
}

#[cfg(test)]
mod tests;
