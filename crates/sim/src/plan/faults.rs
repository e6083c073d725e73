//! The kinds of faults, and a fault of a run: when it comes, and how long it stays.
//!
//! Invariants
//! 1. A fault is a value: its `draw` decides what it leaves open, such as which block.
//!
//! Not here: how faults are done (`world/faults.rs`, `member.rs`), the shape of a run (`shape.rs`).
//! See: docs/verification.md.

use std::collections::BTreeSet;

/// Directed links, each from one machine to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutLinks(BTreeSet<(usize, usize)>);

impl CutLinks {
    /// All links from and to one of `machines`.
    pub fn around(one: usize, machines: usize) -> CutLinks {
        CutLinks::of(machines, |from, to| from != to && [from, to].contains(&one))
    }

    /// Every link that `is_cut` names, from one machine to another.
    pub(crate) fn of(machines: usize, mut is_cut: impl FnMut(usize, usize) -> bool) -> CutLinks {
        let all = (0..machines).flat_map(|from| (0..machines).map(move |to| (from, to)));
        CutLinks(all.filter(|&(from, to)| is_cut(from, to)).collect())
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

impl FaultKind {
    /// Does it take records away from a disk?
    pub(crate) fn takes_records(&self) -> bool {
        matches!(
            self,
            FaultKind::Rot { .. }
                | FaultKind::RotUnderHorizon { .. }
                | FaultKind::RotAtSeveral { .. }
                | FaultKind::LostDisk
        )
    }
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
    /// From then on, for so long.
    pub(crate) fn new(at_us: u64, length_us: u64, kind: FaultKind) -> Fault {
        Fault {
            at_us,
            length_us,
            kind,
        }
    }

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
