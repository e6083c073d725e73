//! The client's side: items as bytes.
//!
//! Invariants
//! 1. An item is read as it was written, for every legal key, value and condition.
//!
//! Not here: reading them (`mod.rs`).

use crate::EntityOp;
use crate::http::lines::{LineFraming, bytes_field};
use crate::http::records::{escape, meta_fields};
use crate::meta::{self, Meta};

/// A record has a time to live, 4 bytes.
pub(super) const WITH_TTL: u8 = 1;
/// A record has a version that must match, or `*`.
pub(super) const WITH_IF_MATCH: u8 = 2;
/// A record has a version that must not match, or `*`.
pub(super) const WITH_IF_NONE_MATCH: u8 = 4;
/// The value of a record is as it is stored: with its metadata.
pub(super) const IS_STORED: u8 = 8;

/// An operation of a batch, as a client asks for it. A value without a put is not looked at.
#[derive(Clone, Copy, Debug)]
pub struct SentItem<'a> {
    /// Get, put, delete or touch.
    pub op: EntityOp,
    /// The key.
    pub key: &'a [u8],
    /// The value of a put.
    pub value: &'a [u8],
    /// Is the value as it is stored: with its metadata?
    pub is_stored: bool,
    /// Time to live in seconds, of a put or a touch.
    pub ttl_s: Option<u32>,
    /// `if-match`: a version, or `*`.
    pub if_match: Option<&'a str>,
    /// `if-none-match`: a version, or `*`.
    pub if_none_match: Option<&'a str>,
}

impl<'a> SentItem<'a> {
    /// Stores a value.
    pub fn put(key: &'a [u8], value: &'a [u8]) -> SentItem<'a> {
        SentItem {
            op: EntityOp::Put,
            key,
            value,
            is_stored: false,
            ttl_s: None,
            if_match: None,
            if_none_match: None,
        }
    }

    /// Stores a value with its metadata, as another node stores it.
    pub fn put_stored(key: &'a [u8], stored: &'a [u8]) -> SentItem<'a> {
        SentItem {
            is_stored: stored.starts_with(&meta::MAGIC),
            ..SentItem::put(key, stored)
        }
    }

    /// Appends the item. Requires: key, value and tags are within their limits.
    pub fn encode_into(&self, framing: LineFraming, out: &mut Vec<u8>) {
        match framing {
            LineFraming::Ndjson => self.line(out),
            LineFraming::Records => self.record(out),
        }
    }

    fn line(&self, out: &mut Vec<u8>) {
        let op = match self.op {
            EntityOp::Put => "put",
            EntityOp::Get | EntityOp::Head => "get",
            EntityOp::Delete => "delete",
            EntityOp::Touch => "touch",
        };
        out.extend_from_slice(b"{\"op\":\"");
        out.extend_from_slice(op.as_bytes());
        out.push(b'"');
        bytes_field(out, "key", self.key);
        if self.op == EntityOp::Put {
            let (meta, value) = if self.is_stored {
                meta::unwrap(self.value)
            } else {
                (Meta::default(), self.value)
            };
            bytes_field(out, "value", value);
            meta_fields(out, meta);
        }
        if let Some(ttl_s) = self.ttl_s.filter(|_| has_ttl(self.op)) {
            out.extend_from_slice(format!(",\"ttl\":{ttl_s}").as_bytes());
        }
        let tags = [
            ("if-match", self.if_match),
            ("if-none-match", self.if_none_match),
        ];
        for (name, tag) in tags {
            if let Some(tag) = tag {
                out.extend_from_slice(format!(",\"{name}\":\"").as_bytes());
                escape(out, tag);
                out.push(b'"');
            }
        }
        out.extend_from_slice(b"}\n");
    }

    fn record(&self, out: &mut Vec<u8>) {
        let op = match self.op {
            EntityOp::Put => 0,
            EntityOp::Get | EntityOp::Head => 1,
            EntityOp::Delete => 2,
            EntityOp::Touch => 3,
        };
        let (value, ttl_s) = match self.op {
            EntityOp::Put => (self.value, self.ttl_s),
            EntityOp::Touch => (&b""[..], self.ttl_s),
            EntityOp::Get | EntityOp::Head | EntityOp::Delete => (&b""[..], None),
        };
        let option = |is_there: bool, option: u8| if is_there { option } else { 0 };
        let options = option(ttl_s.is_some(), WITH_TTL)
            | option(self.if_match.is_some(), WITH_IF_MATCH)
            | option(self.if_none_match.is_some(), WITH_IF_NONE_MATCH)
            | option(self.is_stored && self.op == EntityOp::Put, IS_STORED);
        let key_len = u16::try_from(self.key.len()).expect("a key has at most 1024 bytes");
        let value_len = u32::try_from(value.len()).expect("a value has at most 8 MiB");
        out.extend_from_slice(&[op, options]);
        out.extend_from_slice(&key_len.to_be_bytes());
        out.extend_from_slice(&value_len.to_be_bytes());
        if let Some(ttl_s) = ttl_s {
            out.extend_from_slice(&ttl_s.to_be_bytes());
        }
        for tag in [self.if_match, self.if_none_match].into_iter().flatten() {
            out.push(u8::try_from(tag.len()).expect("a tag is short"));
            out.extend_from_slice(tag.as_bytes());
        }
        out.extend_from_slice(self.key);
        out.extend_from_slice(value);
    }
}

/// May an item of this operation have a time to live?
pub(super) fn has_ttl(op: EntityOp) -> bool {
    matches!(op, EntityOp::Put | EntityOp::Touch)
}
