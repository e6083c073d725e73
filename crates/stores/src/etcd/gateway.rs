//! Requests to the HTTP/JSON gateway of etcd's servers.
//!
//! ```text
//! ask ─► the preferred server ─► idle connection, or a new one ─► POST /v3/… ─► JSON
//!          │ no connection, nothing sent: the next server
//!          │ a read without an answer:    the next server; it is asked soon, too (`hedge.rs`)
//!          └ a write without an answer:   unknown
//! user and password ─► auth/authenticate ─► a token in every request, until etcd knows it no more
//! ```
//!
//! Invariants
//! 1. A write is sent once: a request is repeated only when it never left, or when it reads.
//! 2. A server that fails, or whose answer is not waited for to its end, is not the preferred one
//!    for the next request.
//! 3. At most `IDLE_MAX` idle connections for each server, and `bytes_max` of an answer in memory.
//!
//! Not here: the questions (`mod.rs`).

use crate::dial::{EngineFace, EngineLogin, StoreAccess};
use crate::hedge::{HEDGE_AFTER, Hedges};
use crate::store::OuterFailure;
use bytes::Bytes;
use dendra_base::Known;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Connections that are kept for each server; as many as requests are under way at once, usually.
const IDLE_MAX: usize = 64;
/// A server that takes longer to accept is passed over.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A token has a few dozen bytes, or is a signed one of a few hundred.
const TOKEN_ANSWER_BYTES_MAX: usize = 16 << 10;
/// Codes of gRPC.
const INVALID_ARGUMENT: u64 = 3;
const OUT_OF_RANGE: u64 = 11;
const NOT_FOUND: u64 = 5;
const PERMISSION_DENIED: u64 = 7;
const RESOURCE_EXHAUSTED: u64 = 8;
const UNAUTHENTICATED: u64 = 16;

type GatewayLink = SendRequest<Full<Bytes>>;

/// May a request be repeated although it may have been carried out?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resend {
    /// Yes: the request reads.
    Freely,
    /// No: the request changes something.
    Never,
}

/// One request.
#[derive(Clone, Copy)]
pub(super) struct GatewayAsk<'a> {
    /// After `/v3/`.
    pub(super) path: &'a str,
    pub(super) body: &'a Value,
    pub(super) repeat: Resend,
    /// The most bytes of the answer.
    pub(super) bytes_max: usize,
    pub(super) until: Instant,
    /// Set by [`Gateway::ask`].
    pub(super) token: Option<&'a str>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoJson {
    /// The answer is longer than `bytes_max`.
    TooLong,
    /// The token is not, or no longer, one that etcd knows: the record did not change.
    Stranger(String),
    /// etcd does not know the lease: the record did not change.
    NoLease(String),
    /// Anything else.
    OuterFailure(OuterFailure),
}

impl From<OuterFailure> for NoJson {
    fn from(failure: OuterFailure) -> NoJson {
        NoJson::OuterFailure(failure)
    }
}

struct GatewayServer {
    address: String,
    access: StoreAccess,
    /// Each with the renewals before it was opened.
    idle: Mutex<Vec<(u64, GatewayLink)>>,
}

/// The servers of one cluster.
pub(super) struct Gateway {
    servers: Vec<GatewayServer>,
    preferred: AtomicUsize,
    hedges: Hedges,
    face: Arc<EngineFace>,
    /// The user's token, and whose it is.
    token: tokio::sync::Mutex<Option<(EngineLogin, String)>>,
}

/// One try at one server: unless it is told to be good, the next request goes to another one.
struct Trial<'a> {
    gateway: &'a Gateway,
    place: usize,
    is_good: bool,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if !self.is_good {
            let next = (self.place + 1) % self.gateway.servers.len();
            let order = Ordering::Relaxed;
            // When another one has moved it on already, that is as good.
            let _moved = self
                .gateway
                .preferred
                .compare_exchange(self.place, next, order, order);
        }
    }
}

/// How a try ended without an answer.
enum Missed {
    /// No request was sent.
    Unsent(String),
    /// The request may have been carried out.
    Sent(String),
    /// The server answered that it cannot.
    Said(OuterFailure),
    /// The server answered that it does not know the asker.
    Stranger(String),
    /// The server answered that it does not know the lease.
    NoLease(String),
    TooLong,
}

impl Gateway {
    pub(super) fn new(servers: &[String], access: &StoreAccess) -> Gateway {
        let server = |address: &String| GatewayServer {
            address: address.clone(),
            access: access.clone(),
            idle: Mutex::default(),
        };
        Gateway {
            servers: servers.iter().map(server).collect(),
            preferred: AtomicUsize::new(0),
            hedges: Hedges::new(),
            face: Arc::clone(&access.face),
            token: tokio::sync::Mutex::default(),
        }
    }

    /// Asks until a server answers; as the user, where there is one.
    pub(super) async fn ask(&self, question: GatewayAsk<'_>) -> Result<Value, NoJson> {
        let Some(login) = self.face.login() else {
            return self.ask_some(question).await;
        };
        let token = self.token(&login, None, question.until).await?;
        let as_user = |with| GatewayAsk {
            token: Some(with),
            ..question
        };
        match self.ask_some(as_user(&token)).await {
            // Tokens end after minutes, and with the server that gave them.
            Err(NoJson::Stranger(_)) => {
                let newer = self.token(&login, Some(&token), question.until).await?;
                self.ask_some(as_user(&newer)).await
            }
            answered => answered,
        }
    }

    /// The user's token, another one than `old`.
    async fn token(
        &self,
        login: &EngineLogin,
        old: Option<&str>,
        until: Instant,
    ) -> Result<String, NoJson> {
        // Held until etcd has answered: others wait for the same token.
        let mut kept = self.token.lock().await;
        let own = kept.as_ref().filter(|(of, _)| of == login);
        if let Some((_, token)) = own.filter(|(_, token)| Some(token.as_str()) != old) {
            return Ok(token.clone());
        }
        let body = json!({"name": login.user, "password": login.password});
        let question = GatewayAsk {
            path: "auth/authenticate",
            body: &body,
            repeat: Resend::Freely,
            bytes_max: TOKEN_ANSWER_BYTES_MAX,
            until,
            token: None,
        };
        let answer = self.ask_some(question).await?;
        let token = answer["token"].as_str().ok_or_else(|| {
            OuterFailure::Failed(
                "etcd gives the user no token: is its authentication on?".to_owned(),
            )
        })?;
        *kept = Some((login.clone(), token.to_owned()));
        Ok(token.to_owned())
    }

    /// Asks until a server answers.
    async fn ask_some(&self, question: GatewayAsk<'_>) -> Result<Value, NoJson> {
        let first = self.preferred.load(Ordering::Relaxed);
        let asked = self.ask_in_turn(question, first);
        if question.repeat == Resend::Never || self.servers.len() == 1 {
            return asked.await;
        }
        let second = self.ask_in_turn(question, first + 1);
        self.hedges.race(HEDGE_AFTER, asked, second).await
    }

    /// Asks one server after the other, `first` first, until one answers.
    async fn ask_in_turn(&self, question: GatewayAsk<'_>, first: usize) -> Result<Value, NoJson> {
        let mut why = OuterFailure::Unreachable("no server of etcd was asked in time".to_owned());
        for n in 0..self.servers.len() {
            if question.until <= Instant::now() {
                break;
            }
            let mut trial = Trial {
                gateway: self,
                place: (first + n) % self.servers.len(),
                is_good: false,
            };
            let server = &self.servers[trial.place];
            let missed = match server.ask(&question).await {
                Ok(answer) => {
                    trial.is_good = true;
                    return Ok(answer);
                }
                Err(missed) => missed,
            };
            let known = match question.repeat {
                Resend::Freely => Known::NotApplied,
                Resend::Never => Known::Unknown,
            };
            let name = &server.address;
            why = match missed {
                Missed::TooLong => {
                    trial.is_good = true;
                    return Err(NoJson::TooLong);
                }
                Missed::Stranger(reason) => {
                    trial.is_good = true;
                    return Err(NoJson::Stranger(reason));
                }
                Missed::NoLease(reason) => {
                    trial.is_good = true;
                    return Err(NoJson::NoLease(reason));
                }
                Missed::Unsent(reason) => OuterFailure::Unreachable(format!("{name}: {reason}")),
                Missed::Sent(reason) => {
                    OuterFailure::Unanswered(known, format!("{name}: {reason}"))
                }
                Missed::Said(OuterFailure::Unanswered(_, reason)) => {
                    OuterFailure::Unanswered(known, format!("{name}: {reason}"))
                }
                Missed::Said(failure) => {
                    trial.is_good = true;
                    return Err(failure.into());
                }
            };
            if question.repeat == Resend::Never && matches!(why, OuterFailure::Unanswered(..)) {
                break;
            }
        }
        Err(why.into())
    }
}

impl GatewayServer {
    async fn ask(&self, question: &GatewayAsk<'_>) -> Result<Value, Missed> {
        let body = Bytes::from(question.body.to_string());
        loop {
            let renewals = self.access.face.renewals();
            let idle = self.idle.lock().expect("no holder panics").pop();
            let idle = match idle {
                // It was opened with the papers that the front door showed before.
                Some((before, _)) if before != renewals => continue,
                Some((_, idle)) => Some(idle),
                None => None,
            };
            let was_idle = idle.is_some();
            let mut connection = match idle {
                Some(idle) => idle,
                None => self.connect(question.until).await?,
            };
            if connection.ready().await.is_err() {
                if was_idle {
                    continue;
                } else {
                    return Err(Missed::Unsent("closes its connections".to_owned()));
                }
            }
            let left = question.until.saturating_duration_since(Instant::now());
            let request = Request::post(format!("/v3/{}", question.path))
                .header("host", &self.address)
                .header("content-type", "application/json")
                .header("grpc-timeout", format!("{}m", left.as_millis().max(1)));
            let request = match question.token {
                Some(token) => request.header("authorization", token),
                None => request,
            };
            let request = request.body(Full::new(body.clone()));
            let request = request.map_err(|_| Missed::Unsent("gives a bad token".to_owned()))?;
            let mut response = match connection.try_send_request(request).await {
                Ok(response) => response,
                Err(mut error) => match (error.take_message(), was_idle) {
                    (Some(_), true) => continue,
                    (Some(_), false) => return Err(Missed::Unsent(error.into_error().to_string())),
                    (None, _) => return Err(Missed::Sent(error.into_error().to_string())),
                },
            };
            let text = read_body(&mut response, question.bytes_max).await?;
            let status = response.status().as_u16();
            let mut kept = self.idle.lock().expect("no holder panics");
            if kept.len() < IDLE_MAX {
                kept.push((renewals, connection));
            }
            drop(kept);
            let answer: Value = serde_json::from_slice(&text).map_err(|_| {
                let start = String::from_utf8_lossy(&text[..text.len().min(200)]);
                Missed::Sent(format!("{status}, and no JSON: {}", start.trim()))
            })?;
            return match status {
                200 => Ok(answer),
                _ if is_stranger(&answer) => Err(Missed::Stranger(answer["error"].to_string())),
                _ if is_without_lease(&answer) => Err(Missed::NoLease(answer["error"].to_string())),
                _ => Err(Missed::Said(said(status, &answer))),
            };
        }
    }

    async fn connect(&self, until: Instant) -> Result<GatewayLink, Missed> {
        let unsent = |error: &dyn std::fmt::Display| Missed::Unsent(error.to_string());
        let left = until.saturating_duration_since(Instant::now());
        let opening = self.access.dial.dial(&self.address);
        let opened = tokio::time::timeout(left.min(CONNECT_TIMEOUT), opening).await;
        let stream = match opened {
            Ok(stream) => stream.map_err(|error| unsent(&error))?,
            Err(_) => return Err(unsent(&"does not accept a connection in time")),
        };
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (connection, io) = shaken.map_err(|error| unsent(&error))?;
        tokio::spawn(async move {
            if let Err(error) = io.await {
                tracing::debug!(%error, "a connection to etcd ended");
            }
        });
        Ok(connection)
    }
}

async fn read_body(response: &mut Response<Incoming>, most: usize) -> Result<Vec<u8>, Missed> {
    let mut text = Vec::new();
    while let Some(frame) = response.body_mut().frame().await {
        let frame = frame.map_err(|error| Missed::Sent(error.to_string()))?;
        if let Some(piece) = frame.data_ref() {
            if text.len() + piece.len() > most {
                return Err(Missed::TooLong);
            }
            text.extend_from_slice(piece);
        }
    }
    Ok(text)
}

/// Is the token unknown, or from before a change of users? etcd says so before it changes anything.
fn is_stranger(answer: &Value) -> bool {
    let text = answer["error"].as_str().unwrap_or_default();
    text.contains("invalid auth token") || text.contains("revision of auth store is old")
}

/// Is the lease unknown? etcd says so before it changes anything.
fn is_without_lease(answer: &Value) -> bool {
    let text = answer["error"].as_str().unwrap_or_default();
    answer["code"].as_u64() == Some(NOT_FOUND) && text.contains("lease not found")
}

/// The meaning of an error of etcd. Everything that does not surely precede the write leaves it
/// open.
fn said(status: u16, answer: &Value) -> OuterFailure {
    let text = answer["error"].as_str().unwrap_or("no reason").to_owned();
    let code = answer["code"].as_u64().unwrap_or_default();
    match code {
        RESOURCE_EXHAUSTED if text.contains("space exceeded") => OuterFailure::Full(text),
        RESOURCE_EXHAUSTED if text.contains("too many requests") => OuterFailure::Busy(text),
        INVALID_ARGUMENT if text.contains("too large") => OuterFailure::TooLarge(text),
        // gRPC's own bound: etcd has not seen the request.
        RESOURCE_EXHAUSTED if text.contains("message larger than max") => {
            OuterFailure::TooLarge(text)
        }
        // A revision that was compacted: only reads name one.
        INVALID_ARGUMENT | OUT_OF_RANGE => OuterFailure::Failed(text),
        PERMISSION_DENIED | UNAUTHENTICATED => OuterFailure::Failed(format!(
            "{text}: the user of --store-login-file needs a role that reads and writes the prefix"
        )),
        _ => OuterFailure::Unanswered(Known::Unknown, format!("{status} {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_may_follow_the_write_leaves_it_open() {
        let unknown = [
            (14, "etcdserver: request timed out"),
            (14, "etcdserver: leader changed"),
            (4, "context deadline exceeded"),
            (2, "etcdserver: corrupt cluster"),
        ];
        for (code, text) in unknown {
            let failure = said(503, &json!({"error": text, "code": code}));
            assert!(
                matches!(failure, OuterFailure::Unanswered(Known::Unknown, _)),
                "{text}"
            );
        }
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        let compacted = said(400, &json!({"error": compacted, "code": 11}));
        assert!(matches!(compacted, OuterFailure::Failed(_)));
        let full = json!({"error": "etcdserver: mvcc: database space exceeded", "code": 8});
        assert!(matches!(said(429, &full), OuterFailure::Full(_)));
        let old = json!({"error": "etcdserver: revision of auth store is old", "code": 3});
        assert!(is_stranger(&old) && !is_stranger(&full));
        let large = json!({"error": "etcdserver: request is too large", "code": 3});
        assert!(matches!(said(400, &large), OuterFailure::TooLarge(_)));
        let larger = "grpc: received message larger than max (2100033 vs. 2097152)";
        let larger = json!({"error": larger, "code": 8});
        assert!(matches!(said(429, &larger), OuterFailure::TooLarge(_)));
        let gone = json!({"error": "etcdserver: requested lease not found", "code": 5});
        assert!(is_without_lease(&gone) && !is_without_lease(&large));
    }
}
