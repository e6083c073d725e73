//! The plan of a seed for a cluster in which an operator accepts a loss.
//!
//! ```text
//! clients   dense ··············· until the member is lost ─── sparse ─── until the weather is calm
//! the third           away ······┤ back
//! one of the others              ┤ lost; a block of the other one is damaged; the order
//! faults    as in other runs, but for those that take records away from a disk
//! ```
//!
//! Invariants
//! 1. It is a plan of its own for each seed, drawn from streams of its own.
//! 2. Records have three copies: with any other number, all that is left is enough, or none is.
//! 3. One member is lost and another one is damaged. All others keep their disks.
//!
//! Not here: how all this is done (`world/town/losses.rs`).
//! See: docs/decisions/0044-a-loss-is-accepted.md.

use crate::changes::{Changes, LossOf, OperatorDeed, PlannedLoss};
use crate::changing::{draw_clocks, draw_deed};
use crate::plan::{
    FaultKind, KeyClass, PlannedCondition, PlannedKind, PlannedOp, RunPlan, RunShape, StoreKind,
    draw_compares, draw_faults, pick,
};
use dendra_base::Prng;

impl RunPlan {
    /// The plan of `seed` for a cluster in which an operator accepts a loss.
    pub fn draw_losses(seed: u64) -> RunPlan {
        let stream = |name: &str| Prng::named(seed, &format!("losses: {name}"));
        let mut shape = draw_shape(&mut stream("shape"));
        if stream("compares").chance(1, 4) {
            shape.compares = draw_compares(&mut stream("comparisons"));
        }
        let loss = draw_loss(&shape, &mut stream("loss"));
        let clients = draw_clients(&shape, &loss, &mut stream("clients"));
        let mut faults = draw_faults(&shape, &mut stream("faults"));
        faults.retain(|fault| !matches!(fault.kind, FaultKind::Rot { .. } | FaultKind::LostDisk));
        let changes = draw_changes(&shape, loss, &mut stream("changes"));
        RunPlan::of_changes(seed, shape, (clients, Vec::new()), faults, changes)
    }
}

fn draw_shape(prng: &mut Prng) -> RunShape {
    let mut shape = RunShape::draw(prng);
    shape.members = pick(prng, &[3, 3, 3, 4, 5]);
    shape.copies = 3;
    shape.store = StoreKind::Engine;
    shape.keys = vec![KeyClass::Strong; 4 + prng.below(24) as usize];
    shape.value_bytes_max = pick(prng, &[20, 200, 600]);
    shape.hint_bytes = pick(prng, &[0, 0, 0, 1 << 20]);
    shape.chaos_us = pick(prng, &[30_000_000, 45_000_000]);
    shape.think_us = pick(prng, &[20_000, 100_000]);
    shape.unlucky = 0;
    draw_clocks(&mut shape, prng);
    shape
}

fn draw_loss(shape: &RunShape, prng: &mut Prng) -> PlannedLoss {
    let members = shape.members as u64;
    let lost = prng.below(members) as usize;
    let step = 1 + prng.below(members - 1) as usize;
    let damaged = (lost + step) % shape.members;
    let others: Vec<usize> = (0..shape.members)
        .filter(|at| ![lost, damaged].contains(at))
        .collect();
    let away_us = 500_000 + prng.below(3_000_000);
    let mut maybe =
        |one_of: u64, below_us: u64| prng.chance(1, one_of).then(|| prng.below(below_us));
    let rots_again_us = maybe(2, 6_000_000);
    let repeat_us = maybe(3, 15_000_000);
    let ends_us = maybe(4, 2 * shape.sync_us + 2_000).or_else(|| maybe(6, 20_000_000));
    let cancel_us = maybe(6, 3_000_000);
    PlannedLoss {
        lost,
        damaged,
        kept: pick(prng, &others),
        away_us,
        is_cut_off: prng.chance(1, 2),
        lost_us: away_us + 1_000_000 + prng.below(3_000_000),
        how: match prng.below(3) {
            0 if members > 3 => LossOf::Removed,
            0 | 1 => LossOf::Disk,
            _ => LossOf::Away(pick(prng, &[4_000_000, 40_000_000]) + prng.below(10_000_000)),
        },
        rot_us: pick(prng, &[1_000, 50_000, 2_000_000]),
        blocks: pick(prng, &[1, 1, 2, 4]),
        rots_again_us,
        ask_us: pick(prng, &[500_000, 4_000_000, 10_000_000]),
        confirm_us: pick(prng, &[1_000, 200_000, 3_000_000]),
        repeat_us,
        ends_us,
        cancel_us,
        draw: prng.next_u64(),
    }
}

fn draw_changes(shape: &RunShape, loss: PlannedLoss, prng: &mut Prng) -> Changes {
    let kinds = [
        OperatorDeed::Throttle,
        OperatorDeed::Rekey,
        OperatorDeed::AuthorEnds,
        OperatorDeed::Cancel,
        OperatorDeed::Away,
    ];
    let count = match prng.below(2) {
        0 => 0,
        _ => 1 + prng.below(3),
    };
    let mut deeds: Vec<_> = (0..count)
        .map(|_| draw_deed(&kinds, shape.chaos_us * 3 / 4, prng))
        .collect();
    deeds.sort_by_key(|deed| deed.at_us);
    Changes {
        partitions: pick(prng, &[1, 2, 4]),
        side_by_side: pick(prng, &[1, 8]),
        load_bytes_per_second: pick(prng, &[300, 5_000, 1 << 20]),
        load_patience_us: pick(prng, &[500_000, 2_000_000]),
        forget_every_us: 0,
        reads_us: 0,
        meets: false,
        deeds,
        loss: Some(loss),
    }
}

/// Many operations until the member is lost, and few from then on.
fn draw_clients(shape: &RunShape, loss: &PlannedLoss, prng: &mut Prng) -> Vec<Vec<PlannedOp>> {
    let clients = 2 + prng.below(3);
    let conditions = pick(prng, &[0, 30, 60]);
    let draw = |client: u64, prng: &mut Prng| {
        let (mut todo, mut at_us) = (Vec::new(), 0);
        while at_us < shape.chaos_us {
            let is_early = at_us < loss.lost_us;
            let longest_us = if is_early { shape.think_us } else { 1_500_000 };
            let think_us = prng.below(longest_us);
            at_us += think_us + shape.delay_spread_us;
            let mut planned = draw_operation(shape, is_early, conditions, client, prng);
            planned.think_us = think_us;
            todo.push(planned);
        }
        todo
    };
    (0..clients).map(|client| draw(client, prng)).collect()
}

fn draw_operation(
    shape: &RunShape,
    is_early: bool,
    conditions: u64,
    client: u64,
    prng: &mut Prng,
) -> PlannedOp {
    // Until then reads would bring the third member up.
    let gets = if is_early { 1 } else { 14 };
    let kind = match prng.below(7 + gets) {
        0..6 => PlannedKind::Put,
        6 => PlannedKind::Delete,
        _ => PlannedKind::Get,
    };
    let base = if prng.chance(conditions, 100) {
        pick(
            prng,
            &[
                PlannedCondition::Present,
                PlannedCondition::Absent,
                PlannedCondition::MatchesLast,
                PlannedCondition::MatchesLast,
                PlannedCondition::DiffersLast,
            ],
        )
    } else {
        PlannedCondition::Any
    };
    PlannedOp {
        key: prng.below(shape.keys.len() as u64) as usize,
        kind,
        base,
        quorum: None,
        member: if prng.chance(1, 2) {
            client as usize % shape.members
        } else {
            prng.below(shape.members as u64) as usize
        },
        think_us: 0,
        timeout_us: 1_000 + prng.below(shape.timeout_us),
        patience_us: None,
        value_bytes: 4 + prng.below(shape.value_bytes_max) as usize,
        ttl_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_of_losses_means_the_same_for_ever() {
        for seed in 0..20 {
            let drawn = [(); 2].map(|()| format!("{:?}", RunPlan::draw_losses(seed)));
            assert_eq!(drawn[0], drawn[1]);
        }
    }

    #[test]
    fn three_founders_have_parts_of_their_own() {
        for seed in 0..200 {
            let changes = RunPlan::draw_losses(seed).changes.expect("members change");
            let loss = changes.loss.expect("a loss");
            assert_ne!(loss.lost, loss.damaged);
            assert_ne!(loss.lost, loss.kept);
            assert_ne!(loss.damaged, loss.kept);
        }
    }
}
