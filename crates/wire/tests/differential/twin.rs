//! One stream of bytes, read by our parser and by hyper's.
//!
//! ```text
//! stream --> parse_head, ChunkDecoder -----------> Seen, Seen, …, perhaps a refusal
//!       \--> hyper http1 over an in-memory pipe --> Seen, Seen, …
//! ```
//!
//! Invariants
//! 1. A request counts as seen only when its body is whole.
//! 2. Every difference that is not an error has its rule here, with its reason.
//!
//! Not here: which streams (`main.rs` draws them from a grammar, `fuzz/` from a fuzzer).
//! See: docs/api.md, section "HTTP".

use dendra_wire::Refusal;
use dendra_wire::http::{Body, ChunkDecoder, ChunkItem, Limits, Method, Parsed, parse_head};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use tokio::io::AsyncWriteExt;

/// Where hyper accepts and we refuse: the start of our sentence, and why.
pub(crate) const STRICTER: [(&str, &str); 14] = [
    (
        "bad-framing: Content-Length and Transfer-Encoding exclude each other",
        "hyper prefers Transfer-Encoding, as RFC 9112 allows; a proxy in front may not have",
    ),
    (
        "bad-framing: there is more than one Content-Length",
        "hyper merges equal ones, as RFC 9110 allows",
    ),
    (
        "bad-framing: there is more than one Transfer-Encoding",
        "hyper looks at the end of the last one",
    ),
    (
        "transfer-coding: Transfer-Encoding must be exactly `chunked`",
        "hyper takes a list that ends in chunked and hands over the inner coding",
    ),
    (
        "bad-framing: a chunk size is not hexadecimal digits",
        "hyper skips spaces and tabs behind the digits",
    ),
    (
        "bad-framing: a chunk size has more than 16 digits",
        "hyper takes any number of leading zeros",
    ),
    (
        "bad-framing: a chunk extension holds a control byte",
        "hyper skips everything but line ends",
    ),
    (
        "bad-framing: a trailer line must end in CR LF",
        "hyper takes a bare line feed there",
    ),
    (
        "bad-request: a line must end in CR LF",
        "httparse takes a bare line feed",
    ),
    (
        "bad-request: HTTP/1.1 requires a Host header",
        "hyper leaves Host to its user",
    ),
    (
        "bad-request: there is more than one Host header",
        "hyper leaves Host to its user",
    ),
    (
        "bad-request: Host is not a host and port",
        "hyper leaves Host to its user",
    ),
    (
        "bad-request: the request target holds `#` or a byte above 127",
        "hyper cuts a fragment off, and takes UTF-8 in a path",
    ),
    (
        "bad-request: the request target must start with `/` or be an http:// URL",
        "hyper takes other schemes, user names, the asterisk and the authority form",
    ),
];

/// Bytes of a target that only we take. curl and many clients send them as they are, and nginx
/// takes them. A key is any bytes, and none of them can end a target or a line.
const LENIENT: &str = "\"<>\\^`{|}";

/// The same for bounds that no drawn stream reaches, and a fuzzer may.
const BOUNDS: [&str; 6] = [
    "bad-framing: the trailer section is too long",
    "target-too-long: ",
    "head-too-long: ",
    "value-too-large: ",
    "bad-framing: the chunk extensions are too long",
    "bad-framing: a chunk extension is too long",
];

/// One request as a parser understood it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// The host that the request names; the check of hosts rests on it.
    pub(crate) authority: Option<String>,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// Largest body of either side: more than any stream holds.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// Room of the pipe: more than any stream and all its answers hold.
const PIPE_BYTES: usize = 1 << 20;

/// Reads one stream with both parsers. `Ok` with the number of requests that both took and the
/// rule by which ours ended earlier than hyper's, if one did.
pub(crate) async fn compare(stream: &[u8]) -> Result<(usize, Option<&'static str>), String> {
    let (mut ours, refusal) = by_ours(stream);
    let mut theirs = by_hyper(stream).await;
    if let Some(at) = ours.iter().position(is_lenient) {
        ours.truncate(at);
        theirs.truncate(at);
    }
    if !theirs.starts_with(&ours) {
        return Err(format!("ours {ours:#?}\nhyper's {theirs:#?}"));
    }
    if theirs.len() == ours.len() {
        return Ok((ours.len(), None));
    }
    let Some(refusal) = refusal else {
        return Err(format!(
            "hyper sees more, and we refused nothing: {theirs:#?}"
        ));
    };
    let sentence = refusal.to_string();
    let mut rules = STRICTER.iter().map(|(start, _)| *start).chain(BOUNDS);
    match rules.find(|start| sentence.starts_with(start)) {
        Some(rule) => Ok((ours.len(), Some(rule))),
        None => Err(format!("no rule for: {sentence}")),
    }
}

fn is_lenient(seen: &Seen) -> bool {
    let is_in = |text: &str| text.contains(|c| LENIENT.contains(c));
    is_in(&seen.path) || seen.query.as_deref().is_some_and(is_in)
}

/// Our reading of `stream`: the requests, and the refusal that ended it, if one did.
pub(crate) fn by_ours(stream: &[u8]) -> (Vec<Seen>, Option<Refusal>) {
    let mut seen = Vec::new();
    let mut rest = stream;
    loop {
        let head = match parse_head(rest, &Limits::USUAL) {
            Parsed::Head(head) => head,
            Parsed::Incomplete => return (seen, None),
            Parsed::Bad(refusal) => return (seen, Some(refusal)),
        };
        let (body, consumed) = match read_body(head.body, &rest[head.consumed..]) {
            Ok(Some(read)) => read,
            Ok(None) => return (seen, None),
            Err(refusal) => return (seen, Some(refusal)),
        };
        seen.push(Seen {
            method: method_name(rest, head.method),
            authority: head.authority.map(text),
            path: text(head.path),
            query: head.query.map(text),
            body,
        });
        if !head.keep_alive() {
            return (seen, None);
        }
        rest = &rest[head.consumed + consumed..];
    }
}

/// The body at the front of `rest` and the bytes it took, or `None` when it is not whole.
fn read_body(framing: Body, rest: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
    match framing {
        Body::None => Ok(Some((Vec::new(), 0))),
        Body::Length(length) => Ok(usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(..length))
            .map(|body| (body.to_vec(), body.len()))),
        Body::Chunked => {
            let mut decoder = ChunkDecoder::new(BODY_BYTES_MAX);
            let (mut body, mut at) = (Vec::new(), 0);
            loop {
                match decoder.decode(&rest[at..])? {
                    ChunkItem::Data { start, end } => {
                        body.extend_from_slice(&rest[at + start..at + end]);
                        at += end;
                    }
                    ChunkItem::End { consumed } => return Ok(Some((body, at + consumed))),
                    ChunkItem::More { .. } => return Ok(None),
                }
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("a target that we accept is ASCII")
}

/// The method's own name; a `Head` keeps only those that some path knows.
fn method_name(head: &[u8], method: Method) -> String {
    let name = head.trim_ascii_start().split(|&b| b == b' ').next();
    let name = text(name.unwrap_or_default());
    let known = match name.as_str() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "POST" => Method::Post,
        _ => Method::Other,
    };
    assert_eq!(method, known, "{name}");
    name
}

/// Of an absolute target, else of `Host` (RFC 9112, 3.2.2).
fn authority(head: &hyper::http::request::Parts) -> Option<String> {
    let of_target = head.uri.authority().map(ToString::to_string);
    let host = head.headers.get(hyper::header::HOST);
    of_target.or_else(|| host.map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned()))
}

/// The reading of hyper of `stream`: the requests whose bodies arrived whole.
pub(crate) async fn by_hyper(stream: &[u8]) -> Vec<Seen> {
    let (mut client, server) = tokio::io::duplex(PIPE_BYTES);
    client
        .write_all(stream)
        .await
        .expect("the pipe has room for the whole stream");
    client.shutdown().await.expect("a pipe in memory closes");
    let seen = Rc::new(RefCell::new(Vec::new()));
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let seen = Rc::clone(&seen);
        async move {
            let (head, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                seen.borrow_mut().push(Seen {
                    method: head.method.to_string(),
                    authority: authority(&head),
                    path: head.uri.path().to_string(),
                    query: head.uri.query().map(str::to_string),
                    body: body.to_bytes().to_vec(),
                });
            }
            // A success would turn CONNECT into a tunnel.
            let answer = Response::builder().status(404).body(Empty::<Bytes>::new());
            Ok::<_, Infallible>(answer.expect("404 is a status"))
        }
    });
    // How hyper ends a bad stream does not matter; only the requests before count.
    let _end = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(server), service)
        .await;
    seen.take()
}
