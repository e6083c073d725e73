//! Threads for reads that would block, behind a bounded queue.
//!
//! ```text
//! loop ─► offer ─► points [job job]  ─┐
//!                  scans  [job]      ─┴─► worker: engine, Wait::Block ─► mailbox of the asking loop
//! full ─► refused at once (503)           late at dequeue ─► PoolAnswer::Late, work not started
//! a loop is near its target ─► one chunk at a time, then a rest of three times its duration
//! ```
//!
//! Invariants
//! 1. `points` and `scans` together hold at most `queue_len_max` jobs, scans at most a half of it:
//!    readers of whole ranges cannot shut out point reads.
//! 2. Every job that was taken is answered exactly once, even when the work panics.
//! 3. Four point reads pass for one scan chunk when both wait.
//! 4. While a loop is near its target, chunks of scans take at most one part in `SCAN_TIME_SHARE`
//!    of the time of one processor. At least one is begun in `SCAN_REST_MAX`.
//!
//! Not here: reads that do not block (`alone.rs` asks the engine itself), writes (`wal_thread.rs`).
//! See: docs/overload.md.

use crate::admin::metrics::{Op, Refused};
use crate::admin::profile::{self, Lock};
use crate::admin::stages::{RequestStage, Stages, Watch};
use crate::clients::finished::Finished;
use crate::disk::scan_job::Scan;
use crate::event_loop::clock;
use crate::event_loop::delay::Overload;
use crate::event_loop::mailbox::LoopEvent;
use crate::event_loop::shared::Shared;
use crate::limits;
use crate::peers::{Page, Paged, look};
use dendra_base::{Cell, Key};
use dendra_engine::vfs::Wait;
use dendra_engine::{Engine, Error, Lookup};
use dendra_node::Outcome;
use dendra_node::compare::survey::{Survey, Surveyed};
use dendra_node::standing::Crowding;
use dendra_node::step::StoreFailure;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar};
use std::thread::JoinHandle;
use std::time::Duration;

/// The work for a worker.
#[derive(Debug)]
pub(crate) enum Work {
    /// Read one key from the disk.
    Get(Key),
    /// Fill the scan's buffer once.
    Chunk(Box<Scan>),
    /// Read a part of a range for the node.
    Page(Box<Page>),
    /// Look at a part of a space for the node.
    Survey(Box<Survey>),
}

/// One piece of work, and the asker.
#[derive(Debug)]
pub(crate) struct Job {
    /// Index of the event loop that asked.
    pub(crate) lane: usize,
    /// Where that loop waits for the answer.
    pub(crate) slot: u32,
    /// Past this moment (`clock::monotonic_us`) the work is not started.
    pub(crate) deadline_us: u64,
    /// Runs since the job was offered, when its request is measured.
    pub(crate) watch: Watch,
    /// The work itself.
    pub(crate) work: Work,
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum PoolAnswer {
    /// The key's newest cell, if there is one.
    Cell(Option<Box<Cell>>),
    /// The scan with its next chunk.
    Chunk(Box<Scan>),
    /// The scan without a further chunk, and whether damage was met.
    ChunkFailed(Box<Scan>, bool),
    /// A part of a range, for the node.
    Page(Paged),
    /// A look, for the node.
    Surveyed(Result<Surveyed, StoreFailure>),
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
            PoolAnswer::Chunk(scan) => Finished::Chunk(scan),
            PoolAnswer::ChunkFailed(scan, is_damaged) => Finished::ChunkFailed(scan, is_damaged),
            PoolAnswer::Late => Finished::Refused(Refused::Deadline),
            PoolAnswer::Damaged => Finished::Damaged,
            // Pages and looks are made for the node alone.
            PoolAnswer::Failed | PoolAnswer::Page(_) | PoolAnswer::Surveyed(_) => Finished::Failed,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    points: VecDeque<Job>,
    scans: VecDeque<Job>,
    points_in_a_row: u32,
    /// Chunks that workers make now.
    scans_running: u32,
    /// Until then no chunk is begun, while a loop is near its target.
    scans_rest_until_us: u64,
    /// How often scans rested.
    scan_rests: u64,
    is_closed: bool,
}

/// Point reads that pass a waiting scan before it has its turn.
const POINTS_IN_A_ROW_MAX: u32 = 4;

impl Queue {
    fn len(&self) -> usize {
        self.points.len() + self.scans.len()
    }

    /// Must a scan that waits go on waiting, because the processor is what runs out? Then until when, at most.
    fn scans_held_until_us(&self, crowding: Crowding, now_us: u64) -> Option<u64> {
        if crowding == Crowding::None || self.is_closed {
            return None;
        }
        match self.scans_running {
            0 => Some(self.scans_rest_until_us).filter(|until_us| *until_us > now_us),
            _ => Some(now_us + limits::SCAN_REST_MAX.as_micros() as u64),
        }
    }

    /// A chunk that took `took_us` is made.
    fn end_scan(&mut self, crowding: Crowding, now_us: u64, took_us: u64) {
        self.scans_running -= 1;
        if crowding > Crowding::None {
            let rest_us = took_us.saturating_mul(limits::SCAN_TIME_SHARE - 1);
            let rest_us = rest_us.min(limits::SCAN_REST_MAX.as_micros() as u64);
            self.scans_rest_until_us = now_us + rest_us;
            self.scan_rests += 1;
        }
    }

    fn pick(&mut self, may_scan: bool) -> Option<Job> {
        let scan_is_due = self.points_in_a_row >= POINTS_IN_A_ROW_MAX || self.points.is_empty();
        if scan_is_due
            && may_scan
            && let Some(job) = self.scans.pop_front()
        {
            self.points_in_a_row = 0;
            self.scans_running += 1;
            return Some(job);
        }
        let job = self.points.pop_front()?;
        self.points_in_a_row = self.points_in_a_row.saturating_add(1);
        Some(job)
    }
}

/// The queue in front of the workers.
#[derive(Debug)]
pub(crate) struct StorePool {
    queue: Lock<Queue>,
    bell: Condvar,
    queue_len_max: usize,
    /// The times that each worker measured.
    pub(crate) stages: Box<[Stages]>,
}

impl StorePool {
    /// A pool that queues at most `queue_len_max` jobs for `workers`; `spawn` gives it threads.
    pub(crate) fn new(queue_len_max: usize, workers: usize) -> StorePool {
        StorePool {
            queue: Lock::new(Queue::default()),
            bell: Condvar::new(),
            queue_len_max,
            stages: (0..workers).map(|_| Stages::default()).collect(),
        }
    }

    /// Queues `job`, or hands it back when there is no room.
    pub(crate) fn offer(&self, job: Job) -> Result<(), Job> {
        let mut queue = self.queue.hold();
        let is_scan = matches!(job.work, Work::Chunk(_) | Work::Page(_) | Work::Survey(_));
        let scans_max = self.queue_len_max.div_ceil(limits::SCAN_QUEUE_SHARE);
        if queue.is_closed
            || queue.len() >= self.queue_len_max
            || (is_scan && queue.scans.len() >= scans_max)
        {
            return Err(job);
        }
        if is_scan {
            queue.scans.push_back(job);
        } else {
            queue.points.push_back(job);
        }
        drop(queue);
        self.bell.notify_one();
        Ok(())
    }

    /// Takes the jobs of loop `lane` at `slots` back that no worker has begun. Requires: `slots`
    /// ascend.
    pub(crate) fn take_back(&self, lane: usize, slots: &[u32]) -> Vec<Job> {
        let is_wanted = |job: &Job| job.lane == lane && slots.binary_search(&job.slot).is_ok();
        let mut taken = Vec::new();
        let mut queue = self.queue.hold();
        let Queue { points, scans, .. } = &mut *queue;
        for jobs in [points, scans] {
            if jobs.iter().any(is_wanted) {
                let (wanted, left) = std::mem::take(jobs).into_iter().partition(is_wanted);
                let wanted: VecDeque<Job> = wanted;
                taken.extend(wanted);
                *jobs = left;
            }
        }
        taken
    }

    /// Jobs waiting: point reads and scans.
    pub(crate) fn queued(&self) -> (usize, usize) {
        let queue = self.queue.hold();
        (queue.points.len(), queue.scans.len())
    }

    /// How often scans rested because a loop was near its target.
    pub(crate) fn scan_rests(&self) -> u64 {
        self.queue.hold().scan_rests
    }

    /// Lets the workers finish their queue and end.
    pub(crate) fn close(&self) {
        self.queue.hold().is_closed = true;
        self.bell.notify_all();
    }

    fn next(&self, overload: &Overload) -> Option<Job> {
        let mut queue = self.queue.hold();
        loop {
            let held_until_us = match queue.scans.is_empty() {
                true => None,
                false => queue.scans_held_until_us(overload.crowding(), clock::monotonic_us()),
            };
            if let Some(job) = queue.pick(held_until_us.is_none()) {
                return Some(job);
            }
            if queue.is_closed {
                return None;
            }
            queue = match held_until_us {
                None => self.bell.wait(queue).expect("no holder panics"),
                Some(until_us) => {
                    let rest_us = until_us.saturating_sub(clock::monotonic_us());
                    let rest = Duration::from_micros(rest_us);
                    let waited = self.bell.wait_timeout(queue, rest);
                    waited.expect("no holder panics").0
                }
            };
        }
    }

    fn end_scan(&self, overload: &Overload, began_us: u64) {
        let now_us = clock::monotonic_us();
        let took_us = now_us.saturating_sub(began_us);
        let mut queue = self.queue.hold();
        queue.end_scan(overload.crowding(), now_us, took_us);
        let is_waited_for = !queue.scans.is_empty();
        drop(queue);
        if is_waited_for {
            self.bell.notify_one();
        }
    }
}

/// Starts the workers of `shared.pool`.
pub(crate) fn spawn(shared: &Arc<Shared>) -> std::io::Result<Vec<JoinHandle<()>>> {
    (0..shared.pool.stages.len())
        .map(|n| {
            let shared = Arc::clone(shared);
            std::thread::Builder::new()
                .name(format!("store-{n}"))
                .spawn(move || {
                    let _seat = profile::register(profile::Kind::Worker);
                    while let Some(job) = shared.pool.next(&shared.overload) {
                        answer(&shared, job, &shared.pool.stages[n]);
                    }
                })
        })
        .collect()
}

fn answer(shared: &Shared, job: Job, stages: &Stages) {
    let Job {
        lane,
        slot,
        deadline_us,
        mut watch,
        work,
    } = job;
    let op = match work {
        Work::Get(_) => Op::Get,
        Work::Chunk(_) | Work::Page(_) | Work::Survey(_) => Op::Scan,
    };
    watch.lap(stages, op, RequestStage::Queue);
    let began_us = clock::monotonic_us();
    let failed = Unanswered::of(&work);
    let answer = if began_us >= deadline_us {
        failed.as_late()
    } else {
        // A panic inside the engine poisons its locks, and then every later call panics too. Each
        // job is answered, none is lost, and the log has the first reason.
        catch_unwind(AssertUnwindSafe(|| run(&shared.engine, work))).unwrap_or_else(|panic| {
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
    if op == Op::Scan {
        shared.pool.end_scan(&shared.overload, began_us);
    }
    shared.lanes[lane]
        .mailbox
        .post(LoopEvent::Answered { slot, answer });
}

/// Of a job that has no result: the node waits for an answer of the job's own kind.
#[derive(Clone, Copy, Debug)]
enum Unanswered {
    Other,
    Page,
    Survey,
}

impl Unanswered {
    fn of(work: &Work) -> Unanswered {
        match work {
            Work::Get(_) | Work::Chunk(_) => Unanswered::Other,
            Work::Page(_) => Unanswered::Page,
            Work::Survey(_) => Unanswered::Survey,
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

fn run(engine: &Engine, work: Work) -> PoolAnswer {
    match work {
        Work::Get(key) => read(engine, &key).unwrap_or_else(|error| {
            if note(&error) {
                PoolAnswer::Damaged
            } else {
                PoolAnswer::Failed
            }
        }),
        Work::Page(page) => PoolAnswer::Page(page.fill(engine)),
        Work::Survey(work) => PoolAnswer::Surveyed(look(engine, &work)),
        Work::Chunk(mut scan) => match scan.fill(engine) {
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

    fn point(slot: u32) -> Job {
        Job {
            lane: 0,
            slot,
            deadline_us: u64::MAX,
            watch: Watch::OFF,
            work: Work::Get(Key::user(b"k")),
        }
    }

    fn chunk(slot: u32) -> Job {
        Job {
            work: Work::Chunk(Box::new(Scan::for_tests())),
            ..point(slot)
        }
    }

    #[test]
    fn a_full_queue_hands_the_job_back() {
        let pool = StorePool::new(2, 0);
        assert!(pool.offer(point(0)).is_ok());
        assert!(pool.offer(point(1)).is_ok());
        let refused = pool.offer(point(2)).expect_err("full");
        assert_eq!(refused.slot, 2);
        assert_eq!(pool.queued(), (2, 0));
    }

    #[test]
    fn jobs_that_wait_are_taken_back_and_no_others() {
        let pool = StorePool::new(16, 0);
        for slot in 0..4 {
            assert!(pool.offer(point(slot)).is_ok());
        }
        assert!(
            pool.offer(Job {
                lane: 1,
                ..point(2)
            })
            .is_ok()
        );
        assert!(pool.offer(chunk(7)).is_ok());
        let taken = pool.take_back(0, &[0, 2, 7, 9]);
        let slots: Vec<u32> = taken.iter().map(|job| job.slot).collect();
        assert_eq!(slots, [0, 2, 7]);
        pool.close();
        let overload = Overload::default();
        let next = || pool.next(&overload).map(|job| (job.lane, job.slot));
        let left: Vec<(usize, u32)> = std::iter::from_fn(next).collect();
        assert_eq!(left, [(0, 1), (0, 3), (1, 2)]);
    }

    #[test]
    fn a_job_without_a_result_is_answered_in_its_own_kind() {
        let page = Work::Page(Box::new(Page::for_tests()));
        let failed = Unanswered::of(&page);
        let late = PoolAnswer::Page(Err(StoreFailure::Late));
        assert!(
            matches!((failed.as_late(), late), (PoolAnswer::Page(a), PoolAnswer::Page(b)) if a == b)
        );
        assert!(matches!(failed.as_failed(), PoolAnswer::Page(Err(_))));
        let get = Unanswered::of(&Work::Get(Key::user(b"k")));
        assert!(matches!(get.as_late(), PoolAnswer::Late));
    }

    #[test]
    fn scans_leave_half_of_the_queue_to_point_reads() {
        let pool = StorePool::new(4, 0);
        assert!(pool.offer(chunk(0)).is_ok());
        assert!(pool.offer(chunk(1)).is_ok());
        assert!(pool.offer(chunk(2)).is_err());
        assert!(pool.offer(point(3)).is_ok());
    }

    #[test]
    fn a_waiting_scan_has_its_turn_after_four_point_reads() {
        let pool = StorePool::new(64, 0);
        assert!(pool.offer(chunk(100)).is_ok());
        for slot in 0..6 {
            assert!(pool.offer(point(slot)).is_ok());
        }
        pool.close();
        let overload = Overload::default();
        let order: Vec<u32> =
            std::iter::from_fn(|| pool.next(&overload).map(|job| job.slot)).collect();
        assert_eq!(order, [0, 1, 2, 3, 100, 4, 5]);
    }

    #[test]
    fn near_the_target_scans_take_a_quarter_of_the_time_and_points_go_on() {
        let mut queue = Queue::default();
        for slot in 0..100 {
            queue.scans.push_back(chunk(slot));
        }
        queue.points.push_back(point(1_000));
        let (mut now_us, mut worked_us) = (0, 0);
        let share = limits::SCAN_TIME_SHARE;
        while now_us < 100_000 {
            let held = queue.scans_held_until_us(Crowding::Near, now_us);
            match (queue.pick(held.is_none()), held) {
                (Some(job), _) if job.slot == 1_000 => {}
                (Some(_), _) => {
                    let beside = queue.scans_held_until_us(Crowding::Near, now_us);
                    assert!(beside.is_some(), "one chunk at a time");
                    now_us += 2_000;
                    worked_us += 2_000;
                    queue.end_scan(Crowding::Near, now_us, 2_000);
                    queue.points.push_back(point(1_000));
                    let held = queue.scans_held_until_us(Crowding::Near, now_us);
                    let picked = queue.pick(held.is_none());
                    assert_eq!(picked.map(|job| job.slot), Some(1_000), "points rest never");
                }
                (None, held) => now_us = held.expect("why else"),
            }
        }
        assert_eq!(worked_us * share, now_us);
        assert_eq!(queue.scans_held_until_us(Crowding::None, now_us - 1), None);
    }

    #[test]
    fn a_long_chunk_rests_for_no_longer_than_is_said() {
        let mut queue = Queue {
            scans_running: 1,
            ..Queue::default()
        };
        queue.end_scan(Crowding::Beyond, 10_000_000, 5_000_000);
        let longest_us = limits::SCAN_REST_MAX.as_micros() as u64;
        let held = queue.scans_held_until_us(Crowding::Beyond, 10_000_000);
        assert_eq!(held, Some(10_000_000 + longest_us));
    }

    #[test]
    fn what_is_withdrawn_is_not_begun_and_makes_room() {
        let pool = StorePool::new(3, 0);
        for job in [point(1), chunk(2), point(3)] {
            assert!(pool.offer(job).is_ok());
        }
        assert_eq!(pool.take_back(0, &[1, 2]).len(), 2);
        assert!(pool.take_back(0, &[1]).is_empty() && pool.take_back(1, &[3]).is_empty());
        assert_eq!(pool.queued(), (1, 0));
    }
}
