//! Bytes that no honest client sends, and bytes that honest clients send in odd pieces.
//!
//! Invariants
//! 1. After broken framing the connection ends: the server does not guess where the next request
//!    starts.
//!
//! Not here: the parser's own tests (crate `wire`), slow clients (`overload.rs`).

use crate::support::Node;

#[test]
fn broken_framing_is_answered_and_the_connection_ends() {
    let node = Node::start();
    let put = "PUT /v0/entity?id=x HTTP/1.1\r\nHost: localhost\r\n";
    let table: Vec<(String, u16)> = vec![
        (
            format!("{put}Content-Length: 1\r\nContent-Length: 1\r\n\r\nx"),
            400,
        ),
        (
            format!("{put}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
            400,
        ),
        (
            format!("{put}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            400,
        ),
        (format!("{put}Content-Length: +5\r\n\r\n12345"), 400),
        (format!("{put}Content-Length: -1\r\n\r\n"), 400),
        (format!("{put}Content-Length: 0x5\r\n\r\n12345"), 400),
        (
            format!("{put}Content-Length: 99999999999999999999\r\n\r\n"),
            400,
        ),
        (format!("{put}Content-Length:\r\n\r\n"), 400),
        (
            format!("{put}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            501,
        ),
        (
            format!("{put}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
            400,
        ),
        (
            format!("{put}Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
            400,
        ),
        (
            format!("{put}Transfer-Encoding: chunked\r\n\r\n1\r\nxy"),
            400,
        ),
        (
            format!("{put}Transfer-Encoding: chunked\r\n\r\n1\nx\n"),
            400,
        ),
        (format!("{put}X-Folded: a\r\n b\r\n\r\n"), 400),
        (
            "GET /v0/status HTTP/1.1\nHost: localhost\n\n".to_owned(),
            400,
        ),
        (
            "GET /v0/status HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n".to_owned(),
            400,
        ),
        (
            "GET /v0/status HTTP/1.1\r\nHost : t\r\n\r\n".to_owned(),
            400,
        ),
        ("GET /v0/status HTTP/1.1\r\n\r\n".to_owned(), 400),
        (
            "GET /v0/status HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(),
            400,
        ),
        (
            "GET /v0/status HTTP/2.0\r\nHost: localhost\r\n\r\n".to_owned(),
            505,
        ),
        (
            "GET  /v0/status HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            400,
        ),
        ("\x16\x03\x01\x02\x00\x01\x00\x01".to_owned(), 400),
        (
            format!(
                "GET /v0/status HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
                "X: y\r\n".repeat(100)
            ),
            431,
        ),
        (
            format!(
                "GET /v0/status HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
                "y".repeat(20_000)
            ),
            431,
        ),
        (
            format!(
                "GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
                "y".repeat(9_000)
            ),
            414,
        ),
    ];
    for (bytes, status) in table {
        let mut client = node.client();
        client.send(bytes.as_bytes());
        let answer = client.read("GET");
        let start: String = bytes.chars().take(120).collect();
        assert_eq!(answer.status, status, "{start:?}: {answer:?}");
        assert_eq!(answer.header("Connection"), Some("close"), "{start:?}");
        assert!(client.is_closed(), "{start:?}");
    }
    assert_eq!(node.client().value("x").status, 404, "nothing was stored");
}

#[test]
fn a_refused_head_leaves_the_connection_in_step() {
    let node = Node::start();
    let mut client = node.client();
    client.send(
        b"PUT /v0/entity?id=a&colour=red HTTP/1.1\r\nHost: localhost\r\nContent-Length: 31\r\n\r\n\
          GET /v0/status HTTP/1.1\r\nx: y\r\n\
          PUT /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
          GET /v0/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    assert_eq!(client.read("PUT").status, 400);
    assert_eq!(client.read("PUT").status, 400);
    assert_eq!(client.read("GET").text(), "serving\n");
}

#[test]
fn bytes_that_come_one_by_one_mean_the_same() {
    let node = Node::start();
    let mut client = node.client();
    let request =
        b"PUT /v0/entity?id=slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello\
          GET /v0/entity?id=slow HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for byte in request {
        client.send(&[*byte]);
    }
    assert_eq!(client.read("PUT").status, 201);
    assert_eq!(client.read("GET").body, b"hello");
}
