//! One store that speaks the contract: a node, or several members of a cluster, asked with
//! patience.
//!
//! ```text
//! ask ─► a member ─► answer
//!           └ refused, broken, silent ─► pause ─► the next member … for --retry-for
//! ```
//!
//! Invariants
//! 1. A request is built afresh for each try: a time to live is the time left at that moment.
//! 2. A write may be sent twice. Its condition makes the second one harmless (`settle.rs`).
//! 3. Retries, those of scans too, are a tenth of the requests, and a burst; then each waits for
//!    5 s. One after a `Retry-After` waits for at least that. A try without a connection is free.
//! 4. `507` is not tried again: only an operator can make room.
//!
//! Not here: which conditions (`settle.rs`), scans (`records.rs`).
//! See: docs/moving.md.

use crate::access::AccessArgs;
use crate::client::retry::{Budget, FailedTry, pause};
use crate::client::{
    BadUrl, BaseUrl, Client, Credentials, HttpRequest, Stream, Trouble, WholeAnswer,
};
use crate::console::{Console, show_key};
use crate::exit::{Exit, Failure};
use crate::ops::Query;
use bytes::Bytes;
use dendra_base::Prng;
use dendra_wire::meta;
use hyper::{Method, StatusCode};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, sleep};

/// See the module.
pub(super) struct ContractStore {
    /// `FROM` or `TO`, for messages.
    name: &'static str,
    members: Vec<Client>,
    /// The member that answered last.
    current: Cell<usize>,
    retry_for: Duration,
    chance: RefCell<Prng>,
    budget: RefCell<Budget>,
}

/// A live record's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordHead {
    /// `ETag` as it came, quotes included; empty = the store gives none.
    pub(super) tag: String,
    /// Unix milliseconds; 0 = the record stays.
    pub(super) expires_ms: u64,
}

/// A request to a store; its text begins a sentence about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreCall<'a> {
    Read(&'a [u8]),
    Write(&'a [u8]),
    Delete(&'a [u8]),
    Scan,
}

impl fmt::Display for StoreCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreCall::Read(key) => write!(f, "reading {}", show_key(key)),
            StoreCall::Write(key) => write!(f, "writing {}", show_key(key)),
            StoreCall::Delete(key) => write!(f, "deleting {}", show_key(key)),
            StoreCall::Scan => f.write_str("a scan"),
        }
    }
}

/// The wall clock.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

/// The places that a flag names.
pub(super) fn places(urls: &str) -> Result<Vec<BaseUrl>, Failure> {
    let texts: Vec<&str> = urls.split(',').map(str::trim).collect();
    let bases = texts.iter().map(|text| BaseUrl::parse(text));
    bases
        .collect::<Result<Vec<BaseUrl>, BadUrl>>()
        .map_err(|bad| Failure::usage(bad.to_string()))
}

impl ContractStore {
    pub(super) fn new(
        name: &'static str,
        bases: Vec<BaseUrl>,
        access: &AccessArgs,
        timeout_ms: u64,
        retry_for: Duration,
        console: Console,
    ) -> Result<ContractStore, Failure> {
        let mut members = Vec::new();
        for base in bases {
            let credentials = Credentials::read(access, &base)?;
            members.push(Client::new(base, credentials, timeout_ms, console));
        }
        Ok(ContractStore {
            name,
            members,
            current: Cell::new(0),
            retry_for,
            chance: RefCell::new(Prng::named(now_ms(), name)),
            budget: RefCell::new(Budget::new()),
        })
    }

    /// A failure that is about this store.
    pub(super) fn failure(&self, exit: Exit, sentence: &str) -> Failure {
        Failure::new(exit, format!("{}: {sentence}", self.name))
    }

    /// Sends the requests that `build` makes until a store answers; the answer is no refusal for a
    /// while.
    async fn ask(
        &self,
        call: StoreCall<'_>,
        build: impl Fn() -> HttpRequest,
    ) -> Result<WholeAnswer, Failure> {
        let deadline = Instant::now() + self.retry_for;
        let mut tries = 0;
        self.begin();
        loop {
            tries += 1;
            let member = self.current.get() % self.members.len();
            let (why, failed) = match self.members[member].send(&build()).await {
                Ok(answer) if !answer.is_refusal() => return Ok(answer),
                Ok(answer) => (answer.sentence(), FailedTry::refused(&answer)),
                Err(trouble @ Trouble::Foreign(_)) => {
                    return Err(trouble.failure(self.members[member].place()));
                }
                Err(trouble) => (trouble.to_string(), FailedTry::unanswered(&trouble)),
            };
            self.rest(call, member, tries, failed, deadline, &why)
                .await?;
        }
    }

    /// The first try of a request is sent now.
    pub(super) fn begin(&self) {
        self.budget.borrow_mut().sent();
    }

    /// Waits before the next try, which asks the next member; `Err` when the patience is over.
    pub(super) async fn rest(
        &self,
        call: StoreCall<'_>,
        member: usize,
        tries: u32,
        failed: FailedTry,
        deadline: Instant,
        why: &str,
    ) -> Result<(), Failure> {
        if self.current.get() % self.members.len() == member {
            self.current.set(member + 1);
        }
        let chance = self.chance.borrow_mut().unit();
        let wait = pause(tries, self.budget.borrow_mut().pay(failed), chance);
        if Instant::now() + wait >= deadline {
            let place = self.members[member].place();
            let sentence = format!(
                "{call}: {place} did not carry it out for {:.0} s ({why}); run the same command \
                 again, it goes on there",
                self.retry_for.as_secs_f64()
            );
            return Err(self.failure(Exit::UNAVAILABLE, &sentence));
        }
        sleep(wait).await;
        Ok(())
    }

    /// When this moment's patience is over.
    pub(super) fn patience(&self) -> Instant {
        Instant::now() + self.retry_for
    }

    /// A scan's answer from the current member, and which one that is.
    pub(super) async fn scan(&self, ask: &HttpRequest) -> (usize, Result<Stream, Trouble>) {
        let member = self.current.get() % self.members.len();
        (member, self.members[member].stream(ask).await)
    }

    /// The head of a live record.
    pub(super) async fn head(&self, key: &[u8]) -> Result<Option<RecordHead>, Failure> {
        let call = StoreCall::Read(key);
        let none = Bytes::new();
        let build = || ask(Method::HEAD, key, None, None, &none);
        let answer = self.ask(call, build).await?;
        match answer.status {
            StatusCode::OK => Ok(Some(head_of(&answer))),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.refused(call, &answer)),
        }
    }

    /// A live record, its value as it is stored: with its metadata.
    pub(super) async fn get(&self, key: &[u8]) -> Result<Option<(RecordHead, Bytes)>, Failure> {
        let call = StoreCall::Read(key);
        let none = Bytes::new();
        let build = || ask(Method::GET, key, None, None, &none);
        let answer = self.ask(call, build).await?;
        match answer.status {
            StatusCode::OK => match answer.stored() {
                Ok(stored) => Ok(Some((head_of(&answer), stored))),
                Err(why) => Err(self.failure(Exit::FAILURE, &format!("{call}: {why}"))),
            },
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.refused(call, &answer)),
        }
    }

    /// Stores a value with its metadata under a condition; `ttl_s` is asked for each try. The
    /// answer is a `201` or a `412`.
    pub(super) async fn put(
        &self,
        key: &[u8],
        value: &Bytes,
        ttl_s: impl Fn() -> Option<u64>,
        condition: Option<(&'static str, String)>,
    ) -> Result<WholeAnswer, Failure> {
        let call = StoreCall::Write(key);
        let build = || ask(Method::PUT, key, ttl_s(), condition.clone(), value);
        let answer = self.ask(call, build).await?;
        match answer.status {
            StatusCode::CREATED | StatusCode::PRECONDITION_FAILED => Ok(answer),
            _ => Err(self.refused(call, &answer)),
        }
    }

    /// Deletes under a condition. The answer is a `202` or a `412`.
    pub(super) async fn delete(
        &self,
        key: &[u8],
        condition: Option<(&'static str, String)>,
    ) -> Result<WholeAnswer, Failure> {
        let call = StoreCall::Delete(key);
        let none = Bytes::new();
        let build = || ask(Method::DELETE, key, None, condition.clone(), &none);
        let answer = self.ask(call, build).await?;
        match answer.status {
            StatusCode::ACCEPTED | StatusCode::PRECONDITION_FAILED => Ok(answer),
            _ => Err(self.refused(call, &answer)),
        }
    }

    /// An answer that no further try changes.
    pub(super) fn refused(&self, call: StoreCall<'_>, answer: &WholeAnswer) -> Failure {
        let way_out = match answer.status.as_u16() {
            507 => "; make room there, then run the same command again: it goes on there",
            401 | 403 => {
                "; see --token-file and --to-token-file: FROM needs the role read, TO write"
            }
            413 => "; TO takes smaller values than FROM: see --value-bytes-max of its nodes",
            400 if matches!(call, StoreCall::Write(_)) => {
                "; a store without conditions or times to live cannot take this record: \
                 dendra conform says which TO lacks"
            }
            _ => "",
        };
        let sentence = format!("{call}: {}{way_out}", answer.sentence());
        self.failure(Exit::FAILURE, &sentence)
    }
}

fn head_of(answer: &WholeAnswer) -> RecordHead {
    let expires = answer.header("dendra-expires");
    RecordHead {
        tag: answer.header("etag").unwrap_or_default().to_owned(),
        expires_ms: expires.and_then(|text| text.parse().ok()).unwrap_or(0),
    }
}

fn ask(
    method: Method,
    key: &[u8],
    ttl: Option<u64>,
    condition: Option<(&'static str, String)>,
    stored: &Bytes,
) -> HttpRequest {
    let (meta, value) = meta::unwrap(stored);
    let mut query = Query::default();
    query.add("id", key);
    if let Some(seconds) = ttl {
        query.add("ttl", seconds.to_string().as_bytes());
    }
    HttpRequest {
        method,
        path: query.behind("/v0/entity"),
        headers: condition.into_iter().collect(),
        meta: meta.into(),
        body: stored.slice_ref(value),
    }
}

#[cfg(test)]
impl ContractStore {
    /// A store of one node that a test plays.
    pub(super) fn of(node: &crate::client::played::PlayedNode, retry_for: Duration) -> Self {
        let console = Console {
            is_quiet: true,
            verbosity: 0,
        };
        let (bases, access) = (vec![node.base()], AccessArgs::default());
        let store = ContractStore::new("FROM", bases, &access, 1_000, retry_for, console);
        store.expect("no credentials are needed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::played::PlayedNode;
    use crate::client::played::PlayedReply::{self, Nothing, Refusal, Value};
    use crate::client::retry::{BURST, RETRY_AFTER_MAX};
    use crate::runtime::runtime;

    #[test]
    fn a_store_that_refuses_gets_the_burst_of_retries_and_then_one_in_five_seconds() {
        let copying = async {
            let script = |number| {
                if number == BURST {
                    Value
                } else {
                    Refusal(Some(0))
                }
            };
            let node = PlayedNode::start(script).await;
            let mut store = ContractStore::of(&node, 100 * RETRY_AFTER_MAX);
            let found = store.get(b"k").await.expect("the last retry is answered");
            assert!(found.is_some());
            assert_eq!(node.requests(), 1 + BURST);
            // The patience is not longer than the rest before a retry that nothing pays for.
            store.retry_for = RETRY_AFTER_MAX;
            let put = store.put(b"k", &Bytes::new(), || None, None).await;
            assert_eq!(put.expect_err("refused").exit, Exit::UNAVAILABLE);
            assert_eq!(node.requests(), 1 + BURST + 1);
        };
        runtime().expect("a runtime").block_on(copying);
    }

    #[test]
    fn a_retry_without_a_reason_to_wait_is_paid_for_too() {
        let copying = async {
            // The first try and the last retry that is paid for fail.
            let scripts: [fn(u64) -> PlayedReply; 2] = [
                |number| if number < 2 { Refusal(None) } else { Value },
                |number| if number < 2 { Nothing } else { Value },
            ];
            for script in scripts {
                let node = PlayedNode::start(script).await;
                let store = ContractStore::of(&node, RETRY_AFTER_MAX);
                (1..BURST).for_each(|_| assert!(store.budget.borrow_mut().try_again()));
                let found = store.get(b"k").await;
                assert_eq!(found.expect_err("too late").exit, Exit::UNAVAILABLE);
                assert_eq!(node.requests(), 2);
            }
        };
        runtime().expect("a runtime").block_on(copying);
    }
}
