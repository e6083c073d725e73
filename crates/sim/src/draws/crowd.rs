//! Crowds in front of members: what a seed draws.
//!
//! ```text
//! seed ─► Crowd   costs of a loop, bounds of a member, its disk and its memtables
//!      ─► Habit      one for each client of the crowd
//!      ─► faults     a frozen or killed member, a slow processor, a slow disk
//! ```
//!
//! Invariants
//! 1. Each draw takes from the stream that it is given, in a fixed order: a seed keeps its crowd.
//!
//! Not here: the types (`overload.rs`), the loop (`door/`).
//! See: docs/verification.md.

use super::wishes::weighted;
use crate::overload::{Crowd, DoorBounds, Habit, HabitWork, LoopCosts};
use crate::plan::PlannedKind::{Delete, Get, Put};
use crate::plan::{Fault, FaultKind, PlannedCondition, PlannedOp, RunPlan, RunShape, pick};
use dendra_base::Prng;
use dendra_node::standing::TURN;

/// Clients wait for at least so many turns of a loop in a line.
const TURNS_OF_PATIENCE: u64 = 12;

pub(super) fn usual(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &plan.shape;
    let request_us = pick(prng, &[200, 500, 1_000]);
    let costs = LoopCosts {
        request_us,
        // docs/overload.md: a third of a small read.
        refusal_us: request_us / 3,
        gone_us: request_us / 4,
        event_us: pick(prng, &[request_us / 40, request_us / 10]),
    };
    // Sizes of values: all small, or a few clients with large ones.
    let large_bytes = pick(prng, &[0, 0, 6_000, 20_000, 40_000]);
    let largest = large_bytes.max(200);
    let (from_us, until_us) = (shape.chaos_us / 8, shape.chaos_us * 7 / 8);
    let log_bytes_max = largest * pick(prng, &[2, 4, 16]) + 4_096;
    let bounds = DoorBounds {
        connections_max: pick(prng, &[80, 1_000]),
        requests_max: pick(prng, &[4, 16, 64, 64]),
        // More than hints are delivered at once: a walk that is refused waits for the next one.
        orders_max: pick(prng, &[128, 256, 1_024]),
        order_bytes_max: largest * pick(prng, &[4, 16]) + 65_536,
        batch_len_max: pick(prng, &[4, 64]),
        // As in the server: so that a batch fits the log's queue once that is empty.
        batch_bytes_max: log_bytes_max / 2,
        log_len_max: pick(prng, &[8, 64, 512]),
        log_bytes_max,
        // Some of them fit a memtable, as in the server.
        turn_bytes: (log_bytes_max / 16) as u32,
        memory_bytes: (largest as u64 + 2_000) * pick(prng, &[12, 40, 200]),
        events_max: 8_192,
    };
    let habits = draw_habits(shape, &costs, large_bytes, from_us, prng);
    plan.overload = Some(Crowd {
        costs,
        bounds,
        target_us: pick(prng, &[10_000, 30_000]),
        // A full queue of the log is 100 ms of its work at most.
        log_bytes_per_ms: pick(prng, &[200, 2_000, 50_000]).max(log_bytes_max as u64 / 100),
        // A memtable is flushed within a second.
        flush_bytes_per_ms: pick(prng, &[200, 2_000, 50_000]).max(bounds.memory_bytes / 3 / 1_000),
        habits,
        from_us,
        until_us,
    });
}

/// Crowds at one member or at all: from one source or from many, some with large values, beside
/// sources with one client each.
fn draw_habits(
    shape: &RunShape,
    costs: &LoopCosts,
    large_bytes: usize,
    from_us: u64,
    prng: &mut Prng,
) -> Vec<Habit> {
    let mut habits = Vec::new();
    let crowded: Vec<usize> = if prng.chance(1, 2) {
        vec![shape.any_member(prng)]
    } else {
        (0..shape.members).collect()
    };
    let patience_us = pick(prng, &[60_000, 200_000, 1_000_000]);
    // A turn of a loop is short beside it, as the line takes for granted.
    let patience_us = patience_us.max(TURNS_OF_PATIENCE * TURN as u64 * costs.request_us);
    // The load of the crowd, in tenths of the processors' time, were each answered at its end.
    let load = pick(prng, &[7, 20, 40, 80]);
    let capacity = patience_us * shape.lanes as u64 / costs.request_us;
    let clients = (capacity * load / 10 / if crowded.len() > 1 { 2 } else { 1 }).clamp(6, 160);
    let sources = pick(prng, &[1, 3, 12, 40]);
    let mixed = HabitWork::Mixed;
    let work = pick(prng, &[HabitWork::Reads, mixed, mixed, HabitWork::Writes]);
    for &member in &crowded {
        for client in 0..clients {
            let is_large = large_bytes > 0 && prng.chance(1, 12);
            // Skewed: the first source has most of them.
            let most = 1 + prng.below(sources);
            let is_polite = prng.chance(1, 4);
            habits.push(Habit {
                source: prng.below(most) as u32,
                member,
                work: if is_large { HabitWork::Writes } else { work },
                value_bytes: if is_large {
                    large_bytes / 2 + prng.below(large_bytes as u64 / 2) as usize
                } else {
                    4 + prng.below(200) as usize
                },
                timeout_us: patience_us * 2,
                patience_us: patience_us / 2 + prng.below(patience_us),
                think_us: if is_polite { 300_000 } else { 50_000 },
                from_us: from_us + prng.below(20_000 + client),
                is_lone: false,
            });
        }
        // Those that have an address for themselves, and wait for as long as the usual deadline.
        for lone in 0..pick(prng, &[1, 4]) {
            habits.push(Habit {
                source: 1_000 + 10 * member as u32 + lone,
                member,
                work: pick(prng, &[HabitWork::Reads, HabitWork::Mixed]),
                value_bytes: 20,
                timeout_us: 1_000_000,
                patience_us: 1_100_000,
                think_us: 1_000,
                from_us: from_us / 2,
                is_lone: true,
            });
        }
    }
    habits
}

/// In some runs, readers without faults at one member: in the order of their arrival each would be
/// answered when it has given up.
pub(super) fn flood(plan: &mut RunPlan, prng: &mut Prng) {
    let Some(overload) = plan.overload.as_mut().filter(|_| prng.chance(1, 4)) else {
        return;
    };
    let shape = &plan.shape;
    plan.faults.clear();
    let member = shape.any_member(prng);
    overload.costs.request_us = 1_000;
    overload.costs.refusal_us = 333;
    overload.costs.gone_us = 250;
    overload.costs.event_us = 25;
    overload.bounds.requests_max = 64;
    overload.bounds.connections_max = 4_096;
    overload.habits.retain(|habit| habit.is_lone);
    let sources = pick(prng, &[1, 3, 40]);
    let patience_us = TURNS_OF_PATIENCE * TURN as u64 * overload.costs.request_us;
    for _ in 0..900 * shape.lanes {
        let most = 1 + prng.below(sources);
        overload.habits.push(Habit {
            source: prng.below(most) as u32,
            member,
            work: HabitWork::Reads,
            value_bytes: 20,
            timeout_us: 2 * patience_us,
            patience_us: patience_us / 2 + prng.below(patience_us),
            think_us: 5_000,
            from_us: overload.from_us + prng.below(20_000),
            is_lone: false,
        });
    }
}

/// In every second run.
pub(super) fn faults(plan: &mut RunPlan, prng: &mut Prng) {
    let Some(overload) = plan.overload.as_ref().filter(|_| !prng.chance(1, 2)) else {
        return;
    };
    let span_us = overload.until_us - overload.from_us;
    for _ in 0..1 + prng.below(3) {
        let member = plan.shape.any_member(prng);
        let kind = match prng.below(8) {
            0..3 => FaultKind::Pause { member },
            3..5 => {
                let times = pick(prng, &[5, 40]);
                FaultKind::SlowDisk { member, times }
            }
            5..7 => {
                let event_us = overload.costs.event_us * pick(prng, &[2, 10]);
                FaultKind::SlowProcessor { member, event_us }
            }
            _ => FaultKind::Kill { member },
        };
        let at_us = overload.from_us + prng.below(span_us);
        let length_us = 20_000 + prng.below(span_us / 2);
        plan.faults.push(Fault::new(at_us, length_us, kind));
    }
}

/// The next wish of a client of the crowd.
pub(crate) fn next_wish(habit: &Habit, keys: usize, prng: &mut Prng) -> PlannedOp {
    let [get, put, delete] = match habit.work {
        HabitWork::Reads => [8, 0, 0],
        HabitWork::Mixed => [4, 3, 1],
        HabitWork::Writes => [0, 8, 0],
    };
    let kind = weighted(prng, &[(Get, get), (Put, put), (Delete, delete)]);
    let is_conditional = kind == Put && prng.chance(1, 16);
    let key = prng.below(keys as u64) as usize;
    PlannedOp {
        base: if is_conditional {
            PlannedCondition::MatchesLast
        } else {
            PlannedCondition::Any
        },
        think_us: prng.below(habit.think_us + 1),
        timeout_us: habit.timeout_us,
        patience_us: Some(habit.patience_us),
        value_bytes: habit.value_bytes,
        ..PlannedOp::plain(key, kind, habit.member)
    }
}
