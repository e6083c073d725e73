//! Reads answers off one connection, strictly: bytes in doubt break the connection.
//!
//! ```text
//! Head ──► Length(left) ──► done        Head ──► done (no body)
//!     ╲──► Chunks ────────► done            ╲──► UntilClose ──► done at the end of the stream
//! ```
//!
//! Invariants
//! 1. `Need` leaves at most one head, or one line of chunk framing, unread.
//! 2. No body is stored: its bytes are counted and dropped.
//!
//! Not here: the parser of heads and chunks (crate `wire`).
//! See: RFC 9112.

use crate::limits::ANSWER_BYTES_MAX;
use dendra_wire::client::{AnswerBody, Asked, ParsedAnswer, parse_answer};
use dendra_wire::http::{ChunkDecoder, ChunkItem};

/// A whole answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) status: u16,
    /// Head, framing and body.
    pub(crate) bytes: u64,
    pub(crate) body_bytes: u64,
    /// Records, when the body was Dendra's framing of records.
    pub(crate) records: u64,
    pub(crate) keep_alive: bool,
}

/// The item at the front of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundAnswer {
    /// This many bytes are done with; more are needed.
    Need(usize),
    /// An answer ended after this many bytes.
    Whole(usize, Whole),
    /// Not an answer.
    Bad(&'static str),
}

#[derive(Debug)]
enum AnswerState {
    Head,
    Length(u64),
    Chunks(Box<ChunkDecoder>),
    UntilClose,
}

/// Where the reading of one connection is.
#[derive(Debug)]
pub(crate) struct Reader {
    state: AnswerState,
    whole: Whole,
    etag: Vec<u8>,
    records: Option<Records>,
}

/// Counts records: `u32 key length, u32 value length, key, value`, until two `0xffffffff`.
#[derive(Debug, Default)]
struct Records {
    head: [u8; 8],
    head_len: usize,
    /// Bytes of key and value still to come.
    left: u64,
    count: u64,
    is_ended: bool,
}

impl Records {
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_ended {
            if self.left > 0 {
                let len = self.left.min(bytes.len() as u64);
                bytes = &bytes[len as usize..];
                self.left -= len;
                continue;
            }
            let (first, rest) = bytes.split_at(1);
            self.head[self.head_len] = first[0];
            self.head_len += 1;
            bytes = rest;
            if self.head_len == self.head.len() {
                self.head_len = 0;
                let word = u64::from_be_bytes(self.head);
                self.is_ended = word == u64::MAX;
                self.left = (word >> 32) + (word & 0xffff_ffff);
                self.count += u64::from(!self.is_ended);
            }
        }
    }
}

impl Reader {
    /// A reader at the start of a connection.
    pub(crate) fn new() -> Reader {
        Reader {
            state: AnswerState::Head,
            whole: Whole::default(),
            etag: Vec::new(),
            records: None,
        }
    }

    /// Has no byte of an answer been read?
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.state, AnswerState::Head) && self.whole.bytes == 0
    }

    /// The `ETag` of the last head, as it was sent; empty when it had none.
    pub(crate) fn etag(&self) -> &[u8] {
        &self.etag
    }

    fn body(&mut self, bytes: &[u8]) {
        self.whole.body_bytes += bytes.len() as u64;
        if let Some(records) = &mut self.records {
            records.feed(bytes);
        }
    }

    fn end(&mut self, at: usize) -> FoundAnswer {
        let records = self.records.take().map_or(0, |records| records.count);
        let whole = Whole {
            records,
            ..std::mem::take(&mut self.whole)
        };
        self.state = AnswerState::Head;
        FoundAnswer::Whole(at, whole)
    }

    /// The stream ended: an answer, if that is how its length was given.
    pub(crate) fn close(&mut self) -> Option<Whole> {
        match self.state {
            AnswerState::UntilClose => match self.end(0) {
                FoundAnswer::Whole(_, whole) => Some(whole),
                FoundAnswer::Need(_) | FoundAnswer::Bad(_) => None,
            },
            _ => None,
        }
    }

    /// Reads the front of `bytes`.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> FoundAnswer {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            if rest.is_empty() && !matches!(self.state, AnswerState::Length(0)) {
                return FoundAnswer::Need(at);
            }
            match &mut self.state {
                AnswerState::Head => match self.head(rest) {
                    Ok(Some(consumed)) => {
                        at += consumed;
                        self.whole.bytes += consumed as u64;
                    }
                    Ok(None) => return FoundAnswer::Need(at),
                    Err(sentence) => return FoundAnswer::Bad(sentence),
                },
                AnswerState::Length(left) => {
                    let len = (*left).min(rest.len() as u64);
                    *left -= len;
                    let is_done = *left == 0;
                    at += len as usize;
                    self.whole.bytes += len;
                    self.body(&rest[..len as usize]);
                    if is_done {
                        return self.end(at);
                    }
                }
                AnswerState::UntilClose => {
                    at += rest.len();
                    self.whole.bytes += rest.len() as u64;
                    self.body(rest);
                }
                AnswerState::Chunks(decoder) => match decoder.decode(rest) {
                    Ok(ChunkItem::More { consumed }) => {
                        self.whole.bytes += consumed as u64;
                        return FoundAnswer::Need(at + consumed);
                    }
                    Ok(ChunkItem::Data { start, end }) => {
                        at += end;
                        self.whole.bytes += end as u64;
                        self.body(&rest[start..end]);
                    }
                    Ok(ChunkItem::End { consumed }) => {
                        self.whole.bytes += consumed as u64;
                        return self.end(at + consumed);
                    }
                    Err(_) => return FoundAnswer::Bad("the chunks of the answer are broken"),
                },
            }
        }
    }

    /// Bytes of a head, or none when it is not yet whole.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        let answer = match parse_answer(bytes, Asked::WithBody) {
            ParsedAnswer::Incomplete => return Ok(None),
            ParsedAnswer::Bad(sentence) => return Err(sentence),
            ParsedAnswer::Head(answer) => answer,
        };
        match answer.status {
            // The request asked for no other protocol.
            101 => return Err("the answer switches protocols"),
            100..=199 => return Ok(Some(answer.consumed)),
            _ => {}
        }
        self.whole.status = answer.status;
        self.etag.clear();
        self.etag.extend_from_slice(answer.etag.unwrap_or_default());
        self.whole.keep_alive = answer.keep_alive;
        let is_records = answer.content_type == Some(b"application/vnd.dendra.records");
        self.records = is_records.then(Records::default);
        self.state = match answer.body {
            AnswerBody::None => AnswerState::Length(0),
            AnswerBody::Length(length) => AnswerState::Length(length),
            AnswerBody::Chunked => {
                AnswerState::Chunks(Box::new(ChunkDecoder::new(ANSWER_BYTES_MAX)))
            }
            AnswerBody::UntilClose => AnswerState::UntilClose,
        };
        Ok(Some(answer.consumed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text` in pieces of `len` bytes; the answers and the unread rest.
    fn read(text: &[u8], len: usize) -> Result<Vec<Whole>, &'static str> {
        let mut reader = Reader::new();
        let (mut held, mut out) = (Vec::new(), Vec::new());
        for piece in text.chunks(len) {
            held.extend_from_slice(piece);
            loop {
                match reader.read(&held) {
                    FoundAnswer::Need(consumed) => {
                        held.drain(..consumed);
                        break;
                    }
                    FoundAnswer::Whole(consumed, whole) => {
                        held.drain(..consumed);
                        out.push(whole);
                    }
                    FoundAnswer::Bad(sentence) => return Err(sentence),
                }
            }
        }
        out.extend(reader.close());
        Ok(out)
    }

    #[test]
    fn answers_are_the_same_however_they_are_cut() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\
            HTTP/1.1 100 Continue\r\n\r\n\
            HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n\
            HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nT: x\r\n\r\n\
            HTTP/1.1 200 OK\r\n\r\nuntil the end";
        let whole = read(text, text.len()).expect("they are answers");
        let seen: Vec<_> = whole.iter().map(|w| (w.status, w.body_bytes)).collect();
        assert_eq!(seen, [(200, 3), (404, 0), (200, 2), (200, 13)]);
        assert_eq!(
            whole.iter().map(|w| w.bytes).sum::<u64>(),
            text.len() as u64
        );
        for len in 1..40 {
            assert_eq!(read(text, len), Ok(whole.clone()), "pieces of {len}");
        }
    }

    #[test]
    fn the_etag_is_that_of_the_last_answer() {
        let mut reader = Reader::new();
        for (text, etag) in [
            (
                &b"HTTP/1.1 200 OK\r\nETag: W/\"of another server\"\r\nContent-Length: 0\r\n\r\n"[..],
                &b"W/\"of another server\""[..],
            ),
            (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b""),
        ] {
            assert!(matches!(reader.read(text), FoundAnswer::Whole(len, _) if len == text.len()));
            assert_eq!(reader.etag(), etag);
        }
    }

    #[test]
    fn records_of_a_scan_are_counted() {
        let mut body = Vec::new();
        for (key, value) in [("k", "value"), ("k2", "")] {
            body.extend((key.len() as u32).to_be_bytes());
            body.extend((value.len() as u32).to_be_bytes());
            body.extend([key.as_bytes(), value.as_bytes()].concat());
        }
        body.extend([0xff; 8]);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.dendra.records\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let text = [head.as_bytes(), &body].concat();
        for len in [1, 7, text.len()] {
            assert_eq!(
                read(&text, len).expect("an answer")[0].records,
                2,
                "pieces of {len}"
            );
        }
    }

    #[test]
    fn what_is_no_answer_is_bad() {
        for text in [
            &b"SSH-2.0-OpenSSH\r\n"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        ] {
            assert!(read(text, text.len()).is_err(), "{text:?}");
        }
    }
}
