//! The clients in `examples/` work as shown, in each language that this machine has.

mod support;

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::{Node, Reply, Request, Run, ScriptedNode, answer, dendra, run};

#[test]
fn the_curl_client_does_what_it_shows() {
    check(&["sh", "examples/client.sh"], "install curl to test it");
}

#[test]
fn the_python_client_does_what_it_shows() {
    let install = "install Python 3.9 or newer to test it";
    check(&["python3", "examples/client.py"], install);
}

#[test]
#[ignore = "at length"]
fn the_go_client_does_what_it_shows() {
    let install = "install Go 1.22 or newer to test it";
    check(&["go", "run", "examples/client.go"], install);
}

/// Runs a client against a real node, then against one that refuses and forgets its answers.
fn check(client: &[&str], install: &str) {
    let tool = if client[0] == "sh" { "curl" } else { client[0] };
    let version = if tool == "go" { "version" } else { "--version" };
    let mut look = Command::new(tool);
    look.arg(version)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match look.status() {
        Ok(status) if status.success() => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // The harness hides the output of a test that passes, but not this.
            let line = format!(
                "skipped {}: {tool} is missing, {install}\n",
                client.join(" ")
            );
            std::io::stderr()
                .write_all(line.as_bytes())
                .expect("stderr is open");
            return;
        }
        other => panic!("{tool} {version}: {other:?}"),
    }

    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = Node::start(folder.path(), &[]);
    assert_eq!(
        said(client, &node.url, "apples"),
        "greeting: hello\ncart: apples\n"
    );
    assert_eq!(
        said(client, &node.url, "pears"),
        "greeting: hello\ncart: apples pears\n"
    );
    assert_eq!(
        said(client, &node.url, "pears"),
        "greeting: hello\ncart: apples pears\n"
    );

    check_sealed(client);

    let (begun, node) = (Instant::now(), unkind_node());
    assert_eq!(
        said(client, &node.url(), "figs"),
        "greeting: hello\ncart: figs\n"
    );
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "it did not wait for Retry-After"
    );
    let lines: Vec<String> = node
        .requests()
        .into_iter()
        .map(|request| request.line)
        .collect();
    assert_eq!(
        lines,
        [
            "PUT /v0/entity?id=greeting", // 503, nothing applied, 1 s
            "PUT /v0/entity?id=greeting",
            "GET /v0/entity?id=greeting",
            "GET /v0/entity?id=cart", // 404
            "PUT /v0/entity?id=cart", // 504, unknown; it was not applied
            "GET /v0/entity?id=cart", // 404
            "PUT /v0/entity?id=cart", // 412: the first one was, after all
            "GET /v0/entity?id=cart", // it has the line
            "GET /v0/entity?id=cart", // to show it
        ]
    );
}

/// Runs a client against a node with TLS and a token: in a file, and in a variable.
fn check_sealed(client: &[&str]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (certs, root) = (path("certs"), path("root"));
    for words in [
        &["cert", &certs, "--member", "127.0.0.1"][..],
        &["token", "root", &root],
    ] {
        let made = run(&mut dendra(words));
        assert_eq!(made.code, Some(0), "{}", made.stderr);
    }
    let (cert, key) = (
        format!("{certs}/127.0.0.1.crt"),
        format!("{certs}/127.0.0.1.key"),
    );
    let flags = [
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--root-token-file",
        &root,
    ];
    let node = Node::start(&folder.path().join("data"), &flags);
    let ca = ("DENDRA_CA", format!("{certs}/ca.crt"));
    let token = std::fs::read_to_string(&root).expect("it is there");
    for access in [
        ("DENDRA_TOKEN_FILE", root.clone()),
        ("DENDRA_TOKEN", token.trim().to_owned()),
    ] {
        let said = said_with(client, &node.url, "plums", &[ca.clone(), access]);
        assert_eq!(said, "greeting: hello\ncart: plums\n");
    }
}

fn said(client: &[&str], url: &str, item: &str) -> String {
    said_with(client, url, item, &[])
}

fn said_with(client: &[&str], url: &str, item: &str, access: &[(&str, String)]) -> String {
    let mut command = Command::new(client[0]);
    command.args(&client[1..]).args([url, item]);
    command.envs(access.iter().map(|(name, text)| (name, text)));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let Run {
        code,
        stdout,
        stderr,
    } = run(&mut command);
    assert_eq!(code, Some(0), "{client:?}: {stderr}");
    String::from_utf8_lossy(&stdout)
        .trim_end_matches(' ')
        .replace(" \n", "\n")
}

/// Refuses the first write, and loses the answer of the first conditional one.
fn unkind_node() -> ScriptedNode {
    let asked_for_cart = AtomicUsize::new(0);
    ScriptedNode::start(move |request: &Request, before: usize| -> Reply {
        let not_applied = "Dendra-Receipt: outcome=not-applied";
        if request.line.contains("greeting") {
            return match (before, request.line.starts_with("PUT")) {
                (0, _) => answer(
                    "503 Busy",
                    &[not_applied, "Retry-After: 1"],
                    b"overloaded: busy\n",
                ),
                (_, true) => answer("201 Created", &["ETag: \"1-1-0\""], b""),
                (_, false) => answer("200 OK", &["ETag: \"1-1-0\""], b"hello"),
            };
        }
        let unknown = "Dendra-Receipt: acks=1/3; outcome=unknown";
        match asked_for_cart.fetch_add(1, Ordering::Relaxed) {
            0 | 2 => answer("404 Not Found", &[], b""),
            1 | 3 if request.header("if-none-match") != Some("*") => {
                answer("400 Bad Request", &[], b"the write has no condition\n")
            }
            1 => answer("504 Late", &[unknown], b"too-few-answers: 1 of 2\n"),
            3 => answer("412 Failed", &[not_applied], b"condition-failed\n"),
            _ => answer("200 OK", &["ETag: \"2-1-0\""], b"figs\n"),
        }
    })
}
