//! Blocks of sorted entries with shared prefixes: the one shape of data, index and properties.
//!
//! ```text
//! entry entry entry … | restart offset u32 × n | n u32 |              little-endian
//! entry   | shared varint | unshared varint | value length varint | key suffix | value |
//! restart every 4th entry (every entry in an index): shared = 0, so a search can start there
//! ```
//!
//! Invariants
//! 1. `parse` accepts only rising restart offsets inside the entries, so no later read is out of
//!    bounds. Entries themselves are checked where they are read.
//! 2. `find` never builds a key: it compares suffixes with the part of the target that is still
//!    open.
//!
//! Not here: checksums and compression (`frame.rs`), walking a block (`cursor.rs`), finding a key
//! in a block that stays (`tags.rs`), the way to it (`shortcut.rs`).
//! See: docs/format/table.md.

use dendra_base::limits::STORED_KEY_BYTES_MAX;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicU8;
use std::sync::{OnceLock, Weak};

/// Entries between two restarts of a data block.
pub(super) const RESTART_INTERVAL: usize = 4;
/// Tags of most blocks lie beside the header of their block, which a read has touched. More of them
/// lie elsewhere, and cost a cache line more.
pub(super) const TAGS_INLINE: usize = 32;

/// Bytes that cannot be a block, or an entry that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedBlock {
    /// Where inside the uncompressed block.
    pub(super) at: usize,
    /// The fault.
    pub(super) what: &'static str,
}

pub(super) type BlockResult<T> = Result<T, MalformedBlock>;

/// Damage at `at` of a block.
pub(super) fn malformed<T>(at: usize, what: &'static str) -> BlockResult<T> {
    Err(MalformedBlock { at, what })
}

/// Appends `number` in seven-bit groups, low group first.
pub(super) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads a varint at `at`: the number and where it ends. `None` when it is cut off or over 64 bits.
pub(super) fn varint(bytes: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut number = 0u64;
    let mut shift = 0;
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        if shift == 63 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((number, at));
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

/// Length of the longest prefix that both have.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let mut at = 0;
    while at + 8 <= len {
        let x = u64::from_le_bytes(a[at..at + 8].try_into().expect("eight bytes"));
        let y = u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"));
        if x != y {
            return at + ((x ^ y).trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while at < len && a[at] == b[at] {
        at += 1;
    }
    at
}

/// Collects rising entries into the bytes of a block.
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    last_key: Vec<u8>,
    since_restart: usize,
    interval: usize,
}

impl BlockBuilder {
    /// An empty block with a restart every `interval` entries.
    pub(super) fn new(interval: usize) -> BlockBuilder {
        BlockBuilder {
            bytes: Vec::new(),
            restarts: Vec::new(),
            last_key: Vec::new(),
            since_restart: 0,
            interval,
        }
    }

    /// Appends an entry; `encode` must append exactly `value_len` bytes.
    pub(super) fn add(&mut self, key: &[u8], value_len: usize, encode: impl FnOnce(&mut Vec<u8>)) {
        let shared = if self.restarts.is_empty() || self.since_restart == self.interval {
            let at = u32::try_from(self.bytes.len()).expect("a block is at most 16 MiB");
            self.restarts.push(at);
            self.since_restart = 0;
            0
        } else {
            common_prefix(&self.last_key, key)
        };
        self.since_restart += 1;
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, (key.len() - shared) as u64);
        put_varint(&mut self.bytes, value_len as u64);
        self.bytes.extend_from_slice(&key[shared..]);
        let start = self.bytes.len();
        encode(&mut self.bytes);
        debug_assert_eq!(self.bytes.len() - start, value_len);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
    }

    /// Is there no entry yet?
    pub(super) fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// Length of the block if it ended here.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 4
    }

    /// Ends the block; its bytes stay until `clear`.
    pub(super) fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        let count = u32::try_from(self.restarts.len()).expect("a block is at most 16 MiB");
        self.bytes.extend_from_slice(&count.to_le_bytes());
        &self.bytes
    }

    /// Starts the next block in the same buffers.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.last_key.clear();
        self.since_restart = 0;
    }
}

/// One entry as it lies in a block.
pub(super) struct BlockEntry {
    /// Bytes it takes over from the key before.
    pub(super) shared: usize,
    /// Where the rest of its key lies; its value follows.
    pub(super) suffix: Range<usize>,
    /// Where the value ends and the next entry starts.
    pub(super) value_end: usize,
}

impl BlockEntry {
    /// Where its value lies.
    pub(super) fn value(&self) -> Range<usize> {
        self.suffix.end..self.value_end
    }
}

/// One `tag << 16 | offset` for each entry; empty when the block has none.
pub(super) type Tags = SmallVec<[u32; TAGS_INLINE]>;

/// The keeper of the shortcuts to blocks: a guide that its table holds.
pub(super) trait Shortcuts: fmt::Debug + Send + Sync {
    /// Entry `entry` leads to `block` no longer.
    fn take_down(&self, entry: usize, block: &Block);
}

/// A block's side of the shortcut to it.
#[derive(Debug, Default)]
pub(super) struct Signpost {
    /// The keeper of that shortcut, and its entry there.
    pub(super) place: OnceLock<(Weak<dyn Shortcuts>, usize)>,
    /// Reads that took the long way although there was a shortcut, since the hand came by.
    pub(super) noted: AtomicU8,
}

/// A block in memory, uncompressed.
#[derive(Debug)]
pub(crate) struct Block {
    data: Box<[u8]>,
    entries_end: usize,
    restarts: usize,
    /// Made when the block is found in the cache for the first time: one that is read once and
    /// goes never pays for them.
    pub(super) tags: OnceLock<Tags>,
    /// The index entry that leads here without a look-up, once there is one.
    pub(super) signpost: Signpost,
}

impl Block {
    /// Takes `data` as a block when its restart array is sound.
    pub(super) fn parse(data: Box<[u8]>) -> BlockResult<Block> {
        let len = data.len();
        let Some(count) = data.last_chunk::<4>() else {
            return malformed(0, "a block has at least one entry");
        };
        let restarts = u32::from_le_bytes(*count) as usize;
        let array = restarts.saturating_mul(4).saturating_add(4);
        if restarts == 0 || array >= len {
            return malformed(len - 4, "the number of restarts does not fit the block");
        }
        let block = Block {
            entries_end: len - array,
            restarts,
            data,
            tags: OnceLock::new(),
            signpost: Signpost::default(),
        };
        let mut before = None;
        for at in (0..restarts).map(|i| block.restart(i)) {
            let is_rising = before.map_or(at == 0, |b| at > b);
            if !is_rising || at >= block.entries_end {
                return malformed(block.entries_end, "the restart offsets do not rise");
            }
            before = Some(at);
        }
        Ok(block)
    }

    /// Memory it holds, or may come to hold.
    pub(crate) fn charge(&self) -> usize {
        self.data.len() + self.tags_charge() + size_of::<Block>() + 16
    }

    /// Where the entries end.
    pub(super) fn entries_end(&self) -> usize {
        self.entries_end
    }

    /// Number of restarts.
    pub(super) fn restarts(&self) -> usize {
        self.restarts
    }

    /// The bytes of a range that this block gave out.
    pub(super) fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.data[range]
    }

    /// Where restart `i` points.
    pub(super) fn restart(&self, i: usize) -> usize {
        let at = self.entries_end + 4 * i;
        let bytes = self.data[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes) as usize
    }

    /// Where the entries from restart `i` on end.
    pub(super) fn interval_end(&self, i: usize) -> usize {
        if i + 1 < self.restarts {
            self.restart(i + 1)
        } else {
            self.entries_end
        }
    }

    /// The entry that starts at `at`, its lengths checked against the block.
    pub(super) fn entry(&self, at: usize) -> BlockResult<BlockEntry> {
        let bytes = &self.data[..self.entries_end];
        let (shared, unshared, value_len, start) = match bytes.get(at..at + 3) {
            // Short keys and values: three bytes, no loop.
            Some(&[a, b, c]) if (a | b | c) < 0x80 => {
                (usize::from(a), usize::from(b), usize::from(c), at + 3)
            }
            _ => {
                let long = || {
                    let (shared, at) = varint(bytes, at)?;
                    let (unshared, at) = varint(bytes, at)?;
                    let (value_len, at) = varint(bytes, at)?;
                    Some((
                        usize::try_from(shared).ok()?,
                        usize::try_from(unshared).ok()?,
                        usize::try_from(value_len).ok()?,
                        at,
                    ))
                };
                match long() {
                    Some(lengths) => lengths,
                    None => return malformed(at, "the lengths of an entry are cut off"),
                }
            }
        };
        if shared > STORED_KEY_BYTES_MAX || unshared > STORED_KEY_BYTES_MAX - shared {
            return malformed(at, "a key is longer than keys can be");
        }
        let suffix = start..start + unshared;
        match suffix.end.checked_add(value_len) {
            Some(value_end) if value_end <= self.entries_end => Ok(BlockEntry {
                shared,
                suffix,
                value_end,
            }),
            _ => malformed(at, "an entry reaches beyond its block"),
        }
    }

    /// Key and value of the entry at restart `i`.
    pub(super) fn at_restart(&self, i: usize) -> BlockResult<(&[u8], Range<usize>)> {
        let at = self.restart(i);
        let entry = self.entry(at)?;
        if entry.shared != 0 {
            return malformed(at, "a restart shares bytes with the entry before");
        }
        Ok((&self.data[entry.suffix.clone()], entry.value()))
    }

    /// Key and value of entry `i` of a block in which every entry is a restart.
    pub(super) fn nth(&self, i: usize) -> BlockResult<(&[u8], Range<usize>)> {
        let (key, value) = self.at_restart(i)?;
        if value.end != self.interval_end(i) {
            return malformed(value.end, "an index entry is not followed by a restart");
        }
        Ok((key, value))
    }

    /// How many restarts have a key for which `is_before` holds; it must hold for a prefix of them.
    pub(super) fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> BlockResult<usize> {
        let (mut low, mut high) = (0, self.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(self.at_restart(middle)?.0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The value under exactly `target`.
    pub(super) fn find(&self, target: &[u8]) -> BlockResult<Option<Range<usize>>> {
        let before = self.partition_point(|key| key <= target)?;
        let Some(interval) = before.checked_sub(1) else {
            return Ok(None);
        };
        let mut at = self.restart(interval);
        let end = self.interval_end(interval);
        // The entry before is smaller than the target and shares its first `matched` bytes.
        let (mut matched, mut len_before) = (0, 0);
        while at < end {
            let entry = self.entry(at)?;
            if entry.shared > len_before {
                return malformed(at, "an entry shares more than the key before has");
            }
            len_before = entry.shared + entry.suffix.len();
            // Sharing more than `matched` means sharing the byte that made the key before smaller.
            if entry.shared <= matched {
                let suffix = &self.data[entry.suffix.clone()];
                let open = &target[entry.shared..];
                let same = common_prefix(suffix, open);
                match suffix.get(same).cmp(&open.get(same)) {
                    Ordering::Less => matched = entry.shared + same,
                    Ordering::Equal => return Ok(Some(entry.value())),
                    Ordering::Greater => return Ok(None),
                }
            }
            at = entry.value_end;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_legal_number_is_read_from_its_varint(number in any::<u64>(), shift in 0u32..64) {
            let number = number >> shift;
            let mut bytes = vec![7];
            put_varint(&mut bytes, number);
            prop_assert_eq!(varint(&bytes, 1), Some((number, bytes.len())));
            prop_assert_eq!(varint(&bytes[..bytes.len() - 1], 1), None);
        }

        #[test]
        fn the_common_prefix_is_the_longest(
            a in prop::collection::vec(0u8..2, 0..40),
            b in prop::collection::vec(0u8..2, 0..40),
            cut in 0usize..40,
        ) {
            let b = [&a[..cut.min(a.len())], &b].concat();
            let wanted = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
            prop_assert_eq!(common_prefix(&a, &b), wanted);
        }
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_refused() {
        assert_eq!(varint(&[0xff; 11], 0), None);
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(varint(&most, 0), Some((u64::MAX, 10)));
        let over = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(varint(&over, 0), None);
    }

    #[test]
    fn a_block_whose_restarts_do_not_fit_is_refused() {
        let mut builder = BlockBuilder::new(1);
        builder.add(b"a", 1, |out| out.push(1));
        builder.add(b"b", 1, |out| out.push(2));
        let whole = builder.finish().to_vec();
        assert!(Block::parse(whole.clone().into()).is_ok());
        let end = whole.len();
        for (at, value) in [
            (end - 4, 0),
            (end - 4, 3),
            (end - 4, 0xff),
            (end - 8, 0),
            (end - 8, 200),
            (end - 12, 1),
        ] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            assert!(Block::parse(bytes.into()).is_err(), "{value} at {at}");
        }
    }
}
