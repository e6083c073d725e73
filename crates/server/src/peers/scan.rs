//! Scans over the whole cluster: a page from the node, sent, then the next one.
//!
//! ```text
//! Scan { range } ─► node asks all members ─► Scanned { records, rest } ─► chunks ─► socket took them ─► Scan { rest }
//! ```
//!
//! Invariants
//! 1. A scan holds one page, for any size of the answer; the next is asked for when the client has
//!    taken this one. While it is asked for, room is held for all that the members may send.
//! 2. The head is sent with the first page, so that a failure before has a status.
//! 3. The trailer says `complete` exactly when the node said so of every page.
//! 4. The receipt says `eventual`: the scan does not wait until a majority holds the cells.
//!
//! Not here: merging and counting members (crate `node`), scans of one node's store (`alone.rs` of
//! the crate).
//! See: docs/api.md, section "Many keys".

use super::{Agent, waiting};
use crate::admin::metrics::Refused;
use crate::clients::finished::Finished;
use crate::clients::socket::Socket;
use crate::event_loop::handover::{ChunkTerms, NoChunk, ScanChunk, WalkEnd};
use crate::limits;
use bytes::Bytes;
use dendra_base::Cell;
use dendra_base::peer::Range;
use dendra_node::Outcome;
use dendra_node::step::Event;
use dendra_wire::http::Framing;
use dendra_wire::http::records::{self, Show};
use dendra_wire::route::{Direction, Scan as Query};
use std::rc::Rc;

/// The range of a query, in the words of members.
fn range_of(query: &Query) -> Range {
    // Stored keys of the clients' space, or its end: the byte behind it.
    let raw = |stored: &[u8]| Bytes::copy_from_slice(stored.get(1..).unwrap_or_default());
    let is_bounded = query.end.first() == query.start.first();
    Range {
        start: raw(&query.start),
        end: is_bounded.then(|| raw(&query.end)),
        is_reverse: query.direction == Direction::Backward,
        is_keys_only: query.show == Show::KeysOnly,
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

struct Page {
    records: Vec<(Bytes, Cell)>,
    rest: Option<Range>,
    failure: Option<Outcome>,
}

/// A scan of the cluster between two pages.
pub(crate) struct ClusterWalk {
    agent: Rc<Agent>,
    /// The part that is still to come; `None` at the end.
    rest: Option<Range>,
    left: Option<u64>,
    framing: Framing,
    show: Show,
    direction: Direction,
    /// The record that was shown last.
    last: Bytes,
}

impl ClusterWalk {
    /// A scan of `query`'s range.
    pub(super) fn new(agent: Rc<Agent>, query: &Query) -> ClusterWalk {
        ClusterWalk {
            agent,
            rest: (!query.is_empty()).then(|| range_of(query)),
            left: query.limit,
            framing: query.framing,
            show: query.show,
            direction: query.direction,
            last: Bytes::new(),
        }
    }

    /// Where it goes on, in the client's words.
    pub(crate) fn next_key(&self) -> Vec<u8> {
        self.rest.as_ref().map(next_of).unwrap_or_default()
    }

    /// The next page, behind the earlier content of `out`.
    pub(crate) async fn next(
        &mut self,
        socket: &mut Socket,
        mut out: Vec<u8>,
        turn: ChunkTerms,
    ) -> Result<ScanChunk, NoChunk> {
        let Some(range) = self.rest.clone() else {
            return Ok(chunk(out, Some(WalkEnd::Complete)));
        };
        let finished = self.ask(socket, range, turn).await;
        let page = match finished {
            Some(Finished::Page {
                records,
                rest,
                failure,
            }) => Page {
                records,
                rest,
                failure,
            },
            ended => return Err(NoChunk::Ended(ended.map(Box::new))),
        };
        if turn.is_first
            && let Some(failure) = page.failure
        {
            return Err(NoChunk::ended(Finished::Outcome {
                outcome: failure,
                acks: 0,
                cell: None,
            }));
        }
        for (key, cell) in &page.records {
            if self.left == Some(0) {
                let next = match self.direction {
                    Direction::Forward => key,
                    Direction::Backward => &self.last,
                };
                return Ok(chunk(out, Some(WalkEnd::Limited(next.to_vec()))));
            }
            records::record(&mut out, self.framing, self.show, key, &cell.value);
            self.left = self.left.map(|left| left - 1);
            self.last = key.clone();
        }
        socket.keep_scan_room(out.len());
        let end = match (&page.rest, page.failure) {
            (Some(rest), Some(_)) => Some(WalkEnd::Stopped(next_of(rest))),
            (Some(_), None) => None,
            (None, _) => Some(WalkEnd::Complete),
        };
        self.rest = page.rest;
        Ok(chunk(out, end))
    }

    /// Asks the node for a page; `None` when it did not say in time.
    async fn ask(&self, socket: &mut Socket, range: Range, turn: ChunkTerms) -> Option<Finished> {
        let lane = Rc::clone(socket.lane());
        // The bytes that the members may send for it: each a page, and one record more.
        let longest = limits::SCAN_PAGE_BYTES + lane.shared.settings.value_bytes_max;
        let most = longest * usize::from(lane.routes().nodes);
        if !socket.wait_for_scan_room(most, turn.deadline_us).await {
            return Some(Finished::Refused(Refused::Bytes));
        }
        let Some(permit) = lane.hold_request() else {
            return Some(Finished::Refused(Refused::Requests));
        };
        let seat = Rc::clone(socket.seat());
        let client = self.agent.ticket(&seat, permit);
        self.agent.post(Event::Scan {
            client,
            range,
            bytes: limits::SCAN_PAGE_BYTES as u32,
            deadline_us: turn.deadline_us,
        });
        let clients = std::iter::once(client);
        // An early end leaves the place empty, which is the same answer.
        let _waited = waiting::wait(&self.agent, socket, clients, turn.deadline_us).await;
        let finished = seat.take(0);
        seat.next_round();
        lane.refresh();
        finished
    }
}

/// The head may leave with any page: a failure behind it is a trailer.
fn chunk(out: Vec<u8>, end: Option<WalkEnd>) -> ScanChunk {
    ScanChunk {
        out,
        end,
        may_open: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(end: Option<&'static [u8]>, is_reverse: bool) -> Range {
        Range {
            start: Bytes::from_static(b"k"),
            end: end.map(Bytes::from_static),
            is_reverse,
            is_keys_only: false,
        }
    }

    #[test]
    fn a_cut_scan_says_where_its_own_direction_goes_on() {
        assert_eq!(next_of(&range(Some(b"m"), false)), b"k");
        assert_eq!(next_of(&range(Some(b"m"), true)), b"m");
    }
}
