//! The route of batches: what the head of one says about all of its items.
//!
//! Invariants
//! 1. A head that passes is completely checked; what is wrong in it is refused before any item.
//!
//! Not here: the items (`batch/`).
//! See: docs/batch.md.

use super::checks::{RequestRules, allow, check_coding};
use super::parameters::{parameters, quorum, timeout_ms};
use crate::http::lines::LineFraming;
use crate::http::{Body, FieldLines, Framing, Head, Method};
use crate::limits::BATCH_BYTES_MAX;
use crate::refusal::Refusal;
use dendra_base::Quorum;

/// A request of many operations: what its head says about all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTerms {
    /// How items are told apart.
    pub items: LineFraming,
    /// How the lines of the answer are.
    pub answers: LineFraming,
    /// How many copies, how many answers, where an item does not say.
    pub quorum: Quorum,
    /// Is the current value wanted when the condition of a write does not hold?
    pub wants_current: bool,
    /// Time of each item, counted from when it is taken up.
    pub timeout_ms: u32,
}

/// Reads the head of a batch.
pub(super) fn batch(head: &Head<'_>, rules: &RequestRules) -> Result<BatchTerms, Refusal> {
    allow(head, &[Method::Post], "POST")?;
    if head.is_http_1_0 {
        return Err(Refusal::new(
            505,
            "http-version",
            "a batch is answered in chunks, which HTTP/1.0 lacks; ask with HTTP/1.1",
        ));
    }
    check_coding(head)?;
    let [ack, from, replicas] = parameters(head.query, &["ack", "from", "replicas"])?;
    if [&head.if_match, &head.if_none_match] != [&FieldLines::Absent; 2] {
        let sentence = "a condition belongs to an item, as its if-match or if-none-match";
        return Err(Refusal::bad("bad-condition", sentence));
    }
    if matches!(head.body, Body::Length(length) if length > BATCH_BYTES_MAX) {
        return Err(too_large());
    }
    Ok(BatchTerms {
        items: if head.meta.sends_records() {
            LineFraming::Records
        } else {
            LineFraming::Ndjson
        },
        answers: match head.accepted.choose() {
            Some(Framing::Records) => LineFraming::Records,
            Some(Framing::Plain | Framing::Ndjson) => LineFraming::Ndjson,
            Some(Framing::Wrapped) | None => return Err(not_acceptable()),
        },
        quorum: quorum(ack, from, replicas, rules)?,
        wants_current: head.prefers_representation,
        timeout_ms: timeout_ms(head)?,
    })
}

fn not_acceptable() -> Refusal {
    Refusal::new(
        406,
        "not-acceptable",
        "a batch is answered as application/x-ndjson or application/vnd.dendra.records",
    )
}

/// 413: the body of a batch is longer than any.
pub fn too_large() -> Refusal {
    let sentence = format!("a batch has at most {BATCH_BYTES_MAX} bytes: send several");
    Refusal::new(413, "batch-too-large", sentence)
}

/// 413: a batch has more items than any.
pub fn too_many(most: usize) -> Refusal {
    let sentence = format!("a batch has at most {most} items: send several");
    Refusal::new(413, "batch-too-large", sentence)
}
