//! The plan of a seed for a cluster with members that change: the operator's deeds, and the faults
//! beside them.
//!
//! ```text
//! seed ─► RunShape, clients, walks, faults  as `plan/` draws them, for three to nine founders
//!      ─► Changes                           partitions, budgets, and a list of (when, deed)
//! ```
//!
//! Invariants
//! 1. It is a plan of its own for each seed, drawn from streams of its own. The seed's plan without
//!    changes stays as it is.
//! 2. At most one copy of a record is lost at a time, and only where a majority of three or more is
//!    left.
//!
//! Not here: how deeds are done (`world/town/`).
//! See: docs/verification.md.

use crate::changes::{Changes, MACHINES_MAX, OperatorDeed, PlannedDeed};
use crate::plan::{
    Fault, FaultKind, KeyClass, PlannedOp, PlannedScan, RunPlan, RunShape, StoreKind, draw_clients,
    draw_compares, draw_failing_reads, draw_faults, draw_looks, draw_overloads, draw_scans, pick,
    skewed,
};
use dendra_base::Prng;

/// The weather of a run with a member that is away.
const LAGGING_US: u64 = 30_000_000;
/// What happens while it is away, and behind that.
const LAGGING: [OperatorDeed; 9] = [
    OperatorDeed::Join,
    OperatorDeed::Join,
    OperatorDeed::Leave,
    OperatorDeed::Wipe,
    OperatorDeed::Wipe,
    OperatorDeed::Wipe,
    OperatorDeed::Cancel,
    OperatorDeed::Cancel,
    OperatorDeed::Readdress,
];
/// How long an operator reads a plan that has something to read.
const READS_US: u64 = 2_000_000;
/// Clients of a soak.
const SOAK_CLIENTS: usize = 4;
/// A key of a soak is in use for about so many deeds, or for longer: there are not more keys. Names
/// of keys have two digits, so that they are in order.
const SOAK_DEEDS_OF_KEY: usize = 10;
const SOAK_KEYS_MAX: usize = 100;
/// Longer than any run.
pub(crate) const FOR_EVER_US: u64 = 3_600_000_000;

impl RunPlan {
    /// The plan of `seed` for a cluster with members that change.
    pub fn draw_changing(seed: u64) -> RunPlan {
        let stream = |name: &str| Prng::named(seed, &format!("changing: {name}"));
        let mut prng = stream("shape");
        let mut shape = draw_shape(&mut prng);
        // Pairs grow faster than members.
        let least_us = 50_000 * shape.members as u64;
        shape.compares = draw_compares(&mut stream("comparisons"))
            .map(|(bytes, pause_us)| (bytes, pause_us.max(least_us)));
        let mut clients = draw_clients(&shape, &mut stream("clients"));
        let mut faults = draw_faults(&shape, &mut stream("faults"));
        faults.extend(draw_failing_reads(&shape, &mut stream("failing reads")));
        for (slow, burst) in draw_overloads(&shape, &mut stream("overloads")) {
            faults.push(slow);
            clients.extend(burst);
        }
        faults.retain(|fault| !matches!(fault.kind, FaultKind::Rot { .. } | FaultKind::LostDisk));
        let scans = draw_scans(&shape, &mut stream("scans"));
        let changes = draw_changes(&shape, &mut stream("changes"));
        RunPlan::of_changes(seed, shape, (clients, scans), faults, changes)
    }

    /// A plan for a cluster with members that change. Its clocks are right, and no folder is an
    /// image.
    pub(crate) fn of_changes(
        seed: u64,
        shape: RunShape,
        (clients, scans): (Vec<Vec<PlannedOp>>, Vec<PlannedScan>),
        mut faults: Vec<Fault>,
        changes: Changes,
    ) -> RunPlan {
        faults.sort_by_key(|fault| fault.at_us);
        RunPlan {
            seed,
            shape,
            clients,
            scans,
            faults,
            wrong_clocks: None,
            image: None,
            changes: Some(changes),
            overload: None,
        }
    }

    /// Draws a changing cluster where the least successor number of conditional writes rises a few
    /// times, also between a plan and the order to begin it.
    pub fn draw_restored(seed: u64) -> RunPlan {
        let mut plan = RunPlan::draw_changing(seed);
        let mut prng = Prng::named(seed, "changing: restored");
        let within_us = plan.shape.chaos_us * 3 / 4;
        if let Some(changes) = &mut plan.changes {
            let count = 1 + prng.below(6);
            let restored = [OperatorDeed::Restored];
            let deeds = (0..count).map(|_| draw_deed(&restored, within_us, &mut prng));
            changes.deeds.extend(deeds);
            changes.reads_us = READS_US;
            changes.deeds.sort_by_key(|deed| deed.at_us);
        }
        plan
    }

    /// Draws a changing cluster where an operator looks for copies that differ, now and then. In
    /// every second run that is the only comparing.
    pub fn draw_looking(seed: u64) -> RunPlan {
        let mut plan = RunPlan::draw_changing(seed);
        let mut prng = Prng::named(seed, "changing: looks");
        plan.faults.extend(draw_looks(&plan.shape, &mut prng));
        plan.faults.sort_by_key(|fault| fault.at_us);
        if prng.chance(1, 2) {
            plan.shape.compares = None;
        }
        plan
    }

    /// Draws a changing cluster where a member is away while others change, and comes back with an
    /// old epoch: every way of being away, and every change. Addresses are used again.
    pub fn draw_lagging(seed: u64) -> RunPlan {
        let mut plan = RunPlan::draw_changing(seed);
        let mut prng = Prng::named(seed, "changing: lagging");
        let shape = &mut plan.shape;
        shape.chaos_us = LAGGING_US;
        shape.copies = shape.members.min(3);
        if prng.chance(1, 2) {
            plan.faults.clear();
        }
        if let Some(changes) = &mut plan.changes {
            changes.meets = true;
            changes.load_patience_us = pick(&mut prng, &[500_000, 2_000_000, 10_000_000]);
            let mut deeds = vec![draw_lag(500_000, &mut prng)];
            if prng.chance(1, 3) {
                deeds.push(draw_lag(LAGGING_US / 2, &mut prng));
            }
            let count = 1 + prng.below(6);
            deeds.extend((0..count).map(|_| {
                let mut deed = draw_deed(&LAGGING, LAGGING_US * 2 / 3, &mut prng);
                deed.at_us += 1_500_000;
                deed
            }));
            deeds.sort_by_key(|deed| deed.at_us);
            changes.deeds = deeds;
        }
        plan
    }

    /// A long run of `founders` members with so many deeds: for soaks. Clients ask all the time,
    /// some 240 operations for each deed. Each key has its time, so that later changes move
    /// records that no client touches before the end.
    pub fn draw_soak(seed: u64, founders: usize, deeds: usize) -> RunPlan {
        let mut plan = RunPlan::draw_changing(seed);
        let mut prng = Prng::named(seed, "changing: soak");
        let shape = &mut plan.shape;
        shape.members = founders;
        shape.copies = shape.copies.clamp(2, 3);
        shape.store = StoreKind::Map;
        // A plan takes some seconds.
        shape.chaos_us = 6_000_000 * deeds as u64;
        shape.think_us = 200_000;
        // Longer than a slow sync: else some runs are a soak of refusals.
        shape.timeout_us = 1_000_000;
        draw_clocks(shape, &mut prng);
        let times = (deeds / SOAK_DEEDS_OF_KEY + 1).min(SOAK_KEYS_MAX / shape.keys.len());
        plan.clients = (0..SOAK_CLIENTS)
            .map(|_| draw_long(shape, times, &mut prng))
            .collect();
        shape.keys = shape.keys.repeat(times);
        plan.faults = (0..deeds / 4)
            .flat_map(|_| draw_faults(shape, &mut prng))
            .collect();
        plan.faults
            .retain(|fault| !matches!(fault.kind, FaultKind::Rot { .. } | FaultKind::LostDisk));
        plan.faults.sort_by_key(|fault| fault.at_us);
        plan.scans = draw_scans(shape, &mut prng);
        if let Some(changes) = &mut plan.changes {
            let kinds: Vec<OperatorDeed> = OperatorDeed::ALL
                .into_iter()
                .filter(|deed| *deed != OperatorDeed::Copies)
                .collect();
            changes.load_patience_us = 2_000_000;
            changes.reads_us = READS_US;
            changes.deeds = (0..deeds)
                .map(|_| draw_deed(&kinds, shape.chaos_us, &mut prng))
                .collect();
            changes.deeds.sort_by_key(|deed| deed.at_us);
        }
        plan
    }
}

/// The operations of a client for a whole run: the keys of one time, and then those of the next. It
/// asks any machine that runs, for founders leave.
fn draw_long(shape: &RunShape, times: usize, prng: &mut Prng) -> Vec<PlannedOp> {
    let (mut todo, mut at_us) = (Vec::new(), 0);
    while at_us < shape.chaos_us {
        let burst = draw_clients(shape, prng);
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
}

pub(crate) fn draw_clocks(shape: &mut RunShape, prng: &mut Prng) {
    let most = shape.skew_ms.iter().map(|ms| ms.unsigned_abs()).max();
    let most = most.unwrap_or(0);
    let mut signed = |most: u64| {
        let size = skewed(prng, most) as i64;
        if prng.chance(1, 2) { -size } else { size }
    };
    shape.skew_ms = (0..MACHINES_MAX).map(|_| signed(most)).collect();
    shape.drift_ppm = (0..MACHINES_MAX).map(|_| signed(500)).collect();
}

fn draw_shape(prng: &mut Prng) -> RunShape {
    let mut shape = RunShape::draw(prng);
    shape.members = pick(prng, &[3, 3, 3, 3, 4, 4, 5, 6, 7, 9]);
    shape.copies = pick(prng, &[1, 2, 3, 3, 3, 3, 3, 4, 5]).min(shape.members);
    // Copies beyond those of the table have no twins. A write that fewer than a majority of its
    // owners confirmed may be lost in a move.
    for class in &mut shape.keys {
        if *class == KeyClass::Weak {
            *class = KeyClass::Strong;
        }
    }
    shape.chaos_us = pick(prng, &[5_000_000, 10_000_000, 20_000_000]);
    shape.think_us = shape.chaos_us / pick(prng, &[15, 40, 400]);
    shape.unlucky = 0;
    draw_clocks(&mut shape, prng);
    shape
}

fn draw_changes(shape: &RunShape, prng: &mut Prng) -> Changes {
    // Some runs have one kind of deed only, and much of it.
    let mut kinds: Vec<OperatorDeed> = OperatorDeed::ALL
        .into_iter()
        .filter(|_| prng.chance(1, 2))
        .collect();
    if !kinds.iter().any(|deed| *deed < OperatorDeed::Cancel) {
        kinds.push(pick(
            prng,
            &[
                OperatorDeed::Join,
                OperatorDeed::Leave,
                OperatorDeed::Reweigh,
            ],
        ));
    }
    // A write from the time in which the number of copies changed may be at fewer owners than a
    // majority of the new number. Each majority meets one owner with it, and a member that is
    // replaced may be that one.
    let has_copies = kinds.contains(&OperatorDeed::Copies);
    if has_copies {
        kinds.retain(|deed| !matches!(deed, OperatorDeed::Wipe | OperatorDeed::Supersede));
    }
    let count = 1 + prng.below(6);
    let mut deeds: Vec<PlannedDeed> = (0..count)
        .map(|_| draw_deed(&kinds, shape.chaos_us * 3 / 4, prng))
        .collect();
    deeds.sort_by_key(|deed| deed.at_us);
    let mut copies = 0;
    deeds.retain(|planned| {
        copies += u32::from(planned.deed == OperatorDeed::Copies);
        planned.deed != OperatorDeed::Copies || copies == 1
    });
    Changes {
        partitions: pick(prng, &[1, 4, 8, 16]),
        side_by_side: pick(prng, &[1, 2, 8, 64]),
        load_bytes_per_second: pick(prng, &[500, 5_000, 1 << 20]),
        load_patience_us: if has_copies {
            FOR_EVER_US
        } else {
            pick(prng, &[500_000, 2_000_000, 10_000_000])
        },
        forget_every_us: 0,
        reads_us: 0,
        meets: false,
        deeds,
        loss: None,
    }
}

fn draw_lag(from_us: u64, prng: &mut Prng) -> PlannedDeed {
    let mut lag = draw_deed(&[OperatorDeed::Lag], 1_000_000, prng);
    lag.at_us += from_us;
    lag
}

pub(crate) fn draw_deed(kinds: &[OperatorDeed], within_us: u64, prng: &mut Prng) -> PlannedDeed {
    PlannedDeed {
        at_us: prng.below(within_us),
        deed: pick(prng, kinds),
        draw: prng.next_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn seeds_reach_every_deed_and_every_size() {
        let plans: Vec<RunPlan> = (0..400).map(RunPlan::draw_changing).collect();
        let deeds = plans.iter().flat_map(|plan| &plan.changes);
        let deeds = deeds.flat_map(|changes| &changes.deeds);
        let deeds: BTreeSet<OperatorDeed> = deeds.map(|planned| planned.deed).collect();
        assert_eq!(deeds.len(), OperatorDeed::ALL.len());
        let members: BTreeSet<usize> = plans.iter().map(|plan| plan.shape.members).collect();
        assert_eq!(members, [3, 4, 5, 6, 7, 9].into());
        let copies: BTreeSet<usize> = plans.iter().map(|plan| plan.shape.copies).collect();
        assert_eq!(copies, [1, 2, 3, 4, 5].into());
    }

    #[test]
    fn a_seed_of_changes_means_the_same_for_ever() {
        for seed in 0..20 {
            let drawn = [(); 2].map(|()| format!("{:?}", RunPlan::draw_changing(seed)));
            assert_eq!(drawn[0], drawn[1]);
        }
    }
}
