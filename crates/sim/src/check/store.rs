//! The stores' content when everything is over, against the answers to clients.
//!
//! ```text
//! acknowledged by a copies, fewer than a disks lost   =>  a copy holds this version or a newer one
//! all owners are alive, hints drained, keys read      =>  every owner holds the same newest cell
//! the newest cell                                     =>  a client wrote it, and none was told that it was not applied
//! ```
//!
//! Invariants
//! 1. Stores are looked at directly, past every protocol.
//!
//! Not here: the reads of clients in the end, which are part of the history.

use super::{Disks, Rule, Violation};
use crate::history::{ClientEnd, ClientOp, ValueId};
use dendra_base::Version;

/// The cell of one owner of a key in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerCopy {
    /// The disk was lost for good, or the member does not run.
    Gone,
    /// Never written, or no longer known.
    Nothing,
    /// The bytes do not match their checksum.
    Damaged,
    /// A cell: version and value, `None` for a tombstone.
    Cell(Version, Option<ValueId>),
}

impl OwnerCopy {
    /// The version, where there is one to be known.
    pub fn version(self) -> Option<Version> {
        match self {
            OwnerCopy::Cell(version, _) => Some(version),
            _ => None,
        }
    }
}

/// Checks one key: the copies of its owners in the ring's order, and the operations on it.
pub fn check_key(
    key: usize,
    copies: &[OwnerCopy],
    ops: &[&ClientOp],
    disks: Disks,
) -> Vec<Violation> {
    check_key_above(0, key, copies, ops, disks)
}

/// Checks a key where deletes up to the clock value `purge` may be gone. Then a write that is not
/// younger need not have left a trace. The last reads tell whether its value should be there.
pub fn check_key_above(
    purge: u64,
    key: usize,
    copies: &[OwnerCopy],
    ops: &[&ClientOp],
    disks: Disks,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    let newest = copies.iter().filter_map(|copy| copy.version()).max();
    for op in ops {
        let ClientEnd::Written(version) = op.end else {
            continue;
        };
        if version.hlc <= purge {
            continue;
        }
        let asked = &copies[..usize::from(op.from).min(copies.len())];
        let lost = asked
            .iter()
            .filter(|c| matches!(c, OwnerCopy::Gone | OwnerCopy::Damaged))
            .count();
        // Damage that was mended is not seen any more.
        let lost = match disks {
            Disks::Whole => lost,
            Disks::Damaged => lost.max(1),
        };
        if lost < usize::from(op.ack) && newest.is_none_or(|newest| newest < version) {
            let what = format!("key {key}: {op:?} is not there: {copies:?}");
            violations.push(Violation::new(Rule::Lost, what));
        }
    }
    let values = copies.iter().filter_map(|copy| match copy {
        OwnerCopy::Cell(version, Some(value)) => Some((*version, *value)),
        _ => None,
    });
    for (version, value) in values {
        let writer = ops.iter().find(|op| op.wish.leaves() == Some(value));
        match writer.map(|op| op.end) {
            None => {
                let what = format!("key {key}: no client wrote value {value} under {version}");
                violations.push(Violation::new(Rule::WrongValue, what));
            }
            Some(ClientEnd::NotApplied | ClientEnd::Refused { .. }) => {
                let what = format!("key {key}: {writer:?} is stored under {version}");
                violations.push(Violation::new(Rule::NotAppliedSeen, what));
            }
            Some(_) => {}
        }
    }
    violations
}

/// The copies as they were before some owners purged the newest delete, and others did not yet.
/// `purged` names the version that each owner may have purged. An owner without a record counts as
/// one with that delete, if the others hold no newer cell.
pub fn before_purges(copies: &mut [OwnerCopy], purged: &[Option<Version>]) {
    let newest = copies.iter().filter_map(|copy| match copy {
        OwnerCopy::Cell(version, value) => Some((*version, *value)),
        _ => None,
    });
    let Some((delete, None)) = newest.max() else {
        return;
    };
    for (copy, least) in copies.iter_mut().zip(purged) {
        if *copy == OwnerCopy::Nothing && *least == Some(delete) {
            *copy = OwnerCopy::Cell(delete, None);
        }
    }
}

/// Do all living owners hold the same cell?
pub fn check_convergence(key: usize, copies: &[OwnerCopy]) -> Option<Violation> {
    let mut living = copies.iter().filter(|copy| **copy != OwnerCopy::Gone);
    let first = living.next()?;
    let is_same = living.all(|copy| copy == first);
    (!is_same).then(|| Violation::new(Rule::Diverged, format!("key {key}: {copies:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(hlc: u64) -> Version {
        Version {
            hlc,
            origin: 1,
            rmw: 0,
        }
    }

    /// Owners purge a delete by the age that each has it with, and these differ.
    #[test]
    fn an_owner_that_may_have_purged_the_newest_delete_counts_as_one_with_it() {
        let at = |hlc, value| OwnerCopy::Cell(version(hlc), value);
        let are_alike = |copies: &[OwnerCopy], purged: Option<u64>| {
            let mut copies = copies.to_vec();
            let purged = vec![purged.map(version); copies.len()];
            before_purges(&mut copies, &purged);
            check_convergence(0, &copies).is_none()
        };
        let (delete, newer) = (at(5, None), at(6, Some(1)));
        assert!(are_alike(&[delete, OwnerCopy::Nothing], Some(5)));
        assert!(!are_alike(&[delete, OwnerCopy::Nothing], None));
        assert!(!are_alike(&[delete, OwnerCopy::Nothing], Some(4)));
        assert!(!are_alike(&[delete, OwnerCopy::Damaged], Some(5)));
        assert!(!are_alike(&[newer, OwnerCopy::Nothing], Some(5)));
        assert!(!are_alike(&[newer, delete, OwnerCopy::Nothing], Some(5)));
        assert!(!are_alike(&[delete, at(4, Some(1))], Some(5)));
    }
}
