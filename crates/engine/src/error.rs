//! The errors of one disk: one kind per different reaction of the caller.
//!
//! ```text
//! kind       the caller                              the server answers
//! Io         gives up this operation                 500
//! Damaged    knows nothing about the key             500, never 404
//! Full       refuses new values, keeps the rest      507
//! Poisoned   stops the process: the log is unsure    aborts
//! Lost       stops the process: no folder is left    exit 3
//! Unusable   does not start                          exit 3
//! Folder     does not start; it names the folder     exit 3
//! ```
//!
//! Invariants
//! 1. `Display` is a sentence with names, numbers and the way out.
//!
//! Not here: outcomes of writes (`batch.rs`), which are values and not errors.

use std::fmt;
use std::io;

/// Result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// An operating error of the engine.
#[derive(Debug)]
pub enum Error {
    /// The operating system refused an operation on a file.
    Io {
        /// The step that failed, with the file's name.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// Bytes on disk are not those that were written.
    Damaged {
        /// File name inside the folder.
        file: String,
        /// Where in the file.
        offset: u64,
        /// The expected bytes and the found ones, as a sentence.
        reason: String,
    },
    /// The disk has no room for new values.
    Full {
        /// Room left, in bytes.
        free_bytes: u64,
    },
    /// A log write or sync failed before: the durable state is unknown, so no byte more is written.
    Poisoned {
        /// The failure that came first.
        reason: String,
    },
    /// The folder is not this engine's any more: nothing more is written or acknowledged.
    Lost {
        /// What has become of it, as a sentence.
        reason: String,
    },
    /// A file, or the options, cannot be used by this program.
    Unusable {
        /// The reason, and the way out.
        reason: String,
    },
    /// The folder as a whole cannot be opened now.
    Folder {
        /// The reason, with the place of the folder, and the way out.
        reason: String,
    },
}

impl Error {
    /// An I/O error with the file or call it came from.
    pub fn io(what: impl Into<String>, source: io::Error) -> Error {
        Error::Io {
            what: what.into(),
            source,
        }
    }

    /// Damage found in `file` at `offset`.
    pub fn damaged(file: impl Into<String>, offset: u64, reason: impl Into<String>) -> Error {
        Error::Damaged {
            file: file.into(),
            offset,
            reason: reason.into(),
        }
    }

    /// Does the engine write nothing more after this?
    pub fn is_final(&self) -> bool {
        matches!(self, Error::Poisoned { .. } | Error::Lost { .. })
    }

    /// Is the folder not this engine's any more?
    pub fn is_lost(&self) -> bool {
        matches!(self, Error::Lost { .. })
    }

    /// Did a `Wait::Never` read find that it would have to wait?
    pub fn would_block(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::WouldBlock)
    }

    /// Did the disk run out of room?
    pub fn is_no_space(&self) -> bool {
        match self {
            Error::Full { .. } => true,
            Error::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { what, source } => write!(f, "{what}: {source}"),
            Error::Damaged {
                file,
                offset,
                reason,
            } => {
                write!(f, "{file} is damaged at byte {offset}: {reason}")
            }
            Error::Full { free_bytes } => {
                write!(
                    f,
                    "the disk is full ({free_bytes} bytes left): make room, writes resume by themselves"
                )
            }
            Error::Poisoned { reason } => {
                write!(
                    f,
                    "the log failed and nothing more is written: {reason}; restart the process"
                )
            }
            Error::Lost { reason } => write!(
                f,
                "{reason}; nothing more is written or acknowledged: start the node again when its folder is back"
            ),
            Error::Unusable { reason } | Error::Folder { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
