//! `dendra scan`: a range of records, streamed to stdout as it arrives.
//!
//! ```text
//! raw        KEY TAB VALUE LF      --keys-only: KEY LF
//! --json     {"key": …, "value": …} LF, with content_type and meta of a value that has them
//! ```
//!
//! Invariants
//! 1. A scan that did not show its end marker is a failure, however much it printed: a cut answer
//!    never looks like a short range.
//! 2. Memory is one frame and one record, for any size of the range.
//!
//! Not here: the framing on the wire (crate `wire`).
//! See: docs/cli.md, docs/api.md.

use crate::cli::ScanArgs;
use crate::client::{BodyPiece, Client, HttpRequest, Stream};
use crate::console::Console;
use crate::encoding::{self, Encoding};
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops::{self, Query};
use crate::output;
use bytes::{Bytes, BytesMut};
use dendra_wire::http::records::{Decoded, decode_record};
use dendra_wire::meta::{self, Meta, MetaBuf};
use hyper::Method;
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::io::{BufWriter, Write};

/// Values with their metadata, or without from a store that keeps none.
pub(crate) const ACCEPT: &str =
    "application/vnd.dendra.wrapped, application/vnd.dendra.records;q=0.5";

/// Does an answer to `ACCEPT` show values as they are stored? `None` = it is another type.
pub(crate) fn is_wrapped(content_type: Option<&str>) -> Option<bool> {
    match content_type {
        Some("application/vnd.dendra.wrapped") => Some(true),
        Some("application/vnd.dendra.records") => Some(false),
        _ => None,
    }
}

/// Smallest key there is: a scan without a start begins here.
const FIRST_KEY: &[u8] = b"\0";

/// How records are printed.
pub(crate) struct Printer<W: Write> {
    pub(crate) out: W,
    pub(crate) encoding: Encoding,
    pub(crate) is_json: bool,
    pub(crate) is_keys_only: bool,
    /// Are values as they are stored, with their metadata?
    pub(crate) is_wrapped: bool,
}

impl<W: Write> Printer<W> {
    pub(crate) fn print(&mut self, key: &[u8], shown: &[u8]) -> std::io::Result<()> {
        let (meta, value) = if self.is_wrapped {
            meta::unwrap(shown)
        } else {
            (Meta::default(), shown)
        };
        if self.is_json {
            let mut object = Map::new();
            encoding::put_json(&mut object, "key", key);
            if !self.is_keys_only {
                encoding::put_json(&mut object, "value", value);
                encoding::put_meta(&mut object, meta);
            }
            return writeln!(self.out, "{}", Value::Object(object));
        }
        self.out.write_all(&self.encoding.encode(key))?;
        if !self.is_keys_only {
            self.out.write_all(b"\t")?;
            self.out.write_all(&self.encoding.encode(value))?;
        }
        self.out.write_all(b"\n")
    }
}

fn question(args: &ScanArgs) -> Result<HttpRequest, Failure> {
    let encoding = args.client.encoding();
    let mut query = Query::default();
    let mut add = |name: &str, given: &Option<std::ffi::OsString>| -> Result<bool, Failure> {
        let Some(text) = given else {
            return Ok(false);
        };
        let key = key_of(name, text, encoding)?;
        query.add(name, &key);
        Ok(true)
    };
    let has_prefix = add("prefix", &args.range.prefix)?;
    let has_start = add("start", &args.range.start)?;
    add("end", &args.range.end)?;
    if !has_prefix && !has_start {
        query.add("start", FIRST_KEY);
    }
    if let Some(limit) = args.limit {
        query.add("limit", limit.to_string().as_bytes());
    }
    for (name, is_on) in [("reverse", args.reverse), ("keys-only", args.keys_only)] {
        if is_on {
            query.add(name, b"true");
        }
    }
    Ok(request(query.behind("/v0/entities")))
}

fn request(path: String) -> HttpRequest {
    HttpRequest {
        meta: MetaBuf::default(),
        method: Method::GET,
        path,
        headers: vec![("accept", ACCEPT.to_owned()), ("te", "trailers".to_owned())],
        body: Bytes::new(),
    }
}

fn key_of(name: &str, text: &OsStr, encoding: Encoding) -> Result<Vec<u8>, Failure> {
    ops::key_bytes(&format!("--{name}"), text, encoding)
}

/// `dendra scan`
pub(crate) async fn scan(args: &ScanArgs, console: Console) -> ExitResult {
    let ask = question(args)?;
    let client = ops::client(&args.client, console)?;
    let stream = client
        .stream(&ask)
        .await
        .map_err(|trouble| trouble.failure(client.place()))?;
    if stream.head.status != hyper::StatusCode::OK {
        let answer = stream
            .into_answer()
            .await
            .map_err(|trouble| trouble.failure(client.place()))?;
        return Err(answer.failure("scan"));
    }
    let kind = stream.head.header("content-type");
    let Some(is_wrapped) = is_wrapped(kind) else {
        return Err(Failure::new(
            Exit::FAILURE,
            format!(
                "{}: what answers there is no Dendra node (content type {kind:?}); see --url",
                client.place()
            ),
        ));
    };
    let mut printer = Printer {
        out: BufWriter::with_capacity(64 << 10, output::stdout()?),
        encoding: args.client.encoding(),
        is_json: args.json,
        is_keys_only: args.keys_only,
        is_wrapped,
    };
    let printed = copy(&client, stream, &mut printer, args.reverse).await?;
    console.detail(|| format!("{printed} records"));
    Ok(Exit::OK)
}

/// Prints every record; returns how many. `Err` unless the end marker came.
async fn copy<W: Write>(
    client: &Client,
    mut stream: Stream,
    printer: &mut Printer<W>,
    is_reverse: bool,
) -> Result<u64, Failure> {
    let stdout = |e: std::io::Error| Failure::output("stdout", &e);
    let mut waiting = BytesMut::new();
    let (mut printed, mut is_ended) = (0u64, false);
    let mut stopped: Option<String> = None;
    loop {
        let frame = match stream.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(trouble) => {
                printer.out.flush().map_err(stdout)?;
                return Err(cut(printed, &format!("{}: {trouble}", client.place())));
            }
        };
        match frame {
            BodyPiece::Data(data) => waiting.extend_from_slice(&data),
            BodyPiece::Trailers(trailers) => {
                let verdict = trailers.get("dendra-scan").and_then(|v| v.to_str().ok());
                stopped = verdict
                    .filter(|verdict| *verdict != "complete")
                    .map(str::to_owned);
            }
        }
        loop {
            match decode_record(&waiting) {
                Decoded::Record {
                    key,
                    value,
                    consumed,
                } if !is_ended => {
                    printer.print(key, value).map_err(stdout)?;
                    printed += 1;
                    drop(waiting.split_to(consumed));
                }
                Decoded::End { consumed } if !is_ended => {
                    is_ended = true;
                    drop(waiting.split_to(consumed));
                }
                Decoded::Incomplete { .. } => break,
                _ => {
                    return Err(cut(
                        printed,
                        "the records cannot be read; is this a Dendra node?",
                    ));
                }
            }
        }
        printer.out.flush().map_err(stdout)?;
    }
    // The end marker stands after all records that were asked for. A limit that was reached has one
    // too, and then the trailer says where the rest begins.
    match stopped {
        _ if is_ended && waiting.is_empty() => Ok(printed),
        Some(verdict) => {
            let reason = match verdict.strip_prefix("stopped; next=") {
                Some(next) => reason(client, next, is_reverse).await,
                None => None,
            };
            let reason = reason.map(|reason| format!(": {reason}"));
            let reason = reason.unwrap_or_default();
            Err(cut(printed, &format!("the node {verdict}{reason}")))
        }
        None => Err(cut(printed, "the answer has no end marker")),
    }
}

/// The node's answer to a scan that begins where this one stopped: a trailer has no reason. `None`
/// = it can go on there.
async fn reason(client: &Client, next: &str, is_reverse: bool) -> Option<String> {
    let range = if is_reverse {
        format!("start=%00&end={next}&reverse=true")
    } else {
        format!("start={next}")
    };
    let ask = request(format!("/v0/entities?{range}&limit=1&keys-only=true"));
    let stream = client.stream(&ask).await.ok()?;
    if stream.head.status == hyper::StatusCode::OK {
        return None;
    }
    let answer = stream.into_answer().await.ok()?;
    Some(answer.sentence())
}

fn cut(printed: u64, why: &str) -> Failure {
    Failure::new(
        Exit::FAILURE,
        format!("the scan was cut after {printed} records ({why}); more may exist, run it again"),
    )
}
