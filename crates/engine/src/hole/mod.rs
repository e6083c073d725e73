//! Holes: spans of keys of which this folder has dropped old records, until those of the other
//! owners are here.
//!
//! A damaged block may have held a delete that the other owners have purged since. No read may show
//! an older record of another table that this delete hid. The engine cannot know whether there is
//! one. So it drops all that the block may have hidden, and the node fetches it from other owners.
//!
//! ```text
//! a block is damaged, its span was repaired once, and it may hide what others have purged
//!   1  hole in the manifest           from here on, reads of the span fail as damaged
//!   2  memtables flushed, tables written anew without what the block may hide, and without it
//!   3  hole in the manifest: dropped  only now it is shown as lost: the owners are asked again
//!   4  repaired                       all that they hold in this span is durable here
//!   5  no hole in the manifest        reads answer again
//! a horizon rises before 4 ──► 1, with the new horizon
//! ```
//!
//! The second use of a hole: the repair of a block waits for owners that cannot be asked, while
//! another block of the same table is repaired. So that the table can be written anew, a hole takes
//! the place of the block. Its horizon is 0, and nothing is dropped: the old records here may be
//! needed. Once it was repaired for the first time, it begins at 1 with the horizon that there is.
//!
//! Invariants
//! 1. While a hole is in the manifest, a read of a key in it answers only with a version above
//!    `below`. No lost or dropped record there can have had such a version. All else is `Damaged`;
//!    so a crash at any point shows neither "absent" nor an older record.
//! 2. No cell is dropped before the hole is durable, and none by a job that began after
//!    `is_dropped`. Records that come into the folder after it stay.
//! 3. Each record that a purged delete may have hidden is dropped. The delete's version is not
//!    above `below`, nor is its clock field above the horizon (`AgeHorizon::covers`). So neither is
//!    that of a cell which the delete hid. Ages do not count here: a proposal that lost to it may
//!    be younger.
//! 4. A hole ends only when it was repaired after step 3, under a horizon that its drop knew. One
//!    whose block waited ends after its first repair only where there is no horizon.
//! 5. Without a horizon of a cluster, or with one copy of each record, no record is dropped. No
//!    other folder could give it back.
//! 6. A client's cell with fewer copies than the replication factor is not dropped: too few others
//!    have it. The hole stays then, and the member has to be replaced.
//!
//! Not here: the state of a drop (`state.rs`), its steps (`tend.rs`), the records that are written
//! over a hole and its repair (crate `node`, `repair/`).
//! See: docs/protocol.md, "Damage behind a horizon", docs/format/manifest.md.

pub(crate) mod state;
mod tend;

use crate::Error;
use crate::damage::DamagedSpan;
use crate::table::{self, KeySpan, TableMeta};
use dendra_base::limits::STORED_KEY_BYTES_MAX;
use dendra_base::{CellRef, Space, Version};
use std::ops::Bound;

/// Holes at a time: a folder with more damage is better replaced, and a manifest stays short.
pub(crate) const HOLES_MAX: usize = 1_024;

/// Why a read of a hole fails.
pub(crate) const WAITS: &str =
    "what this block may have hidden waits for the copies of the other owners";

/// See the module. Named by table and offset of the block that was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The table that had the block. It may be gone.
    pub table: u64,
    /// Where the block began in it, in bytes.
    pub offset: u64,
    /// The first stored key of the span.
    pub first: Vec<u8>,
    /// The last one.
    pub last: Vec<u8>,
    /// No record that was lost or dropped is newer than this version.
    pub below: Version,
    /// Up to which age others may have purged, as far as the drop knows; 0 = nothing is dropped:
    /// the block waits for its first repair.
    pub clock: u64,
    /// All is dropped that must go.
    pub is_dropped: bool,
}

impl Hole {
    /// Is it that of this block?
    pub(crate) fn is_of(&self, table: u64, offset: u64) -> bool {
        (self.table, self.offset) == (table, offset)
    }

    fn covers(&self, key: &[u8]) -> bool {
        self.first.as_slice() <= key && key <= self.last.as_slice()
    }

    /// Can records be missing that are newer than `version` of this key?
    pub(crate) fn may_lack(&self, key: &[u8], version: Version) -> bool {
        self.covers(key) && self.below.is_newer_than(version)
    }

    /// May the lost block have hidden this cell, by a record that others have purged?
    fn may_hide(&self, key: &[u8], cell: &CellRef<'_>) -> bool {
        if !self.may_lack(key, cell.version) || cell.version.hlc > self.clock {
            return false;
        }
        match key.first().copied().and_then(Space::from_byte) {
            Some(Space::User | Space::Hint) => true,
            // An older promise that comes up again is harmless unless it is of a spent age, and
            // then compactions purge it as well.
            Some(Space::Protocol) => cell.age() <= self.clock,
            // No other folder has these: a span with them is never repaired.
            _ => false,
        }
    }

    /// Does the table have to be written anew, so that no cell of the hole is in it?
    fn may_be_in(&self, table: &TableMeta) -> bool {
        let is_old = self.below.is_newer_than(table.version_min)
            && table.version_min.hlc <= self.clock
            && table.smallest <= self.last
            && self.first <= table.largest;
        table.id == self.table || is_old
    }

    /// The damaged blocks of the table in this span may be left out: the hole hides all that they
    /// can have held.
    fn stands_for(&self, table: &TableMeta, span: &KeySpan) -> bool {
        !self.is_dropped && !table.version_max.is_newer_than(self.below) && self.span().covers(span)
    }

    fn span(&self) -> KeySpan {
        KeySpan {
            first: self.first.clone(),
            last: self.last.clone(),
        }
    }

    /// Error that a read of the hole returns.
    pub(crate) fn error(&self) -> Error {
        Error::damaged(table::file_name(self.table), self.offset, WAITS)
    }

    /// Span that the caller of the engine knows, under a name of its own in each state of the hole.
    pub(crate) fn as_lost(&self) -> DamagedSpan {
        let state = [self.clock, u64::from(self.is_dropped) + 1];
        DamagedSpan {
            id: DamagedSpan::id_of(self.table, self.offset, state),
            table: self.table,
            offset: self.offset,
            reason: match self.clock {
                0 => "its records wait for the copies of the other owners".to_owned(),
                _ => "it may have hidden records that the other owners have purged".to_owned(),
            },
            first: self.first.clone(),
            last: self.last.clone(),
        }
    }

    /// Appends its binary form: see docs/format/manifest.md.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.table, self.offset, self.clock] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(u8::from(self.is_dropped));
        out.extend_from_slice(&self.below.to_bytes());
        for key in [&self.first, &self.last] {
            let len = u16::try_from(key.len()).expect("a bound is at most 1034 bytes");
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(key);
        }
    }

    /// Takes one binary form off the front of `bytes`. `None` when they cannot be one; `bytes` may
    /// then have moved.
    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Hole> {
        let mut numbers = [0; 3];
        for number in &mut numbers {
            *number = u64::from_le_bytes(take(bytes)?);
        }
        let [table, offset, clock] = numbers;
        let is_dropped = match take(bytes)? {
            [0] => false,
            [1] => true,
            [_] => return None,
        };
        let below = Version::from_bytes(take(bytes)?);
        let (first, last) = (take_bound(bytes)?, take_bound(bytes)?);
        (first <= last).then_some(Hole {
            table,
            offset,
            first,
            last,
            below,
            clock,
            is_dropped,
        })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

/// A bound may be the first key after a stored one: a byte longer than any.
fn take_bound(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let len = usize::from(u16::from_le_bytes(take(bytes)?));
    if len == 0 || len > STORED_KEY_BYTES_MAX + 1 {
        return None;
    }
    let (key, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(key.to_vec())
}

/// The hole in which a read that found no newer version than `best` would be wrong.
pub(crate) fn over<'a>(holes: &'a [Hole], key: &[u8], best: Version) -> Option<&'a Hole> {
    holes.iter().find(|hole| hole.may_lack(key, best))
}

/// The hole that a walk of keys forward meets first, from this position on, and where.
pub(crate) fn ahead<'a>(holes: &'a [Hole], from: Bound<&[u8]>) -> Option<(&'a Hole, &'a [u8])> {
    let is_ahead = |hole: &&Hole| match from {
        Bound::Included(key) => hole.last.as_slice() >= key,
        Bound::Excluded(key) => hole.last.as_slice() > key,
        Bound::Unbounded => true,
    };
    let met = holes.iter().filter(is_ahead);
    met.map(|hole| (hole, hole.first.as_slice()))
        .min_by_key(|(_, first)| *first)
}

/// Finds the hole in front of a walk backward: the key at which it meets the hole is the hole's
/// last one.
pub(crate) fn behind<'a>(holes: &'a [Hole], from: Bound<&[u8]>) -> Option<(&'a Hole, &'a [u8])> {
    let is_behind = |hole: &&Hole| match from {
        Bound::Included(key) => hole.first.as_slice() <= key,
        Bound::Excluded(key) => hole.first.as_slice() < key,
        Bound::Unbounded => true,
    };
    let met = holes.iter().filter(is_behind);
    met.map(|hole| (hole, hole.last.as_slice()))
        .max_by_key(|(_, last)| *last)
}

/// Did a read meet one of these holes, or the block that was lost there?
pub(crate) fn is_error_of(holes: &[Hole], error: &Error) -> bool {
    let Error::Damaged { file, offset, .. } = error else {
        return false;
    };
    let Some(table) = table::id_of_file_name(file) else {
        return false;
    };
    holes.iter().any(|hole| hole.is_of(table, *offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hole() -> Hole {
        Hole {
            table: 7,
            offset: 512,
            first: b"\x10b".to_vec(),
            last: b"\x10f".to_vec(),
            below: at(50),
            clock: 40,
            is_dropped: false,
        }
    }

    fn at(hlc: u64) -> Version {
        Version {
            hlc,
            ..Version::ZERO
        }
    }

    #[test]
    fn what_a_purged_delete_may_have_hidden_goes_and_nothing_else() {
        let mut hole = hole();
        let hides =
            |hole: &Hole, key: &[u8], hlc| hole.may_hide(key, &CellRef::value(key, at(hlc), b"v"));
        assert!(hides(&hole, b"\x10b", 1) && hides(&hole, b"\x10f", 40));
        assert!(!hides(&hole, b"\x10a", 1) && !hides(&hole, b"\x10f\0", 1));
        assert!(
            !hides(&hole, b"\x10c", 41),
            "a delete above it is not purged"
        );
        hole.clock = 60;
        assert!(hides(&hole, b"\x10c", 49));
        assert!(!hides(&hole, b"\x10c", 50), "the block had nothing newer");
        // Its age does not matter, but for a promise.
        hole.first = b"\x01".to_vec();
        let born = |key: &[u8], born| {
            let cell = CellRef {
                born,
                ..CellRef::value(key, at(1), b"v")
            };
            hole.may_hide(key, &cell)
        };
        assert!(born(b"\x10c", 0) && born(b"\x10c", 99) && born(b"\x03c", 99));
        assert!(born(b"\x02c", 60) && !born(b"\x02c", 61) && !born(b"\x02c", 0));
        assert!(!born(b"\x01c", 1), "no other member has notes of the node");
    }

    #[test]
    fn a_hole_stands_for_a_block_that_had_nothing_newer() {
        let mut table = TableMeta {
            id: 8,
            bytes: 1,
            digest: 1,
            records: 1,
            tombstones: 0,
            expiring: 0,
            smallest: b"\x10a".to_vec(),
            largest: b"\x10z".to_vec(),
            version_min: at(1),
            version_max: at(50),
        };
        let span = |last: &[u8]| KeySpan {
            first: b"\x10c".to_vec(),
            last: last.to_vec(),
        };
        let mut hole = hole();
        assert!(hole.stands_for(&table, &span(b"\x10f")));
        assert!(!hole.stands_for(&table, &span(b"\x10g")));
        table.version_max = at(51);
        assert!(!hole.stands_for(&table, &span(b"\x10f")));
        table.version_max = at(50);
        hole.is_dropped = true;
        assert!(
            !hole.stands_for(&table, &span(b"\x10f")),
            "records of the repair may be in it"
        );
    }

    #[test]
    fn a_hole_reads_back_and_each_of_its_states_has_a_name_of_its_own() {
        let hole = hole();
        let mut bytes = Vec::new();
        hole.encode(&mut bytes);
        assert_eq!(Hole::decode(&mut bytes.as_slice()), Some(hole.clone()));
        for at in 0..bytes.len() {
            assert_eq!(Hole::decode(&mut &bytes[..at]), None);
        }
        let dropped = Hole {
            is_dropped: true,
            ..hole.clone()
        };
        let later = Hole {
            clock: 41,
            ..dropped.clone()
        };
        let ids = [&hole, &dropped, &later].map(|hole| hole.as_lost().id);
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    }

    #[test]
    fn a_walk_meets_the_nearest_hole_in_its_direction() {
        let other = Hole {
            offset: 1_024,
            first: b"\x10k".to_vec(),
            last: b"\x10m".to_vec(),
            ..hole()
        };
        let holes = [other, hole()];
        let met = |found: Option<(&Hole, &[u8])>| found.map(|(_, at)| at.to_vec());
        let key = |key: &'static [u8]| Bound::Included(key);
        assert_eq!(met(ahead(&holes, key(b"\x10a"))), Some(b"\x10b".to_vec()));
        assert_eq!(met(ahead(&holes, key(b"\x10f"))), Some(b"\x10b".to_vec()));
        let behind_it = Bound::Excluded(&b"\x10f"[..]);
        assert_eq!(met(ahead(&holes, behind_it)), Some(b"\x10k".to_vec()));
        assert_eq!(met(ahead(&holes, key(b"\x10n"))), None);
        assert_eq!(met(behind(&holes, key(b"\x10z"))), Some(b"\x10m".to_vec()));
        assert_eq!(met(behind(&holes, key(b"\x10k"))), Some(b"\x10m".to_vec()));
        let before_it = Bound::Excluded(&b"\x10k"[..]);
        assert_eq!(met(behind(&holes, before_it)), Some(b"\x10f".to_vec()));
        assert_eq!(
            met(behind(&holes, Bound::Unbounded)),
            Some(b"\x10m".to_vec())
        );
        assert_eq!(met(behind(&holes, key(b"\x10a"))), None);
    }
}
