//! Connections that give way to others, on a loop of which only those tasks run that a test polls.
//! So each of their steps can be counted.
//!
//! Invariants
//! 1. No clock decides. A probe that was rung at the beginning of time, and does not run, makes the
//!    loop crowded. Deadlines pass when a test says so.
//! 2. The bytes that a connection is to read are in its socket before it is polled.
//!
//! Not here: the order of those that wait (`giving_way.rs`; crate `node`, `standing/`).
//! See: docs/overload.md, "When the processor is what runs out".

use super::*;
use crate::clients::connection;
use crate::exchange::body::{self, BodyReader, Inflow};
use crate::exchange::socket::{ConnectionEnd, Expecting, Linger, Socket};
use crate::lifecycle;
use crate::settings::Settings;
use crate::waiting::status::DELAYS_FORMED;
use dendra_node::standing::STANDING_US;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::yield_now;

/// After so long a test hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const LOCALHOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const CALL: usize = limits::WORK_OF_A_CALL;
const GET: &[u8] = b"GET /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\n\r\n";

static HOOKS: LoopHooks = LoopHooks {
    serve: connection::spawn,
    turns: |_, _| {},
    link: |_, _, _| {},
    sweep: |_, _| {},
    begin: |_| {},
};

/// Runs `test` with a loop that has this target of its delay, and no task.
fn on_a_loop(queue_delay_target: Duration, test: impl AsyncFnOnce(Rc<EventLoop>)) {
    on_a_loop_with(
        |settings| settings.queue_delay_target = queue_delay_target,
        test,
    );
}

/// Runs `test` with a loop of a node with these settings, and no task.
pub(super) fn on_a_loop_with(
    change: impl FnOnce(&mut Settings),
    test: impl AsyncFnOnce(Rc<EventLoop>),
) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = Settings::new(folder.path());
    settings.loops = Some(1);
    settings.memory_bytes = 64 << 20;
    change(&mut settings);
    let parts = lifecycle::parts_for_tests(settings);
    let lane = Rc::new(EventLoop::new(parts, 0, &HOOKS));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .expect("a runtime");
    let tested = async { tokio::time::timeout(PATIENCE, test(lane)).await };
    runtime.block_on(tested).expect("it does not hang");
}

/// Others wait behind each connection from now on. Requires: no look at the delay before this one.
fn crowd(lane: &EventLoop) {
    lane.delay.look(1);
    assert!(lane.delay.is_crowded(lane.now_us()));
}

/// The probe runs: for a moment no connection has others behind it.
fn rest(lane: &EventLoop) {
    let mut probe = pin!(delay::probe(Rc::clone(&lane.delay)));
    assert!(poll(probe.as_mut()).is_pending());
}

/// Requests stand in line from now on. Requires: as `crowd`, and a target.
fn stand(lane: &EventLoop) {
    for n in 0..3 {
        lane.delay.look(1 + n * STANDING_US);
    }
    assert!(lane.delay.is_standing());
}

pub(super) fn poll<T>(task: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    task.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls `task` until it ends, or `is_so`: then `None`.
async fn until<T>(
    mut task: Pin<&mut impl Future<Output = T>>,
    is_so: impl Fn() -> bool,
) -> Option<T> {
    loop {
        match poll(task.as_mut()) {
            Poll::Ready(done) => return Some(done),
            Poll::Pending if is_so() => return None,
            Poll::Pending => yield_now().await,
        }
    }
}

/// Does a read give way? Ends do not count.
fn gives_way(lane: &EventLoop) -> bool {
    lane.giving_way.waited_us(u64::MAX) > 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Client,
    Member,
}

/// A client, and the other end of its connection to look at.
struct Client {
    stream: TcpStream,
    other_end: std::net::TcpStream,
}

impl Client {
    /// A client, and its connection as the listener hands it to a loop.
    async fn connect() -> (Client, std::net::TcpStream) {
        let door = TcpSocket::new_v4().expect("a socket");
        let room = u32::try_from(16 * CALL).expect("it is short");
        door.set_recv_buffer_size(room).expect("it can be set");
        let any = SocketAddr::from((LOCALHOST, 0));
        door.bind(any).expect("a port");
        let door = door.listen(1).expect("it listens");
        let addr = door.local_addr().expect("it is bound");
        let stream = TcpStream::connect(addr).await.expect("it listens");
        let (accepted, _) = door.accept().await.expect("one has connected");
        let accepted = accepted.into_std().expect("a socket");
        let other_end = accepted.try_clone().expect("a descriptor");
        (Client { stream, other_end }, accepted)
    }

    /// Sends `bytes`; they are all in the socket of the loop then.
    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("there is room");
        let mut looked_at = vec![0; bytes.len() + 1];
        while !matches!(self.other_end.peek(&mut looked_at), Ok(n) if n == bytes.len()) {
            yield_now().await;
        }
    }
}

/// A connection from which `bytes` were read.
async fn connection_with(lane: &Rc<EventLoop>, of: Asker, bytes: &[u8]) -> (Client, Socket) {
    let (mut client, accepted) = Client::connect().await;
    let stream = TcpStream::from_std(accepted).expect("it can be watched");
    let seat = Rc::new(Seat::default());
    let stream = ByteStream::Clear(stream);
    let mut socket = Socket::new(Rc::clone(lane), seat, IpAddr::V4(LOCALHOST), stream);
    client.send(bytes).await;
    if of == Asker::Member {
        socket.mark_as_peer();
    }
    {
        let mut first = pin!(socket.fill(Expecting::Idle));
        let mut done = until(first.as_mut(), || gives_way(lane)).await;
        if of == Asker::Client {
            assert_eq!(done, None, "a new one gives way");
            lane.giving_way.call_all();
            done = until(first, || false).await;
        }
        assert_eq!(done, Some(Ok(())));
    }
    assert_eq!(socket.unread_len(), bytes.len());
    (client, socket)
}

/// How a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyUse {
    Stored,
    StoredFromChunks,
    Skipped,
}

/// As many bytes as are read in three calls.
const BODY_BYTES: usize = 3 * CALL;

/// A body as it is sent: the bytes of one call, and those of two.
fn body_of(usage: BodyUse) -> (Vec<u8>, Vec<u8>) {
    let mut first = vec![b'v'; BODY_BYTES];
    if usage == BodyUse::StoredFromChunks {
        // Five digits, and four ends of lines with a zero between them.
        let data = "v".repeat(BODY_BYTES - 14);
        first = format!("{:x}\r\n{data}\r\n0\r\n\r\n", data.len()).into_bytes();
        assert_eq!(first.len(), BODY_BYTES);
    }
    let rest = first.split_off(CALL);
    (first, rest)
}

/// Reads the body that the unread bytes begin with: did it come whole?
async fn read_body(mut socket: Socket, usage: BodyUse) -> bool {
    let length = BodyReader::of_length(BODY_BYTES as u64);
    let stored = match usage {
        BodyUse::Stored => length,
        BodyUse::StoredFromChunks => BodyReader::chunked(BODY_BYTES as u64),
        BodyUse::Skipped => return body::discard(&mut socket, length).await.is_ok(),
    };
    Inflow::new(stored, None).collect(&mut socket).await.is_ok()
}

#[test]
fn a_body_is_read_in_pieces_while_others_wait() {
    for usage in [BodyUse::Stored, BodyUse::StoredFromChunks, BodyUse::Skipped] {
        on_a_loop(Duration::ZERO, async |lane| {
            crowd(&lane);
            let (first, rest) = body_of(usage);
            let (mut client, socket) = connection_with(&lane, Asker::Client, &first).await;
            client.send(&rest).await;
            let mut reading = pin!(read_body(socket, usage));
            let read = || lane.metrics().read_bytes.read() as usize;
            for calls in 1..3 {
                let done = until(reading.as_mut(), || gives_way(&lane)).await;
                assert_eq!(done, None, "{usage:?} does not give way");
                assert_eq!(read(), calls * CALL, "{usage:?}");
                lane.giving_way.call_all();
            }
            let done = until(reading, || read() == BODY_BYTES).await;
            assert_eq!(done, Some(true), "{usage:?}");
        });
    }
}

#[test]
fn a_member_reads_its_body_to_the_end_while_others_wait() {
    for usage in [BodyUse::Stored, BodyUse::StoredFromChunks, BodyUse::Skipped] {
        on_a_loop(Duration::ZERO, async |lane| {
            crowd(&lane);
            let (first, rest) = body_of(usage);
            let (mut member, socket) = connection_with(&lane, Asker::Member, &first).await;
            member.send(&rest).await;
            let reading = pin!(read_body(socket, usage));
            let done = until(reading, || gives_way(&lane)).await;
            assert_eq!(done, Some(true), "{usage:?} gives way");
        });
    }
}

#[test]
fn ends_of_clients_that_hang_up_are_seen_a_few_in_a_turn() {
    on_a_loop(Duration::ZERO, async |lane| {
        const FEW: usize = limits::CALLS_A_TURN;
        let mut porter = pin!(giving_way::porter(Rc::clone(&lane.giving_way)));
        let mut gone = Vec::new();
        for _ in 0..2 * FEW + 1 {
            let (client, socket) = connection_with(&lane, Asker::Client, b"G").await;
            drop(client);
            while !socket.is_client_gone() {
                yield_now().await;
            }
            gone.push(socket);
        }
        let (mut works, mut working) = connection_with(&lane, Asker::Client, b"G").await;
        works.send(b"E").await;
        let fill = |mut socket: Socket| Box::pin(async move { socket.fill(Expecting::Idle).await });
        let mut ends: Vec<_> = gone.into_iter().map(fill).collect();
        let mut left = Vec::new();
        for turn in 0..4 {
            yield_now().await;
            ends.retain_mut(|end| match poll(end.as_mut()) {
                Poll::Pending => true,
                Poll::Ready(end) => {
                    assert_eq!(end, Err(ConnectionEnd::HungUp));
                    false
                }
            });
            left.push(ends.len());
            if turn == 0 {
                let read = pin!(working.fill(Expecting::Idle));
                let read = until(read, || gives_way(&lane)).await;
                assert_eq!(read, Some(Ok(())), "a request waits for no end");
            }
            assert!(!gives_way(&lane), "ends are no delay");
            assert!(poll(porter.as_mut()).is_pending());
        }
        assert_eq!(left, [2 * FEW + 1, FEW + 1, 1, 0]);
    });
}

/// Polls `closing` and those who call ends, until it is closed or waits for its client.
async fn until_it_waits(
    lane: &Rc<EventLoop>,
    mut closing: Pin<&mut impl Future<Output = ByteStream>>,
) -> Poll<()> {
    let mut porter = pin!(giving_way::porter(Rc::clone(&lane.giving_way)));
    for _ in 0..1_000 {
        if poll(closing.as_mut()).is_ready() {
            return Poll::Ready(());
        }
        assert!(poll(porter.as_mut()).is_pending());
        yield_now().await;
    }
    Poll::Pending
}

#[test]
fn behind_a_refusal_no_byte_is_read_beyond_the_bound() {
    on_a_loop(Duration::ZERO, async |lane| {
        let read = || lane.metrics().read_bytes.read() as usize;
        for unread in [0, 1, CALL] {
            let (mut client, mut socket) = connection_with(&lane, Asker::Client, b"G").await;
            socket.input().consume(1);
            if unread > 0 {
                client.send(&vec![b'y'; unread]).await;
                let more = pin!(socket.fill(Expecting::Head));
                assert_eq!(until(more, || false).await, Some(Ok(())));
            }
            let bound = limits::LINGER_BYTES_MAX - unread;
            let before = read();
            client.send(&vec![b'y'; bound + CALL]).await;
            let closing = pin!(socket.close(ConnectionEnd::Done, Linger::Bytes));
            assert!(until_it_waits(&lane, closing).await.is_ready());
            assert_eq!(read() - before, bound, "{unread} unread");
        }
    });
}

#[test]
fn behind_a_refusal_a_client_that_sends_byte_by_byte_has_a_bounded_number_of_turns() {
    on_a_loop(Duration::ZERO, async |lane| {
        let (mut client, socket) = connection_with(&lane, Asker::Client, b"G").await;
        let before = lane.metrics().reads.read();
        let mut closing = pin!(socket.close(ConnectionEnd::Done, Linger::Bytes));
        let turns = limits::LINGER_BYTES_MAX / limits::LINGER_READ_BYTES_LEAST;
        for turn in 1..=turns {
            assert!(
                poll(closing.as_mut()).is_pending(),
                "it ended before {turn}"
            );
            client.send(b"y").await;
            let ended = until_it_waits(&lane, closing.as_mut()).await.is_ready();
            assert_eq!(lane.metrics().reads.read() - before, turn as u64);
            assert_eq!(ended, turn == turns);
            if ended {
                return;
            }
        }
    });
}

#[test]
fn clients_that_go_on_sending_behind_a_refusal_have_the_turns_of_ends() {
    on_a_loop(Duration::ZERO, async |lane| {
        const FEW: usize = limits::CALLS_A_TURN;
        let mut porter = pin!(giving_way::porter(Rc::clone(&lane.giving_way)));
        let mut clients = Vec::new();
        let mut closing = Vec::new();
        for _ in 0..2 * FEW + 1 {
            let (mut client, socket) = connection_with(&lane, Asker::Client, b"G").await;
            client.send(&[b'y'; CALL]).await;
            clients.push(client);
            closing.push(Box::pin(socket.close(ConnectionEnd::Done, Linger::Body)));
        }
        let (mut works, mut working) = connection_with(&lane, Asker::Client, b"G").await;
        works.send(b"E").await;
        let before = lane.metrics().reads.read();
        let mut reads = Vec::new();
        for turn in 0..4 {
            yield_now().await;
            for closing in &mut closing {
                assert!(
                    poll(closing.as_mut()).is_pending(),
                    "it may read its answer"
                );
            }
            reads.push(lane.metrics().reads.read() - before);
            if turn == 0 {
                let read = pin!(working.fill(Expecting::Idle));
                let read = until(read, || gives_way(&lane)).await;
                assert_eq!(read, Some(Ok(())), "a request waits for none of them");
                assert_eq!(lane.metrics().reads.read() - before, 1);
            }
            assert!(poll(porter.as_mut()).is_pending());
            assert!(!gives_way(&lane), "they are no delay");
        }
        let few = FEW as u64;
        assert_eq!(reads, [0, 1 + few, 1 + 2 * few, 2 + 2 * few]);
    });
}

/// A connection of the loop, as the listener counts it.
async fn accepted(lane: &Rc<EventLoop>) -> (Client, std::net::TcpStream, ConnectionPlace) {
    let (client, stream) = Client::connect().await;
    let place = lane
        .parts
        .entrance
        .gate
        .enter(LOCALHOST.into(), Instant::now());
    lane.handle().connections.fetch_add(1, Ordering::SeqCst);
    (client, stream, place.expect("there is room"))
}

#[test]
fn sockets_of_ended_connections_are_closed_a_few_in_a_turn_while_others_wait() {
    on_a_loop(Duration::ZERO, async |lane| {
        const FEW: usize = limits::CLOSES_A_TURN;
        let mut closer = pin!(close_when_due(Rc::clone(&lane)));
        let mut clients = Vec::new();
        let mut end_one = async || {
            let (client, stream, place) = accepted(&lane).await;
            clients.push(client);
            let stream = TcpStream::from_std(stream).expect("it can be watched");
            let number = lane.waiters.seats.borrow_mut().insert(Rc::default());
            let guard = ConnectionGuard {
                lane: Rc::clone(&lane),
                number,
                place: Some(place),
            };
            lane.close(ByteStream::Clear(stream), guard);
        };
        crowd(&lane);
        for _ in 0..2 * FEW {
            end_one().await;
        }
        rest(&lane);
        end_one().await;
        let mut open = vec![lane.parts.lanes.connections()];
        for _ in 0..3 {
            assert!(poll(closer.as_mut()).is_pending());
            open.push(lane.parts.lanes.connections());
            yield_now().await;
        }
        assert_eq!(open, [2 * FEW + 1, FEW + 1, 1, 0]);
        end_one().await;
        assert_eq!(lane.parts.lanes.connections(), 0, "no other one waits");
    });
}

/// A client of a loop where requests stand in line.
async fn standing_client(lane: &Rc<EventLoop>) -> TcpStream {
    stand(lane);
    tokio::task::spawn_local(close_when_due(Rc::clone(lane)));
    let (client, stream, place) = accepted(lane).await;
    lane.take_connection(stream, place);
    let Client { stream, other_end } = client;
    // The loop alone holds the other end: a connection that it cuts is one that ends.
    drop(other_end);
    stream
}

/// The answer to a request that stood in line for as long as a connection may be idle; empty if the
/// connection was cut.
async fn answer_to_the_patient(lane: &Rc<EventLoop>, client: &mut TcpStream) -> String {
    let idle_us = lane.parts.settings.timeouts.idle.as_micros() as u64;
    let in_line = || {
        lane.delay.sweep(lane.now_us());
        lane.metrics().standing.read()
    };
    let pass = |now_us| {
        for (_, seat) in lane.waiters.seats.borrow().iter() {
            seat.check_deadline(now_us);
        }
    };
    lane.refresh();
    let before_us = lane.now_us();
    client.write_all(GET).await.expect("there is room");
    while in_line() == 0 {
        yield_now().await;
    }
    pass(before_us + idle_us - 1);
    for _ in 0..10 {
        yield_now().await;
        assert_eq!(in_line(), 1, "it waits");
    }
    pass(clock::monotonic_us() + idle_us);
    let mut answer = vec![0; CALL];
    let n = match client.read(&mut answer).await {
        Ok(n) => n,
        // It was cut with its request unread.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
        Err(error) => panic!("neither bytes nor the end: {error}"),
    };
    String::from_utf8_lossy(&answer[..n]).into_owned()
}

#[test]
fn a_request_that_stood_in_line_for_as_long_as_a_connection_may_be_idle_is_refused_and_not_cut() {
    on_a_loop(Duration::from_micros(1), async |lane| {
        let mut client = standing_client(&lane).await;
        for _ in 0..2 {
            let answer = answer_to_the_patient(&lane, &mut client).await;
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer:?}");
            assert!(answer.contains("overloaded: "), "{answer}");
        }
    });
}

#[test]
fn the_refusals_of_an_overload_are_formed_once() {
    on_a_loop(Duration::from_micros(1), async |lane| {
        let mut client = standing_client(&lane).await;
        let mut refuse = async || {
            let answer = answer_to_the_patient(&lane, &mut client).await;
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer:?}");
        };
        refuse().await;
        let formed = DELAYS_FORMED.get();
        assert!(formed <= limits::RETRY_AFTER_SPREAD_S, "{formed}");
        for _ in 0..2 * limits::RETRY_AFTER_SPREAD_S {
            refuse().await;
        }
        assert_eq!(DELAYS_FORMED.get(), formed, "they are formed anew");
    });
}

#[test]
fn between_a_few_new_connections_another_task_has_its_turn() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without drivers");
    let taken = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let tasks = tokio::task::LocalSet::new();
    tasks.spawn_local({
        let taken = Rc::clone(&taken);
        async move { in_turns(0..20, 8, |n| taken.borrow_mut().push(n)).await }
    });
    tasks.spawn_local({
        let (taken, seen) = (Rc::clone(&taken), Rc::clone(&seen));
        async move {
            while taken.borrow().len() < 20 {
                seen.borrow_mut().push(taken.borrow().len());
                yield_now().await;
            }
        }
    });
    runtime.block_on(tasks);
    assert_eq!(*taken.borrow(), (0..20).collect::<Vec<_>>());
    assert_eq!(seen.borrow().first(), Some(&8));
}
