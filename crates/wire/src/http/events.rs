//! Events of a watch as bytes of a chunked answer.
//!
//! ```text
//! {"event":"put","key":"k","version":"0193…-1-0","expires_ms":1754000000000,"value":"v"}
//! {"event":"put", … ,"content_type":"a/b","meta":{"n":"c"},"value":"v"}     as far as there is any
//! {"event":"delete","key":"k","version":"0193…-1-0"}       expire has the same fields
//! {"event":"live","token":"AQAA…"}                         heartbeat, reset
//! {"event":"end","reason":"draining","message":"…","token":"AQAA…"}
//! EventStream   id: AQAA… LF event: put LF data: {…} LF LF
//! ```
//!
//! Invariants
//! 1. An event is one line, and one event of a stream: no byte of a client ends it.
//! 2. A token stands in the last event of those that it covers, and in no other one. A reset
//!    without one takes the earlier one from a browser.
//!
//! Not here: which events there are (crate `watch`), the head (`response/`).
//! See: docs/watch.md.

use super::accept::EventFraming;
use super::lines::{bytes_field, expiry_field, version_field};
use super::records::{escape, meta_fields};
use crate::meta;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dendra_base::Version;

/// An event as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownEvent<'a> {
    /// The key has a value.
    Put {
        /// The client's key.
        key: &'a [u8],
        /// Version of the record.
        version: Version,
        /// The value as it is stored; `None` when the client did not ask for values.
        value: Option<&'a [u8]>,
        /// Wall milliseconds when it ends, if it does.
        expiry_ms: Option<u64>,
    },
    /// The key was deleted.
    Delete {
        /// The client's key.
        key: &'a [u8],
        /// Version of the deletion.
        version: Version,
    },
    /// The value of this version has ended.
    Expire {
        /// The client's key.
        key: &'a [u8],
        /// Version of the value.
        version: Version,
    },
    /// The state is told; changes follow.
    Live,
    /// Nothing has changed for a while.
    Heartbeat,
    /// The whole state follows.
    Reset,
    /// The watch ends.
    End {
        /// A word for programs.
        reason: &'a str,
        /// A sentence for people.
        message: &'a str,
    },
}

impl ShownEvent<'_> {
    /// The word that names its kind.
    pub const fn word(&self) -> &'static str {
        match self {
            ShownEvent::Put { .. } => "put",
            ShownEvent::Delete { .. } => "delete",
            ShownEvent::Expire { .. } => "expire",
            ShownEvent::Live => "live",
            ShownEvent::Heartbeat => "heartbeat",
            ShownEvent::Reset => "reset",
            ShownEvent::End { .. } => "end",
        }
    }
}

/// Stands for a token behind a `reset`: go on with the whole state.
pub const STATE_ID: &[u8] = b"state";

/// Appends an event. `token` covers it and all before it.
pub fn event(
    out: &mut Vec<u8>,
    framing: EventFraming,
    event: &ShownEvent<'_>,
    token: Option<&[u8]>,
) {
    let token = token.map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
    if framing == EventFraming::EventStream {
        if let Some(token) = &token {
            out.extend_from_slice(b"id: ");
            out.extend_from_slice(token.as_bytes());
            out.push(b'\n');
        } else if *event == ShownEvent::Reset {
            // A browser forgets its token, as it has to forget all keys, and the `from` of its URL.
            out.extend_from_slice(b"id: ");
            out.extend_from_slice(STATE_ID);
            out.push(b'\n');
        }
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event.word().as_bytes());
        out.extend_from_slice(b"\ndata: ");
    }
    out.extend_from_slice(b"{\"event\":\"");
    out.extend_from_slice(event.word().as_bytes());
    out.push(b'"');
    match event {
        ShownEvent::Put {
            key,
            version,
            value,
            expiry_ms,
        } => {
            bytes_field(out, "key", key);
            version_field(out, *version);
            expiry_field(out, *expiry_ms);
            if let Some(stored) = value {
                let (meta, plain) = meta::unwrap(stored);
                meta_fields(out, meta);
                bytes_field(out, "value", plain);
            }
        }
        ShownEvent::Delete { key, version } | ShownEvent::Expire { key, version } => {
            bytes_field(out, "key", key);
            version_field(out, *version);
        }
        ShownEvent::End { reason, message } => {
            text_field(out, "reason", reason);
            text_field(out, "message", message);
        }
        ShownEvent::Live | ShownEvent::Heartbeat | ShownEvent::Reset => {}
    }
    if let Some(token) = &token {
        text_field(out, "token", token);
    }
    out.extend_from_slice(b"}\n");
    if framing == EventFraming::EventStream {
        out.push(b'\n');
    }
}

fn text_field(out: &mut Vec<u8>, name: &str, text: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":\"");
    escape(out, text);
    out.push(b'"');
}

/// Last chunk of a watch.
pub fn events_end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

/// The bytes of a token in its text form.
pub(crate) fn token_bytes(text: &[u8]) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use proptest::prelude::*;

    const VERSION: Version = Version {
        hlc: 0x0193_f2a8_c1d4_0000,
        origin: 1,
        rmw: 0,
    };

    fn text(framing: EventFraming, shown: &ShownEvent<'_>, token: Option<&[u8]>) -> String {
        let mut out = Vec::new();
        event(&mut out, framing, shown, token);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn each_kind_of_event_is_an_object_on_a_line() {
        let (key, version) = (&b"k\n\""[..], VERSION);
        let put = |value, expiry_ms| ShownEvent::Put {
            key,
            version,
            value,
            expiry_ms,
        };
        let end = ShownEvent::End {
            reason: "draining",
            message: "go \"on\"",
        };
        let table: [(ShownEvent<'_>, Option<&[u8]>, &str); 9] = [
            (
                put(Some(b"v"), None),
                None,
                r#"{"event":"put","key":"k\n\"","version":"0193f2a8c1d40000-1-0","value":"v"}"#,
            ),
            (
                put(None, Some(7)),
                Some(&[0xff, 0xfe, 1]),
                r#"{"event":"put","key":"k\n\"","version":"0193f2a8c1d40000-1-0","expires_ms":7,"token":"__4B"}"#,
            ),
            (
                put(Some(b"\xff"), None),
                None,
                r#"{"event":"put","key":"k\n\"","version":"0193f2a8c1d40000-1-0","value_base64":"/w=="}"#,
            ),
            (
                ShownEvent::Delete {
                    key: b"\xff",
                    version,
                },
                None,
                r#"{"event":"delete","key_base64":"/w==","version":"0193f2a8c1d40000-1-0"}"#,
            ),
            (
                ShownEvent::Expire { key: b"k", version },
                None,
                r#"{"event":"expire","key":"k","version":"0193f2a8c1d40000-1-0"}"#,
            ),
            (
                ShownEvent::Live,
                Some(b""),
                r#"{"event":"live","token":""}"#,
            ),
            (ShownEvent::Heartbeat, None, r#"{"event":"heartbeat"}"#),
            (ShownEvent::Reset, None, r#"{"event":"reset"}"#),
            (
                end,
                None,
                r#"{"event":"end","reason":"draining","message":"go \"on\""}"#,
            ),
        ];
        for (shown, token, line) in table {
            let lines = text(EventFraming::Ndjson, &shown, token);
            assert_eq!(lines, format!("{line}\n"));
            let stream = text(EventFraming::EventStream, &shown, token);
            let id = match token {
                Some(token) => format!("id: {}\n", URL_SAFE_NO_PAD.encode(token)),
                None if shown == ShownEvent::Reset => "id: state\n".to_owned(),
                None => String::new(),
            };
            let word = shown.word();
            let wanted = format!("{id}event: {word}\ndata: {line}\n\n");
            assert_eq!(stream, wanted);
        }
    }

    proptest! {
        #[test]
        fn an_event_is_one_line_whatever_its_bytes(
            key in legal::raw_key(), value in prop::collection::vec(any::<u8>(), 0..40),
            token in prop::collection::vec(any::<u8>(), 0..90),
        ) {
            let put = ShownEvent::Put {
                key: &key,
                version: VERSION,
                value: Some(&value),
                expiry_ms: None,
            };
            let line = text(EventFraming::Ndjson, &put, Some(&token));
            prop_assert_eq!(line.find('\n'), Some(line.len() - 1));
            prop_assert!(!line.contains('\r'));
            let shown = URL_SAFE_NO_PAD.encode(&token);
            prop_assert_eq!(token_bytes(shown.as_bytes()), Some(token));
        }
    }
}
