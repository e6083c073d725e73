//! The front door's decisions: gates that count work under way, and the effect of the engine's
//! pressure on a new request.
//!
//! ```text
//! offer ─► Gate (requests, body bytes): room? ──no──► refused, counted
//!             │ yes: a permit, given back once, when the work ends
//!             ▼
//!          admit(pressure, class)          level   0 ······· 0.5 ············ 1.0     stop
//!             read                                 granted                          granted
//!             scan                                 granted │ delayed ╱           delayed
//!             write                                granted │ delayed ╱ 100 ms    refused; the
//!             delete                               granted │ delayed ╱ 100 ms    door may wait;
//!                                                                                granted at DiskFull
//!                                                                                while memory lasts
//! ```
//!
//! Invariants
//! 1. The costs of a gate's permits together never exceed its limit, also when loops lease from it.
//! 2. A permit's cost comes back exactly once, when it is dropped.
//! 3. No request waits for a gate: there is room, or a refusal.
//! 4. The delay grows without a jump from nothing to its maximum: no cliff before the stop. It
//!    follows the bytes of a write (`sizes.rs`), as the order of those that wait does (`line.rs`).
//!
//! Not here: waiting out a delay, status codes, the bounded queue of the store pool (crate
//! `server`); how pressure is computed (crate `engine`).
//! See: docs/overload.md.

pub mod line;
mod sizes;
pub mod turns;

pub use line::{WriteLine, WriteRoom, WriteSize};
pub use sizes::WriteSizes;
pub use turns::{LineOf, LineTurns};

use crate::limits::{
    DELAY_LEVEL_MIN, DELAY_US_MAX, LEASES_PER_LOOP, RETRY_AFTER_S_BUSY, RETRY_AFTER_S_DISK_FULL,
};
use dendra_base::{Pressure, Stop};
use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// Room for so much at once, shared by all loops of a node.
#[derive(Debug)]
pub struct Gate {
    limit: u64,
    used: AtomicU64,
}

/// Room in a [`Gate`], given back when dropped. `G` is the holder's reference to the gate: `&Gate`
/// or `Arc<Gate>`.
#[derive(Debug)]
#[must_use = "a permit that is dropped gives its room back at once"]
pub struct Permit<G: Deref<Target = Gate>> {
    gate: G,
    cost: u64,
}

impl Gate {
    /// A gate with room for `limit` units (requests, bytes).
    pub const fn new(limit: u64) -> Gate {
        Gate {
            limit,
            used: AtomicU64::new(0),
        }
    }

    /// Asks for room for `cost` units: a permit, or nothing.
    pub fn offer<G: Deref<Target = Gate>>(gate: G, cost: u64) -> Option<Permit<G>> {
        gate.take(cost).then(|| Permit { gate, cost })
    }

    /// Units that may be under way at once.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Units under way, or leased by loops for requests to come.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Relaxed: the counter guards no other memory, and the exchange itself is indivisible.
    fn take(&self, cost: u64) -> bool {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let Some(after) = used.checked_add(cost).filter(|after| *after <= self.limit) else {
                return false;
            };
            match self
                .used
                .compare_exchange_weak(used, after, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(newer) => used = newer,
            }
        }
    }

    fn give_back(&self, cost: u64) {
        let before = self.used.fetch_sub(cost, Ordering::Relaxed);
        debug_assert!(before >= cost, "more room came back than was taken");
    }
}

impl<G: Deref<Target = Gate>> Drop for Permit<G> {
    fn drop(&mut self) {
        self.gate.give_back(self.cost);
    }
}

/// One loop's door in a node's gate: leases room in pieces, so that the usual request costs two
/// plain additions and no shared cache line.
///
/// `G` is `&Gate` or `Arc<Gate>`. Not `Sync`: it belongs to one thread.
#[derive(Debug)]
pub struct LocalGate<G: Deref<Target = Gate>> {
    shared: G,
    /// Leased at once; 0 when the limit is too small to be leased in pieces.
    piece: u64,
    leased: Cell<u64>,
    used: Cell<u64>,
}

/// Room in a [`LocalGate`], given back when dropped. `L` is `&LocalGate` or `Rc<LocalGate>`.
#[derive(Debug)]
#[must_use = "a permit that is dropped gives its room back at once"]
pub struct LocalPermit<L, G>
where
    G: Deref<Target = Gate>,
    L: Deref<Target = LocalGate<G>>,
{
    gate: L,
    cost: u64,
}

impl<G: Deref<Target = Gate>> LocalGate<G> {
    /// The door of one of `loops` loops.
    pub fn new(shared: G, loops: usize) -> LocalGate<G> {
        let piece = shared.limit / LEASES_PER_LOOP / (loops.max(1) as u64);
        LocalGate {
            shared,
            piece,
            leased: Cell::new(0),
            used: Cell::new(0),
        }
    }

    /// Asks for room for `cost` units: a permit, or nothing.
    pub fn offer<L: Deref<Target = LocalGate<G>>>(gate: L, cost: u64) -> Option<LocalPermit<L, G>> {
        gate.take(cost).then(|| LocalPermit { gate, cost })
    }

    /// Units that this loop has leased and nothing uses.
    pub fn idle(&self) -> u64 {
        self.leased.get() - self.used.get()
    }

    /// Units that this loop could use now.
    pub fn free(&self) -> u64 {
        self.idle() + self.shared.limit.saturating_sub(self.shared.used())
    }

    /// Units under way in this loop.
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    /// Gives leased room back that nothing here is under way in: others wait for it.
    pub fn release_idle(&self) {
        let idle = self.idle();
        self.leased.set(self.used.get());
        self.shared.give_back(idle);
    }

    fn take(&self, cost: u64) -> bool {
        let idle = self.idle();
        if cost > idle {
            let missing = cost - idle;
            let lease = missing.max(self.piece);
            let got = if self.shared.take(lease) {
                lease
            } else if lease > missing && self.shared.take(missing) {
                missing
            } else {
                return false;
            };
            self.leased.set(self.leased.get() + got);
        }
        self.used.set(self.used.get() + cost);
        true
    }

    fn give_back(&self, cost: u64) {
        self.used.set(self.used.get() - cost);
        let idle = self.idle();
        if idle > 2 * self.piece {
            let surplus = idle - self.piece;
            self.leased.set(self.leased.get() - surplus);
            self.shared.give_back(surplus);
        }
    }
}

impl<G: Deref<Target = Gate>> Drop for LocalGate<G> {
    fn drop(&mut self) {
        self.shared.give_back(self.leased.get());
    }
}

impl<L, G> LocalPermit<L, G>
where
    G: Deref<Target = Gate>,
    L: Deref<Target = LocalGate<G>>,
{
    /// Gives back the part beyond `cost`.
    pub fn keep(&mut self, cost: u64) {
        let surplus = self.cost.saturating_sub(cost);
        self.cost -= surplus;
        self.gate.give_back(surplus);
    }
}

impl<L, G> Drop for LocalPermit<L, G>
where
    G: Deref<Target = Gate>,
    L: Deref<Target = LocalGate<G>>,
{
    fn drop(&mut self) {
        self.gate.give_back(self.cost);
    }
}

/// The kinds of requests that the door tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// One key's value.
    Read,
    /// The next chunk of a scan.
    Scan,
    /// A deletion: takes little room, and makes room in the end.
    Delete,
    /// A value.
    Write,
}

/// The answer to a request that wants to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The request enters.
    Granted,
    /// The request enters after a pause.
    Delayed {
        /// Microseconds, at most `DELAY_US_MAX`.
        us: u64,
    },
    /// The request does not enter; nothing was changed.
    Refused {
        /// Why, and when the client may try again.
        refusal: RefusedBy,
    },
}

/// The part that refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// The gate of requests under way is full.
    Requests,
    /// The gate of body bytes under way is full.
    BodyBytes,
    /// Flush or compaction is behind.
    EngineBehind,
    /// The disk is full (507, not 503).
    DiskFull,
}

impl RefusedBy {
    /// Name of the reason, as in metrics and error sentences.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusedBy::Requests => "requests",
            RefusedBy::BodyBytes => "body-bytes",
            RefusedBy::EngineBehind => "engine-behind",
            RefusedBy::DiskFull => "disk-full",
        }
    }

    /// The `Retry-After` for the client, in seconds.
    pub fn retry_after_s(self) -> u32 {
        match self {
            RefusedBy::Requests | RefusedBy::BodyBytes | RefusedBy::EngineBehind => {
                RETRY_AFTER_S_BUSY
            }
            RefusedBy::DiskFull => RETRY_AFTER_S_DISK_FULL,
        }
    }
}

/// May a request of `class` enter under this pressure?
pub fn admit(pressure: Pressure, class: Class) -> Admission {
    let delayed = match delay_us(pressure.level) {
        0 => Admission::Granted,
        us => Admission::Delayed { us },
    };
    let refused = |refusal| Admission::Refused { refusal };
    match (class, pressure.stop) {
        (Class::Read, _) => Admission::Granted,
        (Class::Delete, Some(Stop::DiskFull)) => Admission::Granted,
        (Class::Write, Some(Stop::DiskFull))
        | (Class::Write | Class::Delete, Some(Stop::DiskAndMemoryFull)) => {
            refused(RefusedBy::DiskFull)
        }
        (Class::Write | Class::Delete, Some(Stop::MemtablesFull | Stop::CompactionBehind)) => {
            refused(RefusedBy::EngineBehind)
        }
        (Class::Write | Class::Delete, None) | (Class::Scan, _) => delayed,
    }
}

/// The pause at a level, in microseconds: quadratic, so that it starts gently.
fn delay_us(level: f64) -> u64 {
    // A level that is not a number is a bug in its computation: be careful rather than careless.
    let level = if level.is_nan() { 1.0 } else { level };
    let over = ((level - DELAY_LEVEL_MIN) / (1.0 - DELAY_LEVEL_MIN)).clamp(0.0, 1.0);
    (DELAY_US_MAX as f64 * over * over) as u64
}

#[cfg(test)]
mod tests;
