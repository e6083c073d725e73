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
//! 2. The head is sent with the first chunk that may open the answer, so that a failure before has
//!    a status.
//! 3. A client that lost the right to the range gets no further chunk: the scan ends as one that
//!    was cut.
//! 4. A scan is counted once, at its end: as `cut` when the node ended it before its range did, and
//!    as 2xx when the client left.
//! 5. The trailer says `complete` exactly when nothing of the range is left out.
//!
//! Not here: how chunks are made (`alone.rs`, `peers/scan.rs`), framing (crate `wire`,
//! `http::records`).
//! See: docs/api.md, section "Many keys".

use super::{Connection, PendingScan};
use crate::clients::answers::Answers;
use crate::event_loop::handover::{ChunkTerms, NoChunk, WalkEnd};
use crate::event_loop::thread::EventLoop;
use crate::exchange::socket::ConnectionEnd;
use crate::measure::metrics::OpLabel;
use dendra_wire::http::response::{self, ScanEnd};
use std::rc::Rc;

/// A scan whose head was sent, to be counted when it is over.
struct OpenedScan {
    lane: Rc<EventLoop>,
    is_cut: bool,
}

impl OpenedScan {
    /// Scan whose head is formed now.
    fn new(lane: &Rc<EventLoop>, began_ns: u64) -> OpenedScan {
        lane.note_head_since(OpLabel::Scan, 200, began_ns);
        OpenedScan {
            lane: Rc::clone(lane),
            is_cut: false,
        }
    }
}

impl Drop for OpenedScan {
    fn drop(&mut self) {
        if self.is_cut {
            self.lane.metrics().count_cut(OpLabel::Scan);
        } else {
            self.lane.metrics().count(OpLabel::Scan, 200);
        }
    }
}

/// The node ends the scan before its range does.
fn cut(opened: &mut Option<OpenedScan>) {
    if let Some(opened) = opened {
        opened.is_cut = true;
    }
}

impl Connection {
    /// Answers a scan from its head to its trailer.
    pub(super) async fn stream(&mut self, pending: PendingScan) -> Result<(), ConnectionEnd> {
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
        let mut opened: Option<OpenedScan> = None;
        let mut out = self.lane.output_buffer();
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
            if turn.is_first && !chunk.may_open {
                out = chunk.out;
                continue;
            }
            if turn.is_first {
                opened = Some(OpenedScan::new(&self.lane, began_ns));
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
            out = self.lane.output_buffer();
            let write = self.lane.shared.settings.timeouts.write;
            turn.asked_us = self.lane.now_us();
            turn.deadline_us = self.socket.deadline_us(write);
        }
    }
}
