//! Requests and answers of both protocols, HTTP and RESP, as bytes: rendered by patching a template.
//!
//! ```text
//! HTTP   GET /v0/entity?id=<key> HTTP/1.1 …          -> HTTP/1.1 200 …, Content-Length, body
//!        PUT /v0/entity?id=<key> HTTP/1.1 … <value>  -> HTTP/1.1 201 …, Content-Length: 0
//! RESP   *3 SET <key> <value>                        -> +OK
//! ```
//!
//! Invariants
//! 1. A request costs the generator one copy of a template and the patching of key and value.
//! 2. An answer is complete only when its whole head and as many body bytes as the head announces
//!    are there; an answer without `Content-Length` is an error, not a guess.
//! 3. The short cut for an answer of the usual shape (`Shape`) is taken only when length, status and
//!    end of head all are as in an answer that was parsed in full.
//!
//! Not here: sockets and time (`load.rs`). Chunked answers: no yardstick sends one.
//! See: docs/api.md.

use crate::Result;
use crate::keys::{self, Ask, KEY_BYTES, VALUE_BYTES, Values, Verb};
use std::ops::Range;

/// Which language a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1 with Dendra's route.
    Http,
    /// The protocol of redis, `SET` and `GET` only.
    Resp,
}

/// A complete answer at the front of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// HTTP status; for RESP 200 for a value, 201 for `+OK`, 404 for nil, 500 for an error.
    pub(crate) status: u16,
    /// Where the body lies in the buffer.
    pub(crate) body: Range<usize>,
    /// Bytes of the whole answer.
    pub(crate) bytes: usize,
}

struct Template {
    bytes: Vec<u8>,
    key_at: Vec<usize>,
    value_at: Option<usize>,
}

impl Template {
    fn new(text: &str) -> Template {
        let key = "k".repeat(KEY_BYTES);
        let value = "v".repeat(VALUE_BYTES);
        let text = text.replace("<key>", &key).replace("<value>", &value);
        let key_at = text.match_indices(&key).map(|(at, _)| at).collect();
        let value_at = text.find(&value);
        Template {
            bytes: text.into_bytes(),
            key_at,
            value_at,
        }
    }

    fn render(&mut self, id: u64, values: &Values, out: &mut Vec<u8>) {
        for at in &self.key_at {
            keys::write_key(id, &mut self.bytes[*at..]);
        }
        if let Some(at) = self.value_at {
            values.write(id, &mut self.bytes[at..]);
        }
        out.extend_from_slice(&self.bytes);
    }
}

/// Renders requests.
pub(crate) struct Requests {
    get: Template,
    put: Template,
}

impl Requests {
    /// Templates for `protocol`; `host` goes into the HTTP head.
    pub(crate) fn new(protocol: Protocol, host: &str) -> Requests {
        let (get, put) = match protocol {
            Protocol::Http => (
                format!("GET /v0/entity?id=<key> HTTP/1.1\r\nHost: {host}\r\n\r\n"),
                format!(
                    "PUT /v0/entity?id=<key> HTTP/1.1\r\nHost: {host}\r\n\
                     Content-Length: {VALUE_BYTES}\r\n\r\n<value>"
                ),
            ),
            Protocol::Resp => (
                format!("*2\r\n$3\r\nGET\r\n${KEY_BYTES}\r\n<key>\r\n"),
                format!(
                    "*3\r\n$3\r\nSET\r\n${KEY_BYTES}\r\n<key>\r\n${VALUE_BYTES}\r\n<value>\r\n"
                ),
            ),
        };
        Requests {
            get: Template::new(&get),
            put: Template::new(&put),
        }
    }

    /// Appends the bytes of `ask`.
    #[inline]
    pub(crate) fn render(&mut self, ask: Ask, values: &Values, out: &mut Vec<u8>) {
        match ask.verb {
            Verb::Get => self.get.render(ask.id, values, out),
            Verb::Put => self.put.render(ask.id, values, out),
        }
    }
}

/// The answer that was last parsed in full: what the next one most likely looks like.
#[derive(Clone, Debug)]
struct Shape {
    head: usize,
    answer: Answer,
    status_line: [u8; STATUS_BYTES],
}

const STATUS_BYTES: usize = "HTTP/1.1 200".len();

/// Reads answers.
pub(crate) struct Answers {
    protocol: Protocol,
    shape: Option<Shape>,
}

impl Answers {
    /// A reader that has seen nothing yet.
    pub(crate) fn new(protocol: Protocol) -> Answers {
        Answers {
            protocol,
            shape: None,
        }
    }

    /// The first answer in `bytes`, `None` while it is incomplete.
    #[inline]
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<Option<Answer>> {
        if self.protocol == Protocol::Resp {
            return parse_resp(bytes);
        }
        if let Some(shape) = &self.shape
            && bytes.len() == shape.answer.bytes
            && bytes[..STATUS_BYTES] == shape.status_line
            && &bytes[shape.head - 4..shape.head] == b"\r\n\r\n"
        {
            return Ok(Some(shape.answer.clone()));
        }
        let Some((head, answer)) = parse_http(bytes)? else {
            return Ok(None);
        };
        let mut status_line = [0; STATUS_BYTES];
        status_line.copy_from_slice(&bytes[..STATUS_BYTES]);
        self.shape = Some(Shape {
            head,
            answer: answer.clone(),
            status_line,
        });
        Ok(Some(answer))
    }
}

/// Head length and answer, `None` while incomplete.
fn parse_http(bytes: &[u8]) -> Result<Option<(usize, Answer)>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = end + 4;
    let text = std::str::from_utf8(&bytes[..end])
        .map_err(|_| "the head of an answer is not UTF-8".to_owned())?;
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("`{status_line}` is not a status line"))?;
    let length: usize = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .ok_or_else(|| format!("an answer has no usable Content-Length:\n{text}"))?;
    if bytes.len() < head + length {
        return Ok(None);
    }
    let answer = Answer {
        status,
        body: head..head + length,
        bytes: head + length,
    };
    Ok(Some((head, answer)))
}

fn parse_resp(bytes: &[u8]) -> Result<Option<Answer>> {
    let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") else {
        return Ok(None);
    };
    let line = &bytes[..end];
    let short = |status| Answer {
        status,
        body: 1..end,
        bytes: end + 2,
    };
    match line.first() {
        Some(b'+') => Ok(Some(short(201))),
        Some(b'-') => Ok(Some(short(500))),
        Some(b'$') if line == b"$-1" => Ok(Some(short(404))),
        Some(b'$') => {
            let length: usize = std::str::from_utf8(&line[1..])
                .ok()
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| "a bulk string has no length".to_owned())?;
            let body = end + 2..end + 2 + length;
            let bytes_needed = body.end + 2;
            let answer = Answer {
                status: 200,
                body,
                bytes: bytes_needed,
            };
            Ok((bytes.len() >= bytes_needed).then_some(answer))
        }
        _ => Err(format!("`{}` is no answer of redis", line.escape_ascii()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";

    #[test]
    fn an_answer_is_complete_with_its_last_byte_and_not_before() {
        let mut answers = Answers::new(Protocol::Http);
        for cut in 0..OK.len() {
            assert_eq!(
                answers.next(&OK[..cut]).expect("well formed"),
                None,
                "cut at {cut}"
            );
        }
        let answer = answers.next(OK).expect("well formed").expect("complete");
        assert_eq!(
            (answer.status, &OK[answer.body], answer.bytes),
            (200, &b"abc"[..], OK.len())
        );
    }

    #[test]
    fn the_short_cut_never_mistakes_one_answer_for_another() {
        let mut answers = Answers::new(Protocol::Http);
        answers.next(OK).expect("well formed").expect("complete");
        let refused: &[u8] = b"HTTP/1.1 503 OK\r\ncontent-length: 3\r\n\r\nabc";
        let answer = answers
            .next(refused)
            .expect("well formed")
            .expect("complete");
        assert_eq!(answer.status, 503);
        answers.next(OK).expect("well formed").expect("complete");
        // As long as `OK`, but the head is three bytes longer and the body empty.
        let longer: &[u8] = b"HTTP/1.1 200 OKxyz\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(longer.len(), OK.len());
        let answer = answers
            .next(longer)
            .expect("well formed")
            .expect("complete");
        assert!(answer.body.is_empty());
    }

    #[test]
    fn pipelined_answers_come_out_one_by_one() {
        let twice = [OK, OK].concat();
        let mut answers = Answers::new(Protocol::Http);
        let first = answers
            .next(&twice)
            .expect("well formed")
            .expect("complete");
        let second = answers.next(&twice[first.bytes..]).expect("well formed");
        assert_eq!(second, Some(first));
    }

    #[test]
    fn an_answer_without_a_length_is_an_error() {
        let mut answers = Answers::new(Protocol::Http);
        assert!(answers.next(b"HTTP/1.1 200 OK\r\n\r\nabc").is_err());
        assert!(answers.next(b"SSH-2.0-x\r\n\r\n").is_err());
    }

    #[test]
    fn redis_answers_are_told_apart() {
        let status = |bytes: &[u8]| parse_resp(bytes).expect("well formed").map(|a| a.status);
        assert_eq!(status(b"+OK\r\n"), Some(201));
        assert_eq!(status(b"-ERR no\r\n"), Some(500));
        assert_eq!(status(b"$-1\r\n"), Some(404));
        assert_eq!(status(b"$3\r\nabc\r\n"), Some(200));
        assert_eq!(status(b"$3\r\nabc"), None);
        assert_eq!(status(b"+O"), None);
        assert!(parse_resp(b"?\r\n").is_err());
    }

    #[test]
    fn requests_carry_key_and_value_of_the_asked_number() {
        let values = Values::new();
        let mut out = Vec::new();
        let mut requests = Requests::new(Protocol::Http, "h");
        requests.render(
            Ask {
                verb: Verb::Put,
                id: 8,
            },
            &values,
            &mut out,
        );
        assert!(out.starts_with(b"PUT /v0/entity?id=key-000000000008 HTTP/1.1\r\nHost: h\r\n"));
        assert!(values.is_of(8, &out[out.len() - VALUE_BYTES..]));
        out.clear();
        let mut requests = Requests::new(Protocol::Resp, "h");
        requests.render(
            Ask {
                verb: Verb::Put,
                id: 6,
            },
            &values,
            &mut out,
        );
        assert!(out.starts_with(b"*3\r\n$3\r\nSET\r\n$16\r\nkey-000000000006\r\n$100\r\n"));
        assert!(values.is_of(6, &out[out.len() - VALUE_BYTES - 2..out.len() - 2]));
    }
}
