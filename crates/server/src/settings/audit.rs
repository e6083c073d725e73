//! Where a node keeps its audit log, and how much of it.
//!
//! ```text
//! --audit-log FILE   the newest lines; FILE.1, FILE.2 … the older ones
//! ```
//!
//! Invariants
//! 1. The log never takes more than `file_bytes` times `keep` and one, and a line more.
//!
//! Not here: the lines (`audit/`).
//! See: docs/operating.md, section "The audit log".

use std::path::PathBuf;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSettings {
    /// The file of the newest lines.
    pub path: PathBuf,
    /// A file of so many bytes is put aside, and a new one is begun.
    pub file_bytes: u64,
    /// So many files that were put aside stay.
    pub keep: u32,
}
