//! Range scans: a position that is carried on in chunks.
//!
//! ```text
//! Cursor (range, position, direction, records to show)
//!    chunk: fresh view ─► merge ─► visit … ─► position behind the last key seen
//! ```
//!
//! Invariants
//! 1. Between chunks a cursor holds only a key: no memtable, no file, no block. A reader that stops
//!    reading costs one buffer.
//! 2. Every key that is live during the whole scan is shown exactly once; keys written meanwhile
//!    may be shown. There is no snapshot across keys, and none is promised.
//! 3. A scan that meets damage shows all that lies in front of it, and stands there. The damage of
//!    a block begins behind the record in front of it. The next chunk fails at once.
//! 4. A scan of any length puts at most 16 blocks of each level-0 table and of each level into the
//!    cache. Blocks that it meets after these do not look used by it.
//!
//! Not here: framing of records for clients (crate `wire`).
//! See: docs/decisions/0007-scan-is-a-position.md.

use crate::Result;
use crate::cache::FillCache;
use crate::hole::{self, Hole};
use crate::merge::Merge;
use crate::source::Source;
use dendra_base::{CellRef, Direction};
use std::ops::Bound;

/// Which cells a scan shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Values that are live at this wall time.
    Live {
        /// Wall milliseconds.
        now_ms: u64,
    },
    /// Everything, tombstones and expired values included.
    All,
}

/// The visitor's order about the rest of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next record.
    Continue,
    /// Stop after this record; the cursor stands right after it.
    Pause,
    /// Stop in front of this record, which was not taken; the cursor stands on it.
    Stay,
}

/// Is there more to scan?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The cursor can go on.
    More,
    /// The range is exhausted.
    Done,
}

/// Where a scan is: a position, not a snapshot.
#[derive(Clone, Debug)]
pub struct Cursor {
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    direction: Direction,
    show: Show,
    /// Was a chunk carried on before?
    is_under_way: bool,
    is_done: bool,
}

impl Cursor {
    /// Scans stored keys between `start` and `end` in `direction`.
    pub fn new(
        start: Bound<Vec<u8>>,
        end: Bound<Vec<u8>>,
        direction: Direction,
        show: Show,
    ) -> Cursor {
        Cursor {
            start,
            end,
            direction,
            show,
            is_under_way: false,
            is_done: false,
        }
    }

    /// Where the next chunk begins: the bound nearest to the scan's direction.
    pub fn position(&self) -> Bound<&[u8]> {
        let bound = match self.direction {
            Direction::Forward => &self.start,
            Direction::Backward => &self.end,
        };
        bound.as_ref().map(Vec::as_slice)
    }

    /// The first chunk may be a page that is asked for again; the chunks after it pass by once.
    pub(crate) fn fill(&self) -> FillCache {
        if self.is_under_way {
            FillCache::No
        } else {
            FillCache::Yes
        }
    }

    fn is_past_end(&self, key: &[u8]) -> bool {
        match (self.direction, &self.start, &self.end) {
            (Direction::Forward, _, Bound::Included(end)) => key > end.as_slice(),
            (Direction::Forward, _, Bound::Excluded(end)) => key >= end.as_slice(),
            (Direction::Backward, Bound::Included(start), _) => key < start.as_slice(),
            (Direction::Backward, Bound::Excluded(start), _) => key <= start.as_slice(),
            _ => false,
        }
    }

    /// Does the scan come to `key` before it comes to `other`?
    fn is_before(&self, key: &[u8], other: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => key < other,
            Direction::Backward => key > other,
        }
    }

    fn stand_behind(&mut self, key: &[u8]) {
        *self.bound() = Bound::Excluded(key.to_vec());
    }

    fn stand_on(&mut self, key: &[u8]) {
        *self.bound() = Bound::Included(key.to_vec());
    }

    /// All keys in front of `key` were shown; it is not a step back.
    fn stand_in_front(&mut self, key: &[u8]) {
        let is_ahead = match self.position() {
            Bound::Included(at) | Bound::Excluded(at) => self.is_before(at, key),
            Bound::Unbounded => true,
        };
        if is_ahead {
            self.stand_on(key);
        }
    }

    fn bound(&mut self) -> &mut Bound<Vec<u8>> {
        match self.direction {
            Direction::Forward => &mut self.start,
            Direction::Backward => &mut self.end,
        }
    }

    /// The hole that it meets first from its position on, and the key at which it does.
    fn next_hole<'a>(&self, holes: &'a [Hole]) -> Option<(&'a Hole, &'a [u8])> {
        match self.direction {
            Direction::Forward => hole::ahead(holes, self.position()),
            Direction::Backward => hole::behind(holes, self.position()),
        }
    }

    /// Carries the scan on over `sources` until the visitor pauses, the range ends, or about
    /// `budget_bytes` were looked at. After an error it stands behind the last key seen, or at the
    /// hole that it met.
    pub(crate) fn run(
        &mut self,
        sources: Vec<Box<dyn Source + Send>>,
        holes: &[Hole],
        budget_bytes: usize,
        mut visit: impl FnMut(&[u8], CellRef<'_>) -> Flow,
    ) -> Result<Progress> {
        if self.is_done {
            return Ok(Progress::Done);
        }
        self.is_under_way = true;
        let next_hole = self.next_hole(holes);
        let mut merge = Merge::new(sources);
        merge.seek(self.position(), self.direction)?;
        let mut seen = 0;
        while let Some((key, cell)) = merge.current() {
            if self.is_past_end(key) {
                break;
            }
            if let Some((hole, at)) = next_hole.filter(|(_, at)| !self.is_before(key, at)) {
                self.stand_in_front(at);
                return Err(hole.error());
            }
            seen += key.len() + cell.encoded_len();
            let is_shown = match self.show {
                Show::All => true,
                Show::Live { now_ms } => cell.is_live(now_ms),
            };
            let flow = if is_shown {
                visit(key, cell)
            } else {
                Flow::Continue
            };
            if flow == Flow::Stay {
                self.stand_on(key);
                return Ok(Progress::More);
            }
            if flow == Flow::Pause || seen >= budget_bytes {
                self.stand_behind(key);
                return Ok(Progress::More);
            }
            if let Err(error) = merge.advance() {
                self.stand_behind(merge.left());
                return Err(error);
            }
        }
        if let Some((hole, at)) = next_hole.filter(|(_, at)| !self.is_past_end(at)) {
            self.stand_in_front(at);
            return Err(hole.error());
        }
        self.is_done = true;
        Ok(Progress::Done)
    }
}
