//! How an operation ended, in one type for all backends.
//!
//! ```text
//! log thread ─► WriteOutcome ─┐
//! store pool ─► PoolAnswer   ─┼─► Finished ─► seat ─► the connection: status, headers, bytes
//! node       ─► Outcome, page ┤
//! front door ─► Outcome, page ┘   Told, when the engine behind it did not do it
//! ```
//!
//! Invariants
//! 1. A connection's answer to an end does not depend on where the end came from.
//!
//! Not here: the bytes of an answer (`clients/answers.rs`), where a connection waits (`seat.rs`).

use crate::measure::metrics::RefusalCause;
use crate::waiting::engine_look::EngineLook;
use crate::waiting::scan_job::ScanJob;
use bytes::Bytes;
use dendra_base::Cell;
use dendra_base::peer::{Answer, Range};
use dendra_engine::WriteOutcome;
use dendra_node::Outcome;
use dendra_node::account::ReadAccount;
use dendra_wire::Refusal;

/// The end of an operation, of a part of a scan, or of a peer's question.
#[derive(Debug)]
pub(crate) enum Finished {
    /// An operation on a key has an outcome.
    Outcome {
        /// Which one. A read has its value's cell beside it, and its condition is not judged yet.
        outcome: Outcome,
        /// Replicas that answered.
        acks: u8,
        /// The newest cell: of a read, or of a write that its condition refused.
        cell: Option<Cell>,
    },
    /// A queue, a gate or the disk of this node refused; nothing changed.
    Refused(RefusalCause),
    /// Bytes on disk are not those that were written.
    Damaged,
    /// An engine of others did not do it: the answer that says why.
    Told(Box<Refusal>),
    /// The engine or a worker failed; the log has the reason, and nothing changed.
    Failed,
    /// The next chunk of a scan of the own store.
    Chunk(Box<ScanJob>),
    /// A chunk of a scan of the own store could not be made to its end; was it damage?
    ChunkFailed(Box<ScanJob>, bool),
    /// A page of a scan of the cluster.
    Page {
        /// Live records.
        records: Vec<(Bytes, Cell)>,
        /// The part that is still to come.
        rest: Option<Range>,
        /// Why the scan stops here.
        failure: Option<Outcome>,
    },
    /// A read of the own store, and how it went.
    Explained(Box<EngineLook>),
    /// A read of the cluster has an outcome, and an account.
    Account {
        /// Which one.
        outcome: Outcome,
        /// Replicas that answered.
        acks: u8,
        /// The owners' answers.
        account: Box<ReadAccount>,
    },
    /// The answer to a peer that asked over plain HTTP.
    Reply(Box<Answer>),
}

impl From<WriteOutcome> for Finished {
    fn from(outcome: WriteOutcome) -> Finished {
        let outcome = match outcome {
            WriteOutcome::Applied { version } => Outcome::Stored { version },
            WriteOutcome::GuardFailed { current } => Outcome::ConditionFailed { current },
            WriteOutcome::Crowded => return Finished::Refused(RefusalCause::LogQueue),
            WriteOutcome::NoRoom => return Finished::Refused(RefusalCause::Disk),
            WriteOutcome::NotApplied => return Finished::Failed,
        };
        Finished::Outcome {
            outcome,
            acks: 1,
            cell: None,
        }
    }
}
