//! Quotas of tokens, and rights of certificates.
//!
//! Invariants
//! 1. A request that a quota refuses was not begun, and the holder of another token is not
//!    affected.
//!
//! Not here: the arithmetic of rates (`meter.rs`), the form of the table (crate `wire`).
//! See: docs/api.md, sections "Quotas" and "Certificates of clients".

mod support;

use dendra_server::Running;
use dendra_server::settings::{RootToken, TlsSettings};
use dendra_wire::rights::{Grant, Holder, Quota, TokenRole, TokenTable, hash_of};
use support::certs::{Authority, CLIENT, DAY_S, MEMBER, Pair, Says, Sealed};
use support::{Answer, Client, Node, PATIENCE};

fn token(letter: &str) -> String {
    format!("dendra_{}", letter.repeat(43))
}

fn bearer(letter: &str) -> String {
    format!("Authorization: Bearer {}\r\n", token(letter))
}

fn grant(id: &str, letter: &str, prefix: &[u8], quota: Quota) -> Grant {
    let hash = hash_of(token(letter).as_bytes()).expect("a token");
    let mut grant = Grant::of_token(id, TokenRole::Write, prefix, hash);
    grant.quota = quota;
    grant
}

fn table(grants: &[Grant]) -> TokenTable {
    let add = |table: TokenTable, grant: &Grant| table.with(grant.clone()).expect("new");
    grants.iter().fold(TokenTable::default(), add)
}

/// Has the table in force on the node.
fn put_in_force(running: &Running, table: &TokenTable, send: impl FnOnce(&str, &str) -> u16) {
    let before = running.border().now().token_changes;
    let lines = format!("{}If-None-Match: *\r\n", bearer("r"));
    assert_eq!(send(&lines, &table.to_text()), 201);
    let border = running.border();
    assert!(border.wait(PATIENCE, |state| state.token_changes > before));
}

/// A node by itself with these grants.
fn node(grants: &[Grant]) -> Node {
    let node = Node::with(|settings| settings.root_token = RootToken::new(token("r").as_bytes()));
    put_in_force(node.running(), &table(grants), |lines, body| {
        let put = ("PUT", "/v0/tokens");
        node.client()
            .ask(put.0, put.1, lines, body.as_bytes())
            .status
    });
    node
}

fn ask(client: &mut Client, letter: &str, request: &str, body: &[u8]) -> Answer {
    let (method, target) = request.split_once(' ').expect("a request");
    client.ask(method, target, &bearer(letter), body)
}

/// A metric, on a node that asks for tokens.
fn metric(node: &Node, name: &str) -> u64 {
    let page = node.admin().ask("GET", "/metrics", &bearer("r"), b"");
    let text = page.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.trim().parse().expect("a number")
}

#[test]
fn each_item_of_a_batch_counts_as_a_request() {
    let few = Quota {
        requests_per_second: Some(5),
        stored_bytes: Some(1_000_000),
        ..Quota::NONE
    };
    let node = node(&[grant("few", "a", b"k", few)]);
    let item = "{\"key\":\"k\",\"value\":\"1\"}\n";
    let large = format!(
        "{{\"key\":\"k\",\"value\":\"{}\"}}\n",
        "v".repeat(1_000_001)
    );
    let body = format!("{large}{}", item.repeat(20));
    let (answer, lines) = node.client().batch(&bearer("a"), body.as_bytes());
    assert_eq!(answer.trailer.as_deref(), Some("complete; items=21"));
    let statuses: Vec<_> = lines
        .iter()
        .filter_map(|line| line["status"].as_u64())
        .collect();
    assert_eq!((statuses[0], &statuses[1..6]), (507, &[201; 5][..]));
    let refused = statuses.iter().filter(|status| **status == 429).count();
    // The rate goes on while the batch does.
    assert!((1..=15).contains(&refused), "{statuses:?}");
    assert_eq!(
        metric(&node, "dendra_quota_requests_total{token=\"few\"}"),
        20 - refused as u64
    );
    // Items that are none count, too.
    let (answer, lines) = node
        .client()
        .batch(&bearer("a"), "nonsense\n".repeat(100).as_bytes());
    assert_eq!(answer.trailer.as_deref(), Some("complete; items=100"));
    let refused = lines.iter().filter(|line| line["status"] == 429).count();
    assert!(refused > 50, "{lines:?}");
}

#[test]
fn requests_beyond_a_quota_are_refused_with_a_time_and_the_connection_goes_on() {
    let few = Quota {
        requests_per_second: Some(5),
        ..Quota::NONE
    };
    let node = node(&[
        grant("few", "a", b"", few),
        grant("all", "b", b"", Quota::NONE),
    ]);
    let mut client = node.client();
    // Sent at once: they take no second.
    let one = format!(
        "PUT /v0/entity?id=k HTTP/1.1\r\nHost: h\r\n{}Content-Length: 3\r\n\r\nabc",
        bearer("a")
    );
    let one = one.replace("Host: h", "Host: localhost");
    client.send(one.repeat(20).as_bytes());
    let answers: Vec<Answer> = (0..20).map(|_| client.read("PUT")).collect();
    let stored = answers.iter().filter(|it| it.status == 201).count();
    // A machine that stops in the middle gives them more.
    assert!((5..20).contains(&stored), "{stored}");
    let refused: Vec<_> = answers.iter().filter(|it| it.status != 201).collect();
    for answer in &refused {
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("Retry-After"), Some("1"));
        assert_eq!(answer.header("Dendra-Receipt"), Some("outcome=not-applied"));
        let said = answer.text();
        assert!(
            said.starts_with("over-quota: `few` has 5 requests"),
            "{said}"
        );
    }
    assert_eq!(
        ask(&mut client, "b", "GET /v0/entity?id=k", b"").status,
        200
    );
    let by = "dendra_quota_refused_total{token=\"few\",by=\"requests\"}";
    assert_eq!(metric(&node, by), refused.len() as u64);
    let let_in = "dendra_quota_requests_total{token=\"few\"}";
    assert_eq!(metric(&node, let_in), stored as u64);
}

#[test]
fn bytes_of_values_and_answers_count_and_are_paid_back() {
    let slow = Quota {
        bytes_per_second: Some(10_000),
        ..Quota::NONE
    };
    let node = node(&[grant("slow", "a", b"", slow)]);
    let mut client = node.client();
    let value = vec![b'v'; 200_000];
    assert_eq!(
        ask(&mut client, "a", "PUT /v0/entity?id=k", &value).status,
        201
    );
    let refused = ask(&mut client, "a", "GET /v0/entity?id=k", b"");
    assert_eq!(refused.status, 429, "{}", refused.text());
    let wait: u64 = refused
        .header("Retry-After")
        .expect("a time")
        .parse()
        .expect("s");
    assert!((10..=20).contains(&wait), "{wait}");
    let moved = metric(&node, "dendra_quota_bytes_total{token=\"slow\"}");
    assert!((200_000..202_000).contains(&moved), "{moved}");
    // The same for the bytes that it reads, and no more than a minute.
    let root = ask(&mut client, "r", "GET /v0/entity?id=k", b"");
    assert_eq!(root.text().len(), 200_000);
}

#[test]
fn stored_bytes_are_seen_refused_and_freed() {
    let small = Quota {
        stored_bytes: Some(1_000_000),
        ..Quota::NONE
    };
    let node = node(&[grant("small", "a", b"s/", small)]);
    let mut client = node.client();
    let value = vec![b'v'; 300_000];
    let mut put = |n: u32| {
        let request = format!("PUT /v0/entity?id=s/{n}");
        ask(&mut client, "a", &request, &value)
    };
    let statuses: Vec<u16> = (0..4).map(|n| put(n).status).collect();
    assert_eq!(statuses, [201, 201, 201, 507]);
    let refused = put(4);
    let said = refused.text();
    assert!(
        said.starts_with("over-stored-quota: `small` stores about 900000 of 1000000"),
        "{said}"
    );
    assert!(refused.header("Retry-After").is_some());
    assert_eq!(
        ask(&mut client, "a", "GET /v0/entity?id=s/0", b"").status,
        200
    );
    // Writes of others under the prefix count, after the next look. Writes outside of it do not.
    let by_root = |client: &mut Client, key: &str| {
        ask(client, "r", &format!("PUT /v0/entity?id={key}"), &value).status
    };
    assert_eq!(by_root(&mut client, "t"), 201);
    assert_eq!(by_root(&mut client, "s/9"), 201);
    let name = "dendra_quota_stored_bytes{token=\"small\"}";
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut stored = metric(&node, name);
    while stored < 1_200_000 {
        assert!(std::time::Instant::now() < deadline, "{stored}");
        stored = metric(&node, name);
    }
    assert!(stored < 1_210_000, "{stored}");
    assert_eq!(
        ask(&mut client, "a", "DELETE /v0/entity?id=s/0", b"").status,
        202
    );
}

struct World {
    _folder: tempfile::TempDir,
    ca: Authority,
    node: Node,
}

impl World {
    /// A node that wants certificates, with one line for those with the name `app`.
    fn new() -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let ca = Authority::new(folder.path());
        let pair = ca.sign("node", MEMBER);
        let mut tls = TlsSettings::new(&pair.cert, &pair.key);
        tls.peer_ca = Some(ca.ca.clone());
        let node = Node::with(|settings| {
            settings.tls = Some(tls);
            settings.root_token = RootToken::new(token("r").as_bytes());
        });
        let mut app = grant("the-app", "a", b"a/", Quota::NONE);
        app.holder = Holder::Certificate("app".to_owned());
        let mut boss = grant("boss", "b", b"", Quota::NONE);
        (boss.holder, boss.role) = (Holder::Certificate("boss".to_owned()), TokenRole::Admin);
        put_in_force(node.running(), &table(&[app, boss]), |lines, body| {
            let config = ca.client(None);
            let mut client = Sealed::connect(node.running().addr(), &config);
            let len = body.len();
            let put = format!(
                "PUT /v0/tokens HTTP/1.1\r\nHost: localhost\r\n{lines}Connection: close\r\nContent-Length: {len}\r\n\r\n{body}"
            );
            client.send(&put).expect("the node reads");
            status(&client.rest().expect("an answer"))
        });
        World {
            _folder: folder,
            ca,
            node,
        }
    }

    fn ask(&self, pair: Option<&Pair>, request: &str, lines: &str, is_admin: bool) -> u16 {
        let running = self.node.running();
        let address = if is_admin {
            running.admin_addr().expect("there is one")
        } else {
            running.addr()
        };
        let mut client = Sealed::connect(address, &self.ca.client(pair));
        let request =
            format!("{request} HTTP/1.1\r\nHost: localhost\r\n{lines}Connection: close\r\n\r\n");
        let sent = client.send(&request).and_then(|()| client.rest());
        sent.map_or(0, |answer| status(&answer))
    }
}

fn status(answer: &str) -> u16 {
    let word = answer.split(' ').nth(1).expect("a status");
    word.parse().expect("a number")
}

#[test]
fn the_name_of_a_certificate_gives_the_rights_of_its_line() {
    let world = World::new();
    let app = world.ca.sign("app", CLIENT);
    let named = |name, stem| world.ca.sign(stem, Says { name, ..CLIENT });
    let (boss, other) = (named("boss", "boss"), named("other", "other"));
    for (pair, request, is_admin, expected) in [
        (Some(&app), "DELETE /v0/entity?id=a/1", false, 202),
        (Some(&app), "DELETE /v0/entity?id=b", false, 403),
        (Some(&app), "GET /v0/tokens", false, 403),
        (Some(&app), "GET /metrics", true, 403),
        (Some(&boss), "GET /v0/tokens", false, 200),
        (Some(&boss), "GET /metrics", true, 200),
        (Some(&other), "DELETE /v0/entity?id=a/1", false, 401),
        (None, "DELETE /v0/entity?id=a/1", false, 401),
        (None, "GET /metrics", true, 401),
    ] {
        assert_eq!(
            world.ask(pair, request, "", is_admin),
            expected,
            "{request}"
        );
    }
    // A token decides, where there is one.
    let lines = bearer("r");
    assert_eq!(
        world.ask(Some(&app), "DELETE /v0/entity?id=b", &lines, false),
        202
    );
    let lines = bearer("x");
    assert_eq!(
        world.ask(Some(&app), "DELETE /v0/entity?id=a/1", &lines, false),
        401
    );
    // The same name of another CA, and one that has ended, are not let in at all.
    let ended = Says {
        from: -3 * DAY_S,
        until: -2 * DAY_S,
        ..CLIENT
    };
    let ended = world.ca.sign("ended", ended);
    assert_eq!(
        world.ask(Some(&ended), "DELETE /v0/entity?id=a/1", "", false),
        0
    );
    let folder = tempfile::tempdir().expect("a folder");
    let stranger = Authority::new(folder.path()).sign("app", CLIENT);
    assert_eq!(
        world.ask(Some(&stranger), "DELETE /v0/entity?id=a/1", "", false),
        0
    );
}
