//! `dendra health` of one node, or of none.

use crate::support::{Node, Run, ScriptedNode, answer, dendra, run};
use serde_json::Value;

/// Exit code, and what was printed on stdout and stderr.
fn health(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Run {
        code,
        stdout,
        stderr,
    } = run(dendra(["health"]).args(arguments));
    (code, String::from_utf8(stdout).expect("text"), stderr)
}

#[test]
fn a_node_by_itself_is_healthy_and_one_that_is_gone_does_not_serve() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(&folder.path().join("n1"), &[]);
    let admin = node.admin.clone();
    let (code, text, _) = health(&["--url", &admin]);
    assert_eq!((code, text.as_str()), (Some(0), "healthy\n"));
    let (code, text, _) = health(&["--url", &admin, "--json"]);
    let page: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &page["health"]), (Some(0), &Value::from("healthy")));
    // The data port is no admin port: its health is not known.
    let (code, text, said) = health(&["--url", &node.url]);
    assert_eq!((code, text.as_str()), (Some(3), ""));
    assert!(said.contains("not the admin port"), "{said}");
    let (code, log) = node.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("finding="), "{log}");
    let (code, text, _) = health(&["--url", &admin]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.starts_with("not-serving\nno-answer: "), "{text}");
}

#[test]
fn a_node_that_wants_a_token_does_not_tell_its_health() {
    let node =
        ScriptedNode::start(|_, _| answer("401 Unauthorized", &[], b"unauthenticated: a token\n"));
    let (code, text, said) = health(&["--url", &node.url()]);
    assert_eq!((code, text.as_str()), (Some(3), ""));
    assert!(said.contains("a token"), "{said}");
}

#[test]
fn admin_ports_stand_beside_the_option_that_asks_all() {
    let (code, _, said) = health(&["http://127.0.0.1:1"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("--cluster"), "{said}");
}
