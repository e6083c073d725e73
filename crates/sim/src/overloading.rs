//! Plans of overloads: what a seed draws.
//!
//! ```text
//! seed ─► Crowd   costs of a loop, bounds of a member, its disk and its memtables
//!      ─► Habit      one for each client of the crowd
//!      ─► faults     a frozen or killed member, a slow processor, a slow disk
//! ```
//!
//! Invariants
//! 1. The same seed gives the same plan for ever.
//!
//! Not here: the types (`overload.rs`), the loop (`door/`).
//! See: docs/verification.md.

use crate::changing::draw_clocks;
use crate::overload::{Crowd, DoorBounds, Habit, HabitWork, LoopCosts};
use crate::plan::{
    Fault, FaultKind, KeyClass, PlannedCondition, PlannedKind, PlannedOp, RunPlan, RunShape,
    StoreKind, pick,
};
use dendra_base::Prng;
use dendra_node::standing::TURN;

/// Clients wait for at least so many turns of a loop in a line.
const TURNS_OF_PATIENCE: u64 = 12;

impl RunPlan {
    /// A cluster, or one member, in front of which crowds stand.
    pub fn draw_overloaded(seed: u64) -> RunPlan {
        let stream = |name: &str| Prng::named(seed, &format!("overloaded: {name}"));
        let mut shape = draw_shape(&mut stream("shape"));
        let mut overload = draw_overload(&mut shape, &mut stream("overload"));
        let mut faults = draw_faults(&shape, &overload, &mut stream("faults"));
        faults.sort_by_key(|fault| fault.at_us);
        let prng = &mut stream("flood");
        if prng.chance(1, 4) {
            draw_flood(&shape, &mut overload, prng);
            faults.clear();
        }
        RunPlan {
            seed,
            shape,
            clients: Vec::new(),
            scans: Vec::new(),
            faults,
            wrong_clocks: None,
            image: None,
            changes: None,
            overload: Some(overload),
        }
    }
}

fn draw_shape(prng: &mut Prng) -> RunShape {
    let mut shape = RunShape::draw(prng);
    shape.members = pick(prng, &[1, 2, 3, 3, 3, 4]);
    shape.copies = pick(prng, &[1, 3, 3, 3]).min(shape.members);
    shape.lanes = pick(prng, &[1, 1, 2]);
    shape.store = StoreKind::Map;
    shape.unlucky = 0;
    draw_clocks(&mut shape, prng);
    let keys = pick(prng, &[16, 64, 160]);
    shape.keys = vec![KeyClass::Strong; keys];
    // A data centre: what is late here is late by the overload.
    shape.delay_min_us = pick(prng, &[20, 100]);
    shape.delay_spread_us = pick(prng, &[50, 500, 2_000]);
    shape.tail = (0, 1);
    shape.loss_permille = 0;
    shape.repeat_permille = 0;
    shape.stranger_permille = 0;
    shape.sync_us = pick(prng, &[100, 1_000, 5_000]);
    shape.read_us = pick(prng, &[0, 200]);
    shape.turn_us = 50;
    shape.compares = None;
    shape.chaos_us = pick(prng, &[1_500_000, 2_500_000]);
    shape
}

fn draw_overload(shape: &mut RunShape, prng: &mut Prng) -> Crowd {
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
    Crowd {
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
    }
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
        vec![prng.below(shape.members as u64) as usize]
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
    let work = pick(
        prng,
        &[
            HabitWork::Reads,
            HabitWork::Mixed,
            HabitWork::Mixed,
            HabitWork::Writes,
        ],
    );
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
fn draw_flood(shape: &RunShape, overload: &mut Crowd, prng: &mut Prng) {
    let member = prng.below(shape.members as u64) as usize;
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

fn draw_faults(shape: &RunShape, overload: &Crowd, prng: &mut Prng) -> Vec<Fault> {
    if prng.chance(1, 2) {
        return Vec::new();
    }
    let span_us = overload.until_us - overload.from_us;
    let count = 1 + prng.below(3);
    let draw = |_| {
        let member = prng.below(shape.members as u64) as usize;
        let kind = match prng.below(8) {
            0..3 => FaultKind::Pause { member },
            3..5 => FaultKind::SlowDisk {
                member,
                times: pick(prng, &[5, 40]),
            },
            5..7 => FaultKind::SlowProcessor {
                member,
                event_us: overload.costs.event_us * pick(prng, &[2, 10]),
            },
            _ => FaultKind::Kill { member },
        };
        Fault {
            at_us: overload.from_us + prng.below(span_us),
            length_us: 20_000 + prng.below(span_us / 2),
            kind,
        }
    };
    (0..count).map(draw).collect()
}

/// The next wish of a client of the crowd.
pub(crate) fn next_wish(habit: &Habit, keys: usize, prng: &mut Prng) -> PlannedOp {
    let kind = match (habit.work, prng.below(8)) {
        (HabitWork::Reads, _) | (HabitWork::Mixed, 0..4) => PlannedKind::Get,
        (HabitWork::Mixed, 7) => PlannedKind::Delete,
        _ => PlannedKind::Put,
    };
    let is_conditional = kind == PlannedKind::Put && prng.chance(1, 16);
    PlannedOp {
        key: prng.below(keys as u64) as usize,
        kind,
        base: if is_conditional {
            PlannedCondition::MatchesLast
        } else {
            PlannedCondition::Any
        },
        quorum: None,
        member: habit.member,
        think_us: prng.below(habit.think_us + 1),
        timeout_us: habit.timeout_us,
        patience_us: Some(habit.patience_us),
        value_bytes: habit.value_bytes,
        ttl_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_of_an_overload_means_the_same_for_ever() {
        for seed in 0..20 {
            let drawn = [(); 2].map(|()| format!("{:?}", RunPlan::draw_overloaded(seed)));
            assert_eq!(drawn[0], drawn[1]);
        }
    }

    #[test]
    fn seeds_draw_crowds_of_one_source_and_of_many_with_small_values_and_large() {
        let plans: Vec<RunPlan> = (0..300).map(RunPlan::draw_overloaded).collect();
        let crowds: Vec<&Crowd> = plans
            .iter()
            .filter_map(|plan| plan.overload.as_ref())
            .collect();
        assert!(crowds.iter().any(|crowd| crowd.sources() < 4));
        assert!(crowds.iter().any(|crowd| crowd.sources() > 30));
        let has_large = |crowd: &&&Crowd| crowd.habits.iter().any(|it| it.value_bytes > 10_000);
        assert!(crowds.iter().filter(has_large).count() > 20);
        assert!(plans.iter().any(|plan| plan.shape.members == 1));
        assert!(plans.iter().any(|plan| plan.shape.members == 4));
    }
}
