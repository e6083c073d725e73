//! A command's words to a person: notes on stderr, never on stdout.
//!
//! ```text
//! note      progress and results      silenced by --quiet
//! detail    one line a request        only with -v
//! error     why it failed             always
//! ```
//!
//! Invariants
//! 1. Keys are shown escaped: a key from a server cannot steer the terminal.
//! 2. A stderr that is gone does not change the work.
//!
//! Not here: data (stdout, each command's own), logs of `serve` (`logs.rs`).
//! See: docs/cli.md.

use std::io::Write;

/// How much a command says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    /// `--quiet`: errors only.
    pub(crate) is_quiet: bool,
    /// How often `-v` was given.
    pub(crate) verbosity: u8,
}

/// Writes one line to stderr. A failure cannot be reported.
fn line(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

impl Console {
    /// Something worth knowing.
    pub(crate) fn note(self, text: &str) {
        if !self.is_quiet {
            line(text);
        }
    }

    /// A detail for a person that looks for a cause.
    pub(crate) fn detail(self, text: impl FnOnce() -> String) {
        if self.verbosity > 0 {
            line(&text());
        }
    }
}

/// Why the command failed.
pub(crate) fn error(sentence: &str) {
    line(&format!("dendra: {sentence}"));
}

/// So much is shown of a longer key.
const KEY_SHOWN_BYTES: usize = 80;

/// A key for a person: printable ASCII as it is, the rest escaped; of a long one the beginning.
pub(crate) fn show_key(key: &[u8]) -> String {
    match key.split_at_checked(KEY_SHOWN_BYTES) {
        Some((shown, rest)) if !rest.is_empty() => {
            format!("{}… ({} bytes)", shown.escape_ascii(), key.len())
        }
        _ => key.escape_ascii().to_string(),
    }
}
