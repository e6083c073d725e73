//! Writes in line for the log or the engine: none of them waits while it might go.
//!
//! ```text
//! a loop without tasks ── batch ─► the log's queue, which is full until the test commits
//! writers, polled by the test    ─► who is woken, in which order
//! ```
//!
//! Invariants
//! 1. No sweep runs: a wake-up that is lost stays lost.
//!
//! Not here: the order within a line and the turns of two (crate `node`, `admission/line.rs`,
//! `admission/turns.rs`). See: docs/overload.md, "Large and small writes".

use super::tests::{on_a_loop_with, poll};
use super::*;
use crate::disk::maintenance::tell_waiting_loops;
use crate::settings::Settings;
use dendra_base::{CellRef, Key, Version};
use dendra_engine::{Guard, Maintained, Maintenance};
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake, Waker};

/// Bytes of each value: some of them fill a batch.
const BYTES: usize = 64 << 10;

/// How often a task was woken.
#[derive(Default)]
pub(super) struct Wakes(pub(super) AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Wakes>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection whose write waits in line.
struct Writer {
    seat: Rc<Seat>,
    wakes: Arc<Wakes>,
    waits: Pin<Box<dyn Future<Output = bool>>>,
}

impl Writer {
    /// Writer that waits from now on.
    fn join(lane: &Rc<EventLoop>) -> Writer {
        let seat = Rc::<Seat>::default();
        lane.waiters.seats.borrow_mut().insert(Rc::clone(&seat));
        let (lane, waits_in) = (Rc::clone(lane), Rc::clone(&seat));
        let waits = async move { lane.wait_for_log(&waits_in, BYTES, u64::MAX).await };
        let mut writer = Writer {
            seat,
            wakes: Arc::default(),
            waits: Box::pin(waits),
        };
        assert_eq!(writer.poll(), Poll::Pending, "there is room");
        writer
    }

    fn poll(&mut self) -> Poll<bool> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.waits.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Was it woken since the last time?
    fn is_woken(&self) -> bool {
        self.wakes.0.swap(0, Ordering::Relaxed) > 0
    }
}

/// Writers in line, of whom none may go: wake-ups until now do not count.
fn join<const N: usize>(
    lane: &Rc<EventLoop>,
    committer: Pin<&mut impl Future<Output = ()>>,
) -> [Writer; N] {
    let mut writers = std::array::from_fn(|_| Writer::join(lane));
    turn(lane, committer);
    for writer in &mut writers {
        assert_eq!(writer.poll(), Poll::Pending, "there is room");
    }
    woken(&writers);
    writers
}

/// Which of them were woken since the last time?
fn woken<const N: usize>(writers: &[Writer; N]) -> [bool; N] {
    writers.each_ref().map(Writer::is_woken)
}

fn with_room(test: impl AsyncFnOnce(Rc<EventLoop>)) {
    on_a_loop_with(|_| {}, test);
}

/// A node whose memory is full of a few hundred writes.
fn small(settings: &mut Settings) {
    settings.memory_bytes = 16 << 20;
    settings.memtable_bytes = Some(64 << 10);
    settings.value_bytes_max = BYTES;
}

/// A key that no other write of the connection in `seat` has: a second copy of a version takes no
/// room.
fn next_key(seat: &Seat) -> Key {
    Key::user(&seat.next_place().to_le_bytes())
}

/// Writes a value, if there is room for it.
fn write(lane: &EventLoop, seat: &Rc<Seat>) -> Result<(), RefusalCause> {
    let (key, value) = (next_key(seat), vec![7; BYTES]);
    let cell = CellRef::value(key.as_stored(), Version::ZERO, &value);
    lane.push_write(seat, key.as_stored(), &cell, Guard::Newest)
}

/// Another member's write, which waits if there is no room.
fn order(lane: &EventLoop, seat: &Rc<Seat>) {
    let (key, value) = (next_key(seat), vec![7; BYTES]);
    let cell = CellRef::value(key.as_stored(), Version::ZERO, &value).to_owned();
    let target = Target::of(seat);
    seat.expect();
    let ordered = lane.push_order_in_line(target, &key, &cell, Guard::Newest);
    assert_eq!(ordered, Ok(()));
}

/// Fills the loop's batch, behind a full queue of the log.
fn fill_queue(lane: &EventLoop) {
    let seat = Rc::default();
    let full = (0..10_000).find_map(|_| write(lane, &seat).err());
    assert_eq!(full, Some(RefusalCause::LogQueue));
}

/// Commits as the log's own thread does.
fn commit_queue(lane: &EventLoop) {
    let (mut done, mut groups) = (Vec::new(), vec![Vec::new()]);
    lane.parts.store.engine.commit(&mut done).expect("a disk");
    wal_thread::deliver(&lane.parts.store, &mut done, &mut groups, None);
}

/// What the loop's pump does.
fn take_events(lane: &Rc<EventLoop>) {
    let mut events = Vec::new();
    lane.handle().mailbox.take(&mut events);
    for event in events {
        lane.handle_event(event);
    }
}

/// A turn of the loop: what came, and what is due.
fn turn(lane: &Rc<EventLoop>, committer: Pin<&mut impl Future<Output = ()>>) {
    take_events(lane);
    assert!(poll(committer).is_pending());
}

#[test]
fn the_first_in_line_is_woken_when_the_log_has_room_and_wakes_the_next_when_it_goes() {
    with_room(async |lane| {
        let mut committer = pin!(commit_when_due(Rc::clone(&lane)));
        fill_queue(&lane);
        let mut writers: [Writer; 3] = join(&lane, committer.as_mut());
        commit_queue(&lane);
        turn(&lane, committer.as_mut());
        assert_eq!(woken(&writers), [true, false, false]);
        for n in 0..3 {
            assert_eq!(writers[n].poll(), Poll::Ready(true));
            assert_eq!(write(&lane, &writers[n].seat), Ok(()));
            let is_next = std::array::from_fn(|other| other == n + 1);
            assert_eq!(woken(&writers), is_next, "behind {n}");
        }
    });
}

#[test]
fn one_that_was_woken_and_leaves_before_it_is_polled_wakes_the_next() {
    with_room(async |lane| {
        let mut committer = pin!(commit_when_due(Rc::clone(&lane)));
        fill_queue(&lane);
        let [first, mut second, third] = join(&lane, committer.as_mut());
        commit_queue(&lane);
        turn(&lane, committer.as_mut());
        assert!(first.is_woken() && !second.is_woken());
        drop(first);
        assert!(second.is_woken() && !third.is_woken());
        assert_eq!(second.poll(), Poll::Ready(true));
        assert!(third.is_woken());
    });
}

#[test]
fn all_that_wait_end_when_the_log_fails() {
    with_room(async |lane| {
        let mut committer = pin!(commit_when_due(Rc::clone(&lane)));
        fill_queue(&lane);
        let mut writers: [Writer; 3] = join(&lane, committer.as_mut());
        wal_thread::poison(&lane.parts.store, "a test");
        take_events(&lane);
        assert_eq!(woken(&writers), [true; 3]);
        for writer in &mut writers {
            assert_eq!(writer.poll(), Poll::Ready(false));
        }
        assert!(lane.lines.clients.borrow().is_empty());
    });
}

#[test]
fn the_first_in_line_is_woken_when_the_engine_is_behind_no_longer() {
    on_a_loop_with(small, async |lane| {
        let mut committer = pin!(commit_when_due(Rc::clone(&lane)));
        let seat = Rc::default();
        let is_behind = || WriteRoom::of(lane.parts.store.engine.pressure()) == WriteRoom::Stopped;
        for _ in 0..1_000 {
            if is_behind() {
                break;
            }
            assert_eq!(write(&lane, &seat), Ok(()));
            lane.commit();
            commit_queue(&lane);
            turn(&lane, committer.as_mut());
        }
        assert!(is_behind(), "nothing is flushed");
        let mut writers: [Writer; 2] = join(&lane, committer.as_mut());
        tell_waiting_loops(&lane.parts.store);
        turn(&lane, committer.as_mut());
        assert_eq!(woken(&writers), [false; 2], "it is behind");
        let engine = &lane.parts.store.engine;
        while engine
            .maintain(Maintenance::Flush, 0, usize::MAX)
            .expect("a disk")
            == Maintained::More
        {}
        assert!(!is_behind());
        tell_waiting_loops(&lane.parts.store);
        turn(&lane, committer.as_mut());
        assert_eq!(woken(&writers), [true, false]);
        assert_eq!(writers[0].poll(), Poll::Ready(true));
        assert_eq!(woken(&writers), [false, true]);
    });
}

#[test]
fn orders_go_on_when_the_client_whose_turn_it_is_goes_or_leaves() {
    for goes in [true, false] {
        with_room(async |lane| {
            let mut committer = pin!(commit_when_due(Rc::clone(&lane)));
            fill_queue(&lane);
            // One that goes while no order waits: the turn is the clients' then.
            let [mut before] = join(&lane, committer.as_mut());
            commit_queue(&lane);
            turn(&lane, committer.as_mut());
            assert_eq!(before.poll(), Poll::Ready(true));
            lane.forgo_log();
            fill_queue(&lane);
            let [mut client] = join(&lane, committer.as_mut());
            let member = Rc::default();
            order(&lane, &member);
            client.is_woken();
            commit_queue(&lane);
            turn(&lane, committer.as_mut());
            assert!(client.is_woken(), "it is its turn");
            assert_eq!(lane.lines.orders.borrow().len(), 1, "it is not its turn");
            if goes {
                assert_eq!(client.poll(), Poll::Ready(true));
                assert_eq!(write(&lane, &client.seat), Ok(()));
            } else {
                drop(client);
            }
            turn(&lane, committer.as_mut());
            assert!(lane.lines.orders.borrow().is_empty(), "the order waits");
        });
    }
}

#[test]
fn a_client_is_woken_when_the_order_in_front_of_it_has_gone() {
    with_room(async |lane| {
        let mut committer = pin!(commit_when_due(Rc::clone(&lane)));
        fill_queue(&lane);
        let member = Rc::default();
        (0..2).for_each(|_| order(&lane, &member));
        let [mut client] = join(&lane, committer.as_mut());
        commit_queue(&lane);
        turn(&lane, committer.as_mut());
        assert_eq!(lane.lines.orders.borrow().len(), 1, "a turn is one of them");
        assert!(client.is_woken(), "it is its turn");
        assert_eq!(client.poll(), Poll::Ready(true));
        assert_eq!(write(&lane, &client.seat), Ok(()));
        turn(&lane, committer.as_mut());
        assert!(lane.lines.orders.borrow().is_empty(), "the order waits");
    });
}
