//! The texts that options were given, and where the one that counts came from.

use super::options::checked;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
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
    /// The value was not set.
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

/// The texts that were given, while the places are gone through from the strongest to the weakest.
#[derive(Default)]
pub(super) struct GivenOptions {
    pub(super) strongest: HashMap<&'static str, (OsString, ValueSource)>,
    pub(super) problems: Vec<String>,
}

impl GivenOptions {
    /// Requires: `key` is an option. A problem begins with `place`.
    pub(super) fn take(
        &mut self,
        key: &'static str,
        text: &OsStr,
        place: &str,
        source: ValueSource,
    ) {
        match checked(key, text) {
            Err(rest) => self.problems.push(format!("{place}: {rest}")),
            Ok(text) => {
                self.strongest.entry(key).or_insert((text, source));
            }
        }
    }
}
