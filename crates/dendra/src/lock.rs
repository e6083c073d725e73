//! `dendra lock`: runs a command while this process holds a lease, a record with an end.
//!
//! ```text
//! PUT If-None-Match: * ─ 201 ─► held: the version is the fencing token ─► command
//!    ▲                 ─ 412 ─► another holder: a pause ─┐             │  POST /v0/touch If-Match
//!    └───────────────────────────────────────────────────┘             │  at a third of the time
//! command ends ─► DELETE If-Match ─► its exit code  ◄──────────────────┤
//! not renewed in time, or another holder's ─► SIGTERM, SIGKILL ─► 124  ◄┘
//! ```
//!
//! Invariants
//! 1. A lease is counted from the moment before its request was sent, on the monotonic clock. So it
//!    ends here no later than at a node whose clock runs as fast.
//! 2. The command's process group is dead, or was sent SIGKILL, when the lease has run out.
//! 3. The record says whose it is by a value that was drawn. So after an answer that got lost a
//!    read tells whether the lock is held, and a touch begins its lease.
//! 4. A record of another holder is neither touched nor deleted: each request has `If-Match`.
//!
//! Not here: what a protected resource does with the token (docs/locks.md).

use crate::cli::LockArgs;
use crate::client::{Client, HttpRequest, Trouble, WholeAnswer};
use crate::console::{Console, show_key};
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops::{Query, client, key_bytes};
use bytes::Bytes;
use dendra_base::Version;
use dendra_wire::meta::MetaBuf;
use hyper::Method;
use rustix::process::{Pid, Signal, kill_process_group};
use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// Between two looks at a lock that another process holds.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// The longest time from SIGTERM to SIGKILL.
const GRACE_MAX: Duration = Duration::from_secs(5);
/// A request that has no answer by then is given up and sent again.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Signals that wait to be handed on; the system keeps one of each kind besides.
const SIGNALS_LEN_MAX: usize = 16;

/// Signals that are handed on to the command.
const HANDED_ON: [(SignalKind, Signal); 6] = [
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::user_defined1(), Signal::USR1),
    (SignalKind::user_defined2(), Signal::USR2),
];

/// A lease that this process holds.
#[derive(Clone, Copy, Debug)]
struct Lease {
    version: Version,
    /// Before this moment its last request was sent.
    since: Instant,
}

/// Why a lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// The record is gone, or another holder's.
    Taken,
    /// No renewal was confirmed in time.
    Unrenewed,
}

/// The result of a request with a condition.
#[derive(Debug)]
enum LockAnswer {
    Done(Version),
    /// The condition failed, or there is no record.
    Refused,
    /// A node refused it, or was not there: nothing changed.
    Later(Failure),
    /// No answer came: it may have been applied.
    Unknown(Failure),
    /// Another try makes no sense.
    Never(Failure),
}

/// One lock, and the requests about it.
struct LockDesk {
    client: Client,
    key: Vec<u8>,
    ttl: Duration,
    /// Tells this holder's record from all others.
    holder: Bytes,
    console: Console,
}

/// `dendra lock`
pub(crate) async fn lock(args: &LockArgs, console: Console) -> ExitResult {
    let key = key_bytes("the name", &args.name, args.client.encoding())?;
    let lock = LockDesk {
        client: client(&args.client, console)?,
        key,
        ttl: Duration::from_secs(args.ttl),
        holder: holder()?,
        console,
    };
    let mut signals = LockSignals::catch()?;
    let patience = args.wait.map(|wait| Instant::now() + wait);
    let lease = tokio::select! {
        taken = lock.take(patience) => taken?,
        number = signals.stop() => {
            lock.give_back_unknown().await;
            return Ok(Exit::by_signal(number));
        }
    };
    let mut child = match lock.spawn(&args.command, lease) {
        Ok(child) => child,
        Err(failure) => {
            lock.give_back(lease).await;
            return Err(failure);
        }
    };
    let held = Cell::new(lease);
    let ended = {
        let mut keeper = std::pin::pin!(lock.keep(&held));
        loop {
            tokio::select! {
                lost = &mut keeper => break Err(lost),
                came = signals.next() => match came {
                    Some(number) => hand_on(&child, number),
                    None => match wait(&mut child) {
                        Ok(None) => {}
                        Ok(Some(status)) => break Ok(status),
                        Err(failure) => {
                            hand_on(&child, Signal::KILL);
                            return Err(failure);
                        }
                    },
                },
            }
        }
    };
    match ended {
        Ok(status) => {
            // What it started and left behind must not go on without the lease.
            hand_on(&child, Signal::KILL);
            lock.give_back(held.get()).await;
            Ok(Exit::of(status))
        }
        Err(lost) => {
            let stopped = lock.stop(&mut child, &mut signals, held.get(), lost).await;
            // Behind the signals: the terminal, or a pipe, may take the line late.
            let name = show_key(&lock.key);
            lock.console.note(&match lost {
                Lost::Taken => format!(
                    "{name}: the lease is lost, another holder may have it; the command is stopped"
                ),
                Lost::Unrenewed => format!(
                    "{name}: the lease could not be renewed in time; the command is stopped"
                ),
            });
            stopped?;
            Ok(Exit::LEASE_LOST)
        }
    }
}

/// A value that no other process has.
fn holder() -> Result<Bytes, Failure> {
    let mut drawn = [0; 16];
    rustix::rand::getrandom(&mut drawn[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Failure::new(Exit::LOCK_FAILED, format!("no random bytes ({e})")))?;
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let drawn = u128::from_be_bytes(drawn);
    let text = format!(
        "dendra lock, {host}, process {}, {drawn:032x}",
        std::process::id()
    );
    Ok(Bytes::from(text))
}

/// The token that the command shows to what it changes: a version with all its digits, so that the
/// order of texts is the order of versions.
fn token(version: Version) -> String {
    let bytes = version.to_bytes();
    format!("{:032x}", u128::from_be_bytes(bytes))
}

impl LockDesk {
    /// Takes the lock, by `patience` at the latest.
    async fn take(&self, patience: Option<Instant>) -> Result<Lease, Failure> {
        let mut is_unknown = false;
        loop {
            let mut since = Instant::now();
            let mut asked = self.put().await;
            if is_unknown && matches!(asked, LockAnswer::Refused) {
                // Perhaps by the own record, of a request that got no answer.
                asked = self.find_own().await;
                if let LockAnswer::Done(version) = asked {
                    since = Instant::now();
                    asked = self.touch(version).await;
                }
            }
            let reason = match asked {
                LockAnswer::Done(version) => return Ok(Lease { version, since }),
                LockAnswer::Refused => {
                    let name = show_key(&self.key);
                    Failure::new(
                        Exit::LOCK_HELD,
                        format!("{name}: another process holds the lock"),
                    )
                }
                LockAnswer::Later(why) => Failure::new(Exit::LOCK_UNAVAILABLE, why.sentence),
                LockAnswer::Unknown(why) => {
                    is_unknown = true;
                    Failure::new(Exit::LOCK_UNAVAILABLE, why.sentence)
                }
                LockAnswer::Never(why) => {
                    return Err(Failure::new(Exit::LOCK_FAILED, why.sentence));
                }
            };
            if patience.is_some_and(|until| Instant::now() + LOOK_PAUSE > until) {
                if is_unknown {
                    self.give_back_unknown().await;
                }
                return Err(reason);
            }
            sleep(LOOK_PAUSE).await;
        }
    }

    /// Renews the lease until it is lost.
    async fn keep(&self, held: &Cell<Lease>) -> Lost {
        let mut next = held.get().since + self.ttl / 3;
        loop {
            let end = held.get().since + self.ttl - self.grace();
            sleep_until(next.min(end)).await;
            if Instant::now() >= end {
                return Lost::Unrenewed;
            }
            let since = Instant::now();
            let asked = timeout_at(end, self.touch(held.get().version)).await;
            match asked.unwrap_or_else(|_| LockAnswer::Unknown(Failure::new(Exit::OK, ""))) {
                LockAnswer::Done(version) => {
                    held.set(Lease { version, since });
                    next = since + self.ttl / 3;
                }
                // A touch that got no answer may have changed the version.
                LockAnswer::Refused => match timeout_at(end, self.find_own()).await {
                    Ok(LockAnswer::Done(version)) => {
                        held.set(Lease {
                            version,
                            ..held.get()
                        });
                        next = Instant::now();
                    }
                    Ok(LockAnswer::Refused) => return Lost::Taken,
                    Ok(_) | Err(_) => next = Instant::now() + LOOK_PAUSE,
                },
                LockAnswer::Later(_) | LockAnswer::Unknown(_) => next = Instant::now() + LOOK_PAUSE,
                LockAnswer::Never(why) => {
                    self.console.note(&why.sentence);
                    next = Instant::now() + LOOK_PAUSE;
                }
            }
        }
    }

    /// Time for the command to end by itself, at the end of its lease.
    fn grace(&self) -> Duration {
        (self.ttl / 4).min(GRACE_MAX)
    }

    fn spawn(&self, command: &[impl AsRef<OsStr>], lease: Lease) -> Result<Child, Failure> {
        let mut starting = Command::new(command[0].as_ref());
        starting
            .args(&command[1..])
            .env("DENDRA_FENCING_TOKEN", token(lease.version))
            .process_group(0);
        starting.spawn().map_err(|error| {
            let exit = match error.kind() {
                io::ErrorKind::NotFound => Exit::NO_COMMAND,
                _ => Exit::NOT_EXECUTABLE,
            };
            let name = command[0].as_ref().to_string_lossy();
            Failure::new(exit, format!("{name}: cannot be started ({error})"))
        })
    }

    /// Ends the command: SIGTERM, and SIGKILL after the grace or at the end of the lease.
    async fn stop(
        &self,
        child: &mut Child,
        signals: &mut LockSignals,
        lease: Lease,
        lost: Lost,
    ) -> Result<(), Failure> {
        let end = match lost {
            Lost::Taken => Instant::now() + self.grace(),
            Lost::Unrenewed => lease.since + self.ttl,
        };
        hand_on(child, Signal::TERM);
        loop {
            let ended = wait(child);
            if !matches!(ended, Ok(None)) {
                hand_on(child, Signal::KILL);
                return ended.map(drop);
            }
            match timeout_at(end, signals.next()).await {
                Ok(Some(signal)) => hand_on(child, signal),
                Ok(None) => {}
                Err(_) => break,
            }
        }
        hand_on(child, Signal::KILL);
        let status = child.wait();
        status.map(|_| ()).map_err(|e| waiting_failed(&e))
    }

    /// Deletes the record of a request that got no answer, if it is there.
    async fn give_back_unknown(&self) {
        let since = Instant::now();
        if let LockAnswer::Done(version) = self.find_own().await {
            self.give_back(Lease { version, since }).await;
        }
    }

    /// Gives the lock back. Nothing is lost when that fails: the record ends by itself.
    async fn give_back(&self, lease: Lease) {
        let mut version = lease.version;
        for _ in 0..2 {
            match self.delete(version).await {
                LockAnswer::Done(_) => return,
                LockAnswer::Refused => match self.find_own().await {
                    LockAnswer::Done(own) => version = own,
                    _ => return,
                },
                LockAnswer::Later(why) | LockAnswer::Unknown(why) | LockAnswer::Never(why) => {
                    let seconds = self.ttl.as_secs();
                    let sentence = &why.sentence;
                    self.console.note(&format!(
                        "the lock was not given back ({sentence}); it ends within {seconds} s"
                    ));
                    return;
                }
            }
        }
    }

    // Requests.

    async fn put(&self) -> LockAnswer {
        let headers = vec![("if-none-match", "*".to_owned())];
        let path = self.path("/v0/entity", Some(self.ttl));
        self.ask(Method::PUT, path, headers, self.holder.clone())
            .await
    }

    async fn touch(&self, version: Version) -> LockAnswer {
        let path = self.path("/v0/touch", Some(self.ttl));
        self.ask(Method::POST, path, if_match(version), Bytes::new())
            .await
    }

    async fn delete(&self, version: Version) -> LockAnswer {
        let path = self.path("/v0/entity", None);
        self.ask(Method::DELETE, path, if_match(version), Bytes::new())
            .await
    }

    /// The version of the record, if this holder wrote it.
    async fn find_own(&self) -> LockAnswer {
        let ask = self.request(Method::GET, self.path("/v0/entity", None), Vec::new());
        match self.send(&ask).await {
            Ok(answer) if answer.status == 200 && answer.body != self.holder => LockAnswer::Refused,
            Ok(answer) => self.judge(&answer),
            Err(trouble) => self.unanswered(&trouble),
        }
    }

    async fn ask(
        &self,
        method: Method,
        path: String,
        headers: Vec<(&'static str, String)>,
        body: Bytes,
    ) -> LockAnswer {
        let ask = HttpRequest {
            meta: MetaBuf::default(),
            body,
            ..self.request(method, path, headers)
        };
        match self.send(&ask).await {
            Ok(answer) => self.judge(&answer),
            Err(trouble) => self.unanswered(&trouble),
        }
    }

    fn judge(&self, answer: &WholeAnswer) -> LockAnswer {
        let version = || answer.version()?.parse().ok();
        let receipt = answer.header("dendra-receipt").unwrap_or_default();
        match answer.status.as_u16() {
            200..=202 => match version() {
                Some(version) => LockAnswer::Done(version),
                None => LockAnswer::Never(answer.failure("an answer without a version")),
            },
            404 | 412 => LockAnswer::Refused,
            // A node that stops, or whose log failed, says unknown, too.
            _ if receipt.contains("outcome=unknown") => {
                LockAnswer::Unknown(answer.failure(&show_key(&self.key)))
            }
            408 | 429 | 500 | 503 | 504 | 507 => {
                LockAnswer::Later(answer.failure(&show_key(&self.key)))
            }
            _ => LockAnswer::Never(answer.failure(&show_key(&self.key))),
        }
    }

    fn unanswered(&self, trouble: &Trouble) -> LockAnswer {
        let failure = trouble.failure(self.client.place());
        match trouble {
            Trouble::Unreachable(_) => LockAnswer::Later(failure),
            Trouble::Broken(_) | Trouble::Silent { .. } => LockAnswer::Unknown(failure),
            Trouble::NotTrusted(_) | Trouble::Foreign(_) => LockAnswer::Never(failure),
        }
    }

    async fn send(&self, ask: &HttpRequest) -> Result<WholeAnswer, Trouble> {
        let waited = ANSWER_MAX.min(self.ttl / 3);
        match timeout(waited, self.client.send(ask)).await {
            Ok(answer) => answer,
            Err(_) => Err(Trouble::Silent { waited }),
        }
    }

    fn request(
        &self,
        method: Method,
        path: String,
        headers: Vec<(&'static str, String)>,
    ) -> HttpRequest {
        HttpRequest {
            meta: MetaBuf::default(),
            method,
            path,
            headers,
            body: Bytes::new(),
        }
    }

    fn path(&self, path: &str, ttl: Option<Duration>) -> String {
        let mut query = Query::default();
        query.add("id", &self.key);
        if let Some(ttl) = ttl {
            query.add("ttl", ttl.as_secs().to_string().as_bytes());
        }
        query.behind(path)
    }
}

fn if_match(version: Version) -> Vec<(&'static str, String)> {
    vec![("if-match", format!("\"{version}\""))]
}

/// Sends a signal to the command and all that it started in its group.
fn hand_on(child: &Child, number: Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // `Err` says that no process of the group is left.
        let _gone = kill_process_group(group, number);
    }
}

fn wait(child: &mut Child) -> Result<Option<ExitStatus>, Failure> {
    child.try_wait().map_err(|e| waiting_failed(&e))
}

fn waiting_failed(error: &io::Error) -> Failure {
    Failure::new(
        Exit::LOCK_FAILED,
        format!("the command cannot be waited for ({error})"),
    )
}

impl Exit {
    /// Another process held the lock for as long as the command was willing to wait.
    pub(crate) const LOCK_HELD: Exit = Exit::from_code(122);
    /// No node, or no answer, before the command began.
    pub(crate) const LOCK_UNAVAILABLE: Exit = Exit::from_code(123);
    /// The lease was lost, and the command was stopped.
    pub(crate) const LEASE_LOST: Exit = Exit::from_code(124);
    /// The lock could not be asked for.
    pub(crate) const LOCK_FAILED: Exit = Exit::from_code(125);
    /// The command cannot be executed.
    pub(crate) const NOT_EXECUTABLE: Exit = Exit::from_code(126);
    /// There is no such command.
    pub(crate) const NO_COMMAND: Exit = Exit::from_code(127);

    /// The code by which a shell tells of a process that this signal ended.
    fn by_signal(number: Signal) -> Exit {
        Exit::from_code(u8::try_from(128 + number.as_raw()).unwrap_or(u8::MAX))
    }

    /// The command's own end.
    pub(crate) fn of(status: ExitStatus) -> Exit {
        let code = status.code().or(status.signal().map(|number| 128 + number));
        let code = code.and_then(|code| u8::try_from(code).ok());
        Exit::from_code(code.unwrap_or(u8::MAX))
    }
}

/// Signals to this process, and the ends of its children.
struct LockSignals {
    came: Receiver<Option<Signal>>,
}

impl LockSignals {
    fn catch() -> Result<LockSignals, Failure> {
        let (tell, came) = channel(SIGNALS_LEN_MAX);
        let all = HANDED_ON.map(|(kind, number)| (kind, Some(number)));
        for (kind, number) in all.into_iter().chain([(SignalKind::child(), None)]) {
            let mut stream = signal(kind).map_err(|e| {
                Failure::new(Exit::LOCK_FAILED, format!("signals cannot be caught ({e})"))
            })?;
            let tell = tell.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && tell.send(number).await.is_ok() {}
            });
        }
        Ok(LockSignals { came })
    }

    /// The next signal; `None` = a child may have ended.
    async fn next(&mut self) -> Option<Signal> {
        self.came.recv().await.expect("its senders live as long")
    }

    /// The next signal that asks this process to stop before the command began.
    async fn stop(&mut self) -> Signal {
        loop {
            if let Some(number @ (Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT)) =
                self.next().await
            {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_order_of_tokens_is_the_order_of_versions(a: [u8; 16], b: [u8; 16]) {
            let (a, b) = (Version::from_bytes(a), Version::from_bytes(b));
            prop_assert_eq!(token(a).cmp(&token(b)), a.cmp(&b));
            prop_assert_eq!(token(a).len(), 32);
        }
    }
}
