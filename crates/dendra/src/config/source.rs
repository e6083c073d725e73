//! Where the effective value of an option came from.

use std::fmt;
use std::path::PathBuf;

/// Where an effective value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The command line.
    Flag,
    /// This environment variable.
    Environment(String),
    /// This line of this file.
    File {
        /// The file as it was named.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// It was not set.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag => f.write_str("flag"),
            Source::Environment(variable) => write!(f, "environment {variable}"),
            Source::File { path, line } => write!(f, "file {}:{line}", path.display()),
            Source::Default => f.write_str("default"),
        }
    }
}
