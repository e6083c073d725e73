//! From a table of owners to the next one: which positions move when members change.
//!
//! ```text
//! table + wanted ──► refused, with a sentence
//!                └─► plan: moves in their order       partition 17, position 1: member 3 → member 9
//!
//! wanted     members with their zones, shares and bounds                      (wanted.rs)
//! base       owners without the positions that are too many; those that stay members are kept
//! exchange   the fewest new owners that restore zones and shares          (exchange/)
//! positions  each new owner takes a free position of its partition        (positions.rs)
//! rounds     one position of a partition at a time, sources and targets in turns
//! ```
//!
//! Invariants
//! 1. After the plan every partition has its copies, in different zones for as long as there are
//!    zones. Every member has its share, to within 5 % or one partition, whichever is more.
//! 2. No other plan that keeps owners at their positions moves fewer copies.
//! 3. No plan moves a position twice, and a plan for a replacement moves only the positions of the
//!    member that is replaced.
//! 4. Integers only: every member makes the same plan of the same input.
//!
//! Not here: how many bytes a partition has, when a move begins, agreement on the plan.
//! See: docs/decisions/0024-tables-are-stored.md.

mod positions;
mod refusal;
mod wanted;

pub use refusal::NoPlan;
pub use wanted::{WantedMember, WantedMembers};

use super::Partition;
use super::choice::Members;
use super::exchange::{FlowProblem, fewest, necessary};
use super::table::{MemberId, Move, Moving, OwnerTable};
use std::collections::BTreeMap;
use wanted::{CopyLevel, Owners};

/// The moves of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovePlan {
    /// [`OwnerTable::digest`] of the table that the plan was made for.
    pub table: u64,
    /// Copies of each partition afterwards; `None` when each keeps those it has.
    pub copies: Option<u8>,
    /// Members that come, sorted; the last number that is given afterwards is not below any.
    pub joins: Vec<MemberId>,
    /// Members that leave, sorted.
    pub leaves: Vec<MemberId>,
    /// The moves, round by round. A partition has at most one move in a round.
    pub rounds: Vec<Vec<Move>>,
    /// A bound on the copies of any plan; see the decision record.
    pub necessary: usize,
}

impl MovePlan {
    /// All moves, in their order.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.rounds.iter().flatten()
    }

    /// Copies that have to be made: moves that end at a member.
    pub fn copied(&self) -> usize {
        self.moves().filter(|step| step.moving.to.is_some()).count()
    }

    /// The table when all is done.
    ///
    /// # Errors
    /// When the plan was made for another table.
    pub fn outcome(&self, table: &OwnerTable) -> Result<OwnerTable, NoPlan> {
        let stale = |_| NoPlan::OtherTable;
        if table.digest() != self.table {
            return Err(NoPlan::OtherTable);
        }
        let mut after = table.clone();
        for member in &self.joins {
            after.admit(*member).map_err(stale)?;
        }
        for step in self.moves() {
            after.begin(*step).map_err(stale)?;
            after.settle(step.partition).map_err(stale)?;
        }
        for member in &self.leaves {
            after.dismiss(*member).map_err(stale)?;
        }
        Ok(after)
    }
}

/// The owners of a partition without the positions that it has too many.
struct BaseRow {
    row: Vec<MemberId>,
    /// Position and owner, in the order in which they are taken away.
    taken: Vec<(usize, MemberId)>,
}

impl BaseRow {
    /// Owners that cannot be read go first, then the last ones.
    fn new(owners: &[MemberId], copies: usize, lost: &[MemberId]) -> BaseRow {
        let (mut row, mut taken) = (owners.to_vec(), Vec::new());
        while row.len() > copies {
            let last_lost = row.iter().rposition(|owner| lost.contains(owner));
            let position = last_lost.unwrap_or(row.len() - 1);
            taken.push((position, row.remove(position)));
        }
        BaseRow { row, taken }
    }
}

/// The plan from `table`, with members as `now` says, to the members as `wanted` says.
///
/// # Errors
/// Each kind a sentence that names the way out.
pub fn plan(
    table: &OwnerTable,
    now: &WantedMembers,
    wanted: &WantedMembers,
) -> Result<MovePlan, NoPlan> {
    refusal::check(table, wanted)?;
    let owners = Owners::new(wanted);
    let copies = owners.ids.len().min(usize::from(wanted.replication_factor));
    // A cluster may be founded with a higher factor than it has members; then it grows into it.
    let must = if wanted.replication_factor > now.replication_factor {
        wanted.replication_factor
    } else {
        wanted.replication_factor.min(table.copies())
    };
    if copies < usize::from(must) {
        return Err(NoPlan::FewerMembersThanCopies {
            members: owners.ids.len(),
            copies: must,
        });
    }
    let partitions = usize::from(table.partitions());
    let level = CopyLevel::new(&owners, copies, partitions);
    let bases: Vec<BaseRow> = table
        .all()
        .map(|partition| BaseRow::new(table.owners(partition), copies, &wanted.lost))
        .collect();
    let kept: Vec<Members> = bases
        .iter()
        .map(|base| {
            let stay = base.row.iter().filter_map(|owner| owners.at(*owner));
            stay.fold(0, |set: Members, member| set | 1 << member)
        })
        .collect();
    let problem = FlowProblem {
        kept: &kept,
        zones: &owners.zones,
        rounds: &level.rounds,
        bounds: &level.bounds,
        quotas: &level.quotas,
        copies,
    };
    let sets = fewest(&problem);
    let before: Vec<Vec<MemberId>> = bases.iter().map(|base| base.row.clone()).collect();
    let changes = positions::positions(&positions::Rows {
        owners: &owners,
        before: &before,
        kept: &kept,
        sets: &sets,
        rounds: &level.rounds,
        copies,
    });
    let plan = MovePlan {
        table: table.digest(),
        copies: Some(u8::try_from(copies).expect("at most as many copies as members")),
        joins: sorted(wanted.members.iter().map(|m| m.id), |id| !table.has(*id)),
        leaves: sorted(table.members().iter().copied(), |id| {
            wanted.members.iter().all(|place| place.id != *id)
        }),
        rounds: rounds(steps(&bases, &owners, &changes)),
        necessary: necessary(&problem),
    };
    if now == wanted && plan.rounds.is_empty() {
        return Err(NoPlan::NoChange);
    }
    Ok(plan)
}

/// The plan that puts a new member in the place of another one, with its weight and its zone. Each
/// position of the old member goes to the new one; no other position moves.
///
/// # Errors
/// Each kind a sentence that names the way out.
pub fn replacement(
    table: &OwnerTable,
    old: MemberId,
    new: MemberId,
    lost: &[MemberId],
) -> Result<MovePlan, NoPlan> {
    refusal::check_replacement(table, old, new, lost)?;
    let step = |partition: Partition| {
        let position = table.owners(partition).iter().position(|o| *o == old)?;
        let moving = Moving {
            position: u8::try_from(position).expect("at most MEMBERS_MAX owners"),
            from: Some(old),
            to: Some(new),
        };
        Some(Move { partition, moving })
    };
    let steps: Vec<Move> = table.all().filter_map(step).collect();
    Ok(MovePlan {
        table: table.digest(),
        copies: None,
        joins: vec![new],
        leaves: vec![old],
        necessary: steps.len(),
        rounds: rounds(steps),
    })
}

fn sorted(
    ids: impl Iterator<Item = MemberId>,
    is_wanted: impl Fn(&MemberId) -> bool,
) -> Vec<MemberId> {
    let mut ids: Vec<MemberId> = ids.filter(is_wanted).collect();
    ids.sort_unstable();
    ids
}

/// The steps of each partition, one position after the other, from the first to the last. Positions
/// that are taken away come first, then owners that change, then positions that are added.
fn steps(bases: &[BaseRow], owners: &Owners, changes: &positions::NewOwners) -> Vec<Move> {
    let mut steps = Vec::new();
    for (partition, base) in bases.iter().enumerate() {
        let number = u16::try_from(partition).expect("a table has at most PARTITIONS_MAX rows");
        let mut step = |position: usize, from, to| {
            let moving = Moving {
                position: u8::try_from(position).expect("at most MEMBERS_MAX owners"),
                from,
                to,
            };
            steps.push(Move {
                partition: Partition(number),
                moving,
            });
        };
        for (position, owner) in &base.taken {
            step(*position, Some(*owner), None);
        }
        for change in changes.of(partition) {
            let from = base.row.get(change.position).copied();
            step(change.position, from, Some(owners.ids[change.to]));
        }
    }
    steps
}

/// The steps in rounds, one of a partition in each. Within a round, no member is the target or the
/// source of many steps in a row if there are others.
///
/// Requires: the steps of a partition are in their order.
fn rounds(steps: Vec<Move>) -> Vec<Vec<Move>> {
    let mut rounds: Vec<Vec<Move>> = Vec::new();
    let mut before = None;
    let mut number = 0;
    for step in steps {
        number = if before == Some(step.partition) {
            number + 1
        } else {
            0
        };
        before = Some(step.partition);
        if rounds.len() == number {
            rounds.push(Vec::new());
        }
        rounds[number].push(step);
    }
    rounds.into_iter().map(in_turns).collect()
}

/// Each target's moves take turns over their sources, and the targets' moves are dealt evenly.
fn in_turns(steps: Vec<Move>) -> Vec<Move> {
    type End = Option<MemberId>;
    let mut of_pair: BTreeMap<(End, End), usize> = BTreeMap::new();
    let mut of_target: BTreeMap<End, Vec<(usize, Move)>> = BTreeMap::new();
    for step in steps {
        let (from, to) = (step.moving.from, step.moving.to);
        let turn = of_pair.entry((to, from)).or_default();
        of_target.entry(to).or_default().push((*turn, step));
        *turn += 1;
    }
    let mut dealt = Vec::new();
    for mut moves in of_target.into_values() {
        moves.sort_by_key(|(turn, step)| (*turn, step.moving.from, step.partition));
        let count = moves.len() as u64;
        for (place, (_, step)) in (0u64..).zip(moves) {
            // The middle of its part of 0 to 1, in 2^-32.
            let when = ((2 * place + 1) << 31) / count;
            dealt.push((when, step));
        }
    }
    dealt.sort_by_key(|(when, step)| (*when, step.moving.from, step.partition));
    dealt.into_iter().map(|(_, step)| step).collect()
}

#[cfg(test)]
mod tests;
