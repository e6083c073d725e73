//! From a request head to a typed route, or to the reason for refusing it.
//!
//! ```text
//! path            methods                 parameters
//! /v0/entity      GET, HEAD, PUT, DELETE  id, ack, from, replicas; ttl (PUT), explain (GET)
//! /v0/touch       POST without a body     id, ttl
//! /v0/entities    GET                     start, end, prefix, limit, reverse, keys-only, scope
//! /v0/count       GET                     start, end, prefix
//! /v0/watch       GET                     id, start, end, prefix, from, values, heartbeat_s
//! /v0/batch       POST                    ack, from, replicas
//! /v0/status      GET, HEAD               none
//! /v0/tokens      GET, HEAD, PUT          none; a table, under a key that no client names
//! /v0/peer        GET with Upgrade: dendra-peer/1
//! /v0/peer/hello  POST without a body     none
//! /v0/peer/ask    POST with one frame     none
//! anything else   400
//! ```
//!
//! Invariants
//! 1. A request that passes is completely checked: keys have 1 to `key_bytes_max` bytes, numbers
//!    are in range, parameters are known and given once.
//! 2. Checks go from cheap and general to special: path, method, message, parameters, fields.
//! 3. An entity route allocates no memory, but for a condition of several versions, and metadata:
//!    its key goes to the caller's `KeyBuf`, behind its space byte, ready for the engine.
//! 4. A refusal by a route does not close the connection: the head was sound. Whether to read an
//!    unwanted body to its end or to close is the server's choice.
//!
//! Not here: ranges of scans (`scan.rs`) and watches (`watch.rs`), finding and decoding parameters
//! (`parameters.rs`), the framing of the message (`http`).
//! See: docs/api.md, docs/openapi.yaml.

mod batch;
mod checks;
mod parameters;
mod scan;
mod watch;

pub use batch::{BatchTerms, too_large, too_many};
pub use checks::RequestRules;
pub use scan::{Direction, RESERVED, Scan, Scope, successor};
pub use watch::{WatchFrom, WatchQuery, bad_token};

use crate::condition::{self, Condition};
use crate::http::{Body, Field, FieldLines, Head, Method};
use crate::limits::{TOKENS_BYTES_MAX, TTL_S_MAX, WAIT_S_MAX};
use crate::meta::{self, MetaBuf};
use crate::percent;
use crate::refusal::{Refusal, echo};
use checks::{allow, check_coding, check_message};
use dendra_base::limits::{KEY_BYTES_MAX, STORED_KEY_BYTES_MAX};
use dendra_base::{Quorum, Space};
use parameters::{choice, key_error, number, parameters, quorum, timeout_ms};
use scan::entities;

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

impl KeyBuf {
    /// The stored key of the client's key `raw`. Requires: it has at most `KEY_BYTES_MAX` bytes.
    pub(crate) fn fill(&mut self, raw: &[u8]) {
        self.bytes[0] = Space::User.byte();
        self.bytes[1..=raw.len()].copy_from_slice(raw);
        self.len = 1 + raw.len();
    }

    /// The stored key of the table of tokens.
    pub fn set_tokens(&mut self) {
        let name = [&[Space::User.byte()], &RESERVED[..], TOKENS].concat();
        self.bytes[..name.len()].copy_from_slice(&name);
        self.len = name.len();
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
    /// How a read of the key is found, in place of its value; the stored key is in the `KeyBuf`.
    Explain(Entity),
    /// Many keys, or how many.
    Entities(Box<Scan>),
    /// The events of many keys.
    Watch(Box<WatchQuery>),
    /// Many operations.
    Batch(BatchTerms),
    /// `/v0/tokens`: the table of tokens, whose stored key is in the `KeyBuf`.
    Tokens(Entity),
    /// `/v0/status`
    Status,
    /// A peer that wants to speak frames.
    Peer,
    /// A peer that wants to ask over plain HTTP.
    PeerHello,
    /// A question of such a peer.
    PeerAsk,
}

/// The operations on one key.
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
    /// Give the value another end.
    Touch,
}

/// A request about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// The operation.
    pub op: EntityOp,
    /// How many copies, how many answers.
    pub quorum: Quorum,
    /// The condition on the current record.
    pub condition: Condition,
    /// Is the current value wanted when the condition of a write does not hold?
    pub wants_current: bool,
    /// Time to live in seconds (PUT; a touch always has one).
    pub ttl_s: Option<u32>,
    /// Time until the deadline, counted from the arrival of the head.
    pub timeout_ms: u32,
    /// How long a GET waits for another state of its key, in seconds.
    pub wait_s: Option<u32>,
    /// The metadata of the value (PUT).
    pub meta: MetaBuf,
}

/// Reads the operation from a head. The key of an entity goes to `key`.
///
/// # Errors
/// A refusal that leaves the connection open; see docs/api.md for each code word.
pub fn route(head: &Head<'_>, settings: &RequestRules, key: &mut KeyBuf) -> Result<Route, Refusal> {
    match head.path {
        b"/v0/entity" => entity(head, settings, key),
        b"/v0/touch" => touch(head, settings, key).map(Route::Entity),
        b"/v0/entities" => entities(head, settings).map(|scan| Route::Entities(Box::new(scan))),
        b"/v0/count" => scan::count(head, settings).map(|scan| Route::Entities(Box::new(scan))),
        b"/v0/watch" => watch::watch(head, settings).map(|query| Route::Watch(Box::new(query))),
        b"/v0/batch" => batch::batch(head, settings).map(Route::Batch),
        b"/v0/tokens" => tokens(head, settings, key).map(Route::Tokens),
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
        b"/v0/peer/hello" => {
            allow(head, &[Method::Post], "POST")?;
            check_message(head)?;
            parameters::<0>(head.query, &[])?;
            Ok(Route::PeerHello)
        }
        b"/v0/peer/ask" => {
            allow(head, &[Method::Post], "POST")?;
            check_coding(head)?;
            parameters::<0>(head.query, &[])?;
            Ok(Route::PeerAsk)
        }
        path => Err(Refusal::bad(
            "unknown-path",
            format!(
                "{} is not here; there are /v0/entity, /v0/touch, /v0/entities, /v0/count, \
                 /v0/watch, /v0/batch and /v0/status",
                echo(path)
            ),
        )),
    }
}

/// Behind them: where the table of tokens is.
const TOKENS: &[u8] = b"tokens";

/// The table of tokens as a record like others: its copies, its versions, its conditions.
fn tokens(head: &Head<'_>, settings: &RequestRules, key: &mut KeyBuf) -> Result<Entity, Refusal> {
    allow(
        head,
        &[Method::Get, Method::Head, Method::Put],
        "GET, HEAD, PUT",
    )?;
    let op = match head.method {
        Method::Put => EntityOp::Put,
        Method::Head => EntityOp::Head,
        _ => EntityOp::Get,
    };
    check_message(head)?;
    parameters::<0>(head.query, &[])?;
    key.set_tokens();
    let entity = Entity {
        op,
        quorum: Quorum::usual(settings.replication_factor, settings.nodes),
        condition: condition(head)?,
        wants_current: false,
        ttl_s: None,
        timeout_ms: timeout_ms(head)?,
        wait_s: None,
        meta: MetaBuf::default(),
    };
    if op == EntityOp::Put {
        if entity.condition == Condition::None {
            return Err(Refusal::bad(
                "missing-condition",
                "a table replaces the one that was read: say which with If-Match, or If-None-Match: * for the first",
            ));
        }
        let most = settings.value_bytes_max.min(TOKENS_BYTES_MAX as u64);
        match head.body {
            Body::Length(length) if length > most => return Err(Refusal::value_too_large(most)),
            _ => {}
        }
    }
    Ok(entity)
}

/// Is this where the table of tokens is?
pub fn is_tokens(stored_key: &[u8]) -> bool {
    let name = stored_key
        .get(1..)
        .and_then(|raw| raw.strip_prefix(&RESERVED[..]));
    name == Some(TOKENS)
}

const ENTITY_PARAMETERS: [&str; 7] = ["id", "ack", "from", "replicas", "ttl", "wait_s", "explain"];

fn entity(head: &Head<'_>, settings: &RequestRules, key: &mut KeyBuf) -> Result<Route, Refusal> {
    let op = match head.method {
        Method::Get => EntityOp::Get,
        Method::Head => EntityOp::Head,
        Method::Put => EntityOp::Put,
        Method::Delete => EntityOp::Delete,
        Method::Post | Method::Other => {
            return Err(Refusal::method_not_allowed("GET, HEAD, PUT, DELETE"));
        }
    };
    check_message(head)?;
    let [id, ack, from, replicas, ttl, wait_s, explain] =
        parameters(head.query, &ENTITY_PARAMETERS)?;
    read_key(id, settings, key)?;
    if ttl.is_some() && op != EntityOp::Put {
        return Err(Refusal::bad("unknown-parameter", "ttl goes with PUT only"));
    }
    let entity = Entity {
        op,
        quorum: quorum(ack, from, replicas, settings)?,
        condition: condition(head)?,
        wants_current: head.prefers_representation
            && matches!(op, EntityOp::Put | EntityOp::Delete),
        ttl_s: ttl.map(time_to_live).transpose()?,
        timeout_ms: timeout_ms(head)?,
        wait_s: wait_s.map(wait).transpose()?,
        meta: match op {
            EntityOp::Put => metadata(head)?,
            EntityOp::Get | EntityOp::Head | EntityOp::Delete | EntityOp::Touch => {
                MetaBuf::default()
            }
        },
    };
    if entity.wait_s.is_some() {
        let others = ack.or(from).or(replicas).or(explain);
        if op != EntityOp::Get || others.is_some() {
            return Err(Refusal::bad(
                "unknown-parameter",
                "wait_s goes with GET only, and at its usual level: leave out ack, from, replicas, explain",
            ));
        }
        if head.if_match != FieldLines::Absent {
            return Err(Refusal::bad(
                "bad-condition",
                "wait_s goes with If-None-Match, the ETag that you know, or without a condition",
            ));
        }
    }
    if op == EntityOp::Put {
        check_value(head, settings)?;
    }
    match explain {
        None => Ok(Route::Entity(entity)),
        Some(raw) => check_explain(raw, &entity).map(|()| Route::Explain(entity)),
    }
}

/// Can this request be explained?
fn check_explain(raw: &[u8], entity: &Entity) -> Result<(), Refusal> {
    if entity.op != EntityOp::Get {
        let sentence = "explain goes with GET only";
        return Err(Refusal::bad("unknown-parameter", sentence));
    }
    choice("explain", Some(raw), ["1"])?;
    if entity.condition != Condition::None {
        let sentence = "explain=1 answers about any version: leave If-Match and If-None-Match away";
        return Err(Refusal::bad("bad-condition", sentence));
    }
    Ok(())
}

/// A new end for a value. It is a condition of its own: there has to be a live value. So it is at
/// the default level, like each conditional write.
fn touch(head: &Head<'_>, settings: &RequestRules, key: &mut KeyBuf) -> Result<Entity, Refusal> {
    allow(head, &[Method::Post], "POST")?;
    check_message(head)?;
    let [id, ttl] = parameters(head.query, &["id", "ttl"])?;
    read_key(id, settings, key)?;
    let ttl = ttl.ok_or_else(|| {
        Refusal::bad(
            "missing-parameter",
            "ttl=<seconds> is required: a touch gives a value another end",
        )
    })?;
    let is_absent_wanted = head.if_none_match != FieldLines::Absent;
    let condition = condition::of_touch(condition(head)?, is_absent_wanted)?;
    Ok(Entity {
        op: EntityOp::Touch,
        quorum: Quorum::usual(settings.replication_factor, settings.nodes),
        condition,
        wants_current: head.prefers_representation,
        ttl_s: Some(time_to_live(ttl)?),
        timeout_ms: timeout_ms(head)?,
        wait_s: None,
        meta: MetaBuf::default(),
    })
}

fn metadata(head: &Head<'_>) -> Result<MetaBuf, Refusal> {
    let content_type = match head.meta.content_type {
        Field::Absent => None,
        Field::Once(content_type) => Some(content_type),
        Field::Repeated => return Err(meta::bad("Content-Type is there more than once")),
    };
    MetaBuf::new(content_type, &head.meta.named)
}

fn read_key(id: Option<&[u8]>, settings: &RequestRules, key: &mut KeyBuf) -> Result<(), Refusal> {
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
    if key.raw().starts_with(&RESERVED) {
        return Err(Refusal::reserved_key());
    }
    Ok(())
}

fn condition(head: &Head<'_>) -> Result<Condition, Refusal> {
    condition::parse(head.if_match.lines(), head.if_none_match.lines())
}

fn wait(raw: &[u8]) -> Result<u32, Refusal> {
    match number("wait_s", raw)? {
        seconds @ 1..=WAIT_S_MAX => Ok(seconds),
        _ => Err(Refusal::bad(
            "bad-number",
            format!("wait_s is 1 to {WAIT_S_MAX} seconds"),
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

fn check_value(head: &Head<'_>, settings: &RequestRules) -> Result<(), Refusal> {
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

#[cfg(test)]
mod tests;
