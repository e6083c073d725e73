//! One connection: a socket that never blocks, its bytes to write, its requests in flight.
//!
//! ```text
//! Closed(until) ──connect──► Opening ──writable──► Open ──error, end, timeout──► Closed(until)
//! ```
//!
//! Invariants
//! 1. `in_flight` is in the order of the requests on the wire, which is the order of the answers.
//! 2. A connection that failed carries nothing over to the next one.
//!
//! Not here: which request goes where, which ones count (`worker/`).
//! See: RFC 9112, section 9.

use super::answer::Reader;
use super::arrival;
use crate::limits::{RECONNECT_MS_MAX, RECONNECT_MS_MIN};
use dendra_base::workload::Operation;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, connect, ipproto, send, socket_with, sockopt,
};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) index: u64,
    pub(crate) operation: Operation,
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
enum Link {
    Closed { until_ns: u64 },
    Opening(OwnedFd),
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
pub(crate) struct Connection {
    link: Link,
    pub(crate) target: usize,
    address: SocketAddr,
    number: u64,
    out: Vec<u8>,
    out_at: usize,
    waits_for_room: bool,
    /// Ask the kernel when bytes came?
    is_stamped: bool,
    /// Bytes of an answer that is not whole.
    pub(crate) held: Vec<u8>,
    pub(crate) reader: Reader,
    pub(crate) in_flight: VecDeque<Pending>,
    /// Is it in the list of free ones?
    pub(crate) is_listed: bool,
    /// Is it in the list of those with something to write?
    pub(crate) is_dirty: bool,
    /// Since when it has room for a request.
    pub(crate) free_since_ns: u64,
    failures: u32,
}

impl Connection {
    pub(crate) fn new(
        number: u64,
        target: usize,
        address: SocketAddr,
        is_stamped: bool,
    ) -> Connection {
        Connection {
            link: Link::Closed { until_ns: 0 },
            target,
            address,
            number,
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
        matches!(self.link, Link::Open(_))
    }

    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.link, Link::Opening(_))
    }

    /// Is it time to connect (again)?
    pub(crate) fn wants_to_open(&self, now_ns: u64) -> bool {
        matches!(self.link, Link::Closed { until_ns } if until_ns <= now_ns)
    }

    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        match &self.link {
            Link::Open(fd) => Some(fd),
            Link::Opening(_) | Link::Closed { .. } => None,
        }
    }

    /// Starts to connect.
    pub(crate) fn open(&mut self, epoll: &OwnedFd, now_ns: u64) -> Result<(), Errno> {
        let started = self.start(epoll);
        match started {
            Ok(fd) => {
                self.link = Link::Opening(fd);
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

    /// The socket of a connection that opens became ready: is it open now?
    pub(crate) fn opened(&mut self, epoll: &OwnedFd, now_ns: u64) -> Result<(), Errno> {
        let link = std::mem::replace(&mut self.link, Link::Closed { until_ns: 0 });
        let Link::Opening(fd) = link else {
            self.link = link;
            return Ok(());
        };
        let outcome = sockopt::socket_error(&fd).and_then(|outcome| outcome);
        let outcome = outcome.and_then(|()| self.interest(epoll, &fd, EventFlags::IN));
        match outcome {
            Ok(()) => {
                self.link = Link::Open(fd);
                self.free_since_ns = now_ns;
                Ok(())
            }
            Err(errno) => {
                self.close(now_ns, true);
                Err(errno)
            }
        }
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
        self.link = Link::Closed {
            until_ns: now_ns + wait_ms * 1_000_000,
        };
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
        &mut self.out
    }

    /// Writes the bytes that are there.
    pub(crate) fn write(&mut self, epoll: &OwnedFd) -> Wrote {
        let Link::Open(fd) = &self.link else {
            return Wrote::Fine;
        };
        while self.out_at < self.out.len() {
            match send(fd, &self.out[self.out_at..], SendFlags::NOSIGNAL) {
                Ok(written) => self.out_at += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !self.waits_for_room {
                        self.waits_for_room = true;
                        let flags = EventFlags::IN | EventFlags::OUT;
                        if let Err(errno) = self.interest(epoll, fd, flags) {
                            return Wrote::Failed(errno);
                        }
                    }
                    return Wrote::Fine;
                }
                Err(errno) => return Wrote::Failed(errno),
            }
        }
        self.out.clear();
        self.out_at = 0;
        if self.waits_for_room {
            self.waits_for_room = false;
            if let Err(errno) = self.interest(epoll, fd, EventFlags::IN) {
                return Wrote::Failed(errno);
            }
        }
        Wrote::Fine
    }
}
