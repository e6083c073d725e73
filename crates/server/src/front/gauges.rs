//! A front door's numbers about its engine: times, operations under way, and whether it answers.
//!
//! Invariants
//! 1. A time is noted under a lock: a histogram has one writer at a time.
//!
//! Not here: names of metrics (`admin/exposition/table.rs`), the looks (`threads.rs`).

use crate::limits;
use crate::measure::profile::Lock;
use crate::measure::tally::{Histogram, labels};
use dendra_stores::StoreUpkeep;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

labels! {
    /// The kind of an operation, as a label.
    pub(crate) enum FrontKind {
        Read = "read",
        Write = "write",
        Page = "page",
    }
}

/// Why a look at the engine failed.
pub(super) struct LookFailure {
    pub(super) why: String,
    /// Did too few servers answer it? Otherwise they answered that they cannot do it.
    pub(super) is_unanswered: bool,
}

/// Numbers of one front door.
#[derive(Debug)]
pub(crate) struct FrontGauges {
    /// From the desk to the engine's answer, or to the deadline.
    times: Lock<[Histogram; FrontKind::ALL.len()]>,
    under_way: AtomicUsize,
    /// Why the last look at the engine failed; `None` = it answers.
    silence: Lock<Option<String>>,
    /// Looks that no majority answered, one after the other.
    looks_unanswered: AtomicU32,
    /// Keys without a record that were taken out of the engine's list.
    pub(crate) keys_cleaned: AtomicU64,
    /// Revisions that the engine keeps, as it last said.
    revisions_kept: AtomicU64,
    /// Did the last upkeep fail?
    is_untended: AtomicBool,
}

impl FrontGauges {
    /// Gauges of an engine that has just answered.
    pub(super) fn new() -> FrontGauges {
        FrontGauges {
            times: Lock::new(Default::default()),
            under_way: AtomicUsize::new(0),
            silence: Lock::new(None),
            looks_unanswered: AtomicU32::new(0),
            keys_cleaned: AtomicU64::new(0),
            revisions_kept: AtomicU64::new(0),
            is_untended: AtomicBool::new(false),
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

    /// Why no majority of the engine's servers answers, as several looks found; `None` = it may.
    pub(super) fn lasting_silence(&self) -> Option<String> {
        let looks = self.looks_unanswered.load(Ordering::Relaxed);
        (looks >= limits::FRONT_LOOKS_FAILED).then(|| self.silence().unwrap_or_default())
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

    /// Revisions that the engine keeps; `None` = it has none, or has not said yet.
    pub(crate) fn revisions_kept(&self) -> Option<u64> {
        let kept = self.revisions_kept.load(Ordering::Relaxed);
        (kept > 0).then_some(kept)
    }

    /// Notes the end of an upkeep.
    pub(super) fn note_upkeep(&self, engine: &str, tended: Result<StoreUpkeep, String>) {
        let was_untended = self.is_untended.swap(tended.is_err(), Ordering::Relaxed);
        match tended {
            Ok(done) => {
                let order = Ordering::Relaxed;
                self.keys_cleaned.fetch_add(done.keys_cleaned, order);
                if let Some(kept) = done.revisions_kept {
                    self.revisions_kept.store(kept, order);
                }
            }
            Err(why) if !was_untended => {
                tracing::warn!(
                    engine,
                    why,
                    "the upkeep of the store fails, and is tried again"
                );
            }
            Err(why) => tracing::debug!(engine, why, "the upkeep of the store fails"),
        }
    }

    /// Notes the end of a look at the engine.
    pub(super) fn note_look(&self, engine: &str, looked: Result<(), LookFailure>) {
        let is_unanswered = looked.as_ref().is_err_and(|failed| failed.is_unanswered);
        if is_unanswered {
            self.looks_unanswered.fetch_add(1, Ordering::Relaxed);
        } else {
            self.looks_unanswered.store(0, Ordering::Relaxed);
        }
        let looked = looked.map_err(|failed| failed.why);
        let mut silence = self.silence.hold();
        match (&*silence, &looked) {
            (None, Err(why)) => tracing::warn!(engine, why, "the store does not answer"),
            (Some(_), Ok(())) => tracing::info!(engine, "the store answers again"),
            _ => {}
        }
        *silence = looked.err();
    }
}
