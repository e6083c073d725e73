//! The audit log of a node: the entries that it has, and the contents that it never has.
//!
//! Invariants
//! 1. The log is read when the node has stopped: then all that happened is in it.
//!
//! Not here: full disks and rotation (`audit/` of the crate).
//! See: docs/operating.md, section "The audit log".

mod support;

use dendra_server::settings::{AuditSettings, ClusterSettings, RootToken, Secret};
use dendra_wire::rights::{Grant, TokenRole, TokenTable, hash_of};
use serde_json::Value;
use std::path::Path;
use support::guest::{GUEST, NODE, SECRET, hello, topology};
use support::{Node, PATIENCE};

fn token(letter: &str) -> String {
    format!("dendra_{}", letter.repeat(43))
}

fn bearer(letter: &str) -> String {
    format!("Authorization: Bearer {}\r\n", token(letter))
}

fn settings(folder: &Path) -> AuditSettings {
    AuditSettings {
        path: folder.join("audit.log"),
        file_bytes: 1 << 20,
        keep: 1,
    }
}

/// All lines of the log of a node that is stopped now.
fn lines_of(mut node: Node, folder: &Path) -> Vec<Value> {
    let running = node.running.take().expect("it runs");
    running.stop().expect("it stops");
    let text = std::fs::read_to_string(folder.join("audit.log")).expect("there is a log");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn short(line: &Value) -> String {
    let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
    let status = line["status"].as_u64().unwrap_or(0);
    format!(
        "{} {} {} {status} {}",
        text("event"),
        text("who"),
        text("what"),
        text("code")
    )
}

#[test]
fn logins_tokens_and_admin_calls_are_in_the_log_and_no_secret_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let node = Node::with(|settings| {
        settings.root_token = RootToken::new(token("r").as_bytes());
        settings.audit = Some(self::settings(at));
    });
    let border = node.running().border();
    assert!(border.wait(PATIENCE, |state| state.token_looks > 0));
    let mut client = node.client();
    client.ask("GET", "/v0/entity?id=secret-key", "", b"");
    client.ask("PUT", "/v0/entity?id=k", &bearer("x"), b"secret-value");
    client.ask("GET", "/dendra_path", &bearer("x"), b"");
    let hash = hash_of(token("a").as_bytes()).expect("a token");
    let table = TokenTable::default();
    let table = table.with(Grant::of_token("app", TokenRole::Read, b"", hash));
    let text = table.expect("new").to_text();
    let first = format!("{}If-None-Match: *\r\n", bearer("r"));
    let bad = client.ask("PUT", "/v0/tokens", &first, b"nonsense");
    assert_eq!(bad.status, 400);
    let made = client.ask("PUT", "/v0/tokens", &first, text.as_bytes());
    assert_eq!(made.status, 201);
    let late = client.ask("PUT", "/v0/tokens", &first, text.as_bytes());
    assert_eq!(late.status, 412);
    assert!(border.wait(PATIENCE, |state| state.token_changes > 0));
    client.ask("PUT", "/v0/entity?id=k", &bearer("a"), b"v");
    // Works, and is no matter of the log.
    assert_eq!(
        client
            .ask("GET", "/v0/entity?id=k", &bearer("a"), b"")
            .status,
        404
    );
    let mut admin = node.admin();
    admin.ask("GET", "/metrics", &bearer("r"), b"");
    admin.ask("GET", "/metrics", &bearer("y"), b"");
    admin.ask("GET", "/debug/profile/cpu?seconds=1", &bearer("a"), b"");
    admin.ask("GET", "/debug/profile/cpu?seconds=1", &bearer("r"), b"");
    let json = format!("{}Content-Type: application/json\r\n", bearer("r"));
    admin.ask("POST", "/v0/cluster/plan", &json, b"{}");
    admin.ask("POST", "/v0/restore/finish?id=0", &bearer("r"), b"");
    admin.ask("POST", "/v0/checkpoints", &bearer("r"), b"");
    let lines = lines_of(node, at);
    let found: Vec<String> = lines.iter().map(short).collect();
    let expected = [
        "started - the node starts 0 -",
        "login-failed - GET /v0/entity 401 unauthenticated",
        "login-failed - PUT /v0/entity 401 unauthenticated",
        "login-failed - GET other 401 unauthenticated",
        "tokens-put root PUT /v0/tokens 400 -",
        "tokens-put root PUT /v0/tokens 201 -",
        "tokens-put root PUT /v0/tokens 412 -",
        "tokens-in-force - the tokens changed 0 -",
        "login-failed app PUT /v0/entity 403 forbidden",
        "login-failed - GET /metrics 401 unauthenticated",
        "login-failed app GET /debug/profile/cpu 403 forbidden",
        "admin root GET /debug/profile/cpu 200 -",
        "topology root POST /v0/cluster/plan 404 -",
    ];
    for line in expected {
        assert!(found.iter().any(|it| it == line), "{line}: {found:#?}");
    }
    assert!(
        found
            .iter()
            .any(|it| it.starts_with("bulk-load root POST /v0/restore/finish "))
    );
    assert!(
        found
            .iter()
            .any(|it| it.starts_with("admin root POST /v0/checkpoints "))
    );
    assert_eq!(
        found.last().map(String::as_str),
        Some("stopped - the node stops 0 -")
    );
    assert_eq!(found.len(), expected.len() + 3, "{found:#?}");
    let changed = lines.iter().find(|line| line["event"] == "tokens-in-force");
    assert_eq!(
        changed.expect("it is there")["added"],
        serde_json::json!(["app"])
    );
    let failed = &lines[1];
    assert_eq!(
        (&failed["from"], &failed["port"]),
        (&"127.0.0.1".into(), &"data".into())
    );
    let text = std::fs::read_to_string(at.join("audit.log")).expect("there is a log");
    for secret in ["dendra_", "secret", "nonsense"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[test]
fn a_program_that_is_no_member_is_in_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let mut cluster = ClusterSettings::new(topology(GUEST), NODE).expect("a member");
    cluster.secret = Secret::new(SECRET);
    let node = Node::with(|settings| {
        settings.cluster = Some(cluster);
        settings.loops = Some(1);
        settings.audit = Some(self::settings(at));
    });
    let mut stranger = hello(GUEST, 1);
    stranger.has_secret = false;
    let lines = format!("Dendra-Peer: {stranger}\r\n");
    let answer = node.client().ask("POST", "/v0/peer/hello", &lines, b"");
    assert_eq!(answer.status, 409, "{}", answer.text());
    let found: Vec<String> = lines_of(node, at).iter().map(short).collect();
    let line = "member-refused - POST /v0/peer/hello 409 cluster-secret";
    assert!(found.iter().any(|it| it == line), "{found:#?}");
}

#[test]
fn a_log_that_cannot_be_opened_ends_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = support::settings(&folder);
    settings.audit = Some(AuditSettings {
        path: folder.path().join("none/audit.log"),
        file_bytes: 1 << 20,
        keep: 1,
    });
    let refused = dendra_server::Server::start(settings).expect_err("no folder");
    assert_eq!(refused.exit_code(), 2);
    assert!(refused.to_string().contains("the audit log, "), "{refused}");
}
