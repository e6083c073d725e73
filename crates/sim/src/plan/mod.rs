//! The meaning of one seed: a cluster, a weather, the wishes of clients, and the faults with their
//! times.
//!
//! ```text
//! RunShape    members, copies, lanes, store, clocks, delays, rates (swarm): shape.rs
//! clients     one list of wishes each
//! faults      a list of (when, how long, which fault): faults.rs
//! changes     a list of (when, which deed of an operator): changes.rs of the crate
//! ```
//!
//! Invariants
//! 1. The same seed gives the same plan for ever, and a plan and its seed give the same run.
//! 2. Lists can be thinned without a change of the rest: the shrinker depends on it.
//! 3. Only the unlucky member loses bytes: a write that two copies acknowledged has one left.
//!
//! Not here: the draws of a seed (`draws/`), how faults are done (`world/faults.rs`, `member.rs`).
//! See: docs/verification.md.

use crate::changes::{Changes, OperatorDeed};
use crate::limits::{DEED_HAPPENINGS_MAX, DEED_PAIR_HAPPENINGS, HAPPENINGS_MAX};
use crate::overload::Crowd;
use crate::store::terms::Crash;

mod faults;
mod shape;

pub use faults::{CutLinks, Fault, FaultKind, WrongClocks};
pub use shape::{KeyClass, RunShape, StoreKind};
pub(crate) use shape::{pick, skewed};

/// The wish of a planned operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedKind {
    /// Read.
    Get,
    /// Write a new value.
    Put,
    /// Remove.
    Delete,
    /// Give the value that this client saw last another end; a read when it saw none.
    Touch,
}

/// Which condition a planned write has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedCondition {
    /// None.
    Any,
    /// There is a value.
    Present,
    /// There is none.
    Absent,
    /// The value that this client saw last; none when it saw none.
    MatchesLast,
    /// Not the value that this client saw last; none when it saw none.
    DiffersLast,
}

/// One operation as drawn.
#[derive(Clone, Debug)]
pub struct PlannedOp {
    /// Which key.
    pub key: usize,
    /// Read or write.
    pub kind: PlannedKind,
    /// The condition.
    pub base: PlannedCondition,
    /// Answers and copies; `None` = the default.
    pub quorum: Option<(u8, u8)>,
    /// Which member is asked.
    pub member: usize,
    /// How long the client waits first.
    pub think_us: u64,
    /// How long it gives the member.
    pub timeout_us: u64,
    /// How long it waits for the answer before it hangs up; `None` = as long as it takes.
    pub patience_us: Option<u64>,
    /// Length of the value.
    pub value_bytes: usize,
    /// How long the value lives.
    pub ttl_ms: Option<u64>,
}

impl PlannedOp {
    /// At the default level, at once, without a condition and an end.
    pub(crate) fn plain(key: usize, kind: PlannedKind, member: usize) -> PlannedOp {
        PlannedOp {
            key,
            kind,
            base: PlannedCondition::Any,
            quorum: None,
            member,
            think_us: 0,
            timeout_us: 0,
            patience_us: None,
            value_bytes: 0,
            ttl_ms: None,
        }
    }
}

/// A walk over a range of keys, page by page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedScan {
    /// When it begins.
    pub at_us: u64,
    /// Which member is asked.
    pub member: usize,
    /// From this key on.
    pub start: usize,
    /// Up to this one, exclusive; `None` = to the last one.
    pub end: Option<usize>,
    /// From the end towards the start.
    pub is_reverse: bool,
    /// About so many bytes a page.
    pub bytes: u32,
    /// How long one page may take.
    pub timeout_us: u64,
}

/// Everything that a seed decides about a run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Where the rest of the randomness of the run comes from.
    pub seed: u64,
    /// Options.
    pub shape: RunShape,
    /// The operations of each client.
    pub clients: Vec<Vec<PlannedOp>>,
    /// Walks over many keys.
    pub scans: Vec<PlannedScan>,
    /// The faults.
    pub faults: Vec<Fault>,
    /// Which clocks are wrong behind that.
    pub wrong_clocks: Option<WrongClocks>,
    /// Which member comes back on an older image of its disk in the end.
    pub image: Option<PlannedImage>,
    /// How the members change, if they do.
    pub changes: Option<Changes>,
    /// Who watches keys, if anybody does.
    pub watches: Option<PlannedWatches>,
    /// The crowd in front of the members, if there is one.
    pub overload: Option<Crowd>,
}

/// Clients that watch keys.
#[derive(Clone, Copy, Debug)]
pub struct PlannedWatches {
    /// How many.
    pub clients: usize,
    /// Bytes of changes that each member remembers.
    pub changes_bytes: usize,
}

/// An image of a disk, and the events before it comes back.
#[derive(Clone, Debug)]
pub struct PlannedImage {
    /// The member.
    pub member: usize,
    /// When it is made.
    pub taken_us: u64,
    /// The members that are restarted before it comes back, or with it.
    pub restarts: Restarts,
    /// How members end for that.
    pub how: Crash,
}

/// Which members are restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarts {
    /// None.
    None,
    /// All of them at the same time, and the image is in its place when they come back.
    AllAtOnce,
    /// All of them, one after the other.
    OneByOne,
}

impl RunPlan {
    /// Are members away at most, and none comes or goes?
    pub(crate) fn has_only_absences(&self) -> bool {
        let mut deeds = self.changes.iter().flat_map(|changes| &changes.deeds);
        deeds.all(|planned| planned.deed == OperatorDeed::Away)
    }

    /// Plan without the last member: it takes no part, and no client asks it. `None` when as many
    /// members are left as a key has copies.
    pub fn without_last_member(&self) -> Option<RunPlan> {
        let mut plan = self.clone();
        let shape = &mut plan.shape;
        if shape.members <= shape.copies || plan.changes.is_some() || plan.overload.is_some() {
            return None;
        }
        shape.members -= 1;
        shape.unlucky %= shape.members;
        let members = shape.members;
        for planned in plan.clients.iter_mut().flatten() {
            planned.member %= members;
            planned.quorum = planned.quorum.map(|(ack, from)| {
                let from = from.min(members as u8);
                (ack.min(from), from)
            });
        }
        for planned in &mut plan.scans {
            planned.member %= members;
        }
        if let Some(wrong) = &mut plan.wrong_clocks {
            wrong.by_ms.truncate(members);
            wrong.restarts &= (1 << members) - 1;
            wrong.restarts_after &= (1 << members) - 1;
        }
        plan.image = plan.image.filter(|image| image.member < members);
        plan.faults
            .retain(|fault| fault.member().is_none_or(|member| member < members));
        Some(plan)
    }

    /// A run with more happenings goes in circles.
    pub fn happenings_max(&self) -> u64 {
        let deeds = self.changes.as_ref().map_or(0, |c| c.deeds.len() as u64);
        let pairs = (self.shape.members * self.shape.members) as u64;
        HAPPENINGS_MAX + deeds * DEED_HAPPENINGS_MAX.max(pairs * DEED_PAIR_HAPPENINGS)
    }

    /// How many operations are planned.
    pub fn operations(&self) -> usize {
        self.clients.iter().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn seeds_reach_every_kind_of_cluster_and_of_fault() {
        let plans: Vec<RunPlan> = (0..2_000).map(RunPlan::draw).collect();
        for members in 2..=5 {
            assert!(plans.iter().any(|plan| plan.shape.members == members));
        }
        for store in [StoreKind::Map, StoreKind::Engine] {
            assert!(plans.iter().any(|plan| plan.shape.store == store));
        }
        let kinds: BTreeSet<String> = plans
            .iter()
            .flat_map(|plan| &plan.faults)
            .map(|fault| {
                let name = format!("{:?}", fault.kind);
                name.split([' ', '{']).next().unwrap_or_default().to_owned()
            })
            .collect();
        assert_eq!(kinds.len(), 14, "{kinds:?}");
        assert!(plans.iter().any(|plan| plan.scans.len() > 4));
        let wrong: Vec<_> = plans
            .iter()
            .filter_map(|p| p.wrong_clocks.clone())
            .collect();
        assert!(wrong.iter().any(|wrong| wrong.members().count() == 1));
        assert!(wrong.iter().any(|wrong| wrong.members().count() == 3));
    }
}
