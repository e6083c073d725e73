//! Refusals: every answer that is not the thing asked for, as a value.
//!
//! ```text
//! status  code word + sentence                 the body is `code: sentence\n`
//! 400     bad-quorum: ack=3 exceeds from=2
//! 503     overloaded: …                        Retry-After, Dendra-Receipt: outcome=not-applied
//! ```
//!
//! Invariants
//! 1. A code word is stable: a program may compare it. A sentence is for people and may change.
//! 2. A sentence names the number that was wrong and the way out. It never repeats more than
//!    `ECHO_BYTES_MAX` bytes of the client's, and those only in printable ASCII.
//! 3. `close` is set exactly when the next request's first byte can no longer be found for sure.
//!
//! Not here: the bytes of the answer (`http::response`).
//! See: docs/api.md, section "Errors".

use crate::limits::ECHO_BYTES_MAX;
use std::borrow::Cow;
use std::fmt;

pub use dendra_base::Known;

/// An answer that refuses, with everything its bytes need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status, 400 to 599.
    pub status: u16,
    /// Stable code word in front of the sentence.
    pub code: &'static str,
    /// The sentence, without code word and line end.
    pub message: Cow<'static, str>,
    /// Close the connection after this answer: its framing is not to be trusted.
    pub close: bool,
    /// Methods that the path knows, for `Allow` (405 only).
    pub allow: Option<&'static str>,
    /// How to come in, for `WWW-Authenticate` (401 only).
    pub challenge: Option<&'static str>,
    /// Seconds for `Retry-After` (429, 503, 507).
    pub retry_after_s: Option<u32>,
    /// The state of the record, for `Dendra-Receipt`.
    pub known: Option<Known>,
    /// How many replicas answered of how many asked, in front of the outcome (504).
    pub acks: Option<(u8, u8)>,
}

impl Refusal {
    /// A refusal after which the connection goes on.
    pub fn new(status: u16, code: &'static str, message: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal {
            status,
            code,
            message: message.into(),
            close: false,
            allow: None,
            challenge: None,
            retry_after_s: None,
            known: None,
            acks: None,
        }
    }

    /// This refusal, with an end of the connection after it.
    #[must_use]
    pub fn closing(self) -> Refusal {
        Refusal {
            close: true,
            ..self
        }
    }

    /// This refusal, with the state of the record.
    #[must_use]
    pub fn knowing(self, known: Known) -> Refusal {
        Refusal {
            known: Some(known),
            ..self
        }
    }

    /// This refusal, with a reason after the sentence.
    #[must_use]
    pub fn because(self, why: &str) -> Refusal {
        Refusal {
            message: format!("{}: {why}", self.message).into(),
            ..self
        }
    }

    /// This refusal, as one of the item at this place of a batch, counted from 1.
    #[must_use]
    pub fn at_item(self, place: usize) -> Refusal {
        Refusal {
            message: format!("item {place}: {}", self.message).into(),
            ..self
        }
    }

    /// 400, connection goes on.
    pub(crate) fn bad(code: &'static str, message: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(400, code, message)
    }

    /// 400: the key is one of the cluster's own.
    pub(crate) fn reserved_key() -> Refusal {
        Refusal::bad(
            "reserved-key",
            "keys that begin with 16 bytes FF are the cluster's own: take another one",
        )
    }

    /// 400 for broken framing: the connection closes.
    pub(crate) fn framing(message: &'static str) -> Refusal {
        Refusal::new(400, "bad-framing", message).closing()
    }

    /// 400 for a head that is not HTTP: the connection closes.
    pub(crate) fn syntax(message: &'static str) -> Refusal {
        Refusal::new(400, "bad-request", message).closing()
    }

    /// 403: a browser marks the request as one of another site's page; `mark` is the header that
    /// says so.
    pub fn cross_site(mark: &str) -> Refusal {
        Refusal::new(
            403,
            "cross-site",
            format!(
                "a page of another site sent this ({mark}): open it yourself, serve the page from the node's own origin, or name its origin with --allowed-origins, which counts on the data port"
            ),
        )
    }

    /// 401: no token, or one that is not known.
    pub fn unauthenticated(message: &'static str) -> Refusal {
        Refusal {
            challenge: Some("Bearer realm=\"dendra\""),
            ..Refusal::new(401, "unauthenticated", message)
        }
    }

    /// 429: this address has shown too many tokens that are not known.
    pub fn too_many_logins(retry_after_s: u32) -> Refusal {
        Refusal {
            retry_after_s: Some(retry_after_s),
            ..Refusal::new(
                429,
                "too-many-logins",
                "too many unknown tokens came from this address: wait, and check the token",
            )
        }
        .closing()
    }

    /// 429: the holder of the grant `id` asks or moves more than `most` a second.
    pub fn over_quota(id: &str, what: &str, most: u64, retry_after_s: u32) -> Refusal {
        Refusal {
            retry_after_s: Some(retry_after_s),
            known: Some(Known::NotApplied),
            ..Refusal::new(
                429,
                "over-quota",
                format!("`{id}` has {most} {what} a second on each node: wait, or ask for more"),
            )
        }
    }

    /// 507: the keys of the grant `id` take about `stored` bytes of `most`.
    pub fn over_stored_quota(id: &str, stored: u64, most: u64, retry_after_s: u32) -> Refusal {
        Refusal {
            retry_after_s: Some(retry_after_s),
            known: Some(Known::NotApplied),
            ..Refusal::new(
                507,
                "over-stored-quota",
                format!(
                    "`{id}` stores about {stored} of {most} bytes: reads and deletes go on, and deleted space comes back when it is compacted"
                ),
            )
        }
    }

    /// 421: the request names a host that is none of this node's.
    pub fn misdirected(host: &str) -> Refusal {
        Refusal::new(
            421,
            "misdirected",
            format!(
                "this node does not answer for the host `{host}`: if it should, name it with --allowed-hosts"
            ),
        )
    }

    /// 405 with the methods that the path knows.
    pub fn method_not_allowed(allow: &'static str) -> Refusal {
        Refusal {
            allow: Some(allow),
            ..Refusal::new(
                405,
                "method-not-allowed",
                format!("this path knows {allow}"),
            )
        }
    }

    /// 408: the head or the body did not arrive in time.
    pub fn too_slow(message: &'static str) -> Refusal {
        Refusal::new(408, "too-slow", message).closing()
    }

    /// 413: the value is larger than the server takes. The server closes when it will not read the
    /// body to its end.
    pub fn value_too_large(value_bytes_max: u64) -> Refusal {
        Refusal::new(
            413,
            "value-too-large",
            format!("a value has at most {value_bytes_max} bytes here (--value-bytes-max)"),
        )
    }

    /// 500: the stored record does not match its checksum. Not "absent": "unknown".
    pub fn damaged() -> Refusal {
        Refusal::new(
            500,
            "damaged",
            "the stored record fails its checksum; run `dendra check` on the stopped node's folder",
        )
    }

    /// 503: a gate is full. No work was started.
    pub fn overloaded(message: impl Into<Cow<'static, str>>, retry_after_s: u32) -> Refusal {
        Refusal {
            retry_after_s: Some(retry_after_s),
            known: Some(Known::NotApplied),
            ..Refusal::new(503, "overloaded", message)
        }
    }

    /// 503: the deadline passed before the work was started.
    pub fn expired_in_queue(retry_after_s: u32) -> Refusal {
        Refusal {
            retry_after_s: Some(retry_after_s),
            known: Some(Known::NotApplied),
            ..Refusal::new(
                503,
                "deadline-in-queue",
                "the deadline passed before the work was started; try again, or set a longer Dendra-Timeout-Ms",
            )
        }
    }

    /// 503: the node starts, drains or is poisoned; `message` says which.
    pub fn not_serving(message: impl Into<Cow<'static, str>>, retry_after_s: u32) -> Refusal {
        Refusal {
            retry_after_s: Some(retry_after_s),
            known: Some(Known::NotApplied),
            ..Refusal::new(503, "not-serving", message)
        }
    }

    /// 504: there are links to fewer replicas than the `needed`. No work was started. `missing` is
    /// one without.
    pub fn unreachable(up: u8, needed: u8, from: u8, missing: Option<&str>) -> Refusal {
        let verb = if needed == 1 { "is" } else { "are" };
        let missing = missing.unwrap_or("the others");
        let message = format!(
            "{up} of {from} replicas can be reached from here, {needed} {verb} needed: there is no link to {missing}"
        );
        Refusal {
            known: Some(Known::NotApplied),
            ..Refusal::new(504, "unreachable", message)
        }
    }

    /// 504: `got` replicas answered, fewer than the `needed`. The receipt counts holders, and
    /// a write that was not applied has none, also when replicas told their clocks for it.
    pub fn too_few_answers(got: u8, needed: u8, from: u8, known: Known) -> Refusal {
        let verb = if needed == 1 { "is" } else { "are" };
        let message = format!("{got} of {from} replicas answered, {needed} {verb} needed");
        let holders = match known {
            Known::NotApplied => 0,
            Known::Unknown => got,
        };
        Refusal {
            known: Some(known),
            acks: Some((holders, from)),
            ..Refusal::new(504, "too-few-answers", message)
        }
    }

    /// 504: enough replicas answered, and could not say whether a conditional write was applied
    /// before a later one came over it.
    pub fn overtaken(acks: u8, from: u8) -> Refusal {
        let message = "another write came over this one before it was known whether it had been applied: \
                       read the key";
        Refusal {
            known: Some(Known::Unknown),
            acks: Some((acks, from)),
            ..Refusal::new(504, "overtaken", message)
        }
    }

    /// 507: no room for new values; deletes go on.
    pub fn disk_full(retry_after_s: u32) -> Refusal {
        Refusal {
            retry_after_s: Some(retry_after_s),
            known: Some(Known::NotApplied),
            ..Refusal::new(
                507,
                "disk-full",
                "the disk is full: reads and deletes go on, new values need free space",
            )
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Refusal {}

/// Client bytes for an error sentence: printable ASCII, cut after `ECHO_BYTES_MAX` bytes.
pub(crate) fn echo(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().min(ECHO_BYTES_MAX) + 3);
    for &byte in bytes.iter().take(ECHO_BYTES_MAX) {
        out.push(if byte == b' ' || byte.is_ascii_graphic() {
            char::from(byte)
        } else {
            '?'
        });
    }
    if bytes.len() > ECHO_BYTES_MAX {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that a client acts on: status, receipt, `Retry-After`, `Allow`, and whether it
    /// may go on.
    #[test]
    fn a_refusal_tells_what_is_known_and_when_to_come_again() {
        let not_applied = Some(Known::NotApplied);
        let unknown = Some(Known::Unknown);
        for (refusal, status, known, retry_after_s, acks) in [
            (
                Refusal::overloaded("full", 2),
                503,
                not_applied,
                Some(2),
                None,
            ),
            (
                Refusal::expired_in_queue(3),
                503,
                not_applied,
                Some(3),
                None,
            ),
            (
                Refusal::not_serving("it starts", 4),
                503,
                not_applied,
                Some(4),
                None,
            ),
            (
                Refusal::unreachable(1, 2, 3, None),
                504,
                not_applied,
                None,
                None,
            ),
            (
                Refusal::too_few_answers(1, 2, 3, Known::Unknown),
                504,
                unknown,
                None,
                Some((1, 3)),
            ),
            (Refusal::overtaken(2, 3), 504, unknown, None, Some((2, 3))),
            (Refusal::disk_full(5), 507, not_applied, Some(5), None),
            (Refusal::damaged(), 500, None, None, None),
            (
                Refusal::damaged().knowing(Known::Unknown),
                500,
                unknown,
                None,
                None,
            ),
        ] {
            assert_eq!(refusal.status, status, "{refusal}");
            assert_eq!(refusal.known, known, "{refusal}");
            assert_eq!(refusal.retry_after_s, retry_after_s, "{refusal}");
            assert_eq!(refusal.acks, acks, "{refusal}");
            assert!(!refusal.close && refusal.allow.is_none(), "{refusal}");
        }
        let allowed = Refusal::method_not_allowed("GET, PUT");
        assert_eq!(allowed.allow, Some("GET, PUT"));
        assert!(Refusal::damaged().closing().close);
    }

    #[test]
    fn a_sentence_counts_and_takes_a_reason() {
        let why = Refusal::damaged().because("block 7");
        assert_eq!(
            why.message,
            format!("{}: block 7", Refusal::damaged().message)
        );
        let missing = |needed: u8| Refusal::unreachable(1, needed, 3, Some("h2")).message;
        assert!(missing(1).contains("1 is needed"), "{}", missing(1));
        assert!(
            missing(2).contains("2 are needed: there is no link to h2"),
            "{}",
            missing(2)
        );
        let few = |needed: u8| Refusal::too_few_answers(0, needed, 3, Known::Unknown).message;
        assert!(few(1).ends_with("1 is needed"), "{}", few(1));
        assert!(few(2).ends_with("2 are needed"), "{}", few(2));
    }
}
