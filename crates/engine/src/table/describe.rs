//! A table as text, for people: `dendra dump`.
//!
//! Invariants
//! 1. Keys are printed with escapes, so that any bytes fit one line of a terminal.
//! 2. All readable parts are printed before the first damage ends the description with its error.
//!
//! Not here: logs and manifests, the command line.
//! See: docs/format/table.md.

use super::footer::FORMAT;
use super::{ReadMode, Table, TableIter};
use crate::cache::{BlockCache, FillCache};
use crate::source::Source;
use crate::vfs::{Vfs, Wait};
use crate::{Error, Result};
use dendra_base::{CellRef, Direction, Kind as CellKind};
use std::io::{self, Write};
use std::ops::Bound;
use std::sync::Arc;

/// Prints footer, properties, index and the first `records` records of the table file `name`.
pub fn describe(vfs: &dyn Vfs, name: &str, out: &mut dyn Write, records: usize) -> Result<()> {
    let table = Arc::new(Table::open_unknown(vfs, name)?);
    head(&table, out).map_err(unwritten)?;
    for i in 0..table.top.len() {
        partition(&table, i, out)?;
    }
    // The cache is only a way of reading here; it keeps a few blocks while they are printed.
    let cache = Arc::new(BlockCache::new(1 << 20));
    let mut iter = TableIter::new(table, ReadMode::Cached(cache, FillCache::No));
    if records > 0 {
        writeln!(out, "records").map_err(unwritten)?;
        iter.seek(Bound::Unbounded, Direction::Forward)?;
    }
    for _ in 0..records {
        let Some((key, cell)) = iter.current() else {
            break;
        };
        record(key, cell, out).map_err(unwritten)?;
        iter.advance()?;
    }
    Ok(())
}

fn unwritten(error: io::Error) -> Error {
    Error::io("write the description of a table", error)
}

fn head(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let (meta, properties) = (&table.meta, &table.properties);
    writeln!(out, "table               {:016x}", meta.id)?;
    writeln!(out, "format              {FORMAT}")?;
    writeln!(out, "bytes               {}", meta.bytes)?;
    writeln!(out, "digest              {:016x}", meta.digest)?;
    writeln!(out, "records             {}", meta.records)?;
    writeln!(out, "tombstones          {}", meta.tombstones)?;
    writeln!(out, "expiring            {}", meta.expiring)?;
    if let Some(expiry_ms) = table.expiry_ms_min() {
        writeln!(out, "expiry_ms_min       {expiry_ms}")?;
    }
    writeln!(out, "raw_bytes           {}", properties.raw_bytes)?;
    writeln!(out, "blocks              {}", properties.blocks)?;
    writeln!(out, "partitions          {}", properties.partitions)?;
    writeln!(
        out,
        "filter_bits_per_key {}",
        properties.filter_bits_per_key
    )?;
    writeln!(out, "version_min         {}", meta.version_min)?;
    writeln!(out, "version_max         {}", meta.version_max)?;
    writeln!(out, "smallest            {}", meta.smallest.escape_ascii())?;
    writeln!(out, "largest             {}", meta.largest.escape_ascii())?;
    writeln!(
        out,
        "top index           {} bytes at {}",
        table.footer.top.bytes, table.footer.top.offset
    )?;
    writeln!(
        out,
        "properties          {} bytes at {}",
        table.footer.properties.bytes, table.footer.properties.offset
    )
}

fn partition(table: &Table, i: usize, out: &mut dyn Write) -> Result<()> {
    let partition = table.top.partition(i);
    let filter = match partition.filter {
        Some(handle) => format!("filter {} bytes at {}, ", handle.bytes, handle.offset),
        None => String::new(),
    };
    writeln!(
        out,
        "partition {i}: {filter}index {} bytes at {}, newest {}, up to {}",
        partition.index.bytes,
        partition.index.offset,
        partition.version_max,
        table.top.key(i).escape_ascii()
    )
    .map_err(unwritten)?;
    let index = table.read_index(i, Wait::Block)?;
    for entry in 0..index.len() {
        let (handle, version) = index.block(entry);
        writeln!(
            out,
            "  block {} bytes at {}, newest {version}, up to {}",
            handle.bytes,
            handle.offset,
            index.separator(entry).escape_ascii()
        )
        .map_err(unwritten)?;
    }
    Ok(())
}

fn record(key: &[u8], cell: CellRef<'_>, out: &mut dyn Write) -> io::Result<()> {
    let kind = match cell.kind {
        CellKind::Tombstone => "tombstone".to_owned(),
        CellKind::Value => format!("value of {} bytes", cell.value.len()),
    };
    let expiry = match cell.expiry_ms {
        Some(expiry_ms) => format!(", expires {expiry_ms}"),
        None => String::new(),
    };
    let health = if cell.is_intact(key) {
        ""
    } else {
        ", NOT INTACT: the value is not its writer's"
    };
    writeln!(
        out,
        "  {}  {} copies {}, {kind}{expiry}{health}",
        key.escape_ascii(),
        cell.version,
        cell.copies
    )
}
