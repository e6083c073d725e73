//! The next happening: a queue of happenings by time, and by the order of their making.
//!
//! Invariants
//! 1. Two happenings of one moment come in the order in which they were put in: no run depends on
//!    an address or a hash.
//!
//! Not here: the effects of a happening (`world/`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Happenings to come.
#[derive(Debug)]
pub struct Schedule<T> {
    /// Time, number of its making, and place in `events`: a heap moves its entries a lot.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<T>>,
    /// Places without an event.
    free: Vec<usize>,
    number: u64,
    now_us: u64,
}

impl<T> Default for Schedule<T> {
    fn default() -> Schedule<T> {
        Schedule {
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            number: 0,
            now_us: 0,
        }
    }
}

impl<T> Schedule<T> {
    /// The time of the happening that was taken last.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Puts the happening in, not earlier than now.
    pub fn at(&mut self, at_us: u64, what: T) {
        let place = self.free.pop().unwrap_or(self.events.len());
        if place == self.events.len() {
            self.events.push(None);
        }
        self.events[place] = Some(what);
        let entry = (at_us.max(self.now_us), self.number, place);
        self.number += 1;
        self.heap.push(Reverse(entry));
    }

    /// Puts the happening in, so much later than now.
    pub fn after(&mut self, delay_us: u64, what: T) {
        self.at(self.now_us + delay_us, what);
    }

    /// Takes the next happening, and it is its time now.
    pub fn take(&mut self) -> Option<T> {
        let Reverse((at_us, _, place)) = self.heap.pop()?;
        self.now_us = at_us.max(self.now_us);
        self.free.push(place);
        self.events[place].take()
    }

    /// Time goes on and no event happens: all that is due meanwhile comes late, at the new time.
    pub fn skip(&mut self, by_us: u64) {
        self.now_us += by_us;
    }

    /// How many happenings were put in so far.
    pub fn count(&self) -> u64 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_and_then_the_order_of_making() {
        let mut schedule = Schedule::default();
        schedule.at(5, "c");
        schedule.at(1, "a");
        schedule.at(5, "d");
        schedule.at(2, "b");
        let order: Vec<&str> = std::iter::from_fn(|| schedule.take()).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
        schedule.at(1, "late");
        schedule.take();
        assert_eq!(schedule.now_us(), 5, "time never goes back");
        schedule.after(1, "due in the skip");
        schedule.after(20, "behind it");
        schedule.skip(10);
        let taken = [(); 2].map(|()| (schedule.take(), schedule.now_us()));
        assert_eq!(
            taken,
            [(Some("due in the skip"), 15), (Some("behind it"), 25)]
        );
    }
}
