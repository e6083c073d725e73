//! Routes of scans: a range of stored keys and how to show it.
//!
//! ```text
//! (none)           all of the clients' keys
//! start=a          [a, end of the clients' keys)
//! start=a&end=c    [a, c)                    c at or before a: an empty range
//! prefix=a         [a, b)                    b = the smallest key behind everything with prefix a
//! ```
//!
//! Invariants
//! 1. A range never leaves the space of clients' keys, and its end is never before its start.
//!
//! Not here: walking the range (crate `engine`), writing its records (`http::records`).
//! See: docs/api.md, section "Many keys".

use super::checks::{RequestRules, allow, check_message};
use super::parameters::{SHORT_BYTES_MAX, choice, key_error, parameters, short, timeout_ms};
use crate::http::accept::Framing;
use crate::http::records::ShownPart;
use crate::http::request::digits;
use crate::http::{Head, Method};
use crate::percent;
use crate::refusal::{Refusal, echo};
use dendra_base::Space;
use dendra_base::limits::KEY_BYTES_MAX;

pub use dendra_base::Direction;

/// Where a scan looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every live key of the cluster once.
    Cluster,
    /// The records that this node holds.
    Local,
}

/// A request about many keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// First stored key of the range, inclusive.
    pub start: Vec<u8>,
    /// End of the range as a stored key, exclusive; never before `start`.
    pub end: Vec<u8>,
    /// Which end of the range comes first.
    pub direction: Direction,
    /// Most records to show, at least 1.
    pub limit: Option<u64>,
    /// The part of each record that is shown.
    pub show: ShownPart,
    /// Where to look.
    pub scope: Scope,
    /// How records are told apart.
    pub framing: Framing,
    /// Time until the first records must be there.
    pub timeout_ms: u32,
}

/// Keys that begin so are the cluster's own: the last ones of all, so that a scan ends in front of
/// them.
pub const RESERVED: [u8; 16] = [u8::MAX; 16];

/// Ends a range in front of the keys that are the cluster's own.
pub(super) fn spare_reserved(start: &mut Vec<u8>, end: &mut Vec<u8>) {
    let mut first = vec![Space::User.byte()];
    first.extend_from_slice(&RESERVED);
    if *end > first {
        *start = start.clone().min(first.clone());
        *end = first;
    }
}

impl Scan {
    /// Ends the range in front of the keys that are the cluster's own.
    pub fn spare_reserved(&mut self) {
        spare_reserved(&mut self.start, &mut self.end);
    }

    /// Can no key lie in this range? True for an `end` at or before `start`.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

const SCAN_PARAMETERS: [&str; 7] = [
    "start",
    "end",
    "prefix",
    "limit",
    "reverse",
    "keys-only",
    "scope",
];

pub(super) fn entities(head: &Head<'_>, settings: &RequestRules) -> Result<Scan, Refusal> {
    allow(head, &[Method::Get], "GET")?;
    if head.is_http_1_0 {
        return Err(Refusal::new(
            505,
            "http-version",
            "a scan is streamed in chunks, which HTTP/1.0 lacks; ask with HTTP/1.1",
        ));
    }
    check_message(head)?;
    let [start, end, prefix, limit, reverse, keys_only, scope] =
        parameters(head.query, &SCAN_PARAMETERS)?;
    let (start, end) = range(start, end, prefix, settings)?;
    Ok(Scan {
        start,
        end,
        direction: match choice("reverse", reverse, ["false", "true"])? {
            0 => Direction::Forward,
            _ => Direction::Backward,
        },
        limit: limit.map(scan_limit).transpose()?,
        show: match choice("keys-only", keys_only, ["false", "true"])? {
            0 => ShownPart::KeysAndValues,
            _ => ShownPart::KeysOnly,
        },
        scope: match choice("scope", scope, ["cluster", "local"])? {
            0 => Scope::Cluster,
            _ => Scope::Local,
        },
        framing: head.accepted.choose().ok_or_else(not_acceptable)?,
        timeout_ms: timeout_ms(head)?,
    })
}

const COUNT_PARAMETERS: [&str; 3] = ["start", "end", "prefix"];

/// A scan that shows how many records there are.
pub(super) fn count(head: &Head<'_>, settings: &RequestRules) -> Result<Scan, Refusal> {
    allow(head, &[Method::Get], "GET")?;
    check_message(head)?;
    let [start, end, prefix] = parameters(head.query, &COUNT_PARAMETERS)?;
    let (start, end) = range(start, end, prefix, settings)?;
    Ok(Scan {
        start,
        end,
        direction: Direction::Forward,
        limit: None,
        show: ShownPart::Number,
        scope: Scope::Cluster,
        framing: Framing::Ndjson,
        timeout_ms: timeout_ms(head)?,
    })
}

fn not_acceptable() -> Refusal {
    Refusal::new(
        406,
        "not-acceptable",
        "a scan comes as text/plain, application/x-ndjson or application/vnd.dendra.records",
    )
}

/// The range of stored keys that the parameters name.
pub(super) fn range(
    start: Option<&[u8]>,
    end: Option<&[u8]>,
    prefix: Option<&[u8]>,
    settings: &RequestRules,
) -> Result<(Vec<u8>, Vec<u8>), Refusal> {
    let (start, end) = match (start, end, prefix) {
        (None, None, Some(prefix)) => {
            let first = bound("prefix", prefix, settings)?;
            let behind = successor(&first);
            (first, behind)
        }
        (_, _, Some(_)) => {
            return Err(Refusal::bad(
                "bad-range",
                "give prefix, or start and end, not both",
            ));
        }
        (start, end, None) => {
            let start = match start {
                Some(start) => bound("start", start, settings)?,
                None => vec![Space::User.byte()],
            };
            let end = match end {
                Some(end) => bound("end", end, settings)?,
                None => successor(&[Space::User.byte()]),
            };
            (start, end)
        }
    };
    // A range that ends before it starts is empty, and no engine needs to know of the reason.
    let end = if end < start { start.clone() } else { end };
    Ok((start, end))
}

/// One end of a range as a stored key. It may be one byte longer than a key: the range after the
/// longest key starts at that key and a zero byte.
pub(super) fn bound(name: &str, raw: &[u8], settings: &RequestRules) -> Result<Vec<u8>, Refusal> {
    if raw.is_empty() {
        return Err(Refusal::bad(
            "empty-parameter",
            format!("{name} is empty; a key has at least 1 byte"),
        ));
    }
    let bytes_max = settings.key_bytes_max.min(KEY_BYTES_MAX) + 1;
    let mut stored = vec![0; 1 + raw.len().min(bytes_max)];
    stored[0] = Space::User.byte();
    let len = percent::decode_into(raw, &mut stored[1..])
        .map_err(|error| key_error(name, error, bytes_max))?;
    stored.truncate(1 + len);
    Ok(stored)
}

/// The smallest byte string after everything that starts with `prefix`.
pub fn successor(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix.iter().rposition(|&b| b != u8::MAX);
    let kept = kept.expect("a stored key starts with its space byte, which is not 255");
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    end
}

fn scan_limit(raw: &[u8]) -> Result<u64, Refusal> {
    let mut room = [0; SHORT_BYTES_MAX];
    let text = short("limit", raw, &mut room)?;
    match digits(text) {
        Some(limit @ 1..) => Ok(limit),
        _ => Err(Refusal::bad(
            "bad-number",
            format!("limit={} is not a number from 1 on", echo(text)),
        )),
    }
}
