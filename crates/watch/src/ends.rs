//! When the values of a watch's range end.
//!
//! ```text
//! told ──────── from ─────────────── until ─────────►   wall clock, and keys of one millisecond
//!               └ in `next`, at most ENDS_BYTES ┘ found by another pass
//! ```
//!
//! Invariants
//! 1. All ends from `from` up to `until` that the watch was told of are in `next`.
//! 2. Each pass for ends keeps later ones than the pass before, also where many values end in one
//!    millisecond.
//!
//! Not here: whether the value has really ended: a look decides (`watch.rs`).

use crate::limits::{CLOCKS_APART_MS, ENDS_AHEAD_MS, ENDS_BYTES};
use bytes::Bytes;
use dendra_base::Now;
use std::collections::BTreeSet;

/// Cost of an end beside its key.
const END_BYTES: usize = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ends {
    next: BTreeSet<(u64, Bytes)>,
    bytes: usize,
    /// Values that ended before are told, or are none of this watch's.
    from: (u64, Bytes),
    /// Values that end from here on are not all in `next`.
    until: Option<(u64, Bytes)>,
    /// All values that had ended by this time are told.
    told_ms: u64,
}

impl Ends {
    pub(crate) fn new(now: Now) -> Ends {
        Ends {
            next: BTreeSet::new(),
            bytes: 0,
            from: (now.wall_ms, Bytes::new()),
            until: None,
            told_ms: now.wall_ms,
        }
    }

    /// Ends up to this time were told by an earlier watch, perhaps at another member.
    pub(crate) fn resume(&mut self, told_ms: u64) {
        self.from = (told_ms.saturating_sub(CLOCKS_APART_MS), Bytes::new());
        self.told_ms = told_ms;
    }

    pub(crate) fn clear(&mut self) {
        self.next.clear();
        self.bytes = 0;
        self.until = None;
    }

    /// A page showed a value that ends.
    pub(crate) fn note_of_page(&mut self, key: &Bytes, expiry_ms: Option<u64>) {
        let is_ahead = |ms: &u64| (*ms, key) >= (self.from.0, &self.from.1);
        self.note(key, expiry_ms.filter(is_ahead));
    }

    /// A value of the range ends at this time.
    pub(crate) fn note(&mut self, key: &Bytes, expiry_ms: Option<u64>) {
        let Some(expiry_ms) = expiry_ms else {
            return;
        };
        let until = self.until.as_ref();
        if until.is_some_and(|(ms, from)| (expiry_ms, key) >= (*ms, from)) {
            return;
        }
        if self.next.insert((expiry_ms, key.clone())) {
            self.bytes += key.len() + END_BYTES;
        }
        while self.bytes > ENDS_BYTES
            && let Some((last_ms, last)) = self.next.pop_last()
        {
            self.bytes -= last.len() + END_BYTES;
            self.until = Some((last_ms, last));
        }
    }

    /// A key whose value has ended by now.
    pub(crate) fn pop(&mut self, now: Now) -> Option<Bytes> {
        if self.next.first()?.0 > now.wall_ms {
            return None;
        }
        let (_, key) = self.next.pop_first()?;
        self.bytes -= key.len() + END_BYTES;
        Some(key)
    }

    /// Nothing is open: all ends up to now are told, unless one is due.
    pub(crate) fn note_told(&mut self, now: Now) {
        if self.next.first().is_none_or(|(ms, _)| *ms > now.wall_ms) {
            self.told_ms = now.wall_ms;
        }
    }

    /// Is there room for what a pass finds? If not, the ends that take it are due soon.
    fn has_room(&self) -> bool {
        2 * self.bytes <= ENDS_BYTES
    }

    /// Is another pass due, for later ends? If so, it notes all of them once more.
    pub(crate) fn begin_pass(&mut self, now: Now) -> bool {
        let has_room = self.has_room();
        let is_due = |until: &mut (u64, Bytes)| until.0 <= now.wall_ms + ENDS_AHEAD_MS && has_room;
        match self.until.take_if(is_due) {
            Some(until) => {
                self.from = until;
                true
            }
            None => false,
        }
    }

    /// The next end, and the next pass for ends, on the wall clock.
    pub(crate) fn due_ms(&self) -> (Option<u64>, Option<u64>) {
        let pass = self.until.as_ref().filter(|_| self.has_room());
        let pass = pass.map(|(ms, _)| ms.saturating_sub(ENDS_AHEAD_MS));
        (self.next.first().map(|(ms, _)| *ms), pass)
    }

    /// All values that had ended by this time are told.
    pub(crate) fn told_ms(&self) -> u64 {
        self.told_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_many_ends_in_one_millisecond_are_found() {
        let now = Now {
            mono_us: 0,
            wall_ms: 1_000,
            wall_part_us: 0,
        };
        let mut ends = Ends::new(now);
        let keys: Vec<Bytes> = (0..3_000)
            .map(|key| Bytes::from(format!("key-{key:06}")))
            .collect();
        let then = Now {
            wall_ms: 5_000,
            ..now
        };
        let mut found = Vec::new();
        for passes in 1.. {
            for key in &keys {
                ends.note_of_page(key, Some(5_000));
            }
            while let Some(key) = ends.pop(then) {
                found.push(key);
            }
            if !ends.begin_pass(then) {
                assert!(passes > 1, "they are more than fit at once");
                break;
            }
            assert!(passes < 20, "each pass comes farther");
        }
        assert_eq!(found, keys);
    }
}
