//! A small HTTP/1.1 client: kept connections, one request each at a time, deadlines.
//!
//! ```text
//! HttpRequest ─► idle connection, or a new one ─► head ─► body (whole, bounded)  ─► Answer
//!                      │ stale?                        └► body (frame by frame)  ─► Stream
//!                      └► a new one, once, if the request cannot have been seen or only reads
//! ```
//!
//! Invariants
//! 1. A write is sent a second time only when not one byte of it left. A write that the server may
//!    have applied is never repeated in silence.
//! 2. A connection goes back to the idle ones only after its answer was read to the end.
//! 3. An answer is never larger than `ANSWER_BYTES_MAX` in memory; a stream holds one frame.
//!
//! Not here: the meaning of statuses (`answer.rs`), repeated tries on overload (`load/`).
//! See: docs/api.md.

mod answer;
mod credentials;
#[cfg(test)]
pub(crate) mod played;
pub(crate) mod retry;
mod url;

pub(crate) use answer::{AskedPort, Trouble, WholeAnswer};
pub(crate) use credentials::Credentials;
pub(crate) use url::{BadUrl, BaseUrl};

use crate::console::Console;
use bytes::Bytes;
use dendra_wire::meta::{self, MetaBuf};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

/// The largest value a server can be told to store, and room for any error sentence.
const ANSWER_BYTES_MAX: usize = dendra_base::limits::VALUE_BYTES_MAX_LIMIT + (64 << 10);
/// A dead address answers at once, a silent one never.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The server's deadline counts from its side; this much is for the way there and back, and for
/// large bodies on slow lines.
const GRACE: Duration = Duration::from_secs(10);
/// A scan that sends no byte for so long is broken: the server sends a chunk or ends.
const STREAM_IDLE: Duration = Duration::from_secs(60);

type NodeConnection = SendRequest<Full<Bytes>>;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    /// GET, PUT or DELETE.
    pub(crate) method: Method,
    /// Path and query, percent-encoded, after the URL's own path.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The metadata of the value that a PUT stores.
    pub(crate) meta: MetaBuf,
    /// The body; empty for GET and DELETE.
    pub(crate) body: Bytes,
}

/// A client of one node, for one thread.
pub(crate) struct Client {
    base: BaseUrl,
    access: Credentials,
    timeout_ms: u64,
    console: Console,
    idle: RefCell<Vec<NodeConnection>>,
}

/// Did the connection serve a request before?
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionAge {
    Fresh,
    Reused,
}

impl Client {
    /// No connection is made yet. `timeout_ms` is the deadline each request carries.
    pub(crate) fn new(
        base: BaseUrl,
        access: Credentials,
        timeout_ms: u64,
        console: Console,
    ) -> Client {
        Client {
            base,
            access,
            timeout_ms,
            console,
            idle: RefCell::new(Vec::new()),
        }
    }

    /// Where this client connects, for messages.
    pub(crate) fn place(&self) -> &str {
        self.base.authority()
    }

    /// Sends `ask` and reads the whole answer.
    pub(crate) async fn send(&self, ask: &HttpRequest) -> Result<WholeAnswer, Trouble> {
        let started = Instant::now();
        let deadline = started + Duration::from_millis(self.timeout_ms) + GRACE;
        let result = match timeout_at(deadline, self.exchange(ask)).await {
            Ok(result) => result,
            Err(_) => Err(Trouble::Silent {
                waited: started.elapsed(),
            }),
        };
        self.console.detail(|| {
            let outcome = match &result {
                Ok(answer) => answer.status.to_string(),
                Err(trouble) => trouble.to_string(),
            };
            let ms = started.elapsed().as_secs_f64() * 1e3;
            format!("{} {} -> {outcome} ({ms:.1} ms)", ask.method, ask.path)
        });
        result
    }

    /// Sends `ask` and hands out the answer frame by frame.
    pub(crate) async fn stream(&self, ask: &HttpRequest) -> Result<Stream, Trouble> {
        let deadline = Duration::from_millis(self.timeout_ms) + GRACE;
        let (response, connection) = timeout(deadline, self.head(ask))
            .await
            .map_err(|_| Trouble::Silent { waited: deadline })??;
        let (parts, body) = response.into_parts();
        self.console
            .detail(|| format!("{} {} -> {}", ask.method, ask.path, parts.status));
        Ok(Stream {
            head: WholeAnswer::new(parts, Bytes::new()),
            body,
            _connection: connection,
        })
    }

    async fn exchange(&self, ask: &HttpRequest) -> Result<WholeAnswer, Trouble> {
        let (response, connection) = self.head(ask).await?;
        let (parts, body) = response.into_parts();
        let body = match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(e) if e.is::<LengthLimitError>() => {
                return Err(Trouble::Foreign(format!(
                    "the answer has more than {ANSWER_BYTES_MAX} bytes"
                )));
            }
            Err(e) => return Err(Trouble::Broken(format!("the answer was cut: {e}"))),
        };
        if !connection.is_closed() {
            self.idle.borrow_mut().push(connection);
        }
        Ok(WholeAnswer::new(parts, body))
    }

    /// Up to the end of the answer's head, over a kept connection when there is a live one.
    async fn head(
        &self,
        ask: &HttpRequest,
    ) -> Result<(Response<Incoming>, NodeConnection), Trouble> {
        loop {
            let (mut connection, age) = self.connection().await?;
            match connection.try_send_request(self.request(ask)?).await {
                Ok(response) => return Ok((response, connection)),
                Err(mut refused) => {
                    let is_unsent = refused.take_message().is_some();
                    if age == ConnectionAge::Reused && (is_unsent || ask.method == Method::GET) {
                        // The cause of this end closed its neighbours, too.
                        self.idle.borrow_mut().clear();
                        continue;
                    }
                    return Err(Trouble::broken(refused.error(), is_unsent));
                }
            }
        }
    }

    /// An idle connection that still lives, or a new one.
    async fn connection(&self) -> Result<(NodeConnection, ConnectionAge), Trouble> {
        loop {
            let Some(mut kept) = self.idle.borrow_mut().pop() else {
                break;
            };
            if kept.ready().await.is_ok() {
                return Ok((kept, ConnectionAge::Reused));
            }
        }
        let place = (self.base.host(), self.base.port());
        let socket = match timeout(CONNECT_TIMEOUT, TcpStream::connect(place)).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(e)) => return Err(Trouble::Unreachable(e.to_string())),
            Err(_) => return Err(Trouble::Unreachable("no answer in 5 s".to_owned())),
        };
        socket
            .set_nodelay(true)
            .map_err(|e| Trouble::Unreachable(e.to_string()))?;
        let sealing = self.access.seal(socket, &self.base);
        let stream = match timeout(CONNECT_TIMEOUT, sealing).await {
            Ok(stream) => stream?,
            Err(_) => return Err(Trouble::Unreachable("no TLS handshake in 5 s".to_owned())),
        };
        let (connection, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| Trouble::broken(&e, true))?;
        tokio::spawn(async move {
            // The request that waits gets the same error; an idle connection may just end.
            drop(driver.await);
        });
        Ok((connection, ConnectionAge::Fresh))
    }

    fn request(&self, ask: &HttpRequest) -> Result<Request<Full<Bytes>>, Trouble> {
        let path = format!("{}{}", self.base.path(), ask.path);
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(path)
            .header("host", self.base.authority())
            .header("user-agent", concat!("dendra/", env!("CARGO_PKG_VERSION")))
            .header("dendra-timeout-ms", self.timeout_ms);
        if let Some(bearer) = self.access.bearer() {
            request = request.header("authorization", bearer);
        }
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        let meta = ask.meta.as_meta();
        if let Some(content_type) = meta.content_type() {
            request = request.header("content-type", content_type.as_bytes());
        }
        for (name, content) in meta.named() {
            request = request.header(format!("{}{name}", meta::PREFIX), content.as_bytes());
        }
        request
            .body(Full::new(ask.body.clone()))
            .map_err(|e| Trouble::Foreign(format!("the request cannot be written: {e}")))
    }
}

/// One piece of a streamed answer.
#[derive(Debug)]
pub(crate) enum BodyPiece {
    /// Bytes of the body.
    Data(Bytes),
    /// The trailers after it.
    Trailers(hyper::HeaderMap),
}

/// An answer that is read while it is being written.
pub(crate) struct Stream {
    /// Status and headers; the body is empty.
    pub(crate) head: WholeAnswer,
    body: Incoming,
    _connection: NodeConnection,
}

impl Stream {
    /// The next piece; `None` at the end that the framing announced.
    pub(crate) async fn next(&mut self) -> Result<Option<BodyPiece>, Trouble> {
        match timeout(STREAM_IDLE, self.body.frame()).await {
            Err(_) => Err(Trouble::Silent {
                waited: STREAM_IDLE,
            }),
            Ok(None) => Ok(None),
            Ok(Some(Err(e))) => Err(Trouble::Broken(format!("the answer was cut: {e}"))),
            Ok(Some(Ok(frame))) => Ok(Some(match frame.into_data() {
                Ok(data) => BodyPiece::Data(data),
                Err(frame) => BodyPiece::Trailers(frame.into_trailers().unwrap_or_default()),
            })),
        }
    }

    /// The rest of a short answer: the sentence of an error.
    pub(crate) async fn into_answer(mut self) -> Result<WholeAnswer, Trouble> {
        let mut sentence = Vec::new();
        while let Some(frame) = self.next().await? {
            if let BodyPiece::Data(data) = frame {
                sentence.extend_from_slice(&data);
            }
            if sentence.len() > 64 << 10 {
                break;
            }
        }
        self.head.body = Bytes::from(sentence);
        Ok(self.head)
    }
}
