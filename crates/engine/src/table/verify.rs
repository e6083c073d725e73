//! The full check of a table: every byte and every promise, for `dendra check` and for the output
//! of a compaction before its inputs go.
//!
//! ```text
//! digest of the file ─► partitions tile the file ─► blocks tile the partition
//!   ─► checksums ─► keys rise, stay below separators ─► each key passes its filter and is found
//!   ─► newest versions ─► counts and bounds equal properties and manifest
//! ```
//!
//! Invariants
//! 1. A table that passes answers every point read and every scan rightly.
//! 2. One damaged block hides no other: the check goes on after it. It goes on after a filter that
//!    cannot be asked, and after an index whose blocks cannot be judged. The sums of the records,
//!    and the digest, are compared only when every block was read.
//!
//! Not here: whether values are those that clients stored (`CellRef::is_intact`, the caller's to
//! ask).
//! See: docs/format/table.md.

use super::block::Block;
use super::cursor::BlockCursor;
use super::filter::Filter;
use super::footer::Properties;
use super::frame::{FrameKind, Handle};
use super::index::{Index, TopEntry};
use super::{Table, key_hash};
use crate::vfs::Wait;
use crate::{Error, Result};
use dendra_base::{CellRef, Direction, Version};
use std::ops::Bound;
use std::sync::Arc;

/// The sums of the records seen so far.
struct RecordSums {
    properties: Properties,
    last_key: Vec<u8>,
    /// Was every block read?
    is_complete: bool,
}

impl Table {
    /// Reads everything and compares it with everything else, up to the first damage. Each record
    /// is shown to `on_record`, in order, before the table as a whole has passed; an error of it
    /// ends the check.
    pub fn verify(&self, on_record: impl FnMut(&[u8], CellRef<'_>) -> Result<()>) -> Result<()> {
        self.verify_all(on_record, Err)
    }

    /// Verifies like `verify`, but goes on after each damage that `on_damage` takes.
    pub fn verify_all(
        &self,
        mut on_record: impl FnMut(&[u8], CellRef<'_>) -> Result<()>,
        mut on_damage: impl FnMut(Error) -> Result<()>,
    ) -> Result<()> {
        let digest = self.digest()?;
        let mut seen = RecordSums {
            properties: Properties {
                partitions: self.top.len() as u64,
                ..Properties::none(self.properties.filter_bits_per_key)
            },
            last_key: Vec::new(),
            is_complete: true,
        };
        for i in 0..self.top.len() {
            self.verify_partition(i, &mut seen, &mut on_record, &mut on_damage)?;
        }
        if !seen.is_complete {
            return Ok(());
        }
        if seen.properties != self.properties {
            let reason = format!(
                "the records amount to {:?}, the properties say {:?}",
                seen.properties, self.properties
            );
            on_damage(self.damaged(self.footer.properties.offset, reason))?;
        }
        // Last, because a damaged block is the better message when there is one.
        if digest != self.meta.digest {
            let reason = format!(
                "the digest of the file is {digest:016x}, the manifest says {:016x}",
                self.meta.digest
            );
            on_damage(self.damaged(0, reason))?;
        }
        Ok(())
    }

    fn verify_partition(
        &self,
        i: usize,
        seen: &mut RecordSums,
        on_record: &mut impl FnMut(&[u8], CellRef<'_>) -> Result<()>,
        on_damage: &mut impl FnMut(Error) -> Result<()>,
    ) -> Result<()> {
        let partition = self.top.partition(i);
        let index = match self.read_index(i, Wait::Block) {
            Ok(index) => index,
            Err(error) => {
                seen.skip_to(self.top.key(i));
                return on_damage(error);
            }
        };
        let filter = partition
            .filter
            .map(|handle| self.read_filter(handle, Wait::Block));
        let filter = match filter.transpose() {
            Ok(filter) => filter,
            Err(error) => {
                seen.is_complete = false;
                on_damage(error)?;
                None
            }
        };
        let data = self.top.data(i);
        let mut offset = data.start;
        let mut version_max = Version::ZERO;
        for entry in 0..index.len() {
            let (handle, version) = index.block(entry);
            let separator = index.separator(entry);
            if handle.offset != offset || handle.end() > data.end {
                // From here on the index cannot be followed.
                seen.skip_to(self.top.key(i));
                return on_damage(self.damaged(offset, "the index has no block that starts here"));
            }
            offset = handle.end();
            version_max = version_max.max(version);
            let is_last = entry + 1 == index.len() && i + 1 == self.top.len();
            let block = self.verify_block(handle, filter.as_ref(), seen, on_record);
            let judged = block.and_then(|found| {
                if found != version {
                    return Err(self.damaged(handle.offset, "the index has another newest version"));
                }
                if seen.last_key.as_slice() > separator {
                    return Err(self.damaged(handle.offset, "a key is above the block's separator"));
                }
                Ok(())
            });
            match judged {
                Err(error) => {
                    seen.skip_to(separator);
                    on_damage(error)?;
                }
                // The next block's keys must be above the separator, not only above the last key.
                Ok(()) if !is_last => separator.clone_into(&mut seen.last_key),
                Ok(()) => {}
            }
        }
        let ends = self.verify_ends(i, partition, offset, version_max, &index);
        ends.or_else(on_damage)
    }

    fn verify_ends(
        &self,
        i: usize,
        partition: &TopEntry,
        offset: u64,
        version_max: Version,
        index: &Index,
    ) -> Result<()> {
        if offset != self.top.data(i).end {
            return Err(self.damaged(offset, "the index has no block that starts here"));
        }
        if version_max != partition.version_max {
            let reason = "the top index has another newest version";
            return Err(self.damaged(partition.index.offset, reason));
        }
        if index.separator(index.len() - 1) != self.top.key(i) {
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
        seen: &mut RecordSums,
        on_record: &mut impl FnMut(&[u8], CellRef<'_>) -> Result<()>,
    ) -> Result<Version> {
        let in_block = |m| self.malformed(FrameKind::Data, handle, m);
        let block: Arc<Block> = Arc::new(self.read_block(FrameKind::Data, handle, Wait::Block)?);
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
            let hash = key_hash(key);
            if filter.is_some_and(|filter| !filter.may_hold(hash)) {
                return Err(self.damaged(handle.offset, "a key does not pass its own filter"));
            }
            for found in [block.find(key), block.find_tagged(key, hash)] {
                let found = found.map_err(in_block)?;
                if found.map(|range| block.slice(range)) != Some(value) {
                    return Err(self.damaged(handle.offset, "a key is not found in its block"));
                }
            }
            seen.count(key, cell);
            version_max = version_max.max(cell.version);
            on_record(key, cell)?;
            cursor.advance().map_err(in_block)?;
        }
        seen.properties.blocks += 1;
        Ok(version_max)
    }

    /// Where each data block starts, for tests that damage some.
    #[cfg(test)]
    pub(crate) fn block_offsets(&self) -> Result<Vec<u64>> {
        let mut offsets = Vec::new();
        for i in 0..self.top.len() {
            let index = self.read_index(i, Wait::Block)?;
            offsets.extend((0..index.len()).map(|entry| index.block(entry).0.offset));
        }
        Ok(offsets)
    }

    fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::damaged(self.name(), offset, reason)
    }
}

impl RecordSums {
    /// The blocks in front of the keys above `key` were not read, or not all of them.
    fn skip_to(&mut self, key: &[u8]) {
        self.is_complete = false;
        key.clone_into(&mut self.last_key);
    }

    fn count(&mut self, key: &[u8], cell: CellRef<'_>) {
        self.properties.count(key, &cell);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }
}
