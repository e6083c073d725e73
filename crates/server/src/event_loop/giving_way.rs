//! Reads that give way: of connections that have not shown yet that whole requests come from them.
//!
//! ```text
//! connection  new, or its last read was a small part of a head or a body
//!               bytes are there ─► join ─► [ a queue for each source ] ─► porter: CALLS_A_TURN of them,
//! a session     its first bytes are there ─► join_handshake ─► [ the same ] ──►   HANDSHAKES_A_TURN,
//! any           its client has gone, or sends behind its last answer ─► join_end ─► [ the same ]: CALLS_A_TURN
//! any other     bytes are there ─► read                                  ╲─► a look at the sockets ─► …
//! ```
//!
//! Ten thousand new connections send their first requests together, and ten thousand slow ones a
//! byte each. In the order of the sockets a request of a connection that works would wait for all
//! of them. It waits for one piece. Of those that wait the sources take turns, and within a source
//! the first comes first.
//!
//! Invariants
//! 1. Each turn of the loop takes some, so they go on however much else there is.
//! 2. A place is called once, unless its connection leaves. There is one for each connection at
//!    most, and those that were left.
//! 3. A source that waits is called before any other one is called twice.
//! 4. The longest wait counts as delay of the loop (`delay.rs`): waiting reads are not hidden. Ends
//!    have time: they are no delay, and however long they wait, a turn takes no more of them.
//!
//! Not here: the order when the delay stands (`delay.rs`), which connections give way
//! (`exchange/socket.rs`, `clients/doorway.rs`). See: docs/overload.md, "When the processor is what
//! runs out".

use crate::clock;
use crate::limits;
use crate::waiting::seat::{LocalBell, Seat};
use dendra_node::standing::AddressGroup;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Poll;

/// The source whose connections share turns with that of a client at `address`.
pub(crate) fn source_of(address: IpAddr) -> AddressGroup {
    match address {
        IpAddr::V4(addr) => AddressGroup::of_v4(addr.to_bits()),
        IpAddr::V6(addr) => AddressGroup::of_v6(addr.to_bits()),
    }
}

/// Tasks of one loop that give way.
#[derive(Default)]
pub(crate) struct GivingWay {
    waiting: RefCell<WayQueues>,
    /// TLS handshakes that have not begun.
    handshakes: RefCell<WayQueues>,
    /// Ends of clients that have gone, or whose last answer is sent.
    ends: RefCell<WayQueues>,
    porter: LocalBell,
}

/// Queues of one kind of tasks.
#[derive(Default)]
struct WayQueues {
    /// Tasks of each source that waits. None is empty.
    sources: HashMap<AddressGroup, VecDeque<Rc<WayTurn>>>,
    /// The sources that wait, the next one to be called first.
    turns: VecDeque<AddressGroup>,
    /// All of them by their number, the oldest first.
    ages: BTreeMap<u64, Rc<WayTurn>>,
    next_number: u64,
}

/// One that waits.
struct WayTurn {
    seat: Rc<Seat>,
    number: u64,
    came_us: u64,
    is_over: Cell<bool>,
}

/// A place among them, left when dropped.
pub(crate) struct WayPlace(Rc<WayTurn>);

impl WayPlace {
    /// Is it its turn?
    pub(crate) fn is_called(&self) -> bool {
        self.0.is_over.get()
    }

    /// Waits until it is. Requires: the task is registered at the seat of the place.
    pub(crate) async fn called(&self) {
        poll_fn(|_| {
            if self.is_called() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

impl Drop for WayPlace {
    fn drop(&mut self) {
        self.0.is_over.set(true);
    }
}

impl WayQueues {
    fn push(&mut self, seat: &Rc<Seat>, source: AddressGroup, now_us: u64) -> WayPlace {
        let turn = Rc::new(WayTurn {
            seat: Rc::clone(seat),
            number: self.next_number,
            came_us: now_us,
            is_over: Cell::new(false),
        });
        self.next_number += 1;
        let queue = self.sources.entry(source).or_default();
        if queue.is_empty() {
            self.turns.push_back(source);
        }
        queue.push_back(Rc::clone(&turn));
        self.ages.insert(turn.number, Rc::clone(&turn));
        WayPlace(turn)
    }

    /// The next one that did not leave. Its source comes behind the others then.
    fn pop(&mut self) -> Option<Rc<WayTurn>> {
        while let Some(source) = self.turns.pop_front() {
            let queue = self.sources.get_mut(&source).expect("none is empty");
            let mut next = None;
            while next.is_none()
                && let Some(turn) = queue.pop_front()
            {
                self.ages.remove(&turn.number);
                next = (!turn.is_over.get()).then_some(turn);
            }
            if queue.is_empty() {
                self.sources.remove(&source);
            } else {
                self.turns.push_back(source);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }

    fn call(&mut self, most: usize) {
        for _ in 0..most {
            let Some(turn) = self.pop() else { return };
            turn.is_over.set(true);
            turn.seat.wake();
        }
    }

    /// How long the oldest has waited.
    fn waited_us(&mut self, now_us: u64) -> u64 {
        while let Some(oldest) = self.ages.first_entry() {
            if !oldest.get().is_over.get() {
                return now_us.saturating_sub(oldest.get().came_us);
            }
            oldest.remove();
        }
        0
    }

    /// How many of them are called next: `few`, or `late` of them where turns of the loop are long.
    fn calls(&mut self, now_us: u64, few: usize, late: usize) -> usize {
        if self.waited_us(now_us) > limits::WAY_WAIT_US {
            late
        } else {
            few
        }
    }
}

impl GivingWay {
    /// Bytes of the connection in `seat`, from `source`, are there.
    pub(crate) fn join(&self, seat: &Rc<Seat>, source: IpAddr, now_us: u64) -> WayPlace {
        self.join_in(&self.waiting, seat, source, now_us)
    }

    /// The first bytes of a TLS handshake are there.
    pub(crate) fn join_handshake(&self, seat: &Rc<Seat>, source: IpAddr, now_us: u64) -> WayPlace {
        self.join_in(&self.handshakes, seat, source, now_us)
    }

    /// The client of the connection in `seat` has gone, or sends behind its last answer.
    pub(crate) fn join_end(&self, seat: &Rc<Seat>, source: IpAddr, now_us: u64) -> WayPlace {
        self.join_in(&self.ends, seat, source, now_us)
    }

    fn join_in(
        &self,
        queues: &RefCell<WayQueues>,
        seat: &Rc<Seat>,
        source: IpAddr,
        now_us: u64,
    ) -> WayPlace {
        let place = queues.borrow_mut().push(seat, source_of(source), now_us);
        self.porter.ring();
        place
    }

    /// How long the one has waited that has waited longest.
    pub(crate) fn waited_us(&self, now_us: u64) -> u64 {
        let waited_us = self.waiting.borrow_mut().waited_us(now_us);
        waited_us.max(self.handshakes.borrow_mut().waited_us(now_us))
    }

    /// Calls all reads: from now on they stand in the loop's line. Handshakes do not.
    pub(crate) fn call_all(&self) {
        self.waiting.borrow_mut().call(usize::MAX);
    }

    fn call_some(&self, now_us: u64) {
        for (queues, few, late) in [
            (
                &self.waiting,
                limits::CALLS_A_TURN,
                limits::CALLS_A_TURN_LATE,
            ),
            (
                &self.handshakes,
                limits::HANDSHAKES_A_TURN,
                limits::HANDSHAKES_A_TURN_LATE,
            ),
        ] {
            let mut queues = queues.borrow_mut();
            let calls = queues.calls(now_us, few, late);
            queues.call(calls);
        }
        self.ends.borrow_mut().call(limits::CALLS_A_TURN);
    }

    fn is_empty(&self) -> bool {
        let all = [&self.waiting, &self.handshakes, &self.ends];
        all.iter().all(|queues| queues.borrow().turns.is_empty())
    }
}

/// Calls a few at a time; behind each piece the loop looks at its sockets.
pub(crate) async fn porter(waiting: Rc<GivingWay>) {
    loop {
        waiting.porter.rung().await;
        while !waiting.is_empty() {
            waiting.call_some(clock::monotonic_us());
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn each_is_called_once_in_order_and_one_that_left_takes_no_turn() {
        let waiting = GivingWay::default();
        let seat = Rc::new(Seat::default());
        let mut places: Vec<_> = (0..4).map(|n| waiting.join(&seat, ONE, n)).collect();
        assert_eq!(waiting.waited_us(10), 10);
        drop(places.remove(1));
        waiting.waiting.borrow_mut().call(2);
        let called: Vec<_> = places.iter().map(WayPlace::is_called).collect();
        assert_eq!(called, [true, true, false]);
        assert_eq!(waiting.waited_us(10), 7);
        let calls = |now_us| waiting.waiting.borrow_mut().calls(now_us, 4, 32);
        assert_eq!(calls(3), 4);
        assert_eq!(calls(4 + limits::WAY_WAIT_US), 32);
        waiting.call_all();
        assert!(places[2].is_called() && waiting.is_empty());
        assert_eq!(waiting.waited_us(10), 0);
    }

    #[test]
    fn sources_take_turns_and_what_left_is_no_delay() {
        let waiting = GivingWay::default();
        let seat = Rc::new(Seat::default());
        let mut crowd: Vec<_> = (0..1_000).map(|_| waiting.join(&seat, ONE, 0)).collect();
        let others: Vec<_> = (1..3).map(|at| waiting.join(&seat, TWO, at)).collect();
        waiting.call_some(3);
        assert!(others.iter().all(WayPlace::is_called), "not behind a crowd");
        let called = crowd.iter().filter(|place| place.is_called()).count();
        assert_eq!(called, limits::CALLS_A_TURN - others.len());
        crowd.clear();
        let last = waiting.join(&seat, ONE, 5);
        assert_eq!(waiting.waited_us(9), 4);
        waiting.call_some(9);
        assert!(last.is_called() && waiting.is_empty());
        assert!(waiting.waiting.borrow().ages.is_empty());
    }

    #[test]
    fn a_turn_takes_one_handshake_and_a_few_of_those_that_wait_for_long() {
        let waiting = GivingWay::default();
        let seat = Rc::new(Seat::default());
        let join = |_| waiting.join_handshake(&seat, ONE, 0);
        let crowd: Vec<_> = (0..100).map(join).collect();
        let called = || crowd.iter().filter(|place| place.is_called()).count();
        waiting.call_some(1);
        assert_eq!(called(), limits::HANDSHAKES_A_TURN);
        waiting.call_all();
        assert_eq!(called(), limits::HANDSHAKES_A_TURN, "they stand in no line");
        let late_us = limits::WAY_WAIT_US + 1;
        assert_eq!(waiting.waited_us(late_us), late_us, "it is delay");
        waiting.call_some(late_us);
        let both = limits::HANDSHAKES_A_TURN + limits::HANDSHAKES_A_TURN_LATE;
        assert_eq!(called(), both);
    }

    #[test]
    fn ends_are_no_delay_and_a_turn_takes_few_however_long_they_wait() {
        let waiting = GivingWay::default();
        let seat = Rc::new(Seat::default());
        let ends: Vec<_> = (0..100).map(|_| waiting.join_end(&seat, ONE, 0)).collect();
        let first = waiting.join(&seat, ONE, 50_000);
        let now_us = 50_000 + limits::WAY_WAIT_US;
        assert_eq!(waiting.waited_us(now_us), limits::WAY_WAIT_US);
        waiting.call_some(now_us);
        assert!(first.is_called());
        let called = ends.iter().filter(|end| end.is_called()).count();
        assert_eq!(called, limits::CALLS_A_TURN);
        waiting.call_all();
        assert!(!waiting.is_empty(), "they stand in no line");
        (0..100).for_each(|_| waiting.call_some(now_us));
        assert!(waiting.is_empty());
    }
}
