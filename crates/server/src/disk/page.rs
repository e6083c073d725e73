//! Parts of the store that the node reads from the disk: pages of records, and looks at them.
//!
//! ```text
//! Page   start, end, direction, bytes ─► fill ─► records, and where to go on
//! Survey a look of a comparison       ─► look ─► its ranges
//! ```
//!
//! Invariants
//! 1. A read stays within the space of its start.
//! 2. A record that fails its checksum makes the whole page damaged.
//!
//! Not here: the queue (`store_pool.rs`), the comparison itself (crate `node`).

use dendra_base::{Cell, Key, Space};
use dendra_engine::{Cursor, Direction, Engine, Error, Flow, Progress, Show};
use dendra_node::compare::survey::{Survey, Surveyed, Surveying};
use dendra_node::step::{Paged, StoreFailure};
use std::ops::Bound;

/// A part of a space to be read.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) start: Key,
    pub(crate) end: Option<Key>,
    pub(crate) is_reverse: bool,
    /// How many are enough.
    pub(crate) bytes: usize,
}

#[cfg(test)]
impl Page {
    /// Without bytes.
    pub(crate) fn for_tests() -> Page {
        Page {
            start: Key::user(b""),
            end: None,
            is_reverse: false,
            bytes: 1,
        }
    }
}

/// Looks at a part of a space, from the disk.
pub(crate) fn look(engine: &Engine, look: &Survey) -> Result<Surveyed, StoreFailure> {
    let start = look.start.as_stored().to_vec();
    let behind_space = vec![start[0] + 1];
    let end = look.end.as_ref().map(|end| end.as_stored().to_vec());
    let end = end.unwrap_or(behind_space);
    let mut looker = look.begin();
    if start < end {
        let (low, high) = (Bound::Included(start), Bound::Excluded(end));
        let mut cursor = Cursor::new(low, high, Direction::Forward, Show::All);
        let scanned = engine.scan(&mut cursor, usize::MAX, |key, cell| {
            match looker.visit(key, cell) {
                Surveying::Continues => Flow::Continue,
                Surveying::Enough => Flow::Pause,
            }
        });
        scanned.map_err(|error| unread(&error, "a comparison"))?;
    }
    looker.finish().ok_or(StoreFailure::Damaged)
}

fn unread(error: &Error, what: &str) -> StoreFailure {
    tracing::error!(%error, "{what} could not read a part of the store");
    match error {
        Error::Damaged { .. } => StoreFailure::Damaged,
        _ => StoreFailure::NotApplied,
    }
}

impl Page {
    /// Reads it from the disk.
    pub(crate) fn fill(&self, engine: &Engine) -> Paged {
        let space = self.start.as_stored()[0];
        let behind_space = vec![space + 1];
        let (low, high, direction) = if self.is_reverse {
            let end = self.end.as_ref().map(|end| end.as_stored().to_vec());
            let start = self.start.as_stored().to_vec();
            (end.unwrap_or(vec![space]), start, Direction::Backward)
        } else {
            let end = self.end.as_ref().map(|end| end.as_stored().to_vec());
            let start = self.start.as_stored().to_vec();
            (start, end.unwrap_or(behind_space), Direction::Forward)
        };
        if low >= high {
            return Ok((Vec::new(), None));
        }
        let mut cursor = Cursor::new(
            Bound::Included(low),
            Bound::Excluded(high),
            direction,
            Show::All,
        );
        let mut records: Vec<(Key, Cell)> = Vec::new();
        let mut held = 0;
        let mut is_damaged = false;
        let progress = engine.scan(&mut cursor, usize::MAX, |key, cell| {
            if !cell.is_intact(key) {
                is_damaged = true;
                return Flow::Pause;
            }
            held += key.len() + cell.value.len();
            let space =
                Space::from_byte(key[0]).expect("a page stays within the space of its start");
            records.push((Key::new(space, &key[1..]), cell.to_owned()));
            if held >= self.bytes {
                Flow::Pause
            } else {
                Flow::Continue
            }
        });
        match progress {
            _ if is_damaged => Err(StoreFailure::Damaged),
            Ok(Progress::Done) => Ok((records, None)),
            Ok(Progress::More) => {
                let last = records.last().map(|(key, _)| key.clone());
                let next = last.map(|key| {
                    if self.is_reverse {
                        key
                    } else {
                        let mut raw = key.raw().to_vec();
                        raw.push(0);
                        Key::new(
                            Space::from_byte(space).expect("the start has a space"),
                            &raw,
                        )
                    }
                });
                Ok((records, next))
            }
            Err(error) => Err(unread(&error, "a page for a peer")),
        }
    }
}
