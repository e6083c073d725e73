//! Why there is no plan, each reason with its way out.
//!
//! Invariants
//! 1. A plan that is made can be carried out: its members are known, and every partition keeps an
//!    owner that can be read.
//!
//! Not here: refusals of the topology (epochs, clusters, secrets).
//! See: docs/decisions/0024-tables-are-stored.md.

use super::wanted::{WantedMember, WantedMembers};
use crate::limits::MEMBERS_MAX;
use crate::ring::table::{MemberId, OwnerTable};
use std::collections::BTreeSet;
use std::fmt;

/// Why there is no plan. `Display` names the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// The members and the table are as they should be.
    NoChange,
    /// No member is left.
    Empty,
    /// More members than a cluster can have.
    TooMany {
        /// How many.
        members: usize,
    },
    /// A member stands in the list twice.
    Twice {
        /// Which one.
        member: MemberId,
    },
    /// The table does not have this member.
    Unknown {
        /// Which one.
        member: MemberId,
    },
    /// The number belonged to a member that was removed.
    Returned {
        /// The number.
        member: MemberId,
    },
    /// The new member is a member already.
    Present {
        /// Which one.
        member: MemberId,
    },
    /// `replication_factor` is 0, or more than a cluster can have members.
    Copies {
        /// Replication factor as asked for.
        replication_factor: u8,
    },
    /// Fewer members with a weight than copies.
    FewerMembersThanCopies {
        /// Members with a weight.
        members: usize,
        /// Copies that there should be.
        copies: u8,
    },
    /// No member has a weight.
    NoWeight,
    /// A partition would lose all its copies.
    LastCopy {
        /// Which one.
        partition: u16,
    },
    /// Members that cannot be read are to stay.
    Lost {
        /// One of them.
        member: MemberId,
    },
    /// Another plan is under way.
    Moving {
        /// A partition that moves.
        partition: u16,
    },
    /// The plan was made for another table.
    OtherTable,
}

impl fmt::Display for NoPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPlan::NoChange => {
                f.write_str("the members are as asked for already, and nothing has to move")
            }
            NoPlan::Empty => f.write_str("no member would be left; name at least one that stays"),
            NoPlan::TooMany { members } => write!(
                f,
                "{members} members are more than the {MEMBERS_MAX} that a cluster may have; leave \
                 some out"
            ),
            NoPlan::Twice { member } => {
                write!(f, "{member} is in the list twice; name each member once")
            }
            NoPlan::Unknown { member } => write!(
                f,
                "{member} is not a member of this cluster; dendra cluster status lists those that \
                 are"
            ),
            NoPlan::Returned { member } => write!(
                f,
                "{member} was removed, and a removed member has forgotten what was written since; \
                 let it join with an empty folder, as a new member"
            ),
            NoPlan::Present { member } => write!(
                f,
                "{member} is a member already; a replacement takes a new member with an empty \
                 folder"
            ),
            NoPlan::Copies { replication_factor } => write!(
                f,
                "a replication factor of {replication_factor} is not 1 to {MEMBERS_MAX}; give one \
                 that is"
            ),
            NoPlan::FewerMembersThanCopies { members, copies } => write!(
                f,
                "{members} members with a weight cannot keep {copies} copies of each record; let \
                 members join first, or lower the replication factor first"
            ),
            NoPlan::NoWeight => f.write_str(
                "no member has a weight above 0, so none would hold a copy; give one a weight",
            ),
            NoPlan::LastCopy { partition } => write!(
                f,
                "all copies of partition {partition} are on members that cannot be read, and \
                 without them its records are gone; bring one of these members back"
            ),
            NoPlan::Lost { member } => write!(
                f,
                "{member} cannot be read and is to stay; remove it, replace it, or bring it back"
            ),
            NoPlan::Moving { partition } => write!(
                f,
                "a plan is under way (partition {partition} moves); wait for its end, or cancel \
                 it first"
            ),
            NoPlan::OtherTable => f.write_str(
                "the plan was made for another table of owners; make a new plan and read it",
            ),
        }
    }
}

impl std::error::Error for NoPlan {}

/// Is there a plan for these members at all?
pub(super) fn check(table: &OwnerTable, wanted: &WantedMembers) -> Result<(), NoPlan> {
    let replication_factor = wanted.replication_factor;
    if !(1..=MEMBERS_MAX).contains(&usize::from(replication_factor)) {
        return Err(NoPlan::Copies { replication_factor });
    }
    let members = wanted.members.len();
    if members == 0 {
        return Err(NoPlan::Empty);
    }
    if members > MEMBERS_MAX {
        return Err(NoPlan::TooMany { members });
    }
    let mut ids = BTreeSet::new();
    for &WantedMember { id, .. } in &wanted.members {
        if !ids.insert(id) {
            return Err(NoPlan::Twice { member: id });
        }
        if !table.has(id) && id < table.next() {
            return Err(NoPlan::Returned { member: id });
        }
    }
    if wanted.members.iter().all(|place| place.weight == 0) {
        return Err(NoPlan::NoWeight);
    }
    if let Some(member) = wanted.lost.iter().find(|lost| ids.contains(lost)) {
        return Err(NoPlan::Lost { member: *member });
    }
    check_sources(table, &wanted.lost)
}

/// Can the new member take the place of the old one?
pub(super) fn check_replacement(
    table: &OwnerTable,
    old: MemberId,
    new: MemberId,
    lost: &[MemberId],
) -> Result<(), NoPlan> {
    if !table.has(old) {
        return Err(NoPlan::Unknown { member: old });
    }
    if table.has(new) {
        return Err(NoPlan::Present { member: new });
    }
    if new < table.next() {
        return Err(NoPlan::Returned { member: new });
    }
    check_sources(table, lost)
}

/// No position moves, and each partition has an owner that can be read.
fn check_sources(table: &OwnerTable, lost: &[MemberId]) -> Result<(), NoPlan> {
    if let Some(member) = lost.iter().find(|member| !table.has(**member)) {
        return Err(NoPlan::Unknown { member: *member });
    }
    for partition in table.all() {
        if table.moving(partition).is_some() {
            let partition = partition.0;
            return Err(NoPlan::Moving { partition });
        }
        if table.owners(partition).iter().all(|o| lost.contains(o)) {
            let partition = partition.0;
            return Err(NoPlan::LastCopy { partition });
        }
    }
    Ok(())
}
