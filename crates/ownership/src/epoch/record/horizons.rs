//! Up to which age a cluster forgets: six clock values, one for each of the last epochs that raised
//! them.
//!
//! ```text
//! epoch         n        n-1       n-2       n-3       n-4       n-5
//! floors        F(n)     F(n-1)    F(n-2)    F(n-3)    F(n-4)    F(n-5)
//!               floor              spent                         purge
//! floor         every version and ballot that is drawn in this epoch is above it
//! spent         no operation lives that drew a ballot up to it, and its writes are at all owners:
//!               proposals accepted under such a ballot are not finished any more
//! purge         deletes, ended values and promises that are not younger are purged
//! ```
//!
//! An epoch raises them when each member has confirmed the one before. Such a member has no
//! operation, order or hint of an earlier epoch. It has compared all its copies with all other
//! members within the confirmed epoch. So, of a floor `F(n)`:
//!
//! * in `n` all operations end that drew a version up to it;
//! * in `n+1` no frame of theirs is taken any more, and all owners get the newest of those cells;
//! * from `n+2` on all promises show that cell. Ballots that were promised without it are not above
//!   `F(n+3)`, for that one is drawn when `n+2` is in force everywhere;
//! * in `n+5` all proposals that were accepted up to `F(n+3)` are spent. The cell may go.
//!
//! See: docs/protocol.md, "Horizons".

use dendra_base::{Cell, CellRef, Kind, Version};

/// How many floors are kept.
pub const FLOORS: usize = 6;
const SPENT: usize = 2;
const PURGE: usize = 5;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Horizons {
    /// The newest first; 0 = none yet.
    pub(super) floors: [u64; FLOORS],
}

impl Horizons {
    /// Every version and ballot that is drawn in this epoch is above it.
    pub fn floor(&self) -> u64 {
        self.floors[0]
    }

    /// A proposal that was accepted under a ballot up to it is not finished any more.
    pub fn spent(&self) -> u64 {
        self.floors[SPENT]
    }

    /// Deletes, ended values and promises up to this age go; 0 = nothing does.
    pub fn purge(&self) -> u64 {
        self.floors[PURGE]
    }

    /// The next ones. Requires: `floor` is above the present one.
    pub(super) fn risen(&self, floor: u64) -> Horizons {
        let mut floors = [floor; FLOORS];
        floors[1..].copy_from_slice(&self.floors[..FLOORS - 1]);
        Horizons { floors }
    }

    /// May this cell be gone, at this wall clock, at an owner where a record has so many copies?
    pub fn forgets(&self, cell: &CellRef<'_>, copies: u8, now_ms: u64) -> bool {
        cell.age() <= self.purge() && cell.copies >= copies && !cell.is_live(now_ms)
    }

    /// Does a delete go? That is the same at every wall clock.
    pub fn forgets_delete(&self, cell: &Cell, copies: u8) -> bool {
        cell.kind == Kind::Tombstone && self.forgets(&cell.as_ref(), copies, 0)
    }

    /// The version that stands for a missing base under a proposal: above all that may be gone, and
    /// below all that operations of this epoch draw. `None` while no record is forgotten: then it
    /// is no version at all.
    pub fn void(&self) -> Option<Version> {
        (self.purge() > 0).then(|| Version {
            hlc: self.purge() + 1,
            origin: u32::MAX,
            rmw: 0,
        })
    }
}
