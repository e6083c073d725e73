//! The bytes of one connection: a socket in clear, or a TLS session over one. The same calls for
//! both.
//!
//! ```text
//! Clear   poll_read, try_write … ─► the socket
//! Tls     poll_read ─► plain bytes there? ─┬─ yes
//!                                          └─ read_tls ─► process ─► again, until the socket has no more
//!         try_write ─► sealed bytes leave first ─► at most `SEALED_BYTES_MAX` more are sealed ─► leave
//! ```
//!
//! Invariants
//! 1. A connection in clear pays one `match` for each call.
//! 2. At most `SEALED_BYTES_MAX` bytes are sealed and not sent: `try_write` takes more only when
//!    they have left. Behind the last `try_write`, `try_flush` says whether all of it left.
//! 3. A session that ends without the other side's word (`close_notify`) is an error, not an end:
//!    bytes may have been cut off.
//!
//! Not here: deadlines and bounds on sessions (`clients/doorway.rs`), configurations (`files.rs`).
//! See: RFC 8446.

use bytes::BufMut;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// Four records: one call of the system for them.
const SEALED_BYTES_MAX: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub enum ByteStream {
    /// A socket without TLS.
    Clear(TcpStream),
    /// Sealed.
    Tls(Box<SealedStream>),
}

/// A TLS session over a socket.
#[derive(Debug)]
pub struct SealedStream {
    tcp: TcpStream,
    connection: RefCell<Connection>,
    /// Bytes that are unsealed and not read.
    plain_bytes: Cell<usize>,
    /// The socket has no more bytes for now.
    is_drained: Cell<bool>,
    /// No byte comes any more.
    is_over: Cell<bool>,
}

/// The socket as rustls reads it.
struct Inward<'a>(&'a SealedStream);

impl Read for Inward<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let SealedStream {
            tcp, is_drained, ..
        } = self.0;
        let n = tcp.try_read(buf)?;
        if 0 < n && n < buf.len() {
            // That was all: the next look waits for news, and need not ask the system whether there
            // are any.
            let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _is_noted = tcp.try_io(Interest::READABLE, nothing);
            is_drained.set(true);
        }
        Ok(n)
    }
}

/// The socket as rustls writes it.
struct Outward<'a>(&'a TcpStream);

impl Write for Outward<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.try_write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn not_tls(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl SealedStream {
    fn new(tcp: TcpStream, mut connection: Connection) -> SealedStream {
        connection.set_buffer_limit(Some(2 * SEALED_BYTES_MAX));
        SealedStream {
            tcp,
            connection: RefCell::new(connection),
            plain_bytes: Cell::new(0),
            is_drained: Cell::new(false),
            is_over: Cell::new(false),
        }
    }

    /// Sends the sealed bytes.
    fn push(&self) -> io::Result<()> {
        let mut connection = self.connection.borrow_mut();
        while connection.wants_write() {
            match connection.write_tls(&mut Outward(&self.tcp)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads once from the socket and unseals the whole records. False at the end of the stream.
    fn pull(&self) -> io::Result<bool> {
        let mut connection = self.connection.borrow_mut();
        let n = connection.read_tls(&mut Inward(self))?;
        let state = connection.process_new_packets();
        drop(connection);
        match state {
            Ok(state) => {
                self.plain_bytes.set(state.plaintext_bytes_to_read());
                let is_over = n == 0 || state.peer_has_closed();
                self.is_over.set(self.is_over.get() | is_over);
                Ok(n > 0)
            }
            Err(error) => {
                // The alert, as far as it goes: the other side should know why.
                drop(self.push());
                Err(not_tls(error))
            }
        }
    }

    /// Reads the unsealed bytes with `take`, once; zero at an end that the other side announced.
    fn unsealed(&self, take: impl FnOnce(&[u8]) -> usize) -> io::Result<usize> {
        let mut connection = self.connection.borrow_mut();
        let mut reader = connection.reader();
        let plain = reader.fill_buf()?;
        let n = take(plain);
        reader.consume(n);
        self.plain_bytes
            .set(self.plain_bytes.get().saturating_sub(n));
        Ok(n)
    }

    /// Reads until `room` is filled or the socket has no more; `WouldBlock` when no byte came.
    fn try_read_into(&self, mut room: usize, mut put: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut read = 0;
        self.is_drained.set(false);
        loop {
            while room > 0 && self.plain_bytes.get() > 0 {
                let n = self.unsealed(|plain| {
                    let n = plain.len().min(room);
                    put(&plain[..n]);
                    n
                })?;
                room -= n;
                read += n;
            }
            if room == 0 || (read > 0 && self.is_drained.get()) {
                return Ok(read);
            }
            if self.is_over.get() {
                return match read {
                    // An end, or bytes that were cut off: rustls knows.
                    0 => self.unsealed(|_| 0),
                    _ => Ok(read),
                };
            }
            match self.pull() {
                Ok(_) => {}
                Err(_) if read > 0 => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.push()?;
        let some = &buf[..buf.len().min(SEALED_BYTES_MAX)];
        let n = self.connection.borrow_mut().writer().write(some)?;
        match self.push() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            Ok(()) | Err(_) => Ok(n),
        }
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.plain_bytes.get() > 0 || self.is_over.get() {
            Poll::Ready(Ok(()))
        } else {
            self.tcp.poll_read_ready(cx)
        }
    }

    /// Repeats `what` until it no longer waits for the socket to take bytes.
    fn poll_out<T>(
        &self,
        cx: &mut Context<'_>,
        mut what: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            match what() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_write_ready(cx))?;
                }
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_out(cx, || self.push()))?;
            if !self.connection.borrow().is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            match self.pull() {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_read_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn say_goodbye(&self) {
        self.connection.borrow_mut().send_close_notify();
    }
}

impl ByteStream {
    /// The server's side of a session, after its handshake. The socket comes back when there is
    /// none.
    ///
    /// # Errors
    /// The other side speaks no TLS, or none that `config` takes, or went away.
    pub async fn accept(
        tcp: TcpStream,
        config: Arc<ServerConfig>,
    ) -> Result<ByteStream, (io::Error, TcpStream)> {
        match ServerConnection::new(config) {
            Ok(connection) => ByteStream::shake(tcp, connection.into()).await,
            Err(error) => Err((not_tls(error), tcp)),
        }
    }

    /// The client's side of a session with the server `name`, after its handshake.
    ///
    /// # Errors
    /// As for `accept`.
    pub async fn connect(
        tcp: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<ByteStream> {
        let connection = ClientConnection::new(config, name).map_err(not_tls)?;
        let shaken = ByteStream::shake(tcp, connection.into()).await;
        shaken.map_err(|(error, _tcp)| error)
    }

    async fn shake(
        tcp: TcpStream,
        connection: Connection,
    ) -> Result<ByteStream, (io::Error, TcpStream)> {
        let mut shaking = Some(Box::new(SealedStream::new(tcp, connection)));
        poll_fn(move |cx| {
            let under_way = shaking.as_ref().expect("it is polled to its end once");
            let done = ready!(under_way.poll_handshake(cx));
            let session = shaking.take().expect("it was there a line above");
            Poll::Ready(match done {
                Ok(()) => Ok(ByteStream::Tls(session)),
                Err(error) => Err((error, session.tcp)),
            })
        })
        .await
    }

    /// The socket.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            ByteStream::Clear(tcp) => tcp,
            ByteStream::Tls(session) => &session.tcp,
        }
    }

    /// Is it sealed?
    pub fn is_tls(&self) -> bool {
        matches!(self, ByteStream::Tls(_))
    }

    /// Calls `look` with the certificates that the other side showed, its own first; with none in
    /// clear.
    pub fn with_certificates<R>(&self, look: impl FnOnce(&[CertificateDer<'static>]) -> R) -> R {
        match self {
            ByteStream::Clear(_) => look(&[]),
            ByteStream::Tls(session) => {
                let connection = session.connection.borrow();
                look(connection.peer_certificates().unwrap_or_default())
            }
        }
    }

    /// May there be something to read? Behind it `try_read_buf` can say `WouldBlock` nevertheless.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            ByteStream::Clear(tcp) => tcp.poll_read_ready(cx),
            ByteStream::Tls(session) => session.poll_read_ready(cx),
        }
    }

    /// Does the socket take bytes?
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp().poll_write_ready(cx)
    }

    /// Waits until there may be something to read.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_read_ready(cx)).await
    }

    /// Reads the bytes that are there.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            ByteStream::Clear(tcp) => tcp.try_read(buf),
            ByteStream::Tls(session) => {
                let mut at = 0;
                session.try_read_into(buf.len(), |plain| {
                    buf[at..at + plain.len()].copy_from_slice(plain);
                    at += plain.len();
                })
            }
        }
    }

    /// Reads the bytes that are there after those in `buf`, into the room that it has.
    pub fn try_read_buf(&self, buf: &mut bytes::BytesMut) -> io::Result<usize> {
        match self {
            ByteStream::Clear(tcp) => {
                let room = buf.capacity() - buf.len();
                let got = tcp.try_read_buf(buf)?;
                if got < room {
                    // As for a session.
                    let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                    let _is_noted = tcp.try_io(Interest::READABLE, nothing);
                }
                Ok(got)
            }
            ByteStream::Tls(session) => {
                let room = buf.capacity() - buf.len();
                session.try_read_into(room, |plain| buf.put_slice(plain))
            }
        }
    }

    /// Takes bytes to send: as many as go now.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            ByteStream::Clear(tcp) => tcp.try_write(buf),
            ByteStream::Tls(session) => session.try_write(buf),
        }
    }

    /// Sends the bytes that were taken; `WouldBlock` while some of them are left.
    pub fn try_flush(&self) -> io::Result<()> {
        match self {
            ByteStream::Clear(_) => Ok(()),
            ByteStream::Tls(session) => session.push(),
        }
    }

    /// Tells the other side, without waiting, that no byte comes any more.
    pub fn say_goodbye(&self) {
        if let ByteStream::Tls(session) = self {
            session.say_goodbye();
            drop(session.push());
        }
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ByteStream::Clear(tcp) => Pin::new(tcp).poll_read(cx, buf),
            ByteStream::Tls(session) => loop {
                let room = buf.remaining();
                match session.try_read_into(room, |plain| buf.put_slice(plain)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready!(session.poll_read_ready(cx))?;
                    }
                    done => return Poll::Ready(done.map(|_| ())),
                }
            },
        }
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ByteStream::Clear(tcp) => Pin::new(tcp).poll_write(cx, buf),
            ByteStream::Tls(session) => session.poll_out(cx, || session.try_write(buf)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ByteStream::Clear(_) => Poll::Ready(Ok(())),
            ByteStream::Tls(session) => session.poll_out(cx, || session.push()),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ByteStream::Clear(tcp) => Pin::new(tcp).poll_shutdown(cx),
            ByteStream::Tls(session) => {
                session.say_goodbye();
                ready!(session.poll_out(cx, || session.push()))?;
                Pin::new(&mut session.tcp).poll_shutdown(cx)
            }
        }
    }
}
