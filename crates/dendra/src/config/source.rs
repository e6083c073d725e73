//! Where the effective value of an option came from.

use std::fmt;
use std::path::PathBuf;

/// Where an effective value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueSource {
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

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Flag => f.write_str("flag"),
            ValueSource::Environment(variable) => write!(f, "environment {variable}"),
            ValueSource::File { path, line } => write!(f, "file {}:{line}", path.display()),
            ValueSource::Default => f.write_str("default"),
        }
    }
}
