//! Answers that our own writers made, and answers of others.

use super::*;
use crate::http::response::{self, Found, Receipt, ScanEnd, Style};
use crate::http::{ChunkDecoder, ChunkItem, ConnectionFate, Framing};
use crate::legal;
use crate::refusal::Refusal;
use dendra_base::{Consistency, Durability, Version};
use proptest::prelude::*;

const VERSION: Version = Version {
    hlc: 0x0193_0000_0000_0001,
    origin: 0xabc,
    rmw: 2,
};
const RECEIPT: Receipt = Receipt {
    acks: 2,
    from: 3,
    level: Consistency::Linearizable,
    durability: Durability::Sync,
};
const FOUND: Found = Found {
    version: VERSION,
    expiry_ms: Some(1_754_000_000_000),
    receipt: RECEIPT,
};

fn style(connection: ConnectionFate, omits_body: bool) -> Style {
    Style {
        connection,
        omits_body,
        line: None,
        page: None,
    }
}

fn head(buf: &[u8], asked: Asked) -> AnswerHead<'_> {
    match parse_answer(buf, asked) {
        ParsedAnswer::Head(answer) => answer,
        other => panic!("not an answer: {other:?}"),
    }
}

#[test]
fn our_value_is_read_with_everything_it_says() {
    let mut out = Vec::new();
    response::value(
        &mut out,
        style(ConnectionFate::Persist, false),
        &FOUND,
        b"abc",
    );
    let answer = head(&out, Asked::WithBody);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body, AnswerBody::Length(3));
    assert_eq!(&out[answer.consumed..], b"abc");
    assert!(answer.keep_alive);
    let etag = format!("\"{VERSION}\"");
    assert_eq!(answer.etag, Some(etag.as_bytes()));
    assert_eq!(answer.content_type, Some(&b"application/octet-stream"[..]));
}

proptest! {
    #![proptest_config(legal::cases(128))]

    #[test]
    fn any_legal_answer_is_read_as_it_was_sent(
        cell in legal::cell(),
        acks: u8,
        from: u8,
        levels in prop::sample::select(vec![
            (Consistency::Linearizable, Durability::Sync),
            (Consistency::Eventual, Durability::Os),
        ]),
        is_head: bool,
        closes: bool,
    ) {
        let (level, durability) = levels;
        let receipt = Receipt { acks, from, level, durability };
        let found = Found {
            version: cell.version,
            expiry_ms: cell.expiry_ms,
            receipt,
        };
        let (fate, asked) = match (closes, is_head) {
            (false, false) => (ConnectionFate::Persist, Asked::WithBody),
            (false, true) => (ConnectionFate::Persist, Asked::HeadOnly),
            (true, false) => (ConnectionFate::Close, Asked::WithBody),
            (true, true) => (ConnectionFate::Close, Asked::HeadOnly),
        };
        let style = style(fate, is_head);
        let mut values = Vec::new();
        response::value(&mut values, style, &found, &cell.value);
        let mut current = Vec::new();
        let version = cell.version;
        response::condition_failed_with(&mut current, style, version, cell.expiry_ms, &cell.value);
        let etag = format!("\"{version}\"");
        for (out, status) in [(&values, 200), (&current, 412)] {
            let answer = head(out, asked);
            prop_assert_eq!(answer.status, status);
            prop_assert_eq!(answer.keep_alive, !closes);
            prop_assert_eq!(answer.etag, Some(etag.as_bytes()));
            prop_assert_eq!(answer.content_length, Some(cell.value.len() as u64));
            prop_assert!(answer.consumed <= crate::limits::ANSWER_HEAD_BYTES_MAX);
            let body = &out[answer.consumed..];
            let shown = if is_head { b"" } else { &cell.value[..] };
            prop_assert!(body == shown);
        }
        for (write, status) in [
            (response::created as fn(&mut Vec<u8>, Style, Version, Receipt), 201),
            (response::accepted, 202),
        ] {
            let mut out = Vec::new();
            write(&mut out, style, version, receipt);
            let answer = head(&out, asked);
            prop_assert_eq!((answer.status, answer.consumed), (status, out.len()));
            prop_assert_eq!(answer.etag, Some(etag.as_bytes()));
        }
    }
}

#[test]
fn an_answer_to_head_announces_a_length_and_has_no_body() {
    let mut out = Vec::new();
    response::value(&mut out, style(ConnectionFate::Close, true), &FOUND, b"abc");
    let answer = head(&out, Asked::HeadOnly);
    assert_eq!(
        (answer.body, answer.content_length),
        (AnswerBody::None, Some(3))
    );
    assert_eq!(answer.consumed, out.len());
    assert!(!answer.keep_alive);
}

#[test]
fn a_304_announces_a_length_and_has_no_body() {
    let mut out = Vec::new();
    response::not_modified(
        &mut out,
        style(ConnectionFate::Persist, false),
        &FOUND,
        &[7; 77],
    );
    let answer = head(&out, Asked::WithBody);
    assert_eq!((answer.status, answer.body), (304, AnswerBody::None));
    assert_eq!(answer.content_length, Some(77));
    assert_eq!(answer.consumed, out.len());
}

#[test]
fn a_refusal_is_read_with_its_sentence() {
    let mut out = Vec::new();
    let refusal = Refusal::overloaded("the store queue is full", 2);
    response::refusal(&mut out, style(ConnectionFate::Persist, false), &refusal);
    let answer = head(&out, Asked::WithBody);
    assert_eq!((answer.status, answer.etag), (503, None));
    assert_eq!(
        &out[answer.consumed..],
        b"overloaded: the store queue is full\n"
    );
}

#[test]
fn a_scan_is_read_to_its_trailer() {
    let next = b"k\0%\xff";
    for end in [
        ScanEnd::Complete,
        ScanEnd::Limited { next },
        ScanEnd::Stopped { next },
    ] {
        let mut out = Vec::new();
        let keep = style(ConnectionFate::Persist, false);
        response::scan_head(&mut out, keep, Framing::Plain, RECEIPT);
        response::scan_end(&mut out, Framing::Plain, end);
        let answer = head(&out, Asked::WithBody);
        assert_eq!(answer.body, AnswerBody::Chunked);
        let rest = &out[answer.consumed..];
        let mut decoder = ChunkDecoder::new(u64::MAX);
        assert_eq!(
            decoder.decode(rest),
            Ok(ChunkItem::End {
                consumed: rest.len()
            })
        );
        let trailer = &rest[rest.len() - decoder.trailer_len()..];
        let expected = match end {
            ScanEnd::Complete => ScanOutcome::Complete,
            ScanEnd::Limited { next } | ScanEnd::Stopped { next } => ScanOutcome::Stopped {
                next: next.to_vec(),
            },
        };
        assert_eq!(scan_end(trailer), Some(expected));
    }
    assert_eq!(scan_end(b"\r\n"), None);
    assert_eq!(scan_end(b"Dendra-Scan: stopped; next=%4\r\n\r\n"), None);
}

#[test]
fn an_answer_of_doubtful_length_is_bad() {
    for lines in [
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: +1\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
        let parsed = parse_answer(bytes.as_bytes(), Asked::WithBody);
        assert!(
            matches!(parsed, ParsedAnswer::Bad(_)),
            "{lines}: {parsed:?}"
        );
    }
}

#[test]
fn answers_of_old_servers_end_with_their_connection() {
    let answer = head(b"HTTP/1.0 200 OK\r\n\r\nall of this", Asked::WithBody);
    assert_eq!(
        (answer.body, answer.keep_alive),
        (AnswerBody::UntilClose, false)
    );
    let kept = b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\nx";
    assert!(head(kept, Asked::WithBody).keep_alive);
}

#[test]
fn every_prefix_of_a_head_is_incomplete() {
    let mut out = Vec::new();
    response::created(
        &mut out,
        style(ConnectionFate::Persist, false),
        VERSION,
        RECEIPT,
    );
    for len in 0..out.len() {
        assert_eq!(
            parse_answer(&out[..len], Asked::WithBody),
            ParsedAnswer::Incomplete
        );
    }
    assert_eq!(head(&out, Asked::WithBody).status, 201);
}

#[test]
fn our_requests_are_read_by_our_server() {
    use crate::http::{Limits, Parsed, parse_head};
    for (method, body) in [
        ("GET", Body::None),
        ("PUT", Body::None),
        ("PUT", Body::Length(12)),
        ("PUT", Body::Chunked),
        ("DELETE", Body::None),
    ] {
        let mut out = Vec::new();
        let fields = ["If-None-Match: *"];
        request(
            &mut out,
            method,
            b"/v0/entity?id=%00",
            "[::1]:8080",
            body,
            &fields,
        );
        let Parsed::Head(head) = parse_head(&out, &Limits::USUAL) else {
            panic!("{method} was not read");
        };
        assert_eq!((head.body, head.consumed), (body, out.len()));
    }
}
