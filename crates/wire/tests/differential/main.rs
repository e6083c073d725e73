//! Each request that we accept, hyper understands in the same way. Streams are drawn from a grammar
//! of good and bad pieces, and both read them.
//!
//! ```text
//! seed --> requests from pieces --> some bytes changed --> stream --> twin.rs: ours, hyper's
//!                                     ours must be the front of hyper's
//!                                     and where ours is shorter, a rule of STRICTER says why
//! ```
//!
//! Invariants
//! 1. A request that we accept has the same method, host, path, query and body for hyper.
//! 2. A request that hyper accepts and we refuse falls under a rule that is listed with its reason.
//!    Every rule is met by some stream.
//!
//! Not here: the rules one by one (`src/http/request/tests.rs`, `chunk/tests.rs`).
//! See: docs/api.md, section "HTTP".

mod twin;

use dendra_base::Prng;
use std::collections::BTreeMap;
use twin::{STRICTER, compare};

/// Streams per run: a fixed set, so that a failure repeats; a second of time.
const SEEDS: u64 = 150_000;

#[test]
fn what_we_accept_hyper_understands_in_the_same_way() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime without drivers needs no resources");
    let mut accepted = 0;
    let mut seen_rules = BTreeMap::new();
    for seed in 0..SEEDS {
        let stream = draw(&mut Prng::named(seed, "differential"));
        let shown = || format!("seed {seed}: {}", stream.escape_ascii());
        let (both, stricter) = match runtime.block_on(compare(&stream)) {
            Ok(end) => end,
            Err(difference) => panic!("{}\n{difference}", shown()),
        };
        accepted += both;
        if let Some(rule) = stricter {
            *seen_rules.entry(rule).or_insert(0) += 1;
        }
    }
    // Without these two the test could pass by drawing only garbage.
    assert!(
        accepted > SEEDS as usize,
        "only {accepted} requests were accepted"
    );
    for (start, _) in STRICTER {
        assert!(
            seen_rules.contains_key(start),
            "no stream met the rule `{start}`"
        );
    }
}

fn pick<'a>(prng: &mut Prng, choices: &[&'a str]) -> &'a str {
    choices[prng.below(choices.len() as u64) as usize]
}

const METHODS: &[&str] = &[
    "GET", "HEAD", "PUT", "DELETE", "POST", "OPTIONS", "CONNECT", "get", "X-1",
];
const TARGETS: &[&str] = &[
    "/v0/entity?id=k",
    "/v0/entity?id=a%20b&ack=1",
    "/",
    "/?",
    "/a?b?c",
    "//a",
    "/a;b=c",
    "/%",
    "/a?b=/c:d@e!$'()*+,",
    "http://h/a",
    "http://h:80/a?b",
    "HTTP://h/",
    "https://h/a",
];
const ODD_TARGETS: &[&str] = &[
    "*",
    "h:80",
    "a",
    "/a#b",
    "/\u{e4}",
    "/a?\u{e4}",
    "http://h",
    "http://h?q",
    "http:///a",
    "http://u@h/a",
    "ftp://h/a",
    "",
    "/a b",
    "/a?<>",
    "/a?\"",
    "/a?\\^`{|}",
    "/a\\^`{|}<>\"",
    "/a\t",
    "http://h:/a",
    "http://h:x/a",
    "http://[::1/a",
    "http://h%41/a",
];
const VERSIONS: &[&str] = &["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"];
const ODD_VERSIONS: &[&str] = &[
    "HTTP/2.0",
    "HTTP/1.2",
    "HTTP/1.",
    "http/1.1",
    "HTTP/1.1 ",
    "",
];
const ENDS: &[&str] = &[
    "\n", "\r", "\r\r\n", "", " \r\n", "\r\n ", "\r\n\r\n", "\n\r\n",
];
const LINES: &[&str] = &[
    "Accept: */*",
    "X: y",
    "X:",
    "X:  padded \t",
    "Connection: keep-alive",
    "Connection: Upgrade",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "X: \u{e4}",
    "Cookie: a=b; c=d",
    "TE: trailers",
];
const ODD_LINES: &[&str] = &[
    "Connection: close",
    "Connection: close, keep-alive",
    "Connection: keep-alive, close",
    "Host: h",
    "Host: a b",
    "Host:",
    "Host: u@h",
    "X : y",
    " folded",
    "\tfolded",
    "X",
    ": y",
    "X: \0",
    "X: \x7f",
    "X\u{e4}: y",
    "Expect: 200-ok",
    "Content-Length: 3",
    "Content-Length: 0",
    "Content-Length: +3",
    "Content-Length: -3",
    "Content-Length: 3,3",
    "Content-Length: 3, 3",
    "Content-Length: 0x3",
    "Content-Length:",
    "Content-Length: 03",
    "Content-Length: 3 3",
    "Content-Length: 18446744073709551615",
    "Content-Length: 18446744073709551616",
    "Content-Length : 3",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: Chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, gzip",
    "Transfer-Encoding: identity",
    "Transfer-Encoding:",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding: ,chunked",
    "Transfer_Encoding: chunked",
    "Content-Encoding: gzip",
];
const CHUNKS: &[&str] = &[
    "3\r\nabc\r\n",
    "1\r\n\n\r\n",
    "A\r\n0123456789\r\n",
    "a\r\n0123456789\r\n",
    "003\r\nabc\r\n",
    "3;x\r\nabc\r\n",
    "10\r\n0123456789abcdef\r\n",
    "3;x=\"y\"\r\nabc\r\n",
];
const ODD_CHUNKS: &[&str] = &[
    "3\nabc\r\n",
    "3\r\nabc\n",
    "3\r\nabcd\r\n",
    "3\r\nab\r\n",
    "3 \r\nabc\r\n",
    " 3\r\nabc\r\n",
    "+3\r\nabc\r\n",
    "0x3\r\nabc\r\n",
    "g\r\n",
    "\r\n",
    "3;x\nabc\r\n",
    "3 ;x\r\nabc\r\n",
    "3\t\r\nabc\r\n",
    "3\r\r\nabc\r\n",
    "3;\0\r\nabc\r\n",
    "3\r\nabc",
    "ffffffffffffffff\r\n",
    "10000000000000003\r\nabc\r\n",
    "00000000000000000003\r\nabc\r\n",
    "3;\x7f\r\nabc\r\n",
];
const LASTS: &[&str] = &[
    "0\r\n\r\n",
    "0\r\n\r\n",
    "0\r\nX: y\r\n\r\n",
    "000;x\r\n\r\n",
];
const ODD_LASTS: &[&str] = &[
    "0\r\n\n",
    "0\n\r\n",
    "0\r\n",
    "",
    "0\r\nX\r\n\r\n",
    "0\r\nX : y\r\n\r\n",
    "0\r\n folded\r\n\r\n",
    "0\r\nX: y\n\r\n",
    "0\r\nContent-Length: 3\r\n\r\n",
    "0\r\nGET / HTTP/1.1\r\n\r\n",
    "0 \r\n\r\n",
    "0\r\nX: \0\r\n\r\n",
];

/// A stream of one to four requests, each with few defects or none.
fn draw(prng: &mut Prng) -> Vec<u8> {
    let mut stream = Vec::new();
    // Most defects end a stream, so most requests must have none.
    let odds = [0, 5, 30][prng.below(3) as usize];
    for _ in 0..=prng.below(4) {
        draw_request(prng, odds, &mut stream);
    }
    if prng.chance(1, 4) {
        for _ in 0..=prng.below(2) {
            change_a_byte(prng, &mut stream);
        }
    }
    stream
}

/// One of `odd` in `odds` of 1000 cases, else one of `usual`.
fn piece<'a>(prng: &mut Prng, odds: u64, usual: &[&'a str], odd: &[&'a str]) -> &'a str {
    let choices = if prng.chance(odds, 1000) { odd } else { usual };
    pick(prng, choices)
}

fn draw_request(prng: &mut Prng, odds: u64, out: &mut Vec<u8>) {
    let odds = odds * 2;
    if prng.chance(1, 20) {
        out.extend_from_slice(piece(prng, odds, &["\r\n"], &["\n", "\r", " "]).as_bytes());
    }
    let mut head = vec![format!(
        "{}{}{}{}{}",
        pick(prng, METHODS),
        piece(prng, odds, &[" "], &["  ", "\t", ""]),
        piece(prng, odds, TARGETS, ODD_TARGETS),
        piece(prng, odds, &[" "], &["  ", "\t", ""]),
        piece(prng, odds, VERSIONS, ODD_VERSIONS),
    )];
    if !prng.chance(odds, 1000) {
        head.push("Host: h".into());
    }
    for _ in 0..prng.below(4) {
        head.push(piece(prng, odds * 4, LINES, ODD_LINES).into());
    }
    let body = draw_body(prng, odds, &mut head);
    for line in head {
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(piece(prng, odds, &["\r\n"], ENDS).as_bytes());
    }
    out.extend_from_slice(piece(prng, odds, &["\r\n"], ENDS).as_bytes());
    out.extend_from_slice(body.as_bytes());
}

/// A body and, in `head`, the lines that frame it.
fn draw_body(prng: &mut Prng, odds: u64, head: &mut Vec<String>) -> String {
    match prng.below(3) {
        0 => String::new(),
        1 => {
            let body = pick(
                prng,
                &["", "abc", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "0\r\n\r\n"],
            );
            let at = 1 + prng.below(head.len() as u64) as usize;
            head.insert(at, format!("Content-Length: {}", body.len()));
            body.into()
        }
        _ => {
            head.push("Transfer-Encoding: chunked".into());
            let mut body = String::new();
            for _ in 0..prng.below(3) {
                body += piece(prng, odds * 2, CHUNKS, ODD_CHUNKS);
            }
            body + piece(prng, odds * 2, LASTS, ODD_LASTS)
        }
    }
}

/// Replaces, removes or doubles one byte.
fn change_a_byte(prng: &mut Prng, stream: &mut Vec<u8>) {
    let at = prng.below(stream.len() as u64) as usize;
    let bytes = b"\r\n\t :;,0aA\0\x7f\xff+-\"/?#";
    let byte = bytes[prng.below(bytes.len() as u64) as usize];
    match prng.below(4) {
        0 => stream[at] = byte,
        1 => stream[at] ^= 1 << prng.below(8),
        2 => stream.insert(at, byte),
        _ => {
            stream.remove(at);
        }
    }
}
