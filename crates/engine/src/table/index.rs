//! The two-part index: a pinned top with one entry per partition, partitions below.
//!
//! ```text
//! top        last key of partition ─► filter handle, index handle, newest version
//! partition  separator of block    ─► block handle, newest version
//! handle     | offset varint | length varint |        filter length 0 = no filter
//! ```
//!
//! Invariants
//! 1. A separator is at least the last key of its block and below the first key of the next one.
//! 2. Every entry of an index is a restart, so that damage is seen entry by entry.
//! 3. A parsed index has rising keys; the handles of a top lie inside the file.
//!
//! Not here: reading frames (`reader.rs`), the search (`keys.rs`).
//! See: docs/format/table.md.

use super::block::{
    Block, BlockBuilder, BlockResult, MalformedBlock, common_prefix, put_varint, varint,
};
use super::frame::Handle;
use super::keys::{Keys, KeysBuilder};
use super::shortcut::Shortcut;
use dendra_base::Version;

/// The shortest key `s` with `last <= s < next`, into `out`.
pub(super) fn separator(last: &[u8], next: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let same = common_prefix(last, next);
    if same + 1 < last.len() && same < next.len() {
        if same + 1 < next.len() {
            // A proper prefix of `next` that is already above `last`.
            out.extend_from_slice(&next[..=same]);
            return;
        }
        if last[same] + 1 < next[same] {
            out.extend_from_slice(&last[..same]);
            out.push(last[same] + 1);
            return;
        }
    }
    out.extend_from_slice(last);
}

fn put_handle(out: &mut Vec<u8>, handle: Handle) {
    put_varint(out, handle.offset);
    put_varint(out, u64::from(handle.bytes));
}

fn take_handle(bytes: &[u8], at: usize) -> Option<(Handle, usize)> {
    let (offset, behind_offset) = varint(bytes, at)?;
    let (len, behind) = varint(bytes, behind_offset)?;
    let handle = Handle {
        offset,
        bytes: u32::try_from(len).ok()?,
    };
    Some((handle, behind))
}

fn take_version(bytes: &[u8], at: usize) -> Option<Version> {
    let rest: [u8; Version::BYTES] = bytes.get(at..)?.try_into().ok()?;
    Some(Version::from_bytes(rest))
}

/// Appends a data block to an index partition.
pub(super) fn add_block(
    index: &mut BlockBuilder,
    separator: &[u8],
    handle: Handle,
    version_max: Version,
) {
    let mut value = Vec::with_capacity(32);
    put_handle(&mut value, handle);
    value.extend_from_slice(&version_max.to_bytes());
    index.add(separator, value.len(), |out| out.extend_from_slice(&value));
}

/// Appends a partition to the top index.
pub(super) fn add_partition(
    top: &mut BlockBuilder,
    last_key: &[u8],
    filter: Option<Handle>,
    index: Handle,
    version_max: Version,
) {
    let mut value = Vec::with_capacity(40);
    let none = Handle {
        offset: 0,
        bytes: 0,
    };
    put_handle(&mut value, filter.unwrap_or(none));
    put_handle(&mut value, index);
    value.extend_from_slice(&version_max.to_bytes());
    top.add(last_key, value.len(), |out| out.extend_from_slice(&value));
}

/// A data block as its index knows it.
#[derive(Debug)]
struct IndexedBlock {
    handle: Handle,
    version_max: Version,
    shortcut: Shortcut,
}

/// One index partition in memory, taken apart: searches touch keys, then one place.
#[derive(Debug)]
pub(super) struct Index {
    separators: Keys,
    places: Box<[IndexedBlock]>,
}

impl Index {
    /// Takes a block as an index partition.
    pub(super) fn parse(block: &Block) -> BlockResult<Index> {
        let mut separators = KeysBuilder::default();
        let mut places = Vec::with_capacity(block.restarts());
        let mut last: Option<&[u8]> = None;
        for i in 0..block.restarts() {
            let (separator, range) = block.nth(i)?;
            let at = range.start;
            let fail = |what| Err(MalformedBlock { at, what });
            if last.is_some_and(|last| separator <= last) {
                return fail("the separators of an index do not rise");
            }
            last = Some(separator);
            let value = block.slice(range);
            let parsed = take_handle(value, 0)
                .and_then(|(handle, behind)| Some((handle, take_version(value, behind)?)));
            let Some((handle, version_max)) = parsed else {
                return fail("an index entry is not a handle and a version");
            };
            separators.push(separator);
            places.push(IndexedBlock {
                handle,
                version_max,
                shortcut: Shortcut::default(),
            });
        }
        Ok(Index {
            separators: separators.finish(),
            places: places.into(),
        })
    }

    /// Number of data blocks.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The first block whose separator is at or after `key`; `len()` when there is none.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        self.separators.lower_bound(key)
    }

    /// No key in block `i` is above this, and no key in the next one at or below it.
    pub(super) fn separator(&self, i: usize) -> &[u8] {
        self.separators.at(i)
    }

    /// Place and newest version of block `i`.
    pub(super) fn block(&self, i: usize) -> (Handle, Version) {
        let place = &self.places[i];
        (place.handle, place.version_max)
    }

    /// The way to block `i` that needs no look-up.
    pub(super) fn shortcut(&self, i: usize) -> &Shortcut {
        &self.places[i].shortcut
    }

    /// An index without entries, for tests of the cache.
    #[cfg(test)]
    pub(super) fn empty() -> Index {
        Index {
            separators: KeysBuilder::default().finish(),
            places: Box::new([]),
        }
    }

    /// Memory it holds.
    pub(super) fn charge(&self) -> usize {
        self.separators.charge() + size_of_val(&self.places[..])
    }
}

/// One partition as the top index knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopEntry {
    /// Filter of the partition's keys, if it has one.
    pub(super) filter: Option<Handle>,
    /// Index of the partition's blocks; also where its data ends.
    pub(super) index: Handle,
    /// Newest version in the partition.
    pub(super) version_max: Version,
}

/// The top index, pinned in memory: keys lie side by side for the search.
#[derive(Debug)]
pub(super) struct Top {
    keys: Keys,
    partitions: Box<[TopEntry]>,
}

impl Top {
    /// Takes a block as a top index of a file whose frames end at `limit`.
    pub(super) fn parse(block: &Block, limit: u64) -> BlockResult<Top> {
        let (mut keys, mut partitions) = (KeysBuilder::default(), Vec::new());
        let mut last_key: &[u8] = &[];
        let mut data_start = 0;
        for i in 0..block.restarts() {
            let (key, range) = block.nth(i)?;
            let at = range.start;
            let fail = |what| Err(MalformedBlock { at, what });
            if key <= last_key {
                return fail("the keys of the top index do not rise");
            }
            last_key = key;
            let Some(partition) = parse_partition(block.slice(range)) else {
                return fail("an entry of the top index is not two handles and a version");
            };
            let filter_start = partition
                .filter
                .map_or(partition.index.offset, |f| f.offset);
            let in_place = filter_start > data_start
                && partition
                    .filter
                    .is_none_or(|f| f.fits(limit) && f.end() == partition.index.offset)
                && partition.index.fits(limit);
            if !in_place {
                return fail("a handle of the top index points outside its partition");
            }
            data_start = partition.index.end();
            keys.push(key);
            partitions.push(partition);
        }
        Ok(Top {
            keys: keys.finish(),
            partitions: partitions.into(),
        })
    }

    /// Number of partitions.
    pub(super) fn len(&self) -> usize {
        self.partitions.len()
    }

    /// The last key of partition `i`, or a separator above it.
    pub(super) fn key(&self, i: usize) -> &[u8] {
        self.keys.at(i)
    }

    /// Partition `i`.
    pub(super) fn partition(&self, i: usize) -> &TopEntry {
        &self.partitions[i]
    }

    /// Where the data blocks of partition `i` lie.
    pub(super) fn data(&self, i: usize) -> std::ops::Range<u64> {
        let start = i
            .checked_sub(1)
            .map_or(0, |before| self.partitions[before].index.end());
        let partition = &self.partitions[i];
        start
            ..partition
                .filter
                .map_or(partition.index.offset, |f| f.offset)
    }

    /// The first partition that may hold `key` or larger ones; `len()` when all keys are smaller.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        self.keys.lower_bound(key)
    }

    /// Memory it holds.
    pub(super) fn charge(&self) -> usize {
        self.keys.charge() + size_of_val(&self.partitions[..])
    }
}

fn parse_partition(value: &[u8]) -> Option<TopEntry> {
    let (filter, at) = take_handle(value, 0)?;
    let (index, at) = take_handle(value, at)?;
    Some(TopEntry {
        filter: (filter.bytes != 0).then_some(filter),
        index,
        version_max: take_version(value, at)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_separator_stands_between_two_keys(
            a in prop::collection::vec(0u8..4, 1..8),
            b in prop::collection::vec(prop_oneof![0u8..4, Just(0xff)], 1..8),
        ) {
            prop_assume!(a != b);
            let (last, next) = if a < b { (a, b) } else { (b, a) };
            let mut s = b"left over".to_vec();
            separator(&last, &next, &mut s);
            prop_assert!(last <= s && s < next, "{last:?} {s:?} {next:?}");
            prop_assert!(s.len() <= last.len());
        }
    }

    #[test]
    fn separators_are_short() {
        for (last, next, wanted) in [
            ("a/long/path", "b/other/path", "b"),
            ("abc123", "abd", "abc123"),
            ("abc123", "abe", "abd"),
            ("abc", "abcd", "abc"),
            ("user:0001:name", "user:0002:city", "user:0002"),
        ] {
            let mut s = Vec::new();
            separator(last.as_bytes(), next.as_bytes(), &mut s);
            assert_eq!(s, wanted.as_bytes(), "{last} {next}");
        }
    }
}
