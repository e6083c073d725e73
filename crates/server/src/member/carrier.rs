//! One connection to a peer over plain HTTP: a request out, its response in.
//!
//! ```text
//! out ─► request ─► … ─► response: interim ones skipped, body by length or in chunks ─► Response
//! ```
//!
//! Invariants
//! 1. A response without a certain end is an error: its connection is of no use any more.
//! 2. Room for a body grows with its bytes, not with its announced length, and no body is longer
//!    than a frame.
//!
//! Not here: which question goes over which connection (`pool.rs`).
//! See: docs/peer.md, section "Over plain HTTP"; RFC 9112.

use crate::limits;
use crate::tls::{ByteStream, link_fault};
use bytes::{Buf, Bytes, BytesMut};
use dendra_wire::client::{AnswerBody, Asked, ParsedAnswer, parse_answer};
use dendra_wire::http::{ChunkDecoder, ChunkItem};
use dendra_wire::limits::{HEAD_BYTES_MAX, PEER_FRAME_BYTES_MAX};
use dendra_wire::peer::hop::AskHead;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A response of the other side.
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Is the connection of further use?
    pub(crate) keeps_alive: bool,
    pub(crate) hello: Option<String>,
    pub(crate) body: Bytes,
}

impl Response {
    /// The text of the body, for a sentence.
    pub(crate) fn said(&self) -> String {
        let said = &self.body[..self.body.len().min(1024)];
        String::from_utf8_lossy(said).trim().to_owned()
    }
}

/// A connection, and the bytes that were read from it and not yet understood.
pub(crate) struct Carrier {
    pub(crate) stream: ByteStream,
    input: BytesMut,
    /// The next request.
    pub(crate) out: Vec<u8>,
    /// Did anything come since the last request was begun?
    pub(crate) has_begun: bool,
}

impl Carrier {
    /// Over a connected socket.
    pub(crate) fn new(stream: ByteStream) -> Carrier {
        Carrier {
            stream,
            input: BytesMut::new(),
            out: Vec::new(),
            has_begun: false,
        }
    }

    /// Sends `out` and reads the response to it.
    pub(crate) async fn exchange(&mut self) -> Result<Response, String> {
        self.has_begun = false;
        let sent = match self.stream.write_all(&self.out).await {
            Ok(()) => self.stream.flush().await,
            failed => failed,
        };
        if self.out.capacity() > 4 * limits::LINK_READ_BYTES {
            self.out = Vec::new();
        }
        self.out.clear();
        sent.map_err(|error| link_fault(&error))?;
        self.response().await
    }

    /// Sends one frame.
    pub(crate) async fn carry(&mut self, head: &AskHead, frame: &[u8]) -> Result<Response, String> {
        head.put(&mut self.out, frame.len());
        self.out.extend_from_slice(frame);
        self.exchange().await
    }

    /// Is there no byte after the last response?
    pub(crate) fn is_clean(&self) -> bool {
        self.input.is_empty()
    }

    /// Room for a body grows with the bytes that came, not with its announced length.
    async fn more(&mut self) -> Result<(), String> {
        let room = self.input.len().max(limits::LINK_READ_BYTES / 4);
        if self.input.capacity() - self.input.len() < limits::LINK_READ_BYTES / 16 {
            self.input.reserve(room);
        }
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => Err("the other side closed it".to_owned()),
            Ok(_) => {
                self.has_begun = true;
                Ok(())
            }
            Err(error) => Err(link_fault(&error)),
        }
    }

    async fn response(&mut self) -> Result<Response, String> {
        let (mut response, framing) = loop {
            let (consumed, head) = match parse_answer(&self.input, Asked::WithBody) {
                ParsedAnswer::Incomplete if self.input.len() < HEAD_BYTES_MAX => {
                    self.more().await?;
                    continue;
                }
                ParsedAnswer::Incomplete => return Err("its answer has no end".to_owned()),
                ParsedAnswer::Bad(sentence) => return Err(sentence.to_owned()),
                // An interim answer: the one that counts follows.
                ParsedAnswer::Head(answer) if answer.status < 200 => (answer.consumed, None),
                ParsedAnswer::Head(answer) => {
                    let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
                    let response = Response {
                        status: answer.status,
                        keeps_alive: answer.keep_alive,
                        hello: answer.peer_hello.map(text),
                        body: Bytes::new(),
                    };
                    (answer.consumed, Some((response, answer.body)))
                }
            };
            self.input.advance(consumed);
            if let Some(head) = head {
                break head;
            }
        };
        response.body = match framing {
            AnswerBody::None => Bytes::new(),
            AnswerBody::Length(length) if length > PEER_FRAME_BYTES_MAX as u64 => {
                return Err(format!("its answer has {length} bytes"));
            }
            AnswerBody::Length(length) => {
                while (self.input.len() as u64) < length {
                    self.more().await?;
                }
                self.input.split_to(length as usize).freeze()
            }
            AnswerBody::Chunked => {
                let mut decoder = ChunkDecoder::new(PEER_FRAME_BYTES_MAX as u64);
                let mut body = BytesMut::new();
                loop {
                    match decoder.decode(&self.input).map_err(|bad| bad.to_string())? {
                        ChunkItem::More { consumed } => {
                            self.input.advance(consumed);
                            self.more().await?;
                        }
                        ChunkItem::Data { start, end } => {
                            body.extend_from_slice(&self.input[start..end]);
                            self.input.advance(end);
                        }
                        ChunkItem::End { consumed } => {
                            self.input.advance(consumed);
                            break body.freeze();
                        }
                    }
                }
            }
            AnswerBody::UntilClose => return Err("its answer has no length".to_owned()),
        };
        Ok(response)
    }
}
