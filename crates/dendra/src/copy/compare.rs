//! Are both stores equal? All records of both, side by side, byte by byte.
//!
//! ```text
//! scan of FROM ─┐                    equal     ─► both digests
//!               ├─► key after key ───┤
//! scan of TO   ─┘                    different ─► both are read again ─► equal, or a finding
//! ```
//!
//! Invariants
//! 1. A digest is SHA-256 over `u32 key length, key, u32 value length, value`, big-endian, of all
//!    records in the order of their keys, each value as it is stored with its metadata. Equal
//!    stores have equal digests, and each is computed from the bytes of its own store.
//! 2. Memory is one record of each store, and the findings that are kept.
//!
//! Not here: versions and times to live (`round.rs`).
//! See: docs/moving.md.

use super::records::{CopyRange, RecordFlow, WantedPart};
use super::round::Unequal;
use super::settle::CopyStores;
use crate::exit::Failure;
use bytes::Bytes;
use indicatif::ProgressBar;
use sha2::{Digest, Sha256};

/// One store's records.
#[derive(Debug, Default)]
pub(super) struct StoreContent {
    pub(super) records: u64,
    pub(super) bytes: u64,
    hash: Sha256,
}

/// The findings of a comparison.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) from: StoreContent,
    pub(super) to: StoreContent,
    /// Number of all findings.
    pub(super) count: u64,
    pub(super) findings: Vec<Unequal>,
}

impl StoreContent {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        for part in [key, value] {
            let len = u32::try_from(part.len()).expect("an answer is at most 8 MiB");
            self.hash.update(len.to_be_bytes());
            self.hash.update(part);
            self.bytes += part.len() as u64;
        }
        self.records += 1;
    }

    /// The digest, as hexadecimal digits.
    pub(super) fn digest(&self) -> String {
        let digest = self.hash.clone().finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Compares the range; keeps at most `most` findings.
pub(super) async fn compare(
    shared: &CopyStores,
    range: &CopyRange,
    most: usize,
    bar: &ProgressBar,
) -> Result<Comparison, Failure> {
    let mut from = RecordFlow::new(&shared.from, range.clone(), WantedPart::Values);
    let mut to = RecordFlow::new(&shared.to, range.clone(), WantedPart::Values);
    let mut found = Comparison::default();
    let (mut a, mut b) = (from.next().await?, to.next().await?);
    loop {
        let key = match (&a, &b) {
            (None, None) => return Ok(found),
            (Some((key, _)), None) | (None, Some((key, _))) => key.clone(),
            (Some((a, _)), Some((b, _))) => a.min(b).clone(),
        };
        let of = |side: &Option<(Bytes, Bytes)>| {
            let here = side.as_ref().filter(|(k, _)| *k == key);
            here.map(|(_, value)| value.clone())
        };
        let (mut left, mut right) = (of(&a), of(&b));
        let (has_left, has_right) = (left.is_some(), right.is_some());
        if left != right {
            // Scans are of different moments, and records end: only a second look counts.
            let (from_now, to_now) = (shared.from.get(&key).await?, shared.to.get(&key).await?);
            let is_ending = match (&from_now, &to_now) {
                (Some((head, _)), None) | (None, Some((head, _))) => {
                    shared.ends_now(&key, head.expires_ms).await?
                }
                _ => false,
            };
            left = from_now.map(|(_, value)| value);
            right = to_now.map(|(_, value)| value);
            let what = match (&left, &right) {
                (one, other) if one == other => None,
                // One of them has ended a moment before the other.
                (None, _) | (_, None) if is_ending => {
                    (left, right) = (None, None);
                    None
                }
                (Some(_), None) => Some("only at FROM"),
                (None, _) => Some("only at TO"),
                _ => Some("another value"),
            };
            if let Some(what) = what {
                found.count += 1;
                if found.findings.len() < most {
                    let key = key.to_vec();
                    found.findings.push(Unequal { key, what });
                }
            }
        }
        for (content, value) in [(&mut found.from, left), (&mut found.to, right)] {
            if let Some(value) = value {
                content.add(&key, &value);
            }
        }
        shared.pace.take(key.len() as u64 + value_len(&a, &b)).await;
        bar.inc(key.len() as u64 + value_len(&a, &b));
        if has_left {
            a = from.next().await?;
        }
        if has_right {
            b = to.next().await?;
        }
    }
}

/// The longer value of the two records at hand.
fn value_len(a: &Option<(Bytes, Bytes)>, b: &Option<(Bytes, Bytes)>) -> u64 {
    let len = |side: &Option<(Bytes, Bytes)>| side.as_ref().map_or(0, |(_, v)| v.len() as u64);
    len(a).max(len(b))
}
