//! Records that travel together: a batch is the first try of all of them.
//!
//! ```text
//! records ─► POST /v0/batch ─┬─ 2xx                  ─► stored
//!                            ├─ refused for a while  ─► again, alone, behind a pause (sender.rs)
//!                            ├─ any other line       ─► failed
//!                            └─ no line              ─► alone
//! a store without batches: from then on every record alone
//! ```
//!
//! Invariants
//! 1. A record counts as stored only by its own line, or its own answer.
//! 2. A batch has at most `BATCH_BYTES_MAX` bytes of values and one record more. A record of more
//!    than `TOGETHER_BYTES` is sent alone, and so is one with a key that is too long.
//!
//! Not here: further tries (`sender.rs`), the form of a batch (crate `wire`).
//! See: docs/cli.md, "Loading".

use crate::client::{Client, HttpRequest, Trouble};
use bytes::Bytes;
use dendra_base::limits::KEY_BYTES_MAX;
use dendra_wire::batch::SentItem;
use dendra_wire::http::lines::LineFraming;
use dendra_wire::meta::MetaBuf;
use serde_json::Value;
use std::cell::Cell;
use std::time::Duration;

/// Senders of batches. Each has its part of the records in flight.
pub(super) const SENDERS_MAX: u64 = 8;
/// The longest record that travels with others.
const TOGETHER_BYTES: usize = 64 << 10;
/// A batch takes no further record when it has so many bytes.
pub(super) const BATCH_BYTES_MAX: usize = 256 << 10;

/// How the first try of a record ended, in a batch: it was refused for a while.
pub(super) struct RefusedTry {
    pub(super) reason: String,
    pub(super) retry_after: Option<Duration>,
}

/// How the first try of a record ended.
pub(super) enum BatchVerdict {
    Stored,
    Failed(String),
    /// The record was not tried, or another try is worth it.
    Again(Option<RefusedTry>),
}

/// Where batches go, and whether the store takes any.
pub(super) struct BatchPath {
    path: String,
    /// The store takes them, as far as it is known.
    are_known: Cell<bool>,
    /// A batch was answered since this was asked.
    is_answered: Cell<bool>,
}

impl BatchPath {
    /// Batches go to `path`.
    pub(super) fn to(path: String) -> BatchPath {
        BatchPath {
            path,
            are_known: Cell::new(true),
            is_answered: Cell::new(false),
        }
    }

    /// Has a batch been answered since the last call?
    pub(super) fn take_is_answered(&self) -> bool {
        self.is_answered.take()
    }

    /// Tries all records, keys and values as they are stored, at once.
    pub(super) async fn try_all(
        &self,
        client: &Client,
        records: &[(Vec<u8>, Bytes)],
    ) -> Vec<BatchVerdict> {
        // A key that no node takes is refused by itself, by the node.
        let is_short = |record: &&(Vec<u8>, Bytes)| {
            record.1.len() <= TOGETHER_BYTES && record.0.len() <= KEY_BYTES_MAX
        };
        let count = records.iter().filter(is_short).count();
        let mut told = if count > 1 && self.are_known.get() {
            let mut body = Vec::new();
            for (key, value) in records.iter().filter(is_short) {
                SentItem::put_stored(key, value).encode_into(LineFraming::Records, &mut body);
            }
            self.send(client, Bytes::from(body), count).await
        } else {
            Vec::new()
        }
        .into_iter();
        let verdict = |record| {
            let told = if is_short(&record) { told.next() } else { None };
            told.unwrap_or(BatchVerdict::Again(None))
        };
        records.iter().map(verdict).collect()
    }

    /// The verdicts of the batch's lines, as far as there are lines.
    async fn send(&self, client: &Client, body: Bytes, count: usize) -> Vec<BatchVerdict> {
        let ask = HttpRequest {
            meta: MetaBuf::default(),
            method: hyper::Method::POST,
            path: self.path.clone(),
            headers: vec![("content-type", LineFraming::Records.media_type().to_owned())],
            body,
        };
        let all_again = |reason: &str, retry_after| -> Vec<BatchVerdict> {
            let first = || RefusedTry {
                reason: reason.to_owned(),
                retry_after,
            };
            (0..count)
                .map(|_| BatchVerdict::Again(Some(first())))
                .collect()
        };
        match client.send(&ask).await {
            Ok(answer) if answer.status == hyper::StatusCode::OK => {
                self.is_answered.set(true);
                let lines = answer.body.split_inclusive(|&b| b == b'\n');
                lines.map(verdict_of).take(count).collect()
            }
            Ok(answer) if answer.is_refusal() => {
                self.is_answered.set(true);
                all_again(&answer.sentence(), answer.retry_after())
            }
            // Alone each record gets the answer that it deserves.
            Ok(_) => {
                self.are_known.set(false);
                Vec::new()
            }
            Err(Trouble::Broken(reason)) => all_again(&reason, None),
            Err(trouble @ Trouble::Silent { .. }) => all_again(&trouble.to_string(), None),
            Err(Trouble::Unreachable(_) | Trouble::NotTrusted(_) | Trouble::Foreign(_)) => {
                Vec::new()
            }
        }
    }
}

fn verdict_of(line: &[u8]) -> BatchVerdict {
    let Ok(line) = serde_json::from_slice::<Value>(line) else {
        return BatchVerdict::Again(None);
    };
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let status = line["status"].as_u64().unwrap_or_default();
    let reason = || format!("{status} {}: {}", text("error"), text("message"));
    match status {
        200..300 => BatchVerdict::Stored,
        408 | 429 | 503 | 504 => BatchVerdict::Again(Some(RefusedTry {
            reason: reason(),
            retry_after: line["retry_after"].as_u64().map(Duration::from_secs),
        })),
        _ => BatchVerdict::Failed(reason()),
    }
}
