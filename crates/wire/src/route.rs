//! From a request head to a typed route, or to the reason for refusing it.
//!
//! ```text
//! path            methods                 parameters
//! /v0/entity      GET, HEAD, PUT, DELETE  id, ack, from, replicas; ttl (PUT)
//! /v0/entities    GET                     start, end, prefix, limit, reverse, keys-only, scope
//! /v0/status      GET, HEAD               none
//! /v0/peer        GET with Upgrade: dendra-peer/1
//! anything else   400
//! ```
//!
//! Invariants
//! 1. What passes is completely checked: keys have 1 to `key_bytes_max` bytes, numbers are in
//!    range, parameters are known and given once.
//! 2. Checks go from cheap and general to special: path, method, message, parameters, fields.
//! 3. An entity route allocates nothing: its key goes to the caller's `KeyBuf`, behind its space
//!    byte, ready for the engine.
//! 4. A refusal by a route closes nothing: the head was sound. Whether to read an unwanted body to
//!    its end or to close is the server's choice.
//!
//! Not here: percent-decoding itself (`percent.rs`), the framing of the message (`http`).
//! See: docs/api.md, docs/openapi.yaml.

use crate::condition::{self, Access, Condition};
use crate::copies::Copies;
use crate::http::accept::Framing;
use crate::http::records::Show;
use crate::http::{Body, Expect, Field, Head, Method};
use crate::limits::{TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX, TTL_S_MAX};
use crate::percent::{self, DecodeError};
use crate::refusal::{Refusal, echo};
use dendra_base::Space;
use dendra_base::limits::{KEY_BYTES_MAX, STORED_KEY_BYTES_MAX};

/// What of a node's options decides about requests.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Nodes of the cluster, at least 1.
    pub nodes: u8,
    /// Copies of a record unless its writer says otherwise, at least 1.
    pub replication_factor: u8,
    /// Longest key in bytes, at most `KEY_BYTES_MAX`.
    pub key_bytes_max: usize,
    /// Largest value in bytes.
    pub value_bytes_max: u64,
}

/// Room for one stored key; kept by a connection, overwritten by each of its requests.
#[derive(Clone, Debug)]
pub struct KeyBuf {
    bytes: [u8; STORED_KEY_BYTES_MAX],
    len: usize,
}

impl KeyBuf {
    /// An empty buffer.
    pub fn new() -> KeyBuf {
        KeyBuf {
            bytes: [0; STORED_KEY_BYTES_MAX],
            len: 0,
        }
    }

    /// Space byte and key, as the engine sorts them. Empty before the first entity route.
    pub fn as_stored(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The key as the client named it. Empty before the first entity route.
    pub fn raw(&self) -> &[u8] {
        self.as_stored().get(1..).unwrap_or_default()
    }
}

impl Default for KeyBuf {
    fn default() -> KeyBuf {
        KeyBuf::new()
    }
}

/// A checked request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// One key; the stored key is in the `KeyBuf`.
    Entity(Entity),
    /// Many keys.
    Entities(Box<Scan>),
    /// `/v0/status`
    Status,
    /// A peer that wants to speak frames.
    Peer,
}

/// What to do with one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntityOp {
    /// The value.
    Get,
    /// The value's description.
    Head,
    /// Store the request's body.
    Put,
    /// Store a tombstone.
    Delete,
}

/// A request about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entity {
    /// What to do.
    pub op: EntityOp,
    /// How many copies, how many answers.
    pub copies: Copies,
    /// What must hold of the current record.
    pub condition: Condition,
    /// Time to live in seconds (PUT only).
    pub ttl_s: Option<u32>,
    /// Time until the deadline, counted from the arrival of the head.
    pub timeout_ms: u32,
}

/// Where a scan looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every live key of the cluster once.
    Cluster,
    /// What this node holds.
    Local,
}

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Smallest key first.
    Forward,
    /// Largest key first.
    Backward,
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
    /// What of each record is shown.
    pub show: Show,
    /// Where to look.
    pub scope: Scope,
    /// How records are told apart.
    pub framing: Framing,
    /// Time until the first records must be there.
    pub timeout_ms: u32,
}

impl Scan {
    /// Can no key lie in this range? True for an `end` at or before `start`.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// Reads what a head asks for. The key of an entity goes to `key`.
///
/// # Errors
/// A refusal that leaves the connection open; see docs/api.md for each code word.
pub fn route(head: &Head<'_>, settings: &Settings, key: &mut KeyBuf) -> Result<Route, Refusal> {
    match head.path {
        b"/v0/entity" => entity(head, settings, key).map(Route::Entity),
        b"/v0/entities" => entities(head, settings).map(|scan| Route::Entities(Box::new(scan))),
        b"/v0/status" => {
            allow(head, &[Method::Get, Method::Head], "GET, HEAD")?;
            check_message(head)?;
            parameters::<0>(head.query, &[])?;
            Ok(Route::Status)
        }
        b"/v0/peer" if head.wants_peer_upgrade && head.method == Method::Get => {
            check_message(head)?;
            parameters::<0>(head.query, &[])?;
            Ok(Route::Peer)
        }
        path => Err(Refusal::bad(
            "unknown-path",
            format!(
                "{} is not here; there are /v0/entity, /v0/entities and /v0/status",
                echo(path)
            ),
        )),
    }
}

fn allow(head: &Head<'_>, methods: &[Method], names: &'static str) -> Result<(), Refusal> {
    if methods.contains(&head.method) {
        Ok(())
    } else {
        Err(Refusal::method_not_allowed(names))
    }
}

/// What must hold of every message, whatever it asks for.
fn check_message(head: &Head<'_>) -> Result<(), Refusal> {
    if head.expect == Expect::Unknown {
        return Err(Refusal::new(
            417,
            "expectation",
            "the only expectation known here is 100-continue",
        ));
    }
    if head.has_content_coding {
        return Err(Refusal::new(
            415,
            "content-coding",
            "Content-Encoding must be identity: values are stored as they come",
        ));
    }
    if head.method != Method::Put && head.body != Body::None {
        return Err(Refusal::bad("unexpected-body", "only PUT has a body here"));
    }
    Ok(())
}

const ENTITY_PARAMETERS: [&str; 5] = ["id", "ack", "from", "replicas", "ttl"];

fn entity(head: &Head<'_>, settings: &Settings, key: &mut KeyBuf) -> Result<Entity, Refusal> {
    let op = match head.method {
        Method::Get => EntityOp::Get,
        Method::Head => EntityOp::Head,
        Method::Put => EntityOp::Put,
        Method::Delete => EntityOp::Delete,
        Method::Other => return Err(Refusal::method_not_allowed("GET, HEAD, PUT, DELETE")),
    };
    check_message(head)?;
    let [id, ack, from, replicas, ttl] = parameters(head.query, &ENTITY_PARAMETERS)?;
    read_key(id, settings, key)?;
    if ttl.is_some() && op != EntityOp::Put {
        return Err(Refusal::bad("unknown-parameter", "ttl goes with PUT only"));
    }
    let entity = Entity {
        op,
        copies: copies(ack, from, replicas, settings)?,
        condition: condition(head, op)?,
        ttl_s: ttl.map(time_to_live).transpose()?,
        timeout_ms: timeout_ms(head)?,
    };
    if op == EntityOp::Put {
        check_value(head, settings)?;
    }
    Ok(entity)
}

fn read_key(id: Option<&[u8]>, settings: &Settings, key: &mut KeyBuf) -> Result<(), Refusal> {
    let raw = match id {
        None => return Err(Refusal::bad("missing-parameter", "id=<key> is required")),
        Some([]) => {
            return Err(Refusal::bad(
                "empty-parameter",
                "id is empty; a key has at least 1 byte",
            ));
        }
        Some(raw) => raw,
    };
    key.bytes[0] = Space::User.byte();
    let key_bytes_max = settings.key_bytes_max.min(KEY_BYTES_MAX);
    let room = &mut key.bytes[1..1 + key_bytes_max];
    key.len = 1 + percent::decode_into(raw, room)
        .map_err(|error| key_error("id", error, key_bytes_max))?;
    Ok(())
}

fn key_error(name: &str, error: DecodeError, key_bytes_max: usize) -> Refusal {
    match error {
        DecodeError::Broken => broken_escape(name),
        DecodeError::TooLong => Refusal::new(
            414,
            "key-too-long",
            format!("{name} has more than {key_bytes_max} bytes"),
        ),
    }
}

fn broken_escape(name: &str) -> Refusal {
    Refusal::bad(
        "bad-escape",
        format!("{name} holds a % without two hexadecimal digits behind it; a percent sign is %25"),
    )
}

fn copies(
    ack: Option<&[u8]>,
    from: Option<&[u8]>,
    replicas: Option<&[u8]>,
    settings: &Settings,
) -> Result<Copies, Refusal> {
    let (ack, from) = match replicas {
        None => (
            ack.map(|raw| number("ack", raw)).transpose()?,
            from.map(|raw| number("from", raw)).transpose()?,
        ),
        Some(_) if ack.is_some() || from.is_some() => {
            return Err(Refusal::bad(
                "bad-quorum",
                "give replicas=<ack>/<from>, or ack and from, not both",
            ));
        }
        Some(raw) => {
            let mut room = [0; SHORT_BYTES_MAX];
            let text = short("replicas", raw, &mut room)?;
            let parts = text
                .iter()
                .position(|&b| b == b'/')
                .map(|at| text.split_at(at));
            let Some((ack, from)) = parts else {
                return Err(Refusal::bad(
                    "bad-quorum",
                    format!("replicas={} is not <ack>/<from>, as in 2/3", echo(text)),
                ));
            };
            let from = number_of("replicas", &from[1..])?;
            (Some(number_of("replicas", ack)?), Some(from))
        }
    };
    Copies::check(ack, from, settings.nodes, settings.replication_factor)
}

fn condition(head: &Head<'_>, op: EntityOp) -> Result<Condition, Refusal> {
    let access = match op {
        EntityOp::Get | EntityOp::Head => Access::Read,
        EntityOp::Put | EntityOp::Delete => Access::Write,
    };
    let if_match = once("If-Match", head.if_match, "bad-condition")?;
    let if_none_match = once("If-None-Match", head.if_none_match, "bad-condition")?;
    condition::parse(if_match, if_none_match, access)
}

fn once<'a>(name: &str, field: Field<'a>, code: &'static str) -> Result<Option<&'a [u8]>, Refusal> {
    match field {
        Field::Absent => Ok(None),
        Field::Once(value) => Ok(Some(value)),
        Field::Repeated => Err(Refusal::bad(
            code,
            format!("{name} is there more than once"),
        )),
    }
}

fn time_to_live(raw: &[u8]) -> Result<u32, Refusal> {
    match number("ttl", raw)? {
        seconds @ 1..=TTL_S_MAX => Ok(seconds),
        _ => Err(Refusal::bad(
            "bad-number",
            format!("ttl is 1 to {TTL_S_MAX} seconds"),
        )),
    }
}

fn timeout_ms(head: &Head<'_>) -> Result<u32, Refusal> {
    let refuse = || {
        Refusal::bad(
            "bad-timeout",
            format!("Dendra-Timeout-Ms is 1 to {TIMEOUT_MS_MAX} milliseconds"),
        )
    };
    match once("Dendra-Timeout-Ms", head.timeout_ms, "bad-timeout")? {
        None => Ok(TIMEOUT_MS_DEFAULT),
        Some(value) => match digits(value) {
            Some(ms @ 1..=TIMEOUT_MS_MAX) => Ok(ms),
            _ => Err(refuse()),
        },
    }
}

fn check_value(head: &Head<'_>, settings: &Settings) -> Result<(), Refusal> {
    if head.has_content_range {
        return Err(Refusal::bad(
            "content-range",
            "a value is stored whole: PUT with Content-Range is not supported",
        ));
    }
    match head.body {
        Body::Length(length) if length > settings.value_bytes_max => {
            Err(Refusal::value_too_large(settings.value_bytes_max))
        }
        _ => Ok(()),
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

fn entities(head: &Head<'_>, settings: &Settings) -> Result<Scan, Refusal> {
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
            0 => Show::KeysAndValues,
            _ => Show::KeysOnly,
        },
        scope: match choice("scope", scope, ["cluster", "local"])? {
            0 => Scope::Cluster,
            _ => Scope::Local,
        },
        framing: head.accepted.choose().ok_or_else(not_acceptable)?,
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
fn range(
    start: Option<&[u8]>,
    end: Option<&[u8]>,
    prefix: Option<&[u8]>,
    settings: &Settings,
) -> Result<(Vec<u8>, Vec<u8>), Refusal> {
    let (start, end) = match (start, end, prefix) {
        (None, None, Some(prefix)) => {
            let start = bound("prefix", prefix, settings)?;
            let end = successor(&start);
            (start, end)
        }
        (_, _, Some(_)) => {
            return Err(Refusal::bad(
                "bad-range",
                "give prefix, or start and end, not both",
            ));
        }
        (None, _, None) => {
            return Err(Refusal::bad(
                "missing-parameter",
                "start=<key> or prefix=<key> is required",
            ));
        }
        (Some(start), end, None) => {
            let start = bound("start", start, settings)?;
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

/// One end of a range as a stored key. It may be one byte longer than a key: the range behind the
/// longest key starts at that key and a zero byte.
fn bound(name: &str, raw: &[u8], settings: &Settings) -> Result<Vec<u8>, Refusal> {
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

/// The smallest byte string behind everything that starts with `prefix`.
fn successor(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix.iter().rposition(|&b| b != u8::MAX);
    let kept = kept.expect("a stored key starts with its space byte, which is not 255");
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    end
}

fn scan_limit(raw: &[u8]) -> Result<u64, Refusal> {
    let mut room = [0; SHORT_BYTES_MAX];
    let text = short("limit", raw, &mut room)?;
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let value = str::from_utf8(text).ok().filter(|_| is_number);
    match value.and_then(|text| text.parse().ok()) {
        Some(limit @ 1u64..) => Ok(limit),
        _ => Err(Refusal::bad(
            "bad-number",
            format!("limit={} is not a number from 1 on", echo(text)),
        )),
    }
}

/// Which of two words a parameter is; the first when it is not there.
fn choice(name: &str, raw: Option<&[u8]>, words: [&str; 2]) -> Result<usize, Refusal> {
    let Some(raw) = raw else { return Ok(0) };
    let mut room = [0; SHORT_BYTES_MAX];
    let text = short(name, raw, &mut room)?;
    words
        .iter()
        .position(|word| word.as_bytes() == text)
        .ok_or_else(|| {
            Refusal::bad(
                "bad-choice",
                format!(
                    "{name}={} is neither {} nor {}",
                    echo(text),
                    words[0],
                    words[1]
                ),
            )
        })
}

/// Longest number, word or pair of numbers in a parameter, decoded.
const SHORT_BYTES_MAX: usize = 24;

/// Decodes a parameter that is not a key.
fn short<'b>(
    name: &str,
    raw: &[u8],
    room: &'b mut [u8; SHORT_BYTES_MAX],
) -> Result<&'b [u8], Refusal> {
    match percent::decode_into(raw, room) {
        Ok(len) => Ok(&room[..len]),
        Err(DecodeError::Broken) => Err(broken_escape(name)),
        Err(DecodeError::TooLong) => Err(Refusal::bad(
            "bad-number",
            format!("{name} has more than {SHORT_BYTES_MAX} bytes"),
        )),
    }
}

fn number(name: &str, raw: &[u8]) -> Result<u32, Refusal> {
    let mut room = [0; SHORT_BYTES_MAX];
    number_of(name, short(name, raw, &mut room)?)
}

fn number_of(name: &str, text: &[u8]) -> Result<u32, Refusal> {
    digits(text).ok_or_else(|| {
        Refusal::bad(
            "bad-number",
            format!("{name}: `{}` is not a whole number below 2^32", echo(text)),
        )
    })
}

/// Plain decimal digits: no sign, no space.
fn digits(text: &[u8]) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u32, |number, &digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        number.checked_mul(10)?.checked_add(u32::from(digit - b'0'))
    })
}

/// The raw values of the known parameters, in the order of `names`. Empty pieces (`a=1&&b=2`) mean
/// nothing and are skipped, as everywhere on the web.
fn parameters<'q, const N: usize>(
    query: Option<&'q [u8]>,
    names: &[&str; N],
) -> Result<[Option<&'q [u8]>; N], Refusal> {
    let mut values = [None; N];
    let pieces = query.unwrap_or_default().split(|&b| b == b'&');
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        let (name, value) = match piece.iter().position(|&b| b == b'=') {
            Some(at) => (&piece[..at], &piece[at + 1..]),
            None => (piece, &piece[piece.len()..]),
        };
        let mut room = [0; SHORT_BYTES_MAX];
        let name = match percent::decode_into(name, &mut room) {
            Ok(len) => &room[..len],
            Err(DecodeError::Broken) => return Err(broken_escape("a parameter's name")),
            Err(DecodeError::TooLong) => return Err(unknown_parameter(name, names)),
        };
        let known = names.iter().position(|known| known.as_bytes() == name);
        let Some(at) = known else {
            return Err(unknown_parameter(name, names));
        };
        if values[at].replace(value).is_some() {
            return Err(Refusal::bad(
                "repeated-parameter",
                format!("{} is there more than once", names[at]),
            ));
        }
    }
    Ok(values)
}

fn unknown_parameter<const N: usize>(name: &[u8], names: &[&str; N]) -> Refusal {
    let known = match names.join(", ") {
        none if none.is_empty() => "no parameters".to_string(),
        some => some,
    };
    Refusal::bad(
        "unknown-parameter",
        format!(
            "`{}` is not known here; this path takes {known}",
            echo(name)
        ),
    )
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
