//! One client connection: read, answer all that was read, write once, wait.
//!
//! ```text
//!            ┌──────────────── fill ◄──────────────────┐
//!            ▼                                         │
//! step: all requests in the buffer ► NextWait ┬─ Read ───┘   flush first: one write per batch
//!                                           ├─ Outcomes    operations wait for their ends, together
//!                                           ├─ Resume      a read waits for the disk, alone
//!                                           ├─ Body, Discard, Scan, Explain, Batch, Watch, Pause
//!                                           └─ Close
//! ```
//!
//! Invariants
//! 1. Answers leave in the order of the requests, and a request sees the effects of those in front
//!    of it. The backend decides which operations may wait together.
//! 2. Every wait has a deadline in the connection's seat; no request has a timer.
//! 3. While answers wait for the client to read, nothing more is parsed and nothing more is read.
//! 4. A request counts from its last byte on: a client that hangs up inside a body changed nothing.
//!
//! Not here: the meaning of requests (`requests.rs`), scans (`scan.rs`), watches (`watch.rs`), the
//! socket (`socket.rs` of the crate), carrying out operations (`backend.rs`).
//! See: docs/api.md, docs/overload.md.

mod batch;
mod explain;
mod in_front;
mod late_body;
mod login;
mod long_poll;
mod refused;
mod requests;
mod scan;
mod watch;

use self::in_front::RequestInFront;
use crate::audit::AuditEvent;
use crate::clients::answers::Answers;
use crate::clients::backend::Backend;
use crate::clients::doorway;
use crate::clock;
use crate::event_loop::handover::PendingOperation;
use crate::event_loop::thread::{ConnectionGuard, EventLoop};
use crate::exchange::body::{self, BodyReader, PendingBody};
use crate::exchange::explain::ExplainRequest;
use crate::exchange::socket::{ConnectionEnd, Expecting, Linger, Socket};
use crate::limits;
use crate::measure::metrics::OpLabel;
use crate::measure::stages::{RequestStage, Watch};
use crate::peers::{self, Answered, PendingAsk, PendingLink};
use crate::rights::{ShownNames, StandingLogin};
use crate::tls::ByteStream;
use crate::waiting::finished::Finished;
use crate::waiting::seat::{Seat, WakeReason};
use crate::waiting::status::{self, AnswerTerms};
use dendra_base::Key;
use dendra_wire::http::ConnectionFate as Persistence;
use dendra_wire::http::response::{PageLines, Style};
use dendra_wire::route::{BatchTerms, Scan as Query, WatchQuery};
use dendra_wire::{Condition, Refusal};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;

/// The wait of a connection before it can go on with its buffer.
enum NextWait {
    /// The rest of a head, or the next one.
    Read,
    /// The ends of the operations in `pending`.
    Outcomes,
    /// The client: enough answers wait to be read.
    Flush,
    /// Room in the loop's batch for a value of so many bytes, until a moment in microseconds.
    LogRoom(usize, u64),
    /// The engine: a new request is delayed by this many microseconds.
    Pause(u64),
    /// The rest of a body that will be stored.
    Body(Box<PendingBody>),
    /// The rest of a body that is to be dropped.
    Discard(Box<BodyReader>),
    /// The disk, for a read.
    Resume(Box<PendingOperation>),
    /// A scan, from its first to its last chunk.
    Scan(Box<PendingScan>),
    /// The disk, or the owners, for a read that is explained.
    Explain(Box<ExplainRequest>),
    /// A batch, from its first to its last item.
    Batch(Box<PendingBatch>),
    /// A watch, from its head to its end.
    Watch(Box<PendingWatch>),
    /// Another state of a key.
    Poll(Box<PendingPoll>),
    /// A peer's link begins behind the answer that is formed.
    Link(Box<PendingLink>),
    /// The loop's node, for a peer that asks over plain HTTP.
    PeerAsk(Box<PendingAsk>),
    /// The connection's turn: enough was done for this connection while others wait.
    Turn,
    /// Nothing: the last answer is formed.
    Close,
}

/// The result for the request in front: how much of the buffer is done with, and the wait before
/// the next one.
type FrontStep = (usize, Option<NextWait>);

/// A scan that was asked for.
struct PendingScan {
    login: Option<StandingLogin>,
    query: Query,
    style: Style,
    came_us: u64,
    began_ns: u64,
    deadline_us: u64,
    watch: Watch,
}

/// A batch that was asked for.
struct PendingBatch {
    login: Option<StandingLogin>,
    batch: BatchTerms,
    style: Style,
    reader: BodyReader,
    expects_continue: bool,
    began_ns: u64,
}

/// A watch that was asked for.
struct PendingWatch {
    login: Option<StandingLogin>,
    query: WatchQuery,
    style: Style,
    began_ns: u64,
}

/// A read that waits for another state of its key.
struct PendingPoll {
    login: Option<StandingLogin>,
    key: Key,
    condition: Condition,
    terms: AnswerTerms,
    began_ns: u64,
    /// Until then a first state has to be known.
    known_by_us: u64,
    /// Until then another one may come.
    until_us: u64,
}

/// One connection.
pub(crate) struct Connection {
    lane: Rc<EventLoop>,
    seat: Rc<Seat>,
    backend: Backend,
    socket: Socket,
    /// Operations that have begun, in the order of their requests.
    pending: Vec<PendingOperation>,
    /// The connection is a peer's link from here on.
    link: Option<Box<PendingLink>>,
    /// The answer formed last ends the connection.
    is_closing: bool,
    linger: Linger,
    in_front: RequestInFront,
    /// The names that its client's certificate gives it.
    names: ShownNames,
    /// Mark of the connection among the connections beyond the gate; `None` = it has a place among
    /// the clients'.
    beyond: Option<u64>,
    /// A page of an origin that may ask sent the request in front.
    page: Option<&'static PageLines>,
    /// The line for the audit log once the table of tokens is replaced, or is not; `None` unless
    /// such a request is under way.
    token_change: Option<Box<AuditEvent>>,
}

/// Starts the task of one connection of a loop, to its end or to that of the link that it becomes.
pub(crate) fn spawn(guard: ConnectionGuard, seat: Rc<Seat>, source: IpAddr, stream: TcpStream) {
    tokio::task::spawn_local(async move {
        let lane = Rc::clone(&guard.lane);
        // Boxed, what few have: each is as large as all of a client's, and a client's should not
        // reserve room for it.
        let link = if guard.is_beyond() {
            Box::pin(live_beyond(guard, seat, source, stream)).await
        } else {
            live(guard, seat, source, stream, None).await
        };
        if let Some((link, peer_stream, rest, peer_guard)) = link {
            Box::pin(peers::serve(lane, link, peer_stream, rest, peer_guard)).await;
        }
    });
}

/// A connection that has become a link of a peer, with the bytes that were read behind its request.
type OpenedLink = (PendingLink, ByteStream, Vec<u8>, ConnectionGuard);

/// Serves like `live` a connection beyond the gate: the oldest that has proven nothing makes room.
async fn live_beyond(
    guard: ConnectionGuard,
    seat: Rc<Seat>,
    source: IpAddr,
    stream: TcpStream,
) -> Option<OpenedLink> {
    let lane = Rc::clone(&guard.lane);
    let place = lane.rooms.beyond.enter();
    let living = live(guard, seat, source, stream, Some(place.number()));
    place.unless_evicted(living).await.ok().flatten()
}

/// The life of a connection to its end, or to where it becomes a link.
async fn live(
    guard: ConnectionGuard,
    seat: Rc<Seat>,
    source: IpAddr,
    stream: TcpStream,
    beyond: Option<u64>,
) -> Option<OpenedLink> {
    let lane = Rc::clone(&guard.lane);
    let stream = match &lane.parts.border.tls {
        None => ByteStream::Clear(stream),
        Some(tls) => match Box::pin(doorway::enter(&lane, &seat, source, tls, stream)).await {
            Ok(stream) => stream,
            Err(stream) => {
                if let Some(stream) = stream {
                    lane.close(stream, guard);
                }
                return None;
            }
        },
    };
    match serve(Rc::clone(&lane), seat, source, stream, beyond).await {
        Ok((link, stream, rest)) => Some((link, stream, rest, guard)),
        Err(stream) => {
            lane.close(stream, guard);
            None
        }
    }
}

/// Serves one connection to where it becomes a peer's link. Returns the link, the socket and the
/// bytes that were read behind the request. Or serves it to its end: then the socket, which is to
/// be closed.
async fn serve(
    lane: Rc<EventLoop>,
    seat: Rc<Seat>,
    source: IpAddr,
    stream: ByteStream,
    beyond: Option<u64>,
) -> Result<(PendingLink, ByteStream, Vec<u8>), ByteStream> {
    let names = match lane.parts.border.rights {
        Some(_) => ShownNames::of(&stream),
        None => ShownNames::default(),
    };
    let mut connection = Connection {
        socket: Socket::new(Rc::clone(&lane), Rc::clone(&seat), source, stream),
        backend: Backend::of(&lane),
        names,
        beyond,
        page: None,
        token_change: None,
        lane,
        seat,
        pending: Vec::new(),
        link: None,
        is_closing: false,
        linger: Linger::No,
        in_front: RequestInFront::default(),
    };
    let end = connection.run().await;
    // The client went away before it was told: nothing is known here of how it ended.
    connection.note_token_change(0);
    match connection.link {
        Some(link) => {
            let (of_link, rest) = connection.socket.into_link();
            Ok((*link, of_link, rest))
        }
        None => Err(connection.socket.close(end, connection.linger).await),
    }
}

impl Connection {
    async fn run(&mut self) -> ConnectionEnd {
        loop {
            let next = self.step();
            let done = match next {
                NextWait::Read => self.read_on().await,
                NextWait::Outcomes => self.wait().await,
                NextWait::Flush => {
                    let done = self.socket.flush().await;
                    // The next request did not take this long.
                    self.lane.refresh();
                    if done.is_ok() && self.socket.unread_len() > 0 && self.socket.is_turn_over() {
                        Box::pin(self.take_turns()).await
                    } else {
                        done
                    }
                }
                NextWait::Pause(us) => self.pause(us).await,
                NextWait::Turn => Box::pin(self.take_turns()).await,
                NextWait::LogRoom(bytes, until_us) => self.line_up(bytes, until_us).await,
                // The rare ways are boxed: an idle connection should not reserve room for them.
                NextWait::Body(body) => {
                    let done = Box::pin(self.receive(*body)).await;
                    self.in_front = RequestInFront::default();
                    done
                }
                NextWait::Discard(body) => Box::pin(body::discard(&mut self.socket, *body)).await,
                NextWait::Resume(read) => Box::pin(self.resume(*read)).await,
                NextWait::Scan(scan) => Box::pin(self.stream(*scan)).await,
                NextWait::Explain(read) => Box::pin(self.explain(*read)).await,
                NextWait::Batch(batch) => Box::pin(self.carry_out(*batch)).await,
                NextWait::Watch(watch) => Box::pin(self.follow(*watch)).await,
                NextWait::Poll(poll) => Box::pin(self.poll(*poll)).await,
                NextWait::PeerAsk(ask) => Box::pin(self.answer_peer(*ask)).await,
                NextWait::Link(link) => match self.socket.flush().await {
                    Ok(()) => {
                        self.link = Some(link);
                        Err(ConnectionEnd::Done)
                    }
                    Err(end) => Err(end),
                },
                NextWait::Close => match self.socket.flush().await {
                    Ok(()) => Err(ConnectionEnd::Done),
                    Err(end) => Err(end),
                },
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Answers everything in the buffer that can be answered now.
    fn step(&mut self) -> NextWait {
        let flush_bytes = if self.lane.is_crowded() {
            limits::UNCOUNTED_BYTES_MAX
        } else {
            limits::ANSWER_BYTES_FLUSH
        };
        let mut taken = 0;
        loop {
            if !self.pending.is_empty()
                && (self.is_closing || self.pending.len() >= limits::PIPELINED_WRITES_MAX)
            {
                return NextWait::Outcomes;
            }
            if self.is_closing {
                return NextWait::Close;
            }
            if self.socket.out_len() >= flush_bytes {
                return NextWait::Flush;
            }
            self.socket.prepare_out();
            // The buffer is taken out while its head is looked at, so that everything else of the
            // connection can change meanwhile.
            let input = self.socket.take_input();
            let (consumed, next) = self.handle_front(input.data());
            self.socket.put_input(input, consumed);
            if consumed > 0 {
                self.in_front = RequestInFront::default();
                self.socket.note_work(limits::WORK_OF_A_REQUEST);
                taken += 1;
            }
            if let Some(next) = next {
                return next;
            }
            if self.socket.unread_len() > 0 && self.socket.take_was_refused() {
                return NextWait::Turn;
            }
            if taken >= limits::REQUESTS_A_TURN && self.lane.delay.is_crowded(self.lane.now_us()) {
                return NextWait::Turn;
            }
        }
    }

    /// Lets others go first. While requests stand in line its next one stands there, too. That may
    /// take long: the answers of those in front of it do not wait for it.
    async fn take_turns(&mut self) -> Result<(), ConnectionEnd> {
        let held = self.socket.hold_input();
        tokio::task::yield_now().await;
        self.lane.refresh();
        drop(held);
        if !self.socket.is_to_stand() {
            return Ok(());
        }
        if self.has_waiting() {
            self.wait().await?;
        }
        self.socket.flush().await?;
        let _held = self.socket.hold_input();
        if self.is_closing {
            Ok(())
        } else {
            self.socket.stand(Expecting::Body).await
        }
    }

    async fn read_on(&mut self) -> Result<(), ConnectionEnd> {
        self.socket.flush().await?;
        if self.lane.is_draining() {
            return Err(ConnectionEnd::Draining);
        }
        let stage = if self.socket.unread_len() == 0 {
            Expecting::Idle
        } else {
            Expecting::Head
        };
        match self.socket.fill(stage).await {
            Err(ConnectionEnd::TooSlow) if stage == Expecting::Head => {
                self.refuse_and_close(&Refusal::too_slow("the head did not arrive in time"));
                Ok(())
            }
            done => done,
        }
    }

    /// Forms a refusal that ends the connection.
    fn refuse_and_close(&mut self, refusal: &Refusal) {
        let status = status::write_refusal(self.socket.out(), Style::CLOSING, refusal);
        self.lane.finish(OpLabel::Other, status);
        self.is_closing = true;
        self.linger = self.linger.max(Linger::Bytes);
    }

    async fn pause(&mut self, us: u64) -> Result<(), ConnectionEnd> {
        self.socket.flush().await?;
        let _held = self.socket.hold_input();
        // Only under pressure, and then at most 400 ms: a timer here costs less than the request
        // that it holds back.
        let began_ns = clock::monotonic_ns();
        tokio::time::sleep(Duration::from_micros(us)).await;
        self.lane.refresh();
        let paused_ns = self.lane.now_ns().saturating_sub(began_ns);
        self.lane.metrics().write_pauses.note(paused_ns, 1);
        self.in_front.has_paused = true;
        self.socket.expect_client(self.in_front.came_us())
    }

    /// Waits for room in the loop's batch: without any, the write is refused when it is looked at
    /// again.
    async fn line_up(&mut self, value_len: usize, until_us: u64) -> Result<(), ConnectionEnd> {
        self.socket.flush().await?;
        let _held = self.socket.hold_input();
        let _ = self
            .lane
            .wait_for_log(&self.seat, value_len, until_us)
            .await;
        self.lane.refresh();
        let expected = self.socket.expect_client(self.in_front.came_us());
        expected.inspect_err(|_gone| self.lane.forgo_log())
    }

    // Operations that wait.

    /// Has anything been begun that waits for its end?
    fn has_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Waits for the ends of everything in `pending`, and forms the answers.
    async fn wait(&mut self) -> Result<(), ConnectionEnd> {
        self.wait_between(&mut |_, _| {}).await
    }

    /// Waits like `wait`. `between` may append to the answers: it is called in front of each with
    /// the number of those that are formed, and behind the last one.
    async fn wait_between(
        &mut self,
        between: &mut dyn FnMut(usize, &mut Vec<u8>),
    ) -> Result<(), ConnectionEnd> {
        let _held = self.socket.hold_input();
        let waited = self.backend.wait(&mut self.socket, &self.pending).await?;
        let now_ns = self.lane.now_ns();
        let Connection {
            lane,
            seat,
            backend,
            socket,
            pending,
            ..
        } = self;
        let metrics = lane.metrics();
        let mut last_status = 0;
        let count = pending.len();
        for (place, mut operation) in pending.drain(..).enumerate() {
            between(place, socket.out());
            backend.note_wait(lane, &mut operation);
            let mut answers = Answers {
                lane,
                backend,
                out: socket.out(),
            };
            let status = answers.answer(&operation, seat.take(place));
            operation
                .watch
                .lap(&metrics.stages, operation.op, RequestStage::Form);
            socket.add_unsent(operation.op, operation.watch);
            let took_ns = now_ns.saturating_sub(operation.began_ns);
            metrics.note(operation.op, status, took_ns);
            last_status = status;
        }
        between(count, socket.out());
        seat.next_round();
        // It waits alone.
        self.note_token_change(last_status);
        // The log failed: the next request would get the same answer.
        self.is_closing |= waited == Err(WakeReason::Poisoned);
        Ok(())
    }

    /// Has a read that needs the disk carried out, when the answers in front of it are sent.
    async fn resume(&mut self, mut read: PendingOperation) -> Result<(), ConnectionEnd> {
        self.socket.flush().await?;
        let Connection {
            lane,
            seat,
            backend,
            socket,
            ..
        } = self;
        match backend.resume(lane, seat, &mut read) {
            Ok(()) => {
                self.pending.push(read);
                self.wait().await
            }
            Err(refused) => {
                let mut answers = Answers {
                    lane,
                    backend,
                    out: socket.out(),
                };
                let status = answers.answer(&read, Some(Finished::Refused(refused)));
                read.watch
                    .lap(&lane.metrics().stages, read.op, RequestStage::Form);
                lane.finish_since(read.op, status, read.began_ns);
                socket.add_unsent(read.op, read.watch);
                Ok(())
            }
        }
    }

    /// Answers a question of a peer.
    async fn answer_peer(&mut self, ask: PendingAsk) -> Result<(), ConnectionEnd> {
        self.end_if(ask.style());
        match peers::answer(&mut self.socket, ask).await? {
            Answered::Formed { is_last } => self.is_closing |= is_last,
            Answered::Broken(refusal) => self.refuse_and_close(&refusal),
        }
        Ok(())
    }

    /// The replacement of the table of tokens ended with this status; 0 = it is not known how.
    fn note_token_change(&mut self, status: u16) {
        if let Some(event) = self.token_change.take()
            && let Some(audit) = &self.lane.parts.border.audit
        {
            audit.note(event.ending(status));
        }
    }

    fn end_if(&mut self, style: Style) {
        self.is_closing |= style.connection == Persistence::Close;
    }
}
