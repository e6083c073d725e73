//! Files that are read again while the node runs.
//!
//! ```text
//! each second: have the files changed? ─┬─ read, all of use ─► in force
//! SIGHUP: in any case ──────────────────┴─ not of use       ─► warning, counted; the old ones stay
//! ```
//!
//! Invariants
//! 1. Files that are of no use are read again when they change once more, or when it is due.
//!
//! Not here: reading the files (`keeper.rs`, `front/papers.rs`).

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A file's number, length, and time of change; `None` = it is not there.
type FileMark = Option<(u64, u64, i64, i64)>;

/// How the file at `path` looks now.
fn mark(path: &Path) -> FileMark {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FileWatch {
    /// The files, as sentences name them.
    what: &'static str,
    seen: Mutex<Vec<FileMark>>,
    /// Readings of changed files that were of use.
    pub(crate) taken: AtomicU64,
    /// Readings that were not.
    pub(crate) refused: AtomicU64,
}

/// The end of a look at files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLook {
    /// No file has changed.
    NotDue,
    /// Files were read and are in force.
    Taken,
    /// Files were read and are of no use.
    Refused,
}

impl FileWatch {
    /// Begins before the files are read for the first time: a change meanwhile is seen.
    pub(crate) fn new<'a>(what: &'static str, files: impl Iterator<Item = &'a Path>) -> FileWatch {
        FileWatch {
            what,
            seen: Mutex::new(files.map(mark).collect()),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Reads the files again, if they have changed or `is_due`. `read` puts them into force, or
    /// says why they are of no use.
    pub(crate) fn look<'a>(
        &self,
        files: impl Iterator<Item = &'a Path>,
        is_due: bool,
        read: impl FnOnce() -> Result<(), String>,
    ) -> FileLook {
        let now: Vec<FileMark> = files.map(mark).collect();
        let mut seen = self.seen.lock().expect("no holder panics");
        if *seen == now && !is_due {
            return FileLook::NotDue;
        }
        *seen = now;
        drop(seen);
        let what = self.what;
        match read() {
            Ok(()) => {
                self.taken.fetch_add(1, Relaxed);
                tracing::info!("{what} were read again and are in force");
                FileLook::Taken
            }
            Err(sentence) => {
                self.refused.fetch_add(1, Relaxed);
                tracing::warn!(
                    sentence,
                    "{what} were read again and are of no use: the old ones stay in force"
                );
                FileLook::Refused
            }
        }
    }
}
