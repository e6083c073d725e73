//! Requests from a file: rows of our own, or the access log of another server.
//!
//! ```text
//! TSV          put TAB key TAB value                           get TAB key
//! NDJSON       {"op": "put", "key": "k", "value": "v", "at_us": 1500}
//!              key_base64, value_base64 for other bytes; value_bytes = that many random ones
//! access log   … [10/Oct/2000:13:55:36 +0000] "GET /v0/entity?id=k HTTP/1.1" 200 …
//! ```
//!
//! Invariants
//! 1. A row that cannot be read ends the reading with its number and the reason: no row is skipped.
//! 2. Times, where there are some, are in every row and never go back.
//!
//! Not here: sending; a log has no bodies, so its writes get random values.
//! See: docs/lab/run-json.md.

use crate::limits::AMMO_ROWS_MAX;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dendra_base::workload::RequestKind;
use serde::Deserialize;
use std::fmt::Write;
use std::ops::Range;

/// One request of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The kind of the request.
    pub operation: RequestKind,
    /// Is the key a target, path and query, rather than a key?
    pub is_target: bool,
    /// Where the key is; for [`Ammo::bytes`].
    pub key: Range<usize>,
    /// Where the value is, when the file has it.
    pub value: Option<Range<usize>>,
    /// Bytes of a random value, when the file has none.
    pub value_bytes: u32,
    /// When it is due, nanoseconds from the first row.
    pub at_ns: u64,
}

/// The rows of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ammo {
    rows: Vec<Row>,
    arena: Vec<u8>,
    is_timed: bool,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmmoFormat {
    /// Fields between tabs.
    Tsv,
    /// One JSON object a line.
    Ndjson,
    /// Common or combined log format.
    AccessLog,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AmmoLine {
    op: String,
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    value_bytes: Option<u32>,
    at_us: Option<u64>,
}

impl AmmoFormat {
    /// By the name of the file: `.tsv`, `.ndjson`, `.jsonl`, `.log`.
    pub fn of_name(name: &str) -> Option<AmmoFormat> {
        let (_, extension) = name.rsplit_once('.')?;
        match extension {
            "tsv" => Some(AmmoFormat::Tsv),
            "ndjson" | "jsonl" => Some(AmmoFormat::Ndjson),
            "log" => Some(AmmoFormat::AccessLog),
            _ => None,
        }
    }
}

impl Ammo {
    /// Reads `text`; rows without a value write `value_bytes` random bytes. The error is a
    /// sentence.
    ///
    /// # Errors
    /// The sentence, with the number of the line.
    pub fn parse(text: &[u8], format: AmmoFormat, value_bytes: u32) -> Result<Ammo, String> {
        let mut ammo = Ammo::default();
        let mut timed = 0usize;
        let mut first_ns = None;
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let parsed = match format {
                AmmoFormat::Tsv => ammo.tsv(line),
                AmmoFormat::Ndjson => ammo.ndjson(line),
                AmmoFormat::AccessLog => ammo.access_log(line),
            };
            let (mut row, at_ns) = parsed.map_err(|why| format!("line {}: {why}", number + 1))?;
            if let Some(at_ns) = at_ns {
                timed += 1;
                let first = *first_ns.get_or_insert(at_ns);
                // A log is written when answers leave, so neighbours may be a little out of order.
                let last = ammo.rows.last().map_or(0, |before| before.at_ns);
                row.at_ns = at_ns.saturating_sub(first).max(last);
            }
            if row.value_bytes == 0 && row.value.is_none() {
                row.value_bytes = value_bytes;
            }
            if ammo.rows.len() == AMMO_ROWS_MAX {
                return Err(format!(
                    "the file has more than {AMMO_ROWS_MAX} rows; split it"
                ));
            }
            ammo.rows.push(row);
        }
        if ammo.rows.is_empty() {
            return Err("the file has no rows; give it at least one".to_owned());
        }
        if timed != 0 && timed != ammo.rows.len() {
            return Err(
                "some rows have a time and some have none; give all of them one".to_owned(),
            );
        }
        ammo.is_timed = timed != 0;
        Ok(ammo)
    }

    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        start..self.arena.len()
    }

    fn plain(&mut self, operation: RequestKind, key: &[u8], value: Option<&[u8]>) -> Row {
        Row {
            operation,
            is_target: false,
            key: self.put(key),
            value: value.map(|value| self.put(value)),
            value_bytes: 0,
            at_ns: 0,
        }
    }

    fn tsv(&mut self, line: &[u8]) -> Result<(Row, Option<u64>), String> {
        let mut fields = line.splitn(3, |&byte| byte == b'\t');
        let (Some(op), Some(key)) = (fields.next(), fields.next()) else {
            return Err("write OPERATION TAB KEY, and TAB VALUE for a write".to_owned());
        };
        let operation = operation_named(&String::from_utf8_lossy(op))?;
        Ok((self.plain(operation, key, fields.next()), None))
    }

    fn ndjson(&mut self, line: &[u8]) -> Result<(Row, Option<u64>), String> {
        let line: AmmoLine = serde_json::from_slice(line).map_err(|e| e.to_string())?;
        let operation = operation_named(&line.op)?;
        let bytes = |plain: Option<String>, base64: Option<String>| match (plain, base64) {
            (Some(_), Some(_)) => Err("a field is there twice, plain and in base64".to_owned()),
            (Some(text), None) => Ok(Some(text.into_bytes())),
            (None, Some(text)) => STANDARD.decode(text).map(Some).map_err(|e| e.to_string()),
            (None, None) => Ok(None),
        };
        let key = bytes(line.key, line.key_base64)?.ok_or("there is no key")?;
        let value = bytes(line.value, line.value_base64)?;
        let mut row = self.plain(operation, &key, value.as_deref());
        row.value_bytes = line.value_bytes.unwrap_or_default();
        if row.value.is_none() && line.value_bytes == Some(0) {
            row.value = Some(0..0);
        }
        Ok((row, line.at_us.map(|us| us.saturating_mul(1000))))
    }

    fn access_log(&mut self, line: &[u8]) -> Result<(Row, Option<u64>), String> {
        let text = str::from_utf8(line).map_err(|_| "the line is not UTF-8")?;
        let (_, quoted) = text
            .split_once('"')
            .ok_or("there is no request in quotes")?;
        let (request, _) = quoted.split_once('"').ok_or("the quotes never close")?;
        let mut words = request.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(format!("{request:?} is no request"));
        };
        let operation = operation_named(method)?;
        if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{target:?} is no path"));
        }
        let stamp = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .and_then(|(stamp, _)| log_seconds(stamp));
        let mut row = self.plain(operation, target.as_bytes(), None);
        row.is_target = true;
        Ok((row, stamp.map(|s| s * 1_000_000_000)))
    }

    /// Number of rows, at least one.
    pub fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Always false: a file without rows is refused.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Row `index`, over again from the start after the last one.
    pub fn row(&self, index: u64) -> &Row {
        &self.rows[(index % self.rows.len() as u64) as usize]
    }

    /// Bytes of a key or a value.
    pub fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.arena.get(range.clone()).unwrap_or_default()
    }

    /// The instants of the rows, nanoseconds, `speed` times as fast; none when they have no times.
    /// Rows of the same second, as logs have them, are spread over it.
    pub fn instants(&self, speed: f64) -> Option<Vec<u64>> {
        if !self.is_timed {
            return None;
        }
        let mut out = Vec::with_capacity(self.rows.len());
        for group in self.rows.chunk_by(|a, b| a.at_ns == b.at_ns) {
            let whole_second = group[0].at_ns.is_multiple_of(1_000_000_000) && group.len() > 1;
            let step = if whole_second {
                1e9 / group.len() as f64
            } else {
                0.0
            };
            out.extend(
                (0..group.len())
                    .map(|i| ((group[0].at_ns as f64 + step * i as f64) / speed) as u64),
            );
        }
        Some(out)
    }
}

fn operation_named(name: &str) -> Result<RequestKind, String> {
    let lower = name.to_ascii_lowercase();
    RequestKind::named(&lower).ok_or_else(|| {
        format!("{name:?} is no operation that can be sent; use get, put, delete, scan or create")
    })
}

/// Seconds of `10/Oct/2000:13:55:36 +0000` since the year 1900, up to the year 2400.
fn log_seconds(stamp: &str) -> Option<u64> {
    const DAYS_TO_1900: u64 = 365 * 1899 + 1899 / 4 - 1899 / 100 + 1899 / 400;
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let stamp = stamp.split(' ').next()?;
    let mut parts = stamp.split(['/', ':']);
    let day: u64 = parts.next()?.parse().ok()?;
    let month = MONTHS.find(parts.next()?)? as u64 / 3 + 1;
    let year: u64 = parts.next()?.parse().ok()?;
    let mut number = || parts.next()?.parse::<u64>().ok();
    if !(1900..2400).contains(&year) {
        return None;
    }
    let (hour, minute, second) = (number()?, number()?, number()?);
    // Days of the Gregorian calendar, years counted from March.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year.checked_sub(1)?, month + 9)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day;
    let days = days.checked_sub(DAYS_TO_1900)?;
    let is_time = hour < 24 && minute < 60 && second <= 60;
    is_time.then_some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// One line of NDJSON that `Ammo::parse` reads back; the value is given by its size.
pub fn ndjson_line(operation: RequestKind, key: &[u8], value_bytes: usize, at_ns: u64) -> String {
    let mut line = format!(r#"{{"op":"{}","#, operation.name());
    let written = match str::from_utf8(key) {
        Ok(text) => write!(line, r#""key":{}"#, serde_json::Value::from(text)),
        Err(_) => write!(line, r#""key_base64":"{}""#, STANDARD.encode(key)),
    };
    written.expect("a String takes every write");
    if value_bytes > 0 {
        write!(line, r#","value_bytes":{value_bytes}"#).expect("a String takes every write");
    }
    write!(line, r#","at_us":{}}}"#, at_ns / 1000).expect("a String takes every write");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_three_shapes_are_read() {
        let tsv = Ammo::parse(b"put\tk\tv\tw\nGET\tk2\r\n", AmmoFormat::Tsv, 9).expect("it reads");
        let row = tsv.row(0);
        assert_eq!(
            (tsv.bytes(&row.key), row.operation),
            (&b"k"[..], RequestKind::Put)
        );
        assert_eq!(
            row.value.as_ref().map(|range| tsv.bytes(range)),
            Some(&b"v\tw"[..])
        );
        assert_eq!(tsv.row(3).operation, RequestKind::Get);

        let text = br#"{"op":"put","key_base64":"/w==","value_bytes":5,"at_us":7}"#;
        let json = Ammo::parse(text, AmmoFormat::Ndjson, 9).expect("it reads");
        assert_eq!(json.bytes(&json.row(0).key), b"\xff");
        assert_eq!(json.row(0).value_bytes, 5);

        let text = b"::1 - - [31/Dec/2025:23:59:59 +0000] \"GET /v0/entity?id=a HTTP/1.1\" 200 5\n\
            ::1 - - [01/Jan/2026:00:00:00 +0000] \"PUT /v0/entity?id=b HTTP/1.1\" 201 0\n\
            ::1 - - [01/Jan/2026:00:00:00 +0000] \"GET /v0/entity?id=c HTTP/1.1\" 201 0\n";
        let log = Ammo::parse(text, AmmoFormat::AccessLog, 9).expect("it reads");
        assert_eq!(log.bytes(&log.row(0).key), b"/v0/entity?id=a");
        assert_eq!(log.row(1).value_bytes, 9);
        assert_eq!(log.instants(2.0), Some(vec![0, 500_000_000, 750_000_000]));
    }

    #[test]
    fn a_row_that_cannot_be_read_is_named() {
        for (text, format) in [
            (&b"get\tk\nfetch\tk"[..], AmmoFormat::Tsv),
            (b"get\tk\nget", AmmoFormat::Tsv),
            (b"{\"op\":\"get\",\"key\":\"k\"}\n{", AmmoFormat::Ndjson),
            (b"x \"GET / HTTP/1.1\"\nx", AmmoFormat::AccessLog),
        ] {
            let error = Ammo::parse(text, format, 0).expect_err("the second row is bad");
            assert!(error.starts_with("line 2: "), "{error}");
        }
        assert!(Ammo::parse(b"\n\n", AmmoFormat::Tsv, 0).is_err());
    }

    #[test]
    fn what_is_recorded_reads_back() {
        let lines = [
            ndjson_line(RequestKind::Put, b"\xff", 5, 3_000),
            ndjson_line(RequestKind::Get, b"q\"", 0, 9_000),
        ];
        let text = lines.join("\n").into_bytes();
        let ammo = Ammo::parse(&text, AmmoFormat::Ndjson, 100).expect("our own line reads");
        assert_eq!(ammo.bytes(&ammo.row(0).key), b"\xff");
        assert_eq!(ammo.row(0).value_bytes, 5);
        assert_eq!(ammo.bytes(&ammo.row(1).key), b"q\"");
        assert_eq!(ammo.instants(1.0), Some(vec![0, 6_000]));
    }
}
