//! Which record may follow which: the judge of every proposal, and of every record that is learnt.
//!
//! ```text
//! before ──┐ cluster, epoch + 1, digest ─► removed members ─► rows ─► the one change ─► Ok
//! after ───┘          every arrow may end in a WhyNot, a sentence with the way out
//! ```
//!
//! The change is read from the difference of the two records and then carried out on the first one
//! by `record/changes.rs`. Only if the outcome is the second record, bit for bit, may it follow. So
//! there is one place that knows the legal changes, and no difference escapes the judge.
//!
//! Invariants
//! 1. `succeeds(a, b)` is `Ok` exactly when one function of `record/changes.rs` makes `b` of `a`.
//! 2. The owner of a position changes only out of an epoch in which the position moved.
//! 3. A record of the same chain that comes after a step of the horizons `overtakes` all before
//!    that step.
//!
//! Not here: whether a new owner has loaded. No record shows that: the proposer guarantees it
//! (`drive.rs`).
//! See: docs/decisions/0025-epochs-by-our-own-paxos.md.

use super::record::{EpochChange, EpochRecord, MemberStatus, NewPlan};
use super::why_not::WhyNot;
use crate::ring::Partition;
use crate::ring::plan::{MovePlan, WantedMember};
use crate::ring::table::MemberId;

/// May `after` follow `before`?
///
/// # Errors
/// The first reason why not.
pub fn succeeds(before: &EpochRecord, after: &EpochRecord) -> Result<(), WhyNot> {
    check_place(before, after)?;
    check_members(before, after)?;
    let steps = rows(before, after)?;
    let made = match after.change() {
        EpochChange::Founded => Err(WhyNot::Mixed {
            change: EpochChange::Founded,
        }),
        EpochChange::Enrolled => before.enrolled(&enrolments(before, after)),
        EpochChange::Planned => before.planned(&new_plan(before, after)?),
        EpochChange::Moved => before.moved(&steps.settled, steps.begun),
        EpochChange::Cancelled => before.cancelled(),
        EpochChange::Finished => before.finished(),
        EpochChange::Readdressed => match readdressed(before, after) {
            Some((id, url)) => before.readdressed(id, url),
            None => Err(WhyNot::NoStep),
        },
        EpochChange::Rekeyed => before.rekeyed(),
        EpochChange::Finalized => before.finalized(after.in_force()),
        EpochChange::Forgot => before.forgot(after.horizons().floor()),
        EpochChange::Restored => before.restored(after.least_successor()),
    }?;
    if made != *after {
        let change = after.change();
        return Err(WhyNot::Mixed { change });
    }
    Ok(())
}

/// May `after` be taken as it is by a member whose newest record is `before`, although records in
/// between are missing? Members drop old epochs that only raised the horizons, and no others. So
/// the floor of `after` is higher, and no number that only rises is lower.
pub fn overtakes(before: &EpochRecord, after: &EpochRecord) -> bool {
    let kept = |id| after.removed().iter().any(|removed| removed.id == id);
    before.name() == after.name()
        && before.partitions() == after.partitions()
        && before.epoch() < after.epoch()
        && before.horizons().floor() < after.horizons().floor()
        && before.in_force() <= after.in_force()
        && before.secrets() <= after.secrets()
        && before.least_successor() <= after.least_successor()
        && before.owners().next() <= after.owners().next()
        && before.removed().iter().all(|removed| kept(removed.id))
}

fn check_place(before: &EpochRecord, after: &EpochRecord) -> Result<(), WhyNot> {
    if before.name() != after.name() {
        return Err(WhyNot::Cluster {
            ours: before.name().to_owned(),
            theirs: after.name().to_owned(),
        });
    }
    if before.epoch().checked_add(1) != Some(after.epoch()) {
        return Err(WhyNot::Epoch {
            ours: before.epoch(),
            theirs: after.epoch(),
        });
    }
    if before.digest() != after.previous() {
        let epoch = before.epoch();
        return Err(WhyNot::Previous { epoch });
    }
    if before.partitions() != after.partitions() {
        return Err(WhyNot::Partitions);
    }
    Ok(())
}

fn check_members(before: &EpochRecord, after: &EpochRecord) -> Result<(), WhyNot> {
    for member in after.members() {
        let is_new = before.member(member.id).is_none();
        let is_old_number = is_new && member.id < before.owners().next();
        if is_old_number || before.is_removed(member.id, member.node) {
            let member = member.id;
            return Err(WhyNot::Returned { member });
        }
    }
    if let Some(gone) = before
        .removed()
        .iter()
        .find(|r| !after.removed().contains(r))
    {
        return Err(WhyNot::Returned { member: gone.id });
    }
    for member in before.members() {
        if after.member(member.id).is_none() && owns(before, member.id) {
            return Err(WhyNot::Holds { member: member.id });
        }
    }
    Ok(())
}

fn owns(record: &EpochRecord, member: MemberId) -> bool {
    let owners = record.owners();
    owners.all().any(|partition| {
        let moving = owners.moving(partition);
        let is_new = moving.is_some_and(|moving| moving.to == Some(member));
        is_new || owners.owners(partition).contains(&member)
    })
}

/// The changes of the table's rows.
struct RowSteps {
    settled: Vec<Partition>,
    begun: usize,
}

fn rows(before: &EpochRecord, after: &EpochRecord) -> Result<RowSteps, WhyNot> {
    let (old, new) = (before.owners(), after.owners());
    let mut steps = RowSteps {
        settled: Vec::new(),
        begun: 0,
    };
    for partition in old.all() {
        let is_same_row = old.owners(partition) == new.owners(partition);
        match (old.moving(partition), new.moving(partition)) {
            (was, is) if was == is && is_same_row => {}
            (None, Some(_)) if is_same_row => steps.begun += 1,
            // Withdrawn, or settled: `record/changes.rs` knows which.
            (Some(_), None) if is_same_row => {}
            (Some(_), None) => steps.settled.push(partition),
            _ => {
                let partition = partition.0;
                return Err(WhyNot::NoJointPhase { partition });
            }
        }
    }
    Ok(steps)
}

fn enrolments(before: &EpochRecord, after: &EpochRecord) -> Vec<(MemberId, u128)> {
    let is_new = |id: MemberId| before.member(id).is_some_and(|member| member.node == 0);
    let members = after.members().iter();
    let enrolled = members.filter(|member| member.node != 0 && is_new(member.id));
    enrolled.map(|member| (member.id, member.node)).collect()
}

fn new_plan(before: &EpochRecord, after: &EpochRecord) -> Result<NewPlan, WhyNot> {
    let plan = after.plan().ok_or(WhyNot::NoPlan)?;
    let members = after.members().iter();
    let newcomers = members.filter(|member| before.member(member.id).is_none());
    let newcomers: Vec<_> = newcomers.cloned().collect();
    let old = after.members().iter();
    let old = old.filter(|member| before.member(member.id).is_some());
    Ok(NewPlan {
        author: plan.author,
        moves: MovePlan {
            table: before.owners().digest(),
            copies: None,
            joins: newcomers.iter().map(|member| member.id).collect(),
            leaves: after.with(MemberStatus::Leaving).map(|m| m.id).collect(),
            rounds: vec![plan.moves.clone()],
            necessary: 0,
        },
        newcomers,
        shares: old
            .map(|member| WantedMember {
                id: member.id,
                weight: member.place.weight,
                zone: member.place.zone.clone(),
            })
            .collect(),
        replication_factor: plan.replication_factor,
    })
}

fn readdressed<'a>(before: &EpochRecord, after: &'a EpochRecord) -> Option<(MemberId, &'a str)> {
    let mut members = after.members().iter();
    let moved = members.find(|member| {
        let was = before.member(member.id);
        was.is_some_and(|was| was.place.url != member.place.url)
    });
    moved.map(|member| (member.id, member.place.url.as_str()))
}
