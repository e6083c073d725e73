//! Verifies a whole folder that no node runs on: every byte that a reader could meet.
//!
//! ```text
//! CURRENT ─► manifest ─► each live table: digest, blocks, order, filters, values
//!                   └──► log from the first needed segment: batches, records, values
//! the rest of the names: files that the next start removes, and those that are not the engine's
//! ```
//!
//! Invariants
//! 1. No file is written, not even the lock file: the caller keeps other processes out.
//! 2. One damaged file does not hide another. Within a table or the log one damaged spot does not
//!    hide the next. Up to twenty of a file are named, and the rest are counted.
//! 3. A folder without findings opens, and every read in it answers.
//!
//! Not here: repair (restore a copy, or another replica), the command line (crate `dendra`).
//! See: docs/format/folder.md.

use crate::hole::{self, Hole};
use crate::identity::Identity;
use crate::kept;
use crate::kept::note::{KEPT, KEPT_NEW};
use crate::scrub::note::{SCRUB, SCRUB_NEW};
use crate::table::{self, Table, TableMeta};
use crate::tree::edit::Folder;
use crate::tree::manifest::{self, ManifestEntry};
use crate::vfs::Vfs;
use crate::{Error, Result, recover, wal};
use dendra_base::CellRef;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Files that are always in order here.
const OWN_NAMES: [&str; 6] = ["LOCK", SCRUB, SCRUB_NEW, KEPT, KEPT_NEW, manifest::CURRENT];

/// How a finding can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// Bytes are not those that were written: they have to come from a copy.
    Damage,
    /// A span of keys waits for the records of other owners (`hole/`); its block may be gone.
    Hole,
}

/// One damaged spot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it can end.
    pub kind: FindingKind,
    /// File name inside the folder.
    pub file: String,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The expected bytes and the found ones, as a sentence.
    pub reason: String,
}

/// The files and records that were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The manifest in force, when there is one.
    pub manifest: Option<String>,
    /// Live tables.
    pub tables: u64,
    /// Bytes of the live tables.
    pub table_bytes: u64,
    /// Records of the live tables, tombstones included.
    pub records: u64,
    /// How many of them are tombstones.
    pub tombstones: u64,
    /// Log segments that the next start reads.
    pub log_segments: u64,
    /// Records in them.
    pub log_records: u64,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The files and records that were looked at.
    pub summary: Summary,
    /// Damage. Empty = the folder is whole.
    pub findings: Vec<Finding>,
    /// Worth knowing and no damage: a torn tail, files that the next start removes.
    pub notes: Vec<String>,
    /// Names that are not the engine's: it does not touch them, and the caller may know more of
    /// them.
    pub foreign: Vec<String>,
}

/// Values that are not those of their writer, named one by one up to this many per file.
const VALUES_NAMED_MAX: u64 = 20;
/// Damaged spots of one file that are named one by one.
const SPOTS_NAMED_MAX: usize = 20;

/// Checks the folder behind `vfs`. Requires: no node runs on it; the caller holds its lock.
///
/// Errors: the folder cannot be listed, was written by a newer program, or is not a Dendra folder.
/// Damage is in the report, never an error.
pub fn check_folder(vfs: &dyn Vfs) -> Result<Report> {
    let names = vfs
        .list()
        .map_err(|e| Error::io("listing the data folder", e))?;
    let mut check = FolderCheck {
        vfs,
        report: Report::default(),
    };
    let Some(folder) = check.manifest(&names)? else {
        return Ok(check.report);
    };
    let whole = check.tables(&folder, &names)?;
    if let Err(e) = recover::check_disjoint(&whole) {
        check.find(e)?;
    }
    check.holes(&folder);
    check.log(&folder, &names)?;
    check.leftovers(&folder, &names);
    Ok(check.report)
}

struct FolderCheck<'a> {
    vfs: &'a dyn Vfs,
    report: Report,
}

/// The level of a table and the table.
type Placed = (usize, Arc<Table>);

impl FolderCheck<'_> {
    /// Files a damage as a finding; anything else ends the check.
    fn find(&mut self, error: Error) -> Result<()> {
        match error {
            Error::Damaged {
                file,
                offset,
                reason,
            } => {
                self.report.findings.push(Finding {
                    kind: FindingKind::Damage,
                    file,
                    offset,
                    reason,
                });
                Ok(())
            }
            other => Err(other),
        }
    }

    /// Notes the error of an operation on `file`: a file that the disk does not hand out is
    /// damaged.
    fn find_in(&mut self, file: &str, error: Error) -> Result<()> {
        match error {
            Error::Io { source, .. } => {
                self.report.findings.push(Finding {
                    kind: FindingKind::Damage,
                    file: file.to_owned(),
                    offset: 0,
                    reason: format!("it cannot be read: {source}"),
                });
                Ok(())
            }
            other => self.find(other),
        }
    }

    /// The folder as its manifest says; `None` when that is empty or cannot be known.
    fn manifest(&mut self, names: &[String]) -> Result<Option<Folder>> {
        let named = match manifest::current(self.vfs, names) {
            Ok(Some(named)) => named,
            Ok(None) => {
                let nobody = Identity { node: 0, origin: 0 };
                match recover::new_folder(self.vfs, names, nobody) {
                    Ok(_) => self
                        .report
                        .notes
                        .push("the folder holds no data yet".to_owned()),
                    Err(e) => self.find(e)?,
                }
                return Ok(None);
            }
            Err(e) => {
                self.find_in(manifest::CURRENT, e)?;
                return Ok(None);
            }
        };
        let (id, name) = (named.id, manifest::file_name(named.id));
        self.report.summary.manifest = Some(name.clone());
        let mut torn = None;
        let read = manifest::read(self.vfs, id, |offset, entry| {
            if let ManifestEntry::Broken(reason) = entry {
                torn = Some(format!(
                    "{name} ends at byte {offset} in an edit that was never finished ({reason}); no file depends on it"
                ));
            }
            Ok(())
        });
        match read.and_then(|_| manifest::replay(self.vfs, id, named.bytes)) {
            Ok(folder) => {
                self.report.notes.extend(torn);
                Ok(Some(folder))
            }
            Err(e) => {
                self.find_in(&name, e)?;
                Ok(None)
            }
        }
    }

    fn tables(&mut self, folder: &Folder, names: &[String]) -> Result<Vec<Placed>> {
        let present: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let mut opened = Vec::new();
        for (level, metas) in folder.levels.iter().enumerate() {
            for meta in metas {
                let name = table::file_name(meta.id);
                if !present.contains(name.as_str()) {
                    let reason = "the manifest lists it and it is not there";
                    self.find(Error::damaged(name, 0, reason))?;
                    continue;
                }
                match Table::open(self.vfs, meta.clone()) {
                    Ok(table) => {
                        self.table(&name, meta, &table)?;
                        opened.push((level, Arc::new(table)));
                    }
                    Err(e) => self.find_in(&name, e)?,
                }
            }
        }
        Ok(opened)
    }

    fn table(&mut self, name: &str, meta: &TableMeta, table: &Table) -> Result<()> {
        let mut values = Values::default();
        let mut spots = Vec::new();
        let on_record = |key: &[u8], cell: CellRef<'_>| {
            values.look(key, cell);
            Ok(())
        };
        let on_damage = |error| match error {
            Error::Damaged { offset, reason, .. } => {
                spots.push((offset, reason));
                Ok(())
            }
            other => Err(other),
        };
        let verified = table.verify_all(on_record, on_damage);
        let summary = &mut self.report.summary;
        summary.tables += 1;
        summary.table_bytes += meta.bytes;
        summary.records += meta.records;
        summary.tombstones += meta.tombstones;
        self.report.findings.extend(values.findings(name));
        self.spots(name, spots);
        match verified {
            Ok(()) => Ok(()),
            Err(e) => self.find_in(name, e),
        }
    }

    /// Files the damaged spots of one file, the first ones by name.
    fn spots(&mut self, file: &str, spots: Vec<(u64, String)>) {
        let more = spots.len().saturating_sub(SPOTS_NAMED_MAX);
        let next = spots.get(SPOTS_NAMED_MAX).map(|(offset, _)| *offset);
        let named = spots.into_iter().take(SPOTS_NAMED_MAX);
        let counted =
            next.map(|offset| (offset, format!("{more} more damaged spots from here on")));
        let finding = |(offset, reason)| Finding {
            kind: FindingKind::Damage,
            file: file.to_owned(),
            offset,
            reason,
        };
        self.report
            .findings
            .extend(named.chain(counted).map(finding));
    }

    /// Spans of keys whose records wait for those of other owners.
    fn holes(&mut self, folder: &Folder) {
        let finding = |hole: &Hole| Finding {
            kind: FindingKind::Hole,
            file: table::file_name(hole.table),
            offset: hole.offset,
            reason: hole::WAITS.to_owned(),
        };
        self.report
            .findings
            .extend(folder.holes.iter().map(finding));
    }

    fn log(&mut self, folder: &Folder, names: &[String]) -> Result<()> {
        if let Err(e) = recover::check_log_start(folder, names) {
            return self.find(e);
        }
        let identity = folder
            .identity
            .expect("replay refuses a folder without one");
        let mut values = Values::default();
        let recovered = wal::recover(self.vfs, identity.log_salt(), folder.log_floor, |record| {
            match record.cell() {
                Some(cell) => values.look(record.stored_key, cell),
                // The value that a touch names has been looked at, here or in a table.
                None if record.touch().is_some() => {}
                None => values.unreadable(record.stored_key),
            }
            Ok(())
        });
        // Records are shown without their place; the key finds it in `dendra dump`.
        let first = wal::segment_name(folder.log_floor);
        self.report.findings.extend(values.findings(&first));
        match recovered {
            Ok(recovery) => {
                self.report.summary.log_segments = recovery.segments;
                self.report.summary.log_records = recovery.records;
                if let wal::Tail::Torn {
                    file,
                    offset,
                    reason,
                } = recovery.tail
                {
                    self.report.notes.push(format!(
                        "{file} ends at byte {offset} in a write that was not acknowledged ({reason}); the next start ignores it"
                    ));
                }
                Ok(())
            }
            Err(e) => {
                let is_damage = matches!(e, Error::Damaged { .. });
                self.find_in(&first, e)?;
                if is_damage {
                    self.log_behind(identity.log_salt(), folder.log_floor)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// The damage of the log behind the place that the next start would refuse first.
    fn log_behind(&mut self, salt: u64, first_needed: u64) -> Result<()> {
        let known = self.report.findings.last().cloned();
        for (file, spots) in wal::damaged_spots(self.vfs, salt, first_needed)? {
            let is_news = |(offset, _): &(u64, String)| {
                !known
                    .as_ref()
                    .is_some_and(|k| k.file == file && k.offset == *offset)
            };
            self.spots(&file, spots.into_iter().filter(is_news).collect());
        }
        Ok(())
    }

    fn leftovers(&mut self, folder: &Folder, names: &[String]) {
        let manifest = self.report.summary.manifest.clone();
        let named = manifest.as_deref().and_then(manifest::id_of);
        let kept = kept::of_folder(self.vfs, names, named);
        let live = folder.levels.iter().flatten().map(|meta| meta.id);
        let kept = kept.tables.iter().map(|table| table.id);
        let live: BTreeSet<u64> = live.chain(kept).collect();
        for name in names {
            let is_needless = if let Some(id) = table::id_of_file_name(name) {
                !live.contains(&id)
            } else if let Some(id) = wal::parse_segment_name(name) {
                id < folder.log_floor
            } else if manifest::id_of(name).is_some() {
                Some(name) != manifest.as_ref()
            } else if name == wal::NEW_SEGMENT {
                true
            } else if OWN_NAMES.contains(&name.as_str()) {
                false
            } else {
                self.report.foreign.push(name.clone());
                continue;
            };
            if is_needless {
                let note = format!("{name} is not needed any more; the next start removes it");
                self.report.notes.push(note);
            }
        }
    }
}

/// Cells that can be read and are not those of their writer.
#[derive(Default)]
struct Values {
    named: Vec<String>,
    count: u64,
}

impl Values {
    fn look(&mut self, stored_key: &[u8], cell: CellRef<'_>) {
        if !cell.is_intact(stored_key) {
            self.add(stored_key, "the value is not its writer's");
        }
    }

    fn unreadable(&mut self, stored_key: &[u8]) {
        self.add(stored_key, "the cell cannot be read");
    }

    fn add(&mut self, stored_key: &[u8], what: &str) {
        self.count += 1;
        if self.count <= VALUES_NAMED_MAX {
            let key = stored_key.escape_ascii();
            self.named.push(format!("stored key \"{key}\": {what}"));
        }
    }

    fn findings(mut self, file: &str) -> Vec<Finding> {
        if self.count > VALUES_NAMED_MAX {
            let more = self.count - VALUES_NAMED_MAX;
            self.named
                .push(format!("{more} more values are not their writers'"));
        }
        let finding = |reason| Finding {
            kind: FindingKind::Damage,
            file: file.to_owned(),
            offset: 0,
            reason,
        };
        self.named.into_iter().map(finding).collect()
    }
}

#[cfg(test)]
mod tests;
