//! Where one connection waits: for its outcomes, for an answer of the store pool, for a deadline.
//!
//! ```text
//! connection ─► expect_outcome … wait ─┐            ┌─ put_outcome, put_answer   (pump, committer)
//!                                      └─► woken ◄──┤
//!                                                   └─ check_deadline, tell      (sweep, pump)
//! ```
//!
//! Invariants
//! 1. Single-threaded: everything here is plain cells, and waking is a push to the loop's own queue.
//! 2. A round ends when the connection stops waiting; what belongs to an earlier round never arrives.
//! 3. A passed deadline is told once and stays until the next `arm`.
//!
//! Not here: who waits for what (`connection.rs`), tickets (`lane.rs`).

use crate::peers::Finished;
use crate::store_pool::PoolAnswer;
use dendra_engine::WriteOutcome;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Why a connection was woken without what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Its deadline passed.
    Deadline,
    /// The node drains: a connection between two requests closes.
    Drain,
    /// The log failed: nobody knows the outcome of a waiting write.
    Poisoned,
}

/// Results that are waited for together, in the order in which they were expected.
#[derive(Debug)]
struct Awaited<T> {
    results: RefCell<Vec<Option<T>>>,
    missing: Cell<u32>,
}

impl<T> Default for Awaited<T> {
    fn default() -> Awaited<T> {
        Awaited {
            results: RefCell::default(),
            missing: Cell::new(0),
        }
    }
}

impl<T> Awaited<T> {
    /// One more is expected; its place.
    fn expect(&self) -> u32 {
        let mut results = self.results.borrow_mut();
        results.push(None);
        self.missing.set(self.missing.get() + 1);
        u32::try_from(results.len() - 1).expect("bounded by PIPELINED_WRITES_MAX")
    }

    /// One came; was it the last?
    fn put(&self, place: u32, result: T) -> bool {
        let before = self.results.borrow_mut()[place as usize].replace(result);
        assert!(before.is_none(), "a result came twice");
        self.missing.set(self.missing.get() - 1);
        self.missing.get() == 0
    }

    /// Did it come, and was not taken?
    fn has(&self, place: usize) -> bool {
        self.results.borrow()[place].is_some()
    }

    /// What came for a place.
    fn take(&self, place: usize) -> Option<T> {
        self.results.borrow_mut()[place].take()
    }

    fn clear(&self) {
        self.results.borrow_mut().clear();
        self.missing.set(0);
    }
}

/// The seat of one connection.
#[derive(Debug)]
pub(crate) struct Seat {
    waker: RefCell<Option<Waker>>,
    deadline_us: Cell<u64>,
    is_late: Cell<bool>,
    told: Cell<Option<Due>>,
    round: Cell<u32>,
    /// Of writes to the own store.
    outcomes: Awaited<WriteOutcome>,
    answer: RefCell<Option<PoolAnswer>>,
    /// What the loop's node came to, in a cluster.
    finished: Awaited<Finished>,
}

impl Default for Seat {
    fn default() -> Seat {
        Seat {
            waker: RefCell::new(None),
            deadline_us: Cell::new(u64::MAX),
            is_late: Cell::new(false),
            told: Cell::new(None),
            round: Cell::new(0),
            outcomes: Awaited::default(),
            answer: RefCell::new(None),
            finished: Awaited::default(),
        }
    }
}

impl Seat {
    /// Sets the deadline of what follows.
    pub(crate) fn arm(&self, deadline_us: u64) {
        self.deadline_us.set(deadline_us);
        self.is_late.set(false);
    }

    /// Has the armed deadline passed?
    pub(crate) fn is_late(&self) -> bool {
        self.is_late.get()
    }

    /// Wakes the connection when its deadline has passed.
    pub(crate) fn check_deadline(&self, now_us: u64) {
        if now_us >= self.deadline_us.get() && !self.is_late.replace(true) {
            self.wake();
        }
    }

    /// Wakes the connection because something happened to the whole node.
    pub(crate) fn tell(&self, due: Due) {
        self.told.set(Some(due));
        self.wake();
    }

    /// Has anything happened that ends the wait?
    pub(crate) fn due(&self) -> Option<Due> {
        match self.told.get() {
            Some(Due::Poisoned) => Some(Due::Poisoned),
            _ if self.is_late.get() => Some(Due::Deadline),
            told => told,
        }
    }

    /// Wakes the connection.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Makes the polling task the one that is woken.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match waker.as_ref() {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
    }

    /// The round that new tickets belong to.
    pub(crate) fn round(&self) -> u32 {
        self.round.get()
    }

    /// Ends the round: what was expected is not waited for any more.
    pub(crate) fn next_round(&self) {
        self.round.set(self.round.get().wrapping_add(1));
        self.outcomes.clear();
        *self.answer.borrow_mut() = None;
        self.finished.clear();
    }

    /// Expects one more outcome; returns its place.
    pub(crate) fn expect_outcome(&self) -> u32 {
        self.outcomes.expect()
    }

    /// Delivers one outcome; the last one wakes.
    pub(crate) fn put_outcome(&self, place: u32, outcome: WriteOutcome) {
        if self.outcomes.put(place, outcome) {
            self.wake();
        }
    }

    /// Delivers the store pool's answer and wakes.
    pub(crate) fn put_answer(&self, answer: PoolAnswer) {
        *self.answer.borrow_mut() = Some(answer);
        self.wake();
    }

    /// The outcome at `place`, if it came.
    pub(crate) fn take_outcome(&self, place: usize) -> Option<WriteOutcome> {
        self.outcomes.take(place)
    }

    /// Waits for all expected outcomes; an early end says why.
    pub(crate) async fn all_outcomes(&self) -> Result<(), Due> {
        self.all(&self.outcomes).await
    }

    async fn all<T>(&self, awaited: &Awaited<T>) -> Result<(), Due> {
        poll_fn(|cx| {
            if awaited.missing.get() == 0 {
                return Poll::Ready(Ok(()));
            }
            if let Some(due @ (Due::Deadline | Due::Poisoned)) = self.due() {
                return Poll::Ready(Err(due));
            }
            self.register(cx);
            Poll::Pending
        })
        .await
    }

    /// Waits for the store pool's answer; an early end says why.
    pub(crate) async fn answer(&self) -> Result<PoolAnswer, Due> {
        poll_fn(|cx| {
            if let Some(answer) = self.answer.borrow_mut().take() {
                return Poll::Ready(Ok(answer));
            }
            if let Some(due @ Due::Deadline) = self.due() {
                return Poll::Ready(Err(due));
            }
            self.register(cx);
            Poll::Pending
        })
        .await
    }

    /// Expects one more answer of the node; returns its place.
    pub(crate) fn expect_finished(&self) -> u32 {
        self.finished.expect()
    }

    /// Delivers one answer of the node; the last one wakes.
    pub(crate) fn put_finished(&self, place: u32, finished: Finished) {
        if self.finished.put(place, finished) {
            self.wake();
        }
    }

    /// Did the node's answer at `place` come?
    pub(crate) fn has_finished(&self, place: usize) -> bool {
        self.finished.has(place)
    }

    /// The node's answer at `place`, if it came.
    pub(crate) fn take_finished(&self, place: usize) -> Option<Finished> {
        self.finished.take(place)
    }

    /// Waits for all expected answers of the node; an early end says why.
    pub(crate) async fn all_finished(&self) -> Result<(), Due> {
        self.all(&self.finished).await
    }

    /// Waits for the deadline.
    pub(crate) async fn deadline(&self) {
        poll_fn(|cx| {
            if self.is_late.get() {
                return Poll::Ready(());
            }
            self.register(cx);
            Poll::Pending
        })
        .await;
    }
}

/// A bell between tasks of one loop: ringing it twice before it is heard is ringing it once.
#[derive(Debug, Default)]
pub(crate) struct LocalBell {
    is_rung: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl LocalBell {
    /// Rings.
    pub(crate) fn ring(&self) {
        if !self.is_rung.replace(true)
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }

    /// What it rang for is done.
    pub(crate) fn still(&self) {
        self.is_rung.set(false);
    }

    /// Waits until it is rung. Requires: one listener.
    pub(crate) async fn rung(&self) {
        poll_fn(|cx| {
            if self.is_rung.replace(false) {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::Version;

    #[test]
    fn outcomes_stand_where_they_were_expected_in_whatever_order_they_come() {
        let seat = Seat::default();
        assert_eq!((seat.expect_outcome(), seat.expect_outcome()), (0, 1));
        seat.put_outcome(1, WriteOutcome::NotApplied);
        assert_eq!(seat.outcomes.missing.get(), 1);
        let applied = WriteOutcome::Applied {
            version: Version::ZERO,
        };
        seat.put_outcome(0, applied);
        assert_eq!(seat.outcomes.missing.get(), 0);
        assert_eq!(seat.take_outcome(0), Some(applied));
    }

    #[test]
    fn a_deadline_is_told_when_it_has_passed_and_not_before() {
        let seat = Seat::default();
        seat.arm(100);
        seat.check_deadline(99);
        assert_eq!(seat.due(), None);
        seat.check_deadline(100);
        assert_eq!(seat.due(), Some(Due::Deadline));
        seat.arm(u64::MAX);
        assert_eq!(seat.due(), None);
    }

    #[test]
    fn poison_counts_for_more_than_a_deadline() {
        let seat = Seat::default();
        seat.arm(0);
        seat.check_deadline(1);
        seat.tell(Due::Poisoned);
        assert_eq!(seat.due(), Some(Due::Poisoned));
    }
}
