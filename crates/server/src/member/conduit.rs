//! One link's socket: frames collect in it during a round of its loop and leave in one write.
//!
//! ```text
//! round: put, put, put ─► flush, at the round's end: one write ─► all taken? done
//!                                                              └► else: the link's task waits until it can go on
//! task: poll ─► messages, whose values are slices of the receive buffer ─► the loop's agent
//! ```
//!
//! Invariants
//! 1. At most `LINK_OUT_BYTES_MAX` wait to leave, and one frame more.
//! 2. Room for a frame that arrives grows with its bytes, not with its announced length.
//! 3. A closed conduit sends and reads no more. A frame that fails its checksum ends the link. With
//!    a secret that is every frame that was changed, left out, repeated or moved on its way.
//! 4. A link that never falls silent gives its loop's other tasks a turn after each
//!    `LINK_BYTES_A_TURN`.
//! 5. Of the two ends of a link at most one stops reading: the one that answers. If the asking end
//!    did, too, then two ends with much to say would wait for each other.
//!
//! Not here: the content of the frames (`peers/link.rs`, `peers/accept.rs`).
//! See: docs/peer.md, docs/overload.md.

use crate::limits;
use crate::tls::ByteStream;
use bytes::{Bytes, BytesMut};
use dendra_wire::peer::{self, Malformed, Message, Role, Seal, SessionKeys};
use std::cell::{Cell, RefCell};
use std::io;
use std::task::{Context, Poll, Waker};

/// Which end of a link this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    /// The end that asks, and reads always: every answer was asked for, so there is a bound on the
    /// answers.
    Asks,
    /// The end that answers, and reads no more questions while answers pile up.
    Answers,
}

/// The seals with which one end of a link makes and checks its frames' checksums.
pub(crate) struct Seals {
    pub(crate) sealing: Seal,
    pub(crate) checking: Seal,
}

impl Seals {
    /// Seals for the end `end` of a link, from the first frame on.
    pub(crate) fn new(keys: &SessionKeys, end: LinkEnd) -> Seals {
        let (us, them) = match end {
            LinkEnd::Asks => (Role::Asker, Role::Acceptor),
            LinkEnd::Answers => (Role::Acceptor, Role::Asker),
        };
        Seals {
            sealing: keys.of_link(us),
            checking: keys.of_link(them),
        }
    }
}

/// Why a link ends, for the log.
#[derive(Debug)]
pub(crate) enum LinkBreak {
    /// The other side closed it.
    Ended,
    /// The system said so.
    Io(io::Error),
    /// Bytes that are no frames.
    Malformed(Malformed),
    /// This side closed the link.
    Closed,
}

impl std::fmt::Display for LinkBreak {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkBreak::Ended => f.write_str("the other side closed it"),
            LinkBreak::Io(error) => error.fmt(f),
            LinkBreak::Malformed(malformed) => malformed.fmt(f),
            LinkBreak::Closed => f.write_str("it was closed here"),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Conduit {
    stream: ByteStream,
    end: LinkEnd,
    /// For frames that are sent, and for frames that come.
    sealing: RefCell<Seal>,
    checking: RefCell<Seal>,
    out: RefCell<Vec<u8>>,
    /// How much of `out` the socket has taken.
    sent: Cell<usize>,
    input: RefCell<BytesMut>,
    is_blocked: Cell<bool>,
    is_closed: Cell<bool>,
    is_dirty: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// Sweeps since the last byte arrived.
    silent_sweeps: Cell<u32>,
}

impl Conduit {
    /// Over a connected socket of which `rest` was read already.
    pub(crate) fn new(stream: ByteStream, rest: &[u8], end: LinkEnd, seals: Seals) -> Conduit {
        Conduit {
            stream,
            end,
            sealing: RefCell::new(seals.sealing),
            checking: RefCell::new(seals.checking),
            out: RefCell::default(),
            sent: Cell::new(0),
            input: RefCell::new(BytesMut::from(rest)),
            is_blocked: Cell::new(false),
            is_closed: Cell::new(false),
            is_dirty: Cell::new(false),
            waker: RefCell::new(None),
            silent_sweeps: Cell::new(0),
        }
    }

    /// Bytes that wait to leave.
    pub(crate) fn waiting(&self) -> usize {
        self.out.borrow().len() - self.sent.get()
    }

    /// Adds frames; true when the link was not in the round's list of links to flush yet.
    pub(crate) fn put(&self, encode: impl FnOnce(&mut Vec<u8>, &mut Seal)) -> bool {
        if self.is_closed.get() {
            return false;
        }
        encode(&mut self.out.borrow_mut(), &mut self.sealing.borrow_mut());
        !self.is_dirty.replace(true)
    }

    /// Ends the link; its task sees it.
    pub(crate) fn close(&self) {
        if !self.is_closed.replace(true) {
            self.out.borrow_mut().clear();
            self.sent.set(0);
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Writes as much as the socket takes; the link's task does the rest.
    pub(crate) fn flush(&self) {
        self.is_dirty.set(false);
        if !self.is_blocked.get() && !self.is_closed.get() {
            match self.write() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_blocked.set(true);
                    self.wake();
                }
                Err(_) => self.close(),
            }
        }
    }

    fn write(&self) -> io::Result<()> {
        let mut out = self.out.borrow_mut();
        while self.sent.get() < out.len() {
            match self.stream.try_write(&out[self.sent.get()..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.sent.set(self.sent.get() + n),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Bytes that were sent go, so that a slow peer's buffer does not keep them.
                    if self.sent.get() > limits::LINK_READ_BYTES {
                        out.drain(..self.sent.get());
                        self.sent.set(0);
                    }
                    return Err(error);
                }
            }
        }
        out.clear();
        self.sent.set(0);
        if out.capacity() > 4 * limits::LINK_READ_BYTES {
            *out = Vec::new();
        }
        self.stream.try_flush()
    }

    /// One more look of the sweep; how many there were since the last byte came.
    pub(crate) fn sweep(&self) -> u32 {
        let sweeps = self.silent_sweeps.get().saturating_add(1);
        self.silent_sweeps.set(sweeps);
        sweeps
    }

    /// Goes on writing if it must, and reads: gives every message to `on_message`. Ready only at
    /// the end of the link. While answers pile up, or `may_read` says no, no questions are read.
    pub(crate) fn poll(
        &self,
        cx: &mut Context<'_>,
        may_read: impl Fn() -> bool,
        mut on_message: impl FnMut(Message) -> Result<(), Malformed>,
    ) -> Poll<LinkBreak> {
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|known| known.will_wake(cx.waker()))
        {
            *waker = Some(cx.waker().clone());
        }
        drop(waker);
        if let Err(malformed) = self.frames(&mut on_message) {
            return Poll::Ready(LinkBreak::Malformed(malformed));
        }
        let mut read_bytes = 0;
        loop {
            if self.is_closed.get() {
                return Poll::Ready(LinkBreak::Closed);
            }
            if read_bytes >= limits::LINK_BYTES_A_TURN || !may_read() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            while self.is_blocked.get() {
                match self.stream.poll_write_ready(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Err(error)) => return Poll::Ready(LinkBreak::Io(error)),
                    Poll::Ready(Ok(())) => match self.write() {
                        Ok(()) => self.is_blocked.set(false),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Poll::Ready(LinkBreak::Io(error)),
                    },
                }
            }
            let is_piled = self.is_blocked.get() && self.waiting() > limits::LINK_OUT_BYTES_PAUSE;
            if is_piled && self.end == LinkEnd::Answers {
                return Poll::Pending;
            }
            match self.stream.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(LinkBreak::Io(error)),
                Poll::Ready(Ok(())) => {}
            }
            match self.read() {
                Ok(0) => return Poll::Ready(LinkBreak::Ended),
                Ok(n) => {
                    read_bytes += n;
                    self.silent_sweeps.set(0);
                    if let Err(malformed) = self.frames(&mut on_message) {
                        return Poll::Ready(LinkBreak::Malformed(malformed));
                    }
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Poll::Ready(LinkBreak::Io(error)),
            }
        }
    }

    fn read(&self) -> io::Result<usize> {
        let mut input = self.input.borrow_mut();
        // A frame longer than the buffer doubles it with each read that filled it.
        let room = input.len().max(limits::LINK_READ_BYTES);
        if input.capacity() - input.len() < limits::LINK_READ_BYTES / 4 {
            input.reserve(room);
        }
        self.stream.try_read_buf(&mut input)
    }

    fn frames(
        &self,
        on_message: &mut impl FnMut(Message) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        loop {
            let frame = {
                let mut input = self.input.borrow_mut();
                match peer::frame_len(&input)? {
                    Some(len) if len <= input.len() => input.split_to(len).freeze(),
                    _ => return Ok(()),
                }
            };
            on_message(self.open(&frame)?)?;
        }
    }

    /// Reads a frame: the next that came.
    fn open(&self, frame: &Bytes) -> Result<Message, Malformed> {
        peer::decode(frame, &mut self.checking.borrow_mut())
    }

    /// Waits for one message, as in a handshake.
    pub(crate) async fn next_message(&self) -> Result<Message, LinkBreak> {
        let frame = self.next_frame().await?;
        self.open(&frame).map_err(LinkBreak::Malformed)
    }

    /// Waits for one frame, as in a handshake.
    async fn next_frame(&self) -> Result<Bytes, LinkBreak> {
        loop {
            {
                let mut input = self.input.borrow_mut();
                match peer::frame_len(&input).map_err(LinkBreak::Malformed)? {
                    Some(len) if len <= input.len() => return Ok(input.split_to(len).freeze()),
                    _ => {}
                }
            }
            self.stream.readable().await.map_err(LinkBreak::Io)?;
            match self.read() {
                Ok(0) => return Err(LinkBreak::Ended),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(LinkBreak::Io(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::peer::Answer;
    use dendra_base::{CellRef, Version};
    use std::future::poll_fn;
    use std::time::Duration;
    use tokio::net::{TcpListener, TcpStream};

    const FRAMES: u64 = 64;
    const VALUE_BYTES: usize = 256 << 10;

    /// Both ends of one connection, each with far more to say than sockets hold.
    async fn full_link() -> (Conduit, Conduit) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let asks = TcpStream::connect(address).await.expect("it listens");
        let (answers, _) = listener.accept().await.expect("somebody connects");
        let keys = SessionKeys::new(Some(b"secret"), "asker", "acceptor");
        let (asks, answers) = (ByteStream::Clear(asks), ByteStream::Clear(answers));
        let asks = Conduit::new(asks, &[], LinkEnd::Asks, Seals::new(&keys, LinkEnd::Asks));
        let answers = Conduit::new(
            answers,
            &[],
            LinkEnd::Answers,
            Seals::new(&keys, LinkEnd::Answers),
        );
        for end in [&asks, &answers] {
            let cell = CellRef::value(b"key", Version::MAX, &vec![7; VALUE_BYTES]).to_owned();
            let answer = Answer::Cell(Some(cell));
            for id in 0..FRAMES {
                end.put(|out, seal| peer::encode_answer(out, seal, id, &answer));
            }
            end.flush();
        }
        (asks, answers)
    }

    async fn read_all(end: &Conduit) {
        let mut frames = 0;
        poll_fn(|cx| {
            let polled = end.poll(
                cx,
                || true,
                |_| {
                    frames += 1;
                    Ok(())
                },
            );
            match polled {
                Poll::Ready(broken) => panic!("the link broke after {frames} frames: {broken}"),
                Poll::Pending if frames == FRAMES && end.waiting() == 0 => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
    }

    #[tokio::test]
    async fn a_link_with_much_to_say_gives_others_a_turn() {
        let (asks, answers) = full_link().await;
        let writing = tokio::time::timeout(Duration::from_secs(20), read_all(&answers));
        let mut polls = 0;
        let mut frames = 0;
        let reading = poll_fn(|cx| {
            let before = frames;
            let polled = asks.poll(
                cx,
                || true,
                |_| {
                    frames += 1;
                    Ok(())
                },
            );
            polls += 1;
            assert!(polled.is_pending(), "the link broke");
            // One read takes as much as its buffer holds, a frame or two.
            let most = limits::LINK_BYTES_A_TURN / VALUE_BYTES + 4;
            let said = format!("{before} frames, then {frames}");
            assert!(frames as usize <= before as usize + most, "{said}");
            if frames == FRAMES && asks.waiting() == 0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let (written, ()) = tokio::join!(writing, reading);
        assert!(
            written.is_ok(),
            "stuck after {frames} frames in {polls} turns"
        );
    }

    #[tokio::test]
    async fn two_ends_with_much_to_say_do_not_wait_for_each_other() {
        let (asks, answers) = full_link().await;
        assert!(asks.waiting() > limits::LINK_OUT_BYTES_PAUSE);
        assert!(answers.waiting() > limits::LINK_OUT_BYTES_PAUSE);
        let both = async { tokio::join!(read_all(&asks), read_all(&answers)) };
        let done = tokio::time::timeout(Duration::from_secs(20), both).await;
        assert!(
            done.is_ok(),
            "{} and {} bytes are stuck",
            asks.waiting(),
            answers.waiting()
        );
    }
}
