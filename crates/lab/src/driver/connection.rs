//! One connection: a socket that never blocks, its bytes to write, its requests in flight.
//!
//! ```text
//! Closed(until) ──connect──► Opening ──writable──► Open ──error, end, timeout──► Closed(until)
//!                                └─ with TLS ─► Shaking ─┘
//! ```
//!
//! Invariants
//! 1. `in_flight` is in the order of the requests on the wire, which is the order of the answers.
//! 2. A connection that failed carries no state over to the next one.
//!
//! Not here: which request goes where, which ones count (`worker/`).
//! See: RFC 9112, section 9.

use super::answer::Reader;
use super::sealed::TlsSession;
use super::{DriverTarget, TlsTarget, arrival};
use crate::limits::{RECONNECT_MS_MAX, RECONNECT_MS_MIN};
use dendra_base::workload::RequestKind;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, connect, ipproto, send, socket_with, sockopt,
};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRequest {
    pub(crate) index: u64,
    pub(crate) operation: RequestKind,
    pub(crate) due_ns: u64,
    /// When it could have been sent.
    pub(crate) ready_ns: u64,
    /// Zero until it is written.
    pub(crate) sent_ns: u64,
    /// Bytes of the request on the wire.
    pub(crate) bytes: u64,
    /// Bytes of answers before the last one.
    pub(crate) received_bytes: u64,
    /// Is this the write of an operation that reads first?
    pub(crate) is_second: bool,
}

#[derive(Debug)]
enum ConnectionState {
    Closed { until_ns: u64 },
    Opening(OwnedFd),
    Shaking(OwnedFd),
    Open(OwnedFd),
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// All is out, or the rest waits for the socket.
    Fine,
    /// The connection is of no use any more.
    Failed(Errno),
}

#[derive(Debug)]
pub(crate) struct TargetConnection {
    link: ConnectionState,
    pub(crate) target: usize,
    address: SocketAddr,
    number: u64,
    tls: Option<TlsTarget>,
    seal: Option<Box<TlsSession>>,
    /// Requests, in clear.
    requests: Vec<u8>,
    /// The bytes that go to the socket.
    out: Vec<u8>,
    out_at: usize,
    waits_for_room: bool,
    /// Ask the kernel when bytes came?
    is_stamped: bool,
    /// Bytes of an answer that is not whole.
    pub(crate) held: Vec<u8>,
    pub(crate) reader: Reader,
    pub(crate) in_flight: VecDeque<PendingRequest>,
    /// Is it in the list of free ones?
    pub(crate) is_listed: bool,
    /// Is it in the list of those with something to write?
    pub(crate) is_dirty: bool,
    /// Since when it has room for a request.
    pub(crate) free_since_ns: u64,
    failures: u32,
}

/// The events of a socket that the kernel is to report.
fn wanted(waits_for_room: bool) -> EventFlags {
    if waits_for_room {
        EventFlags::IN | EventFlags::OUT
    } else {
        EventFlags::IN
    }
}

impl TargetConnection {
    pub(crate) fn new(
        number: u64,
        target: usize,
        asked: &DriverTarget,
        is_stamped: bool,
    ) -> TargetConnection {
        TargetConnection {
            link: ConnectionState::Closed { until_ns: 0 },
            target,
            address: asked.socket,
            number,
            tls: asked.tls.clone(),
            seal: None,
            requests: Vec::new(),
            out: Vec::new(),
            out_at: 0,
            waits_for_room: false,
            is_stamped,
            held: Vec::new(),
            reader: Reader::new(),
            in_flight: VecDeque::new(),
            is_listed: false,
            is_dirty: false,
            free_since_ns: 0,
            failures: 0,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.link, ConnectionState::Open(_))
    }

    pub(crate) fn is_opening(&self) -> bool {
        matches!(
            self.link,
            ConnectionState::Opening(_) | ConnectionState::Shaking(_)
        )
    }

    /// Is it time to connect (again)?
    pub(crate) fn wants_to_open(&self, now_ns: u64) -> bool {
        matches!(self.link, ConnectionState::Closed { until_ns } if until_ns <= now_ns)
    }

    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        match &self.link {
            ConnectionState::Open(fd) => Some(fd),
            ConnectionState::Opening(_)
            | ConnectionState::Shaking(_)
            | ConnectionState::Closed { .. } => None,
        }
    }

    /// Starts to connect.
    pub(crate) fn open(&mut self, epoll: &OwnedFd, now_ns: u64) -> Result<(), Errno> {
        let started = self.start(epoll);
        match started {
            Ok(fd) => {
                self.link = ConnectionState::Opening(fd);
                Ok(())
            }
            Err(errno) => {
                self.close(now_ns, true);
                Err(errno)
            }
        }
    }

    fn start(&self, epoll: &OwnedFd) -> Result<OwnedFd, Errno> {
        let family = match self.address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        if self.is_stamped {
            match arrival::stamp(&fd) {
                // Then bytes come when they are read.
                Ok(()) | Err(Errno::NOPROTOOPT | Errno::OPNOTSUPP | Errno::INVAL) => {}
                Err(errno) => return Err(errno),
            }
        }
        match connect(&fd, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        let interest = EventFlags::IN | EventFlags::OUT;
        epoll::add(epoll, &fd, EventData::new_u64(self.number), interest)?;
        Ok(fd)
    }

    /// The socket of a connection that opens became ready: it is open now, or shakes hands.
    pub(crate) fn opened(&mut self, epoll: &OwnedFd, now_ns: u64) -> io::Result<()> {
        let link = std::mem::replace(&mut self.link, ConnectionState::Closed { until_ns: 0 });
        let stepped = match link {
            ConnectionState::Opening(fd) => {
                self.connected(&fd).and_then(|()| self.shake(epoll, fd))
            }
            ConnectionState::Shaking(fd) => self.shake(epoll, fd),
            other @ (ConnectionState::Open(_) | ConnectionState::Closed { .. }) => {
                self.link = other;
                return Ok(());
            }
        };
        match stepped {
            Ok(next) => {
                self.link = next;
                self.free_since_ns = now_ns;
                Ok(())
            }
            Err(error) => {
                self.close(now_ns, true);
                Err(error)
            }
        }
    }

    fn connected(&mut self, fd: &OwnedFd) -> io::Result<()> {
        sockopt::socket_error(fd).and_then(|outcome| outcome)?;
        self.seal = match &self.tls {
            None => None,
            Some(target) => Some(Box::new(TlsSession::new(target)?)),
        };
        Ok(())
    }

    /// Goes on with the handshake as far as the socket does, if there is one.
    fn shake(&mut self, epoll: &OwnedFd, fd: OwnedFd) -> io::Result<ConnectionState> {
        let Some(mut seal) = self.seal.take() else {
            self.interest(epoll, &fd, EventFlags::IN)?;
            return Ok(ConnectionState::Open(fd));
        };
        let mut buffer = [0; 4096];
        loop {
            seal.put(&mut self.requests, &mut self.out)?;
            let is_sent = self.send_out(&fd)?;
            if seal.is_ready() && is_sent {
                self.seal = Some(seal);
                self.interest(epoll, &fd, EventFlags::IN)?;
                return Ok(ConnectionState::Open(fd));
            }
            match rustix::io::read(&fd, &mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // Answers come after requests: there is no byte in clear yet.
                Ok(n) => seal.take(&buffer[..n], &mut Vec::new())?,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.seal = Some(seal);
                    self.interest(epoll, &fd, wanted(!is_sent))?;
                    return Ok(ConnectionState::Shaking(fd));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends all bytes that wait: did the socket take all of them?
    fn send_out(&mut self, fd: &OwnedFd) -> Result<bool, Errno> {
        while self.out_at < self.out.len() {
            match send(fd, &self.out[self.out_at..], SendFlags::NOSIGNAL) {
                Ok(written) => self.out_at += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
        self.out.clear();
        self.out_at = 0;
        Ok(true)
    }

    /// Opens the bytes that came, if the connection is sealed. Returns whether it is, and then the
    /// bytes in `plain`.
    pub(crate) fn unseal(&mut self, came: &[u8], plain: &mut Vec<u8>) -> io::Result<bool> {
        let Some(seal) = &mut self.seal else {
            return Ok(false);
        };
        plain.clear();
        seal.take(came, plain)?;
        Ok(true)
    }

    fn interest(&self, epoll: &OwnedFd, fd: impl AsFd, flags: EventFlags) -> Result<(), Errno> {
        epoll::modify(epoll, fd, EventData::new_u64(self.number), flags)
    }

    /// An answer came: the target is well.
    pub(crate) fn is_well(&mut self) {
        self.failures = 0;
    }

    /// Closes the socket and forgets everything but the requests in flight: the caller accounts for
    /// those. After a failure the next attempt waits, longer each time.
    pub(crate) fn close(&mut self, now_ns: u64, has_failed: bool) {
        let wait_ms = if has_failed {
            let wait_ms = RECONNECT_MS_MIN << self.failures.min(16);
            self.failures += 1;
            wait_ms.min(RECONNECT_MS_MAX)
        } else {
            0
        };
        self.link = ConnectionState::Closed {
            until_ns: now_ns + wait_ms * 1_000_000,
        };
        self.seal = None;
        self.requests.clear();
        self.out.clear();
        self.out_at = 0;
        self.waits_for_room = false;
        self.held.clear();
        self.reader = Reader::new();
    }

    /// Did the socket not take all of a request?
    pub(crate) fn waits_for_room(&self) -> bool {
        self.waits_for_room
    }

    /// Where a request is appended to.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        match self.tls {
            None => &mut self.out,
            Some(_) => &mut self.requests,
        }
    }

    /// Writes the bytes that are there.
    pub(crate) fn write(&mut self, epoll: &OwnedFd) -> Wrote {
        let link = std::mem::replace(&mut self.link, ConnectionState::Closed { until_ns: 0 });
        let wrote = match &link {
            ConnectionState::Open(fd) => self.write_to(epoll, fd),
            ConnectionState::Opening(_)
            | ConnectionState::Shaking(_)
            | ConnectionState::Closed { .. } => Wrote::Fine,
        };
        self.link = link;
        wrote
    }

    fn write_to(&mut self, epoll: &OwnedFd, fd: &OwnedFd) -> Wrote {
        if let Some(seal) = &mut self.seal
            && seal.put(&mut self.requests, &mut self.out).is_err()
        {
            return Wrote::Failed(Errno::PROTO);
        }
        let waits = match self.send_out(fd) {
            Ok(is_sent) => !is_sent,
            Err(errno) => return Wrote::Failed(errno),
        };
        if waits != self.waits_for_room {
            self.waits_for_room = waits;
            if let Err(errno) = self.interest(epoll, fd, wanted(waits)) {
                return Wrote::Failed(errno);
            }
        }
        Wrote::Fine
    }
}
