//! The plan of a seed for a cluster with rising horizons. Keys are used for a while and then no
//! more, and there is quiet between the operations.
//!
//! ```text
//! key      0 0 1 0 1 ··· 1 2 1 2 2 ······· 3 2 3 ··· 4 3 …    bursts, quiet, and hardly a key twice
//! horizon  ──┴───┴───┴───┴───┴───┴───┴───┴───┴───┴───►        a step a second, if all confirm
//! faults   as in other runs; members that are away for many steps; in some runs, other members
//! ```
//!
//! Invariants
//! 1. It is a plan of its own for each seed, drawn from streams of its own.
//! 2. Bytes are damaged only where no member is replaced and each record has all its copies. So one
//!    copy of a record is lost at a time.
//!
//! A second plan has records with more copies than the replication factor. Either keys are written
//! to more owners in a cluster of fixed members, or the factor changes once, among joins and
//! leaves. A third one has both: the factor falls while keys are written to more owners.
//!
//! Not here: when horizons rise (crate `node`, `steward/rising.rs`).
//! See: docs/protocol.md, "Horizons".

use crate::changes::{Changes, OperatorDeed, PlannedDeed};
use crate::changing::{FOR_EVER_US, draw_clocks, draw_deed};
use crate::plan::{
    Fault, FaultKind, KeyClass, PlannedCondition, PlannedKind, PlannedOp, RunPlan, RunShape,
    StoreKind, draw_failing_reads, draw_faults, draw_scans, pick, skewed,
};
use dendra_base::Prng;

impl RunPlan {
    /// The plan of `seed` for a cluster with rising horizons.
    pub fn draw_forgetting(seed: u64) -> RunPlan {
        RunPlan::forgetting(seed, "forgetting", &|_| None)
    }

    /// Draws a run of horizons in which blocks rot at two or three members at one time, in every
    /// second run between the same keys.
    pub fn draw_rotten(seed: u64) -> RunPlan {
        let mut prng = Prng::named(seed, "rotten");
        let keys = vec![KeyClass::Strong; 6 + prng.below(24) as usize];
        let members = pick(&mut prng, &[3, 3, 4, 5]);
        let at_permille = 250 + prng.below(625);
        let rot = FaultKind::RotAtSeveral {
            members: pick(&mut prng, &[2, 2, 3]),
            is_shared: prng.chance(1, 2),
            draw: prng.next_u64(),
        };
        let mut plan = RunPlan::forgetting(seed, "rotten", &|shape| {
            (shape.members, shape.copies, shape.store) = (members, 3, StoreKind::Engine);
            (shape.keys, shape.value_bytes_max) = (keys.clone(), 200);
            shape.unlucky %= members;
            Some(Fault {
                at_us: shape.chaos_us * at_permille / 1_000,
                length_us: 1,
                kind: rot.clone(),
            })
        });
        if let Some(changes) = &mut plan.changes {
            changes
                .deeds
                .retain(|planned| planned.deed == OperatorDeed::Away);
        }
        plan.faults.retain(|fault| {
            let kind = &fault.kind;
            !matches!(
                kind,
                FaultKind::Rot { .. } | FaultKind::RotUnderHorizon { .. }
            )
        });
        plan
    }

    /// `bend` changes the drawn shape, and may add a fault.
    fn forgetting(seed: u64, name: &str, bend: &dyn Fn(&mut RunShape) -> Option<Fault>) -> RunPlan {
        let stream = |part: &str| Prng::named(seed, &format!("{name}: {part}"));
        let mut shape = draw_shape(&mut stream("shape"));
        let further = bend(&mut shape);
        let changes = draw_changes(&shape, &mut stream("changes"));
        let mut clients = draw_clients(&shape, &mut stream("clients"));
        let mut faults = draw_faults(&shape, &mut stream("faults"));
        faults.extend(draw_failing_reads(&shape, &mut stream("failing reads")));
        let only_away = |planned: &PlannedDeed| planned.deed == OperatorDeed::Away;
        let may_rot = changes.deeds.iter().all(only_away);
        faults.extend(further);
        let rot = draw_rot(&shape, &mut stream("rot under horizons"));
        if may_rot && !rot.is_empty() {
            faults.extend(rot);
            // A delete stays above the record that it hides until its horizon has risen.
            shape.level0_tables = Some(8);
        }
        faults.retain(|fault| match fault.kind {
            FaultKind::Rot { .. } => may_rot,
            FaultKind::LostDisk => false,
            _ => true,
        });
        let loses_copies = |fault: &Fault| {
            let kind = &fault.kind;
            matches!(
                kind,
                FaultKind::Rot { .. }
                    | FaultKind::RotUnderHorizon { .. }
                    | FaultKind::RotAtSeveral { .. }
            )
        };
        if changes.deeds.iter().all(only_away) && !faults.iter().any(loses_copies) {
            draw_weak(&mut shape, &mut clients, &mut stream("fewer copies"));
        }
        let scans = draw_scans(&shape, &mut stream("scans"));
        RunPlan::of_changes(seed, shape, (clients, scans), faults, changes)
    }
}

impl RunPlan {
    /// Draws a run of horizons for records with more copies than the replication factor.
    pub fn draw_more_copies(seed: u64) -> RunPlan {
        let stream = |name: &str| Prng::named(seed, &format!("more copies: {name}"));
        let prng = &mut stream("more copies");
        let mut shape = draw_shape(&mut stream("shape"));
        shape.members = pick(prng, &[3, 4, 4, 5, 5, 6]);
        shape.copies = pick(prng, &[1, 2, 3, 3, 3, 4]).min(shape.members - 1);
        shape.unlucky = 0;
        draw_clocks(&mut shape, prng);
        let mut changes = draw_changes(&shape, &mut stream("changes"));
        let is_fixed = prng.chance(1, 2);
        if is_fixed {
            let is_away = |planned: &PlannedDeed| planned.deed == OperatorDeed::Away;
            changes.deeds.retain(is_away);
        } else {
            changes.deeds = draw_factor(&shape, prng);
            // As in `changing.rs`: a position loads from its own old owner alone.
            changes.load_patience_us = FOR_EVER_US;
        }
        let mut clients = draw_clients(&shape, &mut stream("clients"));
        if is_fixed {
            draw_wide(&mut shape, &mut clients, prng);
        }
        RunPlan::of_whole_disks(seed, shape, clients, changes, stream)
    }
}

impl RunPlan {
    /// Draws a run of horizons where the factor falls once, and clients ask for any number of
    /// copies before and behind it.
    pub fn draw_lowered(seed: u64) -> RunPlan {
        let stream = |name: &str| Prng::named(seed, &format!("lowered: {name}"));
        let prng = &mut stream("lowered");
        let mut shape = draw_shape(&mut stream("shape"));
        shape.members = pick(prng, &[3, 4, 4, 5, 5]);
        shape.copies = pick(prng, &[2, 3, 3, 4]).min(shape.members);
        shape.unlucky = 0;
        draw_clocks(&mut shape, prng);
        let mut changes = draw_changes(&shape, &mut stream("changes"));
        let (early_us, away) = (shape.chaos_us / 2, [OperatorDeed::Away]);
        let mut deeds: Vec<PlannedDeed> = (0..prng.below(3))
            .map(|_| draw_deed(&away, shape.chaos_us * 3 / 4, prng))
            .collect();
        deeds.push(draw_deed(&[OperatorDeed::FewerCopies], early_us, prng));
        deeds.sort_by_key(|planned| planned.at_us);
        changes.deeds = deeds;
        let mut clients = draw_clients(&shape, &mut stream("clients"));
        draw_wide(&mut shape, &mut clients, prng);
        RunPlan::of_whole_disks(seed, shape, clients, changes, stream)
    }

    /// Draws a run of horizons where a member loses its disk behind the plan that lowers the
    /// factor, from five. It takes a while until copies are compared, and no hint is kept. So
    /// writes that were confirmed by three of five owners are at two of the first four.
    pub fn draw_lowered_lost(seed: u64) -> RunPlan {
        let stream = |name: &str| Prng::named(seed, &format!("lowered and lost: {name}"));
        let prng = &mut stream("lowered");
        let mut shape = draw_shape(&mut stream("shape"));
        shape.members = pick(prng, &[5, 5, 6]);
        shape.copies = 5;
        shape.unlucky = 0;
        shape.hint_bytes = 0;
        shape.compares = Some((1 << 30, pick(prng, &[3_000_000, 8_000_000])));
        shape.chaos_us = 15_000_000;
        draw_clocks(&mut shape, prng);
        let mut changes = draw_changes(&shape, &mut stream("changes"));
        let lowered_us = 2_000_000 + prng.below(4_000_000);
        let lost_us = lowered_us + 200_000 + prng.below(3_000_000);
        let mut deed = |at_us, deed| PlannedDeed {
            at_us,
            deed,
            draw: prng.next_u64(),
        };
        // Records that are written while two of five are away are at the three others alone.
        changes.deeds = vec![
            deed(lowered_us / 4, OperatorDeed::Away),
            deed(lowered_us / 3, OperatorDeed::Away),
            deed(lowered_us, OperatorDeed::FewerCopies),
            deed(lost_us, OperatorDeed::Wipe),
        ];
        changes.load_patience_us = 500_000;
        shape.keys = vec![KeyClass::Strong; 8];
        shape.think_us = 50_000;
        let mut clients = draw_clients(&shape, &mut stream("clients"));
        // No bursts: each key is used all the time.
        for planned in clients.iter_mut().flatten() {
            planned.key = prng.below(8) as usize;
            planned.think_us = prng.below(2 * shape.think_us);
            planned.base = PlannedCondition::Any;
        }
        RunPlan::of_whole_disks(seed, shape, clients, changes, stream)
    }

    /// With the usual faults but those that take records away from a disk.
    fn of_whole_disks(
        seed: u64,
        shape: RunShape,
        clients: Vec<Vec<PlannedOp>>,
        changes: Changes,
        stream: impl Fn(&str) -> Prng,
    ) -> RunPlan {
        let mut faults = draw_faults(&shape, &mut stream("faults"));
        faults.extend(draw_failing_reads(&shape, &mut stream("failing reads")));
        faults.retain(|fault| !matches!(fault.kind, FaultKind::Rot { .. } | FaultKind::LostDisk));
        let scans = draw_scans(&shape, &mut stream("scans"));
        RunPlan::of_changes(seed, shape, (clients, scans), faults, changes)
    }
}

/// The replication factor changes once, among other changes.
fn draw_factor(shape: &RunShape, prng: &mut Prng) -> Vec<PlannedDeed> {
    let kinds = [
        OperatorDeed::Away,
        OperatorDeed::Join,
        OperatorDeed::Leave,
        OperatorDeed::Reweigh,
    ];
    let count = prng.below(4);
    let mut deeds: Vec<PlannedDeed> = (0..count)
        .map(|_| draw_deed(&kinds, shape.chaos_us * 3 / 4, prng))
        .collect();
    deeds.push(draw_deed(
        &[OperatorDeed::Copies],
        shape.chaos_us * 3 / 4,
        prng,
    ));
    deeds.sort_by_key(|planned| planned.at_us);
    deeds
}

/// Most keys are written, read and deleted with any number of copies up to all members, by any
/// number of answers.
fn draw_wide(shape: &mut RunShape, clients: &mut [Vec<PlannedOp>], prng: &mut Prng) {
    for class in &mut shape.keys {
        if *class == KeyClass::Strong && prng.chance(3, 4) {
            *class = KeyClass::Weak;
        }
    }
    for planned in clients.iter_mut().flatten() {
        if shape.keys[planned.key] == KeyClass::Weak {
            let from = if prng.chance(1, 2) {
                shape.copies as u64
            } else {
                1 + prng.below(shape.members as u64)
            };
            planned.base = PlannedCondition::Any;
            planned.quorum = Some((1 + prng.below(from) as u8, from as u8));
        }
    }
}

fn draw_shape(prng: &mut Prng) -> RunShape {
    let mut shape = RunShape::draw(prng);
    shape.members = pick(prng, &[2, 3, 3, 3, 3, 4, 5]);
    shape.copies = pick(prng, &[1, 2, 3, 3, 3, 3, 3, 5]).min(shape.members);
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
    shape.unlucky = prng.below(shape.members as u64) as usize;
    draw_clocks(&mut shape, prng);
    shape
}

/// In every second run some keys are written and deleted with fewer copies, by fewer answers. One
/// that is lost may have been the only one.
fn draw_weak(shape: &mut RunShape, clients: &mut [Vec<PlannedOp>], prng: &mut Prng) {
    if prng.chance(1, 2) {
        return;
    }
    for class in &mut shape.keys {
        if *class == KeyClass::Strong && prng.chance(1, 2) {
            *class = KeyClass::Weak;
        }
    }
    for planned in clients.iter_mut().flatten() {
        if shape.keys[planned.key] == KeyClass::Weak {
            let from = 1 + prng.below(shape.copies as u64) as u8;
            planned.base = PlannedCondition::Any;
            planned.quorum = Some((1 + prng.below(u64::from(from)) as u8, from));
        }
    }
}

/// A block of a delete rots when a horizon rises, in every third run.
fn draw_rot(shape: &RunShape, prng: &mut Prng) -> Vec<Fault> {
    let count = match prng.below(3) {
        0 => 1 + prng.below(3),
        _ => 0,
    };
    let draw = |_| Fault {
        at_us: shape.chaos_us / 8 + prng.below(shape.chaos_us * 3 / 4),
        length_us: 1,
        kind: FaultKind::RotUnderHorizon {
            draw: prng.next_u64(),
        },
    };
    (0..count).map(draw).collect()
}

fn draw_changes(shape: &RunShape, prng: &mut Prng) -> Changes {
    let kinds: &[OperatorDeed] = match prng.below(3) {
        0 => &[OperatorDeed::Away],
        1 => &[
            OperatorDeed::Away,
            OperatorDeed::Join,
            OperatorDeed::Leave,
            OperatorDeed::Reweigh,
            OperatorDeed::Rekey,
        ],
        _ => &[
            OperatorDeed::Away,
            OperatorDeed::Wipe,
            OperatorDeed::Supersede,
            OperatorDeed::Cancel,
        ],
    };
    let count = prng.below(4);
    let mut deeds: Vec<PlannedDeed> = (0..count)
        .map(|_| draw_deed(kinds, shape.chaos_us * 3 / 4, prng))
        .collect();
    deeds.sort_by_key(|deed| deed.at_us);
    Changes {
        partitions: pick(prng, &[1, 2, 8]),
        side_by_side: 8,
        load_bytes_per_second: 1 << 20,
        load_patience_us: pick(prng, &[500_000, 2_000_000]),
        forget_every_us: pick(prng, &[1, 1_000_000]),
        reads_us: 0,
        meets: false,
        deeds,
        loss: None,
    }
}

/// Bursts of operations on the keys of their time.
fn draw_clients(shape: &RunShape, prng: &mut Prng) -> Vec<Vec<PlannedOp>> {
    let clients = 2 + prng.below(3);
    let is_loyal = prng.chance(1, 2);
    let delete = 1 + prng.below(3);
    let draw = |client: u64, prng: &mut Prng| {
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
                let member = if is_loyal && prng.chance(4, 5) {
                    client as usize % shape.members
                } else {
                    prng.below(shape.members as u64) as usize
                };
                todo.push(draw_operation(shape, key, member, delete, think_us, prng));
            }
        }
        todo
    };
    (0..clients).map(|client| draw(client, prng)).collect()
}

fn draw_operation(
    shape: &RunShape,
    key: usize,
    member: usize,
    delete: u64,
    think_us: u64,
    prng: &mut Prng,
) -> PlannedOp {
    let class = shape.keys[key];
    let kind = match prng.below(8 + delete) {
        0..3 => PlannedKind::Get,
        3..8 => PlannedKind::Put,
        _ => PlannedKind::Delete,
    };
    let base = match class {
        KeyClass::Strong => pick(
            prng,
            &[
                PlannedCondition::Any,
                PlannedCondition::Any,
                PlannedCondition::Absent,
                PlannedCondition::Absent,
                PlannedCondition::MatchesLast,
                PlannedCondition::MatchesLast,
                PlannedCondition::Present,
            ],
        ),
        KeyClass::Fleeting | KeyClass::Weak => PlannedCondition::Any,
    };
    let timeout_us = if prng.chance(1, 4) {
        5_000_000
    } else {
        shape.timeout_us
    };
    PlannedOp {
        key,
        kind,
        base,
        quorum: None,
        member,
        think_us,
        timeout_us: 1_000 + prng.below(timeout_us),
        patience_us: None,
        value_bytes: 4 + prng.below(shape.value_bytes_max) as usize,
        ttl_ms: (class == KeyClass::Fleeting).then(|| 1 + skewed(prng, 3_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_of_horizons_means_the_same_for_ever() {
        for seed in 0..20 {
            let drawn = [(); 2].map(|()| format!("{:?}", RunPlan::draw_forgetting(seed)));
            assert_eq!(drawn[0], drawn[1]);
            let drawn = [(); 2].map(|()| format!("{:?}", RunPlan::draw_more_copies(seed)));
            assert_eq!(drawn[0], drawn[1]);
            let drawn = [(); 2].map(|()| format!("{:?}", RunPlan::draw_lowered(seed)));
            assert_eq!(drawn[0], drawn[1]);
        }
    }

    #[test]
    fn a_burst_touches_the_keys_of_its_time() {
        let plan = RunPlan::draw_forgetting(3);
        for todo in &plan.clients {
            let keys: Vec<usize> = todo.iter().map(|planned| planned.key).collect();
            assert!(keys.windows(2).all(|two| two[0] <= two[1] + 1), "{keys:?}");
        }
    }
}
