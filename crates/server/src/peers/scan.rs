//! Scans over the whole cluster: a page from the node, sent, then the next one.
//!
//! ```text
//! Scan { range } ─► node asks all members ─► Scanned { records, rest } ─► chunks ─► socket took them ─► Scan { rest }
//! ```
//!
//! Invariants
//! 1. A scan holds one page, whatever the size of the answer; the next is asked for when the client has
//!    taken this one. While it is asked for, room is held for all that the members may send.
//! 2. The head is sent with the first page, so that a failure before has a status.
//! 3. The trailer says `complete` exactly when the node said so of every page.
//! 4. The receipt says `eventual`: nothing waits until a majority holds what is shown.
//!
//! Not here: merging and counting members (crate `node`), scans of what one node holds (`scan.rs` of
//! the crate).
//! See: docs/api.md, section "Many keys".

use super::{Finished, operation};
use crate::connection::{Connection, End};
use crate::limits;
use crate::metrics::{Op, Refused, Share};
use crate::scan::PendingScan;
use crate::status::{self, Terms};
use bytes::Bytes;
use dendra_base::Cell;
use dendra_base::peer::Range;
use dendra_node::step::Event;
use dendra_node::{Known, Outcome};
use dendra_wire::Refusal;
use dendra_wire::http::Connection as Persistence;
use dendra_wire::http::records::{self, Show};
use dendra_wire::http::response::{self, ScanEnd};
use dendra_wire::route::{Direction, Scan as Query};

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

impl Connection {
    /// Answers a scan of the cluster from its head to its trailer.
    pub(crate) async fn stream_cluster(&mut self, pending: PendingScan) -> Result<(), End> {
        self.flush().await?;
        let _held = self.hold_input();
        let quorum = self.lane.quorum();
        let durability = self.lane.shared.settings.durability;
        let routes = &self.lane.routes;
        let terms = Terms::new(pending.style, quorum, durability, routes).of_scan(routes.nodes);
        let query = &pending.query;
        let mut left = query.limit;
        let mut rest = (!query.is_empty()).then(|| range_of(query));
        let mut deadline_us = pending.deadline_us;
        let mut is_first = true;
        let mut last = Bytes::new();
        loop {
            let page = match rest.take() {
                None => Page {
                    records: Vec::new(),
                    rest: None,
                    failure: None,
                },
                Some(range) => match self.page(range.clone(), &terms, deadline_us).await {
                    Ok(page) => page,
                    Err(refused) if is_first => {
                        self.refuse_scan(&terms, &pending, refused);
                        return Ok(());
                    }
                    Err(_) => Page {
                        records: Vec::new(),
                        rest: Some(range),
                        failure: Some(terms.not_enough(Known::NotApplied)),
                    },
                },
            };
            if let Some(failure) = page.failure.filter(|_| is_first) {
                let status =
                    operation::refuse(&self.lane, &mut self.out, Op::Scan, &terms, &failure);
                self.note_scan(&terms, &pending, status);
                return Ok(());
            }
            if is_first {
                response::scan_head(&mut self.out, terms.style, query.framing, terms.receipt);
                self.note_scan(&terms, &pending, 200);
                is_first = false;
            }
            for (key, cell) in &page.records {
                if left == Some(0) {
                    let next = match query.direction {
                        Direction::Forward => key,
                        Direction::Backward => &last,
                    };
                    self.end_scan(query, ScanEnd::Limited { next });
                    return Ok(());
                }
                records::record(&mut self.out, query.framing, query.show, key, &cell.value);
                left = left.map(|left| left - 1);
                last = key.clone();
            }
            drop(page.records);
            if let Some((room, share)) = &mut self.out_room {
                room.keep(self.out.len());
                share.keep(self.out.len());
            }
            match (page.rest, page.failure) {
                (Some(rest), Some(_)) => {
                    let next = next_of(&rest);
                    self.end_scan(query, ScanEnd::Stopped { next: &next });
                    return Ok(());
                }
                (None, _) => {
                    self.end_scan(query, ScanEnd::Complete);
                    return Ok(());
                }
                (Some(more), None) => rest = Some(more),
            }
            self.flush().await?;
            if self.lane.is_draining() {
                self.is_closing = true;
                let next = rest.as_ref().map(next_of).unwrap_or_default();
                self.end_scan(query, ScanEnd::Stopped { next: &next });
                return Ok(());
            }
            deadline_us = self.deadline_us(self.lane.shared.settings.timeouts.write);
        }
    }

    async fn page(
        &mut self,
        range: Range,
        terms: &Terms,
        deadline_us: u64,
    ) -> Result<Page, Refused> {
        let agent = self
            .lane
            .agent()
            .expect("a node by itself never comes here");
        // What the members may send for it: each a page, and one record more.
        let longest = limits::SCAN_PAGE_BYTES + self.lane.shared.settings.value_bytes_max;
        let most = longest * usize::from(self.lane.routes.nodes);
        if !self.wait_for_scan_room(most, deadline_us).await {
            return Err(Refused::Bytes);
        }
        let permit = self.lane.hold_request().ok_or(Refused::Requests)?;
        let client = agent.ticket(&self.seat, permit);
        agent.post(Event::Scan {
            client,
            range: range.clone(),
            bytes: limits::SCAN_PAGE_BYTES as u32,
            deadline_us,
        });
        let last_us = deadline_us.saturating_add(limits::OUTCOME_GRACE.as_micros() as u64);
        // An early end leaves the place empty, which is the same answer.
        let _waited = self.wait_for_node(Some(client), last_us).await;
        let finished = self.seat.take_finished(0);
        self.seat.next_round();
        self.lane.refresh();
        Ok(match finished {
            Some(Finished::Page {
                records,
                rest,
                failure,
            }) => Page {
                records,
                rest,
                failure,
            },
            Some(Finished::Operation { .. } | Finished::Reply(_)) | None => Page {
                records: Vec::new(),
                rest: Some(range),
                failure: Some(terms.not_enough(Known::NotApplied)),
            },
        })
    }

    fn end_scan(&mut self, query: &Query, end: ScanEnd<'_>) {
        response::scan_end(&mut self.out, query.framing, end);
    }

    fn refuse_scan(&mut self, terms: &Terms, pending: &PendingScan, refused: Refused) {
        self.lane.metrics().refuse(Share::Scans, refused);
        let refusal: Refusal = status::refused(refused);
        let status = status::write_refusal(&mut self.out, terms.style, &refusal);
        self.note_scan(terms, pending, status);
    }

    fn note_scan(&mut self, terms: &Terms, pending: &PendingScan, status: u16) {
        self.lane.finish_since(Op::Scan, status, pending.began_ns);
        self.is_closing |= terms.style.connection == Persistence::Close;
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
