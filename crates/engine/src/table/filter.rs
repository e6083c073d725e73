//! Blocked Bloom filters: one cache line answers "surely absent" or "perhaps".
//!
//! ```text
//! payload  | line: 64 bytes | line | … | probes u8 |
//! hash     xxh3-64 of the stored key, split: high 32 bits choose the line (times lines, >> 32),
//!          low 32 bits make the probes: bit = top 9 bits; then multiply by 0x9e3779b9, and again
//! ```
//!
//! Invariants
//! 1. A key that was added is never answered with "absent".
//! 2. Any bytes that `parse` accepts can be asked without a panic.
//!
//! Not here: where filters are kept (`cache.rs`), when a partition is closed (`writer.rs`).
//! See: Putze, Sanders and Singler, "Cache-, hash- and space-efficient Bloom filters", 2007.

use super::block::{BlockResult, MalformedBlock};

const LINE_BYTES: usize = 64;
const LINE_BITS: usize = LINE_BYTES * 8;
const PROBES_MAX: u8 = 16;

/// One cache line of bits.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct CacheLine([u64; LINE_BYTES / 8]);

/// The filter of one partition, in memory.
#[derive(Debug)]
pub(crate) struct Filter {
    lines: Box<[CacheLine]>,
    probes: u8,
}

/// Line and first probe state of a key.
fn split(hash: u64, lines: usize) -> (usize, u32) {
    let line = ((hash >> 32) * lines as u64) >> 32;
    (line as usize, hash as u32)
}

fn bits(mut state: u32, probes: u8) -> impl Iterator<Item = (usize, u64)> {
    (0..probes).map(move |_| {
        let bit = (state >> (32 - 9)) as usize;
        state = state.wrapping_mul(0x9e37_79b9);
        (bit / 64, 1u64 << (bit % 64))
    })
}

/// The payload of a filter that holds `hashes`. Requires: both are not zero.
pub(super) fn build(hashes: &[u64], bits_per_key: usize) -> Vec<u8> {
    let probes = (bits_per_key * 69 / 100).clamp(1, usize::from(PROBES_MAX)) as u8;
    let count = (hashes.len() * bits_per_key).div_ceil(LINE_BITS).max(1);
    let mut lines = vec![CacheLine([0; LINE_BYTES / 8]); count];
    for &hash in hashes {
        let (line, state) = split(hash, count);
        for (word, mask) in bits(state, probes) {
            lines[line].0[word] |= mask;
        }
    }
    let mut out = Vec::with_capacity(count * LINE_BYTES + 1);
    for line in &lines {
        for word in line.0 {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
    out.push(probes);
    out
}

impl Filter {
    /// Takes a payload as a filter.
    pub(super) fn parse(payload: &[u8]) -> BlockResult<Filter> {
        let Some((&probes, lines)) = payload.split_last() else {
            return Err(MalformedBlock {
                at: 0,
                what: "a filter is empty",
            });
        };
        if probes == 0 || probes > PROBES_MAX {
            return Err(MalformedBlock {
                at: payload.len() - 1,
                what: "a filter has 1 to 16 probes",
            });
        }
        let (lines, []) = lines.as_chunks::<LINE_BYTES>() else {
            return Err(MalformedBlock {
                at: 0,
                what: "a filter is made of lines of 64 bytes",
            });
        };
        if lines.is_empty() {
            return Err(MalformedBlock {
                at: 0,
                what: "a filter has at least one line",
            });
        }
        let lines = lines
            .iter()
            .map(|line| {
                let (words, _) = line.as_chunks::<8>();
                CacheLine(std::array::from_fn(|i| u64::from_le_bytes(words[i])))
            })
            .collect();
        Ok(Filter { lines, probes })
    }

    /// May the key with this hash be in the partition?
    pub(super) fn may_hold(&self, hash: u64) -> bool {
        let (line, state) = split(hash, self.lines.len());
        let line = &self.lines[line].0;
        bits(state, self.probes).all(|(word, mask)| line[word] & mask != 0)
    }

    /// A filter of about `bytes` bytes, for tests of the cache.
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: usize) -> Filter {
        Filter {
            lines: vec![CacheLine([0; LINE_BYTES / 8]); bytes / LINE_BYTES].into(),
            probes: 1,
        }
    }

    /// Memory it holds.
    pub(crate) fn charge(&self) -> usize {
        self.lines.len() * LINE_BYTES + size_of::<Filter>() + 16
    }
}

#[cfg(test)]
mod tests {
    use super::super::key_hash;
    use super::*;

    fn hashes(range: std::ops::Range<u64>) -> Vec<u64> {
        range
            .map(|i| key_hash(format!("key-{i}").as_bytes()))
            .collect()
    }

    /// False answers among 100,000 absent keys, in hundredths of a percent.
    fn false_answers(bits_per_key: usize, keys: u64) -> usize {
        let filter = Filter::parse(&build(&hashes(0..keys), bits_per_key)).expect("just built");
        let absent = hashes(1_000_000..1_100_000);
        absent.into_iter().filter(|&h| filter.may_hold(h)).count() / 10
    }

    #[test]
    fn ten_bits_per_key_answer_falsely_about_once_in_a_hundred() {
        for keys in [1000, 8000, 100_000] {
            let found = false_answers(10, keys);
            assert!(
                (40..=130).contains(&found),
                "{found} of 10,000 with {keys} keys"
            );
        }
    }

    #[test]
    fn more_bits_answer_falsely_less_often() {
        let found = [2, 5, 10, 16].map(|bits| false_answers(bits, 10_000));
        assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
    }

    #[test]
    fn a_key_that_was_added_is_never_absent() {
        for (bits_per_key, keys) in [(1, 5000), (10, 1), (10, 5000), (30, 5000), (200, 50)] {
            let added = hashes(0..keys);
            let filter = Filter::parse(&build(&added, bits_per_key)).expect("just built");
            assert!(added.iter().all(|&h| filter.may_hold(h)));
        }
    }
}
