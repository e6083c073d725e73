//! A read that waits: `GET /v0/entity?id=K&wait_s=30`, the short form of a watch for one key.
//!
//! ```text
//! watch of the key ─► its state now ─► another one than the client knows? ─ yes ─► 200 │ 404
//!                          ▲                                             └─ no ──┐
//!                          └───────────────── the next event ◄───────────────────┤
//!                                                             the time is over ─► 304 │ 404
//! ```
//!
//! Invariants
//! 1. What is answered is what an event of a watch would tell: the state of a linearizable read at
//!    a moment behind the request's arrival.
//! 2. Without `If-None-Match` it waits while there is no value; with it, while the condition does
//!    not hold.
//! 3. No value is held while it waits for another state than the known one.
//!
//! Not here: opening and closing the watch (`watch.rs`), bytes of the answer (`answers.rs`).
//! See: docs/api.md, docs/watch.md.

use super::watch::ServedWatch;
use super::{Connection, PendingPoll};
use crate::clients::answers;
use crate::event_loop::watches::{WatchNews, WatchTerms};
use crate::exchange::socket::ConnectionEnd;
use crate::measure::metrics::OpLabel;
use crate::retry_after::retry_after_s;
use crate::waiting::status;
use bytes::Bytes;
use dendra_base::{Cell, CellRef};
use dendra_node::Known;
use dendra_watch::{From, Span, WatchEvent};
use dendra_wire::{Condition, Refusal};
use std::time::Duration;

/// The end of a wait.
enum Polled {
    /// The state of the key.
    State(Option<Cell>),
    /// No state was known in time.
    Unknown,
    /// No state can be told.
    Refused(Refusal),
}

/// What the events of the key have told.
#[derive(Default)]
struct PolledState {
    /// The state was told to its end.
    is_known: bool,
    cell: Option<Cell>,
}

impl PolledState {
    fn take(&mut self, stored_key: &[u8], event: WatchEvent) -> Result<(), Refusal> {
        match event {
            WatchEvent::Put {
                version,
                value,
                expiry_ms,
                ..
            } => {
                let CellRef {
                    kind,
                    copies,
                    born,
                    checksum,
                    ..
                } = CellRef::value(stored_key, version, &value);
                self.cell = Some(Cell {
                    version,
                    kind,
                    copies,
                    expiry_ms,
                    born,
                    checksum,
                    value,
                });
            }
            WatchEvent::Delete { .. } | WatchEvent::Expire { .. } => self.cell = None,
            WatchEvent::Live => self.is_known = true,
            WatchEvent::Heartbeat => {}
            WatchEvent::Reset => *self = PolledState::default(),
            WatchEvent::End { .. } => return Err(stopping()),
        }
        Ok(())
    }

    /// Is it known, and another state than the client knows?
    fn is_news(&self, condition: &Condition) -> bool {
        let current = self.cell.as_ref().map(|cell| cell.version);
        let is_other = match condition {
            Condition::None => current.is_some(),
            condition => condition.holds(current),
        };
        self.is_known && is_other
    }

    fn end(self) -> Polled {
        if self.is_known {
            Polled::State(self.cell)
        } else {
            Polled::Unknown
        }
    }
}

fn stopping() -> Refusal {
    Refusal::not_serving("this node stops: ask another one", retry_after_s())
}

impl Connection {
    /// Answers a read that waits for another state.
    pub(super) async fn poll(&mut self, pending: PendingPoll) -> Result<(), ConnectionEnd> {
        self.socket.flush().await?;
        let _held = self.socket.hold_input();
        let raw = pending.key.raw();
        let of_key = WatchTerms {
            span: Span {
                start: Bytes::copy_from_slice(raw),
                end: Some([raw, &[0]].concat().into()),
            },
            from: From::State,
            heartbeat_us: u64::from(dendra_wire::limits::HEARTBEAT_S_MAX) * 1_000_000,
        };
        let polled = match self.enter_watch(of_key) {
            Ok(watch) => self.next_state(&watch, &pending).await?,
            Err(refusal) => Polled::Refused(refusal),
        };
        let polled = match self.judge_again(pending.login.as_ref(), pending.key.as_stored()) {
            Ok(()) => polled,
            Err(refusal) => Polled::Refused(refusal),
        };
        let mut terms = pending.terms;
        if self.lane.is_draining() {
            terms.style = terms.style.closing();
            self.is_closing = true;
        }
        self.socket.prepare_out();
        let out = self.socket.out();
        let status = match polled {
            Polled::State(cell) => {
                let (condition, stored) = (&pending.condition, pending.key.as_stored());
                let cell = cell.as_ref().map(Cell::as_ref);
                answers::show(&self.lane, out, condition, &terms, stored, cell)
            }
            Polled::Unknown => {
                status::write(out, &terms, &terms.not_enough(Known::NotApplied), b"")
            }
            Polled::Refused(refusal) => status::write_refusal(out, terms.style, &refusal),
        };
        // Its time is the client's choice: it is no time of a read.
        self.lane
            .finish_since(OpLabel::Other, status, pending.began_ns);
        Ok(())
    }

    /// The state of the key once it is another one, or when the time is over.
    async fn next_state(
        &mut self,
        watch: &ServedWatch,
        pending: &PendingPoll,
    ) -> Result<Polled, ConnectionEnd> {
        let mut state = PolledState::default();
        loop {
            let by_us = if state.is_known {
                pending.until_us
            } else {
                pending.known_by_us
            };
            let left = Duration::from_micros(by_us.saturating_sub(self.lane.now_us()));
            let came = tokio::time::timeout(left, self.socket.news(watch.want_more())).await;
            self.lane.refresh();
            let Ok(news) = came else {
                return Ok(state.end());
            };
            let told = match news? {
                Some(WatchNews::Events(told)) => told,
                Some(WatchNews::Damaged) => return Ok(Polled::Refused(Refusal::damaged())),
                None if state.is_known => return Ok(state.end()),
                None => return Ok(Polled::Refused(stopping())),
            };
            for event in told.events {
                if let Err(refusal) = state.take(pending.key.as_stored(), event) {
                    return Ok(Polled::Refused(refusal));
                }
            }
            if state.is_news(&pending.condition) {
                return Ok(state.end());
            }
            if state.is_known
                && let Some(cell) = &mut state.cell
            {
                cell.value = Bytes::new();
            }
        }
    }
}
