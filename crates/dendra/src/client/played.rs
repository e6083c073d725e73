//! A node that a unit test plays: it refuses the requests that the test names, and counts them all.
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
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::TcpListener;

/// It plays as long as the runtime lives.
pub(crate) struct PlayedNode {
    base: BaseUrl,
    requests: Arc<AtomicU64>,
}

impl PlayedNode {
    /// `refuses` gets the number of a request, the first one's is 0. A refusal is a `503` with
    /// `Retry-After: 0`, any other answer a `200` with one byte.
    pub(crate) async fn start(refuses: fn(u64) -> bool) -> PlayedNode {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a client comes");
                let count = Arc::clone(&count);
                let service = service_fn(move |request: hyper::Request<Incoming>| {
                    let count = Arc::clone(&count);
                    async move {
                        let body = request.into_body().collect().await;
                        body.expect("a client sends all of its body");
                        let number = count.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, Infallible>(answer(refuses(number)))
                    }
                });
                let connection = http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(socket), service));
            }
        });
        PlayedNode {
            base: BaseUrl::parse(&format!("http://{address}")).expect("a URL"),
            requests,
        }
    }

    pub(crate) fn base(&self) -> BaseUrl {
        self.base.clone()
    }

    /// How many came so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

fn answer(is_refusal: bool) -> Response<Full<Bytes>> {
    let answer = if is_refusal {
        let refusal = Response::builder().status(503).header("retry-after", "0");
        refusal.body(Full::default())
    } else {
        Response::builder().body(Full::from("v"))
    };
    answer.expect("it is well-formed")
}
