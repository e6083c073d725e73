//! The full check of a table: every byte and every promise, for `dendra check` and for the output of
//! a compaction before its inputs go.
//!
//! ```text
//! digest of the file ─► partitions tile the file ─► blocks tile the partition
//!   ─► checksums ─► keys rise, stay below separators ─► each key passes its filter and is found
//!   ─► newest versions ─► counts and bounds equal properties and manifest
//! ```
//!
//! Invariants
//! 1. A table that passes answers every point read and every scan rightly.
//!
//! Not here: whether values are what clients stored (`CellRef::is_intact`, the caller's to ask).
//! See: docs/format/table.md.

use super::block::Block;
use super::cursor::BlockCursor;
use super::footer::Properties;
use super::frame::{Handle, Kind};
use super::index::{IndexBlock, Partition};
use super::{Filter, Table, key_hash};
use crate::engine::Direction;
use crate::vfs::Wait;
use crate::{Error, Result};
use dendra_base::{CellRef, Kind as CellKind, Version};
use std::ops::Bound;
use std::sync::Arc;

/// What was seen so far.
struct Seen {
    properties: Properties,
    last_key: Vec<u8>,
}

impl Table {
    /// Reads everything and compares it with everything else. Each record is shown to `on_record`,
    /// in order, before the table as a whole has passed; an error of it ends the check.
    pub fn verify(
        &self,
        mut on_record: impl FnMut(&[u8], CellRef<'_>) -> Result<()>,
    ) -> Result<()> {
        let digest = self.digest()?;
        let mut seen = Seen {
            properties: Properties {
                records: 0,
                tombstones: 0,
                expiring: 0,
                expiry_ms_min: u64::MAX,
                raw_bytes: 0,
                blocks: 0,
                partitions: self.top.len() as u64,
                filter_bits_per_key: self.properties.filter_bits_per_key,
                version_min: Version::MAX,
                version_max: Version::ZERO,
                smallest: Vec::new(),
                largest: Vec::new(),
            },
            last_key: Vec::new(),
        };
        for i in 0..self.top.len() {
            self.verify_partition(i, &mut seen, &mut on_record)?;
        }
        seen.properties.largest = seen.last_key;
        if seen.properties != self.properties {
            let reason = format!(
                "the records amount to {:?}, the properties say {:?}",
                seen.properties, self.properties
            );
            return Err(self.damaged(self.footer.properties.offset, reason));
        }
        // Last, because a damaged block is the better message when there is one.
        if digest != self.meta.digest {
            let reason = format!(
                "the digest of the file is {digest:016x}, the manifest says {:016x}",
                self.meta.digest
            );
            return Err(self.damaged(0, reason));
        }
        Ok(())
    }

    fn verify_partition(
        &self,
        i: usize,
        seen: &mut Seen,
        on_record: &mut impl FnMut(&[u8], CellRef<'_>) -> Result<()>,
    ) -> Result<()> {
        let partition = self.top.partition(i);
        let index = self.read_block(Kind::Index, partition.index, Wait::Block)?;
        let index = IndexBlock(Arc::new(index));
        let filter = match partition.filter {
            Some(handle) => Some(self.read_filter(handle, Wait::Block)?),
            None => None,
        };
        let data = self.top.data(i);
        let mut offset = data.start;
        let mut version_max = Version::ZERO;
        for entry in 0..index.len() {
            let in_index = |m| self.malformed(Kind::Index, partition.index, m);
            let (separator, handle, version) = index.entry(entry).map_err(in_index)?;
            if handle.offset != offset || handle.end() > data.end {
                return Err(self.damaged(offset, "the index has no block that starts here"));
            }
            offset = handle.end();
            let found = self.verify_block(handle, filter.as_ref(), seen, on_record)?;
            if found != version {
                return Err(self.damaged(handle.offset, "the index has another newest version"));
            }
            if seen.last_key.as_slice() > separator {
                return Err(self.damaged(handle.offset, "a key is above the block's separator"));
            }
            version_max = version_max.max(version);
            // The next block's keys must be above the separator, not only above the last key.
            if entry + 1 < index.len() || i + 1 < self.top.len() {
                separator.clone_into(&mut seen.last_key);
            }
        }
        self.verify_ends(i, partition, offset, version_max, &index)
    }

    fn verify_ends(
        &self,
        i: usize,
        partition: &Partition,
        offset: u64,
        version_max: Version,
        index: &IndexBlock,
    ) -> Result<()> {
        let in_index = |m| self.malformed(Kind::Index, partition.index, m);
        if offset != self.top.data(i).end {
            return Err(self.damaged(offset, "the index has no block that starts here"));
        }
        if version_max != partition.version_max {
            let reason = "the top index has another newest version";
            return Err(self.damaged(partition.index.offset, reason));
        }
        let (last, _, _) = index.entry(index.len() - 1).map_err(in_index)?;
        if last != self.top.key(i) {
            let reason = "the top index has another last key";
            return Err(self.damaged(partition.index.offset, reason));
        }
        Ok(())
    }

    /// The newest version in the block.
    fn verify_block(
        &self,
        handle: Handle,
        filter: Option<&Filter>,
        seen: &mut Seen,
        on_record: &mut impl FnMut(&[u8], CellRef<'_>) -> Result<()>,
    ) -> Result<Version> {
        let in_block = |m| self.malformed(Kind::Data, handle, m);
        let block: Arc<Block> = Arc::new(self.read_block(Kind::Data, handle, Wait::Block)?);
        let mut cursor = BlockCursor::new();
        cursor
            .seek(Arc::clone(&block), Bound::Unbounded, Direction::Forward)
            .map_err(in_block)?;
        let mut version_max = Version::ZERO;
        while let Some((key, value)) = cursor.current() {
            let Some(cell) = CellRef::decode(value) else {
                return Err(self.not_a_cell(handle));
            };
            if key <= seen.last_key.as_slice() {
                return Err(self.damaged(handle.offset, "the keys of the table do not rise"));
            }
            if filter.is_some_and(|filter| !filter.may_hold(key_hash(key))) {
                return Err(self.damaged(handle.offset, "a key does not pass its own filter"));
            }
            let found = block.find(key).map_err(in_block)?;
            if found.map(|range| block.slice(range)) != Some(value) {
                return Err(self.damaged(handle.offset, "a key is not found in its block"));
            }
            seen.count(key, cell);
            version_max = version_max.max(cell.version);
            on_record(key, cell)?;
            cursor.advance().map_err(in_block)?;
        }
        seen.properties.blocks += 1;
        Ok(version_max)
    }

    fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::damaged(self.name(), offset, reason)
    }
}

impl Seen {
    fn count(&mut self, key: &[u8], cell: CellRef<'_>) {
        let properties = &mut self.properties;
        if properties.records == 0 {
            properties.smallest = key.to_vec();
        }
        properties.records += 1;
        properties.tombstones += u64::from(cell.kind == CellKind::Tombstone);
        properties.expiring += u64::from(cell.expiry_ms.is_some());
        let expiry_ms = cell.expiry_ms.unwrap_or(u64::MAX);
        properties.expiry_ms_min = properties.expiry_ms_min.min(expiry_ms);
        properties.raw_bytes += (key.len() + cell.encoded_len()) as u64;
        properties.version_min = properties.version_min.min(cell.version);
        properties.version_max = properties.version_max.max(cell.version);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }
}
