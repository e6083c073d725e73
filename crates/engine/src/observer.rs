//! The observer of an engine: each commit is shown to it.
//!
//! Invariants
//! 1. A record is shown when reads find it and it is as durable as promised, and before the outcome
//!    of its write is told. So is one that a newer one of its key had overtaken before.
//!
//! Not here: what is done with them (the server).

use dendra_base::Version;

/// See the module. It is called by the thread that commits, which holds the log: it must not wait.
pub trait WriteObserver: Send + Sync {
    /// Does the observer want to see commits now? While it does not, a commit costs this question
    /// alone.
    fn is_wanted(&self) -> bool;

    /// This version of a stored key was written.
    fn written(&self, stored_key: &[u8], version: Version);

    /// All records of a commit were shown.
    fn shown(&self);
}
