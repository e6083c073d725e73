//! The faults of a run: which there are, when they come, and how long they stay.
//!
//! Invariants
//! 1. Each draw takes from the stream that it is given, in a fixed order: a seed keeps its faults.
//! 2. Only the unlucky member loses bytes: a write that two copies acknowledged has one left.
//!
//! Not here: how faults are done (`world/faults.rs`, `member.rs`).
//! See: docs/verification.md.

use crate::changes::OperatorDeed;
use crate::plan::{
    CutLinks, Fault, FaultKind, KeyClass, PlannedImage, Restarts, RunPlan, RunShape, StoreKind,
    WrongClocks, pick, skewed,
};
use crate::store::terms::Crash;
use dendra_base::Prng;

const HOUR_MS: i64 = 3_600_000;

/// Up to `most` in one run of so many, and none in the others.
pub(super) fn seldom(one_of: u64, most: u64, prng: &mut Prng) -> u64 {
    if prng.chance(1, one_of) {
        1 + prng.below(most)
    } else {
        0
    }
}

pub(super) fn usual(plan: &mut RunPlan, prng: &mut Prng) {
    plan.faults.extend(draw_usual(&plan.shape, prng));
}

/// The usual ones but those that take records away from a disk.
pub(super) fn of_whole_disks(plan: &mut RunPlan, prng: &mut Prng) {
    let faults = draw_usual(&plan.shape, prng).into_iter();
    plan.faults
        .extend(faults.filter(|fault| !fault.kind.takes_records()));
}

fn draw_usual(shape: &RunShape, prng: &mut Prng) -> Vec<Fault> {
    // Each kind is there or not, so that some runs have one kind only and much of it.
    let is_on: Vec<bool> = (0..11).map(|_| prng.chance(1, 3)).collect();
    let kinds: Vec<usize> = (0..11).filter(|&kind| is_on[kind]).collect();
    let count = skewed(prng, 14);
    if kinds.is_empty() {
        return Vec::new();
    }
    let mut has_lost = false;
    let mut faults = Vec::new();
    for _ in 0..count {
        let at_us = prng.below(shape.chaos_us);
        let length_us = 500 + skewed(prng, 2_000_000);
        let kind = pick(prng, &kinds);
        let kind = draw_fault(kind, shape, prng);
        // Lost bytes and a lost disk are the same member's: one is enough.
        let is_loss = kind == FaultKind::LostDisk;
        if !is_loss || !has_lost && prng.chance(1, 2) {
            has_lost |= is_loss;
            faults.push(Fault::new(at_us, length_us, kind));
        }
    }
    if prng.chance(1, 6) {
        faults.extend(draw_crash_loop(shape, prng));
    }
    faults.sort_by_key(|fault| fault.at_us);
    faults
}

/// In some runs, disks that do not answer for a while.
pub(super) fn failing_reads(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &plan.shape;
    for _ in 0..seldom(5, 4, prng) {
        let (at_us, length_us) = (prng.below(shape.chaos_us), 500 + skewed(prng, 2_000_000));
        let member = shape.any_member(prng);
        let kind = FaultKind::FailingReads { member };
        plan.faults.push(Fault::new(at_us, length_us, kind));
    }
}

/// Looks of an operator, of one member or another. In every second run that is the only comparing.
pub(super) fn looks(plan: &mut RunPlan, prng: &mut Prng) {
    for _ in 0..1 + prng.below(8) {
        let at_us = prng.below(plan.shape.chaos_us);
        let kind = FaultKind::Look {
            member: plan.shape.any_member(prng),
            peers: prng.next_u64() | prng.next_u64(),
            bytes_per_second: pick(prng, &[10_000, 1 << 30]),
        };
        plan.faults.push(Fault::new(at_us, 1, kind));
    }
    if prng.chance(1, 2) {
        plan.shape.compares = None;
    }
}

/// A block of a delete rots when a horizon rises, in every third run. Bytes are damaged only where
/// no member is replaced and each record has all its copies. So one copy is lost at a time.
pub(super) fn rot_under_horizons(plan: &mut RunPlan, prng: &mut Prng) {
    let may_rot = plan.has_only_absences();
    if may_rot && prng.below(3) == 0 {
        // A delete stays above the record that it hides until its horizon has risen.
        plan.shape.level0_tables = Some(8);
        let chaos_us = plan.shape.chaos_us;
        for _ in 0..1 + prng.below(3) {
            let at_us = chaos_us / 8 + prng.below(chaos_us * 3 / 4);
            let draw = prng.next_u64();
            let kind = FaultKind::RotUnderHorizon { draw };
            plan.faults.push(Fault::new(at_us, 1, kind));
        }
    }
    plan.faults.retain(|fault| match fault.kind {
        FaultKind::Rot { .. } => may_rot,
        FaultKind::LostDisk => false,
        _ => true,
    });
}

/// Blocks rot at two or three members at one time, in every second run between the same keys. No
/// other ones rot, and members are away at most.
pub(super) fn rotten(plan: &mut RunPlan, prng: &mut Prng) {
    plan.faults.retain(|fault| !fault.kind.takes_records());
    let at_us = plan.shape.chaos_us * (250 + prng.below(625)) / 1_000;
    let kind = FaultKind::RotAtSeveral {
        members: pick(prng, &[2, 2, 3]),
        is_shared: prng.chance(1, 2),
        draw: prng.next_u64(),
    };
    plan.faults.push(Fault::new(at_us, 1, kind));
    let changes = plan.changes.iter_mut();
    changes.for_each(|changes| changes.deeds.retain(|deed| deed.deed == OperatorDeed::Away));
}

/// How far a clock is wrong: a little more or less than members believe, or anything.
fn draw_wrong_by(prng: &mut Prng) -> i64 {
    let by_ms = match prng.below(6) {
        0 | 1 => 50_000 + prng.below(80_000) as i64,
        2 => pick(prng, &[120_000, 600_000]),
        3 => HOUR_MS + prng.below(1_000) as i64,
        4 => 24 * HOUR_MS,
        // Before every clock's beginning, or after the last moment that moves a clock.
        _ => pick(prng, &[-500_000, 10_000_000]) * HOUR_MS,
    };
    if prng.chance(1, 2) { -by_ms } else { by_ms }
}

/// In some runs, clocks that are wrong by more than members believe, of one member or of all. They
/// are wrong during other faults, and when everything else is well again. Not where values end: a
/// world of its own has both.
pub(super) fn wrong_clocks(plan: &mut RunPlan, prng: &mut Prng) {
    let shape = &plan.shape;
    let is_on = prng.chance(1, 4);
    if !is_on || shape.keys.contains(&KeyClass::Fleeting) {
        return;
    }
    let one = shape.any_member(prng);
    let many_jump = prng.chance(1, 4);
    for _ in 0..1 + prng.below(5) {
        let (at_us, length_us) = (prng.below(shape.chaos_us), 500 + skewed(prng, 2_000_000));
        let member = if many_jump {
            shape.any_member(prng)
        } else {
            one
        };
        let by_ms = draw_wrong_by(prng);
        let kind = FaultKind::WrongClock { member, by_ms };
        plan.faults.push(Fault::new(at_us, length_us, kind));
    }
    let all_stay = prng.chance(1, 4);
    let mut draw = |member| {
        let is_wrong = all_stay || member == one;
        if is_wrong { draw_wrong_by(prng) } else { 0 }
    };
    let wrong = WrongClocks {
        by_ms: (0..shape.members).map(&mut draw).collect(),
        restarts: prng.below(1 << shape.members),
        restarts_after: prng.below(1 << shape.members),
    };
    // One of two that are left cannot know which of them is right.
    plan.wrong_clocks = (shape.copies >= 3).then_some(wrong);
}

/// The clock of one member is wrong now and then. In most cases the member starts meanwhile, and
/// its clock is set right a little later.
///
/// ```text
/// clock of one   ahead by 45 s, hours or years ──┐ right      ──┐ right
/// its process    ────┤ end   start ├─────────────┴───────┤ …    │
/// ```
pub(super) fn wrong_clock_of_one(plan: &mut RunPlan, prng: &mut Prng) {
    let member = plan.shape.any_member(prng);
    for _ in 0..1 + prng.below(4) {
        let by_ms = match prng.below(6) {
            0 | 1 => 30_000 + prng.below(29_000) as i64,
            2 => 61_000 + prng.below(70_000) as i64,
            3 | 4 => 2 * HOUR_MS,
            _ => pick(prng, &[48, 24 * 365 * 10]) * HOUR_MS,
        };
        let by_ms = if prng.chance(1, 8) { -by_ms } else { by_ms };
        let at_us = prng.below(plan.shape.chaos_us);
        let length_us = 300_000 + skewed(prng, 2_000_000);
        let kind = FaultKind::WrongClock { member, by_ms };
        plan.faults.push(Fault::new(at_us, length_us, kind));
        if prng.chance(3, 4) {
            let before_us = prng.below(at_us.min(400_000) + 1);
            let away_us = before_us + prng.below(200_000);
            let kill = FaultKind::Kill { member };
            plan.faults
                .push(Fault::new(at_us - before_us, away_us, kill));
        }
    }
}

/// In some runs, tombstones that were made too early, at one member.
pub(super) fn faded(plan: &mut RunPlan, prng: &mut Prng) {
    let member = plan.shape.any_member(prng);
    for _ in 0..seldom(3, 4, prng) {
        let at_us = prng.below(plan.shape.chaos_us);
        let kind = FaultKind::Faded { member };
        plan.faults.push(Fault::new(at_us, 1, kind));
    }
}

/// In some runs, an image of a disk that comes back when everything is well.
pub(super) fn image(plan: &mut RunPlan, prng: &mut Prng) {
    let restarts = [Restarts::None, Restarts::AllAtOnce, Restarts::OneByOne];
    if prng.chance(1, 8) {
        plan.image = Some(PlannedImage {
            member: plan.shape.any_member(prng),
            taken_us: prng.below(plan.shape.chaos_us),
            restarts: pick(prng, &restarts),
            how: pick(prng, &[Crash::PowerLoss, Crash::Killed]),
        });
    }
}

/// One member that ends again and again while its clock is set back: the test of a restart's
/// memory.
fn draw_crash_loop(shape: &RunShape, prng: &mut Prng) -> Vec<Fault> {
    let member = shape.any_member(prng);
    let begin_us = prng.below(shape.chaos_us / 2);
    let pause_us = 1_000 + skewed(prng, 200_000);
    let by_ms = -8_000;
    let back = Fault::new(begin_us, 1, FaultKind::Jump { member, by_ms });
    let count = 1 + prng.below(6);
    let end = |round| {
        let length_us = 200 + prng.below(pause_us);
        let kind = if prng.chance(1, 2) {
            FaultKind::Kill { member }
        } else {
            let after = prng.below(6);
            FaultKind::PowerCut { member, after }
        };
        Fault::new(begin_us + (round + 1) * pause_us, length_us, kind)
    };
    std::iter::once(back).chain((0..count).map(end)).collect()
}

fn draw_fault(kind: usize, shape: &RunShape, prng: &mut Prng) -> FaultKind {
    let member = shape.any_member(prng);
    match kind {
        0 => FaultKind::PowerCut {
            member,
            after: skewed(prng, 30),
        },
        1 => FaultKind::Kill { member },
        2 => FaultKind::Blackout,
        3 => FaultKind::Pause { member },
        4 | 5 => FaultKind::Cut {
            links: draw_links(shape, prng),
        },
        6 => FaultKind::Jump {
            member,
            by_ms: pick(prng, &[-8_000, -1_000, -50, 50, 1_000, 8_000]),
        },
        7 => FaultKind::SlowDisk {
            member,
            times: pick(prng, &[5, 30]),
        },
        8 => FaultKind::FailedSync { member },
        9 => match shape.store {
            StoreKind::Engine => FaultKind::FullDisk { member },
            StoreKind::Map => FaultKind::Kill { member },
        },
        _ => match prng.below(4) {
            0 => FaultKind::LostDisk,
            _ => FaultKind::Rot {
                draw: prng.next_u64(),
            },
        },
    }
}

/// A bit for each member.
fn draw_side(members: usize, prng: &mut Prng) -> u128 {
    match members {
        0..64 => u128::from(prng.below(1 << members)),
        _ => u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64()),
    }
}

fn draw_links(shape: &RunShape, prng: &mut Prng) -> CutLinks {
    let members = shape.members;
    match prng.below(4) {
        // Two sides that do not hear each other.
        0 => {
            let side = draw_side(members, prng);
            CutLinks::of(members, |from, to| side >> from & 1 != side >> to & 1)
        }
        // One member is heard by no other, or hears no other.
        1 => {
            let one = shape.any_member(prng);
            let is_deaf = prng.chance(1, 2);
            CutLinks::of(members, |from, to| {
                from != to && one == if is_deaf { to } else { from }
            })
        }
        // Two members do not reach each other; others reach both.
        2 => {
            let (a, b) = (shape.any_member(prng), shape.any_member(prng));
            CutLinks::of(members, |from, to| [(a, b), (b, a)].contains(&(from, to)))
        }
        _ => CutLinks::of(members, |_, _| prng.chance(1, 3)),
    }
}
