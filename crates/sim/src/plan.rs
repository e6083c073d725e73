//! The meaning of one seed: a cluster, a weather, the wishes of clients, and the faults with their
//! times.
//!
//! ```text
//! seed ─► RunShape    members, copies, lanes, store, clocks, delays, rates: drawn per seed (swarm)
//!      ─► clients     one list of wishes each
//!      ─► faults      a list of (when, how long, which fault)
//! ```
//!
//! Invariants
//! 1. The same seed gives the same plan for ever, and a plan and its seed give the same run.
//! 2. Lists can be thinned without a change of the rest: the shrinker depends on it.
//! 3. Only the unlucky member loses bytes: a write that two copies acknowledged has one left.
//!
//! Not here: how faults are done (`world.rs`, `member.rs`).
//! See: docs/verification.md.

use crate::changes::Changes;
use crate::limits::{DEED_HAPPENINGS_MAX, DEED_PAIR_HAPPENINGS, HAPPENINGS_MAX};
use crate::store::Crash;
use dendra_base::Prng;
use std::collections::BTreeSet;

/// The stores in which members keep their cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// A sorted map with a commit that is atomic: for protocols, ten times faster.
    Map,
    /// The engine on a folder in memory that can crash at any operation.
    Engine,
}

/// The operations on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyClass {
    /// Default level only, conditions too: promise 2.
    Strong,
    /// Any quorum: promise 7.
    Weak,
    /// Default level; values end by themselves.
    Fleeting,
}

/// Options of one run.
#[derive(Clone, Debug)]
pub struct RunShape {
    /// Members of the cluster.
    pub members: usize,
    /// Replication factor, at most `members`.
    pub copies: usize,
    /// Event loops per member.
    pub lanes: usize,
    /// Where cells are kept.
    pub store: StoreKind,
    /// One class per key.
    pub keys: Vec<KeyClass>,
    /// The shortest way of a message.
    pub delay_min_us: u64,
    /// The random part of a delay, uniform.
    pub delay_spread_us: u64,
    /// Messages of a thousand that take much longer, and how much at most.
    pub tail: (u64, u64),
    /// Messages of a thousand that never arrive.
    pub loss_permille: u64,
    /// Messages of a thousand that arrive twice.
    pub repeat_permille: u64,
    /// A commit takes up to this.
    pub sync_us: u64,
    /// A read takes up to this.
    pub read_us: u64,
    /// Messages of one turn of a loop go out together after at most this.
    pub turn_us: u64,
    /// How far each wall clock is off, in milliseconds.
    pub skew_ms: Vec<i64>,
    /// How much faster each clock runs, in millionths.
    pub drift_ppm: Vec<i64>,
    /// Clients wait up to this between operations.
    pub think_us: u64,
    /// Clients give their member up to this much time.
    pub timeout_us: u64,
    /// Values are up to this long.
    pub value_bytes_max: u64,
    /// Limits of the engine are drawn from this.
    pub engine_seed: u64,
    /// Tables of level 0 that it merges, if not drawn with the rest.
    pub level0_tables: Option<usize>,
    /// Bytes of hints that a member keeps.
    pub hint_bytes: u64,
    /// Bytes a second that a member compares with others, and its rest between two comparisons with
    /// one of them; `None` = members do not compare.
    pub compares: Option<(u64, u64)>,
    /// Questions of a thousand beside which a stranger's comes: of another cluster, or by an older
    /// topology.
    pub stranger_permille: u64,
    /// The member whose disk may fail for good.
    pub unlucky: usize,
    /// When the weather gets calm at the latest.
    pub chaos_us: u64,
}

/// The wish of a planned operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedKind {
    /// Read.
    Get,
    /// Write a new value.
    Put,
    /// Remove.
    Delete,
}

/// Which condition a planned write has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedBase {
    /// None.
    Any,
    /// There is a value.
    Present,
    /// There is none.
    Absent,
    /// The value that this client saw last; none when it saw none.
    MatchesLast,
    /// Not the value that this client saw last; none when it saw none.
    DiffersLast,
}

/// One operation as drawn.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Which key.
    pub key: usize,
    /// Read or write.
    pub kind: PlannedKind,
    /// The condition.
    pub base: PlannedBase,
    /// Answers and copies; `None` = the default.
    pub quorum: Option<(u8, u8)>,
    /// Which member is asked.
    pub member: usize,
    /// How long the client waits first.
    pub think_us: u64,
    /// How long it gives the member.
    pub timeout_us: u64,
    /// How long it waits for the answer before it hangs up; `None` = as long as it takes.
    pub patience_us: Option<u64>,
    /// Length of the value.
    pub value_bytes: usize,
    /// How long the value lives.
    pub ttl_ms: Option<u64>,
}

/// A walk over a range of keys, page by page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedScan {
    /// When it begins.
    pub at_us: u64,
    /// Which member is asked.
    pub member: usize,
    /// From this key on.
    pub start: usize,
    /// Up to this one, exclusive; `None` = to the last one.
    pub end: Option<usize>,
    /// From the end towards the start.
    pub is_reverse: bool,
    /// About so many bytes a page.
    pub bytes: u32,
    /// How long one page may take.
    pub timeout_us: u64,
}

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

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The power of one member fails after so many operations of its disk.
    PowerCut {
        /// Whose.
        member: usize,
        /// Operations of the disk that still happen.
        after: u64,
    },
    /// The process of one member ends.
    Kill {
        /// Whose.
        member: usize,
    },
    /// The power of all members fails.
    Blackout,
    /// A member does nothing and then goes on.
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
        /// Whose.
        member: usize,
        /// How far.
        by_ms: i64,
    },
    /// A wall clock is wrong for a while, by more than any member believes, and then is right
    /// again.
    WrongClock {
        /// Whose.
        member: usize,
        /// How far.
        by_ms: i64,
    },
    /// A disk becomes slow.
    SlowDisk {
        /// Whose.
        member: usize,
        /// How many times slower.
        times: u64,
    },
    /// The next sync of the log fails.
    FailedSync {
        /// Whose.
        member: usize,
    },
    /// A disk has no room.
    FullDisk {
        /// Whose.
        member: usize,
    },
    /// A disk answers no read, and keeps its content.
    FailingReads {
        /// Whose.
        member: usize,
    },
    /// A processor is slow: each event that a loop handles takes so long, and the others wait in
    /// its mailbox.
    SlowProcessor {
        /// Whose.
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
    /// A disk is lost and its member never comes back. The unlucky member only.
    LostDisk,
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
            | FaultKind::FailingReads { member } => Some(member),
            FaultKind::Blackout
            | FaultKind::Cut { .. }
            | FaultKind::Rot { .. }
            | FaultKind::RotUnderHorizon { .. }
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
    /// The same as soon as all are right again.
    pub restarts_after: u64,
}

impl WrongClocks {
    /// The members whose clocks are wrong.
    pub fn members(&self) -> impl Iterator<Item = usize> {
        let wrong = self.by_ms.iter().enumerate().filter(|(_, by)| **by != 0);
        wrong.map(|(member, _)| member)
    }
}

/// Everything that a seed decides about a run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Where the rest of the randomness of the run comes from.
    pub seed: u64,
    /// Options.
    pub shape: RunShape,
    /// The operations of each client.
    pub clients: Vec<Vec<Planned>>,
    /// Walks over many keys.
    pub scans: Vec<PlannedScan>,
    /// The faults.
    pub faults: Vec<Fault>,
    /// Which clocks are wrong behind that.
    pub wrong_clocks: Option<WrongClocks>,
    /// Which member comes back on an older image of its disk in the end.
    pub image: Option<PlannedImage>,
    /// How the members change, if they do.
    pub changes: Option<Changes>,
}

/// An image of a disk, and the events before it comes back.
#[derive(Clone, Debug)]
pub struct PlannedImage {
    /// Whose.
    pub member: usize,
    /// When it is made.
    pub taken_us: u64,
    /// The members that are restarted before it comes back, or with it.
    pub restarts: Restarts,
    /// How members end for that.
    pub how: Crash,
}

/// Which members are restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarts {
    /// None.
    None,
    /// All of them at the same time, and the image is in its place when they come back.
    AllAtOnce,
    /// All of them, one after the other.
    OneByOne,
}

/// One of `of`.
pub(crate) fn pick<T: Copy>(prng: &mut Prng, of: &[T]) -> T {
    of[prng.below(of.len() as u64) as usize]
}

/// A number between 0 and `most`, small ones far more often: its logarithm is drawn.
pub(crate) fn skewed(prng: &mut Prng, most: u64) -> u64 {
    let bits = 64 - most.leading_zeros();
    let below = 1u64 << prng.below(u64::from(bits) + 1);
    prng.below(below).min(most)
}

impl RunPlan {
    /// The plan of `seed`.
    pub fn draw(seed: u64) -> RunPlan {
        let mut prng = Prng::named(seed, "shape");
        let mut shape = RunShape::draw(&mut prng);
        let mut prng = Prng::named(seed, "comparisons");
        shape.compares = draw_compares(&mut prng);
        let mut prng = Prng::named(seed, "clients");
        let mut clients = draw_clients(&shape, &mut prng);
        let mut prng = Prng::named(seed, "faults");
        let mut faults = draw_faults(&shape, &mut prng);
        let mut prng = Prng::named(seed, "failing reads");
        faults.extend(draw_failing_reads(&shape, &mut prng));
        let mut prng = Prng::named(seed, "wrong clocks");
        let (more, wrong_clocks) = draw_wrong_clocks(&shape, &mut prng);
        faults.extend(more);
        let mut prng = Prng::named(seed, "overloads");
        for (slow, burst) in draw_overloads(&shape, &mut prng) {
            faults.push(slow);
            clients.extend(burst);
        }
        faults.sort_by_key(|fault| fault.at_us);
        let mut prng = Prng::named(seed, "images");
        let image = draw_image(&shape, &mut prng);
        let mut prng = Prng::named(seed, "scans");
        let scans = draw_scans(&shape, &mut prng);
        RunPlan {
            seed,
            shape,
            clients,
            scans,
            faults,
            wrong_clocks,
            image,
            changes: None,
        }
    }

    /// The same without the last member: it does nothing, and no client asks it. `None` when as
    /// many members are left as a key has copies.
    pub fn without_last_member(&self) -> Option<RunPlan> {
        let mut plan = self.clone();
        let shape = &mut plan.shape;
        if shape.members <= shape.copies || plan.changes.is_some() {
            return None;
        }
        shape.members -= 1;
        shape.unlucky %= shape.members;
        let members = shape.members;
        for planned in plan.clients.iter_mut().flatten() {
            planned.member %= members;
            planned.quorum = planned.quorum.map(|(ack, from)| {
                let from = from.min(members as u8);
                (ack.min(from), from)
            });
        }
        for planned in &mut plan.scans {
            planned.member %= members;
        }
        if let Some(wrong) = &mut plan.wrong_clocks {
            wrong.by_ms.truncate(members);
            wrong.restarts &= (1 << members) - 1;
            wrong.restarts_after &= (1 << members) - 1;
        }
        plan.image = plan.image.filter(|image| image.member < members);
        plan.faults
            .retain(|fault| fault.member().is_none_or(|member| member < members));
        Some(plan)
    }

    /// A run with more happenings goes in circles.
    pub fn happenings_max(&self) -> u64 {
        let deeds = self.changes.as_ref().map_or(0, |c| c.deeds.len() as u64);
        let pairs = (self.shape.members * self.shape.members) as u64;
        HAPPENINGS_MAX + deeds * DEED_HAPPENINGS_MAX.max(pairs * DEED_PAIR_HAPPENINGS)
    }

    /// How many operations are planned.
    pub fn operations(&self) -> usize {
        self.clients.iter().map(Vec::len).sum()
    }
}

impl RunShape {
    pub(crate) fn draw(prng: &mut Prng) -> RunShape {
        let members = pick(prng, &[2, 2, 3, 3, 3, 3, 3, 4, 4, 5, 5]);
        let copies = pick(prng, &[1, 2, 3, 3, 3, 3, 3, 3, 5]).min(members);
        let store = match prng.below(4) {
            0 => StoreKind::Engine,
            _ => StoreKind::Map,
        };
        let count = match store {
            StoreKind::Map => 1 + prng.below(4),
            StoreKind::Engine => 1 + skewed(prng, 40),
        };
        let is_mixed = prng.chance(1, 2);
        let draw_class = |prng: &mut Prng| match prng.below(10) {
            0..2 if is_mixed => KeyClass::Weak,
            2 if is_mixed => KeyClass::Fleeting,
            _ => KeyClass::Strong,
        };
        let skew = pick(prng, &[0, 1, 20, 400, 4_000]);
        let signed = |prng: &mut Prng, most: u64| {
            let size = skewed(prng, most) as i64;
            if prng.chance(1, 2) { -size } else { size }
        };
        let is_lossy = prng.chance(1, 2);
        let has_tail = prng.chance(1, 2);
        RunShape {
            members,
            copies,
            lanes: pick(prng, &[1, 1, 2]),
            store,
            keys: (0..count).map(|_| draw_class(prng)).collect(),
            delay_min_us: pick(prng, &[20, 100, 500]),
            delay_spread_us: pick(prng, &[50, 1_000, 10_000, 60_000]),
            tail: if has_tail {
                (
                    pick(prng, &[5, 50, 150]),
                    pick(prng, &[5_000, 100_000, 800_000]),
                )
            } else {
                (0, 1)
            },
            loss_permille: if is_lossy {
                pick(prng, &[2, 20, 120])
            } else {
                0
            },
            repeat_permille: pick(prng, &[0, 0, 20, 100]),
            sync_us: pick(prng, &[100, 2_000, 40_000]),
            read_us: pick(prng, &[0, 200, 20_000]),
            turn_us: pick(prng, &[1, 50, 500]),
            skew_ms: (0..members).map(|_| signed(prng, skew)).collect(),
            drift_ppm: (0..members).map(|_| signed(prng, 500)).collect(),
            think_us: pick(prng, &[100, 5_000, 40_000]),
            timeout_us: pick(prng, &[60_000, 300_000, 1_000_000]),
            value_bytes_max: match store {
                StoreKind::Map => 16,
                StoreKind::Engine => pick(prng, &[30, 200, 1_500]),
            },
            engine_seed: prng.next_u64(),
            level0_tables: None,
            hint_bytes: pick(prng, &[0, 2_000, 1 << 20]),
            compares: None,
            stranger_permille: pick(prng, &[0, 0, 0, 5]),
            unlucky: prng.below(members as u64) as usize,
            chaos_us: pick(prng, &[500_000, 2_000_000, 6_000_000]),
        }
    }

    /// The default quorum of this cluster.
    pub fn usual(&self) -> (u8, u8) {
        let from = self.copies as u8;
        (from / 2 + 1, from)
    }
}

pub(crate) fn draw_clients(shape: &RunShape, prng: &mut Prng) -> Vec<Vec<Planned>> {
    let clients = 1 + prng.below(6);
    let total = match shape.store {
        StoreKind::Map => 20 + prng.below(80),
        StoreKind::Engine => 60 + prng.below(400),
    };
    let weights = Weights {
        get: 1 + prng.below(6),
        put: 1 + prng.below(6),
        delete: prng.below(3),
        condition_percent: pick(prng, &[0, 30, 80]),
        // The member that a client asks: mostly its own one, or any.
        is_loyal: prng.chance(1, 2),
        gives_up: prng.chance(1, 4),
    };
    (0..clients)
        .map(|client| {
            let count = total / clients + 1;
            (0..count)
                .map(|_| draw_operation(shape, &weights, client as usize, prng))
                .collect()
        })
        .collect()
}

struct Weights {
    get: u64,
    put: u64,
    delete: u64,
    condition_percent: u64,
    is_loyal: bool,
    gives_up: bool,
}

fn draw_operation(shape: &RunShape, weights: &Weights, client: usize, prng: &mut Prng) -> Planned {
    let key = prng.below(shape.keys.len() as u64) as usize;
    let class = shape.keys[key];
    let drawn = prng.below(weights.get + weights.put + weights.delete);
    let kind = if drawn < weights.get {
        PlannedKind::Get
    } else if drawn < weights.get + weights.put {
        PlannedKind::Put
    } else {
        PlannedKind::Delete
    };
    let (usual_ack, usual_from) = shape.usual();
    let quorum = match class {
        KeyClass::Weak => {
            let from = 1 + prng.below(shape.members as u64) as u8;
            Some((1 + prng.below(u64::from(from)) as u8, from))
        }
        _ if prng.chance(1, 6) => {
            let more = prng.below(u64::from(usual_from - usual_ack) + 1) as u8;
            Some((usual_ack + more, usual_from))
        }
        _ => None,
    };
    let has_base = class == KeyClass::Strong && prng.chance(weights.condition_percent, 100);
    let base = if has_base {
        pick(
            prng,
            &[
                PlannedBase::Present,
                PlannedBase::Absent,
                PlannedBase::MatchesLast,
                PlannedBase::MatchesLast,
                PlannedBase::MatchesLast,
                PlannedBase::DiffersLast,
            ],
        )
    } else {
        PlannedBase::Any
    };
    let member = if weights.is_loyal && prng.chance(4, 5) {
        client % shape.members
    } else {
        prng.below(shape.members as u64) as usize
    };
    let gives_up = weights.gives_up && prng.chance(1, 8);
    Planned {
        key,
        kind,
        base,
        quorum,
        member,
        think_us: prng.below(shape.think_us + 1),
        timeout_us: 1_000 + prng.below(shape.timeout_us),
        patience_us: gives_up.then(|| prng.below(shape.timeout_us)),
        value_bytes: 4 + prng.below(shape.value_bytes_max) as usize,
        ttl_ms: (class == KeyClass::Fleeting).then(|| 1 + skewed(prng, 3_000)),
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

/// In some runs, disks that do not answer for a while: drawn by themselves, so that the rest of a
/// seed means what it would mean without.
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

/// In some runs, processors that are slow for a while, and a burst of clients at each of them:
/// drawn by themselves, so that the rest of a seed means what it would mean without.
pub(crate) fn draw_overloads(shape: &RunShape, prng: &mut Prng) -> Vec<(Fault, Vec<Vec<Planned>>)> {
    let count = if prng.chance(1, 5) {
        1 + prng.below(3)
    } else {
        0
    };
    let weights = Weights {
        get: 2,
        put: 2,
        delete: 1,
        condition_percent: pick(prng, &[0, 20]),
        is_loyal: false,
        gives_up: true,
    };
    let draw = |_| {
        let member = prng.below(shape.members as u64) as usize;
        let at_us = prng.below(shape.chaos_us);
        let slow = Fault {
            at_us,
            length_us: 20_000 + skewed(prng, 1_000_000),
            kind: FaultKind::SlowProcessor {
                member,
                event_us: pick(prng, &[100, 2_000, 20_000]),
            },
        };
        let clients = 2 + prng.below(22);
        let burst = (0..clients).map(|client| {
            let mut todo: Vec<Planned> = (0..1 + prng.below(3))
                .map(|_| draw_operation(shape, &weights, client as usize, prng))
                .collect();
            for planned in &mut todo {
                planned.member = member;
                // They come again at once, as clients do that have given up.
                planned.think_us = prng.below(1_000);
            }
            todo[0].think_us += at_us;
            todo
        });
        let burst = burst.collect();
        (slow, burst)
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
        // Before every clock's beginning, or behind the last moment that moves a clock.
        _ => pick(prng, &[-500_000, 10_000_000]) * HOUR_MS,
    };
    if prng.chance(1, 2) { -by_ms } else { by_ms }
}

/// In some runs, clocks that are wrong by more than members believe, of one member or of all. They
/// are wrong during other faults, and when everything else is well again. Not where values end by
/// clocks: an owner forgets values that have ended by its own one.
fn draw_wrong_clocks(shape: &RunShape, prng: &mut Prng) -> (Vec<Fault>, Option<WrongClocks>) {
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

/// In some runs, an image of a disk that comes back when everything is well.
fn draw_image(shape: &RunShape, prng: &mut Prng) -> Option<PlannedImage> {
    let is_on = prng.chance(1, 8);
    is_on.then(|| PlannedImage {
        member: prng.below(shape.members as u64) as usize,
        taken_us: prng.below(shape.chaos_us),
        restarts: pick(
            prng,
            &[Restarts::None, Restarts::AllAtOnce, Restarts::OneByOne],
        ),
        how: pick(prng, &[Crash::PowerLoss, Crash::Killed]),
    })
}

/// In some runs, members that compare their copies all the time.
pub(crate) fn draw_compares(prng: &mut Prng) -> Option<(u64, u64)> {
    let is_on = prng.chance(1, 3);
    is_on.then(|| {
        let bytes_per_second = pick(prng, &[50_000, 1 << 20, 1 << 30]);
        let pause_us = pick(prng, &[20_000, 300_000, 2_000_000]);
        (bytes_per_second, pause_us)
    })
}

/// In some runs, walks over all keys or some.
pub(crate) fn draw_scans(shape: &RunShape, prng: &mut Prng) -> Vec<PlannedScan> {
    let count = if prng.chance(1, 3) {
        1 + prng.below(12)
    } else {
        0
    };
    let keys = shape.keys.len() as u64;
    let draw = |_| {
        let start = if prng.chance(1, 2) {
            0
        } else {
            prng.below(keys) as usize
        };
        PlannedScan {
            at_us: prng.below(shape.chaos_us),
            member: prng.below(shape.members as u64) as usize,
            start,
            end: prng
                .chance(1, 4)
                .then(|| start + 1 + prng.below(keys) as usize),
            is_reverse: prng.chance(1, 3),
            bytes: pick(prng, &[1, 40, 200, 1 << 16]),
            timeout_us: 1_000 + prng.below(shape.timeout_us),
        }
    };
    (0..count).map(draw).collect()
}

/// One member whose clock is set back and that ends again and again: the test of a restart's
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let drawn = |seed| format!("{:?}", RunPlan::draw(seed));
        for seed in 0..50 {
            assert_eq!(drawn(seed), drawn(seed));
        }
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn seeds_reach_every_kind_of_cluster_and_of_fault() {
        let plans: Vec<RunPlan> = (0..2_000).map(RunPlan::draw).collect();
        for members in 2..=5 {
            assert!(plans.iter().any(|plan| plan.shape.members == members));
        }
        for store in [StoreKind::Map, StoreKind::Engine] {
            assert!(plans.iter().any(|plan| plan.shape.store == store));
        }
        let kinds: BTreeSet<String> = plans
            .iter()
            .flat_map(|plan| &plan.faults)
            .map(|fault| {
                let name = format!("{:?}", fault.kind);
                name.split([' ', '{']).next().unwrap_or_default().to_owned()
            })
            .collect();
        assert_eq!(kinds.len(), 14, "{kinds:?}");
        assert!(plans.iter().any(|plan| plan.scans.len() > 4));
        let wrong: Vec<_> = plans
            .iter()
            .filter_map(|p| p.wrong_clocks.clone())
            .collect();
        assert!(wrong.iter().any(|wrong| wrong.members().count() == 1));
        assert!(wrong.iter().any(|wrong| wrong.members().count() == 3));
    }
}
