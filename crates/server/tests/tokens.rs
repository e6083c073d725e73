//! Tokens: which client gets in with which token, and how soon a change is in force.
//!
//! Invariants
//! 1. Waits end with their condition, and at most a second after a change where a second is
//!    promised.
//!
//! Not here: the form of the table (crate `wire`), `dendra token` (crate `dendra`,
//! `tests/commands/token.rs`). See: docs/api.md, section "Tokens".

mod support;

use dendra_server::settings::{ClusterSettings, Member, RootToken, Secret, Topology};
use dendra_server::{Running, Server};
use dendra_wire::rights::{Grant, TokenRole, TokenTable, hash_of};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use support::guest::SECRET;
use support::{Answer, Client, Node, PATIENCE, reserved};

fn token(letter: &str) -> String {
    format!("dendra_{}", letter.repeat(43))
}

fn root() -> RootToken {
    RootToken::new(format!("{}\n", token("r")).as_bytes()).expect("a token")
}

fn grant(id: &str, letter: &str, role: TokenRole, prefix: &[u8]) -> Grant {
    let hash = hash_of(token(letter).as_bytes()).expect("a token");
    Grant::of_token(id, role, prefix, hash)
}

fn table(grants: &[Grant]) -> TokenTable {
    let add = |table: TokenTable, grant: &Grant| table.with(grant.clone()).expect("new");
    grants.iter().fold(TokenTable::default(), add)
}

fn bearer(letter: &str) -> String {
    format!("Authorization: Bearer {}\r\n", token(letter))
}

fn as_holder(client: &mut Client, letter: &str, request: &str, body: &[u8]) -> Answer {
    let (method, target) = request.split_once(' ').expect("a request");
    client.ask(method, target, &bearer(letter), body)
}

fn set(client: &mut Client, condition: &str, table: &TokenTable) -> Answer {
    let lines = format!("{}{condition}\r\n", bearer("r"));
    client.ask("PUT", "/v0/tokens", &lines, table.to_text().as_bytes())
}

/// Waits until the node has another table in force than when `what` was done, and says how long it
/// took.
fn until_in_force<R>(running: &Running, what: impl FnOnce() -> R) -> (R, Duration) {
    let before = running.border().now().token_changes;
    let began = Instant::now();
    let done = what();
    let border = running.border();
    assert!(border.wait(PATIENCE, |state| state.token_changes > before));
    (done, began.elapsed())
}

/// Waits until the node has read the table for the first time.
fn until_read(running: &Running) {
    let border = running.border();
    assert!(border.wait(PATIENCE, |state| state.token_looks > 0));
}

fn node() -> Node {
    let node = Node::with(|settings| settings.root_token = Some(root()));
    until_read(node.running());
    node
}

fn status_of(address: SocketAddr, letter: &str, request: &str) -> u16 {
    as_holder(&mut Client::connect(address), letter, request, b"").status
}

#[test]
fn nothing_is_served_without_a_token_but_health() {
    let node = node();
    let mut client = node.client();
    for request in [
        "GET /v0/entity?id=k",
        "DELETE /v0/entity?id=k",
        "GET /v0/entities?prefix=k",
        "GET /v0/tokens",
        "GET /nowhere",
    ] {
        let (method, target) = request.split_once(' ').expect("a request");
        let answer = client.ask(method, target, "", b"");
        assert_eq!(answer.status, 401, "{request}");
        assert_eq!(
            answer.header("WWW-Authenticate"),
            Some("Bearer realm=\"dendra\"")
        );
        assert!(answer.text().starts_with("unauthenticated: "), "{answer:?}");
    }
    assert_eq!(client.put("k", b"v").status, 401);
    assert_eq!(
        as_holder(&mut client, "r", "GET /v0/entity?id=k", b"").status,
        404,
        "not stored"
    );
    assert_eq!(client.get("/v0/status").status, 200);
    let mut admin = node.admin();
    for target in ["/healthz", "/readyz"] {
        assert_eq!(admin.get(target).status, 200);
    }
    for target in [
        "/",
        "/metrics",
        "/v0/status",
        "/v0/health",
        "/openapi.yaml",
        "/debug/profile/cpu?seconds=1",
    ] {
        assert_eq!(admin.get(target).status, 401, "{target}");
    }
    let page = as_holder(&mut admin, "r", "GET /metrics", b"").text();
    assert!(page.contains("dendra_logins_missing_total"), "{page}");
    // As a browser does, whose user gave the token as a password: `u:` and the root token.
    use base64::Engine;
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("u:{}", token("r")));
    let lines = format!("Authorization: Basic {pair}\r\n");
    assert_eq!(admin.ask("GET", "/v0/status", &lines, b"").status, 200);
}

#[test]
fn each_token_opens_what_it_is_for_and_one_that_was_revoked_nothing() {
    let node = node();
    let mut client = node.client();
    let all = [
        grant("reader", "a", TokenRole::Read, b"x/"),
        grant("writer", "b", TokenRole::Write, b""),
        grant("boss", "c", TokenRole::Admin, b""),
        grant("scraper", "d", TokenRole::Metrics, b""),
    ];
    let (made, took) = until_in_force(node.running(), || {
        set(&mut client, "If-None-Match: *", &table(&all))
    });
    assert_eq!(made.status, 201, "{}", made.text());
    assert!(took < Duration::from_secs(1), "{took:?}");
    for (letter, request, status) in [
        ("b", "PUT /v0/entity?id=x/1", 201),
        ("a", "GET /v0/entity?id=x/1", 200),
        ("a", "GET /v0/entity?id=y", 403),
        ("a", "GET /v0/entity?id=x/1&explain=1", 200),
        ("a", "GET /v0/entity?id=y&explain=1", 403),
        ("d", "GET /v0/entity?id=x/1&explain=1", 403),
        ("a", "PUT /v0/entity?id=x/1", 403),
        ("a", "GET /v0/entities?prefix=x/", 200),
        ("a", "GET /v0/entities?prefix=x", 403),
        ("b", "GET /v0/tokens", 403),
        ("b", "PUT /v0/tokens", 403),
        ("c", "GET /v0/tokens", 200),
        ("d", "GET /v0/entity?id=x/1", 403),
        ("d", "GET /v0/entities?start=a", 403),
    ] {
        let answer = as_holder(&mut client, letter, request, b"");
        assert_eq!(
            answer.status,
            status,
            "{letter}: {request}: {}",
            answer.text()
        );
    }
    let mut admin = node.admin();
    for (letter, target, status) in [
        ("a", "GET /metrics", 403),
        ("b", "GET /metrics", 200),
        ("b", "GET /debug/profile/cpu?seconds=1", 403),
        ("d", "GET /metrics", 200),
        ("d", "GET /healthz", 200),
        ("b", "GET /v0/health", 200),
        ("d", "GET /v0/health", 403),
        ("d", "GET /v0/status", 403),
        ("d", "POST /metrics", 403),
        ("d", "GET /v0/cluster", 403),
        ("c", "GET /debug/profile/cpu?seconds=1", 200),
    ] {
        assert_eq!(
            as_holder(&mut admin, letter, target, b"").status,
            status,
            "{letter}: {target}"
        );
    }
    let fewer = table(&all[..1]);
    let condition = format!("If-Match: {}", made.etag());
    let (replaced, took) = until_in_force(node.running(), || {
        set(&mut client, &condition, &fewer).status
    });
    assert_eq!(replaced, 201);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(
        set(&mut client, &condition, &fewer).status,
        412,
        "another was faster"
    );
    let revoked = as_holder(&mut client, "b", "GET /v0/entity?id=x/1", b"");
    assert_eq!(revoked.status, 401);
    assert_eq!(
        as_holder(&mut client, "a", "GET /v0/entity?id=x/1", b"").status,
        200
    );
}

#[test]
fn each_item_of_a_batch_needs_its_own_right() {
    let node = node();
    let mut client = node.client();
    let all = [
        grant("reader", "a", TokenRole::Read, b""),
        grant("writer", "b", TokenRole::Write, b"x/"),
    ];
    until_in_force(node.running(), || {
        set(&mut client, "If-None-Match: *", &table(&all))
    });
    let body = b"{\"key\":\"x/1\",\"value\":\"1\"}\n{\"op\":\"get\",\"key\":\"x/1\"}\n\
        {\"op\":\"delete\",\"key\":\"x/1\"}\n{\"key\":\"y/1\",\"value\":\"1\"}\n{\"op\":\"get\",\"key\":\"y/1\"}\n";
    for (letter, wanted) in [
        ("a", [403, 404, 403, 403, 404]),
        ("b", [201, 200, 202, 403, 403]),
        ("r", [201, 200, 202, 201, 200]),
    ] {
        let (answer, lines) = client.batch(&bearer(letter), body);
        assert_eq!(answer.trailer.as_deref(), Some("complete; items=5"));
        let statuses: Vec<_> = lines
            .iter()
            .filter_map(|line| line["status"].as_u64())
            .collect();
        assert_eq!(statuses, wanted, "{letter}");
    }
    let (answer, lines) = client.batch(&bearer("a"), body);
    assert_eq!(answer.status, 200);
    assert_eq!(lines[0]["error"], "forbidden");
    let message = lines[0]["message"].as_str().expect("a sentence");
    assert!(
        message.starts_with("item 1: the token `reader`"),
        "{message}"
    );
    let strange = client.ask("POST", "/v0/batch", &bearer("z"), body);
    assert_eq!(strange.status, 401);
}

#[test]
fn a_batch_ends_with_the_token_that_it_came_with() {
    let node = node();
    let mut client = node.client();
    let all = [grant("writer", "b", TokenRole::Write, b"")];
    let (made, _) = until_in_force(node.running(), || {
        set(&mut client, "If-None-Match: *", &table(&all))
    });
    let mut sender = node.client();
    let head = format!(
        "POST /v0/batch HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: 200\r\n\r\n",
        bearer("b")
    );
    let item = "{\"key\":\"k\",\"value\":\"1\"}\n";
    sender.send(format!("{head}{item}").as_bytes());
    let begun = sender.stream.peek(&mut [0]).expect("the first line comes");
    assert_eq!(begun, 1);
    let condition = format!("If-Match: {}", made.etag());
    let (replaced, _) = until_in_force(node.running(), || {
        set(&mut client, &condition, &table(&[])).status
    });
    assert_eq!(replaced, 201);
    sender.send(item.repeat(3).as_bytes());
    let answer = sender.read("POST");
    assert_eq!(answer.trailer.as_deref(), Some("stopped; items=2"));
    let lines = answer.lines();
    assert_eq!(
        (lines[0]["status"].as_u64(), lines[1]["status"].as_u64()),
        (Some(201), Some(401))
    );
}

#[test]
fn a_scan_and_a_value_under_way_end_with_the_right_to_them() {
    const VALUE_BYTES: usize = 512 << 10;
    const KEYS: usize = 64; // 32 MiB: more than the sockets of both sides hold
    let node = node();
    let mut client = node.client();
    let all = [
        grant("reader", "a", TokenRole::Read, b""),
        grant("writer", "b", TokenRole::Write, b""),
    ];
    let (made, _) = until_in_force(node.running(), || {
        set(&mut client, "If-None-Match: *", &table(&all))
    });
    for n in 0..KEYS {
        let request = format!("PUT /v0/entity?id={n:02}");
        let stored = as_holder(&mut client, "b", &request, &vec![b'x'; VALUE_BYTES]);
        assert_eq!(stored.status, 201);
    }
    let head = |request: &str, letter: &str, more: &str| {
        let token = bearer(letter);
        format!("{request} HTTP/1.1\r\nHost: localhost\r\n{token}{more}\r\n").into_bytes()
    };
    // It reads no byte of the answer until the token is of no use.
    let mut scan = node.client();
    scan.send(&head("GET /v0/entities?start=%00", "a", ""));
    let begun = scan.stream.peek(&mut [0]).expect("an answer begins");
    assert_eq!(begun, 1);
    let mut value = node.client();
    let lines = "Expect: 100-continue\r\nContent-Length: 2\r\n";
    value.send(&head("PUT /v0/entity?id=late", "b", lines));
    assert_eq!(value.read("PUT").status, 100);
    let condition = format!("If-Match: {}", made.etag());
    let (replaced, _) = until_in_force(node.running(), || {
        set(&mut client, &condition, &table(&[])).status
    });
    assert_eq!(replaced, 201);
    value.send(b"vv");
    assert_eq!(value.read("PUT").status, 401);
    let cut = scan.read("GET");
    assert_eq!(cut.status, 200);
    let end = cut.trailer.unwrap_or_default();
    assert!(end.starts_with("stopped; next="), "{end}");
    let mut admin = node.admin();
    let page = as_holder(&mut admin, "r", "GET /metrics", b"").text();
    let of_scans = |class: &str, count: u64| {
        let line = format!("dendra_requests_total{{op=\"scan\",class=\"{class}\"}} {count}\n");
        page.contains(&line)
    };
    assert!(of_scans("cut", 1) && of_scans("2xx", 0), "{page}");
    assert!(cut.chunks.len() < KEYS);
    let late = as_holder(&mut client, "r", "GET /v0/entity?id=late", b"");
    assert_eq!(late.status, 404, "not stored");
}

#[test]
fn the_clusters_own_keys_are_out_of_reach_and_a_table_that_is_none_is_not_stored() {
    let node = node();
    let mut client = node.client();
    let made = set(
        &mut client,
        "If-None-Match: *",
        &table(&[grant("a", "a", TokenRole::Read, b"")]),
    );
    assert_eq!(made.status, 201);
    as_holder(&mut client, "r", "PUT /v0/entity?id=%FE", b"v");
    let own = "%FF".repeat(16);
    for request in [
        format!("GET /v0/entity?id={own}tokens"),
        format!("DELETE /v0/entity?id={own}"),
    ] {
        let answer = as_holder(&mut client, "r", &request, b"");
        assert_eq!(answer.status, 400);
        assert!(
            answer.text().starts_with("reserved-key: "),
            "{}",
            answer.text()
        );
    }
    for scan in [
        "start=%FE&reverse=true",
        "start=%00",
        "prefix=%FF",
        &format!("start={own}"),
    ] {
        let found = as_holder(&mut client, "r", &format!("GET /v0/entities?{scan}"), b"");
        assert_eq!(found.status, 200);
        let keys = found.chunks.len();
        let most = usize::from(scan.contains("%FE") || scan.contains("%00"));
        assert!(keys <= most, "{scan}: {:?}", found.text());
        assert!(!found.text().contains("dendra-tokens"), "{scan}");
    }
    let condition = format!("{}If-Match: {}\r\n", bearer("r"), made.etag());
    let as_root = table(&[grant("boot", "b", TokenRole::Read, b"")]);
    let as_root = as_root.to_text().replace("boot", "root");
    for body in [
        &b"nonsense"[..],
        b"dendra-tokens 1\na read - 00\n",
        as_root.as_bytes(),
        &vec![b'x'; 65 << 10],
    ] {
        let answer = client.ask("PUT", "/v0/tokens", &condition, body);
        assert!(matches!(answer.status, 400 | 413), "{}", answer.status);
        client = node.client();
    }
    let blind = client.ask("PUT", "/v0/tokens", &bearer("r"), b"dendra-tokens 1\n");
    assert!(
        blind.text().starts_with("missing-condition: "),
        "{}",
        blind.text()
    );
    let kept = as_holder(&mut client, "r", "GET /v0/tokens", b"");
    assert_eq!(kept.etag(), made.etag());
}

#[test]
fn a_table_survives_a_restart_and_nothing_opens_before_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = || {
        let mut settings = support::settings(&folder);
        settings.root_token = Some(root());
        Server::start(settings).expect("it starts")
    };
    let running = start();
    until_read(&running);
    let (made, _) = until_in_force(&running, || {
        let first = table(&[grant("a", "a", TokenRole::Read, b"")]);
        set(
            &mut Client::connect(running.addr()),
            "If-None-Match: *",
            &first,
        )
    });
    assert_eq!(made.status, 201);
    running.stop().expect("it stops");
    let running = start();
    // Whether it is known is not known for a moment: then it is not let in, and not turned away.
    let early = status_of(running.addr(), "a", "GET /v0/entity?id=k");
    assert!(matches!(early, 404 | 503), "{early}");
    until_read(&running);
    assert_eq!(status_of(running.addr(), "a", "GET /v0/entity?id=k"), 404);
    assert_eq!(status_of(running.addr(), "b", "GET /v0/entity?id=k"), 401);
    running.stop().expect("it stops");
}

#[test]
fn a_node_that_asks_for_no_token_takes_no_table() {
    let node = Node::start();
    let mut client = node.client();
    let answer = set(&mut client, "If-None-Match: *", &TokenTable::default());
    assert_eq!(answer.status, 409);
    assert!(
        answer.text().starts_with("no-tokens: "),
        "{}",
        answer.text()
    );
}

#[test]
fn an_address_with_many_unknown_tokens_is_told_to_wait_and_a_known_one_still_opens() {
    let node = node();
    let mut last = 401;
    for _ in 0..20 {
        let mut client = node.client();
        let answer = as_holder(&mut client, "d", "GET /v0/entity?id=k", b"");
        last = answer.status;
        if last == 429 {
            assert_eq!(answer.header("Retry-After"), Some("60"));
            assert!(client.is_closed());
        }
    }
    assert_eq!(last, 429);
    let known = as_holder(&mut node.client(), "r", "GET /v0/entity?id=k", b"");
    assert_eq!(known.status, 404);
}

#[test]
fn a_token_is_known_and_revoked_on_every_member_within_a_second() {
    let (places, addresses): (Vec<_>, Vec<_>) = (0..2).map(|_| reserved()).unzip();
    let members = addresses.iter().map(|at| Member::new(&at.to_string()));
    let members: Result<Vec<_>, _> = members.collect();
    let topology = Topology::new("dendra", members.expect("addresses"), 2).expect("two");
    let start = |address: SocketAddr| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut settings = support::settings(&folder);
        settings.listen = vec![address];
        settings.root_token = Some(root());
        let me = address.to_string();
        let mut cluster = ClusterSettings::new(topology.clone(), &me).expect("a member");
        cluster.secret = Secret::new(SECRET);
        settings.cluster = Some(cluster);
        std::thread::spawn(move || (folder, Server::start(settings).expect("it starts")))
    };
    let nodes: Vec<_> = addresses.iter().map(|at| start(*at)).collect();
    let nodes = nodes
        .into_iter()
        .map(|node| node.join().expect("it starts"));
    let nodes: Vec<(tempfile::TempDir, Running)> = nodes.collect();
    let (mut one, mut other) = (Client::connect(addresses[0]), Client::connect(addresses[1]));
    nodes.iter().for_each(|(_, running)| until_read(running));
    assert_eq!(status_of(addresses[1], "a", "GET /v0/entity?id=k"), 401);
    let all = |what: &mut dyn FnMut() -> Answer| {
        let done = until_in_force(&nodes[0].1, || until_in_force(&nodes[1].1, &mut *what));
        let ((answer, _), took) = done;
        assert!(took < Duration::from_secs(1), "{took:?}");
        answer
    };
    let made = all(&mut || {
        let first = table(&[grant("a", "a", TokenRole::Read, b"")]);
        set(&mut one, "If-None-Match: *", &first)
    });
    assert_eq!(made.status, 201, "{}", made.text());
    for address in addresses.iter().copied() {
        assert_eq!(status_of(address, "a", "GET /v0/entity?id=k"), 404);
    }
    let condition = format!("If-Match: {}", made.etag());
    let replaced = all(&mut || set(&mut other, &condition, &TokenTable::default()));
    assert_eq!(replaced.status, 201);
    for address in addresses.iter().copied() {
        assert_eq!(status_of(address, "a", "GET /v0/entity?id=k"), 401);
    }
    for (_folder, node) in nodes {
        node.stop().expect("it stops");
    }
    drop(places);
}
