//! The meaning of one seed: a cluster, a weather, the wishes of clients, and the faults with their
//! times.
//!
//! ```text
//! seed ─► RunShape    members, copies, lanes, store, clocks, delays, rates (swarm): shape.rs
//!      ─► clients     one list of wishes each
//!      ─► faults      a list of (when, how long, which fault): faults.rs
//! ```
//!
//! Invariants
//! 1. The same seed gives the same plan for ever, and a plan and its seed give the same run.
//! 2. Lists can be thinned without a change of the rest: the shrinker depends on it.
//! 3. Only the unlucky member loses bytes: a write that two copies acknowledged has one left.
//!
//! Not here: how faults are done (`world/faults.rs`, `member.rs`).
//! See: docs/verification.md.

use crate::changes::Changes;
use crate::limits::{DEED_HAPPENINGS_MAX, DEED_PAIR_HAPPENINGS, HAPPENINGS_MAX};
use crate::overload::Crowd;
use crate::store::terms::Crash;
use dendra_base::Prng;

mod faults;
mod shape;

use faults::draw_wrong_clocks;
pub use faults::{CutLinks, Fault, FaultKind, WrongClocks};
pub(crate) use faults::{draw_failing_reads, draw_faults, draw_looks};
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
    /// The crowd in front of the members, if there is one.
    pub overload: Option<Crowd>,
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
    /// The plan of `seed`.
    pub fn draw(seed: u64) -> RunPlan {
        let mut prng = Prng::named(seed, "shape");
        let mut shape = RunShape::draw(&mut prng);
        let mut prng = Prng::named(seed, "comparisons");
        shape.compares = draw_compares(&mut prng);
        let mut prng = Prng::named(seed, "clients");
        let mut clients = draw_clients(&shape, &mut prng);
        let mut prng = Prng::named(seed, "faults");
        let mut faults = draw_faults(&shape, &mut prng);
        let mut prng = Prng::named(seed, "failing reads");
        faults.extend(draw_failing_reads(&shape, &mut prng));
        let mut prng = Prng::named(seed, "wrong clocks");
        let (more, wrong_clocks) = draw_wrong_clocks(&shape, &mut prng);
        faults.extend(more);
        let mut prng = Prng::named(seed, "overloads");
        for (slow, burst) in draw_overloads(&shape, &mut prng) {
            faults.push(slow);
            clients.extend(burst);
        }
        faults.sort_by_key(|fault| fault.at_us);
        let mut prng = Prng::named(seed, "images");
        let image = draw_image(&shape, &mut prng);
        let mut prng = Prng::named(seed, "scans");
        let scans = draw_scans(&shape, &mut prng);
        RunPlan {
            seed,
            shape,
            clients,
            scans,
            faults,
            wrong_clocks,
            image,
            changes: None,
            overload: None,
        }
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

pub(crate) fn draw_clients(shape: &RunShape, prng: &mut Prng) -> Vec<Vec<PlannedOp>> {
    let clients = 1 + prng.below(6);
    let total = match shape.store {
        StoreKind::Map => 20 + prng.below(80),
        StoreKind::Engine => 60 + prng.below(400),
    };
    let weights = KindWeights {
        get: 1 + prng.below(6),
        put: 1 + prng.below(6),
        delete: prng.below(3),
        condition_percent: pick(prng, &[0, 30, 80]),
        // The member that a client asks: mostly its own one, or any.
        is_loyal: prng.chance(1, 2),
        gives_up: prng.chance(1, 4),
    };
    (0..clients)
        .map(|client| {
            let count = total / clients + 1;
            (0..count)
                .map(|_| draw_operation(shape, &weights, client as usize, prng))
                .collect()
        })
        .collect()
}

struct KindWeights {
    get: u64,
    put: u64,
    delete: u64,
    condition_percent: u64,
    is_loyal: bool,
    gives_up: bool,
}

fn draw_operation(
    shape: &RunShape,
    weights: &KindWeights,
    client: usize,
    prng: &mut Prng,
) -> PlannedOp {
    let key = prng.below(shape.keys.len() as u64) as usize;
    let class = shape.keys[key];
    let drawn = prng.below(weights.get + weights.put + weights.delete);
    let kind = if drawn < weights.get {
        PlannedKind::Get
    } else if drawn < weights.get + weights.put {
        PlannedKind::Put
    } else {
        PlannedKind::Delete
    };
    let (usual_ack, usual_from) = shape.usual();
    let quorum = match class {
        KeyClass::Weak => {
            let from = 1 + prng.below(shape.members as u64) as u8;
            Some((1 + prng.below(u64::from(from)) as u8, from))
        }
        _ if prng.chance(1, 6) => {
            let more = prng.below(u64::from(usual_from - usual_ack) + 1) as u8;
            Some((usual_ack + more, usual_from))
        }
        _ => None,
    };
    let has_base = class == KeyClass::Strong && prng.chance(weights.condition_percent, 100);
    let base = if has_base {
        pick(
            prng,
            &[
                PlannedCondition::Present,
                PlannedCondition::Absent,
                PlannedCondition::MatchesLast,
                PlannedCondition::MatchesLast,
                PlannedCondition::MatchesLast,
                PlannedCondition::DiffersLast,
            ],
        )
    } else {
        PlannedCondition::Any
    };
    let member = if weights.is_loyal && prng.chance(4, 5) {
        client % shape.members
    } else {
        prng.below(shape.members as u64) as usize
    };
    let gives_up = weights.gives_up && prng.chance(1, 8);
    PlannedOp {
        key,
        kind,
        base,
        quorum,
        member,
        think_us: prng.below(shape.think_us + 1),
        timeout_us: 1_000 + prng.below(shape.timeout_us),
        patience_us: gives_up.then(|| prng.below(shape.timeout_us)),
        value_bytes: 4 + prng.below(shape.value_bytes_max) as usize,
        ttl_ms: (class == KeyClass::Fleeting).then(|| 1 + skewed(prng, 3_000)),
    }
}

/// In some runs, processors that are slow for a while, and a burst of clients at each of them. They
/// have a stream of their own, so that the rest of a seed's plan stays the same.
pub(crate) fn draw_overloads(
    shape: &RunShape,
    prng: &mut Prng,
) -> Vec<(Fault, Vec<Vec<PlannedOp>>)> {
    let count = if prng.chance(1, 5) {
        1 + prng.below(3)
    } else {
        0
    };
    let weights = KindWeights {
        get: 2,
        put: 2,
        delete: 1,
        condition_percent: pick(prng, &[0, 20]),
        is_loyal: false,
        gives_up: true,
    };
    let draw = |_| {
        let member = prng.below(shape.members as u64) as usize;
        let at_us = prng.below(shape.chaos_us);
        let slow = Fault {
            at_us,
            length_us: 20_000 + skewed(prng, 1_000_000),
            kind: FaultKind::SlowProcessor {
                member,
                event_us: pick(prng, &[100, 2_000, 20_000]),
            },
        };
        let clients = 2 + prng.below(22);
        let burst = (0..clients).map(|client| {
            let mut todo: Vec<PlannedOp> = (0..1 + prng.below(3))
                .map(|_| draw_operation(shape, &weights, client as usize, prng))
                .collect();
            for planned in &mut todo {
                planned.member = member;
                // They come again at once, as clients do that have given up.
                planned.think_us = prng.below(1_000);
            }
            todo[0].think_us += at_us;
            todo
        });
        let burst = burst.collect();
        (slow, burst)
    };
    (0..count).map(draw).collect()
}

/// In some runs, an image of a disk that comes back when everything is well.
fn draw_image(shape: &RunShape, prng: &mut Prng) -> Option<PlannedImage> {
    let is_on = prng.chance(1, 8);
    is_on.then(|| PlannedImage {
        member: prng.below(shape.members as u64) as usize,
        taken_us: prng.below(shape.chaos_us),
        restarts: pick(
            prng,
            &[Restarts::None, Restarts::AllAtOnce, Restarts::OneByOne],
        ),
        how: pick(prng, &[Crash::PowerLoss, Crash::Killed]),
    })
}

/// In some runs, members that compare their copies all the time.
pub(crate) fn draw_compares(prng: &mut Prng) -> Option<(u64, u64)> {
    let is_on = prng.chance(1, 3);
    is_on.then(|| {
        let bytes_per_second = pick(prng, &[50_000, 1 << 20, 1 << 30]);
        let pause_us = pick(prng, &[20_000, 300_000, 2_000_000]);
        (bytes_per_second, pause_us)
    })
}

/// In some runs, walks over all keys or some.
pub(crate) fn draw_scans(shape: &RunShape, prng: &mut Prng) -> Vec<PlannedScan> {
    let count = if prng.chance(1, 3) {
        1 + prng.below(12)
    } else {
        0
    };
    let keys = shape.keys.len() as u64;
    let draw = |_| {
        let start = if prng.chance(1, 2) {
            0
        } else {
            prng.below(keys) as usize
        };
        PlannedScan {
            at_us: prng.below(shape.chaos_us),
            member: prng.below(shape.members as u64) as usize,
            start,
            end: prng
                .chance(1, 4)
                .then(|| start + 1 + prng.below(keys) as usize),
            is_reverse: prng.chance(1, 3),
            bytes: pick(prng, &[1, 40, 200, 1 << 16]),
            timeout_us: 1_000 + prng.below(shape.timeout_us),
        }
    };
    (0..count).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let drawn = |seed| format!("{:?}", RunPlan::draw(seed));
        for seed in 0..50 {
            assert_eq!(drawn(seed), drawn(seed));
        }
        assert_ne!(drawn(1), drawn(2));
    }

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
