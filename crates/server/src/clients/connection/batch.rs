//! Batches: items are begun as they arrive, and answered line by line in their order.
//!
//! ```text
//! body ─► text ─► item ─► right, quota, admission ─► begin ─┬─ waits in the group
//!   ▲                        │ refused: its line            └─ ended: its line, behind those in front
//!   │     no whole item, or the group is full: wait for the group ─► its lines ─► flush
//!   └──── only when the lines are sent
//! ```
//!
//! Invariants
//! 1. Lines leave in the order of the items, and an item sees the effects of those in front of it.
//! 2. A group has at most `PIPELINED_WRITES_MAX` items, about `GROUP_BYTES` of values that were
//!    sent, and `READS_FIRST` reads that may bring a value of any length. More reads only after
//!    values were short.
//! 3. While lines wait for the client to read, nothing more is begun and nothing more is read.
//! 4. An item is begun when all of it is here: a client that leaves has changed whole items alone.
//! 5. Each item passes the same gates as a request of its own. A full one first ends the group,
//!    because that may make room. Then it refuses the item, and not the batch.
//!
//! Not here: items and lines as bytes (crate `wire`, `batch/`), reading the body
//! (`exchange/body_text.rs`), carrying operations out (`backend.rs`).
//! See: docs/batch.md.

use super::in_front::RequestInFront;
use super::refused::is_worth_waiting;
use super::requests::op_of_entity;
use super::scan::OpenedAnswer;
use super::{Connection, NextWait, PendingBatch};
use crate::event_loop::handover::SentValue;
use crate::exchange::body::NoBody;
use crate::exchange::body_text::BodyText;
use crate::exchange::socket::{ConnectionEnd, Linger};
use crate::limits;
use crate::measure::metrics::{CapacityShare, OpLabel, RefusalCause};
use crate::retry_after::retry_after_s;
use crate::rights::StandingLogin;
use crate::waiting::status;
use dendra_node::{Admission, Class};
use dendra_wire::batch::{self, Piece};
use dendra_wire::http::lines::{BatchEnd, batch_end, wrap_chunk};
use dendra_wire::http::response::{self, Style};
use dendra_wire::limits::BATCH_ITEMS_MAX;
use dendra_wire::route::{BatchTerms, Entity, Route, too_large, too_many};
use dendra_wire::{EntityOp, KeyBuf, Refusal};
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_64;

/// Values that the items of one group send: a few large ones fill it.
const GROUP_BYTES: usize = 1 << 20;
/// Reads of the first group. Each may bring the largest value.
const READS_FIRST: usize = 8;

/// The items that wait together, and the lines that are formed behind some of them.
#[derive(Default)]
struct ItemGroup {
    /// Hashes of the keys of those that wait.
    keys: Vec<u64>,
    /// Bytes of their values.
    bytes: usize,
    /// How many of them read.
    reads: usize,
    /// Lines of items that have ended behind those that wait.
    side: Vec<u8>,
    /// Behind how many waiting items a part of `side` stands, and where that part ends.
    parts: Vec<(usize, usize)>,
}

/// A batch under way.
struct BatchWork {
    login: Option<StandingLogin>,
    batch: BatchTerms,
    /// The style of its lines.
    style: Style,
    text: BodyText,
    /// So much of the text was looked at and holds no end of an item.
    searched: usize,
    /// The end mark has come.
    has_ended: bool,
    /// Items that were taken out of the text.
    items: usize,
    group: ItemGroup,
    /// Reads that the next group may have.
    reads_max: usize,
    /// Where in the connection's output the lines begin that are in no chunk yet.
    lines_at: usize,
    key: KeyBuf,
    value: Vec<u8>,
}

/// The next step of a batch.
enum Next {
    Item(usize),
    More,
    Stop(Refusal),
    End,
}

impl BatchWork {
    /// What the front of the text is.
    fn next(&mut self) -> Next {
        loop {
            let (text, is_all) = (self.text.text(), self.text.is_all());
            if self.has_ended {
                return match (text.is_empty(), is_all) {
                    (true, true) => Next::End,
                    (true, false) => Next::More,
                    (false, _) => Next::Stop(Refusal::new(
                        400,
                        "bad-item",
                        "there is more behind the end mark",
                    )),
                };
            }
            match batch::split_item(self.batch.items, text, &mut self.searched, is_all) {
                Ok(Piece::Incomplete) if is_all => return Next::End,
                Ok(Piece::Incomplete) => return Next::More,
                Ok(Piece::Blank(len)) => self.text.consume(len),
                Ok(Piece::End) => {
                    self.text.consume(8);
                    self.has_ended = true;
                }
                Ok(Piece::Item(_)) if self.items >= BATCH_ITEMS_MAX => {
                    return Next::Stop(too_many(BATCH_ITEMS_MAX));
                }
                Ok(Piece::Item(len)) => return Next::Item(len),
                Err(refusal) => return Next::Stop(refusal),
            }
        }
    }

    /// Keeps no large buffer while the client is waited for.
    fn spare(&mut self) {
        for buffer in [&mut self.value, &mut self.group.side] {
            buffer.clear();
            buffer.shrink_to(limits::UNCOUNTED_BYTES_MAX);
        }
    }

    /// The refusal of a body that does not come to its end.
    fn refusal_of_body(refusal: Refusal) -> Refusal {
        if refusal.status == 413 {
            too_large()
        } else {
            refusal
        }
    }
}

impl Connection {
    /// Answers a batch from its head to its trailer.
    pub(super) async fn carry_out(&mut self, pending: PendingBatch) -> Result<(), ConnectionEnd> {
        let PendingBatch {
            login,
            batch,
            style,
            reader,
            expects_continue,
            began_ns,
        } = pending;
        if expects_continue && self.socket.unread_len() == 0 {
            response::proceed(self.socket.out());
        }
        self.socket.flush().await?;
        self.socket.prepare_out();
        let mut opened = OpenedAnswer::new(&self.lane, OpLabel::Other, began_ns);
        response::batch_head(self.socket.out(), style, batch.answers);
        let mut work = BatchWork {
            login,
            batch,
            style: Style {
                line: Some(batch.answers),
                ..style
            },
            text: BodyText::new(reader, self.lane.now_us()),
            searched: 0,
            has_ended: false,
            items: 0,
            group: ItemGroup::default(),
            reads_max: READS_FIRST,
            lines_at: self.socket.out_len(),
            key: KeyBuf::new(),
            value: Vec::new(),
        };
        let stop = self.take_all(&mut work).await?;
        self.end_group(&mut work).await?;
        let end = match stop {
            None => BatchEnd::Complete,
            Some(refusal) => {
                opened.cut();
                work.items += 1;
                let refusal = refusal.at_item(work.items);
                status::write_refusal(self.socket.out(), work.style, &refusal);
                if !(work.text.is_all() && work.text.text().is_empty()) {
                    self.is_closing = true;
                    self.linger = Linger::Body;
                }
                BatchEnd::Stopped
            }
        };
        let out = self.socket.out();
        wrap_chunk(out, work.lines_at);
        batch_end(out, batch.answers, end, work.items);
        self.in_front = RequestInFront::default();
        self.end_if(style);
        Ok(())
    }

    /// Takes item after item; `Some` = why the one behind them is not taken, nor any other.
    async fn take_all(&mut self, work: &mut BatchWork) -> Result<Option<Refusal>, ConnectionEnd> {
        let mut in_a_row = 0;
        loop {
            match work.next() {
                Next::End => return Ok(None),
                Next::Stop(refusal) => return Ok(Some(refusal)),
                Next::More => {
                    self.end_group(work).await?;
                    self.flush_lines(work).await?;
                    if let Some(refusal) = self.reason_to_stop() {
                        return Ok(Some(refusal));
                    }
                    in_a_row = 0;
                    work.spare();
                    match work.text.more(&mut self.socket).await {
                        Ok(()) => {}
                        Err(NoBody::Refused(refusal)) => {
                            return Ok(Some(BatchWork::refusal_of_body(refusal)));
                        }
                        Err(NoBody::Ended(end)) => return Err(end),
                    }
                }
                Next::Item(len) => {
                    if self.is_group_full(work) {
                        self.end_group(work).await?;
                        self.flush_lines(work).await?;
                    }
                    let is_turn_over = self.socket.take_was_refused()
                        || (in_a_row >= limits::REQUESTS_A_TURN
                            && self.lane.delay.is_crowded(self.lane.now_us()));
                    if is_turn_over {
                        self.end_group(work).await?;
                        self.flush_lines(work).await?;
                        self.take_turns().await?;
                        in_a_row = 0;
                    }
                    if !self.has_waiting()
                        && let Some(refusal) = self.reason_to_stop()
                    {
                        return Ok(Some(refusal));
                    }
                    in_a_row += 1;
                    if let Some(refusal) = self.take_item(work, len).await? {
                        return Ok(Some(refusal));
                    }
                }
            }
        }
    }

    /// Why the node takes no further item.
    fn reason_to_stop(&self) -> Option<Refusal> {
        let refuse = |reason: &'static str| Some(Refusal::not_serving(reason, retry_after_s()));
        if self.lane.is_poisoned() || self.is_closing {
            refuse("the log failed and the node stops: send it again in a moment")
        } else if self.lane.is_draining() {
            refuse("the node stops: send it again in a moment")
        } else if self.lane.parts.store.engine.lost().is_some() {
            refuse(
                "the data folder of this node was removed, moved or replaced, and the node stops: ask another one",
            )
        } else {
            None
        }
    }

    fn is_group_full(&self, work: &BatchWork) -> bool {
        let group = &work.group;
        let flush_bytes = if self.lane.is_crowded() {
            limits::UNCOUNTED_BYTES_MAX
        } else {
            limits::ANSWER_BYTES_FLUSH
        };
        self.pending.len() >= limits::PIPELINED_WRITES_MAX
            || group.bytes >= GROUP_BYTES
            || group.reads >= work.reads_max
            || group.side.len() + self.socket.out_len() >= flush_bytes
    }

    /// Takes the item of `len` bytes at the front of the text; `Some` = it ends the batch.
    async fn take_item(
        &mut self,
        work: &mut BatchWork,
        len: usize,
    ) -> Result<Option<Refusal>, ConnectionEnd> {
        let lane = Rc::clone(&self.lane);
        self.in_front = RequestInFront::with_body(lane.now_ns(), 0);
        self.socket.note_work(limits::WORK_OF_A_REQUEST);
        let item = &work.text.text()[..len];
        let rules = lane.routes();
        let parsed = batch::parse_item(&work.batch, &rules, item, &mut work.key, &mut work.value);
        let (route, key) = match &parsed {
            Ok(entity) => (Route::Entity(entity.clone()), work.key.as_stored()),
            Err(_) => (Route::Batch(work.batch), &b""[..]),
        };
        let bytes = (work.value.len(), len);
        let allowed = self.judge_item(work.login.as_ref(), route, key, bytes);
        if let Err(refusal) = &allowed
            && (refusal.status == 401 || refusal.close)
        {
            // Its token is not one any more: no other item is let in, either.
            return Ok(allowed.err());
        }
        let judged = allowed.and(parsed);
        work.text.consume(len);
        work.items += 1;
        let op = parsed_op(&judged);
        let judged = judged.and_then(|entity| {
            let terms = self.backend.terms(&lane, work.style, &entity);
            let checked = self.backend.check(&entity, &terms);
            checked.map(|()| (entity, terms))
        });
        match judged {
            Err(refusal) => self.refuse_item(work, op, &refusal.at_item(work.items)),
            Ok((entity, terms)) => {
                if self.socket.is_called_to_refuse() {
                    self.turn_item_away(work, op, RefusalCause::Delay);
                    // A call refuses one.
                    self.socket.note_refused();
                    return Ok(None);
                }
                self.begin_item(work, &entity, terms).await?;
            }
        }
        Ok(None)
    }

    /// Begins an item when it may be: behind those of its key, and when there is room for it.
    async fn begin_item(
        &mut self,
        work: &mut BatchWork,
        entity: &Entity,
        terms: status::AnswerTerms,
    ) -> Result<(), ConnectionEnd> {
        let lane = Rc::clone(&self.lane);
        let hash = xxh3_64(work.key.as_stored());
        let until_us = self.in_front.deadline_us(entity.timeout_ms);
        let op = op_of_entity(entity.op);
        loop {
            if self.has_waiting()
                && !self
                    .backend
                    .joins_item(entity.op, work.group.keys.contains(&hash))
            {
                self.end_group(work).await?;
            }
            let cause = match self.admit_item(entity, work.value.len()) {
                Ok(0) => match self.begin_in_group(work, entity, terms, hash) {
                    Ok(None) => return Ok(()),
                    Ok(Some(next)) => {
                        self.end_group(work).await?;
                        self.flush_lines(work).await?;
                        if let NextWait::Resume(read) = next {
                            return Box::pin(self.resume(*read)).await;
                        }
                        unreachable!("an operation that was begun waits, ends, or needs the disk");
                    }
                    Err(cause) => cause,
                },
                Ok(us) => {
                    self.forgo_if_called();
                    self.end_group(work).await?;
                    self.flush_lines(work).await?;
                    let left_us = until_us.saturating_sub(lane.now_us());
                    self.pause(us.min(left_us)).await?;
                    continue;
                }
                Err(cause) => cause,
            };
            if self.has_waiting() {
                // When those in front are done there may be room.
                self.end_group(work).await?;
                continue;
            }
            if is_worth_waiting(cause) && lane.now_us() < until_us {
                self.flush_lines(work).await?;
                let len = work.value.len();
                let is_called = lane.wait_for_log(&self.seat, len, until_us).await;
                lane.refresh();
                self.in_front.in_line_by = is_called.then_some(cause);
                let expected = self.socket.expect_client(self.in_front.came_us());
                expected.inspect_err(|_gone| self.forgo_if_called())?;
                if is_called && lane.now_us() < until_us {
                    continue;
                }
            }
            self.forgo_if_called();
            self.turn_item_away(work, op, cause);
            return Ok(());
        }
    }

    /// How long a write waits before it is let in, in microseconds.
    fn admit_item(&mut self, entity: &Entity, value_len: usize) -> Result<u64, RefusalCause> {
        let (class, bytes) = match entity.op {
            EntityOp::Get | EntityOp::Head => return Ok(0),
            EntityOp::Put => (Class::Write, value_len as u64),
            EntityOp::Touch => (Class::Write, 0),
            EntityOp::Delete => (Class::Delete, 0),
        };
        match self.backend.admit(&self.lane, class) {
            Admission::Refused { refusal } => Err(refusal.into()),
            admission => Ok(self.pause_us(admission, Some(bytes)).unwrap_or(0)),
        }
    }

    /// Begins an item behind those that wait. `Some` = it has to wait for the disk, alone.
    fn begin_in_group(
        &mut self,
        work: &mut BatchWork,
        entity: &Entity,
        terms: status::AnswerTerms,
        hash: u64,
    ) -> Result<Option<NextWait>, RefusalCause> {
        let value = match entity.op {
            EntityOp::Put => SentValue::Unread(&work.value),
            EntityOp::Get | EntityOp::Head | EntityOp::Delete | EntityOp::Touch => SentValue::None,
        };
        let waiting = self.pending.len();
        let watch = self.lane.watch();
        let stored_key = work.key.as_stored();
        // A line that is formed at once belongs behind those of the items that wait.
        let is_aside = waiting > 0;
        if is_aside {
            std::mem::swap(self.socket.out(), &mut work.group.side);
        }
        let begun = self.begin(entity, terms, stored_key, value, &mut Vec::new(), watch);
        if is_aside {
            std::mem::swap(self.socket.out(), &mut work.group.side);
        }
        let group = &mut work.group;
        if self.pending.len() > waiting {
            group.keys.push(hash);
            group.bytes += work.value.len();
            group.reads += usize::from(matches!(entity.op, EntityOp::Get | EntityOp::Head));
        }
        group.note_side(waiting);
        begun
    }

    fn turn_item_away(&mut self, work: &mut BatchWork, op: OpLabel, cause: RefusalCause) {
        if let Some(share) = CapacityShare::of(op) {
            self.lane.metrics().refuse(share, cause);
        }
        self.refuse_item(work, op, &status::refused(cause));
    }

    /// Forms the line of an item that is not begun.
    fn refuse_item(&mut self, work: &mut BatchWork, op: OpLabel, refusal: &Refusal) {
        let waiting = self.pending.len();
        let out = match waiting {
            0 => self.socket.out(),
            _ => &mut work.group.side,
        };
        let status = status::write_refusal(out, work.style, refusal);
        let began_ns = self.in_front.began_ns();
        self.lane.finish_since(op, status, began_ns);
        work.group.note_side(waiting);
    }

    /// Waits for the items of the group, and forms their lines.
    async fn end_group(&mut self, work: &mut BatchWork) -> Result<(), ConnectionEnd> {
        if !self.has_waiting() {
            return Ok(());
        }
        let text_len = work.text.text().len();
        let _held =
            (text_len > limits::UNCOUNTED_BYTES_MAX).then(|| self.socket.hold_bytes(text_len));
        let before = self.socket.out_len();
        let mut group = std::mem::take(&mut work.group);
        let mut parts = group.parts.drain(..).peekable();
        let (side, mut at) = (&group.side, 0);
        self.wait_between(&mut |answered, out| {
            while let Some((_, end)) = parts.next_if(|(behind, _)| *behind <= answered) {
                out.extend_from_slice(&side[at..end]);
                at = end;
            }
        })
        .await?;
        drop(parts);
        let came = self.socket.out_len() - before;
        if group.reads > 0 {
            work.reads_max = if came <= limits::ANSWER_BYTES_FLUSH {
                (2 * work.reads_max).min(limits::PIPELINED_WRITES_MAX)
            } else {
                (work.reads_max / 2).max(1)
            };
        }
        group.keys.clear();
        group.side.clear();
        work.group = ItemGroup {
            bytes: 0,
            reads: 0,
            ..group
        };
        Ok(())
    }

    /// Sends the lines that are formed. Requires: no item waits.
    async fn flush_lines(&mut self, work: &mut BatchWork) -> Result<(), ConnectionEnd> {
        wrap_chunk(self.socket.out(), work.lines_at);
        work.lines_at = 0;
        let done = self.socket.flush().await;
        self.lane.refresh();
        self.socket.prepare_out();
        done
    }
}

impl ItemGroup {
    /// Lines that were formed since the last call stand behind `waiting` items.
    fn note_side(&mut self, waiting: usize) {
        let before = self.parts.last().map_or(0, |(_, end)| *end);
        if self.side.len() > before {
            self.parts.push((waiting, self.side.len()));
        }
    }
}

fn parsed_op(judged: &Result<Entity, Refusal>) -> OpLabel {
    judged
        .as_ref()
        .map_or(OpLabel::Other, |entity| op_of_entity(entity.op))
}
