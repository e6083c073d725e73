//! The plan of a seed for a cluster in which values end while one member's clock is wrong.
//!
//! ```text
//! clock of one   ahead by 45 s, hours or years ──┐ right      ──┐ right
//! its process    ────┤ end   start ├─────────────┴───────┤ …    │
//! clients        locks: PUT with an end where there is none; reads at all members; other writes
//! stores         at one member, tombstones in the place of values, too early
//! ```
//!
//! Invariants
//! 1. It is a plan of its own for each seed, drawn from streams of its own.
//! 2. One member's clock is wrong at a time, so most clocks are right.
//! 3. No bytes and no disk are lost: each owner keeps what it confirmed.
//!
//! Not here: what may be answered (`check/versions.rs`).
//! See: docs/promises.md, "Expiry".

use crate::plan::{
    Fault, FaultKind, KeyClass, PlannedCondition, PlannedKind, PlannedOp, RunPlan, RunShape,
    draw_compares, draw_faults, draw_scans, pick, skewed,
};
use dendra_base::Prng;

impl RunPlan {
    /// The plan of `seed` for a cluster in which values end while a clock is wrong.
    pub fn draw_expiring(seed: u64) -> RunPlan {
        let stream = |name: &str| Prng::named(seed, &format!("expiring: {name}"));
        let shape = draw_shape(&mut stream("shape"));
        let clients = draw_clients(&shape, &mut stream("clients"));
        let mut faults = draw_faults(&shape, &mut stream("faults"));
        faults.retain(|fault| !matches!(fault.kind, FaultKind::Rot { .. } | FaultKind::LostDisk));
        faults.extend(draw_wrong_clock(&shape, &mut stream("wrong clock")));
        faults.extend(draw_faded(&shape, &mut stream("faded")));
        faults.sort_by_key(|fault| fault.at_us);
        let scans = draw_scans(&shape, &mut stream("scans"));
        RunPlan {
            seed,
            shape,
            clients,
            scans,
            faults,
            wrong_clocks: None,
            image: None,
            changes: None,
            overload: None,
        }
    }
}

fn draw_shape(prng: &mut Prng) -> RunShape {
    let mut shape = RunShape::draw(prng);
    // Of two members neither is most of them.
    let members = pick(prng, &[3, 3, 3, 4, 5]);
    shape.members = members;
    shape.copies = pick(prng, &[1, 2, 3, 3, 3, 3, 5]).min(members);
    shape.keys = vec![KeyClass::Fleeting; 1 + prng.below(4) as usize];
    shape.chaos_us = pick(prng, &[2_000_000, 6_000_000]);
    shape.skew_ms = (0..members).map(|_| skewed(prng, 400) as i64).collect();
    shape.drift_ppm = (0..members).map(|_| skewed(prng, 500) as i64).collect();
    shape.compares = draw_compares(prng);
    shape.unlucky = 0;
    shape
}

/// Half of the keys are locks, and nothing else is done with them.
fn draw_clients(shape: &RunShape, prng: &mut Prng) -> Vec<Vec<PlannedOp>> {
    let (clients, total) = (1 + prng.below(5), 40 + prng.below(100));
    let ttl_ms = |prng: &mut Prng| match prng.below(3) {
        0 => 1 + skewed(prng, 3_000),
        _ => 20_000 + skewed(prng, 600_000),
    };
    let draw = |prng: &mut Prng| {
        let key = prng.below(shape.keys.len() as u64) as usize;
        let is_lock = key.is_multiple_of(2);
        let (kind, base) = match prng.below(10) {
            0..5 => (PlannedKind::Get, PlannedCondition::Any),
            8 if !is_lock => (PlannedKind::Put, PlannedCondition::MatchesLast),
            9 if !is_lock => (PlannedKind::Delete, PlannedCondition::Any),
            7 if !is_lock => (PlannedKind::Put, PlannedCondition::Any),
            _ => (PlannedKind::Put, PlannedCondition::Absent),
        };
        PlannedOp {
            key,
            kind,
            base,
            quorum: None,
            member: prng.below(shape.members as u64) as usize,
            think_us: prng.below(shape.chaos_us / 8),
            timeout_us: 1_000 + prng.below(shape.timeout_us),
            patience_us: None,
            value_bytes: 4 + prng.below(shape.value_bytes_max) as usize,
            ttl_ms: Some(ttl_ms(prng)),
        }
    };
    let each = total / clients + 1;
    (0..clients)
        .map(|_| (0..each).map(|_| draw(prng)).collect())
        .collect()
}

/// The clock of one member is wrong now and then. In most cases the member starts meanwhile, and
/// its clock is set right a little later.
fn draw_wrong_clock(shape: &RunShape, prng: &mut Prng) -> Vec<Fault> {
    const HOUR_MS: i64 = 3_600_000;
    let member = prng.below(shape.members as u64) as usize;
    let mut faults = Vec::new();
    for _ in 0..1 + prng.below(4) {
        let by_ms = match prng.below(6) {
            0 | 1 => 30_000 + prng.below(29_000) as i64,
            2 => 61_000 + prng.below(70_000) as i64,
            3 | 4 => 2 * HOUR_MS,
            _ => pick(prng, &[48, 24 * 365 * 10]) * HOUR_MS,
        };
        let by_ms = if prng.chance(1, 8) { -by_ms } else { by_ms };
        let (at_us, length_us) = (
            prng.below(shape.chaos_us),
            300_000 + skewed(prng, 2_000_000),
        );
        faults.push(Fault {
            at_us,
            length_us,
            kind: FaultKind::WrongClock { member, by_ms },
        });
        if prng.chance(3, 4) {
            let before_us = prng.below(at_us.min(400_000) + 1);
            faults.push(Fault {
                at_us: at_us - before_us,
                length_us: before_us + prng.below(200_000),
                kind: FaultKind::Kill { member },
            });
        }
    }
    faults
}

/// In some runs, tombstones that were made too early, at one member.
fn draw_faded(shape: &RunShape, prng: &mut Prng) -> Vec<Fault> {
    let member = prng.below(shape.members as u64) as usize;
    let count = match prng.below(3) {
        0 => 1 + prng.below(4),
        _ => 0,
    };
    let draw = |_| Fault {
        at_us: prng.below(shape.chaos_us),
        length_us: 1,
        kind: FaultKind::Faded { member },
    };
    (0..count).map(draw).collect()
}
