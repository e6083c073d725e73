//! Exit codes and failures, on which a script can rely.
//!
//! ```text
//! 0    done                         3    key not found       (get)
//! 1    failed                       4    condition failed    (put, delete, copy)
//! 2    unusable options             5    unavailable, or no answer in time
//! 130  interrupted
//! serve:  3 the data folder cannot be opened   4 the address is taken
//! bench:  6 invalid: the generator was the bottleneck    (the run is written all the same)
//! check:  1 damage found                       3 a node runs on the folder
//! cluster compare:  6 copies differ
//! health: 1 degraded            2 not serving      3 not known
//! lock:   the command's own, 128 and the signal that ended it, 122 to 127 (`lock.rs`)
//! ```
//!
//! Invariants
//! 1. A failure has a code and one sentence for stderr.
//! 2. A reader of our output that went away (`| head`) is no failure: we end quietly.
//!
//! Not here: HTTP statuses (`client/answer.rs`).
//! See: docs/cli.md.

use std::io;
use std::process::ExitCode;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    /// Everything was done.
    pub(crate) const OK: Exit = Exit(0);
    /// Something was not done, and no other code says why.
    pub(crate) const FAILURE: Exit = Exit(1);
    /// The command line, the environment or the file of options makes no sense.
    pub(crate) const USAGE: Exit = Exit(2);
    /// The key is not there.
    pub(crate) const NOT_FOUND: Exit = Exit(3);
    /// The data folder cannot be opened, or a node runs on it.
    pub(crate) const FOLDER: Exit = Exit(3);
    /// A condition did not hold; the node kept the record as it was.
    pub(crate) const CONDITION: Exit = Exit(4);
    /// No node, or no answer in time.
    pub(crate) const UNAVAILABLE: Exit = Exit(5);
    /// A measurement that must not be used.
    pub(crate) const INVALID: Exit = Exit(6);
    /// The node or the cluster serves, and an operator should act.
    pub(crate) const DEGRADED: Exit = Exit(1);
    /// The node or the cluster does not serve.
    pub(crate) const NOT_SERVING: Exit = Exit(2);
    /// A node is there, and does not tell its health.
    pub(crate) const UNKNOWN: Exit = Exit(3);
    /// Copies differ.
    pub(crate) const DIFFER: Exit = Exit(6);
    /// SIGINT.
    pub(crate) const INTERRUPTED: Exit = Exit(130);
}

impl Exit {
    /// A code that only one command has.
    pub(crate) const fn from_code(code: u8) -> Exit {
        Exit(code)
    }

    /// Exit code as the system takes it.
    pub(crate) fn code(self) -> i32 {
        i32::from(self.0)
    }
}

impl From<&dendra_server::ExitReason> for Exit {
    fn from(reason: &dendra_server::ExitReason) -> Exit {
        Exit(reason.exit_code())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.0)
    }
}

/// Why a command ends early.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The code to end with.
    pub(crate) exit: Exit,
    /// For stderr; empty = no line.
    pub(crate) sentence: String,
}

/// The result of a command.
pub(crate) type ExitResult = Result<Exit, Failure>;

impl Failure {
    /// A failure with its sentence.
    pub(crate) fn new(exit: Exit, sentence: impl Into<String>) -> Failure {
        Failure {
            exit,
            sentence: sentence.into(),
        }
    }

    /// The user wrote something that cannot be done.
    pub(crate) fn usage(sentence: impl Into<String>) -> Failure {
        Failure::new(Exit::USAGE, sentence)
    }

    /// Writing the command's own output failed.
    pub(crate) fn output(what: &str, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::new(Exit::OK, "");
        }
        Failure::new(
            Exit::FAILURE,
            format!("{what} cannot be written ({error}); make room or choose another place"),
        )
    }
}
