//! Records that come in order of their keys, written into tables without log and memtable.
//!
//! ```text
//! add, add … ─► table of level 0 ─full, or finish─► sync, re-read, manifest ─► readers see it
//! ```
//!
//! Invariants
//! 1. A record is durable and visible when the table that holds it is installed, and not before.
//! 2. After an error the records since the last installed table are gone, and the caller is told.
//! 3. At most one table of one `Ingest` is open: its memory is that of one table that is written.
//!
//! Not here: moves down to level 1 without a rewrite (`compact/pick/`).

use crate::compact::run::{open_outputs, table_options};
use crate::engine::Engine;
use crate::recover::replacement;
use crate::table::{TableWriter, file_name};
use crate::tree::edit::{Edit, Fact};
use crate::{Error, Result};
use dendra_base::CellRef;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The table that records are added to.
#[derive(Default)]
pub struct Ingest {
    open: Option<OpenTable>,
}

struct OpenTable {
    id: u64,
    writer: TableWriter,
}

impl Engine {
    /// Adds a record; true when its table was full with it and is installed now. Requires:
    /// `stored_key` is above all keys that were added before.
    ///
    /// # Errors
    /// The disk is full or fails: the records since the last installed table are gone.
    pub fn ingest(
        &self,
        ingest: &mut Ingest,
        stored_key: &[u8],
        cell: &CellRef<'_>,
    ) -> Result<bool> {
        self.check_poison()?;
        let mut open = match ingest.open.take() {
            Some(open) => open,
            None => self.open_table()?,
        };
        let added = open.writer.add(stored_key, cell);
        if let Err(error) = added {
            return Err(self.give_up(open.id, error));
        }
        let is_full = open.writer.bytes_written() >= self.options.table_bytes as u64;
        ingest.open = Some(open);
        if is_full {
            self.finish_ingest(ingest)?;
        }
        Ok(is_full)
    }

    /// Installs the table that is open, if one is.
    ///
    /// # Errors
    /// As those of `ingest`.
    pub fn finish_ingest(&self, ingest: &mut Ingest) -> Result<()> {
        let Some(OpenTable { id, writer }) = ingest.open.take() else {
            return Ok(());
        };
        let installed = self.install_ingested(writer);
        installed.map_err(|error| self.give_up(id, error))
    }

    /// Removes the table that is open, with its records.
    pub fn abandon_ingest(&self, ingest: &mut Ingest) {
        if let Some(open) = ingest.open.take() {
            self.garbage.add(file_name(open.id));
        }
    }

    fn open_table(&self) -> Result<OpenTable> {
        let id = self.next_file_id();
        // It goes down to the deepest level as it is.
        let options = table_options(&self.options, true);
        match TableWriter::create(&*self.vfs, id, &options) {
            Ok(writer) => Ok(OpenTable { id, writer }),
            Err(error) => Err(self.give_up(id, error)),
        }
    }

    fn install_ingested(&self, writer: TableWriter) -> Result<()> {
        let meta = writer.finish()?;
        let added = open_outputs(&*self.vfs, std::slice::from_ref(&meta))?;
        let mut facts = replacement(0, &[], &added);
        let ceiling = self.hlc_ceiling.load(Ordering::Acquire);
        facts.push(Fact::HlcCeiling {
            hlc: ceiling.max(meta.version_max.hlc),
        });
        self.install(Edit { facts }, |view| {
            let added = added.iter().map(|table| (0, table.clone())).collect();
            view.tree = Arc::new(view.tree.replace(&[], added));
        })?;
        self.counters.ingest_bytes.add(meta.bytes);
        Ok(())
    }

    fn give_up(&self, id: u64, error: Error) -> Error {
        // After a final error the manifest on disk may name it: the next start decides.
        if !error.is_final() {
            self.garbage.add(file_name(id));
        }
        self.note_full_disk(&error);
        error
    }
}
