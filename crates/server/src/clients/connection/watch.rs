//! Watches: events told by the loop's hub, pulled by the client's socket.
//!
//! ```text
//! open ─► head ─► more ─► news ─► still its right? ─► lines, the last one with a token ─► flush ─┐
//!                   ▲                                                                          │
//!                   └──────────────── only when the client took them ──────────────────────────┘
//! revoked, draining, too slow, damaged ─► a line `end` with the last token
//! ```
//!
//! Invariants
//! 1. A watch has one batch of events at most, and asks for the next one when the socket has it.
//! 2. A client that lost the right to the range is told nothing more of it.
//! 3. A token is told behind all events that it covers. The one of an `end` is the last that was
//!    told, or that the watch began with.
//! 4. No deadline ends a watch that waits for changes.
//!
//! Not here: which events (crate `watch`), the bytes of one (crate `wire`, `http::events`).
//! See: docs/watch.md.

use super::scan::OpenedAnswer;
use super::{Connection, PendingWatch};
use crate::clients::backend::Backend;
use crate::event_loop::thread::EventLoop;
use crate::event_loop::watches::{ToldEvents, WatchNews, WatchSeat, WatchTerms};
use crate::exchange::socket::ConnectionEnd;
use crate::limits;
use crate::measure::metrics::OpLabel;
use crate::retry_after::retry_after_s;
use crate::waiting::status;
use dendra_node::{Gate, Permit};
use dendra_watch::{EndReason, From, Span, WatchEvent, WatchId, WatchToken};
use dendra_wire::Refusal;
use dendra_wire::http::EventFraming;
use dendra_wire::http::events::{ShownEvent, event, events_end};
use dendra_wire::http::response;
use dendra_wire::route::{WatchFrom, WatchQuery, bad_token};
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of an event beside its key and its value, about.
const EVENT_BYTES: usize = 128;

/// A watch that is open, and closed when dropped.
pub(super) struct ServedWatch {
    lane: Rc<EventLoop>,
    backend: Backend,
    id: WatchId,
    seat: Rc<WatchSeat>,
    _place: Permit<Arc<Gate>>,
}

impl ServedWatch {
    /// Asks for the next events, which come to the seat.
    pub(super) fn want_more(&self) -> &WatchSeat {
        self.backend.watch_more(&self.lane, self.id);
        &self.seat
    }
}

impl Drop for ServedWatch {
    fn drop(&mut self) {
        self.lane.watches().leave(self.id);
        self.backend.watch_close(&self.lane, self.id);
    }
}

/// How the lines of a watch are written.
struct EventLines {
    framing: EventFraming,
    shows_values: bool,
    /// What tokens are sealed with.
    seal: u64,
    /// The token that was told last, in bytes.
    last: Option<Vec<u8>>,
}

/// Why the node ends a watch: a word, and a sentence.
type LastWords = (&'static str, &'static str);

const DRAINING: LastWords = (
    "draining",
    "this node stops: go on from the token, at another node",
);
const SLOW: LastWords = (
    "slow-reader",
    "keys change faster than the events are read: go on from the token, perhaps without values",
);
const DAMAGED: LastWords = (
    "damaged",
    "a part of the range cannot be read from the disk: this node's log has the reason",
);
const CROWDED: LastWords = (
    "overloaded",
    "there is no room for the next events: go on from the token in a moment",
);

/// About as many bytes as the events take as lines.
fn bytes_of(told: &ToldEvents) -> usize {
    let bytes = told.events.iter().map(|told_event| match told_event {
        WatchEvent::Put { key, value, .. } => EVENT_BYTES + key.len() + value.len(),
        WatchEvent::Delete { key, .. } | WatchEvent::Expire { key, .. } => EVENT_BYTES + key.len(),
        WatchEvent::Live | WatchEvent::Heartbeat | WatchEvent::Reset | WatchEvent::End { .. } => {
            EVENT_BYTES
        }
    });
    bytes.sum()
}

impl EventLines {
    /// Appends the events, in one chunk.
    fn append(&mut self, out: &mut Vec<u8>, told: &ToldEvents) {
        let from = out.len();
        if told.events.contains(&WatchEvent::Reset) {
            // The client forgets what the token stands for.
            self.last = None;
        }
        let token = told.token.as_ref().map(|token| token.encode(self.seal));
        self.last = token.or(self.last.take());
        let is_behind_all = told.token.is_some() || told.is_over;
        let last_at = told.events.len().saturating_sub(1);
        for (at, told_event) in told.events.iter().enumerate() {
            let is_last = at == last_at && is_behind_all;
            let shown_token = self.last.as_deref().filter(|_| is_last);
            event(out, self.framing, &self.shown(told_event), shown_token);
        }
        dendra_wire::http::lines::wrap_chunk(out, from);
    }

    fn shown<'a>(&self, told_event: &'a WatchEvent) -> ShownEvent<'a> {
        match told_event {
            WatchEvent::Put {
                key,
                version,
                value,
                expiry_ms,
            } => ShownEvent::Put {
                key,
                version: *version,
                value: self.shows_values.then_some(value),
                expiry_ms: *expiry_ms,
            },
            WatchEvent::Delete { key, version } => ShownEvent::Delete {
                key,
                version: *version,
            },
            WatchEvent::Expire { key, version } => ShownEvent::Expire {
                key,
                version: *version,
            },
            WatchEvent::Live => ShownEvent::Live,
            WatchEvent::Heartbeat => ShownEvent::Heartbeat,
            WatchEvent::Reset => ShownEvent::Reset,
            WatchEvent::End {
                reason: EndReason::SlowReader,
            } => last_line(SLOW),
        }
    }
}

fn last_line((reason, message): LastWords) -> ShownEvent<'static> {
    ShownEvent::End { reason, message }
}

impl Connection {
    /// Answers a watch from its head to its end.
    pub(super) async fn follow(&mut self, pending: PendingWatch) -> Result<(), ConnectionEnd> {
        self.socket.flush().await?;
        let _held = self.socket.hold_input();
        let PendingWatch {
            login,
            query,
            style,
            began_ns,
        } = pending;
        let mut lines = EventLines {
            framing: query.framing,
            shows_values: query.shows_values,
            seal: self.backend.watch_seal(&self.lane),
            last: None,
        };
        let watch = match self.open_watch(&query, &mut lines) {
            Ok(watch) => watch,
            Err(refusal) => {
                let status = status::write_refusal(self.socket.out(), style, &refusal);
                self.lane.finish_since(OpLabel::Other, status, began_ns);
                return Ok(());
            }
        };
        let mut opened = OpenedAnswer::new(&self.lane, OpLabel::Other, began_ns);
        self.socket.prepare_out();
        response::events_head(self.socket.out(), style, query.framing);
        self.socket.flush().await?;
        let last_words = loop {
            let Some(news) = self.socket.news(watch.want_more()).await? else {
                self.is_closing = true;
                break Some(DRAINING);
            };
            let told = match news {
                WatchNews::Events(told) => told,
                WatchNews::Damaged => break Some(DAMAGED),
            };
            let bytes = bytes_of(&told);
            let write = self.lane.parts.settings.timeouts.write;
            let until_us = self.socket.deadline_us(write);
            if bytes > limits::UNCOUNTED_BYTES_MAX
                && !self.socket.wait_for_scan_room(bytes, until_us).await
            {
                break Some(CROWDED);
            }
            // Behind the wait for room, which may be long.
            if let Err(refusal) = self.judge_again(login.as_ref(), b"") {
                opened.cut();
                self.end_events(&lines, (refusal.code, &refusal.message));
                return Ok(());
            }
            self.socket.prepare_out();
            lines.append(self.socket.out(), &told);
            let count = told.events.len() as u64;
            self.lane.metrics().watch_events.add(count);
            if told.is_over {
                break None;
            }
            drop(told);
            self.socket.flush().await?;
        };
        opened.cut();
        match last_words {
            Some((reason, message)) => self.end_events(&lines, (reason, message)),
            None => events_end(self.socket.out()),
        }
        Ok(())
    }

    /// Tells the client why there is nothing more, and where to go on.
    fn end_events(&mut self, lines: &EventLines, (reason, message): (&str, &str)) {
        self.socket.prepare_out();
        let out = self.socket.out();
        let from = out.len();
        let last = ShownEvent::End { reason, message };
        event(out, lines.framing, &last, lines.last.as_deref());
        dendra_wire::http::lines::wrap_chunk(out, from);
        events_end(out);
    }

    /// Opens the watch that was asked for.
    fn open_watch(
        &self,
        query: &WatchQuery,
        lines: &mut EventLines,
    ) -> Result<ServedWatch, Refusal> {
        let from = match &query.from {
            WatchFrom::State => From::State,
            WatchFrom::Now => From::Now,
            WatchFrom::Token(bytes) => {
                let token = WatchToken::decode(bytes, lines.seal);
                lines.last = Some(bytes.clone());
                From::Token(token.map_err(|fault| bad_token("from", fault))?)
            }
        };
        let raw = |stored: &[u8]| bytes::Bytes::copy_from_slice(&stored[1..]);
        let terms = WatchTerms {
            span: Span {
                start: raw(&query.start),
                end: Some(raw(&query.end)),
            },
            from,
            heartbeat_us: u64::from(query.heartbeat_s) * 1_000_000,
        };
        self.enter_watch(terms)
    }

    /// Opens a watch, if there is room for one more.
    pub(super) fn enter_watch(&self, terms: WatchTerms) -> Result<ServedWatch, Refusal> {
        let place = Gate::offer(Arc::clone(&self.lane.parts.budgets.watches), 1);
        let place = place.ok_or_else(|| {
            let sentence = "there are as many watches as there may be";
            Refusal::overloaded(sentence, retry_after_s())
        })?;
        let (id, seat) = self.lane.watches().enter(&self.seat);
        let watch = ServedWatch {
            lane: Rc::clone(&self.lane),
            backend: self.backend.clone(),
            id,
            seat,
            _place: place,
        };
        watch.backend.watch_open(&self.lane, id, terms)?;
        Ok(watch)
    }
}
