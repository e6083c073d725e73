//! A node that a unit test plays: it answers each request as the test says, and counts them all.
//!
//! Invariants
//! 1. A request is counted before its answer is sent: a client that has the answer is counted.
//!
//! Not here: nodes beside real processes (`ScriptedNode` in `tests/support`).

use super::BaseUrl;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlayedReply {
    /// A `200` with one byte.
    Value,
    /// A `200` with one byte of a record that ends at this Unix millisecond.
    Ending(u64),
    /// A `201`.
    Created,
    /// A `200` of a scan that found nothing.
    NoRecords,
    /// A scan with one record, the key `k`, that ends in the middle.
    CutScan,
    /// A `503` with this `Retry-After`.
    Refusal(Option<u64>),
    /// The connection ends instead.
    Nothing,
}

/// A node that is played. It plays as long as the runtime lives.
pub(crate) struct PlayedNode {
    base: BaseUrl,
    requests: Arc<AtomicU64>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl PlayedNode {
    /// `script` gets the number of a request, the first one's is 0.
    pub(crate) async fn start(script: fn(u64) -> PlayedReply) -> PlayedNode {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&requests);
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let lines = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a client comes");
                let (count, lines) = (Arc::clone(&count), Arc::clone(&lines));
                let service = service_fn(move |request: hyper::Request<Incoming>| {
                    let count = Arc::clone(&count);
                    let line = format!("{} {}", request.method(), request.uri());
                    lines.lock().expect("no holder panics").push(line);
                    async move {
                        let body = request.into_body().collect().await;
                        body.expect("a client sends all of its body");
                        let number = count.fetch_add(1, Ordering::Relaxed);
                        answer(script(number))
                    }
                });
                let connection = http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(socket), service));
            }
        });
        PlayedNode {
            base: BaseUrl::parse(&format!("http://{address}")).expect("a URL"),
            requests,
            asked,
        }
    }

    /// Method and path of all that came so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no holder panics").clone()
    }

    pub(crate) fn base(&self) -> BaseUrl {
        self.base.clone()
    }

    /// How many came so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

fn answer(reply: PlayedReply) -> io::Result<Response<Full<Bytes>>> {
    let records = "application/vnd.dendra.records";
    let scan = Response::builder().header("content-type", records);
    let answer = match reply {
        PlayedReply::Value => Response::builder().body(Full::from("v")),
        PlayedReply::Ending(expires_ms) => Response::builder()
            .header("dendra-expires", expires_ms.to_string())
            .header("etag", "\"1-1\"")
            .body(Full::from("v")),
        PlayedReply::Created => Response::builder()
            .status(201)
            .header("etag", "\"2-1\"")
            .body(Full::default()),
        PlayedReply::NoRecords => scan.body(Full::from(&[0xff; 8][..])),
        PlayedReply::CutScan => scan.body(Full::from(&b"\0\0\0\x01\0\0\0\0k"[..])),
        PlayedReply::Refusal(asked) => {
            let refusal = Response::builder().status(503);
            let refusal = asked.into_iter().fold(refusal, |refusal, seconds| {
                refusal.header("retry-after", seconds)
            });
            refusal.body(Full::default())
        }
        PlayedReply::Nothing => return Err(io::Error::other("as the test says")),
    };
    Ok(answer.expect("it is well-formed"))
}
