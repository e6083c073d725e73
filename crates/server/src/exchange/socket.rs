//! The client's side of a connection: its socket, its unread bytes, and the answers that wait to
//! leave.
//!
//! ```text
//! fill  ─► input ─► (requests) ─► out ─► flush
//!   └ deadlines in the seat; the loop's line, while it is overloaded
//! a request waited for 100 ms: gone? ─► it is not begun, the connection ends
//! store queue ─ each 100 ms ─► gone? ─► the job is taken out, its room is free, the connection ends
//! node of the loop ─ each 100 ms ─► gone? ─► the node is told and ends its operation if it may; its answer comes
//! ```
//!
//! Invariants
//! 1. Every wait for the client has a deadline in the connection's seat.
//! 2. While answers wait for the client to read, nothing more is read.
//! 3. To see whether the client has gone costs no call to the system: the loop's poll of the
//!    sockets has noted it already.
//! 4. The end of the input is no end of interest: a client may close its sending side behind its
//!    request. It counts as gone once what it asked for has waited for `CLIENT_LOOK`.
//! 5. Behind the last answer a bounded number of bytes is read in a bounded number of turns, and
//!    requests come first.
//!
//! Not here: the meaning of the bytes, and the waits of a connection (`connection/`).
//! See: docs/overload.md, "Classes and their shares" and "Clients that hang up".

use crate::clock;
use crate::event_loop::giving_way::WayPlace;
use crate::event_loop::thread::EventLoop;
use crate::event_loop::watches::{WatchNews, WatchSeat};
use crate::exchange::input::Input;
use crate::exchange::turn_work::{TurnWork, body_piece};
use crate::limits;
use crate::measure::metrics::OpLabel;
use crate::measure::stages::{Unsent, Watch};
use crate::rights::GrantUse;
use crate::tls::ByteStream;
use crate::waiting::room::{Room, Turnover};
use crate::waiting::seat::{Seat, WaitLimit, WakeReason};
use bytes::BufMut;
use dendra_node::standing::Called;
use dendra_ownership::MemberIndex;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
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

/// The part of a request that the next bytes from the client belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expecting {
    /// Nothing has begun.
    Idle,
    /// A head has begun.
    Head,
    /// A body; the caller has armed its deadline.
    Body,
}

/// How much is read after the last answer, so that the client can read that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Linger {
    /// Nothing: the client has sent nothing more.
    No,
    /// Unread bytes may follow the last answer.
    Bytes,
    /// A body may follow: it may be long.
    Body,
}

/// The reaction of a wait when its client has hung up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HangUpReaction {
    /// The wait goes on: its result comes in any case.
    KeepWaiting,
    /// The wait ends, and the connection with it.
    EndConnection,
}

/// The socket of one connection.
pub(crate) struct Socket {
    lane: Rc<EventLoop>,
    seat: Rc<Seat>,
    source: IpAddr,
    stream: ByteStream,
    input: Input,
    out: Vec<u8>,
    /// Room that `out` has already: a scan's, until it is written.
    out_room: Option<(Room, Room)>,
    /// Measured requests with answers in `out`.
    unsent: Unsent,
    head_deadline_us: Option<u64>,
    /// The request in front was called out of the line to be refused.
    is_called_to_refuse: bool,
    /// The request in front was refused, and the bytes behind it have not stood in line since.
    was_refused: bool,
    /// Since when the bytes that are read next gave way, or stood in line; `None` = they did not.
    waits_since_us: Option<u64>,
    /// When the last bytes read were there, as far as the loop knows. Time in which the client did
    /// not read its answers is added to it.
    came_us: u64,
    /// Does a peer ask here? Then no read stands in a line of clients.
    is_of_peer: bool,
    /// The member to which the certificate of this connection belongs; `None` = none, or not
    /// checked.
    member: Option<MemberIndex>,
    /// The quota's count for the bytes of its answers; `None` = no quota counts them.
    used: Option<Arc<GrantUse>>,
    /// Does its next read come behind those of others? It does if the connection is new, its last
    /// read was a small part of a request, or its client has gone.
    gives_way: bool,
    /// The work that was done for it since it was called, or waited for its request.
    work: TurnWork,
}

impl Socket {
    /// The socket of a client at `source` that has just connected.
    pub(crate) fn new(
        lane: Rc<EventLoop>,
        seat: Rc<Seat>,
        source: IpAddr,
        stream: ByteStream,
    ) -> Socket {
        Socket {
            lane,
            seat,
            source,
            stream,
            input: Input::default(),
            out: Vec::new(),
            out_room: None,
            unsent: Unsent::default(),
            head_deadline_us: None,
            is_called_to_refuse: false,
            was_refused: false,
            waits_since_us: None,
            came_us: 0,
            is_of_peer: false,
            member: None,
            used: None,
            gives_way: true,
            work: TurnWork::default(),
        }
    }

    /// The loop that serves it.
    pub(crate) fn lane(&self) -> &Rc<EventLoop> {
        &self.lane
    }

    /// Where it waits.
    pub(crate) fn seat(&self) -> &Rc<Seat> {
        &self.seat
    }

    /// The client's address.
    pub(crate) fn source(&self) -> IpAddr {
        self.source
    }

    // Unread bytes.

    /// The bytes that were read and are not understood yet.
    pub(crate) fn input(&mut self) -> &mut Input {
        &mut self.input
    }

    /// Number of unread bytes.
    pub(crate) fn unread_len(&self) -> usize {
        self.input.len()
    }

    /// Takes the unread bytes out while a head is looked at, so that everything else can change
    /// meanwhile.
    pub(crate) fn take_input(&mut self) -> Input {
        std::mem::take(&mut self.input)
    }

    /// Puts them back when `consumed` of them are done with.
    pub(crate) fn put_input(&mut self, mut input: Input, consumed: usize) {
        input.consume(consumed);
        self.input = input;
        if consumed > 0 {
            self.head_deadline_us = None;
        }
    }

    /// Drops the unread bytes, and says how many there were.
    fn drop_input(&mut self) -> usize {
        let len = self.input.len();
        self.input.consume(len);
        self.input.settle(&self.lane);
        len
    }

    /// The request in front was called out of the line to be refused.
    pub(crate) fn is_called_to_refuse(&self) -> bool {
        self.is_called_to_refuse
    }

    /// The request in front is refused. Those behind it stand in line again: a call refuses one.
    pub(crate) fn note_refused(&mut self) {
        self.was_refused = std::mem::take(&mut self.is_called_to_refuse);
    }

    /// Has the request in front of the unread bytes been refused? Told once.
    pub(crate) fn take_was_refused(&mut self) -> bool {
        std::mem::take(&mut self.was_refused)
    }

    /// When the unread bytes were there: each request that is whole in them had its last byte then.
    pub(crate) fn came_us(&self) -> u64 {
        self.came_us
    }

    /// A peer asks here: it stands in no line of clients.
    pub(crate) fn mark_as_peer(&mut self) {
        self.is_of_peer = true;
    }

    /// Bytes that are written from now on count there, or nowhere.
    pub(crate) fn count_by(&mut self, used: Option<Arc<GrantUse>>) {
        self.used = used;
    }

    /// Counts bytes of the holder of a quota.
    #[inline]
    pub(crate) fn count_bytes(&self, n: usize) {
        if let Some(used) = &self.used {
            used.charge(n as u64, self.lane.now_ns());
        }
    }

    /// A read brought `n` bytes.
    fn note_read(&mut self, n: usize) {
        self.lane.metrics().reads.add(1);
        self.lane.metrics().read_bytes.add(n as u64);
        self.note_work(n);
    }

    /// The loop did so much work here: its source is charged for each full call of it.
    #[inline]
    pub(crate) fn note_work(&mut self, bytes: usize) {
        let calls = self.work.note(bytes);
        if calls > 0 && !self.is_of_peer {
            self.lane.delay.charge(self.source, calls);
        }
    }

    /// Has it done the work of a call while others wait for the loop? Told once. Members do not
    /// give way to clients.
    pub(crate) fn is_turn_over(&mut self) -> bool {
        self.work.take_is_over()
            && !self.is_of_peer
            && self.lane.delay.is_crowded(self.lane.now_us())
    }

    /// The bytes of the connection.
    pub(crate) fn stream(&self) -> &ByteStream {
        &self.stream
    }

    /// The member that the certificate of this connection is known to be of.
    pub(crate) fn proven_member(&self) -> Option<MemberIndex> {
        self.member
    }

    /// The certificate of this connection is that of `member`.
    pub(crate) fn prove_member(&mut self, member: MemberIndex) {
        self.member = Some(member);
    }

    /// The stream and the unread bytes, for a connection that becomes a link.
    pub(crate) fn into_link(mut self) -> (ByteStream, Vec<u8>) {
        let rest = self.input.data().to_vec();
        self.drop_input();
        (self.stream, rest)
    }

    // Answers.

    /// Where answers are formed.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Bytes of answers that are not sent yet.
    pub(crate) fn out_len(&self) -> usize {
        self.out.len()
    }

    /// Sees to a buffer for the next answer.
    pub(crate) fn prepare_out(&mut self) {
        if self.out.capacity() == 0 {
            self.out = self.lane.buffers.output();
        }
    }

    /// Makes `out` the next bytes to send. Requires: everything else is sent.
    pub(crate) fn replace_out(&mut self, out: Vec<u8>) {
        self.lane
            .buffers
            .reuse_output(std::mem::replace(&mut self.out, out));
    }

    /// The answer of a request with `watch` is in the output.
    #[inline]
    pub(crate) fn add_unsent(&mut self, op: OpLabel, watch: Watch) {
        self.unsent.add(op, watch);
    }

    /// A deadline `after` from now.
    pub(crate) fn deadline_us(&self, after: Duration) -> u64 {
        self.lane.now_us() + after.as_micros() as u64
    }

    /// Reads bytes that will be dropped, as far as the loop's allowance goes: wanted bytes go
    /// first. The caller has armed the deadline.
    pub(crate) async fn fill_unwanted(&mut self) -> Result<(), ConnectionEnd> {
        self.allowance().await?;
        self.fill(Expecting::Body).await
    }

    /// Waits until the loop may read as many unwanted bytes as a read takes.
    async fn allowance(&self) -> Result<(), ConnectionEnd> {
        while !self.lane.rooms.may_discard(limits::READ_BYTES_MAX) {
            if self.seat.is_late() {
                return Err(ConnectionEnd::TooSlow);
            }
            // The allowance comes back with the sweep.
            tokio::time::sleep(limits::SWEEP).await;
            self.lane.refresh();
        }
        Ok(())
    }

    /// Reads more into the buffer.
    pub(crate) async fn fill(&mut self, stage: Expecting) -> Result<(), ConnectionEnd> {
        let _held = self.hold_input();
        self.waits_since_us = None;
        let timeouts = &self.lane.parts.settings.timeouts;
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
        if stage == Expecting::Idle && !self.gives_way {
            self.wait_for_bytes(stage).await?;
            // Nothing more comes of a client that has gone: its end has time.
            self.gives_way = self.is_client_gone();
        }
        let gives_way = self.gives_way || (stage == Expecting::Body && self.is_turn_over());
        if gives_way && !self.is_of_peer {
            Box::pin(self.give_way(stage)).await?;
        }
        if stage == Expecting::Idle {
            (self.is_called_to_refuse, self.was_refused) = (false, false);
            self.work.begin();
            if self.is_to_stand() {
                self.stand_in_line().await?;
            }
        }
        let held = self.input.len();
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
        let came = self.input.len().saturating_sub(held);
        self.gives_way = stage != Expecting::Idle && came < limits::UNCOUNTED_BYTES_MAX;
        self.lane.refresh();
        let now_us = self.lane.now_us();
        self.came_us = self.waits_since_us.unwrap_or(now_us);
        self.lane.delay.look(now_us);
        done
    }

    /// Waits for bytes, and then until connections that send whole requests had their turn.
    async fn give_way(&mut self, stage: Expecting) -> Result<(), ConnectionEnd> {
        self.wait_for_bytes(stage).await?;
        let now_us = clock::monotonic_us();
        self.waits_since_us = Some(now_us);
        let place = if self.is_client_gone() {
            self.lane
                .giving_way
                .join_end(&self.seat, self.source, now_us)
        } else if stage == Expecting::Idle && self.lane.delay.is_standing() {
            return Ok(());
        } else {
            self.lane.giving_way.join(&self.seat, self.source, now_us)
        };
        self.called(&place, stage).await
    }

    /// Waits until it is the turn of `place`.
    async fn called(&self, place: &WayPlace, stage: Expecting) -> Result<(), ConnectionEnd> {
        poll_fn(|cx| {
            if place.is_called() {
                Poll::Ready(Ok(()))
            } else {
                self.idle(cx, stage)
            }
        })
        .await
    }

    /// Waits until there is something to read, or the end of it.
    async fn wait_for_bytes(&self, stage: Expecting) -> Result<(), ConnectionEnd> {
        poll_fn(|cx| match self.stream.poll_read_ready(cx) {
            Poll::Ready(_) => Poll::Ready(Ok(())),
            Poll::Pending => self.idle(cx, stage),
        })
        .await
    }

    /// Waits for a request, and until it is called: the loop has more of them than it serves in
    /// time.
    async fn stand_in_line(&mut self) -> Result<(), ConnectionEnd> {
        self.wait_for_bytes(Expecting::Idle).await?;
        self.stand(Expecting::Idle).await
    }

    /// Does the next request stand in line before it is begun?
    pub(crate) fn is_to_stand(&self) -> bool {
        self.lane.delay.is_standing() && !self.is_of_peer
    }

    /// Waits until the request that is there is called, if there is a line.
    pub(crate) async fn stand(&mut self, expecting: Expecting) -> Result<(), ConnectionEnd> {
        if !self.is_to_stand() {
            return Ok(());
        }
        let lane = Rc::clone(&self.lane);
        let now_us = clock::monotonic_us();
        let waits_since_us = *self.waits_since_us.get_or_insert(now_us);
        let asked_us = match expecting {
            Expecting::Idle => waits_since_us,
            // It was read with those in front of it.
            Expecting::Head | Expecting::Body => self.came_us,
        };
        self.expect_client(asked_us)?;
        self.seat
            .arm(self.deadline_us(lane.parts.settings.timeouts.idle));
        let Some(in_line) = lane.delay.stand(&self.seat, self.source, now_us) else {
            return Ok(());
        };
        let called = poll_fn(|cx| {
            if let Some(called) = in_line.called() {
                return Poll::Ready(Ok(called));
            }
            match self.idle(cx, expecting) {
                // It waited too long, not its client.
                Poll::Ready(Err(ConnectionEnd::TooSlow)) => Poll::Ready(Ok(Called::Refuse)),
                waits => waits.map_ok(|()| Called::Serve),
            }
        })
        .await?;
        self.seat
            .arm(self.deadline_us(lane.parts.settings.timeouts.idle));
        self.lane.refresh();
        self.expect_client(asked_us)?;
        self.is_called_to_refuse = called == Called::Refuse;
        self.work.begin();
        if called == Called::Serve {
            let stood_us = clock::monotonic_us().saturating_sub(now_us);
            self.lane.metrics().stood.note(stood_us * 1_000, 1);
        }
        Ok(())
    }

    /// Waits for bytes, or for an event that ends the connection.
    fn idle(&self, cx: &Context<'_>, stage: Expecting) -> Poll<Result<(), ConnectionEnd>> {
        if let Some(end) = self.end_of_wait(stage) {
            return Poll::Ready(Err(end));
        }
        self.seat.register(cx);
        Poll::Pending
    }

    /// Why the next bytes are not waited for.
    fn end_of_wait(&self, stage: Expecting) -> Option<ConnectionEnd> {
        if self.seat.is_late() {
            Some(ConnectionEnd::TooSlow)
        } else if stage != Expecting::Body && self.lane.is_draining() {
            Some(ConnectionEnd::Draining)
        } else {
            None
        }
    }

    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        stage: Expecting,
    ) -> Poll<Result<(), ConnectionEnd>> {
        if let Some(end) = self.end_of_wait(stage) {
            return Poll::Ready(Err(end));
        }
        let held = self.input.len();
        let mut buffer = self.lane.buffers.input();
        let until = if self.lane.is_crowded() {
            (held + limits::UNCOUNTED_BYTES_MAX).min(buffer.len())
        } else {
            buffer.len()
        };
        let mut room = ReadBuf::new(&mut buffer[held..until]);
        // Not `try_read`: a read that does not fill the buffer is known to be the last one. It
        // saves one call to the kernel for each request.
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut room);
        let n = room.filled().len();
        match polled {
            Poll::Ready(Ok(())) if n > 0 => {
                self.input.adopt(&self.lane, buffer, n);
                self.note_read(n);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(_) => {
                self.lane.buffers.reuse_input(buffer);
                Poll::Ready(Err(ConnectionEnd::HungUp))
            }
            Poll::Pending => {
                self.lane.buffers.reuse_input(buffer);
                self.idle(cx, stage)
            }
        }
    }

    /// Keeps only the unread bytes while something is waited for, and counts them where they are
    /// many. When the gate has no room they stay uncounted: reads are small long before that, since
    /// the loop is crowded from a half on.
    pub(crate) fn hold_input(&mut self) -> Option<Room> {
        self.input.settle(&self.lane);
        if self.input.is_large() {
            self.hold_bytes(self.input.len())
        } else {
            None
        }
    }

    /// Takes room for bytes of this client now, or not at all.
    pub(crate) fn hold_bytes(&self, bytes: usize) -> Option<Room> {
        self.lane.rooms.bytes.offer(self.source, bytes)
    }

    /// Writes everything out.
    pub(crate) async fn flush(&mut self) -> Result<(), ConnectionEnd> {
        let unsent = std::mem::take(&mut self.unsent);
        let watch = unsent.watch();
        self.write_out().await?;
        self.out_room = None;
        unsent.sent(watch, &self.lane.metrics().stages);
        Ok(())
    }

    async fn write_out(&mut self) -> Result<(), ConnectionEnd> {
        let out = std::mem::take(&mut self.out);
        if out.is_empty() {
            self.lane.buffers.reuse_output(out);
            return Ok(());
        }
        let mut at = 0;
        if let Poll::Ready(done) =
            poll_fn(|cx| Poll::Ready(self.poll_write(cx, &out, &mut at))).await
        {
            self.lane.buffers.reuse_output(out);
            return done;
        }
        let _held = self.hold_input();
        let from_us = clock::monotonic_us();
        // Counted until all of it is gone: memory comes back in one piece.
        let counted = self.out_room.as_ref().map_or(0, |(room, _)| room.bytes());
        let more = out.len().saturating_sub(counted);
        let room = if more > limits::UNCOUNTED_BYTES_MAX {
            Some(self.hold_bytes(more).ok_or(ConnectionEnd::Crowded)?)
        } else {
            None
        };
        let holds = room.is_some() || self.out_room.is_some();
        let write = self.lane.parts.settings.timeouts.write;
        let mut turnover = Turnover::new(self.lane.now_us());
        let mut stalls_us = self.deadline_us(write);
        loop {
            self.seat.arm(if holds {
                stalls_us.min(turnover.due_us())
            } else {
                stalls_us
            });
            let before = at;
            let done = poll_fn(|cx| {
                let polled = self.poll_write(cx, &out, &mut at);
                if polled.is_ready() || at > before {
                    return Poll::Ready(polled);
                }
                if self.seat.is_late() {
                    return Poll::Ready(Poll::Ready(Err(ConnectionEnd::TooSlow)));
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
                return Err(ConnectionEnd::TooSlow);
            }
            match done {
                Poll::Ready(Err(ConnectionEnd::TooSlow)) if now_us < stalls_us => {}
                Poll::Ready(done) => {
                    self.lane.buffers.reuse_output(out);
                    self.came_us += now_us.saturating_sub(from_us);
                    return done;
                }
                Poll::Pending => {}
            }
        }
    }

    /// Do others wait for room of the kind that is held here?
    pub(crate) fn is_room_short(&self) -> bool {
        let is_of_scan = self.out_room.is_some();
        self.lane.rooms.bytes.is_short() || (is_of_scan && self.lane.rooms.scan_bytes.is_short())
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        out: &[u8],
        at: &mut usize,
    ) -> Poll<Result<(), ConnectionEnd>> {
        while *at < out.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &out[*at..]) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(ConnectionEnd::HungUp)),
                Poll::Ready(Ok(n)) => {
                    self.lane.metrics().writes.add(1);
                    self.lane.metrics().write_bytes.add(n as u64);
                    self.count_bytes(n);
                    self.note_work(n);
                    *at += n;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        flushed.map_err(|_gone| ConnectionEnd::HungUp)
    }

    /// Ends it. A client that may still read its last answer is waited for a little where there are
    /// unread bytes. They would make the kernel throw that answer away: a reset instead of an end.
    pub(crate) async fn close(mut self, end: ConnectionEnd, mut linger: Linger) -> ByteStream {
        let dropped = self.drop_input();
        if dropped > 0 {
            linger = linger.max(Linger::Bytes);
        }
        match end {
            ConnectionEnd::Done => self.say_goodbye(linger, dropped).await,
            ConnectionEnd::TooSlow => self.lane.metrics().timed_out.add(1),
            ConnectionEnd::HungUp | ConnectionEnd::Draining | ConnectionEnd::Crowded => {}
        }
        self.stream.say_goodbye();
        self.stream
    }

    /// Ends the sending side, and reads on for a while. `dropped` unread bytes are part of what is
    /// read behind the last answer.
    async fn say_goodbye(&mut self, linger: Linger, dropped: usize) {
        let most = match linger {
            Linger::No => 0,
            Linger::Bytes => limits::LINGER_BYTES_MAX,
            Linger::Body => limits::DISCARD_BYTES_MAX,
        };
        if self.stream.shutdown().await.is_err() {
            return;
        }
        self.seat.arm(self.deadline_us(limits::LINGER));
        let mut left = most.saturating_sub(dropped);
        while left > 0 {
            let Ok(read) = self.skip(left).await else {
                return;
            };
            // Each read is a turn: there are not more of them because they are small.
            left = left.saturating_sub(read.max(limits::LINGER_READ_BYTES_LEAST));
        }
    }

    /// Reads and drops at most `most` bytes behind the last answer, and says how many. Others come
    /// first: it has the turns of ends, and its part of the loop's allowance.
    async fn skip(&mut self, most: usize) -> Result<usize, ConnectionEnd> {
        self.wait_for_bytes(Expecting::Body).await?;
        if !self.is_of_peer {
            let (lane, now_us) = (Rc::clone(&self.lane), clock::monotonic_us());
            let place = lane.giving_way.join_end(&self.seat, self.source, now_us);
            self.called(&place, Expecting::Body).await?;
        }
        self.allowance().await?;
        let done = poll_fn(|cx| {
            let mut buffer = self.lane.buffers.input();
            let until = most.min(buffer.len());
            let mut room = ReadBuf::new(&mut buffer[..until]);
            let polled = Pin::new(&mut self.stream).poll_read(cx, &mut room);
            let n = room.filled().len();
            self.lane.buffers.reuse_input(buffer);
            match polled {
                Poll::Ready(Ok(())) if n > 0 => Poll::Ready(Ok(n)),
                Poll::Ready(_) => Poll::Ready(Err(ConnectionEnd::HungUp)),
                Poll::Pending => self.idle(cx, Expecting::Body).map_ok(|()| 0),
            }
        })
        .await;
        self.lane.refresh();
        let n = done?;
        self.note_read(n);
        Ok(n)
    }

    /// Waits for news of a watch, for as long as the client is there. `None` = the node drains.
    pub(crate) async fn news(
        &mut self,
        watch: &WatchSeat,
    ) -> Result<Option<WatchNews>, ConnectionEnd> {
        self.lane.refresh();
        let asked_us = self.lane.now_us();
        let news = poll_fn(|cx| {
            self.lane.refresh();
            // A batch that is not taken is behind the last token.
            if self.lane.is_draining() {
                return Poll::Ready(Ok(None));
            }
            if let Some(news) = watch.take() {
                return Poll::Ready(Ok(Some(news)));
            }
            let mut looks_us = u64::MAX;
            if self.stream.poll_read_ready(cx).is_ready() {
                if let Err(end) = self.expect_client(asked_us) {
                    return Poll::Ready(Err(end));
                }
                // It may read on with its side closed, or sent more, or its socket only seemed to
                // have more: nothing wakes when it goes.
                looks_us = self.deadline_us(limits::WATCH_LOOK);
            }
            self.seat.arm(looks_us);
            self.seat.register(cx);
            Poll::Pending
        })
        .await;
        self.lane.refresh();
        news
    }

    // A client that has gone.

    /// Has the client closed its side?
    pub(crate) fn is_client_gone(&self) -> bool {
        let mut ready = pin!(self.stream.tcp().ready(Interest::READABLE));
        match ready.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }

    /// Has the client closed its side, and has what it asked for at `asked_us` waited so long that
    /// it counts as gone?
    pub(crate) fn has_given_up(&self, asked_us: u64) -> bool {
        let waited_us = self.lane.now_us().saturating_sub(asked_us);
        waited_us >= limits::CLIENT_LOOK.as_micros() as u64 && self.is_client_gone()
    }

    /// Ends when the client gave up what it asked for at `asked_us`: it waits for nothing any more.
    pub(crate) fn expect_client(&self, asked_us: u64) -> Result<(), ConnectionEnd> {
        if !self.has_given_up(asked_us) {
            return Ok(());
        }
        if self.input.len() > 0 || matches!(self.stream.try_read(&mut [0]), Ok(1)) {
            self.lane.metrics().abandoned.add(1);
        }
        Err(ConnectionEnd::HungUp)
    }

    /// Waits for everything that the seat expects, `last_us` at the latest. Each `CLIENT_LOOK` it
    /// looks whether the client is still there. If not, it calls `on_hang_up` once.
    pub(crate) async fn watch(
        &mut self,
        last_us: u64,
        limit: WaitLimit,
        on_hang_up: impl FnOnce() -> HangUpReaction,
    ) -> Result<Result<(), WakeReason>, ConnectionEnd> {
        let mut on_hang_up = Some(on_hang_up);
        loop {
            let look_us = self.deadline_us(limits::CLIENT_LOOK);
            self.seat.arm(match on_hang_up {
                Some(_) => last_us.min(look_us),
                None => last_us,
            });
            let waited = self.seat.all(limit).await;
            self.lane.refresh();
            if waited != Err(WakeReason::Deadline) || self.lane.now_us() >= last_us {
                return Ok(waited);
            }
            if on_hang_up.is_some()
                && self.is_client_gone()
                && let Some(on_hang_up) = on_hang_up.take()
                && on_hang_up() == HangUpReaction::EndConnection
            {
                return Err(ConnectionEnd::HungUp);
            }
        }
    }

    /// Waits for the store pool's answer to the job in `slot`. The job of a client that has gone is
    /// taken back.
    pub(crate) async fn pooled(
        &mut self,
        slot: u32,
        deadline_us: u64,
    ) -> Result<Result<(), WakeReason>, ConnectionEnd> {
        let (lane, seat) = (Rc::clone(&self.lane), Rc::clone(&self.seat));
        let take_back = move || {
            seat.next_round();
            if lane.withdraw(slot) {
                lane.metrics().abandoned.add(1);
            }
            HangUpReaction::EndConnection
        };
        self.watch(deadline_us, WaitLimit::Deadline, take_back)
            .await
    }

    // Room of scans.

    /// Has it room for a chunk of so many bytes already?
    pub(crate) fn has_scan_room(&self, bytes: usize) -> bool {
        let bytes = bytes.min(self.lane.parts.budgets.bytes.limit() as usize);
        let room = self.out_room.as_ref();
        room.is_some_and(|(room, _)| room.bytes() >= bytes)
    }

    /// Waits for room in the share of scans, and then in all of it. Nothing is held while the first
    /// is waited for.
    pub(crate) async fn wait_for_scan_room(&mut self, bytes: usize, until_us: u64) -> bool {
        self.out_room = None;
        let (seat, source) = (&self.seat, self.source);
        let share = self
            .lane
            .rooms
            .scan_bytes
            .wait(seat, source, bytes, until_us)
            .await;
        self.lane.refresh();
        let Some(share) = share else {
            return false;
        };
        let room = self
            .lane
            .rooms
            .bytes
            .wait(seat, source, bytes, until_us)
            .await;
        self.lane.refresh();
        self.out_room = room.map(|room| (room, share));
        self.out_room.is_some()
    }

    /// The chunk of a scan has so many bytes: the rest of its room goes back.
    pub(crate) fn keep_scan_room(&mut self, bytes: usize) {
        if let Some((room, share)) = &mut self.out_room {
            room.keep(bytes);
            share.keep(bytes);
        }
    }

    /// Reads at most `left` bytes of a large body straight to where they are stored, and says how
    /// many came. After each piece others that wait have their turn.
    pub(crate) async fn fill_value(
        &mut self,
        value: &mut Vec<u8>,
        left: usize,
    ) -> Result<usize, ConnectionEnd> {
        self.input.settle(&self.lane);
        let is_crowded = self.lane.delay.is_crowded(self.lane.now_us());
        if self.is_turn_over() {
            Box::pin(self.give_way(Expecting::Body)).await?;
        }
        let Socket { stream, seat, .. } = self;
        let mut room = value.limit(left.min(body_piece(is_crowded)));
        let mut read = pin!(stream.read_buf(&mut room));
        let done = poll_fn(|cx| {
            if seat.is_late() {
                return Poll::Ready(Err(ConnectionEnd::TooSlow));
            }
            match Pin::as_mut(&mut read).poll(cx) {
                Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Err(ConnectionEnd::HungUp)),
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
        self.note_read(n);
        Ok(n)
    }
}
