//! Why a node could not start.
//!
//! Not here: the messages and exit codes (`lifecycle/serving.rs`).

use std::fmt;
use std::io;

/// Why a node could not start: one kind per exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The settings cannot work together (exit 2).
    Settings {
        /// The sentence for the operator.
        reason: String,
    },
    /// The data folder cannot be opened: locked, damaged, another format (exit 3).
    Folder {
        /// The sentence for the operator.
        reason: String,
    },
    /// An address is taken or not ours (exit 4).
    Address {
        /// The sentence for the operator.
        reason: String,
    },
    /// The system gave no thread or no descriptor (exit 1).
    System {
        /// The sentence for the operator.
        reason: String,
    },
    /// A signal asked to stop before the node served (exit 0).
    Asked,
}

impl StartError {
    /// The exit code of `dendra serve`.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Asked => 0,
            StartError::System { .. } => 1,
            StartError::Settings { .. } => 2,
            StartError::Folder { .. } => 3,
            StartError::Address { .. } => 4,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Settings { reason }
            | StartError::Folder { reason }
            | StartError::Address { reason }
            | StartError::System { reason } => f.write_str(reason),
            StartError::Asked => f.write_str("a signal asked to stop before the node served"),
        }
    }
}

impl std::error::Error for StartError {}

/// The error of a failed system call; `what` is the work that it was for.
pub(crate) fn system(what: &str) -> impl Fn(io::Error) -> StartError + '_ {
    move |error| StartError::System {
        reason: format!("{what}: {error}"),
    }
}
