//! One request at the front of the buffer, and its answer when nothing has to wait.
//!
//! ```text
//! bytes ─► parse_head ─► route ─┬─ GET, HEAD  ─► backend ─► answer, pending, or NextWait::Resume
//!                               ├─ PUT        ─► body here? ─► backend, or NextWait::Body
//!                               ├─ DELETE, touch ─► backend
//!                               ├─ explain    ─► NextWait::Explain
//!                               ├─ scan       ─► NextWait::Scan
//!                               ├─ batch      ─► NextWait::Batch
//!                               ├─ watch      ─► NextWait::Watch
//!                               ├─ GET with wait_s ─► NextWait::Poll
//!                               └─ status     ─► answer
//! ```
//!
//! Invariants
//! 1. A request is consumed exactly once: when it is answered, begun, or handed on in `NextWait`.
//! 2. A refused write changed nothing, and is refused before its body is read.
//! 3. No allocation between the parsed head and the formed answer of a read that need not wait.
//!
//! Not here: reading and writing the socket (`exchange/socket.rs`), bodies that are not whole
//! (`late_body.rs`), the client's right (`login.rs`), refusals (`refused.rs`).
//! See: docs/api.md, crate `wire`.

use super::login::{PEER_PATHS, is_guarded, no_tokens};
use super::{
    Connection, FrontStep, NextWait, PendingBatch, PendingPoll, PendingScan, PendingWatch,
};
use crate::clients::answers::{self, Answers};
use crate::event_loop::handover::{Begun, Held, KeyRequest, PendingOperation, SentValue};
use crate::exchange::body::{BodyReader, Inflow, PendingBody};
use crate::exchange::explain::ExplainRequest;
use crate::measure::metrics::{OpLabel, RefusalCause};
use crate::measure::stages::{RequestStage, Watch};
use crate::peers;
use crate::phase::Phase;
use crate::retry_after::retry_after_s;
use crate::waiting::room::Room;
use crate::waiting::status::AnswerTerms;
use bytes::Bytes;
use dendra_base::Key;
use dendra_node::{Admission, Class};
use dendra_wire::hosts::Sender;
use dendra_wire::http::response::{self, Style};
use dendra_wire::http::{Body, Head, Limits, Parsed, parse_head};
use dendra_wire::limits::BATCH_BYTES_MAX;
use dendra_wire::route::{Entity, Route, is_tokens};
use dendra_wire::{EntityOp, Refusal, meta, route};
use std::rc::Rc;

/// Is it a request of a client of the data, not of a member or a probe?
fn is_data_path(path: &[u8]) -> bool {
    let others: [&[u8]; 4] = [b"/v0/count", b"/v0/touch", b"/v0/batch", b"/v0/watch"];
    path.starts_with(b"/v0/entit") || others.contains(&path)
}

impl Connection {
    /// Handles the request at the front of `input`.
    pub(super) fn handle_front(&mut self, input: &[u8]) -> FrontStep {
        let waits = self.has_waiting();
        if input.is_empty() {
            return if waits {
                self.those_in_front()
            } else {
                (0, Some(NextWait::Read))
            };
        }
        let watch = self.lane.watch();
        match parse_head(input, &Limits::USUAL) {
            Parsed::Incomplete if waits => self.those_in_front(),
            Parsed::Incomplete => (0, Some(NextWait::Read)),
            Parsed::Bad(_) if waits => self.those_in_front(),
            Parsed::Bad(refusal) => {
                self.refuse_and_close(&refusal);
                (input.len(), None)
            }
            Parsed::Head(head) => self.handle_head(&head, &input[head.consumed..], watch),
        }
    }

    fn handle_head(&mut self, head: &Head<'_>, rest: &[u8], watch: Watch) -> FrontStep {
        let lane = Rc::clone(&self.lane);
        self.in_front.look(lane.now_ns(), self.socket.came_us());
        if self.beyond.is_some() && !head.path.starts_with(PEER_PATHS) {
            return self.turn_away_beyond(head);
        }
        let sender = Sender::from(head);
        let hosts = &lane.parts.hosts;
        let checked = hosts.check_host(&sender);
        self.page = None;
        match checked.and_then(|()| hosts.judge_page(&sender)) {
            Ok(page) => self.page = page,
            Err(refusal) => return self.refuse(head, &refusal),
        }
        if head.is_preflight && self.page.is_some() && head.body == Body::None {
            return self.answer_preflight(head);
        }
        if self.socket.is_called_to_refuse() && is_data_path(head.path) {
            let refused = self.turn_away(head, RefusalCause::Delay);
            if refused.0 > 0 {
                self.socket.note_refused();
            }
            return refused;
        }
        let mut key = lane.buffers.key.borrow_mut();
        let routed = route(head, &lane.routes(), &mut key);
        let stored_key = key.as_stored();
        if let Some(rights) = &lane.parts.border.rights
            && is_guarded(head.path)
        {
            let route = routed.as_ref().ok();
            if let Some(refused) = self.show_proof(rights, head, route, stored_key) {
                return refused;
            }
        }
        let routed = routed.and_then(|route| match route {
            Route::Tokens(entity) if lane.parts.border.rights.is_some() => {
                Ok(Route::Entity(entity))
            }
            Route::Tokens(_) => Err(no_tokens()),
            route => Ok(route),
        });
        let is_write = matches!(
            routed,
            Ok(Route::Batch(_)
                | Route::Entity(Entity {
                    op: EntityOp::Put | EntityOp::Delete | EntityOp::Touch,
                    ..
                }))
        );
        if self.has_waiting() {
            let may_join = self.token_change.is_none()
                && match &routed {
                    Ok(Route::Entity(entity)) => {
                        let waiting = &self.pending;
                        self.backend.joins(entity.op, &stored_key[1..], waiting)
                    }
                    _ => false,
                };
            let is_poll = matches!(&routed, Ok(Route::Entity(entity)) if entity.wait_s.is_some());
            let may_join = may_join && !is_poll && !is_tokens(stored_key);
            if !may_join || lane.is_poisoned() {
                return self.those_in_front();
            }
        }
        let is_of_data = matches!(
            routed,
            Ok(Route::Entity(_)
                | Route::Explain(_)
                | Route::Entities(_)
                | Route::Batch(_)
                | Route::Watch(_))
        );
        if is_of_data && lane.parts.store.import.is_under_way() {
            let reason = "a restore is under way, and a part of the records is not here yet: \
                          repeat its command to end it, or start with an empty folder";
            return self.refuse(head, &Refusal::not_serving(reason, retry_after_s()));
        }
        if (is_of_data || is_write) && lane.parts.store.engine.lost().is_some() {
            let reason = "the data folder of this node was removed, moved or replaced, and the node stops: ask another one";
            return self.refuse(head, &Refusal::not_serving(reason, retry_after_s()));
        }
        if is_write && lane.is_poisoned() {
            let reason = "the log failed and the node stops: send it again in a moment";
            return self.refuse(head, &Refusal::not_serving(reason, retry_after_s()));
        }
        let timeout_ms = match &routed {
            Ok(Route::Entity(entity) | Route::Explain(entity)) => Some(entity.timeout_ms),
            Ok(Route::Entities(scan)) => Some(scan.timeout_ms),
            Ok(Route::Batch(batch)) => Some(batch.timeout_ms),
            Ok(Route::Watch(query)) => Some(query.timeout_ms),
            _ => None,
        };
        if timeout_ms.is_some_and(|ms| self.is_late(ms, whole_len(head, rest).is_some())) {
            self.forgo_if_called();
            let cause = self.in_front.in_line_by.unwrap_or(RefusalCause::Deadline);
            return self.turn_away(head, cause);
        }
        match routed {
            Ok(Route::Entity(entity)) => self.handle_entity(head, rest, &entity, stored_key, watch),
            Ok(Route::Explain(entity)) => self.handle_explain(head, entity, stored_key),
            Ok(route) => self.handle_other(head, rest, route, watch),
            Err(refusal) => self.refuse(head, &refusal),
        }
    }

    /// A request about one key.
    fn handle_entity(
        &mut self,
        head: &Head<'_>,
        rest: &[u8],
        entity: &Entity,
        stored_key: &[u8],
        mut watch: Watch,
    ) -> FrontStep {
        let lane = Rc::clone(&self.lane);
        let style = self.style(head);
        let terms = self.backend.terms(&lane, style, entity);
        let stages = &lane.metrics().stages;
        watch.lap(stages, op_of_entity(entity.op), RequestStage::Parse);
        if let Err(refusal) = self.backend.check(entity, &terms) {
            return self.refuse(head, &refusal);
        }
        if let Some(wait_s) = entity.wait_s {
            let came_us = self.in_front.came_us();
            let poll = PendingPoll {
                login: self.standing(head, || Route::Entity(entity.clone())),
                key: Key::user(&stored_key[1..]),
                condition: entity.condition.clone(),
                terms,
                began_ns: self.in_front.began_ns(),
                known_by_us: self.in_front.deadline_us(entity.timeout_ms),
                until_us: came_us + u64::from(wait_s) * 1_000_000,
            };
            self.end_if(style);
            return (head.consumed, Some(NextWait::Poll(Box::new(poll))));
        }
        match entity.op {
            EntityOp::Get | EntityOp::Head => {
                let room = &mut Vec::new();
                match self.begin(entity, terms, stored_key, SentValue::None, room, watch) {
                    Ok(next) => {
                        self.end_if(style);
                        (head.consumed, next)
                    }
                    Err(cause) => self.turn_away(head, cause),
                }
            }
            EntityOp::Put => self.put(head, rest, entity, terms, stored_key, watch),
            EntityOp::Delete => {
                self.write_without_body(Class::Delete, head, entity, terms, stored_key, watch)
            }
            EntityOp::Touch => {
                self.write_without_body(Class::Write, head, entity, terms, stored_key, watch)
            }
        }
    }

    /// A read that is to be explained.
    fn handle_explain(&mut self, head: &Head<'_>, entity: Entity, stored_key: &[u8]) -> FrontStep {
        if let Err(refusal) = self.backend.check_explain() {
            return self.refuse(head, &refusal);
        }
        let style = self.style(head);
        let lane = Rc::clone(&self.lane);
        self.end_if(style);
        let request = ExplainRequest {
            terms: self.backend.terms(&lane, style, &entity),
            key: Key::user(&stored_key[1..]),
            began_ns: self.in_front.began_ns(),
            deadline_us: self.in_front.deadline_us(entity.timeout_ms),
            entity,
        };
        (head.consumed, Some(NextWait::Explain(Box::new(request))))
    }

    /// A request about many keys or none: a scan, a probe, a peer.
    fn handle_other(
        &mut self,
        head: &Head<'_>,
        rest: &[u8],
        route: Route,
        mut watch: Watch,
    ) -> FrontStep {
        let lane = Rc::clone(&self.lane);
        let style = self.style(head);
        match route {
            Route::Entity(_) | Route::Explain(_) | Route::Tokens(_) => {
                unreachable!("`handle_head` has handled it")
            }
            Route::Entities(mut scan) => {
                scan.spare_reserved();
                self.end_if(style);
                watch.lap(&lane.metrics().stages, OpLabel::Scan, RequestStage::Parse);
                let scan = PendingScan {
                    login: self.standing(head, || Route::Entities(scan.clone())),
                    style,
                    came_us: self.in_front.came_us(),
                    began_ns: self.in_front.began_ns(),
                    deadline_us: self.in_front.deadline_us(scan.timeout_ms),
                    query: *scan,
                    watch,
                };
                (head.consumed, Some(NextWait::Scan(Box::new(scan))))
            }
            Route::Watch(query) => {
                self.end_if(style);
                let pending = PendingWatch {
                    login: self.standing(head, || Route::Watch(query.clone())),
                    query: *query,
                    style,
                    began_ns: self.in_front.began_ns(),
                };
                (head.consumed, Some(NextWait::Watch(Box::new(pending))))
            }
            Route::Batch(batch) => {
                let pending = PendingBatch {
                    login: self.standing(head, || Route::Batch(batch)),
                    batch,
                    style,
                    reader: match head.body {
                        Body::None => BodyReader::of_length(0),
                        Body::Length(length) => BodyReader::of_length(length),
                        Body::Chunked => BodyReader::chunked(BATCH_BYTES_MAX),
                    },
                    expects_continue: head.expects_continue(),
                    began_ns: self.in_front.began_ns(),
                };
                (head.consumed, Some(NextWait::Batch(Box::new(pending))))
            }
            Route::Status => {
                self.answer_status(style);
                self.end_if(style);
                (head.consumed, None)
            }
            Route::Peer => match peers::accept_link(&lane, &mut self.socket, head) {
                Ok(link) => (head.consumed, Some(NextWait::Link(Box::new(link)))),
                Err(refusal) => {
                    let refusal = refusal.closing();
                    self.note_stranger("GET /v0/peer", &refusal);
                    self.refuse(head, &refusal)
                }
            },
            Route::PeerHello => match peers::answer_hello(&lane, &mut self.socket, head, style) {
                Ok(()) => {
                    self.end_if(style);
                    (head.consumed, None)
                }
                Err(refusal) => {
                    self.note_stranger("POST /v0/peer/hello", &refusal);
                    self.refuse(head, &refusal)
                }
            },
            Route::PeerAsk => match peers::read_ask(&lane, &mut self.socket, head, rest, style) {
                Ok((taken, ask)) => {
                    self.socket.mark_as_peer();
                    if let Some(number) = self.beyond {
                        lane.rooms.beyond.prove(number);
                    }
                    let next = NextWait::PeerAsk(Box::new(ask));
                    (head.consumed + taken, Some(next))
                }
                Err(refusal) => self.refuse(head, &refusal),
            },
        }
    }

    /// Tells a browser which requests a page of this origin may send.
    fn answer_preflight(&mut self, head: &Head<'_>) -> FrontStep {
        if self.has_waiting() {
            return self.those_in_front();
        }
        let style = self.style(head);
        response::preflight(self.socket.out(), style);
        self.lane.finish(OpLabel::Other, 200);
        self.end_if(style);
        (head.consumed, None)
    }

    /// The style of the answer: a draining node says that the connection ends.
    pub(super) fn style(&self, head: &Head<'_>) -> Style {
        let mut style = Style::of(head);
        style.page = self.page;
        if self.lane.is_draining() {
            style.closing()
        } else {
            style
        }
    }

    /// Is the time of the request in front over? Where its body did not come with its head, it
    /// begins with the body's last byte. But in line for the log it runs all the same.
    fn is_late(&self, timeout_ms: u32, is_whole: bool) -> bool {
        let runs = is_whole || self.in_front.in_line_by.is_some();
        runs && self.in_front.deadline_us(timeout_ms) <= self.lane.now_us()
    }

    fn answer_status(&mut self, style: Style) {
        let phase = self.lane.phase();
        let is_restoring = self.lane.parts.store.import.is_under_way();
        let serves = phase == Phase::Serving && !is_restoring;
        let status = if serves { 200 } else { 503 };
        let page = match phase {
            Phase::Serving if is_restoring => "restoring\n",
            Phase::Serving => "serving\n",
            Phase::Starting => "starting\n",
            Phase::Draining | Phase::Stopped => "draining\n",
            Phase::Poisoned => "poisoned\n",
        };
        response::text(self.socket.out(), style, status, page);
        self.lane.finish(OpLabel::Status, status);
    }

    // Writes.

    fn put(
        &mut self,
        head: &Head<'_>,
        rest: &[u8],
        entity: &Entity,
        terms: AnswerTerms,
        stored_key: &[u8],
        watch: Watch,
    ) -> FrontStep {
        let body_bytes = match head.body {
            Body::Length(length) => Some(length),
            Body::None => Some(0),
            Body::Chunked => None,
        };
        let whole = whole_len(head, rest);
        match self.backend.admit(&self.lane, Class::Write) {
            Admission::Refused { refusal } => {
                // A body that did not come whole waits for its room when it has come.
                let len = whole.map_or(0, |len| len + entity.meta.front().len());
                return self.line_up_or_turn_away(head, refusal.into(), len, entity);
            }
            admission => {
                if let Some(us) = self.pause_us(admission, body_bytes) {
                    return self.after_pause(us, whole.map(|_| entity.timeout_ms));
                }
            }
        }
        if let Some(value_len) = whole {
            if is_tokens(stored_key)
                && let Err(refusal) = self.check_tokens(&rest[..value_len])
            {
                return self.refuse(head, &refusal);
            }
            let sent = &rest[..value_len];
            let wrapped = meta::wrap(&entity.meta, sent).map(Bytes::from);
            let (value, stored_len) = match &wrapped {
                Some(wrapped) => (SentValue::Whole(wrapped), wrapped.len()),
                None => (SentValue::Unread(sent), value_len),
            };
            let room = &mut Vec::new();
            return match self.begin(entity, terms, stored_key, value, room, watch) {
                Ok(next) => {
                    self.end_if(terms.style);
                    (head.consumed + value_len, next)
                }
                Err(cause) => self.line_up_or_turn_away(head, cause, stored_len, entity),
            };
        }
        if self.has_waiting() {
            return self.those_in_front();
        }
        if !self.lane.has_request_room(&self.seat) {
            return self.turn_away(head, RefusalCause::Requests);
        }
        let reader = match head.body {
            Body::Length(length) => {
                // At most `value_bytes_max`: the route has checked. Its room is taken when it
                // comes. But it is not worth sending where as many bytes as the gate lets in wait
                // already.
                let bytes = length as usize + entity.meta.front().len();
                let lane = &self.lane;
                let share = self.backend.value_share(lane);
                if !lane.rooms.bytes.has_place(bytes)
                    || share.is_some_and(|share| !share.has_place(bytes))
                {
                    return self.turn_away(head, RefusalCause::Bytes);
                }
                BodyReader::of_length(length)
            }
            Body::Chunked | Body::None => BodyReader::chunked(self.lane.routes().value_bytes_max),
        };
        self.forgo_if_called();
        let login = self.standing(head, || {
            if is_tokens(stored_key) {
                Route::Tokens(entity.clone())
            } else {
                Route::Entity(entity.clone())
            }
        });
        let body = PendingBody {
            login,
            entity: entity.clone(),
            terms,
            key: Key::user(&stored_key[1..]),
            body: Inflow::new(reader, self.backend.value_share(&self.lane).cloned())
                .behind(entity.meta.front()),
            expects_continue: head.expects_continue(),
            waited_ns: self.lane.now_ns() - self.in_front.began_ns(),
            watch,
        };
        (head.consumed, Some(NextWait::Body(Box::new(body))))
    }

    fn write_without_body(
        &mut self,
        class: Class,
        head: &Head<'_>,
        entity: &Entity,
        terms: AnswerTerms,
        stored_key: &[u8],
        watch: Watch,
    ) -> FrontStep {
        match self.backend.admit(&self.lane, class) {
            Admission::Refused { refusal } => {
                return self.line_up_or_turn_away(head, refusal.into(), 0, entity);
            }
            admission => {
                if let Some(us) = self.pause_us(admission, Some(0)) {
                    return self.after_pause(us, Some(entity.timeout_ms));
                }
            }
        }
        let room = &mut Vec::new();
        match self.begin(entity, terms, stored_key, SentValue::None, room, watch) {
            Ok(next) => {
                self.end_if(terms.style);
                (head.consumed, next)
            }
            Err(cause) => self.line_up_or_turn_away(head, cause, 0, entity),
        }
    }

    /// How long a write of `bytes` waits before it is let in; `None` = it is let in.
    pub(super) fn pause_us(&mut self, admission: Admission, bytes: Option<u64>) -> Option<u64> {
        let us = match admission {
            Admission::Delayed { us } if !self.in_front.has_paused => self.lane.delay_us(us, bytes),
            _ => 0,
        };
        if us == 0 && self.in_front.is_to_be_sized() {
            self.lane.note_write_size(bytes);
        }
        (us > 0).then_some(us)
    }

    /// Calls the next write, if this one was called out of the line for the log and pushes none
    /// now.
    pub(super) fn forgo_if_called(&self) {
        if self.in_front.in_line_by.is_some() {
            self.lane.forgo_log();
        }
    }

    /// A write is looked at again after its pause, at its deadline at the latest. `None` = its
    /// time does not run yet: its body is unread.
    fn after_pause(&self, us: u64, timeout_ms: Option<u32>) -> FrontStep {
        self.forgo_if_called();
        let deadline_us = timeout_ms.map(|ms| self.in_front.deadline_us(ms));
        let left_us = deadline_us.map_or(us, |at| at.saturating_sub(self.lane.now_us()));
        if self.has_waiting() {
            self.those_in_front()
        } else {
            (0, Some(NextWait::Pause(us.min(left_us))))
        }
    }

    /// Begins an operation. Its answer is formed (`None`), it waits with others (`None`), or it has
    /// to be waited for at once.
    pub(super) fn begin(
        &mut self,
        entity: &Entity,
        terms: AnswerTerms,
        stored_key: &[u8],
        value: SentValue<'_>,
        room: &mut Vec<Room>,
        mut watch: Watch,
    ) -> Result<Option<NextWait>, RefusalCause> {
        let Connection {
            lane,
            seat,
            backend,
            socket,
            in_front,
            ..
        } = self;
        let op = op_of_entity(entity.op);
        let deadline_us = in_front.deadline_us(entity.timeout_ms);
        let request = KeyRequest {
            seat,
            source: socket.source(),
            entity,
            stored_key,
            value,
            room,
            deadline_us,
        };
        let (condition, out) = (&entity.condition, socket.out());
        let begun = backend.begin(lane, request, &mut watch, |cell| {
            answers::show(lane, out, condition, &terms, stored_key, cell)
        })?;
        let pending = |held: Held, running: Watch| PendingOperation {
            op,
            terms,
            condition: condition.clone(),
            wants_current: entity.wants_current,
            began_ns: in_front.began_ns(),
            deadline_us,
            watch: running,
            held,
        };
        let status = match begun {
            Begun::Shown(status) => status,
            Begun::Ended(finished) => {
                let mut answers = Answers {
                    lane,
                    backend,
                    out: socket.out(),
                };
                answers.answer(&pending(Held::default(), watch), Some(finished))
            }
            Begun::Waits(held) => {
                let operation = pending(held, watch);
                if self.pending.capacity() == 0 {
                    // As in the seat: most connections wait for one at a time.
                    self.pending.reserve_exact(1);
                }
                self.pending.push(operation);
                return Ok(None);
            }
            Begun::Blocks(held) => {
                return Ok(Some(NextWait::Resume(Box::new(pending(held, watch)))));
            }
        };
        watch.lap(&lane.metrics().stages, op, RequestStage::Form);
        lane.finish_since(op, status, in_front.began_ns());
        socket.add_unsent(op, watch);
        self.note_token_change(status);
        Ok(None)
    }
}

/// The length of a body that came with its head, if it came.
fn whole_len(head: &Head<'_>, rest: &[u8]) -> Option<usize> {
    match head.body {
        Body::None => Some(0),
        Body::Length(length) => usize::try_from(length).ok().filter(|n| *n <= rest.len()),
        Body::Chunked => None,
    }
}

/// The label of an operation on one key.
pub(super) fn op_of_entity(op: EntityOp) -> OpLabel {
    match op {
        EntityOp::Get | EntityOp::Head => OpLabel::Get,
        EntityOp::Put => OpLabel::Put,
        EntityOp::Delete => OpLabel::Delete,
        EntityOp::Touch => OpLabel::Touch,
    }
}
