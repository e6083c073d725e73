//! The sections of the list of keys: they are split as the list grows, and no key ever moves.
//!
//! ```text
//! section 0, all keys ── split 1 ─► 16, 17 … 31, in the order of keys ── split 2, of 20 ─► 32 … 47
//! section, checksum of the key ─► one of 16 partitions of Cassandra
//!
//! a new key   ─► the last section on the path of the key, as far as this front door knows it
//! a page      ─► all sections on the path of its begin, behind a look at `splits`
//! one of `partition_keys` listings ─► the upkeep counts its partition ─► full: a row of `splits`
//! ```
//!
//! Front doors need not agree on the moment of a split:
//!
//! * `splits` is a log. A light-weight transaction writes its next row, or does not. Of two front
//!   doors that split at once one is refused, and reads the row of the other one. A front door that
//!   dies has written a row or none.
//! * A front door that does not know a split lists keys in the section that was split. All pages
//!   ask that section for ever, so they find these keys.
//! * A front door that knows a split has read its row at `QUORUM`. A page that begins later reads
//!   the log at `QUORUM`, too, so it knows the split: what such a read finds at one copy alone,
//!   Cassandra brings to a majority before it answers.
//! * So a key may stand in several sections. A page shows it once, a removal takes it out of all.
//!
//! Keys in ascending order make a path of all sections. So pages pass over a section that was split
//! and has no key where they begin. That is known `SETTLED` after the split: no front door lists
//! keys by a look at `splits` that is older than `LISTING_LOOK_AGE`, clocks of front doors differ
//! by less than an hour, and no request takes as long.
//!
//! Invariants
//! 1. A section that lists a key is on the path of the key, in every later log.
//! 2. A page ends at the end of the last section on its path: others list the keys behind it.
//! 3. At most one partition waits to be counted: another listing finds a full one again.
//!
//! Not here: partitions of a section and the merge of their keys (`listing.rs`), the page's
//! question (`mod.rs`), removals (`cleaning.rs`).
//! See: docs/stores.md.

use super::answers::{changed, rows};
use super::listing::{BUCKETS, bucket_of, is_drawn};
use super::session::CqlServers;
use super::statements::CqlOrder;
use crate::clock::wall_ms;
use crate::store::OuterFailure;
use bytes::Bytes;
use dendra_base::Known;
use dendra_base::peer::Range;
use scylla::statement::Consistency as CqlLevel;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Keys of a partition that is full: Cassandra's advice is 100,000 rows and 100 MB, and a key has
/// 1 KiB at most.
pub(super) const PARTITION_KEYS_USUAL: usize = 100_000;
/// Sections that take the place of one: with 16 ways there are four on the path of 10^9 keys.
const WAYS: usize = 16;
/// No key is listed by a look at `splits` that began longer ago.
const LISTING_LOOK_AGE: Duration = Duration::from_secs(60);
/// So long after its split no front door lists keys in a section.
const SETTLED: Duration = Duration::from_secs(3 * 3_600);
/// Rows of `splits` that are read together; each has 15 keys.
const SPLITS_A_READ: usize = 1_000;
/// Keys that are counted together.
const KEYS_A_COUNT: usize = 4_096;
/// Settled sections whose ends are looked for in one upkeep.
const EXTENTS_AN_UPKEEP: usize = 8;
/// The longest that one question of the upkeep takes.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// A section that others took the place of.
struct SectionSplit {
    section: i32,
    /// The first key of each of them but the first one.
    bounds: Vec<Bytes>,
    made_ms: u64,
    /// The first and the last key, if there are any; known when it is settled.
    extent: Option<Option<(Bytes, Bytes)>>,
}

/// The splits that a front door knows.
#[derive(Default)]
struct SectionTree {
    splits: Vec<SectionSplit>,
    /// Index of the split of a section.
    split_of: BTreeMap<i32, usize>,
}

/// The keys of a last section, and all sections that may list some of them.
pub(super) struct KeyStretch {
    /// The last one takes new keys.
    pub(super) sections: Vec<i32>,
    low: Bytes,
    high: Option<Bytes>,
    /// Splits that were known.
    pub(super) splits: usize,
}

/// The keys of a partition, as far as they are counted.
struct PartitionCount {
    full: usize,
    counted: usize,
    bounds: Vec<Vec<u8>>,
}

/// The sections of a keyspace, as one front door knows them.
pub(super) struct Sections {
    servers: Arc<CqlServers>,
    tree: Mutex<SectionTree>,
    /// The begin of the last look at `splits`.
    looked_at: Mutex<Option<Instant>>,
    /// Held by one look at a time.
    looking: tokio::sync::Mutex<()>,
    partition_keys: usize,
    /// A partition that is to be counted.
    drawn: Mutex<Option<(i32, i16)>>,
}

impl SectionSplit {
    /// May it list a key between these?
    fn may_list(&self, low: &Bytes, high: Option<&Bytes>) -> bool {
        match &self.extent {
            None => true,
            Some(None) => false,
            Some(Some((first, last))) => low <= last && high.is_none_or(|high| first < high),
        }
    }
}

impl SectionTree {
    /// Adds a row of `splits`.
    fn add(&mut self, number: i32, split: SectionSplit) -> Result<(), OuterFailure> {
        let next = self.splits.len() + 1;
        let is_one = |section: usize| section == 0 || (WAYS..next * WAYS).contains(&section);
        let is_known = usize::try_from(split.section).is_ok_and(is_one);
        let is_sound = number == next as i32 && is_known && split.bounds.len() == WAYS - 1;
        if !is_sound || self.split_of.contains_key(&split.section) {
            return Err(OuterFailure::Damaged(format!(
                "row {number} of the table `splits` does not follow the {} before it",
                self.splits.len()
            )));
        }
        self.split_of.insert(split.section, self.splits.len());
        self.splits.push(split);
        Ok(())
    }

    /// The last section, which has all bounds on its left of which `is_left` says so.
    fn stretch(&self, is_left: impl Fn(&Bytes) -> bool) -> KeyStretch {
        let (mut section, mut passed) = (0, Vec::new());
        let (mut low, mut high) = (Bytes::new(), None);
        while let Some(&at) = self.split_of.get(&section) {
            let split = &self.splits[at];
            passed.push(split);
            let way = split.bounds.partition_point(&is_left);
            if way > 0 {
                low = split.bounds[way - 1].clone();
            }
            high = split.bounds.get(way).cloned().or(high);
            section = ((at + 1) * WAYS + way) as i32;
        }
        let passed = passed.into_iter();
        let passed = passed.filter(|split| split.may_list(&low, high.as_ref()));
        let mut sections: Vec<i32> = passed.map(|split| split.section).collect();
        sections.push(section);
        KeyStretch {
            sections,
            low,
            high,
            splits: self.splits.len(),
        }
    }

    fn at_key(&self, key: &[u8]) -> KeyStretch {
        self.stretch(|bound| bound[..] <= *key)
    }

    fn at_begin(&self, range: &Range) -> KeyStretch {
        match (range.is_reverse, &range.end) {
            (false, _) => self.at_key(&range.start),
            (true, Some(end)) => self.stretch(|bound| bound < end),
            (true, None) => self.stretch(|_| true),
        }
    }
}

impl KeyStretch {
    /// The part of a range that begins here, and the rest of it.
    pub(super) fn part_of(&self, range: &Range) -> (Range, Option<Range>) {
        let (mut here, mut rest) = (range.clone(), range.clone());
        if range.is_reverse && range.start < self.low {
            here.start = self.low.clone();
            rest.end = Some(self.low.clone());
            return (here, Some(rest));
        }
        match &self.high {
            Some(high) if !range.is_reverse && range.end.as_ref().is_none_or(|end| high < end) => {
                here.end = Some(high.clone());
                rest.start = high.clone();
                (here, Some(rest))
            }
            _ => (here, None),
        }
    }
}

impl PartitionCount {
    fn new(full: usize) -> PartitionCount {
        let bounds = Vec::with_capacity(WAYS - 1);
        PartitionCount {
            full,
            counted: 0,
            bounds,
        }
    }

    /// Counts the next key, and notes it if a section is to begin with it.
    fn count(&mut self, key: &[u8]) {
        self.counted += 1;
        if self.counted.is_multiple_of(self.full / WAYS) && self.bounds.len() < WAYS - 1 {
            self.bounds.push(key.to_vec());
        }
    }

    fn left(&self) -> usize {
        self.full - self.counted
    }
}

impl Sections {
    pub(super) fn new(servers: &Arc<CqlServers>, partition_keys: usize) -> Sections {
        Sections {
            servers: Arc::clone(servers),
            tree: Mutex::default(),
            looked_at: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            partition_keys,
            drawn: Mutex::default(),
        }
    }

    fn tree(&self) -> MutexGuard<'_, SectionTree> {
        self.tree.lock().expect("no holder panics")
    }

    /// How many splits are known.
    pub(super) fn splits(&self) -> usize {
        self.tree().splits.len()
    }

    /// The sections that may list a key.
    pub(super) fn of_key(&self, key: &[u8]) -> Vec<i32> {
        self.tree().at_key(key).sections
    }

    /// The stretch in which a page begins.
    pub(super) fn at_begin(&self, range: &Range) -> KeyStretch {
        self.tree().at_begin(range)
    }

    /// The number of partitions of all sections.
    pub(super) fn partitions(&self) -> usize {
        (1 + WAYS * self.splits()) * BUCKETS.len()
    }

    /// One of them after the other, and again from the first one.
    pub(super) fn partition(&self, turn: usize) -> (i32, i16) {
        let nth = turn % self.partitions() / BUCKETS.len();
        // There are no sections from 1 to 15.
        let section = if nth == 0 { 0 } else { nth + WAYS - 1 };
        (section as i32, BUCKETS[turn % BUCKETS.len()])
    }

    /// The section in which a key is to be listed.
    pub(super) async fn for_new(&self, key: &[u8], until: Instant) -> Result<i32, OuterFailure> {
        self.look(LISTING_LOOK_AGE, until).await?;
        let sections = self.of_key(key);
        let section = *sections.last().expect("there is one");
        if is_drawn(key, self.partition_keys) {
            let partition = (section, bucket_of(key));
            *self.drawn.lock().expect("no holder panics") = Some(partition);
        }
        Ok(section)
    }

    /// Reads the new rows of `splits`, unless a look began less than `age` before this call.
    pub(super) async fn look(&self, age: Duration, until: Instant) -> Result<(), OuterFailure> {
        let called_at = Instant::now();
        let looked_at = || self.looked_at.lock().expect("no holder panics");
        let is_done = || looked_at().is_some_and(|looked_at| looked_at + age > called_at);
        if is_done() {
            return Ok(());
        }
        let turn = tokio::time::timeout_at(until.into(), self.looking.lock()).await;
        let _turn = turn.map_err(|_| {
            let sentence = "the table `splits` was not read in time".to_owned();
            OuterFailure::Unanswered(Known::NotApplied, sentence)
        })?;
        if is_done() {
            return Ok(());
        }
        let begun_at = Instant::now();
        loop {
            let values = (self.splits() as i32, SPLITS_A_READ as i32);
            let asked = self
                .servers
                .ask(CqlOrder::Splits, CqlLevel::Quorum, values, until);
            let found = rows::<(i32, i32, Vec<Vec<u8>>, i64)>(asked.await?)?;
            let is_last = found.len() < SPLITS_A_READ;
            for (number, section, bounds, made_ms) in found {
                let split = SectionSplit {
                    section,
                    bounds: bounds.into_iter().map(Bytes::from).collect(),
                    made_ms: made_ms as u64,
                    extent: None,
                };
                self.tree().add(number, split)?;
            }
            if is_last {
                *looked_at() = Some(begun_at);
                return Ok(());
            }
        }
    }

    /// Splits the section of a partition that was drawn, if it is full; finds out where sections
    /// end that are settled.
    pub(super) async fn grow(&self) -> Result<(), OuterFailure> {
        self.look(Duration::ZERO, Instant::now() + STEP_TIMEOUT)
            .await?;
        let drawn = self.drawn.lock().expect("no holder panics").take();
        if let Some((section, bucket)) = drawn {
            self.split_full(section, bucket).await?;
        }
        let settled_before = wall_ms().saturating_sub(SETTLED.as_millis() as u64);
        let settled: Vec<(usize, i32)> = {
            let tree = self.tree();
            let splits = tree.splits.iter().enumerate();
            let new = splits
                .filter(|(_, split)| split.extent.is_none() && split.made_ms < settled_before);
            let new = new.map(|(at, split)| (at, split.section));
            new.take(EXTENTS_AN_UPKEEP).collect()
        };
        for (at, section) in settled {
            let first = self.end_of(CqlOrder::Keys, section).await?;
            let last = self.end_of(CqlOrder::KeysBack, section).await?;
            let ends = first.into_iter().min().zip(last.into_iter().max());
            self.tree().splits[at].extent = Some(ends);
        }
        Ok(())
    }

    /// The key at one end of each partition of a section.
    async fn end_of(&self, order: CqlOrder, section: i32) -> Result<Vec<Bytes>, OuterFailure> {
        let until = Instant::now() + STEP_TIMEOUT;
        let values = (vec![section], &BUCKETS[..], &[][..] as &[u8], 1_i32);
        let asked = self.servers.ask(order, CqlLevel::Quorum, values, until);
        let found = rows::<(i32, i16, Vec<u8>)>(asked.await?)?;
        Ok(found.into_iter().map(|(_, _, key)| key.into()).collect())
    }

    async fn split_full(&self, section: i32, bucket: i16) -> Result<(), OuterFailure> {
        let mut count = PartitionCount::new(self.partition_keys);
        let mut start = Vec::new();
        while count.left() > 0 {
            let until = Instant::now() + STEP_TIMEOUT;
            let most = count.left().min(KEYS_A_COUNT);
            let values = (vec![section], vec![bucket], &start[..], most as i32);
            let asked = self
                .servers
                .ask(CqlOrder::Keys, CqlLevel::One, values, until);
            let found = rows::<(i32, i16, Vec<u8>)>(asked.await?)?;
            if found.len() < most {
                return Ok(());
            }
            for (_, _, mut key) in found {
                count.count(&key);
                key.push(0);
                start = key;
            }
        }
        let number = {
            let tree = self.tree();
            if tree.split_of.contains_key(&section) {
                return Ok(());
            }
            (tree.splits.len() + 1) as i32
        };
        let until = Instant::now() + STEP_TIMEOUT;
        let values = (number, section, &count.bounds, wall_ms() as i64);
        let asked = self.servers.change(CqlOrder::Split, values, until);
        if changed(asked.await?)? {
            tracing::info!(section, number, "a section of the list of keys was split");
        }
        self.look(Duration::ZERO, until).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::listing::{keys_of_each, merge};
    use super::*;
    use crate::store::rest_behind;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::ops::Bound::{Excluded, Included, Unbounded};

    const FULL: usize = 64;

    /// A table `keys` and its log, with front doors that know parts of the log.
    #[derive(Default)]
    struct FakeList {
        tables: BTreeMap<(i32, i16), BTreeSet<Bytes>>,
        log: Vec<(i32, Vec<Bytes>)>,
        doors: [SectionTree; 3],
        /// All keys that were listed, and not removed.
        listed: BTreeSet<Bytes>,
    }

    impl FakeList {
        /// A front door reads the log.
        fn look(&mut self, door: usize) {
            let tree = &mut self.doors[door];
            for at in tree.splits.len()..self.log.len() {
                let (section, bounds) = self.log[at].clone();
                let split = SectionSplit {
                    section,
                    bounds,
                    made_ms: 0,
                    extent: None,
                };
                tree.add(at as i32 + 1, split).expect("it follows");
            }
        }

        /// A front door lists a key as it knows the sections; a full one is split by it, if it
        /// knows the whole log.
        fn list(&mut self, door: usize, key: Bytes) {
            let sections = self.doors[door].at_key(&key).sections;
            let section = *sections.last().expect("there is one");
            let table = self.tables.entry((section, bucket_of(&key))).or_default();
            table.insert(key.clone());
            self.listed.insert(key);
            if table.len() >= FULL && self.doors[door].splits.len() == self.log.len() {
                let mut count = PartitionCount::new(FULL);
                for key in table.iter().take(FULL) {
                    count.count(key);
                }
                if !self.doors[door].split_of.contains_key(&section) {
                    let bounds = count.bounds.into_iter().map(Bytes::from).collect();
                    self.log.push((section, bounds));
                }
            }
        }

        /// A front door that knows the whole log takes a key out of all its sections.
        fn remove(&mut self, door: usize, key: &Bytes) {
            self.look(door);
            for section in self.doors[door].at_key(key).sections {
                if let Some(table) = self.tables.get_mut(&(section, bucket_of(key))) {
                    table.remove(key);
                }
            }
            self.listed.remove(key);
        }

        /// All front doors know the log: none adds to a section that was split.
        fn settle(&mut self) {
            for door in 0..self.doors.len() {
                self.look(door);
                for split in &mut self.doors[door].splits {
                    let own = self.tables.iter().filter(|(at, _)| at.0 == split.section);
                    let keys: BTreeSet<_> = own.flat_map(|(_, keys)| keys.clone()).collect();
                    split.extent = Some(keys.first().cloned().zip(keys.last().cloned()));
                }
            }
        }

        /// One page of a scan; and the number of sections that it asked.
        fn page(&mut self, door: usize, range: &Range) -> (Vec<Bytes>, Option<Range>, usize) {
            self.look(door);
            let stretch = self.doors[door].at_begin(range);
            let (here, behind) = stretch.part_of(range);
            let each = keys_of_each(10, stretch.sections.len() * BUCKETS.len());
            let mut known = BTreeMap::new();
            for partition in stretch
                .sections
                .iter()
                .flat_map(|section| BUCKETS.map(|bucket| (*section, bucket)))
            {
                let Some(table) = self.tables.get(&partition) else {
                    continue;
                };
                let end = here.end.as_ref().map_or(Unbounded, Excluded);
                let keys = table
                    .range::<Bytes, _>((Included(&here.start), end))
                    .cloned();
                let keys: Vec<Bytes> = if range.is_reverse {
                    keys.rev().take(each).collect()
                } else {
                    keys.take(each).collect()
                };
                known.insert(partition, keys);
            }
            let (keys, is_cut) = merge(known, each, range.is_reverse);
            let rest = match keys.last() {
                Some(last) if is_cut => Some(rest_behind(range, last)),
                _ => behind,
            };
            (keys, rest, stretch.sections.len())
        }

        fn scan(&mut self, door: usize, range: &Range) -> Vec<Bytes> {
            let (mut all, mut rest) = (Vec::new(), Some(range.clone()));
            while let Some(range) = rest {
                let (keys, behind, _) = self.page(door, &range);
                all.extend(keys);
                rest = behind;
            }
            all
        }

        fn check(&mut self, start: u16, end: Option<u16>) {
            for is_reverse in [false, true] {
                let range = Range {
                    start: name(start),
                    end: end.map(name),
                    is_reverse,
                    is_keys_only: true,
                };
                let is_in =
                    |key: &&Bytes| **key >= name(start) && end.is_none_or(|end| **key < name(end));
                let mut expected: Vec<_> = self.listed.iter().filter(is_in).cloned().collect();
                if is_reverse {
                    expected.reverse();
                }
                for door in 0..self.doors.len() {
                    assert_eq!(self.scan(door, &range), expected);
                }
            }
        }
    }

    /// The `n`th key.
    fn name(n: u16) -> Bytes {
        Bytes::copy_from_slice(&n.to_be_bytes())
    }

    #[derive(Clone, Debug)]
    enum Doing {
        /// Front door; first key; how many after it; their distance.
        List(usize, u16, u16, u16),
        Remove(usize, u16, u16),
        Look(usize),
        Settle,
        Scan(u16, Option<u16>),
    }

    fn doings() -> impl Strategy<Value = Vec<Doing>> {
        let one = prop_oneof![
            12 => (0..3_usize, any::<u16>(), 100..2_000_u16, prop_oneof![Just(1_u16), any::<u16>()])
                .prop_map(|(door, first, keys, step)| Doing::List(door, first, keys, step)),
            2 => (0..3_usize, any::<u16>(), 1..3_000_u16)
                .prop_map(|(door, first, keys)| Doing::Remove(door, first, keys)),
            4 => (0..3_usize).prop_map(Doing::Look),
            1 => Just(Doing::Settle),
            4 => (any::<u16>(), any::<Option<u16>>())
                .prop_map(|(start, end)| Doing::Scan(start, end)),
        ];
        proptest::collection::vec(one, 1..24)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn scans_show_each_key_once_while_front_doors_know_different_splits(all in doings()) {
            let mut list = FakeList::default();
            for doing in all {
                match doing {
                    Doing::List(door, first, keys, step) => {
                        for n in 0..keys {
                            list.list(door, name(first.wrapping_add(n.wrapping_mul(step))));
                            if n % 64 == 0 {
                                list.look(door);
                            }
                        }
                    }
                    Doing::Remove(door, first, keys) => {
                        for n in 0..keys {
                            list.remove(door, &name(first.wrapping_add(n)));
                        }
                    }
                    Doing::Look(door) => list.look(door),
                    Doing::Settle => list.settle(),
                    Doing::Scan(start, end) => list.check(start, end.map(|end| end.max(start))),
                }
            }
            list.check(0, None);
        }
    }

    #[test]
    fn keys_in_ascending_order_fill_no_partition_and_pages_ask_few_sections_once_it_is_settled() {
        let mut list = FakeList::default();
        for n in 0..40_000 {
            list.list(0, name(n));
            list.look(0);
        }
        let fullest = list.tables.values().map(BTreeSet::len).max();
        assert!(fullest <= Some(FULL), "{fullest:?}");
        assert!(list.log.len() > 30, "{}", list.log.len());
        let page = |list: &mut FakeList, n: u16| {
            let range = Range {
                start: name(n),
                end: None,
                is_reverse: false,
                is_keys_only: true,
            };
            list.page(0, &range).2
        };
        assert!(page(&mut list, 39_000) > 30);
        list.settle();
        for n in [0, 10_000, 20_000, 39_000] {
            assert!(page(&mut list, n) <= 3, "{n}");
        }
        list.check(0, None);
    }

    #[test]
    fn the_ends_of_a_settled_section_are_shown() {
        let mut list = FakeList::default();
        for n in 0..1_100 {
            list.list(0, name(n));
        }
        let bounds = list.log[0].1.clone();
        // What is left begins and ends at the begin of a section.
        for n in (0..1_100).map(name) {
            if n < bounds[2] || n > bounds[9] {
                list.remove(0, &n);
            }
        }
        list.settle();
        list.check(0, None);
    }

    #[test]
    fn keys_in_any_order_make_short_paths() {
        let mut list = FakeList::default();
        for n in 0..40_000_u32 {
            list.list(0, name((n * 40_503) as u16));
            list.look(0);
        }
        let longest = (0..=u16::MAX).map(|n| list.doors[0].at_key(&name(n)).sections.len());
        assert!(longest.max() <= Some(4));
    }

    #[test]
    fn a_row_that_does_not_follow_is_refused() {
        let split = |section| SectionSplit {
            section,
            bounds: (1..WAYS as u16).map(name).collect(),
            made_ms: 0,
            extent: None,
        };
        let mut tree = SectionTree::default();
        assert!(tree.add(2, split(0)).is_err());
        assert!(tree.add(1, split(16)).is_err());
        assert!(tree.add(1, split(0)).is_ok());
        assert!(tree.add(2, split(0)).is_err());
        assert!(tree.add(2, split(32)).is_err());
        assert!(tree.add(2, split(31)).is_ok());
    }
}
