//! What one request at the front of the buffer asks for, and its answer when nothing has to wait.
//!
//! ```text
//! bytes ─► parse_head ─► route ─┬─ GET, HEAD ─► engine, Wait::Never ─► answer, or Next::Fetch
//!                               ├─ PUT        ─► body here? ─► lane's batch, or Next::Body
//!                               ├─ DELETE     ─► lane's batch
//!                               ├─ scan       ─► Next::Scan
//!                               └─ status     ─► answer
//! ```
//!
//! Invariants
//! 1. A request is consumed exactly once: when it is answered, batched, or handed on in `Next`.
//! 2. A refused write changed nothing, and is refused before its body is read.
//! 3. No allocation between the parsed head and the formed answer of a read that need not wait.
//!
//! Not here: reading and writing the socket (`connection.rs`), bodies that are not whole (`body.rs`).
//! See: docs/api.md, crate `wire`.

use crate::body::{BodyReader, Inflow, PendingBody};
use crate::connection::{Connection, End, Next};
use crate::lane::Lane;
use crate::limits;
use crate::metrics::{Op, Refused, Share};
use crate::peers;
use crate::room::Room;
use crate::scan::PendingScan;
use crate::seat::Due;
use crate::shared::Phase;
use crate::stages::{Stage, Watch};
use crate::status::{self, Terms};
use crate::store_pool::{PoolAnswer, Work};
use bytes::Bytes;
use dendra_base::peer::Operation;
use dendra_base::{CellRef, Key, Kind, Version};
use dendra_engine::vfs::Wait;
use dendra_engine::{Error, Guard, Lookup};
use dendra_node::{Class, Entry, Known, Outcome};
use dendra_wire::hosts::Sender;
use dendra_wire::http::response::{self, Style};
use dendra_wire::http::{Body, Head, Limits, Parsed, parse_head};
use dendra_wire::route::{Entity, Route};
use dendra_wire::{Condition, EntityOp, Refusal, route};

/// A write whose outcome is not there yet.
#[derive(Debug)]
pub(crate) struct PendingWrite {
    op: Op,
    terms: Terms,
    began_ns: u64,
    deadline_us: u64,
    watch: Watch,
}

/// A read that waits for the store pool.
#[derive(Debug)]
pub(crate) struct PendingRead {
    entity: Entity,
    terms: Terms,
    key: Key,
    began_ns: u64,
    watch: Watch,
}

/// `/v0/entity` and `/v0/entities`: what clients of the data ask for, and no question of a member or a probe.
const DATA_PATHS: &[u8] = b"/v0/entit";

/// How much of the buffer is done with, and what to wait for.
type Step = (usize, Option<Next>);

impl Connection {
    /// Handles what stands at the front of `input`.
    pub(crate) fn handle_front(&mut self, input: &[u8]) -> Step {
        let waits = self.has_waiting();
        if input.is_empty() {
            return match waits {
                true => self.those_in_front(),
                false => (0, Some(Next::Read)),
            };
        }
        let watch = self.lane.watch();
        match parse_head(input, &Limits::USUAL) {
            Parsed::Incomplete if waits => self.those_in_front(),
            Parsed::Incomplete => (0, Some(Next::Read)),
            Parsed::Bad(_) if waits => self.those_in_front(),
            Parsed::Bad(refusal) => {
                self.refuse_and_close(&refusal);
                (input.len(), None)
            }
            Parsed::Head(head) => self.handle_head(&head, &input[head.consumed..], watch),
        }
    }

    fn handle_head(&mut self, head: &Head<'_>, rest: &[u8], mut watch: Watch) -> Step {
        let lane = std::rc::Rc::clone(&self.lane);
        if let Err(refusal) = lane.shared.hosts.check_host(&Sender::from(head)) {
            return match self.has_waiting() {
                true => self.those_in_front(),
                false => self.refuse(head, &refusal),
            };
        }
        if self.is_called_to_refuse && head.path.starts_with(DATA_PATHS) {
            return self.turn_away(head, Refused::Delay);
        }
        let mut key = lane.key.borrow_mut();
        let routed = route(head, &lane.routes, &mut key);
        let stored_key = key.as_stored();
        let is_write = matches!(
            routed,
            Ok(Route::Entity(Entity {
                op: EntityOp::Put | EntityOp::Delete,
                ..
            }))
        );
        if self.has_waiting() {
            let may_join = match (lane.is_member(), &routed) {
                (true, Ok(Route::Entity(_))) => !self.is_operating_on(&stored_key[1..]),
                (true, _) => false,
                (false, _) => is_write,
            };
            if !may_join || lane.is_poisoned() {
                return self.those_in_front();
            }
        }
        if is_write && lane.is_poisoned() {
            let reason = "the log failed and the node stops: send it again in a moment";
            return self.refuse(head, &Refusal::not_serving(reason, limits::RETRY_AFTER_S));
        }
        let style = self.style(head);
        let stages = &lane.metrics().stages;
        match routed {
            Ok(Route::Entity(entity)) => {
                let durability = lane.shared.settings.durability;
                let terms = Terms::new(style, entity.quorum, durability, &lane.routes);
                watch.lap(stages, op_of_entity(entity.op), Stage::Parse);
                if lane.is_member()
                    && is_write
                    && let Err(refusal) = peers::check_condition(&entity, &terms)
                {
                    return match self.has_waiting() {
                        true => self.those_in_front(),
                        false => self.refuse(head, &refusal),
                    };
                }
                match entity.op {
                    EntityOp::Get | EntityOp::Head if lane.is_member() => {
                        match self.begin(&entity, terms, stored_key, Operation::Get, watch) {
                            Ok(()) => {
                                self.end_if(style);
                                (head.consumed, None)
                            }
                            Err(what) => self.turn_away(head, what),
                        }
                    }
                    EntityOp::Get | EntityOp::Head => {
                        let next = self.read(&entity, terms, stored_key, watch);
                        self.end_if(style);
                        (head.consumed, next)
                    }
                    EntityOp::Put => self.put(head, rest, &entity, terms, stored_key, watch),
                    EntityOp::Delete => self.delete(head, &entity, terms, stored_key, watch),
                }
            }
            Ok(Route::Entities(scan)) => {
                self.end_if(style);
                watch.lap(stages, Op::Scan, Stage::Parse);
                let scan = PendingScan::new(*scan, style, lane.now_ns(), watch);
                (head.consumed, Some(Next::Scan(Box::new(scan))))
            }
            Ok(Route::Status) => {
                self.answer_status(style);
                self.end_if(style);
                (head.consumed, None)
            }
            Ok(Route::Peer) => {
                let refusal = match self.meet(head) {
                    Ok(link) => return (head.consumed, Some(Next::Link(Box::new(link)))),
                    Err(refusal) => refusal.closing(),
                };
                self.refuse(head, &refusal)
            }
            Ok(Route::PeerHello) => match self.greet(head, style) {
                Ok(()) => {
                    self.end_if(style);
                    (head.consumed, None)
                }
                Err(refusal) => self.refuse(head, &refusal),
            },
            Ok(Route::PeerAsk) => match self.hear(head, rest, style) {
                Ok((taken, ask)) => {
                    self.is_of_peer = true;
                    let next = Next::PeerAsk(Box::new(ask));
                    (head.consumed + taken, Some(next))
                }
                Err(refusal) => self.refuse(head, &refusal),
            },
            Err(refusal) => self.refuse(head, &refusal),
        }
    }

    /// The style of the answer: a draining node says that the connection ends.
    fn style(&self, head: &Head<'_>) -> Style {
        let style = Style::of(head);
        if self.lane.is_draining() {
            style.closing()
        } else {
            style
        }
    }

    fn end_if(&mut self, style: Style) {
        self.is_closing |= style.connection == dendra_wire::http::Connection::Close;
    }

    /// Forms a refusal and sees to the body that may follow its head. Requires: nothing pending.
    fn refuse(&mut self, head: &Head<'_>, refusal: &Refusal) -> Step {
        // A client that waits for `100 Continue` may send its body or not after a refusal: nobody
        // can tell, so the connection ends.
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
            self.lingers = true;
            self.lingers_for_body = head.body != Body::None;
        }
        let op = op_of(head);
        let status = status::write_refusal(&mut self.out, style, refusal);
        self.lane.finish(op, status);
        self.end_if(style);
        let next = match skips {
            Some(Some(body)) if !self.is_closing => Some(Next::Discard(Box::new(body))),
            Some(Some(_)) => {
                self.lingers = true;
                self.lingers_for_body = true;
                None
            }
            Some(None) | None => None,
        };
        (head.consumed, next)
    }

    /// Does anything that was begun wait for its outcome?
    pub(crate) fn has_waiting(&self) -> bool {
        !self.pending.is_empty() || !self.operations.is_empty()
    }

    /// Nothing was consumed; those in front go first.
    fn those_in_front(&self) -> Step {
        match self.operations.is_empty() {
            true => (0, Some(Next::Outcomes)),
            false => (0, Some(Next::Operations)),
        }
    }

    /// As `refuse`, for what a gate or a queue refused.
    fn turn_away(&mut self, head: &Head<'_>, what: Refused) -> Step {
        if self.has_waiting() {
            // When those in front are done there may be room.
            return self.those_in_front();
        }
        if let Some(share) = Share::of(op_of(head)) {
            self.lane.metrics().refuse(share, what);
        }
        self.refuse(head, &status::refused(what))
    }

    fn answer_status(&mut self, style: Style) {
        let phase = self.lane.phase();
        let status = if phase == Phase::Serving { 200 } else { 503 };
        let page = match phase {
            Phase::Serving => "serving\n",
            Phase::Starting => "starting\n",
            Phase::Draining | Phase::Stopped => "draining\n",
            Phase::Poisoned => "poisoned\n",
        };
        response::text(&mut self.out, style, status, page);
        self.lane.finish(Op::Status, status);
    }

    // Reads.

    fn read(
        &mut self,
        entity: &Entity,
        terms: Terms,
        stored_key: &[u8],
        mut watch: Watch,
    ) -> Option<Next> {
        let Connection { lane, out, .. } = self;
        let stages = &lane.metrics().stages;
        let looked = lane.shared.engine.get(stored_key, Wait::Never, |cell| {
            watch.lap(stages, Op::Get, Stage::Engine);
            answer_read(lane, out, entity, &terms, stored_key, Some(cell))
        });
        let status = match looked {
            Ok(Lookup::Cell(status)) => status,
            Ok(Lookup::Nothing) => {
                watch.lap(stages, Op::Get, Stage::Engine);
                answer_read(lane, out, entity, &terms, stored_key, None)
            }
            Ok(Lookup::WouldBlock) => return Some(self.later(entity, terms, stored_key, watch)),
            Err(error) if error.would_block() => {
                return Some(self.later(entity, terms, stored_key, watch));
            }
            Err(error) => answer_error(lane, out, &terms, &error),
        };
        watch.lap(stages, Op::Get, Stage::Form);
        lane.finish(Op::Get, status);
        self.unsent.add(Op::Get, watch);
        None
    }

    fn later(&self, entity: &Entity, terms: Terms, stored_key: &[u8], watch: Watch) -> Next {
        Next::Fetch(Box::new(PendingRead {
            entity: *entity,
            terms,
            key: Key::user(&stored_key[1..]),
            began_ns: self.lane.now_ns(),
            watch,
        }))
    }

    /// Waits for the store pool's answer to a read, and forms the client's.
    pub(crate) async fn fetch(&mut self, read: PendingRead) -> Result<(), End> {
        self.flush().await?;
        let _held = self.hold_input();
        let deadline_us = read.began_ns / 1_000 + u64::from(read.entity.timeout_ms) * 1_000;
        let mut watch = read.watch;
        watch.restart();
        let work = Work::Get(read.key.clone());
        let answer = match self.lane.offer(&self.seat, deadline_us, watch, work) {
            Err((refused, _)) => Err(refused),
            Ok(slot) => Ok(self.pooled(slot, deadline_us).await?),
        };
        watch.restart();
        let Connection { lane, out, .. } = self;
        let PendingRead {
            entity, terms, key, ..
        } = &read;
        let status = match answer {
            Ok(Ok(PoolAnswer::Cell(cell))) => {
                let cell = cell.as_ref().map(|cell| cell.as_ref().as_ref());
                answer_read(lane, out, entity, terms, key.as_stored(), cell)
            }
            Ok(Ok(PoolAnswer::Damaged)) => {
                lane.metrics().damaged.add(1);
                status::write_refusal(out, terms.style, &Refusal::damaged())
            }
            Ok(Ok(PoolAnswer::Late)) => {
                lane.metrics().refuse(Share::Points, Refused::Deadline);
                status::write(out, terms, &Outcome::DeadlinePassed, b"")
            }
            Ok(Ok(
                PoolAnswer::Failed
                | PoolAnswer::Page(_)
                | PoolAnswer::Chunk(_)
                | PoolAnswer::ChunkFailed(..),
            )) => status::write_refusal(out, terms.style, &status::failed()),
            Ok(Err(_)) => status::write(out, terms, &terms.not_enough(Known::NotApplied), b""),
            Err(refused) => {
                lane.metrics().refuse(Share::Points, refused);
                status::write_refusal(out, terms.style, &status::refused(refused))
            }
        };
        watch.lap(&lane.metrics().stages, Op::Get, Stage::Form);
        lane.finish_since(Op::Get, status, read.began_ns);
        self.unsent.add(Op::Get, watch);
        Ok(())
    }

    // Writes.

    fn put(
        &mut self,
        head: &Head<'_>,
        rest: &[u8],
        entity: &Entity,
        terms: Terms,
        stored_key: &[u8],
        watch: Watch,
    ) -> Step {
        match self.lane.admit_write() {
            Entry::Refused { refusal } => {
                // A body that did not come whole waits for its room when it has come.
                let len = match head.body {
                    Body::Length(length) if length <= rest.len() as u64 => length as usize,
                    Body::Length(_) | Body::Chunked | Body::None => 0,
                };
                return self.line_up_or_turn_away(head, refusal.into(), len, entity);
            }
            Entry::Delayed { us } if !self.has_paused => return self.after_pause(us),
            Entry::Delayed { .. } | Entry::Granted => {}
        }
        let whole = match head.body {
            Body::None => Some(0),
            Body::Length(length) => usize::try_from(length).ok().filter(|n| *n <= rest.len()),
            Body::Chunked => None,
        };
        if let Some(value_len) = whole {
            let value = &rest[..value_len];
            return match self.push(entity, terms, stored_key, Some(value), watch) {
                Ok(()) => {
                    self.end_if(terms.style);
                    (head.consumed + value_len, None)
                }
                Err(what) => self.line_up_or_turn_away(head, what, value_len, entity),
            };
        }
        if self.has_waiting() {
            return self.those_in_front();
        }
        if !self.lane.has_request_room() {
            return self.turn_away(head, Refused::Requests);
        }
        let reader = match head.body {
            Body::Length(length) => {
                // At most `value_bytes_max`: the route has checked. Its room is taken when it comes, but where a
                // whole gate of others waits, it is not worth sending.
                let bytes = length as usize;
                let lane = &self.lane;
                if !lane.bytes.has_place(bytes)
                    || (lane.is_member() && !lane.value_bytes.has_place(bytes))
                {
                    return self.turn_away(head, Refused::Bytes);
                }
                BodyReader::of_length(length)
            }
            Body::Chunked | Body::None => BodyReader::chunked(self.lane.routes.value_bytes_max),
        };
        let body = PendingBody {
            entity: *entity,
            terms,
            key: Key::user(&stored_key[1..]),
            body: Inflow::new(reader),
            expects_continue: head.expects_continue(),
            watch,
        };
        (head.consumed, Some(Next::Body(Box::new(body))))
    }

    fn delete(
        &mut self,
        head: &Head<'_>,
        entity: &Entity,
        terms: Terms,
        stored_key: &[u8],
        watch: Watch,
    ) -> Step {
        match self.lane.admit(Class::Delete) {
            Entry::Refused { refusal } => {
                return self.line_up_or_turn_away(head, refusal.into(), 0, entity);
            }
            Entry::Delayed { us } if !self.has_paused => return self.after_pause(us),
            Entry::Delayed { .. } | Entry::Granted => {}
        }
        match self.push(entity, terms, stored_key, None, watch) {
            Ok(()) => {
                self.end_if(terms.style);
                (head.consumed, None)
            }
            Err(what) => self.line_up_or_turn_away(head, what, 0, entity),
        }
    }

    /// A write that finds the log's queue full, or the engine behind, waits in line until its deadline; everything else
    /// that is full refuses.
    fn line_up_or_turn_away(
        &mut self,
        head: &Head<'_>,
        what: Refused,
        value_len: usize,
        entity: &Entity,
    ) -> Step {
        let now_us = self.lane.now_us();
        let timeout_us = u64::from(entity.timeout_ms) * 1_000;
        let is_worth_waiting = matches!(what, Refused::LogQueue | Refused::Engine);
        let until_us = self.in_line_until_us.unwrap_or(now_us + timeout_us);
        if !is_worth_waiting || self.has_waiting() || until_us <= now_us {
            return self.turn_away(head, what);
        }
        self.in_line_until_us = Some(until_us);
        (0, Some(Next::LogRoom(value_len, until_us)))
    }

    fn after_pause(&self, us: u64) -> Step {
        match self.has_waiting() {
            true => self.those_in_front(),
            false => (0, Some(Next::Pause(us))),
        }
    }

    /// Puts a write into the loop's batch; `None` is a deletion.
    pub(crate) fn push(
        &mut self,
        entity: &Entity,
        terms: Terms,
        stored_key: &[u8],
        value: Option<&[u8]>,
        mut watch: Watch,
    ) -> Result<(), Refused> {
        if self.lane.is_member() {
            let value = value.map(Bytes::copy_from_slice);
            return self.push_operation(entity, terms, stored_key, value, Vec::new(), watch);
        }
        let lane = &self.lane;
        let version = lane
            .shared
            .versions
            .next(&lane.shared.engine, lane.wall_ms());
        let (op, mut cell) = match value {
            Some(value) => (Op::Put, CellRef::value(stored_key, version, value)),
            None => (Op::Delete, CellRef::tombstone(stored_key, version)),
        };
        cell.copies = entity.quorum.from();
        cell.expiry_ms = entity
            .ttl_s
            .map(|seconds| lane.wall_ms() + u64::from(seconds) * 1_000);
        lane.push_write(&self.seat, stored_key, &cell, Guard::If(entity.condition))?;
        watch.lap(&lane.metrics().stages, op, Stage::Engine);
        self.pending.push(PendingWrite {
            op,
            terms,
            began_ns: lane.now_ns(),
            deadline_us: lane.now_us() + u64::from(entity.timeout_ms) * 1_000,
            watch,
        });
        Ok(())
    }

    /// Begins a write with the loop's node; `None` is a deletion. What `room` has of the value is held until it ends.
    pub(crate) fn push_operation(
        &mut self,
        entity: &Entity,
        terms: Terms,
        stored_key: &[u8],
        value: Option<Bytes>,
        mut room: Vec<Room>,
        watch: Watch,
    ) -> Result<(), Refused> {
        let len = value.as_ref().map_or(0, Bytes::len);
        if room.is_empty() && len > limits::UNCOUNTED_BYTES_MAX {
            room.push(self.hold_bytes(len).ok_or(Refused::Bytes)?);
        }
        let condition = entity.condition;
        let operation = match value {
            None => Operation::Delete { condition },
            Some(value) => Operation::Put {
                value,
                expiry_ms: entity
                    .ttl_s
                    .map(|seconds| self.lane.wall_ms() + u64::from(seconds) * 1_000),
                condition,
            },
        };
        self.begin(entity, terms, stored_key, operation, watch)?;
        if let Some(begun) = self.operations.last_mut() {
            begun.room = room;
        }
        Ok(())
    }

    /// Waits for the commit of everything in `pending`, and forms the answers.
    pub(crate) async fn wait_for_outcomes(&mut self) -> Result<(), End> {
        let _held = self.hold_input();
        let latest = self.pending.iter().map(|write| write.deadline_us).max();
        self.seat.arm(latest.unwrap_or(u64::MAX));
        let waited = self.seat.all_outcomes().await;
        self.lane.refresh();
        let now_ns = self.lane.now_ns();
        let Connection {
            lane,
            seat,
            out,
            pending,
            unsent,
            ..
        } = self;
        let stages = &lane.metrics().stages;
        for (place, mut write) in pending.drain(..).enumerate() {
            write.watch.lap(stages, write.op, Stage::WalWait);
            let status = answer_write(out, &write, seat.take_outcome(place));
            write.watch.lap(stages, write.op, Stage::Form);
            unsent.add(write.op, write.watch);
            let took_ns = now_ns.saturating_sub(write.began_ns);
            lane.metrics().note(write.op, status, took_ns);
        }
        self.end_wait(waited);
        Ok(())
    }

    /// Behind the answers to everything that was waited for.
    pub(crate) fn end_wait(&mut self, waited: Result<(), Due>) {
        self.seat.next_round();
        // The log failed: what comes next would hear the same.
        self.is_closing |= waited == Err(Due::Poisoned);
    }
}

fn op_of_entity(op: EntityOp) -> Op {
    match op {
        EntityOp::Get | EntityOp::Head => Op::Get,
        EntityOp::Put => Op::Put,
        EntityOp::Delete => Op::Delete,
    }
}

fn op_of(head: &Head<'_>) -> Op {
    use dendra_wire::http::Method;
    match (head.path, head.method) {
        (b"/v0/entity", Method::Get | Method::Head) => Op::Get,
        (b"/v0/entity", Method::Put) => Op::Put,
        (b"/v0/entity", Method::Delete) => Op::Delete,
        (b"/v0/entities", _) => Op::Scan,
        (b"/v0/status", _) => Op::Status,
        _ => Op::Other,
    }
}

fn answer_write(
    out: &mut Vec<u8>,
    write: &PendingWrite,
    outcome: Option<dendra_engine::WriteOutcome>,
) -> u16 {
    let terms = &write.terms;
    let outcome = match outcome {
        Some(dendra_engine::WriteOutcome::Applied { version }) if write.op == Op::Delete => {
            Outcome::Deleted { version }
        }
        Some(dendra_engine::WriteOutcome::Applied { version }) => Outcome::Stored { version },
        Some(dendra_engine::WriteOutcome::GuardFailed { current }) => {
            Outcome::ConditionFailed { current }
        }
        Some(dendra_engine::WriteOutcome::NoRoom) => {
            return status::write_refusal(out, terms.style, &status::refused(Refused::Disk));
        }
        Some(dendra_engine::WriteOutcome::NotApplied) => {
            return status::write_refusal(out, terms.style, &status::failed());
        }
        None => terms.not_enough(Known::Unknown),
    };
    status::write(out, terms, &outcome, b"")
}

fn answer_error(lane: &Lane, out: &mut Vec<u8>, terms: &Terms, error: &Error) -> u16 {
    tracing::error!(%error, "a read failed");
    match error {
        Error::Damaged { .. } => {
            lane.metrics().damaged.add(1);
            status::write_refusal(out, terms.style, &Refusal::damaged())
        }
        _ => status::write_refusal(out, terms.style, &status::failed()),
    }
}

/// Forms the answer to GET or HEAD from the key's newest cell; returns its status.
pub(crate) fn answer_read(
    lane: &Lane,
    out: &mut Vec<u8>,
    entity: &Entity,
    terms: &Terms,
    stored_key: &[u8],
    cell: Option<CellRef<'_>>,
) -> u16 {
    let cell = cell.filter(|cell| cell.is_live(lane.wall_ms()));
    let current = cell.map(|cell| cell.version);
    if !entity.condition.holds(current) {
        return answer_condition(out, entity.condition, terms, current, cell);
    }
    let Some(cell) = cell else {
        return status::write(out, terms, &Outcome::Missing, b"");
    };
    debug_assert_eq!(cell.kind, Kind::Value);
    if !cell.is_intact(stored_key) {
        lane.metrics().damaged.add(1);
        tracing::error!(version = %cell.version, "a value does not match its checksum");
        return status::write_refusal(out, terms.style, &Refusal::damaged());
    }
    if cell.value.len() > limits::UNCOUNTED_BYTES_MAX && !lane.has_room_for(cell.value.len()) {
        lane.metrics().refuse(Share::Points, Refused::Bytes);
        return status::write_refusal(out, terms.style, &status::refused(Refused::Bytes));
    }
    let found = Outcome::Found {
        version: cell.version,
        expiry_ms: cell.expiry_ms,
    };
    status::write(out, terms, &found, cell.value)
}

/// A read whose condition does not hold: nothing new for the client, or not what it knows.
fn answer_condition(
    out: &mut Vec<u8>,
    condition: Condition,
    terms: &Terms,
    current: Option<Version>,
    cell: Option<CellRef<'_>>,
) -> u16 {
    let outcome = match (condition, current) {
        (Condition::Absent | Condition::Differs(_), Some(version)) => {
            Outcome::Unchanged { version }
        }
        (Condition::Present | Condition::Matches(_), None) => Outcome::Missing,
        _ => Outcome::ConditionFailed { current },
    };
    status::write(out, terms, &outcome, cell.map_or(b"", |cell| cell.value))
}
