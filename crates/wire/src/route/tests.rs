//! Each rule of `route`, driven through whole request heads.

use super::*;
use crate::http::records::ShownPart;
use crate::http::{EventFraming, Framing, Limits, Parsed, parse_head};
use crate::legal;
use crate::limits::TIMEOUT_MS_DEFAULT;
use crate::meta::MetaBuf;
use dendra_base::{Quorum, Version};
use proptest::prelude::*;

const ONE_NODE: RequestRules = RequestRules {
    nodes: 1,
    replication_factor: 3,
    key_bytes_max: 1024,
    value_bytes_max: 1 << 20,
};
const THREE_NODES: RequestRules = RequestRules {
    nodes: 3,
    ..ONE_NODE
};

/// Routes a request line with further header lines, each ended by CR LF.
fn ask(line: &str, lines: &str, settings: &RequestRules) -> (Result<Route, Refusal>, Vec<u8>) {
    let text = format!("{line} HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
    let Parsed::Head(head) = parse_head(text.as_bytes(), &Limits::USUAL) else {
        panic!("{text:?} is not a head");
    };
    let mut key = KeyBuf::new();
    let route = route(&head, settings, &mut key);
    (route, key.as_stored().to_vec())
}

fn routed(line: &str, lines: &str) -> Route {
    ask(line, lines, &ONE_NODE).0.expect(line)
}

fn entity_of(line: &str, lines: &str, settings: &RequestRules) -> Entity {
    match ask(line, lines, settings).0.expect(line) {
        Route::Entity(entity) => entity,
        other => panic!("{line}: {other:?}"),
    }
}

fn scan_of(query: &str) -> Scan {
    match routed(&format!("GET /v0/entities?{query}"), "") {
        Route::Entities(scan) => *scan,
        other => panic!("{query}: {other:?}"),
    }
}

fn refused(line: &str, lines: &str) -> (u16, String) {
    let refusal = ask(line, lines, &ONE_NODE).0.expect_err(line);
    assert!(
        !refusal.close,
        "a sound head keeps its connection: {refusal}"
    );
    (refusal.status, refusal.to_string())
}

/// Asserts status and code word.
fn assert_refused(line: &str, lines: &str, status: u16, code: &str) {
    let (actual, sentence) = refused(line, lines);
    assert_eq!(actual, status, "{line} {lines}: {sentence}");
    let word = sentence.split(':').next();
    assert_eq!(word, Some(code), "{line} {lines}: {sentence}");
}

#[test]
fn a_get_of_one_key_has_the_usual_numbers() {
    let (route, key) = ask("GET /v0/entity?id=a+b%00%2f", "", &THREE_NODES);
    assert_eq!(
        route,
        Ok(Route::Entity(Entity {
            op: EntityOp::Get,
            quorum: Quorum::usual(3, 3),
            condition: Condition::None,
            wants_current: false,
            ttl_s: None,
            timeout_ms: TIMEOUT_MS_DEFAULT,
            wait_s: None,
            meta: MetaBuf::default(),
        }))
    );
    assert_eq!(key, b"\x10a+b\0/");
}

#[test]
fn a_read_that_waits_is_a_get_at_the_usual_level() {
    for (line, wait_s) in [
        ("GET /v0/entity?id=k", None),
        ("GET /v0/entity?id=k&wait_s=1", Some(1)),
        ("GET /v0/entity?wait_s=300&id=k", Some(300)),
    ] {
        assert_eq!(entity_of(line, "", &THREE_NODES).wait_s, wait_s, "{line}");
    }
    let known = "If-None-Match: \"0000000000000001-1-0\"\r\n";
    let waiting = entity_of("GET /v0/entity?id=k&wait_s=30", known, &ONE_NODE);
    assert!(matches!(waiting.condition, Condition::Differs(_)));
    for text in ["0", "301", "-1", "1.5", "", "x"] {
        let line = format!("GET /v0/entity?id=k&wait_s={text}");
        assert_refused(&line, "", 400, "bad-number");
    }
    for line in [
        "PUT /v0/entity?id=k&wait_s=1",
        "HEAD /v0/entity?id=k&wait_s=1",
        "DELETE /v0/entity?id=k&wait_s=1",
        "GET /v0/entity?id=k&wait_s=1&ack=1",
        "GET /v0/entity?id=k&wait_s=1&explain=1",
        "GET /v0/entity?id=k&wait_s=1&replicas=1/1",
        "GET /v0/entities?start=k&wait_s=1",
    ] {
        assert_refused(line, "", 400, "unknown-parameter");
    }
    assert_refused(
        "GET /v0/entity?id=k&wait_s=1",
        "If-Match: *\r\n",
        400,
        "bad-condition",
    );
}

#[test]
fn methods_name_the_operation() {
    for (method, op) in [
        ("GET", EntityOp::Get),
        ("HEAD", EntityOp::Head),
        ("PUT", EntityOp::Put),
        ("DELETE", EntityOp::Delete),
    ] {
        let entity = entity_of(&format!("{method} /v0/entity?id=k"), "", &ONE_NODE);
        assert_eq!(entity.op, op);
    }
    for (line, allow) in [
        ("POST /v0/entity?id=k", "GET, HEAD, PUT, DELETE"),
        ("OPTIONS /v0/entity", "GET, HEAD, PUT, DELETE"),
        ("PUT /v0/entities?start=a", "GET"),
        ("HEAD /v0/entities?start=a", "GET"),
        ("HEAD /v0/watch?start=a", "GET"),
        ("PUT /v0/watch?start=a", "GET"),
        ("POST /v0/count", "GET"),
        ("DELETE /v0/status", "GET, HEAD"),
    ] {
        let refusal = ask(line, "", &ONE_NODE).0.expect_err(line);
        assert_eq!(
            (refusal.status, refusal.allow),
            (405, Some(allow)),
            "{line}"
        );
    }
}

#[test]
fn other_paths_are_400_whatever_the_method() {
    for line in [
        "GET /",
        "GET /v0/entity/",
        "GET /v0/entity/k",
        "GET /v0/Entity?id=k",
        "GET /v0/%65ntity?id=k",
        "GET //v0/entity?id=k",
        "GET /v0/../v0/entity?id=k",
        "PUT /v0/peer",
        "GET /v0/peer",
        "BREW /pot",
    ] {
        assert_refused(line, "", 400, "unknown-path");
    }
}

#[test]
fn a_key_is_there_once_and_has_1_to_1024_bytes() {
    for (query, status, code) in [
        ("", 400, "missing-parameter"),
        ("?", 400, "missing-parameter"),
        ("?ack=1", 400, "missing-parameter"),
        ("?id", 400, "empty-parameter"),
        ("?id=", 400, "empty-parameter"),
        ("?id=a&id=a", 400, "repeated-parameter"),
        ("?id=a&%69d=a", 400, "encoded-parameter"),
        ("?id=%", 400, "bad-escape"),
        ("?id=a%4", 400, "bad-escape"),
        ("?id=%u0041", 400, "bad-escape"),
        ("?ID=a", 400, "unknown-parameter"),
        ("?id=a&x=1", 400, "unknown-parameter"),
        ("?id=a&=1", 400, "unknown-parameter"),
        ("?id=a;ack=1&from", 400, "bad-number"),
        ("?id=a&%zz=1", 400, "encoded-parameter"),
        ("?id=a&ttl=1", 400, "unknown-parameter"),
    ] {
        assert_refused(&format!("GET /v0/entity{query}"), "", status, code);
    }
    let long = |len: usize| format!("GET /v0/entity?id={}", "k".repeat(len));
    assert_eq!(ask(&long(1024), "", &ONE_NODE).1.len(), 1025);
    assert_refused(&long(1025), "", 414, "key-too-long");
    let escaped = |len: usize| format!("GET /v0/entity?id={}", "%00".repeat(len));
    assert_eq!(ask(&escaped(1024), "", &ONE_NODE).1.len(), 1025);
    assert_refused(&escaped(1025), "", 414, "key-too-long");
    let narrow = RequestRules {
        key_bytes_max: 3,
        ..ONE_NODE
    };
    assert!(ask("GET /v0/entity?id=abc", "", &narrow).0.is_ok());
    assert!(ask("GET /v0/entity?id=abcd", "", &narrow).0.is_err());
}

#[test]
fn a_name_that_a_rule_of_a_proxy_would_miss_is_refused() {
    for line in [
        "GET /v0/entity?%69d=k",
        "PUT /v0/entity?i%64=k",
        "DELETE /v0/entity?id%3d=k&id=k",
        "GET /v0/entity?id=k&%61ck=1",
        "GET /v0/entities?st%61rt=a",
        "GET /v0/entities?start=a&%6Cimit=1",
        "GET /v0/status?%78=1",
    ] {
        let (status, sentence) = refused(line, "");
        assert_eq!(status, 400);
        assert!(
            sentence.starts_with("encoded-parameter: the name `"),
            "{line}: {sentence}"
        );
    }
    // In a value an escape keeps its meaning.
    assert_eq!(ask("GET /v0/entity?id=%69%3D", "", &ONE_NODE).1, b"\x10i=");
}

#[test]
fn keys_hold_whatever_is_not_an_ampersand() {
    for (raw, key) in [
        ("a=b", &b"\x10a=b"[..]),
        ("a;b", b"\x10a;b"),
        ("a?b/c", b"\x10a?b/c"),
        ("a%26b", b"\x10a&b"),
        ("%ff%FE", b"\x10\xff\xfe"),
        ("{a|b}", b"\x10{a|b}"),
    ] {
        assert_eq!(
            ask(&format!("GET /v0/entity?id={raw}"), "", &ONE_NODE).1,
            key
        );
    }
    assert_eq!(ask("GET /v0/entity?&id=k&", "", &ONE_NODE).1, b"\x10k");
}

#[test]
fn an_unknown_parameter_is_named_and_cut_short() {
    let (_, sentence) = refused("GET /v0/entity?id=k&colour=red", "");
    assert_eq!(
        sentence,
        "unknown-parameter: `colour` is not known here; this path takes id, ack, from, replicas, ttl, wait_s, explain"
    );
    let (_, sentence) = refused(&format!("GET /v0/status?{}=1", "x".repeat(500)), "");
    assert!(sentence.len() < 120, "{sentence}");
    let (_, sentence) = refused("GET /v0/status?%0d%0aSet-Cookie=1", "");
    assert!(
        sentence.starts_with("encoded-parameter: the name `%0d%0aSet-Cookie` is"),
        "{sentence}"
    );
}

#[test]
fn copies_come_in_two_spellings() {
    for (query, ack, from) in [
        ("ack=1", 1, 3),
        ("from=1", 1, 1),
        ("ack=3&from=3", 3, 3),
        ("replicas=2/3", 2, 3),
        ("replicas=1%2F2", 1, 2),
        ("ack=%32", 2, 3),
    ] {
        let entity = entity_of(&format!("GET /v0/entity?id=k&{query}"), "", &THREE_NODES);
        assert_eq!(
            (entity.quorum.ack(), entity.quorum.from()),
            (ack, from),
            "{query}"
        );
    }
    for (query, code) in [
        ("ack=2", "bad-quorum"),
        ("ack=0", "bad-quorum"),
        ("from=0", "bad-quorum"),
        ("from=2", "bad-quorum"),
        ("replicas=1/1&ack=1", "bad-quorum"),
        ("replicas=1/1&from=1", "bad-quorum"),
        ("replicas=1", "bad-quorum"),
        ("replicas=", "bad-quorum"),
        ("replicas=1/", "bad-number"),
        ("replicas=1/1/1", "bad-number"),
        ("ack=", "bad-number"),
        ("ack=+1", "bad-number"),
        ("ack=-1", "bad-number"),
        ("ack=1.0", "bad-number"),
        ("ack=one", "bad-number"),
        ("ack=4294967296", "bad-number"),
        ("ack=1&ack=1", "repeated-parameter"),
    ] {
        assert_refused(&format!("PUT /v0/entity?id=k&{query}"), "", 400, code);
    }
    let (_, sentence) = refused("GET /v0/entity?id=k&ack=3&from=2", "");
    assert_eq!(sentence, "bad-quorum: ack=3 exceeds from=2");
}

#[test]
fn conditions_reach_the_route() {
    let version = Version {
        hlc: 1,
        origin: 2,
        rmw: 3,
    };
    let tag = "\"0000000000000001-2-3\"";
    for (lines, condition) in [
        (format!("If-Match: {tag}\r\n"), Condition::Matches(version)),
        (
            format!("If-None-Match: {tag}\r\n"),
            Condition::Differs(version),
        ),
        ("If-None-Match: *\r\n".to_string(), Condition::Absent),
        ("If-Match: *\r\n".to_string(), Condition::Present),
    ] {
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            let line = format!("{method} /v0/entity?id=k");
            assert_eq!(entity_of(&line, &lines, &ONE_NODE).condition, condition);
        }
    }
    let lines = format!("If-Match: {tag}\r\nIf-Match: \"0000000000000001-2-4\",\r\n");
    let versions = [version, Version { rmw: 4, ..version }];
    let listed = entity_of("PUT /v0/entity?id=k", &lines, &ONE_NODE);
    assert_eq!(listed.condition, Condition::matches_one_of(&versions));
    let both = format!("If-Match: {tag}\r\nIf-None-Match: *\r\n");
    assert_refused("DELETE /v0/entity?id=k", &both, 400, "bad-condition");
}

#[test]
fn a_time_to_live_is_a_positive_number_of_seconds() {
    let put = |ttl: &str| format!("PUT /v0/entity?id=k&ttl={ttl}");
    assert_eq!(entity_of(&put("1"), "", &ONE_NODE).ttl_s, Some(1));
    let most = TTL_S_MAX.to_string();
    assert_eq!(entity_of(&put(&most), "", &ONE_NODE).ttl_s, Some(TTL_S_MAX));
    for ttl in ["0", "", "-1", "1.5", "1h", "3153600001", "99999999999"] {
        assert_refused(&put(ttl), "", 400, "bad-number");
    }
    assert_refused("DELETE /v0/entity?id=k&ttl=1", "", 400, "unknown-parameter");
}

#[test]
fn a_get_is_explained_and_nothing_else() {
    let explained = |line: &str| match routed(line, "") {
        Route::Explain(entity) => entity,
        other => panic!("{line}: {other:?}"),
    };
    let entity = explained("GET /v0/entity?id=k&explain=1");
    assert_eq!(entity, entity_of("GET /v0/entity?id=k", "", &ONE_NODE));
    assert_eq!(explained("GET /v0/entity?explain=%31&id=k"), entity);
    for value in [
        "explain=0",
        "explain=2",
        "explain=true",
        "explain=",
        "explain",
    ] {
        let line = format!("GET /v0/entity?id=k&{value}");
        assert_refused(&line, "", 400, "bad-choice");
    }
    for method in ["HEAD", "PUT", "DELETE"] {
        let line = format!("{method} /v0/entity?id=k&explain=1");
        assert_refused(&line, "", 400, "unknown-parameter");
    }
    let line = "GET /v0/entity?id=k&explain=1";
    assert_refused(line, "If-Match: *\r\n", 400, "bad-condition");
    assert_refused(
        line,
        "If-None-Match: \"0193f2a8c1d40000-1-0\"\r\n",
        400,
        "bad-condition",
    );
    assert_refused("GET /v0/entity?explain=1", "", 400, "missing-parameter");
    let line = "GET /v0/entities?prefix=k&explain=1";
    assert_refused(line, "", 400, "unknown-parameter");
}

#[test]
fn a_timeout_is_1_to_60000_milliseconds() {
    let line = "GET /v0/entity?id=k";
    for (value, timeout_ms) in [("1", 1), ("60000", 60_000), ("0100", 100)] {
        let lines = format!("Dendra-Timeout-Ms: {value}\r\n");
        assert_eq!(entity_of(line, &lines, &ONE_NODE).timeout_ms, timeout_ms);
    }
    for value in ["0", "60001", "", "1s", "-1", "1, 2"] {
        assert_refused(
            line,
            &format!("Dendra-Timeout-Ms: {value}\r\n"),
            400,
            "bad-timeout",
        );
    }
    let twice = "Dendra-Timeout-Ms: 5\r\nDendra-Timeout-Ms: 5\r\n";
    assert_refused(line, twice, 400, "bad-timeout");
}

#[test]
fn bodies_belong_to_put_alone_and_have_a_largest_size() {
    let put = "PUT /v0/entity?id=k";
    for lines in [
        "",
        "Content-Length: 1048576\r\n",
        "Transfer-Encoding: chunked\r\n",
    ] {
        assert_eq!(entity_of(put, lines, &ONE_NODE).op, EntityOp::Put);
    }
    assert_refused(put, "Content-Length: 1048577\r\n", 413, "value-too-large");
    assert_refused(put, "Content-Encoding: gzip\r\n", 415, "content-coding");
    assert_refused(put, "Content-Range: bytes 0-1/2\r\n", 400, "content-range");
    assert_refused(put, "Expect: 200-ok\r\n", 417, "expectation");
    for line in [
        "GET /v0/entity?id=k",
        "DELETE /v0/entity?id=k",
        "GET /v0/status",
    ] {
        assert!(ask(line, "Content-Length: 0\r\n", &ONE_NODE).0.is_ok());
        assert_refused(line, "Content-Length: 1\r\n", 400, "unexpected-body");
        assert_refused(
            line,
            "Transfer-Encoding: chunked\r\n",
            400,
            "unexpected-body",
        );
    }
}

#[test]
fn a_range_is_start_and_end_or_a_prefix() {
    for (query, start, end) in [
        ("start=a", &b"\x10a"[..], &b"\x11"[..]),
        ("start=a&end=b", b"\x10a", b"\x10b"),
        ("start=b&end=b", b"\x10b", b"\x10b"),
        ("start=b&end=a", b"\x10b", b"\x10b"),
        ("prefix=a", b"\x10a", b"\x10b"),
        ("prefix=a%ff", b"\x10a\xff", b"\x10b"),
        ("prefix=%ff%ff", b"\x10\xff\xff", b"\x11"),
    ] {
        let scan = scan_of(query);
        assert_eq!(
            (scan.start.as_slice(), scan.end.as_slice()),
            (start, end),
            "{query}"
        );
        assert_eq!(scan.is_empty(), start == end);
    }
    for (query, code) in [
        ("start=", "empty-parameter"),
        ("prefix=", "empty-parameter"),
        ("start=a&end=", "empty-parameter"),
        ("prefix=a&start=a", "bad-range"),
        ("prefix=a&end=b", "bad-range"),
        ("start=a&start=b", "repeated-parameter"),
        ("start=%f", "bad-escape"),
        ("start=a&id=a", "unknown-parameter"),
        ("start=a&ack=1", "unknown-parameter"),
    ] {
        assert_refused(&format!("GET /v0/entities?{query}"), "", 400, code);
    }
    // The place to go on after a key of 1024 bytes has 1025.
    assert_eq!(
        scan_of(&format!("start={}%00", "k".repeat(1024)))
            .start
            .len(),
        1026
    );
    let all = scan_of("");
    assert_eq!((all.start, all.end), (vec![0x10], vec![0x11]));
    assert_eq!(scan_of("end=b&limit=1").end, b"\x10b");
    let Route::Entities(count) = routed("GET /v0/count?prefix=a", "") else {
        panic!("it is a count");
    };
    assert_eq!(count.show, ShownPart::Number);
    assert_eq!(
        (&count.start[..], &count.end[..]),
        (&b"\x10a"[..], &b"\x10b"[..])
    );
    for query in ["limit=1", "scope=local", "keys-only=true", "reverse=true"] {
        let line = format!("GET /v0/count?{query}");
        assert_refused(&line, "", 400, "unknown-parameter");
    }
    let long = format!("GET /v0/entities?start={}", "k".repeat(1026));
    assert_refused(&long, "", 414, "key-too-long");
}

#[test]
fn a_scan_has_its_options() {
    let scan = scan_of("start=a");
    assert_eq!(scan.direction, Direction::Forward);
    assert_eq!((scan.limit, scan.show), (None, ShownPart::KeysAndValues));
    assert_eq!((scan.scope, scan.framing), (Scope::Cluster, Framing::Plain));
    let scan = scan_of("start=a&reverse=true&limit=10&keys-only=true&scope=local");
    assert_eq!(scan.direction, Direction::Backward);
    assert_eq!((scan.limit, scan.show), (Some(10), ShownPart::KeysOnly));
    assert_eq!(scan.scope, Scope::Local);
    let scan =
        scan_of("start=a&reverse=false&keys-only=false&scope=cluster&limit=18446744073709551615");
    assert_eq!(
        (scan.direction, scan.limit),
        (Direction::Forward, Some(u64::MAX))
    );
    for (query, code) in [
        ("limit=0", "bad-number"),
        ("limit=", "bad-number"),
        ("limit=-1", "bad-number"),
        ("limit=%2B1", "bad-number"),
        ("limit=18446744073709551616", "bad-number"),
        ("limit=1000000000000000000000000000", "bad-number"),
        ("reverse=1", "bad-choice"),
        ("reverse", "bad-choice"),
        ("keys-only=TRUE", "bad-choice"),
        ("scope=global", "bad-choice"),
    ] {
        assert_refused(&format!("GET /v0/entities?start=a&{query}"), "", 400, code);
    }
}

#[test]
fn a_scan_comes_in_a_framing_that_the_client_takes() {
    let line = "GET /v0/entities?start=a";
    let ndjson = "Accept: application/x-ndjson\r\n";
    match routed(line, ndjson) {
        Route::Entities(scan) => assert_eq!(scan.framing, Framing::Ndjson),
        other => panic!("{other:?}"),
    }
    assert_refused(line, "Accept: application/json\r\n", 406, "not-acceptable");
    assert!(matches!(
        routed("GET /v0/entity?id=k", "Accept: text/html\r\n"),
        Route::Entity(_)
    ));
}

#[test]
fn a_scan_over_http_1_0_is_505() {
    let text = b"GET /v0/entities?start=a HTTP/1.0\r\n\r\n";
    let Parsed::Head(head) = parse_head(text, &Limits::USUAL) else {
        panic!("this is a head");
    };
    let refusal = route(&head, &ONE_NODE, &mut KeyBuf::new()).expect_err("no chunks in HTTP/1.0");
    assert_eq!((refusal.status, refusal.code), (505, "http-version"));
}

fn watch_of(query: &str, lines: &str) -> WatchQuery {
    match routed(&format!("GET /v0/watch?{query}"), lines) {
        Route::Watch(watch) => *watch,
        other => panic!("{query}: {other:?}"),
    }
}

#[test]
fn a_watch_is_of_a_key_or_of_a_range() {
    let last = [&[0x10], &RESERVED[..]].concat();
    for (query, start, end) in [
        ("id=k%00", &b"\x10k\0"[..], &b"\x10k\0\0"[..]),
        ("prefix=a%ff", b"\x10a\xff", b"\x10b"),
        ("start=a", b"\x10a", &last),
        ("start=a&end=c", b"\x10a", b"\x10c"),
        ("start=c&end=a", b"\x10c", b"\x10c"),
        ("prefix=%ff", b"\x10\xff", &last),
    ] {
        let watch = watch_of(query, "");
        assert_eq!((&watch.start[..], &watch.end[..]), (start, end), "{query}");
        assert_eq!(watch.from, WatchFrom::State);
        assert_eq!((watch.shows_values, watch.heartbeat_s), (true, 15));
        assert_eq!(watch.framing, EventFraming::Ndjson);
    }
    let watch = watch_of("id=k&values=false&heartbeat_s=300", "");
    assert_eq!((watch.shows_values, watch.heartbeat_s), (false, 300));
    assert!(watch_of("id=k&values=true&heartbeat_s=1", "").shows_values);
    let stream = watch_of("id=k", "Accept: text/event-stream\r\n").framing;
    assert_eq!(stream, EventFraming::EventStream);
}

#[test]
fn a_watch_begins_where_it_is_told_to() {
    let token = WatchFrom::Token(vec![0xff, 0xfe, 1]);
    for (query, lines, from) in [
        ("", "", WatchFrom::State),
        ("&from=now", "", WatchFrom::Now),
        ("&from=n%6fw", "", WatchFrom::Now),
        ("&from=__4B", "", token.clone()),
        ("&from=%5f_4B", "", token.clone()),
        ("", "Last-Event-ID: __4B\r\n", token.clone()),
        ("&from=now", "Last-Event-ID: __4B\r\n", token),
        ("&from=now", "Last-Event-ID:\r\n", WatchFrom::Now),
    ] {
        assert_eq!(watch_of(&format!("id=k{query}"), lines).from, from);
    }
}

#[test]
fn each_wrong_parameter_of_a_watch_is_named() {
    let too_long = format!("id={}", "k".repeat(1_025));
    for (query, status, code) in [
        ("", 400, "missing-parameter"),
        ("end=b", 400, "missing-parameter"),
        ("id=", 400, "empty-parameter"),
        ("prefix=", 400, "empty-parameter"),
        ("id=a&prefix=a", 400, "bad-range"),
        ("id=a&start=a", 400, "bad-range"),
        ("id=a&end=b", 400, "bad-range"),
        ("prefix=a&start=a", 400, "bad-range"),
        ("id=a&id=b", 400, "repeated-parameter"),
        (
            "id=%ff%ff%ff%ff%ff%ff%ff%ff%ff%ff%ff%ff%ff%ff%ff%ff",
            400,
            "reserved-key",
        ),
        (too_long.as_str(), 414, "key-too-long"),
        ("id=%4", 400, "bad-escape"),
        ("id=a&limit=1", 400, "unknown-parameter"),
        ("id=a&values=1", 400, "bad-choice"),
        ("id=a&values", 400, "bad-choice"),
        ("id=a&heartbeat_s=0", 400, "bad-number"),
        ("id=a&heartbeat_s=301", 400, "bad-number"),
        ("id=a&heartbeat_s=x", 400, "bad-number"),
        ("id=a&from=", 400, "bad-from"),
        ("id=a&from=NOW", 400, "bad-from"),
        ("id=a&from=n", 400, "bad-from"),
        ("id=a&from=a%20b", 400, "bad-from"),
        ("id=a&from=%4", 400, "bad-escape"),
    ] {
        let line = format!("GET /v0/watch?{query}");
        assert_refused(&line, "", status, code);
    }
    let line = "GET /v0/watch?id=k";
    assert_refused(line, "Last-Event-ID: ?\r\n", 400, "bad-from");
    let twice = "Last-Event-ID: __4B\r\nLast-Event-ID: __4B\r\n";
    assert_refused(line, twice, 400, "bad-from");
    assert_refused(line, "Accept: text/html\r\n", 406, "not-acceptable");
    assert_refused(line, "Content-Length: 1\r\n", 400, "unexpected-body");
    assert_refused(line, "Dendra-Timeout-Ms: 0\r\n", 400, "bad-timeout");
    let Parsed::Head(head) = parse_head(b"GET /v0/watch?id=k HTTP/1.0\r\n\r\n", &Limits::USUAL)
    else {
        panic!("this is a head");
    };
    let refusal = route(&head, &ONE_NODE, &mut KeyBuf::new()).expect_err("no chunks in HTTP/1.0");
    assert_eq!((refusal.status, refusal.code), (505, "http-version"));
}

#[test]
fn status_and_peers_have_their_paths() {
    assert_eq!(routed("GET /v0/status", ""), Route::Status);
    assert_eq!(routed("HEAD http://h/v0/status", ""), Route::Status);
    assert_refused("GET /v0/status?a", "", 400, "unknown-parameter");
    let upgrade = "Upgrade: dendra-peer/1\r\nConnection: upgrade\r\n";
    assert_eq!(routed("GET /v0/peer", upgrade), Route::Peer);
    let other = "Upgrade: h2c\r\nConnection: upgrade, http2-settings\r\n";
    assert_eq!(routed("GET /v0/status", other), Route::Status);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_legal_key_reaches_its_route(key in legal::raw_key()) {
        let line = format!("PUT /v0/entity?id={}", percent::encode(&key));
        let (route, stored) = ask(&line, "", &ONE_NODE);
        if key.starts_with(&[0xff; 16]) {
            let code = route.map(|_| ()).map_err(|refusal| refusal.code);
            prop_assert_eq!(code, Err("reserved-key"));
            return Ok(());
        }
        prop_assert!(route.is_ok());
        prop_assert_eq!(&stored[..1], b"\x10");
        prop_assert_eq!(&stored[1..], &key);
    }

    #[test]
    fn any_legal_range_reaches_its_route(
        prefix in legal::raw_key(),
        start in legal::bound().prop_filter("a bound is named", |bound| !bound.is_empty()),
        end in legal::bound().prop_filter("a bound is named", |bound| !bound.is_empty()),
    ) {
        let stored = |raw: &[u8]| [&[Space::User.byte()], raw].concat();
        let scan = scan_of(&format!("prefix={}", percent::encode(&prefix)));
        prop_assert_eq!(&scan.start, &stored(&prefix));
        prop_assert!(scan.end > stored(&[&prefix[..], &[0xff; 9]].concat()));
        let (encoded_start, encoded_end) = (percent::encode(&start), percent::encode(&end));
        let scan = scan_of(&format!("start={encoded_start}&end={encoded_end}"));
        prop_assert_eq!(scan.start, stored(&start));
        prop_assert_eq!(scan.end, stored(&end).max(stored(&start)));
    }

    #[test]
    fn any_legal_condition_is_read_as_it_was_written(version in legal::version()) {
        let tag = format!("\"{version}\"");
        let put = |line: String| entity_of("PUT /v0/entity?id=k", &line, &ONE_NODE).condition;
        prop_assert_eq!(put(format!("If-Match: {tag}\r\n")), Condition::Matches(version));
        prop_assert_eq!(put(format!("If-None-Match: {tag}\r\n")), Condition::Differs(version));
        let weak = format!("If-None-Match: W/{tag}\r\n");
        let get = entity_of("GET /v0/entity?id=k", &weak, &ONE_NODE).condition;
        prop_assert_eq!(get, Condition::Differs(version));
    }

    #[test]
    fn a_prefix_range_holds_exactly_what_starts_with_it(
        prefix in prop::collection::vec(prop::sample::select(vec![0u8, 1, 254, 255]), 1..4),
        key in prop::collection::vec(prop::sample::select(vec![0u8, 1, 254, 255]), 1..6),
    ) {
        let scan = scan_of(&format!("prefix={}", percent::encode(&prefix)));
        let stored = [&[Space::User.byte()], key.as_slice()].concat();
        let is_inside = scan.start <= stored && stored < scan.end;
        prop_assert_eq!(is_inside, key.starts_with(&prefix));
    }

    #[test]
    fn no_query_panics(query in "[!-~&&[^#]]{0,60}", scan in any::<bool>()) {
        let path = if scan { "entities?start=a&" } else { "entity?id=k&" };
        match ask(&format!("GET /v0/{path}{query}"), "", &ONE_NODE).0 {
            Ok(_) => {}
            Err(refusal) => prop_assert!(!refusal.close && refusal.message.len() < 300),
        }
    }
}
