//! Copies of one record under one version with different bytes: noticed, counted, and settled by a
//! rule.
//!
//! ```text
//! read      copies differ ─► all owners asked ─► choose ─► shown, and decided: PUT If-Match: the version, by this node
//!                            or a value that ends and the tombstone left of it ─► shown, and the value is written back
//! scan      pages differ  ─► choose of those ─► shown, and noticed ─► a read of all owners ─► as above
//! promises  cells differ  ─► noticed ─► a read of all owners ─► as above
//! choose    a value that ends before the tombstone that is left of one; then the cell that a majority of its owners
//!           holds; else a value before a tombstone, then the larger digest
//! ```
//!
//! No write makes two cells of one version. The causes are a member that lies, a bug, or memory
//! that flips a bit before the checksum is made. In a cluster without a secret it may also be a
//! program between two members. The right cell is not known then. But without a decision the
//! members would answer with different values for ever.
//!
//! A table makes a tombstone of a value that has ended for everybody. Where the own clock takes the
//! value for alive, that was too early: most clocks were wrong. There the right cell is known, and
//! the merge rule says so: it is the value.
//!
//! Invariants
//! 1. The rule needs only the cells and their holders. So all coordinators that see the same choose
//!    the same.
//! 2. It is settled by a conditional write, so that a newer write of a client is never undone. A
//!    value with an end is settled by the write-back of the read: its version, and so its `ETag`,
//!    stays.
//! 3. At most `DISPUTES_MAX` are remembered; one record is looked at once in `DISPUTE_PAUSE_US`.
//!
//! Not here: how copies meet (`coordinator/read.rs`, `scan.rs`, `paxos.rs`).
//! See: docs/protocol.md, section "Two copies under one version".

use crate::limits::{DISPUTE_PAUSE_US, DISPUTES_MAX};
use bytes::Bytes;
use dendra_base::Now;
use dendra_base::peer::{Condition, Operation};
use dendra_base::{Cell, Kind, Version};
use std::collections::{BTreeMap, VecDeque};

/// The index of the cell that stays. `votes` has each cell, and how many of the record's `owners`
/// owners were seen to hold it.
///
/// # Panics
/// When there is no cell.
pub(crate) fn choose<'a>(votes: impl Iterator<Item = (&'a Cell, u8)> + Clone, owners: u8) -> usize {
    let is_left_over = |cell: &Cell| {
        let mut others = votes.clone();
        others.any(|(other, _)| cell.is_what_is_left_of(other))
    };
    let rank = |(cell, holders): (&Cell, u8)| {
        let is_majority = holders > owners / 2;
        (!is_left_over(cell), is_majority, cell.id().digest)
    };
    let ranks = votes.clone().map(rank).enumerate();
    let best = ranks.max_by_key(|(_, ranked)| *ranked);
    best.expect("there are two cells at least").0
}

/// Do two cells of one version say the same at this wall clock? A table may have made a tombstone
/// of a value that has ended. If it has not ended by this clock, the two differ.
pub(crate) fn is_alike(a: &Cell, b: &Cell, wall_ms: u64) -> bool {
    let has_ended = |gone: &Cell, value: &Cell| {
        gone.is_what_is_left_of(value) && !value.as_ref().is_live(wall_ms)
    };
    a.id() == b.id() || has_ended(a, b) || has_ended(b, a)
}

/// Work for a record of which copies differ.
#[derive(Debug)]
pub(crate) enum DisputeWork {
    /// Read all its copies.
    Look(Bytes),
    /// Write this cell over all others of its version.
    Write(Bytes, Cell),
}

impl DisputeWork {
    /// Key and operation that this node begins for it.
    pub(crate) fn operation(self) -> (Bytes, Operation) {
        match self {
            DisputeWork::Look(key) => (key, Operation::Get),
            DisputeWork::Write(key, cell) => {
                let condition = Condition::Matches(cell.version);
                let operation = match cell.kind {
                    Kind::Tombstone => Operation::Delete { condition },
                    Kind::Value => Operation::Put {
                        value: cell.value,
                        expiry_ms: cell.expiry_ms,
                        condition,
                    },
                };
                (key, operation)
            }
        }
    }
}

/// When a record was last looked at, and when it was last settled.
#[derive(Clone, Copy, Debug, Default)]
struct LastLook {
    looked_us: Option<u64>,
    settled_us: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Disputes {
    so_far: u64,
    recent: BTreeMap<Bytes, LastLook>,
    todo: VecDeque<DisputeWork>,
    seen: Vec<(Bytes, Version)>,
}

impl Disputes {
    /// Two copies of `key` under `version` differ.
    pub(crate) fn noticed(&mut self, now_us: u64, key: &Bytes, version: Version) {
        self.count(key, version);
        if let Some(last) = self.last(now_us, key)
            && is_over(last.looked_us, now_us)
            && is_over(last.settled_us, now_us)
        {
            last.looked_us = Some(now_us);
            self.todo.push_back(DisputeWork::Look(key.clone()));
        }
    }

    /// A read found the tombstone of a value that lives, and writes the value back.
    pub(crate) fn restored(&mut self, key: &Bytes, version: Version) {
        self.count(key, version);
    }

    /// Notes that of the copies of `key` under one version `cell` stays.
    pub(crate) fn decided(&mut self, now_us: u64, key: &Bytes, cell: &Cell) {
        self.count(key, cell.version);
        if let Some(last) = self.last(now_us, key)
            && is_over(last.settled_us, now_us)
        {
            last.settled_us = Some(now_us);
            self.todo
                .push_back(DisputeWork::Write(key.clone(), cell.clone()));
        }
    }

    /// Leaves one record of each key, of the records of all members. They are sorted by key, and
    /// within a key by version, the newest first.
    pub(crate) fn dedup(&mut self, now: Now, records: &mut Vec<(Bytes, Cell)>, copies: u8) {
        let mut kept = 0;
        let mut at = 0;
        while at < records.len() {
            let (key, newest) = &records[at];
            let same_version =
                |(other, cell): &&(Bytes, Cell)| other == key && cell.version == newest.version;
            let rivals = records[at..].iter().take_while(same_version).count();
            let same_key = records[at..].iter().take_while(|(other, _)| other == key);
            let next = at + same_key.count();
            let cells = || records[at..at + rivals].iter().map(|(_, cell)| cell);
            let chosen = if cells().all(|cell| is_alike(cell, newest, now.wall_ms)) {
                0
            } else {
                let holders = |cell: &Cell| {
                    let same = cells().filter(|other| other.id() == cell.id()).count();
                    u8::try_from(same).unwrap_or(u8::MAX)
                };
                let chosen = choose(cells().map(|cell| (cell, holders(cell))), copies);
                let (key, version) = (key.clone(), newest.version);
                self.noticed(now.mono_us, &key, version);
                chosen
            };
            records.swap(kept, at + chosen);
            kept += 1;
            at = next;
        }
        records.truncate(kept);
    }

    fn count(&mut self, key: &Bytes, version: Version) {
        self.so_far += 1;
        if self.seen.len() < DISPUTES_MAX {
            self.seen.push((key.clone(), version));
        }
    }

    /// When `key` was looked at last; `None` when too many others are.
    fn last(&mut self, now_us: u64, key: &Bytes) -> Option<&mut LastLook> {
        if self.recent.len() >= DISPUTES_MAX && !self.recent.contains_key(key) {
            self.recent.retain(|_, last| {
                !is_over(last.looked_us, now_us) || !is_over(last.settled_us, now_us)
            });
            if self.recent.len() >= DISPUTES_MAX {
                return None;
            }
        }
        Some(self.recent.entry(key.clone()).or_default())
    }

    /// The next record to look at or to settle.
    pub(crate) fn next(&mut self) -> Option<DisputeWork> {
        self.todo.pop_front()
    }

    /// Records that were seen since the last time this was asked.
    pub(crate) fn take_seen(&mut self) -> Vec<(Bytes, Version)> {
        std::mem::take(&mut self.seen)
    }

    /// How many sightings there were.
    pub(crate) fn so_far(&self) -> u64 {
        self.so_far
    }
}

fn is_over(since_us: Option<u64>, now_us: u64) -> bool {
    since_us.is_none_or(|since_us| now_us.saturating_sub(since_us) >= DISPUTE_PAUSE_US)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::{CellRef, Key};

    const KEY: Bytes = Bytes::from_static(b"k");

    fn version(hlc: u64) -> Version {
        Version {
            hlc,
            origin: 1,
            rmw: 0,
        }
    }

    fn value(hlc: u64, value: &[u8]) -> Cell {
        CellRef::value(Key::user(&KEY).as_stored(), version(hlc), value).to_owned()
    }

    fn ends_at(expiry_ms: u64) -> Cell {
        let mut cell = value(1, b"a");
        cell.expiry_ms = Some(expiry_ms);
        cell
    }

    #[test]
    fn a_majority_decides_and_else_a_value_before_a_tombstone_then_the_digest() {
        let (a, b) = (&value(1, b"a"), &value(1, b"b"));
        let gone = &CellRef::tombstone(Key::user(&KEY).as_stored(), version(1)).to_owned();
        let ends = &ends_at(9);
        let larger = usize::from(b.id().digest > a.id().digest);
        for (votes, owners, chosen) in [
            (vec![(a, 2), (b, 1)], 3, 0),
            (vec![(a, 1), (b, 2)], 3, 1),
            (vec![(gone, 2), (b, 1)], 3, 0),
            (vec![(gone, 1), (b, 1)], 3, 1),
            (vec![(b, 2), (gone, 2)], 5, 0),
            (vec![(a, 1), (b, 1)], 3, larger),
            (vec![(a, 1), (b, 1), (gone, 1)], 3, larger),
            (vec![(gone, 2), (ends, 1)], 3, 1),
            (vec![(ends, 1), (gone, 4)], 5, 0),
        ] {
            assert_eq!(choose(votes.iter().copied(), owners), chosen, "{votes:?}");
        }
    }

    #[test]
    fn a_value_that_has_ended_and_the_tombstone_that_a_table_made_of_it_are_alike() {
        let gone = CellRef::tombstone(Key::user(&KEY).as_stored(), version(1)).to_owned();
        let fleeting = ends_at(9);
        assert!(is_alike(&gone, &fleeting, 9) && is_alike(&fleeting, &gone, 9));
        assert!(!is_alike(&gone, &fleeting, 8) && !is_alike(&fleeting, &gone, 8));
        assert!(!is_alike(&gone, &value(1, b"a"), u64::MAX));
        assert!(!is_alike(&fleeting, &ends_at(10), u64::MAX));
        assert!(!is_alike(&value(1, b"a"), &value(2, b"a"), 0));
    }

    #[test]
    fn of_each_key_the_newest_stays_and_who_differs_is_noticed() {
        let mut disputes = Disputes::default();
        let key = |name: &'static [u8]| Bytes::from_static(name);
        let mut records = vec![
            (key(b"a"), value(2, b"x")),
            (key(b"a"), value(2, b"x")),
            (key(b"a"), value(1, b"w")),
            (key(b"b"), value(3, b"x")),
            (key(b"b"), value(3, b"y")),
            (key(b"b"), value(3, b"y")),
            (key(b"c"), value(4, b"x")),
        ];
        let now = Now {
            mono_us: 0,
            wall_ms: 0,
            wall_part_us: 0,
        };
        disputes.dedup(now, &mut records, 3);
        let shown = records
            .iter()
            .map(|(key, cell)| (&key[..], &cell.value[..]));
        let wanted: [(&[u8], &[u8]); 3] = [(b"a", b"x"), (b"b", b"y"), (b"c", b"x")];
        assert_eq!(shown.collect::<Vec<_>>(), wanted);
        assert_eq!(disputes.take_seen(), [(key(b"b"), version(3))]);
        assert!(matches!(disputes.next(), Some(DisputeWork::Look(found)) if found == key(b"b")));
        assert!(disputes.next().is_none());
    }

    #[test]
    fn one_record_is_looked_at_once_in_a_while_and_many_are_counted() {
        let mut disputes = Disputes::default();
        disputes.noticed(0, &KEY, version(1));
        disputes.noticed(DISPUTE_PAUSE_US - 1, &KEY, version(1));
        assert!(disputes.next().is_some() && disputes.next().is_none());
        disputes.noticed(DISPUTE_PAUSE_US, &KEY, version(1));
        assert!(disputes.next().is_some());
        for n in 0..2 * DISPUTES_MAX {
            let key = Bytes::from(n.to_string());
            disputes.decided(DISPUTE_PAUSE_US, &key, &value(1, b"x"));
        }
        assert_eq!(disputes.so_far(), 3 + 2 * DISPUTES_MAX as u64);
        assert!(disputes.recent.len() <= DISPUTES_MAX);
        assert!(std::iter::from_fn(|| disputes.next()).count() < DISPUTES_MAX);
        assert_eq!(disputes.take_seen().len(), DISPUTES_MAX);
    }
}
