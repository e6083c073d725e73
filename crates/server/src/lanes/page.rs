//! Parts of the store that the node reads from the disk: pages of records, and looks at them.
//!
//! ```text
//! Page   start, end, direction, bytes ─► fill ─► records, and where to go on
//! Survey a look of a comparison       ─► look ─► its ranges
//! ```
//!
//! Invariants
//! 1. A read stays within the space of its start.
//! 2. A page ends in front of damage: a block, a hole, or a record that fails its checksum. It is
//!    damaged only if it begins there.
//!
//! Not here: the queue (`disk/store_pool.rs`), the comparison itself (crate `node`).

use dendra_base::{Cell, Key, Space};
use dendra_engine::{Cursor, Direction, Engine, Error, Flow, Progress, Show};
use dendra_node::compare::survey::{Survey, Surveyed, Surveying};
use dendra_node::step::{Paged, StoreFailure};
use std::ops::Bound;

/// Lengths of key and cell in the frame of a page.
const LENGTHS_BYTES: usize = 4 + 4;

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
        scanned.map_err(|error| unread(engine, &error, "a comparison"))?;
    }
    looker.finish().ok_or(StoreFailure::Damaged)
}

/// The failure of a read, for the log and for the node. Damage that scrubs have named in the log is
/// met again at each page and comparison, and is no news.
fn unread(engine: &Engine, error: &Error, what: &str) -> StoreFailure {
    let Error::Damaged { file, offset, .. } = error else {
        tracing::error!(%error, "{what} could not read a part of the store");
        return StoreFailure::NotApplied;
    };
    let spans = engine.damaged_spans();
    if !spans
        .iter()
        .any(|span| span.offset == *offset && span.file() == *file)
    {
        tracing::error!(%error, "{what} could not read a part of the store");
    }
    StoreFailure::Damaged
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
                return Flow::Stay;
            }
            // As in a frame: many small records are more than their keys and values.
            held += key.len() + cell.encoded_len() + LENGTHS_BYTES;
            records.push((key_of(key), cell.to_owned()));
            if held >= self.bytes {
                Flow::Pause
            } else {
                Flow::Continue
            }
        });
        let next = self.next_after(&cursor);
        let is_over = matches!(progress, Ok(Progress::Done));
        let failure = match progress {
            Ok(_) if is_damaged => Some(StoreFailure::Damaged),
            Ok(_) => None,
            Err(error) => Some(unread(engine, &error, "a page for a peer")),
        };
        match failure {
            // The page that begins there has no record.
            Some(StoreFailure::Damaged) if next != self.start => Ok((records, Some(next))),
            Some(failure) => Err(failure),
            None => Ok((records, (!is_over).then_some(next))),
        }
    }

    /// Where the page behind this one begins.
    fn next_after(&self, cursor: &Cursor) -> Key {
        let behind = |key: &[u8]| key_of(&[key, &[0]].concat());
        match (cursor.position(), self.is_reverse) {
            (Bound::Included(key), false) | (Bound::Excluded(key), true) => key_of(key),
            (Bound::Excluded(key), false) | (Bound::Included(key), true) => behind(key),
            (Bound::Unbounded, _) => self.start.clone(),
        }
    }
}

/// A stored key that a page met.
fn key_of(stored: &[u8]) -> Key {
    let space = Space::from_byte(stored[0]).expect("a page stays within the space of its start");
    Key::new(space, &stored[1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::peer::Answer;
    use dendra_base::{CellRef, Guard, Version};
    use dendra_engine::vfs::mem::MemVfs;
    use dendra_engine::{Batch, Identity, Options};
    use dendra_wire::peer::{Seal, encode_answer};
    use std::sync::Arc;

    #[test]
    fn a_page_of_tiny_records_is_no_longer_than_it_may_be() {
        let identity = Identity { node: 7, origin: 7 };
        let options = Options::for_memory(16 << 20, 64 << 10);
        let engine = Engine::open(Arc::new(MemVfs::new()), options, identity);
        let engine = engine.expect("it opens");
        let mut done = Vec::new();
        for first in 0..4_u8 {
            let mut batch = Batch::new();
            for number in 0..2_000_u16 {
                let [a, b] = number.to_be_bytes();
                let key = Key::user(&[first, a, b]);
                let cell = CellRef::tombstone(key.as_stored(), Version::ZERO.successor());
                let pushed = batch.push(0, key.as_stored(), &cell, Guard::Newest, 1);
                pushed.expect("it is legal");
            }
            engine.submit(&mut batch).expect("the queue is empty");
            engine.commit(&mut done).expect("the disk works");
        }
        let page = Page {
            bytes: 16 << 10,
            ..Page::for_tests()
        };
        let (records, next) = page.fill(&engine).expect("it is whole");
        assert!(records.len() > 300 && next.is_some());
        let raw = |(key, cell): (Key, Cell)| (bytes::Bytes::copy_from_slice(key.raw()), cell);
        let records = records.into_iter().map(raw).collect();
        let mut frame = Vec::new();
        let answer = Answer::Page {
            records,
            rest: None,
        };
        encode_answer(&mut frame, &mut Seal::plain(), 1, &answer);
        assert!(frame.len() < (16 << 10) + 200, "{} bytes", frame.len());
    }
}
