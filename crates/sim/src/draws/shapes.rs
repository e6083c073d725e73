//! The shape of each world's runs: how large the cluster is, its keys, its clocks and its weather.
//!
//! Invariants
//! 1. Each draw takes from the stream that it is given, in a fixed order: a seed keeps its shape.
//!
//! Not here: the options of a shape (`plan/shape.rs`).
//! See: docs/verification.md.

use crate::changes::DAY_US;
use crate::plan::{KeyClass, RunPlan, RunShape, StoreKind, pick, skewed};
use dendra_base::Prng;

pub(super) fn changing(prng: &mut Prng) -> RunShape {
    let mut shape = RunShape::draw(prng);
    let copies = [1, 2, 3, 3, 3, 3, 3, 4, 5];
    shape.resize(&[3, 3, 3, 3, 4, 4, 5, 6, 7, 9], &copies, prng);
    // Copies beyond those of the table have no twins. A write that fewer than a majority of its
    // owners confirmed may be lost in a move.
    for class in &mut shape.keys {
        if *class == KeyClass::Weak {
            *class = KeyClass::Strong;
        }
    }
    shape.chaos_us = pick(prng, &[5_000_000, 10_000_000, 20_000_000]);
    shape.think_us = shape.chaos_us / pick(prng, &[15, 40, 400]);
    shape.draw_clocks(prng);
    shape
}

pub(super) fn horizons(prng: &mut Prng) -> RunShape {
    let mut shape = RunShape::draw(prng);
    let copies = [1, 2, 3, 3, 3, 3, 3, 5];
    shape.resize(&[2, 3, 3, 3, 3, 4, 5], &copies, prng);
    let count = 2 + prng.below(14) as usize;
    let is_fleeting = prng.chance(1, 4);
    let mut class = || {
        if is_fleeting && prng.chance(1, 3) {
            KeyClass::Fleeting
        } else {
            KeyClass::Strong
        }
    };
    shape.keys = (0..count).map(|_| class()).collect();
    shape.chaos_us = pick(prng, &[15_000_000, 30_000_000, 60_000_000]);
    shape.value_bytes_max = shape.value_bytes_max.min(200);
    // A comparison with each other member belongs to each step.
    shape.compares = Some((1 << 30, pick(prng, &[100_000, 400_000])));
    shape.unlucky = shape.any_member(prng);
    shape.draw_clocks(prng);
    shape
}

/// Bends the shape of horizons for blocks that rot.
pub(super) fn rotten(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &mut plan.shape;
    shape.keys = vec![KeyClass::Strong; 6 + prng.below(24) as usize];
    shape.members = pick(prng, &[3, 3, 4, 5]);
    (shape.copies, shape.store) = (3, StoreKind::Engine);
    shape.value_bytes_max = 200;
    shape.unlucky %= shape.members;
}

/// Bends the shape of horizons: a record may have more copies than the factor.
pub(super) fn more_copies(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &mut plan.shape;
    shape.resize(&[3, 4, 4, 5, 5, 6], &[1, 2, 3, 3, 3, 4], prng);
    shape.copies = shape.copies.min(shape.members - 1);
    shape.draw_clocks(prng);
}

/// Bends the shape of horizons for a factor that falls.
pub(super) fn lowered(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &mut plan.shape;
    shape.resize(&[3, 4, 4, 5, 5], &[2, 3, 3, 4], prng);
    shape.draw_clocks(prng);
}

/// Bends it for a factor that falls from five. Hints are not kept, and it takes a while until
/// copies are compared.
pub(super) fn lowered_lost(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &mut plan.shape;
    shape.resize(&[5, 5, 6], &[5], prng);
    shape.hint_bytes = 0;
    shape.compares = Some((1 << 30, pick(prng, &[3_000_000, 8_000_000])));
    shape.chaos_us = 15_000_000;
    shape.draw_clocks(prng);
    shape.keys = vec![KeyClass::Strong; 8];
    shape.think_us = 50_000;
}

/// Records have three copies: with any other number, all that is left is enough, or none is.
pub(super) fn losses(prng: &mut Prng) -> RunShape {
    let mut shape = RunShape::draw(prng);
    shape.resize(&[3, 3, 3, 4, 5], &[3], prng);
    shape.store = StoreKind::Engine;
    shape.keys = vec![KeyClass::Strong; 4 + prng.below(24) as usize];
    shape.value_bytes_max = pick(prng, &[20, 200, 600]);
    shape.hint_bytes = pick(prng, &[0, 0, 0, 1 << 20]);
    shape.chaos_us = pick(prng, &[30_000_000, 45_000_000]);
    shape.think_us = pick(prng, &[20_000, 100_000]);
    shape.draw_clocks(prng);
    shape
}

/// Three members at least: of two neither is most of them.
pub(super) fn expiring(prng: &mut Prng) -> RunShape {
    let mut shape = RunShape::draw(prng);
    shape.resize(&[3, 3, 3, 4, 5], &[1, 2, 3, 3, 3, 3, 5], prng);
    shape.keys = vec![KeyClass::Fleeting; 1 + prng.below(4) as usize];
    shape.chaos_us = pick(prng, &[2_000_000, 6_000_000]);
    let mut clocks = |most| {
        (0..shape.members)
            .map(|_| skewed(prng, most) as i64)
            .collect()
    };
    (shape.skew_ms, shape.drift_ppm) = (clocks(400), clocks(500));
    shape.compares = draw_compares(prng);
    shape
}

pub(super) fn overloaded(prng: &mut Prng) -> RunShape {
    let mut shape = RunShape::draw(prng);
    shape.resize(&[1, 2, 3, 3, 3, 4], &[1, 3, 3, 3], prng);
    shape.lanes = pick(prng, &[1, 1, 2]);
    shape.store = StoreKind::Map;
    shape.draw_clocks(prng);
    shape.keys = vec![KeyClass::Strong; pick(prng, &[16, 64, 160])];
    // A data centre: what is late here is late by the overload.
    shape.delay_min_us = pick(prng, &[20, 100]);
    shape.delay_spread_us = pick(prng, &[50, 500, 2_000]);
    shape.tail = (0, 1);
    (shape.loss_permille, shape.repeat_permille) = (0, 0);
    shape.stranger_permille = 0;
    shape.sync_us = pick(prng, &[100, 1_000, 5_000]);
    shape.read_us = pick(prng, &[0, 200]);
    shape.turn_us = 50;
    shape.chaos_us = pick(prng, &[1_500_000, 2_500_000]);
    shape
}

/// Clocks are apart, and do not drift: no member corrects them in all these years.
pub(super) fn deletes(prng: &mut Prng) -> RunShape {
    let mut shape = RunShape::draw(prng);
    shape.members = pick(prng, &[3, 3, 3, 4, 5]);
    shape.copies = if shape.members == 5 {
        pick(prng, &[3, 5])
    } else {
        3
    };
    shape.store = StoreKind::Map;
    shape.keys = vec![KeyClass::Strong];
    shape.delay_spread_us = 1_000;
    shape.tail = (5, 100_000);
    (shape.loss_permille, shape.repeat_permille) = (1, 5);
    (shape.sync_us, shape.read_us) = (2_000, 200);
    shape.skew_ms = (0..shape.members).map(|_| prng.below(400) as i64).collect();
    shape.drift_ppm = vec![0; shape.members];
    shape.timeout_us = 1_000_000;
    shape.hint_bytes = pick(prng, &[0, 2_000, 1 << 20]);
    shape.compares = Some((1 << 30, 4 * DAY_US));
    shape.stranger_permille = 0;
    // Later than any soak ends.
    shape.chaos_us = u64::MAX / 4;
    shape
}

/// In some runs, members that compare their copies all the time.
fn draw_compares(prng: &mut Prng) -> Option<(u64, u64)> {
    let is_on = prng.chance(1, 3);
    is_on.then(|| {
        let bytes_per_second = pick(prng, &[50_000, 1 << 20, 1 << 30]);
        let pause_us = pick(prng, &[20_000, 300_000, 2_000_000]);
        (bytes_per_second, pause_us)
    })
}

pub(super) fn compares(plan: &mut RunPlan, prng: &mut Prng) {
    plan.shape.compares = draw_compares(prng);
}

/// Pairs grow faster than members.
pub(super) fn compares_of_many(plan: &mut RunPlan, prng: &mut Prng) {
    let least_us = 50_000 * plan.shape.members as u64;
    let compares = draw_compares(prng);
    plan.shape.compares = compares.map(|(bytes, pause_us)| (bytes, pause_us.max(least_us)));
}

pub(super) fn seldom_compares(plan: &mut RunPlan, prng: &mut Prng) {
    plan.shape.compares = plan.shape.compares.filter(|_| prng.chance(1, 4));
}
