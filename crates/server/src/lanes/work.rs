//! Reads that would block, as values: the work, its asker, and its result.
//!
//! Invariants
//! 1. Every kind of work has a kind of answer, and every answer to a client is a `Finished`.
//!
//! Not here: the queue (`disk/store_pool.rs`), the threads (`disk/readers.rs`).

use crate::lanes::page::Page;
use crate::measure::metrics::RefusalCause;
use crate::measure::stages::Watch;
use crate::waiting::engine_look::EngineLook;
use crate::waiting::finished::Finished;
use crate::waiting::scan_job::ScanJob;
use dendra_base::{Cell, Key};
use dendra_node::Outcome;
use dendra_node::compare::survey::{Survey, Surveyed};
use dendra_node::step::{Paged, StoreFailure};

/// The work for a worker.
#[derive(Debug)]
pub(crate) enum StoreWork {
    /// Read one key from the disk.
    Get(Key),
    /// Read one key, and tell how.
    Explain(Key),
    /// Fill the scan's buffer once.
    Chunk(Box<ScanJob>),
    /// Read a part of a range for the node.
    Page(Box<Page>),
    /// Look at a part of a space for the node.
    Survey(Box<Survey>),
}

/// One piece of work, and the asker.
#[derive(Debug)]
pub(crate) struct StoreJob {
    /// Index of the event loop that asked.
    pub(crate) lane: usize,
    /// Where that loop waits for the answer.
    pub(crate) slot: u32,
    /// Past this moment (`clock::monotonic_us`) the work is not started.
    pub(crate) deadline_us: u64,
    /// Runs since the job was offered, when its request is measured.
    pub(crate) watch: Watch,
    /// The work itself.
    pub(crate) work: StoreWork,
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum PoolAnswer {
    /// The key's newest cell, if there is one.
    Cell(Option<Box<Cell>>),
    /// A read, and how it went.
    Explained(Box<EngineLook>),
    /// The scan with its next chunk.
    Chunk(Box<ScanJob>),
    /// The scan without a further chunk, and whether damage is the reason.
    ChunkFailed(Box<ScanJob>, bool),
    /// A part of a range, for the node.
    Page(Paged),
    /// A look, for the node.
    Surveyed(Result<Surveyed, StoreFailure>),
    /// The end of an operation of an engine of others.
    Front(Box<Finished>),
    /// The deadline passed in the queue.
    Late,
    /// Bytes on disk are not those that were written.
    Damaged,
    /// The engine or the worker failed; the log has the reason.
    Failed,
}

impl From<PoolAnswer> for Finished {
    fn from(answer: PoolAnswer) -> Finished {
        match answer {
            PoolAnswer::Cell(None) => Finished::Outcome {
                outcome: Outcome::Missing,
                acks: 1,
                cell: None,
            },
            PoolAnswer::Cell(Some(cell)) => Finished::Outcome {
                outcome: Outcome::Found {
                    version: cell.version,
                    expiry_ms: cell.expiry_ms,
                },
                acks: 1,
                cell: Some(*cell),
            },
            PoolAnswer::Explained(look) => Finished::Explained(look),
            PoolAnswer::Chunk(scan) => Finished::Chunk(scan),
            PoolAnswer::ChunkFailed(scan, is_damaged) => Finished::ChunkFailed(scan, is_damaged),
            PoolAnswer::Front(finished) => *finished,
            PoolAnswer::Late => Finished::Refused(RefusalCause::Deadline),
            PoolAnswer::Damaged => Finished::Damaged,
            // Pages and looks are made for the node alone.
            PoolAnswer::Failed | PoolAnswer::Page(_) | PoolAnswer::Surveyed(_) => Finished::Failed,
        }
    }
}
