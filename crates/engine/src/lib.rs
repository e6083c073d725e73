//! A log-structured merge engine for one data folder, with no thread, clock, socket or randomness
//! of its own.
//!
//! ```text
//! write ─► WAL (group commit) ─► memtable ─► flush ─► level 0 ─► … ─► level n
//! read  ─► memtable, sealed memtables, levels; skips whatever cannot hold a newer version
//! ```
//!
//! See: docs/format/, docs/overload.md, ARCHITECTURE.md.

#![warn(unreachable_pub)]
#![warn(clippy::match_bool, clippy::manual_let_else)]

mod background;
pub mod batch;
mod cache;
pub mod check;
mod commit;
mod compact;
mod damage;
pub mod dump;
mod engine;
pub mod error;
pub mod frame;
mod garbage;
mod identity;
mod lanes;
pub mod memory;
mod memtable;
mod merge;
pub mod options;
mod pressure;
mod queue;
mod recover;
mod scan;
mod segments;
pub mod source;
mod stats;
pub mod table;
pub mod tree;
pub mod vfs;
mod view;
mod waits;
pub mod wal;

pub use batch::{Batch, NotTaken, Unfit, WriteOutcome};
pub use damage::DamagedTable;
pub use dendra_base::{Condition, Direction, Durability, Guard, Pressure, Stop};
pub use engine::Engine;
pub use error::{Error, Result};
pub use identity::Identity;
pub use lanes::{Maintained, Maintenance};
pub use options::{Compression, Options};
pub use queue::Submitted;
pub use scan::{Cursor, Flow, Progress, Show};
pub use stats::Stats;
pub use view::Lookup;
pub use waits::{WaitObserver, observe_waits};
