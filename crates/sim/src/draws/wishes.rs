//! The wishes of clients: operations and scans, as each world draws them.
//!
//! ```text
//! usual       any key at any time, and bursts at slow processors
//! bursts      key  0 0 1 0 1 ··· 1 2 1 2 2 ······· 3 2 3 ··· 4 3 …    quiet, and hardly a key twice
//! locks       PUT with an end where there is none; reads at all members; other writes
//! until_a_loss    dense until a member is lost, and sparse from then on
//! ```
//!
//! Invariants
//! 1. Each draw takes from the stream that it is given, in a fixed order: a seed keeps its wishes.
//!
//! Not here: the wishes of a crowd (`crowd.rs`), which clients of a run make them (`world/`).
//! See: docs/verification.md.

use super::faults;
use crate::changes::MACHINES_MAX;
use crate::plan::PlannedCondition::{Absent, Any, DiffersLast, MatchesLast, Present};
use crate::plan::PlannedKind::{Delete, Get, Put, Touch};
use crate::plan::{
    Fault, FaultKind, KeyClass, PlannedKind, PlannedOp, PlannedScan, PlannedWatches, RunPlan,
    RunShape, StoreKind, pick, skewed,
};
use dendra_base::Prng;

/// One of `of`, each as often as its weight says.
pub(super) fn weighted<T: Copy>(prng: &mut Prng, of: &[(T, u64)]) -> T {
    let mut drawn = prng.below(of.iter().map(|(_, weight)| weight).sum());
    let is_it = |(_, weight): &&(T, u64)| {
        let is_it = drawn < *weight;
        drawn = drawn.saturating_sub(*weight);
        is_it
    };
    of.iter().find(is_it).expect("below the sum of weights").0
}

/// The usual operations.
pub(super) fn usual(plan: &mut RunPlan, prng: &mut Prng) {
    plan.clients = draw_usual(&plan.shape, prng);
}

fn draw_usual(shape: &RunShape, prng: &mut Prng) -> Vec<Vec<PlannedOp>> {
    let clients = 1 + prng.below(6);
    let total = match shape.store {
        StoreKind::Map => 20 + prng.below(80),
        StoreKind::Engine => 60 + prng.below(400),
    };
    let [get, put, delete] = [1 + prng.below(6), 1 + prng.below(6), prng.below(3)];
    let weights = WishWeights {
        kinds: [(Get, get), (Put, put), (Delete, delete)],
        condition_percent: pick(prng, &[0, 30, 80]),
        is_loyal: prng.chance(1, 2),
        gives_up: prng.chance(1, 4),
    };
    let count = total / clients + 1;
    let draw = |client| {
        let todo = (0..count).map(|_| draw_operation(shape, &weights, client as usize, prng));
        todo.collect()
    };
    (0..clients).map(draw).collect()
}

struct WishWeights {
    kinds: [(PlannedKind, u64); 3],
    condition_percent: u64,
    /// The member that a client asks: mostly its own one, or any.
    is_loyal: bool,
    gives_up: bool,
}

fn draw_operation(
    shape: &RunShape,
    weights: &WishWeights,
    client: usize,
    prng: &mut Prng,
) -> PlannedOp {
    let key = prng.below(shape.keys.len() as u64) as usize;
    let class = shape.keys[key];
    let kind = weighted(prng, &weights.kinds);
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
        let last = MatchesLast;
        pick(prng, &[Present, Absent, last, last, last, DiffersLast])
    } else {
        Any
    };
    let member = draw_member(shape, weights.is_loyal, client, prng);
    let gives_up = weights.gives_up && prng.chance(1, 8);
    PlannedOp {
        base,
        quorum,
        think_us: prng.below(shape.think_us + 1),
        timeout_us: 1_000 + prng.below(shape.timeout_us),
        patience_us: gives_up.then(|| prng.below(shape.timeout_us)),
        value_bytes: 4 + prng.below(shape.value_bytes_max) as usize,
        ttl_ms: (class == KeyClass::Fleeting).then(|| 1 + skewed(prng, 3_000)),
        ..PlannedOp::plain(key, kind, member)
    }
}

/// The own member of a loyal client, mostly, or any.
fn draw_member(shape: &RunShape, is_loyal: bool, client: usize, prng: &mut Prng) -> usize {
    if is_loyal && prng.chance(4, 5) {
        client % shape.members
    } else {
        shape.any_member(prng)
    }
}

/// In some runs, processors that are slow for a while, and a burst of clients at each of them.
pub(super) fn overloads(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &plan.shape;
    let count = faults::seldom(5, 3, prng);
    let weights = WishWeights {
        kinds: [(Get, 2), (Put, 2), (Delete, 1)],
        condition_percent: pick(prng, &[0, 20]),
        is_loyal: false,
        gives_up: true,
    };
    for _ in 0..count {
        let member = shape.any_member(prng);
        let at_us = prng.below(shape.chaos_us);
        let length_us = 20_000 + skewed(prng, 1_000_000);
        let event_us = pick(prng, &[100, 2_000, 20_000]);
        let kind = FaultKind::SlowProcessor { member, event_us };
        plan.faults.push(Fault::new(at_us, length_us, kind));
        for client in 0..2 + prng.below(22) {
            let mut todo: Vec<PlannedOp> = (0..1 + prng.below(3))
                .map(|_| draw_operation(shape, &weights, client as usize, prng))
                .collect();
            for planned in &mut todo {
                planned.member = member;
                // They come again at once, as clients do that have given up.
                planned.think_us = prng.below(1_000);
            }
            todo[0].think_us += at_us;
            plan.clients.push(todo);
        }
    }
}

/// In some runs, walks over all keys or some.
pub(super) fn scans(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &plan.shape;
    let count = faults::seldom(3, 12, prng);
    let keys = shape.keys.len() as u64;
    let draw = |_| {
        let is_whole = prng.chance(1, 2);
        let start = if is_whole {
            0
        } else {
            prng.below(keys) as usize
        };
        PlannedScan {
            at_us: prng.below(shape.chaos_us),
            member: shape.any_member(prng),
            start,
            end: prng
                .chance(1, 4)
                .then(|| start + 1 + prng.below(keys) as usize),
            is_reverse: prng.chance(1, 3),
            bytes: pick(prng, &[1, 40, 200, 1 << 16]),
            timeout_us: 1_000 + prng.below(shape.timeout_us),
        }
    };
    plan.scans = (0..count).map(draw).collect();
}

/// Operations for a whole soak, of so many clients: the keys of one time, and then those of the
/// next. They ask any machine that runs, for founders leave.
pub(super) fn long(
    shape: &RunShape,
    clients: usize,
    times: usize,
    prng: &mut Prng,
) -> Vec<Vec<PlannedOp>> {
    let draw = |_| {
        let (mut todo, mut at_us) = (Vec::new(), 0);
        while at_us < shape.chaos_us {
            let burst = draw_usual(shape, prng);
            let from = prng.below(MACHINES_MAX as u64) as usize;
            for mut planned in burst.into_iter().flatten() {
                at_us += planned.think_us;
                let time = at_us.min(shape.chaos_us - 1) * times as u64 / shape.chaos_us;
                planned.key += time as usize * shape.keys.len();
                planned.member += from;
                todo.push(planned);
            }
        }
        todo
    };
    (0..clients).map(draw).collect()
}

/// Bursts of operations on the keys of their time.
pub(super) fn bursts(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &plan.shape;
    let clients = 2 + prng.below(3);
    let is_loyal = prng.chance(1, 2);
    let kinds = [(Get, 3), (Put, 5), (Delete, 1 + prng.below(3))];
    let draw = |client: u64| {
        let (mut todo, mut at_us) = (Vec::new(), 0);
        while at_us < shape.chaos_us {
            let longest_us = pick(prng, &[200_000, 2_000_000, 10_000_000]);
            let mut quiet_us = prng.below(longest_us);
            for _ in 0..1 + prng.below(6) {
                let think_us = std::mem::take(&mut quiet_us) + prng.below(shape.think_us + 1);
                at_us += think_us;
                let keys = shape.keys.len() as u64;
                let now = (at_us.min(shape.chaos_us - 1) * keys / shape.chaos_us) as usize;
                let key = now.saturating_sub(prng.below(2) as usize);
                let member = draw_member(shape, is_loyal, client as usize, prng);
                let kind = weighted(prng, &kinds);
                let plain = PlannedOp::plain(key, kind, member);
                todo.push(draw_in_burst(shape, plain, think_us, prng));
            }
        }
        todo
    };
    plan.clients = (0..clients).map(draw).collect();
}

fn draw_in_burst(shape: &RunShape, plain: PlannedOp, think_us: u64, prng: &mut Prng) -> PlannedOp {
    let class = shape.keys[plain.key];
    let base = match class {
        KeyClass::Strong => {
            let last = MatchesLast;
            pick(prng, &[Any, Any, Absent, Absent, last, last, Present])
        }
        KeyClass::Fleeting | KeyClass::Weak => Any,
    };
    let is_patient = prng.chance(1, 4);
    let timeout_us = if is_patient {
        5_000_000
    } else {
        shape.timeout_us
    };
    PlannedOp {
        base,
        think_us,
        timeout_us: 1_000 + prng.below(timeout_us),
        value_bytes: 4 + prng.below(shape.value_bytes_max) as usize,
        ttl_ms: (class == KeyClass::Fleeting).then(|| 1 + skewed(prng, 3_000)),
        ..plain
    }
}

/// In every second run some keys are written and deleted with fewer copies, by fewer answers. One
/// that is lost may have been the only one: so where no other copy is lost, and members stay.
pub(super) fn fewer_copies(plan: &mut RunPlan, prng: &mut Prng) {
    let loses = plan.faults.iter().any(|fault| fault.kind.takes_records());
    if loses || !plan.has_only_absences() || prng.chance(1, 2) {
        return;
    }
    let copies = plan.shape.copies as u64;
    weaken(plan, (1, 2), prng, |prng| 1 + prng.below(copies));
}

/// Most keys are written, read and deleted with any number of copies up to all members, by any
/// number of answers.
pub(super) fn any_copies(plan: &mut RunPlan, prng: &mut Prng) {
    let (copies, members) = (plan.shape.copies as u64, plan.shape.members as u64);
    weaken(plan, (3, 4), prng, |prng| {
        let is_usual = prng.chance(1, 2);
        if is_usual {
            copies
        } else {
            1 + prng.below(members)
        }
    });
}

/// Makes that share of the keys weak: their operations have `copies`.
fn weaken(
    plan: &mut RunPlan,
    (share, of): (u64, u64),
    prng: &mut Prng,
    copies: impl Fn(&mut Prng) -> u64,
) {
    let keys = &mut plan.shape.keys;
    for class in keys.iter_mut() {
        if *class == KeyClass::Strong && prng.chance(share, of) {
            *class = KeyClass::Weak;
        }
    }
    let all = plan.clients.iter_mut().flatten();
    for planned in all.filter(|planned| keys[planned.key] == KeyClass::Weak) {
        let from = copies(prng);
        planned.base = Any;
        planned.quorum = Some((1 + prng.below(from) as u8, from as u8));
    }
}

/// Many operations until the member is lost, and few from then on.
pub(super) fn until_a_loss(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &plan.shape;
    let loss = plan
        .changes
        .as_ref()
        .and_then(|changes| changes.loss.as_ref());
    let lost_us = loss.map_or(0, |loss| loss.lost_us);
    let clients = 2 + prng.below(3);
    let conditions = pick(prng, &[0, 30, 60]);
    let draw = |client: u64| {
        let (mut todo, mut at_us) = (Vec::new(), 0);
        while at_us < shape.chaos_us {
            // Until then reads would bring the third member up.
            let is_early = at_us < lost_us;
            let (longest_us, gets) = if is_early {
                (shape.think_us, 1)
            } else {
                (1_500_000, 14)
            };
            let think_us = prng.below(longest_us);
            at_us += think_us + shape.delay_spread_us;
            let kind = weighted(prng, &[(Put, 6), (Delete, 1), (Get, gets)]);
            let base = if prng.chance(conditions, 100) {
                pick(
                    prng,
                    &[Present, Absent, MatchesLast, MatchesLast, DiffersLast],
                )
            } else {
                Any
            };
            let key = prng.below(shape.keys.len() as u64) as usize;
            let member = if prng.chance(1, 2) {
                client as usize % shape.members
            } else {
                shape.any_member(prng)
            };
            todo.push(PlannedOp {
                base,
                think_us,
                timeout_us: 1_000 + prng.below(shape.timeout_us),
                value_bytes: 4 + prng.below(shape.value_bytes_max) as usize,
                ..PlannedOp::plain(key, kind, member)
            });
        }
        todo
    };
    plan.clients = (0..clients).map(draw).collect();
}

/// Half of the keys are locks: they are taken, renewed and looked at, and nothing else is done with
/// them.
pub(super) fn locks(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &plan.shape;
    let (clients, total) = (1 + prng.below(5), 40 + prng.below(100));
    let mut draw = || {
        let key = prng.below(shape.keys.len() as u64) as usize;
        let other = u64::from(!key.is_multiple_of(2));
        let (kind, base) = weighted(
            prng,
            &[
                ((Get, Any), 5),
                ((Put, Absent), 5 - 3 * other),
                ((Touch, MatchesLast), 3),
                ((Put, Any), other),
                ((Put, MatchesLast), other),
                ((Delete, Any), other),
            ],
        );
        let member = shape.any_member(prng);
        PlannedOp {
            base,
            think_us: prng.below(shape.chaos_us / 8),
            timeout_us: 1_000 + prng.below(shape.timeout_us),
            value_bytes: 4 + prng.below(shape.value_bytes_max) as usize,
            ttl_ms: Some(match prng.below(3) {
                0 => 1 + skewed(prng, 3_000),
                _ => 20_000 + skewed(prng, 600_000),
            }),
            ..PlannedOp::plain(key, kind, member)
        }
    };
    let each = total / clients + 1;
    plan.clients = (0..clients)
        .map(|_| (0..each).map(|_| draw()).collect())
        .collect();
}

/// A few clients watch, and members remember few changes or many.
pub(super) fn watches(plan: &mut RunPlan, prng: &mut Prng) {
    plan.watches = Some(PlannedWatches {
        clients: 1 + prng.below(3) as usize,
        changes_bytes: pick(prng, &[300, 2_000, 1 << 20]),
    });
}
