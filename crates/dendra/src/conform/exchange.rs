//! One connection to the store under test, byte by byte: no client library repairs anything.
//!
//! ```text
//! send(bytes) ─► socket ─► receive ─► status, headers, body | chunks, trailers
//! ```
//!
//! Invariants
//! 1. An answer that breaks the framing of HTTP/1.1 is an error with a sentence.
//! 2. Memory is one answer of at most `ANSWER_BYTES_MAX`; no wait is longer than `PATIENCE`.
//!
//! Not here: expectations (`judge.rs`).
//! See: docs/api.md, "HTTP".

use crate::client::{BaseUrl, Credentials};
use bytes::{Buf, BytesMut};
use dendra_server::tls::ByteStream;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The largest answer: the largest value of any node, with room for framing.
const ANSWER_BYTES_MAX: usize = 2 * dendra_base::limits::VALUE_BYTES_MAX_LIMIT;
/// Longer than every bound of the contract (a head that takes more than 5 s is refused).
const PATIENCE: Duration = Duration::from_secs(30);
/// A connection that the store must close is closed in this time.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);
/// A line of an answer's head, or of a chunk's size.
const LINE_BYTES_MAX: usize = 16 << 10;

/// A whole answer.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Each chunk's length, if the body was chunked.
    pub(super) chunks: Option<Vec<usize>>,
    pub(super) trailers: Vec<(String, String)>,
}

/// Does an answer to this request have a body?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyRule {
    Expected,
    /// The answer to `HEAD`.
    Never,
}

/// A connection that is opened when it is needed.
pub(super) struct Wire<'a> {
    base: &'a BaseUrl,
    access: &'a Credentials,
    stream: Option<ByteStream>,
    unread: BytesMut,
}

impl<'a> Wire<'a> {
    pub(super) fn new(base: &'a BaseUrl, access: &'a Credentials) -> Wire<'a> {
        Wire {
            base,
            access,
            stream: None,
            unread: BytesMut::new(),
        }
    }

    /// The next `send` opens a connection.
    pub(super) fn drop_connection(&mut self) {
        self.stream = None;
        self.unread.clear();
    }

    /// Sends `bytes`, on a new connection if there is none.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.stream.is_none() {
            self.stream = Some(self.connect().await?);
        }
        let stream = self.stream.as_mut().expect("it was opened above");
        // A store that refuses a body may close before it took all of it: the answer counts.
        match timeout(PATIENCE, stream.write_all(bytes)).await {
            Ok(_) => {}
            Err(_) => return Err(format!("the store takes no bytes for {PATIENCE:?}")),
        }
        let flushed = timeout(PATIENCE, stream.flush()).await;
        match flushed {
            Ok(_) => Ok(()),
            Err(_) => Err(format!("the store takes no bytes for {PATIENCE:?}")),
        }
    }

    async fn connect(&self) -> Result<ByteStream, String> {
        let place = (self.base.host(), self.base.port());
        let connected = timeout(PATIENCE, TcpStream::connect(place)).await;
        let socket = match connected {
            Ok(Ok(socket)) => socket,
            Ok(Err(e)) => return Err(format!("no connection ({e})")),
            Err(_) => return Err(format!("no connection in {PATIENCE:?}")),
        };
        socket.set_nodelay(true).map_err(|e| e.to_string())?;
        match timeout(PATIENCE, self.access.seal(socket, self.base)).await {
            Ok(stream) => stream.map_err(|trouble| trouble.to_string()),
            Err(_) => Err(format!("no TLS handshake in {PATIENCE:?}")),
        }
    }

    /// Reads one answer.
    pub(super) async fn receive(&mut self, body: BodyRule) -> Result<Received, String> {
        match timeout(PATIENCE, self.answer(body)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no whole answer in {PATIENCE:?}")),
        }
    }

    /// Has the store closed the connection, or does it soon?
    pub(super) async fn is_closed(&mut self, is_expected: bool) -> Result<bool, String> {
        let Some(stream) = &mut self.stream else {
            return Ok(true);
        };
        // Only an end that is expected is worth the wait: the next step meets any other one.
        let patience = if is_expected {
            CLOSE_PATIENCE
        } else {
            return Ok(false);
        };
        let mut byte = [0; 1];
        match timeout(patience, stream.read(&mut byte)).await {
            Err(_) => Ok(false),
            Ok(Ok(0) | Err(_)) => Ok(true),
            Ok(Ok(_)) => Err("bytes follow the answer behind which the store must close".into()),
        }
    }

    async fn more(&mut self) -> Result<(), String> {
        if self.unread.len() > ANSWER_BYTES_MAX {
            return Err(format!("an answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
        let stream = self.stream.as_mut().ok_or("there is no connection")?;
        match stream.read_buf(&mut self.unread).await {
            Ok(0) => Err("the connection ended before the answer did".to_owned()),
            Ok(_) => Ok(()),
            Err(e) => Err(format!(
                "the connection broke before the answer ended ({e})"
            )),
        }
    }

    async fn line(&mut self) -> Result<String, String> {
        let mut looked = 0;
        loop {
            let end = self.unread[looked..].windows(2).position(|w| w == b"\r\n");
            if let Some(at) = end {
                let line = self.unread.split_to(looked + at);
                self.unread.advance(2);
                return String::from_utf8(line.to_vec())
                    .map_err(|_| "a line of the head is no UTF-8".to_owned());
            }
            if self.unread.len() > LINE_BYTES_MAX {
                return Err("a line of the head has no end".to_owned());
            }
            looked = self.unread.len().saturating_sub(1);
            self.more().await?;
        }
    }

    async fn fields(&mut self) -> Result<Vec<(String, String)>, String> {
        let mut fields = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(fields);
            }
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| format!("the header line {line:?} has no colon"))?;
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            if fields.len() > 100 {
                return Err("an answer has more than 100 header lines".to_owned());
            }
        }
    }

    async fn bytes(&mut self, len: usize, into: &mut Vec<u8>) -> Result<(), String> {
        while self.unread.len() < len {
            self.more().await?;
        }
        into.extend_from_slice(&self.unread.split_to(len));
        Ok(())
    }

    async fn answer(&mut self, body: BodyRule) -> Result<Received, String> {
        let first = self.line().await?;
        let status = first
            .strip_prefix("HTTP/1.1 ")
            .or_else(|| first.strip_prefix("HTTP/1.0 "))
            .and_then(|rest| rest.get(..3)?.parse().ok())
            .ok_or_else(|| format!("{first:?} is no status line"))?;
        let mut answer = Received {
            status,
            headers: self.fields().await?,
            ..Received::default()
        };
        if body == BodyRule::Never || matches!(status, 100..200 | 204 | 304) {
            return Ok(answer);
        }
        let is_chunked = answer
            .header("transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
        match (is_chunked, answer.header("content-length")) {
            (true, None) => self.chunks(&mut answer).await?,
            (false, Some(length)) => {
                let len: usize = length
                    .parse()
                    .ok()
                    .filter(|len| *len <= ANSWER_BYTES_MAX)
                    .ok_or_else(|| format!("Content-Length is {length:?}"))?;
                self.bytes(len, &mut answer.body).await?;
            }
            (true, Some(_)) => {
                return Err("the answer is chunked and has a Content-Length".to_owned());
            }
            (false, None) => {
                return Err("the answer has no Content-Length and no chunks".to_owned());
            }
        }
        Ok(answer)
    }

    async fn chunks(&mut self, answer: &mut Received) -> Result<(), String> {
        let mut lengths = Vec::new();
        loop {
            let line = self.line().await?;
            let len = usize::from_str_radix(&line, 16)
                .map_err(|_| format!("{line:?} is no size of a chunk"))?;
            if len == 0 {
                answer.trailers = self.fields().await?;
                answer.chunks = Some(lengths);
                return Ok(());
            }
            if answer.body.len() + len > ANSWER_BYTES_MAX {
                return Err(format!("an answer has more than {ANSWER_BYTES_MAX} bytes"));
            }
            self.bytes(len, &mut answer.body).await?;
            lengths.push(len);
            if !self.line().await?.is_empty() {
                return Err("a chunk is longer than its size".to_owned());
            }
        }
    }
}

impl Received {
    /// A header, by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// A trailer, by its name in lower case.
    pub(super) fn trailer(&self, name: &str) -> Option<&str> {
        find(&self.trailers, name)
    }

    /// Does the store say that it closes?
    pub(super) fn says_close(&self) -> bool {
        let says = self.header("connection");
        says.is_some_and(|text| text.eq_ignore_ascii_case("close"))
    }
}

fn find<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = fields.iter().find(|(n, _)| n == name);
    found.map(|(_, value)| value.as_str())
}
