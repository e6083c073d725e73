//! The properties of a file that tell that it has changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file's number, length, and time of change; `None` = it is not there.
pub(crate) type FileMark = Option<(u64, u64, i64, i64)>;

/// How the file at `path` looks now.
pub(crate) fn mark(path: &Path) -> FileMark {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}
