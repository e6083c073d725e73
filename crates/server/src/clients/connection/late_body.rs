//! Writes whose body did not come with their head.
//!
//! ```text
//! NextWait::Body ─► receive: 100 Continue, the rest of the body ─► right, table ─► begin_value ─┬─► begun
//!                                                             log full: wait in line ◄─────────┘
//! ```
//!
//! Invariants
//! 1. A client that hangs up inside its body changed nothing.
//! 2. A value that is whole waits for room in the log until its deadline: otherwise the client
//!    would have to send it once more.
//!
//! Not here: collecting the bytes (`exchange/body.rs`), writes that came whole (`requests.rs`).
//! See: docs/api.md, "Deadlines and overload".

use super::Connection;
use super::in_front::RequestInFront;
use super::refused::is_worth_waiting;
use crate::event_loop::handover::SentValue;
use crate::exchange::body::{Collected, NoBody, PendingBody};
use crate::exchange::socket::{ConnectionEnd, Linger};
use crate::measure::metrics::{CapacityShare, OpLabel, RefusalCause};
use crate::measure::stages::Watch;
use crate::waiting::status::{self, AnswerTerms};
use bytes::Bytes;
use dendra_base::Key;
use dendra_wire::http::response;
use dendra_wire::meta;
use dendra_wire::route::{Entity, is_tokens};
use std::rc::Rc;

impl Connection {
    /// Reads the rest of a body and begins the write.
    pub(super) async fn receive(&mut self, body: PendingBody) -> Result<(), ConnectionEnd> {
        let PendingBody {
            login,
            entity,
            terms,
            key,
            body,
            expects_continue,
            waited_ns,
            mut watch,
        } = body;
        if expects_continue && self.socket.unread_len() == 0 {
            response::proceed(self.socket.out());
        }
        self.socket.flush().await?;
        let is_chunked = body.is_chunked();
        let value = match body.collect(&mut self.socket).await {
            Ok(value) => value,
            Err(NoBody::Refused(refusal)) => {
                let style = terms.style.closing();
                let status = status::write_refusal(self.socket.out(), style, &refusal);
                self.lane.finish(OpLabel::Put, status);
                self.note_token_change(status);
                self.is_closing = true;
                self.linger = Linger::Body;
                return Ok(());
            }
            Err(NoBody::Ended(end)) => return Err(end),
        };
        self.in_front = RequestInFront::with_body(self.lane.now_ns(), waited_ns);
        if is_chunked {
            let bytes = value.bytes.len() - entity.meta.front().len();
            self.socket.count_bytes(bytes);
        }
        // Waiting for the client is no stage of ours.
        watch.restart();
        let checked = self.judge_again(login.as_ref(), key.as_stored());
        let checked = checked.and_then(|()| {
            if is_tokens(key.as_stored()) {
                self.check_tokens(&value.bytes)
            } else {
                Ok(())
            }
        });
        if let Err(refusal) = checked {
            let style = if refusal.close {
                terms.style.closing()
            } else {
                terms.style
            };
            let status = status::write_refusal(self.socket.out(), style, &refusal);
            self.finish_put(status);
            self.note_token_change(status);
            self.end_if(style);
            return Ok(());
        }
        if let Err(cause) = self.begin_value(entity, terms, &key, value, watch).await? {
            self.lane.metrics().refuse(CapacityShare::Writes, cause);
            let refusal = status::refused(cause);
            let status = status::write_refusal(self.socket.out(), terms.style, &refusal);
            self.finish_put(status);
            self.note_token_change(status);
        }
        self.end_if(terms.style);
        Ok(())
    }

    /// Counts a write whose body did not come with its head, and which is answered now.
    fn finish_put(&self, status: u16) {
        let began_ns = self.in_front.began_ns();
        self.lane.finish_since(OpLabel::Put, status, began_ns);
    }

    /// Begins the write of a value that came whole. If the log's queue is full it waits: otherwise
    /// the client would have to send the value once more.
    async fn begin_value(
        &mut self,
        entity: Entity,
        terms: AnswerTerms,
        key: &Key,
        value: Collected,
        watch: Watch,
    ) -> Result<Result<(), RefusalCause>, ConnectionEnd> {
        let Collected {
            mut bytes,
            mut room,
        } = value;
        meta::wrap_behind(&entity.meta, &mut bytes);
        let bytes = Bytes::from(bytes);
        let until_us = self.in_front.deadline_us(entity.timeout_ms);
        loop {
            let sent = SentValue::Whole(&bytes);
            let begun = self.begin(&entity, terms, key.as_stored(), sent, &mut room, watch);
            let Err(cause) = begun else {
                return Ok(Ok(()));
            };
            if !is_worth_waiting(cause) {
                return Ok(Err(cause));
            }
            let lane = Rc::clone(&self.lane);
            if !lane.wait_for_log(&self.seat, bytes.len(), until_us).await {
                return Ok(Err(cause));
            }
            lane.refresh();
            if self.socket.has_given_up(self.in_front.came_us()) {
                lane.forgo_log();
                lane.metrics().abandoned.add(1);
                return Err(ConnectionEnd::HungUp);
            }
            if lane.now_us() >= until_us {
                lane.forgo_log();
                return Ok(Err(cause));
            }
        }
    }
}
