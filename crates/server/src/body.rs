//! Bodies that were not whole when their head was read: those to be stored, and those to be skipped.
//!
//! ```text
//! receive   100 Continue? ─► input ─► value, at most value_bytes_max ─► lane's batch
//! discard                    input ─► nothing, so that the next request can be found
//! ```
//!
//! Invariants
//! 1. Of a body 4 KiB, and one read, come before room is taken at the bytes gate: what is announced holds nothing. Then
//!    its room is waited for while its socket is not read, and a holder that does not use it gives it back.
//! 2. A body that does not keep the least rate ends the connection; nothing of it is applied.
//! 3. Nothing is sent to the engine before the body's last byte is here.
//!
//! Not here: bodies that came with their head (`requests.rs`), chunk syntax (crate `wire`).
//! See: docs/overload.md.

use crate::connection::{Connection, End, Expecting};
use crate::input::Input;
use crate::limits;
use crate::metrics::{Op, Refused, Share};
use crate::room::{Room, Rooms, Turnover};
use crate::stages::Watch;
use crate::status::{self, Terms};
use bytes::{BufMut, Bytes};
use dendra_base::Key;
use dendra_wire::Refusal;
use dendra_wire::http::response;
use dendra_wire::http::{ChunkDecoder, Step};
use dendra_wire::route::Entity;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Where in a body the input stands.
#[derive(Debug)]
pub(crate) enum BodyReader {
    /// So many bytes are still to come.
    Length(u64),
    /// Chunks.
    Chunked(ChunkDecoder),
}

/// Is the body over?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    All,
    More,
}

impl BodyReader {
    /// A body of `length` bytes.
    pub(crate) fn of_length(length: u64) -> BodyReader {
        BodyReader::Length(length)
    }

    /// A chunked body of at most `body_bytes_max` bytes.
    pub(crate) fn chunked(body_bytes_max: u64) -> BodyReader {
        BodyReader::Chunked(ChunkDecoder::new(body_bytes_max))
    }

    /// Takes what is in `input`, and gives data to `sink`.
    fn take(&mut self, input: &mut Input, mut sink: impl FnMut(&[u8])) -> Result<Taken, Refusal> {
        loop {
            match self {
                BodyReader::Length(0) => return Ok(Taken::All),
                BodyReader::Length(_) if input.len() == 0 => return Ok(Taken::More),
                BodyReader::Length(left) => {
                    let n = usize::try_from(*left).map_or(input.len(), |n| n.min(input.len()));
                    sink(&input.data()[..n]);
                    input.consume(n);
                    *left -= n as u64;
                }
                BodyReader::Chunked(decoder) => match decoder.decode(input.data())? {
                    Step::More { consumed } => {
                        input.consume(consumed);
                        return Ok(Taken::More);
                    }
                    Step::Data { start, end } => {
                        sink(&input.data()[start..end]);
                        input.consume(end);
                    }
                    Step::End { consumed } => {
                        input.consume(consumed);
                        return Ok(Taken::All);
                    }
                },
            }
        }
    }
}

/// A body that is collected.
pub(crate) struct Inflow {
    reader: BodyReader,
    value: Vec<u8>,
    /// Room in the bytes gate for `value`, and for what is still to come of it.
    pub(crate) room: Vec<Room>,
}

impl Inflow {
    /// Nothing has arrived yet.
    pub(crate) fn new(reader: BodyReader) -> Inflow {
        Inflow {
            reader,
            value: Vec::new(),
            room: Vec::new(),
        }
    }

    /// Room that has to be there before what stands in `input` is taken, if any: all of a body whose length is known,
    /// as soon as its sender has shown that it sends; a chunked one as it grows.
    fn lacking(&self, input: &Input) -> Option<usize> {
        let arrived = self.value.len() + input.len();
        match &self.reader {
            BodyReader::Length(left) => {
                let is_due = self.room.is_empty() && arrived > limits::UNCOUNTED_BYTES_MAX;
                let whole = self.value.len() + *left as usize;
                (is_due && whole > limits::UNCOUNTED_BYTES_MAX).then_some(whole)
            }
            BodyReader::Chunked(_) => {
                let spare = self.value.capacity() - self.value.len();
                let grows = spare < input.len() && arrived > limits::UNCOUNTED_BYTES_MAX;
                let more = input.len().max(self.value.capacity());
                grows.then_some(more.max(limits::UNCOUNTED_BYTES_MAX))
            }
        }
    }

    /// Room for `bytes` is there.
    fn grow(&mut self, bytes: usize, rooms: impl IntoIterator<Item = Room>) {
        match &self.reader {
            BodyReader::Length(left) => self.value.reserve_exact(*left as usize),
            BodyReader::Chunked(_) => self.value.reserve_exact(bytes),
        }
        self.room.extend(rooms);
    }
}

/// A PUT whose body is still arriving.
pub(crate) struct PendingBody {
    pub(crate) entity: Entity,
    pub(crate) terms: Terms,
    pub(crate) key: Key,
    pub(crate) body: Inflow,
    pub(crate) expects_continue: bool,
    pub(crate) watch: Watch,
}

/// The pace that a body has to keep.
struct Pace {
    began_us: u64,
    received: usize,
}

impl Pace {
    fn deadline_us(&self, body: Duration) -> u64 {
        let allowance_us =
            self.received as u64 * 1_000_000 / limits::BODY_BYTES_PER_SECOND_MIN as u64;
        let timeout_us = (body.as_micros() as u64 + allowance_us)
            .min(limits::BODY_TIMEOUT_MAX.as_micros() as u64);
        self.began_us + timeout_us
    }
}

impl Connection {
    /// Reads the rest of a body and puts the write into the loop's batch.
    pub(crate) async fn receive(&mut self, mut body: PendingBody) -> Result<(), End> {
        if body.expects_continue && self.input.len() == 0 {
            response::proceed(&mut self.out);
        }
        self.flush().await?;
        let value = match self.collect(&mut body.body).await {
            Ok(value) => value,
            Err(Ok(refusal)) => {
                let style = body.terms.style.closing();
                let status = status::write_refusal(&mut self.out, style, &refusal);
                self.lane.finish(Op::Put, status);
                self.is_closing = true;
                self.lingers = true;
                self.lingers_for_body = true;
                return Ok(());
            }
            Err(Err(end)) => return Err(end),
        };
        // Waiting for the client is no stage of ours.
        body.watch.restart();
        let pushed = self.push_value(&mut body, value).await?;
        if let Err(what) = pushed {
            self.lane.metrics().refuse(Share::Writes, what);
            let refusal = status::refused(what);
            let status = status::write_refusal(&mut self.out, body.terms.style, &refusal);
            self.lane.finish(Op::Put, status);
        }
        self.is_closing |= body.terms.style.connection == dendra_wire::http::Connection::Close;
        Ok(())
    }

    /// Puts a value that came into the loop's batch: waits for the log rather than to have it sent once more.
    async fn push_value(
        &mut self,
        body: &mut PendingBody,
        value: Vec<u8>,
    ) -> Result<Result<(), Refused>, End> {
        let (terms, stored_key) = (body.terms, body.key.as_stored());
        if self.lane.is_member() {
            let room = std::mem::take(&mut body.body.room);
            let value = Some(Bytes::from(value));
            let entity = &body.entity;
            return Ok(self.push_operation(entity, terms, stored_key, value, room, body.watch));
        }
        let came_us = self.lane.now_us();
        let until_us = came_us + u64::from(body.entity.timeout_ms) * 1_000;
        let mut entity = body.entity;
        loop {
            let value = Some(value.as_slice());
            let pushed = self.push(&entity, terms, stored_key, value, body.watch);
            if pushed != Err(Refused::LogQueue) {
                return Ok(pushed);
            }
            let len = value.map_or(0, <[u8]>::len);
            if !self.lane.wait_for_log(&self.seat, len, until_us).await {
                return Ok(pushed);
            }
            self.lane.refresh();
            if self.is_client_gone() {
                self.lane.forgo_log();
                self.lane.metrics().abandoned.add(1);
                return Err(End::HungUp);
            }
            let waited_ms = (self.lane.now_us() - came_us) / 1_000;
            let left_ms = u64::from(body.entity.timeout_ms).saturating_sub(waited_ms);
            entity.timeout_ms = (left_ms as u32).max(1);
        }
    }

    /// Reads the rest of a body.
    pub(crate) async fn collect(
        &mut self,
        body: &mut Inflow,
    ) -> Result<Vec<u8>, Result<Refusal, End>> {
        let mut pace = Pace {
            began_us: self.lane.now_us(),
            received: 0,
        };
        let mut turnover = Turnover::new(pace.began_us);
        let timeout = self.lane.shared.settings.timeouts.body;
        loop {
            if let Some(bytes) = body.lacking(&self.input) {
                let Some(rooms) = self.wait_for_room(bytes, timeout).await else {
                    self.lane.metrics().refuse(Share::Writes, Refused::Bytes);
                    return Err(Ok(status::refused(Refused::Bytes).closing()));
                };
                let now_us = self.lane.now_us();
                // It is not the sender who was slow meanwhile.
                pace.began_us = now_us;
                turnover = Turnover::new(now_us);
                body.grow(bytes, rooms);
            }
            let Inflow {
                reader,
                value,
                room,
            } = body;
            let before = pace.received + self.input.len();
            let taken = reader.take(&mut self.input, |data| value.extend_from_slice(data));
            pace.received = before - self.input.len();
            match taken {
                Ok(Taken::All) => return Ok(std::mem::take(value)),
                Ok(Taken::More) => {}
                Err(refusal) => return Err(Ok(refusal)),
            }
            let holds = !room.is_empty();
            let deadline_us = pace.deadline_us(timeout);
            self.seat.arm(match holds {
                true => deadline_us.min(turnover.due_us()),
                false => deadline_us,
            });
            let before = pace.received + self.input.len();
            let filled = match reader {
                BodyReader::Length(left) if holds && *left > limits::READ_BYTES_MAX as u64 / 2 => {
                    self.fill_value(value, left, &mut pace).await
                }
                BodyReader::Length(_) | BodyReader::Chunked(_) => self.fill(Expecting::Body).await,
            };
            turnover.note(pace.received + self.input.len() - before);
            let now_us = self.lane.now_us();
            // A sender may be slow for as long as no other request needs its room.
            if holds && turnover.is_slow(now_us) && self.is_body_room_short() {
                let why = "others waited for the room that the body held, and it came too slowly";
                return Err(Ok(Refusal::too_slow(why)));
            }
            match filled {
                Ok(()) => {}
                Err(End::TooSlow) if now_us < deadline_us => {}
                Err(End::TooSlow) => {
                    return Err(Ok(Refusal::too_slow("the body did not arrive in time")));
                }
                Err(end) => return Err(Err(end)),
            }
        }
    }

    /// Waits for room, on a member first among the values that it writes; meanwhile the socket is not read.
    async fn wait_for_room(&mut self, bytes: usize, at_most: Duration) -> Option<Vec<Room>> {
        let lane = Rc::clone(&self.lane);
        let share = lane.is_member().then_some(&lane.value_bytes);
        let mut rooms = Vec::with_capacity(2);
        for from in share.into_iter().chain([&lane.bytes]) {
            let room = match from.offer_in_turn(self.source, bytes) {
                Some(room) => Some(room),
                None => self.stand_for_room(from, bytes, at_most).await,
            };
            rooms.push(room?);
        }
        Some(rooms)
    }

    /// Do other bodies wait for room that this one may hold?
    fn is_body_room_short(&self) -> bool {
        self.lane.bytes.is_short() || (self.lane.is_member() && self.lane.value_bytes.is_short())
    }

    async fn stand_for_room(
        &mut self,
        from: &Rc<Rooms>,
        bytes: usize,
        at_most: Duration,
    ) -> Option<Room> {
        let _held = self.hold_input();
        let until_us = self.deadline_us(at_most);
        let room = from.wait(&self.seat, self.source, bytes, until_us).await;
        self.lane.refresh();
        room
    }

    /// Reads a large body straight to where it is stored.
    async fn fill_value(
        &mut self,
        value: &mut Vec<u8>,
        left: &mut u64,
        pace: &mut Pace,
    ) -> Result<(), End> {
        self.input.settle(&self.lane);
        let Connection { stream, seat, .. } = self;
        let mut room = value.limit(*left as usize);
        let mut read = pin!(stream.read_buf(&mut room));
        let done = poll_fn(|cx| {
            if seat.is_late() {
                return Poll::Ready(Err(End::TooSlow));
            }
            match Pin::as_mut(&mut read).poll(cx) {
                Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Err(End::HungUp)),
                Poll::Ready(Ok(n)) => Poll::Ready(Ok(n)),
                Poll::Pending => {
                    seat.register(cx);
                    Poll::Pending
                }
            }
        })
        .await;
        self.lane.refresh();
        let n = done?;
        self.lane.metrics().reads.add(1);
        self.lane.metrics().read_bytes.add(n as u64);
        *left -= n as u64;
        pace.received += n;
        Ok(())
    }

    /// Reads a body to its end and forgets it.
    pub(crate) async fn discard(&mut self, mut body: BodyReader) -> Result<(), End> {
        self.flush().await?;
        let mut pace = Pace {
            began_us: self.lane.now_us(),
            received: 0,
        };
        loop {
            let before = self.input.len();
            let taken = body.take(&mut self.input, |_| {});
            pace.received += before - self.input.len();
            match taken {
                Ok(Taken::All) => return Ok(()),
                Ok(Taken::More) => {}
                // The request is answered already: all that is left to say is the end.
                Err(_) => return Err(End::Done),
            }
            let timeout = self.lane.shared.settings.timeouts.body;
            self.seat.arm(pace.deadline_us(timeout));
            self.fill_unwanted().await?;
        }
    }
}
