//! Bodies that were not whole when their head was read: those to be stored, and those to be
//! skipped.
//!
//! ```text
//! collect   input ─► value, at most value_bytes_max ─► (requests: begun)
//! discard                    input ─► nothing, so that the next request can be found
//! ```
//!
//! Invariants
//! 1. Of a body, its metadata included, 4 KiB, and one read, come before room is taken at the bytes
//!    gate: an announced length holds nothing. Then its room is waited for while its socket is not
//!    read. A holder that does not use it gives it back.
//! 2. A body that does not keep the least rate ends the connection; nothing of it is applied.
//! 3. Nothing is sent to the engine before the body's last byte is here.
//!
//! Not here: bodies that came with their head (`connection/requests.rs`), chunk syntax (crate
//! `wire`).
//! See: docs/overload.md.

use crate::event_loop::thread::EventLoop;
use crate::exchange::input::Input;
use crate::exchange::socket::{ConnectionEnd, Expecting, Socket};
use crate::limits;
use crate::measure::metrics::{CapacityShare, RefusalCause};
use crate::measure::stages::Watch;
use crate::rights::StandingLogin;
use crate::waiting::room::{Room, Rooms, Turnover};
use crate::waiting::status::{self, AnswerTerms};
use dendra_base::Key;
use dendra_wire::Refusal;
use dendra_wire::http::{ChunkDecoder, ChunkItem};
use dendra_wire::route::Entity;
use std::rc::Rc;
use std::time::Duration;

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
pub(super) enum BodyProgress {
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

    /// Takes the bytes of `input`, and gives data to `sink`.
    pub(super) fn take(
        &mut self,
        input: &mut Input,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<BodyProgress, Refusal> {
        loop {
            match self {
                BodyReader::Length(0) => return Ok(BodyProgress::All),
                BodyReader::Length(_) if input.len() == 0 => return Ok(BodyProgress::More),
                BodyReader::Length(left) => {
                    let n = usize::try_from(*left).map_or(input.len(), |n| n.min(input.len()));
                    sink(&input.data()[..n]);
                    input.consume(n);
                    *left -= n as u64;
                }
                BodyReader::Chunked(decoder) => match decoder.decode(input.data())? {
                    ChunkItem::More { consumed } => {
                        input.consume(consumed);
                        return Ok(BodyProgress::More);
                    }
                    ChunkItem::Data { start, end } => {
                        sink(&input.data()[start..end]);
                        input.consume(end);
                    }
                    ChunkItem::End { consumed } => {
                        input.consume(consumed);
                        return Ok(BodyProgress::All);
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
    /// Room in the bytes gate for `value`, and for the part of it that is still to come.
    room: Vec<Room>,
    /// The share of the bytes gate in which it needs room as well.
    share: Option<Rc<Rooms>>,
}

/// A body that came whole.
pub(crate) struct Collected {
    pub(crate) bytes: Vec<u8>,
    pub(crate) room: Vec<Room>,
}

/// Why a body did not come whole.
pub(crate) enum NoBody {
    /// The body is refused, and the connection ends after the refusal.
    Refused(Refusal),
    /// The connection ends.
    Ended(ConnectionEnd),
}

impl Inflow {
    /// Nothing has arrived yet. Room is taken in `share`, too, if there is one.
    pub(crate) fn new(reader: BodyReader, share: Option<Rc<Rooms>>) -> Inflow {
        Inflow {
            reader,
            value: Vec::new(),
            room: Vec::new(),
            share,
        }
    }

    /// The bytes of the body stand behind `front`.
    pub(crate) fn behind(mut self, front: &[u8]) -> Inflow {
        self.value.extend_from_slice(front);
        self
    }

    /// Is its length not known before it has come?
    pub(crate) fn is_chunked(&self) -> bool {
        matches!(self.reader, BodyReader::Chunked { .. })
    }

    /// The room that is still needed before the bytes in `input` can be taken; `None` = none. A
    /// body of known length needs room for all of it, once its sender has shown that it sends. A
    /// chunked one needs it as it grows.
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

/// A PUT with a body that is still arriving.
pub(crate) struct PendingBody {
    /// To be judged again when the body is here; `None` where every request is allowed.
    pub(crate) login: Option<StandingLogin>,
    pub(crate) entity: Entity,
    pub(crate) terms: AnswerTerms,
    pub(crate) key: Key,
    pub(crate) body: Inflow,
    pub(crate) expects_continue: bool,
    /// Nanoseconds that the request waited in front of its body: in a pause, in line for the log.
    pub(crate) waited_ns: u64,
    pub(crate) watch: Watch,
}

/// The pace that a body has to keep.
pub(super) struct BodyPace {
    began_us: u64,
    received: usize,
}

impl BodyPace {
    /// A body whose first byte is expected from now on.
    pub(super) fn new(now_us: u64) -> BodyPace {
        BodyPace {
            began_us: now_us,
            received: 0,
        }
    }

    /// So many bytes came.
    pub(super) fn note(&mut self, bytes: usize) {
        self.received += bytes;
    }

    /// For so long its sender was not the one to wait for.
    pub(super) fn pause(&mut self, us: u64) {
        self.began_us += us;
    }

    /// When its next byte has to be here.
    pub(super) fn deadline_us(&self, body: Duration) -> u64 {
        let allowance_us =
            self.received as u64 * 1_000_000 / limits::BODY_BYTES_PER_SECOND_MIN as u64;
        let timeout_us = (body.as_micros() as u64 + allowance_us)
            .min(limits::BODY_TIMEOUT_MAX.as_micros() as u64);
        self.began_us + timeout_us
    }
}

impl Inflow {
    /// Reads the rest of a body.
    pub(crate) async fn collect(mut self, socket: &mut Socket) -> Result<Collected, NoBody> {
        let lane = Rc::clone(socket.lane());
        let seat = Rc::clone(socket.seat());
        let mut pace = BodyPace::new(lane.now_us());
        let mut turnover = Turnover::new(pace.began_us);
        let timeout = lane.parts.settings.timeouts.body;
        loop {
            if let Some(bytes) = self.lacking(socket.input()) {
                let Some(rooms) = self.wait_for_room(socket, bytes, timeout).await else {
                    lane.metrics()
                        .refuse(CapacityShare::Writes, RefusalCause::Bytes);
                    return Err(NoBody::Refused(
                        status::refused(RefusalCause::Bytes).closing(),
                    ));
                };
                let now_us = lane.now_us();
                // The wait for room was not the sender's delay.
                pace.began_us = now_us;
                turnover = Turnover::new(now_us);
                self.grow(bytes, rooms);
            }
            let Inflow {
                reader,
                value,
                room,
                ..
            } = &mut self;
            let before = pace.received + socket.unread_len();
            let taken = reader.take(socket.input(), |data| value.extend_from_slice(data));
            pace.received = before - socket.unread_len();
            match taken {
                Ok(BodyProgress::All) => {
                    let (bytes, room) = (std::mem::take(value), std::mem::take(room));
                    return Ok(Collected { bytes, room });
                }
                Ok(BodyProgress::More) => {}
                Err(refusal) => return Err(NoBody::Refused(refusal)),
            }
            let holds = !room.is_empty();
            let deadline_us = pace.deadline_us(timeout);
            seat.arm(if holds {
                deadline_us.min(turnover.due_us())
            } else {
                deadline_us
            });
            let before_fill = pace.received + socket.unread_len();
            let filled = match reader {
                BodyReader::Length(left) if holds && *left > limits::READ_BYTES_MAX as u64 / 2 => {
                    match socket.fill_value(value, *left as usize).await {
                        Ok(n) => {
                            *left -= n as u64;
                            pace.received += n;
                            Ok(())
                        }
                        Err(end) => Err(end),
                    }
                }
                BodyReader::Length(_) | BodyReader::Chunked(_) => {
                    socket.fill(Expecting::Body).await
                }
            };
            turnover.note(pace.received + socket.unread_len() - before_fill);
            let now_us = lane.now_us();
            // A sender may be slow for as long as no other request needs its room.
            if holds && turnover.is_slow(now_us) && self.is_room_short(&lane) {
                let why = "others waited for the room that the body held, and it came too slowly";
                return Err(NoBody::Refused(Refusal::too_slow(why)));
            }
            match filled {
                Ok(()) => {}
                Err(ConnectionEnd::TooSlow) if now_us < deadline_us => {}
                Err(ConnectionEnd::TooSlow) => {
                    let refusal = Refusal::too_slow("the body did not arrive in time");
                    return Err(NoBody::Refused(refusal));
                }
                Err(end) => return Err(NoBody::Ended(end)),
            }
        }
    }

    /// Waits for room, first in the share; meanwhile the socket is not read.
    async fn wait_for_room(
        &self,
        socket: &mut Socket,
        bytes: usize,
        at_most: Duration,
    ) -> Option<Vec<Room>> {
        let lane = Rc::clone(socket.lane());
        let mut rooms = Vec::with_capacity(2);
        for from in self.share.iter().chain([&lane.rooms.bytes]) {
            let room = match from.offer_in_turn(socket.source(), bytes) {
                Some(room) => Some(room),
                None => stand_for_room(socket, from, bytes, at_most).await,
            };
            rooms.push(room?);
        }
        Some(rooms)
    }

    /// Do other bodies wait for room that this one may hold?
    fn is_room_short(&self, lane: &EventLoop) -> bool {
        let share = self.share.as_ref();
        lane.rooms.bytes.is_short() || share.is_some_and(|share| share.is_short())
    }
}

/// Stands in line for room; meanwhile the socket is not read.
pub(super) async fn stand_for_room(
    socket: &mut Socket,
    from: &Rc<Rooms>,
    bytes: usize,
    at_most: Duration,
) -> Option<Room> {
    let _held = socket.hold_input();
    let until_us = socket.deadline_us(at_most);
    let (seat, source) = (socket.seat(), socket.source());
    let room = from.wait(seat, source, bytes, until_us).await;
    socket.lane().refresh();
    room
}

/// Reads a body to its end and forgets it.
pub(crate) async fn discard(
    socket: &mut Socket,
    mut body: BodyReader,
) -> Result<(), ConnectionEnd> {
    socket.flush().await?;
    let lane = Rc::clone(socket.lane());
    let mut pace = BodyPace::new(lane.now_us());
    loop {
        let before = socket.unread_len();
        let taken = body.take(socket.input(), |_| {});
        pace.received += before - socket.unread_len();
        match taken {
            Ok(BodyProgress::All) => return Ok(()),
            Ok(BodyProgress::More) => {}
            // The request is answered already: all that is left to say is the end.
            Err(_) => return Err(ConnectionEnd::Done),
        }
        let timeout = lane.parts.settings.timeouts.body;
        socket.seat().arm(pace.deadline_us(timeout));
        socket.fill_unwanted().await?;
    }
}
