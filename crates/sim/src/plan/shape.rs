//! The options of one run: how large the cluster is, its store, its clocks, delays and rates.
//!
//! Invariants
//! 1. Each draw takes from the stream that it is given, in a fixed order: a seed keeps its shape.
//!
//! Not here: the wishes of clients (`wishes.rs`), faults (`faults.rs`).
//! See: docs/verification.md.

use crate::changes::MACHINES_MAX;
use dendra_base::Prng;

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
    /// The unlucky member: its disk alone may fail for good.
    pub unlucky: usize,
    /// When the weather gets calm at the latest.
    pub chaos_us: u64,
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
        let draw_class = |stream: &mut Prng| match stream.below(10) {
            0..2 if is_mixed => KeyClass::Weak,
            2 if is_mixed => KeyClass::Fleeting,
            _ => KeyClass::Strong,
        };
        let skew = pick(prng, &[0, 1, 20, 400, 4_000]);
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

impl RunShape {
    /// Draws other sizes; a size that is alone is not drawn.
    pub(crate) fn resize(&mut self, members: &[usize], copies: &[usize], prng: &mut Prng) {
        self.members = pick(prng, members);
        let copies = match copies {
            [copies] => *copies,
            _ => pick(prng, copies),
        };
        self.copies = copies.min(self.members);
        self.unlucky = 0;
    }

    /// Draws clocks for all machines that may ever join, as wrong as those before.
    pub(crate) fn draw_clocks(&mut self, prng: &mut Prng) {
        let most = self.skew_ms.iter().map(|ms| ms.unsigned_abs()).max();
        let most = most.unwrap_or(0);
        self.skew_ms = (0..MACHINES_MAX).map(|_| signed(prng, most)).collect();
        self.drift_ppm = (0..MACHINES_MAX).map(|_| signed(prng, 500)).collect();
    }

    /// One of the members.
    pub(crate) fn any_member(&self, prng: &mut Prng) -> usize {
        prng.below(self.members as u64) as usize
    }
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

/// Such a number of either sign.
fn signed(prng: &mut Prng, most: u64) -> i64 {
    let size = skewed(prng, most) as i64;
    if prng.chance(1, 2) { -size } else { size }
}
