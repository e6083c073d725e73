//! The full check of a table: every byte and every promise, for `dendra check`.
//!
//! ```text
//! digest of the file ─► a walk with all checks ─► counts and bounds equal properties and manifest
//! ```
//!
//! Invariants
//! 1. A table that passes answers every point read and every scan rightly.
//! 2. One damaged block hides no other. The sums of the records, and the digest, are compared only
//!    when nothing else is damaged.
//!
//! Not here: the walk (`walk.rs`), whether values are those that clients stored
//! (`CellRef::is_intact`, the caller's to ask).
//! See: docs/format/table.md.

use super::Table;
use super::footer::Properties;
use super::walk::{Flaw, TableWalk, WalkOptions};
use crate::{Error, Result};
use dendra_base::CellRef;

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
        let mut sums = Properties::none(self.properties.filter_bits_per_key);
        sums.partitions = self.top.len() as u64;
        let mut is_whole = true;
        let mut walk = TableWalk::new(0..self.top.len(), WalkOptions::VERIFY);
        let mut on_record = |key: &[u8], cell: CellRef<'_>| {
            sums.count(key, &cell);
            on_record(key, cell)
        };
        let mut on_flaw = |flaw: Flaw| {
            is_whole = false;
            on_damage(self.damaged(flaw.offset, flaw.reason))
        };
        let mut blocks = 0;
        while walk.next(self, &mut on_record, &mut on_flaw)?.is_some() {
            blocks += 1;
        }
        sums.blocks = blocks;
        if !is_whole {
            return Ok(());
        }
        if sums != self.properties {
            let reason = format!(
                "the records amount to {sums:?}, the properties say {:?}",
                self.properties
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

    /// Where each data block starts, for tests that damage some.
    #[cfg(test)]
    pub(crate) fn block_offsets(&self) -> Result<Vec<u64>> {
        let mut offsets = Vec::new();
        for i in 0..self.top.len() {
            let index = self.read_index(i, crate::vfs::Wait::Block)?;
            offsets.extend((0..index.len()).map(|entry| index.block(entry).0.offset));
        }
        Ok(offsets)
    }
}
