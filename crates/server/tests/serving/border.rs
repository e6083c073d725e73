//! Which clients may ask a node, on both ports: hosts that are not its own, pages of other sites,
//! clients that do not read.
//!
//! Invariants
//! 1. Every request here is one that a browser, a proxy or a plain socket can send.
//!
//! Not here: the rule itself, name by name (`hosts.rs` of crate `wire`).
//! See: docs/api.md, section "Hosts and pages".

use crate::support::{Client, Node, PATIENCE};
use dendra_server::settings::{HostRule, OriginRule, RootToken};
use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

/// The answer to one request that names `host`, with further header lines.
fn ask(mut client: Client, line: &str, host: &str, lines: &str) -> crate::support::Answer {
    let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n");
    client.send(request.as_bytes());
    client.read("GET")
}

#[test]
fn a_name_that_was_rebound_to_the_node_gets_nothing_on_either_port() {
    let node = Node::start();
    for (line, lines) in [
        ("GET /v0/entity?id=k", ""),
        ("PUT /v0/entity?id=k", "Content-Length: 0\r\n"),
        ("DELETE /v0/entity?id=k", ""),
        ("GET /v0/entities", ""),
        ("GET /v0/status", ""),
        ("POST /v0/peer/hello", "Content-Length: 0\r\n"),
    ] {
        let answer = ask(node.client(), line, "evil.example", lines);
        assert_eq!(answer.status, 421, "{line}");
        assert!(answer.text().starts_with("misdirected: "), "{line}");
        assert!(answer.text().contains("--allowed-hosts"), "{line}");
    }
    for path in ["/", "/metrics", "/v0/status", "/debug/profile/cpu"] {
        let answer = ask(
            node.admin(),
            &format!("GET {path}"),
            "evil.example:9080",
            "",
        );
        assert_eq!(answer.status, 421, "{path}");
    }
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy();
    for host in ["127.0.0.1:8080", "localhost", "[::1]:1", &machine] {
        assert_eq!(ask(node.client(), "GET /v0/status", host, "").status, 200);
        assert_eq!(ask(node.admin(), "GET /healthz", host, "").status, 200);
    }
}

#[test]
fn a_name_that_the_operator_allows_is_answered() {
    let rule: HostRule = "*.example.com".parse().expect("a rule");
    let node = Node::with(|settings| settings.allowed_hosts = vec![rule]);
    let status = |host: &str| ask(node.client(), "GET /v0/status", host, "").status;
    assert_eq!(
        (status("kv.example.com"), status("example.com")),
        (200, 421)
    );
    let admin = |host: &str| ask(node.admin(), "GET /healthz", host, "").status;
    assert_eq!((admin("kv.example.com"), admin("example.com")), (200, 421));
}

#[test]
fn a_page_of_another_site_takes_no_profile_and_no_value() {
    let node = Node::start();
    for lines in [
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: https://evil.example\r\n",
    ] {
        for path in [
            "/debug/profile/wall?seconds=1",
            "/",
            "/page.js",
            "/v0/status",
        ] {
            let answer = ask(
                node.admin(),
                &format!("GET {path}"),
                "127.0.0.1:9080",
                lines,
            );
            assert_eq!(answer.status, 403, "{path}: {lines}");
            assert!(answer.text().starts_with("cross-site: "), "{lines}");
            assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
        }
    }
    for lines in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Origin: https://evil.example\r\n",
    ] {
        for request in [
            "GET /v0/entity?id=k",
            "DELETE /v0/entity?id=k",
            "POST /v0/peer/hello",
        ] {
            let answer = ask(node.client(), request, "127.0.0.1:8080", lines);
            assert_eq!(answer.status, 403, "{request}: {lines}");
            assert!(answer.text().starts_with("cross-site: "), "{lines}");
        }
    }
    let own = "Sec-Fetch-Site: same-origin\r\nOrigin: http://127.0.0.1:8080\r\n";
    let answer = ask(node.client(), "GET /v0/status", "127.0.0.1:8080", own);
    assert_eq!(answer.status, 200);
    let own = "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n";
    let answer = ask(node.admin(), "GET /", "127.0.0.1:9080", own);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
}

#[test]
fn a_page_of_an_origin_that_may_ask_is_answered_and_told_so() {
    let origin: OriginRule = "https://app.example.com".parse().expect("an origin");
    let node = Node::with(|settings| {
        settings.allowed_origins = vec![origin];
        settings.root_token = RootToken::new(format!("dendra_{}", "r".repeat(43)).as_bytes());
    });
    let page = "Origin: https://app.example.com\r\nSec-Fetch-Site: cross-site\r\n";
    let token = format!("{page}Authorization: Bearer dendra_{}\r\n", "r".repeat(43));
    let mut client = node.client();
    for (method, target, lines, status) in [
        // The first request of a browser, which has no token.
        (
            "OPTIONS",
            "/v0/entity?id=k",
            format!("{page}Access-Control-Request-Method: PUT\r\n"),
            200,
        ),
        ("PUT", "/v0/entity?id=k", token.clone(), 201),
        ("GET", "/v0/entity?id=k", token.clone(), 200),
        ("HEAD", "/v0/entity?id=k", token.clone(), 200),
        ("GET", "/v0/entities?prefix=k", token.clone(), 200),
        ("GET", "/v0/entity?id=none", token.clone(), 404),
        ("GET", "/v0/entity?id=k&x=1", token.clone(), 400),
        ("GET", "/v0/entity?id=k", page.to_owned(), 401),
        ("DELETE", "/v0/entity?id=k", token.clone(), 202),
    ] {
        let answer = client.ask(method, target, &lines, b"");
        assert_eq!(answer.status, status, "{method} {target}");
        let told = answer.header("Access-Control-Allow-Origin");
        assert_eq!(told, Some("https://app.example.com"), "{method} {target}");
        assert_eq!(answer.header("Vary"), Some("Origin"));
        let shown = answer.header("Access-Control-Expose-Headers");
        assert!(shown.is_some_and(|names| names.contains("Dendra-Receipt")));
        let allowed = answer.header("Access-Control-Allow-Methods");
        assert_eq!(allowed.is_some(), method == "OPTIONS");
    }
    // No other site, no preflight without an origin, and no site on the admin port.
    let other = "Origin: https://evil.example\r\nAccess-Control-Request-Method: PUT\r\n";
    let answer = client.ask("OPTIONS", "/v0/entity?id=k", other, b"");
    assert_eq!(answer.status, 403);
    assert_eq!(answer.header("Access-Control-Allow-Origin"), None);
    let none = "Access-Control-Request-Method: PUT\r\n";
    assert_eq!(
        client.ask("OPTIONS", "/v0/entity?id=k", none, b"").status,
        401
    );
    let answer = node.admin().ask("GET", "/v0/status", &token, b"");
    assert_eq!(answer.status, 403);
    // A request of no page is told nothing.
    assert_eq!(client.get("/v0/status").header("Vary"), None);
}

#[test]
fn health_is_answered_beside_clients_that_do_not_read_or_say_nothing() {
    let node = Node::start();
    let admin = node
        .running()
        .admin_addr()
        .expect("there is an admin plane");
    let page = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2000);
    let mut greedy = Vec::new();
    for _ in 0..100 {
        let stream = TcpStream::connect(admin).expect("it listens");
        stream.set_nonblocking(true).expect("a socket can be told");
        // As many as the system takes now: the answers fill every buffer between here and there.
        let _some = (&stream).write(&page);
        let idle = TcpStream::connect(admin).expect("it listens");
        greedy.push((stream, idle));
        assert_eq!(node.admin().get("/healthz").status, 200);
        assert_eq!(node.admin().get("/readyz").status, 200);
    }
    assert_eq!(greedy.len(), 100);
}

#[test]
fn a_profile_that_is_refused_does_not_end_the_one_that_runs() {
    let node = Node::start();
    let mut first = node.admin();
    first.send(b"GET /debug/profile/cpu?seconds=5 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let status = || node.admin().get("/debug/profile/cpu?seconds=1").status;
    let until = Instant::now() + PATIENCE;
    // Before the first one has begun, another one may run.
    while status() != 409 {
        assert!(Instant::now() < until, "the first one never began");
    }
    let again: Vec<u16> = (0..20).map(|_| status()).collect();
    assert_eq!(again, [409; 20]);
}
