//! Batches: many operations in one request, an item for each, and a line for each in the answer.
//!
//! ```text
//! NDJSON    {"op":"put","key":"a","value":"1","ttl":30} LF       op: put (or none), get, delete, touch
//!           {"op":"delete","key_base64":"/w==","if-match":"<version>"} LF
//!           {"key":"b","value":"2","content_type":"a/b","meta":{"n":"c"}} LF
//! Records   | op u8 | options u8 | key length u16 | value length u32 | options | key | value |
//!           options: 1 = ttl u32, 2 = If-Match, 4 = If-None-Match: a length u8 and the tag
//!                    8 = the value is as it is stored: `meta/`
//!           | ff ff ff ff | ff ff ff ff |                          the end; the body's is one, too
//! ```
//!
//! So the lines, or the records, that a scan shows are a batch that stores them again.
//!
//! Invariants
//! 1. An item that passes is as completely checked as a request about one key.
//! 2. A fault inside an item is that item's alone. Only where the next item begins is not certain
//!    any more does a fault end the batch.
//! 3. How the body was cut into pieces does not decide about its items.
//!
//! Not here: JSON objects (`json.rs`), items as a client writes them (`encode.rs`), the head
//! (`route/batch.rs`), lines of the answer (`http/lines.rs`), carrying items out (crate `server`).
//! See: docs/batch.md.

mod encode;
mod json;

use crate::condition;
use crate::http::lines::LineFraming;
use crate::limits::{BATCH_BYTES_MAX, TTL_S_MAX};
use crate::meta::{self, MetaBuf};
use crate::refusal::{Refusal, echo};
use crate::route::{BatchTerms, Entity, EntityOp, KeyBuf, RESERVED, RequestRules, too_large};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dendra_base::limits::{KEY_BYTES_MAX, META_LEN_MAX};
use dendra_base::{BadQuorum, Quorum};
use json::{Scalar, bad};

use std::borrow::Cow;

pub use encode::SentItem;
use encode::{IS_STORED, WITH_IF_MATCH, WITH_IF_NONE_MATCH, WITH_TTL};

/// The piece at the front of the body of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Not yet a whole item.
    Incomplete,
    /// An empty line of so many bytes.
    Blank(usize),
    /// An item of so many bytes, its line end included.
    Item(usize),
    /// The end mark.
    End,
}

/// Splits the first piece off the front of `text`. `searched` bytes at its front were looked at
/// before and hold no line end; the new number goes there. `is_all`: nothing comes behind `text`.
///
/// # Errors
/// Where an item ends is not certain: the batch ends.
pub fn split_item(
    framing: LineFraming,
    text: &[u8],
    searched: &mut usize,
    is_all: bool,
) -> Result<Piece, Refusal> {
    match framing {
        LineFraming::Ndjson => {
            let fresh = text.get(*searched..).unwrap_or_default();
            let len = match fresh.iter().position(|&b| b == b'\n') {
                Some(at) => *searched + at + 1,
                None if is_all && !text.is_empty() => text.len(),
                None => {
                    *searched = text.len();
                    return Ok(Piece::Incomplete);
                }
            };
            *searched = 0;
            if text[..len].trim_ascii().is_empty() {
                Ok(Piece::Blank(len))
            } else {
                Ok(Piece::Item(len))
            }
        }
        LineFraming::Records => match ItemHead::decode(text)? {
            Some(ItemHead::End) => Ok(Piece::End),
            Some(ItemHead::Item { len, .. }) if len <= text.len() => Ok(Piece::Item(len)),
            _ if is_all && !text.is_empty() => Err(bad("the body ends inside a record")),
            _ => Ok(Piece::Incomplete),
        },
    }
}

const OPS: [EntityOp; 4] = [
    EntityOp::Put,
    EntityOp::Get,
    EntityOp::Delete,
    EntityOp::Touch,
];

/// Head of a record: the fields in front of its key.
enum ItemHead<'a> {
    End,
    Item {
        op: EntityOp,
        ttl_s: Option<u32>,
        if_match: Option<&'a [u8]>,
        if_none_match: Option<&'a [u8]>,
        is_stored: bool,
        /// Where its key begins, and where its value does.
        key_at: usize,
        value_at: usize,
        /// Bytes of the record.
        len: usize,
    },
}

impl ItemHead<'_> {
    /// The head at the front of `bytes`; `None` while it is not whole.
    fn decode(bytes: &[u8]) -> Result<Option<ItemHead<'_>>, Refusal> {
        let Some((&[op, options, k0, k1, v0, v1, v2, v3], _)) = bytes.split_first_chunk::<8>()
        else {
            return Ok(None);
        };
        if bytes.starts_with(&[0xff; 8]) {
            return Ok(Some(ItemHead::End));
        }
        let op = OPS.get(usize::from(op)).ok_or_else(|| {
            bad(format!(
                "a record's operation is 0 (put), 1 (get), 2 (delete) or 3 (touch), not {op}"
            ))
        })?;
        if options > WITH_TTL | WITH_IF_MATCH | WITH_IF_NONE_MATCH | IS_STORED {
            return Err(bad(format!(
                "a record's options are below 16, not {options}"
            )));
        }
        let value_len = u32::from_be_bytes([v0, v1, v2, v3]);
        if u64::from(value_len) > BATCH_BYTES_MAX {
            return Err(too_large());
        }
        let mut at = 8;
        let mut ttl_s = None;
        if options & WITH_TTL != 0 {
            let Some(field) = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>) else {
                return Ok(None);
            };
            ttl_s = Some(u32::from_be_bytes(*field));
            at += 4;
        }
        let mut tags = [None; 2];
        for (tag, option) in tags.iter_mut().zip([WITH_IF_MATCH, WITH_IF_NONE_MATCH]) {
            if options & option == 0 {
                continue;
            }
            let Some(&len) = bytes.get(at) else {
                return Ok(None);
            };
            let Some(text) = bytes.get(at + 1..at + 1 + usize::from(len)) else {
                return Ok(None);
            };
            *tag = Some(text);
            at += 1 + usize::from(len);
        }
        let [if_match, if_none_match] = tags;
        let value_at = at + usize::from(u16::from_be_bytes([k0, k1]));
        Ok(Some(ItemHead::Item {
            op: *op,
            ttl_s,
            if_match,
            if_none_match,
            is_stored: options & IS_STORED != 0,
            key_at: at,
            value_at,
            len: value_at + value_len as usize,
        }))
    }
}

/// The parts of an item, before they are checked together.
#[derive(Default)]
struct Parts<'a> {
    op: Option<EntityOp>,
    has_key: bool,
    has_value: bool,
    ttl_s: Option<u32>,
    if_match: Option<Cow<'a, [u8]>>,
    if_none_match: Option<Cow<'a, [u8]>>,
    ack: Option<u32>,
    from: Option<u32>,
    content_type: Option<Vec<u8>>,
    named: Option<Vec<NamedContent<'a>>>,
    /// The value is as it is stored.
    is_stored: bool,
}

/// A name of metadata and its content.
type NamedContent<'a> = (&'a [u8], Vec<u8>);

/// Reads one item, as [`split_item`] split it off. Its key goes to `key`, the value of a put to
/// `value`, as it is stored: with its metadata.
///
/// # Errors
/// The item's refusal, as a request about one key would get it.
pub fn parse_item(
    batch: &BatchTerms,
    rules: &RequestRules,
    item: &[u8],
    key: &mut KeyBuf,
    value: &mut Vec<u8>,
) -> Result<Entity, Refusal> {
    value.clear();
    let parts = match batch.items {
        LineFraming::Ndjson => parse_line(item, rules, key, value)?,
        LineFraming::Records => parse_record(item, rules, key, value)?,
    };
    let op = parts.op.unwrap_or(EntityOp::Put);
    if !parts.has_key {
        return Err(Refusal::bad("missing-parameter", "the item has no key"));
    }
    if key.raw().starts_with(&RESERVED) {
        return Err(Refusal::reserved_key());
    }
    match (op, parts.has_value) {
        (EntityOp::Put, false) => {
            return Err(Refusal::bad("missing-parameter", "a put has a value"));
        }
        (EntityOp::Put, true) | (_, false) => {}
        (_, true) => return Err(bad("only a put has a value")),
    }
    wrap_value(&parts, op, rules, value)?;
    let ttl_s = match parts.ttl_s {
        Some(_) if !encode::has_ttl(op) => {
            return Err(Refusal::bad(
                "unknown-parameter",
                "ttl goes with a put or a touch only",
            ));
        }
        Some(0) => return Err(bad_ttl()),
        Some(seconds) if seconds > TTL_S_MAX => return Err(bad_ttl()),
        None if op == EntityOp::Touch => {
            return Err(Refusal::bad("missing-parameter", "a touch has a ttl"));
        }
        ttl_s => ttl_s,
    };
    let quorum = match (parts.ack, parts.from) {
        (None, None) if op == EntityOp::Touch => {
            Quorum::usual(rules.replication_factor, rules.nodes)
        }
        (None, None) => batch.quorum,
        _ if op == EntityOp::Touch => {
            return Err(Refusal::bad(
                "unknown-parameter",
                "a touch has the default level: ack and from do not go with it",
            ));
        }
        (ack, from) => Quorum::resolve(ack, from, rules.replication_factor, rules.nodes)
            .map_err(|error| Refusal::bad(BadQuorum::CODE, error.to_string()))?,
    };
    let (if_match, if_none_match) = (parts.if_match.as_deref(), parts.if_none_match.as_deref());
    let condition = condition::parse_bare(if_match, if_none_match)?;
    Ok(Entity {
        op,
        quorum,
        condition: if op == EntityOp::Touch {
            condition::of_touch(condition, if_none_match.is_some())?
        } else {
            condition
        },
        wants_current: batch.wants_current && op != EntityOp::Get,
        ttl_s,
        timeout_ms: batch.timeout_ms,
        wait_s: None,
        meta: MetaBuf::default(),
    })
}

/// Checks the value and its metadata, and puts them together as they are stored.
fn wrap_value(
    parts: &Parts<'_>,
    op: EntityOp,
    rules: &RequestRules,
    value: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let has_meta = parts.content_type.is_some() || parts.named.is_some() || parts.is_stored;
    if has_meta && op != EntityOp::Put {
        return Err(meta::bad("metadata goes with a put only"));
    }
    let is_wrapped = parts.is_stored && value.starts_with(&meta::MAGIC);
    let plain_len = match meta::unwrap_exact(value).filter(|_| is_wrapped) {
        Some((_, plain)) => plain.len(),
        None if is_wrapped => {
            return Err(meta::bad("the value begins as a wrapped one, and is none"));
        }
        None => value.len(),
    };
    if plain_len as u64 > rules.value_bytes_max {
        return Err(Refusal::value_too_large(rules.value_bytes_max));
    }
    if is_wrapped {
        return Ok(());
    }
    let named = parts.named.as_deref().unwrap_or_default();
    let meta = MetaBuf::new(parts.content_type.as_deref(), named)?;
    if let Some(wrapped) = meta::wrap(&meta, value) {
        *value = wrapped;
    }
    Ok(())
}

fn bad_ttl() -> Refusal {
    Refusal::bad("bad-number", format!("ttl is 1 to {TTL_S_MAX} seconds"))
}

fn parse_record<'a>(
    item: &'a [u8],
    rules: &RequestRules,
    key: &mut KeyBuf,
    value: &mut Vec<u8>,
) -> Result<Parts<'a>, Refusal> {
    let Some(ItemHead::Item {
        op,
        ttl_s,
        if_match,
        if_none_match,
        is_stored,
        key_at,
        value_at,
        len,
    }) = ItemHead::decode(item)?
    else {
        return Err(bad("the record is not whole"));
    };
    key.set_raw(&item[key_at..value_at], rules)?;
    value.extend_from_slice(&item[value_at..len]);
    Ok(Parts {
        op: Some(op),
        has_key: true,
        // Of a get and a delete the length is 0: they have none.
        has_value: op == EntityOp::Put || !value.is_empty(),
        ttl_s,
        if_match: if_match.map(Cow::Borrowed),
        if_none_match: if_none_match.map(Cow::Borrowed),
        is_stored,
        ..Parts::default()
    })
}

fn parse_line<'a>(
    line: &'a [u8],
    rules: &RequestRules,
    key: &mut KeyBuf,
    value: &mut Vec<u8>,
) -> Result<Parts<'a>, Refusal> {
    let mut parts = Parts::default();
    json::parse_object(line, |name, scalar| {
        let is_again = match name {
            b"op" => {
                let op = match text("op", scalar)? {
                    b"put" => EntityOp::Put,
                    b"get" => EntityOp::Get,
                    b"delete" => EntityOp::Delete,
                    b"touch" => EntityOp::Touch,
                    other => {
                        let other = echo(other);
                        let sentence = format!("op is put, get, delete or touch, not `{other}`");
                        return Err(Refusal::bad("bad-choice", sentence));
                    }
                };
                parts.op.replace(op).is_some()
            }
            b"key" | b"key_base64" => {
                // The longest key with every byte as `\u00XX`.
                let mut room = Vec::new();
                bytes_into(name, scalar, &mut room)?;
                key.set_raw(&room, rules)?;
                std::mem::replace(&mut parts.has_key, true)
            }
            b"value" | b"value_base64" => {
                let had = std::mem::replace(&mut parts.has_value, true);
                bytes_into(name, scalar, value)?;
                had
            }
            b"ttl" => parts.ttl_s.replace(number("ttl", scalar)?).is_some(),
            b"ack" => parts.ack.replace(number("ack", scalar)?).is_some(),
            b"from" => parts.from.replace(number("from", scalar)?).is_some(),
            b"content_type" => {
                let mut content = Vec::new();
                bytes_into(name, scalar, &mut content)?;
                parts.content_type.replace(content).is_some()
            }
            b"meta" => parts.named.replace(named_contents(scalar)?).is_some(),
            b"if-match" => parts.if_match.replace(tag(scalar)?).is_some(),
            b"if-none-match" => parts.if_none_match.replace(tag(scalar)?).is_some(),
            other => {
                let sentence = format!("an item has no field `{}`", echo(other));
                return Err(Refusal::bad("unknown-parameter", sentence));
            }
        };
        if is_again {
            let sentence = format!("{} is there more than once", echo(name));
            return Err(Refusal::bad("repeated-parameter", sentence));
        }
        Ok(())
    })?;
    Ok(parts)
}

/// The fields of `meta`. A name has no escapes: no name needs one.
fn named_contents(scalar: Scalar<'_>) -> Result<Vec<NamedContent<'_>>, Refusal> {
    let Scalar::Object(object) = scalar else {
        return Err(bad("meta is an object with names and strings"));
    };
    let mut named = Vec::new();
    json::parse_object(object, |name, content| {
        if named.len() > META_LEN_MAX {
            // More than there may be: `MetaBuf` refuses it.
            return Ok(());
        }
        let mut plain = Vec::new();
        bytes_into(b"the content in meta", content, &mut plain)?;
        named.push((name, plain));
        Ok(())
    })?;
    Ok(named)
}

/// A word, whose letters need no escape.
fn text<'a>(name: &str, scalar: Scalar<'a>) -> Result<&'a [u8], Refusal> {
    match scalar {
        Scalar::Text { raw, .. } => Ok(raw),
        Scalar::Number(_) | Scalar::Object(_) => Err(bad(format!("{name} is a string"))),
    }
}

/// A condition. Most are a bare version, without an escape; an `ETag` has those of its quotes.
fn tag(scalar: Scalar<'_>) -> Result<Cow<'_, [u8]>, Refusal> {
    let Scalar::Text { raw, has_escapes } = scalar else {
        return Err(bad("a condition is a string"));
    };
    if !has_escapes {
        return Ok(Cow::Borrowed(raw));
    }
    let mut plain = Vec::new();
    json::unescape_into(raw, has_escapes, &mut plain)?;
    Ok(Cow::Owned(plain))
}

fn number(name: &str, scalar: Scalar<'_>) -> Result<u32, Refusal> {
    let wrong = |shown: &[u8]| {
        let shown = echo(shown);
        let sentence = format!("{name}: `{shown}` is not a whole number below 2^32");
        Refusal::bad("bad-number", sentence)
    };
    match scalar {
        Scalar::Number(digits) => {
            let number = crate::http::request::digits(digits);
            let number = number.and_then(|number| u32::try_from(number).ok());
            number.ok_or_else(|| wrong(digits))
        }
        Scalar::Text { raw, .. } | Scalar::Object(raw) => Err(wrong(raw)),
    }
}

/// The bytes of a key or a value, as text or in base64.
fn bytes_into(name: &[u8], scalar: Scalar<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let name = str::from_utf8(name).unwrap_or_default();
    out.clear();
    let Scalar::Text { raw, has_escapes } = scalar else {
        return Err(bad(format!("{name} is a string")));
    };
    if !name.ends_with("_base64") {
        return json::unescape_into(raw, has_escapes, out);
    }
    let mut plain = Vec::new();
    let raw = if has_escapes {
        json::unescape_into(raw, has_escapes, &mut plain)?;
        plain.as_slice()
    } else {
        raw
    };
    let decoded = STANDARD.decode_vec(raw, out);
    decoded.map_err(|_bad| bad(format!("{name} is not base64 with its padding")))
}

impl KeyBuf {
    /// The stored key of the key `raw`.
    fn set_raw(&mut self, raw: &[u8], rules: &RequestRules) -> Result<(), Refusal> {
        let most = rules.key_bytes_max.min(KEY_BYTES_MAX);
        match raw.len() {
            0 => Err(Refusal::bad(
                "empty-parameter",
                "the key is empty; a key has at least 1 byte",
            )),
            len if len > most => Err(Refusal::new(
                414,
                "key-too-long",
                format!("the key has more than {most} bytes"),
            )),
            _ => {
                self.fill(raw);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
