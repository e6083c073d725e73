//! The other side of the same bytes: requests and answer heads for our command line and our lab.
//!
//! ```text
//! request(out, …) --> | PUT /v0/entity?id=k HTTP/1.1 CR LF | Host | Content-Length | … |
//! parse_answer(buf)  <-- | HTTP/1.1 201 Created CR LF | ETag: "…" | Content-Length: … |
//!   body: None | Length | Chunked (http::ChunkDecoder) | UntilClose
//! scan_end(trailer)  <-- | Dendra-Scan: complete CR LF |
//! ```
//!
//! Invariants
//! 1. An answer whose length is in doubt is `Bad`: its connection must not be used again.
//! 2. Answers of other servers (the yardsticks of a comparison) are read as well as ours.
//! 3. Header lines that do not frame the answer stay as they were sent: a load generator reads
//!    millions, and looks at few.
//!
//! Not here: connections, retries, pools (the programs that use this).
//! See: docs/api.md.

use crate::http::request::{Body, digits, list};
use crate::limits::{ANSWER_HEADERS_LEN_MAX, HEAD_BYTES_MAX};
use crate::percent;
use std::mem::MaybeUninit;

/// How the body of an answer is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// No body, or one of zero bytes.
    None,
    /// This many bytes, at least one.
    Length(u64),
    /// Chunks: see [`crate::http::ChunkDecoder`].
    Chunked,
    /// Everything until the server closes. Dendra never sends this.
    UntilClose,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerHead<'a> {
    /// Bytes of the head in the buffer.
    pub consumed: usize,
    /// The status. 100 is an interim answer: drop its bytes and parse again.
    pub status: u16,
    /// Framing of the body.
    pub body: AnswerBody,
    /// Does the connection stay open after the body?
    pub keep_alive: bool,
    /// `Content-Length` as sent: for HEAD and 304 it announces the length that GET would send.
    pub content_length: Option<u64>,
    /// `Content-Type`
    pub content_type: Option<&'a [u8]>,
    /// `ETag`, in its quotes.
    pub etag: Option<&'a [u8]>,
    /// `Dendra-Peer`: the hello of a member that accepts a link.
    pub peer_hello: Option<&'a [u8]>,
}

/// The item at the front of a buffer of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedAnswer<'a> {
    /// Not yet a whole head: read more.
    Incomplete,
    /// A whole head.
    Head(AnswerHead<'a>),
    /// Not an answer; the sentence says why. Close the connection.
    Bad(&'static str),
}

/// Was the request a HEAD, whose answer has no body, whichever length it announces?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// GET, PUT, DELETE.
    WithBody,
    /// HEAD.
    HeadOnly,
}

/// Reads the head of an answer at the front of `buf`.
pub fn parse_answer(buf: &[u8], asked: Asked) -> ParsedAnswer<'_> {
    let window = buf.get(..HEAD_BYTES_MAX).unwrap_or(buf);
    let mut lines = [const { MaybeUninit::uninit() }; ANSWER_HEADERS_LEN_MAX];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let status = config.parse_response_with_uninit_headers(&mut response, window, &mut lines);
    match status {
        Ok(httparse::Status::Complete(consumed)) => match read_answer(&response, consumed, asked) {
            Ok(answer) => ParsedAnswer::Head(answer),
            Err(sentence) => ParsedAnswer::Bad(sentence),
        },
        Ok(httparse::Status::Partial) if window.len() < HEAD_BYTES_MAX => ParsedAnswer::Incomplete,
        Ok(httparse::Status::Partial) => ParsedAnswer::Bad("the answer's head is too long"),
        Err(_) => ParsedAnswer::Bad("the answer is not HTTP/1.1"),
    }
}

fn read_answer<'a>(
    response: &httparse::Response<'_, 'a>,
    consumed: usize,
    asked: Asked,
) -> Result<AnswerHead<'a>, &'static str> {
    let is_http_1_0 = response.version == Some(0);
    let mut answer = AnswerHead {
        consumed,
        status: response.code.unwrap_or_default(),
        body: AnswerBody::UntilClose,
        keep_alive: !is_http_1_0,
        content_length: None,
        content_type: None,
        etag: None,
        peer_hello: None,
    };
    let mut is_chunked = false;
    for line in response.headers.iter() {
        let (name, value) = (line.name, line.value);
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.len() {
            4 if is("etag") => answer.etag = Some(value),
            10 if is("connection") => {
                let says = |word: &[u8]| list(value).any(|token| token.eq_ignore_ascii_case(word));
                answer.keep_alive = (answer.keep_alive || says(b"keep-alive")) && !says(b"close");
            }
            11 if is("dendra-peer") => answer.peer_hello = Some(value),
            12 if is("content-type") => answer.content_type = Some(value),
            14 if is("content-length") => {
                let length = digits(value).ok_or("the answer's length is no number")?;
                if answer.content_length.replace(length).is_some() {
                    return Err("the answer has more than one length");
                }
            }
            17 if is("transfer-encoding") => {
                if is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err("the answer has an unknown transfer coding");
                }
                is_chunked = true;
            }
            _ => {}
        }
    }
    let is_bodyless = asked == Asked::HeadOnly || matches!(answer.status, 100..=199 | 204 | 304);
    answer.body = match (is_bodyless, is_chunked, answer.content_length) {
        (_, true, Some(_)) => return Err("the answer has more than one length"),
        (true, _, _) | (false, false, Some(0)) => AnswerBody::None,
        (false, true, None) => AnswerBody::Chunked,
        (false, false, Some(length)) => AnswerBody::Length(length),
        (false, false, None) => {
            answer.keep_alive = false;
            AnswerBody::UntilClose
        }
    };
    Ok(answer)
}

/// How a scan ended, from its trailer section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanOutcome {
    /// No record of the range is left out.
    Complete,
    /// There is more, because of the limit or of a cut: go on with `start=next`, or `end=next` in
    /// reverse.
    Stopped {
        /// Decoded key.
        next: Vec<u8>,
    },
}

/// Reads the trailer section of a scan, as `ChunkDecoder::trailer_len` delimits it. `None` when it
/// does not say how the scan ended: treat that as a cut without a place to go on from.
pub fn scan_end(trailer: &[u8]) -> Option<ScanOutcome> {
    let mut lines = [httparse::EMPTY_HEADER; ANSWER_HEADERS_LEN_MAX];
    let Ok(httparse::Status::Complete((_, lines))) = httparse::parse_headers(trailer, &mut lines)
    else {
        return None;
    };
    let line = lines
        .iter()
        .find(|line| line.name.eq_ignore_ascii_case("dendra-scan"))?;
    if line.value == b"complete" {
        return Some(ScanOutcome::Complete);
    }
    let raw = line.value.strip_prefix(b"stopped; next=")?;
    let mut next = vec![0; raw.len()];
    let len = percent::decode_into(raw, &mut next).ok()?;
    next.truncate(len);
    Some(ScanOutcome::Stopped { next })
}

/// Appends the head of a request. `target` is path and query, already percent-encoded; `fields`
/// are further header lines, without their line ends. The body's bytes are the caller's to append.
///
/// ```
/// use dendra_wire::http::Body;
/// let mut out = Vec::new();
/// dendra_wire::client::request(&mut out, "PUT", b"/v0/entity?id=k", "h:1", Body::Length(5), &[]);
/// assert_eq!(
///     out,
///     b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: h:1\r\nContent-Length: 5\r\n\r\n"
/// );
/// ```
pub fn request(
    out: &mut Vec<u8>,
    method: &str,
    target: &[u8],
    host: &str,
    body: Body,
    fields: &[&str],
) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(host.as_bytes());
    out.extend_from_slice(b"\r\n");
    match body {
        // A PUT says that its value is empty; other methods have no body to speak of.
        Body::None if method == "PUT" => out.extend_from_slice(b"Content-Length: 0\r\n"),
        Body::None => {}
        Body::Length(length) => {
            out.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        Body::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    for field in fields {
        out.extend_from_slice(field.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
