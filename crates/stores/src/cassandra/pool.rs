//! Connections to the servers of Cassandra, each with one question under way.
//!
//! ```text
//! ask ─► the preferred server ─► idle connection, or a new one ─► frame ─► answer
//!          │ no connection:             the next server
//!          │ a read without an answer:  the next server
//!          └ a write without an answer: its fate is told as `known`
//! ```
//!
//! Invariants
//! 1. A statement that changes something is sent once.
//! 2. A connection whose answer was not read to its end is closed, and its server is not the
//!    preferred one for the next question.
//!
//! Not here: the bytes (`cql.rs`), the statements (`mod.rs`).

use super::cql::{self, CqlAnswer, CqlQuery, CqlRow, HEAD_BYTES};
use crate::store::OuterFailure;
use dendra_base::Known;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Connections that are kept for each server.
const IDLE_MAX: usize = 64;
/// A server that takes longer to accept is passed over.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

struct CqlServer {
    address: String,
    idle: Mutex<Vec<TcpStream>>,
}

/// The servers that are asked.
pub(super) struct CqlPool {
    servers: Vec<CqlServer>,
    preferred: AtomicUsize,
}

/// One try: unless it is told to be good, the next question goes to another server.
struct CqlTrial<'a> {
    pool: &'a CqlPool,
    place: usize,
    is_good: bool,
}

impl Drop for CqlTrial<'_> {
    fn drop(&mut self) {
        if !self.is_good {
            let next = (self.place + 1) % self.pool.servers.len();
            let order = Ordering::Relaxed;
            // When another one has moved it on already, that is as good.
            let preferred = &self.pool.preferred;
            let _moved = preferred.compare_exchange(self.place, next, order, order);
        }
    }
}

impl CqlPool {
    pub(super) fn new(servers: &[String]) -> CqlPool {
        let server = |address: &String| CqlServer {
            address: address.clone(),
            idle: Mutex::default(),
        };
        CqlPool {
            servers: servers.iter().map(server).collect(),
            preferred: AtomicUsize::new(0),
        }
    }

    /// Asks. `known` is what is known of a statement without an answer: `NotApplied` = it reads.
    pub(super) async fn ask(
        &self,
        query: &CqlQuery,
        known: Known,
        until: Instant,
    ) -> Result<Vec<CqlRow>, OuterFailure> {
        let frame = query.encode();
        let first = self.preferred.load(Ordering::Relaxed);
        let mut why = OuterFailure::Unreachable("no server was asked in time".to_owned());
        for n in 0..self.servers.len() {
            if until <= Instant::now() {
                break;
            }
            let mut trial = CqlTrial {
                pool: self,
                place: (first + n) % self.servers.len(),
                is_good: false,
            };
            let server = &self.servers[trial.place];
            let named = |reason: &dyn std::fmt::Display| format!("{}: {reason}", server.address);
            let mut stream = match server.connection(until).await {
                Ok(stream) => stream,
                Err(error) => {
                    why = OuterFailure::Unreachable(named(&error));
                    continue;
                }
            };
            let failure = match exchange(&mut stream, &frame).await {
                Err(error) => OuterFailure::Unanswered(known, named(&error)),
                Ok(answer) => {
                    server.keep(stream);
                    let failure = match answer {
                        CqlAnswer::Error(code, sentence) => {
                            cql::said(code, named(&sentence), known)
                        }
                        CqlAnswer::Rows(rows) => {
                            trial.is_good = true;
                            return Ok(rows);
                        }
                        CqlAnswer::Ready | CqlAnswer::Done => {
                            trial.is_good = true;
                            return Ok(Vec::new());
                        }
                    };
                    trial.is_good = !matches!(failure, OuterFailure::Unanswered(..));
                    failure
                }
            };
            match failure {
                OuterFailure::Unanswered(..) if known == Known::NotApplied => why = failure,
                failure => return Err(failure),
            }
        }
        Err(why)
    }
}

impl CqlServer {
    /// A connection on which nothing waits to be read, its end neither.
    async fn connection(&self, until: Instant) -> io::Result<TcpStream> {
        loop {
            let idle = self.idle.lock().expect("no holder panics").pop();
            let Some(stream) = idle else { break };
            match stream.try_read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(stream),
                // It was closed while it was idle.
                Ok(_) | Err(_) => {}
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        let opened = tokio::time::timeout(left.min(CONNECT_TIMEOUT), self.open()).await;
        opened.unwrap_or_else(|_| Err(io::Error::other("does not accept in time")))
    }

    async fn open(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        match exchange(&mut stream, &cql::startup()).await? {
            CqlAnswer::Ready => Ok(stream),
            CqlAnswer::Error(_, sentence) => Err(io::Error::other(sentence)),
            other => Err(io::Error::other(format!("begins with {other:?}"))),
        }
    }

    fn keep(&self, stream: TcpStream) {
        let mut idle = self.idle.lock().expect("no holder panics");
        if idle.len() < IDLE_MAX {
            idle.push(stream);
        }
    }
}

async fn exchange(stream: &mut TcpStream, frame: &[u8]) -> io::Result<CqlAnswer> {
    stream.write_all(frame).await?;
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    let (opcode, length) = cql::head(head).map_err(io::Error::other)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    cql::decode(opcode, &body).map_err(io::Error::other)
}
