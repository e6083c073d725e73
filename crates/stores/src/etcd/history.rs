//! The history of etcd: which revision is old enough to be compacted, and whether anybody compacts.
//!
//! ```text
//! HistoryTail   a revision now and then ─► the newest one that is `after` old: compact here
//! HistoryWatch  the oldest revision that can be read ─► does it move? │ many are kept: warn
//! search        readable? of a few revisions ─► the oldest one that can be read
//! ```
//!
//! Invariants
//! 1. A revision that is named for a compaction was the newest one `after` ago, or is older.
//! 2. At most `NOTES_MAX` revisions are remembered. After a restart the first compaction comes
//!    when `after` is over.
//!
//! Not here: the questions (`mod.rs`), clocks (arguments).
//! See: docs/stores.md.

use std::collections::VecDeque;
use std::time::Duration;

/// Revisions that are remembered: `after` is divided into so many parts.
const NOTES_A_SPAN: u32 = 10;
const NOTES_MAX: usize = 2 * NOTES_A_SPAN as usize;
/// A history as long as this deserves a warning when nothing makes it shorter.
const REVISIONS_MANY: u64 = 100_000;
/// etcd's own compaction comes once an hour at least, in most houses.
const STILL_MAX: Duration = Duration::from_secs(3 * 3_600);

/// The revisions of the last while.
pub(super) struct HistoryTail {
    after: Duration,
    /// When each one was the newest, by the clock of the caller.
    notes: VecDeque<(Duration, u64)>,
}

impl HistoryTail {
    pub(super) fn new(after: Duration) -> HistoryTail {
        HistoryTail {
            after,
            notes: VecDeque::new(),
        }
    }

    /// Is it time for another note?
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let last = self.notes.back();
        last.is_none_or(|(at, _)| now.saturating_sub(*at) >= self.after / NOTES_A_SPAN)
    }

    /// Notes that `revision` is the newest one; returns one to compact at.
    pub(super) fn note(&mut self, now: Duration, revision: u64) -> Option<u64> {
        // A restored history begins at an earlier revision: what was noted is of another one.
        if self.notes.back().is_some_and(|(_, last)| revision < *last) {
            self.notes.clear();
        }
        self.notes.push_back((now, revision));
        let is_old = |(at, _): &(Duration, u64)| now.saturating_sub(*at) >= self.after;
        let old = self.notes.iter().take_while(|note| is_old(note)).count();
        let last = self.notes.drain(..old).next_back();
        if self.notes.len() > NOTES_MAX {
            self.notes.pop_front();
        }
        last.map(|(_, noted)| noted)
    }
}

/// Looks whether a history grows.
#[derive(Default)]
pub(super) struct HistoryWatch {
    /// The oldest revision of the last look, and since when it is that one.
    oldest: Option<(u64, Duration)>,
    warned_at: Option<Duration>,
}

/// How a history does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistoryState {
    /// Short, or shorter now and then.
    Fine,
    /// Long, from the first revision of all on.
    NeverCompacted,
    /// Long, and from the same place on for hours.
    Grows,
}

impl HistoryWatch {
    /// The oldest revision of the last look; 1 before the first.
    pub(super) fn oldest(&self) -> u64 {
        self.oldest.map_or(1, |(oldest, _)| oldest)
    }

    /// Notes the oldest and the newest revision that can be read. What is wrong is told once in
    /// `STILL_MAX`.
    pub(super) fn note(&mut self, now: Duration, oldest: u64, newest: u64) -> HistoryState {
        let since = match self.oldest {
            Some((before, since)) if before == oldest => since,
            _ => now,
        };
        self.oldest = Some((oldest, since));
        let state = match () {
            () if newest.saturating_sub(oldest) < REVISIONS_MANY => HistoryState::Fine,
            () if oldest <= 1 => HistoryState::NeverCompacted,
            () if now.saturating_sub(since) >= STILL_MAX => HistoryState::Grows,
            () => HistoryState::Fine,
        };
        let is_told = |at: Duration| now.saturating_sub(at) < STILL_MAX;
        if state == HistoryState::Fine || self.warned_at.is_some_and(is_told) {
            return HistoryState::Fine;
        }
        self.warned_at = Some(now);
        state
    }
}

/// A search for the oldest revision that can be read: it and all newer ones can be.
pub(super) struct OldestSearch {
    /// Older ones cannot be read.
    low: u64,
    /// This one can be read.
    high: u64,
    is_first: bool,
}

impl OldestSearch {
    /// Between `oldest` of the last look and `newest`, which can be read.
    pub(super) fn new(oldest: u64, newest: u64) -> OldestSearch {
        OldestSearch {
            low: oldest.min(newest),
            high: newest,
            is_first: true,
        }
    }

    /// The revision to ask for next; `None` = the search is over.
    pub(super) fn next(&self) -> Option<u64> {
        // Mostly nothing was compacted since the last look.
        let middle = self.low + (self.high - self.low) / 2;
        let next = if self.is_first { self.low } else { middle };
        (self.low < self.high).then_some(next)
    }

    /// Notes whether that revision can be read.
    pub(super) fn note(&mut self, is_readable: bool) {
        let asked = self.next().expect("it is not over");
        self.is_first = false;
        if is_readable {
            self.high = asked;
        } else {
            self.low = asked + 1;
        }
    }

    /// The oldest revision that can be read.
    pub(super) fn end(&self) -> u64 {
        self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_revision_is_compacted_when_it_is_old_enough_and_not_before() {
        let mut tail = HistoryTail::new(HOUR);
        // A revision a second; looked at each second.
        let mut compacted = Vec::new();
        for second in 0..4 * 3_600 {
            let now = Duration::from_secs(second);
            if !tail.is_due(now) {
                continue;
            }
            if let Some(revision) = tail.note(now, second) {
                assert!(revision + 3_600 <= second, "{revision} at {second}");
                assert!(revision + 3_600 + 720 > second, "{revision} at {second}");
                compacted.push(revision);
            }
            assert!(tail.notes.len() <= NOTES_MAX);
        }
        assert!(compacted.is_sorted_by(|a, b| a < b), "{compacted:?}");
        assert!(compacted.len() >= 25, "{compacted:?}");
    }

    #[test]
    fn notes_of_another_history_are_forgotten() {
        let mut tail = HistoryTail::new(HOUR);
        assert_eq!(tail.note(Duration::ZERO, 5_000), None);
        assert_eq!(tail.note(HOUR / 2, 10), None, "a backup was restored");
        assert_eq!(tail.note(HOUR * 3 / 2, 6_000), Some(10));
    }

    #[test]
    fn the_search_finds_the_oldest_revision_with_few_questions() {
        for newest in [1_u64, 2, 3, 100, 1_000_003] {
            for known in [1, newest / 2 + 1, newest] {
                for oldest in [known, known + 1, known.midpoint(newest), newest] {
                    let oldest = oldest.min(newest);
                    let mut search = OldestSearch::new(known, newest);
                    let mut asked = 0;
                    while let Some(revision) = search.next() {
                        search.note(revision >= oldest);
                        asked += 1;
                    }
                    assert_eq!(search.end(), oldest, "{known} {newest}");
                    assert!(asked <= 21, "{asked}");
                    assert!(oldest > known || asked <= 1, "{asked}");
                }
            }
        }
    }

    #[test]
    fn a_long_history_is_told_when_it_has_not_become_shorter_for_hours() {
        let mut watch = HistoryWatch::default();
        let state = |watch: &mut HistoryWatch, hours: u32, oldest, newest| {
            watch.note(HOUR * hours, oldest, newest)
        };
        assert_eq!(state(&mut watch, 0, 1, 99_000), HistoryState::Fine);
        let never = HistoryState::NeverCompacted;
        assert_eq!(state(&mut watch, 1, 1, 200_000), never);
        assert_eq!(state(&mut watch, 2, 1, 200_000), HistoryState::Fine, "told");
        assert_eq!(state(&mut watch, 4, 1, 200_000), never);
        // Compacted, and long again, but each hour.
        for hours in 10..20 {
            let oldest = u64::from(hours) * 1_000_000;
            let state = state(&mut watch, hours, oldest, oldest + 900_000);
            assert_eq!(state, HistoryState::Fine);
        }
        let mut told = Vec::new();
        for hours in 20..28 {
            let newest = u64::from(hours) * 1_000_000;
            if state(&mut watch, hours, 19_000_000, newest) == HistoryState::Grows {
                told.push(hours);
            }
        }
        assert_eq!(told, [22, 25]);
    }
}
