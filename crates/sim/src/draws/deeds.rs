//! The deeds of an operator in a run: how the members of a cluster change, as each world draws it.
//!
//! Invariants
//! 1. Each draw takes from the stream that it is given, in a fixed order: a seed keeps its deeds.
//! 2. At most one copy of a record is lost at a time, and only where a majority of three or more is
//!    left.
//!
//! Not here: how deeds are done (`world/town/`).
//! See: docs/verification.md, docs/decisions/0044-a-loss-is-accepted.md.

use super::{faults, wishes};
use crate::changes::OperatorDeed::{
    AuthorEnds, Away, Cancel, Copies, FewerCopies, Join, Lag, Leave, Readdress, Rekey, Restored,
    Reweigh, Supersede, Throttle, Wipe,
};
use crate::changes::{
    Changes, DAY_US, FOR_EVER_US, LossOf, OperatorDeed, PlannedDeed, PlannedLoss,
};
use crate::plan::{PlannedCondition, RunPlan, StoreKind, pick};
use dendra_base::Prng;

/// The weather of a run with a member that is away.
const LAGGING_US: u64 = 30_000_000;
/// How long an operator reads a plan that has something to read.
const READS_US: u64 = 2_000_000;
/// Clients of a soak.
const SOAK_CLIENTS: usize = 4;
/// A key of a soak is in use for about so many deeds, or for longer: there are not more keys. Names
/// of keys have two digits, so that they are in order.
const SOAK_DEEDS_OF_KEY: usize = 10;
const SOAK_KEYS_MAX: usize = 100;

fn draw_deed(kinds: &[OperatorDeed], within_us: u64, prng: &mut Prng) -> PlannedDeed {
    PlannedDeed {
        at_us: prng.below(within_us),
        deed: pick(prng, kinds),
        draw: prng.next_u64(),
    }
}

/// So many, of these kinds, while it is not calm yet.
fn draw_deeds(
    count: u64,
    kinds: &[OperatorDeed],
    plan: &RunPlan,
    prng: &mut Prng,
) -> Vec<PlannedDeed> {
    let within_us = plan.shape.chaos_us * 3 / 4;
    (0..count)
        .map(|_| draw_deed(kinds, within_us, prng))
        .collect()
}

/// Members come and go.
pub(super) fn usual(plan: &mut RunPlan, prng: &mut Prng) {
    // Some runs have one kind of deed only, and much of it.
    let mut kinds: Vec<OperatorDeed> = OperatorDeed::ALL
        .into_iter()
        .filter(|_| prng.chance(1, 2))
        .collect();
    if !kinds.iter().any(|deed| *deed < Cancel) {
        kinds.push(pick(prng, &[Join, Leave, Reweigh]));
    }
    // A write from the time in which the number of copies changed may be at fewer owners than a
    // majority of the new number. Each majority meets one owner with it, and a member that is
    // replaced may be that one.
    let has_copies = kinds.contains(&Copies);
    if has_copies {
        kinds.retain(|deed| !matches!(deed, Wipe | Supersede));
    }
    let mut deeds = draw_deeds(1 + prng.below(6), &kinds, plan, prng);
    deeds.sort_by_key(|deed| deed.at_us);
    let mut copies = 0;
    deeds.retain(|planned| {
        copies += u32::from(planned.deed == Copies);
        planned.deed != Copies || copies == 1
    });
    plan.changes = Some(Changes {
        partitions: pick(prng, &[1, 4, 8, 16]),
        side_by_side: pick(prng, &[1, 2, 8, 64]),
        load_bytes_per_second: pick(prng, &[500, 5_000, 1 << 20]),
        load_patience_us: if has_copies {
            FOR_EVER_US
        } else {
            pick(prng, &[500_000, 2_000_000, 10_000_000])
        },
        deeds,
        ..Changes::default()
    });
}

/// The least successor number of conditional writes rises a few times, also between a plan and the
/// order to begin it.
pub(super) fn restored(plan: &mut RunPlan, prng: &mut Prng) {
    let deeds = draw_deeds(1 + prng.below(6), &[Restored], plan, prng);
    let changes = plan.changes.get_or_insert_default();
    changes.deeds.extend(deeds);
    changes.reads_us = READS_US;
}

/// A member is away while others change, and comes back with an old epoch: every way of being away,
/// and every change. Addresses are used again.
pub(super) fn lagging(plan: &mut RunPlan, prng: &mut Prng) {
    const KINDS: [OperatorDeed; 9] = [
        Join, Join, Leave, Wipe, Wipe, Wipe, Cancel, Cancel, Readdress,
    ];
    plan.shape.chaos_us = LAGGING_US;
    plan.shape.copies = plan.shape.members.min(3);
    if prng.chance(1, 2) {
        plan.faults.clear();
    }
    let changes = plan.changes.get_or_insert_default();
    changes.meets = true;
    changes.load_patience_us = pick(prng, &[500_000, 2_000_000, 10_000_000]);
    changes.deeds.clear();
    let mut draw = |kinds: &[OperatorDeed], from_us, within_us, stream: &mut Prng| {
        let mut deed = draw_deed(kinds, within_us, stream);
        deed.at_us += from_us;
        changes.deeds.push(deed);
    };
    draw(&[Lag], 500_000, 1_000_000, prng);
    if prng.chance(1, 3) {
        draw(&[Lag], LAGGING_US / 2, 1_000_000, prng);
    }
    for _ in 0..1 + prng.below(6) {
        draw(&KINDS, 1_500_000, LAGGING_US * 2 / 3, prng);
    }
}

/// Deeds among rising horizons.
pub(super) fn among_horizons(plan: &mut RunPlan, prng: &mut Prng) {
    let kinds: &[OperatorDeed] = match prng.below(3) {
        0 => &[Away],
        1 => &[Away, Join, Leave, Reweigh, Rekey],
        _ => &[Away, Wipe, Supersede, Cancel],
    };
    let deeds = draw_deeds(prng.below(4), kinds, plan, prng);
    plan.changes = Some(Changes {
        partitions: pick(prng, &[1, 2, 8]),
        load_patience_us: pick(prng, &[500_000, 2_000_000]),
        forget_every_us: pick(prng, &[1, 1_000_000]),
        deeds,
        ..Changes::default()
    });
}

/// Either records have more copies than the factor in a cluster of fixed members, or the factor
/// changes once, among other changes.
pub(super) fn more_copies(plan: &mut RunPlan, prng: &mut Prng) {
    if prng.chance(1, 2) {
        let changes = plan.changes.get_or_insert_default();
        changes.deeds.retain(|planned| planned.deed == Away);
        return wishes::any_copies(plan, prng);
    }
    let mut deeds = draw_deeds(prng.below(4), &[Away, Join, Leave, Reweigh], plan, prng);
    deeds.extend(draw_deeds(1, &[Copies], plan, prng));
    let changes = plan.changes.get_or_insert_default();
    changes.deeds = deeds;
    // A position loads from its own old owner alone.
    changes.load_patience_us = FOR_EVER_US;
}

/// The factor falls once, and clients ask for any number of copies before and behind it.
pub(super) fn lowered(plan: &mut RunPlan, prng: &mut Prng) {
    let mut deeds = draw_deeds(prng.below(3), &[Away], plan, prng);
    deeds.push(draw_deed(&[FewerCopies], plan.shape.chaos_us / 2, prng));
    plan.changes.get_or_insert_default().deeds = deeds;
    wishes::any_copies(plan, prng);
}

/// A member loses its disk behind the plan that lowers the factor, from five. So writes that were
/// confirmed by three of five owners are at two of the first four.
pub(super) fn lowered_lost(plan: &mut RunPlan, prng: &mut Prng) {
    let lowered_us = 2_000_000 + prng.below(4_000_000);
    let lost_us = lowered_us + 200_000 + prng.below(3_000_000);
    // Records that are written while two of five are away are at the three others alone.
    let deeds = [
        (lowered_us / 4, Away),
        (lowered_us / 3, Away),
        (lowered_us, FewerCopies),
        (lost_us, Wipe),
    ];
    let deeds = deeds.map(|(at_us, deed)| PlannedDeed {
        at_us,
        deed,
        draw: prng.next_u64(),
    });
    let changes = plan.changes.get_or_insert_default();
    changes.deeds = deeds.into();
    changes.load_patience_us = 500_000;
    // No bursts: each key is used all the time.
    for planned in plan.clients.iter_mut().flatten() {
        planned.key = prng.below(plan.shape.keys.len() as u64) as usize;
        planned.think_us = prng.below(2 * plan.shape.think_us);
        planned.base = PlannedCondition::Any;
    }
}

/// Deeds beside an accepted loss, in every second run.
pub(super) fn beside_a_loss(plan: &mut RunPlan, prng: &mut Prng) {
    let kinds = [Throttle, Rekey, AuthorEnds, Cancel, Away];
    let is_alone = prng.chance(1, 2);
    let count = if is_alone { 0 } else { 1 + prng.below(3) };
    let deeds = draw_deeds(count, &kinds, plan, prng);
    plan.changes = Some(Changes {
        partitions: pick(prng, &[1, 2, 4]),
        side_by_side: pick(prng, &[1, 8]),
        load_bytes_per_second: pick(prng, &[300, 5_000, 1 << 20]),
        load_patience_us: pick(prng, &[500_000, 2_000_000]),
        deeds,
        ..Changes::default()
    });
}

/// One member is lost and another one is damaged. All others keep their disks.
pub(super) fn loss(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &plan.shape;
    let members = shape.members as u64;
    let lost = shape.any_member(prng);
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
    let loss = PlannedLoss {
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
    };
    plan.changes.get_or_insert_default().loss = Some(loss);
}

/// Horizons of simulated years.
pub(super) fn of_years(plan: &mut RunPlan, prng: &mut Prng) {
    plan.changes = Some(Changes {
        partitions: pick(prng, &[1, 8]),
        forget_every_us: pick(prng, &[1, DAY_US]),
        ..Changes::default()
    });
}

/// A long run of `founders` members with so many deeds. Clients ask all the time, some 240
/// operations for each deed. Each key has its time, so that later changes move records that no
/// client touches before the end.
pub(super) fn soak(plan: &mut RunPlan, founders: usize, deeds: usize, prng: &mut Prng) {
    let shape = &mut plan.shape;
    shape.members = founders;
    shape.copies = shape.copies.clamp(2, 3);
    shape.store = StoreKind::Map;
    // A plan takes some seconds.
    shape.chaos_us = 6_000_000 * deeds as u64;
    shape.think_us = 200_000;
    // Longer than a slow sync: else some runs are a soak of refusals.
    shape.timeout_us = 1_000_000;
    shape.draw_clocks(prng);
    let times = (deeds / SOAK_DEEDS_OF_KEY + 1).min(SOAK_KEYS_MAX / shape.keys.len());
    plan.clients = wishes::long(shape, SOAK_CLIENTS, times, prng);
    shape.keys = shape.keys.repeat(times);
    plan.faults.clear();
    for _ in 0..deeds / 4 {
        faults::of_whole_disks(plan, prng);
    }
    wishes::scans(plan, prng);
    let mut kinds = OperatorDeed::ALL.to_vec();
    kinds.retain(|deed| *deed != Copies);
    let draw = |_| draw_deed(&kinds, plan.shape.chaos_us, prng);
    let changes = plan.changes.get_or_insert_default();
    changes.deeds = (0..deeds).map(draw).collect();
    changes.load_patience_us = 2_000_000;
    changes.reads_us = READS_US;
}
