//! Answers as bytes, appended to the connection's write buffer.
//!
//! ```text
//! HTTP/1.1 200 OK
//! Content-Type: application/octet-stream        or the one that was stored
//! X-Content-Type-Options: nosniff
//! ETag: "0193…-1-0"
//! Dendra-Receipt: acks=1/1; level=linearizable; durability=sync
//! Dendra-Expires: 1754000000000                 only for a value with a time to live
//! Dendra-Meta-<name>: <content>                 the metadata of the value
//! Content-Length: 100
//! Connection: close                             only when it does
//! Access-Control-Allow-Origin: https://a.b      only to a page of that origin, and what goes with it
//!
//! value
//! ```
//!
//! Invariants
//! 1. Every answer but 100 and 101 carries Content-Length or is chunked without extensions.
//! 2. An answer to HEAD, and a 304, has the Content-Length of the GET's 200 and no body.
//! 3. No byte that a client sent reaches a header line, except percent-encoded, or as metadata,
//!    which was checked when it came out of the store.
//! 4. There is no `Date`: no part of Dendra depends on it, and a clock per answer costs more than
//!    the rest of the head.
//!
//! Not here: which answer it is (crate `server`); refusals' words (`refusal.rs`).
//! See: docs/api.md.

pub(super) mod facts;

pub use facts::{Found, Receipt};

use super::accept::{EventFraming, Framing};
use super::lines::{self, LineFraming, LineValue};
use super::records;
use super::request::{ConnectionFate, Head, Method};
use crate::limits::ANSWER_HEAD_BYTES_MAX;
use crate::meta::{self, Meta};
use crate::percent;
use crate::refusal::{Known, Refusal};
use dendra_base::Version;
use facts::{decimal, known_text, receipt_text, version_text};

/// The shape that a request gives to its answer, for any answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The answer's word on the connection.
    pub connection: ConnectionFate,
    /// The request is a HEAD: headers only.
    pub omits_body: bool,
    /// A page of another site sent it, and may read the answer.
    pub page: Option<&'static PageLines>,
    /// The answer is a line of the answer to a batch.
    pub line: Option<LineFraming>,
}

/// The header lines that a browser needs before it shows an answer to a page of an origin.
#[derive(Debug, PartialEq, Eq)]
pub struct PageLines(String);

impl PageLines {
    /// For pages of `origin`. They are kept for ever: an operator names few, once.
    pub fn new(origin: &str) -> &'static PageLines {
        let lines = format!(
            "Access-Control-Allow-Origin: {origin}\r\nVary: Origin\r\nAccess-Control-Expose-Headers: ETag, \
             Dendra-Receipt, Dendra-Expires, Dendra-Scan, Retry-After, Preference-Applied\r\n"
        );
        Box::leak(Box::new(PageLines(lines)))
    }
}

impl Style {
    /// The style of answers to this request.
    pub fn of(head: &Head<'_>) -> Style {
        Style {
            connection: head.connection,
            omits_body: head.method == Method::Head,
            page: None,
            line: None,
        }
    }

    /// The style where no request could be read.
    pub const CLOSING: Style = Style {
        connection: ConnectionFate::Close,
        omits_body: false,
        page: None,
        line: None,
    };

    /// This style, with an end of the connection.
    #[must_use]
    pub fn closing(self) -> Style {
        Style {
            connection: ConnectionFate::Close,
            ..self
        }
    }
}

/// 200 with a value (GET) or its length only (HEAD), and its metadata. `stored`: the value as it is
/// stored.
pub fn value(out: &mut Vec<u8>, style: Style, found: &Found, stored: &[u8]) {
    let (meta, value) = meta::unwrap(stored);
    if let Some(framing) = style.line {
        return lines::found(out, framing, 200, found, LineValue::Shown(meta, value));
    }
    out.reserve(head_bytes_max(meta) + value.len());
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    type_lines(out, meta);
    description(out, found);
    meta_lines(out, meta);
    finish(out, style, value.len() as u64);
    if !style.omits_body {
        out.extend_from_slice(value);
    }
}

/// 201: the value is stored.
pub fn created(out: &mut Vec<u8>, style: Style, version: Version, receipt: Receipt) {
    if let Some(framing) = style.line {
        return lines::write(out, framing, 201, version, receipt);
    }
    out.extend_from_slice(b"HTTP/1.1 201 Created\r\n");
    etag(out, version);
    receipt_line(out, receipt);
    finish(out, style, 0);
}

/// 202: the deletion is stored.
pub fn accepted(out: &mut Vec<u8>, style: Style, version: Version, receipt: Receipt) {
    if let Some(framing) = style.line {
        return lines::write(out, framing, 202, version, receipt);
    }
    out.extend_from_slice(b"HTTP/1.1 202 Accepted\r\n");
    etag(out, version);
    receipt_line(out, receipt);
    finish(out, style, 0);
}

/// 200 without a body: the value has another version and another end.
pub fn touched(out: &mut Vec<u8>, style: Style, found: &Found) {
    if let Some(framing) = style.line {
        return lines::found(out, framing, 200, found, LineValue::None);
    }
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    description(out, found);
    finish(out, style, 0);
}

/// 304: the client has this version. A 200 would have announced the length of the value that is
/// `stored` so.
pub fn not_modified(out: &mut Vec<u8>, style: Style, found: &Found, stored: &[u8]) {
    if let Some(framing) = style.line {
        return lines::found(out, framing, 304, found, LineValue::None);
    }
    out.extend_from_slice(b"HTTP/1.1 304 Not Modified\r\n");
    description(out, found);
    finish(out, style, meta::unwrap(stored).1.len() as u64);
}

/// 404: there is no live value. The body is empty: absence is an outcome, not an error.
pub fn absent(out: &mut Vec<u8>, style: Style, receipt: Receipt) {
    if let Some(framing) = style.line {
        return lines::absent(out, framing, receipt);
    }
    out.extend_from_slice(b"HTTP/1.1 404 Not Found\r\n");
    receipt_line(out, receipt);
    finish(out, style, 0);
}

/// 412: the condition does not hold; `current` is the live value's version, if there is one.
pub fn condition_failed(out: &mut Vec<u8>, style: Style, current: Option<Version>) {
    const PRESENT: &[u8] = b"condition-failed: the record has the version in ETag\n";
    const ABSENT: &[u8] = b"condition-failed: there is no record\n";
    if let Some(framing) = style.line {
        return lines::condition(out, framing, current, None, LineValue::None);
    }
    out.extend_from_slice(b"HTTP/1.1 412 Precondition Failed\r\n");
    out.extend_from_slice(TEXT_HEADERS);
    let body = match current {
        Some(version) => {
            etag(out, version);
            PRESENT
        }
        None => ABSENT,
    };
    known_line(out, None, Known::NotApplied);
    finish_with(out, style, body);
}

/// 412 with the current value, for a client that prefers that to a second question. `expiry_ms` is
/// the value's, `stored` the value with its metadata.
pub fn condition_failed_with(
    out: &mut Vec<u8>,
    style: Style,
    current: Version,
    expiry_ms: Option<u64>,
    stored: &[u8],
) {
    let (meta, value) = meta::unwrap(stored);
    if let Some(framing) = style.line {
        let value = LineValue::Shown(meta, value);
        return lines::condition(out, framing, Some(current), expiry_ms, value);
    }
    out.reserve(head_bytes_max(meta) + value.len());
    out.extend_from_slice(b"HTTP/1.1 412 Precondition Failed\r\n");
    type_lines(out, meta);
    out.extend_from_slice(b"Preference-Applied: return=representation\r\n");
    etag(out, current);
    if let Some(expiry_ms) = expiry_ms {
        number_line(out, b"Dendra-Expires: ", expiry_ms);
    }
    meta_lines(out, meta);
    known_line(out, None, Known::NotApplied);
    finish_with(out, style, value);
}

/// 200 to a peer that asks over plain HTTP: one frame.
pub(crate) fn frame(out: &mut Vec<u8>, style: Style, frame: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n");
    finish_with(out, style, frame);
}

/// 200 to a peer's hello: the own hello.
pub(crate) fn hello(out: &mut Vec<u8>, style: Style, hello: &str) {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    text_line(out, b"Dendra-Peer: ", hello.as_bytes());
    finish(out, style, 0);
}

/// Any refusal: `code: sentence`.
pub fn refusal(out: &mut Vec<u8>, style: Style, refusal: &Refusal) {
    if let Some(framing) = style.line {
        return lines::refusal(out, framing, refusal);
    }
    let style = if refusal.close {
        style.closing()
    } else {
        style
    };
    status_line(out, refusal.status);
    out.extend_from_slice(TEXT_HEADERS);
    if let Some(allow) = refusal.allow {
        text_line(out, b"Allow: ", allow.as_bytes());
    }
    if let Some(challenge) = refusal.challenge {
        text_line(out, b"WWW-Authenticate: ", challenge.as_bytes());
    }
    if let Some(seconds) = refusal.retry_after_s {
        number_line(out, b"Retry-After: ", u64::from(seconds));
    }
    if let Some(known) = refusal.known {
        known_line(out, refusal.acks, known);
    }
    let body_len = refusal.code.len() + 2 + refusal.message.len() + 1;
    finish(out, style, body_len as u64);
    if !style.omits_body {
        out.extend_from_slice(refusal.code.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(refusal.message.as_bytes());
        out.push(b'\n');
    }
}

/// A short plain page, such as the one of `/v0/status`.
pub fn text(out: &mut Vec<u8>, style: Style, status: u16, body: &str) {
    status_line(out, status);
    out.extend_from_slice(TEXT_HEADERS);
    finish_with(out, style, body.as_bytes());
}

/// 200 to a browser that asks which requests a page may send: everything that the data port knows.
pub fn preflight(out: &mut Vec<u8>, style: Style) {
    out.extend_from_slice(
        b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Methods: GET, HEAD, PUT, DELETE, POST\r\n\
          Access-Control-Allow-Headers: Authorization, Content-Type, Accept, If-Match, If-None-Match, Prefer, Dendra-Timeout-Ms\r\n\
          Access-Control-Max-Age: 600\r\n",
    );
    finish(out, style, 0);
}

/// 100: send the body.
pub fn proceed(out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
}

/// Head of a scan: 200, chunked. Records follow, then [`scan_end`].
pub fn scan_head(out: &mut Vec<u8>, style: Style, framing: Framing, receipt: Receipt) {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    text_line(out, b"Content-Type: ", framing.media_type().as_bytes());
    out.extend_from_slice(b"X-Content-Type-Options: nosniff\r\n");
    receipt_line(out, receipt);
    out.extend_from_slice(b"Transfer-Encoding: chunked\r\nTrailer: Dendra-Scan\r\n");
    connection_line(out, style);
    out.extend_from_slice(b"\r\n");
}

/// The answer to a count. `next`: where to go on, as there may be more.
pub fn count(out: &mut Vec<u8>, style: Style, receipt: Receipt, count: u64, next: Option<&[u8]>) {
    let mut body = format!("{{\"count\":{count},\"complete\":{}", next.is_none()).into_bytes();
    if let Some(next) = next {
        body.extend_from_slice(b",\"next\":\"");
        percent::encode_into(next, &mut body);
        body.push(b'"');
    }
    body.extend_from_slice(b"}\n");
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n");
    out.extend_from_slice(b"X-Content-Type-Options: nosniff\r\n");
    receipt_line(out, receipt);
    text_line(out, b"Content-Length: ", body.len().to_string().as_bytes());
    connection_line(out, style);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&body);
}

/// The JSON document about a read that ended with `status`. `receipt`: of one that told whether
/// there is a value.
pub fn explained(
    out: &mut Vec<u8>,
    style: Style,
    status: u16,
    receipt: Option<Receipt>,
    document: &[u8],
) {
    status_line(out, status);
    out.extend_from_slice(b"Content-Type: application/json\r\n");
    out.extend_from_slice(b"X-Content-Type-Options: nosniff\r\n");
    match receipt {
        Some(receipt) => receipt_line(out, receipt),
        None => known_line(out, None, Known::NotApplied),
    }
    finish_with(out, style, document);
}

/// Head of the answer to a batch: 200, chunked. Lines follow in chunks, then [`lines::batch_end`].
pub fn batch_head(out: &mut Vec<u8>, style: Style, framing: LineFraming) {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    text_line(out, b"Content-Type: ", framing.media_type().as_bytes());
    out.extend_from_slice(
        b"X-Content-Type-Options: nosniff\r\nTransfer-Encoding: chunked\r\nTrailer: Dendra-Batch\r\n",
    );
    connection_line(out, style);
    out.extend_from_slice(b"\r\n");
}

/// Head of a watch: 200, chunked. Events follow in chunks, then [`super::events::events_end`].
pub fn events_head(out: &mut Vec<u8>, style: Style, framing: EventFraming) {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    text_line(out, b"Content-Type: ", framing.media_type().as_bytes());
    out.extend_from_slice(
        b"X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n",
    );
    connection_line(out, style);
    out.extend_from_slice(b"\r\n");
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd<'a> {
    /// No record of the range is left out.
    Complete,
    /// The limit is reached and there is more: all that was asked for is sent.
    Limited {
        /// The client's key from which to go on: `start=next`, or `end=next` in reverse.
        next: &'a [u8],
    },
    /// Cut before its end: the deadline passed, the node drains, a record is damaged.
    Stopped {
        /// Key from which to go on: `start=next`, or `end=next` in reverse.
        next: &'a [u8],
    },
}

/// Last chunk and trailer of a scan. The end mark of `Records` is there exactly when the scan was
/// sent to its end. Many clients cannot see trailers, and a mark is missing from every cut.
pub fn scan_end(out: &mut Vec<u8>, framing: Framing, end: ScanEnd<'_>) {
    if !matches!(end, ScanEnd::Stopped { .. }) {
        records::end_mark(out, framing);
    }
    match end {
        ScanEnd::Complete => out.extend_from_slice(b"0\r\nDendra-Scan: complete\r\n\r\n"),
        ScanEnd::Limited { next } | ScanEnd::Stopped { next } => {
            out.extend_from_slice(b"0\r\nDendra-Scan: stopped; next=");
            percent::encode_into(next, out);
            out.extend_from_slice(b"\r\n\r\n");
        }
    }
}

const TEXT_HEADERS: &[u8] = b"Content-Type: text/plain\r\nX-Content-Type-Options: nosniff\r\n";

/// The standard's words for a status that some answer uses.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        // The standard permits an empty phrase: RFC 9112, section 4.
        _ => "",
    }
}

fn status_line(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    decimal(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The type of a value. A page that another client has stored gets no access to the store: a
/// browser shows it as one of no origin, without scripts.
fn type_lines(out: &mut Vec<u8>, meta: Meta<'_>) {
    match meta.content_type() {
        None => out.extend_from_slice(
            b"Content-Type: application/octet-stream\r\nX-Content-Type-Options: nosniff\r\n",
        ),
        Some(content_type) => {
            text_line(out, b"Content-Type: ", content_type.as_bytes());
            out.extend_from_slice(
                b"X-Content-Type-Options: nosniff\r\nContent-Security-Policy: sandbox\r\n",
            );
        }
    }
}

fn meta_lines(out: &mut Vec<u8>, meta: Meta<'_>) {
    for (name, content) in meta.named() {
        out.extend_from_slice(meta::PREFIX.as_bytes());
        out.extend_from_slice(name.as_bytes());
        text_line(out, b": ", content.as_bytes());
    }
}

/// Room for the head of a value with this metadata.
fn head_bytes_max(meta: Meta<'_>) -> usize {
    ANSWER_HEAD_BYTES_MAX + meta.len() + (meta::PREFIX.len() + 4) * meta.named().count()
}

fn description(out: &mut Vec<u8>, found: &Found) {
    etag(out, found.version);
    receipt_line(out, found.receipt);
    if let Some(expiry_ms) = found.expiry_ms {
        number_line(out, b"Dendra-Expires: ", expiry_ms);
    }
}

fn etag(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(b"ETag: \"");
    version_text(out, version);
    out.extend_from_slice(b"\"\r\n");
}

/// Every text is appended in an arm of its own. So its length is known to the compiler, and a copy
/// is a few moves instead of a call.
fn receipt_line(out: &mut Vec<u8>, receipt: Receipt) {
    out.extend_from_slice(b"Dendra-Receipt: ");
    receipt_text(out, receipt);
    out.extend_from_slice(b"\r\n");
}

fn known_line(out: &mut Vec<u8>, acks: Option<(u8, u8)>, known: Known) {
    out.extend_from_slice(b"Dendra-Receipt: ");
    known_text(out, acks, known);
    out.extend_from_slice(b"\r\n");
}

fn connection_line(out: &mut Vec<u8>, style: Style) {
    match style.connection {
        ConnectionFate::Persist => {}
        ConnectionFate::KeepAlive => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        ConnectionFate::Close => out.extend_from_slice(b"Connection: close\r\n"),
    }
    if let Some(PageLines(lines)) = style.page {
        out.extend_from_slice(lines.as_bytes());
    }
}

fn text_line(out: &mut Vec<u8>, name: &[u8], text: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn number_line(out: &mut Vec<u8>, name: &[u8], number: u64) {
    out.extend_from_slice(name);
    decimal(out, number);
    out.extend_from_slice(b"\r\n");
}

/// The last lines of a head.
fn finish(out: &mut Vec<u8>, style: Style, content_length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    decimal(out, content_length);
    out.extend_from_slice(b"\r\n");
    connection_line(out, style);
    out.extend_from_slice(b"\r\n");
}

fn finish_with(out: &mut Vec<u8>, style: Style, body: &[u8]) {
    finish(out, style, body.len() as u64);
    if !style.omits_body {
        out.extend_from_slice(body);
    }
}

#[cfg(test)]
mod tests;
