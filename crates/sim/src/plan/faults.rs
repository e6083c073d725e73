//! The faults of a run: which there are, when they come, and how long they stay.
//!
//! Invariants
//! 1. Each draw takes from the stream that it is given, in a fixed order: a seed keeps its faults.
//!
//! Not here: how faults are done (`world/faults.rs`, `member.rs`), the shape of a run (`shape.rs`).
//! See: docs/verification.md.

use super::shape::{KeyClass, RunShape, StoreKind, pick, skewed};
use dendra_base::Prng;
use std::collections::BTreeSet;

/// Directed links, each from one machine to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutLinks(BTreeSet<(usize, usize)>);

impl CutLinks {
    /// All links from and to one of `machines`.
    pub fn around(one: usize, machines: usize) -> CutLinks {
        let mut links = CutLinks::default();
        for other in (0..machines).filter(|other| *other != one) {
            links.add(one, other);
            links.add(other, one);
        }
        links
    }

    fn add(&mut self, from: usize, to: usize) {
        self.0.insert((from, to));
    }

    /// Is this one among them?
    pub fn has(&self, from: usize, to: usize) -> bool {
        self.0.contains(&(from, to))
    }
}

/// The kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The power of one member fails after so many operations of its disk.
    PowerCut {
        /// The member.
        member: usize,
        /// Operations of the disk that still happen.
        after: u64,
    },
    /// The process of one member ends.
    Kill {
        /// The member.
        member: usize,
    },
    /// The power of all members fails.
    Blackout,
    /// A member stands still and then goes on.
    Pause {
        /// The member.
        member: usize,
    },
    /// Messages on these directed links vanish.
    Cut {
        /// Which.
        links: CutLinks,
    },
    /// A wall clock jumps.
    Jump {
        /// The member.
        member: usize,
        /// How far.
        by_ms: i64,
    },
    /// A wall clock is wrong for a while, by more than any member believes, and then is right
    /// again.
    WrongClock {
        /// The member.
        member: usize,
        /// How far.
        by_ms: i64,
    },
    /// A disk becomes slow.
    SlowDisk {
        /// The member.
        member: usize,
        /// How many times slower.
        times: u64,
    },
    /// The next sync of the log fails.
    FailedSync {
        /// The member.
        member: usize,
    },
    /// A disk has no room.
    FullDisk {
        /// The member.
        member: usize,
    },
    /// A disk answers no read, and keeps its content.
    FailingReads {
        /// The member.
        member: usize,
    },
    /// A processor is slow: each event that a loop handles takes so long, and the others wait in
    /// its mailbox.
    SlowProcessor {
        /// The member.
        member: usize,
        /// For one event.
        event_us: u64,
    },
    /// Bits of stored cells turn over. The unlucky member only.
    Rot {
        /// Where.
        draw: u64,
    },
    /// Right before the next horizon rises here: a block of a delete rots, above an older record of
    /// its key in another table. The unlucky member only.
    RotUnderHorizon {
        /// Where.
        draw: u64,
    },
    /// Blocks of clients' records rot at several members at one time. Engines alone.
    RotAtSeveral {
        /// How many members.
        members: usize,
        /// May blocks of two members lie between the same keys?
        is_shared: bool,
        /// Which, and where.
        draw: u64,
    },
    /// The values with an end that all owners hold become tombstones of their versions at one
    /// member, as tables make them while most clocks are wrong. In a map alone.
    Faded {
        /// The member.
        member: usize,
    },
    /// A disk is lost and its member never comes back. The unlucky member only.
    LostDisk,
    /// An operator looks for copies that differ, at one member.
    Look {
        /// The member that looks.
        member: usize,
        /// Bit by bit, with which of the members that it knows.
        peers: u64,
        /// How fast.
        bytes_per_second: u64,
    },
}

/// A fault, when, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When it begins.
    pub at_us: u64,
    /// When it is over (for a crash: when the member starts again), counted from its begin.
    pub length_us: u64,
    /// The fault.
    pub kind: FaultKind,
}

impl Fault {
    /// The one member that it is about, if it is about one.
    pub fn member(&self) -> Option<usize> {
        match self.kind {
            FaultKind::PowerCut { member, .. }
            | FaultKind::Kill { member }
            | FaultKind::Pause { member }
            | FaultKind::Jump { member, .. }
            | FaultKind::WrongClock { member, .. }
            | FaultKind::SlowDisk { member, .. }
            | FaultKind::FailedSync { member }
            | FaultKind::FullDisk { member }
            | FaultKind::SlowProcessor { member, .. }
            | FaultKind::FailingReads { member }
            | FaultKind::Faded { member }
            | FaultKind::Look { member, .. } => Some(member),
            FaultKind::Blackout
            | FaultKind::Cut { .. }
            | FaultKind::Rot { .. }
            | FaultKind::RotUnderHorizon { .. }
            | FaultKind::RotAtSeveral { .. }
            | FaultKind::LostDisk => None,
        }
    }
}

/// Clocks that are wrong when everything else is well: the demands on the other members hold then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongClocks {
    /// How far each wall clock is off, in milliseconds; 0 = right.
    pub by_ms: Vec<i64>,
    /// Members that end and start again as soon as clocks are wrong, one bit each.
    pub restarts: u64,
    /// Members that end and start again as soon as all clocks are right again, one bit each.
    pub restarts_after: u64,
}

impl WrongClocks {
    /// The members with wrong clocks.
    pub fn members(&self) -> impl Iterator<Item = usize> {
        let wrong = self.by_ms.iter().enumerate().filter(|(_, by)| **by != 0);
        wrong.map(|(member, _)| member)
    }
}

pub(crate) fn draw_faults(shape: &RunShape, prng: &mut Prng) -> Vec<Fault> {
    // Each kind is there or not, so that some runs have one kind only and much of it.
    let is_on: Vec<bool> = (0..11).map(|_| prng.chance(1, 3)).collect();
    let kinds: Vec<usize> = (0..11).filter(|&kind| is_on[kind]).collect();
    let count = skewed(prng, 14);
    if kinds.is_empty() {
        return Vec::new();
    }
    let mut has_lost = false;
    let mut faults: Vec<Fault> = (0..count)
        .filter_map(|_| {
            let at_us = prng.below(shape.chaos_us);
            let length_us = 500 + skewed(prng, 2_000_000);
            let kind = pick(prng, &kinds);
            let kind = draw_fault(kind, shape, prng);
            // Lost bytes and a lost disk are the same member's: one is enough.
            let is_loss = matches!(kind, FaultKind::LostDisk);
            let is_kept = !is_loss || !has_lost && prng.chance(1, 2);
            has_lost |= is_loss && is_kept;
            is_kept.then_some(Fault {
                at_us,
                length_us,
                kind,
            })
        })
        .collect();
    if prng.chance(1, 6) {
        faults.extend(draw_crash_loop(shape, prng));
    }
    faults.sort_by_key(|fault| fault.at_us);
    faults
}

/// In some runs, disks that do not answer for a while. They have a stream of their own, so that the
/// rest of a seed's plan stays the same.
pub(crate) fn draw_failing_reads(shape: &RunShape, prng: &mut Prng) -> Vec<Fault> {
    let count = if prng.chance(1, 5) {
        1 + prng.below(4)
    } else {
        0
    };
    let draw = |_| Fault {
        at_us: prng.below(shape.chaos_us),
        length_us: 500 + skewed(prng, 2_000_000),
        kind: FaultKind::FailingReads {
            member: prng.below(shape.members as u64) as usize,
        },
    };
    (0..count).map(draw).collect()
}

/// Looks of an operator, of one member or another.
pub(crate) fn draw_looks(shape: &RunShape, prng: &mut Prng) -> Vec<Fault> {
    let count = 1 + prng.below(8);
    let draw = |_| Fault {
        at_us: prng.below(shape.chaos_us),
        length_us: 1,
        kind: FaultKind::Look {
            member: prng.below(shape.members as u64) as usize,
            peers: prng.next_u64() | prng.next_u64(),
            bytes_per_second: pick(prng, &[10_000, 1 << 30]),
        },
    };
    (0..count).map(draw).collect()
}

/// How far a clock is wrong: a little more or less than members believe, or anything.
fn draw_wrong_by(prng: &mut Prng) -> i64 {
    const HOUR_MS: i64 = 3_600_000;
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
/// plan of its own has both (`expiring.rs`).
pub(super) fn draw_wrong_clocks(
    shape: &RunShape,
    prng: &mut Prng,
) -> (Vec<Fault>, Option<WrongClocks>) {
    let is_on = prng.chance(1, 4);
    if !is_on || shape.keys.contains(&KeyClass::Fleeting) {
        return (Vec::new(), None);
    }
    let one = prng.below(shape.members as u64) as usize;
    let are_all = prng.chance(1, 4);
    let count = 1 + prng.below(5);
    let faults = (0..count).map(|_| Fault {
        at_us: prng.below(shape.chaos_us),
        length_us: 500 + skewed(prng, 2_000_000),
        kind: FaultKind::WrongClock {
            member: if are_all {
                prng.below(shape.members as u64) as usize
            } else {
                one
            },
            by_ms: draw_wrong_by(prng),
        },
    });
    let faults = faults.collect();
    let are_all = prng.chance(1, 4);
    let draw_one = |member| {
        if are_all || member == one {
            draw_wrong_by(prng)
        } else {
            0
        }
    };
    let by_ms = (0..shape.members).map(draw_one).collect();
    let wrong = WrongClocks {
        by_ms,
        restarts: prng.below(1 << shape.members),
        restarts_after: prng.below(1 << shape.members),
    };
    // One of two that are left cannot know which of them is right.
    (faults, (shape.copies >= 3).then_some(wrong))
}

/// One member that ends again and again while its clock is set back: the test of a restart's
/// memory.
fn draw_crash_loop(shape: &RunShape, prng: &mut Prng) -> Vec<Fault> {
    let member = prng.below(shape.members as u64) as usize;
    let begin_us = prng.below(shape.chaos_us / 2);
    let pause_us = 1_000 + skewed(prng, 200_000);
    let back = Fault {
        at_us: begin_us,
        length_us: 1,
        kind: FaultKind::Jump {
            member,
            by_ms: -8_000,
        },
    };
    let ends = (0..1 + prng.below(6)).map(|round| Fault {
        at_us: begin_us + (round + 1) * pause_us,
        length_us: 200 + prng.below(pause_us),
        kind: if prng.chance(1, 2) {
            FaultKind::Kill { member }
        } else {
            FaultKind::PowerCut {
                member,
                after: prng.below(6),
            }
        },
    });
    std::iter::once(back).chain(ends).collect()
}

fn draw_fault(kind: usize, shape: &RunShape, prng: &mut Prng) -> FaultKind {
    let member = prng.below(shape.members as u64) as usize;
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
    let mut links = CutLinks::default();
    match prng.below(4) {
        // Two sides that do not hear each other.
        0 => {
            let side = draw_side(members, prng);
            for from in 0..members {
                for to in 0..members {
                    if (side >> from & 1) != (side >> to & 1) {
                        links.add(from, to);
                    }
                }
            }
        }
        // One member is heard by no other, or hears no other.
        1 => {
            let one = prng.below(members as u64) as usize;
            let is_deaf = prng.chance(1, 2);
            for other in (0..members).filter(|&other| other != one) {
                if is_deaf {
                    links.add(other, one);
                } else {
                    links.add(one, other);
                }
            }
        }
        // Two members do not reach each other; others reach both.
        2 => {
            let a = prng.below(members as u64) as usize;
            let b = prng.below(members as u64) as usize;
            links.add(a, b);
            links.add(b, a);
        }
        _ => {
            for from in 0..members {
                for to in 0..members {
                    if prng.chance(1, 3) {
                        links.add(from, to);
                    }
                }
            }
        }
    }
    links
}
