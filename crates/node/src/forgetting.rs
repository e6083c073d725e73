//! One member's confirmation that horizons may rise. It has no work of an earlier epoch under way,
//! and its copies are the same as those of the other members.
//!
//! ```text
//! adopt(e) ─ what is under way now? ─► all of it ended ───────────┐
//!          ─ a look at the hints ────► there was none ────────────┼─► confirmed: e, the clock
//!          ─ comparisons in e ───────► with all others, in full ──┘
//! ```
//!
//! Invariants
//! 1. Everything counts from the moment at which all loops of the member have adopted the epoch.
//!    The next epoch begins anew.
//! 2. The clock is read after all that: no ballot of an earlier epoch that was drawn here is above
//!    it.
//!
//! Not here: when an epoch raises the horizons, and their meaning (crate `ownership`,
//! `epoch/record/horizons.rs`).
//! See: docs/protocol.md, "Horizons".

use crate::desk::Desk;
use crate::ledger::Ledger;
use dendra_ownership::confirmed::{Confirmed, HeldBack};

/// The operations and orders that one loop had under way when it adopted its epoch.
#[derive(Debug, Default)]
pub(crate) struct Forgetting {
    ops: Vec<u64>,
    orders: Vec<u64>,
    is_noted: bool,
    /// The last epoch in which there was a moment without hints.
    without_hints: u64,
}

impl Forgetting {
    /// The loop adopts an epoch. Requires: the loop has ordered no work in it yet.
    pub(crate) fn adopt<T>(&mut self, desk: &Desk, ops: &Ledger<T>) {
        self.ops = ops.iter().map(|(id, _)| id).collect();
        self.orders = desk.orders.iter().map(|(ticket, _)| ticket).collect();
        self.is_noted = false;
    }

    /// Something has happened.
    pub(crate) fn look<T>(&mut self, desk: &Desk, ops: &Ledger<T>) {
        let epoch = desk.layout.epoch();
        if desk.hints.is_empty() {
            self.without_hints = epoch;
        }
        if self.is_noted {
            return;
        }
        self.ops.retain(|id| ops.find(*id).is_some());
        self.orders
            .retain(|ticket| desk.orders.find(*ticket).is_some());
        if self.ops.is_empty() && self.orders.is_empty() {
            self.is_noted = true;
            desk.fence.note_drained(desk.origin, epoch);
        }
    }

    /// Does the member confirm the epoch of this layout? `is_busy` = it loads or repairs.
    pub(crate) fn confirms(&self, desk: &Desk, is_busy: bool) -> Result<Confirmed, HeldBack> {
        let epoch = desk.layout.epoch();
        // The other loops may be behind, or ahead.
        if desk.fence.drained() != epoch || desk.fence.epoch() != epoch {
            return Err(HeldBack::UnderWay);
        }
        if self.without_hints != epoch {
            return Err(HeldBack::Hints);
        }
        if is_busy {
            return Err(HeldBack::Damage);
        }
        let mut others = desk.layout.members().filter(|peer| *peer != desk.me);
        if let Some(peer) = others.find(|peer| !desk.comparisons.is_full_in(*peer, epoch)) {
            return Err(HeldBack::Comparison(peer));
        }
        if desk.comparisons.has_strays_in(epoch) {
            return Err(HeldBack::Strays);
        }
        let clock = desk.hlc.last();
        Ok(Confirmed { epoch, clock })
    }
}
