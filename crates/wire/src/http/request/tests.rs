//! Each rule of `parse_head`, and that packets do not decide.

use super::*;
use crate::http::Framing;
use proptest::prelude::*;

fn parse(bytes: &[u8]) -> Parsed<'_> {
    parse_head(bytes, &Limits::USUAL)
}

fn head(text: &str) -> Head<'_> {
    match parse(text.as_bytes()) {
        Parsed::Head(head) => head,
        other => panic!("{text:?} is not a head: {other:?}"),
    }
}

/// A GET with these lines behind the Host line.
fn with_lines(lines: &str) -> String {
    format!("PUT /v0/entity?id=k HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
}

fn refusal(bytes: &[u8]) -> Refusal {
    match parse(bytes) {
        Parsed::Bad(refusal) => {
            assert!(
                refusal.close,
                "nothing behind a bad head can be trusted: {refusal}"
            );
            refusal
        }
        other => panic!(
            "{:?} is not refused: {other:?}",
            bytes.escape_ascii().to_string()
        ),
    }
}

#[test]
fn a_browser_that_asks_what_a_page_may_send_is_known_by_its_line() {
    let request = |method: &str, line: &str| {
        let text = format!("{method} /v0/entity?id=k HTTP/1.1\r\nHost: h\r\n{line}\r\n");
        head(&text).is_preflight
    };
    let asks = "Access-Control-Request-Method: PUT\r\n";
    assert!(request("OPTIONS", asks));
    assert!(!request("OPTIONS", "") && !request("GET", asks));
}

#[test]
fn a_plain_get_borrows_from_the_buffer() {
    let text = "GET /v0/entity?id=a%20b&ack=1 HTTP/1.1\r\nHost: localhost:8080\r\n\r\nrest";
    let head = head(text);
    assert_eq!(head.method, Method::Get);
    assert_eq!(head.path, b"/v0/entity");
    assert_eq!(head.query, Some(&b"id=a%20b&ack=1"[..]));
    assert_eq!(head.body, Body::None);
    assert_eq!(head.connection, ConnectionFate::Persist);
    assert_eq!(head.expect, Expect::Nothing);
    assert_eq!(head.consumed, text.len() - 4);
    assert!(!head.is_http_1_0 && !head.has_content_coding && !head.wants_peer_upgrade);
}

#[test]
fn methods_are_case_sensitive_tokens() {
    for (name, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("POST", Method::Post),
        ("get", Method::Other),
        ("PATCH", Method::Other),
        ("GETX", Method::Other),
    ] {
        let text = format!("{name} / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(head(&text).method, method, "{name}");
    }
}

#[test]
fn the_body_has_one_length() {
    for (lines, body) in [
        ("", Body::None),
        ("Content-Length: 0\r\n", Body::None),
        ("content-length: 5\r\n", Body::Length(5)),
        ("Content-Length:\t 007 \r\n", Body::Length(7)),
        (
            "Content-Length: 18446744073709551615\r\n",
            Body::Length(u64::MAX),
        ),
        ("Transfer-Encoding: chunked\r\n", Body::Chunked),
        ("transfer-encoding: CHUNKED \r\n", Body::Chunked),
    ] {
        assert_eq!(head(&with_lines(lines)).body, body, "{lines}");
    }
}

#[test]
fn a_doubtful_length_is_refused_and_closes() {
    for (lines, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", 400),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", 400),
        ("Content-Length: +5\r\n", 400),
        ("Content-Length: -5\r\n", 400),
        ("Content-Length: 5,5\r\n", 400),
        ("Content-Length: 5 5\r\n", 400),
        ("Content-Length: 0x5\r\n", 400),
        ("Content-Length: 5.0\r\n", 400),
        ("Content-Length:\r\n", 400),
        ("Content-Length: 18446744073709551616\r\n", 400),
        ("Content-Length: 99999999999999999999999\r\n", 400),
        ("Transfer-Encoding:\r\n", 400),
        ("Transfer-Encoding: identity\r\n", 400),
        ("Transfer-Encoding: xchunked\r\n", 400),
        ("Transfer-Encoding: \"chunked\"\r\n", 400),
        ("Transfer-Encoding: chunked;q=1\r\n", 400),
        ("Transfer-Encoding: chunked, chunked\r\n", 400),
        ("Transfer-Encoding: chunked, gzip\r\n", 400),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            400,
        ),
        ("Transfer-Encoding: gzip, chunked\r\n", 501),
    ] {
        assert_eq!(
            refusal(with_lines(lines).as_bytes()).status,
            status,
            "{lines}"
        );
    }
    let old = b"PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refusal(old).code, "bad-framing");
}

#[test]
fn lines_end_in_cr_lf_and_nothing_else() {
    for bytes in [
        &b"GET / HTTP/1.1\nHost: h\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: h\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nX:\n\r\n",
        b"\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\rHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n",
        b"GET / HTTP/1.1\r\r\nHost: h\r\n\r\n",
    ] {
        assert_eq!(refusal(bytes).status, 400);
    }
}

#[test]
fn empty_lines_in_front_of_a_request_are_skipped() {
    let text = "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_eq!(head(text).consumed, text.len());
    assert_eq!(parse(b"\r\n"), Parsed::Incomplete);
}

#[test]
fn malformed_lines_are_refused() {
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n\tb\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n: v\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nX\0: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nX: a\x7fb\r\n\r\n",
        b"GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1 \r\nHost: h\r\n\r\n",
        b" GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"G\xc3\xa4T / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let status = refusal(bytes).status;
        assert!(status == 400 || status == 505, "{status}");
    }
}

#[test]
fn other_versions_are_505() {
    for line in [
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET / HTTP/0.9",
        "GET / http/1.1",
        "GET / HTTX/1.1",
        "PRI * HTTP/2.0",
    ] {
        let text = format!("{line}\r\nHost: h\r\n\r\n");
        assert_eq!(refusal(text.as_bytes()).status, 505, "{line}");
    }
}

#[test]
fn one_host_line_is_required() {
    for (text, is_sound) in [
        ("GET / HTTP/1.1\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: []\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a%41\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: \u{e4}\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nhOsT: example.org:80\r\n\r\n", true),
        ("GET / HTTP/1.0\r\n\r\n", true),
    ] {
        match parse(text.as_bytes()) {
            Parsed::Head(_) => assert!(is_sound, "{text}"),
            Parsed::Bad(refusal) => assert!(!is_sound && refusal.status == 400, "{text}"),
            Parsed::Incomplete => panic!("{text} is complete"),
        }
    }
}

#[test]
fn a_target_is_a_path_or_an_http_url() {
    type PathAndQuery = (&'static str, Option<&'static str>);
    let table: [(&str, Option<PathAndQuery>); 19] = [
        ("/", Some(("/", None))),
        ("/a?", Some(("/a", Some("")))),
        ("/a?b=/c?d", Some(("/a", Some("b=/c?d")))),
        ("//a", Some(("//a", None))),
        ("/a?b=\"<>\\^`{|}", Some(("/a", Some("b=\"<>\\^`{|}")))),
        ("http://h/a?b", Some(("/a", Some("b")))),
        ("HTTP://h:80/", Some(("/", None))),
        ("https://[::1]:80/a", Some(("/a", None))),
        ("http://h", None),
        ("http://h?b", None),
        ("http:///a", None),
        ("http://u@h/a", None),
        ("http:/a", None),
        ("ftp://h/a", None),
        ("*", None),
        ("h:80", None),
        ("a", None),
        ("/a#b", None),
        ("/\u{e4}", None),
    ];
    for (target, expected) in table {
        let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        match (parse(text.as_bytes()), expected) {
            (Parsed::Head(head), Some((path, query))) => {
                assert_eq!(head.path, path.as_bytes());
                assert_eq!(head.query, query.map(str::as_bytes));
            }
            (Parsed::Bad(refusal), None) => assert_eq!(refusal.status, 400),
            (other, _) => panic!("{target}: {other:?}"),
        }
    }
}

#[test]
fn connections_persist_as_their_version_says() {
    for (version, lines, expected) in [
        ("1.1", "", ConnectionFate::Persist),
        ("1.1", "Connection: close\r\n", ConnectionFate::Close),
        ("1.1", "Connection: Keep-Alive\r\n", ConnectionFate::Persist),
        (
            "1.1",
            "Connection: keep-alive, CLOSE\r\n",
            ConnectionFate::Close,
        ),
        (
            "1.1",
            "Connection: keep-alive\r\nConnection: close\r\n",
            ConnectionFate::Close,
        ),
        ("1.1", "Connection: closed\r\n", ConnectionFate::Persist),
        ("1.0", "", ConnectionFate::Close),
        (
            "1.0",
            "Connection: keep-alive\r\n",
            ConnectionFate::KeepAlive,
        ),
        (
            "1.0",
            "Connection: keep-alive, close\r\n",
            ConnectionFate::Close,
        ),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: h\r\n{lines}\r\n");
        let head = head(&text);
        assert_eq!(head.connection, expected, "{version} {lines}");
        assert_eq!(head.keep_alive(), expected != ConnectionFate::Close);
    }
}

#[test]
fn expectations_are_100_continue_or_unknown() {
    for (lines, expected) in [
        ("Expect: 100-continue\r\n", Expect::Continue),
        ("expect: 100-Continue\r\n", Expect::Continue),
        (
            "Expect: 100-continue\r\nExpect: 100-continue\r\n",
            Expect::Continue,
        ),
        ("Expect: 200-ok\r\n", Expect::Unknown),
        ("Expect:\r\n", Expect::Unknown),
        (
            "Expect: 200-ok\r\nExpect: 100-continue\r\n",
            Expect::Unknown,
        ),
        (
            "Expect: 100-continue\r\nExpect: 200-ok\r\n",
            Expect::Unknown,
        ),
    ] {
        assert_eq!(head(&with_lines(lines)).expect, expected, "{lines}");
    }
    let old = "PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
    assert!(!head(old).expects_continue());
}

#[test]
fn fields_that_routes_need_are_found_once_or_known_to_be_repeated() {
    let text = with_lines("If-Match: \"a\"\r\nif-none-match:\t*\r\nDENDRA-TIMEOUT-MS: 5 \r\n");
    let once = head(&text);
    assert_eq!(once.if_match.lines(), [b"\"a\""]);
    assert_eq!(once.if_none_match.lines(), [b"*"]);
    assert_eq!(once.timeout_ms, Field::Once(b"5"));
    for (prefer, wanted) in [
        ("Prefer: return=representation", true),
        ("prefer: wait=5, Return = \"representation\" ; x=1", true),
        (
            "Prefer: respond-async\r\nPrefer: return=representation",
            true,
        ),
        ("Prefer: return=minimal", false),
        ("Prefer: representation", false),
    ] {
        let text = with_lines(&format!("{prefer}\r\n"));
        assert_eq!(head(&text).prefers_representation, wanted, "{prefer}");
    }
    let text = with_lines("If-Match: a\r\nif-match: b \r\nIf-Match: a\r\n");
    assert_eq!(head(&text).if_match.lines(), [b"a", b"b", b"a"]);
    assert_eq!(head(&text).if_none_match.lines(), [b""; 0]);
    let text = with_lines(&"Dendra-Timeout-Ms: 5\r\n".repeat(3));
    assert_eq!(head(&text).timeout_ms, Field::Repeated);
    let text = with_lines("Accept: text/html\r\nAccept: application/x-ndjson\r\n");
    assert_eq!(head(&text).accepted.choose(), Some(Framing::Ndjson));
}

#[test]
fn content_codings_other_than_identity_are_noted() {
    for (lines, expected) in [
        ("", false),
        ("Content-Encoding: identity\r\n", false),
        ("Content-Encoding:\r\n", false),
        ("Content-Encoding: gzip\r\n", true),
        ("Content-Encoding: identity, br\r\n", true),
        (
            "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n",
            true,
        ),
    ] {
        assert_eq!(
            head(&with_lines(lines)).has_content_coding,
            expected,
            "{lines}"
        );
    }
}

#[test]
fn only_our_upgrade_counts_and_only_with_its_connection_option() {
    for (version, lines, expected) in [
        (
            "1.1",
            "Upgrade: dendra-peer/1\r\nConnection: Upgrade\r\n",
            true,
        ),
        (
            "1.1",
            "Upgrade: h2c, dendra-peer/1\r\nConnection: keep-alive, upgrade\r\n",
            true,
        ),
        ("1.1", "Upgrade: dendra-peer/1\r\n", false),
        (
            "1.1",
            "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n",
            false,
        ),
        (
            "1.1",
            "Upgrade: dendra-peer/2\r\nConnection: Upgrade\r\n",
            false,
        ),
        (
            "1.0",
            "Upgrade: dendra-peer/1\r\nConnection: Upgrade\r\n",
            false,
        ),
    ] {
        let text = format!("GET /v0/peer HTTP/{version}\r\nHost: h\r\n{lines}\r\n");
        assert_eq!(head(&text).wants_peer_upgrade, expected, "{lines}");
    }
}

#[test]
fn a_target_above_its_limit_is_414_as_soon_as_it_is_known() {
    let target = |len: usize| format!("/{}", "a".repeat(len - 1));
    let fits = format!(
        "GET {} HTTP/1.1\r\nHost: h\r\n\r\n",
        target(TARGET_BYTES_MAX)
    );
    assert_eq!(head(&fits).path.len(), TARGET_BYTES_MAX);
    let long = format!(
        "GET {} HTTP/1.1\r\nHost: h\r\n\r\n",
        target(TARGET_BYTES_MAX + 1)
    );
    assert_eq!(refusal(long.as_bytes()).status, 414);
    assert_eq!(
        refusal(&long.as_bytes()[..4 + TARGET_BYTES_MAX + 1]).status,
        414
    );
    assert_eq!(
        parse(&long.as_bytes()[..4 + TARGET_BYTES_MAX]),
        Parsed::Incomplete
    );
}

#[test]
fn a_head_above_its_limit_is_431() {
    let line = |len: usize| format!("X: {}\r\n", "a".repeat(len - 5));
    let frame = with_lines("").len();
    let fits = with_lines(&line(HEAD_BYTES_MAX - frame));
    assert_eq!(head(&fits).consumed, HEAD_BYTES_MAX);
    let long = with_lines(&line(HEAD_BYTES_MAX - frame + 1));
    assert_eq!(refusal(long.as_bytes()).status, 431);
    assert_eq!(refusal(&long.as_bytes()[..HEAD_BYTES_MAX]).status, 431);
    assert_eq!(
        parse(&long.as_bytes()[..HEAD_BYTES_MAX - 1]),
        Parsed::Incomplete
    );
}

/// A name is known by its bytes, not by its length.
#[test]
fn an_unknown_name_as_long_as_a_known_one_is_passed_over() {
    const KNOWN: [usize; 9] = [4, 6, 7, 8, 10, 11, 13, 14, 17];
    let lines: String = KNOWN
        .iter()
        .map(|&length| format!("{}: 1\r\n", "z".repeat(length)))
        .collect();
    let (with, without) = (with_lines(&lines), with_lines(""));
    let (mut with, without) = (head(&with), head(&without));
    with.consumed = without.consumed;
    assert_eq!(with, without);
}

#[test]
fn header_lines_above_their_number_are_431() {
    let lines = |len: usize| with_lines(&"X: y\r\n".repeat(len - 1));
    assert_eq!(head(&lines(HEADERS_LEN_MAX)).method, Method::Put);
    assert_eq!(refusal(lines(HEADERS_LEN_MAX + 1).as_bytes()).status, 431);
}

/// Pieces that make requests, good and bad, when strung together.
fn request_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "GET ",
        "PUT ",
        "HEAD ",
        "/v0/entity?id=k",
        "http://h/",
        "*",
        " HTTP/1.1",
        " HTTP/1.0",
        " HTTP/2.0",
        "\r\n",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        "Host: h\r\n",
        "Host: h\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: +5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Connection: close\r\n",
        "Expect: 100-continue\r\n",
        "X: y\r\n",
        " folded\r\n",
        "X : y\r\n",
        "\0",
        "\u{e4}",
        "#",
        " ",
        ":",
        "aaaaaaaaaaaaaaaa",
        "GET / HTTP/1.1\r\nHost: h\r\n",
        "PUT /k HTTP/1.1\r\nHost: h\r\n",
    ]);
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat().into_bytes())
}

/// Limits small enough for the drawn requests to meet them.
const NARROW: Limits = Limits {
    head_bytes_max: 90,
    target_bytes_max: 20,
};

fn assert_packets_decide_nothing(bytes: &[u8], limits: &Limits) -> Result<(), TestCaseError> {
    let whole = parse_head(bytes, limits);
    for len in 0..bytes.len() {
        let part = parse_head(&bytes[..len], limits);
        match &whole {
            Parsed::Head(head) if len >= head.consumed => prop_assert_eq!(&part, &whole),
            Parsed::Head(_) | Parsed::Incomplete => prop_assert_eq!(part, Parsed::Incomplete),
            Parsed::Bad(_) if part == Parsed::Incomplete => {}
            Parsed::Bad(_) => prop_assert_eq!(&part, &whole),
        }
    }
    Ok(())
}

#[test]
fn a_host_is_made_of_the_bytes_that_names_have() {
    for byte in 0..=255u8 {
        let is_of_name = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte);
        assert_eq!(IS_OF_NAME[usize::from(byte)], is_of_name, "{byte}");
    }
}

proptest! {
    #[test]
    fn sixteen_bytes_at_a_time_find_what_a_walk_finds(
        bytes in prop::collection::vec(0u8..40, 0..50),
        wanted in 0u8..40,
    ) {
        prop_assert_eq!(any_byte(&bytes, |b| b == wanted), bytes.contains(&wanted));
    }

    #[test]
    fn a_bare_line_feed_is_seen_wherever_it_stands(
        head in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'a')], 0..50),
        calm in 0usize..50,
    ) {
        // A stretch without line ends in front: most heads have one.
        let head = [vec![b'a'; calm], head].concat();
        let is_bare = |i: usize| head[i] == b'\n' && (i == 0 || head[i - 1] != b'\r');
        prop_assert_eq!(has_bare_line_feed(&head), (0..head.len()).any(is_bare));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn packets_decide_nothing(bytes in request_like()) {
        assert_packets_decide_nothing(&bytes, &Limits::USUAL)?;
        assert_packets_decide_nothing(&bytes, &NARROW)?;
    }

    #[test]
    fn a_flipped_byte_neither_panics_nor_depends_on_packets(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = with_lines("Content-Length: 5\r\nX:  y \r\nExpect: 100-continue\r\n").into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        assert_packets_decide_nothing(&bytes, &Limits::USUAL)?;
        assert_packets_decide_nothing(&bytes, &NARROW)?;
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        assert_packets_decide_nothing(&bytes, &NARROW)?;
    }
}
