//! Marks and kept tables as the manifest changes: each step is on the disk before the next one
//! needs it.
//!
//! ```text
//! install ─► keep_for_backups: KEPT names the new tables, or all marks end ─► the manifest
//! checkpoint ─► mark: links of the tables since a mark, and a new mark in KEPT
//! ```
//!
//! Invariants
//! 1. The note on the disk is never good for more than the kept tables. Where it cannot be written,
//!    it is removed; where it cannot be removed, the edit fails.
//!
//! Not here: which marks and tables stay (`mod.rs`).

use super::note::{self, KeptNote, KeptTable};
use super::{MarkOrder, Marked};
use crate::engine::{Engine, ManifestState};
use crate::table;
use crate::tree::edit::{Edit, Fact};
use crate::waits::hold;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Kept tables may take one part in so many of the bytes of all tables.
const SHARE: u64 = 10;

impl Engine {
    /// Changes the marks as `edit` requires, on the disk before it takes effect. Requires: the
    /// ledger is held.
    pub(crate) fn keep_for_backups(&self, ledger: &ManifestState, edit: &Edit) -> Result<()> {
        if self.kept.is_idle() {
            self.kept.wants_end.store(false, Ordering::Release);
            return Ok(());
        }
        let is_hole = |fact: &Fact| matches!(fact, Fact::Hole(_) | Fact::HoleGone { .. });
        let is_over = self.kept.wants_end.swap(false, Ordering::AcqRel);
        if is_over || edit.facts.iter().any(is_hole) {
            return self.end_marks(ledger);
        }
        let added = new_tables(edit);
        if added.is_empty() {
            return Ok(());
        }
        let live: u64 = ledger.folder.levels.iter().flatten().map(|m| m.bytes).sum();
        let bytes_max = self.options.kept_bytes_min.max(live / SHARE);
        let next = self.kept.note().with_tables(&added, bytes_max);
        self.put_in_force(ledger, next)
    }

    fn end_marks(&self, ledger: &ManifestState) -> Result<()> {
        self.put_in_force(ledger, KeptNote::default())
    }

    fn put_in_force(&self, ledger: &ManifestState, mut next: KeptNote) -> Result<()> {
        next.manifest = ledger.manifest.id();
        if next.marks.is_empty() || note::save(&*self.vfs, &next).is_err() {
            // Full lists do without it, and this edit does not.
            if let Err(error) = note::remove(&*self.vfs) {
                self.kept.end_soon();
                return Err(error);
            }
            next = KeptNote::default();
        }
        self.forget_kept(ledger, next);
        Ok(())
    }

    fn forget_kept(&self, ledger: &ManifestState, next: KeptNote) {
        let live: BTreeSet<u64> = ledger
            .folder
            .levels
            .iter()
            .flatten()
            .map(|m| m.id)
            .collect();
        for id in self.kept.replace(next) {
            if !live.contains(&id) {
                self.garbage.add(table::file_name(id));
            }
        }
    }

    /// The manifest in force has another name now.
    pub(crate) fn kept_follow(&self, ledger: &ManifestState) {
        if self.kept.is_idle() {
            return;
        }
        let mut next = self.kept.note();
        next.manifest = ledger.manifest.id();
        // The note on the disk names the former manifest: it keeps no table.
        match note::save(&*self.vfs, &next) {
            Ok(()) => self.forget_kept(ledger, next),
            Err(_) => self.kept.end_soon(),
        }
    }

    /// Gives the room of kept tables back when the disk is full.
    pub(crate) fn keep_less_on_a_full_disk(&self) -> Result<()> {
        if !self.room.is_full() || self.kept.is_idle() {
            return Ok(());
        }
        self.end_marks(&hold(&self.ledger))
    }

    /// Links the tables after the mark that `order` names into `path`, beside `live` ones, and
    /// gives a new mark. `None` where a list of tables since now would not be enough.
    pub(crate) fn mark(
        &self,
        ledger: &ManifestState,
        order: &MarkOrder,
        live: &BTreeSet<u64>,
        path: &Path,
    ) -> Result<Option<Marked>> {
        if self.kept.wants_end.swap(false, Ordering::AcqRel) {
            self.end_marks(ledger)?;
        }
        if self.foreign.is_under_way() || !ledger.folder.holes.is_empty() {
            return Ok(None);
        }
        let before = self.kept.note();
        let since = before.find(&order.since);
        let mut marked = Marked {
            since: since.map(|mark| mark.id),
            tables: Vec::new(),
            replaced: BTreeSet::new(),
        };
        for kept in since.map_or(&[][..], |mark| before.tables_behind(mark)) {
            let name = table::file_name(kept.id);
            if !live.contains(&kept.id) {
                let linked = self.vfs.link_into(&name, path);
                linked.map_err(|e| Error::io(format!("linking {name} for a backup"), e))?;
                marked.replaced.insert(name.clone());
            }
            marked.tables.push(name);
        }
        let mut next = before.with_mark(since, order.mark);
        next.manifest = ledger.manifest.id();
        note::save(&*self.vfs, &next)?;
        self.forget_kept(ledger, next);
        Ok(Some(marked))
    }
}

/// Tables that bring new records: no other table goes for them.
fn new_tables(edit: &Edit) -> Vec<KeptTable> {
    let replaces = |fact: &Fact| matches!(fact, Fact::RemoveTable { .. });
    if edit.facts.iter().any(replaces) {
        return Vec::new();
    }
    let added = edit.facts.iter().filter_map(|fact| match fact {
        Fact::AddTable { meta, .. } => Some(KeptTable {
            id: meta.id,
            bytes: meta.bytes,
        }),
        _ => None,
    });
    added.collect()
}
