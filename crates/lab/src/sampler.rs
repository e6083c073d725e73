//! Asks a target about itself while it is measured: `/metrics` once a second, profiles at the
//! plateau.
//!
//! ```text
//! GET admin/metrics        ─► series by name, with labels          once a second
//! GET admin/v0/status      ─► JSON                                 at the start and at the end
//! GET admin/debug/profile/cpu?seconds=N&format=folded              once, on its own thread
//! ```
//!
//! Invariants
//! 1. A target that does not answer here is still measured: failures are counted, and the run does
//!    not wait.
//! 2. One sample is held in memory at a time; a series grows by eight bytes a second.
//!
//! Not here: the meaning of the names (the target's own documents).
//! See: docs/lab/run-json.md.

use crate::address::Address;
use crate::driver::TlsTarget;
use crate::limits::{ADMIN_BYTES_MAX, ANSWER_BYTES_MAX};
use crate::run::{ServerSeries, TargetProfile};
use dendra_wire::client::{AnswerBody, Asked, ParsedAnswer, parse_answer};
use dendra_wire::http::{ChunkDecoder, ChunkItem};
use rustls::{ClientConnection, StreamOwned};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The admin port of a target, and how it lets one in.
#[derive(Clone, Debug)]
pub struct AdminPort {
    /// Where it is.
    pub address: Address,
    /// How it is sealed; `None` = clear text.
    pub tls: Option<TlsTarget>,
    /// Header lines, without their ends.
    pub fields: Vec<String>,
}

/// How long one sample may take.
const SAMPLE_TIMEOUT: Duration = Duration::from_millis(900);

/// Fetches `path` and returns the body of a 200. The error is a sentence.
///
/// # Errors
/// The sentence.
pub fn fetch(admin: &AdminPort, path: &str, timeout: Duration) -> Result<Vec<u8>, String> {
    let address = &admin.address;
    let sentence = |e: std::io::Error| format!("{path} of {} failed ({e})", address.authority);
    let base = address.path.trim_end_matches('/');
    let connect_timeout = timeout.min(Duration::from_secs(2));
    let mut stream =
        TcpStream::connect_timeout(&address.socket, connect_timeout).map_err(sentence)?;
    stream.set_read_timeout(Some(timeout)).map_err(sentence)?;
    stream.set_write_timeout(Some(timeout)).map_err(sentence)?;
    let mut lines = String::new();
    for field in &admin.fields {
        lines.push_str(&format!("{field}\r\n"));
    }
    let request = format!(
        "GET {base}{path} HTTP/1.1\r\nHost: {}\r\n{lines}Connection: close\r\n\r\n",
        address.authority
    );
    let mut bytes = Vec::new();
    match &admin.tls {
        None => {
            stream.write_all(request.as_bytes()).map_err(sentence)?;
            let mut limited = stream.take(ADMIN_BYTES_MAX as u64);
            limited.read_to_end(&mut bytes).map_err(sentence)?;
        }
        Some(tls) => {
            let session = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone());
            let session = session.map_err(|e| sentence(std::io::Error::other(e)))?;
            let mut sealed = StreamOwned::new(session, stream);
            sealed.write_all(request.as_bytes()).map_err(sentence)?;
            let mut limited = sealed.take(ADMIN_BYTES_MAX as u64);
            match limited.read_to_end(&mut bytes) {
                Ok(_) => {}
                // Without a last word: the lengths in the answer tell whether it is whole.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof && !bytes.is_empty() => {}
                Err(e) => return Err(sentence(e)),
            }
        }
    }
    let ParsedAnswer::Head(head) = parse_answer(&bytes, Asked::WithBody) else {
        return Err(format!("{path} of {} is no HTTP answer", address.authority));
    };
    if head.status != 200 {
        return Err(format!(
            "{path} of {} answers {}",
            address.authority, head.status
        ));
    }
    let body = &bytes[head.consumed..];
    match head.body {
        AnswerBody::Chunked => {
            unchunked(body).ok_or_else(|| format!("{path} of {} was cut short", address.authority))
        }
        AnswerBody::Length(length) if (body.len() as u64) < length => {
            Err(format!("{path} of {} was cut short", address.authority))
        }
        _ => Ok(body.to_vec()),
    }
}

fn unchunked(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut decoder = ChunkDecoder::new(ANSWER_BYTES_MAX);
    let (mut out, mut at) = (Vec::new(), 0);
    loop {
        match decoder.decode(&bytes[at..]).ok()? {
            ChunkItem::More { .. } => return None,
            ChunkItem::Data { start, end } => {
                out.extend_from_slice(&bytes[at + start..at + end]);
                at += end;
            }
            ChunkItem::End { .. } => return Some(out),
        }
    }
}

/// The numbers of a page of metrics, by name with labels.
pub fn numbers(page: &str) -> BTreeMap<String, f64> {
    let number = |line: &str| {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        // Labels may hold spaces; the value follows them, and perhaps a time.
        let split = line
            .rfind('}')
            .map_or_else(|| line.find(' '), |at| Some(at + 1))?;
        let (name, rest) = line.split_at(split);
        let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
        value.is_finite().then(|| (name.to_owned(), value))
    };
    page.lines().filter_map(number).collect()
}

/// Collects samples of one target.
#[derive(Debug, Default)]
pub struct Samples {
    server: ServerSeries,
}

impl Samples {
    /// Samples of target number `target`.
    pub fn new(target: usize) -> Samples {
        Samples {
            server: ServerSeries {
                target,
                ..ServerSeries::default()
            },
        }
    }

    /// Adds a page.
    pub fn add(&mut self, at_s: f64, page: &BTreeMap<String, f64>) {
        let server = &mut self.server;
        let before = server.at_s.len();
        server.at_s.push(at_s);
        for (name, &value) in page {
            if name.contains("_bucket{") {
                let ends = server.buckets.entry(name.clone()).or_insert([value; 2]);
                ends[1] = value;
                continue;
            }
            let series = server.series.entry(name.clone()).or_default();
            series.resize(before, None);
            series.push(Some(value));
        }
        for series in server.series.values_mut() {
            series.resize(before + 1, None);
        }
    }

    /// The collected numbers; those that never changed apart.
    pub fn finish(mut self) -> ServerSeries {
        let all = std::mem::take(&mut self.server.series);
        for (name, series) in all {
            match series.first() {
                Some(&Some(first)) if series.iter().all(|value| *value == Some(first)) => {
                    self.server.constant.insert(name, first);
                }
                _ => {
                    self.server.series.insert(name, series);
                }
            }
        }
        self.server
    }
}

fn status(address: &AdminPort) -> serde_json::Value {
    let body = fetch(address, "/v0/status", SAMPLE_TIMEOUT).ok();
    body.and_then(|body| serde_json::from_slice(&body).ok())
        .unwrap_or_default()
}

/// Samples `address` once a second until `is_over`. Times count from `origin`.
pub fn sample(
    target: usize,
    address: &AdminPort,
    origin: Instant,
    is_over: &AtomicBool,
) -> ServerSeries {
    let mut samples = Samples::new(target);
    samples.server.status[0] = status(address);
    let mut next = Instant::now();
    loop {
        let is_last = is_over.load(Relaxed);
        match fetch(address, "/metrics", SAMPLE_TIMEOUT) {
            Ok(body) => {
                let at_s = origin.elapsed().as_secs_f64();
                samples.add(at_s, &numbers(&String::from_utf8_lossy(&body)));
            }
            Err(_) => samples.server.failures += 1,
        }
        if is_last {
            break;
        }
        next += Duration::from_secs(1);
        while Instant::now() < next && !is_over.load(Relaxed) {
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
    samples.server.status[1] = status(address);
    samples.finish()
}

/// Asks for one profile over `seconds`. The error is a sentence.
///
/// # Errors
/// The sentence.
pub fn profile(
    target: usize,
    address: &AdminPort,
    kind: &str,
    seconds: u64,
    origin: Instant,
) -> Result<TargetProfile, String> {
    let start_s = origin.elapsed().as_secs_f64();
    let path = format!("/debug/profile/{kind}?seconds={seconds}&format=folded");
    let body = fetch(address, &path, Duration::from_secs(seconds + 10))?;
    Ok(TargetProfile {
        target,
        kind: kind.to_owned(),
        start_s,
        length_s: origin.elapsed().as_secs_f64() - start_s,
        folded: String::from_utf8_lossy(&body).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_page_are_read_with_their_labels() {
        let page =
            "# TYPE a gauge\na 1\nb{x=\"y z\",q=\"}\"} 2.5 1700000000\n\nbad\nc NaN\n# EOF\n";
        let expected = [("a", 1.0), ("b{x=\"y z\",q=\"}\"}", 2.5)];
        let seen = numbers(page);
        let seen: Vec<_> = seen
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_number_that_comes_and_goes_keeps_its_place() {
        let mut samples = Samples::new(0);
        for (at, page) in ["a 1\nc 5\nh_bucket{le=\"1\"} 3", "b 2\nc 5", "a 3\nc 5"]
            .iter()
            .enumerate()
        {
            samples.add(at as f64, &numbers(page));
        }
        let server = samples.finish();
        assert_eq!(server.series["a"], [Some(1.0), None, Some(3.0)]);
        assert_eq!(server.series["b"], [None, Some(2.0), None]);
        assert_eq!(server.constant["c"], 5.0);
        assert_eq!(server.buckets["h_bucket{le=\"1\"}"], [3.0, 3.0]);
    }
}
