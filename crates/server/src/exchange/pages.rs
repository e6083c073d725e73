//! A scan with records that come in pages: a page as bytes, and the key where the next one begins.
//!
//! ```text
//! query ─► rest ─► PagedBackend ─► a page ─► take: records into the buffer, the new rest, the end
//! ```
//!
//! Invariants
//! 1. `complete` is said exactly when the backend said so of its last page.
//! 2. A limit that is reached names the key to go on from, in the direction of the scan.
//! 3. A scan holds one page, for any size of the answer.
//!
//! Not here: making pages (`peers/scan.rs`, `clients/backend/front_scan.rs`).
//! See: docs/api.md, section "Many keys".

use crate::event_loop::handover::{ChunkTerms, NoChunk, ScanChunk, WalkEnd};
use crate::exchange::socket::Socket;
use crate::waiting::finished::Finished;
use bytes::Bytes;
use dendra_base::peer::Range;
use dendra_wire::Refusal;
use dendra_wire::http::Framing;
use dendra_wire::http::records::{self as framed, ShownPart};
use dendra_wire::route::{Direction, Scan as Query};
use std::rc::Rc;

/// The range of a query, in the words of members.
fn range_of(query: &Query) -> Range {
    // Stored keys of the clients' space, or its end: the byte after it.
    let raw = |stored: &[u8]| Bytes::copy_from_slice(stored.get(1..).unwrap_or_default());
    let is_bounded = query.end.first() == query.start.first();
    Range {
        start: raw(&query.start),
        end: is_bounded.then(|| raw(&query.end)),
        is_reverse: query.direction == Direction::Backward,
        is_keys_only: query.show != ShownPart::KeysAndValues,
    }
}

/// Where a cut scan goes on: `start=` of a forward one, `end=` of a backward one.
fn next_of(rest: &Range) -> Vec<u8> {
    match (rest.is_reverse, &rest.end) {
        (true, Some(end)) => end.to_vec(),
        (true, None) => Vec::new(),
        (false, _) => rest.start.to_vec(),
    }
}

/// A backend that gives a scan page by page.
pub(crate) trait PagedBackend {
    /// Why it cannot do such a scan, once: the client gets it instead of the first page.
    fn take_refusal(&mut self) -> Option<Refusal> {
        None
    }

    /// Asks for a page of `range` with at most `wanted` records, and waits for it in the seat of
    /// `socket`. `Err` when it was not asked for.
    async fn ask(
        &self,
        socket: &mut Socket,
        range: Range,
        wanted: usize,
        turn: ChunkTerms,
    ) -> Result<(), Finished>;
}

/// A scan of a backend, between two pages.
pub(crate) struct PagedScan<S> {
    source: S,
    pages: PageWalk,
}

impl<S: PagedBackend> PagedScan<S> {
    /// A scan of `query`'s range.
    pub(crate) fn new(source: S, query: &Query) -> PagedScan<S> {
        PagedScan {
            source,
            pages: PageWalk::new(query),
        }
    }

    /// Where it goes on, in the client's words.
    pub(crate) fn next_key(&self) -> Vec<u8> {
        self.pages.next_key()
    }

    /// The next page, after the earlier content of `out`.
    pub(crate) async fn next(
        &mut self,
        socket: &mut Socket,
        out: Vec<u8>,
        turn: ChunkTerms,
    ) -> Result<ScanChunk, NoChunk> {
        if let Some(refusal) = self.source.take_refusal() {
            return Err(NoChunk::ended(Finished::Told(Box::new(refusal))));
        }
        let finished = match self.pages.rest() {
            None => None,
            Some(range) => Some(self.page(socket, range, turn).await),
        };
        let chunk = self.pages.take(out, finished, turn)?;
        socket.keep_scan_room(chunk.out.len());
        Ok(chunk)
    }

    /// A page of the backend; `None` when it did not come in time.
    async fn page(&self, socket: &mut Socket, range: Range, turn: ChunkTerms) -> Option<Finished> {
        let asked = self.source.ask(socket, range, self.pages.wanted(), turn);
        if let Err(finished) = asked.await {
            return Some(finished);
        }
        let seat = Rc::clone(socket.seat());
        let finished = seat.take(0);
        seat.next_round();
        socket.lane().refresh();
        finished
    }
}

/// The part of a scan that is still to come.
struct PageWalk {
    /// The part that is still to come; `None` at the end.
    rest: Option<Range>,
    left: Option<u64>,
    framing: Framing,
    show: ShownPart,
    direction: Direction,
    /// The record that was shown last.
    last: Bytes,
}

impl PageWalk {
    fn new(query: &Query) -> PageWalk {
        PageWalk {
            rest: (!query.is_empty()).then(|| range_of(query)),
            left: query.limit,
            framing: query.framing,
            show: query.show,
            direction: query.direction,
            last: Bytes::new(),
        }
    }

    /// The part that is still to come; `None` at the end.
    fn rest(&self) -> Option<Range> {
        self.rest.clone()
    }

    /// How many records would end the scan: the last one only says where it goes on.
    fn wanted(&self) -> usize {
        let left = self.left.and_then(|left| usize::try_from(left).ok());
        left.map_or(usize::MAX, |left| left.saturating_add(1))
    }

    fn next_key(&self) -> Vec<u8> {
        self.rest.as_ref().map(next_of).unwrap_or_default()
    }

    /// A page, after the earlier content of `out`. `finished` is the backend's answer about the
    /// rest; `None` when there was none to ask for, `Some(None)` when it did not say in time.
    fn take(
        &mut self,
        mut out: Vec<u8>,
        finished: Option<Option<Finished>>,
        turn: ChunkTerms,
    ) -> Result<ScanChunk, NoChunk> {
        let Some(finished) = finished else {
            return Ok(chunk(out, Some(WalkEnd::Complete), 0));
        };
        let (page, rest, failure) = match finished {
            Some(Finished::Page {
                records,
                rest,
                failure,
            }) => (records, rest, failure),
            ended => return Err(NoChunk::Ended(ended.map(Box::new))),
        };
        if turn.is_first
            && let Some(failure) = failure
        {
            return Err(NoChunk::ended(Finished::Outcome {
                outcome: failure,
                acks: 0,
                cell: None,
            }));
        }
        let mut records = 0;
        for (key, cell) in &page {
            if self.left == Some(0) {
                let next = match self.direction {
                    Direction::Forward => key,
                    Direction::Backward => &self.last,
                };
                return Ok(chunk(out, Some(WalkEnd::Limited(next.to_vec())), records));
            }
            framed::record(&mut out, self.framing, self.show, key, &cell.value);
            records += 1;
            self.left = self.left.map(|left| left - 1);
            self.last = key.clone();
        }
        let end = match (&rest, failure) {
            (Some(rest), Some(_)) => Some(WalkEnd::Stopped(next_of(rest))),
            (Some(_), None) => None,
            (None, _) => Some(WalkEnd::Complete),
        };
        self.rest = rest;
        Ok(chunk(out, end, records))
    }
}

/// The head leaves with the first records or the end, or when much of the request's time is over;
/// a failure after it is a trailer.
fn chunk(out: Vec<u8>, end: Option<WalkEnd>, records: u64) -> ScanChunk {
    ScanChunk {
        out,
        records,
        may_open: records > 0 || end.is_some(),
        end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::stages::Watch;
    use dendra_base::{Cell, Kind, Version};

    fn range(end: Option<&'static [u8]>, is_reverse: bool) -> Range {
        Range {
            start: Bytes::from_static(b"k"),
            end: end.map(Bytes::from_static),
            is_reverse,
            is_keys_only: false,
        }
    }

    #[test]
    fn the_head_waits_for_a_record_or_the_end() {
        let turn = ChunkTerms {
            is_first: true,
            asked_us: 0,
            deadline_us: 0,
            watch: Watch::OFF,
        };
        for (key, rest, may_open) in [
            (None, Some(range(None, false)), false),
            (Some("k"), Some(range(None, false)), true),
            (None, None, true),
        ] {
            let mut walk = PageWalk {
                rest: Some(range(None, false)),
                left: None,
                framing: Framing::Ndjson,
                show: ShownPart::KeysOnly,
                direction: Direction::Forward,
                last: Bytes::new(),
            };
            let cell = Cell {
                version: Version::ZERO,
                kind: Kind::Value,
                copies: 1,
                expiry_ms: None,
                born: 0,
                checksum: 0,
                value: Bytes::new(),
            };
            let page = Finished::Page {
                records: key
                    .map(|key| (Bytes::from(key), cell))
                    .into_iter()
                    .collect(),
                rest,
                failure: None,
            };
            let taken = walk.take(Vec::new(), Some(Some(page)), turn);
            let opens = taken.map(|chunk| chunk.may_open);
            assert_eq!(opens.ok(), Some(may_open), "{key:?}");
        }
    }

    #[test]
    fn a_cut_scan_says_where_its_own_direction_goes_on() {
        assert_eq!(next_of(&range(Some(b"m"), false)), b"k");
        assert_eq!(next_of(&range(Some(b"m"), true)), b"m");
    }
}
