//! The same conversation as plain HTTP: each question is a request, each answer a response.
//!
//! ```text
//! asker                                                               acceptor
//!   POST /v0/peer/hello, Dendra-Peer: <hello> ────────────────────────────►
//!   ◄──────────────────────────────────────────── 200, Dendra-Peer: <hello>
//!   POST /v0/peer/ask, Dendra-Peer-Proof: <token>, body: | Hail | ─────────►
//!   ◄───────────────────────────────────────────── 200, body: | Welcome |
//!   POST /v0/peer/ask, Dendra-Peer-Proof: <token>, body: | Ask | ──────────►
//!   ◄──────────────────────────────────────────────── 200, body: | Answer |
//! token   the asker's proof of the secret, as its first frame would carry it
//! ```
//!
//! Invariants
//! 1. A body is exactly one frame: its checksum covers every byte that an intermediary may have
//!    touched.
//! 2. No state rests on the connection: requests of one asker may come over any of them, in any
//!    order.
//! 3. The token names both nonces of one handshake and finds its keys; with a secret it is of no
//!    use without them.
//!
//! Not here: the right to ask, the choice of connections (crate `server`).
//! See: docs/peer.md, section "Over plain HTTP".

use super::proof::Proof;
use crate::http::response::{self, Style};

/// Appends the request that introduces a member.
pub fn hello_request(out: &mut Vec<u8>, host: &str, url: &str, hello: &str) {
    out.extend_from_slice(
        format!(
            "POST /v0/peer/hello HTTP/1.1\r\nHost: {host}\r\nUser-Agent: dendra-peer/1 ({url})\r\n\
             Dendra-Peer: {hello}\r\nContent-Length: 0\r\n\r\n"
        )
        .as_bytes(),
    );
}

/// Appends the answer to it.
pub fn hello_answer(out: &mut Vec<u8>, style: Style, hello: &str) {
    response::hello(out, style, hello);
}

/// The head of every question of one session, up to the length of its frame.
#[derive(Clone, PartialEq, Eq)]
pub struct AskHead(String);

impl AskHead {
    /// Head of requests from the member at `url`, whose token is `token`, to the member at `host`.
    pub fn new(host: &str, url: &str, token: &Proof) -> AskHead {
        AskHead(format!(
            "POST /v0/peer/ask HTTP/1.1\r\nHost: {host}\r\nUser-Agent: dendra-peer/1 ({url})\r\n\
             Dendra-Peer-Proof: {token}\r\nContent-Type: application/octet-stream\r\nContent-Length: "
        ))
    }

    /// Appends the head in front of a frame of `frame_len` bytes.
    pub fn put(&self, out: &mut Vec<u8>, frame_len: usize) {
        out.extend_from_slice(self.0.as_bytes());
        out.extend_from_slice(frame_len.to_string().as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
    }
}

impl std::fmt::Debug for AskHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AskHead")
    }
}

/// Appends the answer to a question: 200 with one frame.
pub fn answer(out: &mut Vec<u8>, style: Style, frame: &[u8]) {
    response::frame(out, style, frame);
}

#[cfg(test)]
mod tests {
    use super::super::Role;
    use super::*;
    use crate::client::{AnswerBody, Asked, ParsedAnswer, parse_answer};
    use crate::http::{Body, ConnectionFate, Field, Head, Limits, Method, Parsed, parse_head};
    use crate::legal;
    use crate::route::{KeyBuf, RequestRules, Route, route};
    use proptest::prelude::*;

    fn proof() -> Proof {
        Proof::new(b"s", Role::Asker, "a", "b")
    }

    fn routed(head: &Head<'_>) -> Result<Route, u16> {
        let settings = RequestRules {
            nodes: 3,
            replication_factor: 3,
            key_bytes_max: 1024,
            value_bytes_max: 100,
        };
        route(head, &settings, &mut KeyBuf::new()).map_err(|refusal| refusal.status)
    }

    const STYLE: Style = Style {
        connection: ConnectionFate::Persist,
        omits_body: false,
        line: None,
        page: None,
    };

    #[test]
    fn a_hello_and_its_answer_are_http_that_our_own_parsers_read() {
        let mut bytes = Vec::new();
        hello_request(&mut bytes, "127.0.0.1:1", "http://127.0.0.1:2", "a=b; c=d");
        let Parsed::Head(head) = parse_head(&bytes, &Limits::USUAL) else {
            panic!("a whole head");
        };
        assert_eq!(head.peer_hello, Field::Once(b"a=b; c=d"));
        assert_eq!(routed(&head), Ok(Route::PeerHello));
        assert_eq!(head.consumed, bytes.len());

        let mut bytes = Vec::new();
        hello_answer(&mut bytes, STYLE, "e=f");
        let ParsedAnswer::Head(answer) = parse_answer(&bytes, Asked::WithBody) else {
            panic!("a whole head");
        };
        assert_eq!((answer.status, answer.body), (200, AnswerBody::None));
        assert_eq!(answer.peer_hello, Some(&b"e=f"[..]));
    }

    proptest! {
        #[test]
        fn any_legal_frame_passes_over_plain_http(
            secret in prop::collection::vec(any::<u8>(), 1..40),
            frame in legal::value(),
            host in "[a-z0-9.]{1,253}:[0-9]{1,5}",
        ) {
            let token = Proof::new(&secret, Role::Asker, "a", &host);
            let mut bytes = Vec::new();
            let url = format!("http://{host}");
            AskHead::new(&host, &url, &token).put(&mut bytes, frame.len());
            let Parsed::Head(head) = parse_head(&bytes, &Limits::USUAL) else {
                return Err(TestCaseError::fail("a whole head"));
            };
            prop_assert_eq!(routed(&head), Ok(Route::PeerAsk));
            let read = match head.peer_proof {
                Field::Once(text) => Proof::from_hex(text),
                Field::Absent | Field::Repeated => None,
            };
            prop_assert_eq!(read, Some(token));
            let length = match frame.len() as u64 {
                0 => Body::None,
                length => Body::Length(length),
            };
            prop_assert_eq!(head.body, length);
            bytes.clear();
            answer(&mut bytes, STYLE, &frame);
            let ParsedAnswer::Head(answer) = parse_answer(&bytes, Asked::WithBody) else {
                return Err(TestCaseError::fail("a whole head"));
            };
            prop_assert_eq!(answer.status, 200);
            prop_assert!(bytes[answer.consumed..] == frame[..]);
        }
    }

    #[test]
    fn a_question_and_its_answer_are_one_frame_each() {
        let mut bytes = Vec::new();
        AskHead::new("127.0.0.1:1", "http://127.0.0.1:2", &proof()).put(&mut bytes, 1234);
        let Parsed::Head(head) = parse_head(&bytes, &Limits::USUAL) else {
            panic!("a whole head");
        };
        assert_eq!(routed(&head), Ok(Route::PeerAsk));
        assert_eq!(head.body, Body::Length(1234));
        let token = match head.peer_proof {
            Field::Once(text) => Proof::from_hex(text),
            Field::Absent | Field::Repeated => None,
        };
        assert_eq!(token, Some(proof()));

        let mut bytes = Vec::new();
        answer(&mut bytes, STYLE, b"frame");
        let ParsedAnswer::Head(answer) = parse_answer(&bytes, Asked::WithBody) else {
            panic!("a whole head");
        };
        assert_eq!((answer.status, answer.body), (200, AnswerBody::Length(5)));
        assert_eq!(&bytes[answer.consumed..], b"frame");
    }

    #[test]
    fn only_a_post_is_a_question() {
        for (text, status) in [
            ("GET /v0/peer/ask HTTP/1.1\r\nHost: h\r\n\r\n", 405),
            ("PUT /v0/peer/hello HTTP/1.1\r\nHost: h\r\n\r\n", 405),
            ("POST /v0/peer/ask?a=b HTTP/1.1\r\nHost: h\r\n\r\n", 400),
            (
                "POST /v0/peer/hello HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n",
                400,
            ),
            (
                "POST /v0/peer/ask HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\n",
                415,
            ),
            ("POST /v0/peer HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ] {
            let Parsed::Head(head) = parse_head(text.as_bytes(), &Limits::USUAL) else {
                panic!("{text} is a whole head");
            };
            assert_eq!(head.method == Method::Post, text.starts_with("POST"));
            assert_eq!(routed(&head), Err(status), "{text}");
        }
    }
}
