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

    /// Does the status ask to try again after a while?
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.status.as_u16(), 408 | 429 | 503 | 504)
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

    /// This trouble as a failure of a command that talks to `place`.
    pub(crate) fn failure(&self, place: &str) -> Failure {
        let exit = match self {
            Trouble::Foreign(_) => Exit::FAILURE,
            _ => Exit::UNAVAILABLE,
        };
        Failure::new(exit, format!("{place}: {self}"))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Unreachable(why) => {
                write!(
                    f,
                    "no node can be reached ({why}); is one running? see --url"
                )
            }
            Trouble::NotTrusted(why) => f.write_str(why),
            Trouble::Broken(why) => {
                write!(
                    f,
                    "the connection broke ({why}); if it was a write, it may have been applied"
                )
            }
            Trouble::Silent { waited } => write!(
                f,
                "no answer within {:.1} s; if it was a write, it may have been applied; see --timeout-ms",
                waited.as_secs_f64()
            ),
            Trouble::Foreign(why) => {
                write!(f, "what answers there is no Dendra node ({why}); see --url")
            }
        }
    }
}
