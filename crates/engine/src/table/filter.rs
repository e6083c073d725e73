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

use super::block::{Malformed, Parsed};

const LINE_BYTES: usize = 64;
const LINE_BITS: usize = LINE_BYTES * 8;
const PROBES_MAX: u8 = 16;

/// One cache line of bits.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u64; LINE_BYTES / 8]);

/// The filter of one partition, in memory.
#[derive(Debug)]
pub(crate) struct Filter {
    lines: Box<[Line]>,
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
    let mut lines = vec![Line([0; LINE_BYTES / 8]); count];
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
    pub(super) fn parse(payload: &[u8]) -> Parsed<Filter> {
        let Some((&probes, lines)) = payload.split_last() else {
            return Err(Malformed {
                at: 0,
                what: "a filter is empty",
            });
        };
        if probes == 0 || probes > PROBES_MAX {
            return Err(Malformed {
                at: payload.len() - 1,
                what: "a filter has 1 to 16 probes",
            });
        }
        let (lines, []) = lines.as_chunks::<LINE_BYTES>() else {
            return Err(Malformed {
                at: 0,
                what: "a filter is made of lines of 64 bytes",
            });
        };
        if lines.is_empty() {
            return Err(Malformed {
                at: 0,
                what: "a filter has at least one line",
            });
        }
        let lines = lines
            .iter()
            .map(|line| {
                let (words, _) = line.as_chunks::<8>();
                Line(std::array::from_fn(|i| u64::from_le_bytes(words[i])))
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

    /// Memory it holds.
    pub(crate) fn charge(&self) -> usize {
        self.lines.len() * LINE_BYTES + size_of::<Filter>() + 16
    }
}
