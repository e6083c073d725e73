//! Rising keys side by side in memory, made for one question: where does a key belong?
//!
//! ```text
//! common   bytes that all keys start with                  compared once
//! heads    u64 u64 u64 …   the next eight bytes of each    searched: eight keys a cache line
//! bytes    the keys themselves                             read where heads are equal
//! ```
//!
//! Invariants
//! 1. Unequal heads order keys as their bytes do: a shorter key is padded with zeros. A head is
//!    compared with heads of the same place only.
//! 2. For any keys a search ends and stays in bounds; it is right when they rise.
//!
//! Not here: the data behind a key (`index.rs`).
//! See: docs/decisions/0012-guides-and-tags.md.

use super::block::common_prefix;
use std::cmp::Ordering;

/// Collects keys, the smallest first.
#[derive(Default)]
pub(super) struct KeysBuilder {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl KeysBuilder {
    /// Appends a key.
    pub(super) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        let end = u32::try_from(self.bytes.len()).expect("an index is at most 16 MiB");
        self.ends.push(end);
    }

    /// The keys, ready to be searched.
    pub(super) fn finish(self) -> Keys {
        let mut keys = Keys {
            common: 0,
            heads: Box::new([]),
            bytes: self.bytes.into(),
            ends: self.ends.into(),
        };
        if let Some(last) = keys.len().checked_sub(1) {
            keys.common = common_prefix(keys.at(0), keys.at(last));
            // Keys that do not rise may share less with each other than with the last.
            let is_common = |i: usize| keys.at(i).starts_with(&keys.at(0)[..keys.common]);
            if !(0..keys.len()).all(is_common) {
                keys.common = 0;
            }
        }
        keys.heads = (0..keys.len())
            .map(|i| head(&keys.at(i)[keys.common..]))
            .collect();
        keys
    }
}

/// The first eight bytes as a number that orders as they do.
fn head(rest: &[u8]) -> u64 {
    match rest.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(padded)
        }
    }
}

/// Rising keys.
#[derive(Debug)]
pub(super) struct Keys {
    /// Length of the prefix that all of them have.
    common: usize,
    heads: Box<[u64]>,
    bytes: Box<[u8]>,
    ends: Box<[u32]>,
}

impl Keys {
    /// How many.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Key `i`.
    pub(super) fn at(&self, i: usize) -> &[u8] {
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[i] as usize]
    }

    /// The first key that is at or after `target`; `len()` when all are smaller.
    pub(super) fn lower_bound(&self, target: &[u8]) -> usize {
        let common = &self.bytes[..self.common];
        let rest = match target.split_at_checked(self.common) {
            Some((start, rest)) => match start.cmp(common) {
                Ordering::Less => return 0,
                Ordering::Greater => return self.len(),
                Ordering::Equal => rest,
            },
            // Shorter than the common start of all keys: before all of them, or behind.
            None if target <= common => return 0,
            None => return self.len(),
        };
        let wanted = head(rest);
        let mut low = self.heads.partition_point(|&head| head < wanted);
        if self.heads.get(low) != Some(&wanted) {
            return low;
        }
        let same = self.heads[low..].partition_point(|&head| head == wanted);
        let mut high = low + same;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at(middle) < target {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Memory they hold.
    pub(super) fn charge(&self) -> usize {
        self.heads.len() * 8 + self.bytes.len() + self.ends.len() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys_of(keys: &[Vec<u8>]) -> Keys {
        let mut builder = KeysBuilder::default();
        for key in keys {
            builder.push(key);
        }
        builder.finish()
    }

    proptest! {
        #[test]
        fn a_search_finds_what_a_walk_finds(
            prefix in prop::collection::vec(0u8..3, 0..6),
            drawn in prop::collection::btree_set(
                prop::collection::vec(prop_oneof![0u8..3, Just(0xff)], 0..12), 0..40),
            target in prop::collection::vec(prop_oneof![0u8..3, Just(0xff)], 0..16),
            is_inside in any::<bool>(),
        ) {
            let keys: Vec<Vec<u8>> = drawn.iter().map(|key| [&prefix[..], key].concat()).collect();
            let target = if is_inside { [&prefix[..], &target].concat() } else { target };
            let sorted = keys_of(&keys);
            let wanted = keys.iter().take_while(|key| **key < target).count();
            prop_assert_eq!(sorted.lower_bound(&target), wanted);
            for (i, key) in keys.iter().enumerate() {
                prop_assert_eq!(sorted.at(i), key.as_slice());
                prop_assert_eq!(sorted.lower_bound(key), i);
            }
        }

        #[test]
        fn keys_in_any_order_are_searched_within_bounds(
            keys in prop::collection::vec(prop::collection::vec(0u8..3, 0..12), 0..20),
            target in prop::collection::vec(0u8..3, 0..12),
        ) {
            prop_assert!(keys_of(&keys).lower_bound(&target) <= keys.len());
        }
    }
}
