//! A node's answer, or why there is none, as exit codes and sentences.
//!
//! ```text
//! status                exit
//! 404                   3  not found
//! 412                   4  condition failed
//! 408 429 503 504       5  unavailable
//! other 4xx, 5xx, 507   1  failed, with the server's sentence
//! no answer             5
//! ```
//!
//! Invariants
//! 1. The server's own sentence is passed on; control characters in it are escaped.
//! 2. A failed write says whether it may have been applied.
//!
//! Not here: sending (`mod.rs`).
//! See: docs/api.md.

use crate::exit::{Exit, Failure};
use bytes::Bytes;
use dendra_wire::meta::{self, MetaBuf};
use hyper::http::response::Parts;
use hyper::{HeaderMap, StatusCode};
use std::fmt;
use std::time::Duration;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct WholeAnswer {
    /// The status.
    pub(crate) status: StatusCode,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
}

/// Which port of a node a command asks: sentences name the flag that says where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedPort {
    Data,
    /// The admin port, whose requests write no record of a client.
    Admin,
    /// The admin port of a command that takes one alone.
    AdminUrl,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// No connection could be made: no request was sent.
    Unreachable(String),
    /// One side refused the certificate of the other, or missed one: no write was applied.
    NotTrusted(String),
    /// The connection ended in the middle: a write may have been applied.
    Broken(String),
    /// No byte came in time: a write may have been applied.
    Silent {
        /// How long no byte came.
        waited: Duration,
    },
    /// The program that answers there is no node.
    Foreign(String),
}

impl WholeAnswer {
    /// From the parts that hyper hands out.
    pub(crate) fn new(parts: Parts, body: Bytes) -> WholeAnswer {
        WholeAnswer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// A header as text, when it is there and is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The version from `ETag`, without its quotes.
    pub(crate) fn version(&self) -> Option<&str> {
        let tag = self.header("etag")?;
        Some(tag.strip_prefix('"')?.strip_suffix('"').unwrap_or(tag))
    }

    /// The metadata of a value that was asked for; the error is a sentence.
    pub(crate) fn meta(&self) -> Result<MetaBuf, String> {
        let prefix = meta::PREFIX.to_ascii_lowercase();
        let named = self.headers.iter().filter_map(|(name, content)| {
            let name = name.as_str().strip_prefix(&prefix)?;
            Some((name, content.as_bytes()))
        });
        let named: Vec<_> = named.collect();
        let content_type = self.headers.get("content-type");
        MetaBuf::new(content_type.map(|it| it.as_bytes()), &named)
            .map_err(|refusal| format!("its metadata cannot be read: {}", refusal.message))
    }

    /// The value that was asked for as it is stored: with its metadata.
    pub(crate) fn stored(&self) -> Result<Bytes, String> {
        let wrapped = meta::wrap(&self.meta()?, &self.body);
        Ok(wrapped.map_or_else(|| self.body.clone(), Bytes::from))
    }

    /// Does the status ask to try again after a while?
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.status.as_u16(), 408 | 429 | 503 | 504)
    }

    /// When it asks to be tried again; `None` when it does not say.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let seconds: u64 = self.header("retry-after")?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds))
    }

    /// The code word of a refusal: of a data port in front of the colon, of an admin port in the
    /// field `error`.
    pub(crate) fn code(&self) -> Option<String> {
        if let Ok(page) = serde_json::from_slice::<serde_json::Value>(&self.body) {
            return page["error"].as_str().map(str::to_owned);
        }
        let (code, _) = std::str::from_utf8(&self.body).ok()?.split_once(": ")?;
        let is_code = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        code.bytes().all(is_code).then(|| code.to_owned())
    }

    /// The server's sentence, on one line.
    pub(crate) fn sentence(&self) -> String {
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(1000)]);
        let text: String = text
            .trim()
            .chars()
            .flat_map(|c| match c {
                c if c.is_control() => c.escape_default().collect::<Vec<char>>(),
                c => vec![c],
            })
            .collect();
        match (text.is_empty(), self.header("dendra-receipt")) {
            (true, None) => self.status.to_string(),
            (true, Some(receipt)) => format!("{} ({receipt})", self.status),
            (false, None) => format!("{} {text}", self.status.as_u16()),
            (false, Some(receipt)) => format!("{} {text} ({receipt})", self.status.as_u16()),
        }
    }

    /// This answer as a failure of the command.
    pub(crate) fn failure(&self, what: &str) -> Failure {
        let exit = match self.status.as_u16() {
            404 => Exit::NOT_FOUND,
            412 => Exit::CONDITION,
            408 | 429 | 503 | 504 => Exit::UNAVAILABLE,
            _ => Exit::FAILURE,
        };
        let sentence = match self.status.as_u16() {
            404 => format!("{what}: not found"),
            412 => match self.version() {
                Some(version) => {
                    format!("{what}: the condition does not hold, the key holds version {version}")
                }
                None => format!("{what}: the condition does not hold"),
            },
            _ => format!("{what}: {}", self.sentence()),
        };
        Failure::new(exit, sentence)
    }
}

impl Trouble {
    /// From hyper's error, with all its causes: its own `Display` stops at the first.
    pub(super) fn broken(error: &hyper::Error, is_unsent: bool) -> Trouble {
        if let Some(sentence) = dendra_server::tls::certificate_fault(error) {
            return Trouble::NotTrusted(sentence);
        }
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(deeper) = cause {
            text = format!("{text}: {deeper}");
            cause = deeper.source();
        }
        if error.is_parse() {
            Trouble::Foreign(text)
        } else if is_unsent {
            Trouble::Unreachable(text)
        } else {
            Trouble::Broken(text)
        }
    }

    /// This trouble as a failure of a command that talks to the data port at `place`.
    pub(crate) fn failure(&self, place: &str) -> Failure {
        self.failure_at(AskedPort::Data, place)
    }

    /// This trouble as a failure of a command that talks to that port at `place`.
    pub(crate) fn failure_at(&self, port: AskedPort, place: &str) -> Failure {
        let exit = match self {
            Trouble::Foreign(_) => Exit::FAILURE,
            _ => Exit::UNAVAILABLE,
        };
        Failure::new(exit, format!("{place}: {}", self.sentence(port)))
    }

    fn sentence(&self, port: AskedPort) -> String {
        let (flag, written) = match port {
            AskedPort::Data => ("--url", "; if it was a write, it may have been applied"),
            AskedPort::Admin => ("--admin", ""),
            AskedPort::AdminUrl => ("--url", ""),
        };
        match self {
            Trouble::Unreachable(why) => {
                format!("no node can be reached ({why}); is one running? see {flag}")
            }
            Trouble::NotTrusted(why) => why.clone(),
            Trouble::Broken(why) => format!("the connection broke ({why}){written}"),
            Trouble::Silent { waited } => {
                let seconds = waited.as_secs_f64();
                format!("no answer within {seconds:.1} s{written}; see --timeout-ms")
            }
            Trouble::Foreign(why) => {
                format!("what answers there is no Dendra node ({why}); see {flag}")
            }
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence(AskedPort::Data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str) -> WholeAnswer {
        WholeAnswer {
            status: StatusCode::BAD_REQUEST,
            headers: HeaderMap::new(),
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }

    #[test]
    fn a_refusal_has_its_code_word_in_front_or_in_a_field() {
        let rows = [
            ("unknown-path: /v0/x is not here\n", Some("unknown-path")),
            (
                r#"{"error": "no-such-order", "message": "there is no order"}"#,
                Some("no-such-order"),
            ),
            // Of other programs.
            ("Not Found: unknown-path: ", None),
            (r#"{"message": "unknown-path: "}"#, None),
            ("", None),
        ];
        for (body, code) in rows {
            assert_eq!(answer(body).code().as_deref(), code, "{body:?}");
        }
    }

    #[test]
    fn a_sentence_about_an_admin_port_names_its_flag_and_no_write() {
        let trouble = Trouble::Broken("reset".to_owned());
        let at = |port| trouble.failure_at(port, "h:1").sentence;
        let data = "h:1: the connection broke (reset); if it was a write, it may have been applied";
        assert_eq!(at(AskedPort::Data), data);
        assert_eq!(at(AskedPort::Admin), "h:1: the connection broke (reset)");
        let trouble = Trouble::Unreachable("refused".to_owned());
        let admin = trouble.failure_at(AskedPort::Admin, "h:1").sentence;
        assert!(admin.ends_with("see --admin"), "{admin}");
    }
}
