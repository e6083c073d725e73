//! Refusals of the request in front, and the body that may follow its head.
//!
//! Invariants
//! 1. An answer leaves in the order of the requests: while operations in front wait, nothing is
//!    refused.
//! 2. The connection goes on behind a refusal only where the server knows where the next request
//!    begins.
//!
//! Not here: the refusals' bytes (`waiting/status.rs`), which requests are refused (`requests.rs`).
//! See: docs/api.md, "Errors".

use super::{Connection, FrontStep, NextWait};
use crate::exchange::body::BodyReader;
use crate::exchange::socket::Linger;
use crate::limits;
use crate::measure::metrics::{CapacityShare, OpLabel, RefusalCause};
use crate::waiting::status;
use dendra_wire::Refusal;
use dendra_wire::http::response::Style;
use dendra_wire::http::{Body, Head, Method};
use dendra_wire::route::Entity;

impl Connection {
    /// Forms a refusal and sees to the body that may follow its head. While operations in front
    /// wait, nothing happens: the request is looked at again behind them.
    pub(super) fn refuse(&mut self, head: &Head<'_>, refusal: &Refusal) -> FrontStep {
        self.refuse_by(head, refusal.close, |out, style| {
            status::write_refusal(out, style, refusal)
        })
    }

    /// Refuses like `refuse`, where `form` appends the refusal and tells its status.
    fn refuse_by(
        &mut self,
        head: &Head<'_>,
        closes: bool,
        form: impl FnOnce(&mut Vec<u8>, Style) -> u16,
    ) -> FrontStep {
        if self.has_waiting() {
            return self.those_in_front();
        }
        // A client that waits for `100 Continue` may or may not send its body after a refusal. The
        // server cannot tell, so the connection ends.
        let skips = match head.body {
            Body::None => Some(None),
            Body::Length(_) | Body::Chunked if closes || head.expects_continue() => None,
            Body::Length(length) if length > limits::DISCARD_BYTES_MAX as u64 => None,
            Body::Length(length) => Some(Some(BodyReader::of_length(length))),
            Body::Chunked => Some(Some(BodyReader::chunked(limits::DISCARD_BYTES_MAX as u64))),
        };
        let mut style = self.style(head);
        if skips.is_none() || closes {
            style = style.closing();
            self.linger = match head.body {
                Body::None => self.linger.max(Linger::Bytes),
                Body::Length(_) | Body::Chunked => Linger::Body,
            };
        }
        let op = op_of(head);
        let status = form(self.socket.out(), style);
        let began_ns = self.in_front.began_ns();
        self.lane.finish_since(op, status, began_ns);
        self.note_token_change(status);
        self.end_if(style);
        let next = match skips {
            Some(Some(body)) if !self.is_closing => Some(NextWait::Discard(Box::new(body))),
            Some(Some(_)) => {
                self.linger = Linger::Body;
                None
            }
            Some(None) | None => None,
        };
        (head.consumed, next)
    }

    /// Consumes nothing: the operations in front end first, then the request is looked at again.
    pub(super) fn those_in_front(&self) -> FrontStep {
        (0, Some(NextWait::Outcomes))
    }

    /// Refuses like `refuse`, for a refusal by a gate or a queue.
    pub(super) fn turn_away(&mut self, head: &Head<'_>, cause: RefusalCause) -> FrontStep {
        if self.has_waiting() {
            // When those in front are done there may be room.
            return self.those_in_front();
        }
        if let Some(share) = CapacityShare::of(op_of(head)) {
            self.lane.metrics().refuse(share, cause);
        }
        match cause {
            RefusalCause::Delay => self.refuse_by(head, false, status::write_delay),
            cause => self.refuse(head, &status::refused(cause)),
        }
    }

    /// The connection has no place among the clients': it ends behind the refusal.
    pub(super) fn turn_away_beyond(&mut self, head: &Head<'_>) -> FrontStep {
        let cause = RefusalCause::Connections;
        if let Some(share) = CapacityShare::of(op_of(head)) {
            self.lane.metrics().refuse(share, cause);
        }
        self.refuse(head, &status::refused(cause).closing())
    }

    /// A write that finds the log's queue full, or the engine behind, waits in line until its
    /// deadline. Any other full queue or gate refuses it at once.
    pub(super) fn line_up_or_turn_away(
        &mut self,
        head: &Head<'_>,
        cause: RefusalCause,
        value_len: usize,
        entity: &Entity,
    ) -> FrontStep {
        if !is_worth_waiting(cause) || self.has_waiting() {
            return self.turn_away(head, cause);
        }
        self.in_front.in_line_by = Some(cause);
        let until_us = self.in_front.deadline_us(entity.timeout_ms);
        (0, Some(NextWait::LogRoom(value_len, until_us)))
    }
}

fn op_of(head: &Head<'_>) -> OpLabel {
    match (head.path, head.method) {
        (b"/v0/entity", Method::Get | Method::Head) => OpLabel::Get,
        (b"/v0/entity", Method::Put) => OpLabel::Put,
        (b"/v0/entity", Method::Delete) => OpLabel::Delete,
        (b"/v0/touch", Method::Post) => OpLabel::Touch,
        (b"/v0/entities" | b"/v0/count", _) => OpLabel::Scan,
        (b"/v0/status", _) => OpLabel::Status,
        _ => OpLabel::Other,
    }
}

/// Does what refuses a write pass by itself, within its deadline as a rule?
pub(super) fn is_worth_waiting(cause: RefusalCause) -> bool {
    matches!(cause, RefusalCause::LogQueue | RefusalCause::Engine)
}
