//! Reads that give way: of connections that have not shown yet that whole requests come from them.
//!
//! ```text
//! connection  new, or its last read was a small part of a head or a body
//!               bytes are there ─► join ─► [ first in, first out ] ─► porter: CALLS_A_TURN of them
//! any           its client has gone ─► join_end ─► [ the same ] ───────►         and as many of these
//! any other     bytes are there ─► read                               ╲─► a look at the sockets ─► …
//! ```
//!
//! Ten thousand new connections send their first requests together, and ten thousand slow ones a
//! byte each. In the order of the sockets a request of a connection that works would wait for all
//! of them. It waits for one piece.
//!
//! Invariants
//! 1. Each turn of the loop takes some, so they go on however much else there is.
//! 2. A place is called once, unless its connection leaves. There is one for each connection at
//!    most, and those that were left.
//! 3. The first one's wait counts as delay of the loop (`delay.rs`): waiting reads are not hidden.
//!    Ends have time: they are no delay, and however long they wait, a turn takes no more of them.
//!
//! Not here: the order when the delay stands (`delay.rs`), which connections give way
//! (`clients/socket.rs`). See: docs/overload.md, "When the processor is what runs out".

use crate::clients::seat::{LocalBell, Seat};
use crate::event_loop::clock;
use crate::limits;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

type Turns = RefCell<VecDeque<Rc<WayTurn>>>;

/// Those of one loop.
#[derive(Default)]
pub(crate) struct GivingWay {
    waiting: Turns,
    /// Of clients that have gone.
    ends: Turns,
    porter: LocalBell,
}

/// One that waits.
struct WayTurn {
    seat: Rc<Seat>,
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
}

impl Drop for WayPlace {
    fn drop(&mut self) {
        self.0.is_over.set(true);
    }
}

impl GivingWay {
    /// Bytes of the connection in `seat` are there.
    pub(crate) fn join(&self, seat: &Rc<Seat>, now_us: u64) -> WayPlace {
        self.join_in(&self.waiting, seat, now_us)
    }

    /// The client of the connection in `seat` has gone.
    pub(crate) fn join_end(&self, seat: &Rc<Seat>, now_us: u64) -> WayPlace {
        self.join_in(&self.ends, seat, now_us)
    }

    fn join_in(&self, turns: &Turns, seat: &Rc<Seat>, now_us: u64) -> WayPlace {
        let turn = Rc::new(WayTurn {
            seat: Rc::clone(seat),
            came_us: now_us,
            is_over: Cell::new(false),
        });
        turns.borrow_mut().push_back(Rc::clone(&turn));
        self.porter.ring();
        WayPlace(turn)
    }

    /// How long the first one has waited.
    pub(crate) fn waited_us(&self, now_us: u64) -> u64 {
        let waiting = self.waiting.borrow();
        let first = waiting.front();
        first.map_or(0, |turn| now_us.saturating_sub(turn.came_us))
    }

    /// Calls all of them: from now on they stand in the loop's line.
    pub(crate) fn call_all(&self) {
        call(&self.waiting, usize::MAX);
    }

    fn call_some(&self, now_us: u64) {
        call(&self.waiting, self.calls(now_us));
        call(&self.ends, limits::CALLS_A_TURN);
    }

    /// How many are called next. Where turns of the loop are long a few of them would take too
    /// long.
    fn calls(&self, now_us: u64) -> usize {
        if self.waited_us(now_us) > limits::WAY_WAIT_US {
            limits::CALLS_A_TURN_LATE
        } else {
            limits::CALLS_A_TURN
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty() && self.ends.borrow().is_empty()
    }
}

fn call(turns: &Turns, most: usize) {
    let mut left = most;
    while left > 0 {
        let Some(turn) = turns.borrow_mut().pop_front() else {
            return;
        };
        if !turn.is_over.replace(true) {
            turn.seat.wake();
            left -= 1;
        }
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

    #[test]
    fn each_is_called_once_in_order_and_one_that_left_takes_no_turn() {
        let waiting = GivingWay::default();
        let seat = Rc::new(Seat::default());
        let mut places: Vec<_> = (0..4).map(|n| waiting.join(&seat, n)).collect();
        assert_eq!(waiting.waited_us(10), 10);
        drop(places.remove(1));
        call(&waiting.waiting, 2);
        let called: Vec<_> = places.iter().map(WayPlace::is_called).collect();
        assert_eq!(called, [true, true, false]);
        assert_eq!(waiting.waited_us(10), 7);
        assert_eq!(waiting.calls(3), limits::CALLS_A_TURN);
        let late_us = 4 + limits::WAY_WAIT_US;
        assert_eq!(waiting.calls(late_us), limits::CALLS_A_TURN_LATE);
        waiting.call_all();
        assert!(places[2].is_called() && waiting.is_empty());
        assert_eq!(waiting.waited_us(10), 0);
    }
    #[test]
    fn ends_are_no_delay_and_a_turn_takes_few_however_long_they_wait() {
        let waiting = GivingWay::default();
        let seat = Rc::new(Seat::default());
        let ends: Vec<_> = (0..100).map(|_| waiting.join_end(&seat, 0)).collect();
        let first = waiting.join(&seat, 50_000);
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
