//! `dendra watch`: its lines, its command, its exit codes, and a node that comes back.
//!
//! Invariants
//! 1. A claim about what is not printed is made by a line that comes behind it.
//!
//! Not here: the events themselves (crate `server`, `tests/watch.rs`).
//! See: docs/cli.md.

mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use support::http::{Client, PATIENCE};
use support::{Node, dendra, finish, free_port, run, signal};

/// A running `dendra watch`.
struct Watching {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Watching {
    fn start(node: &Node, flags: &[&str]) -> Watching {
        let mut command = node.command(["watch"]);
        command
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        Watching { child, lines }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not an event: {line:?}"))
    }

    /// Reads on to a line of this key.
    fn until(&mut self, key: &str) -> Vec<Value> {
        let mut seen = vec![self.next()];
        while seen.last().is_some_and(|event| event["key"] != key) {
            seen.push(self.next());
        }
        seen
    }
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| event["event"].as_str())
        .collect()
}

fn put(node: &Node, key: &str, value: &str) {
    let mut client = Client::open(node.address()).expect("the node accepts");
    let answer = client.ask("PUT", key, &[], value.as_bytes());
    assert_eq!(answer.expect("an answer").status, 201);
}

#[test]
fn events_are_lines_and_go_on_behind_a_node_that_comes_back() {
    let data = tempfile::tempdir().expect("a folder");
    let (reserved, address) = free_port();
    drop(reserved);
    let listen = address.to_string();
    let node = Node::start_at(&listen, data.path(), &[]);
    put(&node, "a/1", "one");
    put(&node, "b", "other");
    let mut watch = Watching::start(&node, &["--prefix", "a/"]);
    let state = watch.next();
    assert_eq!(
        (&state["event"], &state["key"], &state["value"]),
        (&"put".into(), &"a/1".into(), &"one".into())
    );
    assert_eq!(watch.next()["event"], "live");
    put(&node, "a/2", "two");
    assert_eq!(watch.next()["key"], "a/2");
    node.end("TERM");
    let node = Node::start_at(&listen, data.path(), &[]);
    put(&node, "a/3", "three");
    let seen = watch.until("a/3");
    assert_eq!(kinds(&seen)[0], "reset", "{seen:?}");
    signal(&watch.child, "INT");
    let ended = finish(watch.child);
    assert_eq!(ended.code, Some(130));
    assert!(ended.stderr.contains("draining"), "{}", ended.stderr);
}

#[test]
fn a_command_runs_for_each_event_and_its_failure_ends_the_watch() {
    let data = tempfile::tempdir().expect("a folder");
    let node = Node::start(data.path(), &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("told");
    put(&node, "a/1", "one\n");
    let script = format!(
        "{{ printf '%s %s %s ' \"$DENDRA_EVENT\" \"$DENDRA_KEY\" \"${{DENDRA_VERSION:+v}}\"; cat; }} >> '{}'; [ \"$DENDRA_EVENT\" != delete ] || exit 7",
        out.display()
    );
    let watch = Watching::start(&node, &["--prefix", "a/", "--exec", &script]);
    let told = || std::fs::read_to_string(&out).unwrap_or_default();
    let wait_for = |wanted: &str| {
        let begun = std::time::Instant::now();
        while told() != wanted {
            assert!(begun.elapsed() < PATIENCE, "{:?} is not {wanted:?}", told());
            support::rest();
        }
    };
    wait_for("put a/1 v one\n");
    put(&node, "a/2", "two\n");
    wait_for("put a/1 v one\nput a/2 v two\n");
    let mut client = Client::open(node.address()).expect("the node accepts");
    client.ask("DELETE", "a/1", &[], b"").expect("an answer");
    let ended = finish(watch.child);
    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("the command for delete of"),
        "{}",
        ended.stderr
    );
    // The event that failed comes again.
    let token = ended
        .stderr
        .split("--from ")
        .nth(1)
        .expect("where it goes on")
        .trim();
    let mut again = Watching::start(&node, &["--prefix", "a/", "--from", token]);
    let seen = again.until("a/1");
    assert_eq!(kinds(&seen).last(), Some(&"delete"));
    signal(&again.child, "INT");
    assert_eq!(finish(again.child).code, Some(130));
}

#[test]
fn a_watch_that_cannot_begin_has_the_exit_code_of_its_reason() {
    let data = tempfile::tempdir().expect("a folder");
    let node = Node::start(data.path(), &[]);
    for (flags, code, word) in [
        (&["--id", "k", "--from", "AAAA"][..], 1, "bad-from"),
        (&[], 2, "--id"),
        (&["--id", "k", "--prefix", "k"], 2, "cannot be used"),
        (&["--end", "k"], 2, "--start"),
    ] {
        let ended = run(node.command(["watch"]).args(flags));
        assert_eq!(ended.code, Some(code), "{flags:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(word), "{flags:?}: {}", ended.stderr);
    }
    let (nothing, address) = free_port();
    drop(nothing);
    let ended = run(&mut dendra([
        "watch",
        "--url",
        &format!("http://{address}"),
        "--id",
        "k",
    ]));
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    let mut watch = Watching::start(&node, &["--id", "k", "--from", "now", "--no-values"]);
    assert_eq!(watch.next()["event"], "live");
    put(&node, "k", "unseen");
    let event = watch.next();
    assert_eq!((&event["event"], event.get("value")), (&"put".into(), None));
    signal(&watch.child, "INT");
    assert_eq!(finish(watch.child).code, Some(130));
}
