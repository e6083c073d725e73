//! Connections to the servers of Cassandra, each with one question under way.
//!
//! ```text
//! ask ─► servers in turn ─► idle connection, or a new one ─► frame ─► answer
//!          │ no connection:             the next server
//!          │ a read without an answer:  the next server; it is asked soon, too (`hedge.rs`)
//!          └ a write without an answer: its fate is told as `known`
//! ```
//!
//! Invariants
//! 1. A statement that changes something is sent once.
//! 2. A connection whose answer was not read to its end is closed, and its server is asked behind
//!    all others for `AWAY`.
//!
//! Not here: the bytes (`cql.rs`), the statements (`mod.rs`).

use super::cql::{self, CqlAnswer, CqlQuery, CqlRow, HEAD_BYTES};
use crate::dial::{EngineLink, StoreAccess};
use crate::hedge::Hedges;
use crate::store::OuterFailure;
use dendra_base::Known;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Connections that are kept for each server.
const IDLE_MAX: usize = 64;
/// A server that takes longer to accept, to seal and to know the user is passed over. It hashes the
/// password on purpose slowly.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A server that gave no answer is asked behind all others for so long.
const AWAY: Duration = Duration::from_secs(1);

struct CqlServer {
    address: String,
    access: StoreAccess,
    idle: Mutex<Vec<Box<dyn EngineLink>>>,
    /// Milliseconds since the pool began, until which it is away; 0 = it is not.
    away_until_ms: AtomicU64,
}

/// The servers that are asked.
pub(super) struct CqlPool {
    servers: Vec<CqlServer>,
    turn: AtomicUsize,
    begun: Instant,
    hedges: Hedges,
}

/// Which server is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CqlTurn {
    /// Another one for each question.
    Next,
    /// The first of the list that is not away. Tables are made there: Cassandra makes a table twice
    /// when two servers are asked at once.
    First,
}

/// One try: unless it is told to be good, the server is away for a while.
struct CqlTrial<'a> {
    server: &'a CqlServer,
    away_until_ms: u64,
    is_good: bool,
}

impl Drop for CqlTrial<'_> {
    fn drop(&mut self) {
        let until_ms = if self.is_good { 0 } else { self.away_until_ms };
        self.server.away_until_ms.store(until_ms, Ordering::Relaxed);
    }
}

impl CqlPool {
    pub(super) fn new(servers: &[String], access: &StoreAccess) -> CqlPool {
        let server = |address: &String| CqlServer {
            address: address.clone(),
            access: access.clone(),
            idle: Mutex::default(),
            away_until_ms: AtomicU64::new(0),
        };
        CqlPool {
            servers: servers.iter().map(server).collect(),
            turn: AtomicUsize::new(0),
            begun: Instant::now(),
            hedges: Hedges::new(),
        }
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// All servers, those that are away behind the others.
    fn in_turn(&self, turn: CqlTurn) -> Vec<&CqlServer> {
        let first = match turn {
            CqlTurn::Next => self.turn.fetch_add(1, Ordering::Relaxed),
            CqlTurn::First => 0,
        };
        let (count, now_ms) = (self.servers.len(), self.now_ms());
        let mut servers: Vec<_> = (0..count)
            .map(|n| &self.servers[(first % count + n) % count])
            .collect();
        let is_away = |server: &&CqlServer| server.away_until_ms.load(Ordering::Relaxed) > now_ms;
        servers.sort_by_key(is_away);
        servers
    }

    /// Asks. `known` is what is known of a statement without an answer: `NotApplied` = it reads.
    pub(super) async fn ask(
        &self,
        query: &CqlQuery,
        turn: CqlTurn,
        known: Known,
        until: Instant,
    ) -> Result<Vec<CqlRow>, OuterFailure> {
        let frame = query.encode();
        let servers = self.in_turn(turn);
        let asked = self.ask_in_turn(&frame, servers.iter().copied(), known, until);
        if known != Known::NotApplied || turn == CqlTurn::First || servers.len() == 1 {
            return asked.await;
        }
        let others = servers.iter().copied().skip(1);
        let second = self.ask_in_turn(&frame, others, known, until);
        self.hedges.race(asked, second).await
    }

    /// Asks one of `servers` after the other until one answers.
    async fn ask_in_turn(
        &self,
        frame: &[u8],
        servers: impl Iterator<Item = &CqlServer>,
        known: Known,
        until: Instant,
    ) -> Result<Vec<CqlRow>, OuterFailure> {
        let mut why = OuterFailure::Unreachable("no server was asked in time".to_owned());
        for server in servers {
            if until <= Instant::now() {
                break;
            }
            let mut trial = CqlTrial {
                server,
                away_until_ms: self.now_ms() + AWAY.as_millis() as u64,
                is_good: false,
            };
            let named = |reason: &dyn std::fmt::Display| format!("{}: {reason}", server.address);
            let mut stream = match server.connection(until).await {
                Ok(stream) => stream,
                Err(error) => {
                    why = OuterFailure::Unreachable(named(&error));
                    continue;
                }
            };
            let failure = match exchange(&mut stream, frame).await {
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
                        CqlAnswer::Ready | CqlAnswer::AsksUser | CqlAnswer::Done => {
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
    async fn connection(&self, until: Instant) -> io::Result<Box<dyn EngineLink>> {
        loop {
            let idle = self.idle.lock().expect("no holder panics").pop();
            let Some(stream) = idle else { break };
            // Otherwise it was closed while it was idle.
            if stream.is_quiet() {
                return Ok(stream);
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        let opened = tokio::time::timeout(left.min(CONNECT_TIMEOUT), self.open()).await;
        opened.unwrap_or_else(|_| Err(io::Error::other("does not accept in time")))
    }

    async fn open(&self) -> io::Result<Box<dyn EngineLink>> {
        let mut stream = self.access.dial.dial(&self.address).await?;
        let mut answer = exchange(&mut stream, &cql::startup()).await?;
        if answer == CqlAnswer::AsksUser {
            let Some(login) = &self.access.login else {
                return Err(io::Error::other("asks for a user: --store-login-file"));
            };
            answer = exchange(&mut stream, &cql::login(login)).await?;
        }
        match answer {
            CqlAnswer::Ready => Ok(stream),
            CqlAnswer::Error(_, sentence) => Err(io::Error::other(sentence)),
            other => Err(io::Error::other(format!("begins with {other:?}"))),
        }
    }

    fn keep(&self, stream: Box<dyn EngineLink>) {
        let mut idle = self.idle.lock().expect("no holder panics");
        if idle.len() < IDLE_MAX {
            idle.push(stream);
        }
    }
}

async fn exchange(stream: &mut Box<dyn EngineLink>, frame: &[u8]) -> io::Result<CqlAnswer> {
    stream.write_all(frame).await?;
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    let (opcode, length) = cql::head(head).map_err(io::Error::other)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    cql::decode(opcode, &body).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn servers_take_turns_and_one_that_is_away_comes_last() {
        let access = StoreAccess {
            dial: Arc::new(crate::dial::ClearDial),
            login: None,
        };
        let pool = CqlPool::new(&["a", "b", "c"].map(str::to_owned), &access);
        let order = |turn| {
            let servers = pool.in_turn(turn).into_iter();
            servers
                .map(|server| server.address.as_str())
                .collect::<String>()
        };
        assert_eq!(order(CqlTurn::Next), "abc");
        assert_eq!(order(CqlTurn::Next), "bca");
        let trial = |server, is_good| CqlTrial {
            server,
            away_until_ms: u64::MAX,
            is_good,
        };
        drop(trial(&pool.servers[0], false));
        assert_eq!(order(CqlTurn::First), "bca");
        assert_eq!(order(CqlTurn::Next), "cba");
        assert_eq!(order(CqlTurn::Next), "bca");
        drop(trial(&pool.servers[0], true));
        assert_eq!(order(CqlTurn::First), "abc");
    }
}
