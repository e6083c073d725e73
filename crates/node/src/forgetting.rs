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
//! Not here: when an epoch raises the horizons, and their meaning (`topology/record/horizons.rs`).
//! See: docs/protocol.md, "Horizons".

use crate::desk::Desk;
use crate::ledger::Ledger;
use crate::member::MemberIndex;
use std::fmt;

/// A member's confirmation: it has no work of an older epoch under way, and its copies are the same
/// as those of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The epoch.
    pub epoch: u64,
    /// Hybrid clock of the member since.
    pub clock: u64,
}

/// The floor of the epoch after `epoch`, which has `floor` as its own; `None` until each of its
/// members has confirmed `epoch`. `members` has an entry for every member, also for one that is
/// away.
pub fn next_floor(
    epoch: u64,
    floor: u64,
    members: impl IntoIterator<Item = Option<Confirmed>>,
) -> Option<u64> {
    let mut next = floor + 1;
    for confirmed in members {
        let confirmed = confirmed.filter(|confirmed| confirmed.epoch == epoch)?;
        next = next.max(confirmed.clock);
    }
    Some(next)
}

/// The code of [`HeldBack::Damage`].
pub(crate) const DAMAGE_CODE: &str = "damage";

/// Why a member does not confirm an epoch yet. `M` names members: by their places in this process,
/// or by their numbers where another process reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBack<M = MemberIndex> {
    /// A loop has something of an earlier epoch under way.
    UnderWay,
    /// Writes are kept for other members.
    Hints,
    /// Records are loaded, or a block is damaged.
    Damage,
    /// No full comparison with this member ended in this epoch.
    Comparison(M),
    /// Values are here that this member is no owner of.
    Strays,
    /// A backup is being restored here: older records than a delete of now may still come.
    Restore,
}

impl<M> HeldBack<M> {
    /// Gives the member another name; `None` when it has none.
    pub fn rename<N>(self, name: impl FnOnce(M) -> Option<N>) -> Option<HeldBack<N>> {
        Some(match self {
            HeldBack::UnderWay => HeldBack::UnderWay,
            HeldBack::Hints => HeldBack::Hints,
            HeldBack::Damage => HeldBack::Damage,
            HeldBack::Comparison(peer) => HeldBack::Comparison(name(peer)?),
            HeldBack::Strays => HeldBack::Strays,
            HeldBack::Restore => HeldBack::Restore,
        })
    }

    /// One word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            HeldBack::UnderWay => "under-way",
            HeldBack::Hints => "hints",
            HeldBack::Damage => DAMAGE_CODE,
            HeldBack::Comparison(_) => "comparing",
            HeldBack::Strays => "strays",
            HeldBack::Restore => "restoring",
        }
    }
}

impl<M: fmt::Display> fmt::Display for HeldBack<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeldBack::UnderWay => "operations of an earlier epoch are under way there".fmt(f),
            HeldBack::Hints => "it keeps writes for a member that does not take them".fmt(f),
            HeldBack::Damage => "it loads records, or repairs damaged ones".fmt(f),
            HeldBack::Comparison(peer) => write!(
                f,
                "no full comparison of it with {peer} has ended in this epoch"
            ),
            HeldBack::Strays => {
                "it holds values that other members own since a change of the owners, or, \
                 before version 7 of the cluster, with more copies than the replication factor"
                    .fmt(f)
            }
            HeldBack::Restore => "a backup is being restored there".fmt(f),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_waits_for_each_member_and_is_above_all_their_clocks() {
        let of = |epoch, clock| Some(Confirmed { epoch, clock });
        assert_eq!(next_floor(7, 50, [of(7, 60), None]), None, "one is away");
        assert_eq!(
            next_floor(7, 50, [of(7, 60), of(6, 90)]),
            None,
            "one is behind"
        );
        assert_eq!(next_floor(7, 50, [of(7, 60), of(7, 90)]), Some(90));
        assert_eq!(
            next_floor(7, 99, [of(7, 60), of(7, 90)]),
            Some(100),
            "it rises"
        );
    }
}
