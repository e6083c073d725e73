//! Bodies that were not whole when their head was read: those to be stored, and those to be skipped.
//!
//! ```text
//! receive   100 Continue? ─► input ─► value, at most value_bytes_max ─► lane's batch
//! discard                    input ─► nothing, so that the next request can be found
//! ```
//!
//! Invariants
//! 1. Memory for a body was taken from the bytes gate before its bytes are read.
//! 2. A body that does not keep the least rate ends the connection; nothing of it is applied.
//! 3. Nothing is sent to the engine before the body's last byte is here.
//!
//! Not here: bodies that came with their head (`requests.rs`), chunk syntax (crate `wire`).
//! See: docs/overload.md.

use crate::connection::{Connection, End, Stage};
use crate::input::Input;
use crate::lane::RoomPermit;
use crate::limits;
use crate::metrics::{Op, Refused};
use crate::stages::Watch;
use crate::status::{self, Terms};
use bytes::BufMut;
use dendra_base::Key;
use dendra_wire::Refusal;
use dendra_wire::http::response;
use dendra_wire::http::{ChunkDecoder, Step};
use dendra_wire::route::Entity;
use std::future::poll_fn;
use std::pin::{Pin, pin};
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

    /// Takes what is in `input`, and gives data to `sink`; its error stops.
    fn take<E: From<Refusal>>(
        &mut self,
        input: &mut Input,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Taken, E> {
        loop {
            match self {
                BodyReader::Length(0) => return Ok(Taken::All),
                BodyReader::Length(_) if input.len() == 0 => return Ok(Taken::More),
                BodyReader::Length(left) => {
                    let n = usize::try_from(*left).map_or(input.len(), |n| n.min(input.len()));
                    sink(&input.data()[..n])?;
                    input.consume(n);
                    *left -= n as u64;
                }
                BodyReader::Chunked(decoder) => match decoder.decode(input.data())? {
                    Step::More { consumed } => {
                        input.consume(consumed);
                        return Ok(Taken::More);
                    }
                    Step::Data { start, end } => {
                        sink(&input.data()[start..end])?;
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
    /// Room in the bytes gate for `value`.
    pub(crate) room: Vec<RoomPermit>,
}

impl Inflow {
    /// Nothing has arrived yet; `room` is taken for what will.
    pub(crate) fn new(reader: BodyReader, room: Vec<RoomPermit>) -> Inflow {
        Inflow {
            reader,
            value: Vec::new(),
            room,
        }
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

/// Why a body cannot be stored.
enum Spoiled {
    Refusal(Refusal),
    NoRoom,
}

impl From<Refusal> for Spoiled {
    fn from(refusal: Refusal) -> Spoiled {
        Spoiled::Refusal(refusal)
    }
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
                return Ok(());
            }
            Err(Err(end)) => return Err(end),
        };
        // Waiting for the client is no stage of ours.
        body.watch.restart();
        let stored_key = body.key.as_stored();
        let pushed = self.push(
            &body.entity,
            body.terms,
            stored_key,
            Some(&value),
            body.watch,
        );
        if let Err(what) = pushed {
            self.lane.metrics().refuse(what);
            let refusal = status::refused(what);
            let status = status::write_refusal(&mut self.out, body.terms.style, &refusal);
            self.lane.finish(Op::Put, status);
        }
        self.is_closing |= body.terms.style.connection == dendra_wire::http::Connection::Close;
        Ok(())
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
        let value = &mut body.value;
        if let BodyReader::Length(length) = body.reader {
            // The gate has counted them; pages that never arrive are never touched.
            value.reserve_exact(length as usize);
        }
        loop {
            let Connection { lane, input, .. } = self;
            let room = &mut body.room;
            let before = input.len();
            let taken = body.reader.take(input, |data| {
                if value.capacity() - value.len() < data.len() {
                    let more = data
                        .len()
                        .max(value.capacity())
                        .max(limits::UNCOUNTED_BYTES_MAX);
                    room.push(lane.hold_bytes(more).ok_or(Spoiled::NoRoom)?);
                    value.reserve_exact(more);
                }
                value.extend_from_slice(data);
                Ok(())
            });
            pace.received += before - input.len();
            match taken {
                Ok(Taken::All) => return Ok(std::mem::take(value)),
                Ok(Taken::More) => {}
                Err(Spoiled::Refusal(refusal)) => return Err(Ok(refusal)),
                Err(Spoiled::NoRoom) => {
                    self.lane.metrics().refuse(Refused::Bytes);
                    return Err(Ok(status::refused(Refused::Bytes).closing()));
                }
            }
            let timeout = self.lane.shared.settings.timeouts.body;
            self.seat.arm(pace.deadline_us(timeout));
            let filled = match &mut body.reader {
                BodyReader::Length(left) if *left > limits::READ_BYTES_MAX as u64 / 2 => {
                    self.fill_value(value, left, &mut pace).await
                }
                BodyReader::Length(_) | BodyReader::Chunked(_) => self.fill(Stage::Body).await,
            };
            match filled {
                Ok(()) => {}
                Err(End::TooSlow) => {
                    return Err(Ok(Refusal::too_slow("the body did not arrive in time")));
                }
                Err(end) => return Err(Err(end)),
            }
        }
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
            let taken = body.take(&mut self.input, |_| Ok::<(), Refusal>(()));
            pace.received += before - self.input.len();
            match taken {
                Ok(Taken::All) => return Ok(()),
                Ok(Taken::More) => {}
                // The request is answered already: all that is left to say is the end.
                Err(_) => return Err(End::Done),
            }
            let timeout = self.lane.shared.settings.timeouts.body;
            self.seat.arm(pace.deadline_us(timeout));
            self.fill(Stage::Body).await?;
        }
    }
}
