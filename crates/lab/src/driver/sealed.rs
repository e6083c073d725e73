//! TLS on one connection of the driver: bytes in, bytes out, no socket.
//!
//! ```text
//! requests ─► put ─► sealed ─► socket        socket ─► take ─► answers
//! until the handshake is over: step moves what either side waits for
//! ```
//!
//! Invariants
//! 1. A moment of an answer is that of its last sealed byte: opening it is the generator's own
//!    time.
//! 2. The other side's certificate is always checked.
//!
//! Not here: sockets and their states (`connection.rs`), files of certificates (crate `server`).
//! See: RFC 8446.

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// The other side with which a target's connections are sealed.
#[derive(Clone, Debug)]
pub struct TlsTarget {
    /// The certificates that are trusted, and shown.
    pub config: Arc<rustls::ClientConfig>,
    /// The name that the certificate has to have.
    pub name: ServerName<'static>,
}

/// One session.
#[derive(Debug)]
pub(super) struct TlsSession(ClientConnection);

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}"))
}

impl TlsSession {
    /// A session that has not begun.
    pub(super) fn new(target: &TlsTarget) -> io::Result<TlsSession> {
        let made = ClientConnection::new(Arc::clone(&target.config), target.name.clone());
        let mut session = made.map_err(broken)?;
        session.set_buffer_limit(None);
        Ok(TlsSession(session))
    }

    /// Is the session there?
    pub(super) fn is_ready(&self) -> bool {
        !self.0.is_handshaking()
    }

    /// Seals all of `plain`, and the messages that TLS has to send itself, and appends them to
    /// `sealed`.
    pub(super) fn put(&mut self, plain: &mut Vec<u8>, sealed: &mut Vec<u8>) -> io::Result<()> {
        self.0.writer().write_all(plain)?;
        plain.clear();
        while self.0.wants_write() {
            self.0.write_tls(sealed)?;
        }
        Ok(())
    }

    /// Opens the bytes that came, and appends them to `plain`.
    pub(super) fn take(&mut self, mut sealed: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        while !sealed.is_empty() {
            if self.0.read_tls(&mut sealed)? == 0 {
                return Ok(());
            }
            let state = self.0.process_new_packets().map_err(broken)?;
            let waiting = state.plaintext_bytes_to_read();
            let at = plain.len();
            plain.resize(at + waiting, 0);
            self.0.reader().read_exact(&mut plain[at..])?;
        }
        Ok(())
    }
}
