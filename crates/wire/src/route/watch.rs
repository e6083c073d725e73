//! The route of watches: a range of keys, where to begin, and how events come.
//!
//! ```text
//! id=K | prefix=P | start=S&end=E     the keys: one, or a range as of a scan
//! from=                               the state now (absent), now, or behind a token
//! values=true|false  heartbeat_s=15   what events hold, and how often one comes at the least
//! ```
//!
//! Invariants
//! 1. A range never leaves the clients' keys, and those that are the cluster's own are not in it.
//! 2. Where a browser goes on (`Last-Event-ID`) counts for more than the `from` of its first URL.
//!
//! Not here: whether a token is of this cluster (crates `watch`, `server`).
//! See: docs/watch.md.

use super::checks::{RequestRules, allow, check_message};
use super::parameters::{broken_escape, choice, key_error, number, once, parameters, timeout_ms};
use super::scan::{RESERVED, bound, range, spare_reserved};
use crate::http::accept::EventFraming;
use crate::http::events::STATE_ID;
use crate::http::events::token_bytes;
use crate::http::{Head, Method};
use crate::limits::{HEARTBEAT_S_DEFAULT, HEARTBEAT_S_MAX};
use crate::percent::{self, DecodeError};
use crate::refusal::{Refusal, echo};
use dendra_base::limits::KEY_BYTES_MAX;

/// Where a watch begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// With the state of all keys now.
    State,
    /// With the changes from now on.
    Now,
    /// Behind the token with these bytes.
    Token(Vec<u8>),
}

/// A request for the events of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchQuery {
    /// First stored key of the range, inclusive.
    pub start: Vec<u8>,
    /// End of the range as a stored key, exclusive; never before `start`.
    pub end: Vec<u8>,
    /// Where it begins.
    pub from: WatchFrom,
    /// Do events show values?
    pub shows_values: bool,
    /// How often an event comes at the least, in seconds.
    pub heartbeat_s: u32,
    /// How events are told apart.
    pub framing: EventFraming,
    /// Time until the watch must have begun.
    pub timeout_ms: u32,
}

const WATCH_PARAMETERS: [&str; 7] = [
    "id",
    "prefix",
    "start",
    "end",
    "from",
    "values",
    "heartbeat_s",
];

pub(super) fn watch(head: &Head<'_>, rules: &RequestRules) -> Result<WatchQuery, Refusal> {
    allow(head, &[Method::Get], "GET")?;
    if head.is_http_1_0 {
        return Err(Refusal::new(
            505,
            "http-version",
            "a watch is streamed in chunks, which HTTP/1.0 lacks; ask with HTTP/1.1",
        ));
    }
    check_message(head)?;
    let [id, prefix, start, end, from, values, heartbeat_s] =
        parameters(head.query, &WATCH_PARAMETERS)?;
    let (mut first, mut behind) = match id {
        Some(_) if prefix.or(start).or(end).is_some() => {
            let sentence = "give id, or prefix, or start and end, not several of them";
            return Err(Refusal::bad("bad-range", sentence));
        }
        Some(id) => {
            let first = key(id, rules)?;
            let behind = [&first[..], &[0]].concat();
            (first, behind)
        }
        None if prefix.or(start).is_none() => {
            return Err(Refusal::bad(
                "missing-parameter",
                "id=<key>, prefix=<key> or start=<key> is required",
            ));
        }
        None => range(start, end, prefix, rules)?,
    };
    spare_reserved(&mut first, &mut behind);
    Ok(WatchQuery {
        start: first,
        end: behind,
        from: begin(head, from)?,
        shows_values: choice("values", values, ["true", "false"])? == 0,
        heartbeat_s: heartbeat_s.map_or(Ok(HEARTBEAT_S_DEFAULT), heartbeat)?,
        framing: head.accepted.choose_events().ok_or_else(not_acceptable)?,
        timeout_ms: timeout_ms(head)?,
    })
}

/// One key as a stored key.
fn key(id: &[u8], rules: &RequestRules) -> Result<Vec<u8>, Refusal> {
    let stored = bound("id", id, rules)?;
    let bytes_max = rules.key_bytes_max.min(KEY_BYTES_MAX);
    if stored.len() > 1 + bytes_max {
        return Err(key_error("id", DecodeError::TooLong, bytes_max));
    }
    if stored[1..].starts_with(&RESERVED) {
        return Err(Refusal::reserved_key());
    }
    Ok(stored)
}

fn begin(head: &Head<'_>, from: Option<&[u8]>) -> Result<WatchFrom, Refusal> {
    let last = once("Last-Event-ID", head.last_event_id, "bad-from")?;
    if let Some(last) = last.filter(|last| !last.is_empty()) {
        if last == STATE_ID {
            return Ok(WatchFrom::State);
        }
        return token("Last-Event-ID", last);
    }
    let Some(from) = from else {
        return Ok(WatchFrom::State);
    };
    let mut text = vec![0; from.len()];
    let len = percent::decode_into(from, &mut text).map_err(|_broken| broken_escape("from"))?;
    match &text[..len] {
        b"now" => Ok(WatchFrom::Now),
        text => token("from", text),
    }
}

fn token(name: &str, text: &[u8]) -> Result<WatchFrom, Refusal> {
    match token_bytes(text) {
        Some(bytes) if !bytes.is_empty() => Ok(WatchFrom::Token(bytes)),
        _ => Err(bad_token(
            name,
            format_args!("`{}` has not the form of one", echo(text)),
        )),
    }
}

/// 400: a token that a watch cannot go on from.
pub fn bad_token(name: &str, why: impl std::fmt::Display) -> Refusal {
    let sentence = format!(
        "{name} is no token of a watch here: {why}; take one from an event, or leave it out for the state now"
    );
    Refusal::bad("bad-from", sentence)
}

fn heartbeat(raw: &[u8]) -> Result<u32, Refusal> {
    match number("heartbeat_s", raw)? {
        seconds @ 1..=HEARTBEAT_S_MAX => Ok(seconds),
        _ => Err(Refusal::bad(
            "bad-number",
            format!("heartbeat_s is 1 to {HEARTBEAT_S_MAX} seconds"),
        )),
    }
}

fn not_acceptable() -> Refusal {
    Refusal::new(
        406,
        "not-acceptable",
        "a watch comes as application/x-ndjson or text/event-stream",
    )
}
