//! The memory of a made-up engine: what its pressure follows from.
//!
//! ```text
//! committed bytes ─► active ── a third of the room ─► sealed ── one flush at a time ─► room again
//! ```
//!
//! Invariants
//! 1. Bytes that were added are there until their flush is over.
//!
//! Not here: the real engine's memtables and its level 0 (crate `engine`).

use dendra_base::{Pressure, Stop};
use std::collections::VecDeque;

/// The memtables are as many as the engine's.
const MEMTABLES: u64 = 3;

/// Memtables of one member.
#[derive(Debug)]
pub(crate) struct Memtables {
    room: u64,
    active: u64,
    sealed: VecDeque<u64>,
    /// Bytes of the first sealed one that its flush has not written yet.
    left: Option<u64>,
}

impl Memtables {
    /// Empty ones with `room` bytes in all.
    pub(crate) fn new(room: u64) -> Memtables {
        Memtables {
            room,
            active: 0,
            sealed: VecDeque::new(),
            left: None,
        }
    }

    /// Bytes became durable.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.active += bytes;
        if self.active >= self.room / MEMTABLES {
            self.sealed.push_back(std::mem::take(&mut self.active));
        }
    }

    /// Does a flush begin now? One is due, and none goes on.
    pub(crate) fn begins_flush(&mut self) -> bool {
        let first = self.sealed.front().copied();
        let begins = self.left.is_none() && first.is_some();
        self.left = self.left.or(first);
        begins
    }

    /// A slice of the flush is written. Is the flush over?
    pub(crate) fn flush(&mut self, bytes: u64) -> bool {
        self.left = self.left.map(|left| left.saturating_sub(bytes));
        let is_over = self.left == Some(0);
        if is_over {
            self.left = None;
            self.sealed.pop_front();
        }
        is_over
    }

    /// Bytes that are in memory.
    pub(crate) fn used(&self) -> u64 {
        self.active + self.sealed.iter().sum::<u64>()
    }

    /// The pressure with so many bytes on their way.
    pub(crate) fn pressure(&self, on_their_way: u64) -> Pressure {
        let memory = (self.used() + on_their_way) as f64 / self.room as f64;
        let third = 1.0 / MEMTABLES as f64;
        Pressure {
            // One memtable is in use all the time.
            level: ((memory - third) / (1.0 - third)).clamp(0.0, 1.0),
            memory,
            stop: (memory >= 1.0).then_some(Stop::MemtablesFull),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_fills_stops_and_comes_back_by_thirds() {
        let mut tables = Memtables::new(300);
        assert_eq!(tables.pressure(0).level, 0.0);
        for _ in 0..3 {
            tables.add(100);
        }
        assert_eq!(tables.pressure(0).stop, Some(Stop::MemtablesFull));
        assert!(tables.begins_flush());
        assert!(!tables.begins_flush(), "one at a time");
        assert!(!tables.flush(60));
        assert_eq!(tables.used(), 300, "all of it at once");
        assert!(tables.flush(60));
        assert_eq!(tables.used(), 200);
        assert_eq!(tables.pressure(0).stop, None);
        assert!(tables.pressure(99).level > 0.9, "on their way");
    }
}
