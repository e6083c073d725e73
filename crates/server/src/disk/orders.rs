//! The results of the node's orders to the store, in the node's words.
//!
//! ```text
//! WriteOutcome ─► wrote     │
//! PoolAnswer   ─► answered  ├─► Event of the node
//! not begun    ─► cancelled │
//! ```
//!
//! Invariants
//! 1. Each order leads to one event of its own kind: an answer of another kind counts as not
//!    applied.
//!
//! Not here: how an order is begun (`peers/store.rs`), the waits for it (`event_loop/thread/`).

use crate::lanes::work::{PoolAnswer, StoreWork};
use dendra_engine::WriteOutcome;
use dendra_node::step::{Event, StoreFailure, StoreOutcome, StoreTicket};

/// The outcome of a write, in the node's words.
pub(crate) fn wrote(ticket: StoreTicket, outcome: WriteOutcome) -> Event {
    let result = match outcome {
        WriteOutcome::Applied { version } => Ok(StoreOutcome::Applied { version }),
        WriteOutcome::GuardFailed { current } => Ok(StoreOutcome::GuardFailed { current }),
        WriteOutcome::Crowded => Err(StoreFailure::Busy),
        WriteOutcome::NotApplied => Err(StoreFailure::NotApplied),
        WriteOutcome::NoRoom => Err(StoreFailure::DiskFull),
    };
    Event::Wrote { ticket, result }
}

/// The event for an order that was cancelled before it was begun.
pub(crate) fn cancelled(ticket: StoreTicket, kind: Cancelled) -> Event {
    let why = StoreFailure::Late;
    match kind {
        Cancelled::Read => Event::Read {
            ticket,
            result: Err(why),
        },
        Cancelled::Page => Event::Paged {
            ticket,
            result: Err(why),
        },
        Cancelled::Survey => Event::Surveyed {
            ticket,
            result: Err(why),
        },
        Cancelled::Write => Event::Wrote {
            ticket,
            result: Err(why),
        },
    }
}

/// Which kind of order was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// An order about one key.
    Read,
    /// An order about a range.
    Page,
    /// At a range.
    Survey,
    /// A write that stood in line for the log.
    Write,
}

impl From<&StoreWork> for Cancelled {
    fn from(work: &StoreWork) -> Cancelled {
        match work {
            StoreWork::Get(_) | StoreWork::Explain(_) => Cancelled::Read,
            StoreWork::Page(_) | StoreWork::Chunk(_) => Cancelled::Page,
            StoreWork::Survey(_) => Cancelled::Survey,
        }
    }
}

/// The store pool's answer, in the node's words.
pub(crate) fn answered(ticket: StoreTicket, answer: PoolAnswer) -> Event {
    let failed = |failure| Event::Read {
        ticket,
        result: Err(failure),
    };
    match answer {
        PoolAnswer::Cell(cell) => Event::Read {
            ticket,
            result: Ok(cell.map(|cell| *cell)),
        },
        PoolAnswer::Page(page) => Event::Paged {
            ticket,
            result: page,
        },
        PoolAnswer::Surveyed(result) => Event::Surveyed { ticket, result },
        PoolAnswer::Damaged => failed(StoreFailure::Damaged),
        PoolAnswer::Late => failed(StoreFailure::Late),
        PoolAnswer::Failed
        | PoolAnswer::Explained(_)
        | PoolAnswer::Chunk(_)
        | PoolAnswer::ChunkFailed(..)
        | PoolAnswer::Front(_) => failed(StoreFailure::NotApplied),
    }
}
