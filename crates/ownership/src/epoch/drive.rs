//! From a plan to epochs: the next step of a plan under way, from the record and from progress
//! alone.
//!
//! ```text
//! planned ─► moved: begin up to `side_by_side` moves, in the order of the plan
//!            moved: settle those that arrived, begin as many ─► … ─► finished
//! cancelled ────────────────────────────────────────────────────────► finished
//! ```
//!
//! Every member can call this: the author of the plan may be gone. If two members propose different
//! steps of one epoch, one of them is chosen, and the other member asks again.
//!
//! Invariants
//! 1. A step that this function returns may follow the record (`succession.rs`).
//! 2. While a move has not arrived, its position stays as it is; everything else goes on, up to the
//!    next move of the same partition.
//! 3. If every move arrives, the plan ends after at most two epochs for each of its moves.
//!
//! Not here: whether a position has arrived (the member that loads says so), agreeing on the step
//! (`chain/`).

use super::record::EpochRecord;
use crate::ring::Partition;
use crate::ring::table::Move;

/// A report that a moving position may be settled. A majority of the partition's owners has the
/// epoch in which it began durable. Its new owner, if any, has loaded from such a majority since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveArrived {
    /// `PlanUnderWay::id`: the same move under another plan was loaded at another time.
    pub plan: u64,
    /// Which move.
    pub step: Move,
}

/// The record that carries the plan on; `None` without a plan, and while the plan only waits for
/// moves to arrive.
pub fn next_step(
    record: &EpochRecord,
    arrived: &[MoveArrived],
    side_by_side: usize,
) -> Option<EpochRecord> {
    let plan = record.plan()?;
    if let Ok(last) = record.finished() {
        return Some(last);
    }
    let owners = record.owners();
    let is_here = |partition: &Partition| {
        let step = record.moving(*partition);
        let plan = plan.id;
        step.is_some_and(|step| arrived.contains(&MoveArrived { plan, step }))
    };
    let moving = owners.all().filter(|p| owners.moving(*p).is_some()).count();
    let settled: Vec<Partition> = owners.all().filter(is_here).collect();
    let room = side_by_side.saturating_sub(moving - settled.len());
    // The rest of the plan waits behind a move of a partition that is busy: moves keep their order.
    let left = plan.left();
    let is_free = |at: &usize| {
        let partition = left[*at].partition;
        let is_taken = left[..*at].iter().any(|step| step.partition == partition);
        !is_taken && owners.moving(partition).is_none()
    };
    let begin = (0..left.len().min(room)).take_while(is_free).count();
    record.moved(&settled, begin).ok()
}
