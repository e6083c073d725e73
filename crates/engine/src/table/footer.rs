//! The end of a table file, from which everything else is found.
//!
//! ```text
//! footer, 64 bytes, little-endian
//!  0 table id u64      8 file bytes u64     16 top offset u64     24 properties offset u64
//! 32 top bytes u32    36 properties u32     40 algorithms 4 × u8  44 zero u32
//! 48 crc32 u32        52 format u32         56 magic "DENDRTBL"
//! algorithms   checksum (1 crc32), digest (1 xxh3-64), filter (0 none, 1 blocked bloom), order (0)
//! ```
//!
//! Invariants
//! 1. The last 16 bytes (crc over the other 60, format, magic) keep their place in every format.
//! 2. Every bit of the footer is covered by its crc.
//!
//! Not here: which facts the manifest repeats (`meta.rs`).
//! See: docs/format/table.md.

use super::TableMeta;
use super::block::{Block, BlockBuilder};
use super::cursor::BlockCursor;
use super::frame::Handle;
use dendra_base::{CellRef, Direction, Kind as CellKind, Version};
use std::ops::Bound;
use std::sync::Arc;

/// Length of the footer.
pub(super) const FOOTER_BYTES: usize = 64;
/// The format that this program writes.
pub(super) const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"DENDRTBL";
const ALGORITHM_CRC32: u8 = 1;
const ALGORITHM_XXH3_64: u8 = 1;
const ALGORITHM_BLOCKED_BLOOM: u8 = 1;
const ORDER_BYTEWISE: u8 = 0;

/// The fixed end of a table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) id: u64,
    pub(super) file_bytes: u64,
    pub(super) top: Handle,
    pub(super) properties: Handle,
    pub(super) has_filters: bool,
}

/// Why the last 64 bytes of a file are not a footer.
#[derive(Debug)]
pub(super) enum NotAFooter {
    /// The bytes are not those of a writer.
    Damaged(String),
    /// The bytes are sound, and this program does not know the format or an algorithm that they
    /// name.
    Unknown(String),
}

impl Footer {
    pub(super) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = [0; FOOTER_BYTES];
        out[0..8].copy_from_slice(&self.id.to_le_bytes());
        out[8..16].copy_from_slice(&self.file_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.top.offset.to_le_bytes());
        out[24..32].copy_from_slice(&self.properties.offset.to_le_bytes());
        out[32..36].copy_from_slice(&self.top.bytes.to_le_bytes());
        out[36..40].copy_from_slice(&self.properties.bytes.to_le_bytes());
        out[40] = ALGORITHM_CRC32;
        out[41] = ALGORITHM_XXH3_64;
        out[42] = if self.has_filters {
            ALGORITHM_BLOCKED_BLOOM
        } else {
            0
        };
        out[43] = ORDER_BYTEWISE;
        out[52..56].copy_from_slice(&FORMAT.to_le_bytes());
        out[56..64].copy_from_slice(&MAGIC);
        let crc = crc(&out);
        out[48..52].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8; FOOTER_BYTES]) -> Result<Footer, NotAFooter> {
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let damaged = |reason: String| Err(NotAFooter::Damaged(reason));
        if bytes[56..] != MAGIC {
            return damaged("the file does not end like a table".to_owned());
        }
        let (expected, found) = (u32_at(48), crc(bytes));
        if expected != found {
            return damaged(format!(
                "checksum of the footer is {found:08x}, written was {expected:08x}"
            ));
        }
        if u32_at(52) != FORMAT {
            return Err(NotAFooter::Unknown(format!("table format {}", u32_at(52))));
        }
        let [checksum, digest, filter, order] = [bytes[40], bytes[41], bytes[42], bytes[43]];
        if (checksum, digest, order) != (ALGORITHM_CRC32, ALGORITHM_XXH3_64, ORDER_BYTEWISE)
            || filter > ALGORITHM_BLOCKED_BLOOM
        {
            return Err(NotAFooter::Unknown(format!(
                "algorithms (checksum {checksum}, digest {digest}, filter {filter}, order {order})"
            )));
        }
        if u32_at(44) != 0 {
            return damaged("bytes of the footer that must be zero are not".to_owned());
        }
        Ok(Footer {
            id: u64_at(0),
            file_bytes: u64_at(8),
            top: Handle {
                offset: u64_at(16),
                bytes: u32_at(32),
            },
            properties: Handle {
                offset: u64_at(24),
                bytes: u32_at(36),
            },
            has_filters: filter == ALGORITHM_BLOCKED_BLOOM,
        })
    }
}

fn crc(footer: &[u8; FOOTER_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&footer[..48]);
    hasher.update(&footer[52..]);
    hasher.finalize()
}

/// How many properties format 1 has.
const NAMES: u32 = 12;

/// Facts about a table, stored under their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Properties {
    pub(super) records: u64,
    pub(super) tombstones: u64,
    pub(super) expiring: u64,
    /// Earliest expiry of any record, wall milliseconds; `u64::MAX` = none expires.
    pub(super) expiry_ms_min: u64,
    /// Bytes of all keys and encoded cells.
    pub(super) raw_bytes: u64,
    pub(super) blocks: u64,
    pub(super) partitions: u64,
    pub(super) filter_bits_per_key: u64,
    pub(super) version_min: Version,
    pub(super) version_max: Version,
    pub(super) smallest: Vec<u8>,
    pub(super) largest: Vec<u8>,
}

impl Properties {
    /// Properties of a table without records.
    pub(super) fn none(filter_bits_per_key: u64) -> Properties {
        Properties {
            expiry_ms_min: u64::MAX,
            filter_bits_per_key,
            version_min: Version::MAX,
            ..Properties::default()
        }
    }

    /// Counts the next record in the order of keys.
    pub(super) fn count(&mut self, key: &[u8], cell: &CellRef<'_>) {
        if self.records == 0 {
            self.smallest = key.to_vec();
        }
        self.records += 1;
        self.tombstones += u64::from(cell.kind == CellKind::Tombstone);
        if let Some(expiry_ms) = cell.expiry_ms {
            self.expiring += 1;
            self.expiry_ms_min = self.expiry_ms_min.min(expiry_ms);
        }
        self.raw_bytes += (key.len() + cell.encoded_len()) as u64;
        self.version_min = self.version_min.min(cell.version);
        self.version_max = self.version_max.max(cell.version);
        self.largest.clear();
        self.largest.extend_from_slice(key);
    }

    /// The facts that the manifest repeats, of a file of `bytes` bytes.
    pub(super) fn meta(&self, id: u64, bytes: u64, digest: u64) -> TableMeta {
        TableMeta {
            id,
            bytes,
            digest,
            records: self.records,
            tombstones: self.tombstones,
            expiring: self.expiring,
            smallest: self.smallest.clone(),
            largest: self.largest.clone(),
            version_min: self.version_min,
            version_max: self.version_max,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let number = |n: u64| n.to_le_bytes().to_vec();
        let mut named = [
            ("blocks", number(self.blocks)),
            ("expiring", number(self.expiring)),
            ("expiry_ms_min", number(self.expiry_ms_min)),
            ("filter_bits_per_key", number(self.filter_bits_per_key)),
            ("largest", self.largest.clone()),
            ("partitions", number(self.partitions)),
            ("raw_bytes", number(self.raw_bytes)),
            ("records", number(self.records)),
            ("smallest", self.smallest.clone()),
            ("tombstones", number(self.tombstones)),
            ("version_max", self.version_max.to_bytes().to_vec()),
            ("version_min", self.version_min.to_bytes().to_vec()),
        ];
        named.sort();
        let mut block = BlockBuilder::new(super::block::RESTART_INTERVAL);
        for (name, value) in &named {
            block.add(name.as_bytes(), value.len(), |out| {
                out.extend_from_slice(value)
            });
        }
        block.finish().to_vec()
    }

    /// Reads the facts this program knows and skips the others; the reason when one is missing.
    pub(super) fn decode(block: Block) -> Result<Properties, String> {
        let mut out = Properties::default();
        let mut known = 0u32;
        let mut cursor = BlockCursor::new();
        let what = |m: super::block::MalformedBlock| m.what.to_owned();
        cursor
            .seek(Arc::new(block), Bound::Unbounded, Direction::Forward)
            .map_err(what)?;
        while let Some((name, value)) = cursor.current() {
            let bit = match name {
                b"blocks" if number(value, &mut out.blocks) => 0,
                b"expiring" if number(value, &mut out.expiring) => 1,
                b"expiry_ms_min" if number(value, &mut out.expiry_ms_min) => 2,
                b"filter_bits_per_key" if number(value, &mut out.filter_bits_per_key) => 3,
                b"largest" if key(value, &mut out.largest) => 4,
                b"partitions" if number(value, &mut out.partitions) => 5,
                b"raw_bytes" if number(value, &mut out.raw_bytes) => 6,
                b"records" if number(value, &mut out.records) => 7,
                b"smallest" if key(value, &mut out.smallest) => 8,
                b"tombstones" if number(value, &mut out.tombstones) => 9,
                b"version_max" if version(value, &mut out.version_max) => 10,
                b"version_min" if version(value, &mut out.version_min) => 11,
                _ => NAMES,
            };
            known |= 1 << bit;
            cursor.advance().map_err(what)?;
        }
        let missing = NAMES - (known & ((1 << NAMES) - 1)).count_ones();
        if missing == 0 {
            Ok(out)
        } else {
            Err(format!("{missing} of {NAMES} properties are missing"))
        }
    }
}

fn number(value: &[u8], out: &mut u64) -> bool {
    value
        .try_into()
        .map(|bytes| *out = u64::from_le_bytes(bytes))
        .is_ok()
}

fn version(value: &[u8], out: &mut Version) -> bool {
    value
        .try_into()
        .map(|bytes| *out = Version::from_bytes(bytes))
        .is_ok()
}

fn key(value: &[u8], out: &mut Vec<u8>) -> bool {
    let is_key = !value.is_empty() && value.len() <= dendra_base::limits::STORED_KEY_BYTES_MAX;
    if is_key {
        value.clone_into(out);
    }
    is_key
}
