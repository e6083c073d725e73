//! Records of a scan as bytes of a chunked answer, and back.
//!
//! ```text
//! framing   one HTTP chunk per record holds
//! Plain     key LF value                       keys only: key LF
//! Ndjson    {"key":"…","value":"…"} LF         both UTF-8; keys only: {"key":"…"}
//!           {"key_base64":"…","value_base64":"…"} LF          otherwise, both of them
//!           {…,"content_type":"a/b","meta":{"n":"c"}} LF      the metadata that there is
//! Records   | key length u32 | value length u32 | key | value |   big-endian; keys only: length 0
//!           | ff ff ff ff | ff ff ff ff |                         behind the last record
//! Wrapped   as Records, and a value with metadata is as it is stored: `meta/`
//! ```
//!
//! Invariants
//! 1. Every record is one HTTP chunk of its own in every framing, never empty. So a client of
//!    `Plain` can tell a line feed in a key from the one behind it.
//! 2. The end mark of `Records` and of `Wrapped` is written exactly when all that was asked for has
//!    been sent.
//!
//! Not here: choosing the framing (`accept.rs`), the head and the trailer (`response/`).
//! See: docs/api.md, section "Many keys".

use super::accept::Framing;
use crate::meta::{self, Meta};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The part of each record that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownPart {
    /// Keys and their values.
    KeysAndValues,
    /// Keys alone (`keys-only=true`).
    KeysOnly,
    /// Nothing of them: the records are counted.
    Number,
}

/// Both lengths of the end mark.
const END: u32 = u32::MAX;

/// The part of a stored value that is shown.
fn shown_value(framing: Framing, show: ShownPart, stored: &[u8]) -> (Meta<'_>, &[u8]) {
    match (show, framing) {
        (ShownPart::KeysOnly | ShownPart::Number, _) => (Meta::default(), b""),
        (ShownPart::KeysAndValues, Framing::Wrapped) => (Meta::default(), stored),
        (ShownPart::KeysAndValues, _) => meta::unwrap(stored),
    }
}

/// Appends one record as one HTTP chunk. `stored`: its value as it is stored, which is not looked
/// at when only keys are shown.
pub fn record(out: &mut Vec<u8>, framing: Framing, show: ShownPart, key: &[u8], stored: &[u8]) {
    if show == ShownPart::Number {
        return;
    }
    let (meta, value) = shown_value(framing, show, stored);
    match framing {
        Framing::Plain => {
            chunk_head(out, key.len() + 1 + value.len());
            out.extend_from_slice(key);
            out.push(b'\n');
            out.extend_from_slice(value);
        }
        Framing::Ndjson => line(out, show, key, value, meta),
        Framing::Records | Framing::Wrapped => {
            chunk_head(out, 8 + key.len() + value.len());
            out.extend_from_slice(&length(key).to_be_bytes());
            out.extend_from_slice(&length(value).to_be_bytes());
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Bytes that [`record`] appends at most: exact but for the digits of a size line.
pub fn record_len_max(framing: Framing, show: ShownPart, key: &[u8], stored: &[u8]) -> usize {
    // A size line of at most sixteen digits, and the line ends.
    const CHUNK: usize = 16 + 2 + 2;
    const FIELDS: usize = br#"{"key_base64":"","value_base64":""}"#.len() + 1;
    if show == ShownPart::Number {
        return 0;
    }
    let (meta, value) = shown_value(framing, show, stored);
    let body = match (framing, str::from_utf8(key), str::from_utf8(value)) {
        (Framing::Plain, _, _) => key.len() + 1 + value.len(),
        (Framing::Records | Framing::Wrapped, _, _) => 8 + key.len() + value.len(),
        (Framing::Ndjson, Ok(key), Ok(value)) => FIELDS + escaped_len(key) + escaped_len(value),
        (Framing::Ndjson, _, _) => FIELDS + key.len().div_ceil(3) * 4 + value.len().div_ceil(3) * 4,
    };
    let beside = match framing {
        Framing::Ndjson => fields_of(meta).len(),
        Framing::Plain | Framing::Records | Framing::Wrapped => 0,
    };
    CHUNK + body + beside
}

/// Appends the end mark of a framing that has one.
pub(crate) fn end_mark(out: &mut Vec<u8>, framing: Framing) {
    if matches!(framing, Framing::Records | Framing::Wrapped) {
        chunk_head(out, 8);
        out.extend_from_slice(&END.to_be_bytes());
        out.extend_from_slice(&END.to_be_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the size line of a chunk.
pub(crate) fn chunk_head(out: &mut Vec<u8>, len: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits_len = (usize::BITS - (len | 1).leading_zeros()).div_ceil(4);
    for place in (0..digits_len).rev() {
        out.push(DIGITS[(len >> (4 * place)) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("keys and values are at most 8 MiB")
}

/// The fields of the metadata; without any it allocates nothing.
fn fields_of(meta: Meta<'_>) -> Vec<u8> {
    let mut fields = Vec::new();
    meta_fields(&mut fields, meta);
    fields
}

fn line(out: &mut Vec<u8>, show: ShownPart, key: &[u8], value: &[u8], meta: Meta<'_>) {
    const CLOSE: &[u8] = b"}\n";
    let fields = fields_of(meta);
    let text = |open: &[u8], middle: &[u8], close: &[u8]| match show {
        ShownPart::KeysAndValues => {
            open.len() + middle.len() + close.len() + fields.len() + CLOSE.len()
        }
        ShownPart::KeysOnly | ShownPart::Number => open.len() + close.len() + CLOSE.len(),
    };
    if let (Ok(key), Ok(value)) = (str::from_utf8(key), str::from_utf8(value)) {
        let (open, middle, close) = (br#"{"key":""#, br#"","value":""#, b"\"");
        chunk_head(
            out,
            text(open, middle, close) + escaped_len(key) + escaped_len(value),
        );
        out.extend_from_slice(open);
        escape(out, key);
        if show == ShownPart::KeysAndValues {
            out.extend_from_slice(middle);
            escape(out, value);
        }
        out.extend_from_slice(close);
    } else {
        let (open, middle, close) = (br#"{"key_base64":""#, br#"","value_base64":""#, b"\"");
        let base64_len = |bytes: &[u8]| bytes.len().div_ceil(3) * 4;
        chunk_head(
            out,
            text(open, middle, close) + base64_len(key) + base64_len(value),
        );
        out.extend_from_slice(open);
        base64(out, key);
        if show == ShownPart::KeysAndValues {
            out.extend_from_slice(middle);
            base64(out, value);
        }
        out.extend_from_slice(close);
    }
    out.extend_from_slice(&fields);
    out.extend_from_slice(CLOSE);
}

/// The metadata of a value: `content_type` and `meta`, as far as there are any.
pub(crate) fn meta_fields(out: &mut Vec<u8>, meta: Meta<'_>) {
    if let Some(content_type) = meta.content_type() {
        out.extend_from_slice(b",\"content_type\":\"");
        escape(out, content_type);
        out.push(b'"');
    }
    let mut start = &b",\"meta\":{\""[..];
    for (name, content) in meta.named() {
        out.extend_from_slice(start);
        escape(out, name);
        out.extend_from_slice(b"\":\"");
        escape(out, content);
        out.push(b'"');
        start = b",\"";
    }
    if start == b",\"" {
        out.push(b'}');
    }
}

/// Appends `bytes` in base64.
pub(crate) fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]);
    assert_eq!(
        written.ok(),
        Some(out.len() - start),
        "base64 with padding makes four bytes of three"
    );
}

/// How a byte stands in a JSON string: itself, behind a backslash, or as `\u00XX`.
enum Escape {
    Itself,
    Short(u8),
    Long,
}

fn escape_of(byte: u8) -> Escape {
    match byte {
        b'"' | b'\\' => Escape::Short(byte),
        b'\n' => Escape::Short(b'n'),
        b'\r' => Escape::Short(b'r'),
        b'\t' => Escape::Short(b't'),
        0..0x20 | 0x7f => Escape::Long,
        _ => Escape::Itself,
    }
}

fn escaped_len(text: &str) -> usize {
    let extra = text.bytes().map(|byte| match escape_of(byte) {
        Escape::Itself => 0,
        Escape::Short(_) => 1,
        Escape::Long => 5,
    });
    text.len() + extra.sum::<usize>()
}

/// Appends `text` as it stands in a JSON string.
pub(crate) fn escape(out: &mut Vec<u8>, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in text.bytes() {
        match escape_of(byte) {
            Escape::Itself => out.push(byte),
            Escape::Short(letter) => out.extend_from_slice(&[b'\\', letter]),
            Escape::Long => {
                out.extend_from_slice(b"\\u00");
                out.push(DIGITS[usize::from(byte >> 4)]);
                out.push(DIGITS[usize::from(byte & 15)]);
            }
        }
    }
}

/// Splits the content of one HTTP chunk of `Plain`. A key that holds a line feed is split too
/// early: clients with such keys ask for another framing.
pub fn split_plain(chunk: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = chunk.iter().position(|&b| b == b'\n')?;
    Some((&chunk[..at], &chunk[at + 1..]))
}

/// The item at the front of a buffer of `Records`. The buffer is the body of the answer, without
/// HTTP chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Not yet a whole record: read at least this many bytes in all.
    Incomplete {
        /// Bytes from the front of the buffer.
        wanted: usize,
    },
    /// A record; drop the first `consumed` bytes and go on.
    Record {
        /// Key bytes.
        key: &'a [u8],
        /// Value bytes.
        value: &'a [u8],
        /// Bytes of this record.
        consumed: usize,
    },
    /// The end mark: all that was asked for has been sent.
    End {
        /// Bytes of the end mark.
        consumed: usize,
    },
    /// Not a record: a length is beyond the limits of any server.
    Bad,
}

/// Reads the front of a buffer of `Records`.
pub fn decode_record(buf: &[u8]) -> Decoded<'_> {
    let Some((lengths, rest)) = buf.split_first_chunk::<8>() else {
        return Decoded::Incomplete { wanted: 8 };
    };
    let [k0, k1, k2, k3, v0, v1, v2, v3] = *lengths;
    let key_len = u32::from_be_bytes([k0, k1, k2, k3]);
    let value_len = u32::from_be_bytes([v0, v1, v2, v3]);
    if key_len == END && value_len == END {
        return Decoded::End { consumed: 8 };
    }
    let (key_len, value_len) = (key_len as usize, value_len as usize);
    if key_len == 0
        || key_len > dendra_base::limits::KEY_BYTES_MAX
        || value_len > dendra_base::limits::WRAPPED_VALUE_BYTES_MAX
    {
        return Decoded::Bad;
    }
    let consumed = 8 + key_len + value_len;
    if buf.len() < consumed {
        return Decoded::Incomplete { wanted: consumed };
    }
    let (key, rest) = rest.split_at(key_len);
    Decoded::Record {
        key,
        value: &rest[..value_len],
        consumed,
    }
}

#[cfg(test)]
mod tests;
