//! Sends records: many in flight, some together, refused ones again after a while, until told to
//! stop.
//!
//! ```text
//! reader thread ─► queue (QUEUE_LEN_MAX records, BYTES_IN_MEMORY_MAX bytes) ─► n senders ─► node
//!
//! 201                          acknowledged
//! 408 429 503 504, no answer   again: while the budget lasts (client/retry.rs), for --retry-for
//! anything else                failed, with the server's sentence; the rest go on
//! ```
//!
//! Invariants
//! 1. Records in memory are bounded in number and in bytes; the reader waits.
//! 2. After `stop`, no new request leaves; requests in flight are awaited.
//! 3. A node that gave no answer at all for `--retry-for` ends the load, and not one record
//!    after the other for the same time each.
//!
//! Not here: the source (`source.rs`), batches (`together.rs`), counting (`tally.rs`).
//! See: docs/cli.md, "Loading".

use super::source::{Item, Items};
use super::tally::{LoadTally, Subject};
use super::together::{BATCH_BYTES_MAX, BatchPath, BatchVerdict, RefusedTry};
use crate::client::retry::{self, Budget};
use crate::client::{Client, HttpRequest, Trouble};
use crate::exit::Failure;
use bytes::Bytes;
use dendra_base::Prng;
use dendra_wire::{meta, percent};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout};

/// Records that wait for a sender: enough that none of them idles while a file is opened.
pub(super) const QUEUE_LEN_MAX: usize = 64;
/// Bytes of all records that were read and are not yet answered.
pub(super) const BYTES_IN_MEMORY_MAX: usize = 64 << 20;

const _: () = assert!(BYTES_IN_MEMORY_MAX >= 2 * dendra_base::limits::VALUE_BYTES_MAX_LIMIT);

/// A record on its way, with its share of the memory.
pub(super) struct Parcel {
    item: Item,
    _share: OwnedSemaphorePermit,
}

/// Why a load stops before its source ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// No stop before the end.
    No,
    /// Ctrl-C.
    Interrupted,
    /// The node does not answer.
    Unreachable(String),
}

/// State that all senders share. One thread: no locks but the queue's.
pub(super) struct LoadState {
    pub(super) client: Client,
    pub(super) batches: BatchPath,
    /// Everything after the key in a request's path.
    pub(super) query_rest: String,
    pub(super) prefix: Vec<u8>,
    pub(super) retry_for: Duration,
    pub(super) budget: RefCell<Budget>,
    /// Draws the length of pauses.
    pub(super) chance: RefCell<Prng>,
    pub(super) tally: RefCell<LoadTally>,
    pub(super) halt: watch::Sender<Halt>,
    pub(super) last_answer: Cell<Instant>,
    pub(super) failure: RefCell<Option<Failure>>,
}

/// Starts the thread that reads `items`; it ends when the source or the queue does.
pub(super) fn read(items: Items) -> std::io::Result<mpsc::Receiver<Parcel>> {
    let (queue, parcels) = mpsc::channel(QUEUE_LEN_MAX);
    let memory = Arc::new(Semaphore::new(BYTES_IN_MEMORY_MAX));
    let runtime = tokio::runtime::Handle::current();
    std::thread::Builder::new()
        .name("load-source".to_owned())
        .spawn(move || {
            for item in items {
                let bytes = match &item {
                    Item::Record { key, value } => key.len() + value.len(),
                    _ => 0,
                };
                // A line of text can be longer than any value: it takes all there is.
                let share = bytes.clamp(1, BYTES_IN_MEMORY_MAX) as u32;
                let permit = runtime.block_on(Arc::clone(&memory).acquire_many_owned(share));
                let Ok(_share) = permit else {
                    return;
                };
                if queue.blocking_send(Parcel { item, _share }).is_err() {
                    return;
                }
            }
        })?;
    Ok(parcels)
}

/// One sender: takes parcels until there are none or the load stops, at most `most` at once.
pub(super) async fn send_all(
    shared: Rc<LoadState>,
    parcels: Rc<Mutex<mpsc::Receiver<Parcel>>>,
    most: usize,
) {
    let mut halt = shared.halt.subscribe();
    loop {
        let taken = tokio::select! {
            biased;
            _ = halt.wait_for(|halt| *halt != Halt::No) => return,
            taken = take(&parcels, most) => taken,
        };
        if taken.is_empty() {
            return;
        }
        if let Err(failure) = shared.handle(taken).await {
            *shared.failure.borrow_mut() = Some(failure);
            shared.stop(Halt::Interrupted);
            return;
        }
    }
}

/// Waits for a parcel, and takes with it those that are there; none at the end.
async fn take(parcels: &Mutex<mpsc::Receiver<Parcel>>, most: usize) -> Vec<Parcel> {
    let mut parcels = parcels.lock().await;
    let mut taken = Vec::new();
    let mut bytes = 0;
    let mut next = parcels.recv().await;
    while let Some(parcel) = next {
        bytes += match &parcel.item {
            Item::Record { key, value } => key.len() + value.len(),
            Item::Bad { .. } | Item::Skipped => 0,
        };
        taken.push(parcel);
        next = if taken.len() < most && bytes < BATCH_BYTES_MAX {
            parcels.try_recv().ok()
        } else {
            None
        };
    }
    taken
}

impl LoadState {
    /// Tells every sender to take no more; the first reason stays.
    pub(super) fn stop(&self, why: Halt) {
        self.halt.send_if_modified(|halt| {
            let is_first = *halt == Halt::No;
            if is_first {
                *halt = why;
            }
            is_first
        });
    }

    async fn handle(&self, parcels: Vec<Parcel>) -> Result<(), Failure> {
        let (mut records, mut shares) = (Vec::new(), Vec::new());
        for Parcel { item, _share } in parcels {
            match item {
                Item::Skipped => self.tally.borrow_mut().skipped(),
                Item::Bad { place, reason } => {
                    let subject = Subject::Place(&place);
                    self.tally.borrow_mut().failed(&subject, &reason)?;
                }
                Item::Record { key, value } => {
                    let key = [self.prefix.as_slice(), &key].concat();
                    records.push((key, Bytes::from(value)));
                    shares.push(_share);
                }
            }
        }
        let verdicts = self.batches.try_all(&self.client, &records).await;
        if self.batches.take_is_answered() {
            self.last_answer.set(Instant::now());
        }
        for ((key, value), verdict) in records.into_iter().zip(verdicts) {
            let len = meta::unwrap(&value).1.len();
            let stored = match verdict {
                BatchVerdict::Again(first) => self.store(&key, value, first).await,
                BatchVerdict::Stored => {
                    self.budget.borrow_mut().sent();
                    Ok(())
                }
                BatchVerdict::Failed(reason) => {
                    self.budget.borrow_mut().sent();
                    Err(reason)
                }
            };
            let mut tally = self.tally.borrow_mut();
            match stored {
                Ok(()) => tally.acked(&key, len)?,
                Err(reason) => tally.failed(&Subject::Key(&key), &reason)?,
            }
        }
        Ok(())
    }

    /// Until the node holds the record, or the reason why it does not. `first`: how it was refused
    /// before.
    async fn store(
        &self,
        key: &[u8],
        stored: Bytes,
        mut first: Option<RefusedTry>,
    ) -> Result<(), String> {
        let (meta, value) = meta::unwrap(&stored);
        let ask = HttpRequest {
            meta: meta.into(),
            method: hyper::Method::PUT,
            path: format!("/v0/entity?id={}{}", percent::encode(key), self.query_rest),
            headers: Vec::new(),
            body: stored.slice_ref(value),
        };
        let deadline = Instant::now() + self.retry_for;
        if first.is_none() && *self.halt.borrow() != Halt::No {
            return Err("not sent: the load stopped".to_owned());
        }
        self.budget.borrow_mut().sent();
        let mut tries = 0;
        loop {
            tries += 1;
            let (reason, asked, was_sent) = match first.take() {
                Some(first) => (first.reason, first.retry_after, true),
                None => match self.client.send(&ask).await {
                    Ok(answer) => {
                        self.last_answer.set(Instant::now());
                        if answer.status.is_success() {
                            return Ok(());
                        }
                        if !answer.is_refusal() {
                            return Err(answer.sentence());
                        }
                        (answer.sentence(), answer.retry_after(), true)
                    }
                    Err(trouble @ Trouble::Foreign(_)) => return Err(trouble.to_string()),
                    Err(trouble) => {
                        if self.last_answer.get().elapsed() >= self.retry_for {
                            self.stop(Halt::Unreachable(trouble.to_string()));
                        }
                        // Without a connection no node had work from this try: it costs no budget.
                        let was_sent = !matches!(trouble, Trouble::Unreachable(_));
                        (trouble.to_string(), None, was_sent)
                    }
                },
            };
            let wait = retry::pause(tries, asked, self.chance.borrow_mut().unit());
            if Instant::now() + wait >= deadline || self.rest(wait).await == Rest::Stopped {
                return Err(reason);
            }
            // After the pause also without a budget: the sender's next record is as much work for
            // the node as this one.
            if was_sent && !self.budget.borrow_mut().try_again() {
                return Err(format!("{reason}; {}", retry::spent()));
            }
            self.tally.borrow_mut().retried();
        }
    }

    /// Waits, unless the load stops first.
    async fn rest(&self, wait: Duration) -> Rest {
        let mut halt = self.halt.subscribe();
        let stopped = halt.wait_for(|halt| *halt != Halt::No);
        match timeout(wait, stopped).await {
            Ok(_) => Rest::Stopped,
            Err(_) => Rest::Over,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Rest {
    Over,
    Stopped,
}
