//! Room for bytes on one loop: taken from a gate of the node, waited for in line, given back when
//! unused.
//!
//! ```text
//! offer ──────────────────────────► gate ─► Room, given back when dropped ─┐
//! wait ─► line: one for each source        ▲                               │
//!           ▲   its own in order           │ the source that holds least   │
//!           └──────────────────────────────┴─── called when room comes back┘
//! ```
//!
//! Invariants
//! 1. Held and waiting bytes are counted by source address. The next in line is a request of the
//!    source that holds least, and among equals the one that came first.
//! 2. No request waits longer than it said, and a line holds at most as many bytes as its gate, or
//!    as was said.
//! 3. While a request waits, or was refused a moment ago, room that moves too few bytes is taken
//!    back (`Turnover`).
//!
//! Not here: counting (crate `node`, `admission/`), the use of the bytes (`exchange/`,
//! `clients/backend/alone.rs`).
//! See: docs/overload.md.

use crate::clock;
use crate::limits;
use crate::waiting::seat::Seat;
use crate::waiting::source_requests::RoomPermit;
use dendra_node::{Gate, LocalGate};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

/// Bytes that may be held at once on a node, as all loops share them.
#[derive(Debug)]
pub(crate) struct RoomBudget {
    gate: Arc<Gate>,
    /// Bytes that may stand in line on one loop.
    line_max: u64,
    /// When a loop last had no room for a request, in microseconds of the monotonic clock.
    lacked_us: AtomicU64,
}

impl RoomBudget {
    /// Room for `bytes`.
    pub(crate) fn new(bytes: usize) -> RoomBudget {
        RoomBudget {
            gate: Arc::new(Gate::new(bytes as u64)),
            line_max: bytes as u64,
            lacked_us: AtomicU64::new(0),
        }
    }

    /// Budget with a line for so many.
    pub(crate) fn with_line(mut self, bytes: usize) -> RoomBudget {
        self.line_max = bytes as u64;
        self
    }

    /// Bytes that may be held at once.
    pub(crate) fn limit(&self) -> u64 {
        self.gate.limit()
    }

    /// Bytes that are held, or leased by loops.
    pub(crate) fn used(&self) -> u64 {
        self.gate.used()
    }
}

#[derive(Debug)]
struct RoomWaiter {
    number: u64,
    bytes: u64,
    seat: Rc<Seat>,
}

/// The bytes of one address that clients come from.
#[derive(Debug, Default)]
struct AddressShare {
    held: u64,
    line: VecDeque<RoomWaiter>,
}

/// One loop's door to a [`RoomBudget`].
#[derive(Debug)]
pub(crate) struct Rooms {
    space: Arc<RoomBudget>,
    gate: Rc<LocalGate<Arc<Gate>>>,
    sources: RefCell<BTreeMap<IpAddr, AddressShare>>,
    waiting_bytes: Cell<u64>,
    next_number: Cell<u64>,
}

/// Room for so many bytes, given back when dropped.
#[derive(Debug)]
#[must_use = "room that is dropped is given back at once"]
pub(crate) struct Room {
    rooms: Rc<Rooms>,
    source: IpAddr,
    bytes: u64,
    permit: Option<RoomPermit>,
}

impl Room {
    /// Bytes that it is for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Gives back the part beyond `bytes`.
    pub(crate) fn keep(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes as u64);
        self.bytes -= surplus;
        if let Some(permit) = &mut self.permit {
            permit.keep(self.bytes);
        }
        self.rooms
            .forget(self.source, |source| source.held -= surplus);
        self.rooms.call();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.permit = None;
        self.rooms
            .forget(self.source, |source| source.held -= self.bytes);
        self.rooms.call();
    }
}

/// A place in the line, left when dropped.
struct LinePlace<'a> {
    rooms: &'a Rooms,
    source: IpAddr,
    number: u64,
}

impl Drop for LinePlace<'_> {
    fn drop(&mut self) {
        let rooms = self.rooms;
        rooms.forget(self.source, |source| {
            let at = source.line.iter().position(|one| one.number == self.number);
            let gone = at.and_then(|at| source.line.remove(at));
            let bytes = gone.map_or(0, |one| one.bytes);
            rooms.waiting_bytes.set(rooms.waiting_bytes.get() - bytes);
        });
        rooms.call();
    }
}

impl Rooms {
    /// The door of one of `loops` loops.
    pub(crate) fn new(space: &Arc<RoomBudget>, loops: usize) -> Rooms {
        Rooms {
            space: Arc::clone(space),
            gate: Rc::new(LocalGate::new(Arc::clone(&space.gate), loops)),
            sources: RefCell::default(),
            waiting_bytes: Cell::new(0),
            next_number: Cell::new(0),
        }
    }

    /// Bytes held on this loop.
    pub(crate) fn used(&self) -> u64 {
        self.gate.used()
    }

    /// Bytes that wait on this loop.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting_bytes.get()
    }

    /// Is half of the node's room in use?
    pub(crate) fn is_crowded(&self) -> bool {
        self.space.used() > self.space.limit() / 2
    }

    /// Takes room for `bytes` now, or not at all. More than all there is counts as all there is.
    pub(crate) fn offer(self: &Rc<Rooms>, source: IpAddr, bytes: usize) -> Option<Room> {
        let room = self.take(source, bytes as u64);
        if room.is_none() {
            self.note_lack();
        }
        room
    }

    /// Offers room as `offer` does, after the requests that wait.
    pub(crate) fn offer_in_turn(self: &Rc<Rooms>, source: IpAddr, bytes: usize) -> Option<Room> {
        if self.waiting_bytes.get() > 0 {
            self.note_lack();
            return None;
        }
        self.offer(source, bytes)
    }

    fn take(self: &Rc<Rooms>, source: IpAddr, bytes: u64) -> Option<Room> {
        let bytes = bytes.min(self.space.limit());
        let permit = LocalGate::offer(Rc::clone(&self.gate), bytes)?;
        self.sources.borrow_mut().entry(source).or_default().held += bytes;
        Some(Room {
            rooms: Rc::clone(self),
            source,
            bytes,
            permit: Some(permit),
        })
    }

    /// May a request that needs `bytes` still stand in line?
    pub(crate) fn has_place(&self, bytes: usize) -> bool {
        self.waiting_bytes.get() == 0
            || self.waiting_bytes.get() + bytes as u64 <= self.space.line_max
    }

    /// Waits for room until `until_us`. Arms the seat.
    pub(crate) async fn wait(
        self: &Rc<Rooms>,
        seat: &Rc<Seat>,
        source: IpAddr,
        bytes: usize,
        until_us: u64,
    ) -> Option<Room> {
        if let Some(room) = self.offer_in_turn(source, bytes) {
            return Some(room);
        }
        if !self.has_place(bytes) {
            return None;
        }
        let bytes = (bytes as u64).min(self.space.limit());
        let place = self.line_up(seat, source, bytes);
        seat.arm(until_us);
        poll_fn(|cx| {
            if self
                .front()
                .is_some_and(|(number, _)| number == place.number)
                && let Some(room) = self.take(source, bytes)
            {
                return Poll::Ready(Some(room));
            }
            if seat.is_late() {
                return Poll::Ready(None);
            }
            seat.register(cx);
            Poll::Pending
        })
        .await
    }

    fn line_up(&self, seat: &Rc<Seat>, source: IpAddr, bytes: u64) -> LinePlace<'_> {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        self.waiting_bytes.set(self.waiting_bytes.get() + bytes);
        let seat = Rc::clone(seat);
        let mut sources = self.sources.borrow_mut();
        let line = &mut sources.entry(source).or_default().line;
        line.push_back(RoomWaiter {
            number,
            bytes,
            seat,
        });
        LinePlace {
            rooms: self,
            source,
            number,
        }
    }

    fn forget(&self, address: IpAddr, change: impl FnOnce(&mut AddressShare)) {
        let mut sources = self.sources.borrow_mut();
        let source = sources.entry(address).or_default();
        change(source);
        if source.held == 0 && source.line.is_empty() {
            sources.remove(&address);
        }
    }

    /// The request that is next in line: its number, and its seat.
    fn front(&self) -> Option<(u64, Rc<Seat>)> {
        if self.waiting_bytes.get() == 0 {
            return None;
        }
        let sources = self.sources.borrow();
        let fronts = sources
            .values()
            .filter_map(|source| source.line.front().map(|front| (source.held, front)));
        let (_, front) = fronts.min_by_key(|(held, front)| (*held, front.number))?;
        Some((front.number, Rc::clone(&front.seat)))
    }

    /// Wakes the request that is next in line.
    fn call(&self) {
        if let Some((_, seat)) = self.front() {
            seat.wake();
        }
    }

    /// Once per sweep: room that came back on another loop is found.
    pub(crate) fn sweep(&self) {
        if self.waiting_bytes.get() > 0 {
            self.note_lack();
            self.call();
        } else if self.is_short() {
            self.gate.release_idle();
        }
    }

    fn note_lack(&self) {
        let now_us = clock::monotonic_us();
        self.space.lacked_us.store(now_us, Ordering::Relaxed);
    }

    /// Does a request wait for room, or was one refused within the last second?
    pub(crate) fn is_short(&self) -> bool {
        let lacked_us = self.space.lacked_us.load(Ordering::Relaxed);
        lacked_us > 0
            && clock::monotonic_us().saturating_sub(lacked_us)
                < limits::TURNOVER_TIME.as_micros() as u64
    }
}

/// How much a holder of room moves.
#[derive(Debug)]
pub(crate) struct Turnover {
    began_us: u64,
    moved: usize,
}

impl Turnover {
    /// From `now_us` on.
    pub(crate) fn new(now_us: u64) -> Turnover {
        Turnover {
            began_us: now_us,
            moved: 0,
        }
    }

    /// When to look at it.
    pub(crate) fn due_us(&self) -> u64 {
        self.began_us + limits::TURNOVER_TIME.as_micros() as u64
    }

    /// So many bytes more came or went.
    pub(crate) fn note(&mut self, bytes: usize) {
        self.moved += bytes;
    }

    /// Was it too little, over a whole second? Begins the next one.
    pub(crate) fn is_slow(&mut self, now_us: u64) -> bool {
        if now_us < self.due_us() {
            return false;
        }
        let took_us = now_us - self.began_us;
        let least = limits::BODY_BYTES_PER_SECOND_MIN as u64 * took_us / 1_000_000;
        let is_slow = (self.moved as u64) < least;
        *self = Turnover::new(now_us);
        is_slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    const MINE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const YOURS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn rooms(bytes: usize) -> Rc<Rooms> {
        Rc::new(Rooms::new(&Arc::new(RoomBudget::new(bytes)), 1))
    }

    #[test]
    fn of_those_in_line_the_source_that_holds_least_is_first() {
        let rooms = rooms(100);
        let (first, _second) = (rooms.offer(MINE, 50), rooms.offer(MINE, 50));
        let seats = [Rc::new(Seat::default()), Rc::new(Seat::default())];
        let mut mine = pin!(rooms.wait(&seats[0], MINE, 50, u64::MAX));
        let mut yours = pin!(rooms.wait(&seats[1], YOURS, 50, u64::MAX));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(mine.as_mut().poll(&mut cx).is_pending());
        assert!(yours.as_mut().poll(&mut cx).is_pending());
        assert!(rooms.is_short());
        drop(first);
        assert!(mine.as_mut().poll(&mut cx).is_pending(), "it came first");
        assert!(yours.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn a_line_is_left_in_time_and_holds_no_more_than_the_gate() {
        let rooms = rooms(100);
        let held = rooms.offer(MINE, 100).expect("there is room");
        let seat = Rc::new(Seat::default());
        let mut cx = Context::from_waker(Waker::noop());
        let mut waits = Box::pin(rooms.wait(&seat, MINE, 80, 5));
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        assert!(!rooms.has_place(30));
        seat.check_deadline(5);
        let Poll::Ready(none) = waits.as_mut().poll(&mut cx) else {
            panic!("its time is over");
        };
        assert!(none.is_none());
        drop(waits);
        assert!(rooms.has_place(30));
        drop(held);
        assert!(rooms.sources.borrow().is_empty());
        assert_eq!(rooms.used(), 0);
    }

    #[test]
    fn room_that_moves_less_than_the_least_rate_for_a_second_is_slow() {
        let mut turnover = Turnover::new(0);
        assert!(!turnover.is_slow(999_999));
        turnover.note(limits::BODY_BYTES_PER_SECOND_MIN - 1);
        assert!(turnover.is_slow(1_000_000));
        turnover.note(limits::BODY_BYTES_PER_SECOND_MIN);
        assert!(!turnover.is_slow(2_000_000));
    }
}
