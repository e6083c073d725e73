//! Where one connection waits: for the ends of its operations, or for a deadline.
//!
//! ```text
//! connection ─► expect … all ─┐            ┌─ put                    (pump, committer, agent)
//!                             └─► woken ◄──┤
//!                                          └─ check_deadline, tell   (sweep, pump)
//! ```
//!
//! Invariants
//! 1. Single-threaded: everything here is plain cells, and waking is a push to the loop's own
//!    queue.
//! 2. A round ends when the connection stops waiting. An event of an earlier round never arrives.
//! 3. A passed deadline is told once and stays until the next `arm`.
//!
//! Not here: the waits of a connection (`connection/`), tickets (`thread/mod.rs`).

use crate::waiting::finished::Finished;
use crate::waiting::source_requests::ClientSource;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Why a connection was woken without the event that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// The deadline of the wait passed.
    Deadline,
    /// The node drains: a connection between two requests closes.
    Drain,
    /// The log failed: the outcome of a waiting write is unknown.
    Poisoned,
}

/// When a wait ends although not everything has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// At the deadline: a failed log keeps no read from being answered.
    Deadline,
    /// At the deadline, or when the log fails.
    DeadlineOrPoison,
}

/// The seat of one connection.
#[derive(Debug)]
pub(crate) struct Seat {
    waker: RefCell<Option<Waker>>,
    deadline_us: Cell<u64>,
    is_late: Cell<bool>,
    told: Cell<Option<WakeReason>>,
    round: Cell<u32>,
    /// The ends that are waited for together, in the order in which they were expected.
    finished: RefCell<Vec<Option<Finished>>>,
    missing: Cell<u32>,
    /// `None` = the node's own.
    source: Option<Rc<ClientSource>>,
}

impl Default for Seat {
    fn default() -> Seat {
        Seat {
            waker: RefCell::new(None),
            deadline_us: Cell::new(u64::MAX),
            is_late: Cell::new(false),
            told: Cell::new(None),
            round: Cell::new(0),
            finished: RefCell::default(),
            missing: Cell::new(0),
            source: None,
        }
    }
}

impl Seat {
    /// The seat of a client's connection.
    pub(crate) fn of(source: Rc<ClientSource>) -> Seat {
        Seat {
            source: Some(source),
            ..Seat::default()
        }
    }

    /// The client's address, with its share of the requests that may wait.
    pub(crate) fn source(&self) -> Option<&Rc<ClientSource>> {
        self.source.as_ref()
    }

    /// Sets the deadline of the next waits.
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
    pub(crate) fn tell(&self, due: WakeReason) {
        self.told.set(Some(due));
        self.wake();
    }

    /// Has anything happened that ends the wait?
    pub(crate) fn due(&self) -> Option<WakeReason> {
        match self.told.get() {
            Some(WakeReason::Poisoned) => Some(WakeReason::Poisoned),
            _ if self.is_late.get() => Some(WakeReason::Deadline),
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

    /// Ends the round: the expected ends are not waited for any more.
    pub(crate) fn next_round(&self) {
        self.round.set(self.round.get().wrapping_add(1));
        self.finished.borrow_mut().clear();
        self.missing.set(0);
    }

    /// The place of the next end that is expected.
    pub(crate) fn next_place(&self) -> u32 {
        let len = self.finished.borrow().len();
        u32::try_from(len).expect("bounded by PIPELINED_WRITES_MAX")
    }

    /// Expects one more; returns its place.
    pub(crate) fn expect(&self) -> u32 {
        let place = self.next_place();
        let mut finished = self.finished.borrow_mut();
        if finished.capacity() == 0 {
            // Most connections wait for one at a time, and there are many of them.
            finished.reserve_exact(1);
        }
        finished.push(None);
        self.missing.set(self.missing.get() + 1);
        place
    }

    /// Delivers one; the last one wakes.
    pub(crate) fn put(&self, place: u32, finished: Finished) {
        let before = self.finished.borrow_mut()[place as usize].replace(finished);
        assert!(before.is_none(), "a result came twice");
        self.missing.set(self.missing.get() - 1);
        if self.missing.get() == 0 {
            self.wake();
        }
    }

    /// Did it come for `place`, and was not taken?
    pub(crate) fn has(&self, place: usize) -> bool {
        let finished = self.finished.borrow();
        finished.get(place).is_some_and(Option::is_some)
    }

    /// The end that came for `place`, if it came.
    pub(crate) fn take(&self, place: usize) -> Option<Finished> {
        self.finished.borrow_mut().get_mut(place)?.take()
    }

    /// Waits for everything that is expected; an early end says why.
    pub(crate) async fn all(&self, limit: WaitLimit) -> Result<(), WakeReason> {
        poll_fn(|cx| {
            if self.missing.get() == 0 {
                return Poll::Ready(Ok(()));
            }
            match (self.due(), limit) {
                (Some(due @ WakeReason::Deadline), _)
                | (Some(due @ WakeReason::Poisoned), WaitLimit::DeadlineOrPoison) => {
                    return Poll::Ready(Err(due));
                }
                (Some(WakeReason::Poisoned | WakeReason::Drain) | None, _) => {}
            }
            self.register(cx);
            Poll::Pending
        })
        .await
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

/// A bell between tasks of one loop: two rings before its task wakes count as one.
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

    /// The work that it rang for is done.
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

    #[test]
    fn ends_stand_where_they_were_expected_in_whatever_order_they_come() {
        let seat = Seat::default();
        assert_eq!((seat.expect(), seat.expect()), (0, 1));
        seat.put(1, Finished::Failed);
        assert_eq!(seat.missing.get(), 1);
        seat.put(0, Finished::Damaged);
        assert_eq!(seat.missing.get(), 0);
        assert!(matches!(seat.take(0), Some(Finished::Damaged)));
        assert!(matches!(seat.take(1), Some(Finished::Failed)));
        assert!(seat.take(1).is_none() && seat.take(2).is_none());
    }

    #[tokio::test]
    async fn a_failed_log_ends_the_wait_for_a_write_and_not_for_a_read() {
        let seat = Seat::default();
        seat.expect();
        seat.tell(WakeReason::Poisoned);
        assert_eq!(
            seat.all(WaitLimit::DeadlineOrPoison).await,
            Err(WakeReason::Poisoned)
        );
        let mut read = std::pin::pin!(seat.all(WaitLimit::Deadline));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(read.as_mut().poll(&mut cx).is_pending());
        seat.put(0, Finished::Failed);
        assert_eq!(read.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_deadline_is_told_when_it_has_passed_and_not_before() {
        let seat = Seat::default();
        seat.arm(100);
        seat.check_deadline(99);
        assert_eq!(seat.due(), None);
        seat.check_deadline(100);
        assert_eq!(seat.due(), Some(WakeReason::Deadline));
        seat.arm(u64::MAX);
        assert_eq!(seat.due(), None);
    }

    #[test]
    fn poison_counts_for_more_than_a_deadline() {
        let seat = Seat::default();
        seat.arm(0);
        seat.check_deadline(1);
        seat.tell(WakeReason::Poisoned);
        assert_eq!(seat.due(), Some(WakeReason::Poisoned));
    }
}
