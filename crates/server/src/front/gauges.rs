//! A front door's numbers about its engine: times, operations under way, and whether it answers.
//!
//! Invariants
//! 1. A time is noted under a lock: a histogram has one writer at a time.
//!
//! Not here: names of metrics (`admin/exposition/front.rs`), the looks (`threads.rs`).

use crate::admin::profile::Lock;
use crate::admin::tally::Histogram;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The kind of an operation, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum FrontKind {
    Read,
    Write,
    Page,
}

impl FrontKind {
    pub(crate) const ALL: [FrontKind; 3] = [FrontKind::Read, FrontKind::Write, FrontKind::Page];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            FrontKind::Read => "read",
            FrontKind::Write => "write",
            FrontKind::Page => "page",
        }
    }
}

/// Numbers of one front door.
#[derive(Debug)]
pub(crate) struct FrontGauges {
    /// From the desk to the engine's answer, or to the deadline.
    times: Lock<[Histogram; FrontKind::ALL.len()]>,
    under_way: AtomicUsize,
    /// Why the last look at the engine had no answer; `None` = it answers.
    silence: Lock<Option<String>>,
}

impl FrontGauges {
    /// Of an engine that has just answered.
    pub(super) fn new() -> FrontGauges {
        FrontGauges {
            times: Lock::new(Default::default()),
            under_way: AtomicUsize::new(0),
            silence: Lock::new(None),
        }
    }

    /// Operations that the engine carries out now.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Why the engine does not answer; `None` = it does.
    pub(crate) fn silence(&self) -> Option<String> {
        self.silence.hold().clone()
    }

    /// Shows the times of one kind.
    pub(crate) fn read_times<T>(&self, kind: FrontKind, read: impl FnOnce(&Histogram) -> T) -> T {
        read(&self.times.hold()[kind as usize])
    }

    pub(super) fn note_begin(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_end(&self, kind: FrontKind, took: Duration) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.times.hold()[kind as usize].note(took_ns, 1);
    }

    /// Notes the end of a look at the engine.
    pub(super) fn note_look(&self, engine: &str, looked: Result<(), String>) {
        let mut silence = self.silence.hold();
        match (&*silence, &looked) {
            (None, Err(why)) => tracing::warn!(engine, why, "the store does not answer"),
            (Some(_), Ok(())) => tracing::info!(engine, "the store answers again"),
            _ => {}
        }
        *silence = looked.err();
    }
}
