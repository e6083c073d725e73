//! The threads of the store pool: each takes a job, reads, and answers the loop that asked.
//!
//! ```text
//! StorePool::next ─► late? Late │ engine, Wait::Block ─► mailbox of the asking loop
//! store-0, store-1, …: reads of one key        scan-0, scan-1, … (nice 10): ranges
//!                                              survey: fingerprints of ranges
//! ```
//!
//! Invariants
//! 1. Every job that was taken is answered exactly once, even when the work panics.
//!
//! Not here: which job is next (`store_pool.rs`).
//! See: docs/overload.md.

use crate::clock;
use crate::disk::store::OwnStore;
use crate::disk::store_pool::ReadClass;
use crate::lanes::mailbox::LoopEvent;
use crate::lanes::page::look;
use crate::lanes::work::{PoolAnswer, StoreJob, StoreWork};
use crate::measure::metrics::OpLabel;
use crate::measure::profile;
use crate::measure::stages::{RequestStage, Stages};
use crate::waiting::engine_look::{EngineLook, LookEnd};
use dendra_base::{CellRef, Key};
use dendra_engine::vfs::Wait;
use dendra_engine::{Engine, Error, Lookup};
use dendra_node::step::StoreFailure;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Priority of the threads that scan. A scan
const SCAN_NICE: i32 = 10;
/// Starts the workers of `store.pool`.
pub(crate) fn spawn(store: &Arc<OwnStore>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let mut scanners = 0;
    let workers = store.pool.workers().enumerate();
    workers
        .map(|(n, class)| {
            let store = Arc::clone(store);
            let (name, nice) = match class {
                ReadClass::Points => (format!("store-{n}"), None),
                ReadClass::Scans => {
                    scanners += 1;
                    (format!("scan-{}", scanners - 1), Some(SCAN_NICE))
                }
                // As loops: its member limits the bytes a second. With less of a busy processor,
                // comparisons of deletes fall behind for ever, and the folders grow.
                ReadClass::Surveys => ("survey".to_owned(), None),
            };
            std::thread::Builder::new().name(name).spawn(move || {
                let _seat = profile::register(profile::ThreadKind::Worker);
                if let Some(nice) = nice
                    && let Err(error) = rustix::process::setpriority_process(None, nice)
                {
                    // On Linux this is the calling thread's own priority.
                    tracing::debug!(%error, "{class:?} keep the usual priority");
                }
                while let Some(job) = store.pool.next(class, &store.lanes.overload) {
                    answer(&store, job, &store.pool.stages[n]);
                }
            })
        })
        .collect()
}

fn answer(store: &OwnStore, job: StoreJob, stages: &Stages) {
    let StoreJob {
        lane,
        slot,
        deadline_us,
        mut watch,
        work,
    } = job;
    let op = match work {
        StoreWork::Get(_) | StoreWork::Explain(_) => OpLabel::Get,
        StoreWork::Chunk(_) | StoreWork::Page(_) | StoreWork::Survey(_) => OpLabel::Scan,
    };
    let class = ReadClass::of(&work);
    watch.lap(stages, op, RequestStage::Queue);
    let began_us = clock::monotonic_us();
    let failed = Unanswered::of(&work);
    let answer = if began_us >= deadline_us {
        failed.as_late()
    } else {
        // A panic inside the engine poisons its locks, and then every later call panics too. Each
        // job is answered, none is lost, and the log has the first reason.
        catch_unwind(AssertUnwindSafe(|| run(&store.engine, work))).unwrap_or_else(|panic| {
            let reason = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no message");
            tracing::error!(reason, "a read panicked in the store pool");
            failed.as_failed()
        })
    };
    watch.lap(stages, op, RequestStage::Engine);
    if class == ReadClass::Scans {
        store.pool.end_scan(&store.lanes.overload, began_us);
    }
    store.lanes[lane]
        .mailbox
        .post(LoopEvent::Answered { slot, answer });
}

/// Answer to a job that has no result: the node waits for one of the job's own kind.
#[derive(Clone, Copy, Debug)]
enum Unanswered {
    Other,
    Page,
    Survey,
}

impl Unanswered {
    fn of(work: &StoreWork) -> Unanswered {
        match work {
            StoreWork::Get(_) | StoreWork::Explain(_) | StoreWork::Chunk(_) => Unanswered::Other,
            StoreWork::Page(_) => Unanswered::Page,
            StoreWork::Survey(_) => Unanswered::Survey,
        }
    }

    fn as_late(self) -> PoolAnswer {
        match self {
            Unanswered::Other => PoolAnswer::Late,
            Unanswered::Page => PoolAnswer::Page(Err(StoreFailure::Late)),
            Unanswered::Survey => PoolAnswer::Surveyed(Err(StoreFailure::Late)),
        }
    }

    fn as_failed(self) -> PoolAnswer {
        match self {
            Unanswered::Other => PoolAnswer::Failed,
            Unanswered::Page => PoolAnswer::Page(Err(StoreFailure::NotApplied)),
            Unanswered::Survey => PoolAnswer::Surveyed(Err(StoreFailure::NotApplied)),
        }
    }
}

fn run(engine: &Engine, work: StoreWork) -> PoolAnswer {
    match work {
        StoreWork::Get(key) => read(engine, &key).unwrap_or_else(|error| {
            if note(&error) {
                PoolAnswer::Damaged
            } else {
                PoolAnswer::Failed
            }
        }),
        StoreWork::Explain(key) => PoolAnswer::Explained(Box::new(explain(engine, &key))),
        StoreWork::Page(page) => PoolAnswer::Page(page.fill(engine)),
        StoreWork::Survey(work) => PoolAnswer::Surveyed(look(engine, &work)),
        StoreWork::Chunk(mut scan) => match scan.fill(engine) {
            Ok(()) => PoolAnswer::Chunk(scan),
            Err(error) => PoolAnswer::ChunkFailed(scan, note(&error)),
        },
    }
}

/// Logs a failed read; is it damage?
fn note(error: &Error) -> bool {
    tracing::error!(%error, "a read failed in the store pool");
    matches!(error, Error::Damaged { .. })
}

/// Reads, and tells how. A read that fails is explained, too.
fn explain(engine: &Engine, key: &Key) -> EngineLook {
    let began_ns = clock::monotonic_ns();
    let is_intact = |cell: CellRef<'_>| cell.is_intact(key.as_stored());
    let (found, explained) = engine.explained(key.as_stored(), Wait::Block, is_intact);
    let took_us = clock::monotonic_ns().saturating_sub(began_ns) / 1_000;
    let end = match found {
        Ok(Lookup::Cell(true) | Lookup::Nothing) => LookEnd::Read,
        Ok(Lookup::Cell(false)) => LookEnd::Damaged,
        // A blocking read has no further thread to send it on to.
        Ok(Lookup::WouldBlock) => LookEnd::Failed,
        Err(error) if note(&error) => LookEnd::Damaged,
        Err(_) => LookEnd::Failed,
    };
    EngineLook {
        end,
        explained,
        took_us,
    }
}

fn read(engine: &Engine, key: &Key) -> Result<PoolAnswer, Error> {
    let lookup = engine.get(key.as_stored(), Wait::Block, |cell| cell.to_owned())?;
    Ok(match lookup {
        Lookup::Cell(cell) => PoolAnswer::Cell(Some(Box::new(cell))),
        Lookup::Nothing => PoolAnswer::Cell(None),
        // A blocking read has no further thread to send it on to.
        Lookup::WouldBlock => PoolAnswer::Failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::page::Page;

    #[test]
    fn a_job_without_a_result_is_answered_in_its_own_kind() {
        let page = StoreWork::Page(Box::new(Page::for_tests()));
        let failed = Unanswered::of(&page);
        let late = PoolAnswer::Page(Err(StoreFailure::Late));
        assert!(
            matches!((failed.as_late(), late), (PoolAnswer::Page(a), PoolAnswer::Page(b)) if a == b)
        );
        assert!(matches!(failed.as_failed(), PoolAnswer::Page(Err(_))));
        let get = Unanswered::of(&StoreWork::Get(Key::user(b"k")));
        assert!(matches!(get.as_late(), PoolAnswer::Late));
    }
}
