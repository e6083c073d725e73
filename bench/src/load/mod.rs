//! The generator: one thread, one epoll, a fixed number of connections, closed or open loop.
//!
//! ```text
//! closed   answer ─► next request at once                  latency from the moment of sending
//! open     due(i) = start + i / rate, fixed in advance     latency from due(i), sent late or not
//! ```
//!
//! Invariants
//! 1. Every answer is checked: its status, and the whole value of a `200` where the server stores
//!    values. The first wrong one ends the run with an error.
//! 2. In an open loop no answer delays the plan: what is due waits for a free connection and the
//!    waiting counts.
//! 3. A connection holds at most `depth` requests.
//!
//! Not here: CPU accounting (`window.rs`), which keys (`keys.rs`).
//! See: docs/lab/README.md.

use crate::Result;
use crate::keys::{Ask, Asks, Keys, Values, Verb};
use crate::protocol::{Answer, Answers, Protocol, Requests};
use hdrhistogram::Histogram;
use rustix::event::epoll;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const INBOX_BYTES: usize = 64 << 10;
const EVENTS_MAX: usize = 256;
/// Longest wait for a server that stopped answering before the run is given up.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// One wait for answers; see [`Silence`].
const LOOK_MAX: Duration = Duration::from_millis(100);
/// Pause of a loader whose writes are refused: long enough for a slice of background work.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);

/// What to send, to whom, over how many connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// Where the server listens.
    pub(crate) address: SocketAddr,
    /// What it speaks.
    pub(crate) protocol: Protocol,
    /// Which keys.
    pub(crate) keys: Keys,
    /// Share of writes.
    pub(crate) put_percent: u64,
    /// Are the values of `200` answers those that were written?
    pub(crate) values: Stored,
    /// Connections.
    pub(crate) connections: usize,
    /// Requests in flight on each.
    pub(crate) depth: usize,
    /// Seed of the key stream.
    pub(crate) seed: u64,
}

/// Does a server keep what it is given?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Yes: values are compared.
    Yes,
    /// No: it answers the same to everybody.
    No,
}

/// What happened in one stretch of load.
pub(crate) struct Tally {
    /// Complete, expected answers.
    pub(crate) answers: u64,
    /// How long the stretch lasted.
    pub(crate) elapsed: Duration,
    /// Closed loop: time in which there was nothing to do.
    pub(crate) idle: Duration,
    /// Nanoseconds from the sending (closed) or the planned instant (open) to the answer.
    pub(crate) latency_ns: Histogram<u64>,
    /// Open loop: nanoseconds by which the generator itself was late, a connection being free.
    pub(crate) lag_ns: Histogram<u64>,
    /// Refusals (`503`, `507`) that a loader met and repeated.
    pub(crate) refused: u64,
}

impl Tally {
    fn new() -> Result<Tally> {
        Ok(Tally {
            answers: 0,
            elapsed: Duration::ZERO,
            idle: Duration::ZERO,
            latency_ns: Histogram::new_with_bounds(100, 60_000_000_000, 3)?,
            lag_ns: Histogram::new_with_bounds(1, 60_000_000_000, 3)?,
            refused: 0,
        })
    }
}

struct Connection {
    socket: TcpStream,
    answers: Answers,
    inbox: Vec<u8>,
    filled: usize,
    outbox: Vec<u8>,
    sent: usize,
    is_stuck: bool,
    inflight: VecDeque<(Ask, Instant)>,
}

/// Open connections with a stream of requests to send over them.
pub(crate) struct Load {
    workload: Workload,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    requests: Requests,
    values: Values,
    asks: Asks,
    events: Vec<epoll::Event>,
    freed: Vec<usize>,
}

/// How long the server has been silent while this process looked.
///
/// A step longer than `LOOK_MAX` is a pause of this process, or of the whole machine under memory pressure:
/// nobody looked, and the server may have stood still as well. It counts as `LOOK_MAX`.
struct Silence {
    looked: Instant,
    length: Duration,
}

impl Silence {
    fn new(now: Instant) -> Silence {
        Silence {
            looked: now,
            length: Duration::ZERO,
        }
    }

    fn look(&mut self, now: Instant, is_heard: bool) -> Result<()> {
        let step = now.saturating_duration_since(self.looked).min(LOOK_MAX);
        self.looked = now;
        self.length = if is_heard {
            Duration::ZERO
        } else {
            self.length + step
        };
        if self.length > SILENCE_MAX {
            return Err(format!("the server was silent for {SILENCE_MAX:?}").into());
        }
        Ok(())
    }
}

/// What follows an answer on the same connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Ask again at once.
    Ask,
    /// Wait to be told.
    Rest,
}

impl Load {
    /// Connects; nothing is sent yet.
    pub(crate) fn connect(workload: Workload) -> Result<Load> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for slot in 0..workload.connections {
            let socket = TcpStream::connect(workload.address)?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(slot as u64);
            epoll::add(&epoll, &socket, data, epoll::EventFlags::IN)?;
            connections.push(Connection {
                socket,
                answers: Answers::new(workload.protocol),
                inbox: vec![0; INBOX_BYTES],
                filled: 0,
                outbox: Vec::new(),
                sent: 0,
                is_stuck: false,
                inflight: VecDeque::new(),
            });
        }
        Ok(Load {
            epoll,
            connections,
            requests: Requests::new(workload.protocol, &workload.address.to_string()),
            values: Values::new(),
            asks: Asks::new(workload.keys, workload.put_percent, workload.seed),
            events: Vec::with_capacity(EVENTS_MAX),
            freed: Vec::new(),
            workload,
        })
    }

    /// Closed loop for `length`; requests in flight stay in flight at the end.
    ///
    /// Spins instead of sleeping: a sleeping generator must be woken by what the server sends, and
    /// that wake-up, an interrupt to another core, is booked on the server. The slower the server,
    /// the more often it would pay.
    pub(crate) fn closed(&mut self, length: Duration) -> Result<Tally> {
        let mut tally = Tally::new()?;
        let start = Instant::now();
        self.fill_all(start)?;
        let mut now = start;
        let mut silence = Silence::new(start);
        while now < start + length {
            self.turn(Duration::ZERO, &mut tally, Then::Ask)?;
            let before = std::mem::replace(&mut now, Instant::now());
            silence.look(now, !self.events.is_empty())?;
            if self.events.is_empty() {
                tally.idle += now - before;
            }
        }
        tally.elapsed = start.elapsed();
        Ok(tally)
    }

    /// Closed loop until the stream of requests ends; refused writes are repeated until accepted.
    pub(crate) fn until_done(&mut self, progress: &mut dyn FnMut(u64)) -> Result<Tally> {
        let mut tally = Tally::new()?;
        let start = Instant::now();
        let mut silence = Silence::new(start);
        self.fill_all(start)?;
        while self
            .connections
            .iter()
            .any(|connection| !connection.inflight.is_empty())
        {
            let refused = tally.refused;
            self.turn(LOOK_MAX, &mut tally, Then::Ask)?;
            silence.look(Instant::now(), !self.events.is_empty())?;
            if tally.refused > refused {
                std::thread::sleep(REFUSED_PAUSE);
                self.fill_all(Instant::now())?;
            }
            progress(tally.answers);
        }
        tally.elapsed = start.elapsed();
        Ok(tally)
    }

    /// Open loop: `rate` requests a second for `length`, then waits for the last answers.
    pub(crate) fn open(&mut self, rate: f64, length: Duration) -> Result<Tally> {
        self.drain()?;
        let mut tally = Tally::new()?;
        let mut free: Vec<usize> = (0..self.connections.len()).rev().collect();
        let planned = (rate * length.as_secs_f64()) as u64;
        let start = Instant::now();
        let due = |index: u64| start + Duration::from_secs_f64(index as f64 / rate);
        let mut next = 0;
        let mut was_free = true;
        while next < planned || free.len() < self.connections.len() {
            let now = Instant::now();
            while next < planned && due(next) <= now {
                let Some(slot) = free.pop() else { break };
                if was_free {
                    tally.lag_ns.record((now - due(next)).as_nanos() as u64)?;
                }
                self.ask(slot, due(next))?;
                self.send(slot)?;
                next += 1;
            }
            was_free = !free.is_empty();
            if now > start + length + SILENCE_MAX {
                let late = planned - next;
                return Err(format!(
                    "{rate:.0} requests a second is past the knee: {late} of {planned} were not \
                     even sent {SILENCE_MAX:?} after their time"
                )
                .into());
            }
            // Spinning instead of sleeping: at 50,000 a second a wake-up would be as long as the
            // distance between two requests.
            self.turn(Duration::ZERO, &mut tally, Then::Rest)?;
            free.extend_from_slice(&self.freed);
        }
        tally.elapsed = start.elapsed();
        Ok(tally)
    }

    /// Waits until nothing is in flight.
    pub(crate) fn drain(&mut self) -> Result<()> {
        let mut ignored = Tally::new()?;
        let mut silence = Silence::new(Instant::now());
        while self
            .connections
            .iter()
            .any(|connection| !connection.inflight.is_empty())
        {
            self.turn(LOOK_MAX, &mut ignored, Then::Rest)?;
            silence.look(Instant::now(), !self.events.is_empty())?;
        }
        Ok(())
    }

    fn fill_all(&mut self, now: Instant) -> Result<()> {
        for slot in 0..self.connections.len() {
            while self.connections[slot].inflight.len() < self.workload.depth {
                if !self.ask(slot, now)? {
                    break;
                }
            }
            self.send(slot)?;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        let limit = rustix::event::Timespec::try_from(timeout)?;
        self.events.clear();
        let room = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, room, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    }

    /// One turn of the loop: waits, then serves what is ready. Leaves in `freed` the connections
    /// that have nothing in flight any more.
    fn turn(&mut self, timeout: Duration, tally: &mut Tally, then: Then) -> Result<()> {
        self.wait(timeout)?;
        self.freed.clear();
        let events = std::mem::take(&mut self.events);
        for event in &events {
            let slot = event.data.u64() as usize;
            let answers = self.serve(slot, tally, then)?;
            if answers > 0 && self.connections[slot].inflight.is_empty() {
                self.freed.push(slot);
            }
        }
        self.events = events;
        Ok(())
    }

    /// Takes what arrived on one connection and, with `Then::Ask`, asks as much again. Returns the
    /// number of answers.
    fn serve(&mut self, slot: usize, tally: &mut Tally, then: Then) -> Result<usize> {
        let connection = &mut self.connections[slot];
        match connection
            .socket
            .read(&mut connection.inbox[connection.filled..])
        {
            Ok(0) => return Err("the server closed a connection".to_owned().into()),
            Ok(bytes) => connection.filled += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.send(slot)?;
                return Ok(0);
            }
            Err(error) => return Err(error.into()),
        }
        let now = Instant::now();
        let mut taken = 0;
        let mut answers = 0;
        loop {
            let connection = &mut self.connections[slot];
            let bytes = &connection.inbox[taken..connection.filled];
            if bytes.is_empty() {
                break;
            }
            let Some(answer) = connection.answers.next(bytes)? else {
                break;
            };
            let Some((ask, since)) = connection.inflight.pop_front() else {
                return Err("an answer came that nobody asked for".to_owned().into());
            };
            let body = &bytes[answer.body.clone()];
            taken += answer.bytes;
            answers += 1;
            if is_accepted(&self.workload, &self.values, ask, &answer, body)? {
                tally.answers += 1;
                tally.latency_ns.record((now - since).as_nanos() as u64)?;
                if then == Then::Ask {
                    self.ask(slot, now)?;
                }
            } else {
                tally.refused += 1;
                self.asks.retry(ask);
            }
        }
        let connection = &mut self.connections[slot];
        connection.inbox.copy_within(taken..connection.filled, 0);
        connection.filled -= taken;
        self.send(slot)?;
        Ok(answers)
    }

    /// Puts the next request into the outbox of one connection; false when there is none.
    fn ask(&mut self, slot: usize, since: Instant) -> Result<bool> {
        let Some(ask) = self.asks.next() else {
            return Ok(false);
        };
        let connection = &mut self.connections[slot];
        self.requests
            .render(ask, &self.values, &mut connection.outbox);
        connection.inflight.push_back((ask, since));
        Ok(true)
    }

    /// Sends as much of the outbox as the socket takes.
    fn send(&mut self, slot: usize) -> Result<()> {
        let connection = &mut self.connections[slot];
        while connection.sent < connection.outbox.len() {
            match connection
                .socket
                .write(&connection.outbox[connection.sent..])
            {
                Ok(bytes) => connection.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let is_stuck = connection.sent < connection.outbox.len();
        if is_stuck != connection.is_stuck {
            let mut interest = epoll::EventFlags::IN;
            interest.set(epoll::EventFlags::OUT, is_stuck);
            let data = epoll::EventData::new_u64(slot as u64);
            epoll::modify(&self.epoll, &connection.socket, data, interest)?;
            connection.is_stuck = is_stuck;
        }
        if !is_stuck {
            connection.outbox.clear();
            connection.sent = 0;
        }
        Ok(())
    }
}

/// True for a good answer, false for a refusal that a loader repeats, an error for the rest.
fn is_accepted(
    workload: &Workload,
    values: &Values,
    ask: Ask,
    answer: &Answer,
    body: &[u8],
) -> Result<bool> {
    let expected = match (ask.verb, workload.keys) {
        (Verb::Get, Keys::Absent { .. }) => 404,
        (Verb::Get, _) => 200,
        (Verb::Put, _) => 201,
    };
    let stored = workload.values == Stored::Yes;
    if answer.status == expected {
        if stored && answer.status == 200 && !values.is_of(ask.id, body) {
            return Err(format!("key {} came back with another value", ask.id).into());
        }
        return Ok(true);
    }
    let is_load = matches!(workload.keys, Keys::EachOnce { .. });
    if is_load && matches!(answer.status, 503 | 507) {
        return Ok(false);
    }
    Err(format!(
        "{:?} of key {} was answered {} instead of {expected}: {}",
        ask.verb,
        ask.id,
        answer.status,
        String::from_utf8_lossy(body)
    )
    .into())
}

#[cfg(test)]
mod tests;
