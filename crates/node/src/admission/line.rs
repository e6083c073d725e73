//! Writes that wait for the log or the engine: as many bytes of small ones as of large ones.
//!
//! ```text
//! write ─► class by its size, 4 times as large each ─► tag = max(clock, last tag of the class) + bytes ─► join
//! next ─► the smallest tag; the clock goes to the tag of each write that goes
//!
//! room     Open       the smallest tag
//!          Reserve    the smallest tag, but a large write only in turn with small ones
//!          Stopped    none
//! ```
//!
//! Self-clocked fair queueing: in the order of their arrival 64 writes of a MB were 64 MB in front
//! of each small one. The reserve is the room that the engine has left just before it stops. Large
//! writes leave it to the others, so that a flush of their bytes does not hold up writes of a
//! kilobyte.
//!
//! Invariants
//! 1. Between two waiting writes of a class, each other class gets at most the bytes of the later
//!    one, and one write more.
//! 2. A class that had nothing in line has saved nothing up.
//! 3. In the reserve a large write goes only in turn with small ones that wait behind it. Each
//!    flush opens the room for all, so none waits for ever.
//! 4. The line holds one entry for each write that waits, and twenty numbers.
//!
//! Not here: when a write has to wait, and for how long at most (the server's loops); which write
//! is large (`sizes.rs`). See: docs/overload.md, "Pressure of the engine".

use crate::limits::{DELAY_WRITE_BYTES_MIN, RESERVE_SHARE};
use dendra_base::{Pressure, Stop};
use std::collections::BTreeMap;

/// Classes of sizes: up to 4 KiB, then each up to four times as much, the last one for all above 1
/// MiB.
const CLASSES: usize = 6;
/// The first class ends at two to the power of this.
const CLASS_BITS_MIN: u32 = 12;

/// The engine's room for writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRoom {
    /// For all.
    Open,
    /// The engine comes near its stop: the rest is for writes that are not large.
    Reserve,
    /// For none: flushes or compactions are behind.
    Stopped,
}

impl WriteRoom {
    /// Under this pressure. A full disk is no matter of waiting. Level 0 that is behind has no
    /// reserve: a merge takes seconds, a flush a fraction of one.
    pub fn of(pressure: Pressure) -> WriteRoom {
        if pressure.stop.is_some_and(Stop::is_behind) {
            WriteRoom::Stopped
        } else if pressure.memory >= RESERVE_SHARE {
            WriteRoom::Reserve
        } else {
            WriteRoom::Open
        }
    }
}

/// Has the batch of the loop a write already? One more small write in it is no new one in front of
/// the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchState {
    /// The batch has a write.
    Begun,
    /// The batch is empty.
    Empty,
}

/// The size of a write as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSize {
    /// Bytes of the value.
    pub bytes: u64,
    /// Is it large beside the writes of the last time (`WriteSizes::is_large`)?
    pub is_large: bool,
}

/// A write's place in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WritePlace {
    tag: u64,
    number: u64,
}

#[derive(Debug)]
struct Entry<T> {
    size: WriteSize,
    write: T,
}

/// The writes of one event loop that wait: those of clients, or the orders of members.
#[derive(Debug)]
pub struct WriteLine<T> {
    waiting: BTreeMap<WritePlace, Entry<T>>,
    /// The tag of the write that went last.
    clock: u64,
    /// By class: the last tag that was given, and how many wait.
    classes: [(u64, usize); CLASSES],
    /// How many that wait are not large.
    small: usize,
    next_number: u64,
}

impl<T> Default for WriteLine<T> {
    fn default() -> WriteLine<T> {
        WriteLine {
            waiting: BTreeMap::new(),
            clock: 0,
            classes: [(0, 0); CLASSES],
            small: 0,
            next_number: 0,
        }
    }
}

impl<T> WriteLine<T> {
    /// Does none wait?
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A write waits from now on.
    pub fn join(&mut self, size: WriteSize, write: T) -> WritePlace {
        let place = WritePlace {
            tag: self.tag(size),
            number: self.next_number,
        };
        self.next_number += 1;
        let (last, count) = &mut self.classes[class(size)];
        (*last, *count) = (place.tag, *count + 1);
        self.small += usize::from(!size.is_large);
        self.waiting.insert(place, Entry { size, write });
        place
    }

    /// The write that goes next, if one may go at all.
    pub fn next(&self, room: WriteRoom) -> Option<(WritePlace, &T)> {
        let (place, first) = self.waiting.first_key_value()?;
        let may_go = match room {
            WriteRoom::Open => true,
            WriteRoom::Reserve => !first.size.is_large || self.small > 0,
            WriteRoom::Stopped => false,
        };
        may_go.then_some((*place, &first.write))
    }

    /// The writes that wait, in the order in which they would go.
    pub fn iter(&self) -> impl Iterator<Item = (WritePlace, &T)> {
        let waiting = self.waiting.iter();
        waiting.map(|(place, entry)| (*place, &entry.write))
    }

    /// The write at `place` goes. `None` when it has left.
    pub fn go(&mut self, place: WritePlace) -> Option<T> {
        let write = self.leave(place)?;
        if !self.waiting.is_empty() {
            self.clock = self.clock.max(place.tag);
        }
        Some(write)
    }

    /// The write at `place` leaves; it went, or does not wait any more.
    pub fn leave(&mut self, place: WritePlace) -> Option<T> {
        let Entry { size, write } = self.waiting.remove(&place)?;
        let (last, count) = &mut self.classes[class(size)];
        *count -= 1;
        if *count == 0 {
            // Those that left without going are no debt of later ones.
            *last = 0;
        }
        self.small -= usize::from(!size.is_large);
        self.forget_if_empty();
        Some(write)
    }

    /// May a write that comes now go without waiting? If it does, [`passed`](WriteLine::passed)
    /// follows.
    pub fn may_pass(&self, size: WriteSize, room: WriteRoom, batch: BatchState) -> bool {
        if size.is_large {
            self.waiting.is_empty() && room == WriteRoom::Open
        } else {
            batch == BatchState::Begun || self.is_first(size, room)
        }
    }

    /// Does a large write that waits leave the reserve to one that comes now? Then the reserve
    /// bounds that one, and it needs no delay. Where all are of one size none leaves it, and all
    /// have one.
    pub fn leaves_room(&self, size: WriteSize, room: WriteRoom) -> bool {
        room == WriteRoom::Reserve && !size.is_large && self.small < self.waiting.len()
    }

    /// A write went without waiting: it counts as if it had waited.
    pub fn passed(&mut self, size: WriteSize) {
        let Some((first, _)) = self.waiting.first_key_value() else {
            return;
        };
        let tag = self.tag(size);
        // The turn of the first one that waits does not pass.
        self.clock = self.clock.max(tag.min(first.tag));
        self.classes[class(size)].0 = tag;
    }

    fn is_first(&self, size: WriteSize, room: WriteRoom) -> bool {
        match self.waiting.first_key_value() {
            Some((first, _)) => room != WriteRoom::Stopped && self.tag(size) < first.tag,
            None => true,
        }
    }

    fn tag(&self, size: WriteSize) -> u64 {
        self.clock.max(self.classes[class(size)].0) + counted(size)
    }

    fn forget_if_empty(&mut self) {
        if self.waiting.is_empty() {
            self.clock = 0;
            self.classes = [(0, 0); CLASSES];
        }
    }
}

/// A record of few bytes has a key, a version and a place in the log all the same.
fn counted(size: WriteSize) -> u64 {
    size.bytes.max(DELAY_WRITE_BYTES_MIN)
}

fn class(size: WriteSize) -> usize {
    let bits = counted(size).next_power_of_two().ilog2();
    (bits.saturating_sub(CLASS_BITS_MIN).div_ceil(2) as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::Prng;

    const SMALL: WriteSize = WriteSize {
        bytes: 1_000,
        is_large: false,
    };
    const LARGE: WriteSize = WriteSize {
        bytes: 1_000_000,
        is_large: true,
    };

    fn go_next<T: Copy>(line: &mut WriteLine<T>, room: WriteRoom) -> Option<T> {
        let (place, write) = line.next(room).map(|(place, write)| (place, *write))?;
        assert_eq!(line.go(place).map(|_| ()), Some(()));
        Some(write)
    }

    #[test]
    fn a_small_write_waits_for_as_many_bytes_of_large_ones_as_it_has() {
        let mut line = WriteLine::default();
        for n in 0..64 {
            line.join(LARGE, n);
        }
        for n in 100..164 {
            line.join(SMALL, n);
        }
        let order: Vec<_> = std::iter::from_fn(|| go_next(&mut line, WriteRoom::Open)).collect();
        let expected: Vec<_> = (100..164).chain(0..64).collect();
        assert_eq!(order, expected);
        assert!(line.is_empty());
    }

    #[test]
    fn a_large_write_waits_for_its_own_bytes_of_small_ones_however_many_come() {
        let mut line = WriteLine::default();
        line.join(LARGE, true);
        let mut small = 0;
        for _ in 0..10_000 {
            line.join(SMALL, false);
            if go_next(&mut line, WriteRoom::Open) == Some(true) {
                break;
            }
            small += 1;
        }
        assert_eq!(small, 999, "of a thousand bytes each");
        // Those that find the line and may pass count, too.
        let mut line = WriteLine::default();
        line.join(LARGE, true);
        let mut passed = 0;
        while line.may_pass(SMALL, WriteRoom::Reserve, BatchState::Empty) {
            line.passed(SMALL);
            passed += 1;
        }
        assert_eq!(passed, 999);
        line.join(SMALL, false);
        assert_eq!(go_next(&mut line, WriteRoom::Reserve), Some(true));
    }

    #[test]
    fn the_reserve_is_for_small_writes() {
        let mut line = WriteLine::default();
        assert!(!line.may_pass(LARGE, WriteRoom::Reserve, BatchState::Begun));
        assert!(line.may_pass(LARGE, WriteRoom::Open, BatchState::Empty));
        line.join(LARGE, 1);
        line.join(LARGE, 2);
        assert!(
            !line.may_pass(LARGE, WriteRoom::Open, BatchState::Begun),
            "it is their turn"
        );
        assert!(line.may_pass(SMALL, WriteRoom::Reserve, BatchState::Empty));
        assert!(!line.may_pass(SMALL, WriteRoom::Stopped, BatchState::Empty));
        assert_eq!(go_next(&mut line, WriteRoom::Stopped), None);
        assert_eq!(go_next(&mut line, WriteRoom::Reserve), None);
        line.join(SMALL, 3);
        assert_eq!(go_next(&mut line, WriteRoom::Reserve), Some(3));
        assert_eq!(go_next(&mut line, WriteRoom::Reserve), None);
        assert_eq!(go_next(&mut line, WriteRoom::Open), Some(1));
    }

    #[test]
    fn a_large_write_that_joins_a_batch_moves_no_turn_of_those_that_wait() {
        let mut line = WriteLine::default();
        let size = WriteSize {
            is_large: false,
            ..LARGE
        };
        line.join(size, 1);
        line.join(size, 2);
        for _ in 0..8 {
            assert!(line.may_pass(size, WriteRoom::Open, BatchState::Begun));
            line.passed(size);
        }
        assert_eq!(go_next(&mut line, WriteRoom::Open), Some(1));
        line.join(SMALL, 3);
        assert_eq!(go_next(&mut line, WriteRoom::Open), Some(3));
    }

    #[test]
    fn writes_of_one_size_go_in_the_order_in_which_they_came() {
        for size in [SMALL, LARGE, WriteSize { bytes: 0, ..SMALL }] {
            let mut line = WriteLine::default();
            let places: Vec<_> = (0..100).map(|n| line.join(size, n)).collect();
            assert_eq!(line.leave(places[0]), Some(0));
            assert_eq!(line.leave(places[0]), None);
            for n in 1..100 {
                assert_eq!(go_next(&mut line, WriteRoom::Open), Some(n));
            }
        }
    }

    #[test]
    fn large_writes_that_left_are_no_debt_of_a_later_one() {
        let mut line = WriteLine::default();
        let left: Vec<_> = (0..64).map(|_| line.join(LARGE, 0)).collect();
        line.join(SMALL, 1);
        for place in left {
            line.leave(place);
        }
        line.join(LARGE, 2);
        let mut small = 0;
        while go_next(&mut line, WriteRoom::Open) == Some(1) {
            line.join(SMALL, 1);
            small += 1;
        }
        assert_eq!(small, 999);
    }

    #[test]
    fn classes_that_wait_get_equal_bytes_whatever_comes() {
        let mut prng = Prng::new(7);
        for _ in 0..10 {
            let mut line = WriteLine::default();
            let sizes = [200, 9_000, 40_000, 200_000, 900_000, 5_000_000].map(|bytes| WriteSize {
                bytes,
                is_large: prng.below(2) == 0,
            });
            let mut sent = [0; 6];
            for (n, size) in sizes.iter().enumerate() {
                for _ in 0..1 + prng.below(5) {
                    line.join(*size, n);
                }
            }
            while sent.iter().sum::<u64>() < 500_000_000 {
                let n = go_next(&mut line, WriteRoom::Open).expect("one waits always");
                sent[n] += sizes[n].bytes;
                line.join(sizes[n], n);
            }
            let (least, most) = (sent.iter().min(), sent.iter().max());
            let apart = most.zip(least).map(|(most, least)| most - least);
            assert!(apart.is_some_and(|apart| apart <= 10_000_000), "{sent:?}");
        }
    }

    #[test]
    fn a_large_write_that_waits_leaves_the_reserve_to_small_ones() {
        let mut line = WriteLine::default();
        line.join(SMALL, 1);
        assert!(
            !line.leaves_room(SMALL, WriteRoom::Reserve),
            "all are small"
        );
        let place = line.join(LARGE, 2);
        assert!(line.leaves_room(SMALL, WriteRoom::Reserve));
        assert!(
            !line.leaves_room(SMALL, WriteRoom::Open),
            "it waits for none"
        );
        assert!(!line.leaves_room(LARGE, WriteRoom::Reserve));
        line.leave(place);
        assert!(!line.leaves_room(SMALL, WriteRoom::Reserve));
    }

    #[test]
    fn memtables_leave_a_reserve_in_front_of_the_stop() {
        let room = |memory, stop| {
            WriteRoom::of(Pressure {
                level: 1.0,
                memory,
                stop,
            })
        };
        assert_eq!(room(0.0, None), WriteRoom::Open);
        assert_eq!(room(RESERVE_SHARE, None), WriteRoom::Reserve);
        assert_eq!(room(1.0, Some(Stop::MemtablesFull)), WriteRoom::Stopped);
        assert_eq!(room(0.0, Some(Stop::CompactionBehind)), WriteRoom::Stopped);
        assert_eq!(room(0.0, Some(Stop::DiskFull)), WriteRoom::Open);
    }
}
