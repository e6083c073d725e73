//! A log-structured merge engine for one data folder, with no thread, clock, socket or randomness
//! of its own.
//!
//! ```text
//! write ─► WAL (group commit) ─► memtable ─► flush ─► level 0 ─► … ─► level n
//! read  ─► memtable, sealed memtables, levels; skips whatever cannot hold a newer version
//! ```
//!
//! Invariants
//! 1. Time is an argument, a disk is a `Vfs`, threads are the caller's.
//! 2. The names of this file are the whole face; `formats` is for fuzz targets and tests alone.
//!
//! Not here: decisions about copies (crate `node`), threads and sockets (crate `server`).
//! See: docs/format/, docs/overload.md, ARCHITECTURE.md.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

mod background;
mod batch;
mod cache;
pub mod check;
mod commit;
mod compact;
mod damage;
pub mod dump;
mod engine;
mod error;
mod explain;
mod foreign;
mod frame;
mod garbage;
mod hole;
mod identity;
mod ingest;
mod kept;
mod lanes;
#[cfg(test)]
#[path = "../../base/tests/legal/mod.rs"]
mod legal;
mod memory;
mod memtable;
mod merge;
mod observer;
mod options;
mod pressure;
mod queue;
mod recover;
mod room;
mod scan;
mod scrub;
mod segments;
mod snapshot;
mod source;
mod stats;
mod table;
mod touched;
mod tree;
pub mod vfs;
mod view;
mod waits;
mod wal;

pub use batch::{Batch, NotTaken, Unfit, WriteOutcome};
pub use damage::{DamagedSpan, DamagedTable};
pub use dendra_base::{Condition, Direction, Durability, Guard, Pressure, Stop};
pub use engine::Engine;
pub use error::{Error, Result};
pub use explain::{
    BlockLook, BlockSource, CellFacts, EXPLAINED_TABLES_MAX, Explained, FilterVerdict, FoundIn,
    LevelLook, TableAnswer, TableLook, TablePart,
};
pub use foreign::IsForeign;
pub use identity::Identity;
pub use ingest::Ingest;
pub use kept::{MarkOrder, Marked};
pub use lanes::{Maintained, Maintenance};
pub use memory::Split;
pub use observer::WriteObserver;
pub use options::{BadOptions, Compression, Options};
pub use queue::Submitted;
pub use scan::{Cursor, Flow, Progress, Show};
pub use scrub::state::{ScrubSlice, ScrubStats};
pub use snapshot::Snapshot;
pub use stats::{DiskStats, Stats};
pub use view::Lookup;
pub use waits::{WaitObserver, observe_waits};

/// Readers and writers of single files, for fuzz targets and tests of formats alone. No other crate
/// may use them, and they change with the engine.
#[doc(hidden)]
pub mod formats {
    /// Frames of small files.
    pub mod frame {
        pub use crate::frame::encode_into;
    }

    /// The note of kept tables.
    pub mod kept {
        pub use crate::kept::note::encoded_again;
    }

    /// The manifest.
    pub mod manifest {
        pub use crate::hole::Hole;
        pub use crate::table::TableMeta;
        pub use crate::tree::edit::{Edit, Fact, Folder};
        pub use crate::tree::manifest::{file_name, replay};
    }

    /// Tables.
    pub mod table {
        pub use crate::table::{Table, describe, file_name};
    }

    /// The log.
    pub mod wal {
        pub use crate::batch::LogRecord;
        pub use crate::wal::{
            Appended, BatchView, Batches, LogWriter, Lsn, Recovery, Segment, SegmentEnd, Spare,
            Tail, Unsynced, prepare, recover, segment_name,
        };
    }
}
