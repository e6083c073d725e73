//! The side table of a block that is read again and again: which entry may hold a key.
//!
//! ```text
//! tags    | tag 16, offset 16 | tag 16, offset 16 | …     one for each entry, in order
//!   tag     low 16 bits of the key's hash (`key_hash`)
//!
//! read    tags (one or two cache lines) ─► the entry ─► entries before it, while it shares bytes
//! ```
//!
//! Invariants
//! 1. A tag only points: an entry is given out when every byte of its key is the target's.
//! 2. The block answers with and without tags alike. Without them a read decodes about seven
//!    entries, each a cache line that is not there yet; with them one to four.
//! 3. Tags never hold more than [`Block::tags_charge`] says, which counts from the beginning.
//!
//! Not here: when a block is worth its tags (`reader.rs`).
//! See: docs/decisions/0012-guides-and-tags.md.

use super::block::{Block, BlockResult, RESTART_INTERVAL, TAGS_INLINE, Tags, malformed};
use super::key_hash;
use std::ops::Range;

/// Above this a search by halves looks at fewer entries than a walk over tags looks at tags.
const TAGGED_LEN_MAX: usize = 256;

fn tag(hash: u64) -> u32 {
    hash as u32 & 0xffff
}

/// The first entry from `from` on that has the tag `wanted`. Mostly none of eight has it, which one
/// wide comparison sees.
fn next_place(tags: &[u32], from: usize, wanted: u32) -> Option<usize> {
    let is_wanted = |entry: &u32| *entry >> 16 == wanted;
    let is_without =
        |part: &&[u32; 8]| !part.iter().fold(false, |any, entry| any | is_wanted(entry));
    let rest = &tags[from..];
    let (parts, _) = rest.as_chunks::<8>();
    let skipped = 8 * parts.iter().take_while(is_without).count();
    let behind = rest[skipped..].iter().position(is_wanted)?;
    Some(from + skipped + behind)
}

impl Block {
    /// Memory that the tags of this block may come to hold.
    pub(super) fn tags_charge(&self) -> usize {
        match self.entries_max() {
            0..=TAGS_INLINE => 0,
            more => size_of::<u32>() * more,
        }
    }

    /// Entries of a block that a writer made; with more, it gets no tags.
    fn entries_max(&self) -> usize {
        (self.restarts() * RESTART_INTERVAL).min(TAGGED_LEN_MAX)
    }

    /// Finds an entry in a block that was found in the cache. `hash` is [`key_hash`] of `target`.
    pub(super) fn find_tagged(
        &self,
        target: &[u8],
        hash: u64,
    ) -> BlockResult<Option<Range<usize>>> {
        let tags = self.tags.get_or_init(|| self.make_tags());
        if tags.is_empty() {
            return self.find(target);
        }
        let wanted = tag(hash);
        let mut from = 0;
        while let Some(i) = next_place(tags, from, wanted) {
            if let Some(value) = self.value_if_key(tags, i, target)? {
                return Ok(Some(value));
            }
            from = i + 1;
        }
        Ok(None)
    }

    /// The value of entry `i` when its key is `target`: compared from its end, since each entry
    /// says which bytes it does not have itself.
    fn value_if_key(
        &self,
        tags: &[u32],
        i: usize,
        target: &[u8],
    ) -> BlockResult<Option<Range<usize>>> {
        let offset = |entry: usize| (tags[entry] & 0xffff) as usize;
        let entry = self.entry(offset(i))?;
        if entry.shared + entry.suffix.len() != target.len()
            || self.slice(entry.suffix.clone()) != &target[entry.shared..]
        {
            return Ok(None);
        }
        let mut open = entry.shared;
        for before in (0..i).rev() {
            if open == 0 {
                break;
            }
            let at = offset(before);
            let earlier = self.entry(at)?;
            if earlier.shared < open {
                let suffix = self.slice(earlier.suffix);
                let Some(part) = suffix.get(..open - earlier.shared) else {
                    return malformed(at, "an entry shares more than the key before has");
                };
                if part != &target[earlier.shared..open] {
                    return Ok(None);
                }
                open = earlier.shared;
            }
        }
        if open > 0 {
            return malformed(0, "a restart shares bytes with the entry before");
        }
        Ok(Some(entry.value()))
    }

    /// Empty when the block is too large for them, or malformed: then `find` says so.
    fn make_tags(&self) -> Tags {
        let mut tags = Tags::with_capacity(self.entries_max());
        let mut key = Vec::new();
        let mut at = 0;
        while at < self.entries_end() {
            let (Ok(entry), Ok(offset)) = (self.entry(at), u16::try_from(at)) else {
                return Tags::default();
            };
            if entry.shared > key.len() || tags.len() == self.entries_max() {
                return Tags::default();
            }
            key.truncate(entry.shared);
            key.extend_from_slice(self.slice(entry.suffix.clone()));
            tags.push(tag(key_hash(&key)) << 16 | u32::from(offset));
            at = entry.value_end;
        }
        tags
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::BlockBuilder;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn block_of(model: &BTreeMap<Vec<u8>, Vec<u8>>, interval: usize) -> Block {
        let mut builder = BlockBuilder::new(interval);
        for (key, value) in model {
            builder.add(key, value.len(), |out| out.extend_from_slice(value));
        }
        Block::parse(builder.finish().into()).expect("just built")
    }

    fn ask(block: &Block, key: &[u8]) -> Option<Vec<u8>> {
        let found = block.find_tagged(key, key_hash(key)).expect("just built");
        let plain = block.find(key).expect("just built");
        assert_eq!(found, plain, "with and without tags");
        found.map(|range| block.slice(range).to_vec())
    }

    proptest! {
        #[test]
        fn the_next_place_is_the_one_that_a_walk_finds(
            tags in prop::collection::vec(0u32..6, 0..40),
            wanted in 0u32..6,
            from in 0usize..40,
        ) {
            let tags: Vec<u32> = tags.iter().map(|tag| tag << 16 | 7).collect();
            let from = from.min(tags.len());
            let place = (from..tags.len()).find(|&i| tags[i] >> 16 == wanted);
            prop_assert_eq!(next_place(&tags, from, wanted), place);
        }

        #[test]
        fn a_tagged_block_answers_as_its_model(
            model in prop::collection::btree_map(
                prop::collection::vec(0u8..3, 1..8),
                prop::collection::vec(any::<u8>(), 0..200),
                1..60,
            ),
            asked in prop::collection::vec(prop::collection::vec(0u8..3, 1..8), 0..40),
            interval in 1usize..6,
        ) {
            let block = block_of(&model, interval);
            for key in model.keys().chain(&asked) {
                prop_assert_eq!(ask(&block, key), model.get(key).cloned());
            }
            let tags = block.tags.get().expect("asked above");
            // An interval above the writers' own may hold more entries than were charged for.
            prop_assert!(!tags.is_empty() || interval > RESTART_INTERVAL);
            prop_assert!(!tags.spilled() || size_of_val(&tags[..]) <= block.tags_charge());
        }
    }

    #[test]
    fn a_tag_of_another_key_gives_nothing_out() {
        let model: BTreeMap<_, _> = (0..8u8)
            .map(|i| (vec![b'k', b'0', b'0' + i, b'z'], vec![i]))
            .collect();
        let block = block_of(&model, RESTART_INTERVAL);
        for key in model.keys() {
            // The tag is the key's, one byte is not: at each place that an entry may share.
            for at in 0..key.len() {
                let mut other = key.clone();
                other[at] ^= 0x40;
                let found = block.find_tagged(&other, key_hash(key));
                assert_eq!(found, Ok(None), "{key:?} with byte {at} changed");
            }
        }
    }

    #[test]
    fn a_block_of_many_entries_or_of_one_huge_one_is_found_without_tags() {
        let many: BTreeMap<_, _> = (0..2000u32)
            .map(|i| (i.to_be_bytes().to_vec(), vec![7]))
            .collect();
        let huge: BTreeMap<_, _> = [(b"a".to_vec(), vec![1; 100_000]), (b"b".to_vec(), vec![2])]
            .into_iter()
            .collect();
        for model in [many, huge] {
            let block = block_of(&model, RESTART_INTERVAL);
            for (key, value) in &model {
                assert_eq!(ask(&block, key).as_ref(), Some(value));
            }
            assert_eq!(block.tags.get().map(|tags| tags.len()), Some(0));
        }
    }
}
