//! The watches of one loop: where their connections wait for events, and the hub of a node alone.
//!
//! ```text
//! connection ─► enter ─► WatchSeat ◄── told, stop   the hub of a node alone, or the loop's node
//! connection ◄─ take ◄──────┘
//! LoneHub    Hub (crate `watch`), and its questions that wait for changes
//! ```
//!
//! Invariants
//! 1. A seat holds one batch of events: the next one comes when its connection asks for more.
//! 2. Events for a watch that has left are dropped. No number of a watch is used twice.
//!
//! Not here: carrying out the hub's orders (`thread/watches.rs`), bytes of events (crate `wire`).
//! See: docs/watch.md.

use crate::waiting::seat::{LocalBell, Seat};
use bytes::Bytes;
use dendra_watch::{
    FeedId, FeedQuestion, From, Hub, QuestionId, Span, WatchEvent, WatchId, WatchToken,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A node alone, among the members of which it is the only one.
pub(crate) const LONE_FEED: FeedId = FeedId(0);

/// What a watch is of, and where it begins.
#[derive(Debug)]
pub(crate) struct WatchTerms {
    pub(crate) span: Span,
    pub(crate) from: From,
    pub(crate) heartbeat_us: u64,
}

/// Events for a client, in their order.
#[derive(Debug)]
pub(crate) struct ToldEvents {
    pub(crate) events: Vec<WatchEvent>,
    /// Behind all of them; `None` while the state is not told to its end.
    pub(crate) token: Option<WatchToken>,
    /// The watch is closed.
    pub(crate) is_over: bool,
}

/// What comes to a watch.
#[derive(Debug)]
pub(crate) enum WatchNews {
    /// Events.
    Events(ToldEvents),
    /// A part of the range cannot be read from the disk: no state can be told.
    Damaged,
}

/// Where the connection of a watch waits for its events.
#[derive(Debug)]
pub(crate) struct WatchSeat {
    seat: Rc<Seat>,
    news: RefCell<Option<WatchNews>>,
}

impl WatchSeat {
    /// What has come since the last call.
    pub(crate) fn take(&self) -> Option<WatchNews> {
        self.news.borrow_mut().take()
    }
}

/// A read for watches.
#[derive(Clone, Debug)]
pub(crate) enum WatchRead {
    /// A key.
    Look(Bytes),
    /// A part of a range, for a watch.
    Page(WatchId, QuestionId),
}

/// A question of the hub that waits for changes.
#[derive(Debug)]
pub(super) struct ParkedQuestion {
    pub(super) source: FeedId,
    pub(super) id: QuestionId,
    pub(super) question: FeedQuestion,
    /// Then it is answered without any.
    pub(super) until_us: u64,
}

/// The watches of a node alone.
#[derive(Debug, Default)]
pub(super) struct LoneHub {
    /// Made with the first watch.
    pub(super) hub: Option<Hub>,
    pub(super) parked: Vec<ParkedQuestion>,
    /// When the task of watches looks at the clock; `None` = there is no such task.
    pub(super) ticks_us: Option<u64>,
}

impl LoneHub {
    /// When something is to be done without news; `None` = there is no watch.
    pub(super) fn due_us(&self) -> Option<u64> {
        let hub_us = self.hub.as_ref()?.due_us()?;
        let parked = self.parked.iter().map(|parked| parked.until_us);
        Some(parked.fold(hub_us, u64::min))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LoopWatches {
    seats: RefCell<BTreeMap<WatchId, Rc<WatchSeat>>>,
    last: Cell<WatchId>,
    pub(super) lone: RefCell<LoneHub>,
    /// Rung when `LoneHub::due_us` is sooner than before.
    pub(super) sooner: LocalBell,
}

impl LoopWatches {
    /// A new watch, with a place for its events.
    pub(crate) fn enter(&self, seat: &Rc<Seat>) -> (WatchId, Rc<WatchSeat>) {
        let id = self.last.get() + 1;
        self.last.set(id);
        let watch_seat = Rc::new(WatchSeat {
            seat: Rc::clone(seat),
            news: RefCell::default(),
        });
        self.seats.borrow_mut().insert(id, Rc::clone(&watch_seat));
        (id, watch_seat)
    }

    /// The connection of this watch waits for no more events.
    pub(crate) fn leave(&self, id: WatchId) {
        self.seats.borrow_mut().remove(&id);
    }

    /// Events for a watch, as it asked for more.
    pub(crate) fn told(
        &self,
        id: WatchId,
        events: Vec<WatchEvent>,
        token: Option<WatchToken>,
        is_over: bool,
    ) {
        self.give(
            id,
            WatchNews::Events(ToldEvents {
                events,
                token,
                is_over,
            }),
        );
    }

    /// A watch cannot go on: a part of its range is damaged.
    pub(crate) fn stop(&self, id: WatchId) {
        self.give(id, WatchNews::Damaged);
    }

    fn give(&self, id: WatchId, news: WatchNews) {
        if let Some(watch) = self.seats.borrow().get(&id) {
            watch.news.replace(Some(news));
            watch.seat.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_to_the_watch_that_they_are_for_while_it_is_there() {
        let (watches, seat) = (LoopWatches::default(), Rc::new(Seat::default()));
        let (first, first_seat) = watches.enter(&seat);
        let (second, second_seat) = watches.enter(&seat);
        watches.told(first, vec![WatchEvent::Live], None, false);
        assert!(second_seat.take().is_none());
        let news = first_seat.take();
        assert!(matches!(news, Some(WatchNews::Events(told)) if told.events.len() == 1));
        assert!(first_seat.take().is_none());
        watches.leave(second);
        watches.stop(second);
        assert!(second_seat.take().is_none());
        assert!(watches.enter(&seat).0 > second);
    }
}
