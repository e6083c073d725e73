//! A look at a part of a space: its records, range by range, as fingerprints.
//!
//! ```text
//! Survey ─ begin ─► Surveyor ─ visit(key, cell) … ─ finish ─► Surveyed: range, fingerprint; range, fingerprint; …
//!   Grain(n)    ranges of n records: the asker finds bounds
//!   Ends(…)     the ranges of the asker: its peer looks at the same ones
//! fingerprint   SipHash-1-3 over (key, version, digest) of each shared record, or (key, promise)
//! ```
//!
//! Invariants
//! 1. Two members that hold the same shared records make the same fingerprint. A tombstone that a
//!    table has made of an expired value does not change it.
//! 2. Each comparison has a salt of its own: two copies that differ do not look equal for ever.
//! 3. A look ends at about `bytes_max` of keys and cells. With bounds of the asker, the range in
//!    which it ends has no fingerprint.
//! 4. A value that fails its checksum makes the whole look `Damaged`.
//!
//! Not here: reading (the world drives a `Surveyor` with a scan of its store).
//! See: docs/protocol.md, "Comparing copies".

use super::shared::SharedRecords;
use crate::limits::COMPARE_RANGE_BYTES;
use crate::replica::record::Record;
use bytes::Bytes;
use dendra_base::peer::COMPARE_RANGES_MAX;
use dendra_base::{CellRef, Key, Space};
use dendra_ownership::ring::Partition;
use siphasher::sip::SipHasher13;
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::Arc;

/// Where ranges end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangesBy {
    /// After so many records, or about `COMPARE_RANGE_BYTES` of them.
    Grain(u32),
    /// Here, each exclusive; only the last one may be the end of the space.
    Ends(Vec<Option<Bytes>>),
}

/// The part of a space to look at, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// First stored key.
    pub start: Key,
    /// Stored key, exclusive; `None` = to the end of the space.
    pub end: Option<Key>,
    /// The records to look at: those that the two members share.
    pub shared: Arc<SharedRecords>,
    /// The salt of fingerprints, and the time by which values end.
    pub now_ms: u64,
    /// Where ranges end.
    pub by: RangesBy,
    /// About how many bytes of keys and cells to look at.
    pub bytes_max: u64,
}

/// One range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyRange {
    /// Raw key, exclusive; `None` = the end of the space.
    pub end: Option<Bytes>,
    /// Fingerprint of the shared records.
    pub print: u64,
    /// How many those are.
    pub records: u32,
}

/// The ranges of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surveyed {
    /// Ranges, one after the other.
    pub ranges: Vec<SurveyRange>,
    /// Is there more than `bytes_max` in the range after them?
    pub is_cut: bool,
    /// Keys and cells that were looked at.
    pub bytes: u64,
    /// Shared records that wait for a horizon: deletes, ended values, records of promises. Not
    /// those that no horizon takes.
    pub waiting: u64,
    /// The partitions of strays: values that a member holds and is no owner of. They hold horizons
    /// back, because a delete above them may exist that this member never gets.
    pub strays: BTreeSet<Partition>,
}

/// Does a look go on?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surveying {
    /// With the next record.
    Continues,
    /// The look has seen enough.
    Enough,
}

impl Survey {
    /// Begins it.
    pub fn begin(&self) -> Surveyor<'_> {
        Surveyor {
            look: self,
            space: self.start.as_stored()[0],
            hasher: self.hasher(),
            records: 0,
            range_bytes: 0,
            last_key: Vec::new(),
            is_over: false,
            is_damaged: false,
            seen: Surveyed::default(),
        }
    }

    fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.now_ms, 0x636f_6d70_6172_6573)
    }
}

/// A look under way.
#[derive(Debug)]
pub struct Surveyor<'a> {
    look: &'a Survey,
    space: u8,
    hasher: SipHasher13,
    /// Shared records of the range under way.
    records: u32,
    /// Keys and cells of the range under way.
    range_bytes: u64,
    /// Raw key that was visited last.
    last_key: Vec<u8>,
    is_over: bool,
    is_damaged: bool,
    /// The ranges before the one under way, and the sums of all of them.
    seen: Surveyed,
}

impl Surveyor<'_> {
    /// The next record of the store, tombstones and expired values included.
    pub fn visit(&mut self, stored_key: &[u8], cell: CellRef<'_>) -> Surveying {
        if self.is_over {
            return Surveying::Enough;
        }
        let raw = &stored_key[1..];
        let bytes = (stored_key.len() + cell.encoded_len()) as u64;
        match &self.look.by {
            RangesBy::Grain(grain) => {
                if self.is_full(*grain) {
                    let end = separator(&self.last_key, raw);
                    self.close(Some(end));
                }
            }
            RangesBy::Ends(ends) => {
                while let Some(end) = ends.get(self.seen.ranges.len())
                    && end.as_ref().is_some_and(|end| raw >= &end[..])
                {
                    self.close(end.clone());
                }
                if self.seen.bytes + bytes > self.look.bytes_max && self.seen.bytes > 0 {
                    self.seen.is_cut = true;
                    return self.end();
                }
            }
        }
        self.seen.bytes += bytes;
        self.range_bytes += bytes;
        let waits = if self.space == Space::Protocol.byte() {
            self.look.shared.will_forget_record(&cell)
        } else {
            self.look.shared.will_forget(&cell, self.look.now_ms)
        };
        if waits {
            self.seen.waiting += bytes;
        }
        if !self.add(stored_key, cell) {
            self.is_damaged = true;
            return self.end();
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(raw);
        if let RangesBy::Grain(grain) = self.look.by {
            let is_last = self.seen.ranges.len() + 1 == COMPARE_RANGES_MAX && self.is_full(grain);
            if is_last || self.seen.bytes >= self.look.bytes_max {
                let mut behind = self.last_key.clone();
                behind.push(0);
                self.close(Some(behind.into()));
                return self.end();
            }
        }
        Surveying::Continues
    }

    /// The scan is over: of the whole part, or because the look had seen enough.
    ///
    /// `None` when a value fails its checksum.
    pub fn finish(mut self) -> Option<Surveyed> {
        if self.is_damaged {
            return None;
        }
        if !self.is_over {
            match &self.look.by {
                RangesBy::Grain(_) => {
                    let end = self.look.end.as_ref();
                    self.close(end.map(|end| Bytes::copy_from_slice(end.raw())));
                }
                RangesBy::Ends(ends) => {
                    while let Some(end) = ends.get(self.seen.ranges.len()) {
                        self.close(end.clone());
                    }
                }
            }
        }
        Some(self.seen)
    }

    fn is_full(&self, grain: u32) -> bool {
        self.records >= grain || self.range_bytes >= COMPARE_RANGE_BYTES
    }

    fn end(&mut self) -> Surveying {
        self.is_over = true;
        Surveying::Enough
    }

    fn close(&mut self, end: Option<Bytes>) {
        let print = self.hasher.finish();
        self.hasher = self.look.hasher();
        let records = std::mem::take(&mut self.records);
        self.range_bytes = 0;
        self.seen.ranges.push(SurveyRange {
            end,
            print,
            records,
        });
    }

    /// Does the record count? Not if one of the two members may have purged it. Notes strays on the
    /// way.
    fn wants(&mut self, raw: &[u8], cell: &CellRef<'_>) -> bool {
        let (shared, now_ms) = (&self.look.shared, self.look.now_ms);
        if self.space == Space::Protocol.byte() {
            return !shared.forgets_record(cell);
        }
        self.seen.strays.extend(shared.stray(raw, cell));
        !shared.forgets(cell, now_ms)
    }

    /// Adds a record to the fingerprint; `false` when it is damaged.
    fn add(&mut self, stored_key: &[u8], cell: CellRef<'_>) -> bool {
        if !cell.is_intact(stored_key) {
            return false;
        }
        let raw = &stored_key[1..];
        if !self.wants(raw, &cell) {
            return true;
        }
        let mut entry = [0; 26];
        entry[24..].copy_from_slice(&(raw.len() as u16).to_le_bytes());
        if self.space == Space::Protocol.byte() {
            if !self.look.shared.has_promise(raw) {
                return true;
            }
            let Some(record) = Record::decode(cell.value) else {
                return false;
            };
            entry[..8].copy_from_slice(&record.promised.hlc.to_be_bytes());
            entry[8..12].copy_from_slice(&record.promised.origin.to_be_bytes());
        } else {
            if !self.look.shared.has(raw, self.look.shared.copies_of(&cell)) {
                return true;
            }
            let id = cell.id();
            entry[..16].copy_from_slice(&id.version.to_bytes());
            // An expired value counts like a tombstone.
            let digest = if cell.is_live(self.look.now_ms) {
                id.digest
            } else {
                0
            };
            entry[16..24].copy_from_slice(&digest.to_be_bytes());
        }
        self.hasher.write(&entry);
        self.hasher.write(raw);
        self.records += 1;
        true
    }
}

/// The shortest key above `below` and not above `above`. Requires: `below < above`.
fn separator(below: &[u8], above: &[u8]) -> Bytes {
    let alike = below.iter().zip(above).take_while(|(a, b)| a == b).count();
    Bytes::copy_from_slice(&above[..above.len().min(alike + 1)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::{Cell, Version};
    use dendra_ownership::layout::Layout;
    use dendra_ownership::member::MemberIndex;
    use dendra_ownership::topology::{Member, Topology};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn shared(members: usize, copies: u8, a: u8, b: u8) -> Arc<SharedRecords> {
        let listed = (0..members).map(|at| Member::new(&format!("http://10.0.0.{at}:8080")));
        let listed: Vec<Member> = listed.collect::<Result<_, _>>().expect("addresses");
        let topology = Topology::new("t", listed, copies).expect("small");
        let layout = Layout::of_list(&Arc::new(topology));
        Arc::new(SharedRecords::of(&layout, MemberIndex(a), MemberIndex(b)))
    }

    fn cell(key: &Key, hlc: u64) -> Cell {
        let version = Version {
            hlc,
            origin: 1,
            rmw: 0,
        };
        let mut cell = CellRef::value(key.as_stored(), version, b"v").to_owned();
        cell.copies = 3;
        cell
    }

    fn run(look: &Survey, store: &BTreeMap<Key, Cell>) -> Surveyed {
        let mut looker = look.begin();
        let end = look.end.clone();
        for (key, cell) in store.range(look.start.clone()..) {
            if end.as_ref().is_some_and(|end| key >= end)
                || looker.visit(key.as_stored(), cell.as_ref()) == Surveying::Enough
            {
                break;
            }
        }
        looker.finish().expect("nothing is damaged")
    }

    fn store(keys: &[(u8, u8)]) -> BTreeMap<Key, Cell> {
        let entry = |(key, hlc): &(u8, u8)| {
            let key = Key::user(&[*key]);
            let cell = cell(&key, u64::from(*hlc));
            (key, cell)
        };
        keys.iter().map(entry).collect()
    }

    fn look(by: RangesBy, bytes_max: u64) -> Survey {
        Survey {
            start: Key::user(b""),
            end: None,
            shared: shared(3, 3, 0, 1),
            now_ms: 7,
            by,
            bytes_max,
        }
    }

    proptest! {
        #[test]
        fn both_sides_agree_on_equal_ranges_and_on_no_other(
            own in prop::collection::vec((any::<u8>(), 0u8..3), 0..40),
            theirs in prop::collection::vec((any::<u8>(), 0u8..3), 0..40),
            grain in 1u32..6,
            bytes_max in 1u64..900,
        ) {
            let (own, theirs) = (store(&own), store(&theirs));
            let asked = run(&look(RangesBy::Grain(grain), bytes_max), &own);
            prop_assert!(!asked.ranges.is_empty() && !asked.is_cut);
            let ends = asked.ranges.iter().map(|range| range.end.clone()).collect();
            let mut other = look(RangesBy::Ends(ends), u64::MAX);
            let last = asked.ranges.last().and_then(|last| last.end.as_ref());
            other.end = last.map(|end| Key::user(end));
            let answered = run(&other, &theirs);
            prop_assert_eq!(answered.ranges.len(), asked.ranges.len());
            let mut start = Bytes::new();
            for (a, b) in asked.ranges.iter().zip(&answered.ranges) {
                let is_in = |key: &&Key| key.raw() >= &start[..]
                    && a.end.as_ref().is_none_or(|end| key.raw() < &end[..]);
                let of = |store: &BTreeMap<Key, Cell>| -> Vec<(Key, u64)> {
                    store.iter().filter(|(key, _)| is_in(key))
                        .map(|(key, cell)| (key.clone(), cell.version.hlc)).collect()
                };
                prop_assert_eq!(a.print == b.print, of(&own) == of(&theirs));
                prop_assert_eq!(&a.end, &b.end);
                start = a.end.clone().unwrap_or_default();
            }
        }

        #[test]
        fn a_separator_lies_behind_one_key_and_not_behind_the_other(
            a in prop::collection::vec(0u8..3, 0..6), b in prop::collection::vec(0u8..3, 0..6),
        ) {
            prop_assume!(a < b);
            let between = separator(&a, &b);
            prop_assert!(a < between.to_vec() && between.to_vec() <= b);
        }
    }

    #[test]
    fn an_expired_value_looks_like_the_tombstone_that_a_table_makes_of_it() {
        let key = Key::user(b"k");
        let mut ended = cell(&key, 5);
        ended.expiry_ms = Some(7);
        let mut gone = CellRef::tombstone(key.as_stored(), ended.version).to_owned();
        gone.copies = 3;
        let print = |cell: &Cell| {
            let store = BTreeMap::from([(key.clone(), cell.clone())]);
            run(&look(RangesBy::Grain(9), 1_000), &store).ranges[0].print
        };
        assert_eq!(print(&ended), print(&gone));
        ended.expiry_ms = Some(8);
        assert_ne!(print(&ended), print(&gone));
    }

    #[test]
    fn a_look_at_ranges_of_a_peer_that_hold_too_much_is_cut_between_ranges() {
        let own = store(&[(1, 1), (2, 1), (3, 1), (4, 1)]);
        let ends = vec![Some(Bytes::from_static(&[3])), None];
        let one = run(&look(RangesBy::Ends(ends.clone()), 100), &own);
        assert_eq!((one.ranges.len(), one.is_cut), (1, true));
        let none = run(&look(RangesBy::Ends(ends.clone()), 40), &own);
        assert_eq!((none.ranges.len(), none.is_cut), (0, true));
        let all = run(&look(RangesBy::Ends(ends), 1_000), &own);
        assert_eq!((all.ranges.len(), all.is_cut), (2, false));
    }

    #[test]
    fn a_value_that_fails_its_checksum_is_damage() {
        let key = Key::user(b"k");
        let mut bad = cell(&key, 5);
        bad.checksum ^= 1;
        let look = look(RangesBy::Grain(9), 1_000);
        let mut looker = look.begin();
        assert_eq!(
            looker.visit(key.as_stored(), bad.as_ref()),
            Surveying::Enough
        );
        assert_eq!(looker.finish(), None);
    }

    #[test]
    fn members_share_what_both_own() {
        for (a, b) in [(0, 1), (3, 1), (4, 2)] {
            let (there, back) = (shared(5, 3, a, b), shared(5, 3, b, a));
            assert_eq!(there, back);
            for key in 0..200u8 {
                assert!(
                    !there.has(&[key], 1),
                    "one member owns a record of one copy"
                );
                assert!(there.may_have(&[key], 1) == there.has_promise(&[key]));
            }
            // Two owners beyond the factor share none.
            let all = (0..200u8).filter(|key| there.has(&[*key], 5)).count();
            assert!((160..200).contains(&all), "9 in 10 or so: {all}");
            let promises = (0..200u8).filter(|key| there.has_promise(&[*key])).count();
            assert!((20..120).contains(&promises), "3 in 10 or so: {promises}");
        }
        let all = shared(3, 3, 0, 2);
        assert!((0..99u8).all(|key| all.has_promise(&[key])));
    }
}
