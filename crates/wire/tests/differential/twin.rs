//! One stream of bytes, read by our parser and by hyper's.
//!
//! ```text
//! stream --> parse_head, ChunkDecoder -----------> Seen, Seen, …, perhaps a refusal
//!       \--> hyper http1 over an in-memory pipe --> Seen, Seen, …
//! ```
//!
//! Invariants
//! 1. A request counts as seen only when its body is whole.
//!
//! Not here: which streams (`main.rs` draws them from a grammar, `fuzz/` from a fuzzer).
//! See: docs/api.md, section "HTTP".

use dendra_wire::Refusal;
use dendra_wire::http::{Body, ChunkDecoder, Limits, Method, Parsed, Step, parse_head};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use tokio::io::AsyncWriteExt;

/// One request as a parser understood it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// Largest body of either side: more than any stream holds.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// Room of the pipe: more than any stream and all its answers hold.
const PIPE_BYTES: usize = 1 << 20;

/// What we make of `stream`: the requests, and the refusal that ended it, if one did.
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
                    Step::Data { start, end } => {
                        body.extend_from_slice(&rest[at + start..at + end]);
                        at += end;
                    }
                    Step::End { consumed } => return Ok(Some((body, at + consumed))),
                    Step::More { .. } => return Ok(None),
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
        _ => Method::Other,
    };
    assert_eq!(method, known, "{name}");
    name
}

/// What hyper makes of `stream`: the requests whose bodies arrived whole.
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
    // How hyper ends a bad stream does not matter, only what it took for requests before.
    let _end = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(server), service)
        .await;
    seen.take()
}
