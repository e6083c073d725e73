//! Scans: chunks made by a backend, pulled by the client's socket.
//!
//! ```text
//! walk ─► next chunk ─► socket: write all of it ─► next chunk
//!            ▲                                        │
//!            └─── only when the client took the last ─┘
//! ```
//!
//! Invariants
//! 1. A scan holds one chunk, for any size of the answer. Room for the chunk is taken before it is
//!    made, and is held until the socket has it.
//! 2. The head is sent with the first chunk that has records, or when half of the request's time is
//!    over, so that a failure before has a status. From then on each chunk has time of its own, so
//!    a walk over dead records gets to its end.
//! 3. A client that lost the right to the range gets no further chunk: the scan ends as one that
//!    was cut.
//! 4. A scan is counted once, at its end: as `cut` when the node ended it before its range did, and
//!    as 2xx when the client left.
//! 5. The trailer says `complete` exactly when nothing of the range is left out.
//!
//! Not here: how chunks are made (`backend/`, `peers/scan.rs`), framing (crate `wire`,
//! `http::records`).
//! See: docs/api.md, section "Many keys".

use super::{Connection, PendingScan};
use crate::clients::answers::Answers;
use crate::event_loop::handover::{ChunkTerms, NoChunk, WalkEnd};
use crate::event_loop::thread::EventLoop;
use crate::exchange::socket::ConnectionEnd;
use crate::limits;
use crate::measure::metrics::OpLabel;
use dendra_wire::http::records::ShownPart;
use dendra_wire::http::response::{self, ScanEnd};
use std::rc::Rc;

/// An answer whose head was sent, to be counted when it is over.
pub(super) struct OpenedAnswer {
    lane: Rc<EventLoop>,
    op: OpLabel,
    is_cut: bool,
}

impl OpenedAnswer {
    /// Answer whose head is formed now.
    pub(super) fn new(lane: &Rc<EventLoop>, op: OpLabel, began_ns: u64) -> OpenedAnswer {
        lane.note_head_since(op, 200, began_ns);
        OpenedAnswer {
            lane: Rc::clone(lane),
            op,
            is_cut: false,
        }
    }

    /// The node ends it before all of it is there.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
    }
}

impl Drop for OpenedAnswer {
    fn drop(&mut self) {
        if self.is_cut {
            self.lane.metrics().count_cut(self.op);
        } else {
            self.lane.metrics().count(self.op, 200);
        }
    }
}

/// The node ends the scan before its range does.
fn cut(opened: &mut Option<OpenedAnswer>) {
    if let Some(opened) = opened {
        opened.cut();
    }
}

impl Connection {
    /// Counts the records of a range: those of all chunks up to a bound of work, or up to half of
    /// the request's time.
    async fn count(&mut self, pending: PendingScan) -> Result<(), ConnectionEnd> {
        self.socket.flush().await?;
        let _held = self.socket.hold_input();
        let PendingScan {
            login,
            query,
            style,
            began_ns,
            ..
        } = pending;
        let backend = self.backend.of_scan(query.scope);
        let terms = backend.scan_terms(&self.lane, style);
        let mut walk = backend.walk(&self.lane, &query);
        let mut turn = ChunkTerms {
            is_first: true,
            asked_us: pending.came_us,
            deadline_us: pending.deadline_us,
            watch: pending.watch,
        };
        let half_us = pending.came_us.midpoint(pending.deadline_us);
        let (mut count, mut next) = (0, None);
        for _ in 0..limits::COUNT_PAGES_MAX {
            let chunk = match walk.next(&mut self.socket, Vec::new(), turn).await {
                Ok(chunk) => chunk,
                Err(NoChunk::Ended(finished)) if turn.is_first => {
                    let mut answers = Answers {
                        lane: &self.lane,
                        backend: &backend,
                        out: self.socket.out(),
                    };
                    let status = answers.fail(OpLabel::Scan, &terms, finished.as_deref());
                    self.lane.finish_since(OpLabel::Scan, status, began_ns);
                    return Ok(());
                }
                // What was counted stays true, and `next` is behind it.
                Err(NoChunk::Ended(_)) => break,
                Err(NoChunk::Gone) => return Err(ConnectionEnd::HungUp),
            };
            turn.is_first = false;
            count += chunk.records;
            let is_over = chunk.end.is_some() || self.lane.now_us() >= half_us;
            next = match chunk.end {
                Some(WalkEnd::Complete) => None,
                Some(WalkEnd::Limited(at) | WalkEnd::Stopped(at)) => Some(at),
                None => Some(walk.next_key().ok_or(ConnectionEnd::Done)?),
            };
            if is_over || self.lane.is_draining() || self.judge_again(login.as_ref(), b"").is_err()
            {
                break;
            }
        }
        self.socket.keep_scan_room(0);
        response::count(
            self.socket.out(),
            style,
            terms.receipt,
            count,
            next.as_deref(),
        );
        self.lane.finish_since(OpLabel::Scan, 200, began_ns);
        Ok(())
    }

    /// Answers a scan from its head to its trailer.
    pub(super) async fn stream(&mut self, pending: PendingScan) -> Result<(), ConnectionEnd> {
        if pending.query.show == ShownPart::Number {
            return self.count(pending).await;
        }
        self.socket.flush().await?;
        let _held = self.socket.hold_input();
        let PendingScan {
            login,
            query,
            style,
            began_ns,
            watch,
            ..
        } = pending;
        let backend = self.backend.of_scan(query.scope);
        let terms = backend.scan_terms(&self.lane, style);
        let mut walk = backend.walk(&self.lane, &query);
        let mut turn = ChunkTerms {
            is_first: true,
            asked_us: pending.came_us,
            deadline_us: pending.deadline_us,
            watch,
        };
        let half_us = pending.came_us.midpoint(pending.deadline_us);
        let mut opened: Option<OpenedAnswer> = None;
        let mut out = self.lane.buffers.output();
        response::scan_head(&mut out, style, query.framing, terms.receipt);
        loop {
            let chunk = match walk.next(&mut self.socket, out, turn).await {
                Ok(chunk) => chunk,
                Err(NoChunk::Gone) if turn.is_first => return Err(ConnectionEnd::HungUp),
                Err(NoChunk::Ended(finished)) if turn.is_first => {
                    let mut answers = Answers {
                        lane: &self.lane,
                        backend: &backend,
                        out: self.socket.out(),
                    };
                    let status = answers.fail(OpLabel::Scan, &terms, finished.as_deref());
                    self.lane.finish_since(OpLabel::Scan, status, began_ns);
                    return Ok(());
                }
                Err(NoChunk::Ended(_)) => {
                    cut(&mut opened);
                    // Lost together with a worker: the client sees no trailer.
                    let next = walk.next_key().ok_or(ConnectionEnd::Done)?;
                    let end = ScanEnd::Stopped { next: &next };
                    response::scan_end(self.socket.out(), query.framing, end);
                    return Ok(());
                }
                Err(NoChunk::Gone) => return Err(ConnectionEnd::Done),
            };
            if turn.is_first && !chunk.may_open && self.lane.now_us() < half_us {
                out = chunk.out;
                continue;
            }
            if turn.is_first {
                opened = Some(OpenedAnswer::new(&self.lane, OpLabel::Scan, began_ns));
                turn.is_first = false;
            }
            self.socket.add_unsent(OpLabel::Scan, watch);
            self.socket.replace_out(chunk.out);
            if let Some(end) = chunk.end {
                let end = match &end {
                    WalkEnd::Complete => ScanEnd::Complete,
                    WalkEnd::Limited(next) => ScanEnd::Limited { next },
                    WalkEnd::Stopped(next) => {
                        cut(&mut opened);
                        ScanEnd::Stopped { next }
                    }
                };
                response::scan_end(self.socket.out(), query.framing, end);
                return Ok(());
            }
            self.socket.flush().await?;
            let is_draining = self.lane.is_draining();
            if is_draining || self.judge_again(login.as_ref(), b"").is_err() {
                self.is_closing |= is_draining;
                cut(&mut opened);
                let next = walk.next_key().unwrap_or_default();
                let end = ScanEnd::Stopped { next: &next };
                response::scan_end(self.socket.out(), query.framing, end);
                return Ok(());
            }
            out = self.lane.buffers.output();
            let write = self.lane.parts.settings.timeouts.write;
            turn.asked_us = self.lane.now_us();
            turn.deadline_us = self.socket.deadline_us(write);
        }
    }
}
