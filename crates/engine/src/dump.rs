//! One file of a folder as text, for people: `dendra dump`.
//!
//! ```text
//! <id>.tbl          footer, properties, index, the first records      table::describe
//! wal-<id>.log      each batch with its records, and how the segment ends
//! manifest-<id>     each edit with its facts, and how the file ends
//! CURRENT           the manifest it names
//! ```
//!
//! Invariants
//! 1. All readable records are printed; the first damage ends the dump with its error.
//! 2. Keys are escaped: any bytes fit one line of a terminal.
//! 3. A file of a running node may be dumped: no file is locked or written.
//!
//! Not here: judging a whole folder (`check/`), the table's own description (`table/describe.rs`).
//! See: docs/format/.

use crate::tree::edit::Fact;
use crate::tree::manifest::{self, ManifestEntry};
use crate::vfs::Vfs;
use crate::wal::{self, BatchView, Segment, SegmentEnd};
use crate::{Error, Result, table};
use dendra_base::Kind;
use std::io::{self, Write};

/// Prints the file `name` of the folder behind `vfs` to `out`: of a table or a log, at most
/// `records` records.
///
/// Errors: the first damage, after everything in front of it was printed; an unknown name.
pub fn dump_file(vfs: &dyn Vfs, name: &str, records: usize, out: &mut dyn Write) -> Result<()> {
    if table::id_of_file_name(name).is_some() {
        table::describe(vfs, name, out, records)
    } else if let Some(id) = wal::parse_segment_name(name) {
        segment(&Segment::read(vfs, id)?, name, records, out)
    } else if let Some(id) = manifest::id_of(name) {
        edits(vfs, id, out)
    } else if name == manifest::CURRENT {
        let named = manifest::current(vfs, &[name.to_owned()])?.expect("the name was given");
        let file = manifest::file_name(named.id);
        writeln!(out, "{file}, at least {} bytes", named.bytes).map_err(unwritten)
    } else {
        Err(Error::Unusable {
            reason: format!(
                "{name} is not a file of Dendra: name a table (<16 digits>.tbl), a log segment (wal-<16 digits>.log), a manifest-<16 digits> or CURRENT"
            ),
        })
    }
}

fn unwritten(error: io::Error) -> Error {
    Error::io("writing the dump", error)
}

fn segment(segment: &Segment, name: &str, records: usize, out: &mut dyn Write) -> Result<()> {
    let mut left = records;
    let mut batches = segment.batches();
    for view in &mut batches {
        batch(name, &view, &mut left, out)?;
    }
    let at = batches.offset();
    match batches.end() {
        SegmentEnd::Zeros => writeln!(out, "unused from byte {at}").map_err(unwritten),
        SegmentEnd::EndOfFile => writeln!(out, "full, ends at byte {at}").map_err(unwritten),
        SegmentEnd::Bad { reason } => Err(Error::damaged(name, at as u64, reason)),
    }
}

fn batch(name: &str, view: &BatchView<'_>, left: &mut usize, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "batch at {}: {} records, {} bytes, synced up to {}, clock below {:016x}",
        view.offset,
        view.count,
        view.body.len(),
        view.synced_upto,
        view.hlc_ceiling
    )
    .map_err(unwritten)?;
    if view.is_end {
        writeln!(out, "  the log goes on in the next segment").map_err(unwritten)?;
    }
    for record in view.records() {
        let record = record.map_err(|reason| Error::damaged(name, view.offset as u64, reason))?;
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        let key = record.stored_key.escape_ascii();
        if let Some(touch) = record.touch() {
            writeln!(
                out,
                "  {key}  {} copies {}, touch: the value of {}, expires {}",
                touch.version, touch.copies, touch.of, touch.expiry_ms
            )
            .map_err(unwritten)?;
            continue;
        }
        let Some(cell) = record.cell() else {
            let reason = format!("the cell of stored key \"{key}\" cannot be read");
            return Err(Error::damaged(name, view.offset as u64, reason));
        };
        let kind = match cell.kind {
            Kind::Tombstone => "tombstone".to_owned(),
            Kind::Value => format!("value of {} bytes", cell.value.len()),
        };
        let expiry = match cell.expiry_ms {
            Some(expiry_ms) => format!(", expires {expiry_ms}"),
            None => String::new(),
        };
        let health = if cell.is_intact(record.stored_key) {
            ""
        } else {
            ", NOT INTACT: the value is not its writer's"
        };
        writeln!(
            out,
            "  {key}  {} copies {}, {kind}{expiry}{health}",
            cell.version, cell.copies
        )
        .map_err(unwritten)?;
    }
    Ok(())
}

fn edits(vfs: &dyn Vfs, id: u64, out: &mut dyn Write) -> Result<()> {
    manifest::read(vfs, id, |offset, entry| {
        match entry {
            ManifestEntry::Broken(reason) => writeln!(out, "ends at {offset}: {reason}"),
            ManifestEntry::Edit(edit) => writeln!(out, "edit at {offset}")
                .and_then(|()| edit.facts.iter().try_for_each(|fact| self::fact(fact, out))),
        }
        .map_err(unwritten)
    })
    .map(drop)
}

fn fact(fact: &Fact, out: &mut dyn Write) -> io::Result<()> {
    match fact {
        Fact::Identity(who) => {
            writeln!(out, "  node {:032x}, origin {:08x}", who.node, who.origin)
        }
        Fact::AddTable { level, meta } => writeln!(
            out,
            "  add to level {level}: {}, {} bytes, {} records, {} tombstones, \"{}\" to \"{}\", versions {} to {}",
            table::file_name(meta.id),
            meta.bytes,
            meta.records,
            meta.tombstones,
            meta.smallest.escape_ascii(),
            meta.largest.escape_ascii(),
            meta.version_min,
            meta.version_max
        ),
        Fact::RemoveTable { id } => writeln!(out, "  remove {}", table::file_name(*id)),
        Fact::LogFloor { segment } => {
            writeln!(out, "  log from {}", wal::segment_name(*segment))
        }
        Fact::HlcCeiling { hlc } => writeln!(out, "  clock below {hlc:016x}"),
        Fact::Hole(hole) => writeln!(
            out,
            "  hole of {} at {}: \"{}\" to \"{}\", below {}, clock {:016x}, dropped: {}",
            table::file_name(hole.table),
            hole.offset,
            hole.first.escape_ascii(),
            hole.last.escape_ascii(),
            hole.below,
            hole.clock,
            hole.is_dropped
        ),
        Fact::HoleGone { table, offset } => {
            writeln!(out, "  no hole of {} at {offset}", table::file_name(*table))
        }
    }
}
