//! Connections to the servers of Cassandra, each with one question under way.
//!
//! ```text
//! ask ─► servers in turn ─► idle connection, or a new one ─► prepared there? ─► frame ─► answer
//!          │ no connection, not prepared: the next server
//!          │ a read without an answer:    the next server; it is asked soon, too (`hedge.rs`)
//!          └ a write without an answer:   its fate is told as `known`
//! ```
//!
//! Invariants
//! 1. A statement that changes something is sent once.
//! 2. A server prepares a statement once, and again when it says that it does not know it: then it
//!    changed nothing.
//! 3. A connection whose answer was not read to its end is closed, and its server is asked behind
//!    all others for `AWAY`.
//! 4. Of a pool with a home, no server of another data centre is asked: its replicas would be other
//!    ones.
//!
//! Not here: the bytes (`cql.rs`), the statements (`mod.rs`).

use super::cql::{self, CqlAnswer, CqlLevel, CqlRow, CqlTerms, HEAD_BYTES};
use super::statements::CqlOrder;
use crate::dial::{EngineLink, StoreAccess};
use crate::hedge::{HEDGE_AFTER, Hedges};
use crate::store::OuterFailure;
use dendra_base::Known;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Connections that are kept for each server.
const IDLE_MAX: usize = 64;
/// A server that takes longer to accept, to seal and to know the user is passed over. It hashes the
/// password on purpose slowly.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A server that gave no answer is asked behind all others for so long.
const AWAY: Duration = Duration::from_secs(1);

/// In the first variant of Paxos two linearizable reads of a key outbid each other: there a second
/// one is sent only when the first server seems to stand still.
const HEDGE_OUTBIDDING_AFTER: Duration = Duration::from_secs(1);

struct CqlServer {
    address: String,
    access: StoreAccess,
    /// The data centre in which it has to be; `None` = any.
    home: Option<String>,
    /// Each with the renewals of the access before it was opened.
    idle: Mutex<Vec<(u64, Box<dyn EngineLink>)>>,
    /// The ids of prepared statements.
    prepared: Mutex<[Option<Arc<[u8]>>; CqlOrder::ALL.len()]>,
    /// Milliseconds since the pool began, until which it is away; 0 = it is not.
    away_until_ms: AtomicU64,
}

/// The servers that are asked.
pub(super) struct CqlPool {
    servers: Vec<CqlServer>,
    turn: AtomicUsize,
    begun: Instant,
    hedges: Hedges,
    /// Do linearizable reads of one key outbid each other? Until it is known, they may.
    pub(super) do_reads_outbid: AtomicBool,
}

/// A statement with its values.
pub(super) struct CqlQuery<'a> {
    pub(super) text: &'a str,
    /// Under which it is prepared; `None` = it is sent as text.
    pub(super) order: Option<CqlOrder>,
    pub(super) terms: CqlTerms,
}

/// Why a server gave no answer to a statement.
enum CqlMiss {
    /// The statement was not sent.
    Unsent(String),
    /// It may have been carried out.
    Sent(String),
    /// The server refused to prepare it.
    Refused(i32, String),
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
    pub(super) fn new(servers: &[String], home: Option<&str>, access: &StoreAccess) -> CqlPool {
        let server = |address: &String| CqlServer {
            address: address.clone(),
            access: access.clone(),
            home: home.map(str::to_owned),
            idle: Mutex::default(),
            prepared: Mutex::default(),
            away_until_ms: AtomicU64::new(0),
        };
        CqlPool {
            servers: servers.iter().map(server).collect(),
            turn: AtomicUsize::new(0),
            begun: Instant::now(),
            hedges: Hedges::new(),
            do_reads_outbid: AtomicBool::new(true),
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
        query: &CqlQuery<'_>,
        turn: CqlTurn,
        known: Known,
        until: Instant,
    ) -> Result<Vec<CqlRow>, OuterFailure> {
        let servers = self.in_turn(turn);
        let asked = self.ask_in_turn(query, servers.iter().copied(), known, until);
        if known != Known::NotApplied || turn == CqlTurn::First || servers.len() == 1 {
            return asked.await;
        }
        let others = servers.iter().copied().skip(1);
        let second = self.ask_in_turn(query, others, known, until);
        let is_serial = query.terms.level.local() == CqlLevel::LocalSerial;
        let after = match is_serial && self.do_reads_outbid.load(Ordering::Relaxed) {
            true => HEDGE_OUTBIDDING_AFTER,
            false => HEDGE_AFTER,
        };
        self.hedges.race(after, asked, second).await
    }

    /// Asks one of `servers` after the other until one answers.
    async fn ask_in_turn(
        &self,
        query: &CqlQuery<'_>,
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
            let failure = match server.ask(query, known, until).await {
                Ok(rows) => {
                    trial.is_good = true;
                    return Ok(rows);
                }
                Err(failure) => failure,
            };
            match failure {
                OuterFailure::Unreachable(_) | OuterFailure::Unanswered(Known::NotApplied, _) => {
                    why = failure;
                }
                failure => {
                    trial.is_good = !matches!(failure, OuterFailure::Unanswered(..));
                    return Err(failure);
                }
            }
        }
        Err(why)
    }
}

impl CqlServer {
    /// Asks this server alone.
    async fn ask(
        &self,
        query: &CqlQuery<'_>,
        known: Known,
        until: Instant,
    ) -> Result<Vec<CqlRow>, OuterFailure> {
        let named = |reason: &dyn fmt::Display| format!("{}: {reason}", self.address);
        let renewals = self.access.face.renewals();
        let stream = self.connection(renewals, until).await;
        let mut stream = stream.map_err(|error| OuterFailure::Unreachable(named(&error)))?;
        let answer = self.exchange(&mut stream, query).await;
        let answer = answer.map_err(|no_answer| match no_answer {
            CqlMiss::Unsent(reason) => OuterFailure::Unreachable(named(&reason)),
            CqlMiss::Sent(reason) => OuterFailure::Unanswered(known, named(&reason)),
            CqlMiss::Refused(code, sentence) => {
                cql::said(code, named(&sentence), Known::NotApplied)
            }
        })?;
        self.keep(renewals, stream);
        match answer {
            CqlAnswer::Error(code, sentence) => Err(cql::said(code, named(&sentence), known)),
            CqlAnswer::Rows(rows) => Ok(rows),
            CqlAnswer::Ready | CqlAnswer::AsksUser | CqlAnswer::Prepared(_) | CqlAnswer::Done => {
                Ok(Vec::new())
            }
        }
    }

    /// A connection on which nothing waits to be read, its end neither.
    async fn connection(&self, renewals: u64, until: Instant) -> io::Result<Box<dyn EngineLink>> {
        loop {
            let idle = self.idle.lock().expect("no holder panics").pop();
            let Some((before, stream)) = idle else { break };
            // Otherwise it was opened as another user, or closed while it was idle.
            if before == renewals && stream.is_quiet() {
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
            let Some(login) = self.access.face.login() else {
                return Err(io::Error::other("asks for a user: --store-login-file"));
            };
            answer = exchange(&mut stream, &cql::login(&login)).await?;
        }
        match answer {
            CqlAnswer::Ready => self.check_home(stream).await,
            CqlAnswer::Error(_, sentence) => Err(io::Error::other(sentence)),
            other => Err(io::Error::other(format!("begins with {other:?}"))),
        }
    }

    /// Is it in the data centre where it has to be?
    async fn check_home(&self, mut stream: Box<dyn EngineLink>) -> io::Result<Box<dyn EngineLink>> {
        let Some(home) = &self.home else {
            return Ok(stream);
        };
        let terms = CqlTerms {
            values: Vec::new(),
            level: CqlLevel::One,
            serial: CqlLevel::Serial,
        };
        let text = "SELECT data_center FROM system.local";
        let asked = exchange(&mut stream, &cql::query(text, &terms)).await?;
        let CqlAnswer::Rows(mut rows) = asked else {
            return Err(io::Error::other("does not say in which data centre it is"));
        };
        let found = rows.first_mut().and_then(|row| row.take("data_center"));
        let found = String::from_utf8_lossy(&found.unwrap_or_default()).into_owned();
        match found == *home {
            true => Ok(stream),
            false => Err(io::Error::other(format!(
                "is in the data centre {found}, and ?dc={home} asks those of {home} alone"
            ))),
        }
    }

    /// Sends `query`, prepared where it is to be.
    async fn exchange(
        &self,
        stream: &mut Box<dyn EngineLink>,
        query: &CqlQuery<'_>,
    ) -> Result<CqlAnswer, CqlMiss> {
        let sent = |error: io::Error| CqlMiss::Sent(error.to_string());
        let Some(order) = query.order else {
            let frame = cql::query(query.text, &query.terms);
            return exchange(stream, &frame).await.map_err(sent);
        };
        let known = self.ids()[order as usize].clone();
        if let Some(id) = known {
            let frame = cql::execute(&id, &query.terms);
            match exchange(stream, &frame).await.map_err(sent)? {
                // It started again, or needed the room.
                CqlAnswer::Error(cql::UNPREPARED, _) => self.ids()[order as usize] = None,
                answer => return Ok(answer),
            }
        }
        let unsent = |why: &dyn fmt::Display| CqlMiss::Unsent(why.to_string());
        let prepared = exchange(stream, &cql::prepare(query.text)).await;
        let id: Arc<[u8]> = match prepared.map_err(|error| unsent(&error))? {
            CqlAnswer::Prepared(id) => id.into(),
            CqlAnswer::Error(code, sentence) => return Err(CqlMiss::Refused(code, sentence)),
            _ => return Err(unsent(&"does not prepare a statement")),
        };
        self.ids()[order as usize] = Some(Arc::clone(&id));
        let frame = cql::execute(&id, &query.terms);
        exchange(stream, &frame).await.map_err(sent)
    }

    fn ids(&self) -> MutexGuard<'_, [Option<Arc<[u8]>>; CqlOrder::ALL.len()]> {
        self.prepared.lock().expect("no holder panics")
    }

    fn keep(&self, renewals: u64, stream: Box<dyn EngineLink>) {
        let mut idle = self.idle.lock().expect("no holder panics");
        if idle.len() < IDLE_MAX {
            idle.push((renewals, stream));
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
    use crate::dial::{Dialing, EngineDial, EngineFace};
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

    /// What a server of a test was asked, by opcode, and which statement it has prepared.
    #[derive(Default)]
    struct Asked {
        connections: usize,
        prepares: usize,
        executions: usize,
        id: Option<u8>,
    }

    /// Dials a server that knows no statement until it has prepared it.
    #[derive(Clone, Default)]
    struct DumbDial(Arc<Mutex<Asked>>);

    struct DumbLink(DuplexStream);

    impl AsyncRead for DumbLink {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for DumbLink {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    impl EngineLink for DumbLink {
        fn is_quiet(&self) -> bool {
            true
        }
    }

    impl EngineDial for DumbDial {
        fn dial<'a>(&'a self, _server: &'a str) -> Dialing<'a> {
            let asked = Arc::clone(&self.0);
            asked.lock().expect("no holder panics").connections += 1;
            let (near, far) = tokio::io::duplex(4096);
            tokio::spawn(serve(far, asked));
            Box::pin(async move { Ok(Box::new(DumbLink(near)) as Box<dyn EngineLink>) })
        }
    }

    async fn serve(mut stream: DuplexStream, asked: Arc<Mutex<Asked>>) {
        let mut head = [0; HEAD_BYTES];
        while stream.read_exact(&mut head).await.is_ok() {
            let mut body = vec![0; usize::from(head[8]) + (usize::from(head[7]) << 8)];
            stream.read_exact(&mut body).await.expect("a whole frame");
            let (opcode, body) = answer(head[4], &body, &mut asked.lock().expect("alone"));
            let mut frame = vec![0x84, 0, 0, 0, opcode, 0, 0, 0, body.len() as u8];
            frame.extend_from_slice(&body);
            stream.write_all(&frame).await.expect("it reads");
        }
    }

    /// The answer to a frame.
    fn answer(opcode: u8, body: &[u8], asked: &mut Asked) -> (u8, Vec<u8>) {
        const DONE: [u8; 4] = [0, 0, 0, 1];
        match opcode {
            1 => (2, Vec::new()),
            9 => {
                asked.prepares += 1;
                asked.id = Some(asked.prepares as u8);
                (
                    8,
                    [&[0, 0, 0, 4, 0, 1][..], &[asked.prepares as u8]].concat(),
                )
            }
            10 if asked.id == Some(body[2]) => {
                asked.executions += 1;
                (8, DONE.to_vec())
            }
            10 => (
                0,
                [&cql::UNPREPARED.to_be_bytes()[..], &[0, 1, b'?']].concat(),
            ),
            // One row: the data centre is `west`.
            7 => {
                let mut rows = [2, 1, 1].map(i32::to_be_bytes).concat();
                rows.extend_from_slice(
                    b"\0\x01s\0\x01t\0\x0bdata_center\0\x0d\0\0\0\x01\0\0\0\x04west",
                );
                (8, rows)
            }
            _ => panic!("opcode {opcode}"),
        }
    }

    fn pool_of(dial: &DumbDial, home: Option<&str>) -> (CqlPool, Arc<EngineFace>) {
        let access = StoreAccess {
            dial: Arc::new(dial.clone()),
            face: Arc::default(),
        };
        let pool = CqlPool::new(&["a".to_owned()], home, &access);
        (pool, access.face)
    }

    async fn write(pool: &CqlPool) -> Result<(), OuterFailure> {
        let query = CqlQuery {
            text: "UPDATE …",
            order: Some(CqlOrder::Create),
            terms: CqlTerms {
                values: Vec::new(),
                level: CqlLevel::Quorum,
                serial: CqlLevel::Serial,
            },
        };
        let until = Instant::now() + Duration::from_secs(60);
        let asked = pool.ask(&query, CqlTurn::Next, Known::Unknown, until);
        asked.await.map(drop)
    }

    #[tokio::test]
    async fn a_statement_is_prepared_once_and_again_by_a_server_that_forgot_it() {
        let dial = DumbDial::default();
        let (pool, face) = pool_of(&dial, None);
        let counts = || {
            let asked = dial.0.lock().expect("no holder panics");
            (asked.connections, asked.prepares, asked.executions)
        };
        for _ in 0..3 {
            write(&pool).await.expect("it is taken");
        }
        assert_eq!(counts(), (1, 1, 3));
        dial.0.lock().expect("no holder panics").id = None;
        write(&pool).await.expect("it is taken");
        assert_eq!(counts(), (1, 2, 4), "prepared again, and executed once");
        // What is shown to the engine has changed: no connection of before is used.
        face.renew(None);
        write(&pool).await.expect("it is taken");
        write(&pool).await.expect("it is taken");
        assert_eq!(counts(), (2, 2, 6));
    }

    #[tokio::test]
    async fn a_server_of_another_data_centre_is_not_asked() {
        let dial = DumbDial::default();
        let (pool, _face) = pool_of(&dial, Some("east"));
        let refused = write(&pool).await.expect_err("it is elsewhere");
        let sentence = "a: is in the data centre west, and ?dc=east asks those of east alone";
        assert_eq!(refused, OuterFailure::Unreachable(sentence.to_owned()));
        let (pool, _face) = pool_of(&dial, Some("west"));
        write(&pool).await.expect("it is at home");
        assert_eq!(dial.0.lock().expect("no holder panics").executions, 1);
    }

    #[test]
    fn servers_take_turns_and_one_that_is_away_comes_last() {
        let access = StoreAccess {
            dial: Arc::new(crate::dial::ClearDial),
            face: Arc::default(),
        };
        let pool = CqlPool::new(&["a", "b", "c"].map(str::to_owned), None, &access);
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
