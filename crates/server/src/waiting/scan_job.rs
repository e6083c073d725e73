//! A scan of the own store as the store pool works on it: a cursor, and the bytes of one chunk.
//!
//! ```text
//! loop: job ─► worker: cursor ─► out, about 64 KiB of records ─► loop: write all of it ─► next job
//! ```
//!
//! Invariants
//! 1. It holds one chunk and a cursor, which pins no memory. A record for which there is no room is
//!    not taken: `needs` says how much it asks for.
//!
//! Not here: when a chunk is made (`clients/backend/alone.rs`), framing (crate `wire`,
//! `http::records`), merging (crate `engine`).
//! See: docs/api.md, section "Many keys".

use crate::limits;
use dendra_engine::{Cursor, Direction, Engine, Flow, Progress, Show as Cells};
use dendra_wire::http::Framing;
use dendra_wire::http::records::{self, ShownPart};
#[cfg(test)]
use dendra_wire::route;
use dendra_wire::route::Scan as Query;
use std::ops::Bound;

/// The state of a scan between two chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScanStand {
    /// There may be more.
    Open,
    /// The range is exhausted.
    Complete,
    /// There is more, but the limit is reached: the key to go on from.
    Cut(Vec<u8>),
    /// The record at this key is damaged.
    Damaged(Vec<u8>),
}

/// A scan as it travels between its connection and the store pool.
#[derive(Debug)]
pub(crate) struct ScanJob {
    cursor: Cursor,
    framing: Framing,
    show: ShownPart,
    direction: Direction,
    left: Option<u64>,
    /// Where records go.
    pub(crate) out: Vec<u8>,
    /// Bytes of `out` that room was taken for.
    pub(crate) room: usize,
    /// The next record alone needs this much; 0 when it is not known to need more than a chunk.
    pub(crate) needs: usize,
    /// Records of the chunk.
    pub(crate) shown: u64,
    /// Stored key of the last record shown.
    last_key: Vec<u8>,
    pub(crate) stand: ScanStand,
}

impl ScanJob {
    /// A scan of live records of `query`'s range, as of now.
    pub(crate) fn new(query: &Query, now_ms: u64) -> ScanJob {
        let direction = query.direction;
        ScanJob {
            cursor: Cursor::new(
                Bound::Included(query.start.clone()),
                Bound::Excluded(query.end.clone()),
                direction,
                Cells::Live { now_ms },
            ),
            framing: query.framing,
            show: query.show,
            direction,
            left: query.limit,
            out: Vec::new(),
            room: limits::SCAN_CHUNK_BYTES,
            needs: 0,
            shown: 0,
            last_key: Vec::new(),
            stand: if query.is_empty() {
                ScanStand::Complete
            } else {
                ScanStand::Open
            },
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> ScanJob {
        let query = Query {
            start: vec![0x10],
            end: vec![0x11],
            direction: Direction::Forward,
            limit: None,
            show: ShownPart::KeysAndValues,
            scope: route::Scope::Local,
            framing: Framing::Plain,
            timeout_ms: 1_000,
        };
        ScanJob::new(&query, 0)
    }

    /// Appends records to `out` until a chunk is full, the range ends, or enough was looked at.
    pub(crate) fn fill(&mut self, engine: &Engine) -> Result<(), dendra_engine::Error> {
        let ScanJob {
            cursor,
            framing,
            show,
            direction,
            left,
            out,
            room,
            needs,
            shown,
            last_key,
            stand,
        } = self;
        let begin = out.len();
        *needs = 0;
        let progress = engine.scan(cursor, limits::SCAN_LOOK_BYTES, |key, cell| {
            if *left == Some(0) {
                *stand = ScanStand::Cut(resume_key(*direction, key, last_key));
                return Flow::Pause;
            }
            if !cell.is_intact(key) {
                *stand = ScanStand::Damaged(key[1..].to_vec());
                return Flow::Pause;
            }
            let len = records::record_len_max(*framing, *show, &key[1..], cell.value);
            if out.len() + len > *room {
                if out.len() == begin {
                    *needs = begin + len;
                }
                return Flow::Stay;
            }
            if out.capacity() < out.len() + len {
                let capacity = (out.len() + len).max((2 * out.capacity()).min(*room));
                out.reserve_exact(capacity - out.len());
            }
            records::record(out, *framing, *show, &key[1..], cell.value);
            *shown += 1;
            last_key.clear();
            last_key.extend_from_slice(key);
            if let Some(left) = left {
                *left -= 1;
            }
            if out.len() >= limits::SCAN_CHUNK_BYTES {
                Flow::Pause
            } else {
                Flow::Continue
            }
        })?;
        if progress == Progress::Done && *stand == ScanStand::Open {
            *stand = ScanStand::Complete;
        }
        Ok(())
    }

    /// The client's key from which to go on when the scan is cut here: behind all that it has
    /// looked at, records or not.
    pub(crate) fn next_key(&self) -> Vec<u8> {
        let (key, is_behind) = match (self.cursor.position(), self.direction) {
            (Bound::Included(key), Direction::Forward)
            | (Bound::Excluded(key), Direction::Backward) => (key, false),
            (Bound::Excluded(key), Direction::Forward)
            | (Bound::Included(key), Direction::Backward) => (key, true),
            (Bound::Unbounded, _) => (&[][..], false),
        };
        let mut next = key.get(1..).unwrap_or_default().to_vec();
        if is_behind {
            next.push(0);
        }
        next
    }
}

/// `start=` of a forward scan that goes on with `key`; `end=`, exclusive, of a backward one that
/// has shown `last_key`.
fn resume_key(direction: Direction, key: &[u8], last_key: &[u8]) -> Vec<u8> {
    match direction {
        Direction::Forward => key[1..].to_vec(),
        Direction::Backward => last_key[1..].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_goes_on_behind_its_place_or_in_front_of_it() {
        let mut scan = ScanJob::for_tests();
        let key = || b"\x10k".to_vec();
        for (bound, direction, next) in [
            (Bound::Included(key()), Direction::Forward, &b"k"[..]),
            (Bound::Excluded(key()), Direction::Forward, b"k\0"),
            (Bound::Excluded(key()), Direction::Backward, b"k"),
            (Bound::Included(key()), Direction::Backward, b"k\0"),
        ] {
            scan.direction = direction;
            let cells = Cells::Live { now_ms: 0 };
            scan.cursor = Cursor::new(bound.clone(), bound, direction, cells);
            assert_eq!(scan.next_key(), next);
        }
    }
}
