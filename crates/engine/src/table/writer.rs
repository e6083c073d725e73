//! Writes a table: rising records in, a synced file and its `TableMeta` out.
//!
//! ```text
//! add ─► data block ─full─► frame ─► pending ─256 KiB─► file, digest
//!            │ separator, handle, newest version
//!            ▼
//!        index partition ─1 MiB of data─► filter frame, index frame
//!            │ last key, handles, newest version
//!            ▼
//!        top index ─finish─► top frame, properties frame, footer, sync
//! ```
//!
//! Invariants
//! 1. Keys rise strictly: an assertion, on in production, because a table that breaks it lies.
//! 2. Memory is bounded: one data block, one index partition, one filter's hashes, 256 KiB of
//!    pending bytes, and the top index.
//! 3. After `finish` the bytes are durable; the name is not, until the folder is synced.
//!
//! Not here: syncing the folder, the manifest, removing an abandoned file (all the engine's).
//! See: docs/format/table.md.

use super::block::{BlockBuilder, RESTART_INTERVAL};
use super::footer::{FOOTER_BYTES, Footer, Properties};
use super::frame::{Compressor, FrameKind, Handle, seal};
use super::index::{add_block, add_partition, separator};
use super::{TableMeta, TableOptions, file_name, filter, key_hash};
use crate::vfs::{File, Vfs};
use crate::{Error, Result};
use dendra_base::limits::STORED_KEY_BYTES_MAX;
use dendra_base::{CellRef, Version};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Default;

/// Bytes collected before they are written: few calls, and little that a crash must redo.
const PENDING_BYTES: usize = 256 << 10;
/// After how many written bytes the system is asked to start writing them back, so that the final
/// sync finds little left to do.
const WRITEBACK_BYTES: u64 = 1 << 20;
/// Keys of one partition at most: bounds its filter to a few MiB for any options.
const PARTITION_RECORDS_MAX: usize = 1 << 20;

/// A table that is being written.
pub(crate) struct TableWriter {
    file: Arc<dyn File>,
    id: u64,
    options: TableOptions,
    compressor: Compressor,
    /// Bytes that follow the `written` ones.
    pending: Vec<u8>,
    written: u64,
    hinted: u64,
    digest: Xxh3Default,
    block: BlockBuilder,
    block_version_max: Version,
    index: BlockBuilder,
    separator: Vec<u8>,
    partition_bytes: usize,
    partition_version_max: Version,
    hashes: Vec<u64>,
    partition_records: usize,
    top: BlockBuilder,
    properties: Properties,
}

impl TableWriter {
    /// Creates the file of table `id`, which must not exist yet.
    pub(crate) fn create(vfs: &dyn Vfs, id: u64, options: &TableOptions) -> Result<TableWriter> {
        let name = file_name(id);
        let file = vfs
            .create(&name)
            .map_err(|e| Error::io(format!("create {name}"), e))?;
        Ok(TableWriter {
            file,
            id,
            options: *options,
            compressor: Compressor::new(options.compression),
            pending: Vec::with_capacity(PENDING_BYTES + options.block_bytes),
            written: 0,
            hinted: 0,
            digest: Xxh3Default::new(),
            block: BlockBuilder::new(RESTART_INTERVAL),
            block_version_max: Version::ZERO,
            index: BlockBuilder::new(1),
            separator: Vec::new(),
            partition_bytes: 0,
            partition_version_max: Version::ZERO,
            hashes: Vec::new(),
            partition_records: 0,
            top: BlockBuilder::new(1),
            properties: Properties::none(options.filter_bits_per_key as u64),
        })
    }

    /// Appends a record. Requires: `stored_key` is above all keys before, and no longer than
    /// `STORED_KEY_BYTES_MAX`.
    pub(crate) fn add(&mut self, stored_key: &[u8], cell: &CellRef<'_>) -> Result<()> {
        assert!(
            stored_key > self.properties.largest.as_slice()
                && stored_key.len() <= STORED_KEY_BYTES_MAX,
            "keys of a table rise strictly and have at most {STORED_KEY_BYTES_MAX} bytes"
        );
        let cell_len = cell.encoded_len();
        let grown = self.block.len() + stored_key.len() + cell_len;
        // A block holds records of one space, so that damage to the node's own notes, which no
        // other member has, hits no other record.
        let is_other_space = self.properties.largest.first() != stored_key.first();
        let is_full = grown > self.options.block_bytes || is_other_space;
        if !self.block.is_empty() && is_full {
            separator(&self.properties.largest, stored_key, &mut self.separator);
            self.close_block()?;
            if self.partition_bytes >= self.options.partition_bytes
                || self.partition_records >= PARTITION_RECORDS_MAX
            {
                self.close_partition()?;
            }
        }
        self.block.add(stored_key, cell_len, |out| cell.encode(out));
        self.block_version_max = self.block_version_max.max(cell.version);
        self.partition_records += 1;
        if self.options.filter_bits_per_key > 0 {
            self.hashes.push(key_hash(stored_key));
        }
        self.properties.count(stored_key, cell);
        Ok(())
    }

    /// About how long the file would be if it ended here, without its index.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.offset() + self.block.len() as u64
    }

    /// Writes the last block, the top index, the properties and the footer, and syncs the file.
    /// Requires: at least one record was added.
    pub(crate) fn finish(mut self) -> Result<TableMeta> {
        assert!(
            !self.block.is_empty(),
            "a table holds at least one record: do not create a writer before the first"
        );
        self.separator.clear();
        self.separator.extend_from_slice(&self.properties.largest);
        self.close_block()?;
        self.close_partition()?;
        let top = self.top.finish();
        let offset = self.written + self.pending.len() as u64;
        let top = seal(
            &mut self.pending,
            None,
            FrameKind::Top,
            self.id,
            offset,
            top,
        );
        let properties_handle = self.seal(FrameKind::Properties, &self.properties.encode())?;
        let footer = Footer {
            id: self.id,
            file_bytes: self.offset() + FOOTER_BYTES as u64,
            top,
            properties: properties_handle,
            has_filters: self.options.filter_bits_per_key > 0,
        };
        self.pending.extend_from_slice(&footer.encode());
        self.flush()?;
        self.file
            .sync()
            .map_err(|e| Error::io(format!("sync {}", file_name(self.id)), e))?;
        let digest = self.digest.digest();
        Ok(self.properties.meta(self.id, self.written, digest))
    }

    fn offset(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Ends the data block; `separator` is set.
    fn close_block(&mut self) -> Result<()> {
        let offset = self.offset();
        let payload = self.block.finish();
        self.partition_bytes += payload.len();
        let handle = seal(
            &mut self.pending,
            Some(&mut self.compressor),
            FrameKind::Data,
            self.id,
            offset,
            payload,
        );
        add_block(
            &mut self.index,
            &self.separator,
            handle,
            self.block_version_max,
        );
        self.partition_version_max = self.partition_version_max.max(self.block_version_max);
        self.block_version_max = Version::ZERO;
        self.block.clear();
        self.properties.blocks += 1;
        self.flush_when_full()
    }

    /// Ends the partition after the data block that was just closed.
    fn close_partition(&mut self) -> Result<()> {
        let filter = if self.hashes.is_empty() {
            None
        } else {
            let payload = filter::build(&self.hashes, self.options.filter_bits_per_key);
            Some(self.seal(FrameKind::Filter, &payload)?)
        };
        let offset = self.offset();
        let index = seal(
            &mut self.pending,
            Some(&mut self.compressor),
            FrameKind::Index,
            self.id,
            offset,
            self.index.finish(),
        );
        add_partition(
            &mut self.top,
            &self.separator,
            filter,
            index,
            self.partition_version_max,
        );
        self.index.clear();
        self.hashes.clear();
        self.partition_bytes = 0;
        self.partition_records = 0;
        self.partition_version_max = Version::ZERO;
        self.properties.partitions += 1;
        self.flush_when_full()
    }

    /// Appends a frame that is not worth compressing.
    fn seal(&mut self, kind: FrameKind, payload: &[u8]) -> Result<Handle> {
        let offset = self.offset();
        let handle = seal(&mut self.pending, None, kind, self.id, offset, payload);
        self.flush_when_full()?;
        Ok(handle)
    }

    fn flush_when_full(&mut self) -> Result<()> {
        if self.pending.len() < PENDING_BYTES {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        self.file
            .write_at(&self.pending, self.written)
            .map_err(|e| Error::io(format!("write {}", file_name(self.id)), e))?;
        self.digest.update(&self.pending);
        self.written += self.pending.len() as u64;
        self.pending.clear();
        if self.pending.capacity() > 4 * PENDING_BYTES {
            self.pending.shrink_to(PENDING_BYTES);
        }
        if self.written - self.hinted >= WRITEBACK_BYTES {
            self.file
                .start_writeback(self.hinted, self.written - self.hinted);
            self.hinted = self.written;
        }
        Ok(())
    }
}
