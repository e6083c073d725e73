//! When the bytes of an answer reached this machine, by the kernel's stamp of their segment.
//!
//! ```text
//! segment ─► kernel, stamp ─► socket ┄┄┄┄ read: age = wall clock - stamp ─► arrived = now - age
//!                                         no stamp:                         arrived = now
//! ```
//!
//! Invariants
//! 1. A delay of the reader, or between its two clock readings, makes no answer arrive earlier.
//! 2. A read without a stamp is no error: not every kernel gives one, and not for the first
//!    segments.
//!
//! Not here: the largest possible age (`worker/receive.rs`).
//! See: socket(7), SO_TIMESTAMPNS.

use nix::cmsg_space;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::time::{ClockId, clock_gettime};
use std::io::IoSliceMut;
use std::time::Duration;

/// The result of one read.
pub(super) struct Read {
    pub(super) len: usize,
    /// How long ago the last of these bytes came, where the kernel says so.
    pub(super) age_ns: Option<u64>,
}

/// Reads sockets, with stamps or without.
pub(super) struct Reads {
    /// Room for the kernel's messages beside the bytes.
    beside: Option<Vec<u8>>,
}

fn ours(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}

/// Asks for stamps on this socket. A kernel that has none says so here, and gives none later.
pub(super) fn stamp(socket: &OwnedFd) -> Result<(), Errno> {
    setsockopt(socket, ReceiveTimestampns, &true).map_err(ours)
}

impl Reads {
    pub(super) fn new(is_stamped: bool) -> Reads {
        Reads {
            beside: is_stamped.then(|| cmsg_space!(TimeSpec)),
        }
    }

    /// One read of a socket that does not block.
    pub(super) fn read(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> Result<Read, Errno> {
        let Some(beside) = &mut self.beside else {
            let (len, _) = recv(socket, buffer, RecvFlags::empty())?;
            return Ok(Read { len, age_ns: None });
        };
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::empty();
        let message =
            recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(beside), flags).map_err(ours)?;
        let stamp = message
            .cmsgs()
            .ok()
            .into_iter()
            .flatten()
            .find_map(|m| match m {
                ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
                _ => None,
            });
        let age_ns = stamp.map(|at| {
            let now = clock_gettime(ClockId::Realtime);
            let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
            now.saturating_sub(at).as_nanos() as u64
        });
        Ok(Read {
            len: message.bytes,
            age_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    /// Two ends of a connection; the second one asks for stamps if told so.
    fn pair(is_stamped: bool) -> (TcpStream, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let ours = TcpStream::connect(address).expect("it listens");
        let (theirs, _) = listener.accept().expect("somebody connects");
        let ours = OwnedFd::from(ours);
        if is_stamped {
            stamp(&ours).expect("Linux has stamps");
        }
        (theirs, ours)
    }

    #[test]
    fn bytes_are_as_old_as_they_are_however_late_they_are_read() {
        let (mut theirs, ours) = pair(true);
        let mut reads = Reads::new(true);
        let mut buffer = [0; 16];
        // The kernel takes a moment until it stamps every segment.
        let (age_ns, least_ns, most_ns) = (0..1000)
            .find_map(|_| {
                let before = Instant::now();
                theirs.write_all(b"x").expect("nobody closed");
                let written = Instant::now();
                while written.elapsed() < Duration::from_millis(3) {
                    std::hint::spin_loop();
                }
                let least = written.elapsed();
                let read = reads.read(&ours, &mut buffer).expect("a byte is there");
                let most = before.elapsed();
                assert_eq!((read.len, buffer[0]), (1, b'x'));
                let age_ns = read.age_ns?;
                Some((age_ns, least.as_nanos() as u64, most.as_nanos() as u64))
            })
            .expect("one of a thousand reads is stamped");
        // Two clocks: the one of stamps may be slewed by half a thousandth.
        let slewed_ns = most_ns / 1000;
        assert!(age_ns + slewed_ns >= least_ns, "{age_ns} {least_ns}");
        assert!(age_ns <= most_ns + slewed_ns, "{age_ns} {most_ns}");
    }

    #[test]
    fn without_stamps_the_bytes_are_the_same() {
        let (mut theirs, ours) = pair(false);
        let mut buffer = [0; 16];
        for mut reads in [Reads::new(false), Reads::new(true)] {
            theirs.write_all(b"abc").expect("nobody closed");
            let read = reads.read(&ours, &mut buffer).expect("bytes are there");
            assert_eq!((&buffer[..read.len], read.age_ns), (&b"abc"[..], None));
        }
    }

    #[test]
    fn an_end_and_an_error_are_said() {
        let (theirs, ours) = pair(true);
        let mut reads = Reads::new(true);
        let mut buffer = [0; 16];
        rustix::io::ioctl_fionbio(&ours, true).expect("a socket takes the option");
        let read = reads.read(&ours, &mut buffer);
        assert_eq!(read.err(), Some(Errno::AGAIN));
        drop(theirs);
        rustix::io::ioctl_fionbio(&ours, false).expect("a socket takes the option");
        let read = reads.read(&ours, &mut buffer).expect("an end is no error");
        assert_eq!(read.len, 0);
    }
}
