//! One client connection: read, answer all that was read, write once, wait.
//!
//! ```text
//!            ┌──────────────── fill ◄──────────────────┐
//!            ▼                                         │
//! step: all requests in the buffer ─► Next ─┬─ Read ───┘   flush first: one write per batch
//!                                           ├─ Outcomes    writes wait for their commit, together
//!                                           ├─ Fetch       a read waits for the store pool
//!                                           ├─ Body, Discard, Scan, Pause
//!                                           └─ Close
//! ```
//!
//! Invariants
//! 1. Answers leave in the order of the requests, and a request sees the effects of those in front
//!    of it: writes may wait together, everything else waits for the writes in front of it.
//! 2. Every wait has a deadline in the connection's seat; no request has a timer.
//! 3. While answers wait for the client to read, nothing more is parsed and nothing more is read.
//! 4. A request counts from its last byte on: a client that hangs up inside a body changed nothing.
//!
//! Not here: what requests mean (`requests.rs`), bodies (`body.rs`), scans (`scan.rs`).
//! See: docs/api.md, docs/overload.md.

use crate::body::PendingBody;
use crate::clock;
use crate::input::Input;
use crate::lane::Lane;
use crate::limits;
use crate::peers::{PendingAsk, PendingLink, PendingOperation};
use crate::requests::{PendingRead, PendingWrite};
use crate::room::{Room, Turnover};
use crate::scan::PendingScan;
use crate::seat::Seat;
use crate::stages::Unsent;
use dendra_node::standing::Called;
use dendra_wire::Refusal;
use dendra_wire::http::response::Style;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// What a connection has to wait for before it can go on with its buffer.
pub(crate) enum Next {
    /// The rest of a head, or the next one.
    Read,
    /// The outcomes of the writes in `pending`.
    Outcomes,
    /// The client: enough answers wait to be read.
    Flush,
    /// Room in the loop's batch for a value of so many bytes, until a moment in microseconds.
    LogRoom(usize, u64),
    /// The engine: a newcomer is delayed by this many microseconds.
    Pause(u64),
    /// The rest of a body that will be stored.
    Body(Box<PendingBody>),
    /// The rest of a body that nobody wants.
    Discard(Box<crate::body::BodyReader>),
    /// The store pool.
    Fetch(Box<PendingRead>),
    /// A scan, from its first to its last chunk.
    Scan(Box<PendingScan>),
    /// The outcomes of the operations in `operations`: the loop's node works on them.
    Operations,
    /// A peer's link begins behind the answer that is formed.
    Link(Box<PendingLink>),
    /// The loop's node, for a peer that asks over plain HTTP.
    PeerAsk(Box<PendingAsk>),
    /// Its turn: enough was done for this connection while others wait.
    Turn,
    /// Nothing: the last answer is formed.
    Close,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The last answer was given.
    Done,
    /// The client went away.
    HungUp,
    /// The client took too long.
    TooSlow,
    /// The node drains.
    Draining,
    /// There is no room for the bytes that the connection would hold.
    Crowded,
}

/// What the next bytes from the client belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expecting {
    /// Nothing has begun.
    Idle,
    /// A head has begun.
    Head,
    /// A body; the caller has armed its deadline.
    Body,
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) lane: Rc<Lane>,
    pub(crate) seat: Rc<Seat>,
    /// Where the client is.
    pub(crate) source: IpAddr,
    pub(crate) stream: TcpStream,
    pub(crate) input: Input,
    pub(crate) out: Vec<u8>,
    /// Room that `out` has already: a scan's, until it is written.
    pub(crate) out_room: Option<(Room, Room)>,
    pub(crate) pending: Vec<PendingWrite>,
    /// Operations that the loop's node works on, in a cluster.
    pub(crate) operations: Vec<PendingOperation>,
    /// The connection is a peer's link from here on.
    link: Option<Box<PendingLink>>,
    /// Measured requests whose answers are in `out`.
    pub(crate) unsent: Unsent,
    /// The answer formed last ends the connection.
    pub(crate) is_closing: bool,
    /// Unread bytes may follow the last answer: wait for the client to have read it.
    pub(crate) lingers: bool,
    /// And what follows is a body: it may be long.
    pub(crate) lingers_for_body: bool,
    /// The newcomer in front has had its delay.
    pub(crate) has_paused: bool,
    /// The write in front stands in line for the log or the engine, or has stood there, until then.
    pub(crate) in_line_until_us: Option<u64>,
    /// What was read last stood in line for so long that it is refused.
    pub(crate) is_called_to_refuse: bool,
    /// A peer asks here: it stands in no line of clients.
    pub(crate) is_of_peer: bool,
    head_deadline_us: Option<u64>,
}

/// Serves one connection to where it becomes a peer's link: the link, the socket and what was read behind the request.
/// Or to its end: then the socket, which is to be closed.
pub(crate) async fn serve(
    lane: Rc<Lane>,
    seat: Rc<Seat>,
    source: IpAddr,
    stream: TcpStream,
) -> Result<(PendingLink, TcpStream, Vec<u8>), TcpStream> {
    let mut connection = Connection {
        lane,
        seat,
        source,
        stream,
        input: Input::default(),
        out: Vec::new(),
        out_room: None,
        pending: Vec::new(),
        operations: Vec::new(),
        link: None,
        unsent: Unsent::default(),
        is_closing: false,
        lingers: false,
        lingers_for_body: false,
        has_paused: false,
        in_line_until_us: None,
        is_called_to_refuse: false,
        is_of_peer: false,
        head_deadline_us: None,
    };
    let end = connection.run().await;
    if let Some(link) = connection.link.take() {
        let rest = connection.input.data().to_vec();
        connection.input.consume(rest.len());
        connection.input.settle(&connection.lane);
        return Ok((*link, connection.stream, rest));
    }
    connection.lingers |= connection.input.len() > 0;
    connection.input.consume(connection.input.len());
    connection.input.settle(&connection.lane);
    match end {
        End::Done => connection.say_goodbye().await,
        End::TooSlow => connection.lane.metrics().timed_out.add(1),
        End::HungUp | End::Draining | End::Crowded => {}
    }
    Err(connection.stream)
}

impl Connection {
    async fn run(&mut self) -> End {
        loop {
            let next = self.step();
            let done = match next {
                Next::Read => self.read_on().await,
                Next::Outcomes => self.wait_for_outcomes().await,
                Next::Flush => {
                    let done = self.flush().await;
                    // The next request did not take this long.
                    self.lane.refresh();
                    done
                }
                Next::Pause(us) => self.pause(us).await,
                Next::Turn => {
                    let _held = self.hold_input();
                    tokio::task::yield_now().await;
                    self.lane.refresh();
                    Box::pin(self.stand(Expecting::Body)).await
                }
                Next::LogRoom(bytes, until_us) => self.line_up(bytes, until_us).await,
                // The rare ways are boxed: an idle connection should not reserve room for them.
                Next::Body(body) => Box::pin(self.receive(*body)).await,
                Next::Discard(body) => Box::pin(self.discard(*body)).await,
                Next::Fetch(read) => Box::pin(self.fetch(*read)).await,
                Next::Scan(scan) if scan.is_of_cluster() && self.lane.is_member() => {
                    Box::pin(self.stream_cluster(*scan)).await
                }
                Next::Scan(scan) => Box::pin(self.stream(*scan)).await,
                Next::Operations => self.wait_for_operations().await,
                Next::PeerAsk(ask) => Box::pin(self.answer_peer(*ask)).await,
                Next::Link(link) => match self.flush().await {
                    Ok(()) => {
                        self.link = Some(link);
                        Err(End::Done)
                    }
                    Err(end) => Err(end),
                },
                Next::Close => match self.flush().await {
                    Ok(()) => Err(End::Done),
                    Err(end) => Err(end),
                },
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Answers everything in the buffer that can be answered now.
    fn step(&mut self) -> Next {
        let flush_bytes = match self.lane.is_crowded() {
            false => limits::ANSWER_BYTES_FLUSH,
            true => limits::UNCOUNTED_BYTES_MAX,
        };
        let mut taken = 0;
        loop {
            if !self.pending.is_empty()
                && (self.is_closing || self.pending.len() >= limits::PIPELINED_WRITES_MAX)
            {
                return Next::Outcomes;
            }
            if !self.operations.is_empty()
                && (self.is_closing || self.operations.len() >= limits::PIPELINED_WRITES_MAX)
            {
                return Next::Operations;
            }
            if self.is_closing {
                return Next::Close;
            }
            if self.out.len() >= flush_bytes {
                return Next::Flush;
            }
            if self.out.capacity() == 0 {
                self.out = self.lane.output_buffer();
            }
            // The buffer is taken out while its head is looked at, so that everything else of the
            // connection can change meanwhile.
            let mut input = std::mem::take(&mut self.input);
            let (consumed, next) = self.handle_front(input.data());
            input.consume(consumed);
            self.input = input;
            if consumed > 0 {
                self.head_deadline_us = None;
                self.has_paused = false;
                self.in_line_until_us = None;
                taken += 1;
            }
            if let Some(next) = next {
                return next;
            }
            if taken >= limits::REQUESTS_A_TURN && self.lane.delay.is_crowded(self.lane.now_us()) {
                return Next::Turn;
            }
        }
    }

    async fn read_on(&mut self) -> Result<(), End> {
        self.flush().await?;
        if self.lane.is_draining() {
            return Err(End::Draining);
        }
        let stage = if self.input.len() == 0 {
            Expecting::Idle
        } else {
            Expecting::Head
        };
        match self.fill(stage).await {
            Err(End::TooSlow) if stage == Expecting::Head => {
                self.refuse_and_close(&Refusal::too_slow("the head did not arrive in time"));
                Ok(())
            }
            done => done,
        }
    }

    /// Forms a refusal that ends the connection.
    pub(crate) fn refuse_and_close(&mut self, refusal: &Refusal) {
        let status = crate::status::write_refusal(&mut self.out, Style::CLOSING, refusal);
        self.lane.finish(crate::metrics::Op::Other, status);
        self.is_closing = true;
        self.lingers = true;
    }

    async fn pause(&mut self, us: u64) -> Result<(), End> {
        self.flush().await?;
        let _held = self.hold_input();
        // Only under pressure, and then at most 100 ms: a timer here costs less than the request
        // that it holds back.
        tokio::time::sleep(Duration::from_micros(us)).await;
        self.lane.refresh();
        self.has_paused = true;
        self.expect_client()
    }

    /// Waits for room in the loop's batch: without any, the write is refused when it is looked at again.
    async fn line_up(&mut self, value_len: usize, until_us: u64) -> Result<(), End> {
        self.flush().await?;
        let _held = self.hold_input();
        let _ = self
            .lane
            .wait_for_log(&self.seat, value_len, until_us)
            .await;
        self.lane.refresh();
        let expected = self.expect_client();
        expected.inspect_err(|_gone| self.lane.forgo_log())
    }

    /// A deadline `after` from now.
    pub(crate) fn deadline_us(&self, after: Duration) -> u64 {
        self.lane.now_us() + after.as_micros() as u64
    }

    /// Reads what will be dropped, as far as the loop's allowance goes: then what is wanted goes first. The caller
    /// has armed the deadline.
    pub(crate) async fn fill_unwanted(&mut self) -> Result<(), End> {
        while !self.lane.may_discard(limits::READ_BYTES_MAX) {
            if self.seat.is_late() {
                return Err(End::TooSlow);
            }
            // The allowance comes back with the sweep.
            tokio::time::sleep(limits::SWEEP).await;
            self.lane.refresh();
        }
        self.fill(Expecting::Body).await
    }

    /// Reads more into the buffer.
    pub(crate) async fn fill(&mut self, stage: Expecting) -> Result<(), End> {
        let _held = self.hold_input();
        let timeouts = &self.lane.shared.settings.timeouts;
        match stage {
            Expecting::Idle => self.seat.arm(self.deadline_us(timeouts.idle)),
            Expecting::Head => {
                let deadline_us = self
                    .head_deadline_us
                    .unwrap_or_else(|| self.deadline_us(timeouts.head));
                self.head_deadline_us = Some(deadline_us);
                self.seat.arm(deadline_us);
            }
            Expecting::Body => {}
        }
        if stage == Expecting::Idle {
            self.is_called_to_refuse = false;
            if self.lane.delay.is_standing() && !self.is_of_peer {
                self.stand_in_line().await?;
            }
        }
        let mut is_asked = false;
        let done = poll_fn(|cx| {
            // Between two requests there is nothing to read: that is seen without a buffer.
            if !std::mem::replace(&mut is_asked, true)
                && self.stream.poll_read_ready(cx).is_pending()
            {
                return self.idle(cx, stage);
            }
            self.poll_fill(cx, stage)
        })
        .await;
        self.lane.refresh();
        self.lane.delay.look(&self.lane, self.lane.now_us());
        done
    }

    /// Waits for a request, and until it is called: the loop has more of them than it serves in time.
    async fn stand_in_line(&mut self) -> Result<(), End> {
        poll_fn(|cx| match self.stream.poll_read_ready(cx) {
            Poll::Ready(_) => Poll::Ready(Ok(())),
            Poll::Pending => self.idle(cx, Expecting::Idle),
        })
        .await?;
        self.stand(Expecting::Idle).await
    }

    /// Waits until the request that is there is called, if there is a line.
    async fn stand(&mut self, expecting: Expecting) -> Result<(), End> {
        if !self.lane.delay.is_standing() || self.is_of_peer {
            return Ok(());
        }
        self.expect_client()?;
        let lane = Rc::clone(&self.lane);
        let now_us = clock::monotonic_us();
        self.seat
            .arm(self.deadline_us(lane.shared.settings.timeouts.idle));
        let Some(in_line) = lane.delay.stand(&self.seat, self.source, now_us) else {
            return Ok(());
        };
        let called = poll_fn(|cx| {
            if let Some(called) = in_line.called() {
                return Poll::Ready(Ok(called));
            }
            self.idle(cx, expecting).map_ok(|()| Called::Serve)
        })
        .await?;
        self.expect_client()?;
        self.is_called_to_refuse = called == Called::Refuse;
        Ok(())
    }

    /// Waits for bytes, or for what ends the connection.
    fn idle(&self, cx: &Context<'_>, stage: Expecting) -> Poll<Result<(), End>> {
        if let Some(end) = self.end_of_wait(stage) {
            return Poll::Ready(Err(end));
        }
        self.seat.register(cx);
        Poll::Pending
    }

    /// Why the next bytes are not waited for.
    fn end_of_wait(&self, stage: Expecting) -> Option<End> {
        if self.seat.is_late() {
            Some(End::TooSlow)
        } else if stage != Expecting::Body && self.lane.is_draining() {
            Some(End::Draining)
        } else {
            None
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, stage: Expecting) -> Poll<Result<(), End>> {
        if let Some(end) = self.end_of_wait(stage) {
            return Poll::Ready(Err(end));
        }
        let held = self.input.len();
        let mut buffer = self.lane.input_buffer();
        let until = match self.lane.is_crowded() {
            false => buffer.len(),
            true => (held + limits::UNCOUNTED_BYTES_MAX).min(buffer.len()),
        };
        let mut room = ReadBuf::new(&mut buffer[held..until]);
        // Not `try_read`: this way a read that does not fill the buffer is known to be the last
        // one, which saves asking the kernel once more per request.
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut room);
        let n = room.filled().len();
        match polled {
            Poll::Ready(Ok(())) if n > 0 => {
                self.lane.metrics().reads.add(1);
                self.lane.metrics().read_bytes.add(n as u64);
                self.input.adopt(&self.lane, buffer, n);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(_) => {
                self.lane.reuse_input(buffer);
                Poll::Ready(Err(End::HungUp))
            }
            Poll::Pending => {
                self.lane.reuse_input(buffer);
                self.idle(cx, stage)
            }
        }
    }

    /// Keeps only the unread bytes while something is waited for, and counts them where they are
    /// many. When the gate has no room they stay uncounted: reads are small long before that, since
    /// the loop is crowded from a half on.
    pub(crate) fn hold_input(&mut self) -> Option<Room> {
        self.input.settle(&self.lane);
        match self.input.is_large() {
            true => self.hold_bytes(self.input.len()),
            false => None,
        }
    }

    /// Takes room for bytes of this client now, or not at all.
    pub(crate) fn hold_bytes(&self, bytes: usize) -> Option<Room> {
        self.lane.bytes.offer(self.source, bytes)
    }

    /// Writes everything out.
    pub(crate) async fn flush(&mut self) -> Result<(), End> {
        let unsent = std::mem::take(&mut self.unsent);
        let watch = unsent.watch();
        self.write_out().await?;
        self.out_room = None;
        unsent.sent(watch, &self.lane.metrics().stages);
        Ok(())
    }

    async fn write_out(&mut self) -> Result<(), End> {
        let out = std::mem::take(&mut self.out);
        if out.is_empty() {
            self.lane.reuse_output(out);
            return Ok(());
        }
        let mut at = 0;
        if let Poll::Ready(done) =
            poll_fn(|cx| Poll::Ready(self.poll_write(cx, &out, &mut at))).await
        {
            self.lane.reuse_output(out);
            return done;
        }
        let _held = self.hold_input();
        // Until it is gone, whatever of it is gone: memory comes back in one piece.
        let counted = self.out_room.as_ref().map_or(0, |(room, _)| room.bytes());
        let more = out.len().saturating_sub(counted);
        let room = match more > limits::UNCOUNTED_BYTES_MAX {
            true => Some(self.hold_bytes(more).ok_or(End::Crowded)?),
            false => None,
        };
        let holds = room.is_some() || self.out_room.is_some();
        let write = self.lane.shared.settings.timeouts.write;
        let mut turnover = Turnover::new(self.lane.now_us());
        let mut stalls_us = self.deadline_us(write);
        loop {
            self.seat.arm(match holds {
                true => stalls_us.min(turnover.due_us()),
                false => stalls_us,
            });
            let before = at;
            let done = poll_fn(|cx| {
                let polled = self.poll_write(cx, &out, &mut at);
                if polled.is_ready() || at > before {
                    return Poll::Ready(polled);
                }
                if self.seat.is_late() {
                    return Poll::Ready(Poll::Ready(Err(End::TooSlow)));
                }
                self.seat.register(cx);
                Poll::Pending
            })
            .await;
            self.lane.refresh();
            let now_us = self.lane.now_us();
            if at > before {
                turnover.note(at - before);
                stalls_us = self.deadline_us(write);
            }
            // A reader may be slow for as long as no other request needs its room.
            if holds && turnover.is_slow(now_us) && self.is_room_short() {
                return Err(End::TooSlow);
            }
            match done {
                Poll::Ready(Err(End::TooSlow)) if now_us < stalls_us => {}
                Poll::Ready(done) => {
                    self.lane.reuse_output(out);
                    return done;
                }
                Poll::Pending => {}
            }
        }
    }

    /// Do others wait for room of the kind that is held here?
    pub(crate) fn is_room_short(&self) -> bool {
        let is_of_scan = self.out_room.is_some();
        self.lane.bytes.is_short() || (is_of_scan && self.lane.scan_bytes.is_short())
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        out: &[u8],
        at: &mut usize,
    ) -> Poll<Result<(), End>> {
        while *at < out.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &out[*at..]) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(End::HungUp)),
                Poll::Ready(Ok(n)) => {
                    self.lane.metrics().writes.add(1);
                    self.lane.metrics().write_bytes.add(n as u64);
                    *at += n;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the sending side, and waits a little for the client where unread bytes would otherwise
    /// make the kernel throw the last answer away (a reset instead of an end).
    async fn say_goodbye(&mut self) {
        if self.stream.shutdown().await.is_err() || !self.lingers {
            return;
        }
        self.seat.arm(self.deadline_us(limits::LINGER));
        let mut left = match self.lingers_for_body {
            true => limits::DISCARD_BYTES_MAX,
            false => limits::LINGER_BYTES_MAX,
        };
        while left > 0 && !self.seat.is_late() && self.fill_unwanted().await.is_ok() {
            left = left.saturating_sub(self.input.len());
            self.input.consume(self.input.len());
        }
        self.input.consume(self.input.len());
        self.input.settle(&self.lane);
    }
}
