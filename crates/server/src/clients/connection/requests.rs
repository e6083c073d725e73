//! One request at the front of the buffer, and its answer when nothing has to wait.
//!
//! ```text
//! bytes ─► parse_head ─► route ─┬─ GET, HEAD  ─► backend ─► answer, pending, or NextWait::Resume
//!                               ├─ PUT        ─► body here? ─► backend, or NextWait::Body
//!                               ├─ DELETE     ─► backend
//!                               ├─ scan       ─► NextWait::Scan
//!                               └─ status     ─► answer
//! ```
//!
//! Invariants
//! 1. A request is consumed exactly once: when it is answered, begun, or handed on in `NextWait`.
//! 2. A refused write changed nothing, and is refused before its body is read.
//! 3. No allocation between the parsed head and the formed answer of a read that need not wait.
//!
//! Not here: reading and writing the socket (`socket.rs`), bodies that are not whole (`body.rs`).
//! See: docs/api.md, crate `wire`.

use super::in_front::RequestInFront;
use super::{Connection, NextWait, PendingScan};
use crate::admin::metrics::{CapacityShare, OpLabel, RefusalCause};
use crate::admin::stages::{RequestStage, Watch};
use crate::audit::{self, AuditEvent, AuditKind, Port};
use crate::clients::answers::{self, Answers};
use crate::clients::body::{BodyReader, Collected, Inflow, NoBody, PendingBody};
use crate::clients::room::Room;
use crate::clients::socket::{ConnectionEnd, Linger};
use crate::clients::status::{self, AnswerTerms};
use crate::event_loop::handover::{Begun, Held, KeyRequest, PendingOperation, SentValue};
use crate::event_loop::shared::Phase;
use crate::limits;
use crate::peers;
use crate::rights::{Denied, LoginProof, Rights, StandingLogin};
use bytes::Bytes;
use dendra_base::Key;
use dendra_node::{Admission, Class};
use dendra_wire::hosts::Sender;
use dendra_wire::http::response::{self, Style};
use dendra_wire::http::{Body, Head, Limits, Parsed, parse_head};
use dendra_wire::limits::TOKENS_BYTES_MAX;
use dendra_wire::rights::TokenTable;
use dendra_wire::route::{Entity, Route, is_tokens};
use dendra_wire::{EntityOp, Refusal, route};
use std::rc::Rc;

/// `/v0/entity` and `/v0/entities`: requests of clients of the data, not of members or probes.
const DATA_PATHS: &[u8] = b"/v0/entit";
/// The table of tokens.
const TOKENS_PATH: &[u8] = b"/v0/tokens";
/// Links and questions of members.
const PEER_PATHS: &[u8] = b"/v0/peer";

/// The result for the request in front: how much of the buffer is done with, and the wait before
/// the next one.
type FrontStep = (usize, Option<NextWait>);

impl Connection {
    /// Handles the request at the front of `input`.
    pub(super) fn handle_front(&mut self, input: &[u8]) -> FrontStep {
        let waits = self.has_waiting();
        if input.is_empty() {
            return match waits {
                true => self.those_in_front(),
                false => (0, Some(NextWait::Read)),
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
        let stood_us = self.socket.take_stood_us();
        self.in_front.look(lane.now_ns(), stood_us);
        if self.beyond.is_some() && !head.path.starts_with(PEER_PATHS) {
            return self.turn_away_beyond(head);
        }
        let sender = Sender::from(head);
        let hosts = &lane.shared.hosts;
        let checked = hosts.check_host(&sender);
        self.page = None;
        match checked.and_then(|()| hosts.judge_page(&sender)) {
            Ok(page) => self.page = page,
            Err(refusal) => return self.refuse(head, &refusal),
        }
        if head.is_preflight && self.page.is_some() && head.body == Body::None {
            return self.answer_preflight(head);
        }
        if self.socket.is_called_to_refuse() && head.path.starts_with(DATA_PATHS) {
            return self.turn_away(head, RefusalCause::Delay);
        }
        let mut key = lane.key.borrow_mut();
        let routed = route(head, &lane.routes(), &mut key);
        let stored_key = key.as_stored();
        if let Some(rights) = &lane.shared.rights
            && is_guarded(head.path)
        {
            let route = routed.as_ref().ok();
            if let Some(refused) = self.show_proof(rights, head, route, stored_key) {
                return refused;
            }
        }
        let routed = routed.and_then(|route| match route {
            Route::Tokens(entity) if lane.shared.rights.is_some() => Ok(Route::Entity(entity)),
            Route::Tokens(_) => Err(no_tokens()),
            route => Ok(route),
        });
        let is_write = matches!(
            routed,
            Ok(Route::Entity(Entity {
                op: EntityOp::Put | EntityOp::Delete,
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
            let may_join = may_join && !is_tokens(stored_key);
            if !may_join || lane.is_poisoned() {
                return self.those_in_front();
            }
        }
        let is_of_data = matches!(routed, Ok(Route::Entity(_) | Route::Entities(_)));
        if is_of_data && lane.shared.import.is_under_way() {
            let reason = "a restore is under way, and a part of the records is not here yet: \
                          repeat its command to end it, or start with an empty folder";
            return self.refuse(head, &Refusal::not_serving(reason, limits::RETRY_AFTER_S));
        }
        if is_write && lane.is_poisoned() {
            let reason = "the log failed and the node stops: send it again in a moment";
            return self.refuse(head, &Refusal::not_serving(reason, limits::RETRY_AFTER_S));
        }
        let timeout_ms = match &routed {
            Ok(Route::Entity(entity)) => Some(entity.timeout_ms),
            Ok(Route::Entities(scan)) => Some(scan.timeout_ms),
            _ => None,
        };
        if timeout_ms.is_some_and(|ms| self.is_late(ms, whole_len(head, rest).is_some())) {
            self.forgo_if_called();
            let cause = self.in_front.in_line_by.unwrap_or(RefusalCause::Deadline);
            return self.turn_away(head, cause);
        }
        match routed {
            Ok(Route::Entity(entity)) => self.handle_entity(head, rest, &entity, stored_key, watch),
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
            EntityOp::Delete => self.delete(head, entity, terms, stored_key, watch),
        }
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
            Route::Entity(_) | Route::Tokens(_) => unreachable!("`handle_head` has handled it"),
            Route::Entities(mut scan) => {
                scan.spare_reserved();
                self.end_if(style);
                watch.lap(&lane.metrics().stages, OpLabel::Scan, RequestStage::Parse);
                let scan = PendingScan {
                    login: self.standing(head, || Route::Entities(scan.clone())),
                    style,
                    began_ns: self.in_front.began_ns(),
                    deadline_us: self.in_front.deadline_us(scan.timeout_ms),
                    query: *scan,
                    watch,
                };
                (head.consumed, Some(NextWait::Scan(Box::new(scan))))
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
                        lane.beyond.prove(number);
                    }
                    let next = NextWait::PeerAsk(Box::new(ask));
                    (head.consumed + taken, Some(next))
                }
                Err(refusal) => self.refuse(head, &refusal),
            },
        }
    }

    /// Checks the client's token and quota. `None` = they allow the request.
    fn show_proof(
        &mut self,
        rights: &Rights,
        head: &Head<'_>,
        route: Option<&Route>,
        stored_key: &[u8],
    ) -> Option<FrontStep> {
        let proof = LoginProof::of(head.authorization, self.names.at(self.lane.wall_ms()));
        let source = self.socket.source();
        let judged = match route {
            None if head.path == TOKENS_PATH => rights.judge_table(proof),
            route => rights.judge(proof, route, stored_key),
        };
        let used = match judged {
            Ok(used) => used,
            Err(_) if self.has_waiting() => return Some(self.those_in_front()),
            Err(denied) => {
                let refusal = self.deny(rights, denied, || what_of(head));
                self.socket.count_by(None);
                return Some(self.refuse(head, &refusal));
            }
        };
        if let Some(used) = &used
            && !self.in_front.is_admitted
        {
            let body_bytes = match head.body {
                Body::Length(bytes) => bytes,
                // A chunked body counts when it has come.
                Body::None | Body::Chunked => 0,
            };
            let stores = matches!(route, Some(Route::Entity(it)) if it.op == EntityOp::Put);
            if let Err((kind, refusal)) =
                used.admit(stores.then_some(body_bytes), self.lane.now_ns())
            {
                if self.has_waiting() {
                    return Some(self.those_in_front());
                }
                used.count_refusal(kind);
                self.socket.count_by(None);
                return Some(self.refuse(head, &refusal));
            }
            self.in_front.is_admitted = true;
            used.charge(head.consumed as u64 + body_bytes, self.lane.now_ns());
        }
        self.socket.count_by(used);
        if let (Some(Route::Tokens(entity)), Some(_)) = (route, &self.lane.shared.audit)
            && entity.op == EntityOp::Put
            && !self.has_waiting()
        {
            let event = AuditEvent::new(AuditKind::TokensPut, "PUT /v0/tokens");
            let event = event.by(rights.name_of(proof)).from(source, Port::Data);
            self.token_change = Some(Box::new(event));
        }
        None
    }

    /// The refusal of a request without the right to it, counted and in the audit log.
    fn deny(&self, rights: &Rights, denied: Denied, what: impl FnOnce() -> String) -> Refusal {
        let source = self.socket.source();
        let who = denied.who();
        let refusal = rights.refuse(denied, source, self.lane.now_us());
        let audit = self.lane.shared.audit.as_deref();
        audit::note_login(audit, who, (source, Port::Data), what, &refusal);
        refusal
    }

    /// The right of a request that will last; `None` where every request is allowed.
    fn standing(&self, head: &Head<'_>, route: impl FnOnce() -> Route) -> Option<StandingLogin> {
        let rights = self.lane.shared.rights.as_ref();
        rights.map(|_| StandingLogin::of(head.authorization, route()))
    }

    /// Refuses a request that lasts, when its client lost the right to it meanwhile.
    pub(super) fn judge_again(
        &self,
        login: Option<&StandingLogin>,
        stored_key: &[u8],
    ) -> Result<(), Refusal> {
        let (Some(login), Some(rights)) = (login, &self.lane.shared.rights) else {
            return Ok(());
        };
        let names = self.names.at(self.lane.wall_ms());
        let judged = rights.judge_again(login, names, stored_key);
        judged.map_err(|denied| self.deny(rights, denied, || login.what().to_owned()))
    }

    /// Notes that a program was not let in as a member.
    fn note_stranger(&self, what: &'static str, refusal: &Refusal) {
        if let Some(audit) = &self.lane.shared.audit
            && matches!(refusal.code, "cluster-secret" | "peer-identity")
            && audit.takes_failure()
        {
            let event = AuditEvent::new(AuditKind::MemberRefused, what).refused(refusal);
            audit.note(event.from(self.socket.source(), Port::Data));
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
    fn style(&self, head: &Head<'_>) -> Style {
        let mut style = Style::of(head);
        style.page = self.page;
        if self.lane.is_draining() {
            style.closing()
        } else {
            style
        }
    }

    /// Forms a refusal and sees to the body that may follow its head. While operations in front
    /// wait, nothing happens: the request is looked at again behind them.
    fn refuse(&mut self, head: &Head<'_>, refusal: &Refusal) -> FrontStep {
        if self.has_waiting() {
            return self.those_in_front();
        }
        // A client that waits for `100 Continue` may or may not send its body after a refusal. The
        // server cannot tell, so the connection ends.
        let skips = match head.body {
            Body::None => Some(None),
            Body::Length(_) | Body::Chunked if refusal.close || head.expects_continue() => None,
            Body::Length(length) if length > limits::DISCARD_BYTES_MAX as u64 => None,
            Body::Length(length) => Some(Some(BodyReader::of_length(length))),
            Body::Chunked => Some(Some(BodyReader::chunked(limits::DISCARD_BYTES_MAX as u64))),
        };
        let mut style = self.style(head);
        if skips.is_none() || refusal.close {
            style = style.closing();
            self.linger = match head.body {
                Body::None => self.linger.max(Linger::Bytes),
                Body::Length(_) | Body::Chunked => Linger::Body,
            };
        }
        let op = op_of(head);
        let status = status::write_refusal(self.socket.out(), style, refusal);
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
    fn those_in_front(&self) -> FrontStep {
        (0, Some(NextWait::Outcomes))
    }

    /// As `refuse`, for a refusal by a gate or a queue.
    fn turn_away(&mut self, head: &Head<'_>, cause: RefusalCause) -> FrontStep {
        if self.has_waiting() {
            // When those in front are done there may be room.
            return self.those_in_front();
        }
        if let Some(share) = CapacityShare::of(op_of(head)) {
            self.lane.metrics().refuse(share, cause);
        }
        self.refuse(head, &status::refused(cause))
    }

    /// Is the time of the request in front over? Where its body did not come with its head, it
    /// begins with the body's last byte. But in line for the log it runs all the same.
    fn is_late(&self, timeout_ms: u32, is_whole: bool) -> bool {
        let runs = is_whole || self.in_front.in_line_by.is_some();
        runs && self.in_front.deadline_us(timeout_ms) <= self.lane.now_us()
    }

    /// The connection has no place among the clients': it ends behind the refusal.
    fn turn_away_beyond(&mut self, head: &Head<'_>) -> FrontStep {
        let cause = RefusalCause::Connections;
        if let Some(share) = CapacityShare::of(op_of(head)) {
            self.lane.metrics().refuse(share, cause);
        }
        self.refuse(head, &status::refused(cause).closing())
    }

    fn answer_status(&mut self, style: Style) {
        let phase = self.lane.phase();
        let is_restoring = self.lane.shared.import.is_under_way();
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
                let len = whole.unwrap_or(0);
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
            let value = SentValue::Unread(&rest[..value_len]);
            let room = &mut Vec::new();
            return match self.begin(entity, terms, stored_key, value, room, watch) {
                Ok(next) => {
                    self.end_if(terms.style);
                    (head.consumed + value_len, next)
                }
                Err(cause) => self.line_up_or_turn_away(head, cause, value_len, entity),
            };
        }
        if self.has_waiting() {
            return self.those_in_front();
        }
        if !self.lane.has_request_room() {
            return self.turn_away(head, RefusalCause::Requests);
        }
        let reader = match head.body {
            Body::Length(length) => {
                // At most `value_bytes_max`: the route has checked. Its room is taken when it
                // comes. But it is not worth sending where as many bytes as the gate lets in wait
                // already.
                let bytes = length as usize;
                let lane = &self.lane;
                let share = self.backend.value_share(lane);
                if !lane.bytes.has_place(bytes)
                    || share.is_some_and(|share| !share.has_place(bytes))
                {
                    return self.turn_away(head, RefusalCause::Bytes);
                }
                BodyReader::of_length(length)
            }
            Body::Chunked | Body::None => BodyReader::chunked(self.lane.routes().value_bytes_max),
        };
        self.forgo_if_called();
        let login = self.standing(head, || match is_tokens(stored_key) {
            true => Route::Tokens(*entity),
            false => Route::Entity(*entity),
        });
        let body = PendingBody {
            login,
            entity: *entity,
            terms,
            key: Key::user(&stored_key[1..]),
            body: Inflow::new(reader, self.backend.value_share(&self.lane).cloned()),
            expects_continue: head.expects_continue(),
            waited_ns: self.lane.now_ns() - self.in_front.began_ns(),
            watch,
        };
        (head.consumed, Some(NextWait::Body(Box::new(body))))
    }

    fn delete(
        &mut self,
        head: &Head<'_>,
        entity: &Entity,
        terms: AnswerTerms,
        stored_key: &[u8],
        watch: Watch,
    ) -> FrontStep {
        match self.backend.admit(&self.lane, Class::Delete) {
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

    /// A write that finds the log's queue full, or the engine behind, waits in line until its
    /// deadline. Any other full queue or gate refuses it at once.
    fn line_up_or_turn_away(
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

    /// How long a write of `bytes` waits before it is let in; `None` = it is let in.
    fn pause_us(&mut self, admission: Admission, bytes: Option<u64>) -> Option<u64> {
        let us = match admission {
            Admission::Delayed { us } if !self.in_front.has_paused => self.lane.delay_us(us, bytes),
            _ => 0,
        };
        if us == 0 && self.in_front.is_to_be_sized() {
            self.lane.note_write_size(bytes);
        }
        (us > 0).then_some(us)
    }

    /// It was called out of the line for the log, but pushes no write now: the next one is called.
    fn forgo_if_called(&self) {
        if self.in_front.in_line_by.is_some() {
            self.lane.forgo_log();
        }
    }

    /// A write is looked at again behind its pause, at its deadline at the latest. `None` = its
    /// time does not run yet: its body is unread.
    fn after_pause(&self, us: u64, timeout_ms: Option<u32>) -> FrontStep {
        self.forgo_if_called();
        let deadline_us = timeout_ms.map(|ms| self.in_front.deadline_us(ms));
        let left_us = deadline_us.map_or(us, |at| at.saturating_sub(self.lane.now_us()));
        match self.has_waiting() {
            true => self.those_in_front(),
            false => (0, Some(NextWait::Pause(us.min(left_us)))),
        }
    }

    /// Begins an operation. Its answer is formed (`None`), it waits with others (`None`), or it has
    /// to be waited for at once.
    fn begin(
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
        let (condition, out) = (entity.condition, socket.out());
        let begun = backend.begin(lane, request, &mut watch, |cell| {
            answers::show(lane, out, condition, &terms, stored_key, cell)
        })?;
        let pending = |held: Held, watch: Watch| PendingOperation {
            op,
            terms,
            condition,
            wants_current: entity.wants_current,
            began_ns: in_front.began_ns(),
            deadline_us,
            watch,
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
                let begun = pending(held, watch);
                if self.pending.capacity() == 0 {
                    // As in the seat: most connections wait for one at a time.
                    self.pending.reserve_exact(1);
                }
                self.pending.push(begun);
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

    // Values that come by themselves.

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
            self.socket.count_bytes(value.bytes.len());
        }
        // Waiting for the client is no stage of ours.
        watch.restart();
        let checked = self.judge_again(login.as_ref(), key.as_stored());
        let checked = checked.and_then(|()| match is_tokens(key.as_stored()) {
            true => self.check_tokens(&value.bytes),
            false => Ok(()),
        });
        if let Err(refusal) = checked {
            let style = match refusal.close {
                true => terms.style.closing(),
                false => terms.style,
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
        let Collected { bytes, mut room } = value;
        let bytes = Bytes::from(bytes);
        let until_us = self.in_front.deadline_us(entity.timeout_ms);
        loop {
            let value = SentValue::Whole(&bytes);
            let begun = self.begin(&entity, terms, key.as_stored(), value, &mut room, watch);
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
            if self.socket.is_client_gone() {
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

    /// Refuses a table of tokens that no node could read, or that this one could not apply.
    fn check_tokens(&self, bytes: &[u8]) -> Result<(), Refusal> {
        if bytes.len() > TOKENS_BYTES_MAX {
            return Err(Refusal::value_too_large(TOKENS_BYTES_MAX as u64));
        }
        let parsed = TokenTable::parse(bytes);
        let parsed = parsed.and_then(|table| table.check_names().map(|()| table));
        let table = parsed.map_err(|sentence| Refusal::new(400, "bad-tokens", sentence))?;
        let desk = self.lane.shared.front.as_ref();
        desk.map_or(Ok(()), |desk| desk.check_table(&table))
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

/// Does what refuses a write pass by itself, within its deadline as a rule?
fn is_worth_waiting(cause: RefusalCause) -> bool {
    matches!(cause, RefusalCause::LogQueue | RefusalCause::Engine)
}

/// Does the path want a token where there are tokens? Members have their own proof, and a probe may
/// ask whether it is ready.
fn is_guarded(path: &[u8]) -> bool {
    path != b"/v0/status" && !path.starts_with(PEER_PATHS)
}

/// On a node without tokens every client could make a table. It would open the nodes that ask for
/// tokens.
fn no_tokens() -> Refusal {
    let sentence = "this node asks for no tokens: start it with --root-token-file";
    Refusal::new(409, "no-tokens", sentence)
}

fn op_of_entity(op: EntityOp) -> OpLabel {
    match op {
        EntityOp::Get | EntityOp::Head => OpLabel::Get,
        EntityOp::Put => OpLabel::Put,
        EntityOp::Delete => OpLabel::Delete,
    }
}

/// Method and path, as the audit log has them.
fn what_of(head: &Head<'_>) -> String {
    use dendra_wire::http::Method;
    let method = match head.method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Post => "POST",
        Method::Other => "OTHER",
    };
    audit::what_of(method, std::str::from_utf8(head.path).unwrap_or_default())
}

fn op_of(head: &Head<'_>) -> OpLabel {
    use dendra_wire::http::Method;
    match (head.path, head.method) {
        (b"/v0/entity", Method::Get | Method::Head) => OpLabel::Get,
        (b"/v0/entity", Method::Put) => OpLabel::Put,
        (b"/v0/entity", Method::Delete) => OpLabel::Delete,
        (b"/v0/entities", _) => OpLabel::Scan,
        (b"/v0/status", _) => OpLabel::Status,
        _ => OpLabel::Other,
    }
}
