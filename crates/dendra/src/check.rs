//! `dendra check` and `dendra dump`: a data folder without a node.
//!
//! ```text
//! check   findings on stdout, one a line: FILE TAB OFFSET TAB REASON     summary on stderr
//!         --json: {"findings": […], "notes": […], "summary": {…}}
//! dump    text on stdout
//! ```
//!
//! Invariants
//! 1. A folder that a node holds is not checked: its files change under the reader.
//! 2. No file is created: a folder that is not there stays so, and so does a lock file.
//!
//! Not here: the checks (crate `engine`, `check/`), the server's files in a folder (crate
//! `server`, `folder.rs`).
//! See: docs/cli.md.

use crate::cli::{Check, Dump};
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use crate::output;
use dendra_engine::Error;
use dendra_engine::check::{Report, check_folder};
use dendra_engine::dump::dump_file;
use dendra_engine::vfs::{OsVfs, Vfs};
use dendra_server::folder;
use serde_json::json;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Opens an existing folder.
fn open(folder: &Path) -> Result<OsVfs, Failure> {
    let name = folder.display();
    if !folder.is_dir() {
        return Err(Failure::usage(format!(
            "{name}: is not a folder; name a data folder"
        )));
    }
    OsVfs::open(folder)
        .map_err(|e| Failure::new(Exit::FOLDER, format!("{name}: cannot be opened ({e})")))
}

/// Keeps nodes out while the returned guard lives.
fn lock(vfs: &OsVfs, folder: &Path) -> Result<Box<dyn Send + Sync>, Failure> {
    match vfs.lock_as_it_is() {
        Ok(guard) => Ok(guard),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(Failure::new(
            Exit::FOLDER,
            format!(
                "{}: a node runs on this folder; stop it first",
                folder.display()
            ),
        )),
        Err(e) => Err(Failure::new(
            Exit::FOLDER,
            format!("{}: cannot be locked ({e})", folder.display()),
        )),
    }
}

/// `dendra check`
pub(crate) fn check(args: &Check, console: Console) -> ExitResult {
    let vfs = open(&args.folder)?;
    let _guard = lock(&vfs, &args.folder)?;
    let mut report = check_folder(&vfs).map_err(|e| Failure::new(Exit::FOLDER, e.to_string()))?;
    let beside = notes_beside(&vfs, &report);
    report.notes.extend(beside);
    let text = if args.json {
        format!("{:#}\n", to_json(&report))
    } else {
        let line =
            |f: &dendra_engine::check::Finding| format!("{}\t{}\t{}\n", f.file, f.offset, f.reason);
        report.findings.iter().map(line).collect()
    };
    ops::print(text.as_bytes())?;
    for note in &report.notes {
        console.note(&format!("note: {note}"));
    }
    console.note(&in_words(&report));
    Ok(if report.findings.is_empty() {
        Exit::OK
    } else {
        Exit::FAILURE
    })
}

/// The notes about files that are not the engine's.
fn notes_beside(vfs: &dyn Vfs, report: &Report) -> Vec<String> {
    let name = vfs.describe();
    let why = match folder::why_no_start(vfs) {
        Ok(why) => why.map(|why| format!("{name}: {why}")),
        Err(e) => Some(format!(
            "{name}: no node may start on it: why it was refused cannot be read ({e})"
        )),
    };
    let foreign = report
        .foreign
        .iter()
        .filter(|file| !folder::NAMES.contains(&file.as_str()))
        .map(|file| format!("{file} is not a file of Dendra; the node does not touch it"));
    why.into_iter().chain(foreign).collect()
}

fn in_words(report: &Report) -> String {
    let summary = &report.summary;
    format!(
        "{}: {} tables with {} records in {} bytes, {} log segments with {} records",
        match report.findings.len() {
            0 => "whole".to_owned(),
            1 => "1 damage".to_owned(),
            n => format!("{n} damages"),
        },
        summary.tables,
        summary.records,
        summary.table_bytes,
        summary.log_segments,
        summary.log_records,
    )
}

fn to_json(report: &Report) -> serde_json::Value {
    let summary = &report.summary;
    let findings: Vec<serde_json::Value> = report
        .findings
        .iter()
        .map(|f| json!({"file": f.file, "offset": f.offset, "reason": f.reason}))
        .collect();
    json!({
        "findings": findings,
        "notes": report.notes,
        "summary": {
            "manifest": summary.manifest,
            "tables": summary.tables,
            "table_bytes": summary.table_bytes,
            "records": summary.records,
            "tombstones": summary.tombstones,
            "log_segments": summary.log_segments,
            "log_records": summary.log_records,
        },
    })
}

/// `dendra dump`
pub(crate) fn dump(args: &Dump) -> ExitResult {
    let name = args.file.file_name().and_then(|name| name.to_str());
    let (Some(name), true) = (name, args.file.is_file()) else {
        let file = args.file.display();
        if !args.file.exists() {
            return Err(Failure::usage(format!("{file}: there is no such file")));
        }
        return Err(Failure::usage(format!(
            "{file}: is not a file; name one inside a data folder"
        )));
    };
    let folder = match args.file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let vfs = open(folder)?;
    let mut out = BufWriter::new(output::stdout()?);
    let dumped = dump_file(&vfs, name, args.records, &mut out);
    out.flush().map_err(|e| Failure::output("stdout", &e))?;
    match dumped {
        Ok(()) => Ok(Exit::OK),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::OK),
        Err(e @ Error::Unusable { .. }) => Err(Failure::usage(e.to_string())),
        Err(e) => Err(Failure::new(Exit::FAILURE, e.to_string())),
    }
}
