//! The progress of a load: counts, failures, acknowledged keys, the bar.
//!
//! ```text
//! acked(key)         --acked FILE gets a line, in one write, before anything else is counted
//! failed(…)          the first 20 are kept for the summary, --failures FILE gets all
//! ```
//!
//! Invariants
//! 1. A key stands in the file of acknowledged keys only after its 201 arrived.
//! 2. No bar is drawn when stderr is no terminal.
//! 3. A report file that cannot be written ends the load: its caller relies on it.
//!
//! Not here: the callers (`sender.rs`).
//! See: docs/cli.md.

use crate::console::{self, Console};
use crate::exit::{Exit, Failure};
use crate::{encoding, ops};
use dendra_wire::percent;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Failures that the summary shows one by one.
const SHOWN_MAX: usize = 20;

/// The subject of a failure: a key that was sent, or a place in the source that is no record.
pub(super) enum Subject<'a> {
    /// A key.
    Key(&'a [u8]),
    /// A file, or a line.
    Place(&'a str),
}

/// A report file with its name, for errors.
struct ReportFile {
    file: File,
    name: String,
}

impl ReportFile {
    fn open(path: Option<&Path>) -> Result<Option<ReportFile>, Failure> {
        let Some(path) = path else {
            return Ok(None);
        };
        let name = path.display().to_string();
        match OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => Ok(Some(ReportFile { file, name })),
            Err(e) => Err(Failure::output(&name, &e)),
        }
    }

    /// One line in one write: a kill leaves no half of it.
    fn line(&mut self, text: String) -> Result<(), Failure> {
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        written.map_err(|e| Failure::output(&self.name, &e))
    }
}

/// Counts of one load.
pub(super) struct LoadTally {
    started: Instant,
    records: u64,
    bytes: u64,
    failed: u64,
    skipped: u64,
    retries: u64,
    shown: Vec<String>,
    acked: Option<ReportFile>,
    failures: Option<ReportFile>,
    bar: ProgressBar,
}

impl LoadTally {
    /// Opens the report files and starts the bar.
    pub(super) fn new(
        acked: Option<&Path>,
        failures: Option<&Path>,
        console: Console,
    ) -> Result<LoadTally, Failure> {
        let target = if console.is_quiet {
            ProgressDrawTarget::hidden()
        } else {
            // Hidden by itself when stderr is no terminal.
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let template = "{spinner} {msg} {bytes} at {bytes_per_sec}, {elapsed}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Ok(LoadTally {
            started: Instant::now(),
            records: 0,
            bytes: 0,
            failed: 0,
            skipped: 0,
            retries: 0,
            shown: Vec::new(),
            acked: ReportFile::open(acked)?,
            failures: ReportFile::open(failures)?,
            bar,
        })
    }

    /// The node holds `key` now.
    pub(super) fn acked(&mut self, key: &[u8], value_len: usize) -> Result<(), Failure> {
        if let Some(report) = &mut self.acked {
            report.line(percent::encode(key))?;
        }
        self.records += 1;
        self.bytes += value_len as u64;
        self.bar.set_message(format!("{} records,", self.records));
        self.bar.inc(value_len as u64);
        Ok(())
    }

    /// `subject` is not stored, or that is unknown.
    pub(super) fn failed(&mut self, subject: &Subject<'_>, reason: &str) -> Result<(), Failure> {
        self.failed += 1;
        if self.shown.len() < SHOWN_MAX {
            let name = match subject {
                Subject::Key(key) => console::show_key(key),
                Subject::Place(place) => (*place).to_owned(),
            };
            self.shown.push(format!("  {name}: {reason}"));
        }
        let Some(report) = &mut self.failures else {
            return Ok(());
        };
        let mut object = Map::new();
        match subject {
            Subject::Key(key) => encoding::put_json(&mut object, "key", key),
            Subject::Place(place) => {
                object.insert("place".to_owned(), Value::from(*place));
            }
        }
        object.insert("reason".to_owned(), Value::from(reason));
        report.line(Value::Object(object).to_string())
    }

    /// Something in the source that need not be stored.
    pub(super) fn skipped(&mut self) {
        self.skipped += 1;
    }

    /// A record is sent once more.
    pub(super) fn retried(&mut self) {
        self.retries += 1;
    }

    /// Prints the summary. `ended_early` says why not everything was sent.
    pub(super) fn finish(
        &self,
        ended_early: Option<&str>,
        is_json: bool,
        console: Console,
    ) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        let elapsed = self.started.elapsed().max(Duration::from_millis(1));
        if is_json {
            let object = json!({
                "records": self.records, "bytes": self.bytes, "failed": self.failed,
                "skipped": self.skipped, "retries": self.retries,
                "seconds": elapsed.as_secs_f64(), "ended_early": ended_early,
            });
            ops::print(format!("{object}\n").as_bytes())?;
        }
        let rate = (self.bytes as f64 / elapsed.as_secs_f64()) as u64;
        console.note(&format!(
            "{} records, {} in {:.1} s ({}/s); {} failed, {} skipped, {} tries again",
            self.records,
            HumanBytes(self.bytes),
            elapsed.as_secs_f64(),
            HumanBytes(rate),
            self.failed,
            self.skipped,
            self.retries,
        ));
        for line in &self.shown {
            console::error(line.trim_start());
        }
        if self.failed > self.shown.len() as u64 {
            console::error(&format!(
                "{} more failures are not shown; --failures FILE keeps all of them",
                self.failed - self.shown.len() as u64
            ));
        }
        if let Some(reason) = ended_early {
            console::error(&format!("the load ended early: {reason}"));
        }
        Ok(())
    }

    /// The code of a load that came to the end of its source.
    pub(super) fn exit(&self) -> Exit {
        if self.failed == 0 {
            Exit::OK
        } else {
            Exit::FAILURE
        }
    }
}
