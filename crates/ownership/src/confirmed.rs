//! A member's word that horizons may rise, or its reason against it.
//!
//! Invariants
//! 1. A floor waits for each member, and is above the clocks of all of them.
//!
//! Not here: how a member comes to its word (crate `node`, `forgetting.rs`), when an epoch raises
//! the horizons, and their meaning (`epoch/record/horizons.rs`).
//! See: docs/protocol.md, "Horizons".

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
                "it holds values that other members own since a change of the owners".fmt(f)
            }
            HeldBack::Restore => "a backup is being restored there".fmt(f),
        }
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
