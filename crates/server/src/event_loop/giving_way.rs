//! Reads that give way: of connections that have not shown yet that whole requests come from them.
//!
//! ```text
//! connection  new, or its last read was a small part of a head or a body
//!               bytes are there ─► join ─► [ first in, first out ] ─► porter: CALLS_A_TURN of them
//! any other     bytes are there ─► read                               ╲─► a look at the sockets ─► …
//! ```
//!
//! Ten thousand new connections send their first requests together, and ten thousand slow ones a byte each. In the
//! order of the sockets a request of a connection that works would wait for all of them. It waits for one piece.
//!
//! Invariants
//! 1. Each turn of the loop takes some, so they go on however much else there is.
//! 2. A place is called once, unless its connection leaves. There is one for each connection at most, and those that
//!    were left.
//! 3. The first one's wait counts as delay of the loop (`delay.rs`): waiting reads are not hidden.
//!
//! Not here: the order when the delay stands (`delay.rs`), which connections give way (`clients/socket.rs`).
//! See: docs/overload.md, "When the processor is what runs out".

use crate::clients::seat::{LocalBell, Seat};
use crate::event_loop::clock;
use crate::limits;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Those of one loop.
#[derive(Default)]
pub(crate) struct GivingWay {
    waiting: RefCell<VecDeque<Rc<WayTurn>>>,
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
        let turn = Rc::new(WayTurn {
            seat: Rc::clone(seat),
            came_us: now_us,
            is_over: Cell::new(false),
        });
        self.waiting.borrow_mut().push_back(Rc::clone(&turn));
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
        self.call(usize::MAX);
    }

    fn call(&self, most: usize) {
        let mut left = most;
        while left > 0 {
            let Some(turn) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            if !turn.is_over.replace(true) {
                turn.seat.wake();
                left -= 1;
            }
        }
    }

    /// How many are called next. Where turns of the loop are long a few of them would take too long.
    fn calls(&self, now_us: u64) -> usize {
        match self.waited_us(now_us) > limits::WAY_WAIT_US {
            true => limits::CALLS_A_TURN_LATE,
            false => limits::CALLS_A_TURN,
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }
}

/// Calls a few at a time; behind each piece the loop looks at its sockets.
pub(crate) async fn porter(waiting: Rc<GivingWay>) {
    loop {
        waiting.porter.rung().await;
        while !waiting.is_empty() {
            waiting.call(waiting.calls(clock::monotonic_us()));
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
        waiting.call(2);
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
}
