//! The bounded queue of reads that would block.
//!
//! ```text
//! loop ─► offer ─► points  [job job] ─► worker        ─┐
//!                  scans   [job]     ─► scan worker   ─┼─► engine, Wait::Block ─► mailbox of the asking loop
//!                  surveys [job]     ─► survey worker ─┘
//! full ─► refused at once (503)           late at dequeue ─► PoolAnswer::Late, work not started
//! a loop is near its target ─► one chunk at a time, then a rest of three times its duration
//! ```
//!
//! Invariants
//! 1. All queues together hold at most `queue_len_max` jobs. Scans and surveys hold at most a half
//!    of it: readers of whole ranges cannot shut out point reads.
//! 2. A job waits for no other class: each queue has threads of its own. Those of scans yield the
//!    processor to all others (`readers.rs`).
//! 3. A survey waits for no scan, and does not rest. Its member chose how many bytes a second to
//!    compare, and the space of deleted keys comes back only after comparisons.
//! 4. While a loop is near its target, chunks of scans take at most one part in `SCAN_TIME_SHARE`
//!    of the time of one processor. At least one is begun in `SCAN_REST_MAX`.
//!
//! Not here: the threads (`readers.rs`), reads that do not block (`clients/backend/alone.rs` asks
//! the engine itself). See: docs/overload.md.

use crate::clock;
use crate::lanes::overload::Overload;
use crate::lanes::work::{StoreJob, StoreWork};
use crate::limits;
use crate::measure::profile::Lock;
use crate::measure::stages::Stages;
use dendra_node::standing::Crowding;
use std::collections::VecDeque;
use std::sync::Condvar;
use std::time::Duration;

/// A kind of reads, with a queue and threads of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadClass {
    /// Reads of one key.
    Points,
    /// Reads of a range: a client's, or a page of records for another member.
    Scans,
    /// Reads of a range for the fingerprints of a comparison.
    Surveys,
}

impl ReadClass {
    pub(super) fn of(work: &StoreWork) -> ReadClass {
        match work {
            StoreWork::Get(_) | StoreWork::Explain(_) => ReadClass::Points,
            StoreWork::Chunk(_) | StoreWork::Page(_) => ReadClass::Scans,
            StoreWork::Survey(_) => ReadClass::Surveys,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    points: VecDeque<StoreJob>,
    scans: VecDeque<StoreJob>,
    surveys: VecDeque<StoreJob>,
    /// Chunks that workers make now.
    scans_running: u32,
    /// Until then no chunk is begun, while a loop is near its target.
    scans_rest_until_us: u64,
    /// How often scans rested.
    scan_rests: u64,
    is_closed: bool,
}

impl Queue {
    fn len(&self) -> usize {
        self.points.len() + self.ranges_len()
    }

    fn ranges_len(&self) -> usize {
        self.scans.len() + self.surveys.len()
    }

    /// Until when a scan that waits goes on waiting at most, because the loops lack the processor;
    /// `None` = it need not wait.
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

    fn begin_scan(&mut self) -> Option<StoreJob> {
        let job = self.scans.pop_front()?;
        self.scans_running += 1;
        Some(job)
    }
}

/// The queue in front of the workers.
#[derive(Debug)]
pub(crate) struct StorePool {
    queue: Lock<Queue>,
    points_bell: Condvar,
    scans_bell: Condvar,
    surveys_bell: Condvar,
    queue_len_max: usize,
    workers: usize,
    /// The times that each worker measured: those of points, those of scans, that of surveys.
    pub(crate) stages: Box<[Stages]>,
}

impl StorePool {
    /// A pool that queues at most `queue_len_max` jobs for `workers` of points, as many of scans,
    /// and one of surveys; `readers::spawn` gives it threads.
    pub(crate) fn new(queue_len_max: usize, workers: usize) -> StorePool {
        StorePool {
            queue: Lock::new(Queue::default()),
            points_bell: Condvar::new(),
            scans_bell: Condvar::new(),
            surveys_bell: Condvar::new(),
            queue_len_max,
            workers,
            stages: (0..=2 * workers).map(|_| Stages::default()).collect(),
        }
    }

    /// The class of each worker, in the order of `stages`.
    pub(super) fn workers(&self) -> impl Iterator<Item = ReadClass> + use<> {
        let points = std::iter::repeat_n(ReadClass::Points, self.workers);
        let scans = std::iter::repeat_n(ReadClass::Scans, self.workers);
        points.chain(scans).chain([ReadClass::Surveys])
    }

    /// Queues `job`, or hands it back when there is no room.
    pub(crate) fn offer(&self, job: StoreJob) -> Result<(), StoreJob> {
        let mut queue = self.queue.hold();
        let class = ReadClass::of(&job.work);
        let ranges_max = self.queue_len_max.div_ceil(limits::SCAN_QUEUE_SHARE);
        if queue.is_closed
            || queue.len() >= self.queue_len_max
            || (class != ReadClass::Points && queue.ranges_len() >= ranges_max)
        {
            return Err(job);
        }
        let (jobs, bell) = match class {
            ReadClass::Points => (&mut queue.points, &self.points_bell),
            ReadClass::Scans => (&mut queue.scans, &self.scans_bell),
            ReadClass::Surveys => (&mut queue.surveys, &self.surveys_bell),
        };
        jobs.push_back(job);
        drop(queue);
        bell.notify_one();
        Ok(())
    }

    /// Takes the jobs of loop `lane` at `slots` back that no worker has begun. Requires: `slots`
    /// ascend.
    pub(crate) fn take_back(&self, lane: usize, slots: &[u32]) -> Vec<StoreJob> {
        let is_wanted = |job: &StoreJob| job.lane == lane && slots.binary_search(&job.slot).is_ok();
        let mut taken = Vec::new();
        let mut queue = self.queue.hold();
        let Queue {
            points,
            scans,
            surveys,
            ..
        } = &mut *queue;
        for jobs in [points, scans, surveys] {
            if jobs.iter().any(is_wanted) {
                let (wanted, left) = std::mem::take(jobs).into_iter().partition(is_wanted);
                let wanted: VecDeque<StoreJob> = wanted;
                taken.extend(wanted);
                *jobs = left;
            }
        }
        taken
    }

    /// Jobs waiting: point reads, and reads of ranges.
    pub(crate) fn queued(&self) -> (usize, usize) {
        let queue = self.queue.hold();
        (queue.points.len(), queue.ranges_len())
    }

    /// How often scans rested because a loop was near its target.
    pub(crate) fn scan_rests(&self) -> u64 {
        self.queue.hold().scan_rests
    }

    /// Lets the workers finish their queue and end.
    pub(crate) fn close(&self) {
        self.queue.hold().is_closed = true;
        self.points_bell.notify_all();
        self.scans_bell.notify_all();
        self.surveys_bell.notify_all();
    }

    /// Waits for the next job of a class; `None` when the pool is closed and has none left.
    pub(super) fn next(&self, class: ReadClass, overload: &Overload) -> Option<StoreJob> {
        match class {
            ReadClass::Points => self.next_of(&self.points_bell, |queue| &mut queue.points),
            ReadClass::Scans => self.next_scan(overload),
            ReadClass::Surveys => self.next_of(&self.surveys_bell, |queue| &mut queue.surveys),
        }
    }

    fn next_of(
        &self,
        bell: &Condvar,
        jobs: impl Fn(&mut Queue) -> &mut VecDeque<StoreJob>,
    ) -> Option<StoreJob> {
        let mut queue = self.queue.hold();
        loop {
            let job = jobs(&mut queue).pop_front();
            if job.is_some() || queue.is_closed {
                return job;
            }
            queue = bell.wait(queue).expect("no holder panics");
        }
    }

    fn next_scan(&self, overload: &Overload) -> Option<StoreJob> {
        let mut queue = self.queue.hold();
        loop {
            let held_until_us = if queue.scans.is_empty() {
                None
            } else {
                queue.scans_held_until_us(overload.crowding(), clock::monotonic_us())
            };
            queue = match held_until_us {
                None => {
                    let job = queue.begin_scan();
                    if job.is_some() || queue.is_closed {
                        return job;
                    }
                    self.scans_bell.wait(queue).expect("no holder panics")
                }
                Some(until_us) => {
                    let rest_us = until_us.saturating_sub(clock::monotonic_us());
                    let rest = Duration::from_micros(rest_us);
                    let waited = self.scans_bell.wait_timeout(queue, rest);
                    waited.expect("no holder panics").0
                }
            };
        }
    }

    /// A chunk that was begun at `began_us` is made.
    pub(super) fn end_scan(&self, overload: &Overload, began_us: u64) {
        let now_us = clock::monotonic_us();
        let took_us = now_us.saturating_sub(began_us);
        let mut queue = self.queue.hold();
        queue.end_scan(overload.crowding(), now_us, took_us);
        let is_waited_for = !queue.scans.is_empty();
        drop(queue);
        if is_waited_for {
            self.scans_bell.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::stages::Watch;
    use crate::waiting::scan_job::ScanJob;
    use dendra_base::Key;
    use dendra_node::compare::shared::SharedRecords;
    use dendra_node::compare::survey::{RangesBy, Survey};
    use dendra_ownership::{Layout, Member, MemberIndex, Topology};
    use std::sync::Arc;

    fn point(slot: u32) -> StoreJob {
        StoreJob {
            lane: 0,
            slot,
            deadline_us: u64::MAX,
            watch: Watch::OFF,
            work: StoreWork::Get(Key::user(b"k")),
        }
    }

    fn chunk(slot: u32) -> StoreJob {
        StoreJob {
            work: StoreWork::Chunk(Box::new(ScanJob::for_tests())),
            ..point(slot)
        }
    }

    fn survey(slot: u32) -> StoreJob {
        let urls = ["http://10.0.0.1:8080", "http://10.0.0.2:8080"];
        let members = urls.map(|url| Member::new(url).expect("an address"));
        let topology = Topology::new("t", members.to_vec(), 2).expect("small");
        let layout = Layout::of_list(&Arc::new(topology));
        let shared = SharedRecords::of(&layout, MemberIndex(0), MemberIndex(1));
        let look = Survey {
            start: Key::user(b""),
            end: None,
            shared: Arc::new(shared),
            now_ms: 0,
            by: RangesBy::Grain(1),
            bytes_max: 1,
        };
        StoreJob {
            work: StoreWork::Survey(Box::new(look)),
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
            pool.offer(StoreJob {
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
        let next = || pool.next(ReadClass::Points, &overload);
        let next = || next().map(|job| (job.lane, job.slot));
        let left: Vec<(usize, u32)> = std::iter::from_fn(next).collect();
        assert_eq!(left, [(0, 1), (0, 3), (1, 2)]);
        assert!(pool.next(ReadClass::Scans, &overload).is_none());
    }

    #[test]
    fn scans_leave_half_of_the_queue_to_point_reads() {
        let pool = StorePool::new(4, 0);
        assert!(pool.offer(chunk(0)).is_ok());
        assert!(pool.offer(chunk(1)).is_ok());
        assert!(pool.offer(chunk(2)).is_err());
        assert!(pool.offer(survey(2)).is_err());
        assert!(pool.offer(point(3)).is_ok());
    }

    #[test]
    fn each_class_has_its_threads_and_takes_nothing_of_the_other() {
        let pool = StorePool::new(64, 0);
        assert!(pool.offer(chunk(100)).is_ok());
        assert!(pool.offer(point(1)).is_ok());
        assert!(pool.offer(survey(200)).is_ok());
        assert!(pool.offer(chunk(101)).is_ok());
        pool.close();
        let overload = Overload::default();
        let left = |class| -> Vec<u32> {
            let next = || pool.next(class, &overload).map(|job| job.slot);
            std::iter::from_fn(next).collect()
        };
        assert_eq!(left(ReadClass::Points), [1]);
        assert_eq!(left(ReadClass::Scans), [100, 101]);
        assert_eq!(left(ReadClass::Surveys), [200]);
    }

    #[test]
    fn near_the_target_scans_take_a_quarter_of_the_time() {
        let mut queue = Queue::default();
        for slot in 0..100 {
            queue.scans.push_back(chunk(slot));
        }
        let (mut now_us, mut worked_us) = (0, 0);
        let share = limits::SCAN_TIME_SHARE;
        while now_us < 100_000 {
            if let Some(until_us) = queue.scans_held_until_us(Crowding::Near, now_us) {
                now_us = until_us;
                continue;
            }
            assert!(queue.begin_scan().is_some());
            let beside = queue.scans_held_until_us(Crowding::Near, now_us);
            assert!(beside.is_some(), "one chunk at a time");
            now_us += 2_000;
            worked_us += 2_000;
            queue.end_scan(Crowding::Near, now_us, 2_000);
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
