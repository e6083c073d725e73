//! The keys that changed last at this member, by number.
//!
//! ```text
//! life 7   … 41 42 43 44 45 ─► next change is 46
//!            └ first that is still known
//! ```
//!
//! Invariants
//! 1. Numbers of one life have no gaps, and name changes in the order in which they were noted.
//! 2. A life ends when changes are not noted for a while: before the first question, when no node
//!    has asked for `CHANGES_KEPT_US`, and with `forget`. A cursor of another life finds nothing.
//! 3. Without questions a write costs a look at one atomic flag.
//!
//! Not here: which writes are changes (crate `node`, the replica's answers to `Write`).

use crate::limits::{CHANGE_BYTES, CHANGES_KEPT_US, FEED_LOOKED_MAX};
use crate::span::Span;
use bytes::Bytes;
use dendra_base::Version;
use dendra_base::peer::{Change, FeedCursor};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Changes from a cursor on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangePage {
    /// Behind the changes that were looked at.
    pub cursor: FeedCursor,
    /// Changes of the span among them.
    pub changes: Vec<Change>,
    /// All changes so far were looked at.
    pub is_end: bool,
}

#[derive(Debug)]
struct Remembered {
    life: u64,
    next: u64,
    bytes: usize,
    bytes_max: usize,
    asked_us: u64,
    changes: VecDeque<(Bytes, Version)>,
    /// Waiters that found no change, and are told of the next one.
    waiting: BTreeSet<usize>,
}

impl Remembered {
    fn begin_life(&mut self) {
        self.life = self.life.wrapping_add(1);
        (self.next, self.bytes) = (0, 0);
        self.changes = VecDeque::new();
    }
}

/// See the module. All loops of a member share it.
#[derive(Debug)]
pub struct ChangeLog {
    is_noted: AtomicBool,
    kept: Mutex<Remembered>,
}

impl ChangeLog {
    /// Changes of a process. `life` is a number that no other process of this member has used:
    /// drawn by chance.
    pub fn new(life: u64, bytes_max: usize) -> ChangeLog {
        ChangeLog {
            is_noted: AtomicBool::new(false),
            kept: Mutex::new(Remembered {
                life,
                next: 0,
                bytes: 0,
                bytes_max,
                asked_us: 0,
                changes: VecDeque::new(),
                waiting: BTreeSet::new(),
            }),
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Remembered> {
        // A panic between two statements below leaves a bound that is a little wrong at worst.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Are changes noted now?
    pub fn is_noted(&self) -> bool {
        self.is_noted.load(Ordering::Acquire)
    }

    /// A write is durable at this member.
    pub fn note(&self, key: &[u8], version: Version) {
        if !self.is_noted() {
            return;
        }
        let mut kept = self.kept();
        // The life may have ended since.
        if !self.is_noted() {
            return;
        }
        kept.next += 1;
        kept.bytes += key.len() + CHANGE_BYTES;
        kept.changes
            .push_back((Bytes::copy_from_slice(key), version));
        while kept.bytes > kept.bytes_max
            && let Some((oldest, _)) = kept.changes.pop_front()
        {
            kept.bytes -= oldest.len() + CHANGE_BYTES;
        }
    }

    /// Takes the waiters that are to be told of a change: the world calls it behind the last `note`
    /// of a step.
    pub fn take_waiting(&self) -> BTreeSet<usize> {
        std::mem::take(&mut self.kept().waiting)
    }

    /// The changes in `span` from a cursor on. `None` instead of a cursor: where is the end? An
    /// error says where the end is, too: changes behind the cursor are not known any more. A
    /// `waiter` that finds all of them and none in its span is told of the next one.
    ///
    /// # Errors
    /// The cursor is of another life, or too far back.
    pub fn since(
        &self,
        now_us: u64,
        cursor: Option<FeedCursor>,
        (span, bytes_max): (&Span, usize),
        waiter: Option<usize>,
    ) -> Result<ChangePage, FeedCursor> {
        let mut kept = self.kept();
        if !self.is_noted.swap(true, Ordering::AcqRel) {
            kept.begin_life();
        }
        kept.asked_us = now_us;
        let end = FeedCursor {
            life: kept.life,
            next: kept.next,
        };
        let first = kept.next - kept.changes.len() as u64;
        let Some(cursor) = cursor else {
            return Ok(ChangePage {
                cursor: end,
                changes: Vec::new(),
                is_end: true,
            });
        };
        if cursor.life != kept.life || cursor.next < first || cursor.next > kept.next {
            return Err(end);
        }
        let (mut number, mut bytes, mut changes) = (cursor.next, 0, Vec::new());
        let skipped = usize::try_from(cursor.next - first).unwrap_or(usize::MAX);
        for (key, version) in kept.changes.range(skipped..) {
            // Commits wait for this look.
            if bytes >= bytes_max || number - cursor.next >= FEED_LOOKED_MAX {
                break;
            }
            if span.has(key) {
                bytes += key.len() + CHANGE_BYTES;
                changes.push(Change {
                    number,
                    key: key.clone(),
                    version: *version,
                });
            }
            number += 1;
        }
        let is_end = number == kept.next;
        if is_end && changes.is_empty() {
            kept.waiting.extend(waiter);
        }
        Ok(ChangePage {
            cursor: FeedCursor {
                life: kept.life,
                next: number,
            },
            changes,
            is_end,
        })
    }

    /// Keys were written that are not noted: cursors of until now find nothing any more.
    pub fn forget(&self) {
        let mut kept = self.kept();
        kept.begin_life();
    }

    /// Ends the life of changes when no node has asked for them for `CHANGES_KEPT_US`. The world
    /// calls it now and then.
    pub fn rest(&self, now_us: u64) {
        let mut kept = self.kept();
        if self.is_noted() && now_us.saturating_sub(kept.asked_us) > CHANGES_KEPT_US {
            self.is_noted.store(false, Ordering::Release);
            kept.changes = VecDeque::new();
            kept.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Span {
        Span::of_prefix(b"")
    }

    fn version(hlc: u64) -> Version {
        Version {
            hlc,
            ..Version::ZERO
        }
    }

    fn keys(page: &ChangePage) -> Vec<&[u8]> {
        page.changes.iter().map(|change| &change.key[..]).collect()
    }

    #[test]
    fn changes_are_numbered_from_the_first_question_on() {
        let changes = ChangeLog::new(5, 1 << 20);
        changes.note(b"before", version(1));
        let begin = changes
            .since(0, None, (&all(), 1), None)
            .expect("a place")
            .cursor;
        for key in [&b"a"[..], b"b", b"ca"] {
            changes.note(key, version(2));
        }
        let page = changes
            .since(0, Some(begin), (&all(), 1 << 10), None)
            .expect("all");
        assert_eq!(keys(&page), [&b"a"[..], b"b", b"ca"]);
        assert!(page.is_end);
        let part = changes
            .since(0, Some(begin), (&all(), 1), None)
            .expect("one");
        assert_eq!((keys(&part), part.is_end), (vec![&b"a"[..]], false));
        let rest = changes.since(
            0,
            Some(part.cursor),
            (&Span::of_prefix(b"c"), 1 << 10),
            None,
        );
        let rest = rest.expect("the rest");
        assert_eq!((keys(&rest), rest.cursor), (vec![&b"ca"[..]], page.cursor));
    }

    #[test]
    fn what_is_not_known_any_more_is_told() {
        let changes = ChangeLog::new(5, 3 * (CHANGE_BYTES + 1));
        let begin = changes
            .since(0, None, (&all(), 1), None)
            .expect("a place")
            .cursor;
        for _ in 0..3 {
            changes.note(b"k", version(2));
        }
        assert!(changes.since(0, Some(begin), (&all(), 1), None).is_ok());
        changes.note(b"k", version(2));
        let end = changes
            .since(0, Some(begin), (&all(), 1), None)
            .expect_err("gone");
        assert_eq!(
            changes
                .since(0, Some(end), (&all(), 1), None)
                .map(|page| page.cursor),
            Ok(end)
        );
        let foreign = FeedCursor { life: 99, ..end };
        assert_eq!(changes.since(0, Some(foreign), (&all(), 1), None), Err(end));
        let beyond = FeedCursor {
            next: end.next + 1,
            ..end
        };
        assert_eq!(changes.since(0, Some(beyond), (&all(), 1), None), Err(end));
    }

    #[test]
    fn what_was_not_noted_makes_all_cursors_old() {
        let changes = ChangeLog::new(5, 1 << 20);
        let begin = changes.since(0, None, (&all(), 1), None);
        let begin = begin.expect("a place").cursor;
        changes.forget();
        let end = changes.since(0, Some(begin), (&all(), 1), None);
        let end = end.expect_err("a gap");
        changes.note(b"k", version(2));
        let page = changes.since(0, Some(end), (&all(), 1 << 10), None);
        assert_eq!(keys(&page.expect("it goes on")), [&b"k"[..]]);
    }

    #[test]
    fn a_life_ends_when_nobody_asks() {
        let changes = ChangeLog::new(5, 1 << 20);
        let begin = changes
            .since(0, None, (&all(), 1), None)
            .expect("a place")
            .cursor;
        changes.rest(CHANGES_KEPT_US);
        assert!(changes.is_noted());
        changes.rest(CHANGES_KEPT_US + 1);
        assert!(!changes.is_noted());
        changes.note(b"unseen", version(2));
        assert!(
            changes.since(0, Some(begin), (&all(), 1), None).is_err(),
            "a gap"
        );
    }
}
