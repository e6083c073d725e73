//! A log-structured merge engine for one data folder, with no thread, clock, socket or randomness
//! of its own.
//!
//! ```text
//! write ─► WAL (group commit) ─► memtable ─► flush ─► level 0 ─► … ─► level n
//! read  ─► memtable, sealed memtables, levels; skips whatever cannot hold a newer version
//! ```
//!
//! See: docs/format/, docs/overload.md, ARCHITECTURE.md.

pub mod batch;
pub mod cache;
mod engine;
pub mod error;
pub mod options;
pub mod source;
pub mod table;
pub mod vfs;

pub use batch::{Batch, Guard, Outcome};
pub use engine::{
    Cursor, Direction, Engine, Flow, Identity, Lane, Lookup, Maintained, Pressure, Progress,
    Refused, Show, Stats, Stop, Submitted,
};
pub use error::{Error, Result};
pub use options::{Compression, Durability, Options};
