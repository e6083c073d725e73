//! A read of the own store that tells how it went, from the worker that made it.
//!
//! Not here: the document that a client gets (`exchange/explain.rs`).

use dendra_engine::Explained;

/// How the read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookEnd {
    /// The newest cell is known, or that there is none.
    Read,
    /// Bytes on disk are not those that were written.
    Damaged,
    /// The engine failed; the log has the reason.
    Failed,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct EngineLook {
    pub(crate) end: LookEnd,
    pub(crate) explained: Explained,
    /// Time inside the engine.
    pub(crate) took_us: u64,
}
