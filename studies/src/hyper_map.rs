//! The library yardstick: hyper's HTTP/1.1 on a current-thread runtime, answering from a hash map.
//!
//! ```text
//! GET /v0/entity?id=<key>   200 and the value, or 404
//! PUT /v0/entity?id=<key>   201
//! ```
//!
//! Invariants
//! 1. hyper's defaults, `TCP_NODELAY`, one thread, no lock: the price of a good Rust service before
//!    it does any work of its own.
//!
//! Not here: durability, conditions, limits. Keys need no percent-decoding; `%` is answered 400.
//! See: docs/lab/README.md.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::net::TcpListener;

type Map = RefCell<HashMap<Vec<u8>, Bytes>>;

/// Serves for ever.
pub(crate) fn serve() -> Result<(), String> {
    listen().map_err(|e| format!("the map behind hyper: {e}"))
}

fn listen() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build_local(tokio::runtime::LocalOptions::default())?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        eprintln!("listening on http://{}", listener.local_addr()?);
        let map = Rc::new(Map::default());
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let map = Rc::clone(&map);
            tokio::task::spawn_local(async move {
                let service = service_fn(move |request| answer(Rc::clone(&map), request));
                let served = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
                if let Err(error) = served {
                    eprintln!("a connection ended: {error}");
                }
            });
        }
    })
}

async fn answer(
    map: Rc<Map>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let key = request
        .uri()
        .query()
        .and_then(|query| query.strip_prefix("id="));
    let Some(key) = key.filter(|key| !key.contains('%') && request.uri().path() == "/v0/entity")
    else {
        return Ok(plain(StatusCode::BAD_REQUEST, Bytes::new()));
    };
    match *request.method() {
        Method::GET => {
            let value = map.borrow().get(key.as_bytes()).cloned();
            Ok(value.map_or_else(
                || plain(StatusCode::NOT_FOUND, Bytes::new()),
                |value| plain(StatusCode::OK, value),
            ))
        }
        Method::PUT => {
            let key = key.as_bytes().to_vec();
            let value = request.into_body().collect().await?.to_bytes();
            // A copy: the collected bytes would keep the connection's whole read buffer alive.
            map.borrow_mut().insert(key, Bytes::copy_from_slice(&value));
            Ok(plain(StatusCode::CREATED, Bytes::new()))
        }
        _ => Ok(plain(StatusCode::METHOD_NOT_ALLOWED, Bytes::new())),
    }
}

fn plain(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}
