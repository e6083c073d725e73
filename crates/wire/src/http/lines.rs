//! The lines of the answer to a batch, and its end.
//!
//! ```text
//! {"status":201,"version":"0193…-1-0","receipt":"acks=1/1; level=linearizable; durability=sync"}
//! {"status":200,"version":"…","receipt":"…","expires_ms":1754000000000,"value":"hello"}
//! {"status":200,"version":"…","receipt":"…","content_type":"a/b","meta":{"n":"c"},"value":"v"}
//! {"status":404,"receipt":"…"}
//! {"status":412,"version":"…","receipt":"outcome=not-applied","error":"condition-failed","message":"…"}
//! Records   | length of the object u32 | length of the value u32 | the object | the value |
//! ```
//!
//! Invariants
//! 1. A line says as much as the answer to the same operation as a request of its own.
//!
//! Not here: which answer it is (crate `server`), answers of their own, and the head (`response/`).
//! See: docs/batch.md.

use super::accept::Framing;
use super::records::{base64, chunk_head, end_mark, escape, meta_fields};
use super::response::facts::{Found, Receipt, decimal, known_text, receipt_text, version_text};
use crate::meta::Meta;
use crate::refusal::{Known, Refusal};
use dendra_base::Version;

/// How items, or lines of the answer, are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFraming {
    /// One JSON object per line.
    Ndjson,
    /// Lengths in front of the bytes.
    Records,
}

impl LineFraming {
    /// The media type that names it.
    pub const fn media_type(self) -> &'static str {
        match self {
            LineFraming::Ndjson => Framing::Ndjson.media_type(),
            LineFraming::Records => Framing::Records.media_type(),
        }
    }
}

/// The value that a line shows.
#[derive(Clone, Copy)]
pub(super) enum LineValue<'a> {
    None,
    Shown(Meta<'a>, &'a [u8]),
}

/// Appends one line: the fields that `fields` writes behind the status, and the value.
fn line(
    out: &mut Vec<u8>,
    framing: LineFraming,
    status: u16,
    value: LineValue<'_>,
    fields: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    if framing == LineFraming::Records {
        out.extend_from_slice(&[0; 8]);
    }
    let object = out.len();
    out.extend_from_slice(b"{\"status\":");
    decimal(out, u64::from(status));
    fields(out);
    if let LineValue::Shown(meta, _) = value {
        meta_fields(out, meta);
    }
    match (framing, value) {
        (LineFraming::Ndjson, LineValue::Shown(_, value)) => {
            bytes_field(out, "value", value);
            out.extend_from_slice(b"}\n");
        }
        (LineFraming::Ndjson, LineValue::None) => out.extend_from_slice(b"}\n"),
        (LineFraming::Records, value) => {
            out.push(b'}');
            let value = match value {
                LineValue::Shown(_, value) => value,
                LineValue::None => b"",
            };
            let lengths = [out.len() - object, value.len()];
            for (place, length) in lengths.into_iter().enumerate() {
                let length = u32::try_from(length).expect("an object and a value are short");
                out[start + 4 * place..][..4].copy_from_slice(&length.to_be_bytes());
            }
            out.extend_from_slice(value);
        }
    }
}

/// A field with any bytes: as text, or under its name and `_base64`.
pub(crate) fn bytes_field(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    match str::from_utf8(bytes) {
        Ok(text) => {
            out.extend_from_slice(b"\":\"");
            escape(out, text);
        }
        Err(_) => {
            out.extend_from_slice(b"_base64\":\"");
            base64(out, bytes);
        }
    }
    out.push(b'"');
}

/// The version of the record.
pub(super) fn version_field(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(b",\"version\":\"");
    version_text(out, version);
    out.push(b'"');
}

/// The text of `Dendra-Receipt` after a success.
fn receipt_field(out: &mut Vec<u8>, receipt: Receipt) {
    out.extend_from_slice(b",\"receipt\":\"");
    receipt_text(out, receipt);
    out.push(b'"');
}

/// The text of `Dendra-Receipt` after a failure.
fn known_field(out: &mut Vec<u8>, acks: Option<(u8, u8)>, known: Known) {
    out.extend_from_slice(b",\"receipt\":\"");
    known_text(out, acks, known);
    out.push(b'"');
}

/// When the record expires.
pub(super) fn expiry_field(out: &mut Vec<u8>, expiry_ms: Option<u64>) {
    if let Some(expiry_ms) = expiry_ms {
        out.extend_from_slice(b",\"expires_ms\":");
        decimal(out, expiry_ms);
    }
}

/// Code word and sentence of a failure.
fn error_fields(out: &mut Vec<u8>, code: &str, message: &str) {
    out.extend_from_slice(b",\"error\":\"");
    out.extend_from_slice(code.as_bytes());
    out.extend_from_slice(b"\",\"message\":\"");
    escape(out, message);
    out.push(b'"');
}

/// The line of a value, or of a value that the client has (`304`).
pub(super) fn found(
    out: &mut Vec<u8>,
    framing: LineFraming,
    status: u16,
    found: &Found,
    value: LineValue<'_>,
) {
    line(out, framing, status, value, |out| {
        version_field(out, found.version);
        receipt_field(out, found.receipt);
        expiry_field(out, found.expiry_ms);
    });
}

/// The line of a refusal.
pub(super) fn refusal(out: &mut Vec<u8>, framing: LineFraming, refusal: &Refusal) {
    line(out, framing, refusal.status, LineValue::None, |out| {
        if let Some(known) = refusal.known {
            known_field(out, refusal.acks, known);
        }
        error_fields(out, refusal.code, &refusal.message);
        if let Some(seconds) = refusal.retry_after_s {
            out.extend_from_slice(b",\"retry_after\":");
            decimal(out, u64::from(seconds));
        }
    });
}

/// Makes one HTTP chunk of all that stands in `out` behind `from`, if anything does.
pub fn wrap_chunk(out: &mut Vec<u8>, from: usize) {
    let len = out.len() - from;
    if len == 0 {
        return;
    }
    let mut head = Vec::with_capacity(18);
    chunk_head(&mut head, len);
    out.splice(from..from, head);
    out.extend_from_slice(b"\r\n");
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEnd {
    /// Each item of the body has its line.
    Complete,
    /// The last line says why nothing behind its item was begun.
    Stopped,
}

/// Last chunk and trailer, with the number of lines. As with a scan, the end mark of `Records` is
/// there exactly when the batch is complete.
pub fn batch_end(out: &mut Vec<u8>, framing: LineFraming, end: BatchEnd, items: usize) {
    let word = match end {
        BatchEnd::Complete => "complete",
        BatchEnd::Stopped => "stopped",
    };
    if (framing, end) == (LineFraming::Records, BatchEnd::Complete) {
        end_mark(out, Framing::Records);
    }
    out.extend_from_slice(b"0\r\nDendra-Batch: ");
    out.extend_from_slice(word.as_bytes());
    out.extend_from_slice(b"; items=");
    decimal(out, items as u64);
    out.extend_from_slice(b"\r\n\r\n");
}

/// The line of a write.
pub(super) fn write(
    out: &mut Vec<u8>,
    framing: LineFraming,
    status: u16,
    version: Version,
    receipt: Receipt,
) {
    line(out, framing, status, LineValue::None, |out| {
        version_field(out, version);
        receipt_field(out, receipt);
    });
}

/// The line of a key without a live value.
pub(super) fn absent(out: &mut Vec<u8>, framing: LineFraming, receipt: Receipt) {
    line(out, framing, 404, LineValue::None, |out| {
        receipt_field(out, receipt)
    });
}

/// The line of a condition that does not hold.
pub(super) fn condition(
    out: &mut Vec<u8>,
    framing: LineFraming,
    current: Option<Version>,
    expiry_ms: Option<u64>,
    value: LineValue<'_>,
) {
    line(out, framing, 412, value, |out| {
        if let Some(version) = current {
            version_field(out, version);
        }
        known_field(out, None, Known::NotApplied);
        expiry_field(out, expiry_ms);
        let sentence = match current {
            Some(_) => "the record has this version",
            None => "there is no record",
        };
        error_fields(out, "condition-failed", sentence);
    });
}
