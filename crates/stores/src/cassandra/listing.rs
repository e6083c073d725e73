//! The list of keys: which partition of a section a key stands in, how many keys a page asks each
//! of them for, and the timestamps that keep a listing above every removal of before.
//!
//! ```text
//! key ─► checksum ─► bucket of 16
//! page ─► `each` keys of each partition ─► those up to the first end of one that may have more
//! version ─► its clock in microseconds = timestamp of what its write does to the list
//! ```
//!
//! Invariants
//! 1. A version above another one has a later stamp: `VERSION_STEP` is two microseconds.
//! 2. A page asks for at most `KEYS_A_PAGE` keys, or two of each partition.
//! 3. A page shows a key once, however many partitions list it.
//!
//! Not here: sections (`sections.rs`), who lists and who removes (`mod.rs`, `cleaning.rs`).

use crate::clock::wall_ms;
use bytes::Bytes;
use dendra_base::{Key, Version, cell::checksum};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The partitions of each section: keys in ascending order go to so many at once.
pub(super) const BUCKETS: [i16; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// A version is above the one that it replaces by so many ticks of its clock, of which a
/// millisecond has 65,536.
const VERSION_STEP: u64 = 128;
/// Keys that a page asks for, of all partitions.
const KEYS_A_PAGE: usize = 4_096;
/// How many keys of each partition a page may ask for, and the factorials of these numbers.
const EACH: [(usize, f64); 6] = [
    (2, 2.0),
    (4, 24.0),
    (8, 40_320.0),
    (16, 2.092_279e13),
    (32, 2.631_308e35),
    (64, 1.268_869e89),
];

fn print_of(key: &[u8]) -> u64 {
    checksum(Key::user(key).as_stored(), b"")
}

pub(super) fn bucket_of(key: &[u8]) -> i16 {
    (print_of(key) % BUCKETS.len() as u64) as i16
}

/// True for one of so many keys, in each bucket.
pub(super) fn is_drawn(key: &[u8], keys: usize) -> bool {
    (print_of(key) / BUCKETS.len() as u64).is_multiple_of(keys as u64)
}

/// Makes the versions of one front door.
pub(super) struct VersionSource {
    last: AtomicU64,
    origin: u32,
}

impl VersionSource {
    /// `origin` is not zero, which stands for "no member" in a version.
    pub(super) fn new(origin: u32) -> VersionSource {
        let last = AtomicU64::new(0);
        VersionSource { last, origin }
    }

    /// A version above `seen`, and above all that this process has made.
    pub(super) fn above(&self, seen: Option<Version>) -> Version {
        let least = (wall_ms() << 16).max(seen.map_or(0, |seen| seen.hlc + VERSION_STEP));
        let order = Ordering::Relaxed;
        let next = |last: u64| Some(least.max(last + 1));
        let last = self.last.fetch_update(order, order, next);
        let last = last.expect("it always has a next one");
        Version {
            hlc: least.max(last + 1),
            origin: self.origin,
            rmw: 0,
        }
    }
}

/// The timestamp of what the write of a version does to the list, microseconds.
pub(super) fn stamp_us(version: Version) -> i64 {
    ((u128::from(version.hlc) * 1_000) >> 16) as i64
}

/// How many keys of each partition are asked for, for a page of so many records.
///
/// Of `b` partitions with `k` keys each some `b · (k! / b)^(1/k)` keys are known to be the first:
/// there the smallest of `b` sums of `k` gaps is.
pub(super) fn keys_of_each(records: usize, partitions: usize) -> usize {
    let number = partitions as f64;
    let known = |(each, factorial): &(usize, f64)| {
        number * (factorial / number).powf(1.0 / *each as f64) >= 1.2 * records as f64
    };
    let mut allowed = EACH
        .iter()
        .filter(|(each, _)| each * partitions <= KEYS_A_PAGE);
    let (enough, most) = (allowed.clone().find(|one| known(one)), allowed.next_back());
    enough.or(most).map_or(EACH[0].0, |(each, _)| *each)
}

/// The keys of all partitions up to the first end of one that may have more than `each`, in order;
/// and is there such a one?
pub(super) fn merge<P>(
    known: BTreeMap<P, Vec<Bytes>>,
    each: usize,
    is_reverse: bool,
) -> (Vec<Bytes>, bool) {
    let open = known.values().filter(|keys| keys.len() >= each);
    let ends = open.filter_map(|keys| keys.last().cloned());
    let horizon = if !is_reverse { ends.min() } else { ends.max() };
    let is_known = |key: &Bytes| match (&horizon, is_reverse) {
        (None, _) => true,
        (Some(horizon), false) => key <= horizon,
        (Some(horizon), true) => key >= horizon,
    };
    let mut keys: Vec<Bytes> = known.into_values().flatten().filter(is_known).collect();
    keys.sort_unstable();
    keys.dedup();
    if is_reverse {
        keys.reverse();
    }
    (keys, horizon.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_where_a_bucket_may_have_more() {
        const EACH: usize = 16;
        let key = |n: usize| Bytes::from(format!("{n:04}"));
        // Bucket 0 has even keys and is cut; bucket 1 has odd ones, and all of them.
        let even: Vec<_> = (0..EACH).map(|n| key(2 * n)).collect();
        let odd: Vec<_> = (0..5).map(|n| key(1_000 * n + 1)).collect();
        let known = BTreeMap::from([(0, even.clone()), (1, odd.clone())]);
        let (keys, has_more) = merge(known, EACH, false);
        let mut expected = even.clone();
        expected.insert(1, odd[0].clone());
        assert_eq!((keys, has_more), (expected, true));
        // A key that two of them list is one key.
        let known = BTreeMap::from([(0, even.clone()), (1, even[3..7].to_vec())]);
        assert_eq!(merge(known, EACH, false), (even, true));
        let known = BTreeMap::from([(1, odd.iter().rev().cloned().collect())]);
        let (keys, has_more) = merge(known, EACH, true);
        let back: Vec<_> = odd.into_iter().rev().collect();
        assert_eq!((keys, has_more), (back, false));
    }

    #[test]
    fn a_page_finds_about_as_many_keys_as_it_is_to_have() {
        for sections in [1, 4, 16, 64] {
            let partitions = sections * BUCKETS.len();
            let mut lists: BTreeMap<u64, Vec<Bytes>> = BTreeMap::new();
            for n in 0..20_000 {
                let key = Bytes::from(format!("{n:05}"));
                let partition = print_of(&key) % partitions as u64;
                lists.entry(partition).or_default().push(key);
            }
            for records in [1, 10, 40, 100, 250] {
                let each = keys_of_each(records, partitions);
                let first = |keys: &Vec<Bytes>| keys.iter().take(each).cloned().collect();
                let shown = lists.iter().map(|(own, keys)| (*own, first(keys)));
                let (keys, has_more) = merge(shown.collect(), each, false);
                assert!(has_more && each * partitions <= KEYS_A_PAGE);
                let is_most = each == 64 || 2 * each * partitions > KEYS_A_PAGE;
                let found = keys.len();
                assert!(
                    is_most || 2 * found >= records,
                    "{partitions} {records}: {found}"
                );
            }
        }
    }

    #[test]
    fn a_version_above_another_one_has_a_later_stamp() {
        let stamp = |hlc: u64| {
            let origin = 1;
            stamp_us(Version {
                hlc,
                origin,
                rmw: 0,
            })
        };
        let now = 1_790_000_000_000_u64 << 16;
        assert_eq!(stamp(now), 1_790_000_000_000_000);
        for n in 0..200_000 {
            let hlc = now + n;
            assert!(stamp(hlc) < stamp(hlc + VERSION_STEP), "{n}");
        }
    }
}
