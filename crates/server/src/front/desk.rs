//! The bounded queue of operations that an engine of others is to carry out.
//!
//! ```text
//! loop ─► offer ─► [job job job] ─► next ─► threads.rs       full ─► refused at once (503)
//! loop ─► take_back ── out of the queue, or it has begun     late at next ─► not begun (503)
//! ```
//!
//! Invariants
//! 1. At most `queue_len_max` jobs wait, pages of scans at most in a half of the places.
//! 2. A job that was taken back is never begun.
//!
//! Not here: the runtime (`threads.rs`), the engine (crate `stores`).

use super::gauges::{FrontGauges, FrontKind};
use super::papers::StorePapers;
use crate::limits;
use crate::measure::profile::Lock;
use dendra_base::Consistency;
use dendra_stores::{PageRead, PointRead, RecordWrite, StoreShape};
use dendra_wire::Refusal;
use dendra_wire::rights::TokenTable;
use std::collections::VecDeque;
use tokio::sync::Notify;

/// The work that an engine is asked for.
#[derive(Debug)]
pub(crate) enum FrontWork {
    Read(PointRead),
    Write(RecordWrite),
    /// A write of the value that is there, with another end.
    Touch(RecordWrite),
    Page(PageRead),
}

impl FrontWork {
    /// Can no single server of the engine answer it?
    pub(crate) fn needs_majority(&self) -> bool {
        match self {
            FrontWork::Read(read) => read.level == Consistency::Linearizable,
            FrontWork::Write(_) | FrontWork::Touch(_) | FrontWork::Page(_) => true,
        }
    }

    pub(crate) fn kind(&self) -> FrontKind {
        match self {
            FrontWork::Read(_) => FrontKind::Read,
            FrontWork::Write(_) | FrontWork::Touch(_) => FrontKind::Write,
            FrontWork::Page(_) => FrontKind::Page,
        }
    }
}

/// One operation, and its asker.
#[derive(Debug)]
pub(crate) struct FrontJob {
    /// Index of the event loop that asked.
    pub(crate) lane: usize,
    /// Where that loop waits for the answer.
    pub(crate) slot: u32,
    /// Past this moment (`clock::monotonic_us`) it is not begun.
    pub(crate) deadline_us: u64,
    pub(crate) work: FrontWork,
}

#[derive(Debug, Default)]
struct FrontQueue {
    jobs: VecDeque<FrontJob>,
    pages: usize,
    is_closed: bool,
}

/// The queue in front of an engine.
#[derive(Debug)]
pub(crate) struct FrontDesk {
    queue: Lock<FrontQueue>,
    bell: Notify,
    pub(crate) queue_len_max: usize,
    pub(crate) shape: StoreShape,
    /// The files by which the engine knows this front door.
    pub(crate) papers: StorePapers,
    pub(crate) gauges: FrontGauges,
}

impl FrontDesk {
    /// Desk for an engine of this shape; at most `queue_len_max` jobs wait for it.
    pub(crate) fn new(shape: StoreShape, queue_len_max: usize, papers: StorePapers) -> FrontDesk {
        FrontDesk {
            queue: Lock::new(FrontQueue::default()),
            bell: Notify::new(),
            queue_len_max,
            shape,
            papers,
            gauges: FrontGauges::new(),
        }
    }

    /// Can all that a table of tokens says be kept in front of this engine?
    pub(crate) fn check_table(&self, table: &TokenTable) -> Result<(), Refusal> {
        let mut grants = table.grants().iter();
        if grants.any(|grant| grant.quota.stored_bytes.is_some()) {
            Err(not_offered(format!(
                "a front door cannot count what a token stores in {}: leave --stored-bytes away",
                self.shape.engine
            )))
        } else {
            Ok(())
        }
    }

    /// Queues `job`: `false` when there is no room for it.
    pub(crate) fn offer(&self, job: FrontJob) -> bool {
        let mut queue = self.queue.hold();
        let is_page = matches!(job.work, FrontWork::Page(_));
        let pages_max = self.queue_len_max.div_ceil(limits::SCAN_QUEUE_SHARE);
        if queue.is_closed
            || queue.jobs.len() >= self.queue_len_max
            || (is_page && queue.pages >= pages_max)
        {
            return false;
        }
        queue.pages += usize::from(is_page);
        queue.jobs.push_back(job);
        drop(queue);
        self.bell.notify_one();
        true
    }

    /// Takes the job of loop `lane` at `slot` back: `false` when it has begun.
    pub(crate) fn take_back(&self, lane: usize, slot: u32) -> bool {
        let mut queue = self.queue.hold();
        let at = queue
            .jobs
            .iter()
            .position(|job| job.lane == lane && job.slot == slot);
        let job = at.and_then(|at| queue.jobs.remove(at));
        queue.count_out(job.as_ref());
        job.is_some()
    }

    /// Jobs that wait.
    pub(crate) fn queued(&self) -> usize {
        self.queue.hold().jobs.len()
    }

    /// Takes no more operations.
    pub(crate) fn close(&self) {
        self.queue.hold().is_closed = true;
        self.bell.notify_one();
    }

    /// Waits for the next job; `None` when the desk is closed and empty. Requires: one waiter.
    pub(crate) async fn next(&self) -> Option<FrontJob> {
        loop {
            let rung = self.bell.notified();
            {
                let mut queue = self.queue.hold();
                let job = queue.jobs.pop_front();
                queue.count_out(job.as_ref());
                if job.is_some() || queue.is_closed {
                    return job;
                }
            }
            rung.await;
        }
    }
}

impl FrontQueue {
    fn count_out(&mut self, job: Option<&FrontJob>) {
        if let Some(FrontJob {
            work: FrontWork::Page(_),
            ..
        }) = job
        {
            self.pages -= 1;
        }
    }
}

/// The engine cannot do it.
pub(crate) fn not_offered(sentence: String) -> Refusal {
    Refusal::new(501, "not-offered", sentence)
}

#[cfg(test)]
mod tests {
    use super::super::papers::StoreFiles;
    use super::*;
    use bytes::Bytes;
    use dendra_base::peer::Range;
    use dendra_base::{Consistency, Durability};
    use std::time::Duration;

    fn desk(queue_len_max: usize) -> FrontDesk {
        let shape = StoreShape {
            engine: "none",
            copies: 1,
            durability: Durability::Os,
            scan_level: Consistency::Eventual,
        };
        let papers = StorePapers::open(StoreFiles::default());
        FrontDesk::new(shape, queue_len_max, papers.expect("there are no files"))
    }

    fn job(slot: u32, work: FrontWork) -> FrontJob {
        FrontJob {
            lane: 0,
            slot,
            deadline_us: 0,
            work,
        }
    }

    fn read() -> FrontWork {
        FrontWork::Read(PointRead {
            key: Bytes::new(),
            level: Consistency::Eventual,
            left: Duration::ZERO,
        })
    }

    fn page() -> FrontWork {
        FrontWork::Page(PageRead {
            range: Range {
                start: Bytes::new(),
                end: None,
                is_reverse: false,
                is_keys_only: false,
            },
            bytes_max: 1,
            records_max: 1,
            left: Duration::ZERO,
        })
    }

    #[tokio::test]
    async fn a_full_desk_refuses_and_what_was_taken_back_is_never_begun() {
        let desk = desk(2);
        assert!(desk.offer(job(1, page())));
        assert!(!desk.offer(job(2, page())), "half is for reads");
        assert!(desk.offer(job(3, read())));
        assert!(!desk.offer(job(4, read())), "full");
        assert!(desk.take_back(0, 1) && !desk.take_back(0, 1) && !desk.take_back(1, 3));
        assert!(desk.offer(job(5, page())), "a place came back");
        assert_eq!(desk.next().await.map(|job| job.slot), Some(3));
        assert!(!desk.take_back(0, 3), "it has begun");
        desk.close();
        assert!(!desk.offer(job(6, read())), "closed");
        assert_eq!(desk.next().await.map(|job| job.slot), Some(5));
        assert!(desk.next().await.is_none());
    }
}
